//! Keeps the channels of one listener, the workers that want them, and the next query of the listener.

use std::collections::HashMap;

use super::{Channel, PendingRequest};
use crate::{Time, WorkerId, pool::WorkerSet, session::quote};

/// A notification on a channel to which no client listens. A session that sends a notification reads PostgreSQL's queue
/// up to it.
pub const READ_ALL: &[u8] = b"NOTIFY pgweir_fence;";

/// One listener's channels, and the workers that want them.
///
/// One query is under way at a time. Requests that arrive meanwhile go into the next query: a thousand fences cost no
/// more than one.
#[derive(Debug)]
pub struct ListenerChannels {
    channels: HashMap<Channel, ListenedChannel>,
    /// Channels for which PostgreSQL may need a LISTEN or UNLISTEN.
    changed: Vec<Channel>,
    /// Requests that the next query answers, and whether they are about channels.
    next: Vec<(PendingRequest, bool)>,
    /// The query that PostgreSQL processes at present.
    present: Option<Query>,
    /// Whether the listener has logged in.
    is_ready: bool,
    /// The time since which no worker wants any channel or answer.
    idle_since: Time,
}

#[derive(Debug, Default)]
struct ListenedChannel {
    workers: WorkerSet,
    /// Whether a LISTEN for the channel was sent to PostgreSQL.
    held: bool,
}

#[derive(Debug, Default)]
struct Query {
    requests: Vec<(PendingRequest, bool)>,
    begun: Vec<Channel>,
    ended: Vec<Channel>,
}

/// The error of too many channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl ListenerChannels {
    /// Returns a listener's record without channels.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            channels: HashMap::new(),
            changed: Vec::new(),
            next: Vec::new(),
            present: None,
            is_ready: false,
            idle_since: now,
        }
    }

    /// Notes that a worker's client wants these channels, if any, and an answer.
    ///
    /// # Errors
    /// There would be more than `most` channels; nothing has changed.
    pub fn ask(
        &mut self,
        request: PendingRequest,
        channels: &[Channel],
        most: usize,
    ) -> Result<(), Full> {
        let is_new = |channel: &&Channel| !self.channels.contains_key(&channel[..]);
        let new = channels.iter().filter(is_new).count();
        if new > 0 && self.channels.len() + new > most {
            return Err(Full);
        }
        for channel in channels {
            let line = self.channels.entry(Channel::clone(channel)).or_default();
            line.workers.insert(request.worker);
            if !line.held {
                self.changed.push(Channel::clone(channel));
            }
        }
        self.next.push((request, !channels.is_empty()));
        Ok(())
    }

    /// Notes that a worker no longer wants these channels.
    pub fn leave(&mut self, worker: WorkerId, channels: &[Channel], now: Time) {
        for channel in channels {
            let Some(line) = self.channels.get_mut(&channel[..]) else {
                continue;
            };
            line.workers.remove(worker);
            if line.workers.is_empty() {
                self.changed.push(Channel::clone(channel));
            }
        }
        self.idle_since = now;
    }

    /// Notes that the listener has logged in.
    pub fn logged_in(&mut self) {
        self.is_ready = true;
    }

    /// Appends the text of the next query to `text`; the text may be empty. Returns `false` if no query is due.
    pub fn next_query(&mut self, text: &mut Vec<u8>) -> bool {
        let is_due = !self.changed.is_empty() || !self.next.is_empty();
        if !self.is_ready || self.present.is_some() || !is_due {
            return false;
        }
        let mut query = Query {
            requests: std::mem::take(&mut self.next),
            ..Query::default()
        };
        for channel in std::mem::take(&mut self.changed) {
            let Some(line) = self.channels.get_mut(&channel[..]) else {
                continue;
            };
            match (line.workers.is_empty(), line.held) {
                (false, false) => {
                    line.held = true;
                    command(text, b"LISTEN ", &channel);
                    query.begun.push(channel);
                }
                (true, true) => {
                    self.channels.remove(&channel[..]);
                    command(text, b"UNLISTEN ", &channel);
                    query.ended.push(channel);
                }
                (true, false) => {
                    self.channels.remove(&channel[..]);
                }
                (false, true) => {}
            }
        }
        if query.requests.iter().any(|(request, _)| request.reads_all) {
            text.extend_from_slice(READ_ALL);
        }
        self.present = Some(query);
        true
    }

    /// Prepares for another connection, which listens to all channels and answers all requests, since the present
    /// connection is lost.
    pub fn restart(&mut self) {
        let present = self.present.take().unwrap_or_default();
        self.next.splice(..0, present.requests);
        self.is_ready = false;
        for line in self.channels.values_mut() {
            line.held = false;
        }
        self.changed = self.channels.keys().map(Channel::clone).collect();
    }

    /// Appends the commands that make another connection listen to all channels of this one.
    pub fn listen_again(&self, text: &mut Vec<u8>) {
        for (channel, line) in &self.channels {
            if line.held {
                command(text, b"LISTEN ", channel);
            }
        }
    }

    /// Ends the query under way after its answer. Returns the requests that are answered.
    pub fn answered(&mut self) -> Vec<(PendingRequest, bool)> {
        let query = self.present.take().unwrap_or_default();
        let granted = query.requests.into_iter();
        granted.map(|(request, _)| (request, true)).collect()
    }

    /// Ends the query under way after its failure. Returns its requests (those about channels are refused), and the
    /// waiting requests, since they may be about the same channels.
    pub fn failed(&mut self) -> Vec<(PendingRequest, bool)> {
        let query = self.present.take().unwrap_or_default();
        for channel in query.begun {
            self.channels.remove(&channel[..]);
        }
        let lines = std::mem::take(&mut self.channels);
        self.channels = lines.into_iter().filter(|(_, line)| line.held).collect();
        for channel in query.ended {
            // LISTEN for the channel is still sent, and must be undone unless a worker wants the channel now.
            let line = self.channels.entry(Channel::clone(&channel)).or_default();
            line.held = true;
            self.changed.push(channel);
        }
        let (about_channels, fences): (Vec<_>, Vec<_>) = std::mem::take(&mut self.next)
            .into_iter()
            .partition(|(_, about_channels)| *about_channels);
        self.next = fences;
        let answered = query.requests.into_iter().chain(about_channels);
        answered
            .map(|(request, about_channels)| (request, !about_channels))
            .collect()
    }

    /// Returns all requests that have no answer yet, and will get none.
    pub fn unanswered(&mut self) -> Vec<PendingRequest> {
        let present = self.present.take().unwrap_or_default();
        let all = present.requests.into_iter().chain(self.next.drain(..));
        all.map(|(request, _)| request).collect()
    }

    /// Returns the workers that want a channel.
    #[must_use]
    pub fn workers_of(&self, channel: &[u8]) -> WorkerSet {
        self.channels
            .get(channel)
            .map_or_else(WorkerSet::default, |line| line.workers)
    }

    /// Returns the workers that want any channel.
    #[must_use]
    pub fn workers(&self) -> WorkerSet {
        let mut all = WorkerSet::default();
        for line in self.channels.values() {
            line.workers.iter().for_each(|worker| all.insert(worker));
        }
        all
    }

    /// Returns the time since which the listener has been unused; `None` if it is in use.
    #[must_use]
    pub fn idle_since(&self) -> Option<Time> {
        let is_idle = self.channels.is_empty() && self.next.is_empty() && self.present.is_none();
        is_idle.then_some(self.idle_since)
    }

    /// Returns whether a query is under way.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.present.is_some()
    }

    /// Returns the number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }
}

