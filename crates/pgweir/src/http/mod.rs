//! Metrics and health checks over HTTP (`http_listen`), on a thread of their own.
//!
//! Nothing on the data path knows of it. Metrics are what workers have counted anyway: a measurement visits them one
//! after the other by mail, one at a time.
//!
//! - `sockets`: the listening sockets. `connections`: one request on each connection, and their bounds.
//! - `pages`: what is answered. `access`, `identity`: to whom. `state`: what the thread knows.
//! - `api`: the console as JSON. `console_link`: a client of the console.
//! - `live_page`: the page that shows the API's answers. `history`: samples of pools for it.
//! - `gathering`: asks workers for their counts. `series`, `process`: what becomes of the counts.
//! - `exposition`, `negotiation`: Prometheus' text formats. `export`: the same figures, and traces, for OpenTelemetry.

mod access;
mod api;
mod connections;
mod console_link;
mod export;
mod exposition;
mod gathering;
mod history;
mod identity;
mod live_page;
mod negotiation;
mod pages;
mod process;
mod series;
mod sockets;
mod state;

use std::{
    collections::HashMap,
    io,
    rc::Rc,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::Sender;
use pgweir_config::{HttpAddress, HttpTls, Settings};
use pgweir_core::{Directory, metrics::Metrics};
use rustls::ServerConfig;
use tokio::{
    runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{self, JoinHandle as Task, LocalSet},
    time::{self, MissedTickBehavior},
};

pub(crate) use self::{
    access::Tokens,
    exposition::{FamilyPoints, Kind, PointValue},
    sockets::{Bound, HttpListenError, Others},
};
use self::{
    connections::{Accepting, Connections},
    console_link::Switchboard,
    gathering::Gatherer,
    state::State,
};
use crate::{
    clock::Clock,
    control::{Request, Resolver},
    log::Log,
    net::{Load, Mailboxes},
    otlp::{Target, TraceQueue},
    tls::Contexts,
};

/// By how much the thread's nice value is raised: workers come first.
const NICE: i32 = 5;

/// How requests are served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    timeout: Duration,
    connections_max: usize,
    interval: Duration,
    /// What TCP connections are encrypted with, and whether they must be.
    tls: Option<(Arc<ServerConfig>, bool)>,
    /// The most failed logins of one address a minute.
    login_failures_max: u32,
    /// The most addresses whose failed logins are remembered.
    login_addresses_max: usize,
    /// For how long a checked password is trusted, in microseconds.
    login_trust_us: u64,
    /// The largest body of a request.
    body_max: usize,
    history_interval: Duration,
    history_pools_max: usize,
    tokens: Option<Arc<Tokens>>,
    otlp: Option<Target>,
}

impl Options {
    /// As the configuration has it.
    pub(crate) fn of(settings: &Settings, tls: &Contexts, tokens: Option<Arc<Tokens>>) -> Self {
        let tls = match settings.http_tls {
            HttpTls::Client => tls.http(),
            HttpTls::Disable => None,
        };
        Self {
            timeout: Duration::from_micros(settings.http_timeout.0),
            connections_max: settings.http_max_connections as usize,
            interval: Duration::from_micros(settings.metrics_interval.0),
            tls,
            login_failures_max: settings.http_max_login_failures,
            login_addresses_max: settings.http_login_addresses as usize,
            login_trust_us: settings.http_login_cache.0,
            body_max: settings.http_max_body as usize,
            history_interval: Duration::from_micros(settings.http_history_interval.0),
            history_pools_max: settings.http_history_pools as usize,
            tokens,
            otlp: Target::of(settings),
        }
    }
}

/// What the thread needs of the process.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    switchboard: Switchboard,
    resolver: Arc<Resolver>,
    clock: Clock,
    log: Log,
    control: Sender<Request>,
    traces: TraceQueue,
}

