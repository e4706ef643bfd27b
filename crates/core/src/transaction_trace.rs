//! Traces of transactions for OpenTelemetry: the choice of the transactions that are traced, and the data that is
//! recorded of them.
//!
//! No code of this module runs unless an `otlp_endpoint` is set: only then does a client have a [`Recording`]. A worker
//! decides about each transaction when the client gets its server. A `traceparent` in a comment of the first text
//! (sqlcommenter) overrides that decision: the transaction is traced if the application traces it.

use std::cell::Cell;

use memchr::memmem;
use pgweir_config::Settings;

use crate::{Endpoint, Time, WorkerId, pool::PoolKey};

/// The number of bytes at either end of a text that are searched for a comment.
const SEARCHED: usize = 1024;

/// The key of the comment's entry with the parent, and the quote before the value.
const KEY: &[u8] = b"traceparent='";

/// The span of the application that a transaction belongs to (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the whole trace.
    pub trace_id: [u8; 16],
    /// The id of the application's span.
    pub span_id: [u8; 8],
    /// Whether the application's span is recorded.
    pub is_sampled: bool,
}

/// A transaction that was traced from beginning to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionTrace {
    /// The database and user, as the client named them.
    pub client: PoolKey,
    /// The pool's database and user.
    pub pool: PoolKey,
    /// The server, if the client got one.
    pub endpoint: Option<Endpoint>,
    /// The application's span, if the transaction named one.
    pub parent: Option<TraceParent>,
    /// The time at which the client asked for a server.
    pub asked_at: Time,
    /// The time at which the client got its server; `None` if it got none.
    pub lent_at: Option<Time>,
    /// The time at which the server had the client's session state, and got the first request.
    pub relayed_at: Time,
    /// The time at which the transaction ended.
    pub ended_at: Time,
    /// The number of requests: a Query, or messages up to a Sync.
    pub requests: u32,
    /// The microseconds between requests and the ends of their answers.
    pub server_us: u64,
    /// The microseconds of the inspection of the session state after the transaction, if there was one.
    pub inspection_us: Option<u64>,
    /// The SQLSTATE of the last error, if there was one.
    pub sqlstate: Option<[u8; 5]>,
    /// Whether the transaction ended by itself, and not with its client or server.
    pub is_complete: bool,
}

/// The decisions of a worker about which transactions are traced.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The fraction of transactions that are traced without a parent, in millionths (`otlp_trace_ratio`).
    ratio: u64,
    /// The state of the random numbers, which need not be unpredictable.
    random: Cell<u64>,
}

impl Sampler {
    /// Creates the sampler of a worker, if transactions are traced at all.
    pub(crate) fn of(settings: &Settings, worker: WorkerId) -> Option<Self> {
        let is_on = settings.otlp_traces && settings.otlp_endpoint.is_set();
        is_on.then(|| Self::new(settings.otlp_trace_ratio.millionths(), worker))
    }

    fn new(millionths: u32, worker: WorkerId) -> Self {
        Self {
            ratio: u64::from(millionths),
            random: Cell::new(0x9e37_79b9_7f4a_7c15 ^ (worker.index() as u64 + 1)),
        }
    }

    #[inline]
    fn is_chosen(&self) -> bool {
        // xorshift64*
        let mut random = self.random.get();
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        self.random.set(random);
        let mixed = random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        mixed * 1_000_000 < self.ratio << 32
    }

    /// Begins to record a transaction of a client that asked for a server at `asked_at`. Returns the trace of the
    /// client's last transaction if that trace is still to be exported.
    #[inline]
    pub(crate) fn begin(
        &self,
        recording: &mut Option<Box<Recording>>,
        (asked_at, lent_at): (Time, Option<Time>),
    ) -> Option<Box<TransactionTrace>> {
        let recording = recording.get_or_insert_default();
        let last = recording.last.take();
        recording.is_open = true;
        recording.is_sampled = self.is_chosen();
        recording.is_used = false;
        recording.was_searched = false;
        recording.parent = None;
        recording.asked_at = asked_at;
        recording.lent_at = lent_at;
        recording.relayed_at = None;
        recording.requests = 0;
        recording.server_us = 0;
        recording.sqlstate = None;
        recording.inspecting_since = None;
        last
    }

