//! A buffer for a client's request to a standby. pgweir keeps the request until the client gets the first byte of the
//! reply. If the standby is lost before that, pgweir sends the request to another host.

use std::sync::Arc;

use memchr::memmem;
use pgweir_wire::{HEADER_LEN, Header, Report, sqlstate, tag::backend};

use crate::{Endpoint, Time, Token};

/// How many servers may be lost during one request without an error message. If one more is lost, the request itself may be
/// the cause, so it is not repeated.
const SILENT_LOSSES_MAX: usize = 1;

/// How many servers may be lost during one request because another session of their host has crashed.
const CRASHES_MAX: usize = 3;

/// How the connection to a server was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// Without an error message.
    Silent,
    /// The server says that another session has crashed, so all sessions of the host end. The request is not the cause.
    /// This may happen twice within a moment: PostgreSQL accepts connections until it has noticed the crash.
    OtherCrashed,
    /// The server has sent another error message.
    Announced,
}

impl LossKind {
    /// Returns the kind of a loss that the server has announced with this SQLSTATE.
    pub(crate) fn announced_by(code: &str) -> Self {
        match code {
            sqlstate::CRASH_SHUTDOWN => Self::OtherCrashed,
            _ => Self::Announced,
        }
    }
}

/// The hosts whose connection was lost during a request, before they replied.
#[derive(Debug, Default)]
pub struct LostHosts {
    /// The hosts, and when each was lost.
    hosts: Vec<(Arc<Endpoint>, Time)>,
    /// How many of the servers were lost without an error message.
    silent: usize,
    /// How many of the servers ended because another session had crashed.
    crashes: usize,
}

impl LostHosts {
    /// Adds a host.
    pub(crate) fn add(&mut self, host: &Arc<Endpoint>, kind: LossKind, now: Time) {
        self.hosts.push((Arc::clone(host), now));
        self.silent += usize::from(kind == LossKind::Silent);
        self.crashes += usize::from(kind == LossKind::OtherCrashed);
    }

    /// Returns whether the request may be sent once more in a pool with this number of hosts.
    #[must_use]
    pub(crate) fn allow_repeat(&self, hosts: usize) -> bool {
        self.hosts.len() - self.crashes < hosts
            && self.crashes <= CRASHES_MAX
            && self.silent <= SILENT_LOSSES_MAX
    }

    /// Returns whether the list contains a host.
    #[must_use]
    pub(crate) fn contain(&self, host: &Arc<Endpoint>) -> bool {
        self.hosts.iter().any(|(lost, _)| lost == host)
    }

    /// Returns whether a server must not get the request: the server was connected to one of these hosts before the
    /// loss, so it may end, too. The loss may have the same time as the connection of the server that replaces the lost
    /// one.
    #[must_use]
    pub(crate) fn exclude(&self, host: &Arc<Endpoint>, connected_at: Time) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|(lost, at)| lost == host && connected_at < *at)
    }
}

/// The bytes of a client's request, as long as the client has received nothing of the reply.
#[derive(Debug, Default)]
pub struct RepeatableRequest {
    /// The client.
    client: Option<Token>,
    /// The bytes that the client has sent. Messages that wait for replies to earlier ones are not among them.
    bytes: Vec<u8>,
    /// Whether the request can still be repeated.
    is_open: bool,
    /// The request's number, counted by the server connection.
    first: u64,
    /// The names of prepared statements whose Parse pgweir has answered itself.
    early_names: Vec<Box<[u8]>>,
    /// The client's unnamed statement before the request, if pgweir keeps one for the client.
    unnamed: Option<Box<[u8]>>,
    /// The server's last bytes, if their last message says that the server is about to end.
    held_back: Option<Vec<u8>>,
    /// The hosts whose connection was lost during this request.
    lost_hosts: LostHosts,
}

/// A buffer of up to this many bytes is reused for the next request; a longer one is freed.
const BUFFER_KEPT: usize = 4096;

impl RepeatableRequest {
    /// Begins to keep a new request of this client and drops the former one. `first`: the number of the next request that is
    /// sent to the server; `unnamed`: the client's unnamed statement, if pgweir has a copy; `lost_hosts`: the hosts whose
    /// connection was lost during the request, if the request is repeated.
    pub(crate) fn begin(
        &mut self,
        client: Token,
        first: u64,
        unnamed: Option<&[u8]>,
        lost_hosts: Option<Box<LostHosts>>,
    ) {
        // A request that has waited for a query of pgweir's begins again.
        let goes_on = self.is_open && self.client == Some(client) && self.bytes.is_empty();
        match lost_hosts {
            Some(lost_hosts) => self.lost_hosts = *lost_hosts,
            None if goes_on => {}
            None => self.lost_hosts = LostHosts::default(),
        }
        self.close();
        (self.client, self.first, self.is_open) = (Some(client), first, true);
        self.unnamed = unnamed.map(Into::into);
        self.held_back = None;
    }

