//! Debug builds and the simulator check that nothing noted for a client or its request outlasts the loan.
//!
//! While a server is lent, pgweir notes on the server connection what it still has to do for the client. Such a note
//! ends with the request or with the loan. These end with the last reply, an error, a cancel request, a disconnect, or
//! a clean. A note that is left would affect the next client.

use super::Server;
use crate::base::conditions::first_of;

impl Server {
    /// Returns a description of the first note that has outlasted the last loan and would affect the next client. For a
    /// server that is about to be lent, `None` is correct.
    #[must_use]
    pub fn unfinished(&self) -> Option<&'static str> {
        let of_server = first_of(&[
            (!self.is_outside_transaction(), "a transaction"),
            (
                self.reads(),
                "a catalog query or an announcement to waiters",
            ),
            (
                !self.stream.is_quiet(),
                "a server message that has not arrived completely",
            ),
            (
                self.statements.running.is_outstanding(),
                "a statement that runs",
            ),
        ]);
        of_server
            .or_else(|| self.replies.unfinished())
            .or_else(|| self.session.unfinished())
            .or_else(|| self.next_loan.unfinished())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Time, backend::ServerSession, session::Effects};

    #[test]
    fn nothing_outlasts_a_client_that_leaves() {
        let check = |begin: fn(&mut ServerSession)| {
            let mut session = ServerSession::default();
            assert_eq!(session.unfinished(), None);
            begin(&mut session);
            let before = session.unfinished();
            assert!(before.is_some());
            session.client_left();
            assert_eq!(session.unfinished(), None, "{before:?}");
        };
        check(|session| session.queries.hold_ready(true));
        check(|session| session.settings.note_unsent());
        check(|session| session.settings.set_reads_notices(true));
        check(|session| session.sql_statements.keep_rejection(b"s", Vec::new()));
        check(|session| session.notifications.send_next_listen());
        check(|session| session.inspected(Some(vec![b"channel".to_vec()])));
        check(|session| session.note_signal(7));
        check(|session| session.note(Effects::TERMINATES, b""));
        check(|session| session.inspections.set_turn(Some(Time(1))));
    }

    #[test]
    fn a_clean_ends_the_pauses_of_failed_inspections() {
        let mut session = ServerSession::default();
        session.inspections.note_failed(Time(0));
        assert!(session.unfinished().is_some());
        session.settings_cleaned();
        assert_eq!(session.unfinished(), None);
    }
}
