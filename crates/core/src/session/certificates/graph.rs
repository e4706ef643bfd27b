//! The graph of uses in a database: which object uses which, and the effects of each use.

use std::collections::HashMap;

use super::Name;
use crate::session::sql::Effects;

/// An object, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// All objects that a text may use without naming them: operators, casts, types.
    EveryText,
    /// A function that is called.
    Function(u32),
    /// A relation that is read.
    Read(u32),
    /// A relation that is written.
    Written(u32),
    /// All objects of this name.
    Named(Name),
    /// An object that no text names. A row of facts describes it.
    Unnamed(usize),
}

/// The index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(u32);

impl At {
    /// Returns a number that identifies the node.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// A graph of uses.
#[derive(Debug, Default)]
pub(super) struct Graph {
    places: HashMap<Node, u32>,
    nodes: Vec<Found>,
    /// Pairs of a using and a used node.
    uses: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    bits: Effects,
    /// The node whose use makes this node opaque; the node itself if it is opaque by itself.
    cause: u32,
    /// Whether plans keep the node's result: a node that reads the session is opaque then.
    is_kept_in_plans: bool,
    /// Whether the function has a `search_path` of its own, under which all that it calls runs.
    has_path: bool,
}

/// Effects of functions whose result differs between sessions, or between clients of one session.
const OF_SESSION: Effects = Effects::READS_SESSION
    .and(Effects::READS_DATA)
    .and(Effects::READS_SEQUENCE)
    .and(Effects::SEQUENCE);

impl Found {
    /// Adds effects. Returns whether the node became opaque.
    fn add(&mut self, bits: Effects) -> bool {
        let was_opaque = self.bits.contains(Effects::OPAQUE);
        self.bits |= bits;
        if self.is_kept_in_plans && self.bits.intersects(OF_SESSION) {
            self.bits |= Effects::OPAQUE;
        }
        if self.has_path && self.bits.contains(Effects::TYPES) {
            self.bits |= Effects::PATH;
        }
        !was_opaque && bits.contains(Effects::OPAQUE)
    }
}

impl Graph {
    /// Returns the index of a node, and adds the node if necessary.
    pub(super) fn at(&mut self, node: Node) -> At {
        let next = self.nodes.len() as u32;
        let place = *self.places.entry(node).or_insert(next);
        if place == next {
            self.nodes.push(Found {
                bits: Effects::NONE,
                cause: next,
                is_kept_in_plans: false,
                has_path: false,
            });
        }
        At(place)
    }

    /// Returns the index of a node if the graph has it.
    pub(super) fn known(&self, node: Node) -> Option<At> {
        self.places.get(&node).map(|&place| At(place))
    }

    /// Adds effects that a node has by itself.
    pub(super) fn add(&mut self, at: At, bits: Effects) {
        self.nodes[at.0 as usize].add(bits);
    }

    /// Records that plans keep the results of this function. Must be called before effects are added to the node.
    pub(super) fn keep_in_plans(&mut self, at: At) {
        self.nodes[at.0 as usize].is_kept_in_plans = true;
    }

    /// Records that this function has a `search_path` of its own. Must be called before effects are added to the node.
    pub(super) fn set_path(&mut self, at: At) {
        self.nodes[at.0 as usize].has_path = true;
    }

    /// Returns whether this function has a `search_path` of its own.
    pub(super) fn has_path(&self, at: At) -> bool {
        self.nodes[at.0 as usize].has_path
    }

    /// Returns whether a node is opaque only because plans keep its results.
    pub(super) fn is_opaque_by_plans(&self, at: At) -> bool {
        let found = self.nodes[at.0 as usize];
        found.is_kept_in_plans && found.cause == at.0
    }

    /// Records that a use of `user` is also a use of `used`.
    pub(super) fn add_use(&mut self, user: At, used: At) {
        self.uses.push((user.0, used.0));
    }

    /// Returns the effects of a node's use; complete after [`spread`](Self::spread).
    pub(super) fn bits(&self, at: At) -> Effects {
        self.nodes[at.0 as usize].bits.without(Effects::OF_CODE)
    }

    /// Returns whether a node has this effect of [`Effects::OF_CODE`].
    pub(super) fn has(&self, at: At, effect: Effects) -> bool {
        self.nodes[at.0 as usize].bits.contains(effect)
    }

    /// Returns the chain of nodes that makes a node opaque, starting with the node itself.
    pub(super) fn causes(&self, at: At) -> impl Iterator<Item = At> {
        /// The largest length of a chain. Longer chains are cut.
        const LEN_MAX: usize = 64;
        let next = |at: &At| {
            let cause = self.nodes[at.0 as usize].cause;
            (cause != at.0).then_some(At(cause))
        };
        std::iter::successors(Some(at), next).take(LEN_MAX)
    }

    /// Returns the number of nodes and uses.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.uses.len()
    }

    /// Adds to each node the effects of all nodes that it uses, directly or not. The time grows with the number of
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
        let mut queue: Vec<_> = (0..self.nodes.len() as u32)
            .filter(|&place| !self.nodes[place as usize].bits.is_empty())
            .collect();
        while let Some(used) = queue.pop() {
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
                queue.push(user);
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
