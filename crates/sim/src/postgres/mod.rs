//! A model of PostgreSQL, to which the pooler's server connections lead.

mod counted;
mod executions;
mod extended;
mod login;
mod output;
mod session;
mod sql;
mod statement;
mod work;

use std::{cell::RefCell, rc::Rc};

use pgweir_auth::userlist::Secret;
use pgweir_core::Time;
use pgweir_wire::{Authentication, Header, MessageWriter, Severity};

use self::{
    counted::{counted_as, works_on_session},
    executions::Executions,
    login::{Login, StartupOptions, Step},
    output::Output,
    session::{Next, REPORTED, Session},
};
pub(crate) use self::{
    login::Method,
    session::{Direct, REFUSED, is_refused},
    sql::State,
    statement::{Command, Text, signature},
};
use crate::{
    EventCounts,
    checks::{Guarantee, SentMessage, ServerInputCheck, Violation},
    network::{End, LinkId, Network},
    scenario::PlantedFault,
};

/// The error of a backend that shuts down.
pub(crate) const LAST_WORDS: &str = "terminating connection due to administrator command";
/// The error at login while PostgreSQL accepts no connections.
pub(crate) const TOO_MANY: &str = "sorry, too many clients already";
/// The largest number of statement names that a client uses at a time.
const NAMES_MAX: usize = 7;
const WRONG_PASSWORD: &str = "password authentication failed for user";

/// The behaviour of the model in this world.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    pub(crate) method: Method,
    /// The users' names and secrets.
    pub(crate) secrets: Vec<(String, Secret)>,
    /// Whether changed parameters are reported at once, as before PostgreSQL 14.
    pub(crate) eager_reports: bool,
    /// Whether the model supports TLS.
    pub(crate) tls: bool,
    /// A planted fault in the model.
    pub(crate) planted_fault: Option<PlantedFault>,
    /// Whether all backends are those of standbys.
    pub(crate) standbys: bool,
    /// Whether settings that are not reported are compared, too.
    pub(crate) checks_all: bool,
    /// The largest number of named statements that a server may have.
    pub(crate) statements_max: usize,
    /// The number of connections that PostgreSQL allows, less its reserved ones.
    pub(crate) usable_connections: u32,
}

#[derive(Debug)]
enum Phase {
    Login(Login),
    Session(Box<Session>),
    Gone,
}

/// A backend: the far end of a connection.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) link: LinkId,
    pub(crate) tap: ServerInputCheck,
    /// The database and the user in the startup packet.
    pub(crate) pool: Option<(String, String)>,
    /// The client for whose cancel request the pooler has opened this connection.
    pub(crate) cancel_for: Option<usize>,
    /// The number of bytes from the backend that the pooler has read.
    pub(crate) delivered: u64,
    /// The position from which on the bytes answer no request.
    pub(crate) cut: u64,
    /// The time when the pooler last wrote to the backend, read from it, or passed the last of its bytes to the client.
    pub(crate) touched_at: Time,
    /// The client whose session state on this backend could not move to another server, in the client's last session
    /// here.
    pub(crate) bound_to: Option<usize>,
    /// The client that sent the last message; `None` if the pooler itself did.
    served: Option<usize>,
    phase: Phase,
    input: Vec<u8>,
    out: Output,
    options: StartupOptions,
    secret: [u8; 4],
}

/// All backends so far.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) backends: Vec<Backend>,
    pub(crate) server_options: ServerOptions,
    /// Whether logins are refused with PostgreSQL's error.
    pub(crate) refuses: bool,
    /// Whether a backend was lost that the pooler did not close.
    pub(crate) lost: bool,
    pub(crate) event_counts: EventCounts,
    /// For each client, the session that it would have with a server of its own.
    directs: Vec<Direct>,
    /// The clients that have lost a server with unread answers, so that the results of their statements are unknown.
    unsure: Vec<usize>,
    /// Those clients in `unsure` whose server has ended while it worked for them, and not for the pooler itself.
    with_lost_work: Vec<usize>,
    /// The messages for each client since the last time the world collected them.
    pub(crate) said: Vec<(usize, SentMessage)>,
    executions: Executions,
}

