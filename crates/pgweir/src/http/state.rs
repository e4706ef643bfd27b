//! The state of the HTTP thread: the process that it reports on, and its own counters.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use hyper::StatusCode;
use pgweir_core::{Audit, Directory, Halt, Level, LogLine, Time, shared::events::EventKind};
use tokio::{sync::Mutex, time};

use super::{
    Options, Tokens,
    export::Exporter,
    gathering::{Gatherer, Scrape},
    history::History,
    identity::{Failures, Identity, Trusted},
    live_page::LivePage,
    pages::{Page, Sender},
    series::{HttpCounts, Names},
};
use crate::{
    clock::Clock,
    console_link::{CONSOLE, ConsoleConnector, Link, LinkError, Reply},
    control::Request,
    log::LogBuffer,
    otlp::TraceQueue,
};

/// The shortest time between two log lines about requests without a right, in microseconds.
const DENIED_PAUSE: u64 = 1_000_000;

/// The time without a request after which the link to the console is closed, in microseconds.
const LINK_IDLE_US: u64 = 5_000_000;

/// The HTTP thread's state and counters.
#[derive(Debug)]
pub(super) struct State {
    pub(super) directory: Arc<Directory>,
    pub(super) names: Names,
    gatherer: Rc<Gatherer>,
    clock: Clock,
    lines: RefCell<LogBuffer>,
    options: RefCell<Options>,
    /// Whether another process replaces this one.
    pub(super) is_handing_over: Cell<bool>,
    is_draining: Cell<bool>,
    /// The thread's counters.
    pub(super) counters: Counters,
    /// The links to the console.
    pub(super) links: ConsoleLinks,
    /// Asks the control thread for changes of the configuration.
    pub(super) control: crossbeam_channel::Sender<Request>,
    pub(super) failures: Failures,
    pub(super) trusted: Trusted,
    pub(super) history: RefCell<History>,
    pub(super) page: LivePage,
    pub(super) exporter: Exporter,
}

/// The HTTP thread's counters.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) connections: Cell<u64>,
    pub(super) refused: Cell<u64>,
    pub(super) displaced: Cell<u64>,
    pub(super) timeouts: Cell<u64>,
    /// Requests that were refused unchecked, since too many from their address had failed.
    pub(super) throttled: Cell<u64>,
    answers: RefCell<BTreeMap<(Page, u16), u64>>,
    /// The time of the last log line about a request without a right, and the number of such requests since.
    denied: Cell<(Option<Time>, u64)>,
}

/// The links of the HTTP thread to the console.
#[derive(Debug)]
pub(super) struct ConsoleLinks {
    pub(super) connector: ConsoleConnector,
    /// The link for tables of the console, and the time of its last use.
    tables: Mutex<Option<(Link, Time)>>,
    /// The link that has ordered SUSPEND.
    pub(super) suspender: RefCell<Option<Link>>,
}

impl State {
    pub(super) fn new(
        (connector, control): (ConsoleConnector, crossbeam_channel::Sender<Request>),
        gatherer: Rc<Gatherer>,
        clock: Clock,
        lines: LogBuffer,
        traces: TraceQueue,
    ) -> Self {
        Self {
            directory: Arc::clone(&connector.directory),
            names: Names::default(),
            gatherer,
            clock,
            lines: RefCell::new(lines),
            options: RefCell::default(),
            is_handing_over: Cell::new(false),
            is_draining: Cell::new(false),
            counters: Counters {
                connections: Cell::new(0),
                refused: Cell::new(0),
                displaced: Cell::new(0),
                timeouts: Cell::new(0),
                throttled: Cell::new(0),
                answers: RefCell::default(),
                denied: Cell::default(),
            },
            links: ConsoleLinks {
                connector,
                tables: Mutex::default(),
                suspender: RefCell::default(),
            },
            control,
            failures: Failures::default(),
            trusted: Trusted::default(),
            history: RefCell::default(),
            page: LivePage::default(),
            exporter: Exporter::new(traces, clock.now()),
        }
    }

    pub(super) fn configure(&self, options: Options) {
        self.gatherer.configure(options.interval);
        self.failures
            .configure(options.login_failures_max, options.login_addresses_max);
        self.trusted.configure(options.login_trust_us);
        let mut history = self.history.borrow_mut();
        history.configure(options.history_interval, options.history_pools_max);
        drop(history);
        self.options.replace(options);
    }

