//! The list of statements that pgweir has prepared on one server.

use std::{collections::HashSet, sync::Arc};

use lru::LruCache;

use crate::session::{Literals, Settings, Statement};

/// The statements that pgweir has prepared on one server, by id; the statement that was used last is kept longest.
///
/// The list has the state after all outstanding messages have succeeded: if one fails, its change is undone
/// ([`Prepared::forget`], [`Prepared::restore`]).
#[derive(Debug)]
pub struct Prepared {
    held: LruCache<u64, Held>,
    /// See [`Prepared::trust_since`].
    generation: u32,
    /// The id of a client that has prepared all of these statements itself, as far as pgweir knows such a client.
    sole_user: Option<u64>,
}

#[derive(Debug)]
struct Held {
    statement: Arc<Statement>,
    generation: u32,
    version: Version,
    analysed: Analysed,
    /// The id of the client that used the statement last.
    user: u64,
    /// Whether the statement was analysed with the privileges of a role.
    is_of_role: bool,
}

/// The bytes that the list needs for an entry beside the statement: key, links, and a place in the hash table.
const LIST_COST: usize = 48;

/// The settings under which a statement was analysed, on which the meaning of its literals depends.
#[derive(Debug)]
enum Analysed {
    /// The settings at the statement's next use, since all plans were discarded.
    Anew,
    /// These settings.
    Under(Settings),
    /// Unknown settings: those of the client that used the statement last.
    Unknown,
}

impl Held {
    fn is_analysed_under(&self, settings: Option<&Settings>) -> bool {
        match (&self.analysed, settings) {
            (Analysed::Anew, _) => true,
            (Analysed::Under(made), Some(settings)) => {
                self.statement.literals().mean_the_same(made, settings)
            }
            _ => false,
        }
    }
}

/// The client that a statement is made for, and its settings; `None` if these are unknown.
pub(crate) type User = (u64, Option<Settings>);

/// The parameters and columns of a prepared statement on a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version {
    /// The schema under which the statement was made; `None` if it is unknown.
    pub schema: Option<u32>,
    /// A digest of the parameters, if the server has described them.
    pub params: Option<u64>,
    /// A digest of the columns, if the server has described them.
    pub columns: Option<u64>,
}

impl Default for Prepared {
    fn default() -> Self {
        Self {
            held: LruCache::unbounded(),
            generation: 0,
            sole_user: None,
        }
    }
}

