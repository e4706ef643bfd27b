//! Servers that stream large results: the worker wakes up for many bytes at once.

use std::net::{TcpListener, TcpStream};

use pgweir_core::Endpoint;

use super::*;

/// What PostgreSQL sends at a time.
const PIECE: [u8; 8192] = [1; 8192];

/// A world with a connection to this server, in mode `Deliver`.
fn server(ring: impl Fn() -> Option<Box<Ring>>) -> (World, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut world = World::with_rings(1, 256 * 1024, ring);
    world.answer(|conn, seen, out| {
        if *seen == Seen::Connected {
            let mode = ReadMode::Deliver;
            out.list.push(Action::Read { conn, mode });
        }
    });
    let endpoint = Arc::new(Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().expect("address").port(),
    });
    world.act(Action::Connect {
        conn: FIRST,
        endpoint,
    });
    world.until(|seen| seen.contains(&Seen::Connected));
    (world, listener.accept().expect("accept").0)
}

/// Sends one piece after the other, each when the previous one has arrived, until the server streams.
fn stream(world: &mut World, peer: &mut TcpStream) -> usize {
    for count in 1..100 {
        write(peer, &PIECE);
        world.until(|seen| received(seen).len() == count * PIECE.len());
        if is_on(world) {
            return count * PIECE.len();
        }
    }
    panic!("the server never streams");
}

fn is_on(world: &mut World) -> bool {
    let connection = world.drivers[0].io.table.get(FIRST).expect("a connection");
    connection.stream.is_on()
}

fn with_each_driver(test: impl Fn(World, TcpStream)) {
    let (world, peer) = server(|| None);
    test(world, peer);
    if Ring::new(8, &Arc::default()).is_ok() {
        let (world, peer) = server(|| Ring::new(8, &Arc::default()).ok().map(Box::new));
        test(world, peer);
    }
}

#[test]
fn pieces_of_a_large_result_arrive_together_and_the_last_ones_soon() {
    with_each_driver(|mut world, mut peer| {
        let before = stream(&mut world, &mut peer);
        // Less than what wakes the worker: no event reports these bytes.
        for _ in 0..4 {
            write(&mut peer, &PIECE);
        }
        write(&mut peer, b"the end");
        let all = before + 4 * PIECE.len() + 7;
        world.until(|seen| received(seen).len() == all);
        let reads = world.seen().len();
        assert!(reads <= before / PIECE.len() + 3, "{reads} reads");
    });
}

#[test]
fn a_server_that_has_sent_its_result_wakes_the_worker_for_each_byte() {
    with_each_driver(|mut world, mut peer| {
        stream(&mut world, &mut peer);
        for _ in 0..100 {
            if !is_on(&mut world) {
                break;
            }
            world.turns();
        }
        assert!(!is_on(&mut world));
        world.settle();
        world.seen();
        assert_eq!(world.drivers[0].io.timers.next(), None);
        write(&mut peer, b"1");
        world.until(|seen| received(seen) == b"1");
    });
}

/// Results of this size are no stream, however many follow each other.
#[test]
fn results_after_requests_do_not_add_up() {
    with_each_driver(|mut world, mut peer| {
        for count in 1..100 {
            world.drivers[0].call(|_, _, out| send(FIRST, b"request", out));
            write(&mut peer, &PIECE);
            world.until(|seen| received(seen).len() == count * PIECE.len());
        }
        assert!(!is_on(&mut world));
    });
}

#[test]
fn the_end_of_a_connection_is_reported_at_once() {
    with_each_driver(|mut world, mut peer| {
        let before = stream(&mut world, &mut peer);
        write(&mut peer, b"last");
        drop(peer);
        world.until(|seen| seen.last() == Some(&Seen::Closed("end".to_owned())));
        assert_eq!(received(&world.seen()).len(), before + 4);
    });
}
