//! The keys of an entry of `[users]`.

use super::settings;
use crate::{Micros, PoolMode};

settings! {
    /// An entry of `[users]`: the settings of one user. Each setting that is not set is the
    /// database's, or else the global one.
    pub struct UserSettings(User)

    "Pools of the user" {
        /// The largest number of servers in each pool of this user. Overrides the database's `pool_size`.
        pool_size: Option<u32>, reloads, now;
        /// The number of additional servers for each pool of this user when clients wait too long. Overrides the
        /// database's.
        reserve_pool_size: Option<u32>, reloads, now;
        /// When servers of this user's pools go back to their pool. Overrides the database's `pool_mode`.
        pool_mode: Option<PoolMode>, reloads, now;
        /// In `transaction` mode with `session_state = transparent`, each client of this user keeps its first server
        /// until it disconnects. If not set, the database's.
        dedicated: Option<bool>, reloads, now;
        /// The largest number of servers in all pools of this user. If not set (or 0), the global
        /// `max_user_connections`.
        max_user_connections: Option<u32>, reloads, now;
        /// The largest number of clients of this user. If not set (or 0), the global `max_user_client_connections`.
        max_user_client_connections: Option<u32>, reloads, now;
    }

    "Timeouts of the user" {
        /// How long a query may run. If not set, the global `query_timeout`.
        query_timeout: Option<Micros>, reloads, now;
        /// How long a query may wait for a server. Overrides the database's.
        query_wait_timeout: Option<Micros>, reloads, now;
        /// How long a client may be idle in a transaction. If not set, the global
        /// `idle_transaction_timeout`.
        idle_transaction_timeout: Option<Micros>, reloads, now;
        /// How long a transaction may last. If not set, the global `transaction_timeout`.
        transaction_timeout: Option<Micros>, reloads, now;
        /// How long a pinned client may be idle. Overrides the database's.
        pin_timeout: Option<Micros>, reloads, now;
        /// How long a client may be idle. If not set, the global `client_idle_timeout`.
        client_idle_timeout: Option<Micros>, reloads, now;
    }
}
