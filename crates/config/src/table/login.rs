//! The keys of section `[pgbouncer]` about logins of clients, and about the console.

/// Defines the settings between two parts of the table: those about logins stand here.
macro_rules! login_settings {
    ({ $($before:tt)* } { $($after:tt)* }) => {
        $crate::table::settings! {
            $($before)*

            "How clients log in" {
                /// How clients prove their identity. `scram-sha-256`: by SCRAM. `md5`: by an MD5 hash, or by SCRAM if
                /// `auth_file` has a SCRAM secret. `plain`: by the password in clear text. `trust`: without proof, but the
                /// user must be known. `any`: without proof and with any name; each database must then have a `user`.
                /// `cert`: by the name in the client's TLS certificate. `hba`: as the rules in `auth_hba_file` say. `ldap`:
                /// by the password, which an LDAP server checks. `pam`: by the password, which PAM checks, with the service
                /// `pgbouncer` (`/etc/pam.d/pgbouncer`). With `ldap` and `pam`, users need not be in `auth_file`, and pgweir
                /// uses the client's password for servers that ask for one.
                auth_type: AuthType = "md5", reloads, now;
                /// The file with users and their secrets: lines of `"user" "secret"`, the secret in clear text,
                /// as `md5...` or as `SCRAM-SHA-256$...`.
                auth_file: Option<String>, reloads, now;
                /// The number of iterations for SCRAM secrets that pgweir makes from clear-text passwords.
                scram_iterations: u32 = "4096", reloads, now, between::<1, 2_147_483_647>;
                /// The file with the key for the salts of users who do not exist, and of users with a clear-text password. If
            /// the file does not exist, pgweir creates it with a random key and the mode 0600. Without this setting, these
            /// salts change with each start except an online restart, whereas the salts of SCRAM secrets never change. So a
            /// client that compares salts can find out which users have a SCRAM secret.
            auth_key_file: Option<String> = "", restarts, now;
            /// The number of threads that derive SCRAM keys from clear-text passwords, of clients and of servers. A
                /// derivation takes a core for a millisecond or more; logins wait for it, queries don't.
                scram_threads: u32 = "2", restarts, now, between::<1, 64>;
                /// The number of derivations that may wait for these threads. Further logins are refused. A derivation stays
                /// in the queue even if its client disconnects.
                scram_queue: u32 = "16384", restarts, now, between::<1, 100_000>;
                /// The file with rules by address, user and database, for `auth_type = hba`: lines of `local DATABASE
                /// USER METHOD`, or `host` (`hostssl`, `hostnossl`) `DATABASE USER ADDRESS METHOD`, as in PostgreSQL's
                /// `pg_hba.conf`. The first line that matches decides. DATABASE is `all`, `sameuser`, `samerole`,
                /// `replication`, USER is `all` or `+role`; both may be lists of names, `@file` and `/regular
                /// expression` (Rust's syntax, which has no back references and no lookaround). ADDRESS is `all` or an
                /// address with its mask. METHOD is `trust`, `reject`, `md5`, `scram-sha-256`, `password`, `cert`,
                /// `peer`, `ldap` or `pam`. After `cert` and `peer`, `map=NAME` may follow, after `ldap` its options,
                /// and after `pam` `pamservice=NAME` (`pgbouncer` if it is missing). A line that can't be understood
                /// makes the file unusable.
                auth_hba_file: Option<String> = "", reloads, now;
                /// The file with maps for `map=` of the methods `cert` and `peer`: lines of `MAP SYSTEM-USER USER`.
                /// SYSTEM-USER may be a `/regular expression`; then `\1` in USER stands for the match of its first group.
                /// USER may be `all` or a `/regular expression`.
                auth_ident_file: Option<String>, reloads, now;
                /// The user as whom pgweir logs in to run `auth_query`, for users who are not in `auth_file`. pgweir also
                /// looks up members of roles (`+role` in `auth_hba_file`) as this user.
                auth_user: Option<String>, reloads, now;
                /// The query that looks a user up. `$1` is the name. The result is one row with name and secret, or
                /// none. A user with a null secret exists, but can't log in by password. An optional third column is
                /// the number of seconds until the secret's VALID UNTIL, for `auth_cache_ttl`; null or infinity if
                /// there is no such limit. pgweir adds this column to the default query.
                auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin", reloads, now;
                /// The database in which `auth_query` runs. If not set, the database that the client asked for.
                auth_dbname: Option<String>, reloads, now, not_console;
                /// How long a result of `auth_query` is used for other logins. 0: run the query for each login, as PgBouncer
                /// does, so that a change (of a password, VALID UNTIL, NOLOGIN) takes effect at once. A result is not used
                /// after its VALID UNTIL (see `auth_query`). After a wrong password the query runs again, within the same
                /// login. With SCRAM, which can't start again within a login, the login fails, and the next login runs the
                /// query. RELOAD empties the cache.
                auth_cache_ttl: Micros = "0", reloads, now;
                /// The largest number of results in this cache.
                auth_cache_size: u32 = "1000", reloads, now;
                /// Options of LDAP, for `auth_type = ldap`, as PostgreSQL's `pg_hba.conf` has them: `ldapserver`,
                /// `ldapport`, `ldapscheme`, `ldaptls`, then `ldapprefix` and `ldapsuffix` to bind as the user at once,
                /// or `ldapbasedn`, `ldapscope`, `ldapbinddn`, `ldapbindpasswd`, `ldapsearchattribute` or
                /// `ldapsearchfilter` to search for the user first; or an `ldapurl`. In the HBA file, write them after
                /// the method `ldap`. Certificates of LDAP servers are checked as `ldap.conf` says (`TLS_CACERT`,
                /// `TLS_CACERTDIR`, `TLS_REQCERT`; `LDAPCONF` names the file).
                auth_ldap_options: Option<Secret>, reloads, now;
                /// The number of threads that check clients at LDAP servers, by PAM, or by the system's list of users.
                auth_threads: u32 = "4", restarts, now, between::<1, 64>;
                /// The number of checks that may wait for these threads. Further logins are refused.
                auth_queue: u32 = "1000", restarts, now, between::<1, 100_000>;
                /// After this many failed logins of a user from an address within `auth_failure_window`, the user is
                /// banned from this address for `auth_ban_time`: logins are refused, whatever the password. Before
                /// that, the error of each failed login is sent later than the one before (`auth_failure_delay`). A
                /// wrong password, an unknown user and a wrong certificate count, over TCP. Passwords that LDAP or PAM
                /// rejects don't. A login that succeeds sets the count to 0. For IPv6 the first 64 bits of the address
                /// count. A client that tries again without TLS after a failure (libpq does with `sslmode=prefer`)
                /// counts twice. SHOW BANS shows the failures, UNBAN forgets them; so does a restart. 0: no limit and
                /// no delay.
                auth_failure_limit: u32 = "0", reloads, now, between::<0, 1_000_000>;
                /// The time within which failed logins are counted together, from the first one on.
                auth_failure_window: Micros = "60", reloads, now, above_zero;
                /// With `auth_failure_limit`: the delay of the error after the first failed login. It doubles with each
                /// further failure, to at most 16 times. The error is sent within a third of a second after the delay. The
                /// connection counts as one that logs in meanwhile (`max_login_clients`). 0: no delay.
                auth_failure_delay: Micros = "1", reloads, now;
                /// How long a ban lasts.
                auth_ban_time: Micros = "600", reloads, now, above_zero;
                /// The number of pairs of address and user whose failed logins are remembered. If there are more, the
                /// oldest are forgotten, those without a ban first.
                auth_ban_size: u32 = "10000", reloads, now, between::<1, 1_000_000>;
                /// A notice that each client gets after its login.
                login_notify_message: Option<String> = "", reloads, now;
            }

            "Console" {
                /// Users who may run all commands on the console, the database `pgbouncer` or `pgweir`. With `auth_type =
                /// any`, everybody may.
                admin_users: Vec<String> = "", reloads, now;
                /// Users who may run the SHOW commands on the console.
                stats_users: Vec<String> = "", reloads, now;
            }

            "One limit for several processes" {
                /// The client URLs of an etcd cluster, separated by commas: the `fleet_nodes` processes with the same
                /// configuration share `max_server_conn` by demand, instead of in equal shares. A process sends its
                /// requests to one member of etcd, and to the next one after a failure. While no member answers, the
                /// process keeps its last share until its lease ends, and may have only `fleet_floor` servers after
                /// that. All databases must name the same single `host` and `port`. The users as whom pgweir logs in to
                /// the servers need the role `pg_read_all_stats`. An online restart counts as one more process.
                fleet_etcd: EtcdUrls, restarts, now;
                /// The name of the fleet: its keys in etcd begin with `/pgweir/NAME/`.
                fleet_name: String = "pgweir", restarts, now, fleet_name;
                /// The number of servers that each process may always have, without asking etcd. It is also the largest
                /// number of logins to servers that a process has under way. 0: half of an equal share of
                /// `max_server_conn`.
                fleet_floor: u32 = "0", restarts, now;
                /// How long a process may use more servers than `fleet_floor` without an answer of etcd, at least 1 second. Each process renews
                /// its lease three times in this time, and reads the demands of the others fifteen times.
                fleet_lease: Micros = "5", restarts, now;
                /// The address, `HOST` or `HOST:PORT`, at which the other processes reach this process to pass on cancel requests. A process
                /// with a `peer_id` writes this number and the address into etcd, so `[peers]` need not name it. The port is `listen_port` if
                /// none is given. If `fleet_address` is empty, the process uses the first IP address in `listen_addr` that other machines can
                /// reach: neither `0.0.0.0` or `::`, nor a loopback address such as `127.0.0.1`.
                fleet_address: NodeAddress = "", reloads, now;
                /// How long a console command with `ON ALL` waits for the answers of the other processes. A process that has not answered in
                /// this time is named in the result; a PAUSE, for example, may still be in progress there.
                fleet_command_timeout: Micros = "30", reloads, now, above_zero;
                /// The client URLs of an etcd cluster, separated by commas, from which pgweir reads entries of `[databases]` and `[users]`:
                /// the keys `/pgweir-config/NAME/databases/DATABASE` and `/pgweir-config/NAME/users/USER`, with `fleet_name` as NAME. The
                /// value of a key is the text that would follow `DATABASE =` or `USER =` in the ini file, or `removed`, which removes the
                /// entry of the ini file. A change in etcd takes effect at once, in all processes, if all entries are correct; otherwise no
                /// process uses any of them, and each logs why. A change by the HTTP API with `save=true` is written to etcd. Passwords are
                /// refused: they belong in `auth_file`. Needs `api_config_file`, which keeps the last correct entries for a start without
                /// etcd. `fleet_etcd_auth_file` and the settings `fleet_etcd_tls_...` apply to this etcd, too.
                config_etcd: EtcdUrls, restarts, now;
                /// How long a request for `config_etcd` may take, and the pause before the next try after a failure.
                config_etcd_timeout: Micros = "5", restarts, now, above_zero;
                /// A PEM file with the certificate authorities of etcd, for URLs with `https`.
                fleet_etcd_tls_ca_file: Option<String>, restarts, now;
                /// A PEM file with the client certificate for etcd; needs `fleet_etcd_tls_key_file`.
                fleet_etcd_tls_cert_file: Option<String>, restarts, now;
                /// The PEM file with the key of the client certificate for etcd.
                fleet_etcd_tls_key_file: Option<String>, restarts, now;
                /// A file with the line `USER:PASSWORD`, by which a process authenticates to etcd.
                fleet_etcd_auth_file: Option<String>, restarts, now;
            }

            $($after)*
        }
    };
}

pub(super) use login_settings;
