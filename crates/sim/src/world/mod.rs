//! The world: workers, network, PostgreSQL and clients under one random number generator.

mod balance;
mod caps;
mod driver;
mod events;
mod fault_injection;
mod operator;
mod takeover;
mod verdict;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use pgweir_config::PoolMode;
use pgweir_core::{Directory, Shutdown, Time, Worker, WorkerId, mail::Mail};

pub(crate) use self::caps::Caps;
use self::{
    driver::{Host, Posted},
    fault_injection::Outage,
    takeover::Departed,
};
use crate::{
    EventCounts,
    checks::{Guarantee, SentMessage, Violation},
    client::{Client, Intent, PastFaults},
    network::Network,
    postgres::Cluster,
    scenario::{PlantedFault, Scenario},
};

/// The number of steps after which the end of a world counts as never reached.
const STEPS_TO_END: u32 = 400_000;
/// The number of times that the clock may be advanced at the end, when no other event can happen.
const JUMPS_TO_END: u32 = 700;
/// Microseconds for which all clients are silent before they disconnect.
const REST: u64 = 2_000_000;
/// The number of lines that the trace keeps.
const TRACE_KEPT: usize = 4000;

/// A simulated world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) step: u32,
    /// The last events, if a trace is wanted.
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) event_counts: EventCounts,
    rng: fastrand::Rng,
    /// Decides when the load changes and clients move. Worlds without that are the same as before.
    moves_rng: fastrand::Rng,
    /// Backends that could be lent, if the pooler took them from their clients, and the time since when.
    could_be_free: BTreeMap<usize, Time>,
    now: Time,
    net: Network,
    cluster: Cluster,
    clients: Vec<Client>,
    /// For each client, the servers' messages that it has not received yet.
    said: Vec<VecDeque<SentMessage>>,
    hosts: Vec<Host>,
    /// The mail by sender and receiver. The control thread has the number after the last worker's.
    posts: BTreeMap<(usize, usize), VecDeque<Posted>>,
    directory: Arc<Directory>,
    faults: PastFaults,
    outage: Option<Outage>,
    /// Whether clients are being handed over to another process.
    departing: bool,
    /// The clients that were handed over.
    departed: Vec<Departed>,
    pool_size: u32,
    /// The largest number of servers that a pool may have, while a smaller limit is on its way.
    most_servers: usize,
    /// The largest number of servers that the process may have.
    most_of_process: usize,
    /// The number of events that the planted fault could have affected.
    fault_chances: u32,
    /// For each client, a piece that the planted fault holds back.
    kept: BTreeMap<usize, Vec<u8>>,
}

impl World {
    pub(crate) fn new(scenario: Scenario, traces: bool) -> Result<Self, Violation> {
        let mut rng = fastrand::Rng::with_seed(scenario.seed ^ 0x5eed);
        let snapshot = Arc::new(scenario.snapshot(scenario.pool_size)?);
        let key = std::array::from_fn(|_| rng.u8(..));
        let directory = Arc::new(Directory::new(scenario.workers, snapshot, key));
        let host = |index: usize| Host {
            worker: Worker::new(WorkerId(index as u8), Arc::clone(&directory)),
            actions: Default::default(),
            table: BTreeMap::new(),
            pending: VecDeque::new(),
            stopped: false,
        };
        Ok(Self {
            hosts: (0..scenario.workers).map(host).collect(),
            step: 0,
            trace: traces.then(Vec::new),
            event_counts: EventCounts::new(),
            rng,
            moves_rng: fastrand::Rng::with_seed(scenario.seed ^ 0x10ad),
            could_be_free: BTreeMap::new(),
            now: Time(1_700_000_000_000_000),
            net: Network::default(),
            cluster: Cluster::new(scenario.server_options()),
            clients: Vec::new(),
            said: Vec::new(),
            posts: BTreeMap::new(),
            directory,
            faults: PastFaults {
                wait_timeout: scenario.query_wait_timeout > 0,
                statement_mode: scenario.mode == PoolMode::Statement,
                limits: scenario.client_limits,
                ..PastFaults::default()
            },
            outage: None,
            departing: false,
            departed: Vec::new(),
            pool_size: scenario.pool_size,
            most_servers: scenario.pool_size as usize + scenario.caps.above_size(),
            most_of_process: scenario.caps.of_process_at_first(),
            fault_chances: 0,
            kept: BTreeMap::new(),
            scenario,
        })
    }

