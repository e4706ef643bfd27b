"""Texts of the client itself that a scanner may misread."""

from leaks.line import Query, Wire, bind, execute, line, parse, query, setting
from rawclient import SYNC

# With standard_conforming_strings on, one string; with off, a string, a call, and a comment.
TWO_READINGS = r"SELECT 'x\'', set_config($$app.{x}$$, $$A$$, false) --'"
OFF = "SET standard_conforming_strings = off"


def pipelined(change):
    """A change of standard_conforming_strings, and then the text that it makes a call, in one write."""
    return Wire(lambda names: change(names) + parse(names.sql(TWO_READINGS)) + bind() + execute() + SYNC)


def unnamed(sql):
    return parse(sql) + bind() + execute()


TEXTS = [line(text.replace("{x}", "_")[:90].replace("\r", "<CR>").replace("\n", "<LF>").replace("\f", "<FF>"), text)
         for text in (
    f"SELECT {setting()}",
    f"SELECT 1 FROM one JOIN plain ON b OPERATOR(pg_catalog.<>) {setting()}",
    f"SELECT 1 FROM plain WHERE b OPERATOR(pg_catalog.<>) {setting()}",
    f"SELECT 1 FROM one, generate_series(1, 1 OPERATOR(pg_catalog.+) length({setting()}))",
    f"SELECT 1 FROM one AS x (a) JOIN plain ON (b) OPERATOR(pg_catalog.<>) {setting()}",
    f"SELECT 1 FROM generate_series(1, 2) AS set_config(a), {setting()} AS y",
    f"SELECT * FROM {setting()}",
    f"SELECT * FROM one, LATERAL {setting()} AS y",
    f"SELECT * FROM ROWS FROM (generate_series(1, 1), {setting()}) WITH ORDINALITY",
    f"SELECT 1 FROM one WHERE a IN (1) AND {setting()} > ''",
    f"SELECT/**/set_config/* it's */('app.{{x}}', 'A', false)",
    "SELECT set_config -- it's\n('app.{x}', 'A', false)",
    "SELECT 1 -- it's\r, set_config('app.{x}', 'A', false)",
    "SELECT 1 --\r, set_config('app.{x}', 'A', false) -- '",
    f"SELECT 1 /* /* ' */ ' */, {setting()} /* ' */",
    f"SELECT 1+--x\n1, {setting()}",
    f"SELECT 5/*-- */, {setting()}",
    r"""SELECT U&"\0073et_config"('app.{x}', 'A', false)""",
    """SELECT U&"!0073et_config" UESCAPE '!' ('app.{x}', 'A', false)""",
    r"""SELECT u&"set\+00005fconfig"('app.{x}', 'A', false)""",
    """SELECT "set_config"('app.{x}', 'A', false)""",
    """SELECT pg_catalog . "set_config" ('app.{x}', 'A', false)""",
    "SELECT SET_Config('app.{x}', 'A', false)",
    "SELECT pg_catalog\f.\fset_config\f('app.{x}', 'A', false)",
    "SELECT set_config('app.'\n'{x}', 'A', false)",
    r"SELECT set_config(E'app\x2e{x}', 'A', false)",
    "SELECT set_config($a$app.{x}$a$, $$A$$, false)",
    "SELECT 1 AS a$b$, set_config($$app.{x}$$, 'A', false), 2 AS c$b$",
    r"SELECT E'\\', set_config('app.{x}', 'A', false), E'\\'",
    r"SELECT E'\'', set_config($$app.{x}$$, $$A$$, false) --'",
    "SELECT E'a'\n'\\'', set_config($$app.{x}$$, $$A$$, false) --'",
    "SELECT E'a' -- it's\n '\\'', set_config($$app.{x}$$, $$A$$, false) --'",
    r"SELECT '\', set_config($$app.{x}$$, $$A$$, false), '\'",
    r"SELECT U&'\0061', set_config('app.{x}', 'A', false)",
    f"SELECT B'1', X'1f', N'x', {setting()}",
    f"SELECT $${{$$, {setting()}, $$}}$$",
    "SELECT set_config('app.{x}', 'A', 'f')",
    "SELECT set_config('app.{x}', 'A', 1 = 2)",
    "SELECT set_config('app.{x}', 'A', NOT true)",
    "SELECT (set_config('app.{x}', 'A', false))",
    f"SELECT 1 LIMIT length({setting()})",
    f"SELECT 1 OFFSET length({setting()})",
    f"SELECT 1 ORDER BY {setting()}",
    f"SELECT 1 FROM one GROUP BY {setting()}",
    f"SELECT count(*) FILTER (WHERE {setting()} > '') FROM one",
    f"SELECT row_number() OVER (PARTITION BY {setting()}) FROM one",
    f"SELECT a FROM one TABLESAMPLE bernoulli (100 * length({setting()}))",
    f"SELECT CASE WHEN {setting()} > '' THEN 1 END",
    f"VALUES ({setting()})",
    f"WITH x AS MATERIALIZED (SELECT {setting()}) SELECT * FROM x",
    f"WITH set_config (a) AS (SELECT {setting()}) TABLE set_config",
    f"INSERT INTO plain SELECT 1, {setting()} RETURNING *",
    f"INSERT INTO plain VALUES (1, 'x') RETURNING {setting()}",
    f"UPDATE plain SET b = {setting()}",
    f"DELETE FROM plain WHERE a = 2 AND {setting()} = '' OR {setting('B')} = ''",
    f"MERGE INTO plain USING one ON {setting()} = '' WHEN NOT MATCHED THEN DO NOTHING",
    f"EXPLAIN ANALYZE SELECT {setting()}",
    f"COPY (SELECT {setting()}) TO STDOUT",
    "SELECT ts_stat($$SELECT set_config('app.{x}', 'A', false)::tsvector$$)",
    "SELECT ts_rewrite('a', $$SELECT set_config('app.{x}', 'a', false)::tsquery, 'b'::tsquery$$)",
    "UPDATE pg_settings SET setting = '77MB' WHERE name = 'work_mem'",
    "UPDATE pg_catalog . \"pg_settings\" SET setting = '77MB' WHERE name = 'work_mem'",
    "SELECT pg_advisory_lock(7)", "SELECT pg_try_advisory_lock(7, 8)", "SELECT pg_advisory_lock_shared(7)",
    "SELECT \"pg_advisory_lock\"(7)", "SELECT setseed(0.42)", r"""SELECT U&"set\0073eed"(0.42)""",
    "SET app.{x} = 'A'", "SET SESSION app.{x} TO A", "SET/**/app.{x}/**/=/**/'A'", "SET \"app\".\"{x}\" = 'A'",
    "SET work_mem = '77MB'", "SET TIME ZONE 'Asia/Tokyo'", "SET search_path = pg_temp, pg_catalog", "SET ROLE leak_role",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET SCHEMA 'pg_catalog'", "SET XML OPTION DOCUMENT",
    "SET seed = 0.42", "SET seed TO '0.42'", "SELECT set_config('seed', '0.42', false)",
    "SELECT set_config('seed', '0.42', true)", "SELECT set_config('role', 'leak_role', false)",
    "CREATE TEMP TABLE {x}_t (a int)", "SELECT 1 AS a INTO TEMP {x}_t", "SELECT 1 AS a INTO pg_temp.{x}_t",
    "CREATE TABLE pg_temp.{x}_t AS SELECT 1", "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TEMP VIEW {x}_v AS SELECT 1",
    "DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1", "LISTEN {x}_channel", "PREPARE {x}_p AS SELECT 1",
)] + [
    line(words, Query("BEGIN"), text, Query("ROLLBACK")) for words, text in (
        ("CREATE TABLE AS", "CREATE TABLE {x}_t AS SELECT 1 AS a FROM pg_advisory_lock(7)"),
        ("SELECT INTO", "SELECT 1 AS a INTO {x}_t FROM pg_advisory_lock(7)"),
        ("CREATE MATERIALIZED VIEW", "CREATE MATERIALIZED VIEW {x}_t AS SELECT 1 AS a FROM pg_advisory_lock(7)"),
    )
] + [
    line("query_to_xml", "SELECT query_to_xml($$SELECT set_config('app.{x}', 'A', false)$$, false, false, '')", rare=True),
]

