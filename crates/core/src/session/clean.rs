//! The clean: the statements that remove from a server's session everything that a client has left in it.

use super::{Class, quote};

/// The facts that decide which statements a clean consists of.
#[derive(Debug, Clone, Copy)]
pub struct Clean {
    /// The highest class of the texts since the last clean.
    pub class: Class,
    /// Whether a role or the session's user may have been set.
    pub changes_role: bool,
    /// Whether parameters on which plans depend may have been set.
    pub changes_plans: bool,
    /// Whether `random()` must get a new random seed. With the extension, the server reports whether this is needed.
    pub reseeds: bool,
    /// The questions that the clean asks the server.
    pub asks: Questions,
    /// PostgreSQL's major version.
    pub version: u32,
}

/// The questions that a clean asks the server after code that pgweir has not read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Questions {
    /// Whether the session has state that no clean removes, or its user has a right to leave such state.
    pub rights: bool,
    /// Whether the session ever had a temporary object. It may have hidden the types of PL/pgSQL functions.
    pub temp: bool,
}

/// The prepared statements that a clean deallocates.
#[derive(Debug)]
pub enum ToDeallocate<'n> {
    /// These statements, made by SQL. All others are pgweir's and stay.
    Named(Vec<&'n [u8]>),
    /// All, since the session's statements are not known.
    All,
}

/// The facts about the session in the last row of a clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleaned {
    /// Statements made by PREPARE.
    pub from_sql: usize,
    /// Statements made by the protocol's Parse.
    pub from_protocol: usize,
    /// Whether code that pgweir has not read may have left state that no clean removes.
    pub may_keep_state: bool,
}

impl Cleaned {
    /// Parses the body of the clean's last DataRow.
    #[must_use]
    pub fn of_row(row: &[u8]) -> Option<Self> {
        let columns = pgweir_wire::Body::new(row).columns().ok()?;
        let &[from_sql, from_protocol, may_keep_state] = &*columns else {
            return None;
        };
        let count = |column: Option<_>| std::str::from_utf8(column?).ok()?.parse().ok();
        Some(Self {
            from_sql: count(from_sql)?,
            from_protocol: count(from_protocol)?,
            may_keep_state: match may_keep_state? {
                b"t" => true,
                b"f" => false,
                _ => return None,
            },
        })
    }
}

/// The start of the clean. The clean must work under any settings of the client: it uses only qualified names, has no
/// timeout, and waits neither for a snapshot nor for a lock that another session holds on a temporary object.
const BEGIN: &str =
    "SET LOCAL statement_timeout=0;SET TRANSACTION ISOLATION LEVEL READ COMMITTED,NOT DEFERRABLE;";
/// The statement in front of [`BEGIN`], and the PostgreSQL version from which on it is needed.
const TRANSACTION_TIMEOUT: (u32, &str) = (17, "SET LOCAL transaction_timeout=0;");
const ROLE: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;";
const REST: &str =
    "SET LOCAL lock_timeout='1s';CLOSE ALL;UNLISTEN *;DISCARD SEQUENCES;DISCARD TEMP;";
/// Discards plans: planner settings may have left plans that are bad for other clients.
const PLANS: &str = ";DISCARD PLANS";
const SEED: &str = "SELECT pg_catalog.setseed(pg_catalog.float8(\
    pg_catalog.uuid_hash(pg_catalog.gen_random_uuid())) OPERATOR(pg_catalog./) 2147483648::pg_catalog.float8);";
/// Releases advisory locks. The last row counts the prepared statements, since opaque code may have replaced one of
/// pgweir's.
const LOCKS_AND_COUNTS: &str = "SELECT pg_catalog.pg_advisory_unlock_all();SELECT pg_catalog.count(*) FILTER (WHERE from_sql),pg_catalog.count(*) FILTER (WHERE NOT from_sql),";
const FROM_STATEMENTS: &str = " FROM pg_catalog.pg_prepared_statement()";
/// Whether the session may have state that no clean removes and no query shows. A session may have such state if it has
/// a temporary replication slot, or if its user may load libraries (superusers), set up a replication origin (the
/// function with OID 6006) or start a backup (OID 2172).
pub const MAY_KEEP_STATE: &str = "EXISTS (SELECT FROM pg_catalog.pg_get_replication_slots() WHERE temporary \
    AND active_pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
    OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE pg_catalog.pg_has_role(SESSION_USER, oid, 'MEMBER') \
    AND (rolsuper OR pg_catalog.has_function_privilege(oid, 6006::pg_catalog.oid, 'EXECUTE') \
    OR pg_catalog.has_function_privilege(oid, 2172::pg_catalog.oid, 'EXECUTE')))";

/// Whether the session has ever had a temporary object.
const HAD_TEMP: &str =
    " OR pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid";

