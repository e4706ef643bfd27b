"""SQL's PREPARE, EXECUTE and DEALLOCATE, and statements of the protocol: each client has one namespace for both, on
every server.
"""

import random

import pytest

from cluster import VERSIONS
from rawclient import SYNC, bind, close, describe, errors, execute, extended, parse, queries, query, rows, run
from test_certificates import read
from test_prepared import Mover, play_between

VIEW = "SELECT name, statement, from_sql FROM pg_prepared_statements ORDER BY name"
NAMES = "SELECT name, from_sql FROM pg_prepared_statements ORDER BY name"


# name: steps, each of which ends with one answer to Sync or Query
SCRIPTS = {
    "made and used": queries("PREPARE p AS SELECT 1", "EXECUTE p", "EXECUTE p", "DEALLOCATE p", "EXECUTE p"),
    "with parameters": queries(
        "PREPARE p (int, text) AS SELECT $1 + 1, $2", "EXECUTE p (1, 'x')", "EXECUTE p (1)",
        "EXECUTE p ('2', 3)"),
    "a name that is taken": queries(
        "PREPARE p AS SELECT 1", "PREPARE p AS SELECT 2", "EXECUTE p", "DEALLOCATE q", "EXECUTE p"),
    "outlives a rollback": queries(
        "BEGIN", "PREPARE p AS SELECT 1", "SELECT 1/0", "ROLLBACK", "EXECUTE p", "BEGIN", "DEALLOCATE p",
        "ROLLBACK", "EXECUTE p"),
    "several": queries(
        "PREPARE a AS SELECT 1", "PREPARE b AS SELECT 2", "PREPARE c AS SELECT 3", "DEALLOCATE b",
        "EXECUTE a", "EXECUTE b", "EXECUTE c", "DEALLOCATE ALL", "EXECUTE a", "PREPARE a AS SELECT 4",
        "EXECUTE a"),
    "several in one text": queries(
        "PREPARE a AS SELECT 1; PREPARE b AS SELECT ';'", "EXECUTE a; EXECUTE b",
        "PREPARE c AS SELECT 3; SELECT 1/0", "EXECUTE c", "DEALLOCATE a; EXECUTE a", "EXECUTE b"),
    "names in quotes": queries(
        'PREPARE "Weird ""name" AS SELECT 1', 'EXECUTE "Weird ""name"', "PREPARE Folded AS SELECT 2",
        'EXECUTE folded', 'EXECUTE "Folded"'),
    "discarded": queries("PREPARE p AS SELECT 1", "DISCARD ALL", "EXECUTE p", "PREPARE p AS SELECT 2", "EXECUTE p"),
    "explained": queries("PREPARE p AS SELECT 1", "EXPLAIN (COSTS OFF) EXECUTE p"),
    "beyond ASCII": queries("PREPARE p AS SELECT 'ä'", "EXECUTE p", "EXECUTE p"),
    "under a path": queries(
        "CREATE SCHEMA IF NOT EXISTS sql_a; CREATE TABLE IF NOT EXISTS sql_a.t AS SELECT 'a'",
        "SET search_path = sql_a", "PREPARE p AS SELECT * FROM t", "EXECUTE p", "RESET search_path",
        "EXECUTE p", "SET search_path = sql_a", "EXECUTE p", "DROP SCHEMA sql_a CASCADE"),
    "in the extended protocol": [
        parse("PREPARE p AS SELECT $1::int") + bind() + execute() + SYNC,
        parse("EXECUTE p (5)") + bind() + execute() + SYNC,
        parse("EXECUTE p (6)", "S") + run("S") + SYNC, run("S") + SYNC,
        parse("DEALLOCATE p") + bind() + execute() + SYNC, run("S") + SYNC],
    "bound by the protocol": [
        *queries("PREPARE p (int) AS SELECT $1 + 1"), run("p", 1) + SYNC, describe("S", "p") + SYNC,
        close("S", "p") + SYNC, run("p", 1) + SYNC, *queries("EXECUTE p (1)")],
    "of the protocol, used by SQL": [
        parse("SELECT $1::int + 1", "s") + SYNC, *queries("EXECUTE s (1)"), run("s", 2) + SYNC,
        *queries("DEALLOCATE s"), run("s", 3) + SYNC, *queries("EXECUTE s (1)"), parse("SELECT 9", "s") + SYNC,
        run("s") + SYNC],
    "of the protocol, in a transaction": [
        parse("SELECT $1::int + 1", "s") + SYNC, *queries("BEGIN"), run("s", 1) + SYNC,
        *queries("EXECUTE s (1)", "DEALLOCATE s"), run("s", 1) + SYNC, *queries("ROLLBACK"), run("s", 1) + SYNC],
    "made by the protocol over one of SQL": [
        *queries("PREPARE p AS SELECT 1"), parse("SELECT 2", "p") + SYNC, *queries("EXECUTE p"), run("p") + SYNC,
        close("S", "p") + parse("SELECT 2", "p") + SYNC, *queries("EXECUTE p"), run("p") + SYNC],
    "made by SQL over one of the protocol": [
        parse("SELECT 2", "p") + SYNC, *queries("PREPARE p AS SELECT 1", "EXECUTE p"), run("p") + SYNC,
        *queries("DEALLOCATE p; PREPARE p AS SELECT 3", "EXECUTE p"), run("p") + SYNC],
    "made anew just behind its DEALLOCATE": [
        parse("SELECT 1", "s") + SYNC,
        parse("DEALLOCATE s") + bind() + execute() + parse("SELECT 3", "s") + SYNC,
        *queries("EXECUTE s"), run("s") + SYNC],
    "closed, made by the protocol, and taken away by SQL": [
        *queries("PREPARE p AS SELECT 1"),
        close("S", "p") + parse("SELECT 2", "p") + parse("DEALLOCATE p") + bind() + execute() + SYNC,
        run("p") + SYNC, *queries("EXECUTE p"), parse("SELECT 3", "p") + SYNC, run("p") + SYNC],
    "closed in a request that has failed": [
        parse("SELECT 1", "s") + SYNC,
        parse("SELECT 2", "s") + close("S", "s") + parse("PREPARE s AS SELECT 3") + bind() + execute()
        + parse("SELECT 4", "s") + SYNC,
        *queries(NAMES, "EXECUTE s"), run("s") + SYNC,
        query("SELEKT") + SYNC + close("S", "s") + parse("DEALLOCATE s") + bind() + execute() + SYNC, *queries(NAMES)],
    "made anew in the request behind its DEALLOCATE": [
        parse("SELECT 1", "s") + SYNC,
        parse("DEALLOCATE s") + bind() + execute() + SYNC + parse("SELECT 3", "s") + SYNC,
        run("s") + SYNC, *queries("EXECUTE s")],
    "all deallocated": [
        parse("SELECT 1", "s") + SYNC, *queries("PREPARE p AS SELECT 2", "DEALLOCATE ALL", "EXECUTE p"),
        run("s") + SYNC, run("p") + SYNC, parse("SELECT 3", "s") + SYNC, run("s") + SYNC],
    "all deallocated just before": [
        parse("SELECT 1", "s") + SYNC,
        parse("DEALLOCATE ALL") + bind() + execute() + SYNC + parse(NAMES) + run("") + SYNC + run("s") + SYNC],
    "all deallocated in the same request": [
        parse("SELECT 1", "s") + SYNC,
        parse("DISCARD PLANS") + bind() + execute() + parse("DEALLOCATE ALL") + bind() + execute()
        + parse(NAMES) + run("") + SYNC],
    "not deallocated, since all of the request has failed": [
        parse("SELECT 1", "p") + SYNC,
        parse("CLOSE c") + bind() + execute() + parse("DEALLOCATE ALL") + bind() + execute()
        + parse("PREPARE p AS SELECT 2") + bind() + execute() + parse(NAMES) + run("") + SYNC,
        *queries(NAMES), run("p") + SYNC, *queries("EXECUTE p")],
    "seen": [
        *queries("PREPARE p AS SELECT 1", VIEW), parse("SELECT $1::int", "s") + SYNC, *queries(VIEW), run("s",
        1) + SYNC,
        *queries(VIEW, "DEALLOCATE p", VIEW), close("S", "s") + SYNC, *queries(VIEW)],
    "seen in a transaction": [
        parse("SELECT 1", "s") + SYNC, *queries("BEGIN", VIEW), run("s") + SYNC, parse("SELECT 2", "t") + SYNC,
        *queries(VIEW, "COMMIT", VIEW)],
    "in a text that can't be read": [
        parse("SELECT 1", "s") + SYNC, *queries('SELECT U&"name" FROM PG_Prepared_statements',
            'EXECUTE s; SELECT 1 AS U&"x"', 'SELECT 1 AS U&"x"; EXPLAIN (COSTS OFF) Execute s',
            'SELECT 1 AS U&"x"; PREPARE s AS SELECT 2', 'DEALLOCATE s; SELECT 1 AS U&"x"', "EXECUTE s",
            'SELECT 1 AS U&"x"; PREPARE p AS SELECT 2', "EXECUTE p", 'SELECT 1 AS U&"x"; DEALLOCATE p', "EXECUTE p")],
    "seen by a statement": [
        parse(VIEW, "v") + SYNC, run("v") + SYNC, parse("SELECT 1", "s") + SYNC, run("v") + SYNC,
        *queries("PREPARE p AS SELECT 1"), run("v") + SYNC],
}


