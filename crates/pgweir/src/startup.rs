//! From the command line to a running pooler.

mod error;

use std::{
    io::{self, Write},
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
};

use crossbeam_channel::{Sender, unbounded};
use pgweir_config::Settings;
use pgweir_core::{Directory, Level, Snapshot, Worker, WorkerId, console};

use self::error::{StartError, no_elder, where_asked};
use crate::{
    cli::Cli,
    clock::Clock,
    control::{
        Caught, Deriver, Inquirer, Origin, Program, Request, Resolver, Restart, StatsReport,
        Supervisor, load, net_options, stats_period_us,
    },
    http::{self, Http},
    log::{Log, LogBuffer},
    net::{Driver, ListenPlan, Listeners, Load, Mailboxes, NetOptions, Passed, Surroundings},
    process::{self, FileLimit, Notifier, PidFile, ProcessError},
    quickstart::{self, FirstLogin},
    takeover::{self, Inheritance, NewProcess, OldProcess, OtherProcess, Outgoing, TakeoverSocket},
    tls::Contexts,
};

/// A checked configuration, and what to say about it.
struct Plan {
    origin: Origin,
    snapshot: Snapshot,
    /// What connections are encrypted with.
    tls: Contexts,
    /// Of `http_tokens`.
    http_tokens: Option<Arc<http::Tokens>>,
    notes: Vec<String>,
    /// How to connect, for a quick start.
    psql: Option<String>,
    /// In a quick start: the login that is tried before anything else.
    first_login: Option<FirstLogin>,
}

/// Starts pgweir and runs it to its end.
///
/// # Errors
/// When it can't start; then nothing was started.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, StartError> {
    let plan = plan(cli)?;
    let mut places = plan.snapshot.config.places.clone();
    if cli.user.is_some() {
        // The name is not the file's.
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
        // As that user, since RELOAD will be: a file that it can't read shows now, not then.
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
    // Whoever sees that we listen may send signals, and read the pid file.
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
            Some(PidFile::take(path).map_err(|error| no_elder(settings, &error))?)
        }
        (None, Some(path)) => Some(PidFile::take(path)?),
    };
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
        // A closed standard output is no reason to stop.
        let _ = writeln!(io::stdout(), "connect with: {psql}");
    }
    if pid_file.as_ref().is_some_and(PidFile::replaces_stale) {
        plan.notes.push("stale pidfile, replaced".to_owned());
    }
    let start = Start {
        program: program(cli, &plan.origin),
        post,
        new_process,
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
    // From here on threads may be started: a daemon is a child of the process above. Nobody sees its
    // standard error.
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
    /// Where it is asked to hand over.
    post: Option<TakeoverSocket>,
    notes: Vec<String>,
}

/// Opens the listening sockets, or takes them over; says what was not as asked for.
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
            http: http::Opened::first(settings, http::Others::Expected)?,
            post: Some(post),
            notes,
        });
    }
    let (listeners, mut notes) =
        match Listeners::open(&listen_plan, &options, Passed::by_environment()) {
            Err(error) if cli.reboot && error.is_in_use() => {
                return Err(no_elder(settings, &error));
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
        http: http::Opened::first(settings, http::Others::Refused)?,
        post,
        notes,
    })
}

/// How a process that takes our place is started: as we were, by the program that is there by then.
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
            snapshot: start.snapshot,
            tls: start.tls,
            http_tokens: None,
            notes: start.notes,
            psql: Some(start.psql),
            first_login: Some(start.first_login),
        });
    }
    if quickstart::is_mistyped(target) && !Path::new(target).exists() {
        return Err(StartError::NotOurUrl);
    }
    let path = PathBuf::from(target);
    let loaded = load(&path, &Contexts::default())?;
    Ok(Plan {
        origin: Origin::Ini(path),
        notes: loaded.notes(),
        snapshot: loaded.snapshot,
        tls: loaded.tls,
        http_tokens: loaded.http_tokens,
        psql: None,
        first_login: None,
    })
}

