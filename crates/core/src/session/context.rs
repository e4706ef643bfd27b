//! What a client believes its session to be, as far as it is carried from server to server.

use super::{
    FailedStatements, Fingerprint, Resets, Settings, SqlStatements, outlasts_reset,
    plan::ENDS_WITH_ERRORS,
};
use crate::Time;
use crate::pin::{Pin, Pins};

/// A client's session.
#[derive(Debug, Default)]
pub struct Context {
    /// What it asked for in its startup packet: RESET brings these back.
    pub base: Settings,
    /// `base`, and what the session has set over it.
    pub wanted: Settings,
    /// What it asked for and would have had anyway: no server has to be given it, as long as that is so.
    pub implied: Settings,
    /// Its SQL-prepared statements.
    pub sql: SqlStatements,
    /// Its statements that its server could not make.
    pub failed_statements: FailedStatements,
    /// It may have sequence values.
    pub has_sequences: bool,
    /// Startup values that no server has seen yet: the login waits for one to say what they come to.
    pub unproven: bool,
    /// A server has refused them as a whole: nothing of them is left there.
    pub failed: bool,
    /// Servers in a row that were lost while they were given what it has set.
    pub servers_lost: u8,
    /// It may have set custom parameters that no server can be asked for.
    pub has_unlisted: bool,
    /// What keeps its server with it.
    pub pins: Pins,
    /// Since when.
    pub pinned_at: Option<Time>,
    /// The statement that seems to be the reason.
    pub pinned_by: Option<Box<Fingerprint>>,
    /// Transactions for which its server is still kept for the sequence values on it.
    pub sequences_kept: u8,
    /// Whether it may go on with a server for which others wait.
    pub turns: Turns,
}

/// A client that speaks again soon after its transaction goes on with its server for a while though others wait. One
/// that has not done so goes without that for a while, each time for longer.
#[derive(Debug, Default, Clone, Copy)]
pub struct Turns {
    missed: u8,
    passed_over: u8,
}

impl Turns {
    /// The binary logarithm of the most turns in a row for which a client is passed over.
    const MISSED_MAX: u8 = 6;

    /// Is it to have the turn that it could have now?
    pub fn take(&mut self) -> bool {
        self.passed_over = self.passed_over.saturating_sub(1);
        self.passed_over == 0
    }

    /// It has spoken within its turn.
    pub fn used(&mut self) {
        self.missed = 0;
    }

    /// Others have waited in vain for it to speak.
    pub fn missed(&mut self) {
        self.missed = (self.missed + 1).min(Self::MISSED_MAX);
        self.passed_over = 1 << self.missed;
    }
}

/// So many transactions in a row without sequences, and nobody is expected to ask for a value of before.
const SEQUENCES_KEPT: u8 = 64;

impl Context {
    /// Must it keep its server between transactions?
    #[must_use]
    #[inline]
    pub fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Would PostgreSQL end a session that has its settings, if nobody uses it for a while, or after any
    /// error?
    #[must_use]
    pub fn ends_sessions(&self) -> bool {
        let has = |name: &[u8], usual: &[u8]| {
            let value = self.wanted.get(name);
            value.is_some_and(|value| value != usual)
        };
        has(b"idle_session_timeout", b"0") || has(ENDS_WITH_ERRORS, b"off")
    }

    /// Has it a setting that does more to a session than what RESET takes back?
    #[must_use]
    pub fn marks_sessions(&self) -> bool {
        let mut names = self.wanted.iter().map(|(name, _)| name);
        names.any(outlasts_reset)
    }

    /// Can all this be reset without a server?
    #[must_use]
    pub fn needs_no_server(&self, resets: Resets) -> bool {
        let is_as_at_login = !resets.settings || self.wanted.is_same(&self.base);
        !self.is_pinned() && is_as_at_login && !(resets.sequences && self.has_sequences)
    }

    /// Its server has sequence values that are likely to be asked for.
    pub fn keep_sequences(&mut self, now: Time) {
        self.sequences_kept = SEQUENCES_KEPT;
        let mut pins = self.pins;
        pins.insert(Pin::Sequence);
        self.pin(pins, now);
    }

    /// DISCARD: there are no sequence values any more.
    pub fn sequences_gone(&mut self) {
        self.has_sequences = false;
        self.unpin(Pin::Sequence);
    }

    fn unpin(&mut self, pin: Pin) {
        self.pins = self.pins.without(pin);
        if self.pins.is_empty() {
            self.pinned_at = None;
            self.pinned_by = None;
        }
    }

    /// A transaction has ended: must it keep its server, also with what time does to its pins?
    #[must_use]
    pub fn stays_pinned(&mut self) -> bool {
        if self.pins.contains(Pin::Sequence) {
            self.sequences_kept = self.sequences_kept.saturating_sub(1);
            if self.sequences_kept == 0 {
                self.unpin(Pin::Sequence);
            }
        }
        self.is_pinned()
    }

    /// What holds its server changes at this moment.
    pub fn pin(&mut self, pins: Pins, now: Time) {
        if pins.is_empty() {
            self.pinned_at = None;
            self.pinned_by = None;
        } else {
            self.pinned_at.get_or_insert(now);
        }
        self.pins = pins;
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn a_client_that_misses_its_turns_is_passed_over() {
        let mut turns = Turns::default();
        let passed_over = |turns: &mut Turns| (0..200).take_while(|_| !turns.take()).count();
        assert_eq!(passed_over(&mut turns), 0);
        let counts = [(); 8].map(|()| {
            turns.missed();
            passed_over(&mut turns)
        });
        assert_eq!(counts, [1, 3, 7, 15, 31, 63, 63, 63]);
        turns.used();
        turns.missed();
        assert_eq!(passed_over(&mut turns), 1);
    }
}
