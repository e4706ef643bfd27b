"""More forms of SQL, objects and messages that call functions or change parameters without naming them plainly."""

from leaks.line import KEEP, TRIGGER, By, Query, Wire, bind, execute, keeper, line, parse, query, setting
from rawclient import COPY_DONE, SYNC, close, copy_data, copy_fail, describe, function_call

SET = setting()
CALL = "set_config('app.{x}', 'A', false)"
LOCK = "pg_advisory_lock(7)"


def label(text):
    return text.replace("{x}", "_")[:90].replace("\r", "<CR>").replace("\n", "<LF>").replace("\t", "<TAB>")


def plain(*texts):
    """Lines of one text each; several statements go by simple Query alone."""
    return [line(label(text), text, forms=("simple",) if "; " in text else ("simple", "extended")) for text in texts]


# -- tokens: text that is a call for PostgreSQL, and a comment or a string for a wrong scanner

TOKENS = plain(
    f"SELECT 1 /*/ */, {SET} /*/ */",
    f"SELECT 1 /**/, {SET} /***/",
    f"SELECT 1 /****/, {SET} /* **/",
    f"SELECT 1 /*/*/ */ */, {SET}",
    f"SELECT 1 /* -- */, {SET} -- */",
    f"SELECT 1 -- /*\n, {SET} -- */",
    f"SELECT 1 /* $$ */, {SET} /* $$ */",
    f"SELECT 1 /* \" */, {SET} /* \" */",
    f"SELECT 1 AS \"/*\", {SET} AS \"*/\"",
    f"SELECT 1 AS \"--\", {SET}",
    f"SELECT 1 AS \"a\"\"b'\", {SET} AS \"'\"",
    f"SELECT '--', {SET}",
    f"SELECT '/*', {SET}, '*/'",
    f"SELECT '$$', {SET}, '$$'",
    f"SELECT $a$ $b$ $a$, {SET}, $b$ $a$ $b$",
    f"SELECT $a$$b$a$, {SET}, $a$$b$a$",
    f"SELECT $aé$ $a$ $aé$, {SET}",
    f"SELECT $A$ $a$ $A$, {SET}, $a$ $a$",
    f"SELECT 1 AS x$$, {SET}, 2 AS y$$",
    f"SELECT x'1f'::int, {SET}, b'1'",
    f"SELECT e'\\\\', {SET}, e'\\''",
    f"SELECT E'\\x27', {SET}, E'\\x27'",
    f"SELECT E'\\047', {SET}, E'\\u0027'",
    f"SELECT n'\\', {SET}, n'\\'",
    f"SELECT 'a'\n'b\\', {SET}, '\\'",
    f"SELECT 'a' -- '\n'b', {SET}",
    f"SELECT 1.e1, {SET}, .5e-1, 1e1",
    f"SELECT 1::int4,{SET}",
    f"SELECT @ -1,{SET}",
    f"SELECT 2*-- x\n1,{SET}",
    f"SELECT 2*/* ' */1,{SET}/* ' */",
    f"SELECT\t{SET}\r\n",
    f"\f\n SELECT {SET} ;;",
    f"; ; SELECT {SET}",
    f"SELECT ALL {SET}",
    f"((SELECT {SET}))",
    f"(VALUES ({SET})) UNION (SELECT '')",
    f"TABLE plain; SELECT {SET}; TABLE plain",
    f"SHOW work_mem; SELECT {SET}",
    f"SET LOCAL work_mem = '1MB'; SELECT {SET}",
    f"SET TRANSACTION READ WRITE; SELECT {SET}",
    f"RESET work_mem; SELECT {SET}",
    f"NOTIFY x, '; --'; SELECT {SET}",
    "SELECT set_config('app.{x}', 'A', true), set_config('app.{x}', 'A', false)",
    "SELECT set_config('app.{x}', 'A', true) AS \"x\", set_config('app.{x}', 'A', false) AS y",
    "SELECT set_config('app.{x}', 'A', true) x; SELECT set_config('app.{x}', 'A', false) true",
    "SELECT set_config('app.{x}', 'A', NULL)",
    "SELECT set_config('app.{x}', 'A', true IS NULL)",
    "SELECT set_config('app.{x}', 'A', true = false)",
    "SELECT set_config('app.{x}', 'A', false::bool)",
    "SELECT set_config('app.{x}'::text, 'A', 'off')",
    "SELECT set_config('app.{x}', 'A', true AND false)",
    "SELECT set_config('app.{x}', 'a'',true)', false)",
    "SELECT * FROM set_config('app.{x}', 'A', false) AS f (a)",
    "SELECT set_config('app.{x}', 'A', true) FROM set_config('app.{x}', 'B', false)",
    "SELECT set_config('app.{x}', set_config('app.{x}', 'A', false), true)",
    "SELECT set_config('app.{x}', 'A', true), pg_advisory_lock(7)",
    "SELECT set_config('app.{x}', 'A', true) WHERE pg_try_advisory_lock(7)",
    "SELECT set_config('app.{x}', 'A', true) AS pg_advisory_lock, pg_advisory_lock(7)",
)

