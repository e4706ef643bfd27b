//! The counts that the tests compare with: a file of the repository for each cargo profile, which
//! `cargo xtask instructions --write-baseline` writes.

use std::fmt;

/// The largest part by which a count may exceed that of the baseline.
pub(super) const GROWTH_MAX: f64 = 0.03;

const COMPILER: &str = "compiler: ";
/// The atomic instructions per transaction that may be added. The file has whole numbers, and what a worker does once or
/// twice a second is counted, too.
const ATOMICS_ALLOWANCE: f64 = 0.5;

const PROFILE: &str = "profile: ";
const HEADING: &str = "\
# Instructions of pgweir per transaction, counted by callgrind.
# Written by `cargo xtask instructions --write-baseline`.
# Columns: instructions, those that are atomic (between threads), and the transaction.
";

/// Counts, and the build of the pgweir that was counted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Baseline {
    /// The cargo profile.
    pub(super) profile: String,
    /// The output of `rustc --version`.
    pub(super) compiler: String,
    pub(super) counts: Vec<Count>,
}

/// The instructions of one transaction of a kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Count {
    pub(super) kind: String,
    pub(super) instructions: f64,
    /// The instructions by which threads share memory.
    pub(super) atomics: f64,
}

/// A kind of transaction, and its counts in the baseline and now.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) kind: String,
    pub(super) before: Option<Count>,
    pub(super) now: Option<Count>,
}

impl Baseline {
    /// Reads the file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut profile, mut compiler) = (None, None);
        let mut counts = Vec::new();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            if let Some(named) = line.strip_prefix(PROFILE) {
                profile = Some(named.to_owned());
                continue;
            }
            if let Some(named) = line.strip_prefix(COMPILER) {
                compiler = Some(named.to_owned());
                continue;
            }
            let count = Count::parse(line);
            counts
                .push(count.ok_or_else(|| format!("neither profile, compiler nor count: {line}"))?);
        }
        Ok(Self {
            profile: profile.ok_or("it names no profile")?,
            compiler: compiler.ok_or("it names no compiler")?,
            counts,
        })
    }

    /// Returns each kind that this baseline or these counts of now have. Both are of the same build: another compiler
    /// makes other code from the same source.
    pub(super) fn changes(&self, now: &[Count]) -> Vec<Change> {
        let mut changes: Vec<_> = now
            .iter()
            .map(|count| Change {
                kind: count.kind.clone(),
                before: of(&self.counts, &count.kind),
                now: Some(count.clone()),
            })
            .collect();
        let gone = self
            .counts
            .iter()
            .filter(|old| of(now, &old.kind).is_none());
        changes.extend(gone.map(|old| Change {
            kind: old.kind.clone(),
            before: Some(old.clone()),
            now: None,
        }));
        changes
    }
}

fn of(counts: &[Count], kind: &str) -> Option<Count> {
    counts.iter().find(|count| count.kind == kind).cloned()
}

impl Count {
    fn parse(line: &str) -> Option<Self> {
        let (instructions, rest) = line.trim_start().split_once(' ')?;
        let (atomics, kind) = rest.trim_start().split_once(' ')?;
        Some(Self {
            kind: kind.to_owned(),
            instructions: instructions.parse().ok()?,
            atomics: atomics.parse().ok()?,
        })
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{HEADING}{PROFILE}{}\n{COMPILER}{}",
            self.profile, self.compiler
        )?;
        for count in &self.counts {
            let Count {
                kind,
                instructions,
                atomics,
            } = count;
            writeln!(f, "{instructions:>7.0} {atomics:>4.0} {kind}")?;
        }
        Ok(())
    }
}

impl Change {
    /// Returns whether the count is fine: it has not grown too much, and both sides have the kind.
    pub(super) fn is_fine(&self) -> bool {
        let (Some(before), Some(now)) = (&self.before, &self.now) else {
            return false;
        };
        now.instructions <= before.instructions * (1.0 + GROWTH_MAX)
            && now.atomics <= before.atomics * (1.0 + GROWTH_MAX) + ATOMICS_ALLOWANCE
    }

    /// Returns by how much the count has grown, in percent.
    pub(super) fn growth(&self) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        Some((now.instructions / before.instructions - 1.0) * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[(&str, f64)]) -> Baseline {
        Baseline {
            profile: "release".to_owned(),
            compiler: "rustc 1".to_owned(),
            counts: counts
                .iter()
                .map(|&(kind, instructions)| Count {
                    kind: kind.to_owned(),
                    instructions,
                    atomics: 0.0,
                })
                .collect(),
        }
    }

    fn fine(before: &Baseline, now: &Baseline) -> Vec<bool> {
        let changes = before.changes(&now.counts);
        changes.iter().map(Change::is_fine).collect()
    }

    #[test]
    fn five_percent_more_is_too_much() {
        let before = counted(&[("simple, off", 6000.0), ("login", 90_000.0)]);
        assert_eq!(fine(&before, &before), [true, true]);
        let more = counted(&[("simple, off", 6300.0), ("login", 92_000.0)]);
        assert_eq!(fine(&before, &more), [false, true]);
        let less = counted(&[("simple, off", 3000.0), ("login", 94_500.0)]);
        assert_eq!(fine(&before, &less), [true, false]);
    }

    #[test]
    fn a_kind_that_only_one_side_has_is_not_fine() {
        let before = counted(&[("simple, off", 6000.0), ("login", 90_000.0)]);
        let now = counted(&[("simple, off", 6000.0), ("extended, off", 1.0)]);
        assert_eq!(fine(&before, &now), [true, false, false]);
    }

    #[test]
    fn one_more_lock_is_too_much() {
        let before = counted(&[("simple, off", 6000.0)]);
        let mut now = before.clone();
        now.counts[0].atomics = 0.1;
        assert_eq!(fine(&before, &now), [true]);
        now.counts[0].atomics = 2.0;
        assert_eq!(fine(&before, &now), [false]);
    }

    #[test]
    fn files_are_read_as_written() {
        let written = counted(&[("pgbench -S, simple, off", 6000.0)]);
        assert_eq!(Baseline::parse(&written.to_string()), Ok(written));
        let build = "profile: quick\ncompiler: rustc 1\n";
        assert!(Baseline::parse(build).is_ok());
        assert!(Baseline::parse(&format!("{build}many 0 simple\n")).is_err());
        assert!(Baseline::parse("compiler: rustc 1\n 6000 0 simple\n").is_err());
        assert!(Baseline::parse("profile: quick\n 6000 0 simple\n").is_err());
    }
}
