//! Changes by the present transaction of a server that concern other sessions: of the catalog, of tables, of the session
//! defaults of roles and databases, and of types.

use crate::{Ddl, base::conditions::first_of, session::NAMES_MAX};

/// The changes that the texts of a server's present transaction may make, and that concern other sessions. They count until
/// the transaction ends, even if the client has left before.
#[derive(Debug, Default)]
pub struct TransactionState {
    /// The generation of the certificates by which the transaction's first text was read.
    certified_by: Option<u64>,
    /// Set if a text of the transaction may change the catalog.
    ddl: Option<Ddl>,
    /// The number of the schema that the transaction sees, if the transaction may have changed the schema.
    schema: Option<u32>,
    /// Roles and databases whose session defaults the texts of this transaction may have changed.
    changed_roles: Vec<String>,
    /// Whether a text may have altered a type that PL/pgSQL functions keep on other servers.
    alters_types: bool,
}

impl TransactionState {
    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](crate::backend::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (self.certified_by.is_some(), "certificates of a transaction"),
            (self.ddl.is_some(), "DDL"),
            (self.schema.is_some(), "a change of the schema"),
            (self.has_changed_roles(), "a change of session defaults"),
            (self.alters_types, "a change of types"),
        ])
    }

    /// Notes the generation of the certificates by which the transaction's first text is read.
    #[inline]
    pub fn note_certificates(&mut self, generation: u64) {
        self.certified_by.get_or_insert(generation);
    }

    /// Returns the generation of the certificates by which the transaction's first text was read.
    #[must_use]
    pub fn certified_by(&self) -> Option<u64> {
        self.certified_by
    }

    /// Returns the generation of the certificates by which the transaction's texts were read, if it is not this one, and
    /// forgets it.
    #[inline]
    pub(super) fn end_certified(&mut self, generation: u64) -> Option<u64> {
        let by = self.certified_by.take();
        by.filter(|by| *by != generation)
    }

    /// Returns whether a text of the transaction may change the catalog.
    #[must_use]
    #[inline]
    pub fn has_ddl(&self) -> bool {
        self.ddl.is_some()
    }

    /// Returns whether the transaction may only change the catalog in ways that no certificate depends on.
    #[must_use]
    pub fn has_only_quiet_ddl(&self) -> bool {
        self.ddl.as_ref().is_some_and(|ddl| ddl.is_quiet())
    }

    /// Notes a text that may change the catalog in ways that no certificate depends on.
    pub fn begin_quiet_ddl(&mut self, begin: impl FnOnce() -> Ddl) {
        self.ddl.get_or_insert_with(begin);
    }

    /// Notes a text that may change the catalog. From now on, earlier quiet changes of the transaction count as such, too.
    pub fn begin_ddl(&mut self, begin: impl FnOnce() -> Ddl) {
        if self.ddl.as_ref().is_none_or(|ddl| ddl.is_quiet()) {
            self.ddl = Some(begin());
        }
    }

    /// Notes that a text was sent that may alter types which PL/pgSQL functions keep.
    pub fn note_altered_types(&mut self) {
        self.alters_types = true;
    }

    /// Notes that the transaction with its changes of the catalog has ended. Returns whether it may have altered types
    /// that PL/pgSQL functions keep.
    #[inline]
    #[must_use]
    pub fn end_ddl(&mut self) -> bool {
        self.ddl = None;
        std::mem::take(&mut self.alters_types)
    }

    /// Returns the transaction that may change the catalog. The caller ends it.
    pub fn take_ddl(&mut self) -> Option<Ddl> {
        self.ddl.take()
    }

    /// Returns the number of the schema that the transaction sees, if the transaction may have changed the schema.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> Option<u32> {
        self.schema
    }

    /// Notes that the transaction may change the schema, and sees a schema of its own.
    pub fn set_schema(&mut self, schema: u32) {
        self.schema = Some(schema);
    }

    /// Notes that the transaction that has changed the schema has ended.
    pub(crate) fn forget_schema(&mut self) {
        self.schema = None;
    }

    /// Notes that a text was sent that may change the session defaults of these roles and databases.
    pub fn note_changed_roles(&mut self, names: Vec<String>) {
        self.changed_roles.extend(names);
        self.changed_roles.truncate(NAMES_MAX);
    }

    /// Returns whether a text may have changed session defaults.
    #[must_use]
    #[inline]
    pub fn has_changed_roles(&self) -> bool {
        !self.changed_roles.is_empty()
    }

    /// Notes that the texts that may have changed session defaults have failed.
    pub(super) fn forget_changed_roles(&mut self) {
        self.changed_roles.clear();
    }

    /// Takes the roles and databases whose session defaults the texts may have changed.
    pub fn take_changed_roles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changed_roles)
    }
}
