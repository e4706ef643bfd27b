//! The query that asks a server what its session holds.
//!
//! It runs with the client's role, search_path and other settings: everything in it is qualified.

use super::quote;

/// What is to be asked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Probe {
    /// All parameters that were set in the session.
    pub all_settings: bool,
    /// These parameters, whether they were set or not: custom ones, which no list has, and those that
    /// were named.
    pub names: Vec<Box<[u8]>>,
    /// The server knows grants of parameters (PostgreSQL 15 and above).
    pub knows_grants: bool,
    /// Which of these parameters, that only superusers may set, is the login user granted?
    pub privileged: Vec<Vec<u8>>,
    /// Temporary objects.
    pub temporary: bool,
    /// Cursors WITH HOLD.
    pub cursors: bool,
    /// SQL-prepared statements.
    pub statements: bool,
    /// Channels.
    pub channels: bool,
    /// Session-level advisory locks.
    pub locks: bool,
}

/// `encode(convert_to(.., server's encoding), 'escape')`, around what comes between.
const ESCAPED: [&str; 2] = [
    "pg_catalog.encode(pg_catalog.convert_to(",
    ", pg_catalog.getdatabaseencoding()), 'escape')",
];
/// Other servers are made ready with the rights of the session's user, if that is no superuser.
const NOT_GRANTED: &str = " AND NOT pg_catalog.has_parameter_privilege(SESSION_USER, name, 'SET')";
const TEMPORARY: &str = "SELECT 't', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_depend \
    WHERE refclassid OPERATOR(pg_catalog.=) 2615::pg_catalog.oid \
    AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())";
const CURSORS: &str =
    "SELECT 'h', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)";
const LOCKS: &str = "SELECT 'a', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks \
    WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
    AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())";

impl Probe {
    /// Asks for everything.
    #[must_use]
    pub fn full(names: Vec<Box<[u8]>>) -> Self {
        Self {
            all_settings: true,
            names,
            knows_grants: false,
            privileged: Vec::new(),
            temporary: true,
            cursors: true,
            statements: true,
            channels: true,
            locks: true,
        }
    }

    /// Is there nothing to ask?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The query. Its rows are for [`State::take_row`](super::State::take_row).
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let [open, close] = ESCAPED;
        if self.all_settings {
            let unless = if self.knows_grants { NOT_GRANTED } else { "" };
            let text = format!(
                "SELECT CASE WHEN context OPERATOR(pg_catalog.=) 'superuser'::pg_catalog.text\
                 {unless} THEN 's' ELSE 'g' END, name, {open}setting{close} FROM pg_catalog.pg_settings \
                 WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text"
            );
            parts.push(text.into());
            // Not in that list, whatever it is.
            parts.push(
                "SELECT 'g', 'role', pg_catalog.encode(pg_catalog.convert_to(\
                 pg_catalog.current_setting('role'), pg_catalog.getdatabaseencoding()), 'escape') \
                 WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) \
                 'none'::pg_catalog.text"
                    .into(),
            );
        }
        if !self.names.is_empty() {
            parts.push(self.named());
        }
        if !self.privileged.is_empty() {
            parts.push(self.granted());
        }
        for (wanted, text) in [
            (self.temporary, TEMPORARY),
            (self.cursors, CURSORS),
            (self.locks, LOCKS),
        ] {
            if wanted {
                parts.push(text.into());
            }
        }
        if self.statements {
            let text = format!(
                "SELECT CASE WHEN from_sql THEN 'p' ELSE 'q' END, {open}name{close}, \
                 {open}CASE WHEN from_sql THEN statement ELSE '' END{close} \
                 FROM pg_catalog.pg_prepared_statements WHERE from_sql \
                 OR NOT pg_catalog.starts_with(name, 'PGWEIR_')"
            );
            parts.push(text.into());
            parts.push(
                "SELECT 'n', '', pg_catalog.count(*)::pg_catalog.text \
                 FROM pg_catalog.pg_prepared_statements \
                 WHERE pg_catalog.starts_with(name, 'PGWEIR_')"
                    .into(),
            );
        }
        if self.channels {
            let text = format!(
                "SELECT 'c', {open}channel{close}, '' \
                 FROM pg_catalog.pg_listening_channels() AS listening(channel)"
            );
            parts.push(text.into());
        }
        parts.join(&b" UNION ALL "[..])
    }

    fn granted(&self) -> Vec<u8> {
        let mut text = b"SELECT 'm', name, '' FROM (VALUES ".to_vec();
        for (at, name) in self.privileged.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"(" } else { b",(" });
            quote::literal_of_bytes(&mut text, name);
            text.extend_from_slice(if at == 0 { b"::pg_catalog.text)" } else { b")" });
        }
        text.extend_from_slice(
            b") AS named(name) \
            WHERE pg_catalog.has_parameter_privilege(SESSION_USER, name, 'SET')",
        );
        text
    }

    fn named(&self) -> Vec<u8> {
        let [open, close] = ESCAPED;
        let mut text = format!(
            "SELECT 'g', {open}name{close}, {open}pg_catalog.current_setting(name, true){close} \
             FROM (VALUES "
        )
        .into_bytes();
        for (at, name) in self.names.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"(" } else { b",(" });
            quote::literal_of_bytes(&mut text, name);
            text.extend_from_slice(if at == 0 { b"::pg_catalog.text)" } else { b")" });
        }
        text.extend_from_slice(
            b") AS named(name) WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert!(Probe::default().is_empty() && Probe::default().text().is_empty());
        let probe = Probe {
            names: vec![b"app.tenant"[..].into(), b"it's"[..].into()],
            locks: true,
            ..Probe::default()
        };
        let text = String::from_utf8(probe.text()).unwrap();
        assert!(text.contains("(VALUES ('app.tenant'::pg_catalog.text),('it''s')) AS"));
        assert!(text.ends_with("pg_catalog.pg_backend_pid())"));
        let probe = Probe {
            privileged: vec![b"lc_messages".to_vec()],
            ..Probe::default()
        };
        let text = String::from_utf8(probe.text()).unwrap();
        assert!(text.starts_with("SELECT 'm', name, '' FROM (VALUES ('lc_messages'::"));
        let full = String::from_utf8(Probe::full(Vec::new()).text()).unwrap();
        assert_eq!(full.matches(" UNION ALL ").count(), 7);
    }
}
