//! The statements that a server has, except those of SQL's PREPARE.

use super::super::Prepared;
use crate::statement_statistics::RunningStatements;

/// The client whose unnamed statement a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// The server has no unnamed statement.
    None,
    /// The server has this version of the statement of the client with this id, or no unnamed statement.
    Of(u64, u32),
    /// The server may have the statement of any client.
    Unknown,
}

/// The unnamed statement that a server had when it last answered a Parse of an unnamed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredUnnamed {
    /// No statement, or one of another client.
    Foreign,
    /// The statement that its client had before the outstanding Parses.
    Former,
    /// The statement of one of the client's later Parses.
    Later,
}

/// The statements that a server has, except those of SQL's PREPARE.
#[derive(Debug)]
pub struct ServerStatements {
    /// The statements that pgweir has prepared on the server.
    pub(crate) prepared: Prepared,
    /// The statements that the server runs for its client, for the statistics.
    pub(crate) running: RunningStatements,
    /// A digest of the parameters of the statement whose columns come next.
    pub(crate) params: Option<u64>,
    /// The client whose unnamed statement the server has.
    pub(crate) unnamed: Unnamed,
    /// The unnamed statement that the server has if it skips all outstanding Parses of the unnamed statement.
    pub(crate) answered_unnamed: AnsweredUnnamed,
}
