//! The tokens of HTTP requests (`http_tokens`), and their rights.

use std::{collections::HashMap, fmt};

use sha2::{Digest, Sha256};

/// The smallest length of a token, in characters.
const TOKEN_MIN: usize = 16;

/// The rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read metrics.
    Stats,
    /// Read metrics, and send commands.
    Admin,
}

/// The tokens of `http_tokens`, as hashes, so that the time of a look-up reveals nothing about the tokens.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(HashMap<[u8; 32], Role>);

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// One line for each invalid token, without the token itself.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut tokens = HashMap::new();
        let mut problems = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let problem = match *words {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [_, token] if token.len() < TOKEN_MIN => {
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

    /// Returns a token's role, if the token is known.
    #[must_use]
    pub fn role(&self, token: &str) -> Option<Role> {
        self.0.get(&hash(token)).copied()
    }

    /// Returns a token's role, and the name that the log uses for the token: the first digits of its hash.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<(Role, String)> {
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

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "0123456789abcdef-admin";

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
