//! The users of all pools, who become the userlist and the section `[users]`.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::ini::{Lines, userlist_line};

/// What PgCat has of a user of one pool, and pgweir of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) pool: String,
    /// `None`: as most users of the database.
    pub(super) pool_size: Option<u64>,
    pub(super) pool_mode: Option<String>,
    /// In seconds, as the ini file has it.
    pub(super) query_timeout: Option<String>,
}

/// All users.
#[derive(Default)]
pub(super) struct Users {
    secrets: BTreeMap<String, Zeroizing<String>>,
    shares: BTreeMap<String, Vec<Share>>,
    /// For the operator, in the userlist.
    remarks: Vec<String>,
}

impl Users {
    /// A user's password. One that differs from what another pool has for the same name is kept under
    /// another name, as a userlist knows one for each.
    pub(super) fn secret(&mut self, name: &str, secret: &str, pool: &str) {
        let known = self.secrets.get(name);
        if known.is_none_or(|known| known.as_str() == secret) {
            self.secrets
                .insert(name.to_owned(), Zeroizing::new(secret.to_owned()));
            return;
        }
        let other = format!("{name}@{pool}");
        self.remarks.push(format!(
            "user {name:?} has another password in {pool:?} than elsewhere. There can be one for each user: \
             this one stands here as that of {other:?}, choose"
        ));
        self.secrets
            .insert(other, Zeroizing::new(secret.to_owned()));
    }

    pub(super) fn share(&mut self, name: &str, share: Share) {
        self.shares.entry(name.to_owned()).or_default().push(share);
    }

    /// The lines of `[users]`.
    pub(super) fn section(&self) -> Lines {
        let mut lines = Lines::default();
        for (name, shares) in &self.shares {
            let mut pairs = Vec::new();
            let mut take = |key, of: &dyn Fn(&Share) -> Option<String>| {
                let first = of(&shares[0]);
                if shares.iter().any(|share| of(share) != first) {
                    let pools: Vec<_> = shares.iter().map(|share| share.pool.as_str()).collect();
                    lines.comment(&format!(
                        "{key} of user {name:?} is not the same in its databases {}: there can be one for each user",
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
                    "user {name:?} has a name that can't stand in this file"
                ));
            }
        }
        lines
    }

    /// The text of the userlist.
    pub(super) fn userlist(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for remark in &self.remarks {
            text.push_str(&format!("; {remark}\n"));
        }
        for (name, secret) in &self.secrets {
            match userlist_line(name, secret) {
                Some(line) => text.push_str(&line),
                None => text.push_str(&format!(
                    "; user {name:?}: name or password have a line break, which can't stand here\n"
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
