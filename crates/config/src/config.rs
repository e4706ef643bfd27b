//! The checked configuration, and the values that apply to one database and one user.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    AuthType, Database, Micros, Note, Peer, Place, PoolMode, Ports, ReadAfterWrite, Scope, Secret,
    SessionState, SettingInfo, Settings, SyslogFacility, TargetSession, UserSettings,
    check::{PACKET_MAX, PACKET_MIN},
    value::Value,
};

/// The texts of the entries of `[databases]` and `[users]`, as they were written.
pub type Entries = BTreeMap<(Scope, String), Secret>;

/// Database names that lead to the console.
pub const RESERVED_DATABASES: [&str; 2] = ["pgbouncer", "pgweir"];

/// Returns whether a database name leads to the console.
#[must_use]
pub fn is_console(database: &str) -> bool {
    RESERVED_DATABASES.contains(&database)
}

/// A checked configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Section `[pgbouncer]`.
    pub settings: Settings,
    /// Section `[databases]` by name, without the entry `*`.
    pub databases: BTreeMap<String, Database>,
    /// The entry `*` of `[databases]`, which serves all names without an entry.
    pub fallback: Option<Database>,
    /// Section `[users]` by name.
    pub users: BTreeMap<String, UserSettings>,
    /// Section `[peers]` by number.
    pub peers: BTreeMap<u32, Peer>,
    /// The texts of the entries of `[databases]` and `[users]`, as they were written.
    pub entries: Entries,
    /// Messages for the operator about this configuration, to be logged once.
    pub notes: Vec<Note>,
    /// The settings in the file that only pgweir has: PgBouncer would refuse such a file.
    pub own: BTreeSet<(Scope, &'static str)>,
    /// The places of the keys of `[pgbouncer]` that were set in a file. Problems with a value (a file that can't be
    /// read, an address that can't be used) may appear only later.
    pub places: BTreeMap<&'static str, Place>,
}

/// A row of SHOW CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRow {
    /// The name of the setting.
    pub key: &'static str,
    /// The value. `None` is NULL.
    pub value: Option<String>,
    /// The default. `None` is NULL.
    pub default: Option<&'static str>,
    /// Whether the setting can be changed without a restart.
    pub changeable: bool,
}

impl Config {
    /// Creates a configuration for one server without a file: pgweir listens on 127.0.0.1:6432 in transaction mode, and
    /// clients log in by SCRAM. `host` may be a name, an address, or a directory (`/...`) or abstract name (`@...`) of
    /// a Unix socket. Clients can reach the database `dbname` and, through the entry `*`, all others of that server;
    /// with an empty `dbname` there is only `*`.
    #[must_use]
    pub fn quick_start(host: &str, port: u16, dbname: &str) -> Self {
        let settings = Settings {
            listen_addr: vec!["127.0.0.1".to_owned()],
            unix_socket_dir: None,
            pool_mode: PoolMode::Transaction,
            auth_type: AuthType::ScramSha256,
            ..Settings::default()
        };
        let host = vec![host.to_owned()];
        let entry = |name: &str| Database {
            name: name.to_owned(),
            host: host.clone(),
            port: Ports::same(port),
            ..Database::default()
        };
        let mut databases = BTreeMap::new();
        if !dbname.is_empty() && !is_console(dbname) {
            databases.insert(dbname.to_owned(), entry(dbname));
        }
        Self {
            settings,
            databases,
            fallback: Some(entry("*")),
            ..Self::default()
        }
    }

