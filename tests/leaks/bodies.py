"""Bodies of functions that a reader of SQL may misread, and functions that are called by another way than their name."""

from leaks.line import KEEP, Query, Wire, bind, execute, keeper, line, parse, setting
from rawclient import SYNC

SET = setting()


def plpgsql(words, body, declared="", call="SELECT {x}_f()", **more):
    return line(words, call, setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql AS $k$ "
                f"{declared} BEGIN {body} RETURN ''; END $k$", **more)


def sql(words, body, call="SELECT {x}_f()", returns="text", how="", **more):
    return line(words, call, setup=f"CREATE FUNCTION {{x}}_f() RETURNS {returns} LANGUAGE sql {how} AS $k$ {body} $k$",
                **more)


BODIES = [
    plpgsql("a quote in a comment", f"-- it's\n PERFORM {SET}; -- and '\n"),
    plpgsql("a comment that ends with CR", f"-- x\r PERFORM {SET};"),
    plpgsql("a comment with a quote that ends with CR", f"-- it's\r PERFORM {SET}; -- '\n"),
    plpgsql("U&", r"""PERFORM U&"\0073et_config"('app.{x}', 'A', false);"""),
    plpgsql("U& with another escape", """PERFORM U&"!0073et_config" UESCAPE '!' ('app.{x}', 'A', false);"""),
    plpgsql("true) in the value", "PERFORM set_config('app.{x}', 'a, true)', false);"),
    plpgsql("a parenthesis in the value", "PERFORM set_config('app.{x}', ')', false);"),
    plpgsql("true in a comment", "PERFORM set_config('app.{x}', 'A' /* , true) */, false);"),
    plpgsql("two calls", f"PERFORM set_config('app.{{x}}', 'A', true), {SET};"),
    plpgsql("a quoted name", "PERFORM \"set_config\"('app.{x}', 'A', false);"),
    plpgsql("a qualified name", "PERFORM pg_catalog . /* it's */ set_config ('app.{x}', 'A', false);"),
    plpgsql("capitals", "PERFORM SET_CONFIG('app.{x}', 'A', false);"),
    plpgsql("a nested comment", f"/* /* ' */ ' */ PERFORM {SET}; /* ' */"),
    plpgsql("dollars in a name", "PERFORM 1 AS a$b$, set_config('app.{x}', 'A', false), 2 AS c$b$;"),
    plpgsql("a string of two parts", "PERFORM E'a'\n'\\'', set_config($$app.{x}$$, $$A$$, false); --'\n"),
    plpgsql("EXECUTE", "EXECUTE 'SELECT set_' || 'config(''app.{x}'', ''A'', false)';"),
    plpgsql("EXECUTE of SET", "EXECUTE format('S%s app.{x} = ''A''', 'ET');"),
    plpgsql("FOR IN EXECUTE", "FOR r IN EXECUTE 'SELECT set_' || 'config(''app.{x}'', ''A'', false)' LOOP END LOOP;",
            "DECLARE r record;"),
    plpgsql("OPEN FOR EXECUTE", "OPEN c FOR EXECUTE 'SELECT set_' || 'config(''app.{x}'', ''A'', false)';"
            " FETCH c INTO r;", "DECLARE c refcursor; r record;"),
    plpgsql("a cursor that is declared", "OPEN c; FETCH c INTO r;", f"DECLARE c CURSOR FOR SELECT {SET}; r record;"),
    plpgsql("a variable's default", "", f"DECLARE v text := {SET};"),
    plpgsql("an assignment", f"v := {SET};", "DECLARE v text;"),
    plpgsql("an assignment by =", f"v = {SET};", "DECLARE v text;"),
    plpgsql("IF", f"IF {SET} = '' THEN NULL; END IF;"),
    plpgsql("ELSIF", f"IF false THEN NULL; ELSIF {SET} = '' THEN NULL; END IF;"),
    plpgsql("CASE", f"CASE {SET} WHEN 'A' THEN NULL; END CASE;"),
    plpgsql("FOR", f"FOR i IN 1..length({SET}) LOOP END LOOP;"),
    plpgsql("FOREACH", f"FOREACH v IN ARRAY ARRAY[{SET}] LOOP END LOOP;", "DECLARE v text;"),
    plpgsql("EXIT WHEN", f"LOOP EXIT WHEN {SET} > ''; END LOOP;"),
    plpgsql("RAISE", f"RAISE NOTICE '%', {SET};"),
    plpgsql("RAISE USING", f"RAISE NOTICE USING MESSAGE = {SET};"),
    plpgsql("ASSERT", f"ASSERT {SET} > '';"),
    plpgsql("RETURN", f"RETURN {SET};"),
    plpgsql("an exception's handler", f"BEGIN PERFORM 1/0; EXCEPTION WHEN OTHERS THEN PERFORM {SET}; END;"),
    plpgsql("SET", "SET app.{x} = 'A';"), plpgsql("SET SESSION", "SET SESSION app.{x} TO 'A';"),
    plpgsql("SET of a role", "SET ROLE leak_role;"), plpgsql("set_config of a role", "PERFORM set_config('role', 'leak_role', false);"),
    plpgsql("UPDATE pg_settings", "UPDATE pg_settings SET setting = '77MB' WHERE name = 'work_mem';"),
    plpgsql("a lock", "PERFORM pg_advisory_lock(7);"), plpgsql("a lock in quotes", 'PERFORM "pg_advisory_lock"(7);'),
    plpgsql("setseed", "PERFORM setseed(0.42);"), plpgsql("set_config of the seed", "PERFORM set_config('seed', '0.42', true);"),
    plpgsql("SET LOCAL seed", "SET LOCAL seed = 0.42;"),
    plpgsql("a temporary table", "CREATE TEMP TABLE {x}_t (a int);"),
    plpgsql("a table in pg_temp", "CREATE TABLE pg_temp.{x}_t (a int);"),
    plpgsql("a table in pg_temp by search_path",
            "SET LOCAL search_path = pg_temp; CREATE TABLE {x}_t (a int);"),
    *(maker(f"{words}, {verb} as a column's name", text.format(verb=verb, x="{x}") + end, **more)
      for maker, end, more in ((plpgsql, ";", {}), (sql, "", {"returns": "void"})) for verb in ("insert", "merge")
      for words, text in (("SELECT INTO", "SELECT 1 AS {verb} INTO TEMP {x}_t"),
                          ("SELECT INTO of a table", "SELECT {verb} INTO TEMP {x}_t FROM (SELECT 1 AS {verb}) q"),
                          ("SELECT INTO of a name like a key word", "SELECT 1 AS {verb} INTO TEMP values"))),
    plpgsql("LISTEN", "LISTEN {x}_channel;"), plpgsql("PREPARE", "EXECUTE 'PREPARE {x}_p AS SELECT 1';",
                                                     forms=("simple",)),
    plpgsql("a cursor WITH HOLD", "EXECUTE 'DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1';", forms=("simple",)),
    plpgsql("query_to_xml", "PERFORM query_to_xml('SELECT set_' || 'config(''app.{x}'', ''A'', false)', false, false, '');", rare=True),
    sql("SQL", f"SELECT {SET}"), sql("SQL of two statements", f"SELECT 1; SELECT {SET}"),
    sql("SQL with a comment that ends with CR", f"-- it's\rSELECT {SET} -- '\n"),
    sql("SQL with U&", r"""SELECT U&"\0073et_config"('app.{x}', 'A', false)"""),
    sql("SQL with true) in the value", "SELECT set_config('app.{x}', 'a, true)', false)"),
    sql("SQL that takes rows", f"SELECT {SET}", returns="SETOF text", call="SELECT * FROM {x}_f()"),
    line("BEGIN ATOMIC", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql"
         " BEGIN ATOMIC SELECT set_config('work_mem', '77MB', false); END"),
    line("RETURN of SQL", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql"
         " RETURN pg_catalog.set_config('work_mem', '77MB', false)"),
    line("a body in one string", "SELECT {x}_f()", setup=r"CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql AS"
         r" E'SELECT \x73et_config(''work_mem'', ''77MB'', false)'"),
    line("another name of a function in C", "SELECT {x}_f('work_mem', '77MB', false)",
         setup="CREATE FUNCTION {x}_f(text, text, bool) RETURNS text LANGUAGE internal AS 'set_config_by_name'"),
    line("another name of setseed", "SELECT {x}_f(0.42)",
         setup="CREATE FUNCTION {x}_f(float8) RETURNS void LANGUAGE internal AS 'setseed'"),
    line("a chain of three", "SELECT {x}_c()", setup=keeper() + "CREATE FUNCTION {x}_b() RETURNS int LANGUAGE sql AS"
         " 'SELECT {x}_f()'; CREATE FUNCTION {x}_c() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN {x}_b(); END'"),
    line("an overloaded name", "SELECT {x}_f('a'::text)", setup="CREATE FUNCTION {x}_f(int) RETURNS int LANGUAGE sql AS"
         " 'SELECT 1';" + keeper("a text")),
    line("a name in two schemas", Query("SET search_path = {x}_s"), "SELECT {x}_f()",
         setup="CREATE FUNCTION {x}_f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE SCHEMA {x}_s;"
         " GRANT ALL ON SCHEMA {x}_s TO PUBLIC;" + keeper(name="{x}_s.{x}_f")),
    line("the name of a built-in with another type", "SELECT lower(1)",
         setup=keeper("a int", "text", "''", name="lower"), alone=True),
    line("the name of a built-in before it", Query("SET search_path = public, pg_catalog"), "SELECT upper('x'::text)",
         setup=keeper("a text", "text", "''", name="upper"), alone=True),
    line("a name of the grammar before it", Query("SET search_path = {x}_s, pg_catalog"), "SELECT count(a) FROM one",
         setup="CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;"
         + keeper("a int", "bigint", name="{x}_s.count"), alone=True),
    line("a procedure", "CALL {x}_p()", setup=f"CREATE PROCEDURE {{x}}_p() LANGUAGE plpgsql AS $k$ BEGIN {KEEP} END $k$"),
    line("DO", f"DO $k$ BEGIN {KEEP} END $k$"),
    line("a body that is replaced", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS int LANGUAGE sql AS"
         " 'SELECT 1'; " + keeper().replace("CREATE", "CREATE OR REPLACE", 1)),
    line("a body in another language's name", "SELECT {x}_f()",
         setup=keeper().replace("LANGUAGE plpgsql", "LANGUAGE 'plpgsql'")),
]

