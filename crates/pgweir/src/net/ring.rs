//! A wrapper of io_uring. Each worker has one ring.
//!
//! Sockets are watched by polls that stay in force. For a server that has sent a few short messages, the ring has a
//! receive instead: the kernel puts the bytes into buffers of this ring, which saves a call for each message. A
//! connection never has both a poll and a receive, so its bytes keep their order. The receive ends, and a poll takes its place
//! again, when the core wants no bytes of the server, when large messages arrive, or when no buffer is left.
//!
//! Input: descriptors to watch, and requests to receive. Output: [`Completed`] events.
//!
//! A request keeps a socket open after its descriptor was closed. So the owner of a descriptor calls
//! [`forget`](Ring::forget) before closing it. Each request has a number, by which a late completion of an earlier
//! request about the same descriptor is recognized.

mod buffers;
mod outbox;
mod queue;
mod request;

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

use io_uring::{cqueue, opcode, squeue, types};
use pgweir_core::{Token, shared::occupancy::RingCounts};
use rustix::event::epoll::EventFlags;

use self::{
    buffers::{Buffers, GROUP},
    queue::{QUEUE_BYTES, Queue, ROUNDS_MAX},
    request::{
        CANCEL, Completion, DONE, POLL, RECEIVE, SLOT_MAX, filled, is_restart, next_number,
        refusal, request, subject,
    },
};
pub(super) use self::{
    outbox::{Outbox, Unfinished},
    request::Filled,
};
use super::poller::Key;

/// The way in which a subject is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Idle,
    Polled,
    /// The kernel receives bytes as they arrive.
    Receiving,
    /// The receive is being cancelled.
    Stopping,
}

/// The request for one subject.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    generation: u32,
    fd: RawFd,
    /// The number of the present request.
    number: u8,
    state: State,
    /// Whether room to write is reported.
    outgoing: bool,
}

/// The meaning of a completion.
#[derive(Debug)]
pub(super) enum Completed {
    /// The subject's state has changed.
    Ready(Key, EventFlags),
    /// Bytes of a connection are in this buffer.
    Received(Token, Filled),
    /// The connection has failed.
    Broken(Token, io::Error),
    /// The kernel refuses a request: another poller is needed.
    Refused(io::Error),
}

/// One ring, with the state of its requests.
pub(crate) struct Ring {
    queue: Queue,
    /// `None` only while the ring is dropped.
    buffers: Option<Buffers>,
    connections: Vec<Watch>,
    closing: Vec<Watch>,
    listeners: Vec<Watch>,
    mailbox: Watch,
    /// The number of receives that have not completed.
    receiving: usize,
    counts: Arc<RingCounts>,
    pub(super) outbox: Outbox,
}

impl Ring {
    /// Creates a ring with so many buffers, a power of two, for the thread that calls [`wait`](Self::wait) first. As many
    /// sends may wait for the next call.
    ///
    /// # Errors
    /// When the kernel lacks a feature, forbids io_uring, or is short of memory.
    pub(crate) fn new(buffers: u16, counts: &Arc<RingCounts>) -> io::Result<Self> {
        let queue = Queue::new()?;
        let registered = Buffers::register(&queue.submitter(), buffers)?;
        counts.begun(registered.count());
        Ok(Self {
            queue,
            buffers: Some(registered),
            connections: Vec::new(),
            closing: Vec::new(),
            listeners: Vec::new(),
            mailbox: Watch::default(),
            receiving: 0,
            counts: Arc::clone(counts),
            outbox: Outbox::new(buffers),
        })
    }

    /// Watches a subject.
    ///
    /// # Errors
    /// When there are more connections than the ring can name.
    pub(super) fn watch(&mut self, fd: BorrowedFd<'_>, key: Key, outgoing: bool) -> io::Result<()> {
        let token = key.to_token();
        if token.slot > SLOT_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let watch = self.slot(key);
        watch.generation = token.generation;
        watch.fd = fd.as_raw_fd();
        watch.outgoing = outgoing;
        self.poll(key);
        Ok(())
    }

