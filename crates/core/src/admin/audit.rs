//! The audit line and the event of a console command: who gave it, from where, and whether it was carried out.

use crate::{Actions, Time, Token, events::EventKind, fault::Fault, worker::Worker};

impl Worker {
    /// Records a command that changes something. `command`: as the log shows it; `database`: the one that it is about, or
    /// empty; `failure`: why it was refused.
    pub(super) fn audit_command(
        &mut self,
        conn: Token,
        command: String,
        database: &str,
        failure: Option<&Fault>,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
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
        self.directory
            .note_event(kind, (database, &audit.user), &text, now);
        if self.snapshot.config.settings.log_audit {
            out.audit(subject, audit);
        }
    }
}
