//! Keeps the channels of one client that listens, and the notifications that it gets at the end of its transaction.

use pgweir_wire::Header;

use super::{Channel, ListenerKey, Notification, PendingUnlisten, listener_channels::command};
use crate::Time;

/// The answer that a listening client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The client waits for nothing.
    Settled,
    /// The client waits until the listener listens to these channels.
    Asking(Vec<Channel>),
    /// The client waits for all notifications that were sent before its request.
    Fenced,
    /// The client waits for the same, before another listener replaces its present one.
    FencedToMove,
    /// The client waits for the notifications that the old process of an online restart has received.
    Elsewhere,
}

/// A client that was taken over from the old process of an online restart, which still receives notifications for it.
#[derive(Debug)]
pub struct TakenOverListener {
    /// The notifications that the old process has received, as whole messages.
    pub notified: Vec<u8>,
    /// Whether the client has received the ReadyForQuery of its login.
    pub ready_was_sent: bool,
}

/// A client that listens.
#[derive(Debug)]
pub struct Listening {
    /// The listener.
    key: ListenerKey,
    /// The answer that the client waits for.
    stage: Stage,
    /// The listener that serves the client until the one in `key` is ready, after the client's encoding has changed,
    /// and its channels.
    former: Option<Box<(ListenerKey, Vec<Channel>)>>,
    /// The channels that the client listens to.
    channels: Vec<Channel>,
    /// The number of the client's last request.
    number: u32,
    /// The time at which the client asked.
    asked_at: Time,
    /// Notifications as whole messages, for the end of the client's transaction, or until the client reads again.
    backlog: Vec<u8>,
    /// The channels that are new in this transaction. Both the listener and the client's server may receive their
    /// notifications.
    fresh: Vec<Channel>,
    fresh_from: usize,
    /// UNLISTEN commands that have not taken effect yet.
    pending_unlisten: PendingUnlisten,
    /// Set if the client was taken over: the old process's notifications are sent together with those received here.
    taken_over: Option<Box<TakenOverListener>>,
}

/// The error of a backlog that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

