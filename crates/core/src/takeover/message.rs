//! The messages between the two processes.

use std::fmt;

use zeroize::Zeroizing;

use super::{
    BadFrame, ClientRecord, Encryption, ListenNote, TlsState,
    field::{Field, Fields, Writer},
};
use crate::shared::cancel::CancelKey;

/// Bytes of a frame before its body: a length, and the kind.
pub const HEADER: usize = 5;
/// The longest frame, in bytes. A client's prepared statements are bounded far below by the settings.
const FRAME_MAX: usize = 1 << 30;

/// A listening socket, in the order of their descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerNote {
    /// Whether a service manager has opened the socket: then the socket's file stays when this process ends.
    pub is_lent: bool,
}

/// A pool of the old process.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolNote {
    /// The pool's database.
    pub database: String,
    /// The pool's user.
    pub user: String,
    /// How many of the pool's servers the old process has, or may open again.
    pub held: u32,
    /// How many places the new process has lent to the old one in all, as far as the sender knows.
    pub lent: u32,
    /// SCRAM keys from a client's login, which logins to the pool's servers use.
    pub keys: Option<[[u8; 32]; 2]>,
}

/// The state of the old process for the new one.
#[derive(Clone, PartialEq, Eq)]
pub struct Begin {
    /// All ids of the old process's clients and servers are below this one.
    pub next_id: u64,
    /// The highest id of a prepared statement in the old process. The new process uses higher ids, since names on
    /// servers contain the id.
    pub last_statement: u64,
    /// The secret from which mock salts are derived.
    pub process_key: [u8; 32],
    /// PAUSE of all databases is in force.
    pub is_paused: bool,
    /// Paused databases.
    pub paused: Vec<String>,
    /// Disabled databases.
    pub disabled: Vec<String>,
    /// The old process's pools.
    pub pools: Vec<PoolNote>,
}

/// A message of the protocol that the module [`takeover`](super) describes.
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// The new process introduces itself.
    Hello {
        /// The protocol's [`VERSION`](super::VERSION) in the new process.
        version: u16,
        /// The program's name and version, for the log.
        program: String,
    },
    /// The old process refuses, for this reason.
    Refused(String),
    /// The old process's listening sockets, with their descriptors. The first descriptor is the socket on which the old
    /// process is asked to hand over.
    Offer {
        /// The old process's pid.
        pid: u32,
        /// The number of online restarts before the one that started the old process.
        generation: u8,
        /// The listening sockets.
        listeners: Vec<ListenerNote>,
    },
    /// The new process can take over.
    Ready,
    /// The old process has stopped accepting clients.
    Begin(Begin),
    /// The new process accepts clients.
    Up {
        /// The new process's pid.
        pid: u32,
    },
    /// A client, with its descriptor, and its server's descriptor if it keeps one.
    Client {
        /// The client's state.
        record: Box<ClientRecord>,
        /// Bytes for the client that its socket has not taken yet, encrypted if the connection is.
        unsent: Vec<u8>,
        /// The TLS states of both connections.
        encryption: Encryption,
        /// Bytes of the server that the old process has received, but not processed.
        early: Vec<u8>,
    },
    /// The number of clients that the new process has taken over since it started.
    Received(u64),
    /// How many servers of a pool the old process has now.
    Held(PoolNote),
    /// Clients of the pool wait in the old process, which may open no more servers and asks for a place for one.
    Want(PoolNote),
    /// The new process lends the old one a place for one more server.
    Lend(PoolNote),
    /// A cancel request with a key that the sender does not know.
    Cancel {
        /// The key's pid.
        pid: u32,
        /// The key's secret.
        secret: Vec<u8>,
    },
    /// A note about a client that uses LISTEN and was handed over.
    Listen {
        /// The pid of the client's cancel key.
        pid: u32,
        /// The secret of the client's cancel key.
        secret: Vec<u8>,
        /// The note.
        note: ListenNote,
    },
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const REFUSED: u8 = 2;
    pub(super) const OFFER: u8 = 3;
    pub(super) const READY: u8 = 4;
    pub(super) const BEGIN: u8 = 5;
    pub(super) const UP: u8 = 6;
    pub(super) const CLIENT: u8 = 7;
    pub(super) const RECEIVED: u8 = 8;
    pub(super) const HELD: u8 = 9;
    pub(super) const CANCEL: u8 = 10;
    pub(super) const WANT: u8 = 11;
    pub(super) const LEND: u8 = 12;
    pub(super) const LISTEN: u8 = 13;
}

