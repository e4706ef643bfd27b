//! A worker's sockets and their state: the driver without the core.

use std::{collections::VecDeque, mem, sync::Arc};

use pgweir_core::{
    Address, ConnectError, HandedOverServer, Level, LogLine, ReadMode, Time, Token, WorkerId,
    backend::Server,
    frontend::MovedClient,
    mail::Mail,
    takeover::{ClientRecord, Encryption, TlsState},
};
use rand::rngs::StdRng;
use rustix::{event::epoll::EventFlags, io::Errno};
use slab::Slab;

use super::{
    Mailboxes, NetOptions, WorkerMessage,
    accept::{Acceptor, Load},
    closing::Lingering,
    execute::Gathered,
    logins::{Postponed, WaitingLogins},
    poller::{Key, Poller},
    table::{Connection, ReceiveState, Removed, Table},
    timers::Timers,
};
use crate::{
    control::{Request, Resolver, SlowWork},
    log::LogBuffer,
    otlp::TraceQueue,
    takeover::{Departing, DepartingServer, Outgoing},
    tls::{SessionError, TlsSession},
};

/// Work that waits for its turn, in order of arrival. The queue is emptied after each event.
#[derive(Debug)]
pub(super) enum Pending {
    /// Serve a connection as far as possible.
    Serve(Token),
    /// Report the first unread byte.
    Peek(Token),
    Blocked(Token),
    Drained(Token),
    Connected {
        conn: Token,
        local: Address,
        remote: Address,
    },
    ConnectFailed(Token, ConnectError),
    /// The key derivation was refused, since the queue is full.
    Underived(Token),
    /// The check of a client was refused, since the queue is full.
    Unanswered(Token),
    /// The connection can't be encrypted, for this reason.
    Insecure(Token, String),
    /// A message of this worker to itself.
    Mail(Mail),
}

#[derive(Debug)]
pub(super) struct Io {
    pub(super) id: WorkerId,
    pub(super) now: Time,
    /// The present turn.
    pub(super) turn: Turn,
    pub(super) finished: bool,
    pub(super) poller: Poller,
    pub(super) table: Table,
    pub(super) pending: VecDeque<Pending>,
    pub(super) closing: Slab<Lingering>,
    pub(super) timers: Timers,
    pub(super) acceptor: Acceptor,
    pub(super) load: Load,
    /// A random number generator of cryptographic quality, seeded by the system.
    pub(super) random: StdRng,
    pub(super) options: Arc<NetOptions>,
    /// The threads for slow work, and other workers.
    pub(super) threads: Threads,
    pub(super) log: LogBuffer,
    /// Buffers for encryption.
    pub(super) encryption: EncryptionBuffers,
}

/// The threads for slow work, and the mail to other threads.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) mailboxes: Mailboxes,
    pub(super) resolver: Arc<Resolver>,
    pub(super) slow_work: SlowWork,
    pub(super) control: crossbeam_channel::Sender<Request>,
    pub(super) departures: crossbeam_channel::Sender<Outgoing>,
    pub(super) traces: TraceQueue,
}

/// One turn of the event loop.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Messages to be sent when everything that arrived before them was read.
    pub(super) once_read: Vec<(WorkerId, Mail)>,
    /// The number of waits so far, which shows which reads happened since the last wait.
    pub(super) number: u32,
    /// Connections that have used up their share of this turn.
    pub(super) carried: Vec<Token>,
    /// The logins and disconnects that are served at the end of the turn.
    pub(super) logins: WaitingLogins,
    /// The rest of this turn's share.
    pub(super) handshake_steps: u32,
    /// The sends that are written next.
    pub(super) gathered: Gathered,
}

/// Buffers for encryption.
#[derive(Debug, Default)]
pub(super) struct EncryptionBuffers {
    /// For encryption: the bytes to be sent in one piece, and their encrypted form.
    pub(super) gathered: Vec<u8>,
    pub(super) sealed: Vec<u8>,
}

