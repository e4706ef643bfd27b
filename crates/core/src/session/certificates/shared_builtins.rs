//! The tables of PostgreSQL's own functions, which databases of one version share.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{Effects, bytes_of};

/// The tables of PostgreSQL's own functions that certificates use. Databases of one version share a table, unless somebody has
/// changed the functions of one.
#[derive(Debug, Default)]
pub(crate) struct SharedBuiltins(Mutex<Vec<Weak<HashMap<u32, Effects>>>>);

impl SharedBuiltins {
    /// Returns the bytes that the tables take.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.0.lock();
        let in_use = tables.iter().filter_map(Weak::upgrade);
        in_use.map(|table| bytes_of(&table)).sum()
    }

    /// Returns the table in use with the same content, or else this one.
    pub(super) fn same_as(&self, own: Arc<HashMap<u32, Effects>>) -> Arc<HashMap<u32, Effects>> {
        let mut tables = self.0.lock();
        tables.retain(|table| table.strong_count() > 0);
        let mut in_use = tables.iter().filter_map(Weak::upgrade);
        if let Some(same) = in_use.find(|table| **table == *own) {
            return same;
        }
        tables.push(Arc::downgrade(&own));
        own
    }
}
