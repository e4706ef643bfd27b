"""Session state of one tenant that another one must not see: odd tokens, encodings with bytes of ASCII within characters,
built-in functions behind objects of users, commands that run functions of indexes, DDL that copies code from one table to
another, long and odd values, and clients that leave in the middle of a message.
"""

from leaks.forms import FIRE, label, plain
from leaks.line import KEEP, TRIGGER, By, Leave, Query, Wire, bind, execute, keeper, line, parse, query, setting
from leaks.newer import block
from rawclient import COPY_DONE, FLUSH, SYNC, TERMINATE, close, copy_data, copy_fail, describe, frame, function_call

SET = setting()
LOCK = "pg_try_advisory_lock(7)"
HIDDEN = "set_config($$app.{x}$$, $$A$$, false)"

# -- tokens

TOKENS = plain(
    f"SELECT $_$ ' $_$, {SET}, $_$ ' $_$", f"SELECT $a1$ $a$ $a1$, {SET}, $a$ $a1$ $a$", f"SELECT $aa$ $a$ $aa$, {SET}, $a$ $aa$ $a$",
    f"SELECT 1 AS a$1$b, {SET}, 2 AS b$1$", f"SELECT \"$a$\", {SET}, \"$a$\" FROM (SELECT 1 AS \"$a$\") q",
    f"SELECT date $$2020-01-01$$, {SET}, date $$2020-01-01$$", f"SELECT \"date\"$$2020-01-01$$, {SET}, \"date\"$$2020-01-01$$",
    f"SELECT \"date\"$a$2020-01-01$a$, {SET}, \"date\"$a$2020-01-01$a$", f"SELECT interval'1 day', {SET}, interval'1'",
    f"SELECT int4'1', {SET}, text'it''s'", f"SELECT U&'!0061' UESCAPE '!', {SET}, U&'!0027' UESCAPE '!'", f"SELECT 'a'\r'b', {SET}, '\\'",
    f"SELECT 'a'\f\n\t'b', {SET}", f"SELECT 'a'--'\r'b', {SET}", f"SELECT 1 AS \u00a0, {SET}", f"SELECT 1 -- \u2028 '\n, {SET} -- '",
    f"SELECT 1 --\u0085'\n, {SET} -- '", f"SELECT 1 AS \"\u200b\", {SET}", f"SELECT 1 AS \"é\"\"'\", {SET}, 2 AS \"'\"",
    f"SELECT 1 AS \"\"\"\", {SET}, 2 AS \"\"\"\"", f"SELECT 'x' AS \"/*\", {SET} /* \" */", f"/* /* */ -- */ SELECT {SET}",
    f"/* /* */ '*/ SELECT {SET} --'", f"-- \\\nSELECT {SET}", f"--'\rSELECT {SET} --'", f"SELECT /*+ Set(work_mem '1MB') */ {SET}",
    f"SELECT 1 WHERE 1=1--\rAND {SET} > ''", "SELECT+1,set_config('app.{x}','A',false)", f"SELECT(1),({SET})", f"SELECT*FROM one,{SET}",
    f"SELECT\"a\",{SET}FROM one", f"SELECT 1<>--x\n2, {SET}", f"SELECT .1, {SET}, 1., 1.e3", f"SELECT 1::int4::text||{SET}",
    f"SELECT (ARRAY[1])[1:1], {SET}", f"SELECT {SET};" + " " * 5000, f"SELECT 1 {'/*' * 1500}'{'*/' * 1500}, {SET} --'",
    f"SELECT {'(' * 300}{SET}{')' * 300}", "SELECT 1" + ", 1" * 1200 + f", {SET}", f"SELECT 'a' {'-- x' * 30}\n'b', {SET}",
    f"SELECT E'\\\\\\'', {SET}, E'\\\\\\''", f"SELECT E'a''\\\\', {SET}, E'''\\\\'", f"SELECT E'\\q', {SET}, e'\\t'",
    f"SELECT e'\\u0041\\'', {SET} --'", f"SELECT E'\\\n\\'', {SET} --'", f"SELECT n'a''', {SET}, N'''", f"SELECT {SET} AS \"set_config('app', 'b', true)\"",
    f"SELECT '\u2019', {SET}, '\u2018'", "SELECT set_config('app.{x}','A',false)\n;\n;", f"BEGIN READ WRITE; SELECT {SET}; END",
    f"SELECT 1 AS \"begin\"; SELECT {SET}", f"SELECT 1 AS set; SELECT {SET} AS local",
    "SELECT pg_catalog.set_config(setting := 'app.{x}', new_value := 'A', is_local := false) FROM one",
    "SELECT set_config(is_local => false, new_value => 'A', setting_name => 'app.{x}')",
    "SELECT set_config('app.{x}', VARIADIC 'A', false)", "SELECT set_config(ALL 'app.{x}', 'A', false)",
)
TOKENS = [line(one.words, *one.says, forms=one.forms, rare=one.rare or "setting :=" in one.words or "is_local =>" in one.words
               or "VARIADIC" in one.words or "ALL '" in one.words or "''')" in one.words or "N'''" in one.words
               or "E'\\\n" in str(one.says)) for one in TOKENS]

# -- encodings whose characters may end with a backslash, a letter or a digit


