//! The session state of a server connection that may have changed since its last clean and its last inspection.
//!
//! Each SQL text that is sent to the server has a [`Class`]: it says how much session state the text can change.
//! The class of the server is the highest class of all texts that were sent to it; errors and ROLLBACK do not lower
//! it. The class decides what the clean does. The clean runs before another client, or pgweir itself, uses the
//! server. An inspection is a separate query: it reads the session state that the client has set, so that pgweir
//! can set the same on the client's next server.

use std::collections::BTreeSet;

use super::{
    Class, Dialect, Effects, affects_literals, is_identity,
    literals::decides_names,
    sql::{LiteralSets, TOUCHED_MAX, Touched, shapes_plans, touched_parameters},
};

/// The largest number of parameters that are inspected by name. If there are more, all parameters are inspected.
const NAMES_MAX: usize = TOUCHED_MAX;

/// The changes of the session of one server connection.
#[derive(Debug, Default)]
pub struct SessionChanges {
    /// The highest class since the last clean.
    class: Class,
    /// The highest class since the last inspection.
    uninspected: Class,
    /// The effects that the texts since the last inspection may have had.
    effects: Effects,
    /// The parameters, in lower case, that texts of class `Settings` have named since the last inspection.
    names: BTreeSet<Box<[u8]>>,
    /// Whether parameters were set that `names` does not contain.
    has_unknown_names: bool,
    /// Whether an inspection must read other state than the channels of LISTEN and UNLISTEN.
    beyond_channels: bool,
    /// Whether a role or the session's user was set since the last clean.
    affects_role: bool,
    /// Whether parameters on which plans depend were set since the last clean.
    affects_plans: bool,
    /// The number of texts since the last clean that may have left more than sequence values.
    texts: u32,
    /// The values that those texts have set, in their order, as far as the values are known from the text.
    literal_sets: LiteralSets,
    /// The number of texts whose values are in `literal_sets`.
    literal_texts: u32,
}

impl SessionChanges {
    /// Notes that a text is sent to the server. `class` is the highest class of all texts of the transaction so far.
    pub fn note(&mut self, effects: Effects, class: Class, text: &[u8], dialect: Dialect) {
        let beyond_channels = self.beyond_channels;
        self.raise_to(class);
        self.texts += u32::from(effects.class() > Class::Sequences);
        if effects == Effects::LISTEN {
            self.beyond_channels = beyond_channels;
        }
        self.effects |= effects;
        if effects.class() == Class::Settings {
            self.note_names(text, dialect);
        }
    }

    /// Notes that the last text is a simple query that sets these parameters when its transaction commits, and that
    /// changes nothing else.
    pub fn note_literal_sets(&mut self, pairs: LiteralSets) {
        if self.literal_sets.len() + pairs.len() <= NAMES_MAX {
            self.literal_sets.extend(pairs);
            self.literal_texts += 1;
        }
    }

    /// Forgets the values that texts have set: after a failed statement or a ROLLBACK, the texts no longer show which
    /// values are in force.
    pub fn forget_literal_sets(&mut self) {
        self.literal_sets.clear();
        self.literal_texts = 0;
    }

    /// Returns the parameter values that were set since the last clean, if nothing else in the session has changed except
    /// sequence values. Returns `None` if an inspection has to read the session.
    #[must_use]
    pub fn literal_sets(&self) -> Option<&LiteralSets> {
        let is_all = self.class == Class::Settings
            && self.texts == self.literal_texts
            && !self.affects_role
            && !self.affects_plans;
        (is_all && !self.literal_sets.is_empty()).then_some(&self.literal_sets)
    }

    /// Notes that a text or message of this class is sent to the server.
    #[inline]
    pub fn raise(&mut self, class: Class) {
        self.texts += u32::from(class > Class::Sequences);
        self.raise_to(class);
    }

    #[inline]
    fn raise_to(&mut self, class: Class) {
        self.class = self.class.max(class);
        self.uninspected = self.uninspected.max(class);
        self.beyond_channels |= class > Class::Sequences;
    }

    /// Makes the next inspection read the whole session, whatever is sent to the server until then.
    pub fn demand_inspection(&mut self) {
        self.texts += 1;
        self.uninspected = Class::Opaque;
        self.beyond_channels = true;
    }

