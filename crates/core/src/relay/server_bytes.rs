//! The input from a server: which of its messages are inspected, and the position in the input.

use super::byte_run::Run;
use crate::{
    Actions, Token,
    backend::{Ends, Expected, InternalQuery, Request, Server, Step, Violation},
    clients::early_answers::send_early,
    connections::Connections,
    pool::PoolId,
    statement_statistics::{Extent, RunningStatements},
};

/// The input from a server, and the position in it.
pub(crate) struct ServerBytes<'b> {
    pub(super) server: Token,
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
    /// The position up to which the bytes were counted in statement statistics.
    counted: usize,
    /// The handled bytes that are still to be sent to the client.
    pub(super) run: Run,
    /// The pool in whose statistics the bytes count, if a client reads them.
    pub(super) counts_in: Option<PoolId>,
    /// Whether the server was lent to a client when the bytes arrived.
    pub(super) was_lent: bool,
    /// Bytes that were held back when they arrived, and that come before these.
    pub(crate) earlier: Option<Vec<u8>>,
}

impl<'b> ServerBytes<'b> {
    /// Begins to handle bytes of a server that has logged in.
    #[inline]
    pub(crate) fn begin(
        connections: &mut Connections,
        conn: Token,
        bytes: &'b [u8],
        out: &mut Actions,
    ) -> Option<Self> {
        let server = connections.server(conn)?;
        let was_lent = server.relays_for().or(server.holds_client()).is_some();
        let mut earlier = None;
        if let Some(request) = server.link.repeatable_mut() {
            earlier = request.take_held_back();
            if earlier.is_none() && server.stream.is_at_boundary() && request.holds_back(bytes) {
                return None;
            }
        }
        if let Some(client) = server.relays_for() {
            send_early(client, server, out);
        }
        Some(Self {
            server: conn,
            bytes,
            at: 0,
            counted: 0,
            run: Run::default(),
            counts_in: server.client().map(|_| server.pool()),
            was_lent,
            earlier,
        })
    }

    /// Counts the bytes since the last count for the statement that is running. If `belongs` is false, the bytes are
    /// not the statement's, and are not counted.
    #[inline]
    pub(super) fn count(&mut self, running: &mut RunningStatements, belongs: bool) {
        if belongs {
            running.add_sent(self.at - self.counted);
        }
        self.counted = self.at;
    }
}

/// Returns the messages that this server is expected to send, and those to be inspected. `is_own`: whether the server
/// answers a query of pgweir's own.
#[inline]
fn expected(server: &mut Server, is_own: bool) -> Expected {
    let front = server.replies.front();
    let present = match is_own {
        true => None,
        false => {
            let replies = &server.replies;
            let (present, next) = (replies.present_request(), replies.next_request());
            server.statements.running.present(present, next)
        }
    };
    Expected {
        answers: server.replies.is_asked(),
        marks: front.is_mark,
        describes: front.is_describe,
        row_max: match is_own {
            true => server.session.row_max(),
            false => 0,
        },
        // While it is uncertain which replies have arrived, any message may show that the server has reached an
        // internal query. A client that logs in gets the notices about its startup parameters.
        tags: server.session.loan.reads_command_tags()
            || server.replies.is_uncertain()
            || is_own && server.replies.current() == Some(STARTUP),
        ends: match present {
            None => Ends::Ignored,
            // All of its commands end with the ReadyForQuery.
            Some(Extent::Request) => Ends::Counted,
            Some(Extent::Execute { .. }) => Ends::Inspected,
        },
    }
}

/// The query that tries the startup parameters of a client.
const STARTUP: Request = Request::Internal(InternalQuery::Startup);

/// Forwards bytes of the server up to the next message that is inspected; `None` at the end of the input.
#[inline]
pub(super) fn next_inspected(
    server: &mut Server,
    input: &mut ServerBytes<'_>,
    is_own: bool,
    to: Option<Token>,
    out: &mut Actions,
) -> Result<Option<Step>, Violation> {
    let expected = expected(server, is_own);
    while let Some(step) = server.stream.next(input.bytes, &mut input.at, expected)? {
        match step {
            Step::Pass { start, end } => {
                input.run.add(to, start, end, out);
            }
            Step::PassHeld => {
                input.run.flush(out);
                input.run.add_buffered(to, server.stream.held(), out);
            }
            Step::Inspect { .. } | Step::InspectHeld | Step::Overlong(_) => return Ok(Some(step)),
        }
    }
    Ok(None)
}
