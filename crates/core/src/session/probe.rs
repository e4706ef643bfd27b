//! The look at a server's session: what does it hold?
//!
//! A look runs with the client's role, search_path and other settings: everything in it is qualified, and settings
//! that could disturb it are read first and then set for its transaction only. It is one simple query of several
//! statements: in one error scope, and parsed under the settings of the session as it stands.

use std::sync::Arc;

use super::{Baseline, baseline::SHOWN, quote};

/// How all parameters are asked for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum AllSettings {
    /// Not at all.
    #[default]
    Unasked,
    /// Those whose values differ from these.
    Compared(Arc<Baseline>),
    /// Those of which `pg_settings` says that the session has set them.
    Listed,
}

/// What is to be asked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Probe {
    /// All parameters that were set in the session.
    pub all: AllSettings,
    /// These parameters, whether they were set or not: custom ones, which no list has, and those that
    /// were named.
    pub names: Vec<Box<[u8]>>,
    /// Fail rather than tell a value that is too long for a row that is looked at: something else depends on it.
    pub must_fit: bool,
    /// The server knows grants of parameters (PostgreSQL 15 and above).
    pub knows_grants: bool,
    /// Which of these parameters, that only superusers may set, is the login user granted?
    pub privileged: Vec<Vec<u8>>,
    /// Temporary objects, cursors WITH HOLD, session-level advisory locks, and how many prepared statements and
    /// channels there are: see [`Summary`](super::Summary).
    pub summary: bool,
    /// SQL-prepared statements, and those of the protocol under names that are not pgweir's.
    pub statements: bool,
    /// Channels.
    pub channels: bool,
}

/// `encode(convert_to(.., server's encoding), 'escape')`, around what comes between.
const ESCAPED: [&str; 2] = [
    "pg_catalog.encode(pg_catalog.convert_to(",
    ", pg_catalog.getdatabaseencoding()), 'escape')",
];
/// Other servers are made ready with the rights of the session's user, if that is no superuser.
const NOT_GRANTED: &str = " AND NOT pg_catalog.has_parameter_privilege(SESSION_USER, name, 'SET')";
const SUMMARY: &str = "SELECT CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
    THEN false ELSE EXISTS (SELECT FROM pg_catalog.pg_depend \
    WHERE refclassid OPERATOR(pg_catalog.=) 2615::pg_catalog.oid \
    AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) END,\
    EXISTS (SELECT FROM pg_catalog.pg_cursor() WHERE is_holdable),\
    EXISTS (SELECT FROM pg_catalog.pg_lock_status() \
    WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
    AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()),\
    EXISTS (SELECT FROM pg_catalog.pg_listening_channels()),\
    pg_catalog.count(*) FILTER (WHERE from_sql),\
    pg_catalog.count(*) FILTER (WHERE NOT from_sql AND NOT pg_catalog.starts_with(name, 'PGWEIR_')),\
    pg_catalog.count(*) FILTER (WHERE NOT from_sql AND pg_catalog.starts_with(name, 'PGWEIR_')) \
    FROM pg_catalog.pg_prepared_statement()";
const VALUE: &str = "pg_catalog.current_setting(name, true)";
/// Divides by zero where the value is too long. Nothing of this is constant: the planner must not compute it.
const VALUE_THAT_FITS: &str = "CASE WHEN \
    pg_catalog.length(pg_catalog.current_setting(name, true)) OPERATOR(pg_catalog.>) 8000 \
    THEN (1 OPERATOR(pg_catalog./) (0 OPERATOR(pg_catalog.*) \
    pg_catalog.length(pg_catalog.current_setting(name, true))))::pg_catalog.text \
    ELSE pg_catalog.current_setting(name, true) END";
const AT_ONCE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED,NOT DEFERRABLE";
const ROLE: &str = "SELECT 'g', 'role', pg_catalog.encode(pg_catalog.convert_to(\
    pg_catalog.current_setting('role'), pg_catalog.getdatabaseencoding()), 'escape') \
    WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'::pg_catalog.text";

impl Probe {
    /// Asks for everything; these are names of custom parameters. Statements and channels are counted.
    #[must_use]
    pub fn full(names: Vec<Box<[u8]>>) -> Self {
        Self {
            all: AllSettings::Listed,
            names,
            summary: true,
            ..Self::default()
        }
    }

    /// Everything that the extension reports, and these custom parameters.
    #[must_use]
    pub fn reported(names: Vec<Box<[u8]>>) -> Self {
        Self {
            statements: true,
            channels: true,
            ..Self::full(names)
        }
    }

