//! Gives a server connection the session state of the client that it is lent to. When a client logs in, its startup
//! parameters are first tried on a server, since only PostgreSQL can validate them.

use std::sync::{Arc, atomic::Ordering};

use pgweir_wire::MessageWriter;

use super::Worker;
use crate::{
    Action, Actions, SharedPool, Source, Time, Token,
    backend::{InternalQuery, Phase, REDEFINED, Sequences, Server},
    frontend::{Client, ClientDuty},
    loan::{begin, enter},
    session::{Context, Settings, SettingsTable, Startup, is_identity, login_plan, plan, shown},
};

impl Worker {
    /// Lends a server to a client whose session state is carried. Returns `false` if the server was not lent.
    #[inline]
    pub(super) fn equip_session(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        waited: u64,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let pool = server.pool();
        if client
            .context
            .as_ref()
            .is_some_and(|context| context.unproven)
        {
            return self.try_startup(server_conn, client_conn, now, out);
        }
        let is_equal = client.context.as_ref().is_some_and(|context| {
            context.wanted.is_same(&server.session.settings.held)
                && context.sql.is_same(&server.session.sql_statements.held)
                && (context.sql.is_empty()
                    || server.session.sql_statements.made_for.0 == client.origin.id)
        });
        if !is_equal && self.send_plan(server_conn, client_conn, out) {
            self.count_assignment(pool, waited);
            return true;
        }
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        if server.session.has_foreign_sequences(client.origin.id) {
            discard_sequences(server_conn, server, out);
        }
        if !client.tracked.is_same(&server.tracked) {
            client.tracked.adopt(&server.tracked);
            if !client.tracked.is_same(&server.tracked) {
                self.count_assignment(pool, waited);
                self.equip_differing(server_conn, client_conn, now, out);
                return true;
            }
        }
        enter(Phase::Relaying, client_conn, client, server_conn, server);
        let early = begin(client_conn, client, server_conn, server, out);
        self.count_assignment(pool, waited);
        self.relay_early(client_conn, early, now, out);
        true
    }

