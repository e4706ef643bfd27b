//! What was found of the texts that were said most often lately.

use super::{Dialect, Suspicion, scan};
use crate::session::certificates::Certificates;

/// Longer texts are not kept.
const TEXT_LEN_MAX: usize = 1024;
/// So many texts are kept.
const SLOTS: usize = 256;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Remembers verdicts by the exact text, each text in the one slot that its hash says. A text is kept
/// when it comes for the second time in a row there: those with other values each time cost nothing
/// but their hash. At most 256 kB.
#[derive(Debug, Default)]
pub struct VerdictCache {
    /// What the verdicts were found under.
    under: Option<(u64, Dialect)>,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    hash: u64,
    /// Zero for a text that came once, and was not kept.
    text: Vec<u8>,
    suspicion: Suspicion,
}

impl VerdictCache {
    /// As [`scan`] says.
    #[inline]
    pub fn scan(
        &mut self,
        text: &[u8],
        dialect: Dialect,
        certificates: &Certificates,
    ) -> Suspicion {
        if text.is_empty() || text.len() > TEXT_LEN_MAX {
            return scan(text, dialect, certificates);
        }
        let under = Some((certificates.id(), dialect));
        if self.under != under {
            self.slots.clear();
            self.slots.resize(SLOTS, Slot::default());
            self.under = under;
        }
        let hash = hash(text);
        let slot = &mut self.slots[hash as usize % SLOTS];
        if slot.hash != hash {
            slot.hash = hash;
            slot.text.clear();
            return scan(text, dialect, certificates);
        }
        if slot.text == text {
            return slot.suspicion;
        }
        slot.suspicion = scan(text, dialect, certificates);
        slot.text.clear();
        slot.text.extend_from_slice(text);
        slot.suspicion
    }
}

/// A hash that need not withstand anybody: the text is compared.
#[inline]
fn hash(text: &[u8]) -> u64 {
    let step = |hash: u64, eight: u64| {
        let product = u128::from(hash ^ eight) * u128::from(MULTIPLIER);
        (product as u64) ^ (product >> 64) as u64
    };
    let (chunks, rest) = text.as_chunks::<16>();
    let mut hash = text.len() as u64 ^ MULTIPLIER;
    for chunk in chunks {
        let both = u128::from_le_bytes(*chunk);
        hash = step(hash ^ (both >> 64) as u64, (both as u64).rotate_left(32));
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte))
            .wrapping_mul(MULTIPLIER | 1)
            .rotate_left(23);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_scan_says() {
        let rows = [[&b"r"[..], b"users", b"", b""]];
        let certificates = Certificates::from_rows(1, rows);
        let mut cache = VerdictCache::default();
        let texts: Vec<_> = (0..2000)
            .map(|number| match number % 3 {
                0 => format!("select {number} from users"),
                1 => format!("select {number} from unknown"),
                _ => format!("select pg_advisory_lock({number})"),
            })
            .collect();
        for round in 0..4 {
            for text in texts.iter().map(String::as_bytes) {
                let expect = scan(text, Dialect::Utf8, &certificates);
                assert_eq!(
                    cache.scan(text, Dialect::Utf8, &certificates),
                    expect,
                    "{round}"
                );
            }
        }
        for _ in 0..4 {
            let repeated = cache.scan(b"select 1 from users", Dialect::Utf8, &certificates);
            assert_eq!(repeated, Suspicion::NONE);
        }
        let other = cache.scan(b"select 1 from users", Dialect::Utf8, &Certificates::none());
        assert_eq!(other, Suspicion::OPAQUE);
        let unreadable = cache.scan(b"select 1 from users", Dialect::Unreadable, &certificates);
        assert_eq!(unreadable, Suspicion::OPAQUE);
        let again = cache.scan(b"select 1 from users", Dialect::Utf8, &certificates);
        assert_eq!(again, Suspicion::NONE);
    }

    #[test]
    fn memory_is_bounded() {
        let mut cache = VerdictCache::default();
        let certificates = Certificates::none();
        for number in 0..3000 {
            let text = format!("select {number}, '{}'", "x".repeat(1000));
            for _ in 0..3 {
                let _ = cache.scan(text.as_bytes(), Dialect::Utf8, &certificates);
            }
            let _ = cache.scan(&vec![b' '; 5000], Dialect::Utf8, &certificates);
        }
        let kept: usize = cache.slots.iter().map(|slot| slot.text.capacity()).sum();
        assert!(kept <= 2 * SLOTS * TEXT_LEN_MAX, "{kept}");
    }
}
