//! The replies that a server owes, in order.
//!
//! Only ReadyForQuery ends a request for sure, so the queue has one entry for each message that
//! will be answered by one: Query, FunctionCall and Sync of the client, and our own queries. Where
//! prepared statements are followed, there is a mark between them for each Parse and Close, since
//! some of their answers are swallowed, and what they change is undone if they are skipped.

mod countdown;
mod describing;
mod doubt;
mod restoring;

use std::collections::VecDeque;

use pgweir_wire::tag::frontend;

use self::countdown::Countdown;
pub use self::restoring::Reset;
use super::{
    mark::{Change, Mark, MarkKind},
    request::{Own, Request},
};
use crate::session::Insertions;

/// What a server owes.
///
/// COPY FROM STDIN in the extended protocol needs care: while it reads data, a server ignores
/// Sync (PostgreSQL's manual, "COPY Operations"), and libpq sends one right after Execute, and
/// another after CopyDone. So at CopyInResponse the Syncs that were sent before the end of the
/// data are taken off the queue.
#[derive(Debug, Default)]
pub struct Replies {
    queue: VecDeque<Entry>,
    /// Messages of the extended protocol came after the last Sync.
    unsynced: bool,
    /// Some of them were sent to the server.
    asked: bool,
    /// One of them has failed: the server skips all up to the next Sync.
    skipping: bool,
    /// ParseCompletes in the server's place, to be sent before anything else that it says.
    early: u32,
    /// The server reads COPY data.
    copy_in: bool,
    /// Syncs that the server ignores, if this COPY goes well.
    ignored_syncs: u32,
    /// It is not certain that no reply is outstanding.
    doubt: bool,
    /// In doubt: something has been said since the last ReadyForQuery.
    answering: bool,
    /// Marks with a change, of requests that were sent to their end: if one of those fails, what
    /// they changed is undone, though more has been sent meanwhile.
    unsure: usize,
    /// The same of the request that is being sent: it fails as a whole.
    present: usize,
    /// It is not certain which names of statements there are: a text takes them all away, if it
    /// succeeds.
    dropping: Countdown,
    /// Startup values of the client are not there: a text takes them away.
    restoring: Countdown,
    /// How far that has come, in a request that goes on.
    reset: Reset,
    /// The client's next messages wait until all is certain.
    awaited: bool,
    /// A Query came where a Sync was due: if what came before it has failed, the server skips all up to
    /// the next Sync, and nothing that waits for its answers may keep that back.
    needs_sync: bool,
}

/// What the next answer may be to, before the end of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Front {
    /// A message about a statement.
    pub is_mark: bool,
    /// A Describe that is to be noted.
    pub is_describe: bool,
    /// What brings startup values back.
    pub restores: bool,
}

#[derive(Debug)]
enum Entry {
    Request(Request),
    Mark(Mark),
    /// CopyDone or CopyFail, sent before the server said that it reads.
    CopyEnd,
    /// The text of the Query behind it has statements of ours in it.
    Inserted(Box<Insertions>),
}

