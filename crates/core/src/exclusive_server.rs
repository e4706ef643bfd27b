//! Clients with an exclusive server: one that is opened for the client, serves no other, and is closed with it. Clients
//! that replicate have one within the limits of their pool; `bypass_users` have one outside of all limits.

use crate::fault::Fault;

/// How to open the exclusive server of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveServer {
    /// Whether, and what, the connection replicates.
    pub replication: Replication,
    /// The server counts in none of the pool's limits (`bypass_users`).
    pub bypass: bool,
    /// Startup parameters of the client that are passed on unchanged.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a connection replicates (startup parameter `replication`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replication {
    /// No replication: an ordinary connection.
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
    /// The value is neither.
    pub fn parse(value: &[u8]) -> Result<Self, Fault> {
        let lower = value.to_ascii_lowercase();
        // PostgreSQL takes an unambiguous prefix of a boolean's name for it.
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

    /// The name in SHOW CLIENTS and SHOW SERVERS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Logical => "logical",
            Self::Physical => "physical",
        }
    }

    /// The value of PostgreSQL's startup parameter, which PgBouncer's log shows too.
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
