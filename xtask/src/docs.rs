//! `cargo xtask docs [--check]`: generates the pages about settings (from the table of settings), about their tests
//! (from marks in the tests), and about errors that clients can get.

use std::{
    fs,
    io::{self, Write, stderr},
    path::Path,
    process::ExitCode,
};

use pgweir_config::docs;

use crate::{coverage, errors, man, plot};

/// Writes the generated pages, or with `--check` only says which of them are stale.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    let check = match arguments
        .iter()
        .skip(1)
        .map(String::as_str)
        .collect::<Vec<_>>()[..]
    {
        [] => false,
        ["--check"] => true,
        _ => return fail("usage: cargo xtask docs [--check]"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let coverage = match coverage::page(&root) {
        Ok(text) => text,
        Err(error) => return fail(&error.to_string()),
    };
    let plots = match plot::all(&root) {
        Ok(text) => text,
        Err(error) => return fail(&error.to_string()),
    };
    let mut stale = Vec::new();
    let pages = [
        (coverage::PAGE, coverage),
        (man::PAGE, man::page()),
        (errors::PAGE, errors::page()),
    ];
    for (name, text) in docs::files().into_iter().chain(pages).chain(plots) {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        stale.push(name);
        if !check && let Err(error) = write(&path, &text) {
            return fail(&format!("{name}: {error}"));
        }
    }
    if check && !stale.is_empty() {
        return fail(&format!(
            "stale: {}; run `cargo xtask docs`",
            stale.join(", ")
        ));
    }
    ExitCode::SUCCESS
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

fn fail(message: &str) -> ExitCode {
    let _ = writeln!(stderr(), "{message}");
    ExitCode::FAILURE
}