impl Prepared {
    /// Returns the bytes that the list takes, without the statements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.len() * (size_of::<Held>() + LIST_COST)
    }

    /// Returns the bytes of the statements that no client has.
    #[must_use]
    pub fn abandoned_bytes(&self) -> usize {
        let abandoned = self
            .held
            .iter()
            .map(|(_, held)| &held.statement)
            .filter(|statement| !statement.has_names());
        abandoned.map(|statement| statement.bytes()).sum()
    }

    /// Returns whether the server has the statement, and marks it as just used.
    #[inline]
    pub fn touch(&mut self, id: u64) -> bool {
        self.held.get(&id).is_some()
    }

    /// Returns whether the server has the statement in a version that equals a new one: it was prepared after all known
    /// schema changes, and after the last error that has shown a stale plan.
    #[must_use]
    pub fn is_fresh(&self, id: u64, schema: u32) -> bool {
        let held = self.held.peek(&id);
        held.is_some_and(|held| {
            held.generation == self.generation
                && held.version.schema == Some(schema)
                && !held.is_of_role
        })
    }

    /// Returns the version of the server's statement; `None` if the server has none, or if pgweir prepares it again
    /// before its use.
    #[must_use]
    #[inline]
    pub fn version(&self, id: u64) -> Option<Version> {
        let held = self.held.peek(&id)?;
        (held.generation == self.generation).then_some(held.version)
    }

    /// Returns whether the statement was made since a server last reported a stale plan.
    #[must_use]
    #[inline]
    pub fn is_trusted(&self, id: u64) -> bool {
        let held = self.held.peek(&id);
        held.is_some_and(|held| held.generation == self.generation)
    }

    /// Notes the parameters and columns that the server has described.
    pub fn note_description(&mut self, id: u64, params: Option<u64>, columns: Option<u64>) {
        if let Some(held) = self.held.peek_mut(&id) {
            held.version.params = params.or(held.version.params);
            held.version.columns = columns.or(held.version.columns);
        }
    }

    /// Returns whether the literals of the server's statement have the meaning that this client's settings give them.
    /// For the client that used the statement last, returns `true` even if its settings have changed since, as on a
    /// direct connection.
    pub fn is_analysed_for(&mut self, id: u64, user: u64, settings: Option<&Settings>) -> bool {
        let Some(held) = self.held.peek_mut(&id) else {
            return false;
        };
        let is_alike = held.is_analysed_under(settings);
        if is_alike || held.user == user {
            held.user = user;
            // PostgreSQL analyses the statement again when its tables change, under the settings of that moment.
            match (&held.analysed, settings.filter(|_| is_alike)) {
                (Analysed::Under(known), Some(settings)) if known.is_same(settings) => {}
                (_, Some(settings)) => held.analysed = Analysed::Under(settings.clone()),
                (_, None) => held.analysed = Analysed::Unknown,
            }
            return true;
        }
        false
    }

    /// Like [`is_analysed_for`](Self::is_analysed_for), for a client that prepares the statement anew: its earlier use
    /// does not count.
    #[must_use]
    pub fn is_analysed_under(&self, id: u64, settings: Option<&Settings>) -> bool {
        let held = self.held.peek(&id);
        held.is_some_and(|held| held.is_analysed_under(settings))
    }

    /// Notes that all plans were discarded: a statement is analysed again at its next use, but its bytes are not read
    /// again.
    pub fn plans_discarded(&mut self) {
        for (_, held) in &mut self.held {
            if held.statement.literals() < Literals::Bytes {
                held.analysed = Analysed::Anew;
            }
        }
    }

    /// Adds a statement that is sent to the server, under this schema and for this client.
    pub fn add(&mut self, statement: Arc<Statement>, schema: u32, user: User) {
        self.hold(statement, Some(schema), user);
    }

    /// Notes that PostgreSQL analyses this statement under a role. Clients without the role must not use the statement,
    /// since its privileges were checked for that role.
    pub fn analysed_under_role(&mut self, id: u64) {
        if let Some(held) = self.held.peek_mut(&id) {
            held.is_of_role = true;
        }
    }

    fn hold(&mut self, statement: Arc<Statement>, schema: Option<u32>, (user, settings): User) {
        self.sole_user = self.sole_user.filter(|&sole| sole == user);
        let held = Held {
            generation: self.generation,
            version: Version {
                schema,
                ..Version::default()
            },
            analysed: settings.map_or(Analysed::Unknown, Analysed::Under),
            user,
            is_of_role: false,
            statement,
        };
        self.held.push(held.statement.id(), held);
    }

    /// Removes the statement that was unused for longest, if one more statement would exceed `most`.
    pub fn evict(&mut self, most: usize) -> Option<Arc<Statement>> {
        if self.held.len() < most.max(1) {
            return None;
        }
        self.held.pop_lru().map(|(_, held)| held.statement)
    }

    /// Returns the ids of the statements that this client has not prepared itself. `own`: the ids of the client's
    /// statements.
    pub fn others(&mut self, client: u64, own: impl Iterator<Item = u64>) -> Vec<u64> {
        if self.sole_user == Some(client) || self.is_empty() {
            return Vec::new();
        }
        let own: HashSet<u64> = own.collect();
        let held = self.held.iter().map(|(&id, _)| id);
        let others: Vec<u64> = held.filter(|id| !own.contains(id)).collect();
        if others.is_empty() {
            self.sole_user = Some(client);
        }
        others
    }

    /// Takes a statement that is about to be closed.
    pub fn take(&mut self, id: u64) -> Option<Arc<Statement>> {
        self.held.pop(&id).map(|held| held.statement)
    }

    /// Removes a statement that could not be prepared, or that no longer exists.
    pub fn forget(&mut self, id: u64) {
        self.held.pop(&id);
    }

    /// Restores a statement whose Close was skipped.
    pub fn restore(&mut self, statement: Arc<Statement>) {
        self.hold(statement, None, (0, None));
    }

    /// Adds a statement that the server has from an earlier process, where this client used it last.
    pub fn take_over(&mut self, statement: Arc<Statement>, client: u64) {
        self.hold(statement, None, (client, None));
    }

    /// Returns the statements, the one first that was unused for longest.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Statement>> {
        self.held.iter().rev().map(|(_, held)| &held.statement)
    }

    /// Takes all statements, which are about to be closed.
    pub fn take_all(&mut self) -> Vec<Arc<Statement>> {
        let taken = std::iter::from_fn(|| self.held.pop_lru());
        taken.map(|(_, held)| held.statement).collect()
    }

    /// Removes all statements (`DISCARD ALL`, `DEALLOCATE ALL`).
    pub fn clear(&mut self) {
        self.held.clear();
    }

    /// Sets how often a server has reported a stale plan: a statement made before may differ from a new one.
    #[inline]
    pub fn trust_since(&mut self, stale_plans: u32) {
        self.generation = stale_plans;
    }

    /// Returns the number of statements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether there is no statement.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{SettingsTable, Statements};

    #[test]
    fn the_least_recently_used_statement_is_evicted() {
        let statements = Statements::default();
        let made: Vec<_> = (0u8..4).map(|n| statements.intern(&[n])).collect();
        let mut prepared = Prepared::default();
        for statement in &made[..3] {
            assert!(prepared.evict(3).is_none());
            prepared.add(Arc::clone(statement), 0, (0, None));
        }
        assert!(prepared.touch(made[0].id()));
        assert_eq!(prepared.evict(3).unwrap().id(), made[1].id());
        assert!(prepared.evict(3).is_none());
        assert_eq!(prepared.evict(1).unwrap().id(), made[2].id());
        assert_eq!(prepared.evict(1).unwrap().id(), made[0].id());
        assert!(prepared.is_empty());
    }

    #[test]
    fn made_before_a_plan_was_stale() {
        let statement = Statements::default().intern(b"x");
        let mut prepared = Prepared::default();
        prepared.add(Arc::clone(&statement), 1, (0, None));
        assert!(prepared.is_fresh(statement.id(), 1));
        prepared.trust_since(1);
        assert!(prepared.touch(statement.id()) && !prepared.is_fresh(statement.id(), 1));
        assert!(prepared.version(statement.id()).is_none() && !prepared.is_trusted(statement.id()));
        prepared.add(Arc::clone(&statement), 1, (0, None));
        assert!(prepared.is_fresh(statement.id(), 1));
    }

    #[test]
    fn made_under_another_schema() {
        let statement = Statements::default().intern(b"x");
        let mut prepared = Prepared::default();
        prepared.add(Arc::clone(&statement), 1, (0, None));
        prepared.note_description(statement.id(), Some(3), Some(4));
        prepared.note_description(statement.id(), None, Some(5));
        let version = prepared.version(statement.id()).unwrap();
        assert_eq!((version.params, version.columns), (Some(3), Some(5)));
        assert!(prepared.is_fresh(statement.id(), 1) && !prepared.is_fresh(statement.id(), 2));
        prepared.restore(Arc::clone(&statement));
        assert!(!prepared.is_fresh(statement.id(), 1), "nobody knows");
    }

    #[test]
    fn analysed_under_other_settings() {
        let table = SettingsTable::default();
        let utc = || Some(table.intern([("timezone", "UTC")]));
        let tokyo = || Some(table.intern([("timezone", "Asia/Tokyo")]));
        let statement = Statements::default().intern(b"SELECT '2020-06-01'::timestamptz\0\0\0");
        let id = statement.id();
        let mut prepared = Prepared::default();
        prepared.add(Arc::clone(&statement), 1, (1, utc()));
        assert!(
            prepared.is_analysed_for(id, 2, utc().as_ref()),
            "another client"
        );
        assert!(!prepared.is_analysed_for(id, 3, tokyo().as_ref()));
        assert!(!prepared.is_analysed_for(id, 3, None));
        assert!(
            prepared.is_analysed_for(id, 2, tokyo().as_ref()),
            "it was the last"
        );
        assert!(!prepared.is_analysed_under(id, tokyo().as_ref()));
        assert!(
            !prepared.is_analysed_for(id, 3, tokyo().as_ref()),
            "nobody knows"
        );
        assert!(
            !prepared.is_analysed_for(id, 1, utc().as_ref()),
            "nobody knows"
        );
        prepared.plans_discarded();
        assert!(prepared.is_analysed_for(id, 3, tokyo().as_ref()));
        assert!(!prepared.is_analysed_for(id, 1, utc().as_ref()));
        prepared.forget(id);
        prepared.restore(statement);
        assert!(!prepared.is_analysed_for(id, 1, utc().as_ref()));
    }

    #[test]
    fn statements_of_other_clients() {
        let statements = Statements::default();
        let [own, common, other] = [b"1", b"2", b"3"].map(|text| statements.intern(text));
        let ids = |list: &[&Arc<Statement>]| list.iter().map(|of| of.id()).collect::<Vec<_>>();
        let of_one = ids(&[&own, &common]);
        let mut prepared = Prepared::default();
        assert!(prepared.others(1, of_one.iter().copied()).is_empty());
        for (statement, user) in [(&own, 1), (&common, 2), (&other, 2)] {
            prepared.add(Arc::clone(statement), 1, (user, None));
        }
        let others = prepared.others(1, of_one.iter().copied());
        assert_eq!(others, [other.id()]);
        assert_eq!(prepared.take(others[0]).map(|of| of.id()), Some(other.id()));
        assert!(prepared.others(1, of_one.iter().copied()).is_empty());
        assert!(
            prepared.others(1, [].into_iter()).is_empty(),
            "the list is known"
        );
        assert_eq!(prepared.others(2, ids(&[&common]).into_iter()), [own.id()]);
        // The server has skipped the Close.
        prepared.restore(Arc::clone(&other));
        assert_eq!(prepared.others(1, of_one.iter().copied()), [other.id()]);
        assert!(prepared.take(other.id()).is_some());
        assert_eq!(prepared.len(), 2);
    }
}
