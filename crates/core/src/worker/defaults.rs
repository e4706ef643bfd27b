//! A server has other defaults than the client was told of: what is the client's stays, what is everybody's
//! it is told, before the server sees any of its bytes.

use std::sync::{Arc, atomic::Ordering};

use pgweir_wire::MessageWriter;

use super::{Worker, exchange::enter};
use crate::{
    Actions, SharedPool, Time, Token,
    backend::{Own, Phase, Server},
    frontend::Client,
    session::{
        Context, Settings, SettingsTable, Tracked, TrackedNames,
        defaults::{Kept, keep, may_be_kept},
    },
};

impl SharedPool {
    /// Is it known what sessions begin with on servers that are opened now?
    pub(crate) fn is_known(&self) -> bool {
        let epoch = self.epochs.lock().present();
        let defaults = self.defaults.load(Ordering::Acquire);
        let facts = self.facts.lock();
        facts.welcome.is_some() && facts.epoch == epoch && facts.defaults == defaults
    }
}

impl Worker {
    /// Lends a server that has what the client has set, but says something else of other parameters.
    #[cold]
    pub(super) fn equip_differing(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some((client, server)) = self.table.pair(client_conn, server_conn) {
            enter(Phase::Equipping, client_conn, client, server_conn, server);
            self.prepared(server_conn, now, out);
        }
    }

    /// Has the server to be asked to keep what the client's session began with? It was, then.
    #[cold]
    pub(super) fn keeps_defaults(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> bool {
        let directory = Arc::clone(&self.directory);
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let Some(context) = client.context.as_deref() else {
            return false;
        };
        let names = directory.names();
        let kept: Vec<_> = differing(names, context, &client.tracked, &server.tracked)
            .filter(|kept| kept.value.is_ascii() || is_in_encoding(client, server))
            .collect();
        if kept.is_empty() {
            return false;
        }
        let text = keep(kept.iter().copied());
        let keeping = kept.iter().map(|kept| (kept.name, kept.value));
        let keeping = directory.settings().intern(keeping);
        if let Some(context) = client.context.as_deref_mut() {
            context.keeping = keeping;
        }
        server.ask(Own::Defaults);
        out.send_made(server_conn, |bytes| {
            MessageWriter::new(bytes).query(&text);
        });
        true
    }

    /// The server has kept what is the client's: from here on that is as good as asked for at login.
    pub(crate) fn defaults_kept(&mut self, server_conn: Token, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((_, client, server)) = self.table.pair_of(server_conn) else {
            return;
        };
        if let Some(context) = client.context.as_deref_mut() {
            let (names, settings) = (directory.names(), directory.settings());
            let keeping = std::mem::take(&mut context.keeping);
            let kept = keeping
                .iter()
                .filter(|&(name, value)| names.value(&server.tracked, name) == Some(value));
            let kept = settings.intern(kept);
            context.begin_with(&kept, settings);
            let held = settings.overlay(&server.session.held, &kept);
            server.session.holds(&held);
            server.session.forget_news();
        }
        self.hand_over(server_conn, now, out);
    }
}

impl Context {
    /// The session has begun with these values too, and has them.
    fn begin_with(&mut self, values: &Settings, settings: &SettingsTable) {
        self.base = settings.overlay(&self.base, values);
        self.wanted = settings.overlay(&self.wanted, values);
    }

    /// A RESET has brought what servers have by themselves: is that what the client had asked for?
    pub(super) fn recall_implied(
        &mut self,
        held: &[(Vec<u8>, Vec<u8>)],
        names: &TrackedNames,
        found: &Tracked,
        settings: &SettingsTable,
    ) {
        let is_lost = |name: &[u8], value: &[u8]| {
            let is_set = held.iter().any(|(set, _)| set == name) || self.base.get(name).is_some();
            !is_set && names.value(found, name).is_some_and(|now| now != value)
        };
        let lost: Vec<_> = self
            .implied
            .iter()
            .filter(|(name, value)| is_lost(name, value))
            .collect();
        if !lost.is_empty() {
            self.base = settings.overlay(&self.base, &settings.intern(lost));
        }
    }
}

/// What the client was told, has not set, and does not find.
fn differing<'c>(
    names: &'c TrackedNames,
    context: &'c Context,
    told: &'c Tracked,
    found: &'c Tracked,
) -> impl Iterator<Item = Kept<'c>> {
    names
        .respelled(told, found)
        .filter_map(|(name, told, found)| {
            let lower = name.to_ascii_lowercase();
            if !may_be_kept(name) || context.wanted.get(lower.as_bytes()).is_some() {
                return None;
            }
            let own = context.implied.get(lower.as_bytes());
            Some(Kept {
                name: name.as_bytes(),
                value: own.unwrap_or(told),
                is_own: own.is_some(),
            })
            .filter(|kept| kept.value != found)
        })
}

/// Was the client told in the encoding of the server?
fn is_in_encoding(client: &Client, server: &Server) -> bool {
    let facts = server.shared.facts.lock();
    let of_server = facts
        .welcome
        .as_ref()
        .and_then(|welcome| welcome.parameter(b"server_encoding"));
    of_server == Some(client.tracked.client_encoding())
}
