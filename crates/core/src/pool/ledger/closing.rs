//! The slots of servers that log in, and of servers that are being closed: with `fleet_etcd`, the caps count both.

use super::{Ledger, Notes};
use crate::Time;

impl Ledger {
    /// Keeps the slot of a server that the caller is about to close, until [`end_closing`](Self::end_closing).
    pub fn begin_closing(&self) {
        self.caps.begin_closing();
    }

    /// Notes that PostgreSQL has closed such a server.
    pub fn end_closing(&mut self, now: Time) -> Notes {
        let mut notes = Notes {
            room: self.caps.end_closing(),
            ..Notes::default()
        };
        self.plan(0, false, &mut notes, now);
        notes
    }

    /// Notes that a login to a server has ended.
    pub(super) fn end_login(&mut self, notes: &mut Notes) {
        self.servers.connecting -= 1;
        notes.room.extend(self.caps.end_login());
    }
}
