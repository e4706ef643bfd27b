//! The beginning of a loan: the server gets the client's parameters, and the client's requests are relayed from then on.

use super::Lending;
use crate::{
    Action, Actions, Level, Source, Token,
    backend::{InternalQuery, Phase},
    client_listen::fence_first,
    effect::{Effect, SessionEffect},
    loan::{Early, begin, enter},
    session::{Class, Tracked, discards_plans},
};

impl Lending<'_> {
    /// Assigns the server to the client, and sets the client's parameters on it first.
    #[inline]
    pub(crate) fn equip(&mut self, server_conn: Token, client_conn: Token, out: &mut Actions) {
        let now = self.env.now;
        self.log_lent(client_conn, server_conn, out);
        let Some((client, server)) = self.connections.pair(client_conn, server_conn) else {
            return out.report_missing("the client or the server of a new loan");
        };
        let holder = server.holder.get();
        if let Some(listening) = &client.listening
            && holder != 0
            && holder != client.key.pid()
            && !self
                .listening_clients
                .have_delivered_before(listening, server.times.freed_at)
        {
            let env = self.env;
            let effects = fence_first(&env, self.connections, server_conn, client_conn, out);
            return self.effects.extend(effects);
        }
        client.request.transaction_at = now;
        server.times.lent_at = now;
        if std::mem::take(&mut server.session.lasting.is_from_login) {
            server.session.dirt.raise(Class::Opaque);
        }
        server.session.notifications.has_listening_client = client.listening.is_some();
        server.session.notifications.pending.clear();
        server.holder.set(client.key.pid());
        let waited = now.since(client.request.sent_at);
        if client.context.is_some() {
            return self.effects.push(Effect::Session(
                server_conn,
                SessionEffect::Equip {
                    client: client_conn,
                    waited,
                },
            ));
        }
        self.set_parameters(server_conn, client_conn, waited, out);
    }

    /// Lends the server to a client whose session state is not carried: only the tracked parameters are set.
    fn set_parameters(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        waited: u64,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.connections.pair(client_conn, server_conn) else {
            return out.report_missing("the client or the server of a new loan");
        };
        let start = out.scratch.len();
        let names = self.env.directory.names();
        let differ = names.plan(&client.tracked, &server.tracked, &mut out.scratch);
        self.pools.count_assignment(server.pool(), waited);
        if !differ {
            // The values are equal. The client adopts the server's addresses, so the next comparison is by address.
            client.tracked.adopt(&server.tracked);
            enter(Phase::Relaying, client_conn, client, server_conn, server);
            let early = begin(client_conn, client, server_conn, server, out);
            return self.relay_early(client_conn, early);
        }
        let range = start..out.scratch.len();
        enter(Phase::Equipping, client_conn, client, server_conn, server);
        server.ask(InternalQuery::Parameters);
        if self.env.is_verbose() {
            // Without the message's tag, its length, and the zero at its end.
            let text = (out.scratch.get(range.start + 5..range.end - 1)).unwrap_or_default();
            let text = format!("varcache_apply: {}", String::from_utf8_lossy(text));
            out.list.push(send(server_conn, range));
            return out.log(Level::Debug, server.subject(), text);
        }
        out.list.push(send(server_conn, range));
    }

    /// Lets the client's next messages go on, since the server that they waited for is certain now.
    #[cold]
    pub(crate) fn begin_relaying(
        &mut self,
        client_conn: Token,
        server_conn: Token,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.connections.pair(client_conn, server_conn) else {
            return;
        };
        let early = begin(client_conn, client, server_conn, server, out);
        self.relay_early(client_conn, early);
    }

    #[inline]
    fn relay_early(&mut self, client: Token, early: Option<Early>) {
        if let Some(early) = early {
            self.effects.push(Effect::RelayEarly(client, early));
        }
    }

    /// Lends the server, since it has the client's parameters now.
    pub(crate) fn prepared(&mut self, server_conn: Token, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.connections.pair_of(server_conn) else {
            return;
        };
        if let Some(context) = &mut client.context {
            context.servers_lost = 0;
            if server.session.unclean {
                return self
                    .effects
                    .push(Effect::Session(server_conn, SessionEffect::Clean));
            }
            if discards_plans(&context.wanted, &server.session.settings.held) {
                server.statements.prepared.plans_discarded();
            }
            server.session.holds(&context.wanted);
            server.session.settings.has_unsent = false;
            if !client.tracked.is_same(&server.tracked) {
                let directory = self.env.directory;
                let (names, settings) = (directory.names(), directory.settings());
                let (told, found) = (&client.tracked, &server.tracked);
                if context.keep_told(names, told, found, settings) {
                    let send = SessionEffect::SendDifferences(client_conn);
                    return self.effects.push(Effect::Session(server_conn, send));
                }
            }
        }
        self.hand_over(server_conn, out);
    }

    /// Begins to relay, since the server has the client's session state now.
    pub(crate) fn hand_over(&mut self, server_conn: Token, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.connections.pair_of(server_conn) else {
            return;
        };
        // The client adopts PostgreSQL's spelling of the values, and gets ParameterStatus for those that changed.
        let before = std::mem::replace(&mut client.tracked, server.tracked.clone());
        let spelled = server.tracked.clone();
        let names = self.env.directory.names();
        out.send_made(client_conn, |bytes| names.report(&before, &spelled, bytes));
        enter(Phase::Relaying, client_conn, client, server_conn, server);
        client.request.transaction_at = self.env.now;
        let early = begin(client_conn, client, server_conn, server, out);
        if self.env.is_verbose() {
            self.log_spelling(client_conn, &before, &spelled, out);
        }
        self.relay_early(client_conn, early);
    }

    /// Logs values that the server spells in another way than the client; the client's values become the server's.
    #[cold]
    fn log_spelling(&mut self, client: Token, before: &Tracked, now: &Tracked, out: &mut Actions) {
        let Some(client) = self.connections.client(client) else {
            return;
        };
        let subject = client.subject();
        for (name, before, now) in self.env.directory.names().respelled(before, now) {
            let text = format!(
                "varcache_set_canonical: setting {name} to its canonical version {} -> {}",
                String::from_utf8_lossy(before),
                String::from_utf8_lossy(now)
            );
            out.log(Level::Debug, subject.clone(), text);
        }
    }
}

fn send(to: Token, range: std::ops::Range<usize>) -> Action {
    Action::Send {
        to,
        source: Source::Scratch(range),
    }
}
