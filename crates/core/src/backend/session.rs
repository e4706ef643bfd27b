//! What is known of the session on a server.

use std::{collections::BTreeSet, sync::Arc};

use pgweir_wire::Body;

use super::{ClientNames, InternalQuery, Lookup};
use crate::{
    Connected, Ddl, Reading, Time,
    session::{
        Baseline, Class, Dialect, Dirt, Effects, Facts, Literals, NAMES_MAX, Probe, RecentTexts,
        ResetParameters, Settings, SqlStatements, State, StatementCounts, Tracked, TrackedNames,
        is_identity, outlasts_reset, scan::DdlWords,
    },
    signal::{Rights, Signals},
};

/// What a server's session holds, as far as the session engine knows.
#[derive(Debug, Default)]
pub struct ServerSession {
    /// The settings that were made in it.
    pub held: Settings,
    /// How texts are read in it.
    pub dialect: Dialect,
    /// `standard_conforming_strings` at its login.
    strings_at_login: Option<Box<[u8]>>,
    /// That was changed. PL/pgSQL keeps bodies as they were read first.
    pub may_have_misread_bodies: bool,
    /// An opaque text has run since its login: it may have used temporary tables.
    pub has_run_opaque_text: bool,
    /// The server may keep something that no clean takes away: a library, functions that were compiled under another
    /// setting.
    pub outlives_clean: bool,
    /// A login event trigger may have left something in it. It goes to the first client.
    pub has_login_state: bool,
    /// The SQL-prepared statements that it may have, and no others.
    pub sql: SqlStatements,
    /// For which client they were made, and under which settings; `None` if nobody knows.
    pub sql_made: (u64, Option<Settings>),
    /// The client's names of statements that it knows.
    pub client_names: ClientNames,
    /// What the texts of the requests that are not answered yet may touch.
    pub effects: Effects,
    /// The generation of the certificates by which its transaction's first text was read.
    pub certified_by: Option<u64>,
    /// What ran since its last clean and its last look.
    pub dirt: Dirt,
    /// Its pool has it in the list of those that stay with their clients without a look.
    pub is_listed: bool,
    /// When it was looked at last.
    pub inspected_at: Option<Time>,
    /// Other clients wait for the server until then, unless its client speaks again.
    pub turn_until: Option<Time>,
    /// The values of its parameters where nothing is set.
    pub baseline: Option<Arc<Baseline>>,
    /// The answer to the question for these, as far as it has come.
    pub baseline_rows: Option<Vec<[Vec<u8>; 4]>>,
    /// A clean is under way that tells how many prepared statements there are: what it has told.
    pub counts: Option<Option<StatementCounts>>,
    /// The texts that did.
    pub recent_texts: RecentTexts,
    /// The transaction that is over has set parameters, and the session's settings are known without a look.
    pub has_new_settings: bool,
    /// Its pool counts it among those that clients keep.
    pub is_counted: bool,
    /// The extension reports: what it said last.
    pub report: Option<Box<State>>,
    /// It has reported since its state was last learnt.
    pub has_reported: bool,
    /// A request that may have changed it was answered, and more was under way.
    pub is_uninspected: bool,
    /// It has said of a parameter what its client was not told yet.
    pub has_unsent_parameters: bool,
    /// It may hold what is no other client's business: to be cleaned before it is lent again.
    pub unclean: bool,
    /// Custom parameters that these have named.
    pub named: BTreeSet<Box<[u8]>>,
    /// Parameters that its client has taken back to its startup values.
    pub reset_parameters: ResetParameters,
    /// A text may have changed what only an exact look tells: startup parameters that were so anyway, or SQL-prepared
    /// statements that go along with the client.
    pub needs_exact_inspection: bool,
    /// A ReadyForQuery of it is held back.
    pub ready_is_held: bool,
    /// Whose sequence values it has.
    pub sequences: Sequences,
    /// Counts it among the connections to its database.
    pub connected: Option<Connected>,
    /// A text of its transaction may change the catalog.
    pub ddl: Option<Ddl>,
    /// A text that has not come as a whole is looked through.
    pub ddl_words: Option<DdlWords>,
    /// Its transaction may have changed the schema: the number of the one that it sees.
    pub schema: Option<u32>,
    /// Roles and databases whose sessions begin with something else after the texts of this transaction.
    pub changed_roles: Vec<String>,
    /// The catalog, as far as it was read here.
    pub catalog: Option<Box<CatalogRows>>,
    /// What it is asked of a user.
    pub lookup: Option<Box<Lookup>>,
    /// The answers to a probe, as far as they have come.
    pub answers: Option<Box<InspectionAnswers>>,
    /// What it notices about startup parameters, its client is told.
    pub reads_notices: bool,
    /// Pids that its client has named, and that may be clients of ours.
    pub signals: Option<Box<Signals>>,
    /// Its client listens: before ReadyForQuery it is told what has been notified.
    pub has_listening_client: bool,
    /// Notifications that it has heard itself, whole messages, for the end of its client's request.
    pub notified: Vec<u8>,
    /// The channels that it listens to itself, if that has just been learnt.
    pub channels: Option<Vec<Vec<u8>>>,
    /// The LISTEN that comes next goes to this server, since no listener takes the channel.
    pub listens_itself: bool,
}

