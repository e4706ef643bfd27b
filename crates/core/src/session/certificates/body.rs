//! Scans the bodies of SQL and PL/pgSQL functions for the effects of a call.
//!
//! The scanner knows no grammar. Each word counts wherever it stands, so a body that only names a function has that
//! function's effects. At each place where a statement may begin, there must be a word of a closed list. The scanner
//! takes more places for beginnings than PostgreSQL does (also THEN and ELSE of an expression), never fewer. A body
//! that the scanner does not understand counts as opaque code that may do DDL.

use crate::session::{
    sql::{
        CHANGE, Effects, NAME_MAX, affects_compilation, builtin_effects, is_parameter_name,
        pieces::{BEFORE_KIND, Piece, last_argument_is_true, pieces, writes_to_catalogs},
        shapes_plans,
    },
    word_list::{begins, is_any, words},
};

/// Any effect, DDL included.
pub(super) const ANYTHING: Effects = CHANGE.and(Effects::UNREAD);
/// Any effect, also on how PL/pgSQL compiles functions for the rest of the session.
pub(super) const COMPILES: Effects = ANYTHING.and(Effects::LIBRARY);

/// Statements of a body that have no effects by themselves. The words in them are inspected.
const STATEMENTS: [&str; 8] = words("select insert update delete merge values with table");
/// Statements of PL/pgSQL that do not change how the following words are read.
const PLPGSQL: [&str; 25] = words(
    "if elsif elseif case when while for foreach exit continue return raise assert perform null \
     get open fetch move close end exception notify lock truncate",
);
/// Words that begin statements of PostgreSQL 14 to 19 and are on neither list.
const OTHER_STATEMENTS: [&str; 42] = words(
    "abort alter analyse analyze call checkpoint cluster comment commit copy create deallocate \
     discard do drop execute explain grant import listen load prepare reassign refresh reindex \
     release repack reset revoke rollback savepoint security set show start unlisten vacuum wait \
     declare into using property",
);
/// Statements of [`OTHER_STATEMENTS`] that run no code except the functions and relations that their words name.
const READ_STATEMENTS: [&str; 24] = words(
    "alter analyse analyze call checkpoint cluster comment commit copy deallocate discard drop \
     grant listen refresh reindex reset revoke rollback set unlisten vacuum into pg_temp",
);
/// Kinds of objects whose CREATE runs no code except the functions and relations that its words name.
const READ_KINDS: [&str; 5] = words("table view sequence index materialized");
/// Parameters that decide which objects names mean.
const OF_NAMES: [&str; 3] = words("search_path role session_authorization");
/// Words that may follow a word that begins an expression after THEN or ELSE.
const OPERATOR_WORDS: [&str; 9] = words("else when end and or is in not like");
/// Words that may follow the table's name in INSERT, and never do in SELECT INTO.
const BEHIND_INSERT: [&str; 7] = words("values select with table default overriding as");
/// Words that SELECT INTO allows between INTO and the table's name.
const BEFORE_NEW_TABLE: [&str; 6] = words("temp temporary local global unlogged table");
/// Parameters that a body must not set even for its transaction: they change how the next text is read, or a rollback
/// does not undo their effect.
const HARMFUL_PARAMETERS: [&str; 8] = words(
    "seed standard_conforming_strings client_encoding backslash_quote role session_authorization \
     transaction session",
);

/// The largest number of pieces among which the end of a call of `set_config` is searched. The limit bounds the time
/// for a body with many unfinished calls.
const VALUE_PIECES_MAX: usize = 200;

/// The language of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Sql,
    PlPgSql,
}

/// The effects of a body by itself, without the effects of the functions and relations that it names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) found: Effects,
    /// The first reason for the effects, as shown to administrators.
    pub(super) reason: Option<String>,
}

