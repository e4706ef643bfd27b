//! A table of the console. All values are made printable when they are read: names may be anything.

use pgweir_wire::{Body, Malformed};

/// A table: the names of its columns, and its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Option<String>>>,
}

/// A row with its columns' names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'t> {
    columns: &'t [String],
    values: &'t [Option<String>],
}

impl Table {
    /// Creates an empty table from the body of a RowDescription.
    pub(super) fn of_description(body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(body);
        let count = u16::from_be_bytes([body.u8()?, body.u8()?]);
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(printable(&String::from_utf8_lossy(body.cstr()?)));
            // The table, the column's number, the type and its length, and the format.
            body.bytes(18)?;
        }
        Ok(Self {
            columns,
            rows: Vec::new(),
        })
    }

    /// Adds a row, the body of a DataRow.
    pub(super) fn add(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut body = Body::new(body);
        let count = u16::from_be_bytes([body.u8()?, body.u8()?]);
        let mut row = Vec::new();
        for _ in 0..count {
            let len = body.i32()?;
            row.push(match usize::try_from(len) {
                Ok(len) => Some(printable(&String::from_utf8_lossy(body.bytes(len)?))),
                Err(_) => None,
            });
        }
        row.resize(self.columns.len(), None);
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + ExactSizeIterator {
        self.rows.iter().map(|values| Row {
            columns: &self.columns,
            values,
        })
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }
}

impl<'t> Row<'t> {
    /// Returns the value of a column; `None` if it is NULL or the table has no such column.
    pub(super) fn get(&self, column: &str) -> Option<&'t str> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at)?.as_deref()
    }

    /// Returns a text; an empty one instead of NULL.
    pub(super) fn text(&self, column: &str) -> &'t str {
        self.get(column).unwrap_or_default()
    }

    /// Returns a number; `None` if the value is none.
    pub(super) fn number(&self, column: &str) -> Option<u64> {
        self.get(column)?.parse().ok()
    }

    /// Returns a number; 0 if the value is none.
    pub(super) fn count(&self, column: &str) -> u64 {
        self.number(column).unwrap_or_default()
    }

    /// Returns the columns and their values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let values = self.values.iter();
        let pairs = self.columns.iter().zip(values);
        pairs.filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }
}

/// Returns a text that can't do anything to a terminal: each control character, and each invisible character that changes
/// the direction or the place of others, becomes `·`; line breaks and tabs become blanks.
pub(super) fn printable(text: &str) -> String {
    let plain = |character: char| match character {
        '\n' | '\r' | '\t' => ' ',
        _ if character.is_control() => '·',
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => {
            '·'
        }
        '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => '·',
        '\u{e0000}'..='\u{e0fff}' => '·',
        _ => character,
    };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2Jb\u{7}\u{9b}c\nd\u{202e}e"),
            "a·[2Jb··c d·e"
        );
        assert_eq!(printable("Zürich 東京"), "Zürich 東京");
    }

    #[test]
    fn tables_are_read() {
        let mut bytes = Vec::new();
        let mut writer = pgweir_wire::MessageWriter::new(&mut bytes);
        writer.row_description([("name", 25, -1), ("count", 20, 8)].into_iter());
        let split = bytes.len();
        let mut row = Vec::new();
        let values: [Option<&[u8]>; 2] = [Some(b"a\x1bb"), None];
        pgweir_wire::MessageWriter::new(&mut row).data_row(values.into_iter());
        let mut table = Table::of_description(&bytes[5..split]).expect("columns");
        table.add(&row[5..]).expect("a row");
        let first = table.iter().next().expect("a row");
        assert_eq!((first.text("name"), first.number("count")), ("a·b", None));
        assert_eq!(first.get("other"), None);
        for end in 0..row.len() - 5 {
            assert!(table.add(&row[5..5 + end]).is_err(), "cut at {end}");
        }
    }
}
