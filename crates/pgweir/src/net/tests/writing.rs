//! Bytes that a socket does not accept at once.

use super::*;

/// More bytes than any socket buffer has.
const MUCH: usize = 4 << 20;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251) as u8).collect()
}

#[test]
fn the_rest_is_kept_and_arrives_in_order() {
    let mut world = World::new();
    let mut client = world.client();
    world.drivers[0].call(|_, _, out| send(FIRST, &pattern(MUCH), out));
    world.drivers[0].settle();
    assert_eq!(world.seen(), [Seen::Blocked]);
    world.drivers[0].call(|_, _, out| send(FIRST, b"later", out));
    world.settle();
    assert_eq!(world.seen(), []);
    let reader = std::thread::spawn(move || read_exactly(&mut client, MUCH + 5));
    world.until(|seen| seen.contains(&Seen::Drained));
    let bytes = reader.join().expect("reader");
    assert!(bytes[..MUCH] == pattern(MUCH) && bytes[MUCH..] == *b"later");
    assert_eq!(world.seen(), [Seen::Drained]);
    let connection = world.drivers[0].io.table.get(FIRST).expect("open");
    assert!(
        connection.output.unsent.is_none(),
        "a drained connection owns no buffer"
    );
}

#[test]
fn many_pieces_go_out_in_order() {
    let mut world = World::new();
    let mut client = world.client();
    world.drivers[0].call(|_, _, out| {
        for piece in 0..100u8 {
            // A byte between them keeps the pieces apart.
            out.scratch.push(0);
            send(FIRST, &[piece], out);
        }
    });
    assert_eq!(
        read_exactly(&mut client, 100),
        (0..100).collect::<Vec<u8>>()
    );
}

#[test]
fn a_failed_write_is_reported_once_after_the_last_words() {
    let mut world = World::new();
    let mut client = world.client();
    world.settle();
    write(&mut client, b"last words");
    drop(client);
    // The write fails before epoll reports the end to the driver.
    world.drivers[0].call(|_, _, out| {
        send(FIRST, b"into the void", out);
        send(
            Token {
                slot: 5,
                generation: 5,
            },
            b"to nobody",
            out,
        );
        send(FIRST, b"again", out);
    });
    world.drivers[0].settle();
    world.settle();
    let seen = world.seen();
    assert_eq!(seen[0], Seen::Received(b"last words".to_vec()));
    assert!(
        matches!(&seen[1..], [Seen::Closed(error)] if error.contains("Broken pipe")),
        "{seen:?}"
    );
}

#[test]
fn a_failed_write_ends_a_held_connection_at_once() {
    let mut world = World::new();
    let client = world.client();
    world.mode(ReadMode::Hold);
    world.settle();
    drop(client);
    world.drivers[0].call(|_, _, out| send(FIRST, b"into the void", out));
    world.drivers[0].settle();
    assert!(matches!(&world.seen()[..], [Seen::Closed(_)]));
}
