//! The pooler's logic without input or output: a [`Worker`] takes events and the present time, and returns actions.
//!
//! No code in this crate opens a socket, reads a clock, a file or the environment, or makes random numbers.

mod action;
mod admin;
pub mod backend;
pub mod base;
mod cancel_requests;
mod client_listen;
mod clients;
mod connections;
pub mod console;
mod diagnosis;
mod directory;
mod effect;
mod exchange;
pub mod frontend;
mod lending;
pub mod listen;
mod listeners;
mod loan;
mod log;
mod login;
pub mod mail;
mod measurement;
pub mod metrics;
mod online_restart;
mod operators;
pub mod pool;
mod pooling;
mod relay;
mod server_connections;
pub mod session;
pub mod shared;
pub mod signal;
pub mod statement_statistics;
pub mod takeover;
mod timers;
mod transaction_trace;
mod worker;

pub use action::{Action, Actions, Closed, ConnectError, Control, Peer, ReadMode, Source};
pub use base::address::{Address, Endpoint};
pub use base::auth_check::{AuthCheck, AuthCheckResult, Service};
pub use base::exclusive_server::{ExclusiveServer, Replication};
pub use base::stats::Stats;
pub use base::time::Time;
pub use base::tls::{PeerCertificate, ServerTls, TlsFacts, TlsFault, TlsRole, TlsTerms};
pub use base::token::{Token, WorkerId};
pub use diagnosis::Diagnosis;
pub use directory::{Directory, Snapshot};
pub use log::{Audit, Level, LogLine};
pub use online_restart::TakenOverClient;
pub use shared::auth_cache::{Answer, AuthCache, CacheLimits, Topic, UserQuery};
pub use shared::bypass::Bypass;
pub use shared::catalog::{
    Catalog, CatalogReport, Catalogs, Connected, Ddl, Evaluated, Evaluation, LostDdlCounts, Reading,
};
pub use shared::fleet::{FleetCount, FleetCounted, FleetRound};
pub use shared::pool::{Search, ServerFacts, SharedPool};
pub use shared::{
    departures::Departures,
    operator::{Halt, Operator, Shutdown},
};
pub use takeover::{HandedOverServer, TakeoverMail};
pub use transaction_trace::{TraceParent, TransactionTrace};
pub use worker::Worker;
