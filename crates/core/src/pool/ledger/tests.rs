use super::*;
use crate::pool::CapLimits;

const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);

/// The limits of a pool of this size, without a reserve.
pub(super) fn limits(size: u32) -> Limits {
    Limits {
        size,
        reserve: 0,
        reserve_after: 0,
        overflow: 0,
        overflow_waiting: 0,
        pinned: 1,
        pinned_overflow: 0,
        min: 0,
        connecting: 1,
        order: WaitOrder::Auto,
        retry: 1_000,
    }
}

fn ledger(size: u32, order: WaitOrder) -> Ledger {
    let limits = Limits {
        order,
        ..limits(size)
    };
    Ledger::new(2, limits, CapMembership::unlimited())
}

pub(super) fn client(n: u32) -> Token {
    Token {
        slot: n,
        generation: 0,
    }
}

/// Opens a server of `worker` that has just logged in; `first` is the client for whom it was opened.
fn with_server(ledger: &mut Ledger, worker: WorkerId, first: u32) {
    let (_, notes) = ledger.wait(worker, client(first), Time(0));
    assert_eq!(notes.open, Some(worker));
    assert!(matches!(
        ledger.opening(worker, Time(0)),
        Opening::Go { .. }
    ));
    let _ = ledger.connected(worker, LoginOutcome::Done, Time(0));
    assert!(
        matches!(ledger.offer(worker, Time(0)), Grant::OwnWaiter(waiter) if waiter.client == client(first))
    );
    assert_eq!(ledger.offer(worker, Time(0)), Grant::Keep);
}

#[test]
fn a_worker_that_may_have_idle_servers_is_asked_before_one_is_opened() {
    let mut ledger = ledger(2, WaitOrder::Auto);
    with_server(&mut ledger, A, 1);
    let (_, notes) = ledger.wait(B, client(2), Time(0));
    assert_eq!(notes.wanted.iter().collect::<Vec<_>>(), [A]);
    assert_eq!(notes.open, None, "A has not answered");
    assert_eq!(ledger.answered(A, Time(0)).open, Some(B), "A has none");
    assert_eq!((ledger.servers(), ledger.connecting()), (2, 1));
}

#[test]
fn no_server_is_opened_while_one_reads_the_catalog() {
    let mut ledger = ledger(3, WaitOrder::Auto);
    let (_, notes) = ledger.wait(A, client(1), Time(0));
    assert_eq!(notes.open, Some(A));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Go { .. }));
    assert_eq!(ledger.connected(A, LoginOutcome::Done, Time(0)).open, None);
    ledger.began_reading(Time(10));
    let late = Time(10 + READING_PATIENCE);
    assert_eq!(ledger.tick(Time(late.0 - 1)).open, None, "it is waited for");
    assert_eq!(ledger.tick(late).open, Some(A), "not for ever");
    let _ = ledger.connected(A, LoginOutcome::Failed(late), late);
    ledger.ended_reading();
    assert!(matches!(ledger.offer(A, late), Grant::OwnWaiter(_)));
    assert_eq!(ledger.servers(), 1);
}

#[test]
fn one_that_reads_the_catalog_will_serve_one_client_not_two() {
    let mut ledger = ledger(3, WaitOrder::Auto);
    let _ = ledger.wait(A, client(1), Time(0));
    let _ = ledger.opening(A, Time(0));
    let _ = ledger.connected(A, LoginOutcome::Done, Time(0));
    ledger.began_reading(Time(10));
    let (_, notes) = ledger.wait(A, client(2), Time(20));
    assert_eq!(notes.open, Some(A));
}

#[test]
fn a_worker_is_notified_once_until_it_knows_that_no_client_waits() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    with_server(&mut ledger, A, 1);
    let (ticket, notes) = ledger.wait(B, client(2), Time(0));
    assert!(notes.wanted.has(A));
    let (_, notes) = ledger.wait(B, client(3), Time(0));
    assert!(notes.wanted.is_empty());
    assert!(ledger.leave(B, ticket));
    assert!(!ledger.leave(B, ticket), "once");
    let grant = ledger.offer(A, Time(0));
    assert!(matches!(grant, Grant::OtherWaiter(B, waiter) if waiter.client == client(3)));
    assert_eq!((ledger.owned(A), ledger.owned(B)), (0, 1));
    assert_eq!(ledger.offer(B, Time(0)), Grant::Keep);
    let (_, notes) = ledger.wait(A, client(4), Time(0));
    assert!(
        notes.wanted.has(B),
        "B offered its servers before, and was notified since that nobody waits"
    );
}

