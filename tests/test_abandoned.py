"""Clients that disconnect in the middle of a request or a transaction: pgweir cleans their servers soon."""

import time

import pytest

import machine
import rawclient as wire

LEAVE = {
    "fin": lambda client: client.close(),
    "rst": lambda client: client.reset(),
    "terminate": lambda client: (client.send(wire.TERMINATE), client.close()),
}


@pytest.fixture
def one_server(start_pooler, nothing_runs, pg, workers):
    """A pool of one server in front of an empty table `kept`."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    pg.run("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int, t text)", dbname="app")
    return pooler


def check_nothing_left(pooler, pg):
    """Checks that the next client gets a server at once, in a clean session, and that nothing of the last client is
    left.
    """
    with pooler.raw(timeout=20) as client:
        ready = client.query("SELECT count(*) FROM kept")
        assert ready[-1].body == b"I"
        assert wire.value(ready) == "0"
        locks = "SELECT count(*) FROM pg_locks WHERE relation = 'kept'::regclass"
        # A backend may notice a moment later that its connection was closed.
        machine.wait_until(lambda: client.value(locks) == "0", what="its locks are gone")
        assert client.query("BEGIN")[-1].body == b"T"
        assert not [m for m in client.query("INSERT INTO kept VALUES (1)") if m.kind in "EN"]
        assert client.query("ROLLBACK")[-1].body == b"I"
    machine.wait_until(lambda: pg.backends("usename = 'trusty' AND state <> 'idle'") == [],
                       15, "no backend is busy")


@pytest.mark.parametrize("leave", LEAVE)
def test_client_leaves_in_a_transaction(one_server, pg, leave):
    client = one_server.raw()
    client.query("BEGIN; LOCK TABLE kept; INSERT INTO kept VALUES (1)")
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", LEAVE)
def test_client_leaves_in_a_failed_transaction(one_server, pg, leave):
    client = one_server.raw()
    client.query("BEGIN; INSERT INTO kept VALUES (1)")
    client.query("SELECT 1/0")
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("start", ["", "BEGIN; LOCK TABLE kept;"])
def test_client_leaves_in_a_query(one_server, pg, leave, start):
    """The query still runs for a while in PostgreSQL. No other client may receive its result."""
    client = one_server.raw()
    client.send(wire.query(start + "SELECT 'not for you', pg_sleep(1)"))
    machine.wait_until(lambda: pg.backends("state = 'active' AND query LIKE '%not for you%'"
                                           " AND usename = 'trusty'"), what="it runs")
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", LEAVE)
def test_client_leaves_in_copy_in(one_server, pg, leave):
    client = one_server.raw()
    client.send(wire.query("COPY kept FROM STDIN"))
    client.expect("G")
    client.send(*[wire.copy_data(b"1\tsome text\n")] * 1000)
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("sent", [
    [wire.query("COPY kept FROM STDIN"), wire.copy_data(b"1\tx\n")],
    [wire.extended("COPY kept FROM STDIN"), wire.SYNC],
    [wire.query("BEGIN"), wire.query("COPY kept FROM STDIN"), wire.copy_data(b"1\tx\n")],
    [wire.query("SELECT pg_sleep(0.2); COPY kept FROM STDIN; SELECT 1")],
], ids=["simple", "extended", "in a transaction", "late"])
def test_client_leaves_before_copy_begins(one_server, pg, sent):
    """PostgreSQL waits for rows: pgweir must soon end the COPY."""
    for _ in range(3):
        one_server.raw().send(*sent).close()
    started = time.monotonic()
    check_nothing_left(one_server, pg)
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("leave", ["fin", "rst"])
def test_client_leaves_inside_a_copy_message(one_server, pg, leave):
    client = one_server.raw()
    client.send(wire.query("COPY kept FROM STDIN"))
    client.expect("G")
    client.send(wire.copy_data(b"1\tsome text\n"), wire.copy_data(b"2\t" + b"x" * 100_000)[:5000])
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", ["fin", "rst"])
def test_client_leaves_in_copy_out(one_server, pg, leave):
    client = one_server.raw()
    client.send(wire.query("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 200000)) TO STDOUT"))
    client.expect("Hddd")
    LEAVE[leave](client)
    check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", ["fin", "rst"])
def test_client_leaves_inside_a_message(one_server, pg, leave):
    for before in ("", "BEGIN; INSERT INTO kept VALUES (1)"):
        client = one_server.raw()
        client.query(before)
        client.send(wire.query("SELECT " + "1 + " * 10000 + "1")[:20000])
        LEAVE[leave](client)
        check_nothing_left(one_server, pg)


@pytest.mark.parametrize("leave", ["fin", "rst"])
def test_client_leaves_without_sync(one_server, pg, leave):
    insert = wire.extended("INSERT INTO kept VALUES (1)")
    for messages in (insert, insert + wire.FLUSH, wire.FLUSH):
        client = one_server.raw()
        client.send(messages)
        LEAVE[leave](client)
        check_nothing_left(one_server, pg)

def test_many_clients_leave_at_random(start_pooler, pg, workers):
    """At whatever point clients disconnect, the pool loses no server, and no server stays in a transaction."""
    pooler = start_pooler(pg, default_pool_size=4, workers=workers)
    pg.run("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int, t text)", dbname="app")
    requests = [
        [wire.query("BEGIN; INSERT INTO kept VALUES (1)")],
        [wire.query("SELECT pg_sleep(0.05)")],
        [wire.query("SELECT repeat('x', 1000) FROM generate_series(1, 20000)")],
        [wire.query("COPY kept FROM STDIN"), wire.copy_data(b"1\tx\n") * 100],
        [wire.extended("INSERT INTO kept VALUES (1)")],
        [wire.query("SELECT 1"), wire.query("BEGIN"), wire.query("SELECT 1/0")],
        [wire.query("SELECT 1")[:3]],
    ]
    clients = []
    for n in range(140):
        client = pooler.raw()
        client.send(*requests[n % len(requests)])
        clients.append(client)
        if len(clients) > 10:
            list(LEAVE.values())[n % 2](clients.pop(n % 5))
    for n, client in enumerate(clients):
        list(LEAVE.values())[n % 2](client)
    with pooler.raw() as last:
        assert last.value("SELECT count(*) FROM kept") == "0"
    four = [pooler.raw() for _ in range(4)]
    assert all(client.query("BEGIN")[-1].body == b"T" for client in four)
    assert len({client.value("SELECT pg_backend_pid()") for client in four}) == 4
