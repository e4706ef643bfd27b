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

impl Catalog {
    /// Notes that a login to a server of the database has succeeded. `changes` is the number of
    /// [`changes`](Self::changes) when the login began.
    pub(crate) fn note_login(&self, changes: u64) {
        let (_, mut state) = self.locked();
        state.logged_in_at = state.logged_in_at.max(Some(changes));
    }

    /// Returns whether a login trigger may refuse every new server: the database may have login triggers, and no login
    /// has succeeded since the catalog has last changed.
    #[must_use]
    pub(crate) fn logins_may_be_refused(&self) -> bool {
        let (_, state) = self.locked();
        let may_have_triggers = !state.is_current() || state.certificates.has_login_triggers();
        may_have_triggers && state.logged_in_at < Some(state.changes.all())
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