    /// Returns the entry that serves the database of this name, or `None` for the console.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<&Database> {
        if is_console(name) {
            return None;
        }
        self.databases.get(name).or(self.fallback.as_ref())
    }

    /// Returns whether a client of this database and user may exceed the limits (`bypass_users`).
    #[must_use]
    pub fn may_bypass(&self, database: &str, user: &str) -> bool {
        // With `auth_type = any`, a client may claim any name, so names prove nothing.
        let is_proven = self.settings.auth_type != AuthType::Any;
        is_proven && !is_console(database) && self.settings.bypass_users.includes(database, user)
    }

    /// Returns the largest number of server connections of the pool of `database` and `user` (the user on the server).
    #[must_use]
    pub fn pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.pool_size);
        user.or(database.pool_size)
            .unwrap_or(self.settings.default_pool_size)
    }

    /// Returns the smallest number of server connections of a pool of `database`.
    #[must_use]
    pub fn min_pool_size(&self, database: &Database) -> u32 {
        database
            .min_pool_size
            .unwrap_or(self.settings.min_pool_size)
    }

    /// Returns the reserve of the pool of `database` and `user`.
    #[must_use]
    pub fn reserve_pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.reserve_pool_size);
        user.or(database.reserve_pool_size)
            .unwrap_or(self.settings.reserve_pool_size)
    }

    /// Returns the number of server connections that the pools of `database` may have above their size when many
    /// clients wait.
    #[must_use]
    pub fn overflow_size(&self, database: &Database) -> u32 {
        database
            .overflow_size
            .unwrap_or(self.settings.overflow_size)
    }

    /// Returns the largest number of waiting clients before a pool of `database` uses its overflow.
    #[must_use]
    pub fn overflow_waiting(&self, database: &Database) -> u32 {
        database
            .overflow_waiting
            .unwrap_or(self.settings.overflow_waiting)
    }

    /// Returns when server connections of the pool of `database` and `user` return to the pool.
    #[must_use]
    pub fn pool_mode(&self, database: &Database, user: &str) -> PoolMode {
        let user = self.users.get(user).and_then(|user| user.pool_mode);
        user.or(database.pool_mode)
            .unwrap_or(self.settings.pool_mode)
    }

    /// Returns which session state clients of `database` find on every server connection.
    #[must_use]
    pub fn session_state(&self, database: &Database) -> SessionState {
        database
            .session_state
            .unwrap_or(self.settings.session_state)
    }

    /// Returns whether clients of the pool of `database` and `user` find their session state on every server
    /// connection.
    #[must_use]
    pub fn carries_sessions(&self, database: &Database, user: &str) -> bool {
        self.pool_mode(database, user) == PoolMode::Transaction
            && self.session_state(database) == SessionState::Transparent
    }

    /// Returns how many server connections of a pool of this size pinned clients of `database` may keep before the pool
    /// gets more.
    #[must_use]
    pub fn max_pinned(&self, database: &Database, pool_size: u32) -> u32 {
        let share = database.max_pinned.unwrap_or(self.settings.max_pinned);
        share.of(pool_size)
    }

    /// Returns how long a pinned client of `database` and `user` may be idle. Zero is no limit.
    #[must_use]
    pub fn pin_timeout(&self, database: &Database, user: &str) -> Micros {
        let of_user = self.users.get(user).and_then(|user| user.pin_timeout);
        of_user
            .or(database.pin_timeout)
            .unwrap_or(self.settings.pin_timeout)
    }

    /// Returns the number of clients of a pool of `database` up to which each client keeps its server connection.
    #[must_use]
    pub fn share_after(&self, database: &Database) -> u32 {
        database.share_after.unwrap_or(self.settings.share_after)
    }

    /// Returns whether each client of `database` and `user` keeps its server connection until it disconnects.
    #[must_use]
    pub fn is_dedicated(&self, database: &Database, user: &str) -> bool {
        let of_user = self.users.get(user).and_then(|user| user.dedicated);
        of_user.unwrap_or(database.dedicated)
    }

    /// Returns how long a client of the pool of `database` and `user` may wait. Zero is no limit.
    #[must_use]
    pub fn query_wait_timeout(&self, database: &Database, user: &str) -> Micros {
        let user = self
            .users
            .get(user)
            .and_then(|user| user.query_wait_timeout);
        user.or(database.query_wait_timeout)
            .unwrap_or(self.settings.query_wait_timeout)
    }

    /// Returns how long clients of `database` wait in an outage. With zero, clients do not wait longer because of an
    /// outage.
    #[must_use]
    pub fn outage_hold(&self, database: &Database) -> Micros {
        database.outage_hold.unwrap_or(self.settings.outage_hold)
    }

    /// Returns the largest number of bytes of a request of `user` that is repeated on another host of `database` when a
    /// standby is lost before it replied. Zero: none is repeated, since the database has a single host or asks for no
    /// standby, or since clients keep their servers.
    #[must_use]
    pub fn read_repeat_buffer(&self, database: &Database, user: &str) -> u32 {
        let has_standbys = database.host.len() > 1
            && database.target_session_attrs.prefers_standbys()
            && self.pool_mode(database, user) != PoolMode::Session;
        match has_standbys {
            true => (database.read_repeat_buffer).unwrap_or(self.settings.read_repeat_buffer),
            false => 0,
        }
    }

    /// Returns an entry of `[databases]` whose reads see earlier writes, if there is one.
    #[must_use]
    pub fn database_with_read_after_write(&self) -> Option<&Database> {
        let mut databases = self.databases.values().chain(&self.fallback);
        databases.find(|one| one.read_after_write == ReadAfterWrite::Lsn)
    }

    /// Checks what `read_after_write` needs. Returns the setting that is wrong, its value, and what is expected.
    pub(crate) fn replay_problem(&self) -> Option<(&'static str, String, String)> {
        let reads = self.database_with_read_after_write()?;
        self.settings.host_check_interval.is_zero().then(|| {
            let expected = format!("above 0, since {} has read_after_write=lsn", reads.name);
            ("host_check_interval", "0".to_owned(), expected)
        })
    }

    /// Returns how long a query of `user` may run. Zero is no limit.
    #[must_use]
    pub fn query_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.query_timeout)
            .unwrap_or(self.settings.query_timeout)
    }

    /// Returns how long a client of `user` may be idle in a transaction. Zero is no limit.
    #[must_use]
    pub fn idle_transaction_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.idle_transaction_timeout)
            .unwrap_or(self.settings.idle_transaction_timeout)
    }

    /// Returns how long a transaction of `user` may last. Zero is no limit.
    #[must_use]
    pub fn transaction_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.transaction_timeout)
            .unwrap_or(self.settings.transaction_timeout)
    }

    /// Returns how long after a failed round of logins to all hosts of a database the next one begins.
    #[must_use]
    pub fn login_retry(&self, database: &Database) -> Micros {
        let retry = self.settings.server_login_retry;
        match database.target_session_attrs {
            TargetSession::Any => retry,
            _ if database.host.len() < 2 => retry,
            _ => retry.min(self.settings.target_session_retry),
        }
    }

    /// Returns how long a client of `user` may be idle. Zero is no limit.
    #[must_use]
    pub fn client_idle_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.client_idle_timeout)
            .unwrap_or(self.settings.client_idle_timeout)
    }

    /// Returns whether any limit applies to the time that a client may be idle, or keep a server connection.
    #[must_use]
    pub fn has_client_timeouts(&self) -> bool {
        let of_databases = self.databases.values().chain(&self.fallback);
        let of_databases = of_databases.filter_map(|database| database.pin_timeout);
        let global = [
            self.settings.pin_timeout,
            self.settings.query_timeout,
            self.settings.idle_transaction_timeout,
            self.settings.transaction_timeout,
            self.settings.client_idle_timeout,
        ];
        let own = |user: &UserSettings| {
            [
                user.pin_timeout,
                user.query_timeout,
                user.idle_transaction_timeout,
                user.transaction_timeout,
                user.client_idle_timeout,
            ]
        };
        let mut all = global
            .into_iter()
            .chain(of_databases)
            .chain(self.users.values().flat_map(own).flatten());
        all.any(|timeout| !timeout.is_zero())
    }

    /// Returns the time that is set for a user. Zero counts as not set, as in PgBouncer.
    fn of_user(&self, user: &str, of: fn(&UserSettings) -> Option<Micros>) -> Option<Micros> {
        let own = self.users.get(user).and_then(of);
        own.filter(|time| !time.is_zero())
    }

    /// Returns the lifetime of a server connection of `database`. With zero, a server connection is used once.
    #[must_use]
    pub fn server_lifetime(&self, database: &Database) -> Micros {
        let own = database
            .server_lifetime
            .filter(|lifetime| !lifetime.is_zero());
        own.unwrap_or(self.settings.server_lifetime)
    }

    /// Returns the largest number of server connections of `database`. Zero is no limit.
    #[must_use]
    pub fn max_db_connections(&self, database: &Database) -> u32 {
        database
            .max_db_connections
            .filter(|max| *max != 0)
            .unwrap_or(self.settings.max_db_connections)
    }

    /// Returns the largest number of clients of `database`. Zero is no limit.
    #[must_use]
    pub fn max_db_client_connections(&self, database: &Database) -> u32 {
        database
            .max_db_client_connections
            .filter(|max| *max != 0)
            .unwrap_or(self.settings.max_db_client_connections)
    }

    /// Returns the largest number of server connections of `user`. Zero is no limit.
    #[must_use]
    pub fn max_user_connections(&self, user: &str) -> u32 {
        let own = self
            .users
            .get(user)
            .and_then(|user| user.max_user_connections);
        own.filter(|max| *max != 0)
            .unwrap_or(self.settings.max_user_connections)
    }

    /// Returns the largest number of clients of `user`. Zero is no limit.
    #[must_use]
    pub fn max_user_client_connections(&self, user: &str) -> u32 {
        let own = self
            .users
            .get(user)
            .and_then(|user| user.max_user_client_connections);
        own.filter(|max| *max != 0)
            .unwrap_or(self.settings.max_user_client_connections)
    }

    /// Returns the keys whose values differ in `new`, but can only take effect by a restart.
    #[must_use]
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let differing = self.settings.differing(&new.settings).into_iter();
        differing
            .filter(|info| !info.reloadable)
            .map(|info| info.name)
            .collect()
    }

    /// Returns the notes of this newly loaded configuration that were not logged before: new notes, and those of keys
    /// whose value differs from the one in force.
    pub fn news<'a>(&'a self, running: &'a Config) -> impl Iterator<Item = &'a Note> {
        self.notes.iter().filter(|note| {
            let was_reported = running.notes.iter().any(|before| {
                (before.scope, before.key, before.text) == (note.scope, note.key, note.text)
            });
            !was_reported || self.has_changed(running, note.scope, note.key)
        })
    }

    fn has_changed(&self, running: &Config, scope: Scope, key: &str) -> bool {
        let among = |differing: Vec<&SettingInfo>| differing.iter().any(|info| info.name == key);
        match scope {
            Scope::Global => among(self.settings.differing(&running.settings)),
            Scope::Database => {
                let default = Database::default();
                let fallback = |config: &Config| config.fallback.clone().unwrap_or_default();
                among(fallback(self).differing(&fallback(running)))
                    || differs(&self.databases, &running.databases, &default, |a, b| {
                        among(a.differing(b))
                    })
            }
            Scope::User => {
                let default = UserSettings::default();
                differs(&self.users, &running.users, &default, |a, b| {
                    among(a.differing(b))
                })
            }
            Scope::Peer => differs(&self.peers, &running.peers, &Peer::default(), |a, b| {
                among(a.differing(b))
            }),
        }
    }

    /// Makes this newly loaded configuration the successor of the one in force: settings that only a restart can change
    /// keep their values.
    pub fn succeed(&mut self, running: &Config) {
        self.settings.keep_fixed(&running.settings);
    }

    /// Returns the rows of SHOW CONFIG, by key: the settings, and the share of a node (`fleet_share`), which follows
    /// from two of them.
    #[must_use]
    pub fn rows(&self) -> Vec<ConfigRow> {
        let texts = self.settings.texts().into_iter();
        let mut rows: Vec<_> = texts
            .map(|(info, value)| ConfigRow {
                key: info.name,
                value,
                default: info.default,
                changeable: info.reloadable,
            })
            .collect();
        rows.push(ConfigRow {
            key: "fleet_share",
            value: Some(self.settings.fleet_share_text()),
            default: Some("0"),
            changeable: false,
        });
        rows.sort_by_key(|row| row.key);
        rows
    }
}

