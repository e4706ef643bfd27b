//! The effects of SET, RESET and `set_config`, and the parameters that a text touches by them.

use std::collections::VecDeque;

use super::literal_parameters::affects_literals;
use super::{
    Dialect, Effects,
    lexer::{Kind, Lexer, Token},
    phrase::{Phrase, is_broken, phrases, setting},
    pieces::{Piece, pieces, statements},
};
use crate::session::word_list::{begins, is_any, words};

/// The longest name, in bytes, that is known not to be truncated by PostgreSQL.
pub(in crate::session) const NAME_MAX: usize = 62;

/// The parameter by which PostgreSQL decides what a backslash in a plain string means.
const STRINGS: &[u8] = b"standard_conforming_strings";

/// The parameters that a text sets for longer than its transaction, or resets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// These, in lower case: `role` and `session_authorization` are parameters like others.
    Names(Vec<Vec<u8>>),
    /// All parameters that the client has set: RESET ALL.
    All,
    /// Parameters that are not known from the text, or more than [`TOUCHED_MAX`].
    Unknown,
}

/// The largest number of parameters in [`Touched::Names`]. If a text touches more, an inspection reads all parameters.
pub(in crate::session) const TOUCHED_MAX: usize = 64;

/// Returns the parameters that a text of the class [`Settings`](super::Class::Settings) touches. For texts of other
/// classes, names may be missing. This allocates.
#[must_use]
pub fn touched_parameters(text: &[u8], dialect: Dialect) -> Touched {
    if dialect == Dialect::Unreadable || is_broken(text) {
        return Touched::Unknown;
    }
    let mut names = Vec::new();
    let mut all = false;
    for phrase in phrases(text) {
        let name = match phrase {
            Phrase::ResetAll => {
                all = true;
                continue;
            }
            Phrase::Set { name, .. } | Phrase::Reset(name) | Phrase::SetConfig(Some(name)) => name,
            Phrase::SetConfig(None) => return Touched::Unknown,
            _ => continue,
        };
        const NAMED: Effects = Effects::SETTING.and(Effects::ROLE).and(Effects::PATH);
        if !lasting(&name).without(NAMED).is_empty() {
            return Touched::Unknown;
        }
        let name = name.to_ascii_lowercase();
        if !names.contains(&name) {
            if names.len() == TOUCHED_MAX {
                return Touched::Unknown;
            }
            names.push(name);
        }
    }
    if all {
        Touched::All
    } else {
        Touched::Names(names)
    }
}

/// Returns the effects that a parameter leaves even if it was set only for the transaction.
///
/// `seed` has its effect when it is set. Prepared statements keep plans that were made under other costs, and the
/// values of literals. The other parameters change how the server reads later texts, and pgweir may have scanned such
/// texts before it knows of the SET.
pub(in crate::session) fn lasting(parameter: &[u8]) -> Effects {
    let is = |name: &str| parameter.eq_ignore_ascii_case(name.as_bytes());
    if is("seed") {
        Effects::SEED
    } else if affects_compilation(parameter) {
        Effects::LIBRARY
    } else if is("standard_conforming_strings") || is("client_encoding") {
        Effects::OPAQUE
    } else if shapes_plans(parameter) {
        Effects::SETTING
    } else if is("role") || is("session_authorization") {
        Effects::ROLE
    } else if is("search_path") {
        Effects::PATH
    } else if parameter.len() <= NAME_MAX && parameter.iter().all(|byte| byte.is_ascii_graphic()) {
        Effects::NONE
    } else {
        Effects::OPAQUE
    }
}

/// Returns whether this is a parameter of PL/pgSQL. PL/pgSQL may compile functions differently under it
/// (`plpgsql.variable_conflict`), and keeps the compiled functions for the lifetime of the session, even if the
/// parameter is reset.
#[must_use]
pub fn affects_compilation(parameter: &[u8]) -> bool {
    begins(parameter, "plpgsql.")
}

/// Returns whether functions that a text calls may be compiled under another `standard_conforming_strings` than the server
/// reports at the end of the request: the text names the parameter, and does not only set it to `on`.
#[must_use]
pub fn may_misread_bodies(text: &[u8]) -> bool {
    let names_it = |bytes: &[u8]| {
        let mut parts = bytes.windows(STRINGS.len());
        parts.any(|part| part.eq_ignore_ascii_case(STRINGS))
    };
    let sets_on = |statement: &[Piece<'_>]| match statement {
        [set, .., name, _, Piece::Word(value) | Piece::Text(value)] => {
            set.is("set")
                && statement.len() <= 5
                && name.name().is_some_and(names_it)
                && value.eq_ignore_ascii_case(b"on")
        }
        _ => false,
    };
    let is_harmless = |statement: &[Piece<'_>]| {
        let mut named = statement.iter().filter(|piece| match piece {
            Piece::Word(bytes)
            | Piece::Quoted(bytes)
            | Piece::Text(bytes)
            | Piece::Value(bytes) => names_it(bytes),
            Piece::Symbol(_) => false,
            Piece::Broken => true,
        });
        named.next().is_none() || sets_on(statement)
    };
    names_it(text) && !statements(&pieces(text).collect::<Vec<_>>()).all(is_harmless)
}

