//! The list of statements that pgweir has prepared on one server.

use std::{collections::HashSet, sync::Arc};

use lru::LruCache;

use crate::session::{Literals, Settings, Statement, names_mean_the_same};

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
    /// The schema number under which plans have been made; `None` before the first loan.
    plans_made_under: Option<u32>,
}

#[derive(Debug)]
struct Held {
    statement: Arc<Statement>,
    generation: u32,
    version: Version,
    /// The settings under which the statement was prepared; `None` if they are unknown. PostgreSQL may analyse it again
    /// under others, but its columns stay the same.
    made: Option<Settings>,
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

/// Whether a client can use a statement of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The server does not have the statement.
    Missing,
    /// The statement has to be prepared again: its plan may be stale, or its names or literals have another meaning for
    /// this client.
    Foreign,
    /// The client can use the statement.
    Usable,
}

impl Held {
    /// Returns whether PostgreSQL would make the same statement now.
    #[inline]
    fn is_made_under(&self, now: SettingsNow<'_>) -> bool {
        let literals = self.statement.literals();
        let has_same_names = match (&self.made, now.of_names()) {
            (Some(made), Some(held)) => names_mean_the_same(made, held),
            _ => false,
        };
        let has_same_literals = || match (&self.analysed, now.of_literals()) {
            (Analysed::Anew, _) => true,
            (Analysed::Under(made), Some(held)) => literals.mean_the_same(made, held),
            _ => false,
        };
        has_same_names && (literals == Literals::None || has_same_literals())
    }

    /// Notes that this client uses the statement now. PostgreSQL analyses the statement again when its tables change,
    /// under the settings of that moment.
    #[inline]
    fn note_use(&mut self, user: u64, settings: Option<&Settings>) {
        self.user = user;
        match (&self.analysed, settings) {
            (Analysed::Under(known), Some(settings)) if known.is_same(settings) => {}
            (_, Some(settings)) => self.analysed = Analysed::Under(settings.clone()),
            (_, None) => self.analysed = Analysed::Unknown,
        }
    }
}

/// The settings under which PostgreSQL would analyse a statement of this server now, as far as pgweir knows them.
#[derive(Debug, Clone, Copy)]
pub struct SettingsNow<'s> {
    /// The settings that the session had at its last inspection.
    pub held: &'s Settings,
    /// Whether no later text may have changed what names mean (`search_path`, the role).
    pub are_names_known: bool,
    /// Whether no later text may have changed what literals mean.
    pub are_literals_known: bool,
}

