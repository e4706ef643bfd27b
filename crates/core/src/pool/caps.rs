//! Caps: limits on servers that several pools share, for one database, for one user, or for the process.
//!
//! A ledger takes a slot when it decides to open a server, and gives the slot back when that server is gone, so that no
//! cap is exceeded at any moment. A pool that finds no room under a cap is *denied*, and stands in the queue of that
//! cap.
//!
//! # No client waits while there is room
//!
//! 1. A slot that is given back, or a higher limit, makes room. The room is granted at once to the pools in the queues
//!    of these caps, first to those that have the fewest slots for their weight, until none of the caps has both room
//!    and a queue. The caller then calls [`Ledger::room`](super::Ledger::room) of these pools. If another cap denies
//!    such a pool by now, the pool gets no slot; its ledger asks again, and is denied by that cap.
//! 2. `room` uses the slot, or gives it back, as in 1.
//! 3. While a pool is denied, idle servers of other pools may be closed for it. A *search* asks each worker for its
//!    idle servers, and makes the workers offer servers that become free later to the ledgers, which ask
//!    [`Caps::must_give_up_server`]. A search that found a server begins anew while a pool is denied. A search also begins with the
//!    first pool that is denied, when one more pool makes the shares of the others smaller, and with each tick of a
//!    ledger.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::PoolId;
use crate::Time;

/// Microseconds after which a denied pool that has less than its share of a cap gets a slot even from a pool whose own
/// clients wait. Each such change costs a login to a server, so it must not happen at every transaction.
pub const PATIENCE: u64 = 500_000;

/// The kinds of caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Servers of one database: `max_db_connections`.
    Database,
    /// Servers of one user: `max_user_connections`.
    User,
    /// Servers of the process, or of a group of hosts if `max_server_conn` is a percentage: the process's share of that
    /// limit.
    Process,
}

/// The configured limits for a pool's database, its user and the process; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapLimits {
    /// The largest number of servers of the database.
    pub database: u32,
    /// The largest number of servers of the user.
    pub user: u32,
    /// The largest number of servers of the process, or of a group of hosts; [`CapLimits::NOT_KNOWN`] until a host of
    /// the group has reported its connections.
    pub process: u32,
    /// The pool's share of a cap, in relation to the shares of other pools. At least 1.
    pub weight: u32,
}

impl CapLimits {
    /// The limit of a group of hosts whose connections are not known yet: [`SERVERS_AT_FIRST`], or one more server than
    /// there are, since its login finds out.
    pub const NOT_KNOWN: u32 = u32::MAX;
}

/// How many servers a group of hosts may have before pgweir knows the connections of one of these hosts.
pub const SERVERS_AT_FIRST: u32 = 10;

/// The denial of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The cap that is full.
    pub by: Scope,
    /// The caps for which no search is under way: the caller begins one for each.
    pub search: Vec<Scope>,
}

/// The slots under all caps, and the queues of denied pools; see the module's documentation.
#[derive(Debug, Default)]
pub struct Caps {
    caps: HashMap<Name, Cap>,
    /// The pools, by [`PoolId`].
    holders: Vec<Option<Holder>>,
    short: usize,
    /// The lease of this process, if it shares the process's cap with other processes.
    lease: Option<Lease>,
}

type Name = (Scope, Arc<str>);

#[derive(Debug, Default)]
struct Cap {
    /// The largest number of slots; 0 is no limit.
    limit: u32,
    taken: u32,
    /// The sum of the weights of all pools that have servers under the cap, or want some.
    weights: u64,
    denied: VecDeque<PoolId>,
    searching: bool,
    /// Whether, since the search began, a pool was denied or shares became smaller. If so, the search may have missed
    /// servers that became idle, or closable, after the search had passed them.
    denied_since: bool,
    holders: usize,
}

#[derive(Debug)]
struct Holder {
    /// The holder's caps, in the order in which they are checked.
    names: [Name; 3],
    weight: u32,
    /// The holder's slots, including those that were granted and not claimed yet.
    slots: u32,
    granted: u32,
    /// The cap that denies the holder a slot, and the time of the denial.
    denied: Option<(Scope, Time)>,
}

impl Caps {
    /// Adds a pool of this database, user and group of hosts. The group is empty if the process's cap holds for all
    /// hosts. If this changes a limit, pools in queues get room when [`Caps::set_limits`] is called for them.
    pub fn join(&mut self, pool: PoolId, names: [&str; 3], limits: CapLimits) {
        let [database, user, group] = names;
        let names = [
            (Scope::Database, database.into()),
            (Scope::User, user.into()),
            (Scope::Process, group.into()),
        ];
        for name in &names {
            self.caps.entry(name.clone()).or_default().holders += 1;
        }
        if self.holders.len() <= pool.index() {
            self.holders.resize_with(pool.index() + 1, || None);
        }
        self.holders[pool.index()] = Some(Holder {
            names,
            weight: 1,
            slots: 0,
            granted: 0,
            denied: None,
        });
        self.limit(pool, limits);
    }

