//! Inspections: queries that read the session state of a server.
//!
//! An inspection reads only state that may have changed. It compares parameters with their values in a session that has
//! set none ([`Baseline`]). If a value differs that the client is not known to have set, either code that pgweir can't read
//! has set the parameter, or its default has changed: a second query reads the defaults of these parameters. If they have
//! changed, or can't be read, a third one reads `pg_settings`, which costs several times as much.

use std::{collections::BTreeSet, sync::Arc};

use pgweir_wire::MessageWriter;

use super::{Exchange, cleaning::clean_of};
use crate::{
    Actions, Token,
    backend::{
        Inspection, InspectionAnswers, InternalAnswer, InternalQuery, Request, Server,
        UnexplainedParameters,
    },
    effect::Effects,
    session::{AllSettings, Baseline, Context, Probe, SHOWN, State, is_identity},
};

impl Exchange<'_> {
    /// Sends a query for the session state: for the parameters that were named in texts since the last inspection, or
    /// for the whole state. The server gets no other message until it has answered.
    pub(super) fn probe(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let (_, client, server) = self.connections.known_pair_of(conn, out)?;
        if needs_channels_only(server) {
            leave_out_clean(server);
            let channels = Probe {
                channels: true,
                ..Probe::default()
            };
            return self.ask_state(conn, None, channels.into(), out);
        }
        let baseline = server.session.settings.baseline().cloned();
        let baseline = baseline.or_else(|| server.shared.facts.lock().baseline.clone());
        if let Some(names) = named_only(server, baseline.as_deref()) {
            let named = Probe {
                names,
                must_fit: server.settling().is_some_and(|settling| settling.cleans),
                ..Probe::default()
            };
            return self.ask_state(conn, None, named.into(), out);
        }
        leave_out_clean(server);
        let wanted = client.context.iter().flat_map(|own| own.wanted.iter());
        let mut customs: BTreeSet<Box<[u8]>> = wanted
            .filter(|(name, _)| name.contains(&b'.'))
            .map(|(name, _)| name.into())
            .collect();
        customs.extend(server.session.loan.inspection.named().iter().cloned());
        let report = server.session.extension.last();
        let reported = report.iter().flat_map(|report| &report.custom_parameters);
        customs.extend(reported.map(|name| name.as_slice().into()));
        let known = server.shared.custom_parameters.lock();
        customs.extend(known.names().map(Box::from));
        drop(known);
        // The value of a startup parameter does not show whether the client has set it again, or has reset it.
        let session = &server.session;
        let baseline = baseline.filter(|_| !session.loan.inspection.concerns_startup_values());
        if baseline.is_some() {
            let base = client.context.iter().flat_map(|own| own.base.iter());
            let base = base.filter(|(name, _)| !is_identity(name));
            customs.extend(base.map(|(name, _)| Box::from(name)));
        }
        let mut probe = Probe::full(customs.into_iter().collect());
        if let Some(baseline) = baseline {
            probe.all = AllSettings::Compared(baseline);
        }
        self.ask_state(conn, None, probe.into(), out)
    }

    /// Sends the query of the probe, or of `more`, which reads the state that the first query has left open.
    pub(super) fn ask_state(
        &mut self,
        conn: Token,
        more: Option<Probe>,
        answers: InspectionAnswers,
        out: &mut Actions,
    ) -> Option<Effects> {
        let server = self.connections.known_server(conn, out)?;
        let mut text = more.as_ref().unwrap_or(&answers.probe).text();
        let cleans = server.settling().is_some_and(|settling| settling.cleans);
        if cleans {
            let clean = clean_of(server);
            text.push(b';');
            text.extend_from_slice(&clean.settings_text());
        }
        let result = match cleans {
            true => Inspection::Cleaned,
            false => Inspection::Known,
        };
        let answers = InspectionAnswers { result, ..answers };
        let answers = InternalAnswer::Inspection(Box::new(answers));
        server.session.queries.begin(answers);
        server.ask(InternalQuery::Probe);
        let pool = server.pool();
        self.pools
            .statements
            .inspected(server.statements.running.latest());
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.stats.now.look_count += 1;
            pool.stats.now.clean_count += u64::from(cleans);
        }
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).query(&text);
        });
        None
    }

    /// Handles the end of the answer to an inspection.
    pub(super) fn probed(&mut self, conn: Token, out: &mut Actions) -> Option<Effects> {
        let (_, client, server) = self.connections.known_pair_of(conn, out)?;
        let answers = match server.session.queries.end(InternalQuery::Probe) {
            Some(InternalAnswer::Inspection(answers)) => Some(answers),
            _ => None,
        };
        let answers = out.known(answers, "the answers to an inspection")?;
        let InspectionAnswers {
            mut probe,
            mut state,
            reported,
            unexplained: listed_for,
            mut result,
            bytes: _,
        } = *answers;
        if !reported && !result.has_failed() && is_incomplete(&probe, &state) {
            result = Inspection::Failed;
        }
        let defaults = take_shown(&mut state, &probe.all);
        if let Some(unexplained) = listed_for {
            unexplained.settle(&state, server);
        }
        if let AllSettings::Compared(baseline) = &probe.all
            && (!result.has_failed() || !probe.defaults_of.is_empty())
        {
            let context = client.context.as_deref();
            let has_failed = result.has_failed() || defaults.len() != probe.defaults_of.len();
            let unexplained = match has_failed {
                true => probe.defaults_of.clone(),
                false => unexplained(context, &state, &probe, baseline, &defaults),
            };
            if has_failed || !unexplained.is_empty() {
                // Either the client has set these parameters, or their defaults have changed: a further query decides
                // that.
                let baseline = Arc::clone(baseline);
                let answers = InspectionAnswers::explaining(probe, baseline, unexplained);
                server.session.settings.forget_baseline();
                return self.ask_state(conn, None, answers, out);
            }
            server.session.settings.set_baseline(Arc::clone(baseline));
        }
        if !result.has_failed()
            && let Some(more) = more_to_ask(&probe, &state)
        {
            state.summary = None;
            probe.statements = true;
            probe.channels = true;
            let answers = InspectionAnswers {
                state,
                ..probe.into()
            };
            return self.ask_state(conn, Some(more), answers, out);
        }
        if reported {
            probe = Probe::reported(probe.names);
        }
        let names = self.env.directory.names();
        let who = names.value(&server.tracked, b"session_authorization");
        if probe.asks_all_settings()
            && !reported
            && let Some(who) = who
            && who != server.shared.key.user.as_bytes()
        {
            state
                .settings
                .push((b"session_authorization".to_vec(), who.to_vec()));
        }
        self.adopt_state(conn, &probe, state, result, out)
    }
}