    /// Notes that another process has used the session; the texts since its last inspection had these effects.
    pub fn note_takeover(&mut self, effects: Effects) {
        self.raise(Class::Opaque);
        self.effects |= effects;
        self.has_unknown_names = true;
        self.affects_role = true;
        self.affects_plans = true;
    }

    fn note_names(&mut self, text: &[u8], dialect: Dialect) {
        match touched_parameters(text, dialect) {
            Touched::Names(names) => {
                for name in names {
                    self.affects_role |= is_identity(&name);
                    self.affects_plans |= shapes_plans(&name);
                    self.names.insert(name.into());
                }
            }
            Touched::All | Touched::Unknown => self.has_unknown_names = true,
        }
        self.has_unknown_names |= self.names.is_empty() || self.names.len() > NAMES_MAX;
        if self.has_unknown_names {
            self.affects_role = true;
            self.affects_plans = true;
            self.names.clear();
        }
    }

    /// Returns the highest class since the last clean.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the effects that the texts since the last inspection may have had.
    #[inline]
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// Returns whether the session must be cleaned before another client, or pgweir itself, uses the server. Sequence
    /// values need no clean: they are discarded before the next client's statements.
    #[must_use]
    #[inline]
    pub fn needs_clean(&self) -> bool {
        self.class > Class::Sequences
    }

