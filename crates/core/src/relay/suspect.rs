//! What a client's texts may do to the session of its server.

use std::collections::BTreeSet;

use pgweir_wire::{Body, Header, tag::frontend};

use super::{named::Named, upward::Upward};
use crate::session::{Customs, Suspicion, scan::CustomNames};

impl Upward<'_> {
    /// What may a text do to the session?
    #[inline]
    pub(super) fn suspect(&mut self, tag: u8, body: &[u8], len: usize) -> Suspicion {
        let text = match tag {
            frontend::QUERY | frontend::PARSE if body.len() < len => None,
            frontend::QUERY => body.strip_suffix(b"\0"),
            // A named one is looked at when it is used.
            frontend::PARSE if self.most > 0 && body.first() != Some(&0) => {
                return Suspicion::default();
            }
            frontend::PARSE => {
                let mut rest = Body::new(body);
                rest.cstr().and_then(|_| rest.cstr()).ok()
            }
            frontend::FUNCTION_CALL => None,
            _ => return Suspicion::default(),
        };
        // What has not come as a whole may be anything.
        let dialect = self.server.session.dialect;
        text.map_or(Suspicion::OPAQUE, |text| {
            self.verdicts.scan(text, dialect, self.certificates)
        })
    }

    /// Is it about a statement that we know nothing of: one that SQL's PREPARE made?
    #[inline]
    pub(super) fn suspect_unknown(&mut self, named: &Named<'_>, is_ours: bool) {
        if self.is_carried && !is_ours && named.is_named() && !self.is_own(named) {
            self.server.session.suspicion |= Suspicion::OPAQUE;
        }
    }

    /// A text that may set parameters has not come as a whole.
    #[cold]
    pub(super) fn read_on_later(&mut self, header: Header, begun: &[u8]) {
        let is_text = matches!(header.tag, frontend::QUERY | frontend::PARSE);
        if is_text {
            self.read_ddl_on_later(begun);
        }
        self.client.unread = is_text.then(|| {
            let mut names = Box::new(CustomNames::default());
            names.read(begun);
            names
        });
    }

    /// More of a message has come that was begun before.
    #[cold]
    pub(super) fn read_on(&mut self, bytes: &[u8]) {
        let (count, is_end) = self.client.stream.left_of(bytes.len());
        self.read_ddl_on(&bytes[..count], is_end);
        let Some(names) = &mut self.client.unread else {
            return;
        };
        names.read(&bytes[..count]);
        if is_end && let Some(names) = self.client.unread.take() {
            self.learn_customs(&names.finish());
        }
    }

    /// The client may set these parameters. Where servers can't be asked for one, the client keeps its server.
    pub(super) fn learn_customs(&mut self, names: &BTreeSet<Vec<u8>>) {
        if names.is_empty() {
            return;
        }
        let shared = &self.server.shared;
        let is_utf8 = self.server.tracked.client_encoding() == b"UTF8" && shared.is_utf8();
        let mut customs = shared.customs.lock();
        let named = &mut self.server.session.named;
        let mut are_known = true;
        for name in names {
            are_known &= customs.insert(name, is_utf8) && named.len() < Customs::MAX;
            if are_known {
                named.insert(name.as_slice().into());
            }
        }
        if !are_known && let Some(context) = &mut self.client.context {
            context.has_unlisted = true;
        }
    }
}
