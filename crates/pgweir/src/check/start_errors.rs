//! Errors that a start would fail with. The checks create no file and listen on no port.

use std::{
    fs, io,
    net::UdpSocket,
    path::{Path, PathBuf},
};

use pgweir_config::Settings;
use rustix::{
    fs::{Access, access},
    net::SocketAddrUnix,
    process::{getegid, geteuid, getgroups},
};

use crate::{
    net::{ListenError, addresses_of, group_id, unix_path},
    process::PidFile,
    setting_errors::running_user,
};

/// The results of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Errors that a start would fail with, each with its setting.
    pub(super) start_errors: Vec<(&'static str, String)>,
    /// Problems for which a start would only log a warning.
    pub(super) warnings: Vec<String>,
}

/// Checks what a start would need. `is_user`: this process runs as the user that the pooler would run as.
pub(super) fn find(settings: &Settings, is_user: bool) -> Findings {
    let mut findings = Findings::default();
    addresses(settings, &mut findings);
    findings
        .start_errors
        .extend(unix_socket(settings, is_user).map(|error| ("unix_socket_dir", error)));
    findings
        .start_errors
        .extend(unix_group(settings, is_user).map(|error| ("unix_socket_group", error)));
    let files = [
        ("logfile", &settings.logfile, Access::WRITE_OK),
        (
            "pidfile",
            &settings.pidfile,
            Access::READ_OK | Access::WRITE_OK,
        ),
    ];
    for (key, value, need) in files {
        let Some(path) = value.as_deref() else {
            continue;
        };
        let error = open_file(Path::new(path), need).err();
        let error = error.filter(|error| is_known(error, is_user));
        findings.start_errors.extend(error.map(|error| {
            let text = format!("{key} = {path}: {error}{}", hint(&error, path));
            (key, text)
        }));
    }
    let pid_file = settings.pidfile.as_deref().map(Path::new);
    let foreign = pid_file.and_then(|path| PidFile::check_usable(path).err());
    findings
        .start_errors
        .extend(foreign.map(|error| ("pidfile", error.to_string())));
    findings
}

/// Checks that each name in `listen_addr` can be resolved, and that this machine has one of the addresses.
fn addresses(settings: &Settings, findings: &mut Findings) {
    let mut is_usable = false;
    let mut failed = Vec::new();
    for name in &settings.listen_addr {
        if name == "*" {
            is_usable = true;
            continue;
        }
        // A UDP socket on any port tells whether the machine has the address, and disturbs no TCP listener.
        match addresses_of(name, 0) {
            Err(error) => {
                let error = ListenError::Lookup(name.clone(), error);
                findings
                    .start_errors
                    .push(("listen_addr", error.to_string()));
            }
            Ok(addresses) => {
                for address in addresses {
                    match UdpSocket::bind(address) {
                        Ok(_) => is_usable = true,
                        Err(error) => {
                            failed.push(ListenError::Bind(address.ip().to_string(), error))
                        }
                    }
                }
            }
        }
    }
    let failed = failed.iter().map(|error| format!("listen_addr: {error}"));
    if is_usable {
        findings.warnings.extend(failed);
    } else {
        findings
            .start_errors
            .extend(failed.map(|error| ("listen_addr", error)));
    }
    let has_unix = settings
        .unix_socket_dir
        .as_deref()
        .is_some_and(|dir| !dir.is_empty());
    if settings.listen_addr.is_empty() && !has_unix {
        findings
            .start_errors
            .push(("listen_addr", ListenError::Nothing.to_string()));
    }
}

fn unix_socket(settings: &Settings, is_user: bool) -> Option<String> {
    let dir = socket_folder(settings)?;
    let path = unix_path(dir, settings.listen_port);
    if SocketAddrUnix::new(path.as_str()).is_err() {
        return Some(format!(
            "unix_socket_dir = {dir}: the socket's path would be too long: name a folder with a shorter path"
        ));
    }
    let error = write_into(Path::new(dir)).err();
    let error = error.filter(|error| is_known(error, is_user))?;
    Some(format!(
        "unix_socket_dir = {dir}: {error}{}",
        hint(&error, &path)
    ))
}

