//! What the two processes say of a client that listens and has moved.

use std::fmt;

use super::{
    BadFrame,
    field::{Fields, Writer},
};

/// Until the new process listens itself, the old one hears for such a client:
///
/// ```text
/// old: Client                  it hears these channels
/// old: Notification ...        this was notified
/// new: Fence                   I listen: tell me all that was notified before
/// old: Notification ... Fenced that was it; nothing more comes from me
/// new: Done                    the client has been told, or is gone
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum ListenNote {
    /// The old process's listener has heard this, a whole NotificationResponse.
    Notification(Vec<u8>),
    /// The new one's listener listens.
    Fence,
    /// All that was notified before has been said.
    Fenced,
    /// The old process can't hear for the client any more, and why: it may have missed something.
    Lost(String),
    /// The new process needs nothing more for this client.
    Done,
}

mod tag {
    pub(super) const NOTIFICATION: u8 = 1;
    pub(super) const FENCE: u8 = 2;
    pub(super) const FENCED: u8 = 3;
    pub(super) const LOST: u8 = 4;
    pub(super) const DONE: u8 = 5;
}

impl ListenNote {
    pub(super) fn write(&self, to: &mut Writer) {
        match self {
            Self::Notification(message) => to.bytes(tag::NOTIFICATION, message),
            Self::Fence => to.flag(tag::FENCE, true),
            Self::Fenced => to.flag(tag::FENCED, true),
            Self::Lost(why) => to.bytes(tag::LOST, why.as_bytes()),
            Self::Done => to.flag(tag::DONE, true),
        };
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut note = None;
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::NOTIFICATION => note = Some(Self::Notification(field.value.to_vec())),
                tag::FENCE => note = Some(Self::Fence),
                tag::FENCED => note = Some(Self::Fenced),
                tag::LOST => note = Some(Self::Lost(field.text()?)),
                tag::DONE => note = Some(Self::Done),
                _ => field.unknown()?,
            }
        }
        note.ok_or(BadFrame::Missing(tag::NOTIFICATION))
    }
}

impl fmt::Debug for ListenNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // What it says is the client's business.
            Self::Notification(_) => "Notification",
            Self::Fence => "Fence",
            Self::Fenced => "Fenced",
            Self::Lost(_) => "Lost",
            Self::Done => "Done",
        })
    }
}
