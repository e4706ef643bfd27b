//! The actions that a [`Worker`](crate::Worker) asks its driver to carry out, and the types of its events.
//!
//! The driver carries out the actions of one call in order, before it makes the next call.

use std::{ops::Range, panic::Location, sync::Arc};

use pgweir_auth::scram;
use pgweir_wire::MessageWriter;

use crate::{
    AuthCheck, Evaluation, SharedPool, Token, WorkerId,
    backend::{InternalQuery, Server},
    base::{
        address::{Address, Endpoint},
        stats::Stats,
        tls::TlsRole,
    },
    console::OrderForNodes,
    frontend::MovedClient,
    log::{Audit, Level, LogLine},
    mail::Mail,
    metrics::Metrics,
    shared::{
        cancel::CancelKey,
        fleet::{FleetCounted, FleetRound},
        operator::Shutdown,
    },
    takeover::{ClientRecord, HandedOverServer, ListenNote, PoolNote},
    transaction_trace::TransactionTrace,
};

/// The treatment of a connection's incoming bytes by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Leave incoming bytes in the socket, without an event (backpressure).
    Hold,
    /// Leave incoming bytes in the socket, but call [`Worker::readable`](crate::Worker::readable) once when there are
    /// some. After that call the mode is `Hold`, until the worker sets it again.
    Notify,
    /// Read the bytes and pass them to [`Worker::received`](crate::Worker::received).
    Deliver,
}

/// The place of the bytes of an [`Action::Send`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the bytes that were passed to this call of `received`.
    Input(Range<usize>),
    /// In [`Actions::scratch`].
    Scratch(Range<usize>),
}

/// One action for the driver. Actions are copied several times, so their rare large parts are boxed: an action takes 32
/// bytes.
#[derive(Debug)]
pub enum Action {
    /// Write these bytes to the connection. If the socket does not take all of them at once, the driver keeps the rest
    /// and calls [`Worker::blocked`](crate::Worker::blocked). Once it has written everything, it calls
    /// [`Worker::drained`](crate::Worker::drained).
    Send {
        /// The destination.
        to: Token,
        /// The bytes.
        source: Source,
    },
    /// Set the read mode of a connection.
    Read {
        /// The connection.
        conn: Token,
        /// Its new mode.
        mode: ReadMode,
    },
    /// Read nothing from this connection and report no event for it, whatever its read mode, until [`Action::Thaw`].
    /// Sending goes on. A frozen connection that is handed over is not frozen at its new place.
    Freeze(Token),
    /// Ends [`Action::Freeze`]: the connection's read mode is in force again.
    Thaw(Token),
    /// This client has logged in. The driver may serve its events before those of clients that are logging in.
    LoggedIn(Token),
    /// Accept new clients (`true`), or leave them in the listening sockets' queues (`false`).
    Accept(bool),
    /// Peek at the first unread byte (`MSG_PEEK`), and report it to [`Worker::peeked`](crate::Worker::peeked).
    Peek(Token),
    /// Open a connection to a server, for queries or for a cancel request. The core has chosen its token. The driver
    /// reports to [`Worker::connected`](crate::Worker::connected) or `connect_failed`.
    Connect {
        /// The new connection's token.
        conn: Token,
        /// The server's address.
        endpoint: Arc<Endpoint>,
    },
    /// Begin TLS on this connection, after the bytes sent so far. The driver makes the handshake while the read mode is
    /// `Deliver`, and reports its end to [`Worker::secured`](crate::Worker::secured), or to `closed`. The worker sends
    /// nothing before that.
    StartTls {
        /// The connection.
        conn: Token,
        /// Whether this process is the TLS client or the TLS server.
        role: Box<TlsRole>,
    },
    /// Close the connection once its unsent bytes are written, or after a bounded time. The core has removed the token:
    /// no event may follow.
    Close(Token),
    /// Close the connection to a server like `Close`, without a limit on the time that the server takes to close its side.
    /// When it has, or the connection fails, put [`FleetMail::ServerClosed`](crate::mail::FleetMail::ServerClosed) into this
    /// worker's mailbox.
    CloseServer {
        /// The connection.
        conn: Token,
        /// The server's pool.
        pool: Arc<SharedPool>,
    },
    /// Derive SCRAM keys from a password off the event loop (PBKDF2 takes milliseconds), and
    /// report to [`Worker::derived`](crate::Worker::derived).
    Derive {
        /// The connection whose SCRAM exchange waits for the keys.
        conn: Token,
        /// Password, salt and iteration count.
        job: Box<scram::DeriveJob>,
    },
    /// Check a password by LDAP or PAM, or look up the name of a user id, off the event loop. The driver reports to
    /// [`Worker::auth_checked`](crate::Worker::auth_checked).
    CheckAuth {
        /// The client.
        conn: Token,
        /// The check or the look-up.
        auth_check: Box<AuthCheck>,
    },
    /// Evaluate the facts of a database off the event loop (a database with 100,000 functions takes up to a second),
    /// and send this worker [`Mail::CatalogEvaluated`].
    Evaluate(Box<Evaluation>),
    /// Move an idle server connection to another worker: unregister its socket here, and let that worker
    /// [`adopt`](crate::Worker::adopt) the server.
    MoveServer {
        /// The server's token on this worker. The core has removed it already.
        conn: Token,
        /// The new owner.
        to: WorkerId,
        /// The server's state.
        server: Box<Server>,
    },
    /// Move an idle client to another worker: unregister its socket here, and let that worker
    /// [`take`](crate::Worker::take_client) the client.
    MoveClient {
        /// The client's token on this worker. The core has removed it already.
        conn: Token,
        /// The new owner.
        to: WorkerId,
        /// The client's state.
        client: Box<MovedClient>,
    },
    /// Online restart: unregister this client's socket and pass it to the new process, with the bytes for the client
    /// that its socket has not taken yet.
    HandOverClient {
        /// The client's token on this worker. The core has removed it already.
        conn: Token,
        /// The client's state, for the new process.
        record: Box<ClientRecord>,
        /// The server connection that goes with the client, in session mode.
        server: Option<Box<HandedOverServer>>,
    },
    /// Online restart: send the other process a note about a client that listens. The note follows all clients that
    /// this worker has handed over before.
    ForwardToNewProcess {
        /// The client's key.
        key: Box<CancelKey>,
        /// The note.
        note: Box<ListenNote>,
    },
    /// The online restart has failed. Send this worker
    /// [`TakeoverMail::AllBack`](crate::takeover::TakeoverMail::AllBack) once the new process has given back all
    /// clients that it can.
    AwaitReturns,
    /// Put a message into a worker's mailbox. A worker that mails itself gets the message after the present call.
    Mail {
        /// The worker that gets the message.
        to: WorkerId,
        /// The message.
        mail: Box<Mail>,
    },
    /// Like `Mail`, but the driver first reads all bytes that have arrived on any connection by now, and reports these
    /// events.
    MailAfterPending {
        /// The worker that gets the message.
        to: WorkerId,
        /// The message.
        mail: Box<Mail>,
    },
    /// Write a line to the log. The driver may collect lines for some milliseconds before it writes them.
    Log(Box<LogLine>),
    /// Write all log lines so far before the driver carries out the next action.
    WriteLog,
    /// Pass the trace of a transaction to the exporter. If the exporter's queue is full, the trace is dropped.
    Export(Box<TransactionTrace>),
    /// A request to the control thread.
    Control(Box<Control>),
    /// The process is shutting down and this worker has no connections left to wait for: its thread can end.
    Finished,
}