def has_transaction(steps):
    return query("BEGIN") in steps


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_postgresql(start_pooler, plain_or_assisted_pg, name):
    steps = SCRIPTS[name]
    with plain_or_assisted_pg.raw() as direct:
        expected = play_between(direct, steps)
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=2)
    with weir.raw() as other, weir.raw() as noisy:
        # Other clients' statements of these names must be invisible.
        noisy.query("PREPARE p AS SELECT 'noisy'")
        noisy.send(parse("SELECT 'noisy'", "s") + parse("SELECT 'noisy'", "S") + SYNC).until_ready()
        for known in (False, True):
            mover = (lambda: None) if has_transaction(steps) else Mover(other)
            with weir.raw() as client:
                assert play_between(client, steps, mover) == expected, f"known to the servers: {known}"
            other.query("ROLLBACK")
        assert rows(noisy.send(query("EXECUTE p")).until_ready()) == [("noisy",)]
        assert rows(noisy.send(run("s") + SYNC).until_ready()) == [("noisy",)]


IN_SCHEMA = "SELECT * FROM closed.t"
# PostgreSQL checks the privilege to use a schema when it analyses a statement, and not when it runs the statement.
OF_CLOSED_SCHEMA = {
    "of SQL": queries(f"PREPARE p AS {IN_SCHEMA}", "SET ROLE outsider", NAMES, "EXECUTE p", NAMES, IN_SCHEMA,
                      "RESET ROLE", "EXECUTE p", "SET ROLE outsider", "EXECUTE p", NAMES),
    "of the protocol, seen": [
        parse(IN_SCHEMA, "s") + SYNC, parse("SELECT 1", "t") + SYNC,
        *queries("SET ROLE outsider", NAMES, "EXECUTE s", IN_SCHEMA), run("s") + SYNC,
        *queries(NAMES, "RESET ROLE", NAMES), run("s") + SYNC],
    "of the protocol": [
        parse(IN_SCHEMA, "s") + SYNC, *queries("SET ROLE outsider"), run("s") + SYNC, *queries(IN_SCHEMA),
        run("s") + SYNC, *queries("RESET ROLE"), run("s") + SYNC],
    "refused to the role": [
        *queries("SET ROLE outsider", f"PREPARE p AS {IN_SCHEMA}", NAMES, "EXECUTE p"), parse(IN_SCHEMA, "s") + SYNC,
        *queries(NAMES, "EXECUTE s"), run("s") + SYNC, *queries("RESET ROLE", NAMES)],
}
# docs/prepared.md names this limit.
REFUSED_ON_OTHER_SERVERS = {("of the protocol", 2)}


