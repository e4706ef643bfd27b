//! The conclusions from the facts of small databases.

use super::*;
use crate::session::certificates::{Certificates, FACTS, NameEffects, row};

const CLEAN: &str = "BEGIN RETURN 1; END";
const DIRTY: &str = "BEGIN EXECUTE 'x'; RETURN 1; END";

/// Rows of a database as `facts.sql` sends them.
#[derive(Default)]
struct Database {
    rows: Vec<Vec<u8>>,
    trust: Trust,
}

impl Database {
    fn new() -> Self {
        let mut new = Self::default();
        new.add(&["d", "5", "UTF8"]);
        for (oid, name) in [
            ("2078", "set_config"),
            ("1574", "nextval"),
            ("2880", "pg_advisory_lock"),
        ] {
            new.add(&["b", oid, name]);
        }
        new
    }

    fn add(&mut self, columns: &[&str]) {
        self.rows.push(row(columns));
    }

    fn with(mut self, columns: &[&str]) -> Self {
        self.add(columns);
        self
    }

    fn table(mut self, oid: &str, name: &str) -> Self {
        self.add(&["r", oid, name, "r", "f"]);
        self
    }

    /// A PL/pgSQL function.
    fn function(self, oid: &str, name: &str, body: &str) -> Self {
        self.with(&["n", name])
            .with(&["f", oid, name, "plpgsql", "f", "", body, "", "", "0"])
    }

    fn clean_and_dirty(self) -> Self {
        self.function("20001", "clean", CLEAN)
            .function("20002", "dirty", DIRTY)
    }

    #[track_caller]
    fn check_opaque(&self, name: &str, expect: bool) {
        let found = self.read().word(Name::of(name.as_bytes())).read;
        assert_eq!(found.contains(Effects::OPAQUE), expect, "{found}");
    }

    fn read(&self) -> Certificates {
        let mut facts = Facts::new(self.trust.clone());
        for row in &self.rows {
            assert!(facts.take(row));
        }
        assert!(facts.take(&row(&["end"])) && facts.is_whole());
        Certificates::from_facts(1, facts)
    }

    #[track_caller]
    fn check(&self, expect: &[(&str, &str, &str)]) {
        let certificates = self.read();
        assert_eq!(
            certificates.every_text(),
            Effects::NONE,
            "{:?}",
            certificates.opaque_reason()
        );
        for &(name, read, write) in expect {
            let NameEffects {
                read: found,
                write: also,
            } = certificates.word(Name::of(name.as_bytes()));
            assert_eq!(
                (found.to_string(), also.to_string()),
                (read.to_owned(), write.to_owned()),
                "{name}"
            );
        }
    }
}

const ANY: &str = "TEMP|OPAQUE|UNREAD";
const NONE: &str = "NONE";

/// A tree that calls a function.
fn call(oid: &str) -> String {
    format!("{{FUNCEXPR :funcid {oid} :funcresulttype 25 :args <>}}")
}

#[test]
fn functions_by_their_bodies() {
    let sql = |body| ["f", "20010", "asked", "sql", "f", "", body, "", "", "0"];
    let judge = |row: &[&str]| {
        let database = Database::new()
            .clean_and_dirty()
            .table("21000", "orders")
            .with(row);
        database.read().word(Name::of(b"asked")).read.to_string()
    };
    assert_eq!(judge(&sql("SELECT clean() FROM orders")), NONE);
    assert_eq!(judge(&sql("SELECT dirty()")), ANY);
    assert_eq!(judge(&sql("SELECT \"dirty\"()")), ANY);
    assert_eq!(judge(&sql("SELECT pg_advisory_lock(1)")), "LOCK|OPAQUE");
    assert_eq!(judge(&sql("SELECT nextval('s')")), "SEQUENCE");
}

