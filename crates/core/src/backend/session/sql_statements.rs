//! The SQL-prepared statements of a server.

use pgweir_wire::Report;

use crate::session::{Settings, SqlStatements};

/// The SQL-prepared statements of a server.
#[derive(Debug, Default)]
pub struct ServerSqlStatements {
    /// All that the server may have.
    pub(crate) held: SqlStatements,
    /// The id of the client that the statements were made for, and their settings; `None` if these are unknown.
    pub(crate) made_for: (u64, Option<Settings>),
    /// The statements that the server could not make for the text that was sent last, with PostgreSQL's errors. There is at most
    /// one for each statement of the client.
    pub(crate) rejected: Vec<RejectedStatement>,
}

/// A SQL-prepared statement that a server could not make.
#[derive(Debug)]
pub struct RejectedStatement {
    /// The client's name of the statement.
    pub name: Box<[u8]>,
    /// The error: a whole message for the client.
    pub error: Vec<u8>,
}

impl ServerSqlStatements {
    /// Returns the error that the client gets in place of `report`: the server does not have the statement that the client has
    /// executed, since it could not make the statement.
    pub fn take_rejection(&mut self, report: &Report<'_>) -> Option<Vec<u8>> {
        let mut rejected = std::mem::take(&mut self.rejected).into_iter();
        let found = match report.code {
            b"26000" => rejected.find(|statement| {
                let quoted = [b"\"", &*statement.name, b"\""].concat();
                report
                    .message
                    .windows(quoted.len())
                    .any(|part| part == quoted)
            }),
            // The rejection has failed the transaction.
            b"25P02" => rejected.next(),
            _ => None,
        };
        found.map(|statement| statement.error)
    }
}
