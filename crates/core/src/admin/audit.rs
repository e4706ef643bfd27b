//! The audit line and the event of a console command: which user gave it, from which address, and whether it was
//! carried out.

use super::Admin;
use crate::{Actions, Token, base::fault::Fault, shared::events::EventKind};

impl Admin<'_> {
    /// Records a command that changes something. `command`: as the log shows it; `database`: the one that it is about, or
    /// empty; `failure`: why it was refused.
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
        // The HTTP listener records its own commands: it knows who has sent the request.
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