/// What leaves nothing that would have to be learnt of the server.
const HARMLESS: Effects = Effects::SEQUENCE
    .and(Effects::READS_SEQUENCE)
    .and(Effects::STATEMENTS_VIEW)
    .and(Effects::SAVEPOINT)
    .and(Effects::ROLE)
    .and(SIGNALS);

/// What the extension does not report.
const NOT_REPORTED: Effects = Effects::PREPARE.and(Effects::LIBRARY).and(Effects::SEED);

/// What may be meant for other clients.
pub const SIGNALS: Effects = Effects::TERMINATES.and(Effects::CANCELS);

/// Whose sequence values (`currval`, `lastval`) a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sequences {
    /// It has none.
    #[default]
    None,
    /// Those of the client with this id.
    Of(u64),
    /// Perhaps those of several.
    Mixed,
}

/// A reading of the catalog.
#[derive(Debug)]
pub struct CatalogRows {
    /// For [`Catalog::finish`](crate::Catalog::finish).
    pub reading: Reading,
    /// What has come of it.
    pub facts: Facts,
    /// It has failed, or was not understood.
    pub failed: bool,
}

impl CatalogRows {
    /// Takes one row.
    pub fn take(&mut self, row: &[u8]) {
        self.failed |= !self.facts.take(row);
    }
}

/// The four columns of a DataRow; one that is null is empty.
fn columns(row: &[u8]) -> Option<[Vec<u8>; 4]> {
    let mut body = Body::new(row);
    if body.bytes(2).ok()? != [0, 4] {
        return None;
    }
    let mut columns = [const { Vec::new() }; 4];
    for column in &mut columns {
        if let Ok(len) = usize::try_from(body.i32().ok()?) {
            *column = body.bytes(len).ok()?.to_vec();
        }
    }
    Some(columns)
}

/// A baseline that did not explain what a look has found: the client has set these parameters out of sight, or
/// their defaults have changed.
#[derive(Debug)]
pub struct UnexplainedParameters {
    /// The baseline.
    pub baseline: Arc<Baseline>,
    /// The parameters, in lower case.
    pub names: Vec<Vec<u8>>,
}

/// The answers to a probe.
#[derive(Debug)]
pub struct InspectionAnswers {
    /// What was asked.
    pub probe: Probe,
    /// What has been answered, or was reported before.
    pub state: State,
    /// The rest of it was reported.
    pub reported: bool,
    /// What an earlier look could not explain.
    pub unexplained: Option<UnexplainedParameters>,
    /// The query resets the settings as well.
    pub cleans: bool,
    /// It has failed, or was not understood.
    pub failed: bool,
}

impl ServerSession {
    /// Is there something to be told, or to be found out, before a ReadyForQuery is passed on?
    #[must_use]
    #[inline]
    pub fn must_act_before_ready(&self) -> bool {
        self.has_listening_client
            | !self.notified.is_empty()
            | self.has_unsent_parameters
            | self.has_reported
            | !self.effects.is_empty()
    }

    /// Is it asked what is in the catalog?
    #[must_use]
    pub fn reads_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    /// It can't tell.
    pub fn reading_failed(&mut self) {
        if let Some(catalog) = &mut self.catalog {
            catalog.failed = true;
        }
    }

    /// A text is sent that may change these.
    pub fn note_changed_roles(&mut self, names: Vec<String>) {
        self.changed_roles.extend(names);
        self.changed_roles.truncate(NAMES_MAX);
    }

    /// Has its client to wait for what is asked of it at the end of this transaction?
    #[must_use]
    pub fn must_inspect_before_ready(&self) -> bool {
        !self.changed_roles.is_empty() || self.needs_inspection_now()
    }

    /// May what it says of commands, and its notices, be of interest?
    #[must_use]
    #[inline]
    pub fn reads_command_tags(&self) -> bool {
        self.has_listening_client | self.reads_notices | !self.effects.is_empty()
    }

    /// All that was sent is answered, and these certificates are in force: texts that were read under others may have
    /// done what those did not know.
    #[inline]
    pub fn check_certificates(&mut self, generation: u64) {
        if self.certified_by.take().is_some_and(|by| by != generation) {
            self.dirt.raise(Class::Opaque);
        }
    }

