//! The state of a session that no clean removes.

/// The state of a session that no clean removes.
#[derive(Debug, Default)]
pub struct LastingState {
    /// The value of `standard_conforming_strings` at login.
    pub(crate) strings_at_login: Option<Box<[u8]>>,
    /// Whether `standard_conforming_strings` was changed since login. PL/pgSQL keeps function bodies as it has first
    /// read them.
    pub(crate) may_have_misread_bodies: bool,
    /// Whether an opaque text has run since login: the text may have used temporary tables.
    pub(crate) has_run_opaque_text: bool,
    /// Whether the session may have state that no clean removes: a library, or functions that were compiled under
    /// another setting.
    pub(crate) outlives_clean: bool,
    /// The number of changes of the catalog at login, until the first loan to a client whose session state is carried.
    pub(crate) changes_at_login: Option<u64>,
}
