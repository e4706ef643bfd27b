//! Decides whether a text may change the functions and relations of a database.
//!
//! Most DDL invalidates the certificates of a database until pgweir has read its catalog again ([`Change::Any`]). Some DDL
//! can't make a certified object uncertified, and leaves the certificates valid ([`Change::Quiet`]). A statement is quiet
//! if all of these conditions hold:
//!
//! 1. The statement has one of the kinds listed below.
//! 2. The database has nothing that makes every text opaque: no event trigger, and no uncertified operator, cast or type.
//! 3. Every word of the statement is *harmless*: by the present certificates, no object with this name can leave session
//!    state. DROP needs no harmless words.
//!
//! The kinds, and the reasons why they are quiet:
//!
//! - **DROP** of any object. No statement can use a dropped object. The object may have hidden another one with the same
//!   name in a later schema; but a certificate covers all objects of a name, so it covers that one, too.
//! - **CREATE** TABLE, INDEX, VIEW, MATERIALIZED VIEW, SEQUENCE, and SCHEMA without elements; **ALTER TABLE**. The
//!   statement names all objects whose code the new object can run: functions in defaults, checks, generated columns and
//!   expressions; parents, partitions and tables of foreign keys; tables under a view. All these names are harmless, so
//!   the new object and the objects that refer to it are harmless, too. The new name itself is a word of the statement:
//!   so no uncertified object gets another name, and no object gets the name of an uncertified one.
//!   A serial or identity column is not quiet, since an INSERT then leaves the sequence's value in the session. `LIKE` of
//!   a table with such a column is not quiet either, since the name of that table is not harmless.
//! - **COMMENT, GRANT, REVOKE** change no code.
//! - **VACUUM, ANALYZE, REINDEX, CLUSTER, REFRESH, REPACK** run the functions of indexes and views, which could do DDL. If
//!   all words are harmless, these functions are certified. A statement without a table's name (`VACUUM FULL`,
//!   `REINDEX INDEX i`, `REINDEX SCHEMA s`) runs functions of tables that it does not name: it is quiet only if the
//!   database has no uncertified function.
//! - **CREATE** and **ALTER** of ROLE, USER, GROUP and DATABASE. No function belongs to these objects.
//!
//! Never quiet are functions, procedures, aggregates, triggers, rules, policies, operators, casts, types, domains,
//! extensions, languages, foreign tables and COMMIT PREPARED; any statement that is not listed; and any text that pgweir
//! can't split into tokens with certainty.
//!
//! **CALL** changes what the procedure and the other names in the statement change. **DO** changes what its block of
//! PL/pgSQL changes: the block is read as the body of a function is. A block that pgweir can't read with certainty may
//! change anything. While certificates are invalid, the procedure may be new, and the facts that are being read may miss
//! what it changes: then the text counts as quiet, and the catalog decides what the next facts are worth
//! (`Catalog::finish`).
//!
//! Between the examination of a quiet text and the end of its transaction, other DDL may make one of its words
//! uncertified. The catalog then counts the quiet transaction as DDL (`Catalog::quiet_begins`).

mod cause;

use std::borrow::Cow;

pub use cause::{DdlCause, ddl_cause};

use super::{
    Certificates, Dialect, Effects,
    certificates::block_effects,
    scan::{DdlWords, may_change_catalog},
    sql::{
        CHANGE, NAME_MAX, builtin_effects,
        pieces::{BEFORE_KIND, Piece, pieces, statements, writes_to_catalogs},
        reads_session,
    },
    word_list::{begins, is_any, words},
};

/// The change that a text makes to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The text changes nothing.
    No,
    /// The text can't make anything opaque.
    Quiet,
    /// The text makes no code, and no type of a PL/pgSQL variable.
    Tables,
    /// The text may change anything.
    Any,
}

/// Words that begin statements without DDL. The functions in these statements are examined by name.
const PLAIN: [&str; 37] = words(
    "abort begin checkpoint close copy deallocate declare delete discard end explain fetch \
     insert listen load lock merge move notify release reset savepoint select set show start table \
     truncate unlisten update values with prepare commit rollback execute wait",
);
/// Words that begin statements of nothing but code.
const CODE: [&str; 2] = words("call do");
/// Kinds of objects whose CREATE is quiet if all words are harmless.
const CREATED_QUIETLY: [&str; 9] =
    words("table index view sequence materialized role user group database");
