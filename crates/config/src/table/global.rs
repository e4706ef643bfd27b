//! The keys of section `[pgbouncer]`.

use super::process::process_settings;
use crate::{
    AuthType, BypassUsers, Bytes, EtcdUrls, FairWindow, FileMode, HandoverClean, HttpListen,
    HttpTls, IoDriver, LogFormat, Micros, NodeAddress, OtlpEndpoint, PoolMode, Ratio, Secret,
    ServerLimit, SessionState, Share, SslMode, TlsNegotiation, Unclean,
    check::{
        above_zero, allow_prefers, between, extension_names, facility, fleet_name, not_console,
        packet_size, port_to_listen_on,
    },
};

process_settings! { {
    /// Section `[pgbouncer]`: the settings of the whole process.
    pub struct Settings(Global)

    "Where clients connect" {
        /// Addresses or host names to listen on for TCP, separated by commas. `*` is all addresses, of IPv4 and
        /// IPv6. If empty, pgweir listens on the Unix socket only.
        listen_addr: Vec<String> = "", restarts, now;
        /// The port to listen on. It is also a part of the Unix socket's name. 0: the system chooses a port for each
        /// address.
        listen_port: u16 = "6432", restarts, now, port_to_listen_on;
        /// The number of new connections that the kernel may queue for each listening socket.
        listen_backlog: i32 = "128", restarts, now;
        /// The directory of the Unix socket to listen on, and the default for `host` in `[databases]`. A name that
        /// starts with `@` is an abstract socket. Empty: no Unix sockets.
        unix_socket_dir: Option<String> = "/tmp", restarts, now;
        /// Permissions of the Unix socket; a leading 0 means octal.
        unix_socket_mode: FileMode = "0777", restarts, now;
        /// Group of the Unix socket, by name or number.
        unix_socket_group: Option<String> = "", restarts, now;
        /// Let several processes listen on the same TCP port; each needs its own `unix_socket_dir`. One process uses
        /// all cores, so this is only needed to replace or to isolate processes.
        so_reuseport: bool = "0", restarts, now;
        /// Let the kernel report a TCP connection only when its first bytes have arrived.
        tcp_defer_accept: bool = "1", reloads, now;
    }

    "Pools and limits" {
        /// When a server goes back to its pool: when its client disconnects (`session`), when the transaction ends
        /// (`transaction`), or when the statement ends (`statement`).
        pool_mode: PoolMode = "session", reloads, now;
        /// The largest number of clients that have logged in. Each client takes a file descriptor.
        max_client_conn: u32 = "100", reloads, now;
        /// The number of connections that may be logging in; they do not count under the limits on clients. Above this
        /// number, pgweir disconnects connections for whose next message it has waited for at least a second, the
        /// longest wait first. It begins with the address that has most such connections. Each worker allows an equal
        /// part of this number. 0: no limit.
        max_login_clients: u32 = "1000", reloads, now;
        /// The number of connections from one address that may be logging in: see `max_login_clients`.
        max_login_clients_per_address: u32 = "200", reloads, now;
        /// The most bytes of messages that clients may have in memory together while they log in: long passwords, and
        /// messages that clients send too early. The first 4 kB of each client do not count. A login that needs more is
        /// refused (SQLSTATE 53200).
        login_memory: Bytes = "16MB", reloads, now;
        /// The most bytes that clients and servers may take together: prepared statements, buffers, catalogs, logins,
        /// session state, and caches (SHOW MEM lists all kinds). The process itself takes some megabytes more. Above
        /// the limit, pgweir empties its caches, closes idle servers with prepared statements that no connected
        /// client has, and refuses new logins (except to the console) and Parses of new statements with SQLSTATE
        /// 53200; everything else continues. Logins and statements are accepted again below 90 % of the limit. 0: no
        /// limit.
        memory_limit: Bytes = "0", reloads, now;
        /// The largest number of servers in each pool. There is one pool for each database and user. 0: no limit.
        default_pool_size: u32 = "20", reloads, now;
        /// The number of servers to keep open in each pool that has clients or a forced user, as far as `pool_size`
        /// and the other limits on servers allow.
        min_pool_size: u32 = "0", reloads, now;
        /// The number of additional servers for a pool whose clients wait longer than `reserve_pool_timeout`.
        reserve_pool_size: u32 = "0", reloads, now;
        /// The wait after which a client may use the reserve (`reserve_pool_size`). 0: never.
        reserve_pool_timeout: Micros = "5", reloads, now;
        /// The number of additional servers for a pool in which more than `overflow_waiting` clients wait at the
        /// same time. Like servers of the reserve, they are closed when they have been idle for
        /// `server_idle_timeout`.
        overflow_size: u32 = "0", reloads, now;
        /// The number of clients that may wait in a pool before it opens servers of its overflow (`overflow_size`).
        overflow_waiting: u32 = "10", reloads, now;
        /// The largest number of servers of each database, over all users. 0: no limit. When the limit is reached,
        /// pgweir closes the server that has been idle longest if another pool needs one.
        max_db_connections: u32 = "0", reloads, now;
        /// The largest number of clients of each database. 0: no limit.
        max_db_client_connections: u32 = "0", reloads, now;
        /// The largest number of servers of each user, over all databases. 0: no limit. When the limit is reached,
        /// pgweir closes the server that has been idle longest if another pool needs one.
        max_user_connections: u32 = "0", reloads, now;
        /// The largest number of clients of each user. 0: no limit.
        max_user_client_connections: u32 = "0", reloads, now;
        /// The largest number of servers of the process, over all databases and users. 0: no limit. When the limit is
        /// reached and a pool needs a server, pgweir closes idle servers of pools that have more than their share of
        /// the limit, and any server that has been idle for half a second. A pool below its share whose clients have
        /// waited for half a second also gets the next server that becomes free in a pool above its share. The limit is
        /// shared in proportion to the databases' `weight`. A percentage, such as `80%`, limits the servers of each
        /// host instead: to this part of the host's `max_connections` less the reserved ones, which pgweir reads at
        /// each login and host check (`server_limit` of SHOW HOSTS; 10 before the first login). Hosts of one list, or
        /// of lists with a common host, share the limit of the smallest of them that is in use.
        max_server_conn: ServerLimit = "0", reloads, now;
        /// The number of pgweir processes with the same configuration that open servers on the same PostgreSQL. Each
        /// uses at most `max_server_conn` divided by this number, rounded down (`fleet_share` of SHOW CONFIG; of a
        /// percentage, at least one server on each host). `max_server_conn` as a number must be 0 or at least
        /// `fleet_nodes`. Before you add a process, set the new number on all others, and wait until none has more
        /// servers than its share: only idle ones are closed, after `server_idle_timeout`. Servers of `bypass_users`
        /// don't count.
        fleet_nodes: u32 = "1", reloads, now, between::<1, 1_000>;
        /// Clients that get their own server when they log in, outside of all pools, until they disconnect: for
        /// administrators when a pool is exhausted. A list of `db/user`, `db/*` and `*/user`, with the names that
        /// clients log in with. The limits on clients and servers (`max_client_conn`, `pool_size`,
        /// `max_db_connections` and the like) don't apply to these clients, except for `bypass_max`; nor do the
        /// timeouts of queries and transactions. PAUSE and DISABLE do apply. PostgreSQL must have room for these
        /// servers, too: see its `superuser_reserved_connections`. Replication connections are never included, nor is
        /// any client with `auth_type = any`.
        bypass_users: BypassUsers = "", reloads, now;
        /// The largest number of clients of `bypass_users` that have their own server at the same time. Further ones
        /// get servers from pools like other clients, and a notice about it.
        bypass_max: u32 = "3", reloads, now;
        /// Use idle servers in turn, instead of the one that was used last. Each worker does this with its own
        /// servers.
        server_round_robin: bool = "0", reloads, now;
        /// Forget databases that were created from `*` after this time without use.
        autodb_idle_timeout: Micros = "3600", reloads, now;
        /// Forget pools after this time without clients and servers. 0: never.
        pool_idle_timeout: Micros = "0", reloads, now;
        /// The number of server connections of one pool that may log in at the same time. Before the first
        /// successful login, and after a failed one, only one may.
        server_connect_limit: u32 = "4", reloads, now, between::<1, 10_000>;
        /// When a server becomes free, a waiting client of the same worker gets it even if a client of another worker
        /// has waited longer, by at most this time. `auto`: the larger of 2 ms and a quarter of the oldest client's
        /// wait. 0: strict order, which costs time with more than one worker.
        fair_window: FairWindow = "auto", reloads, now;
    }

    "What a session keeps" {
        /// Which session state clients keep in `transaction` mode, where they share servers. `transparent`: `SET`,
        /// prepared statements, roles, LISTEN and other session state work as if each client had its own server; see
        /// the page on sessions. `off`: as in PgBouncer, only tracked parameters and prepared statements of the
        /// protocol; a client that uses an unknown name of a prepared statement, or one that exists already, is
        /// disconnected.
        session_state: SessionState = "transparent", reloads, now;
        /// With `session_state = transparent`: how often to search the catalog for functions and relations that may
        /// change a session in ways that the text of a query does not show. A change by a client of this process is
        /// noticed at once, whichever entry of `[databases]` it uses. A change made elsewhere is noticed after this
        /// time; until then, session state that a new trigger sets may remain on the server for its next client. ALTER
        /// ROLE SET and ALTER DATABASE SET that are executed elsewhere are not noticed: RECONNECT replaces the servers.
        /// 0: never search; then pgweir inspects the session after each transaction, and handles a database with
        /// functions in C, such as those of extensions, as described at `unclean`.
        catalog_check_interval: Micros = "10", reloads, now;
        /// If the connection to a server is closed while the server runs DDL, the server may still commit the DDL. Until
        /// another connection to the same host shows that this has ended, pgweir takes no statement of the database as
        /// one that leaves the session unchanged. This setting is the longest time to wait if there is no other
        /// connection to the host. 0: no limit.
        lost_ddl_timeout: Micros = "600", reloads, now;
        /// Parameters to track in addition to `client_encoding`, `DateStyle`, `TimeZone`,
        /// `standard_conforming_strings` and `application_name`: each client has its own value, on every server.
        /// Only parameters that the server reports can be tracked.
        track_extra_parameters: Vec<String> = "IntervalStyle", restarts, now;
        /// Parameters in a client's startup packet to ignore. Others that can't be tracked are refused. The entry
        /// `options` ignores unknown parameters inside of `options`.
        ignore_startup_parameters: Vec<String> = "", reloads, now;
        /// The query that resets a server before another client gets it, in `session` mode. Empty: none.
        server_reset_query: String = "DISCARD ALL", reloads, now;
        /// Run `server_reset_query` in the other pool modes, too.
        server_reset_query_always: bool = "0", reloads, now;
        /// The number of clients' prepared statements (those of the protocol, not of SQL's PREPARE) to keep on each
        /// server, in the modes other than `session`. A statement that is needed on a server without it is prepared
        /// there first; the least recently used ones are closed. 0: don't track prepared statements. A change from
        /// or to 0, like a change of `pool_mode` from or to `session`, makes connected clients lose their
        /// statements.
        max_prepared_statements: u32 = "200", reloads, now;
        /// The largest number of bytes of the prepared statements of one client: their texts, and 128 bytes for
        /// each. Texts that clients share are stored once, but count for each client. Statements beyond this are
        /// refused (SQLSTATE 53400).
        max_client_prepared_bytes: u32 = "16777216", reloads, now;
        /// The largest number of bytes of parameters, names and values, that pgweir sets on each server for one
        /// client. A client that sets more keeps its server until it sets less. Only with `session_state =
        /// transparent`.
        max_client_settings_bytes: u32 = "65536" in "bytes", reloads, now;
        /// The largest number of listeners of each pool. A listener is a server connection on which pgweir runs
        /// LISTEN for many clients of the pool; each `client_encoding` among these clients needs its own. Listeners
        /// count against `max_db_connections`, `max_user_connections` and `max_server_conn`, but not against
        /// `pool_size`. A client that no listener can serve keeps the server on which it ran LISTEN.
        max_listeners: u32 = "4", reloads, now;
        /// The largest number of channels of each listener. A client that needs another channel keeps its server.
        max_listen_channels: u32 = "10000", reloads, now;
        /// The largest number of channels of each client on a listener. A client with more keeps its server.
        max_client_channels: u32 = "1000", reloads, now;
        /// Close a listener after this time without clients.
        listener_idle_timeout: Micros = "10", reloads, now;
        /// Close a listener that has not answered for this time, and disconnect its clients (SQLSTATE 57P01). 0:
        /// never.
        listener_timeout: Micros = "60", reloads, now;
        /// The largest number of bytes of notifications that wait for one client, while the client is in a
        /// transaction or does not read. A client with more is disconnected (SQLSTATE 53400).
        notification_backlog: u32 = "1048576", reloads, now, between::<16_384, 2_147_483_647>;
        /// Add the client's address to the `application_name` that it connects with.
        application_name_add_host: bool = "0", reloads, now;
        /// Refuse the simple query protocol, in which one message may have several statements, as SQL injection
        /// needs. The console is not affected.
        disable_pqexec: bool = "0", restarts, now;
    }

    "Clients that keep a server" {
        /// In `transaction` mode with `session_state = transparent`, a client is pinned, which means that it keeps its
        /// server, as long as its session has state that can't be moved to another server, such as a temporary table
        /// (SHOW PINS). Pinned clients may keep this number of servers of each pool, or this part of `pool_size`. For
        /// each pinned client above this number, the pool may open one more server, up to `pinned_overflow`, so that
        /// other clients still find servers.
        max_pinned: Share = "75%", reloads, now;
        /// The largest number of servers that a pool may have above its size because of `max_pinned`.
        /// `max_db_connections`, `max_user_connections` and `max_server_conn` still apply.
        pinned_overflow: u32 = "5", reloads, now;
        /// Disconnect clients that have been pinned and idle, outside of a transaction, for longer than this.
        /// 0: no limit.
        pin_timeout: Micros = "0", reloads, now;
        /// Parameters that pin a client when it changes them, instead of being set again on each server.
        pin_parameters: Vec<String> = "", reloads, now;
        /// Extensions that keep state in the session which pgweir can't see, so that their callers are pinned: a client
        /// that calls one of their functions, or a function in one of their languages, directly or through views and
        /// other functions, keeps its server until it disconnects. A change takes effect when pgweir reads a database's
        /// catalog the next time.
        pin_extensions: Vec<String> = "", reloads, now, extension_names;
        /// Functions that change no session state, although pgweir can't determine that from their source: names
        /// without a schema. A change takes effect when pgweir reads a database's catalog the next time. SHOW OPAQUE
        /// lists functions whose effect on the session pgweir can't determine. A named function also does no DDL: without
        /// the setting, each call of a function with dynamic SQL makes pgweir read the catalog again.
        certified_functions: Vec<String> = "", reloads, now;
        /// How to treat a server whose session state pgweir can't reset with certainty. The statements that have run on
        /// it may have called functions that leave such state (in languages like PL/Perl and PL/Python, C functions that
        /// pgweir does not know, dblink; SHOW CATALOG names one). Or the server's user is a superuser, may become one, or
        /// may call `pg_backup_start` or `pg_replication_origin_session_setup`. Or PL/pgSQL functions may keep types of
        /// another `search_path` or of temporary tables (docs/sessions.md). `close`: close the server. `ignore`: reset it
        /// as far as possible, and accept that the next client may see that state.
        unclean: Unclean = "close", reloads, now;
        /// As long as a pool has at most this number of clients, each client keeps the server that it got, if there
        /// are enough servers. 0: servers go back to the pool at the end of each transaction.
        share_after: u32 = "0", reloads, now;
        /// In `transaction` mode with `session_state = transparent`, a server on which a client may have changed its
        /// session stays with that client until another client needs a server, or for at most this time. Only then
        /// does pgweir inspect and reset the session. After texts that only set parameters, the server stays for at
        /// most 50 ms.
        settle_after: Micros = "0.2", reloads, now;
        /// When to reset a server before another client gets it. `auto`: when it has, or may have, session state of
        /// the last client. `always`: each time that it goes back to the pool, at the cost of a round trip.
        handover_clean: HandoverClean = "auto", reloads, now;
        /// Log which client is pinned, and why. Each worker writes at most one line for each reason and pool in ten
        /// seconds.
        log_pins: bool = "1", reloads, now;
    }
} {
    "Timeouts" {
        /// A client must have logged in within this time, including the wait for the first server of its pool. 0: no
        /// limit.
        client_login_timeout: Micros = "60", reloads, now;
        /// How long a query may wait for a server before its client is disconnected. 0: no limit.
        query_wait_timeout: Micros = "120", reloads, now;
        /// How long clients wait during an outage of their pool. A pool has an outage if it has no server, and the last
        /// login to each of its hosts has failed or has found a role that `target_session_attrs` excludes. Clients that
        /// log in wait, too, clients that LISTEN stay connected, and `query_wait_timeout` starts anew at the end of the
        /// outage. With 0, clients that are logged in wait up to `query_wait_timeout`, clients that log in get the
        /// reason as an error at once, and clients that LISTEN are disconnected.
        outage_hold: Micros = "0", reloads, now;
        /// The most clients of one pool that wait in an outage under `outage_hold`. Any further client that needs a
        /// server is disconnected with the reason of the outage. 0: no limit but `max_client_conn`.
        outage_hold_clients: u32 = "0", reloads, now;
        /// A client that has waited this long for a server gets a notice with the reason: why the pool can't open
        /// another server, and which clients use the present ones. The error of `query_wait_timeout` and the log
        /// have the reason, too. 0: no notice.
        query_wait_notify: Micros = "5", reloads, now;
        /// How long a cancel request may wait for its connection to the server. 0: no limit.
        cancel_wait_timeout: Micros = "10", reloads, now;
        /// A server connection must be open and logged in within this time. 0: no limit.
        server_connect_timeout: Micros = "15", reloads, now;
        /// The pause after a failed login to a server; each pool adds up to a quarter, so that pools and processes
        /// don't log in at the same moment. RELOAD and RECONNECT end it. Clients that are logged in wait for the next
        /// login to the server, up to `query_wait_timeout`. Without `outage_hold`, clients that log in during the pause
        /// get the error at once if the pool has never had a server, or is in an outage. A client that has begun to log
        /// in before the failure gets it as well, unless PostgreSQL could not be reached and the next login to the
        /// server begins within `server_connect_timeout` of the client's login. All clients get the error at once if
        /// PostgreSQL says that the user may not log in, or that the database does not exist.
        server_login_retry: Micros = "15", reloads, now;
        /// The pause after a failed login to a server of a list of hosts with `target_session_attrs`, instead of
        /// `server_login_retry` if that is longer: after a failover, pgweir finds the new primary within this time
        /// after its promotion. Errors of servers that suggest a failover cause checks of the hosts at once, but at
        /// most once in this time.
        target_session_retry: Micros = "0.5", reloads, now, above_zero;
        /// How long the connection to one host of a list may take to open before the next host is tried. 0: as long as
        /// `server_connect_timeout`.
        host_connect_timeout: Micros = "1", reloads, now;
        /// If the host of a new server connection has sent nothing after this time, pgweir opens a second connection, to
        /// the next host of the list that can be used, and keeps the connection that is logged in first. A host that has
        /// accepted the connection may only be slow, so pgweir then waits four times as long. The second connection
        /// counts under all limits; if they leave no room, it is not opened. 0: pgweir tries one host after the other.
        host_race_after: Micros = "0.25", reloads, now;
        /// How often the hosts of a list are checked, if the database has `target_session_attrs`: the role of each
        /// host, the lag of a standby, and whether the host answers at all. While clients use the database, pgweir
        /// keeps one connection to each host for that, with the user of a pool; it counts under `max_db_connections`
        /// and the like. 0: no checks; roles are known from logins only.
        host_check_interval: Micros = "1", reloads, now;
        /// A check that is not answered within this time has failed. 0: no limit.
        host_check_timeout: Micros = "3", reloads, now;
        /// After this number of consecutive failed checks, servers of the host are closed and the host is no longer
        /// used, if another host of the list can be used.
        host_check_failures: u32 = "2", reloads, now, between::<1, 1_000>;
        /// How long a host of a list has to stay up after a failure before new server connections are opened to it, if
        /// another host can be used meanwhile. A host has failed if it does not answer, or reports that it is starting,
        /// shutting down or recovering. With each further failure the time doubles, up to 32 times this value; after
        /// ten minutes without a failure it is this value again. 0: no such wait.
        host_return_after: Micros = "5", reloads, now;
        /// How often pgweir asks Patroni's REST API (`patroni` in `[databases]`), if hosts are checked
        /// (`host_check_interval`).
        patroni_interval: Micros = "1", reloads, now, above_zero;
        /// How long pgweir waits for an answer of Patroni's REST API, the connection included.
        patroni_timeout: Micros = "2", reloads, now, above_zero;
        /// A PEM file with the certificate authorities of REST APIs with `https`. Their certificates must name the
        /// URL's host.
        patroni_tls_ca_file: Option<String>, reloads, now;
        /// A PEM file with the client certificate for Patroni's REST API, if it asks for one; needs
        /// `patroni_tls_key_file`.
        patroni_tls_cert_file: Option<String>, reloads, now;
        /// The PEM file with the key of the client certificate for Patroni's REST API.
        patroni_tls_key_file: Option<String>, reloads, now;
        /// A file with the line `Bearer TOKEN` or `USER:PASSWORD`, by which pgweir authenticates to Patroni's REST API.
        patroni_auth_file: Option<String>, reloads, now;
        /// The longest request, in bytes, that is sent to another host when a standby is lost before it replied, for
        /// databases whose `target_session_attrs` asks for standbys. pgweir keeps the request until the reply begins,
        /// so each server in use may take this much memory. A request is sent at most as often as there are hosts. 0:
        /// clients get an error.
        read_repeat_buffer: u32 = "65536", reloads, now, between::<0, 16_777_216>;
        /// Close servers that were idle for this time. 0: never.
        server_idle_timeout: Micros = "600", reloads, now;
        /// Replace servers that have been connected for longer than this (or up to a tenth less, so that they don't
        /// all end at once), as soon as they are free. If the pool is in use and below its size, the new server is
        /// opened first. 0: use each server once.
        server_lifetime: Micros = "3600", reloads, now;
        /// Use a server without a check if it was in use within this time. 0: check always.
        server_check_delay: Micros = "30", reloads, now;
        /// The query that checks a server before a client gets it; `<empty>` is the empty query. Empty: no check. A
        /// server that fails the check, or does not answer within `server_connect_timeout`, is closed, and the
        /// client gets another one.
        server_check_query: String = "<empty>", reloads, now;
        /// If a server in `session` mode has to be replaced, close it at the end of the transaction, not only at the
        /// end of the session.
        server_fast_close: bool = "0", reloads, now;
        /// Cancel queries that run longer than this, and disconnect the server and the client. The time in which the
        /// client sends its request does not count. This global value also limits the wait for a server, as in
        /// PgBouncer. 0: no limit.
        query_timeout: Micros = "0", reloads, now;
        /// Disconnect clients that are idle for longer than this, and have no server. 0: no limit.
        client_idle_timeout: Micros = "0", reloads, now;
        /// Disconnect clients that are idle in a transaction for longer than this, and their server. 0: no
        /// limit.
        idle_transaction_timeout: Micros = "0", reloads, now;
        /// Disconnect clients whose transaction lasts longer than this, and their server. 0: no limit.
        transaction_timeout: Micros = "0", reloads, now;
        /// Disconnect clients that stop in the middle of a message: within this time, neither the end of the message
        /// nor 1 kB more of it has arrived. The data of a COPY may pause for any time. Servers that stop in the middle
        /// of a message, but run no query, are closed as well. 0: no limit.
        partial_message_timeout: Micros = "60", reloads, now;
        /// In an online restart, disconnect the clients that have not moved to the new process after this time: those
        /// that are in a transaction or query, that have an exclusive server (replication, `bypass_users`), or that are
        /// pinned and use LISTEN. 0: wait until they disconnect.
        takeover_timeout: Micros = "600", reloads, now;
        /// After SUSPEND, close connections that have not finished their current message within this time. 0: never.
        suspend_timeout: Micros = "10", reloads, now;
        /// How long pgweir keeps the unsent bytes of a connection that it has closed.
        close_flush_timeout: Micros = "5", reloads, now;
        /// When a client disconnects during a query, read the server's answer to its end for at most this time, so
        /// that the server can be used again. Then close the server.
        abandoned_query_timeout: Micros = "5", reloads, now;
    }

    "TLS with clients" {
        /// Whether clients on TCP may or must use TLS. `disable`: they can't. `allow`, `prefer`: they may.
        /// `require`: they must. `verify-ca`, `verify-full`: they must, with a certificate that an authority in
        /// `client_tls_ca_file` has signed. All modes but `disable` need a key and a certificate. Clients may also
        /// begin with TLS at once (libpq's `sslnegotiation=direct`, since PostgreSQL 17). Unix sockets don't use
        /// TLS.
        client_tls_sslmode: SslMode = "disable", reloads, now;
        /// pgweir's private key for clients, in PEM, without a password.
        client_tls_key_file: Option<String> = "", reloads, now;
        /// pgweir's certificate for clients, and the certificates between it and its authority, in PEM. RELOAD reads
        /// the file again; connected clients stay.
        client_tls_cert_file: Option<String> = "", reloads, now;
        /// The certificates of authorities that may sign clients' certificates, in PEM. With this file, pgweir asks
        /// clients for a certificate. A certificate that a client shows must be valid, in every mode.
        client_tls_ca_file: Option<String> = "", reloads, now;
        /// Lists of revoked certificates, in PEM; clients that show one of these certificates are refused. As in
        /// PostgreSQL, each authority of `client_tls_ca_file`, and each intermediate authority, then needs a list that
        /// has not expired. RELOAD reads the file again.
        client_tls_crl_file: Option<String> = "", reloads, now;
        /// Versions, separated by commas: `tlsv1.2`, `tlsv1.3`; `secure`, `default` and `all` stand for both. `!`
        /// before a name excludes it. `tlsv1.0` and `tlsv1.1` are accepted here, but never used.
        client_tls_protocols: String = "secure", reloads, now;
        /// Ciphers of TLS 1.2, in OpenSSL's syntax. pgweir supports ECDHE with AES-GCM and CHACHA20, and ignores
        /// other ciphers.
        client_tls_ciphers: String = "default", reloads, now;
        /// Ciphers of TLS 1.3, by OpenSSL's names, separated by colons. Not set: all.
        client_tls13_ciphers: Option<String>, reloads, now;
        /// Groups of the key exchange, by OpenSSL's names, separated by colons, the preferred one first:
        /// `X25519`, `prime256v1`, `secp384r1`, `X25519MLKEM768`; `auto` is all of them.
        client_tls_ecdhcurve: String = "auto", reloads, now;
        /// PgBouncer's group for the Diffie-Hellman key exchange. pgweir supports only the exchange over elliptic
        /// curves.
        client_tls_dheparams: String = "auto", reloads, never;
    }

    "TLS with servers" {
        /// Whether to use TLS with servers (not over Unix sockets). `disable`: no. `allow`, `prefer`: if the server
        /// supports TLS. `require`: always. `verify-ca`: always, with a certificate that an authority in
        /// `server_tls_ca_file` has signed. `verify-full`: the certificate must also be for the host's name. When
        /// this or another setting of this group changes, server connections are replaced.
        server_tls_sslmode: SslMode = "prefer", reloads, now, allow_prefers;
        /// How TLS begins. `postgres`: pgweir asks the server first. `direct`: pgweir begins TLS at once, which
        /// saves a round trip, and needs PostgreSQL 17 and `server_tls_sslmode` = `require`, `verify-ca` or
        /// `verify-full`.
        server_tls_negotiation: TlsNegotiation = "postgres", reloads, now;
        /// pgweir's private key, for servers that ask for a certificate.
        server_tls_key_file: Option<String> = "", reloads, now;
        /// pgweir's certificate, for servers that ask for one.
        server_tls_cert_file: Option<String> = "", reloads, now;
        /// The certificates of authorities that may sign servers' certificates, or the servers' certificates
        /// themselves.
        server_tls_ca_file: Option<String> = "", reloads, now;
        /// Lists of revoked certificates of servers, as in `client_tls_crl_file`; used with `verify-ca` and
        /// `verify-full`.
        server_tls_crl_file: Option<String> = "", reloads, now;
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
        /// Above 0: more detail in the log, such as each address that is tried. The option `-v` has the same effect.
        verbose: i32 = "0", reloads, now;
        /// `pgbouncer`: lines as PgBouncer writes them. `json`: each line is a JSON object with `time` (UTC), `pid`,
        /// `level`, `connection` (if the line is about one), `message`, and `audit` in audit lines (`log_audit`).
        /// Syslog always gets PgBouncer's form.
        log_format: LogFormat = "pgbouncer", reloads, now;
        /// Log each login.
        log_connections: bool = "1", reloads, now;
        /// Log the end of each connection, with the reason.
        log_disconnections: bool = "1", reloads, now;
        /// Log the errors that pgweir itself sends to clients.
        log_pooler_errors: bool = "1", reloads, now;
        /// Log who gave which command on the console, from where and with which outcome, and each failed login: lines
        /// whose message begins with `audit:`. A command that comes over HTTP has one line, which begins with `http:
        /// audit:`.
        log_audit: bool = "1", reloads, now;
        /// Log each decision about servers: which client gets one, waits for one, gives one back or keeps it, and
        /// why; and which server moves to another worker. For short examinations of a pool, not for permanent use.
        log_scheduling: bool = "0", reloads, now;
        /// How many of the latest events SHOW EVENTS shows: reloads, commands, lost servers, failed logins, and the
        /// like. Equal events within a minute are one entry with a count. 0: none are kept.
        event_history: u32 = "1000" in "events", reloads, now, between::<0, 100_000>;
        /// How many statements each worker keeps statistics of, for SHOW STATEMENTS: calls, times, rows, bytes and
        /// errors of each pool and normalized text. The statements that were used least lately make room for others. 0:
        /// none are kept, and those that were kept are forgotten.
        statement_statistics: u32 = "1000" in "statements", reloads, now, between::<0, 100_000>;
        /// Log transactions that take longer than this, the wait for a server included: a line with the client, the
        /// wait for a server, the server's time, and the first statements without literals (as far as
        /// `statement_statistics` keeps them). Each worker logs 20 lines at once and one each second; later lines count
        /// those that were left out. 0: none are logged.
        log_slow_transactions: Micros = "0", reloads, now;
        /// Log statistics each `stats_period`.
        log_stats: bool = "1", reloads, now;
        /// The time over which SHOW STATS takes its averages, and between two lines of `log_stats`.
        stats_period: Micros = "60", reloads, now;
        /// Log to syslog, too.
        syslog: bool = "0", reloads, now;
        /// The facility of pgweir's lines in syslog: `auth`, `authpriv`, `daemon`, `user` or `local0` to `local7`.
        /// Any other name is `daemon`.
        syslog_facility: String = "daemon", reloads, now, facility;
        /// pgweir's name in syslog.
        syslog_ident: String = "pgbouncer", reloads, now;
        /// The socket of the syslog daemon. Lines that the socket does not accept at once are lost, and counted.
        syslog_socket: String = "/dev/log", reloads, now;
    }

    "Metrics and health over HTTP" {
        /// Where to answer HTTP requests: a list of `ADDRESS:PORT` and absolute paths of Unix sockets, such as
        /// `127.0.0.1:9127`, `[::1]:9127`, `*:9127` or `/run/pgweir/http.sock`. The page on monitoring describes the
        /// requests: metrics for Prometheus, health checks, and draining. Unix sockets have the permissions of
        /// `unix_socket_mode` and `unix_socket_group`. Empty: no HTTP.
        http_listen: HttpListen = "", reloads, now;
        /// `client`: HTTP over TCP uses TLS as `client_tls_sslmode` demands of clients, with the same certificates;
        /// with `allow` and `prefer`, requests may come with or without TLS. `disable`: HTTP never uses TLS.
        http_tls: HttpTls = "client", reloads, now;
        /// A file with tokens for HTTP requests, one per line: `stats TOKEN` or `admin TOKEN`. With this file,
        /// `/metrics` needs one of the tokens (`Authorization: Bearer TOKEN`), and a request with an `admin` token may
        /// send `POST /drain`. A token has at least 16 characters.
        http_tokens: Option<String> = "", reloads, now;
        /// The file in which changes of databases and users by the HTTP API are saved, if a request asks for it.
        /// pgweir reads it after the ini file, and never writes the ini file. Its entries replace entries of the ini
        /// file with the same name, and its sections `[removed databases]` and `[removed users]` remove entries. It
        /// need not exist. Its folder must be writable for pgweir.
        api_config_file: Option<String> = "", reloads, now;
        /// How many clients a drain (`pgweir drain`) disconnects in a second, so that the processes to which they
        /// connect again are not flooded with logins. If half of the time that `pgweir drain` has (`--timeout`) would not
        /// suffice for all clients, more. `pgweir_drained_clients_total` counts these clients. 0: all of them at once.
        drain_rate: u32 = "500", reloads, now;
        /// The largest number of HTTP connections. When it is reached, a new connection replaces the oldest one
        /// whose request is not complete; if all requests are complete, the new connection is refused.
        http_max_connections: u32 = "64", reloads, now, between::<1, 10_000>;
        /// An HTTP connection is closed after this time, even if its request was not answered.
        http_timeout: Micros = "10", reloads, now, above_zero;
        /// The most wrong tokens and passwords that may come over HTTP from one address in a minute (from one /64
        /// network of IPv6). Further requests with credentials from there are refused with status 429, right or wrong.
        http_max_login_failures: u32 = "10", reloads, now, between::<1, 1_000_000>;
        /// The most addresses whose wrong tokens and passwords are remembered. When there are more, the address with
        /// the fewest of them is forgotten, and counted in `pgweir_http_addresses_forgotten_total`.
        http_login_addresses: u32 = "4096", reloads, now, between::<1, 1_000_000>;
        /// How long pgweir accepts a correct password again without a check, if it comes from the same address. After
        /// RELOAD, pgweir checks all passwords again. 0: each request is checked.
        http_login_cache: Micros = "60", reloads, now;
        /// The largest body of a request to the HTTP API. A larger one is refused with status 413.
        http_max_body: u32 = "65536" in "bytes", reloads, now, between::<1_024, 16_777_216>;
        /// How often a sample of each pool is taken for the plots of the live page, which show the last 15 minutes;
        /// at least a second. 0: no samples are taken.
        http_history_interval: Micros = "5", reloads, now;
        /// The most pools of which samples are taken.
        http_history_pools: u32 = "50", reloads, now, between::<1, 10_000>;
        /// The shortest time between two measurements of all workers. Requests for metrics that come sooner wait for
        /// the next measurement, and share it.
        metrics_interval: Micros = "0.1", reloads, now;
        /// The largest number of pools, and of databases, with their own series in `/metrics`: the first ones that
        /// were seen. The others are added up under `(other)`.
        metrics_max_pools: u32 = "200", reloads, now, between::<1, 100_000>;
        /// The largest number of `application_name`s with their own series in `/metrics`: those with the most
        /// clients. The others are added up under `(other)`.
        metrics_max_applications: u32 = "100", reloads, now, between::<1, 100_000>;
        /// The largest number of statements with their own series in `/metrics`: those on which servers have spent most
        /// time. The others have none.
        metrics_max_statements: u32 = "20", reloads, now, between::<0, 1_000>;
        /// Show the counters `pgbouncer_stats_totals_...` also as `pgbouncer_stats_...`, for dashboards that were
        /// made for older exporters.
        metrics_aliases: bool = "1", reloads, now;
    }

    "OpenTelemetry" {
        /// The address of an OpenTelemetry collector that takes OTLP over HTTP (protobuf), such as
        /// `http://127.0.0.1:4318`. pgweir sends traces of transactions and the figures of `/metrics` there, without
        /// TLS: use a collector on the same machine or in the same network. Empty: nothing is sent.
        otlp_endpoint: OtlpEndpoint = "", reloads, now;
        /// Send a trace for a part of the transactions (`otlp_trace_ratio`), and for each one whose first text has a
        /// comment with a `traceparent` that is sampled, as sqlcommenter writes it.
        otlp_traces: bool = "1", reloads, now;
        /// The part of the transactions without a `traceparent` that is traced: 0.01 is one in a hundred. A transaction
        /// with a `traceparent` is traced if the application's own span is, whatever the ratio.
        otlp_trace_ratio: Ratio = "0.01", reloads, now;
        /// How often the figures of `/metrics` are sent; at least a second. 0: never.
        otlp_metrics_interval: Micros = "60", reloads, now;
        /// How long the collector may take for a request. After that, pgweir gives the request up, and its spans are
        /// lost.
        otlp_timeout: Micros = "5", reloads, now, above_zero;
        /// The largest number of traces that wait to be sent. Further traces are dropped, and counted. pgweir sends
        /// traces four times a second.
        otlp_queue: u32 = "4096" in "traces", restarts, now, between::<1, 1_000_000>;
        /// The name of this service in traces and metrics.
        otlp_service_name: String = "pgweir", reloads, now;
    }
} }
