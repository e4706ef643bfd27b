//! Classes of texts, by the clean that a session needs after them.

use super::Effects;

/// The class of a text, or of all texts that ran on a server since its last clean: the highest counts. Errors and
/// ROLLBACK do not lower it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The text leaves no session state.
    #[default]
    Pure,
    /// The text may leave sequence values, which DISCARD SEQUENCES removes.
    Sequences,
    /// The text may also set or reset parameters; [`touched_parameters`](super::touched_parameters) returns their
    /// names.
    Settings,
    /// Anything.
    Opaque,
}

impl Effects {
    /// The effects that leave no session state.
    const HARMLESS: Self = Self::STATEMENTS_VIEW
        .and(Self::CHANNELS_VIEW)
        .and(Self::TERMINATES)
        .and(Self::CANCELS)
        // A cursor WITH HOLD has the effect OPAQUE, too; CLOSE leaves nothing.
        .and(Self::CURSOR)
        .and(Self::ROLE)
        .and(Self::TYPES)
        .and(Self::PATH)
        .and(Self::SAVEPOINT);
    const OF_SEQUENCES: Self = Self::HARMLESS.and(Self::SEQUENCE).and(Self::READS_SEQUENCE);
    const OF_SETTINGS: Self = Self::OF_SEQUENCES.and(Self::SETTING);
    /// A SET under a savepoint: the text does not show its outcome.
    const UNDER_SAVEPOINT: Self = Self::SETTING.and(Self::SAVEPOINT);

    /// Returns the class of a text, or of everything that ran in a transaction of one server.
    #[must_use]
    pub const fn class(self) -> Class {
        if self.without(Self::HARMLESS).is_empty() {
            Class::Pure
        } else if self.without(Self::OF_SEQUENCES).is_empty() {
            Class::Sequences
        } else if self.without(Self::OF_SETTINGS).is_empty()
            && !self.contains(Self::UNDER_SAVEPOINT)
        {
            Class::Settings
        } else {
            Class::Opaque
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let check = |effects: Effects, class| assert_eq!(effects.class(), class, "{effects}");
        check(Effects::NONE, Class::Pure);
        check(Effects::TERMINATES | Effects::STATEMENTS_VIEW, Class::Pure);
        check(Effects::SAVEPOINT, Class::Pure);
        check(Effects::SEQUENCE | Effects::SAVEPOINT, Class::Sequences);
        check(Effects::READS_SEQUENCE | Effects::SETTING, Class::Settings);
        check(Effects::SETTING | Effects::SAVEPOINT, Class::Opaque);
        for bit in (0..32).map(|bit| Effects::from_bits(1 << bit)) {
            let is_known = Effects::OF_SETTINGS.contains(bit);
            assert_eq!(bit.class() == Class::Opaque, !is_known, "{bit}");
        }
        assert!(Class::Pure < Class::Sequences && Class::Settings < Class::Opaque);
    }
}
