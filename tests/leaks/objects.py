"""Objects that call a function which no text names: types, operators, classes of operators, aggregates, relations."""

from leaks.line import TRIGGER, Query, Wire, bind, execute, keeper, line, parse
from rawclient import COPY_DONE, SYNC, copy_data, query


def alone(words, *says, setup, **more):
    return line(words, *says, setup=setup, alone=True, **more)


# -- types

CHECK = keeper("a int", "bool", "true")
DOMAIN = CHECK + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE));"
COMPOSITE = DOMAIN + "CREATE TYPE {x}_c AS (a {x}_d);"


def copied(table, row):
    """COPY of a row into a table."""
    return Wire(lambda names: query(names.sql(f"COPY {table} FROM STDIN")) + copy_data(row) + COPY_DONE)


TYPES = [
    alone("a domain's default", "INSERT INTO {x}_t (a) VALUES (1)",
          setup=keeper() + "CREATE DOMAIN {x}_d AS int DEFAULT {x}_f(); CREATE TABLE {x}_t (a int, b {x}_d)"),
    alone("a domain's check, by ::", "SELECT 1::{x}_d", setup=DOMAIN),
    alone("a domain's check, by CAST", "SELECT CAST(a AS {x}_d) FROM one", setup=DOMAIN),
    alone("a domain's check, by a type in front", "SELECT {x}_d '1'", setup=DOMAIN),
    alone("a domain's check, in a column", "INSERT INTO {x}_t VALUES (1)", setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d)"),
    alone("a domain's check, in COPY", copied("{x}_t", b"1\n"), setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d)"),
    alone("a domain's check, in an argument", "SELECT {x}_g(1)", setup=DOMAIN
          + "CREATE FUNCTION {x}_g({x}_d) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'"),
    alone("a domain's check, in a variable", "SELECT {x}_g()", setup=DOMAIN
          + "CREATE FUNCTION {x}_g() RETURNS int LANGUAGE plpgsql AS 'DECLARE v {x}_d := 1; BEGIN RETURN v; END'"),
    alone("a domain's check, in a result", "SELECT {x}_g()", setup=DOMAIN
          + "CREATE FUNCTION {x}_g() RETURNS {x}_d LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'"),
    alone("a domain over the domain", "SELECT 1::{x}_e", setup=DOMAIN + "CREATE DOMAIN {x}_e AS {x}_d"),
    alone("an array of the domain", "SELECT '{1}'::{x}_d[]", setup=DOMAIN),
    alone("an array of the domain, by its own name", "SELECT '{1}'::_{x}_d", setup=DOMAIN),
    alone("ARRAY[] cast to the domain's array", "SELECT ARRAY[1]::{x}_d[]", setup=DOMAIN),
    alone("a domain over an array", "SELECT '{1}'::{x}_e", setup=CHECK.replace("a int", "a int[]")
          + "CREATE DOMAIN {x}_e AS int[] CHECK ({x}_f(VALUE))"),
    alone("a composite type", "SELECT '(1)'::{x}_c", setup=COMPOSITE),
    alone("ROW cast to a composite type", "SELECT ROW(1)::{x}_c", setup=COMPOSITE),
    alone("an array of a composite type", "SELECT '{(1)}'::{x}_c[]", setup=COMPOSITE),
    alone("a table's row type", "SELECT '(1)'::{x}_t", setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d)"),
    alone("a domain over a composite type", "SELECT '(1)'::{x}_e", setup=COMPOSITE + "CREATE DOMAIN {x}_e AS {x}_c"),
    alone("a range over the domain", "SELECT '[1,2]'::{x}_r", setup=DOMAIN + "CREATE TYPE {x}_r AS RANGE (subtype = {x}_d)"),
    alone("a multirange over the domain", "SELECT '{[1,2]}'::{x}_r_multi", setup=DOMAIN
          + "CREATE TYPE {x}_r AS RANGE (subtype = {x}_d, multirange_type_name = {x}_r_multi)"),
    alone("a range's operator class", "SELECT {x}_r(1, 2)", setup=keeper("a int, b int", "int", "btint4cmp(a, b)", "IMMUTABLE")
          + "CREATE OPERATOR CLASS {x}_o FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,"
          " OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_f(int, int);"
          " CREATE TYPE {x}_r AS RANGE (subtype = int, subtype_opclass = {x}_o)"),
    alone("json_populate_record", "SELECT json_populate_record(NULL::{x}_c, '{\"a\": 1}')", setup=COMPOSITE),
    alone("json_to_record", "SELECT * FROM json_to_record('{\"a\": 1}') AS t (a {x}_d)", setup=DOMAIN),
    alone("jsonb_to_recordset", "SELECT * FROM jsonb_to_recordset('[{\"a\": 1}]') AS t (a {x}_d)", setup=DOMAIN),
    alone("a parameter's type that the text decides", Wire(lambda names: parse(names.sql(
        "INSERT INTO {x}_t VALUES ($1)")) + bind(("1",)) + execute() + SYNC), setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d)"),
    alone("a cast", "SELECT 1::{x}_c", setup="CREATE TYPE {x}_c AS (a int);"
          + keeper("a int", "{x}_c", "ROW(1)::{x}_c") + "CREATE CAST (int AS {x}_c) WITH FUNCTION {x}_f(int)"),
    alone("a cast by assignment", "INSERT INTO {x}_t VALUES (1)", setup="CREATE TYPE {x}_c AS (a int);"
          "CREATE TABLE {x}_t (a {x}_c);" + keeper("a int", "{x}_c", "ROW(1)::{x}_c")
          + "CREATE CAST (int AS {x}_c) WITH FUNCTION {x}_f(int) AS ASSIGNMENT"),
    alone("a cast that nobody asks for", "SELECT {x}_g(a) FROM one", setup="CREATE TYPE {x}_c AS (a int);"
          + keeper("a int", "{x}_c", "ROW(1)::{x}_c") + "CREATE CAST (int AS {x}_c) WITH FUNCTION {x}_f(int) AS IMPLICIT;"
          "CREATE FUNCTION {x}_g({x}_c) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'"),
    alone("a cast between built-in types", "SELECT a::inet FROM one",
          setup=keeper("a int", "inet", "NULL")
          + "CREATE CAST (int AS inet) WITH FUNCTION {x}_f(int)"),
    alone("a cast by text of a composite type", "SELECT ('(' || a || ')')::{x}_c FROM one", setup=COMPOSITE),
]

