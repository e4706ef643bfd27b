//! The configuration of a pool, looked up once: when a worker first uses the pool, and when the configuration changes.

use std::{ops::RangeInclusive, sync::Arc};

use pgweir_config::{Database, PoolMode, ReadAfterWrite, SessionState};

use crate::{
    Endpoint, ServerTls, SharedPool, Snapshot, Time, backend::Server, directory::opens_like,
};

/// The configuration of a pool, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: PoolMode,
    /// The pool's entry in `[databases]`; `None` if it was removed.
    pub(crate) entry: Option<Database>,
    /// The addresses of the pool's servers; successive logins take them in turn.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// How TLS is used with the servers.
    pub(crate) tls: Option<ServerTls>,
    /// Microseconds; 0 is no limit.
    pub(crate) query_wait_timeout: u64,
    /// Microseconds for which clients wait in an outage; 0: they are not held.
    pub(crate) outage_hold: u64,
    pub(crate) patience: Patience,
    /// Microseconds; 0 means that a server is lent once.
    pub(crate) server_lifetime: u64,
    /// Microseconds for which a pinned client may be idle; 0 is no limit.
    pub(crate) pin_timeout: u64,
    /// The number of clients up to which each client keeps its server.
    pub(crate) share_after: usize,
    /// Whether each client keeps its first server.
    pub(crate) dedicated: bool,
    /// Whether each client finds its session state on every server: `SET`, prepared statements and roles keep working
    /// in transaction mode.
    pub(crate) carries_sessions: bool,
    /// Whether `session_state` is `off`: statements on which PgBouncer closes a connection close it here, too.
    pub(crate) as_pgbouncer: bool,
    /// The largest number of prepared statements on each server; 0 if pgweir does not replace clients' statement names.
    pub(crate) prepared_max: usize,
    /// The smallest number of servers that are kept open.
    pub(crate) min_pool_size: u32,
    /// Whether the servers log in as one user, regardless of the clients' users.
    pub(crate) is_forced: bool,
    /// Whether idle servers are lent in turn.
    pub(crate) round_robin: bool,
    /// The largest number of bytes of a request that is repeated on another host when a standby is lost; 0: none is
    /// repeated.
    pub(crate) repeat_max: usize,
    /// Microseconds for which a transaction waits for a standby to replay earlier writes; `None`: it does not wait.
    pub(crate) read_after_write: Option<u64>,
    /// Whether the pool comes from the entry `*`: it is removed when it has been empty for `autodb_idle_timeout`.
    pub(crate) is_auto: bool,
}

/// How long a client of a pool may keep its server, in microseconds; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    pub(crate) query: u64,
    pub(crate) idle_transaction: u64,
    pub(crate) transaction: u64,
}

impl Terms {
    /// Returns whether each client keeps its server while there are this many clients.
    pub(crate) fn are_few(&self, clients: usize) -> bool {
        self.share_after > 0 && clients <= self.share_after
    }

    pub(crate) fn of(shared: &SharedPool, snapshot: &Snapshot) -> Self {
        let config = &snapshot.config;
        let Some(database) = config.database(&shared.key.database) else {
            return Self {
                mode: PoolMode::Transaction,
                entry: None,
                endpoints: Vec::new(),
                tls: None,
                query_wait_timeout: config.settings.query_wait_timeout.0,
                outage_hold: 0,
                patience: Patience::default(),
                server_lifetime: 0,
                pin_timeout: 0,
                share_after: 0,
                dedicated: false,
                carries_sessions: false,
                as_pgbouncer: false,
                prepared_max: 0,
                min_pool_size: 0,
                is_forced: false,
                round_robin: false,
                repeat_max: 0,
                read_after_write: None,
                is_auto: true,
            };
        };
        let mode = config.pool_mode(database, &shared.key.user);
        let prepared_max = match mode {
            PoolMode::Session => 0,
            _ => config.settings.max_prepared_statements as usize,
        };
        let is_off = config.session_state(database) == SessionState::Off;
        let carries_sessions = config.carries_sessions(database, &shared.key.user);
        Self {
            mode,
            carries_sessions,
            pin_timeout: config.pin_timeout(database, &shared.key.user).0,
            share_after: config.share_after(database) as usize,
            dedicated: config.is_dedicated(database, &shared.key.user),
            as_pgbouncer: is_off,
            prepared_max,
            entry: Some(database.clone()),
            endpoints: endpoints_of(database, snapshot),
            tls: snapshot.tls.servers,
            query_wait_timeout: config.query_wait_timeout(database, &shared.key.user).0,
            outage_hold: config.outage_hold(database).0,
            patience: Patience {
                query: config.query_timeout(&shared.key.user).0,
                idle_transaction: config.idle_transaction_timeout(&shared.key.user).0,
                transaction: config.transaction_timeout(&shared.key.user).0,
            },
            server_lifetime: config.server_lifetime(database).0,
            min_pool_size: config.min_pool_size(database),
            is_forced: database.user.as_deref() == Some(&*shared.key.user),
            round_robin: config.settings.server_round_robin,
            repeat_max: config.read_repeat_buffer(database, &shared.key.user) as usize,
            read_after_write: (database.read_after_write == ReadAfterWrite::Lsn)
                .then_some(database.read_after_write_wait.0),
            is_auto: !config.databases.contains_key(&*shared.key.database),
        }
    }
}

