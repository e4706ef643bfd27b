//! Carries out the core's actions as the real driver does, over simulated connections.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use pgweir_auth::scram::DerivedKeys;
use pgweir_core::{
    Action, Actions, AuthCheckResult, Closed, Endpoint, ReadMode, Source, TakeoverMail, Token,
    Worker, WorkerId, backend::Server, frontend::MovedClient, mail::Mail, takeover::ClientRecord,
};

use pgweir_wire::Header;

use super::{World, events::answer};
use crate::{
    checks::{Guarantee, Violation},
    network::{FarEnd, LinkId},
    scenario::PlantedFault,
};

/// A worker and its driver.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) worker: Worker,
    pub(super) actions: Actions,
    pub(super) table: BTreeMap<Token, Conn>,
    pub(super) pending: VecDeque<Pending>,
    /// Whether the worker has finished.
    pub(super) stopped: bool,
}

#[derive(Debug)]
pub(super) enum Conn {
    Connecting {
        endpoint: Arc<Endpoint>,
        /// Whether this is a connection for a cancel request: the client that it names, if the key was right.
        cancel_for: Option<usize>,
    },
    Open(Open),
}

/// An open connection as the driver knows it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) link: LinkId,
    pub(super) mode: ReadMode,
    pub(super) frozen: bool,
    pub(super) hang_up_was_reported: bool,
    pub(super) unsent: Vec<u8>,
    /// Whether writing has failed.
    pub(super) failed: bool,
    /// Whether a TLS handshake is under way.
    pub(super) securing: bool,
}

/// Work that is left after an event, in order.
#[derive(Debug)]
pub(super) enum Pending {
    Peek(Token),
    Blocked(Token),
    Drained(Token),
    Mail(Mail),
}

/// A message between workers.
#[derive(Debug)]
pub(super) enum Posted {
    Mail(Mail),
    Server {
        server: Box<Server>,
        open: Open,
    },
    Derived {
        conn: Token,
        keys: DerivedKeys,
    },
    Found {
        conn: Token,
        finding: AuthCheckResult,
    },
    /// A client of another worker.
    MovedClient {
        client: Box<MovedClient>,
        open: Open,
    },
    /// A client of another process.
    Client {
        record: Box<ClientRecord>,
        open: Open,
        server: Option<Open>,
    },
}

/// The reason for a call of the core, with which the check compares the core's actions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Call<'a> {
    pub(super) input: &'a [u8],
    /// The client that sent the bytes.
    pub(super) client: Option<usize>,
    /// The client that a cancel request names.
    pub(super) cancel_for: Option<usize>,
}

impl Open {
    pub(super) fn new(link: LinkId, mode: ReadMode) -> Self {
        Self {
            link,
            mode,
            frozen: false,
            hang_up_was_reported: false,
            unsent: Vec::new(),
            failed: false,
            securing: false,
        }
    }
}

impl World {
    /// Executes the actions of a call, and all work that follows at once.
    pub(super) fn execute(&mut self, host: usize, call: Call<'_>) -> Result<(), Violation> {
        self.carry_out(host, call)?;
        while let Some(pending) = self.hosts[host].pending.pop_front() {
            self.settle(host, pending)?;
        }
        Ok(())
    }

    /// Executes only the actions of a call.
    pub(super) fn carry_out(&mut self, host: usize, mut call: Call<'_>) -> Result<(), Violation> {
        let actions = &mut self.hosts[host].actions;
        let list = std::mem::take(&mut actions.list);
        let scratch = std::mem::take(&mut actions.scratch);
        for action in list {
            self.note(|| format!("  w{host} {}", brief(&action)));
            match action {
                Action::Send { to, source } => {
                    let (bytes, is_input) = match source {
                        Source::Input(range) => (call.input.get(range), true),
                        Source::Scratch(range) => (scratch.get(range), false),
                    };
                    let bytes = bytes.ok_or_else(|| sense("a range outside of its bytes"))?;
                    self.send(host, to, bytes, is_input, call)?;
                }
                Action::Read { conn, mode } => {
                    // Bytes that were kept are written now: all of them, or a part. In that case the rest waits, and
                    // nothing more is read.
                    if mode != ReadMode::Notify {
                        call.client = self.client_of(host, conn).or(call.client);
                    }
                    self.set_mode(host, conn, mode);
                }
                other => self.carry_out_one(host, other, call)?,
            }
        }
        Ok(())
    }