# -- operators

ENUM = "CREATE TYPE {x}_e AS ENUM ('a', 'b');"
PAIR = "{x}_e, b {x}_e"


def operator(words, symbol, text, left="int", right="text", returns="bool", value="true", **more):
    """Returns an operator for types for which PostgreSQL has none, and a text that may call it without its symbol."""
    return alone(words, text, setup=ENUM + keeper(f"a {left}, b {right}", returns, value)
                 + f"CREATE OPERATOR {symbol} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = {{x}}_f)", **more)


ENUMS = {"left": "{x}_e", "right": "{x}_e"}
OPERATORS = [
    operator("a symbol", "===", "SELECT 1 === 'a'::text"),
    operator("OPERATOR()", "===", "SELECT 1 OPERATOR(public.===) 'a'::text"),
    operator("a symbol of a built-in", "+", "SELECT 1 + 'a'::text", returns="int", value="1"),
    alone("a prefix", "SELECT @#@ 1", setup=keeper("a int") + "CREATE OPERATOR @#@ (RIGHTARG = int, FUNCTION = {x}_f)"),
    operator("LIKE", "~~", "SELECT 1 LIKE 'a'::text"), operator("NOT LIKE", "!~~", "SELECT 1 NOT LIKE 'a'::text"),
    operator("ILIKE", "~~*", "SELECT 1 ILIKE 'a'::text"), operator("NOT ILIKE", "!~~*", "SELECT 1 NOT ILIKE 'a'::text"),
    operator("SIMILAR TO", "~", "SELECT 1 SIMILAR TO 'a'"), operator("NOT SIMILAR TO", "!~", "SELECT 1 NOT SIMILAR TO 'a'"),
    operator("LIKE ANY", "~~", "SELECT 1 LIKE ANY (ARRAY['a'::text])"),
    operator("IN", "=", "SELECT 1 IN ('a'::text)"), operator("NOT IN", "<>", "SELECT 1 NOT IN ('a'::text)"),
    operator("IN of a subquery", "=", "SELECT 1 IN (SELECT b FROM plain)"),
    operator("= ANY", "=", "SELECT 1 = ANY (ARRAY['a'::text])"), operator("= ALL", "=", "SELECT 1 = ALL (ARRAY['a'::text])"),
    operator("CASE x WHEN", "=", "SELECT CASE 1 WHEN 'a'::text THEN 1 END"),
    operator("NULLIF", "=", "SELECT NULLIF(1, 'a'::text)"),
    operator("IS DISTINCT FROM", "=", "SELECT 1 IS DISTINCT FROM 'a'::text"),
    operator("IS NOT DISTINCT FROM", "=", "SELECT 1 IS NOT DISTINCT FROM 'a'::text"),
    operator("BETWEEN", ">=", "SELECT 1 BETWEEN 'a'::text AND NULL", value="true"),
    operator("JOIN USING", "=", "SELECT 1 FROM (SELECT 'a'::{x}_e AS v) x JOIN (SELECT 'a'::{x}_e AS v) y USING (v)", **ENUMS),
    operator("NATURAL JOIN", "=", "SELECT 1 FROM (SELECT 'a'::{x}_e AS v) x NATURAL JOIN (SELECT 'a'::{x}_e AS v) y",
             **ENUMS),
    operator("an operator of an enum", "=", "SELECT 'a'::{x}_e = 'b'::{x}_e", **ENUMS),
    operator("IN of rows", "=", "SELECT 'a'::{x}_e IN (SELECT 'a'::{x}_e FROM one)", **ENUMS),
    alone("an operator before a built-in one", Query("SET search_path = {x}_s, pg_catalog"), "SELECT 1 + 1",
          setup="CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;" + keeper("a int, b int", name="{x}_s.{x}_f")
          + "CREATE OPERATOR {x}_s.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_s.{x}_f)"),
    alone("a negator", "SELECT 1 FROM one WHERE NOT (a === 2)", setup="CREATE FUNCTION {x}_g(int, int) RETURNS bool"
          " LANGUAGE plpgsql AS 'BEGIN RETURN false; END';" + keeper("a int, b int", "bool", "true")
          + "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_g, NEGATOR = !==);"
          " CREATE OPERATOR !== (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_f, NEGATOR = ===)"),
    alone("a commutator, at planning", "SELECT 1 FROM {x}_t WHERE 5 <<< a", setup=keeper("a int, b int", "bool", "a > b",
          "IMMUTABLE") + "CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt, COMMUTATOR = >>>,"
          " RESTRICT = scalarltsel); CREATE OPERATOR >>> (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_f,"
          " COMMUTATOR = <<<, RESTRICT = scalargtsel); CREATE TABLE {x}_t AS SELECT g % 5 AS a FROM"
          " generate_series(1, 1000) g; ANALYZE {x}_t"),
    alone("a restriction's estimate", "EXPLAIN SELECT 1 FROM {x}_t WHERE a <<< 5", setup=keeper("a int, b int", "bool",
          "a < b", "IMMUTABLE") + "CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_f,"
          " RESTRICT = scalarltsel); CREATE TABLE {x}_t AS SELECT g % 5 AS a FROM generate_series(1, 1000) g; ANALYZE {x}_t"),
]

