//! Gives a server connection the session state of the client that it is lent to.

use super::{
    Exchange,
    cleaning::major_version,
    sql_statements::{send_statements, take_statements_of},
};
use crate::{
    Action, Actions, Level, Source, Token,
    backend::{InternalQuery, Phase, Server},
    connections::moves::enter,
    effect::{Effect, ServerEffect},
    frontend::Client,
    loan::begin_relaying,
    measurement::recording,
    session::{Class, Tracked, TrackedNames, discards_plans, plan, shown},
};

impl Exchange<'_> {
    /// Gives the server the client's session state, and lends it to the client.
    #[inline]
    pub(crate) fn equip(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let now = self.env.now;
        let (_, server) = self.connections.known_pair(client_conn, server_conn, out)?;
        if server.session.lasting.types.are_any()
            && let Some(replace) = self.replace_for_types(server_conn, client_conn, out)
        {
            return Some(replace);
        }
        let (client, server) = self.connections.known_pair(client_conn, server_conn, out)?;
        debug_assert_eq!(server.unfinished(), None, "at the beginning of a loan");
        client.request.note_transaction(now);
        client.socket.set_peeked(false);
        recording::equipped(&self.env, client, out);
        server.times.note_lent(now);
        if server.session.lasting.awaits_first_loan() && client.context.is_some() {
            note_login_state(server);
        }
        if client.listening.is_some() {
            server.session.loan.edit().set_listening_client(true);
        }
        server.holder().set(client.pid());
        let waited = now.since(client.request.sent_at());
        server.statements.running.begin_loan(waited);
        if client.context.is_some() {
            return self.equip_session(server_conn, client_conn, waited, out);
        }
        let pool = server.pool();
        if self
            .pools
            .get(pool)
            .is_some_and(|pool| pool.terms.carries_sessions)
        {
            // The client logged in before its pool carried session state, so what it changes is not recorded.
            server.session.note_unread_code();
        }
        let start = out.scratch.len();
        let names = self.env.directory.names();
        if names.plan(&client.tracked, &server.tracked, &mut out.scratch) {
            let range = start..out.scratch.len();
            enter(Phase::Equipping, client_conn, client, server_conn, server);
            server.ask(InternalQuery::Parameters);
            out.list.push(Action::Send {
                to: server_conn,
                source: Source::Scratch(range.clone()),
            });
            if self.env.is_verbose() {
                // The text of the Query, without the tag, the length, and the zero at its end.
                let text = out.scratch.get(range.start + 5..range.end - 1);
                let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
                trace_applied(server, &text, out);
            }
            self.pools.count_assignment(pool, waited);
            return None;
        }
        // The values are equal. The client and the server share them from now on, so the next comparison is by address.
        client.tracked.adopt(&server.tracked);
        let early = relay(client_conn, client, server_conn, server, out);
        self.pools.count_assignment(pool, waited);
        early
    }

    /// Lends a server to a client whose session state is carried.
    #[inline]
    fn equip_session(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        waited: u64,
        out: &mut Actions,
    ) -> Option<Effect> {
        let (client, server) = self.connections.pair(client_conn, server_conn)?;
        let context = client.context.as_ref()?;
        let pool = server.pool();
        if context.unproven {
            return self.try_startup(server_conn, client_conn, out);
        }
        let is_equal = context.wanted.is_same(server.session.settings.held())
            && context.sql.is_same(server.session.sql_statements.held())
            && (context.sql.is_empty()
                || server
                    .session
                    .sql_statements
                    .were_made_for(client.origin.id));
        if !is_equal && self.send_plan(server_conn, client_conn, out) {
            self.pools.count_assignment(pool, waited);
            return None;
        }
        let (client, server) = self.connections.pair(client_conn, server_conn)?;
        if let Some(context) = &mut client.context {
            context.servers_lost = 0;
        }
        discard_state_of_others(server_conn, client.origin.id, server, out);
        self.pools.count_assignment(pool, waited);
        if !client.tracked.is_same(&server.tracked) {
            client.tracked.adopt(&server.tracked);
            if !client.tracked.is_same(&server.tracked) {
                // The server has the client's settings, but differs in other parameters.
                enter(Phase::Equipping, client_conn, client, server_conn, server);
                return self.equipped(server_conn, out);
            }
        }
        relay(client_conn, client, server_conn, server, out)
    }

    /// Sends the server the client's settings and SQL-prepared statements. Returns `false` if the server has them
    /// already.
    #[cold]
    pub(super) fn send_plan(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> bool {
        let Some((client, server)) = self.connections.known_pair(client_conn, server_conn, out)
        else {
            return false;
        };
        let Some(context) = &mut client.context else {
            return false;
        };
        let has_statements = take_statements_of(server, context, client.origin.id);
        let text = plan(&context.wanted, server.session.settings.held());
        // The values are not logged: a custom parameter may contain a secret of the client.
        let shown = self.env.is_verbose().then(|| {
            let names = self.env.directory.names();
            let is_tracked = |name: &[u8]| names.tracked_position(name).is_some();
            shown(&context.wanted, server.session.settings.held(), is_tracked)
        });
        if text.is_none() && has_statements {
            return false;
        }
        discard_state_of_others(server_conn, client.origin.id, server, out);
        enter(Phase::Equipping, client_conn, client, server_conn, server);
        if let Some(text) = text {
            out.ask(server_conn, server, InternalQuery::Parameters, &text);
            if let Some(shown) = shown {
                trace_applied(server, &shown, out);
            }
        }
        if !has_statements {
            // The statements are sent after the settings, so that the names in them resolve by the client's
            // `search_path`.
            send_statements(server_conn, server, client, out);
        }
        true
    }

    /// Goes on after a clean that was needed before the server could get the client's session state. If the clean
    /// failed, the client gets another server.
    #[cold]
    pub(super) fn cleaned_for_client(&mut self, conn: Token, out: &mut Actions) -> Option<Effect> {
        let (client_conn, client, server) = self.connections.pair_of(conn)?;
        if let Some(why) = server.retirement.reason() {
            return Some(Effect::Server(ServerEffect::FailCheck(conn, why)));
        }
        if client.is_unproven() {
            return self.try_startup(conn, client_conn, out);
        }
        match self.send_plan(conn, client_conn, out) {
            true => None,
            false => self.equipped(conn, out),
        }
    }

    /// Goes on after the server has accepted the client's parameters.
    pub(super) fn equipped(&mut self, server_conn: Token, out: &mut Actions) -> Option<Effect> {
        let (client_conn, client, server) = self.connections.pair_of(server_conn)?;
        if let Some(context) = &mut client.context {
            context.servers_lost = 0;
            if server.session.clean.is_due() {
                self.clean_session(server_conn, out);
                return None;
            }
            if discards_plans(&context.wanted, server.session.settings.held()) {
                server.statements.prepared.plans_discarded();
            }
            server.session.holds(&context.wanted);
            if !client.tracked.is_same(&server.tracked) {
                let directory = self.env.directory;
                let (sent, found) = (&client.tracked, &server.tracked);
                if context.keep_sent_values(directory.names(), sent, found, directory.settings())
                    && self.send_plan(server_conn, client_conn, out)
                {
                    return None;
                }
            }
        }
        self.begin_relaying(server_conn, out)
    }

    /// Begins to relay, since the server has the client's session state now.
    fn begin_relaying(&mut self, server_conn: Token, out: &mut Actions) -> Option<Effect> {
        let (client_conn, client, server) = self.connections.pair_of(server_conn)?;
        // The client adopts PostgreSQL's spelling of the values, and gets ParameterStatus for those that changed.
        let before = std::mem::replace(&mut client.tracked, server.tracked.clone());
        let names = self.env.directory.names();
        out.send_made(client_conn, |bytes| {
            names.report(&before, &server.tracked, bytes)
        });
        if self.env.is_verbose() {
            trace_spelling(names, client, &before, &server.tracked, out);
        }
        client.request.note_transaction(self.env.now);
        relay(client_conn, client, server_conn, server, out)
    }
}