    /// Is it to be cleaned before another client uses it?
    #[must_use]
    #[inline]
    pub fn is_to_clean(&self) -> bool {
        self.unclean || self.dirt.needs_clean()
    }

    /// Has the extension reported something that ends with the server only?
    #[must_use]
    pub fn report_requires_close(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.pins().require_close())
    }

    /// The extension sees what ran: where it has reported nothing, nothing is left but sequence values.
    pub fn take_report_as_inspection(&mut self) {
        let tells_all = self.report.as_ref().is_some_and(|report| !report.unclear);
        let is_unseen = self.dirt.effects().intersects(NOT_REPORTED);
        if tells_all && !self.has_reported && !is_unseen {
            self.dirt.inspected();
        }
    }

    /// May a role be set? PostgreSQL checks the privilege to use a schema when it analyses a statement, and never
    /// again: a Parse of such a client is answered by the server itself, and answers no other client's.
    #[must_use]
    pub fn may_have_role(&self) -> bool {
        self.dirt.changes_role()
            || self.effects.contains(Effects::ROLE)
            || self.held.iter().any(|(name, _)| is_identity(name))
    }

    /// The settings under which a statement is analysed that is sent now; `None` if nobody knows them.
    #[must_use]
    #[inline]
    pub fn settings_now(&self) -> Option<&Settings> {
        (!self.dirt.changes_literals()).then_some(&self.held)
    }

    /// Does the server have these SQL-prepared statements, and do their literals mean what the client with this id
    /// wants, which has these settings?
    #[must_use]
    #[inline]
    pub fn has_sql_for(&self, sql: &SqlStatements, client: u64, settings: &Settings) -> bool {
        sql.is_equal(&self.sql) && (sql.is_empty() || self.is_sql_made_for(client, settings))
    }

    /// This client is lent the server with these settings, and its SQL-prepared statements are there: when tables
    /// change, PostgreSQL analyses them anew, under what is set then.
    pub fn sql_used_by(&mut self, client: u64, settings: &Settings) {
        let is_made = self.is_sql_made_under(settings);
        let made = self.sql_made.1.take();
        self.sql_made = (client, made.filter(|_| is_made));
    }

    /// Do the literals of its SQL-prepared statements mean what this client wants?
    #[must_use]
    pub fn is_sql_made_for(&self, client: u64, settings: &Settings) -> bool {
        self.sql_made.0 == client || self.is_sql_made_under(settings)
    }

    fn is_sql_made_under(&self, settings: &Settings) -> bool {
        let made = self.sql_made.1.as_ref();
        made.is_some_and(|made| Literals::Bytes.mean_the_same(made, settings))
    }

    /// A client's text is sent, or something like one.
    pub fn note(&mut self, effects: Effects, text: &[u8]) {
        self.effects |= effects;
        self.outlives_clean |= effects.contains(Effects::LIBRARY);
        let class = self.effects.class();
        self.has_run_opaque_text |= class == Class::Opaque;
        self.dirt.note(effects, class, text, self.dialect);
    }

    /// Is its state to be learnt before its client hears that the request is done?
    #[must_use]
    pub fn needs_inspection_now(&self) -> bool {
        let is_reported = self.report.is_some() && self.may_have_changed();
        is_reported
            || self.effects.intersects(Effects::LISTEN)
            || self.client_names.need_inspection()
            || !self.reset_parameters.is_empty()
            || self.needs_exact_inspection
    }

    /// Is its state to be learnt before it may go to another client? The extension says so itself.
    #[must_use]
    pub fn may_have_changed(&self) -> bool {
        if !self.client_names.is_empty() {
            return true;
        }
        match self.report {
            // It sees neither the protocol's Close, nor what a function of some extension keeps.
            Some(_) => self.has_reported || self.effects.intersects(NOT_REPORTED),
            None => !self.effects.without(HARMLESS).is_empty(),
        }
    }

    /// This client may have had a value of a sequence here.
    pub fn touch_sequences(&mut self, client: u64) {
        self.sequences = match self.sequences {
            Sequences::None => Sequences::Of(client),
            Sequences::Of(of) if of == client => Sequences::Of(client),
            _ => Sequences::Mixed,
        };
    }

    /// Has it sequence values of another client than the one with this id?
    #[must_use]
    #[inline]
    pub fn has_foreign_sequences(&self, client: u64) -> bool {
        self.sequences != Sequences::None && self.sequences != Sequences::Of(client)
    }

    /// Texts are read as its parameters say.
    pub fn read_as(&mut self, names: &TrackedNames, tracked: &Tracked) {
        let value = |name: &[u8]| names.value(tracked, name).unwrap_or_default();
        let strings = value(b"standard_conforming_strings");
        let at_login = self.strings_at_login.get_or_insert_with(|| strings.into());
        self.may_have_misread_bodies |= **at_login != *strings;
        self.dialect = Dialect::of(strings, value(b"client_encoding"));
    }

    /// Is it asked something that is answered by rows?
    #[must_use]
    #[inline]
    pub fn awaits_rows(&self) -> bool {
        self.answers.is_some()
            || self.catalog.is_some()
            || self.lookup.is_some()
            || self.counts.is_some()
            || self.baseline_rows.is_some()
            || self.asks_for_rights()
    }

    /// A row of the answer to one of them.
    pub fn take_row(&mut self, own: Option<InternalQuery>, row: &[u8]) {
        match own {
            Some(InternalQuery::Clean) => {
                let counts = StatementCounts::of_row(row);
                if let Some(told) = self.counts.as_mut().filter(|_| counts.is_some()) {
                    *told = counts;
                }
                return;
            }
            Some(InternalQuery::Baseline) => {
                if let Some(rows) = &mut self.baseline_rows {
                    rows.extend(columns(row));
                }
                return;
            }
            _ => {}
        }
        if let Some(catalog) = &mut self.catalog {
            catalog.take(row);
        } else if let Some(lookup) = &mut self.lookup {
            lookup.take(row);
        } else if let Some(signals) = &mut self.signals {
            signals.rights = Some(Rights::of_row(row));
        } else if let Some(answers) = &mut self.answers
            && answers.state.take_row(row).is_err()
        {
            answers.failed = true;
        }
    }

    /// A command is done. Behind these, in the same request, the server could not say any more as whom its client
    /// has asked for signals.
    #[inline]
    pub fn forget_signals_after(&mut self, tag: &[u8]) {
        if self.signals.is_some()
            && matches!(
                tag,
                b"SET\0" | b"RESET\0" | b"COMMIT\0" | b"ROLLBACK\0" | b"DISCARD ALL\0"
            )
        {
            self.signals = None;
        }
    }

    /// Does it tell who asks for signals?
    #[must_use]
    #[inline]
    pub fn asks_for_rights(&self) -> bool {
        let signals = self.signals.as_ref();
        signals.is_some_and(|signals| signals.are_asked_for())
    }

    /// It holds what it was asked to hold.
    pub fn holds(&mut self, settings: &Settings) {
        self.held = settings.clone();
        let mut names = settings.iter().map(|(name, _)| name);
        self.outlives_clean |= names.any(outlasts_reset);
        self.has_reported = false;
    }

    /// Something that its client has asked for has failed.
    pub fn has_failed(&mut self) {
        self.client_names.failed();
        self.dirt.undone();
        self.changed_roles.clear();
    }

    /// The settings were taken from it: of what a text of class settings can leave, nothing is left.
    pub fn settings_cleaned(&mut self) {
        self.held = Settings::default();
        self.dirt.cleaned();
        if self.sequences != Sequences::None {
            self.dirt.raise(Class::Sequences);
        }
        self.named.clear();
        self.reset_parameters.clear();
        self.needs_exact_inspection = false;
        self.has_reported = false;
        self.is_uninspected = false;
        self.unclean = false;
    }

    /// Do a client's texts alone say what the session is to hold after them? Not if there is something else to be found
    /// out at the end of its transaction.
    #[must_use]
    pub fn texts_tell_settings(&self) -> bool {
        self.report.is_none()
            && !self.must_inspect_before_ready()
            && !self.is_uninspected
            && !self.unclean
            && !self.may_have_role()
    }

    /// It holds these settings, and nothing else but what it held before: no look is needed.
    pub fn settings_known(&mut self, settings: &Settings) {
        self.held = settings.clone();
        self.dirt.cleaned();
        if self.sequences != Sequences::None {
            self.dirt.raise(Class::Sequences);
        }
        self.named.clear();
        self.recent_texts.clear();
        self.has_new_settings = true;
    }

    /// It is as it was after its login.
    pub fn cleaned(&mut self) {
        self.held = Settings::default();
        self.sql = SqlStatements::default();
        self.client_names.clear();
        self.effects = Effects::default();
        self.dirt.cleaned();
        self.counts = None;
        self.inspected_at = None;
        self.turn_until = None;
        self.has_new_settings = false;
        self.recent_texts.clear();
        self.named.clear();
        self.reset_parameters.clear();
        self.needs_exact_inspection = false;
        self.has_reported = false;
        self.is_uninspected = false;
        self.ready_is_held = false;
        self.reads_notices = false;
        self.signals = None;
        self.changed_roles.clear();
        self.unclean = false;
        self.notified = Vec::new();
        self.sequences = Sequences::None;
    }
}