def escaped(encoding, lead):
    """For PostgreSQL the string ends at its second quote; read byte by byte, at the third."""
    raw = [b"SELECT E'" + lead + b"\\', set_config($$app.", b"$$, $$A$$, false) --'"]
    return (lambda names: query(names.x.encode().join(raw)), lambda names: parse(names.x.encode().join(raw)) + bind() + execute() + SYNC)


def encoded(encoding, lead):
    simple, extended = escaped(encoding, lead)
    return [
        line(f"{encoding} at login", Wire(simple), login={"client_encoding": encoding}, rare=True),
        line(f"{encoding} by SET, in one write", Wire(lambda names: query(f"SET client_encoding = '{encoding}'") + extended(names)), rare=True),
        line(f"{encoding} by set_config in a pipeline", Wire(lambda names: parse(
            f"SELECT set_config('client_encoding', '{encoding}', false)") + bind() + execute() + extended(names)), rare=True),
        line(f"{encoding} by ROLLBACK", Query(f"SET client_encoding = '{encoding}'"), Query("BEGIN"), Query("SET client_encoding = 'UTF8'"),
             Wire(lambda names: query("ROLLBACK") + simple(names)), rare=True),
        line(f"{encoding} by a function", Query("SELECT {x}_e()"), Wire(simple), rare=True, setup="CREATE FUNCTION {x}_e() RETURNS void"
             f" LANGUAGE plpgsql AS $k$ BEGIN PERFORM set_config('client_encoding', '{encoding}', false); END $k$"),
        line(f"{encoding}, and a name", Query(f"SET client_encoding = '{encoding}'"), Query("SELECT {x}_f()"), setup=keeper()),
    ]


ENCODINGS = [one for encoding, lead in (("SJIS", b"\x83"), ("BIG5", b"\xa5"), ("GBK", b"\x81"), ("GB18030", b"\x81"), ("JOHAB", b"\xd9"),
                                        ("SHIFT_JIS_2004", b"\x83"), ("UHC", b"\x81"), ("LATIN1", b"\xe9"), ("EUC_JP", b"\xa4"))
             for one in encoded(encoding, lead)]

# -- functions of PostgreSQL's own behind objects of users

