//! Work outside of the event loops: signals, files, host names, and everything that may block.
//!
//! The control thread is the process's main thread. Workers never wait for it.

mod auth_check;
mod change;
mod config_source;
mod derive;
mod etcd_entries;
mod evaluate;
mod fleet;
mod ldap;
mod ldap_conf;
#[cfg(feature = "pam")]
mod pam;
#[cfg(not(feature = "pam"))]
#[path = "no_pam.rs"]
mod pam;
mod patroni;
mod reload;
mod resolver;
mod restart;
mod signals;
mod slow_work;
mod stats_report;
mod supervisor;
mod threads;

pub(crate) use change::{ChangeError, EntryChange};
pub(crate) use config_source::{ConfigSource, Contents};
pub(crate) use etcd_entries::EntryStore;
pub(crate) use fleet::{Fleet, FleetAccess, NodesAnswer, NodesOrder, OrderReply};
pub(crate) use patroni::{Access as PatroniAccess, Patroni};
pub(crate) use reload::{LoadError, Loaded, Origin, credentials, http_tokens, load, net_options};
pub(crate) use resolver::{Lookup, Resolver};
pub(crate) use restart::{Program, Restart};
pub(crate) use signals::{Caught, Signal};
pub(crate) use slow_work::SlowWork;
pub(crate) use stats_report::StatsReport;
pub(crate) use supervisor::{HttpControl, Logging, Request, Supervisor};

/// Too many jobs wait for a thread: this one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded;