    /// Notes that a request goes to the server of the client, and begins to record a transaction on a server that
    /// the client has kept. Returns the same as [`Self::begin`].
    #[inline]
    pub(crate) fn relay(
        &self,
        recording: &mut Option<Box<Recording>>,
        now: Time,
    ) -> Option<Box<TransactionTrace>> {
        let is_open = recording.as_ref().is_some_and(|own| own.is_open);
        let last = match is_open {
            true => None,
            false => self.begin(recording, (now, Some(now))),
        };
        if let Some(recording) = recording {
            recording.relayed_at.get_or_insert(now);
        }
        last
    }
}

/// The recorded data of a client's present transaction. The client keeps the memory for its next transactions.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Whether the transaction has not ended.
    is_open: bool,
    is_sampled: bool,
    /// Whether the client has sent a message in the transaction, other than Terminate.
    is_used: bool,
    /// Whether a text of the transaction was searched for a parent.
    was_searched: bool,
    parent: Option<TraceParent>,
    asked_at: Time,
    lent_at: Option<Time>,
    relayed_at: Option<Time>,
    requests: u32,
    server_us: u64,
    sqlstate: Option<[u8; 5]>,
    /// A trace that is exported when the inspection after its transaction has ended.
    last: Option<Box<TransactionTrace>>,
    inspecting_since: Option<Time>,
}

impl Recording {
    /// Returns whether the transaction will not be traced: it was not chosen, and its first text names no parent that
    /// is sampled. This is so for most transactions, and pgweir records nothing more of them.
    #[inline]
    pub(crate) fn is_unwanted(&self) -> bool {
        self.was_searched && !self.is_sampled
    }

    /// Ends a transaction that is not traced.
    #[inline]
    pub(crate) fn end_unwanted(&mut self) {
        self.is_open = false;
    }

    /// Notes that the client has sent a message that goes to the server.
    pub(crate) fn note_message(&mut self) {
        self.is_used = true;
    }

    /// Reads the first text of the transaction, which may name a parent.
    #[inline]
    pub(crate) fn read_text(&mut self, text: &[u8]) {
        if !self.is_open || std::mem::replace(&mut self.was_searched, true) {
            return;
        }
        self.parent = parent_in(text);
        if let Some(parent) = self.parent {
            self.is_sampled = parent.is_sampled;
        }
    }

    /// Notes an error that the client gets.
    pub(crate) fn note_error(&mut self, sqlstate: &[u8]) {
        if let Ok(sqlstate) = sqlstate.try_into() {
            self.sqlstate = Some(sqlstate);
        }
    }

    /// Notes a request whose answer took this number of microseconds.
    pub(crate) fn note_answer(&mut self, micros: u64) {
        self.requests = self.requests.saturating_add(1);
        self.server_us = self.server_us.saturating_add(micros);
    }

    /// Notes the start of an inspection of the session state.
    pub(crate) fn inspection_began(&mut self, now: Time) {
        self.inspecting_since.get_or_insert(now);
    }

    /// Notes the end of the inspection. Returns the trace of the transaction before it.
    pub(crate) fn inspection_ended(&mut self, now: Time) -> Option<Box<TransactionTrace>> {
        let since = self.inspecting_since.take();
        let mut last = self.last.take()?;
        last.inspection_us = since.map(|since| now.since(since));
        Some(last)
    }

    /// Keeps a trace until the inspection after its transaction has ended.
    pub(crate) fn keep(&mut self, trace: Option<Box<TransactionTrace>>) {
        self.last = trace;
    }

    /// Returns the trace that was kept.
    pub(crate) fn take_kept(&mut self) -> Option<Box<TransactionTrace>> {
        self.last.take()
    }

