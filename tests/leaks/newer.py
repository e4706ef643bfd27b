"""Forms of SQL of PostgreSQL 15 to 18, procedures, and settings in functions and transactions."""

from leaks.forms import FIRE, label
from leaks.line import KEEP, TRIGGER, Query, Wire, keeper, line, parse, query, setting
from rawclient import COPY_DONE, FLUSH, SYNC, bind, close, copy_data, execute

SET = setting()
LOCK = "pg_try_advisory_lock(7)"
PURE = keeper("a int", "int", "a", "IMMUTABLE")
TABLE = "CREATE TABLE {x}_t (a int, b int);"


def newer(*texts):
    """Lines that the older of the two versions may refuse."""
    return [line(label(text), text, rare=True) for text in texts]


def block(words, *texts, end="COMMIT", **more):
    """A transaction block by simple Query."""
    return line(words, Query("BEGIN"), *(Query(text) for text in texts), Query(end), **more)


def procedure(words, body, declared="", call="CALL {x}_p()", **more):
    return line(words, call, setup="CREATE PROCEDURE {x}_p() LANGUAGE plpgsql AS"
                f" $k$ {declared} BEGIN {body} END $k$", **more)


def function(words, clause, body, call="SELECT {x}_f()", **more):
    return line(words, call, setup=f"CREATE FUNCTION {{x}}_f() RETURNS text LANGUAGE plpgsql {clause} AS"
                f" $k$ BEGIN {body} RETURN ''; END $k$", **more)


STATEMENTS = newer(
    f"MERGE INTO plain p USING one ON p.a = one.a WHEN MATCHED THEN UPDATE SET b = 'x' RETURNING merge_action(), {LOCK}",
    f"WITH m AS (MERGE INTO plain p USING one ON false WHEN NOT MATCHED THEN INSERT VALUES (9, {SET}) RETURNING p.a) TABLE m",
    f"MERGE INTO plain p USING one ON true WHEN NOT MATCHED BY TARGET AND {SET} = '' THEN DO NOTHING WHEN MATCHED THEN DO NOTHING",
    f"SELECT * FROM json_table('[{{\"a\": 1}}]', '$[*]' COLUMNS (n FOR ORDINALITY, b text PATH '$.b' DEFAULT {SET} ON EMPTY))",
    f"SELECT * FROM json_table('[1]', '$[*] ? (@ > $v)' PASSING length({SET}) - 1 AS v COLUMNS (a int PATH '$'))",
    f"SELECT json_value('1', '$.a' DEFAULT {SET} ON EMPTY DEFAULT {SET} ON ERROR)",
    f"SELECT json_exists('[1]', '$ ? (@ > $v)' PASSING length({SET}) AS v)", f"SELECT json_scalar({SET})",
    f"SELECT json_objectagg({SET} VALUE 1 ABSENT ON NULL WITH UNIQUE KEYS)", f"SELECT json({SET}::text || '1')",
    f"SELECT json_array(SELECT {SET} RETURNING jsonb)", f"SELECT {SET} IS JSON OBJECT WITH UNIQUE KEYS",
    f"INSERT INTO plain VALUES (1, 'x') RETURNING WITH (OLD AS o, NEW AS n) n.a, {LOCK}",
    f"SELECT array_sort(ARRAY[{SET}]), casefold({SET})", f"SELECT 1_0, 0xFF, {SET}", f"SELECT\v1,\v{SET}",
    f"SELECT a FROM one GROUP BY DISTINCT ROLLUP (a, {SET})", f"SELECT GREATEST({SET}, 'x') ORDER BY ALL {SET}",
    f"COPY (SELECT {SET}) TO STDOUT (FORMAT csv, HEADER match)", f"EXPLAIN (ANALYZE, MEMORY, SERIALIZE text) SELECT {SET}",
    f"SELECT string_agg(b, '') WITHIN GROUP (ORDER BY {SET}) FROM plain", f"SELECT uuidv7(interval '1 day'), {SET}",
) + [
    line("SEARCH and CYCLE", "WITH RECURSIVE r (n, v) AS (SELECT 1, '' UNION ALL SELECT n + 1, "
         f"{SET} FROM r WHERE n < 3) SEARCH DEPTH FIRST BY n SET o CYCLE n SET c TO true DEFAULT false USING p SELECT * FROM r"),
    line("mode() WITHIN GROUP", f"SELECT mode() WITHIN GROUP (ORDER BY {SET}) FROM one"),
    line("EXCEPT of a filter", f"SELECT a FROM one EXCEPT SELECT 2 WHERE {LOCK}"),
    line("VALUES in FROM", f"SELECT * FROM (VALUES (1, {SET}), (2, '')) v (a, b)"),
    line("UPDATE of a subscript", f"UPDATE plain SET b = (ARRAY[{SET}])[1] WHERE a = 1 OR true"),
    line("FETCH WITH TIES", f"SELECT a FROM one ORDER BY a FETCH FIRST length({SET}) ROWS WITH TIES"),
    line("ON CONFLICT whose WHERE locks", f"INSERT INTO {{x}}_t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE {LOCK}",
         setup="CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t VALUES (1)"),
    line("COPY FROM WHERE with a setting", Wire(lambda names: query(names.sql(f"COPY one FROM STDIN WHERE {SET} > ''"))
         + copy_data(b"1\n") + COPY_DONE)),
    line("COPY FROM with DEFAULT", Wire(lambda names: query(names.sql("COPY {x}_t FROM STDIN (DEFAULT 'D')"))
         + copy_data(b"D\t1\n") + COPY_DONE), rare=True, setup=keeper() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f(), b int)"),
    line("COPY FROM that ignores errors", Wire(lambda names: query(names.sql("COPY {x}_t FROM STDIN (ON_ERROR ignore)"))
         + copy_data(b"x\n1\n") + COPY_DONE), rare=True, alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); CREATE TABLE {x}_t (a {x}_d)"),
]

