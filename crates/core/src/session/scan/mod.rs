//! The scanner finds the effects that an SQL text may have on its session, without a query to the server.
//!
//! The rules: the text must be cut into tokens with certainty, and each of its statements must begin with a word of a
//! closed list. Every word and quoted identifier is looked up wherever it stands: among the key words, among those
//! functions of PostgreSQL's own that leave session state, and in the certificates of the database. The scanner parses
//! no grammar beyond that, so no place in a statement hides a name. It reads a text in one pass and allocates nothing.

mod blocks;
mod byte_classes;
mod channel_command;
mod class;
mod data_changes;
mod ddl;
mod denied;
mod effects;
mod lexer;
mod literal_sets;
mod meaning;
mod parameters;
mod phrase;
pub(super) mod pieces;
mod reader;
mod session_readers;
mod template;
mod verdict_cache;
#[cfg(test)]
mod verdicts;
mod words;

pub(in crate::session) use byte_classes::is_of_word;
pub use channel_command::ChannelCommand;
pub use class::Class;
pub(in crate::session) use data_changes::{changes_data, may_change_data};
pub use ddl::DdlWords;
pub(in crate::session) use ddl::NAME_MAX;
pub(in crate::session) use denied::is_harmless;
pub use effects::Effects;
use lexer::Literals;
pub(in crate::session) use lexer::{Kind, Lexer};
pub use literal_sets::{LiteralSets, literal_sets};
pub(in crate::session) use parameters::is_parameter_name;
pub use parameters::{
    Touched, affects_compilation, outlasts_reset, shapes_plans, touched_parameters,
};
pub use phrase::{CustomNames, Phrase, Phrases, custom_names, is_broken, phrases};
use reader::Look;
#[cfg(test)]
pub(in crate::session) use session_readers::SESSION_READERS;
pub(in crate::session) use session_readers::reads_session;
pub use verdict_cache::{Verdict, VerdictCache};
pub(in crate::session) use words::{builtin_effects, is_catalog};

use super::certificates::Certificates;

/// The rules by which a server turns the bytes of a text into tokens; they depend on the settings of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Names beyond ASCII are written as the catalog writes them.
    Utf8,
    /// ASCII bytes mean ASCII characters; names beyond ASCII can't be compared.
    Ascii,
    /// A byte with the value of a quote or a backslash may be part of another character, so the text can't be scanned.
    #[default]
    Unreadable,
}

impl Dialect {
    /// Returns the dialect for these values of `standard_conforming_strings` and `client_encoding`, as the server
    /// reports them. Names beyond ASCII also need a database in UTF8, which the certificates know.
    #[must_use]
    pub fn of(standard_conforming_strings: &[u8], client_encoding: &[u8]) -> Self {
        if standard_conforming_strings != b"on" {
            return Self::Unreadable;
        }
        match client_encoding {
            b"UTF8" => Self::Utf8,
            // In the other encodings (BIG5, GBK, GB18030, UHC, JOHAB, SJIS, SHIFT_JIS_2004), a byte below 0x80 may be
            // part of another character.
            b"SQL_ASCII" | b"EUC_JP" | b"EUC_CN" | b"EUC_KR" | b"EUC_TW" | b"EUC_JIS_2004"
            | b"MULE_INTERNAL" | b"LATIN1" | b"LATIN2" | b"LATIN3" | b"LATIN4" | b"LATIN5"
            | b"LATIN6" | b"LATIN7" | b"LATIN8" | b"LATIN9" | b"LATIN10" | b"WIN866"
            | b"WIN874" | b"WIN1250" | b"WIN1251" | b"WIN1252" | b"WIN1253" | b"WIN1254"
            | b"WIN1255" | b"WIN1256" | b"WIN1257" | b"WIN1258" | b"ISO_8859_5" | b"ISO_8859_6"
            | b"ISO_8859_7" | b"ISO_8859_8" | b"KOI8R" | b"KOI8U" => Self::Ascii,
            _ => Self::Unreadable,
        }
    }

    /// Returns the number of characters in a text: errors give their position in characters.
    #[must_use]
    pub fn chars(self, text: &[u8]) -> usize {
        match self {
            Self::Utf8 => text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count(),
            Self::Ascii | Self::Unreadable => text.len(),
        }
    }
}

/// Returns the effects that the text may have on the session that runs it. Empty if it is certain that the text leaves
/// no trace.
pub fn scan(text: &[u8], dialect: Dialect, certificates: &Certificates) -> Effects {
    look(text, dialect, certificates, &mut ()).found
}

fn look(
    text: &[u8],
    dialect: Dialect,
    certificates: &Certificates,
    literals: &mut impl Literals,
) -> Look {
    if dialect == Dialect::Unreadable {
        return Look {
            found: reader::unreadable(text),
            by_literals: true,
        };
    }
    let utf8 = dialect == Dialect::Utf8 && certificates.is_utf8();
    reader::look(text, utf8, certificates, literals)
}
