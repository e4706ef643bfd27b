//! What sessions begin with, where the next server has something else of it than the client was told.
//!
//! A session of PostgreSQL keeps for good what ALTER ROLE and ALTER DATABASE SET have given it, and what it has
//! asked for itself; it follows the configuration file. Which of these it is, the server knows.

use super::quote;

/// A value that a client is to keep.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'v> {
    /// The parameter.
    pub name: &'v [u8],
    /// In the encoding of the server.
    pub value: &'v [u8],
    /// The client has asked for it.
    pub is_own: bool,
}

/// May this parameter's value be kept? The others say how things are.
#[must_use]
pub fn may_be_kept(name: &str) -> bool {
    !matches!(
        name,
        "in_hot_standby" | "is_superuser" | "session_authorization"
    )
}

/// The query that sets these values, except where the server's own come from its configuration file.
#[must_use]
pub fn keep<'v>(values: impl IntoIterator<Item = Kept<'v>>) -> Vec<u8> {
    let mut text = b"SELECT pg_catalog.set_config(s.name, k.value, false) FROM (VALUES ".to_vec();
    for (at, kept) in values.into_iter().enumerate() {
        text.extend_from_slice(if at == 0 { b"(" } else { b",(" });
        quote::literal_of_bytes(&mut text, &kept.name.to_ascii_lowercase());
        text.push(b',');
        quote::literal_of_bytes(&mut text, kept.value);
        text.extend_from_slice(if kept.is_own { b",true)" } else { b",false)" });
    }
    text.extend_from_slice(
        b") AS k(name, value, is_own) JOIN pg_catalog.pg_settings AS s \
        ON pg_catalog.lower(s.name) OPERATOR(pg_catalog.=) k.name \
        WHERE s.context OPERATOR(pg_catalog.<>) 'internal'::pg_catalog.text \
        AND (k.is_own OR s.source OPERATOR(pg_catalog.<>) ALL (ARRAY['default', \
        'environment variable', 'configuration file', 'command line']::pg_catalog.text[]))",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let kept = |name: &'static str, value: &'static str, is_own| Kept {
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_own,
        };
        let text = keep([
            kept("DateStyle", "ISO, MDY", false),
            kept("TimeZone", "it's", true),
        ]);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(
            "(VALUES ('datestyle','ISO, MDY',false),('timezone','it''s',true)) AS k(name,"
        ));
        assert!(text.ends_with("'configuration file', 'command line']::pg_catalog.text[]))"));
        assert!(may_be_kept("search_path") && !may_be_kept("in_hot_standby"));
    }
}
