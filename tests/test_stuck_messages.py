"""`partial_message_timeout`: clients and servers that stop in the middle of a message."""

import signal
import threading
import time

import pytest

import fakeserver as fake
import machine
import rawclient as wire
from fakeserver import FakeServer

pytestmark = pytest.mark.pgweir_only("PgBouncer waits for ever")

QUERY = wire.query("SELECT 1")
LONG = wire.query("SELECT length('" + "x" * 300_000 + "')")
# Beginnings of messages: a tag, half a header, a header alone, most of a short text, and the part of a long one that is
# sent on to the server.
BEGINNINGS = {
    "tag": QUERY[:1],
    "half a header": QUERY[:3],
    "header": QUERY[:5],
    "text": QUERY[:-1],
    "long text": LONG[:200_000],
    "parse": wire.parse("SELECT 1", name="a")[:8],
    "behind a whole message": wire.parse("SELECT 1") + QUERY[:5],
}


def ended(client, is_prepared=False):
    """The client gets the error and is disconnected."""
    if is_prepared:
        client.expect("1")
    error = client.error_and_close()
    assert (error.sqlstate, error.words, error.fields["S"]) == ("08P01", "partial_message_timeout", "FATAL")
    assert "did not arrive in time" in error.fields["H"]


@pytest.mark.shows("partial_message_timeout")
@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize("state", ["transparent", "off"])
def test_a_stuck_client_frees_its_server(start_pooler, newest_pg, beginning, state):
    pooler = start_pooler(newest_pg, default_pool_size=1, partial_message_timeout=1, session_state=state)
    stuck, other = pooler.raw(), pooler.raw()
    stuck.send(beginning)
    assert other.value("SELECT 2") == "2"
    ended(stuck, is_prepared=b"P" in beginning[:1] and len(beginning) > 20)
    pooler.expect_log("closing because: partial_message_timeout (age=")


def test_a_stuck_client_in_a_transaction(start_pooler, newest_pg):
    """The transaction is rolled back, as when the client had disconnected."""
    pooler = start_pooler(newest_pg, default_pool_size=1, partial_message_timeout=1)
    stuck = pooler.raw()
    stuck.query("CREATE TABLE stuck_message (n int)")
    stuck.query("BEGIN")
    stuck.query("INSERT INTO stuck_message VALUES (1)")
    stuck.send(QUERY[:7])
    ended(stuck)
    assert pooler.raw().value("SELECT count(*) FROM stuck_message") == "0"


def test_slow_clients_have_to_send_1_kb_in_the_timeout(start_pooler, newest_pg):
    """A byte from time to time does not keep the server; 1 kB in the timeout does."""
    pooler = start_pooler(newest_pg, default_pool_size=2, partial_message_timeout=1)
    slow, steady = pooler.raw(), pooler.raw()
    began = time.monotonic()
    steady.send(LONG[:-20_000])
    for at in machine.every(0.2, times=20):
        if time.monotonic() - began < 0.9:
            slow.send(QUERY[at:at + 1])
        start = len(LONG) - 20_000 + at * 1000
        steady.send(LONG[start:start + 1000])
    (value,) = [message for message in steady.until_ready() if message.kind == "D"]
    assert b"300000" in value.body
    ended(slow)


