//! What a server is asked: by its client, and by us.

/// A request that ends with ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Query or FunctionCall of the client.
    Simple,
    /// Sync of the client.
    Sync,
    /// One of ours: its replies are swallowed.
    Own(Own),
}

impl Request {
    /// Does it end with a ReadyForQuery for the client?
    #[must_use]
    #[inline]
    pub fn is_owed_to_client(self) -> bool {
        matches!(self, Self::Simple | Self::Sync)
    }
}

/// What we ask of a server for ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Give it the parameters of the client that comes next.
    Parameters,
    /// `server_reset_query`.
    Reset,
    /// End the transaction that a client left open.
    Rollback,
    /// `server_check_query`.
    Check,
    /// Give it SQL-prepared statements, or the client's names of others, or take them away.
    Statements,
    /// Make the SQL-prepared statement at this place of the client's.
    Sql(u32),
    /// LISTEN, UNLISTEN or nothing at all, on a listener.
    Listen,
    /// Ask what its session holds.
    Probe,
    /// Give it back what the client's RESET has taken: the client's startup values.
    Restore,
    /// Take from it what the last client left.
    Clean,
    /// Ask for the values of its parameters where nothing is set.
    Baseline,
    /// Take from it the sequence values of another client.
    Sequences,
    /// Try the startup parameters of a client.
    Startup,
    /// Read which functions and relations are harmless.
    Catalog,
    /// Which cluster it is of.
    System,
    /// Take from it what clients have set, before it is asked of a user.
    Neutral,
    /// Ask it of a user who logs in.
    Lookup,
    /// Let another listener take this one's place, or take another one's.
    Succession,
    /// Tell all that was notified before a listener has the client's channels.
    ReadAll,
    /// Take its channels from it, which a listener has now.
    Unlisten,
    /// Give it the client's channels, which the client is about to look at.
    Channels,
    /// Ask by what right its client signals others.
    Rights,
}

impl Own {
    /// What it is, for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "setting the client's parameters",
            Self::Reset => "server_reset_query",
            Self::Rollback => "ROLLBACK of an abandoned transaction",
            Self::Check => "server_check_query",
            Self::Statements | Self::Sql(_) => "setting up the client's prepared statements",
            Self::Listen => "LISTEN",
            Self::Succession => "taking a listener's place",
            Self::ReadAll => "reading notifications",
            Self::Probe => "asking for the state of the session",
            Self::Restore => "setting the client's startup parameters again",
            Self::Clean => "cleaning the session",
            Self::Baseline => "asking for the parameters' values",
            Self::Sequences => "DISCARD SEQUENCES",
            Self::Catalog | Self::System => "reading the catalog",
            Self::Startup => "trying the client's startup parameters",
            Self::Neutral => "taking back what clients have set",
            Self::Lookup => "auth_query",
            Self::Unlisten => "UNLISTEN",
            Self::Channels => "giving the server the client's channels",
            Self::Rights => "asking for the rights of the client's role",
        }
    }
}