    fn set_mode(&mut self, host: usize, conn: Token, mode: ReadMode) {
        if let Some(Conn::Open(open)) = self.hosts[host].table.get_mut(&conn) {
            open.mode = mode;
        }
    }

    fn client_of(&self, host: usize, conn: Token) -> Option<usize> {
        let Some(Conn::Open(open)) = self.hosts[host].table.get(&conn) else {
            return None;
        };
        match self.net.see(open.link).far {
            FarEnd::Client(client) => Some(client),
            FarEnd::Backend(_) => None,
        }
    }

    fn carry_out_one(
        &mut self,
        host: usize,
        action: Action,
        call: Call<'_>,
    ) -> Result<(), Violation> {
        match action {
            Action::Freeze(conn) => self.set_frozen(host, conn, true),
            Action::Thaw(conn) => self.set_frozen(host, conn, false),
            // Clients of this world connect at any time.
            Action::Accept(_) | Action::LoggedIn(_) => {}
            Action::Peek(conn) => self.hosts[host].pending.push_back(Pending::Peek(conn)),
            Action::Connect { conn, endpoint } => {
                let cancel_for = call.cancel_for;
                let connecting = Conn::Connecting {
                    endpoint,
                    cancel_for,
                };
                self.hosts[host].table.insert(conn, connecting);
            }
            Action::StartTls { conn, .. } => {
                if let Some(Conn::Open(open)) = self.hosts[host].table.get_mut(&conn) {
                    open.securing = true;
                }
            }
            Action::Close(conn) => self.close(host, conn),
            Action::CloseServer { conn, pool } => self.close_server(host, conn, pool),
            Action::Derive { conn, job } => {
                self.count("derivation");
                let keys = job.run();
                self.post(self.hosts.len(), host, Posted::Derived { conn, keys });
            }
            Action::Evaluate(evaluation) => {
                self.count("catalog evaluation");
                let mail = Mail::CatalogEvaluated(Box::new(evaluation.run()));
                self.post(self.hosts.len(), host, Posted::Mail(mail));
            }
            Action::CheckAuth { conn, auth_check } => {
                self.count("inquiry");
                let finding = answer(&auth_check);
                self.post(self.hosts.len(), host, Posted::Found { conn, finding });
            }
            Action::MoveServer { conn, to, server } => {
                let Some(Conn::Open(mut open)) = self.hosts[host].table.remove(&conn) else {
                    return Err(sense("hands over a connection that is not open"));
                };
                open.hang_up_was_reported = false;
                self.count("server moves");
                self.post(host, to.index(), Posted::Server { server, open });
            }
            Action::MoveClient { conn, to, client } => self.move_client(host, conn, to, client)?,
            Action::HandOverClient {
                conn,
                record,
                server,
            } => self.depart(host, conn, record, server.map(|server| *server))?,
            // The receiver does not exist any more.
            Action::ForwardToNewProcess { .. } => {}
            Action::AwaitReturns => {
                let control = self.hosts.len();
                self.post(control, host, Posted::Mail(TakeoverMail::AllBack.into()));
            }
            // A random number decides when a worker reads this, as for all mail.
            Action::Mail { to, mail } => self.send_mail(host, to, *mail),
            Action::MailAfterPending { to, mail } => {
                self.post(host, to.index(), Posted::Mail(*mail));
            }
            Action::Log(line) if line.text.contains("the request is repeated") => {
                self.count("read repeated");
            }
            Action::Log(line) if line.text.contains("has not answered") => {
                self.count("host race");
            }
            Action::Log(_) | Action::WriteLog | Action::Export(_) => {}
            Action::Control(control) => self.control(*control)?,
            Action::Finished => self.stop(host),
            Action::Send { .. } | Action::Read { .. } => {}
        }
        Ok(())
    }

    fn set_frozen(&mut self, host: usize, conn: Token, frozen: bool) {
        if let Some(Conn::Open(open)) = self.hosts[host].table.get_mut(&conn) {
            open.frozen = frozen;
        }
    }

