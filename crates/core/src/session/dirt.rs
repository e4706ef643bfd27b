//! What ran on a server since its session was last cleaned and last looked at.
//!
//! The class of a text says how much of the session the text can change ([`Class`]). A server's dirt is
//! the highest class of all texts that were sent to it: errors and ROLLBACK do not lower it. The clean
//! that the class demands runs before another client, or pgweir itself, uses the server. A look at the
//! session of the client that owns it is a separate matter: it finds what the client has set, so that the
//! client finds the same on its next server.

use std::collections::BTreeSet;

use super::{
    Class, Dialect, Effects, affects_literals, is_identity,
    scan::{LiteralSets, Touched, shapes_plans, touched_parameters},
};

/// The most parameters that are named one by one; of more, all are looked at.
const NAMES_MAX: usize = 64;

/// The dirt of one server.
#[derive(Debug, Default)]
pub struct Dirt {
    /// Since the last clean.
    class: Class,
    /// Since the last look.
    unseen: Class,
    /// What the texts since the last look may have touched.
    effects: Effects,
    /// The parameters that texts of class settings have named since the last look, in lower case.
    names: BTreeSet<Box<[u8]>>,
    /// More parameters were set than `names` tells.
    any_name: bool,
    /// Something else than LISTEN and UNLISTEN is to be looked at.
    beyond_channels: bool,
    /// A role or the session's user was set since the last clean.
    changes_role: bool,
    /// Parameters were set on which plans depend, since the last clean.
    changes_plans: bool,
    /// How many texts since the last clean may have left more than values of sequences.
    texts: u32,
    /// What those of them have set of which that is known, in their order.
    literal_sets: LiteralSets,
    /// How many those are.
    literal_texts: u32,
}

impl Dirt {
    /// A text is sent to the server. `class` is that of all that its transaction has run so far.
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

    /// The text that was noted last is a simple query, and sets these parameters, and nothing else, if its
    /// transaction is committed.
    pub fn sets(&mut self, pairs: LiteralSets) {
        if self.literal_sets.len() + pairs.len() <= NAMES_MAX {
            self.literal_sets.extend(pairs);
            self.literal_texts += 1;
        }
    }

    /// A statement has failed, or a transaction was rolled back: what texts say is not what they have done.
    pub fn undone(&mut self) {
        self.literal_sets.clear();
        self.literal_texts = 0;
    }

    /// All that was done to the session since its last clean, values of sequences aside: parameters were set to these
    /// values. `None` if only a look can tell.
    #[must_use]
    pub fn literal_sets(&self) -> Option<&LiteralSets> {
        let is_all = self.class == Class::Settings
            && self.texts == self.literal_texts
            && !self.changes_role
            && !self.changes_plans;
        (is_all && !self.literal_sets.is_empty()).then_some(&self.literal_sets)
    }

    /// Something of this class is sent to the server.
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

    /// The session is to be looked at, whatever is sent to the server.
    pub fn demand_inspection(&mut self) {
        self.texts += 1;
        self.unseen = Class::Opaque;
        self.beyond_channels = true;
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

    /// The class since the last clean.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The class since the last look.
    #[must_use]
    #[inline]
    pub fn unseen(&self) -> Class {
        self.unseen
    }

    /// What the texts since the last look may have touched.
    #[inline]
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// Is the session to be cleaned before anybody else uses the server? Sequence values are discarded in front
    /// of the next client's statements.
    #[must_use]
    #[inline]
    pub fn needs_clean(&self) -> bool {
        self.class > Class::Sequences
    }

    /// Is the session to be looked at before its client can go on with another server?
    #[must_use]
    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.unseen > Class::Sequences
    }

    /// The parameters that a look has to ask for; `None` if that is all of them and everything else.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeSet<Box<[u8]>>> {
        (self.unseen == Class::Settings && !self.any_name).then_some(&self.names)
    }

    /// Is it enough to look at the channels? Nothing but LISTEN and UNLISTEN was said since the last look.
    #[must_use]
    pub fn is_of_channels(&self) -> bool {
        self.needs_inspection() && !self.beyond_channels
    }

    /// May the session have another user or role than its login's?
    #[must_use]
    pub fn changes_role(&self) -> bool {
        self.changes_role || self.class == Class::Opaque
    }

    /// May parameters have been set since the last look that decide what literals mean?
    #[must_use]
    pub fn changes_literals(&self) -> bool {
        let mut names = self.names.iter();
        self.unseen == Class::Opaque
            || self.unseen == Class::Settings
                && (self.any_name || names.any(|name| affects_literals(name)))
    }

    /// May plans have been made that are bad for others?
    #[must_use]
    pub fn changes_plans(&self) -> bool {
        self.changes_plans || self.class == Class::Opaque
    }

    /// The session was looked at.
    pub fn inspected(&mut self) {
        self.unseen = Class::Pure;
        self.effects = Effects::NONE;
        self.names.clear();
        self.any_name = false;
        self.beyond_channels = false;
    }

    /// The session was cleaned.
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
