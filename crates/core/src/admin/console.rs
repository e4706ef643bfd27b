//! A client that talks to the console.

use pgweir_wire::{HEADER_LEN, MessageWriter, Severity, sqlstate, tag::frontend};

use super::{
    command::{Command, Right, Show, Source},
    orders::Awaiting,
    rows, show,
    tour::{Collection, Errand, KnownNames},
};
use crate::{
    Action, Actions, Control, Level, ReadMode, Time, Token,
    fault::Fault,
    frontend::{Client, ClientDuty},
    inbox::Inbox,
    mail::Note,
    worker::Worker,
};

/// The longest command.
const COMMAND_MAX: usize = 64 * 1024;

/// A client's console.
#[derive(Debug)]
pub struct Console {
    is_admin: bool,
    inbox: Inbox,
    /// A command is being carried out; the next one waits.
    pub(super) busy: bool,
    /// What its command waits for.
    pub(super) awaits: Option<Awaiting>,
    /// What it is to be shown, once the control thread has answered.
    wants: Option<Show>,
    /// What the command that the control thread works on is answered with.
    tag: String,
    /// An error in the extended protocol: all up to Sync is skipped.
    skipping: bool,
}

impl Console {
    /// A console with all rights, or with those to look.
    #[must_use]
    pub fn new(is_admin: bool) -> Self {
        Self {
            is_admin,
            inbox: Inbox::default(),
            busy: false,
            awaits: None,
            wants: None,
            tag: String::new(),
            skipping: false,
        }
    }

    fn take_message(&mut self) -> Result<Option<(u8, Vec<u8>)>, Fault> {
        let message = self.inbox.take(COMMAND_MAX)?;
        Ok(message.map(|(header, bytes)| (header.tag, bytes[HEADER_LEN..].to_vec())))
    }
}

