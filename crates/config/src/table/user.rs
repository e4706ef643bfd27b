//! The keys of an entry of `[users]`.

use super::settings;
use crate::{Micros, PoolMode};

settings! {
    /// An entry of `[users]`: what is different for one user. Each setting that is not set is the
    /// database's, or else the global one.
    pub struct UserSettings(User)

    "Pools of the user" {
        /// The most servers of each pool of this user. Goes before the database's `pool_size`.
        pool_size: Option<u32>, reloads, now;
        /// So many more servers in each pool of this user when clients wait too long. Goes before the
        /// database's.
        reserve_pool_size: Option<u32>, reloads, now;
        /// When servers of this user's pools go back. Goes before the database's `pool_mode`.
        pool_mode: Option<PoolMode>, reloads, now;
        /// Each client of this user keeps the server that it gets first until it leaves, in `transaction`
        /// mode with `session_state = transparent`. If not set, the database's.
        dedicated: Option<bool>, reloads, now;
        /// The most servers of all pools of this user. If not set (or 0), the global
        /// `max_user_connections`.
        max_user_connections: Option<u32>, reloads, now;
        /// The most clients of this user. If not set (or 0), the global `max_user_client_connections`.
        max_user_client_connections: Option<u32>, reloads, now;
    }

    "Timeouts of the user" {
        /// How long a query may run. If not set, the global `query_timeout`.
        query_timeout: Option<Micros>, reloads, now;
        /// How long a query may wait for a server. Goes before the database's.
        query_wait_timeout: Option<Micros>, reloads, now;
        /// How long a client may be idle in a transaction. If not set, the global
        /// `idle_transaction_timeout`.
        idle_transaction_timeout: Option<Micros>, reloads, now;
        /// How long a transaction may last. If not set, the global `transaction_timeout`.
        transaction_timeout: Option<Micros>, reloads, now;
        /// How long a pinned client may be idle. Goes before the database's.
        pin_timeout: Option<Micros>, reloads, now;
        /// How long a client may be idle. If not set, the global `client_idle_timeout`.
        client_idle_timeout: Option<Micros>, reloads, now;
    }
}