    fn settle(&mut self, host: usize, pending: Pending) -> Result<(), Violation> {
        let now = self.now;
        if self.hosts[host].stopped {
            return Ok(());
        }
        let is_open = |host: &Host, token| matches!(host.table.get(&token), Some(Conn::Open(_)));
        let driver = &mut self.hosts[host];
        match pending {
            Pending::Peek(token) => {
                let Some(Conn::Open(open)) = driver.table.get(&token) else {
                    return Ok(());
                };
                let first = self.net.see(open.link).up.first();
                driver.worker.peeked(token, first, now, &mut driver.actions);
            }
            Pending::Blocked(token) if is_open(driver, token) => {
                driver.worker.blocked(token, now, &mut driver.actions);
            }
            Pending::Drained(token) if is_open(driver, token) => {
                driver.worker.drained(token, now, &mut driver.actions);
            }
            Pending::Blocked(_) | Pending::Drained(_) => return Ok(()),
            Pending::Mail(mail) => return self.read_mail(host, mail, false),
        }
        self.carry_out(host, Call::default())
    }

    /// Delivers a message to the core. With `settles`, the caller does the work that follows at once.
    pub(super) fn read_mail(
        &mut self,
        host: usize,
        mail: Mail,
        settles: bool,
    ) -> Result<(), Violation> {
        let cancel_for = match &mail {
            Mail::Cancel { key, .. } => {
                self.count("cancel request");
                self.client_with_key(key.pid, &key.secret)
            }
            Mail::ServersWanted(_) => {
                self.count("wanted");
                None
            }
            _ => None,
        };
        let driver = &mut self.hosts[host];
        driver.worker.mail(mail, self.now, &mut driver.actions);
        let call = Call {
            cancel_for,
            ..Call::default()
        };
        if settles {
            self.execute(host, call)
        } else {
            self.carry_out(host, call)
        }
    }

    fn send_mail(&mut self, from: usize, to: WorkerId, mail: Mail) {
        if to.index() == from {
            return self.hosts[from].pending.push_back(Pending::Mail(mail));
        }
        let lost = match (&mail, self.scenario.planted_fault) {
            (Mail::ServersWanted(_), Some(PlantedFault::LoseWanted(nth)))
            | (Mail::Open(_) | Mail::OpenFor(..), Some(PlantedFault::LoseOpen(nth))) => {
                self.fault_is_due(nth)
            }
            _ => false,
        };
        if lost {
            self.note(|| "  (sabotage: the mail is lost)".to_owned());
        } else {
            self.post(from, to.index(), Posted::Mail(mail));
        }
    }

    /// Returns whether the planted fault affects this event.
    pub(super) fn fault_is_due(&mut self, nth: u32) -> bool {
        self.fault_chances += 1;
        self.fault_chances.is_multiple_of(nth)
    }

    pub(super) fn post(&mut self, from: usize, to: usize, message: Posted) {
        if self.hosts[to].stopped {
            return self.discard(message);
        }
        self.posts.entry((from, to)).or_default().push_back(message);
    }

    /// Discards a message without a receiver: a connection in it is closed.
    fn discard(&mut self, message: Posted) {
        if matches!(message, Posted::MovedClient { .. }) {
            self.directory.worker_loads().end_move();
        }
        let opens = match message {
            Posted::Server { open, .. } | Posted::MovedClient { open, .. } => [Some(open), None],
            Posted::Client { open, server, .. } => [Some(open), server],
            _ => [None, None],
        };
        for open in opens.into_iter().flatten() {
            self.net.let_go(open.link, &open.unsent);
            self.discard_sent_bytes(open.link);
        }
    }