    /// Ends the transaction. Returns its trace if the transaction is sampled. A client that only sends Terminate may
    /// get a server, but this does not count as a transaction.
    pub(crate) fn end(
        &mut self,
        client: &PoolKey,
        (pool, endpoint): (&PoolKey, Option<&Endpoint>),
        is_complete: bool,
        now: Time,
    ) -> Option<Box<TransactionTrace>> {
        let is_sampled = std::mem::take(&mut self.is_open) && self.is_sampled;
        let has_content = is_complete || self.is_used || self.sqlstate.is_some();
        (is_sampled && has_content).then(|| {
            Box::new(TransactionTrace {
                client: client.clone(),
                pool: pool.clone(),
                endpoint: endpoint.cloned(),
                parent: self.parent,
                asked_at: self.asked_at,
                lent_at: self.lent_at,
                relayed_at: self.relayed_at.unwrap_or(now),
                ended_at: now,
                requests: self.requests,
                server_us: self.server_us,
                inspection_us: None,
                sqlstate: self.sqlstate,
                is_complete,
            })
        })
    }
}

/// Finds the parent in a comment at the end or at the beginning of a text.
#[inline]
fn parent_in(text: &[u8]) -> Option<TraceParent> {
    let is_closing = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b';' | 0);
    let end = text.iter().rposition(|byte| !is_closing(byte))? + 1;
    let text = text[..end].trim_ascii_start();
    // Most texts have no comment at either end.
    let has_comment = text.ends_with(b"*/") || text.starts_with(b"/*");
    has_comment.then(|| parent_in_comments(text)).flatten()
}

#[cold]
fn parent_in_comments(text: &[u8]) -> Option<TraceParent> {
    let last = &text[text.len().saturating_sub(SEARCHED)..];
    let first = &text[..text.len().min(SEARCHED)];
    let at_end = last.strip_suffix(b"*/").and_then(|rest| {
        let begin = memmem::rfind(rest, b"/*")?;
        parent_in_comment(&rest[begin + 2..])
    });
    at_end.or_else(|| {
        let rest = first.strip_prefix(b"/*")?;
        let end = memmem::find(rest, b"*/")?;
        parent_in_comment(&rest[..end])
    })
}

fn parent_in_comment(comment: &[u8]) -> Option<TraceParent> {
    let at = memmem::find(comment, KEY)?;
    // Another key may end with the same letters.
    let before = at.checked_sub(1).map(|before| comment[before]);
    if before.is_some_and(|byte| byte != b',' && !byte.is_ascii_whitespace()) {
        return None;
    }
    let value = &comment[at + KEY.len()..];
    let end = value.iter().position(|&byte| byte == b'\'')?;
    read_parent(&value[..end])
}

/// Reads a `traceparent`: `VERSION-TRACE-SPAN-FLAGS`, all in hexadecimal digits of lower case.
fn read_parent(value: &[u8]) -> Option<TraceParent> {
    let mut parts = value.split(|&byte| byte == b'-');
    let version: [u8; 1] = hexadecimal(parts.next()?)?;
    let trace_id: [u8; 16] = hexadecimal(parts.next()?)?;
    let span_id: [u8; 8] = hexadecimal(parts.next()?)?;
    let flags: [u8; 1] = hexadecimal(parts.next()?)?;
    // Later versions may append parts.
    let is_known = match version {
        [0] => parts.next().is_none(),
        [version] => version != 0xff,
    };
    let is_valid = is_known && trace_id != [0; 16] && span_id != [0; 8];
    is_valid.then_some(TraceParent {
        trace_id,
        span_id,
        is_sampled: flags[0] & 1 == 1,
    })
}

