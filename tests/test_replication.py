"""Replication connections: each has a server of its own, within the pool's limits."""

import os
import signal
import subprocess

import pytest

import cluster as clusters
import fakeserver as fake
import machine
import rawclient as wire
from rawclient import LoginRefused

BACKEND = "SELECT pg_backend_pid()"
REPLICATOR = "replicator"


@pytest.fixture
def start_pooler(start_pooler):
    """Poolers with a database for physical replication, as its tools name it."""
    def start(pg, size=5, **options):
        where = f"host={pg.host} port={pg.port} pool_size={size}"
        databases = {"app": f"{where} dbname=app", "replication": f"{where} dbname=postgres"}
        return start_pooler(pg, databases=databases, **options)
    return start


@pytest.fixture(params=clusters.VERSIONS, ids=lambda version: f"pg{version}")
def own_pg(request, shared_clusters):
    """A cluster. The test's replication slots are dropped afterwards."""
    pg = shared_clusters(request.param)
    yield pg
    machine.wait_until(lambda: not pg.value(
        "SELECT count(*) FROM pg_replication_slots WHERE active"), 10, "all slots are free")
    pg.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def replicator(pooler, database="app", kind="database", **options):
    return pooler.raw(user=REPLICATOR, dbname=database, replication=kind, **options)


def run_tool(pg, *command, **options):
    """A program of PostgreSQL's, under the account of the servers."""
    name, *rest = command
    return subprocess.run([pg.binaries.path(name), *rest], check=True, capture_output=True,
                          text=True, timeout=60, cwd=pg.folder, **options, **machine.as_service())


def start_tool(pg, *command, **options):
    name, *rest = command
    return subprocess.Popen([pg.binaries.path(name), *rest], cwd=pg.folder, **options,
                            **machine.as_service())


def conninfo(pooler, database):
    return f"host={pooler.host} port={pooler.port} user={REPLICATOR} dbname={database}"


# -- PostgreSQL's own tools


def test_a_base_backup_restores_and_starts(start_pooler, own_pg, folder, workers):
    pooler = start_pooler(own_pg, workers=workers)
    own_pg.run("DROP TABLE IF EXISTS saved; CREATE TABLE saved AS SELECT generate_series(1, 5000) n",
               dbname="app")
    run_tool(own_pg, "pg_basebackup", "--dbname", conninfo(pooler, "replication"), "--checkpoint",
             "fast", "--wal-method", "stream", "--pgdata", str(folder / "data"), "--no-sync")
    assert pooler.raw().value("SELECT sum(n) FROM saved") == "12502500"
    restored = clusters.Cluster(own_pg.binaries, folder, folder / "data")
    try:
        restored.start()
        assert restored.value("SELECT sum(n) FROM saved", dbname="app") == 12502500
    finally:
        restored.stop()
        restored.remove()


def test_wal_is_received(start_pooler, own_pg, folder):
    pooler = start_pooler(own_pg)
    target = folder / "wal"
    target.mkdir()
    machine.give_to_service(target)
    arguments = ("--dbname", conninfo(pooler, "replication"), "--slot", "received")
    run_tool(own_pg, "pg_receivewal", *arguments, "--create-slot")
    receiving = start_tool(own_pg, "pg_receivewal", *arguments, "--directory", str(target))
    try:
        # A base backup ends a segment: without new WAL, there may be nothing to receive.
        client = pooler.raw()
        client.query("CREATE TABLE IF NOT EXISTS busy (n int)")
        machine.wait_until(lambda: list(target.iterdir()), 10, "a segment is begun")
        client.query("INSERT INTO busy SELECT generate_series(1, 1000)")
        own_pg.run("SELECT pg_switch_wal()")
        machine.wait_until(lambda: [f for f in target.iterdir() if f.suffix != ".partial"], 20,
                           "a segment is complete")
    finally:
        receiving.send_signal(signal.SIGINT)
    assert receiving.wait(10) == 0
    whole = [f for f in target.iterdir() if f.suffix != ".partial"]
    assert all(f.stat().st_size == 16 << 20 for f in whole)


