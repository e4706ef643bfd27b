//! The statements that a server connection runs for its client.

use std::collections::VecDeque;

use super::{Counts, SlowTransaction, StatementId, StatementStatistics, slow};
use crate::{
    Time,
    session::{Fingerprint, Unanswered},
};

/// The largest number of statements of a transaction that its line in the log names.
const LISTED_MAX: usize = 5;
/// The room for outstanding executions that is kept while there are none.
const ROOM_KEPT: usize = 64;

/// The statements that a server connection was sent and has not completed, and the present transaction.
#[derive(Debug, Default)]
pub struct RunningStatements {
    outstanding: VecDeque<Execution>,
    /// The statement that the present client has sent last.
    latest: StatementId,
    /// The time at which the server last completed a statement.
    completed_at: Time,
    /// The time that the client has waited for its server. The next statement that is completed takes it over.
    wait: u64,
    /// The bytes that the server has sent since it completed a statement.
    sent: u64,
    transaction: Transaction,
}

/// One execution of a statement.
#[derive(Debug)]
struct Execution {
    statement: StatementId,
    /// The number of the request that it is a part of.
    request: u64,
    sent_at: Time,
    received: u64,
    rows: u64,
    extent: Extent,
    has_failed: bool,
    /// Whether its text may be longer than what was read of it. Other texts have the same fingerprint.
    is_cut: bool,
}

/// The part of a statement that a message runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The whole request: a simple query, which may consist of several commands, or the last Execute of a request. The
    /// part is complete at ReadyForQuery.
    Request,
    /// An Execute.
    Execute {
        /// The number of rows after which the server suspends the portal.
        rows: u32,
    },
}

/// The way in which the server has ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<'a> {
    /// The command is complete. The tag may be empty.
    Completed(&'a [u8]),
    /// All rows of an Execute's limit were sent.
    Suspended,
}

#[derive(Debug, Default)]
struct Transaction {
    statements: u32,
    errors: u32,
    wait: u64,
    server: u64,
    /// The statements that the log names: the first `listed_count` elements.
    listed: [StatementId; LISTED_MAX],
    listed_count: u8,
}

impl Transaction {
    /// Begins anew, after the client has waited for so many microseconds.
    #[inline]
    fn begin(&mut self, wait: u64) {
        self.statements = 0;
        self.errors = 0;
        self.wait = wait;
        self.server = 0;
        self.listed_count = 0;
    }

    /// Adds a statement to those that the log names.
    #[inline]
    fn list(&mut self, statement: StatementId) {
        let count = usize::from(self.listed_count);
        if statement != StatementId::NONE
            && count < LISTED_MAX
            && !self.listed[..count].contains(&statement)
        {
            self.listed[count] = statement;
            self.listed_count += 1;
        }
    }

    fn listed(&self) -> &[StatementId] {
        &self.listed[..usize::from(self.listed_count)]
    }
}

