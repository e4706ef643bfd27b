//! The settings of a server's session.

use std::{collections::BTreeSet, sync::Arc};

use crate::session::{Baseline, ResetParameters, Settings};

/// The settings of a server's session.
#[derive(Debug, Default)]
pub struct SessionSettings {
    /// The settings that were made in the session.
    pub(crate) held: Settings,
    /// The values of the parameters that no setting has changed.
    pub(crate) baseline: Option<Arc<Baseline>>,
    /// Custom parameters that the texts have named.
    pub(crate) named: BTreeSet<Box<[u8]>>,
    /// Parameters that the client has reset to its startup values.
    pub(crate) reset: ResetParameters,
    /// Whether the finished transaction has set parameters, and the session's settings are known without an inspection.
    pub(crate) are_new: bool,
    /// Whether the server has reported a parameter change that its client has not received yet.
    pub(crate) has_unsent: bool,
    /// Whether pgweir reads the server's notices about startup parameters for the client.
    pub(crate) reads_notices: bool,
}

impl SessionSettings {
    /// Returns the value of a parameter that no setting has changed, if it is known.
    #[must_use]
    pub fn usual(&self, name: &[u8]) -> Option<&[u8]> {
        self.baseline.as_ref()?.get(name)
    }
}
