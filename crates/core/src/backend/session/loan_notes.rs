//! Notes about the client that has a server: what pgweir still owes this client, and what it has to read of the session
//! later. They last until the end of the client's request, or of the loan.

use std::ops::Deref;

use super::{NextInspection, Rejections, SIGNALS, ServerNotifications};
use crate::{
    Time,
    session::{Certificates, Class, Effects, scan::DdlWords},
    signal::{Rights, Signal, Signals},
};

/// The notes of a loan. They end with the loan, so none of them can affect the next client.
///
/// Most loans need no notes. So they are changed through [`edit`](Self::edit), and the end of a loan without notes costs
/// nothing.
#[derive(Debug, Default)]
pub struct LoanNotes {
    /// Whether `notes` may have been changed since the beginning of the loan.
    are_edited: bool,
    notes: Notes,
}

/// The notes themselves. The default value means that pgweir has nothing left to do for the client.
#[derive(Debug, Default, PartialEq)]
pub struct Notes {
    /// Whether the client listens: pgweir sends it the pending notifications before ReadyForQuery.
    has_listening_client: bool,
    /// The effects of the texts of outstanding requests.
    effects: Effects,
    /// The scanner for DDL words in a text that has not arrived completely.
    ddl_words: Option<DdlWords>,
    /// The notifications that the server itself receives.
    pub(crate) notifications: ServerNotifications,
    /// The errors of SQL-prepared statements that the server could not prepare.
    pub(crate) rejections: Rejections,
    /// The pids that the client has named, and that may be pgweir's clients.
    signals: Option<Box<Signals>>,
    /// Whether pgweir holds back a ReadyForQuery of the server.
    ready_is_held: bool,
    /// Whether the server has reported a parameter change that its client has not received yet.
    has_unsent: bool,
    /// Whether the finished transaction has set parameters, and the session's settings are known without an inspection.
    has_known_settings: bool,
    /// The end of the client's turn: until this time other clients wait, although the client has no open transaction.
    turn_until: Option<Time>,
    /// The parameters that the next inspection of the session has to read, and when it may begin.
    pub(crate) inspection: NextInspection,
    /// When the last inspection began.
    inspected_at: Option<Time>,
}

impl Deref for LoanNotes {
    type Target = Notes;

    #[inline]
    fn deref(&self) -> &Notes {
        &self.notes
    }
}

impl Notes {
    /// Returns whether the client listens.
    #[must_use]
    #[inline]
    pub fn has_listening_client(&self) -> bool {
        self.has_listening_client
    }

    /// Notes whether the client listens.
    #[inline]
    pub fn set_listening_client(&mut self, listens: bool) {
        self.has_listening_client = listens;
    }

    /// Returns whether pgweir has to do something before it forwards a ReadyForQuery.
    #[inline]
    pub(super) fn must_act_before_ready(&self) -> bool {
        self.reads_command_tags() | self.notifications.is_any_pending() | self.has_unsent
    }

    /// Returns whether the server's command tags and notices have to be read.
    #[must_use]
    #[inline]
    pub fn reads_command_tags(&self) -> bool {
        self.has_listening_client | !self.effects.is_empty()
    }

    /// Returns the effects of the texts of outstanding requests.
    #[inline]
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// Notes the effects of a text that is sent. Returns the class of the effects so far.
    pub(super) fn note_effects(&mut self, effects: Effects) -> Class {
        self.effects |= effects;
        self.effects.class()
    }

    /// Returns whether the client waits for something in the notes, at the end of its request.
    #[must_use]
    pub fn are_awaited_by_client(&self) -> bool {
        self.ready_is_held || self.signals.is_some() || self.notifications.is_any_pending()
    }

    /// Returns whether the server has to report the role under which the client signals other clients.
    #[must_use]
    #[inline]
    pub fn asks_for_rights(&self) -> bool {
        let signals = self.signals.as_ref();
        signals.is_some_and(|signals| signals.are_asked_for())
    }

    /// Returns whether the server has reported a parameter change that its client has not received yet.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Returns the end of the client's turn, if it has one.
    #[must_use]
    #[inline]
    pub fn turn_until(&self) -> Option<Time> {
        self.turn_until
    }

    /// Returns when the last inspection began.
    #[must_use]
    pub fn inspected_at(&self) -> Option<Time> {
        self.inspected_at
    }

    /// Begins to search a text for DDL words that has not arrived completely.
    pub fn begin_text(&mut self, words: DdlWords) {
        self.ddl_words = Some(words);
    }