@pytest.mark.parametrize("name, servers", [(name, servers) for name in OF_CLOSED_SCHEMA for servers in (1, 2)
                                           if (name, servers) not in REFUSED_ON_OTHER_SERVERS])
def test_of_a_schema_that_the_role_may_not_use(start_pooler, plain_or_assisted_pg, name, servers):
    """With one server, its session is cleaned before each step. With two, some steps run on another server."""
    steps = OF_CLOSED_SCHEMA[name]
    with plain_or_assisted_pg.connect("app") as db:
        db.execute("CREATE ROLE outsider; GRANT outsider TO trusty; CREATE SCHEMA closed;"
                   " GRANT USAGE ON SCHEMA closed TO trusty; CREATE TABLE closed.t AS SELECT 'c';"
                   " GRANT SELECT ON closed.t TO trusty, outsider")
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=servers)
    try:
        with plain_or_assisted_pg.raw() as direct:
            expected = play_between(direct, steps)
        with weir.raw() as other:
            for known in (False, True):
                mover = Mover(other) if servers > 1 else lambda: other.query("SET app.other = 'on'")
                with weir.raw() as client:
                    assert play_between(client, steps, mover) == expected, f"known to the servers: {known}"
                other.query("ROLLBACK")
    finally:
        with plain_or_assisted_pg.connect("app") as db:
            db.execute("DROP SCHEMA closed CASCADE; REVOKE outsider FROM trusty; DROP ROLE outsider")


