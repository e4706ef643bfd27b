//! A machine of a simulated fleet: a node, its clock, and its servers.

use std::collections::BTreeMap;

use fastrand::Rng;
use pgweir_fleet::{Answer, Load, Node, NodeId, Terms};

use super::{
    PlantedFleetFault, STEP,
    store::{Sent, Store},
};

/// Servers that are opened or closed within a step.
const TURN_MAX: usize = 8;

pub(super) struct Machine {
    node: Node,
    terms: Terms,
    /// The clock's time at the world's time 0, and its rate in millionths of real time.
    clock: (u64, u64),
    /// How long the process was stopped in total, for a clock that stands still meanwhile.
    stood: u64,
    stopped_until: u64,
    dead_until: Option<u64>,
    pub(super) cut_until: u64,
    pub(super) wanted: u32,
    /// Servers that the node has decided to open, before it calls connect().
    decided: u32,
    /// How many of ten logins take long.
    slow_of_ten: u8,
    /// The times at which logins under way reach PostgreSQL.
    logins: Vec<u64>,
    open: u32,
    /// The times at which PostgreSQL closes its side of servers that the node has closed.
    closing: Vec<u64>,
    /// Whether PostgreSQL has shown the node the address that its servers come from.
    knows_address: bool,
}

impl Machine {
    pub(super) fn new(terms: Terms, id: NodeId, rng: &mut Rng) -> Self {
        Self {
            node: Node::new(terms, id),
            terms,
            clock: (rng.u64(..1_000_000_000), rng.u64(990_500..=1_009_500)),
            stood: 0,
            stopped_until: 0,
            dead_until: None,
            cut_until: 0,
            wanted: rng.u32(..=terms.budget),
            decided: 0,
            slow_of_ten: if rng.u8(..4) == 0 { 5 } else { 1 },
            logins: Vec::new(),
            open: 0,
            closing: Vec::new(),
            knows_address: false,
        }
    }

    pub(super) fn id(&self) -> NodeId {
        self.node.id()
    }

    pub(super) fn is_running(&self, now: u64) -> bool {
        self.dead_until.is_none() && now >= self.stopped_until
    }

    /// Stops the process, as by SIGSTOP.
    pub(super) fn stop(&mut self, now: u64, until: u64) {
        let from = self.stopped_until.max(now);
        self.stopped_until = self.stopped_until.max(until);
        self.stood += self.stopped_until - from;
    }

    /// Ends all faults of this machine. A process that was killed may start again.
    pub(super) fn end_faults(&mut self, now: u64) {
        self.stopped_until = self.stopped_until.min(now);
        self.cut_until = now;
        self.dead_until = self.dead_until.map(|_| now);
    }

    pub(super) fn kill(&mut self, until: u64) {
        self.dead_until = Some(until);
    }

    pub(super) fn may_restart(&self, now: u64, postgres: &BTreeMap<NodeId, u32>) -> bool {
        let is_gone = self.logins.is_empty() && !postgres.contains_key(&self.id());
        is_gone && self.dead_until.is_some_and(|until| now >= until)
    }

    /// Returns the servers that exist, or are being opened or closed.
    pub(super) fn servers(&self) -> u32 {
        self.open + self.opening() + self.closing.len() as u32
    }

    /// Returns the largest number of servers that the node may have.
    pub(super) fn limit(&self, now: u64) -> u32 {
        self.node.limit(self.read_clock(now, None))
    }

    fn opening(&self) -> u32 {
        self.decided + self.logins.len() as u32
    }

    fn read_clock(&self, now: u64, planted_fault: Option<PlantedFleetFault>) -> u64 {
        let stands = planted_fault == Some(PlantedFleetFault::StoppedClock);
        let real = if stands {
            now.saturating_sub(self.stood)
        } else {
            now
        };
        self.clock.0 + real / 1_000 * self.clock.1 / 1_000
    }

