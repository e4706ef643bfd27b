//! The scenarios, and their targets.

use super::{
    subject::{Driver, SubjectKind},
    sweep::Sweep,
};

/// The clients that haproxy can serve in most scenarios: each has a server connection of its own.
const PROXY_CLIENTS_MAX: u32 = 90;

/// Server connections of the throw-away PostgreSQL.
const CONNECTIONS_MAX: u32 = 200;

/// Server connections that sessions of several kinds share.
const SHARED_SERVERS: u32 = 10;

/// The name of PgBouncer in the tables.
pub(super) const PGBOUNCER: &str = "pgbouncer";

/// The name of haproxy in the tables.
pub(super) const HAPROXY: &str = "haproxy";

/// A kind of load.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The name on the command line.
    pub(super) name: &'static str,
    /// A shorter name.
    pub(super) alias: &'static str,
    /// A description in a few words.
    pub(super) what: &'static str,
    /// The kind of load.
    pub(super) kind: Kind,
    /// Clients at once.
    clients: u32,
    /// How clients connect.
    pub(super) access: Access,
    /// The subject with which pgweir is compared.
    pub(super) other_proxy: OtherProxy,
    /// The targets for pgweir.
    pub(super) targets: &'static [Target],
}

/// The subject with which pgweir is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherProxy {
    /// Another pooler; haproxy stands beside it where each client can have a server.
    PgBouncer,
    /// haproxy, and PgBouncer if its version keeps prepared statements in transaction mode by default.
    Preparing,
    /// PostgreSQL itself, beside PgBouncer in session mode.
    Direct,
    /// No subject: the limits are fixed.
    Nobody,
}

/// How clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Without TLS and without a password.
    Plain,
    /// Over TLS, without a password.
    Tls,
    /// Without TLS, with a password by SCRAM-SHA-256.
    Scram,
}

impl OtherProxy {
    /// The name of the subject; for `Preparing`, that of haproxy.
    pub(super) const fn subject(self) -> &'static str {
        match self {
            OtherProxy::PgBouncer => PGBOUNCER,
            OtherProxy::Preparing => HAPROXY,
            OtherProxy::Direct => "direct",
            OtherProxy::Nobody => "",
        }
    }
}

impl Scenario {
    /// Returns whether a subject can take part in the scenario.
    pub(super) fn takes(&self, kind: SubjectKind) -> bool {
        match kind {
            SubjectKind::Pgweir { .. } => true,
            SubjectKind::PgBouncer { prepares } => match self.other_proxy {
                OtherProxy::PgBouncer | OtherProxy::Direct => true,
                OtherProxy::Preparing => prepares,
                OtherProxy::Nobody => false,
            },
            SubjectKind::Haproxy => match self.other_proxy {
                OtherProxy::PgBouncer => {
                    self.clients <= PROXY_CLIENTS_MAX && self.access == Access::Plain
                }
                OtherProxy::Preparing => true,
                OtherProxy::Direct | OtherProxy::Nobody => false,
            },
        }
    }

    /// Returns the seconds of one run of pgbench, if the options say `wanted` seconds. A thousand new servers behind a
    /// forwarder need their time to wake up.
    pub(super) fn seconds(&self, wanted: u32) -> u32 {
        match self.other_proxy {
            OtherProxy::Preparing if self.clients > PROXY_CLIENTS_MAX => wanted.max(20),
            _ => wanted,
        }
    }

    /// Returns the number of server connections of a pooler, if the options say `wanted`.
    pub(super) fn pool(&self, wanted: u32) -> u32 {
        match self.kind {
            Kind::Sessions(..) => SHARED_SERVERS,
            _ => wanted,
        }
    }

    /// Returns the `max_connections` of PostgreSQL that the scenario needs.
    pub(super) fn connections_max(&self) -> u32 {
        if let Kind::Sweep(sweep) = self.kind {
            return CONNECTIONS_MAX + sweep.direct_connections();
        }
        match self.other_proxy {
            OtherProxy::Preparing => CONNECTIONS_MAX.max(self.clients + CONNECTIONS_MAX),
            OtherProxy::PgBouncer | OtherProxy::Direct | OtherProxy::Nobody => CONNECTIONS_MAX,
        }
    }
}

