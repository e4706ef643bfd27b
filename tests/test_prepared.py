"""Prepared statements of the protocol: many clients on few servers get the same answers as on servers of their own."""

import random
import threading

import psycopg
import pytest

import rawclient as wire
from rawclient import FLUSH, SYNC, bind, close, describe, errors, execute, kinds, parse, query, rows, run

INT4, TEXT = 23, 25


# name: steps of messages; each step ends with one answer to Sync or Query
SCRIPTS = {
    "used again": [
        parse("SELECT $1::int + 1", "S_1") + SYNC, run("S_1", 1) + SYNC,
        run("S_1", 2) + SYNC, describe("S", "S_1") + SYNC],
    "made and used at once": [
        parse("SELECT 1", "S_1") + run("S_1") + SYNC, run("S_1") + run("S_1") + SYNC],
    "described": [
        parse("SELECT $1 || 'x' AS y", "S_1") + describe("S", "S_1") + SYNC,
        bind(["a"], name="S_1") + describe() + execute() + SYNC],
    "with types": [
        parse("SELECT $1", "S_1", [INT4]) + parse("SELECT $1", "S_2", [TEXT]) + SYNC,
        describe("S", "S_1") + describe("S", "S_2") + SYNC,
        run("S_1", 7) + run("S_2", "x") + SYNC],
    "two names for one text": [
        parse("SELECT 5", "S_1") + SYNC, parse("SELECT 5", "S_2") + SYNC,
        run("S_1") + run("S_2") + SYNC, close("S", "S_1") + SYNC,
        run("S_2") + SYNC, run("S_1") + SYNC],
    "name taken": [
        parse("SELECT 1", "S_1") + SYNC, parse("SELECT 2", "S_1") + SYNC,
        parse("SELECT 2", "S_1") + run("S_1") + SYNC, run("S_1") + SYNC],
    "name taken, and a text that can't be": [
        parse("SELECT 1", "S_1") + SYNC, parse("SELEKT", "S_1") + SYNC, run("S_1") + SYNC,
        parse("SELECT 1 FROM nowhere", "S_1") + SYNC, parse("SELEKT", "S_2") + SYNC,
        query("BEGIN"), query("SELEKT"), parse("SELECT 1", "S_1") + SYNC, query("ROLLBACK"),
        run("S_1") + SYNC],
    "no such name": [
        run("S_9") + SYNC, describe("S", "S_9") + SYNC, close("S", "S_9") + SYNC,
        bind(name="") + SYNC, query("SELECT 1")],
    "closed and made anew": [
        parse("SELECT 1", "S_1") + SYNC, close("S", "S_1") + parse("SELECT 2", "S_1") + SYNC,
        run("S_1") + SYNC, close("S", "S_1") + SYNC, run("S_1") + SYNC],
    "error in parse": [
        parse("SELECT nothing FROM nowhere", "S_1") + run("S_1") + SYNC, run("S_1") + SYNC,
        parse("SELECT 1", "S_1") + run("S_1") + SYNC],
    "skipped after an error": [
        parse("SELECT 1", "S_1") + SYNC,
        parse("SELEKT", "S_2") + parse("SELECT 3", "S_3") + close("S", "S_1") + SYNC,
        run("S_1") + SYNC, run("S_3") + SYNC, parse("SELECT 3", "S_3") + SYNC,
        run("S_3") + SYNC],
    "error in execute": [
        parse("SELECT 1/$1::int", "S_1") + SYNC,
        run("S_1", 0) + parse("SELECT 2", "S_2") + SYNC, run("S_1", 1) + SYNC,
        run("S_2") + SYNC],
    "error, then Sync later": [
        parse("SELECT 1", "S_1") + SYNC, parse("SELEKT", "S_2") + FLUSH,
        parse("SELECT 1", "S_3") + run("S_1") + SYNC, run("S_3") + SYNC,
        run("S_1") + SYNC],
    "flush": [
        parse("SELECT 1", "S_1") + FLUSH, run("S_1") + FLUSH, SYNC,
        parse("SELECT 1", "S_2") + FLUSH, describe("S", "S_2") + FLUSH, SYNC],
    "over several Syncs in flight": [
        parse("SELECT 1", "S_1") + SYNC + run("S_1") + SYNC + parse("SELECT 1", "S_2") + SYNC
        + run("S_2") + SYNC],
    "transaction": [
        parse("BEGIN", "B") + parse("ROLLBACK", "R") + parse("SELECT 1/$1::int", "S") + SYNC,
        run("B") + SYNC, run("S", 1) + SYNC, run("S", 0) + SYNC,
        run("S", 1) + SYNC, parse("SELECT 1", "S_2") + SYNC, run("R") + SYNC,
        run("S_2") + SYNC, run("S", 1) + SYNC],
    "made in a transaction that is rolled back": [
        query("BEGIN"), parse("SELECT 1", "S_1") + SYNC, query("ROLLBACK"), run("S_1") + SYNC],
    "portals": [
        parse("SELECT generate_series(1, 5)", "S_1") + SYNC,
        query("BEGIN"), bind(portal="P", name="S_1") + execute(2, "P") + SYNC,
        execute(2, "P") + SYNC, close("P", "P") + SYNC, query("COMMIT")],
    "unnamed beside named": [
        parse("SELECT 1", "S_1") + parse("SELECT 2") + bind() + execute() + run("S_1") + SYNC,
        run("S_1") + parse("SELECT 3") + bind() + execute() + SYNC],
    "unnamed, described first": [
        parse("SELECT $1::int + 1") + describe("S") + SYNC, bind([1]) + execute() + SYNC,
        bind([2]) + execute() + SYNC, describe("S") + SYNC],
    "unnamed, made anew": [
        parse("SELECT 1") + SYNC, parse("SELECT 2") + SYNC, bind() + execute() + SYNC,
        parse("SELEKT") + SYNC, bind() + execute() + SYNC],
    "unnamed, another skipped": [
        parse("SELECT 1") + SYNC, run("none") + parse("SELECT 2") + SYNC, run("") + SYNC],
    "unnamed, others skipped in two requests": [
        parse("SELECT 1") + SYNC, run("none") + parse("SELECT 2") + SYNC + run("none") + parse("SELECT 3") + SYNC, run("") + SYNC],
    "unnamed, one failed and another skipped": [
        parse("SELECT 1") + SYNC, parse("SELEKT") + parse("SELECT 2") + SYNC, run("") + SYNC],
    "unnamed, one failed, another skipped later": [
        parse("SELECT 1") + SYNC, parse("SELEKT") + SYNC + run("none") + parse("SELECT 2") + SYNC, run("") + SYNC],
    "unnamed in a transaction, another skipped": [
        query("BEGIN"), parse("SELECT 1") + run("") + SYNC, query("SAVEPOINT a"), parse("SELECT 2") + run("") + SYNC,
        parse("ROLLBACK TO a", "R") + SYNC, run("none") + parse("SELECT 3") + SYNC, run("R") + SYNC, run("") + SYNC, query("COMMIT")],
    "unnamed in a transaction, one made and another skipped": [
        query("BEGIN"), query("SAVEPOINT a"), parse("ROLLBACK TO a", "R") + SYNC,
        parse("SELECT 2") + run("") + run("none") + parse("SELECT 3") + SYNC, run("R") + SYNC, run("") + SYNC, query("COMMIT")],
    "unnamed, ended by a query": [
        parse("SELECT 1") + SYNC, query("SELECT 2"), bind() + execute() + SYNC],
    "unnamed, closed": [
        parse("SELECT 1") + SYNC, close("S") + SYNC, bind() + execute() + SYNC],
    "unnamed over a transaction": [
        query("BEGIN"), parse("SELECT 1") + SYNC, bind() + execute() + SYNC, query("COMMIT"),
        bind() + SYNC],
    "deallocated": [
        parse("SELECT 1", "S_1") + SYNC, query("DEALLOCATE ALL"), run("S_1") + SYNC,
        parse("SELECT 1", "S_1") + run("S_1") + SYNC],
    "discarded": [
        parse("SELECT 1", "S_1") + SYNC, parse("DISCARD ALL") + bind() + execute() + SYNC,
        run("S_1") + SYNC, parse("SELECT 1", "S_1") + run("S_1") + SYNC],
    "a long name": [
        parse("SELECT 1", "n" * 9000) + SYNC, run("n" * 9000) + SYNC,
        close("S", "n" * 9000) + SYNC],
    "a long text": [
        parse("SELECT length('" + "x" * 500_000 + "')", "S_1") + SYNC, run("S_1") + SYNC],
    "a long value": [
        parse("SELECT length($1)", "S_1") + SYNC, run("S_1", "x" * 3_000_000) + SYNC,
        run("S_1", "y") + SYNC],
    "no text": [parse("", "S_1") + SYNC, run("S_1") + SYNC],
}


