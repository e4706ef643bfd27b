//! The control thread: passes signals and requests of the console to the workers, and waits for them to end.

use std::{fmt, path::Path, process::ExitCode, sync::Arc, time::Duration};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use pgweir_config::{AuthType, Changes, Entries, Settings};
use pgweir_core::{
    Control, Directory, Halt, Level, Shutdown, Snapshot, Stats, Time, Token, WorkerId,
    base::fault::Fault,
    mail::{Mail, Note},
    shared::events::EventKind,
};

use super::{
    ConfigSource, EntryChange, EntryStore, Fleet, NodesOrder, Patroni, PatroniAccess, Resolver,
    Restart, Signal, StatsReport, credentials, etcd_entries::EtcdEntries, http_tokens, load,
    net_options,
};
use crate::{
    clock::Clock,
    http::{Http, Opened, Options, Tokens},
    log::{Log, LogBuffer},
    net::{Listeners, Mailboxes, WorkerMessage, return_freed_memory},
    process::{FileLimit, Notifier, PidFile},
    takeover::Step,
    tls::Contexts,
};

/// The time that workers have to end at an immediate shutdown.
const IMMEDIATE: Duration = Duration::from_secs(5);

/// PgBouncer's message for TLS settings that do not fit each other.
const OLD_TLS: &str = "TLS settings could not be applied, still using old configuration";

/// A message to the control thread.
#[derive(Debug)]
pub(crate) enum Request {
    Signal(Signal),
    /// The contents of the configuration's files have changed (`config_watch`).
    FilesChanged,
    /// A request of the console.
    Core(Control),
    /// A change of a database or user by the HTTP API.
    ChangeEntry(EntryChange),
    /// A command for all nodes of the fleet by the HTTP API.
    OrderNodes(Box<NodesOrder>),
    /// The entries in etcd, at the start and after each change.
    EtcdEntries(EtcdEntries),
    /// The reason why the entries in etcd can't be read.
    EtcdEntriesFailed(String),
    /// The next step of an online restart.
    Takeover(Step),
    /// A worker's thread has ended. `error` is the reason, if that was not a shutdown.
    Ended {
        worker: WorkerId,
        error: Option<String>,
    },
}

/// Everything that the control thread manages.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) source: ConfigSource,
    pub(crate) directory: Arc<Directory>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) listeners: Arc<Listeners>,
    /// The log, and the messages that are repeated at intervals.
    pub(crate) logging: Logging,
    pub(crate) clock: Clock,
    pub(crate) requests: Receiver<Request>,
    pub(crate) notifier: Notifier,
    pub(crate) files: FileLimit,
    /// The TLS contexts of both sides.
    pub(crate) tls: Contexts,
    /// The HTTP thread.
    pub(crate) http: HttpControl,
    pub(crate) patroni: Patroni,
    pub(crate) fleet: Fleet,
    /// The pid file, which is removed at the end.
    pub(crate) pid_file: Option<PidFile>,
    pub(crate) restart: Restart,
}

/// The log, and the messages that are repeated at intervals.
#[derive(Debug)]
pub(crate) struct Logging {
    pub(crate) log: Log,
    pub(crate) lines: LogBuffer,
    /// The number of `-v` options.
    pub(crate) verbose: i32,
    pub(crate) stats: StatsReport,
}

impl Logging {
    /// `began`: when the process began, and with which settings.
    pub(crate) fn new(log: Log, lines: LogBuffer, verbose: i32, began: (Time, &Settings)) -> Self {
        Self {
            log,
            lines,
            verbose,
            stats: StatsReport::of(began.0, began.1),
        }
    }
}

/// The HTTP thread, its tokens, and the changes of entries that came through its API or from etcd.
#[derive(Debug)]
pub(crate) struct HttpControl {
    pub(crate) thread: Http,
    pub(crate) tokens: Option<Arc<Tokens>>,
    /// The changes by the HTTP API since the ini file was read; with `config_etcd`, those in etcd.
    pub(crate) changes: Changes,
    /// The changes that `api_config_file` has.
    pub(crate) saved: Changes,
    /// The entries of the ini file itself, if `config_etcd` is set.
    pub(crate) file_entries: Entries,
    /// The thread for the entries in etcd.
    pub(crate) entry_store: EntryStore,
}

