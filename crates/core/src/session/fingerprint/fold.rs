//! Parts of statements that count as values although they are not literals: long lists of constants, the value of SET,
//! and names that clients make up for each use, such as those of savepoints and cursors.

use super::{
    super::{
        sql::{Kind, Lexer},
        word_list::{is_any, words},
    },
    has_uncertain_end,
};

/// Key words that an operand may follow. A sign after one of them belongs to a number.
const KEY_WORDS: [&str; 31] = words(
    "all and any array as between by case default distinct else from ilike in is like limit not offset on or returning \
     row select set then to using values when where",
);
/// Statements that consist of key words and a name: their first words, and the other key words.
const NAMING: [(&str, &[&str]); 7] = [
    ("savepoint", &[]),
    ("release", &["savepoint"]),
    ("rollback", &ROLLBACK),
    ("deallocate", &["prepare", "all"]),
    ("close", &["all"]),
    ("fetch", &DIRECTIONS),
    ("move", &DIRECTIONS),
];
const ROLLBACK: [&str; 8] = words("work transaction to savepoint and chain no prepared");
const DIRECTIONS: [&str; 11] =
    words("next prior first last absolute relative all forward backward from in");
/// Objects whose ALTER may set parameters.
const ALTERED: [&str; 5] = words("database role system user group");

/// Returns whether an operand may follow this word.
pub(super) fn is_kept(word: &[u8]) -> bool {
    is_any(word, &KEY_WORDS)
}

fn is(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

/// The statement that is being read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Fold {
    /// The number of words, names and signs so far.
    count: u32,
    kind: Statement,
    last: Last,
    /// The number of open parentheses.
    depth: u32,
    /// The number of parentheses around the rows of VALUES.
    rows_at: Option<u32>,
    /// Whether the `?` for the value of SET was added.
    has_value: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Statement {
    #[default]
    Other,
    /// The other key words of a statement of [`NAMING`].
    Naming(&'static [&'static str]),
    /// DECLARE, whose second word is a name.
    Declare,
    /// ALTER of an object whose parameters it may set.
    Alter,
    /// SET of a parameter, before its value.
    Set,
    /// The value of a parameter: everything up to the end of the statement.
    Value,
}

/// The kind of the last token.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    In,
    Array,
    Values,
}

impl Fold {
    /// Returns whether the value of a parameter is being read.
    pub(super) fn is_in_value(&self) -> bool {
        self.kind == Statement::Value
    }

    /// Returns whether a literal is shown. The value of a parameter is shown once, however many tokens it has.
    pub(super) fn takes_value(&mut self) -> bool {
        self.last = Last::Other;
        self.count += 1;
        !(self.is_in_value() && std::mem::replace(&mut self.has_value, true))
    }

    /// Notes a word, or a quoted name (`None`). Returns whether it is a name that counts as a value.
    pub(super) fn is_name(&mut self, word: Option<&[u8]>) -> bool {
        let is_word = |known: &str| word.is_some_and(|word| is(word, known));
        let at = self.count;
        self.count += 1;
        self.last = match word {
            Some(_) if is_word("in") => Last::In,
            Some(_) if is_word("array") => Last::Array,
            Some(_) if is_word("values") => Last::Values,
            _ => Last::Other,
        };
        match self.kind {
            Statement::Naming(kept) => return !kept.iter().any(|kept| is_word(kept)),
            Statement::Declare => return at == 1,
            Statement::Set if is_word("to") => self.kind = Statement::Value,
            Statement::Alter if is_word("set") => self.kind = Statement::Set,
            Statement::Alter if at == 1 && !ALTERED.iter().any(|object| is_word(object)) => {
                self.kind = Statement::Other;
            }
            Statement::Other if at == 0 => self.kind = Statement::of(word.unwrap_or_default()),
            _ => {}
        }
        false
    }

    /// Notes a sign.
    pub(super) fn note_sign(&mut self, is_equals: bool) {
        self.count += 1;
        if is_equals && self.kind == Statement::Set {
            self.kind = Statement::Value;
        }
    }

