//! Puts the entries of etcd in force, and keeps them in `api_config_file`.

use std::path::Path;

use pgweir_config::Changes;
use pgweir_core::{Level, shared::events::EventKind};

use super::{EntryWrite, EtcdEntries, secret_key};
use crate::control::{ChangeError, EntryChange, Supervisor, change::answer};

impl Supervisor {
    /// Checks all entries of etcd together, and puts them in force; if one of them is wrong, the last correct ones stay.
    pub(in crate::control) fn take_etcd_entries(&mut self, entries: EtcdEntries, is_ending: bool) {
        let EtcdEntries {
            read,
            revision,
            is_unused,
            reply,
        } = entries;
        if is_ending {
            if let Some(reply) = reply {
                answer(reply, Err(ChangeError::Leaving));
            }
            return;
        }
        if !std::mem::replace(&mut self.http.entry_store.view.is_connected, true) {
            self.say(Level::Log, "config_etcd: etcd answers");
        }
        let outcome = read
            .map_err(|lines| ChangeError::Keys(lines.join("\n")))
            .and_then(|changes| self.use_etcd_entries(changes, is_unused));
        self.http.entry_store.view.revision = revision.max(0).cast_unsigned();
        self.http.entry_store.view.is_refused = outcome.is_err();
        self.http.entry_store.view.entries = self.http.changes.len() as u64;
        self.directory
            .fleet()
            .publish_entries(self.http.entry_store.view);
        if let Err(error) = &outcome {
            let text = error.to_string();
            for line in text.lines() {
                self.say(Level::Error, format!("config_etcd: {line}"));
            }
            let kept = "config_etcd: none of the entries in etcd is used, the last correct ones stay in force";
            self.say(Level::Error, kept);
            self.note_event(EventKind::ReloadFailed, &text);
        }
        if let Some(reply) = reply {
            let outcome = outcome.map_err(|error| ChangeError::NotUsed(error.to_string()));
            answer(reply, outcome);
        }
    }

    fn use_etcd_entries(&mut self, changes: Changes, is_unused: bool) -> Result<(), ChangeError> {
        if is_unused && !self.http.changes.is_empty() {
            return Err(ChangeError::Emptied);
        }
        let before = self.directory.snapshot();
        let (running, file) = (&before.config.entries, &self.http.file_entries);
        let steps = changes.since(&self.http.changes, file, running);
        let (count, changed) = (changes.len(), steps.len());
        if changed > 0 {
            self.put_changes(&steps, None)?;
        }
        if self.http.saved != changes {
            let path = before.config.settings.api_config_file.as_deref();
            let written = path.map(|path| self.save_changes(Path::new(path), &changes));
            if let Some(Err(error)) = written {
                // The entries are correct, so clients can use them; only a start without etcd would not know them.
                self.say(Level::Error, format!("config_etcd: {error}"));
            }
        }
        self.http.changes = changes;
        if changed > 0 {
            let text = format!("config_etcd: {changed} entries have changed, etcd has {count}");
            self.note_event(EventKind::Reloaded, &text);
            self.say(Level::Log, text);
        }
        Ok(())
    }

    /// Notes that etcd can't be read: the entries stay as they are.
    pub(in crate::control) fn note_etcd_entries_failed(&mut self, failure: &str) {
        self.http.entry_store.view.is_connected = false;
        self.directory
            .fleet()
            .publish_entries(self.http.entry_store.view);
        let text = format!("config_etcd: {failure}; the last correct entries stay in force");
        self.say(Level::Warning, text);
    }

    /// Writes a change by the HTTP API to etcd, after a check here. The thread of the entries answers the request.
    pub(in crate::control) fn save_to_etcd(&mut self, change: EntryChange) {
        let EntryChange {
            scope,
            name,
            text,
            reply,
            ..
        } = change;
        let secret = text
            .as_ref()
            .and_then(|text| secret_key(scope, text.expose()));
        let mut step = Changes::default();
        step.set(scope, &name, text.clone());
        let checked = match secret {
            Some(key) => Err(ChangeError::SecretInEtcd(key)),
            None => self.check_changes(&step).map(drop),
        };
        match checked {
            Ok(()) => self.http.entry_store.write(EntryWrite {
                scope,
                name,
                text,
                revision: self.http.entry_store.view.revision.cast_signed(),
                reply,
            }),
            Err(error) => answer(reply, Err(error)),
        }
    }
}
