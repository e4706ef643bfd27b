//! The direct session of a client: the one that it would have on a direct connection to PostgreSQL. Each reply of the
//! extended protocol is compared with this session, message by message.

use std::{collections::BTreeMap, rc::Rc};

use pgweir_wire::{Body, Report, tag::backend};

use crate::{
    checks::{RequestId, SentMessage},
    postgres::{Command, Text, signature},
};

/// A text with its parameter types.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) types: Vec<u32>,
    command: Option<Command>,
    /// Whether other clients use the same text. Then the replies contain the id of the statement.
    is_shared: bool,
}

/// A message that awaits an answer.
#[derive(Debug)]
pub(super) enum Ask {
    Parse {
        name: String,
        statement: Rc<Statement>,
    },
    Bind {
        portal: String,
        name: String,
        /// The number of parameters.
        given: usize,
        number: u32,
    },
    DescribeStatement {
        name: String,
        /// Whether ParameterDescription has arrived.
        begun: bool,
    },
    DescribePortal {
        portal: String,
    },
    Execute {
        portal: String,
        /// The maximum number of rows; 0 for all.
        limit: u32,
    },
    CloseStatement(String),
    ClosePortal(String),
    Sync,
    /// A simple query.
    Query,
    Call,
}

/// The meaning of a reply.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Reply {
    /// More replies to the message will come.
    More,
    /// The message is answered.
    Last,
    /// The message has failed, and so do all messages up to the next Sync.
    Failed,
}

/// The session of a client that has a PostgreSQL of its own.
#[derive(Debug)]
pub(super) struct DirectSession {
    pub(super) status: u8,
    statements: BTreeMap<String, Rc<Statement>>,
    portals: BTreeMap<String, Portal>,
    /// Whether the client shares servers with others, and so has no PostgreSQL of its own in reality.
    pub(super) shares_servers: bool,
    /// The backend whose messages the client has received since the last ReadyForQuery.
    replier: Option<usize>,
}

#[derive(Debug)]
struct Portal {
    statement: Rc<Statement>,
    number: u32,
}

/// Returns whether the message answers a Describe.
pub(super) fn is_description(tag: u8) -> bool {
    matches!(
        tag,
        backend::PARAMETER_DESCRIPTION | backend::ROW_DESCRIPTION | backend::NO_DATA
    )
}

/// The result of a message, as far as it is known.
enum Outcome {
    Good,
    Error(&'static str),
    Unknown,
}

impl Statement {
    pub(super) fn new(text: &str, types: &[u32]) -> Self {
        let parsed = Text::parse(text.as_bytes());
        Self {
            text: text.to_owned(),
            types: types.to_vec(),
            command: parsed.commands.first().cloned(),
            is_shared: parsed.claim.is_none(),
        }
    }

    fn returns_rows(&self) -> bool {
        self.command.as_ref().is_some_and(Command::returns_rows)
    }

    fn ends(&self) -> bool {
        self.command.as_ref().is_some_and(Command::ends)
    }
}

impl super::Client {
    /// Sets whether the client shares servers, which may lack its prepared statements.
    pub(crate) fn shares_servers(&mut self, shares: bool) {
        self.own.shares_servers = shares;
    }
}

impl DirectSession {
    pub(super) fn new() -> Self {
        Self {
            status: b'I',
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            shares_servers: false,
            replier: None,
        }
    }

    /// Returns the statement of this name, after all messages were answered.
    pub(super) fn statement(&self, name: &str) -> Option<&Rc<Statement>> {
        self.statements.get(name)
    }

    /// Handles a reply to `ask`, the oldest message without an answer.
    pub(super) fn reply(
        &mut self,
        ask: &mut Ask,
        client: usize,
        tag: u8,
        body: &[u8],
    ) -> Result<Reply, String> {
        let known = match tag {
            backend::ERROR_RESPONSE => {
                self.check_error(ask, client, body)?;
                self.failed(ask);
                return Ok(Reply::Failed);
            }
            backend::NOTICE_RESPONSE => matches!(ask, Ask::Query | Ask::Execute { .. }),
            _ => self.may_answer(ask, tag),
        };
        if !known {
            let tag = tag.escape_ascii();
            return Err(format!(
                "gets '{tag}' for {ask:?}, status {}",
                char::from(self.status)
            ));
        }
        self.check_outcome(ask, tag)?;
        self.check_content(ask, client, tag, body)?;
        let is_last = match (&mut *ask, tag) {
            (Ask::Query | Ask::Call | Ask::Sync, backend::READY_FOR_QUERY) => true,
            (Ask::Query | Ask::Call, _) => false,
            (Ask::DescribeStatement { begun, .. }, backend::PARAMETER_DESCRIPTION) => {
                *begun = true;
                false
            }
            (_, backend::NOTICE_RESPONSE | backend::DATA_ROW) => false,
            (
                _,
                backend::COPY_IN_RESPONSE
                | backend::COPY_OUT_RESPONSE
                | backend::COPY_DATA
                | backend::COPY_DONE,
            ) => false,
            _ => true,
        };
        if is_last {
            self.answered(ask, tag, body)?;
        }
        Ok(if is_last { Reply::Last } else { Reply::More })
    }

