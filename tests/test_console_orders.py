"""PAUSE, RESUME, KILL and the other commands that all workers carry out."""

import os
import signal
import subprocess
import threading

import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused


def command(console, text):
    """Runs a command that must succeed."""
    messages = console.query(text)
    assert wire.kinds(messages) == "CZ", (text, wire.errors(messages))
    return messages[0].body.rstrip(b"\0").decode()


def states(pooler, database="app"):
    return sorted(row["state"] for row in pooler.console("SHOW CLIENTS")
                  if row["database"] == database)


def servers(pooler, database="app"):
    return [row["remote_pid"] for row in pooler.console("SHOW SERVERS")
            if row["database"] == database]


def database(pooler, name="app"):
    (row,) = [row for row in pooler.console("SHOW DATABASES") if row["name"] == name]
    return row


# -- PAUSE and RESUME


@pytest.mark.parametrize("what", ["", " app"])
def test_pause_waits_until_servers_are_free(start_pooler, pg, workers, what):
    pooler = start_pooler(pg, workers=workers)
    clients = [pooler.raw() for _ in range(6)]
    console = pooler.raw("admin", "pgbouncer")
    for client in clients:
        client.value("SELECT 1")
    holders, others = clients[:2], clients[2:]
    for client in holders:
        client.query("BEGIN")
    console.send(wire.query("PAUSE" + what))
    console.quiet()
    machine.wait_until(lambda: len(servers(pooler)) == 2, what="idle servers are closed")
    for client in others:
        client.send(wire.query("SELECT 2"))
    assert holders[0].value("SELECT 3") == "3"
    holders[0].query("COMMIT")
    console.quiet()
    holders[1].query("COMMIT")
    assert wire.kinds(console.until_ready()) == "CZ"
    assert servers(pooler) == []
    for client in others:
        client.quiet()
    assert states(pooler) == ["idle"] * 2 + ["waiting"] * 4
    assert database(pooler)["paused"] == (1 if what else 0)
    newcomer = pooler.raw()
    newcomer.send(wire.query("SELECT 4"))
    newcomer.quiet()
    assert command(console, "RESUME" + what) == "RESUME"
    for client in others:
        assert wire.value(client.until_ready()) == "2"
    assert wire.value(newcomer.until_ready()) == "4"
    assert database(pooler)["paused"] == 0


def test_pause_of_one_database_leaves_the_others(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    console = pooler.raw("admin", "pgbouncer")
    assert command(console, "PAUSE app") == "PAUSE"
    assert command(console, "PAUSE app") == "PAUSE", "again"
    assert pooler.raw(dbname="other").value("SELECT 1") == "1"
    assert wire.errors(console.query("RESUME other")) == [("08P01", "database other is not paused")]
    assert wire.errors(console.query("RESUME")) == [("08P01", "pooler is not paused/suspended")]
    assert command(console, 'RESUME "app";') == "RESUME"
    assert pooler.raw().value("SELECT 1") == "1"


def test_a_paused_session_ends_when_its_client_leaves(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, pool_mode="session")
    client = pooler.raw()
    client.value("SELECT 1")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query("PAUSE"))
    console.quiet()
    assert client.value("SELECT 2") == "2"
    client.close()
    assert wire.kinds(console.until_ready()) == "CZ"
    assert servers(pooler) == []


def test_a_client_that_waits_for_its_first_server_in_a_pause(start_pooler, newest_pg):
    """The pool has no server yet: the client's login waits, and completes after RESUME."""
    pooler = start_pooler(newest_pg)
    console = pooler.raw("admin", "pgbouncer")
    command(console, "PAUSE")
    value = []
    thread = threading.Thread(target=lambda: value.append(pooler.raw().value("SELECT 5")))
    thread.start()
    machine.wait_until(lambda: pooler.pool() and pooler.pool()["cl_waiting"] == 1)
    command(console, "RESUME")
    thread.join(10)
    assert value == ["5"]


@pytest.mark.shows("query_wait_timeout")
def test_the_time_in_a_pause_counts_as_waiting(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, query_wait_timeout=1)
    client = pooler.raw()
    client.value("SELECT 1")
    pooler.console("PAUSE")
    client.send(wire.query("SELECT 2"))
    assert wire.errors(client.rest()) == [("08P01", "query_wait_timeout")]