    /// Removes a pool.
    pub fn part(&mut self, pool: PoolId) {
        self.withdraw(pool);
        self.change(pool, |holder| holder.slots = 0);
        let Some(holder) = self.holders.get_mut(pool.index()).and_then(Option::take) else {
            return;
        };
        for name in holder.names {
            if let Some(cap) = self.caps.get_mut(&name) {
                cap.holders -= 1;
                if cap.holders == 0 {
                    self.caps.remove(&name);
                }
            }
        }
    }

    /// Sets new limits, and the group of hosts whose cap holds for the pool. Returns the pools whose
    /// [`Ledger::room`](super::Ledger::room) is to be called.
    #[must_use = "a pool that is not notified waits although it could go on"]
    pub fn set_limits(&mut self, pool: PoolId, group: &str, limits: CapLimits) -> Vec<PoolId> {
        let mut pools_to_notify = self.set_group(pool, group);
        self.limit(pool, limits);
        pools_to_notify.extend(self.grant(pool));
        pools_to_notify
    }

    /// Takes one more slot for a pool whose clients wait.
    ///
    /// # Errors
    /// There is no room: the pool stands in the queue now.
    pub fn take(&mut self, pool: PoolId, now: Time) -> Result<(), Denied> {
        let full = self.full(pool);
        let Some(by) = full else {
            self.withdraw(pool);
            self.change(pool, |holder| holder.slots += 1);
            self.note_login();
            return Ok(());
        };
        let before = self.holder(pool).and_then(|holder| holder.denied);
        let was_active = self.is_active(pool);
        if before.is_none_or(|(scope, _)| scope != by) {
            self.withdraw(pool);
            self.short += 1;
            if let Some(cap) = self.cap_mut(pool, by) {
                cap.denied.push_back(pool);
                cap.denied_since = true;
            }
        }
        let since = before.map_or(now, |(_, since)| since);
        self.change(pool, |holder| holder.denied = Some((by, since)));
        let begins = self.cap_mut(pool, by).is_some_and(Cap::begin_search);
        let mut search: Vec<Scope> = begins.then_some(by).into_iter().collect();
        if !was_active && by != Scope::Process {
            search.extend(self.search_for_shares(pool));
        }
        Err(Denied { by, search })
    }

    /// Takes one more slot if there is room. If not, the pool does not join the queue.
    pub fn take_spare(&mut self, pool: PoolId) -> bool {
        let free = self.full(pool).is_none();
        if free {
            self.change(pool, |holder| holder.slots += 1);
            self.note_login();
        }
        free
    }

    /// Takes one more slot for a server that exists already, even without room. Returns the cap for which the caller
    /// begins a search.
    pub fn take_anyway(&mut self, pool: PoolId) -> Option<Scope> {
        let was_active = self.is_active(pool);
        self.change(pool, |holder| holder.slots += 1);
        if was_active {
            return None;
        }
        self.search_for_shares(pool)
    }

    /// Claims the slot that the pool was granted. Returns `false` if it was granted none.
    pub fn claim(&mut self, pool: PoolId) -> bool {
        self.withdraw(pool);
        match self.holders.get_mut(pool.index()) {
            Some(Some(holder)) if holder.granted > 0 => {
                holder.granted -= 1;
                true
            }
            _ => false,
        }
    }

    /// Called after the pool has got a slot. Returns the caps for which the caller begins a new search: the pool now
    /// has more than its share of these caps, and they deny other pools. An earlier search may have passed an idle
    /// server of this pool that may be closed now.
    pub fn search_again(&mut self, pool: PoolId) -> Vec<Scope> {
        let begins = |&scope: &Scope| {
            let (Some(name), Some(holder)) = (self.name(pool, scope), self.holder(pool)) else {
                return false;
            };
            let is_over = self.caps.get(name).is_some_and(|cap| {
                cap.is_full() && !cap.denied.is_empty() && cap.may_lose(scope, holder)
            });
            is_over && self.cap_mut(pool, scope).is_some_and(Cap::begin_search)
        };
        Scope::ALL.into_iter().filter(begins).collect()
    }

    /// Counts the pool as active, so that the other pools' shares of the process's cap become smaller. An earlier
    /// search may have passed servers that may be closed now. Returns the cap for which the caller begins a search.
    fn search_for_shares(&mut self, pool: PoolId) -> Option<Scope> {
        let cap = self.cap_mut(pool, Scope::Process)?;
        if !cap.is_full() || cap.denied.is_empty() {
            return None;
        }
        // A search that is under way may have passed such a server already.
        cap.denied_since = true;
        cap.begin_search().then_some(Scope::Process)
    }