fn hexadecimal<const LEN: usize>(text: &[u8]) -> Option<[u8; LEN]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * LEN {
        return None;
    }
    let mut bytes = [0; LEN];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01";

    fn found(text: &str) -> Option<bool> {
        parent_in(text.as_bytes()).map(|parent| {
            assert_eq!((parent.trace_id[0], parent.trace_id[15]), (0x5b, 0x6a));
            assert_eq!((parent.span_id[0], parent.span_id[7]), (0xc5, 0xd2));
            parent.is_sampled
        })
    }

    #[test]
    fn parents_are_found_in_comments_at_either_end() {
        let not_sampled = PARENT.replace("-01", "-00");
        for (text, expected) in [
            (format!("SELECT 1 /*traceparent='{PARENT}'*/"), Some(true)),
            (
                format!("SELECT 1 /*traceparent='{PARENT}'*/ ;\n\0"),
                Some(true),
            ),
            (
                format!("/* a='b',traceparent='{PARENT}',z='1' */ SELECT 1"),
                Some(true),
            ),
            (
                format!("SELECT 1 /*traceparent='{not_sampled}'*/"),
                Some(false),
            ),
            (
                format!("SELECT 1 /*a='/*',traceparent='{PARENT}'*/"),
                Some(true),
            ),
            (format!("SELECT 1 /*xtraceparent='{PARENT}'*/"), None),
            (format!("SELECT 1 /*traceparent='{PARENT}*/"), None),
            (format!("SELECT 'traceparent=''{PARENT}'''"), None),
            (format!("SELECT 1 /*traceparent='{PARENT}'*/ + 1"), None),
            (format!("SELECT 1 -- traceparent='{PARENT}'"), None),
            ("SELECT 1".to_owned(), None),
            (String::new(), None),
            ("*/".to_owned(), None),
            ("/*".to_owned(), None),
        ] {
            assert_eq!(found(&text), expected, "{text}");
        }
    }

    #[test]
    fn malformed_parents_are_ignored() {
        let with = |version: &str, rest: &str| PARENT.replacen("00", version, 1) + rest;
        for (value, expected) in [
            (with("00", ""), true),
            (with("01", "-later"), true),
            (with("00", "-later"), false),
            (with("ff", ""), false),
            (PARENT.to_uppercase(), false),
            (PARENT[..54].to_owned(), false),
            (
                PARENT.replace("c532cb4098ac3dd2", "0000000000000000"),
                false,
            ),
            (
                PARENT.replace("5bd66ef5095369c7b0d1f8f4bd33716a", &"0".repeat(32)),
                false,
            ),
            (PARENT.replace('5', "g"), false),
            (String::new(), false),
            ("-".repeat(60), false),
        ] {
            assert_eq!(read_parent(value.as_bytes()).is_some(), expected, "{value}");
        }
    }

    #[test]
    fn the_ratio_holds_and_parents_override_it() {
        assert!(Sampler::of(&Settings::default(), WorkerId(0)).is_none());
        let cases = [
            (0, 0..=0),
            (10_000, 800..=1_200),
            (1_000_000, 100_000..=100_000),
        ];
        for (millionths, expected) in cases {
            let sampler = Sampler::new(millionths, WorkerId(3));
            let chosen = (0..100_000).filter(|_| sampler.is_chosen()).count();
            assert!(expected.contains(&chosen), "{millionths}: {chosen}");
        }
        let sampler = Sampler::new(0, WorkerId(0));
        let key = || PoolKey {
            database: "app".into(),
            user: "ann".into(),
        };
        let mut recording = None;
        assert!(
            sampler
                .begin(&mut recording, (Time(10), Some(Time(30))))
                .is_none()
        );
        assert!(sampler.relay(&mut recording, Time(40)).is_none());
        let recording = recording.as_mut().unwrap();
        recording.read_text(format!("BEGIN /*traceparent='{PARENT}'*/").as_bytes());
        recording.read_text(b"SELECT 1");
        recording.note_answer(7);
        let end =
            |recording: &mut Recording, at| recording.end(&key(), (&key(), None), true, Time(at));
        let trace = end(recording, 50).unwrap();
        assert_eq!((trace.asked_at, trace.lent_at), (Time(10), Some(Time(30))));
        assert_eq!((trace.relayed_at, trace.ended_at), (Time(40), Time(50)));
        assert_eq!((trace.requests, trace.server_us), (1, 7));
        assert!(trace.parent.is_some());
        assert!(end(recording, 60).is_none(), "it has ended");
        recording.keep(Some(trace));
        recording.inspection_began(Time(70));
        let trace = recording.inspection_ended(Time(75)).unwrap();
        assert_eq!(trace.inspection_us, Some(5));
    }
}
