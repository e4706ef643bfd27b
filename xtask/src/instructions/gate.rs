//! The gate: a few transactions and a login are counted and compared with a baseline in the repository.
//!
//! The atomic instructions of these transactions are compared, too: with each of them, workers may wait for one another.
//! If a client need not wait for a server, its transaction has none.
//!
//! The count of a login depends a little on which events the driver sees together. So a count that seems to have grown
//! too much is counted again, and the smallest one is compared.

use std::{env, fs, process::Command};

use super::{
    Counting, Executed, Kind, OFF, Profile, TRANSPARENT,
    baseline::{Baseline, Change, Count, GROWTH_MAX},
};
use crate::stage::{Stage, StageError, Terminal};

/// How often a transaction is counted at most.
const ATTEMPTS: u32 = 3;

/// A count of the baseline.
struct NamedCount {
    /// The name in the file.
    name: String,
    kind: Kind,
    settings: &'static str,
}

/// Returns what the baseline counts: a few transactions, with `session_state` off and transparent.
fn counts_of_baseline() -> Vec<NamedCount> {
    let kinds = [
        ("pgbench -S", "simple", false),
        ("pgbench -S", "extended", false),
        ("pgbench -S", "prepared", false),
        ("pgbench -S with a login each time", "simple", true),
    ];
    let states = [("off", OFF), ("transparent", TRANSPARENT)];
    let of = |(what, protocol, connects), (state, settings)| NamedCount {
        name: format!("{what}, {protocol}, session_state = {state}"),
        kind: Kind {
            what,
            protocol,
            connects,
            statement: None,
        },
        settings,
    };
    let both = kinds
        .iter()
        .flat_map(|&kind| states.map(|state| of(kind, state)));
    both.collect()
}

impl Counting {
    /// Compares with the profile's baseline. A count that has grown too much is an error.
    pub(super) async fn compare(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        profile: Profile,
    ) -> Result<(), StageError> {
        let path = profile.baseline();
        let text = fs::read_to_string(&path)
            .map_err(|e| StageError::new(format!("cannot read {}: {e}", path.display())))?;
        let before = Baseline::parse(&text)
            .map_err(|why| StageError::new(format!("{} is no baseline: {why}", path.display())))?;
        let compiler = compiler()?;
        if before.compiler != compiler {
            terminal.line(&format!(
                "NOTHING WAS COMPARED: the baseline is of {}, and this is {compiler}.",
                before.compiler
            ));
            return Ok(());
        }
        let mut now = self.count_baseline(stage, terminal).await?;
        for _ in 1..ATTEMPTS {
            self.count_grown_again(stage, terminal, &before, &mut now)
                .await?;
        }
        judge(terminal, profile, &before.changes(&now))
    }

    pub(super) async fn write_baseline(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        profile: Profile,
    ) -> Result<(), StageError> {
        let counted = Baseline {
            profile: profile.name().to_owned(),
            compiler: compiler()?,
            counts: self.count_baseline(stage, terminal).await?,
        };
        let path = profile.baseline();
        let text = counted.to_string();
        fs::write(&path, &text)
            .map_err(|e| StageError::new(format!("cannot write {}: {e}", path.display())))?;
        terminal.line(&text);
        Ok(())
    }

    /// Counts the transactions of the baseline, with `session_state` off and transparent.
    async fn count_baseline(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
    ) -> Result<Vec<Count>, StageError> {
        let mut counts = Vec::new();
        for counted in counts_of_baseline() {
            let executed = self.count_named(stage, terminal, &counted).await?;
            counts.push(Count {
                kind: counted.name,
                instructions: executed.all,
                atomics: executed.atomic,
            });
        }
        Ok(counts)
    }

    /// Counts again what seems to have grown too much, and keeps the smaller count of each.
    async fn count_grown_again(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        before: &Baseline,
        now: &mut [Count],
    ) -> Result<(), StageError> {
        let changes = before.changes(now);
        for (counted, count) in counts_of_baseline().iter().zip(now) {
            let is_fine = |change: &Change| change.kind == counted.name && change.is_fine();
            if !changes.iter().any(is_fine) {
                let again = self.count_named(stage, terminal, counted).await?;
                count.instructions = count.instructions.min(again.all);
                count.atomics = count.atomics.min(again.atomic);
            }
        }
        Ok(())
    }

    async fn count_named(
        &self,
        stage: &mut Stage,
        terminal: &Terminal,
        counted: &NamedCount,
    ) -> Result<Executed, StageError> {
        let count = self.per_transaction(stage, counted.settings, &counted.kind);
        terminal.during(&counted.name, count).await
    }
}

/// Returns the version of the compiler, which is taken for the one that built pgweir, and the kind of processor.
fn compiler() -> Result<String, StageError> {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.map_err(|e| StageError::new(format!("cannot run rustc --version: {e}")))?;
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{}, {}", version.trim(), env::consts::ARCH))
}

/// Prints the changes. A count that has grown too much is an error.
fn judge(terminal: &Terminal, profile: Profile, changes: &[Change]) -> Result<(), StageError> {
    terminal.heading("Instructions of pgweir per transaction, beside the baseline");
    let titles = ["before", "now", "", "atomic", "now"];
    let [before, now, growth, atomic, atomic_now] = titles;
    terminal.line(&format!(
        "{:<60} {before:>8} {now:>8} {growth:>8} {atomic:>7} {atomic_now:>7}",
        "transaction"
    ));
    for change in changes {
        let shown = |count: Option<f64>| match count {
            Some(count) => format!("{count:.0}"),
            None => "-".to_owned(),
        };
        let growth = change.growth().map(|growth| format!("{growth:+.1} %"));
        let verdict = match change.is_fine() {
            true => terminal.good("fine"),
            false => terminal.bad("TOO MANY, or without a counterpart"),
        };
        let all = |count: &Count| count.instructions;
        let atomics = |count: &Count| count.atomics;
        terminal.line(&format!(
            "{:<60} {:>8} {:>8} {:>8} {:>7} {:>7}  {verdict}",
            change.kind,
            shown(change.before.as_ref().map(all)),
            shown(change.now.as_ref().map(all)),
            growth.unwrap_or_default(),
            shown(change.before.as_ref().map(atomics)),
            shown(change.now.as_ref().map(atomics)),
        ));
    }
    match changes.iter().filter(|change| !change.is_fine()).count() {
        0 => Ok(()),
        bad => Err(StageError::with_next(
            format!(
                "{bad} counts are more than {:.0} % above the baseline, or have more atomic instructions",
                GROWTH_MAX * 100.0
            ),
            format!(
                "find the cause; if the growth is worth it: cargo xtask instructions --profile {} --write-baseline",
                profile.name()
            ),
        )),
    }
}
