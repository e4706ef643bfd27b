//! A table of names, each with the effects of the functions and relations that have it.

use crate::session::sql::{Name, NameEffects};

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
        let key = name.key();
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
        let key = name.key();
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
    use crate::session::sql::Effects;

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
