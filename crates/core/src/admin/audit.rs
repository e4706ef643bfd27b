//! The audit line and the event of a console command: which user gave it, from which address, and whether it was
//! carried out.

use super::Admin;
use crate::{Actions, Token, base::fault::Fault, shared::events::EventKind};

impl Admin<'_> {
    /// Records a command that changes something. `command` is the text for the log, `database` the database that the
    /// command is about (may be empty), and `failure` the reason of a refusal.
    pub(super) fn audit_command(
        &mut self,
        conn: Token,
        command: String,
        database: &str,
        failure: Option<&Fault>,
        out: &mut Actions,
    ) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        // The HTTP thread records commands over HTTP itself, since it knows the sender of the request.
        if client.origin.is_internal {
            return;
        }
        let outcome = failure.map_or_else(|| "ok".to_owned(), Fault::to_string);
        let audit = client.audit("command", command, outcome);
        let subject = client.subject();
        let (kind, text) = match failure {
            None => (EventKind::Command, audit.command.clone()),
            Some(fault) => (
                EventKind::CommandFailed,
                format!("{}: {fault}", audit.command),
            ),
        };
        self.env
            .directory
            .note_event(kind, (database, &audit.user), &text, self.env.now);
        if self.env.snapshot.config.settings.log_audit {
            out.audit(subject, audit);
        }
    }
}
