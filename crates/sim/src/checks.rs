//! The guarantees that the simulator checks, and reports of broken ones.

use std::{collections::VecDeque, fmt};

use pgweir_wire::Header;

/// The guarantee that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guarantee {
    /// A server works for one client at a time, and starts with the next client when that work is done.
    OneClient,
    /// Replies arrive in the order of the requests, complete and unmixed.
    Replies,
    /// The counts of servers are right, and never above the limits.
    Counts,
    /// Every wait ends.
    Waits,
    /// No client sees another client's session state.
    Sessions,
    /// A cancel request stops the query of the client that it names, or no query.
    Cancel,
    /// The amount of buffered data is bounded.
    Memory,
    /// No client is rejected without a reason.
    Reasons,
    /// A command of the console is executed for users with the privilege, and for no others.
    Rights,
    /// A shutdown ends.
    Shutdown,
    /// The core asks nothing senseless of its driver or of PostgreSQL.
    ValidActions,
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// A description of what broke the guarantee.
    pub what: String,
}

/// The pooler's own queries that it sends together with the next client's first bytes.
const SENT_BEFORE_A_LOAN: [&[u8]; 3] = [
    b"DISCARD SEQUENCES\0",
    b"DISCARD PLANS\0",
    b"DISCARD SEQUENCES;DISCARD PLANS\0",
];

impl Violation {
    pub(crate) fn new(guarantee: Guarantee, what: impl Into<String>) -> Self {
        Self {
            guarantee,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.what)
    }
}

impl std::error::Error for Violation {}

/// The id of a request: the client, and the number of the request among the client's requests. Each message of a client
/// that has room for the id contains the id, and so does each reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId {
    pub(crate) client: usize,
    pub(crate) number: u32,
}

impl RequestId {
    /// Finds the id at the beginning of a text, or after the opening of a comment.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"/*").unwrap_or(text);
        let (client, rest) = number(text.strip_prefix(b"c")?)?;
        let (request, _) = number(rest.strip_prefix(b"r")?)?;
        Some(Self {
            client: client as usize,
            number: request as u32,
        })
    }

    /// Finds the id anywhere in a server's message.
    pub(crate) fn find_within(bytes: &[u8]) -> Option<Self> {
        (0..bytes.len())
            .filter(|&at| bytes[at] == b'c')
            .find_map(|at| Self::find(&bytes[at..]))
    }

    /// Returns the id in the body of a client's message.
    pub(crate) fn of_message(tag: u8, body: &[u8]) -> Option<Self> {
        match tag {
            b'Q' | b'E' | b'd' | b'f' => Self::find(body),
            b'B' => Self::find(body).or_else(|| Self::find_within(body)),
            b'P' => {
                let end = body.iter().position(|&byte| byte == 0)?;
                Self::find(body.get(end + 1..)?)
            }
            b'D' | b'C' => Self::find(body.get(1..)?),
            b'F' => Self::find(body.get(12..)?),
            _ => None,
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}r{}", self.client, self.number)
    }
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((value, &text[digits..]))
}

/// Messages about prepared statements that the pooler sends on its own account, not for a client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum OwnMessages {
    /// The message may be a client's.
    #[default]
    None,
    /// The pooler prepares or deallocates a client's SQL-prepared statement. All messages up to the Sync are the pooler's.
    Remakes,
    /// The pooler closes statements of other clients. If a Sync follows at once, the pooler has sent it, too, and a client's
    /// Query comes next.
    Closes,
}

/// Checks that the bytes which are sent to one server belong to one client at a time, and that the previous client's
/// work is done.
#[derive(Debug, Default)]
pub(crate) struct ServerInputCheck {
    partial: Vec<u8>,
    /// Whether the server was quiet when the present message began.
    began_quiet: bool,
    /// The client whose bytes the pooler was handling then. The pooler's Terminate for this client may end a message
    /// that the client has begun.
    began_by: Option<usize>,
    /// Whether the pooler has sent nothing but a clean since then. The clean precedes the bytes of the next client.
    cleaned: bool,
    /// The kind and the owner of each message that the server has not handled yet.
    pub(crate) ahead: VecDeque<(u8, Option<usize>)>,
    /// The client whose messages arrived last.
    pub(crate) owner: Option<usize>,
    /// The number of changes of the owner.
    pub(crate) owners: usize,
    /// The kind of the message that the tap reads, if the pooler has sent it for prepared statements on its own account.
    statements: OwnMessages,
    /// Whether all messages since the server was quiet are the pooler's own.
    own_run: bool,
}

