"""SQL that refers to prepared statements which the server has under other names, or which can't be prepared any more.
"""

import pytest

import rawclient as wire
from rawclient import SYNC, bind, close, errors, execute, extended, parse, queries, query, rows, run
from test_startup_values import differences, told

# pg_prepared_statements lacks statements that can't be prepared. It shows no other client's statements.
LONG = "n" * 63
SEES = query("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'")
NAMES = query("SELECT name, from_sql FROM pg_prepared_statements ORDER BY name")
CREATE, DROP = "CREATE TABLE later AS SELECT 4 AS a", "DROP TABLE IF EXISTS later"


def synced(sql):
    return extended(sql) + SYNC


def dropped_elsewhere(*steps):
    """A client with a statement `p` of SQL and a statement `s` of the protocol, whose table another client has dropped.
    """
    return [CREATE, *queries("PREPARE p AS SELECT a FROM later",
        "PREPARE pp (int, int) AS SELECT a, $1, $2 FROM later"),
            parse("SELECT a FROM later", "s") + SYNC, *queries("EXECUTE p"), run("s") + SYNC, DROP, *steps]


# name: the steps of the client, each in one write. Steps of another client are in words.
GONE = {
    "deallocated": dropped_elsewhere(*queries("DEALLOCATE PREPARE s", "EXECUTE s"), run("s") + SYNC),
    "deallocated by the extended protocol": dropped_elsewhere(synced("DEALLOCATE s"), synced("EXECUTE s"), run("s") + SYNC),
    "deallocated in a pipeline": dropped_elsewhere(
        extended("SELECT 1") + extended("DEALLOCATE s") + SYNC + synced("EXECUTE s"), query("SELECT 1") + query("DEALLOCATE s")),
    "closed": dropped_elsewhere(
        close("S", "p") + SYNC, *queries("EXECUTE p"), close("S", "s") + SYNC, *queries("EXECUTE s"),
        close("S", "pp") + SYNC, *queries("EXECUTE pp (1, 2)"), NAMES),
    "closed in a failed transaction": dropped_elsewhere(
        *queries("BEGIN", "SELECT 1/0"), close("S", "p") + SYNC, *queries("ROLLBACK", "EXECUTE p")),
    "in a transaction, deallocated": dropped_elsewhere(*queries(
        "BEGIN", "DEALLOCATE p", "DEALLOCATE s", "SELECT 1", "COMMIT", "EXECUTE p", "EXECUTE s")),
    "the table is back": dropped_elsewhere(
        CREATE, *queries("EXECUTE p", "EXECUTE pp (1, 2)", "EXECUTE s"), run("p") + SYNC, run("s") + SYNC),
    "the table is back, in a transaction": dropped_elsewhere(
        *queries("BEGIN", "SELECT 1"), CREATE, *queries("EXECUTE p", "EXECUTE s", "EXECUTE pp (1, 2)", "COMMIT")),
    "the table is made in the transaction": dropped_elsewhere(
        *queries("BEGIN", CREATE, "EXECUTE p", "EXECUTE s", "SAVEPOINT a", DROP, "EXECUTE s", "ROLLBACK", "EXECUTE p")),
    "nothing asked for": [*queries('PREPARE "p" AS SELECT', "EXECUTE p", 'EXECUTE p', "DEALLOCATE p")],
    "names that PostgreSQL cuts": [
        parse("SELECT 1", LONG + "a") + SYNC, parse("SELECT 2", LONG + "b") + SYNC, run(LONG) + SYNC, run(LONG + "c") + SYNC,
        *queries(f"EXECUTE {LONG}d", f"DEALLOCATE {LONG}", f"PREPARE {LONG}d AS SELECT 3"), run(LONG + "e") + SYNC,
        close("S", LONG + "f") + SYNC, *queries(f"EXECUTE {LONG}")],
    "all deallocated": dropped_elsewhere(*queries("DEALLOCATE ALL", "EXECUTE p", "EXECUTE s"), NAMES),
}


