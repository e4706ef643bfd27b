//! The query of an inspection, which reads the state of a server's session.
//!
//! An inspection runs with the client's role, search_path and other settings. Therefore every name in it is qualified,
//! and settings that could disturb it are read first and then set for its transaction only. The inspection is one
//! simple query of several statements: they share one error scope, and are parsed under the session's present settings.

use std::sync::Arc;

use super::{Baseline, baseline::SHOWN, quote};

/// The way in which a probe reads all parameters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum AllSettings {
    /// The probe does not read all parameters.
    #[default]
    Unasked,
    /// The probe reads the parameters whose values differ from the baseline.
    Compared(Arc<Baseline>),
    /// The probe reads the parameters that the session has set according to `pg_settings`.
    Listed,
}

/// The parts of the session state that one inspection reads.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The way in which all parameters that were set in the session are read.
    pub all: AllSettings,
    /// Parameters that are read by name, whether they were set or not: custom parameters, which no list contains, and
    /// those that a text has named.
    pub names: Vec<Box<[u8]>>,
    /// Parameters whose defaults are read, too. Setting a parameter to its default may fail in a session.
    pub defaults_of: Vec<Vec<u8>>,
    /// Whether the query fails if a value is too long to be read; otherwise the value is left out.
    pub must_fit: bool,
    /// Whether to read the [`Summary`](super::Summary): temporary objects, cursors WITH HOLD, session-level advisory
    /// locks, and the numbers of prepared statements and channels.
    pub summary: bool,
    /// Whether to read SQL-prepared statements, and protocol-level statements whose names are not pgweir's.
    pub statements: bool,
    /// Whether to read the channels.
    pub channels: bool,
}

/// `encode(convert_to(.., server's encoding), 'escape')`, around the expression that stands between the two parts.
const ESCAPED: [&str; 2] = [
    "pg_catalog.encode(pg_catalog.convert_to(",
    ", pg_catalog.getdatabaseencoding()), 'escape')",
];
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
/// The maximum length of the texts of all SQL-prepared statements that an inspection reads, in bytes.
const STATEMENT_BYTES_MAX: u32 = 1024 * 1024;
const VALUE: &str = "pg_catalog.current_setting(name, true)";
/// Divides by zero if the value is too long. The expression has no constant part that the planner could evaluate.
const VALUE_THAT_FITS: &str = "CASE WHEN \
    pg_catalog.length(pg_catalog.current_setting(name, true)) OPERATOR(pg_catalog.>) 8000 \
    THEN (1 OPERATOR(pg_catalog./) (0 OPERATOR(pg_catalog.*) \
    pg_catalog.length(pg_catalog.current_setting(name, true))))::pg_catalog.text \
    ELSE pg_catalog.current_setting(name, true) END";
const AT_ONCE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED,NOT DEFERRABLE";
const ROLE: &str = "SELECT 'g', 'role', pg_catalog.encode(pg_catalog.convert_to(\
    pg_catalog.current_setting('role'), pg_catalog.getdatabaseencoding()), 'escape') \
    WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'::pg_catalog.text";

/// The values of [`SHOWN`] under which an inspection is neither cut short nor compiled.
const UNDISTURBED: [&str; 3] = ["0", "0", "off"];

impl Probe {
    /// Returns a probe for the whole session state, with these custom parameters. Statements and channels are only
    /// counted.
    #[must_use]
    pub fn full(names: Vec<Box<[u8]>>) -> Self {
        Self {
            all: AllSettings::Listed,
            names,
            summary: true,
            ..Self::default()
        }
    }

    /// Returns a probe for the state that the extension reports, with these custom parameters.
    #[must_use]
    pub fn reported(names: Vec<Box<[u8]>>) -> Self {
        Self {
            statements: true,
            channels: true,
            ..Self::full(names)
        }
    }

    /// Returns whether the probe reads all parameters.
    #[must_use]
    pub fn asks_all_settings(&self) -> bool {
        self.all != AllSettings::Unasked
    }

    /// Returns whether the probe reads nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the query. Its rows are for [`State::take_row`](super::State::take_row).
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        match &self.all {
            // A deferrable transaction may wait long for a safe snapshot.
            AllSettings::Unasked if !self.is_empty() => parts.push(AT_ONCE.into()),
            AllSettings::Unasked => {}
            AllSettings::Compared(baseline) => {
                parts.extend(guard(false));
                parts.push(compared(baseline));
            }
            AllSettings::Listed => {
                parts.extend(guard(true));
                parts.push(self.listed());
                // `pg_settings` does not list the role.
                parts.push(ROLE.into());
            }
        }
        if !self.names.is_empty() {
            parts.push(self.named());
        }
        if self.summary {
            parts.push(SUMMARY.into());
        }
        if self.statements {
            parts.push(statements());
        }
        for name in &self.defaults_of {
            for [before, behind] in [["SET LOCAL ", " TO DEFAULT"], ["SHOW ", ""]] {
                parts.push([before.as_bytes(), name, behind.as_bytes()].concat());
            }
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
        // The query itself has just set the shown parameters.
        let shown = SHOWN.join("','");
        format!(
            "SELECT CASE WHEN context OPERATOR(pg_catalog.=) 'superuser'::pg_catalog.text \
             THEN 's' ELSE 'g' END, name, {open}pg_catalog.current_setting(name){close} \
             FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'::pg_catalog.text \
             AND name OPERATOR(pg_catalog.<>) ALL (ARRAY['{shown}']::pg_catalog.text[])"
        )
        .into()
    }

    fn named(&self) -> Vec<u8> {
        let [open, close] = ESCAPED;
        let value = if self.must_fit {
            VALUE_THAT_FITS
        } else {
            VALUE
        };
        let columns = format!("SELECT 'g', {open}name{close}, {open}{value}{close}");
        let mut text = format!("{columns} FROM (VALUES ").into_bytes();
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

/// Returns the statements that show the parameters which could disturb the inspection, and set them for the
/// transaction. With `shows_usual`, also shows the values that they have in a session that has not set them; a baseline
/// has these, too.
fn guard(shows_usual: bool) -> Vec<Vec<u8>> {
    let show = |name: &str| format!("SHOW {name}").into_bytes();
    let mut parts: Vec<Vec<u8>> = SHOWN.map(show).into();
    if shows_usual {
        parts.extend(SHOWN.map(|name| format!("SET LOCAL {name} TO DEFAULT").into_bytes()));
        parts.extend(SHOWN.map(show));
    }
    for (name, value) in SHOWN.into_iter().zip(UNDISTURBED) {
        parts.push(format!("SET LOCAL {name} TO {value}").into_bytes());
    }
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

/// Returns the query for the prepared statements. For each statement, PostgreSQL returns the whole text that contained
/// its PREPARE. So a text with many PREPARE is returned many times. If the texts are too long together, the query
/// returns none of them, and the statements pin the client.
fn statements() -> Vec<u8> {
    let [open, close] = ESCAPED;
    format!(
        "SELECT CASE WHEN from_sql THEN 'p' ELSE 'q' END, {open}name{close}, \
         {open}CASE WHEN from_sql AND (SELECT pg_catalog.sum(pg_catalog.octet_length(statement)) \
         FROM pg_catalog.pg_prepared_statement() WHERE from_sql) \
         OPERATOR(pg_catalog.<) {STATEMENT_BYTES_MAX} THEN statement ELSE '' END{close} \
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
