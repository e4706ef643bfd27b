//! Logins and disconnects, which wait until the worker has served the queries of a turn of its event loop.
//!
//! A step of a login takes as long as several transactions, and a thousand clients may log in or disconnect at once. So
//! in each turn, the worker first serves the servers, and the clients that have logged in. Events of clients that are
//! logging in, disconnects of idle clients, and new clients are postponed to the end of the turn, where they get the
//! time of `login_slice`. The rest waits for the next turn.
//!
//! A cancel request is cheap, and its client waits for the end of a query. So while logins wait, new clients are accepted
//! without being served, and cancel requests among them come before all logins. A cancel request over TLS looks
//! like any login over TLS, and waits with these.

use std::{collections::VecDeque, mem, os::fd::AsFd};

use pgweir_core::{Action, ReadMode, Time, Token, WorkerId, mail::Mail};
use pgweir_wire::is_cancel_request;
use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    accept::AcceptedClient,
    driver::Driver,
    io::Io,
    poller::Key,
    pooler::Pooler,
    read::{end_after_error, peek_byte},
    table::Connection,
};

/// The flags of a connection that the peer has closed, or that has failed.
pub(super) const GONE: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// The largest number of clients that are accepted before they can be served.
const ACCEPTED_MAX: usize = 1024;

/// The postponed events of a connection. Each variant includes the variants before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Postponed {
    /// No event is postponed.
    #[default]
    Nothing,
    Readable,
    HungUp,
    Failed,
}

/// The logins and disconnects of a worker that wait for the end of a turn.
#[derive(Debug, Default)]
pub(super) struct WaitingLogins {
    /// Whether anything waits. If so, the worker must not sleep.
    pub(super) are_due: bool,
    /// Connections with a postponed event, each once, and connections that are being closed.
    queue: VecDeque<Key>,
    /// Connections with a cancel request, which come before all others.
    cancel_requests: VecDeque<Token>,
    /// Clients that this worker, or another one, has accepted, and that are not served yet.
    clients: VecDeque<AcceptedClient>,
    /// Listening sockets that have reported new clients.
    listeners: Vec<u32>,
    /// Whether the time was used up before all new clients were accepted.
    pub(super) has_left_clients: bool,
    /// The number of entries that have left the queue so far.
    taken: u64,
    /// Messages, and the value of `taken` at which they are sent.
    letters: VecDeque<(u64, Vec<(WorkerId, Mail)>)>,
    /// The number of waiting logins and disconnects that was published last.
    published: usize,
}

impl WaitingLogins {
    /// Returns whether a new login has to wait for others.
    pub(super) fn are_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.clients.is_empty() || self.has_left_clients
    }

    /// Returns how many more clients may be accepted before they can be served.
    pub(super) fn room_for_clients(&self) -> u32 {
        ACCEPTED_MAX.saturating_sub(self.clients.len()) as u32
    }

    /// Adds a client that was accepted.
    pub(super) fn add_client(&mut self, client: AcceptedClient) {
        self.clients.push_back(client);
        self.are_due = true;
    }

    /// Adds a listening socket that has reported new clients.
    pub(super) fn add_listener(&mut self, index: u32) {
        if !self.listeners.contains(&index) {
            self.listeners.push(index);
            self.are_due = true;
        }
    }

    /// Forgets listening sockets that this worker does not watch any more.
    pub(super) fn retain_listeners(&mut self, keep: impl Fn(u32) -> bool) {
        self.listeners.retain(|&index| keep(index));
    }

    fn add(&mut self, key: Key) {
        self.queue.push_back(key);
        self.are_due = true;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    fn take(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.taken += 1;
        Some(key)
    }

    /// Keeps messages until all events that are postponed now have been served.
    pub(super) fn send_after_present(&mut self, letters: Vec<(WorkerId, Mail)>) {
        let target = self.taken + self.queue.len() as u64;
        self.letters.push_back((target, letters));
        self.are_due = true;
    }

    /// Returns the next messages that are due.
    fn due_letters(&mut self) -> Option<Vec<(WorkerId, Mail)>> {
        let (target, _) = self.letters.front()?;
        match *target <= self.taken && self.cancel_requests.is_empty() {
            true => self.letters.pop_front().map(|(_, letters)| letters),
            false => None,
        }
    }
}

impl Connection {
    /// Returns whether an event of this connection is postponed: the client is logging in, or an idle client has
    /// disconnected.
    #[inline]
    pub(super) fn waits_for_queries(&self, flags: EventFlags) -> bool {
        self.logs_in || (flags.intersects(GONE) && self.client && self.mode == ReadMode::Notify)
    }
}

