//! The invariants of ARCHITECTURE.md and the house rules that can be checked from the source.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The largest number of lines of a source file.
const FILE_LINES_MAX: usize = 600;
/// The largest number of lines of a function, except for tables and tests.
const FUNCTION_LINES_MAX: usize = 90;

/// A text that must not occur in some folder, and the replacement.
struct Ban {
    under: &'static [&'static str],
    text: &'static str,
    instead: &'static str,
}

/// The sources that do no I/O: callers pass the time, the entropy and the contents of files in.
const WITHOUT_IO: &[&str] = &[
    "crates/auth/src",
    "crates/config/src",
    "crates/core/src",
    "crates/fleet/src",
    "crates/formats/src",
    "crates/records/src",
    "crates/wire/src",
];

const BANS: &[Ban] = &[
    Ban {
        under: &["crates", "xtask/src"],
        text: concat!("todo", "!("),
        instead: "do it, or leave it out",
    },
    Ban {
        under: &["crates", "xtask/src"],
        text: concat!("unimplemented", "!("),
        instead: "do it, or leave it out",
    },
    Ban {
        under: WITHOUT_IO,
        text: "Instant::now",
        instead: "time is an argument",
    },
    Ban {
        under: WITHOUT_IO,
        text: "SystemTime",
        instead: "time is an argument",
    },
    Ban {
        under: WITHOUT_IO,
        text: "std::fs",
        instead: "only crates/pgweir opens files",
    },
    Ban {
        under: WITHOUT_IO,
        text: "std::env::",
        instead: "only crates/pgweir reads the environment",
    },
    Ban {
        under: WITHOUT_IO,
        text: "TcpStream",
        instead: "only crates/pgweir opens sockets",
    },
    Ban {
        under: &["crates/core/src/pool"],
        text: "pgweir_wire",
        instead: "the pool knows no protocol",
    },
    Ban {
        under: &["crates/core/src/pool"],
        text: "crate::backend",
        instead: "the pool knows ids only",
    },
    Ban {
        under: &["crates/core/src/pool"],
        text: "crate::frontend",
        instead: "the pool knows ids only",
    },
    Ban {
        under: &["crates/core/src/frontend"],
        text: "crate::backend",
        instead: "only relay and worker see both",
    },
    Ban {
        under: &["crates/core/src/backend"],
        text: "crate::frontend",
        instead: "only relay and worker see both",
    },
    Ban {
        under: &["crates/core/src/relay/mod.rs"],
        text: "crate::admin",
        instead: "the data path does not know the console",
    },
    Ban {
        under: &["crates"],
        text: concat!("static ", "mut"),
        instead: "no global state",
    },
    Ban {
        under: &["crates"],
        text: concat!("lazy", "_static"),
        instead: "no global state",
    },
    Ban {
        under: &["crates"],
        text: concat!("Once", "Lock::new"),
        instead: "no global state",
    },
];

const BANNED_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "manager", "inner", "misc", "common",
];

