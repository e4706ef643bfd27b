//! Texts that show which values they give to parameters, so that the server need not be queried.

use super::{
    parameters::{self, NAME_MAX},
    phrase::undouble_quotes,
    pieces::{Piece, pieces, statements},
};

/// Longer texts are not read: for a longer text, a query for the values costs less.
const TEXT_MAX: usize = 1024;
/// A number with more digits may not fit an integer, and PostgreSQL writes such a number in another form.
const DIGITS_MAX: usize = 9;

/// Names in lower case, and values; `None` means that the parameter is reset.
pub type LiteralSets = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Returns the custom parameters that a text sets for the session, if the text only consists of one or more `SET
/// [SESSION] a.b {= | TO} constant` and `RESET a.b`, BEGIN and COMMIT. The constant is a plain string in ASCII, or a
/// number that PostgreSQL writes as it reads it.
///
/// PostgreSQL stores any string for a custom parameter unchanged. It changes the values of its own parameters: after
/// `work_mem = '1024'`, SHOW returns `1MB`.
#[must_use]
pub fn literal_sets(text: &[u8]) -> Option<LiteralSets> {
    // The meaning of a backslash depends on the server, and bytes beyond ASCII are converted.
    if text.len() > TEXT_MAX || !text.is_ascii() || text.contains(&b'\\') {
        return None;
    }
    const DOT: Piece<'_> = Piece::Symbol(b'.');
    let pieces: Vec<_> = pieces(text).collect();
    let mut found = Vec::new();
    for statement in statements(&pieces) {
        let (verb, first, second, rest) = match *statement {
            [] => continue,
            [word] if word.is("begin") || word.is("commit") => continue,
            [verb, first, DOT, second, ref rest @ ..] => (verb, first, second, rest),
            [verb, scope, first, DOT, second, ref rest @ ..]
                if verb.is("set") && scope.is("session") =>
            {
                (verb, first, second, rest)
            }
            _ => return None,
        };
        let value = match *rest {
            [] if verb.is("reset") => None,
            [to, value] if verb.is("set") && (to.is("to") || to == Piece::Symbol(b'=')) => {
                Some(constant(value)?)
            }
            _ => return None,
        };
        found.push((name(first, second)?, value));
    }
    Some(found)
}

/// Returns the name of a custom parameter which leaves nothing when it is reset.
fn name(first: Piece<'_>, second: Piece<'_>) -> Option<Vec<u8>> {
    let parts = [first.name()?, second.name()?];
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // PostgreSQL truncates longer parts.
    let is_whole = |part: &&[u8]| part.len() <= NAME_MAX && part.iter().all(is_plain);
    let name = parts.join(&b'.').to_ascii_lowercase();
    (parts.iter().all(is_whole) && parameters::lasting(&name).is_empty()).then_some(name)
}

fn constant(value: Piece<'_>) -> Option<Vec<u8>> {
    match value {
        Piece::Text(text) => Some(undouble_quotes(text, b'\'').into_owned()),
        Piece::Value(number) => {
            let is_written_so = number.len() <= DIGITS_MAX
                && number.iter().all(u8::is_ascii_digit)
                && (number[0] != b'0' || number.len() == 1);
            is_written_so.then(|| number.to_vec())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::literal_sets;

    #[track_caller]
    fn check(text: &str, expect: Option<&[(&str, Option<&str>)]>) {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let expect = expect.map(|pairs| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|&(name, value)| (bytes(name), value.map(bytes)));
            pairs.collect::<Vec<_>>()
        });
        assert_eq!(literal_sets(text.as_bytes()), expect, "{text}");
    }

    #[test]
    fn values() {
        check("SET app.tenant = 'x'", Some(&[("app.tenant", Some("x"))]));
        check(
            "set session App.\"Tenant\" to 'it''s';",
            Some(&[("app.tenant", Some("it's"))]),
        );
        check("SET session.a = 7", Some(&[("session.a", Some("7"))]));
        check(
            "SET a.b = 0; /* so */ SET a.b TO '' -- it",
            Some(&[("a.b", Some("0")), ("a.b", Some(""))]),
        );
        check("BEGIN; SET a.b = 'c'; COMMIT", Some(&[("a.b", Some("c"))]));
        check("RESET \"A\".b", Some(&[("a.b", None)]));
        check("", Some(&[]));
    }

    #[test]
    fn sets_whose_value_only_the_server_knows() {
        for text in [
            "SET work_mem = '1024'",
            "SET a.b.c = 'x'",
            "SET LOCAL a.b = 'x'",
            "SET a.b = x",
            "SET a.b = on",
            "SET a.b = -1",
            "SET a.b = 007",
            "SET a.b = 1.50",
            "SET a.b = 12345678901",
            "SET a.b = 'x', 'y'",
            "SET a.b = 'x'\n'y'",
            "SET a.b = 'x' 'y'",
            "SET a.b = E'x'",
            "SET a.b = U&'x'",
            "SET a.b = $$x$$",
            "SET a.b = DEFAULT",
            "SET a.b TO DEFAULT",
            "SET a.b FROM CURRENT",
            "SET a.b = 'x\\'",
            "SET a.b = '\u{e4}'",
            "SET a.\"b-c\" = 'x'",
            "SET a.\"b\"\"c\" = 'x'",
            "SET \"a.b\" = 'x'",
            "SET U&\"a\".b = 'x'",
            "RESET ALL",
            "RESET ROLE",
            "RESET work_mem",
            "RESET a.b.c",
            "SET a.b = 'x'; SELECT 1",
            "SET a.b = 'x'; ROLLBACK",
            "BEGIN WORK; SET a.b = 'x'; END",
            "SELECT set_config('a.b', 'x', false)",
            "SET a.b = 'x",
            "SET a.b =",
            "SET a.",
            "SET",
            "SET a.enable_b = 'x'; SET enable_seqscan = off",
        ] {
            check(text, None);
        }
        let long = "x".repeat(63);
        check(&format!("SET a.{long} = 'x'"), None);
        check(&format!("SET {long}.a = 'x'"), None);
        check(&format!("SET a.b = '{}'", "x".repeat(1024)), None);
    }
}
