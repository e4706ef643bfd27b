//! Failed logins by address and user, and the bans that follow them, shared by all workers.
//!
//! Within `auth_failure_window`, the answer to each further failure of the same user from the same address comes later
//! than the one before (`auth_failure_delay`). At `auth_failure_limit` failures this user is refused from this address
//! for `auth_ban_time`, with the right password, too. Whether the user exists makes no difference.
//!
//! At most `auth_ban_size` pairs are remembered. If there are more, the oldest ones are forgotten, those without a ban
//! first. Logins take the lock only while `auth_failure_limit` is set; queries never do.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use parking_lot::Mutex;
use pgweir_config::Settings;

use crate::Time;

/// The longest delay of an answer, as a multiple of `auth_failure_delay`.
const DELAY_FACTOR_MAX: u64 = 16;
/// The fraction of the table that is forgotten at once when it is full, so that the search for the oldest entries is
/// rare.
const FORGOTTEN_AT_ONCE: usize = 4;

/// The settings about failed logins.
#[derive(Debug, Clone, Copy)]
pub struct BanTerms {
    limit: u32,
    window: u64,
    delay: u64,
    ban_time: u64,
    size: usize,
}

impl BanTerms {
    /// Returns the terms of these settings; `None` if failures are not counted.
    #[must_use]
    pub fn of(settings: &Settings) -> Option<Self> {
        (settings.auth_failure_limit > 0).then_some(Self {
            limit: settings.auth_failure_limit,
            window: settings.auth_failure_window.0,
            delay: settings.auth_failure_delay.0,
            ban_time: settings.auth_ban_time.0,
            size: settings.auth_ban_size as usize,
        })
    }
}

/// The consequences of a failed login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consequence {
    /// The time after which the client gets its error, in microseconds.
    pub delay: u64,
    /// The number of failures, if this one began a ban.
    pub banned_after: Option<u32>,
}

/// A row of SHOW BANS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanEntry {
    /// The address; for IPv6, its network of 64 bits.
    pub address: IpAddr,
    /// The user that the client claimed to be.
    pub user: Box<str>,
    /// The number of failed logins.
    pub failures: u32,
    /// The time of the first failed login.
    pub first: Time,
    /// The time of the last one.
    pub last: Time,
    /// The end of the ban, if there is one.
    pub until: Option<Time>,
}

/// The figures of the table for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BanCounts {
    /// The number of pairs of address and user with failed logins.
    pub entries: usize,
    /// The number of pairs that are banned.
    pub banned: usize,
    /// The number of bans that began.
    pub begun: u64,
    /// The number of logins that were refused because of a ban.
    pub refused: u64,
    /// The number of pairs that were forgotten because the table was full.
    pub forgotten: u64,
}

/// The failed logins of all workers, by address and user.
#[derive(Debug, Default)]
pub struct Bans(Mutex<Table>);

type Key = (IpAddr, Box<str>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, Failures>,
    begun: u64,
    refused: u64,
    forgotten: u64,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    first: Time,
    last: Time,
    until: Option<Time>,
}

impl Failures {
    /// Returns whether the ban has ended. Without a ban, returns whether the first failure is older than
    /// `auth_failure_window`.
    fn are_over(&self, terms: &BanTerms, now: Time) -> bool {
        match self.until {
            Some(until) => until <= now,
            None => now.since(self.first) >= terms.window,
        }
    }
}

impl Bans {
    /// Counts a failed login.
    pub fn failed(&self, address: IpAddr, user: &str, terms: &BanTerms, now: Time) -> Consequence {
        let mut table = self.0.lock();
        let key = (network(address), user.into());
        if table
            .entries
            .get(&key)
            .is_some_and(|entry| entry.are_over(terms, now))
        {
            table.entries.remove(&key);
        }
        if !table.entries.contains_key(&key) {
            table.make_room(terms, now);
        }
        let entry = table.entries.entry(key).or_insert(Failures {
            count: 0,
            first: now,
            last: now,
            until: None,
        });
        entry.count = entry.count.saturating_add(1);
        entry.last = now;
        let (failures, begins) = (
            entry.count,
            entry.until.is_none() && entry.count >= terms.limit,
        );
        if begins {
            entry.until = Some(now.after(terms.ban_time));
            table.begun += 1;
        }
        let factor = 1u64.checked_shl(failures - 1).unwrap_or(DELAY_FACTOR_MAX);
        Consequence {
            delay: terms.delay.saturating_mul(factor.min(DELAY_FACTOR_MAX)),
            banned_after: begins.then_some(failures),
        }
    }

