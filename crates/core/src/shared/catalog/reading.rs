//! One reading of a catalog, from its query to the certificates that follow from it.

use std::sync::Arc;

use super::{Catalog, State};
use crate::{Time, session::Certificates};

/// A reading in progress. Dropping the value ends the reading, also if its server was lost, so that another can begin.
#[derive(Debug)]
pub struct Reading {
    catalog: Arc<Catalog>,
    /// How many changes the catalog had when the reading began.
    pub(super) changes: u64,
    /// How many transactions with quiet DDL had ended when the reading began.
    pub(super) quiet_ended: u64,
    pub(super) begun_at: Time,
    /// Whether the reading only asks the server for the identity of its database.
    pub(crate) is_of_identity: bool,
}

impl Reading {
    pub(super) fn begin(
        catalog: &Arc<Catalog>,
        state: &mut State,
        is_of_identity: bool,
        now: Time,
    ) -> Self {
        state.reading.begun_at = Some(now);
        Self {
            catalog: Arc::clone(catalog),
            changes: state.changes.count,
            quiet_ended: state.changes.quiet_ended,
            begun_at: now,
            is_of_identity,
        }
    }

    /// Returns the catalog that is read.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

impl Catalog {
    /// Returns a function whose types depend on `search_path` and the name of such a type, once for each new function.
    #[must_use]
    pub fn type_news(&self) -> Option<(Box<str>, Box<str>)> {
        let mut state = self.canonical().state.lock();
        let (function, name) = state.certificates.ambiguous_type()?;
        let (function, name): (Box<str>, Box<str>) = (function.into(), name.into());
        let was_logged = state.reading.logged_types.as_ref() == Some(&function);
        state.reading.logged_types = Some(function.clone());
        (!was_logged).then_some((function, name))
    }
}

impl State {
    /// Returns whether code that was not known to do DDL may have done some during a reading, so that the facts may not
    /// contain all of its changes: the code ran under invalid certificates, and the facts differ from these.
    pub(super) fn may_have_missed_changes(&self, reading: &Reading, read: &Certificates) -> bool {
        let ran = self.changes.quiet > 0 || self.changes.quiet_ended != reading.quiet_ended;
        ran && self.certificates.may_have_new_code()
            && read.outdated(0).id() != self.certificates.id()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.catalog.canonical().state.lock();
        if state.reading.begun_at == Some(self.begun_at) {
            state.reading.begun_at = None;
        }
    }
}
