//! The keys of section `[pgbouncer]`.

use super::settings;
use crate::{
    AuthType, BypassUsers, FairWindow, FileMode, HandoverClean, HttpListen, HttpTls, Micros,
    PoolMode, Secret, SessionState, Share, SslMode, TlsNegotiation, Unclean,
    check::{
        above_zero, allow_prefers, between, extension_names, facility, not_console, packet_size,
        port_to_listen_on,
    },
};

settings! {
    /// Section `[pgbouncer]`: what holds for the whole process.
    pub struct Settings(Global)

    "Where clients connect" {
        /// Addresses or host names to listen on for TCP, separated by commas; `*` is all addresses, of
        /// IPv4 and IPv6. If empty, there are only Unix sockets.
        listen_addr: Vec<String> = "", restarts, now;
        /// The port to listen on, also in the names of Unix sockets. 0: one that the system chooses, for each
        /// address another.
        listen_port: u16 = "6432", restarts, now, port_to_listen_on;
        /// How many new connections the kernel may queue for each listening socket.
        listen_backlog: i32 = "128", restarts, now;
        /// The directory of the Unix socket to listen on, and of the sockets of databases without
        /// `host`. Starts with `@` for an abstract socket. Empty: no Unix sockets.
        unix_socket_dir: Option<String> = "/tmp", restarts, now;
        /// Permissions of the Unix socket; a leading 0 means octal.
        unix_socket_mode: FileMode = "0777", restarts, now;
        /// Group of the Unix socket, by name or number.
        unix_socket_group: Option<String> = "", restarts, now;
        /// Let several processes listen on the same TCP port; each needs a `unix_socket_dir` of its own.
        /// One process uses all cores, so that this is only for replacing or isolating processes.
        so_reuseport: bool = "0", restarts, now;
        /// Have the kernel report a TCP connection only once its first bytes are there.
        tcp_defer_accept: bool = "1", reloads, now;
    }

    "Pools and limits" {
        /// When a server goes back to its pool: when its client leaves (`session`), when the
        /// transaction ends (`transaction`), or when the statement ends (`statement`).
        pool_mode: PoolMode = "session", reloads, now;
        /// The most clients at once. Each takes a file descriptor.
        max_client_conn: u32 = "100", reloads, now;
        /// The most servers of each pool. A pool is one database and one user. 0: no limit.
        default_pool_size: u32 = "20", reloads, now;
        /// Keep at least so many servers in each pool that has clients or a forced user, as far as
        /// `pool_size` and the caps allow.
        min_pool_size: u32 = "0", reloads, now;
        /// So many more servers in a pool whose clients wait longer than `reserve_pool_timeout`.
        reserve_pool_size: u32 = "0", reloads, now;
        /// After this wait a client may use the reserve (`reserve_pool_size`). 0: never.
        reserve_pool_timeout: Micros = "5", reloads, now;
        /// So many more servers in a pool in which more than `overflow_waiting` clients wait, at once. As
        /// servers of the reserve, they go when they have been idle for `server_idle_timeout`.
        overflow_size: u32 = "0", reloads, now;
        /// The most clients that wait in a pool before it opens servers of its overflow (`overflow_size`).
        overflow_waiting: u32 = "10", reloads, now;
        /// The most servers of each database, over all users. 0: no limit. When it is reached, the server
        /// that has been idle longest is closed for a pool in need.
        max_db_connections: u32 = "0", reloads, now;
        /// The most clients of each database. 0: no limit.
        max_db_client_connections: u32 = "0", reloads, now;
        /// The most servers of each user, over all databases. 0: no limit. When it is reached, the server
        /// that has been idle longest is closed for a pool in need.
        max_user_connections: u32 = "0", reloads, now;
        /// The most clients of each user. 0: no limit.
        max_user_client_connections: u32 = "0", reloads, now;
        /// The most servers of the process, over all databases and users. 0: no limit. When it is reached,
        /// idle servers of pools that have more than their share of it are closed for pools in need, and
        /// any that have been idle for half a second; a pool below its share that has waited for half a
        /// second also gets the next server that comes free above one. Shares are by the databases'
        /// `weight`, among the pools that have servers or want some.
        max_server_conn: u32 = "0", reloads, now;
        /// Clients that get a server of their own as they log in, outside of all pools, for as long as they
        /// stay: for administrators when a pool is exhausted. A list of `db/user`, `db/*` and `*/user`, by
        /// the names that clients log in with. No limit on clients or servers holds for them
        /// (`max_client_conn`, `pool_size`, the caps) but `bypass_max`, and no timeout of queries and
        /// transactions. PAUSE and DISABLE do. PostgreSQL needs room for them too: see its
        /// `superuser_reserved_connections`. Replication is not meant, nor is anybody under `auth_type = any`.
        bypass_users: BypassUsers = "", reloads, now;
        /// The most clients at once with such a server. Others of `bypass_users` are served like
        /// everybody, and told so.
        bypass_max: u32 = "3", reloads, now;
        /// Use idle servers in turn, rather than the one that was used last. Each worker does so with the
        /// servers that it has.
        server_round_robin: bool = "0", reloads, now;
        /// Forget databases that came from `*` when unused for so long.
        autodb_idle_timeout: Micros = "3600", reloads, now;
        /// Forget pools that had neither client nor server for so long. 0: never.
        pool_idle_timeout: Micros = "0", reloads, now;
        /// How many server connections of one pool may be logging in at once. Until a login has gone
        /// well, and after one that has not, it is one.
        server_connect_limit: u32 = "4", reloads, now, between::<1, 10_000>;
        /// How much younger than the oldest waiting client one may be and yet be served before it,
        /// because a server came free on its own worker. `auto`: the larger of 2 ms and a quarter of
        /// the oldest's wait. 0: strict order, which costs time when there is more than one worker.
        fair_window: FairWindow = "auto", reloads, now;
    }

    "What a session keeps" {
        /// What of a session clients find on every server, in `transaction` mode. `transparent`: as if
        /// each had a server of its own, as far as this version goes. `off`: what PgBouncer follows, as it
        /// does: a prepared statement's name that is unknown, or taken, ends the connection.
        session_state: SessionState = "transparent", reloads, now;
        /// With `session_state = transparent`: how often to look for functions and relations that may change
        /// a session in ways that can't be seen in a query's text. A change by clients of this process is
        /// noticed when it is sent, through whichever entry; one that was made elsewhere, after this time:
        /// until then, what a new trigger sets can be left to the next client of the server. The
        /// same holds for ALTER ROLE SET and ALTER DATABASE SET, for clients that log in later.
        /// 0: never look; then each transaction is followed by a look at the session.
        catalog_check_interval: Micros = "10", reloads, now;
        /// Parameters to follow besides `client_encoding`, `DateStyle`, `TimeZone`,
        /// `standard_conforming_strings` and `application_name`: each client finds its own value on
        /// every server. Only parameters that the server reports can be followed.
        track_extra_parameters: Vec<String> = "IntervalStyle", restarts, now;
        /// Parameters in a client's startup packet that are to be ignored. Others that cannot be
        /// followed are refused. `options` here ignores unknown parameters inside of `options`.
        ignore_startup_parameters: Vec<String> = "", reloads, now;
        /// A query that cleans a server before another client gets it, in `session` mode. Empty: none.
        server_reset_query: String = "DISCARD ALL", reloads, now;
        /// Run `server_reset_query` in the other modes too.
        server_reset_query_always: bool = "0", reloads, now;
        /// How many of the clients' prepared statements (those of the protocol, not of SQL's PREPARE)
        /// to keep on each server, in the modes other than `session`. One that is needed on a server
        /// that lacks it is made there first; those that were not used for longest are closed. 0: do
        /// not follow prepared statements. A change from or to 0, like one of `pool_mode` from or to
        /// `session`, makes connected clients lose the statements that they have.
        max_prepared_statements: u32 = "200", reloads, now;
        /// The most bytes that the prepared statements of one client may take: their texts, and 128
        /// bytes for each. Texts that clients share are stored once, and still count for each of
        /// them. More is refused (SQLSTATE 53400).
        max_client_prepared_bytes: u32 = "16777216", reloads, now;
        /// The most bytes of parameters, names and values, that a client's session takes from server to
        /// server. A client that sets more keeps its server as long as it does. Only with
        /// `session_state = transparent`.
        max_client_settings_bytes: u32 = "65536" in "bytes", reloads, now;
        /// The most listeners of each pool: connections on which LISTEN is done for all clients of the pool
        /// that use it, one for each `client_encoding` among them. They count against
        /// `max_db_connections`, `max_user_connections` and `max_server_conn`, not against `pool_size`. A
        /// client that none can take keeps the server on which it said LISTEN.
        max_listeners: u32 = "4", reloads, now;
        /// The most channels of each listener; a client that needs another one keeps its server.
        max_listen_channels: u32 = "10000", reloads, now;
        /// The most channels of each client that a listener takes; beyond that it keeps its server.
        max_client_channels: u32 = "1000", reloads, now;
        /// Close a listener that nobody has needed for so long.
        listener_idle_timeout: Micros = "10", reloads, now;
        /// Give up a listener that has not answered for so long, and end its clients (SQLSTATE 57P01). 0:
        /// never.
        listener_timeout: Micros = "60", reloads, now;
        /// The most bytes of notifications that wait for one client, because it is in a transaction or
        /// does not read. A client with more is ended (SQLSTATE 53400).
        notification_backlog: u32 = "1048576", reloads, now, between::<16_384, 2_147_483_647>;
        /// Add the client's address to the `application_name` that it connects with.
        application_name_add_host: bool = "0", reloads, now;
        /// Refuse the simple query protocol, in which one message may hold several statements: what an SQL
        /// injection needs. The console is not affected.
        disable_pqexec: bool = "0", restarts, now;
    }

    "Clients that keep a server" {
        /// In `transaction` mode with `session_state = transparent`, a client keeps its server for as long
        /// as its session holds what can't be moved to another one, such as a temporary table: it is
        /// pinned (SHOW PINS). So many servers of each pool, or so much of `pool_size`, may be kept like
        /// that. More may be (a client can't do without its session), but for each beyond this the pool
        /// may have one more server, up to `pinned_overflow`, so that some are left for others.
        max_pinned: Share = "75%", reloads, now;
        /// The most servers that a pool may have above its size because of `max_pinned`. The caps hold.
        pinned_overflow: u32 = "5", reloads, now;
        /// Disconnect clients that have been pinned and idle, outside of a transaction, for longer than this.
        /// 0: no limit.
        pin_timeout: Micros = "0", reloads, now;
        /// Parameters that pin a client when it changes them, rather than to be set again on each server.
        pin_parameters: Vec<String> = "", reloads, now;
        /// Extensions that pin a client for good when it calls one of their functions, or one in a language of
        /// theirs, also by way of views and other functions: those that keep something in the session that
        /// nothing tells. A change counts from the next reading of a database's catalog on.
        pin_extensions: Vec<String> = "", reloads, now, extension_names;
        /// Functions that keep nothing in the session, whatever pgweir reads of them: names without a schema. A
        /// change counts from the next reading of a database's catalog on. SHOW CATALOG names functions that
        /// make statements opaque.
        certified_functions: Vec<String> = "", reloads, now;
        /// What becomes of a server on which statements ran that pgweir can't judge, in a database whose functions
        /// may keep what no clean takes away (those in languages like PL/Perl and PL/Python, those in C that pgweir
        /// does not know, dblink; SHOW CATALOG names one). `close`: it is closed. `ignore`: it is cleaned as far as
        /// that goes, and what those functions keep is left to the next client.
        unclean: Unclean = "close", reloads, now;
        /// As long as a pool has no more clients than this, each keeps the server that it has got, as far
        /// as there are enough. 0: servers go back at the end of each transaction.
        share_after: u32 = "0", reloads, now;
        /// In `transaction` mode with `session_state = transparent`, a server on which a client may have changed its
        /// session stays with that client until another client needs a server, or for at most this long. Only then
        /// is the session looked at and cleaned. After texts that do nothing but set parameters, it stays for at
        /// most 50 ms.
        settle_after: Micros = "0.2", reloads, now;
        /// When a server is cleaned before another client gets it: `auto`, when it is known or suspected to
        /// hold something of a session; `always`, each time that it goes back, at the cost of a round trip
        /// and of its prepared statements.
        handover_clean: HandoverClean = "auto", reloads, now;
        /// Log which client is pinned, and why: each worker writes one line for each reason and
        /// pool in ten seconds.
        log_pins: bool = "1", reloads, now;
    }

    "How clients log in" {
        /// How clients prove who they are. `scram-sha-256`: by SCRAM. `md5`: by an MD5 hash, or by SCRAM
        /// where `auth_file` has a SCRAM secret. `plain`: by the password in clear text. `trust`: no
        /// proof, but the user must be known. `any`: no proof and any name; each database must then
        /// have a `user`. `cert`: by the name in the client's TLS certificate. `hba`: as the rules in
        /// `auth_hba_file` say. `ldap`: by the password, which an LDAP server
        /// checks. `pam`: by the password, which PAM checks as its service `pgbouncer` says
        /// (`/etc/pam.d/pgbouncer`). With `ldap` and `pam`, users need not be in `auth_file`, and servers that
        /// ask for a password get the client's.
        auth_type: AuthType = "md5", reloads, now;
        /// The file with users and their secrets: lines of `"user" "secret"`, the secret in clear text,
        /// as `md5...` or as `SCRAM-SHA-256$...`.
        auth_file: Option<String>, reloads, now;
        /// Iterations of SCRAM secrets that are made from clear-text passwords.
        scram_iterations: u32 = "4096", reloads, now, between::<1, 2_147_483_647>;
        /// So many threads derive the keys of SCRAM from passwords in clear text, of clients and of servers: a
        /// millisecond or more of a core each, for which logins wait and queries don't.
        scram_threads: u32 = "2", restarts, now, between::<1, 64>;
        /// So many derivations may wait for them; whose login would be one more is refused. A client that leaves
        /// does not take its own along.
        scram_queue: u32 = "16384", restarts, now, between::<1, 100_000>;
        /// The file with rules by address, user and database, for `auth_type = hba`: lines of `local
        /// DATABASE USER METHOD`, or `host` (`hostssl`, `hostnossl`) `DATABASE USER ADDRESS METHOD`, as in
        /// PostgreSQL's `pg_hba.conf`. The first that fits decides. DATABASE is `all`, `sameuser`,
        /// `samerole`, `replication`, USER is `all` or `+role`; both may be lists of names, `@file` and
        /// `/regular expression` (Rust's syntax, which has no back references and no lookaround). ADDRESS
        /// is `all` or an address with its mask. METHOD is `trust`, `reject`, `md5`, `scram-sha-256`,
        /// `password`, `cert` or `peer`, which may have `map=NAME`, `ldap` with its options, or `pam`, which may have
        /// `pamservice=NAME` (`pgbouncer` if not). A line that can't be understood makes the file unusable.
        auth_hba_file: Option<String> = "", reloads, now;
        /// The file with maps for `map=` of the methods `cert` and `peer`: lines of `MAP SYSTEM-USER USER`. The
        /// system user may be a `/regular expression`, and `\1` in the user is then what its first group
        /// has matched; the user may be `all` or a `/regular expression`.
        auth_ident_file: Option<String>, reloads, now;
        /// Look up users who are not in `auth_file` in the database, logged in as this user. Members of
        /// roles (`+role` in `auth_hba_file`) are looked up like that too.
        auth_user: Option<String>, reloads, now;
        /// The query that looks a user up: `$1` is the name; the answer is one row of name and secret, or none.
        /// A user whose secret is null exists, and has no password that is right. A third column, if there is
        /// one, is the number of seconds until the secret's VALID UNTIL, for `auth_cache_ttl`; null or infinity
        /// if it has no end. The default query is asked with it.
        auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin", reloads, now;
        /// The database that users are looked up in. If not set, the one that the client asked for.
        auth_dbname: Option<String>, reloads, now, not_console;
        /// How long an answer of `auth_query` is good for other logins too; 0 asks each time, as PgBouncer does,
        /// so that a change (of a password, VALID UNTIL, NOLOGIN) counts at once. An answer with an end (see
        /// `auth_query`) is not kept beyond it. With a wrong password it is asked again within the login; by SCRAM,
        /// which can't begin anew, the login fails and the next one asks again. RELOAD forgets all answers.
        auth_cache_ttl: Micros = "0", reloads, now;
        /// At most so many answers are kept.
        auth_cache_size: u32 = "1000", reloads, now;
        /// Options of LDAP, for `auth_type = ldap`, as PostgreSQL's `pg_hba.conf` has them: `ldapserver`, `ldapport`,
        /// `ldapscheme`, `ldaptls`, then `ldapprefix` and `ldapsuffix` to bind as the user at once, or
        /// `ldapbasedn`, `ldapscope`, `ldapbinddn`, `ldapbindpasswd`, `ldapsearchattribute` or
        /// `ldapsearchfilter` to search for the user first; or an `ldapurl`. In the HBA file they stand
        /// behind the method `ldap`. Certificates of LDAP servers are checked as `ldap.conf` says
        /// (`TLS_CACERT`, `TLS_CACERTDIR`, `TLS_REQCERT`; `LDAPCONF` names the file).
        auth_ldap_options: Option<Secret>, reloads, now;
        /// So many threads ask LDAP servers, PAM and the system about clients that log in.
        auth_threads: u32 = "4", restarts, now, between::<1, 64>;
        /// So many questions may wait for them; whose login would be one more is refused.
        auth_queue: u32 = "1000", restarts, now, between::<1, 100_000>;
        /// A notice to each client after its login.
        login_notify_message: Option<String> = "", reloads, now;
    }

    "Console" {
        /// Users who may do everything on the console, the database `pgbouncer` or `pgweir`. With
        /// `auth_type = any` it is everybody.
        admin_users: Vec<String> = "", reloads, now;
        /// Users who may only look: the SHOW commands.
        stats_users: Vec<String> = "", reloads, now;
    }

    "Timeouts" {
        /// A client must have logged in within this time, also if it has to wait for the first server of its
        /// pool. 0: no limit.
        client_login_timeout: Micros = "60", reloads, now;
        /// How long a query may wait for a server before its client is disconnected. 0: no limit.
        query_wait_timeout: Micros = "120", reloads, now;
        /// A client that has waited this long for a server gets a notice that says why: what keeps the
        /// pool from opening one more, and who has those that there are. The error of
        /// `query_wait_timeout` and the log say so too. 0: no notice.
        query_wait_notify: Micros = "5", reloads, now;
        /// How long a cancel request may wait to be passed on. 0: no limit.
        cancel_wait_timeout: Micros = "10", reloads, now;
        /// A server connection must be open and logged in within this time. 0: no limit.
        server_connect_timeout: Micros = "15", reloads, now;
        /// After a failed login to a server, wait so long before the next try. As long as a pool has
        /// never had a server, clients that log in meanwhile get the error at once, and one that waits for
        /// the first try gets it unless the next try comes within `server_connect_timeout` of its login; all
        /// others wait, up to `query_wait_timeout`. RELOAD and RECONNECT let the next try come at once. If PostgreSQL itself refuses the login and the pool has no server
        /// left, clients that log in get PostgreSQL's words at once, and so do all that wait if the user may not log in or
        /// the database does not exist.
        server_login_retry: Micros = "15", reloads, now;
        /// Close servers that were idle for so long. 0: never.
        server_idle_timeout: Micros = "600", reloads, now;
        /// Replace servers that have been connected for longer than this (up to a tenth less, so that
        /// they don't all go at once), once they are free. Where the pool is in use and below its size,
        /// the successor is opened first. 0: use each server once.
        server_lifetime: Micros = "3600", reloads, now;
        /// Lend a server without a check if it was in use so recently. 0: check always.
        server_check_delay: Micros = "30", reloads, now;
        /// The query that checks a server before it is lent; `<empty>` is the empty query. Empty: no
        /// check. A server that fails, or does not answer within `server_connect_timeout`, is closed,
        /// and the client gets another one.
        server_check_query: String = "<empty>", reloads, now;
        /// In `session` mode, close servers that are to be replaced at the end of a transaction, not of
        /// the session.
        server_fast_close: bool = "0", reloads, now;
        /// Cancel queries that run longer than this, and disconnect the server and the client. The time that
        /// the client takes to send its request does not count. 0: no limit.
        query_timeout: Micros = "0", reloads, now;
        /// Disconnect clients that are idle for longer than this, and have no server. 0: no limit.
        client_idle_timeout: Micros = "0", reloads, now;
        /// Disconnect clients that are idle in a transaction for longer than this, and their server. 0: no
        /// limit.
        idle_transaction_timeout: Micros = "0", reloads, now;
        /// Disconnect clients whose transaction lasts longer than this, and their server. 0: no limit.
        transaction_timeout: Micros = "0", reloads, now;
        /// In an online restart, end the clients that have not moved to the new process after this time: those in a
        /// transaction, with a server of their own, or with a connection that can't move. 0: wait for them as long as
        /// they stay.
        takeover_timeout: Micros = "600", reloads, now;
        /// After SUSPEND, close connections that are in the middle of something for longer than this. 0:
        /// never.
        suspend_timeout: Micros = "10", reloads, now;
        /// How long the unsent bytes of a connection that we closed are kept.
        close_flush_timeout: Micros = "5", reloads, now;
        /// When a client leaves in mid-query, read the server's answer to its end for so long, to be
        /// able to use the server again; then close it.
        abandoned_query_timeout: Micros = "5", reloads, now;
    }

    "TLS with clients" {
        /// Whether clients that come by TCP may or must use TLS. `disable`: they can't. `allow`, `prefer`: they
        /// may. `require`: they must. `verify-ca`, `verify-full`: they must, and show a certificate that
        /// `client_tls_ca_file` vouches for. All but `disable` need a key and a certificate. Clients may also
        /// begin with TLS at once (libpq's `sslnegotiation=direct`, of PostgreSQL 17). Over a Unix socket there
        /// is no TLS.
        client_tls_sslmode: SslMode = "disable", reloads, now;
        /// Our private key, in PEM, without a password.
        client_tls_key_file: Option<String> = "", reloads, now;
        /// Our certificate, and those between it and its authority, in PEM. Read again at RELOAD; nobody is
        /// dropped for it.
        client_tls_cert_file: Option<String> = "", reloads, now;
        /// Certificates of those who may sign clients' certificates, in PEM. With it, clients are asked for
        /// a certificate, and one that is shown must be good, whatever the mode.
        client_tls_ca_file: Option<String> = "", reloads, now;
        /// Versions, separated by commas: `tlsv1.2`, `tlsv1.3`; `secure`, `default` and `all` are both; `!` before
        /// a name takes it out. `tlsv1.0` and `tlsv1.1` are taken, but never spoken.
        client_tls_protocols: String = "secure", reloads, now;
        /// Ciphers of TLS 1.2, in OpenSSL's syntax. There are those of ECDHE with AES-GCM and CHACHA20; what
        /// means others is passed over.
        client_tls_ciphers: String = "default", reloads, now;
        /// Ciphers of TLS 1.3, by OpenSSL's names, separated by colons. Not set: all.
        client_tls13_ciphers: Option<String>, reloads, now;
        /// Groups of the key exchange, by OpenSSL's names, separated by colons, the preferred one first:
        /// `X25519`, `prime256v1`, `secp384r1`, `X25519MLKEM768`; `auto` is all of them.
        client_tls_ecdhcurve: String = "auto", reloads, now;
        /// Group of the Diffie-Hellman key exchange: there is only the one over elliptic curves.
        client_tls_dheparams: String = "auto", reloads, never;
    }

    "TLS with servers" {
        /// Whether servers are asked for TLS (not over Unix sockets). `disable`: no. `allow`, `prefer`: if the
        /// server says no, the login goes on without. `require`: TLS or nothing. `verify-ca`: and its certificate
        /// must be one that `server_tls_ca_file` vouches for. `verify-full`: and it must be for the host's name.
        /// When this or another setting of this group changes, server connections are replaced.
        server_tls_sslmode: SslMode = "prefer", reloads, now, allow_prefers;
        /// How TLS begins: `postgres` asks the server first; `direct` doesn't, which saves a round trip, and needs
        /// PostgreSQL 17 and `server_tls_sslmode` = `require` or more.
        server_tls_negotiation: TlsNegotiation = "postgres", reloads, now;
        /// Our private key, for servers that ask for a certificate.
        server_tls_key_file: Option<String> = "", reloads, now;
        /// Our certificate.
        server_tls_cert_file: Option<String> = "", reloads, now;
        /// Certificates of those who may sign servers' certificates; or servers' own.
        server_tls_ca_file: Option<String> = "", reloads, now;
        /// Versions, as in `client_tls_protocols`.
        server_tls_protocols: String = "secure", reloads, now;
        /// Ciphers of TLS 1.2, as in `client_tls_ciphers`.
        server_tls_ciphers: String = "default", reloads, now;
        /// Ciphers of TLS 1.3, as in `client_tls13_ciphers`.
        server_tls13_ciphers: Option<String>, reloads, now;
    }

    "Log and statistics" {
        /// The log file. If not set, the log goes to standard error only.
        logfile: Option<String> = "", reloads, now;
        /// Above 0: more detail in the log, such as each address that is tried. So does `-v` on the command
        /// line.
        verbose: i32 = "0", reloads, now;
        /// Log each login.
        log_connections: bool = "1", reloads, now;
        /// Log the end of each connection, and why.
        log_disconnections: bool = "1", reloads, now;
        /// Log the errors that clients get from us.
        log_pooler_errors: bool = "1", reloads, now;
        /// Log each decision about servers: which client gets one, waits for one and why, gives one back or
        /// keeps it and why; and which server goes to another worker. For a look at a pool, not for all days.
        log_scheduling: bool = "0", reloads, now;
        /// Log statistics each `stats_period`.
        log_stats: bool = "1", reloads, now;
        /// The time over which SHOW STATS takes its averages, and between two lines of `log_stats`.
        stats_period: Micros = "60", reloads, now;
        /// Log to syslog, too.
        syslog: bool = "0", reloads, now;
        /// The part of the system that our lines in syslog come from: `auth`, `authpriv`, `daemon`, `user` or
        /// `local0` to `local7`. Any other name is `daemon`.
        syslog_facility: String = "daemon", reloads, now, facility;
        /// Our name in syslog.
        syslog_ident: String = "pgbouncer", reloads, now;
        /// The socket of the syslog daemon. Lines that it does not take at once are lost, and counted.
        syslog_socket: String = "/dev/log", reloads, now;
    }

    "Metrics and health over HTTP" {
        /// Where HTTP requests are answered: a list of `ADDRESS:PORT` and absolute paths of Unix sockets, such as
        /// `127.0.0.1:9127`, `[::1]:9127`, `*:9127` or `/run/pgweir/http.sock`. The page on monitoring says what
        /// is answered: metrics for Prometheus, health checks, and the order to drain. Unix sockets have the
        /// permissions of `unix_socket_mode` and `unix_socket_group`. Empty: nowhere.
        http_listen: HttpListen = "", reloads, now;
        /// `client`: the addresses of `http_listen` speak TLS as `client_tls_sslmode` demands it of clients, with the
        /// same certificates; with `allow` and `prefer`, requests may come with TLS and without. `disable`: they
        /// never do.
        http_tls: HttpTls = "client", reloads, now;
        /// A file with tokens for HTTP requests, each on a line: `stats TOKEN` or `admin TOKEN`. With it, `/metrics`
        /// is answered only to requests with one of these tokens (`Authorization: Bearer TOKEN`); a token of an
        /// `admin` may order pgweir to drain. A token has at least 16 characters.
        http_tokens: Option<String> = "", reloads, now;
        /// The file in which changes of databases and users by the HTTP API are saved, if a request asks for it. It is
        /// read after the ini file, which is never written: its entries take the place of those of the same name, and
        /// its sections `[removed databases]` and `[removed users]` take entries away. It need not exist. Its folder must
        /// be writable for pgweir.
        api_config_file: Option<String> = "", reloads, now;
        /// The most HTTP connections at once. When it is reached, a new connection takes the place of the
        /// oldest one whose request is not complete; if all requests are, the new one is refused.
        http_max_connections: u32 = "64", reloads, now, between::<1, 10_000>;
        /// An HTTP connection ends after this time, answered or not.
        http_timeout: Micros = "10", reloads, now, above_zero;
        /// The most wrong tokens and passwords that may come over HTTP from one address in a minute (from one /64
        /// network of IPv6). Further requests with credentials from there are refused with status 429, right or wrong.
        http_max_login_failures: u32 = "10", reloads, now, between::<1, 1_000_000>;
        /// How often a sample of each pool is taken for the plots of the live page, which show the last 15 minutes;
        /// at least a second. 0: no samples are taken.
        http_history_interval: Micros = "5", reloads, now;
        /// The most pools of which samples are taken.
        http_history_pools: u32 = "50", reloads, now, between::<1, 10_000>;
        /// Workers are asked for their counts at most once in this time; requests for metrics that come sooner
        /// wait for the next time, and share its counts.
        metrics_interval: Micros = "0.1", reloads, now;
        /// The most pools, and the most databases, with series of their own in `/metrics`: those that were seen
        /// first. The others are added up under `(other)`.
        metrics_max_pools: u32 = "200", reloads, now, between::<1, 100_000>;
        /// The most `application_name`s with series of their own in `/metrics`: those of most clients. The others
        /// are added up under `(other)`.
        metrics_max_applications: u32 = "100", reloads, now, between::<1, 100_000>;
        /// Show the counters `pgbouncer_stats_totals_...` also as `pgbouncer_stats_...`, for dashboards that were
        /// made for older exporters.
        metrics_aliases: bool = "1", reloads, now;
    }

    "Process" {
        /// How many threads serve connections. 0: as many as there are cores.
        workers: u32 = "0", restarts, now, between::<0, 64>;
        /// The Unix user to become after start, when started as root.
        user: Option<String>, restarts, now;
        /// A file that holds our process id while we run.
        pidfile: Option<String> = "", restarts, now;
        /// The ini file that the next RELOAD reads. If not set, the one on the command line.
        conffile: Option<String>, reloads, now;
        /// Name of a Windows service.
        service_name: Option<String>, restarts, never;
        /// Another name for `service_name`.
        job_name: String = "pgbouncer", restarts, never;
        /// Our number among the `[peers]`. 0: there are none.
        peer_id: u32 = "0", reloads, now, between::<0, 16_383>;
    }

    "Network" {
        /// Find dead peers by TCP keepalive. The three settings that follow refine it.
        tcp_keepalive: bool = "1", reloads, now;
        /// How many unanswered keepalive probes end a connection. 0: the system's default.
        tcp_keepcnt: u32 = "0", reloads, now;
        /// After how long without traffic the first keepalive probe is sent. 0: the system's default.
        tcp_keepidle: u32 = "0" in "seconds", reloads, now;
        /// Time between keepalive probes. 0: the system's default.
        tcp_keepintvl: u32 = "0" in "seconds", reloads, now;
        /// How long sent bytes may stay unacknowledged before TCP gives up. 0: the system's default.
        tcp_user_timeout: u32 = "0" in "milliseconds", reloads, now;
        /// Size of each socket's buffers in the kernel. 0: the system's default; for clients, going back
        /// to it takes a restart.
        tcp_socket_buffer: u32 = "0" in "bytes", reloads, now;
        /// The largest message that is passed on, in either direction.
        max_packet_size: u32 = "2147483647" in "bytes", reloads, now, packet_size;
        /// How many messages of one client a server may still have to answer (Query, FunctionCall and Sync,
        /// and those that make or close prepared statements) before the client is not read any more. It is
        /// read on when half of them are answered. The column `pipelined` of SHOW CLIENTS and SHOW SERVERS has
        /// their present number.
        max_pipelined_messages: u32 = "10000", reloads, now, between::<100, 1_000_000>;
        /// The largest startup packet that a client may send.
        startup_packet_limit: u32 = "10000" in "bytes", reloads, now, between::<1_024, 1_048_576>;
        /// Size of the buffer that each worker reads into.
        read_buffer: u32 = "262144" in "bytes", restarts, now, between::<16_384, 1_048_576>;
        /// PgBouncer's buffer for each connection. There is no such buffer here: see `read_buffer`.
        pkt_buf: u32 = "4096" in "bytes", restarts, never;
        /// How often PgBouncer fills its buffer from one connection before it turns to the next.
        sbuf_loopcnt: u32 = "5", reloads, never;
        /// How long the addresses of a host name are kept. When they have changed after that, servers at
        /// the old ones are closed as they come free. Of several addresses, each new connection starts
        /// with the next one.
        dns_max_ttl: Micros = "15", reloads, now;
        /// How long a failed look-up of a host name is kept.
        dns_nxdomain_ttl: Micros = "15", reloads, now;
        /// How often to check whether the serials of the DNS zones of host names (all behind a name's first
        /// dot) have changed; then their names are looked up again. 0: never.
        dns_zone_check_period: Micros = "0", reloads, now;
        /// Ask the name servers of this file, in the form of `resolv.conf`, for the addresses of hosts,
        /// after `/etc/hosts`. A server may have a port: `nameserver [ADDRESS]:PORT`. If not set, the
        /// system's resolver is asked.
        resolv_conf: Option<String> = "", restarts, now;
    }
}