/// Returns the addresses of a database's servers: without `host`, a Unix socket in `unix_socket_dir`.
fn endpoints_of(database: &Database, snapshot: &Snapshot) -> Vec<Arc<Endpoint>> {
    if database.host.is_empty() {
        let folder = snapshot.config.settings.unix_socket_dir.as_deref();
        let endpoint = Endpoint::of(folder.unwrap_or("/tmp"), database.port.of(0));
        return vec![Arc::new(endpoint)];
    }
    Endpoint::all_of(database).map(Arc::new).collect()
}

/// Microseconds by which a server's successor is opened before the server's end: a twentieth of the lifetime, within
/// these bounds. The lower one leaves time for a slow login, and is a quarter of the lifetime if that is less.
const HANDOVER: RangeInclusive<u64> = 1_000_000..=10_000_000;

/// Returns how many microseconds a server of this lifetime and its successor have together.
fn handover(lifetime: u64) -> u64 {
    let shortest = (*HANDOVER.start()).min(lifetime / 4);
    (lifetime / 20).clamp(shortest, *HANDOVER.end())
}

/// Returns how much earlier a server ends than its lifetime, in 640ths of the lifetime: 0 to 63.
#[inline]
fn spread(id: u64) -> u64 {
    // The high bits of a product with 2^64 / golden ratio spread consecutive numbers well.
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

impl Terms {
    /// Returns the age at which the server of this id ends: at most `server_lifetime`, and up to a tenth earlier,
    /// so that servers that were opened together don't end together.
    #[inline]
    fn end_age(&self, id: u64) -> u64 {
        self.server_lifetime - self.server_lifetime / 640 * spread(id)
    }

    /// Returns the age at which the server's successor is opened.
    pub(crate) fn successor_age(&self, id: u64) -> u64 {
        self.end_age(id) - handover(self.server_lifetime)
    }

    /// Returns when the server is closed for its age: later than planned if its successor was opened late, so that
    /// the successor has time to log in.
    #[inline]
    pub(crate) fn server_end(&self, server: &Server) -> Time {
        let planned = (server.times.connected_at()).after(self.end_age(server.id()));
        let successor_at = server.retirement.successor_at();
        successor_at.map_or(planned, |at| {
            planned.max(at.after(handover(self.server_lifetime)))
        })
    }

    /// Returns whether the server is soon too old, and no successor was requested yet. Clients wait neither for a
    /// server that another client has for its whole session nor for an exclusive one.
    pub(crate) fn needs_successor(&self, server: &Server, now: Time) -> bool {
        let is_shared = !server.is_exclusive();
        let age = now.since(server.times.connected_at());
        is_shared
            && self.server_lifetime > 0
            && server.retirement.successor_at().is_none()
            && age >= self.successor_age(server.id())
    }

    /// Returns whether a server that was opened under these terms would be opened in the same way under `other`.
    pub(crate) fn opens_like(&self, other: &Self) -> bool {
        match (&self.entry, &other.entry) {
            (Some(one), Some(another)) => self.tls == other.tls && opens_like(one, another),
            (None, None) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{handover, spread};

    #[test]
    fn a_successor_has_time_to_log_in() {
        let lifetimes = [0, 1, 2, 60, 3600].map(|seconds| seconds * 1_000_000);
        let expected = [0, 250_000, 500_000, 3_000_000, 10_000_000];
        assert_eq!(lifetimes.map(handover), expected);
    }

    #[test]
    fn servers_that_are_opened_together_end_one_after_another() {
        for first in [0, 1, 1_000, u64::MAX - 10] {
            let mut ends: Vec<u64> = (0..16).map(|n| spread(first.wrapping_add(n))).collect();
            ends.sort_unstable();
            let gap = ends.windows(2).map(|pair| pair[1] - pair[0]).max();
            assert!(gap <= Some(10), "{ends:?}");
            assert!(ends[15] - ends[0] > 50, "{ends:?}");
        }
    }
}
