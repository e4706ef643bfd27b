//! The queue of a server's outstanding replies.
//!
//! Only ReadyForQuery ends a request in all cases, so the queue has one entry for each message that the server answers
//! with ReadyForQuery: a client's Query, FunctionCall and Sync, and pgweir's own queries. If pgweir handles prepared
//! statements, a request also has a mark for each Parse and Close. There are two reasons: the client does not get some
//! of their replies, and pgweir undoes their changes if the server skips them. Marks are in a separate queue, and a
//! request has the number at which its marks end.
//!
//! A client may send a million messages before the first reply. So no function that is called for each message walks
//! through either queue.

mod copy_ends;
mod copy_in;
mod countdown;
mod describing;
mod marks;
mod uncertainty;

use std::collections::VecDeque;

use pgweir_wire::tag::frontend;

use self::{copy_ends::CopyEnds, countdown::Countdown, marks::Marks};
use super::{
    mark::{Change, Mark, MarkKind},
    request::{InternalQuery, Request},
};

/// The queue of outstanding replies.
///
/// COPY FROM STDIN is special: while a server reads COPY data, it ignores Sync (PostgreSQL's manual, "COPY
/// Operations"), and in the extended protocol libpq sends one Sync right after Execute, and another after CopyDone. So
/// at CopyInResponse the Syncs that were sent before the end of the data are removed from the queue.
#[derive(Debug, Default)]
pub struct Replies {
    requests: VecDeque<Sent>,
    /// The number of requests that have left the queue, and so the number of the first request in the queue.
    answered: u64,
    /// The number of requests in the queue that end with a ReadyForQuery for the client.
    owed_to_client: usize,
    marks: Marks,
    /// The COPY commands under way.
    copy: CopyReplies,
    /// The messages since the last Sync or mark.
    since_mark: SinceMark,
    /// Whether one of them has failed, so that the server skips all messages up to the next Sync.
    skipping: bool,
    /// Whether a Describe of a portal without a mark was sent since the last Sync. Its reply would be mistaken for the
    /// reply to a later Describe of a portal.
    has_unmarked_portal: bool,
    /// ParseCompletes that pgweir sends in the server's place, before the server's next reply.
    early: u32,
    /// What is uncertain about the server's replies.
    certainty: Certainty,
    /// Whether the client's next messages wait until this is certain.
    awaited: bool,
    /// Whether pgweir has stopped reading from the client, since too many replies are outstanding.
    is_full: bool,
}

/// The messages of the extended protocol since the last Sync or mark.
#[derive(Debug, Default)]
struct SinceMark {
    /// Whether messages of the extended protocol arrived after the last Sync.
    unsynced: bool,
    /// Whether a Bind, Describe or Execute was sent to the server after the last mark or Sync.
    unmarked: bool,
    /// Whether messages of the extended protocol were sent to the server after the last Sync.
    asked: bool,
    /// Whether the server has answered all messages after the last Sync: the client's next message has waited for
    /// these answers.
    is_answered: bool,
}

/// The COPY commands under way.
#[derive(Debug, Default)]
struct CopyReplies {
    ends: CopyEnds,
    /// Whether the server reads COPY data.
    reads_data: bool,
    /// Syncs that the server ignores, if this COPY succeeds.
    ignored_syncs: u32,
}

/// What is uncertain about the server's replies, and about the session after them.
#[derive(Debug, Default)]
struct Certainty {
    /// Whether it is uncertain that all replies have arrived.
    is_uncertain: bool,
    /// Whether, while that is uncertain, the server has sent a reply since the last ReadyForQuery.
    answering: bool,
    /// Until when it is uncertain which statement names exist: a text that drops all of them may fail.
    dropping: Countdown,
    /// Until when startup values of the client may be missing, since a text resets them.
    restoring: Countdown,
}

/// The kind of message that the server's next reply may answer, before the end of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Front {
    /// Whether it may answer a message about a statement.
    pub is_mark: bool,
    /// Whether it may answer a Describe whose result pgweir notes.
    pub is_describe: bool,
}

/// A request that was sent completely.
#[derive(Debug)]
struct Sent {
    request: Request,
    /// Its marks end before the mark with this number.
    marks_end: u64,
}

