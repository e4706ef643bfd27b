//! Online restart: the thread of the old process, which hands over.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use pgweir_core::{
    Directory, Halt, TakeoverMail, WorkerId,
    mail::Mail,
    shared::cancel::{CancelKey, ELSEWHERE},
    takeover::{Begin, ListenNote, ListenerNote, Message, VERSION},
};

use super::{
    Arriving, Departing, DepartingServer, OtherProcess, Outgoing, TakeoverError, TakeoverSocket,
    channel::{Channel, DESCRIPTORS_MAX},
};
use crate::{
    clock::Clock,
    control::Request,
    net::{Listeners, Mailboxes, WorkerMessage},
};

/// The time that the new process has for each step of its start.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two checks whether all clients were confirmed, once the last one was sent.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(100);

/// The messages to the control thread about an online restart.
#[derive(Debug)]
pub(crate) enum Step {
    /// A new process can take over: stop accepting clients, and return the state for it.
    Begin(Sender<Result<Begin, String>>),
    /// The new process accepts clients.
    Up(u32),
    /// The new process is gone: go on serving.
    Failed(String),
    /// The new process has confirmed all clients.
    Done,
    /// A new process has to wait until this older one has ended.
    Waits(u32),
}

/// The state of the thread that waits for new processes.
#[derive(Debug)]
pub(crate) struct OldProcess {
    pub(crate) post: Arc<TakeoverSocket>,
    /// Weak: this thread must not keep the sockets open, or their files in place.
    pub(crate) listeners: Weak<Listeners>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) control: Sender<Request>,
    pub(crate) other_process: Arc<OtherProcess>,
    pub(crate) departures: Receiver<Outgoing>,
    pub(crate) clock: Clock,
}

impl OldProcess {
    /// Starts the threads, which end with the process.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub(crate) fn start(self) -> io::Result<()> {
        let (other_process, mailboxes) = (Arc::clone(&self.other_process), self.mailboxes.clone());
        let departures = self.departures.clone();
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("departures").spawn(move || {
            for outgoing in departures {
                match outgoing {
                    Outgoing::Client(client) => {
                        if let Err(client) = other_process.send(client) {
                            take_back(*client, &mailboxes);
                        }
                    }
                    Outgoing::Listening(key, note) => {
                        other_process.say(&Message::listen(&key, note))
                    }
                    Outgoing::NoMore(worker) => {
                        mailboxes.send(worker, WorkerMessage::Mail(TakeoverMail::AllBack.into()));
                    }
                }
            }
        })?;
        named("takeover").spawn(move || self.serve()).map(drop)
    }

    fn serve(self) {
        loop {
            let stream = match self.post.accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let why =
                        format!("this process can't be asked for a handover any more: {error}");
                    return self.tell(Step::Failed(why));
                }
            };
            let outcome = Channel::new(stream).and_then(|mut channel| {
                let outcome = self.hand_over(&mut channel);
                if outcome.is_err() {
                    self.gone(self.other_process.end(&mut channel));
                }
                outcome.map(|()| channel)
            });
            let error = match outcome {
                Err(error) => error,
                // The connection stays open until the process ends: until then the new process counts this one's
                // servers.
                Ok(_channel) => loop {
                    thread::park();
                },
            };
            // The clients are back before the workers learn that the handover has ended.
            for client in self.other_process.new_process_gone() {
                take_back(client, &self.mailboxes);
            }
            self.tell(Step::Failed(error.to_string()));
        }
    }

    /// Hands over all clients. After success, no client is left in this process.
    fn hand_over(&self, channel: &mut Channel) -> Result<(), TakeoverError> {
        channel.set_timeouts(PATIENCE, PATIENCE)?;
        if let Err(why) = self.greet(channel)? {
            channel.send(&Message::Refused(why.clone()), &[])?;
            return Err(TakeoverError::Refused(why));
        }
        let Message::Ready = channel.receive()?.0 else {
            return Err(TakeoverError::Unexpected);
        };
        self.begin(channel)?;
        let pid = loop {
            match channel.receive()?.0 {
                Message::Up { pid } => break pid,
                Message::Received(count) => self.arrived(count),
                _ => return Err(TakeoverError::Unexpected),
            }
        };
        self.tell(Step::Up(pid));
        self.listen_to(channel)
    }

    /// Lets the control thread begin the handover, and sends `Begin` before clients are sent.
    fn begin(&self, channel: &Channel) -> Result<(), TakeoverError> {
        let sender = self.other_process.found(channel.sender()?, None);
        let sender = sender.lock();
        let (reply, answer) = bounded(1);
        self.tell(Step::Begin(reply));
        match answer.recv_timeout(PATIENCE) {
            Ok(Ok(begin)) => sender.send(&Message::Begin(begin), &[]),
            Ok(Err(why)) => {
                sender.send(&Message::Refused(why.clone()), &[])?;
                Err(TakeoverError::Refused(why))
            }
            Err(_) => Err(TakeoverError::Silent),
        }
    }

    /// Checks the new process's version, and offers the listening sockets.
    fn greet(&self, channel: &mut Channel) -> Result<Result<(), String>, TakeoverError> {
        let Message::Hello { version, program } = channel.receive()?.0 else {
            return Err(TakeoverError::Unexpected);
        };
        if version != VERSION {
            let why = format!("{program} speaks version {version} of the takeover, not {VERSION}");
            return Ok(Err(why));
        }
        let operator = self.directory.operator();
        if operator.is_ending() {
            return Ok(Err("it is shutting down".to_owned()));
        }
        if let Some(why) = self.is_occupied() {
            return Ok(Err(why));
        }
        if operator.halt() == Halt::Suspended {
            return Ok(Err("it is suspended: RESUME first".to_owned()));
        }
        let mut notes = vec![ListenerNote { is_lent: false }];
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.post.as_fd()];
        let Some(listeners) = self.listeners.upgrade() else {
            return Ok(Err("it is shutting down".to_owned()));
        };
        for listener in listeners.iter() {
            notes.push(ListenerNote {
                is_lent: listener.is_lent(),
            });
            descriptors.push(listener.as_fd());
        }
        if descriptors.len() > DESCRIPTORS_MAX {
            return Ok(Err("it listens on too many addresses".to_owned()));
        }
        let offer = Message::Offer {
            pid: std::process::id(),
            generation: self.directory.generation(),
            listeners: notes,
        };
        channel.send(&offer, &descriptors)?;
        Ok(Ok(()))
    }

    /// Returns the reason if no process can take over yet. Waits a while for the end of an older process.
    fn is_occupied(&self) -> Option<String> {
        let old_process = self.other_process.old_process();
        if let Some(pid) = old_process {
            self.tell(Step::Waits(pid));
            self.other_process.wait_for_end(PATIENCE / 3);
        }
        let reason = || match old_process {
            Some(pid) => busy(pid),
            None => "another online restart is under way".to_owned(),
        };
        self.directory.has_partner().then(reason)
    }

    /// Receives the new process's messages while clients are handed over.
    fn listen_to(&self, channel: &mut Channel) -> Result<(), TakeoverError> {
        let began = self.clock.now();
        let mut is_over = false;
        channel.set_timeouts(FIRST_MESSAGE_TIMEOUT, PATIENCE)?;
        loop {
            match channel.receive() {
                Ok((Message::Received(count), _)) => self.arrived(count),
                Ok((Message::Lend(note), _)) => {
                    let mail = TakeoverMail::PlaceLent(note).into();
                    self.mailboxes.send(WorkerId(0), WorkerMessage::Mail(mail));
                }
                Ok((Message::Listen { pid, secret, note }, _)) => {
                    listening(&self.mailboxes, self.directory.workers(), pid, secret, note);
                }
                Ok((Message::Cancel { pid, secret }, _)) => {
                    let secret = secret.into();
                    self.cancel(CancelKey { pid, secret });
                }
                Ok(_) => return Err(TakeoverError::Unexpected),
                Err(TakeoverError::Silent) => {}
                Err(error) => return Err(error),
            }
            if self.departures.is_empty() && self.other_process.has_all() {
                self.tell(Step::Done);
                return Ok(());
            }
            let patience = self.directory.snapshot().config.settings.takeover_timeout.0;
            if patience > 0 && !is_over && self.clock.now().since(began) >= patience {
                is_over = true;
                self.mailboxes
                    .send_all(|| WorkerMessage::Mail(TakeoverMail::HandoverTimeout.into()));
            }
        }
    }

    /// Handles the message that the new process has confirmed this number of clients since the handover began.
    fn arrived(&self, count: u64) {
        self.gone(self.other_process.received(count));
    }

    /// Notes that the new process has these servers.
    fn gone(&self, servers: Vec<DepartingServer>) {
        for server in servers {
            server.gone(&self.mailboxes);
        }
    }

    fn cancel(&self, key: CancelKey) {
        cancel_here(&self.mailboxes, self.directory.workers(), key);
    }

    fn tell(&self, step: Step) {
        // The control thread outlives this one, unless the process is ending.
        let _ = self.control.send(Request::Takeover(step));
    }
}

