//! The language of the model: commands that fail, or return a given amount of data, and SQL on session state.

use std::rc::Rc;

use super::sql::{self, Statement};
use crate::checks::RequestId;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Begin,
    Commit,
    Rollback,
    /// Returns this number of rows of this number of bytes.
    Rows {
        count: u32,
        size: usize,
    },
    CopyOut {
        count: u32,
        size: usize,
    },
    /// COPY FROM STDIN, which fails after this number of pieces of data.
    CopyIn {
        fails_at: Option<u32>,
    },
    Notice,
    Fail,
    /// Takes this number of steps, and can be cancelled.
    Slow(u32),
    /// The server sends FATAL and closes the connection.
    Die,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    /// A statement that changes or reads session state.
    Sql(Rc<Statement>),
    /// Returns the number of connections that are left for pgweir.
    UsableConnections,
    /// A text that PostgreSQL refuses.
    Refused,
    /// A text that the model does not know. Neither the pooler nor a client may send such a text.
    Unknown,
}

/// The claims of a client about itself, in a comment before its commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: RequestId,
    /// The value of `application_name` that the client expects.
    pub(crate) application_name: Option<String>,
    /// The value of `work_mem` that the client expects.
    pub(crate) work_mem: Option<String>,
}

/// The text of a query, and its parsed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// The client's claims; `None` in the pooler's own queries.
    pub(crate) claim: Option<Claim>,
    pub(crate) commands: Vec<Command>,
    /// The whole text.
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
    /// Returns whether the command ends a transaction, which is possible even in a failed one.
    pub(crate) fn ends(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// Returns whether the command returns rows.
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
            // A client has disconnected in the middle of a message, and the pooler's Terminate was taken for the rest.
            _ if text.trim_end_matches(['\0', '\u{4}']).ends_with('X') => Self::Refused,
            _ => Self::of_transaction(text),
        }
    }

    fn of_transaction(text: &str) -> Self {
        if text.contains("current_setting('max_connections')") {
            return Self::UsableConnections;
        }
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

/// Returns the text that identifies a prepared statement: its whole text and its types.
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
