//! Carries out the node's requests one after the other, and sets the node's limit in the caps.

mod orders;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use pgweir_core::{
    Control, FleetCount, FleetCounted, FleetRound, Level, Time, WorkerId,
    mail::{FleetMail, Mail},
    shared::{
        events::EventKind,
        fleet::{FleetNode, FleetNodeState, FleetPeer, FleetView},
    },
};
use pgweir_fleet::{Answer, Change, Load, Node, NodeId, Request, Source, Terms, attribute};
use pgweir_formats::fleet_values::{PeerValue, parse_source, show_source};
use tokio::{
    sync::mpsc::{Receiver, Sender},
    time,
};

pub(super) use self::orders::NodeEvent;
use self::orders::Orders;

use super::{
    access::FleetAccess,
    registration::{Outcome, Registration, others},
    store::{Store, StoreError},
};
use crate::{
    clock::{Clock, since_boot_us},
    console_link::ConsoleConnector,
    log::LogBuffer,
    net::WorkerMessage,
};

/// The maximum number of requests in one interval.
const REQUESTS_MAX: usize = 10;

pub(super) struct Actor {
    name: String,
    terms: Terms,
    node: Node,
    store: Store,
    answers: Receiver<Control>,
    /// The directory, the mailboxes of the workers, and the console.
    connector: ConsoleConnector,
    log: LogBuffer,
    clock: Clock,
    /// Servers that no client needs, as counted by the last round of the workers.
    idle: u32,
    counts: u64,
    sources: Sources,
    /// Whether the store was read in this interval, and the answer did not come late.
    is_read: bool,
    registration: Registration,
    /// When the registration may be tried again: requests that fail must not delay those for the lease for long.
    next_registration: u64,
    report: Report,
    orders: Orders,
}

/// The addresses that backends come from.
#[derive(Default)]
struct Sources {
    /// The addresses of this process's servers that PostgreSQL has shown so far.
    own: BTreeSet<Source>,
    /// When PostgreSQL may be asked for the first of them again.
    next_search: u64,
    /// Sources that no node has recorded, by the numbers under which their backends are reserved.
    unknown: BTreeMap<NodeId, Source>,
}

/// The state that was logged last, and the data for SHOW FLEET and metrics.
#[derive(Default)]
struct Report {
    /// The kind of request that failed last, until a request of this kind succeeds. Reads and changes differ, since a
    /// full etcd still answers reads.
    failure: Option<Failure>,
    /// Whether etcd has given a reason for the failure.
    has_reason: bool,
    /// Whether etcd has refused the token of the connection since the last request that has succeeded.
    has_old_token: bool,
    is_leased: bool,
    count_error: Option<String>,
    errors: u64,
    /// The renewals of each node, and when the last one was seen.
    renewals: BTreeMap<NodeId, (u64, Time)>,
    reserved: BTreeSet<NodeId>,
    /// The last line about this process as a peer.
    peer_problem: Option<String>,
    /// The keys of peers and commands that are ignored.
    garbage: BTreeSet<String>,
}

/// The kind of a request that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Read,
    Change,
}

impl Actor {
    pub(super) fn new(
        access: FleetAccess,
        (name, id): (String, NodeId),
        terms: Terms,
        answers: Receiver<Control>,
        events: (Sender<NodeEvent>, Receiver<NodeEvent>),
        connector: ConsoleConnector,
        (log, clock): (LogBuffer, Clock),
    ) -> Self {
        Self {
            store: Store::new(access, &name, terms),
            node: Node::new(terms, id),
            name,
            terms,
            answers,
            connector,
            log,
            clock,
            idle: 0,
            counts: 0,
            sources: Sources::default(),
            is_read: false,
            registration: Registration::default(),
            next_registration: 0,
            report: Report::default(),
            orders: Orders::new(events),
        }
    }