impl RunningStatements {
    /// Returns the bytes that the queue takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.outstanding.capacity() * size_of::<Execution>()
    }

    /// Notes that the server is lent to a client, which has waited for so many microseconds.
    #[inline]
    pub fn begin_loan(&mut self, waited: u64) {
        self.latest = StatementId::NONE;
        self.wait = waited;
        self.transaction.begin(waited);
    }

    /// Returns the statement that the present client has sent last.
    #[must_use]
    pub fn latest(&self) -> StatementId {
        self.latest
    }

    /// Notes that the client has prepared a statement.
    #[inline]
    pub fn prepared(&mut self, statement: StatementId) {
        self.latest = statement;
    }

    /// Notes a statement that was sent to the server, as a part of the request with this number. `received` bytes of
    /// the client belong to it so far.
    #[inline]
    pub fn sent(
        &mut self,
        statement: StatementId,
        request: u64,
        extent: Extent,
        received: u64,
        now: Time,
    ) {
        if self.outstanding.is_empty() {
            self.sent = 0;
        }
        self.outstanding.push_back(Execution {
            statement,
            request,
            sent_at: now,
            received,
            rows: 0,
            extent,
            has_failed: false,
            is_cut: received >= Fingerprint::READ_MAX as u64,
        });
        self.latest = statement;
        self.transaction.statements = self.transaction.statements.saturating_add(1);
        self.transaction.list(statement);
    }

    /// Notes the statement of a simple query whose text has arrived completely now. `is_cut`: only its beginning was
    /// read.
    #[cold]
    pub fn text_arrived(&mut self, statement: StatementId, is_cut: bool) {
        self.latest = statement;
        if let Some(last) = self.outstanding.back_mut() {
            last.statement = statement;
            last.is_cut |= is_cut;
        }
        self.transaction.list(statement);
    }

    /// Returns whether the server has a statement to complete.
    #[must_use]
    #[inline]
    pub fn is_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Returns the number of statements that the server has to complete; 0 without statistics.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns whether the server may have committed something that it has not confirmed, if its connection is lost
    /// now. `is_asked` means that the server owes replies; without statement statistics, only this decides.
    #[must_use]
    pub fn may_have_committed(
        &self,
        unanswered: Unanswered<'_>,
        is_asked: bool,
        statistics: &StatementStatistics,
    ) -> bool {
        let sent = self.outstanding.iter().map(|execution| {
            let text = statistics.text(execution.statement);
            text.filter(|_| !execution.is_cut).map(|(_, text)| &**text)
        });
        match statistics.is_on() {
            true => unanswered.may_be_committed(sent),
            false => is_asked,
        }
    }

    /// Returns the part of a statement that the next replies belong to, if any, while the server answers the request
    /// with the number `request`. `next` is the number of the next request that will be sent.
    ///
    /// Requests before `next` get no further statement. So the last Execute of such a request is complete when the
    /// request is complete, and pgweir need not search the replies for its end. Only an Execute with a limit may be
    /// suspended instead.
    #[must_use]
    #[inline]
    pub fn present(&mut self, request: u64, next: u64) -> Option<Extent> {
        let is_last = self.outstanding.len() == 1;
        let front = self.outstanding.front_mut()?;
        if is_last && front.request < next && front.extent == (Extent::Execute { rows: 0 }) {
            front.extent = Extent::Request;
        }
        (front.request <= request).then_some(front.extent)
    }

    /// Counts rows of commands that the server has completed for its present statement.
    #[inline]
    pub fn add_rows(&mut self, rows: u64) {
        if let Some(front) = self.outstanding.front_mut() {
            front.rows = front.rows.wrapping_add(rows);
        }
    }

    /// Counts further bytes of the client for the statement that was sent last.
    #[inline]
    pub fn add_received(&mut self, bytes: usize) {
        if let Some(last) = self.outstanding.back_mut() {
            last.received += bytes as u64;
        }
    }

    /// Counts bytes of the server for the statement that it completes next.
    #[inline]
    pub fn add_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Notes that the server has completed a command of the request with this number, or suspended a portal.
    #[inline]
    pub fn completed(
        &mut self,
        ended: Ended<'_>,
        request: u64,
        now: Time,
        statistics: &mut StatementStatistics,
    ) {
        let Some(front) = self.outstanding.front_mut() else {
            return;
        };
        if front.request > request {
            return;
        }
        front.rows += match (ended, front.extent) {
            (Ended::Completed(tag), _) => rows_in_tag(tag),
            (Ended::Suspended, Extent::Execute { rows }) => u64::from(rows),
            (Ended::Suspended, Extent::Request) => 0,
        };
        if front.extent != Extent::Request {
            self.end_first(now, statistics);
        }
    }

    /// Notes an error in the request with this number.
    #[cold]
    pub fn failed(&mut self, request: u64, now: Time, statistics: &mut StatementStatistics) {
        self.transaction.errors = self.transaction.errors.saturating_add(1);
        match self.outstanding.front_mut() {
            Some(front) if front.request <= request => {
                front.has_failed = true;
                if front.extent != Extent::Request {
                    self.end_first(now, statistics);
                }
            }
            // The statement could not be prepared.
            _ => {
                if let Some(entry) = statistics.entry(self.latest) {
                    entry.counts.errors += 1;
                }
            }
        }
    }

    /// Notes that the server is ready, after the answers to all requests before the one with number `next`. `is_last`:
    /// whether it has nothing else to answer. Statements that the server has skipped are not counted.
    #[inline]
    pub fn ready(
        &mut self,
        next: u64,
        is_last: bool,
        now: Time,
        statistics: &mut StatementStatistics,
    ) {
        while let Some(front) = self.outstanding.front()
            && (front.request < next || is_last)
        {
            if front.extent == Extent::Request {
                self.end_first(now, statistics);
            } else {
                self.outstanding.pop_front();
            }
        }
        if self.outstanding.capacity() > ROOM_KEPT && self.outstanding.is_empty() {
            self.outstanding.shrink_to(ROOM_KEPT);
        }
    }

    #[inline]
    fn end_first(&mut self, now: Time, statistics: &mut StatementStatistics) {
        let Some(ended) = self.outstanding.pop_front() else {
            return;
        };
        // In a pipeline, the server began when it had completed the statement before.
        let time = now.since(ended.sent_at.max(self.completed_at));
        self.completed_at = now;
        self.transaction.server += time;
        let wait = std::mem::take(&mut self.wait);
        let sent = std::mem::take(&mut self.sent);
        let Some(entry) = statistics.entry(ended.statement) else {
            return;
        };
        entry.uses = entry.uses.saturating_add(1);
        let Counts {
            calls,
            errors,
            rows,
            received,
            sent: all_sent,
            wait: waits,
            max_wait,
            server,
            max_server,
            ..
        } = &mut entry.counts;
        *calls += 1;
        *errors += u64::from(ended.has_failed);
        *rows += ended.rows;
        *received += ended.received;
        *all_sent += sent;
        *waits += wait;
        *max_wait = wait.max(*max_wait);
        server.observe(time);
        *max_server = time.max(*max_server);
    }

    /// Returns the length of the transaction with its wait for a server, if the rest took so many microseconds.
    #[inline]
    #[must_use]
    pub fn length(&self, duration: u64) -> u64 {
        self.transaction.wait + duration
    }

    /// Returns the facts about the present transaction for the log.
    #[must_use]
    pub fn describe(&self, duration: u64, statistics: &StatementStatistics) -> SlowTransaction {
        let transaction = &self.transaction;
        let listed = transaction.listed().iter();
        SlowTransaction {
            duration: self.length(duration),
            wait: transaction.wait,
            server: transaction.server,
            statements: transaction.statements,
            errors: transaction.errors,
            listed: listed
                .filter_map(|id| statistics.text(*id))
                .map(|(fingerprint, text)| (fingerprint, slow::shorten(text)))
                .collect(),
        }
    }

    /// Notes the end of the transaction.
    #[inline]
    pub fn end_transaction(&mut self) {
        self.transaction.begin(0);
    }
}

