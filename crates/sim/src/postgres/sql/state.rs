//! What a session holds, and what statements make of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    eval::{Facts, Machine, Rows},
    functions::effect_of_trigger,
    parse::parse,
    syntax::Statement,
};

/// Parameters by their names in lower case.
pub(crate) type Values = BTreeMap<String, String>;

/// Why a statement has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// As PostgreSQL would say it: SQLSTATE and message.
    Sql(&'static str, String),
    /// This world does not know what PostgreSQL would say.
    Unknown(String),
}

/// All that a session holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// What RESET returns to.
    defaults: Values,
    now: Transactional,
    /// As it was when the transaction began.
    before: Option<Box<Transactional>>,
    savepoints: Vec<(String, Transactional)>,
    /// Session-level advisory locks, and how often each is held.
    locks: BTreeMap<String, u32>,
    /// SQL-prepared statements: the whole text that made each, and the statement behind AS.
    statements: BTreeMap<String, (String, String)>,
    /// The last value of each sequence.
    sequences: BTreeMap<String, String>,
    /// What `lastval` would give.
    last: Option<String>,
    /// `setseed` was called with this.
    seed: Option<String>,
    /// What transactions that are over have notified.
    sent: Vec<(String, String)>,
}

/// What a transaction that fails gives back.
#[derive(Debug, Clone, Default)]
struct Transactional {
    /// What was set, locally or not.
    set: Values,
    /// What is set once the transaction is over.
    kept: Values,
    temporary: BTreeSet<String>,
    /// Cursors WITH HOLD.
    cursors: BTreeSet<String>,
    channels: BTreeSet<String>,
    /// Channels and payloads that are notified when the transaction is over.
    notified: Vec<(String, String)>,
}

impl State {
    pub(crate) fn new(defaults: Values) -> Self {
        Self {
            defaults,
            ..Self::default()
        }
    }

