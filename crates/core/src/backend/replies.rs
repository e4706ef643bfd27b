//! The replies that a server owes, in order.
//!
//! Only ReadyForQuery ends a request for sure, so the queue has one entry for each message that
//! will be answered by one: Query, FunctionCall and Sync of the client, and our own queries.

use std::collections::VecDeque;

use pgweir_wire::tag::frontend;

/// A request that ends with ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Query or FunctionCall of the client.
    Simple,
    /// Sync of the client.
    Sync,
    /// One of ours: its replies are swallowed.
    Own(Own),
}

/// What we ask of a server for ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Give it the parameters of the client that comes next.
    Parameters,
    /// `server_reset_query`.
    Reset,
    /// End the transaction that a client left open.
    Rollback,
}

impl Own {
    /// What it is, for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "setting the client's parameters",
            Self::Reset => "server_reset_query",
            Self::Rollback => "ROLLBACK of an abandoned transaction",
        }
    }
}

/// What a server owes.
///
/// COPY FROM STDIN in the extended protocol needs care: while it reads data, a server ignores
/// Sync (PostgreSQL's manual, "COPY Operations"), and libpq sends one right after Execute, and
/// another after CopyDone. So at CopyInResponse the Syncs that were sent before the end of the
/// data are taken off the queue.
#[derive(Debug, Default)]
pub struct Replies {
    queue: VecDeque<Entry>,
    /// Messages of the extended protocol were sent after the last Sync.
    unsynced: bool,
    /// The server reads COPY data.
    copy_in: bool,
    /// Syncs that the server ignores, if this COPY goes well.
    ignored_syncs: u32,
    /// It is not certain that no reply is outstanding.
    doubt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Request(Request),
    /// CopyDone or CopyFail, sent before the server said that it reads.
    CopyEnd,
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
                self.unsynced = false;
                self.queue.push_back(Entry::Request(Request::Sync));
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
            }
            _ => {}
        }
    }

    fn simple(&mut self) {
        // In COPY data it is an error, and behind a failed pipeline without Sync it is skipped.
        self.doubt |= self.copy_in || self.unsynced;
        self.unsynced = false;
        self.queue.push_back(Entry::Request(Request::Simple));
    }

    /// Notes a request of our own.
    pub fn own_sent(&mut self, own: Own) {
        self.queue.push_back(Entry::Request(Request::Own(own)));
    }

    /// The server said CopyInResponse.
    pub fn copy_in_started(&mut self) {
        self.copy_in = true;
        self.ignored_syncs = 0;
        let end = self.queue.iter().position(|&entry| entry == Entry::CopyEnd);
        let before_end = end.unwrap_or(self.queue.len());
        if self.queue.front() == Some(&Entry::Request(Request::Sync)) || self.queue.is_empty() {
            let syncs = self.queue.drain(..before_end).count();
            self.ignored_syncs = syncs as u32;
            self.unsynced |= self.queue.is_empty() || syncs > 0 && end.is_none();
        }
        if end.is_some() {
            self.copy_in = false;
            let end = self.queue.iter().position(|&entry| entry == Entry::CopyEnd);
            end.map(|at| self.queue.remove(at));
        }
    }

    /// The server reported an error: it reads no more COPY data.
    pub fn failed(&mut self) {
        // If it failed before it read anything, it will answer the Syncs that we thought ignored.
        self.doubt |= self.ignored_syncs > 0;
        self.copy_in = false;
    }

    /// The server said ReadyForQuery: the request that this ends, or `None` if it owed none.
    #[inline]
    pub fn ready(&mut self) -> Option<Request> {
        // An error too long to be looked at may have ended the COPY.
        self.copy_in = false;
        loop {
            match self.queue.pop_front() {
                Some(Entry::CopyEnd) => {}
                Some(Entry::Request(request)) => {
                    if request == Request::Sync {
                        self.ignored_syncs = 0;
                    }
                    self.drop_copy_ends();
                    return Some(request);
                }
                None if self.ignored_syncs > 0 => {
                    self.ignored_syncs = 0;
                    self.unsynced = false;
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
        self.queue.iter().find_map(|&entry| match entry {
            Entry::Request(request) => Some(request),
            Entry::CopyEnd => None,
        })
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

    /// Messages of the extended protocol wait for their Sync.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// The server reads COPY data.
    #[must_use]
    pub fn is_copy_in(&self) -> bool {
        self.copy_in
    }

    /// A reply may come that nobody counts on: close the server instead of lending it again.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubt
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
            && !self.queue.contains(&Entry::CopyEnd)
    }

    fn drop_copy_ends(&mut self) {
        while self.queue.front() == Some(&Entry::CopyEnd) {
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a script: client messages by tag, and of the server `G` (CopyInResponse), `!` (error),
    /// `z` (ReadyForQuery). Gives what is settled and doubtful at the end.
    fn play(script: &str) -> (bool, bool) {
        let mut replies = Replies::default();
        for step in script.bytes() {
            match step {
                b'G' => replies.copy_in_started(),
                b'!' => replies.failed(),
                b'z' => assert!(replies.ready().is_some(), "{script}"),
                tag => replies.client_sent(tag),
            }
        }
        (replies.is_settled(), replies.is_doubtful())
    }

    #[test]
    fn scripts() {
        let check = |script: &str, settled, doubtful| {
            assert_eq!(play(script), (settled, doubtful), "{script}")
        };
        check("", true, false);
        check("Q", false, false);
        check("Qz", true, false);
        check("QQz", false, false);
        check("QQzz", true, false);
        check("PBDE", false, false);
        check("PBDES", false, false);
        check("PBDESz", true, false);
        check("PBDESPBESz", false, false);
        check("PBDESPBESzz", true, false);
        check("F", false, false);
        check("Fz", true, false);
        // COPY in the simple protocol.
        check("QGdd", false, false);
        check("QGddc", false, false);
        check("QGddcz", true, false);
        check("QGdd!z", true, false);
        check("QGdd!zc", true, false);
        check("QdcGz", true, false); // all in one go
        check("QdcGQz", false, false);
        // COPY in the extended protocol, as libpq does it: Sync after Execute and after CopyDone.
        check("PBDESGdd", false, false);
        check("PBDESGddcS", false, false);
        check("PBDESGddcSz", true, false);
        check("PBDESGddfSz", true, false);
        check("PBDEGddcSz", true, false);
        check("PBDESddcSGz", true, false); // all in one go
        // If the error came before any data was read, the first Sync is answered after all.
        check("PBDESGd!cSz", true, true);
        check("PBDESGdcS!zz", true, true);
        check("PBDESG!z", true, true);
        check("PBDEGS!z", true, true);
        check("PBDEGSdcSz", true, false);
    }

    #[test]
    fn an_answer_that_nobody_asked_for() {
        assert_eq!(Replies::default().ready(), None);
    }
}