    /// Returns whether the session must be inspected before its client can continue on another server.
    #[must_use]
    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.uninspected > Class::Sequences
    }

    /// Returns the parameters that an inspection must read; `None` if it must read the whole session.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeSet<Box<[u8]>>> {
        (self.uninspected == Class::Settings && !self.has_unknown_names).then_some(&self.names)
    }

    /// Returns whether an inspection need only read the channels: only LISTEN and UNLISTEN ran since the last one.
    #[must_use]
    pub fn are_channels_only(&self) -> bool {
        self.needs_inspection() && !self.beyond_channels
    }

    /// Returns whether the session may have a user or role other than its login's.
    #[must_use]
    pub fn affects_role(&self) -> bool {
        self.affects_role || self.class == Class::Opaque
    }

    /// Returns whether parameters that change the meaning of literals may have been set since the last inspection.
    #[must_use]
    #[inline]
    pub fn affects_literal_syntax(&self) -> bool {
        let any = |affects: fn(&[u8]) -> bool| self.names.iter().any(|name| affects(name));
        self.uninspected == Class::Opaque
            || self.uninspected == Class::Settings
                && (self.has_unknown_names || any(affects_literals))
    }

    /// Returns whether texts have set parameters that decide which object a name means, since the last inspection. Code
    /// that pgweir has not read counts as setting none.
    #[must_use]
    #[inline]
    pub fn affects_names(&self) -> bool {
        let any = |decides: fn(&[u8]) -> bool| self.names.iter().any(|name| decides(name));
        self.uninspected == Class::Settings && (self.has_unknown_names || any(decides_names))
    }

    /// Returns whether the server may have made plans under parameters that other clients do not have.
    #[must_use]
    pub fn affects_plans(&self) -> bool {
        self.affects_plans || self.class == Class::Opaque
    }

    /// Notes that the session was inspected.
    pub fn note_inspected(&mut self) {
        self.uninspected = Class::Pure;
        self.effects = Effects::NONE;
        self.names.clear();
        self.has_unknown_names = false;
        self.beyond_channels = false;
    }

    /// Notes that the session was cleaned.
    pub fn note_cleaned(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(changes: &mut SessionChanges, effects: Effects, text: &str) {
        changes.note(effects, effects.class(), text.as_bytes(), Dialect::Utf8);
    }

    #[test]
    fn changes_accumulate_until_the_clean() {
        let mut changes = SessionChanges::default();
        assert!(!changes.needs_clean() && !changes.needs_inspection());
        note(&mut changes, Effects::SEQUENCE, "SELECT nextval('s')");
        assert!(!changes.needs_clean() && !changes.needs_inspection());
        note(
            &mut changes,
            Effects::SETTING,
            "SET App.Tenant = 'a'; SET ROLE x",
        );
        assert!(changes.needs_clean() && changes.needs_inspection() && changes.affects_role());
        let names: Vec<_> = changes
            .names()
            .unwrap()
            .iter()
            .map(|name| &**name)
            .collect();
        assert_eq!(names, [&b"app.tenant"[..], b"role"]);
        changes.note_inspected();
        assert!(changes.needs_clean() && !changes.needs_inspection() && changes.affects_role());
        note(&mut changes, Effects::OPAQUE, "DO 'x'");
        assert_eq!(changes.names(), None);
        changes.note_cleaned();
        assert!(!changes.needs_clean() && !changes.needs_inspection() && !changes.affects_role());
        changes.demand_inspection();
        assert!(!changes.needs_clean() && changes.needs_inspection() && changes.names().is_none());
    }

    #[test]
    fn all_parameters() {
        for text in ["RESET ALL", "SELECT set_config($1, $2, false)", ""] {
            let mut changes = SessionChanges::default();
            note(&mut changes, Effects::SETTING, text);
            assert_eq!(changes.names(), None, "{text}");
        }
        let mut changes = SessionChanges::default();
        for number in 0..=NAMES_MAX {
            note(
                &mut changes,
                Effects::SETTING,
                &format!("SET app.n{number} = 1"),
            );
        }
        assert_eq!(changes.names(), None);
    }

    #[test]
    fn channels_alone() {
        let mut changes = SessionChanges::default();
        assert!(!changes.are_channels_only());
        note(&mut changes, Effects::LISTEN, "LISTEN a");
        note(&mut changes, Effects::NONE, "SELECT 1");
        assert!(changes.are_channels_only());
        for other in [Effects::SETTING, Effects::OPAQUE] {
            note(&mut changes, other, "SET app.x = 1");
            assert!(!changes.are_channels_only(), "{other}");
            note(&mut changes, Effects::LISTEN, "UNLISTEN a");
            assert!(!changes.are_channels_only(), "{other}");
            changes.note_inspected();
            note(&mut changes, Effects::LISTEN, "LISTEN a");
            assert!(changes.are_channels_only(), "{other}");
        }
        let both = Effects::LISTEN | Effects::SETTING;
        note(&mut changes, both, "LISTEN a; SET app.x = 1");
        assert!(!changes.are_channels_only());
        changes.note_inspected();
        note(&mut changes, Effects::LISTEN, "LISTEN a");
        changes.raise(Class::Opaque);
        assert!(!changes.are_channels_only());
        changes.note_inspected();
        changes.demand_inspection();
        assert!(!changes.are_channels_only());
    }

    #[test]
    fn values_that_texts_tell() {
        let pairs = |value: &str| vec![(b"a.b".to_vec(), Some(value.as_bytes().to_vec()))];
        let set = |changes: &mut SessionChanges, value: &str| {
            note(changes, Effects::SETTING, &format!("SET a.b = '{value}'"));
            changes.note_literal_sets(pairs(value));
        };
        let mut changes = SessionChanges::default();
        assert_eq!(changes.literal_sets(), None);
        set(&mut changes, "1");
        set(&mut changes, "2");
        note(&mut changes, Effects::SEQUENCE, "SELECT nextval('s')");
        let both = [pairs("1"), pairs("2")].concat();
        assert_eq!(changes.literal_sets(), Some(&both));
        for spoil in [
            |changes: &mut SessionChanges| changes.forget_literal_sets(),
            |changes: &mut SessionChanges| changes.raise(Class::Opaque),
            |changes: &mut SessionChanges| changes.demand_inspection(),
            |changes: &mut SessionChanges| note(changes, Effects::SETTING, "SET work_mem = '1MB'"),
            |changes: &mut SessionChanges| note(changes, Effects::SETTING, "SET a.b = '3'"),
            |changes: &mut SessionChanges| note(changes, Effects::LISTEN, "LISTEN a"),
        ] {
            spoil(&mut changes);
            assert_eq!(changes.literal_sets(), None);
            set(&mut changes, "4");
            assert_eq!(changes.literal_sets(), None);
            changes.note_inspected();
            set(&mut changes, "4");
            assert_eq!(changes.literal_sets(), None);
            changes.note_cleaned();
            set(&mut changes, "5");
            assert_eq!(changes.literal_sets(), Some(&pairs("5")));
        }
    }

    #[test]
    fn a_setting_under_a_savepoint() {
        let mut changes = SessionChanges::default();
        let both = Effects::SETTING | Effects::SAVEPOINT;
        changes.note(
            Effects::SETTING,
            both.class(),
            b"SET app.x = 1",
            Dialect::Utf8,
        );
        assert_eq!((changes.class(), changes.names()), (Class::Opaque, None));
    }
}
