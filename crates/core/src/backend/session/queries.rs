//! pgweir's own queries on a server, and the answers that have arrived so far.

use std::sync::Arc;

use pgweir_wire::Body;

use super::super::{InternalQuery, Lookup};
use crate::{
    Reading,
    base::conditions::first_of,
    session::{Baseline, Cleaned, Facts, Probe, State},
    shared::{catalog::ProcessSearch, fleet::FleetCounted},
    signal::{Rights, Signals},
};

/// pgweir's own queries that are under way on a server.
#[derive(Debug, Default)]
pub struct InternalQueries {
    /// The answers to a probe that have arrived so far.
    inspection: Option<Box<InspectionAnswers>>,
    /// The part of the catalog that was read on this server so far.
    catalog: Option<Box<CatalogRows>>,
    /// The count of the backends that runs on the server.
    backends: Option<Box<FleetCounted>>,
    /// The search for server processes that runs on the server.
    process_search: Option<ProcessSearch>,
    /// The lookup of a user that runs on the server.
    lookup: Option<Box<Lookup>>,
    /// The row that the clean under way has returned so far. The outer `None` means that no clean runs that returns a
    /// row.
    cleaned: Option<Option<Cleaned>>,
    /// The rows of the baseline query that have arrived so far.
    baseline_rows: Option<Vec<[Vec<u8>; 4]>>,
    /// Whether pgweir holds back a ReadyForQuery of the server.
    ready_is_held: bool,
}

impl InternalQueries {
    /// Begins an inspection, with the answers that are known already.
    pub fn begin_inspection(&mut self, answers: InspectionAnswers) {
        self.inspection = Some(Box::new(answers));
    }

    /// Notes that the inspection under way has failed. `is_too_long`: see [`InspectionAnswers::is_too_long`].
    pub fn fail_inspection(&mut self, is_too_long: bool) {
        if let Some(answers) = &mut self.inspection {
            answers.failed = true;
            answers.is_too_long = is_too_long;
        }
    }

    /// Ends the inspection. Returns its answers; `None` if none was under way.
    pub fn end_inspection(&mut self) -> Option<Box<InspectionAnswers>> {
        self.inspection.take()
    }

    /// Begins a query that reads the catalog.
    pub fn begin_catalog(&mut self, rows: CatalogRows) {
        self.catalog = Some(Box::new(rows));
    }

    /// Returns whether a query that reads the catalog is under way.
    #[must_use]
    pub fn reads_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    /// Notes that the query that reads the catalog has failed.
    pub fn fail_catalog(&mut self) {
        if let Some(catalog) = &mut self.catalog {
            catalog.failed = true;
        }
    }

    /// Ends the query that reads the catalog. Returns its rows; `None` if none was under way.
    pub fn end_catalog(&mut self) -> Option<Box<CatalogRows>> {
        self.catalog.take()
    }

    /// Begins to count the backends.
    pub fn begin_backends(&mut self, counted: FleetCounted) {
        self.backends = Some(Box::new(counted));
    }

    /// Notes that the backends could not be counted.
    pub fn fail_backends(&mut self, why: &str) {
        if let Some(counted) = &mut self.backends {
            counted.fail(why);
        }
    }

    /// Ends the count of the backends. Returns it; `None` if none was under way.
    pub fn end_backends(&mut self) -> Option<Box<FleetCounted>> {
        self.backends.take()
    }

    /// Begins to search for server processes with these pids.
    pub fn begin_process_search(&mut self, pids: Vec<u32>) {
        self.process_search = Some(ProcessSearch::of(pids));
    }

    /// Ends the search. Returns its result; `None` if no search was under way.
    pub fn end_process_search(&mut self) -> Option<ProcessSearch> {
        self.process_search.take()
    }

    /// Begins to look a user up.
    pub fn begin_lookup(&mut self, lookup: Box<Lookup>) {
        self.lookup = Some(lookup);
    }