impl Surroundings {
    pub(crate) fn new(
        directory: &Arc<Directory>,
        (mailboxes, load): (&Mailboxes, &Load),
        resolver: &Arc<Resolver>,
        clock: Clock,
        (log, control): (&Log, &Sender<Request>),
        traces: &TraceQueue,
    ) -> Self {
        Self {
            switchboard: Switchboard {
                directory: Arc::clone(directory),
                mailboxes: mailboxes.clone(),
                load: load.clone(),
            },
            resolver: Arc::clone(resolver),
            clock,
            log: log.clone(),
            control: control.clone(),
            traces: traces.clone(),
        }
    }
}

/// Sockets that are to be listened on from now on: those that are open already are not opened again.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    addresses: Vec<HttpAddress>,
    bound: Vec<Bound>,
}

impl Opened {
    /// Opens the sockets of `http_listen` at the start of the process.
    ///
    /// # Errors
    /// One of the addresses can't be listened on.
    pub(crate) fn first(settings: &Settings, others: Others) -> Result<Self, HttpListenError> {
        let addresses = settings.http_listen.addresses();
        let bound = addresses
            .iter()
            .map(|address| Bound::open(address, settings, others));
        Ok(Self {
            bound: bound.collect::<Result<_, _>>()?,
            addresses: addresses.to_vec(),
        })
    }

    /// Where requests will be answered.
    pub(crate) fn addresses(&self) -> &[HttpAddress] {
        &self.addresses
    }
}

/// What the thread is told.
#[derive(Debug)]
enum Order {
    /// Listen on these sockets and, if `keeps`, on open ones of these addresses.
    Listen {
        opened: Opened,
        keeps: bool,
    },
    Configure(Options),
    Measured(Box<Metrics>),
    /// Another process takes our place, or does not after all.
    HandingOver(bool),
}

/// The thread, as the control thread sees it. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Http {
    surroundings: Surroundings,
    running: Option<(UnboundedSender<Order>, JoinHandle<()>)>,
    addresses: Vec<HttpAddress>,
    /// The addresses whose sockets are open, or were when this was last looked at: those that a reload leaves are open
    /// until the thread has accepted the connections that wait in them.
    open: Vec<Weak<HttpAddress>>,
}

impl Http {
    /// Starts the thread, if there is anything to listen on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        surroundings: Surroundings,
        opened: Opened,
        settings: &Settings,
        tls: &Contexts,
        tokens: &Option<Arc<Tokens>>,
    ) -> io::Result<Self> {
        let mut http = Self {
            surroundings,
            running: None,
            addresses: Vec::new(),
            open: Vec::new(),
        };
        http.apply(opened, Options::of(settings, tls, tokens.clone()))?;
        Ok(http)
    }

    /// Opens what `settings` ask for and is not open yet. Nothing else changes before [`apply`](Self::apply).
    ///
    /// # Errors
    /// One of the addresses can't be listened on.
    pub(crate) fn prepare(&self, settings: &Settings) -> Result<Opened, HttpListenError> {
        let addresses = settings.http_listen.addresses();
        let is_new = |address: &&HttpAddress| !self.addresses.contains(address);
        let overlaps = |address: &HttpAddress, open: &HttpAddress| {
            let port = port(address);
            address == open || port.is_some() && self::port(open) == port
        };
        let is_ours = |address: &HttpAddress| {
            let mut open = self.open.iter().filter_map(Weak::upgrade);
            open.any(|open| overlaps(address, &open))
        };
        let bound = addresses.iter().filter(is_new).map(|address| {
            let others = match is_ours(address) {
                true => Others::Expected,
                false => Others::Refused,
            };
            Bound::open(address, settings, others)
        });
        Ok(Opened {
            bound: bound.collect::<Result<_, _>>()?,
            addresses: addresses.to_vec(),
        })
    }

    /// Listens on these sockets from now on, and on no others.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn apply(&mut self, opened: Opened, options: Options) -> io::Result<()> {
        let is_idle = opened.addresses.is_empty() && options.otlp.is_none();
        if self.running.is_none() && is_idle {
            return Ok(());
        }
        self.run()?;
        self.addresses.clone_from(&opened.addresses);
        self.open.retain(|address| address.strong_count() > 0);
        let bound = opened.bound.iter();
        self.open
            .extend(bound.map(|bound| Arc::downgrade(&bound.address)));
        self.order(Order::Configure(options));
        self.order(Order::Listen {
            opened,
            keeps: true,
        });
        Ok(())
    }

    /// The workers have answered.
    pub(crate) fn measured(&self, metrics: Box<Metrics>) {
        self.order(Order::Measured(metrics));
    }

    /// Another process listens in our place.
    pub(crate) fn hand_over(&self) {
        self.order(Order::HandingOver(true));
        self.order(Order::Listen {
            opened: Opened::default(),
            keeps: false,
        });
    }

    /// It does not after all: all sockets are opened anew, since it may have replaced the files of Unix sockets.
    ///
    /// # Errors
    /// One of the addresses can't be listened on.
    pub(crate) fn take_back(&self, settings: &Settings) -> Result<(), HttpListenError> {
        self.order(Order::HandingOver(false));
        let bound = self
            .addresses
            .iter()
            .map(|address| Bound::open(address, settings, Others::Expected));
        let opened = Opened {
            bound: bound.collect::<Result<_, _>>()?,
            addresses: self.addresses.clone(),
        };
        let keeps = false;
        self.order(Order::Listen { opened, keeps });
        Ok(())
    }

    fn order(&self, order: Order) {
        if let Some((orders, _)) = &self.running {
            // The thread ends with its sender only.
            let _ = orders.send(order);
        }
    }

    fn run(&mut self) -> io::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (sender, orders) = unbounded_channel();
        let surroundings = self.surroundings.clone();
        let thread = thread::Builder::new().name("http".to_owned());
        let thread = thread.spawn(move || {
            // On Linux this is the thread's own. Without it, requests are answered as well.
            let _ = rustix::process::nice(NICE);
            LocalSet::new().block_on(&runtime, obey(orders, surroundings));
        })?;
        self.running = Some((sender, thread));
        Ok(())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some((orders, thread)) = self.running.take() {
            drop(orders);
            // A panic was reported on standard error.
            let _ = thread.join();
        }
    }
}

