//! Model clients: they log in, make requests, check each answer, and leave.

mod direct_session;
mod login;
mod operator;
mod past_faults;
mod pipeline;
mod script;
mod sessions;
mod tags;
mod undelivered;
mod wild;

use std::collections::{BTreeMap, VecDeque};

use pgweir_wire::{Header, Report, tag::backend};

use self::{
    direct_session::{Ask, DirectSession, Reply},
    login::Login,
    past_faults::CANCELED,
    tags::{is_marked, is_of_waiting, show},
};
pub(crate) use self::{
    operator::{ConsoleState, Order},
    past_faults::PastFaults,
    script::Intent,
};
use crate::{
    checks::{Guarantee, RequestId, SentMessage, Violation},
    network::{End, LinkId},
    scenario::Account,
};

/// Requests that a ReadyForQuery will answer.
#[derive(Debug, Default)]
struct Unit {
    /// The numbers of the requests.
    numbers: Vec<u32>,
    /// The messages that await an answer.
    asks: VecDeque<Ask>,
    /// A portal that was bound, but not executed yet.
    last_portal: Option<String>,
    begun: bool,
    failed: bool,
    is_slow: bool,
    /// The value of `work_mem` after the requests, if they succeed.
    work_mem: Option<String>,
}

/// The reason why a client waits before it sends more.
#[derive(Debug)]
enum Pause {
    /// COPY FROM STDIN: the client waits for the response, and then sends the data.
    CopyIn {
        number: u32,
        simple: bool,
        pieces: u32,
        completes: bool,
        started: bool,
    },
    /// The client has sent Flush, and waits for all replies.
    Flush,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Phase {
    Login,
    Ready,
    /// The client has received a FATAL error.
    Refused,
    /// The client has closed the connection, or only reads from now on.
    Left,
    /// The connection is closed on both sides.
    Over,
}

/// A model client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) link: LinkId,
    /// The pid and the secret of the client's cancel key.
    pub(crate) key: Option<(u32, Vec<u8>)>,
    /// The bytes that were not sent yet.
    pub(crate) output: VecDeque<u8>,
    /// Whether the client has sent a request that ends its server.
    has_ended_server: bool,
    /// Whether a drain has disconnected the client.
    pub(crate) was_drained: bool,
    pub(crate) errors_made: u64,
    /// Whether a cancel request has named the client's key.
    pub(crate) was_named: bool,
    /// The number of requests that were cancelled while they waited.
    pub(crate) withdrawn: u64,
    pub(crate) answers: u64,
    /// The way in which the client ends its side after `output`.
    pub(crate) leaves: Option<End>,
    phase: Phase,
    login: Login,
    is_cancel: bool,
    input: Vec<u8>,
    units: VecDeque<Unit>,
    /// The requests whose Sync was not sent yet.
    open: Option<Unit>,
    pause: Option<Pause>,
    own: DirectSession,
    /// Whether the client uses prepared statements that outlive a pipeline.
    pub(crate) prepares: bool,
    /// Whether the client uses statements before it knows the results of the previous pipeline.
    pub(crate) runs_ahead: bool,
    next_number: u32,
    requests_left: u32,
    parameters: BTreeMap<String, String>,
    work_mem: String,
    /// The number of answers that may or may not come: to a Sync that the server may have ignored.
    spare: u32,
    /// Whether the pooler has sent an error of its own, which ReadyForQuery must follow.
    made_error: bool,
    /// Whether the client cannot know whether another answer will come.
    is_unsure: bool,
    misbehaved: bool,
    began: bool,
    /// Whether settings that are not reported stay with the session.
    keeps_session: bool,
    /// The number of messages that the client sends in any order and without reading the answers.
    wild: Option<u8>,
    /// Whether the pooler can know from texts and catalog that the client's statements leave no session state.
    pub(crate) is_analysable: bool,
    /// Whether the client changes all kinds of session state.
    pub(crate) works_on_session: bool,
    /// Whether the client has sent LISTEN.
    listens: bool,
    alone: bool,
    /// Whether the client has read values of sequences.
    reads_values: bool,
    /// Whether the client has named the custom parameter that a function of its own sets; `None` without such a function.
    custom_is_named: Option<bool>,
    pub(crate) notifications: u64,
    /// The state of a client of the console.
    console: Option<Box<ConsoleState>>,
}

