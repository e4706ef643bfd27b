//! Why a session must be cleaned before the next loan, and which statements the clean needs.

use crate::{base::stats::TextCounts, session::Class};

/// The reasons for the next clean of a session.
#[derive(Debug, Default)]
pub(crate) struct CleanNeeds {
    /// Whether the session may hold state that other clients must not see, so that a clean must come before the next
    /// loan.
    pub(crate) is_due: bool,
    /// Whether code that pgweir has not read may have run since the last clean: DO, EXECUTE, or DDL.
    pub(crate) must_ask_rights: bool,
    /// The texts of each class above pure that were sent since they were last counted for the pool.
    pub(crate) texts: TextCounts,
}

impl CleanNeeds {
    /// Counts a text of this class that is sent.
    pub(super) fn count_text(&mut self, class: Class) {
        match class {
            Class::Pure => {}
            Class::Sequences => self.texts.sequences += 1,
            Class::Settings => self.texts.settings += 1,
            Class::Opaque => self.texts.opaque += 1,
        }
    }
}
