//! The events that can happen next, and their effects.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use pgweir_core::{
    Address, AuthCheck, AuthCheckResult, Closed, ConnectError, ReadMode, TlsFacts, Token,
};

use super::{
    World,
    driver::{Call, Conn, Open, Pending, Posted},
};
use crate::{
    checks::Violation,
    network::{End, FarEnd},
};

/// The address of all endpoints that are not Unix sockets.
pub(super) const ADDRESS: Address =
    Address::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5432)));

/// An event that can happen at any time, in any order with all others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Connected(usize, Token),
    Secured(usize, Token),
    Read(usize, Token),
    Broken(usize, Token),
    HungUp(usize, Token),
    Readable(usize, Token),
    Flush(usize, Token),
    Tick(usize),
    Post(usize, usize),
    ClientWrites(usize),
    ClientReads(usize),
    ClientLeaves(usize),
    BackendReads(usize),
    BackendWorks(usize),
    BackendWrites(usize),
}

impl World {
    /// Returns all events that can happen now. `stalled` is a worker that does not run at present. With `lazy`, some
    /// clients do not read for a while.
    pub(super) fn enabled(&self, stalled: Option<usize>, lazy: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            if host.stopped || stalled == Some(index) {
                continue;
            }
            for (&token, conn) in &host.table {
                match conn {
                    Conn::Connecting { .. } => events.push(Event::Connected(index, token)),
                    Conn::Open(open) => self.enabled_for(index, token, open, &mut events),
                }
            }
            if self.tick_of(host).is_some_and(|at| at <= self.now) {
                events.push(Event::Tick(index));
            }
        }
        for (&(from, to), post) in &self.posts {
            if !post.is_empty() && !self.hosts[to].stopped && stalled != Some(to) {
                events.push(Event::Post(from, to));
            }
        }
        self.enabled_outside(lazy, &mut events);
        events
    }

    fn enabled_for(&self, host: usize, token: Token, open: &Open, events: &mut Vec<Event>) {
        let link = self.net.see(open.link);
        let readable = !link.up.is_empty() || link.up.end.is_some();
        match open.mode {
            _ if open.frozen => {}
            ReadMode::Deliver if open.securing => events.push(Event::Secured(host, token)),
            ReadMode::Deliver if readable => events.push(Event::Read(host, token)),
            ReadMode::Deliver if open.failed => events.push(Event::Broken(host, token)),
            ReadMode::Deliver => {}
            _ if open.failed || link.up.end == Some(End::Reset) => {
                events.push(Event::Broken(host, token));
            }
            _ if link.up.end.is_some() && !open.hang_up_was_reported => {
                events.push(Event::HungUp(host, token));
            }
            ReadMode::Notify if readable => events.push(Event::Readable(host, token)),
            _ => {}
        }
        let writable = link.down.room() > 0 || link.down.end.is_some();
        if !open.unsent.is_empty() && writable {
            events.push(Event::Flush(host, token));
        }
    }

    fn enabled_outside(&self, lazy: bool, events: &mut Vec<Event>) {
        for (index, client) in self.clients.iter().enumerate() {
            if client.is_over() {
                continue;
            }
            let link = self.net.see(client.link);
            if !client.output.is_empty() && link.up.room() > 0 {
                events.push(Event::ClientWrites(index));
            }
            let reads = !(lazy && client.is_lazy() && self.step % 512 > 12);
            if reads && (!link.down.is_empty() || link.down.end.is_some()) {
                events.push(Event::ClientReads(index));
            }
            if client.leaves.is_some() && client.output.is_empty() && link.up.end.is_none() {
                events.push(Event::ClientLeaves(index));
            }
        }
        for index in 0..self.cluster.backends.len() {
            if self.cluster.can_read(index, &self.net) {
                events.push(Event::BackendReads(index));
            }
            if self.cluster.can_process(index) {
                events.push(Event::BackendWorks(index));
            }
            if self.cluster.can_write(index, &self.net) {
                events.push(Event::BackendWrites(index));
            }
        }
    }

    pub(super) fn perform(&mut self, event: Event) -> Result<(), Violation> {
        self.note(|| format!("{event:?}"));
        match event {
            Event::Connected(host, token) => self.connected(host, token),
            Event::Secured(host, token) => self.secured(host, token),
            Event::Read(host, token) => self.read(host, token),
            Event::Broken(host, token) => self.end(
                host,
                token,
                Closed::Error("connection reset by peer".into()),
            ),
            Event::HungUp(host, token) => {
                let driver = &mut self.hosts[host];
                if let Some(Conn::Open(open)) = driver.table.get_mut(&token) {
                    open.hang_up_was_reported = true;
                }
                driver.worker.hung_up(token, self.now, &mut driver.actions);
                self.execute(host, Call::default())
            }
            Event::Readable(host, token) => {
                let driver = &mut self.hosts[host];
                if let Some(Conn::Open(open)) = driver.table.get_mut(&token) {
                    open.mode = ReadMode::Hold;
                }
                driver.worker.readable(token, self.now, &mut driver.actions);
                self.execute(host, Call::default())
            }
            Event::Flush(host, token) => self.flush(host, token),
            Event::Tick(host) => {
                let driver = &mut self.hosts[host];
                driver.worker.tick(self.now, &mut driver.actions);
                self.execute(host, Call::default())
            }
            Event::Post(from, to) => self.receive_post(from, to),
            outside => self.perform_outside(outside),
        }
    }

    fn perform_outside(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::ClientWrites(index) => {
                let count = self.piece();
                let client = &mut self.clients[index];
                let up = &mut self.net.link(client.link).up;
                let count = count.min(client.output.len());
                let taken = up.push(&client.output.make_contiguous()[..count]);
                client.output.drain(..taken);
            }
            Event::ClientReads(index) => return self.client_reads(index),
            Event::ClientLeaves(index) => self.client_leaves(index),
            Event::BackendReads(index) => {
                let count = self.piece();
                self.cluster.read(index, count, &mut self.net);
            }
            Event::BackendWorks(index) => {
                self.cluster.process(index, &mut self.net)?;
                self.cluster.note_bound(index);
                self.collect_said();
                return self.count_servers(index);
            }
            Event::BackendWrites(index) => {
                let count = self.piece();
                self.cluster.write(index, count, &mut self.net);
            }
            _ => {}
        }
        Ok(())
    }

    fn connected(&mut self, host: usize, token: Token) -> Result<(), Violation> {
        let now = self.now;
        let Some(Conn::Connecting {
            endpoint,
            cancel_for,
        }) = self.hosts[host].table.remove(&token)
        else {
            return Ok(());
        };
        if self.outage.is_some_and(|outage| outage.refuses_connections) {
            self.count("connect fails");
            self.faults.logins_failed = true;
            let why = ConnectError::Refused(format!("{endpoint}: connection refused"));
            let driver = &mut self.hosts[host];
            driver
                .worker
                .connect_failed(token, &why, now, &mut driver.actions);
            return self.execute(host, Call::default());
        }
        let backend = self.cluster.next();
        let link = self
            .net
            .open(FarEnd::Backend(backend), self.scenario.capacity);
        let secret = self.rng.u32(..).to_be_bytes();
        self.cluster.accept(link, cancel_for, secret);
        let nonce = std::array::from_fn(|_| self.rng.u8(..));
        let driver = &mut self.hosts[host];
        driver
            .table
            .insert(token, Conn::Open(Open::new(link, ReadMode::Hold)));
        let address = ADDRESS;
        driver
            .worker
            .connected(token, address, address, nonce, now, &mut driver.actions);
        self.execute(host, Call::default())
    }

    /// Ends a TLS handshake, in rare cases with an error. The handshake sends no bytes.
    fn secured(&mut self, host: usize, token: Token) -> Result<(), Violation> {
        let Some(Conn::Open(open)) = self.hosts[host].table.get(&token) else {
            return Ok(());
        };
        let of_server = matches!(self.net.see(open.link).far, FarEnd::Backend(_));
        let fails =
            of_server && self.scenario.fault_rates.server_killed > 0 && self.rng.u8(..50) == 0;
        if fails {
            self.count("handshake fails");
            self.faults.logins_failed = true;
            return self.end(host, token, Closed::Tls("bad certificate".into()));
        }
        self.count("handshake");
        let driver = &mut self.hosts[host];
        if let Some(Conn::Open(open)) = driver.table.get_mut(&token) {
            open.securing = false;
        }
        let facts = TlsFacts {
            protocol: "TLSv1.3".into(),
            cipher: "TLS_AES_256_GCM_SHA384".into(),
            group: None,
            peer: None,
            end_point: None,
            is_agreed: true,
        };
        driver
            .worker
            .secured(token, facts, self.now, &mut driver.actions);
        self.execute(host, Call::default())
    }

    fn read(&mut self, host: usize, token: Token) -> Result<(), Violation> {
        let count = self.piece();
        let driver = &mut self.hosts[host];
        let Some(Conn::Open(open)) = driver.table.get_mut(&token) else {
            return Ok(());
        };
        let link = self.net.link(open.link);
        let bytes = link.up.pull(count);
        let far = link.far;
        if bytes.is_empty() {
            let why = match link.up.end {
                Some(End::Eof) if !open.failed => Closed::Eof,
                _ => Closed::Error("connection reset by peer".into()),
            };
            return self.end(host, token, why);
        }
        let client = match far {
            FarEnd::Client(index) => Some(index),
            FarEnd::Backend(index) => {
                let backend = &mut self.cluster.backends[index];
                backend.delivered += bytes.len() as u64;
                backend.touched_at = self.now;
                None
            }
        };
        if let Some(trace) = &mut self.trace {
            trace.push(format!(
                "  {far:?}: \"{}\"",
                bytes[..bytes.len().min(90)].escape_ascii()
            ));
        }
        if let FarEnd::Backend(backend) = far
            && self.hides_reply(backend, &bytes)
        {
            return self.end(
                host,
                token,
                Closed::Error("connection reset by peer".into()),
            );
        }
        let driver = &mut self.hosts[host];
        driver
            .worker
            .received(token, &bytes, self.now, &mut driver.actions);
        let call = Call {
            input: &bytes,
            client,
            cancel_for: None,
        };
        self.execute(host, call)
    }

    fn receive_post(&mut self, from: usize, to: usize) -> Result<(), Violation> {
        let Some(message) = self
            .posts
            .get_mut(&(from, to))
            .and_then(|post| post.pop_front())
        else {
            return Ok(());
        };
        let now = self.now;
        let driver = &mut self.hosts[to];
        match message {
            Posted::Mail(mail) => return self.read_mail(to, mail, true),
            Posted::Derived { conn, keys } => {
                driver.worker.derived(conn, keys, now, &mut driver.actions);
            }
            Posted::Found { conn, finding } => {
                driver
                    .worker
                    .auth_checked(conn, finding, now, &mut driver.actions);
            }
            Posted::Client {
                record,
                open,
                server,
            } => return self.take_back(to, record, open, server),
            Posted::MovedClient { client, open } => {
                let token = driver.worker.take_client(client, now, &mut driver.actions);
                if !open.unsent.is_empty() {
                    driver.pending.push_back(Pending::Blocked(token));
                }
                driver.table.insert(token, Conn::Open(open));
            }
            Posted::Server { server, open } => {
                let token = driver.worker.adopt(server, now, &mut driver.actions);
                driver.table.insert(token, Conn::Open(open));
            }
        }
        self.execute(to, Call::default())
    }

    fn client_reads(&mut self, index: usize) -> Result<(), Violation> {
        let count = self.piece();
        let faults = self.faults();
        let client = &mut self.clients[index];
        let down = &mut self.net.link(client.link).down;
        let bytes = down.pull(count);
        match down.end {
            Some(how) if bytes.is_empty() => client.ended(how, faults),
            _ => {
                client.received(&bytes, &mut self.said[index], faults)?;
                if client.is_operator() {
                    self.check_console_answers(index)?;
                }
                Ok(())
            }
        }
    }

    /// The far end closes the connection, or closes its sending side and reads on.
    fn client_leaves(&mut self, index: usize) {
        let reads_on = self.rng.bool();
        let client = &mut self.clients[index];
        let link = self.net.link(client.link);
        link.up.finish(End::Eof);
        if reads_on {
            client.close_half();
        } else {
            link.down.finish(End::Reset);
            client.drop_connection();
        }
    }

    /// Moves the servers' messages to the records of their clients.
    pub(super) fn collect_said(&mut self) {
        let is_carried = self.scenario.mode == pgweir_config::PoolMode::Transaction;
        for (client, said) in self.cluster.said.drain(..) {
            // With a client's session state, the pooler itself reports parameters to the client.
            if is_carried && said.message[0] == pgweir_wire::tag::backend::PARAMETER_STATUS {
                continue;
            }
            let link = self.cluster.backends[said.backend].link;
            if self.net.see(link).held {
                self.said[client].push_back(said);
            }
        }
    }

    /// Returns the number of bytes that are moved at a time.
    fn piece(&mut self) -> usize {
        match self.rng.u8(..4) {
            0 => self.rng.usize(1..=self.scenario.chunk.min(12)),
            _ => self.rng.usize(1..=self.scenario.chunk),
        }
    }
}

/// The system of this world has users whose names are their numbers.
pub(super) fn answer(auth_check: &AuthCheck) -> AuthCheckResult {
    match auth_check {
        AuthCheck::Password { password, .. } => {
            AuthCheckResult::Password(match password.as_str() {
                "right" => Ok(()),
                _ => Err("wrong".to_owned()),
            })
        }
        AuthCheck::SystemUser(uid) => AuthCheckResult::SystemUser(Ok(format!("u{uid}"))),
    }
}