/// The kinds of loads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// pgbench with these arguments.
    Pgbench(&'static [&'static str]),
    /// A client reads a large table by COPY.
    Copy,
    /// Clients that do nothing. The options have their number.
    Idle,
    /// The scenario opens as many clients as the limit of open files allows.
    Max,
    /// This number of clients that each prepare the same statements.
    Statements(u32),
    /// Two runs of pgbench side by side with these arguments, once with the sessions that a client
    /// has by itself and once with two kinds of sessions: these startup options, one of each run.
    Sessions(&'static [&'static str], [&'static str; 2]),
    /// A client changes its session state by each kind of statement.
    State,
    /// Many clients on few servers, with session state and without.
    Contended,
    /// Queries while many clients log in.
    Storm,
    /// Growing numbers of clients.
    Sweep(Sweep),
}

/// A figure of pgweir and its limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// The figure's key.
    pub(super) key: &'static str,
    /// The limit.
    pub(super) limit: Limit,
    /// The driver that the target is for; `None` for both.
    pub(super) driver: Option<Driver>,
}

/// A target for a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// At most this multiple of the value of the subject with this name. Without that subject, the target does not
    /// apply.
    Ratio(&'static str, f64),
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Equal to another figure of the same run.
    All(&'static str),
}

/// Returns the targets for the CPU time of the pooler, for each driver, and for that of the whole machine. All of them
/// are ratios to PgBouncer.
const fn per_transaction(epoll: f64, io_uring: f64) -> [Target; 3] {
    [
        ratio("cpu_us", epoll, Some(Driver::Epoll)),
        ratio("cpu_us", io_uring, Some(Driver::IoUring)),
        ratio("machine_us", 1.0, None),
    ]
}

const fn ratio(key: &'static str, limit: f64, driver: Option<Driver>) -> Target {
    Target {
        key,
        limit: Limit::Ratio(PGBOUNCER, limit),
        driver,
    }
}

const PREPARED: [Target; 4] = {
    let [epoll, io_uring, machine] = per_transaction(0.78, 0.65);
    let forwarder = Target {
        limit: Limit::Ratio(HAPROXY, 1.15),
        driver: None,
        ..epoll
    };
    [epoll, io_uring, machine, forwarder]
};

/// All scenarios, in the order of a full run.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "simple-32",
        alias: "simple",
        what: "select-only, simple protocol, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "simple", "-c", "32", "-j", "1"]),
        clients: 32,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.85, 0.72),
    },
    Scenario {
        name: "extended-32",
        alias: "extended",
        what: "select-only, extended protocol, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "extended", "-c", "32", "-j", "1"]),
        clients: 32,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.85, 0.72),
    },
    Scenario {
        name: "simple-1000",
        alias: "many",
        what: "select-only, simple protocol, 1,000 clients",
        kind: Kind::Pgbench(&["-S", "-M", "simple", "-c", "1000", "-j", "2"]),
        clients: 1_000,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.75, 0.65),
    },
    Scenario {
        name: "extended-1000",
        alias: "many-extended",
        what: "select-only, extended protocol, 1,000 clients",
        kind: Kind::Pgbench(&["-S", "-M", "extended", "-c", "1000", "-j", "2"]),
        clients: 1_000,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.75, 0.65),
    },
    Scenario {
        name: "prepared-32",
        alias: "prepared",
        what: "select-only, prepared statements, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "prepared", "-c", "32", "-j", "1"]),
        clients: 32,
        access: Access::Plain,
        other_proxy: OtherProxy::Preparing,
        targets: &PREPARED,
    },
    Scenario {
        name: "prepared-1000",
        alias: "many-prepared",
        what: "select-only, prepared statements, 1,000 clients",
        kind: Kind::Pgbench(&["-S", "-M", "prepared", "-c", "1000", "-j", "2"]),
        clients: 1_000,
        access: Access::Plain,
        other_proxy: OtherProxy::Preparing,
        targets: &PREPARED,
    },
    Scenario {
        name: "tpcb-32",
        alias: "tpcb",
        what: "TPC-B-like transactions, simple protocol, 32 clients",
        kind: Kind::Pgbench(&["-M", "simple", "-c", "32", "-j", "1"]),
        clients: 32,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.88, 0.80),
    },
    Scenario {
        name: "conn",
        alias: "short",
        what: "a new connection for each query, no password, 20 clients",
        kind: Kind::Pgbench(&["-C", "-S", "-c", "20", "-j", "1"]),
        clients: 20,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.80, 0.75),
    },
    Scenario {
        name: "scram-conn",
        alias: "scram",
        what: "a new connection for each query, password by SCRAM-SHA-256, 20 clients",
        kind: Kind::Pgbench(&["-C", "-S", "-c", "20", "-j", "1"]),
        clients: 20,
        access: Access::Scram,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.75, 0.70),
    },
    Scenario {
        name: "tls-32",
        alias: "tls",
        what: "select-only over TLS, simple protocol, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "simple", "-c", "32", "-j", "1"]),
        clients: 32,
        access: Access::Tls,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.85, 0.80),
    },
    Scenario {
        name: "tls-conn",
        alias: "tls-short",
        what: "a new connection over TLS for each query (ECDSA certificate), 20 clients",
        kind: Kind::Pgbench(&["-C", "-S", "-c", "20", "-j", "1"]),
        clients: 20,
        access: Access::Tls,
        other_proxy: OtherProxy::PgBouncer,
        targets: &per_transaction(0.65, 0.60),
    },
    Scenario {
        name: "copy",
        alias: "large",
        what: "COPY TO STDOUT of a large table, one client",
        kind: Kind::Copy,
        clients: 1,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &[
            ratio("cpu_s_gb", 0.45, Some(Driver::Epoll)),
            ratio("cpu_s_gb", 0.40, Some(Driver::IoUring)),
            ratio("machine_s_gb", 1.0, None),
        ],
    },
    Scenario {
        name: "idle",
        alias: "memory",
        what: "connected clients that do nothing",
        kind: Kind::Idle,
        clients: 5_000,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &[Target {
            key: "kb_client",
            limit: Limit::AtMost(3.0),
            driver: None,
        }],
    },
    Scenario {
        name: "max",
        alias: "connections",
        what: "as many connected clients as the limit of open files allows, each asks once",
        kind: Kind::Max,
        clients: 18_000,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &[Target {
            key: "served",
            limit: Limit::All("wanted"),
            driver: None,
        }],
    },
    Scenario {
        name: "sessions",
        alias: "search-path",
        what: "select-only, 100 clients with two values of search_path on 10 servers, and without",
        kind: Kind::Sessions(
            &["-S", "-c", "50", "-j", "1"],
            ["-csearch_path=public", "-csearch_path=public,pg_catalog"],
        ),
        clients: 100,
        access: Access::Plain,
        other_proxy: OtherProxy::Nobody,
        targets: &[Target {
            key: "kept",
            limit: Limit::AtLeast(0.8),
            driver: None,
        }],
    },
    Scenario {
        name: "statements",
        alias: "shared-statements",
        what: "1,000 clients that each prepare the same 1,000 statements: memory beside the texts",
        kind: Kind::Statements(1_000),
        clients: 1_000,
        access: Access::Plain,
        other_proxy: OtherProxy::Nobody,
        targets: &[Target {
            key: "kb_client",
            limit: Limit::AtMost(4.0),
            driver: None,
        }],
    },
    Scenario {
        name: "state",
        alias: "session-state",
        what: "statements that touch a session, one client, x direct",
        kind: Kind::State,
        clients: 1,
        access: Access::Plain,
        other_proxy: OtherProxy::Direct,
        targets: &[],
    },
    Scenario {
        name: "state-contended",
        alias: "contended",
        what: "session state of 30 clients on 10 servers, CPU of PostgreSQL and pgweir",
        kind: Kind::Contended,
        clients: 30,
        access: Access::Plain,
        other_proxy: OtherProxy::Nobody,
        targets: &[],
    },
    Scenario {
        name: "login-storm",
        alias: "storm",
        what: "latency of queries while 1,000 clients at a time log in",
        kind: Kind::Storm,
        clients: 1_000,
        access: Access::Plain,
        other_proxy: OtherProxy::PgBouncer,
        targets: &[Target {
            key: "added_ms",
            limit: Limit::AtMost(2.0),
            driver: None,
        }],
    },
    Scenario {
        name: "clients",
        alias: "by-clients",
        what: "select-only, throughput and latency by the number of clients",
        kind: Kind::Sweep(Sweep {
            arguments: &["-S"],
            clients: &[10, 30, 100, 300, 1_000, 2_500, 5_000],
            sampling_rate: 0.05,
        }),
        clients: 5_000,
        access: Access::Plain,
        other_proxy: OtherProxy::Direct,
        targets: &[],
    },
    Scenario {
        name: "logins",
        alias: "by-logins",
        what: "a new connection for each query, throughput and latency by the number of clients",
        kind: Kind::Sweep(Sweep {
            arguments: &["-S", "-C"],
            clients: &[1, 2, 4, 8, 16, 32, 64, 128],
            sampling_rate: 1.0,
        }),
        clients: 128,
        access: Access::Plain,
        other_proxy: OtherProxy::Direct,
        targets: &[],
    },
];
