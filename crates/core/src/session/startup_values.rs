//! What a client's texts take back to its startup values.
//!
//! Servers are lent without these as their defaults, so what RESET brings there is not what the client
//! would have of PostgreSQL.

use super::{
    Settings,
    plan::is_who,
    quote,
    scan::{Discard, Phrase, phrases},
};

/// Parameters with startup values that texts have taken back since the session was last judged.
#[derive(Debug, Default)]
pub struct TakenBack {
    names: Vec<Taken>,
    /// What was done last was undone.
    undone: bool,
    /// A text that was not held as a whole may have taken back any of them.
    unread: bool,
}

#[derive(Debug)]
struct Taken {
    /// In lower case.
    name: Box<[u8]>,
    /// For the transaction only.
    local: bool,
    /// The text that was to do it may have done it: one that is made, or bound, is not yet executed.
    executed: bool,
    /// The transaction that did it is over.
    certain: bool,
}

/// Lists of names, each of which is quoted for itself.
const LISTS: [&[u8]; 4] = [
    b"search_path",
    b"temp_tablespaces",
    b"local_preload_libraries",
    b"session_preload_libraries",
];

impl TakenBack {
    /// A text goes to the server, whose client has these startup values. `true` if it takes some away.
    #[cold]
    pub fn note(&mut self, text: &[u8], base: &Settings) -> bool {
        let mut takes = false;
        let mut insert = |taken: &mut Self, name: &[u8], local: bool| {
            takes |= taken.insert(name, local, base);
        };
        for phrase in phrases(text) {
            match phrase {
                Phrase::Reset(name) => insert(self, &name, false),
                Phrase::Set {
                    name,
                    local,
                    to_default: true,
                } => insert(self, &name, local),
                Phrase::Set { name, .. } | Phrase::SetConfig(Some(name)) => self.remove(&name),
                Phrase::ResetAll | Phrase::Discard(Discard::All) => {
                    for (name, _) in base.iter().filter(|(name, _)| !is_who(name)) {
                        insert(self, name, false);
                    }
                }
                _ => {}
            }
        }
        takes
    }

    fn insert(&mut self, name: &[u8], local: bool, base: &Settings) -> bool {
        let name = name.to_ascii_lowercase().into_boxed_slice();
        if base.get(&name).is_none() {
            return false;
        }
        self.remove(&name);
        self.names.push(Taken {
            name,
            local,
            executed: false,
            certain: false,
        });
        true
    }

    fn remove(&mut self, name: &[u8]) {
        self.names
            .retain(|taken| !taken.name.eq_ignore_ascii_case(name));
    }

    /// A command with this tag was completed: `ROLLBACK` has undone what was done before it, and `DISCARD
    /// ALL` is a transaction of its own.
    pub fn completed(&mut self, tag: &[u8]) {
        self.undone = tag == b"ROLLBACK";
        let ends = matches!(tag, b"COMMIT" | b"DISCARD ALL");
        let executes = matches!(tag, b"RESET" | b"SET" | b"DISCARD ALL");
        for taken in &mut self.names {
            taken.executed |= executes;
            taken.certain |= ends && taken.executed && !taken.local;
        }
    }

    /// Something has failed.
    pub fn failed(&mut self) {
        self.undone = true;
    }

    /// A transaction is over.
    #[inline]
    pub fn settle(&mut self) {
        let undone = std::mem::take(&mut self.undone);
        self.names
            .retain(|taken| taken.certain || !undone && !taken.local);
        for taken in &mut self.names {
            taken.certain = true;
        }
    }

    /// Was this parameter, in lower case, taken back for the session, as far as is known?
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.unread || self.names.iter().any(|taken| *taken.name == *name)
    }

    /// A text that is not held as a whole has a word by which it may take startup values back.
    pub fn note_unread(&mut self) {
        self.unread = true;
    }

    /// Was nothing taken back?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.unread
    }

    /// The session has been judged.
    #[inline]
    pub fn clear(&mut self) {
        self.names.clear();
        self.undone = false;
        self.unread = false;
    }

    /// Within a transaction: what brings the startup values to the server before the client looks.
    #[must_use]
    pub fn take_statements(&mut self, base: &Settings) -> Option<Vec<u8>> {
        // Who one is comes last: other settings are made with the rights that there are now.
        self.names.sort_by_key(|taken| is_who(&taken.name));
        let executed = self.names.iter();
        let executed = executed.filter(|taken| taken.executed && !self.undone);
        let executed = executed.filter_map(|taken| Some(statement(taken, base.get(&taken.name)?)));
        let text: Vec<u8> = executed.flatten().collect();
        self.names.retain(|taken| taken.certain);
        (!text.is_empty()).then_some(text)
    }
}

/// SET may come before `SET TRANSACTION`, which a query may not. But it takes the names in a list one by
/// one, and writes the list anew; and outside of a transaction block SET LOCAL warns.
fn statement(taken: &Taken, value: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let is_list = LISTS.contains(&&*taken.name) && !value.is_empty();
    if is_list && written_anew(value) != value {
        text.extend_from_slice(b"SELECT pg_catalog.set_config(");
        quote::literal_of_bytes(&mut text, &taken.name);
        text.push(b',');
        quote::literal_of_bytes(&mut text, value);
        let end: &[u8] = if taken.local { b",true);" } else { b",false);" };
        text.extend_from_slice(end);
        return text;
    }
    text.extend_from_slice(if taken.local { b"SET LOCAL " } else { b"SET " });
    quote::parameter(&mut text, &taken.name);
    text.extend_from_slice(b" TO ");
    if is_list {
        for (at, name) in names(value).enumerate() {
            text.extend_from_slice(if at == 0 { b"" } else { b"," });
            quote::literal_of_bytes(&mut text, &name);
        }
    } else {
        quote::literal_of_bytes(&mut text, value);
    }
    text.push(b';');
    text
}

