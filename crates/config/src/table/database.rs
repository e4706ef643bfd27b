//! The keys of an entry of `[databases]`.

use super::settings;
use crate::{
    LoadBalance, Micros, PatroniUrls, PoolMode, Ports, ReadAfterWrite, Secret, SessionState, Share,
    TargetSession, check::between,
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
        /// Where the server is: a host name, an IPv4 or IPv6 address, a directory of a Unix socket (starts with
        /// `/`), or an abstract Unix socket (starts with `@`). `load_balance_hosts` says how a list, separated by
        /// commas, is used. If not set, a Unix socket in `unix_socket_dir`.
        host: Vec<String>, reloads, now;
        /// The server's port; for a list of hosts, one port for all, or a list with the port of each.
        port: Ports = "5432", reloads, now;
        /// The zone of each host in the list `host`, separated by commas: a name for a part of the network, such as an
        /// availability zone. Hosts in the zone of this process (`zone` of `[pgbouncer]`) are used as long as one of
        /// them can be used, and then the others. If not set, no host is preferred.
        zone: Vec<String>, reloads, now;
        /// Log in to the server as this user, whoever the client is: the database has one pool. If not set, log in
        /// as the client's user: the database has one pool for each user.
        user: Option<String>, reloads, now;
        /// The password for `user`. If not set, the one in `auth_file`.
        password: Option<Secret>, reloads, now;
        /// Which host of a list a new server connection goes to: each in turn, or the same one until it fails. A host
        /// that has failed is tried again when its turn comes: see `server_login_retry`. If `target_session_attrs` asks
        /// for standbys, `round-robin` takes the one with the fewest connections from pgweir.
        load_balance_hosts: LoadBalance = "round-robin", reloads, now;
        /// Which hosts of a list are used, as in libpq: `any`; `read-write` or `read-only`, by whether transactions can
        /// write; `primary` or `standby`; or `prefer-standby`, a standby if one can be reached. Connections to other
        /// hosts are closed right after the login, and the next host is tried at once. Needs PostgreSQL 14.
        target_session_attrs: TargetSession = "any", reloads, now;
        /// With `target_session_attrs`, a standby whose lag behind its primary is above this is not used until it has
        /// caught up: `prefer-standby` then uses another standby, or the primary. pgweir measures the lag every
        /// `host_check_interval`; for that, the list must have the primary, too. 0: no limit.
        max_replica_lag: Micros = "0", reloads, now;
        /// Whether reads see earlier writes, with `target_session_attrs=prefer-standby` and `host_check_interval` above
        /// 0. `lsn`: a transaction begins on a standby only after the standby has replayed every write that this
        /// process has confirmed to a client of any entry before. The list must have the primary, too. `off`: a standby
        /// may lag behind.
        read_after_write: ReadAfterWrite = "off", reloads, now;
        /// How long a transaction waits with `read_after_write=lsn`. After that time, pgweir uses another standby, or
        /// the primary, and does not use the standbys that have not replayed the writes until they have caught up.
        read_after_write_wait: Micros = "1", reloads, now;
        /// Patroni's REST API, for a list of hosts with `target_session_attrs`: `http://HOST:PORT` or
        /// `https://HOST:PORT` of each member of the cluster, separated by commas. pgweir asks one of them every
        /// `patroni_interval`, and the next one if it does not answer. When Patroni reports another leader or another
        /// state of a member, pgweir checks the hosts at once. The servers' own reports decide which host is
        /// used. `https` needs `patroni_tls_ca_file`.
        patroni: PatroniUrls, reloads, now;
        /// The longest request that is sent to another host when a standby is lost before it replied. If not set, the
        /// global `read_repeat_buffer`.
        read_repeat_buffer: Option<u32>, reloads, now;
    }

    "Pools" {
        /// The largest number of servers in each pool of this database. If not set, `default_pool_size`.
        pool_size: Option<u32>, reloads, now;
        /// The number of servers to keep open in each pool. If not set, the global `min_pool_size`.
        min_pool_size: Option<u32>, reloads, now;
        /// The number of additional servers for each pool when clients wait too long. If not set, the global
        /// `reserve_pool_size`. `reserve_pool` is another name for it.
        reserve_pool_size: Option<u32>, reloads, now;
        /// The number of additional servers for each pool when many clients wait. If not set, the global
        /// `overflow_size`.
        overflow_size: Option<u32>, reloads, now;
        /// The number of clients that may wait in each pool before the pool opens servers of its overflow. If not
        /// set, the global `overflow_waiting`.
        overflow_waiting: Option<u32>, reloads, now;
        /// When servers of this database go back to their pool. If not set, the global `pool_mode`.
        pool_mode: Option<PoolMode>, reloads, now;
        /// Which session state clients keep in `transaction` mode. If not set, the global `session_state`.
        session_state: Option<SessionState>, reloads, now;
        /// The number of servers of each pool, or the part of `pool_size`, that pinned clients may keep. If not set,
        /// the global `max_pinned`.
        max_pinned: Option<Share>, reloads, now;
        /// How long a pinned client may be idle. If not set, the global `pin_timeout`.
        pin_timeout: Option<Micros>, reloads, now;
        /// The number of clients of a pool up to which each keeps its server. If not set, the global `share_after`.
        share_after: Option<u32>, reloads, now;
        /// In `transaction` mode with `session_state = transparent`, each client keeps its first server until it
        /// disconnects.
        dedicated: bool = "0", reloads, now;
        /// The largest number of servers in all pools of this database. If not set (or 0), the global
        /// `max_db_connections`.
        max_db_connections: Option<u32>, reloads, now;
        /// The weight of this database's pools when `max_server_conn` or another limit on servers is shared between
        /// pools that need more.
        weight: u32 = "1", reloads, now, between::<1, 1_000>;
        /// The largest number of clients of this database. If not set (or 0), the global
        /// `max_db_client_connections`.
        max_db_client_connections: Option<u32>, reloads, now;
        /// How long a query may wait for a server. If not set, the global `query_wait_timeout`.
        query_wait_timeout: Option<Micros>, reloads, now;
        /// How long clients wait for a server while no host can be used. If not set, the global `outage_hold`.
        outage_hold: Option<Micros>, reloads, now;
        /// Replace servers that have been connected for longer than this. If not set (or 0), the
        /// global `server_lifetime`.
        server_lifetime: Option<Micros>, reloads, now;
    }

    "What is set on new server connections" {
        /// A query to run on a new server connection before any client gets it. Put it between single quotes, and
        /// double a quote inside. If the query fails, the error is logged, and the connection is used.
        connect_query: Option<String>, reloads, now;
        /// The `client_encoding` for new server connections.
        client_encoding: Option<String>, reloads, now;
        /// The `DateStyle` for new server connections.
        datestyle: Option<String>, reloads, now;
        /// The `TimeZone` for new server connections.
        timezone: Option<String>, reloads, now;
        /// The `application_name` for new server connections.
        application_name: Option<String>, reloads, now;
    }

    "How clients log in" {
        /// The user as whom pgweir logs in to run `auth_query` for this database. If not set, the global
        /// `auth_user`.
        auth_user: Option<String>, reloads, now;
        /// The query that looks users up, between single quotes. If not set, the global `auth_query`.
        auth_query: Option<String>, reloads, now;
        /// The database in which `auth_query` runs. If not set, the global `auth_dbname`.
        auth_dbname: Option<String>, reloads, now;
    }
}

impl Database {
    /// Returns whether a host of the list, by its place, is in another zone than this one.
    #[must_use]
    pub fn is_in_another_zone(&self, host: usize, own: Option<&str>) -> bool {
        match (own, self.zone.get(host)) {
            (Some(own), Some(zone)) => own != zone,
            _ => false,
        }
    }

    /// Returns whether each host has a zone, or none has one.
    pub(crate) fn zones_match_hosts(&self) -> bool {
        self.zone.is_empty() || self.zone.len() == self.host.len()
    }

    /// Returns whether the other keys allow the value of `read_after_write`: a host must be found that has replayed the
    /// writes.
    pub(crate) fn can_read_after_write(&self) -> bool {
        let has_primary =
            self.host.len() > 1 && self.target_session_attrs == TargetSession::PreferStandby;
        self.read_after_write == ReadAfterWrite::Off || has_primary
    }
}
