//! A client of the console, for requests over HTTP and commands of the fleet. It is one end of a socket pair; a
//! worker serves the other end as it serves any client. So requests and commands use the console's own logins, rights
//! and commands.

use std::{
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    sync::Arc,
};

use pgweir_auth::userlist::Secret;
use pgweir_core::{
    Directory, TlsFacts, WorkerId,
    backend::{Credentials, LoginError, Progress, ServerLogin},
    session::TrackedNames,
};
use pgweir_wire::{
    BadLength, Body, HEADER_LEN, Header, Malformed, MessageWriter, Report, tag::backend,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use zeroize::Zeroizing;

use crate::net::{AcceptedClient, Load, Mailboxes};

/// The database of the console, and the user that needs no password under pgweir's own user id.
pub(crate) const CONSOLE: &str = "pgbouncer";
/// The largest size of an answer, in bytes.
const REPLY_MAX: usize = 64 * 1024 * 1024;
const READ_BYTES: usize = 32 * 1024;

/// Opens links. Has the parts of the process that this needs.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleConnector {
    pub(crate) directory: Arc<Directory>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) load: Load,
}

/// The address of the sender of a request.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Tcp {
        remote: SocketAddr,
        local: SocketAddr,
        tls: Option<TlsFacts>,
    },
    Unix {
        uid: Option<u32>,
    },
}

impl Origin {
    /// Returns a text that differs where the rules for logins may differ: by address, TLS, or certificate.
    pub(crate) fn digest(&self) -> String {
        match self {
            Self::Tcp { remote, tls, .. } => {
                let peer = tls.as_ref().map(|tls| &tls.peer);
                format!("tcp {} {peer:?}", remote.ip())
            }
            Self::Unix { uid } => format!("unix {uid:?}"),
        }
    }
}

/// A connection to the console.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    inbox: Vec<u8>,
}

/// The type of a column, as far as JSON distinguishes types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Text,
    Number,
}

/// The answer to a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) columns: Vec<(String, ColumnType)>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
    pub(crate) notices: Vec<String>,
    pub(crate) error: Option<ConsoleError>,
}

/// An error that the console has answered with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConsoleError {
    pub(crate) code: String,
    /// The message, and the detail if there is one.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// The reason why a link can't be opened, or gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The console refuses the login.
    #[error("{0}")]
    Refused(ConsoleError),
    /// The console refuses the command.
    #[error("{0}")]
    Command(ConsoleError),
    /// The login failed in another way.
    #[error("the login to the console failed: {0}")]
    Login(LoginError),
    /// The console did not answer in time.
    #[error("pgweir's workers did not answer in time")]
    Silent,
    /// The connection has ended.
    #[error("the connection to the console has ended")]
    Ended,
    /// The system has refused a socket.
    #[error("cannot connect to the console: {0}")]
    Io(#[from] io::Error),
    /// The answer is longer than [`REPLY_MAX`].
    #[error("the answer is longer than 64 MB")]
    TooLong,
    /// The answer is malformed.
    #[error("the console's answer is malformed")]
    Malformed,
}

impl From<Malformed> for LinkError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<BadLength> for LinkError {
    fn from(_: BadLength) -> Self {
        Self::Malformed
    }
}

impl ConsoleConnector {
    /// Opens a link with all rights. `application_name` names the user of the link.
    pub(crate) async fn open_own(&self, application_name: &str) -> Result<Link, LinkError> {
        let (ours, theirs) = pair()?;
        let client = AcceptedClient::for_itself(theirs, self.port());
        self.log_in(ours, client, CONSOLE, None, application_name)
            .await
    }

