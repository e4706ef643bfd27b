//! Events that do not come from the pooler: clients that connect and send requests, faults, and the passing of
//! time.

use std::{collections::VecDeque, sync::Arc};

use pgweir_core::{
    Peer, ReadMode, SharedPool, Snapshot, Time, Token,
    mail::{FleetMail, Mail},
};
use pgweir_wire::{Header, tag};

use super::{
    World,
    driver::{Call, Conn, Open, Posted},
    events::ADDRESS,
};
use crate::{
    checks::{SentMessage, Violation},
    client::{Client, Intent},
    network::{End, FarEnd},
    scenario::PlantedFault,
};

/// An outage: PostgreSQL accepts no connections for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) until: Time,
    pub(super) refuses_connections: bool,
}

impl World {
    /// Closes a connection to PostgreSQL, which closes its side at once.
    pub(super) fn close_server(&mut self, host: usize, conn: Token, pool: Arc<SharedPool>) {
        self.close(host, conn);
        let mail = Mail::Fleet(FleetMail::ServerClosed(pool));
        self.post(self.hosts.len(), host, Posted::Mail(mail));
    }

    /// A client connects to a random worker.
    pub(super) fn arrive(&mut self) -> Result<(), Violation> {
        let index = self.clients.len();
        let link = self.net.open(FarEnd::Client(index), self.scenario.capacity);
        let account = self.rng.usize(..self.scenario.accounts.len());
        let mode = self.scenario.mode;
        let keeps_server = mode == pgweir_config::PoolMode::Session;
        let keeps_session = mode != pgweir_config::PoolMode::Statement;
        let account = &self.scenario.accounts[account];
        let requests = self.rng.u32(..=self.scenario.requests);
        let mut client = Client::new(index, link, requests, keeps_session, account, &mut self.rng);
        client.prepares = self.scenario.prepares;
        client.is_analysable = self.scenario.certifies && self.rng.u8(..4) > 0;
        client.works_on_session = self.scenario.sessions && keeps_session && self.rng.bool();
        if self.scenario.is_wild {
            client.works_on_session = keeps_session;
            client.prepares &= index.is_multiple_of(3);
            client.use_hidden_custom();
        }
        client.runs_ahead = keeps_server;
        client.shares_servers(!keeps_server);
        if self.scenario.operators && self.rng.u8(..5) == 0 {
            client.becomes_operator(&mut self.rng);
        } else if self.scenario.natives && self.rng.u8(..4) == 0 {
            client.becomes_native();
        } else if self.scenario.is_wild && self.rng.u8(..4) == 0 {
            self.count("wild client");
            client.becomes_wild(&mut self.rng);
        }
        self.admit(client)
    }

    /// A client sends something.
    pub(super) fn act(&mut self, intent: Intent) -> bool {
        let able: Vec<usize> = (0..self.clients.len())
            .filter(|&index| self.clients[index].can_act())
            .collect();
        let Some(&index) = self.rng.choice(&able) else {
            return false;
        };
        if intent == Intent::SendRequests && self.clients[index].is_operator() {
            self.operate(index);
            return true;
        }
        let size = match self.rng.u8(..20) {
            0 => self.scenario.result_size,
            _ => 30,
        };
        self.clients[index].act(intent, size, &mut self.rng);
        if self.trace.is_some() {
            let asks = self.clients[index].asks();
            self.note(|| format!("client {index} acts, and waits for {asks}"));
        }
        true
    }

    /// Lets a fault happen, with the scenario's probabilities.
    pub(super) fn inject_fault(&mut self) -> Result<(), Violation> {
        let fault_rates = self.scenario.fault_rates;
        let mut roll = self.rng.u32(..1000);
        let mut hits = |often: u32| {
            let hit = roll < often;
            roll = if hit {
                u32::MAX
            } else {
                roll.saturating_sub(often)
            };
            hit
        };
        if hits(fault_rates.client_killed) {
            self.kill_client();
        } else if hits(fault_rates.server_killed) {
            self.kill_server();
        } else if hits(fault_rates.cancel) {
            return self.cancel();
        } else if hits(fault_rates.time_jump) {
            self.now = self.now.after(self.rng.u64(..4_000_000));
        } else if hits(fault_rates.reload) {
            return self.reload();
        } else if hits(fault_rates.outage) {
            self.outage = Some(Outage {
                until: self.now.after(self.rng.u64(..200_000)),
                refuses_connections: self.rng.bool(),
            });
        } else if hits(fault_rates.takeover) {
            self.restart();
        }
        Ok(())
    }

