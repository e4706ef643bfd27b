use super::*;

const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);

fn ledger(size: u32, order: Order) -> Ledger {
    let limits = Limits {
        size,
        reserve: 0,
        reserve_after: 0,
        min: 0,
        connecting: 1,
        order,
        retry: 1_000,
    };
    Ledger::new(2, limits, Seat::unlimited())
}

fn client(n: u32) -> Token {
    Token {
        slot: n,
        generation: 0,
    }
}

/// A server of `worker` that has just logged in; `first` is the client for whom it was opened.
fn with_server(ledger: &mut Ledger, worker: WorkerId, first: u32) {
    let (_, notes) = ledger.wait(worker, client(first), Time(0));
    assert_eq!(notes.open, Some(worker));
    assert!(matches!(
        ledger.opening(worker, Time(0)),
        Opening::Go { .. }
    ));
    let _ = ledger.connected(worker, Connecting::Done, Time(0));
    assert!(
        matches!(ledger.offer(worker, Time(0)), Grant::Own(waiter) if waiter.client == client(first))
    );
    assert_eq!(ledger.offer(worker, Time(0)), Grant::Keep);
}

#[test]
fn a_worker_that_may_have_idle_servers_is_asked_before_one_is_opened() {
    let mut ledger = ledger(2, Order::Auto);
    with_server(&mut ledger, A, 1);
    let (_, notes) = ledger.wait(B, client(2), Time(0));
    assert_eq!(notes.wanted.iter().collect::<Vec<_>>(), [A]);
    assert_eq!(notes.open, None, "A has not answered");
    assert_eq!(ledger.answered(A, Time(0)).open, Some(B), "A has none");
    assert_eq!((ledger.servers(), ledger.connecting()), (2, 1));
}

#[test]
fn a_told_worker_is_not_told_again_until_it_has_heard_that_nobody_waits() {
    let mut ledger = ledger(1, Order::Auto);
    with_server(&mut ledger, A, 1);
    let (ticket, notes) = ledger.wait(B, client(2), Time(0));
    assert!(notes.wanted.has(A));
    let (_, notes) = ledger.wait(B, client(3), Time(0));
    assert!(notes.wanted.is_empty());
    assert!(ledger.leave(B, ticket));
    assert!(!ledger.leave(B, ticket), "once");
    let grant = ledger.offer(A, Time(0));
    assert!(matches!(grant, Grant::Other(B, waiter) if waiter.client == client(3)));
    assert_eq!((ledger.owned(A), ledger.owned(B)), (0, 1));
    assert_eq!(ledger.offer(B, Time(0)), Grant::Keep);
    let (_, notes) = ledger.wait(A, client(4), Time(0));
    assert!(
        notes.wanted.has(B),
        "B was told before, and has heard since that nobody waits"
    );
}

#[test]
fn order_over_workers() {
    let check = |order, a_since, b_since, now, expect| {
        let mut ledger = ledger(1, Order::Auto);
        with_server(&mut ledger, A, 1);
        ledger.limits.order = order;
        let _ = ledger.wait(B, client(2), Time(b_since));
        let _ = ledger.wait(A, client(3), Time(a_since));
        let own = matches!(ledger.offer(A, Time(now)), Grant::Own(_));
        assert_eq!(own, expect, "{order:?} {a_since} {b_since} {now}");
    };
    check(Order::Window(0), 100, 100, 200, false);
    check(Order::Window(50), 150, 100, 200, true);
    check(Order::Window(50), 151, 100, 200, false);
    check(Order::Auto, 2_000, 0, 2_000, true);
    check(Order::Auto, 2_001, 0, 2_001, false);
    check(Order::Auto, 10_000, 0, 40_000, true);
    check(Order::Auto, 10_001, 0, 40_000, false);
}

#[test]
fn a_failed_login_is_tried_again_later_and_a_dropped_one_at_once() {
    let mut ledger = ledger(1, Order::Auto);
    let (_, notes) = ledger.wait(A, client(1), Time(5_000));
    assert_eq!(notes.open, Some(A));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Go { .. }));
    let notes = ledger.connected(A, Connecting::Failed(Time(6_000)), Time(6_000));
    assert_eq!(notes.open, None);
    assert_eq!(ledger.tick(Time(6_999)).open, None);
    assert_eq!(ledger.tick(Time(7_000)).open, Some(A));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Go { .. }));
    let notes = ledger.connected(A, Connecting::Dropped, Time(7_000));
    assert_eq!(notes.open, Some(A));
    assert_eq!((ledger.servers(), ledger.connecting()), (1, 1));
}

#[test]
fn nothing_is_opened_for_a_client_that_has_left() {
    let mut ledger = ledger(1, Order::Auto);
    let (ticket, notes) = ledger.wait(A, client(1), Time(0));
    assert_eq!(notes.open, Some(A));
    assert!(ledger.leave(A, ticket));
    assert!(matches!(ledger.opening(A, Time(0)), Opening::Not(_)));
    assert_eq!(
        (ledger.servers(), ledger.connecting(), ledger.owned(A)),
        (0, 0, 0)
    );
    assert!(ledger.resign(A));
}

#[test]
fn a_worker_with_a_server_on_its_way_does_not_resign() {
    let mut ledger = ledger(1, Order::Auto);
    with_server(&mut ledger, A, 1);
    let _ = ledger.wait(B, client(2), Time(0));
    assert!(matches!(ledger.offer(A, Time(0)), Grant::Other(B, _)));
    assert!(!ledger.resign(B));
    assert!(ledger.resign(A));
}
