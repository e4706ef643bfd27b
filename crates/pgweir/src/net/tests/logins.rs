//! Logins and disconnects wait until queries have been served, and get a limited time in each turn.

use super::*;
use crate::net::io::Io;

/// The number of clients that log in.
const LOGINS: usize = 20;

/// A world with one client that has logged in, and others that are logging in. In each turn, one step of a login is
/// served.
fn storm() -> (World, UnixStream, Vec<UnixStream>) {
    storm_with(|| None)
}

fn storm_with(ring: impl Fn() -> Option<Box<Ring>>) -> (World, UnixStream, Vec<UnixStream>) {
    let mut world = World::with_rings(1, 4096, ring);
    let client = world.client();
    world.mode(ReadMode::Notify);
    set_slice(&mut world.drivers[0].io, 0);
    world.drivers[0].pooler.logs_in_at_once = false;
    let path = world.folder.path().join(".s.PGSQL.5432");
    let logins: Vec<_> = (0..LOGINS)
        .map(|_| UnixStream::connect(&path).expect("connect"))
        .collect();
    world.until(|seen| count_accepted(seen) == LOGINS + 1);
    world.settle();
    world.seen();
    (world, client, logins)
}

fn set_slice(io: &mut Io, login_slice_us: u64) {
    io.options = Arc::new(NetOptions {
        login_slice_us,
        ..NetOptions::default()
    });
}

fn count_accepted(seen: &[Seen]) -> usize {
    let accepted = |one: &&Seen| matches!(one, Seen::Accepted(_));
    seen.iter().filter(accepted).count()
}

fn count(seen: &[Seen], what: &Seen) -> usize {
    seen.iter().filter(|one| *one == what).count()
}

/// Returns the number of messages that clients have sent in their logins.
fn count_steps(seen: &[Seen]) -> usize {
    let steps = |one: &&Seen| matches!(one, Seen::Received(_));
    seen.iter().filter(steps).count()
}

/// The client's query is served before the logins, although their messages have arrived earlier.
#[test]
fn a_query_comes_before_the_logins_of_its_turn() {
    let (mut world, mut client, mut logins) = storm();
    set_slice(&mut world.drivers[0].io, 60_000_000);
    for login in &mut logins {
        write(login, b"startup");
    }
    write(&mut client, b"Q");
    world.turns();
    let seen = world.seen();
    assert_eq!(seen.first(), Some(&Seen::Readable), "{seen:?}");
    assert_eq!(count_steps(&seen), LOGINS, "the slice is long");
}

#[test]
fn a_query_waits_for_one_step_of_a_login_at_most() {
    let is_ring_allowed = Ring::new(8, &Arc::default()).is_ok();
    for uses_ring in [false, is_ring_allowed] {
        let ring = || Ring::new(8, &Arc::default()).ok().map(Box::new);
        let (mut world, mut client, mut logins) = storm_with(|| ring().filter(|_| uses_ring));
        for login in &mut logins {
            write(login, b"startup");
        }
        world.turns();
        assert_eq!(count_steps(&world.seen()), 1, "steps in one turn");
        write(&mut client, b"Q");
        world.turns();
        assert_eq!(world.seen().first(), Some(&Seen::Readable));
        world.until(|seen| count_steps(seen) == LOGINS - 2);
    }
}

/// Clients that send a query in every turn do not keep others from logging in.
#[test]
fn logins_go_on_while_each_turn_has_a_query() {
    let (mut world, mut client, mut logins) = storm();
    world.mode(ReadMode::Deliver);
    for login in &mut logins {
        write(login, b"startup");
    }
    let [query, step] = [b"Q".to_vec(), b"startup".to_vec()].map(Seen::Received);
    for _ in 0..LOGINS {
        write(&mut client, b"Q");
        world.turns();
        let seen = world.seen();
        assert_eq!(seen.first(), Some(&query), "{seen:?}");
        assert_eq!(count(&seen, &step), 1, "steps in one turn");
    }
    assert_eq!(world.drivers[0].io.turn.logins.len(), 0);
}

/// Returns the number of steps of logins before the cancel request, or `None` if it was not read yet.
fn steps_before_cancel_request(seen: &[Seen]) -> Option<usize> {
    let is_cancel = |one: &Seen| matches!(one, Seen::Received(bytes) if *bytes == cancel_request());
    let place = seen.iter().position(is_cancel)?;
    Some(count_steps(&seen[..place]))
}

fn cancel_request() -> Vec<u8> {
    let mut bytes = Vec::new();
    pgweir_wire::cancel_request(&mut bytes, 1, b"abcd");
    bytes
}