/// Appends LISTEN or UNLISTEN of one channel.
pub(super) fn command(text: &mut Vec<u8>, command: &[u8], channel: &[u8]) {
    text.extend_from_slice(command);
    quote::identifier(text, channel);
    text.push(b';');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    const A: WorkerId = WorkerId(0);
    const B: WorkerId = WorkerId(1);
    const NOW: Time = Time(0);

    fn request(worker: WorkerId, number: u32) -> PendingRequest {
        let client = Token {
            slot: 1,
            generation: 1,
        };
        PendingRequest {
            worker,
            client,
            number,
            reads_all: number == 7,
        }
    }

    fn channels(names: &[&str]) -> Vec<Channel> {
        names.iter().map(|name| name.as_bytes().into()).collect()
    }

    fn query(board: &mut ListenerChannels) -> Option<String> {
        let mut text = Vec::new();
        let due = board.next_query(&mut text);
        due.then(|| String::from_utf8(text).unwrap())
    }

    fn numbers(answers: Vec<(PendingRequest, bool)>) -> Vec<(u32, bool)> {
        let numbers = answers.into_iter();
        numbers.map(|(q, granted)| (q.number, granted)).collect()
    }

    #[test]
    fn a_channel_is_asked_for_once_and_ended_with_its_last_worker() {
        let mut board = ListenerChannels::new(NOW);
        board
            .ask(request(A, 1), &channels(&["a\"b", "c"]), 9)
            .unwrap();
        assert_eq!(query(&mut board), None, "it has not logged in");
        board.logged_in();
        assert_eq!(
            query(&mut board).unwrap(),
            "LISTEN \"a\"\"b\";LISTEN \"c\";"
        );
        board.ask(request(B, 2), &channels(&["c"]), 9).unwrap();
        board.ask(request(B, 3), &[], 9).unwrap();
        assert_eq!(query(&mut board), None, "one at a time");
        assert_eq!(numbers(board.answered()), [(1, true)]);
        assert_eq!(query(&mut board).unwrap(), "", "a fence");
        assert_eq!(numbers(board.answered()), [(2, true), (3, true)]);
        assert!(board.workers_of(b"c").has(A) && board.workers_of(b"c").has(B));
        board.leave(A, &channels(&["c", "a\"b"]), NOW);
        assert_eq!(query(&mut board).unwrap(), "UNLISTEN \"a\"\"b\";");
        assert_eq!(numbers(board.answered()), []);
        board.leave(B, &channels(&["c"]), Time(5));
        assert_eq!(board.idle_since(), None);
        board.ask(request(B, 7), &[], 9).unwrap();
        let text = query(&mut board).unwrap();
        assert_eq!(text, "UNLISTEN \"c\";NOTIFY pgweir_fence;");
        let _ = board.answered();
        assert_eq!(board.idle_since(), Some(Time(5)));
    }

    #[test]
    fn a_client_that_listens_again_before_the_unlisten_costs_no_query() {
        let mut board = ListenerChannels::new(NOW);
        board.logged_in();
        board.ask(request(A, 1), &channels(&["c"]), 9).unwrap();
        board.leave(A, &channels(&["c"]), NOW);
        board.ask(request(B, 2), &channels(&["c"]), 9).unwrap();
        assert_eq!(query(&mut board).unwrap(), "LISTEN \"c\";");
        let _ = board.answered();
        board.leave(B, &channels(&["c"]), NOW);
        board.ask(request(A, 3), &channels(&["c"]), 9).unwrap();
        assert_eq!(query(&mut board).unwrap(), "");
        let _ = board.answered();
        assert!(board.workers_of(b"c").has(A));
    }

    #[test]
    fn another_connection_listens_to_all_and_answers_all() {
        let mut board = ListenerChannels::new(NOW);
        board.logged_in();
        board.ask(request(A, 1), &channels(&["a"]), 9).unwrap();
        assert_eq!(query(&mut board).unwrap(), "LISTEN \"a\";");
        let _ = board.answered();
        board.ask(request(B, 2), &channels(&["b"]), 9).unwrap();
        assert_eq!(query(&mut board).unwrap(), "LISTEN \"b\";");
        board.ask(request(A, 3), &[], 9).unwrap();
        board.restart();
        assert_eq!(query(&mut board), None, "it has not logged in");
        board.logged_in();
        let text = query(&mut board).unwrap();
        let mut commands: Vec<&str> = text.split_terminator(';').collect();
        commands.sort_unstable();
        assert_eq!(commands, ["LISTEN \"a\"", "LISTEN \"b\""]);
        assert_eq!(numbers(board.answered()), [(2, true), (3, true)]);
    }

    #[test]
    fn bounded() {
        let mut board = ListenerChannels::new(NOW);
        assert_eq!(
            board.ask(request(A, 1), &channels(&["a", "b"]), 1),
            Err(Full)
        );
        assert_eq!(board.channels(), 0);
        board.ask(request(A, 1), &channels(&["a"]), 1).unwrap();
        board.ask(request(B, 2), &channels(&["a"]), 1).unwrap();
        assert_eq!(board.ask(request(A, 1), &channels(&["b"]), 1), Err(Full));
        board.ask(request(A, 1), &[], 1).unwrap();
    }

    #[test]
    fn a_query_that_fails_has_changed_nothing() {
        let mut board = ListenerChannels::new(NOW);
        board.logged_in();
        board.ask(request(A, 1), &channels(&["old"]), 9).unwrap();
        let _ = query(&mut board);
        let _ = board.answered();
        board.leave(A, &channels(&["old"]), NOW);
        board.ask(request(A, 2), &channels(&["new"]), 9).unwrap();
        board.ask(request(A, 3), &[], 9).unwrap();
        assert!(query(&mut board).is_some());
        board.ask(request(B, 4), &channels(&["new"]), 9).unwrap();
        board.ask(request(B, 5), &[], 9).unwrap();
        assert_eq!(numbers(board.failed()), [(2, false), (3, true), (4, false)]);
        assert!(board.workers_of(b"new").is_empty());
        assert_eq!(query(&mut board).unwrap(), "UNLISTEN \"old\";");
        assert_eq!(numbers(board.answered()), [(5, true)]);
        assert_eq!(board.channels(), 0);
    }
}
