//! The only place where a client and the server that is lent to it change the phase of their exchange.

use crate::{
    Token,
    backend::{Duty, Exchange, Phase, Server},
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
    server.duty = Duty::Lent(Exchange::new(client_conn, phase));
}