#[test]
fn order_over_workers() {
    let check = |order, a_since, b_since, now, expect| {
        let mut ledger = ledger(1, WaitOrder::Auto);
        with_server(&mut ledger, A, 1);
        ledger.limits.in_force.order = order;
        let _ = ledger.wait(B, client(2), Time(b_since));
        let _ = ledger.wait(A, client(3), Time(a_since));
        let own = matches!(ledger.offer(A, Time(now)), Grant::OwnWaiter(_));
        assert_eq!(own, expect, "{order:?} {a_since} {b_since} {now}");
    };
    check(WaitOrder::Window(0), 100, 100, 200, false);
    check(WaitOrder::Window(50), 150, 100, 200, true);
    check(WaitOrder::Window(50), 151, 100, 200, false);
    check(WaitOrder::Auto, 2_000, 0, 2_000, true);
    check(WaitOrder::Auto, 2_001, 0, 2_001, false);
    check(WaitOrder::Auto, 10_000, 0, 40_000, true);
    check(WaitOrder::Auto, 10_001, 0, 40_000, false);
}

#[test]
fn a_failed_login_is_tried_again_later_and_a_dropped_one_at_once() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    let (_, notes) = ledger.wait(A, client(1), Time(5_000));
    assert_eq!(notes.open, Some(A));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Go { .. }));
    let notes = ledger.connected(A, LoginOutcome::Failed(Time(6_000)), Time(6_000));
    assert_eq!(notes.open, None);
    assert_eq!(ledger.tick(Time(6_999)).open, None);
    assert_eq!(ledger.tick(Time(7_000)).open, Some(A));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Go { .. }));
    let notes = ledger.connected(A, LoginOutcome::Dropped, Time(7_000));
    assert_eq!(notes.open, Some(A));
    assert_eq!((ledger.servers(), ledger.connecting()), (1, 1));
}

#[test]
fn nothing_is_opened_for_a_client_that_has_left() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    let (ticket, notes) = ledger.wait(A, client(1), Time(0));
    assert_eq!(notes.open, Some(A));
    assert!(ledger.leave(A, ticket));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Not(_)));
    assert_eq!(
        (ledger.servers(), ledger.connecting(), ledger.owned(A)),
        (0, 0, 0)
    );
    assert!(ledger.forget_worker(A));
}

#[test]
fn a_worker_with_a_server_on_its_way_does_not_resign() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    with_server(&mut ledger, A, 1);
    let _ = ledger.wait(B, client(2), Time(0));
    assert!(matches!(ledger.offer(A, Time(0)), Grant::OtherWaiter(B, _)));
    assert!(!ledger.forget_worker(B));
    assert!(ledger.forget_worker(A));
}

/// Creates two pools of one database that may have one server together.
fn two_under_a_cap() -> [Ledger; 2] {
    let caps = std::sync::Arc::default();
    ["ann", "bob"].map(|user| {
        let limits = CapLimits {
            database: 1,
            user: 0,
            process: 0,
            weight: 1,
        };
        let id = PoolId(u32::from(user == "bob"));
        let seat = CapMembership::new(&caps, id, ["app", user, ""], limits);
        Ledger::new(1, *ledger(1, WaitOrder::Auto).limits(), seat)
    })
}

#[test]
fn room_under_a_cap_is_announced_and_used() {
    let [mut ann, mut bob] = two_under_a_cap();
    with_server(&mut ann, A, 1);
    let (_, notes) = bob.wait(A, client(2), Time(0));
    assert_eq!((notes.open, notes.search), (None, vec![Scope::Database]));
    let wait_reason = WaitReason::Cap {
        by: Scope::Database,
        limit: 1,
    };
    assert_eq!(bob.wait_reason(Time(0)), wait_reason);
    assert_eq!(ann.offer(A, Time(0)), Grant::Evict, "nobody else wants it");
    assert_eq!(ann.closed(A, Time(0)).room, [PoolId(1)]);
    assert_eq!(bob.room(Time(0)).open, Some(A));
    assert!(matches!(bob.opening(A, Time(0)), Opening::Go { .. }));
}

#[test]
fn room_that_is_not_used_goes_on() {
    let [mut ann, mut bob] = two_under_a_cap();
    with_server(&mut ann, A, 1);
    let (ticket, _) = bob.wait(A, client(2), Time(0));
    let notes = ann.closed(A, Time(0));
    assert_eq!(notes.room, [PoolId(1)]);
    assert!(bob.leave(A, ticket));
    let (_, notes) = ann.wait(A, client(3), Time(0));
    assert_eq!(notes.open, None, "the slot is bob's");
    let notes = bob.room(Time(0));
    assert_eq!((notes.open, notes.room), (None, vec![PoolId(0)]));
    assert_eq!(ann.room(Time(0)).open, Some(A));
}

#[test]
fn a_server_is_yielded_once_it_has_served() {
    let [mut ann, mut bob] = two_under_a_cap();
    let late = Time(10 * crate::pool::PATIENCE);
    with_server(&mut ann, A, 1);
    let _ = bob.wait(A, client(2), Time(0));
    let _ = ann.wait(A, client(3), Time(0));
    // Bob has waited for long, but this server was opened for Ann just now.
    assert!(matches!(ann.offer_fresh(A, late), Grant::OwnWaiter(_)));
    let _ = ann.wait(A, client(4), late);
    assert_eq!(ann.offer(A, late), Grant::Evict);
    assert_eq!(ann.closed(A, late).room, [PoolId(1)]);
}

