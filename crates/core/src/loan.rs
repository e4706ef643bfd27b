//! The loan of a server connection to a client, on both sides: its phases, and the start of relaying.
//!
//! When the loan enters another phase, the client's duty changes with it. Between Relaying, Kept, Dedicated and Settled the client's duty stays the same:
//! see [`Server::enter`].

use crate::{
    Actions, ReadMode, Token,
    backend::{Duty, Loan, Phase, Server},
    frontend::{Client, ClientDuty},
};

/// Changes the loan's phase, on the client and on the server.
#[inline]
pub(crate) fn enter(
    phase: Phase,
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
) {
    debug_assert!(
        phase.may_follow(&server.duty),
        "{phase:?} after {:?}",
        server.duty
    );
    client.duty = match phase.relays() {
        true => ClientDuty::Active(server_conn),
        false => ClientDuty::Preparing(server_conn),
    };
    server.duty = Duty::Lent(Loan::new(client_conn, phase));
}

/// Bytes of a client that were read before they could be sent on.
pub(crate) type Early = Box<Vec<u8>>;

/// Starts to relay between client and server, each way as far as the receiver takes the bytes. Returns the
/// bytes of the client that were read before, which are relayed next.
#[inline]
#[must_use]
pub(crate) fn begin(
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
    out: &mut Actions,
) -> Option<Early> {
    // Messages of the client that waited for answers are the ones relayed now.
    server.replies.wait_no_longer();
    out.read(
        client_conn,
        if server.link.blocked {
            ReadMode::Hold
        } else {
            ReadMode::Deliver
        },
    );
    if client.socket.blocked {
        out.read(server_conn, ReadMode::Hold);
    }
    client.socket.early.take()
}
