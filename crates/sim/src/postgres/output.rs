//! The messages that a backend sends, and the clients they are for.

use pgweir_wire::{MessageWriter, tag::backend};

use crate::checks::{RequestId, SentMessage};

/// PostgreSQL sends its output when it has this number of bytes, or when it waits for the next message.
const BUFFER: usize = 8192;

/// The bytes to send, and a record of the messages for each client.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    flushed: usize,
    produced: u64,
    said: Vec<(usize, SentMessage)>,
}

impl Output {
    /// Appends a message. `client` is the client that the message answers; `None` for the pooler's own requests.
    pub(super) fn say(
        &mut self,
        backend: usize,
        client: Option<usize>,
        make: impl FnOnce(&mut MessageWriter<'_>),
    ) {
        let start = self.bytes.len();
        make(&mut MessageWriter::new(&mut self.bytes));
        self.produced += (self.bytes.len() - start) as u64;
        if let Some(client) = client {
            let said = SentMessage {
                backend,
                end: self.produced,
                message: self.bytes[start..].to_vec(),
                is_last: false,
            };
            self.said.push((client, said));
        }
        if self.bytes.len() > BUFFER {
            self.flush();
        }
    }

    /// Appends one byte that is not a message.
    pub(super) fn say_byte(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.produced += 1;
        self.flush();
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) {
        self.flushed = self.bytes.len();
    }

    /// Returns the bytes that may be sent now.
    pub(super) fn ready(&self) -> &[u8] {
        &self.bytes[..self.flushed]
    }

    /// Returns the number of all bytes so far.
    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns the number of flushed bytes so far.
    pub(super) fn released(&self) -> u64 {
        self.produced - (self.bytes.len() - self.flushed) as u64
    }

    /// Notes that the first `count` bytes were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.flushed -= count;
    }

    /// Returns whether no bytes are left, flushed or not.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether the backend waits, because too many bytes are left.
    pub(super) fn is_full(&self) -> bool {
        self.flushed > 2 * BUFFER
    }

    /// Returns the messages since the last call.
    pub(super) fn take_sent_messages(&mut self) -> Vec<(usize, SentMessage)> {
        std::mem::take(&mut self.said)
    }

    /// Sends a row with `id` and this number of further bytes.
    pub(super) fn row(
        &mut self,
        backend: usize,
        client: Option<usize>,
        id: Option<RequestId>,
        size: usize,
    ) {
        let value = row_text(id, size);
        self.say(backend, client, |writer| {
            writer.data_row([Some(value.as_bytes())].into_iter());
        });
    }

    /// Sends the same as COPY data.
    pub(super) fn copy_row(
        &mut self,
        backend: usize,
        client: Option<usize>,
        id: Option<RequestId>,
        size: usize,
    ) {
        let value = row_text(id, size);
        self.say(backend, client, |writer| {
            writer.message(backend::COPY_DATA, |body| {
                body.extend_from_slice(value.as_bytes());
            });
        });
    }
}

/// Returns digits that differ from row to row in length and start, so that a check notices every cut.
fn row_text(id: Option<RequestId>, size: usize) -> String {
    let mut text = id.map_or_else(String::new, |id| format!("{id}|"));
    text.extend((0..size).map(|at| char::from(b'a' + (at % 23) as u8)));
    text
}
