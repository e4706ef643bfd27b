"""Session state by calls in unusual notations, by statements that evaluate expressions, by settings in unusual
spellings, by changed objects of PostgreSQL itself, and by transactions with unusual ends.
"""

from leaks.forms import FIRE, label, plain, wire
from leaks.line import KEEP, TRIGGER, By, Query, Wire, bind, execute, keeper, line, parse, query, setting
from leaks.newer import block, function, newer, procedure
from rawclient import COPY_DONE, FLUSH, SYNC, close, copy_data, describe, function_call

SET = setting()
LOCK = "pg_try_advisory_lock(7)"
TABLE = "CREATE TABLE {x}_t (a int, b int);"

# -- notations of a call, and places where it may stand

CALLS = plain(
    "SELECT set_config('app.{x}', 'A', true) UNION ALL SELECT set_config('app.{x}', 'A', false)",
    "SELECT set_config('app.{x}', 'A', true AND NOT true)", "SELECT set_config('app.{x}', 'A', (true, false) = (true, true))",
    "SELECT set_config('app.{x}', $$true)$$, false)", "SELECT set_config('app.{x}', 'A', 0::bool)",
    "SELECT set_config('app.{x}', 'A', true) AS \"set_config\", \"set_config\"('app.{x}', 'A', false)",
    "SELECT set_config('app.{x}', 'A', true) AS a, set_config('app.{x}', 'A', 'n') AS b",
    "SELECT set_config('app.{x}', 'A', true), (SELECT set_config('app.{x}', 'A', false))",
    "SELECT set_config('app.{x}', 'B', true) AS a; SELECT set_config('app.{x}', 'A', false) AS b",
    "SELECT set_config('app.{x}', 'B', true); SET app.{x} TO \"A\"", "SELECT set_config($q$app.{x}$q$, E'A', false)",
    f"SELECT DISTINCT {SET}", f"TABLE plain ORDER BY {SET}", f"SELECT 1 WHERE (1, {SET}) IN (VALUES (1, 'A'))",
    f"SELECT a FROM one WHERE (SELECT {SET}) = 'A'", f"SELECT 'a' SIMILAR TO {SET} ESCAPE '#'", f"SELECT {SET} !~~* 'x'",
    f"SELECT now() AT TIME ZONE coalesce(nullif({SET}, 'A'), 'UTC')", f"SELECT (ROW({SET}, 1)).f1",
    f"SELECT (ARRAY[ROW(1, {SET})])[1]", f"SELECT (regexp_match({SET}, 'A'))[1]", f"SELECT NORMALIZE({SET}, NFC)",
    f"SELECT {SET} IS NFC NORMALIZED", f"SELECT COLLATION FOR ({SET})",
    f"SELECT (now(), now()) OVERLAPS (now(), now() + length({SET}) * interval '1s')",
    f"SELECT ordinality FROM unnest(ARRAY[{SET}]) WITH ORDINALITY", f"SELECT * FROM one JOIN LATERAL (SELECT {SET}) l ON true",
    f"SELECT * FROM one NATURAL JOIN (SELECT 1 AS a, {SET} AS s OFFSET 0) q", f"SELECT * FROM generate_series(1, length({SET}))",
    f"SELECT GROUPING(a) FROM one GROUP BY ROLLUP (a) HAVING {SET} > ''", f"SELECT nth_value(a, length({SET})) OVER () FROM one",
    f"SELECT lag(a, length({SET})) OVER (ORDER BY a) FROM one", f"SELECT XMLCONCAT(NULL), {SET}",
    f"SELECT percentile_disc(0.1 * length({SET})) WITHIN GROUP (ORDER BY a) FROM one",
    f"WITH x AS NOT MATERIALIZED (SELECT {SET} AS s) SELECT s FROM x", f"WITH x AS (VALUES ({SET})) TABLE x",
    f"WITH x (s) AS (SELECT {SET}), y AS (TABLE x) SELECT * FROM y, one", f"INSERT INTO plain OVERRIDING USER VALUE VALUES (1, {SET})",
    f"INSERT INTO plain AS p VALUES (1, 'x') ON CONFLICT DO NOTHING RETURNING {SET}",
    f"INSERT INTO plain SELECT * FROM (VALUES (1, {SET})) v", f"UPDATE ONLY plain SET b = DEFAULT WHERE {SET} > ''",
    f"UPDATE plain AS p SET b = p.b FROM one WHERE p.a = one.a AND {SET} = 'A' OR {LOCK}", f"DELETE FROM ONLY plain WHERE {SET} = ''",
    f"MERGE INTO plain USING one ON true WHEN MATCHED AND {LOCK} THEN DO NOTHING WHEN NOT MATCHED AND {SET} > '' THEN DO NOTHING",
    f"EXPLAIN (\"analyze\") SELECT {SET}", f"EXPLAIN (ANALYZE 1) SELECT {SET}", f"EXPLAIN (COSTS 0, ANALYZE \"on\") SELECT {SET}",
    f"EXPLAIN (ANALYZE, WAL, FORMAT yaml) VALUES ({SET})", f"EXPLAIN (ANALYZE on) UPDATE plain SET b = {SET}",
    f"EXPLAIN ANALYSE SELECT {SET}", f"EXPLAIN (ANALYZE, FORMAT 'xml') (SELECT {SET})",
    f"EXPLAIN ANALYZE WITH x AS (SELECT {SET}) TABLE x", f"COPY (WITH x AS (SELECT {SET}) TABLE x) TO STDOUT",
    f"COPY (UPDATE plain SET b = b RETURNING {SET}) TO STDOUT", f"COPY ((SELECT {SET})) TO STDOUT",
    "SELECT pg_advisory_lock_shared(7, 8)", "SELECT FROM pg_advisory_lock(7)",
    "SELECT (pg_catalog.pg_advisory_lock(7), 1)", "SELECT 1 ORDER BY pg_try_advisory_lock(7)",
    "SELECT setseed(0.42) IS NULL", "SELECT setseed(seed) FROM (VALUES (0.42)) v (seed)", "SELECT pg_catalog . setseed (0.42)",
)

# -- commands that evaluate expressions

