//! A wrapper of epoll, and the encoding of the 64 bits that epoll stores for each descriptor.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use pgweir_core::Token;
use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};

/// The events for which a connection is registered, once, as long as its socket accepts everything that is sent: no
/// `epoll_ctl` call is needed per message.
const INCOMING: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The events after a socket was full for the first time: room to write is reported, too. Not before: a Unix socket
/// reports room each time its peer reads.
const BOTH: EventFlags = INCOMING.union(EventFlags::OUT);

/// Generations from here on denote keys other than connections.
const LISTENER: u32 = u32::MAX;
const MAILBOX: u32 = u32::MAX - 1;
const CLOSING: u32 = u32::MAX - 2;

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// A connection of the table.
    Connection(Token),
    /// A connection that the core has forgotten, by its slot in the table of closing connections.
    Closing(u32),
    /// A listening socket, by index.
    Listener(u32),
    /// The worker's mailbox.
    Mailbox,
}

impl Key {
    fn to_data(self) -> EventData {
        let token = match self {
            Key::Connection(token) => token,
            Key::Closing(slot) => Token {
                slot,
                generation: CLOSING,
            },
            Key::Listener(slot) => Token {
                slot,
                generation: LISTENER,
            },
            Key::Mailbox => Token {
                slot: 0,
                generation: MAILBOX,
            },
        };
        EventData::new_u64(token.to_bits())
    }

    /// Returns the subject of an event.
    pub(crate) fn of(event: &Event) -> Self {
        let token = Token::from_bits(event.data.u64());
        match token.generation {
            LISTENER => Key::Listener(token.slot),
            MAILBOX => Key::Mailbox,
            CLOSING => Key::Closing(token.slot),
            _ => Key::Connection(token),
        }
    }
}

/// One epoll instance.
#[derive(Debug)]
pub(crate) struct Poller(OwnedFd);

impl Poller {
    /// # Errors
    /// When the process is out of file descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a connection, edge-triggered; for room to write, too, if `outgoing`.
    pub(crate) fn add(&self, fd: impl AsFd, key: Key, outgoing: bool) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, key.to_data(), flags(outgoing))?)
    }

    /// Watches a connection under another key, or in both directions from now on. epoll reports the present state
    /// again, so no event is lost.
    pub(crate) fn change(&self, fd: impl AsFd, key: Key, outgoing: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, key.to_data(), flags(outgoing))?)
    }

    /// Watches a listening socket that other workers watch too. The watch is level-triggered, and as a rule the kernel
    /// wakes only one of them.
    pub(crate) fn add_listener(&self, fd: impl AsFd, index: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(
            &self.0,
            fd,
            Key::Listener(index).to_data(),
            flags,
        )?)
    }

    /// Watches the eventfd of the mailbox. Every write to the eventfd is an edge, so no reads are needed.
    pub(crate) fn add_mailbox(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(
            &self.0,
            fd,
            Key::Mailbox.to_data(),
            EventFlags::IN | EventFlags::ET,
        )?)
    }

    /// Stops watching a descriptor.
    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits for events, without limit if `timeout_us` is `None`. A signal ends the wait early.
    ///
    /// # Errors
    /// Only those of a broken program (a bad descriptor).
    pub(crate) fn wait(&self, events: &mut Vec<Event>, timeout_us: Option<u64>) -> io::Result<()> {
        events.clear();
        let timeout = timeout_us.map(|us| Timespec {
            tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: (us % 1_000_000) as i64 * 1000,
        });
        match epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

const fn flags(outgoing: bool) -> EventFlags {
    if outgoing { BOTH } else { INCOMING }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_trip_through_the_kernel() {
        let token = Token {
            slot: 7,
            generation: 3,
        };
        for key in [
            Key::Connection(token),
            Key::Closing(9),
            Key::Listener(1),
            Key::Mailbox,
        ] {
            let event = Event {
                flags: EventFlags::IN,
                data: key.to_data(),
            };
            assert_eq!(Key::of(&event), key);
        }
    }
}
