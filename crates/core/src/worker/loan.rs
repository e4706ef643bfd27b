//! The phases of a loan (a server connection that is lent to a client). When the loan enters another phase, the
//! client's duty changes with it. Between Relaying, Kept, Dedicated and Settled the client's duty stays the same:
//! see [`Server::enter`].

use crate::{
    Token,
    backend::{Duty, Loan, Phase, Server},
    frontend::{Client, ClientDuty},
};

/// Changes the loan's phase, on the client and on the server.
#[inline]
pub(super) fn enter(
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
