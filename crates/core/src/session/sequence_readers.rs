//! The applications that read sequence values (`currval`, `lastval`) in a later transaction than that of the `nextval`
//! call. Sequence values can't be moved to another server, so clients of these applications keep their servers. Clients
//! of other applications of the same user do not keep theirs.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

/// The applications of a pool that read sequence values, by `application_name`.
#[derive(Debug, Default)]
pub struct SequenceReaders {
    /// Whether there are any names; read without a lock.
    any: AtomicBool,
    names: Mutex<BTreeSet<Box<[u8]>>>,
}

impl SequenceReaders {
    /// The largest number of names. If there are more, every application counts as a reader.
    const MAX: usize = 64;

    /// Notes the `application_name` of a client that has read such a value.
    pub fn insert(&self, application: &[u8]) {
        let mut names = self.names.lock();
        if names.len() <= Self::MAX {
            names.insert(application.into());
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns whether a client with this `application_name` is likely to read such a value.
    #[must_use]
    #[inline]
    pub fn contains(&self, application: &[u8]) -> bool {
        self.any.load(Ordering::Relaxed) && {
            let names = self.names.lock();
            names.len() > Self::MAX || names.contains(application)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded() {
        let readers = SequenceReaders::default();
        assert!(!readers.contains(b""));
        readers.insert(b"a");
        assert!(readers.contains(b"a") && !readers.contains(b"b") && !readers.contains(b""));
        for number in 0..SequenceReaders::MAX {
            readers.insert(number.to_string().as_bytes());
        }
        assert!(readers.contains(b"b"), "too many to tell");
        readers.insert(b"c");
        assert_eq!(readers.names.lock().len(), SequenceReaders::MAX + 1);
    }
}