/// The actions of one call. The driver owns this value and reuses it, so that a call allocates nothing.
#[derive(Debug, Default)]
pub struct Actions {
    /// The actions, in the order in which the driver carries them out.
    pub list: Vec<Action>,
    /// Bytes that the core has made during this call, for [`Source::Scratch`].
    pub scratch: Vec<u8>,
    /// The position in `scratch` at which the copy of this call's input begins, if there is one.
    pub(crate) early: Option<usize>,
}

impl Actions {
    /// Sets a read mode.
    #[inline]
    pub(crate) fn read(&mut self, conn: Token, mode: ReadMode) {
        self.list.push(Action::Read { conn, mode });
    }

    /// Sends a part of the input.
    #[inline]
    pub(crate) fn send_input(&mut self, to: Token, start: usize, end: usize) {
        if start < end {
            let source = match self.early {
                None => Source::Input(start..end),
                Some(base) => Source::Scratch(base + start..base + end),
            };
            self.list.push(Action::Send { to, source });
        }
    }

    /// Sends the bytes that `make` appends.
    #[inline]
    pub(crate) fn send_made(&mut self, to: Token, make: impl FnOnce(&mut Vec<u8>)) {
        let start = self.scratch.len();
        make(&mut self.scratch);
        let end = self.scratch.len();
        if start < end {
            self.list.push(Action::Send {
                to,
                source: Source::Scratch(start..end),
            });
        }
    }

