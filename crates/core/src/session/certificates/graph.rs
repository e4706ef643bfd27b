//! What uses what in a database, and what each use leaves behind.

use std::collections::HashMap;

use super::Name;
use crate::session::scan::Effects;

/// Something that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// Whatever a text says: operators, casts, types.
    EveryText,
    /// A function, called.
    Function(u32),
    /// A relation, read.
    Read(u32),
    /// A relation, written.
    Written(u32),
    /// All that has this name.
    Named(Name),
    /// What no text names: the object behind a row of facts.
    Unnamed(usize),
}

/// The place of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(u32);

impl At {
    /// Tells nodes apart.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// A graph of uses.
#[derive(Debug, Default)]
pub(super) struct Graph {
    places: HashMap<Node, u32>,
    nodes: Vec<Found>,
    /// Who uses, and what.
    uses: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    bits: Effects,
    /// The node by whose use it is opaque; its own place if it is so by itself.
    cause: u32,
    /// Its result is kept in plans: if it reads the session, it is opaque.
    is_kept_in_plans: bool,
}

/// What a function returns that is not the same in all sessions, or not for all clients of one.
const OF_SESSION: Effects = Effects::READS_SESSION
    .and(Effects::READS_SEQUENCE)
    .and(Effects::SEQUENCE);

impl Found {
    /// Adds to what it leaves behind. `true`: it became opaque.
    fn add(&mut self, bits: Effects) -> bool {
        let was_opaque = self.bits.contains(Effects::OPAQUE);
        self.bits |= bits;
        if self.is_kept_in_plans && self.bits.intersects(OF_SESSION) {
            self.bits |= Effects::OPAQUE;
        }
        !was_opaque && bits.contains(Effects::OPAQUE)
    }
}

impl Graph {
    /// The place of a node, which is added if need be.
    pub(super) fn at(&mut self, node: Node) -> At {
        let next = self.nodes.len() as u32;
        let place = *self.places.entry(node).or_insert(next);
        if place == next {
            self.nodes.push(Found {
                bits: Effects::NONE,
                cause: next,
                is_kept_in_plans: false,
            });
        }
        At(place)
    }

    /// The place of a node that is known.
    pub(super) fn known(&self, node: Node) -> Option<At> {
        self.places.get(&node).map(|&place| At(place))
    }

    /// What a node leaves behind by itself.
    pub(super) fn add(&mut self, at: At, bits: Effects) {
        self.nodes[at.0 as usize].add(bits);
    }

    /// The results of this function are kept in plans. Before anything else is known of it.
    pub(super) fn keep_in_plans(&mut self, at: At) {
        self.nodes[at.0 as usize].is_kept_in_plans = true;
    }

    /// Is it opaque since its results are kept in plans, and for nothing else?
    pub(super) fn is_spoilt_by_plans(&self, at: At) -> bool {
        let found = self.nodes[at.0 as usize];
        found.is_kept_in_plans && found.cause == at.0
    }

    /// Who uses `user` also uses `used`.
    pub(super) fn add_use(&mut self, user: At, used: At) {
        self.uses.push((user.0, used.0));
    }

    /// What the use of a node leaves behind; all of it after [`spread`](Self::spread).
    pub(super) fn bits(&self, at: At) -> Effects {
        self.nodes[at.0 as usize]
            .bits
            .without(Effects::READS_SESSION)
    }

    /// The chain of nodes by which one is opaque, itself first.
    pub(super) fn causes(&self, at: At) -> impl Iterator<Item = At> {
        /// Longer chains are cut.
        const LEN_MAX: usize = 64;
        let next = |at: &At| {
            let cause = self.nodes[at.0 as usize].cause;
            (cause != at.0).then_some(At(cause))
        };
        std::iter::successors(Some(at), next).take(LEN_MAX)
    }

    /// How many nodes and uses there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.uses.len()
    }

    /// Gives each node what it uses leaves behind, directly or not. Takes a time that grows with the number of
    /// uses.
    pub(super) fn spread(&mut self) {
        self.uses.sort_unstable_by_key(|&(_, used)| used);
        let mut first = vec![0_u32; self.nodes.len() + 1];
        for &(_, used) in &self.uses {
            first[used as usize + 1] += 1;
        }
        for place in 1..first.len() {
            first[place] += first[place - 1];
        }
        let mut todo: Vec<_> = (0..self.nodes.len() as u32)
            .filter(|&place| !self.nodes[place as usize].bits.is_empty())
            .collect();
        while let Some(used) = todo.pop() {
            let bits = self.nodes[used as usize].bits;
            let (from, to) = (
                first[used as usize] as usize,
                first[used as usize + 1] as usize,
            );
            for &(user, _) in &self.uses[from..to] {
                let found = &mut self.nodes[user as usize];
                if found.bits.contains(bits) {
                    continue;
                }
                if found.add(bits) {
                    found.cause = used;
                }
                todo.push(user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_along_chains_and_rings() {
        let mut graph = Graph::default();
        let [a, b, c, d] = [1, 2, 3, 4].map(|oid| graph.at(Node::Function(oid)));
        graph.add_use(a, b);
        graph.add_use(b, c);
        graph.add_use(c, a);
        graph.add_use(d, d);
        graph.add(c, Effects::OPAQUE);
        graph.add(b, Effects::SEQUENCE);
        graph.spread();
        for at in [a, b, c] {
            assert_eq!(graph.bits(at), Effects::OPAQUE | Effects::SEQUENCE);
        }
        assert_eq!(graph.bits(d), Effects::NONE);
        assert_eq!(graph.causes(a).collect::<Vec<_>>(), [a, b, c]);
    }
}
