//! Calls of `set_config` whose parameter's name the text computes.
//!
//! An inspection queries custom parameters by their names, so a text that computes a name may leave a parameter that no
//! inspection finds.

use super::pieces::{Piece, last_argument_is_true, pieces};

/// How deep strings within strings are read: the source of DO, and texts that it executes.
const DEPTH_MAX: u32 = 2;
/// The largest number of tokens among which the end of a call is searched.
const ARGUMENTS_MAX: usize = 200;
const SET_CONFIG: &[u8] = b"set_config";

/// How much a text tells of the names of the parameters that it sets for longer than its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputedName {
    /// All names are plain strings.
    #[default]
    None,
    /// A name is a value: of a parameter (`$1`), a column or a variable. Another string in the text, or a value of the
    /// Bind, may be the name.
    Value,
    /// A name is the result of an expression.
    Expression,
}

impl ComputedName {
    /// Returns what a text tells of its names.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self::within(text, DEPTH_MAX)
    }

    fn within(text: &[u8], depth: u32) -> Self {
        let mut windows = text.windows(SET_CONFIG.len());
        if !windows.any(|window| window.eq_ignore_ascii_case(SET_CONFIG)) {
            return Self::None;
        }
        let pieces: Vec<_> = pieces(text).collect();
        let of_piece = |(at, piece): (usize, &Piece<'_>)| match *piece {
            Piece::Word(name) | Piece::Quoted(name) if name.eq_ignore_ascii_case(SET_CONFIG) => {
                Self::of_call(&pieces[at + 1..])
            }
            Piece::Text(inside) if depth > 0 => Self::within(inside, depth - 1),
            Piece::Value(string) if depth > 0 && string.starts_with(b"$") => {
                let tag = 1 + string[1..].iter().take_while(|&&byte| byte != b'$').count();
                let inside = string.get(tag + 1..string.len().saturating_sub(tag + 1));
                Self::within(inside.unwrap_or_default(), depth - 1)
            }
            Piece::Broken => Self::Expression,
            _ => Self::None,
        };
        pieces
            .iter()
            .enumerate()
            .map(of_piece)
            .max()
            .unwrap_or_default()
    }

    /// Reads a call from its parenthesis on.
    fn of_call(pieces: &[Piece<'_>]) -> Self {
        let [Piece::Symbol(b'('), arguments @ ..] = pieces else {
            return Self::None;
        };
        let name_len = arguments
            .iter()
            .position(|piece| *piece == Piece::Symbol(b','));
        let name = &arguments[..name_len.unwrap_or(0)];
        let is_plain = |piece: &Piece<'_>| {
            matches!(
                piece,
                Piece::Word(_) | Piece::Quoted(_) | Piece::Value(_) | Piece::Symbol(b'.')
            )
        };
        match name {
            [Piece::Text(_)] => Self::None,
            [Piece::Value(string)] if string.ends_with(b"$") || string.ends_with(b"'") => {
                Self::None
            }
            _ if last_argument_is_true(arguments, ARGUMENTS_MAX) => Self::None,
            [_, ..] if name.iter().all(is_plain) => Self::Value,
            _ => Self::Expression,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ComputedName::{self, Expression, None, Value};

    #[test]
    fn texts() {
        let check =
            |text: &str, expect| assert_eq!(ComputedName::of(text.as_bytes()), expect, "{text}");
        check("SELECT 1", None);
        check("SELECT U&\"name\"", None);
        check(
            "SELECT set_config('a.b', x || 'c', false), set_config($$a.b$$, $1, $2)",
            None,
        );
        check(
            "SELECT set_config(n, 'x', true), pg_catalog.set_config('a.' || n, f(1, 2), true)",
            None,
        );
        check("SELECT set_config($1, $2, false)", Value);
        check("SELECT \"set_config\"(t.n, 'x', f(true)) FROM t", Value);
        check("SELECT set_config('a.b' || 'c', 'x', false)", Expression);
        check(
            "SELECT set_config(lower(n), 'x', is_local => true)",
            Expression,
        );
        check(
            "DO $x$ BEGIN PERFORM set_config(format('a.%s', n), 'x', false); END $x$",
            Expression,
        );
        check(
            "DO 'BEGIN PERFORM set_config(r.n, ''x'', false); END'",
            Value,
        );
        check("SELECT set_config(U&'a', 'x', false)", Expression);
    }
}