    /// Sends a query of pgweir's own to a server.
    pub(crate) fn ask(
        &mut self,
        conn: Token,
        server: &mut Server,
        own: InternalQuery,
        text: &[u8],
    ) {
        server.ask(own);
        self.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(text);
        });
    }

    /// Reports a lost invariant: `what` is missing and must be there. A debug build panics; any other logs it with the
    /// caller's place in the source.
    #[cold]
    #[track_caller]
    pub(crate) fn report_missing(&mut self, what: &str) {
        let place = Location::caller();
        debug_assert!(false, "missing: {what}, at {place}");
        let text = format!("bug in pgweir: missing: {what}, at {place}");
        self.log(Level::Error, "", text);
    }

    /// Returns the value. If there is none, reports a lost invariant.
    #[inline]
    #[track_caller]
    pub(crate) fn known<T>(&mut self, found: Option<T>, what: &str) -> Option<T> {
        if found.is_none() {
            self.report_missing(what);
        }
        found
    }

    /// Begins TLS on a connection.
    pub(crate) fn start_tls(&mut self, conn: Token, role: TlsRole) {
        let role = Box::new(role);
        self.list.push(Action::StartTls { conn, role });
    }

    /// Sends mail to a worker.
    pub(crate) fn mail(&mut self, to: WorkerId, mail: Mail) {
        let mail = Box::new(mail);
        self.list.push(Action::Mail { to, mail });
    }

    /// Adds a request to the control thread.
    pub(crate) fn control(&mut self, request: Control) {
        self.list.push(Action::Control(Box::new(request)));
    }

    /// Adds a line for the log.
    pub(crate) fn log(
        &mut self,
        level: Level,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) {
        self.list
            .push(Action::Log(Box::new(LogLine::new(level, subject, text))));
    }

    /// Adds an audit line to the log.
    pub(crate) fn audit(&mut self, subject: String, audit: Audit) {
        self.list.push(Action::Log(Box::new(LogLine {
            level: Level::Log,
            subject,
            text: audit.text(),
            audit: Some(Box::new(audit)),
            slow: None,
        })));
    }
}

/// The facts about a client that the driver has just accepted.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The client's address.
    pub remote: Address,
    /// The address that it connected to.
    pub local: Address,
    /// The port of the listener that a Unix socket belongs to, or the TCP port.
    pub port: u16,
    /// Whether the client is connected by a Unix socket and runs under the same user id as this process.
    pub same_uid: bool,
    /// Whether the connection comes from this process itself, which passes on a request over HTTP.
    pub is_internal: bool,
    /// The user id of the client's process on a Unix socket, if the kernel reports it.
    pub uid: Option<u32>,
    /// The client's process id on a Unix socket; 0 if it is not known.
    pub pid: u32,
    /// Fresh random bytes of cryptographic quality, for salt, nonce and cancel key.
    pub entropy: [u8; 64],
}

/// The reason for the end of a connection that this process did not close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The peer has closed the connection regularly.
    Eof,
    /// The socket has reported this error.
    Error(String),
    /// The TLS handshake has failed, or a later record has failed its integrity check, for this reason.
    Tls(String),
}

/// The reason why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// The host name could not be resolved, for this reason.
    Lookup(String),
    /// No address of the host has accepted the connection; the text is the last error.
    Refused(String),
    /// This process is out of file descriptors or memory; the text is the error.
    Local(String),
}

/// A request of a worker to the control thread, mostly on behalf of a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Read the configuration again; the outcome goes to [`Mail::Configured`].
    Reload {
        /// The worker whose console asked.
        worker: WorkerId,
        /// The console's client there.
        console: Token,
    },
    /// Change one setting until the next RELOAD; the outcome goes to [`Mail::Configured`].
    Set {
        /// The worker whose console asked.
        worker: WorkerId,
        /// The console's client there.
        console: Token,
        /// The setting.
        key: String,
        /// The new value of the setting, in the form of the ini file.
        value: String,
    },
    /// List the host names that were looked up; the answer is [`Mail::Names`].
    Names {
        /// The worker whose console asked.
        worker: WorkerId,
        /// The console's client there.
        console: Token,
    },
    /// Look up all known host names again.
    RefreshNames,
    /// Return freed memory to the system.
    ReturnMemory,
    /// End the process.
    Shutdown(Shutdown),
    /// The counters of this worker since its start: the answer to [`Mail::Count`].
    Counted(Stats),
    /// The counters of all workers for metrics: the answer to [`Mail::Measure`].
    Measured(Box<Metrics>),
    /// The workers' counts for the fleet: the answer to [`FleetMail::Round`](crate::mail::FleetMail::Round).
    FleetRound(Box<FleetRound>),
    /// The backends in PostgreSQL: the answer to [`FleetMail::Count`](crate::mail::FleetMail::Count).
    FleetCounted(Box<FleetCounted>),
    /// Let all nodes of the fleet carry out a command; the answer is
    /// [`FleetMail::CommandAnswered`](crate::mail::FleetMail::CommandAnswered).
    OrderNodes(Box<OrderForNodes>),
    /// Begin an online restart: start a new process that takes over from this one.
    Restart,
    /// Online restart: this worker has handed over its last client.
    Departed(WorkerId),
    /// Online restart: tell the other process how many server connections of a pool this process has.
    Held(PoolNote),
    /// Online restart: ask the other process for a place for one more server connection in a pool.
    Want(PoolNote),
    /// Online restart: lend the other process a place for one more server connection in a pool.
    Lend(PoolNote),
    /// Online restart: pass a cancel request on to the other process, which may have the client of this key.
    CancelElsewhere(CancelKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_copied_in_registers() {
        assert_eq!(size_of::<Action>(), 32);
    }
}
