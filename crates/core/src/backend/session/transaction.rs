//! The possible effects of the texts of the present transaction.

use crate::{
    Ddl,
    session::{Effects, scan::DdlWords},
};

/// The possible effects of the texts of the present transaction.
#[derive(Debug, Default)]
pub struct TransactionState {
    /// The effects of the texts of outstanding requests.
    pub(crate) effects: Effects,
    /// The generation of the certificates by which the transaction's first text was read.
    pub(crate) certified_by: Option<u64>,
    /// Set if a text of the transaction may change the catalog.
    pub(crate) ddl: Option<Ddl>,
    /// The scanner for DDL words in a text that has not arrived completely.
    pub(crate) ddl_words: Option<DdlWords>,
    /// The number of the schema that the transaction sees, if the transaction may have changed the schema.
    pub(crate) schema: Option<u32>,
    /// Roles and databases whose session defaults the texts of this transaction may have changed.
    pub(crate) changed_roles: Vec<String>,
}
