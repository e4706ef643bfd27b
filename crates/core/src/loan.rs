//! The loan of a server connection to a client, on both sides: its phases, and the start of relaying.
//!
//! When the loan enters another phase, the client's duty changes with it. Between Relaying, Kept, Dedicated and Settled the client's duty stays the same:
//! see [`Server::enter`].

use crate::{
    Actions, ReadMode, Token,
    backend::{Duty, Loan, Phase, Server},
    fault::Fault,
    frontend::{Client, ClientDuty},
    pin::Pins,
    session::TrackedNames,
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

/// Sends a client the parameters that its server has reported meanwhile.
pub(crate) fn send_unsent_parameters(
    names: &TrackedNames,
    client_conn: Token,
    client: &mut Client,
    server: &mut Server,
    out: &mut Actions,
) {
    if !std::mem::take(&mut server.session.settings.has_unsent) {
        return;
    }
    let before = std::mem::replace(&mut client.tracked, server.tracked.clone());
    out.send_made(client_conn, |bytes| {
        names.report(&before, &server.tracked, bytes);
    });
}

/// Returns why this client keeps its server, or `None` if any server will do.
#[must_use]
pub(crate) fn pins_of(client: &Client) -> Option<Pins> {
    let context = client.context.as_ref()?;
    (context.is_pinned() && client.server().is_some()).then_some(context.pins)
}

/// The session state that a client leaves on its server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AbandonedSession {
    /// Whether the client had the server in session mode.
    pub(crate) was_session: bool,
    /// Whether the client left in the middle of a message.
    pub(crate) mid_message: bool,
    /// Whether the session holds state, or may hold unknown state.
    pub(crate) must_be_cleaned: bool,
    /// Whether no cleaning can remove the state.
    pub(crate) spoils: bool,
}

/// The losses of a client whose server connection is lost.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) fault: Fault,
    /// Whether the client was in a transaction, or in the middle of something that pgweir can't answer.
    pub(crate) was_in_transaction: bool,
    /// Whether a part of a message was passed on.
    pub(crate) mid_message: bool,
    /// How many replies the client still has to get.
    pub(crate) owed: usize,
}
