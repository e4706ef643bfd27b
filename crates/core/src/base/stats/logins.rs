//! Results of logins and TLS handshakes, counted per worker, since a rejected client has no pool.

use std::ops::AddAssign;

/// The result of a client's login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LoginResult {
    /// The login succeeded.
    Done,
    /// The password is wrong, the user does not exist, or no rule admits the client (SQLSTATE class 28).
    Denied,
    /// The database does not exist (class 3D).
    NoDatabase,
    /// A limit on clients is reached (class 53).
    TooMany,
    /// The client violated the protocol (class 08).
    Protocol,
    /// Any other failure: an unreachable server, a timeout, a shutdown.
    Other,
}

impl LoginResult {
    /// All results.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Denied,
        Self::NoDatabase,
        Self::TooMany,
        Self::Protocol,
        Self::Other,
    ];

    /// Returns the name of the result in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Denied => "denied",
            Self::NoDatabase => "no_database",
            Self::TooMany => "too_many",
            Self::Protocol => "protocol",
            Self::Other => "other",
        }
    }

    /// Returns the result of a login that failed with this SQLSTATE.
    #[must_use]
    pub fn of_sqlstate(code: &str) -> Self {
        match code.get(..2) {
            Some("28") => Self::Denied,
            Some("3D") => Self::NoDatabase,
            Some("53") => Self::TooMany,
            Some("08") => Self::Protocol,
            _ => Self::Other,
        }
    }
}

/// Logins and TLS handshakes of a worker, since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logins {
    clients: [u64; LoginResult::ALL.len()],
    /// Completed TLS handshakes with clients.
    pub client_tls: u64,
    /// Failed TLS handshakes with clients.
    pub client_tls_failed: u64,
    /// Completed TLS handshakes with servers.
    pub server_tls: u64,
    /// Failed TLS handshakes with servers.
    pub server_tls_failed: u64,
}

impl Logins {
    /// Counts a login with this result.
    pub fn add(&mut self, result: LoginResult) {
        self.clients[result as usize] += 1;
    }

    /// Returns the number of client logins for each result.
    pub fn clients(&self) -> impl Iterator<Item = (LoginResult, u64)> {
        LoginResult::ALL.into_iter().zip(self.clients)
    }
}

impl AddAssign for Logins {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.clients.iter_mut().zip(other.clients) {
            *count += more;
        }
        self.client_tls += other.client_tls;
        self.client_tls_failed += other.client_tls_failed;
        self.server_tls += other.server_tls;
        self.server_tls_failed += other.server_tls_failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_class() {
        for (code, result) in [
            ("28P01", LoginResult::Denied),
            ("28000", LoginResult::Denied),
            ("3D000", LoginResult::NoDatabase),
            ("53300", LoginResult::TooMany),
            ("08P01", LoginResult::Protocol),
            ("57P01", LoginResult::Other),
            ("", LoginResult::Other),
        ] {
            assert_eq!(LoginResult::of_sqlstate(code), result, "{code}");
        }
        let mut logins = Logins::default();
        logins.add(LoginResult::Denied);
        logins += logins;
        let denied = logins.clients().find(|(_, count)| *count > 0);
        assert_eq!(denied, Some((LoginResult::Denied, 2)));
    }
}
