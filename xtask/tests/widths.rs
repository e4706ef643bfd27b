//! Structs have few fields, and each public item is used outside of its file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Fields, Type, Visibility, visit::Visit};

/// The largest number of fields of a struct.
const FIELDS_MAX: usize = 16;
/// The largest number of fields of a struct that are bools: more of them are a state that has no name.
const BOOLS_MAX: usize = 4;

/// The largest number of methods of `Worker`, which passes events to modules and carries out their effects.
const WORKER_METHODS_MAX: usize = 60;
/// The largest number of files with methods of `Worker`.
const WORKER_FILES_MAX: usize = 4;

/// A struct that may be wider.
struct Exempt {
    file: &'static str,
    name: &'static str,
    reason: &'static str,
}

/// Rows of data, settings and counters; and the simulator, whose clients and servers are scripts.
const EXEMPT: &[Exempt] = &[
    Exempt {
        file: "crates/core/src/console/round.rs",
        name: "Collection",
        reason: "counters, which a round of the workers collects",
    },
    Exempt {
        file: "crates/core/src/pooling/terms.rs",
        name: "Terms",
        reason: "settings of a pool",
    },
    Exempt {
        file: "crates/core/src/takeover/record.rs",
        name: "ClientRecord",
        reason: "a row: a client, as one process sends it to another",
    },
    Exempt {
        file: "crates/sim/src/client/past_faults.rs",
        name: "PastFaults",
        reason: "settings: the errors that a client of the simulator must expect",
    },
    Exempt {
        file: "crates/sim/src/client/mod.rs",
        name: "Client",
        reason: "a script's state: nothing but its own steps reads it",
    },
    Exempt {
        file: "crates/sim/src/postgres/session.rs",
        name: "Session",
        reason: "a script's state: nothing but its own steps reads it",
    },
    Exempt {
        file: "crates/sim/src/scenario.rs",
        name: "Scenario",
        reason: "settings of a run of the simulator",
    },
    Exempt {
        file: "crates/sim/src/world/mod.rs",
        name: "World",
        reason: "the root of the simulator, which owns its parts",
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the Rust files below a folder, with their paths from the root.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let name = path.strip_prefix(root()).expect("below the root");
                found.push((name.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Returns whether the type is `bool`, or a cell of one.
fn is_bool(of: &Type) -> bool {
    let Type::Path(path) = of else { return false };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    match &last.arguments {
        syn::PathArguments::AngleBracketed(inner) if last.ident == "Cell" => (inner.args.iter())
            .any(|inner| matches!(inner, syn::GenericArgument::Type(of) if is_bool(of))),
        _ => last.ident == "bool" || last.ident == "AtomicBool",
    }
}

/// Collects the structs, and the variants of enums with named fields, that are too wide.
#[derive(Default)]
struct Wide {
    found: Vec<(String, usize, usize)>,
}

impl Wide {
    fn look(&mut self, name: String, fields: &Fields) {
        let bools = fields.iter().filter(|field| is_bool(&field.ty)).count();
        if fields.len() > FIELDS_MAX || bools > BOOLS_MAX {
            self.found.push((name, fields.len(), bools));
        }
    }
}

impl<'ast> Visit<'ast> for Wide {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.look(item.ident.to_string(), &item.fields);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        for variant in &item.variants {
            self.look(
                format!("{}::{}", item.ident, variant.ident),
                &variant.fields,
            );
        }
    }
}

#[test]
fn structs_are_narrow() {
    let mut complaints = Vec::new();
    let mut unused: BTreeSet<(String, String)> = EXEMPT
        .iter()
        .inspect(|exempt| assert!(!exempt.reason.is_empty(), "{} has a reason", exempt.name))
        .map(|exempt| (exempt.file.to_owned(), exempt.name.to_owned()))
        .collect();
    for (file, text) in sources("crates") {
        let mut wide = Wide::default();
        wide.visit_file(&syn::parse_file(&text).expect("Rust"));
        for (name, fields, bools) in wide.found {
            if !unused.remove(&(file.clone(), name.clone())) {
                complaints.push(format!(
                    "{file}: {name} has {fields} fields, {bools} of them bools: at most {FIELDS_MAX} and {BOOLS_MAX}"
                ));
            }
        }
    }
    complaints.extend(
        (unused.iter()).map(|(file, name)| format!("{file}: {name} needs no exemption any more")),
    );
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The public names of one file, and the names in the signatures and fields of its public items.
#[derive(Default)]
struct Public {
    names: Vec<String>,
    shown: BTreeSet<String>,
}

fn is_public(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(restricted) => restricted.path.is_ident("crate"),
        Visibility::Inherited => false,
    }
}

/// Collects the names in a type or signature.
struct Names<'n>(&'n mut BTreeSet<String>);

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        self.0.insert(ident.to_string());
    }
}