STRINGS = [
    line("SET by Query, then Parse in the same write", pipelined(lambda names: query(OFF))),
    line("SET by Parse, Bind, Execute, Sync in the same write", pipelined(lambda names: unnamed(OFF) + SYNC)),
    line("SET by Parse, Bind, Execute in the same pipeline", pipelined(lambda names: unnamed(OFF))),
    line("set_config in the same pipeline",
         pipelined(lambda names: unnamed("SELECT set_config('standard_conforming_strings', 'off', false)"))),
    line("SET in DO in the same write", pipelined(lambda names: query(f"DO $$ BEGIN {OFF}; END $$"))),
    line("SET LOCAL, and the text in the same transaction",
         pipelined(lambda names: query("BEGIN") + query("SET LOCAL standard_conforming_strings = off")), "COMMIT"),
    line("SET and SELECT in one Query", pipelined(lambda names: query(f"{OFF}; SELECT 1"))),
    line("UPDATE pg_settings", pipelined(lambda names: query(
        "UPDATE pg_settings SET setting = 'off' WHERE name = 'standard_conforming_strings'"))),
    line("SET, then Query in another write", OFF, TWO_READINGS),
    line("off at login", TWO_READINGS, login={"options": "-c standard_conforming_strings=off"}),
    line("off at login, RESET ALL", OFF, "SET standard_conforming_strings = on", "RESET ALL", TWO_READINGS,
         login={"options": "-c standard_conforming_strings=off"}),
    line("off, ROLLBACK TO on and back", Query("BEGIN"), Query(OFF), Query("SAVEPOINT s"),
         Query("SET standard_conforming_strings = on"), Query("ROLLBACK TO s"), TWO_READINGS, Query("COMMIT")),
    line("backslash_quote and a function with a clause", "SELECT {x}_f()",
         setup="SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql SET standard_conforming_strings = off AS "
               r"$k$ BEGIN RETURN 'x\'' || set_config($$app.{x}$$, $$A$$, false); --'" "\n END $k$"),
    line("a body under the client's setting", OFF, "SELECT {x}_f()",
         setup="SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql AS "
               r"$k$ BEGIN RETURN 'x\'' || set_config($$app.{x}$$, $$A$$, false); --'" "\n END $k$"),
]

