//! The end of a request, and the inspections that follow from it.
//!
//! Usually pgweir sends ReadyForQuery at once and inspects the session later, when another client needs the server
//! (`kept`). After some requests, such as LISTEN, it holds back the client's ReadyForQuery while it inspects the
//! session. In both cases, the session state that the inspection finds becomes part of the client's context, or pins the
//! client to this server connection.

use pgweir_wire::MessageWriter;

use super::{Exchange, sql_statements::needs_texts};
use crate::{
    Actions, ReadMode, Time, Token,
    backend::{Inspection, InspectionAnswers, Phase, Request, Server, Settling},
    client_listen::{fence, fences_to_move, has_channels_to_move, send_backlog},
    connections::{Connections, moves::enter},
    effect::{Effect, Effects, Env, PoolEffect, ServerEffect, SessionEffect},
    frontend::Client,
    listen::Stage,
    loan::{begin_relaying, send_unsent_parameters},
    measurement::recording,
    server_connections::role_settings,
    session::{Context, Effects as TextEffects, Probe, SettingsTable, State, Unlisted},
};

/// Does what must happen before the client gets a ReadyForQuery. Returns whether the ReadyForQuery may be sent now; if
/// `false`, it is held back until an inspection has ended.
#[cold]
pub(crate) fn before_ready(
    env: &Env<'_>,
    connections: &mut Connections,
    conn: Token,
    out: &mut Actions,
) -> bool {
    let Some(server) = connections.server(conn) else {
        return true;
    };
    let Some(client_conn) = server.relays_for() else {
        return true;
    };
    let is_last = server.is_outside_transaction() && server.replies.is_last();
    let Some((client, server)) = connections.known_pair(client_conn, conn, out) else {
        return true;
    };
    if client.context.is_none() || matches!(server.replies.current(), Some(Request::Internal(_))) {
        return true;
    }
    // If more requests follow, the server can't report which role has sent the signals.
    let is_alone = server.replies.is_last() && client.socket.stream.is_at_boundary();
    (server.session.loan).end_signals(is_alone, server.has_failed_transaction());
    let is_end = is_last && !client.socket.stream.is_in_body();
    note_sequences(client, server, is_end, env.now);
    if is_end {
        let settings = &env.snapshot.config.settings;
        adopt_literal_settings(client, server, settings, env.directory.settings());
    }
    let must_inspect = server.session.must_inspect_before_ready();
    let listens = server.session.loan.has_listening_client();
    let holds_ready = is_end && (listens || must_inspect);
    if holds_ready {
        server.session.loan.edit().hold_ready();
        return false;
    }
    if must_inspect {
        server.session.loan.edit().inspection.note_missing();
    }
    if is_end {
        server.session.loan.forget_effects();
        server.session.take_report_as_inspection();
    }
    if server.session.loan.asks_for_rights() {
        return false;
    }
    send_unsent_parameters(env.directory.names(), client_conn, client, server, out);
    if server.session.loan.notifications.is_any_pending() {
        send_backlog(connections, client_conn, out);
    }
    true
}

/// Returns what has to be done if the ReadyForQuery of the client's last request was held back: the request may have
/// changed the session, or have signalled other clients.
#[inline]
pub(crate) fn inspection_due(server: &mut Server, conn: Token) -> Option<Effect> {
    if server.session.loan.asks_for_rights() {
        return Some(Effect::AskForPrivileges(conn));
    }
    server
        .session
        .loan
        .release_ready()
        .then(|| Effect::Session(conn, SessionEffect::InspectHeld))
}

