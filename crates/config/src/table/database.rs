//! The keys of an entry of `[databases]`.

use super::settings;
use crate::{
    LoadBalance, Micros, PoolMode, Secret, SessionState, Share,
    check::{between, port},
};

settings! {
    /// An entry of `[databases]`: where the connections of one database go.
    pub struct Database(Database) {
        /// The name that clients ask for; `*` for the entry that serves all other names.
        pub name: String,
    }

    "Where the server is" {
        /// The database's name on the server. If not set, the name that the client asked for.
        dbname: Option<String>, reloads, now;
        /// Where the server is: a host name, an IPv4 or IPv6 address, a directory of a Unix socket
        /// (starts with `/`), or an abstract Unix socket (starts with `@`). A list separated by commas
        /// is tried as `load_balance_hosts` says. If not set, a Unix socket in `unix_socket_dir`.
        host: Vec<String>, reloads, now;
        /// The server's port.
        port: u16 = "5432", reloads, now, port;
        /// Log in to the server as this user, whoever the client is: one pool for the whole database.
        /// If not set, as the client's user: one pool for each.
        user: Option<String>, reloads, now;
        /// The password for `user`. If not set, the one in `auth_file`.
        password: Option<Secret>, reloads, now;
        /// Which host of a list a new server connection goes to: each in turn, or the same one until
        /// it fails. A host that fails is tried again in its turn: see `server_login_retry`.
        load_balance_hosts: LoadBalance = "round-robin", reloads, now;
    }

    "Pools" {
        /// The most servers of each pool of this database. If not set, `default_pool_size`.
        pool_size: Option<u32>, reloads, now;
        /// Keep at least so many servers in each pool. If not set, the global `min_pool_size`.
        min_pool_size: Option<u32>, reloads, now;
        /// So many more servers in each pool when clients wait too long. If not set, the global
        /// `reserve_pool_size`. `reserve_pool` is another name for it.
        reserve_pool_size: Option<u32>, reloads, now;
        /// So many more servers in each pool when many clients wait. If not set, the global `overflow_size`.
        overflow_size: Option<u32>, reloads, now;
        /// The most clients that wait in each pool before that. If not set, the global
        /// `overflow_waiting`.
        overflow_waiting: Option<u32>, reloads, now;
        /// When servers of this database go back to their pool. If not set, the global `pool_mode`.
        pool_mode: Option<PoolMode>, reloads, now;
        /// What of a session clients find on every server. If not set, the global `session_state`.
        session_state: Option<SessionState>, reloads, now;
        /// How many servers of each pool may be kept by clients before it may have more. If not set, the
        /// global `max_pinned`.
        max_pinned: Option<Share>, reloads, now;
        /// How long a pinned client may be idle. If not set, the global `pin_timeout`.
        pin_timeout: Option<Micros>, reloads, now;
        /// Up to so many clients of a pool, each keeps its server. If not set, the global `share_after`.
        share_after: Option<u32>, reloads, now;
        /// Each client keeps the server that it gets first until it leaves, in `transaction` mode with
        /// `session_state = transparent`.
        dedicated: bool = "0", reloads, now;
        /// The most servers of all pools of this database. If not set (or 0), the global
        /// `max_db_connections`.
        max_db_connections: Option<u32>, reloads, now;
        /// How large the share of each pool of this database is, in relation to other pools, where
        /// `max_server_conn` or another cap on servers does not let all have what they want.
        weight: u32 = "1", reloads, now, between::<1, 1_000>;
        /// The most clients of this database. If not set (or 0), the global
        /// `max_db_client_connections`.
        max_db_client_connections: Option<u32>, reloads, now;
        /// How long a query may wait for a server. If not set, the global `query_wait_timeout`.
        query_wait_timeout: Option<Micros>, reloads, now;
        /// Replace servers that have been connected for longer than this. If not set (or 0), the
        /// global `server_lifetime`.
        server_lifetime: Option<Micros>, reloads, now;
    }

    "What is set on new server connections" {
        /// A query to run on a new server connection before any client gets it. Put it between single
        /// quotes; a quote inside is doubled. If it fails, this is logged and the connection is used.
        connect_query: Option<String>, reloads, now;
        /// `client_encoding` to ask the server for.
        client_encoding: Option<String>, reloads, now;
        /// `DateStyle` to ask the server for.
        datestyle: Option<String>, reloads, now;
        /// `TimeZone` to ask the server for.
        timezone: Option<String>, reloads, now;
        /// `application_name` to ask the server for.
        application_name: Option<String>, reloads, now;
    }

    "How clients log in" {
        /// Look up users who are not in `auth_file` as this user. If not set, the global `auth_user`.
        auth_user: Option<String>, reloads, now;
        /// The query that looks them up, between single quotes. If not set, the global `auth_query`.
        auth_query: Option<String>, reloads, now;
        /// The database that they are looked up in. If not set, the global `auth_dbname`.
        auth_dbname: Option<String>, reloads, now;
    }
}
