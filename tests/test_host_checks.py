"""Checks of the hosts of a list: roles and lag in SHOW HOSTS, and hosts that pgweir stops using."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

import machine
from scraping import scrape
from test_hosts import entry, own_pair, pair, standby_of  # noqa: F401

pytestmark = pytest.mark.pgweir_only("PgBouncer does not check hosts")


def hosts(pooler):
    """The rows of SHOW HOSTS by port."""
    return {int(row["host"].rpartition(":")[2]): row for row in pooler.console("SHOW HOSTS")}


def port_of(client):
    return client.execute("SELECT inet_server_port()").fetchone()[0]


def writes_go_to(pooler, port):
    """Returns whether a new server connection goes to this port."""
    with contextlib.suppress(psycopg.OperationalError), pooler.connect(connect_timeout=2) as client:
        return port_of(client) == port
    return False


@pytest.mark.shows("host_check_interval")
def test_roles_and_lag(start_pooler, pair, workers):  # noqa: F811
    primary, standby = pair
    port = machine.free_port()
    pooler = start_pooler(None, workers=workers, host_check_interval=0.3, http_listen=f"127.0.0.1:{port}", databases={
        "app": entry(primary, standby, target_session_attrs="read-write")})
    assert {row["state"] for row in hosts(pooler).values()} == {"unknown"}
    with pooler.connect() as client:
        assert port_of(client) == primary.port
        machine.wait_until(lambda: {row["role"] for row in hosts(pooler).values()} == {"primary", "standby"})
        rows = hosts(pooler)
        assert rows[primary.port]["role"] == "primary" and rows[standby.port]["role"] == "standby"
        assert {row["state"] for row in rows.values()} == {"up"}
        machine.wait_until(lambda: hosts(pooler)[primary.port]["timeline"] == 1, what="the timeline is known")
        machine.wait_until(lambda: hosts(pooler)[standby.port]["lag_us"] == 0, what="the standby has replayed all")
        primary.run("SELECT txid_current()")
        machine.wait_until(lambda: standby.value("SELECT pg_last_xact_replay_timestamp() IS NOT NULL"))
        standby.value("SELECT pg_wal_replay_pause()")
        try:
            primary.run("SELECT txid_current()")
            machine.wait_until(lambda: (hosts(pooler)[standby.port]["lag_us"] or 0) > 300_000, what="the standby lags")
        finally:
            standby.value("SELECT pg_wal_replay_resume()")
        machine.wait_until(lambda: hosts(pooler)[standby.port]["lag_us"] == 0, what="the standby has caught up")
        metrics = scrape(port)
        assert metrics.value("pgweir_host_primary", endpoint=f"127.0.0.1:{primary.port}") == 1
        assert metrics.value("pgweir_host_primary", endpoint=f"127.0.0.1:{standby.port}") == 0
        assert metrics.value("pgweir_host_lag_seconds", endpoint=f"127.0.0.1:{standby.port}") == 0
        names = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'pgweir%'"
        assert [name for (name,) in standby.rows(names)] == ["pgweir host check"]
        assert [name for (name,) in primary.rows(names)] == ["pgweir host check"]
        tasks = {row["task"]: row["active"] for row in pooler.console("SHOW INTERNAL")}
        assert tasks["host_check"] == 2
    # Without clients there are no checks.
    machine.wait_until(lambda: not standby.rows(names), what="the checks end")
    pooler.console("SET host_check_interval = 0")
    with pooler.connect() as client:
        client.execute("SELECT 1")
        machine.stays_true(lambda: not standby.rows(names), 1)


def test_two_primaries(start_pooler, own_pair, workers):  # noqa: F811
    """The standby is promoted while the old primary still runs: pgweir uses only the host that was promoted last."""
    primary, standby = own_pair
    pooler = start_pooler(None, workers=workers, host_check_interval=0.3, query_wait_notify=0, databases={
        "app": entry(primary, standby, target_session_attrs="primary")})
    idle, busy = pooler.connect(), pooler.connect()
    idle.execute("SET app.tenant = 'seven'")
    busy.execute("BEGIN")
    assert port_of(idle) == port_of(busy) == primary.port
    machine.wait_until(lambda: hosts(pooler)[primary.port]["timeline"] == 1)
    standby.value("SELECT pg_promote(true, 30)")
    promoted = time.monotonic()
    machine.wait_until(lambda: writes_go_to(pooler, standby.port), 5, "new clients write to the promoted host")
    print(f"{time.monotonic() - promoted:.2f} s after the promotion")
    assert time.monotonic() - promoted < 2
    # A transaction on the old primary would be lost.
    with pytest.raises(psycopg.OperationalError) as error:
        busy.execute("SELECT 1")
    assert error.value.sqlstate == "08006"
    assert "another host of the list was promoted after it" in str(error.value)
    assert port_of(idle) == standby.port
    assert idle.execute("SHOW app.tenant").fetchone() == ("seven",)
    idle.close()
    pooler.expect_log("another host of the list was promoted after it")


def processes(cluster):
    """All processes of a PostgreSQL server."""
    first = int((cluster.data / "postmaster.pid").read_text().split()[0])
    found = [first]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == first:
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def frozen(cluster):
    """Stops the server's processes: they answer nothing, but the kernel still accepts connections for them."""
    stopped = processes(cluster)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.shows("host_check_timeout", "host_check_failures")
