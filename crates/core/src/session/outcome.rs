//! Decides whether a lost server may have committed statements that it has not answered.

use super::{
    Certificates, Dialect, Fingerprint,
    scan::may_change_data,
    sql::{Kind, Lexer},
    word_list::{is_any, words},
};

/// Statements that change nothing outside of a transaction.
const HARMLESS: [&str; 9] =
    words("show set reset discard rollback abort listen unlisten deallocate");
/// Statements that change nothing unless they contain a verb that writes, or call a function that writes.
const QUERIES: [&str; 4] = words("select values table with");

/// The statements that a server was sent since its last ReadyForQuery, and has not answered.
#[derive(Debug, Clone, Copy)]
pub struct Unanswered<'a> {
    /// The status in the last ReadyForQuery.
    pub status: u8,
    /// The dialect in which the server reads texts.
    pub dialect: Dialect,
    /// The certificates by which the statements were read; `None` if they have changed since, or there are none.
    pub certificates: Option<&'a Certificates>,
}

impl Unanswered<'_> {
    /// Returns whether the server may have committed something before it was lost. `texts`: the texts of the statements, as
    /// [`Fingerprint`] makes them; `None` for one that is unknown.
    ///
    /// If the texts are not enough to decide, returns `true`: a client that checks without need loses less than a
    /// client that repeats a committed transaction.
    #[must_use]
    pub fn may_be_committed<'t>(self, mut texts: impl Iterator<Item = Option<&'t str>>) -> bool {
        let mut transaction = match self.status {
            b'T' => Transaction::Open,
            b'E' => Transaction::Failed,
            _ => Transaction::None,
        };
        texts.any(|text| match text {
            Some(text) if Fingerprint::shows_all(text) => {
                self.is_committed_by(&mut transaction, text.as_bytes())
            }
            _ => true,
        })
    }

    /// Reads the statements of a text in order. Returns whether one of them may commit something.
    fn is_committed_by(self, transaction: &mut Transaction, text: &[u8]) -> bool {
        let mut lexer = Lexer::new(text);
        loop {
            let (words, end) = first_words(&mut lexer);
            let is_committed = match words[0] {
                Some(first) if *transaction == Transaction::None && is_any(first, &QUERIES) => {
                    self.may_change_data(text)
                }
                Some(_) => transaction.is_committed_by(words),
                // The statement is empty, or does not begin with a word.
                None => end != Kind::End && end != Kind::Semicolon,
            };
            if is_committed || end == Kind::Broken {
                return true;
            }
            if end == Kind::End {
                return false;
            }
        }
    }

    fn may_change_data(self, text: &[u8]) -> bool {
        let certificates = self.certificates;
        certificates.is_none_or(|by| may_change_data(text, self.dialect, by))
    }
}

/// The number of words at the beginning of a statement that are enough to decide: `ROLLBACK WORK AND NO CHAIN`.
const WORDS_MAX: usize = 5;

