//! The parameters that a server reports at the end of a login.

use pgweir_wire::{Body, HEADER_LEN, Header, tag::backend};

use crate::session::{State, Tracked};

/// The parameters that a server reports at login.
#[derive(Debug, Clone)]
pub struct ServerParameters {
    /// ParameterStatus messages of all parameters but the tracked ones.
    pub(crate) messages: Vec<u8>,
    /// The values of the tracked parameters.
    pub(crate) tracked: Tracked,
    /// The session state that the extension reports, if the server has the extension.
    pub(crate) report: Option<Box<State>>,
}

impl ServerParameters {
    /// Returns the value of a parameter that is not tracked.
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
