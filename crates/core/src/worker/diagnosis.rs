//! Clients that wait for long are told why: what keeps the pool from opening one more server, and who
//! has those that there are.
//!
//! This is found out when somebody is to be told, by a look that visits each worker. It names users of
//! the same pool, but no query.

use std::{borrow::Cow, fmt::Write, sync::Arc};

use super::{Conn, Worker, pins::pins_of};
use crate::{
    Action, Actions, Level, SharedPool, Time, Token, WorkerId,
    backend::{Duty, Server},
    fault::{Fault, Reason},
    frontend::{Client, ClientDuty},
    mail::Mail,
    pin::Pins,
    pool::{Obstacle, PoolId, Scope},
};
use pgweir_wire::{MessageWriter, sqlstate};

/// What PgBouncer tells a client that waits.
const NOTICE: &str = "No server connection available in postgres backend, client being queued";
/// So many of those who have had a server for longest are named.
const NAMED_MAX: usize = 3;
/// So much is said of the failure of a login.
const FAILURE_CHARS: usize = 200;
/// Microseconds to wait for an answer of all workers before clients are sent away without it.
const PATIENCE: u64 = 1_000_000;
/// Microseconds between two lines in the log about the same pool, at least.
const LOG_INTERVAL: u64 = 1_000_000;

/// A look at the servers of a pool.
#[derive(Debug)]
pub struct Diagnosis {
    pool: Arc<SharedPool>,
    origin: WorkerId,
    visited: usize,
    /// By state, in the order of [`State::ALL`].
    counts: [usize; State::ALL.len()],
    longest: Vec<Holder>,
}

/// Who has had a server for long.
#[derive(Debug)]
struct Holder {
    /// Microseconds.
    held: u64,
    state: State,
    /// Why it keeps it.
    pins: Option<Pins>,
    client: u64,
    user: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Busy,
    IdleInTransaction,
    IdleInSession,
    Pinned,
    Idle,
    Cleaning,
    LoggingIn,
}

impl State {
    const ALL: [State; 7] = [
        State::Busy,
        State::IdleInTransaction,
        State::IdleInSession,
        State::Pinned,
        State::Idle,
        State::Cleaning,
        State::LoggingIn,
    ];

    fn of(server: &Server) -> Self {
        match server.duty {
            Duty::Login(_) => Self::LoggingIn,
            Duty::Idle | Duty::Listening => Self::Idle,
            Duty::Cleaning { .. } => Self::Cleaning,
            Duty::Lent(exchange) if !exchange.phase().relays() || !server.replies.is_settled() => {
                Self::Busy
            }
            Duty::Lent(_) if server.status == b'I' => Self::IdleInSession,
            Duty::Lent(_) => Self::IdleInTransaction,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInSession => "idle in session",
            Self::Pinned => "idle and pinned",
            Self::Idle => "idle",
            Self::Cleaning => "being cleaned",
            Self::LoggingIn => "logging in",
        }
    }
}

impl Worker {
    /// Has a client waited for `query_wait_notify` without a word?
    pub(super) fn is_to_be_told_why(&self, client: &Client, now: Time) -> bool {
        let after = self.snapshot.config.settings.query_wait_notify.0;
        let waits = matches!(
            client.duty,
            ClientDuty::Waiting {
                at_login: false,
                ..
            }
        );
        waits
            && after > 0
            && !client.told_to_wait
            && !client.blocked
            && now.since(client.request_at) >= after
    }

    /// Finds out why clients of this worker wait in a pool, to tell them.
    pub(super) fn diagnose(&mut self, id: PoolId, now: Time, out: &mut Actions) {
        let worker = self.id;
        let Some(pool) = self.pool(id) else { return };
        match pool.diagnosed_at {
            Some(at) if now.since(at) < PATIENCE => return,
            // There has been no answer: those whose time is over go without it.
            Some(_) => {
                pool.diagnosed_at = None;
                return self.tell_why(id, None, now, out);
            }
            None => pool.diagnosed_at = Some(now),
        }
        let diagnosis = Diagnosis {
            pool: Arc::clone(&pool.shared),
            origin: worker,
            visited: 0,
            counts: [0; State::ALL.len()],
            longest: Vec::new(),
        };
        self.examine(diagnosis, now, out);
    }

