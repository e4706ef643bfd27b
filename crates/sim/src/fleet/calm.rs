//! Worlds whose faults end: some time later, all spare servers must be usable again, whatever the store has forgotten.

use super::{FleetFailure, FleetScenario, FleetWorld, PlantedFleetFault, STEP};

/// Steps without faults: 20 s, more than nine leases.
const CALM_STEPS: u64 = 1_000;
/// The limits of the steps with faults: 2 to 20 s.
const FAULTY_STEPS: std::ops::Range<u64> = 100..1_000;

/// Simulates a world with faults. Then one node is killed and does not come back, the store goes back to a copy, and all
/// faults end. Each node wants all servers. Returns the time in microseconds until the running nodes may use all servers
/// except the floors of the others; `None`: after 20 s, some spare servers are still reserved for nobody.
///
/// Each node has its own address, since a lost node may keep its servers for long if a running node has its address.
///
/// # Errors
/// The budget was exceeded.
pub fn run_fleet_until_calm(
    seed: u64,
    planted_fault: Option<PlantedFleetFault>,
) -> Result<Option<u64>, Box<FleetFailure>> {
    let mut world = FleetWorld::new(FleetScenario {
        seed,
        planted_fault,
        has_faults: true,
        nodes: None,
    });
    world.give_own_addresses();
    let faulty = world.rng.u64(FAULTY_STEPS);
    let copied = world.rng.u64(..faulty);
    let mut copy = world.store.content();
    for step in 0..faulty {
        world.step(step * STEP);
        world.check(step)?;
        if step == copied {
            copy = world.store.content();
        }
    }
    let begun = faulty * STEP;
    world.scenario.has_faults = false;
    world.store.end_faults();
    world.store.go_back_to(copy);
    let killed = world.rng.usize(..world.machines.len());
    for (at, machine) in world.machines.iter_mut().enumerate() {
        machine.end_faults(begun);
        if at == killed {
            machine.kill(u64::MAX);
        }
    }
    let running = world.terms.nodes - 1;
    let all = running * world.terms.floor + world.terms.spare();
    for step in faulty..faulty + CALM_STEPS {
        let now = step * STEP;
        for machine in &mut world.machines {
            machine.wanted = world.terms.budget;
        }
        world.proceed(now);
        world.check(step)?;
        let machines = world.machines.iter();
        let running = machines.filter(|machine| machine.is_running(now));
        if running.map(|machine| machine.limit(now)).sum::<u32>() == all {
            return Ok(Some(now - begun));
        }
    }
    Ok(None)
}