/// Returns whether a RESET of this parameter does not undo its effect on the session.
#[must_use]
pub fn outlasts_reset(parameter: &[u8]) -> bool {
    affects_compilation(parameter) || parameter.eq_ignore_ascii_case(b"seed")
}

/// Returns whether a stored plan depends on this parameter. This is true for the parameters that PostgreSQL's manual
/// lists under "Query Planning", and for those that decide what literals mean.
#[must_use]
pub fn shapes_plans(parameter: &[u8]) -> bool {
    // The first seven decide how values are turned into text. Planning, too, turns values into text, in functions that
    // are wrongly declared IMMUTABLE.
    const NAMES: [&str; 19] = words(
        "bytea_output extra_float_digits quote_all_identifiers default_text_search_config \
         lc_numeric lc_time xmlbinary plan_cache_mode effective_cache_size constraint_exclusion \
         cursor_tuple_fraction default_statistics_target from_collapse_limit join_collapse_limit \
         recursive_worktable_factor min_parallel_table_scan_size min_parallel_index_scan_size \
         force_parallel_mode debug_parallel_query",
    );
    let end = &parameter[parameter.len().saturating_sub(b"_cost".len())..];
    let mut beginnings = ["enable_", "geqo", "jit"].into_iter();
    affects_literals(parameter)
        || beginnings.any(|beginning| begins(parameter, beginning))
        || end.eq_ignore_ascii_case(b"_cost")
        || is_any(parameter, &NAMES)
}

/// Returns the effects of a SET, or of a RESET. `lexer` is after that word. `TO DEFAULT` restores the client's
/// startup value, which its server need not have.
pub(in crate::session) fn set(lexer: Lexer<'_>, is_reset: bool) -> Effects {
    let mut several = VecDeque::new();
    match setting(lexer, is_reset, &mut several) {
        Some(Phrase::OfTransaction) => Effects::NONE,
        Some(Phrase::Set {
            name,
            local: true,
            to_default: false,
        }) => lasting(&name),
        Some(Phrase::Set { name, .. } | Phrase::Reset(name)) => lasting(&name) | Effects::SETTING,
        Some(Phrase::ResetAll) => Effects::SETTING | Effects::PATH,
        // SESSION CHARACTERISTICS
        None if !several.is_empty() => Effects::SETTING,
        _ => Effects::OPAQUE,
    }
}

/// Reads the rest of `SELECT set_config(N, V, L) [AS word] [, ...]` after SELECT, to the end of the statement. Returns
/// its effects and the lexer at its end; `None` if the statement is anything else.
///
/// N is a plain string that is the name of a parameter, V a plain string or `$n`, L the word true or false: no function
/// but `set_config` is called, and no operator or cast.
pub(in crate::session) fn set_config<'a>(mut lexer: Lexer<'a>) -> Option<(Effects, Lexer<'a>)> {
    let mut found = Effects::NONE;
    loop {
        found |= call(&mut lexer)?;
        let mut ahead = lexer;
        let mut next = ahead.next();
        if is_word(&ahead, next, "as") {
            let alias = ahead.next();
            if alias.kind != Kind::Word || !is_plain_alias(ahead.bytes(alias)) {
                return None;
            }
            lexer = ahead;
            next = ahead.next();
        }
        match next.kind {
            Kind::Comma => lexer = ahead,
            Kind::Semicolon | Kind::End => return Some((found, lexer)),
            _ => return None,
        }
    }
}

/// Returns whether the alias is plain. The alias is not looked up, so it must not be long enough to be truncated.
fn is_plain_alias(alias: &[u8]) -> bool {
    alias.len() <= NAME_MAX && alias.is_ascii()
}

/// Reads one `[pg_catalog.]set_config(N, V, L)`.
fn call(lexer: &mut Lexer<'_>) -> Option<Effects> {
    let mut token = lexer.next();
    if is_word(lexer, token, "pg_catalog") {
        if lexer.next().kind != Kind::Dot {
            return None;
        }
        token = lexer.next();
    }
    if !is_word(lexer, token, "set_config") || lexer.next().kind != Kind::Open {
        return None;
    }
    let name = lexer.next();
    let name = match name.kind {
        Kind::Text => unquoted(lexer.bytes(name)),
        _ => return None,
    };
    if !is_parameter_name(name) || lexer.next().kind != Kind::Comma {
        return None;
    }
    if !matches!(lexer.next().kind, Kind::Text | Kind::Parameter) {
        return None;
    }
    if lexer.next().kind != Kind::Comma {
        return None;
    }
    let is_local = lexer.next();
    let scope = if is_word(lexer, is_local, "true") {
        Effects::NONE
    } else if is_word(lexer, is_local, "false") {
        Effects::SETTING
    } else {
        return None;
    };
    (lexer.next().kind == Kind::Close).then_some(scope | lasting(name))
}

