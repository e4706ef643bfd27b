//! A server, written down: it goes along with the client that has it.

use std::fmt;

use super::{
    BadFrame, Pairs,
    field::{Fields, Writer},
};
use crate::{Address, Endpoint};

/// The server of a client in session mode, between two requests: all that is known of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// As the console and the log show it.
    pub id: u64,
    /// Where it is, for cancel requests.
    pub endpoint: Endpoint,
    /// Our end of the connection.
    pub local: Address,
    /// Its end.
    pub remote: Address,
    /// Its process id; 0 if it has not said.
    pub key_pid: u32,
    /// The secret that it gave for cancel requests.
    pub key_secret: Vec<u8>,
    /// How long ago it was opened, in microseconds.
    pub age: u64,
    /// The values of its reported parameters.
    pub tracked: Pairs,
    /// `server_reset_query` is to be run before it is lent to another client.
    pub needs_reset: bool,
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
        // Its cancel key is a secret.
        f.debug_struct("ServerRecord")
            .field("id", &self.id)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
