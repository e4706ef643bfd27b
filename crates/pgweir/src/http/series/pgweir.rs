//! pgweir's own series.

use std::collections::BTreeMap;

use pgweir_core::{
    base::{
        memory::MemoryRefusal,
        stats::{Histogram, Stats, Times},
    },
    metrics::PoolMetrics,
};

use super::{
    Source, hosts,
    pgbouncer::zip,
    rows::{self, LabelledNames, OTHER, Sums},
};
use crate::http::exposition::{Exposition, Kind};

/// A counter of a pool: its name, its help, and the function that reads it.
type PoolCounter = (&'static str, &'static str, fn(&Stats) -> u64);

const POOL_COUNTERS: [PoolCounter; 18] = [
    ("received_bytes", "Bytes from clients.", |stats| {
        stats.received
    }),
    ("sent_bytes", "Bytes to clients.", |stats| stats.sent),
    (
        "prepared_statement_hits",
        "Uses of prepared statements that the server had already.",
        |stats| stats.statement_hit_count,
    ),
    (
        "sequence_texts",
        "Texts that may have changed nothing but sequence values.",
        |stats| stats.sequence_text_count,
    ),
    (
        "setting_texts",
        "Texts that may have changed nothing but parameters that they name.",
        |stats| stats.setting_text_count,
    ),
    (
        "opaque_texts",
        "Texts that may have changed anything in the session.",
        |stats| stats.opaque_text_count,
    ),
    (
        "failed_session_looks",
        "Inspections of a server's session that have failed, and are repeated.",
        |stats| stats.failed_look_count,
    ),
    (
        "session_looks",
        "Inspections of a server's session, to set it on another server.",
        |stats| stats.look_count,
    ),
    (
        "long_session_looks",
        "Inspections whose answer was too long to be read: the client keeps its server.",
        |stats| stats.long_look_count,
    ),
    (
        "unread_prepares",
        "Times at which SQL's PREPARE or EXECUTE named more text than pgweir reads.",
        |stats| stats.unread_prepare_count,
    ),
    ("session_cleans", "Cleans of a server's session.", |stats| {
        stats.clean_count
    }),
    (
        "unclean_closes",
        "Servers that were closed because no clean restores their session.",
        |stats| stats.unclean_close_count,
    ),
    (
        "server_moves",
        "Idle servers that went to another worker.",
        |stats| stats.server_move_count,
    ),
    (
        "server_evictions",
        "Idle servers that were closed to make room for another pool.",
        |stats| stats.eviction_count,
    ),
    (
        "repeated_reads",
        "Requests that were sent to another host, since a standby was lost before it replied.",
        |stats| stats.repeated_read_count,
    ),
    (
        "replay_waits",
        "Transactions that waited until a standby had replayed earlier writes.",
        |stats| stats.replay_wait_count,
    ),
    (
        "replay_timeouts",
        "Transactions that waited for longer than read_after_write_wait.",
        |stats| stats.replay_timeout_count,
    ),
    (
        "client_logins",
        "Logins of clients that went well.",
        |stats| stats.client_login_count,
    ),
];

/// A histogram of a pool: its name, its help, and the function that reads it.
type PoolHistogram = (&'static str, &'static str, fn(&Times) -> &Histogram);

const POOL_HISTOGRAMS: [PoolHistogram; 4] = [
    (
        "wait_seconds",
        "How long clients waited for a server, each time that they got one.",
        |times| &times.wait,
    ),
    (
        "query_seconds",
        "From a request to the end of its answer.",
        |times| &times.query,
    ),
    ("transaction_seconds", "Length of transactions.", |times| {
        &times.transaction
    }),
    (
        "client_login_seconds",
        "From a client's connection to the end of its login.",
        |times| &times.login,
    ),
];

/// A pool's counts, or the sum of the pools that have no series of their own.
#[derive(Default)]
struct PoolSum {
    stats: Stats,
    times: Times,
    pins: BTreeMap<&'static str, u64>,
}

impl PoolSum {
    fn add(&mut self, pool: &PoolMetrics) {
        self.stats += pool.stats;
        self.times += pool.times;
        for (reason, count) in &pool.pins {
            *self.pins.entry(reason).or_default() += count;
        }
    }
}