impl Client {
    pub(crate) fn new(
        index: usize,
        link: LinkId,
        requests: u32,
        keeps_session: bool,
        account: &Account,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let mut client = Self::blank(index, link);
        client.requests_left = requests;
        client.keeps_session = keeps_session;
        client.login = Login::new(account, index, rng);
        client.login.begin(&mut client.output);
        client
    }

    /// Makes the client log in for replication: it gets an exclusive server, and that server's session.
    pub(crate) fn becomes_native(&mut self) {
        self.keeps_session = true;
        self.output.clear();
        self.login.replicates = true;
        self.login.begin(&mut self.output);
    }

    /// Returns the client's user, and its `application_name`.
    pub(crate) fn identity(&self) -> (&str, Option<&str>) {
        self.login.identity()
    }

    /// Returns whether the client has an exclusive server.
    pub(crate) fn is_native(&self) -> bool {
        self.login.replicates
    }

    /// Creates a client that sends a cancel request, and waits for the end of the connection.
    pub(crate) fn canceller(index: usize, link: LinkId, pid: u32, secret: &[u8]) -> Self {
        let mut client = Self::blank(index, link);
        let mut packet = Vec::new();
        pgweir_wire::cancel_request(&mut packet, pid, secret);
        client.output.extend(packet);
        client.phase = Phase::Left;
        client.is_cancel = true;
        client
    }

