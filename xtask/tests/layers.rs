//! Modules of core import in one direction: a module uses only modules of lower layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{UseTree, visit::Visit};

/// The modules of `crates/core/src`, from the ground up. A module imports from the layers below its own, and from no other
/// module of its layer. Modules that stand in a folder with others of their subject are named with the folder.
const LAYERS: &[&[&str]] = &[
    &["base::digits"],
    &[
        "base::address",
        "shared::bypass",
        "base::inbox",
        "base::auth_check",
        "shared::occupancy",
        "base::pin",
        "base::stats",
        "base::time",
        "base::token",
    ],
    &["base::memory", "shared::worker_loads"],
    &[
        "shared::cancel",
        "shared::auth_cache",
        "shared::bans",
        "shared::events",
        "pool",
        "base::progress",
        "base::tls",
    ],
    &["base::fault"],
    &[
        "shared::client_counts",
        "base::exclusive_server",
        "shared::operator",
        "session",
        "transaction_trace",
    ],
    &["statement_statistics"],
    &["shared::catalog", "console", "log", "signal"],
    &["shared::pool"],
    &["shared::hosts", "listen", "takeover"],
    &["backend", "directory"],
    &["diagnosis", "frontend"],
    &["metrics"],
    &["mail"],
    &["action"],
    &["connections"],
    &["clients::early_answers", "loan"],
    &["effect"],
    &["measurement::recording"],
    &[
        "cancel_requests",
        "login::parked",
        "pooling",
        "operators::suspension",
    ],
    &[
        "clients::timeouts",
        "server_connections::host_checks",
        "listeners",
        "measurement::memory_use",
        "operators::shutdown",
        "measurement::statistics",
        "clients::stuck_messages",
        "login::surplus",
    ],
    &[
        "client_listen",
        "login",
        "server_connections::maintenance",
        "operators::orders",
        "clients::wait_notices",
    ],
    &["server_connections::role_settings"],
    &[
        "server_connections::catalog_reading",
        "clients::signals",
        "operators::reconfiguration",
        "timers",
    ],
    &[
        "clients::disconnect",
        "clients::worker_moves",
        "exchange",
        "lending",
        "server_connections",
    ],
    &["admin", "online_restart", "relay"],
    &["worker"],
];

/// Folders that hold modules, and no code of their own.
const FOLDERS: &[&str] = &["base", "clients", "measurement", "operators", "shared"];

fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/core/src")
}

/// The imports of one file: full paths, without `crate`.
struct Imports {
    /// The file's own module, from the crate's root.
    module: Vec<String>,
    found: BTreeSet<Vec<String>>,
    /// The names that `use` declarations give to items of the module's own parts, with the path from the module.
    taken: Vec<(String, Vec<String>)>,
}

impl Imports {
    /// Adds a path that begins at the crate's root, or at the file's own module or one above it.
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

    fn take(&mut self, name: &syn::Ident, path: Vec<String>) {
        let from_self = path.first().is_some_and(|first| first == "self");
        let path_of_part = path[usize::from(from_self)..].to_vec();
        self.taken.push((name.to_string(), path_of_part));
        self.add(path);
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: String| {
            let mut path = before.to_vec();
            path.push(name);
            path
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(path.ident.to_string())),
            UseTree::Name(name) => self.take(&name.ident, with(name.ident.to_string())),
            UseTree::Rename(name) => self.take(&name.rename, with(name.ident.to_string())),
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

    /// Tests may use any module.
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
        taken: Vec::new(),
    };
    let text = fs::read_to_string(file).expect("a source file");
    imports.visit_file(&syn::parse_file(&text).expect("Rust"));
    imports
}

/// Returns the names that the crate's root gives to items of its modules, with the module.
fn names_at_root(root: &Path) -> BTreeMap<String, String> {
    fn add(tree: &UseTree, module: &[String], into: &mut BTreeMap<String, String>) {
        match tree {
            UseTree::Path(path) => {
                let mut module = module.to_vec();
                module.push(path.ident.to_string());
                add(&path.tree, &module, into);
            }
            UseTree::Name(name) => {
                drop(into.insert(name.ident.to_string(), module.join("::")));
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| add(tree, module, into));
            }
            _ => {}
        }
    }
    let text = fs::read_to_string(root.join("lib.rs")).expect("lib.rs");
    let mut names = BTreeMap::new();
    for item in syn::parse_file(&text).expect("Rust").items {
        if let syn::Item::Use(item) = item {
            add(&item.tree, &[], &mut names);
        }
    }
    names
}