    /// Runs until the control thread has dropped its handle.
    pub(super) async fn run(mut self) {
        let interval = Duration::from_micros(self.terms.interval);
        while !self.answers.is_closed() {
            if let Some(round) = self.round(false).await {
                self.idle = round.idle;
            }
            self.find_own_address().await;
            for _ in 0..REQUESTS_MAX {
                let Some((number, request)) = self.turn() else {
                    break;
                };
                self.perform(number, request).await;
            }
            let is_read = std::mem::take(&mut self.is_read);
            if is_read {
                if since_boot_us() >= self.next_registration {
                    self.keep_registered().await;
                }
                let peers = others(&self.store, self.node.id());
                self.connector.directory.fleet().publish_peers(peers);
            }
            self.handle_commands(is_read).await;
            self.publish();
            self.wait(interval).await;
        }
    }

    /// Asks PostgreSQL where this process's servers come from, as soon as there is a server. The node's next write records
    /// the address. Nodes that count the backends before that take those of this node for sessions of an unknown node, and
    /// reserve servers for them.
    async fn find_own_address(&mut self) {
        let now = since_boot_us();
        let is_due = self.sources.own.is_empty() && now >= self.sources.next_search;
        let caps = self.connector.directory.caps();
        if !is_due || caps.with(|caps| caps.process_servers()) == 0 {
            return;
        }
        self.sources.next_search = now + self.terms.lease / 3;
        // Only the origin of the server that runs the query is of interest here.
        let _ = self.count(Duration::from_micros(self.terms.interval)).await;
    }

    /// Collects the workers' counts of idle servers, and their process ids if `wants_pids`.
    async fn round(&mut self, wants_pids: bool) -> Option<FleetRound> {
        let round = FleetMail::Round(Box::new(FleetRound::new(wants_pids)));
        let message = WorkerMessage::Mail(Mail::Fleet(round));
        self.connector.mailboxes.send(WorkerId(0), message);
        let patience = Duration::from_micros(self.terms.timeout);
        let answer = async {
            loop {
                match self.answers.recv().await? {
                    Control::FleetRound(round) if round.wants_pids == wants_pids => {
                        return Some(*round);
                    }
                    // An answer to an earlier request that came too late.
                    _ => {}
                }
            }
        };
        time::timeout(patience, answer).await.ok().flatten()
    }

    /// Asks the node for its next request, and puts its limit in force, both under the lock of the caps.
    fn turn(&mut self) -> Option<(u64, Request)> {
        let (waiting, weight) = self.waiting();
        let caps = self.connector.directory.caps();
        let (request, room) = caps.with(|caps| {
            let servers = caps.process_servers();
            let wanted = servers.saturating_sub(self.idle).saturating_add(waiting);
            let load = Load {
                servers,
                wanted,
                weight,
            };
            let now = since_boot_us();
            let request = self.node.tick(now, load);
            let (limit, until) = self.node.grant();
            let limit = match self.node.is_leased(now) {
                true => limit,
                false => self.terms.floor,
            };
            (request, caps.renew_lease(limit, until))
        });
        for pool in room
            .into_iter()
            .filter_map(|id| self.connector.directory.pool_of(id))
        {
            let message = WorkerMessage::Mail(Mail::CapHasRoom(pool));
            self.connector.mailboxes.send(WorkerId(0), message);
        }
        self.note_lease();
        request
    }

    /// Returns how many clients wait, and the mean weight of their pools.
    fn waiting(&self) -> (u32, u32) {
        let snapshot = self.connector.directory.snapshot();
        let (mut waiting, mut weights) = (0_u64, 0_u64);
        for pool in self.connector.directory.pools() {
            let count = pool.ledger.lock().waiting() as u64;
            let entry = snapshot.config.database(&pool.key.database);
            waiting += count;
            weights += count * entry.map_or(1, |entry| u64::from(entry.weight));
        }
        let weight = weights.checked_div(waiting).unwrap_or(1).max(1);
        let small = |number| u32::try_from(number).unwrap_or(u32::MAX);
        (small(waiting), small(weight))
    }