    /// Notes an opening sign. If a list of constants may begin here, returns how it ends.
    pub(super) fn opens_list(&mut self, kind: Kind) -> Option<Kind> {
        let last = std::mem::take(&mut self.last);
        if kind == Kind::Open {
            self.depth += 1;
        }
        match (last, kind) {
            (Last::In, Kind::Open) => Some(Kind::Close),
            (Last::Array, Kind::Other(b'[')) => Some(Kind::Other(b']')),
            (Last::Values, Kind::Open) => {
                self.rows_at = Some(self.depth);
                None
            }
            _ => None,
        }
    }

    /// Notes a closing sign. Returns whether it ends the first row of VALUES.
    pub(super) fn closes_row(&mut self, kind: Kind) -> bool {
        if kind != Kind::Close {
            return false;
        }
        let is_row = self.rows_at == Some(self.depth);
        self.depth = self.depth.saturating_sub(1);
        if is_row {
            self.rows_at = None;
        }
        is_row
    }
}

impl Statement {
    fn of(first: &[u8]) -> Self {
        if let Some((_, kept)) = NAMING.iter().find(|(verb, _)| is(first, verb)) {
            return Self::Naming(kept);
        }
        match first {
            _ if is(first, "declare") => Self::Declare,
            _ if is(first, "alter") => Self::Alter,
            _ if is(first, "set") => Self::Set,
            _ => Self::Other,
        }
    }
}

/// Skips a list of at least two constants, whose opening sign was read. Returns the lexer before the closing sign, or
/// `None` if there is no such list.
pub(super) fn skip_list(lexer: Lexer<'_>, close: Kind, is_uncertain: bool) -> Option<Lexer<'_>> {
    let (count, before_close, _) = constants(lexer, close, is_uncertain)?;
    (count > 1).then_some(before_close)
}

/// Skips further rows of constants of VALUES, or returns `None` if there are none.
pub(super) fn skip_rows(mut lexer: Lexer<'_>, is_uncertain: bool) -> Option<Lexer<'_>> {
    let mut has_more = false;
    loop {
        let mut ahead = lexer;
        if ahead.next().kind != Kind::Comma || ahead.next().kind != Kind::Open {
            break;
        }
        let Some((_, _, behind)) = constants(ahead, Kind::Close, is_uncertain) else {
            break;
        };
        (lexer, has_more) = (behind, true);
    }
    has_more.then_some(lexer)
}

/// Reads constants that are separated by commas. Returns their number, the lexer before the closing sign, and the lexer
/// after it. The end of the text closes the list, too.
fn constants(
    mut lexer: Lexer<'_>,
    close: Kind,
    is_uncertain: bool,
) -> Option<(usize, Lexer<'_>, Lexer<'_>)> {
    let mut count = 0;
    loop {
        let has_some = count > 0;
        let ends = |kind| has_some && matches!(kind, Kind::End | Kind::Broken);
        let mut token = lexer.next();
        if matches!(token.kind, Kind::Other(b'-' | b'+')) {
            token = lexer.next();
        }
        match token.kind {
            Kind::Number | Kind::Parameter => {}
            Kind::Text | Kind::OtherText => {
                if is_uncertain && has_uncertain_end(lexer.bytes(token)) {
                    return None;
                }
                while matches!(lexer.peek().kind, Kind::Text) {
                    token = lexer.next();
                    if is_uncertain && has_uncertain_end(lexer.bytes(token)) {
                        return None;
                    }
                }
            }
            Kind::Word if is_constant(lexer.bytes(token)) => {}
            kind if ends(kind) => return Some((count, lexer, lexer)),
            _ => return None,
        }
        count += 1;
        skip_cast(&mut lexer);
        let before = lexer;
        let token = lexer.next();
        match token.kind {
            Kind::Comma => {}
            kind if kind == close => return Some((count, before, lexer)),
            kind if ends(kind) => return Some((count, lexer, lexer)),
            _ => return None,
        }
    }
}

fn is_constant(word: &[u8]) -> bool {
    is_any(word, &["null", "true", "false", "default"])
}

/// Skips `::type` after a constant.
fn skip_cast(lexer: &mut Lexer<'_>) {
    let mut ahead = *lexer;
    let is_cast = ahead.next().kind == Kind::Other(b':') && ahead.next().kind == Kind::Other(b':');
    if is_cast && matches!(ahead.next().kind, Kind::Word | Kind::Quoted) {
        *lexer = ahead;
    }
}