    fn send(
        &mut self,
        host: usize,
        to: Token,
        bytes: &[u8],
        is_input: bool,
        call: Call<'_>,
    ) -> Result<(), Violation> {
        let Some(Conn::Open(open)) = self.hosts[host].table.get(&to) else {
            return Err(sense(&format!(
                "worker {host} sends to {to:?}, which is not open"
            )));
        };
        match self.net.see(open.link).far {
            FarEnd::Client(client) if is_input => match self.apply_fault_to_reply(client, bytes) {
                Some(bytes) => self.write(host, to, &bytes),
                None => Ok(()),
            },
            FarEnd::Client(_) => self.write(host, to, bytes),
            FarEnd::Backend(backend) => {
                let (to, backend) = self.apply_fault_to_route(host, to, backend, bytes, is_input);
                self.cluster.backends[backend].touched_at = self.now;
                if self.cluster.is_session(backend) {
                    let quiet = self.cluster.is_quiet(backend, &self.net);
                    let tap = &mut self.cluster.backends[backend].tap;
                    tap.feed(bytes, call.client, quiet)?;
                    self.check_owner(backend)?;
                }
                self.write(host, to, bytes)
            }
        }
    }

    /// An exclusive server works for no other client, and its client has no other server.
    fn check_owner(&self, backend: usize) -> Result<(), Violation> {
        let backend = &self.cluster.backends[backend];
        let Some(owner) = backend.tap.owner else {
            return Ok(());
        };
        let is_native = backend.is_native();
        let is_first = !is_native || backend.tap.owners == 1;
        if self.clients[owner].is_native() == is_native && is_first {
            return Ok(());
        }
        let what = format!("client {owner} gets a server that was opened for another");
        Err(Violation::new(Guarantee::OneClient, what))
    }

    fn write(&mut self, host: usize, to: Token, bytes: &[u8]) -> Result<(), Violation> {
        let most_unsent = 8 * self.scenario.chunk + UNSENT_MAX;
        let driver = &mut self.hosts[host];
        let Some(Conn::Open(open)) = driver.table.get_mut(&to) else {
            return Ok(());
        };
        let link = self.net.link(open.link);
        if open.failed {
            return Ok(());
        }
        if link.down.end.is_some() {
            open.failed = true;
            open.unsent.clear();
            return Ok(());
        }
        if !open.unsent.is_empty() {
            open.unsent.extend_from_slice(bytes);
            if open.unsent.len() > most_unsent {
                let what = format!("{} bytes wait for {:?}", open.unsent.len(), link.far);
                return Err(Violation::new(Guarantee::Memory, what));
            }
            return Ok(());
        }
        let taken = link.down.push(bytes);
        if taken < bytes.len() {
            open.unsent.extend_from_slice(&bytes[taken..]);
            driver.pending.push_back(Pending::Blocked(to));
            self.count("send blocks");
        }
        Ok(())
    }

    /// Notes that the socket takes bytes again, or has failed.
    pub(super) fn flush(&mut self, host: usize, token: Token) -> Result<(), Violation> {
        let driver = &mut self.hosts[host];
        let Some(Conn::Open(open)) = driver.table.get_mut(&token) else {
            return Ok(());
        };
        let link = self.net.link(open.link);
        if link.down.end.is_some() {
            open.failed = true;
            open.unsent.clear();
            return Ok(());
        }
        let taken = link.down.push(&open.unsent);
        open.unsent.drain(..taken);
        if open.unsent.is_empty() {
            driver.pending.push_back(Pending::Drained(token));
            if let FarEnd::Client(client) = link.far {
                self.cluster.touch_of(client, self.now);
            }
        }
        self.execute(host, Call::default())
    }

    /// Informs the core that the connection is lost.
    pub(super) fn end(&mut self, host: usize, token: Token, why: Closed) -> Result<(), Violation> {
        self.close(host, token);
        let driver = &mut self.hosts[host];
        driver
            .worker
            .closed(token, &why, self.now, &mut driver.actions);
        self.execute(host, Call::default())
    }

    pub(super) fn close(&mut self, host: usize, token: Token) {
        if let Some(Conn::Open(open)) = self.hosts[host].table.remove(&token) {
            self.net.let_go(open.link, &open.unsent);
            self.discard_sent_bytes(open.link);
        }
    }

    /// Discards the bytes that a server has sent and the pooler has not read, since the connection is gone.
    fn discard_sent_bytes(&mut self, link: LinkId) {
        if let FarEnd::Backend(backend) = self.net.see(link).far {
            let backend_seen = &self.cluster.backends[backend];
            let read = backend_seen.delivered.min(backend_seen.cut);
            for said in &mut self.said {
                said.retain(|said| said.backend != backend || said.end <= read);
                for last in said.iter_mut().filter(|said| said.backend == backend) {
                    last.is_last = true;
                }
            }
        }
    }