    /// Returns whether a user is looked up.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        self.lookup.is_some()
    }

    /// Notes that the lookup has failed.
    pub fn fail_lookup(&mut self, why: String) {
        if let Some(lookup) = &mut self.lookup {
            lookup.fail(why);
        }
    }

    /// Ends the lookup of a user. Returns it; `None` if none was under way.
    pub fn end_lookup(&mut self) -> Option<Box<Lookup>> {
        self.lookup.take()
    }

    /// Begins a clean. `returns_row`: whether it answers with a row.
    pub fn begin_clean(&mut self, returns_row: bool) {
        self.cleaned = returns_row.then_some(None);
    }

    /// Ends a clean. Returns its row; the outer `None` means that this clean returns no row.
    pub fn end_clean(&mut self) -> Option<Option<Cleaned>> {
        self.cleaned.take()
    }

    /// Begins the query for the baseline.
    pub fn begin_baseline(&mut self) {
        self.baseline_rows = Some(Vec::new());
    }

    /// Ends the query for the baseline. Returns its rows.
    pub fn end_baseline(&mut self) -> Vec<[Vec<u8>; 4]> {
        self.baseline_rows.take().unwrap_or_default()
    }

    /// Notes whether pgweir holds back a ReadyForQuery of the server.
    #[inline]
    pub fn hold_ready(&mut self, is_held: bool) {
        self.ready_is_held = is_held;
    }

    /// Returns whether pgweir holds back a ReadyForQuery of the server.
    #[must_use]
    pub fn ready_is_held(&self) -> bool {
        self.ready_is_held
    }

    /// Notes that pgweir no longer holds back a ReadyForQuery. Returns whether it has held one back.
    #[inline]
    pub fn release_ready(&mut self) -> bool {
        std::mem::take(&mut self.ready_is_held)
    }

    /// Notes that the session was cleaned.
    pub(super) fn note_cleaned(&mut self) {
        self.cleaned = None;
        self.ready_is_held = false;
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (self.awaits_rows(), "a query of pgweir's own"),
            (self.ready_is_held, "a ReadyForQuery that is held back"),
        ])
    }

    /// Returns whether one of these queries is under way that is answered by rows.
    #[must_use]
    #[inline]
    pub fn awaits_rows(&self) -> bool {
        self.inspection.is_some()
            || self.catalog.is_some()
            || self.backends.is_some()
            || self.process_search.is_some()
            || self.lookup.is_some()
            || self.cleaned.is_some()
            || self.baseline_rows.is_some()
    }

    /// Takes a row of the answer to such a query, or to the query for the rights to send `signals`.
    pub(super) fn take_row(
        &mut self,
        own: Option<InternalQuery>,
        signals: &mut Option<Box<Signals>>,
        row: &[u8],
    ) {
        match own {
            Some(InternalQuery::Clean) => {
                let cleaned = Cleaned::of_row(row);
                if let Some(row) = self.cleaned.as_mut().filter(|_| cleaned.is_some()) {
                    *row = cleaned;
                }
                return;
            }
            Some(InternalQuery::Baseline) => {
                if let Some(rows) = &mut self.baseline_rows {
                    rows.extend(columns(row));
                }
                return;
            }
            Some(InternalQuery::LostDdl) => {
                if let (Some(search), Some(found)) = (&mut self.process_search, process(row)) {
                    search.found.push(found);
                }
                return;
            }
            _ => {}
        }
        if let (Some(InternalQuery::Backends), Some(counted)) = (own, &mut self.backends) {
            counted.take(row);
        } else if let Some(catalog) = &mut self.catalog {
            catalog.take(row);
        } else if let Some(lookup) = &mut self.lookup {
            lookup.take(row);
        } else if let Some(signals) = signals {
            signals.rights = Some(Rights::of_row(row));
        } else if let Some(answers) = &mut self.inspection {
            answers.take(row);
        }
    }
}

/// A catalog query under way.
#[derive(Debug)]
pub struct CatalogRows {
    /// For [`Catalog::finish`](crate::Catalog::finish).
    pub reading: Reading,
    /// The facts that have arrived so far.
    pub facts: Facts,
    /// Whether the query has failed, or its result was not understood.
    pub failed: bool,
}

impl CatalogRows {
    /// Takes one row.
    pub fn take(&mut self, row: &[u8]) {
        self.failed |= !self.facts.take(row);
    }
}

/// Returns the pid in the first column of a DataRow, and the time in the second one at which the process began.
fn process(row: &[u8]) -> Option<(u32, Option<i64>)> {
    let number = |column| std::str::from_utf8(column).ok()?.parse::<i64>().ok();
    match *Body::new(row).columns().ok()? {
        [Some(pid), began_at] => Some((number(pid)?.try_into().ok()?, began_at.and_then(number))),
        _ => None,
    }
}

/// Returns the four columns of a DataRow; a null column is empty.
fn columns(row: &[u8]) -> Option<[Vec<u8>; 4]> {
    let columns = Body::new(row).columns().ok()?;
    let columns = columns.into_iter().map(Option::unwrap_or_default);
    columns
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>()
        .try_into()
        .ok()
}

/// The parameters that differ from the baseline without a known reason: either the client has set them in a way that
/// pgweir has not seen, or their defaults have changed.
#[derive(Debug)]
pub struct UnexplainedParameters {
    /// The baseline.
    pub baseline: Arc<Baseline>,
    /// The parameters, in lower case.
    pub names: Vec<Vec<u8>>,
}

/// The answers to a probe.
#[derive(Debug, Default)]
pub struct InspectionAnswers {
    /// The probe that was sent.
    pub(crate) probe: Probe,
    /// The state from the answers so far, and from an earlier report of the extension.
    pub(crate) state: State,
    /// Whether the extension has reported the rest of the state.
    pub(crate) reported: bool,
    /// The parameters that an earlier inspection could not explain.
    pub(crate) unexplained: Option<UnexplainedParameters>,
    /// Whether the query also resets the settings.
    pub(crate) cleans: bool,
    /// Whether the query has failed, or its result was not understood.
    pub(crate) failed: bool,
    /// Whether a value or the whole answer is too long to be read, so that the query would fail again.
    pub(crate) is_too_long: bool,
    /// The length of the rows so far, in bytes.
    pub(crate) bytes: usize,
}

/// The maximum length of the answer to a probe, in bytes. If the session of a client has more state, the client keeps
/// its server.
const ANSWER_MAX: usize = 8 * 1024 * 1024;

impl InspectionAnswers {
    /// Takes one row.
    fn take(&mut self, row: &[u8]) {
        self.bytes += row.len();
        if self.bytes > ANSWER_MAX {
            self.failed = true;
            self.is_too_long = true;
            self.state = State::default();
        } else if self.state.take_row(row).is_err() {
            self.failed = true;
        }
    }
}

impl From<Probe> for InspectionAnswers {
    fn from(probe: Probe) -> Self {
        Self {
            probe,
            ..Self::default()
        }
    }
}
