//! Counts the changes and the readings of a catalog.

use crate::{Time, session::DdlCause};

/// The changes of a catalog.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of possible changes of the catalog. Facts that were read before the last change are invalid.
    pub(super) count: u64,
    /// The number of transactions so far whose DDL left the certificates valid.
    pub(super) quiet_ended: u64,
    /// The last change that a reading noticed, and the time when it did.
    pub(super) noted: (u64, Time),
    /// Transactions in progress that may change the catalog.
    pub(super) ddl: u32,
    /// Transactions in progress whose DDL leaves the certificates valid (quiet DDL).
    pub(super) quiet: u32,
    /// The number of invalidations so far. Quiet DDL that began before the last one counts as other DDL.
    pub(super) invalidations: u64,
    /// Whether something may have changed since the last reading.
    pub(super) is_stale: bool,
    /// Why the facts of the last reading are invalid, as far as pgweir knows.
    pub(super) cause: Option<DdlCause>,
    /// Whether the log has named code that may do DDL.
    pub(super) has_logged_code: bool,
    /// Whether quiet DDL has changed something: the certificates stay valid.
    pub(super) is_behind: bool,
}

impl Changes {
    /// Returns the number of possible changes of the catalog, those that left the certificates valid included.
    pub(super) fn all(&self) -> u64 {
        self.count + self.quiet_ended
    }
}

/// The readings of a catalog.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// The time when the reading in progress began.
    pub(super) begun_at: Option<Time>,
    /// The time when the last reading ended, and its duration in microseconds.
    pub(super) ended_at: Option<(Time, u64)>,
    /// The number of successful readings.
    pub(super) count: u64,
    /// The last reason that was logged.
    pub(super) logged: Option<Box<str>>,
    /// The last function that was logged since its types depend on `search_path`.
    pub(super) logged_types: Option<Box<str>>,
}
