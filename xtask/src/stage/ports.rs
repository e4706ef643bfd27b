//! Ports for throw-away servers.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use super::StageError;

/// The range of ports. It lies below the range from which Linux takes the ports of outgoing connections, so that no
/// client occupies the port of a server that is about to start.
const PORTS: Range<u16> = 26_000..27_000;

/// Returns a TCP port of 127.0.0.1 on which no process listens. The search starts at a place that depends on the
/// process, so that two runs at a time rarely choose the same one.
pub(crate) fn free_port() -> Result<u16, StageError> {
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(37) % count;
    (0..count)
        .filter_map(|step| u16::try_from((first + step) % count).ok())
        .map(|offset| PORTS.start + offset)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| {
            StageError::new(format!(
                "all ports from {} to {} of 127.0.0.1 are taken",
                PORTS.start,
                PORTS.end - 1
            ))
        })
}