# -- places of expressions

PLACES = plain(
    f"SELECT ARRAY[{SET}]", f"SELECT (ARRAY['a'])[length({SET})]", f"SELECT ROW({SET})", f"SELECT COALESCE(NULL, {SET})",
    f"SELECT NULLIF({SET}, '')", f"SELECT GREATEST({SET}, '')", f"SELECT EXISTS (SELECT {SET} OFFSET 0 LIMIT length({SET}))",
    f"SELECT ARRAY(SELECT {SET})", f"SELECT {SET} COLLATE \"C\"", f"SELECT ({SET})::varchar(3)", f"SELECT CAST({SET} AS name)",
    f"SELECT {SET} IS DISTINCT FROM ''", f"SELECT {SET} BETWEEN '' AND 'z'", f"SELECT {SET} = ANY (ARRAY['A'])",
    f"SELECT {SET} LIKE '%'", f"SELECT overlay({SET} placing 'x' from 1)", f"SELECT substring({SET} from 1 for 1)",
    f"SELECT position({SET} in 'A')", f"SELECT trim(both 'x' from {SET})", f"SELECT extract(year from now()), {SET}",
    f"SELECT a FROM one GROUP BY GROUPING SETS ((a), ({SET}))", f"SELECT a FROM one GROUP BY CUBE (a, {SET})",
    f"SELECT a FROM one GROUP BY a HAVING {SET} > ''", f"SELECT sum(a) OVER w FROM one WINDOW w AS (ORDER BY {SET})",
    f"SELECT sum(a) OVER (ORDER BY a ROWS length({SET}) PRECEDING) FROM one",
    f"SELECT sum(a) OVER (ORDER BY a RANGE BETWEEN length({SET}) PRECEDING AND CURRENT ROW) FROM one",
    f"SELECT sum(a) OVER (ORDER BY a GROUPS length({SET}) PRECEDING) FROM one",
    f"SELECT string_agg(b, '' ORDER BY {SET}) FROM plain", f"SELECT a FROM one FETCH FIRST (length({SET})) ROWS ONLY",
    f"SELECT DISTINCT ON ({SET}) a FROM one", f"SELECT 1 FROM one LEFT JOIN plain ON {SET} > ''",
    f"SELECT 1 FROM one x, LATERAL (SELECT x.a, {SET}) y", f"SELECT a FROM one TABLESAMPLE system (100) REPEATABLE (length({SET}))",
    f"WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + length({SET}) FROM r WHERE n < 3) SELECT * FROM r",
    f"WITH x AS (INSERT INTO plain VALUES (1, {SET}) RETURNING a) SELECT * FROM x",
    f"WITH x AS (UPDATE plain SET b = {SET} RETURNING *) TABLE x",
    f"SELECT GROUPING(a), {SET} FROM one GROUP BY a", f"INSERT INTO one VALUES (length({SET}))",
    f"INSERT INTO plain (a, b) VALUES (1, ({SET}))", f"UPDATE plain SET (a, b) = (SELECT 1, {SET})",
    f"UPDATE one SET a = 1 FROM (SELECT {SET}) x", f"DELETE FROM plain USING (SELECT {SET}) x WHERE false OR x IS NOT NULL",
    f"MERGE INTO plain USING (SELECT {SET} AS v) x ON false WHEN NOT MATCHED THEN INSERT VALUES (1, v)",
    f"MERGE INTO plain USING one ON true WHEN MATCHED AND length({SET}) > 9 THEN UPDATE SET b = 'x' WHEN NOT MATCHED AND {SET} > '' THEN INSERT VALUES (1, '')",
    f"EXPLAIN (ANALYZE, FORMAT json) SELECT {SET}", f"EXPLAIN (ANALYZE) (SELECT {SET})", f"EXPLAIN ANALYZE VERBOSE VALUES ({SET})",
    f"EXPLAIN (COSTS off, ANALYZE true) INSERT INTO plain VALUES (1, {SET})",
    f"COPY (VALUES ({SET})) TO STDOUT WITH (FORMAT csv, QUOTE '\"')", f"COPY (INSERT INTO plain VALUES (1, {SET}) RETURNING *) TO STDOUT",
    f"SELECT CURRENT_USER, {SET}",
    f"SELECT jsonb_path_query('[1]', '$[*]'), {SET}", f"SELECT format('%s', {SET})", f"SELECT count(*) FROM (SELECT {SET} OFFSET 0) x",
    f"SELECT b FROM plain FOR UPDATE; SELECT {SET}", f"SELECT a AS update, {SET} FROM one FOR UPDATE",
    f"SELECT pg_sleep(0), {SET}", f"SELECT x.* FROM (SELECT {SET}) x",
    "SELECT \"pg_catalog\".\"pg_advisory_lock\"(7)", "SELECT Pg_Advisory_Lock(7)", "SELECT pg_catalog.\"setseed\"(0.42)",
    "SELECT 1 FROM pg_try_advisory_lock(7)", "SELECT 1 WHERE pg_try_advisory_lock_shared(7, 8)",
    "SELECT pg_advisory_lock(a) FROM one", "SELECT count(pg_advisory_lock(a)) FROM one",
) + [
    line(words, Query("BEGIN"), *(Query(text) for text in texts), Query("COMMIT")) for words, texts in (
        ("DECLARE and FETCH", (f"DECLARE {{x}}_c CURSOR FOR SELECT {SET}", "FETCH {x}_c")),
        ("DECLARE SCROLL and MOVE", (f"DECLARE {{x}}_c SCROLL CURSOR FOR SELECT {SET}", "MOVE ALL IN {x}_c")),
        ("DECLARE without a look at HOLD", ("DECLARE {x}_c CURSOR /* WITHOUT */ WITH /* ' */ HOLD FOR SELECT 1 /* ' */",)),
        ("DECLARE NO SCROLL WITH -- HOLD", ("DECLARE {x}_c NO SCROLL CURSOR WITH --\nHOLD FOR SELECT 1",)),
        ("SAVEPOINT, a lock, RELEASE", ("SAVEPOINT s", f"SELECT {LOCK}", "RELEASE s")),
        ("SET CONSTRAINTS, a setting", ("SET CONSTRAINTS ALL IMMEDIATE", f"SELECT {SET}")),
        ("SET LOCAL, SET SESSION", ("SET LOCAL app.{x} = 'B'", "SET SESSION app.{x} = 'A'")),
        ("PREPARE TRANSACTION keeps a setting", ("SET app.{x} = 'A'", "PREPARE TRANSACTION '{x}'", "ROLLBACK PREPARED '{x}'")),
    )
]

