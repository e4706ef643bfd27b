"""SUSPEND: pgweir reads no sockets until RESUME."""

import signal

import pytest

import machine
import rawclient as wire


def suspended(console):
    messages = console.query("SHOW STATE")
    return "suspended" in str(messages) and b"yes" in messages[3].body


@pytest.mark.pgweir_only("it answers at its leisure")
def test_suspend_and_resume(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers, default_pool_size=3)
    clients = [pooler.raw() for _ in range(6)]
    clients[0].query("BEGIN")
    clients[1].send(wire.query("SELECT pg_sleep(0.5), 7"))
    clients[1].quiet()
    console = pooler.raw("admin", "pgbouncer")
    assert wire.kinds(console.query("SUSPEND")) == "CZ"
    assert suspended(console)
    for client in [clients[0], *clients[2:]]:
        client.send(wire.query("SELECT 1"))
    newcomer = pooler.socket()
    newcomer.send(wire.startup(user="trusty", database="app"))
    newcomer.quiet(0.7)
    for client in clients:
        client.quiet(0.1)
    assert wire.errors(console.query("PAUSE")) == [("08P01", "already suspended/paused")]
    assert wire.errors(console.query("SUSPEND")) == [("08P01", "already suspended/paused")]
    assert wire.kinds(console.query("RESUME")) == "CZ"
    for client in [clients[0], *clients[2:]]:
        assert wire.value(client.until_ready()) == "1"
    assert "D" in wire.kinds(clients[1].until_ready())
    assert newcomer.until("Z")
    assert clients[0].query("COMMIT")[-1].body == b"I"


@pytest.mark.shows("suspend_timeout")
def test_suspend_timeout_closes_connections_within_a_message(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, suspend_timeout=1)
    client, other = pooler.raw(), pooler.raw()
    other.value("SELECT 1")
    client.send(wire.query("SELECT 1" + " " * 1000)[:100])
    machine.wait_until(
        lambda: pooler.console("SHOW ACTIVE_SOCKETS"), what="the beginning of a query has come")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query("SUSPEND"))
    console.quiet(0.5)
    assert wire.kinds(console.until_ready()) == "CZ"
    assert [words for _, words in wire.errors(client.rest())] == ["suspend_timeout"]
    console.query("RESUME")
    assert other.value("SELECT 1") == "1"


def test_suspend_ends_when_its_console_disconnects(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    console = pooler.raw("admin", "pgbouncer")
    assert wire.kinds(console.query("SUSPEND")) == "CZ"
    client.send(wire.query("SELECT 1"))
    client.quiet()
    console.close()
    assert wire.value(client.until_ready()) == "1"
    assert pooler.raw().value("SELECT 2") == "2"
    pooler.expect_log("admin disappeared when suspended, doing RESUME")


def test_signal_resumes(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    console = pooler.raw("admin", "pgbouncer")
    console.query("SUSPEND")
    client.send(wire.query("SELECT 1"))
    client.quiet()
    pooler.signal(signal.SIGUSR2)
    assert wire.value(client.until_ready()) == "1"
    pooler.expect_log("got SIGUSR2, continuing from SUSPEND")


def test_errors_of_suspend(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    console, stats = pooler.raw("admin", "pgbouncer"), pooler.raw("stats", "pgbouncer")
    console.query("PAUSE app")
    assert wire.errors(console.query("SUSPEND")) == [
        ("08P01", "cannot suspend with paused databases")]
    assert wire.errors(console.query("SUSPEND app")) == [
        ("08P01", "invalid command 'SUSPEND app', use SHOW HELP;")]
    assert wire.errors(stats.query("SUSPEND")) == [("08P01", "admin access needed")]
    assert wire.errors(stats.query("SUSPEND app"))[0][1].startswith("invalid command")


def test_a_suspended_pooler_can_be_ended(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.value("SELECT 1")
    console = pooler.raw("admin", "pgbouncer")
    console.query("SUSPEND")
    assert wire.kinds(console.query("SHUTDOWN WAIT_FOR_CLIENTS")) == "CZ"
    assert client.value("SELECT 2") == "2"
    client.close()
    assert pooler.wait_end() == 0