/// Functions as `name|language|kind|extension|source|trees|parameters|support`, and what they leave.
#[test]
fn functions_by_the_rest_of_them() {
    let cases = [
        ("asked|plperl|f||1|||0", ANY),
        ("asked|c|f||f|||0", ANY),
        ("asked|internal|f||range_constructor2|||0", NONE),
        ("asked|internal|f||set_config_by_name|||0", ANY),
        ("similarity|c|f|pg_trgm|similarity|||0", NONE),
        ("set_limit|c|f|pg_trgm|set_limit|||0", ANY),
        ("similarity|c|f|other|similarity|||0", ANY),
        // A body that is too long, a default, a stored body, a SET clause, a support function.
        ("asked|plpgsql|f|||||0", ANY),
        ("asked|plpgsql|f||CLEAN|{F :funcid 20002 }||0", ANY),
        (
            "asked|sql|f|||{F :funcid 2078 :args ({CONST })}||0",
            "SETTING|OPAQUE",
        ),
        (
            "asked|sql|f|||{F :funcid 2078 :args ({VAR })}||0",
            "SETTING|OPAQUE|COMPUTED_NAME",
        ),
        ("asked|sql|f|||{F :funcid 65 }||0", NONE),
        ("asked|plpgsql|f||CLEAN||search_path|0", NONE),
        ("asked|plpgsql|f||CLEAN||work_mem,seed|0", ANY),
        ("asked|plpgsql|f||CLEAN|||20002", ANY),
    ];
    for (function, expect) in cases {
        let function = function.replace("CLEAN", CLEAN);
        let row: Vec<_> = ["f", "20010"]
            .into_iter()
            .chain(function.split('|'))
            .collect();
        let database = Database::new().clean_and_dirty().with(&row);
        database.check(&[(row[2], expect, NONE)]);
    }
}

#[test]
fn aggregates_by_their_functions() {
    let aggregate = |name: &'static str| {
        [
            "f",
            "20010",
            name,
            "internal",
            "a",
            "",
            "aggregate_dummy",
            "",
            "",
            "0",
        ]
    };
    let database = Database::new().clean_and_dirty();
    let database = database
        .with(&aggregate("total"))
        .with(&["g", "20010", "20001"]);
    database.check(&[("total", NONE, NONE)]);
    database
        .with(&["g", "20010", "20002"])
        .check(&[("total", ANY, NONE)]);
}

#[test]
fn relations_by_what_they_fire() {
    let tree = call("20002");
    let edges: [(&[&str], &str, &str); 5] = [
        (&["t", "w", "21000", &tree], NONE, ANY),
        (&["t", "r", "21000", &tree], ANY, ANY),
        (&["u", "w", "21000", "20002"], NONE, ANY),
        (&["u", "r", "21000", "20002"], ANY, ANY),
        (&["u", "w", "21000", "20001"], NONE, NONE),
    ];
    for (edge, read, write) in edges {
        let database = Database::new()
            .clean_and_dirty()
            .table("21000", "orders")
            .table("21001", "other");
        let write = if read == ANY { ANY } else { write };
        database
            .with(edge)
            .check(&[("orders", read, write), ("other", NONE, NONE)]);
    }
}

#[test]
fn reads_and_writes_of_relations_are_followed() {
    let view = "{QUERY :rtable ({RTE :relid 21000 :relkind r})}";
    let links: [(&[&str], &str, &str); 6] = [
        (&["k", "21000", "21001"], NONE, ANY),
        (&["k", "21001", "21000"], NONE, ANY),
        (&["h", "21000", "21001"], ANY, ANY),
        (&["h", "21001", "21000"], ANY, ANY),
        (&["t", "r", "21001", view], ANY, ANY),
        (&["t", "w", "21001", view], NONE, ANY),
    ];
    for (link, read, write) in links {
        let database = Database::new()
            .clean_and_dirty()
            .table("21000", "orders")
            .table("21001", "linked");
        let database = database.with(&["t", "r", "21000", &call("20002")]);
        database.with(link).check(&[("linked", read, write)]);
    }
}

