//! Runs both sides of SCRAM against each other.

use pgweir_auth::scram::{
    self, ChannelBinding, ClientExchange, ClientKeys, DeriveJob, MECHANISM, MECHANISM_PLUS,
    ScramError, Secret, ServerExchange,
};
use proptest::prelude::*;

/// The result of a whole exchange.
struct Outcome {
    /// The server's result, with the keys that it learned.
    server: Result<ClientKeys, ScramError>,
    /// The client's result, if the server has accepted its proof.
    client: Option<Result<(), ScramError>>,
}

fn run(
    client: &mut ClientExchange,
    server: &mut ServerExchange,
    keys: impl FnOnce(&scram::Challenge) -> ClientKeys,
) -> Outcome {
    let server_first = server
        .client_first(MECHANISM, &client.first())
        .expect("our own message");
    let challenge = client.server_first(&server_first).expect("our own message");
    let keys = keys(&challenge);
    let client_final = client.finish(&keys).expect("in order");
    assert!(!client.is_verified());
    match server.client_final(&client_final) {
        Ok((server_final, keys)) => Outcome {
            server: Ok(keys),
            client: Some(client.server_final(&server_final)),
        },
        Err(error) => Outcome {
            server: Err(error),
            client: None,
        },
    }
}

fn secret_of(password: &[u8], salt: &[u8], iterations: u32) -> Secret {
    let keys = DeriveJob::new(password, salt.to_vec(), iterations).run();
    scram::build_secret(&keys, salt.to_vec(), iterations)
}

fn derive(password: &[u8], challenge: &scram::Challenge) -> ClientKeys {
    DeriveJob::new(password, challenge.salt.clone(), challenge.iterations).run()
}

proptest! {
    #[test]
    fn the_right_password_passes_and_no_other(
        password in prop::collection::vec(1_u8.., 1..40),
        other in prop::collection::vec(1_u8.., 1..40),
        salt in prop::collection::vec(any::<u8>(), 1..40),
        iterations in 1_u32..50,
        nonces: ([u8; 18], [u8; 18]),
    ) {
        prop_assume!(password != other);
        let secret = secret_of(&password, &salt, iterations);

        let mut client = ClientExchange::new(&nonces.0);
        let mut server = ServerExchange::new(secret.clone(), &nonces.1);
        let outcome = run(&mut client, &mut server, |challenge| {
            assert!(secret.answers(challenge));
            derive(&password, challenge)
        });
        let learned = outcome.server.expect("the right password");
        prop_assert_eq!(outcome.client, Some(Ok(())));
        prop_assert!(client.is_verified());
        prop_assert!(secret.is_from(&learned));

        // The keys that the server learned log in to another server with the same secret.
        let mut client = ClientExchange::new(&nonces.1);
        let mut server = ServerExchange::new(secret.clone(), &nonces.0);
        let outcome = run(&mut client, &mut server, |_| learned);
        prop_assert!(outcome.server.is_ok());
        prop_assert!(client.is_verified());

        let mut client = ClientExchange::new(&nonces.0);
        let mut server = ServerExchange::new(secret, &nonces.1);
        let outcome = run(&mut client, &mut server, |challenge| derive(&other, challenge));
        // Two passwords may be the same to SASLprep, so compare keys and not bytes.
        let same = secret_of(&password, &salt, 1).is_from(&DeriveJob::new(&other, salt, 1).run());
        prop_assert_eq!(outcome.server.is_ok(), same);
    }

    #[test]
    fn any_bytes_do_no_harm(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 2),
    ) {
        let mut server = ServerExchange::new(secret_of(b"x", b"salt", 1), &[7; 18]);
        let _ = server.client_first(MECHANISM, &messages[0]);
        prop_assert!(server.client_final(&messages[1]).is_err());
        let mut client = ClientExchange::new(&[7; 18]);
        prop_assert!(client.server_first(&messages[0]).is_err());
        prop_assert!(client.server_final(&messages[1]).is_err());
        prop_assert!(!client.is_verified());
    }

    #[test]
    fn a_changed_byte_never_passes(at: prop::sample::Index, change in 1_u8..) {
        let mut client = ClientExchange::new(&[1; 18]);
        let mut server = ServerExchange::new(secret_of(b"x", b"salt", 2), &[2; 18]);
        let first = server.client_first(MECHANISM, &client.first()).expect("our own");
        let challenge = client.server_first(&first).expect("our own");
        let mut last = client.finish(&derive(b"x", &challenge)).expect("in order");
        // The last character but one of the proof holds two bits without a meaning.
        let at = at.index(last.len() - 2);
        last[at] ^= change;
        prop_assert!(server.client_final(&last).is_err());
    }
}

#[test]
fn an_unknown_user_is_like_a_wrong_password() {
    let key = [9; 32];
    let challenge_of = |user: &str, nonce| {
        let mut client = ClientExchange::new(&[1; 18]);
        let mut server = ServerExchange::mock(&key, user, 4096, &[nonce; 18]);
        let mut seen = None;
        let outcome = run(&mut client, &mut server, |challenge| {
            seen = Some(challenge.clone());
            derive(b"guess", challenge)
        });
        assert_eq!(
            outcome.server.expect_err("no such user"),
            ScramError::Failed
        );
        seen.expect("there was a challenge")
    };
    assert_eq!(challenge_of("alice", 1), challenge_of("alice", 2));
    assert_ne!(challenge_of("alice", 1).salt, challenge_of("bob", 1).salt);
    assert_eq!(challenge_of("bob", 1).iterations, 4096);
    assert_eq!(challenge_of("bob", 1).salt, scram::user_salt(&key, "bob"));
    assert_ne!(
        scram::user_salt(&key, "bob"),
        scram::user_salt(&[8; 32], "bob")
    );
}

