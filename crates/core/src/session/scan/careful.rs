//! The verdict on a text, token by token.
//!
//! What may run is a name before a parenthesis (a function), or a name where the grammar wants a
//! relation (a view, a trigger, a default). Everything else of a statement that begins with a known
//! word is without effect on the session. Where this reading and PostgreSQL's could part, it errs
//! on the side of suspicion.

use super::{
    Look, Suspicion,
    ctes::Ctes,
    keyword::Keyword,
    lexer::{Kind, Lexer, Token},
    quick_words::is_temporary,
};
use crate::session::certificates::{Certificates, Name, Traces};

/// So many parentheses may be open.
const DEPTH_MAX: u32 = 60;
/// So many tokens of a text are read twice, to see whether `set_config` is local.
const AHEAD_MAX: u32 = 512;

/// Where in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The word that says what it is comes next.
    Start,
    /// EXPLAIN was read; options may follow.
    Explain,
    Body,
    /// Nothing in the rest of it runs.
    Rest,
}

/// What the next name is, by what stood before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Nothing,
    /// A relation that is read, a function, or a parenthesis with more of them.
    Source,
    /// A relation that is written; columns may follow in parentheses.
    Target,
    /// The name of a common table expression.
    Cte,
}

/// One bit for each open parenthesis, the innermost lowest.
#[derive(Clone, Copy, Debug, Default)]
struct Levels(u64);

impl Levels {
    fn push(&mut self, bit: bool) {
        self.0 = self.0 << 1 | u64::from(bit);
    }

    fn pop(&mut self) {
        self.0 >>= 1;
    }

    fn is_set(self) -> bool {
        self.0 & 1 == 1
    }

    fn set(&mut self, bit: bool) {
        self.0 = self.0 & !1 | u64::from(bit);
    }
}

/// What is known of the statement that is being read.
#[derive(Default)]
struct Statement {
    /// A comma is followed by one more relation.
    lists: Levels,
    /// The verb at this level has been read.
    verbs: Levels,
    /// FROM is part of a call here, as in `extract(year FROM x)`.
    calls: Levels,
    /// What commas separate is written: TRUNCATE.
    list_is_written: bool,
    deletes: bool,
    merges: bool,
    creates: bool,
    ctes: Ctes,
}

pub(super) struct Reader<'a> {
    pub(super) lexer: Lexer<'a>,
    pub(super) found: Suspicion,
    pub(super) place: Place,
    pub(super) expect: Expect,
    certificates: &'a Certificates,
    /// Names beyond ASCII mean what the catalog says.
    utf8: bool,
    depth: u32,
    statement: Statement,
    /// The name that is being read begins with the schema of temporary objects.
    temporary: bool,
    /// The last tokens, the latest first.
    before: [Token; 4],
    ahead: u32,
    /// What stands in a string has been looked at.
    by_literals: bool,
}

/// What the text may leave behind in its session.
#[cfg(test)]
pub(super) fn read(text: &[u8], utf8: bool, certificates: &Certificates) -> Suspicion {
    look(text, utf8, certificates).found
}

/// What the text may leave behind, and whether that depends on its literals.
pub(super) fn look(text: &[u8], utf8: bool, certificates: &Certificates) -> Look {
    let reader = read_all(text, utf8, certificates);
    Look {
        found: reader.found,
        by_literals: reader.by_literals,
    }
}

fn read_all<'a>(text: &'a [u8], utf8: bool, certificates: &'a Certificates) -> Reader<'a> {
    let mut reader = Reader {
        lexer: Lexer::new(text),
        found: Suspicion::NONE,
        place: Place::Start,
        expect: Expect::Nothing,
        certificates,
        utf8,
        depth: 0,
        statement: Statement::default(),
        temporary: false,
        before: [Token::NONE; 4],
        ahead: AHEAD_MAX,
        by_literals: false,
    };
    loop {
        let token = reader.lexer.next();
        if token.kind == Kind::End && reader.depth == 0 {
            return reader;
        }
        if !reader.token(token) {
            reader.found |= Suspicion::OPAQUE;
            return reader;
        }
        let [last, second, third, _] = reader.before;
        reader.before = [token, last, second, third];
    }
}

