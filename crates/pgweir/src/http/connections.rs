//! HTTP connections: limits on their number and their duration. Each connection serves one request.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use pgweir_config::HttpAddress;
use pgweir_core::TlsFacts;
use rustix::process::geteuid;
use rustls::{ProtocolVersion, ServerConfig};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::oneshot,
    task::{self, AbortHandle},
    time,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    pages::{Sender, answer},
    sockets::Socket,
    state::{State, count},
};
use crate::{console_link::Origin, tls::peer_certificate};

/// The largest head of a request in bytes: its first line and its headers.
const HEAD_MAX: usize = 16 * 1024;
/// After the answer, the rest of the request is read for this time and up to this size. Closing a socket with
/// unread bytes resets the connection, and the client might lose the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;
/// The pause after a failed `accept`: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The first byte of a TLS handshake: the type of its first record.
const HANDSHAKE: u8 = 0x16;

const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 64\r\nConnection: close\r\n\r\n\
    too many HTTP connections: see the setting http_max_connections\n";
const NEEDS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 40\r\nConnection: close\r\n\r\n\
    this port speaks TLS only: use https://\n";

/// The open connections by their numbers: the oldest one has the lowest.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: RefCell<BTreeMap<u64, Open>>,
    next: Cell<u64>,
    /// The number of connections that are being refused.
    refusing: Cell<usize>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    /// Whether the connection may be closed to make room for another one: its request is not complete, or was answered.
    is_dispensable: Rc<Cell<bool>>,
}

/// Removes a connection from the list when its task ends, in any way.
struct Entry {
    number: u64,
    connections: Rc<Connections>,
    state: Rc<State>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(&self.number);
        let left = self.connections.open.borrow().len() as u64;
        self.state.counters.connections.set(left);
    }
}

/// A handle: connections are accepted until it is dropped.
pub(super) type Accepting = oneshot::Sender<Infallible>;

/// Returns the next connection, or `None` once the other end of `end` is dropped.
async fn next<T>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<T>,
    end: &mut oneshot::Receiver<Infallible>,
) -> Option<T> {
    poll_fn(|context| match accept(context) {
        Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
        Poll::Pending => Pin::new(&mut *end).poll(context).map(|_| None),
    })
    .await
}

impl Connections {
    /// Accepts connections on a socket, until the returned sender is dropped. Then it still accepts the connections
    /// that wait in the socket, which the kernel would reset otherwise.
    pub(super) fn accept_on(
        self: &Rc<Self>,
        socket: Socket,
        address: &Arc<HttpAddress>,
        state: &Rc<State>,
    ) -> io::Result<Accepting> {
        let (connections, state) = (Rc::clone(self), Rc::clone(state));
        let address = Arc::clone(address);
        let (accepting, mut end) = oneshot::channel();
        match socket {
            Socket::Tcp(listener) => {
                let listener = TcpListener::from_std(listener)?;
                task::spawn_local(async move {
                    while let Some(accepted) =
                        next(|context| listener.poll_accept(context), &mut end).await
                    {
                        connections.accept_tcp(accepted, &state).await;
                    }
                    let Ok(listener) = listener.into_std() else {
                        return;
                    };
                    while let Ok((stream, from)) = listener.accept() {
                        let stream = stream.set_nonblocking(true).map(|()| stream);
                        let stream = stream.and_then(TcpStream::from_std);
                        let accepted = stream.map(|stream| (stream, from));
                        connections.accept_tcp(accepted, &state).await;
                    }
                    drop((listener, address));
                });
            }
            Socket::Unix(listener, file) => {
                let listener = UnixListener::from_std(listener)?;
                task::spawn_local(async move {
                    while let Some(accepted) =
                        next(|context| listener.poll_accept(context), &mut end).await
                    {
                        let accepted = accepted.map(|(stream, _)| stream);
                        connections.accept_unix(accepted, &state).await;
                    }
                    // After the file was removed, no further client can connect.
                    drop(file);
                    let Ok(listener) = listener.into_std() else {
                        return;
                    };
                    while let Ok((stream, _)) = listener.accept() {
                        let stream = stream.set_nonblocking(true).map(|()| stream);
                        let stream = stream.and_then(UnixStream::from_std);
                        connections.accept_unix(stream, &state).await;
                    }
                    drop((listener, address));
                });
            }
        }
        Ok(accepting)
    }

    async fn accept_tcp(
        self: &Rc<Self>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        state: &Rc<State>,
    ) {
        let Ok((stream, from)) = accepted else {
            return time::sleep(ACCEPT_PAUSE).await;
        };
        if !self.make_room(state).await {
            return self.refuse(stream, state);
        }
        let sender = Sender {
            is_own_user: false,
            name: from.to_string().into(),
            origin: Origin::Tcp {
                remote: from,
                local: stream.local_addr().unwrap_or(from),
                tls: None,
            },
        };
        let tls = state.options().tls;
        self.begin(state, |state, is_dispensable| async move {
            serve_tcp(stream, tls, sender, &state, &is_dispensable).await;
        });
    }

    async fn accept_unix(self: &Rc<Self>, accepted: io::Result<UnixStream>, state: &Rc<State>) {
        let Ok(stream) = accepted else {
            return time::sleep(ACCEPT_PAUSE).await;
        };
        if !self.make_room(state).await {
            return self.refuse(stream, state);
        }
        let sender = sender_on(&stream);
        self.begin(state, |state, is_dispensable| async move {
            serve(stream, &sender, &state, &is_dispensable).await;
        });
    }

