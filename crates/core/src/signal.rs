//! `pg_terminate_backend` and `pg_cancel_backend` with the pid that pgweir gave to a client. The server has no process
//! with that pid and sends a warning. pgweir reads the pid from the warning.

use std::sync::Arc;

use pgweir_wire::{Body, Report};

use crate::{
    Endpoint,
    session::{Effects, quote},
};

/// The C function of PostgreSQL that sends the warning. Its name is the same in every language of the messages, and SQL
/// code can't send a warning in its name.
const SIGNALS: &[u8] = b"pg_signal_backend";
const WARNING: &[u8] = b"01000";

/// The signal that a text sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `pg_cancel_backend`: ends the query.
    Cancel,
    /// `pg_terminate_backend`: ends the client's connection.
    Terminate,
}

impl Signal {
    /// Returns the signal that texts with these effects send; the cancel, if it may be either.
    #[must_use]
    pub fn of(effects: Effects) -> Option<Self> {
        if effects.contains(Effects::CANCELS) {
            return Some(Self::Cancel);
        }
        effects
            .contains(Effects::TERMINATES)
            .then_some(Self::Terminate)
    }
}

/// The pids in one request for which the server has no process.
#[derive(Debug, Default, PartialEq)]
pub struct Signals {
    /// The pids; each may be a client of this process.
    pub(crate) pids: Vec<u32>,
    /// The signal, known at the end of the request. ReadyForQuery is held back while the server is asked for `rights`.
    pub(crate) signal: Option<Signal>,
    /// The server's answer.
    pub(crate) rights: Option<Rights>,
}

impl Signals {
    /// The largest number of pids of one request that are handled. For the others, the client only gets the server's
    /// warning.
    const PIDS_MAX: usize = 256;

    /// Notes a pid from a server's warning.
    pub fn add(&mut self, pid: u32) {
        if self.pids.len() < Self::PIDS_MAX && !self.pids.contains(&pid) {
            self.pids.push(pid);
        }
    }

    /// Returns whether the server was asked for the role that sends the signal.
    #[must_use]
    #[inline]
    pub fn are_asked_for(&self) -> bool {
        self.signal.is_some()
    }
}

