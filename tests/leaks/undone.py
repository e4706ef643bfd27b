"""Resets that are rolled back, skipped or partial; settings by which a text has another meaning; sequences; contrib."""

from leaks.forms import FIRE, wire
from leaks.line import TRIGGER, By, Leave, Query, Wire, bind, execute, keeper, line, parse, query, setting
from leaks.newer import block
from leaks.protocol import settled
from rawclient import FLUSH, SYNC, TERMINATE, close, describe, function_call

SET = setting()
LOCK = "SELECT pg_advisory_lock(7)"
SETS = "SET work_mem = '77MB'"
TEMP = "CREATE TEMP TABLE {x}_t (a int)"
HELD = "DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1"
PREPARE = "PREPARE {x}_p AS SELECT 1"
LISTEN = "LISTEN {x}_channel"


def texts(words, *all_, **more):
    return line(words, *(Query(text) for text in all_), **more)


def pipe(sql):
    return parse(sql) + bind() + execute()


def rolled_back(state, reset):
    return texts(f"{reset} that is rolled back, behind {state[:20]}", state, "BEGIN", reset, "ROLLBACK")


def partly(state, reset):
    return texts(f"{reset} behind a savepoint, rolled back to, behind {state[:20]}", state, "BEGIN", "SAVEPOINT s", reset,
                 "ROLLBACK TO s", "COMMIT")


def skipped(state, reset):
    """An error in front, so that the server skips the reset up to the Sync."""
    return wire(f"{reset} that an error skips, behind {state[:20]}", lambda names: pipe(names.sql(state)) + SYNC
                + pipe("SELECT 1/0") + pipe(reset) + SYNC)


def failing(state, reset):
    """DISCARD ALL and its like run in no transaction block."""
    return texts(f"{reset} that fails in a block, behind {state[:20]}", state, "BEGIN", reset, "COMMIT")


def in_one(state, reset):
    return texts(f"{state[:20]} behind {reset} in one Query", f"{reset}; {state}")


def in_error(state, reset):
    return texts(f"{reset} and an error in one Query, behind {state[:20]}", state, f"{reset}; SELECT 1/0")


RESETS = [
    *(rolled_back(state, reset) for state, reset in (
        (SETS, "RESET ALL"), (SETS, "RESET work_mem"), (SETS, "SET work_mem = DEFAULT"), (SETS, "SET LOCAL work_mem = DEFAULT"),
        ("SET ROLE leak_role", "RESET ROLE"), ("SET ROLE leak_role", "SET ROLE NONE"), ("SET ROLE leak_role", "SET SESSION AUTHORIZATION DEFAULT"),
        (TEMP, "DISCARD TEMP"), (TEMP, "DROP TABLE {x}_t"), (LISTEN, "UNLISTEN *"), (LISTEN, "UNLISTEN {x}_channel"),
        ("SET app.{x} = 'A'", "RESET app.{x}"), ("SET app.{x} = 'A'", "SELECT set_config('app.{x}', '', false)"),
        ("SET TIME ZONE 'Asia/Tokyo'", "SET TIME ZONE DEFAULT"), ("SET search_path = one", "SET LOCAL search_path = DEFAULT"))),
    *(partly(state, reset) for state, reset in (
        (SETS, "RESET ALL"), ("SET ROLE leak_role", "RESET ROLE"), (TEMP, "DISCARD TEMP"), ("SET app.{x} = 'A'", "SET app.{x} = ''"))),
    *(skipped(state, reset) for state, reset in (
        (LOCK, "DISCARD ALL"), (SETS, "DISCARD ALL"), (TEMP, "DISCARD TEMP"), (HELD, "CLOSE ALL"), (PREPARE, "DEALLOCATE ALL"),
        (LISTEN, "UNLISTEN *"), (LOCK, "SELECT pg_advisory_unlock_all()"), ("SET ROLE leak_role", "RESET ROLE"))),
    *(failing(state, "DISCARD ALL") for state in (LOCK, SETS, TEMP, HELD, PREPARE, LISTEN)),
    *(in_one(state, reset) for state, reset in (
        (LOCK, "UNLISTEN *"), (LOCK, "DEALLOCATE ALL"), (SETS, "CLOSE ALL"), (TEMP, "DISCARD PLANS"), (PREPARE, "DEALLOCATE ALL"),
        ("SET ROLE leak_role", "RESET ALL; SET SESSION AUTHORIZATION DEFAULT"), (HELD, "CLOSE ALL"), (LISTEN, "UNLISTEN *"),
        ("SELECT setseed(0.42)", "RESET ALL"))),
    *(in_error(state, reset) for state, reset in ((SETS, "RESET ALL"), ("SET ROLE leak_role", "RESET ROLE"), (TEMP, "DISCARD TEMP"),
                                                  (LISTEN, "UNLISTEN *"))),
    texts("DISCARD SEQUENCES, TEMP and PLANS behind a lock", LOCK, "DISCARD SEQUENCES", "DISCARD TEMP", "DISCARD PLANS", "DEALLOCATE ALL"),
    texts("RESET ALL behind a seed and a lock", "SELECT setseed(0.42)", LOCK, "RESET ALL", "RESET ROLE", "UNLISTEN *", "CLOSE ALL"),
    texts("DISCARD ALL, and everything again", "DISCARD ALL", SETS, LOCK),
    texts("DISCARD ALL as a string", SETS, "SELECT 'DISCARD ALL'"),
    texts("DISCARD ALL in a comment", SETS, "/* DISCARD ALL */"),
    wire("DISCARD ALL by Parse, never executed", lambda names: pipe(SETS) + SYNC + parse("DISCARD ALL") + bind() + describe() + SYNC),
    wire("DISCARD ALL by its name, then another under that name", lambda names: parse("DISCARD ALL", "s") + SYNC + close("S", "s")
         + parse(names.sql(f"SELECT {SET}"), "s") + bind(name="s") + execute() + SYNC),
    wire("a lock behind DISCARD ALL in the next Query of one write", lambda names: query("DISCARD ALL") + query(LOCK)),
    wire("a lock between two DISCARD ALL, of which the second fails", lambda names: query("DISCARD ALL") + query("BEGIN") + query(LOCK)
         + query("DISCARD ALL") + query("ROLLBACK")),
]

