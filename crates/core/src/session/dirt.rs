//! The dirt of a server connection: how far its session may have changed since its last clean and its last inspection.
//!
//! Each text that is sent to the server has a [`Class`], which says how much of the session the text can change. A
//! server's dirt is the highest class of all texts that were sent to it: errors and ROLLBACK do not lower it. The class
//! decides the clean, which runs before another client, or pgweir itself, uses the server. An inspection is a separate
//! matter: it reads what the client has set, so that the client finds the same on its next server.

use std::collections::BTreeSet;

use super::{
    Class, Dialect, Effects, affects_literals, is_identity,
    scan::{LiteralSets, Touched, shapes_plans, touched_parameters},
};

/// The most parameters that are inspected by name. Above that number, all parameters are inspected.
const NAMES_MAX: usize = 64;

/// The dirt of one server connection.
#[derive(Debug, Default)]
pub struct Dirt {
    /// The highest class since the last clean.
    class: Class,
    /// The highest class since the last inspection.
    unseen: Class,
    /// The effects that the texts since the last inspection may have had.
    effects: Effects,
    /// The parameters, in lower case, that texts of class `Settings` have named since the last inspection.
    names: BTreeSet<Box<[u8]>>,
    /// Whether parameters were set that `names` does not contain.
    any_name: bool,
    /// Whether more than the channels of LISTEN and UNLISTEN must be inspected.
    beyond_channels: bool,
    /// Whether a role or the session's user was set since the last clean.
    changes_role: bool,
    /// Whether parameters on which plans depend were set since the last clean.
    changes_plans: bool,
    /// The number of texts since the last clean that may have left more than sequence values.
    texts: u32,
    /// The values that those texts have set, in their order, as far as the values are known from the text.
    literal_sets: LiteralSets,
    /// The number of texts whose values are in `literal_sets`.
    literal_texts: u32,
}

impl Dirt {
    /// Notes that a text is sent to the server. `class` is the class of everything that its transaction has run so far.
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

    /// Notes that the last noted text is a simple query that, if its transaction is committed, sets these parameters
    /// and does nothing else.
    pub fn sets(&mut self, pairs: LiteralSets) {
        if self.literal_sets.len() + pairs.len() <= NAMES_MAX {
            self.literal_sets.extend(pairs);
            self.literal_texts += 1;
        }
    }

    /// Forgets the known values: a statement has failed, or a transaction was rolled back, so the texts no longer show
    /// what was set.
    pub fn undone(&mut self) {
        self.literal_sets.clear();
        self.literal_texts = 0;
    }

    /// Returns the parameter values that were set since the last clean, if nothing else was done to the session apart
    /// from sequence values. Returns `None` if only an inspection can find out.
    #[must_use]
    pub fn literal_sets(&self) -> Option<&LiteralSets> {
        let is_all = self.class == Class::Settings
            && self.texts == self.literal_texts
            && !self.changes_role
            && !self.changes_plans;
        (is_all && !self.literal_sets.is_empty()).then_some(&self.literal_sets)
    }

    /// Notes that something of this class is sent to the server.
    #[inline]
    pub fn raise(&mut self, class: Class) {
        self.texts += u32::from(class > Class::Sequences);
        self.raise_to(class);
    }

    #[inline]
    fn raise_to(&mut self, class: Class) {
        self.class = self.class.max(class);
        self.unseen = self.unseen.max(class);
        self.beyond_channels |= class > Class::Sequences;
    }

    /// Demands an inspection of the whole session, whatever is sent to the server.
    pub fn demand_inspection(&mut self) {
        self.texts += 1;
        self.unseen = Class::Opaque;
        self.beyond_channels = true;
    }

    /// Notes that the session was used by another process, where texts had these effects since the last inspection.
    pub fn taken_over(&mut self, effects: Effects) {
        self.raise(Class::Opaque);
        self.effects |= effects;
        self.any_name = true;
        self.changes_role = true;
        self.changes_plans = true;
    }

