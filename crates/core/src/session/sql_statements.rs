//! Statements that a client has prepared by SQL's `PREPARE`. pgweir carries them from server to server by their
//! texts.

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{
    RESERVED, SharedPairs,
    names::statement_key,
    sql::{Phrase, phrases},
};

/// The bytes that each statement counts besides its name and text.
const COST: usize = 64;

/// SQL-prepared statements: names, and the texts that made them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SqlStatements(SharedPairs);

impl SqlStatements {
    /// Builds the list from names and the texts of the queries that made the statements. Returns `None` if a statement
    /// can't be made again from its text: the text is not plain, or not ASCII, so that its bytes depend on an encoding.
    #[must_use]
    pub fn read(found: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Self> {
        let own = |(name, text): (Vec<u8>, Vec<u8>)| {
            let text = own_text(&name, &text)?.into();
            Some((name.into(), text))
        };
        let pairs = found.into_iter().map(own).collect::<Option<_>>()?;
        Some(Self(SharedPairs::new(pairs)))
    }

    /// Returns whether both share the same memory. The hot path uses this comparison.
    #[must_use]
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Returns whether both have the same names and texts.
    #[must_use]
    pub fn is_equal(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }

    /// Returns whether there are no statements.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of statements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// Returns the bytes that the statements count.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let each = self.pairs();
        each.map(|(name, text)| name.len() + text.len() + COST)
            .sum()
    }

    /// Returns whether there is a statement of this name.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.text(name).is_some()
    }

    /// Returns the text of a statement.
    #[must_use]
    pub fn text(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(statement_key(name))
    }

    /// Returns the text of the prepared statement: the text after AS.
    #[must_use]
    pub fn prepared(&self, name: &[u8]) -> Option<&[u8]> {
        let text = self.text(name)?;
        let found = phrases(text).find_map(|phrase| match phrase {
            Phrase::Prepare { prepared, .. } => Some(prepared),
            _ => None,
        });
        text.get(found?)
    }

    /// Returns the name and the text of the statement at this position.
    #[must_use]
    pub fn at(&self, at: u32) -> Option<(&[u8], &[u8])> {
        self.pairs().nth(at as usize)
    }

    /// Returns all statements but those of these names.
    #[must_use]
    pub fn without(&self, names: &[Vec<u8>]) -> Self {
        let left = self
            .pairs()
            .filter(|(name, _)| !names.iter().any(|own| own == name));
        let left = left.map(|(name, text)| (name.into(), text.into()));
        Self(SharedPairs::new(left.collect()))
    }

    /// Returns names and texts, in the order of the names.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.0.iter()
    }

    /// Appends the messages that give these statements to a server in place of those in `held`. Returns, for each Sync
    /// among the messages, the position of the statement that is made before it, if there is one. Each statement is
    /// prepared in a request of its own, so that a failure does not affect the next one.
    pub fn write_plan(&self, held: &Self, out: &mut Vec<u8>) -> Vec<Option<u32>> {
        for (name, _) in held.pairs() {
            MessageWriter::new(out).statement(frontend::CLOSE, name);
        }
        let mut syncs = Vec::new();
        if !held.is_empty() {
            MessageWriter::new(out).sync();
            syncs.push(None);
        }
        for (at, (_, text)) in self.pairs().enumerate() {
            MessageWriter::new(out).unnamed_command(text);
            syncs.push(Some(at as u32));
        }
        syncs
    }
}

