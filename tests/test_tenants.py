"""Two tenants on one server: whatever one does, the other gets the answers of a separate session. `test_leaks.py` reads
session state by name. Here the second tenant tries to use what the first has left: statements, portals, cursors,
notifications, rows and timeouts.
"""

import itertools

import pytest

import cluster as clusters
import machine
import rawclient as wire
from leaks import stage as stages
from rawclient import SYNC, bind, close, describe, execute, parse, query, run

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")
# The other two run only with --full.
CELLS = [pytest.param((version, assist), marks=() if (version == clusters.VERSIONS[-1]) == assist else pytest.mark.full,
                      id=f"pg{version}-{'assisted' if assist else 'plain'}")
         for version in clusters.VERSIONS for assist in (False, True)]
_numbers = itertools.count(1)
SECRET = "secret of the first tenant"
STATEMENT = f"SELECT '{SECRET}'"
SETUP = """
CREATE VIEW shown AS SELECT name || statement AS text FROM pg_prepared_statements;
CREATE FUNCTION of_c() RETURNS SETOF text LANGUAGE sql AS 'SELECT name || statement FROM pg_catalog.pg_prepared_statement()';
CREATE FUNCTION found() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE n text; r text;
BEGIN
    RETURN QUERY EXECUTE 'SELECT name || statement FROM pg_pre' || 'pared_statements';
    -- Not the statement that has called this function.
    FOR n IN EXECUTE $e$ SELECT 'PGWEIR_' || generate_series(1, 99)
            EXCEPT SELECT name FROM pg_prepared_statements WHERE statement LIKE '%found()%' $e$ LOOP
        BEGIN
            EXECUTE format('EXECUTE %I', n) INTO r;
            RETURN NEXT r;
        EXCEPTION WHEN invalid_sql_statement_name OR datatype_mismatch OR wrong_object_type OR syntax_error THEN NULL;
        END;
    END LOOP;
END $$;
CREATE TABLE watched (a text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', (SELECT string_agg(f, ' ') FROM found() f); RETURN NEW; END $$;
CREATE TRIGGER watch AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION watch();
CREATE TABLE late (a text);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch();
"""


@pytest.fixture(scope="module", params=CELLS)
def place(request, shared_clusters):
    """A cluster, and a database in it."""
    version, assist = request.param
    cluster = shared_clusters(version, assist=assist)
    name = f"tenants{next(_numbers)}"
    stages.make_database(cluster, name, [SETUP])
    cluster.run("GRANT pg_read_all_stats TO trusty")
    yield cluster, name
    cluster.run("REVOKE pg_read_all_stats FROM trusty")
    cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def tenants(place, start_pooler):
    """Logs in tenants of a pool with one server."""
    cluster, name = place
    where = f"host={cluster.host} port={cluster.port} dbname={name}"
    pooler = start_pooler(cluster, databases={name: where}, default_pool_size=1, workers=1, query_wait_timeout=3)

    def login(**parameters):
        return pooler.raw(stages.USER, name, **parameters)

    with login() as first:
        first.query("SELECT 1")
    return login


def shown(messages):
    """Returns everything that a client receives, as one text."""
    return " ".join(message.body.decode(errors="replace") for message in messages)


READ_STATEMENTS = [
    'EXECUTE "PGWEIR_1"', 'EXPLAIN (VERBOSE) EXECUTE "PGWEIR_1"', 'EXPLAIN ANALYZE VERBOSE EXECUTE "PGWEIR_1"', 'BEGIN; EXECUTE "PGWEIR_1"; COMMIT',
    'CREATE TEMP TABLE made AS EXECUTE "PGWEIR_1"; TABLE made', 'PREPARE mine AS SELECT 1; EXECUTE "PGWEIR_1"', "EXECUTE s",
    "SELECT * FROM pg_prepared_statements", "SELECT * FROM pg_prepared_statement()", "TABLE pg_catalog.pg_prepared_statements",
    "BEGIN; DECLARE c CURSOR FOR TABLE pg_prepared_statements; FETCH ALL c; COMMIT", "COPY (TABLE pg_prepared_statements) TO STDOUT",
    "TABLE shown", "SELECT of_c()",
    "DO $$ DECLARE r record; BEGIN FOR r IN EXECUTE 'TABLE pg_prepared_statements' LOOP RAISE NOTICE '%', r; END LOOP; END $$",
    "DEALLOCATE \"PGWEIR_1\"", "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()",
]


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "left"])
def test_statements_of_another_client(tenants, leaves):
    seen = []
    for text in READ_STATEMENTS:
        with tenants() as first, tenants() as second:
            assert not wire.errors(first.ask(parse(STATEMENT, "s") + bind(name="s") + execute() + SYNC))
            if leaves:
                first.close()
            if SECRET in shown(second.query(text)):
                seen.append(text)
    assert not seen


