//! `pgweir import pgcat.toml`: converts a configuration of PgCat to an ini file and a userlist.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use pgweir_formats::pgcat::{self, ConvertError};
use zeroize::Zeroizing;

/// The names of the files.
const INI: &str = "pgweir.ini";
const USERLIST: &str = "userlist.txt";

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{0}: cannot be read: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0}:{1}")]
    Convert(PathBuf, #[source] ConvertError),
    #[error("{0}: cannot be written: {1}")]
    Write(PathBuf, #[source] io::Error),
}

/// Converts PgCat's file. Prints the results, or writes them to files in `folder`.
///
/// # Errors
/// When PgCat's file can't be read or parsed, or one of the new files already exists.
pub(crate) fn run(source: &Path, folder: Option<&Path>) -> Result<(), ImportError> {
    let text = fs::read_to_string(source).map(Zeroizing::new);
    let text = text.map_err(|error| ImportError::Read(source.to_owned(), error))?;
    let auth_file = folder.map_or(PathBuf::from(USERLIST), |folder| folder.join(USERLIST));
    let imported = pgcat::convert(&text, &auth_file.display().to_string())
        .map_err(|error| ImportError::Convert(source.to_owned(), error))?;
    let Some(folder) = folder else {
        let mut out = io::stdout().lock();
        let printed = write!(
            out,
            "{}\n; ---- {USERLIST} ----\n{}",
            *imported.ini, *imported.userlist
        );
        return printed.map_err(|error| ImportError::Write("standard output".into(), error));
    };
    let [ini, userlist] = [INI, USERLIST].map(|name| folder.join(name));
    // Creates both files before it writes to any: creation fails if the file already exists.
    let mut ini_file = create(&ini)?;
    let mut userlist_file = create(&userlist).inspect_err(|_| drop(fs::remove_file(&ini)))?;
    let write = |file: &mut File, text: &str| file.write_all(text.as_bytes());
    write(&mut ini_file, &imported.ini).map_err(|error| ImportError::Write(ini, error))?;
    write(&mut userlist_file, &imported.userlist)
        .map_err(|error| ImportError::Write(userlist, error))
}

/// Creates a file that only this user can read, since it has passwords.
fn create(path: &Path) -> Result<File, ImportError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| ImportError::Write(path.to_owned(), error))
}
