//! The state of a session that no clean removes.

use super::compiled_types::CompiledTypes;
use crate::session::{Class, Effects, Settings, outlasts_reset};

/// The state of a session that no clean removes.
#[derive(Debug, Default)]
pub struct LastingState {
    /// The value of `standard_conforming_strings` at login.
    strings_at_login: Option<Box<[u8]>>,
    /// Whether `standard_conforming_strings` was changed since login. PL/pgSQL keeps function bodies as it has first
    /// read them.
    may_have_misread_bodies: bool,
    /// Whether an opaque text has run since login: the text may have used temporary tables.
    has_run_opaque_text: bool,
    /// Whether the session may have state that no clean removes: a library, or functions that were compiled under
    /// another setting.
    outlives_clean: bool,
    /// The types that functions of PL/pgSQL keep.
    pub(crate) types: CompiledTypes,
    /// The number of changes of the catalog when the connection was opened.
    changes_at_opening: u64,
    /// This number, from the login until the first loan to a client whose session state is carried.
    changes_at_login: Option<u64>,
}

impl LastingState {
    /// Returns the value of `standard_conforming_strings` at login.
    #[must_use]
    pub fn strings_at_login(&self) -> Option<&[u8]> {
        self.strings_at_login.as_deref()
    }

    /// Returns whether PL/pgSQL may have read function bodies under another `standard_conforming_strings`.
    #[must_use]
    pub fn may_have_misread_bodies(&self) -> bool {
        self.may_have_misread_bodies
    }

    /// Returns whether an opaque text has run since login.
    #[must_use]
    pub fn has_run_opaque_text(&self) -> bool {
        self.has_run_opaque_text
    }

    /// Returns whether the session may have state that no clean removes.
    #[must_use]
    #[inline]
    pub fn outlives_clean(&self) -> bool {
        self.outlives_clean
    }

    /// Notes the number of changes of the catalog before the connection is opened.
    pub fn note_opening(&mut self, changes: u64) {
        self.changes_at_opening = changes;
    }

    /// Notes that the server has logged in.
    pub fn note_login(&mut self) {
        self.changes_at_login = Some(self.changes_at_opening);
    }

    /// Returns whether the server was not lent yet to a client whose session state is carried.
    #[must_use]
    #[inline]
    pub fn awaits_first_loan(&self) -> bool {
        self.changes_at_login.is_some()
    }

    /// Returns the number of changes of the catalog at login, at the first loan to a client whose session state is
    /// carried.
    pub fn begin_first_loan(&mut self) -> Option<u64> {
        self.changes_at_login.take()
    }

    /// Notes a text with these effects, which is sent in a transaction of this class.
    pub(super) fn note_text(&mut self, effects: Effects, class: Class) {
        self.outlives_clean |= effects.contains(Effects::LIBRARY);
        self.has_run_opaque_text |= class == Class::Opaque;
    }

    /// Notes that the session has these settings.
    pub(super) fn note_settings(&mut self, settings: &Settings) {
        let mut names = settings.iter().map(|(name, _)| name);
        self.outlives_clean |= names.any(outlasts_reset);
    }

    /// Notes that a text sets `standard_conforming_strings`, perhaps only while it runs functions.
    pub(super) fn note_strings_unknown(&mut self) {
        self.may_have_misread_bodies = true;
    }

    /// Notes the present value of `standard_conforming_strings`.
    pub(super) fn note_strings(&mut self, strings: &[u8]) {
        let at_login = self.strings_at_login.get_or_insert_with(|| strings.into());
        self.may_have_misread_bodies |= **at_login != *strings;
    }

    /// Returns the state of a session that another process has handed over: the arguments are what
    /// [`strings_at_login`] and the methods after it have returned there.
    ///
    /// [`strings_at_login`]: Self::strings_at_login
    #[must_use]
    pub fn restored(
        strings_at_login: Option<&[u8]>,
        may_have_misread_bodies: bool,
        has_run_opaque_text: bool,
        outlives_clean: bool,
    ) -> Self {
        Self {
            strings_at_login: strings_at_login.map(Box::from),
            may_have_misread_bodies,
            has_run_opaque_text,
            outlives_clean,
            types: CompiledTypes::default(),
            changes_at_opening: 0,
            changes_at_login: None,
        }
    }
}
