//! Online restart: the old process starts the new one.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use crossbeam_channel::Sender;
use pgweir_core::{
    Control, Level, Shutdown, TakeoverMail, WorkerId,
    shared::events::EventKind,
    takeover::{Begin, Message},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::supervisor::{Ending, Supervisor};
use crate::{
    net::{Listeners, WorkerMessage},
    takeover::{OtherProcess, Step, TakeoverSocket, busy},
};

/// The command line of this process, with which a new process is started.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Whether this process is a daemon, whose standard error is discarded.
    pub(crate) is_daemon: bool,
}

/// The largest number of bytes of a new process's last output that are logged.
const LAST_WORDS_MAX: usize = 4096;

/// The control thread's state of an online restart.
#[derive(Debug)]
pub(crate) struct Restart {
    pub(crate) program: Option<Program>,
    pub(crate) post: Option<Arc<TakeoverSocket>>,
    pub(crate) other_process: Arc<OtherProcess>,
    /// Whether a new process has begun to take over.
    pub(super) handing: bool,
    /// Workers without clients.
    pub(super) departed: BTreeSet<WorkerId>,
}

impl Restart {
    /// Creates the state without a restart in progress.
    pub(crate) fn new(
        program: Option<Program>,
        post: Option<Arc<TakeoverSocket>>,
        other_process: Arc<OtherProcess>,
    ) -> Self {
        Self {
            program,
            post,
            other_process,
            handing: false,
            departed: BTreeSet::new(),
        }
    }
}

/// Returns whether nobody reads standard error any more, since the process that started this one as a daemon has
/// exited.
fn nobody_listens() -> bool {
    let now = Timespec::default();
    let stderr = io::stderr();
    let mut stderr = [PollFd::new(&stderr, PollFlags::empty())];
    let polled = poll(&mut stderr, Some(&now));
    polled.is_ok() && stderr[0].revents().contains(PollFlags::ERR)
}

/// Reads a process's standard error until the process ends. Returns `None` if standard error is not a pipe to this
/// process.
fn last_words(child: &mut Child) -> Option<String> {
    let mut stderr = child.stderr.take()?;
    let mut words = Vec::new();
    let mut bytes = [0; LAST_WORDS_MAX];
    while let Ok(len @ 1..) = stderr.read(&mut bytes) {
        words.extend_from_slice(&bytes[..len]);
        words.drain(..words.len().saturating_sub(LAST_WORDS_MAX));
    }
    let words = String::from_utf8_lossy(&words);
    // The log has one line for the text.
    Some(words.trim().replace('\n', "; "))
}

impl Supervisor {
    /// Starts a new process that replaces this one.
    pub(super) fn restart(&mut self) {
        if self.restart.handing {
            return self.say(Level::Warning, "an online restart is under way already");
        }
        let (Some(program), Some(_)) = (self.restart.program.clone(), &self.restart.post) else {
            let text = "no online restart without a configuration file, and unix_socket_dir or pidfile in it";
            return self.say(Level::Warning, text);
        };
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .stdin(Stdio::null())
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS");
        if program.is_daemon || nobody_listens() {
            command.stderr(Stdio::piped());
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let path = program.path.display();
                return self.say(Level::Error, format!("cannot start {path}: {error}"));
            }
        };
        let text = format!("online restart: started process {}", child.id());
        self.note_event(EventKind::Restart, &text);
        self.say(Level::Log, text);
        let mut lines = self.logging.log.buffer();
        let clock = self.clock;
        // Waits for the process, so that it leaves no zombie if it fails.
        let wait = move || {
            let mut child = child;
            let words = last_words(&mut child);
            if let Ok(status) = child.wait()
                && !status.success()
            {
                let words = words.as_deref();
                let words = words.unwrap_or("its last words are where standard error goes");
                let text = format!("the new process has failed ({status}): {words}");
                lines.say(clock.now(), Level::Error, text);
            }
        };
        let builder = thread::Builder::new().name("new process".to_owned());
        if builder.spawn(wait).is_err() {
            self.say(Level::Warning, "cannot wait for the new process");
        }
    }

    /// Handles a step of an online restart.
    pub(super) fn takeover(&mut self, step: Step, ending: &mut Ending) {
        match step {
            Step::Begin(reply) => self.begin_takeover(&reply, ending),
            Step::Up(pid) => {
                self.notifier.main_pid(pid);
                self.http.thread.hand_over();
                let text =
                    format!("online restart: process {pid} accepts clients, ours leave for it");
                self.note_event(EventKind::Restart, &text);
                self.say(Level::Log, text);
            }
            Step::Failed(why) => self.takeover_failed(&why),
            Step::Waits(pid) => {
                let text = format!("a new process has to wait to take over: {}", busy(pid));
                self.say(Level::Log, text);
            }
            Step::Done => {
                self.say(Level::Log, "online restart: all clients have left, leaving");
                self.shut_down(Shutdown::Immediate, ending);
            }
        }
    }

    fn begin_takeover(&mut self, reply: &Sender<Result<Begin, String>>, ending: &Ending) {
        if ending.has_begun() {
            let _ = reply.send(Err("it is shutting down".to_owned()));
            return;
        }
        self.restart.handing = true;
        self.restart.departed.clear();
        self.listeners.set_given(true);
        if let Some(post) = &self.restart.post {
            post.set_given(true);
        }
        if let Some(file) = &mut self.pid_file {
            file.give();
        }
        let nowhere = Arc::new(Listeners::none());
        self.mailboxes
            .send_all(|| WorkerMessage::AcceptOn(Arc::clone(&nowhere)));
        let begin = self.directory.begin_departure();
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(TakeoverMail::BeginHandover.into()));
        // If the receiver is gone, a failure follows.
        let _ = reply.send(Ok(begin));
    }

    /// Handles the end of the new process: this process takes back its sockets, clients and pid file.
    fn takeover_failed(&mut self, why: &str) {
        let text = format!("online restart failed: {why}");
        self.note_event(EventKind::RestartFailed, &text);
        self.say(Level::Warning, text);
        let settings = &self.directory.snapshot().config.settings;
        if let Err(error) = self.http.thread.take_back(settings) {
            self.say(Level::Error, error.to_string());
        }
        if !std::mem::take(&mut self.restart.handing) {
            return;
        }
        self.listeners.set_given(false);
        if let Some(post) = &self.restart.post {
            post.set_given(false);
        }
        if let Some(file) = &mut self.pid_file
            && let Err(error) = file.take_back()
        {
            self.say(Level::Warning, error.to_string());
        }
        self.directory.end_departure();
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(TakeoverMail::CancelHandover.into()));
        let listeners = Arc::clone(&self.listeners);
        self.mailboxes
            .send_all(|| WorkerMessage::AcceptOn(Arc::clone(&listeners)));
        self.notifier.main_pid(std::process::id());
    }

    /// Handles messages of workers during an online restart.
    pub(super) fn handle_core_message(&mut self, control: Control) {
        match control {
            Control::Departed(worker) => {
                self.restart.departed.insert(worker);
                if self.restart.departed.len() == self.directory.workers() {
                    self.restart.other_process.set_last();
                }
            }
            Control::Held(note) => self.restart.other_process.say(&Message::Held(note)),
            Control::Want(note) => self.restart.other_process.say(&Message::Want(note)),
            Control::Lend(note) => self.restart.other_process.say(&Message::Lend(note)),
            Control::CancelElsewhere(key) => self.restart.other_process.say(&Message::cancel(&key)),
            _ => {}
        }
    }
}
