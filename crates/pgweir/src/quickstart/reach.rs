//! Is the server of a URL there at all? Whoever tries pgweir for the first time should not have to
//! find out by a client's error.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    time::Duration,
};

/// How long to wait for each address.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the server once; what to say if that fails. Takes its time.
pub(crate) fn complaint(host: &str, port: u16) -> Option<String> {
    let error = reach(host, port).err()?;
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "is PostgreSQL running there, on this port?"
        }
        io::ErrorKind::TimedOut => "is there a firewall in between?",
        _ => "is the name right?",
    };
    Some(format!(
        "cannot reach the server at {host}:{port}: {error}: {hint} Clients are let in as soon as it can be reached"
    ))
}

fn reach(host: &str, port: u16) -> io::Result<()> {
    if let Some(name) = host.strip_prefix('@') {
        let name = format!("{name}/.s.PGSQL.{port}");
        let address = SocketAddr::from_abstract_name(name)?;
        return UnixStream::connect_addr(&address).map(drop);
    }
    if host.starts_with('/') {
        return UnixStream::connect(format!("{host}/.s.PGSQL.{port}")).map(drop);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(()),
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
    fn who_does_not_answer_is_complained_about() {
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