fn port(address: &HttpAddress) -> Option<u16> {
    match address {
        HttpAddress::Tcp { port, .. } => Some(*port),
        HttpAddress::Unix(_) => None,
    }
}

/// The thread's work, until the control thread has left.
async fn obey(mut orders: UnboundedReceiver<Order>, surroundings: Surroundings) {
    let Surroundings {
        switchboard,
        resolver,
        clock,
        log,
        control,
        traces,
    } = surroundings;
    let gatherer = Gatherer::new(switchboard.mailboxes.clone(), resolver, clock);
    let state = State::new(
        (switchboard, control),
        Rc::clone(&gatherer),
        clock,
        log.buffer(),
        traces,
    );
    let state = Rc::new(state);
    let mut housekeeper: Option<Task<()>> = None;
    let connections = Rc::<Connections>::default();
    let mut listening = HashMap::<HttpAddress, Vec<Accepting>>::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Configure(options) => {
                export::configure(&state, options.otlp.clone());
                state.configure(options);
            }
            Order::Measured(metrics) => gatherer.measured(*metrics),
            Order::HandingOver(is_handing_over) => state.is_handing_over.set(is_handing_over),
            Order::Listen { opened, keeps } => {
                listening.retain(|address, _| keeps && opened.addresses.contains(address));
                for bound in opened.bound {
                    let Bound { address, sockets } = bound;
                    let tasks = sockets.into_iter().filter_map(|socket| {
                        let accepting = connections.accept_on(socket, &address, &state);
                        accepting.ok()
                    });
                    let tasks = tasks.collect();
                    listening.insert(HttpAddress::clone(&address), tasks);
                }
                if listening.is_empty() {
                    housekeeper.take().iter().for_each(Task::abort);
                    state.history.borrow_mut().clear();
                } else if housekeeper.is_none() {
                    housekeeper = Some(task::spawn_local(keep_house(Rc::clone(&state))));
                }
            }
        }
    }
    export::say_farewell(&state).await;
}

/// What happens each second while somebody may ask: samples for the live page, and the end of an idle link.
async fn keep_house(state: Rc<State>) {
    let mut seconds = time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        state.close_idle_link();
        state.sample().await;
    }
}
