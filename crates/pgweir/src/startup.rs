//! Starts the pooler: from the command line to running workers.

mod end_report;
mod error;
mod io_driver;
mod worker_threads;

use std::{
    io::{self, Write},
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
};

use crossbeam_channel::unbounded;
use pgweir_config::{Changes, Entries, Settings};
use pgweir_core::{Directory, Level, Snapshot, WorkerId};

use self::{
    error::{StartError, no_handover, where_asked},
    worker_threads::WorkerThreads,
};
use crate::{
    cli::Cli,
    clock::Clock,
    control::{
        Caught, ConfigSource, Contents, EntryStore, Fleet, FleetAccess, HttpControl, Logging,
        Origin, Patroni, PatroniAccess, Program, Request, Resolver, Restart, SlowWork, Supervisor,
        load, net_options,
    },
    http::{self, Http},
    log::{Log, LogBuffer},
    net::{ListenPlan, Listeners, Load, Mailboxes, Passed},
    otlp::TraceQueue,
    process::{self, FileLimit, Notifier, PidFile, ProcessError, key_file},
    quickstart::{self, FirstLogin},
    takeover::{self, Inheritance, NewProcess, OldProcess, OtherProcess, TakeoverSocket},
    tls::Contexts,
};

/// A checked configuration, and its messages for the operator.
struct Plan {
    origin: Origin,
    /// With `config_watch`: the contents of the files that the configuration was read from.
    read: Option<Contents>,
    snapshot: Snapshot,
    /// The TLS contexts of both sides.
    tls: Contexts,
    /// The tokens of the file `http_tokens`.
    http_tokens: Option<Arc<http::Tokens>>,
    /// The files for Patroni's REST API.
    patroni: PatroniAccess,
    fleet: FleetAccess,
    changes: Changes,
    /// The entries of the ini file without the changes, if `config_etcd` is set.
    file_entries: Entries,
    notes: Vec<String>,
    /// The psql command that connects to a quick start.
    psql: Option<String>,
    /// In a quick start: the login to the server that is tried before anything else.
    first_login: Option<FirstLogin>,
}

/// Starts pgweir and runs it until it ends.
///
/// # Errors
/// When pgweir can't start. No worker was started then.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, StartError> {
    let plan = plan(cli)?;
    let mut places = plan.snapshot.config.places.clone();
    if cli.user.is_some() {
        // The name does not come from the file.
        places.remove("user");
    }
    start(cli, plan).map_err(|error| error.at(&places))
}

fn start(cli: &Cli, mut plan: Plan) -> Result<ExitCode, StartError> {
    let user = cli
        .user
        .clone()
        .or_else(|| plan.snapshot.config.settings.user.clone());
    process::become_user(user.as_deref())?;
    if user.is_some() && matches!(plan.origin, Origin::Ini(_)) {
        // Reads the configuration as that user, since RELOAD does: a file that the user can't read shows now, not then.
        plan = self::plan(cli)?;
    }
    if let Some(login) = plan.first_login.take() {
        login.run()?;
    }
    let settings = &mut plan.snapshot.config.settings;
    settings.verbose = settings.verbose.max(cli.verbose.into());
    let settings = &plan.snapshot.config.settings;
    let files = FileLimit::raise();
    if cli.daemon {
        check_daemon(settings)?;
    }
    // A process that sees pgweir listen may send signals, and read the pid file.
    let caught = Caught::new()?;
    let mut new_process = match takeover::place(settings).filter(|_| cli.reboot) {
        Some(place) => NewProcess::call(place)?,
        None => None,
    };
    let pid_path = settings.pidfile.as_deref().map(Path::new);
    let mut pid_file = match (&new_process, pid_path) {
        (_, None) => None,
        (Some(new_process), Some(path)) => Some(PidFile::succeed(path, new_process.pid())?),
        (None, Some(path)) if cli.reboot => {
            Some(PidFile::take(path).map_err(|error| no_handover(settings, &error))?)
        }
        (None, Some(path)) => Some(PidFile::take(path)?),
    };
    let key = key_file::key(settings).map_err(|(path, error)| StartError::KeyFile(path, error))?;
    let writes_now = new_process.is_none() && !cli.daemon;
    if let Some(file) = pid_file.as_mut().filter(|_| writes_now) {
        file.write()?;
    }
    let Open {
        listeners,
        http,
        post,
        notes,
    } = listen(cli, &plan, files, new_process.as_mut())?;
    plan.notes.extend(notes);
    let log = Log::new(settings.verbose, !(cli.quiet || cli.daemon));
    log.configure(settings)
        .map_err(|(path, error)| StartError::LogFile(path, error))?;
    if let Some(psql) = &plan.psql {
        // pgweir goes on if standard output is closed.
        let _ = writeln!(io::stdout(), "connect with: {psql}");
    }
    if pid_file.as_ref().is_some_and(PidFile::replaces_stale) {
        plan.notes.push("stale pidfile, replaced".to_owned());
    }
    let start = Start {
        program: program(cli, &plan.origin),
        post,
        new_process,
        key,
        plan,
        verbose: cli.verbose.into(),
        files,
        listeners: Arc::new(listeners),
        http,
        log: log.clone(),
        caught,
    };
    if !cli.daemon {
        return start.supervise(pid_file);
    }
    process::become_daemon()?;
    // From here on threads may be started: a daemon is a child of the process above. Its standard error is discarded.
    let is_first = start.new_process.is_none();
    let written = match pid_file.as_mut().filter(|_| is_first) {
        Some(file) => file.write(),
        None => Ok(()),
    };
    let ended = written
        .map_err(StartError::from)
        .and_then(|()| start.supervise(pid_file));
    if let Err(error) = &ended {
        let mut lines = log.buffer();
        lines.say(Clock::start().now(), Level::Fatal, error.to_string());
    }
    ended
}

