//! Lines of an ini file and of a userlist, with the necessary quotes.

use zeroize::Zeroizing;

/// Lines of one section.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<String>);

impl Lines {
    /// Adds a comment for the operator. `text` must not contain values of settings, since they may be secret.
    pub(super) fn comment(&mut self, text: &str) {
        let one_line: String = text
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        self.0.push(format!("; {one_line}"));
    }

    /// Adds `key = value`. Adds nothing and returns `false` if an ini file can't represent the value.
    pub(super) fn setting(&mut self, key: &str, value: &str) -> bool {
        let is_representable = !value.chars().any(char::is_control) && !value.ends_with('\\');
        if is_representable {
            self.0.push(format!("{key} = {value}"));
        }
        is_representable
    }

    /// Adds an entry of `[databases]` or `[users]`. Adds nothing and returns `false` if an ini file can't represent it.
    pub(super) fn entry(&mut self, name: &str, pairs: &[(&str, String)]) -> bool {
        let texts = || std::iter::once(name).chain(pairs.iter().map(|(_, value)| value.as_str()));
        if texts().any(|text| text.is_empty() || text.chars().any(char::is_control)) {
            return false;
        }
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| format!("{key}={}", quoted(value)))
            .collect();
        self.0
            .push(format!("{} = {}", quoted_name(name), pairs.join(" ")));
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the section's text.
    pub(super) fn section(&self, name: &str) -> String {
        format!("[{name}]\n{}\n", self.0.join("\n"))
    }
}

/// Quotes a value of an entry, if necessary.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-/,:@".contains(c);
    match value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "''")),
    }
}

/// Quotes a name of an entry, if necessary.
fn quoted_name(name: &str) -> String {
    match name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Returns a line of the userlist, or `None` if a userlist can't represent the name or the secret.
pub(super) fn userlist_line(user: &str, secret: &str) -> Option<Zeroizing<String>> {
    let forbidden = |text: &str| text.contains(['\n', '\r', '\0']);
    if forbidden(user) || forbidden(secret) {
        return None;
    }
    let doubled = |text: &str| Zeroizing::new(text.replace('"', "\"\""));
    let (user, secret) = (doubled(user), doubled(secret));
    Some(Zeroizing::new(format!("\"{}\" \"{}\"\n", *user, *secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted() {
        let mut lines = Lines::default();
        assert!(lines.entry(
            "a b",
            &[
                ("host", "10.0.0.1,db-2".to_owned()),
                ("user", "it's".to_owned())
            ]
        ));
        assert!(lines.setting("listen_addr", "*"));
        assert_eq!(
            lines.section("x"),
            "[x]\n\"a b\" = host=10.0.0.1,db-2 user='it''s'\nlisten_addr = *\n"
        );
        for bad in ["a\nb", "a\\"] {
            assert!(!lines.setting("logfile", bad));
        }
        assert!(!lines.entry("a", &[("host", "a\nauth_type = any".to_owned())]));
        lines.comment("a\nauth_type = any");
        assert!(lines.section("x").ends_with("; a?auth_type = any\n"));
    }

    #[test]
    fn users_are_quoted() {
        let line = userlist_line("a\"b", "c\"").expect("representable");
        assert_eq!(*line, "\"a\"\"b\" \"c\"\"\"\n");
        assert_eq!(userlist_line("a", "b\nc"), None);
    }
}
