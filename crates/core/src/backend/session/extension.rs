//! The reports of the extension on a server.

use crate::session::State;

/// The reports of the extension on a server.
#[derive(Debug, Default)]
pub struct ExtensionReports {
    /// The last report, if the server has the extension.
    pub last: Option<Box<State>>,
    /// Whether the extension has reported since the session state was last inspected.
    pub is_new: bool,
}
