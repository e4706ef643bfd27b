//! Connects to a server once, to find out whether it can be reached.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    time::Duration,
};

use pgweir_core::Endpoint;

/// The time to wait for each address.
const PATIENCE: Duration = Duration::from_secs(5);

/// A TCP connection, or one to a Unix socket.
pub(super) type Stream = Box<dyn ReadWrite>;

/// A connection that can be read and written.
pub(super) trait ReadWrite: Read + Write + Send {
    /// Sets the longest time that one read or write may take.
    fn limit(&self, patience: Duration) -> io::Result<()>;
}

impl ReadWrite for TcpStream {
    fn limit(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl ReadWrite for UnixStream {
    fn limit(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// Connects to the server once. Returns a message if that fails. Blocks.
pub(crate) fn complaint(host: &str, port: u16) -> Option<String> {
    let error = connect(host, port, PATIENCE).err()?;
    let place = Endpoint::of(host, port);
    let hint = hint(&error);
    Some(format!(
        "cannot reach the server at {place}: {error}: {hint}"
    ))
}

/// Returns the probable cause, as a question.
pub(super) fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "is PostgreSQL running there, on this port?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "is there a firewall in between?",
        io::ErrorKind::PermissionDenied => "is this user allowed to use the socket?",
        _ => "is the host's name right?",
    }
}

/// Opens a connection to the first address that answers. `patience` is the time for each address.
pub(super) fn connect(host: &str, port: u16, patience: Duration) -> io::Result<Stream> {
    let path = match Endpoint::of(host, port) {
        Endpoint::Unix(path) => path,
        Endpoint::Tcp { .. } => return connect_tcp(host, port, patience),
    };
    let stream = match path.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => UnixStream::connect(path)?,
    };
    Ok(Box::new(stream))
}

fn connect_tcp(host: &str, port: u16, patience: Duration) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn only_a_server_that_does_not_answer_causes_a_message() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("address").port();
        assert_eq!(complaint("127.0.0.1", port), None);
        drop(listener);
        let said = complaint("127.0.0.1", port).expect("nobody listens");
        assert!(
            said.contains(&format!("127.0.0.1:{port}: Connection refused")),
            "{said}"
        );
        let folder = tempfile::tempdir().expect("folder");
        let host = folder.path().to_str().expect("UTF-8");
        assert!(complaint(host, 5432).is_some());
        let _listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("bound");
        assert_eq!(complaint(host, 5432), None);
    }
}