def dropped_by_itself(*steps):
    """A client with the same statements, whose table it drops itself. On a direct connection, the error comes at their
    execution.
    """
    return [*queries(CREATE, "PREPARE p AS SELECT a FROM later"), parse("SELECT a FROM later", "s") + SYNC, *steps,
            *queries("EXECUTE p", "EXECUTE s"), SEES]


DROPS = extended("SELECT 1") + extended("DROP TABLE later")
SEEN = extended("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'")
LOST = {
    "seen, then made anew": dropped_by_itself(SEEN + parse("SELECT 3", "s") + SYNC, run("s") + SYNC,
                                 SEEN + close("S", "s") + parse("SELECT 3", "s") + run("s") + SYNC, run("s") + SYNC),
    "deallocated": dropped_by_itself(DROPS + extended("DEALLOCATE s") + SYNC, DROPS + extended("DEALLOCATE p") + SYNC),
    "not deallocated": [*queries("CREATE TABLE later AS SELECT 4 AS a"), parse("SELECT a FROM later", "s") + SYNC,
        *queries(
        "BEGIN; CREATE TABLE more ()", "SAVEPOINT a"), extended("SELECT 1") + extended("PREPARE s AS SELECT 2")
        + extended("DEALLOCATE s") + SYNC, wire.describe("S", "s") + SYNC, *queries("ROLLBACK TO a"), run("s") + SYNC,
        *queries("EXECUTE s", "SELECT 1/0; DEALLOCATE s", "ROLLBACK TO a", "EXECUTE s"), run("s") + SYNC,
        query("ROLLBACK TO a; SELECT 1/0; DEALLOCATE s") + query("ROLLBACK TO a; EXECUTE s"), run("s") + SYNC,
        query("DEALLOCATE s") + run("s") + SYNC, *queries("ROLLBACK"), NAMES],
    "not closed": [*queries("CREATE TABLE later AS SELECT 4 AS a"), parse("SELECT a FROM later", "s") + SYNC, *queries(
        "BEGIN; CREATE TABLE more ()", "SAVEPOINT a"), extended("SELECT 1") + SEEN + extended("SELECT 1/0")
        + close("S", "s") + SYNC, wire.describe("S", "s") + SYNC, close("S", "nothing") + bind(name="s") + SYNC,
        *queries("ROLLBACK TO a"), run("s") + SYNC, *queries("EXECUTE s"), extended("SELECT 1") + SEEN + close("S",
        "s") + run("s") + SYNC,
        *queries("ROLLBACK TO a"), run("s") + SYNC, parse("SELECT 5", "s") + run("s") + SYNC, *queries("EXECUTE s",
        "ROLLBACK"), NAMES],
    "deallocated behind another request": [
        parse("SELECT 1", "s") + SYNC, wire.describe("S", "s") + SYNC + extended("DEALLOCATE s") + run("s") + SYNC,
        run("s") + SYNC,
        parse("SELECT 1", "s") + extended("DEALLOCATE s") + bind(name="s") + execute() + extended("EXECUTE s") + SYNC,
        parse("SELECT 2", "s") + SYNC, run("s") + SYNC,
        query("SELECT 3") + query("DEALLOCATE s") + synced("EXECUTE s") + run("s") + SYNC, NAMES],
    "deallocated, then used in the next request of the same write": [
        parse("SELECT 1", "s") + extended('DEALLOCATE "s"') + bind(name="s") + SYNC + bind(name="s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, extended('DEALLOCATE "s"') + bind(name="s") + SYNC + bind(name="s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, *queries("BEGIN", "SAVEPOINT a"),
        extended('DEALLOCATE "s"') + bind(name="s") + SYNC, query("ROLLBACK TO a"), bind(name="s") + SYNC, query("ROLLBACK")],
    "one deallocated, another used": [
        parse("SELECT 1", "s") + parse("SELECT 2", "t") + SYNC, extended("DEALLOCATE s") + extended("EXECUTE t") + SYNC,
        parse("SELECT 1", "s") + SYNC, query("DEALLOCATE s") + run("t") + SYNC + run("s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, *queries("BEGIN; CREATE TABLE more ()"), SEEN + SYNC, extended("SELECT 1") + SEEN
        + extended("DEALLOCATE s") + extended("DEALLOCATE t") + SYNC, run("t") + SYNC, *queries("ROLLBACK"),
        run("s") + SYNC, NAMES],
}


def failed(*steps):
    """A client with a statement of the protocol, in a failed transaction."""
    return [parse("SELECT 1", "s") + SYNC, *queries("BEGIN", "SAVEPOINT a", "SELECT 1/0"), *steps,
            query("ROLLBACK"), *queries("EXECUTE s"), NAMES]


FAILED = {
    "executed": failed(*queries("EXECUTE s"), synced("EXECUTE s")),
    "rolled back just before": failed(query("ROLLBACK") + query("EXECUTE s")),
    "committed just before": failed(query("COMMIT") + query("EXECUTE s") + query("EXECUTE s")),
    "rolled back to a savepoint": failed(query("ROLLBACK TO a") + query("EXECUTE s"), query("SELECT 1")),
    "rolled back by the extended protocol": failed(synced("ROLLBACK") + synced("EXECUTE s")),
    "rolled back in the same request": failed(extended("ROLLBACK") + extended("EXECUTE s") + SYNC),
    "and another one begun": failed(synced("ROLLBACK AND CHAIN") + synced("EXECUTE s") + synced("SELECT 1")),
    "by another statement": failed(
        query("ROLLBACK") + parse("EXECUTE s", "e") + SYNC + run("e") + SYNC, run("e") + SYNC, close("S", "e") + SYNC),
    "by another statement, in the same request": failed(
        extended("ROLLBACK") + parse("EXECUTE s", "e") + bind(name="e") + execute() + SYNC, close("S", "e") + SYNC),
    "seen in the same text": failed(
        query("ROLLBACK TO a; SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'"), query("SELECT 1")),
    "an end that fails": failed(query("ROLLBACK TO nothing; EXECUTE s"), query("SELECT 1; ROLLBACK; EXECUTE s")),
    "still failed": failed(query("SELECT 1") + query("EXECUTE s"), synced("SELECT 1") + synced("EXECUTE s"),
                           extended("SELECT 1") + extended("EXECUTE s") + SYNC),
    "failed on the way": [
        parse("SELECT 1", "s") + SYNC, query("BEGIN") + query("SELECT 1/0") + query("EXECUTE s") + query("ROLLBACK")
        + query("EXECUTE s"),
        synced("BEGIN") + synced("SELECT 1/0") + synced("EXECUTE s") + synced("ROLLBACK") + synced("EXECUTE s")],
    "the Close in front is skipped": [
        parse("SELECT 1", "s") + SYNC, parse("SELECT nothing", "t") + close("S", "s") + SYNC + synced("PREPARE s AS SELECT 2"),
        parse("SELECT nothing", "t") + close("S", "s") + SYNC + query("PREPARE s AS SELECT 3"), run("s") + SYNC, NAMES],
    "deallocated behind it": failed(synced("ROLLBACK") + synced("DEALLOCATE s") + synced("EXECUTE s")),
    "seen behind it": failed(query("ROLLBACK") + NAMES),
}


class ServerTaker:
    """Takes the only server before each step, if it is free, so that none of the client's statements is on the server.
    """

    def __init__(self, other):
        self.other, self.keeps = other, False

    def __call__(self, step):
        self.keeps |= b"BEGIN" in step or b"TEMP" in step
        if not self.keeps:
            self.other.query("SELECT 1")


def play_with_ddl(pg, client, steps, before):
    heard = []
    for step in steps:
        if isinstance(step, str):
            pg.run(step, dbname="app")
            continue
        before(step)
        heard.append((step, told(client.ask(step))))
    return heard


@pytest.mark.parametrize("scripts", [GONE, FAILED, LOST], ids=["gone", "failed", "lost"])
def test_same_as_postgresql(start_pooler, plain_or_assisted_pg, scripts):
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=2)
    plain_or_assisted_pg.run("GRANT CREATE ON SCHEMA public TO trusty", dbname="app")
    wrong = []
    with weir.raw() as other:
        for name, steps in scripts.items():
            plain_or_assisted_pg.run(DROP, dbname="app")
            with plain_or_assisted_pg.raw() as direct:
                expected = play_with_ddl(plain_or_assisted_pg, direct, steps, lambda step: None)
            plain_or_assisted_pg.run(DROP, dbname="app")
            with weir.raw() as client:
                found = play_with_ddl(plain_or_assisted_pg, client, steps, ServerTaker(other))
            wrong += [(name, *what) for what in differences(expected, found)]
    plain_or_assisted_pg.run(DROP, dbname="app")
    assert not wrong, "\n".join(map(str, wrong))


VIEW = "SELECT name FROM pg_prepared_statements ORDER BY name"
# Requests that take the client's own names to the server, with their answers.
TAKES_NAMES = {"executed": ("EXECUTE s", ["7"]), "seen": (VIEW, ["s", "t"]),
               "seen by words in a string": (f"SELECT U&\"name\" FROM ({VIEW}) AS v", ["s", "t"]),
               "deallocated with more": ("DEALLOCATE t; EXECUTE s", ["7"])}


@pytest.fixture
def two_clients(start_pooler, plain_or_assisted_pg):
    """Two clients of one server, each with statements `s` and `t`."""
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=1, pinned_overflow=0, query_wait_notify=0)
    with weir.raw() as one, weir.raw() as two:
        for client, number in ((one, 7), (two, 8)):
            assert not errors(client.send(parse(f"SELECT {number}", "s") + parse("SELECT 't'", "t") + SYNC).until_ready())
        yield one, two


