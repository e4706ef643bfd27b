//! A cache of scan results, for texts that were sent often in recent time.

use super::{
    look, scan,
    template::{Maker, Template},
};
use crate::session::{
    certificates::Certificates,
    sql::{Dialect, Effects, blocks},
};

/// Longer texts are not cached.
const TEXT_LEN_MAX: usize = 4096;
/// The number of sets. The hash of a text's beginning selects the set.
const SETS: usize = 32;
/// The largest number of verdicts in a set.
const WAYS: usize = 8;
/// The largest number of bytes of texts in a set.
const SET_BYTES: usize = 10 * 1024;
/// If a set is full, only one of 2^n texts that are not found there is added. The exponent n grows with the number of
/// added texts that never occurred again. So texts that occur only once are rarely added.
const PATIENCE_MIN: u8 = 3;
const PATIENCE_MAX: u8 = 8;
/// The constants of Knuth's linear congruential generator, which has the full period.
const STEP: u32 = 1_664_525;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Remembers verdicts by texts. The cache compares texts as a whole; numbers, strings and comments may differ where
/// they make no difference. Takes at most 320 kB.
#[derive(Debug, Default)]
pub struct VerdictCache {
    /// The id of the certificates, and the dialect, under which the verdicts were found.
    under: Option<(u64, Dialect)>,
    sets: Vec<Set>,
}

/// Verdicts on texts whose beginnings share some bits of their hash.
#[derive(Clone, Debug, Default)]
struct Set {
    known: Vec<Known>,
    /// The state of a pseudorandom generator, which advances with each text that was not found. It decides which texts
    /// are added, so that texts which alternate are not always added or always left out.
    missed: u32,
    /// The number that is added to `PATIENCE_MIN`. Grows when an added text never occurred again.
    patience: u8,
    /// The position of the next verdict that is checked for removal.
    hand: u8,
}

#[derive(Clone, Debug)]
struct Known {
    head: u64,
    effects: Effects,
    /// Whether the verdict was used since it was last checked for removal.
    was_used: bool,
    /// Whether the verdict was used at least once.
    is_of_use: bool,
    template: Template,
    /// The hash of the text's fingerprint, once someone has asked for it. All texts that fit the template have the same.
    fingerprint: Option<u64>,
}

/// The place of the text that was read last in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    set: usize,
    way: usize,
}

/// The result of scanning a text.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The result of [`scan`].
    pub effects: Effects,
    /// The place of the text in the cache. Valid until the next text is read.
    pub place: Option<Place>,
}

impl VerdictCache {
    /// Returns the same as [`scan`].
    #[inline]
    pub fn scan(&mut self, text: &[u8], dialect: Dialect, certificates: &Certificates) -> Effects {
        self.read(text, dialect, certificates).effects
    }

    /// Returns the result of [`scan`], and the place of the text in the cache.
    #[inline]
    pub fn read(&mut self, text: &[u8], dialect: Dialect, certificates: &Certificates) -> Verdict {
        if text.is_empty() || text.len() > TEXT_LEN_MAX {
            return Verdict {
                effects: scan(text, dialect, certificates),
                place: None,
            };
        }
        let under = Some((certificates.id(), dialect));
        if self.under != under {
            self.sets.clear();
            self.sets.resize(SETS, Set::default());
            self.under = under;
        }
        let head = head(text);
        let at = (head >> 32) as usize % SETS;
        let set = &mut self.sets[at];
        if let Some((effects, way)) = set.find(head, text) {
            return Verdict {
                effects,
                place: Some(Place { set: at, way }),
            };
        }
        if !set.takes(text.len()) {
            return Verdict {
                effects: look(text, dialect, certificates, &mut ()).found,
                place: None,
            };
        }
        let mut maker = Maker::default();
        let seen = look(text, dialect, certificates, &mut maker);
        let way = set.keep(Known {
            head,
            effects: seen.found,
            was_used: false,
            is_of_use: false,
            // The texts that have the same verdict as this one.
            template: match seen.by_literals {
                true => Template::exact(text),
                false => maker.finish(text),
            },
            fingerprint: None,
        });
        Verdict {
            effects: seen.found,
            place: Some(Place { set: at, way }),
        }
    }

