//! Online restart, the new process: takes over clients of the old process.
//!
//! A client arrives as a [`ClientRecord`], with its server if it keeps one. Servers that the old process still has
//! count in the pools here.

use std::sync::Arc;

use pgweir_auth::scram::ClientKeys;

use super::{Worker, notification_forwarding::send_listen_note};
use crate::{
    Action, Actions, ReadMode, TakeoverMail, Time, Token,
    connections::Conn,
    effect::{Effect, PoolEffect},
    exchange::pin_at_login,
    fault::Fault,
    frontend::{Client, ClientKey, Origin, UnnamedStatement, Upstream},
    pool::PoolKey,
    session::{Context, SqlStatements},
    takeover::{ClientRecord, ListenNote, PoolNote},
};

impl Worker {
    /// Takes over a client of the old process. The driver registers the client's socket, and its server's,
    /// under the returned tokens **before** it executes the actions. `blocked`: some of what was sent to the client
    /// last is still unwritten.
    pub fn take_over_client(
        &mut self,
        record: Box<ClientRecord>,
        blocked: bool,
        now: Time,
        out: &mut Actions,
    ) -> TakenOverClient {
        let mut client = self.client_from_record(&record, now);
        client.socket.blocked = blocked;
        for (name, definition) in &record.statements {
            let statement = self.directory.statements().intern(definition);
            let _ = client
                .statements
                .define(&mut self.bindings, name, &statement, 0);
        }
        let key = client.cancel_key();
        let names = client.names.clone();
        self.directory.client_came();
        self.logins.client_taken_over();
        self.schedule(now);
        let conn = self.table.insert(Conn::Client(Box::new(client)));
        self.cancel_requests.take_key(&key, conn);
        if let Some(names) = &names {
            self.directory.client_counts().add(names);
        }
        self.suspension.add(conn);
        out.read(conn, ReadMode::Hold);
        let settled = self.restore_client(conn, &record, now, out);
        let server = settled.and_then(|()| match &record.server {
            Some(server) => self.take_over_server(conn, server, now, out),
            None => Ok(None),
        });
        match &server {
            Err(fault) => self.refuse_handover(conn, &record, fault, now, out),
            Ok(Some(_)) => out.read(conn, ReadMode::Deliver),
            Ok(None) => match self.listens_on(conn, &record, now, out) {
                Ok(true) => {}
                Ok(false) => self.serve_taken_over_client(conn, record.ready_was_sent, now, out),
                Err(fault) => self.refuse_handover(conn, &record, &fault, now, out),
            },
        }
        TakenOverClient {
            client: conn,
            server: server.ok().flatten(),
        }
    }

    /// Closes a client that can't be taken over; the old process need not forward its notifications any more.
    fn refuse_handover(
        &mut self,
        conn: Token,
        record: &ClientRecord,
        fault: &Fault,
        now: Time,
        out: &mut Actions,
    ) {
        if !record.channels.is_empty() {
            send_listen_note(&record.cancel_key(), ListenNote::Done, out);
        }
        self.refuse(conn, fault, now, out);
    }

    fn client_from_record(&self, record: &ClientRecord, now: Time) -> Client {
        let origin = Origin {
            id: record.id,
            remote: record.remote,
            local: record.local,
            port: record.port,
            same_uid: record.same_uid,
            uid: None,
            pid: record.process,
            connected_at: Time(now.0.saturating_sub(record.age)),
        };
        let mut client = Client::new(&origin, self.tracked_of(&record.tracked), now);
        client.key = ClientKey::resumed(record.key_pid, &record.key_secret);
        client.names = Some(Arc::new(record.names.clone()));
        client.socket.stream = Upstream::resumed(&record.partial).unwrap_or_default();
        client.unnamed = UnnamedStatement::resumed(record.unnamed.as_deref());
        client.socket.early = (!record.early.is_empty()).then(|| Box::new(record.early.clone()));
        client
    }

