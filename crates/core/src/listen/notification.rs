//! Parses NotificationResponse messages and changes their pids.

use std::ops::Range;

use pgweir_wire::{Body, HEADER_LEN};

use crate::shared::cancel::CancelKey;

/// The fields of a NotificationResponse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The pid of the process that sent the notification.
    pub pid: u32,
    /// The channel.
    pub channel: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// The place of the pid in the message.
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

    /// Returns whether messages of two processes are about the same notification. Their pids may differ: a process
    /// replaces the pids of its own servers by those of clients.
    #[must_use]
    pub fn are_same(one: &'a [u8], other: &'a [u8]) -> bool {
        let (Some(one), Some(other)) = (Self::parse(one), Self::parse(other)) else {
            return false;
        };
        let is_client = |pid| pid >= CancelKey::FIRST_PID;
        let may_be_one = one.pid == other.pid || is_client(one.pid) != is_client(other.pid);
        may_be_one && one.channel == other.channel && one.payload == other.payload
    }

    /// Replaces the pid in a whole message.
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

    #[test]
    fn notifications_that_two_listeners_received() {
        let message = |pid: u32, rest: &[u8]| {
            let mut message = vec![b'A'];
            message.extend_from_slice(&(rest.len() as u32 + 8).to_be_bytes());
            message.extend_from_slice(&pid.to_be_bytes());
            message.extend_from_slice(rest);
            message
        };
        let client = CancelKey::FIRST_PID + 7;
        let one = message(4711, b"jobs\0x\0");
        for (pid, rest, are_same) in [
            (4711, &b"jobs\0x\0"[..], true),
            (client, b"jobs\0x\0", true),
            (4712, b"jobs\0x\0", false),
            (client, b"jobs\0y\0", false),
            (4711, b"job\0x\0", false),
        ] {
            let other = message(pid, rest);
            assert_eq!(Notification::are_same(&one, &other), are_same);
            assert_eq!(Notification::are_same(&other, &one), are_same);
        }
        let [a, b] = [client, client + 1].map(|pid| message(pid, b"jobs\0x\0"));
        assert!(!Notification::are_same(&a, &b));
    }
}
