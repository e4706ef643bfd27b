//! The settings of a server's session.

use std::sync::Arc;

use crate::session::{Baseline, Settings};

/// The settings of a server's session.
#[derive(Debug, Default)]
pub struct SessionSettings {
    /// The settings that were made in the session.
    held: Settings,
    /// The values of the parameters that no setting has changed.
    baseline: Option<Arc<Baseline>>,
}

impl SessionSettings {
    /// Returns the settings that were made in the session.
    #[must_use]
    #[inline]
    pub fn held(&self) -> &Settings {
        &self.held
    }

    /// Notes that the session has these settings.
    #[inline]
    pub fn set_held(&mut self, held: Settings) {
        self.held = held;
    }

    /// Returns the values of the parameters that no setting has changed.
    #[must_use]
    pub fn baseline(&self) -> Option<&Arc<Baseline>> {
        self.baseline.as_ref()
    }

    /// Notes the values of the parameters that no setting has changed.
    pub fn set_baseline(&mut self, baseline: Arc<Baseline>) {
        self.baseline = Some(baseline);
    }

    /// Forgets the values of the parameters that no setting has changed: they may be others now.
    pub fn forget_baseline(&mut self) {
        self.baseline = None;
    }

    /// Returns the value of a parameter that no setting has changed, if it is known.
    #[must_use]
    pub fn usual(&self, name: &[u8]) -> Option<&[u8]> {
        self.baseline.as_ref()?.get(name)
    }
}
