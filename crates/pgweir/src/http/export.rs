//! Sends traces and metrics to an OpenTelemetry collector (`otlp_endpoint`), from the HTTP thread.
//!
//! Data that a collector does not take is dropped and counted: the data path never waits for a collector.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use pgweir_core::{Level, Time};
use tokio::{
    task::{self, JoinHandle},
    time,
};

use super::{
    series::{self, ExportCounts, Source},
    state::State,
};
use crate::otlp::{CollectorClient, Target, TraceQueue, metrics_request, traces_request};

/// The time after which the queue of traces is emptied again.
const PERIOD: Duration = Duration::from_millis(250);
/// The largest number of traces in one request.
const BATCH: usize = 512;
/// The pause after a failed request to a collector: the first one, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The shortest time between two log lines about a failing collector, in microseconds.
const SILENCE_US: u64 = 60_000_000;
/// The time for sending the last traces of a process.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The exporter: its target, and its counts.
#[derive(Debug)]
pub(super) struct Exporter {
    queue: TraceQueue,
    target: RefCell<Option<Rc<Target>>>,
    counts: Cell<ExportCounts>,
    /// The time at which counting began.
    since: Time,
    /// Whether the collector has not taken the last request.
    is_failing: Cell<bool>,
    /// The time of the last log line about that.
    logged_at: Cell<Option<Time>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl Exporter {
    pub(super) fn new(queue: TraceQueue, since: Time) -> Self {
        Self {
            queue,
            target: RefCell::default(),
            counts: Cell::default(),
            since,
            is_failing: Cell::new(false),
            logged_at: Cell::new(None),
            tasks: RefCell::default(),
        }
    }

    pub(super) fn counts(&self) -> ExportCounts {
        ExportCounts {
            traces_dropped: self.queue.dropped(),
            ..self.counts.get()
        }
    }

    fn count(&self, add: impl FnOnce(&mut ExportCounts)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }

    fn target(&self) -> Option<Rc<Target>> {
        self.target.borrow().clone()
    }
}

/// Sends data to this target from now on, or to none.
pub(super) fn configure(state: &Rc<State>, target: Option<Target>) {
    let exporter = &state.exporter;
    if exporter.target.borrow().as_deref() == target.as_ref() {
        return;
    }
    for task in exporter.tasks.take() {
        task.abort();
    }
    exporter.is_failing.set(false);
    exporter.logged_at.set(None);
    let is_on = target.is_some();
    let interval = target.as_ref().and_then(|target| target.metrics_interval);
    exporter.target.replace(target.map(Rc::new));
    let mut tasks = Vec::new();
    if is_on {
        tasks.push(task::spawn_local(send_traces(Rc::clone(state))));
    } else {
        drop(exporter.queue.take(usize::MAX));
    }
    if let Some(interval) = interval {
        tasks.push(task::spawn_local(send_metrics(Rc::clone(state), interval)));
    }
    exporter.tasks.replace(tasks);
}

/// Sends the traces that are left when the process ends.
pub(super) async fn send_remaining_traces(state: &Rc<State>) {
    for task in state.exporter.tasks.take() {
        task.abort();
    }
    if !state.exporter.is_failing.get() {
        let mut client = CollectorClient::default();
        // Traces that are not sent in this time are lost with the process.
        let _ = time::timeout(LAST_SEND_TIMEOUT, empty_queue(state, &mut client)).await;
    }
}

async fn send_traces(state: Rc<State>) {
    let mut client = CollectorClient::default();
    let mut pause = PAUSES[0];
    loop {
        let wait = match state.exporter.is_failing.get() {
            true => pause,
            false => PERIOD,
        };
        time::sleep(wait).await;
        pause = match empty_queue(&state, &mut client).await {
            true => PAUSES[0],
            false => (2 * pause).min(PAUSES[1]),
        };
    }
}

/// Sends all traces that wait. Returns whether the collector has taken them.
async fn empty_queue(state: &Rc<State>, client: &mut CollectorClient) -> bool {
    let exporter = &state.exporter;
    while let Some(target) = exporter.target() {
        let traces = exporter.queue.take(BATCH);
        if traces.is_empty() {
            return true;
        }
        let count = traces.len() as u64;
        let body = traces_request(&target.service_name, &traces);
        let (collector, timeout) = (&target.collector, target.timeout);
        let sent = client.post(collector, "/v1/traces", body, timeout).await;
        exporter.count(|counts| match sent {
            Ok(()) => {
                counts.traces_sent += count;
                counts.trace_requests[0] += 1;
            }
            Err(_) => {
                counts.traces_failed += count;
                counts.trace_requests[1] += 1;
            }
        });
        let is_sent = sent.is_ok();
        note(state, &target, sent.map_err(|error| error.to_string()));
        if !is_sent {
            return false;
        }
    }
    true
}

async fn send_metrics(state: Rc<State>, interval: Duration) {
    let mut client = CollectorClient::default();
    loop {
        time::sleep(interval).await;
        let (Some(target), Some(scrape)) = (state.exporter.target(), state.scrape().await) else {
            continue;
        };
        let exporter = &state.exporter;
        let snapshot = state.directory.snapshot();
        let families = series::points(Source {
            metrics: &scrape.metrics,
            names: &state.names,
            snapshot: &snapshot,
            directory: &state.directory,
            http: &state.counts(),
        });
        let times = (exporter.since, state.now());
        let body = metrics_request(&target.service_name, families, times);
        let (collector, timeout) = (&target.collector, target.timeout);
        let sent = client.post(collector, "/v1/metrics", body, timeout).await;
        exporter.count(|counts| counts.metrics_requests[usize::from(sent.is_err())] += 1);
        note(&state, &target, sent.map_err(|error| error.to_string()));
    }
}

/// Logs that a collector begins to fail, or works again; each at most once a minute.
fn note(state: &State, target: &Target, sent: Result<(), String>) {
    let exporter = &state.exporter;
    let was_failing = exporter.is_failing.replace(sent.is_err());
    if was_failing == sent.is_err() {
        return;
    }
    let now = state.now();
    let is_fresh = |at: Time| now.since(at) < SILENCE_US;
    match sent {
        Err(_) if exporter.logged_at.get().is_some_and(is_fresh) => {}
        Err(why) => {
            exporter.logged_at.set(Some(now));
            let text = format!(
                "the OpenTelemetry collector {} does not take data: {why}; until it does, traces are dropped and counted",
                target.collector
            );
            state.say_of("otlp", Level::Warning, text);
        }
        Ok(()) => {
            let text = format!(
                "the OpenTelemetry collector {} takes data again",
                target.collector
            );
            state.say_of("otlp", Level::Log, text);
        }
    }
}
