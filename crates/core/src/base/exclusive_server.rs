//! Clients with an exclusive server: one that is opened for the client, serves no other, and is closed with it. The
//! exclusive server of a replication connection counts under the limits of its pool; that of a client of `bypass_users`
//! counts under no limit.

use crate::base::fault::Fault;

/// The way in which a client's exclusive server is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveServer {
    /// The kind of replication, if any.
    pub replication: Replication,
    /// Whether the server counts under none of the pool's limits (`bypass_users`).
    pub bypass: bool,
    /// Startup parameters of the client that go to the server unchanged.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The kind of replication of a connection (startup parameter `replication`).
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
        // PostgreSQL accepts any unambiguous prefix of a boolean's name.
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

    /// Returns the name in SHOW CLIENTS and SHOW SERVERS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Logical => "logical",
            Self::Physical => "physical",
        }
    }

    /// Returns the value of PostgreSQL's startup parameter, which PgBouncer's log shows too.
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
