//! The listening sockets, shared by all workers: opens them, inherits them from another process, accepts clients.

use std::{
    borrow::Cow,
    fmt, fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{PermissionsExt, chown},
            net::UnixStream,
        },
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::unistd::Group;

use pgweir_core::Address;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, getsockname,
        listen, socket_with, sockopt,
    },
};

use super::{
    SocketOptions,
    accept::AcceptedClient,
    inherited::{InheritedAt, Passed, examine},
    port_owner,
};

/// The settings for listening sockets.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenPlan {
    /// Host names, IP addresses or `*`. No TCP if empty.
    pub(crate) addresses: Vec<String>,
    /// The port. With 0, the system chooses one.
    pub(crate) port: u16,
    /// The number of connections that may wait in the kernel to be accepted.
    pub(crate) backlog: i32,
    /// The directory of the Unix socket (`@` for the abstract namespace). No Unix socket if empty.
    pub(crate) unix_dir: String,
    /// The permissions of the Unix socket.
    pub(crate) unix_mode: u32,
    /// The group of the Unix socket, by name or number.
    pub(crate) unix_group: Option<String>,
    /// Whether other processes may listen on the same TCP port.
    pub(crate) reuse_port: bool,
}

/// The reason why a listening socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// A name in `listen_addr` can't be resolved.
    #[error("listen_addr: cannot resolve \"{0}\": {1}")]
    Lookup(String, #[source] io::Error),
    /// The address can't be used.
    #[error("cannot listen on {0}: {1}{hint}", hint = hint(.0, .1))]
    Bind(String, #[source] io::Error),
    /// Another process answers on the Unix socket.
    #[error(
        "unix socket {0} is in use{by}: stop the pooler or PostgreSQL that listens there, or set another \
         unix_socket_dir or listen_port", by = port_owner::of_unix(.0).map(|by| format!(" by {by}")).unwrap_or_default()
    )]
    InUse(String),
    /// The group does not exist.
    #[error("unix_socket_group: there is no group \"{0}\" on this machine: name one that is there")]
    Group(String),
    /// The Unix socket can't be assigned to the group.
    #[error(
        "unix_socket_group: cannot give {0} to group \"{1}\": {2}: the user that pgweir runs as must be \
         in that group"
    )]
    Give(String, String, #[source] io::Error),
    /// A descriptor from the service manager can't be used for listening.
    #[error("socket passed from service manager (fd {0}): {1}")]
    Passed(i32, #[source] io::Error),
    /// The settings name neither a TCP address nor a Unix socket.
    #[error("nowhere to listen on: set listen_addr or unix_socket_dir")]
    Nothing,
}

impl ListenError {
    /// Returns the name of the setting that caused the error.
    pub(crate) fn key(&self) -> Option<&'static str> {
        match self {
            Self::Bind(at, _) if at.starts_with("unix:") => Some("unix_socket_dir"),
            Self::InUse(_) => Some("unix_socket_dir"),
            Self::Lookup(..) | Self::Bind(..) | Self::Nothing => Some("listen_addr"),
            Self::Group(_) | Self::Give(..) => Some("unix_socket_group"),
            Self::Passed(..) => None,
        }
    }

    /// Returns whether another process listens at the address.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            Self::Bind(_, error) => error.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }
}

/// All listening sockets.
#[derive(Debug)]
pub(crate) struct Listeners(Vec<Arc<Listener>>);

/// One listening socket. Dropping the last reference removes the file of a Unix socket.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    at: At,
    port: u16,
    /// Whether a service manager opened the socket, and keeps it open.
    passed: bool,
    /// Whether the socket belongs to the other process of an online restart.
    given: AtomicBool,
}

#[derive(Debug)]
enum At {
    Tcp(SocketAddr),
    /// The path. In the abstract namespace, the path begins with `@`.
    Unix(String),
}

impl Listeners {
    /// Opens the sockets, or takes the sockets from the service manager instead. An address that can't be used only
    /// causes a warning if another one can be used: the address may belong to a machine for which this one is the
    /// standby.
    ///
    /// # Errors
    /// When none of the addresses can be used, when a name can't be resolved, or when the Unix socket can't be opened.
    pub(crate) fn open(
        plan: &ListenPlan,
        options: &SocketOptions,
        passed: Passed,
    ) -> Result<(Self, Vec<String>), ListenError> {
        if !passed.is_empty() {
            return take_passed(passed, plan, options);
        }
        Self::open_besides(Vec::new(), plan, options)
    }