impl Cluster {
    pub(crate) fn new(server_options: ServerOptions) -> Self {
        Self {
            backends: Vec::new(),
            server_options,
            refuses: false,
            lost: false,
            event_counts: EventCounts::new(),
            directs: Vec::new(),
            unsure: Vec::new(),
            with_lost_work: Vec::new(),
            said: Vec::new(),
            executions: Executions::default(),
        }
    }

    /// Adds a client, with the `application_name` in its startup packet.
    pub(crate) fn introduce(&mut self, user: &str, application_name: Option<&str>) {
        let asked = application_name.map(|name| ("application_name", name));
        let state = State::new(login::defaults(user, asked.into_iter()));
        self.directs.push(Rc::new(RefCell::new(state)));
    }

    /// Returns the index of the next backend.
    pub(crate) fn next(&self) -> usize {
        self.backends.len()
    }

    /// Accepts a connection.
    pub(crate) fn accept(&mut self, link: LinkId, cancel_for: Option<usize>, secret: [u8; 4]) {
        self.backends.push(Backend {
            link,
            tap: ServerInputCheck::default(),
            pool: None,
            cancel_for,
            delivered: 0,
            cut: u64::MAX,
            touched_at: Time(0),
            bound_to: None,
            served: None,
            phase: Phase::Login(Login::Startup),
            input: Vec::new(),
            out: Output::default(),
            options: StartupOptions::default(),
            secret,
        });
    }

    /// Returns whether [`Cluster::process`] has something to do for the backend.
    pub(crate) fn can_process(&self, index: usize) -> bool {
        let backend = &self.backends[index];
        match &backend.phase {
            Phase::Gone => false,
            Phase::Login(Login::Startup) => backend.input.len() >= 8,
            _ if backend.out.is_full() => false,
            Phase::Session(session) if session.is_running() => true,
            _ => matches!(Header::parse(&backend.input),
                Ok(Some(header)) if backend.input.len() >= header.message_len()),
        }
    }

    /// Handles a message, or runs a step of a query.
    pub(crate) fn process(&mut self, index: usize, net: &mut Network) -> Result<(), Violation> {
        let backend = &mut self.backends[index];
        match &mut backend.phase {
            Phase::Gone => {}
            Phase::Login(_) => self.log_in(index, net)?,
            Phase::Session(session) if session.is_running() => session.run(&mut backend.out),
            Phase::Session(_) => self.serve(index, net)?,
        }
        self.said
            .append(&mut self.backends[index].out.take_sent_messages());
        Ok(())
    }

    /// Sends bytes, at most `max`.
    pub(crate) fn write(&mut self, index: usize, max: usize, net: &mut Network) {
        let backend = &mut self.backends[index];
        let ready = backend.out.ready();
        let taken = net
            .link(backend.link)
            .up
            .push(&ready[..ready.len().min(max)]);
        backend.out.sent(taken);
    }

    /// Returns whether the backend has bytes to send, and the connection has room.
    pub(crate) fn can_write(&self, index: usize, net: &Network) -> bool {
        let backend = &self.backends[index];
        !backend.out.ready().is_empty() && net.see(backend.link).up.room() > 0
    }

    /// Handles new bytes, or the end of the stream.
    pub(crate) fn read(&mut self, index: usize, max: usize, net: &mut Network) {
        let backend = &mut self.backends[index];
        let down = &mut net.link(backend.link).down;
        let bytes = down.pull(max);
        if bytes.is_empty() && down.end.is_some() {
            self.end(index, End::Eof, net);
        } else if self.is_alive(index) {
            self.backends[index].input.extend(bytes);
        }
    }

    /// Returns whether the backend can read something.
    pub(crate) fn can_read(&self, index: usize, net: &Network) -> bool {
        let backend = &self.backends[index];
        let down = &net.see(backend.link).down;
        let alive = self.is_alive(index);
        (!down.is_empty() && (backend.input.len() < 65_536 || !alive))
            || (alive && down.is_empty() && down.end.is_some())
    }

