//! Clients that get a server of their own, opened for them and closed with them: those that replicate,
//! within the limits of their pool, and `bypass_users`, outside of all limits.

use crate::fault::Fault;

/// What a server of a client's own is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Native {
    /// Is it for replication?
    pub replication: Replication,
    /// It counts in no limit of its pool's.
    pub bypass: bool,
    /// Startup parameters of the client that are passed on as they are.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a connection replicates (startup parameter `replication`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replication {
    /// Nothing: an ordinary connection.
    #[default]
    None,
    /// One database (`replication=database`).
    Logical,
    /// The whole cluster (`replication=true`).
    Physical,
}

impl Replication {
    /// Reads the startup parameter's value: `database`, or a boolean as PostgreSQL spells them.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(value: &[u8]) -> Result<Self, Fault> {
        let lower = value.to_ascii_lowercase();
        // An unambiguous beginning will do, as for all booleans of PostgreSQL.
        let is_short_for = |word: &str| !lower.is_empty() && word.as_bytes().starts_with(&lower);
        match lower.as_slice() {
            b"database" => Ok(Self::Logical),
            b"1" | b"on" => Ok(Self::Physical),
            b"0" | b"of" | b"off" => Ok(Self::None),
            _ if is_short_for("true") || is_short_for("yes") => Ok(Self::Physical),
            _ if is_short_for("false") || is_short_for("no") => Ok(Self::None),
            _ => Err(Fault::BadReplication(
                String::from_utf8_lossy(value).into_owned(),
            )),
        }
    }

    /// As SHOW CLIENTS and SHOW SERVERS name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Logical => "logical",
            Self::Physical => "physical",
        }
    }

    /// As PostgreSQL's startup parameter and PgBouncer's log spell it.
    #[must_use]
    pub fn parameter(self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Logical => "database",
            Self::Physical => "yes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, expect| {
            assert_eq!(Replication::parse(value.as_bytes()).ok(), expect, "{value}");
        };
        for no in ["0", "off", "of", "false", "f", "no", "N"] {
            check(no, Some(Replication::None));
        }
        for yes in ["1", "on", "true", "tr", "yes", "Y"] {
            check(yes, Some(Replication::Physical));
        }
        check("database", Some(Replication::Logical));
        check("Database", Some(Replication::Logical));
        for wrong in ["", "o", "2", "data", "nope"] {
            check(wrong, None);
        }
    }
}