/// Returns whether the text is a parameter's name: one of PostgreSQL's own, or a custom one in two parts.
pub(in crate::session) fn is_parameter_name(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_part = |part: &[u8]| part.first().is_some_and(is_letter) && part.iter().all(is_plain);
    let mut parts = name.split(|&byte| byte == b'.');
    name.len() <= NAME_MAX && parts.by_ref().take(2).all(is_part) && parts.next().is_none()
}

fn is_word(lexer: &Lexer<'_>, token: Token, word: &str) -> bool {
    token.kind == Kind::Word && lexer.bytes(token).eq_ignore_ascii_case(word.as_bytes())
}

/// Returns the text between the quotes; doubled quotes stay doubled.
fn unquoted(quoted: &[u8]) -> &[u8] {
    &quoted[1..quoted.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_under_which_bodies_are_read_in_another_way() {
        for text in [
            "SELECT 1",
            "SET standard_conforming_strings = on",
            "set x to 1; SET session Standard_Conforming_Strings TO 'on'; SELECT f()",
        ] {
            assert!(!may_misread_bodies(text.as_bytes()), "{text}");
        }
        for text in [
            "BEGIN; SET LOCAL standard_conforming_strings = off; SELECT f(); COMMIT",
            "SELECT set_config('standard_conforming_strings', 'off', true), f()",
            "DO $$ BEGIN SET LOCAL standard_conforming_strings = off; PERFORM f(); END $$",
            "UPDATE pg_settings SET setting = 'off' WHERE name = 'STANDARD_CONFORMING_STRINGS'",
            "SET standard_conforming_strings = on; RESET standard_conforming_strings",
        ] {
            assert!(may_misread_bodies(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn touched() {
        let check = |text: &str, expect: &[&str]| {
            let names = expect.iter().map(|name| name.as_bytes().to_vec()).collect();
            let found = touched_parameters(text.as_bytes(), Dialect::Utf8);
            assert_eq!(found, Touched::Names(names), "{text}");
        };
        check("SET search_path = a, b", &["search_path"]);
        check(
            "SET App.Tenant TO 'x'; SET app.tenant = 'y'",
            &["app.tenant"],
        );
        check(
            "SET SESSION work_mem = 1; RESET \"DateStyle\"",
            &["work_mem", "datestyle"],
        );
        check("SET TIME ZONE 'UTC'", &["timezone"]);
        check("SET SCHEMA 'a'", &["search_path"]);
        check("SET XML OPTION DOCUMENT", &["xmloption"]);
        check("SET ROLE a", &["role"]);
        check("SET SESSION AUTHORIZATION a", &["session_authorization"]);
        check(
            "RESET SESSION AUTHORIZATION; RESET ROLE",
            &["session_authorization", "role"],
        );
        check("SELECT set_config('a.b', $1, false) AS x", &["a.b"]);
        check("BEGIN; SET x.y = 1; COMMIT", &["x.y"]);
        check("SELECT 1", &[]);
        check(
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            &[
                "default_transaction_isolation",
                "default_transaction_read_only",
                "default_transaction_deferrable",
            ],
        );
    }

    #[test]
    fn parameters_that_outlast_reset() {
        let effects = |text: &str| {
            let certificates = crate::session::Certificates::none();
            crate::session::scan(text.as_bytes(), Dialect::Utf8, &certificates)
        };
        for text in [
            "SET plpgsql.variable_conflict = use_column",
            "SET LOCAL \"PLpgSQL\".print_strict_params TO on",
            "RESET plpgsql.variable_conflict",
            "SELECT set_config('plpgsql.variable_conflict', 'error', true)",
        ] {
            assert!(effects(text).contains(Effects::LIBRARY), "{text}");
        }
        for text in [
            "SET LOCAL plpgsql_check.mode = 'x'",
            "SET LOCAL app.plpgsql = 'x'",
        ] {
            assert_eq!(effects(text), Effects::NONE, "{text}");
        }
        assert!(outlasts_reset(b"Seed") && outlasts_reset(b"plpgsql.x"));
        assert!(!outlasts_reset(b"plpgsql") && !outlasts_reset(b"work_mem"));
    }

    #[test]
    fn touched_without_names() {
        let of = |text: &str, dialect| touched_parameters(text.as_bytes(), dialect);
        assert_eq!(of("SET a.b = 1; RESET ALL", Dialect::Utf8), Touched::All);
        for text in [
            "SET seed = 0.5",
            "SET NAMES 'LATIN1'",
            "SET standard_conforming_strings = off",
            "SELECT set_config($1, 'a', false)",
            "SET U&\"a\" = 1",
            "SET gr\u{fc}n.x = 1",
            &format!("SET {}.x = 1", "x".repeat(63)),
        ] {
            assert_eq!(of(text, Dialect::Utf8), Touched::Unknown, "{text}");
        }
        assert_eq!(of("SET a.b = 1", Dialect::Unreadable), Touched::Unknown);
        let sets = |count: usize| {
            (0..count)
                .map(|number| format!("SET a.n{number} = 1;"))
                .collect::<String>()
        };
        assert!(matches!(
            of(&sets(TOUCHED_MAX), Dialect::Utf8),
            Touched::Names(_)
        ));
        assert_eq!(of(&sets(TOUCHED_MAX + 1), Dialect::Utf8), Touched::Unknown);
    }
}
