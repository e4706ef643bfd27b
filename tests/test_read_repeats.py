"""A standby is lost before it replies: pgweir repeats the request on another host, and the client notices nothing."""

import os
import signal
import threading

import psycopg
import pytest

import machine
import rawclient
from test_certificates import catalog, read as read_catalog
from test_hosts import entry, make_pair

pytestmark = pytest.mark.pgweir_only("PgBouncer repeats no request")


@pytest.fixture(scope="module")
def pair(start_cluster, run_folder):
    """A primary and its standby; a test may kill the standby's backends, but leaves it running."""
    yield from make_pair(start_cluster, run_folder)


def start(start_pooler, pair, **more):
    """A pooler that reads from the standby, and from the primary if there is none."""
    primary, standby = pair
    machine.wait_until(standby.answers, what="the standby is back")
    settings = {"query_wait_notify": 0, "host_return_after": 0} | more
    databases = {"app": entry(standby, primary, target_session_attrs="prefer-standby")}
    return start_pooler(None, **{"databases": databases} | settings)


def repeats(pooler):
    """How many requests the pooler has repeated."""
    return pooler.log().count("the request is repeated")


def end_query(cluster, text, ends=True, but=0):
    """Waits until a backend other than `but` runs a statement with this text, and ends it, unless `ends` is False.
    Returns its pid.
    """
    how = "pg_terminate_backend(pid)" if ends else "true"
    found = machine.wait_until(lambda: cluster.rows(
        f"SELECT pid, {how} FROM pg_stat_activity WHERE query LIKE '%{text}%' AND state = 'active'"
        f" AND wait_event = 'PgSleep' AND pid NOT IN (pg_backend_pid(), {but})"), what=f"{text} runs")
    return found[0][0]


# The function sleeps on this backend, and returns at once on others.
SLOWLY = "SELECT pg_backend_pid(), current_setting('app.tenant', true) FROM pg_sleep(CASE pg_backend_pid() WHEN {} THEN 60 ELSE 0 END)"


def while_asked(ask, then):
    """Returns the result of `ask`, while `then` runs meanwhile."""
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask()))
    asking.start()
    then()
    asking.join()
    return answers[0]


@pytest.mark.parametrize("how", ["simple", "extended", "prepared", "pipeline"])
def test_a_terminated_backend(start_pooler, pair, workers, how):
    """Another backend answers instead, with the client's session state."""
    _, standby = pair
    pooler = start(start_pooler, pair, workers=workers)
    with pooler.connect() as db:
        db.execute("SET app.tenant = 'acme'")
        pid = db.execute("SELECT pg_backend_pid()", prepare=how == "prepared").fetchone()[0]
        text = SLOWLY.format(pid)

        def ask():
            match how:
                case "simple":
                    return psycopg.ClientCursor(db).execute(text).fetchone()
                case "pipeline":
                    with db.pipeline():
                        one, two = db.execute("SELECT 1"), db.execute(text)
                        return two.fetchone() if one.fetchone() == (1,) else None
            return db.execute(text, prepare=how == "prepared").fetchone()

        other, tenant = while_asked(ask, lambda: end_query(standby, "CASE pg_backend_pid"))
        assert other != pid and tenant == "acme"
        # The session goes on, with the statements that were prepared before.
        assert db.execute("SELECT current_setting('app.tenant')").fetchone() == ("acme",)
        assert db.execute("SELECT pg_backend_pid()", prepare=how == "prepared").fetchone()[0] != pid
    assert repeats(pooler) == 1


@pytest.mark.parametrize("ends", [True, False])
def test_a_statement_that_the_server_had_already(start_pooler, pair, ends):
    """pgweir answers such a Parse itself. Before it repeats the request, it prepares the statement on the other server.
    """
    _, standby = pair
    pooler = start(start_pooler, pair)
    text = "SELECT pg_backend_pid() FROM pg_sleep(CASE pg_backend_pid() WHEN $1::int THEN 60 ELSE 0 END)"
    with pooler.raw() as db:
        pid = rawclient.value(db.ask(rawclient.parse(text, "one") + rawclient.run("one", 0) + rawclient.SYNC))
        db.send(rawclient.parse(text, "two") + rawclient.run("two", pid) + rawclient.SYNC)
        end_query(standby, "CASE pg_backend_pid", ends)
        if not ends:
            os.kill(int(pid), signal.SIGKILL)
        assert rawclient.kinds(db.until_ready()).lstrip("S") == "12DCZ"
        for name in ["one", "two"]:
            assert rawclient.value(db.ask(rawclient.run(name, pid) + rawclient.SYNC)) != pid
    assert repeats(pooler) == 1


