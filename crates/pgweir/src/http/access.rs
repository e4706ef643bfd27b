//! The access rights of a request, which follow from its token, or from the system user at the other end of a Unix
//! socket.

use std::{collections::HashMap, fmt};

use sha2::{Digest, Sha256};

/// The smallest length of a token, in characters.
const TOKEN_MIN: usize = 16;

/// The rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Read metrics.
    Stats,
    /// Read metrics, and send commands.
    Admin,
}

/// The tokens of `http_tokens`, as hashes, so that the time of a look-up reveals nothing about the tokens.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Tokens(HashMap<[u8; 32], Role>);

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request has no token, or none that is known.
    Unknown,
    /// The token's role may not do this.
    Forbidden,
}

/// The credentials that come with a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials<'a> {
    /// The token in `Authorization: Bearer TOKEN`.
    pub(super) token: Option<&'a str>,
    /// The other end of the Unix socket is root, or the user whom pgweir runs as.
    pub(super) is_own_user: bool,
}

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// One line for each invalid token, without the token itself.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut tokens = HashMap::new();
        let mut problems = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let problem = match *words {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [role, token] if token.len() < TOKEN_MIN => {
                    let _ = (role, token);
                    format!("a token has at least {TOKEN_MIN} characters")
                }
                ["stats", token] => {
                    tokens.entry(hash(token)).or_insert(Role::Stats);
                    continue;
                }
                ["admin", token] => {
                    tokens.insert(hash(token), Role::Admin);
                    continue;
                }
                _ => "expected `stats TOKEN` or `admin TOKEN`".to_owned(),
            };
            problems.push(format!("{}: {problem}", index + 1));
        }
        match problems.is_empty() {
            true => Ok(Self(tokens)),
            false => Err(problems),
        }
    }

    fn role(&self, token: &str) -> Option<Role> {
        self.0.get(&hash(token)).copied()
    }

    /// Returns a token's role, and the name that the log uses for the token: the first digits of its hash.
    pub(super) fn find(&self, token: &str) -> Option<(Role, String)> {
        let hash = hash(token);
        let digits = hash[..4].iter().map(|byte| format!("{byte:02x}"));
        Some((*self.0.get(&hash)?, digits.collect()))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// Checks whether a request may read metrics. Without a file of tokens, every request may.
pub(super) fn may_read_metrics(
    tokens: Option<&Tokens>,
    who: Credentials<'_>,
) -> Result<(), Denied> {
    match tokens {
        None => Ok(()),
        Some(tokens) => check(tokens, who, Role::Stats),
    }
}

/// Checks whether a request may send commands.
pub(super) fn may_order(tokens: Option<&Tokens>, who: Credentials<'_>) -> Result<(), Denied> {
    check(tokens.unwrap_or(&Tokens::default()), who, Role::Admin)
}

fn check(tokens: &Tokens, who: Credentials<'_>, needed: Role) -> Result<(), Denied> {
    match who.token {
        None if who.is_own_user => Ok(()),
        None => Err(Denied::Unknown),
        Some(token) => match tokens.role(token) {
            Some(role) if role >= needed => Ok(()),
            Some(_) => Err(Denied::Forbidden),
            None => Err(Denied::Unknown),
        },
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "0123456789abcdef-stats";
    const ADMIN: &str = "0123456789abcdef-admin";

    fn who(token: Option<&str>, is_own_user: bool) -> Credentials<'_> {
        Credentials { token, is_own_user }
    }

    #[test]
    fn rights_of_tokens_and_users() {
        let text = format!("# tokens\n\nstats {STATS}\n admin\t{ADMIN} \n");
        let tokens = Tokens::parse(&text).unwrap();
        let tokens = Some(&tokens);
        assert_eq!(may_read_metrics(None, who(None, false)), Ok(()));
        assert_eq!(
            may_read_metrics(tokens, who(None, false)),
            Err(Denied::Unknown)
        );
        assert_eq!(
            may_read_metrics(tokens, who(Some("no such token"), true)),
            Err(Denied::Unknown)
        );
        assert_eq!(may_read_metrics(tokens, who(Some(STATS), false)), Ok(()));
        assert_eq!(may_read_metrics(tokens, who(Some(ADMIN), false)), Ok(()));
        assert_eq!(may_read_metrics(tokens, who(None, true)), Ok(()));
        assert_eq!(
            may_order(tokens, who(Some(STATS), false)),
            Err(Denied::Forbidden)
        );
        assert_eq!(may_order(tokens, who(Some(ADMIN), false)), Ok(()));
        assert_eq!(
            may_order(None, who(Some(ADMIN), false)),
            Err(Denied::Unknown)
        );
        assert_eq!(may_order(None, who(None, false)), Err(Denied::Unknown));
        assert_eq!(may_order(None, who(None, true)), Ok(()));
    }

    #[test]
    fn an_admin_stays_one() {
        let text = format!("admin {ADMIN}\nstats {ADMIN}\n");
        assert_eq!(Tokens::parse(&text).unwrap().role(ADMIN), Some(Role::Admin));
    }

    #[test]
    fn problems_name_the_line_and_not_the_token() {
        let text = "stats short\nowner 0123456789abcdefghi\n\nstats\nstats a b c\n";
        let problems = Tokens::parse(text).unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("1: ") && problems[2].starts_with("4: "));
        let all = problems.concat();
        assert!(
            !all.contains("short") && !all.contains("0123456789abcdefghi"),
            "{all}"
        );
    }
}
