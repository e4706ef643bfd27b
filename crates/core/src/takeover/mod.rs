//! Online restart: what a process tells the one that takes its place.
//!
//! Two processes of the same user talk over a Unix socket, in frames: a length (4 bytes, of what
//! follows), a kind, a body. A body is a row of fields: a tag, a length (4 bytes), a value; numbers are
//! big-endian. A reader skips fields it does not know whose tag has the highest bit set, and refuses
//! others: so later versions can say more, and what must be understood is. What can't be said in fields
//! at all raises [`VERSION`].
//!
//! ```text
//! new: Hello                     I am of this version
//! old: Offer                     my listening sockets (as descriptors), how I am called
//! new: Ready                     my configuration is good, I can listen on these
//! old: Begin                     I accept nobody any more; this much of each pool's servers is mine
//! new: Up                        I accept
//! old: Client ... Client         each at a quiet point: no partial message, no reply owed; its server goes
//!                                along if it keeps one (in session mode)
//! new: Received ...              so many clients are mine now
//! old: Held ...                  of this pool's servers, so many are left with me
//! old: Want ...                  clients of this pool wait here: lend me a server's place
//! new: Lend ...                  it is your clients' turn: take one
//! both: Listen ...               of a client that listens (see ListenNote)
//! both: Cancel                   perhaps you know this key
//! old: (closes)                  nothing is left
//! ```
//!
//! Until a client's `Received`, it is the old process's: if the new one dies, it is served on.

mod along;
mod field;
mod listen_note;
mod message;
mod record;
mod retained;
mod server_record;
mod word;

pub(crate) use self::retained::Retained;
pub use self::{
    along::Along,
    field::BadFrame,
    listen_note::ListenNote,
    message::{Begin, FRAME_MAX, HEADER, ListenerNote, Message, PoolNote, frame_len},
    record::{ClientRecord, Pairs, ServerPassword, SessionRecord},
    server_record::ServerRecord,
    word::Word,
};

/// The version of what is said. Processes of different ones don't hand over to each other.
pub const VERSION: u16 = 3;
