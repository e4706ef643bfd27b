//! DDL that passes through pgweir: until its transaction has ended and the catalog was read again, the certificates are invalid.

use std::sync::Arc;

use super::{Catalog, State};
use crate::session::DdlCause;

/// A transaction that may change catalogs. Dropping the value ends the transaction.
#[derive(Debug)]
pub struct Ddl {
    catalogs: Vec<Arc<Catalog>>,
    /// The number of invalidations (`State::invalidations`) when the DDL was found to be quiet.
    quiet: Option<u64>,
}

impl Ddl {
    /// Returns whether all DDL of the transaction was found to be quiet.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }
}

impl Catalog {
    /// Begins a transaction with a text that may change the catalog, before the text is sent. Nothing is certified
    /// until the caller drops the returned value at the end of the transaction, and the catalog has been read after
    /// that.
    #[must_use]
    pub fn ddl_begins(self: &Arc<Self>) -> Ddl {
        self.begins(true)
    }

    /// Like [`ddl_begins`](Self::ddl_begins), for a text that makes no code and no type of a PL/pgSQL variable.
    #[must_use]
    pub fn ddl_of_tables_begins(self: &Arc<Self>) -> Ddl {
        self.begins(false)
    }

    /// Notes that a transaction whose DDL has begun may make code.
    pub fn note_new_code(&self) {
        let (canonical, mut state) = self.locked();
        if state.changes.is_stale && !state.certificates.may_have_new_code() {
            let unknown = state.certificates.outdated(0);
            canonical.put(&mut state, unknown);
        }
    }

    /// Returns whether no code is known that has made the certificates invalid. Code may do so again with each call.
    #[must_use]
    pub fn lacks_cause(&self) -> bool {
        let state = self.canonical().state.lock();
        let cause = state.changes.cause.as_ref();
        cause.is_none_or(|cause| !cause.is_code)
    }

    /// Notes why the certificates are invalid.
    pub fn note_cause(&self, cause: DdlCause) {
        let (_, mut state) = self.locked();
        if state.changes.is_stale {
            state.changes.cause = Some(cause);
        }
    }

    /// Returns, once for each database, the function or relation whose code makes the certificates invalid.
    #[must_use]
    pub fn take_code_to_log(&self) -> Option<Box<str>> {
        let mut state = self.canonical().state.lock();
        if state.changes.has_logged_code {
            return None;
        }
        let cause = state.changes.cause.as_ref().filter(|cause| cause.is_code)?;
        let words = cause.words.clone();
        state.changes.has_logged_code = true;
        Some(words)
    }

    fn begins(self: &Arc<Self>, makes_code: bool) -> Ddl {
        let is_known = {
            let state = self.canonical().state.lock();
            state.identity.is_some() && !state.is_unsure
        };
        let mut catalogs = vec![Arc::clone(self)];
        if !is_known {
            let living = self.others.living();
            catalogs.extend(living.into_iter().filter(|other| !Arc::ptr_eq(other, self)));
        }
        for catalog in &catalogs {
            catalog.begin_ddl(makes_code);
        }
        Ddl {
            catalogs,
            quiet: None,
        }
    }

    /// Begins a transaction with quiet DDL, before its text is sent: the certificates in force stay valid. If other DDL
    /// begins before the transaction has ended, the transaction counts as other DDL too, since the certificates by
    /// which its DDL was found to be quiet are invalid then.
    #[must_use]
    pub fn quiet_begins(self: &Arc<Self>) -> Ddl {
        let mut state = self.canonical().state.lock();
        state.changes.quiet += 1;
        Ddl {
            catalogs: vec![Arc::clone(self)],
            quiet: Some(state.changes.invalidations),
        }
    }

    fn end_quiet(&self, invalidations: u64) {
        let mut state = self.state.lock();
        if let Some(same) = self.same.get() {
            drop(state);
            // The catalog that replaced this one has counted the transaction as DDL.
            return same.end_ddl();
        }
        if state.changes.invalidations == invalidations {
            state.changes.quiet = state.changes.quiet.saturating_sub(1);
            state.changes.quiet_ended += 1;
            state.changes.is_behind = true;
        } else {
            state.changes.ddl = state.changes.ddl.saturating_sub(1);
            state.changes.count += 1;
        }
    }

    pub(super) fn begin_ddl(&self, makes_code: bool) {
        let (canonical, mut state) = self.locked();
        let was_certain = !state.changes.is_stale || state.reading.count == 0;
        state.changes.ddl += 1;
        state.doubt();
        // Certificates that are invalid already stay as they are.
        let may_have_code = state.certificates.may_have_new_code();
        if was_certain || makes_code && !may_have_code {
            let unknown = match makes_code {
                true => state.certificates.outdated(0),
                false => state.certificates.outdated_by_tables(0),
            };
            canonical.put(&mut state, unknown);
        }
    }

    pub(super) fn end_ddl(&self) {
        let (_, mut state) = self.locked();
        state.changes.ddl = state.changes.ddl.saturating_sub(1);
        state.changes.count += 1;
    }
}

impl State {
    /// Records that DDL has begun: the facts that were read are invalid, and quiet DDL counts as DDL, since it was
    /// found to be quiet under those facts.
    pub(super) fn doubt(&mut self) {
        self.changes.count += 1;
        self.changes.is_stale = true;
        self.changes.ddl += std::mem::take(&mut self.changes.quiet);
        self.changes.invalidations += 1;
    }
}

impl Drop for Ddl {
    fn drop(&mut self) {
        for catalog in &self.catalogs {
            match self.quiet {
                Some(invalidations) => catalog.end_quiet(invalidations),
                None => catalog.end_ddl(),
            }
        }
    }
}