CUSTOMS = [
    line("a name by concatenation", "SELECT set_config('app.' || '{x}', 'A', false)"),
    line("a name from a function of pg_catalog", "SELECT set_config(concat('ap', 'p.{x}'), 'A', false)"),
    line("a name in dollars", "SELECT set_config($$app.{x}$$, $$A$$, false)"),
    line("a name in hex", "SELECT set_config(convert_from('\\x6170702e'::bytea, 'UTF8') || '{x}', 'A', false)"),
    line("a name of three parts", "SET app.{x}.deep = 'A'", customs=("app.{x}.deep",)),
    line("a name with capitals", "SELECT set_config('App.{x}Big', 'A', false)", customs=("app.{x}big",)),
    line("a name of a parameter", Wire(lambda names: parse("SELECT set_config($1, $2, false)") + bind(
        (f"app.{names.x}", "A")) + execute() + SYNC)),
    line("a name from a table", "SELECT set_config(name, 'A', false) FROM {x}_t",
         setup="CREATE TABLE {x}_t (name text); INSERT INTO {x}_t VALUES ('app.{x}')"),
    line("a name in BEGIN ATOMIC", "SELECT {x}_f()",
         setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql"
               " BEGIN ATOMIC SELECT set_config('app.{x}', 'A', false); END"),
    line("a name in a view", "SELECT * FROM {x}_v",
         setup="CREATE VIEW {x}_v AS SELECT set_config('app.{x}', 'A', false) AS v"),
    line("a name in a default", "INSERT INTO {x}_t DEFAULT VALUES",
         setup="CREATE TABLE {x}_t (a text DEFAULT set_config('app.{x}', 'A', false))"),
    line("a name in an argument's default", "SELECT {x}_f()",
         setup="CREATE FUNCTION {x}_f(a text DEFAULT set_config('app.{x}', 'A', false)) RETURNS text LANGUAGE sql"
               " AS 'SELECT $1'"),
    line("a name in TG_ARGV", "INSERT INTO {x}_t VALUES (1)",
         setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS"
               " $k$ BEGIN PERFORM set_config(TG_ARGV[0], 'A', false); RETURN NEW; END $k$;"
               " CREATE TABLE {x}_t (a int);"
               " CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_f('app.{x}')"),
    line("a name in dollars in a body", "SELECT {x}_f()",
         setup="SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql AS"
               " 'BEGIN RETURN set_config($$app.{x}$$, $$A$$, false); END'"),
    line("a name that a body puts together", "SELECT {x}_f('{x}')",
         setup="CREATE FUNCTION {x}_f(v text) RETURNS text LANGUAGE plpgsql AS"
               " $k$ BEGIN RETURN set_config('app.' || v, 'A', false); END $k$"),
]

CLASSES = {"texts": TEXTS, "strings with backslashes": STRINGS, "names of custom parameters": CUSTOMS}
