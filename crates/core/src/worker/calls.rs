//! Calls by modules that still extend the worker, into modules that do not.

use std::fmt::Display;

use super::Worker;
use crate::{
    Actions, Closed, Level, Time, Token, backend::Server, fault::Fault, lending::Decision,
    pool::PoolId,
};

impl Worker {
    #[inline]
    pub(crate) fn check_out(&mut self, conn: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.check_out(conn, out));
    }

    pub(crate) fn wait(
        &mut self,
        conn: Token,
        pool: PoolId,
        at_login: bool,
        now: Time,
        out: &mut Actions,
    ) {
        self.lend(now, out, |event, out| event.wait(conn, pool, at_login, out));
    }

    #[inline]
    pub(crate) fn count_assignment(&mut self, pool: PoolId, waited: u64) {
        self.pools.count_assignment(pool, waited);
    }

    #[inline]
    pub(crate) fn relay_early(
        &mut self,
        conn: Token,
        early: Option<crate::loan::Early>,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(bytes) = early {
            self.relay_again(conn, &bytes, now, out);
        }
    }

    #[cold]
    pub(super) fn relay_again(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        let outer = out.early.replace(out.scratch.len());
        out.scratch.extend_from_slice(bytes);
        self.relay_up(conn, bytes, now, out);
        out.early = outer;
    }

    pub(crate) fn prepared(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.prepared(server, out));
    }

    pub(crate) fn checked(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.checked(server, out));
    }

    pub(crate) fn check_failed(
        &mut self,
        server: Token,
        why: &'static str,
        now: Time,
        out: &mut Actions,
    ) {
        self.lend(now, out, |event, _| event.replace_server(server, why));
    }

    #[inline]
    pub(crate) fn release_if_done(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.release_if_done(server, out));
    }

    pub(crate) fn give_back(
        &mut self,
        server: Token,
        was_session: bool,
        now: Time,
        out: &mut Actions,
    ) {
        self.lend(now, out, |event, out| {
            event.give_back(server, was_session, out)
        });
    }

    pub(crate) fn count_unclean_close(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, _| event.count_unclean_close(server));
    }

    pub(crate) fn place_server(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.place_server(server, out));
    }

    pub(crate) fn count_pool_client(
        &mut self,
        shared: &std::sync::Arc<crate::SharedPool>,
        now: Time,
        out: &mut Actions,
    ) {
        self.lend(now, out, |event, out| event.count_pool_client(shared, out));
    }

    pub(crate) fn release_kept(&mut self, pool: PoolId, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, _| event.release_kept(pool));
    }

    pub(crate) fn end_copy(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| {
            event.end_copy(server, out);
        });
    }

    pub(crate) fn begin_cleaning(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.begin_cleaning(server, out));
    }

    pub(crate) fn continue_cleaning(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.continue_cleaning(server, out));
    }

    pub(crate) fn was_reset(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, _| event.note_reset(server));
    }

    pub(crate) fn log_decision(
        &mut self,
        of: Token,
        decision: Decision,
        now: Time,
        out: &mut Actions,
    ) {
        self.lend(now, out, |event, out| event.log_decision(of, decision, out));
    }

    pub(crate) fn close_client(&mut self, conn: Token, why: &str, now: Time, out: &mut Actions) {
        self.disconnect(now, out, |event, out| event.dismiss(conn, why, out));
    }

    pub(crate) fn refuse(&mut self, conn: Token, fault: &Fault, now: Time, out: &mut Actions) {
        self.disconnect(now, out, |event, out| event.refuse(conn, fault, out));
    }

    pub(crate) fn forget_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        self.disconnect(now, out, |event, out| event.forget(conn, out));
    }

    pub(crate) fn server_gone(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions) {
        self.use_servers(now, out, |event, out| event.gone(conn, why, out));
    }

    /// Closes a server that has violated the protocol.
    #[cold]
    pub(crate) fn server_fault(
        &mut self,
        conn: Token,
        what: &dyn Display,
        now: Time,
        out: &mut Actions,
    ) {
        self.close_for(conn, Fault::ServerProtocol(what.to_string()), now, out);
    }

    #[cold]
    pub(crate) fn close_for(&mut self, conn: Token, fault: Fault, now: Time, out: &mut Actions) {
        self.use_servers(now, out, |event, out| event.close_for(conn, fault, out));
    }

    pub(crate) fn forget_server(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Option<Box<Server>> {
        self.use_servers(now, out, |event, out| event.forget(conn, out))
    }

    /// Returns the server's name for the log.
    pub(crate) fn server_subject(&mut self, conn: Token) -> String {
        let server = self.table.server(conn);
        server.map_or_else(String::new, |server| server.subject())
    }

    /// Returns whether details are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }

    /// Logs a text that gives a server its client's parameters.
    #[cold]
    pub(super) fn trace_applied(&mut self, server: Token, text: &str, out: &mut Actions) {
        let text = format!("varcache_apply: {text}");
        out.log(Level::Debug, self.server_subject(server), text);
    }

    /// Returns whether this client's startup parameters still have to be tried on a server.
    pub(crate) fn noticed(&mut self, conn: Token, notice: &[u8], now: Time, out: &mut Actions) {
        self.signal_clients(now, out, |event, out| event.noticed(conn, notice, out));
    }

    pub(crate) fn ask_for_rights(&mut self, conn: Token, now: Time, out: &mut Actions) {
        self.signal_clients(now, out, |event, out| event.ask_for_rights(conn, out));
    }

    pub(crate) fn handle_asker_rights(&mut self, conn: Token, now: Time, out: &mut Actions) {
        self.signal_clients(now, out, |event, out| event.handle_asker_rights(conn, out));
    }
}