#[test]
fn chains() {
    let database = Database::new()
        .table("21000", "audited")
        .table("21001", "child")
        .clean_and_dirty()
        .function("20003", "inner", "BEGIN RETURN dirty(); END")
        .function(
            "20004",
            "writes",
            "BEGIN INSERT INTO child VALUES (1); RETURN NEW; END",
        )
        .with(&["u", "w", "21000", "20003"])
        .with(&["h", "21000", "21001"])
        .table("21002", "first")
        .with(&["u", "w", "21002", "20004"])
        .with(&["n", "inner"]);
    // Names of functions come before bodies.
    let mut rows = Database::new();
    rows.rows
        .extend([row(&["n", "dirty"]), row(&["n", "inner"])]);
    rows.rows.extend(database.rows);
    rows.check(&[
        ("inner", ANY, NONE),
        ("child", NONE, ANY),
        ("writes", ANY, NONE),
        ("first", NONE, ANY),
    ]);
}

#[test]
fn sequences() {
    let database = Database::new()
        .with(&["r", "21000", "idents", "r", "t"])
        .table("21001", "serials")
        .with(&["t", "w", "21001", &call("1574")])
        .table("21002", "copies")
        .function("20001", "copy", "BEGIN INSERT INTO serials VALUES (1); END")
        .with(&["u", "w", "21002", "20001"]);
    database.check(&[
        ("idents", NONE, "SEQUENCE"),
        ("serials", NONE, "SEQUENCE"),
        ("copy", "SEQUENCE", NONE),
        ("copies", NONE, "SEQUENCE"),
    ]);
}

#[test]
fn objects_that_no_text_names_count_for_every_text() {
    for row in [
        ["x", "cast from text to m", "20002"],
        ["x", "operator ###", "2880"],
        ["y", "domain d", &call("20002")],
    ] {
        let certificates = Database::new().clean_and_dirty().with(&row).read();
        assert!(
            certificates.every_text().contains(Effects::OPAQUE),
            "{row:?}"
        );
        let reason = certificates.opaque_reason().unwrap();
        assert!(reason.starts_with(row[1]), "{reason}");
    }
    for row in [
        ["x", "operator ###", "20001"],
        ["x", "operator ###", "65"],
        ["y", "domain d", &call("20001")],
    ] {
        let certificates = Database::new().clean_and_dirty().with(&row).read();
        assert_eq!(certificates.every_text(), Effects::NONE, "{row:?}");
    }
    let sequence = Database::new()
        .with(&["y", "default of type d", &call("1574")])
        .read();
    assert_eq!(sequence.every_text(), Effects::SEQUENCE);
    let new_version = Database::new().with(&["q", "pg_new", "{newfn}"]).read();
    assert_eq!(new_version.every_text(), Effects::OPAQUE | Effects::UNREAD);
}

#[test]
fn reasons() {
    let database = Database::new()
        .with(&["n", "dirty"])
        .function("20002", "dirty", DIRTY)
        .function("20003", "calls", "BEGIN RETURN dirty(); END")
        .with(&["x", "operator ###", "20003"]);
    assert_eq!(
        database.read().opaque_reason(),
        Some("operator ### uses function calls uses function dirty: EXECUTE in its body")
    );
    assert_eq!(database.read().unclean_reason(), None);
    let perl = Database::new().with(&["f", "20010", "p", "plperl", "f", "", "1", "", "", "0"]);
    assert_eq!(
        perl.read().unclean_reason(),
        Some("function p is written in plperl")
    );
    let language = Database::new().with(&["l", "plpython3u"]);
    assert_eq!(
        language.read().unclean_reason(),
        Some("language plpython3u is installed")
    );
    let limit = [
        "f",
        "20010",
        "set_limit",
        "c",
        "f",
        "pg_trgm",
        "set_limit",
        "",
        "",
        "0",
    ];
    assert_eq!(Database::new().with(&limit).read().unclean_reason(), None);
}