def test_pauses_that_are_allowed(start_pooler, newest_pg):
    """A COPY, a running query and a client that does not read may last longer than the timeout."""
    pooler = start_pooler(newest_pg, default_pool_size=5, partial_message_timeout=0.7)
    copying, running, ahead, not_reading, idle = (pooler.raw() for _ in range(5))
    copying.query("CREATE TABLE slow_copy (t text)")
    copying.send(wire.query("COPY slow_copy FROM STDIN"))
    copying.until("G")
    copying.send(wire.frame("d", b"hello\n")[:-2])
    running.send(wire.query("SELECT pg_sleep(4)"))
    # The next message has begun while the query runs.
    ahead.send(wire.query("SELECT pg_sleep(4)"), QUERY[:7])
    # PostgreSQL stops within a row, since nobody reads on.
    not_reading.send(wire.query("SELECT repeat('x', 1000) FROM generate_series(1, 20000)"))
    idle.query("BEGIN")
    machine.wait_until(lambda: pooler.pool("app")["cl_active"] == 5, what="all have their servers")
    machine.stays_true(lambda: pooler.pool("app")["cl_active"] == 5, 2.2, "all keep their servers")
    copying.send(b"o\n"[-2:], wire.frame("c"))
    copying.until_ready()
    assert copying.value("SELECT count(*) FROM slow_copy") == "1"
    running.until_ready()
    ahead.until_ready()
    ahead.send(QUERY[7:])
    ahead.until_ready()
    assert sum(message.kind == "D" for message in not_reading.until_ready()) == 20000
    assert idle.value("SELECT 1") == "1"


def test_a_slow_result(start_pooler, newest_pg):
    """PostgreSQL sends its buffer when that is full, in the middle of a row, and the next rows take long."""
    pooler = start_pooler(newest_pg, partial_message_timeout=0.7)
    client = pooler.raw(timeout=30)
    client.send(wire.query("SELECT repeat('x', 3000), pg_sleep(CASE WHEN n = 4 THEN 3 ELSE 0 END)::text"
                           " FROM generate_series(1, 5) AS n"))
    assert sum(message.kind == "D" for message in client.until_ready()) == 5


def test_switched_off_and_on(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, partial_message_timeout=0, default_pool_size=1)
    stuck = pooler.raw()
    stuck.send(QUERY[:7])
    stuck.quiet(1.5)
    pooler.console("SET partial_message_timeout = 1")
    ended(stuck)


def test_a_pause_of_the_process(start_pooler, newest_pg):
    """After the process was stopped, it reads the bytes that have arrived meanwhile before it disconnects a client."""
    pooler = start_pooler(newest_pg, partial_message_timeout=2)
    client = pooler.raw()
    client.send(QUERY[:7])
    machine.wait_until(lambda: pooler.pool("app")["sv_active"] == 1, what="it has the server")
    pooler.signal(signal.SIGSTOP)
    machine.wait_until(machine.after(3))
    client.send(QUERY[7:])
    pooler.signal(signal.SIGCONT)
    client.until_ready()


def test_a_server_that_stops_in_a_notice(start_pooler, newest_pg):
    """A server between requests that has begun a message is closed with its client, and the log says why."""
    half = threading.Event()

    def behave(connection):
        if not connection.welcome():
            return
        while True:
            message = connection.read()
            if message.kind == "Q":
                connection.send(fake.answer("7").replace(b"Z\0\0\0\x05I", b"Z\0\0\0\x05T"), fake.notice("half")[:-3])
                half.set()

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"bad": server.database, "app": newest_pg.entry()},
                              partial_message_timeout=1)
        client = pooler.raw(dbname="bad")
        client.send(wire.query("BEGIN"))
        assert half.wait(10)
        client.until_ready()
        # In the middle of the server's message the client could not read an error.
        with pytest.raises(wire.Closed):
            client.read()
        pooler.expect_log("server broke the protocol: it stopped in the middle of a message (partial_message_timeout)")
        assert pooler.raw().value("SELECT 1") == "1"


def test_the_default_is_a_minute(start_pooler, newest_pg):
    """The default is a minute: a client that stops for some seconds stays connected."""
    pooler = start_pooler(newest_pg)
    (row,) = [row for row in pooler.console("SHOW CONFIG") if row["key"] == "partial_message_timeout"]
    assert (row["value"], row["default"], row["changeable"]) == ("60", "60", "yes")
    client = pooler.raw()
    client.send(QUERY[:7])
    client.quiet(2)
    client.send(QUERY[7:])
    client.until_ready()
