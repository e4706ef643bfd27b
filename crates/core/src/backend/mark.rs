//! Messages about prepared statements, in the queue of replies.

use std::sync::Arc;

use crate::{
    fault::Fault,
    session::{BindingId, Statement},
};

/// A message that is answered by ParseComplete or CloseComplete, or by a description, or by an
/// error.
#[derive(Debug)]
pub struct Mark {
    /// Which.
    pub kind: MarkKind,
    /// It is ours: the client is not to see the answer.
    pub swallow: bool,
    /// What it changes, if it is not skipped.
    pub change: Option<Box<Change>>,
}

/// What a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// A Parse.
    Parse,
    /// A Close.
    Close,
    /// A Describe of a statement, whose answer is to be noted.
    Describe(BindingId),
    /// The same of the unnamed portal, which was made of this statement.
    Portal(BindingId),
    /// A Describe of our own, to know whether a statement is still what its client was told.
    Check(BindingId),
    /// A message that is bound to fail, in place of one that we refuse: see [`Change::Refused`]
    /// and [`Change::Duplicate`].
    Refused,
}

/// What a message changes: done when it is sent, undone if it fails or is skipped.
#[derive(Debug)]
pub enum Change {
    /// The server gets this statement. If the client made it, it has this name.
    Made(Arc<Statement>, Option<Box<[u8]>>),
    /// The server loses this statement.
    Evicted(Arc<Statement>),
    /// The client takes this name from this statement.
    Unnamed(Box<[u8]>, Arc<Statement>),
    /// The server gets a statement under this name, which the client gave it.
    Given(Box<[u8]>),
    /// The client makes this statement under this name, which is its name on the server too.
    Named(Box<[u8]>, Arc<Statement>),
    /// Nothing: what comes behind it waits for its answer.
    Fence,
    /// The client is told this in place of the server's error.
    Refused(Fault),
    /// The client made a statement under a name that it has given before: the server is made to say
    /// so, if it finds nothing worse. Should the name have come free on the way (`DEALLOCATE ALL`),
    /// it is this statement's.
    Duplicate(Box<[u8]>, Arc<Statement>),
}

impl Mark {
    /// What it changes.
    #[must_use]
    pub fn change(&self) -> Option<&Change> {
        self.change.as_deref()
    }

    /// Is it a Describe?
    #[must_use]
    pub fn is_describe(&self) -> bool {
        matches!(
            self.kind,
            MarkKind::Describe(_) | MarkKind::Portal(_) | MarkKind::Check(_)
        )
    }

    /// Is it a Describe of a portal?
    #[must_use]
    pub fn is_of_portal(&self) -> bool {
        matches!(self.kind, MarkKind::Portal(_))
    }

    /// Is it a Describe of our own?
    #[must_use]
    pub fn is_check(&self) -> bool {
        matches!(self.kind, MarkKind::Check(_))
    }

    /// Is it an answer of our own that the client's next messages wait for?
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_check() || self.is_fence()
    }

    /// Does its answer say that all before it was done?
    #[must_use]
    pub fn is_fence(&self) -> bool {
        matches!(self.change(), Some(Change::Fence))
    }

    /// A mark that changes nothing.
    #[must_use]
    pub fn plain(kind: MarkKind) -> Self {
        Self {
            kind,
            swallow: false,
            change: None,
        }
    }

    /// A mark of our own, whose answer is swallowed.
    #[must_use]
    pub fn own(kind: MarkKind, change: Change) -> Self {
        Self {
            kind,
            swallow: true,
            change: Some(Box::new(change)),
        }
    }

    /// A mark of the client's message.
    #[must_use]
    pub fn clients(kind: MarkKind, change: Change) -> Self {
        Self {
            kind,
            swallow: false,
            change: Some(Box::new(change)),
        }
    }
}
