//! The settings that only pgweir has: PgBouncer refuses a file with them.

use crate::{Scope, SettingInfo};

/// The keys of PgBouncer's section `[pgbouncer]`, each at the start of a line.
const GLOBAL: &str = include_str!("table/pgbouncer_keys.txt");

const DATABASE: &[&str] = &[
    "dbname",
    "host",
    "port",
    "user",
    "password",
    "auth_user",
    "auth_query",
    "auth_dbname",
    "pool_size",
    "min_pool_size",
    "reserve_pool_size",
    "connect_query",
    "pool_mode",
    "query_wait_timeout",
    "load_balance_hosts",
    "max_db_connections",
    "max_db_client_connections",
    "server_lifetime",
    "client_encoding",
    "datestyle",
    "timezone",
    "application_name",
];

const USER: &[&str] = &[
    "pool_size",
    "reserve_pool_size",
    "pool_mode",
    "max_user_connections",
    "max_user_client_connections",
    "query_timeout",
    "query_wait_timeout",
    "idle_transaction_timeout",
    "transaction_timeout",
    "client_idle_timeout",
];

impl SettingInfo {
    /// Returns whether PgBouncer does not know the key.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let known = match self.scope {
            Scope::Global => GLOBAL
                .lines()
                .any(|line| line.split(' ').next() == Some(self.name)),
            Scope::Database => DATABASE.contains(&self.name),
            Scope::User => USER.contains(&self.name),
            Scope::Peer => true,
        };
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn the_lists_are_of_settings_that_exist() {
        for (scope, keys) in [(Scope::Database, DATABASE), (Scope::User, USER)] {
            for key in keys {
                assert!(
                    scope.settings().iter().any(|info| info.name == *key),
                    "{key}"
                );
            }
        }
    }

    #[test]
    fn own_settings_are_noted_where_they_are_set() {
        let text = "[databases]\na = host=x share_after=3\nb = host=x share_after=4\n[users]\nu = dedicated=1\n\
                    [pgbouncer]\nworkers = 2\nmax_client_conn = 5\nread_buffer = 262144\n";
        let config = Config::load("a.ini".as_ref(), &mut |_| Ok(text.to_owned())).expect("fine");
        assert_eq!(
            config.own.into_iter().collect::<Vec<_>>(),
            [
                (Scope::Global, "read_buffer"),
                (Scope::Global, "workers"),
                (Scope::Database, "share_after"),
                (Scope::User, "dedicated"),
            ]
        );
    }
}