    /// A parameter's value; a custom one may have none.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let found = self.now.set.get(&name).or_else(|| self.defaults.get(&name));
        found.map(String::as_str)
    }

    /// The parameters that were set in the session, and their values.
    pub(super) fn set(&self) -> &Values {
        &self.now.set
    }

    pub(crate) fn defaults(&self) -> &Values {
        &self.defaults
    }

    pub(super) fn temporary(&self) -> &BTreeSet<String> {
        &self.now.temporary
    }

    pub(super) fn cursors(&self) -> &BTreeSet<String> {
        &self.now.cursors
    }

    pub(crate) fn channels(&self) -> &BTreeSet<String> {
        &self.now.channels
    }

    pub(super) fn locks(&self) -> &BTreeMap<String, u32> {
        &self.locks
    }

    pub(super) fn statements(&self) -> impl Iterator<Item = (&String, &String)> {
        self.statements
            .iter()
            .map(|(name, (source, _))| (name, source))
    }

    /// The statement behind AS of an SQL-prepared one.
    pub(crate) fn prepared(&self, name: &str) -> Option<&str> {
        self.statements.get(name).map(|(_, body)| body.as_str())
    }

    pub(crate) fn forget_prepared(&mut self, name: &str) {
        self.statements.remove(name);
    }

    pub(super) fn sequence(&self, name: &str) -> Option<&String> {
        self.sequences.get(name)
    }

    pub(super) fn last(&self) -> Option<&String> {
        self.last.as_ref()
    }

    /// Does it hold what no other session can be given?
    pub(crate) fn is_bound(&self) -> bool {
        !self.now.temporary.is_empty()
            || !self.now.cursors.is_empty()
            || !self.locks.is_empty()
            || !self.now.channels.is_empty()
            || self.seed.is_some()
    }

    /// Has it a custom parameter?
    pub(crate) fn has_custom(&self) -> bool {
        let mut set = self.now.set.iter();
        set.any(|(name, value)| name.contains('.') && !value.is_empty())
    }

    /// Does it hold values of sequences?
    pub(crate) fn has_sequences(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// A transaction begins, or one is under way.
    pub(crate) fn begin(&mut self) {
        self.before
            .get_or_insert_with(|| Box::new(self.now.clone()));
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.before.is_some()
    }

    /// The transaction has failed: all it did is taken back.
    pub(crate) fn abort(&mut self) {
        if let Some(before) = &self.before {
            self.now = (**before).clone();
        }
    }

    /// The transaction is over.
    pub(crate) fn end(&mut self) {
        if self.before.take().is_some() {
            self.now.set = self.now.kept.clone();
            self.sent.append(&mut self.now.notified);
        }
        self.savepoints.clear();
    }

    pub(crate) fn savepoint(&mut self, name: &str) {
        self.savepoints.push((name.to_owned(), self.now.clone()));
    }

    /// `false` if there is no such savepoint.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(own, _)| own == name) else {
            return false;
        };
        self.savepoints.truncate(at + 1);
        self.now = self.savepoints[at].1.clone();
        true
    }

    /// `false` if there is no such savepoint.
    pub(crate) fn release(&mut self, name: &str) -> bool {
        let found = self.savepoints.iter().rposition(|(own, _)| own == name);
        if let Some(at) = found {
            self.savepoints.truncate(at);
        }
        found.is_some()
    }

    /// Does what the statement says, in a transaction that has begun. `source` is the whole query.
    ///
    /// # Errors
    /// As PostgreSQL says; what this world does not know is told apart.
    pub(crate) fn apply(
        &mut self,
        statement: &Statement,
        source: &str,
        facts: &Facts,
    ) -> Result<Rows, Failure> {
        match statement {
            Statement::Set { local, name, value } => match value {
                Some(value) => self.change(name, Some(value), *local)?,
                None => self.change(name, None, *local)?,
            },
            Statement::Reset(Some(name)) => self.change(name, None, false)?,
            Statement::Reset(None) => self.reset_all(),
            Statement::ResetAuthorization => {
                self.forget("session_authorization");
                self.forget("role");
            }
            Statement::Show(name) => return self.show(name),
            Statement::SetTransaction | Statement::DiscardPlans => {}
            Statement::DiscardAll => self.discard_all(),
            Statement::DiscardTemp => self.now.temporary.clear(),
            Statement::DiscardSequences => self.discard_sequences(),
            Statement::Select(select) => {
                return Machine::new(self, facts).select(select);
            }
            Statement::ReadCatalog(kind) => {
                return Ok(super::functions::catalog_rows(kind, facts.database));
            }
            Statement::Insert { table, value } => {
                let value = Machine::new(self, facts).value_of(value)?;
                self.fire(table, &value.unwrap_or_default(), facts)?;
            }
            Statement::Prepare { .. } | Statement::Deallocate(_) | Statement::Execute(_) => {
                self.apply_to_statements(statement, source)?;
            }
            _ => self.apply_to_objects(statement)?,
        }
        Ok(Rows::default())
    }

    fn show(&self, name: &str) -> Result<Rows, Failure> {
        match self.value(name) {
            Some(value) => Ok(Rows(vec![vec![Some(value.to_owned())]])),
            None => Err(unrecognized(name)),
        }
    }

    fn apply_to_statements(&mut self, statement: &Statement, source: &str) -> Result<(), Failure> {
        let missing = |name: &str| {
            let what = format!("prepared statement \"{name}\" does not exist");
            Err(Failure::Sql("26000", what))
        };
        match statement {
            Statement::Prepare { name, body } => {
                if self.statements.contains_key(name) {
                    let what = format!("prepared statement \"{name}\" already exists");
                    return Err(Failure::Sql("42P05", what));
                }
                let made = (source.to_owned(), body.clone());
                self.statements.insert(name.clone(), made);
            }
            Statement::Deallocate(None) => self.statements.clear(),
            Statement::Deallocate(Some(name)) if self.statements.remove(name).is_none() => {
                return missing(name);
            }
            Statement::Execute(name) if !self.statements.contains_key(name) => {
                return missing(name);
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_to_objects(&mut self, statement: &Statement) -> Result<(), Failure> {
        let now = &mut self.now;
        match statement {
            Statement::Declare { name, holds } => {
                if *holds && !now.cursors.insert(name.clone()) {
                    let what = format!("cursor \"{name}\" already exists");
                    return Err(Failure::Sql("42P03", what));
                }
            }
            Statement::Close(None) => now.cursors.clear(),
            Statement::Close(Some(name)) => {
                if !now.cursors.remove(name) {
                    let what = format!("cursor \"{name}\" does not exist");
                    return Err(Failure::Sql("34000", what));
                }
            }
            Statement::Listen(name) => drop(now.channels.insert(name.clone())),
            Statement::Unlisten(None) => now.channels.clear(),
            Statement::Unlisten(Some(name)) => drop(now.channels.remove(name)),
            Statement::Notify { channel, payload } => {
                now.notified.push((channel.clone(), payload.clone()));
            }
            Statement::CreateTemp(name) => {
                if !now.temporary.insert(name.clone()) {
                    let what = format!("relation \"{name}\" already exists");
                    return Err(Failure::Sql("42P07", what));
                }
            }
            Statement::Drop(name) => {
                if !now.temporary.remove(name) {
                    let what = format!("table \"{name}\" does not exist");
                    return Err(Failure::Sql("42P01", what));
                }
            }
            other => return Err(Failure::Unknown(format!("{other:?}"))),
        }
        Ok(())
    }

    /// A row was inserted: the table's trigger, if it has one, keeps something in the session.
    fn fire(&mut self, table: &str, value: &str, facts: &Facts) -> Result<(), Failure> {
        if let Some(effect) = effect_of_trigger(table) {
            return self.run(&effect.replace("$1", value), facts);
        }
        let exists = self.now.temporary.contains(table) || super::functions::is_table(table);
        match exists {
            true => Ok(()),
            false => {
                let what = format!("relation \"{table}\" does not exist");
                Err(Failure::Sql("42P01", what))
            }
        }
    }

    /// Takes what was notified since the last call: channels and payloads.
    pub(crate) fn take_sent(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent)
    }

    /// What a function does.
    pub(super) fn run(&mut self, text: &str, facts: &Facts) -> Result<(), Failure> {
        let Some(statement) = parse(text) else {
            return Err(Failure::Unknown(text.to_owned()));
        };
        self.apply(&statement, text, facts).map(|_| ())
    }

    /// SET, RESET or `set_config`.
    pub(super) fn change(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<(), Failure> {
        let name = name.to_ascii_lowercase();
        if !name.contains('.') && !self.defaults.contains_key(&name) {
            return Err(unrecognized(&name));
        }
        let now = &mut self.now;
        let change = |values: &mut Values| match value {
            // A role that is none is the one of the login.
            Some("none") if name == "role" => drop(values.remove(&name)),
            Some(value) => drop(values.insert(name.clone(), value.to_owned())),
            // PostgreSQL never forgets a custom parameter.
            None if name.contains('.') => {
                values.entry(name.clone()).and_modify(|value| value.clear());
            }
            None => drop(values.remove(&name)),
        };
        change(&mut now.set);
        if !local {
            change(&mut now.kept);
        }
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        self.now.set.remove(name);
        self.now.kept.remove(name);
    }

    /// The role is no parameter of RESET ALL.
    fn reset_all(&mut self) {
        let is_who = |name: &str| matches!(name, "role" | "session_authorization");
        for values in [&mut self.now.set, &mut self.now.kept] {
            values.retain(|name, _| is_who(name) || name.contains('.'));
            for (name, value) in values.iter_mut() {
                if !is_who(name) {
                    value.clear();
                }
            }
        }
    }

    fn discard_sequences(&mut self) {
        self.sequences.clear();
        self.last = None;
    }

    fn discard_all(&mut self) {
        self.reset_all();
        self.forget("role");
        self.forget("session_authorization");
        self.now.temporary.clear();
        self.now.cursors.clear();
        self.now.channels.clear();
        self.locks.clear();
        self.statements.clear();
        self.discard_sequences();
    }

    pub(super) fn lock(&mut self, key: &str) {
        *self.locks.entry(key.to_owned()).or_default() += 1;
    }

    /// `false` if it was not held.
    pub(super) fn unlock(&mut self, key: &str) -> bool {
        let Some(count) = self.locks.get_mut(key) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.locks.remove(key);
        }
        true
    }

    pub(super) fn unlock_all(&mut self) {
        self.locks.clear();
    }

    /// A sequence was asked for its next value.
    pub(super) fn remember(&mut self, sequence: &str, value: &str) {
        self.sequences.insert(sequence.to_owned(), value.to_owned());
        self.last = Some(value.to_owned());
    }

    pub(super) fn sow(&mut self, seed: Option<String>) {
        self.seed = seed;
    }

    /// How this session, on a pooler's server, differs from the one that its client would have with a
    /// server of its own; `None` if the client can't tell.
    pub(crate) fn difference_from(&self, direct: &Self) -> Option<String> {
        let maps = [&self.now.set, &direct.now.set, &direct.defaults];
        let names: BTreeSet<&String> = maps.into_iter().flat_map(|values| values.keys()).collect();
        for name in names {
            // A custom parameter that was ever set is empty, rather than unknown.
            let values = [self, direct].map(|state| state.value(name).filter(|v| !v.is_empty()));
            if values[0] != values[1] {
                return Some(format!("{name} is {:?}, not {:?}", values[0], values[1]));
            }
        }
        if self.locks != direct.locks {
            return differs("locks", &self.locks, &direct.locks);
        }
        if self.now.temporary != direct.now.temporary {
            return differs("temporary", &self.now.temporary, &direct.now.temporary);
        }
        if self.now.cursors != direct.now.cursors {
            return differs("cursors", &self.now.cursors, &direct.now.cursors);
        }
        let bodies = [self, direct].map(|state| {
            let all = state.statements.iter();
            let all = all.map(|(name, (_, body))| (name.as_str(), body.as_str()));
            all.collect::<BTreeMap<_, _>>()
        });
        if bodies[0] != bodies[1] {
            return differs("statements", &bodies[0], &bodies[1]);
        }
        self.foreign_to(direct)
    }

    /// Holds the same as another session, with its own values to return to.
    pub(crate) fn become_like(&mut self, other: &Self) {
        let defaults = std::mem::take(&mut self.defaults);
        *self = Self {
            defaults,
            ..other.clone()
        };
    }

    /// What a pooler may take from a session that stays, but may never give to another.
    fn foreign_to(&self, direct: &Self) -> Option<String> {
        let is_own = |(name, value): (&String, &String)| direct.sequences.get(name) == Some(value);
        if !self.sequences.iter().all(is_own) {
            return differs("sequences", &self.sequences, &direct.sequences);
        }
        if self.last.is_some() && self.last != direct.last {
            return differs("lastval", &self.last, &direct.last);
        }
        if !self.now.channels.is_subset(&direct.now.channels) {
            return differs("channels", &self.now.channels, &direct.now.channels);
        }
        if self.seed.is_some() && self.seed != direct.seed {
            return differs("seed", &self.seed, &direct.seed);
        }
        None
    }

    /// What is left of a client that has gone, and that others would notice without having its session.
    pub(crate) fn remains(&self) -> Option<String> {
        if !self.locks.is_empty() {
            return Some(format!("the locks {:?}", self.locks));
        }
        if !self.now.temporary.is_empty() {
            return Some(format!("the temporary tables {:?}", self.now.temporary));
        }
        None
    }
}

pub(super) fn unrecognized(name: &str) -> Failure {
    let what = format!("unrecognized configuration parameter \"{name}\"");
    Failure::Sql("42704", what)
}

fn differs(
    what: &str,
    found: &impl std::fmt::Debug,
    expected: &impl std::fmt::Debug,
) -> Option<String> {
    Some(format!("its {what} are {found:?}, not {expected:?}"))
}