    /// Gives a slot back. Returns the pools whose [`Ledger::room`](super::Ledger::room) is to be called.
    #[must_use = "a pool that is not notified waits although it could go on"]
    pub fn give_back(&mut self, pool: PoolId) -> Vec<PoolId> {
        self.change(pool, |holder| holder.slots = holder.slots.saturating_sub(1));
        self.grant(pool)
    }

    /// Removes a pool that wants no more slots from the queue.
    pub fn withdraw(&mut self, pool: PoolId) {
        let Some((scope, _)) = self.holder(pool).and_then(|holder| holder.denied) else {
            return;
        };
        if let Some(cap) = self.cap_mut(pool, scope) {
            cap.denied.retain(|&denied| denied != pool);
        }
        self.short -= 1;
        self.change(pool, |holder| holder.denied = None);
    }

    /// Grants the room that the caps of `pool` have. Returns the pools that got it.
    fn grant(&mut self, pool: PoolId) -> Vec<PoolId> {
        let mut pools_to_notify = Vec::new();
        for scope in Scope::ALL {
            while let Some(next) = self.denied_with_fewest_slots(pool, scope) {
                self.withdraw(next);
                if self.full(next).is_none() {
                    self.change(next, |holder| {
                        holder.slots += 1;
                        holder.granted += 1;
                    });
                    self.note_login();
                }
                pools_to_notify.push(next);
            }
        }
        pools_to_notify
    }

    /// Returns whether another pool needs the slot of a server of `pool` that became free. `wanted`: a client of the
    /// pool itself waits for the server.
    #[must_use]
    pub fn must_give_up_server(&self, pool: PoolId, wanted: bool, now: Time) -> bool {
        let Some(holder) = self.holder(pool) else {
            return false;
        };
        if self.surplus() > 0 {
            return true;
        }
        let needed_of = |name: &Name| {
            let Some(cap) = self.caps.get(name).filter(|cap| cap.is_full()) else {
                return false;
            };
            let mut others = cap
                .denied
                .iter()
                .filter(|&&other| other != pool)
                .filter_map(|&other| self.holder(other));
            let is_due = |other: &Holder| {
                let since = other.denied.map_or(now, |(_, since)| since);
                cap.is_below_share(other) && now.since(since) >= PATIENCE
            };
            match wanted {
                true => cap.is_above_share(holder) && others.any(is_due),
                false => cap.may_lose(name.0, holder) && others.next().is_some(),
            }
        };
        holder.names.iter().any(needed_of)
    }

    /// Returns whether a server of `other` that has been idle for `idle` microseconds may be closed while the cap of
    /// `pool` in this scope denies a pool. A server that was idle for [`PATIENCE`] may be closed even if its pool has
    /// no more than its share of the process's cap.
    #[must_use]
    pub fn may_evict(&self, pool: PoolId, scope: Scope, other: PoolId, idle: u64) -> bool {
        let (Some(name), Some(holder)) = (self.name(pool, scope), self.holder(other)) else {
            return false;
        };
        let Some(cap) = self.caps.get(name).filter(|cap| cap.is_full()) else {
            return false;
        };
        holder.names.contains(name)
            && cap.denied.iter().any(|&denied| denied != other)
            && (idle >= PATIENCE || cap.may_lose(scope, holder))
    }

    /// Ends a search. Returns whether the caller begins a new one: a pool is still denied, and the search has `found` a
    /// server, or a pool was denied since the search began.
    pub fn searched(&mut self, pool: PoolId, scope: Scope, found: bool) -> bool {
        let Some(cap) = self.cap_mut(pool, scope) else {
            return false;
        };
        cap.searching = false;
        let is_needed = cap.is_full() && !cap.denied.is_empty();
        is_needed && (found || cap.denied_since) && cap.begin_search()
    }

    /// Returns the number of denied pools, plus 1 if the process has more servers than its lease allows. While this is
    /// not 0, servers that become free may have to be closed.
    #[must_use]
    pub fn short(&self) -> usize {
        self.short + usize::from(self.surplus() > 0)
    }

    /// Returns the slots taken under the pool's cap of this scope, and the limit; 0 is no limit.
    #[must_use]
    pub fn usage(&self, pool: PoolId, scope: Scope) -> (u32, u32) {
        let cap = self.name(pool, scope).and_then(|name| self.caps.get(name));
        cap.map_or((0, 0), |cap| (cap.taken, cap.limit))
    }

    /// Returns the number of servers of a database or a user, in all pools.
    #[must_use]
    pub fn taken(&self, scope: Scope, name: &str) -> u32 {
        let cap = self.caps.get(&(scope, name.into()));
        cap.map_or(0, |cap| cap.taken)
    }

