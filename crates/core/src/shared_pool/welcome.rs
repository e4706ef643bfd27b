//! What a server says of itself at the end of a login.

use pgweir_wire::{Body, HEADER_LEN, Header, tag::backend};

use crate::session::{State, Tracked};

/// What a server says of itself at login.
#[derive(Debug, Clone)]
pub struct Welcome {
    /// Its parameters, tracked ones excepted, as ParameterStatus messages.
    pub messages: Vec<u8>,
    /// The values of the tracked ones.
    pub tracked: Tracked,
    /// The extension is there, and this is what it reports.
    pub report: Option<Box<State>>,
}

impl Welcome {
    /// The value of a parameter that is not tracked.
    #[must_use]
    pub fn parameter(&self, name: &[u8]) -> Option<&[u8]> {
        let mut rest = self.messages.as_slice();
        while let Ok(Some(header)) = Header::parse(rest) {
            let (message, after) = rest.split_at_checked(header.message_len())?;
            rest = after;
            let mut body = Body::new(&message[HEADER_LEN..]);
            if header.tag == backend::PARAMETER_STATUS && body.cstr() == Ok(name) {
                return body.cstr().ok();
            }
        }
        None
    }
}
