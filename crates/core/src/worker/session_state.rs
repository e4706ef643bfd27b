//! Adopts the session state that a transaction has left on its server connection.
//!
//! pgweir holds back the client's ReadyForQuery while it inspects the session. The result becomes the client's
//! context, and decides whether the client can go on with any server connection or is pinned to this one.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::{
    Worker,
    inspection::{Inspection, Rights},
    session::adopt_literal_settings,
    signal::signals_at_end,
};
use crate::{
    Actions, Directory, ReadMode, Time, Token,
    backend::{FailedInspections, InternalQuery, Phase, Request, Server, ServerSession, Settling},
    client_listen::{ChannelMove, fence, fences_to_move, send_backlog},
    frontend::Client,
    listen::Stage,
    loan::{begin, enter},
    pin::{Pin, Pins},
    role_settings,
    session::{Context, Effects, Probe, Settings, SettingsTable, State, TrackedNames, plan},
};

impl Worker {
    /// Handles what must precede a ReadyForQuery. Returns whether it may be sent now; `false` holds it back until
    /// an inspection has ended.
    #[cold]
    pub(crate) fn before_ready(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        let Some(server) = self.table.server(conn) else {
            return true;
        };
        let Some(client_conn) = server.relays_for() else {
            return true;
        };
        let is_last = server.status == b'I' && server.replies.is_last();
        let directory = Arc::clone(&self.directory);
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return true;
        };
        if client.context.is_none()
            || matches!(server.replies.current(), Some(Request::Internal(_)))
        {
            return true;
        }
        let signals = signals_at_end(client, server);
        let is_end = is_last && !client.socket.stream.is_in_body();
        note_sequences(client, server, is_end, now);
        if is_end {
            let settings = &self.snapshot.config.settings;
            adopt_literal_settings(client, server, settings, directory.settings());
        }
        let must_inspect = server.session.must_inspect_before_ready();
        server.session.queries.ready_is_held =
            is_end && (server.session.notifications.has_listening_client || must_inspect);
        server.session.signals = signals;
        if server.session.queries.ready_is_held {
            return false;
        }
        server.session.inspections.is_missing |= must_inspect;
        if is_end {
            server.session.transaction.effects = Effects::default();
            server.session.take_report_as_inspection();
        }
        if server.session.asks_for_rights() {
            return false;
        }
        send_unsent_parameters(directory.names(), client_conn, client, server, out);
        if !server.session.notifications.pending.is_empty() {
            send_backlog(&mut self.table, client_conn, out);
        }
        true
    }

    /// Inspects the session if the ReadyForQuery of the client's last request was held back: the request may have
    /// changed the session.
    #[inline]
    pub(crate) fn inspect_if_held(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        if server.session.asks_for_rights() {
            self.ask_for_rights(conn, out);
        } else if std::mem::take(&mut server.session.queries.ready_is_held) {
            self.inspect_held(conn, now, out);
        }
    }

    /// Settles the session after the client has received its ReadyForQuery.
    #[cold]
    pub(super) fn inspect_late(
        &mut self,
        conn: Token,
        settling: Settling,
        now: Time,
        out: &mut Actions,
    ) {
        let client = self.table.server(conn).and_then(|server| server.client());
        if let Some(server) = self.table.server(conn) {
            server.session.inspections.is_missing = false;
            let settling = Settling {
                inspections: true,
                ready_was_sent: true,
                ..settling
            };
            self.inspect_before_ready(conn, settling, now, out);
        }
        // The extension may have reported everything already: then no reply follows that would release the server.
        if let Some(server) = self.table.server(conn)
            && client.is_some()
            && server.relays_for() == client
        {
            self.release_if_done(conn, now, out);
        }
    }

    /// Settles the session before the client receives its ReadyForQuery.
    pub(super) fn inspect_held(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some(server) = self.table.server(conn) {
            let settling = Settling {
                inspections: server.session.needs_inspection_now(),
                ..Settling::default()
            };
            self.inspect_before_ready(conn, settling, now, out);
        }
    }

    fn inspect_before_ready(
        &mut self,
        conn: Token,
        settling: Settling,
        now: Time,
        out: &mut Actions,
    ) {
        self.record_inspection(conn, now);
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        if server.relays_for().is_none() {
            return;
        }
        server.session.transaction.ddl = None;
        enter(Phase::Settling(settling), client_conn, client, conn, server);
        out.read(client_conn, ReadMode::Hold);
        role_settings::renew_changed(&self.directory, &self.snapshot, &mut self.table, conn, out);
        self.inspect_session(conn, now, out);
    }

    fn inspect_session(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, _, server)) = self.table.pair_of(conn) else {
            return;
        };
        let looks = server
            .settling_mut()
            .is_some_and(|settling| std::mem::take(&mut settling.inspections));
        let reported = server
            .session
            .extension
            .last
            .as_ref()
            .filter(|report| !report.unclear && !report.cut)
            .map(|report| (**report).clone());
        if !looks {
            // The inspection runs only because of LISTEN; the rest can wait.
            if let Some(server) = self.table.server(conn) {
                server.session.transaction.effects = Effects::default();
            }
            return self.finish_inspection(conn, now, out);
        }
        let Some(mut state) = reported else {
            return self.probe(conn, out);
        };
        // A report does not contain custom parameters that are no longer set: their values are queried.
        let context = self.table.client(client_conn);
        let context = context.and_then(|client| client.context.as_deref());
        let names = context.map_or(Vec::new(), |context| no_longer_set(context, &state));
        let statements = self.needs_texts(conn, &state);
        if statements {
            state.statements.clear();
        }
        let mut privileged = Vec::new();
        if !state.privileged.is_empty()
            && let Some(server) = self.table.server(conn)
            && Rights::of(directory.names(), server) == Rights::Granted
        {
            privileged.clone_from(&state.privileged);
        }
        let probe = Probe {
            names,
            privileged,
            statements,
            ..Probe::default()
        };
        if probe.is_empty() {
            return self.adopt_state(
                conn,
                &Probe::reported(Vec::new()),
                state,
                Inspection::Known,
                now,
                out,
            );
        }
        self.ask_state(conn, probe, Some(state), None, out);
    }

    /// Makes the inspected session state the client's context.
    pub(super) fn adopt_state(
        &mut self,
        conn: Token,
        probe: &Probe,
        mut state: State,
        look: Inspection,
        now: Time,
        out: &mut Actions,
    ) {
        let failed = matches!(look, Inspection::Failed | Inspection::TooLong);
        let directory = Arc::clone(&self.directory);
        let server = self.table.server(conn);
        let Some((client_conn, settling)) =
            server.and_then(|server| Some((server.client()?, server.settling()?)))
        else {
            return;
        };
        self.record_inspected(client_conn, now, out);
        if !failed && (probe.statements || state.summary.is_some()) {
            self.adopt_sql_statements(client_conn, conn, &mut state, out);
        }
        let most = self.snapshot.config.settings.max_client_settings_bytes;
        let pinning = &self.snapshot.config.settings.pin_parameters;
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        let mut pins = found_pins(context, server, probe, &state, directory.names(), failed);
        let adopted = match failed {
            true => None,
            false => Some(adopt_settings(
                context, server, probe, state, most, &directory,
            )),
        };
        let is_too_much = adopted.as_ref().is_some_and(|adopted| adopted.is_too_much);
        let pins_by_parameter = is_too_much || Self::is_pinning(context, server, pinning);
        pins.insert_if(Pin::Parameter, pins_by_parameter);
        server.session.dirt.inspected();
        if look == Inspection::Failed {
            server.session.inspections.failed.failed(now);
            server.session.dirt.demand_inspection();
        } else {
            server.session.inspections.failed = FailedInspections::default();
        }
        let goes_back = settling.releases && pins.is_empty();
        let is_cleaned = look == Inspection::Cleaned;
        if is_cleaned {
            server.session.settings_cleaned();
            // The parameters that the server has reported are those of the clean. The client's have not changed.
            server.session.settings.has_unsent = false;
        }
        let restored = adopted.and_then(|adopted| match is_cleaned {
            true => plan(&adopted.target, &server.session.settings.held),
            false => plan(&adopted.target, &adopted.held),
        });
        let (pool, began) = (server.pool(), server.session.inspections.last_at);
        if goes_back {
            self.note_inspection_time(pool, began, now);
        }
        self.pin_by(client_conn, conn, pins, failed, now, out);
        let Some(server) = self.table.server(conn) else {
            return;
        };
        // If the server goes back, the client's next server will get the values.
        match restored.filter(|_| !goes_back) {
            Some(text) => {
                server.ask(InternalQuery::Restore);
                out.send_made(conn, |bytes| {
                    MessageWriter::new(bytes).query(&text);
                });
            }
            None => self.finish_inspection(conn, now, out),
        }
    }

    /// Pins the client to the server for these reasons.
    fn pin_by(
        &mut self,
        client_conn: Token,
        conn: Token,
        pins: Pins,
        failed: bool,
        now: Time,
        out: &mut Actions,
    ) {
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        let new = pins.new_since(context.pins);
        context.pin(pins, now);
        if let Some(first) = new.iter().next()
            && let Some(by) = server.session.recent_texts.of(first)
        {
            context.pinned_by = Some(Box::new(by));
        }
        if !failed {
            server.session.recent_texts.clear();
        }
        if !new.is_empty() {
            self.count_reasons(client_conn, conn, new, now, out);
        }
    }

    /// Goes on after the client's startup values were restored.
    pub(crate) fn startup_values_restored(&mut self, conn: Token, now: Time, out: &mut Actions) {
        if let Some((_, client, server)) = self.table.pair_of(conn)
            && let Some(context) = &client.context
        {
            server.session.holds(&context.wanted);
        }
        self.finish_inspection(conn, now, out);
    }

    /// Goes on when the session is settled except for its channels.
    fn finish_inspection(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        if !fences_to_move(&parts.env, parts.connections, conn, out) {
            self.finish_with_channels(conn, now, out);
        }
    }

    /// Moves the session's channels to the client's listener, and goes on when that is done.
    fn finish_with_channels(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let parts = self.parts(now);
        let (env, connections) = (&parts.env, parts.connections);
        let moved = parts
            .listening_clients
            .move_channels(env, connections, conn, out);
        if let ChannelMove::Done(effect) = moved {
            self.carry_out(effect, now, out);
            self.finish_with_fence(conn, now, out);
        }
    }

    /// Goes on when the channels are settled too: fences the client's notifications.
    pub(crate) fn finish_with_fence(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let client = self.table.server(conn).and_then(|server| server.client());
        let parts = self.parts(now);
        let mut fences = |client| fence(&parts.env, parts.connections, client, Stage::Fenced, out);
        if client.is_some_and(|client| !fences(client)) {
            self.finish_fenced_request(conn, now, out);
        }
    }

    /// Completes the client's request with ReadyForQuery. Whether the client keeps the server is decided when all
    /// that the server has sent is handled.
    pub(super) fn finish_fenced_request(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let server = self.table.server(conn);
        let Some((client_conn, settling)) =
            server.and_then(|server| Some((server.client()?, server.settling()?)))
        else {
            return;
        };
        send_backlog(&mut self.table, client_conn, out);
        let Some((client, server)) = self.table.pair(client_conn, conn) else {
            return;
        };
        server.session.notifications.has_listening_client = client.listening.is_some();
        let next = match settling.releases {
            true => Phase::Settled,
            false => Phase::Relaying,
        };
        enter(next, client_conn, client, conn, server);
        send_unsent_parameters(directory.names(), client_conn, client, server, out);
        if !settling.ready_was_sent {
            out.send_made(client_conn, |bytes| {
                MessageWriter::new(bytes).ready_for_query(b'I');
            });
        }
        let is_pinned = client.context.as_ref().is_some_and(|own| own.is_pinned());
        let pool = server.pool();
        let early = begin(client_conn, client, conn, server, out);
        if is_pinned {
            self.note_pinned_after_inspection(conn, now, out);
            self.settle_for_waiters(pool, now, out);
        }
        self.relay_early(client_conn, early, now, out);
    }
}

