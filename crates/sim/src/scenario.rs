//! The properties of the world of a seed: the configuration, the network, and the faults.

use pgweir_auth::{
    scram::{DeriveJob, build_secret},
    userlist::{Secret, Userlist},
};
use pgweir_config::{Config, PoolMode};
use pgweir_core::{ServerTls, Shutdown, Snapshot, TlsTerms};

use crate::{
    checks::{Guarantee, Violation},
    postgres::{Method, ServerOptions},
    world::Caps,
};

/// A fault planted in the simulator's own driver. The checks must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// Every nth `Wanted` between workers is lost.
    LoseWanted(u32),
    /// Every nth `Open` is lost.
    LoseOpen(u32),
    /// Every nth piece of a client's bytes also goes to another client's server.
    LendTwice(u32),
    /// Every nth piece for a client is lost.
    SwallowReply(u32),
    /// Every nth piece for a client arrives after the next one.
    SwapReplies(u32),
    /// Cleans are answered, but have no effect.
    NoClean,
    /// Inspections are answered as if the session had no state.
    NoInspection,
    /// Every nth piece of a client's bytes goes to a server that another client keeps.
    LendKept(u32),
    /// Ticks come this number of microseconds late, so clients keep their servers beyond their turns.
    LateTicks(u64),
    /// The beginning of every nth reply reaches the client, but the pooler does not see that, and the server is lost.
    /// The pooler then repeats the request on another standby, and the client gets a second reply.
    UnseenReply(u32),
    /// Servers report that they are standbys, but can write. So the pooler repeats requests that may have written.
    FalseStandbys,
    /// Servers report that PostgreSQL allows twice as many connections as it does.
    TooManyConnections,
}

/// Probabilities, in thousandths per step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultRates {
    pub(crate) client_killed: u32,
    pub(crate) server_killed: u32,
    pub(crate) cancel: u32,
    pub(crate) time_jump: u32,
    pub(crate) reload: u32,
    /// A new process begins a takeover, or dies.
    pub(crate) takeover: u32,
    /// PostgreSQL can't be reached, or accepts no connections, for a while.
    pub(crate) outage: u32,
}

/// The properties of a world, all derived from its seed.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The number of workers.
    pub workers: usize,
    /// `pool_mode`.
    pub mode: PoolMode,
    /// `default_pool_size` at the start.
    pub pool_size: u32,
    /// The number of clients.
    pub clients: usize,
    /// The largest number of requests of a client.
    pub requests: u32,
    /// The shutdown that ends the world; `None` if all clients disconnect and the process goes on.
    pub shutdown: Option<Shutdown>,
    /// If the process is drained in the middle of the world: how many clients may leave in a second; 0: any number.
    pub drain_rate: Option<u32>,
    /// A planted fault.
    pub planted_fault: Option<PlantedFault>,
    pub(crate) steps: u32,
    pub(crate) fault_rates: FaultRates,
    pub(crate) method: Method,
    pub(crate) accounts: Vec<Account>,
    pub(crate) eager_reports: bool,
    /// The number of bytes that a socket holds.
    pub(crate) capacity: usize,
    /// The largest number of bytes of a read.
    pub(crate) chunk: usize,
    pub(crate) query_wait_timeout: u32,
    /// The number of steps for which a worker may be stalled, roughly.
    pub(crate) stall: u32,
    /// The largest size of a row or result in bytes.
    pub(crate) result_size: usize,
    /// Limits on the number of clients, and on their times.
    pub(crate) client_limits: ClientLimits,
    /// Whether some clients use the console.
    pub(crate) operators: bool,
    /// Whether some clients replicate, with exclusive servers.
    pub(crate) natives: bool,
    /// Whether clients use prepared statements that outlive a pipeline.
    pub(crate) prepares: bool,
    /// Whether some clients send messages in any order, and the others change session state.
    pub(crate) is_wild: bool,
    /// Whether the pooler can read the catalog, which certifies functions and tables.
    pub(crate) certifies: bool,
    /// Whether clients change session state of all kinds.
    pub(crate) sessions: bool,
    /// `max_prepared_statements`.
    pub(crate) statements_max: u32,
    /// Caps on servers.
    pub(crate) caps: Caps,
    /// The connections that use TLS.
    pub(crate) tls: TlsTerms,
    /// Whether PostgreSQL supports TLS.
    pub(crate) server_tls: bool,
    /// Whether all servers are standbys of a list of hosts, so that requests are repeated.
    pub(crate) standbys: bool,
    /// Whether clients move between workers, as the load changes.
    pub moves: bool,
    settings: String,
    databases: String,
}

