//! Online restart: a pinned client keeps its server connection. The record of the session moves to the new process,
//! which inspects the session again after the next transaction, and finds out for itself what pins the client and when
//! the pin ends.

use crate::{
    Time,
    backend::{LastingState, Naming, Server},
    base::pin::Pins,
    directory::Directory,
    frontend::Client,
    session::{Effects, Fingerprint, SqlStatements, Unlisted},
    takeover::{Pairs, PinRecord, ServerRecord, StatementRecord, facts},
};

/// Records why a client is pinned to its server, and the state of the server's session.
pub(super) fn record_pin(client: &Client, server: &Server, now: Time) -> Option<Box<PinRecord>> {
    let context = client.context.as_deref()?;
    let session = &server.session;
    let pinned_by = context.pinned_by.as_ref();
    let made = pairs(session.client_names.all_prepared());
    Some(Box::new(PinRecord {
        pins: context.pins.bits(),
        age: context.pinned_at.map_or(0, |since| now.since(since)),
        by: pinned_by.map(|by| (by.hash, by.text.to_string())),
        sequences_kept: context.sequences_kept,
        effects: session.changes.effects().bits(),
        facts: facts_of(client, server),
        held: pairs(session.settings.held().iter()),
        sql: pairs(session.sql_statements.held().pairs()),
        prepared: made,
        strings_at_login: session.lasting.strings_at_login().map(<[u8]>::to_vec),
    }))
}

/// Records the statements that pgweir has prepared on a server.
pub(super) fn record_statements(server: &Server) -> Vec<StatementRecord> {
    let statements = server.statements.prepared.iter();
    statements
        .map(|statement| StatementRecord {
            name: Vec::new(),
            id: statement.id(),
            definition: statement.definition().to_vec(),
        })
        .collect()
}

fn facts_of(client: &Client, server: &Server) -> u16 {
    let (session, lasting) = (&server.session, &server.session.lasting);
    let context = client.context.as_deref();
    let naming = session.client_names.naming;
    let known = [
        (
            facts::HAS_UNLISTED,
            context.is_some_and(|own| own.unlisted != Unlisted::None),
        ),
        (facts::FAILED, context.is_some_and(|own| own.failed)),
        (facts::MAY_HAVE_MISREAD, lasting.may_have_misread_bodies()),
        (facts::HAS_RUN_OPAQUE, lasting.has_run_opaque_text()),
        (facts::OUTLIVES_CLEAN, lasting.outlives_clean()),
        (facts::OWN_NAMES, naming == Naming::Own),
        (facts::MIXED_NAMES, naming == Naming::Mixed),
        (facts::HIDDEN_NAMES, session.client_names.has_hidden()),
        (
            facts::OWN_SEQUENCES,
            session.has_sequences_of(client.origin.id),
        ),
        (
            facts::MIXED_SEQUENCES,
            session.has_foreign_sequences(client.origin.id),
        ),
        (
            facts::MUST_BE_EXACT,
            session.loan.inspection.must_be_exact(),
        ),
        (facts::HAS_UNSENT, session.loan.has_unsent()),
        (facts::MUST_ASK_RIGHTS, session.clean.must_ask_rights()),
    ];
    let held = known.into_iter().filter(|(_, holds)| *holds);
    held.fold(0, |facts, (fact, _)| facts | fact)
}

/// Pins a client that was taken over with its server.
pub(super) fn pin_client(client: &mut Client, pinned: &PinRecord, now: Time) {
    let Some(context) = client.context.as_deref_mut() else {
        return;
    };
    context.pin(Pins::from_bits(pinned.pins), now);
    context.pinned_at = Some(Time(now.0.saturating_sub(pinned.age)));
    context.pinned_by = pinned.by.as_ref().map(|(hash, text)| {
        Box::new(Fingerprint {
            hash: *hash,
            text: text.as_str().into(),
        })
    });
    context.sequences_kept = pinned.sequences_kept;
    if pinned.has(facts::HAS_UNLISTED) {
        context.unlisted = Unlisted::Set;
    }
    context.failed = pinned.has(facts::FAILED);
}

/// Gives the server of a pinned client the session that was recorded.
pub(super) fn restore_session(
    directory: &Directory,
    server: &mut Server,
    client: u64,
    pinned: &PinRecord,
) {
    let settings = directory.settings();
    let session = &mut server.session;
    session
        .settings
        .set_held(settings.intern(pinned.held.clone()));
    if pinned.has(facts::HAS_UNSENT) {
        session.loan.edit().note_unsent();
    }
    let sql = SqlStatements::read(pinned.sql.clone()).unwrap_or_default();
    session.sql_statements.note_found(sql, client);
    session.lasting = LastingState::restored(
        pinned.strings_at_login.as_deref(),
        pinned.has(facts::MAY_HAVE_MISREAD),
        pinned.has(facts::HAS_RUN_OPAQUE),
        pinned.has(facts::OUTLIVES_CLEAN),
    );
    session.read_as(directory.names(), &server.tracked);
    let names = &mut session.client_names;
    match (pinned.has(facts::OWN_NAMES), pinned.has(facts::MIXED_NAMES)) {
        (true, _) => names.naming = Naming::Own,
        (false, true) => names.naming = Naming::Mixed,
        (false, false) => {}
    }
    for (name, text) in &pinned.prepared {
        names.prepare(name, text);
    }
    if pinned.has(facts::HIDDEN_NAMES) {
        names.hide();
    }
    if pinned.has(facts::OWN_SEQUENCES) {
        session.touch_sequences(client);
    }
    if pinned.has(facts::MIXED_SEQUENCES) {
        session.mix_sequences();
    }
    if pinned.has(facts::MUST_ASK_RIGHTS) {
        session.clean.demand_rights();
    }
    // The names that texts have used in the process before this one are not known.
    session.note_unread_code();
    if pinned.has(facts::MUST_BE_EXACT) {
        session.loan.edit().inspection.demand_exact();
    }
    session
        .changes
        .note_takeover(Effects::from_bits(pinned.effects));
}

fn pairs<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) -> Pairs {
    pairs
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

/// Notes the statements that the server has from the process before this one. A statement that a client has prepared in
/// this process meanwhile has another name here: the server keeps it unused, and is replaced after its next clean.
pub(super) fn restore_statements(
    directory: &Directory,
    server: &mut Server,
    client: u64,
    record: &ServerRecord,
) {
    for StatementRecord { id, definition, .. } in &record.statements {
        let statement = directory.statements().intern_as(definition, *id);
        if statement.id() == *id {
            server.statements.prepared.take_over(statement, client);
        }
    }
}