    async fn perform(&mut self, number: u64, request: Request) {
        let patience = Duration::from_micros(self.terms.timeout);
        if request == Request::CountBackends {
            return match self.count(patience).await {
                Some(backends) => {
                    let (now, instance) = (since_boot_us(), self.store.instance());
                    let answer = Answer::Backends(backends);
                    self.node.answer(now, number, instance, answer);
                }
                None => self.node.fail(since_boot_us(), number),
            };
        }
        let asked = match &request {
            Request::Change(change) => {
                let sources = self.sources_of(change);
                time::timeout(patience, self.store.change(change, &sources)).await
            }
            Request::Read | Request::CountBackends => {
                let begun = since_boot_us();
                let asked = time::timeout(patience, self.store.read()).await;
                // If this process was stopped meanwhile, the answer may have waited in the socket for long.
                let is_late = since_boot_us() - begun > self.terms.timeout;
                self.is_read = !is_late && matches!(asked, Ok(Ok(_)));
                asked
            }
        };
        let kind = match request {
            Request::Change(_) => Failure::Change,
            Request::Read | Request::CountBackends => Failure::Read,
        };
        let error = match asked {
            Ok(Ok((instance, answer))) => {
                self.node.answer(since_boot_us(), number, instance, answer);
                return self.note_contact(kind);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        self.store.disconnect();
        self.node.fail(since_boot_us(), number);
        self.note_failure(kind, error);
    }

    /// Returns the addresses of the servers of the node whose record a change replaces.
    fn sources_of(&self, change: &Change) -> BTreeSet<Source> {
        match change {
            Change::Write { .. } => self.sources.own.clone(),
            Change::Correct { node, .. } => {
                let recorded = self.store.nodes().get(node);
                let unknown = self.sources.unknown.get(node).copied();
                let recorded = recorded.map(|value| value.sources.clone());
                recorded.unwrap_or_else(|| unknown.into_iter().collect())
            }
        }
    }

    /// Counts the backends in PostgreSQL, without those that this process knows to be its own.
    async fn count(&mut self, patience: Duration) -> Option<BTreeMap<NodeId, u32>> {
        let pids = self.round(true).await?.pids;
        self.counts += 1;
        let number = self.counts;
        let count = Arc::new(FleetCount::new(number, &pids));
        let mail = || FleetMail::Count(Arc::clone(&count));
        self.connector
            .mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::Fleet(mail())));
        let answer = async {
            loop {
                match self.answers.recv().await? {
                    Control::FleetCounted(counted) if counted.number == number => {
                        return Some(*counted);
                    }
                    _ => {}
                }
            }
        };
        let counted = time::timeout(patience, answer).await.ok().flatten()?;
        self.take_count(counted)
    }

    fn take_count(&mut self, counted: FleetCounted) -> Option<BTreeMap<NodeId, u32>> {
        let mut backends = BTreeMap::new();
        for (text, count) in &counted.backends {
            backends.insert(parse_source(text)?, *count);
        }
        let user = &counted.user;
        let error = match (&counted.error, backends.get(&Source::Hidden)) {
            (Some(error), _) => Some(format!("cannot count the servers of lost nodes: {error}")),
            (None, Some(count)) => Some(format!(
                "the role {user} cannot see where {count} sessions come from, so that servers of lost nodes \
                 may stay reserved: GRANT pg_read_all_stats TO {user}"
            )),
            (None, None) => None,
        };
        if let Some(error) = error.as_ref().filter(|_| error != self.report.count_error) {
            self.say(Level::Warning, error);
        }
        self.report.count_error = error;
        if counted.error.is_some() {
            return None;
        }
        self.sources.own.insert(parse_source(&counted.own)?);
        let nodes = self.store.nodes().iter();
        let nodes: BTreeMap<_, _> = nodes
            .map(|(&id, node)| (id, node.sources.clone()))
            .collect();
        self.sources.unknown = backends
            .keys()
            .map(|source| (source.reserved_id(), *source))
            .collect();
        Some(attribute(&backends, &nodes))
    }

