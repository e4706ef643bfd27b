//! Malformed messages.

use pgweir_auth::scram::{
    self, ClientExchange, DeriveJob, MAX_CLIENT_MESSAGE_BYTES, MAX_SERVER_MESSAGE_BYTES, MECHANISM,
    ScramError, ServerExchange,
};

/// The Base64 of 18 zero bytes: the nonce of both sides.
const NONCE: &str = "AAAAAAAAAAAAAAAAAAAAAAAA";
/// Base64 of 32 zero bytes.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn server() -> ServerExchange {
    let keys = DeriveJob::new(b"x", b"salt".to_vec(), 1).run();
    let secret = scram::build_secret(&keys, b"salt".to_vec(), 1);
    ServerExchange::new(secret, &[0; 18])
}

fn client_first(message: &str) -> Result<String, String> {
    let mut server = server();
    let answer = server.client_first(MECHANISM, message.as_bytes());
    if answer.is_err() {
        let last = format!("c=biws,r=x{NONCE},p={KEY}");
        let after = server.client_final(last.as_bytes()).expect_err("over");
        assert_eq!(after, ScramError::OutOfOrder);
    }
    answer
        .map(|bytes| String::from_utf8(bytes).expect("ASCII"))
        .map_err(|error| tell(&error))
}

fn client_final(message: &str) -> String {
    let mut server = server();
    server
        .client_first(MECHANISM, b"n,,n=,r=x")
        .expect("well formed");
    tell(
        &server
            .client_final(message.as_bytes())
            .expect_err("no proof"),
    )
}

fn server_first(message: &str) -> Result<u32, String> {
    let mut client = ClientExchange::new(&[0; 18]);
    match client.server_first(message.as_bytes()) {
        Ok(challenge) => {
            assert_eq!(challenge.salt, b"salt");
            Ok(challenge.iterations)
        }
        Err(error) => Err(tell(&error)),
    }
}

fn server_final(message: &str) -> String {
    let mut client = ClientExchange::new(&[0; 18]);
    let first = format!("r={NONCE}y,s=c2FsdA==,i=1");
    client.server_first(first.as_bytes()).expect("well formed");
    let keys = DeriveJob::new(b"x", b"salt".to_vec(), 1).run();
    client.finish(&keys).expect("in order");
    let error = client.server_final(message.as_bytes()).expect_err("wrong");
    assert!(!client.is_verified());
    tell(&error)
}

fn tell(error: &ScramError) -> String {
    let detail = error.detail().unwrap_or_default();
    format!("{} {error} {detail}", error.sqlstate())
        .trim_end()
        .to_owned()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, String>, expected: &str) {
    let error = result.expect_err(expected);
    assert!(error.contains(expected), "{error} instead of {expected}");
}

#[test]
fn client_first_messages() {
    let answer = format!("r=x{NONCE},s=c2FsdA==,i=1");
    for good in [
        "n,,n=,r=x",
        "y,,n=,r=x",
        "n,,n=user,r=x",
        "n,,n=a=2Cb,r=x",
        "n,,n=,r=x,z=extension,q=",
    ] {
        assert_eq!(client_first(good).as_ref(), Ok(&answer), "{good}");
    }
    for (message, expected) in [
        ("", "08P01 malformed SCRAM message The message is empty."),
        ("n", "Unexpected attribute."),
        ("n,", "Unexpected attribute.|User name expected."),
        ("n,,", "Attribute expected."),
        ("n,,n=", "Nonce expected."),
        ("n,,n=,", "Attribute expected."),
        ("n,,r=x,n=", "User name expected."),
        ("n,,n=,r=", "The nonce is empty."),
        ("n,,n=,r=a b", "non-printable"),
        ("n,,n=,r=ä", "non-printable"),
        ("n,,n=,r=a\x7f", "non-printable"),
        ("n,,n=,r=x,", "Attribute expected."),
        ("n,,n=,r=x,1=y", "Attribute expected."),
        ("n,,n=,r=x,zy", "Attribute expected."),
        ("n,,n=,r=x\0", "NUL"),
        ("n,,n,r=x", "Attribute expected."),
        ("N,,n=,r=x", "Unexpected channel-binding flag."),
        (",,n=,r=x", "Unexpected channel-binding flag."),
        ("nn,,n=,r=x", "Unexpected channel-binding flag."),
        ("p,,n=,r=x", "Unexpected channel-binding flag."),
        ("p=tls-server-end-point,,n=,r=x", "without channel binding"),
        (
            "p=tls-unique,,n=,r=x",
            "0A000 unsupported SCRAM channel-binding type",
        ),
        (
            "n,a=admin,n=,r=x",
            "0A000 client uses authorization identity",
        ),
        ("n,x,n=,r=x", "Unexpected attribute."),
        (
            "n,,m=ext,n=,r=x",
            "0A000 client requires an unsupported SCRAM extension",
        ),
    ] {
        let error = client_first(message).expect_err(message);
        let fits = expected.split('|').any(|part| error.contains(part));
        assert!(fits, "{message:?}: {error}");
    }
    let long = format!("n,,n=,r={}", "x".repeat(MAX_CLIENT_MESSAGE_BYTES));
    refused(client_first(&long), "too long");
    let fits = format!("n,,n=,r={}", "x".repeat(MAX_CLIENT_MESSAGE_BYTES - 8));
    assert!(client_first(&fits).is_ok());
}

