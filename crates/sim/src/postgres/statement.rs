//! The little language that the model PostgreSQL speaks: enough to begin, end, fail and set, and
//! to return as much as wanted.

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
    Set {
        name: String,
        value: String,
    },
    Notice,
    Fail,
    /// Takes so many steps, and can be cancelled.
    Slow(u32),
    /// The server says FATAL and goes.
    Die,
    DiscardAll,
    DeallocateAll,
    /// Which settings are not those of the beginning.
    Probe,
    /// `set_config`, several times.
    SetConfig(Vec<(String, String)>),
    /// RESET of a parameter, or of all.
    Reset(Option<String>),
    /// Of cleaning: there is nothing of this kind here.
    Clean,
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
        let commands = rest.split(';').map(str::trim);
        Self {
            claim,
            commands: commands
                .filter(|command| !command.is_empty())
                .map(Command::parse)
                .collect(),
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
        matches!(self, Self::Commit | Self::Rollback)
    }

    /// `pg_catalog.set_config('name','value',false),...`
    fn set_config(text: &str) -> Self {
        let calls = text.split("pg_catalog.set_config(").skip(1);
        let pairs: Option<Vec<_>> = calls
            .map(|call| {
                let (name, rest) = call.strip_prefix('\'')?.split_once("','")?;
                let (value, _) = rest.rsplit_once("',false)")?;
                Some((name.to_owned(), value.replace("''", "'")))
            })
            .collect();
        match pairs {
            Some(pairs) if !pairs.is_empty() => Self::SetConfig(pairs),
            _ => Self::Unknown,
        }
    }

    fn parse(text: &str) -> Self {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u32>().ok());
        let mut number = || numbers.next().unwrap_or(1);
        match word.to_ascii_lowercase().as_str() {
            "begin" => Self::Begin,
            "commit" => Self::Commit,
            "rollback" => Self::Rollback,
            "rows" => Self::Rows {
                count: number(),
                size: number() as usize,
            },
            "copyout" => Self::CopyOut {
                count: number(),
                size: number() as usize,
            },
            "copyin" => Self::CopyIn {
                fails_at: rest.parse().ok(),
            },
            "notice" => Self::Notice,
            "fail" => Self::Fail,
            "slow" => Self::Slow(number()),
            "die" => Self::Die,
            "discard" if rest == "ALL" || rest == "all" => Self::DiscardAll,
            "deallocate" => Self::DeallocateAll,
            "discard" | "close" | "unlisten" => Self::Clean,
            "reset" if rest == "ROLE" || rest == "SESSION AUTHORIZATION" => Self::Clean,
            "reset" if rest == "ALL" => Self::Reset(None),
            "reset" => Self::Reset(Some(rest.trim_matches('"').to_owned())),
            "select" if rest.contains("THEN 's' ELSE 'g' END") => Self::Probe,
            "select" if rest.contains("advisory_unlock_all") => Self::Clean,
            "select" => Self::set_config(rest),
            "set" if rest.starts_with("TRANSACTION ") => Self::Clean,
            "set" => match rest.split_once('=') {
                Some((name, value)) => Self::Set {
                    name: name.trim().to_owned(),
                    value: value.trim().trim_matches('\'').replace("''", "'"),
                },
                None => Self::Unknown,
            },
            _ => Self::Unknown,
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
        let own = Text::parse(b"SET application_name='it''s';SET TimeZone='UTC';");
        let set = |name: &str, value: &str| Command::Set {
            name: name.into(),
            value: value.into(),
        };
        assert_eq!(
            (own.claim, own.commands),
            (
                None,
                vec![set("application_name", "it's"), set("TimeZone", "UTC")]
            )
        );
    }
}
