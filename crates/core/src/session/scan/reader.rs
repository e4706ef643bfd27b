//! The scanner's reader. Words count wherever they stand, and the reader parses no grammar but the beginnings of
//! statements.

use super::ddl;
use crate::session::{
    certificates::Certificates,
    sql::{
        CHANGE, Effects, Key, Meaning, Name, NameEffects,
        lexer::{Kind, Lexer, Literals, Token},
        parameters::{self, NAME_MAX},
        words,
    },
};

/// The result of reading a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) found: Effects,
    /// Whether the same text with other numbers and strings could have another verdict.
    pub(super) by_literals: bool,
}

/// Reads a text. `utf8` means that the text writes names beyond ASCII as the catalog writes them. `literals` receives
/// its literals and comments.
pub(super) fn look(
    text: &[u8],
    utf8: bool,
    certificates: &Certificates,
    literals: &mut impl Literals,
) -> Look {
    let mut reader = Reader {
        lexer: Lexer::new(text),
        certificates,
        utf8,
        found: Effects::NONE,
        written: Effects::NONE,
        writes: false,
        by_literals: false,
        place: Place::Start,
        before: OTHER,
        verb_end: 0,
        statement: Statement::default(),
        unreadable: None,
    };
    reader.read(literals);
    let written = if reader.writes {
        reader.written
    } else {
        Effects::NONE
    };
    let found = reader.found | written | certificates.every_text();
    Look {
        found: match certificates.types_depend_on_path() {
            true => found,
            false => found.without(Effects::PATH),
        },
        by_literals: reader.by_literals,
    }
}

/// Returns the effects of a text that can't be cut into tokens, or that has code in a string. The text is opaque, but
/// does no DDL unless it contains a DDL keyword.
#[cold]
pub(super) fn unreadable(text: &[u8]) -> Effects {
    match ddl::may_change_catalog(text) {
        true => Effects::OPAQUE | Effects::TEMP,
        false => Effects::OPAQUE,
    }
}

/// The token that stands for all tokens without a meaning.
const OTHER: Token = Token {
    kind: Kind::Comma,
    start: 0,
    end: 0,
};

struct Reader<'a> {
    lexer: Lexer<'a>,
    certificates: &'a Certificates,
    utf8: bool,
    found: Effects,
    /// The effects that the names have if the text writes.
    written: Effects,
    /// Whether the text contains a verb that writes.
    writes: bool,
    by_literals: bool,
    place: Place,
    /// The token before. A comma stands for any token that was skipped.
    before: Token,
    /// The end of the last INSERT or MERGE that is a verb, and not a name.
    verb_end: usize,
    statement: Statement,
    /// The effects of a DO, if the text has one. They are computed once, from the whole text.
    unreadable: Option<Effects>,
}

/// The place of a token in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Only parentheses came before.
    Start,
    /// After EXPLAIN and its options.
    Explain,
    Within,
    /// The rest of a statement without expressions: SET, RESET, SHOW.
    Constants,
}

#[derive(Clone, Copy, Debug, Default)]
struct Statement {
    /// The word with which the statement begins, if that matters, and where the word ends.
    key: Option<(Key, usize)>,
    depth: u32,
    /// Whether a word that may be the statement's verb has occurred outside of parentheses.
    has_verb: bool,
    /// Whether the statement has a call of `set_config` whose arguments the scanner does not understand. Then the
    /// scanner does not read the statement again for its next call: the time would grow with the square of the number
    /// of calls.
    has_other_calls: bool,
}

