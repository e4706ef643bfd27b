//! Properties of the parser that hold for every text.

use std::path::Path;

use pgweir_config::{Config, Problems};
use proptest::prelude::*;

fn load(text: &str) -> Result<Config, Problems> {
    Config::load(Path::new("a.ini"), &mut |_: &Path| Ok(text.to_owned()))
}

/// Loads lines of section `[pgbouncer]`.
fn settings(lines: &str) -> Result<Config, Problems> {
    load(&format!("[pgbouncer]\n{lines}"))
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = load(&text);
    }

    #[test]
    fn no_near_miss_panics(lines in proptest::collection::vec(near_line(), 0..12)) {
        if let Err(problems) = load(&lines.join("\n")) {
            prop_assert!(!problems.0.is_empty());
        }
    }

    #[test]
    fn shown_times_are_parsed_to_the_same_value(text in "[0-9]{1,6}(\\.[0-9]{1,3})?(us|ms|s|min)?") {
        let first = settings(&format!("query_wait_timeout = {text}"));
        let Ok(first) = first else { return Ok(()) };
        let shown = first.settings.query_wait_timeout.to_string();
        let second = settings(&format!("query_wait_timeout = {shown}")).expect("what is shown can be read");
        prop_assert_eq!(second.settings.query_wait_timeout.to_string(), shown);
    }
}

/// Returns lines made of the pieces of valid ones.
fn near_line() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[",
        "]",
        "pgbouncer",
        "databases",
        "users",
        "peers",
        "=",
        " = ",
        "'",
        "''",
        "\"",
        "\\",
        "%include ",
        "a.ini",
        "pool_mode",
        "host",
        "password",
        "query_timeout",
        "transaction",
        "1",
        "-1",
        "é",
        ";",
        "#",
        "*",
        " ",
        "\t",
    ]);
    proptest::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
}