/// The version of PostgreSQL that introduced login event triggers.
const LOGIN_TRIGGERS: u32 = 17;

/// Notes at the first loan of a server whether a login trigger may have left session state.
#[cold]
fn note_login_state(server: &mut Server) {
    let Some(changes) = server.session.lasting.begin_first_loan() else {
        return;
    };
    let has_no_triggers = (1..LOGIN_TRIGGERS).contains(&major_version(server));
    if !has_no_triggers && server.shared.catalog.login_may_have_left_state(changes) {
        server.session.changes.raise(Class::Opaque);
    }
}

/// Logs, in PgBouncer's words, a text that gives a server its client's parameters.
#[cold]
fn trace_applied(server: &Server, text: &str, out: &mut Actions) {
    let text = format!("varcache_apply: {text}");
    out.log(Level::Debug, server.subject(), text);
}

/// Logs values that the server spells in another way than the client; from now on the client has the server's spelling.
#[cold]
fn trace_spelling(
    names: &TrackedNames,
    client: &Client,
    before: &Tracked,
    now: &Tracked,
    out: &mut Actions,
) {
    let subject = client.subject();
    for (name, before, now) in names.respelled(before, now) {
        let text = format!(
            "varcache_set_canonical: setting {name} to its canonical version {} -> {}",
            String::from_utf8_lossy(before),
            String::from_utf8_lossy(now)
        );
        out.log(Level::Debug, subject.clone(), text);
    }
}

/// Begins to relay between the client and its server.
#[inline]
fn relay(
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
    out: &mut Actions,
) -> Option<Effect> {
    enter(Phase::Relaying, client_conn, client, server_conn, server);
    let early = begin_relaying(client_conn, client, server_conn, server, out)?;
    Some(Effect::RelayEarly(client_conn, early))
}

/// Discards the sequence values of another client, and plans in which names may have another meaning than now, before any
/// message of this client is sent.
#[inline]
fn discard_state_of_others(conn: Token, client: u64, server: &mut Server, out: &mut Actions) {
    let sequences = server.session.has_foreign_sequences(client);
    let plans = server.take_outdated_plans();
    if sequences | plans {
        discard(conn, server, sequences, plans, out);
    }
}

/// Discards the sequence values of a server, its plans, or both.
#[cold]
fn discard(conn: Token, server: &mut Server, sequences: bool, plans: bool, out: &mut Actions) {
    let mut texts = Vec::new();
    if sequences {
        server.session.discard_sequences();
        texts.push("DISCARD SEQUENCES");
    }
    if plans {
        server.statements.prepared.plans_discarded();
        texts.push("DISCARD PLANS");
    }
    out.ask(
        conn,
        server,
        InternalQuery::Discard,
        texts.join(";").as_bytes(),
    );
}