CLASS = (ENUM + keeper("a {x}_e, b {x}_e", "int", "enum_cmp(a, b)", "IMMUTABLE")
         + "CREATE OPERATOR CLASS {x}_o DEFAULT FOR TYPE {x}_e USING btree AS"
         " OPERATOR 1 < (anyenum, anyenum), OPERATOR 2 <= (anyenum, anyenum), OPERATOR 3 = (anyenum, anyenum),"
         " OPERATOR 4 >= (anyenum, anyenum), OPERATOR 5 > (anyenum, anyenum), FUNCTION 1 {x}_f({x}_e, {x}_e);"
         " CREATE TABLE {x}_t (v {x}_e, n int);"
         " INSERT INTO {x}_t VALUES ('a', 1), ('b', 2), ('a', 3), ('b', 4);")
# An enumeration finds the classes of any enumeration by itself; one of a row type has none but its own.
ROW = ("CREATE TYPE {x}_e AS (a int);" + keeper("a {x}_e, b {x}_e", "int", "btint4cmp(a.a, b.a)", "IMMUTABLE")
       + "".join(f"CREATE FUNCTION {{x}}_{name}(a {{x}}_e, b {{x}}_e) RETURNS bool IMMUTABLE LANGUAGE sql AS"
                 f" 'SELECT a.a {symbol} b.a'; CREATE OPERATOR {symbol} (LEFTARG = {{x}}_e, RIGHTARG = {{x}}_e,"
                 f" FUNCTION = {{x}}_{name}, COMMUTATOR = {other}, MERGES, HASHES); " if symbol == "=" else
                 f"CREATE FUNCTION {{x}}_{name}(a {{x}}_e, b {{x}}_e) RETURNS bool IMMUTABLE LANGUAGE sql AS"
                 f" 'SELECT a.a {symbol} b.a'; CREATE OPERATOR {symbol} (LEFTARG = {{x}}_e, RIGHTARG = {{x}}_e,"
                 f" FUNCTION = {{x}}_{name}, COMMUTATOR = {other}); "
                 for name, symbol, other in (("lt", "<", ">"), ("le", "<=", ">="), ("eq", "=", "="), ("ge", ">=", "<="),
                                             ("gt", ">", "<")))
       + "CREATE OPERATOR CLASS {x}_o DEFAULT FOR TYPE {x}_e USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,"
       " OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_f({x}_e, {x}_e);"
       " CREATE TABLE {x}_t (v {x}_e, n int);"
       " INSERT INTO {x}_t SELECT ROW(g % 2)::{x}_e, g FROM generate_series(1, 4) g;")