impl Io {
    /// Stores an open connection in the table and watches it.
    pub(super) fn register(&mut self, token: Token, mut connection: Connection) {
        if let Err(error) = self.poller.add(
            &connection.fd,
            Key::Connection(token),
            connection.output.has_room,
        ) {
            connection.output.failed = Some(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let failed = connection.output.failed.is_some();
        self.table.open(token, connection);
        if failed {
            self.fail_as_marked(token);
        }
    }

    /// Records that a connection has used up its share of this turn.
    pub(super) fn carry(&mut self, token: Token) {
        if let Some(connection) = self.table.get(token) {
            if connection.logs_in {
                return self.postpone(token, EventFlags::IN);
            }
            connection.queued = true;
            self.turn.carried.push(token);
        }
    }

    /// Adds a connection to the run queue, once.
    pub(super) fn queue(&mut self, token: Token) {
        if let Some(connection) = self.table.get(token)
            && !mem::replace(&mut connection.queued, true)
        {
            self.pending.push_back(Pending::Serve(token));
        }
    }

    /// Freezes or thaws a connection. A frozen connection is not served, whatever its mode.
    pub(super) fn set_frozen(&mut self, token: Token, frozen: bool) {
        let Some(connection) = self.table.get(token) else {
            return;
        };
        connection.frozen = frozen;
        if !frozen {
            self.queue(token);
        }
    }

    /// Changes how a connection's input is handled. Bytes that are readable already are served soon.
    pub(super) fn set_mode(&mut self, token: Token, mode: ReadMode) {
        let Some(connection) = self.table.get(token) else {
            return;
        };
        connection.mode = mode;
        let due = match mode {
            ReadMode::Hold => connection.input.hung_up && !connection.input.hang_up_reported,
            ReadMode::Notify | ReadMode::Deliver => connection.has_input(),
        };
        if due {
            self.queue(token);
        }
    }

    /// Handles a failed write. Earlier bytes of the peer may still be readable, so a connection in mode `Deliver` is
    /// read to its end first (a server may have sent a final error). In the other modes the connection ends now.
    pub(super) fn fail(&mut self, token: Token, why: Errno) {
        if let Some(connection) = self.table.get(token) {
            connection.output.failed = Some(why);
            connection.output.unsent = None;
            self.fail_as_marked(token);
        }
    }

    /// Hands over an idle server connection to another worker.
    pub(super) fn hand_over(&mut self, conn: Token, to: WorkerId, server: Box<Server>) {
        let Some((connection, early)) = self.detach(conn) else {
            debug_assert!(false, "handed over a connection that is not open");
            return;
        };
        let connection = Box::new(connection);
        let message = WorkerMessage::Server {
            server,
            connection,
            early,
        };
        self.threads.mailboxes.send(to, message);
    }

    /// Hands over an idle client to another worker.
    pub(super) fn move_client(&mut self, conn: Token, to: WorkerId, client: Box<MovedClient>) {
        let Some((connection, early)) = self.detach(conn) else {
            debug_assert!(false, "moved a client that is not connected");
            return;
        };
        self.load.remove(self.id);
        self.load.add(to);
        let connection = Box::new(connection);
        let message = WorkerMessage::MovedClient {
            client,
            connection,
            early,
        };
        self.threads.mailboxes.send(to, message);
    }

    /// Hands over a client to another process, with its server connection if it keeps one.
    pub(super) fn depart(
        &mut self,
        conn: Token,
        mut record: Box<ClientRecord>,
        server: Option<HandedOverServer>,
    ) {
        let own = server.as_ref().map(|along| self.detach(along.conn));
        let (Some((connection, early)), None | Some(Some(_))) = (self.detach(conn), &own) else {
            debug_assert!(false, "a client leaves that is not connected");
            return;
        };
        // The last bytes of a client that has hung up.
        record.early.extend(early);
        let worker = self.id;
        let (server, server_tls) = server
            .zip(own.flatten())
            .map(|(along, (own, early))| {
                let companion = DepartingServer {
                    fd: own.fd,
                    early,
                    shared: along.shared,
                    worker,
                };
                (companion, own.tls)
            })
            .unzip();
        self.load.remove(self.id);
        let Connection {
            fd, output, tls, ..
        } = connection;
        // If a server connection moves with the client, the new process notices a failed connection.
        if output.failed.is_some() && server.is_none() {
            return;
        }
        let states = saved(tls).and_then(|client| {
            let server = saved(server_tls.flatten())?;
            Ok(Encryption { client, server })
        });
        let encryption = match states {
            Ok(encryption) => encryption,
            Err(error) => {
                let text =
                    format!("a client's TLS connection can't be handed over, and ends: {error}");
                self.log
                    .line(self.now, &LogLine::new(Level::Warning, "", text));
                if let Some(server) = server {
                    server.gone(&self.threads.mailboxes);
                }
                return;
            }
        };
        let unsent = output
            .unsent
            .map_or_else(Vec::new, |unsent| unsent.into_rest());
        let client = Departing {
            record,
            fd,
            worker,
            server,
            unsent,
            encryption,
        };
        // The receiver lives as long as the process.
        let _ = self.threads.departures.send(Outgoing::Client(client));
    }

    /// Removes a connection from the table and the poller, so that another worker can [`register`](Self::register) it.
    /// Returns the bytes that were received but not reported.
    pub(super) fn detach(&mut self, conn: Token) -> Option<(Connection, Vec<u8>)> {
        self.send_waiting(conn);
        let mut early = self.table.early.remove(&conn).unwrap_or_default();
        let Some(Removed::Open(mut connection)) = self.table.remove(conn) else {
            return None;
        };
        match self.poller.remove(&connection.fd, Key::Connection(conn)) {
            Ok(rest) if early.is_empty() => early = rest,
            Ok(rest) => early.extend(rest),
            Err(error) => {
                connection.output.failed = Some(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        connection.stop_streaming();
        // The other worker's poller reports all events again, but not that the peer has ended its encryption.
        connection.input.readable = false;
        connection.input.hung_up = connection.tls.as_deref().is_some_and(TlsSession::has_ended);
        connection.input.hang_up_reported = false;
        connection.postponed = Postponed::Nothing;
        connection.logs_in = false;
        connection.queued = false;
        connection.frozen = false;
        connection.input.peek = false;
        connection.input.turn = 0;
        connection.input.receive = ReceiveState::default();
        Some((connection, early))
    }

    /// Removes a connection that is closed next.
    pub(super) fn remove(&mut self, token: Token) -> Option<Removed> {
        self.poller.forget(Key::Connection(token));
        self.remove_watched(token)
    }

    /// Removes a connection; the caller ends its watch, or gives it another key.
    pub(super) fn remove_watched(&mut self, token: Token) -> Option<Removed> {
        self.send_waiting(token);
        let removed = self.table.remove(token)?;
        match &removed {
            Removed::Open(connection) if connection.input.receive.early => {
                self.table.early.remove(&token);
            }
            Removed::Open(_) => {}
            Removed::Connecting => self.poller.forget(Key::Connection(token)),
        }
        Some(removed)
    }

    /// Drops a connection, and thereby frees a file descriptor.
    pub(super) fn let_go(&mut self, connection: Connection) {
        if connection.client {
            self.load.remove(self.id);
        }
        drop(connection);
        self.resume_accepting();
    }

    fn fail_as_marked(&mut self, token: Token) {
        if let Some(connection) = self.table.get(token) {
            connection.input.readable = true;
            connection.input.hung_up = true;
            self.queue(token);
        }
    }
}

/// Returns the state of a connection's encryption for another process.
fn saved(session: Option<Box<TlsSession>>) -> Result<Option<TlsState>, SessionError> {
    session.map(|session| session.save()).transpose()
}