    /// Sends the server the client's settings and SQL statements. Returns `false` if the server has them already.
    #[cold]
    pub(super) fn send_plan(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> bool {
        let is_verbose = self.is_verbose();
        let directory = Arc::clone(&self.directory);
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let Some(context) = &mut client.context else {
            return false;
        };
        let text = plan(&context.wanted, &server.session.settings.held);
        // A setting that PostgreSQL does not report may be a secret of its client.
        let shown = is_verbose.then(|| {
            let is_tracked = |name: &[u8]| directory.names().tracked_position(name).is_some();
            shown(&context.wanted, &server.session.settings.held, is_tracked)
        });
        let has_statements =
            server
                .session
                .has_sql_for(&context.sql, client.origin.id, &context.wanted);
        if has_statements {
            // From now on the two are equal by address too, which the next comparison checks first.
            context.sql = server.session.sql_statements.held.clone();
            server
                .session
                .sql_used_by(client.origin.id, &context.wanted);
        }
        if text.is_none() && has_statements {
            return false;
        }
        begin_preparing(client_conn, client, server_conn, server, out);
        if let Some(text) = text {
            server.ask(InternalQuery::Parameters);
            query(server_conn, &text, out);
            if let Some(shown) = shown {
                self.trace_applied(server_conn, &shown, out);
            }
        }
        // The statements follow the settings: names in them resolve as they do for the client (`search_path`).
        self.send_statements(server_conn, client_conn, out);
        true
    }

    /// Goes on after session state on the server conflicted with the client's and was cleaned. If the clean failed,
    /// the client gets another server.
    #[cold]
    pub(crate) fn cleaned_for_client(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, _, server)) = self.table.pair_of(conn) else {
            return;
        };
        if let Some(why) = server.retirement.reason {
            return self.check_failed(conn, why, now, out);
        }
        if self.is_unproven(client_conn) {
            self.try_startup(conn, client_conn, now, out);
        } else if !self.send_plan(conn, client_conn, out) {
            self.prepared(conn, now, out);
        }
    }

    /// Begins the session of a client whose session state is carried and that has asked for these parameters.
    pub(super) fn begin_session(
        &mut self,
        conn: Token,
        shared: &SharedPool,
        mut asked: Vec<(Vec<u8>, Vec<u8>)>,
    ) {
        let directory = Arc::clone(&self.directory);
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let own_name = client.tracked.application_name().to_vec();
        asked.retain(|(name, _)| !name.eq_ignore_ascii_case(APPLICATION_NAME));
        let is_utf8 = shared.is_utf8();
        let mut customs = shared.custom_parameters.lock();
        for (name, _) in asked.iter().filter(|(name, _)| name.contains(&b'.')) {
            customs.insert(name, is_utf8);
        }
        drop(customs);
        let settings = directory.settings();
        let mut context = Context::default();
        let name = (!own_name.is_empty()).then_some((APPLICATION_NAME, &*own_name));
        let others = settings.intern(asked.iter().map(|(name, value)| (name, value)));
        // PostgreSQL decides each time whether the client may have a role.
        let names_who = asked
            .iter()
            .any(|(name, _)| is_identity(&name.to_ascii_lowercase()));
        let is_unknown = !others.is_empty() && !shared.is_known();
        let known = if names_who || is_unknown || !is_plain_name(&own_name) {
            None
        } else if others.is_empty() {
            Some(Settings::default())
        } else {
            shared.startups.lock().find(&others).map(|startup| {
                client.tracked = startup.tracked.clone();
                context.implied = startup.implied.clone();
                startup.base.clone()
            })
        };
        context.unproven = known.is_none();
        let base = known.unwrap_or(others);
        context.base = settings.overlay(&base, &settings.intern(name));
        context.wanted = context.base.clone();
        if let (Some(at), Some((_, name))) = (directory.names().position(APPLICATION_NAME), name) {
            client.tracked.set(at, name);
        }
        client.context = Some(Box::new(context));
    }

    /// Returns whether this server's client is pinned.
    pub(super) fn has_pinned_client(&mut self, server: Token) -> bool {
        let client = self.table.server(server).and_then(|server| server.client());
        let client = client.and_then(|client| self.table.client(client));
        let context = client.and_then(|client| client.context.as_ref());
        context.is_some_and(|context| context.is_pinned())
    }

    /// Returns whether this client's startup parameters still have to be tried on a server.
    pub(super) fn is_unproven(&mut self, client: Token) -> bool {
        let context = self
            .table
            .client(client)
            .and_then(|client| client.context.as_ref());
        context.is_some_and(|context| context.unproven)
    }

    /// Tries the startup parameters of a client that logs in.
    pub(super) fn try_startup(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let Some(context) = &client.context else {
            return false;
        };
        server.times.lent_at = now;
        // The query is empty if there is nothing to do: the parameters that the server holds were tried before.
        let text = login_plan(&context.wanted, &server.session.settings.held).unwrap_or_default();
        enter(Phase::Equipping, client_conn, client, server_conn, server);
        server.session.settings.reads_notices = true;
        server.ask(InternalQuery::Startup);
        query(server_conn, &text, out);
        true
    }

    /// Goes on with the login: the server has accepted the startup parameters.
    pub(crate) fn startup_tried(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        server.session.settings.reads_notices = false;
        if server.session.unclean {
            return self.clean_session(server_conn, now, out);
        }
        let shared = Arc::clone(&server.shared);
        let is_redefined = server.retirement.reason == Some(REDEFINED);
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        if is_redefined {
            server.session.holds(&context.wanted);
            server.session.settings.has_unsent = false;
            client.duty = ClientDuty::Idle;
            self.wait(client_conn, shared.id, true, now, out);
            return self.give_back(server_conn, false, now, out);
        }
        let asked = std::mem::take(&mut context.wanted);
        server.session.holds(&asked);
        server.session.settings.has_unsent = false;
        let (names, settings) = (directory.names(), directory.settings());
        let usual = shared.facts.lock().server_parameters.clone();
        let spelled = asked
            .iter()
            .map(|(name, value)| (name, names.value(&server.tracked, name).unwrap_or(value)));
        let (implied, unusual): (Vec<_>, Vec<_>) = spelled.partition(|&(name, value)| {
            let usual = usual.as_ref().map(|usual| &usual.tracked);
            usual.and_then(|usual| names.value(usual, name)) == Some(value)
        });
        context.implied = settings.intern(implied);
        context.base = settings.intern(unusual);
        context.wanted = context.base.clone();
        context.unproven = false;
        client.tracked = server.tracked.clone();
        if asked.get(APPLICATION_NAME).is_none_or(is_plain_name) {
            let others = |of: &Settings| {
                settings.intern(of.iter().filter(|(name, _)| *name != APPLICATION_NAME))
            };
            let startup = Startup {
                base: others(&context.base),
                implied: others(&context.implied),
                tracked: server.tracked.clone(),
            };
            let facts = shared.facts.lock();
            // The answer of a server that was opened under other defaults than the latest is valid only for that
            // server.
            let is_usual = facts.server_parameters.as_ref().is_some_and(|usual| {
                let mut unusual = names.respelled(&usual.tracked, &server.tracked);
                unusual.all(|(name, ..)| asked.get(name.to_ascii_lowercase().as_bytes()).is_some())
            });
            // A change of the session defaults first counts up `defaults`, and then forgets all that is kept here.
            let mut startups = shared.startups.lock();
            if is_usual && shared.defaults.load(Ordering::Acquire) == server.retirement.defaults {
                startups.keep(&others(&asked), startup);
            }
        }
        client.duty = ClientDuty::Idle;
        self.log_in(now, out, |event, out| event.welcome(client_conn, out));
        self.give_back(server_conn, false, now, out);
    }
}

