//! The cache of databases' answers about users: results of `auth_query`, and the roles that users are members of.
//!
//! A result is cached for `auth_cache_ttl`, but not beyond the password's VALID UNTIL. At most `auth_cache_size`
//! results are cached, and none for a user that does not exist.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lru::LruCache;
use parking_lot::Mutex;
use pgweir_auth::userlist::Secret;

use crate::{Time, base::memory::MemoryUsage};

/// The key of a result: the kind of query, the database, and the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserQuery {
    /// The database that the query is sent to.
    pub database: Arc<str>,
    /// The user under which pgweir sends the query.
    pub auth_user: Arc<str>,
    /// The user that the query is about.
    pub user: Arc<str>,
    /// The kind of query.
    pub topic: Topic,
}

/// The kind of a query about a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The user's password hash, by this text of `auth_query`.
    Secret(Arc<str>),
    /// The roles that the user is a member of.
    Roles,
}

/// A result, and the time until which it is valid.
#[derive(Debug, Clone)]
pub struct UserAnswer {
    /// The result.
    pub answer: Answer,
    /// The time at which the password expires (VALID UNTIL).
    pub until: Option<Time>,
}

/// The result of a query about a user. `Debug` shows no secret.
#[derive(Clone)]
pub enum Answer {
    /// The user does not exist.
    NoUser,
    /// The user's secret; an empty one if the user has no password, or it has expired.
    Secret(Arc<Secret>),
    /// The roles that the user is a member of, and the user's own name.
    Roles(Arc<BTreeSet<String>>),
}

/// The estimated bytes of the names in a query, and of the links of the list.
const KEY_COST: usize = 200;
/// The estimated bytes of a secret's buffers: SCRAM's salt and keys, or a password.
const SECRET_COST: usize = 128;
/// The estimated bytes of a role beside its name.
const ROLE_COST: usize = 40;

/// The cache.
#[derive(Debug)]
pub struct AuthCache {
    kept: Mutex<LruCache<UserQuery, CachedAnswer>>,
    /// The number of times that the whole cache was cleared. Changed under the lock.
    clears: AtomicU64,
}

#[derive(Debug)]
struct CachedAnswer {
    user_answer: UserAnswer,
    at: Time,
}

impl CachedAnswer {
    /// Returns for how long the entry is still valid, in microseconds.
    fn left(&self, keeping: CacheLimits, now: Time) -> u64 {
        let by_ttl = self.at.after(keeping.ttl).since(now);
        let until = self.user_answer.until.map(|until| until.since(now));
        until.map_or(by_ttl, |left| left.min(by_ttl))
    }
}

/// The bounds of the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// `auth_cache_ttl` in microseconds; 0 turns the cache off.
    pub ttl: u64,
    /// `auth_cache_size`: the largest number of entries.
    pub size: usize,
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            kept: Mutex::new(LruCache::unbounded()),
            clears: AtomicU64::new(0),
        }
    }
}

impl AuthCache {
    /// Returns the memory that the cached results take, as an estimate.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        for (_, kept) in &*self.kept.lock() {
            let roles = match &kept.user_answer.answer {
                Answer::Roles(roles) => roles.iter().map(|role| role.len() + ROLE_COST).sum(),
                Answer::Secret(_) => size_of::<Secret>() + SECRET_COST,
                Answer::NoUser => 0,
            };
            usage.add(size_of::<(UserQuery, CachedAnswer)>() + KEY_COST + roles);
        }
        usage
    }

    /// Returns the cached result, if there is a valid one.
    #[must_use]
    pub fn get(&self, query: &UserQuery, keeping: CacheLimits, now: Time) -> Option<Answer> {
        let mut kept = self.kept.lock();
        let found = kept.get(query)?;
        if found.left(keeping, now) > 0 {
            return Some(found.user_answer.answer.clone());
        }
        kept.pop(query);
        None
    }

    /// Returns the number of times that the cache was cleared. The caller of [`AuthCache::keep`] reads this before it
    /// asks the database.
    #[must_use]
    pub fn clears(&self) -> u64 {
        self.clears.load(Ordering::Acquire)
    }

    /// Adds the result of a query that was sent after `clears` clears. A result from before the last clear is not
    /// added: it may be as outdated as those that were dropped.
    pub fn keep(
        &self,
        query: &UserQuery,
        user_answer: &UserAnswer,
        clears: u64,
        keeping: CacheLimits,
        now: Time,
    ) {
        let mut kept = self.kept.lock();
        kept.pop(query);
        if clears != self.clears() {
            return;
        }
        let user_answer = user_answer.clone();
        let of_nobody = matches!(user_answer.answer, Answer::NoUser);
        let new = CachedAnswer {
            user_answer,
            at: now,
        };
        if !of_nobody && new.left(keeping, now) > 0 {
            kept.put(query.clone(), new);
        }
        while kept.len() > keeping.size {
            kept.pop_lru();
        }
    }

    /// Drops one result, which was wrong or is outdated.
    pub fn forget(&self, query: &UserQuery) {
        self.kept.lock().pop(query);
    }

    /// Drops all results.
    pub fn clear(&self) {
        let mut kept = self.kept.lock();
        self.clears.fetch_add(1, Ordering::AcqRel);
        kept.clear();
    }

    /// Returns all valid entries, the least recently used one last.
    #[must_use]
    pub fn list(&self, keeping: CacheLimits, now: Time) -> Vec<Entry> {
        let kept = self.kept.lock();
        let entries = kept.iter().map(|(query, kept)| Entry {
            query: query.clone(),
            kind: kept.user_answer.answer.kind(),
            age: now.since(kept.at),
            left: kept.left(keeping, now),
        });
        entries.filter(|entry| entry.left > 0).collect()
    }
}

