//! The lease of a process in a fleet: several processes (nodes) that share one limit on servers.
//!
//! A node may have more servers than its floor only until its lease ends. `crates/fleet/src/lib.rs` argues that the
//! fleet never exceeds its limit. The argument needs two rules, which the caps enforce here:
//!
//! 1. A ledger takes no slot above the floor after the end of the lease, by a clock that is read when the slot is
//!    taken.
//! 2. A node never has more logins to servers under way than its floor. A slot counts as a login from the moment at
//!    which it is taken.

use std::sync::Arc;

use super::{Cap, Caps, Name, PoolId, Scope};

/// Reads the clock by which leases end, in microseconds. The driver passes it, since core reads no clock.
pub type LeaseClock = fn() -> u64;

/// How many servers the process may have, and until when.
#[derive(Debug)]
pub(super) struct Lease {
    /// How many servers the process may have without a lease, and how many logins it may have under way.
    floor: u32,
    /// How many servers the process may have until the lease ends.
    limit: u32,
    /// When the lease ends.
    until: u64,
    clock: LeaseClock,
    /// Slots whose servers have not logged in yet.
    logins: u32,
    /// Slots of servers whose connection pgweir has closed but PostgreSQL has not.
    ending: u32,
}

impl Lease {
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }
}

impl Caps {
    /// Puts the process's cap under a lease. Until the first renewal, the process may have `floor` servers.
    pub fn begin_leases(&mut self, floor: u32, clock: LeaseClock) {
        self.lease = Some(Lease {
            floor,
            limit: floor,
            until: 0,
            clock,
            logins: 0,
            ending: 0,
        });
        self.set_process_limit(floor);
    }

    /// Sets how many servers the process may have until `until`. Returns the pools whose
    /// [`Ledger::room`](crate::pool::Ledger::room) is to be called.
    #[must_use = "a pool that is not notified waits although it could go on"]
    pub fn renew_lease(&mut self, limit: u32, until: u64) -> Vec<PoolId> {
        let Some(lease) = &mut self.lease else {
            return Vec::new();
        };
        lease.until = until;
        lease.limit = limit.max(lease.floor);
        let limit = lease.limit;
        self.set_process_limit(limit);
        self.grant_process()
    }

    /// Returns the servers under the process's cap: those that exist, and those that are being opened or closed.
    #[must_use]
    pub fn process_servers(&self) -> u32 {
        self.process_cap().map_or(0, |cap| cap.taken)
    }

    /// Returns how many servers the process has to close: those above the limit that are not being closed yet.
    #[must_use]
    pub fn surplus(&self) -> u32 {
        let Some(lease) = &self.lease else {
            return 0;
        };
        let taken = self.process_servers().saturating_sub(lease.ending);
        taken.saturating_sub(lease.limit)
    }

    /// Notes that a login to a server has succeeded or failed. Returns the pools whose
    /// [`Ledger::room`](crate::pool::Ledger::room) is to be called.
    #[must_use = "a pool that is not notified waits although it could go on"]
    pub fn end_login(&mut self) -> Vec<PoolId> {
        self.forget_login();
        match self.lease.is_some() {
            true => self.grant_process(),
            false => Vec::new(),
        }
    }

