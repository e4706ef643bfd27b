//! A client connection.

mod origin;
mod request_times;
mod socket;

use std::sync::Arc;

pub(crate) use self::request_times::MustSee;
pub use self::{
    origin::Origin,
    request_times::RequestTimes,
    socket::{ClientSocket, Held},
};

use super::{ClientKey, Discard, Discarded, Login, UnnamedStatement};
use crate::{
    Audit, ExclusiveServer, Replication, Time, TlsFacts, Token,
    base::{conditions::first_of, digits::push_hexadecimal, fault::Fault},
    console::Console,
    listen::Listening,
    pool::{PoolId, PoolKey, Ticket},
    session::{
        Context, Names, Tracked,
        sql::{Phrase, phrases},
    },
    shared::cancel::CancelKey,
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
    tls: Option<Box<TlsFacts>>,
    /// The connection's state. Only the moves of [`crate::connections`] change it.
    duty: ClientDuty,
    /// The login, while the client waits for a server that looks its user up.
    login: Option<Box<Login>>,
    /// The database and user of the startup packet, once it has arrived.
    names: Option<Arc<PoolKey>>,
    /// The client's pool, once it has logged in.
    pool: Option<PoolId>,
    /// The way to open the client's exclusive server, if it needs one.
    exclusive: Option<Box<ExclusiveServer>>,
    /// The reported parameters, with the values that the client was last sent.
    pub(crate) tracked: Tracked,
    /// The client's channels, if a listener receives their notifications.
    pub(crate) listening: Option<Box<Listening>>,
    /// The client's session, if `session_state = transparent` holds for the client.
    pub(crate) context: Option<Box<Context>>,
    /// The client's socket, and the bytes that were read from it but not handled yet.
    pub(crate) socket: ClientSocket,
    /// Whether the client may have prepared a statement that changes the catalog, in a pool without session state.
    prepares_ddl: bool,
    /// The client's prepared statements.
    pub(crate) statements: Names,
    /// The client's unnamed statement.
    pub(crate) unnamed: UnnamedStatement,
    /// The client's cancel key.
    key: ClientKey,
    /// The times of the present request.
    pub(crate) request: RequestTimes,
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
            request: RequestTimes::new(now),
        }
    }

    /// Returns whether the client's present state has a time limit.
    pub(crate) fn has_deadline(&self) -> bool {
        let duty = matches!(
            self.duty,
            ClientDuty::Login(_) | ClientDuty::Waiting { .. } | ClientDuty::Opening(_)
        );
        duty || self.socket.hung_up_at().is_some() || self.socket.was_within_message()
    }

    /// Returns whether the client waits for a server with a request, and not within its login.
    pub(crate) fn waits_with_request(&self) -> bool {
        let is_login = self.login.is_some();
        matches!(self.duty, ClientDuty::Waiting { at_login, .. } if !at_login && !is_login)
    }

    /// Returns a description of client input, or of a client request, that pgweir has not finished. `None` is correct
    /// for a client that gives its server back after a transaction.
    #[must_use]
    pub fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (
                self.socket.holds_message(),
                "a message that has not arrived completely",
            ),
            (
                self.socket.reads_text(),
                "a text that has not arrived completely",
            ),
            (self.socket.has_early(), "input that waits"),
            (self.socket.is_peeked(), "a peek"),
            (
                self.request.lost_hosts().is_some(),
                "a request that is repeated",
            ),
            (self.request.must_see().is_some(), "a wait for a standby"),
        ])
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

    /// Returns the facts about TLS, if the connection uses it.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// Notes that the connection uses TLS.
    pub fn note_encrypted(&mut self, facts: TlsFacts) {
        self.tls = Some(Box::new(facts));
    }

    /// Postpones the login until a server has looked the user up.
    pub(crate) fn postpone_login(&mut self) {
        if let Some(login) = self.take_login() {
            self.login = Some(login);
        }
    }

    /// Returns whether the login waits until a server has looked the user up.
    #[must_use]
    #[inline]
    pub fn has_postponed_login(&self) -> bool {
        self.login.is_some()
    }

    /// Takes the login that was postponed, since a server can look the user up.
    #[inline]
    pub(crate) fn take_postponed_login(&mut self) -> Option<Box<Login>> {
        self.login.take()
    }

    /// Returns the way to open the client's exclusive server, if it needs one.
    #[must_use]
    pub fn exclusive(&self) -> Option<&ExclusiveServer> {
        self.exclusive.as_deref()
    }

    /// Returns whether the client needs an exclusive server.
    #[must_use]
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// Notes the way to open the client's exclusive server, if it needs one.
    pub fn set_exclusive(&mut self, exclusive: Option<ExclusiveServer>) {
        self.exclusive = exclusive.map(Box::new);
    }

    /// Notes the client's cancel key.
    pub fn set_key(&mut self, key: ClientKey) {
        self.key = key;
    }

    /// Returns the client's cancel key, to change it.
    pub fn key_mut(&mut self) -> &mut ClientKey {
        &mut self.key
    }

    /// Returns the pid of the client's cancel key.
    #[must_use]
    #[inline]
    pub fn pid(&self) -> u32 {
        self.key.pid()
    }

    /// Returns the database and user of the startup packet, once it has arrived.
    #[must_use]
    pub fn names(&self) -> Option<&Arc<PoolKey>> {
        self.names.as_ref()
    }

    /// Notes the database and user of the startup packet.
    pub fn set_names(&mut self, names: Arc<PoolKey>) {
        self.names = Some(names);
    }

    /// Returns the client's pool, once it has logged in.
    #[must_use]
    #[inline]
    pub fn pool(&self) -> Option<PoolId> {
        self.pool
    }

    /// Notes the client's pool.
    pub fn join_pool(&mut self, pool: PoolId) {
        self.pool = Some(pool);
    }

    /// Notes that the client leaves its pool. Returns which it was.
    pub fn leave_pool(&mut self) -> Option<PoolId> {
        self.pool.take()
    }

    /// Returns whether the client may have prepared a statement that changes the catalog, in a pool without session
    /// state.
    #[must_use]
    #[inline]
    pub fn prepares_ddl(&self) -> bool {
        self.prepares_ddl
    }

    /// Notes that the client may prepare a statement that changes the catalog.
    pub fn note_prepared_ddl(&mut self) {
        self.prepares_ddl = true;
    }

    /// Returns the bytes of messages that have not arrived completely, or were not handled yet.
    pub(crate) fn buffered(&self) -> usize {
        let console = match &self.duty {
            ClientDuty::Console(console) => console.buffered(),
            _ => 0,
        };
        self.socket.buffered() + self.unnamed.bytes() + console
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
        // Each login writes two log lines with this name. Appending the pieces takes a third of the instructions of
        // `format!`.
        let mut subject = String::with_capacity(48 + database.len() + user.len());
        subject.push_str("C-0x");
        push_hexadecimal(&mut subject, self.origin.id);
        subject.push_str(": ");
        subject.push_str(database);
        subject.push('/');
        subject.push_str(user);
        subject.push('@');
        self.origin
            .remote
            .push_with_port(self.origin.port, &mut subject);
        subject
    }
}
