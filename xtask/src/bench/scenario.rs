//! What is measured, and what is aimed at.

/// The clients that haproxy can serve: each has a server connection of its own.
const PROXY_CLIENTS_MAX: u32 = 90;

/// One kind of load.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// A shorter name.
    pub(super) alias: &'static str,
    /// What it is.
    pub(super) what: &'static str,
    /// How it is done.
    pub(super) kind: Kind,
    /// Clients at once.
    clients: u32,
    /// What pgweir is to reach.
    pub(super) targets: &'static [Target],
}

impl Scenario {
    /// Whether a forwarder with one server per client can take part.
    pub(super) fn fits_proxy(&self) -> bool {
        self.clients <= PROXY_CLIENTS_MAX
    }
}

/// How a load is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// pgbench with these arguments.
    Pgbench(&'static [&'static str]),
    /// One client reads a large table by COPY.
    Copy,
    /// Clients that do nothing; as many as the options say.
    Idle,
    /// As many clients as the limit of open files allows.
    Max,
}

/// A figure of pgweir and its limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// The figure's key.
    pub(super) key: &'static str,
    /// The limit.
    pub(super) limit: Limit,
    /// For which thread counts; empty for all.
    pub(super) workers: &'static [u32],
}

/// Where a figure should be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// At most so many times PgBouncer's.
    Ratio(f64),
    /// At most this.
    AtMost(f64),
    /// Equal to another figure of the same run.
    All(&'static str),
}

const fn ratio(key: &'static str, limit: f64, workers: &'static [u32]) -> Target {
    Target {
        key,
        limit: Limit::Ratio(limit),
        workers,
    }
}

const PER_TRANSACTION: &[Target] = &[
    ratio("cpu_us", 1.0, &[1]),
    ratio("cpu_us", 1.1, &[2]),
    ratio("machine_us", 1.0, &[]),
];

/// All scenarios, in the order of a full run.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "simple-32",
        alias: "simple",
        what: "select-only, simple protocol, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "simple", "-c", "32", "-j", "1"]),
        clients: 32,
        targets: PER_TRANSACTION,
    },
    Scenario {
        name: "extended-32",
        alias: "extended",
        what: "select-only, extended protocol, 32 clients",
        kind: Kind::Pgbench(&["-S", "-M", "extended", "-c", "32", "-j", "1"]),
        clients: 32,
        targets: PER_TRANSACTION,
    },
    Scenario {
        name: "simple-1000",
        alias: "many",
        what: "select-only, simple protocol, 1,000 clients",
        kind: Kind::Pgbench(&["-S", "-M", "simple", "-c", "1000", "-j", "2"]),
        clients: 1_000,
        targets: PER_TRANSACTION,
    },
    Scenario {
        name: "extended-1000",
        alias: "many-extended",
        what: "select-only, extended protocol, 1,000 clients",
        kind: Kind::Pgbench(&["-S", "-M", "extended", "-c", "1000", "-j", "2"]),
        clients: 1_000,
        targets: PER_TRANSACTION,
    },
    Scenario {
        name: "conn",
        alias: "short",
        what: "a new connection for each query, no password, 20 clients",
        kind: Kind::Pgbench(&["-C", "-S", "-c", "20", "-j", "1"]),
        clients: 20,
        targets: PER_TRANSACTION,
    },
    Scenario {
        name: "copy",
        alias: "large",
        what: "COPY TO STDOUT of a large table, one client",
        kind: Kind::Copy,
        clients: 1,
        targets: &[ratio("cpu_s_gb", 0.7, &[])],
    },
    Scenario {
        name: "idle",
        alias: "memory",
        what: "connected clients that do nothing",
        kind: Kind::Idle,
        clients: 5_000,
        targets: &[Target {
            key: "kb_client",
            limit: Limit::AtMost(3.0),
            workers: &[],
        }],
    },
    Scenario {
        name: "max",
        alias: "connections",
        what: "as many connected clients as the limit of open files allows, each asks once",
        kind: Kind::Max,
        clients: 18_000,
        targets: &[Target {
            key: "served",
            limit: Limit::All("wanted"),
            workers: &[],
        }],
    },
];
