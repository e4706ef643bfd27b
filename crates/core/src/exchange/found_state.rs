//! Evaluates the session state that an inspection has found: it becomes part of the client's context, or pins the
//! client to its server.

use std::collections::HashSet;

use super::{
    Exchange, INSPECTED,
    pins::{count_pins, has_pinning_parameter},
};
use crate::{
    Actions, Directory, Token,
    backend::{Inspection, InternalQuery, Server, ServerSession},
    base::pin::{Pin, Pins},
    effect::Effects,
    measurement::recording,
    session::{
        Context, Effects as TextEffects, Probe, Settings, SettingsTable, State, TrackedNames, plan,
    },
};

impl Exchange<'_> {
    /// Makes the inspected session state the client's context.
    pub(super) fn adopt_state(
        &mut self,
        conn: Token,
        probe: &Probe,
        mut state: State,
        inspection: Inspection,
        out: &mut Actions,
    ) -> Option<Effects> {
        let failed = inspection.has_failed();
        let directory = self.env.directory;
        let (client_conn, _, server) = self.connections.known_pair_of(conn, out)?;
        let settling = out.known(server.settling(), "the loan of a server that was inspected")?;
        if !failed && (probe.statements || state.summary.is_some()) {
            self.adopt_sql_statements(client_conn, conn, &mut state, out);
        }
        let settings = &self.env.snapshot.config.settings;
        let (client, server) = self.connections.known_pair(client_conn, conn, out)?;
        recording::inspected(&self.env, client, out);
        let context = out.known(client.context.as_deref_mut(), INSPECTED)?;
        let mut pins = found_pins(context, server, probe, &state, directory.names(), failed);
        let most = settings.max_client_settings_bytes;
        let adopted =
            (!failed).then(|| adopt_settings(context, server, probe, state, most, directory));
        let is_too_much = adopted.as_ref().is_some_and(|adopted| adopted.is_too_much);
        let pins_by_parameter =
            is_too_much || has_pinning_parameter(context, server, &settings.pin_parameters);
        pins.insert_if(Pin::Parameter, pins_by_parameter);
        server.session.changes.note_inspected();
        if !failed {
            server.session.lasting.types.note_settings(&context.wanted);
        }
        let pool = server.pool();
        if inspection == Inspection::TooLong
            && let Some(pool) = self.pools.get_mut(pool)
        {
            pool.stats.now.long_look_count += 1;
        }
        if inspection == Inspection::Failed {
            server
                .session
                .loan
                .edit()
                .inspection
                .note_failed(self.env.now);
            server.session.changes.demand_inspection();
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.stats.now.failed_look_count += 1;
            }
        } else {
            server.session.loan.edit().inspection.note_succeeded();
        }
        let goes_back = settling.releases && pins.is_empty();
        let is_cleaned = inspection == Inspection::Cleaned;
        if is_cleaned {
            server.session.settings_cleaned();
            // The server has reported the parameter values of a clean session. The client's values have not changed.
            server.session.loan.take_unsent();
        }
        let restored = adopted.and_then(|adopted| match is_cleaned {
            true => plan(&adopted.target, server.session.settings.held()),
            false => plan(&adopted.target, &adopted.held),
        });
        let began = server.session.loan.inspected_at();
        if goes_back {
            self.note_inspection_time(pool, began);
        }
        self.pin_by(client_conn, conn, pins, failed, out);
        // If the server is released, the client's next server gets the values.
        let Some(text) = restored.filter(|_| !goes_back) else {
            return self.finish_inspection(conn, out);
        };
        let server = self.connections.known_server(conn, out)?;
        out.ask(conn, server, InternalQuery::Restore, &text);
        None
    }

    /// Pins the client to the server for these reasons.
    fn pin_by(
        &mut self,
        client_conn: Token,
        conn: Token,
        pins: Pins,
        failed: bool,
        out: &mut Actions,
    ) -> Option<()> {
        let (client, server) = self.connections.known_pair(client_conn, conn, out)?;
        let context = out.known(client.context.as_deref_mut(), INSPECTED)?;
        let new = pins.new_since(context.pins);
        context.pin(pins, self.env.now);
        let first = new.iter().next();
        let by = first.and_then(|first| server.session.recent_texts.of(first));
        if let Some(by) = &by {
            context.pinned_by = Some(Box::new(by.clone()));
        }
        if !failed {
            server.session.recent_texts.clear();
        }
        if !new.is_empty() {
            let (env, loan) = (&self.env, (client_conn, conn));
            let new = (new, by.as_ref());
            count_pins(env, self.connections, self.pools, loan, new, out);
        }
        Some(())
    }
}

