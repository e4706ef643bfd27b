//! The last texts that may have changed a session, kept to show operators which one pinned a client.

use super::{Effects, Fingerprint};
use crate::pin::Pin;

/// The number of texts that are kept.
const TEXTS_MAX: usize = 4;
/// The bytes that are kept of each text.
const BYTES_MAX: usize = 512;

/// The last texts that may have changed a session, since its state was last known.
#[derive(Debug, Default)]
pub struct RecentTexts {
    /// The effects and the beginning of each text. The buffers are reused.
    texts: Vec<(Effects, Vec<u8>)>,
    /// The number of texts that were noted.
    noted: usize,
}

impl RecentTexts {
    /// Notes a text.
    pub fn note(&mut self, effects: Effects, text: &[u8]) {
        if self.texts.len() < TEXTS_MAX {
            self.texts.resize_with(TEXTS_MAX, Default::default);
        }
        let (slot, bytes) = &mut self.texts[self.noted % TEXTS_MAX];
        *slot = effects;
        bytes.clear();
        bytes.extend_from_slice(&text[..text.len().min(BYTES_MAX)]);
        self.noted += 1;
    }

    /// Forgets the texts, since the session's state is known.
    #[inline]
    pub fn clear(&mut self) {
        self.noted = 0;
    }

    /// Returns the fingerprint of the text that is probably the reason of a pin.
    #[must_use]
    pub fn of(&self, pin: Pin) -> Option<Fingerprint> {
        let texts = &self.texts[..self.noted.min(self.texts.len())];
        let first = |sign: Effects| texts.iter().find(|(found, _)| found.intersects(sign));
        let (_, text) = first(sign(pin)).or_else(|| first(Effects::OPAQUE))?;
        (!text.is_empty()).then(|| Fingerprint::of(text))
    }
}

/// Returns the effects of a text that pins a client for this reason.
fn sign(pin: Pin) -> Effects {
    match pin {
        Pin::Temporary => Effects::TEMP,
        Pin::Lock => Effects::LOCK,
        Pin::Cursor => Effects::CURSOR,
        Pin::Seed => Effects::SEED,
        Pin::Library => Effects::LIBRARY,
        Pin::Sequence => Effects::SEQUENCE.and(Effects::READS_SEQUENCE),
        Pin::Statement => Effects::PREPARE,
        Pin::Listen => Effects::LISTEN,
        Pin::Parameter | Pin::Privileged => Effects::SETTING,
        Pin::Unknown | Pin::Configured => Effects::OPAQUE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_text_it_was() {
        let mut suspects = RecentTexts::default();
        assert_eq!(suspects.of(Pin::Temporary), None);
        suspects.note(Effects::OPAQUE, b"SELECT f(1)");
        suspects.note(Effects::TEMP, b"CREATE TEMP TABLE t AS SELECT 'x'");
        let text = |suspects: &RecentTexts, pin| suspects.of(pin).map(|found| found.text);
        let of_temp = text(&suspects, Pin::Temporary);
        assert_eq!(of_temp.as_deref(), Some("CREATE TEMP TABLE t AS SELECT ?"));
        assert_eq!(text(&suspects, Pin::Lock).as_deref(), Some("SELECT f(?)"));
        for _ in 0..100 {
            suspects.note(Effects::LOCK, &[b'x'; 100_000]);
        }
        let kept: usize = suspects.texts.iter().map(|(_, text)| text.len()).sum();
        assert_eq!(kept, TEXTS_MAX * BYTES_MAX);
        suspects.clear();
        assert_eq!(suspects.of(Pin::Lock), None);
    }
}
