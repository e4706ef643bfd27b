//! Failed logins to servers: how the pool's waiters are informed, and when a client that logs in is refused at
//! once.

use std::sync::Arc;

use super::Worker;
use crate::{
    Action, Actions, SharedPool, Time, Token, connections::Conn, fault::Fault,
    frontend::ClientDuty, mail::Mail, pool::Connecting, shared_pool::Failure,
};

impl Worker {
    /// Checks that there is a host to wait for.
    ///
    /// # Errors
    /// The last logins to all hosts have failed, and no new login is due.
    pub(super) fn check_hosts(&mut self, shared: &Arc<SharedPool>, now: Time) -> Result<(), Fault> {
        let hosts = self.local_pool(shared, now).terms.endpoints.len();
        let lacks_database = {
            let facts = shared.facts.lock();
            facts.failure.as_ref().is_some_and(Failure::lacks_database)
        };
        if lacks_database {
            // The database may exist by now.
            shared.ledger.lock().allow_next_login();
        }
        let retry_at = shared.ledger.lock().retry_at();
        if retry_at.is_none_or(|at| at <= now) {
            return Ok(());
        }
        let facts = shared.facts.lock();
        match &facts.failure {
            // Hosts of a list that were not tried since may work.
            Some(why) if facts.failures >= hosts => Err(why.cached()),
            _ => Ok(()),
        }
    }

    /// Handles a failed login to a server. A server that refused the login would refuse the next one too.
    pub(super) fn login_failed(
        &mut self,
        shared: &Arc<SharedPool>,
        why: Failure,
        now: Time,
        out: &mut Actions,
    ) {
        let pool = self.local_pool(shared, now);
        pool.stats.now.server_login_failure_count += 1;
        let hosts = pool.terms.endpoints.len();
        let is_told = {
            let mut facts = shared.facts.lock();
            let is_refused = why.refusal.is_some();
            let is_unreachable = why.detail.is_some();
            facts.login_failed(why);
            is_refused || (is_unreachable && facts.failures >= hosts)
        };
        let outdated = shared.epochs.lock().outdated();
        let (notes, has_none) = {
            let mut ledger = shared.ledger.lock();
            let notes = ledger.connected(self.id, Connecting::Failed(now), now);
            // Outdated servers serve no waiter.
            let usable = (ledger.servers() - ledger.connecting()) as usize;
            (notes, usable <= outdated)
        };
        self.deliver(notes, shared, out);
        if is_told && has_none {
            for to in self.directory.worker_ids() {
                out.list.push(Action::Mail {
                    to,
                    mail: Mail::Failed(Arc::clone(shared)),
                });
            }
        }
    }

    /// Refuses waiters of a pool that has no server to lend. If a login was refused, clients that log in get the
    /// error, and the others go on waiting, unless the refusal is final. If the server could not be reached and the
    /// pool has never had one, clients that log in get the error, unless the next try comes within
    /// `server_connect_timeout` of their login.
    pub(crate) fn fail_waiters(&mut self, shared: &Arc<SharedPool>, now: Time, out: &mut Actions) {
        let Some(failure) = shared.facts.lock().failure.clone() else {
            return;
        };
        let only_at_login = failure.refusal.is_none();
        let Some(fault) = failure.refusal.clone().or_else(|| failure.at_login()) else {
            return;
        };
        if only_at_login && shared.is_known() {
            return;
        }
        let settings = &self.snapshot.config.settings;
        let patience = match settings.server_connect_timeout.0 {
            0 => u64::MAX,
            patience => patience,
        };
        let next_try = now.after(settings.server_login_retry.0);
        let is_final = failure.is_final();
        let waits = |conn: &Conn| match conn {
            Conn::Client(client) if client.pool == Some(shared.id) => match client.duty {
                ClientDuty::Waiting { at_login, .. } => {
                    let is_late = next_try.since(client.connected_at) >= patience;
                    let is_in_login = at_login || client.login.is_some();
                    match only_at_login {
                        true => at_login && is_late,
                        false => is_in_login || is_final,
                    }
                }
                _ => false,
            },
            _ => false,
        };
        let waiting: Vec<Token> = self
            .table
            .iter()
            .filter(|(_, conn)| waits(conn))
            .map(|(token, _)| token)
            .collect();
        for client in waiting {
            let login = self.table.client(client).map(|client| &client.login);
            let fault = match login {
                Some(Some(_)) => &fault.clone().before_authentication(),
                _ => &fault,
            };
            self.refuse(client, fault, now, out);
        }
    }
}