    /// Returns whether PostgreSQL would send this error in this session now.
    pub(super) fn expects_error(&self, ask: &Ask, body: &[u8]) -> bool {
        let code = Report::parse(body).map(|report| report.code.to_vec());
        match self.outcome(ask) {
            Outcome::Error(expected) => code.is_ok_and(|code| code == expected.as_bytes()),
            _ => false,
        }
    }

    /// Returns whether the pooler has asked for this description, to find out the present columns of a statement. The
    /// client has not asked for it: the client waits for an answer to `ask`, and received a message of the kind
    /// `next_tag`.
    pub(super) fn is_for_pooler(&self, ask: Option<&Ask>, said: u8, next_tag: u8) -> bool {
        let is_of_server = matches!(next_tag, backend::BIND_COMPLETE | backend::ERROR_RESPONSE);
        is_of_server && is_description(said) && !ask.is_some_and(|ask| self.may_answer(ask, said))
    }

    /// Returns whether a message with this tag may answer `ask`, with any result.
    fn may_answer(&self, ask: &Ask, tag: u8) -> bool {
        match ask {
            Ask::Parse { .. } => tag == backend::PARSE_COMPLETE,
            Ask::Bind { .. } => tag == backend::BIND_COMPLETE,
            Ask::DescribeStatement { begun: false, .. } => tag == backend::PARAMETER_DESCRIPTION,
            Ask::DescribeStatement { .. } | Ask::DescribePortal { .. } => {
                matches!(tag, backend::ROW_DESCRIPTION | backend::NO_DATA)
            }
            Ask::Execute { limit, .. } => match tag {
                backend::PORTAL_SUSPENDED => *limit > 0,
                backend::DATA_ROW
                | backend::COMMAND_COMPLETE
                | backend::EMPTY_QUERY_RESPONSE
                | backend::COPY_IN_RESPONSE
                | backend::COPY_OUT_RESPONSE
                | backend::COPY_DATA
                | backend::COPY_DONE => true,
                _ => false,
            },
            Ask::CloseStatement(_) | Ask::ClosePortal(_) => tag == backend::CLOSE_COMPLETE,
            Ask::Sync => tag == backend::READY_FOR_QUERY,
            Ask::Query => !matches!(
                tag,
                backend::PARSE_COMPLETE
                    | backend::BIND_COMPLETE
                    | backend::CLOSE_COMPLETE
                    | backend::PARAMETER_DESCRIPTION
                    | backend::NO_DATA
                    | backend::PORTAL_SUSPENDED
            ),
            Ask::Call => matches!(
                tag,
                backend::FUNCTION_CALL_RESPONSE | backend::READY_FOR_QUERY
            ),
        }
    }

    /// Returns the result that PostgreSQL's rules demand for a message.
    fn outcome(&self, ask: &Ask) -> Outcome {
        let aborted = self.status == b'E';
        let error = match ask {
            Ask::Parse { name, statement } => match statement.command {
                Some(Command::Refused) => Some("42601"),
                Some(_) if aborted && !statement.ends() => Some("25P02"),
                _ if !name.is_empty() && self.statements.contains_key(name) => Some("42P05"),
                _ => None,
            },
            Ask::Bind {
                portal,
                name,
                given,
                ..
            } => match self.statements.get(name) {
                None => Some("26000"),
                Some(statement) if statement.types.len() != *given => Some("08P01"),
                Some(statement) if aborted && (!statement.ends() || *given > 0) => Some("25P02"),
                Some(_) if !portal.is_empty() && self.portals.contains_key(portal) => Some("42P03"),
                Some(_) => None,
            },
            Ask::DescribeStatement { name, .. } => match self.statements.get(name) {
                None => Some("26000"),
                Some(statement) => (aborted && statement.returns_rows()).then_some("25P02"),
            },
            Ask::DescribePortal { portal } => match self.portals.get(portal) {
                None => Some("34000"),
                Some(portal) => (aborted && portal.statement.returns_rows()).then_some("25P02"),
            },
            Ask::Execute { portal, .. } => {
                let Some(portal) = self.portals.get(portal) else {
                    return Outcome::Error("34000");
                };
                match &portal.statement.command {
                    None => None,
                    Some(command) if aborted && !command.ends() => Some("25P02"),
                    Some(Command::Fail) => Some("22012"),
                    Some(Command::Slow(_) | Command::CopyIn { .. } | Command::Sql(_)) => {
                        return Outcome::Unknown;
                    }
                    Some(_) => None,
                }
            }
            Ask::CloseStatement(_) | Ask::ClosePortal(_) | Ask::Sync => None,
            Ask::Query | Ask::Call => return Outcome::Unknown,
        };
        error.map_or(Outcome::Good, Outcome::Error)
    }