    /// Opens a link as this user, whose password is checked as if the login came from `origin`.
    pub(crate) async fn open_as(
        &self,
        user: &str,
        password: Zeroizing<String>,
        origin: &Origin,
    ) -> Result<Link, LinkError> {
        let (ours, theirs) = pair()?;
        let port = self.port();
        let client = match origin.clone() {
            Origin::Tcp { remote, local, tls } => {
                AcceptedClient::for_tcp(theirs, (remote, local), port, tls)
            }
            Origin::Unix { uid } => AcceptedClient::for_unix(theirs, uid, port),
        };
        self.log_in(ours, client, user, Some(Secret::Plain(password)), "http")
            .await
    }

    fn port(&self) -> u16 {
        self.directory.snapshot().config.settings.listen_port
    }

    async fn log_in(
        &self,
        ours: StdStream,
        client: AcceptedClient,
        user: &str,
        secret: Option<Secret>,
        application_name: &str,
    ) -> Result<Link, LinkError> {
        self.load.give(client, WorkerId(0), &self.mailboxes);
        let mut stream = UnixStream::from_std(ours)?;
        let names = TrackedNames::new(&[]);
        let application_name = (b"application_name".to_vec(), application_name.into());
        let credentials = Credentials {
            user: user.to_owned(),
            database: CONSOLE.to_owned(),
            secret: secret.map(Arc::new),
            keys: None,
            parameters: vec![application_name],
            connect_query: None,
            asks_connections: false,
        };
        let mut login = ServerLogin::new(credentials, &names);
        let mut out = Vec::new();
        login.start(rand::random(), &mut out);
        let mut bytes = [0; 4096];
        loop {
            stream.write_all(&out).await?;
            out.clear();
            while let Some(progress) = login.step(&names, &mut out).map_err(login_error)? {
                match progress {
                    Progress::Derive(job) => {
                        login.derived(&job.run(), &mut out).map_err(login_error)?;
                    }
                    Progress::Ready { .. } => {
                        let inbox = Vec::new();
                        return Ok(Link { stream, inbox });
                    }
                    Progress::Wait | Progress::Send | Progress::QueryFailed(..) => {}
                }
            }
            if out.is_empty() {
                match stream.read(&mut bytes).await? {
                    0 => return Err(LinkError::Ended),
                    len => login.push(&bytes[..len]),
                }
            }
        }
    }
}

fn pair() -> io::Result<(StdStream, OwnedFd)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs.into()))
}

fn login_error(error: LoginError) -> LinkError {
    match error {
        LoginError::Refused(words) => LinkError::Refused(ConsoleError {
            code: words.code,
            message: with_detail(words.message, words.detail),
            hint: words.hint,
        }),
        other => LinkError::Login(other),
    }
}