def answer(messages):
    """Returns the parts of an answer that a client can compare, without those that differ between any two sessions."""
    seen = []
    for message in messages:
        if message.kind == "E":
            fields = message.fields
            seen.append(("E", fields["S"], fields["C"], fields["M"]))
        elif message.kind != "S":
            seen.append((message.kind, message.body))
    return seen


def play_between(client, steps, before=lambda: None):
    """Plays steps, and calls a function before each. The answers to a Flush without Sync are read with the next step.
    """
    heard = []
    for step in steps:
        before()
        heard += answer(client.ask(step))
    return heard


class Mover:
    """Every other time, takes the server that was used last, so that the next step runs on another one."""

    def __init__(self, client):
        self.client = client
        self.holds = False

    def __call__(self):
        self.client.query("COMMIT" if self.holds else "BEGIN")
        self.holds = not self.holds


def stays_with_a_server(steps):
    """Returns whether a step leaves a transaction or a pipeline open, so that the next step needs the same server."""
    return any(query("BEGIN") in step or run("B") in step or step.endswith(FLUSH) for step in steps)


@pytest.mark.shows("max_prepared_statements")
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("most", [1, 2, 200])
def test_same_as_postgresql(start_pooler, pg, name, most):
    steps = SCRIPTS[name]
    with pg.raw() as direct:
        expected = play_between(direct, steps)
    weir = start_pooler(pg, workers=1, default_pool_size=2, max_prepared_statements=most)
    with weir.raw() as other:
        for known in (False, True):
            mover = (lambda: None) if stays_with_a_server(steps) else Mover(other)
            with weir.raw() as client:
                assert play_between(client, steps, mover) == expected, f"known to the servers: {known}"
            other.query("ROLLBACK")