HASH = ROW.replace(
    " CREATE TABLE", keeper("a {x}_e", "int", "hashint4(a.a)", "IMMUTABLE", "{x}_h")
    + "CREATE OPERATOR CLASS {x}_ho DEFAULT FOR TYPE {x}_e USING hash AS OPERATOR 1 =, FUNCTION 1 {x}_h({x}_e);"
    " CREATE TABLE", 1).replace(keeper("a {x}_e, b {x}_e", "int", "btint4cmp(a.a, b.a)", "IMMUTABLE"),
                                "CREATE FUNCTION {x}_f(a {x}_e, b {x}_e) RETURNS int IMMUTABLE LANGUAGE sql AS"
                                " 'SELECT btint4cmp(a.a, b.a)'; ")
HASHED = {"login": {"options": "-c enable_sort=off -c enable_mergejoin=off -c enable_nestloop=off"}}
OWN = (keeper("a int, b int", "int", "btint4cmp(a, b)", "IMMUTABLE")
       + "".join(f"CREATE OPERATOR {symbol} (LEFTARG = int, RIGHTARG = int, FUNCTION = int4{name}); "
                 for symbol, name in (("<<<", "lt"), ("<<=", "le"), ("===", "eq"), (">>=", "ge"), (">>>", "gt")))
       + "CREATE OPERATOR CLASS {x}_o FOR TYPE int USING btree AS OPERATOR 1 <<<, OPERATOR 2 <<=, OPERATOR 3 ===,"
       " OPERATOR 4 >>=, OPERATOR 5 >>>, FUNCTION 1 {x}_f(int, int);")