    /// Ends a backend without a message.
    pub(crate) fn end(&mut self, index: usize, how: End, net: &mut Network) {
        self.note_loss(index);
        self.backends[index].phase = Phase::Gone;
        net.hang_up(self.backends[index].link, how);
    }

    /// Ends a backend with an error message.
    pub(crate) fn open_no_more(&mut self, index: usize, net: &mut Network) {
        self.lost = true;
        self.note_loss(index);
        self.backends[index].cut = self.backends[index].out.released();
        let mut words = self.backends[index].out.ready().to_vec();
        MessageWriter::new(&mut words).error(Severity::Fatal, "57P01", LAST_WORDS, None, None);
        self.backends[index].phase = Phase::Gone;
        net.link(self.backends[index].link)
            .up
            .push_last(&words, End::Eof);
    }

    /// Notes that a backend is lost. If it has done something whose result its client will not receive, the client's
    /// state becomes unknown.
    fn note_loss(&mut self, index: usize) {
        let backend = &self.backends[index];
        let all_is_delivered = backend.delivered >= backend.out.produced();
        let is_quiet = match &backend.phase {
            Phase::Session(session) => session.is_clean() && all_is_delivered,
            _ => true,
        };
        if !is_quiet {
            self.unsure.extend(backend.tap.owner);
            self.with_lost_work.extend(backend.served);
        }
    }

    /// Returns whether a backend has ended while it worked for this client, or with a transaction of this client.
    pub(crate) fn has_lost_work(&self, client: usize) -> bool {
        self.with_lost_work.contains(&client)
    }

    pub(crate) fn is_alive(&self, index: usize) -> bool {
        !matches!(self.backends[index].phase, Phase::Gone)
    }

    /// Returns whether the backend has logged in and lives.
    pub(crate) fn is_session(&self, index: usize) -> bool {
        matches!(self.backends[index].phase, Phase::Session(_))
    }

    /// Returns whether the backend has answered all requests, its transaction is over, and the pooler has read all
    /// answers.
    pub(crate) fn is_quiet(&self, index: usize, net: &Network) -> bool {
        let backend = &self.backends[index];
        let link = net.see(backend.link);
        let clean = match &backend.phase {
            Phase::Session(session) => session.is_clean(),
            _ => false,
        };
        clean && link.up.is_empty() && backend.out.is_empty() && backend.tap.is_harmless()
    }

    /// Returns whether the session has state that can't move to another server, so that the client may keep the server.
    pub(crate) fn is_bound(&self, index: usize) -> bool {
        match &self.backends[index].phase {
            Phase::Session(session) => {
                session.state().is_bound() || session.state().has_sequences()
            }
            _ => false,
        }
    }

    /// Records whether the session state binds the client to the backend.
    pub(crate) fn note_bound(&mut self, index: usize) {
        let is_bound = self.is_bound(index);
        let backend = &mut self.backends[index];
        if is_bound || backend.bound_to != backend.tap.owner {
            backend.bound_to = backend.tap.owner.filter(|_| is_bound);
        }
    }

    /// Records that the pooler uses the servers of this client.
    pub(crate) fn touch_of(&mut self, client: usize, now: Time) {
        let owns = |backend: &&mut Backend| backend.tap.owner == Some(client);
        for backend in self.backends.iter_mut().filter(owns) {
            backend.touched_at = now;
        }
    }

    /// Returns whether the backend is quiet, and its session has state of its client.
    pub(crate) fn is_kept(&self, index: usize, net: &Network) -> bool {
        let has_own = match &self.backends[index].phase {
            Phase::Session(session) => session.state().has_custom() || self.is_bound(index),
            _ => false,
        };
        has_own && self.is_quiet(index, net)
    }

    /// Returns session state that the next client, or any other session, would notice.
    pub(crate) fn remains(&self, index: usize) -> Option<String> {
        match &self.backends[index].phase {
            Phase::Session(session) if self.server_options.checks_all => session.state().remains(),
            _ => None,
        }
    }