@pytest.mark.shows("max_prepared_statements")
def test_servers_hold_no_more_than_they_may(start_pooler, newest_pg):
    # The server that clients use shows its statements.
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1, max_prepared_statements=3,
                        session_state="off")
    with weir.raw() as client:
        for n in range(10):
            client.send(parse(f"SELECT {n}", f"S_{n}") + run(f"S_{n}") + SYNC)
            assert wire.value(client.until_ready()) == str(n)
            assert int(client.value("SELECT count(*) FROM pg_prepared_statements")) == min(n + 1, 3)
        # A use makes a statement recent: S_8 stays, S_7 is closed.
        for n in (8, 9, 0):
            client.send(run(f"S_{n}") + SYNC)
            assert wire.value(client.until_ready()) == str(n)
        held = client.values("SELECT statement FROM pg_prepared_statements ORDER BY 1")
        assert held == ["SELECT 0", "SELECT 8", "SELECT 9"]


@pytest.mark.shows("max_prepared_statements")
def test_with_max_prepared_statements_0_names_are_not_tracked(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, default_pool_size=1, max_prepared_statements=0)
    with weir.raw() as client:
        client.send(parse("SELECT 1", "S_1") + SYNC)
        assert kinds(client.until_ready()) == "1Z"
        assert client.values("SELECT name FROM pg_prepared_statements") == ["S_1"]


@pytest.mark.shows("max_client_prepared_bytes")
@pytest.mark.guards("statement_memory")
def test_a_client_that_prepares_too_much(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, max_client_prepared_bytes=2000)
    with weir.raw() as client:
        made = 0
        while True:
            client.send(parse(f"SELECT {made}", f"S_{made}") + SYNC)
            messages = client.until_ready()
            if errors(messages):
                break
            made += 1
        assert 10 < made < 20
        assert errors(messages)[0][0] == "53400"
        client.send(close("S", "S_0") + parse("SELECT 'x'", "S_x") + run("S_x") + SYNC)
        assert wire.value(client.until_ready()) == "x"
        client.send(parse("SELECT '" + "x" * 3000 + "'", "S_y") + SYNC)
        assert [state for state, _ in errors(client.until_ready())] == ["53400"]
        client.send(parse("SELECT '" + "x" * 900_000 + "'", "S_y") + SYNC)
        assert [m.sqlstate for m in client.rest() if m.kind == "E"] == ["53400"]


def test_a_server_whose_statements_were_removed(start_pooler, newest_pg):
    """After a client's DEALLOCATE of pgweir's statement, another client gets at most one error."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1, session_state="off")
    with weir.raw() as one, weir.raw() as other:
        one.send(parse("SELECT 1", "S_1") + SYNC).until_ready()
        (name,) = other.values("SELECT name FROM pg_prepared_statements")
        other.query(f'DEALLOCATE "{name}"')
        one.send(run("S_1") + SYNC)
        assert errors(one.until_ready()) == [("26000", 'prepared statement "S_1" does not exist')]
        one.send(run("S_1") + SYNC)
        assert rows(one.until_ready()) == [("1",)]


@pytest.mark.parametrize("text", ["DO $$ BEGIN DEALLOCATE ALL; END $$", "DO $$ BEGIN EXECUTE 'dealloc' || 'ate all'; END $$"])
def test_a_statement_that_code_deallocates(start_pooler, newest_pg, text):
    """pgweir learns of it when the client uses the statement."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)

    def play(client):
        client.send(parse("SELECT 6", "s") + SYNC).until_ready()
        client.query(text)
        heard = [errors(client.send(run("s") + SYNC).until_ready()) for _ in range(2)]
        heard.append(rows(client.query("SELECT name FROM pg_prepared_statements")))
        heard.append(rows(client.send(parse("SELECT 7", "s") + run("s") + SYNC).until_ready()))
        return heard

    with newest_pg.raw() as client:
        expected = play(client)
    with weir.raw() as client:
        assert play(client) == expected


