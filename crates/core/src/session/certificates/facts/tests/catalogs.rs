//! System catalogs, logins and parameters of PL/pgSQL.

use super::*;

/// A database whose system catalogs are `pg_proc`, and a view of it.
fn with_catalog() -> Database {
    Database::new()
        .with(&["w", "1255"])
        .with(&["r", "20020", "v", "v", "f", "f"])
        .with(&["t", "w", "20020", "({QUERY :commandType 1 :relid 1255 })"])
        .with(&["t", "r", "20020", "({QUERY :commandType 1 :relid 1255 })"])
}

#[test]
fn rows_of_system_catalogs_are_ddl() {
    let of = |certificates: &Certificates, name: &str| certificates.word(Name::of(name.as_bytes()));
    for body in [
        "BEGIN UPDATE pg_proc SET prosrc = 'x'; RETURN 1; END",
        "BEGIN WITH a AS (DELETE FROM pg_catalog.\"pg_trigger\") SELECT 1; RETURN 1; END",
        "BEGIN UPDATE v SET prosrc = 'x'; RETURN 1; END",
    ] {
        let found = with_catalog().function("20001", "f", body).read();
        assert_eq!(of(&found, "f").read, ANYTHING, "{body}");
        assert!(found.has_ddl_code());
    }
    let found = with_catalog()
        .function(
            "20001",
            "f",
            "BEGIN RETURN (SELECT count(*) FROM pg_proc); END",
        )
        .read();
    assert_eq!(of(&found, "f").read, Effects::NONE);
    assert_eq!(of(&found, "v").read, Effects::NONE);
    assert_eq!(of(&found, "v").write, ANYTHING);
    for (command, expect) in [("1", Effects::NONE), ("2", ANYTHING)] {
        let tree = format!("({{QUERY :commandType {command} :relid 1255 }})");
        let function = ["f", "20001", "f", "sql", "f", "", "", &tree, "", "0"];
        let found = with_catalog().with(&["n", "f"]).with(&function).read();
        assert_eq!(of(&found, "f").read, expect, "{tree}");
    }
}

#[test]
fn effects_of_login_triggers() {
    let of = |event: &str, function: &str| {
        let database = Database::new().clean_and_dirty();
        database.with(&["v", "t", event, function]).read()
    };
    let found = of("login", "20002");
    assert!(found.logins_leave_state() && found.has_event_triggers());
    let why = "login trigger t may leave state in each session";
    assert_eq!(found.unclean_reason(), Some(why));
    for (event, function) in [("login", "20001"), ("ddl_command_end", "20002")] {
        let found = of(event, function);
        assert!(!found.logins_leave_state() && found.unclean_reason().is_none());
    }
}

#[test]
fn parameters_of_plpgsql() {
    let of = |settings: &str, body: &str| {
        let function = [
            "f", "20001", "f", "plpgsql", "f", "", body, "", settings, "0",
        ];
        let found = Database::new().with(&["n", "f"]).with(&function).read();
        found.word(Name::of(b"f")).read
    };
    assert_eq!(of("work_mem,app.x", CLEAN), Effects::NONE);
    assert_eq!(of("plpgsql.variable_conflict", CLEAN), body::COMPILES);
    let set = "BEGIN PERFORM set_config('plpgsql.variable_conflict', 'error', true); RETURN 1; END";
    assert!(of("", set).contains(body::COMPILES));
    let set = "BEGIN SET LOCAL plpgsql.variable_conflict = error; RETURN 1; END";
    assert_eq!(of("", set), body::COMPILES);
}

#[test]
fn whether_there_are_functions() {
    assert!(
        Database::new()
            .table("20020", "t")
            .read()
            .has_no_functions()
    );
    let one = Database::new().function("20001", "f", CLEAN).read();
    assert!(!one.has_no_functions());
    assert!(!Certificates::unread().has_no_functions());
    let outdated = Database::new().read().outdated(2);
    assert!(!outdated.has_no_functions());
}

