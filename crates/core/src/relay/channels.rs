//! LISTEN and UNLISTEN commands that the listener connection of the pool answers in place of a server.

use pgweir_wire::tag::frontend;

use super::{client_to_server::ClientMessages, message::Message};
use crate::{base::pin::Pin, session::ChannelCommand};

impl ClientMessages<'_> {
    /// Returns whether the listener connection answers this message instead of the server: the message is a single
    /// LISTEN or UNLISTEN, and nothing else has arrived with it. Messages that arrive together go to the server, which
    /// keeps their order.
    #[cold]
    pub(super) fn takes_channels(&mut self, message: &Message<'_>) -> bool {
        let session = &mut self.server.session;
        let is_alone = message.rest.len() == message.len();
        if message.tag() != frontend::QUERY
            || session.loan.edit().notifications.takes_listen()
            || !is_alone
        {
            return false;
        }
        // If the server itself listens to channels, only the server can carry out an UNLISTEN.
        let needs_clean = session.changes.needs_clean();
        let is_between = self.server.replies.is_settled() && self.server.is_outside_transaction();
        let pins = self.client.context.as_ref().map(|own| own.pins);
        let is_pinned = pins.is_none_or(|pins| pins.contains(Pin::Listen));
        let encoding = self.server.tracked.client_encoding();
        let is_quiet = self.client.listening.as_ref().is_none_or(|listening| {
            listening.is_settled() && !listening.has_unlisten() && listening.uses(encoding)
        });
        if needs_clean || !is_between || is_pinned || !is_quiet {
            return false;
        }
        let text = message.rest.strip_suffix(b"\0").unwrap_or_default();
        self.channel_command = ChannelCommand::read(text);
        self.channel_command.is_some()
    }
}