def test_unnamed_statements_of_others(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as one, weir.raw() as other:
        one.send(parse("SELECT 'one'") + SYNC).until_ready()
        other.send(bind() + execute() + SYNC)
        assert [state for state, _ in errors(other.until_ready())] == ["26000"]
        one.send(bind() + execute() + SYNC)
        assert rows(one.until_ready()) == [("one",)]
        other.send(parse("SELECT 'other'") + SYNC).until_ready()
        one.send(bind() + execute() + SYNC)
        assert rows(one.until_ready()) == [("one",)]


def test_the_unnamed_statement_survives_a_query_that_the_server_skips(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    for connect in (newest_pg.raw, weir.raw):
        with connect() as one:
            one.send(parse("SELECT 'one'") + SYNC).until_ready()
            one.send(run("none"), query("SELECT 2"), SYNC)
            assert kinds(one.until_ready()) == "EZ"
            assert rows(one.send(run("") + SYNC).until_ready()) == [("one",)]


def test_changed_result_type(start_pooler, newest_pg):
    """The client gets the error, as on a direct connection, and a statement that it prepares afterwards works."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as client:
        client.query("DROP TABLE IF EXISTS changing; CREATE TABLE changing (a int)")
        client.send(parse("SELECT * FROM changing", "S_1") + run("S_1") + SYNC).until_ready()
        client.query("ALTER TABLE changing ADD b int")
        client.send(run("S_1") + SYNC)
        assert [state for state, _ in errors(client.until_ready())] == ["0A000"]
        client.send(parse("SELECT * FROM changing", "S_2") + SYNC)
        assert kinds(client.until_ready()) == "1Z"
        client.send(run("S_2") + SYNC)
        assert not errors(client.until_ready())
        client.query("DROP TABLE changing")


def test_counters(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as one, weir.raw() as two:
        for client in (one, two):
            client.send(parse("SELECT 1", "S_1") + SYNC).until_ready()
            client.send(run("S_1") + SYNC).until_ready()
            client.send(run("S_1") + SYNC).until_ready()
        (stats,) = [row for row in weir.console("SHOW STATS") if row["database"] == "app"]
        found = [stats[f"total_{what}_count"] for what in ("client_parse", "server_parse", "bind")]
        assert found == [2, 1, 4]
        assert [row["prepared_statements"] for row in weir.console("SHOW SERVERS")] == [1]


@pytest.mark.parametrize("most", [2, 200])
def test_many_clients_with_clashing_names(start_pooler, newest_pg, workers, most):
    weir = start_pooler(
        newest_pg, workers=workers, default_pool_size=3, max_prepared_statements=most)
    failures = []

    def work(seed):
        dice = random.Random(seed)
        try:
            with psycopg.connect(
                host=weir.host, port=weir.port, user="trusty", dbname="app", autocommit=True,
                prepare_threshold=0,
            ) as conn:
                for turn in range(60):
                    texts = [f"SELECT {dice.randrange(9)} + %s::int /* {seed % 3} */" for _ in range(4)]
                    if dice.random() < 0.1:
                        with pytest.raises(psycopg.errors.UndefinedTable):
                            conn.execute(f"SELECT {turn} FROM nowhere")
                    with conn.pipeline() if dice.random() < 0.3 else conn.transaction():
                        cursors = [conn.execute(text, (turn,)) for text in texts]
                        for text, cursor in zip(texts, cursors):
                            assert cursor.fetchone()[0] == int(text.split()[1]) + turn
        except Exception as error:  # shown by the main thread
            failures.append((seed, repr(error)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@pytest.mark.pgweir_only("ends the connection")
def test_a_failed_name_in_an_error_is_in_the_log(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    with pooler.raw() as client:
        for number in range(40):
            name = f"S_{number}"
            assert not errors(client.send(parse("SELECT 1", name) + SYNC).until_ready())
            assert errors(client.send(parse("SELECT 1", name) + SYNC).until_ready())[0][0] == "42P05"
            assert f"prepared statement '{name}' was already prepared" in pooler.log()
            assert errors(client.send(bind(name=f"T_{number}") + SYNC).until_ready())[0][0] == "26000"
            assert f"prepared statement did not exist: 'T_{number}'" in pooler.log()
