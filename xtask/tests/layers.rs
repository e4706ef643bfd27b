//! Modules of core import in one direction: what a module may use lies below it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{UseTree, visit::Visit};

/// The modules of `crates/core/src`, from the ground up. A module imports from the layers below its own, and from no other
/// module of its layer.
const LAYERS: &[&[&str]] = &[
    &[
        "address",
        "bypass",
        "inbox",
        "auth_check",
        "occupancy",
        "pin",
        "stats",
        "time",
        "token",
    ],
    &["cancel", "auth_cache", "events", "pool", "tls"],
    &["fault"],
    &[
        "client_counts",
        "exclusive_server",
        "operator",
        "session",
        "transaction_trace",
    ],
    &["statement_statistics"],
    &["catalog", "console", "log", "signal"],
    &["shared_pool"],
    &["listen", "takeover"],
    &["backend", "directory"],
    &["diagnosis", "frontend"],
    &["connections", "metrics"],
    &["mail"],
    &["action"],
    &["early_answers", "loan"],
    &["effect"],
    &["recording"],
    &["cancel_requests", "parked_logins", "pooling", "suspension"],
    &["client_timeouts", "listeners", "shutdown", "statistics"],
    &[
        "client_listen",
        "login",
        "maintenance",
        "operator_orders",
        "wait_notices",
    ],
    &[
        "catalog_reading",
        "client_signals",
        "reconfiguration",
        "role_settings",
        "timers",
    ],
    &["disconnect", "exchange", "lending", "server_connections"],
    &["admin", "online_restart", "relay"],
    &["worker"],
];

fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/core/src")
}

/// The imports of one file: full paths, without `crate`.
struct Imports {
    /// The file's own module, from the crate's root.
    module: Vec<String>,
    found: BTreeSet<Vec<String>>,
}

impl Imports {
    /// A path that begins at the crate's root, or at the file's own module or one above it.
    fn add(&mut self, path: Vec<String>) {
        let ups = path.iter().take_while(|name| *name == "super").count();
        match path.first().map(String::as_str) {
            Some("crate") => drop(self.found.insert(path[1..].to_vec())),
            Some("super") if ups <= self.module.len() => {
                let mut full = self.module[..self.module.len() - ups].to_vec();
                full.extend_from_slice(&path[ups..]);
                self.found.insert(full);
            }
            _ => {}
        }
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: String| {
            let mut path = before.to_vec();
            path.push(name);
            path
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(path.ident.to_string())),
            UseTree::Name(name) => self.add(with(name.ident.to_string())),
            UseTree::Rename(name) => self.add(with(name.ident.to_string())),
            UseTree::Glob(_) => self.add(before.to_vec()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, before);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.add(names.collect());
        syn::visit::visit_path(self, path);
    }

    /// Tests may use whatever helps them.
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            into.push(path);
        }
    }
}

fn imports(file: &Path, root: &Path) -> Imports {
    let place = file
        .strip_prefix(root)
        .expect("a file of core")
        .with_extension("");
    let mut module: Vec<String> = place
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    let mut imports = Imports {
        module,
        found: BTreeSet::new(),
    };
    let text = fs::read_to_string(file).expect("a source file");
    imports.visit_file(&syn::parse_file(&text).expect("Rust"));
    imports
}

/// The names that the crate's root gives to what lies in its modules, with the module.
fn names_at_root(root: &Path) -> BTreeMap<String, String> {
    fn add(tree: &UseTree, module: Option<&str>, into: &mut BTreeMap<String, String>) {
        match (tree, module) {
            (UseTree::Path(path), None) => add(&path.tree, Some(&path.ident.to_string()), into),
            (UseTree::Path(path), module) => add(&path.tree, module, into),
            (UseTree::Name(name), Some(module)) => {
                drop(into.insert(name.ident.to_string(), module.to_owned()))
            }
            (UseTree::Group(group), module) => {
                group.items.iter().for_each(|tree| add(tree, module, into))
            }
            _ => {}
        }
    }
    let text = fs::read_to_string(root.join("lib.rs")).expect("lib.rs");
    let mut names = BTreeMap::new();
    for item in syn::parse_file(&text).expect("Rust").items {
        if let syn::Item::Use(item) = item {
            add(&item.tree, None, &mut names);
        }
    }
    names
}

#[test]
fn modules_of_core_import_downwards() {
    let root = core();
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let at_root = names_at_root(&root);
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut wrong = BTreeSet::new();
    for file in all {
        let imports = imports(&file, &root);
        let Some(own) = imports.module.first().filter(|own| *own != "lib") else {
            continue;
        };
        let Some(height) = layer(own) else {
            wrong.insert(format!("{own} stands in no layer of xtask/tests/layers.rs"));
            continue;
        };
        for path in &imports.found {
            let Some(first) = path.first() else { continue };
            let used = at_root.get(first).unwrap_or(first);
            if used != own && layer(used).is_some_and(|below| below >= height) {
                wrong.insert(format!("{} imports {}", file.display(), path.join("::")));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "against the order of modules:\n{}",
        Vec::from_iter(wrong).join("\n")
    );
}
