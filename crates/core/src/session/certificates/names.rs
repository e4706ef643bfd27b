//! Hashes of names, and a table of their effects.

use super::NameEffects;

/// The hash of a name. ASCII letters of both cases have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sets the bit by which lower-case letters differ from upper-case letters. This also makes some other bytes equal, but
/// no two bytes that an unquoted name can have; the worst result is that two names share the effects of both.
const FOLD: u64 = 0x2020_2020_2020_2020;

impl Name {
    /// Returns the hash of an identifier, without its quotes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut hash = len as u64;
        let mut from = 0;
        while from + 8 < len {
            hash = Self::step(hash, eight(bytes, from) | FOLD);
            from += 8;
        }
        // The last eight bytes may have been hashed in part already.
        let last = if len < 8 {
            short(bytes)
        } else {
            eight(bytes, len - 8)
        };
        Self(Self::step(hash, last | FOLD))
    }

    /// Returns the hash of `text` from `start` to `end`, which is faster if more text follows.
    #[must_use]
    #[inline(always)]
    pub fn at(text: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        match text.get(start..).and_then(<[u8]>::first_chunk::<8>) {
            Some(first) if (1..=8).contains(&len) => {
                let first = u64::from_le_bytes(*first) & u64::MAX >> (64 - 8 * len);
                Self(Self::step(len as u64, first | FOLD))
            }
            _ => Self::of(&text[start..end]),
        }
    }

    /// Returns the index of the name in a table of 2^`bits` slots.
    #[inline]
    pub(crate) const fn place(self, bits: u32) -> usize {
        (self.0 >> (64 - bits)) as usize
    }

    /// Returns a hash of the name and of `bits`.
    pub(super) fn mixed_with(self, bits: u64) -> u64 {
        Self::step(self.0, bits)
    }

    /// Hashes one more chunk of up to eight bytes.
    #[inline]
    const fn step(hash: u64, chunk: u64) -> u64 {
        let product = (hash ^ chunk ^ MULTIPLIER) as u128 * MULTIPLIER as u128;
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Returns eight bytes from `at` on.
const fn eight(bytes: &[u8], at: usize) -> u64 {
    let (_, rest) = bytes.split_at(at);
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => 0,
    }
}

/// Returns fewer than eight bytes, padded with zeros.
const fn short(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return first as u64 | (last as u64) << (8 * (len - 4));
    }
    match *bytes {
        [] => 0,
        [a] => a as u64,
        [a, b] => a as u64 | (b as u64) << 8,
        [a, b, c, ..] => a as u64 | (b as u64) << 8 | (c as u64) << 16,
    }
}

/// The effects of names. The table uses open addressing: a name stands at its hash, or in one of the following slots.
#[derive(Clone, Debug)]
pub(super) struct NameTable {
    /// A hash of zero marks a free slot.
    slots: Box<[(u64, NameEffects)]>,
    len: usize,
}

impl Default for NameTable {
    fn default() -> Self {
        Self {
            slots: vec![(0, NameEffects::default()); 16].into(),
            len: 0,
        }
    }
}

impl NameTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that the table takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Adds effects to a name, if the name is in the table or the table has fewer than `len_max` names.
    pub(super) fn add_up_to(&mut self, len_max: usize, name: Name, traces: NameEffects) {
        if self.len < len_max || self.get(name).is_some() {
            self.add(name, traces);
        }
    }

    /// Adds effects to a name.
    pub(super) fn add(&mut self, name: Name, traces: NameEffects) {
        if self.slots.len() < 2 * (self.len + 1) {
            self.grow();
        }
        let key = name.0.max(1);
        let place = self.place(key);
        let (found, known) = &mut self.slots[place];
        if *found == 0 {
            *found = key;
            self.len += 1;
        }
        known.read |= traces.read;
        known.write |= traces.write;
    }

    #[inline]
    pub(super) fn get(&self, name: Name) -> Option<NameEffects> {
        let key = name.0.max(1);
        let (found, traces) = self.slots[self.place(key)];
        (found != 0).then_some(traces)
    }

    /// Returns the index at which a key stands, or would stand.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = key as usize & mask;
        // Half of the slots are free, so this loop ends.
        while self.slots[place].0 != key && self.slots[place].0 != 0 {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let slots = vec![(0, NameEffects::default()); 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, slots.into());
        for slot in old.into_iter().filter(|slot| slot.0 != 0) {
            let place = self.place(slot.0);
            self.slots[place] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::scan::Effects;

    #[test]
    fn in_a_text() {
        let text = b"select abcdefgh, ABCDEFGHIJKLMNOPQ from a";
        for start in 0..text.len() {
            for end in start..text.len() {
                assert_eq!(Name::at(text, start, end), Name::of(&text[start..end]));
            }
        }
    }

    #[test]
    fn case_is_folded_and_length_counts() {
        assert_eq!(Name::of(b"Set_Config"), Name::of(b"set_config"));
        assert_ne!(Name::of(b"set_config"), Name::of(b"set_confi"));
        assert_ne!(Name::of(b"a"), Name::of(b"a\0"));
        assert_ne!(Name::of(b""), Name::of(b"\0"));
        assert_ne!(Name::of(b"abcdefgh"), Name::of(b"abcdefghabcdefgh"));
    }

    #[test]
    fn a_table_remembers() {
        let mut table = NameTable::default();
        for number in 0..5000 {
            let read = Effects::from_bits(number % 7);
            let write = Effects::NONE;
            table.add(
                Name::of(format!("name {number}").as_bytes()),
                NameEffects { read, write },
            );
        }
        table.add(
            Name::of(b"name 7"),
            NameEffects {
                read: Effects::SEED,
                write: Effects::LOCK,
            },
        );
        for number in 0..5000 {
            let traces = table
                .get(Name::of(format!("NAME {number}").as_bytes()))
                .unwrap();
            if number != 7 {
                assert_eq!(traces.read.bits(), number % 7);
            }
        }
        let joined = table.get(Name::of(b"name 7")).unwrap();
        assert_eq!((joined.read, joined.write), (Effects::SEED, Effects::LOCK));
        assert!(table.get(Name::of(b"name 5000")).is_none());
    }
}
