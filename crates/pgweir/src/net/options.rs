//! Socket options and other settings of the driver that a RELOAD can change.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, socket, sockopt};

use crate::tls::Contexts;

/// The settings that the driver needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetOptions {
    /// Options for TCP connections on both sides.
    pub(crate) socket: SocketOptions,
    /// The time for which unsent bytes of a closed connection are kept, in microseconds.
    pub(crate) close_flush_us: u64,
    /// The time for logins and disconnects in one turn of the event loop, in microseconds. 0: one event in each turn.
    pub(crate) login_slice_us: u64,
    /// The TLS contexts of both sides.
    pub(crate) tls: Contexts,
    /// The largest number of clients with a file descriptor, over all workers, so that some are left for servers.
    /// `None`: no limit.
    pub(crate) clients_max: Option<usize>,
}

/// Options of TCP sockets. Zero means the system's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SocketOptions {
    /// Whether idle connections are probed.
    pub(crate) keepalive: bool,
    /// The number of probes that may be lost.
    pub(crate) keepcnt: u32,
    /// The time for which a connection is idle before the first probe.
    pub(crate) keepidle: Duration,
    /// The time between probes.
    pub(crate) keepintvl: Duration,
    /// The time for which sent data may stay without acknowledgement, in milliseconds.
    pub(crate) user_timeout_ms: u32,
    /// The size of the kernel's buffers for one direction, in bytes.
    pub(crate) buffer: usize,
    /// Whether a listening socket reports a new connection only with its first bytes.
    pub(crate) defer_accept: bool,
}

impl SocketOptions {
    /// Applies the options to a listening socket. Every connection that is accepted from the socket inherits them,
    /// which saves system calls per connection.
    ///
    /// # Errors
    /// The first option that the system refuses.
    pub(crate) fn apply_to_listener(&self, fd: impl AsFd) -> io::Result<()> {
        self.with_defaults()?.apply(&fd)?;
        sockopt::set_tcp_user_timeout(&fd, self.user_timeout_ms)?;
        set_defer_accept(&fd, self.defer_accept)
    }

    /// Returns the options with the system's defaults in place of zeros, as the socket may have had other values
    /// before.
    fn with_defaults(&self) -> io::Result<Self> {
        let fresh = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let mut options = self.clone();
        if options.keepcnt == 0 {
            options.keepcnt = sockopt::tcp_keepcnt(&fresh)?;
        }
        if options.keepidle.is_zero() {
            options.keepidle = sockopt::tcp_keepidle(&fresh)?;
        }
        if options.keepintvl.is_zero() {
            options.keepintvl = sockopt::tcp_keepintvl(&fresh)?;
        }
        Ok(options)
    }

    /// Applies the options to a connection.
    ///
    /// # Errors
    /// The first option that the system refuses.
    pub(crate) fn apply(&self, fd: impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd();
        sockopt::set_tcp_nodelay(fd, true)?;
        sockopt::set_socket_keepalive(fd, self.keepalive)?;
        if self.keepalive {
            if self.keepcnt > 0 {
                sockopt::set_tcp_keepcnt(fd, self.keepcnt)?;
            }
            if !self.keepidle.is_zero() {
                sockopt::set_tcp_keepidle(fd, self.keepidle)?;
            }
            if !self.keepintvl.is_zero() {
                sockopt::set_tcp_keepintvl(fd, self.keepintvl)?;
            }
        }
        if self.user_timeout_ms > 0 {
            sockopt::set_tcp_user_timeout(fd, self.user_timeout_ms)?;
        }
        if self.buffer > 0 {
            sockopt::set_socket_recv_buffer_size(fd, self.buffer)?;
            sockopt::set_socket_send_buffer_size(fd, self.buffer)?;
        }
        Ok(())
    }
}

/// Makes the kernel hold a new connection until its first bytes have arrived (for about a second, then again at the
/// peer's next packet).
fn set_defer_accept(fd: impl AsFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, on.into())
}

/// Makes a socket report bytes only when this number of them has arrived (`SO_RCVLOWAT`), or the connection has ended.
pub(super) fn set_receive_mark(fd: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

#[allow(
    unsafe_code,
    reason = "no crate has these options in a safe form: one saves a wakeup and a read for each login, the other wakeups \
              while a large result arrives"
)]
fn set_option(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is an int
    // that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
