//! Commands of the console, and their tables.

use std::time::Duration;

use pgweir_core::backend::LoginError;
use pgweir_wire::{HEADER_LEN, Header, Malformed, MessageWriter, Report, tag::backend};

use super::table::{Table, printable};
use crate::quickstart::{Connection, ConnectionError, ConsoleLogin};

/// The longest message that is read: a row of the console is much shorter.
const MESSAGE_MAX: usize = 1 << 20;
/// The largest number of rows of an answer that are kept.
const ROWS_MAX: usize = 100_000;

/// The reason why a command got no table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsoleError {
    /// The connection is lost, or could not be opened.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// The console has refused the command.
    #[error("{0}")]
    Refused(String),
    /// The console does not keep to the protocol.
    #[error("the console sent something unexpected: is it pgweir or PgBouncer?")]
    Protocol,
}

impl From<Malformed> for ConsoleError {
    fn from(_: Malformed) -> Self {
        Self::Protocol
    }
}

impl ConsoleError {
    /// Whether the console asks for a password, and there is none.
    pub(crate) fn needs_password(&self) -> bool {
        matches!(
            self,
            Self::Connection(ConnectionError::Login(LoginError::NoPassword(_)))
        )
    }
}

/// A console, logged in.
pub(crate) struct Console {
    connection: Connection,
    bytes: Vec<u8>,
    /// Up to here, `bytes` was read.
    at: usize,
}

impl Console {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the console can't be reached, or refuses the login.
    pub(crate) fn open(login: &ConsoleLogin) -> Result<Self, ConsoleError> {
        let patience = login.patience.max(Duration::from_secs(1));
        let connection = Connection::open(login.target.clone(), patience)?;
        Ok(Self {
            connection,
            bytes: Vec::new(),
            at: 0,
        })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// When the connection is lost, or the console refuses the command.
    pub(crate) fn table(&mut self, command: &str) -> Result<Table, ConsoleError> {
        let mut out = Vec::new();
        MessageWriter::new(&mut out).query(command.as_bytes());
        self.connection.send(&out)?;
        let (mut table, mut refused) = (Table::default(), None);
        loop {
            let (tag, body) = self.message()?;
            match tag {
                backend::ROW_DESCRIPTION => table = Table::of_description(&body)?,
                backend::DATA_ROW if table.rows.len() < ROWS_MAX => table.add(&body)?,
                backend::ERROR_RESPONSE => {
                    let report = Report::parse(&body)?;
                    let message = String::from_utf8_lossy(report.message);
                    refused = Some(printable(&message));
                }
                backend::READY_FOR_QUERY => break,
                _ => {}
            }
        }
        refused.map_or(Ok(table), |message| Err(ConsoleError::Refused(message)))
    }

    /// Waits for the next message: its tag and its body.
    fn message(&mut self) -> Result<(u8, Vec<u8>), ConsoleError> {
        loop {
            let rest = &self.bytes[self.at..];
            if let Some(header) = Header::parse(rest).map_err(|_| ConsoleError::Protocol)? {
                let len = header.message_len();
                if len > MESSAGE_MAX {
                    return Err(ConsoleError::Protocol);
                }
                if let Some(message) = rest.get(..len) {
                    self.at += len;
                    return Ok((header.tag, message[HEADER_LEN..].to_vec()));
                }
            }
            self.bytes.drain(..self.at);
            self.at = 0;
            self.bytes.extend(self.connection.read()?);
        }
    }
}