OPCLASSES = [
    alone("ORDER BY USING an operator of the class", "SELECT g FROM generate_series(1, 3) g ORDER BY g USING <<<", setup=OWN),
    *(alone(f"{words} of a type that no table has", f"SELECT {what} FROM (SELECT ROW(g)::{{x}}_e AS v FROM"
            f" generate_series(1, 3) g) x {more}", setup=ROW.partition(" CREATE TABLE")[0])
      for words, what, more in (("ORDER BY", "1", "ORDER BY v"), ("DISTINCT", "DISTINCT v", ""),
                                ("GROUP BY", "v", "GROUP BY v"), ("PARTITION BY", "rank() OVER (ORDER BY v)", ""))),
    *(alone(words, text, setup=ROW) for words, text in (
        ("ORDER BY", "SELECT v FROM {x}_t ORDER BY v"), ("ORDER BY USING", "SELECT v FROM {x}_t ORDER BY v USING <"),
        ("DISTINCT", "SELECT DISTINCT v FROM {x}_t"), ("DISTINCT ON", "SELECT DISTINCT ON (v) n FROM {x}_t"),
        ("GROUP BY", "SELECT v FROM {x}_t GROUP BY v"), ("UNION", "SELECT v FROM {x}_t UNION SELECT v FROM {x}_t"),
        ("INTERSECT", "SELECT v FROM {x}_t INTERSECT SELECT v FROM {x}_t"),
        ("PARTITION BY", "SELECT row_number() OVER (PARTITION BY v) FROM {x}_t"),
        ("ORDER BY of a window", "SELECT row_number() OVER (ORDER BY v) FROM {x}_t"),
        ("an ordered aggregate", "SELECT array_agg(n ORDER BY v) FROM {x}_t"),
        ("a distinct aggregate", "SELECT count(DISTINCT v) FROM {x}_t"),
        ("WITHIN GROUP", "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY v) FROM {x}_t"),
        ("comparison of rows", "SELECT count(*) FROM {x}_t WHERE (v, n) < (ROW(1)::{x}_e, 2)"),
        ("= of arrays", "SELECT ARRAY[v] < ARRAY[ROW(1)::{x}_e] FROM {x}_t"),
        ("GREATEST", "SELECT GREATEST(v, ROW(1)::{x}_e) FROM {x}_t"),
        ("ANALYZE by EXPLAIN", "EXPLAIN ANALYZE SELECT v FROM {x}_t ORDER BY v"))),
    alone("GREATEST of an enumeration", "SELECT GREATEST(v, 'a') FROM {x}_t", setup=CLASS),
    *(alone(words, text, setup=HASH, **HASHED) for words, text in (
        ("a hash join", "SELECT 1 FROM {x}_t x JOIN {x}_t y USING (v)"), ("a hashed GROUP BY", "SELECT v FROM {x}_t GROUP BY v"),
        ("a hashed UNION", "SELECT v FROM {x}_t UNION SELECT v FROM {x}_t"),
        ("a hashed IN", "SELECT 1 FROM {x}_t WHERE v NOT IN (SELECT v FROM {x}_t WHERE n = 1)"))),
    alone("an index in INSERT", "INSERT INTO {x}_t VALUES (ROW(1)::{x}_e, 1)", setup=ROW + "CREATE INDEX ON {x}_t (v)"),
    alone("an index's own class", "INSERT INTO {x}_t VALUES (1)", setup=keeper("a int, b int", "int", "btint4cmp(a, b)",
          "IMMUTABLE") + "CREATE OPERATOR CLASS {x}_o FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,"
          " OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_f(int, int); CREATE TABLE {x}_t (a int);"
          " INSERT INTO {x}_t VALUES (1), (2); CREATE INDEX ON {x}_t (a {x}_o)"),
    alone("a partition key's class", "INSERT INTO {x}_t VALUES (1)", setup=keeper("a int, b int", "int", "btint4cmp(a, b)",
          "IMMUTABLE") + "CREATE OPERATOR CLASS {x}_o FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,"
          " OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_f(int, int); CREATE TABLE {x}_t (a int) PARTITION BY RANGE (a {x}_o);"
          " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES FROM (0) TO (9)"),
]


def aggregate(words, text, options, functions, declared="int"):
    return alone(words, text, setup=functions + f"CREATE AGGREGATE {{x}}_a ({declared}) ({options})")