    /// Simulates the world to its end.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        let mut next_quiet_step = self.rng.u32(100..600);
        let mut stalled = None;
        while self.step < self.scenario.steps {
            self.step += 1;
            self.now = self.now.after(self.rng.u64(..400));
            self.update_outage(false);
            if self.step >= next_quiet_step {
                next_quiet_step += self.rng.u32(100..900);
                self.end_restart();
                self.run_until_quiet()?;
                self.check_quiet_world()?;
                self.inject_fault_when_quiet();
            }
            if self.rng.u32(..self.scenario.stall) == 0 {
                stalled = self.rng.bool().then(|| self.rng.usize(..self.hosts.len()));
            }
            if self.clients.len() < self.scenario.clients && self.rng.u8(..25) == 0 {
                self.arrive()?;
            }
            self.inject_fault()?;
            if self.step == self.scenario.steps / 2 {
                self.begin_drain();
            }
            if self.scenario.moves && self.moves_rng.u8(..12) == 0 {
                self.change_load()?;
            }
            let events = self.enabled(stalled, true);
            let client_acts = events.is_empty() || self.rng.u8(..8) == 0;
            if client_acts && self.act(Intent::SendRequests) {
                continue;
            }
            match self.rng.choice(&events).copied() {
                Some(event) => self.perform(event)?,
                None => self.pass_time(),
            }
        }
        self.disconnect_when_done()?;
        self.check_end()?;
        let of_servers = std::mem::take(&mut self.cluster.event_counts);
        self.event_counts.extend(of_servers);
        for client in &self.clients {
            *self
                .event_counts
                .entry("error of the pooler's")
                .or_default() += client.errors_made;
            *self.event_counts.entry("request withdrawn").or_default() += client.withdrawn;
            *self.event_counts.entry("notified").or_default() += client.notifications;
            *self.event_counts.entry("request answered").or_default() += client.answers;
            *self.event_counts.entry("drained").or_default() += u64::from(client.was_drained);
        }
        Ok(())
    }

    /// Lets all events happen that are possible without the clock.
    fn run_until_quiet(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS_TO_END {
            let events = self.enabled(None, false);
            let Some(event) = self.rng.choice(&events).copied() else {
                return Ok(());
            };
            self.perform(event)?;
        }
        Err(Violation::new(
            Guarantee::Waits,
            "the world does not come to rest",
        ))
    }

    /// Ends the world: no more faults happen, and all clients complete their requests and disconnect.
    fn disconnect_when_done(&mut self) -> Result<(), Violation> {
        self.note(|| "going home".to_owned());
        self.update_outage(true);
        if self.departing {
            // Clients that were handed over are back before the shutdown.
            self.end_restart();
            self.run_until_quiet()?;
        }
        self.rest()?;
        if self.faults.drain {
            let idle: Vec<bool> = self.clients.iter().map(Client::is_idle).collect();
            self.rest()?;
            self.check_drain(&idle)?;
        }
        if let Some(how) = self.scenario.shutdown {
            self.note(|| format!("shutdown: {how:?}"));
            self.faults.shutdown = true;
            self.mail_to_all(|| Mail::Shutdown(how));
        }
        let mut jumps = 0;
        for _ in 0..STEPS_TO_END {
            self.step += 1;
            self.now = self.now.after(self.rng.u64(..400));
            let events = self.enabled(None, false);
            if (events.is_empty() || self.rng.u8(..8) == 0) && self.act(Intent::Disconnect) {
                continue;
            }
            if let Some(event) = self.rng.choice(&events).copied() {
                self.perform(event)?;
                continue;
            }
            self.check_quiet_world()?;
            if self.clients.iter().all(Client::is_over) && self.is_like_at_start() {
                return Ok(());
            }
            jumps += 1;
            if jumps > JUMPS_TO_END {
                break;
            }
            self.pass_time();
        }
        Err(self.never_ends())
    }

    /// Advances the clock while clients are silent. No client may keep a server that others wait for.
    fn rest(&mut self) -> Result<(), Violation> {
        let until = self.now.after(REST);
        while self.now < until {
            self.run_until_quiet()?;
            self.check_quiet_world()?;
            self.pass_time();
        }
        Ok(())
    }

    /// Returns whether nothing can happen before the next tick.
    fn pass_time(&mut self) {
        let ticks = self.hosts.iter().filter(|host| !host.stopped);
        // The work that is due is processed late, if at all.
        let due = |host: &Host| host.worker.next_tick().filter(|&at| at > self.now);
        let next = ticks
            .filter_map(|host| due(host).or(self.tick_of(host)))
            .min();
        let later = self.now.after(100_000);
        self.now = next.unwrap_or(later).max(self.now);
    }

    /// Returns when this world's driver calls a worker's tick.
    fn tick_of(&self, host: &Host) -> Option<Time> {
        let at = host.worker.next_tick()?;
        Some(match self.scenario.planted_fault {
            Some(PlantedFault::LateTicks(late)) => at.after(late),
            _ => at,
        })
    }

    /// Returns the faults so far: after them, clients may get errors.
    fn faults(&self) -> PastFaults {
        PastFaults {
            servers_lost: self.cluster.lost
                || (self.faults.shutdown
                    && self.scenario.shutdown != Some(Shutdown::WaitForClients)),
            ..self.faults
        }
    }

    fn client_with_key(&self, pid: u32, secret: &[u8]) -> Option<usize> {
        let has_key = |client: &Client| {
            let key = client.key.as_ref();
            key.is_some_and(|(own, own_secret)| *own == pid && own_secret == secret)
        };
        self.clients.iter().position(has_key)
    }

    fn count(&mut self, what: &'static str) {
        *self.event_counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() > 2 * TRACE_KEPT {
                trace.drain(..TRACE_KEPT);
            }
            trace.push(line());
        }
    }
}
