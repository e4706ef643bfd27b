//! `pgweir check INI`: shows the effect of a configuration without starting the pooler.

mod ports;
mod report;
mod start_errors;
mod table;
mod warnings;

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
    process::{self, FileLimit},
    quickstart::complaint,
    setting_errors::{Places, placed},
    tls::Contexts,
};

/// Prints the databases, limits, ignored settings and warnings of a configuration. Returns exit code 1 if the pooler
/// would not start with the configuration; warnings don't change the exit code. With `reach`, also connects to each
/// server, and returns exit code 1 if one can't be reached.
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
    let findings = start_errors::find(settings, is_user);
    if !findings.start_errors.is_empty() {
        for (key, error) in findings.start_errors {
            eprintln!("{}", with_place(&snapshot.config.places, key, &error));
        }
        return ExitCode::FAILURE;
    }
    let mut warnings = warnings::all_of(ini, snapshot, files);
    warnings.extend(findings.warnings);
    warnings.extend(ports::warnings(settings));
    if let Some(user) = settings.user.as_deref().filter(|_| !is_user) {
        warnings.push(format!(
            "user = {user}: the files were not checked for this user: run pgweir check as {user} or root"
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
        warnings.extend(complaints);
    }
    tables.extend(list("Notes", loaded.notes()));
    tables.extend(list(
        "Different from PgBouncer",
        report::differences(snapshot),
    ));
    tables.extend(list("Warnings", warnings));
    let mut text = format!("{}: can be used\n", ini.display());
    for table in tables {
        text.push('\n');
        text.push_str(&table.aligned());
    }
    // Standard output may be closed; the exit code still has the result.
    let _ = io::stdout().write_all(text.as_bytes());
    code
}

/// Loads the configuration, as the user that the setting `user` names if this process can switch to that user. Also
/// returns whether this process runs as the user that the pooler would run as.
fn load_as_user(ini: &Path) -> Result<(Loaded, bool), String> {
    let load = || load(ini, &Contexts::default()).map_err(|error| error.to_string());
    let loaded = load()?;
    let Some(user) = loaded.snapshot.config.settings.user.as_deref() else {
        return Ok((loaded, true));
    };
    let is_user = process::can_become_user(user)
        .map_err(|error| with_place(&loaded.snapshot.config.places, "user", &error))?;
    Ok((if is_user { load()? } else { loaded }, is_user))
}

fn with_place(places: &Places, key: &str, error: &dyn Display) -> String {
    match places.get(key) {
        Some(place) => placed(place, key, error),
        None => error.to_string(),
    }
}

/// Connects to each server. Returns the servers that answer, and one message for each other server.
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

/// Returns a table of one column, or none without lines.
fn list(title: &'static str, lines: Vec<String>) -> Option<Table> {
    (!lines.is_empty()).then(|| Table {
        title,
        columns: &[],
        rows: lines.into_iter().map(|line| vec![line]).collect(),
    })
}
