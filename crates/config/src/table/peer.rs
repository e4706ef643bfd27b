//! The keys of an entry of `[peers]`.

use super::settings;
use crate::check::port;

settings! {
    /// An entry of `[peers]`: another process of the same group, to which cancel requests for its
    /// clients are passed on.
    pub struct Peer(Peer)

    "Where the peer is" {
        /// A host name, an address, or the directory of a Unix socket. Must be set.
        host: Option<String>, reloads, now;
        /// The peer's port.
        port: u16 = "6432", reloads, now, port;
        /// The largest number of cancel requests that are being sent to the peer. If not set, `default_pool_size`.
        pool_size: Option<u32>, reloads, now;
    }
}