    fn note_names(&mut self, text: &[u8], dialect: Dialect) {
        match touched_parameters(text, dialect) {
            Touched::Names(names) => {
                for name in names {
                    self.changes_role |= is_identity(&name);
                    self.changes_plans |= shapes_plans(&name);
                    self.names.insert(name.into());
                }
            }
            Touched::All | Touched::Unknown => self.any_name = true,
        }
        self.any_name |= self.names.is_empty() || self.names.len() > NAMES_MAX;
        if self.any_name {
            self.changes_role = true;
            self.changes_plans = true;
            self.names.clear();
        }
    }

    /// Returns the highest class since the last clean.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the highest class since the last inspection.
    #[must_use]
    #[inline]
    pub fn unseen(&self) -> Class {
        self.unseen
    }

    /// Returns the effects that the texts since the last inspection may have had.
    #[inline]
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// Returns whether the session must be cleaned before another client, or pgweir itself, uses the server. Sequence
    /// values need no clean: they are discarded in front of the next client's statements.
    #[must_use]
    #[inline]
    pub fn needs_clean(&self) -> bool {
        self.class > Class::Sequences
    }

    /// Returns whether the session must be inspected before its client can continue on another server.
    #[must_use]
    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.unseen > Class::Sequences
    }

    /// Returns the parameters that an inspection must ask for; `None` if it must ask for all parameters and everything
    /// else.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeSet<Box<[u8]>>> {
        (self.unseen == Class::Settings && !self.any_name).then_some(&self.names)
    }

    /// Returns whether it is enough to inspect the channels: only LISTEN and UNLISTEN ran since the last inspection.
    #[must_use]
    pub fn is_of_channels(&self) -> bool {
        self.needs_inspection() && !self.beyond_channels
    }

    /// Returns whether the session may have a user or role other than its login's.
    #[must_use]
    pub fn changes_role(&self) -> bool {
        self.changes_role || self.class == Class::Opaque
    }

    /// Returns whether parameters that decide what literals mean may have been set since the last inspection.
    #[must_use]
    pub fn changes_literals(&self) -> bool {
        let mut names = self.names.iter();
        self.unseen == Class::Opaque
            || self.unseen == Class::Settings
                && (self.any_name || names.any(|name| affects_literals(name)))
    }

    /// Returns whether plans may have been made that are bad for other clients.
    #[must_use]
    pub fn changes_plans(&self) -> bool {
        self.changes_plans || self.class == Class::Opaque
    }

    /// Notes that the session was inspected.
    pub fn inspected(&mut self) {
        self.unseen = Class::Pure;
        self.effects = Effects::NONE;
        self.names.clear();
        self.any_name = false;
        self.beyond_channels = false;
    }

    /// Notes that the session was cleaned.
    pub fn cleaned(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(dirt: &mut Dirt, effects: Effects, text: &str) {
        dirt.note(effects, effects.class(), text.as_bytes(), Dialect::Utf8);
    }

    #[test]
    fn dirt_grows_until_the_clean() {
        let mut dirt = Dirt::default();
        assert!(!dirt.needs_clean() && !dirt.needs_inspection());
        note(&mut dirt, Effects::SEQUENCE, "SELECT nextval('s')");
        assert!(!dirt.needs_clean() && !dirt.needs_inspection());
        note(
            &mut dirt,
            Effects::SETTING,
            "SET App.Tenant = 'a'; SET ROLE x",
        );
        assert!(dirt.needs_clean() && dirt.needs_inspection() && dirt.changes_role());
        let names: Vec<_> = dirt.names().unwrap().iter().map(|name| &**name).collect();
        assert_eq!(names, [&b"app.tenant"[..], b"role"]);
        dirt.inspected();
        assert!(dirt.needs_clean() && !dirt.needs_inspection() && dirt.changes_role());
        note(&mut dirt, Effects::OPAQUE, "DO 'x'");
        assert_eq!(dirt.names(), None);
        dirt.cleaned();
        assert!(!dirt.needs_clean() && !dirt.needs_inspection() && !dirt.changes_role());
        dirt.demand_inspection();
        assert!(!dirt.needs_clean() && dirt.needs_inspection() && dirt.names().is_none());
    }

    #[test]
    fn all_parameters() {
        for text in ["RESET ALL", "SELECT set_config($1, $2, false)", ""] {
            let mut dirt = Dirt::default();
            note(&mut dirt, Effects::SETTING, text);
            assert_eq!(dirt.names(), None, "{text}");
        }
        let mut dirt = Dirt::default();
        for number in 0..=NAMES_MAX {
            note(
                &mut dirt,
                Effects::SETTING,
                &format!("SET app.n{number} = 1"),
            );
        }
        assert_eq!(dirt.names(), None);
    }

    #[test]
    fn channels_alone() {
        let mut dirt = Dirt::default();
        assert!(!dirt.is_of_channels());
        note(&mut dirt, Effects::LISTEN, "LISTEN a");
        note(&mut dirt, Effects::NONE, "SELECT 1");
        assert!(dirt.is_of_channels());
        for other in [Effects::SETTING, Effects::OPAQUE] {
            note(&mut dirt, other, "SET app.x = 1");
            assert!(!dirt.is_of_channels(), "{other}");
            note(&mut dirt, Effects::LISTEN, "UNLISTEN a");
            assert!(!dirt.is_of_channels(), "{other}");
            dirt.inspected();
            note(&mut dirt, Effects::LISTEN, "LISTEN a");
            assert!(dirt.is_of_channels(), "{other}");
        }
        let both = Effects::LISTEN | Effects::SETTING;
        note(&mut dirt, both, "LISTEN a; SET app.x = 1");
        assert!(!dirt.is_of_channels());
        dirt.inspected();
        note(&mut dirt, Effects::LISTEN, "LISTEN a");
        dirt.raise(Class::Opaque);
        assert!(!dirt.is_of_channels());
        dirt.inspected();
        dirt.demand_inspection();
        assert!(!dirt.is_of_channels());
    }

    #[test]
    fn values_that_texts_tell() {
        let pairs = |value: &str| vec![(b"a.b".to_vec(), Some(value.as_bytes().to_vec()))];
        let set = |dirt: &mut Dirt, value: &str| {
            note(dirt, Effects::SETTING, &format!("SET a.b = '{value}'"));
            dirt.sets(pairs(value));
        };
        let mut dirt = Dirt::default();
        assert_eq!(dirt.literal_sets(), None);
        set(&mut dirt, "1");
        set(&mut dirt, "2");
        note(&mut dirt, Effects::SEQUENCE, "SELECT nextval('s')");
        let both = [pairs("1"), pairs("2")].concat();
        assert_eq!(dirt.literal_sets(), Some(&both));
        for spoil in [
            |dirt: &mut Dirt| dirt.undone(),
            |dirt: &mut Dirt| dirt.raise(Class::Opaque),
            |dirt: &mut Dirt| dirt.demand_inspection(),
            |dirt: &mut Dirt| note(dirt, Effects::SETTING, "SET work_mem = '1MB'"),
            |dirt: &mut Dirt| note(dirt, Effects::SETTING, "SET a.b = '3'"),
            |dirt: &mut Dirt| note(dirt, Effects::LISTEN, "LISTEN a"),
        ] {
            spoil(&mut dirt);
            assert_eq!(dirt.literal_sets(), None);
            set(&mut dirt, "4");
            assert_eq!(dirt.literal_sets(), None);
            dirt.inspected();
            set(&mut dirt, "4");
            assert_eq!(dirt.literal_sets(), None);
            dirt.cleaned();
            set(&mut dirt, "5");
            assert_eq!(dirt.literal_sets(), Some(&pairs("5")));
        }
    }

    #[test]
    fn a_setting_under_a_savepoint() {
        let mut dirt = Dirt::default();
        let both = Effects::SETTING | Effects::SAVEPOINT;
        dirt.note(
            Effects::SETTING,
            both.class(),
            b"SET app.x = 1",
            Dialect::Utf8,
        );
        assert_eq!((dirt.class(), dirt.names()), (Class::Opaque, None));
    }
}