def test_errors_of_pause(start_pooler, newest_pg):
    console = start_pooler(newest_pg).raw("admin", "pgbouncer")
    for text, words in [
        ("PAUSE nowhere", "no such database: nowhere"),
        ("PAUSE pgbouncer", "cannot pause admin db: pgbouncer"),
        ("KILL nowhere", "no such database: nowhere"),
        ("KILL pgbouncer", "cannot kill admin db: pgbouncer"),
        ("RECONNECT nowhere", "no such database: nowhere"),
        ("RECONNECT pgbouncer", "cannot reconnect admin db: pgbouncer"),
        ("WAIT_CLOSE nowhere", "no such database: nowhere"),
        ("WAIT_CLOSE pgbouncer", "cannot wait in admin db: pgbouncer"),
        ("DISABLE", "a database is required"),
        ("ENABLE", "a database is required"),
        ("DISABLE nowhere", "no such database: nowhere"),
        ("ENABLE nowhere", "no such database: nowhere"),
        ("DISABLE pgbouncer", "cannot disable admin db: pgbouncer"),
        ("RESUME nowhere", "no such database: nowhere"),
        ("RESUME", "pooler is not paused/suspended"),
        ("KILL_CLIENT", "invalid client pointer supplied"),
        ("KILL_CLIENT someone", "invalid client pointer supplied"),
        ("KILL_CLIENT 0x", "invalid client pointer supplied"),
        ("KILL_CLIENT 0xfffff", "client not found"),
        ("KILL_CLIENT 99999999999999999999999", "client not found"),
        ("KILL_CLIENT 100000", "client not found"),
    ]:
        assert wire.errors(console.query(text)) == [("08P01", words)]
    command(console, "PAUSE")
    for text in ("PAUSE", "PAUSE app", "KILL", "KILL app"):
        assert wire.errors(console.query(text)) == [("08P01", "already suspended/paused")]
    command(console, "RESUME")


@pytest.mark.pgweir_only("it never answers the second one")
def test_resume_answers_the_console_that_waits_in_pause(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    first, second = (pooler.raw("admin", "pgbouncer") for _ in range(2))
    first.send(wire.query("PAUSE"))
    first.quiet()
    command(second, "RESUME")
    assert wire.errors(first.until_ready())[0][0] == "57014"
    client.query("COMMIT")
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.pgweir_only("it resumes, but leaves the console without an answer")
@pytest.mark.parametrize("what", ["PAUSE", "PAUSE app", "WAIT_CLOSE"])
def test_cancel_of_a_console_that_waits(start_pooler, newest_pg, workers, what):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    pooler.console("RECONNECT")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query(what))
    console.quiet()
    console.cancel()
    assert wire.errors(console.until_ready())[0][0] == "57014"
    client.query("COMMIT")
    assert client.value("SELECT 1") == "1"
    assert console.error("RESUME").words == "pooler is not paused/suspended"


def test_a_pause_outlives_its_console(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    client.query("BEGIN")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query("PAUSE"))
    console.quiet()
    console.close()
    client.query("COMMIT")
    client.send(wire.query("SELECT 1"))
    client.quiet()
    pooler.console("RESUME")
    assert wire.value(client.until_ready()) == "1"


def test_signals_pause_and_resume(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(4)]
    clients[0].value("SELECT 1")
    pooler.signal(signal.SIGUSR1)
    pooler.expect_log("got SIGUSR1, pausing all activity")
    machine.wait_until(lambda: not servers(pooler), what="no server")
    for client in clients:
        client.send(wire.query("SELECT 1"))
    clients[0].quiet()
    pooler.signal(signal.SIGUSR1)
    pooler.expect_log("got SIGUSR1, but already paused/suspended")
    pooler.signal(signal.SIGUSR2)
    pooler.expect_log("got SIGUSR2, continuing from PAUSE")
    for client in clients:
        assert wire.value(client.until_ready()) == "1"
    pooler.signal(signal.SIGUSR2)
    pooler.expect_log("got SIGUSR2, but not paused/suspended")


