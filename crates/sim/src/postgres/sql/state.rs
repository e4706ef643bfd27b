//! The session state, and how statements change it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    eval::{Facts, Machine, Rows},
    functions::effect_of_trigger,
    parse::parse,
    syntax::Statement,
};

/// Parameters by their names in lower case.
pub(crate) type Values = BTreeMap<String, String>;

/// The reason why a statement has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// PostgreSQL's error: SQLSTATE and message.
    Sql(&'static str, String),
    /// The model does not know PostgreSQL's result.
    Unknown(String),
}

/// The session state.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The values that RESET restores.
    defaults: Values,
    now: Transactional,
    /// The state at the beginning of the transaction.
    before: Option<Box<Transactional>>,
    savepoints: Vec<(String, Transactional)>,
    /// Session-level advisory locks, with the number of times that each was taken.
    locks: BTreeMap<String, u32>,
    /// SQL-prepared statements: the text of the PREPARE, and the statement after AS.
    statements: BTreeMap<String, (String, String)>,
    /// The last value of each sequence.
    sequences: BTreeMap<String, String>,
    /// The result of `lastval`.
    last: Option<String>,
    /// The argument of the last call of `setseed`.
    seed: Option<String>,
    /// The notifications of completed transactions.
    sent: Vec<(String, String)>,
}

/// The state that a failed transaction undoes.
#[derive(Debug, Clone, Default)]
struct Transactional {
    /// The values that were set, by SET or SET LOCAL.
    set: Values,
    /// The values that stay after the transaction.
    kept: Values,
    temporary: BTreeSet<String>,
    /// Cursors WITH HOLD.
    cursors: BTreeSet<String>,
    channels: BTreeSet<String>,
    /// Channels and payloads of notifications that the end of the transaction sends.
    notified: Vec<(String, String)>,
}

impl State {
    pub(crate) fn new(defaults: Values) -> Self {
        Self {
            defaults,
            ..Self::default()
        }
    }

    /// Returns a parameter's value; `None` for a custom parameter that was never set.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let found = self.now.set.get(&name).or_else(|| self.defaults.get(&name));
        found.map(String::as_str)
    }

    /// Returns the parameters that were set in the session, with their values.
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

    /// Returns the statement after AS of an SQL-prepared statement.
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

    /// Returns whether the session has state that can't move to another server.
    pub(crate) fn is_bound(&self) -> bool {
        !self.now.temporary.is_empty()
            || !self.now.cursors.is_empty()
            || !self.locks.is_empty()
            || !self.now.channels.is_empty()
            || self.seed.is_some()
    }

    /// Returns whether a custom parameter is set.
    pub(crate) fn has_custom(&self) -> bool {
        let mut set = self.now.set.iter();
        set.any(|(name, value)| name.contains('.') && !value.is_empty())
    }

    /// Returns whether the session has values of sequences.
    pub(crate) fn has_sequences(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Begins a transaction, unless one is under way.
    pub(crate) fn begin(&mut self) {
        self.before
            .get_or_insert_with(|| Box::new(self.now.clone()));
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.before.is_some()
    }

    /// Undoes a failed transaction.
    pub(crate) fn abort(&mut self) {
        if let Some(before) = &self.before {
            self.now = (**before).clone();
        }
    }

    /// Ends a transaction.
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

    /// Rolls back to a savepoint. Returns `false` if it does not exist.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(own, _)| own == name) else {
            return false;
        };
        self.savepoints.truncate(at + 1);
        self.now = self.savepoints[at].1.clone();
        true
    }

    /// Releases a savepoint. Returns `false` if it does not exist.
    pub(crate) fn release(&mut self, name: &str) -> bool {
        let found = self.savepoints.iter().rposition(|(own, _)| own == name);
        if let Some(at) = found {
            self.savepoints.truncate(at);
        }
        found.is_some()
    }

    /// Runs the statement within a transaction. `source` is the text of the whole query.
    ///
    /// # Errors
    /// PostgreSQL's error, or that the model does not know the result.
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

    /// Inserts a row. The table's trigger, if there is one, changes session state.
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

    /// Returns the notifications since the last call: channels and payloads.
    pub(crate) fn take_sent(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.sent)
    }

    /// Runs a function.
    pub(super) fn run(&mut self, text: &str, facts: &Facts) -> Result<(), Failure> {
        let Some(statement) = parse(text) else {
            return Err(Failure::Unknown(text.to_owned()));
        };
        self.apply(&statement, text, facts).map(|_| ())
    }

    /// Runs SET, RESET or `set_config`.
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
            // The role `none` means the login role.
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

    /// RESET ALL does not reset the role.
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

    /// Releases a lock. Returns `false` if it was not held.
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

    /// Takes the next value of a sequence.
    pub(super) fn remember(&mut self, sequence: &str, value: &str) {
        self.sequences.insert(sequence.to_owned(), value.to_owned());
        self.last = Some(value.to_owned());
    }

    pub(super) fn set_seed(&mut self, seed: Option<String>) {
        self.seed = seed;
    }

    /// Describes the difference between this session on a pooler's server and the direct session of its client; `None`
    /// if the client can't notice any.
    pub(crate) fn difference_from(&self, direct: &Self) -> Option<String> {
        let maps = [&self.now.set, &direct.now.set, &direct.defaults];
        let names: BTreeSet<&String> = maps.into_iter().flat_map(|values| values.keys()).collect();
        for name in names {
            // A custom parameter that was ever set is empty afterwards, instead of unknown.
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

    /// Copies the state of another session, but keeps the values that RESET restores.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let defaults = std::mem::take(&mut self.defaults);
        *self = Self {
            defaults,
            ..other.clone()
        };
    }

    /// Returns whether a pooler may take this state from a session that stays, but can never set it in another one.
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

    /// Describes state that a departed client has left, and that others notice without having its session.
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