/// Returns the reason why the next online restart has to wait.
pub(crate) fn busy(pid: u32) -> String {
    format!(
        "process {pid}, of the last online restart, still has clients: until they leave or takeover_timeout, or until \
         SIGQUIT ends it, and them"
    )
}

/// Handles a cancel request that the other process has received.
pub(super) fn cancel_here(mailboxes: &Mailboxes, workers: usize, key: CancelKey) {
    let mail = Mail::Cancel {
        from: WorkerId(0),
        request: ELSEWHERE,
        key,
    };
    if let Mail::Cancel { key, .. } = &mail {
        let to = key.worker(workers);
        mailboxes.send(to, WorkerMessage::Mail(mail));
    }
}

/// Passes a note about a client that uses LISTEN to the worker that has, or had, the client.
pub(super) fn listening(
    mailboxes: &Mailboxes,
    workers: usize,
    pid: u32,
    secret: Vec<u8>,
    note: ListenNote,
) {
    let secret = secret.into();
    let key = CancelKey { pid, secret };
    let to = key.worker(workers);
    let word = TakeoverMail::Listening { key, note };
    mailboxes.send(to, WorkerMessage::Mail(word.into()));
}

/// Gives a client that could not be handed over back to one of this process's workers.
fn take_back(client: Departing, mailboxes: &Mailboxes) {
    let workers = mailboxes.workers().count();
    let to = client.record.returns_to(client.worker, workers);
    let Departing {
        record,
        fd,
        worker: _,
        server,
        unsent,
        encryption,
    } = client;
    let mut early = Vec::new();
    let counted = |server: DepartingServer| {
        early = server.early;
        let DepartingServer { shared, worker, .. } = server;
        (server.fd, TakeoverMail::Gone { shared, worker })
    };
    let (server, gone) = server.map(counted).unzip();
    let client = Arriving {
        record,
        fd,
        server,
        early,
        unsent,
        encryption,
    };
    mailboxes.send(to, WorkerMessage::Arrived(client));
    // The server is counted at its new place before its old count is removed.
    if let Some(word) = gone {
        mailboxes.send(to, WorkerMessage::Mail(word.into()));
    }
}
