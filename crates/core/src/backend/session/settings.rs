//! The settings of a server's session.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    base::conditions::first_of,
    session::{Baseline, ResetParameters, Settings},
};

/// The settings of a server's session.
#[derive(Debug, Default)]
pub struct SessionSettings {
    /// The settings that were made in the session.
    held: Settings,
    /// The values of the parameters that no setting has changed.
    baseline: Option<Arc<Baseline>>,
    /// Custom parameters that the texts have named.
    named: BTreeSet<Box<[u8]>>,
    /// Parameters that the client has reset to its startup values.
    reset: ResetParameters,
    /// Whether the finished transaction has set parameters, and the session's settings are known without an inspection.
    are_new: bool,
    /// Whether the server has reported a parameter change that its client has not received yet.
    has_unsent: bool,
    /// Whether pgweir reads the server's notices about startup parameters for the client.
    reads_notices: bool,
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

    /// Returns the custom parameters that the texts have named.
    #[must_use]
    pub fn named(&self) -> &BTreeSet<Box<[u8]>> {
        &self.named
    }

    /// Notes that a text has named this custom parameter.
    pub fn note_named(&mut self, name: &[u8]) {
        self.named.insert(name.into());
    }

    /// Returns the parameters that the client has reset to its startup values.
    #[must_use]
    #[inline]
    pub fn reset(&self) -> &ResetParameters {
        &self.reset
    }

    /// Returns the same, mutable.
    pub fn reset_mut(&mut self) -> &mut ResetParameters {
        &mut self.reset
    }

    /// Returns whether the finished transaction has set parameters that are known without an inspection, and forgets it.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.are_new)
    }

    /// Returns whether the server has reported a parameter change that its client has not received yet.
    #[must_use]
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Notes that the server has reported a parameter change that its client has not received yet.
    pub fn note_unsent(&mut self) {
        self.has_unsent = true;
    }

    /// Notes that the client needs no report any more. Returns whether there was one that it has not received.
    #[inline]
    pub fn take_unsent(&mut self) -> bool {
        std::mem::take(&mut self.has_unsent)
    }

    /// Returns whether pgweir reads the server's notices about startup parameters for the client.
    #[must_use]
    #[inline]
    pub fn reads_notices(&self) -> bool {
        self.reads_notices
    }

    /// Notes whether pgweir reads the server's notices about startup parameters for the client.
    pub fn set_reads_notices(&mut self, reads: bool) {
        self.reads_notices = reads;
    }

    /// Notes that the texts so far tell nothing more about the session: it was inspected or cleaned.
    pub(super) fn forget_texts(&mut self) {
        self.named.clear();
        self.reset.clear();
    }

    /// Notes that the session has these settings, which the finished transaction has set.
    pub(super) fn note_known(&mut self, held: Settings) {
        self.held = held;
        self.named.clear();
        self.are_new = true;
    }

    /// Notes that the settings were reset.
    pub(super) fn note_reset(&mut self) {
        self.held = Settings::default();
        self.forget_texts();
    }

    /// Notes that the client has left: no client waits for reports of parameter changes any more.
    pub(super) fn client_left(&mut self) {
        self.has_unsent = false;
        self.reads_notices = false;
        self.are_new = false;
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (!self.named.is_empty(), "names of custom parameters"),
            (!self.reset.is_empty(), "a RESET of startup values"),
            (self.are_new, "settings that are known from texts"),
            (self.has_unsent, "a report for the client"),
            (self.reads_notices, "the reading of notices"),
        ])
    }

    /// Notes that the session was cleaned.
    pub(super) fn note_cleaned(&mut self) {
        self.are_new = false;
        self.reads_notices = false;
    }
}
