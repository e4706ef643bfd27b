//! The fingerprint of a statement: the statement without its values, as operators see it.

mod fold;
#[cfg(test)]
mod tests;

use std::fmt;

use self::fold::{Fold, is_kept, skip_list, skip_rows};
use super::sql::{Dialect, Kind, Lexer};

/// The bytes of the text that are kept.
const TEXT_MAX: usize = 512;
/// The end of a normalized text whose rest was not read.
const REST: &str = " ...";

/// A statement, identified by a hash of its text without literals and comments. Texts have the same fingerprint if they
/// differ only in literals, comments, blanks, the case of words that are not quoted, or the length of a list of
/// constants (`IN (1, 2)`, `ARRAY[1, 2]`, the rows of `VALUES`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// FNV-1a of the tokens, up to the 65,536th byte of the statement.
    pub hash: u64,
    /// The beginning of the text as it was written, with `?` for literals, and ` ...` for a rest that was not read.
    pub text: Box<str>,
}

impl Fingerprint {
    /// The bytes of SQL that are read. Longer statements mostly consist of a list of values, which is folded.
    pub const READ_MAX: usize = 64 * 1024;

    /// Makes the fingerprint of a text of one or more statements, when the server's dialect is unknown. The part of the
    /// text after a literal whose end is not certain is neither shown nor hashed.
    #[must_use]
    pub fn of(sql: &[u8]) -> Self {
        Self::read(sql, Dialect::Unreadable)
    }

    /// Makes the fingerprint of a text that the server reads in this dialect.
    #[must_use]
    pub fn read(sql: &[u8], dialect: Dialect) -> Self {
        let normal = Reader::new(sql, dialect, TEXT_MAX).run();
        let text = String::from_utf8_lossy(&normal.text);
        // The text may end within a character.
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        Self {
            hash: normal.hash,
            text: text.into(),
        }
    }

    /// Makes the fingerprint of a text that servers may read in any dialect. Dialects differ only in the meaning of a
    /// backslash.
    #[must_use]
    pub fn of_any(sql: &[u8]) -> Self {
        Self::read(sql, Self::common_dialect(sql))
    }

    /// Returns a dialect in which the text has the tokens that it has in any dialect, up to a literal whose end is not
    /// certain.
    #[must_use]
    pub fn common_dialect(sql: &[u8]) -> Dialect {
        match sql.contains(&b'\\') {
            true => Dialect::Unreadable,
            false => Dialect::Utf8,
        }
    }

    /// Returns whether a normalized text shows all words of its statement.
    #[must_use]
    pub fn shows_all(text: &str) -> bool {
        /// The bytes of the longest character, of which a part may have been cut off.
        const CHARACTER_MAX: usize = 4;
        // If the rest of a list was not read, there is a comma before the dots.
        let is_cut = text.strip_suffix(REST);
        text.len() < TEXT_MAX - CHARACTER_MAX && is_cut.is_none_or(|before| before.ends_with(','))
    }

    /// Returns the hash of [`Fingerprint::read`] without making the text.
    #[must_use]
    pub fn hash_of(sql: &[u8], dialect: Dialect) -> u64 {
        Reader::new(sql, dialect, 0).run().hash
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}

/// Returns whether the end of this string depends on settings. `standard_conforming_strings` decides whether a
/// backslash is an escape in plain strings. In some encodings, a byte that looks like a backslash is a part of another
/// character.
fn has_uncertain_end(bytes: &[u8]) -> bool {
    match bytes.first() {
        Some(b'$') => false,
        Some(b'e' | b'E') => bytes.contains(&b'\\') && !bytes.is_ascii(),
        _ => bytes
            .windows(2)
            .any(|pair| matches!(pair, b"\\'" | b"\\\\")),
    }
}

/// The normalized text so far.
struct Normal {
    hash: u64,
    text: Vec<u8>,
    most: usize,
}

impl Normal {
    /// Adds a token. `is_apart` means that there is white space before the token.
    fn push(&mut self, bytes: &[u8], is_apart: bool) {
        self.hash_byte(0);
        for byte in bytes {
            self.hash_byte(*byte);
        }
        self.show(bytes, is_apart);
    }

    /// Adds a word, whose case makes no difference.
    fn push_word(&mut self, bytes: &[u8], is_apart: bool) {
        self.hash_byte(0);
        for byte in bytes {
            self.hash_byte(byte.to_ascii_lowercase());
        }
        self.show(bytes, is_apart);
    }

