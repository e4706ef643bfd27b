//! Log lines about clients' parameters at `verbose`, with PgBouncer's texts.

use std::ops::Range;

use super::Worker;
use crate::{Actions, Level, Token, session::Tracked};

impl Worker {
    /// Returns whether details are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }

    /// Logs the Query in `out.scratch` that gives a server the tracked parameters of its client.
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

    /// Logs a text that gives a server its client's parameters.
    #[cold]
    pub(super) fn trace_applied(&mut self, server: Token, text: &str, out: &mut Actions) {
        let text = format!("varcache_apply: {text}");
        out.log(Level::Debug, self.server_subject(server), text);
    }

    /// Logs values that the server spells in another way than the client; the client's values become the server's.
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
