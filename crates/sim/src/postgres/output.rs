//! What a backend says, and to whom.

use pgweir_wire::{MessageWriter, tag::backend};

use crate::checks::{RequestId, Said};

/// PostgreSQL sends when it has so much, or when it waits for the next message.
const BUFFER: usize = 8192;

/// Bytes on their way out, and the record of what was said to each client.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    flushed: usize,
    produced: u64,
    said: Vec<(usize, Said)>,
}

impl Output {
    /// Says one message. `client` is whom it answers; nobody for the pooler's own requests.
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
            let said = Said {
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

    /// Says one byte that is no message.
    pub(super) fn say_byte(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.produced += 1;
        self.flush();
    }

    /// Lets go what was said.
    pub(super) fn flush(&mut self) {
        self.flushed = self.bytes.len();
    }

    /// What may be sent now.
    pub(super) fn ready(&self) -> &[u8] {
        &self.bytes[..self.flushed]
    }

    /// How many bytes were ever said.
    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    /// How much was let go, of all that was ever said.
    pub(super) fn released(&self) -> u64 {
        self.produced - (self.bytes.len() - self.flushed) as u64
    }

    /// The first `count` bytes were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.flushed -= count;
    }

    /// Nothing is kept, flushed or not.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// So much is kept that the backend waits.
    pub(super) fn is_full(&self) -> bool {
        self.flushed > 2 * BUFFER
    }

    /// Takes the record of what was said since the last call.
    pub(super) fn take_said(&mut self) -> Vec<(usize, Said)> {
        std::mem::take(&mut self.said)
    }

    /// `id` and so many bytes more, as a row.
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

    /// The same as COPY data.
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

/// Digits that differ from row to row in length and start, so that no cut goes unnoticed.
fn row_text(id: Option<RequestId>, size: usize) -> String {
    let mut text = id.map_or_else(String::new, |id| format!("{id}|"));
    text.extend((0..size).map(|at| char::from(b'a' + (at % 23) as u8)));
    text
}
