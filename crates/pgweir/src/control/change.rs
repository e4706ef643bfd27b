//! Changes of databases and users by the HTTP API, and the file that keeps them (`api_config_file`).

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use io::Write as _;
use pgweir_config::{Changes, Config, Problems, Scope, Secret};
use pgweir_core::{Level, Snapshot};
use tokio::sync::oneshot;

use super::{
    Supervisor,
    reload::{LoadError, check_roles, read},
};

/// The permissions of the file: its entries may have passwords.
const FILE_MODE: u32 = 0o600;

/// A change of one entry, which the HTTP thread asks for.
#[derive(Debug)]
pub(crate) struct EntryChange {
    pub(crate) scope: Scope,
    pub(crate) name: String,
    /// The entry's text as the ini file has it; `None` removes the entry.
    pub(crate) text: Option<Secret>,
    /// Write all changes to `api_config_file`, so that they outlast RELOAD and a restart.
    pub(crate) is_saved: bool,
    pub(crate) reply: oneshot::Sender<Result<(), ChangeError>>,
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
    /// The process ends, or hands its clients over.
    #[error("this process ends, or hands its clients over to a new one: try again there")]
    Leaving,
}

/// Reads the file of changes that a configuration names, and applies the changes. A file that does not exist counts as
/// empty.
///
/// # Errors
/// The file can't be read, or its entries are wrong.
pub(super) fn with_changes(config: Config) -> Result<(Config, Changes), LoadError> {
    let Some(path) = config.settings.api_config_file.as_deref().map(Path::new) else {
        return Ok((config, Changes::default()));
    };
    let text = match read(path) {
        Ok(text) => zeroize::Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((config, Changes::default()));
        }
        Err(error) => return Err(LoadError::ApiConfigFile(path.to_owned(), error)),
    };
    let changes = Changes::parse(&text, path)?;
    Ok((config.with_changes(&changes)?, changes))
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
        let EntryChange {
            scope,
            name,
            text,
            is_saved,
            reply,
        } = change;
        let outcome = match is_ending || self.restart.handing {
            true => Err(ChangeError::Leaving),
            false => self.put_entry(scope, &name, text, is_saved),
        };
        // The request may have timed out.
        let _ = reply.send(outcome);
    }

    fn put_entry(
        &mut self,
        scope: Scope,
        name: &str,
        text: Option<Secret>,
        is_saved: bool,
    ) -> Result<(), ChangeError> {
        let before = self.directory.snapshot();
        let mut change = Changes::default();
        change.set(scope, name, text.clone());
        let config = before.config.with_changes(&change);
        let config = config.map_err(ChangeError::Wrong)?;
        check_roles(&config, &before.rules).map_err(ChangeError::DoesNotFit)?;
        let opened = self.http.thread.prepare(&config.settings);
        let opened = opened.map_err(|error| ChangeError::DoesNotFit(error.into()))?;
        let mut changes = self.http.changes.clone();
        changes.set(scope, name, text);
        if is_saved {
            let path = config.settings.api_config_file.as_deref();
            let path = Path::new(path.ok_or(ChangeError::NoFile)?);
            write(path, &changes.file_text())
                .map_err(|error| ChangeError::Unwritable(path.to_owned(), error))?;
        }
        let news: Vec<_> = config
            .news(&before.config)
            .map(ToString::to_string)
            .collect();
        for note in news {
            self.say(Level::Warning, note);
        }
        self.http.changes = changes;
        let snapshot = Snapshot {
            config,
            users: before.users.clone(),
            rules: before.rules.clone(),
            tls: self.tls.terms(),
        };
        self.apply(Arc::new(snapshot), opened);
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