pub(super) fn write(
    source: Source<'_>,
    pools: &LabelledNames<(String, String)>,
    databases: &LabelledNames<String>,
    text: &mut Exposition,
) {
    let help = "1; the label has the version.";
    let mut family = text.family("pgweir_build_info", Kind::Gauge, help);
    family.add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    write_pools(source, pools, text);
    write_waits_and_login_errors(source, pools, text);
    write_servers(source, databases, text);
    hosts::write_logins(source, databases, text);
    hosts::write_roles(source, text);
    hosts::write_connections(source, text);
    hosts::write_patroni(source, text);
    write_logins(source, text);
    write_memory(source, text);
    write_process(source, text);
    write_http(source, text);
    write_export(source, text);
    let help = "Pools that are added up under (other): see metrics_max_pools.";
    text.gauge("pgweir_metrics_folded_pools", help, pools.folded);
    let help = "Databases that are added up under (other): see metrics_max_pools.";
    text.gauge("pgweir_metrics_folded_databases", help, databases.folded);
}

fn write_pools(source: Source<'_>, kept: &LabelledNames<(String, String)>, text: &mut Exposition) {
    let mut sums = BTreeMap::<[&str; 2], PoolSum>::new();
    for pool in &source.metrics.pool_metrics {
        let names = kept.names(&pool.database, &pool.user);
        sums.entry(names).or_default().add(pool);
    }
    for (name, help, of) in POOL_COUNTERS {
        let name = format!("pgweir_pool_{name}");
        let mut family = text.family(&name, Kind::Counter, help);
        for ([database, user], sum) in &sums {
            family.add(&[("database", database), ("user", user)], of(&sum.stats));
        }
    }
    let help = "Logins to servers, by their result.";
    let mut family = text.family("pgweir_pool_server_logins", Kind::Counter, help);
    for ([database, user], sum) in &sums {
        for (result, count) in [
            ("ok", sum.stats.server_login_count),
            ("failed", sum.stats.server_login_failure_count),
        ] {
            let labels = [("database", *database), ("user", user), ("result", result)];
            family.add(&labels, count);
        }
    }
    let help = "Races between two hosts of a list (host_race_after), by the winner: first (the host that was tried first), second, or none (a login failed or was given up).";
    let mut family = text.family("pgweir_host_races", Kind::Counter, help);
    for ([database, user], sum) in &sums {
        for (winner, count) in [
            ("first", sum.stats.first_host_win_count),
            ("second", sum.stats.second_host_win_count),
            ("none", sum.stats.undecided_race_count),
        ] {
            let labels = [("database", *database), ("user", user), ("winner", winner)];
            family.add(&labels, count);
        }
    }
    let help = "How often clients were pinned to their server, by reason.";
    let mut family = text.family("pgweir_pool_pins", Kind::Counter, help);
    for ([database, user], sum) in &sums {
        for (reason, count) in &sum.pins {
            let labels = [("database", *database), ("user", user), ("reason", reason)];
            family.add(&labels, *count);
        }
    }
    for (name, help, of) in POOL_HISTOGRAMS {
        let name = format!("pgweir_pool_{name}");
        let mut family = text.family(&name, Kind::Histogram, help);
        for ([database, user], sum) in &sums {
            family.add_histogram(&[("database", database), ("user", user)], of(&sum.times));
        }
    }
}

