//! Pinned clients, which keep their servers between transactions: counts by pool and reason, and log lines about
//! them.

use super::Exchange;
use crate::{
    Actions, Level, Time, Token,
    backend::Server,
    base::pin::{Pin, Pins},
    connections::Connections,
    effect::Env,
    frontend::Client,
    pooling::{self, LocalPools},
    session::{Context, Fingerprint, Unlisted},
};

/// Counts and logs the reasons for which a client has just been pinned. `by`: the statement that is probably the
/// reason; if `None`, the client's latest statement counts.
#[cold]
pub(crate) fn count_pins(
    env: &Env<'_>,
    connections: &mut Connections,
    pools: &mut LocalPools,
    (client_conn, server_conn): (Token, Token),
    (new, by): (Pins, Option<&Fingerprint>),
    out: &mut Actions,
) {
    let logs = env.snapshot.config.settings.log_pins;
    let Some((client, server)) = connections.known_pair(client_conn, server_conn, out) else {
        return;
    };
    let statement = match by {
        Some(by) if pools.statements.is_on() => {
            let text = || by.text.clone();
            pools
                .statements
                .statement(server.statement_pool(), by.hash, text)
        }
        _ => server.statements.running.latest(),
    };
    pools.statements.pinned(statement);
    let Some(pool) = pools.get_mut(server.pool()) else {
        return out.report_missing("the pool of a server connection");
    };
    for pin in new.iter() {
        let count = pool.pin_count(pin);
        if !logs {
            count.add();
        } else if let Some(not_logged) = count.add_logged(env.now) {
            let text = line(client, server, pin, not_logged);
            out.log(Level::Log, client.subject(), text);
        }
    }
}

/// Pins a client at its login. If the configuration demands the pin (`is_configured`), it lasts until the client
/// leaves. Otherwise the reason is a parameter of the startup packet, and the pin lasts as long as the parameter is
/// set.
pub(crate) fn pin_at_login(client: &mut Client, is_configured: bool, now: Time) {
    if let Some(context) = client.context.as_deref_mut() {
        let mut pins = Pins::default();
        pins.insert_if(Pin::Configured, is_configured);
        pins.insert_if(
            Pin::Parameter,
            context.ends_sessions() || context.marks_sessions(),
        );
        context.pin(pins, now);
    }
}

/// Returns whether a session has set a parameter that pins its client: one of `pin_parameters`, one whose value can't
/// be queried, or one with which servers have ended.
pub(super) fn has_pinning_parameter(context: &Context, server: &Server, names: &[String]) -> bool {
    // The extension reports all parameters, or that it can't, which is a reason of its own.
    let is_reported = server.session.extension.last().is_some();
    let is_apart = context.ends_sessions() || context.marks_sessions();
    if context.unlisted != Unlisted::None && !is_reported || is_apart {
        return true;
    }
    let is_named = |name: &[u8]| {
        let mut names = names.iter();
        names.any(|pinning| pinning.as_bytes().eq_ignore_ascii_case(name))
    };
    let mut wanted = context.wanted.iter();
    !names.is_empty()
        && wanted.any(|(name, value)| is_named(name) && context.base.get(name) != Some(value))
}

/// Returns whether the client of this server is pinned.
pub(crate) fn is_pinned_to(connections: &mut Connections, server: Token) -> bool {
    let client = connections.pair_of(server).map(|(_, client, _)| client);
    let context = client.and_then(|client| client.context.as_ref());
    context.is_some_and(|context| context.is_pinned())
}

impl Exchange<'_> {
    /// Counts a server that a pinned client keeps.
    #[cold]
    pub(crate) fn count_kept(&mut self, server_conn: Token, out: &mut Actions) {
        let Some(server) = self.connections.known_server(server_conn, out) else {
            return;
        };
        if server.session.lists.count() {
            return;
        }
        let env = self.env;
        let notes = server.shared.ledger.lock().pin(env.now);
        pooling::deliver(&env, &notes, &server.shared, out);
        // The tick has to check `pin_timeout`.
        self.connections.schedule(env.now);
    }
}

fn line(client: &Client, server: &Server, pin: Pin, not_logged: u64) -> String {
    let mut text = format!("pinned to S-{:#x}: {}", server.id(), pin.name());
    let context = client.context.as_ref();
    if let Some(by) = context.and_then(|context| context.pinned_by.as_ref()) {
        text += &format!(" (statement {by}: {})", by.text);
    }
    if not_logged > 0 {
        text += &format!("; {not_logged} more since the last line about this reason");
    }
    text
}
