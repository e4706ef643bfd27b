//! A large fleet without faults of single nodes: how often it writes to the store, how fast a share moves, and what
//! happens when the store is gone.

use pgweir_fleet::Terms;

use super::{FleetFailure, FleetScenario, FleetWorld, STEP};

/// Servers of the budget for each node: its floor, and as many spare servers.
const FLOOR: u32 = 2;
/// How many times the demand moves to another node.
const MOVES: usize = 5;

/// The figures of a large fleet. Times are in microseconds of simulated time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LargeFleetFigures {
    /// Requests while the load of no node changes.
    pub quiet: RequestRates,
    /// Requests while the load of each node changes once in a lease, on average.
    pub changing: RequestRates,
    /// For each move of the demand to another node: the time until this node may use all spare servers.
    pub moves: Vec<u64>,
    /// The time from the loss of the store until each node has its floor.
    pub until_floors: u64,
    /// The number of backends when the store returned.
    pub backends_without_store: u32,
    /// The time from the return of the store until the node with the demand may use all spare servers again.
    pub until_shares: u64,
    /// Counts of the backends in PostgreSQL after the return of the store, in total.
    pub counts_after_return: u64,
}

/// The requests of all nodes together, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestRates {
    /// Reads of the whole account.
    pub reads: u64,
    /// Changes that the store has made or refused.
    pub writes: u64,
    /// Changes that the store has refused, since a record had changed meanwhile.
    pub refused: u64,
}

struct Run {
    world: FleetWorld,
    now: u64,
}

/// Simulates a fleet of this many nodes, with the intervals that the program derives from `lease`. The budget is checked at
/// each step.
///
/// # Errors
/// The budget was exceeded.
///
/// # Panics
/// A share did not move within ten leases.
pub fn run_large_fleet(nodes: u32, lease: u64) -> Result<LargeFleetFigures, Box<FleetFailure>> {
    let terms = Terms {
        budget: 2 * FLOOR * nodes,
        nodes,
        floor: FLOOR,
        lease,
        interval: lease / 15,
        timeout: lease / 5,
    };
    let scenario = FleetScenario {
        seed: 1,
        planted_fault: None,
        has_faults: false,
        nodes: Some(nodes),
    };
    let mut run = Run {
        world: FleetWorld::with_terms(scenario, terms, fastrand::Rng::with_seed(1)),
        now: 0,
    };
    let mut figures = LargeFleetFigures::default();
    run.give_demand_to(0);
    run.until_all_spare_at(0)?;
    for at in 1..=MOVES {
        run.give_demand_to(at);
        figures.moves.push(run.until_all_spare_at(at)?);
    }
    figures.quiet = run.rates(2 * lease, |_| {})?;
    let mut due = 0;
    figures.changing = run.rates(2 * lease, |world| {
        due += u64::from(nodes) * STEP;
        while due >= lease {
            due -= lease;
            let at = world.rng.usize(..world.machines.len());
            world.machines[at].wanted = world.rng.u32(..=4 * FLOOR);
        }
    })?;
    run.give_demand_to(0);
    run.until_all_spare_at(0)?;
    run.lose_store(lease, &mut figures)?;
    Ok(figures)
}

impl Run {
    fn step(&mut self) -> Result<(), Box<FleetFailure>> {
        self.world.proceed(self.now);
        self.now += STEP;
        self.world.check(self.now / STEP)
    }

    /// Gives all the demand to one node.
    fn give_demand_to(&mut self, at: usize) {
        let budget = self.world.terms.budget;
        for (other, machine) in self.world.machines.iter_mut().enumerate() {
            machine.wanted = if other == at { budget } else { 0 };
        }
    }

    /// Goes on until this is true, and returns how long it took.
    fn until(
        &mut self,
        is_true: impl Fn(&FleetWorld, u64) -> bool,
    ) -> Result<u64, Box<FleetFailure>> {
        let begun = self.now;
        while !is_true(&self.world, self.now) {
            self.step()?;
            let limit = 10 * self.world.terms.lease;
            assert!(
                self.now - begun < limit,
                "the fleet did not settle within ten leases"
            );
        }
        Ok(self.now - begun)
    }

    fn until_all_spare_at(&mut self, at: usize) -> Result<u64, Box<FleetFailure>> {
        self.until(|world, now| {
            world.machines[at].limit(now) == world.terms.floor + world.terms.spare()
        })
    }

    /// Goes on for a time, and counts the requests.
    fn rates(
        &mut self,
        time: u64,
        mut change: impl FnMut(&mut FleetWorld),
    ) -> Result<RequestRates, Box<FleetFailure>> {
        let (until, before) = (self.now + time, self.world.store.requests_made());
        while self.now < until {
            change(&mut self.world);
            self.step()?;
        }
        let after = self.world.store.requests_made();
        let rate = |count: u64| count * 1_000_000 / time;
        Ok(RequestRates {
            reads: rate(after.reads - before.reads),
            writes: rate(after.writes - before.writes),
            refused: rate(after.refused - before.refused),
        })
    }

    /// The store is gone for three leases, and returns. The nodes connect to it anew.
    fn lose_store(
        &mut self,
        lease: u64,
        figures: &mut LargeFleetFigures,
    ) -> Result<(), Box<FleetFailure>> {
        let back = self.now + 3 * lease;
        self.world.store.gone_until = back;
        figures.until_floors = self.until(|world, now| {
            let limits = world.machines.iter().map(|machine| machine.limit(now));
            limits.max() == Some(world.terms.floor)
        })?;
        while self.now < back {
            self.step()?;
        }
        figures.backends_without_store = self.world.backends();
        let before = self.world.store.requests_made().counts;
        self.world.store.reconnect();
        figures.until_shares = self.until_all_spare_at(0)?;
        figures.counts_after_return = self.world.store.requests_made().counts - before;
        Ok(())
    }
}
