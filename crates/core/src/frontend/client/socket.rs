//! A client's socket, and the bytes that were read from it but not handled yet.

use pgweir_wire::Header;

use super::super::Upstream;
use crate::{
    Time, base::progress::Progress, session::sql::CustomNames,
    statement_statistics::ClientStatements,
};

/// The client's socket, and the bytes that were read from it but not handled yet.
#[derive(Debug, Default)]
pub struct ClientSocket {
    /// The position in the client's stream of messages.
    pub(crate) stream: Upstream,
    /// The statements of the client's statement and portal names, for statement statistics.
    pub(crate) statement_names: ClientStatements,
    /// The beginning of a message whose names have not all arrived yet.
    held: Option<Box<Held>>,
    /// Reads the names of custom parameters from a text that has not arrived as a whole.
    unread: Option<Box<CustomNames>>,
    /// Bytes that were read before they could be passed on: they arrived together with the end of the login, or they
    /// wait for the replies to earlier requests.
    #[expect(
        clippy::box_collection,
        reason = "a box takes 8 bytes of each idle client, a vector 24"
    )]
    early: Option<Box<Vec<u8>>>,
    /// Whether the driver was asked to peek at the client's next byte, before a server is checked for the client.
    is_peeked: bool,
    /// Whether the socket takes no more bytes at present.
    is_blocked: bool,
    /// The time at which the client hung up, if pgweir was not reading from it then. Bytes that it has sent before may
    /// still be in the socket.
    hung_up_at: Option<Time>,
    /// The client's position within a message at the last check.
    progress: Option<Progress>,
}

/// The beginning of a message.
#[derive(Debug)]
pub struct Held {
    /// The message's header.
    pub header: Header,
    /// The part of the body that has arrived.
    pub body: Vec<u8>,
}

impl ClientSocket {
    /// Keeps the beginning of a message until the names in it have arrived.
    pub fn hold(&mut self, beginning: Box<Held>) {
        self.held = Some(beginning);
    }

    /// Returns whether the beginning of a message is kept.
    #[must_use]
    #[inline]
    pub fn holds_message(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the beginning of a message that is kept.
    #[inline]
    pub fn take_held(&mut self) -> Option<Box<Held>> {
        self.held.take()
    }

    /// Begins to read names of custom parameters from a text that has not arrived as a whole.
    pub fn begin_text(&mut self, names: Box<CustomNames>) {
        self.unread = Some(names);
    }

    /// Returns the names in a text that has not arrived as a whole.
    pub fn text_names_mut(&mut self) -> Option<&mut CustomNames> {
        self.unread.as_deref_mut()
    }

    /// Returns whether pgweir is reading a text that has not arrived as a whole.
    #[must_use]
    pub fn reads_text(&self) -> bool {
        self.unread.is_some()
    }

    /// Ends a text that had not arrived as a whole. Returns the names in it; `None` if no such text was read.
    pub fn end_text(&mut self) -> Option<Box<CustomNames>> {
        self.unread.take()
    }

    /// Forgets all input that belongs to a message that has not arrived as a whole: the message is sent again, from its
    /// beginning.
    pub fn restart_input(&mut self) {
        self.stream = Upstream::default();
        self.held = None;
        self.unread = None;
    }

    /// Keeps bytes that were read before they can be passed on, in place of others.
    pub fn keep_early(&mut self, bytes: Vec<u8>) {
        self.early = (!bytes.is_empty()).then(|| Box::new(bytes));
    }

    /// Returns whether bytes are kept that were read before they can be passed on.
    #[must_use]
    #[inline]
    pub fn has_early(&self) -> bool {
        self.early.is_some()
    }

    /// Returns these bytes.
    #[must_use]
    pub fn early(&self) -> &[u8] {
        self.early.as_ref().map_or(&[], |early| early)
    }

    /// Takes these bytes.
    #[inline]
    pub fn take_early(&mut self) -> Option<Box<Vec<u8>>> {
        self.early.take()
    }

    /// Returns whether the driver was asked to peek at the client's next byte.
    #[must_use]
    pub fn is_peeked(&self) -> bool {
        self.is_peeked
    }

    /// Notes whether the driver is asked to peek at the client's next byte.
    pub fn set_peeked(&mut self, is_peeked: bool) {
        self.is_peeked = is_peeked;
    }

    /// Returns whether the socket takes no more bytes at present.
    #[must_use]
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Notes whether the socket takes no more bytes at present.
    #[inline]
    pub fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Returns when the client hung up, if pgweir was not reading from it then.
    #[must_use]
    #[inline]
    pub fn hung_up_at(&self) -> Option<Time> {
        self.hung_up_at
    }

    /// Notes that the client has hung up. Returns whether this is new.
    pub fn note_hang_up(&mut self, now: Time) -> bool {
        let is_new = self.hung_up_at.is_none();
        self.hung_up_at.get_or_insert(now);
        is_new
    }

    /// Returns whether the client was within a message at the last check.
    #[must_use]
    #[inline]
    pub fn was_within_message(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the client's position within a message at the last check.
    pub(crate) fn progress_mut(&mut self) -> &mut Option<Progress> {
        &mut self.progress
    }

    /// Returns the memory of the bytes that have not been handled yet, in bytes.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let held = self.held.as_ref();
        let early = self.early.as_ref();
        held.map_or(0, |held| held.body.capacity())
            + early.map_or(0, |early| early.capacity())
            + self.statement_names.bytes()
    }
}