BLANK = '"a {x} b"'
LONG = "{x}" + "n" * 70
CALLS = [
    line("a quoted name with blanks", f"SELECT {BLANK}()", setup=keeper(name=BLANK)),
    line("a quoted name with a quote", 'SELECT "{x}""f"()', setup=keeper(name='"{x}""f"')),
    line("a quoted name with a parenthesis", 'SELECT "{x} (f"()', setup=keeper(name='"{x} (f"')),
    line("a quoted name with a dot", 'SELECT "{x}.f"()', setup=keeper(name='"{x}.f"')),
    line("a quoted name that is a keyword and capitals", 'SELECT "{x} Select"()', setup=keeper(name='"{x} Select"')),
    line("a name beyond ASCII", "SELECT {x}_été()", setup=keeper(name="{x}_été")),
    line("a name beyond ASCII under LATIN1", Query("SET client_encoding = LATIN1"),
         Wire(lambda names: parse(f"SELECT {names.x}_\u00e9()".encode("latin-1")) + bind() + execute() + SYNC),
         setup=keeper(name="{x}_é")),
    line("a name that is cut at 63 bytes", f"SELECT {LONG}more()", setup=keeper(name=LONG)),
    line("a name that is cut within a character", "SELECT {x}" + "é" * 40 + "()", setup=keeper(name="{x}" + "é" * 40)),
    line("U& in a user's name", 'SELECT U&"{x}\\005ff"()', setup=keeper()),
    line("a function in FROM", "SELECT * FROM {x}_f()", setup=keeper()),
    line("a function in FROM with an alias like a built-in", "SELECT * FROM {x}_f() AS lower (x)", setup=keeper()),
    line("(row).f", "SELECT ({x}_t).{x}_f FROM {x}_t", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
         + keeper("a {x}_t")),
    line("table.f", "SELECT {x}_t.{x}_f FROM {x}_t", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
         + keeper("a {x}_t")),
    line("alias.f", "SELECT x.{x}_f FROM {x}_t AS x", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
         + keeper("a {x}_t")),
    line("alias.f of a function for any record", "SELECT x.{x}_f FROM one AS x", setup=keeper("a one"), alone=True),
    line("f of a subquery's row", "SELECT (x).{x}_f FROM (SELECT one FROM one) AS y (x)", setup=keeper("a one"), alone=True),
    line("f(row)", "SELECT {x}_f(x) FROM {x}_t x", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
         + keeper("a {x}_t")),
    line("a function of anyelement", "SELECT {x}_f(1)", setup=keeper("a anyelement")),
    line("VARIADIC", "SELECT {x}_f(1, 2, 3)", setup=keeper("VARIADIC a int[]")),
    line("a window function of SQL", "SELECT {x}_f(a) OVER () FROM one", setup="CREATE FUNCTION {x}_s(int, int) RETURNS"
         f" int LANGUAGE plpgsql AS $k$ BEGIN {KEEP} RETURN $1; END $k$;"
         " CREATE AGGREGATE {x}_f (int) (SFUNC = {x}_s, STYPE = int, INITCOND = 0)"),
]