impl Exchange<'_> {
    /// Inspects the session after the client has received its ReadyForQuery.
    #[cold]
    pub(crate) fn inspect_late(
        &mut self,
        conn: Token,
        settling: Settling,
        out: &mut Actions,
    ) -> Option<Effects> {
        let server = self.connections.known_server(conn, out)?;
        server.session.loan.edit().inspection.begin_missing();
        let client = server.client();
        let settling = Settling {
            ready_was_sent: true,
            ..settling
        };
        let effects = self.begin_settling_session(conn, settling, true, out);
        let mut effects = effects.unwrap_or_default();
        // If the extension has already reported the whole state, no reply follows that would release the server.
        effects.extend(client.map(|client| {
            Effect::Server(ServerEffect::SettleFor {
                server: conn,
                client,
            })
        }));
        Some(effects)
    }

    /// Inspects the session before the client receives its ReadyForQuery.
    pub(crate) fn inspect_held(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let server = self.connections.known_server(conn, out)?;
        let inspects = server.session.needs_inspection_now();
        self.begin_settling_session(conn, Settling::default(), inspects, out)
    }

    /// Begins the phase Settling. If `inspects`, the session state is read, otherwise only the client's LISTEN channels
    /// are handled.
    fn begin_settling_session(
        &mut self,
        conn: Token,
        settling: Settling,
        inspects: bool,
        out: &mut Actions,
    ) -> Option<Effects> {
        let (client_conn, client, server) = self.connections.known_pair_of(conn, out)?;
        server.relays_for()?;
        role_settings::end_ddl(&self.env, server, out);
        recording::inspection_began(&self.env, client);
        enter(Phase::Settling(settling), client_conn, client, conn, server);
        out.read(client_conn, ReadMode::Hold);
        let env = &self.env;
        role_settings::renew_changed(env.directory, env.snapshot, self.connections, conn, out);
        if inspects {
            return self.inspect_session(conn, out);
        }
        // The rest of the session can be inspected later.
        let server = self.connections.server(conn)?;
        server.session.loan.forget_effects();
        self.finish_inspection(conn, out)
    }

    fn inspect_session(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let (_, client, server) = self.connections.known_pair_of(conn, out)?;
        let report = server.session.extension.last();
        let reported = report
            .filter(|report| !report.unclear && !report.cut)
            .cloned();
        let Some(mut state) = reported else {
            return self.probe(conn, out);
        };
        // The extension's report does not contain custom parameters that are no longer set, so their values are
        // queried.
        let context = client.context.as_deref();
        let names = context.map_or(Vec::new(), |context| no_longer_set(context, &state));
        let statements = needs_texts(server, &state);
        if statements {
            state.statements.clear();
        }
        let probe = Probe {
            names,
            statements,
            ..Probe::default()
        };
        if probe.is_empty() {
            let nothing = Probe::reported(Vec::new());
            return self.adopt_state(conn, &nothing, state, Inspection::Known, out);
        }
        let answers = InspectionAnswers {
            state,
            reported: true,
            ..probe.into()
        };
        self.ask_state(conn, None, answers, out)
    }

    /// Goes on after the client's startup values were restored.
    pub(super) fn startup_values_restored(
        &mut self,
        conn: Token,
        out: &mut Actions,
    ) -> Option<Effects> {
        if let Some((_, client, server)) = self.connections.pair_of(conn)
            && let Some(context) = &client.context
        {
            server.session.holds(&context.wanted);
        }
        self.finish_inspection(conn, out)
    }

    /// Goes on after the inspection. If the session listens to channels, they first move to the listener connection.
    pub(super) fn finish_inspection(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        if fences_to_move(&self.env, self.connections, conn, out) {
            return None;
        }
        match has_channels_to_move(self.connections, conn) {
            true => Some(Effect::MoveChannels(conn).into()),
            false => self.finish_with_fence(conn, out),
        }
    }

    /// Goes on when the channels have moved: from now on, the client gets its notifications from the listener
    /// connection.
    pub(crate) fn finish_with_fence(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let client = self.connections.server(conn)?.client()?;
        match fence(&self.env, self.connections, client, Stage::Fenced, out) {
            true => None,
            false => self.finish_request(conn, out),
        }
    }

    /// Completes the client's request with ReadyForQuery. Whether the client keeps the server is decided after all
    /// bytes from the server were handled.
    pub(crate) fn finish_request(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let server = self.connections.server(conn)?;
        let (client_conn, settling) = (server.client()?, server.settling()?);
        send_backlog(self.connections, client_conn, out);
        let (client, server) = self.connections.known_pair(client_conn, conn, out)?;
        let listens = client.listening.is_some();
        server.session.loan.edit().set_listening_client(listens);
        let next = match settling.releases {
            true => Phase::Settled,
            false => Phase::Relaying,
        };
        enter(next, client_conn, client, conn, server);
        let names = self.env.directory.names();
        send_unsent_parameters(names, client_conn, client, server, out);
        if !settling.ready_was_sent {
            out.send_made(client_conn, |bytes| {
                MessageWriter::new(bytes).ready_for_query(b'I');
            });
        }
        let is_pinned = client.context.as_ref().is_some_and(|own| own.is_pinned());
        let pool = server.pool();
        let early = begin_relaying(client_conn, client, conn, server, out);
        let mut effects = Effects::default();
        if is_pinned {
            self.withdraw_announcement(conn, out);
            effects.push(Effect::Pool(pool, PoolEffect::SettleForWaiters));
        }
        effects.extend(early.map(|early| Effect::RelayEarly(client_conn, early)));
        Some(effects)
    }
}

