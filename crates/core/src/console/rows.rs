//! The console's tables, written as RowDescription and DataRow messages.

use pgweir_wire::MessageWriter;
use time::{OffsetDateTime, macros::format_description};

use crate::Time;

/// A column's type, by PostgreSQL's type OIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `text`
    Text,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `numeric`
    Numeric,
    /// `bytea`
    Bytea,
}

/// A column's name and type.
pub type Column = (&'static str, Kind);

/// A table: its columns, and its rows.
pub type Table = (Vec<Column>, Vec<Vec<Cell>>);

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// NULL
    Null,
    /// A text.
    Text(String),
    /// A number.
    Int(u64),
}

/// Appends a table and the command's tag.
pub(crate) fn write_table(columns: &[Column], rows: &[Vec<Cell>], out: &mut Vec<u8>) {
    let mut writer = MessageWriter::new(out);
    writer.row_description(columns.iter().map(|&(name, kind)| {
        let (oid, size) = match kind {
            Kind::Text => (25, -1),
            Kind::Int4 => (23, 4),
            Kind::Int8 => (20, 8),
            Kind::Bytea => (17, -1),
            Kind::Numeric => (1700, -1),
        };
        (name, oid, size)
    }));
    for row in rows {
        let texts: Vec<Option<String>> = row
            .iter()
            .map(|cell| match cell {
                Cell::Null => None,
                Cell::Text(text) => Some(text.clone()),
                Cell::Int(number) => Some(number.to_string()),
            })
            .collect();
        writer.data_row(texts.iter().map(|text| text.as_deref().map(str::as_bytes)));
    }
    writer.command_complete("SHOW");
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Int(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Int(number as u64)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Returns a time in PgBouncer's format, in UTC.
pub(crate) fn date(time: Time) -> Cell {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    let seconds = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
    let text = OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(format).ok());
    text.into()
}
