//! Connections that the driver opens.

use std::{
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
};

use pgweir_core::Endpoint;

use super::*;

fn endpoint(host: &str, address: SocketAddr) -> Arc<Endpoint> {
    Arc::new(Endpoint::Tcp {
        host: host.to_owned(),
        port: address.port(),
    })
}

/// Connects, and exchanges bytes in both directions.
fn check_connects(endpoint: Arc<Endpoint>, accept: impl FnOnce() -> Box<dyn Talks>) {
    let mut world = World::new();
    world.answer(|conn, seen, out| {
        if *seen == Seen::Connected {
            send(conn, b"hello", out);
            out.list.push(Action::Read {
                conn,
                mode: ReadMode::Deliver,
            });
        }
    });
    world.act(Action::Connect {
        conn: FIRST,
        endpoint,
    });
    world.until(|seen| seen.contains(&Seen::Connected));
    let mut peer = accept();
    assert_eq!(read_exactly(&mut peer, 5), b"hello");
    write(&mut peer, b"welcome");
    world.until(|seen| received(seen) == b"welcome");
}

trait Talks: Read + Write {}
impl<T: Read + Write> Talks for T {}

#[test]
fn tcp_by_address_and_by_name() {
    let server = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = server.local_addr().expect("address");
    for host in ["127.0.0.1", "localhost"] {
        check_connects(endpoint(host, address), || {
            Box::new(server.accept().expect("accept").0)
        });
    }
}

#[test]
fn unix_sockets() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    let server = UnixListener::bind(&path).expect("bind");
    let endpoint = Arc::new(Endpoint::Unix(path.display().to_string()));
    check_connects(endpoint, || Box::new(server.accept().expect("accept").0));
}

#[test]
fn failures_are_reported_after_the_call() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .expect("bind")
        .local_addr()
        .expect("address");
    let folder = tempfile::tempdir().expect("folder");
    let no_file = folder.path().join("none").display().to_string();
    for (endpoint, words) in [
        (endpoint("127.0.0.1", nobody), "refused"),
        (endpoint("localhost", nobody), "refused"),
        (Arc::new(Endpoint::Unix(no_file)), "No such file"),
    ] {
        let mut world = World::new();
        world.act(Action::Connect {
            conn: FIRST,
            endpoint,
        });
        world.until(|seen| seen.iter().any(|one| matches!(one, Seen::Failed(_))));
        let seen = world.seen();
        let [Seen::Failed(ConnectError::Refused(text))] = seen.as_slice() else {
            panic!("{seen:?}")
        };
        assert!(text.contains(words), "{text}");
        assert_eq!(world.drivers[0].io.table.len(), 0);
    }
}

#[test]
fn an_unknown_name_and_a_refused_connection_have_different_errors() {
    let mut world = World::new();
    let endpoint = Arc::new(Endpoint::Tcp {
        host: "no such host".to_owned(),
        port: 1,
    });
    world.act(Action::Connect {
        conn: FIRST,
        endpoint,
    });
    world.until(|seen| {
        seen.iter()
            .any(|one| matches!(one, Seen::Failed(ConnectError::Lookup(_))))
    });
}

#[test]
fn a_connection_that_was_given_up_causes_no_event() {
    let server = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = server.local_addr().expect("address");
    let mut world = World::new();
    for host in ["127.0.0.1", "localhost"] {
        world.act(Action::Connect {
            conn: FIRST,
            endpoint: endpoint(host, address),
        });
        world.act(Action::Close(FIRST));
        world.settle();
        assert!(!world.seen().contains(&Seen::Connected));
    }
}

#[test]
fn a_full_queue_of_a_unix_socket_is_asked_again() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    let server = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .expect("socket");
    rustix::net::bind(
        &server,
        &rustix::net::SocketAddrUnix::new(&path).expect("path"),
    )
    .expect("bind");
    rustix::net::listen(&server, 0).expect("listen");
    let _fills_the_queue = UnixStream::connect(&path).expect("connect");
    let mut world = World::new();
    let endpoint = Arc::new(Endpoint::Unix(path.display().to_string()));
    world.act(Action::Connect {
        conn: FIRST,
        endpoint,
    });
    world.settle();
    assert_eq!(world.seen(), []);
    rustix::net::accept(&server).expect("accept");
    world.until(|seen| seen.contains(&Seen::Connected));
}
