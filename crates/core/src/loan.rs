//! The loan of a server connection to a client, on both sides: the start of relaying, and the state that is left at its
//! end.
//!
//! The moves of [`crate::connections`] begin and end the phases of a loan.

mod repeat;

pub(crate) use self::repeat::{RepeatFit, keep_request, repeat_fit, take_request};
use crate::{
    Actions, ReadMode, Token,
    backend::Server,
    base::{fault::Fault, pin::Pins},
    frontend::Client,
    session::TrackedNames,
};

/// Bytes of a client that were read before they could be forwarded.
pub(crate) type Early = Box<Vec<u8>>;

/// Starts to relay between client and server, in each direction as far as the receiver takes the bytes. Returns the
/// bytes of the client that were read earlier, which are relayed next.
#[inline]
#[must_use]
pub(crate) fn begin_relaying(
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
    out: &mut Actions,
) -> Option<Early> {
    // The messages of the client that waited for answers are the ones that are relayed now.
    server.replies.wait_no_longer();
    out.read(
        client_conn,
        if server.link.is_blocked() {
            ReadMode::Hold
        } else {
            ReadMode::Deliver
        },
    );
    if client.socket.is_blocked() {
        out.read(server_conn, ReadMode::Hold);
    }
    client.socket.take_early()
}

/// Sends a client the parameters that its server has reported meanwhile.
pub(crate) fn send_unsent_parameters(
    names: &TrackedNames,
    client_conn: Token,
    client: &mut Client,
    server: &mut Server,
    out: &mut Actions,
) {
    if !server.session.loan.take_unsent() {
        return;
    }
    let before = std::mem::replace(&mut client.tracked, server.tracked.clone());
    out.send_made(client_conn, |bytes| {
        names.report(&before, &server.tracked, bytes);
    });
}

/// Returns the reasons why this client keeps its server, or `None` if the client can continue on any server.
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
    /// Whether cleaning can't remove the state.
    pub(crate) outlives_clean: bool,
}

/// The damage to a client whose server connection is lost.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) fault: Fault,
    /// Whether the client was in a transaction, or in a request that pgweir can't answer itself.
    pub(crate) was_in_transaction: bool,
    /// Whether a part of a message was forwarded.
    pub(crate) mid_message: bool,
    /// The number of replies that the client has yet to get.
    pub(crate) owed: usize,
}