#[test]
fn the_configuration_adds_names() {
    let mut database = Database::new().clean_and_dirty();
    database.trust.certified.insert("dirty".into());
    database.check(&[("dirty", NONE, NONE)]);
    let mut database =
        Database::new().with(&["f", "20010", "f", "c", "f", "mine", "f", "", "", "0"]);
    database.trust.pinning.insert("mine".into());
    database.trust.certified.insert("f".into());
    database.check(&[("f", "LIBRARY|OPAQUE", NONE)]);
}

#[test]
fn a_version_with_functions_that_are_not_known() {
    let database = Database::new()
        .with(&["b", "9999", "pg_keep_this"])
        .with(&["b", "9998", "random"]);
    database.check(&[("pg_keep_this", "OPAQUE", NONE), ("random", NONE, NONE)]);
}

#[test]
fn custom_parameters() {
    let set =
        "{FUNCEXPR :funcid 2078 :args ({CONST :constvalue 9 [ 36 0 0 0 97 112 112 46 116 ]})}";
    let certificates = Database::new()
        .table("21000", "t")
        .with(&["t", "r", "21000", set])
        .function(
            "20001",
            "f",
            "BEGIN PERFORM current_setting('App.User'), set_config($$a.d$$, '', true); END",
        )
        .function(
            "20002",
            "g",
            "BEGIN EXECUTE format('SET app.dynamic = %L', $1); END",
        )
        .with(&["a", "622e6300780000"])
        .read();
    let names: Vec<_> = certificates
        .custom_names()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(names, ["a.d", "app.dynamic", "app.t", "app.user", "b.c"]);
}

#[test]
fn a_reading_that_is_cut_or_wrong() {
    let mut facts = Facts::new(Trust::default());
    assert!(facts.take(&row(&["d", "5", "UTF8"])));
    assert!(!facts.is_whole());
    assert!(!facts.take(&row(&["?"])));
    assert!(!facts.take(&row(&["f", "many", "of", "them"])));
    assert!(!facts.take(b"\0\x02\0"));
    assert_eq!(
        Certificates::from_facts(1, facts).every_text(),
        Effects::OPAQUE | Effects::UNREAD
    );
}

#[test]
fn many_functions() {
    let mut database = Database::new();
    for number in 0..20_000 {
        database.add(&["n", &format!("f{number}")]);
    }
    for number in 0..20_000 {
        let body = if number == 0 {
            DIRTY.to_owned()
        } else {
            format!("BEGIN RETURN f{}(); END", number - 1)
        };
        let oid = (30_000 + number).to_string();
        database.add(&[
            "f",
            &oid,
            &format!("f{number}"),
            "plpgsql",
            "f",
            "",
            &body,
            "",
            "",
            "0",
        ]);
    }
    let certificates = database.read();
    assert_eq!(certificates.counts().opaque_functions, 20_000);
    assert!(
        certificates
            .word(Name::of(b"f19999"))
            .read
            .contains(Effects::OPAQUE)
    );
}

/// A database with a function of this volatility in SQL.
fn asks(volatility: &str, body: &str) -> Database {
    Database::new()
        .with(&["z", "12000", "pg_stat_activity", "t", "v"])
        .with(&["n", "f"])
        .with(&[
            "f", "20010", "f", "sql", "f", "", body, "", "", "0", volatility,
        ])
}

#[test]
fn results_that_plans_keep_are_no_values_of_sequences() {
    for body in [
        "SELECT lastval()",
        "SELECT currval('q')",
        "SELECT nextval('q')",
    ] {
        asks("i", body).check_opaque("f", true);
        asks("v", body).check_opaque("f", false);
    }
}

#[test]
fn immutable_functions_that_read_session_state_are_opaque() {
    for body in [
        "SELECT current_setting('app.tenant')",
        "SELECT CURRENT_USER",
        "SELECT pg_catalog.\"current_setting\"('a.b')",
        "SELECT has_table_privilege('t', 'SELECT')",
        "SELECT application_name FROM pg_stat_activity",
        "SELECT u FROM information_schema.enabled_roles",
    ] {
        asks("i", body).check(&[("f", "OPAQUE", NONE)]);
        asks("s", body).check(&[("f", NONE, NONE)]);
    }
    asks("i", "SELECT lower('A')").check(&[("f", NONE, NONE)]);
    let trusting = |mut database: Database| {
        database.trust.certified.insert("f".into());
        database
    };
    trusting(asks("i", "SELECT CURRENT_USER")).check(&[("f", NONE, NONE)]);
}