def test_execute_after_a_name_was_refused_and_the_session_inspected(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1, pinned_overflow=0, query_wait_notify=0)
    with weir.raw() as client, weir.raw() as other:
        client.query("SET ROLE trusty; CREATE TEMP TABLE pins ()")
        client.query("PREPARE p AS SELECT 1")
        assert errors(client.send(parse("SELECT 2", "p") + SYNC).until_ready())[0][0] == "42P05"
        other.send(query("SELECT 1"))
        other.quiet(0.4)
        client.send(parse("SELECT 3", "s") + extended("EXECUTE s") + close("S", "s") + SYNC)
        assert rows(client.until_ready()) == [("3",)]


def test_a_server_is_free_between_transactions(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as one, weir.raw() as two:
        for turn in range(3):
            for client in (one, two):
                if turn == 0:
                    client.query(f"PREPARE p AS SELECT {id(client)}")
                assert rows(client.send(query("EXECUTE p")).until_ready()) == [(str(id(client)),)]
        two.query("DEALLOCATE p")
        assert errors(two.send(query("EXECUTE p")).until_ready())
        assert rows(one.send(query("EXECUTE p")).until_ready()) == [(str(id(one)),)]


@pytest.mark.parametrize("uses", [True, False])
def test_a_statement_that_can_not_be_prepared_for_a_while(start_pooler, plain_or_assisted_pg, uses):
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=1)
    with weir.raw() as client, weir.raw() as other:
        other.query("DROP TABLE IF EXISTS for_a_time; CREATE TABLE for_a_time AS SELECT 1 AS a")
        client.query("PREPARE p AS SELECT 2")
        client.query("PREPARE q AS SELECT a FROM for_a_time")
        assert client.value("EXECUTE q") == "1"
        other.query("DROP TABLE for_a_time")
        if uses:
            assert errors(client.query("EXECUTE q"))
            client.query("PREPARE r AS SELECT 3")
        assert client.value("EXECUTE p") == "2"
        other.query("CREATE TABLE for_a_time AS SELECT 4 AS a")
        assert client.value("EXECUTE q") == "4"
        other.query("DROP TABLE for_a_time")
        assert errors(client.query("EXECUTE q"))
        client.query("DEALLOCATE ALL")
        other.query("CREATE TABLE for_a_time AS SELECT 4 AS a")
        assert errors(client.query("EXECUTE q"))[0][0] == "26000"
        assert not errors(client.query("PREPARE q AS SELECT 5"))
        other.query("DROP TABLE for_a_time")


