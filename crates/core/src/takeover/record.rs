//! The state of a client that is handed over between two messages.

use std::fmt;

use pgweir_auth::userlist::Secret;
use pgweir_wire::HEADER_LEN;
use zeroize::Zeroizing;

use super::{
    BadFrame, Pairs, ServerRecord, StatementRecord,
    field::{Field, Fields, Writer},
    tls_record,
};
use crate::{Address, TlsFacts, WorkerId, pool::PoolKey, shared::cancel::CancelKey};

/// The state of a client that is logged in and between two messages, without an outstanding reply.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientRecord {
    /// The id in the console and the log.
    pub id: u64,
    /// The database and user under which the client is counted.
    pub names: PoolKey,
    /// The client's address.
    pub remote: Address,
    /// The local address that the client connected to.
    pub local: Address,
    /// The local port that the client connected to.
    pub port: u16,
    /// Whether the client is connected by a Unix socket and runs under the same user id as this process.
    pub same_uid: bool,
    /// The client's process id on a Unix socket; 0 if it is not known.
    pub process: u32,
    /// The pid that the client was given.
    pub key_pid: u32,
    /// The secret of the client's cancel key.
    pub key_secret: Vec<u8>,
    /// How long ago the client connected, in microseconds.
    pub age: u64,
    /// Whether the login is complete. If not, the client waits for the first server of its pool to log in.
    pub ready_was_sent: bool,
    /// The reported parameters, with the values that the client was last sent.
    pub tracked: Pairs,
    /// The session, if it moves between servers.
    pub session: Option<SessionRecord>,
    /// The password for logins to the pool's servers, if a client or `auth_query` has provided it.
    pub server_password: Option<ServerPassword>,
    /// The prepared statements.
    pub statements: Vec<StatementRecord>,
    /// The definition of the unnamed statement.
    pub unnamed: Option<Vec<u8>>,
    /// Bytes that were read from the client and not passed on yet: whole messages, or the beginning of one.
    pub early: Vec<u8>,
    /// The part of the next message's header that has arrived.
    pub partial: Vec<u8>,
    /// SCRAM keys from a client's login, which logins to the pool's servers use.
    pub server_keys: Option<[[u8; 32]; 2]>,
    /// The client's server, in session mode or if the client is pinned; its descriptor is the second one.
    pub server: Option<ServerRecord>,
    /// The facts about the client's TLS connection that the console shows.
    pub tls: Option<TlsFacts>,
    /// The client's channels. The old process still receives their notifications ([`ListenNote`](super::ListenNote)).
    pub channels: Vec<Vec<u8>>,
}

/// A password for logins to servers.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ServerPassword {
    /// The password, or the md5 secret.
    pub text: Zeroizing<String>,
    /// Whether it is an md5 secret.
    pub is_md5: bool,
    /// Whether LDAP or PAM has checked it.
    pub is_checked: bool,
}

/// The state of a session.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SessionRecord {
    /// The startup values, which RESET restores.
    pub base: Pairs,
    /// `base`, overridden by the session's own settings.
    pub wanted: Pairs,
    /// Startup parameters that have the requested values on servers anyway.
    pub implied: Pairs,
    /// The statements that SQL has prepared (PREPARE): names and texts.
    pub sql: Pairs,
    /// Whether the session may have sequence values.
    pub has_sequences: bool,
    /// Whether no server has accepted `base` yet.
    pub is_unproven: bool,
}

mod tag {
    pub(super) const ID: u8 = 1;
    pub(super) const DATABASE: u8 = 2;
    pub(super) const USER: u8 = 3;
    pub(super) const REMOTE: u8 = 4;
    pub(super) const LOCAL: u8 = 5;
    pub(super) const PORT: u8 = 6;
    pub(super) const SAME_UID: u8 = 7;
    pub(super) const PROCESS: u8 = 8;
    pub(super) const KEY_PID: u8 = 9;
    pub(super) const KEY_SECRET: u8 = 10;
    pub(super) const AGE: u8 = 11;
    pub(super) const IS_WELCOME: u8 = 12;
    pub(super) const TRACKED: u8 = 13;
    pub(super) const SESSION: u8 = 14;
    pub(super) const STATEMENT: u8 = 15;
    pub(super) const UNNAMED: u8 = 16;
    pub(super) const SERVER_PASSWORD: u8 = 22;
    pub(super) const EARLY: u8 = 17;
    pub(super) const CLIENT_KEY: u8 = 18;
    pub(super) const SERVER_KEY: u8 = 19;
    pub(super) const PARTIAL: u8 = 20;
    pub(super) const SERVER: u8 = 21;
    pub(super) const CHANNEL: u8 = 23;
    pub(super) const TLS: u8 = 24;

