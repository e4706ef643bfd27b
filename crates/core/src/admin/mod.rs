//! The console: database `pgbouncer` (or `pgweir`), simple query protocol.

mod collect;
mod command;
mod console;
mod rows;
mod show;

pub use collect::Collection;
pub use console::Console;
pub(crate) use console::welcome;

/// What SHOW VERSION and `--version` say.
pub const VERSION: &str = concat!("pgweir ", env!("CARGO_PKG_VERSION"));
