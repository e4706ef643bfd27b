//! The names of prepared statements in a client's messages.

use pgweir_wire::{Body, tag::frontend};

/// The longest unnamed statement that is carried from one server to another.
pub(super) const UNNAMED_MAX: usize = 64 * 1024;

/// The reference to a statement at the beginning of a message.
#[derive(Debug)]
pub(super) enum Named<'b> {
    /// The message refers to no statement.
    Nothing,
    /// The part of the message that has arrived does not show the name yet.
    Unclear,
    /// The message refers to the unnamed statement. A Parse that is not longer than [`UNNAMED_MAX`] has arrived
    /// completely.
    Unnamed,
    Parse {
        name: &'b [u8],
        definition: &'b [u8],
    },
    Bind {
        portal: &'b [u8],
        name: &'b [u8],
    },
    Describe(&'b [u8]),
    Close(&'b [u8]),
}

impl<'b> Named<'b> {
    /// Returns whether the message contains a statement name of the client.
    #[inline]
    pub(super) fn is_named(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Unclear | Self::Unnamed)
    }

    /// Reads the beginning of a message whose body has `len` bytes.
    pub(super) fn read(tag: u8, body: &'b [u8], len: usize) -> Self {
        let is_whole = body.len() >= len;
        let read = match tag {
            frontend::PARSE => Self::parse(body, len),
            frontend::BIND => Self::bind(body),
            _ => Self::target(tag, body),
        };
        // The server will report that the body ends too early.
        read.unwrap_or(if is_whole {
            Self::Nothing
        } else {
            Self::Unclear
        })
    }

    fn parse(body: &'b [u8], len: usize) -> Option<Self> {
        let is_unnamed = body.first() == Some(&0);
        if is_unnamed && (body.len() >= len || len > UNNAMED_MAX) {
            return Some(Self::Unnamed);
        }
        if body.len() < len {
            return None;
        }
        let mut rest = Body::new(body);
        let name = rest.cstr().ok()?;
        let definition = rest.rest();
        rest.cstr().ok()?;
        let count = rest.bytes(2).ok()?;
        rest.bytes(4 * usize::from(u16::from_be_bytes([count[0], count[1]])))
            .ok()?;
        rest.end().ok()?;
        Some(Self::Parse { name, definition })
    }

    fn bind(body: &'b [u8]) -> Option<Self> {
        let mut rest = Body::new(body);
        let portal = rest.cstr().ok()?;
        let name = rest.cstr().ok()?;
        Some(if name.is_empty() {
            Self::Unnamed
        } else {
            Self::Bind { portal, name }
        })
    }

    fn target(tag: u8, body: &'b [u8]) -> Option<Self> {
        let mut rest = Body::new(body);
        if rest.u8().ok()? != b'S' {
            return Some(Self::Nothing);
        }
        let name = rest.cstr().ok()?;
        Some(match tag {
            _ if name.is_empty() => Self::Unnamed,
            frontend::DESCRIBE => Self::Describe(name),
            _ => Self::Close(name),
        })
    }
}
