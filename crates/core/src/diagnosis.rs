//! The reason why clients of a pool wait: the limit that keeps the pool from opening one more server, and the clients
//! that use the servers that it has.
//!
//! A diagnosis visits each worker before a waiting client is sent the reason. The reason names neither users nor
//! queries of other clients.

use std::{borrow::Cow, fmt::Write, sync::Arc};

use crate::{
    SharedPool, Time, WorkerId,
    backend::{Duty, Server},
    base::{fault::Reason, pin::Pins},
    pool::{Scope, WaitReason},
};

/// The largest number of characters that are shown of a login's failure.
const FAILURE_CHARS: usize = 200;

/// The use of a pool's servers.
#[derive(Debug)]
pub struct Diagnosis {
    pub(crate) pool: Arc<SharedPool>,
    pub(crate) origin: WorkerId,
    pub(crate) visited: usize,
    /// The number of servers by state, in the order of [`State::ALL`].
    pub(crate) counts: [usize; State::ALL.len()],
    pub(crate) longest: Vec<Holder>,
    /// The cap that leaves no room, if one does.
    pub(crate) cap: Option<Scope>,
    /// Servers of other pools under this cap, by state, and the longest time for which one of them has been in use, in
    /// microseconds.
    pub(crate) others: [usize; State::ALL.len()],
    pub(crate) others_held: u64,
}

/// A client that has had a server for long.
#[derive(Debug)]
pub(crate) struct Holder {
    /// Microseconds for which the client has had its server.
    pub(crate) held: u64,
    pub(crate) state: State,
    /// The reasons why the client keeps its server.
    pub(crate) pins: Option<Pins>,
    pub(crate) client: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Busy,
    IdleInTransaction,
    IdleInSession,
    Pinned,
    Idle,
    Cleaning,
    LoggingIn,
}

impl State {
    pub(crate) const ALL: [State; 7] = [
        State::Busy,
        State::IdleInTransaction,
        State::IdleInSession,
        State::Pinned,
        State::Idle,
        State::Cleaning,
        State::LoggingIn,
    ];

    pub(crate) fn of(server: &Server) -> Self {
        match *server.duty() {
            Duty::Login(_) => Self::LoggingIn,
            Duty::Idle | Duty::Listening { .. } | Duty::CheckingHost { .. } => Self::Idle,
            Duty::Cleaning { .. } => Self::Cleaning,
            Duty::Lent { phase, .. } if !phase.relays() || !server.replies.is_settled() => {
                Self::Busy
            }
            Duty::Lent { .. } if server.is_outside_transaction() => Self::IdleInSession,
            Duty::Lent { .. } => Self::IdleInTransaction,
        }
    }

    pub(crate) fn words(self) -> &'static str {
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

impl Diagnosis {
    /// Returns the reason as clients are sent it.
    pub(crate) fn reason(&self, now: Time) -> Reason {
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
                ledger.wait_reason(now),
                (ledger.waiting(), ledger.waiting_since()),
            )
        };
        add_states(&self.counts, &mut detail);
        detail.push('.');
        let hint = self.add_wait_reason(obstacle, now, &mut detail);
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
            } = holder;
            let (held, state) = (Seconds(*held), state.words());
            let _ = write!(detail, "by client C-{client:#x} for {held}, {state}");
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

    /// Returns whether the server counts under the cap that leaves no room. `shares`: whether the servers of another
    /// database count under the same `max_server_conn`.
    pub(crate) fn shares_cap(&self, server: &Server, shares: impl Fn(&str) -> bool) -> bool {
        let (own, key) = (&self.pool.key, &server.shared.key);
        match self.cap {
            Some(Scope::Process) => shares(&key.database),
            Some(Scope::Database) => key.database == own.database,
            Some(Scope::User) => key.user == own.user,
            None => false,
        }
    }

    /// Adds the number of servers that other pools use under the cap.
    fn add_others(&self, detail: &mut String) {
        if self.others.iter().all(|&count| count == 0) {
            return;
        }
        detail.push_str(" Other pools hold");
        add_states(&self.others, detail);
        if self.others_held > 0 {
            let _ = write!(detail, ", for up to {}", Seconds(self.others_held));
        }
        detail.push('.');
    }

    /// Adds the limit that keeps the pool from opening one more server, and the way in which an operator can change it.
    fn add_wait_reason(
        &self,
        obstacle: WaitReason,
        now: Time,
        detail: &mut String,
    ) -> Cow<'static, str> {
        const LONG: &str = "or end long transactions.";
        const PINNED: &str = "Raise pool_size or pinned_overflow, set pin_timeout, or end what sessions hold: see \
                              SHOW PINS.";
        match obstacle {
            WaitReason::Size => {
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
            WaitReason::Cap { by, limit } => {
                let of = match by {
                    Scope::Database => "the database",
                    Scope::User => "the user",
                    Scope::Process => "the process",
                };
                let name = by.setting();
                let _ = write!(detail, " The limit is {name}: {limit} server(s) of {of}.");
                self.add_others(detail);
                format!("Raise {name} or query_wait_timeout, {LONG}").into()
            }
            WaitReason::Failed(at) => {
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
            WaitReason::Paused => {
                detail.push_str(" It is paused.");
                "An administrator's RESUME ends the pause.".into()
            }
            WaitReason::Connecting => {
                detail.push_str(" One more is logging in.");
                format!("Raise query_wait_timeout, {LONG}").into()
            }
            WaitReason::None => format!("Raise query_wait_timeout, {LONG}").into(),
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