@pytest.mark.parametrize("text, answer", TAKES_NAMES.values(), ids=TAKES_NAMES)
def test_a_client_keeps_the_server_that_has_its_names(two_clients, text, answer):
    one, two = two_clients
    assert one.values(text) == answer
    assert one.values("SELECT 1; EXECUTE s") == ["1", "7"]
    two.send(run("s") + SYNC)
    two.quiet(0.4)
    one.query("DEALLOCATE ALL")
    assert rows(two.until_ready()) == [("8",)]
    assert one.values(VIEW) == []
    assert rows(two.send(run("s") + SYNC).until_ready()) == [("8",)], "nothing is left that keeps the server"


@pytest.mark.parametrize("way", [query, synced], ids=["simple", "extended"])
def test_deallocate_by_itself_keeps_no_server(two_clients, way):
    one, two = two_clients
    for name in "st":
        assert not errors(one.send(way(f"DEALLOCATE {name}")).until_ready())
        assert rows(two.send(run("s") + SYNC).until_ready()) == [("8",)]
        assert errors(one.send(run(name) + SYNC).until_ready())[0][0] == "26000"
    assert not errors(one.send(parse("SELECT 9", "s") + SYNC).until_ready())
    assert rows(one.send(run("s") + SYNC).until_ready()) == [("9",)]
    assert two.values(VIEW) == ["s", "t"]


