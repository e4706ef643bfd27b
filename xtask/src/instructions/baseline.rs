//! The counts that a full test compares with. They are in a file of the repository, which
//! `cargo xtask instructions --write-baseline` writes.

use std::fmt;

/// The largest part by which a count may exceed that of the baseline.
pub(super) const GROWTH_MAX: f64 = 0.03;

const COMPILER: &str = "compiler: ";
const HEADING: &str = "\
# Instructions of pgweir per transaction, in a release build under callgrind.
# Written by `cargo xtask instructions --write-baseline`.
";

/// Counts, and the compiler of the pgweir that was counted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Baseline {
    /// The output of `rustc --version`.
    pub(super) compiler: String,
    pub(super) counts: Vec<Count>,
}

/// The instructions of one transaction of a kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Count {
    pub(super) kind: String,
    pub(super) instructions: f64,
}

/// The result of a comparison with the baseline.
#[derive(Debug, PartialEq)]
pub(super) enum Comparison {
    /// Nothing was compared: another compiler makes other code from the same source.
    OtherCompiler,
    /// Each kind that either side has.
    Compared(Vec<Change>),
}

/// A kind of transaction, and its counts in the baseline and now.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) kind: String,
    pub(super) before: Option<f64>,
    pub(super) now: Option<f64>,
}

impl Baseline {
    /// Reads the file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut compiler = None;
        let mut counts = Vec::new();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            if let Some(named) = line.strip_prefix(COMPILER) {
                compiler = Some(named.to_owned());
                continue;
            }
            let parts = line.trim_start().split_once(' ');
            let count = parts.and_then(|(count, kind)| {
                let instructions = count.parse().ok()?;
                let kind = kind.to_owned();
                Some(Count { kind, instructions })
            });
            counts.push(count.ok_or_else(|| format!("neither a compiler nor a count: {line}"))?);
        }
        let compiler = compiler.ok_or("it names no compiler")?;
        Ok(Self { compiler, counts })
    }

    /// Compares counts of now with the baseline.
    pub(super) fn compare(&self, now: &Self) -> Comparison {
        if self.compiler != now.compiler {
            return Comparison::OtherCompiler;
        }
        let mut changes: Vec<_> = now
            .counts
            .iter()
            .map(|count| Change {
                kind: count.kind.clone(),
                before: self.of(&count.kind),
                now: Some(count.instructions),
            })
            .collect();
        let gone = self.counts.iter().filter(|old| now.of(&old.kind).is_none());
        changes.extend(gone.map(|old| Change {
            kind: old.kind.clone(),
            before: Some(old.instructions),
            now: None,
        }));
        Comparison::Compared(changes)
    }

    fn of(&self, kind: &str) -> Option<f64> {
        let found = self.counts.iter().find(|count| count.kind == kind);
        found.map(|count| count.instructions)
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}{COMPILER}{}", self.compiler)?;
        for Count { kind, instructions } in &self.counts {
            writeln!(f, "{instructions:>7.0} {kind}")?;
        }
        Ok(())
    }
}

impl Change {
    /// Returns whether the count is fine: it has not grown too much, and both sides have the kind.
    pub(super) fn is_fine(&self) -> bool {
        match (self.before, self.now) {
            (Some(before), Some(now)) => now <= before * (1.0 + GROWTH_MAX),
            _ => false,
        }
    }

    /// Returns by how much the count has grown, in percent.
    pub(super) fn growth(&self) -> Option<f64> {
        Some((self.now? / self.before? - 1.0) * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(compiler: &str, counts: &[(&str, f64)]) -> Baseline {
        Baseline {
            compiler: compiler.to_owned(),
            counts: counts
                .iter()
                .map(|&(kind, instructions)| Count {
                    kind: kind.to_owned(),
                    instructions,
                })
                .collect(),
        }
    }

    fn fine(before: &Baseline, now: &Baseline) -> Vec<bool> {
        match before.compare(now) {
            Comparison::OtherCompiler => panic!("nothing was compared"),
            Comparison::Compared(changes) => changes.iter().map(Change::is_fine).collect(),
        }
    }

    #[test]
    fn five_percent_more_is_too_much() {
        let before = counted("rustc 1", &[("simple, off", 6000.0), ("login", 90_000.0)]);
        assert_eq!(fine(&before, &before), [true, true]);
        let more = counted("rustc 1", &[("simple, off", 6300.0), ("login", 92_000.0)]);
        assert_eq!(fine(&before, &more), [false, true]);
        let less = counted("rustc 1", &[("simple, off", 3000.0), ("login", 94_500.0)]);
        assert_eq!(fine(&before, &less), [true, false]);
    }

    #[test]
    fn a_kind_that_only_one_side_has_is_not_fine() {
        let before = counted("rustc 1", &[("simple, off", 6000.0), ("login", 90_000.0)]);
        let now = counted(
            "rustc 1",
            &[("simple, off", 6000.0), ("extended, off", 1.0)],
        );
        assert_eq!(fine(&before, &now), [true, false, false]);
    }

    #[test]
    fn another_compiler_is_not_compared() {
        let before = counted("rustc 1", &[("simple, off", 6000.0)]);
        let now = counted("rustc 2", &[("simple, off", 9000.0)]);
        assert_eq!(before.compare(&now), Comparison::OtherCompiler);
    }

    #[test]
    fn files_are_read_as_written() {
        let written = counted("rustc 1", &[("pgbench -S, simple, off", 6000.0)]);
        assert_eq!(Baseline::parse(&written.to_string()), Ok(written));
        assert!(Baseline::parse("compiler: rustc 1\nmany simple\n").is_err());
        assert!(Baseline::parse(" 6000 simple\n").is_err());
    }
}