/// Returns whether `changed` finds a difference between an entry and the old one, or between a new entry and `default`.
fn differs<K: Ord, V>(
    new: &BTreeMap<K, V>,
    old: &BTreeMap<K, V>,
    default: &V,
    changed: impl Fn(&V, &V) -> bool,
) -> bool {
    new.iter()
        .any(|(name, new)| changed(new, old.get(name).unwrap_or(default)))
}

impl Settings {
    /// Returns the longest message that pgweir forwards: `max_packet_size`, within sensible bounds.
    #[must_use]
    pub fn longest_message(&self) -> u32 {
        self.max_packet_size.clamp(PACKET_MIN, PACKET_MAX)
    }

    /// Returns the facility that `syslog_facility` names. An unknown name means `daemon`.
    #[must_use]
    pub fn facility(&self) -> SyslogFacility {
        SyslogFacility::parse(&self.syslog_facility).unwrap_or(SyslogFacility::Daemon)
    }
}

impl Database {
    /// Returns the database's name on the server, for a client that asked for `requested`.
    #[must_use]
    pub fn dbname_for<'a>(&'a self, requested: &'a str) -> &'a str {
        self.dbname.as_deref().unwrap_or(requested)
    }

    /// Returns the user on the server, for a client that logged in as `client`.
    #[must_use]
    pub fn user_for<'a>(&'a self, client: &'a str) -> &'a str {
        self.user.as_deref().unwrap_or(client)
    }
}
