//! Listening sockets that a service manager has opened for us (socket activation).

use std::{
    fmt, io,
    net::SocketAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::{
    io::{FdFlags, fcntl_setfd, ioctl_fionbio},
    net::{AddressFamily, SocketAddrAny, SocketAddrUnix, getsockname, sockopt},
};

/// The first descriptor that is passed.
const FIRST: RawFd = 3;
/// More are not looked for.
const COUNT_MAX: RawFd = 64;

/// A socket that was passed to us.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) fd: OwnedFd,
    pub(super) at: InheritedAt,
}

#[derive(Debug)]
pub(super) enum InheritedAt {
    Tcp(SocketAddr),
    /// As we show it: in the abstract namespace it begins with `@`.
    Unix(String),
}

/// The sockets passed to this process, by what the environment says (`LISTEN_PID`, `LISTEN_FDS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed(RawFd);

impl Passed {
    /// There are none.
    #[cfg(test)]
    pub(super) const NONE: Self = Self(0);

    /// None are passed if the process id is not ours.
    ///
    /// The process itself must call this, once, before it opens anything.
    pub(crate) fn by_environment() -> Self {
        let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        let ours = number("LISTEN_PID") == Some(std::process::id());
        let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or_default();
        Self(RawFd::try_from(count).unwrap_or_default().min(COUNT_MAX))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Makes the sockets ours.
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

/// What a socket that comes from elsewhere is.
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
