//! The reports of the extension on a server.

use crate::session::State;

/// The reports of the extension on a server.
#[derive(Debug, Default)]
pub struct ExtensionReports {
    /// The last report, if the server has the extension.
    last: Option<Box<State>>,
    /// Whether the extension has reported since the session state was last inspected.
    is_new: bool,
}

impl ExtensionReports {
    /// Returns the last report; `None` if the server does not have the extension.
    #[must_use]
    #[inline]
    pub fn last(&self) -> Option<&State> {
        self.last.as_deref()
    }

    /// Returns whether the extension has reported since the session state was last inspected, or whether pgweir itself
    /// has changed the session.
    #[must_use]
    #[inline]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Notes what the extension has reported at login; `None` if the server does not have the extension.
    pub fn note_login(&mut self, report: Option<Box<State>>) {
        self.last = report;
    }

    /// Notes a report. `is_new`: whether it may be about a change by the client.
    pub fn note(&mut self, report: State, is_new: bool) {
        self.last = Some(Box::new(report));
        self.is_new |= is_new;
    }

    /// Notes that pgweir itself changes the session for the client: the clean has to remove the change, even if the
    /// extension reports none.
    pub fn note_own_change(&mut self) {
        self.is_new = true;
    }

    /// Notes that the session state is known, whatever the extension has reported before.
    pub fn note_known(&mut self) {
        self.is_new = false;
    }
}
