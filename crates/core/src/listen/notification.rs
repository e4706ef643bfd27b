//! NotificationResponse.

use std::ops::Range;

use pgweir_wire::{Body, HEADER_LEN};

/// A NotificationResponse, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The process that notified.
    pub pid: u32,
    /// The channel.
    pub channel: &'a [u8],
    /// What it said.
    pub payload: &'a [u8],
}

/// Where in the message the pid is.
const PID: Range<usize> = HEADER_LEN..HEADER_LEN + 4;

impl<'a> Notification<'a> {
    /// Reads a whole message; `None` if it is malformed.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut body = Body::new(message.get(HEADER_LEN..)?);
        let pid = body.i32().ok()? as u32;
        let channel = body.cstr().ok()?;
        let payload = body.cstr().ok()?;
        body.end().ok()?;
        Some(Self {
            pid,
            channel,
            payload,
        })
    }

    /// Puts another pid in a whole message.
    pub fn set_pid(message: &mut [u8], pid: u32) {
        if let Some(place) = message.get_mut(PID) {
            place.copy_from_slice(&pid.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_are_replaced() {
        let mut message = b"A\0\0\0\x0f\0\0\0\x07jobs\0x\0".to_vec();
        message[4] = (message.len() - 1) as u8;
        let check = |message: &[u8], pid| {
            let read = Notification::parse(message);
            let read = read.map(|it| (it.pid, it.channel, it.payload));
            assert_eq!(read, Some((pid, &b"jobs"[..], &b"x"[..])));
        };
        check(&message, 7);
        Notification::set_pid(&mut message, 0x0102_0304);
        check(&message, 0x0102_0304);
        message.pop();
        assert_eq!(Notification::parse(&message), None);
    }
}