/// Records which client's sequence values the server has, and whether clients like this one read them (`currval`).
///
/// pgweir can't move such values. A client keeps its server for them only if a client of the same user and
/// `application_name` has read a value in another transaction than the one of the `nextval` call.
fn note_sequences(client: &mut Client, server: &mut Server, is_end: bool, now: Time) {
    let effects = server.session.loan.effects();
    if effects.intersects(MAKES_VALUES) {
        server.session.touch_sequences(client.origin.id);
    }
    if !is_end {
        return;
    }
    let reads = effects.contains(TextEffects::READS_SEQUENCE);
    let makes = effects.intersects(MAKES_VALUES);
    let readers = &server.shared.sequence_readers;
    let application = client.tracked.application_name();
    // A text may be opaque only because the catalog was not read yet, so the effect of opaque texts does not count
    // here.
    let makes_for_sure = effects.intersects(TextEffects::SEQUENCE.and(TextEffects::EXECUTE));
    if reads && !makes_for_sure {
        readers.insert(application);
    }
    if (reads || makes)
        && readers.contains(application)
        && let Some(context) = client.context.as_deref_mut()
    {
        context.keep_sequences(now);
    }
}

/// The effects of texts that may have called `nextval`.
const MAKES_VALUES: TextEffects = TextEffects::SEQUENCE
    .and(TextEffects::EXECUTE)
    .and(TextEffects::OPAQUE);

/// Returns the custom parameters that the client has set, and that are no longer reported as set.
fn no_longer_set(context: &Context, state: &State) -> Vec<Box<[u8]>> {
    let is_reported = |name: &[u8]| state.settings.iter().any(|(found, _)| found == name);
    let gone = context.wanted.iter().filter(|&(name, _)| {
        name.contains(&b'.') && context.base.get(name).is_none() && !is_reported(name)
    });
    gone.map(|(name, _)| name.into()).collect()
}

/// Adopts without an inspection the custom parameters that the transaction has set to constants, if the session has no
/// other new state. Like settings that pgweir itself has sent, they need no clean.
fn adopt_literal_settings(
    client: &mut Client,
    server: &mut Server,
    limits: &pgweir_config::Settings,
    settings: &SettingsTable,
) {
    let session = &server.session;
    let (Some(pairs), Some(context)) = (session.changes.literal_sets(), &mut client.context) else {
        return;
    };
    let is_settled = context.wanted.is_same(session.settings.held())
        && context.unlisted == Unlisted::None
        && !context.is_pinned()
        && session.settings_are_known_from_texts();
    let baseline = session.settings.baseline().cloned();
    let baseline = baseline.or_else(|| server.shared.facts.lock().baseline.clone());
    // Only an inspection finds PostgreSQL's own spelling of a value, or the startup value after a RESET.
    let is_custom = |name: &[u8]| {
        baseline
            .as_ref()
            .is_none_or(|usual| usual.get(name).is_none())
            && context.base.get(name).is_none()
            && context.implied.get(name).is_none()
    };
    if !is_settled
        || !limits.pin_parameters.is_empty()
        || !pairs.iter().all(|(name, _)| is_custom(name))
    {
        return;
    }
    // If a name occurs twice, its last value counts.
    let is_last = |at: usize, name: &[u8]| pairs[at + 1..].iter().all(|(later, _)| later != name);
    let last = pairs
        .iter()
        .enumerate()
        .filter(|(at, (name, _))| is_last(*at, name));
    let set = last.filter_map(|(_, (name, value))| Some((name.as_slice(), value.as_deref()?)));
    let is_named = |name: &[u8]| pairs.iter().any(|(set, _)| set == name);
    let kept = context.wanted.iter().filter(|(name, _)| !is_named(name));
    let wanted = settings.intern(kept.chain(set));
    let bytes: usize = wanted
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes <= limits.max_client_settings_bytes as usize {
        server.session.settings_known(&wanted);
        context.wanted = wanted;
    }
}
