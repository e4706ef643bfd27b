//! Names as hashes, and what is known of them.

use super::Traces;

/// The hash of a name, blind to the case of ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sets the bit that tells a lower-case letter. Other bytes of names fall together by it too (not two
/// that a name without quotes can have), which can only join the suspicions of two names.
const FOLD: u64 = 0x2020_2020_2020_2020;

impl Name {
    /// Of an identifier, without its quotes.
    #[must_use]
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut hash = len as u64;
        if let Some(last) = bytes.last_chunk::<8>() {
            // The last eight bytes may have been taken in part already.
            let (chunks, _) = bytes[..len - 1].as_chunks::<8>();
            for chunk in chunks {
                hash = Self::step(hash, u64::from_le_bytes(*chunk) | FOLD);
            }
            return Self(Self::step(hash, u64::from_le_bytes(*last) | FOLD));
        }
        let short = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
            }
            _ => match *bytes {
                [] => 0,
                [a] => u64::from(a),
                [a, b] => u64::from(a) | u64::from(b) << 8,
                [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            },
        };
        Self(Self::step(hash, short | FOLD))
    }

    /// A hash of it and of something else.
    pub(super) fn mixed_with(self, bits: u64) -> u64 {
        Self::step(self.0, bits)
    }

    /// One more chunk of up to eight bytes.
    #[inline]
    fn step(hash: u64, chunk: u64) -> u64 {
        let product = u128::from(hash ^ chunk ^ MULTIPLIER) * u128::from(MULTIPLIER);
        (product as u64) ^ (product >> 64) as u64
    }
}

/// What is known of names. Open addressing: a name stands at its hash, or in the places after it.
#[derive(Clone, Debug)]
pub(super) struct NameTable {
    /// Zero is a free place.
    slots: Box<[(u64, Traces)]>,
    len: usize,
}

impl Default for NameTable {
    fn default() -> Self {
        Self {
            slots: vec![(0, Traces::default()); 16].into(),
            len: 0,
        }
    }
}

impl NameTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds to what is known of a name, if it is known or there are fewer than `len_max`.
    pub(super) fn add_up_to(&mut self, len_max: usize, name: Name, traces: Traces) {
        if self.len < len_max || self.get(name).is_some() {
            self.add(name, traces);
        }
    }

    /// Adds to what is known of a name.
    pub(super) fn add(&mut self, name: Name, traces: Traces) {
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
    pub(super) fn get(&self, name: Name) -> Option<Traces> {
        let key = name.0.max(1);
        let (found, traces) = self.slots[self.place(key)];
        (found != 0).then_some(traces)
    }

    /// Where a key stands, or would.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = key as usize & mask;
        // Half of the places are free, so this ends.
        while self.slots[place].0 != key && self.slots[place].0 != 0 {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let slots = vec![(0, Traces::default()); 2 * self.slots.len()];
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
    use crate::session::scan::Suspicion;

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
            let read = Suspicion::from_bits(number % 7);
            let write = Suspicion::NONE;
            table.add(
                Name::of(format!("name {number}").as_bytes()),
                Traces { read, write },
            );
        }
        table.add(
            Name::of(b"name 7"),
            Traces {
                read: Suspicion::SEED,
                write: Suspicion::LOCK,
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
        assert_eq!(
            (joined.read, joined.write),
            (Suspicion::SEED, Suspicion::LOCK)
        );
        assert!(table.get(Name::of(b"name 5000")).is_none());
    }
}
