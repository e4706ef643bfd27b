//! Simulated connections. Each has two queues of bytes, one for each direction, and a queue can end.

use std::collections::VecDeque;

/// The id of a connection, which is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) usize);

/// The far end of a connection of the pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FarEnd {
    /// A model client, by index.
    Client(usize),
    /// A backend of the model PostgreSQL, by index.
    Backend(usize),
}

/// The way in which a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Orderly, after all bytes.
    Eof,
    /// By an error; bytes that were not read yet are lost.
    Reset,
}

/// One direction of a connection: the bytes that the systems of sender and receiver hold.
#[derive(Debug)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    pub(crate) end: Option<End>,
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            capacity,
            end: None,
        }
    }

    /// Adds as many bytes as there is room for. Returns their number.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    /// Adds all bytes even without room: the last ones before the end.
    pub(crate) fn push_last(&mut self, bytes: &[u8], end: End) {
        if self.end.is_none() {
            self.bytes.extend(bytes);
            self.finish(end);
        }
    }

    /// Ends the direction: no more bytes follow.
    pub(crate) fn finish(&mut self, end: End) {
        if end == End::Reset {
            self.bytes.clear();
            self.end = Some(end);
        } else {
            self.end.get_or_insert(end);
        }
    }

    /// Returns the next bytes, at most `max`.
    pub(crate) fn pull(&mut self, max: usize) -> Vec<u8> {
        let count = max.min(self.bytes.len());
        self.bytes.drain(..count).collect()
    }

    pub(crate) fn first(&self) -> Option<u8> {
        self.bytes.front().copied()
    }

    pub(crate) fn room(&self) -> usize {
        if self.end.is_some() {
            return 0;
        }
        self.capacity.saturating_sub(self.bytes.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A connection of the pooler.
#[derive(Debug)]
pub(crate) struct Link {
    /// From the far end to the pooler.
    pub(crate) up: Pipe,
    /// From the pooler to the far end.
    pub(crate) down: Pipe,
    pub(crate) far: FarEnd,
    /// Whether the pooler's end is still open.
    pub(crate) held: bool,
}

/// All connections so far, closed ones included.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: Vec<Link>,
}

impl Network {
    /// Opens a connection. Each direction holds `capacity` bytes.
    pub(crate) fn open(&mut self, far: FarEnd, capacity: usize) -> LinkId {
        self.links.push(Link {
            up: Pipe::new(capacity),
            down: Pipe::new(capacity),
            far,
            held: true,
        });
        LinkId(self.links.len() - 1)
    }

    pub(crate) fn link(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0]
    }

    pub(crate) fn see(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Closes the pooler's end. `last` are bytes that the pooler had not written yet.
    pub(crate) fn let_go(&mut self, id: LinkId, last: &[u8]) {
        let link = self.link(id);
        link.held = false;
        link.down.push_last(last, End::Eof);
        link.up.finish(End::Reset);
    }

    /// Closes the far end: orderly, or by an error in both directions.
    pub(crate) fn hang_up(&mut self, id: LinkId, end: End) {
        let link = self.link(id);
        link.up.finish(end);
        if end == End::Reset {
            link.down.finish(end);
        }
    }
}
