//! Shutdown on one worker: waits for clients or servers to leave, or ends them at once, and informs the driver when the
//! worker has nothing left to wait for.
//!
//! This module owns the shutdown order of the worker and its progress. Input: orders of the control thread and of other
//! workers. Output: effects that close clients and servers. After each event, [`ShutdownState::check`] finds out
//! whether the worker may end.

use crate::{
    Action, Actions, Directory, Shutdown, Token, WorkerId,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env, PoolEffect},
    frontend::ClientDuty,
    mail::Mail,
    pooling::LocalPools,
};

/// The shutdown order of a worker, and its progress.
#[derive(Debug, Default)]
pub(crate) struct ShutdownState {
    order: Option<Shutdown>,
    /// Whether the last server connection has gone, and none will follow.
    has_served: bool,
    /// Whether the driver was informed that the worker has finished.
    is_finished: bool,
}

impl ShutdownState {
    /// Returns the way in which the process has to end, once that was ordered.
    #[inline]
    pub(crate) fn order(&self) -> Option<Shutdown> {
        self.order
    }

    /// Returns whether the worker shuts down.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.order.is_some()
    }

    /// Begins a shutdown. A more urgent order replaces a less urgent one. A less urgent order changes nothing.
    pub(crate) fn begin(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        pools: &mut LocalPools,
        how: Shutdown,
        out: &mut Actions,
    ) -> Vec<Effect> {
        if self.order.is_some_and(|present| present >= how) {
            return Vec::new();
        }
        if self.order.replace(how).is_none() && env.directory.note_stayed_client_left() {
            announce(env.worker, env.directory, Shutdown::WaitForClients, out);
        }
        if how != Shutdown::WaitForClients {
            for pool in pools.iter() {
                pool.shared.ledger.lock().open_no_more();
            }
        }
        let mut effects = end_clients(connections, how);
        match how {
            Shutdown::WaitForClients => {}
            Shutdown::WaitForServers => {
                let unused =
                    |conn: &Conn| matches!(conn, Conn::Server(server) if server.client().is_none());
                effects.extend(close(connections.tokens(unused), "pause mode"));
                for pool in pools.iter_mut() {
                    pool.clients_keep_servers = false;
                    effects.push(Effect::Pool(pool.shared.id, PoolEffect::ReleaseKept));
                }
            }
            Shutdown::Immediate => {
                let servers = connections.tokens(|conn| matches!(conn, Conn::Server(_)));
                effects.extend(close(servers, "server shutting down"));
            }
        }
        effects
    }

    /// Informs the driver if the worker shuts down and nothing is left to wait for.
    #[cold]
    pub(crate) fn check(&mut self, env: &Env<'_>, connections: &Connections, out: &mut Actions) {
        let Some(how) = self.order.filter(|_| !self.is_finished) else {
            return;
        };
        self.is_finished = match how {
            Shutdown::WaitForClients => {
                env.directory.is_deserted() && !has_pooled_clients(connections)
            }
            Shutdown::WaitForServers => self.are_servers_gone(env, connections, out),
            Shutdown::Immediate => true,
        };
        if self.is_finished {
            out.list.push(Action::Finished);
        }
    }

    /// Returns whether no worker has a server any more. Until then, a worker without one stays, too, for its clients
    /// and for administrators.
    fn are_servers_gone(
        &mut self,
        env: &Env<'_>,
        connections: &Connections,
        out: &mut Actions,
    ) -> bool {
        // The next tick refuses the clients that wait.
        let has_work = connections.iter().any(|(_, conn)| match conn {
            Conn::Server(_) => true,
            Conn::Client(client) => matches!(*client.duty(), ClientDuty::Waiting { .. }),
            Conn::Cancel(_) => false,
        });
        if has_work {
            return false;
        }
        if !std::mem::replace(&mut self.has_served, true) && env.directory.has_served() {
            announce(env.worker, env.directory, Shutdown::WaitForServers, out);
        }
        env.directory.have_all_served()
    }
}

/// Announces that the last client (or server) of the process has gone: other workers that waited only for it can end.
pub(crate) fn announce(worker: WorkerId, directory: &Directory, how: Shutdown, out: &mut Actions) {
    for to in directory.worker_ids().filter(|&to| to != worker) {
        let mail = Mail::Shutdown(how);
        out.mail(to, mail);
    }
}

/// Ends the clients that get no server any more.
fn end_clients(connections: &mut Connections, how: Shutdown) -> Vec<Effect> {
    // The errors have PgBouncer's texts.
    let fault = match how {
        Shutdown::WaitForServers => Fault::ServersShutDown,
        Shutdown::WaitForClients | Shutdown::Immediate => Fault::ShuttingDown,
    };
    let ends = connections.tokens(|conn| match conn {
        Conn::Client(client) => match (how, client.duty()) {
            (Shutdown::Immediate, _) => true,
            (_, ClientDuty::Waiting { at_login, .. }) => *at_login,
            (_, ClientDuty::Opening(_)) => true,
            (_, ClientDuty::Login(login)) => login.is_parked(),
            _ => false,
        },
        _ => false,
    });
    let ends = ends.into_iter();
    ends.map(|client| match awaits_answer(connections, client) {
        true => Effect::Client(ClientEffect::Refuse(client, Box::new(fault.clone()))),
        // As with PgBouncer, the client notices at its next request.
        false => Effect::Client(ClientEffect::DismissFor(client, Box::new(fault.clone()))),
    })
    .collect()
}

/// Returns whether the client waits for an answer, and so can be sent an error.
fn awaits_answer(connections: &Connections, client: Token) -> bool {
    let Some(Conn::Client(client)) = connections.get(client) else {
        return false;
    };
    match *client.duty() {
        ClientDuty::Login(_)
        | ClientDuty::Waiting { .. }
        | ClientDuty::Opening(_)
        | ClientDuty::Preparing(_)
        | ClientDuty::Discarding(_) => true,
        ClientDuty::Active(server) => match connections.get(server) {
            Some(Conn::Server(server)) => !server.replies.is_settled(),
            _ => false,
        },
        ClientDuty::Idle
        | ClientDuty::TakenOver
        | ClientDuty::Console(_)
        | ClientDuty::CancelRequest { .. } => false,
    }
}

fn close(servers: Vec<Token>, why: &'static str) -> impl Iterator<Item = Effect> {
    let servers = servers.into_iter();
    servers.map(move |server| Effect::close(server, why))
}

fn has_pooled_clients(connections: &Connections) -> bool {
    let pooled = |conn: &Conn| matches!(conn, Conn::Client(client) if client.pool().is_some());
    connections.iter().any(|(_, conn)| pooled(conn))
}
