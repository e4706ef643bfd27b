//! Sends and receives frames, with file descriptors, through a Unix socket.

use std::{
    collections::VecDeque,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use pgweir_core::takeover::{HEADER, Message, frame_len};
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
    },
};

use zeroize::Zeroizing;

use super::TakeoverError;

/// The largest number of descriptors in one frame. The kernel allows 253.
pub(super) const DESCRIPTORS_MAX: usize = 128;

/// One end of the connection between the two processes.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    /// The descriptors that have arrived, in their order. The number that belongs to a frame follows from its message.
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    /// Creates a connection to a process of the same user.
    pub(super) fn new(socket: UnixStream) -> Result<Self, TakeoverError> {
        let peer = sockopt::socket_peercred(&socket)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(TakeoverError::Stranger(peer.uid.as_raw()));
        }
        Ok(Self {
            socket,
            descriptors: VecDeque::new(),
        })
    }

    /// Returns a second handle of the connection, for sending only.
    pub(super) fn sender(&self) -> Result<Self, TakeoverError> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            descriptors: VecDeque::new(),
        })
    }

    /// Sets the longest time that a receive may wait, and that a send may take.
    pub(super) fn set_timeouts(
        &self,
        read: Duration,
        write: Duration,
    ) -> Result<(), TakeoverError> {
        self.socket.set_read_timeout(Some(read))?;
        Ok(self.socket.set_write_timeout(Some(write))?)
    }

    /// Shuts the connection down in both directions.
    pub(super) fn end(&self) {
        // The connection may have ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    pub(super) fn send(
        &self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), TakeoverError> {
        self.send_frame(&message.to_frame()?, descriptors)
    }

    pub(super) fn send_frame(
        &self,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), TakeoverError> {
        let mut sent = 0;
        while sent < frame.len() {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut along = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !descriptors.is_empty() {
                along.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let rest = [IoSlice::new(&frame[sent..])];
            match sendmsg(&self.socket, &rest, &mut along, SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives the next frame, with its descriptors.
    pub(super) fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), TakeoverError> {
        let mut header = [0; HEADER];
        self.fill(&mut header)?;
        // The frame may contain secrets.
        let mut frame = Zeroizing::new(vec![0; frame_len(header)?]);
        frame[..HEADER].copy_from_slice(&header);
        self.fill(&mut frame[HEADER..])?;
        let message = Message::of_frame(&frame)?;
        let count = message.descriptors();
        if self.descriptors.len() < count {
            return Err(TakeoverError::Unexpected);
        }
        Ok((message, self.descriptors.drain(..count).collect()))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), TakeoverError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut along = RecvAncillaryBuffer::new(&mut space);
            let mut rest = [IoSliceMut::new(&mut bytes[filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(self.socket.as_fd(), &mut rest, &mut along, flags) {
                Ok(got) if got.bytes == 0 => return Err(TakeoverError::Ended),
                Ok(got) => filled += got.bytes,
                Err(Errno::INTR) => continue,
                // The end of the stream in the middle of a frame is an error of the other process.
                Err(error) => return Err(error.into()),
            }
            for message in along.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.descriptors.extend(descriptors);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn descriptors_come_with_their_frame() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, mut other) = (
            Channel::new(one).expect("ours"),
            Channel::new(other).expect("ours"),
        );
        let (mut near, far) = UnixStream::pair().expect("a pair");
        one.send(&Message::Ready, &[]).expect("sent");
        let offer = Message::Offer {
            pid: 1,
            generation: 2,
            listeners: vec![pgweir_core::takeover::ListenerNote { is_lent: false }],
        };
        one.send(&offer, &[far.as_fd()]).expect("sent");
        one.send(&Message::Up { pid: 3 }, &[]).expect("sent");
        drop((one, far));
        assert_eq!(other.receive().expect("came").0, Message::Ready);
        let (message, descriptors) = other.receive().expect("came");
        assert_eq!((message, descriptors.len()), (offer, 1));
        assert_eq!(other.receive().expect("came").0, Message::Up { pid: 3 });
        assert!(matches!(other.receive(), Err(TakeoverError::Ended)));
        let mut far = UnixStream::from(descriptors.into_iter().next().expect("one"));
        far.write_all(b"through").expect("written");
        drop(far);
        let mut text = String::new();
        near.read_to_string(&mut text).expect("read");
        assert_eq!(text, "through");
    }

    #[test]
    fn descriptors_that_are_missing_are_noticed() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, mut other) = (
            Channel::new(one).expect("ours"),
            Channel::new(other).expect("ours"),
        );
        let offer = Message::Offer {
            pid: 1,
            generation: 2,
            listeners: vec![pgweir_core::takeover::ListenerNote { is_lent: false }],
        };
        one.send(&offer, &[]).expect("sent");
        assert!(matches!(other.receive(), Err(TakeoverError::Unexpected)));
    }
}
