//! A client connection.

use std::sync::Arc;

use super::{ClientKey, Discard, Discarded, Login, UnnamedStatement, Upstream};
use crate::shared::cancel::CancelKey;
use pgweir_wire::Header;

use crate::{
    Address, Audit, ExclusiveServer, Replication, Time, TlsFacts, Token,
    backend::LostHosts,
    base::{fault::Fault, progress::Progress},
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
///      \-> Waiting -> Opening -> Active, to its end (with an exclusive server)
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
    /// The client waits for its exclusive server, which connects or logs in. The client's login ends when the server is
    /// ready.
    Opening(Token),
    /// This server was lent, and is getting the client's session state.
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
    /// The origin of the connection.
    pub(crate) origin: Origin,
    /// The facts about TLS, if the connection uses it.
    pub(crate) tls: Option<Box<TlsFacts>>,
    /// The connection's state. Only the moves of [`crate::connections`] change it.
    duty: ClientDuty,
    /// The login, while the client waits for a server that looks its user up.
    pub(crate) login: Option<Box<Login>>,
    /// The database and user of the startup packet, once it has arrived.
    pub(crate) names: Option<Arc<PoolKey>>,
    /// The client's pool, once it has logged in.
    pub(crate) pool: Option<PoolId>,
    /// The way to open the client's exclusive server, if it needs one.
    pub(crate) exclusive: Option<Box<ExclusiveServer>>,
    /// The reported parameters, with the values that the client was last sent.
    pub(crate) tracked: Tracked,
    /// The client's channels, if a listener receives their notifications.
    pub(crate) listening: Option<Box<Listening>>,
    /// The client's session, if `session_state = transparent` holds for the client.
    pub(crate) context: Option<Box<Context>>,
    /// The client's socket, and the bytes that were read from it but not handled yet.
    pub(crate) socket: ClientSocket,
    /// Whether the client has prepared a statement that may change the catalog, in a pool without session state.
    pub(crate) prepares_ddl: bool,
    /// The client's prepared statements.
    pub(crate) statements: Names,
    /// The client's unnamed statement.
    pub(crate) unnamed: UnnamedStatement,
    /// The client's cancel key.
    pub(crate) key: ClientKey,
    /// The times of the present request.
    pub(crate) request: RequestTimes,
}

/// The client's socket, and the bytes that were read from it but not handled yet.
#[derive(Debug, Default)]
pub struct ClientSocket {
    /// The position in the client's stream of messages.
    pub(crate) stream: Upstream,
    /// The beginning of a message whose names have not all arrived yet.
    pub(crate) held: Option<Box<Held>>,
    /// Reads the names of custom parameters from a text that has not arrived as a whole.
    pub(crate) unread: Option<Box<CustomNames>>,
    /// The statements of the client's statement and portal names, for statement statistics.
    pub(crate) statement_names: ClientStatements,
    /// Bytes that were read before they could be passed on: they arrived together with the end of the login, or they
    /// wait for the replies to earlier requests.
    #[expect(
        clippy::box_collection,
        reason = "a box takes 8 bytes of each idle client, a vector 24"
    )]
    pub(crate) early: Option<Box<Vec<u8>>>,
    /// Whether the driver was asked to peek at the client's next byte, before a server is checked for the client.
    pub(crate) peeked: bool,
    /// Whether the socket takes no more bytes at present.
    pub(crate) blocked: bool,
    /// The time at which the client hung up, if pgweir was not reading from it then. Bytes that it has sent before may
    /// still be in the socket.
    pub(crate) hung_up_at: Option<Time>,
    /// The client's position within a message at the last check.
    pub(crate) progress: Option<Progress>,
}

/// The times of a client's present request, or of its last one.
#[derive(Debug)]
pub struct RequestTimes {
    /// The time at which the client sent the request.
    pub(crate) sent_at: Time,
    /// The time at which the transaction got its server.
    pub(crate) transaction_at: Time,
    /// Whether the client was sent a notice that it waits for a server, in the present wait.
    pub(crate) wait_notice_was_sent: bool,
    /// The recorded data of the present transaction, while transactions are traced.
    pub(crate) recording: Option<Box<Recording>>,
    /// The hosts that were lost before they replied to the request, which waits for another one.
    pub(crate) lost_hosts: Option<Box<LostHosts>>,
    /// The writes that the request must see (`read_after_write`), until it is relayed.
    pub(crate) must_see: Option<MustSee>,
}

/// The writes that a request must see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MustSee {
    /// The number of writes when the request arrived.
    pub(crate) writes: u64,
    /// When the request arrived.
    pub(crate) since: Time,
    /// The end of the present wait for the replay; `None` before it begins.
    pub(crate) until: Option<Time>,
    /// Whether the wait is over, and the client has to leave its server.
    pub(crate) is_late: bool,
}

impl MustSee {
    /// Demands this number of writes from now on.
    pub(crate) fn new(writes: u64, now: Time) -> Self {
        Self {
            writes,
            since: now,
            until: None,
            is_late: false,
        }
    }

