"""Reports of servers about their hosts take effect at once, long before the next check. Hosts that fail repeatedly are
avoided.
"""

import contextlib
import os
import signal
import time

import psycopg
import pytest

import machine
from scraping import scrape
from test_host_checks import hosts, port_of
from test_hosts import entry, own_pair  # noqa: F401

pytestmark = pytest.mark.pgweir_only("PgBouncer does not know what hosts are")

# Checks are so rare that all effects in these tests come from the servers' reports.
SELDOM = 60


def known(pooler, *roles):
    """Waits for the first check of the hosts."""
    machine.wait_until(lambda: sorted(str(row["role"]) for row in hosts(pooler).values()) == sorted(roles), what=f"{roles}")


def test_a_promotion_that_a_server_reports(start_pooler, own_pair, workers):  # noqa: F811
    """A standby's server reports `in_hot_standby = off`: another pool stops using the old primary at once."""
    primary, standby = own_pair
    pooler = start_pooler(None, workers=workers, host_check_interval=SELDOM, query_wait_notify=0, databases={
        "app": entry(primary, standby, target_session_attrs="primary"),
        "app_ro": entry(primary, standby, target_session_attrs="prefer-standby")})
    with pooler.connect() as writer, pooler.connect(dbname="app_ro") as reader:
        known(pooler, "primary", "standby")
        machine.wait_until(lambda: hosts(pooler)[primary.port]["timeline"] == 1)
        assert port_of(writer) == primary.port
        # The standby's server reports its promotion with the next answer.
        reader.execute("BEGIN")
        assert port_of(reader) == standby.port
        standby.value("SELECT pg_promote(true, 30)")
        promoted = time.monotonic()
        assert reader.execute("SELECT 1").fetchone() == (1,)
        reader.execute("COMMIT")
        machine.wait_until(lambda: hosts(pooler)[standby.port]["timeline"] == 2, 5, "the promoted host was checked")
        machine.wait_until(lambda: port_of(writer) == standby.port, 5, "the old primary is left")
        print(f"{time.monotonic() - promoted:.2f} s after the promotion")
        assert time.monotonic() - promoted < 3


def test_a_primary_that_refuses_writes(start_pooler, own_pair):  # noqa: F811
    """The error 25006 triggers checks of the hosts. If the client itself has made its transaction read-only, nothing
    follows.
    """
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=SELDOM, target_session_retry=0.3, query_wait_notify=0, query_wait_timeout=5,
                          databases={"app": entry(primary, standby, target_session_attrs="read-write")})
    with pooler.connect() as client:
        client.execute("CREATE TABLE t (a int)")
        known(pooler, "primary", "standby")
        for _ in range(20):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), client.transaction():
                client.execute("SET TRANSACTION READ ONLY")
                client.execute("INSERT INTO t VALUES (1)")
        client.execute("INSERT INTO t VALUES (1)")
        assert "its role is no longer" not in pooler.log()
        # An operator fences the old primary. The client's own session does not report it: it has set the parameter.
        client.execute("SET default_transaction_read_only = off")
        primary.run("ALTER SYSTEM SET default_transaction_read_only = on")
        primary.value("SELECT pg_reload_conf()")
        with pooler.connect() as other:
            def is_left():
                with contextlib.suppress(psycopg.Error):
                    other.execute("INSERT INTO t VALUES (1)")
                return "its role is no longer the one of target_session_attrs" in pooler.log()
            machine.wait_until(is_left, 5, "the primary is left")


