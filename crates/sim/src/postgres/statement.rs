//! The language that the model PostgreSQL speaks: a few commands of its own, to fail and to return as
//! much as wanted, and of SQL what works on sessions.

use std::rc::Rc;

use super::sql::{self, Statement};
use crate::checks::RequestId;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Begin,
    Commit,
    Rollback,
    /// So many rows of so many bytes.
    Rows {
        count: u32,
        size: usize,
    },
    CopyOut {
        count: u32,
        size: usize,
    },
    /// COPY FROM STDIN; fails when it has read so many pieces of data.
    CopyIn {
        fails_at: Option<u32>,
    },
    Notice,
    Fail,
    /// Takes so many steps, and can be cancelled.
    Slow(u32),
    /// The server says FATAL and goes.
    Die,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    /// What works on the session, or looks at it.
    Sql(Rc<Statement>),
    /// A text that no PostgreSQL takes.
    Refused,
    /// A text that this model does not know: nobody may send one.
    Unknown,
}

/// What a client says of itself in a comment before its commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: RequestId,
    /// What it believes `application_name` to be.
    pub(crate) application_name: Option<String>,
    /// What it believes `work_mem` to be.
    pub(crate) work_mem: Option<String>,
}

/// A query text, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// Missing in queries of the pooler's own.
    pub(crate) claim: Option<Claim>,
    pub(crate) commands: Vec<Command>,
    /// All of it.
    pub(crate) source: String,
}

impl Text {
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (claim, rest) = match text
            .strip_prefix("/*")
            .and_then(|rest| rest.split_once("*/"))
        {
            Some((claim, rest)) => (Claim::parse(claim), rest),
            None => (None, text.as_ref()),
        };
        let commands = sql::split(rest).into_iter().map(str::trim);
        Self {
            claim,
            commands: commands
                .filter(|command| !command.is_empty())
                .map(Command::parse)
                .collect(),
            source: text.clone().into_owned(),
        }
    }
}

impl Claim {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let id = RequestId::find(words.next()?.as_bytes())?;
        let (mut application_name, mut work_mem) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("a", value)) => application_name = Some(value.to_owned()),
                Some(("w", value)) => work_mem = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(Self {
            id,
            application_name,
            work_mem,
        })
    }
}

impl Command {
    /// It ends a transaction: possible even in one that has failed.
    pub(crate) fn ends(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// Rows come of it.
    pub(crate) fn returns_rows(&self) -> bool {
        match self {
            Self::Rows { .. } => true,
            Self::Sql(statement) => {
                matches!(**statement, Statement::Select(_) | Statement::Show(_))
            }
            _ => false,
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        let words = text.replace(['(', ')', ','], " ");
        let mut words = words.split_ascii_whitespace();
        let first = words.next().unwrap_or_default().to_ascii_lowercase();
        let second = words.clone().next().unwrap_or_default();
        let is_call = first == "select" && matches!(second, "rows" | "slow" | "fail");
        let word = match is_call {
            true => words.next().unwrap_or_default(),
            false => &first,
        };
        let mut numbers = words.map_while(|word| word.parse::<u32>().ok());
        let mut number = || numbers.next();
        match word {
            "rows" => Self::Rows {
                count: number().unwrap_or(1),
                size: number().unwrap_or(1) as usize,
            },
            "copyout" => Self::CopyOut {
                count: number().unwrap_or(1),
                size: number().unwrap_or(1) as usize,
            },
            "copyin" => Self::CopyIn { fails_at: number() },
            "notice" => Self::Notice,
            "fail" => Self::Fail,
            "slow" => Self::Slow(number().unwrap_or(1)),
            "die" => Self::Die,
            "refused" => Self::Refused,
            // A client has gone in the middle of a message, and the pooler's farewell was taken for the rest.
            _ if text.trim_end_matches(['\0', '\u{4}']).ends_with('X') => Self::Refused,
            _ => Self::of_transaction(text),
        }
    }

    fn of_transaction(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let name = |name: &str| name.trim_matches('"').to_owned();
        match *words {
            ["begin", ..] => Self::Begin,
            ["commit"] => Self::Commit,
            ["rollback"] => Self::Rollback,
            ["savepoint", own] => Self::Savepoint(name(own)),
            ["rollback", "to", own] => Self::RollbackTo(name(own)),
            ["release", own] => Self::Release(name(own)),
            _ => match sql::parse(text) {
                Some(statement) => Self::Sql(Rc::new(statement)),
                None => Self::Unknown,
            },
        }
    }
}

/// What tells a prepared statement from all others: its text and types, in full.
pub(crate) fn signature(text: &str, types: &[u32]) -> String {
    format!("{{{text}|{types:?}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = Text::parse(b"/*c3r17 a=x-1*/ begin; rows 2 10");
        let claim = text.claim.expect("a claim");
        assert_eq!(
            (claim.id.client, claim.id.number, claim.work_mem),
            (3, 17, None)
        );
        assert_eq!(claim.application_name.as_deref(), Some("x-1"));
        assert_eq!(
            text.commands,
            [Command::Begin, Command::Rows { count: 2, size: 10 }]
        );
        let calls = Text::parse(b"select rows(2, 10) /* of a */; SELECT slow(3)");
        let rows = Command::Rows { count: 2, size: 10 };
        assert_eq!(calls.commands, [rows, Command::Slow(3)]);
        let own = Text::parse(b"SET application_name='it;''s';ROLLBACK TO \"P\"; what is it");
        let set = Statement::Set {
            local: false,
            name: "application_name".into(),
            value: Some("it;'s".into()),
        };
        let expected = [
            Command::Sql(Rc::new(set)),
            Command::RollbackTo("p".into()),
            Command::Unknown,
        ];
        assert_eq!((own.claim, own.commands), (None, expected.to_vec()));
    }
}