#[test]
fn mechanisms() {
    for mechanism in ["", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1", "scram-sha-256"] {
        assert_eq!(
            server().client_first(mechanism, b"n,,n=,r=x"),
            Err(ScramError::Mechanism)
        );
    }
}

#[test]
fn client_final_messages() {
    // Well formed, but without the right proof.
    for well_formed in ["", ",z=extension", ",z=a,y=b"] {
        let message = format!("c=biws,r=x{NONCE}{well_formed},p={KEY}");
        assert_eq!(
            client_final(&message),
            "28P01 password authentication failed"
        );
    }
    let short_key = &KEY[..40];
    for (message, expected) in [
        (String::new(), "The message is empty."),
        (
            format!("r=x{NONCE},c=biws,p={KEY}"),
            "Channel binding expected.",
        ),
        (
            format!("c=eSws,r=x{NONCE},p={KEY}"),
            "Unexpected channel-binding",
        ),
        (
            format!("c=,r=x{NONCE},p={KEY}"),
            "Unexpected channel-binding",
        ),
        (format!("c=biws,r={NONCE},p={KEY}"), "Nonce does not match."),
        (format!("c=biws,r=x,p={KEY}"), "Nonce does not match."),
        (format!("c=biws,r=,p={KEY}"), "Nonce does not match."),
        (
            format!("c=biws,r=x{NONCE}x,p={KEY}"),
            "Nonce does not match.",
        ),
        (format!("c=biws,p={KEY}"), "Nonce expected."),
        (format!("c=biws,r=x{NONCE}"), "Proof expected."),
        (format!("c=biws,r=x{NONCE},p="), "Malformed proof"),
        (format!("c=biws,r=x{NONCE},p=!"), "Malformed proof"),
        (
            format!("c=biws,r=x{NONCE},p={short_key}"),
            "Malformed proof",
        ),
        (format!("c=biws,r=x{NONCE},p={KEY}AAAA"), "Malformed proof"),
        (format!("c=biws,r=x{NONCE},p={KEY},z=y"), "Garbage found"),
        (format!("c=biws,r=x{NONCE},p={KEY},"), "Garbage found"),
        (format!("c=biws,r=x{NONCE},,p={KEY}"), "Attribute expected."),
        (format!("c=biws,r=x{NONCE},p={KEY}\0"), "NUL"),
        (
            format!("c=biws,r=x{NONCE},z={},p={KEY}", "z".repeat(1000)),
            "too long",
        ),
    ] {
        let error = client_final(&message);
        assert!(error.starts_with("08P01 "), "{message:?}: {error}");
        assert!(error.contains(expected), "{message:?}: {error}");
    }
}

#[test]
fn server_first_messages() {
    assert_eq!(
        server_first(&format!("r={NONCE}y,s=c2FsdA==,i=4096")),
        Ok(4096)
    );
    assert_eq!(
        server_first(&format!("r={NONCE}y,s=c2FsdA==,i=10000000,z=extension")),
        Ok(10_000_000)
    );
    for (message, expected) in [
        (String::new(), "The message is empty."),
        (format!("s=c2FsdA==,r={NONCE}y,i=1"), "Nonce expected."),
        (format!("r={NONCE},s=c2FsdA==,i=1"), "Nonce does not match."),
        ("r=y,s=c2FsdA==,i=1".to_owned(), "Nonce does not match."),
        (format!("r={NONCE}ä,s=c2FsdA==,i=1"), "non-printable"),
        (format!("r={NONCE}y"), "Salt expected."),
        (format!("r={NONCE}y,s=,i=1"), "Invalid salt."),
        (format!("r={NONCE}y,s=c2FsdA,i=1"), "Invalid salt."),
        (
            format!("r={NONCE}y,s=c2FsdA=="),
            "Iteration count expected.",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i="),
            "Invalid iteration count.",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i=0"),
            "Invalid iteration count.",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i=-1"),
            "Invalid iteration count.",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i=1x"),
            "Invalid iteration count.",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i=10000001"),
            "more than 10000000",
        ),
        (
            format!("r={NONCE}y,s=c2FsdA==,i=99999999999"),
            "more than 10000000",
        ),
        (format!("r={NONCE}y,s=c2FsdA==,i=1,"), "Attribute expected."),
        (
            format!("m=ext,r={NONCE}y,s=c2FsdA==,i=1"),
            "0A000 server requires",
        ),
        ("x".repeat(MAX_SERVER_MESSAGE_BYTES + 1), "too long"),
    ] {
        refused(server_first(&message), expected);
    }
}

#[test]
fn server_final_messages() {
    for (message, expected) in [
        (String::new(), "The message is empty."),
        ("x=".to_owned(), "Server signature expected."),
        ("v".to_owned(), "Attribute expected."),
        ("v=".to_owned(), "Invalid server signature."),
        (format!("v={}", &KEY[1..]), "Invalid server signature."),
        (format!("v={KEY},"), "Attribute expected."),
        (
            format!("v={KEY}"),
            "28000 the server's SCRAM signature is wrong",
        ),
        (
            "e=other-error".to_owned(),
            "28000 the server ended the SCRAM exchange: other-error",
        ),
        ("e=a\x1b[2Jb".to_owned(), "exchange: a?[2Jb"),
        ("e".to_owned(), "Attribute expected."),
    ] {
        let error = server_final(&message);
        assert!(error.contains(expected), "{message:?}: {error}");
    }
    let long = format!("e={}", "x".repeat(1000));
    assert!(server_final(&long).len() < 300);
}
