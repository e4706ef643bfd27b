//! Makes series from counts: those of pgbouncer_exporter, by its names, and pgweir's own.

mod fleet;
mod hosts;
mod pgbouncer;
mod pgweir;
mod rows;
mod statements;

use std::{cell::RefCell, collections::BTreeSet};

use pgweir_core::{Directory, Snapshot, metrics::Metrics};

use self::rows::LabelledNames;
use super::exposition::{Exposition, FamilyPoints, Format};

/// Counters of the HTTP thread's own work.
#[derive(Debug, Clone, Default)]
pub(super) struct HttpCounts {
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) displaced: u64,
    pub(super) timeouts: u64,
    /// Requests with credentials from addresses that had failed too often.
    pub(super) throttled: u64,
    /// Addresses whose failed logins were forgotten to make room for others.
    pub(super) addresses_forgotten: u64,
    /// Pools without samples.
    pub(super) history_left_out: u64,
    /// Answers by page and status.
    pub(super) answers: Vec<(&'static str, u16, u64)>,
    pub(super) is_draining: bool,
    pub(super) is_ready: bool,
    pub(super) export: ExportCounts,
}

/// Counters of the OpenTelemetry exporter's own work.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExportCounts {
    /// Traces that a collector has taken.
    pub(super) traces_sent: u64,
    /// Traces that a collector has not taken.
    pub(super) traces_failed: u64,
    /// Traces for which the queue had no room.
    pub(super) traces_dropped: u64,
    /// Requests with traces that a collector has taken, and has not taken.
    pub(super) trace_requests: [u64; 2],
    /// The same for requests with metrics.
    pub(super) metrics_requests: [u64; 2],
}

/// The names that have series of their own: the first ones that were seen, up to the limit.
#[derive(Debug, Default)]
pub(super) struct Names {
    pools: RefCell<BTreeSet<(String, String)>>,
    databases: RefCell<BTreeSet<String>>,
}

/// The data from which a text is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) names: &'a Names,
    pub(super) snapshot: &'a Snapshot,
    pub(super) directory: &'a Directory,
    pub(super) http: &'a HttpCounts,
}

/// Returns the text of all series.
pub(super) fn text(source: Source<'_>, format: Format) -> String {
    let mut text = Exposition::new(format);
    write(source, &mut text);
    text.finish()
}

/// Returns all series as values.
pub(super) fn points(source: Source<'_>) -> Vec<FamilyPoints> {
    let mut written = Exposition::Points(Vec::new());
    write(source, &mut written);
    match written {
        Exposition::Points(families) => families,
        Exposition::Text(..) => Vec::new(),
    }
}

fn write(source: Source<'_>, text: &mut Exposition) {
    let most = source.snapshot.config.settings.metrics_max_pools as usize;
    let pools = source.metrics.pools.1.iter();
    let pools = pools.filter_map(|row| Some((rows::text_at(row, 0)?, rows::text_at(row, 1)?)));
    let pools = LabelledNames::choose(&source.names.pools, pools, most);
    let databases = source
        .metrics
        .databases
        .1
        .iter()
        .chain(&source.metrics.stats.1);
    let databases = databases.filter_map(|row| rows::text_at(row, 0));
    let databases = LabelledNames::choose(&source.names.databases, databases, most);
    pgbouncer::write(source, &pools, &databases, text);
    pgweir::write(source, &pools, &databases, text);
    statements::write(&source.metrics.statements, text);
    super::process::write(text);
}

/// Returns the text for the case that the workers don't answer.
pub(super) fn text_without_counts(format: Format) -> String {
    let mut text = Exposition::new(format);
    pgbouncer::write_up(false, &mut text);
    text.finish()
}