#[test]
fn the_reserve_is_for_clients_that_have_waited() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    ledger.limits.in_force.reserve = 1;
    ledger.limits.in_force.reserve_after = 100;
    with_server(&mut ledger, A, 1);
    let (_, notes) = ledger.wait(A, client(2), Time(0));
    assert_eq!(notes.open, None);
    assert_eq!(ledger.tick(Time(99)).open, None);
    assert_eq!(ledger.tick(Time(100)).open, Some(A));
    let opening = ledger.opening(A, Time(100));
    assert!(
        matches!(opening, Opening::Go { above_size: Some(who), .. } if who == (client(2), AboveSize::Reserve))
    );
    let _ = ledger.connected(A, LoginOutcome::Done, Time(100));
    let _ = ledger.wait(A, client(3), Time(100));
    assert_eq!(ledger.tick(Time(300)).open, None, "it is used up");
    assert!(!ledger.is_above_size());
}

#[test]
fn a_pool_is_filled_up_to_its_minimum_and_its_size() {
    let mut ledger = ledger(2, WaitOrder::Auto);
    ledger.limits.in_force.min = 3;
    ledger.limits.in_force.connecting = 4;
    for servers in 1..=2 {
        assert_eq!(ledger.fill(B, Time(0)).open, Some(B));
        assert!(matches!(ledger.opening(B, Time(0)), Opening::Go { .. }));
        let _ = ledger.connected(B, LoginOutcome::Done, Time(0));
        assert_eq!((ledger.servers(), ledger.connecting()), (servers, 0));
    }
    assert_eq!(ledger.fill(B, Time(0)).open, None);
    assert!(!ledger.is_above_min());
}

#[test]
fn the_overflow_is_for_many_waiting_clients() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    ledger.limits.in_force.overflow = 1;
    ledger.limits.in_force.overflow_waiting = 2;
    with_server(&mut ledger, A, 1);
    let mut tickets = Vec::new();
    for n in 2..=3 {
        let (ticket, notes) = ledger.wait(A, client(n), Time(0));
        assert_eq!(notes.open, None, "{n}");
        tickets.push(ticket);
    }
    let (_, notes) = ledger.wait(A, client(4), Time(0));
    assert_eq!(notes.open, Some(A));
    // A worker that has begun to open the server goes on, even if fewer clients wait by then.
    assert!(ledger.leave(A, tickets[0]));
    let opening = ledger.opening(A, Time(0));
    assert!(
        matches!(opening, Opening::Go { above_size: Some(who), .. } if who == (client(3), AboveSize::Overflow))
    );
    let _ = ledger.connected(A, LoginOutcome::Done, Time(0));
    assert!(!ledger.is_above_size());
    let _ = ledger.wait(A, client(5), Time(0));
    let (_, notes) = ledger.wait(A, client(6), Time(0));
    assert_eq!(notes.open, None, "it is used up");
}

#[test]
fn pinned_clients_make_room_for_others() {
    let mut ledger = ledger(1, WaitOrder::Auto);
    ledger.limits.in_force.pinned = 0;
    ledger.limits.in_force.pinned_overflow = 1;
    with_server(&mut ledger, A, 1);
    let (_, notes) = ledger.wait(A, client(2), Time(0));
    assert_eq!(notes.open, None);
    assert_eq!(ledger.pin(Time(0)).open, Some(A));
    let opening = ledger.opening(A, Time(0));
    assert!(
        matches!(opening, Opening::Go { above_size: Some(who), .. } if who == (client(2), AboveSize::Pinned))
    );
    let _ = ledger.connected(A, LoginOutcome::Done, Time(0));
    assert!(matches!(ledger.offer(A, Time(0)), Grant::OwnWaiter(_)));
    // A further client that keeps its server adds no server for others.
    assert_eq!(ledger.pin(Time(0)).open, None);
    let (_, notes) = ledger.wait(A, client(3), Time(0));
    assert_eq!(notes.open, None, "it is used up");
    assert!(!ledger.is_above_size());
    ledger.unpin();
    assert!(!ledger.is_above_size(), "one client is still pinned");
    ledger.unpin();
    assert_eq!((ledger.pinned(), ledger.is_above_size()), (0, true));
}

#[test]
fn clients_have_turns_only_where_no_server_can_be_opened() {
    for (size, wanted) in [(1, ServerDemand::InTurn), (3, ServerDemand::Now)] {
        let mut ledger = ledger(size, WaitOrder::Auto);
        with_server(&mut ledger, A, 1);
        assert_eq!(ledger.demand(A, Time(0)), ServerDemand::None);
        let _ = ledger.wait(A, client(2), Time(0));
        assert_eq!(ledger.demand(A, Time(0)), wanted);
    }
}
