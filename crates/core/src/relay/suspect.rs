//! What a client's texts may do to the session of its server.

use pgweir_wire::{Body, tag::frontend};

use super::{named::Named, upward::Upward};
use crate::session::Suspicion;

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
}
