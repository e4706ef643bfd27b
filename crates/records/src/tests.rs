use zeroize::Zeroizing;

use super::*;

const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

fn keys(suite: Suite, version: Version, seed: u8, sequence: u64) -> Keys {
    let secret_len = suite.secret_len();
    let keys = Keys {
        key: Zeroizing::new(vec![seed; suite.key_len()]),
        iv: [seed; 12],
        sequence,
        secret: None,
    };
    match version {
        Version::Tls12 => keys,
        Version::Tls13 => Keys {
            secret: Some(Zeroizing::new(vec![seed; secret_len])),
            ..keys
        },
    }
}

/// Creates two ends of a connection.
fn ends(suite: Suite, version: Version) -> [Records; 2] {
    let saved = |role, read, write| Saved {
        version,
        role,
        suite,
        read,
        write,
        handshake: Vec::new(),
        partial: Vec::new(),
        plain: Vec::new(),
        has_ended: false,
    };
    let [up, down] = [(1, 7), (2, 900)].map(|(seed, at)| keys(suite, version, seed, at));
    [
        saved(Role::Server, up.clone(), down.clone()),
        saved(Role::Client, down, up),
    ]
    .map(|state| state.resume().expect("keys that fit"))
}

fn pass(from: &mut Records, to: &mut Records, plain: &[u8]) -> Vec<u8> {
    let (mut sealed, mut got, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    from.seal(plain, &mut sealed).expect("sealed");
    let opened = to.open(&mut sealed, &mut got, &mut answer).expect("opened");
    assert_eq!(opened.consumed, sealed.len());
    assert!(answer.is_empty());
    got
}

fn again(one: Records) -> Records {
    let saved = one.save();
    let bytes = saved.to_bytes();
    let read = Saved::from_bytes(&bytes).expect("what was written");
    assert!(read == saved);
    assert!(!format!("{read:?}").contains("key"));
    read.resume().expect("keys that fit")
}

#[test]
fn both_directions_and_several_processes() {
    for version in [Version::Tls12, Version::Tls13] {
        for suite in SUITES {
            let [mut server, mut client] = ends(suite, version);
            for round in 0..3 {
                let long = vec![round; 40_000];
                assert_eq!(pass(&mut client, &mut server, b"question"), b"question");
                assert_eq!(pass(&mut server, &mut client, &long), long);
                server = again(server);
                client = again(client);
            }
            let (mut sealed, mut plain, mut answer) = (Vec::new(), Vec::new(), Vec::new());
            server.close(&mut sealed).expect("closed");
            let opened = client.open(&mut sealed, &mut plain, &mut answer);
            assert!(opened.expect("an end").has_ended && plain.is_empty());
            assert_eq!(server.seal(b"x", &mut sealed), Err(RecordError::Closed));
        }
    }
}

#[test]
fn records_in_pieces() {
    let [mut server, mut client] = ends(Suite::Aes128Gcm, Version::Tls13);
    let mut sealed = Vec::new();
    for word in ["one", "two", "three"] {
        client.seal(word.as_bytes(), &mut sealed).expect("sealed");
    }
    let (mut held, mut plain, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    for byte in sealed {
        held.push(byte);
        let opened = server
            .open(&mut held, &mut plain, &mut answer)
            .expect("fine");
        held.drain(..opened.consumed);
    }
    assert_eq!(plain, b"onetwothree");
    assert!(held.is_empty());
}

#[test]
fn a_changed_byte_ends_the_connection() {
    for version in [Version::Tls12, Version::Tls13] {
        for suite in SUITES {
            let [mut server, mut client] = ends(suite, version);
            let (mut sealed, mut plain, mut answer) = (Vec::new(), Vec::new(), Vec::new());
            client.seal(b"question", &mut sealed).expect("sealed");
            *sealed.last_mut().expect("a tag") ^= 1;
            let outcome = server.open(&mut sealed, &mut plain, &mut answer);
            assert_eq!(outcome, Err(RecordError::BadRecord));
            assert!(plain.is_empty());
            let mut none = Vec::new();
            let opened = client.open(&mut answer, &mut plain, &mut none);
            assert_eq!(opened, Err(RecordError::Alert(20)));
        }
    }
}

#[test]
fn a_record_can_not_come_twice() {
    let [mut server, mut client] = ends(Suite::ChaCha20Poly1305, Version::Tls12);
    let (mut sealed, mut plain, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    client.seal(b"once", &mut sealed).expect("sealed");
    let mut copy = sealed.clone();
    assert!(server.open(&mut sealed, &mut plain, &mut answer).is_ok());
    let twice = server.open(&mut copy, &mut plain, &mut answer);
    assert_eq!(twice, Err(RecordError::BadRecord));
}

#[test]
fn used_up_keys_are_replaced_or_end_the_connection() {
    for (version, goes_on) in [(Version::Tls12, false), (Version::Tls13, true)] {
        let [mut server, mut client] = [(1, 2), (2, 1)].map(|(read, write)| {
            let keys = |seed| keys(Suite::Aes256Gcm, version, seed, (1 << 24) - 1);
            let suite = Suite::Aes256Gcm;
            let new = |seed| Direction::new(suite, keys(seed)).expect("keys that fit");
            Records::new(version, Role::Server, new(read), new(write), Vec::new())
        });
        assert_eq!(pass(&mut client, &mut server, b"the last"), b"the last");
        let mut sealed = Vec::new();
        let outcome = client.seal(b"one more", &mut sealed);
        assert_eq!(outcome.is_ok(), goes_on, "{version:?}");
        if goes_on {
            let (mut plain, mut answer) = (Vec::new(), Vec::new());
            server
                .open(&mut sealed, &mut plain, &mut answer)
                .expect("new keys");
            assert_eq!(plain, b"one more");
            let mut server = again(server);
            assert_eq!(
                pass(&mut again(client), &mut server, b"and more"),
                b"and more"
            );
        }
    }
}

#[test]
fn keys_are_found_after_updates() {
    for suite in SUITES {
        let first = vec![9; suite.secret_len()];
        // These keys are made by updates from the first secret, as rustls makes them.
        let mut at = Direction::new(
            suite,
            Direction::find(
                suite,
                Keys {
                    secret: Some(Zeroizing::new(first.clone())),
                    ..keys(suite, Version::Tls12, 0, 0)
                },
                &first,
            ),
        )
        .expect("keys that fit");
        for _ in 0..3 {
            at.update().expect("new keys");
        }
        let bare = Keys {
            secret: None,
            ..at.keys().clone()
        };
        let found = Direction::find(suite, bare, &first);
        assert!(found.secret.is_some() && found == *at.keys());
        let foreign = Direction::find(suite, keys(suite, Version::Tls12, 3, 0), &first);
        assert!(foreign.secret.is_none(), "no update leads there");
    }
}

#[test]
fn invalid_states_are_refused() {
    let [server, _] = ends(Suite::Aes128Gcm, Version::Tls13);
    let bytes = server.save().to_bytes();
    for len in 0..bytes.len() {
        assert!(Saved::from_bytes(&bytes[..len]).is_err());
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(Saved::from_bytes(&longer).is_err());
    let mut state = Saved::from_bytes(&bytes).expect("whole");
    state.suite = Suite::Aes256Gcm;
    assert!(state.resume().is_err(), "the key is too short");
}
