//! What the core wants done: the words between a [`Worker`](crate::Worker) and its driver.
//!
//! The driver executes the actions of a call in order, before it makes the next call.

use std::{ops::Range, sync::Arc};

use pgweir_auth::scram;

use crate::{
    Along, Inquiry, Token, WorkerId,
    address::{Address, Endpoint},
    admin::Metrics,
    backend::Server,
    cancel::CancelKey,
    log::{Level, LogLine},
    mail::Mail,
    operator::Shutdown,
    stats::Stats,
    takeover::{ClientRecord, ListenNote, PoolNote},
    tls::TlsRole,
};

/// How the driver treats the incoming side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Leave bytes in the socket and say nothing of them (backpressure).
    Hold,
    /// Leave bytes in the socket, but tell [`Worker::readable`](crate::Worker::readable) once
    /// that there are some. After that the mode is `Hold`, until it is set again.
    Notify,
    /// Read, and hand the bytes to [`Worker::received`](crate::Worker::received).
    Deliver,
}

/// Where the bytes of an [`Action::Send`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the bytes that were passed to this call of `received`.
    Input(Range<usize>),
    /// In [`Actions::scratch`].
    Scratch(Range<usize>),
}

/// One thing to do.
#[derive(Debug)]
pub enum Action {
    /// Write these bytes to the connection. What the socket does not take at once, the driver
    /// keeps, and tells [`Worker::blocked`](crate::Worker::blocked); once all of it
    /// is written, [`Worker::drained`](crate::Worker::drained).
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
    /// Read nothing of this connection and tell nothing of it, whatever its mode, until it is thawed.
    /// What is to be sent is sent. One that is handed over is not frozen any more.
    Freeze(Token),
    /// Its read mode counts again.
    Thaw(Token),
    /// Accept clients, or leave them where they are.
    Accept(bool),
    /// Look at the first unread byte without taking it, and report to
    /// [`Worker::peeked`](crate::Worker::peeked).
    Peek(Token),
    /// Open a server (or cancel) connection; its token was chosen by the core. Reports to
    /// [`Worker::connected`](crate::Worker::connected) or `connect_failed`.
    Connect {
        /// The new connection's token.
        conn: Token,
        /// Where to.
        endpoint: Arc<Endpoint>,
    },
    /// Speak TLS from here on, after what was sent so far. In mode `Deliver` the handshake is made; its
    /// end is reported to [`Worker::secured`](crate::Worker::secured), or to `closed`. Only then
    /// more may be sent.
    StartTls {
        /// The connection.
        conn: Token,
        /// Our part in it.
        role: TlsRole,
    },
    /// Close the connection after its unsent bytes are written (or a bounded time). The core
    /// has forgotten the token already: no event may follow.
    Close(Token),
    /// Derive SCRAM keys from a password off the event loop (PBKDF2 takes milliseconds), and
    /// report to [`Worker::derived`](crate::Worker::derived).
    Derive {
        /// Whose exchange waits for the keys.
        conn: Token,
        /// Password, salt and iteration count.
        job: scram::DeriveJob,
    },
    /// Find something out about a client that logs in, off the event loop, and report to
    /// [`Worker::found`](crate::Worker::found).
    Inquire {
        /// The client.
        conn: Token,
        /// What is asked.
        inquiry: Inquiry,
    },
    /// Give an idle server to another worker: unregister its socket, and let that worker
    /// [`adopt`](crate::Worker::adopt) it.
    HandOver {
        /// The server's connection here. The core has forgotten it already.
        conn: Token,
        /// The new owner.
        to: WorkerId,
        /// The server's state.
        server: Box<Server>,
    },
    /// Give a client to the process that takes our place: unregister its socket, and send it there. What
    /// it was not sent yet goes along.
    Depart {
        /// The client's connection here. The core has forgotten it already.
        conn: Token,
        /// All that is known of it.
        record: Box<ClientRecord>,
        /// The server that it takes along.
        server: Option<Along>,
    },
    /// Tell the other process of an online restart something of a client that listens, after the clients that
    /// have left before.
    Forward {
        /// The client's key.
        key: Box<CancelKey>,
        /// What.
        note: ListenNote,
    },
    /// The online restart has failed. Once all clients that have left before are back, as far as they come, tell
    /// this worker [`Word::AllBack`](crate::Word::AllBack).
    AwaitReturns,
    /// Deliver a message to another worker (or this one, after the present call).
    Mail {
        /// Whose mailbox.
        to: WorkerId,
        /// The message.
        mail: Mail,
    },
    /// The same, after all that has come by now on any connection was read and told.
    MailOnceRead {
        /// Whose mailbox.
        to: WorkerId,
        /// The message.
        mail: Mail,
    },
    /// Write a line to the log, at the end of the turn at the latest.
    Log(LogLine),
    /// Write all lines so far, before what follows.
    WriteLog,
    /// Something for the control thread.
    Control(Control),
    /// A shutdown has been asked for and nothing is left to wait for: this worker can end.
    Finished,
}

