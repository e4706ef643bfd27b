//! The reports of the extension on a server.

use crate::session::State;

/// The reports of the extension on a server.
#[derive(Debug, Default)]
pub struct ExtensionReports {
    /// The last report, if the server has the extension.
    pub(crate) last: Option<Box<State>>,
    /// Whether the extension has reported since the session state was last inspected.
    pub(crate) is_new: bool,
}

impl ExtensionReports {
    /// Returns the last report; `None` if the server does not have the extension.
    #[must_use]
    #[inline]
    pub fn last(&self) -> Option<&State> {
        self.last.as_deref()
    }

    /// Notes a report. `is_new`: whether it may be about a change by the client.
    pub fn note(&mut self, report: State, is_new: bool) {
        self.last = Some(Box::new(report));
        self.is_new |= is_new;
    }
}
