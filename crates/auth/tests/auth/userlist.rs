//! The userlist, case by case.

use pgweir_auth::{
    MAX_SECRET_BYTES,
    userlist::{Fault, Secret, Userlist, UserlistWarning},
};

/// Checks the users (`user=secret`) or the errors (`line: fault`) of a text.
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = match Userlist::parse(text) {
        Ok(list) => list
            .iter()
            .map(|(user, secret)| match &**secret {
                Secret::Plain(password) => format!("{user}={}", password.as_str()),
                other => format!("{user}={other:?}"),
            })
            .collect(),
        Err(errors) => errors
            .iter()
            .map(|error| format!("{}: {:?}", error.line, error.fault))
            .collect(),
    };
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn users_and_secrets() {
    let hash = "0123456789abcdef0123456789abcdef";
    check("", &[]);
    check("\n\r\n  \n\t\n", &[]);
    check("\"a\" \"x\"", &["a=x"]);
    check("\"a\" \"x\"\n\"b\" \"y\"\n", &["a=x", "b=y"]);
    check("\"a\" \"x\"\r\n\"b\" \"y\"\r\n", &["a=x", "b=y"]);
    check("\u{feff}\"a\" \"x\"", &["a=x"]);
    check(" \t\"a\"\t \"x\"", &["a=x"]);
    check("\"a\" \"\"", &["a="]);
    check("\"a b\" \" x \"", &["a b= x "]);
    check("\"ä\" \"ö€\"", &["ä=ö€"]);
    check(r#""a" "\n""#, &["a=\\n"]);
    check(&format!("\"a\" \"md5{hash}\""), &["a=Md5(..)"]);
}

#[test]
fn quotes_are_doubled() {
    check(r#""a""b" "q""q""#, &[r#"a"b=q"q"#]);
    check(r#""a" """""""#, &[r#"a="""#]);
    check(r#""""" "x""#, &["\"=x"]);
}

#[test]
fn text_after_the_secret_is_ignored() {
    check(r#""a" "x" "y" "z"#, &["a=x"]);
    check(r#""a" "x" ; note"#, &["a=x"]);
    check(r#""a" "x"y"#, &["a=x"]);
    check(r#""a", "x""#, &["a=x"]);
    check(r#""a":"x""#, &["a=x"]);
}

#[test]
fn comments() {
    check("; \"a\" \"x\"\n# \"b\" \"y\"\n  ;\n \"c\" \"z\"", &["c=z"]);
}

#[test]
fn every_line_that_cannot_be_read_is_named() {
    check("a x", &["1: NoQuote"]);
    check("'a' 'x'", &["1: NoQuote"]);
    check("\"a", &["1: UserNotClosed"]);
    check("\"a\"\"x\"\"", &["1: UserNotClosed"]);
    check("\"a\"\"x\"", &["1: SecretMissing"]);
    check("\"a\"", &["1: SecretMissing"]);
    check("\"a\" x", &["1: SecretMissing"]);
    check("\"a\" \"x", &["1: SecretNotClosed"]);
    check("\"a\" \"x\"\"", &["1: SecretNotClosed"]);
    check("\"a\" \"x\0\"", &["1: Nul"]);
    // PgBouncer would give user a the password b here.
    check("\"a\"\n\"b\" \"x\"", &["1: SecretMissing"]);
    check(
        "\"a\" \"x\"\n\njunk\n\"b\"\n\"c\" \"z\"\n\"d\" \"",
        &["3: NoQuote", "4: SecretMissing", "6: SecretNotClosed"],
    );
}

#[test]
fn secrets_have_a_length_limit() {
    let longest = "x".repeat(MAX_SECRET_BYTES);
    let list = Userlist::parse(&format!("\"a\" \"{longest}\"")).expect("fits");
    assert!(matches!(&**list.get("a").expect("there"), Secret::Plain(p) if p.len() == 65_535));
    check(&format!("\"a\" \"{longest}x\""), &["1: SecretTooLong"]);
    // The limit applies to the secret, not to its quoting.
    let quotes = "\"\"".repeat(MAX_SECRET_BYTES);
    assert!(Userlist::parse(&format!("\"a\" \"{quotes}\"")).is_ok());
}

#[test]
fn unusual_lines_cause_warnings() {
    let text =
        "\"a\" \"x\"\n\"a\" \"y\"\n\"b\" \"SCRAM-SHA-256:Zm9v$x:y\"\n\"\" \"z\"\n\"a\" \"v\"";
    let list = Userlist::parse(text).expect("allowed");
    let repeated = |line, earlier_line| UserlistWarning::Repeated {
        line,
        earlier_line,
        user: "a".to_owned(),
    };
    assert_eq!(
        list.warnings(),
        [
            repeated(2, 1),
            UserlistWarning::Damaged {
                line: 3,
                user: "b".to_owned()
            },
            UserlistWarning::Nameless { line: 4 },
            repeated(5, 2),
        ]
    );
    assert!(matches!(&**list.get("a").expect("there"), Secret::Plain(p) if p.as_str() == "v"));
}

#[test]
fn no_debug_output_shows_a_secret() {
    let scram = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXku\
                 LmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let text = format!(
        "\"a\" \"hunter2\"\n\"b\" \"md50123456789abcdef0123456789abcdef\"\n\"c\" \"{scram}\"\n\
         \"a\" \"hunter2\"\n\"d\" \"md5hunter2\"\n\"e\" \"SCRAM-SHA-256hunter2\""
    );
    let list = Userlist::parse(&text).expect("allowed");
    let mut shown = format!("{list:?}");
    for warning in list.warnings() {
        shown.push_str(&format!("{warning}{warning:?}"));
    }
    for error in Userlist::parse("\"a\" \"hunter2").expect_err("not closed") {
        shown.push_str(&format!("{error}{error:?}"));
    }
    for secret in ["hunter2", "0123456789abcdef", "WG5d8", "wfPLw"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn errors_have_the_line_and_advice() {
    let errors = Userlist::parse("\n\"a\" x").expect_err("no secret");
    assert_eq!(errors[0].fault, Fault::SecretMissing);
    let text = errors[0].to_string();
    assert!(
        text.starts_with("line 2: the user has no secret; "),
        "{text}"
    );
}