@pytest.mark.parametrize("text", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_a_server_is_free_after_requests_that_had_to_wait(start_pooler, newest_pg, text):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as client, weir.raw() as other:
        client.send(parse("SELECT 1", "s") + SYNC).until_ready()
        # The server that answers the first request decides what the name means.
        steps = parse(text) + bind() + execute() + SYNC + parse("SELECT 3", "x") + run("x") + SYNC
        client.send(steps).until_ready()
        assert rows(client.until_ready()) == [("3",)]
        assert other.value("SELECT 'free'") == "free"
        assert errors(client.send(run("s") + SYNC).until_ready())[0][0] == "26000"
        assert rows(client.send(run("x") + SYNC).until_ready()) == [("3",)]


def random_step(dice):
    """Returns one step with three names, of SQL and of the protocol."""
    name = dice.choice("abc")
    number = dice.randrange(3)
    return dice.choice([
        lambda: query(f"PREPARE {name} AS SELECT {number}"),
        lambda: query(f"EXECUTE {name}"),
        lambda: query(f"DEALLOCATE {name}"),
        lambda: parse(f"SELECT {number}", name) + SYNC,
        lambda: parse(f"SELECT {number}", name) + run(name) + SYNC,
        lambda: run(name) + SYNC,
        lambda: run(name) + SYNC,
        lambda: describe("S", name) + SYNC,
        lambda: close("S", name) + SYNC,
        lambda: close("S", name) + parse(f"SELECT {number}", name) + SYNC,
        lambda: parse(f"EXECUTE {name}") + bind() + execute() + SYNC,
        lambda: query(f"EXECUTE {name}; PREPARE {name} AS SELECT {number}"),
        lambda: query(f"DEALLOCATE {name}; PREPARE {name} AS SELECT {number}; EXECUTE {name}"),
        # For a statement that was prepared in a text of several statements, the view shows only its own part.
        lambda: query(dice.choice(["DEALLOCATE ALL", "DISCARD ALL", NAMES, NAMES, "SELECT 1"])),
    ])()


@pytest.mark.parametrize("seed", range(6))
def test_random_sessions(start_pooler, plain_or_assisted_pg, seed):
    """Clients use servers in turn, and may keep one. Each gets the same answers as from PostgreSQL itself."""
    dice = random.Random(seed)
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=5)
    pairs = []
    for _ in range(3):
                pairs.append((plain_or_assisted_pg.raw(), weir.raw()))
    with weir.raw() as holder:
        mover = Mover(holder)
        for number in range(150):
            mover()
            direct, client = dice.choice(pairs)
            step = random_step(dice)
            expected, found = (play_between(one, [step]) for one in (direct, client))
            assert found == expected, (seed, number, step)
    for pair in pairs:
        for one in pair:
            one.close()


@pytest.mark.parametrize("text", [
    'DEALLOCATE "{}"', "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
    "DO $$ BEGIN EXECUTE 'DEALLOCATE \"{}\"'; END $$"])
def test_deallocate_of_other_clients_statements(start_pooler, plain_or_assisted_pg, text):
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=1)
    with weir.raw() as one, weir.raw() as other:
        one.send(parse("SELECT 1", "S_1") + SYNC).until_ready()
        for number in range(20):
            other.query(text.format(f"PGWEIR_{number}"))
            one.send(run("S_1") + SYNC)
            assert rows(one.until_ready()) == [("1",)]


@pytest.mark.parametrize("how", ["bound", "executed", "executed by the protocol"])
@pytest.mark.parametrize("text", [
    "SELECT set_config('app.x', 'secret', false)", "SELECT set_config('app.x', 'secret', false), 'ä'"])
