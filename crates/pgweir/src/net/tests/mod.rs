//! The driver against real sockets, with a small stand-in for the core.

mod closing;
mod connecting;
mod falling_back;
mod logins;
mod reading;
mod sending_together;
mod streaming;
mod writing;

use std::{
    collections::HashMap,
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use pgweir_auth::scram::DerivedKeys;
use pgweir_core::{
    Action, Actions, Address, AuthCheckResult, Closed, ConnectError, Peer, ReadMode, Source,
    TakenOverClient, Time, TlsFacts, Token, WorkerId,
    backend::Server,
    frontend::MovedClient,
    mail::Mail,
    shared::{occupancy::Occupancies, worker_loads::WorkerLoads},
    takeover::ClientRecord,
};
use rustix::event::epoll::Event;
use tempfile::TempDir;

use super::{
    Driver, DriverDependencies, ListenPlan, Listeners, Load, Mailboxes, NetOptions, Passed, Ring,
    pooler::Pooler,
};
use crate::{
    clock::Clock,
    control::{Resolver, SlowWork},
    log::Log,
    otlp::TraceQueue,
};

/// An event that the stand-in for the core received.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Accepted(Token),
    Readable,
    Received(Vec<u8>),
    Peeked(Option<u8>),
    HungUp,
    Closed(String),
    Blocked,
    Drained,
    Connected,
    Secured(TlsFacts),
    Failed(ConnectError),
    Mail,
}

type Answer = Box<dyn FnMut(Token, &Seen, &mut Actions)>;

/// The stand-in for the core: records its events, and answers them with the test's closure.
struct Probe {
    seen: Vec<Seen>,
    answer: Answer,
    slots: HashMap<u32, u32>,
    /// Whether new clients count as logged in as soon as they are accepted.
    logs_in_at_once: bool,
}

impl Probe {
    fn note(&mut self, conn: Token, seen: Seen, out: &mut Actions) {
        (self.answer)(conn, &seen, out);
        self.seen.push(seen);
    }
}

impl Pooler for Probe {
    fn accepted(&mut self, _: &Peer, _: Time, out: &mut Actions) -> Token {
        let slot = self.slots.len() as u32;
        self.slots.insert(slot, 0);
        let token = Token {
            slot,
            generation: 0,
        };
        if self.logs_in_at_once {
            out.list.push(Action::LoggedIn(token));
        }
        self.note(token, Seen::Accepted(token), out);
        token
    }

    fn take_client(&mut self, _: Box<MovedClient>, _: Time, _: &mut Actions) -> Token {
        unreachable!("this core moves no clients")
    }

    fn readable(&mut self, conn: Token, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Readable, out);
    }

    fn received(&mut self, conn: Token, bytes: &[u8], _: Time, out: &mut Actions) {
        self.note(conn, Seen::Received(bytes.to_vec()), out);
    }

    fn peeked(&mut self, conn: Token, first: Option<u8>, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Peeked(first), out);
    }

    fn hung_up(&mut self, conn: Token, _: Time, out: &mut Actions) {
        self.note(conn, Seen::HungUp, out);
    }

    fn closed(&mut self, conn: Token, why: &Closed, _: Time, out: &mut Actions) {
        let why = match why {
            Closed::Eof => "end".to_owned(),
            Closed::Error(error) | Closed::Tls(error) => error.clone(),
        };
        self.note(conn, Seen::Closed(why), out);
    }

    fn blocked(&mut self, conn: Token, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Blocked, out);
    }

    fn drained(&mut self, conn: Token, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Drained, out);
    }

    fn connected(
        &mut self,
        conn: Token,
        _: Address,
        _: Address,
        _: [u8; 18],
        _: Time,
        out: &mut Actions,
    ) {
        self.note(conn, Seen::Connected, out);
    }

    fn secured(&mut self, conn: Token, facts: TlsFacts, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Secured(facts), out);
    }

    fn connect_failed(&mut self, conn: Token, why: &ConnectError, _: Time, out: &mut Actions) {
        self.note(conn, Seen::Failed(why.clone()), out);
    }

    fn derived(&mut self, _: Token, _: DerivedKeys, _: Time, _: &mut Actions) {}

    fn derive_refused(&mut self, _: Token, _: Time, _: &mut Actions) {}

    fn auth_checked(&mut self, _: Token, _: AuthCheckResult, _: Time, _: &mut Actions) {}

    fn mail(&mut self, _: Mail, _: Time, out: &mut Actions) {
        self.note(FIRST, Seen::Mail, out);
    }

    fn adopt(&mut self, _: Box<Server>, _: Time, _: &mut Actions) -> Token {
        unreachable!("no test makes a server")
    }

    fn take_over_client(
        &mut self,
        _: Box<ClientRecord>,
        _: bool,
        _: Time,
        _: &mut Actions,
    ) -> TakenOverClient {
        unreachable!("no test takes over")
    }

    fn note_client_tls(&mut self, _: Token, _: TlsFacts) {}

    fn tick(&mut self, _: Time, _: &mut Actions) {}

    fn next_tick(&self) -> Option<Time> {
        None
    }
}

