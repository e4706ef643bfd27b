//! Reads the password file. The crate `formats` parses it.

use std::{
    env, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use pgweir_formats::pgpass::{PassfileKey, find};
use zeroize::Zeroizing;

/// The reason why a password file was not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("password file {0} is not a plain file: it was not used")]
    NoFile(PathBuf),
    #[error(
        "password file {0} has group or world access; permissions should be u=rw (0600) or less: it was not used"
    )]
    Access(PathBuf),
    #[error("password file {0} cannot be read: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
}

/// Returns the file that PGPASSFILE names, or `~/.pgpass`.
pub(super) fn default_path() -> Option<PathBuf> {
    env::var_os("PGPASSFILE")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".pgpass")))
}

/// Returns the password in a password file, or `None` if the file does not exist or has no line for the login.
pub(super) fn find_password(
    path: &Path,
    wanted: &PassfileKey<'_>,
) -> Result<Option<Zeroizing<String>>, Refused> {
    let unreadable = |error| Refused::Unreadable(path.to_owned(), error);
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(Refused::NoFile(path.to_owned()));
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(Refused::Access(path.to_owned()));
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(unreadable)?;
    Ok(find(&text, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: PassfileKey<'_> = PassfileKey {
        host: "db",
        port: 5432,
        dbname: "shop",
        user: "app",
    };

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pgpass");
        assert!(matches!(find_password(&path, &WANTED), Ok(None)));
        fs::write(&path, "*:*:*:*:secret").expect("written");
        let set =
            |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        set(0o640);
        assert!(matches!(
            find_password(&path, &WANTED),
            Err(Refused::Access(_))
        ));
        set(0o600);
        assert!(matches!(find_password(&path, &WANTED), Ok(Some(_))));
        assert!(matches!(
            find_password(folder.path(), &WANTED),
            Err(Refused::NoFile(_))
        ));
    }
}
