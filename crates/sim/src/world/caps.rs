//! Caps on servers that pools share. No cap is ever exceeded, and no cap keeps a client waiting while an idle server of
//! another pool could be closed.

use pgweir_core::Endpoint;

use super::World;
use crate::checks::{Guarantee, Violation};

/// The number of clients that may wait in a pool before it uses its overflow.
const OVERFLOW_WAITING: usize = 2;

/// The largest number of servers above a pool's size that compensate for pinned clients.
const PINNED_OVERFLOW: usize = 2;

/// The limits on servers; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caps {
    database: usize,
    user: usize,
    process: usize,
    /// Whether the cap of the process follows from the number of connections that PostgreSQL allows.
    is_percentage: bool,
    reserve: usize,
    overflow: usize,
    pinned: usize,
    share_after: u32,
    check_delay: u32,
}

impl Caps {
    pub(crate) fn none() -> Self {
        Self {
            pinned: PINNED_OVERFLOW,
            ..Self::default()
        }
    }

    /// Returns a cap of the process that is a percentage, and no other cap.
    pub(crate) fn in_percent() -> Self {
        Self {
            process: 2,
            is_percentage: true,
            ..Self::none()
        }
    }

    /// Half of the worlds have no caps.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0ca9_5000);
        if rng.bool() {
            return Self::none();
        }
        let mut some = |most: usize| if rng.bool() { 0 } else { rng.usize(1..=most) };
        let (database, user, process, reserve) = (some(4), some(4), some(5), some(2));
        Self {
            database,
            user,
            process,
            reserve,
            check_delay: [0, 2, 30][rng.usize(..3)],
            pinned: rng.usize(..=PINNED_OVERFLOW),
            overflow: if rng.bool() { 0 } else { rng.usize(1..=2) },
            share_after: if rng.bool() { 0 } else { rng.u32(1..=5) },
            is_percentage: process > 0 && rng.bool(),
        }
    }

    /// Returns the number of connections that PostgreSQL allows: the cap of the process is half of it.
    pub(crate) fn usable_connections(self) -> u32 {
        2 * self.process as u32
    }

    /// Returns the largest number of servers that a pool may have above its size.
    pub(crate) fn above_size(self) -> usize {
        self.reserve + self.overflow + self.pinned
    }

    /// Returns the overflow while this number of clients waits.
    pub(super) fn overflow(self, waiting: usize) -> usize {
        if waiting > OVERFLOW_WAITING {
            self.overflow
        } else {
            0
        }
    }

    /// Returns whether few clients keep their servers (`share_after`).
    pub(super) fn shares(self) -> bool {
        self.share_after > 0
    }

    /// Returns the cap of the process before the first quiet moment.
    pub(crate) fn of_process_at_first(self) -> usize {
        match self.process {
            cap if cap > 0 && !self.is_percentage => cap,
            _ => usize::MAX,
        }
    }

    /// Returns the caps as lines of `[pgbouncer]`.
    pub(crate) fn settings(self) -> String {
        let Self {
            database,
            user,
            process,
            is_percentage,
            reserve,
            overflow,
            pinned,
            share_after,
            check_delay,
        } = self;
        let process = match is_percentage {
            true => "50%".to_owned(),
            false => process.to_string(),
        };
        format!(
            "max_db_connections = {database}\nmax_user_connections = {user}\n\
             max_server_conn = {process}\nreserve_pool_size = {reserve}\n\
             reserve_pool_timeout = 1\noverflow_size = {overflow}\n\
             overflow_waiting = {OVERFLOW_WAITING}\nshare_after = {share_after}\npinned_overflow = {pinned}\nserver_check_delay = {check_delay}\n"
        )
    }
}

impl World {
    /// Counts the backends to which the pooler has a connection, of the pools that pass.
    fn servers_where(&self, passes: impl Fn(&str, &str) -> bool) -> usize {
        let backends = self.cluster.backends.iter();
        let held = backends.filter(|backend| self.net.see(backend.link).held);
        held.filter(|backend| matches!(&backend.pool, Some((d, u)) if passes(d, u)))
            .count()
    }

    /// Returns the cap of the process; 0 while a percentage has no effect: pgweir has not learned the number of
    /// connections that PostgreSQL allows.
    fn cap_of_process(&self) -> usize {
        let caps = self.scenario.caps;
        let host = Endpoint::of("10.0.0.1", 5432);
        match caps.is_percentage && self.directory.hosts().server_limit_at(&host).is_none() {
            true => 0,
            false => caps.process,
        }
    }

    /// Notes in a quiet world how many servers the process may have from now on: servers that were opened before
    /// pgweir knew its limit may stay.
    pub(super) fn note_most_of_process(&mut self) {
        self.most_of_process = match self.cap_of_process() {
            0 => usize::MAX,
            cap => cap.max(self.servers_where(|_, _| true)),
        };
    }

    /// Checks the caps after a backend of this pool was opened.
    pub(super) fn check_caps(&self, database: &str, user: &str) -> Result<(), Violation> {
        let Caps {
            database: of_database,
            user: of_user,
            ..
        } = self.scenario.caps;
        let counts = [
            (
                "the database",
                of_database,
                self.servers_where(|d, _| d == database),
            ),
            ("the user", of_user, self.servers_where(|_, u| u == user)),
            (
                "the process",
                self.most_of_process,
                self.servers_where(|_, _| true),
            ),
        ];
        match counts
            .iter()
            .find(|(_, cap, count)| *cap > 0 && count > cap)
        {
            Some((what, cap, count)) => {
                let what = format!("{count} servers of {what}, {cap} allowed");
                Err(Violation::new(Guarantee::Counts, what))
            }
            None => Ok(()),
        }
    }

    /// Returns whether the caps rightly deny a server to this pool, whose own limits have room: a cap is full, and no
    /// idle server of another pool could be closed. Under the cap of the process, each pool keeps its share. Other
    /// checks cover the servers of this pool.
    pub(super) fn is_denied_rightly(&self, database: &str, user: &str) -> bool {
        let caps = self.scenario.caps;
        let is_full = |cap: usize, count: usize| cap > 0 && count >= cap;
        let spare = |passes: &dyn Fn(&str, &str) -> bool| {
            (0..self.cluster.backends.len()).any(|index| {
                let backend = &self.cluster.backends[index];
                let meant = matches!(&backend.pool, Some((d, u)) if passes(d, u));
                let is_own = matches!(&backend.pool, Some((d, u)) if d == database && u == user);
                let is_spare = !is_own && self.is_free(index) && !self.may_stay(index);
                meant && self.net.see(backend.link).held && is_spare
            })
        };
        // One full cap without idle servers suffices.
        if is_full(caps.database, self.servers_where(|d, _| d == database))
            && !spare(&|d, _| d == database)
        {
            return true;
        }
        if is_full(caps.user, self.servers_where(|_, u| u == user)) && !spare(&|_, u| u == user) {
            return true;
        }
        if !is_full(self.cap_of_process(), self.servers_where(|_, _| true)) {
            return false;
        }
        let pools = self.pools();
        let active = pools.iter().filter(|pool| {
            let ledger = pool.ledger.lock();
            // A pool whose logins have just failed wants no server for a while.
            ledger.servers() > 0 || ledger.waiting() > 0 && ledger.retry_at().is_none()
        });
        let active = active.count();
        !spare(&|d, u| {
            let count = self.servers_where(|other_d, other_u| (other_d, other_u) == (d, u));
            count * active > caps.process
        })
    }
}