T = "CREATE TABLE {x}_t (a int, b int); ALTER TABLE {x}_t OWNER TO trusty;"
SEQ = "CREATE SEQUENCE {x}_s START 700; GRANT ALL ON {x}_s TO PUBLIC;"
INTERNAL = "CREATE FUNCTION {x}_f(bigint) RETURNS void VOLATILE STRICT LANGUAGE internal AS 'pg_advisory_lock_int8';"
ALIAS = ("CREATE FUNCTION {x}_f(text, text, bool) RETURNS text VOLATILE LANGUAGE internal AS 'set_config_by_name';")
BUILTINS = [
    line("an aggregate of set_config", "SELECT {x}_a('A', false)", setup="CREATE AGGREGATE {x}_a (text, bool) (SFUNC = set_config,"
         " STYPE = text, INITCOND = 'app.{x}')"),
    line("an aggregate of set_config in a window", "SELECT {x}_a('A', false) OVER () FROM one", setup="CREATE AGGREGATE {x}_a (text, bool)"
         " (SFUNC = set_config, STYPE = text, INITCOND = 'app.{x}')"),
    line("an aggregate whose final function locks", "SELECT {x}_a(a) FROM one", setup="CREATE AGGREGATE {x}_a (bigint) (SFUNC = int8pl,"
         " STYPE = bigint, INITCOND = 7, FINALFUNC = pg_try_advisory_lock)"),
    line("an operator of pg_try_advisory_lock", "SELECT @@@@ 7::bigint", alone=True, setup="CREATE OPERATOR @@@@ (RIGHTARG = bigint,"
         " FUNCTION = pg_try_advisory_lock)"),
    line("an operator of two arguments that locks", "SELECT 7 @#@ 8", alone=True, setup="CREATE OPERATOR @#@ (LEFTARG = int, RIGHTARG = int,"
         " FUNCTION = pg_try_advisory_lock)"),
    line("an operator of nextval", "SELECT !!! '{x}_s'::regclass", alone=True, sequence="{x}_s", setup=SEQ
         + "CREATE OPERATOR !!! (RIGHTARG = regclass, FUNCTION = nextval)"),
    line("an operator of setseed", "SELECT !!! 0.42::float8", alone=True, setup="CREATE OPERATOR !!! (RIGHTARG = float8, FUNCTION = setseed)"),
    line("a cast by pg_try_advisory_lock", "SELECT {x}_g()::{x}_c::bool", alone=True, setup="CREATE TYPE {x}_c AS (a bigint); CREATE FUNCTION {x}_k({x}_c)"
         " RETURNS bool LANGUAGE sql RETURN pg_try_advisory_lock($1.a); CREATE CAST ({x}_c AS bool) WITH FUNCTION {x}_k({x}_c);"
         " CREATE FUNCTION {x}_g() RETURNS {x}_c LANGUAGE sql RETURN ROW(7)::{x}_c"),
    line("RETURN set_config", "SELECT {x}_f()", setup=f"CREATE FUNCTION {{x}}_f() RETURNS text LANGUAGE sql RETURN {SET}"),
    line("RETURN of a subquery that locks", "SELECT {x}_f()", setup=f"CREATE FUNCTION {{x}}_f() RETURNS bool LANGUAGE sql RETURN (SELECT {LOCK})"),
    line("BEGIN ATOMIC with two statements", "SELECT {x}_f()", setup=f"CREATE FUNCTION {{x}}_f() RETURNS bool LANGUAGE sql BEGIN ATOMIC"
         f" SELECT {SET}; SELECT true; END"),
    line("BEGIN ATOMIC with a common table expression", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS bool LANGUAGE sql BEGIN ATOMIC"
         f" WITH l AS MATERIALIZED (SELECT {LOCK} AS b) SELECT b FROM l; END"),
    line("BEGIN ATOMIC with nextval", "SELECT {x}_f()", sequence="{x}_s", setup=SEQ
         + "CREATE FUNCTION {x}_f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT nextval('{x}_s'); END"),
    line("an alias of set_config in C", "SELECT {x}_f('app.{x}', 'A', false)", setup=ALIAS),
    line("an alias of a lock in C, as a default", "INSERT INTO {x}_t (b) VALUES (1)", setup="CREATE FUNCTION {x}_f(bigint) RETURNS bool LANGUAGE"
         " internal AS 'pg_try_advisory_lock_int8'; CREATE TABLE {x}_t (a bool DEFAULT {x}_f(7), b int)"),
    line("an alias of a lock in C, as a check", "INSERT INTO {x}_t VALUES (7)", setup="CREATE FUNCTION {x}_f(bigint) RETURNS bool LANGUAGE"
         " internal AS 'pg_try_advisory_lock_int8'; CREATE TABLE {x}_t (a bigint CHECK ({x}_f(a)))"),
    line("an alias of a lock in C, in a policy", "TABLE {x}_t", setup="CREATE FUNCTION {x}_f(bigint) RETURNS bool LANGUAGE internal AS"
         " 'pg_try_advisory_lock_int8'; CREATE TABLE {x}_t AS SELECT 7 AS a; CREATE POLICY p ON {x}_t USING ({x}_f(a));"
         " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    line("an alias of setseed in C", "SELECT {x}_f(0.42)", setup="CREATE FUNCTION {x}_f(float8) RETURNS void LANGUAGE internal AS 'setseed'"),
    line("an alias of nextval in C", "SELECT {x}_f('{x}_s')", sequence="{x}_s", setup=SEQ
         + "CREATE FUNCTION {x}_f(regclass) RETURNS bigint LANGUAGE internal AS 'nextval_oid'"),
    line("a default that locks", "INSERT INTO {x}_t (b) VALUES (1)", setup=f"CREATE TABLE {{x}}_t (a bool DEFAULT {LOCK}, b int)"),
    line("a check that locks", "INSERT INTO {x}_t VALUES (7)", setup="CREATE TABLE {x}_t (a bigint CHECK (pg_try_advisory_lock(a)))"),
    line("a policy that locks", "TABLE {x}_t", setup=f"CREATE TABLE {{x}}_t AS SELECT 7 AS a; CREATE POLICY p ON {{x}}_t USING ({LOCK});"
         " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    line("a rule that locks", "INSERT INTO {x}_t VALUES (1)", setup=f"CREATE TABLE {{x}}_t (a int); CREATE RULE r AS ON INSERT TO {{x}}_t"
         f" DO ALSO SELECT {LOCK}"),
    line("a view that locks", "TABLE {x}_v", setup=f"CREATE VIEW {{x}}_v AS SELECT {LOCK} AS a"),
    line("WHEN of a trigger locks", "INSERT INTO {x}_t VALUES (7)", setup="CREATE TABLE {x}_t (a bigint); CREATE TRIGGER t BEFORE INSERT ON {x}_t"
         " FOR EACH ROW WHEN (pg_try_advisory_lock(NEW.a)) EXECUTE FUNCTION suppress_redundant_updates_trigger()", rare=True),
    line("a domain's default", "INSERT INTO {x}_t (b) VALUES (1)", alone=True, setup=f"CREATE DOMAIN {{x}}_d AS bool DEFAULT {LOCK};"
         " CREATE TABLE {x}_t (a {x}_d, b int)"),
    line("an argument's default that locks", "SELECT {x}_f()", setup=f"CREATE FUNCTION {{x}}_f(a bool DEFAULT {LOCK}) RETURNS bool LANGUAGE sql"
         " RETURN $1"),
    line("an update of pg_settings in BEGIN ATOMIC", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS void LANGUAGE sql BEGIN ATOMIC"
         " UPDATE pg_settings SET setting = '77MB' WHERE name = 'work_mem'; END"),
    line("a view over pg_settings that is updated", "UPDATE {x}_v SET setting = '77MB' WHERE name = 'work_mem'", setup="CREATE VIEW {x}_v AS"
         " SELECT * FROM pg_settings; GRANT ALL ON {x}_v TO PUBLIC"),
    line("a view over a view over pg_settings", "UPDATE {x}_w SET setting = '77MB' WHERE name = 'work_mem'", setup="CREATE VIEW {x}_v AS"
         " SELECT * FROM pg_settings; CREATE VIEW {x}_w AS SELECT name, setting FROM {x}_v; GRANT ALL ON {x}_v, {x}_w TO PUBLIC"),
    line("a MERGE into a view over pg_settings", "MERGE INTO {x}_v v USING one ON v.name = 'work_mem' WHEN MATCHED THEN UPDATE SET setting = '77MB'",
         rare=True, setup="CREATE VIEW {x}_v AS SELECT * FROM pg_settings; GRANT ALL ON {x}_v TO PUBLIC"),
    line("pg_file_settings' like: a function over pg_show_all_settings", "UPDATE pg_catalog.pg_settings p SET setting = '77MB' FROM one WHERE"
         " p.name = 'work_mem'"),
    line("an update of pg_settings by a trigger", "INSERT INTO {x}_t VALUES (1)", setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS"
         " $k$ BEGIN UPDATE pg_settings SET setting = '77MB' WHERE name = 'work_mem'; RETURN NEW; END $k$; CREATE TABLE {x}_t (a int);"
         " CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
]

# -- commands that run functions of indexes and views

LOCKS = ("CREATE FUNCTION {x}_f(a int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $k$ BEGIN PERFORM pg_advisory_lock(7); RETURN a; END $k$;"
         "CREATE TABLE {x}_t AS SELECT g AS a, g AS b FROM generate_series(1, 20) g; ALTER TABLE {x}_t OWNER TO trusty;")
INDEX = LOCKS + "CREATE INDEX {x}_i ON {x}_t ({x}_f(a));"
MAINTENANCE = [
    *(line(words, text, setup=INDEX + more, forms=("simple",)) for words, text, more in (
        ("ANALYZE of a table", "ANALYZE {x}_t", ""), ("ANALYZE of all tables", "ANALYZE", ""), ("ANALYSE", "ANALYSE {x}_t", ""),
        ("ANALYZE with options", "ANALYZE (VERBOSE off) {x}_t", ""), ("VACUUM ANALYZE", "VACUUM ANALYZE {x}_t", ""),
        ("VACUUM with options", "VACUUM (ANALYZE) {x}_t", ""), ("VACUUM FULL", "VACUUM FULL {x}_t", ""),
        ("REINDEX TABLE", "REINDEX TABLE {x}_t", ""), ("REINDEX INDEX", "REINDEX INDEX {x}_i", ""),
        ("REINDEX CONCURRENTLY", "REINDEX TABLE CONCURRENTLY {x}_t", ""), ("CLUSTER", "CLUSTER {x}_t USING {x}_i", ""),
        ("CLUSTER of all", "CLUSTER {x}_t USING {x}_i; CLUSTER {x}_t", ""), ("ALTER TABLE that rewrites", "ALTER TABLE {x}_t ALTER b TYPE bigint", ""),
        ("TRUNCATE and INSERT", "INSERT INTO {x}_t VALUES (1, 1)", ""))),
    block("CREATE INDEX", "CREATE INDEX ON {x}_t ({x}_f(b))", end="ROLLBACK", setup=LOCKS),
    block("CREATE INDEX with a predicate", "CREATE INDEX ON {x}_t (a) WHERE {x}_f(b) > 0", end="ROLLBACK", setup=LOCKS),
    block("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX ON {x}_t ({x}_f(b))", end="ROLLBACK", setup=LOCKS),
    block("CREATE STATISTICS and ANALYZE", "CREATE STATISTICS {x}_s ON ({x}_f(a)), b FROM {x}_t", "ANALYZE {x}_t", end="ROLLBACK", setup=LOCKS),
    block("ADD CHECK of a function", "ALTER TABLE {x}_t ADD CHECK ({x}_f(a) > 0)", end="ROLLBACK", setup=LOCKS),
    block("ADD a generated column", "ALTER TABLE {x}_t ADD c int GENERATED ALWAYS AS ({x}_f(a)) STORED", end="ROLLBACK", setup=LOCKS),
    block("ADD EXCLUDE", "ALTER TABLE {x}_t ADD EXCLUDE USING btree (({x}_f(a)) WITH =)", end="ROLLBACK", setup=LOCKS),
    block("ATTACH PARTITION with a check", "CREATE TABLE {x}_p (a int, b int) PARTITION BY LIST (({x}_f(a)))",
          "CREATE TABLE {x}_q PARTITION OF {x}_p DEFAULT", "INSERT INTO {x}_p VALUES (1, 1)", end="ROLLBACK", setup=LOCKS),
    line("REFRESH", Query("REFRESH MATERIALIZED VIEW {x}_m"), setup=LOCKS + "CREATE MATERIALIZED VIEW {x}_m AS SELECT {x}_f(a) FROM {x}_t WITH NO DATA;"
         " ALTER MATERIALIZED VIEW {x}_m OWNER TO trusty"),
    line("REFRESH CONCURRENTLY", Query("REFRESH MATERIALIZED VIEW CONCURRENTLY {x}_m"), setup=LOCKS + "CREATE MATERIALIZED VIEW {x}_m AS SELECT"
         " {x}_f(a) AS a FROM {x}_t; CREATE UNIQUE INDEX ON {x}_m (a); SELECT pg_advisory_unlock_all(); ALTER MATERIALIZED VIEW {x}_m OWNER TO trusty"),
    line("CREATE SCHEMA with a view that is read", Query("DROP SCHEMA IF EXISTS {x}_s CASCADE"), Query("CREATE SCHEMA {x}_s CREATE VIEW v AS SELECT"
         " pg_try_advisory_lock(7) AS a"), Query("TABLE {x}_s.v"), setup="GRANT CREATE ON DATABASE postgres TO trusty", rare=True),
]

# -- DDL whose text names no function, and that makes code reachable by a new name


def copied(words, ddl, fire="INSERT INTO {x}_n (a) VALUES (1)", setup="", undo="DROP TABLE IF EXISTS {x}_n CASCADE"):
    """DDL through an alias, or by the client itself, and then what it makes."""
    owned = setup + " ALTER TABLE {x}_t OWNER TO trusty;"
    return [line(words, Query(undo), Query("SELECT certified(1)"), Query(ddl), Query("SELECT certified(1)"), fire, forms=("simple",), setup=owned),
            line(f"{words}, by an alias", Query(undo), Query("SELECT certified(1)"), By("_alias", ddl), fire, forms=("simple",), setup=owned)]


DEFAULT = keeper() + "CREATE TABLE {x}_t (a int, b int DEFAULT {x}_f());"
CHECKED = keeper("a int", "bool", "true") + "CREATE TABLE {x}_t (a int CHECK ({x}_f(a)), b int);"
FIRED = TRIGGER + "CREATE TABLE {x}_t (a int PRIMARY KEY); CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON {x}_t" + FIRE
COPIED = [one for made in (
    copied("LIKE with defaults", "CREATE TABLE {x}_n (LIKE {x}_t INCLUDING DEFAULTS)", setup=DEFAULT),
    copied("LIKE with all", "CREATE TABLE {x}_n (LIKE {x}_t INCLUDING ALL)", setup=DEFAULT),
    copied("LIKE with checks", "CREATE TABLE {x}_n (LIKE {x}_t INCLUDING CONSTRAINTS)", setup=CHECKED),
    copied("LIKE with generated columns", "CREATE TABLE {x}_n (LIKE {x}_t INCLUDING GENERATED)", setup=keeper("a int", "int", "a", "IMMUTABLE")
           + "CREATE TABLE {x}_t (a int, b int GENERATED ALWAYS AS ({x}_f(a)) STORED);"),
    copied("LIKE with indexes", "CREATE TABLE {x}_n (LIKE {x}_t INCLUDING INDEXES)", setup=keeper("a int", "int", "a", "IMMUTABLE")
           + "CREATE TABLE {x}_t (a int, b int); CREATE INDEX ON {x}_t ({x}_f(a));"),
    copied("INHERITS", "CREATE TABLE {x}_n () INHERITS ({x}_t)", setup=CHECKED),
    copied("INHERITS a default", "CREATE TABLE {x}_n (c int) INHERITS ({x}_t)", setup=DEFAULT),
    copied("PARTITION OF", "CREATE TABLE {x}_n PARTITION OF {x}_t DEFAULT", setup=keeper("a int", "bool", "true")
           + "CREATE TABLE {x}_t (a int CHECK ({x}_f(a))) PARTITION BY LIST (a);"),
    copied("PARTITION OF a table with a trigger", "CREATE TABLE {x}_n PARTITION OF {x}_t DEFAULT", setup=TRIGGER
           + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TRIGGER t AFTER INSERT ON {x}_t" + FIRE),
    copied("a foreign key that cascades", "CREATE TABLE {x}_n (a int PRIMARY KEY); INSERT INTO {x}_n VALUES (1);"
           " ALTER TABLE {x}_t ADD FOREIGN KEY (a) REFERENCES {x}_n ON DELETE CASCADE", "DELETE FROM {x}_n", setup=TRIGGER
           + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE TRIGGER t BEFORE DELETE ON {x}_t" + FIRE),
    copied("a view of a table with a trigger", "CREATE VIEW {x}_n AS SELECT a FROM {x}_t", "INSERT INTO {x}_n SELECT coalesce(max(a), 0) + 1 FROM {x}_t",
           setup=FIRED, undo="DROP VIEW IF EXISTS {x}_n"),
    copied("a view of a view", "CREATE VIEW {x}_n AS TABLE {x}_v", "TABLE {x}_n", setup=keeper() + "CREATE TABLE {x}_t (a int); CREATE VIEW {x}_v AS SELECT {x}_f();"
           " ALTER VIEW {x}_v OWNER TO trusty;", undo="DROP VIEW IF EXISTS {x}_n"),
    copied("ATTACH PARTITION", "CREATE TABLE {x}_n (a int) PARTITION BY LIST (a); ALTER TABLE {x}_n ATTACH PARTITION {x}_t DEFAULT", setup=TRIGGER
           + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE,
           undo="DO $$ BEGIN ALTER TABLE {x}_n DETACH PARTITION {x}_t; DROP TABLE {x}_n; EXCEPTION WHEN OTHERS THEN NULL; END $$"),
    copied("a child that inherits", "CREATE TABLE {x}_n (a int); ALTER TABLE {x}_t INHERIT {x}_n", "UPDATE {x}_n SET a = 2", setup=TRIGGER
           + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE,
           undo="DO $$ BEGIN ALTER TABLE {x}_t NO INHERIT {x}_n; DROP TABLE {x}_n; EXCEPTION WHEN OTHERS THEN NULL; END $$"),
    copied("a table of a type with a checked domain's like", "CREATE TABLE {x}_n OF {x}_c", setup=DEFAULT + "CREATE TYPE {x}_c AS (a int);")[:0],
    copied("a rule that is enabled", "ALTER TABLE {x}_t ENABLE RULE r", "INSERT INTO {x}_t VALUES (1)", setup=keeper() + "CREATE TABLE {x}_t (a int);"
           " CREATE RULE r AS ON INSERT TO {x}_t DO ALSO SELECT {x}_f(); ALTER TABLE {x}_t DISABLE RULE r;", undo="ALTER TABLE {x}_t DISABLE RULE r"),
    copied("a trigger that is enabled always", "ALTER TABLE {x}_t ENABLE ALWAYS TRIGGER t", "INSERT INTO {x}_t SELECT count(*) FROM {x}_t", setup=FIRED
           + "ALTER TABLE {x}_t DISABLE TRIGGER t;", undo="ALTER TABLE {x}_t DISABLE TRIGGER t"),
    copied("a policy that comes into force", "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY; ALTER TABLE {x}_t FORCE ROW LEVEL SECURITY", "TABLE {x}_t",
           setup=keeper(returns="bool", value="true") + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE POLICY p ON {x}_t USING ({x}_f());",
           undo="ALTER TABLE {x}_t DISABLE ROW LEVEL SECURITY"),
    copied("a table that is renamed", "ALTER TABLE {x}_t RENAME TO {x}_n", "INSERT INTO {x}_n SELECT count(*) FROM {x}_n", setup=FIRED,
           undo="ALTER TABLE IF EXISTS {x}_n RENAME TO {x}_t"),
    copied("CREATE TABLE AS of a view that keeps", "CREATE TABLE {x}_n AS TABLE {x}_v", "TABLE {x}_v", setup=keeper() + "CREATE TABLE {x}_t (a int);"
           " CREATE VIEW {x}_v AS SELECT {x}_f() AS a; ALTER VIEW {x}_v OWNER TO trusty;"),
) for one in made]

# -- values, names and objects that may break an inspection or a clean

LONG = "n" * 90
VALUES = plain(
    "SELECT set_config('app.{x}', repeat('A', 20000), false)", "SELECT set_config('app.{x}', E'A\\n\\'\\\\\"$$', false)",
    "SELECT set_config('app.{x}', 'é\u2028\U0001f600', false)", "SELECT set_config('app.{x}', '{\"a\": [1, \"b\"]}', false)",
    "SELECT set_config('app.{x}', ' A ', false)", "SELECT set_config('app.{x}', '\"', false)", "SET app.{x} = '{{}}'", "SET app.{x} = ''' OR 1=1 --'",
    "SELECT set_config('app.{x}' || g, 'A', false) FROM generate_series(1, 300) g; SET app.{x} = 'A'",
    "SELECT set_config('search_path', '\"we\"\"ird\", public', false)", "SET search_path = 'a,b', \"\"\"\"", "SET application_name = 'A''\"\\'",
    "SET DateStyle = 'Postgres, DMY'; SET app.{x} = 'A'", "SET work_mem = '77MB'; RESET work_mem; SET app.{x} = 'A'",
    "SET statement_timeout = 2147483647", "SET lock_timeout = '1ms'; SELECT set_config('app.{x}', 'A', false)",
    "SET statement_timeout = '3ms'; SELECT set_config('app.{x}', 'A', false)", "SET idle_in_transaction_session_timeout = '1ms'; SET app.{x} = 'A'",
    "SET default_transaction_isolation = 'serializable'; SET default_transaction_deferrable = on; SET default_transaction_read_only = on; SET app.{x} = 'A'",
    "SET transaction_timeout = '4ms'; SET app.{x} = 'A'", "SET row_security = off; SET app.{x} = 'A'",
    "SET work_mem = '64kB'; SET temp_buffers = 100; SET app.{x} = 'A'", "SET vacuum_cost_limit = 1; SET tcp_keepalives_idle = 7; SET app.{x} = 'A'",
    "SET client_min_messages = debug5; SET app.{x} = 'A'", "SET debug_print_plan = on; SET client_min_messages = log; SET app.{x} = 'A'",
    "SET bytea_output = escape; SET quote_all_identifiers = on; SET app.{x} = 'A'", "SET backslash_quote = off; SET app.{x} = 'A'",
    "SET search_path = pg_temp; CREATE TEMP VIEW pg_settings AS SELECT 1 AS a", "SET search_path = pg_temp, pg_catalog; CREATE TEMP TABLE pg_class (a int)",
    "CREATE TEMP TABLE pg_prepared_statement (a int); SET search_path = pg_temp, public",
    "CREATE TEMP TABLE {x}_t (a int); PREPARE {x}_p AS SELECT * FROM {x}_t", "CREATE TEMP TABLE {x}_t (a int); DECLARE {x}_c CURSOR WITH HOLD FOR SELECT * FROM {x}_t",
    "PREPARE \"a\"\"b'{x}\" AS SELECT 1", "PREPARE \"\" AS SELECT 1; SET app.{x} = 'A'", "DECLARE \"a\"\"b'{x}\" CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN \"a\"\"b'{x}\"", "LISTEN \"{x}é\"", "CREATE TEMP TABLE \"a\"\"b'{x}\" (a int)", "PREPARE \"PGWEIR_9{x}\" AS SELECT 1",
    "CREATE TEMP SEQUENCE {x}_s; SELECT nextval('{x}_s')", "CREATE FUNCTION pg_temp.{x}_f() RETURNS int LANGUAGE sql AS 'SELECT 1'; SELECT pg_temp.{x}_f()",
    "CREATE TYPE pg_temp.{x}_c AS ENUM ('a')", "CREATE DOMAIN pg_temp.{x}_d AS int CHECK (pg_try_advisory_lock(VALUE)); SELECT 1::pg_temp.{x}_d",
    "CREATE COLLATION pg_temp.{x}_c FROM \"C\"", "CREATE TEXT SEARCH CONFIGURATION pg_temp.{x}_c (COPY = simple)", "CREATE CONVERSION pg_temp.{x}_c FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8",
    "CREATE OPERATOR pg_temp.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)", "CREATE AGGREGATE pg_temp.{x}_a (int) (SFUNC = int4pl, STYPE = int)",
    "CREATE TEMP TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TEMP TABLE {x}_p PARTITION OF {x}_t DEFAULT",
    "CREATE TEMP TABLE {x}_t AS SELECT 1 AS a; CREATE INDEX ON {x}_t (a); CREATE RULE r AS ON INSERT TO {x}_t DO ALSO SELECT 1",
    "SELECT pg_advisory_lock(g) FROM generate_series(1, 500) g", "SELECT pg_advisory_lock(-1)", "SELECT pg_advisory_lock_shared(0)",
    "SELECT lo_unlink(lo_create(0)); SELECT pg_advisory_lock(9)", "SELECT pg_export_snapshot(); SELECT pg_advisory_lock(9)",
    "BEGIN; SELECT pg_advisory_xact_lock(5); SELECT pg_advisory_lock(5); COMMIT", "SELECT txid_current(); SELECT setseed(0.42)",
) + [
    line("a name of 95 bytes by set_config", f"SELECT set_config('app.{LONG}', 'A', false)", customs=(f"app.{LONG}",)),
    line("a name of 95 bytes by SET", f"SET app.{LONG} = 'A'", customs=(f"app.{LONG[:63]}",)),
    line("a name of 95 bytes in quotes", f"SET app.\"{LONG}\" = 'A'", customs=(f"app.{LONG[:63]}",)),
    line("a name of many parts", "SET a.b.c.d.e = 'A'", customs=("a.b.c.d.e",)),
    line("a name with a dollar", "SET app.a$b = 'A'", customs=("app.a$b",)),
    line("a name beyond ASCII", "SET app.é = 'A'", customs=("app.é",)),
    line("a name like a built-in's", "SET work_mem.x = 'A'", customs=("work_mem.x",)),
    line("a name like role", "SET role.role = 'A'", customs=("role.role",)),
    line("a name like time zone", "SET time.zone = 'A'", customs=("time.zone",)),
    line("a prefix of one letter", "SET a.b = 'A'", customs=("a.b",)),
    line("a name with capitals and quotes", 'SET "App"."TeNant" = \'A\'', customs=("app.tenant",)),
]
VALUES = [line(one.words, *one.says, forms=one.forms, customs=one.customs, rare="transaction_timeout" in one.words or "3ms" in one.words
               or "'\"', false" in one.words or one.words.startswith(("PREPARE \"\" AS", "CREATE DOMAIN pg_temp", "CREATE OPERATOR pg_temp",
                                                                       "CREATE CONVERSION")) or "pg_temp;" in one.words or "{{}}" in one.words)
          for one in VALUES]

# -- clients that disconnect, and messages in unusual places


def left(words, *parts, **more):
    return line(words, Leave(lambda names: b"".join(part(names) if callable(part) else part for part in parts)), **more)


def keep(names):
    return query(f"SELECT {LOCK}") + query(names.sql(f"SELECT {SET}"))


def piped(names):
    return parse(f"SELECT {LOCK}") + bind() + execute() + parse(names.sql(f"SELECT {SET}")) + bind() + execute()


LEFT = [
    left("behind Parse", keep, parse("SELECT 1")), left("behind Bind", keep, parse("SELECT 1") + bind()),
    left("behind Describe", keep, parse("SELECT 1") + describe("S")), left("behind Flush", piped, FLUSH), left("behind Close", piped, close("P")),
    left("behind half a header", keep, b"P\0\0"), left("behind a header", keep, b"P\0\0\0\x40"), left("in a Bind", keep, bind(("A" * 500,))[:60]),
    left("in a Query", keep, query("SELECT 2")[:9]), left("in a CopyData", keep, query("COPY plain FROM STDIN") + copy_data(b"1\ta\n")[:6]),
    left("behind CopyData", keep, query("COPY plain FROM STDIN") + copy_data(b"1\ta\n")), left("behind CopyDone", keep, query("COPY plain FROM STDIN") + COPY_DONE),
    left("behind CopyFail", keep, query("COPY plain FROM STDIN") + copy_fail("no")), left("in COPY TO", keep, query("COPY (SELECT repeat('x', 999) FROM"
         " generate_series(1, 20000)) TO STDOUT")), left("behind a large result", keep, query("SELECT repeat('x', 999) FROM generate_series(1, 20000)")),
    left("behind FunctionCall", keep, lambda names: function_call(names.oid("'pg_catalog.pg_backend_pid'::regproc"), ())),
    left("in FunctionCall", lambda names: function_call(names.oid("'{x}_f'::regproc"), ()), setup=keeper()),
    left("behind an error", keep, query("SELECT 1/0")), left("in a failed block", keep, query("BEGIN") + query("SELECT 1/0")),
    left("in a failed pipeline", piped, parse("SELEKT") + bind()), left("in a pipeline of two Syncs", piped, SYNC, piped),
    left("behind a cursor", query("BEGIN"), keep, query("DECLARE c CURSOR FOR SELECT 1") + query("FETCH c")),
    left("behind a suspended portal", query("BEGIN"), lambda names: parse(names.sql(f"SELECT {SET} FROM generate_series(1, 9)")) + bind(portal="p")
         + execute(2, "p") + SYNC), left("with Terminate in a block", query("BEGIN"), keep, TERMINATE), left("with Terminate in COPY", keep,
         query("COPY plain FROM STDIN") + TERMINATE), left("with Terminate in half a message", keep, b"X\0\0"), left("with an unknown message", keep, frame("!", b"x")),
    left("with a message that is too short", keep, b"Q\0\0\0\x02"), left("with PREPARE TRANSACTION", query("BEGIN"), keep, query("INSERT INTO one VALUES (3)"),
         query("ROLLBACK")), left("while a function runs", lambda names: query(names.sql(f"SELECT {SET}, pg_sleep(0.1)"))),
    left("while it waits for nothing", keep, SYNC * 50), left("in DO", lambda names: query(names.sql(f"DO $k$ BEGIN {KEEP} PERFORM pg_sleep(0.05); END $k$"))),
]
MESSAGES = [
    line("COPY in a pipeline, then a call", Wire(lambda names: parse("COPY plain FROM STDIN") + bind() + execute() + copy_data(b"1\ta\n") + COPY_DONE
         + piped(names) + SYNC)),
    line("COPY that fails in a pipeline, then a call", Wire(lambda names: parse("COPY plain FROM STDIN") + bind() + execute() + copy_fail("no")
         + SYNC + piped(names) + SYNC)),
    line("COPY TO in a pipeline, then a call", Wire(lambda names: parse("COPY plain TO STDOUT") + bind() + execute() + piped(names) + SYNC)),
    line("a call, then messages of COPY without COPY", Wire(lambda names: piped(names) + copy_data(b"x") + COPY_DONE + SYNC)),
    line("Describe alone, then Execute later", Wire(lambda names: parse(names.sql(f"SELECT {SET}"), "s") + describe("S", "s") + SYNC), Query("SELECT 1"),
         Wire(lambda names: bind(name="s") + execute() + SYNC)),
    line("messages behind an error are skipped, those behind Sync are not", Wire(lambda names: parse("SELECT 1/0") + bind() + execute() + close("S", "s")
         + SYNC + parse(names.sql(f"SELECT {SET}"), "s") + bind(name="s") + execute() + SYNC)),
    line("Close of an unnamed portal in front of Execute, then again", Wire(lambda names: parse(names.sql(f"SELECT {SET}"), "s") + bind(name="s") + close("P")
         + bind(name="s") + execute() + SYNC)),
    line("one statement by ten portals in a block", Wire(lambda names: query("BEGIN") + parse(names.sql(f"SELECT {SET}"), "s")
         + b"".join(bind(portal=f"p{n}", name="s") for n in range(10)) + execute(portal="p9") + SYNC + query("COMMIT"))),
    line("parameters by OID", Wire(lambda names: parse("SELECT set_config($1, $2, $3)", "s", (25, 25, 16)) + bind((f"app.{names.x}", "A", b"\0"), name="s",
         param_formats=(0, 0, 1)) + execute() + SYNC)),
    line("a binary result", Wire(lambda names: parse(names.sql(f"SELECT {SET}")) + bind(result_formats=(1,)) + execute() + SYNC)),
    line("FunctionCall of set_config with text arguments", Wire(lambda names: function_call(2078, (f"app.{names.x}".encode(), b"A", b"\0")))),
    line("FunctionCall behind BEGIN in one write", Wire(lambda names: query("BEGIN") + function_call(2078, (f"app.{names.x}".encode(), b"A", b"\0"))
         + query("COMMIT"))),
    line("FunctionCall of pg_advisory_lock_shared", Wire(lambda names: function_call(names.oid("'pg_catalog.pg_advisory_lock_shared(bigint)'::regprocedure"),
         ((7).to_bytes(8, "big"),)))),
    line("FunctionCall of a procedure's like in SQL", Wire(lambda names: function_call(names.oid("'{x}_g'::regproc"), ())), setup=keeper()
         + "CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT {x}_f()'"),
    line("Flush, a call, Flush, Sync", Wire(lambda names: FLUSH + piped(names) + FLUSH + SYNC)),
    line("a Query behind an unfinished pipeline", Wire(lambda names: parse("SELECT 1", "s") + bind(name="s") + query(names.sql(f"SELECT {SET}")))),
    line("a Query of several statements with a call behind an empty one", Query(f";;SELECT 1;;SELECT {SET};;")),
    line("a call that a Sync commits, and a rollback behind it", Wire(lambda names: piped(names) + SYNC + query("ROLLBACK"))),
    line("Execute of a call with a row limit of 0 and of 1", Wire(lambda names: parse(names.sql(f"SELECT {SET}")) + bind() + execute(1) + execute(0) + SYNC)),
    line("NUL in a Query, then a call", Wire(lambda names: query(names.sql(f"SELECT {SET}")) + frame("Q", b"SELECT 1\0, 2\0"))),
]

# The other lines run only with --full.
USUAL = {"messages of tenants"}
CLASSES = {"tokens of tenants": TOKENS, "encodings of tenants": ENCODINGS, "PostgreSQL's own functions behind objects": BUILTINS,
           "commands that run functions": MAINTENANCE, "DDL that copies code": COPIED, "values of tenants": VALUES,
           "clients that leave anywhere": LEFT, "messages of tenants": MESSAGES}