#[test]
fn code_of_postgresqls_own_relations() {
    let of = |rows: &[&[&str]], name: &str| {
        let mut database = Database::new().clean_and_dirty();
        database.add(&["z", "13000", "sql_features", "f", "r"]);
        database.add(&["z", "13001", "tables", "f", "v"]);
        for row in rows {
            database.add(row);
        }
        let found = database.read();
        assert_eq!(found.every_text(), Effects::NONE);
        assert_eq!(found.counts().relations, usize::from(!rows.is_empty()));
        found.word(Name::of(name.as_bytes()))
    };
    let none = NameEffects::default();
    assert_eq!((of(&[], "sql_features"), of(&[], "tables")), (none, none));
    let fires: &[&str] = &["u", "w", "13000", "20002"];
    assert_eq!(of(&[fires], "sql_features").write, ANYTHING);
    let tree = call("20002");
    let calls: &[&str] = &["t", "r", "13001", &tree];
    assert_eq!(of(&[calls], "tables").read, ANYTHING);
    let body = "BEGIN RETURN (SELECT count(*) FROM information_schema.tables); END";
    let reads: &[&str] = &["f", "20003", "reads", "plpgsql", "f", "", body, "", "", "0"];
    assert_eq!(of(&[calls, reads], "reads").read, ANYTHING);
}

#[test]
fn functions_of_postgresql_that_were_replaced() {
    let found = Database::new()
        .with(&["c", "function lpad(text,integer)"])
        .read();
    assert_eq!(found.every_text(), Effects::OPAQUE | Effects::UNREAD);
    let why = "PostgreSQL's function lpad(text,integer) was replaced";
    assert_eq!(found.opaque_reason(), Some(why));
}

#[test]
fn functions_of_postgresql_that_were_declared_harmless() {
    let tree = call("9000");
    let of = |name: &str, listed: &str| {
        let mut database = Database::new();
        for row in [
            &["b", "9000", name, listed][..],
            &["r", "20030", "shows", "v", "f", "f"],
            &["t", "r", "20030", &tree],
        ] {
            database.add(row);
        }
        database.read().word(Name::of(b"shows")).read
    };
    assert!(of("pg_try_advisory_lock", "f").contains(Effects::OPAQUE));
    assert!(of("unknown_volatile", "t").contains(Effects::OPAQUE));
    assert_eq!(of("lower", "f"), Effects::NONE);
}

#[test]
fn views_of_what_reads_the_session_are_not_made_quietly() {
    let body = "SELECT CURRENT_USER";
    let found = asks("s", body)
        .with(&["r", "20020", "shows", "v", "f", "f"])
        .with(&["t", "r", "20020", &call("20010")])
        .read();
    let change = |text: &str| {
        crate::session::catalog_change(text.as_bytes(), crate::session::Dialect::Utf8, &found)
    };
    for text in [
        "CREATE VIEW v AS SELECT * FROM shows",
        "CREATE VIEW v AS SELECT \"f\"()",
    ] {
        assert_eq!(change(text), crate::session::Change::Any, "{text}");
    }
    let others = "CREATE VIEW v AS SELECT * FROM orders";
    assert_eq!(change(others), crate::session::Change::Quiet);
}

#[test]
fn certificates_differ_in_everything_that_is_used() {
    let calls = |name: &str| format!("BEGIN PERFORM set_config('app.{name}', x, false); END");
    let of = |name: &str| Database::new().function("20001", "f", &calls(name));
    let same = of("a").read().id();
    assert_eq!(of("a").read().id(), same);
    for other in [
        of("b"),
        of("a").with(&["l", "plperl"]),
        of("a").with(&["o", "s.postgres_fdw_disconnect_all"]),
        of("a").with(&["v", "e", "ddl_command_end", "20001"]),
        of("a").with(&["v", "e", "login", "20001"]),
    ] {
        assert_ne!(other.read().id(), same);
    }
}

#[test]
fn extensions_that_were_created_since_the_reading() {
    let read = Database::new().with(&["j", "42"]).read();
    assert_eq!(read.unread_foreign_code(), None);
    for outdated in [read.outdated(2), read.outdated_by_tables(2)] {
        let question = outdated.unread_foreign_code();
        assert!(question.is_some_and(|question| question.ends_with("<>) 42")));
    }
    let unread = Certificates::unread().unread_foreign_code();
    assert!(unread.is_some_and(|question| question.starts_with("EXISTS")));
}