    /// Takes the sockets of the old process, as far as the settings ask for them (or a service manager lent them), and
    /// opens the missing ones. The files of the sockets belong to the old process until [`set_given`](Self::set_given).
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), or a descriptor that is no listening socket.
    pub(crate) fn inherit(
        plan: &ListenPlan,
        options: &SocketOptions,
        descriptors: impl Iterator<Item = (OwnedFd, bool)>,
    ) -> Result<(Self, Vec<String>), ListenError> {
        let mut all = Vec::new();
        for (fd, is_lent) in descriptors {
            let failed = |error| ListenError::Passed(fd.as_raw_fd(), error);
            let socket = examine(fd.try_clone().map_err(failed)?).map_err(failed)?;
            let (at, is_wanted) = match socket.at {
                InheritedAt::Tcp(address) => (At::Tcp(address), is_wanted(plan, address)),
                InheritedAt::Unix(path) => {
                    let is_wanted =
                        !plan.unix_dir.is_empty() && path == unix_path(&plan.unix_dir, plan.port);
                    (At::Unix(path), is_wanted)
                }
            };
            let port = match at {
                At::Tcp(address) => address.port(),
                At::Unix(_) => plan.port,
            };
            if !is_lent && !is_wanted {
                continue;
            }
            if let At::Tcp(_) = at {
                options.apply_to_listener(&socket.fd).map_err(failed)?;
            }
            all.push(Listener {
                fd: socket.fd,
                at,
                port,
                passed: is_lent,
                given: AtomicBool::new(true),
            });
        }
        if all.iter().any(|one| one.passed) {
            // As at the first start, the service manager decides where to listen.
            let all = all.into_iter().map(Arc::new).collect();
            return Ok((Self(all), Vec::new()));
        }
        Self::open_besides(all, plan, options)
    }

    fn open_besides(
        mut all: Vec<Listener>,
        plan: &ListenPlan,
        options: &SocketOptions,
    ) -> Result<(Self, Vec<String>), ListenError> {
        let mut failed = Vec::new();
        for name in &plan.addresses {
            open_name(name, plan, options, &mut all, &mut failed)?;
        }
        if all.is_empty() && !failed.is_empty() {
            return Err(failed.swap_remove(0));
        }
        let has_unix = all.iter().any(|one| matches!(one.at, At::Unix(_)));
        if !plan.unix_dir.is_empty() && !has_unix {
            all.push(open_unix(plan)?);
        }
        if all.is_empty() {
            return Err(ListenError::Nothing);
        }
        let warnings = failed.iter().map(ToString::to_string).collect();
        Ok((Self(all.into_iter().map(Arc::new).collect()), warnings))
    }

    /// Returns the listeners without TCP: administrators can still connect to them while the process waits for its end.
    pub(crate) fn unix_only(&self) -> Self {
        let unix = self.0.iter().filter(|one| matches!(one.at, At::Unix(_)));
        Self(unix.cloned().collect())
    }

    /// Returns an empty set of listeners.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Records whether the sockets belong to the other process. The process that owns them removes the files of Unix
    /// sockets at its end.
    pub(crate) fn set_given(&self, given: bool) {
        for listener in &self.0 {
            listener.given.store(given, Ordering::Relaxed);
        }
    }

    /// Applies changed options to connections that are accepted from now on.
    pub(crate) fn apply(&self, options: &SocketOptions) -> io::Result<()> {
        self.0
            .iter()
            .filter(|listener| matches!(listener.at, At::Tcp(_)))
            .try_for_each(|one| options.apply_to_listener(one))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter().map(|listener| &**listener)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Listener> {
        self.0.get(index).map(|listener| &**listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let At::Unix(path) = &self.at
            && !path.starts_with('@')
            && !self.passed
            && !self.given.load(Ordering::Relaxed)
        {
            // Another process may have removed the file already.
            let _ = fs::remove_file(path);
        }
    }
}

/// The number of descriptors that only clients on a Unix socket can take, so that an operator can always log in.
const FOR_OPERATORS: usize = 8;

impl Listener {
    /// Returns whether clients come by TCP.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.at, At::Tcp(_))
    }

    /// Returns how many clients of this socket are accepted beyond the limit that keeps file descriptors for servers.
    pub(super) fn spare_places(&self) -> usize {
        match self.at {
            At::Tcp(_) => 0,
            At::Unix(_) => FOR_OPERATORS,
        }
    }

    /// Returns whether a service manager opened the socket.
    pub(crate) fn is_lent(&self) -> bool {
        self.passed
    }

    /// Accepts the next client.
    pub(super) fn accept(&self) -> Result<AcceptedClient, Errno> {
        let (fd, remote) = acceptfrom_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let At::Tcp(bound) = self.at else {
            let peer = sockopt::socket_peercred(&fd).ok();
            let same_uid = peer.is_some_and(|peer| peer.uid == rustix::process::geteuid());
            let pid = peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
            return Ok(AcceptedClient {
                fd,
                remote: Address::Unix,
                local: Address::Unix,
                port: self.port,
                same_uid,
                is_internal: false,
                uid: peer.map(|peer| peer.uid.as_raw()),
                pid,
                tls: None,
            });
        };
        let remote = remote
            .and_then(|remote| SocketAddr::try_from(remote).ok())
            .ok_or(Errno::CONNABORTED)?;
        // The local address has to be asked for only if the socket listens on all addresses.
        let local = if bound.ip().is_unspecified() {
            SocketAddr::try_from(getsockname(&fd)?).unwrap_or(bound)
        } else {
            bound
        };
        Ok(AcceptedClient {
            fd,
            remote: Address::Tcp(remote),
            local: Address::Tcp(local),
            port: self.port,
            same_uid: false,
            is_internal: false,
            uid: None,
            pid: 0,
            tls: None,
        })
    }

    /// Returns the address, with the port that the system chose.
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

fn hint(at: &str, error: &io::Error) -> Cow<'static, str> {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let holder = at.parse().ok().and_then(port_owner::of_tcp);
            return match holder {
                Some(holder) => format!(": {holder} listens there; stop it, or set another listen_port").into(),
                None => ": another program listens there (as root, `ss -ltnp` shows which); stop it, or set another \
                         listen_port"
                    .into(),
            };
        }
        io::ErrorKind::AddrNotAvailable => ": this machine has no such address",
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 are for root, and the folder of a Unix socket must be writable"
        }
        io::ErrorKind::NotFound => ": unix_socket_dir must name a folder that exists",
        _ => "",
    };
    hint.into()
}