/// A row of SHOW AUTH_CACHE.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The entry's key.
    pub query: UserQuery,
    /// The kind of the result.
    pub kind: &'static str,
    /// The entry's age in microseconds.
    pub age: u64,
    /// The time for which the entry is still valid, in microseconds.
    pub left: u64,
}

impl Answer {
    fn kind(&self) -> &'static str {
        match self {
            Self::NoUser => "no user",
            Self::Roles(_) => "roles",
            Self::Secret(secret) if secret.is_empty() => "none",
            Self::Secret(secret) => match **secret {
                Secret::Plain(_) => "plain",
                Secret::Md5(_) => "md5",
                Secret::Scram(_) => "scram-sha-256",
            },
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPING: CacheLimits = CacheLimits { ttl: 100, size: 2 };

    fn query(user: &str) -> UserQuery {
        UserQuery {
            database: "d".into(),
            auth_user: "a".into(),
            user: user.into(),
            topic: Topic::Secret("q".into()),
        }
    }

    fn user_answer(answer: Answer) -> UserAnswer {
        let until = None;
        UserAnswer { answer, until }
    }

    fn secret() -> UserAnswer {
        user_answer(Answer::Secret(Arc::new(Secret::parse("x"))))
    }

    #[test]
    fn answers_are_kept_for_a_while_and_not_too_many() {
        let lookups = AuthCache::default();
        let known = |user, now| lookups.get(&query(user), KEEPING, Time(now)).is_some();
        for user in ["one", "two"] {
            lookups.keep(&query(user), &secret(), 0, KEEPING, Time(0));
        }
        assert!(known("one", 99) && known("two", 99));
        lookups.keep(&query("three"), &secret(), 0, KEEPING, Time(50));
        assert!(!known("one", 99), "used longest ago");
        assert!(known("three", 149) && !known("three", 150) && !known("three", 60));
        lookups.keep(
            &query("two"),
            &user_answer(Answer::NoUser),
            0,
            KEEPING,
            Time(50),
        );
        assert!(!known("two", 51));
        lookups.keep(&query("two"), &secret(), 0, KEEPING, Time(50));
        lookups.forget(&query("two"));
        assert!(!known("two", 51));
        let none = CacheLimits { ttl: 0, size: 2 };
        lookups.keep(&query("two"), &secret(), 0, none, Time(50));
        assert!(lookups.list(none, Time(50)).is_empty());
    }

    #[test]
    fn an_answer_ends_with_its_secret() {
        let lookups = AuthCache::default();
        let until = |micros| UserAnswer {
            until: Some(Time(micros)),
            ..secret()
        };
        let known = |now| lookups.get(&query("one"), KEEPING, Time(now)).is_some();
        lookups.keep(&query("one"), &until(30), 0, KEEPING, Time(0));
        assert!(lookups.list(KEEPING, Time(10))[0].left == 20);
        assert!(known(29) && !known(30) && !known(29), "gone for good");
        lookups.keep(&query("one"), &until(300), 0, KEEPING, Time(0));
        assert!(known(99) && !known(100), "the ttl ends first");
        lookups.keep(&query("one"), &until(30), 0, KEEPING, Time(30));
        assert!(lookups.list(KEEPING, Time(30)).is_empty());
    }

    #[test]
    fn results_of_queries_before_a_clear_are_not_cached() {
        let lookups = AuthCache::default();
        let before = lookups.clears();
        lookups.clear();
        lookups.keep(&query("one"), &secret(), before, KEEPING, Time(0));
        assert!(lookups.list(KEEPING, Time(0)).is_empty());
        lookups.keep(&query("one"), &secret(), lookups.clears(), KEEPING, Time(0));
        assert_eq!(lookups.list(KEEPING, Time(0)).len(), 1);
    }
}
