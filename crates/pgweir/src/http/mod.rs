//! Metrics and health checks over HTTP (`http_listen`), on a thread of their own.
//!
//! No code on the data path depends on this module. Workers always count; a measurement visits one worker after the
//! other by mail and collects their counts. One measurement runs at a time.
//!
//! - `sockets`: the listening sockets. `connections`: one request on each connection, and the limits on connections.
//! - `pages`: the answers. `identity`: the sender of a request. `access`: the rights of tokens. `state`: the state
//!   of the thread.
//! - `api`: the console as JSON.
//! - `live_page`: the page that shows the API's answers. `history`: samples of pools for it.
//! - `gathering`: asks workers for their counts. `series`, `process`: the metrics that are made of the counts and
//!   of the kernel's figures.
//! - `exposition`: Prometheus' text formats. `export`: the same figures, and traces, for OpenTelemetry.

mod access;
mod api;
mod connections;
mod export;
mod exposition;
mod gathering;
mod history;
mod identity;
mod live_page;
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
    pages::{CLIENTS_LEAVE, WITHIN, clients_left},
    sockets::{AddressUse, Bound, HttpListenError},
};
use self::{
    connections::{Accepting, Connections},
    gathering::Gatherer,
    state::State,
};
use crate::{
    clock::Clock,
    console_link::ConsoleConnector,
    control::{Request, Resolver},
    log::Log,
    net::{Load, Mailboxes},
    otlp::{Target, TraceQueue},
    tls::Contexts,
};

/// The number by which the thread's nice value is raised: workers come first.
const NICE: i32 = 5;

/// The settings with which requests are served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    timeout: Duration,
    connections_max: usize,
    interval: Duration,
    /// The TLS context for TCP connections, and whether TLS is required.
    tls: Option<(Arc<ServerConfig>, bool)>,
    /// The largest number of failed logins of one address a minute.
    login_failures_max: u32,
    /// The largest number of addresses whose failed logins are remembered.
    login_addresses_max: usize,
    /// The time for which a checked password is trusted, in microseconds.
    login_trust_us: u64,
    /// The largest body of a request.
    body_max: usize,
    history_interval: Duration,
    history_pools_max: usize,
    tokens: Option<Arc<Tokens>>,
    otlp: Option<Target>,
}

impl Options {
    /// Returns the options of a configuration.
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

/// The parts of the process that the thread uses.
#[derive(Debug, Clone)]
pub(crate) struct Dependencies {
    connector: ConsoleConnector,
    resolver: Arc<Resolver>,
    clock: Clock,
    log: Log,
    control: Sender<Request>,
    traces: TraceQueue,
}

impl Dependencies {
    pub(crate) fn new(
        directory: &Arc<Directory>,
        (mailboxes, load): (&Mailboxes, &Load),
        resolver: &Arc<Resolver>,
        clock: Clock,
        (log, control): (&Log, &Sender<Request>),
        traces: &TraceQueue,
    ) -> Self {
        Self {
            connector: ConsoleConnector {
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

    /// Returns what opens connections to the console.
    pub(crate) fn connector(&self) -> &ConsoleConnector {
        &self.connector
    }
}

/// The sockets that were opened for a configuration. Addresses whose sockets are open already are not opened again.
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
    pub(crate) fn first(settings: &Settings, others: AddressUse) -> Result<Self, HttpListenError> {
        let addresses = settings.http_listen.addresses();
        let bound = addresses
            .iter()
            .map(|address| Bound::open(address, settings, others));
        Ok(Self {
            bound: bound.collect::<Result<_, _>>()?,
            addresses: addresses.to_vec(),
        })
    }

    /// Returns the addresses of the configuration.
    pub(crate) fn addresses(&self) -> &[HttpAddress] {
        &self.addresses
    }
}

/// Messages to the thread.
#[derive(Debug)]
enum Message {
    /// Listen on these sockets and, if `keeps`, on open ones of these addresses.
    Listen {
        opened: Opened,
        keeps: bool,
    },
    Configure(Options),
    Measured(Box<Metrics>),
    /// Online restart: another process takes over from this one (`true`), or has failed to (`false`).
    HandingOver(bool),
}

/// The control thread's handle of the HTTP thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Http {
    dependencies: Dependencies,
    running: Option<(UnboundedSender<Message>, JoinHandle<()>)>,
    addresses: Vec<HttpAddress>,
    /// The addresses whose sockets were open at the last check. A socket that a reload has removed stays open until
    /// the thread has accepted the connections that wait in its queue.
    open: Vec<Weak<HttpAddress>>,
}

impl Http {
    /// Starts the thread, if the configuration has an address or a collector.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        dependencies: Dependencies,
        opened: Opened,
        settings: &Settings,
        tls: &Contexts,
        tokens: &Option<Arc<Tokens>>,
    ) -> io::Result<Self> {
        let mut http = Self {
            dependencies,
            running: None,
            addresses: Vec::new(),
            open: Vec::new(),
        };
        http.apply(opened, Options::of(settings, tls, tokens.clone()))?;
        Ok(http)
    }