/// A client's settings after an inspection.
struct AdoptedSettings {
    /// The settings that the client's next server must get: those of the session, and startup values that a RESET has
    /// removed.
    target: Settings,
    /// The settings of the session.
    held: Settings,
    /// Whether the settings are too large to be carried to another server.
    is_too_much: bool,
}

/// Adds the inspected settings to the client's context. Settings that are too large to be carried pin the client to the
/// server.
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
    context.restore_startup_values(&found, directory.names(), &server.tracked, table);
    server.session.loan.edit().note_inspected(channels);
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

/// Returns the parameters that are set in the session: those that were set before, updated by those that the probe has
/// read.
fn settings(
    context: &Context,
    probe: &Probe,
    state: State,
    session: &ServerSession,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let wanted = &context.wanted;
    let asked: HashSet<&[u8]> = probe.names.iter().map(|name| &**name).collect();
    let is_asked = |name: &[u8]| probe.asks_all_settings() || asked.contains(name);
    let kept = wanted.iter().filter(|(name, _)| !is_asked(name));
    let mut settings: Vec<_> = kept
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    // A custom parameter that any client has set and reset on this server remains there as an empty string. The
    // extension's report contains only parameters that are set now.
    let is_left_over = |name: &[u8], value: &[u8]| {
        session.extension.last().is_none()
            && value.is_empty()
            && name.contains(&b'.')
            && (wanted.get(name).is_none() || session.loan.inspection.reset().contains(name))
    };
    // These parameters belong to the transaction, whatever the probe returns for them.
    let is_of_transaction = |name: &[u8]| {
        matches!(
            name,
            b"transaction_isolation" | b"transaction_read_only" | b"transaction_deferrable"
        )
    };
    // A parameter that was queried by name may have its default value.
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
    let mut pins = pins(context, probe, state, server.session.changes.effects());
    if is_of_superuser(server, names) {
        // pgweir can set the parameters on other servers, too.
        pins.remove(Pin::Privileged);
    }
    pins.insert_if(Pin::Statement, server.session.client_names.are_own());
    // State that the extension can't determine is unknown to an inspection, too.
    let report = server.session.extension.last();
    pins.insert_if(
        Pin::Unknown,
        failed || report.is_some_and(|own| own.unclear),
    );
    pins
}

/// Returns whether the user of a server's pool is a superuser.
fn is_of_superuser(server: &Server, names: &TrackedNames) -> bool {
    let facts = server.shared.facts.lock();
    let parameters = facts.server_parameters.as_ref();
    parameters.and_then(|own| names.value(&own.tracked, b"is_superuser")) == Some(b"on")
}

/// Returns the pins by session state that can't be moved. For state that the probe has not read, the earlier result
/// stays.
fn pins(context: &Context, probe: &Probe, state: &State, effects: TextEffects) -> Pins {
    let mut pins = state.pins;
    for (pin, was_asked) in [
        (Pin::Temporary, probe.summary),
        (Pin::Lock, probe.summary),
        (Pin::Cursor, probe.summary),
        (Pin::Statement, probe.summary || probe.statements),
        // The pin lasts until a listener takes the channels.
        (Pin::Listen, false),
        // No inspection shows whether the session still has these.
        (Pin::Sequence, false),
        (Pin::Seed, false),
        (Pin::Library, false),
        (Pin::Configured, false),
    ] {
        pins.insert_if(pin, !was_asked && context.pins.contains(pin));
    }
    pins.insert_if(Pin::Statement, !state.statements.is_empty());
    pins.insert_if(Pin::Seed, effects.contains(TextEffects::SEED));
    pins.insert_if(Pin::Library, effects.contains(TextEffects::LIBRARY));
    pins
}