impl Reader<'_> {
    fn read(&mut self, literals: &mut impl Literals) {
        loop {
            let (token, passed) = self.lexer.next_name(literals);
            if passed {
                self.other();
            }
            match token.kind {
                Kind::Word => self.word(token),
                Kind::Quoted => self.quoted(token),
                Kind::Open => self.open(),
                Kind::Close => self.statement.depth = self.statement.depth.wrapping_sub(1),
                Kind::Semicolon => {
                    self.place = Place::Start;
                    self.statement = Statement::default();
                }
                Kind::End => return,
                _ => {
                    self.found |= unreadable(self.lexer.text());
                    return;
                }
            }
            self.before = token;
        }
    }

    #[inline]
    fn other(&mut self) {
        self.before.kind = Kind::Comma;
        if matches!(self.place, Place::Start | Place::Explain) {
            self.not_a_statement();
        }
    }

    /// Notes the effects of a statement with an unknown beginning.
    #[cold]
    fn not_a_statement(&mut self) {
        self.found |= CHANGE;
        self.place = Place::Within;
    }

    #[inline]
    fn open(&mut self) {
        self.statement.depth = self.statement.depth.wrapping_add(1);
        if self.place == Place::Explain {
            self.skip_options();
        }
    }

    /// Skips the options of EXPLAIN, unless the parenthesis contains a query.
    fn skip_options(&mut self) {
        let mut ahead = self.lexer;
        let first = ahead.next();
        let key = self.key(first);
        if first.kind == Kind::Open || matches!(key, Some(Key::Select | Key::With)) {
            return;
        }
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::Close => break,
                Kind::Open | Kind::Semicolon | Kind::Broken | Kind::End => {
                    return self.not_a_statement();
                }
                _ => {}
            }
        }
        self.statement.depth = self.statement.depth.wrapping_sub(1);
    }

    fn key(&self, token: Token) -> Option<Key> {
        let Token { kind, start, end } = token;
        let text = self.lexer.text();
        let meaning = match kind {
            Kind::Word => words::meaning(Name::at(text, start, end), text, start, end),
            _ => None,
        };
        match meaning {
            Some(Meaning::Key(key)) => Some(key),
            _ => None,
        }
    }

    #[inline]
    fn word(&mut self, token: Token) {
        let text = self.lexer.text();
        let hash = Name::at(text, token.start, token.end);
        let name = &text[token.start..token.end];
        if self.place != Place::Within || words::may_mean(hash, name[0]) {
            return self.word_with_meaning(token, hash, name);
        }
        self.name(hash, name);
    }

    #[inline(never)]
    fn word_with_meaning(&mut self, token: Token, hash: Name, name: &[u8]) {
        if self.place == Place::Constants {
            return;
        }
        let meaning = words::meaning(hash, self.lexer.text(), token.start, token.end);
        if self.place == Place::Within {
            match meaning {
                None => {}
                Some(Meaning::Key(key)) => self.keyword(key, token),
                Some(Meaning::Name(read, write)) => self.known(read, write),
                Some(Meaning::SetConfig) => return self.set_config(),
            }
        } else {
            self.first(token, meaning);
        }
        self.name(hash, name);
    }

    fn quoted(&mut self, token: Token) {
        self.other();
        if self.place == Place::Constants {
            return;
        }
        let (start, end) = (token.start + 1, token.end - 1);
        let text = self.lexer.text();
        let hash = Name::at(text, start, end);
        match words::meaning(hash, text, start, end) {
            Some(Meaning::Name(read, write)) => self.known(read, write),
            Some(Meaning::SetConfig) => self.known(SETS, Effects::NONE),
            Some(Meaning::Key(_)) | None => {}
        }
        let name = &text[start..end];
        if name.contains(&b'"') {
            self.found |= Effects::OPAQUE;
        }
        self.name(hash, name);
    }

    /// Looks up an identifier, whatever its role in the statement: an object of the database may have the same name.
    #[inline]
    fn name(&mut self, hash: Name, name: &[u8]) {
        if name.len() > NAME_MAX || !self.utf8 && !name.is_ascii() {
            self.found |= Effects::OPAQUE;
        }
        let NameEffects { read, write } = self.certificates.word(hash);
        self.found |= read;
        self.written |= write;
    }

    #[cold]
    fn known(&mut self, read: Effects, write: Effects) {
        self.found |= read;
        self.written |= write;
    }

    /// Handles a key word within a statement.
    fn keyword(&mut self, key: Key, token: Token) {
        match key {
            Key::Insert | Key::Merge => {
                self.writes = true;
                if self.is_verb() {
                    self.verb_end = token.end;
                }
                self.may_be_verb();
            }
            // Locking rows fires no trigger. FOR is reserved, so it can't be a name.
            Key::Update if self.is_behind(b"for") => {}
            Key::Update | Key::Delete | Key::Truncate | Key::Copy => {
                self.writes = true;
                self.may_be_verb();
            }
            Key::Select => self.may_be_verb(),
            Key::Into if !self.is_behind_verb() => self.found |= CHANGE,
            Key::Execute => self.found |= Effects::EXECUTE | Effects::OPAQUE,
            Key::Hold if self.is_behind(b"with") => {
                self.found |= Effects::CURSOR | Effects::OPAQUE;
            }
            Key::Program if self.begins_with(Key::Copy) => self.found |= Effects::OPAQUE,
            _ => {}
        }
    }

    /// Returns whether the token before is this word, without quotes.
    fn is_behind(&self, word: &[u8]) -> bool {
        self.before.kind == Kind::Word && self.lexer.bytes(self.before).eq_ignore_ascii_case(word)
    }

    fn is_behind_verb(&self) -> bool {
        self.before.kind == Kind::Word && self.before.end == self.verb_end
    }

    fn begins_with(&self, key: Key) -> bool {
        self.statement.key.is_some_and(|(first, _)| first == key)
    }

    #[inline]
    fn may_be_verb(&mut self) {
        self.statement.has_verb |= self.statement.depth == 0;
    }

    /// Returns whether an INSERT or MERGE within a statement is a verb. Otherwise, it may be the alias before `SELECT
    /// .. INTO`, which makes a table. An INSERT or MERGE is a verb if it begins the body of a common table expression,
    /// or follows all common table expressions. In PREPARE there is no SELECT INTO.
    fn is_verb(&self) -> bool {
        match self.before.kind {
            Kind::Open => true,
            Kind::Close => {
                let at = &self.statement;
                at.depth == 0 && !at.has_verb && self.begins_with(Key::With)
            }
            _ => self.begins_with(Key::Prepare) && self.is_behind(b"as"),
        }
    }

    /// Handles a call of `set_config`, or an object named `set_config`.
    fn set_config(&mut self) {
        self.by_literals = true;
        let begin = match self.statement.key {
            Some((Key::Select, end))
                if self.place == Place::Within && !self.statement.has_other_calls =>
            {
                Lexer::at(self.lexer.text(), end)
            }
            _ => Lexer::at(b"", 0),
        };
        match parameters::set_config(begin) {
            Some((found, end)) if !self.certificates.redefines_set_config() => {
                self.found |= found;
                self.lexer = end;
            }
            _ => {
                self.statement.has_other_calls = true;
                self.known(SETS, Effects::NONE);
            }
        }
    }
}