    /// Returns the hash of the fingerprint of the text that was read last. `find` computes the hash.
    #[inline]
    pub fn fingerprint(&mut self, place: Option<Place>, find: impl FnOnce() -> u64) -> u64 {
        let known = place.and_then(|Place { set, way }| self.sets.get_mut(set)?.known.get_mut(way));
        match known {
            Some(known) => *known.fingerprint.get_or_insert_with(find),
            None => find(),
        }
    }

    /// Forgets all texts.
    pub fn clear(&mut self) {
        self.under = None;
        self.sets = Vec::new();
    }

    /// Returns the number of texts, and the bytes that they take.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let known = self.sets.iter().flat_map(|set| &set.known);
        known.fold((0, 0), |(count, bytes), known| {
            (
                count + 1,
                bytes + size_of::<Known>() + known.template.bytes(),
            )
        })
    }
}

impl Set {
    #[inline]
    fn find(&mut self, head: u64, text: &[u8]) -> Option<(Effects, usize)> {
        let mut all = self.known.iter_mut().enumerate();
        let (way, known) =
            all.find(|(_, known)| known.head == head && known.template.fits(text))?;
        known.was_used = true;
        if !std::mem::replace(&mut known.is_of_use, true) {
            self.patience = self.patience.saturating_sub(1);
        }
        Some((known.effects, way))
    }

    /// Returns whether to add a text that was not found.
    fn takes(&mut self, bytes: usize) -> bool {
        self.missed = self.missed.wrapping_mul(STEP).wrapping_add(1);
        let every = PATIENCE_MIN + self.patience;
        self.missed.leading_zeros() >= u32::from(every)
            || self.patience == 0 && self.has_room(bytes)
    }

    fn has_room(&self, bytes: usize) -> bool {
        let used = self.known.iter().map(|known| known.template.bytes());
        self.known.len() < WAYS && used.sum::<usize>() + bytes <= SET_BYTES
    }

    /// Adds a verdict, in place of verdicts that were never or not lately used. Returns its place.
    #[cold]
    fn keep(&mut self, new: Known) -> usize {
        if self.patience > 0 || !self.has_room(new.template.bytes()) {
            let all = self.known.len();
            self.known.retain(|known| known.is_of_use);
            let more = self.patience + u8::from(self.known.len() < all);
            self.patience = more.min(PATIENCE_MAX - PATIENCE_MIN);
        }
        while !self.known.is_empty() && !self.has_room(new.template.bytes()) {
            self.hand = self.hand.wrapping_add(1);
            let at = usize::from(self.hand) % self.known.len();
            if !std::mem::take(&mut self.known[at].was_used) {
                self.known.swap_remove(at);
            }
        }
        self.known.push(new);
        self.known.len() - 1
    }
}

/// Returns a hash of a text's beginning, as far as it is the same for all texts that fit the same template: up to the
/// first digit, quote or slash, after a comment at the start.
#[inline]
fn head(text: &[u8]) -> u64 {
    let mut text = text;
    if let [b'/', b'*', ..] = text {
        text = behind_comment(text);
    }
    let (first, second) = match text.first_chunk::<32>() {
        Some(block) => {
            let halves = block.as_chunks::<16>().0;
            (
                u128::from_le_bytes(halves[0]),
                u128::from_le_bytes(halves[1]),
            )
        }
        None => {
            let (first, second) = text.split_at(text.len().min(16));
            (blocks::padded(first), blocks::padded(second))
        }
    };
    let (hash, ends) = add_head(MULTIPLIER, first);
    if ends { hash } else { add_head(hash, second).0 }
}