def test_a_host_that_does_not_answer(start_pooler, own_pair):  # noqa: F811
    """The primary does not answer any more. pgweir keeps its servers until another host can be used; then its clients
    continue there.
    """
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=0.3, host_check_timeout=0.5, host_check_failures=2, query_wait_notify=0,
                          databases={"app": entry(primary, standby, target_session_attrs="read-write")})
    idle, busy = pooler.connect(), pooler.connect()
    idle.execute("SET app.tenant = 'seven'")
    busy.execute("BEGIN")
    machine.wait_until(lambda: hosts(pooler)[standby.port]["role"] == "standby")
    with frozen(primary):
        machine.wait_until(lambda: hosts(pooler)[primary.port]["state"] == "down", 10, "checks fail")
        assert pooler.console("SHOW SERVERS"), "there is no other primary yet"
        standby.value("SELECT pg_promote(true, 30)")
        promoted = time.monotonic()
        with pytest.raises(psycopg.OperationalError) as error:
            busy.execute("SELECT 1")
        assert "its host does not answer checks" in str(error.value) or "promoted after it" in str(error.value)
        assert port_of(idle) == standby.port
        print(f"{time.monotonic() - promoted:.2f} s after the promotion")
        assert time.monotonic() - promoted < 2
        assert idle.execute("SHOW app.tenant").fetchone() == ("seven",)
    idle.close()
    pooler.expect_log("no answer within host_check_timeout (host_check_failures = 2)")


def test_a_slow_host_is_not_left(start_pooler, own_pair):  # noqa: F811
    """After a single check without an answer, pgweir still uses the host."""
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=0.3, host_check_timeout=0.7, host_check_failures=4, query_wait_notify=0,
                          databases={"app": entry(primary, standby, target_session_attrs="read-write")})
    client = pooler.connect()
    client.execute("BEGIN")
    machine.wait_until(lambda: hosts(pooler)[standby.port]["role"] == "standby")
    with frozen(primary):
        machine.wait_until(lambda: "host_check_timeout" in (hosts(pooler)[primary.port]["last_error"] or ""), 10)
    assert port_of(client) == primary.port
    client.execute("COMMIT")
    client.close()
    machine.wait_until(lambda: hosts(pooler)[primary.port]["state"] == "up", what="it answers again")


def test_a_standby_comes_back(start_pooler, own_pair):  # noqa: F811
    """With `prefer-standby`, pgweir closes servers of the primary once a standby can be used again."""
    primary, standby = own_pair
    pooler = start_pooler(None, host_check_interval=0.3, target_session_retry=0.2, query_wait_notify=0, databases={
        "app": entry(primary, standby, target_session_attrs="prefer-standby")})
    standby.stop("immediate")
    with pooler.connect() as client:
        assert port_of(client) == primary.port
        standby.start()
        machine.wait_until(lambda: port_of(client) == standby.port, 10, "the standby is used again")