/// Most clients connect before they send anything, so the connection of the cancel request is open already.
#[test]
fn a_cancel_request_comes_before_logins() {
    let (mut world, _client, mut logins) = storm();
    let mut cancel = logins.pop().expect("a client");
    for login in &mut logins {
        write(login, b"startup");
    }
    world.turns();
    write(&mut cancel, &cancel_request());
    world.until(|seen| steps_before_cancel_request(seen).is_some());
    let steps = steps_before_cancel_request(&world.seen());
    assert!(steps <= Some(3), "{steps:?} steps of logins came first");
    world.until(|seen| count_steps(seen) > LOGINS / 2);
}

#[test]
fn a_cancel_request_among_new_clients_comes_before_logins() {
    let (mut world, _client, mut logins) = storm();
    for login in &mut logins {
        write(login, b"startup");
    }
    world.turns();
    let path = world.folder.path().join(".s.PGSQL.5432");
    let mut others = Vec::new();
    for number in 0..6 {
        let mut client = UnixStream::connect(&path).expect("connect");
        match number {
            5 => write(&mut client, &cancel_request()),
            _ => write(&mut client, b"startup"),
        }
        others.push(client);
    }
    world.until(|seen| steps_before_cancel_request(seen).is_some());
    let steps = steps_before_cancel_request(&world.seen());
    assert!(steps <= Some(9), "{steps:?} steps of logins came first");
    // The others are served after the logins that came before them.
    world.until(|seen| count_accepted(seen) == 5);
    let left = LOGINS + 5;
    world.until(|seen| count_steps(seen) + 9 >= left);
}

#[test]
fn disconnects_of_idle_clients_wait_too() {
    let (mut world, mut client, logins) = storm();
    for slot in 1..=LOGINS as u32 {
        let conn = Token {
            slot,
            generation: 0,
        };
        world.act(Action::LoggedIn(conn));
        let mode = ReadMode::Notify;
        world.act(Action::Read { conn, mode });
    }
    drop(logins);
    write(&mut client, b"Q");
    world.turns();
    let seen = world.seen();
    assert_eq!(seen[..2], [Seen::Readable, Seen::HungUp]);
    assert_eq!(count(&seen, &Seen::HungUp), 1);
    world.until(|seen| count(seen, &Seen::HungUp) == LOGINS - 1);
}

#[test]
fn new_clients_are_accepted_one_by_one() {
    let (mut world, _client, _logins) = storm();
    let path = world.folder.path().join(".s.PGSQL.5432");
    let _more: Vec<_> = (0..5)
        .map(|_| UnixStream::connect(&path).expect("connect"))
        .collect();
    world.turns();
    world.turns();
    let accepted = count_accepted(&world.drivers[0].pooler.seen);
    assert!((1..=2).contains(&accepted), "{accepted} in two turns");
    world.until(|seen| count_accepted(seen) == 5);
}

/// A client that sends more while its first message waits stands in the queue once, and its bytes are read together.
#[test]
fn a_waiting_login_is_in_the_queue_once() {
    let (mut world, _client, mut logins) = storm();
    for _ in 0..3 {
        for login in &mut logins {
            write(login, b"piece");
        }
        world.turns();
    }
    assert!(world.drivers[0].io.turn.logins.len() <= LOGINS);
    world.until(|seen| received(seen).len() == 3 * 5 * LOGINS);
}

#[test]
fn mail_for_which_pending_events_must_be_processed_waits_for_postponed_ones() {
    let (mut world, _client, mut logins) = storm();
    for login in &mut logins {
        write(login, b"startup");
    }
    let to = WorkerId(0);
    let mail = Box::new(Mail::Busy(0));
    world.act(Action::MailAfterPending { to, mail });
    world.until(|seen| seen.contains(&Seen::Mail));
    assert_eq!(count_steps(&world.seen()), LOGINS);
}

#[test]
fn a_client_that_resets_its_connection_in_its_login_is_closed() {
    let (mut world, _client, mut logins) = storm();
    let mut leaving = logins.pop().expect("a client");
    world.drivers[0].call(|_, _, out| {
        let to = Token {
            slot: LOGINS as u32,
            generation: 0,
        };
        send(to, b"unread", out);
    });
    world.drivers[0].settle();
    write(&mut leaving, b"startup");
    // When a socket with unread bytes is closed, the kernel reports an error to the other side.
    drop(leaving);
    world.until(|seen| seen.iter().any(|one| matches!(one, Seen::Closed(_))));
    assert_eq!(world.drivers[0].io.table.len(), LOGINS);
}

#[test]
fn waiting_logins_are_counted() {
    let (mut world, _client, mut logins) = storm();
    for login in &mut logins {
        write(login, b"startup");
    }
    let delays = |world: &World| world.drivers[0].io.load.login_delays();
    let turns_before = delays(&world).1;
    world.turns();
    assert_eq!(delays(&world), (LOGINS - 1, turns_before + 1));
    world.until(|seen| count_steps(seen) == LOGINS);
    assert_eq!(delays(&world).0, 0);
}