SUM = "SFUNC = int4pl, STYPE = int, INITCOND = 0"
AGGREGATES = [
    aggregate("a transition", "SELECT {x}_a(a) FROM one", "SFUNC = {x}_f, STYPE = int, INITCOND = 0", keeper("a int, b int")),
    aggregate("a final function", "SELECT {x}_a(a) FROM one", SUM + ", FINALFUNC = {x}_f", keeper("a int")),
    aggregate("in a window", "SELECT {x}_a(a) OVER () FROM one", SUM + ", FINALFUNC = {x}_f", keeper("a int")),
    aggregate("a moving window", "SELECT {x}_a(a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM generate_series(1, 5) a",
              SUM + ", MSFUNC = int4pl, MINVFUNC = {x}_f, MSTYPE = int, MINITCOND = 0",
              keeper("a int, b int", value="a - b", how="STRICT")),
    aggregate("a moving window's final function", "SELECT {x}_a(a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM"
              " generate_series(1, 5) a", SUM + ", MSFUNC = int4pl, MINVFUNC = int4mi, MSTYPE = int, MINITCOND = 0,"
              " MFINALFUNC = {x}_f", keeper("a int")),
    aggregate("an ordered set", "SELECT {x}_a() WITHIN GROUP (ORDER BY a) FROM one", "SFUNC = {x}_s, STYPE = int,"
              " INITCOND = 0, FINALFUNC = {x}_f", "CREATE FUNCTION {x}_s(int, int) RETURNS int LANGUAGE sql AS 'SELECT $1';"
              + keeper("a int"), "ORDER BY int"),
    aggregate("FILTER and DISTINCT", "SELECT {x}_a(DISTINCT a) FILTER (WHERE true) FROM one",
              "SFUNC = {x}_f, STYPE = int, INITCOND = 0", keeper("a int, b int")),
    alone("the name of a built-in", "SELECT sum(b) FROM plain", setup=keeper("a text, b text", "text", "''")
          + "CREATE AGGREGATE sum (text) (SFUNC = {x}_f, STYPE = text, INITCOND = '')"),
]

# -- relations

T = "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1);"
FIRE = " FOR EACH ROW EXECUTE FUNCTION {x}_f();"


def on(words, *says, setup):
    return line(words, *says, setup=TRIGGER + setup)