    pub(super) fn options(&self) -> Options {
        self.options.borrow().clone()
    }

    pub(super) fn tokens(&self) -> Option<Arc<Tokens>> {
        self.options.borrow().tokens.clone()
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the time that a request waits for workers: half of the time that a connection has.
    pub(super) fn patience(&self) -> Duration {
        const PATIENCE: Duration = Duration::from_secs(5);
        (self.options.borrow().timeout / 2).min(PATIENCE)
    }

    /// Returns new counts; `None` if the workers don't answer in time.
    pub(super) async fn scrape(&self) -> Option<Rc<Scrape>> {
        self.gatherer.scrape(self.patience()).await
    }

    /// Returns the answer to a SHOW of the console.
    ///
    /// # Errors
    ///
    /// The console refuses the command, or does not answer in time.
    pub(super) async fn show(&self, command: &str) -> Result<Reply, LinkError> {
        let answered = time::timeout(self.patience(), self.show_by_link(command));
        answered.await.unwrap_or(Err(LinkError::Silent))
    }

    async fn show_by_link(&self, command: &str) -> Result<Reply, LinkError> {
        let mut place = self.links.tables.lock().await;
        // The link is taken out of its place, so that it is not used again if its answer was not awaited.
        if let Some((mut link, _)) = place.take() {
            match link.run(command).await {
                Err(LinkError::Ended) => {}
                outcome => {
                    self.keep_link(&mut place, link, &outcome);
                    return outcome;
                }
            }
        }
        let mut link = self.links.connector.open_own("http").await?;
        let outcome = link.run(command).await;
        self.keep_link(&mut place, link, &outcome);
        outcome
    }

    fn keep_link(
        &self,
        place: &mut Option<(Link, Time)>,
        link: Link,
        outcome: &Result<Reply, LinkError>,
    ) {
        let is_usable = matches!(outcome, Ok(_) | Err(LinkError::Command(_)));
        if is_usable {
            *place = Some((link, self.now()));
        }
    }

    /// Closes the link to the console if no request has used it for a while. A shutdown waits for clients of pools to
    /// leave, but not for such links. During a shutdown, the link that has ordered SUSPEND is closed, too, so that
    /// clients go on and can leave.
    pub(super) fn close_idle_link(&self) {
        if self.directory.operator().is_ending() {
            self.links.suspender.take();
        }
        let now = self.now();
        if let Ok(mut place) = self.links.tables.try_lock() {
            place.take_if(|(_, used)| now.since(*used) > LINK_IDLE_US);
        }
    }

    /// Takes a sample of all pools, if it is time for one.
    pub(super) async fn sample(&self) {
        let now = self.now().0;
        if !self.history.borrow().is_due(now) {
            return;
        }
        if let Some(scrape) = self.scrape().await {
            self.history.borrow_mut().add(&scrape.metrics, now);
        }
    }

    /// Records a command, and the database that it names (which may be empty): an event, and a line if `log_audit` is
    /// set. The console itself does not record requests over HTTP, since it does not know their senders.
    pub(super) fn audit(
        &self,
        level: Level,
        identity: &Identity,
        sender: &Sender,
        (what, database): (&str, &str),
        outcome: &str,
    ) {
        let (kind, text) = match level {
            Level::Log => (EventKind::Command, Cow::Borrowed(what)),
            _ => (
                EventKind::CommandFailed,
                format!("{what}: {outcome}").into(),
            ),
        };
        let about = (database, &*identity.user);
        self.directory.note_event(kind, about, &text, self.now());
        if !self.directory.snapshot().config.settings.log_audit {
            return;
        }
        let (who, from) = (&identity.name, &sender.name);
        let text = format!("http: audit: {who} from {from}: {what}: {outcome}");
        let audit = Audit {
            action: "http command",
            command: what.to_owned(),
            user: who.to_string(),
            database: CONSOLE.to_owned(),
            address: from.to_string(),
            outcome: outcome.to_owned(),
        };
        let line = LogLine {
            audit: Some(Box::new(audit)),
            ..LogLine::new(level, "", text)
        };
        self.lines.borrow_mut().say_line(self.now(), &line);
    }

    /// Checks whether clients are accepted.
    ///
    /// # Errors
    ///
    /// The reason why they are not.
    pub(super) fn readiness(&self) -> Result<(), Cow<'static, str>> {
        let operator = self.directory.operator();
        if operator.is_ending() {
            return Err("pgweir is shutting down".into());
        }
        if self.is_handing_over.get() {
            return Err("another process takes over".into());
        }
        if self.is_draining.get() {
            return Err("draining".into());
        }
        match operator.halt() {
            Halt::Suspended => Err("pgweir is suspended".into()),
            // Clients are accepted, and wait.
            Halt::Paused | Halt::No => Ok(()),
        }
    }