impl HttpControl {
    /// `changes`: those that `api_config_file` has.
    pub(crate) fn new(
        thread: Http,
        tokens: Option<Arc<Tokens>>,
        (changes, file_entries): (Changes, Entries),
        entry_store: EntryStore,
    ) -> Self {
        Self {
            thread,
            tokens,
            saved: changes.clone(),
            changes,
            file_entries,
            entry_store,
        }
    }
}

/// The progress of a shutdown.
#[derive(Debug)]
pub(super) struct Ending {
    workers_left: usize,
    shutdown: Option<Shutdown>,
    code: ExitCode,
}

impl Ending {
    /// Returns whether a shutdown was requested.
    pub(super) fn has_begun(&self) -> bool {
        self.shutdown.is_some()
    }

    fn is_immediate(&self) -> bool {
        self.shutdown == Some(Shutdown::Immediate)
    }
}

impl Supervisor {
    /// Runs until all workers have ended. Returns `None` if some of them did not end in time.
    pub(crate) fn run(mut self) -> Option<ExitCode> {
        let mut ending = Ending {
            workers_left: self.directory.workers(),
            shutdown: None,
            code: ExitCode::SUCCESS,
        };
        while ending.workers_left > 0 {
            match self.next_request(&ending) {
                Ok(Request::Signal(signal)) => self.on_signal(signal, &mut ending),
                Ok(Request::Core(Control::Reload { worker, console })) => {
                    self.reload(Some((worker, console)))
                }
                Ok(Request::Core(Control::Set {
                    worker,
                    console,
                    key,
                    value,
                })) => {
                    let outcome = self.set(&key, &value);
                    self.report(worker, console, outcome);
                }
                Ok(Request::Core(Control::Names { worker, console })) => {
                    let mail = Mail::Names {
                        console,
                        names: self.resolver.known(),
                    };
                    self.mailboxes.send(worker, WorkerMessage::Mail(mail));
                }
                Ok(Request::Core(Control::RefreshNames)) => self.resolver.refresh(),
                Ok(Request::Core(Control::ReturnMemory)) => return_freed_memory(),
                Ok(Request::Core(Control::Shutdown(how))) => self.shut_down(how, &mut ending),
                Ok(Request::Core(Control::Counted(stats))) => self.counted(&stats),
                Ok(Request::Core(Control::Measured(metrics))) => self.http.thread.measured(metrics),
                Ok(Request::Core(Control::Restart)) => self.restart(),
                Ok(Request::Core(
                    control @ (Control::FleetRound(_)
                    | Control::FleetCounted(_)
                    | Control::OrderNodes(_)),
                )) => self.fleet.handle_core_message(control),
                Ok(Request::Core(
                    control @ (Control::Departed(_)
                    | Control::Held(_)
                    | Control::Want(_)
                    | Control::Lend(_)
                    | Control::CancelElsewhere(_)),
                )) => self.handle_core_message(control),
                Ok(Request::FilesChanged) => self.reload_changed_files(ending.has_begun()),
                Ok(Request::ChangeEntry(change)) => {
                    self.change_entry(change, ending.has_begun());
                }
                Ok(Request::OrderNodes(order)) => self.fleet.order_nodes(*order),
                Ok(Request::EtcdEntries(entries)) => {
                    self.take_etcd_entries(entries, ending.has_begun());
                }
                Ok(Request::EtcdEntriesFailed(failure)) => self.note_etcd_entries_failed(&failure),
                Ok(Request::Takeover(step)) => self.takeover(step, &mut ending),
                Ok(Request::Ended { worker, error }) => self.on_ended(worker, error, &mut ending),
                Err(RecvTimeoutError::Timeout) if !ending.is_immediate() => self.ask_for_stats(),
                Err(RecvTimeoutError::Timeout) => {
                    self.say(
                        Level::Warning,
                        "workers did not end in time, leaving without them",
                    );
                    return None;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(post) = &self.restart.post {
            post.remove();
        }
        Some(ending.code)
    }

    fn next_request(&self, ending: &Ending) -> Result<Request, RecvTimeoutError> {
        if ending.is_immediate() {
            self.requests.recv_timeout(IMMEDIATE)
        } else if self.wants_stats() {
            let wait_us = self.logging.stats.due().since(self.clock.now());
            self.requests.recv_timeout(Duration::from_micros(wait_us))
        } else {
            self.requests
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected)
        }
    }

    fn wants_stats(&self) -> bool {
        let snapshot = self.directory.snapshot();
        snapshot.config.settings.log_stats || self.notifier.is_listening()
    }

    fn ask_for_stats(&mut self) {
        let period_us = stats_period_us(&self.directory.snapshot().config.settings);
        let workers = self.directory.workers();
        self.logging.stats.ask(workers, self.clock.now(), period_us);
        self.mailboxes.send_all(|| WorkerMessage::Mail(Mail::Count));
    }

    fn counted(&mut self, stats: &Stats) {
        let Some(line) = self.logging.stats.add(stats, self.clock.now()) else {
            return;
        };
        self.notifier.status(&line);
        if self.directory.snapshot().config.settings.log_stats {
            self.say(Level::Log, line);
        }
    }

    fn on_signal(&mut self, signal: Signal, ending: &mut Ending) {
        self.note_event(EventKind::Signal, signal.name());
        let down = ending.shutdown.is_some();
        match signal {
            Signal::Hup if down => self.say(Level::Log, "got SIGHUP while shutting down, ignoring"),
            Signal::Hup => {
                self.say(Level::Log, "got SIGHUP, re-reading config");
                self.reload(None);
            }
            Signal::Term if down => {
                self.say(Level::Log, "got SIGTERM while shutting down, fast exit");
                self.shut_down(Shutdown::Immediate, ending);
            }
            Signal::Term => {
                self.say(
                    Level::Log,
                    "got SIGTERM, shutting down, waiting for all clients disconnect",
                );
                self.shut_down(Shutdown::WaitForClients, ending);
            }
            Signal::Int if down => {
                self.say(Level::Log, "got SIGINT while shutting down, fast exit");
                self.shut_down(Shutdown::Immediate, ending);
            }
            Signal::Int => {
                let text =
                    "got SIGINT, shutting down, waiting for all servers connections to be released";
                self.say(Level::Log, text);
                self.shut_down(Shutdown::WaitForServers, ending);
            }
            Signal::Quit => {
                self.say(Level::Log, "got SIGQUIT, fast exit");
                self.shut_down(Shutdown::Immediate, ending);
            }
            Signal::Alrm if down => {
                self.say(Level::Log, "got SIGALRM while shutting down, ignoring");
            }
            Signal::Alrm => {
                self.say(Level::Log, "got SIGALRM, online restart");
                self.restart();
            }
            Signal::Usr1 => self.pause(),
            Signal::Usr2 if down => {
                self.say(Level::Log, "got SIGUSR2 while shutting down, ignoring");
            }
            Signal::Usr2 => self.resume(),
        }
    }

    fn pause(&mut self) {
        let text = match self.directory.operator().pause() {
            Ok(()) => "got SIGUSR1, pausing all activity",
            Err(_) => "got SIGUSR1, but already paused/suspended",
        };
        self.say(Level::Log, text);
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::OperatorOrders));
    }

