//! One node: its requests to the store and to PostgreSQL, and how many servers it may have.

use std::collections::BTreeMap;

use crate::{Account, Change, Demand, NodeId, Record, Refusal, Terms, divide};

/// The servers of a node, and what its clients need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Servers that exist or are being opened or closed.
    pub servers: u32,
    /// Servers in use, and one for each waiting client.
    pub wanted: u32,
    /// The weight of the waiting clients.
    pub weight: u32,
}

/// A request of a node. A node has at most one request under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read the account: a linearizable read.
    Read,
    /// Change the account.
    Change(Change),
    /// Count the fleet's backends in PostgreSQL, by node.
    CountBackends,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The account.
    Account(Account),
    /// The node's record after a change, or why the store has refused the change.
    Changed(Result<Option<Record>, Refusal>),
    /// The number of backends of each node that has any.
    Backends(BTreeMap<NodeId, u32>),
}

/// A node. Times are microseconds of a clock that also counts while the machine is suspended.
#[derive(Debug)]
pub struct Node {
    terms: Terms,
    id: NodeId,
    /// How many servers above the floor the node may have during its lease. The number never exceeds `extra` in the
    /// store's record.
    extra: u32,
    /// How many servers above the floor the node should have, computed from the demands of all nodes.
    goal: u32,
    /// The load for which `goal` was computed. `None` after each read.
    goal_for: Option<Load>,
    /// When the renewal of the present lease was sent.
    leased_from: Option<u64>,
    trust: Trust,
    /// The account as the node has read it last. `None` after each change.
    view: Option<Account>,
    /// When each other node was last seen to renew its record in this instance of the store.
    seen: BTreeMap<NodeId, Seen>,
    flight: Option<Flight>,
    requests: u64,
    /// Corrections of other nodes' records that are to be made.
    corrections: Vec<Change>,
    next_read: u64,
    next_count: u64,
}

/// Whether the records of the store can be trusted.
#[derive(Debug, Default)]
struct Trust {
    /// The instance of the store. It changes when the store may have gone back in time.
    instance: Option<u64>,
    /// When all leases that the store may have forgotten are over.
    from: u64,
    /// Whether the records of this instance were compared with the backends in PostgreSQL.
    is_checked: bool,
}

/// When another node last renewed its record, as far as this node has read it.
#[derive(Debug)]
struct Seen {
    renewals: u64,
    /// When this node first read this number of renewals.
    since: u64,
    /// Whether the node has written its record in this instance.
    has_renewed: bool,
}

#[derive(Debug)]
struct Flight {
    number: u64,
    sent: u64,
    is_own_write: bool,
}

impl Node {
    /// Creates a node that has its floor. `id` has to differ from those of all other starts.
    #[must_use]
    pub fn new(terms: Terms, id: NodeId) -> Self {
        Self {
            terms,
            id,
            extra: 0,
            goal: 0,
            goal_for: None,
            leased_from: None,
            trust: Trust::default(),
            view: None,
            seen: BTreeMap::new(),
            flight: None,
            requests: 0,
            corrections: Vec::new(),
            next_read: 0,
            next_count: 0,
        }
    }

    /// Returns the node's number.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns how many servers the node may have now. A node with more servers closes those that are idle, and each
    /// other one when it becomes free.
    #[must_use]
    pub fn limit(&self, now: u64) -> u32 {
        match self.is_leased(now) {
            true => self.terms.floor + self.extra.min(self.goal),
            false => self.terms.floor,
        }
    }

    /// Returns how many servers the node may have until its lease ends, and when the lease ends.
    #[must_use]
    pub fn grant(&self) -> (u32, u64) {
        let until = self
            .leased_from
            .map_or(0, |from| from + self.terms.usable());
        (self.terms.floor + self.extra.min(self.goal), until)
    }

