//! The two ways to wait for sockets, epoll and io_uring, and the encoding of the 64 bits that the kernel keeps for each
//! descriptor.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use pgweir_core::Token;
use rustix::event::epoll::{Event, EventData};

use super::{epoll::Epoll, ring::Ring};

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
    /// Returns the data to register the subject with.
    pub(super) fn to_data(self) -> EventData {
        EventData::new_u64(self.to_token().to_bits())
    }

    /// Returns the subject in the form of a token.
    pub(super) fn to_token(self) -> Token {
        match self {
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
        }
    }

    /// Returns the subject of an event.
    #[inline]
    pub(crate) fn of(event: &Event) -> Self {
        Self::from_token(Token::from_bits(event.data.u64()))
    }

    /// The reverse of [`to_token`](Self::to_token).
    #[inline]
    pub(super) fn from_token(token: Token) -> Self {
        match token.generation {
            LISTENER => Key::Listener(token.slot),
            MAILBOX => Key::Mailbox,
            CLOSING => Key::Closing(token.slot),
            _ => Key::Connection(token),
        }
    }
}

/// The poller of a worker: epoll, or io_uring as long as there is a ring. Both report the same events; io_uring may
/// report the bytes of a server along with them.
#[derive(Debug)]
pub(super) struct Poller {
    /// The instance exists beside a ring too: whoever falls back to epoll then needs no descriptor.
    epoll: Epoll,
    pub(super) ring: Option<Box<Ring>>,
}

impl Poller {
    /// Creates a poller that uses the ring, if there is one.
    ///
    /// # Errors
    /// When the process is out of file descriptors or memory.
    pub(super) fn new(ring: Option<Box<Ring>>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        Ok(Self { epoll, ring })
    }

    /// Returns whether this is io_uring.
    #[inline]
    pub(super) fn is_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Watches a connection, edge-triggered; for room to write, too, if `outgoing`.
    pub(super) fn add(&mut self, fd: impl AsFd, key: Key, outgoing: bool) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.add(fd, key, outgoing),
            Some(ring) => ring.watch(fd.as_fd(), key, outgoing),
        }
    }

    /// Watches a connection in both directions from now on. The present state is reported again, so no event is lost.
    pub(super) fn watch_for_room(&mut self, fd: impl AsFd, key: Key) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.change(fd, key, true),
            Some(ring) => ring.watch_for_room(fd.as_fd(), key),
        }
    }

    /// Watches a connection under another key. The present state is reported again, so no event is lost.
    pub(super) fn rename(
        &mut self,
        fd: impl AsFd,
        (from, to): (Key, Key),
        outgoing: bool,
    ) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.change(fd, to, outgoing),
            Some(ring) => {
                ring.forget(from);
                ring.watch(fd.as_fd(), to, outgoing)
            }
        }
    }

    /// Watches a listening socket that other workers watch too. The watch is level-triggered. With epoll, the kernel wakes
    /// only one of them as a rule.
    pub(super) fn add_listener(&mut self, fd: impl AsFd, index: u32) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.add_listener(fd, index),
            Some(ring) => ring.watch(fd.as_fd(), Key::Listener(index), false),
        }
    }

    /// Watches the eventfd of the mailbox. Every write to the eventfd is an edge, so no reads are needed.
    pub(super) fn add_mailbox(&mut self, wake_descriptor: BorrowedFd<'_>) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.add_mailbox(wake_descriptor),
            Some(ring) => ring.watch(wake_descriptor, Key::Mailbox, false),
        }
    }

    /// Stops watching a listening socket, which stays open.
    pub(super) fn remove_listener(&mut self, fd: impl AsFd, index: u32) {
        match &mut self.ring {
            // The listener was added, so removing it can't fail.
            None => drop(self.epoll.remove(fd)),
            Some(ring) => ring.forget(Key::Listener(index)),
        }
    }

    /// Stops watching a connection, so that another poller can watch it. Returns the bytes that were read already.
    pub(super) fn remove(&mut self, fd: impl AsFd, key: Key) -> io::Result<Vec<u8>> {
        match &mut self.ring {
            None => self.epoll.remove(fd).map(|()| Vec::new()),
            Some(ring) => ring.detach(key),
        }
    }

    /// Stops watching a connection whose socket the caller closes next. With epoll, closing the socket suffices.
    pub(super) fn forget(&mut self, key: Key) {
        if let Some(ring) = &mut self.ring {
            ring.forget(key);
        }
    }

    /// Watches a listening socket again, after some of its clients were accepted.
    pub(super) fn rearm_listener(&mut self, index: u32) {
        if let Some(ring) = &mut self.ring {
            ring.rearm(Key::Listener(index));
        }
    }

    /// Ends a receive, after which the connection may be read. Returns `false` if there is none.
    pub(super) fn stop_receiving(&mut self, key: Key) -> bool {
        let Some(ring) = &mut self.ring else {
            return false;
        };
        ring.stop_receiving(key);
        ring.is_receiving(key)
    }

    /// Waits for events, without limit if `timeout_us` is `None`. A signal ends the wait early. The events of a ring are
    /// taken from it one by one.
    ///
    /// # Errors
    /// With epoll, only those of a broken program (a bad descriptor). With io_uring, also a shortage of memory.
    #[inline]
    pub(super) fn wait(
        &mut self,
        events: &mut Vec<Event>,
        timeout_us: Option<u64>,
    ) -> io::Result<()> {
        match &mut self.ring {
            None => self.epoll.wait(events, timeout_us),
            Some(ring) => {
                events.clear();
                ring.wait(timeout_us)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll::EventFlags;

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
