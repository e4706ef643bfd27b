//! Whether login event triggers may have left session state in a new server connection.
//!
//! PostgreSQL runs these triggers before pgweir can read the catalog through the new connection. So a reading of the catalog
//! tells which triggers ran at the login only if the catalog has not changed between the login and the reading.

use super::{Catalog, State};

impl Catalog {
    /// Returns the number of possible changes of the catalog so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        let (_, state) = self.locked();
        state.changes.all()
    }

    /// Returns whether a login trigger may have left state in a session: a trigger runs code that is not certified, or the
    /// triggers that ran are not known. `changes` is the number of [`changes`](Self::changes) at the login.
    #[must_use]
    pub fn login_may_have_left_state(&self, changes: u64) -> bool {
        let (_, state) = self.locked();
        !state.is_current()
            || state.changes.all() != changes
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
