//! Splits the bytes of a server into messages that are forwarded unread and messages that pgweir inspects.

use std::borrow::Cow;

use pgweir_wire::{BadLength, HEADER_LEN, Header, tag::backend};

use crate::{base::progress::Place, statement_statistics::rows_in_tag};

/// The longest message that is inspected as a whole. A longer error or parameter is forwarded unread.
pub(super) const INSPECT_MAX: usize = 64 * 1024;
/// The longest description that pgweir reads. PostgreSQL's have at most 65,535 parameters, or 1,664 columns with names
/// of 63 bytes, each of which may take four bytes in the client's encoding: 440 kB.
const DESCRIPTION_MAX: usize = 512 * 1024;
/// PostgreSQL makes no message above 1 GB (`MaxAllocSize`): a greater length is an error.
const BODY_MAX: u32 = 0x3fff_ffff;

/// The caller's treatment of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Pass these bytes on unchanged.
    Pass {
        /// The position in the input at which the bytes begin.
        start: usize,
        /// The position at which the bytes end.
        end: usize,
    },
    /// Like `Pass`, for bytes that were stored: see [`Downstream::held`].
    PassHeld,
    /// Inspect one whole message in the input.
    Inspect {
        /// The position in the input at which the message begins.
        start: usize,
        /// The position at which the message ends.
        end: usize,
    },
    /// Like `Inspect`, for a message that was stored until it was complete: see [`Downstream::held`].
    InspectHeld,
    /// A message of this kind begins that is too long to be inspected.
    Overlong(u8),
}

/// Why the server's bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A message has an invalid length.
    Length(BadLength),
    /// The protocol does not allow this message here.
    Unexpected(u8),
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(error) => error.fmt(f),
            Self::Unexpected(tag) => {
                write!(f, "message of type '{}' out of place", tag.escape_ascii())
            }
        }
    }
}

/// The treatment of the ends of a client's statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The ends are not noted.
    Ignored,
    /// The rows of each command are counted: see [`Downstream::take_rows`].
    Counted,
    /// The end of each statement is inspected.
    Inspected,
}

/// The messages that are expected from the server, and those to be inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Whether the server has a request to answer. If not, it may send asynchronous messages only.
    pub(crate) answers: bool,
    /// Whether ParseComplete and CloseComplete are inspected.
    pub(crate) marks: bool,
    /// Whether descriptions are inspected.
    pub(crate) describes: bool,
    /// The longest row that is inspected, in bytes with the header; 0 if no rows are.
    pub(crate) row_max: usize,
    /// Whether notices are inspected, and tags of commands that change the session, commit or roll back.
    pub(crate) tags: bool,
    /// The treatment of the ends of statements.
    pub(crate) ends: Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pass,
    /// Count the rows, and pass the message on.
    Count,
    Look,
    Overlong,
    Unexpected,
}

/// The position in a server's stream of messages.
#[derive(Debug, Default)]
pub struct Downstream {
    /// The number of bytes of the present message's body that are still to be forwarded.
    body_left: u32,
    /// An incomplete header, or an incomplete message that is to be inspected.
    held: Vec<u8>,
    /// Whether `held` was returned to the caller, and is emptied at the next step.
    held_done: bool,
    /// Whether the message that begins in `held` is too long to be inspected.
    overlong: Option<u8>,
    /// The rows of the commands that were completed since they were last taken.
    rows: u64,
}