    fn resume(&mut self) {
        let text = match self.directory.operator().resume() {
            Ok(Halt::Suspended) => "got SIGUSR2, continuing from SUSPEND",
            Ok(_) => "got SIGUSR2, continuing from PAUSE",
            Err(_) => "got SIGUSR2, but not paused/suspended",
        };
        self.say(Level::Log, text);
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::OperatorOrders));
    }

    /// Stops accepting clients and starts a shutdown. A milder request than the last one is ignored.
    pub(super) fn shut_down(&mut self, how: Shutdown, ending: &mut Ending) {
        if ending.shutdown.is_some_and(|before| before >= how) {
            return;
        }
        if ending.shutdown.is_none() && !self.restart.handing {
            self.notifier.stopping();
            // Administrators may still connect, and cancel the shutdown.
            self.listeners = Arc::new(self.listeners.unix_only());
            self.mailboxes
                .send_all(|| WorkerMessage::AcceptOn(Arc::clone(&self.listeners)));
        }
        ending.shutdown = Some(how);
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::Shutdown(how)));
    }

    fn on_ended(&mut self, worker: WorkerId, error: Option<String>, ending: &mut Ending) {
        ending.workers_left -= 1;
        if let Some(error) = error {
            // A worker that has ended by an error has lost its clients, and pools may still count its server
            // connections. So the process ends, and a service manager can start it again.
            self.say(
                Level::Fatal,
                format!("worker {} failed, going down: {error}", worker.0),
            );
            ending.code = ExitCode::FAILURE;
            self.shut_down(Shutdown::Immediate, ending);
        }
    }

    /// Reads the configuration again, since files have changed. During a shutdown, nothing needs it any more.
    fn reload_changed_files(&mut self, is_ending: bool) {
        if !is_ending {
            self.say(
                Level::Log,
                "config_watch: files have changed, re-reading config",
            );
            self.reload(None);
        }
    }

    fn reload(&mut self, console: Option<(WorkerId, Token)>) {
        self.notifier.reloading();
        let before = self.directory.snapshot();
        let watched = self.source.watched().map(Path::to_owned);
        let outcome = match self.source.path(&before.config.settings) {
            Some(path) => self
                .reload_file(&path)
                .and_then(|()| match self.source.watched() {
                    // The watch has just begun. The files may have changed after they were read and before that.
                    Some(begun) if watched.as_deref() != Some(begun) => {
                        let begun = begun.to_owned();
                        self.reload_file(&begun)
                    }
                    _ => Ok(()),
                }),
            None => {
                let problem = "there is no configuration file: pgweir was started with a URL";
                self.say(Level::Warning, format!("RELOAD: {problem}"));
                Err(problem.to_owned())
            }
        };
        if outcome.is_err() {
            // Log files are rotated even if the rest of the reload fails.
            self.configure_log();
        }
        self.notifier.ready();
        match &outcome {
            Ok(()) => self.note_event(EventKind::Reloaded, "the configuration was read again"),
            Err(problems) => self.note_event(EventKind::ReloadFailed, problems),
        }
        if let Some((worker, console)) = console {
            let outcome = outcome.map(|()| None);
            self.report(worker, console, outcome.map_err(Fault::ReloadFailed));
        }
    }

    fn report(&self, worker: WorkerId, console: Token, outcome: Result<Option<Note>, Fault>) {
        let mail = Mail::Configured { console, outcome };
        self.mailboxes.send(worker, WorkerMessage::Mail(mail));
    }

    /// Changes one setting until the file is read again.
    fn set(&mut self, key: &str, value: &str) -> Result<Option<Note>, Fault> {
        let failed = |problem: &dyn fmt::Display| Fault::SetFailed(problem.to_string());
        let before = self.directory.snapshot();
        let (config, note) = before
            .config
            .with_setting(key, value)
            .map_err(|problem| failed(&problem))?;
        let mismatch = key
            .contains("_tls")
            .then(|| self.set_tls(&config.settings).err())
            .flatten();
        let (users, rules) = if logs_in_alike(&config.settings, &before.config.settings) {
            (before.users.clone(), before.rules.clone())
        } else {
            credentials(&config, &mut Vec::new()).map_err(|error| failed(&error))?
        };
        let opened = self.http.thread.prepare(&config.settings);
        let opened = opened.map_err(|error| failed(&error))?;
        let patroni = PatroniAccess::load(&config).map_err(|error| failed(&error))?;
        self.http.tokens = http_tokens(&config.settings).map_err(|error| failed(&error))?;
        self.patroni.access = patroni;
        let snapshot = Snapshot {
            config,
            users,
            rules,
            tls: self.tls.terms(),
        };
        if let Some(note) = note {
            self.say(Level::Warning, format!("{key:?}: {note}"));
        }
        self.apply(Arc::new(snapshot), opened);
        Ok(mismatch)
    }

    /// Creates TLS contexts from the settings and puts them in force if they are valid. When several settings are
    /// changed one after the other (a key, then its certificate), the old contexts stay in force until all settings
    /// fit.
    ///
    /// # Errors
    /// When the settings don't fit each other yet.
    fn set_tls(&mut self, settings: &Settings) -> Result<(), Note> {
        let mut notes = Vec::new();
        let loaded = Contexts::load(settings, &self.tls, &mut notes);
        self.tls = loaded.map_err(|error| {
            let (text, detail) = (OLD_TLS, error.to_string());
            self.say(Level::Error, format!("{detail}; {text}"));
            Note { text, detail }
        })?;
        for note in notes {
            self.say(Level::Warning, note);
        }
        Ok(())
    }

    /// Puts the whole new configuration in force; after an error, no part of it.
    ///
    /// # Errors
    /// A line for each problem.
    fn reload_file(&mut self, path: &Path) -> Result<(), String> {
        let loaded = load(path, &self.tls).map_err(|error| error.to_string());
        let prepared = loaded.and_then(|loaded| {
            let opened = self.http.thread.prepare(&loaded.snapshot.config.settings);
            let opened = opened.map_err(|error| error.to_string())?;
            Ok((loaded, opened))
        });
        let (mut loaded, opened) = match prepared {
            Ok(prepared) => prepared,
            Err(problems) => {
                for problem in problems.lines() {
                    self.say(Level::Error, problem);
                }
                self.say(
                    Level::Error,
                    "RELOAD failed, the old configuration stays in force",
                );
                return Err(problems);
            }
        };
        let before = self.directory.snapshot();
        for note in loaded.news(&before.config) {
            self.say(Level::Warning, note);
        }
        for key in before.config.needs_restart(&loaded.snapshot.config) {
            self.say(
                Level::Warning,
                format!("\"{key}\" has changed: this takes effect with the next restart"),
            );
        }
        let config = &mut loaded.snapshot.config;
        config.succeed(&before.config);
        config.settings.verbose = config.settings.verbose.max(self.logging.verbose);
        self.tls = loaded.tls;
        self.http.tokens = loaded.http_tokens;
        self.patroni.access = loaded.patroni;
        self.http.saved = loaded.changes.clone();
        self.http.changes = loaded.changes;
        self.http.file_entries = loaded.file_entries;
        self.apply(Arc::new(loaded.snapshot), opened);
        self.http.entry_store.read_again();
        Ok(())
    }

    pub(super) fn apply(&mut self, snapshot: Arc<Snapshot>, opened: Opened) {
        let settings = &snapshot.config.settings;
        self.resolver.configure(settings);
        let options = Arc::new(net_options(&snapshot, &self.tls, self.files));
        self.directory.set_client_room(options.clients_max);
        if let Err(error) = self.listeners.apply(&options.socket) {
            self.say(
                Level::Warning,
                format!("cannot set the TCP options of the listening sockets: {error}"),
            );
        }
        let http = Options::of(settings, &self.tls, self.http.tokens.clone());
        if let Err(error) = self.http.thread.apply(opened, http) {
            self.say(Level::Error, format!("http: cannot start: {error}"));
        }
        self.directory.replace(Arc::clone(&snapshot));
        self.configure_log();
        self.mailboxes
            .send_all(|| WorkerMessage::Options(Arc::clone(&options)));
        self.mailboxes
            .send_all(|| WorkerMessage::Mail(Mail::Config(Arc::clone(&snapshot))));
        self.source.watch(settings);
        if let Err(error) = self.patroni.apply(&snapshot.config) {
            self.say(Level::Error, format!("patroni: cannot start: {error}"));
        }
    }

    /// Applies the settings of the log, and opens the log file again.
    fn configure_log(&mut self) {
        let snapshot = self.directory.snapshot();
        if let Err((path, error)) = self.logging.log.configure(&snapshot.config.settings) {
            let path = path.display();
            self.say(
                Level::Error,
                format!("cannot open the log file {path}: {error}; the old one stays in use"),
            );
        }
    }

    pub(super) fn note_event(&self, kind: EventKind, text: &str) {
        self.directory
            .note_event(kind, ("", ""), text, self.clock.now());
    }

    pub(super) fn say(&mut self, level: Level, text: impl Into<String>) {
        self.logging.lines.say(self.clock.now(), level, text);
    }
}

/// Returns the time between two lines of statistics, in microseconds: at least a second.
pub(super) fn stats_period_us(settings: &Settings) -> u64 {
    settings.stats_period.0.max(1_000_000)
}

/// Returns whether both name the same files for logins, and use the same parts of them.
fn logs_in_alike(one: &Settings, other: &Settings) -> bool {
    let files = |settings: &Settings| {
        let settings = settings.clone();
        let rules = (
            settings.auth_hba_file,
            settings.auth_ident_file,
            settings.auth_user,
        );
        let rules = (settings.auth_type == AuthType::Hba).then_some(rules);
        let ldap = (settings.auth_type == AuthType::Ldap).then_some(settings.auth_ldap_options);
        (
            settings.auth_file,
            settings.auth_type == AuthType::Ldap,
            rules,
            ldap,
        )
    };
    files(one) == files(other)
}
