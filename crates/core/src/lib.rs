//! The pooler's logic without input or output: a [`Worker`] takes events and the present time, and returns actions.
//!
//! No code in this crate opens a socket, reads a clock, a file or the environment, or makes random numbers.

mod action;
mod address;
mod admin;
mod auth_check;
pub mod backend;
mod bypass;
pub mod cancel;
mod cancel_requests;
mod catalog;
mod catalog_reading;
mod client_counts;
mod client_listen;
mod client_signals;
mod client_timeouts;
mod connections;
pub mod console;
mod diagnosis;
mod directory;
mod disconnect;
mod early_answers;
mod effect;
pub mod events;
mod exchange;
pub mod fault;
pub mod frontend;
mod inbox;
mod lending;
pub mod listen;
mod listeners;
mod loan;
mod log;
mod login;

mod auth_cache;
mod exclusive_server;
pub mod mail;
mod maintenance;
pub mod metrics;
pub mod occupancy;
mod online_restart;
mod operator;
mod operator_orders;
mod parked_logins;
pub mod pin;
pub mod pool;
mod pooling;
mod reconfiguration;
mod recording;
mod relay;
mod role_settings;
mod server_connections;
pub mod session;
pub mod shared_pool;
mod shutdown;
pub mod signal;
pub mod statement_statistics;
mod statistics;
pub mod stats;
mod suspension;
pub mod takeover;
mod time;
mod timers;
mod tls;
mod token;
mod transaction_trace;
mod wait_notices;
mod worker;

pub use action::{Action, Actions, Closed, ConnectError, Control, Peer, ReadMode, Source};
pub use address::{Address, Endpoint};
pub use auth_check::{AuthCheck, AuthCheckResult, Service};
pub use bypass::Bypass;
pub use catalog::{
    Catalog, CatalogReport, Catalogs, Connected, Ddl, Evaluated, Evaluation, Reading,
};
pub use diagnosis::Diagnosis;
pub use directory::{Directory, Snapshot};
pub use log::{Audit, Level, LogLine};

pub use auth_cache::{Answer, AuthCache, CacheLimits, Topic, UserQuestion};
pub use exclusive_server::{ExclusiveServer, Replication};
pub use online_restart::TakenOverClient;
pub use operator::{Halt, Operator, Shutdown};
pub use shared_pool::{Search, ServerFacts, SharedPool};
pub use stats::Stats;
pub use takeover::{HandedOverServer, TakeoverMail};
pub use time::Time;
pub use tls::{PeerCertificate, ServerTls, TlsFacts, TlsFault, TlsRole, TlsTerms};
pub use token::{Token, WorkerId};
pub use transaction_trace::{TraceParent, TransactionTrace};
pub use worker::Worker;
