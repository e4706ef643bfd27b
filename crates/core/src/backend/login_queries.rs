//! The queries of a login, which a server answers after it has accepted the login: `connect_query`, the parameters that
//! this query has set, and the number of connections that the host allows.

use pgweir_wire::{Body, Malformed};

use crate::shared::pool::{ConnectQuery, ConnectSettings, Parameters};

/// Asks for the connections that the host allows, less those that it reserves. PostgreSQL has `reserved_connections`
/// since version 16. All names are qualified, whatever the role's `search_path` is.
pub(crate) const USABLE_CONNECTIONS: &str = "pg_catalog.current_setting('max_connections')::pg_catalog.int4 \
    OPERATOR(pg_catalog.-) pg_catalog.current_setting('superuser_reserved_connections')::pg_catalog.int4 \
    OPERATOR(pg_catalog.-) coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::pg_catalog.int4";

/// The queries of a login, and the answers that have arrived.
#[derive(Debug, Default)]
pub(super) struct LoginQueries {
    at: Step,
    /// The query for the parameters that `connect_query` has set.
    settings_query: Option<Vec<u8>>,
    found_settings: Option<Parameters>,
    usable_connections: Option<u32>,
}

/// The query that the server answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    #[default]
    None,
    ConnectQuery,
    Settings,
    UsableConnections,
}

impl LoginQueries {
    /// Returns the next query, if there is one. `asks_connections`: whether the login asks for the connections of the
    /// host.
    pub(super) fn next(
        &mut self,
        connect_query: &mut Option<ConnectQuery>,
        asks_connections: &mut bool,
    ) -> Option<Vec<u8>> {
        if let Some(query) = connect_query.take() {
            self.at = Step::ConnectQuery;
            self.settings_query = query.settings_query();
            return Some(query.text.into());
        }
        if let Some(query) = self.settings_query.take() {
            self.at = Step::Settings;
            self.found_settings = Some(Parameters::new());
            return Some(query);
        }
        if std::mem::take(asks_connections) {
            self.at = Step::UsableConnections;
            return Some(format!("SELECT {USABLE_CONNECTIONS}").into());
        }
        self.at = Step::None;
        None
    }

    /// Returns whether the server answers a query.
    pub(super) fn is_asked(&self) -> bool {
        self.at != Step::None
    }

    /// Takes a row of an answer.
    ///
    /// # Errors
    /// The row is malformed.
    pub(super) fn take_row(&mut self, row: Body<'_>) -> Result<(), Malformed> {
        match (self.at, &mut self.found_settings) {
            (Step::Settings, Some(found)) => ConnectSettings::add_row(found, row)?,
            (Step::UsableConnections, _) => {
                if let [Some(number)] = *row.columns()? {
                    let number = std::str::from_utf8(number).ok();
                    self.usable_connections = number.and_then(|number| number.parse().ok());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes that a query has failed. Returns its name for the log; `None` if the server answers no query.
    pub(super) fn note_failed(&mut self) -> Option<&'static str> {
        match self.at {
            Step::None => None,
            Step::ConnectQuery | Step::Settings => {
                self.settings_query = None;
                self.found_settings = None;
                Some("connect_query")
            }
            Step::UsableConnections => Some("the query for max_connections (max_server_conn)"),
        }
    }

    /// Returns the parameters that `connect_query` has set; `None` if the server was not asked for them.
    pub(super) fn take_settings(&mut self) -> Option<Parameters> {
        self.found_settings.take()
    }

    /// Returns the number of connections of the host; `None` if the server was not asked, or its answer is no such
    /// number.
    pub(super) fn usable_connections(&self) -> Option<u32> {
        self.usable_connections
    }
}
