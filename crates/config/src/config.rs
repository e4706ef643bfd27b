//! A checked configuration, and the values that hold for one database and one user.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    AuthType, Database, Micros, Note, Peer, Place, PoolMode, Scope, SessionState, SettingInfo,
    Settings, SyslogFacility, UserSettings,
    check::{PACKET_MAX, PACKET_MIN},
    value::Value,
};

/// Names of databases that belong to the console.
pub const RESERVED_DATABASES: [&str; 2] = ["pgbouncer", "pgweir"];

/// Is this the console's name?
#[must_use]
pub fn is_console(database: &str) -> bool {
    RESERVED_DATABASES.contains(&database)
}

/// A checked configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Section `[pgbouncer]`.
    pub settings: Settings,
    /// Section `[databases]` by name, without `*`.
    pub databases: BTreeMap<String, Database>,
    /// The entry `*` of `[databases]`: serves all names that have no entry.
    pub fallback: Option<Database>,
    /// Section `[users]` by name.
    pub users: BTreeMap<String, UserSettings>,
    /// Section `[peers]` by number.
    pub peers: BTreeMap<u32, Peer>,
    /// What the operator should be told of this configuration once, in the log.
    pub notes: Vec<Note>,
    /// The settings of pgweir's own that stand in the file: PgBouncer would refuse it.
    pub own: BTreeSet<(Scope, &'static str)>,
    /// Where the keys of `[pgbouncer]` stand that were set in a file: what a value leads to (a file that
    /// can't be read, an address that can't be listened on) shows later.
    pub places: BTreeMap<&'static str, Place>,
}

/// A row of SHOW CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRow {
    /// The setting.
    pub key: &'static str,
    /// Its value; `None` is NULL.
    pub value: Option<String>,
    /// Its default; `None` is NULL.
    pub default: Option<&'static str>,
    /// Can it be changed without a restart?
    pub changeable: bool,
}

impl Config {
    /// A configuration for one server without a file: listens on 127.0.0.1:6432 in transaction
    /// mode, clients log in by SCRAM. `host` may be a name, an address, or a directory (`/...`) or
    /// abstract name (`@...`) of a Unix socket. Database `dbname` and, by `*`, all others of that
    /// server can be reached; an empty `dbname` leaves only `*`.
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
            port,
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

