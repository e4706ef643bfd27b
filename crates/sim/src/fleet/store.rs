//! The store of a simulated fleet, and the network to it.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use pgweir_fleet::{Account, Answer, Change, NodeId, Record, Refusal, Request, Source, attribute};

use super::PlantedFleetFault;

/// A request, or an answer, on its way.
struct Message<T> {
    at: u64,
    node: NodeId,
    number: u64,
    instance: u64,
    what: T,
}

/// A request of a node.
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) request: Request,
    /// Whether the node knows the address that its servers come from. Its record then has the address.
    pub(super) knows_address: bool,
}

/// The content of the store.
#[derive(Clone)]
pub(super) struct Contents {
    account: Account,
    /// The addresses in the records.
    recorded: BTreeMap<NodeId, BTreeSet<Source>>,
}

/// An answer that has arrived.
pub(super) struct Arrived {
    pub(super) number: u64,
    pub(super) instance: u64,
    pub(super) answer: Answer,
}

/// The requests that have reached the store, or PostgreSQL, since the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestsMade {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Writes that the store has refused.
    pub(super) refused: u64,
    /// Counts of the backends in PostgreSQL.
    pub(super) counts: u64,
}

/// The store. Requests and answers take any time, overtake each other, and get lost.
pub(super) struct Store {
    contents: Contents,
    copy: Contents,
    instance: u64,
    requests_made: RequestsMade,
    pub(super) gone_until: u64,
    /// Whether messages get lost or take long.
    pub(super) loses: bool,
    /// Whether a node that counts knows all of its own backends.
    pub(super) knows_own_backends: bool,
    requests: Vec<Message<Sent>>,
    answers: Vec<Message<Answer>>,
    /// The address of each node that has ever run.
    addresses: BTreeMap<NodeId, Source>,
}

impl Store {
    pub(super) fn new(spare: u32, loses: bool) -> Self {
        let contents = Contents {
            account: Account::new(spare),
            recorded: BTreeMap::new(),
        };
        Self {
            copy: contents.clone(),
            contents,
            instance: 0,
            requests_made: RequestsMade::default(),
            gone_until: 0,
            loses,
            knows_own_backends: false,
            requests: Vec::new(),
            answers: Vec::new(),
            addresses: BTreeMap::new(),
        }
    }

    /// Notes where a node's connections come from.
    pub(super) fn note_address(&mut self, node: NodeId, address: Source) {
        self.addresses.insert(node, address);
    }

    pub(super) fn requests_made(&self) -> RequestsMade {
        self.requests_made
    }

    /// Lets each node notice a new connection to the store.
    pub(super) fn reconnect(&mut self) {
        self.instance += 1;
    }

    pub(super) fn copy(&mut self) {
        self.copy = self.contents.clone();
    }

    pub(super) fn content(&self) -> Contents {
        self.contents.clone()
    }

    /// Goes back to the last copy.
    pub(super) fn restore(&mut self) {
        self.go_back_to(self.copy.clone());
    }

    /// From now on, the store can be reached, no message is lost, and nodes know their own backends.
    pub(super) fn end_faults(&mut self) {
        self.gone_until = 0;
        self.loses = false;
        self.knows_own_backends = true;
    }

    /// Goes back to this content. Requests that are on their way are lost with their connections.
    pub(super) fn go_back_to(&mut self, content: Contents) {
        self.contents = content;
        self.instance += 1;
        self.requests.clear();
    }

    pub(super) fn send(&mut self, now: u64, node: NodeId, sent: Sent, rng: &mut Rng) {
        let delay = delay(self.loses, rng);
        self.requests.extend(delay.map(|delay| Message {
            at: now + delay,
            node,
            number: sent.number,
            instance: 0,
            what: sent,
        }));
    }

    pub(super) fn step(
        &mut self,
        now: u64,
        postgres: &BTreeMap<NodeId, u32>,
        planted_fault: Option<PlantedFleetFault>,
        rng: &mut Rng,
    ) {
        if now < self.gone_until {
            return self.requests.clear();
        }
        while let Some(due) = self.requests.iter().position(|request| request.at <= now) {
            let request = self.requests.swap_remove(due);
            let answer = match request.what.request {
                Request::Read => {
                    self.requests_made.reads += 1;
                    Answer::Account(self.contents.account.clone())
                }
                Request::Change(mut change) => {
                    if planted_fault == Some(PlantedFleetFault::IgnoredVersions) {
                        self.ignore_version(&mut change);
                    }
                    Answer::Changed(self.change(&change, request.what.knows_address))
                }
                Request::CountBackends => {
                    self.requests_made.counts += 1;
                    Answer::Backends(self.count(request.node, postgres, planted_fault, rng))
                }
            };
            let hides = planted_fault == Some(PlantedFleetFault::HiddenRestore);
            self.answers
                .extend(delay(self.loses, rng).map(|delay| Message {
                    at: now + delay,
                    node: request.node,
                    number: request.number,
                    instance: if hides { 0 } else { self.instance },
                    what: answer,
                }));
        }
    }

