//! SUSPEND: pgweir forwards each message that it has begun to forward, and then reads nothing until
//! RESUME.
//!
//! This module owns the lists of connections that are frozen and of those that are not quiet yet. The driver
//! freezes a connection when it is quiet: its last message was read and written completely. The core goes on
//! setting a frozen connection's read mode, which takes effect again when the connection is thawed.

use crate::{
    Action, Actions, Halt, Time, Token,
    backend::Duty,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, wake_waiting_consoles},
    frontend::ClientDuty,
};

/// The suspension of the worker, and its progress.
#[derive(Debug, Default)]
pub(crate) struct Suspension(Option<Box<Suspended>>);

/// A worker that is suspended.
#[derive(Debug)]
struct Suspended {
    since: Time,
    frozen: Vec<Token>,
    /// Connections that are not quiet yet.
    must_report: Vec<Token>,
    /// Whether the operator was informed that all connections are quiet.
    is_reported: bool,
}

impl Suspension {
    /// Returns whether the worker is suspended.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Suspends or resumes the worker, as the operator has ordered.
    pub(crate) fn obey(&mut self, env: &Env<'_>, connections: &mut Connections, out: &mut Actions) {
        let is_wanted = env.directory.operator().halt() == Halt::Suspended;
        match (&mut self.0, is_wanted) {
            (None, true) => {
                out.list.push(Action::Accept(false));
                let all = connections.iter();
                let not_frozen = all.filter(|(_, conn)| can_freeze(conn));
                self.0 = Some(Box::new(Suspended {
                    since: env.now,
                    frozen: Vec::new(),
                    must_report: not_frozen.map(|(token, _)| token).collect(),
                    is_reported: false,
                }));
                connections.schedule(env.now);
            }
            // The suspension may have been ended and begun again meanwhile.
            (Some(suspended), true) => suspended.is_reported = false,
            (Some(_), false) => self.thaw(env, connections, out),
            (None, false) => {}
        }
        self.check(env, connections, out);
    }

    fn thaw(&mut self, env: &Env<'_>, connections: &mut Connections, out: &mut Actions) {
        let Some(suspended) = self.0.take() else {
            return;
        };
        for conn in suspended.frozen {
            if connections.get_mut(conn).is_some() {
                out.list.push(Action::Thaw(conn));
            }
        }
        out.list.push(Action::Accept(true));
        connections.schedule(env.now);
    }

    /// Adds a new connection. If the worker is suspended, the connection is frozen, too.
    pub(crate) fn add(&mut self, conn: Token) {
        if let Some(suspended) = &mut self.0 {
            suspended.must_report.push(conn);
        }
    }

    /// Freezes connections that have become quiet, and informs the operator when all are quiet.
    #[cold]
    pub(crate) fn check(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        out: &mut Actions,
    ) {
        let Some(suspended) = &mut self.0 else {
            return;
        };
        let frozen = &mut suspended.frozen;
        suspended
            .must_report
            .retain(|&token| match connections.get_mut(token) {
                Some(conn) if !can_freeze(conn) => false,
                Some(conn) if is_quiet(conn) => {
                    out.list.push(Action::Freeze(token));
                    frozen.push(token);
                    false
                }
                Some(_) => true,
                None => false,
            });
        if suspended.must_report.is_empty() && !std::mem::replace(&mut suspended.is_reported, true)
        {
            env.directory.operator().is_quiet(env.worker);
            wake_waiting_consoles(env.directory, out);
        }
    }

    /// Ends the connections that are not quiet after `suspend_timeout`.
    pub(crate) fn check_timeout(
        &self,
        env: &Env<'_>,
        connections: &mut Connections,
    ) -> Vec<Effect> {
        let patience = env.snapshot.config.settings.suspend_timeout.0;
        let Some(suspended) = &self.0 else {
            return Vec::new();
        };
        connections.set_next_tick(None);
        if suspended.must_report.is_empty() {
            return Vec::new();
        }
        connections.schedule(env.now);
        if patience == 0 || env.now.since(suspended.since) < patience {
            return Vec::new();
        }
        let mut effects = Vec::new();
        for &conn in &suspended.must_report {
            let refused = match connections.get_mut(conn) {
                Some(Conn::Client(_)) => Some(conn),
                Some(Conn::Server(server)) => server.client(),
                _ => None,
            };
            effects.extend(refused.map(|client| {
                Effect::Client(ClientEffect::Refuse(
                    client,
                    Box::new(Fault::SuspendTimeout),
                ))
            }));
            if let Some(Conn::Server(_)) = connections.get_mut(conn) {
                effects.push(Effect::close(conn, "suspend_timeout"));
            }
        }
        effects
    }
}

fn can_freeze(conn: &Conn) -> bool {
    match conn {
        Conn::Client(client) => !matches!(
            *client.duty(),
            ClientDuty::Console(_) | ClientDuty::CancelRequest { .. }
        ),
        Conn::Server(_) => true,
        Conn::Cancel(_) => false,
    }
}

fn is_quiet(conn: &Conn) -> bool {
    match conn {
        Conn::Client(client) => {
            let socket = &client.socket;
            let logs_in = matches!(*client.duty(), ClientDuty::Login(_));
            !socket.is_blocked() && socket.stream.is_at_boundary() && !logs_in
        }
        Conn::Server(server) => {
            !server.link.is_blocked()
                && server.stream.is_quiet()
                && !matches!(*server.duty(), Duty::Login(_))
        }
        Conn::Cancel(_) => true,
    }
}
