//! The other process of an online restart, as the rest of this one reaches it.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use pgweir_core::takeover::Message;

use super::{Companion, Departing, channel::Channel};

/// The other process, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Partner {
    line: Mutex<Option<Line>>,
    /// Somebody may wait for its end.
    gone: Condvar,
    /// No client is left here: what is under way to it is the last.
    is_last: AtomicBool,
}

#[derive(Debug)]
struct Line {
    /// Not to be waited for under the line's own lock: what has arrived must be heard meanwhile.
    voice: Arc<Mutex<Channel>>,
    /// The process that was here before us, if it is that one.
    elder: Option<u32>,
    /// Clients that were sent, or are about to be, and have not arrived.
    under_way: VecDeque<Departing>,
    /// How many have arrived.
    arrived: u64,
}

impl Partner {
    /// It is there; `elder` is its process id if it was here before us. Whoever locks what comes back speaks before
    /// all others.
    pub(super) fn found(&self, channel: Channel, elder: Option<u32>) -> Arc<Mutex<Channel>> {
        self.is_last.store(false, Ordering::Relaxed);
        let voice = Arc::new(Mutex::new(channel));
        *self.line.lock() = Some(Line {
            voice: Arc::clone(&voice),
            elder,
            under_way: VecDeque::new(),
            arrived: 0,
        });
        voice
    }

    /// The one that was here before us is gone.
    pub(super) fn lost_elder(&self) {
        drop(self.line.lock().take_if(|line| line.elder.is_some()));
        self.gone.notify_all();
    }

    /// The one that was to take over is gone, or was refused: the clients that have not arrived are still ours.
    pub(super) fn lost_heir(&self) -> VecDeque<Departing> {
        let line = self.line.lock().take_if(|line| line.elder.is_none());
        line.map(|line| line.under_way).unwrap_or_default()
    }

    /// The process before us, while it still has clients.
    pub(super) fn elder(&self) -> Option<u32> {
        self.line.lock().as_ref().and_then(|line| line.elder)
    }

    /// Waits until it is gone, but not longer than this.
    pub(super) fn wait_for_end(&self, patience: Duration) {
        let mut line = self.line.lock();
        self.gone
            .wait_while_for(&mut line, |line| line.is_some(), patience);
    }

    /// Tells it something, if it is there.
    pub(crate) fn say(&self, message: &Message) {
        if let Some(voice) = self.voice() {
            // Whoever listens to it notices that it is gone.
            let _ = voice.lock().send(message, &[]);
        }
    }

    fn voice(&self) -> Option<Arc<Mutex<Channel>>> {
        let line = self.line.lock();
        line.as_ref().map(|line| Arc::clone(&line.voice))
    }

    /// Sends it a client. Should that fail half-way, the client is among the [`lost`](Self::lost).
    ///
    /// # Errors
    /// It is not there, or the client can't be sent: it is still ours.
    pub(super) fn send(&self, client: Departing) -> Result<(), Departing> {
        let Ok(fd) = client.fd.try_clone() else {
            return Err(client);
        };
        let own_server = client.server.as_ref().map(|server| server.fd.try_clone());
        let Ok(server_fd) = own_server.transpose() else {
            return Err(client);
        };
        let Departing {
            record,
            fd: own,
            server,
            unsent,
        } = client;
        let message = Message::Client { record, unsent };
        let frame = message.to_frame();
        let Message::Client { record, unsent } = message else {
            return Ok(());
        };
        let client = Departing {
            record,
            fd: own,
            server,
            unsent,
        };
        let Ok(frame) = frame else {
            return Err(client);
        };
        let voice = {
            let mut line = self.line.lock();
            let Some(line) = &mut *line else {
                return Err(client);
            };
            line.under_way.push_back(client);
            Arc::clone(&line.voice)
        };
        let voice = voice.lock();
        let descriptors: Vec<BorrowedFd<'_>> = [Some(&fd), server_fd.as_ref()]
            .into_iter()
            .flatten()
            .map(AsFd::as_fd)
            .collect();
        if voice.send_frame(&frame, &descriptors).is_err() {
            // It may have been cut in the middle: nothing sensible can follow, and who listens hears that.
            voice.end();
        }
        Ok(())
    }

    /// So many have arrived in all: the servers that have gone along with those that are new.
    pub(super) fn received(&self, count: u64) -> Vec<Companion> {
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

    /// No client is left here.
    pub(crate) fn set_last(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    /// Have all clients arrived?
    pub(super) fn has_all(&self) -> bool {
        let line = self.line.lock();
        let is_empty = line.as_ref().is_some_and(|line| line.under_way.is_empty());
        self.is_last.load(Ordering::Relaxed) && is_empty
    }
}
