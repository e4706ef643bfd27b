//! The store of a simulated fleet, and the network to it.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use pgweir_fleet::{Answer, Change, Ledger, NodeId, Request, Source, attribute};

use super::PlantedFleetFault;

/// A request, or an answer, on its way.
struct Message<T> {
    at: u64,
    node: NodeId,
    number: u64,
    instance: u64,
    what: T,
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
    ledger: Ledger,
    copy: Ledger,
    instance: u64,
    requests_made: RequestsMade,
    pub(super) gone_until: u64,
    /// Whether messages get lost or take long.
    pub(super) loses: bool,
    requests: Vec<Message<Request>>,
    answers: Vec<Message<Answer>>,
    /// The address of each node that has ever run. The record of the node has the address.
    addresses: BTreeMap<NodeId, Source>,
}

impl Store {
    pub(super) fn new(spare: u32, loses: bool) -> Self {
        Self {
            ledger: Ledger::new(spare),
            copy: Ledger::new(spare),
            instance: 0,
            requests_made: RequestsMade::default(),
            gone_until: 0,
            loses,
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
        self.copy = self.ledger.clone();
    }

    /// Goes back to the last copy. Requests that are on their way are lost with their connections.
    pub(super) fn restore(&mut self) {
        self.ledger = self.copy.clone();
        self.instance += 1;
        self.requests.clear();
    }

    pub(super) fn send(
        &mut self,
        now: u64,
        node: NodeId,
        (number, what): (u64, Request),
        rng: &mut Rng,
    ) {
        let delay = delay(self.loses, rng);
        self.requests.extend(delay.map(|delay| Message {
            at: now + delay,
            node,
            number,
            instance: 0,
            what,
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
            let answer = match request.what {
                Request::Read => {
                    self.requests_made.reads += 1;
                    Answer::Ledger(self.ledger.clone())
                }
                Request::Change(mut change) => {
                    if planted_fault == Some(PlantedFleetFault::IgnoredVersions) {
                        self.ignore_version(&mut change);
                    }
                    let changed = self.ledger.apply(&change);
                    self.requests_made.writes += 1;
                    self.requests_made.refused += u64::from(changed.is_err());
                    Answer::Changed(changed)
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
            let known = if *node == by { rng.u32(..=count) } else { 0 };
            *backends.entry(self.addresses[node]).or_default() += count - known;
        }
        let known = self.addresses.values();
        let reserved: BTreeMap<_, _> = known
            .map(|source| (source.reserved_id(), *source))
            .collect();
        let sources_of = |id: &NodeId| -> BTreeSet<Source> {
            let own = self.addresses.get(id).or_else(|| reserved.get(id));
            own.copied().into_iter().collect()
        };
        let nodes = self.ledger.records.keys();
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
        *version = self.ledger.records.get(node).map(|record| record.version);
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