mod tag {
    pub(super) const VERSION: u8 = 1;
    pub(super) const TEXT: u8 = 2;
    pub(super) const PID: u8 = 3;
    pub(super) const GENERATION: u8 = 4;
    pub(super) const LISTENER: u8 = 5;
    pub(super) const NEXT_ID: u8 = 6;
    pub(super) const PROCESS_KEY: u8 = 7;
    pub(super) const IS_PAUSED: u8 = 8;
    pub(super) const PAUSED: u8 = 9;
    pub(super) const DISABLED: u8 = 10;
    pub(super) const POOL: u8 = 11;
    pub(super) const RECORD: u8 = 12;
    pub(super) const UNSENT: u8 = 13;
    pub(super) const COUNT: u8 = 14;
    pub(super) const SECRET: u8 = 15;
    pub(super) const NOTE: u8 = 16;
    pub(super) const LAST_STATEMENT: u8 = 17;
    pub(super) const CLIENT_TLS: u8 = 18;
    pub(super) const SERVER_TLS: u8 = 19;
    pub(super) const EARLY: u8 = 20;

    pub(super) const IS_LENT: u8 = 1;

    pub(super) const DATABASE: u8 = 1;
    pub(super) const USER: u8 = 2;
    pub(super) const HELD: u8 = 3;
    pub(super) const CLIENT_KEY: u8 = 4;
    pub(super) const SERVER_KEY: u8 = 5;
    pub(super) const LENT: u8 = 6;
}

/// Returns the length of the frame, header and body, from the frame's first bytes.
///
/// # Errors
///
/// The length is invalid, or above the limit.
pub fn frame_len(header: [u8; HEADER]) -> Result<usize, BadFrame> {
    let [a, b, c, d, _] = header;
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    match len {
        0 => Err(BadFrame::Short),
        len if len >= FRAME_MAX => Err(BadFrame::Long),
        len => Ok(len + HEADER - 1),
    }
}

impl Message {
    /// Returns how many descriptors are sent with the message.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Offer { listeners, .. } => listeners.len(),
            Self::Client { record, .. } => 1 + usize::from(record.server.is_some()),
            _ => 0,
        }
    }

    /// Returns the whole frame.
    ///
    /// # Errors
    ///
    /// The frame would be too long.
    pub fn to_frame(&self) -> Result<Zeroizing<Vec<u8>>, BadFrame> {
        let mut to = Writer {
            bytes: vec![0, 0, 0, 0, self.kind()],
        };
        self.write(&mut to);
        let len = to.bytes.len() + 1 - HEADER;
        if len >= FRAME_MAX {
            return Err(BadFrame::Long);
        }
        to.bytes[..4].copy_from_slice(&(len as u32).to_be_bytes());
        Ok(Zeroizing::new(to.bytes))
    }

    /// Reads a whole frame.
    ///
    /// # Errors
    /// The frame is malformed.
    pub fn of_frame(frame: &[u8]) -> Result<Self, BadFrame> {
        let (header, body) = frame.split_first_chunk::<HEADER>().ok_or(BadFrame::Short)?;
        if frame_len(*header)? != frame.len() {
            return Err(BadFrame::Short);
        }
        let mut parts = Parts::default();
        for field in Fields(body) {
            parts.take(field?)?;
        }
        parts.message(header[4])
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => kind::HELLO,
            Self::Refused(_) => kind::REFUSED,
            Self::Offer { .. } => kind::OFFER,
            Self::Ready => kind::READY,
            Self::Begin(_) => kind::BEGIN,
            Self::Up { .. } => kind::UP,
            Self::Client { .. } => kind::CLIENT,
            Self::Received(_) => kind::RECEIVED,
            Self::Held(_) => kind::HELD,
            Self::Want(_) => kind::WANT,
            Self::Lend(_) => kind::LEND,
            Self::Cancel { .. } => kind::CANCEL,
            Self::Listen { .. } => kind::LISTEN,
        }
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Self::Hello { version, program } => {
                to.number(tag::VERSION, (*version).into())
                    .bytes(tag::TEXT, program.as_bytes());
            }
            Self::Refused(why) => drop(to.bytes(tag::TEXT, why.as_bytes())),
            Self::Offer {
                pid,
                generation,
                listeners,
            } => {
                to.number(tag::PID, (*pid).into())
                    .number(tag::GENERATION, (*generation).into());
                for listener in listeners {
                    to.nested(tag::LISTENER, |to| {
                        to.flag(tag::IS_LENT, listener.is_lent);
                    });
                }
            }
            Self::Ready => {}
            Self::Up { pid } => drop(to.number(tag::PID, (*pid).into())),
            Self::Begin(begin) => begin.write(to),
            Self::Client {
                record,
                unsent,
                encryption,
                early,
            } => {
                to.nested(tag::RECORD, |to| record.write(to))
                    .bytes(tag::UNSENT, unsent);
                // An older process does not know the field, so it is written only when it is needed.
                if !early.is_empty() {
                    to.bytes(tag::EARLY, early);
                }
                let states = [
                    (tag::CLIENT_TLS, &encryption.client),
                    (tag::SERVER_TLS, &encryption.server),
                ];
                for (tag, state) in states {
                    if let Some(TlsState(state)) = state {
                        to.secret(tag, state);
                    }
                }
            }
            Self::Received(count) => drop(to.number(tag::COUNT, *count)),
            Self::Held(pool) | Self::Want(pool) | Self::Lend(pool) => {
                to.nested(tag::POOL, |to| pool.write(to));
            }
            Self::Cancel { pid, secret } => {
                to.number(tag::PID, (*pid).into())
                    .bytes(tag::SECRET, secret);
            }
            Self::Listen { pid, secret, note } => {
                to.number(tag::PID, (*pid).into())
                    .bytes(tag::SECRET, secret)
                    .nested(tag::NOTE, |to| note.write(to));
            }
        }
    }

    /// Makes the message that passes a cancel request to the other process.
    #[must_use]
    pub fn cancel(key: &CancelKey) -> Self {
        Self::Cancel {
            pid: key.pid,
            secret: key.secret.to_vec(),
        }
    }

    /// Makes a message with a note about the client that has this key.
    #[must_use]
    pub fn listen(key: &CancelKey, note: ListenNote) -> Self {
        Self::Listen {
            pid: key.pid,
            secret: key.secret.to_vec(),
            note,
        }
    }
}