/// Returns the text of the PREPARE that made the statement of this name, cut out of the whole query.
fn own_text<'t>(name: &[u8], text: &'t [u8]) -> Option<&'t [u8]> {
    // A statement with one of pgweir's names would conflict with pgweir's statement of that name on another server.
    if !text.is_ascii() || name.starts_with(RESERVED) {
        return None;
    }
    let mut found = None;
    let mut count = 0;
    for phrase in phrases(text) {
        count += 1;
        if let Phrase::Prepare {
            name: prepared,
            statement,
            ..
        } = phrase
            && *prepared == *name
            && found.replace(statement).is_some()
        {
            // Several statements have the name, and it is not known which of them was prepared.
            return None;
        }
    }
    let found = found?;
    if count == 1 {
        Some(text)
    } else {
        text.get(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> SqlStatements {
        let found = pairs
            .iter()
            .map(|(name, text)| (name.as_bytes().to_vec(), text.as_bytes().to_vec()));
        SqlStatements::read(found.collect()).unwrap()
    }

    /// Compares the plan with tags and bodies, in words.
    fn check(wanted: &SqlStatements, held: &SqlStatements, expect: &[&str]) {
        let mut out = Vec::new();
        let syncs = wanted.write_plan(held, &mut out);
        let (mut rest, mut found) = (&out[..], Vec::new());
        while let Some(header) = pgweir_wire::Header::parse(rest).unwrap() {
            let body = &rest[pgweir_wire::HEADER_LEN..header.message_len()];
            let text = String::from_utf8_lossy(body).replace('\0', "");
            found.push(format!("{}{text}", header.tag as char));
            rest = &rest[header.message_len()..];
        }
        assert_eq!(found, expect);
        assert_eq!(
            syncs.len(),
            found.iter().filter(|message| *message == "S").count()
        );
    }

    #[test]
    fn plans() {
        let (a, b) = (
            ("a", "PREPARE a AS SELECT 1"),
            ("b", "PREPARE b AS SELECT 2;"),
        );
        let none = SqlStatements::default();
        let made = |text: &str| {
            [
                format!("P{text}"),
                "B".into(),
                "E".into(),
                "CS".into(),
                "S".into(),
            ]
        };
        let both: Vec<_> = [made(a.1), made(b.1)].concat();
        let both: Vec<_> = both.iter().map(String::as_str).collect();
        check(&none, &none, &[]);
        check(&of(&[b, a]), &none, &both);
        check(&none, &of(&[a, b]), &["CSa", "CSb", "S"]);
        check(
            &of(&[b]),
            &of(&[a]),
            &[&["CSa", "S"][..], &both[5..]].concat(),
        );
    }

    #[test]
    fn statements_that_can_be_prepared_again() {
        let check = |text: &str, expect: Option<&str>| {
            let found = vec![(b"a".to_vec(), text.as_bytes().to_vec())];
            let read = SqlStatements::read(found);
            let own = read.as_ref().and_then(|read| read.text(b"a"));
            assert_eq!(own, expect.map(str::as_bytes), "{text}");
        };
        let plain = "PREPARE a AS SELECT 1";
        check(plain, Some(plain));
        check(
            " PREPARE A AS SELECT ';'; ",
            Some(" PREPARE A AS SELECT ';'; "),
        );
        check("PREPARE a AS SELECT 1; PREPARE b AS SELECT 2", Some(plain));
        check(
            "BEGIN; PREPARE \"a\" AS SELECT 1; COMMIT",
            Some("PREPARE \"a\" AS SELECT 1"),
        );
        check(
            "PREPARE a AS SELECT 1; DEALLOCATE a; PREPARE a AS SELECT 2",
            None,
        );
        check("PREPARE a AS SELECT 'ä'", None);
        check("DO $$ BEGIN EXECUTE 'PREPARE a AS SELECT 1'; END $$", None);
    }

    #[test]
    fn compared() {
        let one = of(&[("a", "PREPARE a AS SELECT 1")]);
        let other = of(&[("a", "PREPARE a AS SELECT 1")]);
        assert!(one.is_same(&one.clone()) && !one.is_same(&other) && one.is_equal(&other));
        assert!(!one.is_equal(&SqlStatements::default()));
        assert_eq!((one.len(), one.bytes()), (1, 1 + 21 + COST));
        assert_eq!(one.text(b"a"), Some(&b"PREPARE a AS SELECT 1"[..]));
        assert_eq!(one.prepared(b"a"), Some(&b"SELECT 1"[..]));
        assert!(format!("{one:?}").contains('a') && !format!("{one:?}").contains("SELECT"));
    }
}