impl Replies {
    /// Notes a message of the client that goes to the server.
    #[inline]
    pub fn client_sent(&mut self, tag: u8) {
        match tag {
            frontend::QUERY | frontend::FUNCTION_CALL => self.simple(),
            // Ignored, unless the COPY has failed and we have not heard of it yet.
            frontend::SYNC if self.copy_in => self.ignored_syncs += 1,
            frontend::SYNC => {
                self.needs_sync = false;
                self.end_segment();
                self.request_sent(Request::Sync);
            }
            frontend::COPY_DONE | frontend::COPY_FAIL if self.copy_in => self.copy_in = false,
            frontend::COPY_DONE | frontend::COPY_FAIL
                if !self.queue.is_empty() || self.unsynced =>
            {
                self.queue.push_back(Entry::CopyEnd);
            }
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                // In the middle of COPY data they are an error; the server's answer is not ours to guess.
                self.doubt |= self.copy_in;
                self.unsynced = true;
                self.asked = true;
            }
            _ => {}
        }
    }

    /// Notes a Parse or Close that goes to the server, ours or the client's.
    #[inline]
    pub fn mark_sent(&mut self, mark: Mark) {
        self.unsynced = true;
        self.asked = true;
        self.present += usize::from(mark.change.is_some());
        self.queue.push_back(Entry::Mark(mark));
    }

    /// The answer that comes next may be to a check of ours.
    #[must_use]
    #[inline]
    pub fn is_checking(&self) -> bool {
        self.awaited && self.marks().any(Mark::is_awaited)
    }

    /// What the client's names stand for depends on answers to come: an earlier request may fail.
    #[must_use]
    #[inline]
    pub fn is_unsure(&self) -> bool {
        (self.unsure > 0 || self.dropping.is_pending()) && !self.needs_sync
    }

    /// A text goes to the server that takes all statements away.
    pub fn statements_dropped(&mut self) {
        self.dropping.begin();
    }

    /// Has the request that is being sent such a text?
    #[must_use]
    pub fn drops_statements(&self) -> bool {
        self.dropping.has_begun()
    }

    /// Nothing is certain before all requests that have been sent are answered.
    pub fn wait_for_all(&mut self) {
        self.dropping.set(self.requests());
    }

    /// The client's next messages wait until all is certain.
    pub fn wait(&mut self) {
        self.awaited = true;
    }

    /// They go on, or are looked at anew.
    #[inline]
    pub fn wait_no_longer(&mut self) {
        self.awaited = false;
    }

    /// Do the client's next messages wait?
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Its next messages need wait no longer. Said once.
    #[inline]
    pub fn take_awaited(&mut self) -> bool {
        let done = self.awaited && !self.is_unsure() && !self.is_checking() && !self.holds_back();
        self.awaited &= !done;
        done
    }

    /// Marks have left the queue; the oldest go first.
    fn marks_gone(&mut self, count: usize) {
        let old = count.min(self.unsure);
        self.unsure -= old;
        self.present = self.present.saturating_sub(count - old);
    }

    /// A Parse of the client that needs nothing of the server.
    pub fn answered_early(&mut self) {
        self.unsynced = true;
        self.early += 1;
    }

    /// Nothing is outstanding that would have to be answered before a message that comes now.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.queue.is_empty() && !self.asked && !self.copy_in && !self.doubt
    }

    /// The server skips what is sent now.
    #[must_use]
    #[inline]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The answers that are to be sent before anything else that the server says.
    #[inline]
    pub fn take_early(&mut self) -> u32 {
        std::mem::take(&mut self.early)
    }

    /// The client has left: what only it would have waited for is not owed.
    pub fn client_left(&mut self) {
        self.early = 0;
        self.awaited = false;
        self.dropping.forget_begun();
        self.restoring.forget_begun();
        self.unsynced &= self.asked;
    }

    fn end_segment(&mut self) {
        self.unsynced = false;
        self.asked = false;
        self.skipping = false;
        self.unsure += std::mem::take(&mut self.present);
    }

    fn simple(&mut self) {
        // In COPY data it is an error, and behind a failed pipeline without Sync it is skipped.
        self.doubt |= self.copy_in || self.asked;
        self.needs_sync |= self.asked;
        self.end_segment();
        self.request_sent(Request::Simple);
    }

    fn request_sent(&mut self, request: Request) {
        self.queue.push_back(Entry::Request(request));
        if !Countdown::are_over([self.dropping, self.restoring]) {
            let requests = self.requests();
            self.dropping.request_sent(requests);
            self.restoring.request_sent(requests);
        }
    }

    fn requests(&self) -> usize {
        self.queue.iter().filter(|entry| entry.is_request()).count()
    }

    /// So many requests have left the queue.
    #[inline]
    fn requests_gone(&mut self, count: usize) {
        if !Countdown::are_over([self.dropping, self.restoring]) {
            self.dropping.requests_gone(count);
            self.restoring.requests_gone(count);
        }
    }

    /// Notes the first part of a Query.
    pub fn part_sent(&mut self) {
        self.end_segment();
        self.request_sent(Request::Part);
    }

    /// The present request has failed. `true` if it was the first part of a Query: it is all of it.
    pub fn part_failed(&mut self) -> bool {
        let first = self.queue.iter_mut().find(|entry| entry.is_request());
        match first {
            Some(Entry::Request(request @ Request::Part)) => {
                *request = Request::Simple;
                true
            }
            _ => false,
        }
    }

    /// Notes a request of our own.
    pub fn own_sent(&mut self, own: Own) {
        self.queue.push_back(Entry::Request(Request::Own(own)));
    }

    /// Notes a Sync of our own, behind messages that were noted before.
    pub fn own_synced(&mut self, own: Own) {
        self.end_segment();
        self.own_sent(own);
    }

    /// The server said CopyInResponse.
    pub fn copy_in_started(&mut self) {
        self.copy_in = true;
        self.ignored_syncs = 0;
        let end = self.position(Entry::is_copy_end);
        let before_end = end.unwrap_or(self.queue.len());
        let is_extended = match self.queue.front() {
            Some(Entry::Request(request)) => *request == Request::Sync,
            Some(Entry::Mark(_)) => true,
            Some(Entry::CopyEnd | Entry::Inserted(_)) => false,
            None => true,
        };
        if is_extended {
            // Messages other than data are an error in COPY.
            self.doubt |= self.queue.range(..before_end).any(Entry::is_mark);
            let changes = self.queue.range(..before_end).filter(|e| e.changes());
            self.marks_gone(changes.count());
            let syncs = self.queue.drain(..before_end).count();
            self.dropping.ends_ignored(syncs);
            self.restoring.ends_ignored(syncs);
            self.ignored_syncs = syncs as u32;
            self.unsynced |= self.queue.is_empty() || syncs > 0 && end.is_none();
            self.asked |= self.unsynced;
        }
        if end.is_some() {
            self.copy_in = false;
            let end = self.position(Entry::is_copy_end);
            end.map(|at| self.queue.remove(at));
        }
    }

    /// The server reported an error: it reads no more COPY data, and in the extended protocol it
    /// skips all up to the next Sync. Gives the marks of what failed or will be skipped, in the
    /// order in which they were sent.
    #[must_use = "what they changed is to be undone"]
    pub fn failed(&mut self) -> Vec<Mark> {
        // If it failed before it read anything, it will answer the Syncs that we thought ignored.
        self.doubt |= self.ignored_syncs > 0;
        self.copy_in = false;
        let request = self.current();
        self.skipping |= request.is_none() && self.asked;
        self.take_marks()
    }

    /// The marks before the end of the present request.
    #[must_use = "what they changed is to be undone"]
    pub fn take_marks(&mut self) -> Vec<Mark> {
        let end = self.position(|entry| matches!(entry, Entry::Request(_)));
        let end = end.unwrap_or(self.queue.len());
        if !self.queue.range(..end).any(Entry::is_mark) {
            return Vec::new();
        }
        let taken = self.queue.drain(..end).filter_map(|entry| match entry {
            Entry::Mark(mark) => Some(mark),
            _ => None,
        });
        let taken: Vec<_> = taken.collect();
        self.marks_gone(taken.iter().filter(|mark| mark.change.is_some()).count());
        taken
    }

    /// All marks that there are: the server is lost.
    #[must_use = "what they changed is to be undone"]
    pub fn take_all_marks(&mut self) -> Vec<Mark> {
        (self.unsure, self.present) = (0, 0);
        let (marks, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(Entry::is_mark);
        self.queue = rest;
        let taken = marks.into_iter().filter_map(|entry| match entry {
            Entry::Mark(mark) => Some(mark),
            _ => None,
        });
        taken.collect()
    }

    /// The marks that are not answered yet.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.queue.iter().filter_map(|entry| match entry {
            Entry::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// All statements are gone: nothing of them is to be taken back.
    pub fn statements_gone(&mut self) {
        for entry in &mut self.queue {
            if let Entry::Mark(mark) = entry
                && matches!(
                    mark.change(),
                    Some(Change::Evicted(_) | Change::Unnamed(..))
                )
            {
                mark.change = None;
            }
        }
        self.count_changes();
    }

    /// Counts anew what is unsure.
    fn count_changes(&mut self) {
        let last = self
            .queue
            .iter()
            .rposition(|entry| matches!(entry, Entry::Request(_)));
        let sent = last.map_or(0, |last| last + 1);
        let all = self.queue.iter().filter(|entry| entry.changes()).count();
        self.unsure = self
            .queue
            .range(..sent)
            .filter(|entry| entry.changes())
            .count();
        self.present = all - self.unsure;
    }

    /// The next answer may be to a mark.
    #[must_use]
    #[inline]
    pub fn has_mark_in_front(&self) -> bool {
        matches!(self.queue.front(), Some(Entry::Mark(_)))
    }

    /// What the next answer may be to.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Front {
        match self.queue.front() {
            Some(Entry::Mark(mark)) => Front {
                is_mark: true,
                is_describe: mark.is_describe(),
                restores: matches!(mark.kind, MarkKind::Restore(1..)),
            },
            Some(Entry::Inserted(_)) => Front {
                restores: true,
                ..Front::default()
            },
            _ => Front::default(),
        }
    }

    /// The server said ParseComplete or CloseComplete: the mark that this answers; `None` if it is
    /// not the one that comes next.
    #[inline]
    pub fn completed(&mut self, kind: MarkKind) -> Option<Mark> {
        // What was too long to be looked at is not noted.
        while self.take_describe(|_| true).is_some() {}
        match self.queue.front() {
            Some(Entry::Mark(mark)) if mark.kind == kind => {}
            Some(Entry::Mark(mark))
                if kind == MarkKind::Parse
                    && matches!(mark.change(), Some(Change::Duplicate(..))) => {}
            _ => return None,
        }
        match self.queue.pop_front() {
            Some(Entry::Mark(mark)) => {
                self.marks_gone(usize::from(mark.change.is_some()));
                Some(mark)
            }
            _ => None,
        }
    }

    fn position(&self, wanted: impl Fn(&Entry) -> bool) -> Option<usize> {
        self.queue.iter().position(wanted)
    }

    /// The server said ReadyForQuery: the request that this ends, or `None` if it owed none.
    #[inline]
    pub fn ready(&mut self) -> Option<Request> {
        // An error too long to be looked at may have ended the COPY.
        self.copy_in = false;
        if self.owes_client_first() {
            return Some(Request::Sync);
        }
        self.answering = false;
        loop {
            match self.queue.pop_front() {
                // The marks of a request that failed were taken before.
                Some(Entry::Mark(mark)) => self.marks_gone(usize::from(mark.change.is_some())),
                Some(Entry::CopyEnd | Entry::Inserted(_)) => {}
                Some(Entry::Request(request)) => {
                    self.requests_gone(1);
                    if request == Request::Sync {
                        self.ignored_syncs = 0;
                    }
                    self.drop_copy_ends();
                    return Some(request);
                }
                None if self.ignored_syncs > 0 => {
                    self.ignored_syncs = 0;
                    self.end_segment();
                    return Some(Request::Sync);
                }
                // The answer to a Sync that was thought ignored, or to what came after that one.
                None if self.doubt => return Some(Request::Sync),
                None => return None,
            }
        }
    }

    /// The request whose replies arrive now.
    #[must_use]
    #[inline]
    pub fn current(&self) -> Option<Request> {
        self.queue.iter().find_map(|entry| match entry {
            Entry::Request(request) => Some(*request),
            _ => None,
        })
    }

    /// The request whose replies arrive now is the last one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        let is_counted = |e: &&Entry| e.is_request() || e.is_copy_end();
        let mut requests = self.queue.iter().filter(is_counted);
        let one = requests.next();
        one.is_some() && requests.next().is_none() && !self.unsynced && !self.copy_in
    }

    /// Nothing is owed, and nothing was begun that only a Sync could end.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.unsynced && !self.copy_in
    }

    /// May the server say more than what it says of itself?
    #[must_use]
    #[inline]
    pub fn is_asked(&self) -> bool {
        !self.is_settled() || self.doubt
    }

    /// All that the client has begun has come to its Sync.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        !self.unsynced && !self.copy_in && !self.doubt
    }

    /// The server was sent messages of the extended protocol that wait for their Sync.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.asked
    }

    /// The server reads COPY data.
    #[must_use]
    pub fn is_copy_in(&self) -> bool {
        self.copy_in
    }

    /// How many requests of the client are not answered yet.
    #[must_use]
    pub fn owed_to_client(&self) -> usize {
        let own = |entry: &&Entry| matches!(entry, Entry::Request(Request::Simple | Request::Sync));
        self.queue.iter().filter(own).count()
    }

    /// Only complete requests are outstanding: each can be answered with an error in the server's
    /// place.
    #[must_use]
    pub fn can_be_answered_for(&self) -> bool {
        !self.unsynced
            && !self.copy_in
            && self.ignored_syncs == 0
            && !self.queue.iter().any(Entry::is_copy_end)
    }

    fn drop_copy_ends(&mut self) {
        while self.queue.front().is_some_and(Entry::is_copy_end) {
            self.queue.pop_front();
        }
    }
}

impl Entry {
    fn is_copy_end(&self) -> bool {
        matches!(self, Self::CopyEnd)
    }

    fn is_mark(&self) -> bool {
        matches!(self, Self::Mark(_))
    }

    fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }

    fn changes(&self) -> bool {
        matches!(self, Self::Mark(mark) if mark.change.is_some())
    }
}

#[cfg(test)]
mod tests;