    /// Gives the client its pool and its session state.
    fn restore_client(
        &mut self,
        conn: Token,
        record: &ClientRecord,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let (names, server_keys) = (&record.names, record.server_keys);
        let database = snapshot
            .config
            .database(&names.database)
            .ok_or(Fault::DatabaseRemoved)?;
        let key = PoolKey {
            database: names.database.clone(),
            user: database.user_for(&names.user).into(),
        };
        let shared = self.directory.pool(&key, &snapshot.config, database);
        if let Some(keys) = server_keys {
            let mut facts = shared.facts.lock();
            facts.keys.get_or_insert_with(|| ClientKeys::of_bytes(keys));
        }
        if let Some(password) = &record.server_password {
            let mut facts = shared.facts.lock();
            if facts.secret.is_none() {
                facts.secret = Some(Arc::new(password.secret()));
                facts.is_checked = password.is_checked;
            }
        }
        let pool = self.local_pool(&shared, now);
        pool.clients += 1;
        let engine = pool.terms.engine;
        if pool.paused {
            self.carry_out([Effect::Pool(shared.id, PoolEffect::ApplyOrders)], now, out);
        }
        let directory = Arc::clone(&self.directory);
        directory.stays();
        if let Some(client) = self.table.client(conn) {
            client.pool = Some(shared.id);
        }
        self.count_pool_client(&shared, now, out);
        let Some(client) = self.table.client(conn).filter(|_| engine) else {
            return Ok(());
        };
        let session = record.session.clone().unwrap_or_default();
        let settings = directory.settings();
        let is_utf8 = shared.is_utf8();
        let mut customs = shared.custom_parameters.lock();
        for (name, _) in session
            .wanted
            .iter()
            .filter(|(name, _)| name.contains(&b'.'))
        {
            customs.insert(name, is_utf8);
        }
        drop(customs);
        client.context = Some(Box::new(Context {
            base: settings.intern(session.base),
            wanted: settings.intern(session.wanted),
            implied: settings.intern(session.implied),
            sql: SqlStatements::read(session.sql).unwrap_or_default(),
            has_sequences: session.has_sequences,
            unproven: session.is_unproven,
            ..Context::default()
        }));
        let is_pinned = self
            .pools
            .get(shared.id)
            .is_some_and(|pool| pool.terms.dedicated);
        pin_at_login(client, is_pinned, now);
        Ok(())
    }

    /// Starts to serve the client like any other client.
    pub(super) fn serve_taken_over_client(
        &mut self,
        conn: Token,
        is_welcome: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let (Some(pool), early, blocked) = (
            client.pool,
            client.socket.early.is_some(),
            client.socket.blocked,
        ) else {
            return;
        };
        if is_welcome {
            return match (early, blocked) {
                (true, _) => self.check_out(conn, now, out),
                (false, false) => out.read(conn, ReadMode::Notify),
                (false, true) => {}
            };
        }
        let is_unproven = client.is_unproven();
        let knows = self.pool(pool).is_some_and(|pool| pool.shared.is_known());
        match (knows, is_unproven) {
            (true, true) => self.check_out(conn, now, out),
            (true, false) => self.log_in(now, out, |event, out| event.welcome(conn, out)),
            (false, _) => self.wait(conn, pool, true, now, out),
        }
    }

    /// Notes how many servers of a pool the old process has.
    /// If `is_wanted`, the old process asks for one more.
    pub(super) fn note_old_process_servers(
        &mut self,
        note: &PoolNote,
        is_wanted: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(database) = snapshot.config.database(&note.database) else {
            return;
        };
        let key = PoolKey {
            database: note.database.as_str().into(),
            user: note.user.as_str().into(),
        };
        let shared = self.directory.pool(&key, &snapshot.config, database);
        let (notes, is_there) = {
            let mut ledger = shared.ledger.lock();
            let notes = match is_wanted {
                true => ledger.want_elsewhere(note.lent, now),
                false => ledger.set_elsewhere(note.held, note.lent, now),
            };
            (notes, ledger.is_elsewhere())
        };
        self.deliver(notes, &shared, out);
        self.directory.remember_elsewhere(&shared, is_there);
    }

    /// Forgets the old process and its servers, since it has ended.
    pub(super) fn predecessor_gone(&mut self, now: Time, out: &mut Actions) {
        for shared in self.directory.forget_elsewhere() {
            let notes = shared.ledger.lock().end_elsewhere(now);
            self.deliver(notes, &shared, out);
        }
        self.end_arriving(now, out);
    }

    /// Handles a message of the old process.
    pub(super) fn handle_takeover_mail(
        &mut self,
        word: TakeoverMail,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(next) = word.passes_on(self.id, self.directory.workers()) {
            let mail = word.into();
            return out.list.push(Action::Mail { to: next, mail });
        }
        match word {
            TakeoverMail::BeginHandover => self.begin_handover_out(now, out),
            TakeoverMail::CancelHandover => self.cancel_handover_out(now, out),
            TakeoverMail::HandoverTimeout => self.end_handover_timeout(now, out),
            TakeoverMail::OldProcessServers(note) => {
                self.note_old_process_servers(&note, false, now, out)
            }
            TakeoverMail::PlaceRequested(note) => {
                self.note_old_process_servers(&note, true, now, out)
            }
            TakeoverMail::PlaceLent(note) => self.take_lent_place(&note, now, out),
            TakeoverMail::Gone { shared, .. } => self.server_handed_over(&shared, now, out),
            TakeoverMail::Alone => self.predecessor_gone(now, out),
            TakeoverMail::Listening { key, note } => self.handle_listen_note(&key, note, now, out),
            TakeoverMail::AllBack => self.forget_forwarded_clients(now, out),
        }
    }
}

/// A client that was taken over.
#[derive(Debug, Clone, Copy)]
pub struct TakenOverClient {
    /// The client's connection.
    pub client: Token,
    /// The server's connection; if the client came with a server and this is `None`, the driver closes that server.
    pub server: Option<Token>,
}
