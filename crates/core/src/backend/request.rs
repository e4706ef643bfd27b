//! The requests to a server: a client's, and pgweir's own.

/// A request that ends with ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Query or FunctionCall of the client.
    Simple,
    /// Sync of the client.
    Sync,
    /// A query of pgweir's own: the client does not get its replies.
    Internal(InternalQuery),
}

impl Request {
    /// Returns whether the request ends with a ReadyForQuery for the client.
    #[must_use]
    #[inline]
    pub fn is_owed_to_client(self) -> bool {
        matches!(self, Self::Simple | Self::Sync)
    }
}

/// Queries of pgweir's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InternalQuery {
    /// Set the parameters of the next client.
    Parameters,
    /// Run `server_reset_query`.
    Reset,
    /// End the transaction that a client left open.
    Rollback,
    /// Run `server_check_query`.
    Check,
    /// Prepare or deallocate SQL-prepared statements, or statements under the client's names.
    Statements,
    /// Prepare statements under the client's names without the client's role, which may not prepare them.
    StatementsWithoutRole,
    /// Prepare the client's SQL-prepared statement with this index.
    Sql(u32),
    /// The same without the client's role, which may not prepare the statement.
    SqlWithoutRole(u32),
    /// Run LISTEN, UNLISTEN or an empty query on a listener.
    Listen,
    /// Ask for the state of the host.
    HostCheck,
    /// Inspect the session state.
    Probe,
    /// Set the client's startup values again after a RESET.
    Restore,
    /// Remove the session state of the last client.
    Clean,
    /// Read the values of the parameters in a clean session.
    Baseline,
    /// Discard the sequence values of another client, or plans from before a change of the schema.
    Discard,
    /// Try the startup parameters of a client at its login.
    Startup,
    /// Read the catalog, for certificates of functions and relations.
    Catalog,
    /// Find out which server processes with DDL are still there, although their connections are closed.
    LostDdl,
    /// Count the backends in PostgreSQL by their addresses, for the limit of a fleet.
    Backends,
    /// Read the cluster's system identifier and the database's OID.
    System,
    /// Reset what clients have set, before a lookup of a user.
    Neutral,
    /// Look up a user who logs in.
    Lookup,
    /// LISTEN to all channels of a listener connection that this one replaces.
    Succession,
    /// Receive all notifications up to now, before a listener takes over the client's channels.
    ReadAll,
    /// UNLISTEN the channels that a listener has now.
    Unlisten,
    /// LISTEN to the client's channels, before the client calls `pg_listening_channels()`.
    Channels,
    /// Read the role under which the client signals other clients.
    Rights,
}

impl InternalQuery {
    /// The query's name, for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "setting the client's parameters",
            Self::Reset => "server_reset_query",
            Self::Rollback => "ROLLBACK of an abandoned transaction",
            Self::Check => "server_check_query",
            Self::Statements
            | Self::StatementsWithoutRole
            | Self::Sql(_)
            | Self::SqlWithoutRole(_) => "setting up the client's prepared statements",
            Self::Listen => "LISTEN",
            Self::HostCheck => "checking the host",
            Self::Succession => "taking a listener's place",
            Self::ReadAll => "reading notifications",
            Self::Probe => "asking for the state of the session",
            Self::Restore => "setting the client's startup parameters again",
            Self::Clean => "cleaning the session",
            Self::Baseline => "asking for the parameters' values",
            Self::Discard => "DISCARD SEQUENCES",
            Self::Catalog | Self::System => "reading the catalog",
            Self::LostDdl => "searching for server processes whose connections are closed",
            Self::Backends => "counting the backends",
            Self::Startup => "trying the client's startup parameters",
            Self::Neutral => "resetting the settings of clients",
            Self::Lookup => "auth_query",
            Self::Unlisten => "UNLISTEN",
            Self::Channels => "giving the server the client's channels",
            Self::Rights => "asking for the rights of the client's role",
        }
    }
}
