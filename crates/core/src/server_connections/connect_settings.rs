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
        if server.purpose.owner.is_some() || server.purpose.is_own() {
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
        let names = settings.names();
        shared.facts.lock().connect_settings = Some(Arc::new(settings));
        if names.is_empty() {
            return false;
        }
        let text = format!("connect_query sets {names}: the next servers begin with these values");
        out.log(Level::Log, self.subject(conn), text);
        self.log_end(conn, "its session has begun without them", out);
        self.close_connection(conn, out);
        self.give_up_login(conn, out);
        true
    }

    /// After a server has refused the parameters that `connect_query` sets, logs in without them. Returns whether this
    /// is so.
    pub(super) fn refused_connect_settings(
        &mut self,
        conn: Token,
        error: &LoginError,
        out: &mut Actions,
    ) -> bool {
        let LoginError::Refused(words) = error else {
            return false;
        };
        let is_of_parameter = PARAMETER_REFUSED
            .iter()
            .any(|class| words.code.starts_with(class));
        let Some(server) = self.connections.server(conn) else {
            return false;
        };
        if !is_of_parameter || server.purpose.owner.is_some() || server.purpose.is_own() {
            return false;
        }
        let shared = Arc::clone(&server.shared);
        let mut facts = shared.facts.lock();
        let Some(known) =
            (facts.connect_settings.as_ref()).filter(|known| !known.parameters.is_empty())
        else {
            return false;
        };
        let text = format!(
            "the server refuses {} in the startup packet: the first reset of each server undoes what connect_query sets",
            known.names()
        );
        facts.connect_settings = Some(Arc::new(ConnectSettings {
            query: known.query.clone(),
            parameters: Parameters::new(),
        }));
        drop(facts);
        out.log(Level::Warning, self.subject(conn), text);
        self.log_end(conn, "its parameters were refused", out);
        self.close_connection(conn, out);
        self.give_up_login(conn, out);
        true
    }
}
