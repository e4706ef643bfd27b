//! The statements that take from a server's session whatever a client has left in it.

use super::{Class, quote};

/// What is known of the session that is to be cleaned.
#[derive(Debug, Clone, Copy)]
pub struct Clean {
    /// Its dirt.
    pub class: Class,
    /// A role or the session's user may have been set.
    pub changes_role: bool,
    /// Parameters on which plans depend may have been set.
    pub changes_plans: bool,
    /// `random()` is to go on from a number that nobody knows. With the extension the server tells if it has to.
    pub reseeds: bool,
    /// PostgreSQL's major version.
    pub version: u32,
}

/// What the prepared statements of the session are.
#[derive(Debug)]
pub enum ToDeallocate<'n> {
    /// These were made by SQL; all others are pgweir's own, and stay.
    Named(Vec<&'n [u8]>),
    /// Nobody knows.
    All,
}

/// How many prepared statements a session has, as the clean tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementCounts {
    /// Made by PREPARE.
    pub from_sql: usize,
    /// Made by the protocol's Parse.
    pub from_protocol: usize,
}

impl StatementCounts {
    /// Reads them from the body of the clean's last DataRow.
    #[must_use]
    pub fn of_row(row: &[u8]) -> Option<Self> {
        let mut body = pgweir_wire::Body::new(row);
        if body.bytes(2).ok()? != [0, 2] {
            return None;
        }
        let mut count = || {
            let len = usize::try_from(body.i32().ok()?).ok()?;
            std::str::from_utf8(body.bytes(len).ok()?)
                .ok()?
                .parse()
                .ok()
        };
        Some(Self {
            from_sql: count()?,
            from_protocol: count()?,
        })
    }
}

/// Everything in it holds under whatever the client has set: PostgreSQL's own names only, no timeout, no wait
/// for a snapshot, no wait for a lock that another session holds on a temporary object.
const BEGIN: &str =
    "SET LOCAL statement_timeout=0;SET TRANSACTION ISOLATION LEVEL READ COMMITTED,NOT DEFERRABLE;";
/// In front of it, from this version on.
const TRANSACTION_TIMEOUT: (u32, &str) = (17, "SET LOCAL transaction_timeout=0;");
const ROLE: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;";
const REST: &str =
    "SET LOCAL lock_timeout='1s';CLOSE ALL;UNLISTEN *;DISCARD SEQUENCES;DISCARD TEMP;";
/// Planner settings may have left plans that are bad for others.
const PLANS: &str = ";DISCARD PLANS";
const SEED: &str = "SELECT pg_catalog.setseed(pg_catalog.float8(\
    pg_catalog.uuid_hash(pg_catalog.gen_random_uuid())) OPERATOR(pg_catalog./) 2147483648::pg_catalog.float8);";
/// The last row tells how many prepared statements there are: opaque code may have replaced one of pgweir's.
const LOCKS_AND_COUNTS: &str = "SELECT pg_catalog.pg_advisory_unlock_all();SELECT pg_catalog.count(*) FILTER (WHERE from_sql),pg_catalog.count(*) FILTER (WHERE NOT from_sql) \
    FROM pg_catalog.pg_prepared_statement()";

impl Clean {
    /// The end of a simple query that takes the settings away, and nothing else.
    #[must_use]
    pub fn settings_text(&self) -> Vec<u8> {
        let role = if self.changes_role { ROLE } else { "" };
        let plans = if self.changes_plans { PLANS } else { "" };
        format!("{role}RESET ALL{plans}").into()
    }

    /// The text, one simple query. After [`Class::Opaque`], one of its rows is for [`StatementCounts::of_row`].
    #[must_use]
    pub fn text(&self, statements: &ToDeallocate<'_>) -> Vec<u8> {
        let mut text = Vec::with_capacity(640);
        let mut push = |part: &str| text.extend_from_slice(part.as_bytes());
        if self.version >= TRANSACTION_TIMEOUT.0 {
            push(TRANSACTION_TIMEOUT.1);
        }
        push(BEGIN);
        text.extend_from_slice(&self.settings_text());
        if self.class != Class::Opaque {
            return text;
        }
        for part in [";", REST] {
            text.extend_from_slice(part.as_bytes());
        }
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
        if self.reseeds {
            text.extend_from_slice(SEED.as_bytes());
        }
        text.extend_from_slice(LOCKS_AND_COUNTS.as_bytes());
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
                version,
            };
            String::from_utf8(clean.text(&ToDeallocate::Named(names.to_vec()))).unwrap()
        };
        let settings = text(Class::Settings, 16, &[]);
        assert!(
            settings.starts_with("SET LOCAL statement_timeout=0;")
                && settings.ends_with("RESET ALL")
        );
        let opaque = text(Class::Opaque, 18, &[b"a\"b"]);
        assert!(opaque.starts_with("SET LOCAL transaction_timeout=0;"));
        assert!(opaque.contains("RESET ROLE;RESET ALL;DISCARD PLANS;SET LOCAL lock_timeout"));
        assert!(opaque.contains(";DEALLOCATE \"a\"\"b\";SELECT "));
    }

    #[test]
    fn counts() {
        let row = b"\0\x02\0\0\0\x010\0\0\0\x0212";
        let counts = StatementCounts {
            from_sql: 0,
            from_protocol: 12,
        };
        assert_eq!(StatementCounts::of_row(row), Some(counts));
        for bad in [
            &b""[..],
            b"\0\x02\0\0\0\x010",
            b"\0\x01\0\0\0\x010",
            b"\0\x02\0\0\0\x01x\0\0\0\x012",
        ] {
            assert_eq!(StatementCounts::of_row(bad), None);
        }
    }
}
