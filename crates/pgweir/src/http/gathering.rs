//! Collects the workers' counts for metrics. At most one measurement runs at a time, and at most one in each
//! `metrics_interval`; all scrapes meanwhile share its result.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use hyper::body::Bytes;
use pgweir_core::{
    Time,
    mail::Mail,
    metrics::{Measurement, Metrics},
};
use tokio::{sync::oneshot, task, time};

use super::exposition::Format;
use crate::{
    clock::Clock,
    control::Resolver,
    net::{Mailboxes, WorkerMessage},
};

/// The counts of one measurement, and the texts that were made from them.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) metrics: Metrics,
    classic: OnceCell<Bytes>,
    open: OnceCell<Bytes>,
}

impl Scrape {
    fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            classic: OnceCell::new(),
            open: OnceCell::new(),
        }
    }

    /// Returns the text in this format. `make` is called for the first request only.
    pub(super) fn text(&self, format: Format, make: impl FnOnce() -> String) -> Bytes {
        let made = match format {
            Format::Classic => &self.classic,
            Format::OpenMetrics => &self.open,
        };
        made.get_or_init(|| Bytes::from(make())).clone()
    }
}

type Answer = oneshot::Sender<Rc<Scrape>>;

/// Asks the workers for their counts.
#[derive(Debug)]
pub(super) struct Gatherer {
    mailboxes: Mailboxes,
    resolver: Arc<Resolver>,
    clock: Clock,
    interval: Cell<Duration>,
    /// The requests since the present measurement began. There are at most as many as connections.
    waiting: RefCell<Vec<Answer>>,
    /// The requests that the present measurement is for.
    served: RefCell<Vec<Answer>>,
    is_under_way: Cell<bool>,
    last: Cell<Option<Time>>,
}

impl Gatherer {
    pub(super) fn new(mailboxes: Mailboxes, resolver: Arc<Resolver>, clock: Clock) -> Rc<Self> {
        Rc::new(Self {
            mailboxes,
            resolver,
            clock,
            interval: Cell::default(),
            waiting: RefCell::default(),
            served: RefCell::default(),
            is_under_way: Cell::new(false),
            last: Cell::new(None),
        })
    }

    pub(super) fn configure(&self, interval: Duration) {
        self.interval.set(interval);
    }

    /// Returns the counts of a measurement that begins after this call; `None` if the workers don't answer in time.
    pub(super) async fn scrape(self: &Rc<Self>, patience: Duration) -> Option<Rc<Scrape>> {
        let (answer, awaited) = oneshot::channel();
        self.waiting.borrow_mut().push(answer);
        self.begin();
        time::timeout(patience, awaited).await.ok()?.ok()
    }

    /// Takes the workers' answer to a measurement.
    pub(super) fn measured(self: &Rc<Self>, metrics: Metrics) {
        let scrape = Rc::new(Scrape::new(metrics));
        for answer in self.served.take() {
            // A request may have timed out.
            let _ = answer.send(Rc::clone(&scrape));
        }
        self.is_under_way.set(false);
        if !self.waiting.borrow().is_empty() {
            self.begin();
        }
    }

    /// Lets all workers apply an operator's order that has just been given.
    pub(super) fn announce_orders(&self) {
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::OperatorOrders));
    }

    /// Begins a measurement as soon as `metrics_interval` allows it, unless one is under way.
    fn begin(self: &Rc<Self>) {
        if self.is_under_way.replace(true) {
            return;
        }
        let gatherer = Rc::clone(self);
        task::spawn_local(async move {
            time::sleep(gatherer.pause()).await;
            let now = gatherer.clock.now();
            gatherer.last.set(Some(now));
            let mut waiting = gatherer.waiting.take();
            waiting.retain(|answer| !answer.is_closed());
            if waiting.is_empty() {
                return gatherer.is_under_way.set(false);
            }
            *gatherer.served.borrow_mut() = waiting;
            let measurement = Measurement::new(gatherer.resolver.known(), now);
            let mail = Mail::Measure(Box::new(measurement));
            if let Some(first) = gatherer.mailboxes.workers().next() {
                gatherer.mailboxes.send(first, WorkerMessage::Mail(mail));
            }
        });
    }

    /// Returns the time to wait before the next measurement.
    fn pause(&self) -> Duration {
        let since = self.last.get().map(|last| self.clock.now().since(last));
        let passed = since.map_or(Duration::MAX, Duration::from_micros);
        self.interval.get().saturating_sub(passed)
    }
}
