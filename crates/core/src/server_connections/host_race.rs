//! Races between two hosts of a list. If the host of a login has sent nothing for `host_race_after`, a login to the
//! next host begins beside the first one. If the host has accepted the connection, pgweir waits four times as long
//! since that moment. The pool keeps the server that is logged in first, and the other login is given up.
//!
//! Each of the two logins knows the other one ([`HostRace`]). If one of them fails, the other one goes on, and races with the
//! next host of the list if its own host has still sent nothing.

use std::sync::Arc;

use pgweir_config::TargetSession;

use super::{ServerConnections, login::is_alone};
use crate::{
    Actions, Level, SharedPool, Time, Token,
    backend::{HostRace, Purpose, RunningRace, Server},
    pool::LoginOutcome,
    server_connections::host_checks,
    shared::{hosts::HostState, pool::HostLogin},
};

impl ServerConnections<'_> {
    /// Plans a race for a login that has just begun, if its pool has several hosts.
    pub(super) fn plan_race(&mut self, conn: Token, shared: &Arc<SharedPool>) {
        let hosts = self.open_pool(shared).terms.endpoints.len();
        let after = self.env.snapshot.config.settings.host_race_after.0;
        if after > 0 && hosts > 1 {
            self.plan_race_at(conn, self.env.now.after(after), hosts - 1);
        }
    }

    fn plan_race_at(&mut self, conn: Token, at: Time, hosts_left: usize) {
        if let Some(server) = self.connections.server(conn) {
            *server.link.race_mut() = HostRace::Planned { at, hosts_left };
            self.connections.schedule_race(conn, at);
        }
    }

    /// Begins a login to the next host beside one whose host has sent nothing, if there is room for one more server.
    pub(crate) fn begin_race(&mut self, first: Token, out: &mut Actions) {
        let is_ending = self.env.shutdown.is_some();
        let Some(server) = self.connections.known_server(first, out) else {
            return;
        };
        let HostRace::Planned { hosts_left, .. } = std::mem::take(server.link.race_mut()) else {
            return;
        };
        let shared = Arc::clone(&server.shared);
        let slow = Arc::clone(server.link.endpoint());
        let Some((endpoint, credentials)) = self.terms_of_second_login(&shared, &slow) else {
            return;
        };
        if is_ending || !shared.ledger.lock().begin_race(self.env.worker) {
            return;
        }
        let text = format!("has not answered, so {endpoint} is tried, too");
        out.log(Level::Log, self.subject(first), text);
        let second = self.begin_login(&shared, endpoint, credentials, Purpose::Pool, out);
        for (conn, other) in [(first, second), (second, first)] {
            if let Some(server) = self.connections.server(conn) {
                *server.link.race_mut() = HostRace::Running(RunningRace {
                    other,
                    is_first: conn == first,
                    has_answered: false,
                    hosts_left: hosts_left - 1,
                });
            }
        }
    }

    /// Ends the race of a login that is complete, if there is one: the other login is given up.
    pub(super) fn win_race(&mut self, conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let shared = Arc::clone(&server.shared);
        let Some(won) = server.link.race_mut().end() else {
            return;
        };
        let lost = self.end_race(&shared, won.other);
        let stats = &mut self.open_pool(&shared).stats.now;
        match won.is_first {
            true => stats.first_host_win_count += 1,
            false => stats.second_host_win_count += 1,
        }
        self.log_end(won.other, "another host was faster", out);
        self.close_connection(won.other, out);
        let Some(loser) = self.forget(won.other, out) else {
            return;
        };
        if lost.is_some_and(|lost| lost.is_first && !lost.has_answered) {
            self.note_overtaken(&loser, out);
        }
        let (worker, now) = (self.env.worker, self.env.now);
        let notes = (shared.ledger.lock()).connected(worker, LoginOutcome::Dropped, now);
        self.deliver(&notes, &shared, out);
    }

    /// Ends the race of a login that has failed or was given up, if there is one: the other login goes on.
    pub(super) fn leave_race(&mut self, left: &mut Server) {
        let Some(race) = left.link.race_mut().end() else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(left.pool()) {
            pool.stats.now.undecided_race_count += 1;
        }
        let after = self.env.snapshot.config.settings.host_race_after.0;
        if let Some(of_other) = self.end_race(&left.shared, race.other)
            && !of_other.has_answered
            && of_other.hosts_left > 0
            && after > 0
            && let Some(server) = self.connections.server(race.other)
        {
            let since = server.times.connected_at();
            let at = HostRace::time_of(since, after, server.link.is_open()).max(self.env.now);
            self.plan_race_at(race.other, at, of_other.hosts_left);
        }
    }

    /// Ends a race for one of the two logins, and lets each of them count for itself. Returns the race as
    /// this login saw it.
    fn end_race(&mut self, shared: &SharedPool, conn: Token) -> Option<RunningRace> {
        shared.ledger.lock().end_race();
        self.connections.server(conn)?.link.race_mut().end()
    }

    /// Notes that the host of a login that was given up has sent nothing, while another host has completed a login. New logins
    /// avoid the host for a while. A check finds out whether the host is down; if the hosts of the list are not checked, the
    /// host counts as down until the next login to it.
    fn note_overtaken(&mut self, server: &Server, out: &mut Actions) {
        self.move_to_next_host(server);
        let (facts, now) = (&server.shared.facts, self.env.now);
        let overtaken = HostLogin::Overtaken;
        facts
            .lock()
            .logins
            .note(server.link.endpoint(), overtaken, now);
        let database = &server.shared.key.database;
        let entry = self.env.snapshot.config.database(database);
        let is_any = entry.is_some_and(|entry| entry.target_session_attrs == TargetSession::Any);
        let state = (is_any && is_alone(server)).then_some(HostState::Down);
        let text = "no answer, and another host was faster (host_race_after)";
        self.note_host(server, None, (state, Some(text)), out);
        if let (false, Some(host)) = (is_any, server.link.host()) {
            let _ = host_checks::request_check(&self.env, host, out);
        }
    }
}
