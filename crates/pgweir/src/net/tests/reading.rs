//! The three read modes, the end of the stream, and fairness.

use super::*;

#[test]
fn bytes_come_as_they_arrive_and_go_back_from_the_buffer() {
    let mut world = World::new();
    world.answer(echo);
    let mut client = world.client();
    for piece in [b"one".as_slice(), b"two two", &[b'x'; 40_000]] {
        write(&mut client, piece);
        world.until(|seen| received(seen).len() >= piece.len());
        assert_eq!(received(&world.seen()), piece);
        assert_eq!(read_exactly(&mut client, piece.len()), piece);
    }
}

#[test]
fn a_notice_comes_once_and_leaves_the_bytes() {
    let mut world = World::new();
    let mut client = world.client();
    world.mode(ReadMode::Notify);
    write(&mut client, b"Q1");
    world.until(|seen| seen.contains(&Seen::Readable));
    write(&mut client, b"Q2");
    world.settle();
    assert_eq!(world.seen(), [Seen::Readable]);
    // epoll reports no new edge for these bytes: the change of the mode must deliver them.
    world.mode(ReadMode::Deliver);
    assert_eq!(world.seen(), [Seen::Received(b"Q1Q2".to_vec())]);
}

#[test]
fn bytes_that_arrive_while_reading_is_held_are_delivered_later() {
    let mut world = World::new();
    let mut client = world.client();
    world.mode(ReadMode::Hold);
    write(&mut client, b"Q");
    world.settle();
    assert_eq!(world.seen(), []);
    world.mode(ReadMode::Notify);
    assert_eq!(world.seen(), [Seen::Readable]);
    world.act(Action::Peek(FIRST));
    assert_eq!(world.seen(), [Seen::Peeked(Some(b'Q'))]);
}

#[test]
fn an_end_while_delivering_comes_after_the_last_bytes() {
    let mut world = World::with(1, 1024);
    let mut client = world.client();
    write(&mut client, &[7; 10_000]);
    drop(client);
    world.until(|seen| seen.iter().any(|one| matches!(one, Seen::Closed(_))));
    let seen = world.seen();
    assert_eq!(received(&seen).len(), 10_000);
    assert_eq!(seen.last(), Some(&Seen::Closed("end".to_owned())));
    assert_eq!(world.drivers[0].io.table.len(), 0);
}

#[test]
fn a_hang_up_while_reading_is_held_is_reported_once() {
    for mode in [ReadMode::Hold, ReadMode::Notify] {
        let mut world = World::new();
        let mut client = world.client();
        world.mode(mode);
        write(&mut client, b"X");
        drop(client);
        world.until(|seen| seen.contains(&Seen::HungUp));
        world.settle();
        let expected: &[Seen] = match mode {
            ReadMode::Notify => &[Seen::HungUp, Seen::Readable],
            _ => &[Seen::HungUp],
        };
        assert_eq!(world.seen(), expected);
        world.act(Action::Peek(FIRST));
        world.mode(ReadMode::Deliver);
        world.settle();
        let rest = [
            Seen::Peeked(Some(b'X')),
            Seen::Received(b"X".to_vec()),
            Seen::Closed("end".to_owned()),
        ];
        assert_eq!(world.seen(), rest);
    }
}

/// The bytes are read for the answer. They are delivered if the core does not close the connection.
#[test]
fn the_last_bytes_of_a_client_that_has_hung_up_are_delivered() {
    for last in [
        &b"X\0\0\0\x04"[..],
        b"Q\0\0\0\x06;\0X\0\0\0\x04",
        &[b'Q'; 20_000],
    ] {
        let mut world = World::new();
        let mut client = world.client();
        world.answer(|conn, seen, out| {
            if *seen == Seen::HungUp {
                out.list.push(Action::Peek(conn));
            }
        });
        world.mode(ReadMode::Notify);
        write(&mut client, last);
        drop(client);
        world.until(|seen| seen.contains(&Seen::Readable));
        let expected = [Seen::HungUp, Seen::Peeked(Some(last[0])), Seen::Readable];
        assert_eq!(world.seen(), expected);
        world.mode(ReadMode::Deliver);
        world.until(|seen| seen.last() == Some(&Seen::Closed("end".to_owned())));
        assert_eq!(received(&world.seen()), last);
    }
}