fn take_passed(
    passed: Passed,
    plan: &ListenPlan,
    options: &SocketOptions,
) -> Result<(Listeners, Vec<String>), ListenError> {
    let mut all = Vec::new();
    for (number, socket) in passed.take() {
        let failed = |error| ListenError::Passed(number, error);
        let socket = socket.map_err(failed)?;
        let (at, port) = match socket.at {
            InheritedAt::Tcp(address) => {
                options.apply_to_listener(&socket.fd).map_err(failed)?;
                (At::Tcp(address), address.port())
            }
            InheritedAt::Unix(path) => (At::Unix(path), plan.port),
        };
        all.push(Arc::new(Listener {
            fd: socket.fd,
            at,
            port,
            passed: true,
            given: AtomicBool::new(false),
        }));
    }
    let mut warnings = Vec::new();
    if !plan.addresses.is_empty() {
        warnings.push("sockets passed from service manager, listen_addr ignored".to_owned());
    }
    Ok((Listeners(all), warnings))
}

fn open_name(
    name: &str,
    plan: &ListenPlan,
    options: &SocketOptions,
    all: &mut Vec<Listener>,
    failed: &mut Vec<ListenError>,
) -> Result<(), ListenError> {
    let lookup = |error| ListenError::Lookup(name.to_owned(), error);
    for address in addresses_of(name, plan.port).map_err(lookup)? {
        if is_known(all, address) {
            continue;
        }
        match open_tcp(address, plan, options) {
            Ok(listener) => all.push(listener),
            // The machine has no IPv6.
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if name == ANY && address.is_ipv6() => {}
            Err(error) => failed.push(bind_error(address, error)),
        }
    }
    Ok(())
}

