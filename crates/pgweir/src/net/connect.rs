//! Opens server connections without blocking: Unix sockets, and all addresses of a host in turn.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use pgweir_core::{Address, ConnectError, Endpoint, ReadMode, Token};
use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, socket_with,
        sockopt::socket_error,
    },
};

use super::{
    io::{Io, Pending},
    poller::Key,
    table::Connection,
    timers::Timer,
};
use crate::control::Lookup;

/// The time in microseconds until a connection to a Unix socket with a full queue is tried again. The kernel does not
/// wait for room in the queue: the attempt fails at once.
const RETRY_US: u64 = 5_000;

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct Connecting {
    endpoint: Arc<Endpoint>,
    /// The addresses of the host's name.
    addresses: Option<Arc<[SocketAddr]>>,
    /// The index of the first address that was not tried.
    next: usize,
    /// The socket of the attempt in progress.
    pub(super) fd: Option<OwnedFd>,
    last_error: Option<Errno>,
}

/// The result of starting an attempt.
enum Attempt {
    Open(OwnedFd, Address),
    UnderWay(OwnedFd),
    /// The attempt has to be repeated after a moment.
    Busy,
}

impl Io {
    /// Starts to open a connection.
    pub(super) fn connect(&mut self, conn: Token, endpoint: Arc<Endpoint>) {
        let mut connecting = Connecting {
            endpoint: Arc::clone(&endpoint),
            addresses: None,
            next: 0,
            fd: None,
            last_error: None,
        };
        if let Endpoint::Tcp { host, port } = &*endpoint {
            connecting.addresses = match host.parse::<IpAddr>() {
                Ok(literal) => Some([SocketAddr::new(literal, *port)].into()),
                Err(_) => match self
                    .threads
                    .resolver
                    .lookup(host, *port, self.id, conn, self.now)
                {
                    Lookup::Known(addresses) => Some(addresses),
                    Lookup::Unknown(error) => {
                        self.pending.push_back(Pending::ConnectFailed(conn, error));
                        None
                    }
                    Lookup::Asked => None,
                },
            };
        }
        let ready = connecting.addresses.is_some() || matches!(*endpoint, Endpoint::Unix(_));
        self.table.connecting(conn, Box::new(connecting));
        if ready {
            self.attempt(conn);
        }
    }

    /// Continues after the look-up of a host, which may have failed.
    pub(super) fn resolved(
        &mut self,
        conn: Token,
        result: Result<Arc<[SocketAddr]>, ConnectError>,
    ) {
        let Some(connecting) = self.table.get_connecting(conn) else {
            return;
        };
        match result {
            Ok(addresses) => {
                connecting.addresses = Some(addresses);
                self.attempt(conn);
            }
            Err(error) => self.pending.push_back(Pending::ConnectFailed(conn, error)),
        }
    }

    /// Handles the move of a host: connections that are being opened to its old addresses try the new ones at once,
    /// instead of waiting for their timeout.
    pub(super) fn retire_servers_at(&mut self, host: &str, gone: &[IpAddr]) {
        for conn in self.table.all_connecting(|one| one.is_to(host, gone)) {
            if let Some(connecting) = self.table.get_connecting(conn) {
                let endpoint = Arc::clone(&connecting.endpoint);
                self.poller.forget(Key::Connection(conn));
                self.connect(conn, endpoint);
            }
        }
    }

    /// Handles an event of an attempt in progress.
    pub(super) fn on_connecting(&mut self, conn: Token, flags: EventFlags) {
        let Some(connecting) = self.table.get_connecting(conn) else {
            return;
        };
        let Some(fd) = connecting.fd.take() else {
            return;
        };
        match socket_error(&fd) {
            Ok(Ok(())) if flags.intersects(EventFlags::ERR | EventFlags::HUP) => {
                connecting.last_error = Some(Errno::CONNRESET);
                self.poller.forget(Key::Connection(conn));
                drop(fd);
                self.attempt(conn);
            }
            Ok(Ok(())) if flags.contains(EventFlags::OUT) => {
                let remote = connecting.address_tried();
                self.opened(conn, fd, remote, true);
            }
            Ok(Ok(())) => connecting.fd = Some(fd),
            Ok(Err(error)) | Err(error) => {
                connecting.last_error = Some(error);
                let address = connecting.address_tried();
                self.address_failed(address, error);
                self.poller.forget(Key::Connection(conn));
                drop(fd);
                self.attempt(conn);
            }
        }
    }

