//! A client connection.

use std::sync::Arc;

use super::{ClientKey, Discard, Login, UnnamedStatement, Upstream};
use crate::cancel::CancelKey;
use pgweir_wire::Header;

use crate::{
    Address, Audit, ExclusiveServer, Replication, Time, TlsFacts, Token,
    console::Console,
    listen::Listening,
    pool::{PoolId, PoolKey, Ticket},
    session::{
        Context, Names, Tracked,
        scan::{CustomNames, Phrase, phrases},
    },
    statement_statistics::ClientStatements,
    transaction_trace::Recording,
};

/// The state of a client connection.
///
/// ```text
/// Login -> Idle -> [Waiting] -> [Preparing] -> Active -> Idle
///      \-> Waiting -> Opening -> Active, to its end (with a server of its own)
///         Waiting -> Discarding -> Idle (its request was cancelled)
///         Preparing -> Refused -> Discarding -> Idle, or Refused -> Idle (no server takes its settings)
///      \-> Console
///      \-> CancelRequest
/// ```
#[derive(Debug)]
pub enum ClientDuty {
    /// The client logs in.
    Login(Box<Login>),
    /// The client is idle: nothing of its next request was read.
    Idle,
    /// Online restart: the client was taken over and uses LISTEN. The old process still receives its notifications.
    TakenOver,
    /// The client waits for a server: it has sent a request, or it logs in to a pool that has had no server yet.
    Waiting {
        /// The client's place in the queue.
        ticket: Ticket,
        /// Whether the login is still under way.
        at_login: bool,
    },
    /// This exclusive server of the client connects or logs in. The client's login ends with that.
    Opening(Token),
    /// The server was lent, and is being given the client's session.
    Preparing(Token),
    /// The client uses this server.
    Active(Token),
    /// The client's request is read and discarded.
    Discarding(Discard),
    /// The client uses the console.
    Console(Box<Console>),
    /// The connection has sent a cancel request, and waits until that was carried out.
    CancelRequest {
        /// Whether the request was sent to the server.
        sent: bool,
    },
}

/// A client connection.
#[derive(Debug)]
pub struct Client {
    /// Where the connection comes from.
    pub origin: Origin,
    /// The facts about TLS, if the connection uses it.
    pub tls: Option<Box<TlsFacts>>,
    /// The connection's state.
    pub duty: ClientDuty,
    /// The login, while the client waits for a server that looks its user up.
    pub login: Option<Box<Login>>,
    /// The database and user of the startup packet, once it has arrived.
    pub names: Option<Arc<PoolKey>>,
    /// The client's pool, once it has logged in.
    pub pool: Option<PoolId>,
    /// How to open the client's exclusive server, if it needs one.
    pub exclusive: Option<Box<ExclusiveServer>>,
    /// The reported parameters, with the values that the client was last sent.
    pub tracked: Tracked,
    /// The client's channels, if a listener receives their notifications.
    pub listening: Option<Box<Listening>>,
    /// The client's session, if `session_state = transparent` holds for the client.
    pub context: Option<Box<Context>>,
    /// The client's socket, and what was read from it ahead of its turn.
    pub socket: ClientSocket,
    /// Whether the client has prepared a statement that may change the catalog, in a pool without session state.
    pub prepares_ddl: bool,
    /// The client's prepared statements.
    pub statements: Names,
    /// The client's unnamed statement.
    pub unnamed: UnnamedStatement,
    /// The client's cancel key.
    pub key: ClientKey,
    /// The times of the present request.
    pub request: RequestTimes,
}

/// The client's socket, and what was read from it ahead of its turn.
#[derive(Debug, Default)]
pub struct ClientSocket {
    /// Where the client's incoming stream is.
    pub stream: Upstream,
    /// The beginning of a message whose names have not all arrived yet.
    pub held: Option<Box<Held>>,
    /// Reads the names of custom parameters from a text that has not arrived as a whole.
    pub unread: Option<Box<CustomNames>>,
    /// What the statements' and portals' names in its messages stand for, for the statistics.
    pub statement_names: ClientStatements,
    /// Bytes that were read before they could be passed on: they arrived together with the end of the login, or wait
    /// for the answers to earlier requests.
    pub early: Option<Box<Vec<u8>>>,
    /// Whether the driver was asked to peek at the client's next byte, before a server is checked for the client.
    pub peeked: bool,
    /// Whether the socket takes no more bytes at present.
    pub blocked: bool,
    /// When the client hung up, if it was not being read then. Bytes that it has sent before may still be in the
    /// socket.
    pub hung_up_at: Option<Time>,
}

/// The times of a client's present request, or of its last one.
#[derive(Debug)]
pub struct RequestTimes {
    /// When the client sent the request.
    pub sent_at: Time,
    /// When the transaction got its server.
    pub transaction_at: Time,
    /// Whether the client was sent a notice that it waits for a server, in the present wait.
    pub wait_notice_was_sent: bool,
    /// What is recorded of the present transaction, while transactions are traced.
    pub recording: Option<Box<Recording>>,
}