    pub(super) const TEXT: u8 = 1;
    pub(super) const IS_MD5: u8 = 2;
    pub(super) const IS_CHECKED: u8 = 3;

    pub(super) const BASE: u8 = 1;
    pub(super) const WANTED: u8 = 2;
    pub(super) const SQL: u8 = 3;
    pub(super) const HAS_SEQUENCES: u8 = 4;
    pub(super) const IS_UNPROVEN: u8 = 5;
    /// The tag says that a reader may skip this field: without the field, the values hold as long as the servers stay.
    pub(super) const IMPLIED: u8 = 0x86;
}

/// Secrets of cancel keys have 4 to 32 bytes.
const SECRET_MAX: usize = 32;

impl ClientRecord {
    /// The client's cancel key.
    #[must_use]
    pub fn cancel_key(&self) -> CancelKey {
        CancelKey {
            pid: self.key_pid,
            secret: self.key_secret.as_slice().into(),
        }
    }

    /// Returns the worker that takes the client back if it can't be handed over. `left`: the worker that it has left,
    /// which still receives its notifications if it listens. Other clients go to the worker that their pid names.
    #[must_use]
    pub fn returns_to(&self, left: WorkerId, workers: usize) -> WorkerId {
        match self.channels.is_empty() {
            true => self.cancel_key().worker(workers),
            false => left,
        }
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.number(tag::ID, self.id)
            .bytes(tag::DATABASE, self.names.database.as_bytes())
            .bytes(tag::USER, self.names.user.as_bytes())
            .address(tag::REMOTE, self.remote)
            .address(tag::LOCAL, self.local)
            .number(tag::PORT, self.port.into())
            .flag(tag::SAME_UID, self.same_uid)
            .number(tag::PROCESS, self.process.into())
            .number(tag::KEY_PID, self.key_pid.into())
            .bytes(tag::KEY_SECRET, &self.key_secret)
            .number(tag::AGE, self.age)
            .flag(tag::IS_WELCOME, self.ready_was_sent)
            .pairs(tag::TRACKED, &self.tracked)
            .bytes(tag::EARLY, &self.early)
            .bytes(tag::PARTIAL, &self.partial);
        if let Some(password) = &self.server_password {
            to.nested(tag::SERVER_PASSWORD, |to| password.write(to));
        }
        if let Some(session) = &self.session {
            to.nested(tag::SESSION, |to| session.write(to));
        }
        if let Some([client, server]) = &self.server_keys {
            to.bytes(tag::CLIENT_KEY, client)
                .bytes(tag::SERVER_KEY, server);
        }
        if let Some(server) = &self.server {
            to.nested(tag::SERVER, |to| server.write(to));
        }
        if let Some(unnamed) = &self.unnamed {
            to.bytes(tag::UNNAMED, unnamed);
        }
        if let Some(tls) = &self.tls {
            to.nested(tag::TLS, |to| tls_record::write(tls, to));
        }
        for statement in &self.statements {
            to.nested(tag::STATEMENT, |to| statement.write(to));
        }
        for channel in &self.channels {
            to.bytes(tag::CHANNEL, channel);
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut record = Self::default();
        // These fields are required. The others have default values.
        let mut missing = vec![tag::DATABASE, tag::USER, tag::KEY_PID, tag::KEY_SECRET];
        for field in Fields(bytes) {
            let field = field?;
            missing.retain(|&tag| tag != field.tag);
            record.take(field)?;
        }
        match missing.first() {
            Some(&tag) => Err(BadFrame::Missing(tag)),
            None => Ok(record),
        }
    }

    fn take(&mut self, field: Field<'_>) -> Result<(), BadFrame> {
        match field.tag {
            tag::ID => self.id = field.number()?,
            tag::DATABASE => self.names.database = field.text()?.into(),
            tag::USER => self.names.user = field.text()?.into(),
            tag::REMOTE => self.remote = field.address()?,
            tag::LOCAL => self.local = field.address()?,
            tag::PORT => self.port = field.number()?,
            tag::SAME_UID => self.same_uid = field.flag()?,
            tag::PROCESS => self.process = field.number()?,
            tag::KEY_PID => self.key_pid = field.number()?,
            tag::KEY_SECRET if !(4..=SECRET_MAX).contains(&field.value.len()) => {
                return Err(field.bad());
            }
            tag::KEY_SECRET => self.key_secret = field.value.to_vec(),
            tag::AGE => self.age = field.number()?,
            tag::IS_WELCOME => self.ready_was_sent = field.flag()?,
            tag::TRACKED => self.tracked = field.pairs()?,
            tag::SERVER_PASSWORD => {
                self.server_password = Some(ServerPassword::read(field.value)?);
            }
            tag::SESSION => self.session = Some(SessionRecord::read(field.value)?),
            tag::STATEMENT => self.statements.push(StatementRecord::read(field.value)?),
            tag::UNNAMED => self.unnamed = Some(field.value.to_vec()),
            tag::CLIENT_KEY => self.server_keys.get_or_insert_default()[0] = field.array()?,
            tag::SERVER_KEY => self.server_keys.get_or_insert_default()[1] = field.array()?,
            tag::PARTIAL if field.value.len() >= HEADER_LEN => return Err(field.bad()),
            tag::PARTIAL => self.partial = field.value.to_vec(),
            tag::SERVER => self.server = Some(ServerRecord::read(field.value)?),
            tag::TLS => self.tls = Some(tls_record::read(field.value)?),
            tag::CHANNEL => self.channels.push(field.value.to_vec()),
            tag::EARLY => self.early = field.value.to_vec(),
            _ => field.unknown()?,
        }
        Ok(())
    }
}

impl Default for ClientRecord {
    fn default() -> Self {
        Self {
            id: 0,
            names: PoolKey {
                database: "".into(),
                user: "".into(),
            },
            remote: Address::Unix,
            local: Address::Unix,
            port: 0,
            same_uid: false,
            process: 0,
            key_pid: 0,
            key_secret: Vec::new(),
            age: 0,
            ready_was_sent: true,
            tracked: Pairs::new(),
            session: None,
            server_password: None,
            statements: Vec::new(),
            unnamed: None,
            early: Vec::new(),
            partial: Vec::new(),
            server_keys: None,
            server: None,
            tls: None,
            channels: Vec::new(),
        }
    }
}

impl ServerPassword {
    /// Returns the password for logins to servers; `None` for a SCRAM secret, which can't be used to log in.
    pub(crate) fn of(secret: &Secret, is_checked: bool) -> Option<Self> {
        let (text, is_md5) = match secret {
            Secret::Plain(text) => (text, false),
            Secret::Md5(text) => (text, true),
            Secret::Scram(_) => return None,
        };
        let text = text.clone();
        Some(Self {
            text,
            is_md5,
            is_checked,
        })
    }

