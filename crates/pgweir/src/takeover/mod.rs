//! Online restart: a new process takes the place of a running one, with its sockets and its clients.
//!
//! Both speak over a Unix socket that belongs to the running process (`.s.PGWEIR.PORT` in
//! `unix_socket_dir`, or `PIDFILE.takeover`), in the words of [`pgweir_core::takeover`]; descriptors go
//! along. Only processes of the same user are answered.
//!
//! - `channel`: frames and descriptors on a socket. `post`: where a running process is asked.
//! - `elder`: the process that goes. `heir`: the one that comes.
//! - `partner`: the other process, as the rest of this one reaches it.

mod channel;
mod elder;
mod heir;
mod partner;
mod post;

use std::{io, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use pgweir_config::Settings;
use pgweir_core::{
    SharedPool, Word, WorkerId,
    cancel::CancelKey,
    takeover::{BadFrame, ClientRecord, ListenNote},
};

use crate::net::{Mailboxes, Parcel};

pub(crate) use self::{
    elder::{Elder, Step, busy},
    heir::{Heir, Inheritance},
    partner::Partner,
    post::Post,
};

/// What goes to the other process, in this order.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A client leaves.
    Client(Departing),
    /// Of a client that has left before.
    Listening(CancelKey, ListenNote),
    /// Clients of this worker leave no more: it is to know when those that come back are back.
    NoMore(WorkerId),
}

/// A client that leaves this process.
#[derive(Debug)]
pub(crate) struct Departing {
    pub(crate) record: Box<ClientRecord>,
    pub(crate) fd: OwnedFd,
    /// Its server, which it takes along.
    pub(crate) server: Option<Companion>,
    /// What the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
}

/// A server that goes along with its client.
#[derive(Debug)]
pub(crate) struct Companion {
    pub(crate) fd: OwnedFd,
    pub(crate) shared: Arc<SharedPool>,
    /// The worker that counts it until it has arrived.
    pub(crate) worker: WorkerId,
}

impl Companion {
    /// It is the other process's: who counted it is told.
    fn gone(self, mailboxes: &Mailboxes) {
        let Self { shared, worker, .. } = self;
        let word = Word::Gone { shared, worker };
        mailboxes.send(worker, Parcel::Mail(word.into()));
    }
}

/// A client that comes from another process, or back from its way there.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) record: Box<ClientRecord>,
    pub(crate) fd: OwnedFd,
    pub(crate) server: Option<OwnedFd>,
    /// What the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
}

/// Why the other process can't be talked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error("the other process has ended")]
    Ended,
    #[error("the other process does not answer")]
    Silent,
    #[error("talking to the other process: {0}")]
    Io(#[source] io::Error),
    #[error("the other process says something that is not understood: {0}")]
    Frame(#[from] BadFrame),
    #[error("the running process refuses to hand over: {0}")]
    Refused(String),
    #[error("the other process says something else than it should")]
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

/// Where a process with these settings is asked to hand over; nowhere if it has neither a folder for
/// sockets nor a pid file.
pub(crate) fn place(settings: &Settings) -> Option<PathBuf> {
    let dir = settings.unix_socket_dir.as_deref().unwrap_or_default();
    if !dir.is_empty() && !dir.starts_with('@') {
        let dir = dir.trim_end_matches('/');
        return Some(format!("{dir}/.s.PGWEIR.{}", settings.listen_port).into());
    }
    let pid_file = settings.pidfile.as_deref()?;
    Some(format!("{pid_file}.takeover").into())
}
