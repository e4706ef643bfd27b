//! Runs many seeds. Each seed is the same world on each machine.

use std::ops::Range;

use pgweir_sim::{EventCounts, Failure, Scenario, run, run_scenario};

/// The number of seeds that each test runs. `PGWEIR_SIM_SEEDS` sets a larger number.
const SEEDS: u64 = 120;

fn seeds() -> u64 {
    let wanted = std::env::var("PGWEIR_SIM_SEEDS").ok();
    wanted
        .and_then(|text| text.parse().ok())
        .map_or(SEEDS, |total: u64| total.div_ceil(4))
}

/// Runs every fourth seed from `first` on: mostly one pool mode, with all other properties mixed.
fn run_from(first: u64) {
    check((0..seeds()).map(|index| Scenario::of(first + 4 * index)));
}

fn check(scenarios: impl Iterator<Item = Scenario>) {
    let failures: Vec<Box<Failure>> = scenarios
        .filter_map(|scenario| run_scenario(&scenario).err())
        .take(3)
        .collect();
    if let Some(first) = failures.first() {
        let list: Vec<String> = failures
            .iter()
            .map(|failure| format!("seed {}: {}", failure.seed, failure.violation))
            .collect();
        panic!("{first}\n{}", list.join("\n"));
    }
}

#[test]
fn transaction_mode() {
    run_from(0);
}

#[test]
fn session_mode() {
    run_from(1);
}

#[test]
fn transaction_mode_again() {
    run_from(2);
}

#[test]
fn statement_mode() {
    run_from(3);
}

/// Clients that send messages in any order, and disconnect in the middle.
#[test]
fn wild_clients() {
    check((0..seeds()).map(Scenario::wild));
}

/// Clients move between workers while the load changes, and lose nothing.
#[test]
fn clients_that_move() {
    let moved = (0..seeds()).map(|index| {
        let mut scenario = Scenario::of(5000 + index);
        scenario.moves = true;
        let event_counts = run_scenario(&scenario).unwrap_or_else(|failure| panic!("{failure}"));
        *event_counts.get("client moves").unwrap_or(&0)
    });
    let moved = moved.sum::<u64>();
    assert!(moved > 3 * seeds(), "clients have moved {moved} times");
}

/// Standbys that end: clients get each reply once, whether their request is repeated or not.
#[test]
fn standbys_that_end() {
    let (mut repeated, mut races) = (0, 0);
    for seed in 0..seeds() {
        let event_counts =
            run_scenario(&Scenario::standbys(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        repeated += event_counts.get("read repeated").unwrap_or(&0);
        races += event_counts.get("host race").unwrap_or(&0);
    }
    assert!(4 * repeated > seeds(), "{repeated} requests were repeated");
    assert!(2 * races > seeds(), "{races} races between hosts");
}

/// A drain: no client loses a transaction, and each client that is outside of a transaction leaves.
#[test]
fn drained_processes() {
    let mut drained = 0;
    for seed in 0..seeds() {
        let event_counts =
            run_scenario(&Scenario::draining(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        drained += event_counts.get("drained").unwrap_or(&0);
    }
    assert!(drained > seeds(), "{drained} clients were drained");
}

/// Seeds in which faults were found earlier.
#[test]
fn faults_of_before() {
    check(
        [512, 540, 618, 744, 1206, 1284, 1486]
            .into_iter()
            .map(Scenario::of)
            .chain([Scenario::wild(214), Scenario::standbys(1148)])
            // Clients did not move then.
            .map(|mut scenario| {
                scenario.moves = false;
                scenario
            }),
    );
}

/// Runs the seed in `PGWEIR_SIM_SEED`, with a trace if it fails. For a range like `480..600`, prints what fails in each
/// of the seeds. In `wild:70` the clients of seed 70 send messages in any order; `standbys:70` has standbys that end, and in
/// `draining:70` the process is drained.
#[test]
fn replay() {
    let Ok(wanted) = std::env::var("PGWEIR_SIM_SEED") else {
        return;
    };
    let (of, seeds): (fn(u64) -> Scenario, _) = match wanted.split_once(':') {
        Some(("wild", seeds)) => (Scenario::wild, seeds),
        Some(("standbys", seeds)) => (Scenario::standbys, seeds),
        Some(("draining", seeds)) => (Scenario::draining, seeds),
        Some((kind, _)) => panic!("no such kind of seeds: {kind}"),
        None => (Scenario::of, &*wanted),
    };
    if let Some(range) = range_of(seeds) {
        let failures = range.filter_map(|seed| run_scenario(&of(seed)).err());
        let failed =
            failures.inspect(|failure| eprintln!("seed {}: {}", failure.seed, failure.violation));
        assert_eq!(failed.count(), 0, "seeds that fail");
    } else if let Err(failure) = run_scenario(&of(seeds.parse().expect("a seed"))) {
        eprintln!("{}", failure.trace.join("\n"));
        panic!("{failure}");
    }
}

fn range_of(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

/// A seed is the same world each time.
#[test]
fn a_seed_is_reproducible() {
    for seed in 1000..1010 {
        let of = |seed| {
            run(seed)
                .err()
                .map(|failure| (failure.step, failure.violation))
        };
        assert_eq!(of(seed), of(seed), "seed {seed}");
    }
}

/// Every kind of event that the simulator has happens often enough.
#[test]
fn much_happens() {
    let mut event_counts = EventCounts::new();
    let usual = (0..400).map(Scenario::of);
    for scenario in usual.chain((0..40).map(Scenario::wild)) {
        for (what, count) in run_scenario(&scenario).unwrap_or_default() {
            *event_counts.entry(what).or_default() += count;
        }
    }
    for what in [
        "server moves",
        "wanted",
        "send blocks",
        "cancel request",
        "query cancelled",
        "request withdrawn",
        "derivation",
        "connect fails",
        "server killed",
        "client killed",
        "reload",
        "own rollback",
        "own reset",
        "own parameters",
        "own clean",
        "own look",
        "own reading of the catalog",
        "own listen",
        "notification",
        "SHOW",
        "RELOAD",
        "SET",
        "simple query",
        "extended query",
        "named statement",
        "statement closed",
        "function call",
        "flush",
        "copy data",
        "copy fails",
        "server dismissed",
        "error of the pooler's",
        "request answered",
        "custom parameter",
        "role",
        "SQL PREPARE",
        "temporary table",
        "held cursor",
        "lock",
        "LISTEN",
        "NOTIFY",
        "sequence",
        "value of a sequence",
        "hidden parameter",
        "hidden custom parameter",
        "hidden role",
        "hidden lock",
        "hidden PREPARE",
        "hidden temporary table",
        "trigger that keeps something",
        "kept server",
        "kept server killed",
        "wild client",
    ] {
        assert!(
            event_counts.get(what).copied().unwrap_or(0) >= 5,
            "{what}: {event_counts:?}"
        );
    }
}