    /// Applies a planted fault to a piece of a backend's bytes: its whole messages up to the end of a reply reach the
    /// client, but the pooler does not see them. Returns whether this is so. The messages must begin a reply, and have
    /// a row.
    pub(super) fn hides_reply(&mut self, backend: usize, bytes: &[u8]) -> bool {
        let Some(PlantedFault::UnseenReply(nth)) = self.scenario.planted_fault else {
            return false;
        };
        let start = self.cluster.backends[backend].delivered - bytes.len() as u64;
        let is_beginning = |said: &VecDeque<SentMessage>| {
            let first = said.front().filter(|first| first.backend == backend);
            first.is_some_and(|first| first.end == start + first.message.len() as u64)
        };
        let Some(client) = self.said.iter().position(is_beginning) else {
            return false;
        };
        let (mut end, mut has_row) = (0, false);
        while let Ok(Some(header)) = Header::parse(&bytes[end..])
            && header.tag != tag::backend::READY_FOR_QUERY
            && end + header.message_len() <= bytes.len()
        {
            end += header.message_len();
            has_row |= header.tag == tag::backend::DATA_ROW;
        }
        let link = self.clients[client].link;
        let fits = self.net.link(link).down.room() >= end;
        if !has_row || !fits || !self.fault_is_due(nth) {
            return false;
        }
        self.count("reply hidden");
        self.note(|| format!("  (sabotage: client {client} gets {end} bytes unseen)"));
        self.net.link(link).down.push(&bytes[..end]);
        self.cluster.backends[backend].delivered = start + end as u64;
        self.cluster.lost = true;
        true
    }

    /// Ends an outage that is due, or any outage.
    pub(super) fn update_outage(&mut self, ends: bool) {
        if self
            .outage
            .is_some_and(|outage| ends || outage.until <= self.now)
        {
            self.outage = None;
        }
        self.cluster.refuses = self
            .outage
            .is_some_and(|outage| !outage.refuses_connections);
        self.faults.logins_failed |= self.cluster.refuses;
    }

    fn kill_client(&mut self) {
        let present: Vec<usize> = (0..self.clients.len())
            .filter(|&index| !self.clients[index].is_over())
            .collect();
        let Some(&index) = self.rng.choice(&present) else {
            return;
        };
        let client = &mut self.clients[index];
        if client.is_ready() && client.leaves.is_none() && self.rng.bool() {
            client.leave_badly(&mut self.rng);
        } else {
            let how = [End::Eof, End::Reset][self.rng.usize(..2)];
            let link = self.net.link(client.link);
            link.up.finish(how);
            link.down.finish(End::Reset);
            client.drop_connection();
        }
        self.note(|| format!("client {index} is killed"));
        self.count("client killed");
    }

    /// A server dies while no request is under way.
    pub(super) fn inject_fault_when_quiet(&mut self) {
        let may_happen = self.scenario.is_wild && self.scenario.fault_rates.server_killed > 0;
        if may_happen && self.rng.bool() {
            self.kill_server();
        }
    }

    /// Orders all clients to leave, if the scenario says so.
    pub(super) fn begin_drain(&mut self) {
        let Some(rate) = self.scenario.drain_rate else {
            return;
        };
        self.note(|| format!("drain: {rate} clients per second"));
        self.faults.drain = true;
        let departures = self.directory.operator().departures();
        departures.order(self.now, rate);
        self.mail_to_all(|| Mail::OperatorOrders);
    }

