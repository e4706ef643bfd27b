//! Finds the nodes that a backend in PostgreSQL may belong to, by the address that its connection comes from.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::NodeId;

/// The origin of a backend's connection, as PostgreSQL shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An address: `client_addr` of `pg_stat_activity`.
    Address(IpAddr),
    /// A Unix socket.
    Socket,
    /// PostgreSQL does not show the origin: the role that runs the query has no privilege to see it.
    Hidden,
}

/// The bit that distinguishes numbers made of a [`Source`] from those of nodes.
const OF_SOURCE: NodeId = 1 << 63;

impl Source {
    /// Returns the number under which the account reserves servers for backends from this source that may belong to a
    /// forgotten node. No node has such a number: the numbers of nodes are below 2^63.
    #[must_use]
    pub fn reserved_id(self) -> NodeId {
        let number = match self {
            Self::Address(IpAddr::V4(address)) => u64::from(u32::from(address)),
            Self::Address(IpAddr::V6(address)) => {
                let bits = u128::from(address);
                // Two sources with one number are counted together, which reserves too many servers rather than too
                // few.
                (1 << 62) | ((bits >> 64) as u64 ^ bits as u64) & ((1 << 62) - 1)
            }
            Self::Socket => 1 << 40,
            Self::Hidden => 1 << 41,
        };
        OF_SOURCE | number
    }

    /// Returns whether a number was made by [`reserved_id`](Self::reserved_id).
    #[must_use]
    pub fn is_reserved_id(id: NodeId) -> bool {
        id & OF_SOURCE != 0
    }
}

/// Attributes backends to nodes. `nodes` has the sources that each node has recorded. A backend counts for *each* node
/// that has recorded its source. If no node has, the backend counts for the reserved number of the source: it may belong
/// to a node that has not recorded the source yet, or to one whose record of the source the store has forgotten.
///
/// A backend whose source another node has recorded does not count for a node without sources. Otherwise a lost node
/// without sources would hold servers for as long as other nodes have backends, which is for ever.
#[must_use]
pub fn attribute(
    backends: &BTreeMap<Source, u32>,
    nodes: &BTreeMap<NodeId, BTreeSet<Source>>,
) -> BTreeMap<NodeId, u32> {
    let mut recorded = BTreeMap::<Source, Vec<NodeId>>::new();
    for (&id, sources) in nodes {
        for &source in sources {
            recorded.entry(source).or_default().push(id);
        }
    }
    let mut found = BTreeMap::<NodeId, u32>::new();
    for (source, &count) in backends.iter().filter(|&(_, &count)| count > 0) {
        let own = recorded.get(source);
        let unknown = own.is_none().then(|| source.reserved_id());
        let owners: Vec<NodeId> = match source {
            Source::Hidden => nodes.keys().copied().collect(),
            _ => own.cloned().unwrap_or_default(),
        };
        for id in owners.into_iter().chain(unknown) {
            let sum = found.entry(id).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Source {
        Source::Address(text.parse().unwrap())
    }

    #[test]
    fn a_backend_counts_for_each_node_that_has_recorded_its_source() {
        let (a, b) = (address("10.0.0.1"), address("10.0.0.2"));
        let (c, d) = (address("fe80::1"), address("fe80::2"));
        let backends = [(a, 5), (b, 3), (c, 2), (Source::Socket, 1), (d, 0)];
        let backends = BTreeMap::from(backends);
        let sources = |list: &[Source]| list.iter().copied().collect();
        let nodes = [
            (1, sources(&[a])),
            (2, sources(&[a, b])),
            (3, sources(&[])),
            (4, sources(&[Source::Socket])),
        ];
        let mut found = attribute(&backends, &BTreeMap::from(nodes.clone()));
        let nodes_only = |found: &mut BTreeMap<NodeId, u32>| {
            found.retain(|&id, _| !Source::is_reserved_id(id));
        };
        assert_eq!(found.get(&c.reserved_id()), Some(&2));
        for source in [a, b, d, Source::Socket] {
            assert_eq!(found.get(&source.reserved_id()), None, "{source:?}");
        }
        nodes_only(&mut found);
        // The two backends from `c`, which may belong to node 3, are reserved. No other backend counts for node 3.
        assert_eq!(found, [(1, 5), (2, 8), (4, 1)].into());
        let hidden = [(Source::Hidden, 4)].into();
        let mut found = attribute(&hidden, &BTreeMap::from(nodes));
        nodes_only(&mut found);
        assert_eq!(found, [(1, 4), (2, 4), (3, 4), (4, 4)].into());
    }

    #[test]
    fn numbers_of_sources() {
        let all = [
            address("10.0.0.1"),
            address("255.255.255.255"),
            address("fe80::1"),
            address("fe80::2"),
            Source::Socket,
            Source::Hidden,
        ];
        let numbers: BTreeSet<_> = all.iter().map(|source| source.reserved_id()).collect();
        assert!(numbers.iter().all(|&id| Source::is_reserved_id(id)));
        assert_eq!(numbers.len(), all.len());
        assert!(!Source::is_reserved_id(u64::MAX >> 1));
    }
}