impl Link {
    /// Runs a command of the console, and returns its answer.
    ///
    /// # Errors
    /// The console refuses the command, or the link has ended.
    pub(crate) async fn run(&mut self, command: &str) -> Result<Reply, LinkError> {
        let mut out = Vec::new();
        MessageWriter::new(&mut out).query(command.as_bytes());
        self.stream.write_all(&out).await?;
        let mut reply = Reply::default();
        let mut received = 0;
        loop {
            let mut at = 0;
            while let Some(header) = Header::parse(&self.inbox[at..])? {
                let end = at + header.message_len();
                let Some(message) = self.inbox.get(at..end) else {
                    break;
                };
                at = end;
                if reply.add(header.tag, &message[HEADER_LEN..])? {
                    self.inbox.drain(..at);
                    return reply.outcome();
                }
            }
            self.inbox.drain(..at);
            self.inbox.reserve(READ_BYTES);
            let len = self.stream.read_buf(&mut self.inbox).await?;
            received += len;
            match len {
                0 => return Err(LinkError::Ended),
                _ if received > REPLY_MAX => return Err(LinkError::TooLong),
                _ => {}
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Terminate is sent so that the log has no unexpected end of the connection. If it can't be written, the worker
        // notices the end all the same.
        let mut out = Vec::new();
        MessageWriter::new(&mut out).terminate();
        let _ = self.stream.try_write(&out);
    }
}

impl Reply {
    /// Adds a message of the console. Returns whether it was the last one.
    fn add(&mut self, tag: u8, body: &[u8]) -> Result<bool, Malformed> {
        match tag {
            backend::ROW_DESCRIPTION => self.columns = columns(Body::new(body))?,
            backend::DATA_ROW => self.rows.push(row(Body::new(body))?),
            backend::NOTICE_RESPONSE => {
                let report = Report::parse(body)?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let notice = with_detail(text(report.message), report.detail.map(text));
                self.notices.push(notice);
            }
            backend::ERROR_RESPONSE => {
                let report = Report::parse(body)?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.error = Some(ConsoleError {
                    code: text(report.code),
                    message: with_detail(text(report.message), report.detail.map(text)),
                    hint: report.hint.map(text),
                });
            }
            backend::READY_FOR_QUERY => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    fn outcome(mut self) -> Result<Self, LinkError> {
        match self.error.take() {
            Some(error) => Err(LinkError::Command(error)),
            None => Ok(self),
        }
    }
}

fn with_detail(mut message: String, detail: Option<String>) -> String {
    if let Some(detail) = detail {
        message.push_str(": ");
        message.push_str(&detail);
    }
    message
}

fn columns(mut body: Body<'_>) -> Result<Vec<(String, ColumnType)>, Malformed> {
    // The OIDs of bigint, integer and numeric.
    const NUMBERS: [i32; 3] = [20, 23, 1700];
    let count = short(&mut body)?;
    let column = |_| {
        let name = String::from_utf8_lossy(body.cstr()?).into_owned();
        body.bytes(6)?;
        let is_number = NUMBERS.contains(&body.i32()?);
        body.bytes(8)?;
        let kind = match is_number {
            true => ColumnType::Number,
            false => ColumnType::Text,
        };
        Ok((name, kind))
    };
    (0..count).map(column).collect()
}

fn row(mut body: Body<'_>) -> Result<Vec<Option<String>>, Malformed> {
    let count = short(&mut body)?;
    let value = |_| {
        let len = body.i32()?;
        match usize::try_from(len) {
            Err(_) => Ok(None),
            Ok(len) => Ok(Some(String::from_utf8_lossy(body.bytes(len)?).into_owned())),
        }
    };
    (0..count).map(value).collect()
}

fn short(body: &mut Body<'_>) -> Result<u16, Malformed> {
    let bytes = body.bytes(2)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Reply {
        let mut reply = Reply::default();
        let mut rest = bytes;
        while let Some(header) = Header::parse(rest).expect("a header") {
            let (message, after) = rest.split_at(header.message_len());
            let is_last = reply.add(header.tag, &message[HEADER_LEN..]);
            assert_eq!(is_last, Ok(after.is_empty()));
            rest = after;
        }
        reply
    }

    #[test]
    fn a_table_is_read() {
        let mut bytes = Vec::new();
        let mut writer = MessageWriter::new(&mut bytes);
        writer.row_description([("name", 25, -1), ("count", 20, 8)].into_iter());
        writer.data_row([Some(&b"a"[..]), None].into_iter());
        writer.data_row([None, Some(&b"7"[..])].into_iter());
        writer.command_complete("SHOW").ready_for_query(b'I');
        let reply = read(&bytes).outcome().expect("no error");
        let columns = [("name", ColumnType::Text), ("count", ColumnType::Number)];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
        assert_eq!(reply.columns, columns);
        assert_eq!(reply.rows[0], [Some("a".to_owned()), None]);
        assert_eq!(reply.rows[1], [None, Some("7".to_owned())]);
    }

    #[test]
    fn an_error_is_the_outcome() {
        let mut bytes = Vec::new();
        let mut writer = MessageWriter::new(&mut bytes);
        writer.error_by("22023", "no such database: x", "pause");
        writer.ready_for_query(b'I');
        let error = read(&bytes).outcome().expect_err("an error");
        assert_eq!(error.to_string(), "no such database: x");
    }
}