/// Records whose sequence values the server holds, and whether clients like this one ask for them (`currval`).
///
/// pgweir can't move such values. A client keeps its server for them only where a client of the same user and
/// `application_name` has asked for a value in another transaction than the one that made it.
fn note_sequences(client: &mut Client, server: &mut Server, is_end: bool, now: Time) {
    let effects = server.session.transaction.effects;
    if effects.intersects(MAKES_VALUES) {
        server.session.touch_sequences(client.origin.id);
    }
    if !is_end {
        return;
    }
    let reads = effects.contains(Effects::READS_SEQUENCE);
    let makes = effects.intersects(MAKES_VALUES);
    let readers = &server.shared.sequence_readers;
    let application = client.tracked.application_name();
    // A text may count as opaque only because the catalog was not read yet.
    let makes_for_sure = effects.intersects(Effects::SEQUENCE.and(Effects::EXECUTE));
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
const MAKES_VALUES: Effects = Effects::SEQUENCE.and(Effects::EXECUTE).and(Effects::OPAQUE);

/// Sends a client the parameters that its server has reported meanwhile.
pub(super) fn send_unsent_parameters(
    names: &crate::session::TrackedNames,
    client_conn: Token,
    client: &mut Client,
    server: &mut Server,
    out: &mut Actions,
) {
    if !std::mem::take(&mut server.session.settings.has_unsent) {
        return;
    }
    let told = std::mem::replace(&mut client.tracked, server.tracked.clone());
    out.send_made(client_conn, |bytes| {
        names.report(&told, &server.tracked, bytes);
    });
}

/// Returns the custom parameters that the client has set, and that are no longer reported as set.
fn no_longer_set(context: &Context, state: &State) -> Vec<Box<[u8]>> {
    let is_reported = |name: &[u8]| state.settings.iter().any(|(found, _)| found == name);
    let gone = context.wanted.iter().filter(|&(name, _)| {
        name.contains(&b'.') && context.base.get(name).is_none() && !is_reported(name)
    });
    gone.map(|(name, _)| name.into()).collect()
}

/// A client's settings after an inspection.
struct AdoptedSettings {
    /// The target: what the session has, and startup values that RESET has taken away.
    target: Settings,
    /// What the session has.
    held: Settings,
    /// Whether the settings exceed what a client may carry to another server.
    is_too_much: bool,
}

/// Makes the inspected settings the client's context. Settings that are too large to be carried stay with the
/// server, and so does the client.
fn adopt_settings(
    context: &mut Context,
    server: &mut Server,
    probe: &Probe,
    mut state: State,
    most: u32,
    directory: &Directory,
) -> AdoptedSettings {
    let table = directory.settings();
    let knows_channels = probe.channels || state.summary.is_some();
    let channels = knows_channels.then(|| std::mem::take(&mut state.channels));
    let found = settings(context, probe, state, &server.session);
    context.recall_implied(&found, directory.names(), &server.tracked, table);
    server.session.inspected(channels);
    let pairs = || found.iter().map(|(name, value)| (name, value));
    let bytes: usize = pairs().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > most as usize {
        // No other client shares these settings: they are not interned in the common table.
        let own = SettingsTable::default();
        let held = own.intern(pairs());
        return AdoptedSettings {
            target: own.overlay(&context.base, &held),
            held,
            is_too_much: true,
        };
    }
    let held = table.intern(pairs());
    context.wanted = table.overlay(&context.base, &held);
    server.session.holds(&held);
    AdoptedSettings {
        target: context.wanted.clone(),
        held,
        is_too_much: false,
    }
}

/// Returns what is set in the session: what was set before, corrected by what the probe asked for.
fn settings(
    context: &Context,
    probe: &Probe,
    state: State,
    session: &ServerSession,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let wanted = &context.wanted;
    let is_asked = |name: &[u8]| {
        probe.asks_all_settings()
            || probe
                .names
                .iter()
                .any(|asked| asked.eq_ignore_ascii_case(name))
    };
    let kept = wanted.iter().filter(|(name, _)| !is_asked(name));
    let mut settings: Vec<_> = kept
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    // A custom parameter that any client has set and reset on this server stays there as an empty string. A report
    // contains only what is set now.
    let is_left_over = |name: &[u8], value: &[u8]| {
        session.extension.last.is_none()
            && value.is_empty()
            && name.contains(&b'.')
            && (wanted.get(name).is_none() || session.settings.reset.contains(name))
    };
    // These belong to the transaction, whatever the probe returns for them.
    let is_of_transaction = |name: &[u8]| {
        matches!(
            name,
            b"transaction_isolation" | b"transaction_read_only" | b"transaction_deferrable"
        )
    };
    // A parameter that was queried by name need not be set at all.
    let is_usual = |name: &[u8], value: &[u8]| {
        !probe.asks_all_settings()
            && context.base.get(name).is_none()
            && (name == b"role" && value == b"none" || session.settings.usual(name) == Some(value))
    };
    let found = state.settings.into_iter();
    settings.extend(found.filter(|(name, value)| {
        !is_left_over(name, value) && !is_of_transaction(name) && !is_usual(name, value)
    }));
    settings
}

/// Returns the pins that an inspection has found, except those by parameters.
fn found_pins(
    context: &Context,
    server: &Server,
    probe: &Probe,
    state: &State,
    names: &TrackedNames,
    failed: bool,
) -> Pins {
    let mut pins = pins(context, probe, state, server.session.dirt.effects());
    let is_privileged = !state.privileged.is_empty() && Rights::of(names, server) != Rights::All;
    pins.insert_if(Pin::Privileged, is_privileged);
    pins.insert_if(Pin::Statement, server.session.client_names.are_own());
    // What the extension can't determine, no inspection finds for sure.
    let report = server.session.extension.last.as_deref();
    pins.insert_if(
        Pin::Unknown,
        failed || report.is_some_and(|own| own.unclear),
    );
    pins
}

/// Returns the pins by session state that can't be moved. Where the probe did not ask, the earlier answer stays.
fn pins(context: &Context, probe: &Probe, state: &State, effects: Effects) -> Pins {
    let mut pins = state.pins();
    for (pin, was_asked) in [
        (Pin::Temporary, probe.summary),
        (Pin::Lock, probe.summary),
        (Pin::Cursor, probe.summary),
        (Pin::Statement, probe.summary || probe.statements),
        // The pin lasts until a listener takes the channels.
        (Pin::Listen, false),
        // No probe can show that these are gone.
        (Pin::Sequence, false),
        (Pin::Seed, false),
        (Pin::Library, false),
        (Pin::Configured, false),
    ] {
        pins.insert_if(pin, !was_asked && context.pins.contains(pin));
    }
    pins.insert_if(Pin::Statement, !state.statements.is_empty());
    pins.insert_if(Pin::Seed, effects.contains(Effects::SEED));
    pins.insert_if(Pin::Library, effects.contains(Effects::LIBRARY));
    pins
}
