//! Finds out whether a server matches `target_session_attrs`, by the parameters that the server reports.

use pgweir_config::TargetSession;

use crate::session::{Tracked, TrackedNames};

/// The role that a server reports, from PostgreSQL 14 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRole {
    /// The server is in hot standby.
    is_standby: bool,
    /// Transactions of a new session can't write.
    is_read_only: bool,
}

impl ServerRole {
    /// Returns the role of a server that is a standby or not, and whose transactions can write or not.
    #[must_use]
    pub fn new(is_standby: bool, is_read_only: bool) -> Self {
        Self {
            is_standby,
            is_read_only,
        }
    }

    /// Returns whether the server is a standby.
    #[must_use]
    pub fn is_standby(self) -> bool {
        self.is_standby
    }

    /// Returns the role that a server has reported; `None` if the server is older than PostgreSQL 14.
    #[must_use]
    pub fn of(names: &TrackedNames, reported: &Tracked) -> Option<Self> {
        let is_on = |name| names.value(reported, name).map(|value| value == b"on");
        let is_standby = is_on(b"in_hot_standby")?;
        Some(Self {
            is_standby,
            is_read_only: is_standby || is_on(b"default_transaction_read_only")?,
        })
    }

    /// Returns whether the server matches `target_session_attrs`. For `prefer-standby`, a primary matches only if no
    /// standby can be reached, which the caller has to find out.
    #[must_use]
    pub fn fits(self, target: TargetSession) -> bool {
        match target {
            TargetSession::Any => true,
            TargetSession::ReadWrite => !self.is_read_only,
            TargetSession::ReadOnly => self.is_read_only,
            TargetSession::Primary => !self.is_standby,
            TargetSession::Standby | TargetSession::PreferStandby => self.is_standby,
        }
    }

    /// Returns whether a server matches `target_session_attrs` after it has become a standby, or a primary. The
    /// session's default for writing is ignored, since a client may have changed it for its own session.
    #[must_use]
    pub fn fits_as(is_standby: bool, target: TargetSession) -> bool {
        let role = Self {
            is_standby,
            is_read_only: is_standby,
        };
        role.fits(target)
    }

    /// Returns the role in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self {
                is_standby: true, ..
            } => "a standby",
            Self {
                is_read_only: true, ..
            } => "a primary whose transactions can't write",
            Self { .. } => "a primary",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(standby: &[u8], read_only: &[u8]) -> Option<ServerRole> {
        let names = TrackedNames::new(&[]);
        let mut reported = names.unset();
        for (name, value) in [
            (&b"in_hot_standby"[..], standby),
            (b"default_transaction_read_only", read_only),
        ] {
            if !value.is_empty() {
                reported.set(names.position(name).expect("a reported name"), value);
            }
        }
        ServerRole::of(&names, &reported)
    }

    #[test]
    fn roles_are_those_of_libpq() {
        use TargetSession::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        for (standby, read_only, fitting) in [
            (&b"off"[..], &b"off"[..], &[Any, ReadWrite, Primary][..]),
            (b"off", b"on", &[Any, ReadOnly, Primary]),
            (b"on", b"off", &[Any, ReadOnly, Standby, PreferStandby]),
            (b"on", b"on", &[Any, ReadOnly, Standby, PreferStandby]),
        ] {
            let role = role(standby, read_only).expect("a role");
            for target in [Any, ReadWrite, ReadOnly, Primary, Standby, PreferStandby] {
                assert_eq!(role.fits(target), fitting.contains(&target), "{target}");
            }
        }
        assert_eq!(role(b"", b"off"), None);
    }
}
