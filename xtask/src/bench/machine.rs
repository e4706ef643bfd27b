//! Describes the machine and the versions of the programs that were measured.

use std::{fs, path::Path, thread::available_parallelism};

use super::subject::{Subject, SubjectKind};
use crate::stage::{own_command, postgres::Programs};

/// Returns cores, kernel and versions, a line each.
pub(super) async fn describe(programs: &Programs, subjects: &[Subject]) -> Vec<String> {
    let mut lines = vec![
        format!("  command     {}", command_line()),
        format!("  machine     {} x {}", cores(), processor()),
        format!("  kernel      {}", first_line("/proc/sys/kernel/osrelease")),
        format!(
            "  PostgreSQL  {}",
            version(&programs.path("postgres"), "--version").await
        ),
        format!(
            "  pgbench     {}",
            version(&programs.path("pgbench"), "--version").await
        ),
    ];
    let mut known: Vec<&Path> = Vec::new();
    for subject in subjects {
        if known.contains(&subject.program.as_path()) {
            continue;
        }
        known.push(&subject.program);
        let flag = match subject.kind {
            SubjectKind::Haproxy => "-v",
            SubjectKind::PgBouncer { .. } | SubjectKind::Pgweir { .. } => "-V",
        };
        let text = version(&subject.program, flag).await;
        let name = subject.name.split(':').next().unwrap_or_default();
        lines.push(format!("  {name:<11} {text}"));
    }
    lines
}

fn command_line() -> String {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    format!("cargo xtask {}", arguments.join(" "))
}

fn cores() -> usize {
    available_parallelism().map_or(0, usize::from)
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split(": ").nth(1));
    model.unwrap_or("unknown processor").to_owned()
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

async fn version(program: &Path, flag: &str) -> String {
    let output = own_command(program).arg(flag).output().await;
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
