use super::*;

fn database() -> Certificates {
    let rows: [[&str; 4]; 8] = [
        ["e", "utf8", "", ""],
        ["r", "orders", "", ""],
        ["r", "serials", "", "SEQUENCE"],
        ["r", "audited", "", "SETTING OPAQUE"],
        ["f", "clean", "", ""],
        ["f", "dirty", "SETTING OPAQUE", ""],
        ["f", "dynamic", "OPAQUE TEMP UNREAD", ""],
        ["f", "makes_tables", "OPAQUE TEMP", ""],
    ];
    Certificates::from_rows(1, rows.iter().map(|row| row.map(str::as_bytes)))
}

#[track_caller]
fn check(change: Change, texts: &[&str]) {
    for text in texts {
        let found = catalog_change(text.as_bytes(), Dialect::Utf8, &database());
        assert_eq!(found, change, "{text}");
    }
}

#[test]
fn no_ddl() {
    check(
        Change::No,
        &[
            "",
            ";",
            "CALL p()",
            "CALL s.clean(a => $1, 'x')",
            "DO $$BEGIN END$$",
            "do 'BEGIN PERFORM clean(''created''); END'",
            "DO LANGUAGE plpgsql $a$ DECLARE x int := 1; BEGIN INSERT INTO audited VALUES (x); END $a$",
            "DO 'BEGIN PERFORM set_config(''app.a'', ''x'', false), dirty(); END' LANGUAGE \"plpgsql\"; CALL p()",
            "DO $$BEGIN RAISE NOTICE '%', (SELECT count(*) FROM orders); END$$ LANGUAGE 'plpgsql'",
            "SELECT 1",
            "-- create\nSELECT 'create'",
            "BEGIN; INSERT INTO audited VALUES (1); COMMIT",
            "SELECT dirty() FROM pg_class",
            "(SELECT 1) UNION SELECT 2",
            "ROLLBACK PREPARED 'x'",
            "SET x = 1",
        ],
    );
}

#[test]
fn quiet_ddl() {
    check(
        Change::Quiet,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT upper('x') CHECK (b <> ''))",
            "create temp table t as select * from orders",
            "CREATE UNLOGGED TABLE IF NOT EXISTS s.t (LIKE orders INCLUDING ALL) INHERITS (orders)",
            "CREATE TABLE p PARTITION OF orders FOR VALUES IN (1)",
            "CREATE UNIQUE INDEX CONCURRENTLY ON orders (lower(a)) WHERE b",
            "CREATE OR REPLACE VIEW v AS SELECT clean(), * FROM orders",
            "CREATE MATERIALIZED VIEW m AS SELECT 1",
            "CREATE SEQUENCE q; CREATE SCHEMA s AUTHORIZATION x; CREATE ROLE r LOGIN",
            "ALTER TABLE orders ADD COLUMN c int, RENAME TO other",
            "ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES other ON DELETE CASCADE",
            "DROP TABLE audited; DROP FUNCTION dirty()",
            "COMMENT ON TABLE orders IS 'x'",
            "GRANT SELECT ON orders TO r",
            "BEGIN; CREATE TABLE t (); COMMIT",
            "VACUUM (ANALYZE) orders",
            "REFRESH MATERIALIZED VIEW m",
        ],
    );
}

#[test]
fn ddl_that_makes_no_code() {
    check(
        Change::Tables,
        &[
            "CREATE TABLE t (a serial)",
            "CREATE TABLE t (a \"serial\")",
            "ALTER TABLE orders ADD b \"bigserial\"",
            "CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)",
            "CREATE TABLE t (a int DEFAULT nextval('q'))",
            "CREATE TABLE t (a int DEFAULT dirty())",
            "CREATE TABLE t (a int DEFAULT \"dirty\"())",
            "CREATE TABLE t (LIKE serials)",
            "CREATE TABLE t () INHERITS (audited)",
            "CREATE TABLE dirty ()",
            "CREATE TABLE t AS EXECUTE p",
            "CREATE VIEW v AS SELECT * FROM audited",
            "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
            "CREATE INDEX ON orders (dirty(a))",
            "ALTER TABLE audited RENAME TO harmless",
            "ALTER TABLE orders RENAME TO audited",
            "ALTER TABLE orders ALTER a ADD GENERATED ALWAYS AS IDENTITY",
            "ALTER TABLE orders ALTER a SET DEFAULT dirty()",
            "VACUUM audited",
            "ANALYSE audited",
            "SELECT makes_tables()",
            "CREATE TABLE t AS SELECT makes_tables()",
            "CALL makes_tables()",
            "DO $$BEGIN PERFORM makes_tables(); END$$",
        ],
    );
}

