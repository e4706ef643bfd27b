//! The manual page of the ini file, pgweir.ini(5), generated from the table of settings. A test in
//! `crates/pgweir/src/cli.rs` generates the manual page of the command line.

use pgweir_config::{Effect, Scope, SettingInfo, docs};
use roff::{Inline, Roff, bold, roman};

/// The path of the generated page.
pub(crate) const PAGE: &str = "packaging/man/pgweir.ini.5";

/// Returns the page, in roff.
pub(crate) fn page() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["pgweir.ini", "5"]);
    section(&mut roff, "NAME");
    roff.text([roman("pgweir.ini - configuration of pgweir")]);
    section(&mut roff, "DESCRIPTION");
    for paragraph in DESCRIPTION {
        roff.control("PP", []);
        roff.text(inlines(paragraph));
    }
    for scope in Scope::ALL {
        section(
            &mut roff,
            &format!("SECTION [{}]", scope.section().to_uppercase()),
        );
        roff.text(inlines(docs::section_intro(scope)));
        for (group, settings) in docs::groups(scope) {
            roff.control("SS", [group]);
            for info in settings {
                setting(&mut roff, info);
            }
        }
    }
    section(&mut roff, "SEE ALSO");
    roff.text([bold("pgweir"), roman("(1), "), bold("psql"), roman("(1)")]);
    format!(
        ".\\\" Generated from the table of settings by cargo xtask docs: change it there.\n{}",
        roff.render()
    )
}

fn section(roff: &mut Roff, title: &str) {
    roff.control("SH", [title]);
}

fn setting(roff: &mut Roff, info: &SettingInfo) {
    roff.control("TP", []);
    roff.text([bold(info.name)]);
    roff.text(inlines(&docs::paragraph(info)));
    roff.control("br", []);
    roff.text(inlines(&facts(info)));
}

/// Returns type, unit, default and further facts about a setting, in one line.
fn facts(info: &SettingInfo) -> String {
    let mut line = format!("Type: {}", info.kind);
    if let Some(unit) = info.unit {
        line.push_str(&format!(", in {unit}"));
    }
    line.push_str(&match info.default {
        None => "; not set by default".to_owned(),
        Some("") => "; default: empty".to_owned(),
        Some(default) => format!("; default: `{default}`"),
    });
    if !info.reloadable {
        line.push_str("; a change needs a restart");
    }
    line.push_str(match info.effect {
        Effect::Now => ".",
        Effect::Never => "; accepted for PgBouncer's sake; has no effect.",
    });
    line
}

/// Returns a text whose parts between backticks are bold.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts
        .filter(|(_, part)| !part.is_empty())
        .map(|(number, part)| match number % 2 {
            0 => roman(part),
            _ => bold(part),
        })
        .collect()
}

const DESCRIPTION: &[&str] = &[
    "pgweir reads PgBouncer's configuration file, with the same keys, meanings and defaults, and some keys of its own.",
    "Sections are `[pgbouncer]`, `[databases]`, `[users]` and `[peers]`; each may be opened several times. `;` or `#` \
     starts a comment, at the start of a line only. A backslash at the end of a line continues it on the next. If a \
     key is set more than once, the last one holds. `%include FILE` reads another file at this place; a relative path \
     starts from the working directory.",
    "A time without a unit is in the unit that is named with the setting; `us`, `ms`, `s`, `min`, `h` or `d` may follow \
     the number. Booleans are `0` and `1`; `on`, `off`, `yes`, `no`, `true` and `false` are understood too.",
    "RELOAD on the console, or SIGHUP, puts a changed file in force, except for settings that need a restart. A file \
     with a mistake changes nothing: the log says file, line and key.",
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_setting_has_its_entry() {
        let page = page();
        for info in Scope::ALL.into_iter().flat_map(|scope| scope.settings()) {
            let entry = format!(".TP\n\\fB{}\\fR\n", info.name);
            assert!(page.contains(&entry), "{}", info.name);
        }
        assert!(!page.contains('`'), "backticks come in pairs");
    }

    #[test]
    fn the_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(page() == written, "{PAGE} is stale: run `cargo xtask docs`");
    }
}
