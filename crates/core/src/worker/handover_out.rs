//! Online restart, the old process: hands clients over to the new process at quiet points, and gives up
//! their pools' places for servers with them.
//!
//! Both processes share one budget of servers per pool. The old process opens no more servers than it
//! **keeps** for clients that can't leave: at most half of what it had, and at most the number of such
//! clients. It closes every other server that comes free, and reports the rest to the new process
//! ([`Control::Held`]), which counts them in its pool. If more clients wait than servers were kept (half of a pool
//! of one is none), the old process asks for a place ([`Control::Want`]). The new process **lends** one when that
//! request's turn comes, and the old process gives it back after a second.

use std::sync::Arc;

use pgweir_auth::scram::ClientKeys;

use super::Worker;
use crate::{
    Action, Actions, Control, SharedPool, Time, Token,
    connections::Conn,
    effect::{Effect, PoolEffect},
    fault::Fault,
    frontend::{Client, ClientDuty},
    pool::PoolId,
    takeover::{ClientRecord, PoolNote, ServerPassword, SessionRecord},
};

/// The checks in a row that must find no client before a worker reports that it is empty: a client that
/// another worker has accepted may be on its way to this one.
const EMPTY_LOOKS: u8 = 2;

/// A worker's state while its clients are handed over.
#[derive(Debug, Default)]
pub(crate) struct HandoverOut {
    /// Clients that have given their server back, or that keep it and are done.
    pub(super) done: Vec<Token>,
    empty_looks: u8,
    has_reported: bool,
}

impl Worker {
    /// Starts to hand clients over, since the new process is up.
    pub(super) fn begin_handover_out(&mut self, now: Time, out: &mut Actions) {
        self.handover_out = Some(Box::default());
        for id in self.pools.ids() {
            if let Some(pool) = self.pool(id) {
                pool.clients_keep_servers = false;
            }
            self.release_kept(id, now, out);
        }
        self.hand_over_quiet_clients(now, out);
        self.schedule(now);
    }

    /// Stops handing clients over, since the new process has failed: everything goes on as before.
    pub(super) fn cancel_handover_out(&mut self, now: Time, out: &mut Actions) {
        if self.handover_out.take().is_none() {
            return;
        }
        self.await_returns(out);
        let snapshot = Arc::clone(&self.snapshot);
        // Limits, and which clients keep servers, follow the configuration again.
        self.reconfigure(snapshot, now, out);
    }

    /// Closes the clients that have not left in time.
    pub(super) fn end_handover_timeout(&mut self, now: Time, out: &mut Actions) {
        let left = self
            .table
            .tokens(|conn| matches!(conn, Conn::Client(client) if !is_own(client)));
        for conn in left {
            self.refuse(conn, &Fault::TakeoverTimeout, now, out);
        }
        self.end_forwarding(now, out);
    }

    /// Handles a tick while clients are handed over.
    pub(super) fn check_handover_out(&mut self, now: Time, out: &mut Actions) {
        if self.handover_out.is_none() {
            return;
        }
        // Reports of several workers may arrive in another order, so they are repeated.
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
        for conn in self.table.tokens(can_move) {
            self.hand_over_client(conn, now, out);
        }
        self.release_server_places(now, out);
        self.request_server_places(out);
    }

    /// Asks the new process for places for clients that wait and can't leave.
    fn request_server_places(&self, out: &mut Actions) {
        for pool in self.pools.iter() {
            self.request_server_place(&pool.shared, out);
        }
    }

    /// Asks for a place in one pool.
    pub(super) fn request_server_place(&self, shared: &Arc<SharedPool>, out: &mut Actions) {
        if !shared.ledger.lock().is_restricted() {
            return;
        }
        // A place can be requested only once the number of servers is known.
        if let Some(note) = self.directory.retained().note(shared) {
            out.list.push(Action::Control(Control::Want(note)));
        }
    }

    /// Takes a place that the new process has lent.
    pub(super) fn take_lent_place(&mut self, note: &PoolNote, now: Time, out: &mut Actions) {
        let pools = self.directory.pools();
        let is_it = |pool: &&Arc<SharedPool>| {
            *pool.key.database == *note.database && *pool.key.user == *note.user
        };
        // The pool exists as long as clients wait in it. If the pool is gone, no client needs the place, and the
        // next departure counts anew.
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

    /// Hands clients over that have come to a quiet point; called at the end of an event, when all input is handled.
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

    /// Hands a client over if it is at a quiet point, with its server if it keeps one.
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

    /// Records the state of a client that may leave.
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
            id: client.origin.id,
            names: client.names.as_deref()?.clone(),
            remote: client.origin.remote,
            local: client.origin.local,
            port: client.origin.port,
            same_uid: client.origin.same_uid,
            process: client.origin.pid,
            key_pid: client.key.pid(),
            key_secret: client.cancel_key().secret.into_vec(),
            age: now.since(client.origin.connected_at),
            server_password: self.server_password(client.pool),
            ready_was_sent: !matches!(client.duty, ClientDuty::Waiting { at_login: true, .. }),
            tracked: pairs(&mut tracked),
            session,
            statements: statements
                .map(|(name, statement)| (name.into_vec(), statement.definition().to_vec()))
                .collect(),
            unnamed: client.unnamed.definition().map(<[u8]>::to_vec),
            early: client.socket.early.as_deref().cloned().unwrap_or_default(),
            partial: client.socket.stream.partial().to_vec(),
            server_keys: self.server_keys(client.pool),
            server: None,
            channels: client
                .listening
                .as_ref()
                .map_or_else(Vec::new, |listening| listening.names()),
        })
    }

    /// Returns the password for the pool's server logins, if a client has brought it.
    fn server_password(&self, pool: Option<PoolId>) -> Option<ServerPassword> {
        let pool = self.pools.get(pool?)?;
        let facts = pool.shared.facts.lock();
        ServerPassword::of(facts.secret.as_ref()?, facts.is_checked)
    }

    /// Returns the SCRAM keys for the pool's server logins.
    fn server_keys(&self, pool: Option<PoolId>) -> Option<[[u8; 32]; 2]> {
        let pool = self.pools.get(pool?)?;
        let facts = pool.shared.facts.lock();
        facts.keys.as_ref().map(ClientKeys::to_bytes)
    }

    /// Closes servers that are free and not kept, and reports the rest to the new process.
    pub(super) fn release_server_places(&mut self, now: Time, out: &mut Actions) {
        for id in self.pools.ids() {
            self.release_server_places_of(id, now, out);
        }
        // Includes pools that only other workers know. A ledger's lock is never taken while this lock is held.
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
        // The handover was cancelled.
        let Some(keeps) = keeps else { return };
        let is_above = {
            let mut ledger = shared.ledger.lock();
            ledger.restrict(keeps);
            ledger.is_above_size()
        };
        if is_above {
            self.carry_out([Effect::Pool(id, PoolEffect::PlaceIdleAgain)], now, out);
        }
    }

    /// Returns whether this worker hands its clients over.
    #[inline]
    pub(super) fn hands_clients_over(&self) -> bool {
        self.handover_out.is_some()
    }
}

/// Returns whether the connection ends with the process.
fn is_own(client: &Client) -> bool {
    matches!(
        client.duty,
        ClientDuty::Console(_) | ClientDuty::CancelRequest { .. }
    )
}

/// Returns whether the client can be recorded, once it is at a quiet point.
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
        && client.socket.held.is_none()
        && !client.socket.blocked
        && client.socket.stream.is_at_boundary()
        && client.context.as_ref().is_none_or(|own| !own.is_pinned())
}