FOUND = "SELECT string_agg(f, ' ') FROM found() f"
DO = f"DO $$ BEGIN RAISE NOTICE '%', ({FOUND}); END $$"
IN_PARTS = 40
# How the second tenant runs dynamic SQL: what it sends before the first tenant comes, and what it sends afterwards.
DYNAMIC_SQL = {
    "in a function": (b"", query(FOUND)),
    "in DO": (b"", query(DO)),
    "in a trigger": (b"", query("INSERT INTO watched VALUES (1)")),
    "at COMMIT": (b"", query("BEGIN") + query("INSERT INTO late VALUES (1)") + query("COMMIT")),
    "behind ROLLBACK of a failed transaction": (b"", query("BEGIN") + query("SELECT 1/0") + query(f"ROLLBACK; {FOUND}")),
    "in the names of memory contexts": (b"", query("SELECT name, ident FROM pg_backend_memory_contexts")),
    "in query_to_xml": (b"", query("SELECT query_to_xml('SELECT statement FROM pg_pre' || 'pared_statements', true, false, '')")),
    "in EXECUTE": (query(f"PREPARE mine AS {FOUND}"), query("EXECUTE mine")),
    "in a cursor": (b"", query("BEGIN") + query(f"DECLARE c CURSOR FOR {FOUND}") + query("FETCH c") + query("COMMIT")),
    "in COPY": (b"", query(f"COPY ({FOUND}) TO STDOUT")),
    "in an unnamed statement": (b"", parse(FOUND) + bind() + execute() + SYNC),
    "in an unnamed statement that was parsed before": (parse(FOUND) + SYNC, bind() + execute() + SYNC),
    "in a named statement": (b"", parse(FOUND, "f") + bind(name="f") + execute() + SYNC),
    "in a named statement that was parsed before": (parse(FOUND, "f") + SYNC, bind(name="f") + execute() + SYNC),
    "in a Describe": (parse(FOUND, "f") + SYNC, describe("S", "f") + SYNC + run("f") + SYNC),
    "behind a statement of the same pipeline": (b"", parse("SELECT 2", "t") + bind(name="t") + execute() + parse(FOUND) + bind() + execute() + SYNC),
    "behind a request that fails": (
        b"", parse("SELECT nothing") + parse(FOUND, "f") + bind(name="f") + execute() + SYNC + query(FOUND)),
    "behind a request that fails, with a name": (
        b"", parse("SELECT nothing") + parse(FOUND, "f") + SYNC + parse(FOUND, "g") + bind(name="g") + execute() + SYNC),
    "behind messages without a Sync": (b"", parse("SELECT 2", "t") + bind(name="t") + query(FOUND) + SYNC),
    "in a text that comes in parts": (b"", (query(FOUND)[:IN_PARTS], query(FOUND)[IN_PARTS:])),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "left"])
@pytest.mark.parametrize("where", DYNAMIC_SQL)
def test_dynamic_sql_finds_no_statements_of_another_client(tenants, where, leaves):
    before, after = DYNAMIC_SQL[where]
    with tenants() as first, tenants() as second:
        if before:
            assert not wire.errors(second.ask(before))
        statements = parse(STATEMENT, "s") + bind(name="s") + execute() + parse(f"{STATEMENT}, 2", "s2") + SYNC
        assert not wire.errors(first.ask(statements))
        if leaves:
            first.close()
        if isinstance(after, tuple):
            for part, _ in zip(after, machine.every(0.05)):
                second.send(part)
            answer = second.until_ready()
        else:
            answer = second.ask(after)
        assert SECRET not in shown(answer)
        fails = "fails" in where or "failed" in where
        assert bool(wire.errors(answer)) == fails, wire.errors(answer)
        if not leaves:
            # The first tenant's statements work as before.
            assert SECRET in shown(first.ask(run("s") + run("s2") + SYNC))


def test_dynamic_sql_keeps_common_statements(tenants):
    """A statement that both clients have prepared stays on the server: nothing has to be prepared again."""
    with tenants() as first, tenants() as second:
        for client in (first, second):
            assert not wire.errors(client.ask(parse("SELECT 3", "s") + bind(name="s") + execute() + SYNC))
        assert "SELECT 3" in shown(second.query(FOUND))
        assert "SELECT 3" in shown(first.query(FOUND))


MESSAGES = {
    "Bind of the unnamed statement": bind() + execute() + SYNC, "Describe of the unnamed statement": describe("S") + SYNC,
    "Execute of the unnamed portal": execute() + SYNC, "Describe of the unnamed portal": describe("P") + SYNC,
    "Bind of a name": run("s") + SYNC, "Bind of pgweir's name": run("PGWEIR_1") + SYNC, "Describe of pgweir's name": describe("S", "PGWEIR_1") + SYNC,
    "Execute of a portal": execute(portal="p") + SYNC, "Close and Bind of a name": close("S", "s") + run("s") + SYNC,
    "FETCH of a cursor": query("FETCH c"), "CLOSE of a cursor": query("CLOSE c"), "EXECUTE of PREPARE": query("EXECUTE q"),
    "DEALLOCATE of PREPARE": query("DEALLOCATE q"), "Bind of PREPARE": run("q") + SYNC, "a held cursor": query("FETCH h"),
    "a temporary table": query("TABLE t"), "a temporary function": query("SELECT pg_temp.f()"), "RELEASE": query("RELEASE s"),
    "ROLLBACK TO": query("ROLLBACK TO s"), "lastval": query("SELECT lastval()"),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "left"])