/// Receives the words of a body.
pub(super) trait Listener {
    /// Receives a word or quoted identifier, and returns the effects of PostgreSQL's own function of that name.
    fn name(&mut self, name: &[u8]) -> Effects;
    /// Receives the whole body.
    fn pieces(&mut self, _: &[Piece<'_>]) {}
    /// Receives the name of a custom parameter in the body.
    fn custom(&mut self, name: &[u8]);
}

/// Scans a body. `utf8` says whether names beyond ASCII are written as in the catalog.
pub(super) fn read(
    source: &[u8],
    language: Language,
    utf8: bool,
    listener: &mut impl Listener,
) -> Verdict {
    let pieces: Vec<_> = pieces(source).collect();
    let mut reader = Reader {
        pieces: &pieces,
        verdict: Verdict::default(),
    };
    reader.words(utf8, listener);
    listener.pieces(reader.pieces);
    match language {
        Language::Sql => reader.sql_statements(),
        Language::PlPgSql => reader.plpgsql_statements(),
    }
    reader.verdict
}

/// Returns the effects of a block of PL/pgSQL (DO) by itself, without those of users' functions and relations.
pub(in crate::session) fn block_effects(source: &[u8], utf8: bool) -> Effects {
    struct OwnNames;
    impl Listener for OwnNames {
        fn name(&mut self, name: &[u8]) -> Effects {
            let builtin = builtin_effects(name).unwrap_or_default();
            builtin.read | builtin.write
        }
        fn custom(&mut self, _: &[u8]) {}
    }
    read(source, Language::PlPgSql, utf8, &mut OwnNames).found
}

/// Returns whether a function may set this parameter for its transaction, or while it runs. A statement that is
/// prepared under the parameter, or planned in a called function, must not be analysed under unknown settings.
pub(super) fn is_harmless_parameter(name: &[u8]) -> bool {
    is_parameter_name(name)
        && !is_any(name, &HARMFUL_PARAMETERS)
        && !shapes_plans(name)
        && !affects_compilation(name)
}

/// Returns whether `name` is the name of a custom parameter.
pub(super) fn is_custom_name(name: &[u8]) -> bool {
    name.contains(&b'.') && is_parameter_name(name)
}

struct Reader<'p> {
    pieces: &'p [Piece<'p>],
    verdict: Verdict,
}

/// Whether a statement may begin at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    No,
    /// A statement or an expression begins.
    Maybe,
    /// A statement begins.
    Yes,
}

