//! The pooler as a pure value: events in, actions out, `now` passed in.
//!
//! Nothing in this crate opens a socket, reads a clock or a file, or makes randomness.

mod action;
mod address;
pub mod admin;
pub mod backend;
mod beginnings;
mod bypass;
pub mod cancel;
mod catalog;
mod client_counts;
mod directory;
pub mod fault;
pub mod frontend;
mod inbox;
mod inquiry;
pub mod listen;
mod log;

mod lookups;
pub mod mail;
mod native;
pub mod occupancy;
mod operator;
pub mod pin;
pub mod pool;
mod relay;
pub mod session;
pub mod shared_pool;
pub mod signal;
pub mod stats;
pub mod takeover;
mod time;
mod tls;
mod token;
mod worker;

pub use action::{Action, Actions, Closed, ConnectError, Control, Peer, ReadMode, Source};
pub use address::{Address, Endpoint};
pub use beginnings::{Assignments, Beginnings, Site};
pub use bypass::Bypass;
pub use catalog::{Catalog, CatalogReport, Catalogs, Connected, Ddl, Reading};
pub use directory::{Directory, Snapshot};
pub use inquiry::{Finding, Inquiry, Service};
pub use log::{Level, LogLine};

pub use lookups::{Answer, Keeping, Lookups, Question, Topic};
pub use native::{Native, Replication};
pub use operator::{Halt, Operator, Shutdown};
pub use shared_pool::{Facts, SharedPool};
pub use stats::Stats;
pub use time::Time;
pub use tls::{PeerCertificate, ServerTls, TlsFacts, TlsFault, TlsRole, TlsTerms};
pub use token::{Token, WorkerId};
pub use worker::{Along, Arrival, Diagnosis, Search, Word, Worker};
