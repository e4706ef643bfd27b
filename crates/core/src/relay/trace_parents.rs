//! Looks for a `traceparent` in the texts of transactions that may be traced.

use pgweir_wire::{Body, tag::frontend};

use super::{client_to_server::ClientMessages, message::Message};

impl ClientMessages<'_> {
    /// Reads the text of a Query or Parse: a comment in it may contain the span of the application (`traceparent`).
    pub(super) fn record_text(&mut self, message: &Message<'_>) {
        let Some(recording) = self.client.request.recording_mut() else {
            return;
        };
        recording.note_message();
        let body = message.body();
        match message.tag() {
            // An incomplete text is skipped: it may be read again when it is complete.
            frontend::QUERY | frontend::PARSE if !message.is_whole() => {}
            frontend::QUERY => recording.read_text(body),
            frontend::PARSE => {
                let mut body = Body::new(body);
                if body.cstr().is_ok()
                    && let Ok(text) = body.cstr()
                {
                    recording.read_text(text);
                }
            }
            _ => {}
        }
    }
}