    /// Returns the account as the node has read it last, or `None` if the node has changed it since.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        self.view.as_ref()
    }

    /// Returns how many of the spare servers the node should have, computed from the demands of all nodes.
    #[must_use]
    pub fn goal(&self) -> u32 {
        self.goal
    }

    /// Returns whether the lease holds.
    #[must_use]
    pub fn is_leased(&self, now: u64) -> bool {
        self.leased_from
            .is_some_and(|from| now.saturating_sub(from) < self.terms.usable())
    }

    /// Returns whether a node that has this many `servers`, of which `opening` are being opened, may open one more. The
    /// caller reads the clock just before this call.
    #[must_use]
    pub fn may_open(&self, now: u64, servers: u32, opening: u32) -> bool {
        servers < self.limit(now) && opening < self.terms.floor
    }

    /// Returns the next request, with its number, if there is one.
    pub fn tick(&mut self, now: u64, load: Load) -> Option<(u64, Request)> {
        if let Some(flight) = &self.flight {
            if now.saturating_sub(flight.sent) < self.terms.timeout {
                return None;
            }
            // The store may still carry out the request.
            self.flight = None;
            self.forget_view(now);
        }
        let request = match &self.view {
            _ if now >= self.next_read => Request::Read,
            None => return None,
            Some(_) => match self.corrections.pop() {
                Some(correction) => Request::Change(correction),
                None => self.write_or_count(now, load)?,
            },
        };
        self.requests += 1;
        let is_own_write = matches!(request, Request::Change(Change::Write { .. }));
        self.flight = Some(Flight {
            number: self.requests,
            sent: now,
            is_own_write,
        });
        Some((self.requests, request))
    }

    /// Returns the next request of a node that has read the account and has nothing to correct. A renewal of the lease
    /// goes before a count: counts that fail, one after the other, must not cost the lease.
    fn write_or_count(&mut self, now: u64, load: Load) -> Option<Request> {
        let must_count = self.must_count(now);
        if (!must_count || self.must_renew(now))
            && let Some(change) = self.own_write(now, load)
        {
            return Some(Request::Change(change));
        }
        if !must_count {
            return None;
        }
        self.next_count = now + self.terms.lease / 3;
        Some(Request::CountBackends)
    }

    /// Processes the answer to the request of this number. `instance` changes when the store may have gone back in
    /// time. An answer that arrives after its request was given up is ignored.
    pub fn answer(&mut self, now: u64, number: u64, instance: u64, answer: Answer) {
        let Some(flight) = self.flight.take_if(|flight| flight.number == number) else {
            return;
        };
        if self.trust.instance != Some(instance) {
            self.trust = Trust {
                instance: Some(instance),
                from: now + self.terms.patience(),
                is_checked: false,
            };
            self.seen.clear();
            // This answer came from the former instance, or with the change of instance. Read the account again.
            return self.forget_view(now);
        }
        match answer {
            Answer::Account(account) => self.read(now, account),
            Answer::Changed(Ok(record)) if flight.is_own_write => {
                self.extra = record.map_or(0, |record| record.extra);
                self.leased_from = Some(flight.sent);
                self.forget_view(now);
            }
            Answer::Changed(Ok(_)) => {
                // The check of the records ends with a count that finds nothing to correct.
                if self.corrections.is_empty() {
                    self.forget_view(now);
                    self.next_count = now;
                }
            }
            Answer::Changed(Err(_)) => self.forget_view(now),
            Answer::Backends(backends) => self.plan_corrections(flight.sent, &backends),
        }
    }

    /// Records that a request has failed, since the store can't be reached or has refused it. The next request is a
    /// read.
    pub fn fail(&mut self, now: u64, number: u64) {
        if self
            .flight
            .take_if(|flight| flight.number == number)
            .is_some()
        {
            self.forget_view(now);
            self.next_read = now + self.terms.interval;
        }
    }

    fn forget_view(&mut self, now: u64) {
        self.view = None;
        self.corrections.clear();
        self.next_read = now;
    }

    fn read(&mut self, now: u64, account: Account) {
        self.seen.retain(|id, _| account.records.contains_key(id));
        for (&id, record) in &account.records {
            let seen = self.seen.entry(id).or_insert(Seen {
                renewals: record.renewals,
                since: now,
                has_renewed: false,
            });
            if seen.renewals != record.renewals {
                *seen = Seen {
                    renewals: record.renewals,
                    since: now,
                    has_renewed: true,
                };
            }
        }
        let held = account.records.get(&self.id).map_or(0, |own| own.extra);
        self.extra = match self.is_leased(now) {
            true => self.extra.min(held),
            // Other nodes may have set the record to a count of this node's backends. The node must take servers above
            // the floor anew.
            false => 0,
        };
        self.corrections.clear();
        self.goal_for = None;
        self.view = Some(account);
        self.next_read = now + self.terms.interval;
    }

    fn is_trusted(&self, now: u64) -> bool {
        self.trust.instance.is_some() && self.trust.is_checked && now >= self.trust.from
    }

    /// Returns the records of nodes whose leases are over.
    fn lost(&self, now: u64) -> impl Iterator<Item = (NodeId, Record)> {
        let records = self.view.iter().flat_map(|view| &view.records);
        records
            .filter(move |(id, _)| {
                let since = self.seen.get(id).map_or(now, |seen| seen.since);
                **id != self.id && now.saturating_sub(since) >= self.terms.patience()
            })
            .map(|(&id, &record)| (id, record))
    }

    /// Returns whether each other node has either renewed its record in this instance of the store, or lost its lease.
    /// The count of a lost node's backends is final.
    fn are_records_sound(&self, now: u64) -> bool {
        let is_over = |seen: &Seen| now.saturating_sub(seen.since) >= self.terms.patience();
        self.seen
            .iter()
            .all(|(&id, seen)| id == self.id || seen.has_renewed || is_over(seen))
    }

    fn must_count(&self, now: u64) -> bool {
        let is_due = !self.trust.is_checked || self.lost(now).next().is_some();
        now >= self.trust.from && now >= self.next_count && is_due
    }

    /// Returns whether the lease is to be renewed.
    fn must_renew(&self, now: u64) -> bool {
        self.leased_from
            .is_none_or(|from| now.saturating_sub(from) >= self.terms.lease / 3)
    }

    /// Plans the corrections of the account. `asked` is a time before PostgreSQL counted the backends.
    fn plan_corrections(&mut self, asked: u64, backends: &BTreeMap<NodeId, u32>) {
        let count = |id: NodeId| backends.get(&id).copied().unwrap_or(0);
        let of_lost = self.lost(asked).filter_map(|(id, record)| {
            let extra = match self.trust.is_checked {
                true => record.extra.min(count(id)),
                false => count(id),
            };
            let changes = extra != record.extra || extra == 0;
            changes.then_some((id, Some(record.version), extra))
        });
        let records = self.view.as_ref().map(|view| &view.records);
        let is_unknown =
            |id: NodeId| id != self.id && records.is_some_and(|known| !known.contains_key(&id));
        let of_unknown = backends
            .iter()
            .filter(|&(&id, &count)| !self.trust.is_checked && count > 0 && is_unknown(id))
            .map(|(&id, &count)| (id, None, count));
        let correct = |(node, version, extra)| Change::Correct {
            node,
            version,
            extra,
        };
        self.corrections = of_lost.chain(of_unknown).map(correct).collect();
        self.trust.is_checked |= self.corrections.is_empty() && self.are_records_sound(asked);
    }

    /// Returns the change of the node's own record that is due.
    fn own_write(&mut self, now: u64, load: Load) -> Option<Change> {
        if self.goal_for != Some(load) {
            self.set_goal(load);
            self.goal_for = Some(load);
        }
        let view = self.view.as_ref()?;
        let own = view.records.get(&self.id);
        let held = own.map_or(0, |record| record.extra);
        let used = load.servers.saturating_sub(self.terms.floor);
        if used > held {
            // The record allows fewer servers than the node has. The node closes servers before it renews.
            return None;
        }
        let available = u32::try_from((i64::from(held) + view.free).max(0)).unwrap_or(u32::MAX);
        let extra = match self.is_trusted(now) {
            true => self.goal.min(available.max(self.extra)),
            false => self.goal.min(self.extra),
        };
        let raises = extra > self.extra;
        // The node holds each of its servers until the server is closed.
        let extra = extra.max(used);
        let renews = self.must_renew(now);
        let is_news = own.is_none_or(|own| (own.wanted, own.weight) != (load.wanted, load.weight));
        if extra == held && !renews && !is_news {
            return None;
        }
        self.extra = self.extra.min(extra);
        Some(Change::Write {
            node: self.id,
            version: own.map(|record| record.version),
            extra,
            raises,
            wanted: load.wanted,
            weight: load.weight,
        })
    }

    /// Computes the node's part of the spare servers.
    fn set_goal(&mut self, load: Load) {
        let Some(view) = &self.view else {
            return;
        };
        let demand = |wanted: u32, weight| Demand {
            wanted: wanted.saturating_sub(self.terms.floor),
            weight,
        };
        let mut ids = vec![self.id];
        let mut demands = vec![demand(load.wanted, load.weight)];
        for (&id, record) in view.records.iter().filter(|(id, _)| **id != self.id) {
            ids.push(id);
            demands.push(demand(record.wanted, record.weight));
        }
        // Sorted by node, so that all nodes round in the same way.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&at| ids[at]);
        let sorted: Vec<_> = order.iter().map(|&at| demands[at]).collect();
        let shares = divide(self.terms.spare(), &sorted);
        let own = order.iter().position(|&at| at == 0);
        self.goal = own.map_or(0, |at| shares[at]);
    }
}

#[cfg(test)]
mod tests;