impl Reader<'_> {
    /// False if the text is beyond understanding.
    fn token(&mut self, token: Token) -> bool {
        match token.kind {
            Kind::End | Kind::Broken => return false,
            Kind::Semicolon => {
                self.place = Place::Start;
                self.expect = Expect::Nothing;
                self.statement = Statement::default();
                return self.depth == 0;
            }
            Kind::Open => return self.open(),
            Kind::Close => return self.close(),
            _ => {}
        }
        match self.place {
            Place::Rest => {}
            Place::Start | Place::Explain => self.first(token),
            Place::Body => self.body(token),
        }
        true
    }

    fn open(&mut self) -> bool {
        if self.depth == DEPTH_MAX {
            return false;
        }
        if self.place == Place::Explain && !self.begins_query() {
            return self.skip_options();
        }
        let group = self.place == Place::Body && self.expect == Expect::Source;
        let call = self.before[1].kind != Kind::Dot
            && matches!(
                self.keyword(self.before[0]),
                Some(Keyword::Extract | Keyword::Substring | Keyword::Trim | Keyword::Overlay)
            );
        self.depth += 1;
        self.statement.lists.push(group);
        self.statement.verbs.push(false);
        self.statement.calls.push(call);
        if !group {
            self.expect = Expect::Nothing;
        }
        true
    }

    fn close(&mut self) -> bool {
        if self.depth == 0 {
            return false;
        }
        self.depth -= 1;
        self.statement.lists.pop();
        self.statement.verbs.pop();
        self.statement.calls.pop();
        self.expect = Expect::Nothing;
        true
    }

    /// Does the parenthesis that was just opened hold a query?
    fn begins_query(&self) -> bool {
        let next = self.lexer.peek();
        let keyword = self.keyword(next);
        next.kind == Kind::Open
            || matches!(
                keyword,
                Some(Keyword::Select | Keyword::With | Keyword::Values | Keyword::Table)
            )
    }

    /// Goes to the end of EXPLAIN's options.
    fn skip_options(&mut self) -> bool {
        loop {
            match self.lexer.next().kind {
                Kind::Close => return true,
                Kind::Open | Kind::Semicolon | Kind::Broken | Kind::End => return false,
                _ => {}
            }
        }
    }

    pub(super) fn keyword(&self, token: Token) -> Option<Keyword> {
        if token.kind == Kind::Word {
            Keyword::of(self.lexer.text(), token.start, token.end)
        } else {
            None
        }
    }

    /// A token of a statement that may run things.
    pub(super) fn body(&mut self, token: Token) {
        match token.kind {
            Kind::Word | Kind::Quoted => return self.name(token),
            Kind::Dot => return,
            _ => self.temporary = false,
        }
        match token.kind {
            Kind::Comma if self.statement.lists.is_set() => {
                self.expect = if self.statement.list_is_written {
                    Expect::Target
                } else {
                    Expect::Source
                };
            }
            Kind::Comma if self.statement.ctes.lists_at(self.depth) => {
                self.statement.ctes.settle();
                self.expect = Expect::Cte;
            }
            _ => self.expect = Expect::Nothing,
        }
    }

    fn name(&mut self, token: Token) {
        let next = self.lexer.look_ahead();
        if next.kind == Kind::Dot {
            let schema = self.lexer.bytes(token);
            self.temporary |= is_temporary(schema.strip_prefix(b"\"").unwrap_or(schema));
            return;
        }
        let temporary = std::mem::take(&mut self.temporary);
        if temporary && (self.expect != Expect::Nothing || next.kind == Kind::Open) {
            self.found |= Suspicion::OPAQUE | Suspicion::TEMP;
        }
        if self.expect == Expect::Cte && self.cte(token, next) {
            return;
        }
        let qualified = self.before[0].kind == Kind::Dot;
        let keyword = if qualified { None } else { self.keyword(token) };
        if keyword.is_some_and(|keyword| self.takes(keyword, next)) {
            return;
        }
        let expected = std::mem::replace(&mut self.expect, Expect::Nothing);
        match expected {
            Expect::Target => self.found |= self.relation(token).write,
            Expect::Source if next.kind != Kind::Open => {
                let is_cte = !qualified && self.is_cte(token);
                if !is_cte {
                    self.found |= self.relation(token).read;
                }
            }
            _ if next.kind == Kind::Open && (expected == Expect::Source || !self.is_label()) => {
                self.call(token);
            }
            _ => {}
        }
    }

    /// The name of a common table expression. False if it is something else.
    fn cte(&mut self, token: Token, next: Token) -> bool {
        let named = next.kind == Kind::Open || self.keyword(next) == Some(Keyword::As);
        if !named && self.keyword(token) == Some(Keyword::Recursive) {
            self.statement.ctes.recursive = true;
            return true;
        }
        self.expect = Expect::Nothing;
        if named && let Some(name) = self.hashed(token) {
            self.statement.ctes.name(name);
        }
        named
    }

    fn is_cte(&self, token: Token) -> bool {
        self.hashed(token)
            .is_some_and(|name| self.statement.ctes.has(name))
    }

    /// Is a name before a parenthesis at this place the label of something, with columns or a
    /// modifier?
    fn is_label(&self) -> bool {
        let [last, but_one, ..] = self.before;
        match self.keyword(last) {
            Some(Keyword::As) => but_one.kind != Kind::Dot,
            Some(Keyword::Ordinality) => self.statement.lists.is_set(),
            _ => last.kind == Kind::Close && self.statement.lists.is_set(),
        }
    }

    /// Takes a key word for what it is. False if it is a name here.
    fn takes(&mut self, keyword: Keyword, next: Token) -> bool {
        let at = &mut self.statement;
        match keyword {
            Keyword::Only | Keyword::Lateral => return self.expect != Expect::Nothing,
            Keyword::Select => {
                at.verbs.set(true);
                at.lists.set(false);
                self.settle();
            }
            Keyword::Values if next.kind == Kind::Open => {
                if self.expect == Expect::Source {
                    at.lists.set(false);
                }
                self.settle();
            }
            Keyword::With if self.expect == Expect::Source => {
                at.lists.set(false);
                self.expect = Expect::Nothing;
            }
            Keyword::Table => {
                at.verbs.set(true);
                if self.expect == Expect::Nothing {
                    self.settle();
                    self.expect = Expect::Source;
                }
            }
            Keyword::Insert | Keyword::Merge | Keyword::Delete | Keyword::Update => {
                return !at.verbs.is_set() && self.writes(keyword, next);
            }
            Keyword::Into => {
                // A table is made, where search_path says.
                self.found |= Suspicion::OPAQUE | Suspicion::TEMP;
                self.expect = Expect::Nothing;
            }
            Keyword::From => {
                self.expect = Expect::Nothing;
                if !at.calls.is_set() && !self.is_distinct_from() {
                    self.statement.lists.set(true);
                    self.expect = Expect::Source;
                }
            }
            Keyword::Join => self.expect = Expect::Source,
            Keyword::Using
                if at.verbs.is_set() && (next.kind != Kind::Open || at.deletes || at.merges) =>
            {
                self.expect = Expect::Source;
                if at.deletes {
                    at.lists.set(true);
                }
            }
            Keyword::Execute if at.creates => self.found |= Suspicion::EXECUTE,
            Keyword::Where
            | Keyword::Group
            | Keyword::Having
            | Keyword::Order
            | Keyword::Window
            | Keyword::Union
            | Keyword::Except
            | Keyword::Intersect
            | Keyword::Limit
            | Keyword::Offset
            | Keyword::Fetch
            | Keyword::For
            | Keyword::Returning
            | Keyword::Do => {
                at.lists.set(false);
                self.expect = Expect::Nothing;
            }
            _ => return false,
        }
        true
    }

    /// A verb that writes. False if the word is a name.
    fn writes(&mut self, verb: Keyword, next: Token) -> bool {
        let follows = self.keyword(next);
        let is_verb = match verb {
            Keyword::Insert | Keyword::Merge => follows == Some(Keyword::Into),
            Keyword::Delete => follows == Some(Keyword::From),
            // A relation may be named SET.
            _ => matches!(next.kind, Kind::Word | Kind::Quoted) && follows != Some(Keyword::As),
        };
        if !is_verb {
            return false;
        }
        if verb != Keyword::Update {
            self.lexer.next();
        }
        self.statement.deletes |= verb == Keyword::Delete;
        self.statement.merges |= verb == Keyword::Merge;
        self.statement.verbs.set(true);
        self.statement.lists.set(false);
        self.settle();
        self.expect = Expect::Target;
        true
    }

    /// A verb was read: what WITH named is visible from here on.
    fn settle(&mut self) {
        self.expect = Expect::Nothing;
        if self.statement.ctes.lists_at(self.depth) {
            self.statement.ctes.end();
        }
    }

    /// Is the FROM that follows what was read part of `IS [NOT] DISTINCT FROM`?
    fn is_distinct_from(&self) -> bool {
        let words = self.before.map(|token| self.keyword(token));
        let (dot, is) = match words {
            [Some(Keyword::Distinct), Some(Keyword::Is), ..] => (self.before[2], true),
            [
                Some(Keyword::Distinct),
                Some(Keyword::Not),
                Some(Keyword::Is),
                _,
            ] => (self.before[3], true),
            _ => (Token::NONE, false),
        };
        is && dot.kind != Kind::Dot
    }

    /// A function is called.
    fn call(&mut self, token: Token) {
        let Some(name) = self.hashed(token) else {
            self.found |= Suspicion::OPAQUE;
            return;
        };
        let mut traces = self.certificates.function(name);
        if traces.contains(Suspicion::SETTING) && name == Name::of(b"set_config") {
            traces = traces.without(Suspicion::SETTING) | self.set_config();
        }
        self.found |= traces;
    }

    fn relation(&self, token: Token) -> Traces {
        let opaque = Traces {
            read: Suspicion::OPAQUE,
            write: Suspicion::OPAQUE,
        };
        self.hashed(token)
            .map_or(opaque, |name| self.certificates.relation(name))
    }

    /// The name that a token is, if the catalog would write it with the same bytes.
    fn hashed(&self, token: Token) -> Option<Name> {
        let bytes = self.lexer.bytes(token);
        let bytes = match token.kind {
            Kind::Quoted => &bytes[1..bytes.len() - 1],
            _ => bytes,
        };
        let plain = !bytes.contains(&b'"') && (self.utf8 || bytes.is_ascii());
        plain.then(|| Name::of(bytes))
    }

    /// What `set_config` sets, whose parenthesis comes next: nothing that lasts, if the first
    /// argument is a string, there are three, and the third is the word `true`.
    fn set_config(&mut self) -> Suspicion {
        self.by_literals = true;
        let mut ahead = self.lexer;
        ahead.next();
        let name = ahead.next();
        if name.kind != Kind::Text || ahead.next().kind != Kind::Comma {
            return Suspicion::SETTING | Suspicion::OPAQUE;
        }
        let lasting = super::set::lasting(unquoted(ahead.bytes(name)));
        let mut depth = 0_u32;
        while self.ahead > 0 {
            self.ahead -= 1;
            match ahead.next().kind {
                Kind::Open => depth += 1,
                Kind::Close if depth > 0 => depth -= 1,
                Kind::Comma if depth == 0 => break,
                Kind::Close | Kind::Semicolon | Kind::Broken | Kind::End => {
                    return lasting | Suspicion::SETTING;
                }
                _ => {}
            }
        }
        let value = ahead.next();
        let local = value.kind == Kind::Word
            && ahead.bytes(value).eq_ignore_ascii_case(b"true")
            && ahead.next().kind == Kind::Close;
        if local {
            lasting
        } else {
            lasting | Suspicion::SETTING
        }
    }
}

impl Reader<'_> {
    /// The word that says what a statement is.
    fn first(&mut self, token: Token) {
        super::first::first(self, token);
    }

    /// The statement begins with WITH.
    pub(super) fn begins_with(&mut self) {
        self.place = Place::Body;
        self.expect = Expect::Nothing;
        if self.depth == 0 {
            self.statement.ctes.begin();
            self.expect = Expect::Cte;
        }
    }

    /// Names in the rest of the statement that are separated by commas are written.
    pub(super) fn truncates(&mut self) {
        self.place = Place::Body;
        self.expect = Expect::Target;
        self.statement.lists.set(true);
        self.statement.list_is_written = true;
    }

    pub(super) fn creates(&mut self) {
        self.statement.creates = true;
    }
}

/// What stands between quotes, doubled ones as they are.
pub(super) fn unquoted(quoted: &[u8]) -> &[u8] {
    &quoted[1..quoted.len() - 1]
}
