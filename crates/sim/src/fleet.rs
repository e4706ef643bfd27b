//! A simulated fleet: nodes of `pgweir-fleet`, a store, a PostgreSQL that counts backends, and their faults.
//!
//! At each step, the simulator checks that PostgreSQL has no more backends than the fleet's budget. A seed determines
//! the whole world.

mod calm;
mod large;
mod machine;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use fastrand::Rng;
use pgweir_fleet::{NodeId, Source, Terms};

pub use calm::run_fleet_until_calm;
pub use large::{LargeFleetFigures, RequestRates, run_large_fleet};
use machine::Machine;
use store::Store;

/// Microseconds of a step.
const STEP: u64 = 20_000;
/// The steps of a world: half a minute.
const STEPS: u64 = 1_500;

/// A fault that is planted in the world around the nodes. The check has to find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFleetFault {
    /// A count finds no backends of a silent node, so that its servers are granted a second time.
    BlindCount,
    /// The clock stands still while a process is stopped.
    StoppedClock,
    /// No node notices that the store was restored from an old copy.
    HiddenRestore,
    /// The store carries out changes of records that have changed meanwhile.
    IgnoredVersions,
    /// A node gives servers back before they are closed.
    EarlyReturn,
    /// A backend counts only for the first node with its address.
    FirstMatch,
    /// A backend also counts for each node whose record has no address. The budget is not exceeded, but servers stay
    /// reserved for a lost node.
    AnyAddress,
    /// The number of logins to servers under way is not limited.
    ManyLogins,
}

/// A world.
#[derive(Debug, Clone, Copy)]
pub struct FleetScenario {
    /// The seed.
    pub seed: u64,
    /// A planted fault.
    pub planted_fault: Option<PlantedFleetFault>,
    /// Whether nodes and store fail.
    pub has_faults: bool,
    /// The number of nodes; `None`: a few.
    pub nodes: Option<u32>,
}

/// The events and figures of a world in which the budget was not exceeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetEventCounts {
    /// Events by their names.
    pub events: BTreeMap<&'static str, u64>,
    /// The maximum number of backends at one time.
    pub backends_max: u32,
    /// In a world without faults, for each move of the demand: the microseconds until the node with new demand might
    /// use all spare servers.
    pub moves: Vec<u64>,
    /// Changes that reached the store.
    pub writes: u64,
}

/// The world in which the budget was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetFailure {
    /// The seed.
    pub seed: u64,
    /// The step, of 20 ms.
    pub step: u64,
    /// Backends in PostgreSQL, by node.
    pub backends: BTreeMap<NodeId, u32>,
    /// The budget.
    pub budget: u32,
}

/// Simulates a world.
///
/// # Errors
/// The budget was exceeded.
pub fn run_fleet(scenario: FleetScenario) -> Result<FleetEventCounts, Box<FleetFailure>> {
    let mut world = FleetWorld::new(scenario);
    for step in 0..STEPS {
        world.step(step * STEP);
        world.check(step)?;
    }
    Ok(world.event_counts)
}

fn address(number: u32) -> Source {
    Source::Address(Ipv4Addr::from(0x0A00_0000 | number).into())
}

struct FleetWorld {
    scenario: FleetScenario,
    rng: Rng,
    terms: Terms,
    machines: Vec<Machine>,
    /// The address of each machine.
    hosts: Vec<Source>,
    store: Store,
    postgres: BTreeMap<NodeId, u32>,
    event_counts: FleetEventCounts,
    next_id: NodeId,
    /// In a world without faults: the node with all the demand, and since when it waits for its share.
    busy: (usize, Option<u64>),
}

impl FleetWorld {
    fn new(scenario: FleetScenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let few = rng.u32(2..=5);
        let nodes = scenario.nodes.unwrap_or(few);
        let floor = rng.u32(1..=4);
        let terms = Terms {
            budget: nodes * floor + rng.u32(1..=40),
            nodes,
            floor,
            lease: 2_100_000,
            interval: 200_000,
            timeout: 400_000,
        };
        Self::with_terms(scenario, terms, rng)
    }

    fn with_terms(scenario: FleetScenario, terms: Terms, mut rng: Rng) -> Self {
        let nodes = terms.nodes;
        assert_eq!(terms.check(), Ok(()), "the terms of seed {}", scenario.seed);
        let machines = (1..=nodes.into()).map(|id| Machine::new(terms, id, &mut rng));
        let machines: Vec<_> = machines.collect();
        let mut store = Store::new(terms.spare(), scenario.has_faults);
        // In some worlds, several nodes have one address.
        let shares_address = rng.u8(..3) == 0;
        let addresses = if shares_address {
            rng.u32(1..=nodes)
        } else {
            nodes
        };
        let hosts = (0..nodes)
            .map(|at| address(at % addresses))
            .collect::<Vec<_>>();
        for (machine, host) in machines.iter().zip(&hosts) {
            store.note_address(machine.id(), *host);
        }
        Self {
            scenario,
            terms,
            machines,
            hosts,
            store,
            postgres: BTreeMap::new(),
            event_counts: FleetEventCounts::default(),
            next_id: u64::from(nodes) + 1,
            busy: (0, None),
            rng,
        }
    }

