//! Online restart, the process that goes: clients leave for the next process at quiet points, and what
//! their pools have of servers is given up with them.
//!
//! Servers of a pool are one budget of both processes. The old one opens none any more beyond what it
//! **keeps** for clients that can't leave: at most half of what it had, and not more than there are such
//! clients. Whatever else comes free is closed, and the other process is told what is left
//! ([`Control::Held`]): it counts that as its own. Where more clients wait than servers were kept for (a pool
//! of one has no half), it asks the other process for a place ([`Control::Want`]), which is **lent** to it
//! when it is its turn there, and which it gives back after a second.

use std::sync::Arc;

use pgweir_auth::scram::ClientKeys;

use super::Worker;
use crate::{
    Action, Actions, Control, SharedPool, Time, Token,
    connections::Conn,
    fault::Fault,
    frontend::{Client, ClientDuty},
    pool::PoolId,
    takeover::{ClientRecord, PoolNote, ServerPassword, SessionRecord},
};

/// So many looks in a row must have found no client before a worker says that it is empty: one that
/// another worker has accepted may be on its way to it.
const EMPTY_LOOKS: u8 = 2;

/// A worker whose clients leave.
#[derive(Debug, Default)]
pub(crate) struct HandoverOut {
    /// Clients that have given their server back, or keep it and are done.
    pub(super) done: Vec<Token>,
    empty_looks: u8,
    has_reported: bool,
}

impl Worker {
    /// The next process is up: clients leave for it.
    pub(super) fn begin_handover_out(&mut self, now: Time, out: &mut Actions) {
        self.handover_out = Some(Box::default());
        for id in self.pool_ids() {
            if let Some(pool) = self.pool(id) {
                pool.clients_keep_servers = false;
            }
            self.release_kept(id, now, out);
        }
        self.hand_over_quiet_clients(now, out);
        self.schedule(now);
    }

    /// The next process has failed: all goes on as before.
    pub(super) fn cancel_handover_out(&mut self, now: Time, out: &mut Actions) {
        if self.handover_out.take().is_none() {
            return;
        }
        self.await_returns(out);
        let snapshot = Arc::clone(&self.snapshot);
        // Limits, and who keeps servers, are as the configuration says again.
        self.reconfigure(snapshot, now, out);
    }

    /// Who has not left until now can't.
    pub(super) fn end_handover_timeout(&mut self, now: Time, out: &mut Actions) {
        let left = self.tokens(|conn| matches!(conn, Conn::Client(client) if !is_own(client)));
        for conn in left {
            self.refuse(conn, &Fault::TakeoverTimeout, now, out);
        }
        self.end_forwarding(out);
    }

    /// Time passes while clients leave.
    pub(super) fn check_handover_out(&mut self, now: Time, out: &mut Actions) {
        if self.handover_out.is_none() {
            return;
        }
        // What several workers say at once may come in another order: so it is said again.
        self.directory.retained().report_again();
        self.hand_over_quiet_clients(now, out);
        let is_empty = !self
            .table
            .iter()
            .any(|(_, conn)| matches!(conn, Conn::Client(client) if !is_own(client)))
            && self.forwarded_clients.is_empty();
        let Some(handover) = &mut self.handover_out else {
            return;
        };
        handover.empty_looks = if is_empty {
            handover.empty_looks + 1
        } else {
            0
        };
        if handover.empty_looks >= EMPTY_LOOKS {
            handover.empty_looks = 0;
            if !std::mem::replace(&mut handover.has_reported, true) {
                out.list.push(Action::Control(Control::Departed(self.id)));
            }
        }
    }

    fn hand_over_quiet_clients(&mut self, now: Time, out: &mut Actions) {
        let can_move =
            |conn: &Conn| matches!(conn, Conn::Client(client) if can_be_recorded(client));
        for conn in self.tokens(can_move) {
            self.hand_over_client(conn, now, out);
        }
        self.release_server_places(now, out);
        self.request_server_places(out);
    }

