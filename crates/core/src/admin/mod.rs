//! The console: database `pgbouncer` (or `pgweir`), simple query protocol.

mod command;
mod console;
mod grammar;
mod metrics;
mod orders;
mod rows;
mod show;
mod tour;

pub use console::Console;
pub(crate) use console::welcome;
pub use metrics::{ClientCount, Measurement, Metrics, PoolMetrics};
pub use rows::{Cell, Column, Kind};
pub use show::Table;
pub use tour::{HostEntry, KnownNames, Tour, ZoneEntry};

/// What SHOW VERSION and `--version` say.
pub const VERSION: &str = concat!("pgweir ", env!("CARGO_PKG_VERSION"));
