//! Tries the startup parameters of a client that logs in on a server, since only PostgreSQL can validate them.

use std::sync::{Arc, atomic::Ordering};

use super::{Exchange, pins::pin_at_login};
use crate::{
    Actions, Token,
    backend::{InternalQuery, Phase, REDEFINED},
    connections::moves::enter,
    effect::{ClientEffect, Effect, Effects, ServerEffect},
    session::{Context, Settings, Startup, is_identity, login_plan},
};

impl Exchange<'_> {
    /// Begins the session of a client whose session state is carried and that has asked for these parameters.
    pub(crate) fn begin_session(&mut self, conn: Token, asked: &[(Vec<u8>, Vec<u8>)]) {
        let directory = self.env.directory;
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let Some(pool) = client.pool().and_then(|pool| self.pools.get(pool)) else {
            return;
        };
        let shared = &pool.shared;
        // The values may change below, and the name is the one that the client has asked for.
        let tracked = client.tracked.clone();
        let own_name = tracked.application_name();
        let others = || {
            let asked = asked.iter().map(|(name, value)| (name, value));
            asked.filter(|(name, _)| !name.eq_ignore_ascii_case(APPLICATION_NAME))
        };
        if others().any(|(name, _)| name.contains(&b'.')) {
            let is_utf8 = shared.is_utf8();
            let mut customs = shared.custom_parameters.lock();
            for (name, _) in others().filter(|(name, _)| name.contains(&b'.')) {
                customs.insert(name, is_utf8);
            }
        }
        let settings = directory.settings();
        let mut context = Context::default();
        let name = (!own_name.is_empty()).then_some((APPLICATION_NAME, own_name));
        // A role is tried at each login, since PostgreSQL decides whether the client may have it.
        let names_identity = others().any(|(name, _)| is_identity(&name.to_ascii_lowercase()));
        let others = settings.intern(others());
        let is_unknown = !others.is_empty() && !shared.is_known();
        let known = if names_identity || is_unknown || !is_plain_name(own_name) {
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
        pin_at_login(client, pool.terms.dedicated, self.env.now);
    }

    /// Tries the startup parameters of a client that logs in.
    pub(crate) fn try_startup(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let (client, server) = self.connections.known_pair(client_conn, server_conn, out)?;
        let context = out.known(client.context.as_deref(), LOGS_IN)?;
        server.times.note_lent(self.env.now);
        // The query is empty if the server has these parameters already: they were tried before.
        let text = login_plan(&context.wanted, server.session.settings.held()).unwrap_or_default();
        enter(Phase::Equipping, client_conn, client, server_conn, server);
        out.ask(server_conn, server, InternalQuery::Startup, &text);
        None
    }

    /// Goes on with the login: the server has accepted the startup parameters.
    pub(super) fn startup_tried(
        &mut self,
        server_conn: Token,
        out: &mut Actions,
    ) -> Option<Effects> {
        let directory = self.env.directory;
        let (client_conn, client, server) = self.connections.known_pair_of(server_conn, out)?;
        if server.session.clean.is_due() {
            self.clean_session(server_conn, out);
            return None;
        }
        let shared = Arc::clone(&server.shared);
        let is_redefined = server.retirement.reason() == Some(REDEFINED);
        let give_back = Effect::Server(ServerEffect::GiveBack(server_conn));
        let context = out.known(client.context.as_deref_mut(), LOGS_IN)?;
        if is_redefined {
            server.session.holds(&context.wanted);
            client.become_idle();
            let wait = ClientEffect::Wait {
                client: client_conn,
                pool: shared.id,
                at_login: true,
            };
            return Some(Effects::from_iter([Effect::Client(wait), give_back]));
        }
        let asked = std::mem::take(&mut context.wanted);
        server.session.holds(&asked);
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
            // The answer of a server that was opened under former defaults is valid only for that server.
            let is_usual = facts.server_parameters.as_ref().is_some_and(|usual| {
                let mut unusual = names.respelled(&usual.tracked, &server.tracked);
                unusual.all(|(name, ..)| asked.get(name.to_ascii_lowercase().as_bytes()).is_some())
            });
            // A change of the session defaults first increments `defaults`, and then clears this cache. So an answer
            // that was read before the change is not stored after it.
            let mut startups = shared.startups.lock();
            if is_usual && shared.defaults.load(Ordering::Acquire) == server.retirement.defaults() {
                startups.keep(&others(&asked), startup);
            }
        }
        client.become_idle();
        let welcome = Effect::Client(ClientEffect::Welcome(client_conn));
        Some(Effects::from_iter([welcome, give_back]))
    }
}

/// Returns whether PostgreSQL leaves this application_name unchanged. Most clients have individual names.
fn is_plain_name(name: &[u8]) -> bool {
    name.len() < NAME_MAX && name.iter().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// The name, in reports of lost data, of a session that is missing at login.
const LOGS_IN: &str = "the session of a client that logs in";
const APPLICATION_NAME: &[u8] = b"application_name";
/// PostgreSQL truncates names of this length and above (`NAMEDATALEN`).
const NAME_MAX: usize = 64;