/// The effects of a call of `set_config` whose arguments the scanner does not understand.
const SETS: Effects = Effects::SETTING.and(Effects::OPAQUE).and(Effects::PATH);

/// The words with which a statement begins.
impl Reader<'_> {
    #[inline]
    fn first(&mut self, token: Token, meaning: Option<Meaning>) {
        let key = match meaning {
            Some(Meaning::Key(key)) => key,
            Some(Meaning::Name(read, write)) => {
                self.known(read, write);
                return self.not_a_statement();
            }
            _ => return self.not_a_statement(),
        };
        let is_explained = self.place == Place::Explain;
        if is_explained && key == Key::Analyze {
            return;
        }
        self.place = Place::Within;
        self.statement.key = (!is_explained).then_some((key, token.end));
        match key {
            Key::Select => self.may_be_verb(),
            Key::With if is_explained => self.statement.key = Some((key, token.end)),
            Key::With => {}
            Key::Insert | Key::Merge => {
                self.writes = true;
                self.verb_end = token.end;
                self.may_be_verb();
            }
            Key::Update | Key::Delete | Key::Truncate | Key::Copy => {
                self.writes = true;
                self.may_be_verb();
            }
            _ => self.command(key),
        }
    }

    /// Handles a statement that is not a query.
    fn command(&mut self, key: Key) {
        let found = match key {
            Key::Begin | Key::Fetch | Key::Lock | Key::Declare => Effects::NONE,
            Key::Show => self.constants(Effects::NONE),
            Key::Set | Key::Reset => self.constants(parameters::set(self.lexer, key == Key::Reset)),
            Key::Commit if self.follows(b"prepared") => CHANGE,
            Key::Commit => Effects::NONE,
            Key::Rollback if !self.is_to_savepoint() => Effects::NONE,
            Key::Rollback | Key::Savepoint => Effects::SAVEPOINT,
            Key::Explain => {
                self.place = Place::Explain;
                Effects::NONE
            }
            Key::Listen => Effects::LISTEN,
            Key::Discard => Effects::DISCARD | Effects::PATH,
            Key::Deallocate => Effects::PREPARE,
            Key::Prepare if self.is_prepare_transaction() => Effects::NONE,
            Key::Prepare => Effects::PREPARE,
            Key::Execute => Effects::EXECUTE,
            Key::Close => Effects::CURSOR,
            Key::Load => Effects::LIBRARY,
            Key::Do => {
                let text = self.lexer.text();
                *self.unreadable.get_or_insert_with(|| unreadable(text))
            }
            Key::Call => Effects::OPAQUE,
            _ => CHANGE,
        };
        self.found |= found;
    }

    /// Notes that only constants follow, up to the end of the statement.
    fn constants(&mut self, found: Effects) -> Effects {
        self.place = Place::Constants;
        found
    }

    fn follows(&self, word: &[u8]) -> bool {
        let next = self.lexer.peek();
        next.kind == Kind::Word && self.lexer.bytes(next).eq_ignore_ascii_case(word)
    }

    /// Returns whether this is `ROLLBACK [WORK | TRANSACTION] TO`.
    fn is_to_savepoint(&self) -> bool {
        let mut ahead = self.lexer;
        for _ in 0..2 {
            let token = ahead.next();
            if token.kind == Kind::Word && ahead.bytes(token).eq_ignore_ascii_case(b"to") {
                return true;
            }
        }
        false
    }

    /// Returns whether this is `PREPARE TRANSACTION 'id'`; a prepared statement may also be named so.
    fn is_prepare_transaction(&self) -> bool {
        let mut ahead = self.lexer;
        self.follows(b"transaction")
            && ahead.next().kind == Kind::Word
            && matches!(ahead.next().kind, Kind::Text | Kind::OtherText)
    }
}
