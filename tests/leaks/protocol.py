"""Errors, rollbacks, procedures, clients that disconnect, messages of the protocol, and DDL that texts do not show."""

import struct
import time

from leaks.line import KEEP, TRIGGER, By, Leave, Query, Wire, bind, execute, keeper, line, parse, query
from rawclient import FLUSH, SYNC, describe, function_call

LOCK = "SELECT pg_advisory_lock(7)"


def block(words, *statements, **more):
    """Simple Query each: what counts is the order."""
    return line(words, *(Query(sql) for sql in statements), **more)


ERRORS = [
    block("a lock, ROLLBACK", "BEGIN", LOCK, "ROLLBACK"),
    block("a lock, then an error in one Query", f"{LOCK}; SELECT 1/0"),
    line("a lock and an error in one statement", "SELECT 1 / (a - 1) FROM one, pg_advisory_lock(7)"),
    block("setseed, ROLLBACK", "BEGIN", "SELECT setseed(0.42)", "ROLLBACK"),
    block("SET LOCAL seed, ROLLBACK", "BEGIN", "SET LOCAL seed = 0.42", "ROLLBACK"),
    block("SET LOCAL seed, COMMIT", "BEGIN", "SET LOCAL seed = 0.42", "COMMIT"),
    block("PREPARE, ROLLBACK", "BEGIN", "PREPARE {x}_p AS SELECT 1", "ROLLBACK"),
    block("PREPARE, then an error in one Query", "PREPARE {x}_p AS SELECT 1; SELECT 1/0"),
    block("a hidden lock, ROLLBACK TO", "BEGIN", "SAVEPOINT s", "SELECT {x}_f()", "ROLLBACK TO s", "COMMIT",
          setup="CREATE FUNCTION {x}_f() RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_lock(7)'"),
    block("SET, SAVEPOINT, SET, ROLLBACK TO", "BEGIN", "SET work_mem = '77MB'", "SAVEPOINT s", "SET work_mem = '78MB'",
          "ROLLBACK TO s", "COMMIT"),
    block("SAVEPOINT, SET, RELEASE, ROLLBACK TO the outer", "BEGIN", "SAVEPOINT o", "SET app.{x} = 'A'", "SAVEPOINT i",
          "SET app.{x} = 'B'", "ROLLBACK TO i", "RELEASE o", "COMMIT"),
    block("SET, COMMIT AND CHAIN, SET, ROLLBACK", "BEGIN", "SET app.{x} = 'A'", "COMMIT AND CHAIN", "SET app.{x} = 'B'",
          "ROLLBACK"),
    block("SET, COMMIT, error in one Query", "BEGIN; SET app.{x} = 'A'; COMMIT; SELECT 1/0"),
    block("SET after SET LOCAL", "BEGIN", "SET LOCAL work_mem = '1MB'", "SET work_mem = '77MB'", "COMMIT"),
    block("DDL and what it fires, ROLLBACK", "BEGIN", "CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW"
          " EXECUTE FUNCTION {x}_f()", "INSERT INTO {x}_t VALUES (1)", "ROLLBACK",
          setup="CREATE TABLE {x}_t (a int); CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql AS"
          " $k$ BEGIN PERFORM pg_advisory_lock(7); RETURN NEW; END $k$; ALTER TABLE {x}_t OWNER TO trusty"),
    block("a transaction that is prepared while a lock is held", LOCK, "BEGIN", "INSERT INTO plain VALUES (3)",
          "PREPARE TRANSACTION '{x}'", "ROLLBACK PREPARED '{x}'"),
]

PROCEDURES = [
    line("DO with a lock, and an error", "DO $k$ BEGIN PERFORM pg_advisory_lock(7); RAISE 'x'; END $k$"),
    line("DO that catches", "DO $k$ BEGIN BEGIN PERFORM pg_advisory_lock(7); RAISE 'x';"
         " EXCEPTION WHEN OTHERS THEN NULL; END; END $k$"),
    *(line(f"CALL with COMMIT, then {words}", "CALL {x}_p()",
           setup=f"CREATE PROCEDURE {{x}}_p() LANGUAGE plpgsql AS $k$ BEGIN {KEEP} COMMIT; {after} END $k$")
      for words, after in (("an error", "PERFORM 1/0;"), ("ROLLBACK", "SET work_mem = '1MB'; ROLLBACK;"),
                           ("nothing", "NULL;"))),
    line("CALL in CALL", "CALL {x}_q()", setup=f"CREATE PROCEDURE {{x}}_p() LANGUAGE plpgsql AS $k$ BEGIN {KEEP} COMMIT;"
         " PERFORM 1/0; END $k$; CREATE PROCEDURE {x}_q() LANGUAGE plpgsql AS 'BEGIN CALL {x}_p(); END'"),
    line("DO with COMMIT, then an error", f"DO $k$ BEGIN {KEEP} COMMIT; PERFORM 1/0; END $k$"),
    line("CALL with an argument that keeps", "CALL {x}_p({x}_f())",
         setup=keeper() + "CREATE PROCEDURE {x}_p(int) LANGUAGE sql AS 'SELECT 1'"),
]


