//! The event loop of one worker, between the sockets and the core: events come in from epoll or io_uring, actions
//! come back from the core.

use std::{collections::VecDeque, io, mem, sync::Arc};

use pgweir_core::{
    Actions, AuthCheckResult, ReadMode, Time, Token, Worker, WorkerId, base::memory::Memory,
    frontend::MovedClient, mail::Mail,
};
use rand::{RngExt, rngs::StdRng};
use rustix::{
    event::epoll::{Event, EventFlags},
    io::Errno,
};
use slab::Slab;

use super::{
    Listeners, Mailboxes, NetOptions, WorkerMessage,
    accept::{Acceptor, Load},
    busy_meter::BusyMeter,
    io::{EncryptionBuffers, Io, Pending, Threads, Turn},
    logins::GONE,
    poller::{Key, Poller},
    pooler::Pooler,
    read::{end_after_error, peek_byte},
    ring::Ring,
    secure::{HANDSHAKE_STEPS_PER_TURN, SecureBuffers},
    send::Unsent,
    table::{Connection, Table},
    timers::{Timer, Timers},
};
use crate::{
    clock::Clock,
    control::{Request, Resolver, SlowWork},
    log::LogBuffer,
    otlp::TraceQueue,
    takeover::{Arriving, Outgoing},
};

/// The largest number of events that one wait returns.
const EVENTS_MAX: usize = 1024;
/// The time in microseconds for which log lines wait for more lines while events arrive.
const LOG_WAIT_US: u64 = 2_000;

/// The parts of the process that a worker's driver uses: clock, sockets, channels, log.
#[derive(Debug)]
pub(crate) struct DriverDependencies {
    pub(crate) id: WorkerId,
    pub(crate) clock: Clock,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) load: Load,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) options: Arc<NetOptions>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) slow_work: SlowWork,
    pub(crate) control: crossbeam_channel::Sender<Request>,
    /// Receives clients that leave for another process.
    pub(crate) departures: crossbeam_channel::Sender<Outgoing>,
    pub(crate) traces: TraceQueue,
    pub(crate) log: LogBuffer,
    /// The ring to wait with, instead of epoll.
    pub(crate) ring: Option<Box<Ring>>,
    /// The memory of all connections, where the worker publishes its own.
    pub(crate) memory: Arc<Memory>,
    /// The size of the read buffer in bytes.
    pub(crate) read_buffer: usize,
    /// The worker's source of salts, nonces and keys.
    pub(crate) random: StdRng,
}

/// One worker's event loop: waits for events, passes them to the core, and carries out its actions.
#[derive(Debug)]
pub(crate) struct Driver<P = Worker> {
    pub(super) pooler: P,
    pub(super) io: Io,
    /// The buffer into which every connection is read.
    pub(super) buffer: Box<[u8]>,
    pub(super) actions: Actions,
    pub(super) secure: SecureBuffers,
    pub(super) clock: Clock,
    memory: Arc<Memory>,
    busy_meter: BusyMeter,
    messages: Vec<WorkerMessage>,
    carried: Vec<Token>,
    /// When the oldest log line that is not written yet was collected.
    log_since: Option<Time>,
}

impl<P: Pooler> Driver<P> {
    /// Creates a driver that is ready to accept.
    ///
    /// # Errors
    /// When the process is out of file descriptors or memory.
    pub(crate) fn new(pooler: P, around: DriverDependencies) -> io::Result<Self> {
        let mut poller = Poller::new(around.ring)?;
        if let Some(wake_descriptor) = around.mailboxes.wake_descriptor(around.id) {
            poller.add_mailbox(wake_descriptor)?;
        }
        let mut io = Io {
            id: around.id,
            now: around.clock.now(),
            turn: Turn::default(),
            finished: false,
            poller,
            table: Table::default(),
            pending: VecDeque::new(),
            closing: Slab::new(),
            timers: Timers::default(),
            acceptor: Acceptor::new(around.listeners),
            load: around.load,
            random: around.random,
            options: around.options,
            threads: Threads {
                mailboxes: around.mailboxes,
                resolver: around.resolver,
                slow_work: around.slow_work,
                control: around.control,
                departures: around.departures,
                traces: around.traces,
            },
            log: around.log,
            encryption: EncryptionBuffers::default(),
        };
        io.resume_accepting();
        Ok(Self {
            pooler,
            io,
            buffer: vec![0; around.read_buffer].into_boxed_slice(),
            actions: Actions::default(),
            secure: SecureBuffers::default(),
            clock: around.clock,
            memory: around.memory,
            busy_meter: BusyMeter::new(around.clock.now()),
            messages: Vec::new(),
            carried: Vec::new(),
            log_since: None,
        })
    }