/// Whether clients without an exclusive server use named prepared statements.
const PREPARED_EVERYWHERE: bool = true;

/// Limits on clients; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientLimits {
    /// Seconds of `query_timeout`.
    pub(crate) query: u32,
    /// Seconds of `client_idle_timeout`.
    pub(crate) idle: u32,
    /// Seconds of `idle_transaction_timeout`.
    pub(crate) idle_transaction: u32,
    /// Seconds of `transaction_timeout`.
    pub(crate) transaction: u32,
    /// Seconds of `client_login_timeout`.
    pub(crate) login: u32,
    /// `max_client_conn`.
    pub(crate) total: u32,
    /// `max_db_client_connections`.
    pub(crate) of_database: u32,
    /// `max_user_client_connections`.
    pub(crate) of_user: u32,
}

impl ClientLimits {
    /// Most worlds have no limit, the others have one or two.
    fn of(rng: &mut fastrand::Rng) -> Self {
        let mut seconds = || if rng.u8(..12) == 0 { rng.u32(1..=3) } else { 0 };
        let mut limits = Self {
            query: seconds(),
            idle: seconds(),
            idle_transaction: seconds(),
            transaction: seconds(),
            login: seconds(),
            ..Self::default()
        };
        match rng.u8(..12) {
            0 => limits.total = rng.u32(2..=8),
            1 => limits.of_database = rng.u32(1..=4),
            2 => limits.of_user = rng.u32(1..=4),
            _ => {}
        }
        limits
    }

    /// Returns whether clients may be disconnected for a timeout.
    pub(crate) fn in_time(&self) -> bool {
        self.query + self.idle + self.idle_transaction + self.transaction + self.login > 0
    }

    fn settings(&self) -> String {
        let total = if self.total > 0 { self.total } else { 100 };
        format!(
            "query_timeout = {}\nclient_idle_timeout = {}\nidle_transaction_timeout = {}\n\
             transaction_timeout = {}\nclient_login_timeout = {}\nmax_client_conn = {total}\n\
             max_db_client_connections = {}\nmax_user_client_connections = {}\n",
            self.query,
            self.idle,
            self.idle_transaction,
            self.transaction,
            self.login,
            self.of_database,
            self.of_user
        )
    }
}

/// The user who may run all commands of the console.
pub(crate) const ADMIN: &str = "ann";
/// The user who may only read.
const STATS_USER: &str = "bob";

/// A user, the same one for clients and for PostgreSQL.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) name: &'static str,
    pub(crate) password: &'static str,
    /// The secret in `auth_file` and in the model of PostgreSQL.
    pub(crate) stored: Secret,
}

