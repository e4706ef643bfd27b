//! Takes the parameters that `connect_query` has set on a server, for the startup packets of the next servers.

use std::sync::Arc;

use super::ServerConnections;
use crate::{
    Actions, Level, Token,
    backend::LoginError,
    shared::pool::{ConnectSettings, Parameters},
};

/// The classes of the errors with which a server refuses a parameter of the startup packet: a bad value, a name or role
/// that does not exist, or a missing privilege; and those of a pooler that knows only some parameters.
const PARAMETER_REFUSED: [&str; 4] = ["22", "42", "08P01", "0A"];

impl ServerConnections<'_> {
    /// Keeps the parameters that `connect_query` has set on this server. Returns whether the server was closed: its
    /// session has begun without them, so a clean would remove them.
    pub(super) fn learn_connect_settings(
        &mut self,
        conn: Token,
        found: Parameters,
        out: &mut Actions,
    ) -> bool {
        let Some(server) = self.connections.server(conn) else {
            return false;
        };
        if !server.is_shared() {
            return false;
        }
        let shared = Arc::clone(&server.shared);
        let database = self.env.snapshot.config.database(&shared.key.database);
        let Some(query) = database.and_then(|entry| entry.connect_query.clone()) else {
            return false;
        };
        let settings = ConnectSettings {
            query,
            parameters: found,
        };
        let (names, is_empty) = (settings.names(), settings.parameters.is_empty());
        shared.facts.lock().connect_settings = Some(Arc::new(settings));
        if is_empty {
            return false;
        }
        let text = format!("connect_query sets {names}: the next servers begin with these values");
        out.log(Level::Log, self.subject(conn), text);
        self.repeat_login(conn, "its session has begun without them", out);
        true
    }

    /// After a server has refused a login whose startup packet has the parameters that `connect_query` sets, logs in without
    /// them. Returns whether this is so. If the server refuses that login, too, the parameters were not the reason, and the next
    /// server is asked for them again.
    pub(super) fn refused_connect_settings(
        &mut self,
        conn: Token,
        error: &LoginError,
        out: &mut Actions,
    ) -> bool {
        let LoginError::Refused(words) = error else {
            return false;
        };
        let sends = (self.login(conn)).is_some_and(|login| login.sends_connect_settings());
        let Some(server) = self.connections.server(conn) else {
            return false;
        };
        let mut classes = PARAMETER_REFUSED.iter();
        if !server.is_shared() || !classes.any(|class| words.code.starts_with(class)) {
            return false;
        }
        let shared = Arc::clone(&server.shared);
        let mut facts = shared.facts.lock();
        let known = facts.connect_settings.take();
        if !sends {
            facts.connect_settings = known.filter(|known| !known.parameters.is_empty());
            return false;
        }
        let Some(refused) = known else {
            return false;
        };
        facts.connect_settings = Some(Arc::new(ConnectSettings {
            query: refused.query.clone(),
            parameters: Parameters::new(),
        }));
        drop(facts);
        // If several logins are refused at once, the first one logs the warning.
        if !refused.parameters.is_empty() {
            let text = format!(
                "the server refuses {} in the startup packet: the first reset of each server undoes what connect_query sets",
                refused.names()
            );
            out.log(Level::Warning, self.subject(conn), text);
        }
        self.repeat_login(conn, "its parameters were refused", out);
        true
    }

    /// Ends a login in whose place another one begins, if a client still waits.
    fn repeat_login(&mut self, conn: Token, why: &str, out: &mut Actions) {
        self.log_end(conn, why, out);
        self.close_connection(conn, out);
        self.give_up_login(conn, out);
    }
}