#[test]
fn a_server_without_the_secret_is_detected() {
    // This server copies the check of a client's proof, but signs with a key of its own.
    let keys = DeriveJob::new(b"x", b"salt".to_vec(), 2).run();
    let other = DeriveJob::new(b"y", b"salt".to_vec(), 2).run();
    let (good, bad) = (
        scram::build_secret(&keys, b"salt".to_vec(), 2).to_text(),
        scram::build_secret(&other, b"salt".to_vec(), 2).to_text(),
    );
    let stored = good.rsplit_once(':').expect("two keys").0;
    let signing = bad.rsplit_once(':').expect("two keys").1;
    let impostor = Secret::parse(&format!("{stored}:{signing}")).expect("well formed");
    let mut client = ClientExchange::new(&[1; 18]);
    let mut server = ServerExchange::new(impostor, &[2; 18]);
    let outcome = run(&mut client, &mut server, |_| keys);
    assert_eq!(outcome.client, Some(Err(ScramError::ServerSignature)));
    assert!(!client.is_verified());
}

#[test]
fn messages_out_of_order_are_refused() {
    let secret = secret_of(b"x", b"salt", 1);
    let keys = secret.derive_job(b"x").run();
    let mut server = ServerExchange::new(secret.clone(), &[1; 18]);
    assert_eq!(
        server.client_final(b"c=biws").expect_err("too early"),
        ScramError::OutOfOrder
    );
    assert_eq!(
        server.client_first(MECHANISM, b"n,,n=,r=x"),
        Err(ScramError::OutOfOrder)
    );
    let mut client = ClientExchange::new(&[1; 18]);
    assert_eq!(client.finish(&keys), Err(ScramError::OutOfOrder));
    let mut client = ClientExchange::new(&[1; 18]);
    assert_eq!(client.server_final(b"v=x"), Err(ScramError::OutOfOrder));
    assert!(!client.is_verified());

    // No message may follow a whole exchange.
    let mut client = ClientExchange::new(&[1; 18]);
    let mut server = ServerExchange::new(secret, &[2; 18]);
    assert!(
        run(&mut client, &mut server, |_| keys.clone())
            .server
            .is_ok()
    );
    assert_eq!(
        server.client_final(b"c=biws").expect_err("over"),
        ScramError::OutOfOrder
    );
    assert_eq!(client.finish(&keys), Err(ScramError::OutOfOrder));
    assert!(!client.is_verified());
}

#[test]
fn no_debug_output_shows_a_key() {
    let secret = secret_of(b"hunter2", b"salt", 1);
    let job = DeriveJob::new(b"hunter2", b"salt".to_vec(), 1);
    let server = ServerExchange::new(secret.clone(), &[1; 18]);
    let client = ClientExchange::new(&[1; 18]);
    let shown = format!("{secret:?} {job:?} {server:?} {client:?} {:?}", job_keys());
    assert_eq!(
        shown,
        "Secret { iterations: 1, .. } DeriveJob { iterations: 1, .. } \
         ServerExchange { step: \"First\", .. } ClientExchange { step: \"First\", .. } \
         ClientKeys(..)"
    );
}

fn job_keys() -> ClientKeys {
    DeriveJob::new(b"hunter2", b"salt".to_vec(), 1).run()
}

/// Returns the result of an exchange in which both sides know the password and make this statement about channel
/// binding.
fn bound(
    client: ChannelBinding,
    server: Option<&[u8]>,
    mechanism: Option<&str>,
) -> Result<(), ScramError> {
    let mut client = ClientExchange::new(&[1; 18]).with_binding(client);
    let mut server =
        ServerExchange::new(secret_of(b"x", b"salt", 2), &[2; 18]).bound_to(server.map(Into::into));
    let mechanism = mechanism.unwrap_or(client.mechanism());
    let first = server.client_first(mechanism, &client.first())?;
    let challenge = client.server_first(&first)?;
    let last = client.finish(&derive(b"x", &challenge))?;
    let (last, _) = server.client_final(&last)?;
    client.server_final(&last)
}

#[test]
fn channel_binding() {
    let end_point = |hash: &[u8]| ChannelBinding::EndPoint(hash.into());
    let ours: Option<&[u8]> = Some(b"our certificate");
    assert_eq!(bound(end_point(b"our certificate"), ours, None), Ok(()));
    assert_eq!(bound(ChannelBinding::None, ours, None), Ok(()));
    assert_eq!(bound(ChannelBinding::NotOffered, None, None), Ok(()));
    // A man in the middle with another certificate.
    let theirs = bound(end_point(b"another certificate"), ours, None);
    assert_eq!(theirs, Err(ScramError::Binding));
    // A man in the middle who has removed the offer of channel binding.
    let downgraded = bound(ChannelBinding::NotOffered, ours, None);
    assert_eq!(downgraded, Err(ScramError::Downgrade));
    assert_eq!(
        bound(end_point(b"x"), None, None),
        Err(ScramError::Mechanism)
    );
    for (client, mechanism) in [
        (end_point(b"our certificate"), MECHANISM),
        (ChannelBinding::None, MECHANISM_PLUS),
        (ChannelBinding::NotOffered, MECHANISM_PLUS),
    ] {
        let outcome = bound(client, ours, Some(mechanism));
        assert!(matches!(outcome, Err(ScramError::Malformed(_))));
    }
}