/// The fields of a frame, whatever its kind.
#[derive(Default)]
struct Parts {
    version: Option<u16>,
    text: Option<String>,
    pid: Option<u32>,
    generation: Option<u8>,
    listeners: Vec<ListenerNote>,
    begin: BeginParts,
    pools: Vec<PoolNote>,
    record: Option<Box<ClientRecord>>,
    bytes: ClientBytes,
    encryption: Encryption,
    count: Option<u64>,
    secret: Option<Vec<u8>>,
    note: Option<ListenNote>,
}

/// The fields of [`Begin`], without its pools.
#[derive(Default)]
struct BeginParts {
    next_id: Option<u64>,
    last_statement: Option<u64>,
    process_key: Option<[u8; 32]>,
    is_paused: bool,
    paused: Vec<String>,
    disabled: Vec<String>,
}

/// The bytes that go along with a client.
#[derive(Default)]
struct ClientBytes {
    unsent: Vec<u8>,
    early: Vec<u8>,
}

impl Parts {
    fn take(&mut self, field: Field<'_>) -> Result<(), BadFrame> {
        match field.tag {
            tag::VERSION => self.version = Some(field.number()?),
            tag::TEXT => self.text = Some(field.text()?),
            tag::PID => self.pid = Some(field.number()?),
            tag::GENERATION => self.generation = Some(field.number()?),
            tag::LISTENER => self.listeners.push(ListenerNote::read(field.value)?),
            tag::NEXT_ID => self.begin.next_id = Some(field.number()?),
            tag::LAST_STATEMENT => self.begin.last_statement = Some(field.number()?),
            tag::PROCESS_KEY => self.begin.process_key = Some(field.array()?),
            tag::IS_PAUSED => self.begin.is_paused = field.flag()?,
            tag::PAUSED => self.begin.paused.push(field.text()?),
            tag::DISABLED => self.begin.disabled.push(field.text()?),
            tag::POOL => self.pools.push(PoolNote::read(field.value)?),
            tag::RECORD => self.record = Some(Box::new(ClientRecord::read(field.value)?)),
            tag::UNSENT => self.bytes.unsent = field.value.to_vec(),
            tag::EARLY => self.bytes.early = field.value.to_vec(),
            tag::CLIENT_TLS => self.encryption.client = Some(field.tls_state()),
            tag::SERVER_TLS => self.encryption.server = Some(field.tls_state()),
            tag::COUNT => self.count = Some(field.number()?),
            tag::SECRET => self.secret = Some(field.value.to_vec()),
            tag::NOTE => self.note = Some(ListenNote::read(field.value)?),
            _ => field.unknown()?,
        }
        Ok(())
    }

    fn pool(&mut self) -> Result<PoolNote, BadFrame> {
        self.pools.pop().ok_or(BadFrame::Missing(tag::POOL))
    }

