//! The next inspection of a server's session: when it may begin, and which parameters it has to read.

use std::collections::BTreeSet;

use crate::{
    Time,
    session::{Context, ResetParameters},
};

/// The next inspection of a server's session. [`SessionChanges`](crate::session::SessionChanges) says whether it is needed, and
/// which kinds of state it reads; this adds the parameters that it has to read by name.
#[derive(Debug, Default, PartialEq)]
pub struct NextInspection {
    /// Custom parameters that the texts have named.
    named: BTreeSet<Box<[u8]>>,
    /// Parameters that the client has reset to its startup values.
    reset: ResetParameters,
    /// Whether a request that may have changed the session was answered while more requests were outstanding.
    is_missing: bool,
    /// Whether a text may have changed state that only a full inspection shows: startup parameters whose value equals
    /// the default, or SQL-prepared statements.
    must_be_exact: bool,
    /// The last inspections that have failed, and that are to be repeated.
    failed: FailedInspections,
}

impl NextInspection {
    /// Returns the custom parameters that the texts have named.
    #[must_use]
    pub fn named(&self) -> &BTreeSet<Box<[u8]>> {
        &self.named
    }

    /// Notes that a text has named this custom parameter.
    pub fn note_named(&mut self, name: &[u8]) {
        self.named.insert(name.into());
    }

    /// Forgets the custom parameters that the texts have named, since their values are known.
    pub(super) fn forget_named(&mut self) {
        self.named.clear();
    }

    /// Returns the parameters that the client has reset to its startup values.
    #[must_use]
    pub fn reset(&self) -> &ResetParameters {
        &self.reset
    }

    /// Notes a text that may reset parameters of the client with this context. Returns whether it resets any to a startup
    /// value.
    pub fn note_reset(&mut self, text: &[u8], context: &Context) -> bool {
        self.must_be_exact |= ResetParameters::default().note(text, &context.implied);
        self.reset.note(text, &context.base)
    }

    /// Notes a text that has not arrived completely, and that may reset any parameter to its startup value.
    pub fn note_unread_reset(&mut self) {
        self.reset.note_unread();
    }

    /// Returns whether a request that may have changed the session was answered while more requests were outstanding.
    #[must_use]
    #[inline]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Notes that such a request was answered.
    pub fn note_missing(&mut self) {
        self.is_missing = true;
    }

    /// Notes that the missing inspection begins.
    pub fn begin_missing(&mut self) {
        self.is_missing = false;
    }

    /// Returns whether the inspection must read the whole session.
    #[must_use]
    pub fn must_be_exact(&self) -> bool {
        self.must_be_exact
    }

    /// Demands that the inspection reads the whole session.
    pub fn demand_exact(&mut self) {
        self.must_be_exact = true;
    }

    /// Returns whether startup parameters may have been set or reset. Their values do not show which of the two has
    /// happened.
    #[must_use]
    pub fn concerns_startup_values(&self) -> bool {
        !self.reset.is_empty() || self.must_be_exact
    }

    /// Notes that an inspection has failed.
    pub fn note_failed(&mut self, now: Time) {
        self.failed.note_failed(now);
    }

    /// Notes that an inspection has not failed.
    pub fn note_succeeded(&mut self) {
        self.failed = FailedInspections::default();
    }

    /// Returns when the inspection may begin, if the last one has failed.
    #[must_use]
    pub fn again_at(&self) -> Option<Time> {
        self.failed.again_at
    }
}

/// The consecutive failed inspections of one server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct FailedInspections {
    count: u8,
    /// When the next one may begin.
    again_at: Option<Time>,
}

impl FailedInspections {
    /// The pause after the first failure, in microseconds. Each further failure doubles the pause.
    const PAUSE: u64 = 200_000;
    /// How often the pause is doubled at most: up to 51 seconds.
    const DOUBLED_MAX: u8 = 8;

    fn note_failed(&mut self, now: Time) {
        self.again_at = Some(now.after(Self::PAUSE << self.count));
        self.count = (self.count + 1).min(Self::DOUBLED_MAX);
    }
}
