//! Calls by modules that still extend the worker, into modules that do not.

use super::Worker;
use crate::{Actions, Closed, Time, Token, backend::Server, fault::Fault, pool::PoolId};

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
    pub(crate) fn release_if_done(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.release_if_done(server, out));
    }

    pub(crate) fn place_server(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.place_server(server, out));
    }

    pub(crate) fn continue_cleaning(&mut self, server: Token, now: Time, out: &mut Actions) {
        self.lend(now, out, |event, out| event.continue_cleaning(server, out));
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

    pub(crate) fn forget_server(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Option<Box<Server>> {
        self.use_servers(now, out, |event, out| event.forget(conn, out))
    }
}