    /// Lets logins and closes proceed in the kernel and in PostgreSQL, whether the process runs or is stopped.
    pub(super) fn move_servers(
        &mut self,
        now: u64,
        postgres: &mut BTreeMap<NodeId, u32>,
        rng: &mut Rng,
    ) {
        let id = self.id();
        let before = self.logins.len();
        self.logins.retain(|&at| at > now);
        let arrived = (before - self.logins.len()) as u32;
        let before = self.closing.len();
        self.closing.retain(|&at| at > now);
        let closed = (before - self.closing.len()) as u32;
        self.open += arrived;
        let count = postgres.entry(id).or_default();
        *count = (*count + arrived).saturating_sub(closed);
        if self.dead_until.is_some() {
            // The kernel has closed the sockets, and PostgreSQL notices one after the other.
            self.decided = 0;
            *count = count.saturating_sub(rng.u32(..=2));
        }
        if *count == 0 {
            postgres.remove(&id);
        }
        if self.dead_until.is_none() && now >= self.stopped_until {
            // The node reads that servers have ended.
            let alive = postgres.get(&id).copied().unwrap_or(0);
            self.open = self
                .open
                .min(alive.saturating_sub(self.closing.len() as u32));
            self.closing.truncate((alive - self.open) as usize);
        }
    }

    /// One step of a running process.
    pub(super) fn run(
        &mut self,
        now: u64,
        store: &mut Store,
        planted_fault: Option<PlantedFleetFault>,
        rng: &mut Rng,
    ) {
        let clock = self.read_clock(now, planted_fault);
        // Where packets get lost, a login may take longer than a lease.
        let slow_login = if store.loses { 300 } else { 10 };
        // The node opens the servers that it decided on in its last step. The process may have been stopped in between.
        for _ in 0..std::mem::take(&mut self.decided) {
            // Some logins take long: PostgreSQL's machine is busy, or packets get lost.
            let is_slow = rng.u8(..10) < self.slow_of_ten;
            let steps = if is_slow { slow_login } else { 10 };
            self.logins.push(now + rng.u64(..steps * STEP));
        }
        let is_cut = now < self.cut_until;
        while let Some(arrived) = store.receive(now, self.id()) {
            if !is_cut {
                // The query that counts also shows where its own connection comes from.
                self.knows_address |= matches!(arrived.answer, Answer::Backends(_));
                let (number, instance) = (arrived.number, arrived.instance);
                self.node.answer(clock, number, instance, arrived.answer);
            }
        }
        self.close_surplus(now, clock, rng);
        for _ in 0..TURN_MAX {
            let opening = match planted_fault {
                Some(PlantedFleetFault::ManyLogins) => 0,
                _ => self.opening(),
            };
            let servers = self.servers();
            if servers < self.wanted && self.node.may_open(clock, servers, opening) {
                self.decided += 1;
            }
        }
        let servers = match planted_fault {
            Some(PlantedFleetFault::EarlyReturn) => self.servers().min(self.terms.floor),
            _ => self.servers(),
        };
        let load = Load {
            servers,
            wanted: self.wanted,
            weight: 1,
        };
        self.knows_address |= self.open > 0 && rng.u8(..10) == 0;
        if let Some((number, request)) = self.node.tick(clock, load)
            && !is_cut
        {
            let sent = Sent {
                number,
                request,
                knows_address: self.knows_address,
            };
            store.send(now, self.id(), sent, rng);
        }
    }

    /// Closes servers above the limit, and idle ones. A random choice leaves some of them for later steps.
    fn close_surplus(&mut self, now: u64, clock: u64, rng: &mut Rng) {
        let limit = self
            .node
            .limit(clock)
            .min(self.wanted.max(self.terms.floor));
        for _ in 0..TURN_MAX {
            let rest = self.open + self.opening();
            if self.open > 0 && rest > limit && rng.u8(..4) > 0 {
                self.open -= 1;
                self.closing.push(now + rng.u64(..10 * STEP));
            }
        }
    }
}
