//! Secrets that PostgreSQL 15 made of known passwords.

use pgweir_auth::{
    PlainCheck, md5,
    scram::{self, DeriveJob},
    userlist::Secret,
    verify_plain,
};

/// Passwords and their `rolpassword`. Most of them show a difference between SASLprep as PostgreSQL does it and the
/// unchanged bytes, or the RFC.
const SECRETS: &[(&str, &str)] = &[
    // plain ASCII
    (
        "foobar",
        "SCRAM-SHA-256$4096:W71TGMzqCcZjTWkGNEzEUw==$vBa77EoPw/9IkeML/wQh78OrR+/VPCxB81jeGlTytEg=:MYEWkVa4ncj4EXmOvjqF6XF0TDSLGOdOseqITRSZJfM=",
    ),
    // a control character: prohibited, but SASLprep is not applied to ASCII
    (
        "a\u{1}b",
        "SCRAM-SHA-256$4096:XN4LZdmx6aamagXuU+hGzw==$vd0KFXFbDzGm98KuhwoFL/72d2B4pKcmeKtjqP5LvTc=:30Y2t4zGjxXN1AZD5jTIFrQ6BOjTwII4B8b14exHHuw=",
    ),
    // a space of another kind
    (
        "pass\u{a0}word",
        "SCRAM-SHA-256$4096:9KPtW+1SkQQgoqUHZ6yT9Q==$z5p18WVwBdbs83YsIi29f71HjrORK/nfmDCJycLpfI8=:QvTXno+XjUzYRAlB9LntWWSdHJoJrtWOV0gpuKkz0FQ=",
    ),
    // a character that maps to nothing
    (
        "I\u{ad}X",
        "SCRAM-SHA-256$4096:yL5OLQS9fU+Z934GCKDTxA==$v+4f00rnIqteK9Jc8ke80rmhlldcRSOV7AqWMB98/+I=:p3xBU3I3jE8kQ/YK+7lBuXjyvdD+dRiX4n8CjrzvF4Y=",
    ),
    // a compatibility character
    (
        "\u{2168}",
        "SCRAM-SHA-256$4096:Bsp5bBEVQvJepRVkAY36yg==$NLGvD89ZKvHrcfHLj4xFQYhEmzAoIoHgC8ibDfA3veQ=:75a3NoQkwC+xxN8kTXu6bgcTl/vHSW4mZkvi3CnLJG4=",
    ),
    // another
    (
        "\u{aa}",
        "SCRAM-SHA-256$4096:seqmFIJAPmyzgOIGBliXow==$2j/MQ8Gv/wApINU1V86l9+3TskAgBTGdnBuTxduFpDs=:3dl8DNCVlgzx0PuejA9PMWYqwOkd9mMsZ+Rg4LYahPo=",
    ),
    // prohibited, though it normalizes to something allowed
    (
        "x\u{340}y",
        "SCRAM-SHA-256$4096:84MVk0rtD7NSYJ7yVWJBWQ==$L6TEAzK1Ke+7VGomLHTBqsmTC5WhPHTIInRK0I63Gvg=:2NkMIo7sogVHwG4rN8v23zugu+w2S9W1lwaBSuie274=",
    ),
    // unassigned in Unicode 3.2, though it normalizes to A
    (
        "\u{1f130}bc",
        "SCRAM-SHA-256$4096:iqw+c+RdWpUQhxDGip4rog==$su1lec+t1joZSDktTY4MTYntaTXY7pialXrg5YwWh6E=:aJ4RGRAc1t6JwuP9r/jGGL2yUDD0GeaNDTqe6A4QP98=",
    ),
    // another
    (
        "\u{1d2c}x",
        "SCRAM-SHA-256$4096:RJMbR+0ELQzG7jeZhVGGHQ==$i9maQ+QadSHH8T42DQf1F/6RHmt014/Poin+m7QWdCU=:8gr+CkRd2bVnda3vQPIyI24XeYIOTUopxBcbbDbZC1A=",
    ),
    // both a space and mapped to nothing
    (
        "a\u{200b}b",
        "SCRAM-SHA-256$4096:tR3IbLa+u1I77C1s3T7qTw==$4vK43Oj19q1y8/AE8P+hLgodyVFip5CWR0Wqdiw9wyk=:weFxalQqBWvrJHWNdvNLMwPRG1kT+5qEZtdEC3/OEwM=",
    ),
    // right-to-left, but does not end so: prohibited
    (
        "\u{627}1",
        "SCRAM-SHA-256$4096:U6tzC5zAiuIwXBV+U+3oFQ==$1gp1+pslMzU0tDL2SdGU4DG3tY6OuK1Ld5ZNPZLdIFk=:82SolMy6gZI/RBTb7EfIalZHNMvsPrgJHQBazYxx8e8=",
    ),
    // right-to-left
    (
        "\u{627}\u{628}",
        "SCRAM-SHA-256$4096:+49fmnE/8IvejqhFFBKfiA==$iMS/9mONfZkLunh7VhiO/3wwssqrX+GKokpSobbxq+I=:dpVwI7Amt+fiRXZkS0D6xAYIYKmr44SPlnqg21kMzUE=",
    ),
    // both directions: prohibited
    (
        "\u{627}a\u{628}",
        "SCRAM-SHA-256$4096:EY+a8ZnT+PJfQz9N96pcUw==$7GrbJ7vGgkFBZlL0TbdHgu6UwmAW4Qsbz93C63CMVaQ=:bYwfnzIqXPGhXE2ttc4KUCMQ4emKR/06sdaxVjKE69s=",
    ),
    // empty after mapping: prohibited
    (
        "\u{ad}",
        "SCRAM-SHA-256$4096:nZBKWcDP9tplwDcPPl6ZMg==$NroeYtlSWx4/bJUvptDxPRmZFDOA401J+EQ+YwPLubM=:fGilTFkt6sizwCsobNpK9LtuqzFTKjUBUd1gURUhm8E=",
    ),
    // to be composed
    (
        "u\u{308}ber",
        "SCRAM-SHA-256$4096:N9OtUrxFnavzZO0EUCcFug==$ivhBJiACq2S5//GMCBjvFMvboCYa9EoVl9Xn47/1zWQ=:bzSssf2oqErxiUVCwI5rPtmKp6m1yWD0JOWjfpgtNic=",
    ),
    // private use: prohibited
    (
        "x\u{e000}",
        "SCRAM-SHA-256$4096:ku2a9HEKpZrCaXoGwtX1TA==$Fq0fQTDzmpI54v/NVPnp8HMjaVE4A5aeJYd5VIEEGhc=:KiKgH2qlycmieMp4PtaoK6/EFhd82vixP1Nyzz3bYE8=",
    ),
    // a ligature
    (
        "\u{fb01}sh",
        "SCRAM-SHA-256$4096:bZU6obaQBIE2mRux1QXPvQ==$+mUhJKiHHes6suIc9kyvbpAkR79i5v2Mzk8pt3SJIDk=:Fm8w+JkxCliHEf24lx8g1YpfUeKE8FnpdzN4jOKqbxA=",
    ),
    // one character that becomes eighteen
    (
        "\u{fdfa}",
        "SCRAM-SHA-256$4096:RvEwiOHnccst+6XlI+JAtQ==$F1CSyaQIAtC+b6O6HhJxXjXSaM3Q8PqkgS4VSOaPEuY=:HS5CsLs0Gejzo2eNJTnnSoHSJYilb7+3Blh0thkcWcs=",
    ),
    // an emoji: unassigned in Unicode 3.2
    (
        "\u{1f600}x",
        "SCRAM-SHA-256$4096:ujocUmfmfU/BiyG+lVwxlg==$rIhsPk5NJYOg/HbIV8WVBpqZSX70EyAGUcmCnVcZtKQ=:CuZjISNIn4yTO6Uy+6iJ6uCfFRC1byxqtKRo1MvgbHM=",
    ),
    // a singleton
    (
        "\u{2126}",
        "SCRAM-SHA-256$4096:xsP3SXfGwRdGrOA6bmnBNw==$Zv7utoK6bCStMva5igNc0Ma4rrr7JC0pNV0Um7h4UXY=:C17e3zGV0C88eLUqy1oq9sOvRe8CNmNMUj0ctL/M6oU=",
    ),
    // combining marks
    (
        "\u{17f}\u{323}\u{307}",
        "SCRAM-SHA-256$4096:w50Nikj/4opeKou7eqh54g==$iIio/aBPn22rp/BSFcx5Wj0AkBGZhh9d1LjjgDWXdlo=:LooZJWZ83hsvTj3TFCVfCocH4vfiROaYJtpGWQlnpT0=",
    ),
];