    /// Returns whether the client has waited for long enough.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The origin of a client connection, and its age.
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
    /// Whether the connection comes from this process itself, which passes on a request over HTTP.
    pub is_internal: bool,
    /// The user id of the client's process on a Unix socket, if it is known.
    pub uid: Option<u32>,
    /// The client's process id on a Unix socket; 0 if it is not known.
    pub pid: u32,
    /// The time at which the client connected.
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
                lost_hosts: None,
                must_see: None,
            },
        }
    }

    /// Returns whether the client's present state has a time limit.
    pub(crate) fn has_deadline(&self) -> bool {
        let duty = matches!(
            self.duty,
            ClientDuty::Login(_) | ClientDuty::Waiting { .. } | ClientDuty::Opening(_)
        );
        duty || self.socket.hung_up_at.is_some() || self.socket.progress.is_some()
    }

    /// Returns whether the client waits for a server with a request, and not within its login.
    pub(crate) fn waits_with_request(&self) -> bool {
        let is_login = self.login.is_some();
        matches!(self.duty, ClientDuty::Waiting { at_login, .. } if !at_login && !is_login)
    }

    /// Returns the connection's state.
    #[must_use]
    #[inline]
    pub fn duty(&self) -> &ClientDuty {
        &self.duty
    }

    /// Changes the connection's state, and returns the former one. Only the moves of [`crate::connections`] call this.
    #[inline]
    pub(crate) fn change_duty(&mut self, duty: ClientDuty) -> ClientDuty {
        std::mem::replace(&mut self.duty, duty)
    }

    /// Returns the login, if one is under way.
    pub(crate) fn present_login(&self) -> Option<&Login> {
        match &self.duty {
            ClientDuty::Login(login) => Some(login),
            _ => self.login.as_deref(),
        }
    }

    /// Returns the bytes of messages that have not arrived completely, or were not handled yet.
    pub(crate) fn buffered(&self) -> usize {
        let held = self.socket.held.as_ref();
        let early = self.socket.early.as_ref();
        let console = match &self.duty {
            ClientDuty::Console(console) => console.buffered(),
            _ => 0,
        };
        held.map_or(0, |held| held.body.capacity())
            + early.map_or(0, |early| early.capacity())
            + self.socket.statement_names.bytes()
            + self.unnamed.bytes()
            + console
    }

    /// Returns the login, if the client logs in.
    pub(crate) fn login_mut(&mut self) -> Option<&mut Login> {
        match &mut self.duty {
            ClientDuty::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Returns the console, if the client uses it.
    pub(crate) fn console_mut(&mut self) -> Option<&mut Console> {
        match &mut self.duty {
            ClientDuty::Console(console) => Some(console),
            _ => None,
        }
    }

    /// Reads bytes of a request that is discarded. Returns `None` if no request is.
    pub(crate) fn discard(
        &mut self,
        bytes: &[u8],
        longest: u32,
    ) -> Option<Result<Discarded, Fault>> {
        match &mut self.duty {
            ClientDuty::Discarding(discard) => {
                Some(discard.read(&mut self.socket.stream, bytes, longest))
            }
            _ => None,
        }
    }

    /// Notes that the cancel request of this connection is on its way to the server.
    pub(crate) fn cancel_request_sent(&mut self) {
        if let ClientDuty::CancelRequest { sent } = &mut self.duty {
            *sent = true;
        }
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

    /// Returns the server that is lent to the client.
    #[must_use]
    #[inline]
    pub fn server(&self) -> Option<Token> {
        match self.duty {
            ClientDuty::Preparing(server) | ClientDuty::Active(server) => Some(server),
            _ => None,
        }
    }

    /// Returns whether the client has, or is about to get, a server outside of its pool's limits (`bypass_users`).
    #[must_use]
    pub fn is_past_limits(&self) -> bool {
        self.exclusive
            .as_ref()
            .is_some_and(|exclusive| exclusive.bypass)
    }

    /// Returns whether the client has authenticated and counts under the limits on clients.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        !self.logs_in() && !matches!(self.duty, ClientDuty::CancelRequest { .. })
    }

    /// Returns whether the client has not authenticated.
    #[must_use]
    pub fn logs_in(&self) -> bool {
        matches!(self.duty, ClientDuty::Login(_)) || self.login.is_some()
    }

    /// Notes the UNLISTEN commands in a text.
    #[cold]
    pub fn unlistens(&mut self, text: &[u8]) {
        if let Some(listening) = &mut self.listening {
            let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
            for phrase in phrases(text) {
                if let Phrase::Unlisten(channel) = phrase {
                    listening.unlisten(channel.as_deref());
                }
            }
        }
    }

    /// Returns the kind of replication, if any.
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

    /// Returns the parts of an audit line about an action of this client. `command` may be empty.
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

    /// Returns the client's name in the log.
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