def test_statement_names_of_another_client(tenants, leaves):
    """Each of the messages ends with an error, as on a server of one's own."""
    good = []
    for words, raw in MESSAGES.items():
        with tenants() as first, tenants() as second:
            first.ask(parse(STATEMENT) + SYNC + parse(STATEMENT, "s") + SYNC + query("BEGIN") + parse(STATEMENT) + bind() + bind(portal="p") + SYNC
                      + query("SAVEPOINT s") + query("DECLARE c CURSOR FOR SELECT 1"))
            if not leaves:
                first.query("COMMIT")
            if leaves:
                first.close()
            answer = second.ask(raw)
            if not wire.errors(answer) or SECRET in shown(answer):
                good.append(words)
        with tenants() as first, tenants() as second:
            first.ask(query("PREPARE q AS SELECT 1") + query("DECLARE h CURSOR WITH HOLD FOR SELECT 1") + query("CREATE TEMP TABLE t (a int)")
                      + query("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'"))
            first.close()
            if not wire.errors(second.ask(raw)):
                good.append(words)
    assert not good


TIMEOUTS = ("idle_session_timeout = '30ms'", "idle_in_transaction_session_timeout = '30ms'", "statement_timeout = '30ms'", "lock_timeout = '1ms'")


@pytest.mark.parametrize("hidden", [False, True], ids=["SET", "DO"])
def test_timeouts_of_another_client(tenants, hidden):
    for setting in TIMEOUTS:
        for leaves in (False, True):
            with tenants() as first, tenants() as second:
                first.query(f"DO $$ BEGIN SET {setting}; END $$" if hidden else f"SET {setting}")
                if leaves:
                    first.close()
                assert second.value("SELECT 1 FROM pg_sleep(0.05)") == "1"
                second.query("BEGIN")
                machine.stays_true(lambda: True, 0.06)
                assert second.value("SELECT 2") == "2"
                second.query("COMMIT")


LISTENS = ("LISTEN c", "DO $$ BEGIN EXECUTE 'LISTEN c'; END $$", "BEGIN; LISTEN c; COMMIT", "DO $$ BEGIN EXECUTE 'LI' || 'STEN \"c\"'; END $$")


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "left"])
def test_notifications_of_another_client(tenants, place, leaves):
    cluster, name = place
    for text in LISTENS:
        with tenants() as first, tenants() as second:
            assert not wire.errors(first.query(text))
            if leaves:
                first.close()
            cluster.run(f"NOTIFY c, '{SECRET}'", dbname=name)
            answer = second.query("SELECT 1") + second.query("BEGIN; SELECT 1") + second.query("COMMIT")
            cluster.run(f"NOTIFY c, '{SECRET}'", dbname=name)
            answer += second.query("SELECT 2")
            assert not [message for message in answer if message.kind == "A"], text
            if not leaves:
                assert SECRET in shown(first.query("SELECT 1")) or SECRET in shown(first.until("A")), text


SLOW = {
    "a large result": query(f"SELECT '{SECRET}', repeat('x', 1000) FROM generate_series(1, 30000)"),
    "COPY TO": query(f"COPY (SELECT '{SECRET}', repeat('x', 1000) FROM generate_series(1, 30000)) TO STDOUT"),
    "a pipeline": (parse(STATEMENT) + bind() + execute()) * 3000 + SYNC, "Queries": query(STATEMENT) * 500,
    "a pipeline without Sync": (parse(STATEMENT) + bind() + execute()) * 3000, "an error, then more": query(f"SELECT '{SECRET}'::int") * 200,
    "notices": query(f"DO $$ BEGIN FOR i IN 1..3000 LOOP RAISE NOTICE '{SECRET}'; END LOOP; END $$"),
    "COPY FROM": query("COPY shown FROM STDIN") + query(STATEMENT) * 20,
    "a portal by parts": parse(f"SELECT '{SECRET}' FROM generate_series(1, 3000)") + bind() + execute(1) * 3000 + SYNC,
}


def test_answers_of_a_client_that_left(tenants):
    """Answers that a client has not waited for reach no other client."""
    for words, raw in SLOW.items():
        for reset in (False, True):
            with tenants() as first, tenants() as second:
                first.send(raw)
                (first.reset if reset else first.close)()
                for number in range(3):
                    answer = second.query(f"SELECT {number}")
                    assert SECRET not in shown(answer), words
                    assert wire.rows(answer) == [(str(number),)], words
