"""Catalogs that are changed without DDL, and objects of PostgreSQL's own that a superuser has changed."""

from leaks.line import KEEP, By, Query, keeper, line
from leaks.protocol import settled

LOCKS = "SELECT 1 FROM pg_advisory_lock(7)"
CHANGE = f"UPDATE pg_catalog.pg_proc SET prosrc = $q${LOCKS}$q$ WHERE proname = '{{x}}_g'"


def changed(words, *says, setup):
    """A client's text makes {x}_g() keep state; undone before the next round."""
    undo = By("_alias", "CREATE OR REPLACE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    return line(words, undo, *settled() * 2, *says, *settled() * 2, Query("SELECT {x}_g()"), forms=("simple",),
                setup="CREATE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS 'SELECT 1';"
                " ALTER FUNCTION {x}_g() OWNER TO trusty;" + setup)


def definer(language, body):
    return f"CREATE FUNCTION {{x}}_c() RETURNS void LANGUAGE {language} SECURITY DEFINER AS $k$ {body} $k$;"


VIEW = ("CREATE VIEW {x}_v AS SELECT proname, prosrc FROM pg_catalog.pg_proc; GRANT SELECT, UPDATE ON {x}_v TO PUBLIC;"
        " CREATE TABLE {x}_t (a int);")
BY_VIEW = CHANGE.replace("pg_catalog.pg_proc", "{x}_v")
TRIGGERED = ("CREATE FUNCTION {x}_c() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
             f" $k$ BEGIN {CHANGE}; RETURN NEW; END $k$; CREATE TABLE {{x}}_t (a int);"
             " CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_c();")

ROWS = [
    changed("by a function in SQL", Query("SELECT {x}_c()"), setup=definer("sql", CHANGE)),
    changed("by a function in PL/pgSQL", Query("SELECT {x}_c()"), setup=definer("plpgsql", f"BEGIN {CHANGE}; END")),
    changed("by a function with BEGIN ATOMIC", Query("SELECT {x}_c()"),
            setup="CREATE FUNCTION {x}_c() RETURNS void LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC "
            + CHANGE.replace("$q$", "'") + "; END;"),
    changed("by a view", Query(BY_VIEW), setup=VIEW),
    changed("by a view of a view", Query(BY_VIEW.replace("{x}_v", "{x}_w", 1)),
            setup=VIEW + "CREATE VIEW {x}_w AS SELECT * FROM {x}_v; GRANT SELECT, UPDATE ON {x}_w TO PUBLIC;"),
    changed("by a function that writes to a view", Query("SELECT {x}_c()"), setup=VIEW + definer("sql", BY_VIEW)),
    changed("by a trigger", Query("INSERT INTO {x}_t VALUES (1)"), setup=TRIGGERED),
    changed("by a rule", Query("INSERT INTO {x}_t VALUES (1)"),
            setup=VIEW + f"CREATE RULE r AS ON INSERT TO {{x}}_t DO ALSO {CHANGE};"
            " GRANT ALL ON {x}_t TO PUBLIC;"),
]


REPLACES = definer("plpgsql", "BEGIN EXECUTE $e$ CREATE OR REPLACE FUNCTION {x}_g() RETURNS int LANGUAGE sql AS"
                   f" $q${LOCKS}$q$ $e$; END")
# -- DDL by functions of indexes, which run in statements that do not name the table

INDEXED = ("CREATE FUNCTION {x}_c() RETURNS int LANGUAGE plpgsql AS $k$ BEGIN EXECUTE $e$ CREATE OR REPLACE FUNCTION public.{x}_g()"
           f" RETURNS int LANGUAGE sql AS $q${LOCKS}$q$ $e$; RETURN 1; END $k$; CREATE FUNCTION {{x}}_i(a int) RETURNS int IMMUTABLE"
           " LANGUAGE plpgsql AS $k$ BEGIN PERFORM public.{x}_c(); RETURN a; END $k$; CREATE TABLE {x}_t (a int);"
           " CREATE INDEX {x}_j ON {x}_t ({x}_i(a)); INSERT INTO {x}_t VALUES (1); ALTER TABLE {x}_t OWNER TO trusty;")