/// The imports of each first-level folder or file of core.
fn imports_at_first_level(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let at_root = names_at_root(root);
    let mut all = Vec::new();
    files(root, &mut all);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in all {
        let imports = imports(&file, root);
        let own = imports.module[0].clone();
        let used = imports.found.iter().filter_map(|path| {
            let first = path.first()?;
            let module = at_root.get(first).unwrap_or(first);
            module.split("::").next().map(str::to_owned)
        });
        let used = used.filter(|used| *used != own).collect::<Vec<_>>();
        found.entry(own).or_default().extend(used);
    }
    found.remove("lib");
    let names: BTreeSet<String> = found.keys().cloned().collect();
    for used in found.values_mut() {
        used.retain(|name| names.contains(name));
    }
    found
}

/// A folder may hold modules of several layers. The folders as wholes import in one direction, too.
#[test]
fn folders_of_core_import_in_one_direction() {
    let circle = circle(imports_at_first_level(&core()));
    assert!(
        circle.is_empty(),
        "these import each other in a circle: {circle:?}"
    );
}

#[test]
fn modules_of_core_import_downwards() {
    let root = core();
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    // The module of the table that a path lies in: its first two names where the table has them, else its first.
    let module_of = |path: &[String]| {
        let pair = path.get(..2).map(|pair| pair.join("::"));
        pair.filter(|pair| layer(pair).is_some())
            .or_else(|| path.first().cloned())
    };
    let at_root = names_at_root(&root);
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut wrong = BTreeSet::new();
    for file in all {
        let imports = imports(&file, &root);
        let Some(own) = module_of(&imports.module).filter(|own| own != "lib") else {
            continue;
        };
        if FOLDERS.contains(&own.as_str()) {
            continue;
        }
        let Some(height) = layer(&own) else {
            wrong.insert(format!("{own} stands in no layer of xtask/tests/layers.rs"));
            continue;
        };
        for path in &imports.found {
            let Some(first) = path.first() else { continue };
            let Some(used) = at_root.get(first).cloned().or_else(|| module_of(path)) else {
                continue;
            };
            if used != own && layer(&used).is_some_and(|below| below >= height) {
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

/// The items that a module re-exports from its parts (`use part::Item`): the path by the module, and the path of the
/// item itself.
type Reexports = BTreeMap<Vec<String>, Vec<String>>;

/// Returns the items that modules re-export from their parts.
fn reexports(files: &[Imports], modules: &BTreeSet<&[String]>) -> Reexports {
    let mut all = Reexports::new();
    for file in files {
        for (name, path) in &file.taken {
            let own_part = [&*file.module, path].concat();
            let is_part = path.first().is_some_and(|first| {
                modules.contains(&*[&*file.module, std::slice::from_ref(first)].concat())
            });
            if is_part {
                let second = [&*file.module, std::slice::from_ref(name)].concat();
                // If a module has the same name, a path with this name means the module.
                if !modules.contains(&*second) {
                    all.insert(second, own_part);
                }
            }
        }
    }
    all
}

/// Returns the path of the item itself for a path that may lead through re-exports.
fn resolved(path: &[String], reexports: &Reexports) -> Vec<String> {
    let mut path = path.to_vec();
    let mut len = 1;
    while len <= path.len() {
        match reexports.get(&path[..len]) {
            Some(item) => path = [&**item, &path[len..]].concat(),
            None => len += 1,
        }
    }
    path
}

/// The imports between the files and folders of each folder: the folder's path, then who imports whom.
fn imports_within_folders(
    root: &Path,
) -> BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> {
    let mut all = Vec::new();
    files(root, &mut all);
    let all: Vec<Imports> = all.iter().map(|file| imports(file, root)).collect();
    let modules: BTreeSet<&[String]> = all.iter().map(|file| &*file.module).collect();
    let mut found: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    let reexports = reexports(&all, &modules);
    for file in &all {
        for path in &file.found {
            let path = &resolved(path, &reexports);
            let pairs = file.module.iter().zip(path);
            let common = pairs.take_while(|(own, used)| own == used).count();
            let (Some(own), Some(used)) = (file.module.get(common), path.get(common)) else {
                continue;
            };
            if modules.contains(&path[..=common]) {
                let folder = found.entry(path[..common].to_vec()).or_default();
                folder.entry(own.clone()).or_default().insert(used.clone());
            }
        }
    }
    found
}

/// Removes the modules that import none of the modules that are left, until all of the rest lie on a circle or above one.
fn circle(mut left: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        for used in left.values_mut() {
            used.retain(|name| names.contains(name));
        }
        let before = left.len();
        left.retain(|_, used| !used.is_empty());
        if left.len() == before {
            return left;
        }
    }
}

#[test]
fn files_of_one_folder_import_in_one_direction() {
    let mut wrong = Vec::new();
    for (folder, imports) in imports_within_folders(&core()) {
        let circle = circle(imports);
        if !circle.is_empty() {
            wrong.push(format!("{}: {circle:?}", folder.join("::")));
        }
    }
    assert!(
        wrong.is_empty(),
        "these import each other in a circle:\n{}",
        wrong.join("\n")
    );
}
