//! Accepts new clients, a few per iteration of the event loop, and distributes them over the workers.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use pgweir_core::{
    Address, Level, LogLine, Peer, ReadMode, Time, TlsFacts, WorkerId,
    shared::worker_loads::WorkerLoads,
};
use rand::Rng;
use rustix::io::Errno;

use super::{
    Listeners, Mailboxes, WorkerMessage, driver::Driver, io::Io, listener::Listener,
    logins::sends_cancel_request, pooler::Pooler, table::Connection, timers::Timer,
};

/// The largest number of clients that are accepted in one turn: a burst of logins must not delay queries.
const ACCEPTS_PER_TURN: u32 = 64;
/// The number of events for which bursts stay small after one burst was too large.
const MODEST_EVENTS: u32 = 16;
/// The time in microseconds for which accepting pauses when descriptors have run out, unless a connection closes
/// before.
const REST_US: u64 = 250_000;
/// The shortest time in microseconds between two log messages about that.
const COMPLAINT_US: u64 = 60_000_000;

/// An accepted client on its way to the worker that will serve it.
#[derive(Debug)]
pub(crate) struct AcceptedClient {
    pub(super) fd: OwnedFd,
    pub(super) remote: Address,
    pub(super) local: Address,
    pub(super) port: u16,
    pub(super) same_uid: bool,
    pub(super) is_internal: bool,
    pub(super) uid: Option<u32>,
    pub(super) pid: u32,
    /// The TLS session by which the client came to another listener of this process.
    pub(super) tls: Option<Box<TlsFacts>>,
}

impl AcceptedClient {
    /// Creates a client of the console on a socket pair, through which this process itself gives commands.
    pub(crate) fn for_itself(fd: OwnedFd, port: u16) -> Self {
        Self {
            same_uid: true,
            is_internal: true,
            pid: std::process::id(),
            ..Self::for_unix(fd, Some(rustix::process::geteuid().as_raw()), port)
        }
    }

    /// Creates a client on a socket pair of this process, whose login is checked as that of a user on a Unix socket.
    pub(crate) fn for_unix(fd: OwnedFd, uid: Option<u32>, port: u16) -> Self {
        Self {
            fd,
            remote: Address::Unix,
            local: Address::Unix,
            port,
            same_uid: false,
            is_internal: false,
            uid,
            pid: 0,
            tls: None,
        }
    }

    /// Creates a client on a socket pair of this process, whose login is checked as that of a client with these remote
    /// and local addresses.
    pub(crate) fn for_tcp(
        fd: OwnedFd,
        (remote, local): (SocketAddr, SocketAddr),
        port: u16,
        tls: Option<TlsFacts>,
    ) -> Self {
        Self {
            remote: Address::Tcp(remote),
            local: Address::Tcp(local),
            tls: tls.map(Box::new),
            ..Self::for_unix(fd, None, port)
        }
    }
}

/// The number of clients of each worker (including those that are on their way to it), and the workers that take part.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    clients: Arc<[AtomicUsize]>,
    loads: Arc<WorkerLoads>,
}

impl Load {
    /// Creates counters for workers without clients.
    pub(crate) fn new(loads: &Arc<WorkerLoads>) -> Self {
        let workers = 0..loads.workers();
        Self {
            clients: workers.map(|_| AtomicUsize::new(0)).collect(),
            loads: Arc::clone(loads),
        }
    }

    /// Returns whether a worker takes part.
    fn takes_part(&self, worker: WorkerId) -> bool {
        self.loads.takes_part(worker)
    }