BY_INDEX = [changed(f"by an index's function in {text}", Query(text), setup=INDEXED)
            for text in ("REINDEX INDEX {x}_j", "ANALYZE (VERBOSE off)", "ANALYSE", "VACUUM (FULL)", "REINDEX SCHEMA public")]

# In session mode no text is inspected; the catalog of the other entries shows which functions may do DDL.
ELSEWHERE = [
    changed("by a function in session mode", By("_session", "SELECT {x}_c()"), setup=REPLACES),
    changed("by a function of a function in session mode", By("_session", "SELECT {x}_d()"), setup=REPLACES
            + "CREATE FUNCTION {x}_d() RETURNS void LANGUAGE sql AS 'SELECT {x}_c()';"),
    changed("by a trigger in session mode", By("_session", "INSERT INTO {x}_t VALUES (1)"), setup=REPLACES
            + "CREATE TABLE {x}_t (a int); CREATE FUNCTION {x}_d() RETURNS trigger LANGUAGE plpgsql AS"
            " $k$ BEGIN PERFORM {x}_c(); RETURN NEW; END $k$; CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW"
            " EXECUTE FUNCTION {x}_d();"),
    changed("by a function through another name of the host", By("_elsewhere", "SELECT {x}_c()"), setup=REPLACES),
    changed("by a procedure in session mode", By("_session", "CALL {x}_p()"), setup=REPLACES
            + "CREATE PROCEDURE {x}_p() LANGUAGE plpgsql AS $k$ BEGIN PERFORM {x}_c(); COMMIT; END $k$;"),
    changed("by DO in session mode", By("_session", "DO $k$ BEGIN PERFORM {x}_c(); END $k$"), setup=REPLACES),
]


def own(words, *says, setup):
    """Objects of PostgreSQL itself."""
    return line(words, *says, setup=setup, alone=True)


KEEPS = keeper("a int, b int", "bool", "true", "IMMUTABLE")
OWN = [
    own("a function in SQL that was replaced", "SELECT lpad('a', 3)", setup="CREATE OR REPLACE FUNCTION"
        f" pg_catalog.lpad(text, integer) RETURNS text LANGUAGE plpgsql AS $k$ BEGIN {KEEP} RETURN $1; END $k$"),
    own("an operator's function", "SELECT a = a FROM one", setup=KEEPS
        + "UPDATE pg_operator SET oprcode = '{x}_f'::regproc WHERE oid = '=(int,int)'::regoperator"),
    own("a function that only the grammar names", "SELECT 'a'::text AT TIME ZONE 'b'::text",
        setup=keeper("text, text", "text", "'c'", name="pg_catalog.timezone")),
    own("a cast that was added", "SELECT 7::bigint::bool",
        setup="INSERT INTO pg_cast VALUES (9999, 20, 16, 'pg_try_advisory_lock(bigint)'::regprocedure, 'e', 'f')"),
    own("a language that was renamed", "SELECT {x}_f()", setup="ALTER LANGUAGE plpgsql RENAME TO other; ALTER LANGUAGE sql RENAME TO"
        " plpgsql; CREATE FUNCTION {x}_f() RETURNS void LANGUAGE plpgsql AS 'SELECT 1 AS a INTO TEMP {x}_t'"),
    line("a lock that was declared harmless, behind a view", "TABLE {x}_v", setup="ALTER FUNCTION pg_catalog.pg_try_advisory_lock(int, int)"
         " STABLE PARALLEL SAFE; CREATE VIEW {x}_v AS SELECT pg_try_advisory_lock(7, 8)"),
    line("BEGIN ATOMIC with another body as a string", "SELECT {x}_f()", setup="CREATE FUNCTION {x}_f() RETURNS bool LANGUAGE sql"
         " RETURN pg_try_advisory_lock(9); UPDATE pg_proc SET prosrc = 'SELECT true' WHERE proname = '{x}_f'"),
]

CLASSES = {"catalogs that are changed by rows": ROWS, "catalogs that are changed by indexes": BY_INDEX,
           "catalogs that are changed elsewhere": ELSEWHERE, "objects of PostgreSQL itself": OWN}
