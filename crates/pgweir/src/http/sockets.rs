//! The listening sockets for HTTP.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use pgweir_config::{HttpAddress, Settings};
use rustix::{
    io::Errno,
    net::{bind, listen},
};

use crate::net::{addresses_of, group_id, port_owner, tcp_socket};

/// The length of the kernel's queue of connections that are not accepted yet.
const BACKLOG: i32 = 128;

/// The reason why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpListenError {
    /// The host name has no address.
    #[error("http_listen: cannot resolve \"{0}\": {1}")]
    Lookup(HttpAddress, #[source] io::Error),
    /// The address can't be used.
    #[error("http_listen: cannot listen on {0}: {1}{hint}", hint = hint(.0, .1))]
    Bind(HttpAddress, #[source] io::Error),
}

/// The sockets of one address of `http_listen`.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The address. This reference lives as long as one of the sockets is open.
    pub(super) address: Arc<HttpAddress>,
    pub(super) sockets: Vec<Socket>,
}

/// A listening socket. The file of a Unix socket is removed when this is dropped.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, as long as it is the one that this process has made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// The device and the inode of the file.
    identity: (u64, u64),
}

/// The processes that may already listen at an address where a socket is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressUse {
    /// No process.
    Refused,
    /// The process before this one, or this process on an overlapping address.
    Expected,
}

impl Bound {
    /// Opens the sockets of an address.
    ///
    /// # Errors
    /// None of its sockets can be opened.
    pub(crate) fn open(
        address: &HttpAddress,
        settings: &Settings,
        others: AddressUse,
    ) -> Result<Self, HttpListenError> {
        let failed = |error| HttpListenError::Bind(address.clone(), error);
        let sockets = match address {
            HttpAddress::Unix(path) => vec![open_unix(path, settings, others).map_err(failed)?],
            HttpAddress::Tcp { host, port } => {
                let lookup = |error| HttpListenError::Lookup(address.clone(), error);
                let found = addresses_of(host, *port).map_err(lookup)?;
                let mut sockets = Vec::new();
                for one in found {
                    match open_tcp(one, others) {
                        Ok(socket) => sockets.push(socket),
                        // The machine has no IPv6.
                        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
                            if host == "*" && one.is_ipv6() => {}
                        Err(error) => return Err(failed(error.into())),
                    }
                }
                sockets
            }
        };
        Ok(Self {
            address: Arc::new(address.clone()),
            sockets,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            // Another process may have removed the file meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn hint(address: &HttpAddress, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by = match address {
                HttpAddress::Unix(path) => port_owner::of_unix(path),
                HttpAddress::Tcp { host, port } => addresses_of(host, *port)
                    .ok()
                    .and_then(|found| found.into_iter().find_map(port_owner::of_tcp)),
            };
            let by = by.map_or("another program".to_owned(), |by| by.to_string());
            format!(": {by} listens there; stop it, or set another address")
        }
        io::ErrorKind::AddrNotAvailable => ": this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 are for root, and the folder of a Unix socket must be writable"
                .to_owned()
        }
        _ => String::new(),
    }
}

fn open_tcp(address: SocketAddr, others: AddressUse) -> Result<Socket, Errno> {
    if others == AddressUse::Refused {
        // Two sockets that both allow sharing can share an address. So only a socket that does not allow sharing shows
        // whether another socket listens.
        bind(&tcp_socket(address, false)?, &address)?;
    }
    let fd = tcp_socket(address, true)?;
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    Ok(Socket::Tcp(TcpListener::from(fd)))
}

fn open_unix(path: &str, settings: &Settings, others: AddressUse) -> io::Result<Socket> {
    let path = Path::new(path);
    if others == AddressUse::Refused && UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // The socket gets another name first. Then it replaces the file that a process has left behind, or the file of a
    // process that still listens, whose clients notice nothing.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    let outcome = publish(&temporary, path, settings);
    if outcome.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    let identity = outcome?;
    listener.set_nonblocking(true)?;
    let path = path.to_owned();
    Ok(Socket::Unix(listener, SocketFile { path, identity }))
}

/// Gives a socket's file its group, its permissions and its name.
fn publish(temporary: &Path, path: &Path, settings: &Settings) -> io::Result<(u64, u64)> {
    if let Some(group) = &settings.unix_socket_group {
        let group = group_id(group).map_err(|error| io::Error::other(error.to_string()))?;
        chown(temporary, None, Some(group))?;
    }
    let mode = fs::Permissions::from_mode(settings.unix_socket_mode.0);
    fs::set_permissions(temporary, mode)?;
    if fs::symlink_metadata(path).is_ok_and(|found| !is_socket(&found)) {
        let what = "there is a file of that name, which is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let metadata = fs::symlink_metadata(temporary)?;
    fs::rename(temporary, path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &Path) -> HttpAddress {
        HttpAddress::Unix(path.to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn the_file_of_a_socket_goes_with_it_unless_another_took_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("http.sock");
        let settings = Settings::default();
        let open = |others| Bound::open(&unix(&path), &settings, others);
        let first = open(AddressUse::Refused).expect("it is free");
        let taken = open(AddressUse::Refused).expect_err("it is taken");
        assert!(taken.to_string().contains("listens there"), "{taken}");
        let second = open(AddressUse::Expected).expect("it replaces the first");
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        fs::write(&path, "important").expect("a file");
        let refused = Bound::open(&unix(&path), &Settings::default(), AddressUse::Refused);
        assert!(refused.is_err());
        assert_eq!(fs::read_to_string(&path).expect("a file"), "important");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn an_address_in_use_is_refused_unless_it_is_expected() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = other.local_addr().expect("an address").port();
        let address = HttpAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        };
        let settings = Settings::default();
        let open = |others| Bound::open(&address, &settings, others);
        open(AddressUse::Refused).expect_err("it is taken");
        drop(other);
        let first = open(AddressUse::Refused).expect("it is free");
        open(AddressUse::Refused).expect_err("it is ours");
        let second = open(AddressUse::Expected).expect("both allow it");
        drop((first, second));
    }
}
