//! Online restart: the protocol between the old process and the new one.
//!
//! Two processes of the same user exchange frames through a Unix socket: a length (4 bytes, of the rest), a kind, a
//! body. A body consists of fields: a tag, a length (4 bytes), a value; numbers are big-endian. A reader skips unknown
//! fields whose tag has the highest bit set, and refuses other unknown fields: so later versions can add both kinds.
//! Changes that fields can't express raise [`VERSION`].
//!
//! ```text
//! new: Hello                     the new process's version
//! old: Offer                     the old process's listening sockets (as descriptors), its pid
//! new: Ready                     the configuration is valid, and the new process can listen on these sockets
//! old: Begin                     the old process accepts no more clients; its number of servers in each pool
//! new: Up                        the new process accepts clients
//! old: Client ... Client         each without a partial message and without an outstanding reply; with its server
//!                                if it keeps one (in session mode, or pinned)
//! new: Received ...              how many clients the new process has taken over
//! old: Held ...                  how many servers of a pool the old process still has
//! old: Want ...                  clients of a pool wait in the old process: lend it a place for one more server
//! new: Lend ...                  it is the turn of these clients: a place is lent
//! both: Listen ...               notes about a client that uses LISTEN (see ListenNote)
//! both: Cancel                   a cancel request with a key that the sender does not know
//! old: (closes)                  the old process has nothing left to hand over
//! ```
//!
//! Until the new process confirms a client by `Received`, the old process keeps it, too: if the new process dies, the
//! old one goes on serving the client.

mod field;
mod handed_over_server;
mod listen_note;
mod message;
mod pin_record;
mod record;
mod retained;
mod server_record;
mod statement_record;
mod takeover_mail;
mod tls_record;

pub(crate) use self::retained::Retained;
pub use self::{
    field::{BadFrame, Pairs, TlsState},
    handed_over_server::HandedOverServer,
    listen_note::ListenNote,
    message::{Begin, HEADER, ListenerNote, Message, PoolNote, frame_len},
    pin_record::{PinRecord, facts},
    record::{ClientRecord, ServerPassword, SessionRecord},
    server_record::ServerRecord,
    statement_record::StatementRecord,
    takeover_mail::TakeoverMail,
    tls_record::Encryption,
};

/// The version of the protocol. Processes of different versions don't hand over to each other.
pub const VERSION: u16 = 4;