impl Listening {
    /// Returns the bytes of the channels and of the notifications that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let channels = self.channels.capacity() + self.fresh.capacity();
        let taken_over = self.taken_over.as_deref();
        size_of::<Self>()
            + channels * size_of::<Channel>()
            + self.backlog.capacity()
            + taken_over.map_or(0, |former| former.notified.capacity())
    }

    /// Returns a client that listens to nothing yet.
    #[must_use]
    pub fn new(key: ListenerKey) -> Self {
        Self {
            key,
            stage: Stage::Settled,
            former: None,
            channels: Vec::new(),
            number: 0,
            asked_at: Time(0),
            backlog: Vec::new(),
            fresh: Vec::new(),
            fresh_from: 0,
            pending_unlisten: PendingUnlisten::default(),
            taken_over: None,
        }
    }

    /// Returns the client's listener.
    #[must_use]
    pub fn key(&self) -> &ListenerKey {
        &self.key
    }

    /// Returns whether the client's listener uses this encoding.
    #[must_use]
    pub fn uses(&self, encoding: &[u8]) -> bool {
        *self.key.encoding == *encoding
    }

    /// Returns whether the client waits for nothing.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.stage == Stage::Settled
    }

    /// Returns the channels that the client has asked for, until the listener answers.
    #[must_use]
    pub fn asking(&self) -> Option<&[Channel]> {
        match &self.stage {
            Stage::Asking(channels) => Some(channels),
            _ => None,
        }
    }

    /// Takes what the client waited for, and the time at which it asked.
    pub fn take_stage(&mut self) -> (Stage, Time) {
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        (stage, self.asked_at)
    }

    /// Notes that the client was taken over: the old process still receives notifications for it.
    pub fn take_over(&mut self, from: TakenOverListener) {
        self.taken_over = Some(Box::new(from));
    }

    /// Returns whether the old process still receives notifications for the client.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.is_some()
    }

    /// Returns what the old process has received for the client so far.
    pub fn taken_over(&mut self) -> Option<&mut TakenOverListener> {
        self.taken_over.as_deref_mut()
    }

    /// Makes the client wait for the notifications that the old process has received.
    pub fn wait_for_old_process(&mut self) {
        self.stage = Stage::Elsewhere;
    }

    /// Takes what the old process has received, now that it has forwarded everything.
    pub fn end_takeover(&mut self) -> Option<Box<TakenOverListener>> {
        let taken_over = self.taken_over.take()?;
        self.settle();
        Some(taken_over)
    }

    /// Returns whether an UNLISTEN has to take effect.
    #[must_use]
    pub fn has_unlisten(&self) -> bool {
        self.pending_unlisten.is_due()
    }

    /// Notes that a command has completed (its tag, with the final zero), or has failed (`None`).
    pub fn unlisten_completed(&mut self, tag: Option<&[u8]>) {
        match tag {
            Some(tag) => self.pending_unlisten.completed(tag),
            None => self.pending_unlisten.failed(),
        }
    }

    /// Returns whether the client may move to another process now.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.stage == Stage::Settled
            && self.former.is_none()
            && !self.has_backlog()
            && !self.pending_unlisten.is_due()
    }

    /// Puts these notifications before those that were received here.
    pub fn prepend_backlog(&mut self, mut messages: Vec<u8>) {
        messages.append(&mut self.backlog);
        self.backlog = messages;
    }

    /// Returns the number of the next request.
    pub fn ask(&mut self, stage: Stage, now: Time) -> u32 {
        self.stage = stage;
        self.asked_at = now;
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Returns whether this is the answer that the client waits for.
    #[must_use]
    pub fn awaits(&self, number: u32) -> bool {
        self.stage != Stage::Settled && self.number == number
    }

    /// Returns the channels that the client listens to.
    #[must_use]
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Returns the names of the channels.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.channels
            .iter()
            .map(|channel| channel.to_vec())
            .collect()
    }

    /// Returns whether the client listens to nothing and waits for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.stage == Stage::Settled && !self.has_backlog()
    }

    /// Returns a LISTEN for each channel of the client.
    #[must_use]
    pub fn listen_commands(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for channel in &self.channels {
            command(&mut text, b"LISTEN ", channel);
        }
        text
    }

    /// Returns those of `names` that the client does not listen to, each once.
    #[must_use]
    pub fn channels_not_held(&self, names: &[Vec<u8>]) -> Vec<Channel> {
        let mut new: Vec<Channel> = Vec::new();
        for name in names {
            let is_known = |channel: &Channel| channel[..] == name[..];
            if !self.channels.iter().any(is_known) && !new.iter().any(is_known) {
                new.push(name.as_slice().into());
            }
        }
        new
    }

    /// Moves the client to another listener, since its encoding has changed. Returns the client's channels and those of
    /// `made`, for the new listener.
    pub fn move_to(&mut self, key: ListenerKey, made: &[Vec<u8>]) -> Vec<Channel> {
        let mut all = self.channels_not_held(made);
        let channels = std::mem::take(&mut self.channels);
        all.extend(channels.iter().map(Channel::clone));
        let before = std::mem::replace(&mut self.key, key);
        self.former = Some(Box::new((before, channels)));
        all
    }

    /// Takes the listener and the channels that the client has left, now that the new listener serves it.
    pub fn take_former(&mut self) -> Option<(ListenerKey, Vec<Channel>)> {
        self.former.take().map(|former| *former)
    }

    /// Cancels the move to another listener, since the new listener failed.
    pub fn cancel_move(&mut self) {
        if let Some((key, channels)) = self.take_former() {
            self.key = key;
            self.channels = channels;
        }
    }

    /// Adds channels that the client listens to from now on.
    pub fn add_channels(&mut self, channels: Vec<Channel>) {
        self.fresh_from = self.backlog.len();
        self.channels.extend(channels.iter().map(Channel::clone));
        self.fresh = channels;
    }

    /// Notes that a text has UNLISTEN, of one channel or of all.
    pub fn unlisten(&mut self, channel: Option<&[u8]>) {
        // The server knows whether this same transaction has listened to the channel.
        let listened =
            channel.map(|name| self.channels.iter().find(|listened| listened[..] == *name));
        match listened {
            None => self.pending_unlisten.note_unlisten(None),
            Some(None) => {}
            Some(listened) => self.pending_unlisten.note_unlisten(listened),
        }
    }

    /// Drops one channel or all, outside a transaction. Returns the channels that the client no longer listens to.
    pub fn drop_now(&mut self, channel: Option<&[u8]>) -> Vec<Channel> {
        let channels = std::mem::take(&mut self.channels);
        let (gone, kept) = channels
            .into_iter()
            .partition(|listened| channel.is_none_or(|name| listened[..] == *name));
        self.channels = kept;
        gone
    }

    /// Called when no transaction is open. Returns the channels that the client no longer listens to: those that
    /// UNLISTEN named, except the channels to which the server listens now (`made`), since a LISTEN has followed for
    /// these.
    pub fn take_dropped(&mut self, made: &[Vec<u8>]) -> Vec<Channel> {
        let dropped = self.pending_unlisten.take();
        let goes = |channel: &Channel| {
            dropped.has(channel) && !made.iter().any(|name| name[..] == channel[..])
        };
        let channels = std::mem::take(&mut self.channels);
        let (gone, kept) = channels.into_iter().partition(goes);
        self.channels = kept;
        gone
    }

    /// Keeps a notification from the listener for the end of the transaction.
    ///
    /// # Errors
    /// The backlog would be above `most` bytes.
    pub fn keep(&mut self, message: &[u8], most: usize) -> Result<(), Overflow> {
        if self.backlog.len() + message.len() > most {
            return Err(Overflow);
        }
        self.backlog.extend_from_slice(message);
        Ok(())
    }

    /// Returns whether the client gets this channel's notifications from its listener. Both the listener and the server
    /// may receive those of a new channel, until [settled](Listening::settle).
    #[must_use]
    pub fn receives(&self, channel: &[u8]) -> bool {
        let is_it = |one: &Channel| one[..] == *channel;
        self.channels.iter().any(is_it) && !self.fresh.iter().any(is_it)
    }

    /// Returns whether notifications wait to be sent.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Notes that all notifications sent before the last request have arrived.
    pub fn settle(&mut self) {
        self.stage = Stage::Settled;
    }

    /// Takes the notifications to send now. A notification on a new channel that both the client's server (`notified`,
    /// whole messages) and the listener have received is sent once.
    pub fn take_backlog(&mut self, notified: &[u8]) -> Vec<u8> {
        let fresh = std::mem::take(&mut self.fresh);
        let from = std::mem::take(&mut self.fresh_from);
        let backlog = std::mem::take(&mut self.backlog);
        if notified.is_empty() {
            return backlog;
        }
        let (before, since) = backlog.split_at(from.min(backlog.len()));
        let is_fresh = |message: &&[u8]| {
            Notification::parse(message)
                .is_some_and(|it| fresh.iter().any(|channel| channel[..] == *it.channel))
        };
        let direct: Vec<&[u8]> = messages(notified).collect();
        let from_listener: Vec<&[u8]> = messages(since).filter(is_fresh).collect();
        // Both received the notifications from the same queue of PostgreSQL. So the last notifications of one side are
        // the first ones of the other side.
        let most = direct.len().min(from_listener.len());
        let common = (0..=most)
            .rev()
            .find(|&n| are_same(&direct[direct.len() - n..], &from_listener[..n]));
        let only_direct = &direct[..direct.len() - common.unwrap_or(0)];
        [before, &only_direct.concat(), since].concat()
    }
}