    /// Compares a good answer or an error with the result that is demanded.
    fn check_outcome(&self, ask: &Ask, tag: u8) -> Result<(), String> {
        match self.outcome(ask) {
            Outcome::Error(code) => Err(format!(
                "gets '{}' instead of the error {code} for {ask:?}",
                tag.escape_ascii()
            )),
            _ => Ok(()),
        }
    }

    fn check_error(&self, ask: &Ask, client: usize, body: &[u8]) -> Result<(), String> {
        let report = Report::parse(body).map_err(|_| "gets a malformed error".to_owned())?;
        let code = String::from_utf8_lossy(report.code);
        // In a failed transaction, the pooler can't prepare a statement that the server lacks.
        let is_too_late = self.status == b'E'
            && self.shares_servers
            && code == "25P02"
            && matches!(ask, Ask::Bind { .. } | Ask::DescribeStatement { .. });
        let good = match self.outcome(ask) {
            Outcome::Good => is_too_late,
            Outcome::Error("42P05") if code == "25P02" && self.shares_servers => true,
            Outcome::Error(expected) => expected == code || is_too_late,
            Outcome::Unknown => true,
        };
        if !good {
            let text = String::from_utf8_lossy(report.message);
            return Err(format!("gets the error {code} ({text}) for {ask:?}"));
        }
        self.check_words(ask, client, report.message)
    }

    /// Returns whether the message names the request and, if that does not suffice, the statement.
    fn check_words(&self, ask: &Ask, client: usize, body: &[u8]) -> Result<(), String> {
        let Ask::Execute { portal, .. } = ask else {
            return Ok(());
        };
        let Some(Portal { statement, number }) = self.portals.get(portal) else {
            return Ok(());
        };
        let number = *number;
        let id = RequestId { client, number };
        let found = RequestId::find_within(body);
        if found != Some(id) {
            return Err(format!("gets an answer to {found:?} for {id}"));
        }
        if statement.is_shared {
            self.check_signature(statement, body)?;
        }
        Ok(())
    }

    fn check_signature(&self, statement: &Statement, body: &[u8]) -> Result<(), String> {
        let signature = signature(&statement.text, &statement.types);
        let found = body
            .windows(signature.len())
            .any(|window| window == signature.as_bytes());
        if found {
            return Ok(());
        }
        let found = body.escape_ascii();
        Err(format!("gets \"{found}\" for the statement {signature}"))
    }