/// Returns the number of rows in the tag of a CommandComplete, with its zero byte: `INSERT 0 5`, `SELECT 5`, `COPY 5`.
#[inline]
pub fn rows_in_tag(tag: &[u8]) -> u64 {
    let Some((0, tag)) = tag.split_last() else {
        return 0;
    };
    let (mut rows, mut unit) = (0_u64, 1_u64);
    for byte in tag.iter().rev() {
        match byte {
            b'0'..=b'9' => {
                rows = rows.wrapping_add(u64::from(byte - b'0').wrapping_mul(unit));
                unit = unit.wrapping_mul(10);
            }
            b' ' if unit > 1 => return rows,
            _ => return 0,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pool::PoolKey, statement_statistics::StatementPool};

    const EXECUTE: Extent = Extent::Execute { rows: 2 };

    fn statement(statistics: &mut StatementStatistics, number: u64) -> StatementId {
        let key = PoolKey {
            database: "app".into(),
            user: "ann".into(),
        };
        let pool = StatementPool {
            number: 1,
            key: &key,
        };
        statistics.statement(pool, number, || "SELECT ?".into())
    }

    fn counts(statistics: &mut StatementStatistics, id: StatementId) -> Counts {
        statistics.entry(id).expect("an entry").counts
    }

    #[test]
    fn rows_in_tags() {
        for (tag, rows) in [
            (&b"SELECT 12\0"[..], 12),
            (b"INSERT 0 305\0", 305),
            (b"COPY 1000000\0", 1_000_000),
            (b"UPDATE 0\0", 0),
            (b"CREATE TABLE\0", 0),
            (b"BEGIN\0", 0),
            (b"99\0", 0),
            (b"X99\0", 0),
            (b"SELECT 5", 0),
            (b"", 0),
        ] {
            assert_eq!(rows_in_tag(tag), rows, "{}", tag.escape_ascii());
        }
    }

    #[test]
    fn a_pipeline() {
        let mut statistics = StatementStatistics::default();
        statistics.set_limit(10);
        let [one, two, three] = [1, 2, 3].map(|number| statement(&mut statistics, number));
        let mut server = RunningStatements::default();
        server.begin_loan(40);
        // Two executions in request 5, one in request 6, and then a simple query with two commands.
        for (id, request) in [(one, 5), (two, 5), (one, 6)] {
            server.sent(id, request, EXECUTE, 10, Time(100));
        }
        server.sent(three, 7, Extent::Request, 20, Time(100));
        server.add_sent(33);
        server.completed(
            Ended::Completed(b"SELECT 3\0"),
            5,
            Time(150),
            &mut statistics,
        );
        server.failed(5, Time(170), &mut statistics);
        server.ready(6, false, Time(170), &mut statistics);
        server.completed(Ended::Suspended, 6, Time(180), &mut statistics);
        server.ready(7, false, Time(180), &mut statistics);
        server.completed(
            Ended::Completed(b"UPDATE 2\0"),
            7,
            Time(190),
            &mut statistics,
        );
        server.completed(
            Ended::Completed(b"UPDATE 3\0"),
            7,
            Time(190),
            &mut statistics,
        );
        server.add_sent(7);
        server.ready(8, true, Time(200), &mut statistics);
        let of = counts(&mut statistics, one);
        assert_eq!((of.calls, of.rows, of.errors, of.received), (2, 5, 0, 20));
        assert_eq!(
            (of.server.sum(), of.max_server, of.wait, of.max_wait),
            (60, 50, 40, 40)
        );
        assert_eq!(of.sent, 33);
        let of = counts(&mut statistics, two);
        assert_eq!((of.calls, of.errors, of.server.sum()), (1, 1, 20));
        let of = counts(&mut statistics, three);
        assert_eq!((of.calls, of.rows, of.server.sum(), of.sent), (1, 5, 20, 7));
        let described = server.describe(100, &statistics);
        assert_eq!(
            (described.duration, described.wait, described.server),
            (140, 40, 100)
        );
        assert_eq!(
            (
                described.statements,
                described.errors,
                described.listed.len()
            ),
            (4, 1, 3)
        );
        server.end_transaction();
        assert_eq!(server.describe(1, &statistics).statements, 0);
        assert_eq!(server.latest(), three);
    }

    #[test]
    fn the_last_execute_of_a_request_ends_with_it() {
        let unlimited = Extent::Execute { rows: 0 };
        let mut statistics = StatementStatistics::default();
        statistics.set_limit(10);
        let [one, two] = [1, 2].map(|number| statement(&mut statistics, number));
        let mut server = RunningStatements::default();
        server.sent(one, 3, unlimited, 0, Time(0));
        // No Sync was sent yet: more may follow.
        assert_eq!(server.present(3, 3), Some(unlimited));
        server.sent(two, 3, unlimited, 0, Time(0));
        assert_eq!(server.present(3, 4), Some(unlimited));
        server.completed(
            Ended::Completed(b"SELECT 2\0"),
            3,
            Time(10),
            &mut statistics,
        );
        assert_eq!(counts(&mut statistics, one).calls, 1);
        assert_eq!(server.present(2, 4), None);
        assert_eq!(server.present(3, 4), Some(Extent::Request));
        server.add_rows(5);
        // The commit fails.
        server.failed(3, Time(20), &mut statistics);
        assert_eq!(counts(&mut statistics, two).calls, 0);
        server.ready(4, true, Time(30), &mut statistics);
        let of = counts(&mut statistics, two);
        assert_eq!((of.calls, of.errors, of.rows), (1, 1, 5));
        // An Execute with a limit may be suspended.
        server.sent(one, 4, EXECUTE, 0, Time(40));
        assert_eq!(server.present(4, 5), Some(EXECUTE));
    }

    #[test]
    fn skipped_statements_are_no_calls() {
        let mut statistics = StatementStatistics::default();
        statistics.set_limit(10);
        let [one, two] = [1, 2].map(|number| statement(&mut statistics, number));
        let mut server = RunningStatements::default();
        server.sent(one, 1, EXECUTE, 0, Time(0));
        server.sent(two, 1, EXECUTE, 0, Time(0));
        // The answer to a request of pgweir's own is not that of a statement.
        server.completed(Ended::Completed(b"SELECT 1\0"), 0, Time(1), &mut statistics);
        assert!(server.is_outstanding());
        server.failed(1, Time(2), &mut statistics);
        server.ready(2, true, Time(3), &mut statistics);
        assert!(!server.is_outstanding());
        assert_eq!(counts(&mut statistics, one).calls, 1);
        assert_eq!(counts(&mut statistics, two), Counts::default());
        // A statement that can't be prepared has an error, and no call.
        server.prepared(two);
        server.failed(2, Time(4), &mut statistics);
        let of = counts(&mut statistics, two);
        assert_eq!((of.calls, of.errors), (0, 1));
    }
}
