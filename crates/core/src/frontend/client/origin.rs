//! The origin of a client connection, and its age.

use crate::{Address, Time};

/// The origin of a client connection, and its age.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The client's id, unique in the process.
    pub id: u64,
    /// The client's address.
    pub remote: Address,
    /// The local address that the client connected to.
    pub local: Address,
    /// The local port that the client connected to.
    pub port: u16,
    /// Whether the client is connected by a Unix socket and runs under the same user id as this process.
    pub same_uid: bool,
    /// Whether the connection comes from this process itself, which passes on a request over HTTP.
    pub is_internal: bool,
    /// The user id of the client's process on a Unix socket, if it is known.
    pub uid: Option<u32>,
    /// The client's process id on a Unix socket; 0 if it is not known.
    pub pid: u32,
    /// The time at which the client connected.
    pub connected_at: Time,
}
