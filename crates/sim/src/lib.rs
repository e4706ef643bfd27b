//! A simulated world around the core: network, clock, a model of PostgreSQL, model clients, and checks.
//!
//! A seed determines a whole world: the configuration, the network and all events, to the last byte. At each step a
//! random number decides which of the possible events happens next. Bytes are cut anywhere, mail between workers takes
//! any time, connections and processes die. The checks look at the bytes that reach PostgreSQL and the clients; they
//! ask the core only for counts.
//!
//! The model PostgreSQL understands statements on sessions by their words (`postgres/sql`): settings, roles,
//! SQL-prepared statements, temporary tables, cursors, locks, channels, sequences, and functions and triggers whose
//! effects no text shows. Each client also has a *direct* session: the session that it would have with a server of its
//! own. All statements of the client run in its direct session, too. Before each statement, the session on the pooler's
//! server must have the same state as the direct session. After a client has disconnected, no idle server may have its
//! session state. If a text is unknown to the model, the simulation ends with an error.
//!
//! Limits: a call of the core is one step, so two workers never run at the same time. The workers share only the
//! ledgers, which a lock protects.

mod checks;
mod client;
mod fleet;
mod network;
mod postgres;
mod scenario;
mod world;

use std::{collections::BTreeMap, fmt};

pub use checks::{Guarantee, Violation};
pub use fleet::{
    FleetEventCounts, FleetFailure, FleetScenario, LargeFleetFigures, PlantedFleetFault,
    RequestRates, run_fleet, run_fleet_until_calm, run_large_fleet,
};
pub use scenario::{PlantedFault, Scenario};
use world::World;

/// A world in which a guarantee was broken.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the world.
    pub seed: u64,
    /// The step at which the violation was noticed.
    pub step: u32,
    /// The broken guarantee, with a description.
    pub violation: Violation,
    /// The last lines of the trace.
    pub trace: Vec<String>,
    scenario: Scenario,
}

/// The number of events of each kind in a world. A simulator in which few events happen finds few faults.
pub type EventCounts = BTreeMap<&'static str, u64>;

/// Simulates the world of a seed.
///
/// # Errors
/// The first broken guarantee.
pub fn run(seed: u64) -> Result<EventCounts, Box<Failure>> {
    run_scenario(&Scenario::of(seed))
}

/// Simulates a world that the caller describes. If a guarantee is broken, the world is simulated again with a trace.
/// The second run equals the first one to the last byte.
///
/// # Errors
/// The first broken guarantee.
pub fn run_scenario(scenario: &Scenario) -> Result<EventCounts, Box<Failure>> {
    run_world(scenario, false).map_err(|quiet| run_world(scenario, true).err().unwrap_or(quiet))
}

fn run_world(scenario: &Scenario, traces: bool) -> Result<EventCounts, Box<Failure>> {
    let fail = |step, violation, trace| {
        Box::new(Failure {
            seed: scenario.seed,
            step,
            violation,
            trace,
            scenario: scenario.clone(),
        })
    };
    let mut world =
        World::new(scenario.clone(), traces).map_err(|violation| fail(0, violation, Vec::new()))?;
    match world.run() {
        Ok(()) => Ok(world.event_counts),
        Err(violation) => {
            let trace = world.trace.take().unwrap_or_default();
            Err(fail(world.step, violation, trace))
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.trace.len().saturating_sub(80);
        for line in &self.trace[shown..] {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "{:?}", self.scenario)?;
        writeln!(
            f,
            "seed {}, step {}: {}",
            self.seed, self.step, self.violation
        )?;
        write!(
            f,
            "again: PGWEIR_SIM_SEED={}{} cargo test -p pgweir-sim replay -- --nocapture",
            self.scenario.kind(),
            self.seed
        )
    }
}

impl std::error::Error for Failure {}