impl Clean {
    /// Returns the end of a simple query that resets the parameters, and nothing else.
    #[must_use]
    pub fn settings_text(&self) -> Vec<u8> {
        let role = if self.changes_role { ROLE } else { "" };
        let plans = if self.changes_plans { PLANS } else { "" };
        format!("{role}RESET ALL{plans}").into()
    }

    /// Returns the clean as one simple query. After [`Class::Opaque`], its answer has a row for
    /// [`Cleaned::of_row`]. `disconnects`: the function that closes the session's connections to other servers.
    /// `keeps`: a condition in SQL under which the session may have state that no clean removes.
    #[must_use]
    pub fn text(
        &self,
        statements: &ToDeallocate<'_>,
        disconnects: Option<&str>,
        keeps: Option<&str>,
    ) -> Vec<u8> {
        let has_timeout = self.version >= TRANSACTION_TIMEOUT.0;
        let timeout = if has_timeout {
            TRANSACTION_TIMEOUT.1
        } else {
            ""
        };
        let mut text = Vec::with_capacity(640);
        text.extend_from_slice(timeout.as_bytes());
        text.extend_from_slice(BEGIN.as_bytes());
        text.extend_from_slice(&self.settings_text());
        if self.class != Class::Opaque {
            return text;
        }
        text.push(b';');
        text.extend_from_slice(REST.as_bytes());
        match statements {
            ToDeallocate::All => text.extend_from_slice(b"DEALLOCATE ALL;"),
            ToDeallocate::Named(names) => {
                for name in names {
                    text.extend_from_slice(b"DEALLOCATE ");
                    quote::identifier(&mut text, name);
                    text.push(b';');
                }
            }
        }
        if let Some(function) = disconnects {
            text.extend_from_slice(format!("SELECT {function}();").as_bytes());
        }
        if self.reseeds {
            text.extend_from_slice(SEED.as_bytes());
        }
        let (rights, temp) = match (self.asks.rights, self.asks.temp) {
            (true, true) => (MAY_KEEP_STATE, HAD_TEMP),
            (true, false) => (MAY_KEEP_STATE, ""),
            (false, true) => ("false", HAD_TEMP),
            (false, false) => ("false", ""),
        };
        let keeps = keeps.map(|keeps| format!(" OR {keeps}"));
        let keeps = keeps.as_deref().unwrap_or_default();
        for part in [LOCKS_AND_COUNTS, rights, temp, keeps, FROM_STATEMENTS] {
            text.extend_from_slice(part.as_bytes());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = |class, version, names: &[&[u8]]| {
            let clean = Clean {
                class,
                changes_role: class == Class::Opaque,
                changes_plans: class == Class::Opaque,
                reseeds: false,
                asks: Questions {
                    rights: version >= 18,
                    temp: version >= 18,
                },
                version,
            };
            let statements = ToDeallocate::Named(names.to_vec());
            String::from_utf8(clean.text(&statements, Some("s.\"F\""), Some("k"))).unwrap()
        };
        let settings = text(Class::Settings, 16, &[]);
        assert!(
            settings.starts_with("SET LOCAL statement_timeout=0;")
                && settings.ends_with("RESET ALL")
                && !settings.contains("SELECT")
        );
        let opaque = text(Class::Opaque, 18, &[b"a\"b"]);
        assert!(opaque.starts_with("SET LOCAL transaction_timeout=0;"));
        assert!(opaque.contains("RESET ROLE;RESET ALL;DISCARD PLANS;SET LOCAL lock_timeout"));
        assert!(opaque.contains(";DEALLOCATE \"a\"\"b\";SELECT s.\"F\"();SELECT "));
        assert!(opaque.contains("pg_has_role(SESSION_USER"));
        assert!(opaque.contains("pg_my_temp_schema() OPERATOR"));
        assert!(text(Class::Opaque, 16, &[]).contains(",false OR k FROM pg_catalog.pg_prepared"));
    }

    #[test]
    fn counts() {
        let row = b"\0\x03\0\0\0\x010\0\0\0\x0212\0\0\0\x01t";
        let cleaned = Cleaned {
            from_sql: 0,
            from_protocol: 12,
            may_keep_state: true,
        };
        assert_eq!(Cleaned::of_row(row), Some(cleaned));
        for bad in [
            &b""[..],
            b"\0\x03\0\0\0\x010",
            b"\0\x02\0\0\0\x010\0\0\0\x012",
            b"\0\x03\0\0\0\x01x\0\0\0\x012\0\0\0\x01f",
            b"\0\x03\0\0\0\x010\0\0\0\x012\0\0\0\x01x",
        ] {
            assert_eq!(Cleaned::of_row(bad), None);
        }
    }
}
