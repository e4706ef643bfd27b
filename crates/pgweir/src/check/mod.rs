//! `pgweir check INI`: tells what a configuration comes to, before anybody relies on it.

mod doubts;
mod obstacles;
mod ports;
mod report;
mod table;

use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use pgweir_core::{Endpoint, Snapshot};

use self::table::Table;
use crate::{
    control::{Loaded, load},
    placed::{Places, placed},
    process::{self, FileLimit},
    quickstart::complaint,
    tls::Contexts,
};

/// Prints what would be used, what is ignored and what is doubtful. The process ends with 1 if the
/// pooler would not start with it; what is doubtful is no reason for that. `reach`: connect to each server, and
/// end with 1 if one can't be reached.
pub(crate) fn run(ini: &Path, reach: bool) -> ExitCode {
    let (loaded, is_user) = match load_as_user(ini) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (snapshot, files) = (&loaded.snapshot, FileLimit::raise());
    let settings = &snapshot.config.settings;
    let findings = obstacles::find(settings, is_user);
    if !findings.obstacles.is_empty() {
        for (key, obstacle) in findings.obstacles {
            eprintln!("{}", with_place(&snapshot.config.places, key, &obstacle));
        }
        return ExitCode::FAILURE;
    }
    let mut doubts = doubts::all_of(ini, snapshot, files);
    doubts.extend(findings.doubts);
    doubts.extend(ports::doubts(settings));
    if let Some(user) = settings.user.as_deref().filter(|_| !is_user) {
        doubts.push(format!(
            "user = {user}: whether this user can read and write the files is known only if {user} or root asks"
        ));
    }
    let mut tables = report::tables(snapshot, files);
    let mut code = ExitCode::SUCCESS;
    if reach {
        let (reached, complaints) = reach_servers(snapshot);
        if !complaints.is_empty() {
            code = ExitCode::FAILURE;
        }
        tables.extend(list(
            "Reached (by a connection, in which nobody has logged in)",
            reached,
        ));
        doubts.extend(complaints);
    }
    tables.extend(list("Notes", loaded.notes()));
    tables.extend(list(
        "Different from PgBouncer",
        report::differences(snapshot),
    ));
    tables.extend(list("Warnings", doubts));
    let mut text = format!("{}: can be used\n", ini.display());
    for table in tables {
        text.push('\n');
        text.push_str(&table.aligned());
    }
    // Whoever closed standard output does not want to know.
    let _ = io::stdout().write_all(text.as_bytes());
    code
}

/// The configuration as the user sees it that it would run as, where we can be that one; and whether we are.
fn load_as_user(ini: &Path) -> Result<(Loaded, bool), String> {
    let load = || load(ini, &Contexts::default()).map_err(|error| error.to_string());
    let loaded = load()?;
    let Some(user) = loaded.snapshot.config.settings.user.as_deref() else {
        return Ok((loaded, true));
    };
    let is_user = process::rehearse_user(user)
        .map_err(|error| with_place(&loaded.snapshot.config.places, "user", &error))?;
    Ok((if is_user { load()? } else { loaded }, is_user))
}

fn with_place(places: &Places, key: &str, error: &dyn Display) -> String {
    match places.get(key) {
        Some(place) => placed(place, key, error),
        None => error.to_string(),
    }
}

/// Connects to each server: those that are there, and what is wrong with the others.
fn reach_servers(snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let (mut reached, mut complaints) = (Vec::new(), Vec::new());
    for (host, port) in report::endpoints(&snapshot.config) {
        match complaint(&host, port) {
            Some(complaint) => complaints.push(complaint),
            None => reached.push(Endpoint::of(&host, port).to_string()),
        }
    }
    (reached, complaints)
}

/// A table of one column; none if there is nothing to say.
fn list(title: &'static str, lines: Vec<String>) -> Option<Table> {
    (!lines.is_empty()).then(|| Table {
        title,
        columns: &[],
        rows: lines.into_iter().map(|line| vec![line]).collect(),
    })
}
