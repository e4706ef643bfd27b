//! Converts the users of all pools to the userlist and the section `[users]`.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::lines::{Lines, userlist_line};

/// Settings that PgCat has per user and pool, and pgweir per user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) pool: String,
    /// `None`: the size that most users of the pool have.
    pub(super) pool_size: Option<u64>,
    pub(super) pool_mode: Option<String>,
    /// In seconds, as text for the ini file.
    pub(super) query_timeout: Option<String>,
}

/// All users.
#[derive(Default)]
pub(super) struct Users {
    secrets: BTreeMap<String, Zeroizing<String>>,
    shares: BTreeMap<String, Vec<Share>>,
    /// Comments for the operator in the userlist.
    remarks: Vec<String>,
}

impl Users {
    /// Adds a user's password. A userlist has one password per user: if another pool has a different one, this one is
    /// added under another name, with a comment.
    pub(super) fn secret(&mut self, name: &str, secret: &str, pool: &str) {
        let known = self.secrets.get(name);
        if known.is_none_or(|known| known.as_str() == secret) {
            self.secrets
                .insert(name.to_owned(), Zeroizing::new(secret.to_owned()));
            return;
        }
        let other = format!("{name}@{pool}");
        self.remarks.push(format!(
            "user {name:?} has another password in {pool:?} than in other pools. A userlist has one password per user: \
             {other:?} has this one, choose"
        ));
        self.secrets
            .insert(other, Zeroizing::new(secret.to_owned()));
    }

    pub(super) fn share(&mut self, name: &str, share: Share) {
        self.shares.entry(name.to_owned()).or_default().push(share);
    }

    /// Returns the lines of `[users]`.
    pub(super) fn section(&self) -> Lines {
        let mut lines = Lines::default();
        for (name, shares) in &self.shares {
            let mut pairs = Vec::new();
            let mut take = |key, of: &dyn Fn(&Share) -> Option<String>| {
                let first = of(&shares[0]);
                if shares.iter().any(|share| of(share) != first) {
                    let pools: Vec<_> = shares.iter().map(|share| share.pool.as_str()).collect();
                    lines.comment(&format!(
                        "{key} of user {name:?} differs between the databases {}: here a user has one value",
                        pools.join(", ")
                    ));
                } else if let Some(value) = first {
                    pairs.push((key, value));
                }
            };
            take("pool_size", &|share| {
                share.pool_size.map(|size| size.to_string())
            });
            take("pool_mode", &|share| share.pool_mode.clone());
            take("query_timeout", &|share| share.query_timeout.clone());
            if !pairs.is_empty() && !lines.entry(name, &pairs) {
                lines.comment(&format!(
                    "user {name:?}: an ini file can't represent the name"
                ));
            }
        }
        lines
    }

    /// Returns the text of the userlist.
    pub(super) fn userlist(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for remark in &self.remarks {
            text.push_str(&format!("; {remark}\n"));
        }
        for (name, secret) in &self.secrets {
            match userlist_line(name, secret) {
                Some(line) => text.push_str(&line),
                None => text.push_str(&format!(
                    "; user {name:?}: a userlist can't represent a line break in a name or password\n"
                )),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_lost() {
        let mut users = Users::default();
        users.secret("app", "one", "a");
        users.secret("app", "one", "b");
        users.secret("app", "two", "c");
        let text = users.userlist();
        assert!(
            text.contains("\"app\" \"one\"\n\"app@c\" \"two\"\n"),
            "{}",
            *text
        );
        let comments: Vec<_> = text.lines().filter(|line| line.starts_with(';')).collect();
        assert_eq!(comments.len(), 1);
        assert!(!comments[0].contains("two"));
    }
}