/// Kinds whose ALTER is quiet.
const ALTERED_QUIETLY: [&str; 5] = words("table role user group database");
/// Statements that are quiet whatever they name, if all words are harmless.
const QUIET: [&str; 3] = words("comment grant revoke");
/// Statements that run the functions of tables. They are quiet if all words are harmless, and if they name their tables
/// or the database has no uncertified function.
const OF_TABLES: [&str; 7] = words("vacuum analyze analyse reindex cluster refresh repack");
/// Key words that may stand between the first word of a statement in [`OF_TABLES`] and the name of its table.
const TABLE_OPTIONS: [&str; 5] = words("full freeze verbose analyze analyse");
/// Words that stand in place of the table's name if the statement concerns tables that it does not name.
const NOT_A_TABLE: [&str; 5] = words("index schema database system using");
/// Words that make a table leave session state, that make its result depend on the session (row security), or that may
/// hide other words.
const NOISY: [&str; 9] =
    words("security serial bigserial smallserial serial2 serial4 serial8 identity execute");

/// Returns the change that a text makes to the catalog. The text is sent as a whole to a server with these
/// certificates.
#[must_use]
pub fn catalog_change(text: &[u8], dialect: Dialect, certificates: &Certificates) -> Change {
    if dialect == Dialect::Unreadable {
        let mut words = DdlWords::default();
        return match words.read(text, certificates) || words.end(certificates) {
            true => Change::Any,
            false => Change::No,
        };
    }
    let reader = Reader {
        certificates,
        utf8: dialect == Dialect::Utf8 && certificates.is_utf8(),
        is_quiet_database: certificates.every_text().is_empty()
            && !certificates.has_event_triggers(),
        fires_unread_code: certificates.may_have_new_code() || certificates.has_event_triggers(),
    };
    let pieces: Vec<_> = pieces(text).collect();
    let changes = statements(&pieces).map(|statement| reader.change_of(statement));
    changes.max().unwrap_or(Change::No)
}

/// Returns whether a text that may change any session state runs code that it does not contain itself as SQL, apart from the
/// functions and relations that it names.
#[must_use]
pub fn runs_unread_code(text: &[u8], dialect: Dialect) -> bool {
    const READ: [&str; 16] = words(
        "alter drop comment grant revoke vacuum analyze analyse reindex cluster refresh repack call \
         security import reassign",
    );
    let pieces: Vec<_> = pieces(text).collect();
    let is_read = |statement: &[Piece<'_>]| {
        let mut words = statement.iter().filter(|piece| piece.name().is_some());
        let Some(first) = words.next() else {
            return !statement.contains(&Piece::Broken);
        };
        let is = |list: &[&str]| first.name().is_some_and(|first| is_any(first, list));
        let mut kind = || words.find(|piece| !BEFORE_KIND.iter().any(|word| piece.is(word)));
        !statement.contains(&Piece::Broken)
            && (is(&PLAIN)
                || is(&READ)
                || is(&["create"])
                    && kind().is_some_and(|kind| CREATED_QUIETLY.iter().any(|word| kind.is(word))))
    };
    let runs_any = |piece: &Piece<'_>| {
        let builtin = piece.name().and_then(builtin_effects);
        builtin.is_some_and(|effects| super::certificates::may_do_ddl(effects.read))
    };
    text.is_empty()
        || dialect == Dialect::Unreadable
        || pieces.iter().any(runs_any)
        || !statements(&pieces).all(is_read)
}

struct Reader<'c> {
    certificates: &'c Certificates,
    utf8: bool,
    is_quiet_database: bool,
    /// Whether any DDL may run code that pgweir has not read.
    fires_unread_code: bool,
}