def leaves(words, *statements, tail=b"", **more):
    return line(words, Leave(lambda names: b"".join(query(names.sql(sql)) for sql in statements) + tail), **more)


DEPARTED = [
    leaves("with a lock", LOCK), leaves("with a lock, in a transaction", "BEGIN", LOCK),
    leaves("with a setting", "SET work_mem = '77MB'"), leaves("with a role", "SET ROLE leak_role"),
    leaves("with a hidden setting", "SELECT {x}_f()", setup=keeper()),
    leaves("with a hidden setting, in a transaction that is over", "BEGIN", "SELECT {x}_f()", "COMMIT", setup=keeper()),
    leaves("with a temporary table", "CREATE TEMP TABLE {x}_t (a int)"), leaves("with LISTEN", "LISTEN {x}_channel"),
    leaves("with a cursor", "DECLARE {x}_c CURSOR WITH HOLD FOR SELECT 1"), leaves("with PREPARE", "PREPARE {x}_p AS SELECT 1"),
    leaves("with setseed", "SELECT setseed(0.42)"),
    leaves("with a lock, and half a message", LOCK, tail=b"Q\0\0\1\0SELECT"),
    leaves("in COPY", LOCK, "COPY plain FROM STDIN"),
    line("in a pipeline without Sync", Leave(lambda names: parse(LOCK) + bind() + execute() + FLUSH)),
    line("in a pipeline without Sync, with a setting",
         Leave(lambda names: parse("SET work_mem = '77MB'") + bind() + execute() + SYNC + parse("SELECT 1"))),
    leaves("while it sleeps", LOCK, "SELECT pg_sleep(0.2)"),
]


def text(value):
    return value.encode()