/// The password is the bytes FF E4 78, which are not UTF-8.
const NOT_UTF8: &str = "SCRAM-SHA-256$4096:LcmNKvdYMO/pQulM0GKzIw==\
     $I1NFDWaFzKQi+up/J2dreXqEarotvG6994BOkumsLqE=:JNDwVNR9l9RxduxDSCUrmZ7R7byYyCnJ+fs+Keb4fe4=";

fn scram(text: &str) -> scram::Secret {
    scram::Secret::parse(text).expect("PostgreSQL's own secret")
}

#[test]
fn the_keys_of_a_password_are_postgresqls() {
    for (password, text) in SECRETS {
        let secret = scram(text);
        let keys = secret.derive_job(password.as_bytes()).run();
        assert!(secret.is_from(&keys), "{password:?}");
        let built = scram::build_secret(&keys, secret.salt().to_vec(), secret.iterations());
        assert_eq!(built.to_text().as_str(), *text);
    }
    let secret = scram(NOT_UTF8);
    assert!(secret.is_from(&secret.derive_job(b"\xff\xe4x").run()));
}

#[test]
fn another_password_is_refused() {
    let secret = scram(SECRETS[0].1);
    for password in ["", "fooba", "foobarr", "Foobar"] {
        assert!(!secret.is_from(&secret.derive_job(password.as_bytes()).run()));
    }
    let other_salt = DeriveJob::new(b"foobar", vec![1; 16], 4096).run();
    assert!(!secret.is_from(&other_salt));
}

#[test]
fn a_plain_password_is_checked_against_postgresqls_scram_secret() {
    let (password, text) = SECRETS[2];
    let secret = Secret::parse(text);
    let PlainCheck::Derive(job) = verify_plain(&secret, "anyone", password.as_bytes()) else {
        panic!("SCRAM secrets need a derivation");
    };
    assert!(scram(text).is_from(&job.run()));
}

#[test]
fn md5_is_postgresqls() {
    let secret = md5::secret("foobar", "m5");
    assert_eq!(secret.as_str(), "md5a456ba0bf8ac233a0ad39a235a4c5cad");
}
