//! Reads the catalog of a database, so that texts can be certified.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::Worker;
use crate::{
    Actions, Level, Time, Token,
    backend::{CatalogRows, Duty, InternalQuery},
    pool::PoolId,
    pooling::LocalPool,
    session::certificates::{FACTS, Facts, IDENTITY, SYSTEM, Trust},
};

/// The least time between two checks of a worker whether the catalog has to be read, in microseconds.
const ASKED_EVERY: u64 = 250_000;
/// The same time if the catalog may have changed.
const ASKED_AGAIN: u64 = 1_000;
/// How many microseconds a server may take to answer.
const PATIENCE: u64 = 30_000_000;

impl LocalPool {
    /// Adopts the catalog if another worker has read it.
    #[inline]
    pub(crate) fn use_current_catalog(&mut self) {
        if self.shared.catalog.generation() != self.certificates.generation() {
            self.take_certificates();
        }
    }

    #[cold]
    fn take_certificates(&mut self) {
        self.certificates = self.shared.catalog.certificates();
        if self.shared.catalog.is_stale() {
            self.catalog_due = Time(0);
        }
        // The catalog was read in UTF-8.
        let is_utf8 = self.shared.is_utf8();
        let mut customs = self.shared.custom_parameters.lock();
        customs.watch(self.certificates.custom_names(), is_utf8);
    }
}

impl Worker {
    /// Returns whether this server, which has come free, has to read the catalog before any client gets it.
    #[inline]
    pub(super) fn reads_catalog(
        &mut self,
        conn: Token,
        pool: PoolId,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let interval = self.snapshot.config.settings.catalog_check_interval.0;
        if let Some(pool) = self.pool(pool) {
            pool.use_current_catalog();
        }
        match self.pool(pool) {
            Some(pool) if pool.catalog_due <= now && interval > 0 => {
                let catalog = Arc::clone(&pool.shared.catalog);
                let is_whole = pool.terms.engine;
                let reading = match is_whole {
                    true => catalog.begin(interval, now),
                    false => catalog.begin_identity(now),
                };
                let pause = if is_whole && reading.is_none() && catalog.is_stale() {
                    ASKED_AGAIN
                } else {
                    ASKED_EVERY
                };
                pool.catalog_due = now.after(pause);
                if let Some(reading) = reading {
                    self.read_catalog(conn, reading, out);
                    self.keep_for_answers(conn, now);
                }
                reading.is_some()
            }
            _ => false,
        }
    }

    #[cold]
    fn read_catalog(&mut self, conn: Token, reading: crate::Reading, out: &mut Actions) {
        let settings = &self.snapshot.config.settings;
        let names = |list: &[String]| list.iter().map(|name| name.as_str().into()).collect();
        let trust = Trust {
            certified: names(&settings.certified_functions),
            pinning: names(&settings.pin_extensions),
        };
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.session.queries.catalog = Some(Box::new(CatalogRows {
            reading,
            facts: Facts::new(trust),
            failed: false,
        }));
        server.ask(InternalQuery::System);
        server.ask(InternalQuery::Catalog);
        let question = match reading.is_of_identity {
            true => IDENTITY,
            false => FACTS,
        };
        out.send_made(conn, |bytes| {
            let mut writer = MessageWriter::new(bytes);
            writer.query(SYSTEM.as_bytes());
            writer.query(question.as_bytes());
        });
    }

    /// Keeps the server from clients until it has answered.
    fn keep_for_answers(&mut self, conn: Token, now: Time) {
        let duty = Duty::Cleaning {
            until: now.after(PATIENCE),
            rolled_back: false,
        };
        if let Some(server) = self.table.server(conn) {
            server.duty = duty;
            server.begins_reading(now);
        }
        self.schedule(now);
    }

    /// Handles the end of the answer to a catalog query.
    pub(crate) fn catalog_read(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Some(found) = server.session.queries.catalog.take() else {
            return;
        };
        let catalog = Arc::clone(&server.shared.catalog);
        let address = server.link.endpoint.to_string();
        let facts = (!found.failed).then_some(found.facts);
        catalog.finish(found.reading, facts, &address, now);
        if let Some(reason) = catalog.news() {
            let database = &server.shared.key.database;
            let text = format!(
                "database {database}: no statement is certain to leave its session as it was: {reason}; \
                 each server is cleaned before another client gets it; SHOW OPAQUE lists functions, and \
                 certified_functions can name those that keep nothing in the session"
            );
            out.log(Level::Warning, "", text);
        }
    }
}
