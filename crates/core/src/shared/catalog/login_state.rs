//! Session state that a login event trigger has left.
//!
//! PostgreSQL runs such a trigger before pgweir can read the catalog through the new connection. So a reading shows what a
//! login has left only if the catalog has not changed between both.

use super::{Catalog, State};

impl Catalog {
    /// Returns the number of possible changes of the catalog so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        let (_, state) = self.locked();
        state.changes.count
    }

    /// Returns whether a session may have state from its login on: a login trigger runs uncertified code, or it is not known
    /// whether one did. `changes` is the number of [`changes`](Self::changes) at the login.
    #[must_use]
    pub fn login_may_have_left_state(&self, changes: u64) -> bool {
        let (_, state) = self.locked();
        !state.is_current()
            || state.changes.count != changes
            || state.certificates.logins_leave_state()
    }
}

impl State {
    fn is_current(&self) -> bool {
        self.reading.count > 0
            && self.changes.ddl == 0
            && !self.changes.is_stale
            && !self.is_unsure
            && !self.is_mixed
    }
}
