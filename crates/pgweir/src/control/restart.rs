//! Online restart: the process that goes starts the one that comes.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use crossbeam_channel::Sender;
use pgweir_core::{
    Control, Level, Shutdown, Word, WorkerId,
    takeover::{Begin, Message},
};

use super::supervisor::{Ending, Supervisor};
use crate::{
    net::{Listeners, Parcel},
    takeover::{Partner, Post, Step},
};

/// How this process was started: a new one is started the same way.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// An online restart, as the control thread sees it.
#[derive(Debug)]
pub(crate) struct Restart {
    pub(crate) program: Option<Program>,
    pub(crate) post: Option<Arc<Post>>,
    pub(crate) partner: Arc<Partner>,
    /// A new process has begun to take over.
    pub(super) handing: bool,
    /// Workers without clients.
    pub(super) departed: BTreeSet<WorkerId>,
}

impl Restart {
    /// None is under way.
    pub(crate) fn new(
        program: Option<Program>,
        post: Option<Arc<Post>>,
        partner: Arc<Partner>,
    ) -> Self {
        Self {
            program,
            post,
            partner,
            handing: false,
            departed: BTreeSet::new(),
        }
    }
}

impl Supervisor {
    /// Starts a new process that takes the place of this one.
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
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let path = program.path.display();
                return self.say(Level::Error, format!("cannot start {path}: {error}"));
            }
        };
        self.say(
            Level::Log,
            format!("online restart: started process {}", child.id()),
        );
        let mut lines = self.log.buffer();
        let clock = self.clock;
        // Waits for it, so that it leaves nothing behind should it fail.
        let wait = move || {
            let mut child = child;
            if let Ok(status) = child.wait()
                && !status.success()
            {
                let text = format!(
                    "the new process has failed ({status}): its last words are where standard error goes"
                );
                lines.say(clock.now(), Level::Error, text);
            }
        };
        let builder = thread::Builder::new().name("heir".to_owned());
        if builder.spawn(wait).is_err() {
            self.say(Level::Warning, "cannot wait for the new process");
        }
    }

    /// What becomes of an online restart.
    pub(super) fn takeover(&mut self, step: Step, ending: &mut Ending) {
        match step {
            Step::Begin(reply) => self.begin_takeover(&reply, ending),
            Step::Up(pid) => {
                self.notifier.main_pid(pid);
                let text =
                    format!("online restart: process {pid} accepts clients, ours leave for it");
                self.say(Level::Log, text);
            }
            Step::Failed(why) => self.takeover_failed(&why),
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
            .send_all(|| Parcel::AcceptOn(Arc::clone(&nowhere)));
        let begin = self.directory.begin_departure();
        self.mailboxes
            .send_all(|| Parcel::Mail(Word::Depart.into()));
        // If nobody waits for it any more, a failure follows.
        let _ = reply.send(Ok(begin));
    }

    /// The new process is gone: all is ours again.
    fn takeover_failed(&mut self, why: &str) {
        self.say(Level::Warning, format!("online restart failed: {why}"));
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
        self.mailboxes.send_all(|| Parcel::Mail(Word::Stay.into()));
        let listeners = Arc::clone(&self.listeners);
        self.mailboxes
            .send_all(|| Parcel::AcceptOn(Arc::clone(&listeners)));
        self.notifier.main_pid(std::process::id());
    }

    /// What workers say during an online restart.
    pub(super) fn heard_from_core(&mut self, control: Control) {
        match control {
            Control::Departed(worker) => {
                self.restart.departed.insert(worker);
                if self.restart.departed.len() == self.directory.workers() {
                    self.restart.partner.set_last();
                }
            }
            Control::Held(note) => self.restart.partner.say(&Message::Held(note)),
            Control::Want(note) => self.restart.partner.say(&Message::Want(note)),
            Control::Lend(note) => self.restart.partner.say(&Message::Lend(note)),
            Control::CancelElsewhere(key) => self.restart.partner.say(&Message::cancel(&key)),
            _ => {}
        }
    }
}
