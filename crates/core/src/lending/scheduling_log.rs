//! With `log_scheduling`, logs each decision by which a client gets a server, waits for one, keeps one or gives it
//! back.

use std::fmt;

use super::Lending;
use crate::{
    Actions, Level, Token, WorkerId,
    connections::Conn,
    loan::pins_of,
    pool::{PoolId, WaitReason},
};

/// A decision about a client or a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decision {
    /// The client gets this server, after waiting for so many microseconds.
    Gets(Token, u64),
    /// The client waits for a server of this pool.
    Waits(PoolId),
    /// The client keeps this server.
    Keeps(Token),
    /// The client gives this server back, after so many microseconds.
    GivesBack(Token, u64),
    /// The server moves to the worker whose client has waited longest.
    Moves(WorkerId),
}

impl Lending<'_> {
    /// Logs a decision about a client, or about a server that moves, with `log_scheduling`.
    #[inline]
    pub(crate) fn log_decision(&self, of: Token, decision: Decision, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_scheduling {
            self.write_decision(of, decision, out);
        }
    }

    #[cold]
    fn write_decision(&self, of: Token, decision: Decision, out: &mut Actions) {
        let subject = match self.connections.get(of) {
            Some(Conn::Client(client)) => client.subject(),
            Some(Conn::Server(server)) => {
                let key = &server.shared.key;
                format!("S-{:#x}: {}/{}", server.id(), key.database, key.user)
            }
            _ => return,
        };
        let text = match decision {
            Decision::Gets(server, 0) => format!("gets {}: idle", self.name_of(server)),
            Decision::Gets(server, waited) => {
                format!("gets {} after {}", self.name_of(server), Millis(waited))
            }
            Decision::Waits(pool) => format!("waits{}", self.why_wait(pool)),
            Decision::GivesBack(server, held) => {
                format!("gives back {} after {}", self.name_of(server), Millis(held))
            }
            Decision::Keeps(server) => {
                format!("keeps {}: {}", self.name_of(server), self.why_keep(of))
            }
            Decision::Moves(worker) => {
                format!(
                    "goes to worker {}, whose client has waited longest",
                    worker.index()
                )
            }
        };
        out.log(Level::Log, subject, format!("scheduling: {text}"));
    }

    /// Logs that a client gets a server.
    #[inline]
    pub(super) fn log_lent(&self, client: Token, server: Token, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_scheduling
            && let Some(Conn::Client(asking)) = self.connections.get(client)
        {
            let waited = self.env.now.since(asking.request.sent_at());
            self.write_decision(client, Decision::Gets(server, waited), out);
        }
    }

    /// Logs that a client gives its server back.
    #[inline(always)]
    pub(super) fn log_given_back(&self, client: Token, server: Token, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_scheduling
            && let Some(Conn::Server(lent)) = self.connections.get(server)
        {
            let held = self.env.now.since(lent.times.lent_at());
            self.write_decision(client, Decision::GivesBack(server, held), out);
        }
    }

    /// Logs that a pinned client keeps its server from now on.
    pub(super) fn log_newly_kept(&self, client: Token, server: Token, out: &mut Actions) {
        if self.env.snapshot.config.settings.log_scheduling {
            self.write_decision(client, Decision::Keeps(server), out);
        }
    }

    /// Logs that a client keeps its server at the end of a transaction.
    pub(super) fn log_kept(&self, client: Token, server: Token, out: &mut Actions) {
        // `sent_at` is the present time only if a request was answered in this event.
        if self.env.snapshot.config.settings.log_scheduling
            && let Some(Conn::Client(keeping)) = self.connections.get(client)
            && keeping.request.sent_at() == self.env.now
            && !keeping.socket.is_blocked()
        {
            self.write_decision(client, Decision::Keeps(server), out);
        }
    }

    /// Returns why a client keeps its server.
    fn why_keep(&self, client: Token) -> String {
        let Some(Conn::Client(client)) = self.connections.get(client) else {
            return String::new();
        };
        match (pins_of(client), &client.context) {
            (Some(pins), _) => format!("pinned ({pins})"),
            (None, Some(_)) => "few clients (share_after)".to_owned(),
            (None, None) => "session mode".to_owned(),
        }
    }

    fn name_of(&self, server: Token) -> String {
        match self.connections.get(server) {
            Some(Conn::Server(server)) => format!("S-{:#x}", server.id()),
            _ => String::new(),
        }
    }

    /// Returns why the pool opens no further server.
    fn why_wait(&self, pool: PoolId) -> String {
        let Some(pool) = self.pools.get(pool) else {
            return String::new();
        };
        let ledger = pool.shared.ledger.lock();
        let why = match ledger.wait_reason(self.env.now) {
            WaitReason::Size => "no more servers are allowed".to_owned(),
            WaitReason::Cap { by, limit } => format!("{} = {limit}", by.setting()),
            WaitReason::Failed(_) => "the last login to the server failed".to_owned(),
            WaitReason::Paused => "paused".to_owned(),
            WaitReason::Connecting => "a server is logging in".to_owned(),
            WaitReason::None => "other workers are asked for a free server".to_owned(),
        };
        let (servers, waiting) = (ledger.servers(), ledger.waiting());
        format!(": {why}; {servers} server(s), {waiting} waiting")
    }
}

/// Microseconds, shown as milliseconds.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ms", self.0 / 1_000, self.0 % 1_000)
    }
}
