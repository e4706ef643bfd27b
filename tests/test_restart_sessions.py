"""Online restart: clients that keep a server connection move together with it."""

import contextlib
import os
import threading

import pytest

import machine
import rawclient as wire
from rawclient import query

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")

BEGUN = "accepts clients, ours leave for it"


def pins(pooler):
    return sorted(row["reason"] for row in pooler.console("SHOW PINS"))


PINNED = {
    "temporary objects": ("CREATE TEMP TABLE mine AS SELECT 7 AS n", "SELECT n FROM mine", "7", "DROP TABLE mine"),
    "cursor with hold": ("DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(7, 20)", "FETCH c", "7", "CLOSE c"),
    "advisory lock": ("SELECT pg_advisory_lock(7)",
                      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", "1",
                      "SELECT pg_advisory_unlock(7)"),
    "prepared statement": ('PREPARE p AS SELECT 7 AS "ä"', "EXECUTE p", "7", "DEALLOCATE p"),
}


@pytest.mark.parametrize("reason", PINNED)
def test_a_pinned_client_moves_with_its_server(line, newest_pg, reason):
    """The session on the server continues. The pin ends as it would without a restart."""
    make, read, expect, drop = PINNED[reason]
    one = line(default_pool_size=2)
    pooler = one.pooler
    client = pooler.raw()
    client.query("SET app.tenant TO 'blue'")
    client.send(wire.parse("SELECT 40 + 2", name="q"), wire.SYNC)
    client.until_ready()
    client.query(make)
    pid = client.value("SELECT pg_backend_pid()")
    machine.wait_until(lambda: pins(pooler) == [reason], what="it is pinned")
    for number in range(2):
        one.full()
        assert pins(pooler) == [reason]
        assert client.value("SELECT pg_backend_pid()") == pid
        got = client.value(read)
        assert got == (str(7 + number) if reason == "cursor with hold" else expect)
        assert client.value("SHOW app.tenant") == "blue"
        client.send(wire.bind(name="q"), wire.execute(), wire.SYNC)
        assert wire.rows(client.until_ready()) == [("42",)]
    assert not wire.errors(client.query(drop))
    machine.wait_until(lambda: pins(pooler) == [], what="it is pinned no more")
    with pooler.raw() as other:
        for holder in (other, client):
            holder.query("BEGIN")
            assert not wire.errors(holder.query("SELECT 1"))
        for holder in (other, client):
            holder.query("COMMIT")
        assert other.value("SELECT nullif(current_setting('app.tenant', true), '')") is None
    assert client.value("SHOW app.tenant") == "blue"
    client.send(wire.bind(name="q"), wire.execute(), wire.SYNC)
    assert wire.rows(client.until_ready()) == [("42",)]


def test_a_pinned_client_moves_after_its_transaction(line):
    one = line()
    pooler = one.pooler
    client = pooler.raw()
    client.query("CREATE TEMP TABLE mine AS SELECT 7 AS n")
    client.query("BEGIN")
    pid = client.value("SELECT pg_backend_pid()")
    old = one.restart()
    pooler.expect_log(BEGUN)
    client.query("INSERT INTO mine VALUES (8)")
    assert old.poll() is None
    client.query("COMMIT")
    one.done(old)
    assert client.value("SELECT pg_backend_pid()") == pid
    assert client.value("SELECT count(*) FROM mine") == "2"


def test_session_state_of_a_moved_client_reaches_no_other_client(line, newest_pg):
    """No other client gets the session state or the statements of a client that has moved with its server."""
    one = line(default_pool_size=1)
    pooler = one.pooler
    client = pooler.raw()
    client.query("CREATE TEMP TABLE mine AS SELECT 7 AS n")
    client.query("SET app.tenant TO 'blue'")
    client.send(wire.parse("SELECT 1", name="q"), wire.SYNC)
    client.until_ready()
    one.full()
    client.cancel()
    assert client.value("SELECT n FROM mine") == "7"
    client.close()
    with pooler.raw() as other:
        assert other.value("SELECT to_regclass('pg_temp.mine')") is None
        assert other.value("SELECT nullif(current_setting('app.tenant', true), '')") is None
        # The new process knows the names of the first client's statements on servers, and does not use them again.
        other.send(wire.parse("SELECT 1", name="q"), wire.bind(name="q"), wire.execute(), wire.SYNC)
        assert wire.rows(other.until_ready()) == [("1",)]


def test_a_pinned_client_survives_the_death_of_the_new_process(line):
    """A pinned client in a transaction stays with the old process, and its server too."""
    one = line()
    pooler = one.pooler
    client = pooler.raw()
    client.query("CREATE TEMP TABLE mine AS SELECT 7 AS n")
    client.query("BEGIN")
    old = one.restart()
    pooler.expect_log(BEGUN)
    one.new_process_dies(old)
    client.query("COMMIT")
    assert client.value("SELECT n FROM mine") == "7"
    assert pins(pooler) == ["temporary objects"]
    one.full()
    assert client.value("SELECT n FROM mine") == "7"


def test_statements_in_session_mode(line):
    """What pgweir has prepared on the server has the same names after the restart."""
    one = line(pool_mode="session", max_prepared_statements=50)
    client = one.pooler.raw()
    for n in range(5):
        client.send(wire.parse(f"SELECT {n} + 1", name=f"q{n}"), wire.SYNC)
        client.until_ready()
    fresh = None
    for _ in range(2):
        one.full()
        with one.pooler.raw() as fresh:
            fresh.send(wire.parse("SELECT 77", name="q0"), wire.bind(name="q0"), wire.execute(), wire.SYNC)
            assert wire.rows(fresh.until_ready()) == [("77",)]
        for n in range(5):
            client.send(wire.bind(name=f"q{n}"), wire.execute(), wire.SYNC)
            assert wire.rows(client.until_ready()) == [(str(n + 1),)]
        client.send(wire.parse("SELECT 78", name="late"), wire.bind(name="late"), wire.execute(),
                    wire.close("S", "late"), wire.SYNC)
        assert wire.rows(client.until_ready()) == [("78",)]