TRIGGERS = [
    on("BEFORE INSERT", "INSERT INTO {x}_t VALUES (1)", setup=T + "CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    on("AFTER UPDATE OF", "UPDATE {x}_t SET a = 2", setup=T + "CREATE TRIGGER t AFTER UPDATE OF a ON {x}_t" + FIRE),
    on("DELETE FOR EACH STATEMENT", "DELETE FROM {x}_t", setup=T
       + "CREATE TRIGGER t AFTER DELETE ON {x}_t FOR EACH STATEMENT EXECUTE FUNCTION {x}_f()"),
    on("MERGE", "MERGE INTO {x}_t USING one ON true WHEN MATCHED THEN UPDATE SET a = 1",
       setup=T + "CREATE TRIGGER t BEFORE UPDATE ON {x}_t" + FIRE),
    on("COPY", copied("{x}_t", b"1\n"), setup=T + "CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    on("TRUNCATE", "TRUNCATE {x}_t",
       setup=T + "CREATE TRIGGER t AFTER TRUNCATE ON {x}_t FOR EACH STATEMENT EXECUTE FUNCTION {x}_f()"),
    on("TRUNCATE CASCADE", "TRUNCATE {x}_t CASCADE", setup="CREATE TABLE {x}_t (a int PRIMARY KEY);"
       " CREATE TABLE {x}_c (a int REFERENCES {x}_t);"
       " CREATE TRIGGER t AFTER TRUNCATE ON {x}_c FOR EACH STATEMENT EXECUTE FUNCTION {x}_f()"),
    on("a constraint trigger at COMMIT", Query("BEGIN"), "INSERT INTO {x}_t VALUES (1)", Query("COMMIT"),
       setup=T + "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {x}_t DEFERRABLE INITIALLY DEFERRED" + FIRE),
    on("INSTEAD OF on a view", "INSERT INTO {x}_v VALUES (1)", setup="CREATE VIEW {x}_v AS SELECT 1 AS a;"
       " CREATE TRIGGER t INSTEAD OF INSERT ON {x}_v" + FIRE),
    on("a partition's, by its parent", "INSERT INTO {x}_t VALUES (1)", setup="CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
       " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (1); CREATE TRIGGER t BEFORE INSERT ON {x}_p" + FIRE),
    on("a partition's partition's", "INSERT INTO {x}_t VALUES (1)", setup="CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
       " CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT PARTITION BY LIST (a); CREATE TABLE {x}_q PARTITION OF {x}_p DEFAULT;"
       " CREATE TRIGGER t BEFORE INSERT ON {x}_q" + FIRE),
    on("a parent's, by its partition", "INSERT INTO {x}_p VALUES (1)", setup="CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
       " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (1); CREATE TRIGGER t AFTER INSERT ON {x}_t" + FIRE),
    on("a child's, by its parent", "UPDATE {x}_t SET a = 2", setup="CREATE TABLE {x}_t (a int);"
       " CREATE TABLE {x}_c () INHERITS ({x}_t); INSERT INTO {x}_c VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_c" + FIRE),
    *(on(f"a foreign key's {words}", text, setup="CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t VALUES (1), (2), (3),"
         " (4); CREATE TABLE {x}_c (a int DEFAULT 4 REFERENCES {x}_t " + action
         + "); INSERT INTO {x}_c VALUES (1), (2), (3); CREATE TRIGGER t BEFORE UPDATE OR DELETE ON {x}_c" + FIRE)
      for words, text, action in (
          ("DELETE CASCADE", "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)", "ON DELETE CASCADE"),
          ("UPDATE CASCADE", "UPDATE {x}_t SET a = a + 10", "ON UPDATE CASCADE"),
          ("SET NULL", "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)", "ON DELETE SET NULL"),
          ("SET DEFAULT", "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)", "ON DELETE SET DEFAULT"))),
    line("WHEN of a trigger", "INSERT INTO {x}_t VALUES (1)", setup=keeper("a int", "bool", "false") + T
         + "CREATE FUNCTION {x}_g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
         " CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW WHEN ({x}_f(NEW.a)) EXECUTE FUNCTION {x}_g()"),
    alone("an event trigger", Query("BEGIN"), "CREATE TABLE {x}_u (a int)", Query("COMMIT"), Query("DROP TABLE {x}_u"),
          setup=keeper(returns="event_trigger", value="").replace("RETURN ;", "")
          + "CREATE EVENT TRIGGER {x}_e ON ddl_command_start EXECUTE FUNCTION {x}_f()"),
]

INSERTED = "INSERT INTO {x}_t VALUES (1)"
SELECTED = "SELECT * FROM {x}_t"
SHARED = keeper("a int", "int", "a", "IMMUTABLE")
RELATIONS = [
    line("a view", "SELECT * FROM {x}_v", setup=keeper() + "CREATE VIEW {x}_v AS SELECT {x}_f()"),
    line("a view of a view", "TABLE {x}_w", setup=keeper() + "CREATE VIEW {x}_v AS SELECT {x}_f() AS a;"
         " CREATE VIEW {x}_w AS SELECT * FROM {x}_v WHERE a = 1"),
    line("a view with a quoted name", 'SELECT * FROM "{x} v"', setup=keeper() + 'CREATE VIEW "{x} v" AS SELECT {x}_f()'),
    line("a view that is updated", "UPDATE {x}_v SET a = 2", setup=keeper() + T
         + "CREATE VIEW {x}_v AS SELECT a FROM {x}_t WHERE {x}_f() = 1"),
    line("a view's check", "INSERT INTO {x}_v VALUES (1)", setup=keeper() + T
         + "CREATE VIEW {x}_v AS SELECT a FROM {x}_t WHERE {x}_f() = 1 WITH CHECK OPTION"),
    line("a rule DO ALSO", INSERTED, setup=keeper() + T + "CREATE RULE r AS ON INSERT TO {x}_t DO ALSO SELECT {x}_f()"),
    line("a rule DO INSTEAD", "UPDATE {x}_t SET a = 1",
         setup=keeper() + T + "CREATE RULE r AS ON UPDATE TO {x}_t DO INSTEAD SELECT {x}_f()"),
    line("a rule's condition", "DELETE FROM {x}_t WHERE a = 1", setup=keeper() + T
         + "CREATE RULE r AS ON DELETE TO {x}_t WHERE {x}_f() = 1 DO INSTEAD NOTHING"),
    line("a policy's USING", SELECTED, setup=keeper() + T + "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY;"
         " CREATE POLICY p ON {x}_t USING ({x}_f() = 1)"),
    line("a policy's WITH CHECK", INSERTED, setup=keeper() + T + "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY;"
         " CREATE POLICY p ON {x}_t USING (true) WITH CHECK ({x}_f() = 1)"),
    line("a policy of a table behind a view", "SELECT * FROM {x}_v", setup=keeper() + T
         + "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {x}_t USING ({x}_f() = 1);"
         " ALTER TABLE {x}_t OWNER TO leak_role; ALTER TABLE {x}_t FORCE ROW LEVEL SECURITY;"
         " CREATE VIEW {x}_v AS SELECT * FROM {x}_t; ALTER VIEW {x}_v OWNER TO leak_role"),
    line("a policy that reads another table", SELECTED, setup=keeper() + T + "CREATE VIEW {x}_w AS SELECT {x}_f() AS a;"
         " ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY;"
         " CREATE POLICY p ON {x}_t USING (EXISTS (SELECT FROM {x}_w w WHERE w.a = 1))"),
    line("a generated column", INSERTED, setup=SHARED
         + "CREATE TABLE {x}_t (a int, b int GENERATED ALWAYS AS ({x}_f(a)) STORED)"),
    line("a default", "INSERT INTO {x}_t DEFAULT VALUES", setup=keeper() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f())"),
    line("a default in UPDATE", "UPDATE {x}_t SET a = DEFAULT", setup=keeper() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f());"
         " INSERT INTO {x}_t VALUES (1)"),
    line("a default in COPY", copied("{x}_t (b)", b"1\n"), setup=keeper() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f(), b int)"),
    line("a check", INSERTED, setup=SHARED + "CREATE TABLE {x}_t (a int CHECK ({x}_f(a) > 0))"),
    line("a check of a partition", INSERTED, setup=SHARED + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
         " CREATE TABLE {x}_p PARTITION OF {x}_t (CHECK ({x}_f(a) > 0)) FOR VALUES IN (1)"),
    line("an index's expression", INSERTED, setup=SHARED + T + "CREATE INDEX ON {x}_t ({x}_f(a))"),
    line("an index's predicate", INSERTED, setup=SHARED + T + "CREATE INDEX ON {x}_t (a) WHERE {x}_f(a) > 0"),
    line("an index's expression, at planning", "EXPLAIN SELECT 1 FROM {x}_t WHERE a = 1", setup=keeper(how="IMMUTABLE")
         + T + "CREATE INDEX ON {x}_t ((a + {x}_f()))"),
    line("an index's expression in a partition", INSERTED, setup=SHARED + "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a);"
         " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES IN (1); CREATE INDEX ON {x}_p ({x}_f(a))"),
    line("a partition key", INSERTED, setup=SHARED + "CREATE TABLE {x}_t (a int) PARTITION BY RANGE ({x}_f(a));"
         " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES FROM (0) TO (9)"),
    line("a partition key, by ON CONFLICT", "INSERT INTO {x}_t VALUES (1) ON CONFLICT DO NOTHING", setup=SHARED
         + "CREATE TABLE {x}_t (a int) PARTITION BY LIST ({x}_f(a)); CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT"),
    line("an exclusion", INSERTED, setup=keeper("a int", "int", "(random() * 1e9)::int", "IMMUTABLE")
         + "CREATE TABLE {x}_t (a int, EXCLUDE USING btree ({x}_f(a) WITH =))"),
    line("a table behind a view behind a function", "SELECT {x}_g()", setup=keeper()
         + "CREATE VIEW {x}_v AS SELECT {x}_f() AS a; CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS"
         " 'SELECT a FROM {x}_v'"),
    line("a column of a domain behind a view", "SELECT a::{x}_d FROM one", setup=DOMAIN, alone=True),
    alone("a foreign table", SELECTED, setup=DOMAIN + "CREATE EXTENSION IF NOT EXISTS file_fdw;"
          " CREATE SERVER {x}_s FOREIGN DATA WRAPPER file_fdw; CREATE FOREIGN TABLE {x}_t (a {x}_d) SERVER {x}_s"
          " OPTIONS (program 'echo 1')"),
    alone("a foreign table, by its parent", SELECTED, setup=DOMAIN + "CREATE EXTENSION IF NOT EXISTS file_fdw;"
          " CREATE SERVER {x}_s FOREIGN DATA WRAPPER file_fdw; CREATE TABLE {x}_t (a {x}_d) PARTITION BY LIST (a);"
          " CREATE FOREIGN TABLE {x}_p PARTITION OF {x}_t DEFAULT SERVER {x}_s OPTIONS (program 'echo 1')"),
]

CLASSES = {"types and casts": TYPES, "operators": OPERATORS, "operator classes": OPCLASSES, "aggregates": AGGREGATES,
           "triggers": TRIGGERS, "relations": RELATIONS}
