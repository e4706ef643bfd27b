//! LISTEN and UNLISTEN that pgweir can carry out without a server connection for the client.

use super::{
    NAME_MAX,
    lexer::{Kind, Lexer},
    phrase::identifier,
};
use crate::session::word_list::{is_any, words};

/// Longer texts are sent to the server.
const TEXT_MAX: usize = 256;

/// Key words that PostgreSQL 14 to 18 accepts as the name of a channel only if they are quoted: the reserved ones,
/// including those that functions and types may have as their names.
const NOT_NAMES: [&str; 101] = words(
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check \
     collate collation column concurrently constraint create cross current_catalog current_date \
     current_role current_schema current_time current_timestamp current_user default deferrable \
     desc distinct do else end except false fetch for foreign freeze from full grant group having \
     ilike in initially inner intersect into is isnull join lateral leading left like limit \
     localtime localtimestamp natural not notnull null offset on only or order outer overlaps \
     placing primary references returning right select session_user similar some symmetric \
     system_user table tablesample then to trailing true union unique user using variadic verbose \
     when where window with",
);

/// The change that a text makes to the channels of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelCommand {
    /// LISTEN of a channel, by its name.
    Listen(Vec<u8>),
    /// UNLISTEN of a channel, or of all.
    Unlisten(Option<Vec<u8>>),
}

impl ChannelCommand {
    /// Returns the text's command, if the text is one LISTEN or UNLISTEN that PostgreSQL accepts without a notice or an
    /// error, and nothing else: the name is in ASCII, neither empty nor too long, and not a key word.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_MAX || !text.is_ascii() {
            return None;
        }
        let mut lexer = Lexer::new(text);
        let verb = lexer.next();
        let object = lexer.next();
        let mut last = lexer.next();
        if last.kind == Kind::Semicolon {
            last = lexer.next();
        }
        if verb.kind != Kind::Word || last.kind != Kind::End {
            return None;
        }
        let name = match object.kind {
            Kind::Other(b'*') => None,
            _ => {
                let name = identifier(&lexer, object)?;
                let is_key_word = object.kind == Kind::Word && is_any(&name, &NOT_NAMES);
                // A truncated name is as long as the longest one.
                let fits = (1..NAME_MAX).contains(&name.len());
                Some(name.into_owned())
                    .filter(|_| fits && !is_key_word)?
                    .into()
            }
        };
        match (lexer.bytes(verb).to_ascii_lowercase().as_slice(), name) {
            (b"listen", Some(name)) => Some(Self::Listen(name)),
            (b"unlisten", name) => Some(Self::Unlisten(name)),
            _ => None,
        }
    }

    /// Returns the tag of CommandComplete.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Listen(_) => "LISTEN",
            Self::Unlisten(_) => "UNLISTEN",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<ChannelCommand>) {
        assert_eq!(ChannelCommand::read(text.as_bytes()), expect, "{text}");
    }

    #[test]
    fn one_command() {
        let listen = |name: &str| Some(ChannelCommand::Listen(name.into()));
        let unlisten = |name: &str| Some(ChannelCommand::Unlisten(Some(name.into())));
        check("LISTEN News", listen("news"));
        check(" listen /* so */ \"A b\"\"c\" ; -- it", listen("A b\"c"));
        check("LISTEN \"select\"", listen("select"));
        check("listen name", listen("name"));
        check("UNLISTEN news", unlisten("news"));
        check("unlisten *;", Some(ChannelCommand::Unlisten(None)));
    }

    #[test]
    fn texts_that_the_server_has_to_run() {
        for text in [
            "",
            "LISTEN",
            "LISTEN *",
            "LISTEN a b",
            "LISTEN a; LISTEN b",
            "LISTEN a;;LISTEN b",
            "LISTEN select",
            "LISTEN User",
            "LISTEN \"\"",
            "LISTEN 'a'",
            "LISTEN a.b",
            "LISTEN $1",
            "LISTEN U&\"a\"",
            "LISTEN \u{e4}",
            "\"listen\" a",
            "NOTIFY a",
            "UNLISTEN",
        ] {
            check(text, None);
        }
        check(&format!("LISTEN {}", "a".repeat(64)), None);
    }
}
