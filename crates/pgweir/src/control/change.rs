//! Changes of databases and users by the HTTP API, and the file that keeps them (`api_config_file`).

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use io::Write as _;
use pgweir_config::{Changes, Config, Entries, Problems, Scope, Secret};
use pgweir_core::{Level, Snapshot};
use tokio::sync::oneshot;

use super::{
    Supervisor,
    reload::{LoadError, check_roles, read},
};
use crate::http::Opened;

/// The permissions of the file: its entries may have passwords.
const FILE_MODE: u32 = 0o600;

/// The sender of the answer to a change by the HTTP API.
pub(crate) type Reply = oneshot::Sender<Result<(), ChangeError>>;

/// Answers the HTTP request of a change.
pub(super) fn answer(reply: Reply, outcome: Result<(), ChangeError>) {
    // The request may have timed out.
    let _ = reply.send(outcome);
}

/// A change of one entry, which the HTTP thread asks for.
#[derive(Debug)]
pub(crate) struct EntryChange {
    pub(crate) scope: Scope,
    pub(crate) name: String,
    /// The entry's text as the ini file has it; `None` removes the entry.
    pub(crate) text: Option<Secret>,
    /// The text that the change was derived from; `None` if it replaces whatever is there.
    pub(crate) derived_from: Option<Secret>,
    /// Write all changes to `api_config_file`, so that they outlast RELOAD and a restart.
    pub(crate) is_saved: bool,
    pub(crate) reply: Reply,
}

/// The reason why a change was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The entry is wrong.
    #[error("{0}")]
    Wrong(Problems),
    /// The entry does not fit the rest of the configuration.
    #[error("{0}")]
    DoesNotFit(LoadError),
    /// There is no file to write to.
    #[error(
        "api_config_file is not set, so there is no file to save changes to: set it, or leave save out"
    )]
    NoFile,
    /// The file can't be written.
    #[error("api_config_file: cannot write {0}: {1}")]
    Unwritable(PathBuf, #[source] io::Error),
    /// etcd does not take the change (`config_etcd`).
    #[error("config_etcd: {0}")]
    Etcd(String),
    /// The entry has another text than the one that the change was derived from.
    #[error("another change of this entry has come first: look at the entry, and try again")]
    Conflict,
    /// The entry has a secret, which must not be in etcd.
    #[error("\"{0}\" must not be in etcd (config_etcd): put passwords into auth_file")]
    SecretInEtcd(String),
    /// Keys in etcd can't be entries; one line for each.
    #[error("{0}")]
    Keys(String),
    /// etcd has no key at all, although there were entries.
    #[error(
        "etcd has none of the keys that were there; if it has lost them, restore them, or save the entries again by the HTTP API"
    )]
    Emptied,
    /// The change is in etcd, but nothing of it is used, since another entry there is wrong.
    #[error("the entry is in etcd, but none of the entries there is used: {0}")]
    NotUsed(String),
    /// The process ends, or hands its clients over.
    #[error("this process ends, or hands its clients over to a new one: try again there")]
    Leaving,
}

/// A configuration with the changes of a file.
pub(super) struct Changed {
    pub(super) config: Config,
    pub(super) changes: Changes,
    /// The entries without the changes, if they may be needed again: entries that come from etcd can go (`config_etcd`).
    pub(super) file_entries: Entries,
}

/// Reads the file of changes that a configuration names, and applies the changes. A file that does not exist counts as
/// empty.
///
/// # Errors
/// The file can't be read, or its entries are wrong.
pub(super) fn with_changes(config: Config) -> Result<Changed, LoadError> {
    let file_entries = match config.settings.config_etcd.is_set() {
        true => config.entries.clone(),
        false => Entries::new(),
    };
    let path = config.settings.api_config_file.as_deref().map(Path::new);
    let text = path.map(|path| (read(path).map(zeroize::Zeroizing::new), path));
    let changes = match text {
        None => Changes::default(),
        Some((Ok(text), path)) => Changes::parse(&text, path)?,
        Some((Err(error), _)) if error.kind() == io::ErrorKind::NotFound => Changes::default(),
        Some((Err(error), path)) => return Err(LoadError::ApiConfigFile(path.to_owned(), error)),
    };
    Ok(Changed {
        config: match changes.is_empty() {
            true => config,
            false => config.with_changes(&changes)?,
        },
        changes,
        file_entries,
    })
}

