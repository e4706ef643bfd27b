"""Code that runs later than its text: at COMMIT, by FETCH, in a portal, in COPY, while another client replaces it."""

from leaks.line import By, During, Query, Wire, bind, execute, line, parse, query
from leaks.protocol import settled
from rawclient import COPY_DONE, FLUSH, SYNC, close, copy_data, describe

LOCKS = "PERFORM pg_advisory_lock(7);"


def made(body="", name="{x}_f", args="", returns="trigger", value="NEW", verb="CREATE OR REPLACE", how=""):
    return (f"{verb} FUNCTION {name}({args}) RETURNS {returns} LANGUAGE plpgsql {how} AS"
            f" $k$ BEGIN {body} RETURN {value}; END $k$")


def function(body="", name="{x}_g"):
    """A function for SELECT."""
    return made(body, name, "a int", "int", "a")


INDEXED = {"args": "a int", "returns": "int", "value": "a", "how": "IMMUTABLE"}
OWNED = "; ALTER FUNCTION {x}_f() OWNER TO trusty;"
TABLE = made() + OWNED + "CREATE TABLE {x}_t (a int); ALTER TABLE {x}_t OWNER TO trusty;"
DEFERRED = (TABLE + "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {x}_t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
            " EXECUTE FUNCTION {x}_f()")
# A server notices changes by others when it takes a lock, as {x}_h() does.
CALLED = (function() + "; ALTER FUNCTION {x}_g(int) OWNER TO trusty; CREATE FUNCTION {x}_h() RETURNS int LANGUAGE plpgsql AS"
          " $k$ BEGIN PERFORM 1 FROM one; RETURN 1; END $k$;")
INSERT = "INSERT INTO {x}_t VALUES (1)"
ROWS = "SELECT {x}_h(), {x}_g(g) FROM generate_series(1, 3) g"
SLOW = "SELECT {x}_h(), {x}_g(1) FROM (SELECT pg_sleep(0.6) OFFSET 0) s"


def late(words, *says, good, bad, entry="_alias", reads=False, **more):
    """`None` among the texts stands for the other client's change. With `reads`, further clients use the server before
    the line continues.
    """
    change = (By(entry, bad), *(By("_alias", "SELECT 1"),) * (2 * reads))
    said = [part for one in says for part in (change if one is None else (one,))]
    return line(words, By("_alias", good), *settled() * 2, *said, **more)


def fired(words, *says, **more):
    return late(words, Query("BEGIN"), INSERT, *says, good=made(), bad=made(LOCKS), setup=DEFERRED, **more)


def called(words, *says, setup="", **more):
    return late(words, *says, good=function(), bad=function(LOCKS), setup=CALLED + setup, **more)


AT_COMMIT = [
    fired("a deferred trigger at COMMIT", None, "COMMIT"),
    fired("a deferred trigger at END", None, "END WORK"),
    fired("a deferred trigger at COMMIT AND CHAIN", None, Query("COMMIT AND CHAIN"), "COMMIT"),
    fired("a deferred trigger by SET CONSTRAINTS", None, "SET CONSTRAINTS ALL IMMEDIATE", Query("COMMIT")),
    fired("a deferred trigger by SET CONSTRAINTS, rolled back", None, "SET CONSTRAINTS ALL IMMEDIATE", Query("ROLLBACK")),
    fired("a deferred trigger by PREPARE TRANSACTION", None, Query("PREPARE TRANSACTION '{x}'"), Query("ROLLBACK PREPARED '{x}'")),
    fired("a deferred trigger at COMMIT, others came meanwhile", None, Query("SELECT certified(1)"), "COMMIT", reads=True),
    fired("a deferred trigger at COMMIT, changed in session mode", None, "COMMIT", entry="_session"),
    fired("a deferred trigger at COMMIT, changed under another host name", None, "COMMIT", entry="_elsewhere"),
    fired("a deferred trigger at COMMIT behind a savepoint", Query("SAVEPOINT s"), None, Query("RELEASE s"), "COMMIT"),
    fired("a deferred trigger at COMMIT of two in one write", None, Wire(lambda names: query("COMMIT") + query("SELECT 1"))),
    late("a deferred trigger of a pipeline", During(lambda names: parse(names.sql(INSERT)) + bind() + execute() + FLUSH, "_alias",
         made(LOCKS), lambda names: SYNC), good=made(), bad=made(), setup=DEFERRED),
    late("a deferred trigger of a Query of two", During(lambda names: query(names.sql(f"{INSERT}; SELECT pg_sleep(0.6)")), "_alias",
         made(LOCKS)), good=made(), bad=made(), setup=DEFERRED),
    late("a function of a deferred trigger's function", Query("BEGIN"), INSERT, None, "COMMIT", good=function(), bad=function(LOCKS),
         setup=CALLED + DEFERRED.replace("BEGIN  RETURN NEW", "BEGIN PERFORM {x}_g(1); RETURN NEW")),
    late("a deferred exclusion's expression", Query("BEGIN"), "INSERT INTO {x}_t VALUES (1), (1)", None, "COMMIT",
         good=made(name="{x}_i", **INDEXED), bad=made(LOCKS, name="{x}_i", **INDEXED), setup=TABLE + made(name="{x}_i", **INDEXED)
         + "; ALTER FUNCTION {x}_i(int) OWNER TO trusty; ALTER TABLE {x}_t ADD EXCLUDE USING btree ({x}_i(a) WITH =)"
         " DEFERRABLE INITIALLY DEFERRED"),
]