/// Writes the reasons why clients wait, and the pools that can't log in to their server.
fn write_waits_and_login_errors(
    source: Source<'_>,
    kept: &LabelledNames<(String, String)>,
    text: &mut Exposition,
) {
    let table = &source.metrics.pools;
    let at = |name| rows::column(table, name);
    let (waiting, reason) = (at("cl_waiting"), at("wait_reason"));
    let (error, retry) = (at("last_error"), at("retry_in"));
    let (mut waits, mut failing, mut retries) = (Sums::default(), Sums::default(), Sums::default());
    for row in &table.1 {
        let text_of = |column: Option<usize>| column.and_then(|at| rows::text_at(row, at));
        let (Some(database), Some(user)) = (text_of(Some(0)), text_of(Some(1))) else {
            continue;
        };
        let names = kept.names(&database, &user).map(str::to_owned);
        if let Some(reason) = text_of(reason) {
            let [database, user] = names.clone();
            waits.add([database, user, reason], rows::number(row, waiting));
        }
        failing.add(names.clone(), text_of(error).is_some().into());
        retries.raise(names, rows::number(row, retry));
    }
    let help = "Clients that are pinned to a server.";
    let mut family = text.family("pgweir_pool_clients_pinned", Kind::Gauge, help);
    let mut pinned = Sums::default();
    for pool in &source.metrics.pool_metrics {
        let names = kept.names(&pool.database, &pool.user).map(str::to_owned);
        pinned.add(names, pool.pinned);
    }
    for (values, value) in pinned.iter() {
        family.add(&zip(["database", "user"], values), value);
    }
    let help =
        "Clients that wait for a server, by the reason of the wait (wait_reason of SHOW POOLS).";
    let mut family = text.family("pgweir_pool_clients_waiting", Kind::Gauge, help);
    for (values, value) in waits.iter() {
        family.add(&zip(["database", "user", "reason"], values), value);
    }
    let help = "1 if the last login to a server has failed (last_error of SHOW POOLS).";
    let mut family = text.family("pgweir_pool_server_login_failing", Kind::Gauge, help);
    for (values, value) in failing.iter() {
        family.add(&zip(["database", "user"], values), value);
    }
    let help = "Seconds until the next try to log in to a server, after a failure.";
    let mut family = text.family("pgweir_pool_server_login_retry_seconds", Kind::Gauge, help);
    for (values, value) in retries.iter() {
        family.add(&zip(["database", "user"], values), value);
    }
}

fn write_servers(source: Source<'_>, kept: &LabelledNames<String>, text: &mut Exposition) {
    let mut sums = Sums::default();
    for (database, endpoint, count) in &source.metrics.servers {
        let name = kept.name(database);
        let endpoint = if name == OTHER { OTHER } else { endpoint };
        sums.add([name, endpoint].map(str::to_owned), *count);
    }
    let help = "Server connections by the host and port, or the Unix socket, that they lead to.";
    let mut family = text.family("pgweir_server_connections", Kind::Gauge, help);
    for (values, value) in sums.iter() {
        family.add(&zip(["database", "endpoint"], values), value);
    }
    super::fleet::write(source, text);
}

fn write_logins(source: Source<'_>, text: &mut Exposition) {
    let logins = &source.metrics.logins.results;
    let help = "Logins of clients, by their result.";
    let mut family = text.family("pgweir_client_logins", Kind::Counter, help);
    for (result, count) in logins.clients() {
        family.add(&[("result", result.name())], count);
    }
    let help = "TLS handshakes with clients and servers, by their result.";
    let mut family = text.family("pgweir_tls_handshakes", Kind::Counter, help);
    for (side, result, count) in [
        ("client", "ok", logins.client_tls),
        ("client", "failed", logins.client_tls_failed),
        ("server", "ok", logins.server_tls),
        ("server", "failed", logins.server_tls_failed),
    ] {
        family.add(&[("side", side), ("result", result)], count);
    }
}

fn write_memory(source: Source<'_>, text: &mut Exposition) {
    let memory = &source.metrics.memory;
    let table = &memory.table;
    for (column, name, help) in [
        (
            "memtotal",
            "pgweir_memory_bytes",
            "What clients and servers take, by kind (SHOW MEM).",
        ),
        (
            "used",
            "pgweir_memory_objects",
            "How many objects of each kind of memory there are.",
        ),
    ] {
        let column = rows::column(table, column);
        let mut family = text.family(name, Kind::Gauge, help);
        for row in &table.1 {
            let kind = rows::text_at(row, 0).unwrap_or_default();
            family.add(&[("kind", &kind)], rows::number(row, column));
        }
    }
    let help = "memory_limit; 0 if there is none.";
    text.gauge("pgweir_memory_limit_bytes", help, memory.limit as u64);
    let help = "Whether memory_limit is reached, so that logins and new statements are refused.";
    text.gauge("pgweir_memory_is_full", help, memory.is_full.into());
    let help = "Refusals for lack of memory: a statement or login by memory_limit, a login_message by login_memory.";
    let mut family = text.family("pgweir_memory_refusals", Kind::Counter, help);
    for (step, count) in MemoryRefusal::ALL.iter().zip(memory.refusals) {
        family.add(&[("step", step.name())], count);
    }
}

