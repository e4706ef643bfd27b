//! Online restart: a new process takes over the listening sockets, clients and servers of a running one.
//!
//! The new process connects to a Unix socket of the running process (`.s.PGWEIR.PORT` in `unix_socket_dir`, or
//! `PIDFILE.takeover`). [`pgweir_core::takeover`] has the protocol; file descriptors are sent with its messages. A
//! process replies only to processes of the same user.
//!
//! - `channel`: frames and descriptors on a socket.
//! - `takeover_socket`: the socket on which a running process accepts the request to hand over.
//! - `old_process` and `new_process`: the two sides of a restart.
//! - `other_process`: the connection to the other side, for all threads of this process.

mod channel;
mod new_process;
mod old_process;
mod other_process;
mod takeover_socket;

use std::{io, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use pgweir_config::Settings;
use pgweir_core::{
    SharedPool, TakeoverMail, WorkerId,
    shared::cancel::CancelKey,
    takeover::{BadFrame, ClientRecord, Encryption, ListenNote},
};

use crate::net::{Mailboxes, WorkerMessage};

pub(crate) use self::{
    new_process::{Inheritance, NewProcess},
    old_process::{OldProcess, Step, busy},
    other_process::OtherProcess,
    takeover_socket::TakeoverSocket,
};

/// Messages to the other process, sent in this order.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A client is handed over.
    Client(Departing),
    /// A note about a client that was handed over before.
    Listening(CancelKey, ListenNote),
    /// The handover has failed: notify this worker when all clients that come back are back.
    NoMore(WorkerId),
}

/// A client that is handed over.
#[derive(Debug)]
pub(crate) struct Departing {
    pub(crate) record: Box<ClientRecord>,
    pub(crate) fd: OwnedFd,
    /// The worker that the client leaves.
    pub(crate) worker: WorkerId,
    /// The client's server, which is handed over, too.
    pub(crate) server: Option<DepartingServer>,
    /// Bytes that the client's socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// The TLS states of both connections.
    pub(crate) encryption: Encryption,
}

/// A server that is handed over with its client.
#[derive(Debug)]
pub(crate) struct DepartingServer {
    pub(crate) fd: OwnedFd,
    /// Bytes of the server that were received, but not processed.
    pub(crate) early: Vec<u8>,
    pub(crate) shared: Arc<SharedPool>,
    /// The worker that counts the server until the handover is confirmed.
    pub(crate) worker: WorkerId,
}

impl DepartingServer {
    /// The other process has the server: notifies the worker that counts it.
    pub(crate) fn gone(self, mailboxes: &Mailboxes) {
        let Self { shared, worker, .. } = self;
        let word = TakeoverMail::Gone { shared, worker };
        mailboxes.send(worker, WorkerMessage::Mail(word.into()));
    }
}

/// A client that is taken over, or that comes back from a failed handover.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) record: Box<ClientRecord>,
    pub(crate) fd: OwnedFd,
    pub(crate) server: Option<OwnedFd>,
    /// Bytes of the server that the other process has received, but not processed.
    pub(crate) early: Vec<u8>,
    /// Bytes that the client's socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// The TLS states of both connections.
    pub(crate) encryption: Encryption,
}

/// The reason why the exchange with the other process failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error("the other process has ended")]
    Ended,
    #[error("the other process does not answer")]
    Silent,
    #[error("cannot exchange messages with the other process: {0}")]
    Io(#[source] io::Error),
    #[error("the other process sent a message that can't be parsed: {0}")]
    Frame(#[from] BadFrame),
    #[error("the running process refuses to hand over: {0}")]
    Refused(String),
    #[error("the other process sent an unexpected message")]
    Unexpected,
    #[error("the other process is another user's (uid {0})")]
    Stranger(u32),
    #[error(transparent)]
    Listen(#[from] crate::net::ListenError),
    #[error(transparent)]
    Process(#[from] crate::process::ProcessError),
}

impl From<io::Error> for TakeoverError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Ended,
            _ => Self::Io(error),
        }
    }
}

impl From<rustix::io::Errno> for TakeoverError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Returns the path of the socket on which a process with these settings is asked to hand over; `None` without
/// `unix_socket_dir` and pid file.
pub(crate) fn place(settings: &Settings) -> Option<PathBuf> {
    let dir = settings.unix_socket_dir.as_deref().unwrap_or_default();
    if !dir.is_empty() && !dir.starts_with('@') {
        let dir = dir.trim_end_matches('/');
        return Some(format!("{dir}/.s.PGWEIR.{}", settings.listen_port).into());
    }
    let pid_file = settings.pidfile.as_deref()?;
    Some(format!("{pid_file}.takeover").into())
}
