"""A cancel request reaches the query of the client that it names, and no other query."""

import asyncio
import contextlib
import random
import signal
import subprocess
import threading

import asyncpg
import psycopg
import pytest

import fakeserver as fake
import machine
import rawclient as wire
from rawclient import query

pytestmark = pytest.mark.usefixtures("nothing_runs")

SLEEP = "SELECT pg_sleep(30)"
CANCELED = ("57014", "canceling statement due to user request")


def cancel_running(pooler, pg, client, sql=SLEEP):
    """Starts a query, cancels it while it runs, and returns its answer."""
    client.send(query(sql))
    machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
    assert client.cancel() == []
    return client.until_ready()


def test_running_query(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    with pooler.raw() as client:
        messages = cancel_running(pooler, pg, client)
        assert wire.errors(messages) == [CANCELED]
        assert messages[-1].body == b"I"
        assert client.value("SELECT 1") == "1"


def test_a_query_in_a_transaction(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.raw() as client:
        client.query("BEGIN")
        messages = cancel_running(pooler, pg, client)
        assert (wire.errors(messages), messages[-1].body) == ([CANCELED], b"E")
        assert client.query("ROLLBACK")[-1].body == b"I"
    assert pooler.raw().value("SELECT 1") == "1"


def test_over_the_unix_socket(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    with wire.RawClient.unix(pooler.unix_path) as client:
        client.login("trusty", "app")
        assert wire.errors(cancel_running(pooler, pg, client)) == [CANCELED]


def test_only_the_query_of_the_named_client_is_cancelled(start_pooler, pg, workers):
    """All servers run queries that sleep. Only the query of the named client is canceled."""
    pooler = start_pooler(pg, default_pool_size=4, workers=workers)
    clients = [pooler.raw() for _ in range(4)]
    for client in clients:
        client.send(query(SLEEP))
    machine.wait_until(lambda: len(pg.running("%pg_sleep(30)%")) == 4, what="all run")
    clients[2].cancel()
    assert wire.errors(clients[2].until_ready()) == [CANCELED]
    for client in (clients[0], clients[1], clients[3]):
        client.quiet(0.2)
    for client in clients:
        client.cancel()
    for client in (clients[0], clients[1], clients[3]):
        assert wire.errors(client.until_ready()) == [CANCELED]


@pytest.mark.parametrize("spoil", [
    lambda client: (client.pid, bytes([client.secret[0] ^ 1]) + client.secret[1:]),
    lambda client: (client.pid, client.secret[:-1] + bytes([client.secret[-1] ^ 1])),
    lambda client: (client.pid ^ 1, client.secret),
    lambda client: (client.pid, bytes(len(client.secret))),
    lambda client: (0, bytes(4)),
    lambda client: (0xFFFFFFFF, b"\xff" * 4),
], ids=["first byte", "last byte", "pid", "zero", "all zero", "all ones"])
@pytest.mark.guards("cancel_keys")
def test_wrong_key_is_ignored(start_pooler, newest_pg, spoil):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    client = pooler.raw()
    client.send(query("SELECT pg_sleep(1), 'done'"))
    machine.wait_until(lambda: newest_pg.running("%pg_sleep(1)%"), what="it runs")
    with pooler.socket() as other:
        other.send(wire.cancel(*spoil(client)))
        assert other.rest() == []
    messages = client.until_ready()
    assert wire.errors(messages) == []
    assert wire.rows(messages)[0][1] == "done"


@pytest.mark.guards("cancel_keys")
def test_key_of_the_server_is_not_the_clients(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    keys = {(client.pid, client.secret) for client in [pooler.raw() for _ in range(200)]}
    assert len(keys) == 200
    assert len({secret for _, secret in keys}) == 200


def test_idle_client(start_pooler, pg, workers):
    """There is nothing to cancel: the request affects neither the client's next query nor another client's."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    idle, busy = pooler.raw(), pooler.raw()
    assert idle.value("SELECT 1") == "1"
    for _ in range(20):
        busy.send(query("SELECT pg_sleep(0.05), 'done'"))
        assert idle.cancel() == []
        messages = busy.until_ready()
        assert wire.errors(messages) == []
    assert idle.value("SELECT 1") == "1"


def test_client_that_has_left(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    gone, busy = pooler.raw(), pooler.raw()
    gone.close()
    busy.send(query("SELECT pg_sleep(0.5)"))
    assert gone.cancel() == []
    assert wire.errors(busy.until_ready()) == []


def test_cancel_of_a_waiting_client_affects_no_other(start_pooler, pg, workers):
    """The client still waits, so the client that has the server must not be affected."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    holder.send(query("SELECT pg_sleep(1)"))
    waiter.send(query("SELECT 1"))
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="it waits")
    assert waiter.cancel() == []
    assert wire.errors(holder.until_ready()) == []
    assert holder.query("COMMIT")[-1].body == b"I"
    assert wire.errors(waiter.until("ZE")) in ([], [CANCELED])


# The requests of a waiting client. Each is answered at once, though no server is free, and the client may send another.
WITHDRAWN = {
    "query": [query("SELECT 1")],
    "two statements": [query("SELECT 1; SELECT 2")],
    "long query": [query("SELECT '" + "x" * 300_000 + "'")],
    "query in pieces": [query("SELECT 1")[:3], query("SELECT 1")[3:9], query("SELECT 1")[9:]],
    "extended": [wire.parse("SELECT 1", "p") + wire.bind(name="p") + wire.execute() + wire.SYNC],
    "extended in pieces": [wire.parse("SELECT 1") + wire.bind()[:7], wire.bind()[7:] + wire.execute() + wire.SYNC],
    "COPY": [query("COPY t FROM STDIN")],
    "stray CopyDone before": [wire.COPY_DONE + query("SELECT 1")],
}


@contextlib.contextmanager
def waiting(pooler, sent):
    """A client that holds the only server, and one that waits for it with this request."""
    with pooler.raw() as holder, pooler.raw() as waiter:
        holder.query("BEGIN")
        waiter.send(sent)
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="it waits")
        yield holder, waiter


@pytest.mark.pgweir_only("there it goes on waiting")
@pytest.mark.parametrize("name", WITHDRAWN)
def test_waiting_client(start_pooler, newest_pg, workers, name):
    """The request of a waiting client is canceled, as PostgreSQL would do."""
    first, *others = WITHDRAWN[name]
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    with waiting(pooler, first) as (holder, waiter):
        assert waiter.cancel() == []
        for piece in others:
            waiter.send(piece)
        messages = waiter.until_ready()
        assert (wire.kinds(messages), wire.errors(messages)) == ("EZ", [CANCELED])
        assert messages[-1].body == b"I"
        assert pooler.pool()["cl_waiting"] == 0
        waiter.send(query("SELECT 'again'"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="it waits again")
        assert holder.query("COMMIT")[-1].body == b"I"
        assert wire.value(waiter.until_ready()) == "again"
        # No part of the request has run.
        assert waiter.send(wire.bind(name="p") + wire.SYNC).until_ready()[0].sqlstate == "26000"
    pooler.expect_log("cancel request for waiting client")


@pytest.mark.pgweir_only("there it goes on waiting")
def test_waiting_client_loses_one_request_alone(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    extended = wire.parse("SELECT 'second'") + wire.bind() + wire.execute() + wire.SYNC
    with waiting(pooler, query("SELECT 'first'") + extended + query("SELECT 'third'")) as (holder, waiter):
        assert waiter.cancel() == []
        assert wire.errors(waiter.until_ready()) == [CANCELED]
        waiter.quiet(0.1)
        assert waiter.cancel() == []
        assert wire.errors(waiter.until_ready()) == [CANCELED]
        holder.query("COMMIT")
        assert wire.value(waiter.until_ready()) == "third"


@pytest.mark.pgweir_only("there it goes on waiting")
def test_a_waiting_client_is_answered_before_its_sync(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    with waiting(pooler, wire.parse("SELECT 1") + wire.FLUSH) as (holder, waiter):
        assert waiter.cancel() == []
        assert wire.errors(waiter.until("E")) == [CANCELED]
        waiter.send(query("SELECT 'skipped'") + wire.bind() + wire.execute())
        waiter.quiet(0.1)
        waiter.send(wire.SYNC)
        assert wire.kinds(waiter.until_ready()) == "Z"
        holder.query("COMMIT")
        assert waiter.value("SELECT 1") == "1"


@pytest.mark.pgweir_only("there it goes on waiting")
def test_waiting_in_a_pause(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    with pooler.raw() as client:
        pooler.console("PAUSE")
        client.send(query("SELECT 1"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="it waits")
        client.cancel()
        assert wire.errors(client.until_ready()) == [CANCELED]
        pooler.console("RESUME")
        assert client.value("SELECT 1") == "1"


@pytest.mark.pgweir_only("there it goes on waiting")
def test_waiting_over_tls(start_pooler, newest_pg, certificates):
    pooler = start_pooler(newest_pg, default_pool_size=1, **certificates.pooler("allow"))
    holder = pooler.raw()
    holder.query("BEGIN")
    with pooler.connect(sslmode="require") as db:
        def cancel():
            machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="it waits")
            db.cancel_safe(timeout=10)

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute("SELECT 1")
        thread.join()
        holder.query("COMMIT")
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_more_cancels_than_the_pool_has_servers(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    client = pooler.raw()
    client.send(query(SLEEP))
    machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
    threads = [threading.Thread(target=client.cancel) for _ in range(30)]
    for thread in threads:
        thread.start()
    assert wire.errors(client.until_ready()) == [CANCELED]
    for thread in threads:
        thread.join()
    for _ in range(20):
        with pooler.raw() as next_one:
            assert next_one.value("SELECT pg_sleep(0.01)::text || 'x'") == "x"


def test_canceled_copy(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    pg.run("DROP TABLE IF EXISTS copied; CREATE TABLE copied (n int)", dbname="app")
    client = pooler.raw()
    client.send(query("COPY copied FROM STDIN"))
    client.expect("G")
    client.send(wire.copy_data(b"1\n"))
    client.cancel()
    client.send(wire.copy_data(b"2\n"), wire.COPY_DONE)
    assert wire.errors(client.until_ready()) in ([CANCELED], [])
    client.send(query("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 300000)) TO STDOUT"))
    client.expect("Hd")
    client.cancel()
    assert wire.errors(client.until("Z", keep="E")) == [CANCELED]
    with pooler.raw() as other:
        assert other.value("SELECT 1") == "1"


def test_cancel_requests_affect_no_other_client(start_pooler, pg, workers):
    """Many clients on few servers, some of them canceled at random moments."""
    pooler = start_pooler(pg, default_pool_size=8, workers=workers)
    problems, done = [], threading.Event()
    canceled = [0]

    def bystander(seed):
        dice = random.Random(seed)
        try:
            with pooler.raw() as client:
                while not done.is_set():
                    answer = client.query(f"SELECT pg_sleep({dice.random() / 100}), '{seed}'")
                    if wire.errors(answer) or wire.rows(answer)[0][1] != str(seed):
                        problems.append(answer)
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    def victim(seed):
        dice = random.Random(seed)
        try:
            with pooler.raw() as client:
                for _ in range(25):
                    client.send(query(f"SELECT pg_sleep({dice.random() / 5})"))
                    if dice.random() < 0.7:
                        done.wait(dice.random() / 10)
                    client.cancel()
                    errors = wire.errors(client.until_ready())
                    if errors not in ([], [CANCELED]):
                        problems.append(errors)
                    canceled[0] += len(errors)
        except Exception as error:
            problems.append(error)

    bystanders = [threading.Thread(target=bystander, args=(n,)) for n in range(8)]
    victims = [threading.Thread(target=victim, args=(n,)) for n in range(6)]
    for thread in bystanders + victims:
        thread.start()
    for thread in victims:
        thread.join()
    done.set()
    for thread in bystanders:
        thread.join()
    assert problems == []
    assert canceled[0] > 5, "hardly any cancel hit its query: nothing was tested"


# -- drivers


def test_psycopg(start_pooler, pg):
    pooler = start_pooler(pg)
    with pooler.connect() as db:
        def cancel():
            machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
            db.cancel_safe(timeout=10)

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute(SLEEP)
        thread.join()
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.pgweir_only("speaks 3.0 alone")
def test_long_keys_of_protocol_3_2(start_pooler, pg):
    pooler = start_pooler(pg)
    client = pooler.socket(timeout=20)
    client.login("trusty", "app", version=wire.PROTOCOL_3_2)
    assert wire.errors(cancel_running(pooler, pg, client)) == [CANCELED]


def test_asyncpg_timeout(start_pooler, pg):
    pooler = start_pooler(pg)

    async def work():
        db = await asyncpg.connect(host=pooler.host, port=pooler.port, user="trusty", database="app",
                                   statement_cache_size=0)
        with pytest.raises(TimeoutError):
            await db.execute(SLEEP, timeout=0.5)
        assert await db.fetchval("SELECT 1") == 1
        await db.close()

    asyncio.run(work())
    machine.wait_until(lambda: not pg.running("%pg_sleep(30)%"), what="nothing runs on")


def test_psql_interrupted(start_pooler, pg):
    pooler = start_pooler(pg)
    psql = subprocess.Popen(
        [pg.binaries.path("psql"), "-X", "-A", "-t", "-c", SLEEP, "-c", "SELECT 'after'",
         f"host={pooler.host} port={pooler.port} user=trusty dbname=app"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
    psql.send_signal(signal.SIGINT)
    out, problems = psql.communicate(timeout=20)
    assert CANCELED[1] in problems
    assert "after" in out or psql.returncode == 1
    assert pg.running("%pg_sleep(30)%") == []


# -- outcomes of requests


@pytest.mark.pgweir_only("it serves requests in the order of their connections")
@pytest.mark.shows("login_slice")
def test_a_request_does_not_wait_for_logins_that_came_earlier(start_pooler, newest_pg):
    """All of them arrive while the pooler is stopped. The log has the order in which it reads them."""
    pooler = start_pooler(newest_pg, workers=1, listen_backlog=1000, log_connections=1)
    with pooler.raw() as client:
        logins = []
        pooler.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(600):
                logins.append(pooler.socket())
                logins[-1].send(wire.startup(wire.PROTOCOL_3_0, user="trusty", database="app"))
            request = pooler.socket()
            request.send(wire.cancel(client.pid, b"none"))
        finally:
            pooler.process.send_signal(signal.SIGCONT)
        for login in logins:
            login.finish_login("trusty")
            login.close()
        request.close()
        pooler.expect_log("failed cancel request")
        before, _, after = pooler.log().partition("failed cancel request")
        assert after.count("login attempt") > 300, before.count("login attempt")


@pytest.mark.pgweir_only("logs some of it at another level")
def test_the_log_has_the_outcome_of_each_request(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    client = pooler.raw()
    client.cancel()
    pooler.expect_log("closing because: cancel request for idle client (age=")
    cancel_running(pooler, newest_pg, client)
    pooler.expect_log("closing because: successfully sent cancel request (age=")
    with pooler.socket() as other:
        other.send(wire.cancel(client.pid, bytes(len(client.secret))))
        assert other.rest() == []
    pooler.expect_log("closing because: failed cancel request (age=")


@pytest.mark.shows("cancel_wait_timeout")
def test_a_request_that_takes_too_long(start_pooler):
    """The server accepts the request and does not close the connection: the request must not cancel a later query of
    another client.
    """
    def behave(connection):
        if connection.welcome():
            connection.until("Q")
            connection.send(fake.answer(str(connection.number)))
            connection.until("Q")
            released.wait(20)
            connection.send(fake.answer("late"))
        connection.rest()

    released = threading.Event()
    with fake.FakeServer(behave) as server:
        pooler = start_pooler(databases={"app": server.database}, default_pool_size=1,
                              cancel_wait_timeout=0.7)
        client = pooler.raw()
        first = client.value("SELECT 1")
        client.send(query("SELECT 2"))
        machine.wait_until(lambda: pooler.pool()["sv_active"] == 1, 5, "it runs")
        request = pooler.socket()
        request.send(wire.cancel(client.pid, client.secret))
        machine.wait_until(lambda: [r for r in pooler.console("SHOW CLIENTS")
                                    if r["state"] == "active_cancel_req"], 5, "it is on its way")
        assert request.rest() == []
        pooler.expect_log("closing because: cancel_wait_timeout (age=")
        released.set()
        assert wire.value(client.until_ready()) == "late"
        assert client.value("SELECT 3") != first
