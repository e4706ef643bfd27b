//! One client.

use std::sync::Arc;

use super::{Discard, Login, Upstream};
use crate::cancel::CancelKey;
use pgweir_wire::Header;

use crate::{
    Address, Native, Replication, Time, TlsFacts, Token,
    console::Console,
    listen::Hearing,
    pool::{PoolId, PoolKey, Ticket},
    session::{
        Context, Names, Tracked,
        scan::{CustomNames, Phrase, phrases},
    },
};

/// What a client is doing.
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
    /// It logs in.
    Login(Box<Login>),
    /// It says nothing, or nothing that was read.
    Idle,
    /// It listens, and has come from the process before this one, which still hears for it.
    Arriving,
    /// It has something to say, or has logged in to a pool without a server yet, and waits for one.
    Waiting {
        /// Its place in the queue.
        ticket: Ticket,
        /// The login is not done.
        at_login: bool,
    },
    /// This server, which is to be its own, connects or logs in; its login ends with that.
    Opening(Token),
    /// A server is being given its parameters.
    Preparing(Token),
    /// It uses this server.
    Active(Token),
    /// Its request is read, and not served.
    Discarding(Discard),
    /// It talks to the console.
    Console(Box<Console>),
    /// It asked to cancel another client's query, and waits for that to be done.
    CancelRequest {
        /// It is on its way to the server.
        sent: bool,
    },
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Shown in the console and the log; unique in the process.
    pub id: u64,
    /// Its own address.
    pub remote: Address,
    /// The address that it connected to.
    pub local: Address,
    /// The port that it connected to.
    pub port: u16,
    /// It came by a Unix socket, from a process of our own user.
    pub same_uid: bool,
    /// The user id of the process that it came from by a Unix socket, if it is known.
    pub uid: Option<u32>,
    /// The process that it came from by a Unix socket; 0 if that is not known.
    pub pid: u32,
    /// Its encryption, if there is one.
    pub tls: Option<Box<TlsFacts>>,
    /// What it is doing.
    pub duty: ClientDuty,
    /// Its login, while it waits for a server that can tell who it is.
    pub login: Option<Box<Login>>,
    /// Database and user as it named them, once it has.
    pub names: Option<Arc<PoolKey>>,
    /// Its pool, once it has logged in.
    pub pool: Option<PoolId>,
    /// It gets a server of its own.
    pub native: Option<Box<Native>>,
    /// Its tracked parameters, as it was last told.
    pub tracked: Tracked,
    /// What it listens to, if it does so through a listener.
    pub hearing: Option<Box<Hearing>>,
    /// Its session, if the session engine is on for it.
    pub context: Option<Box<Context>>,
    /// Its incoming bytes.
    pub stream: Upstream,
    /// The beginning of a message whose names have not all come yet.
    pub held: Option<Box<Held>>,
    /// It may set parameters by a text of which more is to come: their names.
    pub unread: Option<Box<CustomNames>>,
    /// It has prepared a statement that may change the catalog, where its session is not followed.
    pub prepares_ddl: bool,
    /// Its prepared statements.
    pub statements: Names,
    /// The definition of its unnamed statement, if it may be used on another server than the one
    /// that has it.
    pub unnamed: Option<Box<[u8]>>,
    /// That is not kept, and may change its session.
    pub unnamed_is_opaque: bool,
    /// Counts its unnamed statements, so that an old one on some server is known to be old.
    pub unnamed_version: u32,
    /// The pid that it was given; 0 before it has said who it is.
    pub key_pid: u32,
    /// The secret part of its cancel key.
    pub secret: [u8; 32],
    /// How many bytes of it the client was given: 4 in protocol 3.0.
    pub secret_len: u8,
    /// When it connected.
    pub connected_at: Time,
    /// When it sent the request that is being served, or the last one.
    pub request_at: Time,
    /// When its present transaction got its server.
    pub transaction_at: Time,
    /// It has had a notice that it waits, in this wait.
    pub told_to_wait: bool,
    /// It is looked at what it has to say, before a server is checked for it.
    pub peeked: bool,
    /// Its socket takes no more at present.
    pub blocked: bool,
    /// When it hung up, if it was not read then: what it has sent before may still be in its socket.
    pub hung_up_at: Option<Time>,
    /// Bytes that were read before they could be passed on: they came together with the end of its
    /// login, or wait for the answers to earlier ones.
    pub early: Option<Box<Vec<u8>>>,
}

/// The beginning of a message.
#[derive(Debug)]
pub struct Held {
    /// Its header.
    pub header: Header,
    /// What has come of its body.
    pub body: Vec<u8>,
}

impl Client {
    /// Is its unnamed statement one that may be used later, or that may change its session?
    #[must_use]
    #[inline]
    pub fn has_kept_unnamed(&self) -> bool {
        self.unnamed.is_some() || self.unnamed_is_opaque
    }

    /// Does what it does end after a time?
    pub(crate) fn has_deadline(&self) -> bool {
        let duty = matches!(
            self.duty,
            ClientDuty::Login(_) | ClientDuty::Waiting { .. } | ClientDuty::Opening(_)
        );
        duty || self.hung_up_at.is_some()
    }

    /// Does it wait for a server with a request, not within its login?
    pub(crate) fn waits_with_request(&self) -> bool {
        let is_login = self.login.is_some();
        matches!(self.duty, ClientDuty::Waiting { at_login, .. } if !at_login && !is_login)
    }

    /// What it needs to cancel its queries.
    #[must_use]
    pub fn cancel_key(&self) -> CancelKey {
        CancelKey {
            pid: self.key_pid,
            secret: self.secret[..usize::from(self.secret_len)].into(),
        }
    }

    /// The server that works for it.
    #[must_use]
    #[inline]
    pub fn server(&self) -> Option<Token> {
        match self.duty {
            ClientDuty::Preparing(server) | ClientDuty::Active(server) => Some(server),
            _ => None,
        }
    }

    /// Has it a server outside of its pool's limits, or is it to get one?
    #[must_use]
    pub fn is_past_limits(&self) -> bool {
        self.native.as_ref().is_some_and(|native| native.bypass)
    }

    /// Is it one too many, unless somebody has left?
    #[must_use]
    pub fn is_aside(&self) -> bool {
        matches!(&self.duty, ClientDuty::Login(login) if login.is_aside())
    }

    /// Its unnamed statement is no more, or another one.
    pub fn forget_unnamed(&mut self) {
        self.unnamed = None;
        self.unnamed_is_opaque = false;
        self.unnamed_version = self.unnamed_version.wrapping_add(1);
    }

    /// A text that it sends may say UNLISTEN.
    #[cold]
    pub fn unlistens(&mut self, text: &[u8]) {
        if let Some(hearing) = &mut self.hearing {
            let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
            for phrase in phrases(text) {
                if let Phrase::Unlisten(channel) = phrase {
                    hearing.unlisten(channel.as_deref());
                }
            }
        }
    }

    /// What it replicates.
    #[must_use]
    pub fn replication(&self) -> Replication {
        let native = self.native.as_ref();
        native.map_or(Replication::None, |native| native.replication)
    }

    /// The client as the log names it.
    #[must_use]
    pub fn subject(&self) -> String {
        let (database, user) = self.names.as_ref().map_or(("(nodb)", "(nouser)"), |names| {
            (&names.database, &names.user)
        });
        format!(
            "C-{:#x}: {database}/{user}@{}",
            self.id,
            self.remote.with_port(self.port)
        )
    }
}