    /// Reports room to write on a connection from now on.
    pub(super) fn watch_for_room(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        let Some(watch) = self.find(key) else {
            return self.watch(fd, key, true);
        };
        watch.outgoing = true;
        watch.fd = fd.as_raw_fd();
        match watch.state {
            // The poll that follows the receive reports room, too.
            State::Receiving | State::Stopping => self.stop_receiving(key),
            State::Idle | State::Polled => {
                self.cancel(key);
                self.poll(key);
            }
        }
        Ok(())
    }

    /// Ends the watch of a subject. Later completions of its requests are dropped.
    pub(super) fn forget(&mut self, key: Key) {
        let Some(watch) = self.find(key) else {
            return;
        };
        let was = mem::take(&mut watch.state);
        watch.fd = -1;
        if was == State::Idle {
            return;
        }
        let receive = was != State::Polled;
        let data = request(key, if receive { RECEIVE } else { POLL }, watch.number);
        watch.number = next_number(watch.number);
        self.push_cancel(data);
        if receive {
            // A receive that is still queued must not read from the next socket with this descriptor.
            self.queue.submit();
        }
    }

    /// Ends the watch of a connection that goes elsewhere. Returns the bytes that were received, but not reported.
    ///
    /// # Errors
    /// The error of the connection, or of the ring if it can't tell what was received.
    pub(super) fn detach(&mut self, key: Key) -> io::Result<Vec<u8>> {
        let mut early = Vec::new();
        self.stop_receiving(key);
        let Some(watch) = self.find(key) else {
            return Ok(early);
        };
        if watch.state != State::Stopping {
            self.forget(key);
            return Ok(early);
        }
        let data = request(key, RECEIVE, watch.number);
        let mut outcome = Ok(());
        let (mut looked, mut failure) = (0, None);
        loop {
            while let Some(completion) = self.queue.completions.get_mut(looked) {
                looked += 1;
                if completion.data != data {
                    continue;
                }
                let found = *completion;
                completion.data = DONE;
                if let Some(filled) = filled(found) {
                    self.take(filled, |bytes| early.extend_from_slice(bytes));
                }
                if found.result < 0 && !is_restart(found.result) {
                    outcome = Err(io::Error::from_raw_os_error(-found.result));
                }
                if !cqueue::more(found.flags) {
                    self.receiving = self.receiving.saturating_sub(1);
                    self.slot(key).state = State::Idle;
                    return outcome.map(|()| early);
                }
            }
            if let Some(error) = failure {
                return self.detach_unconfirmed(key, error).map(|()| early);
            }
            failure = self.queue.enter(1, None).err();
            self.queue.reap();
        }
    }

    /// Ends the watch of a connection although the kernel has not confirmed that. Nothing is received before the next
    /// call of the ring, which the cancellation precedes.
    ///
    /// # Errors
    /// The given one, if bytes of the connection may be lost.
    fn detach_unconfirmed(&mut self, key: Key, error: io::Error) -> io::Result<()> {
        let watch = self.slot(key);
        watch.state = State::Idle;
        watch.number = next_number(watch.number);
        if self.queue.has_lost_completions() {
            return Err(error);
        }
        self.queue.failed = Some(error);
        Ok(())
    }

    /// Lets the kernel receive the bytes of a connection whose socket is empty.
    pub(super) fn receive(&mut self, key: Key) {
        let Some(watch) = self.find(key) else {
            return;
        };
        if watch.state != State::Polled {
            return;
        }
        self.cancel(key);
        let watch = self.slot(key);
        watch.outgoing = false;
        watch.state = State::Receiving;
        watch.number = next_number(watch.number);
        let entry = opcode::RecvMulti::new(types::Fd(watch.fd), GROUP).build();
        let data = request(key, RECEIVE, watch.number);
        self.receiving += 1;
        self.queue.push(&entry.user_data(data));
    }

    /// Returns whether a connection is received from: then it must not be read otherwise.
    pub(super) fn is_receiving(&mut self, key: Key) -> bool {
        self.find(key)
            .is_some_and(|watch| matches!(watch.state, State::Receiving | State::Stopping))
    }

    /// Ends a receive. Bytes that have arrived are still reported; then the connection is polled, and an event follows.
    pub(super) fn stop_receiving(&mut self, key: Key) {
        let Some(watch) = self.find(key) else {
            return;
        };
        if watch.state != State::Receiving {
            return;
        }
        watch.state = State::Stopping;
        let data = request(key, RECEIVE, watch.number);
        self.push_cancel(data);
    }

