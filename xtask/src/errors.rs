//! `docs/errors.md`: every error that pgweir itself sends to a client, with its cause and cure. Message,
//! SQLSTATE and hint are those of `Fault`; cause and cure stand in the tables of `console`, `login` and
//! `work`. A variant of `Fault` without an entry there fails a test.

mod console;
mod login;
mod work;

use std::fmt::Write;

use pgweir_core::base::fault::Fault;

/// The path of the generated page.
pub(crate) const PAGE: &str = "docs/errors.md";

/// An error of the page.
struct Entry {
    /// A sample, in which capitals stand for names and values.
    fault: Fault,
    /// The reason why a client gets the error.
    cause: &'static str,
    /// The cure.
    cure: &'static str,
}

/// Errors that belong together.
struct Group {
    title: &'static str,
    entries: Vec<Entry>,
}

fn entry(fault: Fault, cause: &'static str, cure: &'static str) -> Entry {
    Entry { fault, cause, cure }
}

fn groups() -> Vec<Group> {
    [
        ("Logging in", login::entries()),
        ("The first packets of a connection", login::protocol()),
        ("Waiting for a server", work::waiting()),
        ("Servers that refuse, fail or vanish", work::servers()),
        ("Timeouts and limits", work::limits()),
        ("Connections that an operator ends", work::ended()),
        ("Statements", work::statements()),
        ("The console", console::entries()),
        ("Commands for all nodes", console::entries_on_all()),
    ]
    .map(|(title, entries)| Group { title, entries })
    .into()
}

/// Returns the page, in Markdown.
pub(crate) fn page() -> String {
    let mut out = String::from(INTRO);
    for group in groups() {
        let _ = write!(out, "\n## {}\n", group.title);
        for entry in group.entries {
            let (message, code) = (entry.fault.to_string(), entry.fault.sqlstate().to_owned());
            let _ = write!(out, "\n### `{message}`\n\n");
            if !entry.fault.is_sent_to_client() {
                out.push_str("In the log only: the sender may not be a PostgreSQL client.\n\n");
            }
            let _ = write!(
                out,
                "- **Cause:** {}\n- **Cure:** {}\n",
                entry.cause, entry.cure
            );
            if let Some(hint) = entry.fault.hint() {
                let _ = writeln!(out, "- **Its hint:** {hint}");
            }
            let _ = writeln!(out, "- **SQLSTATE:** `{code}`");
        }
    }
    out
}

const INTRO: &str = "\
<!-- Generated from crates/core/src/base/fault.rs and the tables in xtask/src/errors by `cargo xtask docs`: change it there. -->

# Troubleshooting by error message

These are the errors that pgweir itself sends to clients. Capitals such as `NAME` stand for a name or a value. An error
with other words comes from PostgreSQL and passes through pgweir unchanged; PostgreSQL's documentation explains it.

How to find out more:

- The **DETAIL** and the **HINT** of the error. `psql` shows both, and `\\errverbose` shows the SQLSTATE; a driver has
  them as fields of its exception.
- The **log** of pgweir. `closing because: ...` says why a connection ended, with its database, user and address
  (`log_disconnections`), and `pooler error: ...` has the error that a client got (`log_pooler_errors`).
- The **console**: `SHOW POOLS` (waiting clients; `wait_reason` and `last_error`), `SHOW CLIENTS`, `SHOW SERVERS`,
  `SHOW PINS`. [Monitoring](monitoring.md) explains them.
- **`pgweir check pgweir.ini`**, which reads the configuration as a start would, and with `--reach` connects to each
  server once.

For errors of a start (`pgweir pgweir.ini`, `pgweir postgres://...`), see [Installing](installing.md#when-it-does-not-start).
";

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Returns the variants of an enum, in the order of its source.
    fn variants(path: &str, name: &str) -> Vec<String> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let source = fs::read_to_string(file).unwrap();
        let (_, behind) = source.split_once(&format!("pub enum {name} {{\n")).unwrap();
        let (body, _) = behind.split_once("\n}\n").unwrap();
        body.lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
            .map(|line| {
                line.split(|c: char| !c.is_alphanumeric())
                    .next()
                    .unwrap_or_default()
            })
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_error_has_cause_and_cure() {
        let entries: Vec<Entry> = groups()
            .into_iter()
            .flat_map(|group| group.entries)
            .collect();
        let names: BTreeSet<String> = entries
            .iter()
            .flat_map(|entry| {
                let text = format!("{:?}", entry.fault);
                text.split(|c: char| !c.is_alphanumeric())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut missing = Vec::new();
        for (path, name) in [
            ("crates/core/src/base/fault.rs", "Fault"),
            ("crates/core/src/base/fault/login.rs", "LoginFault"),
            ("crates/core/src/base/tls.rs", "TlsFault"),
            ("crates/wire/src/startup.rs", "StartupError"),
        ] {
            let found = variants(path, name);
            assert!(found.len() > 2, "{name} has variants");
            missing.extend(found.into_iter().filter(|variant| !names.contains(variant)));
        }
        assert!(
            missing.is_empty(),
            "no entry in xtask/src/errors: {missing:?}"
        );
        for entry in entries {
            assert!(
                entry.cause.ends_with('.') && entry.cure.ends_with('.'),
                "{}",
                entry.fault
            );
        }
    }

    #[test]
    fn each_message_stands_once() {
        let page = page();
        let mut seen = BTreeSet::new();
        for line in page.lines().filter(|line| line.starts_with("### ")) {
            assert!(seen.insert(line), "twice: {line}");
        }
    }

    #[test]
    fn the_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(page() == written, "{PAGE} is stale: run `cargo xtask docs`");
    }
}