/// What one call asks for. Owned by the driver and reused, so that a call allocates nothing.
#[derive(Debug, Default)]
pub struct Actions {
    /// In the order to be executed.
    pub list: Vec<Action>,
    /// Bytes made by the core during this call (`Source::Scratch`).
    pub scratch: Vec<u8>,
    /// The input of the present call was copied to `scratch`, from here on.
    pub(crate) early: Option<usize>,
}

impl Actions {
    /// Asks for a line in the log.
    pub(crate) fn log(
        &mut self,
        level: Level,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) {
        self.list.push(Action::Log(LogLine {
            level,
            subject: subject.into(),
            text: text.into(),
        }));
    }
}

/// What the driver knows of a client that was just accepted.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The client's own address.
    pub remote: Address,
    /// The address that it connected to.
    pub local: Address,
    /// The port of the listener that a Unix socket belongs to, or the TCP port.
    pub port: u16,
    /// A Unix-socket client that runs under the same user id as this process.
    pub same_uid: bool,
    /// The user id at the other end of a Unix socket, if it is known.
    pub uid: Option<u32>,
    /// The process at the other end of a Unix socket; 0 if it is not known.
    pub pid: u32,
    /// Fresh random bytes of cryptographic quality: salt, nonce and cancel key come from here.
    pub entropy: [u8; 64],
}

/// Why a connection ended without our doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The peer closed it in good order.
    Eof,
    /// The socket reported an error (its text).
    Error(String),
    /// The TLS handshake failed, or what came later is not what the peer sent (why).
    Tls(String),
}

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// The name did not resolve.
    Lookup(String),
    /// No address of it accepted (the last error's text).
    Refused(String),
    /// This process is out of file descriptors or memory (the error's text).
    Local(String),
}

/// What the console asks of the control thread.
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
        /// Its new value, as the ini file would have it.
        value: String,
    },
    /// Which host names have been looked up; the answer is [`Mail::Names`].
    Names {
        /// The worker whose console asked.
        worker: WorkerId,
        /// The console's client there.
        console: Token,
    },
    /// Look up all known host names again.
    RefreshNames,
    /// End the process.
    Shutdown(Shutdown),
    /// What this worker has counted since it began: the answer to [`Mail::Count`].
    Counted(Stats),
    /// What all workers have counted for metrics: the answer to [`Mail::Measure`].
    Measured(Box<Metrics>),
    /// Let a new process take our place.
    Restart,
    /// No client is left with this worker, while they leave for the process that takes our place.
    Departed(WorkerId),
    /// The other process of an online restart is to know how many servers of a pool we have.
    Held(PoolNote),
    /// It is to lend us a place for one more.
    Want(PoolNote),
    /// We lend it one.
    Lend(PoolNote),
    /// It may know the client that this key names.
    CancelElsewhere(CancelKey),
}
