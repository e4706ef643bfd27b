//! Nodes of a fleet share a budget: worlds with failures, worlds with moving demand, and planted faults that the check
//! must find.

#![allow(clippy::print_stdout, reason = "figures for whoever runs it by hand")]

use std::collections::BTreeMap;

use pgweir_sim::{
    FleetScenario, PlantedFleetFault, run_fleet, run_fleet_until_calm, run_large_fleet,
};

/// Worlds that are simulated if `PGWEIR_SIM_SEEDS` does not say otherwise.
const WORLDS: u64 = 300;
/// Worlds in which a planted fault must be noticed.
const SEEDS_WITH_FAULT_MAX: u64 = 2_000;

fn scenario(seed: u64, planted_fault: Option<PlantedFleetFault>) -> FleetScenario {
    FleetScenario {
        seed,
        planted_fault,
        has_faults: true,
        nodes: None,
    }
}

#[test]
fn the_budget_is_never_exceeded() {
    let worlds = worlds();
    let mut events = BTreeMap::<&str, u64>::new();
    for seed in 0..worlds {
        let event_counts =
            run_fleet(scenario(seed, None)).unwrap_or_else(|failure| panic!("{failure:?}"));
        for (event, count) in event_counts.events {
            *events.entry(event).or_default() += count;
        }
    }
    println!("{worlds} worlds: {events:?}");
    for event in [
        "stop",
        "cut off",
        "kill",
        "restart",
        "store gone",
        "restore",
        "terminate",
    ] {
        assert!(events.contains_key(event), "no {event} in {worlds} worlds");
    }
}

#[test]
fn planted_faults_are_found() {
    for planted_fault in [
        PlantedFleetFault::BlindCount,
        PlantedFleetFault::FirstMatch,
        PlantedFleetFault::StoppedClock,
        PlantedFleetFault::HiddenRestore,
        PlantedFleetFault::IgnoredVersions,
        PlantedFleetFault::EarlyReturn,
        PlantedFleetFault::ManyLogins,
    ] {
        let found = (0..SEEDS_WITH_FAULT_MAX)
            .find(|&seed| run_fleet(scenario(seed, Some(planted_fault))).is_err());
        println!("{planted_fault:?}: seed {found:?}");
        assert!(found.is_some(), "{planted_fault:?} was not noticed");
    }
}

fn worlds() -> u64 {
    let worlds = std::env::var("PGWEIR_SIM_SEEDS").ok();
    worlds.map_or(WORLDS, |worlds| worlds.parse().expect("a number"))
}

/// A node was killed, and the store restored from an old copy, which may have the node's record without its address.
#[test]
fn no_server_stays_reserved_after_the_faults() {
    let mut times = Vec::new();
    for seed in 0..worlds() {
        let time = run_fleet_until_calm(seed, None).unwrap_or_else(|failure| panic!("{failure:?}"));
        times.push(time.unwrap_or_else(|| panic!("servers stay reserved: seed {seed}")));
    }
    times.sort_unstable();
    println!(
        "{} worlds: all servers are in use after {} us (median), {} us (longest)",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

#[test]
fn a_server_that_stays_reserved_is_found() {
    let planted_fault = Some(PlantedFleetFault::AnyAddress);
    let found = (0..SEEDS_WITH_FAULT_MAX)
        .find(|&seed| run_fleet_until_calm(seed, planted_fault) == Ok(None));
    println!("AnyAddress: seed {found:?}");
    assert!(found.is_some());
}

/// A share follows the demand within 2 s: one node gets all spare servers after another one has had them.
#[test]
fn a_share_follows_demand() {
    let mut moves = Vec::new();
    for seed in 0..50 {
        let scenario = FleetScenario {
            has_faults: false,
            ..scenario(seed, None)
        };
        let event_counts = run_fleet(scenario).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(
            event_counts.moves.len(),
            5,
            "a share did not move in the world of seed {seed}"
        );
        moves.extend(event_counts.moves);
    }
    moves.sort_unstable();
    println!(
        "moves: median {} us, longest {} us",
        moves[moves.len() / 2],
        moves[moves.len() - 1]
    );
    assert!(moves.iter().all(|&time| time <= 2_000_000), "{moves:?}");
}

/// Figures for docs/design/fleet.md: `PGWEIR_FLEET_NODES=1000 PGWEIR_FLEET_LEASE=10 cargo test --release -p pgweir-sim --test
/// fleet large -- --nocapture`.
#[test]
fn a_large_fleet() {
    let number = |name: &str, default| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse::<u32>().expect("a number"))
    };
    let nodes = number("PGWEIR_FLEET_NODES", 20);
    let lease = u64::from(number("PGWEIR_FLEET_LEASE", 5)) * 1_000_000;
    let figures = run_large_fleet(nodes, lease).unwrap_or_else(|failure| panic!("{failure:?}"));
    println!("{nodes} nodes, a lease of {lease} us: {figures:#?}");
    if let Some(memory) = memory_max() {
        println!(
            "at most {} kB of memory for each node",
            memory / u64::from(nodes)
        );
    }
    assert!(figures.until_floors <= lease, "{figures:?}");
    // A node waits a lease and a little more before it trusts a store again, and asks some times.
    assert!(figures.until_shares <= 2 * lease, "{figures:?}");
    assert!(
        figures.moves.iter().all(|&time| time <= lease),
        "{figures:?}"
    );
}

/// Returns the maximum memory of this process, in kB. Other tests that ran in the process count, too.
fn memory_max() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
