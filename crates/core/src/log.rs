//! Lines for the log, in PgBouncer's form.

use crate::{Action, Actions, Address, Level, LogLine};

/// `unix:6432` or `127.0.0.1:4711`, IPv6 in brackets.
pub(crate) fn address(address: Address, port: u16) -> String {
    match address {
        Address::Unix => format!("unix:{port}"),
        Address::Tcp(socket) => socket.to_string(),
    }
}

impl Actions {
    /// Asks for a line in the log.
    pub(crate) fn log(
        &mut self,
        level: Level,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) {
        self.list.push(Action::Log(LogLine {
            level,
            subject: subject.into(),
            text: text.into(),
        }));
    }
}