impl SettingsNow<'_> {
    fn of_names(&self) -> Option<&Settings> {
        self.are_names_known.then_some(self.held)
    }

    fn of_literals(&self) -> Option<&Settings> {
        self.are_literals_known.then_some(self.held)
    }
}

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
            plans_made_under: None,
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

    /// Returns whether this client can use the statement, and marks it as just used. For the client that used the
    /// statement last, its settings do not matter, as on a direct connection.
    #[inline]
    pub fn use_by(&mut self, id: u64, user: u64, now: SettingsNow<'_>) -> Fit {
        let generation = self.generation;
        let Some(held) = self.held.get_mut(&id) else {
            return Fit::Missing;
        };
        if held.generation != generation {
            return Fit::Foreign;
        }
        // The usual case: the same client, with the same settings.
        if let Analysed::Under(known) = &held.analysed
            && held.user == user
            && now.are_literals_known
            && known.is_same(now.held)
        {
            return Fit::Usable;
        }
        let is_alike = held.is_made_under(now);
        if !is_alike && held.user != user {
            return Fit::Foreign;
        }
        held.note_use(user, now.of_literals().filter(|_| is_alike));
        Fit::Usable
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

    /// Notes the parameters and columns that the server has described.
    pub fn note_description(&mut self, id: u64, params: Option<u64>, columns: Option<u64>) {
        if let Some(held) = self.held.peek_mut(&id) {
            held.version.params = params.or(held.version.params);
            held.version.columns = columns.or(held.version.columns);
        }
    }

    /// Like [`use_by`](Self::use_by), for a client that prepares the statement anew: its earlier use does not count.
    #[must_use]
    pub fn is_made_under(&self, id: u64, now: SettingsNow<'_>) -> bool {
        let held = self.held.peek(&id);
        held.is_some_and(|held| held.is_made_under(now))
    }

    /// Notes the schema number under which plans are made from now on. Returns the earlier one.
    #[inline]
    pub fn plans_made_under(&mut self, schema: u32) -> Option<u32> {
        self.plans_made_under.replace(schema)
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

    /// Adds a statement that is sent to the server, under this schema and for this client. `None`: the settings under
    /// which the server analyses the statement are not known.
    pub fn add(
        &mut self,
        statement: Arc<Statement>,
        schema: u32,
        user: u64,
        now: Option<SettingsNow<'_>>,
    ) {
        self.hold(statement, Some(schema), user, now);
    }

    /// Notes that PostgreSQL analyses this statement under a role. It checks the role's privilege to use a schema then,
    /// so the statement does not show whether the Parse of another client would succeed.
    pub fn analysed_under_role(&mut self, id: u64) {
        if let Some(held) = self.held.peek_mut(&id) {
            held.is_of_role = true;
        }
    }

    fn hold(
        &mut self,
        statement: Arc<Statement>,
        schema: Option<u32>,
        user: u64,
        now: Option<SettingsNow<'_>>,
    ) {
        self.sole_user = self.sole_user.filter(|&sole| sole == user);
        let held = Held {
            generation: self.generation,
            version: Version {
                schema,
                ..Version::default()
            },
            made: now.as_ref().and_then(SettingsNow::of_names).cloned(),
            analysed: match now.as_ref().and_then(SettingsNow::of_literals) {
                Some(settings) => Analysed::Under(settings.clone()),
                None => Analysed::Unknown,
            },
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

    /// Takes a statement that is about to be closed, or that could not be prepared.
    pub fn take(&mut self, id: u64) -> Option<Arc<Statement>> {
        self.held.pop(&id).map(|held| held.statement)
    }

    /// Restores a statement whose Close was skipped.
    pub fn restore(&mut self, statement: Arc<Statement>) {
        self.hold(statement, None, 0, None);
    }

    /// Adds a statement that the server has from an earlier process, where this client used it last.
    pub fn take_over(&mut self, statement: Arc<Statement>, client: u64) {
        self.hold(statement, None, client, None);
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
            prepared.add(Arc::clone(statement), 0, 0, None);
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
        prepared.add(Arc::clone(&statement), 1, 0, None);
        assert!(prepared.is_fresh(statement.id(), 1));
        prepared.trust_since(1);
        assert!(prepared.touch(statement.id()) && !prepared.is_fresh(statement.id(), 1));
        assert!(prepared.version(statement.id()).is_none());
        let settings = Settings::default();
        assert_eq!(
            prepared.use_by(statement.id(), 0, now(&settings)),
            Fit::Foreign
        );
        prepared.add(Arc::clone(&statement), 1, 0, None);
        assert!(prepared.is_fresh(statement.id(), 1));
    }

    #[test]
    fn made_under_another_schema() {
        let statement = Statements::default().intern(b"x");
        let mut prepared = Prepared::default();
        prepared.add(Arc::clone(&statement), 1, 0, None);
        prepared.note_description(statement.id(), Some(3), Some(4));
        prepared.note_description(statement.id(), None, Some(5));
        let version = prepared.version(statement.id()).unwrap();
        assert_eq!((version.params, version.columns), (Some(3), Some(5)));
        assert!(prepared.is_fresh(statement.id(), 1) && !prepared.is_fresh(statement.id(), 2));
        prepared.restore(Arc::clone(&statement));
        assert!(!prepared.is_fresh(statement.id(), 1), "nobody knows");
    }

    fn now(held: &Settings) -> SettingsNow<'_> {
        SettingsNow {
            held,
            are_names_known: true,
            are_literals_known: true,
        }
    }

    #[test]
    fn analysed_under_other_settings() {
        let table = SettingsTable::default();
        let [utc, tokyo] = ["UTC", "Asia/Tokyo"].map(|zone| table.intern([("timezone", zone)]));
        let (utc, tokyo) = (now(&utc), now(&tokyo));
        let statement = Statements::default().intern(b"SELECT '2020-06-01'::timestamptz\0\0\0");
        let id = statement.id();
        let mut prepared = Prepared::default();
        assert_eq!(prepared.use_by(id, 1, utc), Fit::Missing);
        prepared.add(Arc::clone(&statement), 1, 1, Some(utc));
        assert_eq!(prepared.use_by(id, 2, utc), Fit::Usable, "another client");
        assert_eq!(prepared.use_by(id, 3, tokyo), Fit::Foreign);
        let unknown = SettingsNow {
            are_literals_known: false,
            ..utc
        };
        assert_eq!(prepared.use_by(id, 3, unknown), Fit::Foreign);
        assert_eq!(
            prepared.use_by(id, 2, tokyo),
            Fit::Usable,
            "it was the last"
        );
        assert!(!prepared.is_made_under(id, tokyo));
        assert_eq!(prepared.use_by(id, 3, tokyo), Fit::Foreign, "nobody knows");
        assert_eq!(prepared.use_by(id, 1, utc), Fit::Foreign, "nobody knows");
        prepared.plans_discarded();
        assert_eq!(prepared.use_by(id, 3, tokyo), Fit::Usable);
        assert_eq!(prepared.use_by(id, 1, utc), Fit::Foreign);
        prepared.take(id);
        prepared.restore(statement);
        assert_eq!(prepared.use_by(id, 1, utc), Fit::Foreign);
    }

    #[test]
    fn made_under_another_search_path() {
        let table = SettingsTable::default();
        let [one, other] = ["a", "b"].map(|path| table.intern([("search_path", path)]));
        let (one, other) = (now(&one), now(&other));
        let statement = Statements::default().intern(b"SELECT * FROM t\0\0\0");
        let id = statement.id();
        let mut prepared = Prepared::default();
        prepared.add(Arc::clone(&statement), 1, 1, Some(one));
        assert_eq!(prepared.use_by(id, 2, one), Fit::Usable);
        let unknown = SettingsNow {
            are_literals_known: false,
            ..one
        };
        assert_eq!(
            prepared.use_by(id, 3, unknown),
            Fit::Usable,
            "it has no literals"
        );
        let set = SettingsNow {
            are_names_known: false,
            ..one
        };
        assert_eq!(prepared.use_by(id, 3, set), Fit::Usable, "its own");
        assert_eq!(prepared.use_by(id, 2, set), Fit::Foreign);
        assert!(prepared.is_made_under(id, one) && !prepared.is_made_under(id, other));
        prepared.plans_discarded();
        assert_eq!(
            prepared.use_by(id, 2, other),
            Fit::Foreign,
            "its columns stay"
        );
        prepared.add(statement, 1, 1, Some(set));
        assert_eq!(prepared.use_by(id, 2, one), Fit::Foreign);
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
            prepared.add(Arc::clone(statement), 1, user, None);
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
