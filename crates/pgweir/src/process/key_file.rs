//! The file with the key from which salts of users who do not exist are made.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use pgweir_config::Settings;

/// The number of bytes of a key.
const KEY_BYTES: usize = 32;
/// The length of the file: two hexadecimal digits for each byte, and a line break.
const TEXT_BYTES: usize = 2 * KEY_BYTES + 1;

/// Returns the key in `auth_key_file`, if this is set.
///
/// # Errors
/// The path of a file that can't be read or created, or holds no key.
pub(crate) fn key(settings: &Settings) -> Result<Option<[u8; KEY_BYTES]>, (PathBuf, io::Error)> {
    let Some(path) = settings.auth_key_file.as_deref().map(Path::new) else {
        return Ok(None);
    };
    let key = read_or_create(path, rand::random());
    key.map(Some).map_err(|error| (path.to_owned(), error))
}

/// Reads the key. If there is no such file, creates it with this key.
///
/// # Errors
/// When the file can't be read or created, or holds no key.
fn read_or_create(path: &Path, fresh: [u8; KEY_BYTES]) -> io::Result<[u8; KEY_BYTES]> {
    match create(path, fresh) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
        Ok(()) => Ok(fresh),
    }
}

/// Creates the file under another name first, so that a file with this name is always complete.
fn create(path: &Path, key: [u8; KEY_BYTES]) -> io::Result<()> {
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let written = file
        .write_all(format!("{text}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::hard_link(&draft, path));
    let removed = std::fs::remove_file(&draft);
    written.and(removed)
}

fn read(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut text = String::new();
    let file = OpenOptions::new().read(true).open(path)?;
    file.take(TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
    parse(text.trim_end_matches('\n')).ok_or_else(|| {
        let what = "it must hold 64 hexadecimal digits; if it is removed, a new one is created";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_created_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key: [u8; KEY_BYTES] = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(read_or_create(&path, key).unwrap(), key);
        assert_eq!(read_or_create(&path, [1; KEY_BYTES]).unwrap(), key);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn other_files_are_no_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in ["", "ab", &"g".repeat(64), &"a".repeat(65), &"é".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            let error = read_or_create(&path, [1; KEY_BYTES]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
