//! Counts the server connections to a database. While one is open, no other database can get its name: PostgreSQL drops
//! and renames only databases without connections.

use std::sync::Arc;

use super::{Catalog, Reading, State};
use crate::session::certificates::Identity;

/// A server connection. Dropping the value means that the connection is closed.
#[derive(Debug)]
pub struct Connected(Arc<Catalog>);

impl Catalog {
    /// Records that a server connection of an entry has logged in.
    #[must_use]
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.count_server();
        Connected(Arc::clone(self))
    }

    fn count_server(&self) {
        let (_, mut state) = self.locked();
        state.servers += 1;
    }

    /// Records that a server connection was closed. After the last one, the certificates are invalid until the next
    /// server connection has identified its database.
    fn disconnected(&self) {
        let (canonical, mut state) = self.locked();
        state.servers = state.servers.saturating_sub(1);
        if state.servers > 0 || state.identity.is_none() {
            return;
        }
        let was_known = state.reading.count > 0 && !state.changes.is_stale && !state.is_mixed;
        let known = state.certificates.clone();
        state.is_unsure = true;
        state.is_mixed = false;
        state.doubt();
        state.kept = was_known.then(|| (known, state.changes.count));
        let unknown = state.certificates.outdated(0);
        canonical.put(&mut state, unknown);
    }

    /// Ends a reading of the identity: by the first server connection after a time without any, or for an entry whose
    /// servers read no catalog. `identity` is `None` if the server could not report it. Returns whether the database is
    /// to be identified.
    pub(super) fn note_identity(&self, reading: &Reading, identity: Option<&Identity>) -> bool {
        let mut state = self.state.lock();
        if state.reading.begun_at != Some(reading.begun_at) {
            return false;
        }
        state.reading.begun_at = None;
        let kept = state.kept.take();
        let is_same = identity.is_some() && state.identity.as_ref() == identity;
        if let Some((known, _)) = kept
            && is_same
            && state.changes.count == reading.changes
            && state.changes.ddl == 0
        {
            state.is_unsure = false;
            state.changes.is_stale = false;
            self.put(&mut state, known);
        }
        if state.is_unsure && identity.is_some() {
            state.is_unsure = false;
            state.identity = None;
        }
        state.identity.is_none()
    }
}

impl State {
    /// Returns whether the former certificates become valid again if the database is still the same.
    pub(super) fn may_be_as_before(&self) -> bool {
        let kept = self.kept.as_ref();
        self.is_unsure && kept.is_some_and(|(_, changes)| *changes == self.changes.count)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}
