//! One client connection to the console: reads its messages one after the other, and gives the worker the next
//! step.

use pgweir_wire::{HEADER_LEN, MessageWriter, Severity, sqlstate, tag::frontend};

use super::{
    command::{Command, Right, Show},
    rows::{Kind, write_table},
};
use crate::{
    base::{fault::Fault, inbox::Inbox},
    shared::operator::{Halt, Operator},
};

/// The longest command, in bytes.
const COMMAND_MAX: usize = 64 * 1024;

/// The event that a console command waits for. A command about one database has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaiting {
    /// PAUSE: no server is left.
    Paused(Option<String>),
    /// WAIT_CLOSE: no outdated server is left.
    Closed(Option<String>),
    /// SUSPEND: all connections are quiet.
    Suspended,
}

impl Awaiting {
    pub(crate) fn database(&self) -> Option<&str> {
        match self {
            Self::Paused(database) | Self::Closed(database) => database.as_deref(),
            Self::Suspended => None,
        }
    }

    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Paused(_) => "PAUSE",
            Self::Closed(_) => "WAIT_CLOSE",
            Self::Suspended => "SUSPEND",
        }
    }

    /// Returns whether the order that the command waits for was taken back.
    pub(crate) fn is_void(&self, operator: &Operator) -> bool {
        match self {
            Self::Paused(None) => operator.halt() != Halt::Paused,
            Self::Paused(Some(database)) => !operator.is_database_paused(database),
            Self::Closed(_) => false,
            Self::Suspended => operator.halt() != Halt::Suspended,
        }
    }
}

/// A client's console.
#[derive(Debug)]
pub struct Console {
    is_admin: bool,
    inbox: Inbox,
    /// Whether a command is being carried out; the next one waits.
    is_busy: bool,
    /// The event that the command waits for.
    awaits: Option<Awaiting>,
    /// The table that the client gets once the control thread has named the hosts.
    wanted: Option<Show>,
    /// The command tag of the answer, while the control thread carries the command out.
    tag: String,
    /// Whether messages are skipped up to the next Sync, after an error in the extended protocol.
    is_skipping: bool,
}

/// The next step of a console client's conversation, which the worker carries out.
#[derive(Debug)]
pub(crate) enum Step {
    /// Read on: the next message has not arrived completely.
    Read,
    /// Read nothing: a command is being carried out.
    Hold,
    /// Do nothing: the message was no command.
    Pass,
    /// Do nothing: the command is answered.
    Answered,
    /// Log why the command failed; the client has received the error.
    Failed(Fault),
    /// Close the connection: the client sent Terminate.
    Leave,
    /// Send the client this error and close its connection.
    Refuse(Fault),
    /// Show a table.
    Show(Show),
    /// Carry out a command.
    Run(Command),
}

impl Step {
    /// Returns whether the client sent a command.
    pub(crate) fn is_of_command(&self) -> bool {
        matches!(
            self,
            Self::Answered | Self::Failed(_) | Self::Show(_) | Self::Run(_)
        )
    }
}

impl Console {
    /// Returns the bytes of messages that wait for their turn.
    pub(crate) fn buffered(&self) -> usize {
        self.inbox.capacity()
    }

    /// Creates a console for an administrator, or for a user who may only use SHOW.
    #[must_use]
    pub fn new(is_admin: bool) -> Self {
        Self {
            is_admin,
            inbox: Inbox::default(),
            is_busy: false,
            awaits: None,
            wanted: None,
            tag: String::new(),
            is_skipping: false,
        }
    }

    /// Stores bytes that the client sent.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// Returns whether a command is being carried out.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Ends the command: its answer was sent, and the next one may come.
    pub(crate) fn finish(&mut self) {
        self.is_busy = false;
    }

    /// Begins a command that is not answered at once: the next one waits until [`Console::finish`].
    pub(crate) fn begin(&mut self) {
        self.is_busy = true;
    }

    /// Sets the event that the command waits for.
    pub(crate) fn wait_for(&mut self, what: Awaiting) {
        self.awaits = Some(what);
    }

    /// Returns the event that the command waits for.
    pub(crate) fn awaits(&self) -> Option<&Awaiting> {
        self.awaits.as_ref()
    }

    /// Ends the wait, since the event has happened.
    pub(crate) fn stop_waiting(&mut self) {
        self.awaits = None;
    }