impl Scenario {
    /// Creates the scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mode = match seed % 4 {
            0 | 2 => PoolMode::Transaction,
            1 => PoolMode::Session,
            _ => PoolMode::Statement,
        };
        let workers = 2 + (seed / 4 % 2) as usize;
        let pool_size = 1 + (seed / 8 % 4) as u32;
        let capacity = [96, 700, 4096, 65_536][rng.usize(..4)];
        let (auth_type, method) = [
            ("trust", Method::Trust),
            ("trust", Method::Trust),
            ("md5", Method::Md5),
            ("scram-sha-256", Method::Scram),
            ("plain", Method::Password),
        ][rng.usize(..5)];
        let accounts = accounts(method, &mut rng);
        let chunk = [1, 40, 1_000, 70_000][rng.usize(..4)].min(capacity);
        // The text that reads the catalog is long.
        let certifies = chunk >= 700 && rng.u8(..4) > 0;
        let (settings, query_wait_timeout) = settings(mode, auth_type, certifies, &mut rng);
        let connect_query = ["", " connect_query='rows 1 3'"][rng.usize(..2)];
        let target = "host=10.0.0.1 port=5432";
        let databases = match rng.u8(..3) {
            0 => format!("* = {target}{connect_query}\n"),
            1 => format!("alpha = {target}{connect_query}\n* = {target}\n"),
            _ => format!("alpha = {target}\nbeta = {target}{connect_query}\n"),
        };
        let mut fault_rates = fault_rates(&mut rng);
        let prepares = rng.u8(..4) > 0 && (mode == PoolMode::Session || PREPARED_EVERYWHERE);
        let stall = [60, 60, 400][rng.usize(..3)];
        if stall > 60 && rng.bool() {
            fault_rates.time_jump = 30;
        }
        Self {
            seed,
            workers,
            mode,
            pool_size,
            clients: rng.usize(2..=12),
            requests: rng.u32(3..=40),
            shutdown: [
                None,
                None,
                Some(Shutdown::WaitForClients),
                Some(Shutdown::WaitForServers),
                Some(Shutdown::Immediate),
            ][rng.usize(..5)],
            drain_rate: None,
            planted_fault: None,
            steps: rng.u32(1_000..=4_000),
            fault_rates,
            method,
            accounts,
            eager_reports: rng.bool(),
            capacity,
            chunk,
            query_wait_timeout,
            prepares,
            sessions: rng.u8(..3) > 0,
            certifies,
            is_wild: false,
            client_limits: ClientLimits::of(&mut rng),
            operators: rng.bool(),
            natives: rng.u8(..3) == 0,
            statements_max: [1, 2, 3, 200][rng.usize(..4)],
            stall,
            result_size: (capacity * 8).min(chunk * 300).min(60_000),
            caps: Caps::of(seed),
            tls: TlsTerms {
                clients: rng.bool(),
                demanded: false,
                servers: [
                    None,
                    Some(ServerTls::default()),
                    Some(ServerTls {
                        direct: true,
                        ..ServerTls::default()
                    }),
                ][rng.usize(..3)],
            },
            server_tls: rng.bool(),
            standbys: false,
            moves: !(seed / 4).is_multiple_of(3),
            settings,
            databases,
        }
    }

    /// Creates a world as that of the seed, in which all servers are standbys of three hosts and are often killed.
    #[must_use]
    pub fn standbys(seed: u64) -> Self {
        const HOST: &str = "host=10.0.0.1 port=5432";
        let mut scenario = match seed % 3 {
            0 => Self::wild(seed),
            _ => Self::of(seed),
        };
        let hosts = "host=10.0.0.1,10.0.0.2,10.0.0.3 port=5432 target_session_attrs=standby";
        scenario.databases = scenario.databases.replace(HOST, hosts);
        // The model knows no checks of hosts.
        scenario.settings += "host_check_interval = 0\ntarget_session_retry = 1\n";
        scenario.settings += "read_repeat_buffer = 2000\nhost_race_after = 0.0005\n";
        // The time of a world jumps, so that a connection may seem to take longer than a second.
        scenario.settings += "host_connect_timeout = 0\n";
        scenario.standbys = true;
        // The check of replies does not follow a repeated COPY FROM STDIN in each of the other worlds (seed 43).
        scenario.moves = (seed / 4).is_multiple_of(3);
        scenario.fault_rates.server_killed = scenario.fault_rates.server_killed.max(40);
        scenario
    }

    /// Creates a world as that of the seed, in which the process is drained, and no other fault happens.
    #[must_use]
    pub fn draining(seed: u64) -> Self {
        let mut scenario = Self::of(seed);
        scenario.drain_rate = Some([0, 10, 200][(seed % 3) as usize]);
        scenario.shutdown = None;
        scenario.fault_rates = FaultRates::default();
        scenario.client_limits = ClientLimits::default();
        scenario.operators = false;
        scenario
    }

    /// Returns the prefix of the seed by which the test `replay` finds the world.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.standbys, self.is_wild) {
            _ if self.drain_rate.is_some() => "draining:",
            (true, _) => "standbys:",
            (false, true) => "wild:",
            (false, false) => "",
        }
    }

    /// Creates a world as that of the seed, in which some clients send messages in any order and disconnect, and the
    /// others mostly change session state.
    #[must_use]
    pub fn wild(seed: u64) -> Self {
        let usual = Self::of(seed);
        let chunk = if (seed / 4).is_multiple_of(2) {
            1_000
        } else {
            40
        };
        Self {
            is_wild: true,
            sessions: true,
            requests: usual.requests + 40,
            steps: 2 * usual.steps,
            chunk: chunk.min(usual.capacity),
            ..usual
        }
    }

    /// Creates the same world with a planted fault in its driver, and no other faults.
    #[must_use]
    pub fn with_planted_fault(seed: u64, planted_fault: PlantedFault) -> Self {
        let mut scenario = match planted_fault {
            PlantedFault::UnseenReply(_) | PlantedFault::FalseStandbys => Self::standbys(seed),
            _ => Self::of(seed),
        };
        scenario.planted_fault = Some(planted_fault);
        scenario.sessions = true;
        scenario.fault_rates = FaultRates {
            server_killed: match planted_fault {
                PlantedFault::FalseStandbys => 40,
                _ => 0,
            },
            ..FaultRates::default()
        };
        scenario.client_limits = ClientLimits::default();
        scenario.shutdown = None;
        scenario.caps = match planted_fault {
            PlantedFault::TooManyConnections => Caps::in_percent(),
            _ => Caps::none(),
        };
        scenario.clients = scenario.clients.max(5);
        scenario
    }

    /// Returns the configuration with this `default_pool_size`.
    pub(crate) fn snapshot(&self, pool_size: u32) -> Result<Snapshot, Violation> {
        let text = format!(
            "[databases]\n{}[pgbouncer]\n{}default_pool_size = {pool_size}\n\
             worker_busy_target = {}\nmax_prepared_statements = {}\n{}{}",
            self.databases,
            self.settings,
            if self.moves { 60 } else { 0 },
            self.statements_max,
            self.client_limits.settings(),
            self.caps.settings()
        );
        let path = std::path::Path::new("sim.ini");
        let config = Config::load(path, &mut |_| Ok(text.clone()))
            .map_err(|problems| Violation::new(Guarantee::ValidActions, problems.to_string()))?;
        let mut users = Userlist::default();
        for account in &self.accounts {
            users.insert(account.name, account.stored.clone());
        }
        Ok(Snapshot {
            config,
            users,
            tls: self.tls,
            rules: Default::default(),
        })
    }

    pub(crate) fn server_options(&self) -> ServerOptions {
        let secrets = self.accounts.iter();
        ServerOptions {
            method: self.method,
            secrets: secrets
                .map(|account| (account.name.to_owned(), account.stored.clone()))
                .collect(),
            eager_reports: self.eager_reports,
            tls: self.server_tls,
            planted_fault: self.planted_fault,
            standbys: self.standbys,
            checks_all: self.mode != PoolMode::Statement,
            statements_max: match self.mode {
                PoolMode::Session => usize::MAX,
                _ => self.statements_max as usize,
            },
            usable_connections: match self.planted_fault {
                Some(PlantedFault::TooManyConnections) => 2 * self.caps.usable_connections(),
                _ => self.caps.usable_connections(),
            },
        }
    }
}

