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

#[cfg(test)]
mod tests {
    use super::{
        super::{Certificates, Known},
        *,
    };

    #[test]
    fn databases_of_one_version_share_the_builtin_functions() {
        let certificates = |effects| {
            let builtin_calls = Arc::new(HashMap::from([(1000, effects)]));
            Certificates::of(Known {
                builtin_calls,
                ..Known::default()
            })
        };
        let shared = SharedBuiltins::default();
        let mut all = [Effects::OPAQUE, Effects::OPAQUE, Effects::NONE].map(certificates);
        for own in &mut all {
            own.share_builtins(&shared);
        }
        let table = |at: usize| &all[at].known.builtin_calls;
        assert!(Arc::ptr_eq(table(0), table(1)));
        assert!(!Arc::ptr_eq(table(0), table(2)));
        assert_eq!(all[1].call_by_oid(1000), Effects::OPAQUE);
        assert_eq!(all[2].call_by_oid(1000), Effects::NONE);
        drop(all);
        assert!(shared.same_as(Arc::default()).is_empty());
        assert_eq!(shared.0.lock().len(), 1);
    }
}