/// The sockets of a process that is about to serve.
struct Open {
    listeners: Listeners,
    http: http::Opened,
    /// The socket on which a new process asks for a takeover.
    post: Option<TakeoverSocket>,
    notes: Vec<String>,
}

/// Opens the listening sockets, or takes them over. Logs what differs from the settings.
fn listen(
    cli: &Cli,
    plan: &Plan,
    files: FileLimit,
    new_process: Option<&mut NewProcess>,
) -> Result<Open, StartError> {
    let settings = &plan.snapshot.config.settings;
    let listen_plan = listen_plan(settings);
    let options = net_options(&plan.snapshot, &Contexts::default(), files).socket;
    if let Some(new_process) = new_process {
        let (post, listeners, mut notes) = new_process.listeners(&listen_plan, &options)?;
        notes.push(format!("taking over from process {}", new_process.pid()));
        return Ok(Open {
            listeners,
            http: http::Opened::first(settings, http::AddressUse::Expected)?,
            post: Some(post),
            notes,
        });
    }
    let (listeners, mut notes) =
        match Listeners::open(&listen_plan, &options, Passed::by_environment()) {
            Err(error) if cli.reboot && error.is_in_use() => {
                return Err(no_handover(settings, &error));
            }
            opened => opened?,
        };
    if cli.reboot {
        notes.push(format!(
            "old process not found, try to continue normally (looked at {})",
            where_asked(settings)
        ));
    }
    let place = takeover::place(settings).filter(|_| matches!(plan.origin, Origin::Ini(_)));
    let post = place.and_then(|place| match TakeoverSocket::open(place.clone()) {
        Ok(post) => Some(post),
        Err(error) => {
            let place = place.display();
            notes.push(format!(
                "no online restart: cannot listen on {place}: {error}"
            ));
            None
        }
    });
    Ok(Open {
        listeners,
        http: http::Opened::first(settings, http::AddressUse::Refused)?,
        post,
        notes,
    })
}

/// Returns how to start a process that replaces this one: with the same command line, by the program file that exists
/// by then.
fn program(cli: &Cli, origin: &Origin) -> Option<Program> {
    let Origin::Ini(ini) = origin else {
        return None;
    };
    let called = PathBuf::from(std::env::args_os().next()?);
    let path = if called.components().count() > 1 {
        std::path::absolute(called).ok()?
    } else {
        std::env::current_exe().ok()?
    };
    let mut arguments = vec!["-R".into()];
    if cli.quiet || cli.daemon {
        arguments.push("-q".into());
    }
    arguments.extend((0..cli.verbose).map(|_| "-v".into()));
    if let Some(user) = &cli.user {
        arguments.extend(["-u".into(), user.into()]);
    }
    arguments.push(ini.into());
    Some(Program {
        path,
        arguments,
        is_daemon: cli.daemon,
    })
}

