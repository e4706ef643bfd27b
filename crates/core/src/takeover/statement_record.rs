//! A prepared statement in a record.

use std::fmt;

use super::{
    BadFrame,
    field::{Fields, Writer},
};

/// A prepared statement of a client, or of a server.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StatementRecord {
    /// The client's name for the statement; empty in a server's list.
    pub name: Vec<u8>,
    /// The statement's id, from which its name on servers follows.
    pub id: u64,
    /// The statement's text, the number of its parameter types, and the types.
    pub definition: Vec<u8>,
}

mod tag {
    pub(super) const NAME: u8 = 1;
    pub(super) const ID: u8 = 2;
    pub(super) const DEFINITION: u8 = 3;
}

impl StatementRecord {
    pub(super) fn write(&self, to: &mut Writer) {
        to.bytes(tag::NAME, &self.name)
            .number(tag::ID, self.id)
            .bytes(tag::DEFINITION, &self.definition);
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut record = Self::default();
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::NAME => record.name = field.value.to_vec(),
                tag::ID => record.id = field.number()?,
                tag::DEFINITION => record.definition = field.value.to_vec(),
                _ => field.unknown()?,
            }
        }
        Ok(record)
    }
}

impl fmt::Debug for StatementRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain secrets.
        f.debug_struct("StatementRecord")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
