//! The columns of a row of facts.

use pgweir_wire::Body as Row;

/// The largest number of columns of a row.
const COLUMNS: usize = 11;

/// The columns of one row. NULL is empty.
pub(super) struct Columns<'r>([&'r [u8]; COLUMNS]);

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r [u8]) -> Option<Self> {
        let mut body = Row::new(row);
        let count = usize::from(u16::from_be_bytes(body.bytes(2).ok()?.try_into().ok()?));
        let mut columns: [&[u8]; COLUMNS] = [b""; COLUMNS];
        for column in columns.get_mut(..count)? {
            if let Ok(len) = usize::try_from(body.i32().ok()?) {
                *column = body.bytes(len).ok()?;
            }
        }
        Some(Self(columns))
    }

    pub(super) fn bytes(&self, at: usize) -> &'r [u8] {
        self.0[at]
    }

    /// Returns a column as text. If the database has no encoding, the text may end early; names beyond ASCII are not
    /// compared there.
    pub(super) fn text(&self, at: usize) -> &'r str {
        let mut chunks = self.0[at].utf8_chunks();
        chunks.next().map_or("", |chunk| chunk.valid())
    }

    pub(super) fn oid(&self, at: usize) -> Option<u32> {
        self.text(at).parse().ok()
    }
}