    /// Makes room for one more connection, if necessary by closing the oldest one that may be closed. Returns whether
    /// there is room.
    async fn make_room(&self, state: &State) -> bool {
        let most = state.options().connections_max;
        if self.open.borrow().len() < most {
            return true;
        }
        // The rest of a request may have arrived, and the connection's task has not run since.
        task::yield_now().await;
        let mut open = self.open.borrow_mut();
        if open.len() < most {
            return true;
        }
        let oldest = open.iter().find(|(_, one)| one.is_dispensable.get());
        let Some(number) = oldest.map(|(&number, _)| number) else {
            count(&state.counters.refused);
            return false;
        };
        if let Some(oldest) = open.remove(&number) {
            oldest.task.abort();
        }
        count(&state.counters.displaced);
        true
    }

    /// Refuses a connection that is one too many. If as many connections as may be served are being refused already, it
    /// is closed without an answer.
    fn refuse<S>(self: &Rc<Self>, mut stream: S, state: &State)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        if self.refusing.get() >= state.options().connections_max {
            return;
        }
        self.refusing.set(self.refusing.get() + 1);
        let connections = Rc::clone(self);
        task::spawn_local(async move {
            // The buffer of a new socket has room for the answer.
            if stream.write_all(FULL).await.is_ok() {
                linger(&mut stream).await;
            }
            connections.refusing.set(connections.refusing.get() - 1);
        });
    }

    fn begin<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        state: &Rc<State>,
        serve: impl FnOnce(Rc<State>, Rc<Cell<bool>>) -> F,
    ) {
        let is_dispensable = Rc::new(Cell::new(true));
        let number = self.next.get();
        self.next.set(number + 1);
        let entry = Entry {
            number,
            connections: Rc::clone(self),
            state: Rc::clone(state),
        };
        let served = serve(Rc::clone(state), Rc::clone(&is_dispensable));
        let task = task::spawn_local(async move {
            let timeout = entry.state.options().timeout;
            if time::timeout(timeout, served).await.is_err() {
                count(&entry.state.counters.timeouts);
            }
        });
        let task = task.abort_handle();
        let mut open = self.open.borrow_mut();
        open.insert(
            number,
            Open {
                task,
                is_dispensable,
            },
        );
        state.counters.connections.set(open.len() as u64);
    }
}

fn sender_on(stream: &UnixStream) -> Sender {
    let uid = stream.peer_cred().map(|peer| peer.uid()).ok();
    let name = match uid {
        Some(uid) => format!("a Unix socket (user id {uid})"),
        None => "a Unix socket".to_owned(),
    };
    Sender {
        is_own_user: uid.is_some_and(|uid| uid == 0 || uid == geteuid().as_raw()),
        name: name.into(),
        origin: Origin::Unix { uid },
    }
}

/// Returns the facts about a request's TLS session, for the console.
fn tls_facts<S>(stream: &TlsStream<S>) -> TlsFacts {
    let (_, session) = stream.get_ref();
    let protocol = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let chain = session.peer_certificates().unwrap_or_default();
    let peer = chain.first().and_then(|own| peer_certificate(own));
    TlsFacts {
        protocol: protocol.into(),
        cipher: "https".into(),
        group: None,
        peer: peer.map(Box::new),
        end_point: None,
        is_agreed: false,
    }
}

async fn serve_tcp(
    mut stream: TcpStream,
    tls: Option<(Arc<ServerConfig>, bool)>,
    mut sender: Sender,
    state: &Rc<State>,
    is_dispensable: &Cell<bool>,
) {
    let Some((config, is_demanded)) = tls else {
        return serve(stream, &sender, state, is_dispensable).await;
    };
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1..) => {}
        Ok(0) | Err(_) => return,
    }
    if first[0] == HANDSHAKE {
        // A client whose handshake fails has received an alert.
        if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
            if let Origin::Tcp { tls, .. } = &mut sender.origin {
                *tls = Some(tls_facts(&stream));
            }
            serve(stream, &sender, state, is_dispensable).await;
        }
    } else if is_demanded {
        if stream.write_all(NEEDS_TLS).await.is_ok() {
            linger(&mut stream).await;
        }
    } else {
        serve(stream, &sender, state, is_dispensable).await;
    }
}

/// Answers the one request of a connection.
async fn serve<S>(mut stream: S, sender: &Sender, state: &Rc<State>, is_dispensable: &Cell<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| async move {
        is_dispensable.set(false);
        Ok::<_, Infallible>(answer(state, sender, request).await)
    });
    let mut server = http1::Builder::new();
    server
        .keep_alive(false)
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX);
    // Invalid requests have been answered already, and there is nobody to inform about a connection that was lost.
    let _ = server
        .serve_connection(TokioIo::new(&mut stream), service)
        .await;
    is_dispensable.set(true);
    linger(&mut stream).await;
}

/// Ends a connection so that its client receives the answer.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let drained = async {
        let mut left = LINGER_BYTES;
        let mut bytes = [0; 4096];
        if stream.shutdown().await.is_err() {
            return;
        }
        while let Ok(len @ 1..) = stream.read(&mut bytes).await {
            left = left.saturating_sub(len);
            if left == 0 {
                return;
            }
        }
    };
    // The request was answered, so the way in which its connection ends does not matter.
    let _ = time::timeout(LINGER, drained).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_answers_are_as_long_as_they_say() {
        for answer in [FULL, NEEDS_TLS] {
            let text = std::str::from_utf8(answer).expect("UTF-8");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            let length = format!("Content-Length: {}", body.len());
            assert!(
                head.lines().any(|line| line == length),
                "{head}: {}",
                body.len()
            );
        }
    }
}
