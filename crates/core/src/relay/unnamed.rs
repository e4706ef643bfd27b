//! The unnamed statement of each client, which the next Parse or simple Query replaces.

use pgweir_wire::tag::frontend;

use super::{
    client_to_server::{ClientMessages, send_parse, send_target},
    message::Message,
    named::UNNAMED_MAX,
    session_texts::{effects_of_unread_text, until_nul},
};
use crate::{
    Actions,
    backend::{AnsweredUnnamed, Mark, MarkKind, Unnamed},
    session::Effects,
};

impl ClientMessages<'_> {
    #[inline]
    pub(super) fn own_unnamed(&self) -> Unnamed {
        Unnamed::Of(self.client.origin.id, self.client.unnamed.version())
    }

    /// Returns whether the server needs the client's unnamed statement before a message of this type.
    #[inline]
    pub(super) fn needs_unnamed(&self, tag: u8) -> bool {
        matches!(tag, frontend::BIND | frontend::DESCRIBE)
            && self.server.statements.unnamed != self.own_unnamed()
            && (self.client.unnamed.definition().is_some()
                || self.server.statements.unnamed != Unnamed::None)
    }

    /// Notes a message about the unnamed statement that is forwarded. `unused`: the definition of the unnamed
    /// statement, if it was not used yet.
    #[inline]
    pub(super) fn note_unnamed<'b>(
        &mut self,
        message: &Message<'b>,
        unused: &mut Option<&'b [u8]>,
    ) {
        match message.tag() {
            frontend::PARSE => {
                self.forget_unnamed();
                self.server.statements.unnamed = self.own_unnamed();
                self.client.unnamed.parsed_under(self.certificates.id());
                *unused = message
                    .body()
                    .get(1..)
                    .filter(|definition| message.is_whole() && definition.len() < UNNAMED_MAX);
                if self.has_effects {
                    // A statement that may change the session is kept: it may be used much later.
                    match *unused {
                        Some(definition) => self.client.unnamed.keep(definition.into()),
                        None => self.client.unnamed.set_opaque(),
                    }
                }
            }
            // After its first use, the definition is not kept for other servers: an unnamed statement is rarely used
            // twice.
            frontend::BIND => *unused = None,
            frontend::CLOSE => {
                self.forget_unnamed();
                *unused = None;
            }
            _ => {}
        }
    }

    /// Keeps an unnamed statement that was not used yet: the client may use it on another server.
    #[inline]
    pub(super) fn keep_unused(&mut self, unused: Option<&[u8]>) {
        if let Some(definition) = unused {
            self.client.unnamed.keep(definition.into());
        }
    }

    /// Returns whether the effects of the unnamed statement have to be determined again at this use of it: the
    /// statement may change the session, or the catalog has changed since its Parse, so that the statement may run
    /// other code.
    #[inline]
    pub(super) fn must_recheck_unnamed(&self, tag: u8) -> bool {
        let is_used = matches!(tag, frontend::BIND | frontend::DESCRIBE);
        let is_outdated = self.client.unnamed.is_outdated(self.certificates.id());
        is_used && self.is_carried && (self.client.unnamed.is_kept() || is_outdated)
    }

    /// Notes the effects of the unnamed statement at its use. Returns whether the use must wait for replies first.
    #[cold]
    pub(super) fn note_unnamed_use(&mut self, out: &mut Actions) -> bool {
        let Some(definition) = self.client.unnamed.take_definition() else {
            if self.close_before_text(frontend::PARSE, Effects::OPAQUE, out) {
                return true;
            }
            self.note(Effects::OPAQUE, b"");
            self.note_ddl(Effects::OPAQUE, b"");
            return false;
        };
        let text = until_nul(&definition);
        let effects = self.note_definition_effects(&definition);
        let mut waits = false;
        if !effects.is_empty() && !self.only_executes(text, effects) {
            let effects = effects | effects_of_unread_text(text, effects);
            waits = self.close_before_text(frontend::PARSE, effects, out)
                || self.prepare_for_names(text, effects, out);
            if !waits {
                self.note(effects, text);
                self.note_ddl(effects, text);
            }
        }
        self.client.unnamed.keep(definition);
        waits
    }

    /// Keeps the present unnamed statement before a new Parse is sent: it stays in force if the server skips the Parse.
    #[inline]
    pub(super) fn keep_unnamed_before(&mut self) {
        if self.server.replies.make_unnamed() {
            // The statement that stays in force if the server skips all of these messages is kept already.
            return;
        }
        self.client.unnamed.replace_with_next();
        self.server.statements.answered_unnamed =
            match self.server.statements.unnamed == self.own_unnamed() {
                true => AnsweredUnnamed::Former,
                false => AnsweredUnnamed::Foreign,
            };
    }

    #[inline]
    pub(super) fn forget_unnamed(&mut self) {
        self.client.unnamed.forget();
        self.server.statements.unnamed = Unnamed::None;
    }

    /// Sends the client's unnamed statement to the server, or removes the unnamed statement of another client from it.
    #[cold]
    pub(super) fn send_unnamed(&mut self, out: &mut Actions) {
        let own = self.own_unnamed();
        let Some(definition) = self.client.unnamed.definition() else {
            self.server.statements.unnamed = Unnamed::None;
            send_target(self.server_conn, frontend::CLOSE, b"", out);
            return self.server.replies.mark_sent(Mark::silent(MarkKind::Close));
        };
        send_parse(self.server_conn, b"", definition, out);
        if !self.server.replies.make_unnamed() {
            self.client.unnamed.keep_as_former();
            self.server.statements.answered_unnamed = AnsweredUnnamed::Foreign;
        }
        self.server.statements.unnamed = own;
        self.server.replies.mark_sent(Mark::silent(MarkKind::Parse));
    }
}