impl Public {
    fn show(&mut self, visit: impl FnOnce(&mut Names<'_>)) {
        visit(&mut Names(&mut self.shown));
    }
}

impl<'ast> Visit<'ast> for Public {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_public(&item.vis) {
            self.names.push(item.sig.ident.to_string());
            self.show(|names| {
                names.visit_generics(&item.sig.generics);
                item.sig
                    .inputs
                    .iter()
                    .for_each(|input| names.visit_fn_arg(input));
                names.visit_return_type(&item.sig.output);
            });
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_public(&item.vis) {
            self.names.push(item.sig.ident.to_string());
            self.show(|names| {
                names.visit_generics(&item.sig.generics);
                item.sig
                    .inputs
                    .iter()
                    .for_each(|input| names.visit_fn_arg(input));
                names.visit_return_type(&item.sig.output);
            });
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
        }
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
        }
        for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
            self.show(|names| names.visit_type(&field.ty));
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
            item.variants
                .iter()
                .for_each(|variant| self.show(|names| names.visit_fields(&variant.fields)));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
        }
        self.show(|names| names.visit_type(&item.ty));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if is_public(&item.vis) {
            self.names.push(item.ident.to_string());
        }
    }

    /// A trait decides the names of its methods and types.
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            syn::visit::visit_item_impl(self, item);
        } else if let Some((_, of, _)) = &item.trait_ {
            self.show(|names| {
                names.visit_path(of);
                item.items
                    .iter()
                    .for_each(|item| names.visit_impl_item(item));
            });
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

/// Returns the words of a source file, without comments and re-exports.
fn words(text: &str) -> BTreeSet<&str> {
    let mut in_export = false;
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        in_export |= line.starts_with("pub use ") || line.starts_with("pub(crate) use ");
        let is_export = in_export;
        in_export &= !line.ends_with(';');
        !is_export && !line.starts_with("//")
    });
    lines
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect()
}

/// A name that no other file contains needs no `pub`. Fields are left out: a struct that is updated elsewhere (`..`)
/// needs all of them. If another file has the same word with another meaning, this test does not notice that `pub` is
/// not needed.
#[test]
fn public_names_are_used_elsewhere() {
    let all: Vec<(String, String)> = ["crates", "xtask", "fuzz"]
        .iter()
        .filter(|folder| root().join(folder).is_dir())
        .flat_map(|folder| sources(folder))
        .collect();
    let mut files: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, text) in &all {
        for word in words(text) {
            *files.entry(word).or_default() += 1;
        }
    }
    let mut complaints = Vec::new();
    for (file, text) in &all {
        if !file.starts_with("crates/core/src")
            || file.ends_with("tests.rs")
            || file.contains("/tests/")
        {
            continue;
        }
        let mut public = Public::default();
        public.visit_file(&syn::parse_file(text).expect("Rust"));
        for name in public.names {
            if files.get(&*name).is_none_or(|&files| files < 2) && !public.shown.contains(&name) {
                complaints.push(format!(
                    "{file}: {name} is public, and no other file names it"
                ));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Returns the number of methods that a file adds to `Worker`.
fn worker_methods(text: &str) -> usize {
    let file = syn::parse_file(text).expect("Rust");
    let methods = file.items.iter().filter_map(|item| match item {
        syn::Item::Impl(item) if item.trait_.is_none() => match &*item.self_ty {
            Type::Path(of) if of.path.is_ident("Worker") => Some(&item.items),
            _ => None,
        },
        _ => None,
    });
    methods
        .flatten()
        .filter(|item| matches!(item, syn::ImplItem::Fn(_)))
        .count()
}

#[test]
fn modules_do_not_extend_the_worker() {
    let counts: Vec<(String, usize)> = sources("crates/core/src")
        .into_iter()
        .map(|(file, text)| (file, worker_methods(&text)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let sum: usize = counts.iter().map(|(_, count)| count).sum();
    assert!(sum > 10, "the methods of Worker were not found");
    assert!(
        sum <= WORKER_METHODS_MAX && counts.len() <= WORKER_FILES_MAX,
        "Worker has {sum} methods in {} files: {counts:?}. Give a function the parts that it needs instead",
        counts.len()
    );
}

#[test]
fn methods_are_counted() {
    let text = "impl Worker { fn a(&self) {} const B: u8 = 1; }\nimpl Debug for Worker { fn fmt(&self) {} }\n\
                impl Other { fn c() {} }\nimpl Worker { pub(crate) fn d() {} }";
    assert_eq!(worker_methods(text), 2);
}
