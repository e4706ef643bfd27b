//! The kinds of words that the scanner knows: key words of SQL, and names that PostgreSQL defines, with their effects on the
//! session.

use super::Effects;

/// The effects of a text that writes to a system catalog, or that makes something in `pg_temp`.
pub(in crate::session) const CHANGE: Effects = Effects::OPAQUE.and(Effects::TEMP);

/// The meaning of a word without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Meaning {
    /// A name, with or without quotes: the effects of its use, and the effects that it has in a text that writes.
    Name(Effects, Effects),
    /// The function `set_config`.
    SetConfig,
    /// A key word.
    Key(Key),
}

/// The key words that matter. Key words with the same meaning share a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Key {
    /// ANALYZE, ANALYSE, VERBOSE
    Analyze,
    /// BEGIN, START, ABORT
    Begin,
    Call,
    /// CLOSE
    Close,
    /// COMMIT, END
    Commit,
    Copy,
    Deallocate,
    Declare,
    Delete,
    Discard,
    Do,
    Execute,
    Explain,
    /// FETCH, MOVE
    Fetch,
    Hold,
    Insert,
    Into,
    /// LISTEN, UNLISTEN
    Listen,
    Load,
    /// LOCK, NOTIFY
    Lock,
    Merge,
    Prepare,
    Program,
    Reset,
    Rollback,
    /// SAVEPOINT, RELEASE
    Savepoint,
    /// SELECT, VALUES, TABLE
    Select,
    Set,
    Show,
    Truncate,
    Update,
    With,
}
