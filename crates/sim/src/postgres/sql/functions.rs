//! The functions and tables of the model's database. Certified ones leave no session state. The others do, though their
//! names do not show it.

use super::eval::Rows;

/// Functions without session state. The first three are commands of this world.
const HARMLESS: [&str; 4] = ["rows", "slow", "fail", "harmless"];

/// Functions with the statement that each of them runs; `$1` is the first argument.
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

/// Tables without session state, and tables whose triggers run a statement for the first value of a row.
const TABLES: [&str; 1] = ["plain"];
const TRIGGERS: [(&str, &str); 2] = [
    ("audited", "set search_path = '$1'"),
    ("locked", "select pg_advisory_lock_shared('$1')"),
];

/// Returns the statement that a function runs besides its result.
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

/// Returns the body of a function: one without session state, or one that pgweir can't analyse.
const CLEAN: &str = "BEGIN RETURN 1; END";
const OPAQUE: &str = "BEGIN EXECUTE 'x'; RETURN 1; END";
/// OIDs of the first function and of the first relation.
const FUNCTIONS: usize = 20_000;
const RELATIONS: usize = 30_000;

/// Returns the rows that the pooler finds when it reads this part of the catalog.
pub(super) fn catalog_rows(kind: &str, database: u32) -> Rows {
    let harmless = HARMLESS.iter().map(|name| (*name, CLEAN));
    let functions = harmless.chain(HIDDEN.iter().map(|(name, _)| (*name, OPAQUE)));
    let functions = functions.zip(FUNCTIONS..);
    let tables = TRIGGERS.iter().map(|(name, _)| *name).chain(TABLES);
    let tables = tables.zip(RELATIONS..);
    let rows: Vec<Vec<String>> = match kind {
        "d" => vec![vec![database.to_string(), "UTF8".to_owned()]],
        "n" => functions
            .map(|((name, _), _)| vec![name.to_owned()])
            .collect(),
        "f" => functions
            .map(|((name, body), oid)| {
                let oid = oid.to_string();
                let columns = [&*oid, name, "plpgsql", "f", "", body, "", "", "0"];
                columns.map(str::to_owned).into()
            })
            .collect(),
        "r" => tables
            .map(|(name, oid)| {
                let oid = oid.to_string();
                [&*oid, name, "r", "f"].map(str::to_owned).into()
            })
            .collect(),
        // The tables with triggers come first.
        "u" => tables
            .take(TRIGGERS.len())
            .map(|(_, table)| {
                let trigger = FUNCTIONS + HARMLESS.len();
                ["w".to_owned(), table.to_string(), trigger.to_string()].into()
            })
            .collect(),
        "end" => vec![Vec::new()],
        _ => Vec::new(),
    };
    let row = |row: Vec<String>| {
        let columns = std::iter::once(kind.to_owned()).chain(row);
        columns.map(Some).collect()
    };
    Rows(rows.into_iter().map(row).collect())
}