    /// Registers this process as a peer.
    async fn keep_registered(&mut self) {
        let directory = Arc::clone(&self.connector.directory);
        let snapshot = directory.snapshot();
        let settings = &snapshot.config.settings;
        let (id, node) = (settings.peer_id, self.node.id());
        let address = settings.address_in_fleet().filter(|_| id > 0);
        let address = address.map(|(host, port)| FleetPeer { host, port });
        let shown = address
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let has_no_address = id > 0 && address.is_none();
        let wanted = address.map(|address| (id, PeerValue { node, address }));
        let patience = Duration::from_micros(self.terms.timeout);
        let seconds = self.terms.lease.div_ceil(1_000_000).cast_signed();
        let now = since_boot_us();
        let kept = self
            .registration
            .keep(&mut self.store, wanted, seconds, now);
        let kept = time::timeout(patience, kept).await;
        if !matches!(kept, Ok(Ok(_))) {
            self.next_registration = since_boot_us() + self.terms.lease;
        }
        let problem = match kept {
            _ if has_no_address => Some(format!(
                "this node is not registered as peer {id}: set fleet_address to where the other nodes reach it"
            )),
            Ok(Ok(Outcome::Registered)) => {
                self.say(Level::Log, &format!("registered as peer {id} at {shown}"));
                None
            }
            Ok(Ok(Outcome::Taken(other))) => Some(format!(
                "this node is not registered as peer {id} at {shown}: the node at {other} has this peer_id, too; \
                 set another peer_id on one of them"
            )),
            Ok(Ok(Outcome::Nothing | Outcome::Kept | Outcome::Outdated)) => None,
            Ok(Err(error)) => Some(format!(
                "cannot register as peer {id} at {shown}: etcd: {error}"
            )),
            Err(_) => Some(format!(
                "cannot register as peer {id} at {shown}: no answer of etcd"
            )),
        };
        self.note_peer_problem(problem);
    }

    /// Logs why this process is no peer, and which keys of peers and commands are ignored.
    fn note_peer_problem(&mut self, problem: Option<String>) {
        let garbage = [
            self.store.peers().garbage.clone(),
            self.store.commands().garbage.clone(),
        ];
        let garbage: BTreeSet<_> = garbage.into_iter().flatten().collect();
        let ignored = garbage.difference(&self.report.garbage).map(|key| {
            format!("the key {key} has a value that pgweir does not understand, and is ignored: delete it if no node writes it")
        });
        let is_new = problem != self.report.peer_problem;
        let new: Vec<_> = ignored.chain(problem.clone().filter(|_| is_new)).collect();
        (self.report.peer_problem, self.report.garbage) = (problem, garbage);
        for text in new {
            self.say(Level::Warning, &text);
            self.note_event(EventKind::FleetFailed, &text);
        }
    }

    /// Logs the beginning and the end of the lease.
    fn note_lease(&mut self) {
        let now = since_boot_us();
        let is_leased = self.node.is_leased(now);
        let limit = self.node.limit(now);
        if is_leased == self.report.is_leased {
            return;
        }
        self.report.is_leased = is_leased;
        if is_leased {
            let text = format!("has a lease, for {limit} of {} servers", self.terms.budget);
            return self.say(Level::Log, &text);
        }
        let text = format!(
            "the lease has ended: this node has its floor of {limit} servers until etcd answers"
        );
        self.say(Level::Warning, &text);
        self.note_event(EventKind::FleetLeaseLost, &text);
    }

    fn note_contact(&mut self, kind: Failure) {
        self.report.has_old_token = false;
        let is_over = |failure: &mut Failure| *failure == Failure::Read || kind == Failure::Change;
        if self.report.failure.take_if(is_over).is_some() {
            self.say(Level::Log, "etcd answers again");
            self.note_event(EventKind::FleetInContact, "etcd answers again");
        }
    }