    /// Returns whether the user is banned from logging in from this address. Counts the refusal, if so.
    #[must_use]
    pub fn refuses(&self, address: IpAddr, user: &str, now: Time) -> bool {
        let mut table = self.0.lock();
        let entry = table.entries.get(&(network(address), user.into()));
        let is_banned = entry
            .and_then(|entry| entry.until)
            .is_some_and(|until| now < until);
        table.refused += u64::from(is_banned);
        is_banned
    }

    /// Forgets the failures of a user that has logged in from this address.
    pub fn succeeded(&self, address: IpAddr, user: &str) {
        self.0
            .lock()
            .entries
            .remove(&(network(address), user.into()));
    }

    /// Forgets the failures and bans that `whom` names: an address, a user, or all if it is empty. Returns how many
    /// pairs there were.
    pub fn lift(&self, whom: &str) -> usize {
        let address = whom.parse().map(network).ok();
        let mut table = self.0.lock();
        let before = table.entries.len();
        table.entries.retain(|(from, user), _| {
            !(whom.is_empty() || **user == *whom || Some(*from) == address)
        });
        before - table.entries.len()
    }

    /// Returns the pairs with failures that still count, those with the latest failure first.
    #[must_use]
    pub fn list(&self, terms: &BanTerms, now: Time) -> Vec<BanEntry> {
        let mut table = self.0.lock();
        table.drop_old(terms, now);
        let entries = table.entries.iter();
        let mut list: Vec<BanEntry> = entries
            .map(|((address, user), entry)| BanEntry {
                address: *address,
                user: user.clone(),
                failures: entry.count,
                first: entry.first,
                last: entry.last,
                until: entry.until,
            })
            .collect();
        list.sort_by(|a, b| (b.last, a.address, &a.user).cmp(&(a.last, b.address, &b.user)));
        list
    }

    /// Returns the figures for the metrics; without terms, no pair counts.
    #[must_use]
    pub fn counts(&self, terms: Option<&BanTerms>, now: Time) -> BanCounts {
        let mut table = self.0.lock();
        match terms {
            Some(terms) => table.drop_old(terms, now),
            None => table.entries.clear(),
        }
        let banned = table.entries.values().filter(|entry| entry.until.is_some());
        BanCounts {
            entries: table.entries.len(),
            banned: banned.count(),
            begun: table.begun,
            refused: table.refused,
            forgotten: table.forgotten,
        }
    }
}

impl Table {
    fn drop_old(&mut self, terms: &BanTerms, now: Time) {
        self.entries.retain(|_, entry| !entry.are_over(terms, now));
    }

    /// Makes room for one more pair.
    fn make_room(&mut self, terms: &BanTerms, now: Time) {
        if self.entries.len() < terms.size {
            return;
        }
        self.drop_old(terms, now);
        let most = terms.size - 1;
        if self.entries.len() <= most {
            return;
        }
        let keep = most.min(terms.size - terms.size / FORGOTTEN_AT_ONCE);
        let excess = self.entries.len() - keep;
        let mut by_age: Vec<_> = self
            .entries
            .iter()
            .map(|(key, entry)| (entry.until.is_some(), entry.last, key.clone()))
            .collect();
        by_age.sort_unstable();
        for (.., key) in by_age.into_iter().take(excess) {
            self.entries.remove(&key);
        }
        self.forgotten += excess as u64;
    }
}

