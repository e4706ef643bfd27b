//! Texts whose effect on the session's parameters is known without asking the server.

use super::{
    lexer::{Kind, Lexer, Token},
    parameters::{self, NAME_MAX},
};

/// Longer texts are not read: asking the server for the values takes only a few bytes.
const TEXT_MAX: usize = 1024;
/// A number with more digits may not fit an integer, and PostgreSQL writes such a number in another form.
const DIGITS_MAX: usize = 9;

/// Names in lower case, and values; `None` means that the parameter is reset.
pub type LiteralSets = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Returns the custom parameters that a text sets for the session, if the text only consists of one or more `SET
/// [SESSION] a.b {= | TO} constant` and `RESET a.b`, BEGIN and COMMIT. The constant is a plain string in ASCII, or a
/// number that PostgreSQL writes as it reads it.
///
/// PostgreSQL stores any string for a custom parameter unchanged. For a parameter of its own it does not: `work_mem =
/// '1024'` reads `1MB`.
#[must_use]
pub fn literal_sets(text: &[u8]) -> Option<LiteralSets> {
    // The meaning of a backslash depends on the server, and bytes beyond ASCII are converted.
    if text.len() > TEXT_MAX || !text.is_ascii() || text.contains(&b'\\') {
        return None;
    }
    let mut lexer = Lexer::new(text);
    let mut found = Vec::new();
    loop {
        let token = lexer.next();
        let word = lexer.bytes(token);
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match token.kind {
            Kind::Semicolon => continue,
            Kind::End => return Some(found),
            Kind::Word if is("set") => found.push(set(&mut lexer)?),
            Kind::Word if is("reset") => {
                let first = lexer.next();
                found.push((name(&mut lexer, first)?, None));
            }
            Kind::Word if is("begin") || is("commit") => {}
            _ => return None,
        }
        match lexer.peek().kind {
            Kind::Semicolon | Kind::End => {}
            _ => return None,
        }
    }
}

/// Reads the rest of a SET.
fn set(lexer: &mut Lexer<'_>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut first = lexer.next();
    let is_scope = lexer.bytes(first).eq_ignore_ascii_case(b"session");
    if is_scope && lexer.peek().kind != Kind::Dot {
        first = lexer.next();
    }
    let name = name(lexer, first)?;
    let equals = lexer.next();
    let is_to = equals.kind == Kind::Word && lexer.bytes(equals).eq_ignore_ascii_case(b"to");
    if !is_to && equals.kind != Kind::Other(b'=') {
        return None;
    }
    let value = lexer.next();
    let value = constant(lexer.bytes(value), value.kind)?;
    Some((name, Some(value)))
}

/// Reads the name of a custom parameter that begins with this token, and which leaves nothing when it is reset.
fn name(lexer: &mut Lexer<'_>, first: Token) -> Option<Vec<u8>> {
    if lexer.next().kind != Kind::Dot {
        return None;
    }
    let second = lexer.next();
    let mut name = part(lexer, first)?.to_vec();
    name.push(b'.');
    name.extend_from_slice(part(lexer, second)?);
    name.make_ascii_lowercase();
    parameters::lasting(&name).is_empty().then_some(name)
}

/// Returns a part of a parameter's name that PostgreSQL does not truncate.
fn part<'a>(lexer: &Lexer<'a>, token: Token) -> Option<&'a [u8]> {
    let bytes = lexer.bytes(token);
    let name = match token.kind {
        Kind::Word => bytes,
        Kind::Quoted => &bytes[1..bytes.len() - 1],
        _ => return None,
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    (name.len() <= NAME_MAX && name.iter().all(is_plain)).then_some(name)
}

fn constant(bytes: &[u8], kind: Kind) -> Option<Vec<u8>> {
    match kind {
        Kind::Text => {
            let within = &bytes[1..bytes.len() - 1];
            let mut value = Vec::with_capacity(within.len());
            let mut rest = within.iter();
            while let Some(&byte) = rest.next() {
                value.push(byte);
                if byte == b'\'' {
                    // The second quote of a doubled one.
                    rest.next();
                }
            }
            Some(value)
        }
        Kind::Number => {
            let is_written_so = bytes.len() <= DIGITS_MAX
                && bytes.iter().all(u8::is_ascii_digit)
                && (bytes[0] != b'0' || bytes.len() == 1);
            is_written_so.then(|| bytes.to_vec())
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
    fn what_only_the_server_knows() {
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