/// The value of `listen_addr` for all addresses of this machine.
const ANY: &str = "*";

/// Resolves a name or address in `listen_addr`. An IPv6 address may have brackets.
///
/// # Errors
/// When the name can't be resolved.
pub(crate) fn addresses_of(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name == ANY {
        return Ok(vec![
            (Ipv4Addr::UNSPECIFIED, port).into(),
            (Ipv6Addr::UNSPECIFIED, port).into(),
        ]);
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    Ok((bare, port).to_socket_addrs()?.collect())
}

/// Returns whether the plan asks for this address.
fn is_wanted(plan: &ListenPlan, address: SocketAddr) -> bool {
    if plan.port != 0 && plan.port != address.port() {
        return false;
    }
    plan.addresses.iter().any(|name| {
        let found = addresses_of(name, plan.port);
        found.is_ok_and(|found| found.into_iter().any(|one| is_same(one, address)))
    })
}

fn is_known(all: &[Listener], address: SocketAddr) -> bool {
    let is_there = |other: &Listener| matches!(other.at, At::Tcp(bound) if is_same(address, bound));
    all.iter().any(is_there)
}

/// Returns whether `bound` is the address `asked`, whose port may be 0.
fn is_same(asked: SocketAddr, bound: SocketAddr) -> bool {
    asked.ip() == bound.ip() && (asked.port() == 0 || asked.port() == bound.port())
}

fn bind_error(address: SocketAddr, error: Errno) -> ListenError {
    ListenError::Bind(address.to_string(), error.into())
}

fn open_tcp(
    address: SocketAddr,
    plan: &ListenPlan,
    options: &SocketOptions,
) -> Result<Listener, Errno> {
    let fd = tcp_socket(address, plan.reuse_port)?;
    options
        .apply_to_listener(&fd)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    bind(&fd, &address)?;
    listen(&fd, plan.backlog)?;
    let address = match plan.port {
        0 => SocketAddr::try_from(getsockname(&fd)?)?,
        _ => address,
    };
    Ok(Listener {
        fd,
        at: At::Tcp(address),
        port: address.port(),
        passed: false,
        given: AtomicBool::new(false),
    })
}

/// Opens a socket that is about to be bound to this address.
///
/// # Errors
/// When the system refuses a socket.
pub(crate) fn tcp_socket(address: SocketAddr, reuse_port: bool) -> Result<OwnedFd, Errno> {
    let fd = open_socket(if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    })?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    Ok(fd)
}

fn open_unix(plan: &ListenPlan) -> Result<Listener, ListenError> {
    let path = unix_path(&plan.unix_dir, plan.port);
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
    // From here on, dropping the listener removes the file.
    let listener = Listener {
        fd,
        at: At::Unix(path.clone()),
        port: plan.port,
        passed: false,
        given: AtomicBool::new(false),
    };
    if !path.starts_with('@') {
        if let Some(group) = &plan.unix_group {
            chown(&path, None, Some(group_id(group)?))
                .map_err(|error| ListenError::Give(path.clone(), group.clone(), error))?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(plan.unix_mode)).map_err(failed)?;
    }
    listen(&listener.fd, plan.backlog).map_err(|error| failed(error.into()))?;
    Ok(listener)
}

/// Returns the path of a Unix socket in this directory, with the name that libpq expects.
pub(crate) fn unix_path(dir: &str, port: u16) -> String {
    format!("{}/.s.PGSQL.{port}", dir.trim_end_matches('/'))
}

/// Returns the id of a group that is given by name or number.
pub(crate) fn group_id(name: &str) -> Result<u32, ListenError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let group = Group::from_name(name).ok().flatten();
    group
        .map(|group| group.gid.as_raw())
        .ok_or_else(|| ListenError::Group(name.to_owned()))
}

/// Removes a socket file that a process left behind, but only if no process answers on it.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse(path.display().to_string())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| ListenError::Bind(format!("unix:{}", path.display()), error)),
        // No such file, or another problem that `bind` will report.
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