    /// Counts that the worker goes on with epoll.
    pub(super) fn count_failure(&self) {
        self.counts.failed();
    }

    /// Passes received bytes to `use_bytes`, and gives the buffer back.
    pub(super) fn take<T>(&mut self, filled: Filled, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        match &mut self.buffers {
            Some(buffers) => buffers.take(filled.id, filled.length, use_bytes),
            None => use_bytes(&[]),
        }
    }

    /// Returns the bytes of memory of the ring: queues, buffers, and the states of watches.
    pub(super) fn bytes(&self) -> usize {
        let watches =
            self.connections.capacity() + self.closing.capacity() + self.listeners.capacity();
        let completions = self.queue.completions.capacity() * size_of::<Completion>();
        let buffers = self.buffers.as_ref().map_or(0, Buffers::bytes);
        QUEUE_BYTES + buffers + self.outbox.bytes() + watches * size_of::<Watch>() + completions
    }

    /// Returns the next event.
    pub(super) fn next(&mut self) -> Option<Completed> {
        loop {
            let completion = self.queue.completions.pop_front()?;
            let completed = match (completion.data as u32) >> 30 {
                POLL => self.polled(completion),
                RECEIVE => self.received(completion),
                CANCEL => refusal(completion.result).map(Completed::Refused),
                _ => None,
            };
            if completed.is_some() {
                return completed;
            }
        }
    }

