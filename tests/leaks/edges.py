"""References between catalogs, and objects in which code that keeps state is reached by each of them.

`RECIPES` makes an object for a reference; the other tables say why there is none. A reference that no table knows is
one of a new major version: the test demands a recipe for it.
"""

from dataclasses import dataclass

LOCK = "PERFORM pg_catalog.pg_advisory_lock(77);"
STATES = (LOCK, "PERFORM pg_catalog.set_config('app.{x}', 'A', false);", "PERFORM pg_catalog.set_config('role', 'leak_role', false);")


@dataclass(frozen=True)
class Recipe:
    """`{body}` is replaced in the function that is reached. The statements of `fires` are run in this order."""

    fires: tuple
    setup: str
    # The state that is left, if it can't be any of STATES.
    state: str = ""
    # Inside another function's body these texts would not work.
    alone: bool = False


def recipe(*fires, setup, **more):
    return Recipe(fires, setup, **more)


def fn(args="", returns="int", value="1", how="", name="{x}_f"):
    return (f"CREATE FUNCTION {name}({args}) RETURNS {returns} LANGUAGE plpgsql {how} AS"
            f" $k$ BEGIN {{body}} RETURN {value}; END $k$; ")


def clean(args, returns, value, name, how="IMMUTABLE"):
    return f"CREATE FUNCTION {name}({args}) RETURNS {returns} LANGUAGE plpgsql {how} AS $k$ BEGIN RETURN {value}; END $k$; "


