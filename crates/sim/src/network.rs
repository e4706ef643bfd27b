//! Connections as two byte queues with an end.

use std::collections::VecDeque;

/// Names a connection; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) usize);

/// Who is at the far end of a connection of the pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Far {
    /// A model client, by index.
    Client(usize),
    /// A backend of the model PostgreSQL, by index.
    Backend(usize),
}

/// How a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In good order, after all bytes.
    Eof,
    /// By an error; bytes that were not read yet are lost.
    Reset,
}

/// One direction: what the sender's and the receiver's system hold.
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

    /// Takes as many bytes as there is room for: how many.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    /// Takes all bytes, room or not: the last ones before the end.
    pub(crate) fn push_last(&mut self, bytes: &[u8], end: End) {
        if self.end.is_none() {
            self.bytes.extend(bytes);
            self.finish(end);
        }
    }

    /// No more bytes will come.
    pub(crate) fn finish(&mut self, end: End) {
        if end == End::Reset {
            self.bytes.clear();
            self.end = Some(end);
        } else {
            self.end.get_or_insert(end);
        }
    }

    /// The next bytes, at most `max`.
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
    pub(crate) far: Far,
    /// The pooler's end is still open.
    pub(crate) held: bool,
}

/// All connections there ever were.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: Vec<Link>,
}

impl Network {
    /// A new connection; each direction holds `capacity` bytes.
    pub(crate) fn open(&mut self, far: Far, capacity: usize) -> LinkId {
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

    /// The pooler closes its end; `last` is what it had not written yet.
    pub(crate) fn let_go(&mut self, id: LinkId, last: &[u8]) {
        let link = self.link(id);
        link.held = false;
        link.down.push_last(last, End::Eof);
        link.up.finish(End::Reset);
    }

    /// The far end is gone: in good order, or by an error in both directions.
    pub(crate) fn hang_up(&mut self, id: LinkId, end: End) {
        let link = self.link(id);
        link.up.finish(end);
        if end == End::Reset {
            link.down.finish(end);
        }
    }
}
