//! Text as an SQL literal.

/// Appends `value` as a string literal that reads the same whatever
/// `standard_conforming_strings` is (PostgreSQL's manual, "Lexical Structure").
pub(crate) fn literal(out: &mut Vec<u8>, value: &[u8]) {
    let escapes = value.contains(&b'\\');
    if escapes {
        out.extend_from_slice(b" E");
    }
    out.push(b'\'');
    for &byte in value {
        if byte == b'\'' || byte == b'\\' {
            out.push(byte);
        }
        out.push(byte);
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    #[test]
    fn literals() {
        let check = |value: &str, expect: &str| {
            let mut out = Vec::new();
            super::literal(&mut out, value.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        };
        check("", "''");
        check("a b", "'a b'");
        check("it's", "'it''s'");
        check(r"a\'b", r" E'a\\''b'");
    }
}
