//! The keys and values of entries of `[databases]` and `[users]` in etcd (`config_etcd`).

use pgweir_config::{Changes, Scope, Secret, entry_pairs};

/// The value of a key that removes the entry of the ini file.
const REMOVED: &str = "removed";

/// The key that each change by the HTTP API writes. If it is there, an empty list of entries is not a loss.
const IN_USE: &str = "in-use";

/// The keys of a fleet's entries.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

/// The meaning of a key and its value.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning {
    /// An entry; without a text, the ini file's entry is removed.
    Entry(Scope, String, Option<Secret>),
    /// The mark that the keys are in use.
    InUse,
}

impl Keys {
    /// `name`: `fleet_name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            prefix: format!("/pgweir-config/{name}/"),
        }
    }

    /// Returns the text that all keys begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the key that comes first after all of them.
    #[must_use]
    pub fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.as_bytes().to_vec();
        // The prefix ends with `/`, which `0` follows.
        end.pop();
        end.push(b'0');
        end
    }

    /// Returns the key of an entry.
    #[must_use]
    pub fn of_entry(&self, scope: Scope, name: &str) -> String {
        format!("{}{}/{name}", self.prefix, scope.section())
    }

    /// Returns the key that marks the others as used.
    #[must_use]
    pub fn in_use(&self) -> String {
        format!("{}{IN_USE}", self.prefix)
    }

    /// Returns the meaning of a key and its value.
    ///
    /// # Errors
    /// The problem, for the log. It never contains the value.
    pub fn meaning(&self, key: &[u8], value: &[u8]) -> Result<Meaning, String> {
        let shown = String::from_utf8_lossy(key).escape_debug().to_string();
        let rest = str::from_utf8(key).ok();
        let rest = rest.and_then(|key| key.strip_prefix(&self.prefix));
        let wrong_key = || {
            format!(
                "{shown}: expected {0}databases/DATABASE or {0}users/USER",
                self.prefix
            )
        };
        let rest = rest.ok_or_else(wrong_key)?;
        if rest == IN_USE {
            return Ok(Meaning::InUse);
        }
        let (section, name) = rest.split_once('/').ok_or_else(wrong_key)?;
        let scope = Changes::SCOPES
            .into_iter()
            .find(|scope| scope.section() == section);
        let scope = scope
            .filter(|_| !name.is_empty() && !name.contains(char::is_control))
            .ok_or_else(wrong_key)?;
        let text = str::from_utf8(value).ok();
        // In `api_config_file`, a backslash at the end would join the entry with the next one. Blanks behind the backslash
        // are lost when the file is read.
        let is_one_line =
            |text: &&str| !text.contains(char::is_control) && !text.trim_end().ends_with('\\');
        let text = text.filter(is_one_line);
        let text = text.ok_or_else(|| {
            format!(
                "{shown}: expected one line in UTF-8, like an entry of the ini file, without a backslash at its end"
            )
        })?;
        if text == REMOVED {
            return Ok(Meaning::Entry(scope, name.to_owned(), None));
        }
        if let Some(key) = secret_key(scope, text) {
            return Err(format!(
                "{shown}: \"{key}\" must not be in etcd: put passwords into auth_file"
            ));
        }
        Ok(Meaning::Entry(
            scope,
            name.to_owned(),
            Some(Secret::new(text)),
        ))
    }
}

/// Returns the value of an entry's key.
#[must_use]
pub fn value_of(text: Option<&Secret>) -> &str {
    text.map_or(REMOVED, Secret::expose)
}

/// Returns the first setting in an entry's text that is a secret.
#[must_use]
pub fn secret_key(scope: Scope, text: &str) -> Option<String> {
    let pairs = entry_pairs(text).ok()?;
    let mut keys = pairs.into_iter().map(|(key, _)| key);
    keys.find(|key| scope.is_secret(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        let keys = Keys::new("main");
        let key = keys.of_entry(Scope::Database, "a/b \"c\"");
        assert_eq!(key, "/pgweir-config/main/databases/a/b \"c\"");
        assert!(key.as_bytes() < keys.end().as_slice());
        let text = "host=10.0.0.7 dbname=app";
        let entry = |scope, name: &str, text: Option<&str>| {
            Ok(Meaning::Entry(
                scope,
                name.to_owned(),
                text.map(Secret::new),
            ))
        };
        assert_eq!(
            keys.meaning(key.as_bytes(), text.as_bytes()),
            entry(Scope::Database, "a/b \"c\"", Some(text))
        );
        let user = keys.of_entry(Scope::User, "*");
        assert_eq!(
            keys.meaning(user.as_bytes(), b"removed"),
            entry(Scope::User, "*", None)
        );
        assert_eq!(value_of(None), "removed");
        assert_eq!(
            keys.meaning(keys.in_use().as_bytes(), b""),
            Ok(Meaning::InUse)
        );
    }

    #[test]
    fn wrong_ones_are_named_without_their_values() {
        let keys = Keys::new("main");
        for (key, value) in [
            ("/pgweir-config/main/databases", "host=hidden"),
            ("/pgweir-config/main/databases/", "host=hidden"),
            ("/pgweir-config/main/peers/1", "host=hidden"),
            ("/pgweir-config/other/databases/app", "host=hidden"),
            ("/pgweir-config/main/databases/a\nb", "host=hidden"),
            ("/pgweir-config/main/databases/app", "host=hidden\nx = y"),
            ("/pgweir-config/main/databases/app", "host=hidden\\"),
            ("/pgweir-config/main/databases/app", "password=hidden"),
            (
                "/pgweir-config/main/databases/app",
                "host=a password='hidden'",
            ),
        ] {
            let wrong = keys.meaning(key.as_bytes(), value.as_bytes());
            let wrong = wrong.expect_err(key);
            assert!(
                !wrong.contains("hidden") && !wrong.contains('\n'),
                "{wrong}"
            );
        }
        keys.meaning(b"/pgweir-config/main/databases/app", b"host=\xff")
            .expect_err("not UTF-8");
    }
}
