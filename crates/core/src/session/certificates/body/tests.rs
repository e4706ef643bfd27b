use super::*;

#[derive(Default)]
struct Names(Vec<String>);

impl Listener for Names {
    fn name(&mut self, name: &[u8]) -> Effects {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("set_config") {
            Effects::SETTING
        } else if is("pg_advisory_lock") {
            Effects::LOCK
        } else {
            Effects::NONE
        }
    }

    fn custom(&mut self, name: &[u8]) {
        self.0.push(String::from_utf8_lossy(name).into_owned());
    }
}

fn found(language: Language, source: &str) -> Effects {
    read(source.as_bytes(), language, true, &mut Names::default()).found
}

#[track_caller]
fn clean(language: Language, sources: &[&str]) {
    for source in sources {
        let verdict = read(source.as_bytes(), language, true, &mut Names::default());
        assert_eq!(verdict, Verdict::default(), "{source}");
    }
}

#[track_caller]
fn opaque(language: Language, sources: &[&str]) {
    for source in sources {
        assert!(
            found(language, source).contains(Effects::OPAQUE),
            "{source}"
        );
    }
}

#[test]
fn computed_names_of_parameters() {
    for source in [
        "BEGIN PERFORM set_config(n, v, false); END",
        "BEGIN PERFORM set_config('a.' || n, v, x); END",
        "BEGIN PERFORM \"set_config\"(n, v, is_local => true); END",
    ] {
        let found = found(Language::PlPgSql, source);
        assert!(
            found.contains(Effects::COMPUTED_NAME.and(Effects::OPAQUE)),
            "{source}"
        );
    }
    for source in [
        "BEGIN PERFORM set_config('a.b', v, false); END",
        "BEGIN PERFORM set_config($$a.b$$, v, false); END",
        "BEGIN PERFORM set_config(n, v, true); END",
    ] {
        let found = found(Language::PlPgSql, source);
        assert!(!found.contains(Effects::COMPUTED_NAME), "{source}");
    }
}

#[test]
fn clean_sql() {
    clean(
        Language::Sql,
        &[
            "SELECT 1",
            "SELECT a FROM t; UPDATE t SET a = 1;",
            "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x",
            "(SELECT 1) UNION (SELECT 2)",
            "INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET a = 2",
            "MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET a = 1 WHEN NOT MATCHED THEN DO NOTHING",
            "MERGE INTO a.t x USING u ON true WHEN MATCHED THEN DELETE; MERGE INTO t AS x USING u ON a WHEN MATCHED THEN DELETE",
            "INSERT INTO a.\"t\" (b) SELECT 1; INSERT INTO t AS x DEFAULT VALUES; INSERT INTO t SELECT 1",
            "SELECT set_config('app.tenant', $1, true)",
            "SELECT 'it''s' -- set_config\n || 'x'",
            "SELECT regexp_replace(a, '\\d+', E'\\n') FROM t",
        ],
    );
}

#[test]
fn opaque_sql() {
    opaque(
        Language::Sql,
        &[
            "SET x = 1",
            "SELECT 1; RESET ALL",
            "SELECT 1 AS a INTO t",
            "SELECT 1 AS insert INTO t",
            "SELECT 1 AS insert INTO TEMP t",
            "SELECT 1 AS insert INTO TEMP values",
            "SELECT 1 AS insert INTO a.t FROM b",
            "SELECT (1) merge INTO t",
            "SELECT a.merge INTO UNLOGGED overriding FROM a",
            "SELECT merge INTO t FROM a JOIN b USING (c)",
            "CREATE TEMP TABLE t ()",
            "SELECT set_config('a.b', 'c', false)",
            "SELECT set_config('x','a, true)',false)",
            "SELECT set_config('seed', '0.5', true)",
            "SELECT set_config('TimeZone', 'UTC', true)",
            "SELECT set_config('standard_conforming_strings', 'off', true)",
            "SELECT set_config(name, 'x', true)",
            "SELECT set_config('a.b', 'x', true and false)",
            "SELECT set_config('a.b', f(1, true), $1)",
            "SELECT \"set_config\"('a.b', 'c', $1)",
            "SELECT 1 -- it's\n, set_config('a.b', '', false) -- '",
            "SELECT 1 -- x\r, set_config('a.b', '', false)",
            "SELECT U&\"\\0073et_config\"('a.b', '', false)",
            "SELECT N'\\\\'', set_config($$a.b$$, $$$$, false) --'",
            "SELECT '\\', set_config('a.b', '', true), ' \\''",
            "SELECT 'a\\''",
            "SELECT 'open",
            "SELECT * FROM pg_temp.f()",
            "SELECT aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg()",
            "CALL p()",
            "EXECUTE p",
            "'x'",
        ][..],
    );
}