    /// Asks for places for clients that wait and can't leave.
    fn request_server_places(&self, out: &mut Actions) {
        for pool in self.pools.iter().flatten() {
            self.request_server_place(&pool.shared, out);
        }
    }

    /// The same for one pool.
    pub(super) fn request_server_place(&self, shared: &Arc<SharedPool>, out: &mut Actions) {
        if !shared.ledger.lock().is_restricted() {
            return;
        }
        // Nobody is asked before it is known what there is.
        if let Some(note) = self.directory.retained().note(shared) {
            out.list.push(Action::Control(Control::Want(note)));
        }
    }

    /// A place was lent.
    pub(super) fn take_lent_place(&mut self, note: &PoolNote, now: Time, out: &mut Actions) {
        let pools = self.directory.pools();
        let is_it = |pool: &&Arc<SharedPool>| {
            *pool.key.database == *note.database && *pool.key.user == *note.user
        };
        // It lives as long as others wait in it. If it is gone, nobody needs the place, and the next
        // departure counts anew.
        let Some(shared) = pools.iter().find(is_it) else {
            return;
        };
        let held = shared.ledger.lock().servers();
        let keeps = self.directory.retained().take_lent_place(shared, held, now);
        let Some(keeps) = keeps else { return };
        let notes = {
            let mut ledger = shared.ledger.lock();
            ledger.restrict(keeps);
            ledger.tick(now)
        };
        self.deliver(notes, shared, out);
        self.release_server_places(now, out);
    }

    /// At the end of an event, when all that was read is dealt with: have clients come to a quiet point?
    #[cold]
    pub(super) fn hand_over_if_quiet(&mut self, now: Time, out: &mut Actions) {
        let Some(handover) = &mut self.handover_out else {
            return;
        };
        let done = std::mem::take(&mut handover.done);
        if done.is_empty() {
            return;
        }
        for conn in done {
            self.hand_over_client(conn, now, out);
        }
        self.release_server_places(now, out);
    }

