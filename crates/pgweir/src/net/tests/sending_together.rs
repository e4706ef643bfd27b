//! Short sends that the ring makes in one call.

use super::*;
use crate::net::tests::falling_back::{forbid_calls, is_ring, world_with_ring};

const SECOND: Token = Token {
    slot: 1,
    generation: 0,
};

/// A worker with a ring and two clients, or `None` if the kernel allows no ring.
fn two_clients() -> Option<(World, UnixStream, UnixStream)> {
    let mut world = world_with_ring()?;
    let first = world.client();
    world.drivers[0].pooler.seen.clear();
    let second = world.client();
    world.settle();
    Some((world, first, second))
}

fn send_to_both(world: &mut World, first: &[u8], second: &[u8]) {
    world.drivers[0].call(|_, _, out| {
        send(FIRST, first, out);
        send(SECOND, second, out);
    });
    world.drivers[0].settle();
}

fn waiting(world: &World) -> usize {
    world.drivers[0].io.sends_waiting()
}

#[test]
fn sends_wait_for_the_end_of_the_turn() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    for round in 0..3u8 {
        send_to_both(&mut world, &[round, 1], &[round, 2]);
        send_to_both(&mut world, &[round, 3], &[round, 4]);
        assert_eq!(waiting(&world), 2);
        world.turns();
        assert_eq!(waiting(&world), 0);
        assert_eq!(read_exactly(&mut first, 4), [round, 1, round, 3]);
        assert_eq!(read_exactly(&mut second, 4), [round, 2, round, 4]);
    }
    assert!(is_ring(&world));
    assert_eq!(world.seen(), []);
}

#[test]
fn long_sends_keep_their_order() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    let long = vec![b'l'; 5000];
    send_to_both(&mut world, b"first", b"other");
    send_to_both(&mut world, &long, b"s");
    send_to_both(&mut world, b"last", b"!");
    world.turns();
    assert_eq!(
        read_exactly(&mut first, 5009),
        [b"first", &long[..], b"last"].concat()
    );
    assert_eq!(read_exactly(&mut second, 7), b"others!");
}

#[test]
fn more_sends_than_places_are_made() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    // The ring of the test has eight places.
    let mut clients = Vec::new();
    for _ in 0..20 {
        world.drivers[0].pooler.seen.clear();
        clients.push(world.client());
    }
    world.drivers[0].call(|_, _, out| {
        for slot in 0..20 {
            let to = Token {
                slot,
                generation: 0,
            };
            send(to, &[slot as u8], out);
        }
    });
    assert_eq!(waiting(&world), 8);
    world.turns();
    for (slot, client) in clients.iter_mut().enumerate() {
        assert_eq!(read_exactly(client, 1), [slot as u8]);
    }
}

#[test]
fn what_a_full_socket_does_not_take_follows_later() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    let mut length = 0;
    // Until the socket's buffer is full.
    while !world.drivers[0].pooler.seen.contains(&Seen::Blocked) {
        let piece: Vec<u8> = (length..length + 3000).map(|at| (at % 251) as u8).collect();
        send_to_both(&mut world, &piece, b"x");
        world.turns();
        length += piece.len();
        assert!(length < 20_000_000, "never full");
        assert_eq!(read_exactly(&mut second, 1), b"x");
        let driver = &mut world.drivers[0];
        let has_rest = driver
            .io
            .table
            .get(FIRST)
            .expect("open")
            .output
            .unsent
            .is_some();
        assert_eq!(
            has_rest,
            driver.pooler.seen.contains(&Seen::Blocked),
            "reported in its turn"
        );
    }
    send_to_both(&mut world, b"later", b"y");
    let reader = std::thread::spawn(move || read_exactly(&mut first, length + 5));
    world.until(|seen| seen.contains(&Seen::Drained));
    let bytes = reader.join().expect("reader");
    let expected: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    assert!(bytes[..length] == expected && bytes[length..] == *b"later");
    assert_eq!(read_exactly(&mut second, 1), b"y");
}

#[test]
fn a_client_that_is_gone_does_not_disturb_others() {
    let Some((mut world, first, mut second)) = two_clients() else {
        return;
    };
    drop(first);
    send_to_both(&mut world, b"into the void", b"hello");
    world.until(|seen| seen.iter().any(|one| matches!(one, Seen::Closed(_))));
    assert_eq!(read_exactly(&mut second, 5), b"hello");
    let ends = world.seen();
    let ends = ends.iter().filter(|one| matches!(one, Seen::Closed(_)));
    assert_eq!(ends.count(), 1);
}

#[test]
fn a_connection_is_closed_after_its_last_bytes() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    world.drivers[0].call(|_, _, out| {
        send(FIRST, b"farewell", out);
        send(SECOND, b"go on", out);
        out.list.push(Action::Close(FIRST));
    });
    world.settle();
    let mut bytes = Vec::new();
    first.read_to_end(&mut bytes).expect("end");
    assert_eq!(bytes, b"farewell");
    assert_eq!(read_exactly(&mut second, 5), b"go on");
}

#[test]
fn a_connection_moves_after_its_last_bytes() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    send_to_both(&mut world, b"here", b"there");
    let (moved, _) = world.drivers[0].io.detach(FIRST).expect("open");
    assert!(moved.output.failed.is_none() && moved.output.unsent.is_none());
    assert_eq!(read_exactly(&mut first, 4), b"here");
    world.turns();
    assert_eq!(read_exactly(&mut second, 5), b"there");
}

#[test]
fn each_byte_is_sent_once_when_the_ring_fails() {
    let Some((mut world, mut first, mut second)) = two_clients() else {
        return;
    };
    send_to_both(&mut world, b"one", b"two");
    forbid_calls();
    world.turns();
    assert!(!is_ring(&world));
    send_to_both(&mut world, b" end", b" end");
    assert_eq!(read_exactly(&mut first, 7), b"one end");
    assert_eq!(read_exactly(&mut second, 7), b"two end");
    world.settle();
    assert_eq!(world.seen(), []);
}