    fn hash_byte(&mut self, byte: u8) {
        self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    fn show(&mut self, bytes: &[u8], is_apart: bool) {
        let is_apart = is_apart && !self.text.is_empty();
        for &byte in is_apart.then_some(&b' ').into_iter().chain(bytes) {
            if self.text.len() < self.most {
                self.text.push(byte);
            }
        }
    }
}

/// Reads a text token by token.
struct Reader<'a> {
    lexer: Lexer<'a>,
    normal: Normal,
    /// Whether a string with a backslash may end elsewhere.
    is_uncertain: bool,
    /// Whether the rest of the statement is not read.
    is_cut: bool,
    /// The end of the previous token.
    end: usize,
    /// Whether the previous token ends an operand. Then a sign that follows is an operator.
    follows_operand: bool,
    /// Whether the previous token was a string: one in the next line continues it.
    follows_string: bool,
    fold: Fold,
}

impl<'a> Reader<'a> {
    fn new(sql: &'a [u8], dialect: Dialect, most: usize) -> Self {
        Self {
            lexer: Lexer::new(&sql[..sql.len().min(Fingerprint::READ_MAX)]),
            normal: Normal {
                hash: 0xcbf2_9ce4_8422_2325,
                text: Vec::new(),
                most,
            },
            is_uncertain: dialect == Dialect::Unreadable,
            is_cut: sql.len() >= Fingerprint::READ_MAX,
            end: 0,
            follows_operand: false,
            follows_string: false,
            fold: Fold::default(),
        }
    }

    fn run(mut self) -> Normal {
        while self.step() {}
        if self.is_cut {
            self.normal.show(REST.trim_start().as_bytes(), true);
        }
        self.normal
    }

    /// Reads the next token. Returns `false` at the end of what can be read.
    fn step(&mut self) -> bool {
        let token = self.lexer.next();
        let is_apart = token.start > self.end;
        let bytes = self.lexer.bytes(token);
        let before = std::mem::replace(&mut self.end, token.end);
        let follows_string = std::mem::take(&mut self.follows_string);
        match token.kind {
            Kind::End => return false,
            Kind::Broken => {
                if !follows_string && !self.fold.is_in_value() {
                    self.normal.push(b"?", is_apart);
                }
                self.is_cut = true;
                return false;
            }
            Kind::Text | Kind::OtherText | Kind::Number => {
                let is_string = token.kind != Kind::Number;
                if !(follows_string && is_string) {
                    self.push_literal(is_apart);
                }
                self.follows_string = is_string;
                let has_end = !(is_string && self.is_uncertain && has_uncertain_end(bytes));
                self.is_cut |= !has_end;
                return has_end;
            }
            Kind::Word | Kind::Quoted => self.push_name(token.kind, bytes, is_apart),
            Kind::Other(b'-' | b'+') if self.is_sign() => {
                if is_apart {
                    // The number takes the sign's place.
                    self.end = before;
                }
            }
            Kind::Semicolon => {
                self.push_other(bytes, is_apart, false);
                self.fold = Fold::default();
            }
            kind => self.push_sign(kind, bytes, is_apart),
        }
        true
    }

    fn push_literal(&mut self, is_apart: bool) {
        self.follows_operand = true;
        if self.fold.takes_value() {
            self.normal.push(b"?", is_apart);
        }
    }

    fn push_name(&mut self, kind: Kind, bytes: &[u8], is_apart: bool) {
        let is_word = kind == Kind::Word;
        if self.fold.is_in_value() || self.fold.is_name(is_word.then_some(bytes)) {
            return self.push_literal(is_apart);
        }
        // A key word that is followed by an operand is no operand.
        self.follows_operand = !(is_word && is_kept(bytes));
        match is_word {
            true => self.normal.push_word(bytes, is_apart),
            false => self.normal.push(bytes, is_apart),
        }
    }

    /// Returns whether a sign belongs to the number that follows.
    fn is_sign(&self) -> bool {
        !self.follows_operand && self.lexer.peek().kind == Kind::Number
    }

    /// Adds a parenthesis, an operator or a parameter.
    fn push_sign(&mut self, kind: Kind, bytes: &[u8], is_apart: bool) {
        if self.fold.is_in_value() {
            return self.push_literal(is_apart);
        }
        let is_operand = matches!(kind, Kind::Parameter | Kind::Close | Kind::Other(b']'));
        self.push_other(bytes, is_apart, is_operand);
        let opens_list = self.fold.opens_list(kind);
        if let Some(close) = opens_list
            && let Some(behind) = skip_list(self.lexer, close, self.is_uncertain)
        {
            self.normal.push(b"?, ...", false);
            self.lexer = behind;
            self.end = behind.position();
        }
        if self.fold.closes_row(kind)
            && let Some(behind) = skip_rows(self.lexer, self.is_uncertain)
        {
            self.normal.push(b", ...", false);
            self.lexer = behind;
            self.end = behind.position();
        }
    }

    fn push_other(&mut self, bytes: &[u8], is_apart: bool, is_operand: bool) {
        self.follows_operand = is_operand;
        self.normal.push(bytes, is_apart);
        let is_equals = bytes == b"=";
        self.fold.note_sign(is_equals);
    }
}
