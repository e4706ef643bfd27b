//! Online restart: the new process, which takes over.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use pgweir_core::{
    Directory, Level, TakeoverMail, WorkerId, console,
    shared::cancel::CancelKey,
    takeover::{Begin, ListenerNote, Message, VERSION},
};

use super::{
    Arriving, OtherProcess, TakeoverError, TakeoverSocket,
    channel::Channel,
    old_process::{cancel_here, listening},
};
use crate::{
    clock::Clock,
    log::LogBuffer,
    net::{ListenPlan, Listeners, Mailboxes, SocketOptions, WorkerMessage},
};

/// The time that the running process has to reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit during the handover, in which there may be no message for any length of time.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The running process has offered to hand over.
#[derive(Debug)]
pub(crate) struct NewProcess {
    channel: Channel,
    place: PathBuf,
    pid: u32,
    generation: u8,
    notes: Vec<ListenerNote>,
    descriptors: Vec<OwnedFd>,
}

/// The state that the old process has sent.
#[derive(Debug)]
pub(crate) struct Inheritance {
    channel: Channel,
    /// The old process's pid.
    pid: u32,
    /// The number of restarts before this process, modulo 256.
    pub(crate) generation: u8,
    pub(crate) begin: Begin,
}

impl NewProcess {
    /// Connects to the running process; `None` if there is none.
    ///
    /// # Errors
    /// The running process can't be reached, or refuses.
    pub(crate) fn call(place: PathBuf) -> Result<Option<Self>, TakeoverError> {
        let socket = match UnixStream::connect(&place) {
            Ok(socket) => socket,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut channel = Channel::new(socket)?;
        channel.set_timeouts(PATIENCE, PATIENCE)?;
        let hello = Message::Hello {
            version: VERSION,
            program: console::VERSION.to_owned(),
        };
        channel.send(&hello, &[])?;
        match channel.receive()? {
            (
                Message::Offer {
                    pid,
                    generation,
                    listeners,
                },
                descriptors,
            ) => Ok(Some(Self {
                channel,
                place,
                pid,
                generation,
                notes: listeners,
                descriptors,
            })),
            (Message::Refused(why), _) => Err(TakeoverError::Refused(why)),
            _ => Err(TakeoverError::Unexpected),
        }
    }

    /// Returns the pid of the running process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the old process's sockets, as far as this process's configuration has the same addresses, and opens the
    /// others.
    ///
    /// # Errors
    ///
    /// A socket can't be used, or opened.
    pub(crate) fn listeners(
        &mut self,
        plan: &ListenPlan,
        options: &SocketOptions,
    ) -> Result<(TakeoverSocket, Listeners, Vec<String>), TakeoverError> {
        let mut descriptors = std::mem::take(&mut self.descriptors).into_iter();
        let post = descriptors.next().ok_or(TakeoverError::Unexpected)?;
        let post = TakeoverSocket::inherited(post, self.place.clone())?;
        // Until the handover has begun, this process must not remove the socket's file.
        post.set_given(true);
        let lent = self.notes.iter().skip(1).map(|note| note.is_lent);
        let (listeners, notes) = Listeners::inherit(plan, options, descriptors.zip(lent))?;
        Ok((post, listeners, notes))
    }

    /// Reports that this process is ready: the running process stops accepting clients.
    ///
    /// # Errors
    ///
    /// The running process has refused, or ended.
    pub(crate) fn begin(mut self) -> Result<Inheritance, TakeoverError> {
        self.channel.send(&Message::Ready, &[])?;
        match self.channel.receive()?.0 {
            Message::Begin(begin) => Ok(Inheritance {
                channel: self.channel,
                pid: self.pid,
                generation: self.generation.wrapping_add(1),
                begin,
            }),
            Message::Refused(why) => Err(TakeoverError::Refused(why)),
            _ => Err(TakeoverError::Unexpected),
        }
    }
}

impl Inheritance {
    /// Applies the operators' orders and the counts of servers to this process.
    pub(crate) fn pass_to(&self, directory: &Directory) {
        let operator = directory.operator();
        let begin = &self.begin;
        if begin.is_paused {
            // No operator can have given an order to this process yet.
            let _ = operator.pause();
        } else {
            let _ = operator.pause_databases(begin.paused.iter().cloned());
        }
        for name in &begin.disabled {
            operator.set_disabled(name, true);
        }
        directory.inherit(&begin.pools);
    }

    /// Takes clients over, now that the workers run, until the old process has ended.
    ///
    /// # Errors
    ///
    /// The old process has ended already, or the system can't start a thread.
    pub(crate) fn take_in(
        self,
        directory: Arc<Directory>,
        mailboxes: Mailboxes,
        other_process: Arc<OtherProcess>,
        mut lines: LogBuffer,
        clock: Clock,
    ) -> Result<(), TakeoverError> {
        let mut channel = self.channel;
        let pid = std::process::id();
        channel.send(&Message::Up { pid }, &[])?;
        channel.set_timeouts(FOREVER, PATIENCE)?;
        let _ = other_process.found(channel.sender()?, Some(self.pid));
        let builder = thread::Builder::new().name("arrivals".to_owned());
        let listen = move || {
            let count = receive(&mut channel, &directory, &mailboxes, &other_process);
            let alone = WorkerMessage::Mail(TakeoverMail::Alone.into());
            directory.set_partner(false);
            other_process.old_process_gone();
            mailboxes.send(WorkerId(0), alone);
            let text =
                format!("the process before this one has ended; {count} clients came from it");
            lines.say(clock.now(), Level::Log, text);
        };
        builder.spawn(listen)?;
        Ok(())
    }
}

/// Receives all messages to the end, and returns how many clients were taken over.
fn receive(
    channel: &mut Channel,
    directory: &Directory,
    mailboxes: &Mailboxes,
    other_process: &OtherProcess,
) -> u64 {
    let workers = directory.workers();
    let mut count = 0;
    while let Ok((message, descriptors)) = channel.receive() {
        match message {
            Message::Client {
                record,
                unsent,
                encryption,
                early,
            } => {
                let mut descriptors = descriptors.into_iter();
                let Some(fd) = descriptors.next() else {
                    break;
                };
                let server = descriptors.next();
                // From now on the client belongs to this process, even if this process fails. If the old process has
                // given up, it has taken the client back: two processes must never use one connection, nor its keys.
                if !other_process.confirms(count + 1) {
                    break;
                }
                count += 1;
                let to = record.cancel_key().worker(workers);
                let client = Arriving {
                    record,
                    fd,
                    server,
                    early,
                    unsent,
                    encryption,
                };
                mailboxes.send(to, WorkerMessage::Arrived(client));
            }
            Message::Held(note) => {
                let mail = TakeoverMail::OldProcessServers(note).into();
                mailboxes.send(WorkerId(0), WorkerMessage::Mail(mail));
            }
            Message::Want(note) => {
                let mail = TakeoverMail::PlaceRequested(note).into();
                mailboxes.send(WorkerId(0), WorkerMessage::Mail(mail));
            }
            Message::Listen { pid, secret, note } => {
                listening(mailboxes, workers, pid, secret, note);
            }
            Message::Cancel { pid, secret } => {
                let secret = secret.into();
                cancel_here(mailboxes, workers, CancelKey { pid, secret });
            }
            _ => break,
        }
    }
    count
}
