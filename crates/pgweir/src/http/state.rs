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
use pgweir_core::{Directory, Halt, Level, Time};

use super::{
    Options, Tokens,
    gathering::{Gatherer, Scrape},
    pages::{Page, Sender},
    series::{HttpCounts, Names},
};
use crate::{clock::Clock, log::LogBuffer};

/// Requests without a right are logged at most once in this time, in microseconds.
const DENIED_PAUSE: u64 = 1_000_000;

/// What the HTTP thread knows, and counts.
#[derive(Debug)]
pub(super) struct State {
    pub(super) directory: Arc<Directory>,
    pub(super) names: Names,
    gatherer: Rc<Gatherer>,
    clock: Clock,
    lines: RefCell<LogBuffer>,
    options: RefCell<Options>,
    /// Another process takes our place.
    pub(super) is_handing_over: Cell<bool>,
    is_draining: Cell<bool>,
    pub(super) connections: Cell<u64>,
    pub(super) refused: Cell<u64>,
    pub(super) displaced: Cell<u64>,
    pub(super) timeouts: Cell<u64>,
    answers: RefCell<BTreeMap<(Page, u16), u64>>,
    /// When a request without a right was last logged, and how many were not since.
    denied: Cell<(Option<Time>, u64)>,
}

impl State {
    pub(super) fn new(
        directory: Arc<Directory>,
        gatherer: Rc<Gatherer>,
        clock: Clock,
        lines: LogBuffer,
    ) -> Self {
        Self {
            directory,
            names: Names::default(),
            gatherer,
            clock,
            lines: RefCell::new(lines),
            options: RefCell::default(),
            is_handing_over: Cell::new(false),
            is_draining: Cell::new(false),
            connections: Cell::new(0),
            refused: Cell::new(0),
            displaced: Cell::new(0),
            timeouts: Cell::new(0),
            answers: RefCell::default(),
            denied: Cell::default(),
        }
    }

    pub(super) fn configure(&self, options: Options) {
        self.gatherer.configure(options.interval);
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

    /// Fresh counts; `None` if the workers don't answer in half of the time that a connection has.
    pub(super) async fn scrape(&self) -> Option<Rc<Scrape>> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let patience = (self.options.borrow().timeout / 2).min(PATIENCE);
        self.gatherer.scrape(patience).await
    }

    /// Are clients accepted?
    ///
    /// # Errors
    /// Why not.
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
            // Clients may come, and wait.
            Halt::Paused | Halt::No => Ok(()),
        }
    }

    /// From now on, as long as the process lives, it is not ready.
    pub(super) fn drain(&self, sender: &Sender) {
        let text = format!("drain: {} has ordered it, /readyz says no", sender.name);
        if !self.is_draining.replace(true) {
            self.say(Level::Log, text);
        }
    }

    pub(super) fn answered(&self, page: Page, status: StatusCode) {
        let mut answers = self.answers.borrow_mut();
        *answers.entry((page, status.as_u16())).or_default() += 1;
    }

    /// A request had no right to what it asked for.
    pub(super) fn say_denied(&self, sender: &Sender, page: Page) {
        let now = self.now();
        let (logged_at, unsaid) = self.denied.get();
        if logged_at.is_some_and(|at| now.since(at) < DENIED_PAUSE) {
            return self.denied.set((logged_at, unsaid + 1));
        }
        self.denied.set((Some(now), 0));
        let mut text = format!(
            "refused {} to {}: wrong token or role",
            page.name(),
            sender.name
        );
        if unsaid > 0 {
            text += &format!("; {unsaid} more since the last line about this");
        }
        self.say(Level::Warning, text);
    }

    pub(super) fn say(&self, level: Level, text: impl Into<String>) {
        let text = format!("http: {}", text.into());
        self.lines.borrow_mut().say(self.now(), level, text);
    }

    pub(super) fn counts(&self) -> HttpCounts {
        let answers = self.answers.borrow();
        HttpCounts {
            connections: self.connections.get(),
            refused: self.refused.get(),
            displaced: self.displaced.get(),
            timeouts: self.timeouts.get(),
            answers: answers
                .iter()
                .map(|((page, status), count)| (page.name(), *status, *count))
                .collect(),
            is_draining: self.is_draining.get(),
            is_ready: self.readiness().is_ok(),
        }
    }
}

/// Adds one.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
