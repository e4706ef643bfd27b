//! A client's socket, and the bytes that were read from it but not handled yet.

use pgweir_wire::Header;

use super::super::Upstream;
use crate::{
    Time, base::progress::Progress, session::scan::CustomNames,
    statement_statistics::ClientStatements,
};

/// The client's socket, and the bytes that were read from it but not handled yet.
#[derive(Debug, Default)]
pub struct ClientSocket {
    /// The position in the client's stream of messages.
    pub(crate) stream: Upstream,
    /// The beginning of a message whose names have not all arrived yet.
    pub(crate) held: Option<Box<Held>>,
    /// Reads the names of custom parameters from a text that has not arrived as a whole.
    pub(crate) unread: Option<Box<CustomNames>>,
    /// The statements of the client's statement and portal names, for statement statistics.
    pub(crate) statement_names: ClientStatements,
    /// Bytes that were read before they could be passed on: they arrived together with the end of the login, or they
    /// wait for the replies to earlier requests.
    #[expect(
        clippy::box_collection,
        reason = "a box takes 8 bytes of each idle client, a vector 24"
    )]
    pub(crate) early: Option<Box<Vec<u8>>>,
    /// Whether the driver was asked to peek at the client's next byte, before a server is checked for the client.
    pub(crate) peeked: bool,
    /// Whether the socket takes no more bytes at present.
    pub(crate) blocked: bool,
    /// The time at which the client hung up, if pgweir was not reading from it then. Bytes that it has sent before may
    /// still be in the socket.
    pub(crate) hung_up_at: Option<Time>,
    /// The client's position within a message at the last check.
    pub(crate) progress: Option<Progress>,
}

/// The beginning of a message.
#[derive(Debug)]
pub struct Held {
    /// The message's header.
    pub header: Header,
    /// The part of the body that has arrived.
    pub body: Vec<u8>,
}
