//! SQL literals and quoted identifiers.

/// Appends `value` as a string literal that has the same meaning whatever `standard_conforming_strings` is
/// (PostgreSQL's manual, "Lexical Structure").
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

/// Appends `value`, bytes in the server's encoding, as a string literal that means these bytes whatever
/// `client_encoding` and `standard_conforming_strings` are: bytes beyond ASCII are written as `\x..`.
pub(crate) fn literal_of_bytes(out: &mut Vec<u8>, value: &[u8]) {
    if value.iter().all(|byte| byte.is_ascii() && *byte != b'\\') {
        return literal(out, value);
    }
    out.extend_from_slice(b" E'");
    for &byte in value {
        match byte {
            b'\'' | b'\\' => out.extend_from_slice(&[byte, byte]),
            0..=0x7f => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'\'');
}

/// Appends a parameter's name, which may have several parts, as SET and RESET take it.
pub(crate) fn parameter(out: &mut Vec<u8>, name: &[u8]) {
    for (at, part) in name.split(|&byte| byte == b'.').enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        identifier(out, part);
    }
}

/// Appends `name` as a quoted identifier.
pub(crate) fn identifier(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b'"');
    for &byte in name {
        if byte == b'"' {
            out.push(byte);
        }
        out.push(byte);
    }
    out.push(b'"');
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

    #[test]
    fn literals_of_bytes() {
        let check = |value: &str, expect: &str| {
            let mut out = Vec::new();
            super::literal_of_bytes(&mut out, value.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        };
        check("it's", "'it''s'");
        check("\\'\u{e4}f", r" E'\\''\xc3\xa4f'");
    }

    #[test]
    fn identifiers() {
        let mut out = Vec::new();
        super::identifier(&mut out, b"a\"B");
        assert_eq!(out, br#""a""B""#);
    }
}