impl Downstream {
    /// Returns the bytes of the buffer for messages that have not arrived completely.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.held.capacity()
    }

    /// Returns the next step from `*at` on, and advances `*at`; `None` at the end of the bytes.
    ///
    /// # Errors The server has violated the protocol.
    #[inline]
    pub fn next(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        expected: Expected,
    ) -> Result<Option<Step>, Violation> {
        if self.held_done {
            self.held.clear();
            self.held.shrink_to(4096);
            self.held_done = false;
            if let Some(tag) = self.overlong.take() {
                return Ok(Some(Step::Overlong(tag)));
            }
        }
        if !self.held.is_empty() {
            return self.next_held(bytes, at, expected);
        }
        let start = *at;
        *at += (bytes.len() - *at).min(self.body_left as usize);
        self.body_left -= (*at - start) as u32;
        while let Some(header) = parse(&bytes[*at..])? {
            match kind(header, expected) {
                Kind::Pass => {
                    let taken = (bytes.len() - *at).min(header.message_len());
                    *at += taken;
                    self.body_left = (header.message_len() - taken) as u32;
                }
                Kind::Count => {
                    let Some(message) = bytes[*at..].get(..header.message_len()) else {
                        break;
                    };
                    self.rows = self.rows.wrapping_add(rows_in_tag(&message[HEADER_LEN..]));
                    *at += message.len();
                }
                Kind::Look | Kind::Overlong if start < *at => {
                    return Ok(Some(Step::Pass { start, end: *at }));
                }
                Kind::Overlong => {
                    // The whole message is forwarded.
                    self.body_left = header.message_len() as u32;
                    return Ok(Some(Step::Overlong(header.tag)));
                }
                Kind::Look if bytes.len() - *at < header.message_len() => break,
                Kind::Look => {
                    *at += header.message_len();
                    return Ok(Some(Step::Inspect { start, end: *at }));
                }
                Kind::Unexpected => return Err(Violation::Unexpected(header.tag)),
            }
        }
        let end = *at;
        // An incomplete header, or an incomplete message that is to be inspected.
        self.held.extend_from_slice(&bytes[end..]);
        *at = bytes.len();
        Ok((start < end).then_some(Step::Pass { start, end }))
    }

    #[cold]
    fn next_held(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        expected: Expected,
    ) -> Result<Option<Step>, Violation> {
        self.take(HEADER_LEN, bytes, at);
        let Some(header) = parse(&self.held)? else {
            return Ok(None);
        };
        match kind(header, expected) {
            Kind::Unexpected => Err(Violation::Unexpected(header.tag)),
            kind @ (Kind::Pass | Kind::Overlong) => {
                self.body_left = (header.message_len() - self.held.len()) as u32;
                self.held_done = true;
                self.overlong = (kind == Kind::Overlong).then_some(header.tag);
                Ok(Some(Step::PassHeld))
            }
            Kind::Look | Kind::Count => {
                self.take(header.message_len(), bytes, at);
                if self.held.len() < header.message_len() {
                    return Ok(None);
                }
                self.held_done = true;
                Ok(Some(Step::InspectHeld))
            }
        }
    }

    /// Moves bytes into `held` until it has `len` bytes.
    fn take(&mut self, len: usize, bytes: &[u8], at: &mut usize) {
        let missing = len.saturating_sub(self.held.len());
        let end = bytes.len().min(*at + missing);
        self.held.extend_from_slice(&bytes[*at..end]);
        *at = end;
    }

    /// Takes the rows of the commands whose ends were counted.
    #[inline]
    pub fn take_rows(&mut self) -> u64 {
        std::mem::take(&mut self.rows)
    }

    /// Returns the next message that is inspected, on a connection that no client uses, and skips all others. `answers`
    /// and `rows` mean the same as in [`Expected`]; with `rows`, notices are inspected, too. `None` when all bytes are
    /// used up.
    ///
    /// # Errors The server has violated the protocol.
    pub fn next_inspected<'b>(
        &mut self,
        bytes: &'b [u8],
        at: &mut usize,
        (answers, rows): (bool, bool),
    ) -> Result<Option<Cow<'b, [u8]>>, Violation> {
        let expected = Expected {
            answers,
            marks: false,
            describes: false,
            row_max: if rows { INSPECT_MAX } else { 0 },
            tags: rows,
            ends: Ends::Ignored,
        };
        loop {
            match self.next(bytes, at, expected)? {
                Some(Step::Inspect { start, end }) => return Ok(Some(bytes[start..end].into())),
                Some(Step::InspectHeld) => return Ok(Some(self.held.clone().into())),
                Some(Step::Pass { .. } | Step::PassHeld | Step::Overlong(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the bytes of the last `PassHeld` or `InspectHeld`.
    #[must_use]
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Returns whether the stream is between two messages, so that all forwarded messages are complete.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.body_left == 0
    }

    /// Returns whether the stream is between two messages, and no byte of the next one has arrived.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.body_left == 0 && (self.held.is_empty() || self.held_done)
    }

    /// Returns the place within the message that has not arrived as a whole.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        // Each byte that arrives changes the place.
        (!self.is_quiet()).then(|| Place {
            message: self.body_left.wrapping_sub(self.held.len() as u32),
            missing: 0,
        })
    }
}

#[inline]
fn parse(bytes: &[u8]) -> Result<Option<Header>, Violation> {
    match Header::parse(bytes).map_err(Violation::Length)? {
        Some(Header { tag, body_len }) if body_len > BODY_MAX => {
            Err(Violation::Length(BadLength {
                tag,
                length: body_len as i32,
            }))
        }
        header => Ok(header),
    }
}

