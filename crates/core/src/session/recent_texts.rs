//! Keeps the last texts that may have changed a session, so that operators can see which text has pinned a client.

use super::{Effects, Fingerprint};
use crate::base::pin::Pin;

/// The number of texts that are kept.
const TEXTS_MAX: usize = 4;
/// The bytes that are kept of each text.
const BYTES_MAX: usize = 512;

/// The last texts that may have changed a session, since its state was last known.
#[derive(Debug, Default)]
pub struct RecentTexts {
    /// The buffers are reused.
    texts: Vec<RecentText>,
    /// The number of texts that were noted.
    noted: usize,
}

#[derive(Debug, Default)]
struct RecentText {
    effects: Effects,
    /// The beginning of the text.
    beginning: Vec<u8>,
    /// The hash of the whole text's fingerprint, if only its beginning is kept.
    hash: Option<u64>,
}

impl RecentTexts {
    /// Notes a text. `hash`: that of its fingerprint, if it is known.
    pub fn note(&mut self, effects: Effects, text: &[u8], hash: Option<u64>) {
        if self.texts.len() < TEXTS_MAX {
            self.texts.resize_with(TEXTS_MAX, Default::default);
        }
        let slot = &mut self.texts[self.noted % TEXTS_MAX];
        slot.effects = effects;
        slot.hash = hash.filter(|_| text.len() > BYTES_MAX);
        slot.beginning.clear();
        slot.beginning
            .extend_from_slice(&text[..text.len().min(BYTES_MAX)]);
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
        let first = |sign: Effects| texts.iter().find(|text| text.effects.intersects(sign));
        let text = first(sign(pin)).or_else(|| first(Effects::OPAQUE))?;
        (!text.beginning.is_empty()).then(|| {
            let fingerprint = Fingerprint::of(&text.beginning);
            Fingerprint {
                hash: text.hash.unwrap_or(fingerprint.hash),
                ..fingerprint
            }
        })
    }
}

/// Returns the effects by which a text that causes this pin is recognized.
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
    fn the_text_that_caused_a_pin() {
        let mut recent = RecentTexts::default();
        assert_eq!(recent.of(Pin::Temporary), None);
        recent.note(Effects::OPAQUE, b"SELECT f(1)", None);
        recent.note(Effects::TEMP, b"CREATE TEMP TABLE t AS SELECT 'x'", Some(7));
        let text = |recent: &RecentTexts, pin| recent.of(pin).map(|found| found.text);
        let of_temp = text(&recent, Pin::Temporary);
        assert_eq!(of_temp.as_deref(), Some("CREATE TEMP TABLE t AS SELECT ?"));
        let hash = |recent: &RecentTexts, pin| recent.of(pin).map(|found| found.hash);
        let whole = Fingerprint::of(b"CREATE TEMP TABLE t AS SELECT 'x'");
        assert_eq!(hash(&recent, Pin::Temporary), Some(whole.hash));
        assert_eq!(text(&recent, Pin::Lock).as_deref(), Some("SELECT f(?)"));
        for _ in 0..100 {
            recent.note(Effects::LOCK, &[b'x'; 100_000], Some(7));
        }
        assert_eq!(hash(&recent, Pin::Lock), Some(7), "that of the whole text");
        let kept = recent.texts.iter().map(|text| text.beginning.len());
        let kept: usize = kept.sum();
        assert_eq!(kept, TEXTS_MAX * BYTES_MAX);
        recent.clear();
        assert_eq!(recent.of(Pin::Lock), None);
    }
}
