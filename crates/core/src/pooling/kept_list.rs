//! The servers of a pool that are kept with their clients, in the order in which they are settled.

use std::{collections::BTreeSet, ops::Bound};

use crate::{Time, Token};

/// A server in a [`KeptList`]: since when it is kept, as far as the list knows, and its token.
pub(crate) type KeptServer = (Time, Token);

/// Servers that are kept with their clients until another client waits for one, the longest kept one first.
///
/// A server whose client goes on with it stays in the list, at its old place, so that this costs nothing. Whoever walks the
/// list finds such a server early, and moves it (see `exchange/kept.rs`). Some of the servers may be in use or gone by
/// now. Each server is in the list once at most.
#[derive(Debug, Default)]
pub(crate) struct KeptList {
    by_time: BTreeSet<KeptServer>,
}

impl KeptList {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    pub(crate) fn insert(&mut self, server: KeptServer) {
        self.by_time.insert(server);
    }

    pub(crate) fn remove(&mut self, server: KeptServer) {
        self.by_time.remove(&server);
    }

    /// Returns the next server behind `last`, or the first one.
    pub(crate) fn next(&self, last: Option<KeptServer>) -> Option<KeptServer> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_time
            .range((begin, Bound::Unbounded))
            .next()
            .copied()
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(Token) -> bool) {
        self.by_time.retain(|&(_, conn)| stays(conn));
    }

    /// Returns all servers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeptServer> {
        self.by_time.iter().copied()
    }
}
