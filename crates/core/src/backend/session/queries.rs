//! pgweir's own queries on a server, and the answers that have arrived so far.

use std::sync::Arc;

use pgweir_wire::{Body, Report};

use super::super::{InternalQuery, Lookup, stream::INSPECT_MAX};
use crate::{
    Reading,
    session::{Baseline, Cleaned, FACT_MAX, Facts, Probe, State},
    shared::{catalog::ProcessSearch, fleet::FleetCounted},
};

/// pgweir's own queries that are under way on a server.
#[derive(Debug, Default)]
pub struct InternalQueries {
    /// The answers to these queries, as far as they have arrived, in the order of the queries. Queries without rows have
    /// none.
    answers: Vec<InternalAnswer>,
}

/// The answer to a query of pgweir's own, as far as it has arrived.
#[derive(Debug)]
pub enum InternalAnswer {
    /// An inspection.
    Inspection(Box<InspectionAnswers>),
    /// A part of the catalog.
    Catalog(Box<CatalogRows>),
    /// A count of the backends.
    Backends(Box<FleetCounted>),
    /// A search for server processes.
    Processes(Box<ProcessSearch>),
    /// A lookup of a user.
    Lookup(Box<Lookup>),
    /// The row of a clean that returns one.
    Clean(Option<Cleaned>),
    /// The values of the parameters in a clean session.
    Baseline(Vec<[Vec<u8>; 4]>),
}

impl InternalAnswer {
    /// Returns whether rows and errors of this query belong to this answer.
    fn is_to(&self, query: InternalQuery) -> bool {
        match query {
            InternalQuery::Probe => matches!(self, Self::Inspection(_)),
            InternalQuery::System | InternalQuery::Catalog => matches!(self, Self::Catalog(_)),
            InternalQuery::Backends => matches!(self, Self::Backends(_)),
            InternalQuery::LostDdl => matches!(self, Self::Processes(_)),
            InternalQuery::Neutral | InternalQuery::Lookup => matches!(self, Self::Lookup(_)),
            InternalQuery::Clean => matches!(self, Self::Clean(_)),
            InternalQuery::Baseline => matches!(self, Self::Baseline(_)),
            _ => false,
        }
    }

    fn take_row(&mut self, row: &[u8]) {
        match self {
            Self::Inspection(answers) => answers.take(row),
            Self::Catalog(catalog) => catalog.take(row),
            Self::Backends(counted) => counted.take(row),
            Self::Processes(search) => search.found.extend(process(row)),
            Self::Lookup(lookup) => lookup.take(row),
            // The last row counts.
            Self::Clean(cleaned) => *cleaned = Cleaned::of_row(row),
            Self::Baseline(rows) => rows.extend(columns(row)),
        }
    }
}

impl InternalQueries {
    /// The maximum number of queries with rows that are under way at the same time: a clean, and the query for the
    /// baseline.
    const MAX: usize = 2;

    /// Begins a query, with the part of its answer that is known already.
    pub fn begin(&mut self, answer: InternalAnswer) {
        debug_assert!(self.answers.len() < Self::MAX, "{:?}", self.answers);
        self.answers.push(answer);
    }

    /// Returns whether this query is under way. It has to be one with rows.
    #[must_use]
    pub fn is_under_way(&self, query: InternalQuery) -> bool {
        self.answers.iter().any(|answer| answer.is_to(query))
    }

    /// Ends this query. Returns its answer; `None` if it was not under way, or has failed and has no answer.
    pub fn end(&mut self, query: InternalQuery) -> Option<InternalAnswer> {
        let at = (self.answers.iter()).position(|answer| answer.is_to(query))?;
        Some(self.answers.remove(at))
    }

    /// Notes that this query has failed.
    pub fn fail(&mut self, query: InternalQuery, report: &Report<'_>) {
        let why = || String::from_utf8_lossy(report.message).into_owned();
        match self.answer_to(query) {
            Some(InternalAnswer::Inspection(answers)) => {
                answers.result = match report.code == VALUE_TOO_LONG {
                    true => Inspection::TooLong,
                    false => Inspection::Failed,
                };
            }
            Some(InternalAnswer::Catalog(catalog)) => catalog.failed = true,
            Some(InternalAnswer::Backends(counted)) => counted.fail(&why()),
            Some(InternalAnswer::Lookup(lookup)) => lookup.fail(why()),
            Some(InternalAnswer::Processes(_) | InternalAnswer::Baseline(_)) => {
                drop(self.end(query))
            }
            Some(InternalAnswer::Clean(_)) | None => {}
        }
    }

    /// Notes that a row of the answer was too long to be read.
    pub fn skip_row(&mut self) {
        for answer in &mut self.answers {
            match answer {
                InternalAnswer::Inspection(answers) => answers.result = Inspection::TooLong,
                InternalAnswer::Catalog(catalog) => catalog.facts.skip_row(),
                _ => {}
            }
        }
    }

    fn answer_to(&mut self, query: InternalQuery) -> Option<&mut InternalAnswer> {
        (self.answers.iter_mut()).find(|answer| answer.is_to(query))
    }

    /// Returns the longest row of the queries under way that pgweir reads, in bytes with the header; 0 if none of them is
    /// answered by rows.
    #[must_use]
    pub fn row_max(&self) -> usize {
        match &self.answers[..] {
            [] => 0,
            [InternalAnswer::Catalog(_), ..] => FACT_MAX,
            _ => INSPECT_MAX,
        }
    }

    /// Takes a row of the answer to this query.
    pub(super) fn take_row(&mut self, query: InternalQuery, row: &[u8]) {
        if let Some(answer) = self.answer_to(query) {
            answer.take_row(row);
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

/// The result of an inspection of a server's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inspection {
    /// The session state is known.
    #[default]
    Known,
    /// The session state is known, and the server has reset the settings since.
    Cleaned,
    /// The session state is unknown: the query has failed, or its result was not understood. The inspection is repeated
    /// later.
    Failed,
    /// The session state is unknown: a value or the whole answer is too long to be read, so that the query would fail
    /// again.
    TooLong,
}

impl Inspection {
    /// Returns whether the session state is unknown.
    #[must_use]
    pub fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::TooLong)
    }
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
    /// The result, if the rest of the answer does not change it.
    pub(crate) result: Inspection,
    /// The length of the rows so far, in bytes.
    pub(crate) bytes: usize,
}

/// The maximum length of the answer to a probe, in bytes. If the session of a client has more state, the client keeps
/// its server.
const ANSWER_MAX: usize = 8 * 1024 * 1024;

/// `division_by_zero`: the error that an inspection query causes itself if a value is too long.
const VALUE_TOO_LONG: &[u8] = b"22012";

impl InspectionAnswers {
    /// Takes one row.
    fn take(&mut self, row: &[u8]) {
        self.bytes += row.len();
        if self.bytes > ANSWER_MAX {
            self.result = Inspection::TooLong;
            self.state = State::default();
        } else if self.state.take_row(row).is_err() && !self.result.has_failed() {
            self.result = Inspection::Failed;
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
