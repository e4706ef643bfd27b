//! The counts that the tests compare with: a file of the repository for each cargo profile, which
//! `cargo xtask instructions --write-baseline` writes.

use std::fmt;

/// The largest part by which a count may exceed that of the baseline.
pub(super) const GROWTH_MAX: f64 = 0.03;

const COMPILER: &str = "compiler: ";
const PROFILE: &str = "profile: ";
const HEADING: &str = "\
# Instructions of pgweir per transaction, counted by callgrind.
# Written by `cargo xtask instructions --write-baseline`.
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
            let parts = line.trim_start().split_once(' ');
            let count = parts.and_then(|(count, kind)| {
                let instructions = count.parse().ok()?;
                let kind = kind.to_owned();
                Some(Count { kind, instructions })
            });
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
                now: Some(count.instructions),
            })
            .collect();
        let gone = self
            .counts
            .iter()
            .filter(|old| of(now, &old.kind).is_none());
        changes.extend(gone.map(|old| Change {
            kind: old.kind.clone(),
            before: Some(old.instructions),
            now: None,
        }));
        changes
    }
}

fn of(counts: &[Count], kind: &str) -> Option<f64> {
    let found = counts.iter().find(|count| count.kind == kind);
    found.map(|count| count.instructions)
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{HEADING}{PROFILE}{}\n{COMPILER}{}",
            self.profile, self.compiler
        )?;
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

    fn counted(counts: &[(&str, f64)]) -> Baseline {
        Baseline {
            profile: "release".to_owned(),
            compiler: "rustc 1".to_owned(),
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
    fn files_are_read_as_written() {
        let written = counted(&[("pgbench -S, simple, off", 6000.0)]);
        assert_eq!(Baseline::parse(&written.to_string()), Ok(written));
        let build = "profile: quick\ncompiler: rustc 1\n";
        assert!(Baseline::parse(build).is_ok());
        assert!(Baseline::parse(&format!("{build}many simple\n")).is_err());
        assert!(Baseline::parse("compiler: rustc 1\n 6000 simple\n").is_err());
        assert!(Baseline::parse("profile: quick\n 6000 simple\n").is_err());
    }
}