/// Drivers on one listening Unix socket.
struct World {
    drivers: Vec<Driver<Probe>>,
    events: Vec<Event>,
    folder: TempDir,
}

const FIRST: Token = Token {
    slot: 0,
    generation: 0,
};

impl World {
    fn new() -> Self {
        Self::with(1, 16 * 1024)
    }

    fn with(workers: usize, read_buffer: usize) -> Self {
        Self::with_rings(workers, read_buffer, || None)
    }

    fn with_rings(
        workers: usize,
        read_buffer: usize,
        ring: impl Fn() -> Option<Box<Ring>>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let unix_dir = folder.path().display().to_string();
        let plan = ListenPlan {
            port: 5432,
            backlog: 64,
            unix_dir,
            unix_mode: 0o777,
            ..ListenPlan::default()
        };
        let options = Arc::new(NetOptions {
            close_flush_us: 2_000_000,
            login_slice_us: 500,
            ..NetOptions::default()
        });
        let (listeners, _) = Listeners::open(&plan, &options.socket, Passed::NONE).expect("listen");
        let listeners = Arc::new(listeners);
        let mailboxes = Mailboxes::new(workers).expect("mailboxes");
        let clock = Clock::start();
        let load = Load::new(&Arc::new(WorkerLoads::new(workers, 0)));
        let settings = pgweir_config::Settings::default();
        let resolver =
            Resolver::start(&settings, &mailboxes, clock, Log::new(0, false)).expect("threads");
        let occupancies = Occupancies::default();
        let slow_work = SlowWork::start(&settings, &mailboxes, &occupancies).expect("threads");
        let driver = |id| {
            let around = DriverDependencies {
                id,
                clock,
                listeners: Arc::clone(&listeners),
                load: load.clone(),
                mailboxes: mailboxes.clone(),
                options: Arc::clone(&options),
                resolver: Arc::clone(&resolver),
                slow_work: slow_work.clone(),
                control: crossbeam_channel::unbounded().0,
                departures: crossbeam_channel::unbounded().0,
                traces: TraceQueue::new(1),
                log: Log::new(0, false).buffer(),
                memory: Arc::default(),
                ring: ring(),
                read_buffer,
                random: rand::make_rng(),
            };
            let probe = Probe {
                seen: Vec::new(),
                answer: Box::new(|_, _, _| {}),
                slots: HashMap::new(),
                logs_in_at_once: true,
            };
            Driver::new(probe, around).expect("driver")
        };
        let drivers = mailboxes.workers().map(driver).collect();
        Self {
            drivers,
            events: Vec::with_capacity(64),
            folder,
        }
    }

    /// Sets the closure with which the stand-in for the core answers events.
    fn answer(&mut self, answer: impl FnMut(Token, &Seen, &mut Actions) + 'static) {
        self.drivers[0].pooler.answer = Box::new(answer);
    }

    /// Connects a client, and waits until it is accepted.
    fn client(&mut self) -> UnixStream {
        let path = self.folder.path().join(".s.PGSQL.5432");
        let client = UnixStream::connect(path).expect("connect");
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("timeout");
        self.until(|seen| seen.iter().any(|one| matches!(one, Seen::Accepted(_))));
        client
    }

    /// Runs turns of every driver, until `enough` holds for the events of the first.
    fn until(&mut self, enough: impl Fn(&[Seen]) -> bool) {
        for _ in 0..500 {
            if enough(&self.drivers[0].pooler.seen) {
                return;
            }
            self.turns();
        }
        panic!("never happened, seen: {:?}", self.drivers[0].pooler.seen);
    }