PLAN = {"forms": ("simple",)}


def planned(words, sql_text, *more, how="IMMUTABLE", **options):
    """A Parse, and more, but never an Execute."""
    return line(words, Wire(lambda names: parse(names.sql(sql_text)) + b"".join(more) + SYNC),
                setup=keeper("a int", how=how) + options.pop("setup", ""), **options)


def composite_literal(words, *more):
    return line(words, Wire(lambda names: parse(names.sql("SELECT '(1)'::{x}_c")) + b"".join(more) + SYNC), alone=True,
                setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE));"
                " CREATE TYPE {x}_c AS (a {x}_d)")


PLANNING = [
    planned("Parse and Bind of an IMMUTABLE function", "SELECT {x}_f(1)", bind()),
    planned("Parse and Bind of an IMMUTABLE function in WHERE", "SELECT 1 FROM one WHERE a = {x}_f(1)", bind()),
    planned("Parse and Bind of a STABLE function", "SELECT 1 FROM {x}_t WHERE a < {x}_f(1)", bind(), how="STABLE",
            setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t SELECT generate_series(1, 100); ANALYZE {x}_t"),
    planned("Bind with a parameter", "SELECT {x}_f($1)", bind(("1",))),
    composite_literal("Parse alone, of a literal of a composite type"),
    composite_literal("Parse and Bind of a literal of a composite type", bind()),
    line("EXPLAIN", "EXPLAIN SELECT {x}_f(1)", setup=keeper("a int", how="IMMUTABLE")),
    line("PREPARE and EXPLAIN EXECUTE", Query("PREPARE {x}_p AS SELECT {x}_f(1)"), Query("EXPLAIN EXECUTE {x}_p"),
         Query("DEALLOCATE {x}_p"), setup=keeper("a int", how="IMMUTABLE")),
    line("a default that is planned", "INSERT INTO {x}_t (b) SELECT 1 WHERE false",
         setup=keeper("a int", how="IMMUTABLE") + "CREATE TABLE {x}_t (a int DEFAULT {x}_f(1), b int)"),
]

CLASSES = {"function bodies": BODIES, "calls of functions": CALLS, "planning without Execute": PLANNING}