    /// Adds what this worker has of the pool, and passes the look on.
    pub(super) fn examine(&mut self, mut diagnosis: Diagnosis, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        if diagnosis.visited < workers {
            diagnosis.visited += 1;
            self.add_servers(&mut diagnosis, now);
        }
        let to = match diagnosis.visited < workers {
            true => WorkerId(((self.id.index() + 1) % workers) as u8),
            false => diagnosis.origin,
        };
        if diagnosis.visited < workers || to != self.id {
            let mail = Mail::Diagnose(Box::new(diagnosis));
            return out.list.push(Action::Mail { to, mail });
        }
        let reason = diagnosis.reason(now);
        let id = diagnosis.pool.id;
        if let Some(pool) = self.pool(id) {
            pool.diagnosed_at = None;
        }
        self.tell_why(id, Some(reason), now, out);
    }

    fn add_servers(&self, diagnosis: &mut Diagnosis, now: Time) {
        let id = diagnosis.pool.id;
        for (_, conn) in self.table.iter() {
            let Conn::Server(server) = conn else { continue };
            if server.bypass || server.pool() != id {
                continue;
            }
            let client = self.client_of(server);
            let pins = client.and_then(pins_of);
            let state = match State::of(server) {
                State::IdleInSession if pins.is_some() => State::Pinned,
                state => state,
            };
            diagnosis.counts[state as usize] += 1;
            if let Some(client) = client {
                diagnosis.longest.push(Holder {
                    held: now.since(server.lent_at),
                    state,
                    pins,
                    client: client.id,
                    user: client
                        .names
                        .as_ref()
                        .map_or("".into(), |names| names.user.clone()),
                });
            }
        }
        diagnosis
            .longest
            .sort_by_key(|holder| std::cmp::Reverse(holder.held));
        diagnosis.longest.truncate(NAMED_MAX);
    }

    /// Tells the clients of this worker that wait in the pool: who has waited for too long goes.
    fn tell_why(&mut self, id: PoolId, reason: Option<Reason>, now: Time, out: &mut Actions) {
        let (mut leave, mut stay) = (Vec::new(), Vec::new());
        for (token, conn) in self.table.iter() {
            let Conn::Client(client) = conn else { continue };
            if client.pool != Some(id) || !matches!(client.duty, ClientDuty::Waiting { .. }) {
                continue;
            }
            if let Some(Fault::QueryWaitTimeout(_)) = self.client_overdue(client, now) {
                leave.push(token);
            } else if self.is_to_be_told_why(client, now) {
                stay.push(token);
            }
        }
        if let Some(reason) = &reason
            && !(leave.is_empty() && stay.is_empty())
        {
            self.explain(id, reason, now, out);
        }
        for client in stay {
            self.notify(client, reason.as_ref(), out);
        }
        let fault = Fault::QueryWaitTimeout(reason.map(Box::new));
        for client in leave {
            self.refuse(client, &fault, now, out);
        }
    }

    fn notify(&mut self, conn: Token, reason: Option<&Reason>, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        client.told_to_wait = true;
        let detail = reason.map_or("", |reason| &reason.detail);
        out.send_made(conn, |bytes| {
            let code = sqlstate::SUCCESSFUL_COMPLETION;
            MessageWriter::new(bytes).notice_with_detail(code, NOTICE, detail);
        });
    }

    fn explain(&mut self, id: PoolId, reason: &Reason, now: Time, out: &mut Actions) {
        let Some(pool) = self.pool(id) else { return };
        if pool
            .explained_at
            .is_some_and(|at| now.since(at) < LOG_INTERVAL)
        {
            return;
        }
        pool.explained_at = Some(now);
        let key = &pool.shared.key;
        let subject = format!("{}/{}", key.database, key.user);
        out.log(
            Level::Warning,
            subject,
            format!("clients wait: {}", reason.detail),
        );
    }
}