TRIGGER = fn(returns="trigger", value="COALESCE(NEW, OLD)")
FIRE = " FOR EACH ROW EXECUTE FUNCTION {x}_f();"
DOMAIN = fn("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE)); "
T = "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); "
INSERT = "INSERT INTO {x}_t VALUES (1)"
# An operator's function, its symbol, its commutator.
SYMBOLS = (("lt", "<", ">"), ("le", "<=", ">="), ("eq", "=", "="), ("ge", ">=", "<="), ("gt", ">", "<"))


def own_class(reached="cmp"):
    """A row type with operators and a default class of its own; one of their functions is the one that is reached."""
    made = "CREATE TYPE {x}_r AS (a int); "
    for name, symbol, other in SYMBOLS:
        make = fn if reached == name else clean
        made += make("a {x}_r, b {x}_r", "bool", f"a.a {symbol} b.a", **{"name": f"{{x}}_{name}", "how": "IMMUTABLE"})
        made += (f"CREATE OPERATOR {symbol} (LEFTARG = {{x}}_r, RIGHTARG = {{x}}_r, FUNCTION = {{x}}_{name},"
                 f" COMMUTATOR = {other}{', MERGES' if symbol == '=' else ''}); ")
    make = fn if reached == "cmp" else clean
    made += make("a {x}_r, b {x}_r", "int", "btint4cmp(a.a, b.a)", **{"name": "{x}_cmp", "how": "IMMUTABLE"})
    return made + ("CREATE OPERATOR CLASS {x}_o DEFAULT FOR TYPE {x}_r USING btree AS OPERATOR 1 <, OPERATOR 2 <=,"
                   " OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_cmp({x}_r, {x}_r); ")


ROWS = "(SELECT ROW(g)::{x}_r AS v FROM generate_series(1, 3) g) x"
SORT = f"SELECT v FROM {ROWS} ORDER BY v"
INT_CLASS = (fn("a int, b int", "int", "btint4cmp(a, b)", "IMMUTABLE") + "CREATE OPERATOR CLASS {x}_o FOR TYPE int USING btree"
             " AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 {x}_f(int, int); ")
SUM = "SFUNC = int4pl, STYPE = int, INITCOND = 0"
WINDOW = "SELECT {x}_a(a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM generate_series(1, 5) a"
AGGREGATE = "SELECT {x}_a(a) FROM generate_series(1, 3) a"
PARTS = "CREATE TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t DEFAULT; "
KEYS = "CREATE TABLE {x}_t (a int PRIMARY KEY); INSERT INTO {x}_t SELECT generate_series(1, 99); "
CASCADE = (TRIGGER + KEYS + "CREATE TABLE {x}_c (a int REFERENCES {x}_t ON DELETE CASCADE); INSERT INTO {x}_c SELECT a FROM {x}_t;"
           " CREATE TRIGGER t BEFORE DELETE ON {x}_c" + FIRE)
DELETE = "DELETE FROM {x}_t WHERE a = (SELECT min(a) FROM {x}_t)"
REFERENCE = (own_class("eq") + "CREATE TABLE {x}_t (v {x}_r PRIMARY KEY); INSERT INTO {x}_t VALUES (ROW(1)), (ROW(2));"
             " CREATE TABLE {x}_c (v {x}_r REFERENCES {x}_t ON UPDATE CASCADE);"
             " INSERT INTO {x}_c VALUES (ROW(2)); ")
FILE = ("CREATE EXTENSION IF NOT EXISTS file_fdw; CREATE SERVER {x}_s FOREIGN DATA WRAPPER file_fdw;"
        " CREATE FOREIGN TABLE {x}_t (a {x}_d) SERVER {x}_s OPTIONS (program 'echo 1'); ")
CAST = ("CREATE TYPE {x}_c AS (a int); " + fn("a int", "{x}_c", "ROW(1)::{x}_c") + "CREATE CAST (int AS {x}_c)"
        " WITH FUNCTION {x}_f(int); ")
OPERATOR = fn("a int, b text", "bool", "true") + "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = text, FUNCTION = {x}_f); "
VALIDATED = (fn("a text[], b oid", "bool", "true") + "CREATE FOREIGN DATA WRAPPER {x}_w VALIDATOR {x}_f;"
             " GRANT USAGE ON FOREIGN DATA WRAPPER {x}_w TO PUBLIC; ")

RECIPES = {
    "pg_proc.prorettype": recipe("SELECT {x}_g()", setup=DOMAIN + clean("", "{x}_d", "1", "{x}_g", "VOLATILE")),
    "pg_proc.proargtypes": recipe("SELECT {x}_g(1)", setup=DOMAIN + clean("a {x}_d", "int", "1", "{x}_g")),
    "pg_proc.proallargtypes": recipe("SELECT {x}_g()", setup=DOMAIN + "CREATE FUNCTION {x}_g(OUT o {x}_d, OUT p int)"
                                     " LANGUAGE plpgsql AS 'BEGIN o := 1; END'; "),
    "pg_proc.provariadic": recipe("SELECT {x}_g(1, 2)", setup=DOMAIN + clean("VARIADIC a {x}_d[]", "int", "1", "{x}_g")),
    "pg_type.typrelid": recipe("SELECT '(1)'::{x}_c", setup=DOMAIN + "CREATE TYPE {x}_c AS (a {x}_d); "),
    "pg_type.typelem": recipe("SELECT '{1}'::{x}_d[]", setup=DOMAIN),
    "pg_type.typarray": recipe("SELECT '{1}'::_{x}_d", setup=DOMAIN),
    "pg_type.typbasetype": recipe("SELECT 1::{x}_e", setup=DOMAIN + "CREATE DOMAIN {x}_e AS {x}_d; "),
    "pg_attrdef.adrelid": recipe("INSERT INTO {x}_t DEFAULT VALUES",
                                 setup=fn() + "CREATE TABLE {x}_t (a int DEFAULT {x}_f()); "),
    "pg_constraint.conrelid": recipe(INSERT, setup=fn("a int", "bool", "true") + "CREATE TABLE {x}_t (a int CHECK ({x}_f(a))); "),
    "pg_constraint.contypid": recipe("SELECT 1::{x}_d", setup=DOMAIN),
    "pg_constraint.conindid": recipe(INSERT, setup=fn("a int", "int", "(random() * 1e9)::int", "IMMUTABLE")
                                     + "CREATE TABLE {x}_t (a int, EXCLUDE USING btree ({x}_f(a) WITH =)); "),
    "pg_constraint.conparentid": recipe(INSERT, setup=fn("a int", "bool", "true") + PARTS
                                        + "ALTER TABLE {x}_t ADD CHECK ({x}_f(a)); "),
    "pg_constraint.confrelid": recipe(DELETE, setup=CASCADE, state=LOCK),
    **{f"pg_constraint.{column}": recipe(fires, setup=REFERENCE, state=LOCK) for column, fires in (
        ("conpfeqop", "INSERT INTO {x}_c VALUES (ROW(1))"),
        ("conffeqop", "UPDATE {x}_c SET v = ROW((v).a)"))},
    "pg_constraint.conexclop": recipe("INSERT INTO {x}_t VALUES (ROW(1))", setup=own_class("eq") + "CREATE TABLE {x}_t"
                                      " (v {x}_r, EXCLUDE USING btree (v WITH =)); INSERT INTO {x}_t VALUES (ROW(1)); ",
                                      state=LOCK, alone=True),
    "pg_attribute.attrelid": recipe(INSERT, setup=fn("a int", "int", "a", "IMMUTABLE")
                                    + "CREATE TABLE {x}_t (a int, b int GENERATED ALWAYS AS ({x}_f(a)) STORED); "),
    "pg_attribute.atttypid": recipe(INSERT, setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d); "),
    "pg_class.reltype": recipe("SELECT '(1)'::{x}_t", setup=DOMAIN + "CREATE TABLE {x}_t (a {x}_d); "),
    "pg_class.reloftype": recipe(INSERT, setup=DOMAIN + "CREATE TYPE {x}_c AS (a {x}_d); CREATE TABLE {x}_t OF {x}_c; "),
    "pg_index.indrelid": recipe(INSERT, setup=fn("a int", "int", "a", "IMMUTABLE") + T + "CREATE INDEX ON {x}_t ({x}_f(a)); "),
    "pg_index.indexrelid": recipe(INSERT, setup=fn("a int", "bool", "true", "IMMUTABLE") + T
                                  + "CREATE INDEX ON {x}_t (a) WHERE {x}_f(a); "),
    "pg_index.indclass": recipe(INSERT, setup=INT_CLASS + T + "CREATE INDEX ON {x}_t (a {x}_o); "),
    "pg_inherits.inhparent": recipe(INSERT, setup=TRIGGER + PARTS + "CREATE TRIGGER t BEFORE INSERT ON {x}_p" + FIRE),
    "pg_inherits.inhrelid": recipe("UPDATE {x}_t SET a = 2", setup=TRIGGER + "CREATE TABLE {x}_t (a int); CREATE TABLE {x}_c ()"
                                   " INHERITS ({x}_t); INSERT INTO {x}_c VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON {x}_c" + FIRE),
    "pg_partitioned_table.partrelid": recipe(INSERT, setup=fn("a int", "int", "a", "IMMUTABLE") + "CREATE TABLE {x}_t (a int)"
                                             " PARTITION BY RANGE ({x}_f(a)); CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES"
                                             " FROM (0) TO (9); "),
    "pg_partitioned_table.partdefid": recipe(INSERT, setup=TRIGGER + PARTS + "CREATE TRIGGER t BEFORE INSERT ON {x}_p" + FIRE),
    "pg_partitioned_table.partclass": recipe(INSERT, setup=INT_CLASS + "CREATE TABLE {x}_t (a int) PARTITION BY RANGE (a {x}_o);"
                                             " CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES FROM (0) TO (9); "),
    "pg_rewrite.ev_class": recipe("SELECT * FROM {x}_v", setup=fn() + "CREATE VIEW {x}_v AS SELECT {x}_f(); "),
    "pg_trigger.tgrelid": recipe(INSERT, setup=TRIGGER + T + "CREATE TRIGGER t BEFORE INSERT ON {x}_t" + FIRE),
    "pg_trigger.tgparentid": recipe("INSERT INTO {x}_p VALUES (1)",
                                    setup=TRIGGER + PARTS + "CREATE TRIGGER t AFTER INSERT ON {x}_t" + FIRE),
    "pg_trigger.tgfoid": recipe("TRUNCATE {x}_t", setup=TRIGGER + T + "CREATE TRIGGER t AFTER TRUNCATE ON {x}_t"
                                " FOR EACH STATEMENT EXECUTE FUNCTION {x}_f(); "),
    "pg_trigger.tgconstrrelid": recipe("TRUNCATE {x}_t CASCADE", setup=TRIGGER + KEYS + "CREATE TABLE {x}_c (a int REFERENCES {x}_t);"
                                       " CREATE TRIGGER t AFTER TRUNCATE ON {x}_c FOR EACH STATEMENT EXECUTE FUNCTION {x}_f(); "),
    "pg_trigger.tgconstrindid": recipe(DELETE, setup=CASCADE, state=LOCK),
    "pg_trigger.tgconstraint": recipe(INSERT, setup=TRIGGER + T + "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {x}_t"
                                      " DEFERRABLE INITIALLY DEFERRED" + FIRE),
    "pg_policy.polrelid": recipe("SELECT * FROM {x}_t", setup=fn() + T + "ALTER TABLE {x}_t ENABLE ROW LEVEL SECURITY;"
                                 " CREATE POLICY p ON {x}_t USING ({x}_f() = 1); "),
    "pg_statistic_ext.stxrelid": recipe("SELECT * FROM {x}_t WHERE a = 1", setup=fn(how="IMMUTABLE") + T
                                        + "CREATE STATISTICS {x}_s ON (a + {x}_f()) FROM {x}_t; ANALYZE {x}_t; "),
    "pg_operator.oprcode": recipe("SELECT 1 === 'a'::text", setup=OPERATOR),
    "pg_operator.oprleft": recipe("SELECT '1' === 2", setup=DOMAIN + clean("a {x}_d, b int", "int", "1", "{x}_g")
                                  + "CREATE OPERATOR === (LEFTARG = {x}_d, RIGHTARG = int, FUNCTION = {x}_g); "),
    "pg_operator.oprright": recipe("SELECT 2 === '1'", setup=DOMAIN + clean("a int, b {x}_d", "int", "1", "{x}_g")
                                   + "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = {x}_d, FUNCTION = {x}_g); "),
    "pg_operator.oprresult": recipe("SELECT 2 === 1", setup=DOMAIN + clean("a int, b int", "{x}_d", "1", "{x}_g", "VOLATILE")
                                    + "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_g); "),
    "pg_operator.oprnegate": recipe("SELECT 1 FROM one WHERE NOT (a === 2)", setup=clean("a int, b int", "bool", "false", "{x}_g")
                                    + fn("a int, b int", "bool", "true")
                                    + "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_g, NEGATOR = !==);"
                                    " CREATE OPERATOR !== (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_f, NEGATOR = ===); "),
    "pg_operator.oprcom": recipe("SELECT 1 FROM {x}_t WHERE 5 <<< a", setup=fn("a int, b int", "bool", "a > b", "IMMUTABLE")
                                 + "CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt, COMMUTATOR = >>>,"
                                 " RESTRICT = scalarltsel); CREATE OPERATOR >>> (LEFTARG = int, RIGHTARG = int, FUNCTION = {x}_f,"
                                 " COMMUTATOR = <<<, RESTRICT = scalargtsel); CREATE TABLE {x}_t AS SELECT g % 5 AS a FROM"
                                 " generate_series(1, 1000) g; ANALYZE {x}_t; "),
    **{f"pg_opclass.{column}": recipe(SORT, setup=own_class()) for column in ("opcfamily", "opcintype")},
    **{f"pg_amproc.{column}": recipe(text, setup=own_class()) for column, text in (
        ("amprocfamily", f"SELECT DISTINCT v FROM {ROWS}"), ("amproclefttype", f"SELECT v FROM {ROWS} GROUP BY v"),
        ("amprocrighttype", f"SELECT rank() OVER (ORDER BY v) FROM {ROWS}"), ("amproc", SORT))},
    **{f"pg_amop.{column}": recipe(text, setup=own_class("eq")) for column, text in (
        ("amopfamily", f"SELECT v FROM {ROWS} WHERE (v, 1) = (ROW(1)::{{x}}_r, 1)"),
        ("amoplefttype", f"SELECT DISTINCT v FROM {ROWS}"), ("amoprighttype", f"SELECT v FROM {ROWS} GROUP BY v"),
        ("amopopr", f"SELECT 1 FROM {ROWS} WHERE v IN (SELECT v FROM {ROWS.replace(' x', ' y')})"))},
    "pg_aggregate.aggfnoid": recipe(AGGREGATE, setup=fn("a int, b int")
                                    + "CREATE AGGREGATE {x}_a (int) (SFUNC = {x}_f, STYPE = int, INITCOND = 0); "),
    "pg_aggregate.aggtransfn": recipe("SELECT {x}_a(DISTINCT a) FROM one", setup=fn("a int, b int")
                                      + "CREATE AGGREGATE {x}_a (int) (SFUNC = {x}_f, STYPE = int, INITCOND = 0); "),
    "pg_aggregate.aggfinalfn": recipe(AGGREGATE, setup=fn("a int")
                                      + f"CREATE AGGREGATE {{x}}_a (int) ({SUM}, FINALFUNC = {{x}}_f); "),
    "pg_aggregate.aggcombinefn": recipe(
        "SET enable_partitionwise_aggregate = on", "SELECT {x}_a(a) FROM {x}_t", alone=True,
        setup=fn("a int, b int", how="PARALLEL SAFE") + f"CREATE AGGREGATE {{x}}_a (int) ({SUM}, COMBINEFUNC = {{x}}_f,"
        " PARALLEL = SAFE); CREATE TABLE {x}_t (a int) PARTITION BY LIST (a); CREATE TABLE {x}_p PARTITION OF {x}_t FOR VALUES"
        " IN (1); CREATE TABLE {x}_q PARTITION OF {x}_t FOR VALUES IN (2); INSERT INTO {x}_t SELECT 1 + g % 2 FROM"
        " generate_series(1, 9999) g; ANALYZE {x}_t; "),
    "pg_aggregate.aggmtransfn": recipe(WINDOW, setup=fn("a int, b int", "int", "a", "STRICT") + f"CREATE AGGREGATE {{x}}_a (int)"
                                       f" ({SUM}, MSFUNC = {{x}}_f, MINVFUNC = int4mi, MSTYPE = int, MINITCOND = 0); "),
    "pg_aggregate.aggminvtransfn": recipe(WINDOW, setup=fn("a int, b int", "int", "a", "STRICT") + f"CREATE AGGREGATE {{x}}_a (int)"
                                          f" ({SUM}, MSFUNC = int4pl, MINVFUNC = {{x}}_f, MSTYPE = int, MINITCOND = 0); "),
    "pg_aggregate.aggmfinalfn": recipe(WINDOW, setup=fn("a int") + f"CREATE AGGREGATE {{x}}_a (int) ({SUM}, MSFUNC = int4pl,"
                                       " MINVFUNC = int4mi, MSTYPE = int, MINITCOND = 0, MFINALFUNC = {x}_f); "),
    "pg_aggregate.aggtranstype": recipe(AGGREGATE, setup=DOMAIN + clean("a {x}_d, b int", "{x}_d", "a", "{x}_g")
                                        + "CREATE AGGREGATE {x}_a (int) (SFUNC = {x}_g, STYPE = {x}_d, INITCOND = 0); "),
    "pg_aggregate.aggmtranstype": recipe(
        WINDOW, setup=DOMAIN + clean("a {x}_d, b int", "{x}_d", "a", "{x}_g") + clean("a {x}_d", "int", "1", "{x}_last")
        + f"CREATE AGGREGATE {{x}}_a (int) ({SUM}, MSFUNC = {{x}}_g, MINVFUNC = {{x}}_g, MSTYPE = {{x}}_d, MINITCOND = 0,"
        " MFINALFUNC = {x}_last); "),
    "pg_cast.castsource": recipe("SELECT a::{x}_c FROM one", setup=CAST),
    "pg_cast.casttarget": recipe("SELECT CAST(1 AS {x}_c)", setup=CAST),
    "pg_cast.castfunc": recipe(INSERT, setup=CAST.replace("FUNCTION {x}_f(int)", "FUNCTION {x}_f(int) AS ASSIGNMENT")
                               + "CREATE TABLE {x}_t (a {x}_c); "),
    "pg_range.rngtypid": recipe("SELECT '[1,2]'::{x}_g", setup=DOMAIN + "CREATE TYPE {x}_g AS RANGE (subtype = {x}_d); "),
    "pg_range.rngsubtype": recipe("SELECT '{\"[1,2]\"}'::{x}_g[]",
                                  setup=DOMAIN + "CREATE TYPE {x}_g AS RANGE (subtype = {x}_d); "),
    "pg_range.rngmultitypid": recipe("SELECT '{[1,2]}'::{x}_m", setup=DOMAIN
                                     + "CREATE TYPE {x}_g AS RANGE (subtype = {x}_d, multirange_type_name = {x}_m); "),
    "pg_range.rngsubopc": recipe("SELECT {x}_g(1, 2)", setup=INT_CLASS
                                 + "CREATE TYPE {x}_g AS RANGE (subtype = int, subtype_opclass = {x}_o); "),
    "pg_range.rngsubdiff": recipe("INSERT INTO {x}_t SELECT {x}_g(g, g + 1) FROM generate_series(1, 400) g",
                                  setup=fn("a int, b int", "float8", "a - b", "IMMUTABLE") + "CREATE TYPE {x}_g AS RANGE"
                                  " (subtype = int, subtype_diff = {x}_f); CREATE TABLE {x}_t (a {x}_g);"
                                  " CREATE INDEX ON {x}_t USING gist (a); "),
    "pg_foreign_data_wrapper.fdwvalidator": recipe(
        "BEGIN", "CREATE SERVER {x}_s FOREIGN DATA WRAPPER {x}_w OPTIONS (a 'b')", "ROLLBACK", setup=VALIDATED, state=LOCK,
        alone=True),
    "pg_foreign_server.srvfdw": recipe("BEGIN", "ALTER SERVER {x}_s OPTIONS (c 'd')", "ROLLBACK", state=LOCK, alone=True,
                                       setup=VALIDATED + "CREATE SERVER {x}_s FOREIGN DATA WRAPPER {x}_w;"
                                       " ALTER SERVER {x}_s OWNER TO trusty; "),
    **{f"pg_foreign_table.{column}": recipe("SELECT * FROM {x}_t", setup=DOMAIN + FILE) for column in ("ftrelid", "ftserver")},
    "pg_event_trigger.evtfoid": recipe("BEGIN", "CREATE TABLE {x}_u (a int)", "ROLLBACK", state=LOCK, alone=True,
                                       setup=fn(returns="event_trigger", value="").replace("RETURN ;", "")
                                       + "CREATE EVENT TRIGGER {x}_e ON ddl_command_start EXECUTE FUNCTION {x}_f(); "),
}

# Their functions run in a query that PostgreSQL itself makes, as the table's owner.
AS_OWNER = {"pg_constraint.conpfeqop", "pg_constraint.confrelid", "pg_trigger.tgconstrindid"}

IN_C = "its function takes or returns `internal` or `cstring`, so that it is in C: an uncertified C function is opaque"
# Columns of these catalogs refer to no code.
RECORDS = {
    "pg_auth_members": "memberships", "pg_db_role_setting": "settings at login", "pg_default_acl": "privileges",
    "pg_depend": "a record for DROP", "pg_shdepend": "a record for DROP", "pg_description": "comments",
    "pg_shdescription": "comments", "pg_seclabel": "labels", "pg_shseclabel": "labels", "pg_init_privs": "privileges",
    "pg_extension": "a record for DROP and pg_dump", "pg_largeobject": "data", "pg_largeobject_metadata": "data",
    "pg_publication": "read by logical decoding, in walsenders", "pg_publication_rel": "read by logical decoding, in walsenders",
    "pg_publication_namespace": "read by logical decoding, in walsenders",
    "pg_subscription": "read by apply workers", "pg_subscription_rel": "read by apply workers",
    "pg_statistic": "numbers; what runs are the text's own operators", "pg_statistic_ext_data": "numbers",
    "pg_enum": "labels", "pg_sequence": "numbers; sequences have a class of their own in test_leaks.py",
    "pg_user_mapping": "options of foreign servers", "pg_database": "defaults of sessions", "pg_tablespace": "files",
    "pg_conversion": IN_C, "pg_language": IN_C, "pg_am": IN_C, "pg_transform": IN_C,
    "pg_ts_parser": IN_C, "pg_ts_template": IN_C, "pg_ts_dict": IN_C, "pg_ts_config": IN_C, "pg_ts_config_map": IN_C,
}
# Rows of these catalogs run no code, whichever column refers to them.
TARGETS = {
    "pg_authid": "a role", "pg_namespace": "a schema", "pg_collation": "a collation: its code is the library's",
    "pg_tablespace": "a place for files", "pg_database": "a database", "pg_am": IN_C, "pg_language": IN_C,
    "pg_extension": "a record", "pg_parameter_acl": "privileges",
    "pg_attribute": "column numbers of a relation that has a reference of its own",
}
# For these columns of the other catalogs, no object is made.
NOT_BUILT = {
    "pg_proc.prosupport": IN_C, "pg_proc.protrftypes": "no language at hand has transforms",
    **{f"pg_type.{column}": IN_C for column in ("typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout",
                                                "typanalyze", "typsubscript")},
    "pg_constraint.conppeqop": "the key that is referred to is compared as bytes",
    "pg_class.reltoastrelid": "data", "pg_class.relrewrite": "set within a rewrite only",
    "pg_operator.oprrest": IN_C, "pg_operator.oprjoin": IN_C,
    "pg_opclass.opckeytype": "of GiST, GIN and BRIN classes, whose functions are in C",
    "pg_amop.amopsortfamily": "of GiST classes, whose functions are in C",
    "pg_aggregate.aggserialfn": IN_C, "pg_aggregate.aggdeserialfn": IN_C,
    "pg_aggregate.aggsortop": "it takes the first row of an index, and calls nothing",
    "pg_range.rngcanonical": "it takes a type that is not whole yet: only C may",
    "pg_foreign_data_wrapper.fdwhandler": IN_C,
}


def why_not(table, column, target):
    """Why no object is made for a reference; None if one must be."""
    return RECORDS.get(table) or TARGETS.get(target) or NOT_BUILT.get(f"{table}.{column}")