MESSAGES = [
    line("FunctionCall of set_config", Wire(lambda names: function_call(
        names.oid("'pg_catalog.set_config'::regproc"), (text(f"app.{names.x}"), b"A", b"\0")))),
    line("FunctionCall of a lock", Wire(lambda names: function_call(
        names.oid("'pg_catalog.pg_advisory_lock(bigint)'::regprocedure"), (struct.pack("!q", 7),)))),
    line("FunctionCall of setseed", Wire(lambda names: function_call(
        names.oid("'pg_catalog.setseed'::regproc"), (struct.pack("!d", 0.42),)))),
    line("FunctionCall of a user's function", Wire(lambda names: function_call(
        names.oid("'{x}_f'::regproc"), ())), setup=keeper()),
    line("FunctionCall in a pipeline", Wire(lambda names: parse("SELECT 1") + bind() + execute() + SYNC + function_call(
        names.oid("'{x}_f'::regproc"), ())), setup=keeper()),
    line("Execute of a portal by parts", Wire(lambda names: parse(names.sql(
        "SELECT g, CASE WHEN g = 3 THEN {x}_f() END FROM generate_series(1, 3) g")) + bind() + execute(1) + execute(1)
        + execute(1) + SYNC), setup=keeper()),
    line("a named statement that is run twice", Wire(lambda names: parse(names.sql("SELECT {x}_f()"), "s") + SYNC
         + bind(name="s") + execute() + SYNC + bind(name="s") + execute() + SYNC), setup=keeper()),
    line("EXECUTE of a statement of the protocol", Wire(lambda names: parse(names.sql("SELECT {x}_f()"), "s") + SYNC
         + query("EXECUTE s")), setup=keeper()),
    line("a message after a failed one", Wire(lambda names: parse("SELEKT") + SYNC + parse(names.sql("SELECT {x}_f()"))
         + bind() + execute() + SYNC), setup=keeper()),
    line("a type by its OID in Parse", Wire(lambda names: parse("SELECT $1", types=(names.oid("'{x}_d'::regtype"),))
         + bind(("1",)) + execute() + SYNC), alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
    line("an array's type by its OID in Parse", Wire(lambda names: parse(
        "SELECT $1", types=(names.oid("'{x}_d[]'::regtype"),)) + bind(("{1}",)) + execute() + SYNC), alone=True,
         setup=keeper("a int", "bool", "true") + "CREATE DOMAIN {x}_d AS int CHECK ({x}_f(VALUE))"),
]

TABLE = "CREATE TABLE {x}_t (a int); INSERT INTO {x}_t VALUES (1); ALTER TABLE {x}_t OWNER TO trusty;" + TRIGGER
MAKE = "CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_f()"
INSERT = "INSERT INTO {x}_t VALUES (1)"
REMAKE = "DROP TRIGGER IF EXISTS t ON {x}_t"


def fresh(words, *says, **more):
    """DDL, and then a text that uses the object. The object is dropped before the next round."""
    return line(words, By("_alias", REMAKE), Query("SELECT certified(1)"), *says, setup=TABLE, **more)


DDL = [
    fresh("by an alias of the database", By("_alias", MAKE), INSERT),
    fresh("by another host name", By("_elsewhere", MAKE), INSERT),
    fresh("by an entry in session mode", By("_session", MAKE), INSERT),
    fresh("by DO through an alias", By("_alias", f"DO $k$ BEGIN EXECUTE '{MAKE}'; END $k$"), INSERT),
    fresh("by several statements in one Query", By("_alias", f"SELECT 1; {MAKE}; SELECT 2"), INSERT),
    fresh("in COMMIT PREPARED", Query("BEGIN"), Query(MAKE), Query("PREPARE TRANSACTION '{x}'"),
          Query("COMMIT PREPARED '{x}'"), INSERT),
    fresh("in COMMIT PREPARED of another client", By("_session", f"BEGIN; {MAKE}; PREPARE TRANSACTION '{{x}}'"),
          Query("SELECT certified(1)"), By("_alias", "COMMIT PREPARED '{x}'"), INSERT),
    fresh("in the same write", Wire(lambda names: query(names.sql(MAKE)) + query(names.sql(INSERT)))),
    fresh("in the same pipeline", Wire(lambda names: parse(names.sql(MAKE)) + bind() + execute()
                                       + parse(names.sql(INSERT)) + bind() + execute() + SYNC)),
    fresh("in the same Query", Query(f"{MAKE}; {INSERT}")),
    fresh("between Parse and Execute", Wire(lambda names: parse(names.sql(INSERT), "s") + SYNC), By("_alias", MAKE),
          Wire(lambda names: bind(name="s") + execute() + SYNC)),
    fresh("between two Executes", Wire(lambda names: parse(names.sql(INSERT), "s") + bind(name="s") + execute() + SYNC),
          By("", MAKE), Wire(lambda names: bind(name="s") + execute() + SYNC)),
    fresh("in a transaction, with what it fires", Query("BEGIN"), Query(MAKE), INSERT, Query("COMMIT")),
    line("a function that is replaced", Query("SELECT {x}_g()"), By("_alias", keeper(name="{x}_g").replace(
        "CREATE", "CREATE OR REPLACE", 1)), "SELECT {x}_g()",
        setup="CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION {x}_g() OWNER TO trusty"),
    line("a trigger that is enabled", By("_alias", "ALTER TABLE {x}_t ENABLE TRIGGER t"), INSERT,
         setup=TABLE + MAKE + "; ALTER TABLE {x}_t DISABLE TRIGGER t"),
    line("a function that is renamed", Query("SELECT {x}_g()"), By(
        "_alias", "ALTER FUNCTION {x}_g() RENAME TO {x}_old; ALTER FUNCTION {x}_h() RENAME TO {x}_g"), "SELECT {x}_g()",
        forms=("simple",), setup="CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1';" + keeper(name="{x}_h")
        + "ALTER FUNCTION {x}_g() OWNER TO trusty; ALTER FUNCTION {x}_h() OWNER TO trusty"),
]



def settled():
    """A pause in which another client gets the server, and pgweir reads the catalog."""
    return Wire(lambda names: (time.sleep(0.15), query("SELECT certified(1)"))[1]), By("", "SELECT 1")


def unseen(words, *says, setup="", **more):
    """DDL by a function that makes {x}_g() keep state, in ways that must not go unnoticed; undone before the next round."""
    undo = By("_alias", "CREATE OR REPLACE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    says = [said for one in says for said in ((one,) if isinstance(one, (Query, Wire)) else settled() * 2)]
    return line(words, undo, *settled() * 2, *says, *settled()[1:] * 2, Query("SELECT {x}_g()"), forms=("simple",),
                setup="CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION {x}_g() OWNER TO"
                " trusty; CREATE FUNCTION {x}_ddl() RETURNS int LANGUAGE plpgsql AS $o$ BEGIN EXECUTE $e$"
                + keeper(name="{x}_g").replace("CREATE", "CREATE OR REPLACE", 1) + "$e$; RETURN 1; END $o$;" + setup, **more)


PROCEDURE = "CREATE PROCEDURE {x}_p() LANGUAGE plpgsql AS 'BEGIN PERFORM {x}_ddl(); END';"
LATER = ...  # other clients have used the server meanwhile
DEALLOCATE = Query("DEALLOCATE {x}_p")
HIDDEN_PREPARE = Query("DO $$ BEGIN EXECUTE 'PREPARE {x}_p AS SELECT {x}' || '_ddl()'; END $$")
BY_CODE = [
    unseen("in a query that ts_stat runs", Query("SELECT * FROM ts_stat('SELECT ''a''::tsvector FROM {x}' || '_ddl()')")),
    unseen("in a query that ts_rewrite runs", Query(
        "SELECT ts_rewrite('a', 'SELECT ''a''::tsquery, ''b''::tsquery FROM {x}' || '_ddl()')")),
    unseen("in a query that query_to_xml runs", Query("SELECT query_to_xml('SELECT {x}' || '_ddl()', true, true, '')"),
           rare=True),
    *(unseen(f"under {name} = {value}", Query(f"SET {name} = '{value}'"), Query(text), Query(f"RESET {name}"))
      for name, value, text in (("standard_conforming_strings", "off", "SELECT {x}_ddl()"),
                                ("client_encoding", "SJIS", "SELECT {x}_ddl()"),
                                ("client_encoding", "BIG5", 'SELECT "{x}_ddl"()'),
                                ("client_encoding", "GBK", "SELECT U&\"{x}!005fddl\" UESCAPE '!' ()"))),
    unseen("in EXECUTE", Query("PREPARE {x}_p AS SELECT {x}_ddl()"), LATER, Query("EXECUTE {x}_p"), DEALLOCATE),
    unseen("in EXPLAIN ANALYZE EXECUTE", Query("PREPARE {x}_p AS SELECT {x}_ddl()"), LATER,
           Query("EXPLAIN ANALYZE EXECUTE {x}_p"), DEALLOCATE),
    unseen("in EXECUTE of what DO has prepared", HIDDEN_PREPARE, LATER, Query("EXECUTE {x}_p"), DEALLOCATE),
    unseen("in Bind of what DO has prepared", HIDDEN_PREPARE, LATER,
           Wire(lambda names: bind(name=f"{names.x}_p") + execute() + SYNC), DEALLOCATE),
    unseen("in a statement of the protocol", Wire(lambda names: parse(names.sql("SELECT {x}_ddl()"), "s") + SYNC), LATER,
           Wire(lambda names: bind(name="s") + execute() + SYNC)),
    unseen("in a text of 300 kB", Query(f"SELECT /*{'x' * 300000}*/ {{x}}_ddl()")),
    unseen("in DO", Query("DO $$ BEGIN PERFORM {x}_ddl(); END $$")),
    unseen("in a procedure", Query("CALL {x}_p()"), setup=PROCEDURE),
    unseen("in an argument of CALL", Query("CALL {x}_p({x}_ddl())"),
           setup="CREATE PROCEDURE {x}_p(int) LANGUAGE sql AS 'SELECT 1';"),
    unseen("in a FunctionCall", Wire(lambda names: function_call(names.oid("'{x}_ddl'::regproc"), ()))),
]

LONG = "{x}_" + 70 * "a"
TRIGGERED = ("CREATE FUNCTION {x}_c() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM {x}_ddl(); RETURN NEW; END';"
             " CREATE TABLE {x}_t (a int); CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_c();"
             " CREATE VIEW {x}_v AS SELECT a FROM {x}_t; GRANT ALL ON {x}_t, {x}_v TO PUBLIC;")


def do(words, block, setup="", language="", **more):
    return unseen("in DO, " + words, Query(f"DO $d$ {block} $d$ {language}"), setup=setup, **more)


BY_DO = [
    do("by a trigger", "BEGIN INSERT INTO {x}_t VALUES (1); END", TRIGGERED, "LANGUAGE plpgsql"),
    do("by a view's trigger", "BEGIN INSERT INTO \"{x}_v\" VALUES (1); END", TRIGGERED),
    do("by a view", "BEGIN PERFORM * FROM {x}_v; END", "CREATE VIEW {x}_v AS SELECT {x}_ddl(); GRANT SELECT ON {x}_v TO PUBLIC;"),
    do("by a default", "BEGIN INSERT INTO {x}_t DEFAULT VALUES; END",
       "CREATE TABLE {x}_t (a int DEFAULT {x}_ddl()); GRANT ALL ON {x}_t TO PUBLIC;"),
    do("in a declaration", "DECLARE a int := {x}_ddl(); BEGIN END"),
    do("in an exception", "BEGIN PERFORM 1/0; EXCEPTION WHEN OTHERS THEN PERFORM {x}_ddl(); END"),
    do("behind a label and a comment", "<<a>> BEGIN /* /* ' */ */ PERFORM -- '\n {x}_ddl(); END a"),
    do("by a name with an escape", "BEGIN PERFORM U&\"{x}!005fddl\" UESCAPE '!' (); END"),
    do("by a name that is too long", "BEGIN PERFORM " + LONG + "(); END",
       "CREATE FUNCTION " + LONG + "() RETURNS int LANGUAGE sql AS 'SELECT {x}_ddl()';"),
    do("between backslashes", "BEGIN PERFORM '\\', {x}_ddl(), '\\'; END"),
    do("by CALL", "BEGIN CALL {x}_p(); END", PROCEDURE),
    do("by a cast", "BEGIN PERFORM 1::{x}_d; END", "CREATE DOMAIN {x}_d AS int CHECK ({x}_ddl() = VALUE);", alone=True),
    do("by code in a string", "BEGIN EXECUTE 'SELECT {x}' || '_ddl()'; END"),
    unseen("in DO as a plain string", Query("DO 'BEGIN PERFORM ''x'', {x}_ddl(); END' LANGUAGE plpgsql")),
    unseen("in DO as an escape string", Query("DO LANGUAGE plpgsql E'BEGIN PERFORM {x}\\x5fddl(); END'")),
    unseen("in a name that is too long", Query(f"SELECT {LONG}()"),
           setup="CREATE FUNCTION " + LONG + "() RETURNS int LANGUAGE sql AS 'SELECT {x}_ddl()';"),
    unseen("in a procedure that has just been made", Query(
        "CREATE OR REPLACE PROCEDURE {x}_q() LANGUAGE plpgsql AS 'BEGIN PERFORM {x}_ddl(); END'"), Query("CALL {x}_q()")),
    unseen("in a procedure that was made in the same Query", Query(
        "CREATE OR REPLACE PROCEDURE {x}_q() LANGUAGE plpgsql AS 'BEGIN PERFORM {x}_ddl(); END'; CALL {x}_q()")),
]

PREPARE_LOCK = Query("PREPARE {x}_p AS SELECT pg_advisory_lock(7)")


def used(*before):
    """Bind and Execute of {x}_p."""
    return Wire(lambda names: b"".join(said(names) for said in before) + bind(name=f"{names.x}_p") + execute() + SYNC)


OF_SQL = [
    line("Bind of what PREPARE made, later", PREPARE_LOCK, *settled() * 2, used()),
    line("Describe and Bind of it, later", PREPARE_LOCK, *settled() * 2,
         used(lambda names: describe("S", f"{names.x}_p"))),
    line("Bind of what DO has prepared, later", Query(
        "DO $$ BEGIN EXECUTE 'PREPARE {x}_p AS SELECT pg_advisory_lock(7)'; END $$"), *settled() * 2, used()),
    line("Bind of it in a transaction", Query("PREPARE {x}_p AS SELECT set_config('app.{x}', 'A', false)"),
         *settled() * 2, Query("BEGIN"), used(), Query("COMMIT")),
    line("EXECUTE of it, later", PREPARE_LOCK, *settled() * 2, Query("EXECUTE {x}_p")),
]

HOSTILE = [
    block(f"{words}, and a lock", *settings, LOCK) for words, settings in (
        ("statement_timeout", ("SET statement_timeout = 1",)), ("lock_timeout", ("SET lock_timeout = 1",)),
        ("default_transaction_read_only", ("SET default_transaction_read_only = on",)),
        ("a deferrable default", ("SET default_transaction_isolation = serializable",
                                  "SET default_transaction_read_only = on", "SET default_transaction_deferrable = on")),
        ("jit_above_cost", ("SET jit_above_cost = 0",)), ("log_statement", ("SET client_min_messages = error",)),
        ("an encoding", ("SET client_encoding = SJIS",)), ("strings", ("SET standard_conforming_strings = off",)),
        ("a role without rights", ("SET ROLE leak_role",)), ("many settings", tuple(
            f"SET app.{{x}}_{n} = 'A'" for n in range(40))))
] + [
    block("search_path with functions of the clean", "SET search_path = {x}_s, pg_catalog", LOCK, "SET work_mem = '77MB'",
          alone=True, setup="CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;"
          + "".join(keeper(args, returns, value, name="{x}_s." + name) for name, args, returns, value in (
              ("pg_advisory_unlock_all", "", "int", "1"), ("setseed", "a float8", "int", "1"),
              ("current_setting", "a text, b bool", "text", "''"), ("count", "a int", "bigint", "0"),
              ("uuid_hash", "a uuid", "int", "1")))),
    block("pg_temp with functions of the clean", "CREATE FUNCTION pg_temp.set_config(text, text, bool) RETURNS text LANGUAGE"
          " plpgsql AS $k$ BEGIN RETURN 'x'; END $k$", "SET search_path = pg_temp, public", LOCK),
    block("search_path of an operator", "SET search_path = {x}_s, pg_catalog", "SET work_mem = '77MB'", alone=True,
          setup="CREATE SCHEMA {x}_s; GRANT ALL ON SCHEMA {x}_s TO PUBLIC;" + keeper("a text, b text", "bool", "false",
          name="{x}_s.eq") + "CREATE OPERATOR {x}_s.= (LEFTARG = text, RIGHTARG = text, FUNCTION = {x}_s.eq)"),
]


def sequence(words, *says, setup="", **more):
    return line(words, *says, setup="CREATE SEQUENCE {x}_s START 700;" + setup, sequence="{x}_s", alone=True, **more)


SEQUENCES = [
    sequence("nextval", "SELECT nextval('{x}_s')"),
    sequence("nextval, ROLLBACK", Query("BEGIN"), "SELECT nextval('{x}_s')", Query("ROLLBACK")),
    sequence("setval", "SELECT setval('{x}_s', 800)"),
    sequence("a column's default", "INSERT INTO {x}_t (b) VALUES (1)",
             setup="CREATE TABLE {x}_t (a int DEFAULT nextval('{x}_s'), b int)"),
    sequence("a domain's default", "INSERT INTO {x}_t (b) VALUES (1)",
             setup="CREATE DOMAIN {x}_d AS int DEFAULT nextval('{x}_s'); CREATE TABLE {x}_t (a {x}_d, b int)"),
    sequence("a trigger", "INSERT INTO {x}_t VALUES (1)", setup="CREATE FUNCTION {x}_f() RETURNS trigger LANGUAGE plpgsql"
             " AS $k$ BEGIN NEW.a = nextval('{x}_s'); RETURN NEW; END $k$; CREATE TABLE {x}_t (a int);"
             " CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_f()"),
    sequence("a view", "SELECT * FROM {x}_v", setup="CREATE VIEW {x}_v AS SELECT nextval('{x}_s')"),
    sequence("a rule", "INSERT INTO {x}_t VALUES (1)", setup="CREATE TABLE {x}_t (a int);"
             " CREATE RULE r AS ON INSERT TO {x}_t DO ALSO SELECT nextval('{x}_s')"),
    sequence("a domain's check", "SELECT 1::{x}_d", setup="CREATE DOMAIN {x}_d AS int CHECK (nextval('{x}_s') > 0)"),
    sequence("a function", "SELECT {x}_f()",
             setup="CREATE FUNCTION {x}_f() RETURNS bigint LANGUAGE sql AS $k$ SELECT nextval('{x}_s') $k$"),
    sequence("serial and a client that leaves", Leave(lambda names: query(names.sql("SELECT nextval('{x}_s')")))),
    sequence("COPY into a table with a default", Query("COPY (SELECT nextval('{x}_s')) TO STDOUT")),
]

CLASSES = {"errors and rollbacks": ERRORS, "procedures": PROCEDURES, "clients that leave": DEPARTED,
           "messages of the protocol": MESSAGES, "DDL that is not seen": DDL, "DDL by code": BY_CODE, "DDL by DO": BY_DO,
           "statements of SQL in messages": OF_SQL, "hostile settings": HOSTILE,
           "sequences": SEQUENCES}