COMMANDS = [
    block("EXPLAIN ANALYZE of CREATE TEMP TABLE AS", "EXPLAIN ANALYZE CREATE TEMP TABLE {x}_t AS SELECT 1 AS a"),
    block("EXPLAIN ANALYZE of CREATE TABLE AS", f"EXPLAIN ANALYZE CREATE TABLE {{x}}_t AS SELECT {LOCK}", end="ROLLBACK"),
    block("EXPLAIN ANALYZE of DECLARE WITH HOLD", f"EXPLAIN (ANALYZE) DECLARE {{x}}_c CURSOR WITH HOLD FOR SELECT {SET}"),
    block("ALTER TABLE USING", "CREATE TABLE {x}_t AS SELECT 1 AS a", f"ALTER TABLE {{x}}_t ALTER a TYPE bool USING {LOCK}",
          end="ROLLBACK"),
    block("ADD COLUMN DEFAULT", "CREATE TABLE {x}_t AS SELECT 1 AS a", f"ALTER TABLE {{x}}_t ADD b bool DEFAULT {LOCK}", end="ROLLBACK"),
    block("ADD CHECK", "CREATE TABLE {x}_t AS SELECT 1 AS a", f"ALTER TABLE {{x}}_t ADD CHECK ({LOCK})", end="ROLLBACK"),
    block("VALIDATE CONSTRAINT", "CREATE TABLE {x}_t AS SELECT 1 AS a", f"ALTER TABLE {{x}}_t ADD CONSTRAINT c CHECK ({LOCK}) NOT VALID",
          "ALTER TABLE {x}_t VALIDATE CONSTRAINT c", end="ROLLBACK"),
    block("a partition's bound", "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a)",
          f"CREATE TABLE {{x}}_p PARTITION OF {{x}}_t FOR VALUES IN ({LOCK}::int)", end="ROLLBACK"),
    block("a domain that is made and used", f"CREATE DOMAIN {{x}}_d AS int CHECK ({LOCK})", "SELECT 1::{x}_d", end="ROLLBACK"),
    block("an operator that is made and used", "CREATE OPERATOR @@@@ (RIGHTARG = bigint, FUNCTION = pg_try_advisory_lock)",
          "SELECT @@@@ 7::bigint", end="ROLLBACK"),
    block("a cast that is made and used", "CREATE TYPE {x}_c AS (a bigint)", "CREATE FUNCTION {x}_f({x}_c) RETURNS bool LANGUAGE sql"
          " AS 'SELECT pg_try_advisory_lock($1.a)'", "CREATE CAST ({x}_c AS bool) WITH FUNCTION {x}_f({x}_c)", "SELECT ROW(7)::{x}_c::bool",
          end="ROLLBACK"),
    block("a rule that is made and fired", "CREATE TABLE {x}_t (a int)",
          f"CREATE RULE r AS ON INSERT TO {{x}}_t DO ALSO (SELECT 1; SELECT {LOCK})", "INSERT INTO {x}_t VALUES (1)", end="ROLLBACK"),
    block("an aggregate that is made and used", "CREATE AGGREGATE {x}_a (bigint) (SFUNC = int8pl, STYPE = bigint, INITCOND = 0,"
          " FINALFUNC = pg_try_advisory_lock)", "SELECT {x}_a(a) FROM one", end="ROLLBACK"),
    block("a policy that is made", "CREATE TABLE {x}_t AS SELECT 1 AS a", f"CREATE POLICY p ON {{x}}_t USING ({LOCK})",
          "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "TABLE {x}_t", end="ROLLBACK"),
    block("a materialized view that is refreshed", "CREATE MATERIALIZED VIEW {x}_m AS SELECT pg_try_advisory_lock(7) WITH NO DATA",
          "REFRESH MATERIALIZED VIEW {x}_m", end="ROLLBACK"),
    block("ALTER DOMAIN ADD CHECK", "CREATE DOMAIN {x}_d AS int", "CREATE TABLE {x}_t AS SELECT 1::{x}_d AS a",
          f"ALTER DOMAIN {{x}}_d ADD CHECK ({LOCK})", end="ROLLBACK"),
    block("CREATE FUNCTION with a temporary type", "CREATE TYPE pg_temp.{x}_c AS (a int)"),
    block("CREATE TEMP SEQUENCE", "CREATE TEMP SEQUENCE {x}_s"),
    block("a temporary table like another", "CREATE TEMP TABLE {x}_t (LIKE plain INCLUDING ALL)"),
    block("a temporary table that inherits", "CREATE TEMP TABLE {x}_t () INHERITS (one)", setup="ALTER TABLE one OWNER TO trusty"),
    block("a temporary table with ON COMMIT DELETE ROWS", "CREATE TEMP TABLE {x}_t (a int) ON COMMIT DELETE ROWS"),
    block("a table that moves to pg_temp is refused, a lock stays", f"SELECT {LOCK}", "ALTER TABLE one SET SCHEMA pg_temp", end="ROLLBACK"),
    block("CREATE TEMP TABLE AS EXECUTE", "PREPARE {x}_p AS SELECT 1 AS a", "CREATE TEMP TABLE {x}_t AS EXECUTE {x}_p", "DEALLOCATE {x}_p"),
    block("a cursor's rows are computed by FETCH", f"DECLARE {{x}}_c CURSOR FOR SELECT CASE g WHEN 2 THEN {SET} END FROM generate_series(1, 3) g",
          "FETCH 1 FROM {x}_c", "FETCH RELATIVE 1 FROM {x}_c"),
    block("MOVE computes too", f"DECLARE {{x}}_c CURSOR FOR SELECT CASE g WHEN 2 THEN {LOCK} END FROM generate_series(1, 3) g",
          "MOVE FORWARD ALL IN {x}_c", end="ROLLBACK"),
    block("FETCH BACKWARD computes too", f"DECLARE {{x}}_c SCROLL CURSOR FOR SELECT {LOCK} FROM generate_series(1, 3) g", "FETCH LAST {x}_c",
          "FETCH BACKWARD 1 {x}_c", end="ROLLBACK"),
    block("WHERE CURRENT OF", "DECLARE {x}_c CURSOR FOR SELECT * FROM plain FOR UPDATE", "FETCH {x}_c",
          f"UPDATE plain SET b = {SET} WHERE CURRENT OF {{x}}_c"),
    block("a cursor that COMMIT materializes", f"DECLARE {{x}}_c CURSOR WITH HOLD FOR SELECT {LOCK} FROM one", end="COMMIT"),
    line("EXECUTE with an argument that keeps", Query("PREPARE {x}_p (text) AS SELECT $1"), Query(f"EXECUTE {{x}}_p({SET})"),
         Query("DEALLOCATE {x}_p")),
    line("EXPLAIN ANALYZE EXECUTE with an argument", Query("PREPARE {x}_p (text) AS SELECT $1"),
         Query(f"EXPLAIN ANALYZE EXECUTE {{x}}_p({SET})"), Query("DEALLOCATE {x}_p")),
    line("EXECUTE with a value that is set", Query("PREPARE {x}_p (text, bool) AS SELECT set_config('app.{x}', $1, $2)"),
         Query("EXECUTE {x}_p('A', false)"), Query("DEALLOCATE {x}_p")),
    line("a statement that is prepared twice", Query("PREPARE {x}_p AS SELECT 1"), Query("DEALLOCATE {x}_p"),
         Query(f"PREPARE {{x}}_p AS SELECT {SET}"), Query("EXECUTE {x}_p"), Query("DEALLOCATE ALL")),
    *(line(words, text) for words, text in (
        ("DO with its language behind", f"DO $k$ BEGIN {KEEP} END $k$ LANGUAGE plpgsql"),
        ("DO with its language in front", f"DO LANGUAGE plpgsql $k$ BEGIN {KEEP} END $k$"),
        ("DO of an escape string", r"DO E'BEGIN PERFORM set_config(\'app.{x}\', \'A\', false); END'"),
        ("DO of U&", r"DO U&'BEGIN PERFORM \0073et_config(''app.{x}'', ''A'', false); END'"),
        ("DO with a temporary view", "DO $k$ BEGIN CREATE TEMP VIEW {x}_v AS SELECT 1; END $k$"),
        ("DO with PREPARE", "DO $k$ BEGIN EXECUTE 'PREPARE {x}_p AS SELECT 1'; END $k$"),
        ("DO with a held cursor", "DO $k$ BEGIN EXECUTE 'DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1'; END $k$"),
        ("DO with SET ROLE", "DO $k$ BEGIN SET ROLE leak_role; END $k$"), ("DO with setseed", "DO $k$ BEGIN PERFORM setseed(0.42); END $k$"),
        ("DO with EXECUTE USING", "DO $k$ BEGIN EXECUTE 'SELECT set_config($1, $2, $3)' USING 'app.{x}', 'A', false; END $k$"),
        ("DO with a loop that commits", "DO $k$ BEGIN FOR i IN 1..3 LOOP PERFORM set_config('app.{x}', i::text, false); COMMIT; END LOOP; END $k$"),
        ("DO with ROLLBACK and a lock", "DO $k$ BEGIN PERFORM pg_advisory_lock(7); ROLLBACK; END $k$"))),
    line("COPY FROM a program's like, with a column list and a default", Wire(lambda names: query(names.sql("COPY {x}_t (b) FROM STDIN CSV"))
         + copy_data(b"1\n") + COPY_DONE), setup=keeper() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f(), b int)"),
    line("COPY of a view with a rule", Wire(lambda names: query(names.sql("COPY {x}_v FROM STDIN")) + copy_data(b"1\n") + COPY_DONE),
         setup=TRIGGER + "CREATE VIEW {x}_v AS SELECT 1 AS a; CREATE TRIGGER t INSTEAD OF INSERT ON {x}_v" + FIRE
         + " GRANT ALL ON {x}_v TO PUBLIC"),
    line("COPY TO of a view", "COPY (TABLE {x}_v) TO STDOUT", setup=keeper() + "CREATE VIEW {x}_v AS SELECT {x}_f()"),
]

# -- parameters in unusual spellings

SPELLINGS = plain(
    "SET app . {x} = 'A'", "SET app./**/{x} = 'A'", "SET app.\"{x}\" TO 'A'", r'SET U&"app"."{x}" = ' "'A'", "SET \"app\".{x} = E'\\x41'",
    "SET app.{x} = $$A$$", r"SET app.{x} = U&'\0041'", "SET app.{x} TO \"A\"", "SET app.{x} = -1", "SET app.{x} = +1.50", "SET app.{x} = 1e3",
    "SET app.{x} TO on", "SET app.{x} TO A", "SET app.{x} = 'A'\n'B'", "SET app.{x} = 'A' -- it's",
    "SET app.{x} = 'A' /* ; */ ; SELECT 1", "SET SESSION app.{x} = 'it''s'", "SET APP.{x} TO 'A'", "SET search_path TO one, \"c d\", public",
    "SET DateStyle TO SQL, DMY", "SET TIME ZONE -3.5", "SET TIME ZONE 'PST8PDT'", "SET TIME ZONE \"Asia/Tokyo\"",
    "SET TIME ZONE INTERVAL '1:30' HOUR TO MINUTE", "SET LOCAL TIME ZONE 'UTC'; SET TIME ZONE 5",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION NOT DEFERRABLE, READ ONLY", "SET ROLE \"leak_role\"", r'SET ROLE U&"leak\005frole"',
    "SET SESSION \"role\" TO 'leak_role'", "SET LOCAL ROLE leak_role; SET SESSION ROLE leak_role", "RESET ROLE; SET ROLE leak_role",
    "SET ROLE NONE; SET ROLE TO leak_role", "SET SESSION AUTHORIZATION trusty; SET ROLE leak_role", "SET role = leak_role; SET app.{x} = 'A'",
    "SELECT set_config('DATESTYLE', 'SQL', false)", "SELECT set_config('timezone', 'Asia/Tokyo', false)",
    "SELECT set_config('search_path', 'one', 'f'::bool)", "SELECT set_config('role', 'leak_role', false), set_config('app.{x}', 'A', true)",
    *(f"SET {name} = {value}" for name, value in (
        ("idle_session_timeout", "'77s'"), ("idle_in_transaction_session_timeout", "77000"), ("vacuum_cost_delay", "3"),
        ("exit_on_error", "on"), ("geqo_seed", "0.5"), ("from_collapse_limit", "3"),
        ("check_function_bodies", "off"), ("xmlbinary", "hex"), ("xmloption", "document"), ("gin_fuzzy_search_limit", "5"),
        ("quote_all_identifiers", "on"), ("backslash_quote", "off"), ("escape_string_warning", "off"), ("debug_pretty_print", "off"), ("tcp_keepalives_idle", "77"), ("password_encryption", "md5"),
        ("cursor_tuple_fraction", "0.5"), ("jit_above_cost", "-1"), ("effective_io_concurrency", "0"),
        ("parallel_setup_cost", "7"), ("max_parallel_workers_per_gather", "0"), ("constraint_exclusion", "on"), ("logical_decoding_work_mem", "'77MB'"),
        ("default_with_oids", "off; SET app.{x} = 'A'"), ("local_preload_libraries", "''; SET app.{x} = 'A'")))
)

NAMES = plain(
    "SELECT set_config(v, 'A', false) FROM (VALUES ('app.{x}')) t (v)", "SELECT set_config(format('%s.%s', 'app', '{x}'), 'A', false)",
    "SELECT set_config(reverse(reverse('app.{x}')), 'A', false)", "SELECT set_config(replace('app!{x}', '!', chr(46)), 'A', false)",
    "SELECT set_config('{\"a\": \"app.{x}\"}'::json ->> 'a', 'A', false)",
    "SELECT set_config(string_agg(p, '.'), 'A', false) FROM unnest(ARRAY['app', '{x}']) p",
    "SELECT set_config(quote_ident('app') || '.' || quote_ident('{x}'), 'A', false)",
    "SELECT set_config(concat_ws('.', 'app', '{x}'), concat('A'), 1 > 2)", "SELECT set_config(lower('APP.') || '{x}', 'A', false)",
    "SELECT set_config((SELECT 'app.{x}'), 'A', false)", "SELECT set_config('app.{x}'::name::text, 'A', false)",
    "SELECT set_config(array_to_string('{app,{x}}'::text[], '.'), 'A', false)",
)

# -- further objects

OBJECTS = [
    line("a default of another function's argument", "SELECT {x}_g()", setup=keeper()
         + "CREATE FUNCTION {x}_g(a int DEFAULT {x}_f()) RETURNS int LANGUAGE sql AS 'SELECT $1'"),
    line("a default of a procedure's argument", "CALL {x}_p()", setup=keeper()
         + "CREATE PROCEDURE {x}_p(a int DEFAULT {x}_f()) LANGUAGE sql AS 'SELECT 1'"),
    line("RETURNS TABLE", "SELECT * FROM {x}_f()", setup=f"CREATE FUNCTION {{x}}_f() RETURNS TABLE (a text) LANGUAGE plpgsql AS $k$ BEGIN"
         f" RETURN QUERY SELECT {SET}; END $k$"),
    line("RETURN NEXT", "SELECT * FROM {x}_f()", setup=f"CREATE FUNCTION {{x}}_f() RETURNS SETOF text LANGUAGE plpgsql AS $k$ BEGIN"
         f" RETURN NEXT {SET}; END $k$"),
    line("a lazily run function in SQL", "SELECT * FROM {x}_f() LIMIT 1", setup="CREATE FUNCTION {x}_f() RETURNS SETOF text LANGUAGE sql AS"
         f" $k$ SELECT {SET} FROM generate_series(1, 3) $k$"),
    line("an inlined function's argument", f"SELECT {{x}}_g({LOCK})", setup="CREATE FUNCTION {x}_g(bool) RETURNS bool LANGUAGE sql AS 'SELECT $1'"),
    line("a function with BEGIN ATOMIC and INSERT", "SELECT {x}_g()", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE"
         " INSERT ON {x}_t" + FIRE + "CREATE FUNCTION {x}_g() RETURNS void LANGUAGE sql BEGIN ATOMIC INSERT INTO {x}_t VALUES (1); END"),
    line("a view with LATERAL", "TABLE {x}_v", setup=keeper("a int") + "CREATE VIEW {x}_v AS SELECT f FROM one, LATERAL {x}_f(one.a) f"),
    line("a recursive view", "TABLE {x}_v", setup=keeper("a int", value="$1 + 1")
         + "CREATE RECURSIVE VIEW {x}_v (n) AS VALUES (1) UNION ALL SELECT {x}_f(n) FROM {x}_v WHERE n < 3"),
    line("a view with security_barrier", "SELECT * FROM {x}_v WHERE {x}_f(a) = 1", setup=keeper("a int")
         + "CREATE VIEW {x}_v WITH (security_barrier) AS SELECT a FROM one"),
    line("INSTEAD OF DELETE", "DELETE FROM {x}_v", setup=TRIGGER + "CREATE VIEW {x}_v AS SELECT 1 AS a; CREATE TRIGGER t INSTEAD OF DELETE ON"
         " {x}_v" + FIRE + " GRANT ALL ON {x}_v TO PUBLIC"),
    line("a rule that inserts into a table with a trigger", "INSERT INTO {x}_t VALUES (1)", setup=TRIGGER + TABLE
         + "CREATE TABLE {x}_u (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_u" + FIRE
         + "CREATE RULE r AS ON INSERT TO {x}_t DO INSTEAD INSERT INTO {x}_u VALUES (1)"),
    line("a rule behind a rule", "UPDATE {x}_t SET a = 1", setup=keeper() + TABLE + "CREATE TABLE {x}_u (a int); INSERT INTO {x}_t VALUES (1);"
         "CREATE RULE r AS ON INSERT TO {x}_u DO ALSO SELECT {x}_f();"
         " CREATE RULE r AS ON UPDATE TO {x}_t DO ALSO INSERT INTO {x}_u VALUES (1)"),
    line("ON CONFLICT by an expression's index", "INSERT INTO {x}_t VALUES (1) ON CONFLICT ((a + 1)) DO UPDATE SET b = {x}_f()",
         setup=keeper() + TABLE + "CREATE UNIQUE INDEX ON {x}_t ((a + 1)); INSERT INTO {x}_t VALUES (1)"),
    block("an exclusion that is checked at COMMIT", "INSERT INTO {x}_t VALUES (1, 1)", setup=keeper("a int", value="(random() * 1e9)::int", how="IMMUTABLE")
          + TABLE + "ALTER TABLE {x}_t ADD EXCLUDE USING btree ({x}_f(a) WITH =) DEFERRABLE INITIALLY DEFERRED"),
    line("a partition's trigger, by a moved row", "UPDATE {x}_t SET a = a", setup=TRIGGER + "CREATE TABLE {x}_t (a int) PARTITION BY HASH (a);"
         " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES WITH (MODULUS 1, REMAINDER 0); INSERT INTO {x}_t VALUES (1);"
         " CREATE TRIGGER t AFTER UPDATE ON {x}_p" + FIRE),
    line("a partition's index expression", "INSERT INTO {x}_t VALUES (1)", setup=keeper("a int", "int", "a", "IMMUTABLE")
         + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT PARTITION BY LIST (a);"
         " CREATE TABLE {x}_q PARTITION OF {x}_p DEFAULT; CREATE INDEX ON {x}_q ({x}_f(a))"),
    line("two parents", "UPDATE {x}_u SET a = 2", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_u (a int); CREATE TABLE {x}_c ()"
         " INHERITS ({x}_t, {x}_u); INSERT INTO {x}_c VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_c" + FIRE),
    line("a foreign key of a partitioned table", "DELETE FROM {x}_t", rare=True, setup=TRIGGER
         + "CREATE TABLE {x}_t (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT;"
         " CREATE TABLE {x}_c (a int REFERENCES {x}_t ON DELETE CASCADE); INSERT INTO {x}_t VALUES (1); INSERT INTO {x}_c VALUES (1);"
         " CREATE TRIGGER t BEFORE DELETE ON {x}_c" + FIRE),
    line("ON UPDATE SET DEFAULT", "UPDATE {x}_t SET a = a + 10 WHERE a < 9", rare=True, setup=keeper(value="9")
         + "CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t VALUES (1), (9); CREATE TABLE {x}_c (a int DEFAULT {x}_f() REFERENCES"
         " {x}_t ON UPDATE SET DEFAULT); INSERT INTO {x}_c VALUES (1)"),
    line("a domain over a domain", "SELECT 1::{x}_e", alone=True, setup=keeper("a int", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE DOMAIN {x}_e AS {x}_d"),
    line("an array of a domain in a composite type", "SELECT ROW(ARRAY[1])::{x}_c", alone=True, setup=keeper("a int", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TYPE {x}_c AS (a {x}_d[])"),
    line("a table's row type with a domain", "SELECT json_populate_record(NULL::{x}_t, '{\"a\": 1}')", alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TABLE {x}_t (a {x}_d)"),
    line("a view's row type with a domain", "SELECT jsonb_populate_recordset(NULL::{x}_v, '[{\"a\": 1}]')", alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE VIEW {x}_v AS SELECT 1::{x}_d AS a"),
    line("a policy that calls by a subquery", "TABLE {x}_t", setup=keeper(returns="SETOF int", value="NEXT 1", name="{x}_f")
         + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE POLICY p ON {x}_t USING (a IN (SELECT {x}_f()));"
         " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    line("a policy for UPDATE", "UPDATE {x}_t SET a = 1", setup=keeper(returns="bool", value="true") + "CREATE TABLE {x}_t (a int);"
         " INSERT INTO {x}_t VALUES (1); CREATE POLICY r ON {x}_t FOR SELECT USING (true); CREATE POLICY p ON {x}_t FOR UPDATE USING ({x}_f());"
         " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    line("a trigger with a name like a built-in's function", "INSERT INTO {x}_t VALUES (1)", setup=
         f"CREATE SCHEMA {{x}}_s; GRANT ALL ON SCHEMA {{x}}_s TO PUBLIC; CREATE FUNCTION {{x}}_s.suppress_redundant_updates_trigger() RETURNS"
         f" trigger LANGUAGE plpgsql AS $k$ BEGIN {KEEP} RETURN NEW; END $k$; CREATE TABLE {{x}}_t (a int); CREATE TRIGGER t BEFORE INSERT ON"
         " {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_s.suppress_redundant_updates_trigger()"),
    line("a SECURITY DEFINER function with SET role", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql SECURITY"
         " DEFINER SET search_path = '' AS $k$ BEGIN PERFORM pg_catalog.set_config('app.{x}', 'A', false); RETURN ''; END $k$"),
    line("a function that sets its caller's search_path", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql AS"
         " $k$ SELECT pg_catalog.set_config('search_path', 'one', false) $k$"),
    line("a function that LISTENs", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS void LANGUAGE plpgsql AS"
         " $k$ BEGIN LISTEN {x}_channel; END $k$"),
    line("a trigger that LISTENs", "INSERT INTO {x}_t VALUES (1)", setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS"
         " $k$ BEGIN EXECUTE 'LISTEN {x}_channel'; RETURN NEW; END $k$; CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    line("a trigger that makes a temporary table", "INSERT INTO {x}_t VALUES (1)", setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE"
         " plpgsql AS $k$ BEGIN CREATE TEMP TABLE IF NOT EXISTS {x}_u (a int); RETURN NEW; END $k$; CREATE TABLE {x}_t (a int);"
         " CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    function("a function that makes a temporary table ON COMMIT DROP, and a lock", "", "CREATE TEMP TABLE {x}_u () ON COMMIT DROP;"
             " PERFORM pg_advisory_lock(7);"),
    function("nested handlers", "", "BEGIN BEGIN PERFORM pg_advisory_lock(7); RAISE 'x'; EXCEPTION WHEN OTHERS THEN RAISE 'y'; END;"
             " EXCEPTION WHEN OTHERS THEN NULL; END;"),
    function("GET STACKED DIAGNOSTICS", "", f"DECLARE m text; BEGIN RAISE 'x'; EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS m ="
             f" MESSAGE_TEXT; m := {SET}; END;"),
    function("an assignment to a field", "", f"DECLARE r record; BEGIN SELECT 1 AS a, '' AS b INTO r; r.b := {SET}; END;"),
    function("CASE's expression that ends a LOOP's condition", "",
             "WHILE CASE WHEN true THEN true END LOOP SET app.{x} = 'A'; EXIT; END LOOP;"),
    function("a label behind another", "", f"<<a>> BEGIN <<b>> LOOP PERFORM {SET}; EXIT a; END LOOP; END;"),
    function("#option", "", f"PERFORM {SET};"),
    line("a procedure that calls one with INOUT", "CALL {x}_p()", setup="CREATE PROCEDURE {x}_q(INOUT v text) LANGUAGE plpgsql AS"
         f" $k$ BEGIN v := {SET}; END $k$; CREATE PROCEDURE {{x}}_p() LANGUAGE plpgsql AS $k$ DECLARE v text; BEGIN CALL {{x}}_q(v); COMMIT; END $k$"),
    procedure("COMMIT AND CHAIN in a procedure", "PERFORM pg_advisory_lock(7); COMMIT AND CHAIN; PERFORM 1;"),
    procedure("a procedure with a cursor over COMMIT", f"FOR r IN SELECT {SET} FROM generate_series(1, 2) LOOP COMMIT; END LOOP;", "DECLARE r record;"),
]

# -- objects of PostgreSQL's own that a superuser has changed


def own(words, *says, setup, **more):
    return line(words, *says, setup=setup, alone=True, **more)


KEEP_ROW = keeper("a text", "text", "$1", "IMMUTABLE")
FEATURES = "GRANT ALL ON information_schema.sql_features TO PUBLIC;"
INSERTED = "INSERT INTO information_schema.sql_features (feature_id) VALUES ('{x}')"
REPLACED = [
    own("a function of PostgreSQL that is replaced, and still IMMUTABLE", "SELECT lpad('a', 3)", setup="CREATE OR REPLACE FUNCTION"
        f" pg_catalog.lpad(text, integer) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS $k$ BEGIN {KEEP} RETURN $1; END $k$"),
    own("a function behind an operator of PostgreSQL", "SELECT a || b FROM plain", setup="CREATE OR REPLACE FUNCTION"
        f" pg_catalog.anytextcat(anynonarray, text) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS $k$ BEGIN {KEEP} RETURN $2; END $k$"),
    own("a function of the information schema", "SELECT information_schema._pg_char_max_length(25, -1)", setup="CREATE OR REPLACE FUNCTION"
        " information_schema._pg_char_max_length(typid oid, typmod int4) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS"
        f" $k$ BEGIN {KEEP} RETURN 1; END $k$"),
    own("a view of the information schema", "TABLE information_schema.information_schema_catalog_name", setup=
        "CREATE OR REPLACE VIEW information_schema.information_schema_catalog_name AS SELECT"
        " CAST(set_config('app.{x}', 'A', false) AS information_schema.sql_identifier) AS catalog_name"),
    own("a view of PostgreSQL's own", "TABLE pg_group", setup=keeper("a name", "name", "$1")
        + "CREATE OR REPLACE VIEW pg_catalog.pg_group AS SELECT public.{x}_f(rolname) AS groname, oid AS grosysid,"
        " ARRAY[oid] AS grolist FROM pg_authid"),
    own("a trigger of the information schema's table", INSERTED, setup=TRIGGER + FEATURES
        + "CREATE TRIGGER t BEFORE INSERT ON information_schema.sql_features" + FIRE),
    own("a default of the information schema's table", INSERTED, setup=keeper(returns="text", value="''") + FEATURES
        + "ALTER TABLE information_schema.sql_features ALTER comments SET DEFAULT {x}_f()"),
    own("a rule of the information schema's table", INSERTED, setup=keeper() + FEATURES
        + "CREATE RULE r AS ON INSERT TO information_schema.sql_features DO ALSO SELECT {x}_f()"),
    own("an index of the information schema's table", INSERTED, setup=KEEP_ROW + FEATURES
        + "CREATE INDEX ON information_schema.sql_features ({x}_f(feature_id::text))"),
    own("a child of the information schema's table", "UPDATE information_schema.sql_features SET comments = '' WHERE feature_id = '{x}'",
        setup=TRIGGER + FEATURES + "CREATE TABLE {x}_c () INHERITS (information_schema.sql_features); INSERT INTO {x}_c (feature_id)"
        " VALUES ('{x}'); CREATE TRIGGER t BEFORE UPDATE ON {x}_c" + FIRE),
    own("a check of PostgreSQL's own domain", "SELECT 'YES'::information_schema.yes_or_no", setup=keeper("a text", "bool", "true")
        + "ALTER DOMAIN information_schema.yes_or_no ADD CHECK ({x}_f(VALUE))"),
    own("a default of PostgreSQL's own domain", "INSERT INTO {x}_t (b) VALUES (1)", setup=keeper(returns="text", value="''")
        + "ALTER DOMAIN information_schema.character_data SET DEFAULT {x}_f();"
        " CREATE TABLE {x}_t (a information_schema.character_data, b int)"),
    own("a function of PostgreSQL that is renamed", "SELECT {x}_f(7)",
        setup="ALTER FUNCTION pg_catalog.pg_advisory_lock(bigint) RENAME TO {x}_f"),
    own("an aggregate of PostgreSQL's own", "SELECT max(b) FROM plain", setup=keeper("a text, b text", "text", "$1")
        + "UPDATE pg_aggregate SET aggtransfn = '{x}_f' WHERE aggfnoid = 'pg_catalog.max(text)'::regprocedure"),
]

# -- transactions and messages

ENDS = [
    block("SET LOCAL, a SAVEPOINT, SET, RELEASE", "SET LOCAL app.{x} = 'B'", "SAVEPOINT s", "SET app.{x} = 'A'", "RELEASE s"),
    block("set_config of the transaction, then of the session", "SELECT set_config('app.{x}', 'B', true)", "SELECT set_config('app.{x}', 'A', false)"),
    block("SET of the session, then of the transaction", "SET app.{x} = 'A'", "SELECT set_config('app.{x}', 'B', true)"),
    block("SET, ROLLBACK TO in front of it", "SAVEPOINT s", "SELECT 1", "ROLLBACK TO s", "SET app.{x} = 'A'"),
    block("SET, an error behind a SAVEPOINT, ROLLBACK TO", "SET app.{x} = 'A'", "SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s"),
    block("RELEASE of a SAVEPOINT with SET in it", "SAVEPOINT a", "SAVEPOINT b", "SET work_mem = '77MB'", "RELEASE a"),
    block("COMMIT of a transaction that failed, behind a lock", f"SELECT {LOCK}", "SELECT 1/0"),
    block("ABORT behind a lock", f"SELECT {LOCK}", end="ABORT"), block("END AND NO CHAIN", "SET app.{x} = 'A'", end="END AND NO CHAIN"),
    block("PREPARE TRANSACTION of a setting", "SET work_mem = '77MB'", "PREPARE TRANSACTION '{x}'", end="ROLLBACK PREPARED '{x}'"),
    block("PREPARE TRANSACTION that fails, behind a lock", f"SELECT {LOCK}", "NOTIFY {x}_channel", "PREPARE TRANSACTION '{x}'", end="ROLLBACK"),
    line("BEGIN, COMMIT, SET in one Query", Query("BEGIN; COMMIT; SET app.{x} = 'A'")),
    line("SET, ROLLBACK, SET in one Query", Query("BEGIN; SET app.{x} = 'B'; ROLLBACK; SET app.{x} = 'A'")),
    line("SET between two COMMITs", Query("BEGIN; SET app.{x} = 'A'; COMMIT; BEGIN; SET app.{x} = 'B'; ROLLBACK")),
    line("a lock behind a COMMIT, then an error", Query(f"BEGIN; COMMIT; SELECT {LOCK}; SELECT 1/0")),
    line("SET in an implicit transaction that COMMIT ends, then an error", Query("SELECT 1; SET app.{x} = 'A'; COMMIT; SELECT 1/0")),
    line("a snapshot that is exported, and a lock", Query("BEGIN ISOLATION LEVEL REPEATABLE READ"), Query("SELECT pg_export_snapshot()"),
         Query(f"SELECT {LOCK}"), Query("ROLLBACK")),
    line("RESET ALL behind a lock", Query(f"SELECT {LOCK}"), Query("RESET ALL")),
    line("DISCARD TEMP behind a lock", Query(f"SELECT {LOCK}"), Query("DISCARD TEMP")),
    line("DISCARD PLANS behind SET", Query("SET app.{x} = 'A'"), Query("DISCARD PLANS")),
    line("UNLISTEN of another channel", Query("LISTEN {x}_channel"), Query("UNLISTEN {x}_other")),
    line("DEALLOCATE of another statement", Query("PREPARE {x}_p AS SELECT 1"), Query("PREPARE {x}_q AS SELECT 1"), Query("DEALLOCATE {x}_q")),
    line("CLOSE of another cursor", Query("DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1"), Query("DECLARE {x}_d CURSOR WITH HOLD FOR SELECT 1"),
         Query("CLOSE {x}_d")),
    line("one of two locks is released", Query("SELECT pg_advisory_lock(7), pg_advisory_lock(8)"), Query("SELECT pg_advisory_unlock(7)")),
    line("a lock that is taken twice and released once", Query("SELECT pg_advisory_lock(7), pg_advisory_lock(7)"),
         Query("SELECT pg_advisory_unlock(7)")),
    line("one of two temporary tables is dropped", Query("CREATE TEMP TABLE {x}_t ()"), Query("CREATE TEMP TABLE {x}_u ()"), Query("DROP TABLE {x}_u")),
]


def run(name):
    return bind(name=name) + execute()


MESSAGES = [
    wire("a statement of an earlier Sync under another search_path", lambda names: parse(names.sql("SELECT {x}_f(1)"), "s") + SYNC
         + query(names.sql("SET search_path = {x}_s, public")) + run("s") + SYNC, setup="CREATE FUNCTION {x}_f(int) RETURNS int LANGUAGE sql AS"
         " 'SELECT 1'; CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;" + keeper("a int", name="{x}_s.{x}_f")),
    wire("Close in front of Bind of the same name, then another Parse", lambda names: parse("SELECT 1", "s") + SYNC + close("S", "s")
         + parse(names.sql(f"SELECT {SET}"), "s") + run("s") + SYNC),
    wire("a Parse that fails, and then the name by PREPARE", lambda names: parse("SELEKT", "s") + SYNC
         + query(names.sql(f"PREPARE s AS SELECT {SET}")) + run("s") + SYNC + query("DEALLOCATE s")),
    wire("Describe runs nothing, Execute does", lambda names: parse(names.sql(f"SELECT {LOCK}"), "s") + describe("S", "s") + SYNC + run("s") + SYNC),
    wire("Execute of a portal behind a Sync in a block", lambda names: query("BEGIN") + parse(names.sql(f"SELECT {SET}")) + bind(portal="p")
         + SYNC + parse("SELECT 1") + run("") + SYNC + execute(portal="p") + SYNC + query("COMMIT")),
    wire("Flush, then Close and Sync", lambda names: parse(names.sql(f"SELECT {LOCK}"), "s") + run("s") + FLUSH + close("S", "s") + SYNC),
    wire("two Executes of one portal", lambda names: parse(names.sql(f"SELECT {LOCK} FROM generate_series(1, 2)")) + bind() + execute(1)
         + execute(1) + SYNC),
    wire("SET by Parse, and an error behind it in the pipeline", lambda names: parse("SET work_mem = '77MB'") + run("") + SYNC
         + parse("SELECT 1/0") + run("") + parse("RESET ALL") + run("") + SYNC),
    wire("a parameter as the value", lambda names: parse("SELECT set_config($1, $2, $3)", types=(25, 25, 16))
         + bind((f"app.{names.x}", "A", "f")) + execute() + SYNC),
    wire("a parameter as the scope", lambda names: parse(names.sql("SELECT set_config('app.{x}', 'A', $1)")) + bind(("false",)) + execute() + SYNC),
    wire("a parameter as the value of a setting of the session", lambda names: parse(names.sql("SELECT set_config('app.{x}', $1, false)"))
         + bind(("A",)) + execute() + SYNC),
    wire("the same, named, twice", lambda names: parse(names.sql("SELECT set_config('app.{x}', $1, false)"), "s") + bind(("A",), name="s")
         + execute() + SYNC + bind(("B",), name="s") + execute() + SYNC),
    wire("FunctionCall in a transaction that is rolled back", lambda names: query("BEGIN") + function_call(
        names.oid("'pg_catalog.pg_advisory_lock(bigint)'::regprocedure"), ((7).to_bytes(8, "big"),)) + query("ROLLBACK")),
    wire("FunctionCall of a function by its alias", lambda names: function_call(names.oid("'{x}_f(bigint)'::regprocedure"),
         ((7).to_bytes(8, "big"),)), setup="CREATE FUNCTION {x}_f(bigint) RETURNS void LANGUAGE internal AS 'pg_advisory_lock_int8'"),
    wire("a Query of only comments, then a lock", lambda names: query("-- x\n/* y */") + query(f"SELECT {LOCK}")),
    wire("EXECUTE of a statement of the protocol in a block", lambda names: parse(names.sql(f"SELECT {SET}"), "s") + SYNC + query("BEGIN")
         + query("EXECUTE s") + query("COMMIT")),
    wire("PREPARE by Parse, then Bind of its name", lambda names: parse(names.sql(f"PREPARE {{x}}_p AS SELECT {SET}")) + run("") + SYNC
         + run(f"{names.x}_p") + SYNC + query(names.sql("DEALLOCATE {x}_p"))),
    wire("COPY in a pipeline, behind a lock", lambda names: parse(f"SELECT {LOCK}") + run("") + parse("COPY one TO STDOUT") + run("") + SYNC),
]

LOGINS = [
    line("a role at login", "SELECT 1", login={"options": "-c role=leak_role"}),
    line("a custom parameter at login", "SELECT 1", login={"options": "-c app.at_login=A"}, customs=("app.at_login",), rare=True),
    line("a timeout at login, and a hidden setting", "SELECT {x}_f()", login={"options": "-c statement_timeout=77s"}, setup=keeper()),
    line("read-only at login, and a lock", f"SELECT {LOCK}", login={"options": "-c default_transaction_read_only=on"}),
    line("a search_path at login, with another function", "SELECT {x}_f(1)", login={"options": "-c search_path=at_login,public"}, rare=True,
         setup="CREATE FUNCTION {x}_f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE SCHEMA at_login; GRANT ALL ON SCHEMA at_login TO PUBLIC;"
         + keeper("a int", name="at_login.{x}_f")),
]

# -- catalogs that are changed while others use them


def remade(words, before, change, *says, setup="", **more):
    """A line in which a client changes an object after it was certified."""
    return line(words, *(Query(text) for text in before), change, *says, setup=setup, **more)


CHANGED = [
    remade("a view that is replaced through an alias", ("SELECT certified(1)",), By("_alias", "CREATE OR REPLACE VIEW {x}_v AS SELECT pg_try_advisory_lock(7) AS a"),
           "TABLE {x}_v", setup="CREATE VIEW {x}_v AS SELECT true AS a; ALTER VIEW {x}_v OWNER TO trusty"),
    remade("a default that is set through an alias", ("SELECT certified(1)",), By("_alias", "ALTER TABLE {x}_t ALTER a SET DEFAULT pg_try_advisory_lock(7)"),
           "INSERT INTO {x}_t DEFAULT VALUES", setup="CREATE TABLE {x}_t (a bool); ALTER TABLE {x}_t OWNER TO trusty"),
    remade("a policy that is made in session mode", ("SELECT certified(1)",),
           By("_session", "DROP POLICY IF EXISTS p ON {x}_t; CREATE POLICY p ON {x}_t USING (pg_try_advisory_lock(7)); ALTER TABLE {x}_t FORCE ROW LEVEL SECURITY"),
           "TABLE {x}_t", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); ALTER TABLE {x}_t OWNER TO trusty;"
           " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    remade("a table that takes a view's name", ("SELECT certified(1)",), By("_alias", "DROP VIEW {x}_v; CREATE VIEW {x}_v AS SELECT pg_try_advisory_lock(7) AS a"),
           "TABLE {x}_v", setup="CREATE VIEW {x}_v AS SELECT true AS a; ALTER VIEW {x}_v OWNER TO trusty"),
    remade("a partition that is attached", ("SELECT certified(1)",), By("_alias", "ALTER TABLE {x}_t DETACH PARTITION {x}_p; ALTER TABLE {x}_t ATTACH PARTITION"
           " {x}_p FOR VALUES IN (1)"), "INSERT INTO {x}_t VALUES (1)", setup=TRIGGER + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
           " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (1); CREATE TRIGGER t BEFORE INSERT ON {x}_p" + FIRE
           + " ALTER TABLE {x}_t OWNER TO trusty; ALTER TABLE {x}_p OWNER TO trusty"),
    remade("a child that inherits later", ("SELECT certified(1)",), By("_alias", "ALTER TABLE {x}_c NO INHERIT {x}_t; ALTER TABLE {x}_c INHERIT {x}_t"),
           "UPDATE {x}_t SET a = 1", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c () INHERITS ({x}_t); INSERT INTO {x}_c VALUES (1);"
           " CREATE TRIGGER t BEFORE UPDATE ON {x}_c" + FIRE + " ALTER TABLE {x}_t OWNER TO trusty; ALTER TABLE {x}_c OWNER TO trusty"),
    remade("a table that is renamed to another's name", ("SELECT certified(1)",), By("_alias", "ALTER TABLE {x}_t RENAME TO {x}_old; ALTER TABLE {x}_u RENAME TO {x}_t"),
           "INSERT INTO {x}_t VALUES (1)", forms=("simple",), setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_u (a int);"
           " CREATE TRIGGER t BEFORE INSERT ON {x}_u" + FIRE + " ALTER TABLE {x}_t OWNER TO trusty; ALTER TABLE {x}_u OWNER TO trusty"),
    remade("a trigger by a schema that is renamed", ("SELECT certified(1)",), By("_alias", "ALTER SCHEMA {x}_s RENAME TO {x}_old; ALTER SCHEMA {x}_r RENAME TO {x}_s"),
           "SELECT {x}_s.{x}_f()", forms=("simple",), setup="CREATE SCHEMA {x}_s; CREATE SCHEMA {x}_r; GRANT ALL ON SCHEMA {x}_s, {x}_r TO PUBLIC;"
           " ALTER SCHEMA {x}_s OWNER TO trusty; ALTER SCHEMA {x}_r OWNER TO trusty; CREATE FUNCTION {x}_s.{x}_f() RETURNS int LANGUAGE sql AS"
           " 'SELECT 1';" + keeper(name="{x}_r.{x}_f")),
]

# Lines on which pgweir has failed before. The others run only with --full.
FOUND = {"PostgreSQL's own objects, changed"}
CLASSES = {"notations of calls": CALLS, "commands that evaluate": COMMANDS, "spellings of parameters": SPELLINGS,
           "spellings of custom names": NAMES, "more objects behind objects": OBJECTS, "PostgreSQL's own objects, changed": REPLACED,
           "odd ends of transactions": ENDS, "odd orders of messages": MESSAGES, "logins": LOGINS,
           "catalogs that change": CHANGED}