NEW_FORMS = [
    line(label(text), text, rare=True) for text in (
        f"SELECT * FROM json_table('[1]', '$[*]' COLUMNS (a text PATH '$.x' DEFAULT {SET} ON EMPTY))",
        f"SELECT json_value('{{}}', '$.a' RETURNING text DEFAULT {SET} ON EMPTY)",
        f"SELECT json_query(jsonb '[1]', '$' PASSING {SET} AS v)", f"SELECT json_object('a': {SET})",
        f"SELECT json_array({SET})", f"SELECT json_arrayagg({SET}) FROM one", f"SELECT json_serialize(json_object('a': {SET}))",
        f"SELECT xmlelement(name a, xmlattributes({SET} AS b))", f"SELECT xmlforest({SET} AS a)",
        f"SELECT * FROM xmltable('/a' PASSING '<a/>'::xml COLUMNS b text PATH 'b' DEFAULT {SET})",
        f"UPDATE plain SET b = b RETURNING old.a, {SET}", f"UPDATE plain SET b = b RETURNING WITH (OLD AS o, NEW AS n) o.b, {SET}",
        f"MERGE INTO plain USING one ON false WHEN NOT MATCHED THEN INSERT VALUES (1, 'x') RETURNING merge_action(), {SET}",
        f"MERGE INTO plain USING one ON true WHEN NOT MATCHED BY SOURCE AND {SET} > '' THEN UPDATE SET b = 'y' WHEN MATCHED AND {SET} > '' THEN DO NOTHING",
        f"SELECT any_value({SET}) FROM one", f"SELECT 0x1F, 1_000, {SET}", f"SELECT 0b1, 0o7, {SET}",
        f"EXPLAIN (GENERIC_PLAN) SELECT {SET}; SELECT {SET}", f"EXPLAIN (ANALYZE, SERIALIZE) SELECT {SET}",
        f"COPY (SELECT {SET}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)",
    )
]