    /// Carries out a change. A node's own write records its address, if the node knows it.
    fn change(&mut self, change: &Change, knows_address: bool) -> Result<Option<Record>, Refusal> {
        let changed = self.contents.account.apply(change);
        self.requests_made.writes += 1;
        self.requests_made.refused += u64::from(changed.is_err());
        let recorded = &mut self.contents.recorded;
        match (&changed, change) {
            (Ok(None), Change::Correct { node, .. }) => drop(recorded.remove(node)),
            (Ok(_), Change::Write { node, .. }) => {
                let own = self.addresses.get(node).filter(|_| knows_address);
                recorded.insert(*node, own.copied().into_iter().collect());
            }
            _ => {}
        }
        changed
    }

    /// Counts the backends as a node sees them: by address, without the node's own backends as far as it knows them.
    fn count(
        &self,
        by: NodeId,
        postgres: &BTreeMap<NodeId, u32>,
        planted_fault: Option<PlantedFleetFault>,
        rng: &mut Rng,
    ) -> BTreeMap<NodeId, u32> {
        let mut backends = BTreeMap::<Source, u32>::new();
        for (node, &count) in postgres {
            // The node may not know its latest backends yet.
            let known = match *node == by {
                true if self.knows_own_backends => count,
                true => rng.u32(..=count),
                false => 0,
            };
            *backends.entry(self.addresses[node]).or_default() += count - known;
        }
        let known = self.addresses.values();
        let reserved: BTreeMap<_, _> = known
            .map(|source| (source.reserved_id(), *source))
            .collect();
        let sources_of = |id: &NodeId| -> BTreeSet<Source> {
            let recorded = self.contents.recorded.get(id).cloned();
            recorded.unwrap_or_else(|| reserved.get(id).copied().into_iter().collect())
        };
        let nodes = self.contents.account.records.keys();
        let nodes: BTreeMap<_, _> = nodes.map(|id| (*id, sources_of(id))).collect();
        match planted_fault {
            Some(PlantedFleetFault::BlindCount) => BTreeMap::new(),
            Some(PlantedFleetFault::FirstMatch) => {
                let owner = |source: &Source| {
                    let mut nodes = nodes.iter();
                    let first = nodes.find(|(_, sources)| sources.contains(source));
                    first.map_or(source.reserved_id(), |(id, _)| *id)
                };
                let found = backends.iter();
                found
                    .map(|(source, count)| (owner(source), *count))
                    .collect()
            }
            Some(PlantedFleetFault::AnyAddress) => {
                let mut found = attribute(&backends, &nodes);
                let without = nodes.iter().filter(|(_, sources)| sources.is_empty());
                found.extend(without.map(|(id, _)| (*id, backends.values().sum())));
                found
            }
            _ => attribute(&backends, &nodes),
        }
    }

    /// Returns an answer that has arrived at a node.
    pub(super) fn receive(&mut self, now: u64, node: NodeId) -> Option<Arrived> {
        let is_due = |answer: &Message<Answer>| answer.at <= now && answer.node == node;
        let due = self.answers.iter().position(is_due)?;
        let answer = self.answers.swap_remove(due);
        Some(Arrived {
            number: answer.number,
            instance: answer.instance,
            answer: answer.what,
        })
    }

    fn ignore_version(&self, change: &mut Change) {
        let (Change::Write { node, version, .. } | Change::Correct { node, version, .. }) = change;
        *version = self
            .contents
            .account
            .records
            .get(node)
            .map(|record| record.version);
    }
}

/// Returns how long a message takes, or `None` if it gets lost.
fn delay(has_faults: bool, rng: &mut Rng) -> Option<u64> {
    match rng.u8(..100) {
        0..2 if has_faults => None,
        2..5 if has_faults => Some(rng.u64(300_000..4_000_000)),
        _ => Some(rng.u64(1_000..40_000)),
    }
}