#[inline]
fn kind(header: Header, expected: Expected) -> Kind {
    match header.tag {
        backend::NOTICE_RESPONSE if !expected.tags || header.message_len() > INSPECT_MAX => {
            Kind::Pass
        }
        backend::NOTICE_RESPONSE => Kind::Look,
        backend::ERROR_RESPONSE if header.message_len() > INSPECT_MAX => Kind::Overlong,
        backend::PARAMETER_STATUS | backend::NOTIFICATION_RESPONSE
            if header.message_len() > INSPECT_MAX =>
        {
            Kind::Pass
        }
        backend::PARAMETER_STATUS | backend::ERROR_RESPONSE | backend::NOTIFICATION_RESPONSE => {
            Kind::Look
        }
        _ if !expected.answers => Kind::Unexpected,
        backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE if expected.marks => {
            match header.body_len {
                0 => Kind::Look,
                _ => Kind::Unexpected,
            }
        }
        backend::PARAMETER_DESCRIPTION | backend::ROW_DESCRIPTION | backend::NO_DATA
            if expected.describes =>
        {
            match header.message_len() <= DESCRIPTION_MAX {
                true => Kind::Look,
                false => Kind::Unexpected,
            }
        }
        backend::COMMAND_COMPLETE
            if expected.ends == Ends::Inspected && header.message_len() <= INSPECT_MAX =>
        {
            Kind::Look
        }
        backend::EMPTY_QUERY_RESPONSE | backend::PORTAL_SUSPENDED
            if expected.ends == Ends::Inspected && header.body_len == 0 =>
        {
            Kind::Look
        }
        backend::DATA_ROW if expected.row_max > 0 => match header.message_len() <= expected.row_max
        {
            true => Kind::Look,
            false => Kind::Overlong,
        },
        // Only tags with the length of `DISCARD ALL` and `DEALLOCATE ALL` are inspected.
        backend::COMMAND_COMPLETE if matches!(header.body_len, 12 | 15) => Kind::Look,
        // Only tags with the length of `SET`, `RESET`, `COMMIT`, `UNLISTEN`, `ROLLBACK` or `DISCARD SEQUENCES` are
        // inspected.
        backend::COMMAND_COMPLETE
            if expected.tags && matches!(header.body_len, 4 | 6 | 7 | 9 | 11 | 18) =>
        {
            Kind::Look
        }
        backend::COMMAND_COMPLETE
            if expected.ends == Ends::Counted && header.message_len() <= INSPECT_MAX =>
        {
            Kind::Count
        }
        backend::DATA_ROW
        | backend::COPY_DATA
        | backend::COMMAND_COMPLETE
        | backend::ROW_DESCRIPTION
        | backend::PARSE_COMPLETE
        | backend::BIND_COMPLETE
        | backend::CLOSE_COMPLETE
        | backend::NO_DATA
        | backend::PARAMETER_DESCRIPTION
        | backend::EMPTY_QUERY_RESPONSE
        | backend::PORTAL_SUSPENDED
        | backend::COPY_DONE
        | backend::COPY_OUT_RESPONSE
        | backend::FUNCTION_CALL_RESPONSE => Kind::Pass,
        backend::READY_FOR_QUERY if header.body_len == 1 => Kind::Look,
        backend::COPY_IN_RESPONSE | backend::COPY_BOTH_RESPONSE => Kind::Look,
        _ => Kind::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgweir_wire::{MessageWriter, Severity};

    const ANY: Expected = Expected {
        answers: true,
        marks: false,
        describes: false,
        row_max: 0,
        tags: false,
        ends: Ends::Ignored,
    };
    const NONE: Expected = Expected {
        answers: false,
        marks: false,
        describes: false,
        row_max: 0,
        tags: false,
        ends: Ends::Ignored,
    };

    /// Cuts `bytes` at `cuts`. Returns the bytes that were passed on, and the messages that were inspected.
    fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut stream, mut passed, mut looked) = (Downstream::default(), Vec::new(), Vec::new());
        let mut from = 0;
        for &to in cuts.iter().chain([&bytes.len()]) {
            let (chunk, mut at) = (&bytes[from..to], 0);
            while let Some(step) = stream.next(chunk, &mut at, ANY).unwrap() {
                match step {
                    Step::Pass { start, end } => passed.extend_from_slice(&chunk[start..end]),
                    Step::PassHeld => passed.extend_from_slice(stream.held()),
                    Step::Inspect { start, end } => {
                        passed.extend_from_slice(&chunk[start..end]);
                        looked.push(chunk[start..end].to_vec());
                    }
                    Step::InspectHeld => {
                        passed.extend_from_slice(stream.held());
                        looked.push(stream.held().to_vec());
                    }
                    Step::Overlong(tag) => looked.push(vec![tag]),
                }
            }
            from = to;
        }
        assert!(stream.is_quiet());
        (passed, looked)
    }

    #[test]
    fn every_cut_gives_the_same() {
        let mut bytes = Vec::new();
        MessageWriter::new(&mut bytes)
            .data_row([Some(&b"hello"[..])].into_iter())
            .parameter_status(b"TimeZone", b"UTC")
            .data_row([None].into_iter())
            .error(Severity::Error, "42601", "no", None, None)
            .ready_for_query(b'I');
        let whole = run(&bytes, &[]);
        assert_eq!(whole.0, bytes);
        assert_eq!(whole.1.len(), 3);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                assert_eq!(
                    run(&bytes, &[first, second]),
                    whole,
                    "cut at {first} and {second}"
                );
            }
        }
    }

    #[test]
    fn rows_are_counted_at_every_cut() {
        let expected = Expected {
            ends: Ends::Counted,
            ..ANY
        };
        let mut bytes = Vec::new();
        for tag in ["INSERT 0 5", "SELECT 12", "CREATE TABLE"] {
            bytes.push(b'C');
            bytes.extend_from_slice(&(tag.len() as u32 + 5).to_be_bytes());
            bytes.extend_from_slice(tag.as_bytes());
            bytes.push(0);
        }
        MessageWriter::new(&mut bytes).ready_for_query(b'I');
        for cut in 0..=bytes.len() {
            let (mut stream, mut rows, mut tags) = (Downstream::default(), 0, 0);
            for chunk in [&bytes[..cut], &bytes[cut..]] {
                let mut at = 0;
                while let Some(step) = stream.next(chunk, &mut at, expected).unwrap() {
                    // The tag of a message that arrives in two pieces is for the caller to read.
                    if step == Step::InspectHeld && stream.held()[0] == b'C' {
                        rows += rows_in_tag(&stream.held()[HEADER_LEN..]);
                        tags += 1;
                    }
                }
            }
            assert_eq!(rows + stream.take_rows(), 17, "cut at {cut}");
            assert!(tags <= 1 && stream.take_rows() == 0, "cut at {cut}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_an_error() {
        let mut bytes = Vec::new();
        let long = "x".repeat(INSPECT_MAX);
        MessageWriter::new(&mut bytes)
            .data_row([None].into_iter())
            .error(Severity::Error, "42601", &long, None, None)
            .ready_for_query(b'I');
        let whole = run(&bytes, &[]);
        assert_eq!(whole.0, bytes);
        assert_eq!(whole.1[0], [b'E']);
        for cut in (0..20).chain(INSPECT_MAX..bytes.len()) {
            assert_eq!(run(&bytes, &[cut]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn violations() {
        let check = |bytes: &[u8], expect| {
            assert_eq!(
                Downstream::default().next(bytes, &mut 0, ANY),
                Err(expect),
                "{bytes:?}"
            );
        };
        check(b"Z\0\0\0\x06II", Violation::Unexpected(b'Z'));
        check(
            b"Z\0\0\0\x03",
            Violation::Length(BadLength {
                tag: b'Z',
                length: 3,
            }),
        );
        check(b"R\0\0\0\x08\0\0\0\0", Violation::Unexpected(b'R'));
        check(
            b"HTTP/1.1 400",
            Violation::Length(BadLength {
                tag: b'H',
                length: 0x5454_502b,
            }),
        );
    }

    #[test]
    fn unrequested_messages() {
        let check = |bytes: &[u8], allowed| {
            let outcome = Downstream::default().next(bytes, &mut 0, NONE);
            assert_eq!(outcome.is_ok(), allowed, "{bytes:?}");
        };
        check(b"N\0\0\0\x05\0", true);
        check(b"A\0\0\0\x05\0", true);
        check(b"S\0\0\0\x08a\0b\0", true);
        check(b"E\0\0\0\x05\0", true);
        check(b"D\0\0\0\x06\0\0", false);
        check(b"Z\0\0\0\x05I", false);
        check(b"G\0\0\0\x07\0\0\0", false);
    }

    #[test]
    fn a_huge_message_is_passed_unread() {
        let mut stream = Downstream::default();
        let header = b"S\x3f\xff\xff\xff";
        assert_eq!(
            stream.next(header, &mut 0, ANY),
            Ok(Some(Step::Pass { start: 0, end: 5 }))
        );
        assert!(!stream.is_at_boundary());
    }
}
