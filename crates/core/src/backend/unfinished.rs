//! Debug builds and the simulator check that a server has nothing left to do when it is lent.
//!
//! The notes of a loan ([`LoanNotes`](super::LoanNotes)) end with it. But the replies to a client's requests arrive even
//! if the client has left, and its transaction may still have to end: the next client must not be affected by them.

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
                self.is_announced(),
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
            session.end_loan();
            assert_eq!(session.unfinished(), None, "{before:?}");
        };
        check(|session| session.loan.edit().hold_ready());
        check(|session| session.loan.edit().note_unsent());
        check(|session| session.loan.edit().rejections.keep(b"s", Vec::new()));
        check(|session| session.loan.edit().notifications.send_next_listen());
        check(|session| {
            session
                .loan
                .edit()
                .note_inspected(Some(vec![b"channel".to_vec()]))
        });
        check(|session| session.loan.edit().note_signal(7));
        check(|session| session.note(Effects::TERMINATES, b""));
        check(|session| session.loan.edit().begin_turn(Time(1)));
    }

    #[test]
    fn a_clean_ends_the_pauses_of_failed_inspections() {
        let mut session = ServerSession::default();
        session.loan.edit().inspection.note_failed(Time(0));
        assert!(session.unfinished().is_some());
        session.settings_cleaned();
        assert_eq!(session.unfinished(), None);
    }
}