/// Returns the section `[pgbouncer]` without `default_pool_size`, and the value of `query_wait_timeout`.
fn settings(
    mode: PoolMode,
    auth_type: &str,
    certifies: bool,
    rng: &mut fastrand::Rng,
) -> (String, u32) {
    let fair_window = ["auto", "0"][rng.usize(..2)];
    let query_wait_timeout = if rng.u8(..4) == 0 { 3 } else { 0 };
    let settings = format!(
        "pool_mode = {}\ncatalog_check_interval = {}\nauth_type = {auth_type}\nfair_window = {fair_window}\n\
             query_wait_timeout = {query_wait_timeout}\nserver_login_retry = {}\n\
             server_idle_timeout = {}\nserver_lifetime = {}\nautodb_idle_timeout = 2\n\
             server_connect_limit = {}\nscram_iterations = 2\nserver_reset_query_always = {}\n\
             admin_users = {ADMIN}\nstats_users = {STATS_USER}\nserver_connect_timeout = 0\n",
        mode.as_str(),
        if certifies { 10 } else { 0 },
        rng.u8(1..3),
        [5, 600][rng.usize(..2)],
        [20, 3600][rng.usize(..2)],
        [1, 4][rng.usize(..2)],
        u8::from(rng.u8(..5) == 0),
    );
    (settings, query_wait_timeout)
}

/// Returns one user or two, with secrets in any form that fits the method.
fn accounts(method: Method, rng: &mut fastrand::Rng) -> Vec<Account> {
    let names = [(ADMIN, "secret of ann"), (STATS_USER, "bob's own")];
    let count = rng.usize(1..=names.len());
    let mut accounts = Vec::new();
    for (name, password) in names.into_iter().take(count) {
        let form = rng.u8(..2);
        let stored = match (method, form) {
            (Method::Md5, 0) => {
                let text = pgweir_auth::md5::secret(password, name);
                Secret::parse(&text)
            }
            (Method::Scram, 0) => {
                let keys = DeriveJob::new(password.as_bytes(), vec![5; 16], 2).run();
                Secret::Scram(build_secret(&keys, vec![5; 16], 2))
            }
            _ => Secret::parse(password),
        };
        accounts.push(Account {
            name,
            password,
            stored,
        });
    }
    accounts
}

/// A third of the worlds has a perfect network.
fn fault_rates(rng: &mut fastrand::Rng) -> FaultRates {
    if rng.u8(..3) == 0 {
        return FaultRates::default();
    }
    let mut often = |most: u32| if rng.bool() { rng.u32(..=most) } else { 0 };
    FaultRates {
        client_killed: often(6),
        server_killed: often(6),
        cancel: often(80),
        time_jump: often(8),
        reload: often(4),
        takeover: 2,
        outage: often(6),
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
