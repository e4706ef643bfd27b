//! Clients that move from one worker to another, with the load (`worker_busy_target`): between two transactions, when no
//! server is lent to them and nothing of their next request was read. A client of a pool in session mode moves once, after
//! its login: it could not move later, when the load changes.
//!
//! This module owns no state. Input: a worker's load, and clients and idle servers that come from other workers.
//! Output: actions that send clients and idle servers to other workers, and effects on the clients that have come.

use std::sync::Arc;

use pgweir_config::PoolMode;

use crate::{
    Action, Actions, ReadMode, Time, Token, WorkerId,
    base::fault::Fault,
    cancel_requests::CancelRequests,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Effects, Env, PoolEffect, RestartEffect},
    frontend::{Client, ClientDuty, MovedClient, MovedStatement},
    login::ClientLogins,
    mail::Mail,
    operators::suspension::Suspension,
    pooling::LocalPools,
    session::Bindings,
    shared::{
        operator::Halt,
        worker_loads::{Give, WINDOW},
    },
    statement_statistics::ClientStatements,
};

/// An event of clients that move, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct WorkerMoves<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) bindings: &'w mut Bindings,
    pub(crate) logins: &'w mut ClientLogins,
    pub(crate) cancel_requests: &'w mut CancelRequests,
    pub(crate) suspension: &'w mut Suspension,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl WorkerMoves<'_> {
    /// Takes mail about loads.
    pub(crate) fn take_mail(&mut self, mail: &Mail, out: &mut Actions) {
        match mail {
            Mail::Busy(busy) => self.take_load(*busy, out),
            // The driver has changed whether this worker accepts clients.
            Mail::ActiveWorkersChanged => self.leave_if_inactive(out),
            mail => debug_assert!(false, "not about loads: {mail:?}"),
        }
    }

    /// Takes the load of this worker, in thousandths of a CPU. Decides with it how many workers take part, and gives
    /// clients away, if another worker has less to do or if this one does not take part.
    fn take_load(&mut self, busy: u32, out: &mut Actions) {
        let target = self.env.snapshot.worker_busy_target();
        let loads = self.env.directory.worker_loads();
        let decision = loads.report(self.env.worker, busy, target, self.env.now);
        for to in decision.changed {
            out.mail(to, Mail::ActiveWorkersChanged);
        }
        if let Some(give) = decision.give.filter(|_| self.may_move()) {
            self.give(give, out);
        }
        self.leave_if_inactive(out);
    }

    /// Gives all clients that can move to other workers, and all idle servers, if this worker does not take part.
    pub(crate) fn leave_if_inactive(&mut self, out: &mut Actions) {
        let loads = self.env.directory.worker_loads();
        if !loads.takes_part(self.env.worker) && self.may_move() {
            self.give_all(out);
        }
    }

    /// Gives a part of the clients that have sent requests lately to another worker: those that can move now. A single
    /// client stays, since its load would only change its place.
    fn give(&mut self, give: Give, out: &mut Actions) {
        let since = Time(self.env.now.0.saturating_sub(2 * WINDOW));
        let is_busy = |conn: &Conn| matches!(conn, Conn::Client(client) if client.pool().is_some() && client.request.sent_at() >= since);
        let busy = self.connections.tokens(is_busy);
        let quota = busy.len() * give.part as usize / 1000;
        let movable = busy.into_iter().filter(|&conn| self.can_move(conn));
        for conn in Vec::from_iter(movable.take(quota)) {
            self.send(conn, give.to, out);
        }
    }

    /// Gives all clients that can move, and all idle servers, to the workers that take part.
    fn give_all(&mut self, out: &mut Actions) {
        let active = self.env.directory.worker_loads().active();
        let clients = self
            .connections
            .tokens(|conn| matches!(conn, Conn::Client(_)));
        let movable = clients.into_iter().filter(|&conn| self.can_move(conn));
        for (at, conn) in Vec::from_iter(movable).into_iter().enumerate() {
            self.send(conn, WorkerId((at % active) as u8), out);
        }
        // The idle servers of one pool go to one worker: there, each of its clients finds them.
        for id in self.pools.ids() {
            while let Some(server) = self.pools.get_mut(id).and_then(|pool| pool.idle.pop()) {
                self.send_server(server, WorkerId((id.index() % active) as u8), out);
            }
        }
    }

    /// Assigns a client that has just logged in to a pool in session mode to one of all workers. From its first request to
    /// its end, the client has a server, so it can't move when the load changes.
    pub(crate) fn assign(&mut self, conn: Token, out: &mut Actions) {
        let Some(Conn::Client(client)) = self.connections.get(conn) else {
            return;
        };
        let has_target = self.env.snapshot.worker_busy_target() > 0;
        if has_target && self.may_move() && can_move(client) {
            let to = self.env.directory.worker_loads().assign();
            if to != self.env.worker {
                self.send(conn, to, out);
            }
        }
    }

    /// Returns whether a client gets a server for as long as it is connected.
    fn keeps_server(&self, client: &Client) -> bool {
        let pool = client.pool().and_then(|pool| self.pools.get(pool));
        pool.is_some_and(|pool| pool.terms.mode == PoolMode::Session)
    }

    /// Returns whether clients may move at present.
    fn may_move(&self) -> bool {
        let operator = self.env.directory.operator();
        !self.env.hands_clients_over
            && self.env.shutdown.is_none()
            && !self.env.directory.has_partner()
            && operator.halt() == Halt::No
            && !operator.is_ending()
    }

    fn can_move(&self, conn: Token) -> bool {
        match self.connections.get(conn) {
            Some(Conn::Client(client)) => can_move(client) && !self.keeps_server(client),
            _ => false,
        }
    }

    /// Sends a client to another worker.
    fn send(&mut self, conn: Token, to: WorkerId, out: &mut Actions) {
        let loads = self.env.directory.worker_loads();
        let pool = match self.connections.get(conn) {
            Some(Conn::Client(client)) => client.pool(),
            _ => None,
        };
        let Some(pool) = pool.and_then(|pool| self.pools.get_mut(pool)) else {
            return out.report_missing("the pool of a client that moves");
        };
        if !loads.begin_move() {
            return;
        }
        let Some(Conn::Client(mut client)) = self.connections.remove(conn) else {
            return loads.end_move();
        };
        pool.remove_client(self.env.now);
        let shared = Arc::clone(&pool.shared);
        // A tick removes the pool if nobody uses it.
        self.connections.schedule(self.env.now);
        self.logins.client_left();
        let statements = client.statements.take(self.bindings);
        // The statements in it are numbers of this worker's statistics.
        client.socket.statement_names = ClientStatements::default();
        let mut mail = Actions::default();
        (self.cancel_requests).client_leaves(&self.env, conn, &mut client, to, &mut mail);
        let statements = statements.into_iter();
        let client = Box::new(MovedClient {
            client,
            shared,
            statements: statements
                .map(|(name, statement, description)| MovedStatement {
                    name,
                    statement,
                    description,
                })
                .collect(),
        });
        out.list.push(Action::MoveClient { conn, to, client });
        // The client comes first: a cancel request that its home passes on then finds it there.
        out.list.append(&mut mail.list);
        loads.count_move();
    }

    /// Sends an idle server, which is in no list any more, to another worker.
    fn send_server(&mut self, conn: Token, to: WorkerId, out: &mut Actions) {
        let Some(Conn::Server(server)) = self.connections.remove(conn) else {
            return out.report_missing("an idle server");
        };
        if let Some(pool) = self.pools.get_mut(server.pool()) {
            pool.remove_server(self.env.now);
            pool.stats.now.server_move_count += 1;
        }
        let mut ledger = server.shared.ledger.lock();
        ledger.move_idle(self.env.worker, to);
        drop(ledger);
        out.list.push(Action::MoveServer { conn, to, server });
    }

    /// Takes a client that another worker has sent.
    pub(crate) fn arrive(&mut self, moved: MovedClient, out: &mut Actions) -> Token {
        let MovedClient {
            mut client,
            shared,
            statements,
        } = moved;
        for moved in &statements {
            client.statements.define_described(
                self.bindings,
                &moved.name,
                &moved.statement,
                moved.description,
            );
        }
        let key = client.cancel_key();
        let conn = (self.connections).insert(Conn::Client(client), self.env.now);
        self.connections.schedule(self.env.now);
        self.cancel_requests.take_key(&key, conn);
        self.logins.client_taken_over();
        self.suspension.add(conn);
        self.env.directory.worker_loads().end_move();
        let pool = self.pools.open(&self.env, self.connections, &shared);
        pool.add_client();
        if pool.orders.paused {
            let obey = Effect::Pool(shared.id, PoolEffect::ApplyOrders);
            self.effects.push(obey);
        }
        if pool.terms.entry.is_none() {
            // This worker has a newer configuration than the one that the client comes from.
            let fault = Box::new(Fault::DatabaseRemoved);
            let refuse = Effect::Client(ClientEffect::Refuse(conn, fault));
            self.effects.push(refuse);
            return conn;
        }
        if self.env.hands_clients_over {
            let done = Effect::Restart(RestartEffect::RequestDone(conn));
            self.effects.push(done);
        }
        out.read(conn, ReadMode::Notify);
        conn
    }
}

/// Returns whether a client can move to another worker now.
fn can_move(client: &Client) -> bool {
    let (socket, request) = (&client.socket, &client.request);
    let is_between_messages = socket.stream.is_at_boundary()
        && socket.stream.partial().is_empty()
        && !socket.holds_message()
        && !socket.has_early();
    let is_quiet = !socket.is_blocked() && !socket.is_peeked() && socket.hung_up_at().is_none();
    let has_work = request.recording().is_some()
        || request.lost_hosts().is_some()
        || request.must_see().is_some();
    matches!(*client.duty(), ClientDuty::Idle)
        && client.pool().is_some()
        && is_between_messages
        && is_quiet
        && !has_work
        && !client.is_exclusive()
        && !client.has_postponed_login()
        && !client.is_unproven()
        && client.listening.is_none()
}