/// Returns whether PostgreSQL leaves this application_name unchanged. Most clients have individual names.
fn is_plain_name(name: &[u8]) -> bool {
    name.len() < NAME_MAX && name.iter().all(|byte| matches!(byte, 0x20..=0x7e))
}

const APPLICATION_NAME: &[u8] = b"application_name";
/// PostgreSQL truncates names of this length and above (`NAMEDATALEN`).
const NAME_MAX: usize = 64;

/// Adopts custom parameters that the transaction has set to constants without an inspection, if the session has no
/// other new state. The server needs no clean either, as after settings that pgweir itself has sent.
pub(super) fn adopt_literal_settings(
    client: &mut Client,
    server: &mut Server,
    limits: &pgweir_config::Settings,
    settings: &SettingsTable,
) {
    let session = &server.session;
    let (Some(pairs), Some(context)) = (session.dirt.literal_sets(), &mut client.context) else {
        return;
    };
    let is_settled = context.wanted.is_same(&session.settings.held)
        && !context.has_unlisted
        && !context.is_pinned()
        && session.texts_tell_settings();
    let baseline = session.settings.baseline.clone();
    let baseline = baseline.or_else(|| server.shared.facts.lock().baseline.clone());
    // Only an inspection finds PostgreSQL's own spelling, or a startup value that RESET brings back.
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
    // If a name comes twice, its last value counts.
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

/// Begins to give the server the client's session state.
fn begin_preparing(
    client_conn: Token,
    client: &mut Client,
    server_conn: Token,
    server: &mut Server,
    out: &mut Actions,
) {
    if server.session.has_foreign_sequences(client.origin.id) {
        discard_sequences(server_conn, server, out);
    }
    enter(Phase::Equipping, client_conn, client, server_conn, server);
}

/// Discards another client's sequence values before anything of this client is sent.
fn discard_sequences(conn: Token, server: &mut Server, out: &mut Actions) {
    server.session.sequences = Sequences::None;
    server.ask(InternalQuery::Sequences);
    query(conn, b"DISCARD SEQUENCES", out);
}

fn query(conn: Token, text: &[u8], out: &mut Actions) {
    let start = out.scratch.len();
    MessageWriter::new(&mut out.scratch).query(text);
    let range = start..out.scratch.len();
    out.list.push(Action::Send {
        to: conn,
        source: Source::Scratch(range),
    });
}
