//! The texts that brought a session under suspicion, for those who ask what pinned a client.

use super::{Fingerprint, Suspicion};
use crate::pin::Pin;

/// So many texts are kept,
const TEXTS_MAX: usize = 4;
/// and so many bytes of each.
const BYTES_MAX: usize = 512;

/// The last texts that may have changed a session, since its state was last learnt.
#[derive(Debug, Default)]
pub struct Suspects {
    /// Their buffers are used again.
    texts: Vec<(Suspicion, Vec<u8>)>,
    /// How many have been noted.
    noted: usize,
}

impl Suspects {
    /// Notes a text.
    pub fn note(&mut self, suspicion: Suspicion, text: &[u8]) {
        if self.texts.len() < TEXTS_MAX {
            self.texts.resize_with(TEXTS_MAX, Default::default);
        }
        let (slot, bytes) = &mut self.texts[self.noted % TEXTS_MAX];
        *slot = suspicion;
        bytes.clear();
        bytes.extend_from_slice(&text[..text.len().min(BYTES_MAX)]);
        self.noted += 1;
    }

    /// The session's state is known.
    #[inline]
    pub fn clear(&mut self) {
        self.noted = 0;
    }

    /// The text that is likely to be the reason of a pin.
    #[must_use]
    pub fn of(&self, pin: Pin) -> Option<Fingerprint> {
        let texts = &self.texts[..self.noted.min(self.texts.len())];
        let first = |sign: Suspicion| texts.iter().find(|(found, _)| found.intersects(sign));
        let (_, text) = first(sign(pin)).or_else(|| first(Suspicion::OPAQUE))?;
        (!text.is_empty()).then(|| Fingerprint::of(text))
    }
}

/// What a text looks like that pins a client for this reason.
fn sign(pin: Pin) -> Suspicion {
    match pin {
        Pin::Temporary => Suspicion::TEMP,
        Pin::Lock => Suspicion::LOCK,
        Pin::Cursor => Suspicion::CURSOR,
        Pin::Seed => Suspicion::SEED,
        Pin::Library => Suspicion::LIBRARY,
        Pin::Sequence => Suspicion::SEQUENCE.and(Suspicion::READS_SEQUENCE),
        Pin::Statement => Suspicion::PREPARE,
        Pin::Listen => Suspicion::LISTEN,
        Pin::Parameter | Pin::Privileged => Suspicion::SETTING,
        Pin::Unknown | Pin::Configured => Suspicion::OPAQUE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_text_it_was() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.of(Pin::Temporary), None);
        suspects.note(Suspicion::OPAQUE, b"SELECT f(1)");
        suspects.note(Suspicion::TEMP, b"CREATE TEMP TABLE t AS SELECT 'x'");
        let text = |suspects: &Suspects, pin| suspects.of(pin).map(|found| found.text);
        let of_temp = text(&suspects, Pin::Temporary);
        assert_eq!(of_temp.as_deref(), Some("CREATE TEMP TABLE t AS SELECT ?"));
        assert_eq!(text(&suspects, Pin::Lock).as_deref(), Some("SELECT f(?)"));
        for _ in 0..100 {
            suspects.note(Suspicion::LOCK, &[b'x'; 100_000]);
        }
        let kept: usize = suspects.texts.iter().map(|(_, text)| text.len()).sum();
        assert_eq!(kept, TEXTS_MAX * BYTES_MAX);
        suspects.clear();
        assert_eq!(suspects.of(Pin::Lock), None);
    }
}