fn write_bans(source: Source<'_>, text: &mut Exposition) {
    let bans = source.metrics.logins.bans;
    for (name, kind, help, value) in [
        (
            "pgweir_failed_login_entries",
            Kind::Gauge,
            "Pairs of address and user in SHOW BANS.",
            bans.entries as u64,
        ),
        (
            "pgweir_bans",
            Kind::Gauge,
            "Pairs of address and user that are banned now.",
            bans.banned as u64,
        ),
        (
            "pgweir_bans_begun",
            Kind::Counter,
            "Bans that began after failed logins (auth_failure_limit).",
            bans.begun,
        ),
        (
            "pgweir_banned_logins",
            Kind::Counter,
            "Logins that were refused because of a ban.",
            bans.refused,
        ),
        (
            "pgweir_failed_login_entries_forgotten",
            Kind::Counter,
            "Entries of SHOW BANS that auth_ban_size has dropped.",
            bans.forgotten,
        ),
    ] {
        text.family(name, kind, help).add(&[], value);
    }
}

fn write_process(source: Source<'_>, text: &mut Exposition) {
    write_bans(source, text);
    let metrics = source.metrics;
    text.family(
        "pgweir_events_dropped",
        Kind::Counter,
        "Entries of SHOW EVENTS that event_history has dropped.",
    )
    .add(&[], metrics.events.1);
    for (name, help, value) in [
        (
            "pgweir_workers",
            "Threads that serve connections.",
            metrics.workers as u64,
        ),
        (
            "pgweir_active_workers",
            "Workers that take part: see worker_busy_target.",
            source.directory.worker_loads().active() as u64,
        ),
        (
            "pgweir_events",
            "Entries of SHOW EVENTS.",
            metrics.events.0 as u64,
        ),
        (
            "pgweir_paused",
            "1 after PAUSE of all databases.",
            metrics.is_paused.into(),
        ),
        (
            "pgweir_suspended",
            "1 after SUSPEND.",
            metrics.is_suspended.into(),
        ),
        (
            "pgweir_ready",
            "1 if /readyz says so.",
            source.http.is_ready.into(),
        ),
        (
            "pgweir_draining",
            "1 after the order to drain.",
            source.http.is_draining.into(),
        ),
    ] {
        text.gauge(name, help, value);
    }
    let help = "Clients that a drain has disconnected.";
    let departed = source.directory.operator().departures().departed();
    text.family("pgweir_drained_clients", Kind::Counter, help)
        .add(&[], departed);
    let help = "How often clients have moved to another worker: see worker_busy_target.";
    text.family("pgweir_client_moves", Kind::Counter, help)
        .add(&[], source.directory.worker_loads().moves());
    write_login_work(source, text);
    let threads = source.directory.occupancies();
    let catalogs = threads.catalogs.read();
    let help =
        "Catalogs of databases that are evaluated on a thread of their own: active and waiting.";
    let mut family = text.family("pgweir_catalog_evaluations", Kind::Gauge, help);
    family.add(&[("state", "active")], catalogs.active as u64);
    family.add(&[("state", "waiting")], catalogs.waiting as u64);
    write_rings(source, text);
    let help = "Evaluations that were given up because too many waited.";
    let mut family = text.family("pgweir_catalog_evaluations_refused", Kind::Counter, help);
    family.add(&[], catalogs.refused);
    let lost = source.directory.catalogs().lost_ddl_counts();
    let help =
        "Transactions with DDL that servers may still commit after their connections were closed.";
    text.gauge("pgweir_lost_ddl", help, lost.present as u64);
    let help = "Such transactions that pgweir has stopped to wait for: see lost_ddl_timeout.";
    let mut family = text.family("pgweir_lost_ddl_given_up", Kind::Counter, help);
    family.add(&[], lost.given_up);
}