    /// Submits all requests, and waits for a completion. Makes the sends of the outbox, and does not wait if there are
    /// any: what has arrived meanwhile is served first.
    ///
    /// # Errors
    /// When the kernel is short of memory, or has lost a completion. It may not have made all sends of the outbox then.
    pub(super) fn wait(&mut self, timeout_us: Option<u64>) -> io::Result<()> {
        let timeout_us = match self.outbox.submit(&mut self.queue) {
            true => Some(0),
            false => timeout_us,
        };
        self.queue.wait(timeout_us)?;
        for _ in 0..ROUNDS_MAX {
            if self.outbox.complete(&mut self.queue) {
                return Ok(());
            }
            self.queue.enter(0, None)?;
            self.queue.reap();
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Returns the outbox with all results, before the ring is dropped. Sends without a result will not be made.
    pub(super) fn take_outbox(&mut self) -> Outbox {
        if !self.outbox.complete(&mut self.queue) {
            self.queue.abandon();
        }
        mem::take(&mut self.outbox)
    }

    /// Cancels all requests, and waits until every receive has completed: its bytes are reported by
    /// [`next`](Self::next).
    ///
    /// # Errors
    /// When the kernel does not complete them.
    pub(super) fn cancel_all(&mut self) -> io::Result<()> {
        for _ in 0..ROUNDS_MAX {
            self.queue.cancel_all()?;
            if self.receiving <= self.ended_receives() {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Returns whether the kernel had no memory for a completion, which may have reported bytes.
    pub(super) fn has_lost_completions(&mut self) -> bool {
        self.queue.has_lost_completions()
    }

    fn polled(&mut self, completion: Completion) -> Option<Completed> {
        let (key, number) = subject(completion.data);
        let watch = self.find(key)?;
        if watch.number != number || watch.state != State::Polled {
            return None;
        }
        if !cqueue::more(completion.flags) {
            watch.state = State::Idle;
        }
        if completion.result < 0 {
            let error = io::Error::from_raw_os_error(-completion.result);
            return Some(Completed::Refused(error));
        }
        if watch.state == State::Idle && !matches!(key, Key::Listener(_)) {
            self.poll(key);
        }
        let flags = EventFlags::from_bits_truncate(completion.result as u32);
        Some(Completed::Ready(key, flags))
    }

    fn received(&mut self, completion: Completion) -> Option<Completed> {
        let (key, number) = subject(completion.data);
        let has_ended = !cqueue::more(completion.flags);
        self.receiving = self.receiving.saturating_sub(usize::from(has_ended));
        let filled = filled(completion);
        let is_known = self.find(key).is_some_and(|watch| {
            watch.number == number && matches!(watch.state, State::Receiving | State::Stopping)
        });
        let (true, Key::Connection(token)) = (is_known, key) else {
            if let Some(filled) = filled {
                self.take(filled, |_| ());
            }
            return None;
        };
        if has_ended {
            self.poll(key);
        }
        match filled {
            Some(filled) if filled.length > 0 => {
                return Some(Completed::Received(token, filled));
            }
            Some(empty) => self.take(empty, |_| ()),
            None => {}
        }
        match completion.result {
            error if error == -libc::ENOBUFS => {
                self.counts.note_missing_buffer();
                Some(Completed::Ready(key, EventFlags::empty()))
            }
            // The poll reports the end, or more bytes.
            0.. => Some(Completed::Ready(key, EventFlags::empty())),
            error if is_restart(error) => Some(Completed::Ready(key, EventFlags::empty())),
            error => {
                let error = io::Error::from_raw_os_error(-error);
                Some(Completed::Broken(token, error))
            }
        }
    }

    /// Watches a listening socket again, after its clients were accepted.
    pub(super) fn rearm(&mut self, key: Key) {
        if self
            .find(key)
            .is_some_and(|watch| watch.state == State::Idle && watch.fd >= 0)
        {
            self.poll(key);
        }
    }

    fn poll(&mut self, key: Key) {
        let watch = self.slot(key);
        watch.state = State::Polled;
        watch.number = next_number(watch.number);
        let (events, is_multi) = match key {
            // A listening socket is reported once. After its clients were accepted, the watch is renewed, so that
            // remaining clients are reported again, as with a level-triggered watch. The watch is not exclusive, so the
            // kernel wakes all workers: the kernel ends the ring of a killed process some time after the process, and
            // until then an exclusive watch of that ring could take the only wake-up.
            Key::Listener(_) => (EventFlags::IN, false),
            Key::Mailbox => (EventFlags::IN, true),
            Key::Connection(_) | Key::Closing(_) if watch.outgoing => {
                (EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT, true)
            }
            Key::Connection(_) | Key::Closing(_) => (EventFlags::IN | EventFlags::RDHUP, true),
        };
        let entry = opcode::PollAdd::new(types::Fd(watch.fd), events.bits()).multi(is_multi);
        let data = request(key, POLL, watch.number);
        self.queue.push(&entry.build().user_data(data));
    }

    /// Cancels the poll of a subject.
    fn cancel(&mut self, key: Key) {
        let watch = self.slot(key);
        if watch.state == State::Polled {
            let data = request(key, POLL, watch.number);
            watch.state = State::Idle;
            self.push_cancel(data);
        }
    }

    fn push_cancel(&mut self, data: u64) {
        let entry = opcode::AsyncCancel::new(data).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        self.queue.push(&entry.user_data(u64::from(CANCEL << 30)));
    }

    /// Returns the number of reaped completions that end a receive.
    fn ended_receives(&self) -> usize {
        let ended = self
            .queue
            .completions
            .iter()
            .filter(|one| (one.data as u32) >> 30 == RECEIVE && !cqueue::more(one.flags));
        ended.count()
    }

    fn find(&mut self, key: Key) -> Option<&mut Watch> {
        let token = key.to_token();
        let watches = match key {
            Key::Connection(_) => &mut self.connections,
            Key::Closing(_) => &mut self.closing,
            Key::Listener(_) => &mut self.listeners,
            Key::Mailbox => return Some(&mut self.mailbox),
        };
        watches
            .get_mut(token.slot as usize)
            .filter(|watch| watch.generation == token.generation)
    }

    /// Returns the watch of a subject, or a new one.
    fn slot(&mut self, key: Key) -> &mut Watch {
        let slot = key.to_token().slot as usize;
        let watches = match key {
            Key::Connection(_) => &mut self.connections,
            Key::Closing(_) => &mut self.closing,
            Key::Listener(_) => &mut self.listeners,
            Key::Mailbox => return &mut self.mailbox,
        };
        if slot >= watches.len() {
            watches.resize_with(slot + 1, Watch::default);
        }
        &mut watches[slot]
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(buffers) = &self.buffers {
            self.counts.ended(buffers.count());
        }
        if self.cancel_all().is_err() {
            // The kernel may still write into the buffers.
            mem::forget(self.buffers.take());
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("receiving", &self.receiving)
            .field("completions", &self.queue.completions.len())
            .finish_non_exhaustive()
    }
}
