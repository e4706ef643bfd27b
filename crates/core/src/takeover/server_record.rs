//! The state of a server that is handed over with its client.

use std::fmt;

use super::{
    BadFrame, Pairs, PinRecord, StatementRecord,
    field::{Fields, Writer},
    tls_record,
};
use crate::{Address, Endpoint, TlsFacts};

/// The state of a server that a client keeps, between two requests.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// The id in the console and the log.
    pub id: u64,
    /// The server's address, for cancel requests.
    pub endpoint: Endpoint,
    /// The local end of the connection.
    pub local: Address,
    /// The server's end of the connection.
    pub remote: Address,
    /// The pid of the server's cancel key; 0 if the server has sent none.
    pub key_pid: u32,
    /// The secret of the server's cancel key.
    pub key_secret: Vec<u8>,
    /// How long ago the connection was opened, in microseconds.
    pub age: u64,
    /// The values of the reported parameters.
    pub tracked: Pairs,
    /// Whether `server_reset_query` is to be run before the server is lent to another client.
    pub needs_reset: bool,
    /// The parameters that the pool's servers report at login: ParameterStatus messages of those that are not tracked, and
    /// the values of the tracked ones.
    pub at_login: Option<(Vec<u8>, Pairs)>,
    /// The facts about the server's TLS connection that the console shows.
    pub tls: Option<TlsFacts>,
    /// The statements that pgweir has prepared on the server, the least recently used one first.
    pub statements: Vec<StatementRecord>,
    /// Why the client is pinned to the server; `None` in session mode.
    pub pinned: Option<Box<PinRecord>>,
}

mod tag {
    pub(super) const ID: u8 = 1;
    pub(super) const HOST: u8 = 2;
    pub(super) const PORT: u8 = 3;
    pub(super) const PATH: u8 = 4;
    pub(super) const LOCAL: u8 = 5;
    pub(super) const REMOTE: u8 = 6;
    pub(super) const KEY_PID: u8 = 7;
    pub(super) const KEY_SECRET: u8 = 8;
    pub(super) const AGE: u8 = 9;
    pub(super) const TRACKED: u8 = 10;
    pub(super) const NEEDS_RESET: u8 = 11;
    pub(super) const STATEMENT: u8 = 12;
    pub(super) const PINNED: u8 = 13;
    pub(super) const AT_LOGIN_UNTRACKED: u8 = 14;
    pub(super) const AT_LOGIN_TRACKED: u8 = 15;
    pub(super) const TLS: u8 = 16;
}

impl ServerRecord {
    pub(super) fn write(&self, to: &mut Writer) {
        match &self.endpoint {
            Endpoint::Unix(path) => to.bytes(tag::PATH, path.as_bytes()),
            Endpoint::Tcp { host, port } => to
                .bytes(tag::HOST, host.as_bytes())
                .number(tag::PORT, (*port).into()),
        };
        to.number(tag::ID, self.id)
            .address(tag::LOCAL, self.local)
            .address(tag::REMOTE, self.remote)
            .number(tag::KEY_PID, self.key_pid.into())
            .bytes(tag::KEY_SECRET, &self.key_secret)
            .number(tag::AGE, self.age)
            .pairs(tag::TRACKED, &self.tracked)
            .flag(tag::NEEDS_RESET, self.needs_reset);
        if let Some((untracked, tracked)) = &self.at_login {
            to.bytes(tag::AT_LOGIN_UNTRACKED, untracked)
                .pairs(tag::AT_LOGIN_TRACKED, tracked);
        }
        if let Some(tls) = &self.tls {
            to.nested(tag::TLS, |to| tls_record::write(tls, to));
        }
        for statement in &self.statements {
            to.nested(tag::STATEMENT, |to| statement.write(to));
        }
        if let Some(pinned) = &self.pinned {
            to.nested(tag::PINNED, |to| pinned.write(to));
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let (mut path, mut host, mut port) = (None, None, None);
        let mut record = Self {
            id: 0,
            endpoint: Endpoint::Unix(String::new()),
            local: Address::Unix,
            remote: Address::Unix,
            key_pid: 0,
            key_secret: Vec::new(),
            age: 0,
            tracked: Pairs::new(),
            needs_reset: false,
            at_login: None,
            tls: None,
            statements: Vec::new(),
            pinned: None,
        };
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::ID => record.id = field.number()?,
                tag::HOST => host = Some(field.text()?),
                tag::PORT => port = Some(field.number()?),
                tag::PATH => path = Some(field.text()?),
                tag::LOCAL => record.local = field.address()?,
                tag::REMOTE => record.remote = field.address()?,
                tag::KEY_PID => record.key_pid = field.number()?,
                tag::KEY_SECRET => record.key_secret = field.value.to_vec(),
                tag::AGE => record.age = field.number()?,
                tag::TRACKED => record.tracked = field.pairs()?,
                tag::NEEDS_RESET => record.needs_reset = field.flag()?,
                tag::AT_LOGIN_UNTRACKED => {
                    record.at_login.get_or_insert_default().0 = field.value.to_vec();
                }
                tag::AT_LOGIN_TRACKED => {
                    record.at_login.get_or_insert_default().1 = field.pairs()?;
                }
                tag::TLS => record.tls = Some(tls_record::read(field.value)?),
                tag::STATEMENT => {
                    let statement = StatementRecord::read(field.value)?;
                    record.statements.push(statement);
                }
                tag::PINNED => record.pinned = Some(Box::new(PinRecord::read(field.value)?)),
                _ => field.unknown()?,
            }
        }
        record.endpoint = match (path, host, port) {
            (Some(path), None, None) => Endpoint::Unix(path),
            (None, Some(host), Some(port)) => Endpoint::Tcp { host, port },
            _ => return Err(BadFrame::Missing(tag::PATH)),
        };
        Ok(record)
    }
}

impl fmt::Debug for ServerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The cancel key is a secret.
        f.debug_struct("ServerRecord")
            .field("id", &self.id)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
