//! LISTEN and UNLISTEN that no server of the client needs to see.

use pgweir_wire::{Header, tag::frontend};

use super::client_to_server::ClientMessages;
use crate::{listen::Stage, pin::Pin, session::ChannelCommand};

impl ClientMessages<'_> {
    /// Is it a request that is nothing but LISTEN or UNLISTEN, of which its server need know nothing? Then the client's
    /// listener is asked instead. `rest` begins with the message's body; what is sent in one go with others keeps its
    /// order on the server.
    #[cold]
    pub(super) fn takes_channels(&mut self, header: Header, rest: &[u8]) -> bool {
        let session = &mut self.server.session;
        let is_alone = rest.len() == header.body_len as usize;
        if header.tag != frontend::QUERY
            || std::mem::take(&mut session.notifications.listens_itself)
            || !is_alone
        {
            return false;
        }
        // What this server itself listens to, only the server can take away.
        let is_dirty = session.dirt.needs_clean();
        let is_between = self.server.replies.is_settled() && self.server.status == b'I';
        let pins = self.client.context.as_ref().map(|own| own.pins);
        let is_pinned = pins.is_none_or(|pins| pins.contains(Pin::Listen));
        let encoding = self.server.tracked.client_encoding();
        let is_quiet = self.client.listening.as_ref().is_none_or(|listening| {
            listening.stage == Stage::Settled
                && !listening.pending_unlisten.is_due()
                && *listening.key.encoding == *encoding
        });
        if is_dirty || !is_between || is_pinned || !is_quiet {
            return false;
        }
        let text = rest.strip_suffix(b"\0").unwrap_or_default();
        self.channel_command = ChannelCommand::read(text);
        self.channel_command.is_some()
    }
}