# -- settings of the transaction by which the next text means something else

TWO_READINGS = r"SELECT 'x\'', set_config($$app.{x}$$, $$A$$, false) --'"



def sjis(names):
    """In SJIS the backslash is a part of the character, and the string ends behind it."""
    return b"SELECT '\x83\\', " + names.sql(SET).encode() + b", '\x83\\'"


MEANINGS = [
    line("set_config of strings for the transaction", Query("BEGIN"), Query("SELECT set_config('standard_conforming_strings', 'off', true)"),
         TWO_READINGS, Query("COMMIT")),
    line("set_config of strings for the transaction, in one write", Wire(lambda names: query("BEGIN") + query(
        "SELECT set_config('standard_conforming_strings', 'off', true)") + query(names.sql(TWO_READINGS)) + query("COMMIT"))),
    line("set_config of strings in a pipeline without BEGIN", Wire(lambda names: pipe(
        "SELECT set_config('standard_conforming_strings', 'off', true)") + pipe(names.sql(TWO_READINGS)) + SYNC)),
    line("a trigger at COMMIT changes strings, in one write", Wire(lambda names: query("BEGIN") + query(names.sql(
        "INSERT INTO {x}_t VALUES (1)")) + query("COMMIT") + query(names.sql(TWO_READINGS))),
        setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS $k$ BEGIN PERFORM set_config('standard_conforming_strings', 'off',"
        " false); RETURN NEW; END $k$; CREATE TABLE {x}_t (a int); CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {x}_t DEFERRABLE"
        " INITIALLY DEFERRED" + FIRE),
    line("ROLLBACK takes strings back to off", Query("SET standard_conforming_strings = off"), Query("BEGIN"),
         Query("SET standard_conforming_strings = on"), Wire(lambda names: query("ROLLBACK") + query(names.sql(TWO_READINGS)))),
    line("a failed Query takes strings back to off", Query("SET standard_conforming_strings = off"), Wire(lambda names: query(
        "SET standard_conforming_strings = on; SELECT 1/0") + query(names.sql(TWO_READINGS)))),
    line("RESET ALL takes strings back to off at login", Wire(lambda names: query("SET standard_conforming_strings = on") + query("RESET ALL")
         + query(names.sql(TWO_READINGS))), login={"options": "-c standard_conforming_strings=off"}),
    line("COMMIT AND CHAIN keeps no strings of the transaction", Query("SET standard_conforming_strings = off"), Query("BEGIN"),
         Query("SET LOCAL standard_conforming_strings = on"), Wire(lambda names: query("COMMIT AND CHAIN") + query(names.sql(TWO_READINGS))),
         Query("COMMIT")),
    line("client_encoding for the transaction", Query("BEGIN"), Query("SET LOCAL client_encoding = 'SJIS'"),
         Wire(lambda names: query(sjis(names))), Query("COMMIT")),
    line("set_config of client_encoding, in one write", Wire(lambda names: query("BEGIN") + query(
        "SELECT set_config('client_encoding', 'SJIS', true)") + query(sjis(names)) + query("COMMIT"))),
    line("set_config of client_encoding, in a pipeline", Wire(lambda names: pipe("SELECT set_config('client_encoding', 'SJIS', false)")
         + parse(sjis(names)) + bind() + execute() + SYNC)),
    line("SET NAMES and a text in one write", Wire(lambda names: query("SET NAMES 'SJIS'") + query(sjis(names)))),
    line("client_encoding at login", Wire(lambda names: query(sjis(names))), login={"client_encoding": "SJIS"}),
    line("ROLLBACK takes client_encoding back", Query("SET client_encoding = 'SJIS'"), Query("BEGIN"), Query("SET client_encoding = 'UTF8'"),
         Wire(lambda names: query("ROLLBACK") + query(sjis(names)))),
]

# -- sequences


def sequence(words, *says, setup="", **more):
    return line(words, *says, setup="CREATE SEQUENCE {x}_s START 700 CACHE 20; GRANT ALL ON {x}_s TO PUBLIC;" + setup, sequence="{x}_s",
                alone=True, **more)


NEXT = "nextval('{x}_s')"
TABLE = f"CREATE TABLE {{x}}_t (a bigint DEFAULT {NEXT}, b int);"
SEQUENCES = [
    sequence("a default in UPDATE", "UPDATE {x}_t SET a = DEFAULT", setup=TABLE + "INSERT INTO {x}_t VALUES (1, 1)"),
    sequence("a default in MERGE", "MERGE INTO {x}_t USING one ON false WHEN NOT MATCHED THEN INSERT (b) VALUES (1)", setup=TABLE),
    sequence("a default behind ON CONFLICT", "INSERT INTO {x}_t (b) VALUES (1) ON CONFLICT DO NOTHING", setup=TABLE),
    sequence("a default in a common table expression", "WITH x AS (INSERT INTO {x}_t (b) VALUES (1) RETURNING a) TABLE x", setup=TABLE),
    sequence("a default of a view's table", "INSERT INTO {x}_v (b) VALUES (1)", setup=TABLE
             + "CREATE VIEW {x}_v AS TABLE {x}_t; GRANT ALL ON {x}_v TO PUBLIC"),
    sequence("a default of a partitioned table", "INSERT INTO {x}_t (b) VALUES (1)", setup=
             f"CREATE TABLE {{x}}_t (a bigint DEFAULT {NEXT}, b int) PARTITION BY LIST (b); CREATE TABLE {{x}}_q PARTITION OF {{x}}_t DEFAULT"),
    sequence("an identity that is named", "INSERT INTO {x}_i (b) VALUES (1)", setup="CREATE TABLE {x}_i (a int GENERATED ALWAYS AS IDENTITY"
             " (START 900), b int)"),
    sequence("an identity behind OVERRIDING", "INSERT INTO {x}_i (a, b) OVERRIDING USER VALUE VALUES (1, 1)", setup="CREATE TABLE {x}_i"
             " (a int GENERATED BY DEFAULT AS IDENTITY (START 900), b int)"),
    sequence("U&", r"""SELECT U&"next\0076al"('{x}_s')"""), sequence("a quoted name", "SELECT \"nextval\"('{x}_s'::regclass)"),
    sequence("a function in a cursor that is moved", Query("BEGIN"), f"DECLARE {{x}}_c CURSOR FOR SELECT {NEXT}", "MOVE ALL IN {x}_c",
             Query("COMMIT")),
    sequence("FunctionCall", Wire(lambda names: function_call(names.oid("'pg_catalog.nextval'::regproc"), (
        int(names.oid("'{x}_s'::regclass")).to_bytes(4, "big"),)))),
    sequence("a pipeline that fails", Wire(lambda names: pipe(names.sql(f"SELECT {NEXT}")) + pipe("SELECT 1/0") + SYNC)),
    sequence("nextval in the default of a function's argument", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f(a bigint DEFAULT"
             f" {NEXT}) RETURNS bigint LANGUAGE sql AS 'SELECT $1'"),
    sequence("a client that leaves in a pipeline", Leave(lambda names: pipe(names.sql(f"SELECT {NEXT}")) + FLUSH + TERMINATE)),
    sequence("a serial in quotes that another client has made", By("_alias", "DROP TABLE IF EXISTS {x}_q"), *settled() * 2,
             By("_alias", 'CREATE TABLE {x}_q (a "bigserial", b int)'), *settled() * 2, Query("INSERT INTO {x}_q (b) VALUES (1)")),
    sequence("RESTART IDENTITY behind nextval", Query(f"SELECT {NEXT}"), Query("TRUNCATE {x}_t RESTART IDENTITY"),
             setup=TABLE + "ALTER SEQUENCE {x}_s OWNED BY {x}_t.a; ALTER TABLE {x}_t OWNER TO trusty"),
]

# -- PL/pgSQL statements whose words look like those of others

UPDATED = TRIGGER + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE


def body(words, text, declared="", setup=UPDATED, call="SELECT {x}_g()"):
    return line(words, call, setup=setup + " CREATE FUNCTION {x}_g() RETURNS text LANGUAGE plpgsql AS"
                f" $k$ {declared} BEGIN {text} RETURN ''; END $k$")


WORDS = [
    body("OPEN FOR UPDATE", "OPEN c FOR UPDATE {x}_t SET a = 1 RETURNING a; FETCH c INTO v;", "DECLARE c refcursor; v int;"),
    body("OPEN SCROLL FOR a WITH that updates", "OPEN c FOR WITH u AS (UPDATE {x}_t SET a = 1 RETURNING a) SELECT a FROM u; FETCH c INTO v;",
         "DECLARE c refcursor; v int;"),
    body("CURSOR FOR UPDATE", "OPEN c; FETCH c INTO v;", "DECLARE c CURSOR FOR UPDATE {x}_t SET a = 1 RETURNING a; v int;"),
    body("CURSOR IS UPDATE", "OPEN c; FETCH c INTO v;", "DECLARE c CURSOR IS UPDATE {x}_t SET a = 1 RETURNING a; v int;"),
    body("FOR IN UPDATE", "FOR v IN UPDATE {x}_t SET a = 1 RETURNING a LOOP END LOOP;", "DECLARE v int;"),
    body("FOR UPDATE of a SELECT, and an UPDATE", "PERFORM a FROM {x}_t FOR UPDATE; UPDATE {x}_t SET a = 1;"),
    body("WHERE CURRENT OF", "FOR v IN c LOOP UPDATE {x}_t SET a = 1 WHERE CURRENT OF c; END LOOP;",
         "DECLARE c CURSOR FOR SELECT a FROM {x}_t FOR UPDATE; v record;"),
    body("UPDATE behind ELSE", "IF false THEN NULL; ELSE UPDATE {x}_t SET a = 1; END IF;"),
    line("RETURN QUERY UPDATE", "SELECT {x}_g()", setup=UPDATED + "CREATE FUNCTION {x}_g() RETURNS SETOF int LANGUAGE plpgsql AS"
         " $k$ BEGIN RETURN QUERY UPDATE {x}_t SET a = 1 RETURNING a; RETURN; END $k$"),
    body("a MERGE", "MERGE INTO {x}_t USING one ON true WHEN MATCHED THEN UPDATE SET a = 1;"),
    body("a variable named like a setting", "app := set_config('app.{x}', 'A', false);", "DECLARE app text;"),
    body("an ALIAS", f"v := {SET};", "DECLARE f text; v ALIAS FOR f;"),
    body("a CONSTANT", "NULL;", f"DECLARE v CONSTANT text COLLATE \"C\" NOT NULL := {SET};"),
    body("a default by DEFAULT", "NULL;", f"DECLARE v text DEFAULT {SET};"),
    body("a bound cursor with arguments in FOR", "FOR r IN c('A') LOOP END LOOP;",
         "DECLARE c CURSOR (v text) FOR SELECT set_config('app.{x}', v, false); r record;"),
    body("a slice", f"FOREACH v SLICE 1 IN ARRAY ARRAY[ARRAY[{SET}]] LOOP END LOOP;", "DECLARE v text[];"),
    body("a loop in reverse", f"FOR i IN REVERSE length({SET})..1 BY 1 LOOP END LOOP;"),
    body("RETURN of a CASE", f"RETURN CASE WHEN true THEN {SET} END;"),
    body("a dollar quote in a dollar quote", "PERFORM $q$ it's $q$, set_config($q$app.{x}$q$, $q$A$q$, false);"),
    body("CALL of a procedure that sets", "CALL {x}_p();", setup="CREATE PROCEDURE {x}_p() LANGUAGE plpgsql SET work_mem = '1MB' AS"
         f" $k$ BEGIN PERFORM {SET}; END $k$;"),
    line("FOR UPDATE of a SELECT and an UPDATE of a cursor's like", "SELECT a FROM {x}_t FOR UPDATE; UPDATE {x}_t SET a = 1", setup=UPDATED,
         forms=("simple",)),
    line("WITH FOR as a quoted name", 'WITH "for" AS (UPDATE {x}_t SET a = 1 RETURNING a) TABLE "for"', setup=UPDATED),
    block("FOR NO KEY UPDATE and an UPDATE", "SELECT a FROM {x}_t FOR NO KEY UPDATE", "UPDATE {x}_t SET a = 1", setup=UPDATED),
]

# -- contrib: functions in C that keep something, or that run SQL


def contrib(name, words, *says, setup="", **more):
    return line(f"{name}: {words}", *says, alone=True, setup=f"CREATE EXTENSION IF NOT EXISTS {name} CASCADE;" + setup, **more)


CONTRIB = [
    contrib("tablefunc", "connectby of a relation that calls", "SELECT * FROM connectby('(SELECT 1 AS a, 0 AS b FROM {x}_f()) q', 'a', 'b',"
            " '0', 0) AS t (k int, p int, l int)", setup=keeper()),
    contrib("tablefunc", "crosstab of a text that calls", "SELECT * FROM crosstab('SELECT ''a''::text, ''b''::text, {x}_f()') AS t (a text, b int)",
            setup=keeper()),
    contrib("tablefunc", "crosstab whose categories set", "SELECT * FROM crosstab('SELECT ''a''::text, ''A''::text, 1',"
            " $$SELECT set_config('app.{x}', 'A', false)$$) AS t (a text, b int)"),
    contrib("pg_trgm", "set_limit", "SELECT set_limit(0.77)"),
    contrib("pg_trgm", "a user's function of an extension's name", "SELECT similarity(1)", setup=keeper("a int", name="similarity")),
    contrib("pg_trgm", "a user's function that is made a member", "SELECT similarity(1)", setup=keeper("a int", name="similarity")
            + "ALTER EXTENSION pg_trgm ADD FUNCTION similarity(int)"),
    contrib("autoinc", "a trigger", "INSERT INTO {x}_t (b) VALUES (1)", setup="CREATE SEQUENCE {x}_s; GRANT ALL ON {x}_s TO PUBLIC;"
            " CREATE TABLE {x}_t (a int, b int); CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION autoinc(a, {x}_s)",
            sequence="{x}_s"),
    contrib("refint", "a key's trigger, which reads a view that calls", "INSERT INTO {x}_t VALUES (1)", rare=True, setup=keeper()
            + "CREATE VIEW {x}_v AS SELECT {x}_f() AS a; CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW"
            " EXECUTE FUNCTION check_primary_key('a', '{x}_v', 'a')"),
    contrib("isn", "isn_weak", "SELECT isn_weak(true)", f"SELECT {SET}"),
    contrib("amcheck", "an index's expression", "SELECT bt_index_check('{x}_i', true)", rare=True, setup=keeper("a int", "int", "a", "IMMUTABLE")
            + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE INDEX {x}_i ON {x}_t ({x}_f(a));"
            " GRANT EXECUTE ON FUNCTION bt_index_check(regclass, boolean) TO PUBLIC"),
    contrib("citext", "a cast of a user's type in a function of SQL", "SELECT replace('a'::citext, 'a'::citext, {x}_f('b')::citext)",
            setup=keeper("a text", "text", "a")),
    contrib("hstore", "populate_record of a domain", "SELECT populate_record(NULL::{x}_c, 'a=>1'::hstore)", setup=keeper("a int", "bool", "true")
            + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TYPE {x}_c AS (a {x}_d)"),
    contrib("btree_gist", "an exclusion over an expression", "INSERT INTO {x}_t VALUES (1)", setup=keeper("a int", "int", "(random() * 1e9)::int",
            "IMMUTABLE") + "CREATE TABLE {x}_t (a int, EXCLUDE USING gist ({x}_f(a) WITH =))"),
    contrib("lo", "a trigger beside another", "UPDATE {x}_t SET a = 2", setup=TRIGGER + "CREATE TABLE {x}_t (a oid); INSERT INTO {x}_t VALUES (1);"
            " CREATE TRIGGER l BEFORE DELETE ON {x}_t FOR EACH ROW EXECUTE FUNCTION lo_manage(a);"
            " CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE),
    line("brin_summarize_new_values", "SELECT brin_summarize_new_values('{x}_i')", rare=True, setup=keeper("a int", "int", "a", "IMMUTABLE")
         + "CREATE TABLE {x}_t (a int); CREATE INDEX {x}_i ON {x}_t USING brin ({x}_f(a)) WITH (pages_per_range = 1); INSERT INTO {x}_t"
         " SELECT generate_series(1, 2000); ALTER TABLE {x}_t OWNER TO trusty"),
]

# -- long and odd pipelines

PIPELINES = [
    wire("a call in the middle of 3,000 messages", lambda names: (parse("SELECT 1") + bind() + execute()) * 500
         + pipe(names.sql(f"SELECT {SET}")) + (parse("SELECT 1") + bind() + execute()) * 500 + SYNC),
    wire("a call in the middle of 400 Syncs", lambda names: (pipe("SELECT 1") + SYNC) * 200 + pipe(LOCK) + SYNC + (pipe("SELECT 1") + SYNC) * 200),
    wire("Execute by single rows", lambda names: parse(names.sql(f"SELECT CASE g WHEN 40 THEN {SET} END FROM generate_series(1, 60) g"))
         + bind() + execute(1) * 61 + SYNC),
    wire("a name that is parsed, closed and parsed 50 times", lambda names: (parse("SELECT 1", "s") + close("S", "s")) * 50
         + parse(names.sql(f"SELECT {SET}"), "s") + bind(name="s") + execute() + SYNC),
    wire("Bind of a name whose Parse fails the second time", lambda names: parse(LOCK, "s") + SYNC + parse("SELECT 2", "s") + SYNC
         + bind(name="s") + execute() + SYNC),
    wire("two statements that change places", lambda names: parse("SELECT 1", "s") + parse(LOCK, "t") + SYNC + close("S", "s")
         + close("S", "t") + parse(LOCK, "s") + parse("SELECT 1", "t") + bind(name="s") + execute() + SYNC),
    wire("Query in a pipeline without Sync", lambda names: pipe(LOCK) + query("SELECT 1")),
    wire("FunctionCall in a pipeline without Sync", lambda names: pipe(LOCK) + function_call(
        names.oid("'pg_catalog.pg_backend_pid'::regproc"), ())),
    line("Terminate in a pipeline without Sync", Leave(lambda names: pipe(LOCK) + pipe(names.sql(f"SELECT {SET}")) + TERMINATE)),
    line("Terminate behind Flush", Leave(lambda names: pipe(LOCK) + FLUSH + TERMINATE)),
    line("Terminate within a transaction", Leave(lambda names: query("BEGIN") + query(LOCK) + query(names.sql(f"SELECT {SET}")) + TERMINATE)),
]

CLASSES = {"resets that are undone": RESETS, "settings of the next text": MEANINGS, "more sequences": SEQUENCES,
           "words of PL/pgSQL": WORDS, "contrib": CONTRIB, "odd pipelines": PIPELINES}