    /// Subtracts one from the logins under way.
    pub fn forget_login(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.logins = lease.logins.saturating_sub(1);
        }
    }

    /// Takes a slot for a server of this pool that pgweir closes. The slot stays taken until
    /// [`end_closing`](Self::end_closing). The caller gives the server's own slot back.
    pub fn begin_closing(&mut self, pool: PoolId) {
        if let Some(lease) = &mut self.lease {
            lease.ending += 1;
            self.change(pool, |holder| holder.slots += 1);
        }
    }

    /// Gives back the slot of a server that PostgreSQL has closed. Returns the pools whose
    /// [`Ledger::room`](crate::pool::Ledger::room) is to be called.
    #[must_use = "a pool that is not notified waits although it could go on"]
    pub fn end_closing(&mut self, pool: PoolId) -> Vec<PoolId> {
        let Some(lease) = &mut self.lease else {
            return Vec::new();
        };
        lease.ending = lease.ending.saturating_sub(1);
        self.give_back(pool)
    }

    /// Returns whether the lease allows no further login now.
    pub(super) fn is_refused(&self, scope: Scope, cap: &Cap) -> bool {
        let Some(lease) = self.lease.as_ref().filter(|_| scope == Scope::Process) else {
            return false;
        };
        let needs_lease = cap.taken >= lease.floor;
        lease.logins >= lease.floor || needs_lease && (lease.clock)() >= lease.until
    }

    pub(super) fn note_login(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.logins += 1;
        }
    }

    fn grant_process(&mut self) -> Vec<PoolId> {
        let any = self
            .process_cap()
            .and_then(|cap| cap.denied.front().copied());
        any.map_or_else(Vec::new, |pool| self.grant(pool))
    }

    fn set_process_limit(&mut self, limit: u32) {
        if let Some(cap) = self.caps.get_mut(&process_name()) {
            cap.limit = limit;
        }
    }

    fn process_cap(&self) -> Option<&Cap> {
        self.caps.get(&process_name())
    }
}

fn process_name() -> Name {
    (Scope::Process, Arc::from(""))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{
        Time,
        pool::{CapLimits, Denied},
    };

    static NOW: AtomicU64 = AtomicU64::new(0);
    const POOL: PoolId = PoolId(0);

    #[test]
    fn no_slot_above_the_floor_is_taken_after_the_lease() {
        let mut caps = Caps::default();
        caps.begin_leases(2, || NOW.load(Ordering::Relaxed));
        let limits = CapLimits {
            database: 0,
            user: 0,
            process: 0,
            weight: 1,
        };
        caps.join(POOL, ["d", "u", ""], limits);
        let log_in = |caps: &mut Caps| {
            let took = caps.take(POOL, Time(0)).map_err(|Denied { by, .. }| by);
            if took.is_ok() {
                assert_eq!(caps.end_login(), []);
            }
            took
        };
        // Two logins may be under way.
        assert!(caps.take_spare(POOL) && caps.take_spare(POOL));
        assert!(!caps.take_spare(POOL));
        assert_eq!((caps.end_login(), caps.end_login()), (vec![], vec![]));
        assert_eq!(log_in(&mut caps), Err(Scope::Process));
        // The denied pool is granted a slot by the lease.
        assert_eq!(caps.renew_lease(5, 10), [POOL]);
        assert!(caps.claim(POOL));
        assert_eq!(caps.end_login(), []);
        assert_eq!(log_in(&mut caps), Ok(()));
        NOW.store(10, Ordering::Relaxed);
        assert_eq!(log_in(&mut caps), Err(Scope::Process));
        assert_eq!(caps.renew_lease(5, 20), [POOL]);
        assert!(caps.claim(POOL));
        assert_eq!(caps.end_login(), []);
        assert_eq!(
            (caps.process_servers(), caps.surplus(), caps.short()),
            (5, 0, 0)
        );
        // The limit falls: servers have to go, and each counts until PostgreSQL has closed it.
        assert_eq!(caps.renew_lease(3, 20), []);
        assert_eq!((caps.surplus(), caps.short()), (2, 1));
        assert!(caps.must_give_up_server(POOL, true, Time(0)));
        for _ in 0..2 {
            caps.begin_closing(POOL);
            assert_eq!(caps.give_back(POOL), []);
        }
        assert_eq!((caps.process_servers(), caps.surplus()), (5, 0));
        assert!(!caps.must_give_up_server(POOL, true, Time(0)));
        assert_eq!(log_in(&mut caps), Err(Scope::Process));
        for _ in 0..2 {
            assert_eq!(caps.end_closing(POOL), []);
        }
        assert_eq!(caps.process_servers(), 3);
    }
}