    /// Tries the next address, until an attempt is in progress or no address is left.
    pub(super) fn attempt(&mut self, conn: Token) {
        loop {
            let Some(connecting) = self.table.get_connecting(conn) else {
                return;
            };
            let Some(begun) = connecting.begin(&self.options.socket) else {
                let why = connecting.last_error.unwrap_or(Errno::ADDRNOTAVAIL);
                return self
                    .pending
                    .push_back(Pending::ConnectFailed(conn, connect_error(why)));
            };
            let endpoint = &connecting.endpoint;
            let address = connecting.address_tried();
            self.log.detail(self.now, || match address {
                Address::Unix => format!("connecting to {endpoint}"),
                Address::Tcp(address) => format!("connecting to {endpoint} at {address}"),
            });
            match begun {
                Ok(Attempt::Open(fd, remote)) => {
                    return match self.poller.add(&fd, Key::Connection(conn), false) {
                        Ok(()) => self.opened(conn, fd, remote, false),
                        Err(error) => self.give_up(conn, &error),
                    };
                }
                Ok(Attempt::UnderWay(fd)) => {
                    if let Err(error) = self.poller.add(&fd, Key::Connection(conn), true) {
                        return self.give_up(conn, &error);
                    }
                    connecting.fd = Some(fd);
                    return;
                }
                Ok(Attempt::Busy) => {
                    return self
                        .timers
                        .add(self.now.after(RETRY_US), Timer::Reconnect(conn));
                }
                Err(error) => connecting.last_error = Some(error),
            }
        }
    }

    fn address_failed(&mut self, address: Address, error: Errno) {
        self.log.detail(self.now, || {
            let error = std::io::Error::from(error);
            match address {
                Address::Unix => format!("cannot connect: {error}"),
                Address::Tcp(address) => format!("cannot connect to {address}: {error}"),
            }
        });
    }

    pub(super) fn give_up(&mut self, conn: Token, error: &std::io::Error) {
        self.pending.push_back(Pending::ConnectFailed(
            conn,
            ConnectError::Local(error.to_string()),
        ));
    }

    fn opened(&mut self, conn: Token, fd: OwnedFd, remote: Address, outgoing: bool) {
        let local = match remote {
            Address::Unix => Address::Unix,
            Address::Tcp(_) => getsockname(&fd)
                .ok()
                .and_then(|address| SocketAddr::try_from(address).ok())
                .map_or(remote, Address::Tcp),
        };
        let mut connection = Connection::new(fd, ReadMode::Hold, false);
        connection.output.has_room = outgoing;
        self.table.open(conn, connection);
        self.pending.push_back(Pending::Connected {
            conn,
            local,
            remote,
        });
    }
}

impl Connecting {
    /// Starts the next attempt. Returns `None` when every address was tried.
    fn begin(&mut self, options: &super::SocketOptions) -> Option<Result<Attempt, Errno>> {
        if let Endpoint::Unix(path) = &*self.endpoint {
            if self.next > 0 {
                return None;
            }
            let begun = begin_unix(path);
            self.next = usize::from(!matches!(begun, Ok(Attempt::Busy)));
            return Some(begun);
        }
        let address = *self.addresses.as_ref()?.get(self.next)?;
        self.next += 1;
        Some(begin_tcp(address, options))
    }

    /// Returns whether the attempt in progress is to one of these addresses of this host.
    fn is_to(&self, host: &str, addresses: &[IpAddr]) -> bool {
        let is_named =
            matches!(&*self.endpoint, Endpoint::Tcp { host: named, .. } if named == host);
        is_named
            && self.fd.is_some()
            && matches!(self.address_tried(), Address::Tcp(tried) if addresses.contains(&tried.ip()))
    }

    fn address_tried(&self) -> Address {
        let tried = self
            .next
            .checked_sub(1)
            .and_then(|index| self.addresses.as_ref()?.get(index));
        tried.map_or(Address::Unix, |address| Address::Tcp(*address))
    }
}

fn begin_unix(path: &str) -> Result<Attempt, Errno> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    };
    let fd = open_socket(AddressFamily::UNIX)?;
    match connect(&fd, &address) {
        Ok(()) => Ok(Attempt::Open(fd, Address::Unix)),
        Err(Errno::AGAIN) => Ok(Attempt::Busy),
        Err(Errno::INPROGRESS) => Ok(Attempt::UnderWay(fd)),
        Err(error) => Err(error),
    }
}

fn begin_tcp(address: SocketAddr, options: &super::SocketOptions) -> Result<Attempt, Errno> {
    let fd = open_socket(if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    })?;
    options
        .apply(&fd)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match connect(&fd, &address) {
        Ok(()) => Ok(Attempt::Open(fd, Address::Tcp(address))),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Attempt::UnderWay(fd)),
        Err(error) => Err(error),
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

fn connect_error(why: Errno) -> ConnectError {
    let text = std::io::Error::from(why).to_string();
    match why {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => ConnectError::Local(text),
        _ => ConnectError::Refused(text),
    }
}
