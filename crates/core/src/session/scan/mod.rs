//! What a text of SQL may do to its session, without asking the server.
//!
//! Reading is cheap: one pass, nothing allocated. It knows no catalog but what the certificates
//! say, and no setting but what [`Dialect`] says.

mod blocks;
mod careful;
mod ctes;
mod first;
mod keyword;
mod lexer;
mod phrase;
pub(super) mod pieces;
mod quick;
mod quick_words;
mod set;
mod suspicion;
mod template;
mod tripwire;
mod verdict_cache;
#[cfg(test)]
mod verdicts;

pub use phrase::{CustomNames, Discard, Phrase, Phrases, custom_names, phrases, statements};
pub use suspicion::Suspicion;
pub use verdict_cache::VerdictCache;

use super::certificates::Certificates;

/// How bytes make up a text, by the settings of the session that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Names beyond ASCII are written as the catalog writes them.
    Utf8,
    /// ASCII means itself; names beyond it can't be compared.
    Ascii,
    /// A quote or a backslash may not be one: nothing can be said of a text.
    #[default]
    Unreadable,
}

impl Dialect {
    /// By the values of `standard_conforming_strings` and `client_encoding`, as the server reports
    /// them. Names beyond ASCII also need a database in UTF8, which the certificates know.
    #[must_use]
    pub fn of(standard_conforming_strings: &[u8], client_encoding: &[u8]) -> Self {
        if standard_conforming_strings != b"on" {
            return Self::Unreadable;
        }
        match client_encoding {
            b"UTF8" => Self::Utf8,
            b"BIG5" | b"GBK" | b"GB18030" | b"UHC" | b"JOHAB" | b"SJIS" | b"SHIFT_JIS_2004" => {
                Self::Unreadable
            }
            _ => Self::Ascii,
        }
    }

    /// How many characters a text has, by which errors tell their position.
    #[must_use]
    pub fn chars(self, text: &[u8]) -> usize {
        match self {
            Self::Utf8 => text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count(),
            Self::Ascii | Self::Unreadable => text.len(),
        }
    }
}

/// What the text may leave behind in the session that runs it. Nothing, if it is certain that it
/// leaves no trace.
pub fn scan(text: &[u8], dialect: Dialect, certificates: &Certificates) -> Suspicion {
    look(text, dialect, certificates).found
}

/// What was found of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    found: Suspicion,
    /// The same text with other numbers and strings in it might have another verdict.
    by_literals: bool,
}

fn look(text: &[u8], dialect: Dialect, certificates: &Certificates) -> Look {
    if dialect == Dialect::Unreadable {
        return Look {
            found: Suspicion::OPAQUE,
            by_literals: true,
        };
    }
    let utf8 = dialect == Dialect::Utf8 && certificates.is_utf8();
    // The quick reading looks into no literal.
    let quick = quick::read(text, utf8, certificates).map(|found| Look {
        found,
        by_literals: false,
    });
    debug_assert!(
        quick.is_none_or(|quick| quick == careful::look(text, utf8, certificates)),
        "the quick reading takes a text for what it is not: {}",
        text.escape_ascii()
    );
    let mut seen = quick.unwrap_or_else(|| careful::look(text, utf8, certificates));
    seen.found |= certificates.every_text();
    if certificates.has_tripwires() {
        seen.found |= tripwire::look(text, certificates);
        seen.by_literals = true;
    }
    seen
}