    /// Returns the first cap of the pool that has no room.
    fn full(&self, pool: PoolId) -> Option<Scope> {
        let names = &self.holder(pool)?.names;
        let full = |name: &&Name| {
            let cap = self.caps.get(*name);
            cap.is_some_and(|cap| cap.is_full() || self.is_refused(name.0, cap))
        };
        names.iter().find(full).map(|name| name.0)
    }

    /// If the cap of `pool` has room now, returns the pool with the fewest slots for its weight among the pools that
    /// this cap has denied.
    fn denied_with_fewest_slots(&self, pool: PoolId, scope: Scope) -> Option<PoolId> {
        let cap = self.caps.get(self.name(pool, scope)?)?;
        if cap.is_full() || self.is_refused(scope, cap) {
            return None;
        }
        let denied = cap.denied.iter().copied();
        denied.min_by(|&a, &b| match (self.holder(a), self.holder(b)) {
            (Some(a), Some(b)) => (u64::from(a.slots) * u64::from(b.weight))
                .cmp(&(u64::from(b.slots) * u64::from(a.weight))),
            _ => std::cmp::Ordering::Equal,
        })
    }

    fn limit(&mut self, pool: PoolId, limits: CapLimits) {
        self.change(pool, |holder| holder.weight = limits.weight.max(1));
        let process = match &self.lease {
            Some(lease) => lease.limit(),
            None => limits.process,
        };
        let limits = [limits.database, limits.user, process];
        for (scope, limit) in Scope::ALL.into_iter().zip(limits) {
            if let Some(cap) = self.cap_mut(pool, scope) {
                cap.limit = match limit {
                    CapLimits::NOT_KNOWN if scope == Scope::Process => {
                        SERVERS_AT_FIRST.max(cap.taken.saturating_add(1))
                    }
                    limit => limit,
                };
            }
        }
    }

    /// Changes a holder, and its caps' counts with it.
    fn change(&mut self, pool: PoolId, how: impl FnOnce(&mut Holder)) {
        let Some(Some(holder)) = self.holders.get_mut(pool.index()) else {
            return;
        };
        let (slots, weight) = (holder.slots, holder.active_weight());
        how(holder);
        for name in &holder.names {
            if let Some(cap) = self.caps.get_mut(name) {
                cap.taken = cap.taken + holder.slots - slots;
                cap.weights = cap.weights + holder.active_weight() - weight;
            }
        }
    }

    fn is_active(&self, pool: PoolId) -> bool {
        self.holder(pool)
            .is_some_and(|holder| holder.active_weight() > 0)
    }

    fn holder(&self, pool: PoolId) -> Option<&Holder> {
        self.holders.get(pool.index())?.as_ref()
    }

    fn name(&self, pool: PoolId, scope: Scope) -> Option<&Name> {
        Some(&self.holder(pool)?.names[scope as usize])
    }

    fn cap_mut(&mut self, pool: PoolId, scope: Scope) -> Option<&mut Cap> {
        let name = &self.holders.get(pool.index())?.as_ref()?.names[scope as usize];
        self.caps.get_mut(name)
    }
}

impl Scope {
    /// All scopes, in the order in which caps are checked.
    pub const ALL: [Scope; 3] = [Scope::Database, Scope::User, Scope::Process];

    /// Returns the name of the setting.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Self::Database => "max_db_connections",
            Self::User => "max_user_connections",
            Self::Process => "max_server_conn",
        }
    }
}

impl Cap {
    /// Begins a search. Returns `false` if one is under way.
    fn begin_search(&mut self) -> bool {
        let begins = !std::mem::replace(&mut self.searching, true);
        if begins {
            self.denied_since = false;
        }
        begins
    }

    fn is_full(&self) -> bool {
        self.limit > 0 && self.taken >= self.limit
    }

    /// Returns whether the holder has more of this cap than its weight entitles it to.
    fn is_above_share(&self, holder: &Holder) -> bool {
        self.part_of(holder) > u64::from(self.limit) * u64::from(holder.weight)
    }

    fn is_below_share(&self, holder: &Holder) -> bool {
        self.part_of(holder) < u64::from(self.limit) * u64::from(holder.weight)
    }

    fn part_of(&self, holder: &Holder) -> u64 {
        u64::from(holder.slots) * self.weights
    }

    /// Returns whether an idle server of this holder may be closed for another pool. Under the caps of databases and
    /// users, any may, as in PgBouncer; under the process's cap, each pool keeps its share.
    fn may_lose(&self, scope: Scope, holder: &Holder) -> bool {
        scope != Scope::Process || self.is_above_share(holder)
    }
}

impl Holder {
    fn active_weight(&self) -> u64 {
        let is_active = self.slots > 0 || self.denied.is_some();
        if is_active { u64::from(self.weight) } else { 0 }
    }
}

mod group;
mod lease;
use lease::Lease;
pub use lease::LeaseClock;

#[cfg(test)]
mod tests;