def test_changes_are_decoded(start_pooler, own_pg):
    """Ordinary clients of the same pool make the changes meanwhile."""
    pooler = start_pooler(own_pg)
    own_pg.run("DROP TABLE IF EXISTS watched; CREATE TABLE watched (n int, filler text)",
               dbname="app")
    own_pg.run("SELECT pg_create_logical_replication_slot('decoded', 'pgoutput')", dbname="app")
    own_pg.run("DROP PUBLICATION IF EXISTS all_of_it; CREATE PUBLICATION all_of_it FOR ALL TABLES",
               dbname="app")
    arguments = ["--dbname", conninfo(pooler, "app"), "--slot", "decoded", "--start", "--no-loop",
                 "--option", "proto_version=1", "--option", "publication_names=all_of_it"]
    receiving = start_tool(own_pg, "pg_recvlogical", *arguments, "--file", "-",
                           stdout=subprocess.PIPE)
    try:
        (row,) = machine.wait_until(
            lambda: [r for r in pooler.console("SHOW CLIENTS")
                     if (r["user"], r["state"]) == (REPLICATOR, "active")], 10, "it is connected")
        assert row["replication"] == "logical"
        writers = [pooler.raw() for _ in range(3)]
        for n, writer in enumerate(writers):
            writer.query(f"INSERT INTO watched SELECT {n}, repeat('x', 1000) "
                         "FROM generate_series(1, 2000)")
        expected, heard = 3 * 2000 * 1000, 0
        os.set_blocking(receiving.stdout.fileno(), False)

        def all_has_come():
            nonlocal heard
            heard += (receiving.stdout.read() or b"").count(b"x")
            return heard >= expected

        machine.wait_until(all_has_come, 20, "6 MB of changes")
    finally:
        receiving.send_signal(signal.SIGINT)
        receiving.wait(10)
        own_pg.run("DROP PUBLICATION all_of_it", dbname="app")


# -- properties of replication connections


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_a_logical_connection(start_pooler, own_pg, mode, workers):
    pooler = start_pooler(own_pg, pool_mode=mode, workers=workers)
    ordinary = pooler.raw(user=REPLICATOR)
    ordinary.value(BACKEND)
    # There may be a second server, if the first was reading the catalog at that moment.
    shared = {str(r["remote_pid"]) for r in pooler.console("SHOW SERVERS")}
    client = replicator(pooler, application_name="mine", options="-c enable_seqscan=off",
                        work_mem="77kB")
    assert client.parameters["application_name"] == "mine"
    assert {"server_version", "TimeZone", "client_encoding"} <= set(client.parameters)
    assert len(wire.rows(client.query("IDENTIFY_SYSTEM"))) == 1
    assert client.value("SHOW application_name") == "mine"
    assert client.value("SHOW enable_seqscan") == "off"
    assert client.value("SHOW work_mem") == "77kB"
    own = client.value(BACKEND)
    assert client.value(BACKEND) == own not in shared
    # The client keeps its setting, and no other client sees it.
    client.query("SET work_mem = '78kB'")
    client.query("BEGIN")
    assert client.value("SHOW work_mem") == "78kB"
    client.query("COMMIT")
    assert ordinary.value(BACKEND) in shared
    kinds = {r["replication"] for r in pooler.console("SHOW SERVERS")}
    assert kinds == {"logical", "none"}
    assert f"user={REPLICATOR} tls=no replication=database" in pooler.log()
    client.close()
    machine.wait_until(lambda: not own_pg.rows(
        "SELECT 1 FROM pg_stat_activity WHERE pid = %s", int(own)), 5, "its server is closed")
    assert ordinary.value(BACKEND) in shared


def test_a_physical_connection(start_pooler, own_pg):
    pooler = start_pooler(own_pg, pool_mode="statement")
    client = replicator(pooler, "replication", "yes", application_name="standby",
                        options="-c enable_seqscan=off")
    assert wire.errors(client.query("SELECT 1"))[0][0] == "0A000"
    assert client.value("SHOW application_name") == "standby"
    assert client.value("SHOW enable_seqscan") == "off"
    assert len(wire.rows(client.query("IDENTIFY_SYSTEM"))) == 1
    (row,) = [r for r in pooler.console("SHOW SERVERS") if r["replication"] != "none"]
    assert (row["replication"], row["state"]) == ("physical", "active")
    assert "replication=yes" in pooler.log()


@pytest.mark.parametrize(("value", "outcome"), [
    ("false", "none"), ("0", "none"), ("on", "physical"), ("database", "logical"), ("maybe", None),
])
def test_values_of_the_parameter_replication(start_pooler, newest_pg, value, outcome):
    pooler = start_pooler(newest_pg)
    if outcome is None:
        with pytest.raises(LoginRefused, match='invalid value for parameter "replication": "maybe"'):
            replicator(pooler, kind=value)
        return
    with replicator(pooler, kind=value):
        (row,) = [r for r in pooler.console("SHOW CLIENTS") if r["user"] == REPLICATOR]
        assert row["replication"] == outcome