# -- parameters

PARAMETERS = plain(
    "SET \"role\" = 'leak_role'", "SET \"ROLE\" TO leak_role", "SET SESSION ROLE leak_role", "SET ROLE 'leak_role'",
    "SET role TO 'leak_role'", "SET ROLE leak_role; RESET ALL", "RESET ALL; SET ROLE leak_role",
    "SET app.{x} = 'A'; RESET ALL; SET SESSION \"role\" = leak_role", "SELECT set_config('Role', 'leak_role', false)",
    "SELECT set_config('ROLE', 'leak_role', false) AS role, set_config('app.{x}', 'A', true) AS x",
    "; ".join(f"SET app.{{x}}_{n} = 'A'" for n in range(70)) + "; SET ROLE leak_role",
    "SET SESSION AUTHORIZATION DEFAULT; SET ROLE leak_role", "SET \"app.{x}\" = 'A'", "SET \"work_mem\" TO '77MB'",
    "SET Work_Mem TO 77000", "SET \"TimeZone\" TO 'Asia/Tokyo'", "SET LOCAL app.{x} = 'B'; SET app.{x} = 'A'",
    "SET local.{x} = 'A'; SET app.{x} = 'A'", "SET session.{x} = 'A'; SET app.{x} = 'A'",
    "SET transaction.{x} = 'A'; SET app.{x} = 'A'", "SET constraints.{x} TO 'A'; SET constraints.{x}b TO 'A'; SET app.{x} = 'A'",
    "SET TIME ZONE LOCAL; SET TIME ZONE INTERVAL '+03:00' HOUR TO MINUTE", "SET NAMES 'LATIN1'", "SET client_encoding TO SJIS",
    "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = iso_8601", "SET SESSION XML OPTION DOCUMENT", "SET SESSION SCHEMA 'x'",
    "SET search_path = ''", "SET enable_seqscan TO off; SET jit = off; SET app.{x} = 'A'",
    "SET temp_buffers = 200", "SET statement_timeout = '77s'; SET lock_timeout = '66s'",
    "SET row_security = off",
    "SET default_transaction_isolation = 'repeatable read'", "SET application_name = 'A {x}'",
    "SET bytea_output = escape; SET extra_float_digits = -3; SET array_nulls = off", "SET transform_null_equals = on",
)
PARAMETERS += [line("constraints.x alone", "SET constraints.{x} TO 'A'", customs=("constraints.{x}",)),
               line("transaction.x alone", "SET transaction.{x} = 'A'", customs=("transaction.{x}",)),
               line("local.x alone", "SET local.{x} = 'A'", customs=("local.{x}",)),
               line("session.x alone", "SET session.{x} = 'A'", customs=("session.{x}",)),
               line("LOCAL session.x, then session.x", "SET LOCAL session.{x} = 'B'; SET SESSION session.{x} = 'A'",
                    customs=("session.{x}",), forms=("simple",))]

# -- bodies

HIDDEN = r"set_config($$app.{x}$$, $$A$$, false)"
OFF = "SET standard_conforming_strings = off"


def poisoned(words, literal, then=""):
    """A function that another client compiled while backslashes were escapes."""
    return line(words, By("", f"{OFF}; SELECT {{x}}_f()"), "SELECT {x}_f()", forms=("simple",), rare=True,
                setup="SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql AS "
                f"$k$ BEGIN RETURN {literal} || {HIDDEN}; --'\n{then} END $k$")


def body(words, text, declared="", call="SELECT {x}_f()", **more):
    return line(words, call, setup="SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql AS"
                f" $k$ {declared} BEGIN {text} RETURN ''; END $k$", **more)