/// Returns whether these are the same notifications.
fn are_same(direct: &[&[u8]], from_listener: &[&[u8]]) -> bool {
    let mut pairs = direct.iter().zip(from_listener);
    pairs.all(|(one, other)| Notification::are_same(one, other))
}

/// Splits a series of whole messages.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = Header::parse(bytes).ok()??.message_len();
        let message = bytes.get(..len)?;
        bytes = &bytes[len..];
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolId;

    fn listening(channels: &[&str]) -> Listening {
        let mut listening = Listening::new(ListenerKey {
            pool: PoolId(0),
            encoding: b"UTF8"[..].into(),
        });
        listening.add_channels(channels.iter().map(|name| name.as_bytes().into()).collect());
        listening.take_backlog(b"");
        listening
    }

    fn message(channel: &str, payload: &str) -> Vec<u8> {
        let body = format!("\0\0\0\x01{channel}\0{payload}\0");
        let mut message = vec![b'A'];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body.as_bytes());
        message
    }

    fn names(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    /// Checks which notifications a client that listens to `c` gets if its server receives `direct` and the listener
    /// `from_listener`.
    fn check(direct: &[&str], from_listener: &[&str], expect: &[&str]) {
        let mut listening = listening(&["other"]);
        listening.keep(&message("other", "before"), 9999).unwrap();
        let new = listening.channels_not_held(&names(&["c", "c", "other"]));
        assert_eq!(new, [Channel::from(&b"c"[..])]);
        let number = listening.ask(Stage::Asking(new.clone()), Time(1));
        assert!(listening.awaits(number));
        listening.add_channels(new);
        assert!(listening.receives(b"other") && !listening.receives(b"c"));
        for payload in from_listener {
            listening.keep(&message("c", payload), 9999).unwrap();
            listening.keep(&message("other", "x"), 9999).unwrap();
        }
        listening.ask(Stage::Fenced, Time(2));
        listening.settle();
        let direct: Vec<_> = direct.iter().map(|payload| message("c", payload)).collect();
        let taken = listening.take_backlog(&direct.concat());
        let taken: Vec<_> = messages(&taken)
            .filter_map(Notification::parse)
            .filter(|it| it.payload != b"x")
            .map(|it| String::from_utf8_lossy(it.payload).into_owned())
            .collect();
        assert_eq!(taken[0], "before");
        assert_eq!(taken[1..], *expect, "{direct:?} {from_listener:?}");
        assert!(!listening.has_backlog() && listening.receives(b"c"));
    }

    #[test]
    fn a_notification_that_both_received_is_sent_once() {
        check(&[], &[], &[]);
        check(&["1"], &[], &["1"]);
        check(&[], &["1"], &["1"]);
        check(&["1", "2"], &["2", "3"], &["1", "2", "3"]);
        check(&["1", "2", "3"], &["1", "2", "3"], &["1", "2", "3"]);
        check(&["1", "2"], &["3"], &["1", "2", "3"]);
        check(&["1", "1"], &["1", "2"], &["1", "1", "2"]);
    }

    #[test]
    fn a_backlog_is_bounded() {
        let mut listening = listening(&["c"]);
        let one = message("c", "payload");
        assert_eq!(listening.keep(&one, 2 * one.len()), Ok(()));
        assert_eq!(listening.keep(&one, 2 * one.len()), Ok(()));
        assert_eq!(listening.keep(&one, 2 * one.len()), Err(Overflow));
        assert_eq!(listening.take_backlog(b"").len(), 2 * one.len());
        assert_eq!(listening.keep(&one, 2 * one.len()), Ok(()));
    }

    #[test]
    fn unlisten() {
        let check = |said: &[Option<&str>], made: &[&str], expect: &[&str]| {
            let mut listening = listening(&["a", "b"]);
            for name in said {
                listening.unlisten(name.map(str::as_bytes));
            }
            listening.pending_unlisten.completed(b"UNLISTEN\0");
            let gone = listening.take_dropped(&names(made));
            let gone: Vec<_> = gone.iter().map(|c| String::from_utf8_lossy(c)).collect();
            assert_eq!(gone, expect, "{said:?} {made:?}");
            assert_eq!(listening.channels().len() + expect.len(), 2);
            assert!(listening.take_dropped(&[]).is_empty());
        };
        check(&[], &[], &[]);
        check(&[Some("a")], &[], &["a"]);
        check(&[Some("a"), Some("c"), Some("a")], &["b"], &["a"]);
        check(&[Some("a"), None], &[], &["a", "b"]);
        check(&[None, Some("a")], &["b"], &["a"]);
        let mut listening = listening(&["a"]);
        listening.unlisten(None);
        listening.pending_unlisten.completed(b"UNLISTEN\0");
        listening.pending_unlisten.failed();
        assert!(listening.take_dropped(&[]).is_empty());
    }
}