def standbys_of(primary, run_folder, count):
    """Running standbys of a cluster."""
    name = f"r{os.urandom(3).hex()}"
    return [standby_of(primary, run_folder / f"{name}{number}") for number in range(count)]


@pytest.fixture
def readers(start_cluster, run_folder):
    """A primary and two standbys, for one test."""
    primary = start_cluster(18, f"p{os.urandom(3).hex()}")
    standbys = standbys_of(primary, run_folder, 2)
    yield primary, *standbys
    for server in (*standbys, primary):
        server.stop()
        server.remove()


@pytest.mark.shows("database.max_replica_lag", "database.load_balance_hosts")
def test_reads_on_standbys(start_pooler, readers, workers):
    """Reads are spread over the standbys, without the one that is too far behind; sessions move between hosts."""
    primary, one, other = readers
    pooler = start_pooler(None, workers=workers, host_check_interval=0.2, query_wait_notify=0, default_pool_size=8,
                          databases={"app": entry(primary, one, other, target_session_attrs="prefer-standby",
                                                  max_replica_lag="0.8")})
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.connect()) for _ in range(6)]
        machine.wait_until(lambda: hosts(pooler)[one.port]["lag_us"] == hosts(pooler)[other.port]["lag_us"] == 0)
        for number, client in enumerate(clients):
            client.execute(f"SET app.tenant = 'tenant {number}'")

        def spread():
            for client in clients:
                client.execute("BEGIN")
            ports = [port_of(client) for client in clients]
            for client in clients:
                client.execute("COMMIT")
            return [ports.count(server.port) for server in (primary, one, other)]
        def is_spread_anew():
            # If one standby is behind for a moment, the servers of this moment all go to the other one, and stay there.
            pooler.console("RECONNECT")
            return spread() == [0, 3, 3]
        machine.wait_until(is_spread_anew, 10, "reads are spread")
        primary.run("SELECT txid_current()")
        machine.wait_until(lambda: one.value("SELECT pg_last_xact_replay_timestamp() IS NOT NULL"))
        one.value("SELECT pg_wal_replay_pause()")
        primary.run("SELECT txid_current()")
        machine.wait_until(lambda: spread() == [0, 0, 6], 10, "the standby that is behind is left")
        other.value("SELECT pg_wal_replay_pause()")
        primary.run("SELECT txid_current()")
        machine.wait_until(lambda: spread() == [6, 0, 0], 10, "the primary is the last resort")
        for standby in (one, other):
            standby.value("SELECT pg_wal_replay_resume()")
        machine.wait_until(lambda: spread()[0] == 0, 10, "the standbys have caught up")
        for number, client in enumerate(clients):
            assert client.execute("SHOW app.tenant").fetchone() == (f"tenant {number}",)


def test_a_refused_check_is_an_answer(start_pooler, readers):
    """A standby that refuses the login of a check has answered: its servers stay, and so do the transactions on them.
    """
    primary, one, other = readers
    primary.run("CREATE ROLE reader LOGIN CONNECTION LIMIT 1")
    for standby in (one, other):
        machine.wait_until(lambda standby=standby: standby.value("SELECT count(*) FROM pg_roles WHERE rolname = 'reader'") == 1)
    # A client has the only connection that the role may have.
    pooler = start_pooler(None, host_check_interval=0.2, host_check_timeout=0.5, host_check_failures=1, query_wait_notify=0,
                          databases={"app": entry(one, other, target_session_attrs="standby", load_balance_hosts="disable",
                                                  user="reader")})
    with pooler.connect() as client:
        client.execute("BEGIN")
        port = port_of(client)
        machine.wait_until(lambda: "too many connections" in (hosts(pooler)[port]["last_error"] or ""), 10)
        machine.stays_true(lambda: hosts(pooler)[port]["state"] != "down", 1)
        assert port_of(client) == port
        client.execute("COMMIT")
