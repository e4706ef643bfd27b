//! What a client has sent since its last Sync, kept to be sent once more.

use pgweir_wire::tag::frontend;

use crate::session::{BindingId, Shape};

/// The present messages up to a Sync, as the client sent them, if they are of a kind that can be
/// repeated: nothing but uses of statements that are there.
#[derive(Debug, Default)]
pub struct Segment {
    bytes: Vec<u8>,
    phase: Phase,
    /// The server has answered something of it to the client.
    pub replied: bool,
    /// How often it was repeated.
    pub repeats: u8,
    /// A ParameterDescription, held back until the description of the columns has come: the server
    /// may fail in between.
    pub params: Vec<u8>,
}

/// A segment that failed since a table has changed, and will be repeated if the client can't tell.
#[derive(Debug)]
pub struct Retry {
    /// The ErrorResponse that the client gets otherwise.
    pub error: Vec<u8>,
    /// The statement that is made anew.
    pub binding: BindingId,
    /// What is asked of it.
    pub demands: Demands,
    /// It was not out of date, but gone.
    pub is_gone: bool,
    /// What the new one takes and gives, as far as the server has said; `None` once it has failed.
    pub new: Option<Shape>,
}

/// What of a statement must be as the client was told, if it is not to notice that it was made anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demands {
    /// So many parameters: some are sent in binary.
    pub params: u16,
    /// Its columns: the client does not ask for them before it reads rows.
    pub columns: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is not kept.
    #[default]
    Spoiled,
    /// More of it is to come.
    Open,
    /// Its Sync has come.
    Whole,
}

impl Segment {
    /// A new one; it is kept if `keep`.
    #[inline]
    pub fn begin(&mut self, keep: bool) {
        self.bytes.clear();
        self.replied = false;
        self.repeats = 0;
        self.phase = if keep { Phase::Open } else { Phase::Spoiled };
    }

    /// A message of the client goes to the server.
    #[inline]
    pub fn sent(&mut self, tag: u8) {
        self.phase = match (self.phase, tag) {
            (
                Phase::Open,
                frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::FLUSH,
            ) => Phase::Open,
            (Phase::Open, frontend::SYNC) => Phase::Whole,
            _ => Phase::Spoiled,
        };
    }

    /// Nothing is kept yet.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A ParameterDescription is held back.
    #[must_use]
    #[inline]
    pub fn has_params(&self) -> bool {
        !self.params.is_empty()
    }

    /// It can't be repeated.
    pub fn spoil(&mut self) {
        self.phase = Phase::Spoiled;
    }

    /// Keeps more of it, if all has at most `most` bytes.
    #[inline]
    pub fn keep(&mut self, bytes: &[u8], most: usize) {
        if self.phase == Phase::Spoiled {
            return;
        }
        if self.bytes.len() + bytes.len() > most {
            self.phase = Phase::Spoiled;
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// All of it, if it was kept.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        (self.phase == Phase::Whole).then_some(&self.bytes)
    }
}