/// The crates of this workspace that each crate in `crates/` depends on, also in its tests.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("auth", &[]),
    ("config", &[]),
    ("fleet", &[]),
    ("records", &[]),
    ("core", &["wire", "auth", "config"]),
    ("formats", &["core", "auth", "config", "fleet"]),
    ("sim", &["core", "wire", "auth", "config", "fleet"]),
    ("fuzz", &["core", "auth", "config", "formats", "records"]),
    (
        "pgweir",
        &[
            "core", "wire", "auth", "config", "fleet", "formats", "records",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the Rust files below a folder, or the file itself.
fn sources(at: &Path) -> Vec<PathBuf> {
    if at.is_file() {
        return vec![at.to_owned()];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn all_sources() -> Vec<PathBuf> {
    ["crates", "xtask/src"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .collect()
}

#[track_caller]
fn expect_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn bans() {
    let mut complaints = Vec::new();
    for ban in BANS {
        for path in ban
            .under
            .iter()
            .flat_map(|folder| sources(&root().join(folder)))
        {
            let text = fs::read_to_string(&path).unwrap();
            for (number, line) in text.lines().enumerate() {
                if line.contains(ban.text) && !line.trim_start().starts_with("//") {
                    complaints.push(format!(
                        "{}:{}: `{}`: {}",
                        path.display(),
                        number + 1,
                        ban.text,
                        ban.instead
                    ));
                }
            }
        }
    }
    expect_none(&complaints);
}

#[test]
fn no_unsafe_outside_the_driver() {
    let complaints: Vec<_> = all_sources()
        .into_iter()
        .filter(|path| !path.to_string_lossy().contains("pgweir/src/net/"))
        .filter(|path| {
            fs::read_to_string(path)
                .unwrap()
                .lines()
                .any(|line| line.contains(concat!("unsafe", " {")))
        })
        .map(|path| format!("{}: unsafe belongs to the driver", path.display()))
        .collect();
    expect_none(&complaints);
}

#[test]
fn names_say_something() {
    let complaints: Vec<_> = all_sources()
        .into_iter()
        .filter(|path| {
            path.components().any(|part| {
                BANNED_NAMES.contains(&part.as_os_str().to_string_lossy().trim_end_matches(".rs"))
            })
        })
        .map(|path| format!("{}: a name that says nothing", path.display()))
        .collect();
    expect_none(&complaints);
}

#[test]
fn files_and_functions_are_short() {
    let mut complaints = Vec::new();
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        if text.lines().count() > FILE_LINES_MAX {
            complaints.push(format!(
                "{}: {} lines",
                path.display(),
                text.lines().count()
            ));
        }
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        if !path.components().any(|part| part.as_os_str() == "tests") {
            complaints.extend(long_functions(product).map(|(line, len)| {
                format!("{}:{line}: a function of {len} lines", path.display())
            }));
        }
    }
    expect_none(&complaints);
}

/// Returns the first line and the length of functions above the limit. The end of a function is found by its
/// indentation, which rustfmt ensures.
fn long_functions(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let trimmed = line.trim_start();
        let is_function = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn "]
            .iter()
            .any(|start| trimmed.starts_with(start));
        if is_function {
            open = Some((number, indent));
        } else if let Some((start, depth)) = open
            && indent == depth
            && trimmed == "}"
        {
            let len = number - start + 1;
            if len > FUNCTION_LINES_MAX {
                found.push((start + 1, len));
            }
            open = None;
        }
    }
    found.into_iter()
}

/// Returns the crates of this workspace that a manifest names in any table of dependencies, without `pgweir-`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    fn collect(table: &toml::Table, found: &mut BTreeSet<String>) {
        for (key, value) in table {
            let toml::Value::Table(entries) = value else {
                continue;
            };
            if !key.ends_with("dependencies") {
                collect(entries, found);
                continue;
            }
            for (name, entry) in entries {
                let renamed = entry.get("package").and_then(toml::Value::as_str);
                let name = renamed.unwrap_or(name);
                found.extend(name.strip_prefix("pgweir-").map(str::to_owned));
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(&manifest.parse().expect("a manifest"), &mut found);
    found
}

#[test]
fn crates_depend_in_one_direction() {
    let mut complaints = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("a folder").path();
        let name = folder.file_name().expect("a name").to_string_lossy();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let Some((_, allowed)) = DEPENDENCIES.iter().find(|(known, _)| *known == name) else {
            complaints.push(format!("crates/{name} is not in DEPENDENCIES"));
            continue;
        };
        let allowed: BTreeSet<_> = allowed.iter().map(|&name| name.to_owned()).collect();
        let found = dependencies(&manifest);
        for other in found.difference(&allowed) {
            complaints.push(format!("{name} must not depend on {other}"));
        }
        for other in allowed.difference(&found) {
            complaints.push(format!(
                "{name} does not depend on {other}: correct DEPENDENCIES"
            ));
        }
    }
    for (at, (name, allowed)) in DEPENDENCIES.iter().enumerate() {
        if !root().join("crates").join(name).is_dir() {
            complaints.push(format!("there is no crates/{name}: correct DEPENDENCIES"));
        }
        let lower: BTreeSet<_> = DEPENDENCIES[..at].iter().map(|(name, _)| *name).collect();
        for other in allowed.iter().filter(|other| !lower.contains(*other)) {
            complaints.push(format!("{name} depends on {other}, which stands below it"));
        }
    }
    expect_none(&complaints);
}

#[test]
fn all_tables_of_a_manifest_count() {
    let manifest = "[package]\nname = \"pgweir-a\"\n[dependencies]\npgweir-b.workspace = true\nserde = \"1\"\n\
                    [dev-dependencies.pgweir-c]\npath = \"../c\"\n\
                    [target.'cfg(unix)'.dependencies]\nd = { package = \"pgweir-d\" }\n";
    let found = dependencies(manifest);
    assert_eq!(found.iter().collect::<Vec<_>>(), ["b", "c", "d"]);
}

/// Folders of core that hold modules, and no code of their own.
const FOLDERS: &[&str] = &["base", "clients", "measurement", "operators", "shared"];

#[test]
fn every_module_of_core_is_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let core = root().join("crates/core/src");
    let mut complaints = Vec::new();
    let mut look = |folder: &Path, before: &str| {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "lib.rs" || name == "mod.rs" {
                continue;
            }
            let end = if entry.path().is_dir() { "/" } else { "" };
            // A folder of modules is named with each of them.
            if !map.contains(&format!("`{before}{name}{end}`")) && !FOLDERS.contains(&&*name) {
                complaints.push(format!(
                    "core's {before}{name}{end} is not in ARCHITECTURE.md"
                ));
            }
        }
    };
    look(&core, "");
    for folder in FOLDERS {
        look(&core.join(folder), &format!("{folder}/"));
    }
    expect_none(&complaints);
}

/// The state of a client or a server is a private field; the method that changes it is for the module of connections.
#[test]
fn only_the_module_of_connections_moves_connections() {
    let mut complaints = Vec::new();
    for path in sources(&root().join("crates/core/src")) {
        if path.ends_with("connections/moves.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for (at, line) in text.lines().enumerate() {
            let calls = line.contains("change_duty(") && !line.contains("fn change_duty(");
            if calls || line.contains(".duty = ") {
                complaints.push(format!(
                    "{}:{}: changes a connection's state; connections/moves.rs has the moves",
                    path.display(),
                    at + 1
                ));
            }
        }
    }
    expect_none(&complaints);
}
