//! The password file, by libpq's rules: `host:port:database:user:password`, one login per line.

use std::{
    env, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

/// The login for which a password is searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassfileKey<'a> {
    /// `localhost` for the default folder of Unix sockets.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

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

/// Returns the password of the first line that matches.
fn find(text: &str, wanted: &PassfileKey<'_>) -> Option<Zeroizing<String>> {
    let port = wanted.port.to_string();
    let fields = [wanted.host, &port, wanted.dbname, wanted.user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for field in fields {
                rest = after_field(rest, field)?;
            }
            Some(unescape(rest))
        })
}

/// Returns the rest of `line` after its first field, if that field matches `wanted`.
fn after_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut expected = wanted.chars();
    let mut found = line.char_indices();
    while let Some((at, character)) = found.next() {
        let character = match character {
            ':' => return expected.next().is_none().then(|| &line[at + 1..]),
            '\\' => found.next()?.1,
            other => other,
        };
        if expected.next() != Some(character) {
            return None;
        }
    }
    None
}

/// Returns the password at the beginning of `rest`. A colon ends it.
fn unescape(rest: &str) -> Zeroizing<String> {
    let mut password = Zeroizing::new(String::with_capacity(rest.len()));
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' => break,
            '\\' => password.extend(characters.next()),
            other => password.push(other),
        }
    }
    password
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

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            find(text, &WANTED).as_deref().map(String::as_str),
            expected,
            "{text}"
        );
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        check("", None);
        check("db:5432:shop:app:secret", Some("secret"));
        check("*:*:*:*:secret\n", Some("secret"));
        check(
            "db:5433:shop:app:no\n*:*:shop:*:yes\ndb:5432:shop:app:late",
            Some("yes"),
        );
        check("#db:5432:shop:app:no", None);
        check("dbx:5432:shop:app:no\nd:5432:shop:app:no", None);
        check("db:5432:shop:app", None);
        check("db:5432:shop:app:", Some(""));
        check(r"db:5432:shop:app:a\:b\\c:rest", Some(r"a:b\c"));
        check(r"d\b:5432:shop:app:x", Some("x"));
        check("db:5432:shop:app:secret\r\n", Some("secret"));
    }

    #[test]
    fn a_wildcard_is_a_whole_field() {
        let wanted = PassfileKey {
            host: "a:b",
            ..WANTED
        };
        let found = find("*x:*:*:*:no\na\\:b:*:*:*:yes", &wanted);
        assert_eq!(found.as_deref().map(String::as_str), Some("yes"));
    }

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
