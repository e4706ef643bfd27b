//! Connections close without loss of bytes, and within bounds.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use super::*;

/// Runs the drivers until no connection is being closed, for at most three seconds.
fn until_gone(world: &mut World) {
    for _ in 0..300 {
        if world.drivers[0].io.closing.is_empty() {
            return;
        }
        world.turns();
    }
    panic!("still lingering");
}

#[test]
fn unsent_bytes_arrive_after_the_close() {
    let mut world = World::new();
    let mut client = world.client();
    world.drivers[0].call(|_, _, out| {
        send(FIRST, &[5; 4 << 20], out);
        out.list.push(Action::Close(FIRST));
    });
    world.drivers[0].settle();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    until_gone(&mut world);
    assert_eq!(reader.join().expect("reader").expect("no reset"), 4 << 20);
    assert_eq!(world.seen(), []);
}

#[test]
fn unsent_bytes_are_kept_for_a_bounded_time() {
    let mut world = World::new();
    let _never_reads = world.client();
    world.drivers[0].io.options = Arc::new(NetOptions {
        close_flush_us: 50_000,
        ..NetOptions::default()
    });
    world.drivers[0].call(|_, _, out| {
        send(FIRST, &[5; 4 << 20], out);
        out.list.push(Action::Close(FIRST));
    });
    assert_eq!(world.drivers[0].io.closing.len(), 1);
    until_gone(&mut world);
}

#[test]
fn a_peer_that_never_closes_is_left_after_a_while() {
    let mut world = World::new();
    let _never_closes = world.client();
    world.drivers[0].call(|_, _, out| {
        send(FIRST, b"bye", out);
        out.list.push(Action::Close(FIRST));
    });
    assert_eq!(world.drivers[0].io.closing.len(), 1);
    until_gone(&mut world);
}

#[test]
fn a_close_without_a_last_answer_does_not_linger() {
    let mut world = World::new();
    let mut client = world.client();
    write(&mut client, b"X");
    world.answer(|conn, seen, out| {
        if matches!(seen, Seen::Received(_)) {
            out.list.push(Action::Close(conn));
        }
    });
    world.until(|seen| !received(seen).is_empty());
    assert!(world.drivers[0].io.closing.is_empty());
    assert_eq!(client.read(&mut [0; 8]).expect("no reset"), 0);
}

/// A plain close would fail this test: unread bytes make the kernel send a reset, and the reset discards bytes that
/// the client has not read yet.
#[test]
fn an_error_reaches_a_tcp_client_that_goes_on_sending() {
    let plan = ListenPlan {
        addresses: vec!["127.0.0.1".to_owned()],
        backlog: 8,
        ..ListenPlan::default()
    };
    let (listeners, _) =
        Listeners::open(&plan, &NetOptions::default().socket, Passed::NONE).expect("listen");
    let port = listeners
        .get(0)
        .and_then(|one| one.address())
        .expect("address")
        .port();
    let mut client =
        TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("connect");
    client
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("timeout");
    let arrival = loop {
        if let Ok(arrival) = listeners.get(0).expect("listener").accept() {
            break arrival;
        }
    };
    let mut world = World::with(1, 1024);
    world.answer(|conn, seen, out| {
        if matches!(seen, Seen::Received(_)) {
            send(conn, b"what you sent is wrong", out);
            out.list.push(Action::Close(conn));
        }
    });
    world.drivers[0].admit(arrival);
    write(&mut client, &[0xff; 100_000]);
    world.until(|seen| !received(seen).is_empty());
    write(&mut client, &[0xff; 100_000]);
    world.settle();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("no reset");
    assert_eq!(answer, b"what you sent is wrong");
    drop(client);
    until_gone(&mut world);
}