#[test]
fn ddl_that_may_change_anything() {
    check(
        Change::Any,
        &[
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE PROCEDURE p() LANGUAGE sql AS ''",
            "UPDATE pg_proc SET prosrc = 'SELECT 2'",
            "WITH a AS (DELETE FROM pg_catalog.\"pg_trigger\") SELECT 1",
            "CREATE TRIGGER t BEFORE INSERT ON orders EXECUTE FUNCTION clean()",
            "CREATE RULE r AS ON INSERT TO orders DO ALSO SELECT 1",
            "CREATE POLICY p ON orders USING (true)",
            "CREATE OPERATOR ### (procedure = clean)",
            "CREATE CAST (int AS text) WITH FUNCTION clean(int)",
            "CREATE TYPE t AS (a int)",
            "CREATE DOMAIN d AS int",
            "CREATE AGGREGATE a (int) (sfunc = int4pl, stype = int)",
            "CREATE EXTENSION dblink",
            "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION clean()",
            "CREATE FOREIGN TABLE t () SERVER s",
            "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON orders EXECUTE FUNCTION clean()",
            "CREATE SCHEMA s CREATE VIEW v AS SELECT 1",
            "CREATE VIEW v AS SELECT * FROM pg_settings",
            "CREATE VIEW v AS SELECT current_setting('a.b')",
            "CREATE MATERIALIZED VIEW v AS SELECT \"current_user\"",
            "CREATE OR REPLACE VIEW v AS SELECT * FROM pg_tables",
            "CREATE TABLE aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg ()",
            "CREATE TABLE U&\"\\0064irty\" ()",
            "ALTER FUNCTION clean() SET search_path = ''",
            "ALTER TYPE t ADD ATTRIBUTE b int",
            "ALTER DOMAIN d ADD CHECK (true)",
            "ALTER EXTENSION e UPDATE",
            "COMMIT PREPARED 'x'",
            "SELECT dynamic()",
            "SELECT \"dynamic\"()",
            "IMPORT FOREIGN SCHEMA s FROM SERVER x INTO y",
            "VACUUM",
            "VACUUM FULL",
            "VACUUM (FULL, ANALYZE off)",
            "vacuum full freeze verbose analyze",
            "ANALYZE VERBOSE",
            "ANALYSE",
            "REINDEX INDEX i",
            "REINDEX (VERBOSE) INDEX i",
            "REINDEX SCHEMA s",
            "REINDEX SYSTEM d",
            "REINDEX DATABASE CONCURRENTLY d",
            "CLUSTER VERBOSE",
            "REPACK",
            "REPACK (VERBOSE) USING INDEX",
            "SELECT 1; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE TABLE t (); CREATE TRIGGER t BEFORE INSERT ON orders EXECUTE FUNCTION clean()",
            "SOMETHING new",
            "SELECT 'open",
        ],
    );
}

#[test]
fn code_that_may_change_anything() {
    check(
        Change::Any,
        &[
            "CALL dynamic()",
            "CALL p((SELECT \"dynamic\"(1)))",
            "CALL U&\"\\0064ynamic\"()",
            "CALL \"a\"\"b\"()",
            "CALL aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg()",
            "SELECT aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg()",
            "CALL query_to_xml('SELECT dynamic()', true, true, '')",
            "DO $$BEGIN PERFORM dynamic(); END$$",
            "DO $$BEGIN PERFORM \"dynamic\"(); END$$",
            "DO $$BEGIN PERFORM/**/DYNAMIC/**/(); END$$",
            "DO 'BEGIN PERFORM ''x'', dynamic(); END'",
            "DO $$BEGIN PERFORM U&\"dyn!0061mic\" UESCAPE '!' (); END$$",
            "DO $$BEGIN PERFORM '\\', dynamic(), '\\'; END$$",
            "DO $$BEGIN PERFORM '/*\\', dynamic(), '*/'; END$$",
            "DO $$BEGIN PERFORM aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg(); END$$",
            "DO $$BEGIN EXECUTE 'SELECT 1'; END$$",
            "DO $$BEGIN FOR r IN EXECUTE q LOOP NULL; END LOOP; END$$",
            "DO $$BEGIN CREATE FUNCTION f() RETURNS int LANGUAGE sql AS ''; END$$",
            "DO $$BEGIN IF true THEN DROP TABLE t; END IF; END$$",
            "DO $$BEGIN -- \n ALTER FUNCTION clean() RENAME TO x; END$$",
            "DO $$BEGIN CALL p(); END$$",
            "DO $$BEGIN COMMIT; END$$",
            "DO $$BEGIN SELECT 1 AS insert INTO TEMP t; END$$",
            "DO $$BEGIN UPDATE pg_proc SET prosrc = ''; END$$",
            "DO $$BEGIN DO 'x'; END$$",
            "DO $$BEGIN PERFORM ts_stat('SELECT f()'); END$$",
            "DO $$ %x BEGIN END$$",
            "DO E'BEGIN END'",
            "DO 'BEGIN '\n'END'",
            "DO $1",
            "DO U&'BEGIN END'",
            "DO x",
            "DO",
            "DO LANGUAGE sql 'SELECT 1'",
            "DO 'BEGIN END' LANGUAGE plpython3u",
            "DO 'BEGIN END' LANGUAGE \"PLPGSQL\"",
            "DO LANGUAGE plpgsql 'BEGIN END' LANGUAGE plperl",
            "SELECT 1; DO $$BEGIN PERFORM 1; END$$; DO $$BEGIN PERFORM dynamic(); END$$",
        ],
    );
}