    /// Logs the first failure, and the first one for which etcd gives a reason. `error`: the reason, if there was an answer.
    fn note_failure(&mut self, kind: Failure, error: Option<StoreError>) {
        self.report.errors += 1;
        // etcd forgets tokens when it starts, and when a password changes. The next connection logs in again, which shows
        // whether the password is still valid.
        let is_old_token = error.as_ref().is_some_and(StoreError::is_old_token);
        if is_old_token && !std::mem::replace(&mut self.report.has_old_token, true) {
            return;
        }
        let is_known = self.report.failure.is_some();
        if is_known && (self.report.has_reason || error.is_none()) {
            return;
        }
        self.report.failure = Some(kind);
        self.report.has_reason = error.is_some();
        let error = error.map_or_else(
            || {
                let patience = Duration::from_micros(self.terms.timeout).as_secs_f64();
                format!("no answer within {patience} s (a fifth of fleet_lease)")
            },
            |error| error.to_string(),
        );
        let text = format!(
            "etcd: {error}; this node uses its last share until its lease ends, and then its floor of {} servers",
            self.terms.floor
        );
        self.say(Level::Warning, &text);
        self.note_event(EventKind::FleetFailed, &text);
    }

    /// Publishes what SHOW FLEET and metrics say, and logs for whom servers are reserved.
    fn publish(&mut self) {
        let now = self.clock.now();
        let mut nodes = Vec::new();
        let mut reserved = BTreeSet::new();
        for (&id, value) in self.store.nodes() {
            let seen = self
                .report
                .renewals
                .entry(id)
                .or_insert((value.renewals, now));
            if seen.0 != value.renewals {
                *seen = (value.renewals, now);
            }
            let sources = value.sources.iter().map(|source| show_source(*source));
            let addresses = sources.collect::<Vec<_>>().join(",");
            if Source::is_reserved_id(id) {
                reserved.insert(id);
            }
            nodes.push(FleetNode {
                id,
                addresses,
                state: match now.since(seen.1) < self.terms.patience() {
                    _ if id == self.node.id() => FleetNodeState::This,
                    _ if Source::is_reserved_id(id) => FleetNodeState::Unknown,
                    true => FleetNodeState::Active,
                    false => FleetNodeState::Lost,
                },
                extra: value.extra,
                wanted: value.wanted,
                version: value.version.clone(),
                last_contact: seen.1,
            });
        }
        let known = self.store.nodes();
        self.report.renewals.retain(|id, _| known.contains_key(id));
        let new: Vec<_> = nodes
            .iter()
            .filter(|node| reserved.contains(&node.id) && !self.report.reserved.contains(&node.id))
            .map(|node| (node.extra, node.addresses.clone()))
            .collect();
        for (count, addresses) in new {
            let text = format!(
                "{count} servers are reserved for sessions from {addresses}, which belong to no known node"
            );
            self.say(Level::Log, &text);
        }
        self.report.reserved = reserved;
        let clock = since_boot_us();
        let (_, until) = self.node.grant();
        let lease_age = (clock + self.terms.usable()).saturating_sub(until);
        self.connector.directory.fleet().publish(FleetView {
            nodes,
            limit: self.node.limit(clock),
            floor: self.terms.floor,
            lease_age: self.node.is_leased(clock).then_some(lease_age),
            errors: self.report.errors,
            commands: self.orders.in_progress(self.store.commands()) as u32,
        });
    }

    fn note_event(&self, kind: EventKind, text: &str) {
        self.connector
            .directory
            .note_event(kind, ("", ""), text, self.clock.now());
    }

    fn say(&mut self, level: Level, text: &str) {
        let text = format!("fleet {}: {text}", self.name);
        self.log.say(self.clock.now(), level, text);
    }
}
