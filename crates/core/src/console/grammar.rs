//! The console's language: `VERB [argument] [ON ALL]` and `SET key = value`, with an optional semicolon.

/// A sentence of the language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sentence {
    /// A text of blanks and at most a semicolon.
    Empty,
    /// A verb and its argument; the argument is empty if it is left out.
    Words { verb: String, argument: String },
    /// The same, followed by `ON ALL`.
    WordsOnAll { verb: String, argument: String },
    /// `SET key = value`, or with `TO` in place of the equals sign.
    Set { key: String, value: String },
}

/// Parses a sentence; returns `None` if the text is not a sentence of the language.
pub(super) fn parse(text: &str) -> Option<Sentence> {
    let mut rest = Rest(text);
    rest.blanks();
    if rest.is_over() {
        return Some(Sentence::Empty);
    }
    let verb = rest.word()?;
    let spaced = rest.blanks();
    if rest.is_over() {
        let argument = String::new();
        return Some(Sentence::Words { verb, argument });
    }
    if !spaced {
        return None;
    }
    if rest.is_on_all() {
        let argument = String::new();
        return Some(Sentence::WordsOnAll { verb, argument });
    }
    let argument = match verb.eq_ignore_ascii_case("unban") {
        true => rest.value()?,
        false => rest.word()?,
    };
    let spaced = rest.blanks();
    if rest.is_over() {
        return Some(Sentence::Words { verb, argument });
    }
    if spaced && rest.is_on_all() {
        return Some(Sentence::WordsOnAll { verb, argument });
    }
    if !verb.eq_ignore_ascii_case("set") || !(rest.take("=") || rest.take("to")) {
        return None;
    }
    rest.blanks();
    let value = rest.value()?;
    rest.blanks();
    rest.is_over().then_some(Sentence::Set {
        key: argument,
        value,
    })
}

/// The text that has not been read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// Skips white space, and returns whether there was any.
    fn blanks(&mut self) -> bool {
        let rest = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let some = rest.len() < self.0.len();
        self.0 = rest;
        some
    }

    /// Returns whether nothing is left but a semicolon.
    fn is_over(&self) -> bool {
        let rest = self.0.strip_prefix(';').unwrap_or(self.0);
        rest.trim_start_matches([' ', '\t', '\n', '\r']).is_empty()
    }

    /// Returns whether nothing is left but `ON ALL` and a semicolon.
    fn is_on_all(&self) -> bool {
        let mut rest = Rest(self.0);
        rest.take("on") && rest.blanks() && rest.take("all") && {
            rest.blanks();
            rest.is_over()
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self
            .0
            .get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text));
        if found {
            self.0 = &self.0[text.len()..];
        }
        found
    }

    /// Reads a name: letters, digits, underscores and, within it, hyphens; or anything between double quotes.
    fn word(&mut self) -> Option<String> {
        if self.0.starts_with('"') {
            return self.quoted('"');
        }
        if self.0.starts_with('-') {
            return None;
        }
        self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    }

    /// Reads a value: between quotes of either kind, or a run of anything but blanks and quotes.
    fn value(&mut self) -> Option<String> {
        match self.0.chars().next()? {
            quote @ ('"' | '\'') => self.quoted(quote),
            _ => self.run(|c| !c.is_ascii_whitespace() && !matches!(c, '"' | '\'' | ';')),
        }
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> Option<String> {
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(end);
        self.0 = rest;
        (!run.is_empty()).then(|| run.to_owned())
    }

    /// Reads a text between quotes; a doubled quote stands for one.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.0.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            if c != quote {
                text.push(c);
            } else if chars.next_if(|&(_, next)| next == quote).is_some() {
                text.push(quote);
            } else {
                self.0 = &self.0[at + 1..];
                return Some(text);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn words(text: &str, verb: &str, argument: &str) {
        let expect = Sentence::Words {
            verb: verb.to_owned(),
            argument: argument.to_owned(),
        };
        assert_eq!(parse(text), Some(expect), "{text}");
    }

    #[track_caller]
    fn set(text: &str, key: &str, value: &str) {
        let expect = Sentence::Set {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        assert_eq!(parse(text), Some(expect), "{text}");
    }

    #[test]
    fn words_and_quotes() {
        words("pause", "pause", "");
        words("  PAUSE\t;\n", "PAUSE", "");
        words("pause app_1;", "pause", "app_1");
        words("kill_client C-0x1f", "kill_client", "C-0x1f");
        words("pause \"My \"\"own\"\" db\"", "pause", "My \"own\" db");
        words("\"pause\" \"\"", "pause", "");
    }

    #[test]
    fn on_all() {
        let check = |text: &str, verb: &str, argument: &str| {
            let expect = Sentence::WordsOnAll {
                verb: verb.to_owned(),
                argument: argument.to_owned(),
            };
            assert_eq!(parse(text), Some(expect), "{text}");
        };
        check("PAUSE ON ALL", "PAUSE", "");
        check("pause app on\tall ;", "pause", "app");
        check("pause on on all", "pause", "on");
        check("pause \"on\" on all", "pause", "on");
        check("unban 'a b' on all", "unban", "a b");
        check("set on all", "set", "");
        words("pause on", "pause", "on");
        words("pause all", "pause", "all");
        words("pause \"on all\"", "pause", "on all");
        for text in [
            "pause on allx",
            "pause app onall",
            "pause \"app\"on all",
            "pause on all on all",
            "set a = b on all",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn settings() {
        set("set a=b", "a", "b");
        set("SET a TO b ;", "a", "b");
        set("set \"a\" = \"b c\"", "a", "b c");
        set("set a = 'it''s; so'", "a", "it's; so");
        set("set a = ''", "a", "");
        set("set timeout = 0.5", "timeout", "0.5");
        set(
            "set auth_file = /etc/users.txt;",
            "auth_file",
            "/etc/users.txt",
        );
    }

    #[test]
    fn invalid_commands_are_refused() {
        for text in [
            ";;",
            "pause app now",
            "pause \"app",
            "pause app;;",
            "pause; pause",
            "'pause'",
            "pause 'app'",
            "pause\"app\"",
            "-- pause",
            "pause -- app",
            "set a = b c",
            "set a = 'b",
            "set a =",
            "let a = b",
            "pause é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        words("set a", "set", "a");
        assert_eq!(parse(" ; "), Some(Sentence::Empty));
    }
}