    fn log_in(&mut self, index: usize, net: &mut Network) -> Result<(), Violation> {
        let backend = &mut self.backends[index];
        let Phase::Login(login) = &mut backend.phase else {
            return Ok(());
        };
        let secrets = &self.server_options.secrets;
        let secret = |user: &str| {
            let found = secrets.iter().find(|(name, _)| name == user);
            found.map(|(_, secret)| secret.clone())
        };
        let mut answer = Vec::new();
        let method = self.server_options.method;
        let step = login.step(
            &mut backend.input,
            &mut backend.options,
            method,
            &secret,
            &mut answer,
        );
        if !backend.options.user.is_empty() {
            backend.pool = Some((
                backend.options.database.clone(),
                backend.options.user.clone(),
            ));
        }
        match step {
            Step::Wait => backend.say_raw(&answer),
            Step::AsksForTls => {
                backend
                    .out
                    .say_byte(if self.server_options.tls { b'S' } else { b'N' })
            }
            Step::Refused => {
                backend.phase = Phase::Gone;
                net.link(backend.link).up.push_last(&answer, End::Eof);
                let what = "PostgreSQL refuses the pooler's password";
                return Err(Violation::new(Guarantee::ValidActions, what));
            }
            Step::Accepted if self.refuses => {
                let mut words = answer;
                MessageWriter::new(&mut words).error(
                    Severity::Fatal,
                    "53300",
                    TOO_MANY,
                    None,
                    None,
                );
                backend.phase = Phase::Gone;
                net.link(backend.link).up.push_last(&words, End::Eof);
            }
            Step::Accepted => {
                backend.say_raw(&answer);
                self.welcome(index);
            }
            Step::Cancel { pid, secret } => return self.cancel(index, pid, &secret, net),
            Step::Nonsense(what) => return Err(Violation::new(Guarantee::ValidActions, what)),
        }
        Ok(())
    }

    fn welcome(&mut self, index: usize) {
        let backend = &mut self.backends[index];
        let settings = backend.options.settings();
        let mut bytes = Vec::new();
        let mut writer = MessageWriter::new(&mut bytes);
        writer.authentication(Authentication::Ok);
        for name in REPORTED {
            let value = &settings[&name.to_ascii_lowercase()];
            writer.parameter_status(name.as_bytes(), value.as_bytes());
        }
        if self.server_options.standbys {
            writer
                .parameter_status(b"in_hot_standby", b"on")
                .parameter_status(b"default_transaction_read_only", b"off");
        }
        writer
            .parameter_status(b"server_version", b"18.0")
            .backend_key_data(pid(index), &backend.secret)
            .ready_for_query(b'I');
        backend.say_raw(&bytes);
        let (eager, checks_all) = (
            self.server_options.eager_reports,
            self.server_options.checks_all,
        );
        let mut session = Session::new(index, settings, eager, checks_all);
        session.planted_fault = self.server_options.planted_fault;
        session.usable_connections = self.server_options.usable_connections;
        session.database = backend.options.database.bytes().map(u32::from).sum();
        backend.phase = Phase::Session(Box::new(session));
    }

    fn serve(&mut self, index: usize, net: &mut Network) -> Result<(), Violation> {
        let backend = &mut self.backends[index];
        let Phase::Session(session) = &mut backend.phase else {
            return Ok(());
        };
        let Ok(Some(header)) = Header::parse(&backend.input) else {
            return Ok(());
        };
        let message: Vec<u8> = backend.input.drain(..header.message_len()).collect();
        let counted_as = counted_as(header.tag, &message[5..]).into_iter();
        for what in counted_as.chain(works_on_session(&message[5..])) {
            *self.event_counts.entry(what).or_default() += 1;
        }
        let whose = backend.tap.ahead.pop_front().and_then(|(_, client)| client);
        backend.served = whose;
        if let Some(direct) = whose.and_then(|client| self.directs.get(client)) {
            session.attach(direct);
            if let Some(at) = self.unsure.iter().position(|&own| Some(own) == whose) {
                self.unsure.swap_remove(at);
                self.with_lost_work.retain(|&own| Some(own) != whose);
                session.adopt_pooler_session();
            }
        }
        let may_write = !self.server_options.standbys
            || self.server_options.planted_fault == Some(PlantedFault::FalseStandbys);
        (self.executions).note(index, (header.tag, &message[5..]), may_write)?;
        match session.message(header.tag, &message[5..], whose, &mut backend.out)? {
            Next::Go => {
                let sent = session.take_sent();
                let (held, given) = session.named_statements();
                let most = self.server_options.statements_max;
                // With a server of its own, a client makes these statements. A server has all of a client's statements
                // for a while if the client's texts name them.
                let too_many = held > most || given > NAMES_MAX.max(most);
                if too_many && !backend.options.replicates {
                    let what =
                        format!("backend {index} holds {held} prepared statements, {given} given");
                    return Err(Violation::new(Guarantee::Memory, what));
                }
                self.notify(index, &sent);
            }
            Next::Die => self.open_no_more(index, net),
            Next::End => self.end(index, End::Eof, net),
        }
        Ok(())
    }

