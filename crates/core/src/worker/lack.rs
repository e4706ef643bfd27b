//! Clients' settings that servers don't take.
//!
//! A plan that fails is tried again, each step by itself, so that it is known which setting is refused.
//! Nothing of the client is run under others than it has set: its requests fail with PostgreSQL's words,
//! except for one that does nothing but change what is refused. That goes to a server that has all the
//! rest, alone.

use std::sync::Arc;

use pgweir_wire::{MessageWriter, Report, Severity};

use super::{Worker, exchange::enter, session::begin_preparing};
use crate::{
    Actions, Level, ReadMode, Time, Token,
    backend::{Own, Phase},
    fault::{Fault, Words},
    frontend::{ClientDuty, Discard, First, Why},
    session::{
        BUFFERS, Changes, Lack, OTHER_BUFFERS, Refusal, Settings, Suspicion, Trial, is_dispensable,
        is_removed, steps,
    },
};

/// So many servers in a row may be lost to what a client has set: one may have been the last client's fault.
const LOSSES_MAX: u8 = 2;
/// A class of SQLSTATEs.
const OPERATOR_INTERVENTION: &str = "57";
const INVALID_PARAMETER_VALUE: &[u8] = b"22023";

impl Worker {
    /// A client is about to get a server, and the last one did not take all that it has set: each setting is
    /// tried by itself. `false` if that was not so, or is to be changed now, or the server has it all.
    pub(super) fn retries_refused(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> bool {
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return false;
        };
        let Some(refusal) = &context.refused else {
            return false;
        };
        if context.wanted.is_same(&server.session.held) {
            context.refused = None;
            return false;
        }
        if refusal.opens {
            return false;
        }
        begin_preparing(client_conn, client, server_conn, server, out);
        self.try_each(server_conn, client_conn, out);
        true
    }