@pytest.mark.shows("read_repeat_buffer", "database.read_repeat_buffer")
@pytest.mark.parametrize("what", ["global 0", "database 0", "long", "begun", "transaction", "twice"])
def test_requests_that_are_not_repeated(start_pooler, pair, what):
    """The client gets the server's error."""
    primary, standby = pair
    key = {"read_repeat_buffer": 0} if what == "database 0" else {}
    of_all = {"global 0": 0, "database 0": 65536}.get(what, 1000)
    pooler = start(start_pooler, pair, read_repeat_buffer=of_all, databases={
        "app": entry(standby, primary, target_session_attrs="prefer-standby", **key)})
    sleep = f"pg_sleep(60) /* {what} */"
    text = {"long": f"SELECT {sleep} /* {'x' * 1000} */", "begun": f"SELECT 1; SELECT repeat('x', 20000); SELECT {sleep}"}
    with pooler.raw() as db:
        if what == "transaction":
            db.query("BEGIN")
        db.send(rawclient.query(text.get(what, f"SELECT {sleep}")))
        first = end_query(standby, what)
        if what == "twice":
            end_query(standby, what, but=first)
        found = rawclient.errors(db.until("EZ"))
        assert [sqlstate for sqlstate, _ in found] == ["57P01"]
    assert repeats(pooler) == (what == "twice")


def test_a_standby_that_stops(start_pooler, pair):
    """The primary answers instead."""
    primary, standby = pair
    pooler = start(start_pooler, pair)
    with pooler.connect() as db:
        assert db.execute("SELECT inet_server_port()").fetchone()[0] == standby.port
        text = f"SELECT inet_server_port() FROM pg_sleep(CASE inet_server_port() WHEN {standby.port} THEN 60 ELSE 0 END)"

        def stop():
            machine.wait_until(lambda: standby.running("%CASE inet_server_port%"))
            standby.stop("fast")
        assert while_asked(lambda: db.execute(text).fetchone()[0], stop) == primary.port
    standby.start()


def test_a_killed_backend_under_load(start_pooler, pair, workers):
    """`kill -9` of a standby's backend ends all of its sessions: no client gets an error, and all answers are right.

    This holds once pgweir has read the catalog, and has seen after the loss of all servers that the database is still
    the same: until then, any function may have changed a session, and such a session can't move.
    """
    _, standby = pair
    pooler = start(start_pooler, pair, workers=workers, default_pool_size=8)
    read_catalog(pooler, user="trusty")
    stop, answers, failures = threading.Event(), [0] * 12, []

    def read(number):
        try:
            with pooler.connect() as db:
                db.execute(f"SET app.tenant = 'tenant {number}'")
                while not stop.is_set():
                    found = db.execute("SELECT %s::int, current_setting('app.tenant') FROM pg_sleep(0.001)",
                                       (answers[number],)).fetchone()
                    assert found == (answers[number], f"tenant {number}")
                    answers[number] += 1
        except (psycopg.Error, AssertionError) as failure:
            failures.append(f"client {number}: {failure}")

    def reading():
        return standby.backends("wait_event = 'PgSleep'")
    readers = [threading.Thread(target=read, args=(number,)) for number in range(len(answers))]
    for reader in readers:
        reader.start()
    try:
        for _ in range(2):
            machine.wait_until(lambda: standby.answers() and reading(), what="clients read from the standby")
            # A reading of the catalog that has died with its server must not delay the next one.
            machine.wait_until(lambda: catalog(pooler, "app")["state"] == "known", 5, "the database is known again")
            before = list(answers)
            machine.wait_until(lambda before=before: failures or all(now > then + 20 for now, then in zip(answers, before)))
            os.kill(machine.wait_until(reading)[0], signal.SIGKILL)
            before = list(answers)
            machine.wait_until(lambda before=before: failures or all(now > then + 20 for now, then in zip(answers, before)))
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not failures
    assert repeats(pooler) > 0
    machine.wait_until(standby.answers)