# -- objects whose code runs at planning, or behind another object

OBJECTS = [
    line("a statistics object's expression", "SELECT * FROM {x}_t WHERE b = 5", setup=PURE + TABLE
         + "CREATE STATISTICS {x}_s ON (a + {x}_f(1)), b FROM {x}_t; INSERT INTO {x}_t SELECT g, g FROM generate_series(1, 99) g;"
         " ANALYZE {x}_t"),
    line("a statistics object, in the plan of a join", "SELECT 1 FROM one JOIN {x}_t USING (a) WHERE b = 5", setup=PURE + TABLE
         + "CREATE STATISTICS {x}_s ON (a + {x}_f(1)) FROM {x}_t"),
    line("an index's predicate in a join", "SELECT 1 FROM one JOIN {x}_t USING (a) WHERE b = 5", setup=PURE + TABLE
         + "CREATE INDEX ON {x}_t (a) WHERE b > {x}_f(1)"),
    line("a generated column", "INSERT INTO {x}_t (a) VALUES (1)", setup=PURE
         + "CREATE TABLE {x}_t (a int, g int GENERATED ALWAYS AS ({x}_f(a)) STORED)"),
    line("a generated column, by UPDATE of another", "UPDATE {x}_t SET a = 2", rare=True, setup=PURE
         + "CREATE TABLE {x}_t (a int, g int GENERATED ALWAYS AS ({x}_f(a)) STORED); INSERT INTO {x}_t (a) VALUES (1)"),
    line("an exclusion constraint's predicate", "INSERT INTO {x}_t SELECT count(*), 2 FROM {x}_t", setup=PURE + TABLE
         + "ALTER TABLE {x}_t ADD EXCLUDE USING btree (a WITH =) WHERE ({x}_f(b) > 0)"),
    line("NULLS NOT DISTINCT over an expression", "INSERT INTO {x}_t VALUES (1, 2)", rare=True, setup=PURE + TABLE
         + "CREATE UNIQUE INDEX ON {x}_t ({x}_f(a)) NULLS NOT DISTINCT"),
    line("a foreign key that sets a default", "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)", setup=keeper(value="9")
         + "CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t SELECT generate_series(1, 9); CREATE TABLE {x}_c (b int,"
         " a int DEFAULT {x}_f() REFERENCES {x}_t ON DELETE SET DEFAULT); INSERT INTO {x}_c SELECT a, a FROM {x}_t WHERE a < 9;"
         " GRANT ALL ON {x}_c TO PUBLIC"),
    line("a view with a check option", "INSERT INTO {x}_v VALUES (1)", setup=keeper("a int")
         + "CREATE VIEW {x}_v AS SELECT a FROM one WHERE {x}_f(a) > 0 WITH CHECK OPTION; GRANT ALL ON {x}_v TO PUBLIC"),
    line("a view with security_invoker", "TABLE {x}_v", rare=True, setup=keeper()
         + "CREATE VIEW {x}_v WITH (security_invoker) AS SELECT {x}_f()"),
    line("a default of a view's column", "INSERT INTO {x}_v (a) VALUES (1)", setup=keeper()
         + "CREATE TABLE {x}_t (a int, b int); CREATE VIEW {x}_v AS TABLE {x}_t; ALTER VIEW {x}_v ALTER b SET DEFAULT {x}_f();"
         " GRANT ALL ON {x}_v TO PUBLIC"),
    line("a default of a partition", "INSERT INTO {x}_p (a) VALUES (1)", setup=keeper()
         + "CREATE TABLE {x}_t (a int, b int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t (b DEFAULT {x}_f()) DEFAULT"),
    line("a row that moves to another partition", "UPDATE {x}_t SET a = 3 - a", setup=TRIGGER
         + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (1);"
         " CREATE TABLE {x}_q PARTITION OF {x}_t FOR VALUES IN (2); INSERT INTO {x}_t VALUES (1), (2);"
         " CREATE TRIGGER t BEFORE INSERT ON {x}_q" + FIRE),
    line("TRUNCATE of a parent", "TRUNCATE {x}_t", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c ()"
         " INHERITS ({x}_t); CREATE TRIGGER t BEFORE TRUNCATE ON {x}_c EXECUTE FUNCTION {x}_f(); GRANT ALL ON {x}_c TO PUBLIC"),
    block("a deferred constraint trigger at COMMIT", "INSERT INTO {x}_t VALUES (1)", setup=TRIGGER + "CREATE TABLE {x}_t (a int);"
          " CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {x}_t DEFERRABLE INITIALLY DEFERRED" + FIRE),
    block("a deferred constraint trigger by SET CONSTRAINTS", "INSERT INTO {x}_t VALUES (1)", "SET CONSTRAINTS ALL IMMEDIATE",
          end="ROLLBACK", setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS $k$ BEGIN PERFORM"
          " pg_advisory_lock(7); RETURN NEW; END $k$; CREATE TABLE {x}_t (a int); CREATE CONSTRAINT TRIGGER t AFTER INSERT ON"
          " {x}_t DEFERRABLE INITIALLY DEFERRED" + FIRE),
    line("a trigger's WHEN", "UPDATE {x}_t SET a = 2", rare=True, setup=keeper("a int", "bool", "false")
         + "CREATE FUNCTION {x}_g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TABLE {x}_t (a int);"
         " INSERT INTO {x}_t VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_t FOR EACH ROW WHEN ({x}_f(OLD.a))"
         " EXECUTE FUNCTION {x}_g()"),
    line("an event trigger", "CREATE TABLE {x}_new ()", alone=True, forms=("simple",),
         setup=f"CREATE FUNCTION {{x}}_f() RETURNS event_trigger LANGUAGE plpgsql AS $k$ BEGIN {KEEP} END $k$;"
         " CREATE EVENT TRIGGER {x}_e ON ddl_command_end EXECUTE FUNCTION {x}_f()"),
    line("a policy of a table that a policy reads", "TABLE {x}_t", setup=keeper(returns="bool", value="true")
         + "CREATE TABLE {x}_u (a int); INSERT INTO {x}_u VALUES (1); CREATE POLICY p ON {x}_u USING ({x}_f()); ALTER TABLE {x}_u"
         " ENABLE ROW LEVEL SECURITY; CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); CREATE POLICY p ON {x}_t USING"
         " (EXISTS (SELECT FROM {x}_u)); ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY"),
    line("a sequence that a function owns", "SELECT {x}_f()", setup="CREATE SEQUENCE {x}_s; GRANT ALL ON {x}_s TO PUBLIC;"
         " CREATE FUNCTION {x}_f() RETURNS bigint LANGUAGE sql AS $k$ SELECT nextval('{x}_s') $k$", sequence="{x}_s"),
]