/// As PostgreSQL writes a list of names, keywords excepted.
fn written_anew(list: &[u8]) -> Vec<u8> {
    let is_plain = |name: &[u8]| {
        let starts = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
        name.first().is_some_and(starts)
            && name
                .iter()
                .all(|byte| starts(byte) || byte.is_ascii_digit())
    };
    let mut made = Vec::with_capacity(list.len());
    for (at, name) in names(list).enumerate() {
        made.extend_from_slice(if at == 0 { b"" } else { b", " });
        if is_plain(&name) {
            made.extend_from_slice(&name);
        } else {
            quote::identifier(&mut made, &name);
        }
    }
    made
}

/// The names in a list of them, of which some are in double quotes.
fn names(list: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let mut bytes = rest?.trim_ascii_start();
        let mut name = Vec::new();
        if let Some(quoted) = bytes.strip_prefix(b"\"") {
            bytes = quoted;
            while let Some((&byte, after)) = bytes.split_first() {
                bytes = after;
                match (byte, bytes.strip_prefix(b"\"")) {
                    (b'"', Some(after)) => bytes = after,
                    (b'"', None) => break,
                    _ => {}
                }
                name.push(byte);
            }
        } else {
            let end = bytes.iter().position(|&byte| byte == b',');
            let (plain, after) = bytes.split_at(end.unwrap_or(bytes.len()));
            name.extend(plain.trim_ascii_end().to_ascii_lowercase());
            bytes = after;
        }
        rest = bytes.trim_ascii_start().strip_prefix(b",");
        Some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::SettingsTable;
    use super::*;

    fn base() -> Settings {
        SettingsTable::default().intern([
            ("app.a", "x"),
            ("datestyle", "German, DMY"),
            ("role", "r"),
            ("search_path", r#""$user", "We "" ird", public"#),
            ("temp_tablespaces", "one,Two"),
        ])
    }

    #[track_caller]
    fn check(texts: &[&str], expect: &str) {
        let base = base();
        let mut taken = TakenBack::default();
        for text in texts {
            taken.note(text.as_bytes(), &base);
        }
        taken.settle();
        let found = base.iter().filter(|(name, _)| taken.contains(name));
        let found: Vec<_> = found
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect();
        assert_eq!(found.join(" "), expect, "{texts:?}");
    }

    #[test]
    fn texts() {
        check(&["RESET App.A"], "app.a");
        check(&["RESET ROLE"], "role");
        check(&["SET SESSION app.a TO DEFAULT; SELECT 1"], "app.a");
        check(&["SET LOCAL app.a TO DEFAULT"], "");
        check(
            &["RESET ALL"],
            "app.a datestyle search_path temp_tablespaces",
        );
        check(
            &["DISCARD ALL", "SET app.a = ''"],
            "datestyle search_path temp_tablespaces",
        );
        check(&["RESET app.a; SELECT set_config('app.a', '', false)"], "");
        check(&["RESET app.b", "SELECT 'RESET app.a'"], "");
    }

    #[test]
    fn undone() {
        let base = base();
        let mut taken = TakenBack::default();
        taken.note(b"RESET app.a", &base);
        taken.completed(b"ROLLBACK");
        taken.completed(b"RESET");
        taken.settle();
        taken.failed();
        taken.settle();
        assert!(taken.contains(b"app.a"), "that was another transaction");
        taken.clear();
        taken.note(b"RESET app.a", &base);
        taken.completed(b"RESET");
        taken.completed(b"ROLLBACK");
        taken.settle();
        assert!(taken.is_empty());
        taken.note(b"RESET app.a", &base);
        taken.completed(b"RESET");
        taken.completed(b"COMMIT");
        taken.failed();
        taken.settle();
        assert!(taken.contains(b"app.a"), "what failed came behind it");
        taken.clear();
        taken.note_unread();
        assert!(taken.contains(b"app.a"), "it may have been");
    }

    #[test]
    fn within_a_transaction() {
        let base = base();
        let check = |texts: &str, expect: Option<&str>| {
            let mut taken = TakenBack::default();
            taken.note(texts.as_bytes(), &base);
            taken.completed(b"SET");
            let found = taken.take_statements(&base);
            let found = found.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(found.as_deref(), expect, "{texts}");
            assert!(taken.is_empty());
        };
        check("RESET work_mem", None);
        check(
            "RESET ROLE; SET LOCAL app.a TO DEFAULT",
            Some(r#"SET LOCAL "app"."a" TO 'x';SET "role" TO 'r';"#),
        );
        check(
            "RESET search_path",
            Some(r#"SET "search_path" TO '$user','We " ird','public';"#),
        );
        check(
            "SET LOCAL temp_tablespaces TO DEFAULT",
            Some("SELECT pg_catalog.set_config('temp_tablespaces','one,Two',true);"),
        );
        let mut taken = TakenBack::default();
        taken.note(b"RESET datestyle", &base);
        taken.failed();
        assert_eq!(taken.take_statements(&base), None);
        let mut taken = TakenBack::default();
        taken.note(b"RESET datestyle", &base);
        assert_eq!(taken.take_statements(&base), None, "it was not executed");
    }
}
