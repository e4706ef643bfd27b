//! The effects that a text may have on its session.

use std::{
    fmt,
    ops::{BitOr, BitOrAssign},
};

use crate::session::word_list::words;

/// The effects that a text may have on the session that runs it. Empty if the text is certain to leave no session
/// state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Effects(u32);

impl Effects {
    /// No effect.
    pub const NONE: Self = Self(0);
    /// A parameter was set for longer than the transaction: SET, RESET, set_config.
    pub const SETTING: Self = Self(1);
    /// LISTEN, UNLISTEN.
    pub const LISTEN: Self = Self(1 << 1);
    /// PREPARE, DEALLOCATE.
    pub const PREPARE: Self = Self(1 << 2);
    /// EXECUTE: the effects are those of the statement of that name.
    pub const EXECUTE: Self = Self(1 << 3);
    /// DISCARD of anything.
    pub const DISCARD: Self = Self(1 << 4);
    /// An object was made, dropped or altered, perhaps a temporary one.
    pub const TEMP: Self = Self(1 << 5);
    /// CLOSE; with [`OPAQUE`](Self::OPAQUE), a cursor WITH HOLD.
    pub const CURSOR: Self = Self(1 << 6);
    /// Advisory locks of the session, taken or released.
    pub const LOCK: Self = Self(1 << 7);
    /// setseed, which no view reports and no statement undoes.
    pub const SEED: Self = Self(1 << 8);
    /// LOAD, and other effects that only end with the server connection: a replication origin of the session, a
    /// temporary replication slot, a backup, connections of dblink.
    pub const LIBRARY: Self = Self(1 << 9);
    /// A sequence was advanced or set, so that currval and lastval have a value.
    pub const SEQUENCE: Self = Self(1 << 10);
    /// currval, lastval.
    pub const READS_SEQUENCE: Self = Self(1 << 11);
    /// Any effect: DO, CALL, functions and relations without a certificate, and anything that the scanner does not
    /// understand.
    pub const OPAQUE: Self = Self(1 << 12);
    /// The text reads the session's prepared statements. On a server of pgweir's, these differ from the client's.
    pub const STATEMENTS_VIEW: Self = Self(1 << 13);

    /// `pg_terminate_backend`: no effect on its own session, but perhaps on another client.
    pub const TERMINATES: Self = Self(1 << 14);
    /// `pg_cancel_backend`.
    pub const CANCELS: Self = Self(1 << 15);

    /// SAVEPOINT, RELEASE, ROLLBACK TO. They leave no state themselves, but after them the text of a SET in the same
    /// transaction does not show whether the SET is in force.
    pub const SAVEPOINT: Self = Self(1 << 16);

    /// The text reads a parameter, the user or the like. No text gets this effect; a function that has it and is
    /// declared IMMUTABLE is opaque, since PostgreSQL keeps its result in plans.
    pub(in crate::session) const READS_SESSION: Self = Self(1 << 17);

    /// A role or another user is set, until the end of the transaction if there is no other effect. Statements that are
    /// analysed meanwhile can't be shared with other clients.
    pub const ROLE: Self = Self(1 << 18);

    /// The text reads the session's channels. On a server of pgweir's, these differ from the client's.
    pub const CHANNELS_VIEW: Self = Self(1 << 19);

    /// The code changes more than the session, or may do so: a function that is declared VOLATILE. No text gets this effect;
    /// see [`may_change_data`](super::may_change_data).
    pub(in crate::session) const CHANGES_DATA: Self = Self(1 << 20);

    /// Effects that are only known of the database's code, and that no text gets.
    pub(in crate::session) const OF_CODE: Self = Self::READS_SESSION
        .and(Self::CHANGES_DATA)
        .and(Self::READS_DATA);

    /// A parameter is set whose name the code computes, so that no list of names contains it.
    pub const COMPUTED_NAME: Self = Self(1 << 21);

    /// A function of PL/pgSQL runs that keeps the types which `search_path` and the role give it now.
    pub const TYPES: Self = Self(1 << 22);

    /// `search_path` is set, until the end of the transaction if there is no other effect. Only texts for databases with
    /// functions of the effect [`TYPES`](Self::TYPES) get this effect.
    pub const PATH: Self = Self(1 << 23);

    /// Code runs that pgweir has not read: it may set any parameter for a while, and may make temporary objects of any
    /// name.
    pub const UNREAD: Self = Self(1 << 24);

    /// The code reads tables. No text gets this effect; a function that has it and is declared IMMUTABLE is opaque.
    pub(in crate::session) const READS_DATA: Self = Self(1 << 25);

    const NAMES: [&str; 26] = words(
        "SETTING LISTEN PREPARE EXECUTE DISCARD TEMP CURSOR LOCK SEED LIBRARY SEQUENCE \
         READS_SEQUENCE OPAQUE STATEMENTS_VIEW TERMINATES CANCELS SAVEPOINT READS_SESSION ROLE \
         CHANNELS_VIEW CHANGES_DATA COMPUTED_NAME TYPES PATH UNREAD READS_DATA",
    );

    /// The number of kinds of effects.
    pub const KINDS: u32 = Self::NAMES.len() as u32;

    /// Returns whether these effects include all of `other`.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether these effects include any of `other`.
    #[must_use]
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns these effects without those of `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns both, also in constants.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether there is no effect.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the effects as a number, one bit for each kind.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the effects of a number. A bit without a meaning counts as an unknown effect, and so as any effect.
    pub const fn from_bits(bits: u32) -> Self {
        if bits >> Self::NAMES.len() == 0 {
            Self(bits)
        } else {
            Self(bits & ((1 << Self::NAMES.len()) - 1) | Self::OPAQUE.0)
        }
    }

    /// Returns the kind with this name, as `Display` writes it.
    pub fn named(name: &[u8]) -> Option<Self> {
        let bit = Self::NAMES
            .iter()
            .position(|known| known.as_bytes() == name)?;
        Some(Self(1 << bit))
    }
}

impl BitOr for Effects {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Effects {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (bit, name) in Self::NAMES.iter().enumerate() {
            if self.0 >> bit & 1 == 1 {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("NONE") } else { Ok(()) }
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Effects;

    #[test]
    fn sets() {
        let both = Effects::TEMP | Effects::LOCK;
        assert!(both.contains(Effects::TEMP) && both.intersects(Effects::LOCK));
        assert!(!both.contains(Effects::TEMP | Effects::SEED));
        assert_eq!(both.without(Effects::LOCK), Effects::TEMP);
        assert!(Effects::NONE.is_empty() && !both.is_empty());
        assert_eq!(both.to_string(), "TEMP|LOCK");
        assert_eq!(Effects::NONE.to_string(), "NONE");
        assert_eq!(Effects::from_bits(both.bits()), both);
        assert_eq!(
            Effects::from_bits(1 << 30 | both.bits()),
            both | Effects::OPAQUE
        );
        assert_eq!(
            Effects::named(b"STATEMENTS_VIEW"),
            Some(Effects::STATEMENTS_VIEW)
        );
        assert_eq!(Effects::named(b"temp"), None);
    }
}
