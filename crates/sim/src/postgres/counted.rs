//! The messages that a run counts by name.

use crate::checks::RequestId;

/// Returns whether the text contains the words.
fn has(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

/// The messages that are counted.
pub(super) fn counted_as(tag: u8, body: &[u8]) -> Option<&'static str> {
    match tag {
        b'Q' if has(body, b"pg_catalog.pg_advisory_unlock_all()") => Some("own clean"),
        b'Q' if has(body, b"pg_catalog.current_setting(") => Some("own look"),
        b'Q' if has(body, b"FROM pg_proc") => Some("own reading of the catalog"),
        b'Q' if has(body, b"LISTEN \"") => Some("own listen"),
        b'Q' if body.starts_with(b"ROLLBACK") => Some("own rollback"),
        b'Q' if body.starts_with(b"DISCARD") => Some("own reset"),
        b'Q' if body.starts_with(b"SET ") => Some("own parameters"),
        b'Q' => Some("simple query"),
        b'F' => Some("function call"),
        b'P' if body.starts_with(b"\0") => Some("extended query"),
        b'P' => Some("named statement"),
        b'C' if body.starts_with(b"S") => Some("statement closed"),
        b'H' => Some("flush"),
        b'd' => Some("copy data"),
        b'f' => Some("copy fails"),
        b'X' => Some("server dismissed"),
        _ => None,
    }
}

/// Applies the effect of a client's text to its session.
pub(super) fn works_on_session(body: &[u8]) -> impl Iterator<Item = &'static str> {
    const WORK: [(&[u8], &str); 18] = [
        (b"set app.", "custom parameter"),
        (b"set role r", "role"),
        (b"prepare q", "SQL PREPARE"),
        (b"create temp table", "temporary table"),
        (b"with hold", "held cursor"),
        (b"pg_advisory_lock", "lock"),
        (b"listen ", "LISTEN"),
        (b"notify ", "NOTIFY"),
        (b"nextval(", "sequence"),
        (b"lastval(", "value of a sequence"),
        (b"currval(", "value of a sequence"),
        (b"greet(", "hidden parameter"),
        (b"whisper(", "hidden custom parameter"),
        (b"impersonate(", "hidden role"),
        (b"guard(", "hidden lock"),
        (b"learn(", "hidden PREPARE"),
        (b"scribble(", "hidden temporary table"),
        (b"into audited", "trigger that keeps something"),
    ];
    let is_clients = RequestId::find_within(body).is_some();
    let found = WORK
        .iter()
        .filter(move |(words, _)| is_clients && has(body, words));
    found.map(|(_, what)| *what)
}