    fn check_content(&self, ask: &Ask, client: usize, tag: u8, body: &[u8]) -> Result<(), String> {
        match tag {
            backend::COMMAND_COMPLETE => self.check_words(ask, client, body),
            backend::PARAMETER_DESCRIPTION => {
                let types = ask_name(ask)
                    .and_then(|name| self.statements.get(name))
                    .map_or(&[][..], |statement| &statement.types);
                let found = described_types(body).ok_or("gets a malformed 't'")?;
                if found != types {
                    return Err(format!(
                        "is told the types {found:?} for {types:?}, {ask:?}"
                    ));
                }
                Ok(())
            }
            backend::ROW_DESCRIPTION | backend::NO_DATA => {
                let statement = match ask {
                    Ask::DescribeStatement { name, .. } => self.statements.get(name),
                    Ask::DescribePortal { portal } => {
                        self.portals.get(portal).map(|portal| &portal.statement)
                    }
                    _ => return Ok(()),
                };
                let Some(statement) = statement else {
                    return Ok(());
                };
                if statement.returns_rows() != (tag == backend::ROW_DESCRIPTION) {
                    return Err(format!("gets '{}' for {statement:?}", tag.escape_ascii()));
                }
                if statement.is_shared && statement.returns_rows() {
                    self.check_signature(statement, body)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn answered(&mut self, ask: &Ask, tag: u8, body: &[u8]) -> Result<(), String> {
        match ask {
            Ask::Parse { name, statement } => {
                self.statements.insert(name.clone(), Rc::clone(statement));
            }
            Ask::Bind {
                portal,
                name,
                number,
                ..
            } => {
                if let Some(statement) = self.statements.get(name) {
                    let (statement, number) = (Rc::clone(statement), *number);
                    self.portals
                        .insert(portal.clone(), Portal { statement, number });
                }
            }
            Ask::Execute { portal, .. } if tag == backend::COMMAND_COMPLETE => {
                let portal = self.portals.get(portal);
                match portal.and_then(|portal| portal.statement.command.clone()) {
                    Some(Command::Begin) => self.status = b'T',
                    Some(command) if command.ends() => self.end_transaction(b'I'),
                    _ => {}
                }
            }
            Ask::CloseStatement(name) => {
                self.statements.remove(name);
            }
            Ask::ClosePortal(portal) => {
                self.portals.remove(portal);
            }
            Ask::Sync if body != [self.status] => {
                return Err(format!(
                    "gets the status '{}', and should be in '{}'",
                    body.escape_ascii(),
                    char::from(self.status)
                ));
            }
            Ask::Sync if self.status == b'I' => self.end_transaction(b'I'),
            Ask::Query => {
                self.statements.remove("");
                self.portals.remove("");
                self.ready(body);
            }
            Ask::Call => self.ready(body),
            _ => {}
        }
        Ok(())
    }

    /// Handles ReadyForQuery. Its status is taken as correct.
    pub(super) fn ready(&mut self, body: &[u8]) {
        self.replier = None;
        self.status = body[0];
        if self.status == b'I' {
            self.portals.clear();
        }
    }

    /// Checks that all messages of a reply come from one backend: a request that another backend has begun to answer is
    /// not repeated.
    pub(super) fn check_replier(&mut self, said: &SentMessage) -> Result<(), String> {
        let (tag, backend) = (said.message[0], said.backend);
        // Parameters and notices belong to the session, not to a request.
        if matches!(tag, backend::PARAMETER_STATUS | backend::NOTICE_RESPONSE) {
            return Ok(());
        }
        match self.replier.replace(backend) {
            Some(first) if first != backend => Err(format!(
                "gets a reply of backend {backend} after a part of backend {first}'s"
            )),
            _ => Ok(()),
        }
    }

    fn end_transaction(&mut self, status: u8) {
        self.status = status;
        self.portals.clear();
    }

    fn failed(&mut self, ask: &Ask) {
        if let Ask::Parse { name, .. } = ask
            && name.is_empty()
        {
            self.statements.remove("");
        }
        self.aborted();
    }

    /// Handles an error of any reason.
    pub(super) fn aborted(&mut self) {
        if self.status == b'T' {
            self.status = b'E';
        }
    }
}

impl Ask {
    /// Describes a message in short, for the trace.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Parse { name, statement } => {
                format!("P({name}={})", signature(&statement.text, &statement.types))
            }
            Self::Bind { portal, name, .. } => format!("B({portal},{name})"),
            Self::DescribeStatement { name, .. } => format!("D(S {name})"),
            Self::DescribePortal { portal } => format!("D(P {portal})"),
            Self::Execute { portal, limit } => format!("E({portal},{limit})"),
            Self::CloseStatement(name) => format!("C(S {name})"),
            Self::ClosePortal(portal) => format!("C(P {portal})"),
            Self::Sync => "S".to_owned(),
            Self::Query => "Q".to_owned(),
            Self::Call => "F".to_owned(),
        }
    }

    /// Returns whether the answers to the message contain the id of its request.
    pub(super) fn is_marked(&self) -> bool {
        matches!(self, Self::Query | Self::Call)
    }

    /// Returns whether ReadyForQuery answers the message.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Sync | Self::Query | Self::Call)
    }
}

fn ask_name(ask: &Ask) -> Option<&str> {
    match ask {
        Ask::DescribeStatement { name, .. } => Some(name),
        _ => None,
    }
}

fn described_types(body: &[u8]) -> Option<Vec<u32>> {
    let mut fields = Body::new(body);
    let count = fields.bytes(2).ok()?;
    let count = u16::from_be_bytes([count[0], count[1]]);
    let types = (0..count).map(|_| fields.i32().ok().map(|oid| oid as u32));
    let types: Option<Vec<u32>> = types.collect();
    fields.end().ok()?;
    types
}
