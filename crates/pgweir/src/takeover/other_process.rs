//! The connection to the other process of an online restart, for all threads of this one.

use std::{
    collections::VecDeque,
    mem,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use pgweir_core::takeover::Message;

use super::{Departing, DepartingServer, TakeoverError, channel::Channel};

/// The connection to the other process, if there is one.
#[derive(Debug, Default)]
pub(crate) struct OtherProcess {
    line: Mutex<Option<Line>>,
    /// Signals the end of the other process to waiting threads.
    gone: Condvar,
    /// Whether no client is left in this process, apart from those that are under way.
    is_last: AtomicBool,
}

#[derive(Debug)]
struct Line {
    /// A thread must not wait for this lock while it holds the connection's lock: confirmations must be received
    /// meanwhile.
    channel: Arc<Mutex<Channel>>,
    /// The old process's pid, if the other process is the old one.
    old_process: Option<u32>,
    /// Clients that were sent, or are about to be sent, and were not confirmed.
    under_way: VecDeque<Departing>,
    /// The number of clients that were confirmed.
    arrived: u64,
}

impl OtherProcess {
    /// Records the open connection. `old_process` is the other process's pid if that is the old process. The caller can
    /// hold the returned lock to send before all other threads.
    pub(super) fn found(&self, channel: Channel, old_process: Option<u32>) -> Arc<Mutex<Channel>> {
        self.is_last.store(false, Ordering::Relaxed);
        let channel = Arc::new(Mutex::new(channel));
        *self.line.lock() = Some(Line {
            channel: Arc::clone(&channel),
            old_process,
            under_way: VecDeque::new(),
            arrived: 0,
        });
        channel
    }

    /// Records that the old process is gone.
    pub(super) fn old_process_gone(&self) {
        drop(self.line.lock().take_if(|line| line.old_process.is_some()));
        self.gone.notify_all();
    }

    /// Records that the new process is gone, or was refused. Returns the clients that it did not confirm: they still belong
    /// to this process.
    pub(super) fn new_process_gone(&self) -> VecDeque<Departing> {
        let line = self.line.lock().take_if(|line| line.old_process.is_none());
        line.map(|line| line.under_way).unwrap_or_default()
    }

    /// Returns the old process's pid, while it still has clients.
    pub(super) fn old_process(&self) -> Option<u32> {
        self.line.lock().as_ref().and_then(|line| line.old_process)
    }

    /// Waits until the other process is gone, at most this long.
    pub(super) fn wait_for_end(&self, patience: Duration) {
        let mut line = self.line.lock();
        self.gone
            .wait_while_for(&mut line, |line| line.is_some(), patience);
    }

    /// Sends a message to the other process, if there is one.
    pub(crate) fn say(&self, message: &Message) {
        if let Some(channel) = self.channel() {
            // The receiving thread notices that the other process is gone.
            let _ = channel.lock().send(message, &[]);
        }
    }

    /// Confirms that `count` clients in all were received. Returns whether the old process can still read this.
    pub(super) fn confirms(&self, count: u64) -> bool {
        let message = Message::Received(count);
        self.channel()
            .is_some_and(|channel| channel.lock().send(&message, &[]).is_ok())
    }

    fn channel(&self) -> Option<Arc<Mutex<Channel>>> {
        let line = self.line.lock();
        line.as_ref().map(|line| Arc::clone(&line.channel))
    }

    /// Sends a client to the other process. If that fails half-way, the client is among those that
    /// [`new_process_gone`](Self::new_process_gone) returns.
    ///
    /// # Errors
    /// Returns the client if there is no other process, or if the client can't be sent.
    pub(super) fn send(&self, client: Departing) -> Result<(), Box<Departing>> {
        let Ok(fd) = client.fd.try_clone() else {
            return Err(client.into());
        };
        let own_server = client.server.as_ref().map(|server| server.fd.try_clone());
        let Ok(server_fd) = own_server.transpose() else {
            return Err(client.into());
        };
        let Departing {
            record,
            fd: own,
            worker,
            mut server,
            unsent,
            encryption,
        } = client;
        let early = server.as_mut().map(|server| mem::take(&mut server.early));
        let message = Message::Client {
            record,
            unsent,
            encryption,
            early: early.unwrap_or_default(),
        };
        let frame = message.to_frame();
        let Message::Client {
            record,
            unsent,
            encryption,
            early,
        } = message
        else {
            return Ok(());
        };
        if let Some(server) = &mut server {
            server.early = early;
        }
        let client = Departing {
            record,
            fd: own,
            worker,
            server,
            unsent,
            encryption,
        };
        let Ok(frame) = frame else {
            return Err(client.into());
        };
        let channel = {
            let mut line = self.line.lock();
            let Some(line) = &mut *line else {
                return Err(client.into());
            };
            line.under_way.push_back(client);
            Arc::clone(&line.channel)
        };
        let channel = channel.lock();
        let descriptors: Vec<BorrowedFd<'_>> = [Some(&fd), server_fd.as_ref()]
            .into_iter()
            .flatten()
            .map(AsFd::as_fd)
            .collect();
        if channel.send_frame(&frame, &descriptors).is_err() {
            // The frame may be incomplete, so nothing can follow. The receiving thread then sees the end of the
            // connection.
            channel.end();
        }
        Ok(())
    }

    /// Records that the other process has confirmed `count` clients in all. Returns the servers of the newly confirmed
    /// clients.
    pub(super) fn received(&self, count: u64) -> Vec<DepartingServer> {
        let mut gone = Vec::new();
        if let Some(line) = &mut *self.line.lock() {
            while line.arrived < count
                && let Some(client) = line.under_way.pop_front()
            {
                line.arrived += 1;
                gone.extend(client.server);
            }
        }
        gone
    }

    /// Ends the connection to the new process, since the handover has failed. The new process owns every client whose
    /// confirmation it has sent, even if this process has not read the confirmation yet. Returns those clients'
    /// servers.
    pub(super) fn end(&self, channel: &mut Channel) -> Vec<DepartingServer> {
        // From now on the new process can't confirm a client. The messages that it has sent before can still be read.
        channel.end();
        let mut gone = Vec::new();
        loop {
            match channel.receive() {
                Ok((Message::Received(count), _)) => gone.extend(self.received(count)),
                // A message that can't be used may precede confirmations.
                Ok(_) | Err(TakeoverError::Frame(_) | TakeoverError::Unexpected) => {}
                Err(_) => return gone,
            }
        }
    }

    /// Records that no client is left in this process.
    pub(crate) fn set_last(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    /// Returns whether all clients were confirmed.
    pub(super) fn has_all(&self) -> bool {
        let line = self.line.lock();
        let is_empty = line.as_ref().is_some_and(|line| line.under_way.is_empty());
        self.is_last.load(Ordering::Relaxed) && is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use pgweir_core::{
        WorkerId,
        takeover::{ClientRecord, Encryption},
    };

    use super::*;

    /// Creates a client that leaves, with this id.
    fn departing(id: u64) -> Departing {
        let (near, _) = UnixStream::pair().expect("a pair");
        Departing {
            record: Box::new(ClientRecord {
                id,
                key_secret: vec![0; 4],
                ..ClientRecord::default()
            }),
            fd: near.into(),
            worker: WorkerId(0),
            server: None,
            unsent: Vec::new(),
            encryption: Encryption::default(),
        }
    }

    #[test]
    fn unread_confirmations_count_when_the_handover_fails() {
        let (old, new) = UnixStream::pair().expect("a pair");
        let (mut old, mut new) = (
            Channel::new(old).expect("ours"),
            Channel::new(new).expect("ours"),
        );
        let other_process = OtherProcess::default();
        drop(other_process.found(old.sender().expect("a handle"), None));
        for id in 1..=4 {
            assert!(other_process.send(departing(id)).is_ok());
        }
        new.send(&Message::Received(1), &[]).expect("sent");
        new.send(&Message::Ready, &[]).expect("sent");
        new.send_frame(&[0, 0, 0, 2, b'?', 0], &[]).expect("sent");
        new.send(&Message::Received(3), &[]).expect("sent");
        // The second message is not expected here, and the third one can't be parsed.
        assert_eq!(old.receive().expect("came").0, Message::Received(1));
        assert!(other_process.received(1).is_empty());
        assert_eq!(old.receive().expect("came").0, Message::Ready);
        assert!(other_process.end(&mut old).is_empty());
        let back = other_process.new_process_gone();
        let back: Vec<u64> = back.iter().map(|client| client.record.id).collect();
        assert_eq!(back, [4]);
        // The client that came back was sent, too. The new process notices that it must not use this client.
        let record_of = |message| match message {
            Message::Client { record, .. } => record.id,
            other => panic!("{other:?}"),
        };
        for id in 1..=4 {
            assert_eq!(record_of(new.receive().expect("came").0), id);
        }
        assert!(new.send(&Message::Received(4), &[]).is_err());
    }
}