/// All that could fail in front of the operator is done.
struct Start {
    plan: Plan,
    program: Option<Program>,
    post: Option<TakeoverSocket>,
    new_process: Option<NewProcess>,
    /// How many `-v` there were.
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
        self.say_first(&mut lines, clock);
        let inheritance = self.new_process.take().map(NewProcess::begin).transpose()?;
        let (plan, listeners, log) = (self.plan, self.listeners, self.log);
        let (files, post) = (self.files, self.post.map(Arc::new));
        let snapshot = Arc::new(plan.snapshot);
        let directory = Arc::new(directory(count, &snapshot, inheritance.as_ref()));
        let mailboxes = Mailboxes::new(count)?;
        let settings = &snapshot.config.settings;
        let resolver = Resolver::start(settings, &mailboxes, clock, log.clone())?;
        let (control, requests) = unbounded();
        // Signals wait in the channel until the workers stand.
        let _signals = self.caught.listen({
            let control = control.clone();
            move |signal| drop(control.send(Request::Signal(signal)))
        })?;
        let (departures, departing) = unbounded();
        let crew = Crew {
            clock,
            departures,
            listeners: Arc::clone(&listeners),
            load: Load::new(count),
            mailboxes: mailboxes.clone(),
            options: Arc::new(net_options(&snapshot, &plan.tls, files)),
            resolver: Arc::clone(&resolver),
            deriver: Deriver::start(settings, &mailboxes, &directory.occupancies().keys)?,
            inquirer: Inquirer::start(settings, &mailboxes, &directory.occupancies().inquiries)?,
            control: control.clone(),
            log: log.clone(),
        };
        let workers = crew.start(&directory)?;
        let text = format!("process up: {}, epoll, {count} workers", console::VERSION);
        lines.say(clock.now(), Level::Log, text);
        drop(crew);
        let other_process = Arc::<OtherProcess>::default();
        if let Some(inheritance) = inheritance {
            own_pid_file(pid_file.as_mut(), &mut lines, clock);
            let (directory, mailboxes) = (Arc::clone(&directory), mailboxes.clone());
            inheritance.take_in(
                directory,
                mailboxes,
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
        let around = http::Surroundings::new(&directory, &mailboxes, &resolver, clock, &log);
        let http = Http::start(around, self.http, settings, &plan.tls, &plan.http_tokens)?;
        let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET").as_deref());
        notifier.ready();
        let supervisor = Supervisor {
            origin: plan.origin,
            directory,
            mailboxes,
            resolver,
            listeners,
            log,
            lines,
            clock,
            verbose: self.verbose,
            requests,
            notifier,
            stats: StatsReport::new(clock.now(), stats_period_us(settings)),
            files,
            tls: plan.tls,
            http,
            http_tokens: plan.http_tokens,
            pid_file,
            restart: Restart::new(self.program, post, other_process),
        };
        Ok(attend(supervisor, workers))
    }

    /// What the log begins with.
    fn say_first(&self, lines: &mut LogBuffer, clock: Clock) {
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

/// Makes the pid file ours before the process before this one can end: it removes a file that still names it.
fn own_pid_file(pid_file: Option<&mut PidFile>, lines: &mut LogBuffer, clock: Clock) {
    if let Some(Err(error)) = pid_file.map(PidFile::take_back) {
        lines.say(clock.now(), Level::Warning, error.to_string());
    }
}

/// The sockets' files of the process before this one are ours from now on.
fn own_files(listeners: &Listeners, post: Option<&TakeoverSocket>) {
    listeners.set_given(false);
    if let Some(post) = post {
        post.set_given(false);
    }
}

/// Until the supervisor says with which code to leave.
fn attend(supervisor: Supervisor, workers: Vec<thread::JoinHandle<()>>) -> ExitCode {
    let Some(code) = supervisor.run() else {
        return ExitCode::FAILURE;
    };
    for worker in workers {
        // Its sockets, and their files, go with it. A panic was reported as its end already.
        let _ = worker.join();
    }
    code
}

/// What workers share, with what the process before this one has left.
fn directory(
    workers: usize,
    snapshot: &Arc<Snapshot>,
    inheritance: Option<&Inheritance>,
) -> Directory {
    let snapshot = Arc::clone(snapshot);
    let Some(left) = inheritance else {
        return Directory::new(workers, snapshot, rand::random());
    };
    let directory = Directory::new(workers, snapshot, left.begin.process_key)
        .succeeding(left.generation, left.begin.next_id);
    left.pass_to(&directory);
    directory
}

/// What all workers share.
struct Crew {
    clock: Clock,
    listeners: Arc<Listeners>,
    load: Load,
    mailboxes: Mailboxes,
    options: Arc<NetOptions>,
    resolver: Arc<Resolver>,
    deriver: Deriver,
    inquirer: Inquirer,
    control: Sender<Request>,
    departures: Sender<Outgoing>,
    log: Log,
}

impl Crew {
    /// Starts one thread per worker. All drivers are made first, so that a lack of descriptors
    /// shows before any of them runs.
    fn start(&self, directory: &Arc<Directory>) -> Result<Vec<thread::JoinHandle<()>>, io::Error> {
        let drivers = self
            .mailboxes
            .workers()
            .map(|id| {
                Ok((
                    id,
                    Driver::new(
                        Worker::new(id, Arc::clone(directory)),
                        self.surroundings(id, directory),
                    )?,
                ))
            })
            .collect::<io::Result<Vec<_>>>()?;
        drivers
            .into_iter()
            .map(|(id, driver)| {
                let farewell = Farewell {
                    worker: id,
                    control: self.control.clone(),
                    error: None,
                };
                let builder = thread::Builder::new().name(format!("worker-{}", id.0));
                builder.spawn(move || work(driver, farewell))
            })
            .collect()
    }

    fn surroundings(&self, id: WorkerId, directory: &Directory) -> Surroundings {
        let snapshot = directory.snapshot();
        let settings = &snapshot.config.settings;
        Surroundings {
            id,
            clock: self.clock,
            listeners: Arc::clone(&self.listeners),
            load: self.load.clone(),
            mailboxes: self.mailboxes.clone(),
            options: Arc::clone(&self.options),
            resolver: Arc::clone(&self.resolver),
            deriver: self.deriver.clone(),
            inquirer: self.inquirer.clone(),
            control: self.control.clone(),
            departures: self.departures.clone(),
            log: self.log.buffer(),
            read_buffer: settings.read_buffer as usize,
            random: rand::make_rng(),
        }
    }
}

/// Tells the control thread how a worker ended, even if it was by a panic.
struct Farewell {
    worker: WorkerId,
    control: Sender<Request>,
    error: Option<String>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let panicked = thread::panicking().then(|| "panic, see standard error".to_owned());
        let error = self.error.take().or(panicked);
        // Nobody listens any more when the process is leaving already.
        let _ = self.control.send(Request::Ended {
            worker: self.worker,
            error,
        });
    }
}

fn work(mut driver: Driver, mut farewell: Farewell) {
    farewell.error = driver.run().err().map(|error| error.to_string());
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

/// As many workers as the file says, or as there are cores.
pub(crate) fn worker_count(settings: &Settings) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    match settings.workers {
        0 => cores().min(WorkerId::MAX_WORKERS),
        count => (count as usize).min(WorkerId::MAX_WORKERS),
    }
}