BODIES = [
    poisoned("a plain string that ends elsewhere", r"'x\''"), poisoned("N'' that ends elsewhere", r"N'x\''"),
    poisoned("n'' that ends elsewhere", r"n'x\''"), poisoned("a string of two parts", "'a'\n'x\\''"),
    body("a label in front", f"<<{{x}}>> BEGIN PERFORM {SET}; END;"),
    body("a block with a label and DECLARE", f"<<a>> DECLARE v text := {SET}; BEGIN NULL; END a;"),
    body("#variable_conflict", f"PERFORM {SET};", "#variable_conflict use_column\n"),
    body("SET behind THEN", "IF true THEN SET app.{x} = 'A'; END IF;"), body("SET behind ELSE", "IF false THEN NULL; ELSE SET app.{x} = 'A'; END IF;"),
    body("SET behind LOOP", "LOOP SET app.{x} = 'A'; EXIT; END LOOP;"), body("SET behind a label", "<<l>> LOOP SET app.{x} = 'A'; EXIT l; END LOOP l;"),
    body("SET behind END LOOP", "FOR i IN 1..1 LOOP END LOOP; SET app.{x} = 'A';"),
    body("SET behind CASE WHEN THEN", "CASE 1 WHEN 1 THEN SET app.{x} = 'A'; END CASE;"),
    body("SET behind EXCEPTION WHEN THEN", "BEGIN PERFORM 1/0; EXCEPTION WHEN OTHERS THEN SET app.{x} = 'A'; END;"),
    body("SET LOCAL of one and SET of another", "SET LOCAL app.{x} = 'B'; SET app.{x} TO 'A';"),
    body("SET behind a DECLARE with begin in it", "NULL; SET app.{x} = 'A';", "DECLARE c CURSOR FOR SELECT 1 AS \"begin\"; v int;"),
    body("RESET", "SET work_mem = '77MB'; RESET statement_timeout;"), body("DO", f"DO 'BEGIN {KEEP.replace(chr(39), chr(39) * 2)} END';"),
    body("PREPARE within", "PREPARE {x}_p AS SELECT 1;"),
    body("CREATE TEMP behind THEN", "IF true THEN CREATE TEMP TABLE {x}_t AS SELECT 1; END IF;"),
    body("GET DIAGNOSTICS and a call", f"GET DIAGNOSTICS v = ROW_COUNT; v := {SET};", "DECLARE v text;"),
    body("an array's index", "v[length(set_config('app.{x}', 'A', false))] := 1;", "DECLARE v int[];"),
    body("SELECT INTO a variable", f"SELECT {SET} INTO v;", "DECLARE v text;"),
    body("INSERT RETURNING INTO", f"INSERT INTO plain VALUES (1, {SET}) RETURNING b INTO v;", "DECLARE v text;"),
    body("FOR over rows", f"FOR v IN SELECT {SET} LOOP END LOOP;", "DECLARE v text;"),
    body("WHILE", f"WHILE {SET} = '' LOOP END LOOP;"), body("RETURN QUERY's like", f"PERFORM * FROM (SELECT {SET}) x;"),
    body("CONTINUE WHEN", f"FOR i IN 1..1 LOOP CONTINUE WHEN {SET} > ''; END LOOP;"),
    body("a bound cursor's argument", f"OPEN c ({SET});", "DECLARE c CURSOR (v text) FOR SELECT v;"),
    body("set_config with NULL", "PERFORM set_config('app.{x}', 'A', NULL);"),
    body("set_config whose true is an alias", "PERFORM set_config('app.{x}', 'A', v) FROM (SELECT false AS v) true_;"),
    body("set_config in a subquery's true", "PERFORM set_config('app.{x}', (SELECT set_config('app.{x}', 'A', false)), true), 1;"),
    body("set_config with an operator behind true", "PERFORM set_config('app.{x}', 'A', true = false);"),
    body("COMMIT in a procedure's function", "PERFORM pg_try_advisory_lock(7);"),
    line("a function with SET, which sets", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql"
         f" SET work_mem = '1MB' AS $k$ BEGIN PERFORM {SET}; RETURN ''; END $k$"),
    line("a function with SET ROLE", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS text LANGUAGE plpgsql"
         f" SET role = leak_role AS $k$ BEGIN PERFORM {SET}; RETURN ''; END $k$"),
    line("SECURITY DEFINER", "SELECT {x}_f()", setup=keeper().replace("LANGUAGE", "SECURITY DEFINER LANGUAGE")),
    line("a function with SET search_path", "SELECT {x}_f()", setup="CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;"
         + keeper(name="{x}_s.{x}_g") + "SET check_function_bodies = off; CREATE FUNCTION {x}_f() RETURNS int LANGUAGE sql"
         " SET search_path = {x}_s AS 'SELECT {x}_g()'"),
]

# -- objects

