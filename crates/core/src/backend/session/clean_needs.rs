//! Why a session must be cleaned before the next loan, and which statements the clean needs.

use crate::base::stats::TextCounts;

/// The reasons for the next clean of a session.
#[derive(Debug, Default)]
pub(crate) struct CleanNeeds {
    /// Whether the session may hold state that other clients must not see, so that a clean must come before the next
    /// loan.
    pub is_due: bool,
    /// Whether code that pgweir has not read may have run since the last clean: DO, EXECUTE, or DDL.
    pub must_ask_rights: bool,
    /// The texts of each class above pure that were sent since they were last counted for the pool.
    pub texts: TextCounts,
}