    /// Runs until the core reports that it has finished.
    ///
    /// # Errors
    /// When the poller fails, which only a bug can cause.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        // The events can't leave their thread, so they are not a part of the driver.
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.io.finished {
            self.turn(&mut events, None)?;
        }
        self.io.empty_outbox();
        self.io.log.flush();
        Ok(())
    }

    /// Waits once (for at most `patience_us`, if given) and processes all resulting events.
    pub(super) fn turn(
        &mut self,
        events: &mut Vec<Event>,
        patience_us: Option<u64>,
    ) -> io::Result<()> {
        mem::swap(&mut self.carried, &mut self.io.turn.carried);
        // This wait reports everything that arrived before it.
        let once_read = mem::take(&mut self.io.turn.once_read);
        let no_wait = (!once_read.is_empty()).then_some(0);
        let timeouts = self
            .timeout_us()
            .into_iter()
            .chain(patience_us)
            .chain(no_wait);
        let timeout = timeouts.min();
        let has_waited = self.wait(events, timeout)?;
        self.io.now = self.clock.now();
        self.io.turn.number = self.io.turn.number.wrapping_add(1);
        self.io.new_accept_turn();
        self.io.turn.handshake_steps = HANDSHAKE_STEPS_PER_TURN;
        // The results of the sends that were made with the wait.
        self.settle();
        for event in events.iter() {
            self.dispatch(Key::of(event), event.flags);
            self.settle();
        }
        let mut is_idle = has_waited && events.is_empty();
        if self.io.poller.is_ring() {
            is_idle &= !self.dispatch_completed()?;
        }
        self.serve_carried();
        self.serve_timers();
        if !once_read.is_empty() {
            self.send_once_read(once_read, events.len());
        }
        if self.io.turn.logins.are_due {
            // Queries do not wait for logins.
            self.io.empty_outbox();
            self.settle();
            self.serve_logins();
        }
        if let Some(busy) = self.busy_meter.measure(self.io.now) {
            self.call(|pooler, now, out| pooler.mail(Mail::Busy(busy), now, out));
            self.settle();
        }
        match self.io.log.is_empty() {
            true => self.log_since = None,
            false => self.flush_log(is_idle),
        }
        Ok(())
    }

    /// Makes the sends that wait, and waits for events if there were none of them. Returns whether it has waited.
    fn wait(&mut self, events: &mut Vec<Event>, timeout_us: Option<u64>) -> io::Result<bool> {
        // The ring costs less than a call for each send, but a single one is made without it.
        let sends = match self.io.sends_waiting() {
            1 => {
                self.io.empty_outbox();
                0
            }
            sends => sends,
        };
        match self.io.poller.wait(events, timeout_us) {
            Ok(()) if sends > 0 => self.io.empty_outbox(),
            Ok(()) => {}
            Err(error) => self.fall_back(error)?,
        }
        Ok(sends == 0)
    }

    /// Writes the collected log lines if `is_idle`: the wait has reported no events. Otherwise the lines wait for more
    /// lines, for at most [`LOG_WAIT_US`]: a login writes two lines, and a system call for each of them would take half
    /// as long as the login.
    fn flush_log(&mut self, is_idle: bool) {
        let since = *self.log_since.get_or_insert(self.io.now);
        if is_idle || self.io.now.since(since) >= LOG_WAIT_US {
            self.io.log.flush();
            self.log_since = None;
        }
    }

    /// Sends these messages when all events have been served that arrived before the messages were queued. A wait that
    /// returned [`EVENTS_MAX`] events may not have reported all of these events: then the messages are kept for the
    /// next turn.
    fn send_once_read(&mut self, letters: Vec<(WorkerId, Mail)>, events: usize) {
        match events < EVENTS_MAX {
            true => self.io.turn.logins.send_after_present(letters),
            false => self.io.turn.once_read.extend(letters),
        }
    }

    /// Passes one event to the core and carries out the resulting actions.
    pub(super) fn call(&mut self, event: impl FnOnce(&mut P, Time, &mut Actions)) {
        event(&mut self.pooler, self.io.now, &mut self.actions);
        self.io.execute(&mut self.actions, &[]);
    }

    /// Processes what the last event left pending, in order.
    pub(super) fn settle(&mut self) {
        while let Some(pending) = self.io.pending.pop_front() {
            self.handle(pending);
        }
    }

    fn timeout_us(&self) -> Option<u64> {
        if !self.carried.is_empty() || self.io.turn.logins.are_due || self.log_since.is_some() {
            return Some(0);
        }
        let due = self
            .pooler
            .next_tick()
            .into_iter()
            .chain(self.io.timers.next())
            .min()?;
        Some(due.since(self.io.now))
    }

    // Inlined for epoll's events, as it would be by itself if io_uring's did not need it, too.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, key: Key, flags: EventFlags) {
        match key {
            Key::Connection(token) => self.on_connection(token, flags),
            Key::Mailbox => self.empty_mailbox(),
            Key::Listener(index) => self.io.turn.logins.add_listener(index),
            Key::Closing(slot) => self.io.postpone_closing(slot),
        }
    }

    #[inline(always)]
    fn on_connection(&mut self, token: Token, flags: EventFlags) {
        let Some(connection) = self.io.table.get(token) else {
            return self.io.on_connecting(token, flags);
        };
        if connection.waits_for_queries(flags) {
            return self.io.postpone(token, flags);
        }
        if flags.contains(EventFlags::ERR)
            && let Some(why) = end_after_error(connection)
        {
            return self.end(token, why);
        }
        if flags.intersects(GONE) {
            connection.input.hung_up = true;
            connection.input.readable = true;
        } else if flags.contains(EventFlags::IN) {
            // Bytes that an earlier event of this turn has read already must not be reported again. io_uring reports
            // what arrived before this wait, and may have been read in the turn before.
            let since_read = self.io.turn.number.wrapping_sub(connection.input.turn);
            let maybe_read = since_read <= u32::from(self.io.poller.is_ring())
                && connection.mode != ReadMode::Deliver;
            connection.input.readable = !maybe_read || peek_byte(connection) != Err(Errno::AGAIN);
        }
        if flags.contains(EventFlags::OUT) && connection.output.unsent.is_some() {
            self.io.flush(token);
        }
        self.serve(token);
    }

    fn handle(&mut self, pending: Pending) {
        match pending {
            Pending::Serve(token) => self.serve(token),
            Pending::Peek(token) => self.peek(token),
            Pending::Blocked(token) if self.io.table.get(token).is_some() => {
                self.call(|pooler, now, out| pooler.blocked(token, now, out));
            }
            Pending::Drained(token) if self.io.table.get(token).is_some() => {
                self.call(|pooler, now, out| pooler.drained(token, now, out));
            }
            Pending::Connected {
                conn,
                local,
                remote,
            } if self.io.table.get(conn).is_some() => {
                let nonce = self.io.random.random();
                self.call(|pooler, now, out| {
                    pooler.connected(conn, local, remote, nonce, now, out);
                });
            }
            Pending::ConnectFailed(conn, why) => {
                if self.io.table.get_connecting(conn).is_some() {
                    self.io.remove(conn);
                    self.call(|pooler, now, out| pooler.connect_failed(conn, &why, now, out));
                }
            }
            Pending::Underived(token) => {
                self.call(|pooler, now, out| pooler.derive_refused(token, now, out));
            }
            Pending::Unanswered(token) => {
                let result = AuthCheckResult::Overloaded;
                self.call(|pooler, now, out| pooler.auth_checked(token, result, now, out));
            }
            Pending::Insecure(token, why) => self.broken(token, &why),
            Pending::Mail(mail) => self.call(|pooler, now, out| pooler.mail(mail, now, out)),
            // The connection was closed meanwhile.
            Pending::Blocked(_) | Pending::Drained(_) | Pending::Connected { .. } => {}
        }
    }

    fn empty_mailbox(&mut self) {
        let mut messages = mem::take(&mut self.messages);
        self.io.threads.mailboxes.take(self.io.id, &mut messages);
        for message in messages.drain(..) {
            self.handle_message(message);
            self.settle();
        }
        self.messages = messages;
    }

    fn handle_message(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Mail(mail) => {
                match &mail {
                    Mail::AddressesGone { host, gone } => self.io.retire_servers_at(host, gone),
                    Mail::ActiveWorkersChanged => self.io.update_accepting(),
                    _ => {}
                }
                self.call(|pooler, now, out| pooler.mail(mail, now, out));
            }
            WorkerMessage::Client(accepted_client) => self.receive_client(accepted_client),
            WorkerMessage::Server {
                server,
                connection,
                early,
            } => self.adopt(server, *connection, &early),
            WorkerMessage::MovedClient {
                client,
                connection,
                early,
            } => self.take_client(client, *connection, &early),
            WorkerMessage::Arrived(client) => self.arrive(client),
            WorkerMessage::Derived { conn, keys } => {
                self.call(|pooler, now, out| pooler.derived(conn, keys, now, out))
            }
            WorkerMessage::Found { conn, result } => {
                self.call(|pooler, now, out| pooler.auth_checked(conn, result, now, out))
            }
            WorkerMessage::Resolved { conn, result } => self.io.resolved(conn, result),
            WorkerMessage::Options(options) => self.io.options = options,
            WorkerMessage::AcceptOn(listeners) => self.io.accept_on(listeners),
        }
    }

    fn adopt(
        &mut self,
        server: Box<pgweir_core::backend::Server>,
        connection: Connection,
        early: &[u8],
    ) {
        let token = self.pooler.adopt(server, self.io.now, &mut self.actions);
        self.io.register(token, connection);
        self.io.keep_early(token, early);
        self.io.execute(&mut self.actions, &[]);
    }

    fn take_client(&mut self, client: Box<MovedClient>, connection: Connection, early: &[u8]) {
        let is_blocked = connection.output.unsent.is_some();
        let token = self
            .pooler
            .take_client(client, self.io.now, &mut self.actions);
        self.io.register(token, connection);
        self.io.keep_early(token, early);
        self.io.execute(&mut self.actions, &[]);
        if is_blocked {
            self.io.pending.push_back(Pending::Blocked(token));
        }
    }

    fn arrive(&mut self, client: Arriving) {
        let Arriving {
            record,
            fd,
            server,
            early,
            unsent,
            encryption,
        } = client;
        let blocked = !unsent.is_empty();
        let server_is_encrypted = record.server.as_ref().is_some_and(|own| own.tls.is_some());
        let mut connection = Connection::new(fd, ReadMode::Hold, true);
        connection.resume_tls(record.tls.is_some(), encryption.client.as_ref());
        if blocked {
            connection.output.unsent = Some(Box::new(Unsent::of(unsent)));
            connection.output.has_room = true;
        }
        let accepted_client =
            self.pooler
                .take_over_client(record, blocked, self.io.now, &mut self.actions);
        self.io.load.add(self.io.id);
        self.io.register(accepted_client.client, connection);
        if let Some((token, fd)) = accepted_client.server.zip(server) {
            let mut connection = Connection::new(fd, ReadMode::Hold, false);
            connection.resume_tls(server_is_encrypted, encryption.server.as_ref());
            self.io.register(token, connection);
            self.io.keep_early(token, &early);
        }
        self.io.execute(&mut self.actions, &[]);
    }

    fn serve_carried(&mut self) {
        let mut carried = mem::take(&mut self.carried);
        for token in carried.drain(..) {
            self.serve(token);
            self.settle();
        }
        self.carried = carried;
    }

    fn serve_timers(&mut self) {
        while let Some(timer) = self.io.timers.pop(self.io.now) {
            match timer {
                Timer::Linger { slot, serial } => self.io.on_linger_timer(slot, serial),
                Timer::Reconnect(token) => self.io.attempt(token),
                Timer::Stream(token) => self.on_stream_timer(token),
                Timer::Accept => self.io.resume_accepting(),
            }
            self.settle();
        }
        if self
            .pooler
            .next_tick()
            .is_some_and(|due| due <= self.io.now)
        {
            self.io.publish_memory(&self.memory);
            self.call(|pooler, now, out| pooler.tick(now, out));
            self.settle();
        }
    }
}