impl Io {
    /// Postpones an event of a client. If the client can receive again, unsent bytes are written at once.
    pub(super) fn postpone(&mut self, token: Token, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush(token);
        }
        let what = if flags.contains(EventFlags::ERR) {
            Postponed::Failed
        } else if flags.intersects(GONE) {
            Postponed::HungUp
        } else if flags.contains(EventFlags::IN) {
            Postponed::Readable
        } else {
            return;
        };
        let Some(connection) = self.table.get(token) else {
            return;
        };
        let before = connection.postponed;
        connection.postponed = before.max(what);
        if before != Postponed::Nothing {
            return;
        }
        let logins = &mut self.turn.logins;
        let may_be_cancel_request = connection.logs_in && connection.input.turn == 0;
        if may_be_cancel_request && logins.are_waiting() && sends_cancel_request(&connection.fd) {
            logins.cancel_requests.push_back(token);
            logins.are_due = true;
        } else {
            logins.add(Key::Connection(token));
        }
    }

    /// Postpones an event of a connection that is being closed.
    pub(super) fn postpone_closing(&mut self, slot: u32) {
        if let Some(lingering) = self.closing.get_mut(slot as usize)
            && !mem::replace(&mut lingering.is_postponed, true)
        {
            self.turn.logins.add(Key::Closing(slot));
        }
    }

    /// Notes that a client has logged in: from now on, its events are served with those of other clients.
    pub(super) fn end_login(&mut self, token: Token) {
        if let Some(connection) = self.table.get(token) {
            connection.logs_in = false;
        }
    }

    /// Publishes how many logins and disconnects wait at the end of a turn. `used_up`: they have used up their time in
    /// this turn.
    fn publish_waiting_logins(&mut self, used_up: bool) {
        let logins = &mut self.turn.logins;
        let waiting = logins.queue.len() + logins.clients.len() + logins.cancel_requests.len();
        let before = mem::replace(&mut logins.published, waiting);
        if used_up || waiting != before {
            self.load.publish_waiting_logins(before, waiting, used_up);
        }
    }
}

impl<P: Pooler> Driver<P> {
    /// Serves logins and disconnects until their time in this turn is used up. Serves at least one event.
    pub(super) fn serve_logins(&mut self) {
        let used_up = self.serve_waiting_logins();
        while let Some(letters) = self.io.turn.logins.due_letters() {
            self.send_letters(letters);
        }
        let logins = &mut self.io.turn.logins;
        logins.are_due = !logins.queue.is_empty()
            || !logins.clients.is_empty()
            || !logins.cancel_requests.is_empty()
            || !logins.listeners.is_empty();
        self.io.publish_waiting_logins(used_up);
    }

    /// Returns whether the time was used up.
    fn serve_waiting_logins(&mut self) -> bool {
        let began = self.clock.now();
        // If the queries have taken longer than the slice, logins get as much time as the queries. With the slice
        // alone, they would get only a small part of the time.
        let share = match self.io.options.login_slice_us {
            0 => 0,
            slice => began.since(self.io.now).max(slice),
        };
        self.io.now = began;
        let until = began.after(share);
        if self.serve_cancel_requests(until) {
            return true;
        }
        if self.io.turn.logins.are_waiting() && self.io.turn.logins.room_for_clients() > 0 {
            // Accepting a client takes about half as long as its login, and a cancel request may come after many logins.
            let until = began.after(share / 3 * 2);
            for index in mem::take(&mut self.io.turn.logins.listeners) {
                self.accept(index, until);
            }
        }
        while let Some(key) = self.io.turn.logins.take() {
            match key {
                Key::Connection(token) => self.serve_postponed(token),
                Key::Closing(slot) => self.io.on_closing(slot, &mut self.buffer),
                Key::Listener(_) | Key::Mailbox => {}
            }
            self.settle();
            if self.clock.now() >= until {
                return true;
            }
        }
        while let Some(client) = self.io.turn.logins.clients.pop_front() {
            self.admit(client);
            self.settle();
            if self.clock.now() >= until {
                return true;
            }
        }
        while let Some(index) = self.io.turn.logins.listeners.pop() {
            self.accept(index, until);
            if self.clock.now() >= until {
                return true;
            }
        }
        false
    }

    /// Returns whether the time was used up.
    fn serve_cancel_requests(&mut self, until: Time) -> bool {
        while let Some(token) = self.io.turn.logins.cancel_requests.pop_front() {
            self.serve_postponed(token);
            self.settle();
            if self.clock.now() >= until {
                return true;
            }
        }
        false
    }

    fn serve_postponed(&mut self, token: Token) {
        let Some(connection) = self.io.table.get(token) else {
            return;
        };
        match mem::take(&mut connection.postponed) {
            Postponed::Nothing => return,
            // The bytes may have been read after the event.
            Postponed::Readable => {
                connection.input.readable |= connection.mode == ReadMode::Deliver
                    || peek_byte(connection) != Err(Errno::AGAIN);
            }
            what => {
                if what == Postponed::Failed
                    && let Some(why) = end_after_error(connection)
                {
                    return self.end(token, why);
                }
                connection.input.hung_up = true;
                connection.input.readable = true;
            }
        }
        self.serve(token);
    }

    fn send_letters(&mut self, letters: Vec<(WorkerId, Mail)>) {
        for (to, mail) in letters {
            let mail = Box::new(mail);
            self.actions.list.push(Action::Mail { to, mail });
        }
        self.io.execute(&mut self.actions, &[]);
        self.settle();
    }
}

/// Returns whether a client that has just connected has sent a cancel request. Its bytes stay in the socket.
pub(super) fn sends_cancel_request(fd: impl AsFd) -> bool {
    let mut head = [0; 8];
    let peeked = recv(&fd, &mut head, RecvFlags::PEEK);
    peeked.is_ok() && is_cancel_request(&head)
}