#[test]
fn code_under_invalid_certificates() {
    let found = |text: &str, certificates: &Certificates| {
        catalog_change(text.as_bytes(), Dialect::Utf8, certificates)
    };
    let unknown = database().outdated(2);
    for text in ["CALL p()", "DO 'BEGIN END'"] {
        assert_eq!(found(text, &unknown), Change::Quiet, "{text}");
    }
    for text in ["CALL makes_tables()", "DO 'BEGIN PERFORM dynamic(); END'"] {
        assert_eq!(found(text, &unknown), Change::Any, "{text}");
    }
    let everywhere = ["e", "", "OPAQUE TEMP", ""].map(str::as_bytes);
    let everywhere = Certificates::from_rows(1, [everywhere]);
    assert_eq!(found("CALL p()", &everywhere), Change::Any);
    assert_eq!(found("DO 'BEGIN END'", &everywhere), Change::Any);
}

#[test]
fn nothing_is_quiet_where_every_text_is_opaque() {
    let unknown = database().outdated(2);
    let found = |text: &str| catalog_change(text.as_bytes(), Dialect::Utf8, &unknown);
    assert_eq!(found("CREATE TABLE t ()"), Change::Any);
    assert_eq!(found("DROP TABLE t"), Change::Any);
    let by_tables = database().outdated_by_tables(2);
    for text in ["CREATE TABLE t ()", "DROP TABLE t"] {
        let found = catalog_change(text.as_bytes(), Dialect::Utf8, &by_tables);
        assert_eq!(found, Change::Tables, "{text}");
    }
    assert_eq!(found("SELECT 1"), Change::No);
    assert_eq!(
        found("SELECT dynamic()"),
        Change::Any,
        "what was known counts"
    );
}

#[test]
fn words_in_texts_that_are_not_read() {
    let found = |text: &str| catalog_change(text.as_bytes(), Dialect::Unreadable, &database());
    assert_eq!(found("select '\\' ; create table t ()"), Change::Any);
    assert_eq!(found("DO$$x$$"), Change::Any);
    assert_eq!(found("update t set created = 1 where doing"), Change::No);
    for text in [
        "select dynamic(1)",
        "select \"Dynamic\"(1)",
        "select U&\"dyn!0061mic\" uescape '!' (1)",
        "select * from ts_stat('x')",
    ] {
        assert_eq!(found(text), Change::Any, "{text}");
    }
}

#[test]
fn a_name_that_words_do_not_find() {
    for name in ["gr\u{fc}n", "a b", &"x".repeat(63)] {
        let row = ["f", name, "OPAQUE TEMP", ""].map(str::as_bytes);
        let certificates = Certificates::from_rows(1, [row]);
        let change = |dialect| catalog_change(b"select 1", dialect, &certificates);
        assert_eq!(change(Dialect::Unreadable), Change::Any, "{name}");
        assert_eq!(change(Dialect::Utf8), Change::No, "{name}");
    }
}

#[test]
fn causes() {
    for (text, words) in [
        (
            "SELECT 'secret', dynamic()",
            "code that may do DDL has run: dynamic",
        ),
        (
            "DO 'BEGIN PERFORM ''x'', \"dynamic\"(); END'",
            "code that may do DDL has run: dynamic",
        ),
        (
            "SELECT 1; create or replace function secret()",
            "a client has sent CREATE FUNCTION",
        ),
        ("CREATE SECRET x", "a client has sent CREATE"),
        (
            "COMMIT PREPARED 'secret'",
            "a client has sent COMMIT PREPARED",
        ),
        ("DO $$secret$$ LANGUAGE plperl", "a client has sent DO"),
        (
            "secret 'open",
            "a client has sent a statement that may do DDL",
        ),
    ] {
        let cause = ddl_cause(text.as_bytes(), Dialect::Utf8, &database());
        assert_eq!(&*cause.words, words, "{text}");
        assert_eq!(cause.is_code, words.contains("code"));
        let cause = ddl_cause(text.as_bytes(), Dialect::Unreadable, &database());
        assert_eq!(&*cause.words, "a text that pgweir can't read may do DDL");
    }
}