    /// The entry that serves the database of this name; none for the console.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<&Database> {
        if is_console(name) {
            return None;
        }
        self.databases.get(name).or(self.fallback.as_ref())
    }

    /// May a client of this database and user get past the limits (`bypass_users`)?
    #[must_use]
    pub fn may_bypass(&self, database: &str, user: &str) -> bool {
        // Where anybody may claim any name, names say nothing.
        let is_proven = self.settings.auth_type != AuthType::Any;
        is_proven && !is_console(database) && self.settings.bypass_users.includes(database, user)
    }

    /// The most servers of the pool of `database` and `user` (the one who logs in to the server).
    #[must_use]
    pub fn pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.pool_size);
        user.or(database.pool_size)
            .unwrap_or(self.settings.default_pool_size)
    }

    /// The fewest servers of a pool of `database`.
    #[must_use]
    pub fn min_pool_size(&self, database: &Database) -> u32 {
        database
            .min_pool_size
            .unwrap_or(self.settings.min_pool_size)
    }

    /// The reserve of the pool of `database` and `user`.
    #[must_use]
    pub fn reserve_pool_size(&self, database: &Database, user: &str) -> u32 {
        let user = self.users.get(user).and_then(|user| user.reserve_pool_size);
        user.or(database.reserve_pool_size)
            .unwrap_or(self.settings.reserve_pool_size)
    }

    /// What the pools of `database` may have above their size, and when.
    #[must_use]
    pub fn overflow_size(&self, database: &Database) -> u32 {
        database
            .overflow_size
            .unwrap_or(self.settings.overflow_size)
    }

    /// The most clients that wait before a pool of `database` uses its overflow.
    #[must_use]
    pub fn overflow_waiting(&self, database: &Database) -> u32 {
        database
            .overflow_waiting
            .unwrap_or(self.settings.overflow_waiting)
    }

    /// When servers of the pool of `database` and `user` go back.
    #[must_use]
    pub fn pool_mode(&self, database: &Database, user: &str) -> PoolMode {
        let user = self.users.get(user).and_then(|user| user.pool_mode);
        user.or(database.pool_mode)
            .unwrap_or(self.settings.pool_mode)
    }

    /// What of a session the clients of `database` find on every server.
    #[must_use]
    pub fn session_state(&self, database: &Database) -> SessionState {
        database
            .session_state
            .unwrap_or(self.settings.session_state)
    }

    /// Do clients of the pool of `database` and `user` find their sessions on every server?
    #[must_use]
    pub fn carries_sessions(&self, database: &Database, user: &str) -> bool {
        self.pool_mode(database, user) == PoolMode::Transaction
            && self.session_state(database) == SessionState::Transparent
    }

    /// The most servers of a pool of this size that clients of `database` may keep before it gets more.
    #[must_use]
    pub fn max_pinned(&self, database: &Database, pool_size: u32) -> u32 {
        let share = database.max_pinned.unwrap_or(self.settings.max_pinned);
        share.of(pool_size)
    }

    /// How long a pinned client of `database` and `user` may be idle; zero is no limit.
    #[must_use]
    pub fn pin_timeout(&self, database: &Database, user: &str) -> Micros {
        let of_user = self.users.get(user).and_then(|user| user.pin_timeout);
        of_user
            .or(database.pin_timeout)
            .unwrap_or(self.settings.pin_timeout)
    }

    /// Up to so many clients of a pool of `database`, each keeps its server.
    #[must_use]
    pub fn share_after(&self, database: &Database) -> u32 {
        database.share_after.unwrap_or(self.settings.share_after)
    }

    /// Does each client of `database` and `user` keep its server until it leaves?
    #[must_use]
    pub fn is_dedicated(&self, database: &Database, user: &str) -> bool {
        let of_user = self.users.get(user).and_then(|user| user.dedicated);
        of_user.unwrap_or(database.dedicated)
    }

    /// How long a client of the pool of `database` and `user` may wait; zero is no limit.
    #[must_use]
    pub fn query_wait_timeout(&self, database: &Database, user: &str) -> Micros {
        let user = self
            .users
            .get(user)
            .and_then(|user| user.query_wait_timeout);
        user.or(database.query_wait_timeout)
            .unwrap_or(self.settings.query_wait_timeout)
    }

    /// How long a query of `user` may run; zero is no limit.
    #[must_use]
    pub fn query_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.query_timeout)
            .unwrap_or(self.settings.query_timeout)
    }

    /// How long a client of `user` may be idle in a transaction; zero is no limit.
    #[must_use]
    pub fn idle_transaction_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.idle_transaction_timeout)
            .unwrap_or(self.settings.idle_transaction_timeout)
    }

    /// How long a transaction of `user` may last; zero is no limit.
    #[must_use]
    pub fn transaction_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.transaction_timeout)
            .unwrap_or(self.settings.transaction_timeout)
    }

    /// How long a client of `user` may be idle; zero is no limit.
    #[must_use]
    pub fn client_idle_timeout(&self, user: &str) -> Micros {
        self.of_user(user, |own| own.client_idle_timeout)
            .unwrap_or(self.settings.client_idle_timeout)
    }

    /// Is there any limit to how long a client may be idle, or keep a server?
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

    /// A user's own time, if there is one; zero is none, as in PgBouncer.
    fn of_user(&self, user: &str, of: fn(&UserSettings) -> Option<Micros>) -> Option<Micros> {
        let own = self.users.get(user).and_then(of);
        own.filter(|time| !time.is_zero())
    }

    /// How long a server of `database` is used; zero is once.
    #[must_use]
    pub fn server_lifetime(&self, database: &Database) -> Micros {
        let own = database
            .server_lifetime
            .filter(|lifetime| !lifetime.is_zero());
        own.unwrap_or(self.settings.server_lifetime)
    }

    /// The most servers of `database`; zero is no limit.
    #[must_use]
    pub fn max_db_connections(&self, database: &Database) -> u32 {
        database
            .max_db_connections
            .filter(|max| *max != 0)
            .unwrap_or(self.settings.max_db_connections)
    }

    /// The most clients of `database`; zero is no limit.
    #[must_use]
    pub fn max_db_client_connections(&self, database: &Database) -> u32 {
        database
            .max_db_client_connections
            .filter(|max| *max != 0)
            .unwrap_or(self.settings.max_db_client_connections)
    }

    /// The most servers of `user`; zero is no limit.
    #[must_use]
    pub fn max_user_connections(&self, user: &str) -> u32 {
        let own = self
            .users
            .get(user)
            .and_then(|user| user.max_user_connections);
        own.filter(|max| *max != 0)
            .unwrap_or(self.settings.max_user_connections)
    }

    /// The most clients of `user`; zero is no limit.
    #[must_use]
    pub fn max_user_client_connections(&self, user: &str) -> u32 {
        let own = self
            .users
            .get(user)
            .and_then(|user| user.max_user_client_connections);
        own.filter(|max| *max != 0)
            .unwrap_or(self.settings.max_user_client_connections)
    }

    /// The keys whose values in `new` differ, but can only take effect by a restart.
    #[must_use]
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let differing = self.settings.differing(&new.settings).into_iter();
        differing
            .filter(|info| !info.reloadable)
            .map(|info| info.name)
            .collect()
    }

    /// The notes of this newly loaded configuration that the operator has not been told already: new
    /// ones, and those of keys with another value than in the one in force.
    pub fn news<'a>(&'a self, running: &'a Config) -> impl Iterator<Item = &'a Note> {
        self.notes.iter().filter(|note| {
            let told = running.notes.iter().any(|before| {
                (before.scope, before.key, before.text) == (note.scope, note.key, note.text)
            });
            !told || self.has_changed(running, note.scope, note.key)
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

    /// Makes this newly loaded configuration the successor of the one in force: what can only change
    /// by a restart stays as it is.
    pub fn succeed(&mut self, running: &Config) {
        self.settings.keep_fixed(&running.settings);
    }

    /// The rows of SHOW CONFIG, by key.
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
        rows.sort_by_key(|row| row.key);
        rows
    }
}

/// Is there an entry that `changed` tells from the old one, or from `default` if it is new?
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
    /// The longest message that is passed on: `max_packet_size`, within what makes sense.
    #[must_use]
    pub fn longest_message(&self) -> u32 {
        self.max_packet_size.clamp(PACKET_MIN, PACKET_MAX)
    }

    /// The part of the system that `syslog_facility` names; a name that stands for none is `daemon`.
    #[must_use]
    pub fn facility(&self) -> SyslogFacility {
        SyslogFacility::parse(&self.syslog_facility).unwrap_or(SyslogFacility::Daemon)
    }
}

impl Database {
    /// The database's name on the server, for a client that asked for `requested`.
    #[must_use]
    pub fn dbname_for<'a>(&'a self, requested: &'a str) -> &'a str {
        self.dbname.as_deref().unwrap_or(requested)
    }

    /// Who logs in to the server, for a client who is `client`.
    #[must_use]
    pub fn user_for<'a>(&'a self, client: &'a str) -> &'a str {
        self.user.as_deref().unwrap_or(client)
    }
}
