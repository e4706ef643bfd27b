//! Lines in the log about slow transactions.

use std::fmt::Write as _;

use crate::Time;

/// The bytes of each statement's text in a line.
const TEXT_MAX: usize = 100;
/// The largest number of lines that a worker logs at once.
const LINES_AT_ONCE: u32 = 20;
/// Microseconds until one more line may be logged.
const LINE_EVERY: u64 = 1_000_000;

/// A transaction that took long. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowTransaction {
    /// The time from the client's request for a server to the end of the transaction.
    pub duration: u64,
    /// The time that the client waited for a server.
    pub wait: u64,
    /// The time that the server worked. In the rest of the duration, it waited for the client.
    pub server: u64,
    /// The number of statements.
    pub statements: u32,
    /// The number of errors.
    pub errors: u32,
    /// The fingerprints and the beginnings of the normalized texts of the first different statements.
    pub listed: Vec<(u64, String)>,
}

impl SlowTransaction {
    /// Returns the message of the line in the log. `not_logged`: how many lines were left out before this one.
    #[must_use]
    pub fn message(&self, not_logged: u64) -> String {
        let mut text = format!(
            "slow transaction: {} ms, of which {} ms wait for a server and {} ms server; {} statements",
            millis(self.duration),
            millis(self.wait),
            millis(self.server),
            self.statements
        );
        // Writing to a string can't fail.
        if self.errors > 0 {
            let _ = write!(text, ", {} errors", self.errors);
        }
        for (at, (fingerprint, statement)) in self.listed.iter().enumerate() {
            let sign = if at == 0 { ':' } else { ';' };
            let _ = write!(text, "{sign} {fingerprint:016x} {statement}");
        }
        if not_logged > 0 {
            let _ = write!(
                text,
                " ({not_logged} slow transactions before this one were not logged)"
            );
        }
        text
    }
}

fn millis(micros: u64) -> String {
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// Cuts a text at the end of a character.
pub(super) fn shorten(text: &str) -> String {
    let end = (0..=TEXT_MAX.min(text.len())).rev();
    let end = end.filter(|&end| text.is_char_boundary(end)).max();
    let cut = &text[..end.unwrap_or_default()];
    match cut.len() < text.len() {
        true => format!("{cut}..."),
        false => cut.to_owned(),
    }
}

/// Bounds the lines about slow transactions of a worker, so that many of them can't fill the disk.
#[derive(Debug, Default)]
pub struct SlowTransactionLog {
    /// The number of lines that count as recent. Each line adds one, and each second subtracts one.
    recent: u32,
    /// The time since which `recent` has had its value.
    since: Time,
    not_logged: u64,
    total: u64,
}

impl SlowTransactionLog {
    /// Counts a slow transaction. If a line may be logged, returns how many were left out since the last one.
    pub fn add(&mut self, now: Time) -> Option<u64> {
        self.total += 1;
        let passed = now.since(self.since) / LINE_EVERY;
        if passed > 0 || self.recent == 0 {
            self.recent = self
                .recent
                .saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
            self.since = now;
        }
        if self.recent >= LINES_AT_ONCE {
            self.not_logged += 1;
            return None;
        }
        self.recent += 1;
        Some(std::mem::take(&mut self.not_logged))
    }

    /// Returns the number of slow transactions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let mut slow = SlowTransaction {
            duration: 1_234_567,
            wait: 1_000_000,
            server: 30_005,
            statements: 7,
            errors: 0,
            listed: vec![
                (255, "BEGIN".to_owned()),
                (16, shorten(&"\u{e4}".repeat(60))),
            ],
        };
        let expect = format!(
            "slow transaction: 1234.567 ms, of which 1000.000 ms wait for a server and 30.005 ms server; \
             7 statements: 00000000000000ff BEGIN; 0000000000000010 {}...",
            "\u{e4}".repeat(50)
        );
        assert_eq!(slow.message(0), expect);
        slow.errors = 1;
        slow.listed.clear();
        assert!(slow.message(3).ends_with(
            "7 statements, 1 errors (3 slow transactions before this one were not logged)"
        ));
    }

    #[test]
    fn lines_are_bounded() {
        let mut log = SlowTransactionLog::default();
        let start = 5_000_000;
        let at_once = (0..100).filter_map(|_| log.add(Time(start))).count();
        assert_eq!(at_once, LINES_AT_ONCE as usize);
        assert_eq!(log.add(Time(start + LINE_EVERY - 1)), None);
        assert_eq!(log.add(Time(start + LINE_EVERY)), Some(81));
        assert_eq!(log.add(Time(start + LINE_EVERY)), None);
        let hour = 3600 * LINE_EVERY;
        let later =
            (0..hour / 1000).filter_map(|at| log.add(Time(start + 2 * LINE_EVERY + at * 1000)));
        let later = later.count();
        assert!((3600..3630).contains(&later), "{later}");
        assert!(log.add(Time(start + 100 * hour)).is_some());
    }
}
