//! Joins consecutive bytes of a server, so that its client gets them in as few writes as possible.

use crate::{Actions, Token};

/// Consecutive input bytes for one client.
#[derive(Default)]
pub(super) struct Run {
    to: Option<Token>,
    start: usize,
    end: usize,
    /// Whether bytes were sent to a client.
    pub(super) sent: bool,
}

impl Run {
    #[inline]
    pub(super) fn add(&mut self, to: Option<Token>, start: usize, end: usize, out: &mut Actions) {
        if self.to != to || self.end != start {
            self.flush(out);
            (self.to, self.start, self.end) = (to, start, end);
        } else {
            self.end = end;
        }
    }

    /// Forwards a message that was buffered. All input before the message has been sent.
    #[cold]
    pub(super) fn add_buffered(&mut self, to: Option<Token>, message: &[u8], out: &mut Actions) {
        if let Some(to) = to {
            out.send_made(to, |made| made.extend_from_slice(message));
            self.sent = true;
        }
    }

    #[inline]
    pub(super) fn flush(&mut self, out: &mut Actions) {
        if let Some(to) = self.to {
            out.send_input(to, self.start, self.end);
            self.sent |= self.start < self.end;
        }
        self.start = self.end;
    }
}
