//! Logins to servers that come to nothing, and who is told of it.

use std::sync::Arc;

use super::{Conn, Worker};
use crate::{
    Action, Actions, SharedPool, Time, Token, backend::Failure, fault::Fault, frontend::ClientDuty,
    mail::Mail, pool::Connecting,
};

impl Worker {
    /// Is there a host to wait for?
    ///
    /// # Errors
    /// None of them lets us in, and none is to be tried for now.
    pub(super) fn check_hosts(&mut self, shared: &Arc<SharedPool>, now: Time) -> Result<(), Fault> {
        let hosts = self.local_pool(shared, now).terms.endpoints.len();
        let lacks_database = {
            let facts = shared.facts.lock();
            facts.failure.as_ref().is_some_and(Failure::lacks_database)
        };
        if lacks_database {
            // It may be there by now.
            shared.ledger.lock().forgive();
        }
        let retry_at = shared.ledger.lock().retry_at();
        if retry_at.is_none_or(|at| at <= now) {
            return Ok(());
        }
        let facts = shared.facts.lock();
        match &facts.failure {
            // Those of a list that were not tried since may be well.
            Some(why) if facts.failures >= hosts => Err(Fault::ServerLogin(why.text.clone())),
            _ => Ok(()),
        }
    }

    /// No server came of a login; one that was refused is no better for the next who comes.
    pub(super) fn login_failed(
        &mut self,
        shared: &Arc<SharedPool>,
        why: Failure,
        now: Time,
        out: &mut Actions,
    ) {
        let is_refused = why.refusal.is_some();
        shared.facts.lock().has_failed(why);
        let outdated = shared.epochs.lock().outdated();
        let (notes, has_none) = {
            let mut ledger = shared.ledger.lock();
            let notes = ledger.connected(self.id, Connecting::Failed(now), now);
            // Outdated ones serve nobody who waits.
            let usable = (ledger.servers() - ledger.connecting()) as usize;
            (notes, usable <= outdated)
        };
        self.deliver(notes, shared, out);
        if is_refused && has_none {
            for to in (0..self.directory.workers()).map(|index| crate::WorkerId(index as u8)) {
                out.list.push(Action::Mail {
                    to,
                    mail: Mail::Failed(Arc::clone(shared)),
                });
            }
        }
    }

    /// The pool has no server to lend, and the login of one was refused: clients that wait are told.
    pub(crate) fn fail_waiters(&mut self, shared: &Arc<SharedPool>, now: Time, out: &mut Actions) {
        let failure = shared.facts.lock().failure.clone();
        let Some(refusal) = failure.and_then(|failure| failure.refusal) else {
            return;
        };
        let waits = |conn: &Conn| match conn {
            Conn::Client(client) => {
                client.pool == Some(shared.id) && matches!(client.duty, ClientDuty::Waiting { .. })
            }
            _ => false,
        };
        let waiting: Vec<Token> = self
            .table
            .iter()
            .filter(|(_, conn)| waits(conn))
            .map(|(token, _)| token)
            .collect();
        for client in waiting {
            self.refuse(client, &refusal, now, out);
        }
    }
}