    /// Gives each machine an address of its own.
    fn give_own_addresses(&mut self) {
        self.hosts = (0..self.terms.nodes).map(address).collect();
        for (machine, host) in self.machines.iter().zip(&self.hosts) {
            self.store.note_address(machine.id(), *host);
        }
    }

    fn has_own_addresses(&self) -> bool {
        let distinct: BTreeSet<_> = self.hosts.iter().collect();
        distinct.len() == self.hosts.len()
    }

    fn count(&mut self, event: &'static str) {
        *self.event_counts.events.entry(event).or_default() += 1;
    }

    fn step(&mut self, now: u64) {
        if self.scenario.has_faults {
            self.fail_something(now);
        } else {
            self.move_demand(now);
        }
        self.proceed(now);
    }

    /// Returns how many backends PostgreSQL has.
    fn backends(&self) -> u32 {
        self.postgres.values().sum()
    }

    /// Checks that PostgreSQL has no more backends than the budget.
    fn check(&mut self, step: u64) -> Result<(), Box<FleetFailure>> {
        let count = self.backends();
        self.event_counts.backends_max = self.event_counts.backends_max.max(count);
        if count <= self.terms.budget {
            return Ok(());
        }
        Err(Box::new(FleetFailure {
            seed: self.scenario.seed,
            step,
            backends: self.postgres.clone(),
            budget: self.terms.budget,
        }))
    }

    /// Lets the store and all nodes proceed by a step.
    fn proceed(&mut self, now: u64) {
        self.store.step(
            now,
            &self.postgres,
            self.scenario.planted_fault,
            &mut self.rng,
        );
        self.event_counts.writes = self.store.requests_made().writes;
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            machine.move_servers(now, &mut self.postgres, &mut self.rng);
            if machine.is_running(now) {
                if self.scenario.has_faults && self.rng.u8(..50) == 0 {
                    machine.wanted = self.rng.u32(..=self.terms.budget);
                }
                machine.run(
                    now,
                    &mut self.store,
                    self.scenario.planted_fault,
                    &mut self.rng,
                );
            } else if machine.may_restart(now, &self.postgres) {
                *machine = Machine::new(self.terms, self.next_id, &mut self.rng);
                self.store.note_address(self.next_id, self.hosts[at]);
                self.next_id += 1;
                self.count("restart");
            }
        }
    }

    /// Gives all the demand to one node for 5 s, then to the next one. Notes when a node may use all spare servers.
    fn move_demand(&mut self, now: u64) {
        let (at, since) = self.busy;
        if now.is_multiple_of(5_000_000) {
            let next = (at + 1) % self.machines.len();
            for (other, machine) in self.machines.iter_mut().enumerate() {
                machine.wanted = if other == next { self.terms.budget } else { 0 };
            }
            // The first lease has to pass before a node takes anything.
            self.busy = (next, (now >= 5_000_000).then_some(now));
        } else if let Some(since) = since
            && self.machines[at].limit(now) == self.terms.floor + self.terms.spare()
        {
            self.event_counts.moves.push(now - since);
            self.busy.1 = None;
        }
    }

    fn fail_something(&mut self, now: u64) {
        let at = self.rng.usize(..self.machines.len());
        let time = |rng: &mut Rng| now + rng.u64(100_000..8_000_000);
        let event = match self.rng.u32(..3_000) {
            0..10 => {
                let until = time(&mut self.rng);
                self.machines[at].stop(now, until);
                "stop"
            }
            10..20 => {
                self.machines[at].cut_until = time(&mut self.rng);
                "cut off"
            }
            20..24 => {
                let until = time(&mut self.rng);
                self.machines[at].kill(until);
                "kill"
            }
            24..27 => {
                self.store.gone_until = time(&mut self.rng);
                "store gone"
            }
            27..40 => {
                self.store.copy();
                "copy"
            }
            // The argument assumes that a node which a restored store has forgotten shares no address with another
            // node.
            40..44 if self.has_own_addresses() => {
                self.store.restore();
                "restore"
            }
            44..48 => {
                // An operator terminates the backends of a node.
                self.postgres.remove(&self.machines[at].id());
                "terminate"
            }
            _ => return,
        };
        self.count(event);
    }
}