/// Reads a statement to its end. Returns its first words, and the token after it: a semicolon, the end of the text, or
/// `Broken`. For a statement that does not begin with a word, returns its first token instead.
fn first_words<'a>(lexer: &mut Lexer<'a>) -> ([Option<&'a [u8]>; WORDS_MAX], Kind) {
    let mut words = [None; WORDS_MAX];
    let mut count = 0;
    loop {
        let token = lexer.next();
        match token.kind {
            end @ (Kind::Semicolon | Kind::End | Kind::Broken) => return (words, end),
            Kind::Word if count < WORDS_MAX => words[count] = Some(lexer.bytes(token)),
            other if count == 0 => return (words, other),
            _ => {}
        }
        count += 1;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    Failed,
}

impl Transaction {
    /// Reads one statement, which begins with these words. Returns whether it may commit something.
    fn is_committed_by(&mut self, words: [Option<&[u8]>; WORDS_MAX]) -> bool {
        let is = |at: usize, known: &[&str]| words[at].is_some_and(|word| is_any(word, known));
        let ends = is(0, &["commit", "end"]) || is(0, &["prepare"]) && is(1, &["transaction"]);
        match self {
            Self::None if is(0, &["begin", "start"]) => *self = Self::Open,
            Self::None => return !is(0, &HARMLESS),
            Self::Open if ends => return true,
            Self::Failed if ends => *self = Self::None,
            Self::Open | Self::Failed if is(0, &["rollback", "abort"]) => {
                // `ROLLBACK TO` a savepoint makes a failed transaction one that can be committed, and `AND CHAIN`
                // begins another.
                let at = 1 + usize::from(is(1, &["work", "transaction"]));
                *self = match words[at] {
                    None => Self::None,
                    Some(_) if is(at, &["and"]) && is(at + 1, &["no"]) => Self::None,
                    Some(_) => Self::Open,
                };
            }
            Self::Open | Self::Failed => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        let long = format!("INSERT INTO t VALUES ({}", "a".repeat(500));
        for (status, texts, expect) in [
            (b'I', &["INSERT INTO t VALUES (?)"][..], true),
            (b'I', &["SELECT f()"], true),
            (b'I', &["SHOW x"], false),
            (b'I', &["BEGIN"], false),
            (b'I', &["START TRANSACTION READ ONLY"], false),
            (b'I', &[], false),
            (b'I', &["BEGIN", "INSERT INTO t VALUES (?)"], false),
            (b'I', &["BEGIN; INSERT INTO t VALUES (?)"], false),
            (b'I', &["BEGIN; INSERT INTO t VALUES (?); COMMIT"], true),
            (b'I', &["BEGIN", "SELECT ?", "ROLLBACK", "SHOW x"], false),
            (
                b'I',
                &["BEGIN", "SELECT ?", "ROLLBACK", "INSERT INTO t"],
                true,
            ),
            (b'I', &["COMMIT PREPARED ?"], true),
            (b'T', &["INSERT INTO t VALUES (?)"], false),
            (b'T', &["CALL p()"], false),
            (b'T', &["commit"], true),
            (b'T', &["Commit Work And Chain"], true),
            (b'T', &["END"], true),
            (b'T', &["PREPARE TRANSACTION ?"], true),
            (b'T', &["PREPARE s AS SELECT ?"], false),
            (b'T', &["ROLLBACK"], false),
            (b'T', &["ROLLBACK; INSERT INTO t VALUES (?)"], true),
            (b'T', &["ROLLBACK TO s", "INSERT INTO t VALUES (?)"], false),
            (b'T', &["ROLLBACK TO s", "COMMIT"], true),
            (b'T', &["ROLLBACK WORK", "INSERT INTO t VALUES (?)"], true),
            (b'T', &["abort transaction; INSERT INTO t VALUES (?)"], true),
            (b'T', &["ROLLBACK AND NO CHAIN", "INSERT INTO t"], true),
            (b'T', &["ROLLBACK AND CHAIN", "INSERT INTO t"], false),
            (b'T', &["ROLLBACK WORK AND CHAIN", "COMMIT"], true),
            (b'E', &["ROLLBACK TO SAVEPOINT s", "COMMIT"], true),
            (b'E', &["ROLLBACK TRANSACTION TO s; COMMIT"], true),
            (b'E', &["COMMIT AND CHAIN", "COMMIT"], true),
            (b'T', &["INSERT INTO t VALUES (?)", "COMMIT"], true),
            (b'T', &[&long], true),
            (b'E', &["COMMIT"], false),
            (b'E', &["COMMIT", "INSERT INTO t VALUES (?)"], true),
            (b'E', &["SELECT ?"], false),
        ] {
            let found = unanswered(status).may_be_committed(texts.iter().map(|text| Some(*text)));
            assert_eq!(found, expect, "{} {texts:?}", status as char);
        }
        assert!(unanswered(b'T').may_be_committed([None].into_iter()));
    }

    #[test]
    fn queries_that_change_nothing() {
        let rows: [[&[u8]; 4]; 2] = [[b"e", b"utf8", b"", b""], [b"f", b"opaque", b"OPAQUE", b""]];
        let certificates = Certificates::from_rows(1, rows);
        let by = Unanswered {
            certificates: Some(&certificates),
            ..unanswered(b'I')
        };
        for (text, expect) in [
            ("SELECT * FROM t WHERE a = ?", false),
            ("WITH a AS (SELECT ?) TABLE a", false),
            ("SELECT ?; VALUES (?)", false),
            ("SELECT ?; INSERT INTO t VALUES (?)", true),
            ("WITH a AS (DELETE FROM t RETURNING *) TABLE a", true),
            (
                "WITH a AS (MERGE INTO t USING u ON ? WHEN MATCHED THEN DELETE) TABLE a",
                true,
            ),
            ("SELECT ? INTO t", true),
            ("SELECT opaque()", true),
            ("SELECT pg_notify(?, ?)", true),
            ("SELECT pg_catalog.\"pg_notify\"(?, ?)", true),
            ("SELECT nextval(?)", true),
            ("SELECT lo_unlink(?)", true),
            ("EXPLAIN ANALYZE SELECT ?", true),
            ("EXECUTE s", true),
            ("(SELECT ?)", true),
            ("SELECT ? ...", true),
            ("COMMIT", true),
        ] {
            assert_eq!(
                by.may_be_committed([Some(text)].into_iter()),
                expect,
                "{text}"
            );
        }
        let unknown = Unanswered {
            dialect: Dialect::Unreadable,
            ..by
        };
        assert!(unknown.may_be_committed([Some("SELECT a")].into_iter()));
        let unread = Certificates::unread();
        let unread = Unanswered {
            certificates: Some(&unread),
            ..by
        };
        assert!(unread.may_be_committed([Some("SELECT a")].into_iter()));
    }

    fn unanswered(status: u8) -> Unanswered<'static> {
        Unanswered {
            status,
            dialect: Dialect::Utf8,
            certificates: None,
        }
    }
}