    fn blank(index: usize, link: LinkId) -> Self {
        Self {
            index,
            link,
            key: None,
            output: VecDeque::new(),
            has_ended_server: false,
            was_drained: false,
            errors_made: 0,
            was_named: false,
            withdrawn: 0,
            answers: 0,
            leaves: None,
            phase: Phase::Login,
            login: Login::default(),
            is_cancel: false,
            input: Vec::new(),
            units: VecDeque::new(),
            open: None,
            pause: None,
            own: DirectSession::new(),
            prepares: false,
            runs_ahead: false,
            next_number: 0,
            requests_left: 0,
            parameters: BTreeMap::new(),
            work_mem: "4MB".to_owned(),
            spare: 0,
            made_error: false,
            is_unsure: false,
            misbehaved: false,
            began: false,
            keeps_session: false,
            wild: None,
            is_analysable: false,
            works_on_session: false,
            listens: false,
            alone: false,
            reads_values: false,
            custom_is_named: None,
            notifications: 0,
            console: None,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Returns whether the client waits for a query that takes long.
    pub(crate) fn is_slow(&self) -> bool {
        self.phase == Phase::Ready && self.units.front().is_some_and(|unit| unit.is_slow)
    }

    /// Returns whether the client reads rarely.
    pub(crate) fn is_lazy(&self) -> bool {
        self.index.is_multiple_of(4)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Describes the client in words, for a report.
    pub(crate) fn state(&self) -> String {
        let numbers: Vec<_> = self.units.iter().map(|unit| &unit.numbers).collect();
        format!(
            "client {}: {:?}, status {}, waits for {numbers:?}, open {:?}, {:?}, {} bytes to send",
            self.index,
            self.phase,
            char::from(self.own.status),
            self.open.as_ref().map(|unit| &unit.numbers),
            self.pause,
            self.output.len(),
        )
    }

    /// Ends the client without a message.
    pub(crate) fn drop_connection(&mut self) {
        self.phase = Phase::Over;
        self.output.clear();
    }

    /// Returns the messages that await an answer, for the trace.
    pub(crate) fn asks(&self) -> String {
        let units = self.units.iter().chain(&self.open);
        let asks = units.flat_map(|unit| unit.asks.iter().map(Ask::brief));
        asks.collect::<Vec<_>>().join(" ")
    }

    /// Notes that the client has closed its sending side.
    pub(crate) fn close_half(&mut self) {
        self.phase = Phase::Left;
    }

    /// Handles bytes from the pooler. `said` are the messages of servers for this client.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        said: &mut VecDeque<SentMessage>,
        faults: PastFaults,
    ) -> Result<(), Violation> {
        if matches!(self.phase, Phase::Left | Phase::Over) {
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        if self.phase == Phase::Login && self.login.takes_answer_to_tls(&mut self.input) {
            self.login.begin(&mut self.output);
        }
        loop {
            let header = Header::parse(&self.input)
                .map_err(|error| self.wrong(format!("is told nonsense: {error}")))?;
            let Some(header) = header.filter(|header| self.input.len() >= header.message_len())
            else {
                return Ok(());
            };
            let message: Vec<u8> = self.input.drain(..header.message_len()).collect();
            match self.phase {
                Phase::Login => self.login_message(header.tag, &message[5..], faults)?,
                _ => self.message(&message, said, faults)?,
            }
        }
    }

    fn login_message(&mut self, tag: u8, body: &[u8], faults: PastFaults) -> Result<(), Violation> {
        match tag {
            backend::ERROR_RESPONSE => self.refused(body, faults),
            backend::PARAMETER_STATUS => {
                self.parameter(body);
                Ok(())
            }
            backend::BACKEND_KEY_DATA => {
                let pid = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
                self.key = Some((pid, body[4..].to_vec()));
                if !self.login.is_secret_length(body.len() - 4) {
                    return Err(self.wrong("gets a key of the wrong length".to_owned()));
                }
                Ok(())
            }
            backend::READY_FOR_QUERY => {
                self.phase = Phase::Ready;
                Ok(())
            }
            backend::NEGOTIATE_PROTOCOL_VERSION => self
                .login
                .check_negotiation(body)
                .map_err(|what| self.wrong(what)),
            backend::AUTHENTICATION => self
                .login
                .answer(body, &mut self.output)
                .map_err(|what| self.wrong(what)),
            other => Err(self.wrong(format!("gets '{}' at login", other.escape_ascii()))),
        }
    }

    fn message(
        &mut self,
        message: &[u8],
        said: &mut VecDeque<SentMessage>,
        faults: PastFaults,
    ) -> Result<(), Violation> {
        let (tag, body) = (message[0], &message[5..]);
        if self.phase == Phase::Refused {
            return Err(self.wrong("hears more after FATAL".to_owned()));
        }
        let is_fatal = tag == backend::ERROR_RESPONSE
            && Report::parse(body).is_ok_and(|report| report.severity == b"FATAL");
        if self.is_wild() {
            said.clear();
            return self.wild_message(tag, body);
        }
        if self.is_operator() && !is_fatal {
            return self.console_message(tag, body);
        }
        if tag == backend::NOTIFICATION_RESPONSE {
            return self.is_notified(body).map_err(|what| self.wrong(what));
        }
        if self.made_error && tag == backend::READY_FOR_QUERY {
            return self.answered(tag, body);
        }
        // The pooler has answered a simple query itself. The first ReadyForQuery of a server may belong to the next request.
        let is_query = matches!(self.asked(), Some(Ask::Query));
        if is_query && tag == backend::READY_FOR_QUERY && std::mem::take(&mut self.alone) {
            return self.answered(tag, body);
        }
        let is_for_pooler = |said: &&SentMessage| {
            let (of_server, ask) = (said.message[0], self.asked());
            said.message != message && self.own.is_for_pooler(ask, of_server, tag)
        };
        let from_pooler = said.iter().take_while(is_for_pooler).count();
        // An error of the pooler's own does not show anything about the servers' messages.
        let is_servers = |said: &SentMessage| {
            said.message[0] == tag && code_of(&said.message[5..]) == code_of(body)
        };
        if tag != backend::ERROR_RESPONSE || said.get(from_pooler).is_some_and(is_servers) {
            said.drain(..from_pooler);
        }
        undelivered::forget(said, message);
        if let Some(said) = said.pop_front_if(|said| said.message == message) {
            let checked = self.own.check_replier(&said);
            checked.map_err(|what| self.wrong(what))?;
            return self.server_message(tag, body);
        }
        match tag {
            // The client's session moves between servers, or the client has sent no request yet.
            backend::PARAMETER_STATUS
                if self.keeps_session && !self.runs_ahead || !self.has_begun() =>
            {
                self.parameter(body);
                Ok(())
            }
            // The pooler's notice that the client waits, before any answer.
            backend::NOTICE_RESPONSE if !self.has_begun() && is_of_waiting(body) => Ok(()),
            // A single Sync that was cancelled while it waited, or that no server receives.
            backend::READY_FOR_QUERY if self.may_get_no_server() && !self.has_begun() => {
                self.answered(tag, body)
            }
            backend::COMMAND_COMPLETE
                if matches!(body, b"LISTEN\0" | b"UNLISTEN\0")
                    && !said.iter().any(|said| said.message == message) =>
            {
                self.alone = true;
                self.answered(tag, body)
            }
            backend::READY_FOR_QUERY if std::mem::take(&mut self.alone) => self.answered(tag, body),
            // A server or the pooler sends these messages, which have to fit the client's messages in both cases.
            backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE => self.answered(tag, body),
            backend::ERROR_RESPONSE if self.expects_error(body) => {
                // The pooler's error replaces the server's, or has another text.
                let said_by_server =
                    |said: &SentMessage| said.message[0] == backend::ERROR_RESPONSE;
                if said.pop_front_if(|said| said_by_server(said)).is_none() {
                    self.made_error = true;
                    self.errors_made += 1;
                }
                self.answered(tag, body)
            }
            backend::ERROR_RESPONSE => self.refused(body, faults),
            _ => {
                let expected = said.front().map(|said| show(&said.message));
                Err(self.wrong(format!("gets {} instead of {expected:?}", show(message))))
            }
        }
    }

    /// Handles a server's message for this client, in the order in which servers sent them.
    fn server_message(&mut self, tag: u8, body: &[u8]) -> Result<(), Violation> {
        if tag == backend::PARAMETER_STATUS {
            self.parameter(body);
            if let Some(unit) = self.units.front_mut().or(self.open.as_mut()) {
                unit.begun = true;
            }
            return Ok(());
        }
        self.answered(tag, body)
    }

    /// Handles a reply, or a part of a reply, to the oldest message without an answer.
    fn answered(&mut self, tag: u8, body: &[u8]) -> Result<(), Violation> {
        let Some(unit) = self.units.front_mut().or(self.open.as_mut()) else {
            return match tag {
                backend::READY_FOR_QUERY => self.ready(body),
                _ => Err(self.wrong(format!("gets '{}' unasked", tag.escape_ascii()))),
            };
        };
        unit.begun = true;
        let Some(ask) = unit.asks.front_mut() else {
            return Err(self.wrong(format!("gets '{}' unasked", tag.escape_ascii())));
        };
        if ask.is_marked() && is_marked(tag, body) {
            let (id, numbers) = (RequestId::find_within(body), &unit.numbers);
            if !id.is_some_and(|id| id.client == self.index && numbers.contains(&id.number)) {
                let what = format!("gets an answer to {id:?} for {numbers:?}");
                return Err(self.wrong(what));
            }
        }
        match self.own.reply(ask, self.index, tag, body) {
            Ok(Reply::More) => {}
            Ok(Reply::Last) => {
                unit.asks.pop_front();
            }
            Ok(Reply::Failed) => self.request_failed(),
            Err(what) => return Err(self.wrong(what)),
        }
        match tag {
            backend::READY_FOR_QUERY => self.ready(body),
            backend::COPY_IN_RESPONSE => {
                if let Some(Pause::CopyIn { started, .. }) = &mut self.pause {
                    *started = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether PostgreSQL, too, would answer the oldest message with this error.
    fn expects_error(&self, body: &[u8]) -> bool {
        self.asked()
            .is_some_and(|ask| self.own.expects_error(ask, body))
    }

    /// Returns the oldest message without an answer.
    fn asked(&self) -> Option<&Ask> {
        let unit = self.units.front().or(self.open.as_ref());
        unit?.asks.front()
    }

    fn ready(&mut self, body: &[u8]) -> Result<(), Violation> {
        self.made_error = false;
        self.own.ready(body);
        self.answers += 1;
        match self.units.pop_front() {
            Some(unit) => {
                if unit.failed {
                    self.is_unsure |= self.spare > 0;
                } else {
                    self.spare = 0;
                }
                if let Some(work_mem) = unit.work_mem.filter(|_| !unit.failed) {
                    self.work_mem = work_mem;
                }
                if let Some(Pause::CopyIn { number, .. }) = self.pause
                    && unit.numbers.contains(&number)
                {
                    self.pause = None;
                }
                Ok(())
            }
            None if self.spare > 0 => {
                self.spare -= 1;
                Ok(())
            }
            None => Err(self.wrong("gets ReadyForQuery without a request".to_owned())),
        }
    }

    fn request_failed(&mut self) {
        self.own.aborted();
        if let Some(unit) = self.units.front_mut().or(self.open.as_mut()) {
            unit.failed = true;
            // Only ReadyForQuery is still to come.
            unit.asks.retain(Ask::is_last);
        }
    }

    /// Handles an error of the pooler's own, or of a server that shuts down.
    fn refused(&mut self, body: &[u8], faults: PastFaults) -> Result<(), Violation> {
        let report =
            Report::parse(body).map_err(|_| self.wrong("gets a malformed error".to_owned()))?;
        let text = String::from_utf8_lossy(report.message).into_owned();
        if !self.is_justified(&text, faults) {
            let unit = self.units.front().or(self.open.as_ref());
            let ask = unit.and_then(|unit| unit.asks.front());
            let what = format!(
                "client {} is told {text:?} for no reason, in answer to {ask:?}",
                self.index
            );
            return Err(Violation::new(Guarantee::Reasons, what));
        }
        self.was_drained |=
            faults.drain && !self.has_ended_server && text == crate::postgres::LAST_WORDS;
        if report.severity == b"ERROR" {
            self.withdrawn += u64::from(text == CANCELED);
            self.request_failed();
            self.made_error = true;
            self.errors_made += 1;
            if self.has_begun() && !faults.servers_lost {
                return Err(self.wrong("gets an error in the middle of an answer".to_owned()));
            }
        } else {
            self.phase = Phase::Refused;
            self.output.clear();
        }
        Ok(())
    }

    fn parameter(&mut self, body: &[u8]) {
        let mut texts = body.split(|&byte| byte == 0);
        let mut text = || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
        let name = text();
        self.parameters.insert(name, text());
    }

    fn has_begun(&self) -> bool {
        let unit = self.units.front().or(self.open.as_ref());
        unit.is_some_and(|unit| unit.begun)
    }

    fn wrong(&self, what: String) -> Violation {
        Violation::new(Guarantee::Replies, format!("client {} {what}", self.index))
    }
}

/// Returns the SQLSTATE of an error.
fn code_of(error: &[u8]) -> Option<&[u8]> {
    Report::parse(error).ok().map(|report| report.code)
}