# -- functions and procedures

ROUTINES = [
    procedure("a COMMIT in a procedure, then a setting", f"COMMIT; {KEEP}"),
    procedure("a setting, then ROLLBACK in a procedure, then another", "SET app.{x} = 'B'; ROLLBACK; SET app.{x} = 'A';"),
    procedure("SET LOCAL, COMMIT AND CHAIN, SET", "SET LOCAL app.{x} = 'B'; COMMIT AND CHAIN; SET app.{x} = 'A';"),
    procedure("a loop over rows that commits", "FOR r IN SELECT 1 LOOP COMMIT; PERFORM pg_advisory_lock(7); END LOOP;",
              "DECLARE r record;"),
    procedure("nested DO", f"DO $d$ BEGIN DO $e$ BEGIN {KEEP} END $e$; COMMIT; END $d$;"),
    procedure("CALL of another with SET", "CALL {x}_p(1);", rare=True),
    line("nested DO with COMMIT", f"DO $d$ BEGIN DO $e$ BEGIN {KEEP} COMMIT; END $e$; END $d$"),
    line("a procedure with an OUT argument", "CALL {x}_p(NULL)", setup="CREATE PROCEDURE {x}_p(OUT a int) LANGUAGE plpgsql AS"
         f" $k$ BEGIN {KEEP} a := 1; END $k$"),
    line("a procedure in SQL", "CALL {x}_p()", setup=f"CREATE PROCEDURE {{x}}_p() LANGUAGE sql AS $k$ SELECT {SET} $k$"),
    line("a procedure with BEGIN ATOMIC", "CALL {x}_p()", setup="CREATE PROCEDURE {x}_p() LANGUAGE sql BEGIN ATOMIC"
         " SELECT set_config('work_mem', '77MB', false); END"),
    function("SET of another than the SET clause's", "SET work_mem = '1MB'", "SET statement_timeout = '77s';"),
    function("SET of the SET clause's own, and a lock", "SET work_mem = '1MB'", "SET work_mem = '2MB'; PERFORM pg_advisory_lock(7);"),
    function("SET FROM CURRENT", "SET search_path FROM CURRENT", f"PERFORM {SET};"),
    function("a clause that sets the role", "SET role = leak_role", "PERFORM set_config('app.{x}', 'A', false);"),
    function("a handler behind SET", "", "BEGIN SET app.{x} = 'B'; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN SET app.{x} = 'A'; END;"),
    function("set_config by a name from an array", "", "PERFORM set_config((ARRAY['app.{x}'])[1], 'A', false);"),
    line("ALTER FUNCTION SET, then a call", Query("ALTER FUNCTION {x}_f() SET work_mem = '1MB'"), "SELECT {x}_f()",
         setup=keeper() + "ALTER FUNCTION {x}_f() OWNER TO trusty;"),
    line("a function that is renamed in the transaction", Query("BEGIN"), Query("ALTER FUNCTION {x}_f() RENAME TO {x}_g"),
         Query("SELECT {x}_g()"), Query("ALTER FUNCTION {x}_g() RENAME TO {x}_f"), Query("COMMIT"),
         setup=keeper() + "ALTER FUNCTION {x}_f() OWNER TO trusty;"),
    line("DROP and CREATE in one text", "DROP FUNCTION IF EXISTS {x}_f(); CREATE FUNCTION {x}_f() RETURNS text LANGUAGE sql AS"
         f" $k$ SELECT {SET} $k$; SELECT {{x}}_f()", forms=("simple",)),
]

