//! A wrapper of epoll.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventFlags},
    },
    io::Errno,
};

use super::poller::Key;

/// The events for which a connection is registered, once, as long as its socket accepts everything that is sent: no
/// `epoll_ctl` call is needed per message.
const INCOMING: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The events for which a connection is registered after its socket was full for the first time: room to write is
/// reported, too. Before that, room is not reported, since a Unix socket reports it each time its peer reads.
const BOTH: EventFlags = INCOMING.union(EventFlags::OUT);

/// One epoll instance.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    /// # Errors
    /// When the process is out of file descriptors or memory.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a connection, edge-triggered; for room to write, too, if `outgoing`.
    pub(super) fn add(&self, fd: impl AsFd, key: Key, outgoing: bool) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, key.to_data(), flags(outgoing))?)
    }

    /// Watches a connection under another key, or in both directions from now on. epoll reports the present state
    /// again, so no event is lost.
    pub(super) fn change(&self, fd: impl AsFd, key: Key, outgoing: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, key.to_data(), flags(outgoing))?)
    }

    /// Watches a listening socket that other workers watch too. The watch is level-triggered, and as a rule the kernel
    /// wakes only one of them.
    pub(super) fn add_listener(&self, fd: impl AsFd, index: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(
            &self.0,
            fd,
            Key::Listener(index).to_data(),
            flags,
        )?)
    }

    /// Watches the eventfd of the mailbox. Every write to the eventfd is an edge, so no reads are needed.
    pub(super) fn add_mailbox(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(
            &self.0,
            fd,
            Key::Mailbox.to_data(),
            EventFlags::IN | EventFlags::ET,
        )?)
    }

    /// Stops watching a descriptor.
    pub(super) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits for events, without limit if `timeout_us` is `None`. A signal ends the wait early. Everything that arrived
    /// before the end of the wait is reported.
    ///
    /// # Errors
    /// Only those of a broken program (a bad descriptor).
    #[inline]
    pub(super) fn wait(&self, events: &mut Vec<Event>, timeout_us: Option<u64>) -> io::Result<()> {
        events.clear();
        match self.wait_once(events, timeout_us) {
            // The process may have been stopped for long, and the caller checks its deadlines after this.
            Err(Errno::INTR) => Ok(self.wait_once(events, Some(0))?),
            outcome => Ok(outcome?),
        }
    }

    #[inline]
    fn wait_once(&self, events: &mut Vec<Event>, timeout_us: Option<u64>) -> Result<(), Errno> {
        let timeout = timeout_us.map(|us| Timespec {
            tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: (us % 1_000_000) as i64 * 1000,
        });
        epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        )
        .map(|_| ())
    }
}

const fn flags(outgoing: bool) -> EventFlags {
    if outgoing { BOTH } else { INCOMING }
}
