//! Passes the events of an online restart to [`online_restart`], and carries out what that module asks for.

use super::Worker;
use crate::{
    Actions, ReadMode, TakeoverMail, Time, Token,
    effect::RestartEffect,
    online_restart::{self, TakenOverClient},
    takeover::{ClientRecord, ListenNote},
};

impl Worker {
    /// Takes over a client of the old process. The driver registers the client's socket, and its server's, under the
    /// returned tokens **before** it executes the actions. `blocked`: some of the bytes that were sent to the client
    /// last are still unwritten.
    pub fn take_over_client(
        &mut self,
        record: Box<ClientRecord>,
        blocked: bool,
        now: Time,
        out: &mut Actions,
    ) -> TakenOverClient {
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, &mut *parts.connections);
        let conn =
            online_restart::insert_client(env, connections, parts.bindings, &record, blocked);
        parts.logins.client_taken_over();
        parts.cancel_requests.take_key(&record.cancel_key(), conn);
        parts.suspension.add(conn);
        out.read(conn, ReadMode::Hold);
        let restored = online_restart::restore_client(env, connections, parts.pools, conn, &record);
        let restored = restored.map(|effects| self.carry_out(effects, now, out));
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, &mut *parts.connections);
        let server = restored.and_then(|()| match &record.server {
            Some(server) => {
                let (pools, suspension) = (parts.pools, parts.suspension);
                let from = (conn, server);
                online_restart::take_over_server(env, connections, pools, suspension, from, out)
            }
            None => Ok(None),
        });
        let (server, effect) = match server {
            Err(fault) => {
                let effect = online_restart::refuse_handover(conn, &record, fault, out);
                (None, Some(effect))
            }
            Ok(Some((server, effect))) => {
                out.read(conn, ReadMode::Deliver);
                (Some(server), effect)
            }
            Ok(None) => {
                let (restart, around) = self.parts(now).for_restart(None);
                (None, restart.serve_or_hold(around, conn, &record, out))
            }
        };
        self.carry_out(effect, now, out);
        TakenOverClient {
            client: conn,
            server,
        }
    }

    /// Handles a message of the other process, or an order of the control thread.
    pub(super) fn restart_message(&mut self, word: TakeoverMail, now: Time, out: &mut Actions) {
        let client = match &word {
            TakeoverMail::Listening { key, .. } => self.cancel_requests.find(key),
            TakeoverMail::BeginHandover
            | TakeoverMail::CancelHandover
            | TakeoverMail::HandoverTimeout
            | TakeoverMail::OldProcessServers(_)
            | TakeoverMail::PlaceRequested(_)
            | TakeoverMail::PlaceLent(_)
            | TakeoverMail::Gone { .. }
            | TakeoverMail::Alone
            | TakeoverMail::AllBack => None,
        };
        let (restart, parts) = self.parts(now).for_restart(client);
        let effects = restart.handle(parts, word, out);
        self.carry_out(effects, now, out);
    }

    /// Hands a client over if it is at a quiet point, with its server if it keeps one.
    fn hand_over_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let (env, connections, pools) = (&parts.env, &*parts.connections, &*parts.pools);
        let handover =
            online_restart::prepare_client(env, connections, pools, parts.bindings, conn);
        let Some(handover) = handover else {
            return;
        };
        if let Some(server) = handover.server() {
            let _ = self.use_servers(now, out, |event, out| event.forget(server, out));
        }
        let parts = self.parts(now);
        let (connections, pools) = (parts.connections, &*parts.pools);
        parts
            .online_restart
            .send_client(connections, pools, handover, out);
        self.disconnect(now, out, |event, out| event.forget(conn, out));
    }

    /// Carries out an effect of an online restart.
    pub(super) fn carry_out_in_restart(
        &mut self,
        effect: RestartEffect,
        now: Time,
        out: &mut Actions,
    ) {
        let parts = self.parts(now);
        let (env, clients) = (&parts.env, parts.listening_clients);
        let (connections, pools) = (parts.connections, parts.pools);
        let restart = parts.online_restart;
        let effects = match effect {
            RestartEffect::ForwardNotification(client, message) => {
                return restart.forward(env, clients, client, &message, out);
            }
            RestartEffect::ForwardedAnswered(request, granted) => {
                return restart.forward_answered(env, clients, request, granted, out);
            }
            RestartEffect::ForwardedLost(client, why) => {
                let note = ListenNote::Lost(why.to_string());
                return restart.stop_forwarding(env, clients, client, note, out);
            }
            RestartEffect::AskForServerPlace(shared) => {
                return online_restart::request_server_place(env, &shared, out);
            }
            RestartEffect::RequestDone(client) => return restart.client_is_quiet(client),
            RestartEffect::EndForwarding => return restart.end_forwarding(env, clients, out),
            RestartEffect::TakenOverListens(client, granted) => {
                online_restart::arriving_answered(connections, client, granted, out)
                    .into_iter()
                    .collect()
            }
            RestartEffect::TakenOverFenced(client) => {
                online_restart::finish_listen_takeover(connections, pools, client, out)
                    .into_iter()
                    .collect()
            }
            RestartEffect::HandOverQuietClients => restart.hand_over_quiet_clients(connections),
            RestartEffect::HandOverClient(client) => {
                return self.hand_over_client(client, now, out);
            }
            RestartEffect::ReleaseServerPlaces => online_restart::release_server_places(env, pools),
            RestartEffect::ReportServerPlaces => {
                return online_restart::report_server_places(env, out);
            }
            RestartEffect::RequestServerPlaces => {
                return online_restart::request_server_places(env, pools, out);
            }
            RestartEffect::CheckEmpty => return restart.check_empty(env, connections, out),
            RestartEffect::ApplyConfiguration => {
                let snapshot = std::sync::Arc::clone(&self.snapshot);
                return self.reconfigure(snapshot, now, out);
            }
            RestartEffect::CountPoolClient(shared) => {
                return self.lend(now, out, |event, out| event.count_pool_client(&shared, out));
            }
        };
        self.carry_out(effects, now, out);
    }
}
