//! The messages that a client has sent since its last Sync, kept so that they can be repeated.

use pgweir_wire::tag::frontend;

use crate::session::{BindingId, Shape};

/// The messages since the last Sync, as the client sent them, if they can be repeated: if they only use statements that
/// exist.
#[derive(Debug, Default)]
pub struct Segment {
    bytes: Vec<u8>,
    phase: Phase,
    /// Whether the client has got a reply to one of them.
    pub replied: bool,
    /// How often they were repeated.
    pub repeats: u8,
    /// A ParameterDescription that is held back until the description of the columns has arrived: the server may fail
    /// in between.
    pub params: Vec<u8>,
}

/// A segment that failed since a table has changed, and will be repeated if the client can't notice.
#[derive(Debug)]
pub struct Retry {
    /// The ErrorResponse, for the client if the segment can't be repeated.
    pub error: Vec<u8>,
    /// The statement that is prepared again.
    pub binding: BindingId,
    /// How the client's messages depend on the statement's description.
    pub demands: Demands,
    /// Whether the statement was missing, rather than out of date.
    pub is_gone: bool,
    /// The new statement's description, as far as it has arrived; `None` once the Parse has failed.
    pub new: Option<Shape>,
}

/// The parts of a statement's description that the client's messages depend on: these must not change when the
/// statement is prepared again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demands {
    /// The number of parameters, if some are sent in binary format.
    pub params: u16,
    /// Whether it depends on the columns: the client reads rows without a Describe.
    pub columns: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The segment is not kept, or can't be repeated.
    #[default]
    Spoiled,
    /// More messages of the segment will follow.
    Open,
    /// The segment is complete: its Sync was sent.
    Whole,
}

impl Segment {
    /// Begins a new segment, which is kept if `keep`.
    #[inline]
    pub fn begin(&mut self, keep: bool) {
        self.bytes.clear();
        self.replied = false;
        self.repeats = 0;
        self.phase = if keep { Phase::Open } else { Phase::Spoiled };
    }

    /// Notes that a message of the client goes to the server.
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

    /// Is nothing kept?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Is a ParameterDescription held back?
    #[must_use]
    #[inline]
    pub fn has_params(&self) -> bool {
        !self.params.is_empty()
    }

    /// The segment can't be repeated.
    pub fn spoil(&mut self) {
        self.phase = Phase::Spoiled;
    }

    /// Keeps more bytes, as long as the segment has at most `most` bytes.
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

    /// The whole segment, if it was kept.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        (self.phase == Phase::Whole).then_some(&self.bytes)
    }
}
