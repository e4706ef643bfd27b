//! The record of a pinned session, which moves to the new process with its client and server.

use std::fmt;

use super::{
    BadFrame, Pairs,
    field::{Fields, Writer},
};

/// Why a client is pinned to its server, and the state of the server's session.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PinRecord {
    /// The reasons, as [`Pins`](crate::base::pin::Pins) has them.
    pub pins: u16,
    /// For how long the client has been pinned, in microseconds.
    pub age: u64,
    /// The hash and the text of the statement that is probably the reason.
    pub by: Option<(u64, String)>,
    /// The number of transactions for which the client still keeps its server because of sequence values.
    pub sequences_kept: u8,
    /// The effects that the texts since the last inspection may have had, as [`Effects`](crate::session::Effects) has it.
    pub effects: u32,
    /// The facts about client and session that are true or false: see [`facts`].
    pub facts: u16,
    /// The settings that the session has changed.
    pub held: Pairs,
    /// The SQL-prepared statements that the server may have.
    pub sql: Pairs,
    /// The texts that SQL has prepared since the last inspection, by name.
    pub prepared: Pairs,
    /// The value of `standard_conforming_strings` at the server's login.
    pub strings_at_login: Option<Vec<u8>>,
}

/// The bits of [`PinRecord::facts`].
pub mod facts {
    /// The client may have set custom parameters that no server can be asked for.
    pub const HAS_UNLISTED: u16 = 1;
    /// A server has refused the client's startup values as a whole.
    pub const FAILED: u16 = 1 << 1;
    /// PL/pgSQL may keep bodies that were read under another setting.
    pub const MAY_HAVE_MISREAD: u16 = 1 << 2;
    /// An opaque text has run since login.
    pub const HAS_RUN_OPAQUE: u16 = 1 << 3;
    /// The server may have state that no clean removes.
    pub const OUTLIVES_CLEAN: u16 = 1 << 4;
    // Earlier versions used bit 5.
    /// The server has the client's statements under the client's names.
    pub const OWN_NAMES: u16 = 1 << 6;
    /// The server may have some statements under the client's names.
    pub const MIXED_NAMES: u16 = 1 << 7;
    /// Texts that pgweir did not see may have prepared statements.
    pub const HIDDEN_NAMES: u16 = 1 << 8;
    /// The server has sequence values of this client alone.
    pub const OWN_SEQUENCES: u16 = 1 << 9;
    /// The server may have sequence values of several clients.
    pub const MIXED_SEQUENCES: u16 = 1 << 10;
    /// A text may have changed state that only an exact inspection finds.
    pub const MUST_BE_EXACT: u16 = 1 << 11;
    /// The server has reported a parameter whose new value the client has not received yet.
    pub const HAS_UNSENT: u16 = 1 << 12;
    /// Code of the session that pgweir has not read may have granted privileges.
    pub const MUST_ASK_RIGHTS: u16 = 1 << 13;
}

mod tag {
    pub(super) const PINS: u8 = 1;
    pub(super) const AGE: u8 = 2;
    pub(super) const BY_HASH: u8 = 3;
    pub(super) const BY_TEXT: u8 = 4;
    pub(super) const SEQUENCES_KEPT: u8 = 5;
    pub(super) const EFFECTS: u8 = 6;
    pub(super) const FACTS: u8 = 7;
    pub(super) const HELD: u8 = 8;
    pub(super) const SQL: u8 = 9;
    pub(super) const PREPARED: u8 = 10;
    pub(super) const STRINGS_AT_LOGIN: u8 = 11;
}

impl PinRecord {
    /// Returns whether this fact holds.
    #[must_use]
    pub fn has(&self, fact: u16) -> bool {
        self.facts & fact != 0
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.number(tag::PINS, self.pins.into())
            .number(tag::AGE, self.age)
            .number(tag::SEQUENCES_KEPT, self.sequences_kept.into())
            .number(tag::EFFECTS, self.effects.into())
            .number(tag::FACTS, self.facts.into())
            .pairs(tag::HELD, &self.held)
            .pairs(tag::SQL, &self.sql)
            .pairs(tag::PREPARED, &self.prepared);
        if let Some((hash, text)) = &self.by {
            to.number(tag::BY_HASH, *hash)
                .bytes(tag::BY_TEXT, text.as_bytes());
        }
        if let Some(strings) = &self.strings_at_login {
            to.bytes(tag::STRINGS_AT_LOGIN, strings);
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let mut record = Self::default();
        for field in Fields(bytes) {
            let field = field?;
            match field.tag {
                tag::PINS => record.pins = field.number()?,
                tag::AGE => record.age = field.number()?,
                tag::BY_HASH => record.by.get_or_insert_default().0 = field.number()?,
                tag::BY_TEXT => record.by.get_or_insert_default().1 = field.text()?,
                tag::SEQUENCES_KEPT => record.sequences_kept = field.number()?,
                tag::EFFECTS => record.effects = field.number()?,
                tag::FACTS => record.facts = field.number()?,
                tag::HELD => record.held = field.pairs()?,
                tag::SQL => record.sql = field.pairs()?,
                tag::PREPARED => record.prepared = field.pairs()?,
                tag::STRINGS_AT_LOGIN => record.strings_at_login = Some(field.value.to_vec()),
                _ => field.unknown()?,
            }
        }
        Ok(record)
    }
}

impl fmt::Debug for PinRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values and texts may be secrets.
        f.debug_struct("PinRecord")
            .field("pins", &self.pins)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
