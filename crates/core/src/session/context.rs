//! The context of a client: its session state that pgweir carries from server to server.

use super::{Fingerprint, Resets, Settings, SqlStatements, outlasts_reset, plan::ENDS_WITH_ERRORS};
use crate::Time;
use crate::base::pin::{Pin, Pins};

/// The session of one client.
#[derive(Debug, Default)]
pub struct Context {
    /// The settings from the client's startup packet: RESET brings these back.
    pub base: Settings,
    /// `base`, overlaid with the settings of the session.
    pub wanted: Settings,
    /// Settings of the startup packet that equal the server's defaults. pgweir does not send them to servers.
    pub implied: Settings,
    /// The client's SQL-prepared statements.
    pub sql: SqlStatements,
    /// Whether the session may have sequence values.
    pub has_sequences: bool,
    /// Whether the startup values were not tried on a server yet. The login waits until a server has reported their
    /// spelling.
    pub unproven: bool,
    /// Whether a server has refused the client's settings as a whole: none of them is in force there.
    pub failed: bool,
    /// The number of consecutive servers that were lost while they were sent the client's settings.
    pub servers_lost: u8,
    /// Whether the client may have set custom parameters that no inspection finds.
    pub unlisted: Unlisted,
    /// The reasons for which the client keeps its server.
    pub pins: Pins,
    /// The time since when the client is pinned.
    pub pinned_at: Option<Time>,
    /// The statement that is probably the reason for the pin.
    pub pinned_by: Option<Box<Fingerprint>>,
    /// The number of transactions for which the client still keeps its server because of the sequence values on it.
    pub sequences_kept: u8,
    /// Whether the client gets a turn: see [`Turns`].
    pub turns: Turns,
}

/// Custom parameters that a client may have set, and that no inspection finds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unlisted {
    /// None.
    #[default]
    None,
    /// A parameter whose name may be in the values of a Bind that is still to come.
    Awaited,
    /// A parameter whose name is not known, or can't be queried.
    Set,
}

/// Decides whether a client gets a turn. During its turn, the client keeps its server although other clients wait, if
/// it sends its next query soon. A client that has not used its turn gets none for a number of times, which doubles
/// each time.
#[derive(Debug, Default, Clone, Copy)]
pub struct Turns {
    missed: u8,
    passed_over: u8,
}

impl Turns {
    /// The binary logarithm of the largest number of turns that a client misses in a row.
    const MISSED_MAX: u8 = 6;

    /// Counts a turn that the client could have now, and returns whether the client gets it.
    pub fn take(&mut self) -> bool {
        self.passed_over = self.passed_over.saturating_sub(1);
        self.passed_over == 0
    }

    /// Notes that the client has sent a query within its turn.
    pub fn used(&mut self) {
        self.missed = 0;
    }

    /// Notes that the client has not used its turn, so that other clients have waited for nothing.
    pub fn missed(&mut self) {
        self.missed = (self.missed + 1).min(Self::MISSED_MAX);
        self.passed_over = 1 << self.missed;
    }
}

/// The number of consecutive transactions without sequences after which a client is no longer expected to read an
/// earlier value.
const SEQUENCES_KEPT: u8 = 64;

impl Context {
    /// Returns whether the client must keep its server between transactions.
    #[must_use]
    #[inline]
    pub fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Returns whether the client has a setting by which PostgreSQL ends the session: after some idle time, or after
    /// any error.
    #[must_use]
    pub fn ends_sessions(&self) -> bool {
        let has = |name: &[u8], usual: &[u8]| {
            let value = self.wanted.get(name);
            value.is_some_and(|value| value != usual)
        };
        has(b"idle_session_timeout", b"0") || has(ENDS_WITH_ERRORS, b"off")
    }

    /// Returns whether the client has a setting with effects that RESET does not undo.
    #[must_use]
    pub fn marks_sessions(&self) -> bool {
        let mut names = self.wanted.iter().map(|(name, _)| name);
        names.any(outlasts_reset)
    }

    /// Returns whether pgweir can carry out these resets without a server.
    #[must_use]
    pub fn needs_no_server(&self, resets: Resets) -> bool {
        let is_as_at_login = !resets.contains(Resets::SETTINGS) || self.wanted.is_same(&self.base);
        let has_values = resets.contains(Resets::SEQUENCES) && self.has_sequences;
        !self.is_pinned() && is_as_at_login && !has_values
    }

    /// Pins the client to its server, since the client is likely to read the sequence values there.
    pub fn keep_sequences(&mut self, now: Time) {
        self.sequences_kept = SEQUENCES_KEPT;
        let mut pins = self.pins;
        pins.insert(Pin::Sequence);
        self.pin(pins, now);
    }

    /// Notes that a DISCARD has removed the sequence values.
    pub fn sequences_gone(&mut self) {
        self.has_sequences = false;
        self.unpin(Pin::Sequence);
    }

    fn unpin(&mut self, pin: Pin) {
        self.set_pins(self.pins.without(pin));
    }

    fn set_pins(&mut self, pins: Pins) {
        self.pins = pins;
        if pins.is_empty() {
            self.pinned_at = None;
            self.pinned_by = None;
        }
    }

    /// Notes the end of a transaction, and returns whether the client must still keep its server. Pins that end with
    /// time are updated.
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

    /// Sets the pins that are in force from `now` on.
    pub fn pin(&mut self, pins: Pins, now: Time) {
        self.pinned_at.get_or_insert(now);
        self.set_pins(pins);
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