    fn kill_server(&mut self) {
        let mut alive: Vec<usize> = (0..self.cluster.backends.len())
            .filter(|&index| self.cluster.is_alive(index))
            .collect();
        let is_kept =
            |index: &usize| self.cluster.is_kept(*index, &self.net) && self.has_owner(*index);
        if self.scenario.is_wild && alive.iter().any(is_kept) {
            alive.retain(is_kept);
        }
        let Some(&index) = self.rng.choice(&alive) else {
            return;
        };
        self.cluster.lost = true;
        self.count("server killed");
        if self.cluster.is_kept(index, &self.net) && self.has_owner(index) {
            self.count("kept server killed");
        }
        self.faults.logins_failed = true;
        match self.rng.u8(..3) {
            0 if self.cluster.is_session(index) => self.cluster.open_no_more(index, &mut self.net),
            1 => self.cluster.end(index, End::Reset, &mut self.net),
            _ => self.cluster.end(index, End::Eof, &mut self.net),
        }
        self.note(|| format!("backend {index} is killed"));
    }

    /// Sends a cancel request for a client, sometimes with a wrong key.
    fn cancel(&mut self) -> Result<(), Violation> {
        let key = |client: &Client| client.key.clone();
        let slow = self.clients.iter().filter(|client| client.is_slow());
        let mut keys: Vec<_> = slow.filter_map(key).collect();
        if keys.is_empty() || self.rng.bool() {
            keys = self.clients.iter().filter_map(key).collect();
        }
        let Some((mut pid, mut secret)) = self.rng.choice(&keys).cloned() else {
            return Ok(());
        };
        match self.rng.u8(..6) {
            0 => secret[0] ^= 1,
            1 => pid = self.rng.u32(..),
            _ => {}
        }
        let named = Some((pid, secret.clone()));
        for client in &mut self.clients {
            client.was_named |= client.key == named;
        }
        let index = self.clients.len();
        let link = self.net.open(FarEnd::Client(index), self.scenario.capacity);
        self.admit(Client::canceller(index, link, pid, &secret))
    }

    pub(super) fn reload(&mut self) -> Result<(), Violation> {
        let pool_size = self.rng.u32(1..=4);
        let snapshot = self.scenario.snapshot(pool_size)?;
        self.count("reload");
        self.configure(snapshot);
        Ok(())
    }

    /// Sends a new configuration to all workers.
    pub(super) fn configure(&mut self, snapshot: Snapshot) {
        let pool_size = snapshot.config.settings.default_pool_size;
        self.note(|| format!("configuration: default_pool_size = {pool_size}"));
        self.pool_size = pool_size;
        self.most_servers = self
            .most_servers
            .max(pool_size as usize + self.scenario.caps.above_size());
        let snapshot = Arc::new(snapshot);
        self.directory.replace(Arc::clone(&snapshot));
        self.mail_to_all(|| Mail::Config(Arc::clone(&snapshot)));
    }

    pub(super) fn mail_to_all(&mut self, mut mail: impl FnMut() -> Mail) {
        for to in 0..self.hosts.len() {
            self.post(self.hosts.len(), to, Posted::Mail(mail()));
        }
    }

    fn admit(&mut self, client: Client) -> Result<(), Violation> {
        let host = self.rng.usize(..self.hosts.len());
        let link = client.link;
        self.note(|| format!("client {} comes to worker {host}", client.index));
        let (user, name) = client.identity();
        self.cluster.introduce(user, name);
        self.clients.push(client);
        self.said.push(Default::default());
        if self.hosts[host].stopped {
            self.net.let_go(link, &[]);
            return Ok(());
        }
        let peer = Peer {
            remote: ADDRESS,
            local: ADDRESS,
            port: 6432,
            same_uid: false,
            is_internal: false,
            uid: Some(0),
            pid: 0,
            entropy: std::array::from_fn(|_| self.rng.u8(..)),
        };
        let driver = &mut self.hosts[host];
        let token = driver.worker.accepted(&peer, self.now, &mut driver.actions);
        driver
            .table
            .insert(token, Conn::Open(Open::new(link, ReadMode::Deliver)));
        self.execute(host, Call::default())
    }
}