def test_names_of_a_client_that_leaves_are_gone(two_clients):
    one, two = two_clients
    assert one.values(VIEW) == ["s", "t"]
    one.close()
    assert rows(two.send(run("s") + SYNC).until_ready()) == [("8",)]
    assert two.values(VIEW) == ["s", "t"]


def test_a_statement_that_can_not_be_prepared(start_pooler, plain_or_assisted_pg):
    """Where SQL sees the client's names, this statement is missing. The client's other statements are there, and no
    other client's.
    """
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=1)
    plain_or_assisted_pg.run(f"{DROP}; {CREATE}", dbname="app")
    with weir.raw() as client:
        for name, text in (("a", "SELECT 1"), ("b", "SELECT a FROM later"), ("c", "SELECT 3")):
            assert not errors(client.send(parse(text, name) + SYNC).until_ready())
        plain_or_assisted_pg.run(DROP, dbname="app")
        assert client.values(VIEW) == ["a", "c"]
        assert errors(client.query("EXECUTE b"))[0][0] == "26000"
        assert client.values("EXECUTE c") == ["3"]
        client.query("BEGIN")
        assert errors(client.query(VIEW))[0][0] in ("42P01", "25P02")
        client.query("ROLLBACK")
        for name, number in (("a", "1"), ("c", "3")):
            assert rows(client.send(run(name) + SYNC).until_ready()) == [(number,)]