    /// Makes the process not ready from now on, as long as it lives.
    pub(super) fn drain(&self, sender: &Sender) {
        let text = format!(
            "drain: ordered by {}; from now on /readyz answers 503",
            sender.name
        );
        if !self.is_draining.replace(true) {
            self.say(Level::Log, text);
        }
    }

    /// Makes the process not ready, and orders all clients to leave between two of their transactions, `drain_rate` of
    /// them in a second, or more if less than half of them would leave in the first half of `within` seconds. 0: there
    /// is no such time. Returns the number of clients that are left.
    pub(super) fn send_clients_away(&self, sender: &Sender, within: f64) -> usize {
        self.drain(sender);
        let left = self.directory.client_counts().of_databases_except(CONSOLE);
        let rate = match self.directory.snapshot().config.settings.drain_rate {
            0 => 0,
            rate => rate.max(rate_for(left, within)),
        };
        let departures = self.directory.operator().departures();
        if departures.order(self.now(), rate) {
            let text = format!(
                "drain: {} lets clients leave between their transactions",
                sender.name
            );
            self.say(Level::Log, text);
            self.gatherer.announce_orders();
        }
        left
    }

    pub(super) fn answered(&self, page: Page, status: StatusCode) {
        let mut answers = self.counters.answers.borrow_mut();
        *answers.entry((page, status.as_u16())).or_default() += 1;
    }

    /// Logs a request whose sender had no right to it.
    pub(super) fn say_denied(&self, sender: &Sender, page: Page) {
        self.say_refused(sender, page.name(), "wrong token or role");
    }

    /// Writes a line about a refused request, at most one in a second.
    pub(super) fn say_refused(&self, sender: &Sender, what: &str, why: &str) {
        let now = self.now();
        let (logged_at, unsaid) = self.counters.denied.get();
        if logged_at.is_some_and(|at| now.since(at) < DENIED_PAUSE) {
            return self.counters.denied.set((logged_at, unsaid + 1));
        }
        self.counters.denied.set((Some(now), 0));
        let mut text = format!("refused {what} to {}: {why}", sender.name);
        if unsaid > 0 {
            text += &format!("; {unsaid} more since the last line about this");
        }
        self.say(Level::Warning, text);
    }

    pub(super) fn say(&self, level: Level, text: impl Into<String>) {
        self.say_of("http", level, text);
    }

    /// Writes a line about a part of pgweir.
    pub(super) fn say_of(&self, part: &str, level: Level, text: impl Into<String>) {
        let text = format!("{part}: {}", text.into());
        self.lines.borrow_mut().say(self.now(), level, text);
    }

    pub(super) fn counts(&self) -> HttpCounts {
        let answers = self.counters.answers.borrow();
        HttpCounts {
            connections: self.counters.connections.get(),
            refused: self.counters.refused.get(),
            displaced: self.counters.displaced.get(),
            timeouts: self.counters.timeouts.get(),
            throttled: self.counters.throttled.get(),
            addresses_forgotten: self.failures.forgotten(),
            history_left_out: self.history.borrow().left_out(),
            answers: answers
                .iter()
                .map(|((page, status), count)| (page.name(), *status, *count))
                .collect(),
            is_draining: self.is_draining.get(),
            is_ready: self.readiness().is_ok(),
            export: self.exporter.counts(),
        }
    }
}

/// Returns how many clients have to leave in a second so that all of them have left after half of these seconds.
fn rate_for(clients: usize, within: f64) -> u32 {
    match within > 0.0 {
        // The conversion saturates.
        true => (clients as f64 / (within / 2.0)).ceil() as u32,
        false => 0,
    }
}

/// Adds one to a counter.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
