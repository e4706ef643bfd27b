//! File descriptors: the limit, and its distribution over clients and servers.

use pgweir_core::Snapshot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything that is not a connection: log, epoll, listening sockets, timers.
const RESERVE: u64 = 64;

/// The largest number of open files. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileLimit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

impl FileLimit {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raise() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let soft = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        Self {
            soft,
            hard: limit.maximum,
        }
    }

    /// Returns the line of the log with the limit and the possible need.
    pub(crate) fn line(self, snapshot: &Snapshot) -> String {
        let shown = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
        format!(
            "kernel file descriptor limit: {} (hard: {}); max_client_conn: {}, max expected fd use: {}",
            shown(self.soft),
            shown(self.hard),
            snapshot.config.settings.max_client_conn,
            needed(snapshot)
        )
    }

    /// Returns the number of descriptors that the configuration may need.
    pub(crate) fn needed(self, snapshot: &Snapshot) -> u64 {
        needed(snapshot)
    }

    /// Returns a warning if the limit is too small for the configuration.
    pub(crate) fn warning(self, snapshot: &Snapshot) -> Option<String> {
        let (limit, needed) = (self.soft?, needed(snapshot));
        let served = self.clients_max(snapshot)?;
        let servers = servers_estimated(snapshot);
        (needed > limit).then(|| {
            format!(
                "the limit of open files is {limit}, but max_client_conn = {}, about {servers} server connections \
                 and {RESERVE} others need {needed}: only about {served} clients will be served at a time, others wait to \
                 be let in; raise the limit to {needed} (LimitNOFILE= in the systemd unit, or ulimit -n), or lower \
                 max_client_conn",
                snapshot.config.settings.max_client_conn
            )
        })
    }

    /// Returns the number of clients that may have a descriptor each, so that some are always left for servers and for
    /// everything else. No more clients are accepted.
    pub(crate) fn clients_max(self, snapshot: &Snapshot) -> Option<usize> {
        let limit = self.soft?;
        // The estimate may be far too high, so at most a quarter of the descriptors is reserved for servers. If the
        // limit is very small, fewer are reserved for other files, too.
        let others = RESERVE.min(limit / 2);
        let servers = servers_estimated(snapshot).min((limit - others) / 4);
        usize::try_from(limit - others - servers).ok()
    }
}

fn needed(snapshot: &Snapshot) -> u64 {
    let settings = &snapshot.config.settings;
    u64::from(settings.max_client_conn)
        + bypass_estimated(snapshot)
        + servers_estimated(snapshot)
        + RESERVE
}

/// Returns the estimated number of clients that exceed the limits, and a server connection for each.
fn bypass_estimated(snapshot: &Snapshot) -> u64 {
    let settings = &snapshot.config.settings;
    match settings.bypass_users.is_empty() {
        true => 0,
        false => 2 * u64::from(settings.bypass_max),
    }
}

/// Returns the estimated number of server connections. Pools are unknown before there are clients. As in PgBouncer, the
/// estimate has one pool for each database and user in the file, or for each database with a forced user.
fn servers_estimated(snapshot: &Snapshot) -> u64 {
    let config = &snapshot.config;
    let users = || snapshot.users.iter().map(|(name, _)| name);
    config
        .databases
        .values()
        .chain(&config.fallback)
        .map(|database| match &database.user {
            Some(user) => u64::from(config.pool_size(database, user)),
            None => users()
                .map(|user| u64::from(config.pool_size(database, user)))
                .sum(),
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use pgweir_auth::userlist::{Secret, Userlist};
    use pgweir_config::Config;

    use super::*;

    fn snapshot(clients: u32) -> Snapshot {
        let mut users = Userlist::default();
        users.insert("app", Secret::parse("secret"));
        let mut config = Config::quick_start("localhost", 5432, "shop");
        config.settings.max_client_conn = clients;
        Snapshot {
            config,
            users,
            tls: pgweir_core::TlsTerms::default(),
            rules: Default::default(),
        }
    }

    fn limit(soft: u64) -> FileLimit {
        FileLimit {
            soft: Some(soft),
            hard: Some(soft),
        }
    }

    #[test]
    fn a_low_limit_is_explained_in_numbers() {
        let snapshot = snapshot(5000);
        let unlimited = FileLimit {
            soft: None,
            hard: None,
        };
        assert_eq!(unlimited.warning(&snapshot), None);
        assert_eq!(limit(5104).warning(&snapshot), None);
        let warning = limit(1024).warning(&snapshot).expect("too low");
        assert!(
            warning.contains("limit of open files is 1024") && warning.contains("need 5104"),
            "{warning}"
        );
        assert!(warning.contains("only about 920 clients"), "{warning}");
        assert_eq!(
            limit(1024).line(&snapshot),
            "kernel file descriptor limit: 1024 (hard: 1024); max_client_conn: 5000, max expected fd use: 5104"
        );
    }

    #[test]
    fn clients_leave_some_for_servers() {
        let clients = |files| limit(files).clients_max(&snapshot(5000));
        assert_eq!(clients(1024), Some(1024 - 64 - 40));
        // 40 servers would be more than a quarter.
        assert_eq!(clients(128), Some(128 - 64 - 16));
        assert_eq!(clients(16), Some(16 - 8 - 2));
    }
}
