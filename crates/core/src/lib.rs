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
mod client_counts;
mod client_listen;
mod client_timeouts;
mod connections;
pub mod console;
mod diagnosis;
mod directory;
mod effect;
pub mod events;
pub mod fault;
pub mod frontend;
mod inbox;
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
mod operator;
mod operator_orders;
mod parked_logins;
pub mod pin;
pub mod pool;
mod pooling;
mod reconfiguration;
mod relay;
mod role_settings;
pub mod session;
pub mod shared_pool;
mod shutdown;
pub mod signal;
mod statistics;
pub mod stats;
mod suspension;
pub mod takeover;
mod time;
mod timers;
mod tls;
mod token;
mod worker;

pub use action::{Action, Actions, Closed, ConnectError, Control, Peer, ReadMode, Source};
pub use address::{Address, Endpoint};
pub use auth_check::{AuthCheck, AuthCheckResult, Service};
pub use bypass::Bypass;
pub use catalog::{Catalog, CatalogReport, Catalogs, Connected, Ddl, Reading};
pub use diagnosis::Diagnosis;
pub use directory::{Directory, Snapshot};
pub use log::{Audit, Level, LogLine};

pub use auth_cache::{Answer, AuthCache, CacheLimits, Topic, UserQuestion};
pub use exclusive_server::{ExclusiveServer, Replication};
pub use operator::{Halt, Operator, Shutdown};
pub use shared_pool::{Search, ServerFacts, SharedPool};
pub use stats::Stats;
pub use takeover::{HandedOverServer, TakeoverMail};
pub use time::Time;
pub use tls::{PeerCertificate, ServerTls, TlsFacts, TlsFault, TlsRole, TlsTerms};
pub use token::{Token, WorkerId};
pub use worker::{TakenOverClient, Worker};
