//! Reads rows of the console's tables, and chooses the names that have series of their own.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use pgweir_core::console::{Cell, Table};

/// The name under which series are added up.
pub(super) const OTHER: &str = "(other)";

/// The names that have series of their own.
#[derive(Debug)]
pub(super) struct LabelledNames<N> {
    kept: BTreeSet<N>,
    /// The number of names that have none.
    pub(super) folded: u64,
}

impl<N: Ord + Clone> LabelledNames<N> {
    /// Chooses names: those that were chosen before, as long as they exist, and new ones while there is room.
    pub(super) fn choose(
        before: &RefCell<BTreeSet<N>>,
        present: impl Iterator<Item = N>,
        most: usize,
    ) -> Self {
        let present: BTreeSet<N> = present.collect();
        let mut kept: BTreeSet<N> = before.borrow().intersection(&present).cloned().collect();
        while kept.len() > most {
            kept.pop_last();
        }
        for name in &present {
            if kept.len() >= most {
                break;
            }
            kept.insert(name.clone());
        }
        before.replace(kept.clone());
        let folded = (present.len() - kept.len()) as u64;
        Self { kept, folded }
    }
}

impl LabelledNames<String> {
    /// Returns the name, or the one that stands for all others.
    pub(super) fn name<'n>(&self, name: &'n str) -> &'n str {
        if self.kept.contains(name) {
            name
        } else {
            OTHER
        }
    }
}

impl LabelledNames<(String, String)> {
    /// Returns database and user, or the names that stand for all others.
    pub(super) fn names<'n>(&self, database: &'n str, user: &'n str) -> [&'n str; 2] {
        // A set of owned pairs can't be searched for a borrowed pair.
        match self.kept.contains(&(database.to_owned(), user.to_owned())) {
            true => [database, user],
            false => [OTHER, OTHER],
        }
    }
}

/// Returns the text in a column, by its index.
pub(super) fn text_at(row: &[Cell], column: usize) -> Option<String> {
    match row.get(column)? {
        Cell::Text(text) => Some(text.clone()),
        Cell::Int(number) => Some(number.to_string()),
        Cell::Null => None,
    }
}

/// Returns the index of a column.
pub(super) fn column(table: &Table, name: &str) -> Option<usize> {
    table.0.iter().position(|(column, _)| *column == name)
}

/// Returns the number in a column; 0 if there is none.
pub(super) fn number(row: &[Cell], column: Option<usize>) -> u64 {
    match column.and_then(|column| row.get(column)) {
        Some(Cell::Int(number)) => *number,
        _ => 0,
    }
}

/// Values by the values of their labels. Values with the same labels are added up, or the largest of them counts.
#[derive(Debug, Default)]
pub(super) struct Sums<const LABELS: usize>(BTreeMap<[String; LABELS], u64>);

impl<const LABELS: usize> Sums<LABELS> {
    pub(super) fn add(&mut self, labels: [String; LABELS], value: u64) {
        *self.0.entry(labels).or_default() += value;
    }

    pub(super) fn raise(&mut self, labels: [String; LABELS], value: u64) {
        let highest = self.0.entry(labels).or_default();
        *highest = value.max(*highest);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[String; LABELS], u64)> {
        self.0.iter().map(|(labels, value)| (labels, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_series_when_others_come() {
        let before = RefCell::default();
        let choose = |present: &[&str]| {
            let present = present.iter().map(|name| (*name).to_owned());
            LabelledNames::choose(&before, present, 2)
        };
        let kept = choose(&["m"]);
        assert_eq!((kept.name("m"), kept.folded), ("m", 0));
        // "a" and "b" come before "m" in the alphabet, and one of them finds room.
        let kept = choose(&["a", "b", "m"]);
        assert_eq!((kept.name("m"), kept.folded), ("m", 1));
        assert_eq!((kept.name("a"), kept.name("b")), ("a", OTHER));
        let kept = choose(&["b", "m"]);
        assert_eq!((kept.name("b"), kept.folded), ("b", 0));
    }

    #[test]
    fn values_of_the_same_labels_are_added_up() {
        let mut sums = Sums::default();
        let labels = || ["a".to_owned()];
        sums.add(labels(), 2);
        sums.add(labels(), 3);
        assert_eq!(sums.iter().map(|(_, value)| value).collect::<Vec<_>>(), [5]);
        sums.raise(labels(), 4);
        sums.raise(labels(), 7);
        assert_eq!(sums.iter().map(|(_, value)| value).collect::<Vec<_>>(), [7]);
    }
}