IN_PARTS = [
    called("FETCH", Query("BEGIN"), f"DECLARE {{x}}_c CURSOR FOR {ROWS}", Query("FETCH 1 FROM {x}_c"), None, Query("TABLE plain"),
           "FETCH 1 FROM {x}_c", Query("COMMIT")),
    called("the first FETCH", Query("BEGIN"), f"DECLARE {{x}}_c CURSOR FOR {ROWS}", None, "FETCH ALL FROM {x}_c", Query("COMMIT")),
    called("MOVE", Query("BEGIN"), f"DECLARE {{x}}_c CURSOR FOR {ROWS}", None, "MOVE ALL IN {x}_c", Query("ROLLBACK")),
    called("FETCH, others came meanwhile", Query("BEGIN"), f"DECLARE {{x}}_c CURSOR FOR {ROWS}", None,
           Query("SELECT certified(1)"), "FETCH ALL FROM {x}_c", Query("COMMIT"), reads=True),
    called("a portal that is suspended", Wire(lambda names: query("BEGIN") + parse(names.sql(ROWS)) + bind(portal="p")
           + execute(1, "p") + SYNC), None, Query("TABLE plain"), Wire(lambda names: execute(0, "p") + SYNC + query("COMMIT"))),
    called("a portal of an earlier Bind", Wire(lambda names: query("BEGIN") + parse(names.sql(ROWS)) + bind(portal="p") + SYNC), None,
           Wire(lambda names: execute(0, "p") + SYNC + query("COMMIT"))),
    called("a portal of a statement with a name", Wire(lambda names: query("BEGIN") + parse(names.sql(ROWS), "s")
           + bind(portal="p", name="s") + SYNC), None,
           Wire(lambda names: describe("P", "p") + execute(0, "p") + close("P", "p") + SYNC + query("ROLLBACK"))),
    called("FETCH of a portal by its name", Wire(lambda names: query("BEGIN") + parse(names.sql(ROWS)) + bind(portal="p") + SYNC),
           None, "FETCH ALL FROM p", Query("COMMIT")),
    called("a cursor of PL/pgSQL that stays open", Query("BEGIN"), "SELECT {x}_o()", None, 'FETCH ALL FROM "{x}_c"', Query("COMMIT"),
           setup="CREATE FUNCTION {x}_o() RETURNS refcursor LANGUAGE plpgsql AS $k$ DECLARE c refcursor := '{x}_c';"
           f" BEGIN OPEN c FOR {ROWS}; RETURN c; END $k$"),
]

IN_FLIGHT = [
    called("a SELECT that sleeps first", During(lambda names: query(names.sql(SLOW)), "_alias", function(LOCKS))),
    called("a SELECT that sleeps first, by Parse", During(lambda names: parse(names.sql(SLOW)) + bind() + execute() + SYNC, "_alias", function(LOCKS))),
    called("the second statement of a Query", During(lambda names: query(names.sql("SELECT pg_sleep(0.6); SELECT {x}_g(1)")),
           "_alias", function(LOCKS))),
    called("the second Query of a write", During(lambda names: query("SELECT pg_sleep(0.6)") + query(names.sql("SELECT {x}_g(1)")),
           "_alias", function(LOCKS))),
    called("a pipeline behind a Flush", During(lambda names: parse(names.sql(ROWS), "s") + bind(name="s") + FLUSH,
           "_alias", function(LOCKS), lambda names: execute() + SYNC)),
    called("two Executes with a Flush between them", During(lambda names: parse(names.sql(ROWS)) + bind() + execute(1) + FLUSH, "_alias",
           function(LOCKS), lambda names: parse("TABLE plain") + bind(portal="q") + execute(portal="q") + execute() + SYNC)),
    late("COPY into a table with a trigger", During(lambda names: query(names.sql("COPY {x}_t FROM STDIN")), "_alias", made(LOCKS),
         lambda names: copy_data(b"1\n") + COPY_DONE), good=made(), bad=made(),
         setup=TABLE + "CREATE TRIGGER t BEFORE INSERT ON {x}_t FOR EACH ROW EXECUTE FUNCTION {x}_f()"),
    called("COPY FROM with a condition", During(lambda names: query(names.sql("COPY {x}_t FROM STDIN WHERE {x}_h() = 1 AND {x}_g(a) = 1")), "_alias",
           function(LOCKS), lambda names: copy_data(b"1\n") + COPY_DONE), setup=TABLE),
    called("COPY TO", During(lambda names: query(names.sql(f"COPY ({SLOW}) TO STDOUT")), "_alias", function(LOCKS))),
    called("EXPLAIN ANALYZE", During(lambda names: query(names.sql(f"EXPLAIN ANALYZE {SLOW}")), "_alias", function(LOCKS))),
    called("a SELECT in flight, whose client leaves before the change",
           During(lambda names: query(names.sql(SLOW)), "_alias", function(LOCKS), leaves="before")),
    called("a SELECT in flight, whose client leaves after the change",
           During(lambda names: query(names.sql(SLOW)), "_alias", function(LOCKS), leaves="after")),
    called("a SELECT in flight, changed in session mode", During(lambda names: query(names.sql(SLOW)), "_session", function(LOCKS))),
]

CLASSES = {"code at the end of a transaction": AT_COMMIT, "statements in parts": IN_PARTS,
           "statements in flight": IN_FLIGHT}
