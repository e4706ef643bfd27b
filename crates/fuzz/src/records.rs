//! TLS records of a connection that was handed over, and the state of such a connection. Any bytes are accepted or
//! refused without a panic. A record that was not encrypted with the right keys gives no plaintext. A state that was
//! parsed is written as the same bytes.
//!
//! The first byte chooses the version and the cipher, and whether the rest is a state, records, or messages that the
//! target encrypts with the right keys.

use pgweir_records::{Direction, Keys, Records, Role, Saved, Suite, Version};

/// See the module.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else {
        return;
    };
    if choice >= 0xc0 {
        return state(rest);
    }
    let version = match choice & 1 {
        0 => Version::Tls12,
        _ => Version::Tls13,
    };
    let suite = match choice >> 1 & 3 {
        0 => Suite::Aes128Gcm,
        1 => Suite::Aes256Gcm,
        _ => Suite::ChaCha20Poly1305,
    };
    let role = match choice >> 3 & 1 {
        0 => Role::Server,
        _ => Role::Client,
    };
    let mut here = end(version, suite, role);
    match choice & 0x80 {
        0 => foreign(&mut here, rest),
        _ => inside(&mut here, end(version, suite, other(role)), rest),
    }
}

fn other(role: Role) -> Role {
    match role {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    }
}

fn end(version: Version, suite: Suite, role: Role) -> Records {
    let secret = match suite {
        Suite::Aes256Gcm => 48,
        Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => 32,
    };
    let direction = |seed: u8| {
        let keys = Keys {
            key: vec![seed; suite.key_len()].into(),
            iv: [seed; 12],
            sequence: 5,
            secret: (version == Version::Tls13).then(|| vec![seed; secret].into()),
        };
        Direction::new(suite, keys).expect("keys that fit")
    };
    let (read, write) = match role {
        Role::Server => (1, 2),
        Role::Client => (2, 1),
    };
    Records::new(version, role, direction(read), direction(write), Vec::new())
}

/// Takes bytes of an attacker without the keys.
fn foreign(here: &mut Records, bytes: &[u8]) {
    let (mut plain, mut answer) = (Vec::new(), Vec::new());
    let mut bytes = bytes.to_vec();
    if let Ok(opened) = here.open(&mut bytes, &mut plain, &mut answer) {
        assert_eq!(opened.consumed, 0, "a record without the keys");
    }
    assert!(plain.is_empty());
}

/// Takes messages of a peer that has the keys: each begins with its kind and its length.
fn inside(here: &mut Records, mut there: Records, bytes: &[u8]) {
    let (mut sealed, mut rest) = (Vec::new(), bytes);
    while let Some((&[kind, len], after)) = rest.split_first_chunk::<2>() {
        let (content, after) = after.split_at(usize::from(len).min(after.len()));
        rest = after;
        if there.seal_kind(kind, content, &mut sealed).is_err() {
            return;
        }
    }
    let (mut plain, mut answer) = (Vec::new(), Vec::new());
    let Ok(opened) = here.open(&mut sealed, &mut plain, &mut answer) else {
        return;
    };
    assert!(opened.has_ended || opened.consumed == sealed.len());
    assert!(plain.len() <= bytes.len());
    let mut sealed = Vec::new();
    if !answer.is_empty() {
        // The answer announces new keys, and these work.
        let mut none = Vec::new();
        assert!(there.open(&mut answer, &mut plain, &mut none).is_ok());
    }
    let before = plain.len();
    here.seal(b"reply", &mut sealed).expect("sealed");
    there
        .open(&mut sealed, &mut plain, &mut Vec::new())
        .expect("opened");
    assert_eq!(&plain[before..], b"reply");
}

fn state(bytes: &[u8]) {
    if let Ok(saved) = Saved::from_bytes(bytes) {
        assert!(*saved.to_bytes() == bytes);
        let _ = saved.resume();
    }
}
