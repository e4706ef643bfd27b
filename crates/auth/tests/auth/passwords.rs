//! md5 and plain passwords.

use pgweir_auth::{PlainCheck, md5, userlist::Secret, verify_md5, verify_plain};

const SCRAM: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
     $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
const SALT: [u8; 4] = [0x93, 0x00, 0xff, 0x2c];

#[test]
fn an_md5_answer_is_the_hash_of_the_hash() {
    // From Python's hashlib: md5(md5("secret" + "alice").hexdigest() + salt).
    let secret = md5::secret("secret", "alice");
    assert_eq!(secret.as_str(), "md54a0a68b43b6cd5cf266fa02f196e2371");
    assert_eq!(
        md5::response(&secret, SALT),
        "md55cf8bc71945015cad817000848787d96"
    );
}

#[test]
fn md5_works_with_plain_and_md5_secrets() {
    let hash = md5::secret("secret", "alice");
    let answer = md5::response(&hash, SALT);
    for secret in [Secret::parse("secret"), Secret::parse(&hash)] {
        assert!(verify_md5(&secret, "alice", SALT, answer.as_bytes()));
        let other_salt = [0; 4];
        assert!(!verify_md5(&secret, "alice", other_salt, answer.as_bytes()));
        for wrong in ["", "md5", &answer[..34], &hash, "secret"] {
            assert!(!verify_md5(&secret, "alice", SALT, wrong.as_bytes()));
        }
    }
    let plain = Secret::parse("secret");
    assert!(!verify_md5(&plain, "bob", SALT, answer.as_bytes()));
}

#[test]
fn md5_never_works_with_scram_or_empty_secrets() {
    for text in ["", SCRAM] {
        let answer = md5::response(&md5::secret(text, "alice"), SALT);
        let secret = Secret::parse(text);
        assert!(!verify_md5(&secret, "alice", SALT, answer.as_bytes()));
    }
}

#[test]
fn plain_passwords_are_checked_at_once_where_they_can() {
    let hash = md5::secret("secret", "alice");
    for secret in [Secret::parse("secret"), Secret::parse(&hash)] {
        let check = |password: &[u8]| verify_plain(&secret, "alice", password);
        assert!(matches!(check(b"secret"), PlainCheck::Accepted));
        for wrong in [&b""[..], b"Secret", b"secret\0", b"secre", b"\xff"] {
            assert!(matches!(check(wrong), PlainCheck::Refused));
        }
    }
}

#[test]
fn nobody_logs_in_with_an_empty_password() {
    let of_empty = md5::secret("", "alice");
    for text in ["", &of_empty, SCRAM] {
        let check = verify_plain(&Secret::parse(text), "alice", b"");
        assert!(matches!(check, PlainCheck::Refused));
    }
    assert!(Secret::parse("").is_empty());
    assert!(Secret::parse("").derive_job(vec![0; 16], 1).is_none());
}

#[test]
fn the_kind_of_a_secret_follows_from_its_form() {
    let hex = "0123456789abcdef0123456789abcdef";
    let cases = [
        (format!("md5{hex}"), "Md5(..)"),
        (format!("md5{}", hex.to_uppercase()), "Plain(..)"),
        (format!("md5{}", &hex[1..]), "Plain(..)"),
        (format!("MD5{hex}"), "Plain(..)"),
        (SCRAM.to_owned(), "Scram(..)"),
        (SCRAM.replace("$4096", "$0"), "Plain(..)"),
        (SCRAM.replace("$4096", "$+4096"), "Plain(..)"),
        (SCRAM.replace("$4096", "$99999999999"), "Plain(..)"),
        (SCRAM.replace("$4096", ""), "Plain(..)"),
        (SCRAM.replace("==", "="), "Plain(..)"),
        (SCRAM.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""), "Plain(..)"),
        (SCRAM[..SCRAM.len() - 1].to_owned(), "Plain(..)"),
        (format!("{SCRAM} "), "Plain(..)"),
        (SCRAM.to_lowercase(), "Plain(..)"),
        ("secret".to_owned(), "Plain(..)"),
        (String::new(), "Plain(..)"),
    ];
    for (text, kind) in cases {
        assert_eq!(format!("{:?}", Secret::parse(&text)), kind, "{text}");
    }
}
