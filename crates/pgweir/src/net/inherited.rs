//! Listening sockets that a service manager opened for pgweir (socket activation).

use std::{
    fmt, io,
    net::SocketAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::{
    io::{FdFlags, fcntl_setfd, ioctl_fionbio},
    net::{AddressFamily, SocketAddrAny, SocketAddrUnix, getsockname, sockopt},
};

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// The largest number of passed descriptors.
const COUNT_MAX: RawFd = 64;

/// A passed socket.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) fd: OwnedFd,
    pub(super) at: InheritedAt,
}

#[derive(Debug)]
pub(super) enum InheritedAt {
    Tcp(SocketAddr),
    /// The path, as pgweir shows it: in the abstract namespace, the path begins with `@`.
    Unix(String),
}

/// The sockets passed to this process, according to the environment (`LISTEN_PID`, `LISTEN_FDS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed(RawFd);

impl Passed {
    /// Returns an empty set of sockets.
    #[cfg(test)]
    pub(super) const NONE: Self = Self(0);

    /// Reads the environment. No sockets are passed if `LISTEN_PID` is not this process's id.
    ///
    /// The caller must call this function once, before it opens any file.
    pub(crate) fn by_environment() -> Self {
        let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        let ours = number("LISTEN_PID") == Some(std::process::id());
        let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or_default();
        Self(RawFd::try_from(count).unwrap_or_default().min(COUNT_MAX))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes ownership of the sockets.
    ///
    /// # Errors
    /// When one of them is no listening socket.
    #[allow(
        unsafe_code,
        reason = "there is no other way to a descriptor that came with the process"
    )]
    pub(super) fn take(self) -> impl Iterator<Item = (RawFd, io::Result<Inherited>)> {
        (FIRST..FIRST + self.0).map(|number| {
            // SAFETY: the protocol of LISTEN_FDS gives these descriptors to the process that
            // LISTEN_PID names, open from its start. `Passed` is made of it once, in `main`'s thread,
            // and nobody else in this program takes descriptors by number.
            let fd = unsafe { OwnedFd::from_raw_fd(number) };
            (number, examine(fd))
        })
    }
}

/// Determines the kind of a socket that another process opened.
pub(super) fn examine(fd: OwnedFd) -> io::Result<Inherited> {
    let listens = sockopt::socket_acceptconn(fd.as_fd())?;
    if !listens {
        return Err(io::Error::other("it does not listen"));
    }
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&fd, true)?;
    let name = getsockname(&fd)?;
    let at = match sockopt::socket_domain(fd.as_fd())? {
        AddressFamily::UNIX => InheritedAt::Unix(unix_name(name)),
        AddressFamily::INET | AddressFamily::INET6 => {
            InheritedAt::Tcp(SocketAddr::try_from(name).map_err(io::Error::from)?)
        }
        _ => return Err(io::Error::other("it is neither TCP nor a Unix socket")),
    };
    Ok(Inherited { fd, at })
}

fn unix_name(name: SocketAddrAny) -> String {
    let Ok(name) = SocketAddrUnix::try_from(name) else {
        return String::new();
    };
    match (name.path(), name.abstract_name()) {
        (Some(path), _) => path.to_string_lossy().into_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => String::new(),
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