# -- transactions, portals and statements

SESSIONS = [
    block("a refcursor that is fetched", "SELECT {x}_f('{x}_c')", "FETCH {x}_c", setup="CREATE FUNCTION {x}_f(c refcursor) RETURNS"
          f" refcursor LANGUAGE plpgsql AS $k$ BEGIN OPEN c FOR SELECT {SET}; RETURN c; END $k$"),
    line("a held cursor whose query sets", f"DECLARE {{x}}_c CURSOR WITH HOLD FOR SELECT {SET}"),
    block("a held cursor that the COMMIT runs", f"DECLARE {{x}}_c BINARY INSENSITIVE CURSOR WITH HOLD FOR SELECT {SET}"),
    block("COMMIT AND CHAIN behind SET", "SET app.{x} = 'A'", "COMMIT AND CHAIN", end="ROLLBACK"),
    block("ROLLBACK AND CHAIN in front of SET", "ROLLBACK AND CHAIN", "SET app.{x} = 'A'"),
    block("a lock that survives ROLLBACK AND CHAIN", "SELECT pg_advisory_lock(7)", "ROLLBACK AND CHAIN"),
    line("PREPARE TRANSACTION, then a lock", Query("BEGIN"), Query("INSERT INTO one VALUES (1)"), Query("PREPARE TRANSACTION '{x}'"),
         Query("SELECT pg_advisory_lock(7)"), Query("ROLLBACK PREPARED '{x}'"), rare=True),
    line("EXECUTE of a statement that sets", Query(f"PREPARE {{x}}_p AS SELECT {SET}"), Query("EXECUTE {x}_p"), Query("DEALLOCATE {x}_p")),
    line("EXPLAIN ANALYZE EXECUTE", Query(f"PREPARE {{x}}_p AS SELECT {SET}"), Query("EXPLAIN ANALYZE EXECUTE {x}_p"),
         Query("DEALLOCATE {x}_p")),
    line("CREATE TABLE AS EXECUTE into pg_temp", Query("PREPARE {x}_p AS SELECT 1 AS a"),
         Query("CREATE TABLE pg_temp.{x}_t AS EXECUTE {x}_p"), Query("DEALLOCATE {x}_p")),
    line("a large object's function with a lock", f"SELECT lo_unlink(lo_create(0)), {LOCK}"),
    line("a portal that is suspended", Wire(lambda names: query("BEGIN") + parse(names.sql(
        f"SELECT {SET} FROM generate_series(1, 3)")) + bind(portal="p") + execute(1, "p") + SYNC + execute(1, "p") + close("P", "p")
        + SYNC + query("COMMIT"))),
    line("Flush in front of an error", Wire(lambda names: parse(names.sql(f"SELECT {LOCK}")) + bind() + execute() + FLUSH
         + bind(name="none") + SYNC)),
    line("the same statement by two portals across Syncs", Wire(lambda names: query("BEGIN") + parse(names.sql(f"SELECT {SET}"), "s")
         + bind(portal="p", name="s") + SYNC + close("S", "s") + SYNC + execute(portal="p") + SYNC + query("COMMIT"))),
    line("SET SESSION AUTHORIZATION of oneself and a role", Query("SET SESSION AUTHORIZATION trusty"), Query("SET ROLE leak_role"),
         rare=True),
    line("SET LOCAL ROLE, then SET ROLE", Query("BEGIN"), Query("SET LOCAL ROLE NONE"), Query("SET ROLE leak_role"), Query("COMMIT")),
    line("a setting of 70 names in one text", "SELECT " + ", ".join(
        f"set_config('app.{{x}}_{n}', 'A', false)" for n in range(70)), customs=("app.{x}_69",)),
]

CLASSES = {"newer statements": STATEMENTS, "objects behind objects": OBJECTS, "routines": ROUTINES,
           "transactions and portals": SESSIONS}