fn write_login_work(source: Source<'_>, text: &mut Exposition) {
    let (waiting, turns) = source.directory.worker_loads().login_delays();
    let help =
        "Login steps and disconnects that wait until a worker has served queries: see login_slice.";
    text.gauge("pgweir_waiting_logins", help, waiting as u64);
    let help = "Turns of the event loop in which logins and disconnects used up their time: see login_slice.";
    text.family("pgweir_login_delays", Kind::Counter, help)
        .add(&[], turns);
    let threads = source.directory.occupancies();
    let kinds = [
        ("inquiries", threads.inquiries.read()),
        ("scram_keys", threads.keys.read()),
    ];
    let help = "Slow steps of logins, on separate threads: active and waiting.";
    let mut family = text.family("pgweir_login_jobs", Kind::Gauge, help);
    for (kind, jobs) in kinds {
        family.add(&[("kind", kind), ("state", "active")], jobs.active as u64);
        family.add(&[("kind", kind), ("state", "waiting")], jobs.waiting as u64);
    }
    let help = "Slow steps of logins that were refused because too many waited.";
    let mut family = text.family("pgweir_login_jobs_refused", Kind::Counter, help);
    for (kind, jobs) in kinds {
        family.add(&[("kind", kind)], jobs.refused);
    }
}

fn write_rings(source: Source<'_>, text: &mut Exposition) {
    let numbers = source.directory.occupancies().rings.read();
    for (name, help, value) in [
        (
            "pgweir_io_uring_workers",
            "Workers that use io_uring.",
            numbers.rings,
        ),
        (
            "pgweir_io_uring_buffers",
            "Buffers that these workers lend to io_uring: see io_uring_buffers.",
            numbers.buffers,
        ),
    ] {
        text.gauge(name, help, value as u64);
    }
    for (name, help, value) in [
        (
            "pgweir_io_uring_buffer_shortages",
            "How often a server's bytes found none of io_uring_buffers free.",
            numbers.shortages,
        ),
        (
            "pgweir_io_uring_failures",
            "Workers that have gone on with epoll, because the kernel refused a request of io_uring.",
            numbers.failures,
        ),
    ] {
        text.family(name, Kind::Counter, help).add(&[], value);
    }
}

fn write_http(source: Source<'_>, text: &mut Exposition) {
    let http = source.http;
    text.gauge(
        "pgweir_http_connections",
        "Open HTTP connections.",
        http.connections,
    );
    for (name, help, value) in [
        (
            "refused",
            "HTTP connections that were refused: see http_max_connections.",
            http.refused,
        ),
        (
            "displaced",
            "HTTP connections that were ended for newer ones: see http_max_connections.",
            http.displaced,
        ),
        (
            "timed_out",
            "HTTP connections that were ended by http_timeout.",
            http.timeouts,
        ),
    ] {
        let name = format!("pgweir_http_connections_{name}");
        text.family(&name, Kind::Counter, help).add(&[], value);
    }
    let help = "Requests with credentials that were refused because too many from their address had been wrong.";
    let mut family = text.family("pgweir_http_throttled", Kind::Counter, help);
    family.add(&[], http.throttled);
    let help = "Addresses whose wrong tokens and passwords were forgotten to make room for others: see http_login_addresses.";
    let mut family = text.family("pgweir_http_addresses_forgotten", Kind::Counter, help);
    family.add(&[], http.addresses_forgotten);
    text.gauge(
        "pgweir_http_history_left_out",
        "Pools without samples for the live page: see http_history_pools.",
        http.history_left_out,
    );
    let help = "HTTP requests, by page and by the status of the answer.";
    let mut family = text.family("pgweir_http_requests", Kind::Counter, help);
    for (page, status, count) in &http.answers {
        family.add(&[("page", page), ("status", &status.to_string())], *count);
    }
}

fn write_export(source: Source<'_>, text: &mut Exposition) {
    let export = source.http.export;
    let help = "Traces of transactions: sent to the collector, dropped because otlp_queue was full, or lost with a request that failed.";
    let mut family = text.family("pgweir_otlp_traces", Kind::Counter, help);
    for (result, count) in [
        ("sent", export.traces_sent),
        ("dropped", export.traces_dropped),
        ("failed", export.traces_failed),
    ] {
        family.add(&[("result", result)], count);
    }
    let help = "Requests to the collector of otlp_endpoint, by their result.";
    let mut family = text.family("pgweir_otlp_requests", Kind::Counter, help);
    for (signal, counts) in [
        ("traces", export.trace_requests),
        ("metrics", export.metrics_requests),
    ] {
        for (result, count) in ["ok", "failed"].into_iter().zip(counts) {
            family.add(&[("signal", signal), ("result", result)], count);
        }
    }
}