def test_settings_that_a_statement_makes_reach_no_other_client(start_pooler, plain_or_assisted_pg, how, text):
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=2)
    use = {"bound": run("p") + SYNC, "executed": query("EXECUTE p"),
        "executed by the protocol": parse("EXECUTE p") + run("") + SYNC}
    with weir.raw() as one, weir.raw() as other:
        one.query(f"PREPARE p AS {text}")
        for _ in range(3):
            other.query("SELECT 1")
            assert not errors(one.send(use[how]).until_ready())
            for _ in range(3):
                assert other.value("SELECT current_setting('app.x', true)") in (None, "")
            assert one.value("SELECT current_setting('app.x', true)") == "secret"


@pytest.mark.parametrize("use", [run("p") + SYNC, query("EXECUTE p")], ids=["bound", "executed"])
@pytest.mark.parametrize("prepared", [True, False], ids=["of SQL", "of the protocol"])
def test_a_statement_may_change_the_catalog(start_pooler, newest_pg, use, prepared):
    """The function's text does not show the DDL: the catalog is read again before its certificates count."""
    newest_pg.run("""
        CREATE TABLE hit (a int);
        CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN PERFORM set_config('app.kept', 'secret', false); RETURN NEW; END$$;
        CREATE FUNCTION traps() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
            $$BEGIN EXECUTE 'CREATE TRIGGER keeps BEFORE INSERT ON hit FOR EACH ROW EXECUTE FUNCTION keeps()'; END$$;
        GRANT ALL ON hit TO trusty""", dbname="app")
    try:
        weir = start_pooler(newest_pg, workers=1, default_pool_size=1, catalog_check_interval=3600)
        with weir.raw() as one, weir.raw() as other:
            one.send(query("PREPARE p AS SELECT traps()") if prepared else parse("SELECT traps()", "p") + SYNC)
            one.until_ready()
            for _ in range(2):
                read(weir)
                other.query("INSERT INTO hit VALUES (1)")
                one.query("SELECT 1")
            read(weir)
            assert not errors(one.send(use).until_ready())
            other.query("INSERT INTO hit VALUES (2)")
            assert one.value("SELECT current_setting('app.kept', true)") in (None, "")
    finally:
        newest_pg.run("DROP TABLE hit; DROP FUNCTION keeps(), traps()", dbname="app")


GONE = queries("CREATE TEMP TABLE gone AS SELECT 1 AS x", "PREPARE g AS SELECT x + 1 FROM gone", "EXECUTE g",
    "DROP TABLE gone")


@pytest.fixture(params=[False, True], ids=["", "extension"])
def pg_18(request, shared_clusters):
    return shared_clusters(VERSIONS[-1], assist=request.param)


@pytest.mark.parametrize("steps", [
    queries("EXECUTE g", "EXECUTE g"),
    queries("BEGIN", "EXECUTE g", "SELECT 1", "ROLLBACK", "EXECUTE g"),
    queries("BEGIN", "CREATE TEMP TABLE gone AS SELECT 2 AS x", "EXECUTE g", "COMMIT", "EXECUTE g"),
    [parse("EXECUTE g") + bind() + execute() + SYNC],
], ids=["alone", "in a transaction", "made again", "in the extended protocol"])
def test_a_table_is_gone(start_pooler, pg_18, steps):
    """EXECUTE fails for the reason that PostgreSQL gives, also on a server where the statement could not be prepared."""
    with pg_18.raw() as direct:
        play_between(direct, GONE)
        expected = play_between(direct, steps)
    weir = start_pooler(pg_18, workers=1, default_pool_size=2)
    with weir.raw() as other, weir.raw() as client:
        play_between(client, GONE)
        # Another client has the client's server, so the client gets another one.
        pid = client.value("SELECT pg_backend_pid()")
        assert other.query("BEGIN") and other.value("SELECT pg_backend_pid()") == pid
        assert play_between(client, steps) == expected
