//! Faults planted in the simulator's own driver. The checks have to find them.

use pgweir_config::PoolMode;
use pgweir_sim::{Guarantee, PlantedFault, Scenario, run_scenario};

/// The number of worlds in which any fault must be noticed.
const WORLDS_MAX: usize = 100;

/// Runs seeds with the fault, and without. Without the fault, no guarantee may be broken. With it, `guarantee` must be
/// broken in at least this number of worlds; in other worlds only `also` may be.
fn check(planted_fault: PlantedFault, guarantee: Guarantee, also: &[Guarantee], worlds_min: usize) {
    let mut found = 0;
    let worlds = (0..).map(|seed| Scenario::with_planted_fault(seed, planted_fault));
    let has_fault =
        |world: &Scenario| needs_mode(planted_fault).is_none_or(|mode| world.mode == mode);
    for mut scenario in worlds.filter(has_fault).take(WORLDS_MAX) {
        if found >= worlds_min {
            return;
        }
        if let Err(failure) = run_scenario(&scenario) {
            let broken = failure.violation.guarantee;
            assert!(broken == guarantee || also.contains(&broken), "{failure}");
            found += usize::from(broken == guarantee);
        }
        scenario.planted_fault = None;
        if let Err(failure) = run_scenario(&scenario) {
            panic!("without the fault: {failure}");
        }
    }
    panic!("{planted_fault:?} was noticed in {found} worlds only");
}

/// Returns the pool mode without which the fault changes nothing: only in transaction mode a client goes on with its
/// server for a turn while others wait.
fn needs_mode(planted_fault: PlantedFault) -> Option<PoolMode> {
    matches!(planted_fault, PlantedFault::LateTicks(_)).then_some(PoolMode::Transaction)
}

#[test]
fn a_lost_wake_up() {
    check(PlantedFault::LoseWanted(1), Guarantee::Waits, &[], 5);
    check(PlantedFault::LoseWanted(3), Guarantee::Waits, &[], 5);
}

#[test]
fn a_server_that_is_never_opened() {
    check(
        PlantedFault::LoseOpen(1),
        Guarantee::Counts,
        &[Guarantee::Waits],
        5,
    );
}

#[test]
fn a_server_lent_twice() {
    // The check may notice the rest of a cut message first.
    let also = [Guarantee::ValidActions];
    check(PlantedFault::LendTwice(5), Guarantee::OneClient, &also, 5);
}

#[test]
fn a_reply_that_is_swallowed() {
    let also = [Guarantee::Waits, Guarantee::Reasons];
    check(
        PlantedFault::SwallowReply(10),
        Guarantee::Replies,
        &also,
        15,
    );
}

#[test]
fn replies_out_of_order() {
    let also = [Guarantee::Waits, Guarantee::Reasons];
    check(PlantedFault::SwapReplies(10), Guarantee::Replies, &also, 15);
}

/// Clients wait for a server whose client has been silent for longer than a turn lasts.
#[test]
fn a_turn_that_does_not_end() {
    check(PlantedFault::LateTicks(1_000_000), Guarantee::Waits, &[], 5);
}

/// The next client's statement finds state that the last client has left.
#[test]
fn a_clean_that_does_nothing() {
    check(PlantedFault::NoClean, Guarantee::Sessions, &[], 5);
}

/// The client's next statement, on another server, lacks the settings of the last one.
#[test]
fn an_inspection_that_finds_nothing() {
    let also = [Guarantee::Counts];
    check(PlantedFault::NoInspection, Guarantee::Sessions, &also, 5);
}

/// The pooler repeats a request on another standby, since it does not see that the client has got a part of the reply.
#[test]
fn a_request_is_repeated_after_a_part_of_its_reply() {
    check(PlantedFault::UnseenReply(1), Guarantee::Replies, &[], 5);
}

/// The pooler repeats a request that a server may have committed, since the server reports that it is a standby.
#[test]
fn a_request_that_may_have_written_is_repeated() {
    check(PlantedFault::FalseStandbys, Guarantee::Replies, &[], 5);
}

/// The pooler opens more servers than its percentage of the connections of PostgreSQL.
#[test]
fn a_wrong_number_of_connections() {
    // Clients may wait at the wrong limit before the connections are counted.
    let also = [Guarantee::Waits];
    check(
        PlantedFault::TooManyConnections,
        Guarantee::Counts,
        &also,
        5,
    );
}

/// A statement of one client runs in the kept session of another, and no reply shows this.
#[test]
fn a_kept_server_lent_twice() {
    let also = [
        // The answer goes to the other client.
        Guarantee::Waits,
        Guarantee::OneClient,
        Guarantee::ValidActions,
        Guarantee::Reasons,
        Guarantee::Replies,
    ];
    check(PlantedFault::LendKept(1), Guarantee::Sessions, &also, 5);
}
