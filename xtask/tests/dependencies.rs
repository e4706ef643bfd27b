//! Checks `deny.toml` against the dependencies: licences, versions and banned crates, without `cargo deny` and without
//! a network. The workflow and `make test-full` run `cargo deny`, which also knows advisories.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

/// A crate that is compiled for Linux on x86_64.
struct Package {
    name: String,
    version: String,
    license: String,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The lists of `deny.toml`.
struct Rules {
    licenses: Vec<String>,
    banned: Vec<String>,
    /// `name@version`, a version without its last numbers.
    skipped: Vec<String>,
}

fn rules() -> Rules {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let table: toml::Table = text.parse().expect("deny.toml is TOML");
    let list = |section: &str, key: &str| {
        let values = table[section][key].as_array().expect("a list");
        values
            .iter()
            .map(|value| value.as_str().expect("a text").to_owned())
            .collect()
    };
    Rules {
        licenses: list("licenses", "allow"),
        banned: list("bans", "deny"),
        skipped: list("bans", "skip"),
    }
}

/// Returns the packages, by `cargo tree`: `cargo metadata` also lists crates that only an unused feature would need.
fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root())
        .args(["tree", "--workspace", "--locked", "--prefix=none"])
        .args(["--target=x86_64-unknown-linux-gnu", "--format={p}|{l}"])
        .output()
        .expect("cargo tree");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: BTreeSet<&str> = text
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.is_empty())
        .collect();
    let package = |line: &str| {
        let (package, license) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        Some(Package {
            name: words.next()?.to_owned(),
            version: words.next()?.trim_start_matches('v').to_owned(),
            license: license.to_owned(),
        })
    };
    lines
        .into_iter()
        .map(|line| package(line).unwrap_or_else(|| panic!("cargo tree says {line}")))
        .collect()
}

/// Returns whether these licences alone fulfil an SPDX expression. An exception (`WITH`) only allows more.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut holds = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        holds |= all_of(words, allowed);
    }
    holds
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut holds = one_of(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        holds &= one_of(words, allowed);
    }
    holds
}

fn one_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    match words.next() {
        Some("(") => {
            let holds = any_of(words, allowed);
            words.next() == Some(")") && holds
        }
        Some(name) => {
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            allowed.iter().any(|license| license == name)
        }
        None => false,
    }
}

/// Returns whether `1.2.3` is a version of `1.2`.
fn is_version_of(version: &str, start: &str) -> bool {
    version
        .strip_prefix(start)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn complaints(packages: &[Package], rules: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package {
        name,
        version,
        license,
    } in packages
    {
        if !is_allowed(license, &rules.licenses) {
            found.push(format!(
                "{name} {version}: the licence \"{license}\" is not in deny.toml"
            ));
        }
        if rules.banned.contains(name) {
            found.push(format!("{name} {version} is banned by deny.toml"));
        }
        let skipped = |entry: &String| {
            entry
                .split_once('@')
                .is_some_and(|(skipped, start)| skipped == name && is_version_of(version, start))
        };
        if !rules.skipped.iter().any(skipped) {
            versions.entry(name).or_default().insert(version);
        }
    }
    for (name, several) in versions {
        if several.len() > 1 {
            found.push(format!(
                "{name} has several versions: {several:?} (skip an old one in deny.toml, with who needs it)"
            ));
        }
    }
    found
}

#[test]
fn dependencies_are_what_deny_toml_allows() {
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let found = complaints(&packages, &rules());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The check above can fail.
#[test]
fn forbidden_dependencies_are_found() {
    let package = |name: &str, version: &str, license: &str| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        license: license.to_owned(),
    };
    let rules = Rules {
        licenses: vec!["MIT".to_owned(), "ISC".to_owned()],
        banned: vec!["ring".to_owned()],
        skipped: vec!["old@1.2".to_owned()],
    };
    let found = complaints(
        &[
            package("good", "1.0.0", "(GPL-2.0 OR MIT) AND ISC"),
            package("lgpl", "1.0.0", "LGPL-3.0"),
            package("both", "1.0.0", "MIT AND GPL-2.0"),
            package("ring", "0.17.0", "ISC"),
            package("twice", "1.0.0", "MIT/Apache-2.0"),
            package("twice", "2.0.0", "MIT"),
            package("old", "1.2.9", "MIT"),
            package("old", "1.20.0", "MIT"),
        ],
        &rules,
    );
    assert_eq!(
        found,
        [
            "lgpl 1.0.0: the licence \"LGPL-3.0\" is not in deny.toml",
            "both 1.0.0: the licence \"MIT AND GPL-2.0\" is not in deny.toml",
            "ring 0.17.0 is banned by deny.toml",
            "twice has several versions: {\"1.0.0\", \"2.0.0\"} (skip an old one in deny.toml, with who needs it)",
        ]
    );
}