/// Returns the address that failures are counted for. A client of IPv6 usually has a whole network of 64 bits, so its
/// last 64 bits don't count.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const TERMS: BanTerms = BanTerms {
        limit: 3,
        window: 60 * SECOND,
        delay: SECOND,
        ban_time: 100 * SECOND,
        size: 8,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(second: u64) -> Time {
        Time(second * SECOND)
    }

    fn fail(bans: &Bans, from: &str, user: &str, second: u64) -> Consequence {
        bans.failed(address(from), user, &TERMS, at(second))
    }

    #[test]
    fn delays_grow_and_a_ban_follows() {
        let bans = Bans::default();
        let mut expect = Consequence {
            delay: SECOND,
            banned_after: None,
        };
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 0), expect);
        expect.delay = 2 * SECOND;
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 1), expect);
        assert!(!bans.refuses(address("10.0.0.1"), "ann", at(2)));
        expect = Consequence {
            delay: 4 * SECOND,
            banned_after: Some(3),
        };
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 3), expect);
        assert!(bans.refuses(address("10.0.0.1"), "ann", at(102)));
        assert!(!bans.refuses(address("10.0.0.1"), "ann", at(103)));
        assert!(!bans.refuses(address("10.0.0.2"), "ann", at(4)));
        assert!(!bans.refuses(address("10.0.0.1"), "bob", at(4)));
    }

    #[test]
    fn a_login_under_way_at_the_ban_does_not_prolong_it() {
        let bans = Bans::default();
        for second in 0..3 {
            fail(&bans, "10.0.0.1", "ann", second);
        }
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 50).banned_after, None);
        assert!(!bans.refuses(address("10.0.0.1"), "ann", at(102)));
    }

    #[test]
    fn failures_are_forgotten() {
        let bans = Bans::default();
        fail(&bans, "10.0.0.1", "ann", 0);
        fail(&bans, "10.0.0.1", "ann", 1);
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 60).delay, SECOND);
        fail(&bans, "10.0.0.1", "ann", 61);
        bans.succeeded(address("10.0.0.1"), "ann");
        assert_eq!(fail(&bans, "10.0.0.1", "ann", 62).delay, SECOND);
        assert_eq!(bans.list(&TERMS, at(200)), []);
    }

    #[test]
    fn delays_are_bounded() {
        let bans = Bans::default();
        let terms = BanTerms {
            limit: u32::MAX,
            ..TERMS
        };
        for _ in 0..100 {
            let next = bans.failed(address("10.0.0.1"), "ann", &terms, at(0));
            assert!(next.delay <= 16 * SECOND);
        }
    }

    #[test]
    fn the_table_is_bounded_and_bans_stay() {
        let bans = Bans::default();
        for second in 0..3 {
            fail(&bans, "10.0.0.1", "ann", second);
        }
        for number in 0..1000 {
            fail(&bans, "10.0.0.2", &format!("user{number}"), 10);
            assert!(bans.0.lock().entries.len() <= TERMS.size);
        }
        assert!(bans.refuses(address("10.0.0.1"), "ann", at(11)));
        let counts = bans.counts(Some(&TERMS), at(11));
        assert_eq!((counts.banned, counts.begun, counts.refused), (1, 1, 1));
        assert!(counts.forgotten >= 1001 - TERMS.size as u64);
        let smallest = BanTerms { size: 1, ..TERMS };
        let bans = Bans::default();
        for user in ["a", "b", "c"] {
            bans.failed(address("10.0.0.1"), user, &smallest, at(0));
            assert_eq!(bans.0.lock().entries.len(), 1);
        }
    }

    #[test]
    fn bans_are_lifted_by_address_user_or_all() {
        let bans = Bans::default();
        let fill = || {
            for (from, user) in [
                ("10.0.0.1", "ann"),
                ("10.0.0.1", "bob"),
                ("10.0.0.2", "ann"),
            ] {
                fail(&bans, from, user, 0);
            }
        };
        for (whom, lifted) in [("10.0.0.1", 2), ("ann", 2), ("bob", 1), ("", 3), ("cid", 0)] {
            bans.lift("");
            fill();
            assert_eq!(bans.lift(whom), lifted, "{whom}");
        }
    }

    #[test]
    fn networks() {
        let same = |one: &str, other: &str| network(address(one)) == network(address(other));
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8:0:1::1", "2001:db8::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.2", "10.0.0.1"));
    }
}
