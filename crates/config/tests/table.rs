//! The table of settings, and the texts that are generated from it.

use std::{collections::BTreeSet, fs, path::Path};

use pgweir_config::{Config, Effect, Scope, docs};

/// Every key of PgBouncer's section `[pgbouncer]`, with its default where it has one.
const PGBOUNCER: &str = include_str!("../src/table/pgbouncer_keys.txt");

#[test]
fn every_key_of_pgbouncer_has_its_default_and_reloads_as_there() {
    for line in PGBOUNCER.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(' ').expect("a name and more");
        let (reloads, default) = rest.split_once(' ').unwrap_or((rest, "unset"));
        let info = Scope::Global
            .settings()
            .iter()
            .find(|info| info.name == name);
        let info = info.unwrap_or_else(|| panic!("no setting {name}"));
        assert_eq!(info.reloadable, reloads == "reloads", "{name}");
        let expect = match default {
            "unset" => None,
            "empty" => Some(""),
            _ => Some(default),
        };
        assert_eq!(info.default, expect, "{name}");
    }
}

#[test]
fn every_setting_is_described_once() {
    let mut seen = BTreeSet::new();
    for scope in Scope::ALL {
        for info in scope.settings() {
            assert_eq!(info.scope, scope);
            assert!(
                seen.insert((scope, info.name)),
                "{} is there twice",
                info.name
            );
            assert!(
                info.doc.trim().ends_with('.'),
                "{}: the description is a sentence",
                info.name
            );
        }
    }
}

#[test]
fn generated_files_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in docs::files() {
        let stored = fs::read_to_string(root.join(name)).unwrap_or_default();
        assert!(stored == text, "{name} is stale: run `cargo xtask docs`");
    }
}

#[test]
fn the_example_file_loads_as_it_is_and_with_all_settings_uncommented() {
    let load =
        |text: String| Config::load(Path::new("pgweir.ini"), &mut |_: &Path| Ok(text.clone()));
    let plain = load(docs::example()).expect("the example loads");
    assert_eq!(plain.settings.conffile.as_deref(), Some("pgweir.ini"));
    let bare = |line: &str| {
        line.strip_prefix(';')
            .filter(|rest| !rest.starts_with(';'))
            .unwrap_or(line)
            .to_owned()
    };
    let all = load(
        docs::example()
            .lines()
            .map(bare)
            .collect::<Vec<_>>()
            .join("\n"),
    )
    .expect("all of it loads");
    assert_eq!(all.settings, plain.settings);
    assert_eq!(
        (all.databases.len(), all.users.len(), all.peers.len()),
        (2, 1, 1)
    );
}

#[test]
fn help_lists_what_is_in_effect() {
    let help = docs::help();
    for info in Scope::Global.settings() {
        assert_eq!(
            help.contains(&format!("    {} ", info.name))
                || help.contains(&format!("    {}\n", info.name)),
            info.effect == Effect::Now,
            "{}",
            info.name
        );
    }
}