    /// Returns the memory that is used, in bytes.
    #[must_use]
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.early_names.iter().map(|name| name.len()).sum();
        let unnamed = self.unnamed.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + self.bytes.capacity() + names + unnamed
    }

    /// Adds bytes that the client has sent. A request of more than `most` bytes is not kept.
    pub(crate) fn add(&mut self, bytes: &[u8], most: usize) {
        if self.is_open && self.bytes.len() + bytes.len() > most {
            self.close();
        }
        if self.is_open {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Removes the last bytes, which belong to messages that wait for replies to earlier ones. [`Self::add`] adds these
    /// bytes again when they are sent.
    pub(crate) fn take_back(&mut self, count: usize) {
        let len = self.bytes.len().saturating_sub(count);
        self.bytes.truncate(len);
    }

    /// Notes a prepared statement whose Parse pgweir has answered itself.
    pub(crate) fn answered_early(&mut self, name: &[u8]) {
        if self.is_open {
            self.early_names.push(name.into());
        }
    }

    /// Notes that the request can't be repeated, for example because the client gets a part of the reply.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_KEPT);
        self.early_names = Vec::new();
        self.unnamed = None;
    }

    /// Holds back the first bytes of the reply if their last message announces the end of the server. Returns whether
    /// the bytes are held back.
    pub(crate) fn holds_back(&mut self, bytes: &[u8]) -> bool {
        let holds = self.is_open && shutdown_message(bytes).is_some();
        if holds {
            self.held_back = Some(bytes.to_vec());
        }
        holds
    }

    /// Takes the bytes that were held back. The server has sent more bytes after them, so the reply has begun.
    #[inline]
    pub(crate) fn take_held_back(&mut self) -> Option<Vec<u8>> {
        let held_back = self.held_back.take();
        if held_back.is_some() {
            self.close();
        }
        held_back
    }

    /// Returns the error message with which the server has announced its end.
    #[must_use]
    pub(crate) fn shutdown_message(&self) -> Option<Report<'_>> {
        shutdown_message(self.held_back.as_deref()?)
    }

    /// Returns whether the buffer has a request of this client that has not been answered. `present`: the number of the
    /// request whose reply comes next.
    #[must_use]
    pub(crate) fn is_unanswered(&self, client: Token, present: u64) -> bool {
        self.is_open
            && self.client == Some(client)
            && !self.bytes.is_empty()
            && present <= self.first
    }

    /// The hosts whose connection was lost during the request.
    pub(crate) fn lost_hosts_mut(&mut self) -> &mut LostHosts {
        &mut self.lost_hosts
    }

    /// Returns the bytes, the names whose Parse pgweir has answered itself, the client's unnamed statement before the
    /// request, and the hosts that have lost the request.
    pub(crate) fn into_parts(self) -> RepeatableParts {
        RepeatableParts {
            bytes: self.bytes,
            early_names: self.early_names,
            unnamed: self.unnamed,
            lost_hosts: self.lost_hosts,
        }
    }
}

/// pgweir searches this many bytes at the end of a read for the message that announces the server's end.
const SHUTDOWN_SEARCH_MAX: usize = 1024;

/// The SQLSTATE field of such a message: `C`, and the class 57P.
const SHUTDOWN_CODE: &[u8] = b"C57P0";

/// Returns the last message in these bytes, if it announces the end of the session. The bytes begin at the beginning of a message.
/// Before such a message, PostgreSQL may send parts of the reply. If another backend has crashed, the message is a notice.
fn shutdown_message(bytes: &[u8]) -> Option<Report<'_>> {
    let tail = &bytes[bytes.len().saturating_sub(SHUTDOWN_SEARCH_MAX)..];
    memmem::find(tail, SHUTDOWN_CODE)?;
    let mut rest = bytes;
    loop {
        let header = Header::parse(rest).ok()??;
        let len = header.message_len();
        match header.tag {
            backend::READY_FOR_QUERY => return None,
            backend::ERROR_RESPONSE | backend::NOTICE_RESPONSE if len == rest.len() => {
                let report = Report::parse(&rest[HEADER_LEN..]).ok()?;
                let code = std::str::from_utf8(report.code).ok()?;
                return ends_sessions(code).then_some(report);
            }
            // The client's request has failed.
            backend::ERROR_RESPONSE => return None,
            _ => rest = rest.get(len..)?,
        }
    }
}

/// Returns whether this SQLSTATE means that the session, or all sessions, were terminated.
pub(crate) fn ends_sessions(code: &str) -> bool {
    matches!(
        code,
        sqlstate::ADMIN_SHUTDOWN | sqlstate::CRASH_SHUTDOWN | sqlstate::CANNOT_CONNECT_NOW
    )
}

/// The parts of a kept request that are needed to send it to another host.
#[derive(Debug)]
pub(crate) struct RepeatableParts {
    /// The client's bytes.
    pub(crate) bytes: Vec<u8>,
    /// The names of prepared statements whose Parse pgweir has answered itself.
    pub(crate) early_names: Vec<Box<[u8]>>,
    /// The client's unnamed statement before the request.
    pub(crate) unnamed: Option<Box<[u8]>>,
    /// The hosts whose connection was lost during the request.
    pub(crate) lost_hosts: LostHosts,
}

#[cfg(test)]
mod tests {
    use pgweir_wire::{MessageWriter, Severity};

