//! Marks: entries for messages about prepared statements whose replies are outstanding. The queue of marks is beside
//! the queue of replies.

use std::sync::Arc;

use crate::{
    base::fault::Fault,
    session::{BindingId, Statement},
};

/// A message whose reply is a ParseComplete, a CloseComplete, a description, or an error.
#[derive(Debug)]
pub struct Mark {
    /// The kind of message.
    pub kind: MarkKind,
    /// Whether the message is pgweir's own: the client does not get the reply.
    pub is_withheld: bool,
    /// The change that the message makes, unless the server skips it.
    pub change: Option<Box<Change>>,
    /// Whether messages without a mark were sent after the last mark or Sync and before this message. An error may be
    /// the answer to one of these messages.
    pub follows_unmarked: bool,
}

/// The kinds of messages with marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// A Parse.
    Parse,
    /// A Close.
    Close,
    /// A Describe of a statement. pgweir notes the description.
    Describe(BindingId),
    /// A Describe of the unnamed portal, which was bound to this statement. pgweir notes the description.
    Portal(BindingId),
    /// A Describe of the unnamed statement, or of one that SQL has prepared. pgweir does not note its description, and
    /// must not mistake it for the description of a later statement.
    DescribeOther,
    /// A Describe of pgweir's own, to check that a statement still has the description that its client got.
    Check(BindingId),
    /// A message that makes the server fail, in place of one that pgweir refuses: see [`Change::Refused`] and
    /// [`Change::Duplicate`].
    Refused,
}

/// A change of pgweir's records of statements by a message. pgweir applies the change when it sends the message, and
/// undoes it if the message fails or is skipped.
#[derive(Debug)]
pub enum Change {
    /// The server gets this statement, with the client's name for it if the client has prepared it.
    Made(Arc<Statement>, Option<Box<[u8]>>),
    /// This statement is closed on the server.
    Evicted(Arc<Statement>),
    /// The client closes the statement that has this name.
    Unnamed(Box<[u8]>, Arc<Statement>),
    /// The server gets a statement under the client's name, which is this one, when all of the client's statements are
    /// renamed.
    Given(Box<[u8]>),
    /// The client prepares this statement under this name, which is its name on the server, too.
    Named(Box<[u8]>, Arc<Statement>),
    /// No change. The messages after this one wait for its reply.
    AwaitEarlier,
    /// The client gets this error in place of the server's.
    Refused(Fault),
    /// The client prepares a statement under a name that it has used before. pgweir makes the server report this error,
    /// unless an earlier message fails. If the name has become free meanwhile (`DEALLOCATE ALL`), this statement gets
    /// it.
    Duplicate(Box<[u8]>, Arc<Statement>),
}

impl Mark {
    /// The change that the message makes.
    #[must_use]
    pub fn change(&self) -> Option<&Change> {
        self.change.as_deref()
    }

    /// Returns whether the message is a Parse of the unnamed statement.
    #[must_use]
    #[inline]
    pub fn is_unnamed_parse(&self) -> bool {
        self.kind == MarkKind::Parse && self.change.is_none()
    }

    /// Returns whether the message is a Describe.
    #[must_use]
    pub fn is_describe(&self) -> bool {
        matches!(
            self.kind,
            MarkKind::Describe(_)
                | MarkKind::Portal(_)
                | MarkKind::DescribeOther
                | MarkKind::Check(_)
        )
    }

    /// Returns whether the message is a Describe of a portal.
    #[must_use]
    pub fn is_of_portal(&self) -> bool {
        matches!(self.kind, MarkKind::Portal(_))
    }

    /// Returns whether the message is a Describe of pgweir's own.
    #[must_use]
    pub fn is_check(&self) -> bool {
        matches!(self.kind, MarkKind::Check(_))
    }

    /// Returns whether the client's next messages wait for the reply to this message of pgweir's own.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_check() || self.awaits_earlier()
    }

    /// Returns whether the reply shows that all earlier messages have succeeded.
    #[must_use]
    pub fn awaits_earlier(&self) -> bool {
        matches!(self.change(), Some(Change::AwaitEarlier))
    }

    /// Returns a mark without a change.
    #[must_use]
    pub fn plain(kind: MarkKind) -> Self {
        Self {
            kind,
            is_withheld: false,
            change: None,
            follows_unmarked: false,
        }
    }

    /// Returns a mark without a change, for a message of pgweir's own.
    #[must_use]
    pub fn silent(kind: MarkKind) -> Self {
        Self {
            is_withheld: true,
            ..Self::plain(kind)
        }
    }

    /// Returns a mark for a message of pgweir's own, whose reply the client does not get.
    #[must_use]
    pub fn own(kind: MarkKind, change: Change) -> Self {
        Self {
            is_withheld: true,
            ..Self::clients(kind, change)
        }
    }

    /// Returns a mark for a client's message.
    #[must_use]
    pub fn clients(kind: MarkKind, change: Change) -> Self {
        Self {
            change: Some(Box::new(change)),
            ..Self::plain(kind)
        }
    }
}