/// Returns the pid in a NoticeResponse which says that the server has no process with this pid.
#[must_use]
pub fn unknown_pid(notice: &[u8]) -> Option<u32> {
    let report = Report::parse(notice).ok()?;
    if report.routine != SIGNALS || report.code != WARNING {
        return None;
    }
    let mut numbers = report
        .message
        .split(|byte| !byte.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let number = numbers.next().filter(|_| numbers.next().is_none())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The role under which the signal was sent, as the server reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// The current role is a superuser.
    pub is_superuser: bool,
    /// The current role is the one that the server connection has logged in as.
    pub is_login_user: bool,
}

impl Rights {
    /// Returns the query for the role, on a server connection of `login_user`. All names in the query are qualified,
    /// since it runs with the client's search_path.
    #[must_use]
    pub fn query(login_user: &[u8]) -> Vec<u8> {
        let mut text = b"SELECT pg_catalog.current_setting('is_superuser'), \
            CASE WHEN CURRENT_USER OPERATOR(pg_catalog.=) "
            .to_vec();
        quote::literal_of_bytes(&mut text, login_user);
        text.extend_from_slice(b"::pg_catalog.name THEN 'on' ELSE 'off' END");
        text
    }

    /// Reads the query's row. A malformed row gives no right.
    #[must_use]
    pub fn of_row(row: &[u8]) -> Self {
        let Some(columns) = row.strip_prefix(&[0, 2]) else {
            return Self::default();
        };
        let mut body = Body::new(columns);
        let mut is_on = || {
            let len = body.i32().ok().and_then(|len| usize::try_from(len).ok());
            let value = len.and_then(|len| body.bytes(len).ok());
            value == Some(b"on")
        };
        Self {
            is_superuser: is_on(),
            is_login_user: is_on(),
        }
    }
}

/// A signal on its way to the workers that may have the clients.
#[derive(Debug, Clone)]
pub struct SignalOrder {
    /// The signal.
    pub signal: Signal,
    /// The clients' pids.
    pub pids: Vec<u32>,
    /// The sender.
    pub by: SignalSender,
}

/// The sender of a signal.
#[derive(Debug, Clone)]
pub struct SignalSender {
    /// The sender's role.
    pub rights: Rights,
    /// The servers' addresses: a role has its rights only there.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// The user that the sender has logged in as at pgweir.
    pub user: Box<str>,
    /// The user that the sender's server connections have logged in as.
    pub login_user: Box<str>,
}

impl SignalSender {
    /// Returns whether the sender may signal a client of `user`, whose servers are at `endpoints` and have logged in as
    /// `login_user`. This is PostgreSQL's rule, except that memberships in roles, such as `pg_signal_backend`, are not
    /// known here.
    #[must_use]
    pub fn may(&self, endpoints: &[Arc<Endpoint>], login_user: &str, user: &str) -> bool {
        let is_there = !endpoints.is_empty() && self.endpoints == endpoints;
        let is_own = self.rights.is_login_user && *self.login_user == *login_user;
        is_there && (self.rights.is_superuser || is_own && *self.user == *user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(code: &str, message: &str, routine: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tag, value) in [
            ('V', "WARNING"),
            ('C', code),
            ('M', message),
            ('R', routine),
        ] {
            bytes.extend_from_slice(format!("{tag}{value}\0").as_bytes());
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn the_pid_of_a_warning() {
        let check = |code, message, routine, expect| {
            assert_eq!(
                unknown_pid(&notice(code, message, routine)),
                expect,
                "{message}"
            );
        };
        let routine = "pg_signal_backend";
        check(
            "01000",
            "PID 4194305 is not a PostgreSQL backend process",
            routine,
            Some(4_194_305),
        );
        check(
            "01000",
            "PID 7 ist kein PostgreSQL-Backend-Prozess",
            routine,
            Some(7),
        );
        check(
            "01000",
            "\u{8fdb}\u{7a0b} 7 \u{4e0d}\u{662f}",
            routine,
            Some(7),
        );
        check(
            "01000",
            "PID 7 is not a PostgreSQL backend process",
            "exec_stmt_raise",
            None,
        );
        check(
            "01004",
            "PID 7 is not a PostgreSQL backend process",
            routine,
            None,
        );
        check(
            "01000",
            "could not send signal to process 7: 3",
            routine,
            None,
        );
        check("01000", "PID 77777777777", routine, None);
        check("01000", "no number", routine, None);
        assert_eq!(unknown_pid(b"M"), None);
    }

    #[test]
    fn the_lesser_of_both() {
        assert_eq!(Signal::of(Effects::OPAQUE), None);
        assert_eq!(Signal::of(Effects::TERMINATES), Some(Signal::Terminate));
        let both = Effects::TERMINATES | Effects::CANCELS;
        assert_eq!(Signal::of(both), Some(Signal::Cancel));
    }

    #[test]
    fn pids_are_bounded() {
        let mut signals = Signals::default();
        for pid in (1..1000).chain(1..1000) {
            signals.add(pid);
        }
        assert_eq!(signals.pids.len(), Signals::PIDS_MAX);
    }

    #[test]
    fn rights() {
        let text = String::from_utf8(Rights::query(b"it's")).unwrap();
        assert!(text.contains("'it''s'::pg_catalog.name"), "{text}");
        let both = Rights {
            is_superuser: true,
            is_login_user: true,
        };
        assert_eq!(Rights::of_row(b"\0\x02\0\0\0\x02on\0\0\0\x02on"), both);
        let one = Rights {
            is_superuser: false,
            ..both
        };
        assert_eq!(Rights::of_row(b"\0\x02\0\0\0\x03off\0\0\0\x02on"), one);
        for bad in [&b""[..], b"\0\x01\0\0\0\x02on", b"\0\x02\0\0\0\x09on"] {
            assert_eq!(Rights::of_row(bad), Rights::default(), "{bad:?}");
        }
    }

    #[test]
    fn privileges_for_signals() {
        let at = |port| {
            let host = "db".to_owned();
            vec![Arc::new(Endpoint::Tcp { host, port })]
        };
        let asker = |is_superuser, is_login_user| SignalSender {
            rights: Rights {
                is_superuser,
                is_login_user,
            },
            endpoints: at(1),
            user: "ann".into(),
            login_user: "app".into(),
        };
        let check = |asker: &SignalSender, port, login_user, user, expect| {
            let may = asker.may(&at(port), login_user, user);
            assert_eq!(may, expect, "{asker:?} {port} {login_user} {user}");
        };
        let own = asker(false, true);
        check(&own, 1, "app", "ann", true);
        check(&own, 1, "app", "bob", false);
        check(&own, 1, "root", "ann", false);
        check(&own, 2, "app", "ann", false);
        // Under another role.
        check(&asker(false, false), 1, "app", "ann", false);
        let superuser = asker(true, false);
        check(&superuser, 1, "root", "bob", true);
        check(&superuser, 2, "app", "ann", false);
        assert!(!superuser.may(&[], "app", "ann"));
    }
}