fn plan(cli: &Cli) -> Result<Plan, StartError> {
    let target = cli.target.as_deref().ok_or(StartError::NoTarget)?;
    if quickstart::is_url(target) {
        let start = quickstart::from_url(target)?;
        return Ok(Plan {
            origin: Origin::Url,
            read: None,
            snapshot: start.snapshot,
            tls: start.tls,
            http_tokens: None,
            patroni: PatroniAccess::default(),
            fleet: FleetAccess::default(),
            changes: Changes::default(),
            file_entries: Entries::new(),
            notes: start.notes,
            psql: Some(start.psql),
            first_login: Some(start.first_login),
        });
    }
    if quickstart::is_mistyped(target) && !Path::new(target).exists() {
        return Err(StartError::NotOurUrl);
    }
    let path = PathBuf::from(target);
    let mut loaded = load(&path, &Contexts::default())?;
    let mut read = None;
    if loaded.snapshot.config.settings.config_watch {
        // The files are read once more: what the configuration is read from is then no older than these contents, so
        // the watch misses no change.
        read = Some(Contents::read(&path));
        loaded = load(&path, &Contexts::default())?;
    }
    Ok(Plan {
        origin: Origin::Ini(path),
        read,
        notes: loaded.notes(),
        snapshot: loaded.snapshot,
        tls: loaded.tls,
        http_tokens: loaded.http_tokens,
        patroni: loaded.patroni,
        fleet: loaded.fleet,
        changes: loaded.changes,
        file_entries: loaded.file_entries,
        psql: None,
        first_login: None,
    })
}

/// The state of a start after all steps that can fail in front of the operator.
struct Start {
    plan: Plan,
    program: Option<Program>,
    post: Option<TakeoverSocket>,
    new_process: Option<NewProcess>,
    /// The key in `auth_key_file`.
    key: Option<[u8; 32]>,
    /// The number of `-v` options.
    verbose: i32,
    files: FileLimit,
    listeners: Arc<Listeners>,
    http: http::Opened,
    log: Log,
    caught: Caught,
}

impl Start {
    fn supervise(mut self, mut pid_file: Option<PidFile>) -> Result<ExitCode, StartError> {
        let clock = Clock::start();
        let count = worker_count(&self.plan.snapshot.config.settings);
        let mut lines = self.log.buffer();
        self.log_start(&mut lines, clock);
        let inheritance = self.new_process.take().map(NewProcess::begin).transpose()?;
        let (plan, listeners, log) = (self.plan, self.listeners, self.log);
        let (files, post) = (self.files, self.post.map(Arc::new));
        let snapshot = Arc::new(plan.snapshot);
        let directory = Arc::new(directory(count, &snapshot, inheritance.as_ref(), self.key));
        let mailboxes = Mailboxes::new(count)?;
        let settings = &snapshot.config.settings;
        let resolver = Resolver::start(settings, &mailboxes, clock, log.clone())?;
        let (control, requests) = unbounded();
        // Signals wait in the channel until the workers run.
        let _signals = self.caught.listen({
            let control = control.clone();
            move |signal| drop(control.send(Request::Signal(signal)))
        })?;
        let (entries_control, files_control) = (control.clone(), control.clone());
        let (departures, departing) = unbounded();
        let options = Arc::new(net_options(&snapshot, &plan.tls, files));
        directory.set_client_room(options.clients_max);
        let worker_threads = WorkerThreads {
            clock,
            departures,
            traces: TraceQueue::new(settings.otlp_queue as usize),
            listeners: Arc::clone(&listeners),
            load: Load::new(directory.worker_loads()),
            mailboxes: mailboxes.clone(),
            options,
            resolver: Arc::clone(&resolver),
            slow_work: SlowWork::start(settings, &mailboxes, directory.occupancies())?,
            control: control.clone(),
            log: log.clone(),
        };
        let workers = worker_threads.start(&directory, &mut lines)?;
        let around = worker_threads.into_http_dependencies(&directory);
        let other_process = Arc::<OtherProcess>::default();
        if let Some(inheritance) = inheritance {
            own_pid_file(pid_file.as_mut(), &mut lines, clock);
            inheritance.take_in(
                Arc::clone(&directory),
                mailboxes.clone(),
                Arc::clone(&other_process),
                log.buffer(),
                clock,
            )?;
            own_files(&listeners, post.as_deref());
        }
        if let Some(post) = &post {
            OldProcess {
                post: Arc::clone(post),
                listeners: Arc::downgrade(&listeners),
                directory: Arc::clone(&directory),
                mailboxes: mailboxes.clone(),
                control,
                other_process: Arc::clone(&other_process),
                departures: departing,
                clock,
            }
            .start()?;
        }
        let console_connector = around.connector().clone();
        let http = Http::start(around, self.http, settings, &plan.tls, &plan.http_tokens)?;
        let entries = (plan.changes, plan.file_entries);
        let entry_store = EntryStore::start(&plan.fleet, settings, entries_control)?;
        let origin = (plan.origin, plan.read);
        let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET").as_deref());
        notifier.ready();
        let supervisor = Supervisor {
            source: ConfigSource::new(origin, files_control, (log.clone(), clock), settings),
            patroni: Patroni::start(&mailboxes, &directory, plan.patroni, &snapshot.config)?,
            fleet: Fleet::start(plan.fleet, console_connector, (log.buffer(), clock))?,
            directory,
            mailboxes,
            resolver,
            listeners,
            logging: Logging::new(log, lines, self.verbose, (clock.now(), settings)),
            clock,
            requests,
            notifier,
            files,
            tls: plan.tls,
            http: HttpControl::new(http, plan.http_tokens, entries, entry_store),
            pid_file,
            restart: Restart::new(self.program, post, other_process),
        };
        Ok(attend(supervisor, workers))
    }

