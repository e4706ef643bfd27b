//! A console command on its way through all workers.

use std::{collections::BTreeMap, ops::AddAssign};

use super::{
    command::Show,
    orders::Awaiting,
    rows::Cell,
    show,
    show::{PinCounts, Task, Work},
};
use crate::{
    Action, Actions, Time, Token, WorkerId,
    fault::Fault,
    mail::Mail,
    pool::PoolKey,
    stats::{Periods, Stats},
    worker::Worker,
};

/// A command that visits every worker in turn, beginning with the console's own, and is answered
/// there at the end.
#[derive(Debug)]
pub struct Tour {
    origin: WorkerId,
    console: Token,
    visited: usize,
    errand: Errand,
}

/// What a tour is about.
#[derive(Debug)]
pub(crate) enum Errand {
    /// To gather what a SHOW shows.
    Show(Box<Collection>),
    /// To be everywhere: what was mailed to the workers before has been read then, and what operators
    /// have ordered is done. Answered with this tag.
    Settle(String),
    /// The same, and then to wait for this.
    Obey(Awaiting),
    /// KILL of one database, or of all.
    Kill(Option<String>),
    /// KILL_CLIENT.
    KillClient { id: u64, found: bool },
}

/// What a SHOW has gathered so far.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) show: Show,
    /// Rows of connections, with their ids to sort by.
    pub(crate) rows: Vec<(u64, Vec<Cell>)>,
    pub(crate) pools: BTreeMap<PoolKey, PoolCount>,
    pub(in crate::admin) pins: BTreeMap<PoolKey, PinCounts>,
    pub(in crate::admin) internal: BTreeMap<(PoolKey, Task), Work>,
    /// Cancel requests for peers, by the peer's number.
    pub(crate) peers: BTreeMap<u32, PeerCount>,
    /// What the console has done itself.
    pub(crate) console: Counted,
    /// What was counted in pools that a worker has forgotten since.
    pub(crate) past: Stats,
    /// Clients of the console.
    pub(crate) console_clients: usize,
    /// Clients that log in.
    pub(crate) login_clients: usize,
    /// All clients.
    pub(crate) clients: usize,
    /// All servers.
    pub(crate) servers: usize,
    /// Workers' parts of pools.
    pub(crate) local_pools: usize,
    /// When the first worker began to count.
    pub(crate) began: Time,
    /// Host names that were looked up.
    pub(crate) names: KnownNames,
}

/// What is known of host names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// Those that were looked up.
    pub hosts: Vec<HostEntry>,
    /// How many are being looked up.
    pub asked: usize,
    /// Their zones.
    pub zones: Vec<ZoneEntry>,
}

/// A zone of host names: all behind the first dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEntry {
    /// The zone's name.
    pub name: String,
    /// Its serial, as it was last seen; 0 if it was not looked at.
    pub serial: u32,
    /// How many of its names are known.
    pub hosts: usize,
}

/// A host name that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The name.
    pub name: String,
    /// Its addresses, separated by commas; empty if there are none.
    pub addresses: String,
    /// How long this is believed.
    pub until: Time,
}

/// What was counted, altogether and since the beginning of the last whole period.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) total: Stats,
    pub(crate) recent: Stats,
}

impl Counted {
    pub(crate) fn add(&mut self, periods: &Periods) {
        self.total += periods.now;
        self.recent += periods.recent();
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.recent += other.recent;
    }
}

/// Cancel requests for one peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PeerCount {
    /// For which there is no room yet.
    pub(crate) queued: u32,
    /// Whose connection is being opened.
    pub(crate) opening: u32,
    /// That are on their way.
    pub(crate) sent: u32,
}

/// What all workers have of one pool.
#[derive(Debug, Default)]
pub(crate) struct PoolCount {
    pub(crate) clients_active: usize,
    pub(crate) clients_waiting: usize,
    /// Cancel requests that are on their way.
    pub(crate) cancels: usize,
    /// Cancel requests whose connection is not open yet.
    pub(crate) cancels_waiting: usize,
    pub(crate) being_canceled: usize,
    pub(crate) servers_active: usize,
    pub(crate) servers_idle: usize,
    /// Idle, and to be checked before they are lent.
    pub(crate) servers_used: usize,
    pub(crate) servers_tested: usize,
    pub(crate) servers_login: usize,
    /// Under the caps, though outside of the pool's size.
    pub(crate) servers_listening: usize,
    /// How long the oldest waiting client has waited, in microseconds.
    pub(crate) maxwait: u64,
    pub(crate) mode: &'static str,
    pub(crate) stats: Counted,
    /// Of workers that have forgotten the pool since.
    pub(crate) past: Stats,
}

impl PoolCount {
    /// All servers of the pool.
    pub(crate) fn servers(&self) -> usize {
        self.servers_active
            + self.servers_idle
            + self.servers_used
            + self.servers_tested
            + self.servers_login
            + self.servers_listening
            + self.being_canceled
    }
}

impl Collection {
    pub(crate) fn new(show: Show, now: Time) -> Self {
        Self {
            show,
            rows: Vec::new(),
            pools: BTreeMap::new(),
            pins: BTreeMap::new(),
            internal: BTreeMap::new(),
            peers: BTreeMap::new(),
            console: Counted::default(),
            past: Stats::default(),
            console_clients: 0,
            login_clients: 0,
            clients: 0,
            servers: 0,
            local_pools: 0,
            began: now,
            names: KnownNames::default(),
        }
    }
}

impl Worker {
    /// Sends a command of this worker's console around. The console is busy until it is answered.
    pub(crate) fn begin_tour(
        &mut self,
        console: Token,
        errand: Errand,
        now: Time,
        out: &mut Actions,
    ) {
        self.console_busy(console, true);
        let tour = Tour {
            origin: self.id,
            console,
            visited: 0,
            errand,
        };
        self.visit(tour, now, out);
    }

    /// Does this worker's part, and passes the tour on.
    pub(crate) fn visit(&mut self, mut tour: Tour, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        if tour.visited < workers {
            tour.visited += 1;
            match &mut tour.errand {
                Errand::Show(collection) => show::add(self, collection, now),
                Errand::Settle(_) | Errand::Obey(_) => self.obey(now, out),
                Errand::Kill(database) => self.kill(database.as_deref(), now, out),
                Errand::KillClient { id, found } => {
                    *found = *found || self.kill_client(*id, now, out);
                }
            }
        }
        let to = if tour.visited < workers {
            WorkerId(((self.id.index() + 1) % workers) as u8)
        } else {
            tour.origin
        };
        if tour.visited < workers || to != self.id {
            return out.list.push(Action::Mail {
                to,
                mail: Mail::Tour(Box::new(tour)),
            });
        }
        self.end_tour(tour, now, out);
    }

    fn end_tour(&mut self, tour: Tour, now: Time, out: &mut Actions) {
        let console = tour.console;
        match tour.errand {
            Errand::Show(collection) => {
                let (columns, rows) = show::table(self, *collection, now);
                self.answer_table(console, &columns, &rows, now, out);
            }
            Errand::Settle(tag) => self.answer(console, Ok(&tag), now, out),
            Errand::Obey(what) => self.console_awaits(console, what, now, out),
            Errand::Kill(_) => self.answer(console, Ok("KILL"), now, out),
            Errand::KillClient { found: true, .. } => {
                self.answer(console, Ok("KILL_CLIENT"), now, out);
            }
            Errand::KillClient { found: false, .. } => {
                let fault = Fault::Command("client not found".to_owned());
                self.answer(console, Err(&fault), now, out);
            }
        }
    }
}