    /// Does it ask for all parameters?
    #[must_use]
    pub fn asks_all_settings(&self) -> bool {
        self.all != AllSettings::Unasked
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
        match &self.all {
            // A snapshot that is safe for a deferrable transaction may be long in coming.
            AllSettings::Unasked if !self.is_empty() => parts.push(AT_ONCE.into()),
            AllSettings::Unasked => {}
            AllSettings::Compared(baseline) => {
                parts.extend(guard(false));
                parts.push(compared(baseline));
            }
            AllSettings::Listed => {
                parts.extend(guard(true));
                parts.push(self.listed());
                // Not among the parameters that can be listed.
                parts.push(ROLE.into());
            }
        }
        if !self.names.is_empty() {
            parts.push(self.named());
        }
        if !self.privileged.is_empty() {
            parts.push(self.granted());
        }
        if self.summary {
            parts.push(SUMMARY.into());
        }
        if self.statements {
            parts.push(statements());
        }
        if self.channels {
            let [open, close] = ESCAPED;
            let text = format!(
                "SELECT 'c', {open}channel{close}, '' \
                 FROM pg_catalog.pg_listening_channels() AS listening(channel)"
            );
            parts.push(text.into());
        }
        parts.join(&b";"[..])
    }

    fn listed(&self) -> Vec<u8> {
        let [open, close] = ESCAPED;
        let unless = if self.knows_grants { NOT_GRANTED } else { "" };
        // Those that are shown were set just now.
        let shown = SHOWN.join("','");
        format!(
            "SELECT CASE WHEN context OPERATOR(pg_catalog.=) 'superuser'::pg_catalog.text\
             {unless} THEN 's' ELSE 'g' END, name, {open}pg_catalog.current_setting(name){close} \
             FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text \
             AND name OPERATOR(pg_catalog.<>) ALL (ARRAY['{shown}']::pg_catalog.text[])"
        )
        .into()
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
        let value = if self.must_fit {
            VALUE_THAT_FITS
        } else {
            VALUE
        };
        let mut text = format!("SELECT 'g', {open}name{close}, {open}{value}{close} FROM (VALUES ")
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

/// Shows what the parameters that could disturb the look are, and what they would be if the session had not set them,
/// which a baseline tells too, and sets them for the transaction.
fn guard(shows_usual: bool) -> Vec<Vec<u8>> {
    let show = |name: &str| format!("SHOW {name}").into_bytes();
    let set =
        |value: &'static str| move |name: &str| format!("SET LOCAL {name} TO {value}").into_bytes();
    let is_switch = |name: &&str| *name == "jit";
    let mut parts: Vec<Vec<u8>> = SHOWN.map(show).into();
    if shows_usual {
        parts.extend(SHOWN.map(set("DEFAULT")));
        parts.extend(SHOWN.map(show));
    }
    parts.extend(
        SHOWN
            .into_iter()
            .filter(|name| !is_switch(name))
            .map(set("0")),
    );
    parts.extend(SHOWN.into_iter().filter(is_switch).map(set("off")));
    parts.push(AT_ONCE.into());
    parts
}

fn compared(baseline: &Baseline) -> Vec<u8> {
    let [open, close] = ESCAPED;
    let [names, values] = baseline.arrays();
    let mut text = format!(
        "SELECT 'g', name, {open}pg_catalog.current_setting(name, true){close} \
         FROM ROWS FROM (pg_catalog.unnest("
    )
    .into_bytes();
    text.extend_from_slice(names);
    text.extend_from_slice(b"::pg_catalog.text[]), pg_catalog.unnest(");
    text.extend_from_slice(values);
    text.extend_from_slice(
        b"::pg_catalog.text[])) AS usual(name, value) \
        WHERE pg_catalog.current_setting(name, true) OPERATOR(pg_catalog.<>) value",
    );
    text
}

fn statements() -> Vec<u8> {
    let [open, close] = ESCAPED;
    format!(
        "SELECT CASE WHEN from_sql THEN 'p' ELSE 'q' END, {open}name{close}, \
         {open}CASE WHEN from_sql THEN statement ELSE '' END{close} \
         FROM pg_catalog.pg_prepared_statement() WHERE from_sql \
         OR NOT pg_catalog.starts_with(name, 'PGWEIR_')"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert!(Probe::default().is_empty() && Probe::default().text().is_empty());
        let probe = Probe {
            names: vec![b"app.tenant"[..].into(), b"it's"[..].into()],
            summary: true,
            ..Probe::default()
        };
        let text = String::from_utf8(probe.text()).unwrap();
        assert!(text.contains("(VALUES ('app.tenant'::pg_catalog.text),('it''s')) AS"));
        assert!(text.ends_with("FROM pg_catalog.pg_prepared_statement()"));
        let probe = Probe {
            privileged: vec![b"lc_messages".to_vec()],
            ..Probe::default()
        };
        let text = String::from_utf8(probe.text()).unwrap();
        assert!(text.contains(";SELECT 'm', name, '' FROM (VALUES ('lc_messages'::"));
    }

    #[test]
    fn hostile_settings_are_read_before_they_are_set() {
        let text = String::from_utf8(Probe::full(Vec::new()).text()).unwrap();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("SHOW statement_timeout") < at("SET LOCAL statement_timeout TO DEFAULT"));
        assert!(at("SET LOCAL jit TO off") < at("NOT DEFERRABLE"));
        assert!(at("NOT DEFERRABLE") < at("SELECT "));
    }
}
