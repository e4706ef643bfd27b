//! From counts to series: the names of pgbouncer_exporter, and pgweir's own.

mod own;
mod pgbouncer;
mod rows;
mod statements;

use std::{cell::RefCell, collections::BTreeSet};

use pgweir_core::{Directory, Snapshot, metrics::Metrics};

use self::rows::Kept;
use super::exposition::{Exposition, Format};

/// What the HTTP side counts of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct HttpCounts {
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) displaced: u64,
    pub(super) timeouts: u64,
    /// Requests with credentials from addresses that had failed too often.
    pub(super) throttled: u64,
    /// Pools without samples.
    pub(super) history_left_out: u64,
    /// Answers by page and status.
    pub(super) answers: Vec<(&'static str, u16, u64)>,
    pub(super) is_draining: bool,
    pub(super) is_ready: bool,
}

/// Names that have series of their own: those that were seen first, as many as may be.
#[derive(Debug, Default)]
pub(super) struct Names {
    pools: RefCell<BTreeSet<(String, String)>>,
    databases: RefCell<BTreeSet<String>>,
}

/// Everything that a text is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) names: &'a Names,
    pub(super) snapshot: &'a Snapshot,
    pub(super) directory: &'a Directory,
    pub(super) http: &'a HttpCounts,
}

/// The text of all series.
pub(super) fn text(source: Source<'_>, format: Format) -> String {
    let most = source.snapshot.config.settings.metrics_max_pools as usize;
    let pools = source.metrics.pools.1.iter();
    let pools = pools.filter_map(|row| Some((rows::text_at(row, 0)?, rows::text_at(row, 1)?)));
    let pools = Kept::choose(&source.names.pools, pools, most);
    let databases = source
        .metrics
        .databases
        .1
        .iter()
        .chain(&source.metrics.stats.1);
    let databases = databases.filter_map(|row| rows::text_at(row, 0));
    let databases = Kept::choose(&source.names.databases, databases, most);
    let mut text = Exposition::new(format);
    pgbouncer::write(source, &pools, &databases, &mut text);
    own::write(source, &pools, &databases, &mut text);
    statements::write(&source.metrics.statements, &mut text);
    super::process::write(&mut text);
    text.finish()
}

/// The text where the workers don't answer.
pub(super) fn text_without_counts(format: Format) -> String {
    let mut text = Exposition::new(format);
    pgbouncer::write_up(false, &mut text);
    text.finish()
}