def test_the_query_of_a_replication_client_can_be_cancelled(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = replicator(pooler)
    client.send(wire.query("SELECT pg_sleep(30)"))
    machine.wait_until(lambda: newest_pg.rows(
        "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)'"), 5, "it runs")
    client.cancel()
    assert wire.errors(client.until_ready())[0][0] == "57014"
    assert client.value("SELECT 7") == "7"


def test_query_timeouts_do_not_apply_to_replication(start_pooler, newest_pg):
    """A replication stream may last for any time."""
    pooler = start_pooler(newest_pg, query_timeout=0.3, transaction_timeout=0.3,
                          client_idle_timeout=0.3, idle_transaction_timeout=0.3)
    client = replicator(pooler)
    client.query("BEGIN")
    client.query("SELECT pg_sleep(0.8)")
    client.quiet(0.8)
    assert client.value("SELECT 7") == "7"


# -- within the limits of its pool


def test_an_idle_server_makes_room(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, size=2, workers=workers)
    clients = [pooler.raw(user=REPLICATOR) for _ in range(4)]
    for client in clients[:2]:
        client.query("BEGIN")
    backends = {client.value(BACKEND) for client in clients[:2]}
    for client in clients[:2]:
        client.query("COMMIT")
    own = replicator(pooler)
    pooler.expect_log("closing because: evicted (age=")
    assert pooler.log().count("closing because: evicted") == 1
    assert own.value(BACKEND) not in backends
    # The other server serves all other clients.
    assert len({client.value(BACKEND) for client in clients for _ in range(2)} & backends) == 1
    (count,) = newest_pg.rows("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", REPLICATOR)
    assert count == (2,)


def test_a_replication_client_waits_in_the_queue(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, size=1, workers=workers)
    holder, late = pooler.raw(user=REPLICATOR), pooler.raw(user=REPLICATOR)
    holder.query("BEGIN")
    client = pooler.socket()
    client.send(wire.startup(user=REPLICATOR, database="app", replication="database"))
    client.expect("R")
    client.quiet()
    late.send(wire.query(BACKEND))
    late.quiet(0.1)
    assert pooler.pool(user=REPLICATOR)["cl_waiting"] == 2
    holder.query("COMMIT")
    client.until_ready()
    assert client.value("SELECT 7") == "7"
    late.quiet()
    client.close()
    assert wire.kinds(late.until_ready()) == "TDCZ"


def test_replication_clients_above_pool_size_wait(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, size=2, query_wait_timeout=1)
    first, _second = replicator(pooler), replicator(pooler)
    with pytest.raises(LoginRefused, match="query_wait_timeout"):
        replicator(pooler)
    third = pooler.socket()
    third.send(wire.startup(user=REPLICATOR, database="app", replication="database"))
    third.expect("R")
    third.quiet()
    first.close()
    third.until_ready()
    assert third.value("SELECT 7") == "7"


def test_a_replication_client_leaves_the_queue(start_pooler, newest_pg):
    """A client disconnects while it waits, and the next client gets the server."""
    pooler = start_pooler(newest_pg, size=1)
    holder = pooler.raw(user=REPLICATOR)
    holder.query("BEGIN")
    for _ in range(3):
        client = pooler.socket()
        client.send(wire.startup(user=REPLICATOR, database="app", replication="database"))
        client.expect("R")
        client.quiet(0.05)
        client.close()
    machine.wait_until(lambda: pooler.pool(user=REPLICATOR)["cl_waiting"] == 0, 5, "nobody waits")
    holder.query("COMMIT")
    assert "evicted" not in pooler.log()
    assert holder.value("SELECT 7") == "7"


# -- when it fails


def test_a_role_without_the_replication_privilege(start_pooler, own_pg):
    pooler = start_pooler(own_pg, server_login_retry=15)
    for _ in range(2):
        with pytest.raises(LoginRefused) as refused:
            pooler.raw(replication="database")
        assert (refused.value.sqlstate, refused.value.words) == ("08P01", "login failed")
        # Ordinary clients are not affected.
        assert pooler.raw().value("SELECT 7") == "7"
    words = "must be superuser" if own_pg.version < 16 else "permission denied to start WAL sender"
    assert f"server login failed: FATAL {words}" in pooler.log()
    assert pooler.log().count("closing because: login failed (age=") == 4
    assert pooler.pool()["sv_login"] == 0


def test_a_changed_database_ends_replication(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = replicator(pooler)
    pooler.databases["app"] += " application_name=changed"
    pooler.write_files()
    pooler.console("RELOAD")
    assert client.error_and_close().words == "database configuration changed"


def test_a_client_that_leaves_while_its_server_logs_in(start_pooler):
    went = []

    def behave(connection):
        try:
            connection.read_startup()
            connection.rest()
        finally:
            went.append(connection.number)

    with fake.FakeServer(behave) as server:
        pooler = start_pooler(server, size=1)
        for n in range(1, 4):
            client = pooler.socket()
            client.send(wire.startup(user=REPLICATOR, database="app", replication="true"))
            client.expect("R")
            machine.wait_until(lambda: server.accepted == n, 5, "its server is being opened")
            client.close()
            machine.wait_until(lambda: n in went, 5, "the login is given up")


def test_a_server_that_dies_takes_its_client_along(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client, ordinary = replicator(pooler), pooler.raw(user=REPLICATOR)
    newest_pg.run(f"SELECT pg_terminate_backend({client.value(BACKEND)})")
    assert client.error_and_close().sqlstate == "57P01"
    assert ordinary.value("SELECT 7") == "7"
