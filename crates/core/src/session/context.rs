//! What a client believes its session to be, as far as it is carried from server to server.

use super::{Fingerprint, Resets, Settings, SqlStatements, pin::Pins};
use crate::Time;

/// A client's session.
#[derive(Debug, Default)]
pub struct Context {
    /// What it asked for in its startup packet: RESET brings these back.
    pub base: Settings,
    /// `base`, and what the session has set over it.
    pub wanted: Settings,
    /// Its SQL-prepared statements.
    pub sql: SqlStatements,
    /// It may have sequence values.
    pub has_sequences: bool,
    /// Startup values that no server has seen yet: the login waits for one to say what they come to.
    pub unproven: bool,
    /// What keeps its server with it.
    pub pins: Pins,
    /// Since when.
    pub pinned_at: Option<Time>,
    /// The statement that seems to be the reason.
    pub pinned_by: Option<Box<Fingerprint>>,
}

impl Context {
    /// Must it keep its server between transactions?
    #[must_use]
    #[inline]
    pub fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Can all this be reset without a server?
    #[must_use]
    pub fn needs_no_server(&self, resets: Resets) -> bool {
        let is_as_at_login = !resets.settings || self.wanted.is_same(&self.base);
        !self.is_pinned() && is_as_at_login && !(resets.sequences && self.has_sequences)
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