    fn message(mut self, kind: u8) -> Result<Message, BadFrame> {
        let need = BadFrame::Missing;
        Ok(match kind {
            kind::HELLO => Message::Hello {
                version: self.version.ok_or(need(tag::VERSION))?,
                program: self.text.unwrap_or_default(),
            },
            kind::REFUSED => Message::Refused(self.text.unwrap_or_default()),
            kind::OFFER => Message::Offer {
                pid: self.pid.ok_or(need(tag::PID))?,
                generation: self.generation.ok_or(need(tag::GENERATION))?,
                listeners: self.listeners,
            },
            kind::READY => Message::Ready,
            kind::BEGIN => Message::Begin(Begin {
                next_id: self.begin.next_id.ok_or(need(tag::NEXT_ID))?,
                last_statement: self.begin.last_statement.ok_or(need(tag::LAST_STATEMENT))?,
                process_key: self.begin.process_key.ok_or(need(tag::PROCESS_KEY))?,
                is_paused: self.begin.is_paused,
                paused: self.begin.paused,
                disabled: self.begin.disabled,
                pools: self.pools,
            }),
            kind::UP => Message::Up {
                pid: self.pid.ok_or(need(tag::PID))?,
            },
            kind::CLIENT => Message::Client {
                record: self.record.ok_or(need(tag::RECORD))?,
                unsent: self.bytes.unsent,
                encryption: self.encryption,
                early: self.bytes.early,
            },
            kind::RECEIVED => Message::Received(self.count.ok_or(need(tag::COUNT))?),
            kind::HELD => Message::Held(self.pool()?),
            kind::WANT => Message::Want(self.pool()?),
            kind::LEND => Message::Lend(self.pool()?),
            kind::CANCEL => Message::Cancel {
                pid: self.pid.ok_or(need(tag::PID))?,
                secret: self.secret.ok_or(need(tag::SECRET))?,
            },
            kind::LISTEN => Message::Listen {
                pid: self.pid.ok_or(need(tag::PID))?,
                secret: self.secret.ok_or(need(tag::SECRET))?,
                note: self.note.ok_or(need(tag::NOTE))?,
            },
            kind => return Err(BadFrame::Kind(kind)),
        })
    }
}

impl Begin {
    fn write(&self, to: &mut Writer) {
        to.number(tag::NEXT_ID, self.next_id)
            .number(tag::LAST_STATEMENT, self.last_statement)
            .bytes(tag::PROCESS_KEY, &self.process_key)
            .flag(tag::IS_PAUSED, self.is_paused);
        let names = [(tag::PAUSED, &self.paused), (tag::DISABLED, &self.disabled)];
        for (tag, names) in names {
            for name in names {
                to.bytes(tag, name.as_bytes());
            }
        }
        for pool in &self.pools {
            to.nested(tag::POOL, |to| pool.write(to));
        }
    }
}

impl ListenerNote {
    fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut note = Self { is_lent: false };
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::IS_LENT => note.is_lent = field.flag()?,
                _ => field.unknown()?,
            }
        }
        Ok(note)
    }
}

impl PoolNote {
    fn write(&self, to: &mut Writer) {
        to.bytes(tag::DATABASE, self.database.as_bytes())
            .bytes(tag::USER, self.user.as_bytes())
            .number(tag::HELD, self.held.into())
            .number(tag::LENT, self.lent.into());
        if let Some([client, server]) = &self.keys {
            to.bytes(tag::CLIENT_KEY, client)
                .bytes(tag::SERVER_KEY, server);
        }
    }

    fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let (mut database, mut user, mut held, mut lent) = (None, None, None, 0);
        let mut keys = [None, None];
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::DATABASE => database = Some(field.text()?),
                tag::USER => user = Some(field.text()?),
                tag::HELD => held = Some(field.number()?),
                tag::LENT => lent = field.number()?,
                tag::CLIENT_KEY => keys[0] = Some(field.array()?),
                tag::SERVER_KEY => keys[1] = Some(field.array()?),
                _ => field.unknown()?,
            }
        }
        Ok(Self {
            database: database.ok_or(BadFrame::Missing(tag::DATABASE))?,
            user: user.ok_or(BadFrame::Missing(tag::USER))?,
            held: held.ok_or(BadFrame::Missing(tag::HELD))?,
            lent,
            keys: match keys {
                [Some(client), Some(server)] => Some([client, server]),
                _ => None,
            },
        })
    }
}

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        f.debug_struct("Begin")
            .field("next_id", &self.next_id)
            .field("pools", &self.pools)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolNote")
            .field("database", &self.database)
            .field("user", &self.user)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({})", self.kind())
    }
}

#[cfg(test)]
mod tests;
