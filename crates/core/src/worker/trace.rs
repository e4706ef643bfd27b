//! What a verbose log says about clients' parameters, in PgBouncer's words.

use std::ops::Range;

use super::Worker;
use crate::{Actions, Level, Token, session::Tracked};

impl Worker {
    /// Does the log want details?
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }

    /// The Query in `out.scratch` that gives a server the tracked parameters of its client.
    #[cold]
    pub(super) fn trace_set(&mut self, server: Token, query: Range<usize>, out: &mut Actions) {
        // Without the message's tag, its length, and the zero at its end.
        let text = out
            .scratch
            .get(query.start + 5..query.end - 1)
            .unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        self.trace_applied(server, &text, out);
    }

    /// A text like that.
    #[cold]
    pub(super) fn trace_applied(&mut self, server: Token, text: &str, out: &mut Actions) {
        let text = format!("varcache_apply: {text}");
        out.log(Level::Debug, self.server_subject(server), text);
    }

    /// The server spells the client's values its own way, which is the client's from here on.
    #[cold]
    pub(super) fn trace_spelling(
        &mut self,
        client: Token,
        before: &Tracked,
        now: &Tracked,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(client) else {
            return;
        };
        let subject = client.subject();
        for (name, before, now) in self.directory.names().respelled(before, now) {
            let text = format!(
                "varcache_set_canonical: setting {name} to its canonical version {} -> {}",
                String::from_utf8_lossy(before),
                String::from_utf8_lossy(now)
            );
            out.log(Level::Debug, subject.clone(), text);
        }
    }
}
