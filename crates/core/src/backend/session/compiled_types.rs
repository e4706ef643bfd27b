//! The types that PL/pgSQL keeps for the lifetime of a session.
//!
//! At the first call of a function, PL/pgSQL looks up the types of its variables under the `search_path` and the role of
//! that moment. If these types differ between schemas, only clients with the same `search_path` and role may use the
//! server later.

use crate::session::{Effects, Settings, is_identity};

/// Under which settings PL/pgSQL may have compiled functions in a session.
#[derive(Debug, Default)]
pub(crate) struct CompiledTypes {
    kept: Kept,
    /// Whether texts have set `search_path` or a role for the session since its settings were last known.
    is_path_new: bool,
}

#[derive(Debug, Default)]
enum Kept {
    /// None that depend on settings.
    #[default]
    None,
    /// Functions were compiled under these settings.
    Under(Settings),
    /// Functions were compiled under the settings that the next inspection finds.
    UnderNext,
    /// Functions may have been compiled under any settings.
    UnderAny,
}

/// Effects after which the types of functions depend on more than the session's settings.
const OF_TYPES: Effects = PATHS.and(Effects::TYPES).and(Effects::UNREAD);
/// Effects that set `search_path` or a role.
const PATHS: Effects = Effects::PATH.and(Effects::ROLE);
/// Effects that last longer than the transaction.
const LASTING: Effects = Effects::SETTING.and(Effects::DISCARD).and(Effects::OPAQUE);

impl CompiledTypes {
    /// Notes a text that is sent. `transaction` are the effects of the transaction so far, those of the text included.
    /// `held` are the session's settings.
    pub(super) fn note(&mut self, effects: Effects, transaction: Effects, held: &Settings) {
        if !effects.intersects(OF_TYPES) {
            return;
        }
        let sets_path = effects.intersects(PATHS);
        let is_in_transaction =
            transaction.contains(Effects::TYPES) && transaction.intersects(PATHS);
        if effects.contains(Effects::UNREAD) || is_in_transaction {
            self.kept = Kept::UnderAny;
        } else if effects.contains(Effects::TYPES) {
            self.note_types(held);
        } else if sets_path && matches!(self.kept, Kept::UnderNext) {
            self.kept = Kept::UnderAny;
        }
        self.is_path_new |= sets_path && effects.intersects(LASTING);
    }

    fn note_types(&mut self, held: &Settings) {
        self.kept = match std::mem::take(&mut self.kept) {
            Kept::None if self.is_path_new => Kept::UnderNext,
            Kept::None => Kept::Under(held.clone()),
            Kept::UnderNext => Kept::UnderNext,
            Kept::Under(known) if !self.is_path_new && are_alike(&known, held) => {
                Kept::Under(known)
            }
            Kept::Under(_) | Kept::UnderAny => Kept::UnderAny,
        };
    }

    /// Notes that code has run which may have done anything.
    pub(crate) fn note_any(&mut self) {
        self.kept = Kept::UnderAny;
    }

    /// Forgets the functions: their types do not depend on settings.
    pub(crate) fn forget(&mut self) {
        self.kept = Kept::None;
    }

    /// Notes that an inspection has found these settings in the session.
    pub(crate) fn note_settings(&mut self, found: &Settings) {
        self.is_path_new = false;
        if matches!(self.kept, Kept::UnderNext) {
            self.kept = Kept::Under(found.clone());
        }
    }

    /// Notes that the session's settings were reset.
    pub(super) fn note_cleaned(&mut self) {
        self.is_path_new = false;
        if matches!(self.kept, Kept::UnderNext) {
            self.kept = Kept::UnderAny;
        }
    }

