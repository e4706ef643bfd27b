//! Every setting of pgweir declared once, and the parser of `pgbouncer.ini`.
//!
//! The tables in `table/` are the only place that names a setting. The typed structs, the parser, the rows of SHOW CONFIG, the
//! example file and the reference page are derived from them. The crate opens no file: the caller of [`Config::load`] passes
//! a function that reads one.

mod bypass;
mod changes;
mod check;
mod config;
mod connstr;
pub mod docs;
mod fleet;
mod http;
mod ini;
mod kinds;
mod load;
mod number;
mod otlp;
mod patroni;
mod pgweir_only;
mod problem;
mod server_limit;
mod share;
mod suggest;
mod table;
mod url;
mod value;

pub use bypass::BypassUsers;
pub use changes::{Changes, entry_pairs, entry_text};
pub use config::{Config, ConfigRow, Entries, RESERVED_DATABASES, is_console};
pub use fleet::{EtcdUrls, NodeAddress};
pub use http::{HttpAddress, HttpListen};
pub use kinds::{
    AuthType, Bytes, FairWindow, FileMode, HandoverClean, HttpTls, IoDriver, LoadBalance,
    LogFormat, Micros, PoolMode, Ports, ReadAfterWrite, Secret, SessionState, SslMode,
    SyslogFacility, TargetSession, TlsNegotiation, Unclean,
};
pub use otlp::{Collector, OtlpEndpoint, Ratio};
pub use patroni::{PatroniUrl, PatroniUrls};
pub use problem::{Note, Place, Problem, ProblemKind, Problems};
pub use server_limit::ServerLimit;
pub use share::Share;
pub use table::{
    Effect, Scope, SettingInfo,
    database::{self, Database},
    global::{self, Settings},
    peer::{self, Peer},
    user::{self, UserSettings},
};
pub use url::authority;
pub use value::BadValue;