#[test]
fn a_hang_up_without_bytes_peeks_as_the_end() {
    let mut world = World::new();
    let client = world.client();
    world.answer(|conn, seen, out| {
        if *seen == Seen::HungUp {
            out.list.push(Action::Peek(conn));
        }
    });
    world.mode(ReadMode::Notify);
    drop(client);
    world.until(|seen| seen.contains(&Seen::Peeked(None)));
}

#[test]
fn a_mode_set_in_the_call_that_delivers_holds_the_rest_back() {
    let mut world = World::with(1, 1024);
    world.answer(|conn, seen, out| {
        if matches!(seen, Seen::Received(_)) {
            let mode = ReadMode::Hold;
            out.list.push(Action::Read { conn, mode });
        }
    });
    let mut client = world.client();
    write(&mut client, &[1; 5000]);
    world.settle();
    assert_eq!(received(&world.seen()).len(), 1024);
    world.mode(ReadMode::Deliver);
    assert_eq!(received(&world.seen()).len(), 1024);
}

#[test]
fn one_connection_gets_its_share_of_a_turn_and_no_more() {
    let mut world = World::with(1, 1024);
    let mut client = world.client();
    world.mode(ReadMode::Hold);
    write(&mut client, &[1; 20_000]);
    world.settle();
    world.mode(ReadMode::Deliver);
    assert_eq!(received(&world.seen()).len(), 4 * 1024);
    world.turns();
    assert_eq!(received(&world.seen()).len(), 4 * 1024);
    world.until(|seen| received(seen).len() == 20_000 - 8 * 1024);
}

#[test]
fn bytes_that_were_read_are_not_announced_again() {
    // Both clients' events are in one batch. The answer to the first reads the second client's bytes.
    let mut world = World::new();
    let mut first = world.client();
    let mut second = world.client();
    world.turns();
    let [one, two] = [0, 1].map(|slot| Token {
        slot,
        generation: 0,
    });
    world.drivers[0].call(|_, _, out| {
        out.list.push(Action::Read {
            conn: two,
            mode: ReadMode::Hold,
        });
    });
    write(&mut second, b"early");
    world.settle();
    world.answer(move |conn, seen, out| match seen {
        Seen::Received(_) if conn == one => out.list.push(Action::Read {
            conn: two,
            mode: ReadMode::Deliver,
        }),
        Seen::Received(_) => out.list.push(Action::Read {
            conn: two,
            mode: ReadMode::Notify,
        }),
        _ => {}
    });
    write(&mut first, b"go");
    write(&mut second, b" late");
    world.until(|seen| received(seen).len() == 12);
    world.settle();
    assert!(!world.seen().contains(&Seen::Readable));
    write(&mut second, b"new");
    world.until(|seen| seen.contains(&Seen::Readable));
}

#[test]
fn a_closed_token_causes_no_event() {
    let mut world = World::new();
    let mut client = world.client();
    write(&mut client, b"bytes");
    world.act(Action::Close(FIRST));
    world.settle();
    assert_eq!(world.seen(), []);
    assert_eq!(world.drivers[0].io.table.len(), 0);
}

#[test]
fn a_letter_waits_until_what_had_come_was_read() {
    let mut world = World::with(2, 16 * 1024);
    let mut client = world.client();
    for to in [WorkerId(0), WorkerId(1)] {
        write(&mut client, b"X");
        let mail = Box::new(Mail::PendingProcessed);
        world.act(Action::MailAfterPending { to, mail });
        assert_eq!(world.seen(), []);
        let seen = |world: &World, to: WorkerId| {
            let driver = &world.drivers[to.index()];
            driver.pooler.seen.contains(&Seen::Mail)
        };
        while !seen(&world, to) {
            world.turns();
        }
        assert_eq!(received(&world.seen()), b"X");
    }
}