impl Diagnosis {
    fn reason(&self, now: Time) -> Reason {
        let key = &self.pool.key;
        let mut detail = format!("Pool {}/{}", key.database, key.user);
        let (obstacle, waiting) = {
            let ledger = self.pool.ledger.lock();
            let limits = ledger.limits();
            let _ = write!(detail, " has {} server(s)", ledger.servers());
            if limits.size < u32::MAX {
                let _ = write!(detail, " of {}", limits.size);
            }
            if limits.reserve > 0 {
                let _ = write!(detail, " and {} in reserve", limits.reserve);
            }
            if limits.overflow > 0 {
                let _ = write!(detail, " and {} in overflow", limits.overflow);
            }
            (
                ledger.obstacle(now),
                (ledger.waiting(), ledger.waiting_since()),
            )
        };
        add_states(&self.counts, &mut detail);
        detail.push('.');
        let hint = self.add_obstacle(obstacle, now, &mut detail);
        for (at, holder) in self.longest.iter().enumerate() {
            detail.push_str(if at == 0 {
                " In use for longest: "
            } else {
                ", "
            });
            let Holder {
                held,
                state,
                pins,
                client,
                user,
            } = holder;
            let (held, state) = (Seconds(*held), state.words());
            let _ = write!(detail, "by \"{user}\" (C-{client:#x}) for {held}, {state}");
            if let Some(pins) = pins {
                let _ = write!(detail, " ({pins})");
            }
        }
        if !self.longest.is_empty() {
            detail.push('.');
        }
        if let (count @ 1.., Some(since)) = waiting {
            let first = Seconds(now.since(since));
            let _ = write!(detail, " {count} client(s) wait, the first for {first}.");
        }
        Reason { detail, hint }
    }

    /// What keeps the pool from opening one more, and what can be done about that.
    fn add_obstacle(
        &self,
        obstacle: Obstacle,
        now: Time,
        detail: &mut String,
    ) -> Cow<'static, str> {
        const LONG: &str = "or end long transactions.";
        const PINNED: &str = "Raise pool_size or pinned_overflow, set pin_timeout, or end what sessions hold: see \
                              SHOW PINS.";
        match obstacle {
            Obstacle::Size => {
                let limits = *self.pool.ledger.lock().limits();
                let names = match (limits.reserve > 0, limits.overflow > 0) {
                    (false, false) => "pool_size",
                    (true, false) => "pool_size and reserve_pool_size",
                    (false, true) => "pool_size and overflow_size",
                    (true, true) => "pool_size, reserve_pool_size and overflow_size",
                };
                let _ = write!(detail, " The limit is {names}.");
                match self.counts[State::Pinned as usize] {
                    0 => format!("Raise pool_size or query_wait_timeout, {LONG}").into(),
                    _ => PINNED.into(),
                }
            }
            Obstacle::Cap { by, limit } => {
                let of = match by {
                    Scope::Database => "the database",
                    Scope::User => "the user",
                    Scope::Process => "the process",
                };
                let name = by.setting();
                let _ = write!(detail, " The limit is {name}: {limit} server(s) of {of}.");
                format!("Raise {name} or query_wait_timeout, {LONG} SHOW SERVERS lists the servers of all pools.").into()
            }
            Obstacle::Failed(at) => {
                let failure = self.pool.facts.lock().failure.clone();
                let text = failure.map_or_else(String::new, |failure| failure.text);
                let text: String = text.chars().take(FAILURE_CHARS).collect();
                let next = Seconds(at.since(now));
                let _ = write!(
                    detail,
                    " The last login to the server failed: {text}. The next is tried in {next}."
                );
                "See the logs of pgweir and of the server.".into()
            }
            Obstacle::Paused => {
                detail.push_str(" It is paused.");
                "An administrator's RESUME ends the pause.".into()
            }
            Obstacle::Connecting => {
                detail.push_str(" One more is logging in.");
                format!("Raise query_wait_timeout, {LONG}").into()
            }
            Obstacle::None => format!("Raise query_wait_timeout, {LONG}").into(),
        }
    }
}

fn add_states(counts: &[usize], detail: &mut String) {
    let present = State::ALL.into_iter().zip(counts);
    let present = present.filter(|(_, count)| **count > 0);
    for (at, (state, count)) in present.enumerate() {
        let lead = if at == 0 { ": " } else { ", " };
        let _ = write!(detail, "{lead}{count} {}", state.words());
    }
}

/// Microseconds, shown as seconds.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{} s", self.0 / 1_000_000, self.0 / 100_000 % 10)
    }
}