    /// A client leaves if it is at a quiet point, with its server if it keeps one.
    fn hand_over_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(Conn::Client(client)) = self.table.look(conn) else {
            return;
        };
        if !can_be_recorded(client) {
            return;
        }
        let own = match client.duty {
            ClientDuty::Idle | ClientDuty::Waiting { .. } => None,
            _ => match self.server_to_hand_over(client) {
                Some(server) => Some(server),
                None => return,
            },
        };
        let Some(mut record) = self.record_client(conn, now) else {
            return;
        };
        let along = own.and_then(|server| self.hand_over_server(conn, server, now, out));
        let server = along.map(|(server, along)| {
            record.server = Some(server);
            along
        });
        out.list.push(Action::HandOverClient {
            conn,
            record: Box::new(record),
            server,
        });
        let forward = self.begin_forwarding(conn);
        self.forget_client(conn, now, out);
        if let Some(forward) = forward {
            self.forwarded_clients.insert(conn, forward);
        }
    }

    /// All that is known of a client that may leave.
    fn record_client(&mut self, conn: Token, now: Time) -> Option<ClientRecord> {
        let names = self.directory.names();
        let Some(Conn::Client(client)) = self.table.look(conn) else {
            return None;
        };
        let pairs = |pairs: &mut dyn Iterator<Item = (&[u8], &[u8])>| {
            pairs
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect()
        };
        let session = client.context.as_ref().map(|context| SessionRecord {
            base: pairs(&mut context.base.iter()),
            wanted: pairs(&mut context.wanted.iter()),
            implied: pairs(&mut context.implied.iter()),
            sql: pairs(&mut context.sql.pairs()),
            has_sequences: context.has_sequences,
            is_unproven: context.unproven,
        });
        let statements = client.statements.all(&self.bindings).into_iter();
        let mut tracked = names
            .pairs(&client.tracked)
            .map(|(name, value)| (name.as_bytes(), value));
        Some(ClientRecord {
            id: client.id,
            names: client.names.as_deref()?.clone(),
            remote: client.remote,
            local: client.local,
            port: client.port,
            same_uid: client.same_uid,
            process: client.pid,
            key_pid: client.key_pid,
            key_secret: client.cancel_key().secret.into_vec(),
            age: now.since(client.connected_at),
            server_password: self.server_password(client.pool),
            ready_was_sent: !matches!(client.duty, ClientDuty::Waiting { at_login: true, .. }),
            tracked: pairs(&mut tracked),
            session,
            statements: statements
                .map(|(name, statement)| (name.into_vec(), statement.definition().to_vec()))
                .collect(),
            unnamed: client.unnamed.as_ref().map(|text| text.to_vec()),
            early: client.early.as_deref().cloned().unwrap_or_default(),
            partial: client.stream.partial().to_vec(),
            server_keys: self.server_keys(client.pool),
            server: None,
            channels: client
                .listening
                .as_ref()
                .map_or_else(Vec::new, |listening| listening.names()),
        })
    }

    /// What its pool logs in to servers with, if a client has brought it.
    fn server_password(&self, pool: Option<PoolId>) -> Option<ServerPassword> {
        let pool = self.pools.get(pool?.index())?.as_ref()?;
        let facts = pool.shared.facts.lock();
        ServerPassword::of(facts.secret.as_ref()?, facts.is_checked)
    }

    /// The same by SCRAM.
    fn server_keys(&self, pool: Option<PoolId>) -> Option<[[u8; 32]; 2]> {
        let pool = self.pools.get(pool?.index())?.as_ref()?;
        let facts = pool.shared.facts.lock();
        facts.keys.as_ref().map(ClientKeys::to_bytes)
    }

    /// Closes servers that are free and not kept, and tells the other process what is left.
    pub(super) fn release_server_places(&mut self, now: Time, out: &mut Actions) {
        for id in self.pool_ids() {
            self.release_server_places_of(id, now, out);
        }
        // Also of pools that only other workers know. A ledger's lock is never taken behind this one.
        let mut pools = self.directory.retained().known();
        pools.extend(self.directory.pools());
        for pool in pools {
            let held = pool.ledger.lock().servers();
            let mut keeping = self.directory.retained();
            if let Some(note) = keeping.look(&pool, held, now) {
                out.list.push(Action::Control(Control::Held(note)));
            }
        }
    }

    fn release_server_places_of(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        let shared = Arc::clone(&pool.shared);
        let held = shared.ledger.lock().servers();
        let keeps = {
            let mut keeping = self.directory.retained();
            keeping.shrink(&shared, held, now)
        };
        // It has been called off.
        let Some(keeps) = keeps else { return };
        let is_above = {
            let mut ledger = shared.ledger.lock();
            ledger.restrict(keeps);
            ledger.is_above_size()
        };
        if is_above {
            self.place_idle_again(id, now, out);
        }
    }

    /// Do its clients leave?
    #[inline]
    pub(super) fn hands_clients_over(&self) -> bool {
        self.handover_out.is_some()
    }
}

/// Connections that end with the process.
fn is_own(client: &Client) -> bool {
    matches!(
        client.duty,
        ClientDuty::Console(_) | ClientDuty::CancelRequest { .. }
    )
}

/// Can it be written down, if it is at a quiet point?
fn can_be_recorded(client: &Client) -> bool {
    let may_be_quiet = matches!(
        client.duty,
        ClientDuty::Idle | ClientDuty::Waiting { .. } | ClientDuty::Active(_)
    );
    may_be_quiet
        && client.pool.is_some()
        && client.exclusive.is_none()
        && client.login.is_none()
        && client.tls.is_none()
        && client
            .listening
            .as_ref()
            .is_none_or(|listening| listening.is_quiet())
        && client.held.is_none()
        && !client.blocked
        && client.stream.is_at_boundary()
        && client.context.as_ref().is_none_or(|own| !own.is_pinned())
}