/// Reads a row of a server's answer to an internal query.
#[cold]
pub(crate) fn take_answer(server: &mut Server, row: &[u8]) {
    if let Some(Request::Internal(own)) = server.replies.current() {
        server.session.take_row(own, row);
    }
}

impl InspectionAnswers {
    /// Begins the query that follows a comparison with the baseline which left these parameters unexplained. It reads
    /// their defaults; if that has been tried, or can't be done, it lists the parameters that the session has set.
    fn explaining(mut probe: Probe, baseline: Arc<Baseline>, names: Vec<Vec<u8>>) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let may_show = |name: &Vec<u8>| baseline.is_plain(name) && name.iter().all(is_word);
        if probe.defaults_of.is_empty() && names.iter().all(may_show) {
            probe.defaults_of = names;
            return probe.into();
        }
        let unexplained = UnexplainedParameters { baseline, names };
        probe.all = AllSettings::Listed;
        probe.defaults_of = Vec::new();
        Self {
            unexplained: Some(unexplained),
            ..probe.into()
        }
    }
}

impl UnexplainedParameters {
    /// Confirms the baseline if the session has set all of these parameters.
    fn settle(self, state: &State, server: &mut Server) {
        let is_set = |name: &Vec<u8>| state.settings.iter().any(|(found, _)| found == name);
        if self.names.iter().all(is_set) {
            server.session.settings.set_baseline(self.baseline);
        }
    }
}

/// Returns the parameters that differ from the baseline, and that the client is not known to have set. It has set them if
/// their `defaults` are those of the baseline. Custom parameters do not count: no baseline contains them. A parameter
/// that only superusers may set is queried each time.
fn unexplained(
    context: Option<&Context>,
    state: &State,
    probe: &Probe,
    baseline: &Baseline,
    defaults: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let has_same_default = |name: &[u8]| {
        let mut defaults = probe.defaults_of.iter().zip(defaults);
        defaults.any(|(of, default)| of == name && baseline.get(of) == Some(default))
    };
    let is_known = |name: &[u8], value: &[u8]| {
        is_identity(name)
            || (probe.names.iter()).any(|custom| custom.eq_ignore_ascii_case(name))
            || has_same_default(name)
            || baseline.is_plain(name)
                && context.is_some_and(|context| context.wanted.get(name) == Some(value))
    };
    let settings = state.settings.iter();
    let unknown = settings.filter(|(name, value)| !is_known(name, value));
    unknown.map(|(name, _)| name.clone()).collect()
}

