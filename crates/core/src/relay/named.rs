//! The names of prepared statements in a client's messages.

use pgweir_wire::{Body, tag::frontend};

/// What the beginning of a message says of statements.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named<'b> {
    /// Nothing: pass it on.
    Nothing,
    /// More of it is needed to tell.
    Unclear,
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
    /// Reads the beginning of a message whose body has `len` bytes.
    pub(super) fn read(tag: u8, body: &'b [u8], len: usize) -> Self {
        let is_whole = body.len() >= len;
        let read = match tag {
            frontend::PARSE => Self::parse(body, is_whole),
            frontend::BIND => Self::bind(body),
            _ => Self::target(tag, body),
        };
        // A body that ends too early is the server's to complain of.
        read.unwrap_or(if is_whole {
            Self::Nothing
        } else {
            Self::Unclear
        })
    }

    fn parse(body: &'b [u8], is_whole: bool) -> Option<Self> {
        if body.first() == Some(&0) {
            return Some(Self::Nothing);
        }
        if !is_whole {
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
            Self::Nothing
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
            _ if name.is_empty() => Self::Nothing,
            frontend::DESCRIBE => Self::Describe(name),
            _ => Self::Close(name),
        })
    }
}