    use super::*;

    const CLIENT: Token = Token {
        slot: 1,
        generation: 1,
    };
    const OTHER: Token = Token {
        slot: 1,
        generation: 2,
    };

    fn request(bytes: &[u8], most: usize) -> Box<RepeatableRequest> {
        let mut kept = Box::<RepeatableRequest>::default();
        kept.begin(CLIENT, 7, None, None);
        kept.add(bytes, most);
        kept
    }

    #[test]
    fn a_request_is_kept_until_the_reply_begins() {
        let mut kept = request(b"abc", 5);
        assert!(kept.is_unanswered(CLIENT, 7));
        assert!(
            !kept.is_unanswered(OTHER, 7),
            "the server has another client"
        );
        assert!(!kept.is_unanswered(CLIENT, 8), "its ReadyForQuery has come");
        kept.add(b"de", 5);
        kept.take_back(4);
        assert!(kept.is_unanswered(CLIENT, 7));
        kept.add(b"xy", 5);
        assert_eq!(kept.bytes, b"axy");
        kept.take_back(9);
        assert!(!kept.is_unanswered(CLIENT, 7), "nothing was sent");
        kept.close();
        kept.add(b"z", 5);
        assert!(!kept.is_unanswered(CLIENT, 7));
    }

    #[test]
    fn a_request_that_is_too_long_is_not_kept() {
        let mut kept = request(b"abcdef", 5);
        assert!(!kept.is_open && kept.bytes.is_empty());
        kept.add(b"a", 5);
        assert!(kept.bytes.is_empty());
    }

    #[test]
    fn last_words_are_held_back_with_what_comes_before() {
        let report = |severity: Severity, code: &str| {
            let mut bytes = Vec::new();
            let mut message = MessageWriter::new(&mut bytes);
            match severity {
                Severity::Warning => message.notice(severity, code, "ends"),
                _ => message.error(severity, code, "ends", None, None),
            };
            bytes
        };
        let fatal = report(Severity::Fatal, "57P01");
        let code = |bytes: &[u8]| shutdown_message(bytes).map(|report| report.code.to_vec());
        assert_eq!(code(&fatal), Some(b"57P01".to_vec()));
        let parsed: &[u8] = b"1\0\0\0\x04";
        assert_eq!(code(&[parsed, &fatal].concat()), Some(b"57P01".to_vec()));
        let warning = report(Severity::Warning, "57P02");
        assert_eq!(code(&[parsed, &warning].concat()), Some(b"57P02".to_vec()));
        for other in [
            [&fatal, parsed].concat(),
            [b"Z\0\0\0\x05I".as_slice(), &fatal].concat(),
            [report(Severity::Error, "42601"), fatal.clone()].concat(),
            fatal[..fatal.len() - 1].to_vec(),
            report(Severity::Fatal, "57P05"),
            report(Severity::Fatal, "08P01"),
            parsed.to_vec(),
            Vec::new(),
        ] {
            assert_eq!(code(&other), None, "{other:?}");
        }
        let mut kept = request(b"abc", 9);
        assert!(!kept.holds_back(parsed) && kept.holds_back(&warning));
        assert!(kept.shutdown_message().is_some() && kept.is_unanswered(CLIENT, 7));
        // The server goes on.
        assert_eq!(kept.take_held_back(), Some(warning.clone()));
        assert!(!kept.is_open && !kept.holds_back(&warning));
    }

    #[test]
    fn repeats_are_bounded_and_silence_counts() {
        let [a, b, c] = [1, 2, 3].map(|port| Arc::new(Endpoint::of("h", port)));
        let mut lost = LostHosts::default();
        lost.add(&a, LossKind::Announced, Time(10));
        assert!(lost.allow_repeat(2) && !lost.allow_repeat(1));
        assert!(lost.exclude(&a, Time(9)) && !lost.exclude(&a, Time(10)));
        assert!(lost.contain(&a) && !lost.contain(&b));
        assert!(!lost.exclude(&b, Time(1)));
        lost.add(&b, LossKind::Silent, Time(20));
        assert!(!lost.allow_repeat(2) && lost.allow_repeat(3));
        assert!(lost.exclude(&b, Time(15)) && !lost.exclude(&a, Time(15)));
        lost.add(&c, LossKind::Silent, Time(30));
        assert!(
            !lost.allow_repeat(9),
            "the request may be the reason why servers end"
        );
    }

    #[test]
    fn crashes_of_other_sessions_do_not_count_as_hosts() {
        let host = Arc::new(Endpoint::of("h", 1));
        let mut lost = LostHosts::default();
        lost.add(&host, LossKind::Silent, Time(10));
        for _ in 0..CRASHES_MAX {
            lost.add(&host, LossKind::announced_by("57P02"), Time(20));
            assert!(lost.allow_repeat(2) && !lost.allow_repeat(1));
        }
        lost.add(&host, LossKind::OtherCrashed, Time(30));
        assert!(!lost.allow_repeat(2), "repeats are bounded");
        assert_eq!(LossKind::announced_by("57P01"), LossKind::Announced);
    }
}
