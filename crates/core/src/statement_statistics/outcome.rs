//! Whether statements that a server has not answered may have been committed, by their normalized texts.

/// The longest text of which the end is certain to be there: normalized texts are cut at 512 bytes.
const WHOLE_MAX: usize = 500;

/// Statements that change nothing outside of a transaction.
const HARMLESS: [&str; 9] = [
    "show",
    "set",
    "reset",
    "discard",
    "rollback",
    "abort",
    "listen",
    "unlisten",
    "deallocate",
];

/// Returns whether the server may have committed something, before it was lost, that it has not confirmed. `status`: of the
/// last ReadyForQuery; `texts`: those that were sent since and that were not answered, `None` for one that is unknown.
///
/// Where the texts leave a doubt, the answer is `true`: a client that checks in vain loses less than one that repeats a
/// transaction.
pub(super) fn may_have_committed<'t>(
    status: u8,
    mut texts: impl Iterator<Item = Option<&'t str>>,
) -> bool {
    let mut transaction = match status {
        b'T' => Transaction::Open,
        b'E' => Transaction::Failed,
        _ => Transaction::None,
    };
    texts.any(|text| match text {
        Some(text) if text.len() <= WHOLE_MAX => transaction.is_committed_by(text),
        _ => true,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    Failed,
}

impl Transaction {
    /// Follows the statements of a text. Returns whether one of them may commit something.
    fn is_committed_by(&mut self, text: &str) -> bool {
        // A semicolon in a quoted name cuts off something that is taken for a statement.
        text.split(';')
            .any(|statement| self.is_committed_by_one(statement))
    }

    fn is_committed_by_one(&mut self, statement: &str) -> bool {
        let statement = statement.to_ascii_lowercase();
        let mut words = statement.split_whitespace();
        let Some(first) = words.next() else {
            return false;
        };
        let ends = match first {
            "commit" | "end" => true,
            "prepare" => words.clone().next() == Some("transaction"),
            _ => false,
        };
        match self {
            Self::None if first == "begin" || first == "start" => *self = Self::Open,
            Self::None => return !HARMLESS.contains(&first),
            Self::Open if ends => return true,
            Self::Failed if ends => *self = Self::None,
            Self::Open | Self::Failed if first == "rollback" || first == "abort" => {
                *self = Self::after_rollback(words);
            }
            Self::Open | Self::Failed => {}
        }
        false
    }

    /// Returns the state after a ROLLBACK with these further words. `ROLLBACK TO` a savepoint makes a failed transaction
    /// one that can be committed, and `AND CHAIN` begins another.
    fn after_rollback<'w>(words: impl Iterator<Item = &'w str>) -> Self {
        let mut words = words.skip_while(|word| matches!(*word, "work" | "transaction"));
        match (words.next(), words.next()) {
            (None, _) | (Some("and"), Some("no")) => Self::None,
            _ => Self::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        let long = format!("INSERT INTO t VALUES ({}", "a".repeat(WHOLE_MAX));
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
            let found = may_have_committed(status, texts.iter().map(|text| Some(*text)));
            assert_eq!(found, expect, "{} {texts:?}", status as char);
        }
        assert!(may_have_committed(b'T', [None].into_iter()));
    }
}