def test_a_paused_pooler_ends(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.value("SELECT 1")
    console = pooler.raw("admin", "pgbouncer")
    command(console, "PAUSE")
    client.send(wire.query("SELECT 1"))
    client.quiet()
    console.send(wire.query("SHUTDOWN WAIT_FOR_SERVERS"))
    ((_, words),) = wire.errors(client.rest())
    assert "server shutting down" in words
    assert "closing because: server shutting down" in pooler.log()  # before the client gets the error
    assert pooler.wait_end() == 0


def test_paused_databases_survive_a_reload_while_they_are_there(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    pooler.console("PAUSE app")
    pooler.console("DISABLE other")
    pooler.console("RELOAD")
    assert database(pooler)["paused"] == 1
    assert database(pooler, "other")["disabled"] == 1
    before = pooler.databases
    pooler.databases = {"app": before["app"]}
    pooler.write_files()
    pooler.console("RELOAD")
    pooler.databases = before
    pooler.write_files()
    pooler.console("RELOAD")
    assert database(pooler)["paused"] == 1
    assert database(pooler, "other")["disabled"] == 0


# -- KILL


@pytest.mark.parametrize("what", ["", " app"])
def test_kill(start_pooler, pg, workers, what):
    pooler = start_pooler(pg, workers=workers)
    clients = [pooler.raw() for _ in range(5)]
    clients[0].query("BEGIN")
    clients[1].send(wire.query("SELECT pg_sleep(30)"))
    clients[1].quiet()
    console = pooler.raw("admin", "pgbouncer")
    assert command(console, "KILL" + what) == "KILL"
    assert (states(pooler), servers(pooler)) == ([], [])
    for client in clients:
        assert [words for _, words in wire.errors(client.rest())] == ["database removed"]
    assert database(pooler)["paused"] == 1
    value = []
    thread = threading.Thread(target=lambda: value.append(pooler.raw().value("SELECT 6")))
    thread.start()
    machine.wait_until(lambda: states(pooler) != [], what="a new client")
    assert wire.errors(console.query("RESUME")) == [("08P01", "pooler is not paused/suspended")]
    command(console, "RESUME app")
    thread.join(10)
    assert value == ["6"]


@pytest.mark.parametrize("how", ["idle", "busy", "in a transaction", "waiting"])
def test_kill_client(start_pooler, newest_pg, workers, how):
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1)
    other, victim = pooler.raw(), pooler.raw(application_name="victim")
    if how == "busy":
        victim.send(wire.query("SELECT pg_sleep(30)"))
        victim.quiet()
    if how == "in a transaction":
        victim.query("BEGIN")
    if how == "waiting":
        other.query("BEGIN")
        victim.send(wire.query("SELECT 1"))
        victim.quiet()
    rows = [row for row in pooler.console("SHOW CLIENTS") if row["application_name"] == "victim"]
    console = pooler.raw("admin", "pgbouncer")
    assert command(console, f"KILL_CLIENT {rows[0]['id']}") == "KILL_CLIENT"
    assert [words for _, words in wire.errors(victim.rest())] == ["admin forced disconnect"]
    assert other.value("SELECT 1") == "1"
    assert wire.errors(console.query(f"KILL_CLIENT {rows[0]['ptr']}")) == [("08P01", "client not found")]
    if how == "idle":  # also by the number that the log has
        pointer = next(row["ptr"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app")
        assert command(console, f"KILL_CLIENT {pointer}") == "KILL_CLIENT"
        assert [words for _, words in wire.errors(other.rest())] == ["admin forced disconnect"]


# -- DISABLE and ENABLE


def test_disable(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    console = pooler.raw("admin", "pgbouncer")
    assert command(console, "DISABLE app") == "DISABLE"
    for _ in range(4):
        with pytest.raises(LoginRefused, match='database "app" is disabled'):
            pooler.raw()
    assert client.value("SELECT 1") == "1"
    assert database(pooler)["disabled"] == 1
    assert command(console, "ENABLE app") == "ENABLE"
    assert pooler.raw().value("SELECT 1") == "1"


# -- RECONNECT and WAIT_CLOSE


@pytest.mark.parametrize("what", ["", " app"])
def test_reconnect(start_pooler, pg, workers, what):
    pooler = start_pooler(pg, workers=workers)
    clients = [pooler.raw() for _ in range(4)]
    for client in clients:
        client.query("BEGIN")
    before = set(servers(pooler))
    assert len(before) == 4
    clients[0].query("COMMIT")
    console, waiter = (pooler.raw("admin", "pgbouncer") for _ in range(2))
    assert command(console, "RECONNECT" + what) == "RECONNECT"
    assert len(servers(pooler)) == 3, "the idle one is gone"
    assert {row["close_needed"] for row in pooler.console("SHOW SERVERS")} == {1}
    waiter.send(wire.query("WAIT_CLOSE" + what))
    waiter.quiet()
    assert int(clients[0].value("SELECT pg_backend_pid()")) not in before
    for client in clients[1:]:
        client.query("COMMIT")
    assert wire.kinds(waiter.until_ready()) == "CZ"
    for client in clients:
        assert int(client.value("SELECT pg_backend_pid()")) not in before
    assert command(waiter, "WAIT_CLOSE") == "WAIT_CLOSE"


def test_wait_close_after_a_reload(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    pooler.databases["app"] += " application_name=changed"
    pooler.write_files()
    pooler.console("RELOAD")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query("WAIT_CLOSE app"))
    console.quiet()
    client.query("COMMIT")
    assert wire.kinds(console.until_ready()) == "CZ"


# -- rights

OPERATE = ["PAUSE", "PAUSE app", "RESUME", "RESUME app", "KILL", "KILL app", "KILL_CLIENT 1",
           "KILL_CLIENT", "DISABLE app", "DISABLE", "ENABLE app", "RECONNECT", "RECONNECT app",
           "WAIT_CLOSE", "WAIT_CLOSE app", "RELOAD", "SET pool_mode = session",
           "SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS", "SHUTDOWN WAIT_FOR_CLIENTS"]


@pytest.mark.guards("console_rights")
def test_only_admins_operate(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    stats = pooler.raw("stats", "pgbouncer")
    for text in OPERATE:
        assert wire.errors(stats.query(text)) == [("08P01", "admin access needed")], text
    assert client.value("SELECT 1") == "1"
    with pytest.raises(LoginRefused, match="not allowed"):
        pooler.raw("trusty", "pgbouncer")


def test_commands_with_too_many_arguments_are_refused(start_pooler, newest_pg):
    console = start_pooler(newest_pg).raw("admin", "pgbouncer")
    for text in ("PAUSE a b", "RELOAD app", "SHUTDOWN now", "KILL 'app'", "PAUSE; RESUME"):
        assert wire.errors(console.query(text)) == [("08P01", f"invalid command '{text}', use SHOW HELP;")]


# -- no transaction fails


@pytest.mark.parametrize("seconds", [
    6, pytest.param(60, marks=[pytest.mark.full, pytest.mark.timeout(150)])])
def test_pgbench_during_reloads_pauses_and_reconnects(start_pooler, newest_pg, seconds):
    """A reload each second, PAUSE and RESUME, RECONNECT, other pool sizes: no transaction fails."""
    pooler = start_pooler(newest_pg, default_pool_size=10, workers=2, log_connections=0,
                          log_disconnections=0)
    clients = 200 if seconds > 10 else 50
    with pooler.connect() as db:
        db.execute("DROP TABLE IF EXISTS operated")
        db.execute("CREATE TABLE operated (n int)")
        db.execute("INSERT INTO operated VALUES (0)")
    script = pooler.folder / "work.sql"
    script.write_text("BEGIN;\nSELECT count(*) FROM operated;\nSELECT 1;\nEND;\n")
    bench = subprocess.Popen(
        [newest_pg.binaries.path("pgbench"), "-n", "-c", str(clients), "-j", "2", "-T", str(seconds),
         "-f", str(script), "-h", pooler.host, "-p", str(pooler.port), "-U", "trusty", "app"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sizes = [3, 12, 1, 20, 7]
    turn = 0
    for _ in machine.every(0.3, until=lambda: bench.poll() is not None):
        size = sizes[turn % len(sizes)]
        pooler.settings["default_pool_size"] = size
        pooler.write_files()
        for text in ("RELOAD", "PAUSE", "RESUME", "RECONNECT", "PAUSE app", "RESUME app",
                     f"SET default_pool_size = {size + 1}", "WAIT_CLOSE"):
            pooler.console(text)
        turn += 1
    out, problems = bench.communicate(timeout=30)
    assert bench.returncode == 0, problems
    assert "number of failed transactions: 0 " in out, out
    assert turn >= seconds / 3
    assert os.path.exists(script)


@pytest.mark.pgweir_only("since 1.12 with min_pool_size and a forced user")
@pytest.mark.shows("database.min_pool_size")
def test_no_server_is_kept_ready_in_a_pause(start_pooler, newest_pg, workers):
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    databases = {"app": f"{where} user=trusty min_pool_size=2"}
    pooler = start_pooler(newest_pg, databases=databases, workers=workers, server_idle_timeout=0)
    machine.wait_until(lambda: len(servers(pooler)) == 2, what="two are ready")
    pooler.console("PAUSE")
    machine.stays_true(lambda: servers(pooler) == [], 1, "no server is opened")
    pooler.console("RESUME")
    machine.wait_until(lambda: len(servers(pooler)) == 2, what="two are ready again")


@pytest.mark.pgweir_only("1.18 has no such words")
@pytest.mark.parametrize("how", ["SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS"])
def test_errors_of_clients_at_the_end(start_pooler, newest_pg, workers, how):
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet()
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query(how))
    told = [words for _, words in wire.errors(waiter.rest())]
    if how == "SHUTDOWN":
        assert told == ["pooler is shutting down"]
    else:
        assert told == ["server shutting down"]
        holder.query("COMMIT")
    assert pooler.wait_end() == 0
