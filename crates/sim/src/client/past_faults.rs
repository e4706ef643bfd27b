//! The errors that the pooler may send to clients because of earlier faults in the simulated world.

use super::{Client, Phase};
use crate::{
    checks::{Guarantee, Violation},
    network::End,
    postgres::{LAST_WORDS, REFUSED, TOO_MANY, is_refused},
    scenario::ClientLimits,
};

/// The error for a client whose request was cancelled.
pub(super) const CANCELED: &str = "canceling statement due to user request";

/// The error for a client whose server was lost while it may have been committing.
const UNKNOWN: &str = "the outcome of the transaction is unknown: server conn crashed?";

/// The error for a client whose server was closed, since logins to its host have failed.
const HOST_LEFT: &str = "server is not used any more: its host does not answer checks";

/// The error for a client whose server was closed for that reason while it may have been committing.
const HOST_LEFT_UNKNOWN: &str = "the outcome of the transaction is unknown: server is not used any more: its host does not answer checks";

/// The faults in this world so far, which are the pooler's possible reasons for an error.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PastFaults {
    pub(crate) servers_lost: bool,
    pub(crate) logins_failed: bool,
    pub(crate) wait_timeout: bool,
    pub(crate) shutdown: bool,
    /// Whether the process is drained.
    pub(crate) drain: bool,
    pub(crate) takeover: bool,
    pub(crate) statement_mode: bool,
    pub(crate) limits: ClientLimits,
}

impl Client {
    /// Returns whether the client's request may be answered without a server.
    pub(super) fn may_get_no_server(&self) -> bool {
        self.was_named || is_refused(&self.work_mem)
    }

    /// Handles the end of the connection on the pooler's side.
    pub(crate) fn ended(&mut self, how: End, faults: PastFaults) -> Result<(), Violation> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        self.output.clear();
        let broken = !self.input.is_empty();
        let is_allowed = self.leaves.is_some()
            || self.is_wild()
            || faults.servers_lost
            || self.misbehaved
            || how == End::Reset;
        // Nothing waits for clients of the console at a shutdown, and a client that exceeds a timeout may be in the
        // middle of a message.
        let is_allowed =
            is_allowed || (self.is_operator() && faults.shutdown) || faults.limits.in_time();
        match phase {
            Phase::Left | Phase::Over => Ok(()),
            Phase::Refused if !broken => Ok(()),
            _ if is_allowed => Ok(()),
            _ => Err(Violation::new(
                Guarantee::Reasons,
                format!("cut off without a word: {}", self.state()),
            )),
        }
    }

    /// Returns whether no transaction of the client is open, as far as the client knows, and no answer has begun.
    fn is_outside_transaction(&self) -> bool {
        self.own.status == b'I' && !self.has_begun()
    }

    /// Returns whether the client has logged in, is outside of a transaction, and waits for no answer.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = !self.units.is_empty() || self.open.is_some() || !self.output.is_empty();
        self.phase == Phase::Ready && !waits && self.is_outside_transaction()
    }

    /// Returns whether the pooler has a reason for this error.
    pub(super) fn is_justified(&self, text: &str, faults: PastFaults) -> bool {
        match text {
            text if text.ends_with("(takeover_timeout)") => faults.takeover,
            CANCELED => self.was_named,
            REFUSED => is_refused(&self.work_mem),
            "the connection that listened for it was lost" => {
                self.listens() && (faults.servers_lost || faults.logins_failed)
            }
            // A drain disconnects clients outside of a transaction, among them those that have just asked to end their
            // server.
            LAST_WORDS if faults.drain && self.is_outside_transaction() => true,
            LAST_WORDS if faults.drain && !self.has_ended_server => false,
            "server conn crashed?" | LAST_WORDS | UNKNOWN => faults.servers_lost,
            HOST_LEFT | HOST_LEFT_UNKNOWN => faults.servers_lost || faults.logins_failed,
            "login failed" => self.is_native() && (faults.logins_failed || faults.servers_lost),
            "query_wait_timeout" => faults.wait_timeout,
            "pooler is shutting down" | "server shutting down" | "database removed" => {
                faults.shutdown
            }
            "query timeout" | "query_timeout" => faults.limits.query > 0,
            "client_idle_timeout" => faults.limits.idle > 0,
            "idle transaction timeout" => faults.limits.idle_transaction > 0,
            "transaction timeout" => faults.limits.transaction > 0,
            "client_login_timeout" | "client_login_timeout (server down)" => {
                faults.limits.login > 0
            }
            "no more connections allowed (max_client_conn)" => faults.limits.total > 0,
            "client connections exceeded (max_db_client_connections)" => {
                faults.limits.of_database > 0
            }
            "client connections exceeded (max_user_client_connections)" => {
                faults.limits.of_user > 0
            }
            "transaction blocks not allowed in statement pooling mode" => {
                faults.statement_mode && self.began
            }
            "password authentication failed" | "SASL authentication failed" => {
                self.login.is_wrong()
            }
            _ if text.starts_with("server login has been failing") => faults.logins_failed,
            _ if text.contains(TOO_MANY) => faults.logins_failed,
            _ => self.misbehaved,
        }
    }
}