impl ServerInputCheck {
    /// Checks bytes for the server. `caller` is the client whose bytes the pooler was handling. `quiet` means that the
    /// server has answered all requests, and that the pooler has read all answers.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        caller: Option<usize>,
        mut quiet: bool,
    ) -> Result<(), Violation> {
        for &byte in bytes {
            if self.partial.is_empty() {
                self.began_quiet = quiet;
                self.began_by = caller;
                quiet = false;
            }
            self.partial.push(byte);
            let header = Header::parse(&self.partial).map_err(|error| {
                Violation::new(Guarantee::ValidActions, format!("to a server: {error}"))
            })?;
            if header.is_some_and(|header| header.message_len() == self.partial.len()) {
                let message = std::mem::take(&mut self.partial);
                self.message(&message, caller)?;
            }
        }
        Ok(())
    }

    /// Returns whether no message is under way.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.partial.is_empty()
    }

    /// Returns whether no message is under way to which a server that has answered all requests would reply.
    pub(crate) fn is_harmless(&self) -> bool {
        let ignored = |tag| matches!(tag, b'd' | b'c' | b'f' | b'H');
        self.partial.is_empty() && self.ahead.iter().all(|&(tag, _)| ignored(tag))
    }

    fn message(&mut self, message: &[u8], caller: Option<usize>) -> Result<(), Violation> {
        let (tag, body) = (message[0], &message[5..]);
        let id = RequestId::of_message(tag, body).map(|id| id.client);
        self.statements = match (tag, self.statements) {
            (b'P', _) if is_remade(body) => OwnMessages::Remakes,
            // Clients deallocate SQL-prepared statements by SQL.
            (b'C', _) if body.starts_with(b"Sq") => OwnMessages::Remakes,
            (_, OwnMessages::Remakes) => OwnMessages::Remakes,
            // The pooler replaces the name when a client closes a statement.
            (b'C', _) if body.starts_with(b"SPGWEIR_") && !body.starts_with(b"SPGWEIR_NONE") => {
                OwnMessages::Closes
            }
            (b'S', OwnMessages::Closes) => OwnMessages::Closes,
            _ => OwnMessages::None,
        };
        let is_of_statements = match self.statements {
            OwnMessages::None => false,
            OwnMessages::Remakes => true,
            OwnMessages::Closes => tag == b'S',
        };
        // Clients' queries have an id, and the pooler never forwards a client's Terminate.
        let own = is_of_statements || id.is_none() && matches!(tag, b'Q' | b'X');
        if tag == b'S' {
            self.statements = OwnMessages::None;
        }
        // The pooler may send several of its own queries in a row.
        self.own_run = own && (self.began_quiet || self.own_run);
        let client = if own {
            None
        } else {
            id.or(self.began_by).or(caller).or(self.owner)
        };
        // Startup values that the client has changed come back within the client's transaction.
        let is_between = self.own_run || self.ahead.is_empty();
        if own && body.starts_with(b"SET ") && !is_between {
            return Err(self.too_early("parameters for the next client"));
        }
        if own && SENT_BEFORE_A_LOAN.contains(&body) {
            if !self.own_run {
                return Err(self.too_early("cleaning for the next client"));
            }
            self.cleaned = true;
        }
        let is_cleaned = client.is_some() && std::mem::take(&mut self.cleaned);
        if let Some(client) = client
            && self.owner != Some(client)
        {
            if !self.began_quiet && !is_cleaned {
                return Err(self.too_early(&format!("bytes of client {client}")));
            }
            self.owner = Some(client);
            self.owners += 1;
        }
        self.ahead.push_back((tag, client));
        Ok(())
    }

    fn too_early(&self, what: &str) -> Violation {
        let owner = self.owner.map_or("nobody".to_owned(), |owner| {
            format!("what client {owner} began")
        });
        Violation::new(
            Guarantee::OneClient,
            format!("{what} reach a server that is not done with {owner}"),
        )
    }
}

/// Returns whether this is the text of a client's PREPARE as the pooler sends it to another server. Clients send
/// PREPARE in simple queries.
fn is_remade(parse: &[u8]) -> bool {
    let text = parse.split(|&byte| byte == 0).nth(1).unwrap_or_default();
    let end = text.windows(2).position(|two| two == b"*/");
    let statement = text.get(end.map_or(0, |end| end + 2)..).unwrap_or_default();
    statement.starts_with(b"prepare ")
}

/// A message of a server for a client.
#[derive(Debug)]
pub(crate) struct SentMessage {
    /// The backend that sent the message.
    pub(crate) backend: usize,
    /// The position of the message's end in all bytes that the backend has ever sent.
    pub(crate) end: u64,
    pub(crate) message: Vec<u8>,
    /// Whether the connection to the backend has been closed since.
    pub(crate) is_last: bool,
}