    /// Chooses the worker that should serve a client, of those that take part, and counts the client there. This worker
    /// serves the client if it takes part, unless it has an eighth (and at least two) more clients than the one with the
    /// fewest clients.
    fn place(&self, here: WorkerId) -> WorkerId {
        let active = self.clients.iter().take(self.loads.active());
        let counts = || active.clone().map(|count| count.load(Ordering::Relaxed));
        let mine = counts().nth(here.index()).unwrap_or(usize::MAX);
        let least = counts().enumerate().min_by_key(|(_, count)| *count);
        let place = match least {
            Some((index, least)) if mine >= least + (least / 8).max(2) => WorkerId(index as u8),
            _ => here,
        };
        if let Some(count) = self.clients.get(place.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Returns the number of clients of all workers.
    fn total(&self) -> usize {
        self.clients
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Passes a client that no worker has accepted to this worker.
    pub(crate) fn give(&self, client: AcceptedClient, worker: WorkerId, mailboxes: &Mailboxes) {
        self.add(worker);
        mailboxes.send(worker, WorkerMessage::Client(client));
    }

    /// Counts a client that arrived from another process.
    pub(super) fn add(&self, worker: WorkerId) {
        if let Some(count) = self.clients.get(worker.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Replaces one worker's part of the number of logins and disconnects that wait, at the end of a turn.
    pub(super) fn publish_waiting_logins(&self, before: usize, now: usize, used_up: bool) {
        self.loads.publish_waiting_logins(before, now, used_up);
    }

    #[cfg(test)]
    pub(super) fn login_delays(&self) -> (usize, u64) {
        self.loads.login_delays()
    }

    /// Counts a client as gone.
    pub(super) fn remove(&self, worker: WorkerId) {
        if let Some(count) = self.clients.get(worker.index()) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The listening sockets from which no client is accepted at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    None,
    /// The TCP sockets: the descriptors that are left are for servers, and for operators on a Unix socket.
    Tcp,
    All,
}

impl Rest {
    pub(super) fn covers(self, listener: &Listener) -> bool {
        match self {
            Self::None => false,
            Self::Tcp => listener.is_tcp(),
            Self::All => true,
        }
    }
}

/// A worker's state of accepting.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listeners: Arc<Listeners>,
    /// The number of attempts per event. The number grows while all attempts succeed.
    burst: u32,
    /// The number of events that bring one client each before the burst grows again: an attempt on an empty queue costs
    /// nearly as much as accepting.
    modest: u32,
    /// The rest of this turn's share.
    left: u32,
    pub(super) rest: Rest,
    /// Whether the core wants no clients.
    suspended: bool,
    complained: Option<Time>,
}

impl Acceptor {
    pub(super) fn new(listeners: Arc<Listeners>) -> Self {
        Self {
            listeners,
            burst: 1,
            modest: 0,
            left: 0,
            rest: Rest::All,
            suspended: false,
            complained: None,
        }
    }

    fn found_empty(&mut self) {
        self.burst = 1;
        self.modest = MODEST_EVENTS;
    }

    fn found_full(&mut self) {
        match self.modest.checked_sub(1) {
            Some(left) => self.modest = left,
            None => self.burst = (self.burst * 2).min(ACCEPTS_PER_TURN),
        }
    }
}

impl Io {
    /// Starts to watch the listening sockets, or starts again.
    pub(super) fn resume_accepting(&mut self) {
        if self.acceptor.suspended || !self.load.takes_part(self.id) {
            return;
        }
        let rest = std::mem::replace(&mut self.acceptor.rest, Rest::None);
        let listeners = Arc::clone(&self.acceptor.listeners);
        for (index, listener) in listeners.iter().enumerate() {
            if rest.covers(listener)
                && let Err(error) = self.poller.add_listener(listener, index as u32)
            {
                self.warn(format!("cannot watch {listener}: {error}"));
            }
        }
    }

    /// Accepts only on these sockets from now on.
    pub(super) fn accept_on(&mut self, listeners: Arc<Listeners>) {
        self.rest(Rest::All);
        self.acceptor.listeners = listeners;
        self.resume_accepting();
    }

    /// Leaves clients in the kernel's queue, or accepts them again.
    pub(super) fn set_accepting(&mut self, accept: bool) {
        self.acceptor.suspended = !accept;
        self.update_accepting();
    }

    /// Watches the listening sockets if the core wants clients and this worker takes part, and else leaves them to other
    /// workers.
    pub(super) fn update_accepting(&mut self) {
        if self.acceptor.suspended || !self.load.takes_part(self.id) {
            self.rest(Rest::All);
        } else {
            self.resume_accepting();
        }
    }

    /// Resets the share for a new turn.
    #[inline]
    pub(super) fn new_accept_turn(&mut self) {
        self.acceptor.left = ACCEPTS_PER_TURN;
    }

    fn rest(&mut self, rest: Rest) {
        let before = self.acceptor.rest;
        self.acceptor.rest = rest.max(before);
        let listeners = Arc::clone(&self.acceptor.listeners);
        for (index, listener) in listeners.iter().enumerate() {
            if rest.covers(listener) && !before.covers(listener) {
                self.poller.remove_listener(listener, index as u32);
            }
        }
        let is_watched = |index: u32| {
            let listener = listeners.get(index as usize);
            listener.is_some_and(|listener| !self.acceptor.rest.covers(listener))
        };
        self.turn.logins.retain_listeners(is_watched);
    }

    /// Pauses accepting, since further clients would take the descriptors that servers need.
    fn no_room(&mut self, clients: usize, listener: &Listener) {
        let why = format!(
            "{clients} clients are as many as the limit of open files allows besides servers"
        );
        let rest = match listener.is_tcp() {
            true => Rest::Tcp,
            false => Rest::All,
        };
        self.pause_accepting(rest, &why);
    }

    fn out_of_descriptors(&mut self, error: Errno) {
        let error = std::io::Error::from(error);
        self.pause_accepting(Rest::All, &format!("cannot accept clients: {error}"));
    }

    /// Pauses accepting: new clients wait in the kernel.
    fn pause_accepting(&mut self, rest: Rest, why: &str) {
        self.rest(rest);
        self.timers.add(self.now.after(REST_US), Timer::Accept);
        if self
            .acceptor
            .complained
            .is_none_or(|at| self.now.since(at) >= COMPLAINT_US)
        {
            self.acceptor.complained = Some(self.now);
            self.warn(format!(
                "{why}; new clients wait until others have left (more files: LimitNOFILE= in the systemd \
                 unit, or ulimit -n)"
            ));
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        self.log
            .line(self.now, &LogLine::new(Level::Warning, "", text));
    }
}

impl<P: Pooler> Driver<P> {
    /// Accepts clients of a listening socket until the time `until`, but at least one. The socket is level-triggered:
    /// the remaining clients are reported again.
    pub(super) fn accept(&mut self, index: u32, until: Time) {
        self.accept_some(index, until);
        self.io.poller.rearm_listener(index);
    }

    fn accept_some(&mut self, index: u32, until: Time) {
        let listeners = Arc::clone(&self.io.acceptor.listeners);
        let Some(listener) = listeners.get(index as usize) else {
            return;
        };
        let burst = match self.io.turn.logins.are_waiting() {
            // There may be a cancel request among them, which should not wait for logins. With still more, logins would
            // wait for too long.
            true => self
                .io
                .turn
                .logins
                .room_for_clients()
                .min(2 * self.io.acceptor.left),
            false => self.io.acceptor.burst.min(self.io.acceptor.left),
        };
        for _ in 0..burst {
            if let Some(max) = self.io.options.clients_max
                && self.io.load.total() >= max + listener.spare_places()
            {
                return self.io.no_room(max, listener);
            }
            match listener.accept() {
                Ok(accepted_client) => {
                    self.io.acceptor.left = self.io.acceptor.left.saturating_sub(1);
                    self.place(accepted_client);
                    if self.clock.now() >= until {
                        self.io.turn.logins.has_left_clients = true;
                        return;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.io.turn.logins.has_left_clients = false;
                    return self.io.acceptor.found_empty();
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return self.io.out_of_descriptors(error);
                }
                // The client is gone already; the kernel has many errors for that.
                Err(_) => {}
            }
        }
        self.io.acceptor.found_full();
    }

    /// Starts to serve a new client of this worker.
    pub(super) fn admit(&mut self, accepted_client: AcceptedClient) {
        let AcceptedClient {
            fd,
            remote,
            local,
            port,
            same_uid,
            is_internal,
            uid,
            pid,
            tls,
        } = accepted_client;
        let mut peer = Peer {
            remote,
            local,
            port,
            same_uid,
            is_internal,
            uid,
            pid,
            entropy: [0; 64],
        };
        self.io.random.fill_bytes(&mut peer.entropy);
        let token = self.pooler.accepted(&peer, self.io.now, &mut self.actions);
        if let Some(facts) = tls {
            self.pooler.note_client_tls(token, *facts);
        }
        let mut connection = Connection::new(fd, ReadMode::Deliver, true);
        // The kernel reported the connection with its first bytes: no further event is needed to read them.
        let has_spoken = self.io.options.socket.defer_accept && matches!(remote, Address::Tcp(_));
        connection.input.readable = has_spoken;
        connection.logs_in = true;
        self.io.register(token, connection);
        self.io.execute(&mut self.actions, &[]);
        if has_spoken {
            self.io.queue(token);
        }
    }

    /// Takes a client that another worker has accepted.
    pub(super) fn receive_client(&mut self, accepted_client: AcceptedClient) {
        let logins = &mut self.io.turn.logins;
        if logins.are_waiting() && sends_cancel_request(&accepted_client.fd) {
            self.admit(accepted_client);
        } else {
            logins.add_client(accepted_client);
        }
    }

    /// Serves a new client, or passes it to another worker. If other logins wait, a client with a cancel request is served
    /// at once, and each other one waits.
    fn place(&mut self, accepted_client: AcceptedClient) {
        let others_wait = self.io.turn.logins.are_waiting();
        if others_wait && sends_cancel_request(&accepted_client.fd) {
            self.io.load.add(self.io.id);
            self.admit(accepted_client);
            return self.settle();
        }
        let worker = self.io.load.place(self.io.id);
        if worker == self.io.id && others_wait {
            self.io.turn.logins.add_client(accepted_client);
        } else if worker == self.io.id {
            self.admit(accepted_client);
            self.settle();
        } else {
            self.io
                .threads
                .mailboxes
                .send(worker, WorkerMessage::Client(accepted_client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_go_to_the_least_loaded_worker_when_the_skew_is_too_large() {
        let load = Load::new(&Arc::new(WorkerLoads::new(2, 0)));
        let places: Vec<_> = (0..6).map(|_| load.place(WorkerId(0)).0).collect();
        assert_eq!(places, [0, 0, 1, 0, 1, 0]);
        load.remove(WorkerId(1));
        assert_eq!(load.place(WorkerId(0)), WorkerId(1));
    }

    #[test]
    fn clients_go_to_workers_that_take_part() {
        let loads = Arc::new(WorkerLoads::new(3, 600));
        let load = Load::new(&loads);
        let places = || [2, 0, 1, 0].map(|here| load.place(WorkerId(here)).0);
        assert_eq!(places(), [0, 0, 0, 0]);
        loads.report(WorkerId(0), 900, 600, Time(1_000_000));
        assert_eq!(places(), [1, 1, 1, 0]);
    }
}