CHECKED = keeper("a int", "int", "0", "IMMUTABLE")
FIRE = " FOR EACH ROW EXECUTE FUNCTION {x}_f();"
OBJECTS = [
    line("a check that planning folds, of a child", "SELECT * FROM {x}_t WHERE a = 5", setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c (CHECK (a > {x}_f(1))) INHERITS ({x}_t)"),
    line("a check that planning folds, under UNION ALL", "SELECT * FROM (SELECT a FROM {x}_t UNION ALL SELECT a FROM one) x WHERE a = 5",
         setup=CHECKED + "CREATE TABLE {x}_t (a int CHECK (a > {x}_f(1)))"),
    line("a check that planning folds, with constraint_exclusion", Query("SET constraint_exclusion = on"), "SELECT * FROM {x}_t WHERE a = 5",
         setup=CHECKED + "CREATE TABLE {x}_t (a int CHECK (a > {x}_f(1)))"),
    line("a check that planning folds, in EXPLAIN", "EXPLAIN SELECT * FROM {x}_t WHERE a = 5", setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c (CHECK (a > {x}_f(1))) INHERITS ({x}_t)"),
    line("a check that planning folds, in a cursor", Query("BEGIN"), "DECLARE {x}_c CURSOR FOR SELECT * FROM {x}_t WHERE a = 5",
         Query("COMMIT"), setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c (CHECK (a > {x}_f(1))) INHERITS ({x}_t)"),
    line("a check that planning folds, behind a view", "TABLE {x}_v", setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c (CHECK (a > {x}_f(1))) INHERITS ({x}_t);"
         " CREATE VIEW {x}_v AS SELECT a FROM {x}_t WHERE a = 5"),
    line("a check that planning folds, in a function", "SELECT {x}_g()", setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c (CHECK (a > {x}_f(1))) INHERITS ({x}_t);"
         " CREATE FUNCTION {x}_g() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM {x}_t WHERE a = 5'"),
    line("a partition's expression in SELECT", "SELECT * FROM {x}_t WHERE a = 5", setup=CHECKED
         + "CREATE TABLE {x}_t (a int) PARTITION BY RANGE ((a + {x}_f(1))); CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT"),
    line("an index's expression in SELECT", "SELECT * FROM {x}_t WHERE a = 5", setup=CHECKED
         + "CREATE TABLE {x}_t (a int); CREATE INDEX ON {x}_t ((a + {x}_f(1)))"),
    line("an operator that takes a lock", "SELECT @@@ 7::bigint", alone=True,
         setup="CREATE OPERATOR @@@ (RIGHTARG = bigint, FUNCTION = pg_try_advisory_lock)"),
    line("an operator that takes two keys", "SELECT 7 @@@ 8", alone=True,
         setup="CREATE OPERATOR @@@ (LEFTARG = int, RIGHTARG = int, FUNCTION = pg_try_advisory_lock)"),
    line("an aggregate that takes a lock", "SELECT {x}_a(a) FROM one", alone=True, setup="CREATE AGGREGATE {x}_a (int)"
         " (SFUNC = int8pl, STYPE = bigint, INITCOND = 7, FINALFUNC = pg_try_advisory_lock)".replace("int8pl", "int84pl")),
    line("an operator that seeds", "SELECT @@@ 0.42::float8", alone=True,
         setup="CREATE OPERATOR @@@ (RIGHTARG = float8, FUNCTION = setseed)"),
    line("a view of pg_settings", "UPDATE {x}_v SET setting = '77MB' WHERE name = 'work_mem'", rare=True,
         setup="CREATE VIEW {x}_v AS SELECT * FROM pg_settings; GRANT ALL ON {x}_v TO PUBLIC"),
    line("a rule that updates pg_settings", "INSERT INTO {x}_t VALUES (1)", setup="CREATE TABLE {x}_t (a int);"
         " CREATE RULE r AS ON INSERT TO {x}_t DO ALSO UPDATE pg_settings SET setting = '77MB' WHERE name = 'work_mem'"),
    line("a rule that notifies and sets", "DELETE FROM {x}_t", setup="CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
         f" CREATE RULE r AS ON DELETE TO {{x}}_t DO ALSO SELECT {SET}"),
    line("a trigger of a partition that is a parent", "UPDATE {x}_t SET a = 1", setup=TRIGGER
         + "CREATE TABLE {x}_t (a int, b int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (2)"
         " PARTITION BY LIST (b); CREATE TABLE {x}_r PARTITION OF {x}_t DEFAULT; CREATE TABLE {x}_q PARTITION OF {x}_p DEFAULT;"
         " INSERT INTO {x}_t VALUES (2, 2), (2, 3), (2, 4); CREATE TRIGGER t BEFORE DELETE ON {x}_q" + FIRE, forms=("simple",)),
    line("a transition table", "INSERT INTO {x}_t VALUES (1)", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t AFTER"
         " INSERT ON {x}_t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION {x}_f()"),
    line("a trigger that is ALWAYS", "INSERT INTO {x}_t VALUES (1)", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t"
         " BEFORE INSERT ON {x}_t" + FIRE + "ALTER TABLE {x}_t ENABLE ALWAYS TRIGGER t"),
    line("a foreign key to itself", "DELETE FROM {x}_t WHERE a = (SELECT max(b) FROM {x}_t)", forms=("simple",), setup=TRIGGER
         + "CREATE TABLE {x}_t (a int PRIMARY KEY, b int REFERENCES {x}_t ON DELETE SET NULL); INSERT INTO {x}_t VALUES (1, NULL),"
         " (2, NULL), (3, 1), (4, 2); CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE),
    line("a foreign key through two tables", "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)", setup=TRIGGER
         + "CREATE TABLE {x}_t (a int PRIMARY KEY); CREATE TABLE {x}_m (a int PRIMARY KEY REFERENCES {x}_t ON DELETE CASCADE);"
         " CREATE TABLE {x}_c (a int REFERENCES {x}_m ON DELETE CASCADE); INSERT INTO {x}_t SELECT generate_series(1, 9);"
         " INSERT INTO {x}_m SELECT a FROM {x}_t; INSERT INTO {x}_c SELECT a FROM {x}_m; CREATE TRIGGER t BEFORE DELETE ON {x}_c" + FIRE),
    line("ON CONFLICT DO UPDATE", "INSERT INTO {x}_t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1", setup=TRIGGER
         + "CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE),
    line("INSTEAD OF by MERGE", "MERGE INTO {x}_v v USING one ON v.a = one.a WHEN MATCHED THEN UPDATE SET a = 2", rare=True,
         setup=TRIGGER + "CREATE VIEW {x}_v AS SELECT 1 AS a; CREATE TRIGGER t INSTEAD OF UPDATE ON {x}_v" + FIRE),
    line("a materialized view that is refreshed", "REFRESH MATERIALIZED VIEW {x}_m", setup=keeper()
         + "CREATE MATERIALIZED VIEW {x}_m AS SELECT {x}_f() AS a WITH NO DATA; ALTER MATERIALIZED VIEW {x}_m OWNER TO leak_role;"
         " GRANT CREATE ON SCHEMA public TO leak_role", rare=True),
    line("ANALYZE of an index's expression", "ANALYZE {x}_t", rare=True, setup=keeper("a int", "int", "a", "IMMUTABLE")
         + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE INDEX ON {x}_t ({x}_f(a)); ALTER TABLE {x}_t OWNER TO trusty"),
    line("REINDEX", "REINDEX TABLE {x}_t", rare=True, setup=keeper("a int", "int", "a", "IMMUTABLE")
         + "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE INDEX ON {x}_t ({x}_f(a)); ALTER TABLE {x}_t OWNER TO trusty"),
    line("a multirange of a domain's", "SELECT '{[1,2]}'::int4multirange, ROW(1)::{x}_c", alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TYPE {x}_c AS (a {x}_d)"),
    line("a domain over a multirange", "SELECT '{[1,2]}'::{x}_d", alone=True, setup=keeper("a int4multirange", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int4multirange CHECK ({x}_f(VALUE))"),
    line("a domain over a range", "SELECT '[1,2]'::{x}_d", alone=True, setup=keeper("a int4range", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int4range CHECK ({x}_f(VALUE))"),
    line("a domain over an enumeration", "SELECT 'a'::{x}_d", alone=True, setup="CREATE TYPE {x}_e AS ENUM ('a');"
         + keeper("a {x}_e", "bool", "true") + "CREATE DOMAIN {x}_d AS {x}_e CHECK ({x}_f(VALUE))"),
    line("a cast INOUT", "SELECT ROW(1)::{x}_b::{x}_c", alone=True, setup=keeper("a int", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TYPE {x}_c AS (a {x}_d); CREATE TYPE {x}_b AS (a int);"
         " CREATE CAST ({x}_b AS {x}_c) WITH INOUT"),
    line("pg_input_is_valid", "SELECT pg_input_is_valid('1', '{x}_d')", alone=True, rare=True, setup=keeper("a int", "bool", "true")
         + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
    line("JSON_VALUE RETURNING a domain", "SELECT json_value('1', '$' RETURNING {x}_d)", alone=True, rare=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
]


# -- messages

def wire(words, said, **more):
    return line(words, Wire(said), **more)


MESSAGES = [
    wire("Parse and Describe, of a literal of a domain", lambda names: parse(names.sql("SELECT 1::{x}_d")) + describe("S") + bind()
         + describe("P") + execute() + SYNC, alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
    wire("FunctionCall of a domain's input", lambda names: function_call(names.oid("'pg_catalog.domain_in'::regproc"), (
        b"1", str(names.oid("'{x}_d'::regtype")).encode(), b"-1")), alone=True, rare=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
    wire("a portal with a name", lambda names: parse(names.sql("SELECT {x}_f()"), "s") + bind(portal="p", name="s")
         + execute(portal="p") + close("P", "p") + close("S", "s") + SYNC, setup=keeper()),
    wire("two portals of one statement", lambda names: parse(names.sql("SELECT {x}_f()"), "s") + bind(portal="p", name="s")
         + bind(portal="q", name="s") + execute(portal="q") + SYNC, setup=keeper()),
    wire("a Parse behind another of the same name that is closed", lambda names: parse("SELECT 1", "s") + close("S", "s")
         + parse(names.sql("SELECT {x}_f()"), "s") + bind(name="s") + execute() + SYNC, setup=keeper()),
    wire("the unnamed statement from an earlier Sync", lambda names: parse(names.sql("SELECT {x}_f()")) + SYNC + bind() + execute()
         + SYNC, setup=keeper()),
    wire("a setting and an error in one pipeline", lambda names: parse(names.sql(f"SELECT {LOCK}")) + bind() + execute()
         + parse("SELECT 1/0") + bind() + execute() + SYNC),
    wire("a setting, Sync, an error", lambda names: parse(names.sql(f"SELECT {SET}")) + bind() + execute() + SYNC
         + parse("SELECT 1/0") + bind() + execute() + SYNC),
    wire("a lock in a subtransaction of a pipeline", lambda names: query("BEGIN; SAVEPOINT s") + parse(f"SELECT {LOCK}") + bind()
         + execute() + SYNC + query("ROLLBACK TO s; COMMIT")),
    wire("COPY FROM that fails, behind a lock", lambda names: query(f"SELECT {LOCK}; COPY plain FROM STDIN") + copy_fail("no")),
    wire("COPY FROM with a trigger, that fails", lambda names: query(names.sql(
        "COPY {x}_t FROM STDIN")) + copy_data(b"1\n") + copy_fail("no"), rare=True, setup="CREATE FUNCTION {x}_f() RETURNS trigger"
        " LANGUAGE plpgsql AS $k$ BEGIN PERFORM pg_advisory_lock(7); RETURN NEW; END $k$; CREATE TABLE {x}_t (a int);"
        " CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_f()"),
    wire("COPY FROM WHERE", lambda names: query(names.sql("COPY one FROM STDIN WHERE {x}_f(a) > 0")) + copy_data(b"1\n") + COPY_DONE,
         setup=keeper("a int")),
    wire("COPY FROM in binary", lambda names: query(names.sql("COPY {x}_t FROM STDIN (FORMAT binary)"))
         + copy_data(b"PGCOPY\n\xff\r\n\0" + b"\0" * 8 + b"\0\1\0\0\0\4\0\0\0\1\xff\xff") + COPY_DONE,
         setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    wire("COPY FROM by a pipeline's Parse", lambda names: parse(names.sql("COPY {x}_t FROM STDIN")) + bind() + execute()
         + copy_data(b"1\n") + COPY_DONE + SYNC,
         setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    wire("an empty Query, then a call", lambda names: query("") + query(names.sql(f"SELECT {SET}"))),
    line("a name beyond ASCII under SJIS", Query("SET client_encoding = SJIS"), Wire(lambda names: parse(
        b"SELECT '\x83\x5c', " + names.sql(SET).encode() + b" --'") + bind() + execute() + SYNC), rare=True),
    line("a quote behind a lead byte under BIG5", Query("SET client_encoding = BIG5"), Wire(lambda names: query(
        b"SELECT '\xa5\x5c', " + names.sql(SET).encode())), rare=True),
    line("a quote behind a lead byte under GBK", Query("SET client_encoding = GBK"), Wire(lambda names: query(
        b"SELECT '\xd5\x5c', " + names.sql(SET).encode())), rare=True),
    line("SET client_encoding and a text in the same write", Wire(lambda names: query("SET client_encoding = SJIS") + query(
        b"SELECT '\x83\x5c', " + names.sql(SET).encode()))),
]

# Lines on which the scanner has failed before. The others run only with --full.
FOUND = {"more bodies", "more objects"}
CLASSES = {"tokens": TOKENS, "places of expressions": PLACES, "forms of newer versions": NEW_FORMS, "parameters": PARAMETERS,
           "more bodies": BODIES, "more objects": OBJECTS, "more messages": MESSAGES}