impl Reader<'_> {
    fn change_of(&self, pieces: &[Piece<'_>]) -> Change {
        if pieces.contains(&Piece::Broken) {
            return Change::Any;
        }
        let mut words = pieces.iter().filter_map(|piece| match piece {
            Piece::Word(word) => Some(*word),
            _ => None,
        });
        let Some(first) = words.next() else {
            // There is no word, so there is no statement.
            return Change::No;
        };
        let is_first = |list: &[&str]| is_any(first, list);
        let second = words.next().unwrap_or_default();
        let commits_prepared = is_first(&["commit"]) && is_any(second, &["prepared"]);
        let called = self.change_by_calls(pieces);
        if commits_prepared || called == Change::Any || writes_to_catalogs(pieces) {
            return Change::Any;
        }
        if is_first(&CODE) {
            let in_block = match is_first(&["do"]) {
                true => self.change_by_block(pieces),
                false => Change::No,
            };
            return self.change_by_code(called.max(in_block));
        }
        if is_first(&PLAIN) {
            return called;
        }
        if self.fires_unread_code {
            return Change::Any;
        }
        if is_first(&["drop"]) {
            return if self.is_quiet_database {
                Change::Quiet
            } else {
                Change::Tables
            };
        }
        let is_quiet = if is_first(&["create"]) {
            self.is_quiet_create(pieces)
        } else if is_first(&["alter"]) {
            is_any(second, &ALTERED_QUIETLY)
        } else if is_first(&OF_TABLES) {
            names_its_tables(pieces) || self.certificates.counts().opaque_functions == 0
        } else {
            is_first(&QUIET)
        };
        if is_quiet && self.certificates.has_types_named_by(pieces) {
            Change::Any
        } else if self.is_quiet_database
            && is_quiet
            && called == Change::No
            && self.are_harmless(pieces)
        {
            Change::Quiet
        } else if is_quiet && self.are_read(pieces) {
            Change::Tables
        } else {
            Change::Any
        }
    }

    /// Returns the change that CALL or DO makes whose words show this change.
    fn change_by_code(&self, change: Change) -> Change {
        match change {
            _ if self.certificates.every_text_may_do_ddl() => Change::Any,
            Change::No if self.certificates.may_have_new_code() => Change::Quiet,
            Change::Tables if self.fires_unread_code => Change::Any,
            change => change,
        }
    }

    /// Returns the change that a DO makes.
    fn change_by_block(&self, pieces: &[Piece<'_>]) -> Change {
        let Some(block) = block_of_do(pieces) else {
            return Change::Any;
        };
        // Strings in the block end where `standard_conforming_strings` says, and the block itself may set it.
        let is_unread = block.contains(&b'\\')
            || self.certificates.has_other_plpgsql()
            || may_change_catalog(&block)
            || block_effects(&block, self.utf8).contains(CHANGE);
        if is_unread {
            return Change::Any;
        }
        self.change_by_calls(&super::sql::pieces::pieces(&block).collect::<Vec<_>>())
    }

    /// Returns the change that the functions make which the text names or reaches.
    fn change_by_calls(&self, pieces: &[Piece<'_>]) -> Change {
        let changes = pieces.iter().filter_map(Piece::name).map(|name| {
            if !self.is_known(name) || name.contains(&b'"') {
                // The catalog may have the name in other bytes.
                return match self.certificates.has_ddl_code() {
                    true => Change::Any,
                    false => Change::No,
                };
            }
            let traces = self.certificates.any_word(name);
            let found = traces.read | traces.write;
            if !super::certificates::may_do_ddl(found) {
                Change::No
            } else if found.contains(Effects::UNREAD) || builtin_effects(name).is_some() {
                Change::Any
            } else {
                Change::Tables
            }
        });
        changes.max().unwrap_or(Change::No)
    }

    fn is_quiet_create(&self, pieces: &[Piece<'_>]) -> bool {
        let mut words = pieces[1..].iter().map(|piece| match piece {
            Piece::Word(word) => *word,
            _ => b"",
        });
        let Some(kind) = words.find(|word| !is_any(word, &BEFORE_KIND)) else {
            return false;
        };
        if kind.eq_ignore_ascii_case(b"schema") {
            // Objects that are created within CREATE SCHEMA are not examined.
            return !words.any(|word| is_any(word, &["create", "grant"]));
        }
        // If a function that is declared IMMUTABLE reads the view, plans keep its result for all clients.
        let is_view = is_any(kind, &["view", "materialized"]);
        is_any(kind, &CREATED_QUIETLY)
            && !(is_view && pieces.iter().any(|piece| self.may_read_session(piece)))
    }

    /// Returns whether the word may be a function, key word or view whose result depends on the session.
    fn may_read_session(&self, piece: &Piece<'_>) -> bool {
        piece.name().is_some_and(|name| {
            reads_session(name) || begins(name, "pg_") || self.certificates.reads_session(name)
        })
    }

    fn are_harmless(&self, pieces: &[Piece<'_>]) -> bool {
        pieces.iter().all(|piece| match *piece {
            Piece::Word(name) => self.is_harmless(name) && !is_any(name, &NOISY),
            // PostgreSQL also recognizes `"serial"` in quotes.
            Piece::Quoted(name) => {
                self.is_harmless(name) && !is_any(name, &NOISY) && !name.contains(&b'"')
            }
            Piece::Text(text) => !text.contains(&b'\\'),
            Piece::Value(_) | Piece::Symbol(_) => true,
            Piece::Broken => false,
        })
    }

    /// Returns whether the catalog shows what all names in the statement mean.
    fn are_read(&self, pieces: &[Piece<'_>]) -> bool {
        pieces.iter().all(|piece| match *piece {
            Piece::Word(name) => self.is_known(name),
            Piece::Quoted(name) => self.is_known(name) && !name.contains(&b'"'),
            Piece::Text(text) => !text.contains(&b'\\'),
            Piece::Value(_) | Piece::Symbol(_) => true,
            Piece::Broken => false,
        })
    }

    fn is_known(&self, name: &[u8]) -> bool {
        name.len() <= NAME_MAX && (self.utf8 || name.is_ascii())
    }

    fn is_harmless(&self, name: &[u8]) -> bool {
        let traces = self.certificates.any_word(name);
        traces.read.is_empty() && traces.write.is_empty() && self.is_known(name)
    }
}

/// Returns the block of a DO, if it is certain that the language is PL/pgSQL and where the block ends.
fn block_of_do<'p>(pieces: &[Piece<'p>]) -> Option<Cow<'p, [u8]>> {
    let is_plpgsql = |name: &Piece<'_>| match *name {
        Piece::Word(_) => name.is("plpgsql"),
        Piece::Quoted(name) | Piece::Text(name) => name == b"plpgsql",
        _ => false,
    };
    let block = match pieces {
        [_, block] => block,
        [_, word, name, block] | [_, block, word, name]
            if word.is("language") && is_plpgsql(name) =>
        {
            block
        }
        _ => return None,
    };
    match *block {
        Piece::Text(text) if memchr::memchr(b'\'', text).is_some() => {
            let mut parts = text.split(|&byte| byte == b'\'');
            let mut block = parts.next()?.to_vec();
            // Each quote is doubled, so there is an empty part between the two.
            while let (Some(b""), Some(part)) = (parts.next(), parts.next()) {
                block.push(b'\'');
                block.extend_from_slice(part);
            }
            Some(block.into())
        }
        Piece::Text(text) => Some(text.into()),
        Piece::Value(value) => {
            let tag_len = 2 + value
                .strip_prefix(b"$")?
                .iter()
                .position(|&byte| byte == b'$')?;
            let (tag, rest) = value.split_at_checked(tag_len)?;
            Some(rest.strip_suffix(tag)?.into())
        }
        _ => None,
    }
}

/// Returns whether a statement of [`OF_TABLES`] names all tables that it concerns.
fn names_its_tables(pieces: &[Piece<'_>]) -> bool {
    let mut rest = pieces.iter().skip(1).peekable();
    if rest
        .next_if(|piece| **piece == Piece::Symbol(b'('))
        .is_some()
    {
        // Options in parentheses.
        rest.find(|piece| **piece == Piece::Symbol(b')'));
    }
    let is = |piece: &Piece<'_>, list: &[&str]| list.iter().any(|word| piece.is(word));
    while rest.next_if(|piece| is(piece, &TABLE_OPTIONS)).is_some() {}
    rest.next().is_some_and(|piece| !is(piece, &NOT_A_TABLE))
}

#[cfg(test)]
mod tests;
