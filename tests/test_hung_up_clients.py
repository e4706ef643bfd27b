"""Clients that hang up while pgweir does not read from them: their servers become free, whatever the clients wait for.
"""

import contextlib
import socket
import time

import pytest

import machine
import rawclient as wire

BOTH_MODES = pytest.mark.parametrize("state", ["transparent", "off"])


@pytest.fixture
def two_servers(start_pooler, pg):
    def start(state, **settings):
        pg.run("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int)", dbname="app")
        return start_pooler(pg, default_pool_size=2, session_state=state, abandoned_query_timeout=1,
                            query_wait_timeout=20, workers=1, **settings)
    return start


def check_servers_are_free(pooler, seconds=6):
    """Checks that two clients soon get a clean server each."""
    started = time.monotonic()
    with pooler.raw(timeout=20) as one, pooler.raw(timeout=20) as other:
        assert [client.query("BEGIN")[-1].body for client in (one, other)] == [b"T", b"T"]
        assert one.value("SELECT pg_backend_pid()") != other.value("SELECT pg_backend_pid()")
    assert time.monotonic() - started < seconds


LAST = [wire.query("SELECT 1"), wire.parse("SELECT 1", "a"), wire.SYNC, wire.close("S", "a")]
UNANSWERED = {
    "no portal": [wire.execute(), *LAST],
    "syntax": [wire.parse("SELEC"), *LAST],
    "function": [wire.execute(), wire.function_call(1598, []), *LAST[1:]],
    "two queries": [wire.execute(), LAST[0], *LAST],
    "no sync": [wire.execute(), *LAST[:2]],
    "in a transaction": [wire.query("BEGIN"), wire.execute(), *LAST],
    "set": [wire.execute(), wire.query("SET work_mem = '7MB'"), *LAST[1:]],
}


@BOTH_MODES
@pytest.mark.parametrize("script", UNANSWERED)
def test_a_query_that_the_server_skips(two_servers, pg, script, state):
    pooler = two_servers(state)
    for _ in range(4):
        client = pooler.raw()
        client.send(*UNANSWERED[script])
        client.sock.settimeout(0.15)
        with contextlib.suppress(TimeoutError):
            while client.sock.recv(1 << 16):  # read everything, so that the kernel sends a FIN and no reset
                pass
        client.close()
    check_servers_are_free(pooler)


def locked_out(pg):
    """Returns the backends that wait for a lock, and when their statements began."""
    return set(pg.rows("SELECT pid, query_start FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


# The requests of a client while another session has locked `kept`, so that the last one waits for its answer.
WAITING = {
    "name": [wire.parse("SELECT * FROM kept", "a"), wire.SYNC, wire.bind(name="a"), wire.SYNC],
    "close": [wire.parse("SELECT * FROM kept", "a"), wire.SYNC, wire.close("S", "a"), wire.SYNC],
    "fence": [wire.extended("SELECT * FROM kept"), wire.query("SELECT 1")],
    "dropped": [wire.parse("SELECT 1", "a"), wire.query("SELECT * FROM kept; DEALLOCATE ALL"), wire.bind(name="a"),
                wire.SYNC],
    "view": [wire.parse("SELECT * FROM kept", "a"), wire.SYNC,
             wire.query("SELECT name FROM pg_prepared_statements")],
    "reset": [wire.query("SELECT * FROM kept; RESET ALL"), wire.query("SHOW search_path")],
    "half a message": [wire.query("SELECT * FROM kept"), wire.query("SELECT 1")[:3]],
    "pipelined": [wire.query("SELECT * FROM kept")] + [wire.SYNC] * 5000,
    "socket": [wire.query("SELECT * FROM kept")] + [wire.query("SELECT '" + "x" * 60_000 + "'")] * 1000,
    "state": [wire.query("CREATE TEMP TABLE t AS SELECT 1; SELECT * FROM kept"), wire.query("SELECT 1")],
}


@pytest.mark.usefixtures("nothing_runs")
@BOTH_MODES
@pytest.mark.parametrize("script", WAITING)
def test_messages_that_wait_for_a_lock(two_servers, pg, script, state):
    pooler = two_servers(state, max_pipelined_messages=1000)
    with pg.connect(dbname="app") as db:
        db.execute("BEGIN; LOCK TABLE kept")
        for _ in range(2):
            before = locked_out(pg)
            # On a Unix socket, pgweir sees the end although earlier bytes are unread.
            client = wire.RawClient.unix(pooler.unix_path)
            client.login("trusty", "app", **({"search_path": "public"} if state == "transparent" else {}))
            client.sock.settimeout(1)
            try:
                client.send(*WAITING[script])
            except TimeoutError:
                pass  # as many bytes as the sockets accept
            machine.wait_until(lambda: locked_out(pg) - before, what="its server waits for the lock")
            client.close()
        check_servers_are_free(pooler)
        db.execute("ROLLBACK")
    machine.wait_until(lambda: not pg.backends("usename = 'trusty' AND state = 'active'"), what="none is busy")


@BOTH_MODES
def test_pending_requests_are_executed(two_servers, pg, state):
    """As with a direct connection, pending requests are executed although the client has hung up."""
    pooler = two_servers(state)
    client = pooler.raw()
    client.send(wire.parse("SELECT pg_sleep(0.4)", "a"), wire.SYNC, wire.bind(name="a"), wire.execute(), wire.SYNC,
                wire.parse("INSERT INTO kept VALUES (1)", "b"), wire.SYNC, wire.bind(name="b"), wire.execute(),
                wire.SYNC, wire.execute(), wire.query("SELECT 'skipped'"), wire.SYNC,
                wire.query("INSERT INTO kept VALUES (2)"))
    client.sock.shutdown(socket.SHUT_WR)
    with pooler.raw() as other:
        rows = "SELECT n FROM kept ORDER BY n"
        machine.wait_until(lambda: other.values(rows) == ["1", "2"], what="both rows are there")