/// Returns whether the first answer to an inspection lacks rows that every PostgreSQL sends.
fn is_incomplete(probe: &Probe, state: &State) -> bool {
    // A second query has asked for the state that the first one has only counted.
    let is_first = !(probe.statements && probe.channels);
    let lacks_shown = probe.asks_all_settings() && state.shown.len() < SHOWN.len();
    is_first && (lacks_shown || probe.summary && state.summary.is_none())
}

/// Adds the values that were read one by one to the settings, if the session has set them. Returns the defaults that
/// were read of other parameters.
fn take_shown(state: &mut State, all: &AllSettings) -> Vec<Vec<u8>> {
    let mut shown = std::mem::take(&mut state.shown);
    let defaults = match all {
        AllSettings::Compared(_) if shown.len() > SHOWN.len() => shown.split_off(SHOWN.len()),
        _ => Vec::new(),
    };
    let Some((present, usual)) = shown.split_at_checked(SHOWN.len()) else {
        return defaults;
    };
    for (at, (name, present)) in SHOWN.iter().zip(present).enumerate() {
        let usual = match all {
            AllSettings::Compared(baseline) => baseline.get(name.as_bytes()),
            _ => usual.get(at).map(Vec::as_slice),
        };
        if usual != Some(present) {
            state
                .settings
                .push((name.as_bytes().to_vec(), present.clone()));
        }
    }
    defaults
}

/// Returns the probe for the state that an inspection has only counted.
fn more_to_ask(probe: &Probe, state: &State) -> Option<Probe> {
    let summary = state.summary?;
    let statements = !probe.statements && summary.from_sql + summary.named > 0;
    let channels = !probe.channels && summary.listens;
    (statements || channels).then(|| Probe {
        statements,
        channels,
        ..Probe::default()
    })
}

/// Returns whether it is enough to ask for the channels.
fn needs_channels_only(server: &Server) -> bool {
    let session = &server.session;
    session.changes.are_channels_only()
        && session.client_names.are_pooled()
        && session.loan.inspection.reset().is_empty()
}

/// Makes this inspection leave the settings as they are.
fn leave_out_clean(server: &mut Server) {
    if let Some(settling) = server.settling_mut() {
        settling.cleans = false;
    }
}

/// Returns the names in texts of class settings, if an inspection can ask for these alone.
fn named_only(server: &mut Server, baseline: Option<&Baseline>) -> Option<Vec<Box<[u8]>>> {
    let session = &server.session;
    if session.loan.inspection.concerns_startup_values() {
        // The value of a startup parameter does not show whether the client has set it again, or has reset it.
        return None;
    }
    let names = server.session.changes.names()?;
    let is_plain = |name: &[u8]| {
        name.contains(&b'.')
            || name == b"role"
            || baseline.is_some_and(|usual| usual.is_plain(name))
    };
    // Under some settings this query could fail; the one for all parameters resets them first.
    let disturbs = names.iter().any(|name| disturbs_inspection(name, None))
        || session
            .settings
            .held()
            .iter()
            .any(|(name, value)| disturbs_inspection(name, Some(value)));
    if disturbs {
        return None;
    }
    // Under another role, the client may have set parameters that the login role may not set.
    let changes_role = server.session.changes.affects_role();
    if !names.iter().all(|name| is_plain(name)) || changes_role && baseline.is_none() {
        return None;
    }
    Some(names.iter().cloned().collect())
}

/// Returns whether an inspection query may fail under this setting. Timeouts count if they are below one second:
/// PostgreSQL shows those in milliseconds. Compilation counts, since it may take a tenth of a second.
fn disturbs_inspection(name: &[u8], value: Option<&[u8]>) -> bool {
    let is_timeout =
        SHOWN.iter().any(|shown| shown.as_bytes() == name) || name == b"transaction_timeout";
    name.starts_with(b"jit") || is_timeout && value.is_none_or(|value| value.ends_with(b"ms"))
}
