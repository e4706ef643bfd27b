//! The pooler's logic without input or output: a [`Worker`] takes events and the present time, and returns actions.
//!
//! No code in this crate opens a socket, reads a clock, a file or the environment, or makes random numbers.

mod action;
mod address;
mod admin;
pub mod backend;
mod bypass;
pub mod cancel;
mod cancel_requests;
mod catalog;
mod client_counts;
mod connections;
pub mod console;
mod diagnosis;
mod directory;
mod effect;
pub mod fault;
pub mod frontend;
mod inbox;
mod inquiry;
pub mod listen;
mod log;

mod lookups;
pub mod mail;
pub mod metrics;
mod native;
pub mod occupancy;
mod operator;
mod parked_logins;
pub mod pin;
pub mod pool;
mod relay;
pub mod session;
pub mod shared_pool;
pub mod signal;
pub mod stats;
mod suspension;
pub mod takeover;
mod time;
mod tls;
mod token;
mod worker;

pub use action::{Action, Actions, Closed, ConnectError, Control, Peer, ReadMode, Source};
pub use address::{Address, Endpoint};
pub use bypass::Bypass;
pub use catalog::{Catalog, CatalogReport, Catalogs, Connected, Ddl, Reading};
pub use diagnosis::Diagnosis;
pub use directory::{Directory, Snapshot};
pub use inquiry::{Finding, Inquiry, Service};
pub use log::{Level, LogLine};

pub use lookups::{Answer, Keeping, Lookups, Question, Topic};
pub use native::{Native, Replication};
pub use operator::{Halt, Operator, Shutdown};
pub use shared_pool::{Facts, Search, SharedPool};
pub use stats::Stats;
pub use takeover::{Along, Word};
pub use time::Time;
pub use tls::{PeerCertificate, ServerTls, TlsFacts, TlsFault, TlsRole, TlsTerms};
pub use token::{Token, WorkerId};
pub use worker::{Arrival, Worker};
