//! The notes between the two processes about a client that uses LISTEN and was handed over.

use std::fmt;

use super::{
    BadFrame,
    field::{Fields, Writer},
};

/// Until the new process's listener listens, the old process receives the client's notifications:
///
/// ```text
/// old: Client                  a client with these channels
/// old: Notification ...        a notification that the old listener has received
/// new: Fence                   the new listener listens: send all notifications up to now
/// old: Notification ... Fenced all were sent; the old process sends no more
/// new: Done                    the client got its notifications, or is gone
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum ListenNote {
    /// A notification that the old process's listener has received, as a whole NotificationResponse.
    Notification(Vec<u8>),
    /// The new process's listener listens.
    Fence,
    /// The old process has sent all notifications before the fence.
    Fenced,
    /// The old process can't receive the client's notifications any more, for this reason: some may be lost.
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
            // The payload may be confidential.
            Self::Notification(_) => "Notification",
            Self::Fence => "Fence",
            Self::Fenced => "Fenced",
            Self::Lost(_) => "Lost",
            Self::Done => "Done",
        })
    }
}
