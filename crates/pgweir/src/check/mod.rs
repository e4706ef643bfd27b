//! `pgweir check INI`: tells what a configuration comes to, before anybody relies on it.

mod doubts;
mod report;
mod table;

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use self::table::Table;
use crate::{control::load, process::FileLimit, quickstart::complaint, tls::Contexts};

/// Prints what would be used, what is ignored and what is doubtful. The process ends with 1 if the
/// configuration can't be used; what is doubtful is no reason for that. `reach`: connect to each server.
pub(crate) fn run(ini: &Path, reach: bool) -> ExitCode {
    let loaded = match load(ini, &Contexts::default()) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (snapshot, files) = (&loaded.snapshot, FileLimit::raise());
    let mut doubts = doubts::all_of(ini, snapshot, files);
    if reach {
        let endpoints = report::endpoints(&snapshot.config);
        doubts.extend(
            endpoints
                .iter()
                .filter_map(|(host, port)| complaint(host, *port)),
        );
    }
    let mut tables = report::tables(snapshot, files);
    tables.extend(list("Notes", loaded.notes()));
    tables.extend(list(
        "Different from PgBouncer",
        report::differences(snapshot),
    ));
    tables.extend(list("Warnings", doubts));
    let terminal = io::stdout().is_terminal();
    let mut text = format!("{}: can be used\n", ini.display());
    for table in tables {
        text.push('\n');
        text.push_str(&if terminal {
            table.aligned()
        } else {
            table.plain()
        });
    }
    // Whoever closed standard output does not want to know.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// A table of one column; none if there is nothing to say.
fn list(title: &'static str, lines: Vec<String>) -> Option<Table> {
    (!lines.is_empty()).then(|| Table {
        title,
        columns: &[],
        rows: lines.into_iter().map(|line| vec![line]).collect(),
    })
}