    /// Returns whether the session has such functions.
    #[must_use]
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        !matches!(self.kept, Kept::None)
    }

    /// Returns whether no other client may use the session.
    #[must_use]
    #[inline]
    pub(crate) fn suit_nobody(&self) -> bool {
        matches!(self.kept, Kept::UnderNext | Kept::UnderAny)
    }

    /// Returns whether a client with these settings may use the session.
    #[must_use]
    pub(crate) fn suit(&self, wanted: &Settings) -> bool {
        match &self.kept {
            Kept::None => true,
            Kept::Under(settings) => are_alike(settings, wanted),
            Kept::UnderNext | Kept::UnderAny => false,
        }
    }
}

/// Returns whether names mean the same under both settings.
fn are_alike(one: &Settings, other: &Settings) -> bool {
    let identities = |settings: &Settings| -> Vec<_> {
        let pairs = settings.iter().filter(|(name, _)| is_identity(name));
        pairs
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect()
    };
    one.is_same(other)
        || paths_are_alike(path(one), path(other)) && identities(one) == identities(other)
}

fn path(settings: &Settings) -> Option<&[u8]> {
    settings.get(b"search_path")
}

/// Returns whether two values of `search_path` differ in nothing but blanks.
fn paths_are_alike(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one == other;
    };
    let letters =
        |path: &[u8]| -> Vec<u8> { path.iter().copied().filter(|byte| *byte != b' ').collect() };
    let is_quoted = one.contains(&b'"') || other.contains(&b'"');
    one == other || !is_quoted && letters(one) == letters(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SettingsTable;

    #[test]
    fn servers_for_clients_of_one_search_path() {
        let table = SettingsTable::default();
        let [a, b] = ["a, c", "b"].map(|path| table.intern([("search_path", path)]));
        let spelled = table.intern([("search_path", "a,c"), ("app.tenant", "1")]);
        let of_role = table.intern([("search_path", "a, c"), ("role", "r")]);
        let run = |texts: &[(Effects, Effects)]| {
            let mut types = CompiledTypes::default();
            for (effects, transaction) in texts {
                types.note(*effects, *transaction | *effects, &a);
            }
            types
        };
        let (types, path, none) = (Effects::TYPES, Effects::PATH, Effects::NONE);
        assert!(
            run(&[(path, none), (Effects::ROLE, none)]).suit(&b),
            "no function was called"
        );
        let known = run(&[(path, none), (types, none), (types, none)]);
        assert!(known.are_any() && !known.suit_nobody());
        assert!(known.suit(&a) && known.suit(&spelled) && !known.suit(&b) && !known.suit(&of_role));
        for texts in [
            &[(Effects::UNREAD, none)][..],
            &[(types, path)],
            &[(types, Effects::ROLE)],
            &[(types, none), (path, types)],
            &[(types | path, none)],
        ] {
            assert!(run(texts).suit_nobody(), "{texts:?}");
        }
    }

    #[test]
    fn search_path_of_the_session() {
        let table = SettingsTable::default();
        let [a, b] = ["a", "b"].map(|path| table.intern([("search_path", path)]));
        let sets = Effects::SETTING | Effects::PATH;
        let mut types = CompiledTypes::default();
        types.note(sets, sets, &a);
        types.note(Effects::TYPES, Effects::TYPES, &a);
        assert!(types.suit_nobody());
        types.note_settings(&b);
        assert!(types.suit(&b) && !types.suit(&a));
        types.note(Effects::TYPES, Effects::TYPES, &b);
        assert!(types.suit(&b));
        types.note(sets, sets, &b);
        types.note(Effects::TYPES, Effects::TYPES, &b);
        assert!(types.suit_nobody());
        for forget in [
            |types: &mut CompiledTypes| types.note_cleaned(),
            |types: &mut CompiledTypes| {
                types.note(
                    Effects::SETTING | Effects::PATH,
                    Effects::NONE,
                    &Settings::default(),
                )
            },
        ] {
            let mut types = CompiledTypes::default();
            types.note(sets, sets, &a);
            types.note(Effects::TYPES, Effects::TYPES, &a);
            forget(&mut types);
            types.note_settings(&b);
            assert!(types.suit_nobody());
        }
    }
}
