//! The texts that are generated from the tables: the reference page, the example file, and a summary for `--help`.

use std::fmt::{self, Write};

use crate::{Effect, Scope, SettingInfo};

/// A generated file: its path in the repository, and its text.
#[must_use]
pub fn files() -> [(&'static str, String); 2] {
    [
        ("docs/settings.md", reference()),
        ("docs/pgweir.ini", example()),
    ]
}

/// Returns the reference page of all settings, as Markdown.
#[must_use]
pub fn reference() -> String {
    written(write_reference)
}

/// Returns an ini file with every setting commented out at its default.
#[must_use]
pub fn example() -> String {
    written(write_example)
}

/// Returns the part of `--help` about the ini file.
#[must_use]
pub fn help() -> String {
    written(write_help)
}

fn written(write: impl Fn(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("writing to a String does not fail");
    text
}

fn write_reference(out: &mut String) -> fmt::Result {
    out.push_str(REFERENCE_INTRO);
    for scope in Scope::ALL {
        write!(
            out,
            "\n## Section [{}]\n\n{}\n",
            scope.section(),
            section_intro(scope)
        )?;
        for (group, settings) in groups(scope) {
            write!(out, "\n### {group}\n")?;
            for info in settings {
                write_setting(out, info)?;
            }
        }
    }
    Ok(())
}

fn write_setting(out: &mut String, info: &SettingInfo) -> fmt::Result {
    write!(out, "\n#### {}\n\n{}\n\n", info.name, paragraph(info))?;
    write!(out, "- Type: {}", info.kind)?;
    if let Some(unit) = info.unit {
        write!(out, ", in {unit}")?;
    }
    match info.default {
        None => out.push_str("\n- Default: not set\n"),
        Some("") => out.push_str("\n- Default: empty\n"),
        Some(default) => write!(out, "\n- Default: `{default}`\n")?,
    }
    if !info.reloadable {
        out.push_str("- A change needs a restart.\n");
    }
    match info.effect {
        Effect::Now => Ok(()),
        Effect::Never => out.write_str("- Accepted for PgBouncer's sake; has no effect.\n"),
    }
}

fn write_example(out: &mut String) -> fmt::Result {
    out.push_str(EXAMPLE_INTRO);
    for scope in [Scope::Database, Scope::User, Scope::Peer, Scope::Global] {
        write!(out, "\n[{}]\n", scope.section())?;
        match scope {
            Scope::Global => write_example_settings(out)?,
            _ => write_example_entries(out, scope)?,
        }
    }
    Ok(())
}

fn write_example_entries(out: &mut String, scope: Scope) -> fmt::Result {
    let keys: Vec<_> = scope.settings().iter().map(|info| info.name).collect();
    comment(out, &format!("Keys: {}.", keys.join(", ")))?;
    out.write_str(match scope {
        Scope::Database => {
            ";; the database \"app\" of the server at 10.0.0.5\n;app = host=10.0.0.5 port=5432\n\
             ;; another name for it, with one pool for all users\n\
             ;reports = host=10.0.0.5 dbname=app user=reader pool_size=5\n\
             ;; every other database\n;* = host=localhost\n"
        }
        Scope::User => ";batch = pool_mode=session pool_size=2\n",
        _ => ";1 = host=/run/pgweir-1\n",
    })
}

fn write_example_settings(out: &mut String) -> fmt::Result {
    for (group, settings) in groups(Scope::Global) {
        write!(out, "\n;;;\n;;; {group}\n;;;\n")?;
        for info in settings.iter().filter(|info| info.effect != Effect::Never) {
            let mut text = paragraph(info);
            if let Some(unit) = info.unit {
                write!(text, " [{unit}]")?;
            }
            out.push('\n');
            comment(out, &text)?;
            writeln!(
                out,
                "{}",
                format!(";{} = {}", info.name, info.default.unwrap_or_default()).trim_end()
            )?;
        }
    }
    Ok(())
}

fn write_help(out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "Settings of the ini file (section [pgbouncer], with defaults):"
    )?;
    for (group, settings) in groups(Scope::Global) {
        let shown: Vec<_> = settings
            .iter()
            .filter(|info| info.effect == Effect::Now)
            .collect();
        if shown.is_empty() {
            continue;
        }
        write!(out, "\n  {group}\n")?;
        for info in shown {
            writeln!(
                out,
                "{}",
                format!("    {:<26} {}", info.name, info.default.unwrap_or_default()).trim_end()
            )?;
        }
    }
    for scope in [Scope::Database, Scope::User, Scope::Peer] {
        let in_effect = |info: &&SettingInfo| info.effect == Effect::Now;
        let keys: Vec<_> = scope
            .settings()
            .iter()
            .filter(in_effect)
            .map(|info| info.name)
            .collect();
        if !keys.is_empty() {
            let section = scope.section();
            writeln!(
                out,
                "\nKeys of the lines of section [{section}], name = key=value ...:"
            )?;
            wrapped(out, "    ", &keys.join(", "))?;
        }
    }
    Ok(())
}

/// Appends the settings of a scope under their headings.
pub fn groups(scope: Scope) -> impl Iterator<Item = (&'static str, &'static [SettingInfo])> {
    scope
        .settings()
        .chunk_by(|a, b| a.group == b.group)
        .map(|chunk| (chunk[0].group, chunk))
}

/// Returns a setting's description in one line.
#[must_use]
pub fn paragraph(info: &SettingInfo) -> String {
    let lines: Vec<_> = info.doc.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}

/// Writes `text` as comment lines of a readable width.
fn comment(out: &mut String, text: &str) -> fmt::Result {
    wrapped(out, ";; ", text)
}

fn wrapped(out: &mut String, start: &str, text: &str) -> fmt::Result {
    const WIDTH_MAX: usize = 92;
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH_MAX {
            writeln!(out, "{start}{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{start}{line}")
}

/// Returns the purpose of a section of the ini file, and the form of its lines.
#[must_use]
pub fn section_intro(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "The settings of the whole process.",
        Scope::Database => {
            "Lines of `name = key=value key='a value' ...`: where the connections of each database go. The name is \
             the one that clients ask for. Write a name between double quotes if it has other characters than \
             letters, digits, `_`, `.` and `-`. The entry `*` serves all names that have no entry of their own. Write \
             a value with spaces between single quotes, and double a quote in it. `pgbouncer` and `pgweir` are the \
             console's names."
        }
        Scope::User => {
            "Lines of `name = key=value ...`: settings of one user. A setting of the user overrides the same setting \
             of the database, which overrides the global setting."
        }
        Scope::Peer => {
            "Lines of `number = host=... port=...`: other processes of the same group. A process passes a cancel \
             request for a client of another process on to that process."
        }
    }
}

const REFERENCE_INTRO: &str = "\
<!-- Generated from the tables in crates/config/src/table by `cargo xtask docs`: change it there. -->

# Settings

pgweir reads PgBouncer's `pgbouncer.ini`, with the same keys, meanings and defaults, and some keys of its own.

- Sections are `[pgbouncer]`, `[databases]`, `[users]` and `[peers]`; each may be opened several times.
- `;` or `#` starts a comment, at the start of a line only. A `\\` at the end of a line continues it on the next.
- If a key is set more than once, the last one holds. `%include file` reads another file at this place; a relative
  path starts from the working directory.
- A time without a unit is in the unit that is named with the setting; `us`, `ms`, `s`, `min`, `h` or `d` may follow the number.
- Booleans are `0` and `1`; `on`, `off`, `yes`, `no`, `true` and `false` are understood too.
- RELOAD (or SIGHUP) puts a changed file in force, except for settings that need a restart. A file with a mistake
  changes nothing.
";

const EXAMPLE_INTRO: &str = "\
;;; Example configuration of pgweir: every setting at its default. See settings.md.
;;; Generated by `cargo xtask docs`.
";
