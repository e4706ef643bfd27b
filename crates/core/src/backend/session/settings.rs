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
    pub(crate) held: Settings,
    /// The values of the parameters that no setting has changed.
    pub(crate) baseline: Option<Arc<Baseline>>,
    /// Custom parameters that the texts have named.
    pub(crate) named: BTreeSet<Box<[u8]>>,
    /// Parameters that the client has reset to its startup values.
    pub(crate) reset: ResetParameters,
    /// Whether the finished transaction has set parameters, and the session's settings are known without an inspection.
    are_new: bool,
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

    /// Returns whether the finished transaction has set parameters that are known without an inspection, and forgets it.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.are_new)
    }

    /// Notes that the client needs no report any more. Returns whether there was one that it has not received.
    #[inline]
    pub fn take_unsent(&mut self) -> bool {
        std::mem::take(&mut self.has_unsent)
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