/// Writes a file as a whole: after a failure, the file is as it was before.
fn write(path: &Path, text: &Secret) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&temporary)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
            file.write_all(text.expose().as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        });
    if written.is_err() {
        // An incomplete temporary file is useless.
        let _ = fs::remove_file(&temporary);
    }
    written
}

impl Supervisor {
    /// Changes an entry of `[databases]` or `[users]`, and answers the HTTP thread.
    pub(super) fn change_entry(&mut self, change: EntryChange, is_ending: bool) {
        let is_leaving = is_ending || self.restart.handing;
        if !is_leaving && self.is_overtaken(&change) {
            return answer(change.reply, Err(ChangeError::Conflict));
        }
        if !is_leaving && change.is_saved && self.http.entry_store.is_in_use() {
            return self.save_to_etcd(change);
        }
        let EntryChange {
            scope,
            name,
            text,
            is_saved,
            reply,
            ..
        } = change;
        let outcome = match is_leaving {
            true => Err(ChangeError::Leaving),
            false => self.put_entry(scope, &name, text, is_saved),
        };
        answer(reply, outcome);
    }

    /// Returns whether the entry has changed since the request was read.
    fn is_overtaken(&self, change: &EntryChange) -> bool {
        let Some(expected) = &change.derived_from else {
            return false;
        };
        let snapshot = self.directory.snapshot();
        let key = (change.scope, change.name.clone());
        snapshot.config.entries.get(&key) != Some(expected)
    }

    fn put_entry(
        &mut self,
        scope: Scope,
        name: &str,
        text: Option<Secret>,
        is_saved: bool,
    ) -> Result<(), ChangeError> {
        let mut step = Changes::default();
        step.set(scope, name, text.clone());
        let mut changes = self.http.changes.clone();
        changes.set(scope, name, text);
        self.put_changes(&step, is_saved.then_some(&changes))?;
        self.http.changes = changes;
        Ok(())
    }

    /// Checks whether the running configuration can be changed in these steps.
    ///
    /// # Errors
    /// An entry is wrong, or does not fit the rest of the configuration.
    pub(super) fn check_changes(
        &mut self,
        steps: &Changes,
    ) -> Result<(Config, Opened), ChangeError> {
        let before = self.directory.snapshot();
        let config = before.config.with_changes(steps);
        let config = config.map_err(ChangeError::Wrong)?;
        check_roles(&config, &before.rules).map_err(ChangeError::DoesNotFit)?;
        let opened = self.http.thread.prepare(&config.settings);
        let opened = opened.map_err(|error| ChangeError::DoesNotFit(error.into()))?;
        Ok((config, opened))
    }

    /// Puts changes in force, in these steps from the running configuration. `saved`: the changes that are written to
    /// `api_config_file` first.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(super) fn put_changes(
        &mut self,
        steps: &Changes,
        saved: Option<&Changes>,
    ) -> Result<(), ChangeError> {
        let (config, opened) = self.check_changes(steps)?;
        if let Some(saved) = saved {
            let path = config.settings.api_config_file.as_deref();
            self.save_changes(Path::new(path.ok_or(ChangeError::NoFile)?), saved)?;
        }
        let before = self.directory.snapshot();
        let news: Vec<_> = config
            .news(&before.config)
            .map(ToString::to_string)
            .collect();
        for note in news {
            self.say(Level::Warning, note);
        }
        let snapshot = Snapshot {
            config,
            users: before.users.clone(),
            rules: before.rules.clone(),
            tls: self.tls.terms(),
        };
        self.apply(Arc::new(snapshot), opened);
        Ok(())
    }

    /// Writes all changes to the file that keeps them.
    ///
    /// # Errors
    /// The file can't be written. It is as it was then.
    pub(super) fn save_changes(
        &mut self,
        path: &Path,
        changes: &Changes,
    ) -> Result<(), ChangeError> {
        write(path, &changes.file_text())
            .map_err(|error| ChangeError::Unwritable(path.to_owned(), error))?;
        self.http.saved = changes.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_a_whole_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("api.ini");
        write(&path, &Secret::new("first")).expect("it is written");
        write(&path, &Secret::new("second")).expect("it is written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "second");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        write(&folder.path().join("nowhere/api.ini"), &Secret::new("x")).expect_err("no folder");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