    /// A plan has failed, or is likely to: each of its steps is tried by itself.
    #[cold]
    pub(super) fn try_each(&mut self, server_conn: Token, client_conn: Token, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return;
        };
        let Some(context) = &client.context else {
            return;
        };
        let target = context.target(directory.settings());
        let steps = steps(&target, &server.session.held);
        for (at, (_, text)) in steps.iter().enumerate() {
            server.ask(Own::Step(at as u32));
            out.send_made(server_conn, |bytes| {
                MessageWriter::new(bytes).query(text);
            });
        }
        let steps = steps.into_iter().map(|(step, _)| step).collect();
        server.session.trial = Some(Box::new(Trial::of(steps)));
    }

    /// A plan has failed: are its steps to show what of it is refused?
    #[cold]
    pub(crate) fn tries_steps(&mut self, conn: Token, own: Own, report: &Report<'_>) -> bool {
        let Some((_, client, server)) = self.table.pair_of(conn) else {
            return false;
        };
        let Some(context) = &client.context else {
            return false;
        };
        if server.equips().is_none() {
            return false;
        }
        let tries = match own {
            Own::Parameters => true,
            // What was done in a server's session before is no reason to refuse a login.
            Own::Startup => {
                report.code == INVALID_PARAMETER_VALUE && context.wanted.get(BUFFERS).is_some()
            }
            _ => false,
        };
        if tries {
            server.session.trial = Some(Box::default());
        }
        tries
    }

    /// A server is lost that was given what a client has set. Is that why, since others were before it?
    #[cold]
    pub(super) fn ends_servers(&mut self, client: Token, fault: &Fault) -> bool {
        let Fault::ServerSaid(words) = fault else {
            return false;
        };
        // An operator has ended it, or the whole cluster.
        let is_ordered = words.code.starts_with(OPERATOR_INTERVENTION);
        let client = self.table.client(client);
        let Some(context) = client.and_then(|client| client.context.as_mut()) else {
            return false;
        };
        context.losses = context.losses.saturating_add(u8::from(!is_ordered));
        context.losses > LOSSES_MAX
    }

    /// A step has failed.
    #[cold]
    pub(crate) fn step_failed(&mut self, conn: Token, at: u32, report: &Report<'_>) {
        if let Some(server) = self.table.server(conn)
            && let Some(trial) = &mut server.session.trial
        {
            trial.failed.push((at as usize, Words::of(report)));
        }
    }

    /// A plan has failed, or its steps were tried.
    #[cold]
    pub(super) fn trial_done(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        let Some(trial) = server.session.trial.take() else {
            return;
        };
        if trial.steps.is_empty() {
            return self.try_each(conn, client_conn, out);
        }
        if trial.is_spoiled() {
            let why = "its session can't be given what a client has set";
            return self.check_failed(conn, why, now, out);
        }
        if let Some(words) = trial.unclean() {
            // What the last client has left is in the way.
            let text = format!(
                "is cleaned, since settings could not be changed: {}",
                words.message
            );
            server.session.unclean = true;
            let subject = self.server_subject(conn);
            out.log(Level::Log, subject, text);
            return self.clean_session(conn, now, out);
        }
        let Some(context) = client.context.as_ref().filter(|own| own.unproven) else {
            return self.settings_tried(conn, &trial, now, out);
        };
        let refused = trial.refused();
        if let Some(words) = refused.values().next() {
            // What it has taken is nobody's.
            server.session.unclean = true;
            let fault = Fault::ServerSaid((*words).clone());
            return self.refuse(client_conn, &fault, now, out);
        }
        server.session.holds(&context.wanted);
        self.try_startup(conn, client_conn, now, out);
    }

    /// It is known what of a client's settings its server takes, and has now.
    fn settings_tried(&mut self, conn: Token, trial: &Trial, now: Time, out: &mut Actions) {
        let directory = Arc::clone(&self.directory);
        let table = directory.settings();
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        let target = context.target(table);
        let words = trial.refused();
        let refused = table.intern(target.iter().filter(|(name, _)| words.contains_key(name)));
        let mut held = table.without(&target, &refused);
        if refused.get(BUFFERS).is_some() {
            // That this is possible was tried.
            held = table.overlay(&held, &table.intern([(BUFFERS, OTHER_BUFFERS[1])]));
        }
        server.session.holds(&held);
        server.session.forget_news();
        let (gone, needed): (Vec<_>, Vec<_>) = refused.iter().partition(|(name, _)| {
            let words = words.get(name);
            words.is_some_and(|words| is_dispensable(name, words))
        });
        context.dispense(&table.intern(gone.iter().copied()), table);
        let removed = gone.iter().filter_map(|(name, _)| words.get(name).copied());
        tell_removed(client_conn, removed, out);
        let first = needed
            .iter()
            .find_map(|(name, _)| Some((*name, *words.get(name)?)));
        let Some((name, words)) = first else {
            context.refused = context.refused.take().filter(|own| own.opens);
            if !self.send_statements(conn, client_conn, out) {
                self.prepared(conn, now, out);
            }
            return;
        };
        let needed = table.intern(needed.iter().copied());
        let before = context.refused.take();
        let is_new = before.is_none();
        let known = match before {
            Some(before) if before.opens => before.settings,
            _ => Settings::default(),
        };
        context.refused = Some(Box::new(Refusal {
            settings: table.overlay(&known, &needed),
            name: String::from_utf8_lossy(name).into_owned(),
            words: words.clone(),
            opens: false,
        }));
        if is_new {
            // PostgreSQL's words may have the value in them, which may be a secret.
            let name = String::from_utf8_lossy(name).into_owned();
            let text = format!("servers refuse what it has set: {name:?} ({})", words.code);
            out.log(Level::Warning, client.subject(), text);
        }
        self.refuse_request(conn, client_conn, now, out);
    }

    /// More of the request of a client whose settings are refused.
    #[cold]
    pub(super) fn refused_request(
        &mut self,
        conn: Token,
        bytes: &[u8],
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(client) = self.table.client(conn) {
            let early = client.early.get_or_insert_default();
            early.extend_from_slice(bytes);
        }
        self.look_at_request(conn, now, out);
    }

    /// Does it do nothing but change them?
    fn look_at_request(&mut self, conn: Token, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let stream = std::mem::take(&mut client.stream);
        if !stream.partial().is_empty() {
            let early = client.early.get_or_insert_default();
            early.splice(..0, stream.partial().iter().copied());
        }
        match self.first_request(conn) {
            First::Incomplete => out.read(conn, ReadMode::Deliver),
            First::Opens { .. } => {
                let Some(client) = self.table.client(conn) else {
                    return;
                };
                if let Some(refusal) = client.refusal() {
                    refusal.opens = true;
                }
                client.duty = ClientDuty::Idle;
                out.read(conn, ReadMode::Hold);
                self.check_out(conn, now, out);
            }
            First::Other => {
                let Some(client) = self.table.client(conn) else {
                    return;
                };
                let early = client.early.take();
                client.duty = ClientDuty::Discarding(Discard::new(Why::Refused));
                out.read(conn, ReadMode::Deliver);
                self.discard(conn, early.as_ref().map_or(&[], |early| early), now, out);
            }
        }
    }

    fn first_request(&mut self, conn: Token) -> First {
        let Some(client) = self.table.client(conn) else {
            return First::Other;
        };
        let Some(refusal) = client.context.as_ref().and_then(|own| own.refused.as_ref()) else {
            return First::Other;
        };
        let bytes = client.early.as_ref().map_or(&[][..], |early| early);
        let (names, unnamed, bindings) = (&client.statements, &client.unnamed, &self.bindings);
        First::read(bytes, &refusal.settings, |name| match name {
            b"" => unnamed.as_deref(),
            _ => names.get(bindings, name).map(|known| known.definition()),
        })
    }

    /// A server has all that a client has set, but for what is refused, for the client's next request changes
    /// that and does nothing else: it gets that, and no more. `false` if nothing is refused.
    #[cold]
    pub(super) fn let_through(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> bool {
        // Another may have come in its place, after a cancel request.
        let first = self.first_request(client_conn);
        let Some((client, server)) = self.table.pair(client_conn, server_conn) else {
            return false;
        };
        let Some(refusal) = client.refusal() else {
            return false;
        };
        refusal.opens = false;
        let First::Opens { len, changes } = first else {
            self.refuse_request(server_conn, client_conn, now, out);
            return true;
        };
        let mut request = client.early.take().unwrap_or_default();
        let rest = request.split_off(len.min(request.len()));
        client.early = (!rest.is_empty()).then(|| Box::new(rest));
        enter(Phase::Relaying, client_conn, client, server_conn, server);
        client.transaction_at = now;
        server.session.lack = Some(Box::new(Lack::new(changes)));
        // Whatever it does, the session is looked at behind it.
        server.session.note(Suspicion::OPAQUE, b"");
        server.session.has_reported = true;
        server.session.is_unjudged = true;
        server.replies.wait_no_longer();
        out.read(client_conn, ReadMode::Hold);
        self.relay_again(client_conn, &request, now, out);
        if let Some(server) = self.table.server(server_conn)
            && let Some(lack) = &mut server.session.lack
        {
            lack.is_closed = true;
        }
        true
    }

    /// No server takes what the client has set: this one goes back, and the client is told.
    fn refuse_request(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(client_conn) else {
            return;
        };
        client.duty = ClientDuty::Refused;
        self.give_back(server_conn, false, now, out);
        self.look_at_request(client_conn, now, out);
    }

    /// What RESET has taken away of the client's startup values can't be set again.
    #[cold]
    pub(crate) fn restore_refused(
        &mut self,
        conn: Token,
        report: &Report<'_>,
        now: Time,
        out: &mut Actions,
    ) {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        let words = Words::of(report);
        if context.is_pinned() {
            // It can't do without this server, and must not go on with it.
            server.retire = Some("its client's startup parameters are refused");
            return self.refuse(client_conn, &Fault::ServerSaid(words), now, out);
        }
        let held = &server.session.held;
        let is_missing = |&(name, value): &(&[u8], &[u8])| held.get(name) != Some(value);
        let mut missing = context.wanted.iter().filter(is_missing);
        let name = missing.next().map_or_else(String::new, |(name, _)| {
            String::from_utf8_lossy(name).into_owned()
        });
        let settings = context.wanted.iter().filter(is_missing);
        context.refused = Some(Box::new(Refusal {
            settings: directory.settings().intern(settings),
            name,
            words,
            opens: false,
        }));
        server.session.lack = Some(Box::new(Lack::new(Changes::default())));
    }

    /// The request was answered. `true` if something is refused still: then the client has no server.
    #[cold]
    pub(super) fn is_refused_still(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        let directory = Arc::clone(&self.directory);
        let Some((client_conn, client, server)) = self.table.pair_of(conn) else {
            return false;
        };
        if server.session.lack.take().is_none() {
            return false;
        }
        let refused = client.context.as_ref().and_then(|own| own.refused.as_ref());
        server.session.forget_news();
        if refused.is_none() {
            // It has all that the client has set.
            let told = std::mem::replace(&mut client.tracked, server.tracked.clone());
            let spelled = server.tracked.clone();
            out.send_made(client_conn, |bytes| {
                directory.names().report(&told, &spelled, bytes);
            });
            return false;
        }
        client.duty = ClientDuty::Idle;
        client.request_at = now;
        if !server.settling().is_some_and(|settling| settling.is_told) {
            out.send_made(client_conn, |bytes| {
                MessageWriter::new(bytes).ready_for_query(b'I');
            });
        }
        let asks_more = client.early.is_some();
        let holds = asks_more || client.blocked;
        out.read(
            client_conn,
            if holds {
                ReadMode::Hold
            } else {
                ReadMode::Notify
            },
        );
        self.give_back(conn, false, now, out);
        if asks_more {
            self.check_out(client_conn, now, out);
        }
        if let Some(departure) = &mut self.departure {
            departure.done.push(client_conn);
        }
        true
    }
}

/// The client hears of what it has set and was taken away, as it would of PostgreSQL.
fn tell_removed<'w>(client: Token, gone: impl Iterator<Item = &'w Words>, out: &mut Actions) {
    for words in gone.filter(|words| is_removed(words)) {
        let text = format!("{}, removing it", words.message);
        out.send_made(client, |bytes| {
            MessageWriter::new(bytes).notice(Severity::Warning, &words.code, &text);
        });
    }
}