@pytest.mark.shows("target_session_retry")
def test_a_single_host_that_refuses_writes(start_pooler, pg):
    """Without checks, pgweir replaces the server, since a login shows the host's role. It does not do so for each
    error.
    """
    pooler = start_pooler(None, default_pool_size=1, target_session_retry=30, databases={
        "app": entry(pg, target_session_attrs="read-write")})
    why = "it has refused to write"
    with pooler.connect() as client:
        for _ in range(5):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), client.transaction():
                client.execute("SET TRANSACTION READ ONLY")
                client.execute("CREATE TABLE refused (a int)")
        assert client.execute("SELECT 1").fetchone() == (1,)
    machine.wait_until(lambda: why in pooler.log(), what="the server is replaced")
    assert pooler.log().count(why) == 1
    anyone = start_pooler(None, default_pool_size=1, databases={"app": entry(pg)})
    with anyone.connect() as client:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), client.transaction():
            client.execute("SET TRANSACTION READ ONLY")
            client.execute("CREATE TABLE refused (a int)")
        client.execute("SELECT 1")
    assert why not in anyone.log()


def test_a_primary_that_stops(start_pooler, own_pair):  # noqa: F811
    """Shutdown messages of servers (57P01) and refused logins (57P03) trigger checks of all hosts at once."""
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=SELDOM, query_wait_notify=0, outage_hold=20, databases={
        "app": entry(primary, standby, target_session_attrs="primary")})
    client = pooler.connect()
    assert port_of(client) == primary.port
    known(pooler, "primary", "standby")
    primary.stop("fast")
    stopped = time.monotonic()
    machine.wait_until(lambda: hosts(pooler)[primary.port]["state"] in ("down", "unavailable"), 5, "the stop is known")
    assert time.monotonic() - stopped < 3
    standby.value("SELECT pg_promote(true, 30)")
    assert port_of(client) == standby.port
    client.close()


def test_a_crash_is_known_at_once(start_pooler, own_pair):  # noqa: F811
    """A server that ends because another process has crashed sends 57P02, which triggers checks."""
    primary, standby = own_pair
    port = machine.free_port()
    pooler = start_pooler(None, host_check_interval=SELDOM, query_wait_notify=0, http_listen=f"127.0.0.1:{port}", databases={
        "app": entry(primary, standby, target_session_attrs="primary")})
    with pooler.connect() as client:
        pid = client.execute("SELECT pg_backend_pid()").fetchone()[0]
        known(pooler, "primary", "standby")
        os.kill(pid, signal.SIGKILL)
        machine.wait_until(lambda: hosts(pooler)[primary.port]["failures"] == 1, 5, "the crash is known")
        machine.wait_until(lambda: hosts(pooler)[primary.port]["state"] == "up", 10, "it has recovered")
        machine.wait_until(lambda: _port_or_none(client) == primary.port, 10)
        value = scrape(port).value("pgweir_host_failures_total", endpoint=f"{primary.host}:{primary.port}")
        assert value == 1


def _port_or_none(client):
    with contextlib.suppress(psycopg.OperationalError):
        return port_of(client)
    return None


@pytest.mark.shows("host_return_after")
def test_a_standby_that_comes_and_goes(start_pooler, own_pair):  # noqa: F811
    """After a failure, a standby gets new servers only after it has stayed up for a while; after the second failure,
    for twice as long.
    """
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=0.2, host_return_after=1, target_session_retry=0.2, query_wait_notify=0,
                          databases={"app": entry(primary, standby, target_session_attrs="prefer-standby")})
    with pooler.connect() as client:
        machine.wait_until(lambda: port_of(client) == standby.port, 10)
        for wait in (1, 2):
            standby.stop("immediate")
            machine.wait_until(lambda: _port_or_none(client) == primary.port, 10, "the primary is the last resort")
            standby.start()
            machine.wait_until(lambda: hosts(pooler)[standby.port]["state"] == "up", 10)
            up = time.monotonic()
            assert hosts(pooler)[standby.port]["settles_at"] is not None
            machine.wait_until(lambda: port_of(client) == standby.port, 10, "the standby is used again")
            took = time.monotonic() - up
            print(f"used after {took:.2f} s")
            assert wait - 0.5 < took < wait + 1.5
            assert hosts(pooler)[standby.port]["settles_at"] is None
        assert hosts(pooler)[standby.port]["failures"] == 2
