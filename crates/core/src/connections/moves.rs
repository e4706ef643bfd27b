//! The moves of clients and servers from one state to another. Nothing else changes a connection's state, so each move to
//! a state that ends after a time makes sure that deadlines are checked.

use super::Connections;
use crate::{
    Actions, Time, Token,
    backend::{Duty, Phase, Server},
    console::Console,
    frontend::{Client, ClientDuty, Discard, Login},
    pool::Ticket,
};

/// Moves to states that end after a time.
impl Connections {
    /// Lets the login of a client take its next steps, after its wait for a server.
    pub(crate) fn resume_login(&mut self, conn: Token, login: Box<Login>, now: Time) {
        if let Some(client) = self.client(conn) {
            client.change_duty(ClientDuty::Login(login));
            self.schedule(now);
        }
    }

    /// Lets a client wait for a server, with this ticket of its pool's ledger.
    pub(crate) fn begin_waiting(&mut self, conn: Token, ticket: Ticket, at_login: bool, now: Time) {
        if let Some(client) = self.client(conn) {
            client.change_duty(ClientDuty::Waiting { ticket, at_login });
            client.request.begin_wait();
            self.schedule(now);
        }
    }

    /// Lets a client wait until this exclusive server has logged in.
    pub(crate) fn begin_opening(&mut self, conn: Token, server: Token, now: Time) {
        if let Some(client) = self.client(conn) {
            client.change_duty(ClientDuty::Opening(server));
            self.schedule(now);
        }
    }

    /// Lends a server to a client, and begins with a check of the server, which may take until this time. Returns the
    /// server.
    pub(crate) fn begin_checking(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        until: Time,
        now: Time,
    ) -> Option<&mut Server> {
        self.schedule(now);
        let (client, server) = self.pair(client_conn, server_conn)?;
        let phase = Phase::Checking { until };
        enter(phase, client_conn, client, server_conn, server);
        Some(server)
    }

    /// Keeps a server from all clients, since replies are outstanding, at most until this time. Returns the server.
    pub(crate) fn begin_cleaning(
        &mut self,
        conn: Token,
        until: Time,
        now: Time,
        out: &mut Actions,
    ) -> Option<&mut Server> {
        self.schedule(now);
        let server = self.known_server(conn, out)?;
        server.change_duty(Duty::Cleaning {
            until,
            rolled_back: false,
        });
        Some(server)
    }
}

/// Changes the loan's phase, on the client and on the server. Between Relaying, Kept, Dedicated and Settled, the client's
/// state stays the same: see [`Server::enter`].
#[inline]
pub(crate) fn enter(
    phase: Phase,
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
) {
    debug_assert!(
        server.duty().may_become(&phase),
        "{phase:?} after {:?}",
        server.duty()
    );
    client.change_duty(match phase.relays() {
        true => ClientDuty::Active(server_conn),
        false => ClientDuty::Preparing(server_conn),
    });
    server.change_duty(Duty::Lent {
        client: client_conn,
        phase,
    });
}

impl Client {
    /// Makes the client idle: it has no server, and waits for none.
    #[inline]
    pub(crate) fn become_idle(&mut self) {
        self.change_duty(ClientDuty::Idle);
    }

    /// Begins the login of a client that has just connected. Its deadline is checked from the moment when it is put into
    /// the table.
    pub(crate) fn begin_login(&mut self, login: Box<Login>) {
        self.change_duty(ClientDuty::Login(login));
    }

    /// Takes the login for one step; [`end_step`](Self::end_step) brings it back. Returns `None` if the client does
    /// not log in.
    pub(crate) fn take_login(&mut self) -> Option<Box<Login>> {
        if !matches!(self.duty(), ClientDuty::Login(_)) {
            return None;
        }
        match self.change_duty(ClientDuty::Idle) {
            ClientDuty::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Puts the login back after one step.
    pub(crate) fn end_step(&mut self, login: Box<Login>) {
        self.change_duty(ClientDuty::Login(login));
    }

    /// Opens the console for the client.
    pub(crate) fn open_console(&mut self, console: Console) {
        self.change_duty(ClientDuty::Console(Box::new(console)));
    }

    /// Notes that the connection has sent a cancel request, and waits until the request was carried out.
    pub(crate) fn become_cancel_request(&mut self) {
        self.change_duty(ClientDuty::CancelRequest { sent: false });
    }

    /// Lets the client's request be discarded.
    pub(crate) fn begin_discarding(&mut self) {
        self.change_duty(ClientDuty::Discarding(Discard::default()));
    }

    /// Online restart: notes that the client was taken over and uses LISTEN, and that the old process still receives
    /// its notifications.
    pub(crate) fn become_taken_over(&mut self) {
        self.change_duty(ClientDuty::TakenOver);
    }

    /// Online restart: notes that the client was taken over with this server, which is lent to it already.
    pub(crate) fn keep_server(&mut self, server: Token) {
        self.change_duty(ClientDuty::Active(server));
    }

    /// Moves the client to its last state, since it has left. Returns the former state.
    pub(crate) fn leave(&mut self) -> ClientDuty {
        self.change_duty(ClientDuty::Idle)
    }
}

impl Server {
    /// Makes the server idle: no client uses it.
    #[inline]
    pub(crate) fn become_idle(&mut self) {
        self.change_duty(Duty::Idle);
    }

    /// Lets the server listen for all clients of its pool that listen.
    pub(crate) fn begin_listening(&mut self) {
        self.change_duty(Duty::Listening {
            query_failed: false,
        });
    }

    /// Begins to use the server for checks of its host. `asked_at`: the time at which the present check was sent, if it
    /// is not answered yet.
    pub(crate) fn check_host(&mut self, asked_at: Option<Time>) {
        self.change_duty(Duty::CheckingHost { asked_at });
    }

    /// Changes the phase between two transactions of the client, or at the beginning of one: the client's side of the
    /// loan stays.
    #[inline]
    pub(crate) fn enter(&mut self, phase: Phase) {
        let client = self.relays_for();
        debug_assert!(
            client.is_some() && phase.relays(),
            "{phase:?} after {:?}",
            self.duty()
        );
        if let Some(client) = client {
            self.change_duty(Duty::Lent { client, phase });
        }
    }
}