/// Where a client connection comes from, and since when it exists.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The client's id, unique in the process.
    pub id: u64,
    /// The client's address.
    pub remote: Address,
    /// The local address that the client connected to.
    pub local: Address,
    /// The local port that the client connected to.
    pub port: u16,
    /// Whether the client is connected by a Unix socket and runs under the same user id as this process.
    pub same_uid: bool,
    /// Whether the client is this process itself, on behalf of somebody else: a request over HTTP.
    pub is_internal: bool,
    /// The user id of the client's process on a Unix socket, if it is known.
    pub uid: Option<u32>,
    /// The client's process id on a Unix socket; 0 if it is not known.
    pub pid: u32,
    /// When the client connected.
    pub connected_at: Time,
}

/// The beginning of a message.
#[derive(Debug)]
pub struct Held {
    /// The message's header.
    pub header: Header,
    /// The part of the body that has arrived.
    pub body: Vec<u8>,
}

impl Client {
    /// Creates an idle client without a pool, a session, or a message under way. `tracked`: its reported
    /// parameters; `now`: the time of its present request.
    #[must_use]
    pub fn new(origin: &Origin, tracked: Tracked, now: Time) -> Self {
        Self {
            origin: *origin,
            tls: None,
            duty: ClientDuty::Idle,
            login: None,
            names: None,
            pool: None,
            exclusive: None,
            tracked,
            listening: None,
            context: None,
            socket: ClientSocket::default(),
            prepares_ddl: false,
            statements: Names::default(),
            unnamed: UnnamedStatement::default(),
            key: ClientKey::new([0; 32]),
            request: RequestTimes {
                sent_at: now,
                transaction_at: now,
                wait_notice_was_sent: false,
                recording: None,
            },
        }
    }

    /// Does what it does end after a time?
    pub(crate) fn has_deadline(&self) -> bool {
        let duty = matches!(
            self.duty,
            ClientDuty::Login(_) | ClientDuty::Waiting { .. } | ClientDuty::Opening(_)
        );
        duty || self.socket.hung_up_at.is_some()
    }

    /// Does it wait for a server with a request, not within its login?
    pub(crate) fn waits_with_request(&self) -> bool {
        let is_login = self.login.is_some();
        matches!(self.duty, ClientDuty::Waiting { at_login, .. } if !at_login && !is_login)
    }

    /// Lets the client wait for a server, with this ticket of its pool's ledger.
    pub fn begin_waiting(&mut self, ticket: Ticket, at_login: bool) {
        self.duty = ClientDuty::Waiting { ticket, at_login };
        self.request.wait_notice_was_sent = false;
    }

    /// Returns whether the client's startup parameters still have to be tried on a server.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        (self.context.as_ref()).is_some_and(|context| context.unproven)
    }

    /// Returns the client's cancel key.
    #[must_use]
    pub fn cancel_key(&self) -> CancelKey {
        self.key.cancel_key()
    }

    /// The server that is lent to the client.
    #[must_use]
    #[inline]
    pub fn server(&self) -> Option<Token> {
        match self.duty {
            ClientDuty::Preparing(server) | ClientDuty::Active(server) => Some(server),
            _ => None,
        }
    }

    /// Does the client have, or is it about to get, a server outside of its pool's limits (`bypass_users`)?
    #[must_use]
    pub fn is_past_limits(&self) -> bool {
        self.exclusive
            .as_ref()
            .is_some_and(|exclusive| exclusive.bypass)
    }

    /// Is the login parked, since it is above a limit?
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(&self.duty, ClientDuty::Login(login) if login.is_parked())
    }

    /// Notes the UNLISTEN commands in a text.
    #[cold]
    pub fn unlistens(&mut self, text: &[u8]) {
        if let Some(hearing) = &mut self.listening {
            let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
            for phrase in phrases(text) {
                if let Phrase::Unlisten(channel) = phrase {
                    hearing.unlisten(channel.as_deref());
                }
            }
        }
    }

    /// Whether, and what, the connection replicates.
    #[must_use]
    pub fn replication(&self) -> Replication {
        let exclusive = self.exclusive.as_ref();
        exclusive.map_or(Replication::None, |exclusive| exclusive.replication)
    }

    /// Returns the database and the user, as the client named them; empty before the startup packet.
    #[must_use]
    pub fn database_and_user(&self) -> (&str, &str) {
        self.names
            .as_ref()
            .map_or(("", ""), |names| (&*names.database, &*names.user))
    }

    /// Returns the parts of an audit line about what this client has done. `command` may be empty.
    #[must_use]
    pub fn audit(&self, action: &'static str, command: String, outcome: String) -> Audit {
        let (database, user) = self.database_and_user();
        Audit {
            action,
            command,
            user: user.to_owned(),
            database: database.to_owned(),
            address: self.origin.remote.with_port(self.origin.port),
            outcome,
        }
    }

    /// The client's name in the log.
    #[must_use]
    pub fn subject(&self) -> String {
        let (database, user) = self.names.as_ref().map_or(("(nodb)", "(nouser)"), |names| {
            (&names.database, &names.user)
        });
        format!(
            "C-{:#x}: {database}/{user}@{}",
            self.origin.id,
            self.origin.remote.with_port(self.origin.port)
        )
    }
}
