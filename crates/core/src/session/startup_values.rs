//! What a client's texts take back to its startup values.
//!
//! Servers are lent without these as their defaults, so what RESET brings there is not what the client
//! would have of PostgreSQL.

mod insertions;

pub use insertions::Insertions;

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
    /// The last text was `DISCARD ALL`: a transaction of its own, whatever comes behind it.
    discards: bool,
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
    /// The startup value has come back within the same request.
    restored: bool,
    /// So many requests are answered before the one that does it: what becomes of those is nothing to it.
    ahead: usize,
}

/// Lists of names, each of which is quoted for itself.
const LISTS: [&[u8]; 4] = [
    b"search_path",
    b"temp_tablespaces",
    b"local_preload_libraries",
    b"session_preload_libraries",
];

impl TakenBack {
    /// A text goes to the server, whose client has these startup values, behind so many requests that are
    /// still to be answered. `true` if it takes some away.
    #[cold]
    pub fn note(&mut self, text: &[u8], base: &Settings, ahead: usize) -> bool {
        let mut takes = false;
        let mut insert = |taken: &mut Self, name: &[u8], local: bool| {
            takes |= taken.insert(name, local, base, ahead);
        };
        self.discards = false;
        for phrase in phrases(text) {
            self.discards |= phrase == Phrase::Discard(Discard::All);
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

    fn insert(&mut self, name: &[u8], local: bool, base: &Settings, ahead: usize) -> bool {
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
            restored: false,
            ahead,
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
        let discards = tag == b"DISCARD ALL";
        if discards || matches!(tag, b"RESET" | b"SET") {
            for taken in self.names.iter_mut().filter(|taken| taken.ahead == 0) {
                taken.executed = true;
                taken.certain |= discards && !taken.local;
            }
        }
    }

    /// Was the last text `DISCARD ALL`?
    #[must_use]
    pub fn discards(&self) -> bool {
        self.discards
    }

    /// Was something executed, in the request that is being sent, that is to be made good?
    #[must_use]
    pub fn is_due(&self) -> bool {
        let is_due = |taken: &Taken| taken.executed && !taken.restored;
        let mut names = self.names.iter();
        names.any(|taken| is_due(taken) && (self.discards || !taken.certain))
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
            .retain(|taken| taken.ahead > 0 || taken.certain || !undone && !taken.local);
        for taken in self.names.iter_mut().filter(|taken| taken.ahead == 0) {
            taken.certain = true;
            taken.restored &= !undone;
        }
    }

    /// A request was answered; there are so many left.
    pub fn answered(&mut self, left: usize) {
        for taken in &mut self.names {
            taken.ahead = taken.ahead.saturating_sub(1).min(left);
        }
    }

    /// Was this parameter, in lower case, taken back for the session?
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.names.iter().any(|taken| *taken.name == *name)
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
        self.discards = false;
        self.unread = false;
    }

    /// Within a transaction: what brings the startup values to the server before the client looks.
    #[must_use]
    pub fn take_statements(&mut self, base: &Settings) -> Option<Vec<u8>> {
        let statements = if self.undone {
            Vec::new()
        } else {
            self.statements(base, false)
        };
        self.names.retain(|taken| taken.certain);
        (!statements.is_empty()).then(|| statements.concat())
    }

    /// What the text that is being sent takes away comes back within it.
    pub fn restored(&mut self) {
        for taken in &mut self.names {
            taken.restored |= !taken.certain;
        }
    }

    /// What was executed of the request that is being sent is made good within it, one by one.
    #[must_use]
    pub fn take_statements_within(&mut self, base: &Settings) -> Vec<Vec<u8>> {
        let statements = self.statements(base, true);
        for taken in &mut self.names {
            taken.restored |= taken.executed && !taken.certain;
        }
        statements
    }

    /// The same as a request of its own, behind one that took all away.
    #[must_use]
    pub fn take_statements_between(&mut self, base: &Settings) -> Vec<u8> {
        let statements = self.statements(base, false);
        for taken in &mut self.names {
            taken.restored |= taken.executed;
        }
        statements.concat()
    }

    fn statements(&mut self, base: &Settings, within: bool) -> Vec<Vec<u8>> {
        // Who one is comes last: other settings are made with the rights that there are now.
        self.names.sort_by_key(|taken| is_who(&taken.name));
        let new = self.names.iter();
        let new = new.filter(|taken| taken.executed && !taken.restored);
        let new = new.filter(|taken| !(within && taken.certain));
        let new = new.filter_map(|taken| Some((taken, base.get(&taken.name)?)));
        new.map(|(taken, value)| statement(taken, value, within && taken.local))
            .collect()
    }
}

/// SET may come before `SET TRANSACTION`, which a query may not. But it takes the names in a list one by
/// one, and writes the list anew; and outside of a transaction block SET LOCAL warns.
fn statement(taken: &Taken, value: &[u8], by_query: bool) -> Vec<u8> {
    let mut text = Vec::new();
    let is_list = LISTS.contains(&&*taken.name) && !value.is_empty();
    if by_query || is_list && written_anew(value) != value {
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
            taken.note(text.as_bytes(), &base, 0);
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
        taken.note(b"RESET app.a", &base, 0);
        taken.completed(b"ROLLBACK");
        taken.completed(b"RESET");
        taken.settle();
        taken.failed();
        taken.settle();
        assert!(taken.contains(b"app.a"), "that was another transaction");
        taken.clear();
        taken.note(b"RESET app.a", &base, 0);
        taken.completed(b"RESET");
        taken.completed(b"ROLLBACK");
        taken.settle();
        assert!(taken.is_empty());
    }

    #[test]
    fn within_a_transaction() {
        let base = base();
        let check = |texts: &str, expect: Option<&str>| {
            let mut taken = TakenBack::default();
            taken.note(texts.as_bytes(), &base, 0);
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
        taken.note(b"RESET datestyle", &base, 0);
        taken.failed();
        assert_eq!(taken.take_statements(&base), None);
        let mut taken = TakenBack::default();
        taken.note(b"RESET datestyle", &base, 0);
        assert_eq!(taken.take_statements(&base), None, "it was not executed");
    }

    #[test]
    fn within_a_request() {
        let base = base();
        let mut taken = TakenBack::default();
        assert!(!taken.note(b"RESET work_mem", &base, 0));
        assert!(taken.note(b"RESET app.a; SET LOCAL datestyle TO DEFAULT", &base, 0));
        taken.completed(b"COMMIT");
        assert!(!taken.is_due() && taken.take_statements_within(&base).is_empty());
        taken.completed(b"SET");
        assert!(taken.is_due());
        let found = taken.take_statements_within(&base);
        let found: Vec<_> = found
            .iter()
            .map(|text| String::from_utf8_lossy(text))
            .collect();
        let expect = [
            r#"SET "app"."a" TO 'x';"#,
            "SELECT pg_catalog.set_config('datestyle','German, DMY',true);",
        ];
        assert_eq!(found, expect);
        assert!(
            taken.take_statements_within(&base).is_empty(),
            "they are back"
        );
        assert!(taken.contains(b"app.a") && !taken.is_due());
        taken.completed(b"DISCARD ALL");
        taken.failed();
        taken.settle();
        assert!(taken.contains(b"app.a") && !taken.contains(b"datestyle"));
        assert!(
            taken.take_statements(&base).is_some(),
            "it is undone that they came back"
        );
    }

    #[test]
    fn behind_other_requests() {
        let base = base();
        let mut taken = TakenBack::default();
        taken.note(b"RESET app.a", &base, 2);
        taken.completed(b"RESET");
        taken.failed();
        taken.settle();
        taken.answered(1);
        assert!(taken.contains(b"app.a") && !taken.is_due());
        taken.completed(b"ROLLBACK");
        taken.settle();
        taken.answered(0);
        taken.completed(b"RESET");
        assert!(taken.is_due());
        taken.failed();
        taken.settle();
        assert!(taken.is_empty());
        taken.note(b"RESET app.a", &base, 3);
        // COPY has taken Syncs for itself.
        taken.answered(0);
        taken.completed(b"RESET");
        assert!(taken.is_due());
    }
}