    /// Waits for the control thread, which looks up the host names for this table.
    pub(crate) fn want_names(&mut self, show: Show) {
        self.is_busy = true;
        self.wanted = Some(show);
    }

    /// Takes the table for which the control thread has looked up the host names.
    pub(crate) fn take_wanted(&mut self) -> Option<Show> {
        self.wanted.take()
    }

    /// Waits for the control thread, which carries out the command with this tag.
    pub(crate) fn await_control(&mut self, tag: String) {
        self.is_busy = true;
        self.tag = tag;
    }

    /// Takes the tag of the command that the control thread has carried out.
    pub(crate) fn take_tag(&mut self) -> String {
        std::mem::take(&mut self.tag)
    }

    /// Reads the next message. Replies that need no worker are appended to `reply`.
    pub(crate) fn next(&mut self, reply: &mut Vec<u8>) -> Step {
        if self.is_busy {
            return Step::Hold;
        }
        match self.inbox.take(COMMAND_MAX) {
            Ok(Some((header, bytes))) => {
                let body = &bytes[HEADER_LEN..];
                read(
                    header.tag,
                    body,
                    self.is_admin,
                    &mut self.is_skipping,
                    reply,
                )
            }
            Ok(None) => Step::Read,
            Err(bad) => Step::Refuse(bad.into()),
        }
    }
}

/// Handles one complete message.
fn read(tag: u8, body: &[u8], is_admin: bool, is_skipping: &mut bool, reply: &mut Vec<u8>) -> Step {
    match tag {
        frontend::TERMINATE => Step::Leave,
        frontend::SYNC => {
            *is_skipping = false;
            write_ready(reply);
            Step::Pass
        }
        _ if *is_skipping => Step::Pass,
        frontend::QUERY => match std::str::from_utf8(body)
            .ok()
            .and_then(|text| text.strip_suffix('\0'))
        {
            Some(text) if !text.contains('\0') => run(text, is_admin, reply),
            _ => Step::Refuse(Fault::Malformed(tag)),
        },
        frontend::PARSE
        | frontend::BIND
        | frontend::DESCRIBE
        | frontend::EXECUTE
        | frontend::CLOSE => {
            *is_skipping = true;
            Fault::ConsoleExtended.write(Severity::Error, reply);
            Step::Pass
        }
        frontend::FLUSH => Step::Pass,
        other => Step::Refuse(Fault::UnexpectedMessage(other)),
    }
}

fn run(text: &str, is_admin: bool, reply: &mut Vec<u8>) -> Step {
    let command = match Command::parse(text) {
        Ok(command) if command.right() == Right::Look || is_admin => command,
        Ok(_) => return failed(Fault::CommandNotAllowed, reply),
        Err(fault) => return failed(fault, reply),
    };
    match command {
        Command::Empty => {
            MessageWriter::new(reply).empty_query_response();
        }
        Command::Show(Show::Help) => {
            let mut writer = MessageWriter::new(reply);
            let (code, detail) = (sqlstate::SUCCESSFUL_COMPLETION, Show::help());
            writer.notice_with_detail(code, "Console usage", &detail);
            writer.command_complete("SHOW");
        }
        Command::Parameter(name, value) => {
            write_table(&[(name, Kind::Text)], &[vec![value.into()]], reply);
        }
        Command::SetParameter => {
            let mut writer = MessageWriter::new(reply);
            writer.notice(Severity::Notice, "00000", "SET ignored");
            writer.command_complete("SET");
        }
        Command::Show(show) => return Step::Show(show),
        command => return Step::Run(command),
    }
    write_ready(reply);
    Step::Answered
}

fn failed(fault: Fault, reply: &mut Vec<u8>) -> Step {
    write_fault(&fault, reply);
    Step::Failed(fault)
}

/// Appends an error and ReadyForQuery.
pub(crate) fn write_fault(fault: &Fault, out: &mut Vec<u8>) {
    fault.write(Severity::Error, out);
    write_ready(out);
}

/// Appends CommandComplete and ReadyForQuery.
pub(crate) fn write_done(tag: &str, out: &mut Vec<u8>) {
    MessageWriter::new(out).command_complete(tag);
    write_ready(out);
}

/// Appends ReadyForQuery.
pub(crate) fn write_ready(out: &mut Vec<u8>) {
    MessageWriter::new(out).ready_for_query(b'I');
}

/// Appends the parameters that a console client gets at login.
pub(crate) fn write_welcome(out: &mut Vec<u8>) {
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