    /// Searches more of that text. `is_end`: these are its last bytes. Returns whether a DDL word was found.
    pub fn read_text_on(
        &mut self,
        bytes: &[u8],
        is_end: bool,
        certificates: &Certificates,
    ) -> bool {
        let Some(words) = &mut self.ddl_words else {
            return false;
        };
        let is_found = words.read(bytes, certificates) || is_end && words.end(certificates);
        if is_end {
            self.ddl_words = None;
        }
        is_found
    }

    /// Notes a pid that the client has named, and that may be a client of pgweir.
    pub fn note_signal(&mut self, pid: u32) {
        self.signals.get_or_insert_default().add(pid);
    }

    /// Takes the row with the rights to send the signals.
    pub(super) fn take_rights(&mut self, row: &[u8]) {
        if let Some(signals) = &mut self.signals {
            signals.rights = Some(Rights::of_row(row));
        }
    }

    /// Notes that pgweir holds back a ReadyForQuery of the server.
    pub fn hold_ready(&mut self) {
        self.ready_is_held = true;
    }

    /// Notes that the server has reported a parameter change that its client has not received yet.
    pub fn note_unsent(&mut self) {
        self.has_unsent = true;
    }

    /// Notes that the finished transaction has set parameters, and that the session's settings are known without an
    /// inspection.
    pub(super) fn note_known_settings(&mut self) {
        self.has_known_settings = true;
        self.inspection.forget_named();
    }

    /// Gives the client a turn until this time.
    pub fn begin_turn(&mut self, until: Time) {
        self.turn_until = Some(until);
    }

    /// Notes that an inspection has read the session. `channels` means that it has also read the channels.
    pub fn note_inspected(&mut self, channels: Option<Vec<Vec<u8>>>) {
        self.effects = Effects::NONE;
        self.notifications.note_inspected(channels);
        self.inspection = NextInspection::default();
    }

    /// Notes that an inspection begins.
    pub fn note_inspection(&mut self, now: Time) {
        self.inspected_at = Some(now);
    }
}

impl LoanNotes {
    /// Returns the notes, to change them.
    #[inline]
    pub fn edit(&mut self) -> &mut Notes {
        self.are_edited = true;
        &mut self.notes
    }

    /// Returns whether there may be notes.
    #[inline]
    pub(super) fn are_edited(&self) -> bool {
        self.are_edited
    }

    /// Returns whether nothing is left to do.
    pub(super) fn are_empty(&self) -> bool {
        self.notes == Notes::default()
    }

    /// Forgets the effects: the requests that had them are answered, and the session is known or will be inspected.
    pub fn forget_effects(&mut self) {
        self.notes.effects = Effects::NONE;
    }

    /// Ends the signals of the request that is answered now. If the request `is_last`, and the transaction has not failed,
    /// the server can report the role that has sent the signals, and is asked for it.
    pub fn end_signals(&mut self, is_last: bool, has_failed: bool) {
        let Some(signal) = Signal::of(self.effects) else {
            return;
        };
        let signals = self.take_signals();
        if is_last {
            self.notes.effects = self.effects.without(SIGNALS);
            if let Some(mut signals) = signals.filter(|_| !has_failed) {
                signals.signal = Some(signal);
                self.edit().signals = Some(signals);
            }
        }
    }

    /// Forgets what the next inspection has to read: the session is known.
    pub(super) fn forget_inspection(&mut self) {
        self.notes.inspection = NextInspection::default();
    }

    /// Takes the pids that the client has named, with what is known about the signals.
    pub fn take_signals(&mut self) -> Option<Box<Signals>> {
        self.notes.signals.take()
    }

    /// Drops the signals if a command that may change the role follows in the same request: after the command, the
    /// server could not report the role under which the client has sent the signals.
    #[inline]
    pub fn forget_signals_after(&mut self, tag: &[u8]) {
        if self.signals.is_some()
            && matches!(
                tag,
                b"SET\0" | b"RESET\0" | b"COMMIT\0" | b"ROLLBACK\0" | b"DISCARD ALL\0"
            )
        {
            self.notes.signals = None;
        }
    }

    /// Notes that pgweir no longer holds back a ReadyForQuery. Returns whether it has held one back.
    #[inline]
    pub fn release_ready(&mut self) -> bool {
        std::mem::take(&mut self.notes.ready_is_held)
    }

    /// Notes that the client needs no report any more. Returns whether there was one that it has not received.
    pub fn take_unsent(&mut self) -> bool {
        std::mem::take(&mut self.notes.has_unsent)
    }

    /// Returns whether the finished transaction has set parameters that are known without an inspection, and forgets it.
    #[inline]
    pub fn take_known_settings(&mut self) -> bool {
        std::mem::take(&mut self.notes.has_known_settings)
    }

    /// Ends the client's turn. Returns when it would have ended, if there was one.
    pub fn end_turn(&mut self) -> Option<Time> {
        self.notes.turn_until.take()
    }
}