    /// Runs some turns, before a test asserts that an event did not happen.
    fn settle(&mut self) {
        for _ in 0..5 {
            self.turns();
        }
    }

    fn turns(&mut self) {
        for driver in &mut self.drivers {
            driver.turn(&mut self.events, Some(10_000)).expect("turn");
        }
    }

    /// Executes an action as if the core had asked for it.
    fn act(&mut self, action: Action) {
        let driver = &mut self.drivers[0];
        driver.call(|_, _, out| out.list.push(action));
        driver.settle();
    }

    fn mode(&mut self, mode: ReadMode) {
        self.act(Action::Read { conn: FIRST, mode });
    }

    /// Returns the events since the last call, without those of accepted clients.
    fn seen(&mut self) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut self.drivers[0].pooler.seen);
        seen.retain(|one| !matches!(one, Seen::Accepted(_)));
        seen
    }
}

fn send(to: Token, bytes: &[u8], out: &mut Actions) {
    let start = out.scratch.len();
    out.scratch.extend_from_slice(bytes);
    let source = Source::Scratch(start..out.scratch.len());
    out.list.push(Action::Send { to, source });
}

fn echo(conn: Token, seen: &Seen, out: &mut Actions) {
    if let Seen::Received(bytes) = seen {
        let source = Source::Input(0..bytes.len());
        out.list.push(Action::Send { to: conn, source });
    }
}

fn read_exactly(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("read");
    bytes
}

fn write(stream: &mut impl Write, bytes: &[u8]) {
    stream.write_all(bytes).expect("write");
}

fn received(seen: &[Seen]) -> Vec<u8> {
    let bytes = |one: &Seen| match one {
        Seen::Received(bytes) => bytes.clone(),
        _ => Vec::new(),
    };
    seen.iter().flat_map(bytes).collect()
}

#[test]
fn nothing_wakes_an_idle_driver() {
    let mut world = World::new();
    let _client = world.client();
    world.settle();
    let turn = world.drivers[0].io.turn.number;
    assert_eq!(world.drivers[0].io.timers.next(), None);
    world.turns();
    assert!(
        world.events.is_empty() && world.drivers[0].io.turn.number == turn + 1,
        "an event without a cause"
    );
}

#[test]
fn a_crowd_is_spread_over_the_workers() {
    let mut world = World::with(2, 4096);
    let _crowd: Vec<_> = (0..20)
        .map(|_| {
            let path = world.folder.path().join(".s.PGSQL.5432");
            UnixStream::connect(path).expect("connect")
        })
        .collect();
    for _ in 0..20 {
        world.turns();
    }
    let counts: Vec<_> = world
        .drivers
        .iter()
        .map(|driver| driver.io.table.len())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 20);
    assert!(counts.iter().all(|count| *count >= 8), "{counts:?}");
}

#[test]
fn the_socket_file_goes_with_the_listeners() {
    let world = World::new();
    let path = world.folder.path().join(".s.PGSQL.5432");
    let plan = ListenPlan {
        port: 5432,
        backlog: 1,
        unix_dir: world.folder.path().display().to_string(),
        unix_mode: 0o700,
        ..ListenPlan::default()
    };
    let again = || Listeners::open(&plan, &NetOptions::default().socket, Passed::NONE);
    assert!(matches!(again(), Err(super::ListenError::InUse(_))));
    drop(world.drivers);
    assert!(!path.exists());
    // A file that a killed process left behind is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    assert!(path.exists());
    again().expect("stale file replaced");
}

#[test]
fn a_connection_moves_to_another_worker_with_its_unread_bytes() {
    let mut world = World::with(2, 4096);
    let mut client = world.client();
    world.mode(ReadMode::Hold);
    write(&mut client, b"unread");
    world.settle();
    let (moved, _) = world.drivers[0].io.detach(FIRST).expect("open");
    let token = Token {
        slot: 9,
        generation: 4,
    };
    world.drivers[1].pooler.answer = Box::new(echo);
    world.drivers[1].io.register(token, moved);
    let read = Action::Read {
        conn: token,
        mode: ReadMode::Deliver,
    };
    world.drivers[1].call(|_, _, out| out.list.push(read));
    world.settle();
    assert_eq!(read_exactly(&mut client, 6), b"unread");
    assert_eq!(world.seen(), []);
}
