//! State that all workers share, behind locks and atomic counters: pools, hosts, catalogs, caches of logins, cancel
//! keys, limits on clients, operators' orders and events. [`Directory`](crate::Directory) owns one of each.

pub(crate) mod auth_cache;
pub mod bans;
pub(crate) mod bypass;
pub mod cancel;
pub(crate) mod catalog;
pub(crate) mod client_counts;
pub(crate) mod departures;
pub mod events;
pub mod fleet;
pub mod hosts;
pub mod occupancy;
pub(crate) mod operator;
pub mod pool;
pub mod worker_loads;