    pub(crate) fn secret(&self) -> Secret {
        match self.is_md5 {
            true => Secret::Md5(self.text.clone()),
            false => Secret::Plain(self.text.clone()),
        }
    }

    fn write(&self, to: &mut Writer) {
        to.bytes(tag::TEXT, self.text.as_bytes())
            .flag(tag::IS_MD5, self.is_md5)
            .flag(tag::IS_CHECKED, self.is_checked);
    }

    fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut password = Self::default();
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::TEXT => password.text = Zeroizing::new(field.text()?),
                tag::IS_MD5 => password.is_md5 = field.flag()?,
                tag::IS_CHECKED => password.is_checked = field.flag()?,
                _ => field.unknown()?,
            }
        }
        Ok(password)
    }
}

impl SessionRecord {
    fn write(&self, to: &mut Writer) {
        to.pairs(tag::BASE, &self.base)
            .pairs(tag::WANTED, &self.wanted)
            .pairs(tag::SQL, &self.sql)
            .flag(tag::HAS_SEQUENCES, self.has_sequences)
            .flag(tag::IS_UNPROVEN, self.is_unproven)
            .pairs(tag::IMPLIED, &self.implied);
    }

    fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut record = Self::default();
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::BASE => record.base = field.pairs()?,
                tag::WANTED => record.wanted = field.pairs()?,
                tag::SQL => record.sql = field.pairs()?,
                tag::HAS_SEQUENCES => record.has_sequences = field.flag()?,
                tag::IS_UNPROVEN => record.is_unproven = field.flag()?,
                tag::IMPLIED => record.implied = field.pairs()?,
                _ => field.unknown()?,
            }
        }
        Ok(record)
    }
}

impl fmt::Debug for ClientRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values and texts may be secrets, as the cancel key is.
        f.debug_struct("ClientRecord")
            .field("id", &self.id)
            .field("names", &self.names)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPassword").finish_non_exhaustive()
    }
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_listens_returns_to_the_worker_that_it_has_left() {
        let mut record = ClientRecord {
            key_pid: CancelKey::pid(WorkerId(1), 0, 7),
            key_secret: vec![0; 4],
            ..ClientRecord::default()
        };
        assert_eq!(record.returns_to(WorkerId(2), 3), WorkerId(1));
        record.channels.push(b"jobs".to_vec());
        assert_eq!(record.returns_to(WorkerId(2), 3), WorkerId(2));
    }
}