    /// Delivers a session's notifications to all sessions of its database that listen.
    fn notify(&mut self, from: usize, sent: &[(String, String)]) {
        let database = |backend: &Backend| backend.options.database.clone();
        let own = database(&self.backends[from]);
        for (index, other) in self.backends.iter_mut().enumerate() {
            let is_meant = index != from && database(other) == own && !sent.is_empty();
            let Phase::Session(session) = &mut other.phase else {
                continue;
            };
            for note in sent.iter().filter(|_| is_meant) {
                session.queue_notification(note);
            }
            if is_meant && session.is_clean() {
                session.send_notifications(&mut other.out);
            }
        }
        *self.event_counts.entry("notification").or_default() += sent.len() as u64;
    }

    /// Handles a cancel request: stops the query of the backend with this key, and closes the connection.
    fn cancel(
        &mut self,
        index: usize,
        target: u32,
        secret: &[u8],
        net: &mut Network,
    ) -> Result<(), Violation> {
        let meant = self.backends[index].cancel_for;
        self.end(index, End::Eof, net);
        let found = (0..self.backends.len())
            .find(|&other| pid(other) == target && self.backends[other].secret == secret);
        let Some(found) = found else {
            return Err(Violation::new(
                Guarantee::Cancel,
                "a key that no backend ever had",
            ));
        };
        let backend = &mut self.backends[found];
        let Phase::Session(session) = &mut backend.phase else {
            return Ok(());
        };
        let others = |whose: Option<usize>| whose.is_some() && whose != meant;
        // A query that took too long: the pooler closes its server, so that no other client gets it.
        let of_nobody = meant.is_none() && !net.see(backend.link).held;
        let others = |whose: Option<usize>| !of_nobody && others(whose);
        let busy_for = (!session.is_clean()).then_some(backend.tap.owner);
        if busy_for.is_some_and(others) || backend.tap.ahead.iter().any(|&(_, owner)| others(owner))
        {
            let what = format!(
                "a cancel request for client {meant:?} reaches a server that works for {:?}",
                backend.tap.owner
            );
            return Err(Violation::new(Guarantee::Cancel, what));
        }
        if session.cancel(&mut backend.out) {
            *self.event_counts.entry("query cancelled").or_default() += 1;
        }
        self.said.append(&mut backend.out.take_sent_messages());
        Ok(())
    }
}

impl Backend {
    /// Returns whether the backend was opened for one client.
    pub(crate) fn is_native(&self) -> bool {
        self.options.replicates
    }

    /// Returns whether the pooler listens on this backend for all clients of a pool.
    pub(crate) fn is_listener(&self) -> bool {
        let name = ("application_name".to_owned(), "pgweir listener".to_owned());
        self.options.settings.contains(&name)
    }

    /// Messages of a login, which are not for a client.
    fn say_raw(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Ok(Some(header)) = Header::parse(&bytes[at..]) {
            let message = &bytes[at + 5..at + header.message_len()];
            self.out.say(0, None, |writer| {
                writer.message(header.tag, |body| body.extend_from_slice(message));
            });
            at += header.message_len();
        }
        self.out.flush();
    }
}

fn pid(index: usize) -> u32 {
    index as u32 + 1000
}