/// Adds sixteen bytes to a hash, and returns whether the beginning ends among them.
#[inline]
fn add_head(hash: u64, bytes: u128) -> (u64, bool) {
    let openings = blocks::openings(&bytes.to_le_bytes());
    let kept = match openings {
        0 => bytes,
        _ => bytes & ((1 << (8 * openings.trailing_zeros())) - 1),
    };
    let both = kept as u64 ^ ((kept >> 64) as u64).rotate_left(29);
    let hash = (hash.rotate_left(23) ^ both).wrapping_mul(MULTIPLIER);
    (hash, openings != 0)
}

#[cold]
fn behind_comment(text: &[u8]) -> &[u8] {
    let end = blocks::comment_end(text, 0);
    text.get(end.unwrap_or_default()..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_returns_the_result_of_scan() {
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
            assert_eq!(repeated, Effects::NONE);
        }
        let other = cache.scan(
            b"select 1 from users",
            Dialect::Utf8,
            &Certificates::unread(),
        );
        assert_eq!(other, Effects::OPAQUE | Effects::UNREAD);
        let unreadable = cache.scan(b"select 1 from users", Dialect::Unreadable, &certificates);
        assert_eq!(unreadable, Effects::OPAQUE);
        let again = cache.scan(b"select 1 from users", Dialect::Utf8, &certificates);
        assert_eq!(again, Effects::NONE);
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
            let long = format!("select {}", "1, ".repeat(number % 1300));
            let _ = cache.scan(long.as_bytes(), Dialect::Utf8, &certificates);
            let _ = cache.scan(&vec![b' '; 5000], Dialect::Utf8, &certificates);
        }
        let known = cache.sets.iter().flat_map(|set| &set.known);
        let kept: usize = known.map(|known| known.template.bytes()).sum();
        assert!(kept <= SETS * SET_BYTES, "{kept}");
    }

    #[test]
    fn the_contents_of_a_string_may_matter() {
        let certificates = Certificates::none();
        let mut cache = VerdictCache::default();
        for _ in 0..2 {
            for (text, expect) in [
                ("select set_config('app.x', '1', true)", Effects::NONE),
                ("select set_config('seed', '1', true)", Effects::SEED),
                ("select set_config('app.y', '1', false)", Effects::SETTING),
            ] {
                let found = cache.scan(text.as_bytes(), Dialect::Utf8, &certificates);
                assert_eq!(found, expect, "{text}");
            }
        }
    }

    /// Texts that occur once are rarely cached, and don't keep others out, not even where they alternate with one.
    #[test]
    fn texts_that_are_sent_once_are_not_cached() {
        let certificates = Certificates::none();
        let mut cache = VerdictCache::default();
        let keeps = |cache: &VerdictCache, text: &str| {
            let mut known = cache.sets.iter().flat_map(|set| &set.known);
            known.any(|known| known.template.fits(text.as_bytes()))
        };
        let mut said = 0;
        let mut other = |cache: &mut VerdictCache| {
            said += 1;
            let text = format!("select lower('') as x{said}");
            let _ = cache.scan(text.as_bytes(), Dialect::Utf8, &certificates);
            keeps(cache, &text)
        };
        for _ in 0..2000 {
            other(&mut cache);
        }
        let kept = (0..2000).filter(|_| other(&mut cache)).count();
        assert!((1..40).contains(&kept), "{kept} of 2000");
        let usual = "select lower('') as one_that_is_said_all_the_time";
        let turns = (0..10_000).take_while(|_| {
            other(&mut cache);
            let _ = cache.scan(usual.as_bytes(), Dialect::Utf8, &certificates);
            !keeps(&cache, usual)
        });
        let turns = turns.count();
        assert!(turns < 2000, "{turns}");
    }

    #[test]
    fn frequent_texts_stay_in_the_cache() {
        let certificates = Certificates::none();
        let mut cache = VerdictCache::default();
        let usual = b"select lower('one that is said all the time')";
        for number in 0..2000 {
            let _ = cache.scan(usual, Dialect::Utf8, &certificates);
            let other = format!("select lower('') as x{number}");
            let _ = cache.scan(other.as_bytes(), Dialect::Utf8, &certificates);
        }
        let mut known = cache.sets.iter().flat_map(|set| &set.known);
        assert!(known.any(|known| known.template.fits(usual)));
    }
}
