//! Online restart, on one worker: clients, and the servers that they keep, move to the process that replaces this one.
//!
//! This module owns, per worker ([`OnlineRestart`]): the progress of the handover while this process is the old one
//! (`handover_out`), and the clients that have left and use LISTEN, until the new process receives their notifications
//! (`forwarding`).
//!
//! Input: the control thread's orders and the other process's messages ([`TakeoverMail`]); clients at a quiet point
//! ([`OnlineRestart::client_is_quiet`]); clients of the old process, as records (`handover_in`), with their servers in
//! session mode (`server_handover`); notifications and answers of listeners for clients that are on their way.
//!
//! Output: actions that send a client or a message to the other process, mail to other workers, and effects:
//! [`RestartEffect`]s, which the worker carries out in turn, and effects for pools, clients and logins.

mod forwarding;
mod handover_in;
mod handover_out;
mod pinned;
mod server_handover;
mod serving;

pub use self::handover_in::TakenOverClient;
use self::{forwarding::ForwardedClients, handover_out::HandoverOut};
pub(crate) use self::{
    forwarding::{arriving_answered, finish_listen_takeover, send_listen_note},
    handover_in::{insert_client, refuse_handover, restore_client},
    handover_out::{
        prepare_client, release_server_places, report_server_places, request_server_place,
        request_server_places,
    },
    server_handover::take_over_server,
    serving::serve_taken_over_client,
};
use crate::{
    Actions, TakeoverMail, Token,
    client_listen::ListeningClients,
    connections::Connections,
    effect::{Effect, Env, RestartEffect},
    pooling::LocalPools,
};

/// The clients of a worker that move to another process, or that have moved and still listen through this one.
#[derive(Debug, Default)]
pub(crate) struct OnlineRestart {
    /// Set while clients are handed over to the new process.
    handover_out: Option<Box<HandoverOut>>,
    /// Clients that were handed over and still listen through this process.
    forwarded_clients: ForwardedClients,
}

/// The parts of a worker that messages of an online restart read or change.
pub(crate) struct RestartParts<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) listening_clients: &'w mut ListeningClients,
    /// The client with the cancel key that the message names, if it is connected here.
    pub(crate) client: Option<Token>,
}

impl OnlineRestart {
    /// Returns whether this worker hands its clients over.
    #[inline]
    pub(crate) fn hands_clients_over(&self) -> bool {
        self.handover_out.is_some()
    }

    /// Handles a message of the other process, or an order of the control thread.
    pub(crate) fn handle(
        &mut self,
        parts: RestartParts<'_>,
        word: TakeoverMail,
        out: &mut Actions,
    ) -> Vec<Effect> {
        let (env, connections) = (&parts.env, &*parts.connections);
        if let Some(next) = word.passes_on(env.worker, env.directory.workers()) {
            let mail = word.into();
            out.mail(next, mail);
            return Vec::new();
        }
        if let TakeoverMail::Listening { key, .. } = &word
            && !self.forwarded_clients.contains(key)
            && let Some(next) = word.tries_next(env.worker, env.directory.workers())
        {
            let mail = word.into();
            out.mail(next, mail);
            return Vec::new();
        }
        match word {
            TakeoverMail::BeginHandover => {
                self.begin_handover_out(env, parts.connections, parts.pools)
            }
            TakeoverMail::CancelHandover => self.cancel_handover_out(out),
            TakeoverMail::HandoverTimeout => handover_out::end_handover_timeout(connections),
            TakeoverMail::OldProcessServers(note) => {
                handover_in::note_old_process_servers(env, &note, false, out);
                Vec::new()
            }
            TakeoverMail::PlaceRequested(note) => {
                handover_in::note_old_process_servers(env, &note, true, out);
                Vec::new()
            }
            TakeoverMail::PlaceLent(note) => handover_out::take_lent_place(env, &note, out),
            TakeoverMail::Gone { shared, .. } => self.server_handed_over(env, &shared, out),
            TakeoverMail::Alone => handover_in::predecessor_gone(env, connections, out),
            TakeoverMail::Listening { key, note } => {
                self.handle_listen_note(parts, &key, note, out)
            }
            TakeoverMail::AllBack => {
                self.forget_forwarded_clients(env, parts.listening_clients, out);
                Vec::new()
            }
        }
    }
}

/// Makes an effect of one for an online restart.
fn restart(effect: RestartEffect) -> Effect {
    Effect::Restart(effect)
}
