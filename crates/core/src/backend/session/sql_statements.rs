//! The SQL-prepared statements of a server.

use memchr::memmem;
use pgweir_wire::Report;

use crate::session::{Literals, Settings, SqlStatements};

/// The SQL-prepared statements of a server.
#[derive(Debug, Default)]
pub struct ServerSqlStatements {
    /// All statements that the server may have.
    held: SqlStatements,
    /// The id of the client that the statements were prepared for, and the settings under which they were prepared;
    /// `None` if the settings are unknown.
    made_for: (u64, Option<Settings>),
}

impl ServerSqlStatements {
    /// Returns all statements that the server may have.
    #[must_use]
    #[inline]
    pub fn held(&self) -> &SqlStatements {
        &self.held
    }

    /// Returns whether the statements were prepared for the client with this id.
    #[must_use]
    #[inline]
    pub fn were_made_for(&self, client: u64) -> bool {
        self.made_for.0 == client
    }

    /// Returns whether the server has these statements, with the meaning that the literals have for the client with this
    /// id and these settings.
    #[must_use]
    #[inline]
    pub fn fit(&self, sql: &SqlStatements, client: u64, settings: &Settings) -> bool {
        sql.is_equal(&self.held)
            && (sql.is_empty() || self.were_made_for(client) || self.were_made_under(settings))
    }

    fn were_made_under(&self, settings: &Settings) -> bool {
        let made = self.made_for.1.as_ref();
        made.is_some_and(|made| Literals::Bytes.mean_the_same(made, settings))
    }

    /// Notes that this client, with these settings, uses the server's statements: when tables change, PostgreSQL analyses
    /// the statements again, under the settings of that moment.
    pub fn note_user(&mut self, client: u64, settings: &Settings) {
        let are_made = self.were_made_under(settings);
        let made = self.made_for.1.take();
        self.made_for = (client, made.filter(|_| are_made));
    }

    /// Notes that pgweir prepares the statements of this client, under these settings, in place of all others.
    pub fn replace(&mut self, held: SqlStatements, client: u64, settings: Settings) {
        *self = Self {
            held,
            made_for: (client, Some(settings)),
        };
    }

    /// Notes that the server has these statements, which this client itself has prepared.
    pub fn note_found(&mut self, held: SqlStatements, client: u64) {
        self.held = held;
        self.made_for = (client, None);
    }

    /// Notes that the server has these statements of its client, since pgweir prepares those that were missing.
    pub fn note_made(&mut self, held: SqlStatements) {
        self.held = held;
    }

    /// Notes that the server has no statements.
    pub fn clear(&mut self) {
        self.held = SqlStatements::default();
    }

    /// Notes that the server could not prepare this statement.
    pub fn note_missing(&mut self, name: &[u8]) {
        self.held = self.held.without(&[name.to_vec()]);
    }
}

/// The SQL-prepared statements that a server could not prepare for the text that was sent last. There is at most one for
/// each statement of the client.
#[derive(Debug, Default, PartialEq)]
pub struct Rejections(Vec<RejectedStatement>);

/// A SQL-prepared statement that a server could not prepare.
#[derive(Debug, PartialEq)]
struct RejectedStatement {
    /// The client's name of the statement.
    name: Box<[u8]>,
    /// PostgreSQL's error: a whole message for the client.
    error: Vec<u8>,
}

impl Rejections {
    /// Keeps PostgreSQL's error, a whole message, for the client's next use of a statement that could not be
    /// prepared.
    pub fn keep(&mut self, name: &[u8], error: Vec<u8>) {
        let name = name.into();
        self.0.push(RejectedStatement { name, error });
    }

    /// Forgets the errors of statements that could not be prepared for the client's last text.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the error that the client gets in place of `report`: the server does not have the statement that the
    /// client has executed, since it could not prepare the statement.
    pub fn take(&mut self, report: &Report<'_>) -> Option<Vec<u8>> {
        let mut rejected = std::mem::take(&mut self.0).into_iter();
        let found = match report.code {
            b"26000" => rejected.find(|statement| {
                let quoted = [b"\"", &*statement.name, b"\""].concat();
                memmem::find(report.message, &quoted).is_some()
            }),
            // The rejection has failed the transaction.
            b"25P02" => rejected.next(),
            _ => None,
        };
        found.map(|statement| statement.error)
    }
}