    /// Writes the first lines of the log.
    fn log_start(&self, lines: &mut LogBuffer, clock: Clock) {
        let snapshot = &self.plan.snapshot;
        lines.say(clock.now(), Level::Log, self.files.line(snapshot));
        let notes = self.plan.notes.iter().cloned();
        for note in notes.chain(self.files.warning(snapshot)) {
            lines.say(clock.now(), Level::Warning, note);
        }
        for listener in self.listeners.iter() {
            lines.say(clock.now(), Level::Log, format!("listening on {listener}"));
        }
        for address in self.http.addresses() {
            let text = format!("listening for HTTP on {address}");
            lines.say(clock.now(), Level::Log, text);
        }
    }
}

/// Takes ownership of the pid file before the old process can end: that process removes a file that still names it.
fn own_pid_file(pid_file: Option<&mut PidFile>, lines: &mut LogBuffer, clock: Clock) {
    if let Some(Err(error)) = pid_file.map(PidFile::take_back) {
        lines.say(clock.now(), Level::Warning, error.to_string());
    }
}

/// Takes ownership of the old process's socket files.
fn own_files(listeners: &Listeners, post: Option<&TakeoverSocket>) {
    listeners.set_given(false);
    if let Some(post) = post {
        post.set_given(false);
    }
}

/// Runs the supervisor until it returns the exit code.
fn attend(supervisor: Supervisor, workers: Vec<thread::JoinHandle<()>>) -> ExitCode {
    let Some(code) = supervisor.run() else {
        return ExitCode::FAILURE;
    };
    for worker in workers {
        // The end of a worker drops its sockets and removes their files. A panic was reported already.
        let _ = worker.join();
    }
    code
}

/// Creates the state that workers share, including what the old process has left.
fn directory(
    workers: usize,
    snapshot: &Arc<Snapshot>,
    inheritance: Option<&Inheritance>,
    key: Option<[u8; 32]>,
) -> Directory {
    let snapshot = Arc::clone(snapshot);
    let Some(left) = inheritance else {
        let directory = Directory::new(workers, snapshot, key.unwrap_or_else(rand::random));
        Fleet::begin(&directory);
        return directory;
    };
    let directory = Directory::new(workers, snapshot, key.unwrap_or(left.begin.process_key))
        .succeeding(left.generation, &left.begin);
    Fleet::begin(&directory);
    left.pass_to(&directory);
    directory
}

fn check_daemon(settings: &Settings) -> Result<(), ProcessError> {
    let needs = [
        ("pidfile", settings.pidfile.is_some()),
        (
            "logfile or syslog",
            settings.logfile.is_some() || settings.syslog,
        ),
    ];
    needs
        .into_iter()
        .find(|(_, set)| !set)
        .map_or(Ok(()), |(key, _)| Err(ProcessError::DaemonNeeds(key)))
}

fn listen_plan(settings: &Settings) -> ListenPlan {
    ListenPlan {
        addresses: settings.listen_addr.clone(),
        port: settings.listen_port,
        backlog: settings.listen_backlog,
        unix_dir: settings.unix_socket_dir.clone().unwrap_or_default(),
        unix_mode: settings.unix_socket_mode.0,
        unix_group: settings.unix_socket_group.clone(),
        reuse_port: settings.so_reuseport,
    }
}

/// Returns the number of workers that the file sets, or the number of cores.
pub(crate) fn worker_count(settings: &Settings) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    match settings.workers {
        0 => cores().min(WorkerId::MAX_WORKERS),
        count => (count as usize).min(WorkerId::MAX_WORKERS),
    }
}
