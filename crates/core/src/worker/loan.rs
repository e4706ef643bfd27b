//! A loan enters another phase, and the client's duty changes with it. Between Relaying, Kept, Dedicated and Settled the
//! client's duty stays the same: see [`Server::enter`].

use crate::{
    Token,
    backend::{Duty, Loan, Phase, Server},
    frontend::{Client, ClientDuty},
};

/// The loan enters this phase, on both sides.
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
