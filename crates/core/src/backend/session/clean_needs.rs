//! Why a session must be cleaned before the next loan, and which statements the clean needs.

use crate::{
    base::stats::TextCounts,
    session::{Class, Effects, MadeNames},
};

/// The reasons for the next clean of a session.
#[derive(Debug, Default)]
pub(crate) struct CleanNeeds {
    /// Whether the session may hold state that other clients must not see, so that a clean must come before the next
    /// loan.
    is_due: bool,
    /// Whether code that pgweir has not read may have run since the last clean: DO, EXECUTE, or DDL.
    must_ask_rights: bool,
    /// The names of objects that texts may have made since the last clean.
    made: MadeNames,
    /// The texts of each class above pure that were sent since they were last counted for the pool.
    texts: TextCounts,
}

impl CleanNeeds {
    /// Returns whether a clean must come before the next loan.
    #[must_use]
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Notes that a clean must come before the next loan, if `is_due`.
    pub(crate) fn demand(&mut self, is_due: bool) {
        self.is_due |= is_due;
    }

    /// Notes that the clean begins. Returns whether it was demanded.
    pub(crate) fn begin(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    /// Returns whether the clean has to ask for privileges: code that pgweir has not read may have run.
    #[must_use]
    pub(crate) fn must_ask_rights(&self) -> bool {
        self.must_ask_rights
    }

    /// Notes that code that pgweir has not read may run.
    pub(crate) fn demand_rights(&mut self) {
        self.must_ask_rights = true;
    }

    /// Returns the names of objects that texts may have made since the last clean.
    #[must_use]
    pub(crate) fn made(&self) -> &MadeNames {
        &self.made
    }

    /// Notes a text with these effects.
    pub(super) fn note_made(&mut self, effects: Effects, text: &[u8]) {
        if effects.contains(Effects::UNREAD) {
            self.made.has_any = true;
        } else if effects.contains(Effects::TEMP) {
            self.made.add(text);
        }
    }

    /// Returns the texts that were sent since the last call.
    #[inline]
    pub(crate) fn take_texts(&mut self) -> TextCounts {
        std::mem::take(&mut self.texts)
    }

    /// Counts a text of this class that is sent.
    pub(super) fn count_text(&mut self, class: Class) {
        match class {
            Class::Pure => {}
            Class::Sequences => self.texts.sequences += 1,
            Class::Settings => self.texts.settings += 1,
            Class::Opaque => self.texts.opaque += 1,
        }
    }

    /// Notes that the settings were reset.
    pub(super) fn note_settings_cleaned(&mut self) {
        self.is_due = false;
    }

    /// Notes that the session was cleaned.
    pub(super) fn note_cleaned(&mut self) {
        self.must_ask_rights = false;
        self.made = MadeNames::default();
    }
}