impl<'p> Reader<'p> {
    fn at(&self, at: usize) -> Option<Piece<'p>> {
        self.pieces.get(at).copied()
    }

    fn is_symbol(&self, at: usize, symbol: u8) -> bool {
        self.at(at) == Some(Piece::Symbol(symbol))
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        self.at(at).is_some_and(|piece| piece.is(word))
    }

    fn add(&mut self, found: Effects, reason: impl FnOnce() -> String) {
        if !found.is_empty() && self.verdict.reason.is_none() {
            self.verdict.reason = Some(reason());
        }
        self.verdict.found |= found;
    }

    fn doubt(&mut self, at: usize, word: &[u8]) {
        let is = |list: &[&str]| is_any(word, list);
        let found = if is(&["load"]) {
            // A library stays until the end of the session.
            ANYTHING | Effects::LIBRARY
        } else if is(&["set"]) && (1..3).any(|next| self.is_word(at + next, "plpgsql")) {
            COMPILES
        } else if is(&["set", "reset", "discard"]) {
            CHANGE | Effects::PATH
        } else if is(&READ_STATEMENTS) || begins(word, "pg_temp") || self.is_read_create(at) {
            CHANGE
        } else {
            ANYTHING
        };
        self.add(found, || {
            format!(
                "{} in its body",
                String::from_utf8_lossy(word).to_uppercase()
            )
        });
    }

    /// Returns whether CREATE of a table or the like stands here.
    fn is_read_create(&self, at: usize) -> bool {
        let mut kinds = self.pieces[at..].iter().skip(1);
        let is = |piece: &Piece<'_>, list: &[&str]| list.iter().any(|word| piece.is(word));
        let kind = kinds.find(|piece| !is(piece, &BEFORE_KIND));
        self.is_word(at, "create") && kind.is_some_and(|kind| is(kind, &READ_KINDS))
    }

    fn words(&mut self, utf8: bool, listener: &mut impl Listener) {
        for at in 0..self.pieces.len() {
            match self.pieces[at] {
                Piece::Word(word) => self.word(at, word, utf8, listener),
                Piece::Quoted(name) if name.contains(&b'"') => self.unread(),
                Piece::Quoted(name) => self.word(at, name, utf8, listener),
                // Where a quote follows a backslash, the end of the string depends on `standard_conforming_strings`.
                Piece::Text(text) if text.ends_with(b"\\") || has_escaped_quote(text) => {
                    self.unread()
                }
                Piece::Broken => self.unread(),
                _ => {}
            }
        }
        if writes_to_catalogs(self.pieces) {
            self.add(ANYTHING, || "it may write to a system catalog".to_owned());
        }
    }

    fn unread(&mut self) {
        self.add(ANYTHING, || "its body is not understood".to_owned());
    }

    fn word(&mut self, at: usize, word: &'p [u8], utf8: bool, listener: &mut impl Listener) {
        if word.len() > NAME_MAX || !(utf8 || word.is_ascii()) {
            return self.unread();
        }
        if begins(word, "pg_temp") || word.eq_ignore_ascii_case(b"execute") {
            self.doubt(at, word);
        }
        if word.eq_ignore_ascii_case(b"into") && self.is_alias_before_into(at) {
            self.doubt(at, word);
        }
        if let Some(name) = self.parameter_of_call(at, word) {
            if affects_compilation(name) && word.eq_ignore_ascii_case(b"set_config") {
                self.add(COMPILES, || "it sets a parameter of PL/pgSQL".to_owned());
            }
            listener.custom(name);
        }
        if self.may_set_path(at, word) {
            self.verdict.found |= Effects::PATH;
        }
        let found = listener.name(word);
        if !found.is_empty() && !self.sets_within_transaction(at, word) {
            let found = match self.computes_name(at, word) {
                true => found | Effects::COMPUTED_NAME,
                false => found,
            };
            self.add(super::opaque_unless_plain(found), || {
                format!("it calls {}", String::from_utf8_lossy(word))
            });
        }
    }

    /// Returns whether INSERT or MERGE before the INTO at `at` is a column's name (`SELECT 1 AS insert INTO TEMP t`).
    /// The word after the table's name decides, except after words that SELECT INTO allows before that name.
    fn is_alias_before_into(&self, at: usize) -> bool {
        let is_before = |word| at > 0 && self.is_word(at - 1, word);
        let mut end = at + 2;
        while self.is_symbol(end, b'.') {
            end += 2;
        }
        let follows = |words: &[&str], end| words.iter().any(|word| self.is_word(end, word));
        let is_verb = if is_before("insert") {
            self.is_symbol(end, b'(') || follows(&BEHIND_INSERT, end)
        } else if is_before("merge") {
            follows(&["as", "using"], end) || self.is_word(end + 1, "using")
        } else {
            return false;
        };
        !is_verb || follows(&BEFORE_NEW_TABLE, at + 1)
    }

    /// Returns the custom parameter in a call of `set_config` or `current_setting`.
    fn parameter_of_call(&self, at: usize, word: &[u8]) -> Option<&'p [u8]> {
        if !is_any(word, &["set_config", "current_setting"]) || !self.is_symbol(at + 1, b'(') {
            return None;
        }
        let name = match self.at(at + 2)? {
            Piece::Text(name) => name,
            Piece::Value(value) => value.strip_prefix(b"$$")?.strip_suffix(b"$$")?,
            _ => return None,
        };
        is_custom_name(name).then_some(name)
    }

    /// Returns whether this word may set `search_path` or a role, if only until the end of the transaction.
    fn may_set_path(&self, at: usize, word: &[u8]) -> bool {
        let next = |back| self.at(at + back);
        if word.eq_ignore_ascii_case(b"set_config") {
            return match next(2) {
                Some(Piece::Text(name)) => !is_parameter_name(name) || is_any(name, &OF_NAMES),
                _ => self.parameter_of_call(at, word).is_none(),
            };
        }
        is_any(word, &["pg_settings"])
            || self.is_word(at, "local")
                && matches!(next(1), Some(Piece::Word(name)) if is_any(name, &OF_NAMES))
    }

    /// Returns whether this is a call of `set_config` for longer than the transaction, with a name that is not a plain
    /// string.
    fn computes_name(&self, at: usize, word: &[u8]) -> bool {
        let arguments = self.pieces.get(at + 2..).unwrap_or_default();
        word.eq_ignore_ascii_case(b"set_config")
            && !matches!(arguments, [Piece::Text(_), Piece::Symbol(b','), ..])
            && self.parameter_of_call(at, word).is_none()
            && !last_argument_is_true(arguments, VALUE_PIECES_MAX)
    }

    /// Returns whether the call is `set_config('name', .., true)` with a harmless parameter.
    fn sets_within_transaction(&self, at: usize, word: &[u8]) -> bool {
        let Some(Piece::Text(name)) = self.at(at + 2) else {
            return false;
        };
        if !word.eq_ignore_ascii_case(b"set_config")
            || !self.is_symbol(at + 1, b'(')
            || !self.is_symbol(at + 3, b',')
            || !is_harmless_parameter(name)
        {
            return false;
        }
        last_argument_is_true(&self.pieces[at + 4..], VALUE_PIECES_MAX)
    }

    fn sql_statements(&mut self) {
        let mut starts = true;
        for at in 0..self.pieces.len() {
            let piece = self.pieces[at];
            if piece.is("into")
                && !(at > 0 && (self.is_word(at - 1, "insert") || self.is_word(at - 1, "merge")))
            {
                self.doubt(at, b"into");
            }
            match piece {
                Piece::Symbol(b';') => {
                    starts = true;
                    continue;
                }
                // `(SELECT ..) UNION ..`
                Piece::Symbol(b'(') if starts => continue,
                Piece::Word(word) if starts && !is_any(word, &STATEMENTS) => {
                    self.doubt(at, word);
                }
                Piece::Word(_) => {}
                _ if starts => self.unread(),
                _ => {}
            }
            starts = false;
        }
    }

    fn plpgsql_statements(&mut self) {
        let mut start = Start::Yes;
        let mut declares = false;
        let mut at = 0;
        while let Some(piece) = self.at(at) {
            let len = self.label_len(at);
            if start != Start::No && len > 0 {
                at += len;
                continue;
            }
            let was = std::mem::replace(&mut start, Start::No);
            if piece.is("begin") {
                // In a default value or an expression this word may be a name. Then the scanner assumes the beginning
                // of a statement where there is none, which is safe.
                start = if was == Start::Yes {
                    Start::Yes
                } else {
                    Start::Maybe
                };
                declares = false;
            } else if was == Start::Yes && piece.is("declare") {
                declares = true;
                start = Start::Yes;
            } else if was == Start::Yes && piece.is("end") && self.is_word(at + 1, "loop") {
                // No statement follows this LOOP.
                at += 2;
                continue;
            } else if was != Start::No && !declares {
                self.statement(at, piece, was);
            }
            match piece {
                Piece::Symbol(b';') => start = Start::Yes,
                Piece::Word(_)
                    if ["then", "else", "loop"].iter().any(|word| piece.is(word)) && !declares =>
                {
                    start = Start::Maybe;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Returns the number of pieces of a `<<label>>` at this place.
    fn label_len(&self, at: usize) -> usize {
        let opens = self.is_symbol(at, b'<') && self.is_symbol(at + 1, b'<');
        let is_name = matches!(self.at(at + 2), Some(Piece::Word(_) | Piece::Quoted(_)));
        let closes = self.is_symbol(at + 3, b'>') && self.is_symbol(at + 4, b'>');
        if opens && is_name && closes { 5 } else { 0 }
    }

    fn statement(&mut self, at: usize, piece: Piece<'p>, start: Start) {
        let word = match piece {
            Piece::Word(word) => word,
            Piece::Symbol(b';') => return,
            Piece::Quoted(_) | Piece::Value(_) if self.is_assignment(at + 1) => return,
            _ if start == Start::Maybe && piece != Piece::Broken => return,
            _ => return self.unread(),
        };
        if self.is_assignment(at + 1)
            || is_any(word, &STATEMENTS)
            || is_any(word, &PLPGSQL)
            || is_any(word, &["else", "loop"])
            || start == Start::Maybe && word.eq_ignore_ascii_case(b"not")
            || word.eq_ignore_ascii_case(b"set") && self.is_set_local(at + 1)
            || word.eq_ignore_ascii_case(b"do")
                && start == Start::Maybe
                && self.is_word(at + 1, "nothing")
            || start == Start::Maybe
                && !is_any(word, &OTHER_STATEMENTS)
                && self.continues_expression(at + 1)
        {
            return;
        }
        self.doubt(at, word);
    }

    /// Returns whether an assignment follows the name of a variable.
    fn is_assignment(&self, at: usize) -> bool {
        match self.at(at) {
            Some(Piece::Symbol(b'.' | b'[' | b'=')) => true,
            Some(Piece::Symbol(b':')) => self.is_symbol(at + 1, b'='),
            _ => false,
        }
    }

    fn continues_expression(&self, at: usize) -> bool {
        match self.at(at) {
            Some(Piece::Symbol(symbol)) => symbol != b';',
            Some(Piece::Word(word)) => is_any(word, &OPERATOR_WORDS),
            Some(Piece::Text(_)) => true,
            _ => false,
        }
    }

    /// Returns whether `LOCAL name = value;` stands here.
    fn is_set_local(&self, at: usize) -> bool {
        let name_len = match (self.at(at + 1), self.at(at + 2), self.at(at + 3)) {
            (Some(Piece::Word(first)), Some(Piece::Symbol(b'.')), Some(Piece::Word(_)))
                if !first.eq_ignore_ascii_case(b"plpgsql") =>
            {
                3
            }
            (Some(Piece::Word(name)), ..) if is_harmless_parameter(name) => 1,
            _ => return false,
        };
        let to = at + 1 + name_len;
        self.is_word(at, "local")
            && (self.is_symbol(to, b'=') || self.is_word(to, "to"))
            && matches!(
                self.at(to + 1),
                Some(Piece::Word(_) | Piece::Text(_) | Piece::Value(_))
            )
            && self.is_symbol(to + 2, b';')
    }
}

fn has_escaped_quote(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"\\'")
}

#[cfg(test)]
mod tests;
