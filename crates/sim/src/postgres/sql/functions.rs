//! Functions and tables of the model's database: those that are certified keep nothing in a session, and
//! the others do, though nothing of their names tells.

use super::eval::Rows;

/// Functions that are harmless. The first three are commands of this world.
const HARMLESS: [&str; 4] = ["rows", "slow", "fail", "harmless"];

/// Functions, and the statement that each of them runs; `$1` is the first argument.
const HIDDEN: [(&str, &str); 9] = [
    ("greet", "set search_path = '$1'"),
    ("whisper", "set app.whisper = '$1'"),
    ("measure", "set work_mem = '$1'"),
    ("impersonate", "set role = '$1'"),
    ("guard", "select pg_advisory_lock_shared('$1')"),
    ("learn", "prepare \"$1\" as select rows(1, 1)"),
    ("scribble", "create temp table \"$1\" (a int)"),
    ("eavesdrop", "listen \"$1\""),
    ("enumerate", "select nextval('hidden')"),
];

/// Tables that are harmless, and those whose triggers run a statement for the first value of a row.
const TABLES: [&str; 1] = ["plain"];
const TRIGGERS: [(&str, &str); 2] = [
    ("audited", "set search_path = '$1'"),
    ("locked", "select pg_advisory_lock_shared('$1')"),
];

/// What a function does besides what it says.
pub(super) fn effect_of_call(name: &str) -> Option<&'static str> {
    let found = HIDDEN.iter().find(|(own, _)| *own == name);
    found.map(|(_, effect)| *effect)
}

pub(super) fn effect_of_trigger(table: &str) -> Option<&'static str> {
    let found = TRIGGERS.iter().find(|(own, _)| *own == table);
    found.map(|(_, effect)| *effect)
}

pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name)
}

pub(super) fn is_table(name: &str) -> bool {
    TABLES.contains(&name)
}

/// What the pooler finds when it reads the catalog: kinds and names, what a use leaves behind, and what writing
/// to it does.
pub(super) fn catalog_rows() -> Rows {
    let row = |kind: &str, name: &str, used: &str, written: &str| {
        [kind, name, used, written].map(|column| Some(column.to_owned()))
    };
    let harmless = HARMLESS.iter().map(|name| row("f", name, "", ""));
    let hidden = HIDDEN.iter().map(|(name, _)| row("f", name, "OPAQUE", ""));
    let tables = TABLES.iter().map(|name| row("r", name, "", ""));
    let triggers = TRIGGERS.iter().map(|(name, _)| row("r", name, "", "OPAQUE"));
    let all = harmless.chain(hidden).chain(tables).chain(triggers);
    let all = all.chain([row("e", "utf8", "", "")]);
    Rows(all.map(Vec::from).collect())
}