    fn stop(&mut self, host: usize) {
        self.hosts[host].stopped = true;
        let tokens: Vec<Token> = self.hosts[host].table.keys().copied().collect();
        for token in tokens {
            self.close(host, token);
        }
        let posts = self.posts.iter_mut().filter(|((_, to), _)| *to == host);
        let unread: Vec<Posted> = posts.flat_map(|(_, post)| std::mem::take(post)).collect();
        for message in unread {
            self.discard(message);
        }
    }

    /// Applies planted faults to a piece for a client: the piece is lost or delayed.
    fn apply_fault_to_reply(&mut self, client: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let planted_fault = self.scenario.planted_fault;
        match planted_fault {
            Some(PlantedFault::SwallowReply(nth)) if self.fault_is_due(nth) => None,
            Some(PlantedFault::SwapReplies(nth)) => match self.kept.remove(&client) {
                Some(kept) => Some([bytes, &kept].concat()),
                None if self.fault_is_due(nth) => {
                    self.kept.insert(client, bytes.to_vec());
                    None
                }
                None => Some(bytes.to_vec()),
            },
            _ => Some(bytes.to_vec()),
        }
    }

    /// Applies planted faults to a client's bytes: they go to another server.
    fn apply_fault_to_route(
        &mut self,
        host: usize,
        to: Token,
        backend: usize,
        bytes: &[u8],
        is_input: bool,
    ) -> (Token, usize) {
        let is_whole = matches!(Header::parse(bytes),
            Ok(Some(header)) if header.message_len() <= bytes.len());
        let boundary = |backend: usize| self.cluster.backends[backend].tap.is_at_boundary();
        let (nth, kept) = match self.scenario.planted_fault {
            _ if !is_input || !is_whole || !boundary(backend) => return (to, backend),
            Some(PlantedFault::LendTwice(nth)) => (nth, false),
            Some(PlantedFault::LendKept(nth)) => (nth, true),
            _ => return (to, backend),
        };
        let others = self.hosts[host].table.iter().filter_map(|(token, conn)| {
            let Conn::Open(open) = conn else { return None };
            let FarEnd::Backend(other) = self.net.see(open.link).far else {
                return None;
            };
            let is_quiet = self.cluster.is_quiet(other, &self.net);
            // A kept server: idle, with session state that binds its client to it.
            let is_meant = is_quiet == kept && (!kept || self.cluster.is_bound(other));
            let is_meant = is_meant && self.cluster.is_session(other);
            (other != backend && is_meant && boundary(other)).then_some((*token, other))
        });
        let Some(other) = others.collect::<Vec<_>>().first().copied() else {
            return (to, backend);
        };
        if self.fault_is_due(nth) {
            self.note(|| format!("  (sabotage: to backend {} instead)", other.1));
            return other;
        }
        (to, backend)
    }
}

/// The number of bytes that may wait for a connection. The pooler's longest text, which reads the catalog, fits.
const UNSENT_MAX: usize = 49_152;

pub(super) fn sense(what: &str) -> Violation {
    Violation::new(Guarantee::ValidActions, what)
}

/// Describes an action in a line of the trace.
fn brief(action: &Action) -> String {
    match action {
        Action::MoveServer { conn, to, .. } => format!("HandOver {conn:?} to {to:?}"),
        Action::MoveClient { conn, to, .. } => format!("MoveClient {conn:?} to {to:?}"),
        Action::Mail { to, mail } | Action::MailAfterPending { to, mail } => {
            let text = format!("{mail:?}");
            let end = text.find(['(', ' ']).unwrap_or(text.len());
            format!("Mail {} to {to:?}", &text[..end])
        }
        Action::Log(line) => format!("Log {}", line.text),
        Action::WriteLog => "WriteLog".to_owned(),
        Action::Derive { conn, .. } => format!("Derive {conn:?}"),
        Action::Evaluate(_) => "Evaluate".to_owned(),
        Action::CheckAuth { conn, .. } => format!("Inquire {conn:?}"),
        other => format!("{other:?}"),
    }
}
