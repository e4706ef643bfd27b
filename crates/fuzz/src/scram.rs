//! Any bytes as the messages of a SCRAM exchange, in both roles.
//!
//! Line ends separate messages. A `@` stands for the nonce, which the fuzzer cannot guess. The target checks that no client
//! logs in without the key, that no server is accepted without its key, and that a parsed secret is written as the same
//! text.

use pgweir_auth::scram::{
    ClientExchange, DeriveJob, MECHANISM, Secret, ServerExchange, build_secret,
};

const NONCE: [u8; 18] = [0; 18];
const NONCE_TEXT: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAAAA";

/// See the module.
pub fn run(data: &[u8]) {
    let mut messages = data.split(|&b| b == b'\n').map(with_nonce);
    let first = messages.next().unwrap_or_default();
    let second = messages.next().unwrap_or_default();

    let keys = DeriveJob::new(b"x", b"salt".to_vec(), 1).run();
    let secret = build_secret(&keys, b"salt".to_vec(), 1);

    let mut server = ServerExchange::new(secret, &NONCE);
    if let Ok(answer) = server.client_first(MECHANISM, &first) {
        assert!(answer.starts_with(b"r="));
    }
    assert!(
        server.client_final(&second).is_err(),
        "let in without a key"
    );

    let mut client = ClientExchange::new(&NONCE);
    if client.server_first(&first).is_ok() {
        let answer = client.finish(&keys).expect("in order");
        assert!(answer.starts_with(b"c=biws,r="));
    }
    assert!(
        client.server_final(&second).is_err(),
        "believed an impostor"
    );
    assert!(!client.is_verified());

    if let Some(secret) = std::str::from_utf8(&first).ok().and_then(Secret::parse) {
        let text = secret.to_text();
        let again = Secret::parse(&text).expect("our own text");
        assert_eq!(again.to_text(), text);
    }
}

fn with_nonce(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in message {
        match byte {
            b'@' => out.extend_from_slice(NONCE_TEXT),
            other => out.push(other),
        }
    }
    out
}
