//! Ports for throw-away servers.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use super::Trouble;

/// Below the range from which Linux takes the ports of outgoing connections, so that no client
/// occupies the port of a server that is about to start.
const PORTS: Range<u16> = 26_000..27_000;

/// A TCP port of 127.0.0.1 that nobody listens on. The search starts at a place that depends
/// on the process, so that two runs at once rarely meet.
pub(crate) fn free_port() -> Result<u16, Trouble> {
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(37) % count;
    (0..count)
        .filter_map(|step| u16::try_from((first + step) % count).ok())
        .map(|offset| PORTS.start + offset)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| {
            Trouble::new(format!(
                "all ports from {} to {} of 127.0.0.1 are taken",
                PORTS.start,
                PORTS.end - 1
            ))
        })
}