#[test]
fn clean_plpgsql() {
    clean(
        Language::PlPgSql,
        &[
            "BEGIN RETURN 1; END",
            "DECLARE a int := 1; set text; c CURSOR FOR SELECT 1; BEGIN a := 2; RETURN a; END;",
            "BEGIN IF a THEN b := 1; ELSIF c THEN d = 2; ELSE NULL; END IF; END",
            "BEGIN FOR r IN SELECT * FROM t LOOP NEW.x := r.a; x[1] := 2; EXIT WHEN r.b; END LOOP; END",
            "<<outer>> BEGIN <<inner>> WHILE true LOOP CONTINUE outer; END LOOP inner; END",
            "BEGIN RETURN QUERY SELECT CASE WHEN a THEN b ELSE c END, CASE x WHEN 1 THEN now() ELSE not d END; END",
            "BEGIN CASE x WHEN 1 THEN y := 1; ELSE RAISE EXCEPTION 'no %', x USING HINT = 'h'; END CASE; END",
            "BEGIN BEGIN SELECT a INTO STRICT b FROM t; EXCEPTION WHEN no_data_found THEN RETURN NULL; END; END",
            "BEGIN DECLARE x int; BEGIN x := 1; END; END",
            "BEGIN PERFORM f(); GET DIAGNOSTICS n = ROW_COUNT; ASSERT n > 0; OPEN c; FETCH c INTO r; CLOSE c; END",
            "BEGIN SET LOCAL statement_timeout = 0; SET LOCAL app.x TO 'y'; PERFORM pg_notify('a', 'b'); END",
            "BEGIN PERFORM set_config('app.x', coalesce(a, b), true); NOTIFY x; END",
            "BEGIN INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING; MERGE INTO t USING u ON a WHEN MATCHED THEN DO NOTHING; END",
            "BEGIN a := CASE WHEN b THEN interval '1 day' ELSE c::interval END; $1 := 2; \"x y\" := 3; END",
        ],
    );
}

#[test]
fn opaque_plpgsql() {
    opaque(
        Language::PlPgSql,
        &[
            "BEGIN SET LOCAL TimeZone = 'UTC'; END",
            "BEGIN SELECT 1 AS insert INTO TEMP t; END",
            "BEGIN SELECT loop insert INTO t FROM a; END",
            "BEGIN SET x = 1; END",
            "BEGIN SET LOCAL seed = 0.5; END",
            "BEGIN SET LOCAL standard_conforming_strings = off; END",
            "BEGIN SET LOCAL x = 1, y; END",
            "BEGIN SET LOCAL TimeZone = 'UTC'; END",
            "BEGIN PERFORM set_config('array_nulls', 'off', true); END",
            "BEGIN SET SESSION x = 1; END",
            "BEGIN IF a THEN SET x = 1; END IF; END",
            "BEGIN IF a THEN RETURN 1; ELSE RESET x; END IF; END",
            "BEGIN LOOP LISTEN x; END LOOP; END",
            "BEGIN EXECUTE 'SET x = 1'; END",
            "BEGIN RETURN QUERY EXECUTE 'x'; END",
            "BEGIN FOR r IN EXECUTE 'x' LOOP NULL; END LOOP; END",
            "BEGIN CREATE TABLE t (); END",
            "BEGIN CALL p(); END",
            "BEGIN COMMIT; END",
            "BEGIN <<l>> SET x = 1; END",
            "BEGIN BEGIN SET x = 1; END; END",
            "BEGIN CASE a WHEN 1 THEN SET x = 1; END CASE; END",
            "BEGIN EXCEPTION WHEN others THEN SET x = 1; END",
            "#variable_conflict use_column\nBEGIN RETURN 1; END",
            "BEGIN FOR r IN SELECT 1 AS end LOOP SET x = 1; END LOOP; END",
            // `declare` and `begin` as names do not hide statements.
            "BEGIN PERFORM a.loop declare; SET x = 1; BEGIN NULL; END; END",
            "BEGIN PERFORM CASE WHEN a THEN declare ELSE 1 END; SET x = 1; BEGIN NULL; END; END",
            "BEGIN PERFORM 1 >> declare; SET x = 1; BEGIN NULL; END; END",
            "DECLARE a int := (SELECT begin FROM t); BEGIN SET x = 1; END",
            "BEGIN IF 1 AS case THEN CREATE TEMP TABLE t AS SELECT 1 AS end; END IF; END",
            "BEGIN COPY t TO PROGRAM 'x'; END",
            "BEGIN VACUUM (FULL) t; END",
            "BEGIN IF a THEN VACUUM (FULL) t; END IF; END",
            "BEGIN IF a THEN LOAD 'x'; END IF; END",
            "BEGIN IF a THEN DISCARD; END IF; END",
        ],
    );
}

#[test]
fn names_beyond_ascii() {
    let source = "SELECT gr\u{fc}n FROM t".as_bytes();
    let of = |utf8| read(source, Language::Sql, utf8, &mut Names::default()).found;
    assert_eq!(of(true), Effects::NONE);
    assert_eq!(of(false), ANYTHING);
}

#[test]
fn parameters_of_calls() {
    let mut names = Names::default();
    let source = b"SELECT current_setting('app.a'), set_config($$app.b$$, '', true), f('app.c'), current_setting('d')";
    let _ = read(source, Language::Sql, true, &mut names);
    assert_eq!(names.0, ["app.a", "app.b"]);
}

#[test]
fn a_value_of_set_config_that_is_not_read_to_its_end() {
    let text = |parts: usize| {
        let value = "'x' || ".repeat(parts);
        format!("SELECT set_config('app.tenant', {value}'x', true)")
    };
    clean(Language::Sql, &[&text(VALUE_PIECES_MAX / 4)]);
    opaque(Language::Sql, &[&text(VALUE_PIECES_MAX)]);
}
