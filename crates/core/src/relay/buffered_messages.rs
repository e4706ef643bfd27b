//! Messages of a client that can't be forwarded yet: the statement names in them have not arrived completely, or their
//! meaning depends on outstanding replies.

use pgweir_wire::{Header, tag::frontend};

use super::{client_to_server::ClientMessages, message::Message, named::Named};
use crate::{Actions, ReadMode, base::fault::Fault, frontend::Held};

/// The longest names that are read in a message.
const NAMES_MAX: usize = 64 * 1024;

/// The longest text that is buffered until it is complete. Longer texts are forwarded in parts, and count as opaque.
pub(super) const TEXT_MAX: usize = 64 * 1024;

impl ClientMessages<'_> {
    /// Keeps this message, and all input after it, until earlier requests are answered. The meaning of the message
    /// depends on the answers: if the server refuses a message, it skips the following messages.
    #[cold]
    pub(super) fn postpone(&mut self, header: Header, rest: &[u8], out: &mut Actions) {
        let mut bytes = vec![header.tag];
        bytes.extend_from_slice(&(header.body_len + 4).to_be_bytes());
        bytes.extend_from_slice(rest);
        // The bytes are counted when they are read again.
        self.stats.received = self.stats.received.saturating_sub(bytes.len() as u64);
        if let Some(request) = self.server.link.repeatable_mut() {
            request.take_back(bytes.len());
        }
        self.client.socket.restart_input();
        self.client.socket.keep_early(bytes);
        self.server.replies.wait();
        out.read(self.client_conn, ReadMode::Hold);
    }

    /// Keeps the beginning of a message until the statement names in it have arrived.
    pub(super) fn hold(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let (header, body) = (message.head.header, message.body());
        self.check_length(header, body)?;
        self.demand_memory(header)?;
        self.client.socket.stream.advance(body.len());
        self.client.socket.hold(Box::new(Held {
            header,
            body: body.to_vec(),
        }));
        Ok(())
    }

    /// Keeps the first part of a Query or Parse, so that its text is read as a whole. Returns whether it does.
    pub(super) fn holds_text(&mut self, message: &Message<'_>) -> bool {
        let is_text = matches!(message.tag(), frontend::QUERY | frontend::PARSE);
        is_text && message.len() <= TEXT_MAX && self.hold(message).is_ok()
    }

    /// Returns whether pgweir replaces statement names in messages of this type.
    #[inline]
    pub(super) fn follows(&self, tag: u8) -> bool {
        self.limits.statements_max > 0
            && matches!(
                tag,
                frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::CLOSE
            )
            && !self.server.replies.is_skipping()
    }

    /// Checks the length of a named statement, since pgweir keeps its definition.
    fn check_length(&self, header: Header, body: &[u8]) -> Result<(), Fault> {
        let is_named = body.first().is_some_and(|&first| first != 0);
        if header.tag == frontend::PARSE
            && is_named
            && header.body_len as usize > self.limits.prepared_bytes_max
        {
            return Err(Fault::StatementTooLong);
        }
        Ok(())
    }

    /// Adds bytes to a message that was held, and processes the message once its names are complete. Returns how many
    /// bytes were used.
    #[cold]
    pub(super) fn continue_held_message(
        &mut self,
        mut held: Box<Held>,
        bytes: &[u8],
        out: &mut Actions,
    ) -> Result<usize, Fault> {
        let Header { tag, body_len } = held.header;
        let len = body_len as usize;
        let taken = bytes.len().min(len - held.body.len());
        held.body.extend_from_slice(&bytes[..taken]);
        let is_unclear = match tag {
            frontend::QUERY => held.body.len() < len,
            _ => matches!(Named::read(tag, &held.body, len), Named::Unclear),
        };
        if !is_unclear {
            held.body.extend_from_slice(&bytes[taken..]);
            self.postpone(held.header, &held.body, out);
            return Ok(bytes.len());
        }
        if tag != frontend::PARSE && held.body.len() > NAMES_MAX {
            return Err(Fault::TooLong(tag));
        }
        self.client.socket.stream.advance(taken);
        self.check_length(held.header, &held.body)?;
        self.client.socket.hold(held);
        Ok(taken)
    }
}
