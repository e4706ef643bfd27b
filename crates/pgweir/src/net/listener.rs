//! The listening sockets, shared by all workers.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
};

use pgweir_core::Address;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, getsockname,
        listen, socket_with, sockopt,
    },
};

use super::{SocketOptions, accept::Arrival};

/// Where to listen.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenPlan {
    /// Names, literals or `*`; none for no TCP.
    pub(crate) addresses: Vec<String>,
    /// The port; 0 lets the system choose.
    pub(crate) port: u16,
    /// How many connections wait in the kernel to be accepted.
    pub(crate) backlog: i32,
    /// The directory of the Unix socket (`@` for the abstract namespace); empty for none.
    pub(crate) unix_dir: String,
    /// The permissions of the Unix socket.
    pub(crate) unix_mode: u32,
}

/// Why a listening socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// A name in `listen_addr` stands for nothing.
    #[error("listen_addr: cannot resolve \"{0}\": {1}")]
    Lookup(String, #[source] io::Error),
    /// The address can't be used.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, #[source] io::Error),
    /// Somebody answers on the Unix socket.
    #[error("unix socket {0} is in use, is another instance running?")]
    InUse(String),
    /// Neither TCP nor a Unix socket is asked for.
    #[error("nothing to listen on: set listen_addr or unix_socket_dir")]
    Nothing,
}

/// All listening sockets. The file of a Unix socket goes with the last owner.
#[derive(Debug)]
pub(crate) struct Listeners(Vec<Listener>);

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    at: At,
    port: u16,
}

#[derive(Debug)]
enum At {
    Tcp(SocketAddr),
    /// The path; in the abstract namespace it begins with `@`.
    Unix(String),
}

impl Listeners {
    /// Opens the sockets.
    ///
    /// # Errors
    /// The first that can't be opened. Where `*` asks for both kinds of addresses, one will do.
    pub(crate) fn open(plan: &ListenPlan, options: &SocketOptions) -> Result<Self, ListenError> {
        let mut all = Vec::new();
        for name in &plan.addresses {
            open_name(name, plan, options, &mut all)?;
        }
        if !plan.unix_dir.is_empty() {
            all.push(open_unix(plan)?);
        }
        if all.is_empty() {
            return Err(ListenError::Nothing);
        }
        Ok(Self(all))
    }

    /// Applies changed options; connections accepted from now on have them.
    pub(crate) fn apply(&self, options: &SocketOptions) -> io::Result<()> {
        self.0
            .iter()
            .filter(|listener| matches!(listener.at, At::Tcp(_)))
            .try_for_each(|one| options.apply(one))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Listener> {
        self.0.get(index)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &self.0 {
            if let At::Unix(path) = &listener.at
                && !path.starts_with('@')
            {
                // Somebody may have removed it before us.
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Listener {
    /// Takes the next client.
    pub(super) fn accept(&self) -> Result<Arrival, Errno> {
        let (fd, remote) = acceptfrom_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let At::Tcp(bound) = self.at else {
            let same_uid = sockopt::socket_peercred(&fd)
                .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
            return Ok(Arrival {
                fd,
                remote: Address::Unix,
                local: Address::Unix,
                port: self.port,
                same_uid,
            });
        };
        let remote = remote
            .and_then(|remote| SocketAddr::try_from(remote).ok())
            .ok_or(Errno::CONNABORTED)?;
        // Only a socket for all addresses has to be asked which one it was.
        let local = if bound.ip().is_unspecified() {
            SocketAddr::try_from(getsockname(&fd)?).unwrap_or(bound)
        } else {
            bound
        };
        Ok(Arrival {
            fd,
            remote: Address::Tcp(remote),
            local: Address::Tcp(local),
            port: self.port,
            same_uid: false,
        })
    }

    /// The address that the system chose, where the port was left open.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.fd).ok()?).ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Tcp(address) => address.fmt(f),
            At::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

fn open_name(
    name: &str,
    plan: &ListenPlan,
    options: &SocketOptions,
    all: &mut Vec<Listener>,
) -> Result<(), ListenError> {
    if name == "*" {
        let any = [
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, plan.port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, plan.port)),
        ];
        let mut failed = None;
        let before = all.len();
        for address in any {
            match open_tcp(address, plan, options) {
                Ok(listener) => all.push(listener),
                // A machine without one of the two kinds.
                Err(error @ (Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) => {
                    failed = Some((address, error))
                }
                Err(error) => return Err(bind_error(address, error)),
            }
        }
        return match failed {
            Some((address, error)) if all.len() == before => Err(bind_error(address, error)),
            _ => Ok(()),
        };
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let lookup = |error| ListenError::Lookup(name.to_owned(), error);
    let addresses = (bare, plan.port).to_socket_addrs().map_err(lookup)?;
    for address in addresses {
        let known = all
            .iter()
            .any(|other| matches!(other.at, At::Tcp(bound) if bound == address));
        if !known {
            all.push(open_tcp(address, plan, options).map_err(|error| bind_error(address, error))?);
        }
    }
    Ok(())
}

fn bind_error(address: SocketAddr, error: Errno) -> ListenError {
    ListenError::Bind(address.to_string(), error.into())
}

fn open_tcp(
    address: SocketAddr,
    plan: &ListenPlan,
    options: &SocketOptions,
) -> Result<Listener, Errno> {
    let fd = open_socket(if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    })?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    options
        .apply(&fd)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    bind(&fd, &address)?;
    listen(&fd, plan.backlog)?;
    Ok(Listener {
        fd,
        at: At::Tcp(address),
        port: plan.port,
    })
}

fn open_unix(plan: &ListenPlan) -> Result<Listener, ListenError> {
    let path = format!(
        "{}/.s.PGSQL.{}",
        plan.unix_dir.trim_end_matches('/'),
        plan.port
    );
    let failed = |error: io::Error| ListenError::Bind(format!("unix:{path}"), error);
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => {
            remove_stale(Path::new(&path))?;
            SocketAddrUnix::new(path.as_str())
        }
    };
    let address = address.map_err(|error| failed(error.into()))?;
    let fd = open_socket(AddressFamily::UNIX).map_err(|error| failed(error.into()))?;
    bind(&fd, &address).map_err(|error| failed(error.into()))?;
    if !path.starts_with('@') {
        fs::set_permissions(
            PathBuf::from(&path),
            fs::Permissions::from_mode(plan.unix_mode),
        )
        .map_err(failed)?;
    }
    listen(&fd, plan.backlog).map_err(|error| failed(error.into()))?;
    Ok(Listener {
        fd,
        at: At::Unix(path),
        port: plan.port,
    })
}

/// Removes a socket file that a process left behind, but only if nobody answers on it.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse(path.display().to_string())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| ListenError::Bind(path.display().to_string(), error)),
        // No such file, or something else that `bind` will complain about.
        Err(_) => Ok(()),
    }
}

fn open_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}