/// Appends the parameters that a console client is told at login.
pub(crate) fn welcome(out: &mut Vec<u8>) {
    let parameters = [
        (
            "server_version",
            concat!(env!("CARGO_PKG_VERSION"), "/pgweir"),
        ),
        ("client_encoding", "UTF8"),
        ("server_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", "GMT"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
    ];
    for (name, value) in parameters {
        MessageWriter::new(out).parameter_status(name.as_bytes(), value.as_bytes());
    }
}

impl Worker {
    pub(crate) fn console_bytes(
        &mut self,
        conn: Token,
        bytes: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(console) = self.console(conn) {
            console.inbox.push(bytes);
        }
        self.console_steps(conn, now, out);
    }

    /// A long answer has been taken by the client: go on.
    pub(crate) fn console_drained(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if self.console(conn).is_some_and(|console| !console.busy) {
            self.console_steps(conn, now, out);
        }
    }

    pub(super) fn console(&mut self, conn: Token) -> Option<&mut Console> {
        match self.table.client(conn) {
            Some(Client {
                duty: ClientDuty::Console(console),
                ..
            }) => Some(console),
            _ => None,
        }
    }

    fn console_steps(&mut self, conn: Token, now: Time, out: &mut Actions) {
        loop {
            let is_blocked = self.table.client(conn).is_some_and(|client| client.blocked);
            let Some(console) = self.console(conn) else {
                return;
            };
            if console.busy || is_blocked {
                return out.read(conn, ReadMode::Hold);
            }
            match console.take_message() {
                Ok(Some((tag, body))) => self.console_message(conn, tag, &body, now, out),
                Ok(None) => return out.read(conn, ReadMode::Deliver),
                Err(fault) => return self.refuse(conn, &fault, now, out),
            }
        }
    }

    fn console_message(&mut self, conn: Token, tag: u8, body: &[u8], now: Time, out: &mut Actions) {
        let Some(console) = self.console(conn) else {
            return;
        };
        match tag {
            frontend::TERMINATE => self.dismiss(conn, "client close request", now, out),
            frontend::SYNC => {
                console.skipping = false;
                ready(conn, out);
            }
            _ if console.skipping => {}
            frontend::QUERY => match std::str::from_utf8(body)
                .ok()
                .and_then(|text| text.strip_suffix('\0'))
            {
                Some(text) if !text.contains('\0') => self.console_command(conn, text, now, out),
                _ => self.refuse(conn, &Fault::Malformed(tag), now, out),
            },
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                console.skipping = true;
                let fault = Fault::ConsoleExtended;
                out.send_made(conn, |bytes| fault.write(Severity::Error, bytes));
            }
            frontend::FLUSH => {}
            other => self.refuse(conn, &Fault::UnexpectedMessage(other), now, out),
        }
    }

    fn console_command(&mut self, conn: Token, text: &str, now: Time, out: &mut Actions) {
        let counted = &mut self.console_stats.now;
        counted.query_count += 1;
        counted.xact_count += 1;
        let is_admin = self.console(conn).is_some_and(|console| console.is_admin);
        let command = match Command::parse(text) {
            Ok(command) if command.right() == Right::Look || is_admin => command,
            Ok(_) => return self.console_fault(conn, &Fault::CommandNotAllowed, out),
            Err(fault) => return self.console_fault(conn, &fault, out),
        };
        match command {
            Command::Empty => {
                out.send_made(conn, |bytes| {
                    MessageWriter::new(bytes)
                        .empty_query_response()
                        .ready_for_query(b'I');
                });
            }
            Command::Show(Show::Help) => {
                out.send_made(conn, |bytes| {
                    let mut writer = MessageWriter::new(bytes);
                    let (code, detail) = (sqlstate::SUCCESSFUL_COMPLETION, Show::help());
                    writer.notice_with_detail(code, "Console usage", &detail);
                    writer.command_complete("SHOW").ready_for_query(b'I');
                });
            }
            Command::Parameter(name, value) => answer_one(conn, name, value, out),
            Command::Show(show) => self.console_show(conn, show, now, out),
            Command::SetParameter => out.send_made(conn, |bytes| {
                let mut writer = MessageWriter::new(bytes);
                writer.notice(Severity::Notice, "00000", "SET ignored");
                writer.command_complete("SET").ready_for_query(b'I');
            }),
            command => self.console_order(conn, command, now, out),
        }
    }

    fn console_show(&mut self, conn: Token, show: Show, now: Time, out: &mut Actions) {
        let collection = Collection::new(show, now);
        match show.source() {
            Source::Here => {
                let (columns, rows) = show::table(self, collection, now);
                out.send_made(conn, |bytes| {
                    rows::write(&columns, &rows, bytes);
                    MessageWriter::new(bytes).ready_for_query(b'I');
                });
            }
            Source::Workers => {
                self.begin_tour(conn, Errand::Show(Box::new(collection)), now, out);
            }
            Source::Names => {
                if let Some(console) = self.console(conn) {
                    console.busy = true;
                    console.wants = Some(show);
                }
                let worker = self.id;
                let asked = Control::Names {
                    worker,
                    console: conn,
                };
                out.list.push(Action::Control(asked));
            }
        }
    }

    /// The host names that a SHOW of this console is about.
    pub(crate) fn console_names(
        &mut self,
        conn: Token,
        names: KnownNames,
        now: Time,
        out: &mut Actions,
    ) {
        let wants = self.console(conn).and_then(|console| console.wants.take());
        if let Some(show) = wants {
            let mut collection = Collection::new(show, now);
            collection.names = names;
            self.begin_tour(conn, Errand::Show(Box::new(collection)), now, out);
        }
    }

    pub(crate) fn console_busy(&mut self, conn: Token, busy: bool) {
        if let Some(console) = self.console(conn) {
            console.busy = busy;
        }
    }

    /// From here on until [`Worker::configured`], the control thread works for this console.
    pub(super) fn await_control(&mut self, conn: Token, tag: String) {
        if let Some(console) = self.console(conn) {
            console.busy = true;
            console.tag = tag;
        }
    }

    /// The outcome of a RELOAD or SET that this console asked for. It is answered when all workers
    /// have read what was mailed to them before.
    pub(crate) fn configured(
        &mut self,
        conn: Token,
        outcome: Result<Option<Note>, Fault>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(console) = self.console(conn) else {
            return;
        };
        let tag = std::mem::take(&mut console.tag);
        match outcome {
            Ok(note) => {
                if let Some(Note { text, detail }) = note {
                    out.send_made(conn, |bytes| {
                        let code = sqlstate::SUCCESSFUL_COMPLETION;
                        MessageWriter::new(bytes).notice_with_detail(code, text, &detail);
                    });
                }
                self.begin_tour(conn, Errand::Settle(tag), now, out);
            }
            Err(fault) => self.answer(conn, Err(&fault), now, out),
        }
    }

    /// The answer to a command that took its time.
    pub(crate) fn answer(
        &mut self,
        conn: Token,
        outcome: Result<&str, &Fault>,
        now: Time,
        out: &mut Actions,
    ) {
        if self.console(conn).is_none() {
            return;
        }
        self.console_busy(conn, false);
        match outcome {
            Ok(tag) => answer_done(conn, tag, out),
            Err(fault) => self.console_fault(conn, fault, out),
        }
        self.console_steps(conn, now, out);
    }

    pub(super) fn console_fault(&self, conn: Token, fault: &Fault, out: &mut Actions) {
        out.log(Level::Error, "", fault.to_string());
        out.send_made(conn, |bytes| {
            fault.write(Severity::Error, bytes);
            MessageWriter::new(bytes).ready_for_query(b'I');
        });
    }

    /// A table for a console, at the end of its command.
    pub(crate) fn answer_table(
        &mut self,
        conn: Token,
        columns: &[rows::Column],
        rows: &[Vec<rows::Cell>],
        now: Time,
        out: &mut Actions,
    ) {
        if self.console(conn).is_none() {
            return;
        }
        self.console_busy(conn, false);
        out.send_made(conn, |bytes| {
            rows::write(columns, rows, bytes);
            MessageWriter::new(bytes).ready_for_query(b'I');
        });
        self.console_steps(conn, now, out);
    }
}

fn ready(conn: Token, out: &mut Actions) {
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes).ready_for_query(b'I');
    });
}

pub(super) fn answer_done(conn: Token, tag: &str, out: &mut Actions) {
    out.send_made(conn, |bytes| {
        MessageWriter::new(bytes)
            .command_complete(tag)
            .ready_for_query(b'I');
    });
}

fn answer_one(conn: Token, column: &'static str, value: &str, out: &mut Actions) {
    out.send_made(conn, |bytes| {
        rows::write(&[(column, rows::Kind::Text)], &[vec![value.into()]], bytes);
        MessageWriter::new(bytes).ready_for_query(b'I');
    });
}