    /// Opens the sockets of `settings` that are not open yet. The sockets are used from [`apply`](Self::apply) on.
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
                true => AddressUse::Expected,
                false => AddressUse::Refused,
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
        self.send(Message::Configure(options));
        self.send(Message::Listen {
            opened,
            keeps: true,
        });
        Ok(())
    }

    /// Takes the workers' answer to a measurement.
    pub(crate) fn measured(&self, metrics: Box<Metrics>) {
        self.send(Message::Measured(metrics));
    }

    /// Stops to listen, since another process listens from now on.
    pub(crate) fn hand_over(&self) {
        self.send(Message::HandingOver(true));
        self.send(Message::Listen {
            opened: Opened::default(),
            keeps: false,
        });
    }

    /// Listens again, since the other process has failed. All sockets are opened anew: the other process may have
    /// replaced the files of Unix sockets.
    ///
    /// # Errors
    ///
    /// One of the addresses can't be listened on.
    pub(crate) fn take_back(&self, settings: &Settings) -> Result<(), HttpListenError> {
        self.send(Message::HandingOver(false));
        let bound = self
            .addresses
            .iter()
            .map(|address| Bound::open(address, settings, AddressUse::Expected));
        let opened = Opened {
            bound: bound.collect::<Result<_, _>>()?,
            addresses: self.addresses.clone(),
        };
        let keeps = false;
        self.send(Message::Listen { opened, keeps });
        Ok(())
    }

    fn send(&self, message: Message) {
        if let Some((messages, _)) = &self.running {
            // The thread ends only after its sender was dropped.
            let _ = messages.send(message);
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
        let (sender, messages) = unbounded_channel();
        let dependencies = self.dependencies.clone();
        let thread = thread::Builder::new().name("http".to_owned());
        let thread = thread.spawn(move || {
            // On Linux, this changes the thread only. If it fails, requests are answered all the same.
            let _ = rustix::process::nice(NICE);
            LocalSet::new().block_on(&runtime, handle_messages(messages, dependencies));
        })?;
        self.running = Some((sender, thread));
        Ok(())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some((messages, thread)) = self.running.take() {
            drop(messages);
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

/// Handles messages until the control thread drops its handle.
async fn handle_messages(mut messages: UnboundedReceiver<Message>, dependencies: Dependencies) {
    let Dependencies {
        connector,
        resolver,
        clock,
        log,
        control,
        traces,
    } = dependencies;
    let gatherer = Gatherer::new(connector.mailboxes.clone(), resolver, clock);
    let state = State::new(
        (connector, control),
        Rc::clone(&gatherer),
        clock,
        log.buffer(),
        traces,
    );
    let state = Rc::new(state);
    let mut every_second: Option<Task<()>> = None;
    let connections = Rc::<Connections>::default();
    let mut listening = HashMap::<HttpAddress, Vec<Accepting>>::new();
    while let Some(message) = messages.recv().await {
        match message {
            Message::Configure(options) => {
                export::configure(&state, options.otlp.clone());
                state.configure(options);
            }
            Message::Measured(metrics) => gatherer.measured(*metrics),
            Message::HandingOver(is_handing_over) => state.is_handing_over.set(is_handing_over),
            Message::Listen { opened, keeps } => {
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
                    every_second.take().iter().for_each(Task::abort);
                    state.history.borrow_mut().clear();
                } else if every_second.is_none() {
                    every_second = Some(task::spawn_local(run_every_second(Rc::clone(&state))));
                }
            }
        }
    }
    export::send_remaining_traces(&state).await;
}

/// Does the work of each second while requests may arrive: takes samples for the live page, and closes an idle link.
async fn run_every_second(state: Rc<State>) {
    let mut seconds = time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        state.close_idle_link();
        state.sample().await;
    }
}
