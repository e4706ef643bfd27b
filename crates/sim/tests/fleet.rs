//! Nodes of a fleet share a budget: worlds with failures, worlds with moving demand, and planted faults that the check
//! must find.

#![allow(clippy::print_stdout, reason = "figures for whoever runs it by hand")]

use std::collections::BTreeMap;

use pgweir_sim::{FleetScenario, PlantedFleetFault, run_fleet};

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
    let worlds = std::env::var("PGWEIR_SIM_SEEDS").ok();
    let worlds = worlds.map_or(WORLDS, |worlds| worlds.parse().expect("a number"));
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

/// Figures for docs/design/fleet.md: `PGWEIR_FLEET_NODES=1000 cargo test -p pgweir-sim --test fleet many -- --nocapture`.
#[test]
fn many_nodes() {
    let nodes = std::env::var("PGWEIR_FLEET_NODES").ok();
    let nodes = nodes.map_or(20, |nodes| nodes.parse().expect("a number"));
    let scenario = FleetScenario {
        has_faults: false,
        nodes: Some(nodes),
        ..scenario(1, None)
    };
    let event_counts = run_fleet(scenario).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!(event_counts.moves.len(), 5, "a share did not move");
    let moves = &event_counts.moves;
    println!(
        "{nodes} nodes: {} writes in 30 s, moves {moves:?} us",
        event_counts.writes
    );
}