impl Replies {
    /// Returns the bytes that the queues take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<Sent>() + self.marks.bytes()
    }

    /// Releases unused memory if no reply is outstanding.
    pub fn shrink(&mut self) {
        if self.requests.is_empty() {
            self.requests = VecDeque::new();
        }
        self.marks.shrink();
    }

    /// Notes a message of the client that goes to the server.
    #[inline]
    pub fn client_sent(&mut self, tag: u8) {
        match tag {
            frontend::QUERY | frontend::FUNCTION_CALL if self.skipping => {}
            frontend::QUERY | frontend::FUNCTION_CALL => self.simple(),
            // The server ignores this Sync, unless the COPY has failed and the error has not arrived yet.
            frontend::SYNC if self.copy.reads_data => self.copy.ignored_syncs += 1,
            frontend::SYNC => {
                self.end_segment();
                self.request_sent(Request::Sync);
            }
            frontend::COPY_DONE | frontend::COPY_FAIL if self.copy.reads_data => {
                self.copy.reads_data = false
            }
            frontend::COPY_DONE | frontend::COPY_FAIL
                if !self.is_queue_empty() || self.since_mark.unsynced =>
            {
                self.copy.ends.push(self.next_request(), self.marks.next());
            }
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                self.since_mark.unmarked |= !matches!(tag, frontend::PARSE | frontend::CLOSE);
                // In the middle of COPY data these messages are an error; pgweir can't predict the server's reply.
                self.certainty.is_uncertain |= self.copy.reads_data;
                self.note_extended_message();
            }
            _ => {}
        }
    }

    /// Notes a Parse or Close that pgweir or the client sends to the server.
    #[inline]
    pub fn mark_sent(&mut self, mut mark: Mark) {
        self.note_extended_message();
        mark.follows_unmarked = std::mem::take(&mut self.since_mark.unmarked);
        self.marks.push(mark);
    }

    /// Notes that a message of the extended protocol is sent to the server.
    #[inline]
    fn note_extended_message(&mut self) {
        self.since_mark.unsynced = true;
        self.since_mark.asked = true;
        self.since_mark.is_answered = false;
    }

    /// Returns whether the next reply may answer a check that pgweir sent.
    #[must_use]
    #[inline]
    fn is_checking(&self) -> bool {
        self.awaited && self.marks.are_awaited()
    }

    /// Returns whether the meaning of the client's names depends on outstanding replies: an earlier request may fail.
    #[must_use]
    #[inline]
    pub fn is_unsure(&self) -> bool {
        self.marks.are_unsure() || self.certainty.dropping.is_pending()
    }

    /// Notes that a text is sent to the server that drops all statements.
    pub fn statements_dropped(&mut self) {
        self.certainty.dropping.begin();
    }

    /// Makes the statement names uncertain until all requests that were sent are answered.
    pub fn wait_for_all(&mut self) {
        self.certainty.dropping.set(self.requests.len());
    }

    /// Makes the client's next messages wait until the names are certain.
    pub fn wait(&mut self) {
        self.awaited = true;
    }

    /// Ends the wait: the client's messages are sent, or inspected again.
    #[inline]
    pub fn wait_no_longer(&mut self) {
        self.awaited = false;
        self.is_full = false;
    }

    /// Returns whether the client's next messages wait.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Returns whether the wait of the client's next messages has just ended. Returns `true` only once for each wait.
    #[inline]
    pub fn take_awaited(&mut self) -> bool {
        let done = self.awaited
            && !self.is_full
            && !self.is_unsure()
            && !self.is_checking()
            && !self.holds_back();
        self.awaited &= !done;
        done
    }

    /// Notes a Parse of the client that pgweir answers without the server.
    pub fn answered_early(&mut self) {
        self.since_mark.unsynced = true;
        self.early += 1;
    }

    /// Returns whether the next message would be answered first: no reply is outstanding.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.is_queue_empty()
            && !self.since_mark.asked
            && !self.copy.reads_data
            && !self.certainty.is_uncertain
    }

    /// Returns whether the server skips the messages that are sent now.
    #[must_use]
    #[inline]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Takes the number of replies that pgweir must send before the server's next message.
    #[inline]
    pub fn take_early(&mut self) -> u32 {
        std::mem::take(&mut self.early)
    }

    /// Notes that the client has disconnected: the replies that only the client waited for are no longer expected.
    pub fn client_left(&mut self) {
        self.early = 0;
        self.wait_no_longer();
        self.certainty.dropping.forget_begun();
        self.certainty.restoring.forget_begun();
        self.since_mark.unsynced &= self.since_mark.asked;
    }

    fn end_segment(&mut self) {
        self.since_mark = SinceMark::default();
        self.skipping = false;
        self.has_unmarked_portal = false;
        self.marks.end_request();
    }

    fn simple(&mut self) {
        // In COPY data a Query is an error.
        self.certainty.is_uncertain |= self.copy.reads_data;
        self.end_segment();
        self.request_sent(Request::Simple);
    }

    fn request_sent(&mut self, request: Request) {
        self.push(request);
        if !Countdown::are_over([self.certainty.dropping, self.certainty.restoring]) {
            self.certainty.dropping.request_sent(self.requests.len());
            self.certainty.restoring.request_sent(self.requests.len());
        }
    }

    fn push(&mut self, request: Request) {
        self.owed_to_client += usize::from(request.is_owed_to_client());
        self.requests.push_back(Sent {
            request,
            marks_end: self.marks.next(),
        });
    }

    fn pop(&mut self) -> Option<Request> {
        let sent = self.requests.pop_front()?;
        self.answered += 1;
        self.owed_to_client -= usize::from(sent.request.is_owed_to_client());
        self.marks.forget(sent.marks_end);
        Some(sent.request)
    }

    /// Returns the number of the request whose replies arrive now, or of the next one if there is none.
    #[inline]
    pub fn present_request(&self) -> u64 {
        self.answered
    }

    /// Returns the number of the next request that is sent.
    #[inline]
    pub fn next_request(&self) -> u64 {
        self.answered + self.requests.len() as u64
    }

    #[inline]
    fn is_queue_empty(&self) -> bool {
        self.requests.is_empty() && self.marks.is_empty() && self.copy.ends.is_empty()
    }

    /// Returns the number at which the marks of the present request end.
    #[inline]
    fn present_marks_end(&self) -> u64 {
        let present = self.requests.front();
        present.map_or(self.marks.next(), |sent| sent.marks_end)
    }

    /// Notes that this many requests have left the queue.
    #[inline]
    fn requests_gone(&mut self, count: usize) {
        if !Countdown::are_over([self.certainty.dropping, self.certainty.restoring]) {
            self.certainty.dropping.requests_gone(count);
            self.certainty.restoring.requests_gone(count);
        }
    }

    /// Notes an internal query.
    pub fn internal_query_sent(&mut self, own: InternalQuery) {
        self.push(Request::Internal(own));
    }

    /// Notes a Sync that pgweir adds after messages that were noted before.
    pub fn internal_sync_sent(&mut self, own: InternalQuery) {
        self.end_segment();
        self.internal_query_sent(own);
    }

    /// Notes that the server reported an error: the server reads no more COPY data, and in the extended protocol it
    /// skips all messages up to the next Sync. Returns the marks of what failed or will be skipped, in the order in
    /// which they were sent.
    #[must_use = "their changes have to be undone"]
    pub fn failed(&mut self) -> Vec<Mark> {
        // If the request has failed before the server read any data, the server will answer the Syncs that pgweir
        // expected it to ignore.
        self.certainty.is_uncertain |= self.copy.ignored_syncs > 0;
        self.copy.reads_data = false;
        let request = self.current();
        self.skipping |= request.is_none() && self.since_mark.asked;
        self.take_marks()
    }

    /// Takes the marks before the end of the present request.
    #[must_use = "their changes have to be undone"]
    pub fn take_marks(&mut self) -> Vec<Mark> {
        let end = self.present_marks_end();
        if self.marks.first() >= end {
            return Vec::new();
        }
        let taken = self.marks.take(end);
        self.copy.ends.forget(self.answered, end);
        taken
    }

    /// Takes all marks, since the server connection is lost.
    #[must_use = "their changes have to be undone"]
    pub fn take_all_marks(&mut self) -> Vec<Mark> {
        self.marks.take(self.marks.next())
    }

    /// Returns the marks that are not answered yet. There may be many, so no caller may use this for each message.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Returns whether a Parse of the unnamed statement was sent and is not answered yet.
    #[must_use]
    pub fn make_unnamed(&self) -> bool {
        self.marks.make_unnamed()
    }

    /// Notes that the request that is being sent resets startup values of the client.
    pub fn startup_values_taken(&mut self) {
        self.certainty.restoring.begin();
    }

    /// Returns whether the client's next messages wait until pgweir has restored startup values that an earlier request
    /// has reset. COPY data does not wait, since it belongs to that request.
    #[must_use]
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.certainty.restoring.is_pending() && !self.copy.reads_data
    }

    /// Notes that all statements were dropped, so that no change of them has to be undone.
    pub fn statements_gone(&mut self) {
        self.marks.statements_gone();
    }

    /// Returns the mark that the next reply may answer.
    #[must_use]
    #[inline]
    pub fn front_mark(&self) -> Option<&Mark> {
        self.marks.front(self.present_marks_end())
    }

    /// Returns the kind of message that the next reply may answer.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Front {
        match self.front_mark() {
            Some(mark) => Front {
                is_mark: true,
                is_describe: mark.is_describe(),
            },
            None => Front::default(),
        }
    }

    /// Returns the mark that a ParseComplete or CloseComplete answers; `None` if that mark is not the next one.
    #[inline]
    pub fn completed(&mut self, kind: MarkKind) -> Option<Mark> {
        let mark = self.front_mark()?;
        let is_duplicate = || matches!(mark.change(), Some(Change::Duplicate(..)));
        if mark.kind != kind && !(kind == MarkKind::Parse && is_duplicate()) {
            return None;
        }
        let mark = self.take_front_mark();
        self.since_mark.is_answered = mark.as_ref().is_some_and(Mark::awaits_earlier);
        mark
    }

    /// Removes the first mark, which is answered.
    fn take_front_mark(&mut self) -> Option<Mark> {
        // An end of COPY data that was sent before this mark has ended no COPY.
        self.copy.ends.forget(self.answered, self.marks.first());
        self.marks.pop()
    }

    /// Returns the request that a ReadyForQuery ends; `None` if no reply was outstanding.
    #[inline]
    pub fn ready(&mut self) -> Option<Request> {
        // An error that was too long to be inspected may have ended the COPY.
        self.copy.reads_data = false;
        if self.owes_client_first() {
            return Some(Request::Sync);
        }
        self.certainty.answering = false;
        if let Some(request) = self.pop() {
            self.requests_gone(1);
            self.copy.ignored_syncs = 0;
            self.copy.ends.forget(self.answered, self.marks.first());
            return Some(request);
        }
        self.marks.forget(self.marks.next());
        self.copy.ends = CopyEnds::default();
        if std::mem::take(&mut self.copy.ignored_syncs) > 0 {
            self.end_segment();
            return Some(Request::Sync);
        }
        // This ReadyForQuery answers a Sync that pgweir expected the server to ignore, or messages after that Sync.
        self.certainty.is_uncertain.then_some(Request::Sync)
    }

    /// Returns the request whose replies arrive now.
    #[must_use]
    #[inline]
    pub fn current(&self) -> Option<Request> {
        self.requests.front().map(|sent| sent.request)
    }

    /// Returns whether the request whose replies arrive now is the last one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.requests.len() + self.copy.ends.len() == 1
            && !self.since_mark.unsynced
            && !self.copy.reads_data
    }

    /// Returns whether no reply is outstanding, and no message without a Sync was sent.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.is_queue_empty() && !self.since_mark.unsynced && !self.copy.reads_data
    }

    /// Returns whether the server may send more than asynchronous messages.
    #[must_use]
    #[inline]
    pub fn is_asked(&self) -> bool {
        !self.is_settled() || self.certainty.is_uncertain
    }

    /// Returns whether the client has sent a Sync after its last message of the extended protocol.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        !self.since_mark.unsynced && !self.copy.reads_data && !self.certainty.is_uncertain
    }

    /// Returns whether the server was sent messages of the extended protocol that wait for their Sync.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.since_mark.asked
    }

    /// Returns whether the server reads COPY data.
    #[must_use]
    pub fn is_copy_in(&self) -> bool {
        self.copy.reads_data
    }

    /// Returns whether it is unknown if the server skips a Query that is sent now, since messages of the extended
    /// protocol without a Sync are not answered yet.
    #[must_use]
    #[inline]
    pub fn may_skip_query(&self) -> bool {
        self.since_mark.asked
            && !self.skipping
            && !self.since_mark.is_answered
            && !self.copy.reads_data
    }

    /// Returns whether the next message begins a request of the client, before which only the replies to pgweir's own
    /// queries may be outstanding, for example those at the beginning of a loan.
    #[must_use]
    #[inline]
    pub fn owe_client_nothing(&self) -> bool {
        self.is_settled() || self.owed_to_client == 0 && self.is_synced()
    }

    /// Returns the number of outstanding requests of the client.
    #[must_use]
    #[inline]
    pub fn owed_to_client(&self) -> usize {
        self.owed_to_client
    }

    /// Returns whether only complete requests are outstanding, so that pgweir can answer each with an error in the
    /// server's place.
    #[must_use]
    pub fn can_be_answered_for(&self) -> bool {
        !self.since_mark.unsynced
            && !self.copy.reads_data
            && self.copy.ignored_syncs == 0
            && self.copy.ends.is_empty()
    }

    /// Returns the number of entries in both queues: requests, and messages about statements.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.requests.len() + self.marks.len()
    }

    /// Returns whether pgweir does not read from the client because too many replies are outstanding.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes that pgweir has stopped reading from the client because of the outstanding replies.
    pub fn set_full(&mut self) {
        self.is_full = true;
    }

    /// Returns whether pgweir may read from the client again after [`set_full`](Self::set_full): the outstanding
    /// replies are at most half of `most`. Returns `true` only once for each stop.
    #[inline]
    pub fn take_full(&mut self, most: usize) -> bool {
        let done = self.is_full && self.outstanding() <= most / 2;
        self.is_full &= !done;
        done
    }
}

#[cfg(test)]
mod tests;