#[test]
fn functions_that_read_the_session_are_found_behind_others() {
    let stable = |body| asks("s", body).with(&["n", "g"]).with(&["n", "h"]);
    let with = |database: Database, body| {
        database.with(&[
            "f", "20011", "g", "plpgsql", "f", "", body, "", "", "0", "i",
        ])
    };
    let database = with(
        stable("SELECT current_setting('a.b')"),
        "BEGIN RETURN f(); END",
    )
    .function("20012", "h", "BEGIN RETURN g(); END");
    database.check(&[
        ("f", NONE, NONE),
        ("g", "OPAQUE", NONE),
        ("h", "OPAQUE", NONE),
    ]);
    let certificates = database.read();
    let reasons: Vec<_> = certificates
        .opaque_objects()
        .iter()
        .map(|object| object.reason.as_deref().unwrap())
        .collect();
    let why =
        "function g: it is declared IMMUTABLE and reads a table, a parameter, the user or the like";
    assert_eq!(reasons, [why, &format!("function h uses {why}")]);
    // A table whose rows depend on the user, and a view.
    with(
        stable("SELECT 1").with(&["r", "20020", "t", "r", "f", "t"]),
        "BEGIN RETURN (SELECT a FROM t); END",
    )
    .check(&[("g", "OPAQUE", NONE), ("t", NONE, NONE)]);
    with(
        stable("SELECT 1")
            .with(&["i", "2077"])
            .with(&["r", "20020", "v", "v", "f", "f"])
            .with(&["t", "r", "20020", "{FUNCEXPR :funcid 2077 :args <>}"]),
        "BEGIN RETURN (SELECT a FROM v); END",
    )
    .check(&[("g", "OPAQUE", NONE), ("v", NONE, NONE)]);
    // A stored tree.
    for tree in [
        "{FUNCEXPR :funcid 2077 :args <>}",
        "{SQLVALUEFUNCTION :op 10 :type 19}",
    ] {
        let database = Database::new().with(&["i", "2077"]).with(&["n", "f"]);
        let database = database.with(&["f", "20010", "f", "sql", "f", "", "", tree, "", "0", "i"]);
        database.check(&[("f", "OPAQUE", NONE)]);
        assert_eq!(database.read().call_by_oid(2077), Effects::NONE);
    }
}

#[test]
fn the_query_names_the_functions_that_read_the_session() {
    let keywords = [
        "current_role",
        "current_user",
        "session_user",
        "system_user",
        "user",
        "information_schema",
    ];
    for name in crate::session::sql::SESSION_READERS {
        let is_there = FACTS.contains(&format!("'{name}'"));
        assert_eq!(is_there, !keywords.contains(&name), "{name}");
    }
}

mod catalogs;

#[test]
fn connections_of_foreign_tables() {
    let closes = Database::new().with(&["o", "s.postgres_fdw_disconnect_all"]);
    let certificates = closes.read();
    assert_eq!(
        certificates.disconnects(),
        Some("s.postgres_fdw_disconnect_all")
    );
    assert!(certificates.unclean_reason().is_none());
    let cannot = Database::new().with(&["o", ""]).read();
    assert_eq!(cannot.disconnects(), None);
    assert!(cannot.unclean_reason().is_some());
}

#[test]
fn a_body_that_loads_a_library() {
    for body in [
        "BEGIN LOAD 'x'; END",
        "BEGIN IF a THEN LOAD 'x'; END IF; END",
    ] {
        let database = Database::new().function("20001", "f", body);
        let found = database.read().word(Name::of(b"f")).read;
        assert!(found.contains(Effects::LIBRARY), "{found}");
    }
}