/// Returns the folder in which the file of the Unix socket would be created.
fn socket_folder(settings: &Settings) -> Option<&str> {
    let dir = settings.unix_socket_dir.as_deref();
    dir.filter(|dir| !dir.is_empty() && !dir.starts_with('@'))
}

fn unix_group(settings: &Settings, is_user: bool) -> Option<String> {
    let name = settings.unix_socket_group.as_deref();
    let name = name.filter(|_| socket_folder(settings).is_some())?;
    let id = match group_id(name) {
        Ok(id) => id,
        Err(error) => return Some(error.to_string()),
    };
    let ours = getgroups().unwrap_or_default();
    let is_ours = geteuid().is_root()
        || ours
            .iter()
            .chain([&getegid()])
            .any(|group| group.as_raw() == id);
    (is_user && !is_ours).then(|| {
        format!(
            "unix_socket_group = {name}: user {} is not in this group: add it there, or name another group",
            running_user()
        )
    })
}

/// Returns whether the pooler would get this error, too. A missing permission of this process says nothing about the
/// permissions of another user.
fn is_known(error: &io::Error, is_user: bool) -> bool {
    is_user || error.kind() != io::ErrorKind::PermissionDenied
}

/// Checks whether this file could be opened, or created if it does not exist.
fn open_file(path: &Path, need: Access) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(access(path, need)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_into(&folder_of(path)),
        Err(error) => Err(error),
    }
}

/// Checks whether a file could be created in this folder.
fn write_into(folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// Returns advice for the end of an error message about the file at this path.
fn hint(error: &io::Error, path: &str) -> String {
    let folder = folder_of(Path::new(path));
    let folder = folder.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            format!(": {folder} must be a folder that exists")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                ": user {} must be able to write there (folder {folder})",
                running_user()
            )
        }
        io::ErrorKind::IsADirectory => ": it must be a file".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_errors(change: impl FnOnce(&mut Settings)) -> Vec<String> {
        let mut settings = Settings {
            listen_addr: vec!["127.0.0.1".to_owned()],
            ..Settings::default()
        };
        change(&mut settings);
        let found = find(&settings, true).start_errors;
        found.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn each_error_is_found_and_no_file_is_created() {
        type Change<'a> = &'a dyn Fn(&mut Settings);
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| Some(folder.path().join(name).to_str().expect("UTF-8").to_owned());
        assert_eq!(
            start_errors(|settings| {
                settings.unix_socket_dir = at("");
                settings.logfile = at("log");
                settings.pidfile = at("pid");
            }),
            Vec::<String>::new()
        );
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
        fs::write(folder.path().join("text"), "text").expect("written");
        let wrong: [(&str, Change<'_>); 8] = [
            ("unix_socket_dir = ", &|s| s.unix_socket_dir = at("none")),
            ("unix_socket_dir = ", &|s| s.unix_socket_dir = at("text")),
            ("unix_socket_group: there is no group", &|s| {
                s.unix_socket_group = Some("no such group".to_owned());
            }),
            ("logfile = ", &|s| s.logfile = at("none/log")),
            ("pidfile = ", &|s| s.pidfile = at("none/pid")),
            ("holds no process id", &|s| s.pidfile = at("text")),
            ("listen_addr: cannot listen on 192.0.2.1", &|s| {
                s.listen_addr = vec!["192.0.2.1".to_owned()];
            }),
            ("nowhere to listen on", &|s| {
                (s.listen_addr, s.unix_socket_dir) = (Vec::new(), None);
            }),
        ];
        for (said, change) in wrong {
            let found = start_errors(change);
            assert!(
                found.len() == 1 && found[0].contains(said),
                "{said}: {found:?}"
            );
        }
    }

    #[test]
    fn one_address_of_this_machine_is_enough() {
        let settings = Settings {
            listen_addr: vec!["127.0.0.1".to_owned(), "192.0.2.1".to_owned()],
            ..Settings::default()
        };
        let findings = find(&settings, true);
        assert!(findings.start_errors.is_empty());
        assert_eq!(findings.warnings.len(), 1);
    }
}
