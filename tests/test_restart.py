"""Online restart: a new process takes the place of the running one, and clients notice nothing."""

import contextlib
import os
import re
import signal
import socket

import psycopg
import pytest

import machine
import rawclient as wire
from rawclient import query

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")


def app_servers(pg):
    return pg.backends("datname = 'app' AND usename = 'plainly'")


def test_idle_clients_move(line, workers):
    """Clients keep settings, prepared statements of both kinds, and application_name."""
    one = line(workers=workers)
    pooler = one.pooler
    clients = [pooler.raw(application_name=f"app{n}") for n in range(10)]
    for n, client in enumerate(clients):
        client.query(f"SET search_path TO schema{n}")
        client.query(f"SET app.tenant TO 'tenant{n}'")
        client.query(f"PREPARE p AS SELECT {n} + 1")
        client.send(wire.parse(f"SELECT {n} + 2", name="q"), wire.SYNC)
        client.until_ready()
    for _ in range(2):
        one.full()
        for n, client in enumerate(clients):
            assert client.value("SHOW search_path") == f"schema{n}"
            assert client.value("SHOW app.tenant") == f"tenant{n}"
            assert client.value("SHOW application_name") == f"app{n}"
            assert client.value("EXECUTE p") == str(n + 1)
            client.send(wire.bind(name="q"), wire.execute(), wire.SYNC)
            assert wire.rows(client.until_ready())[0][0] == str(n + 2)
    assert pooler.raw().value("SELECT 1") == "1"


def test_a_transaction_goes_on(line, newest_pg):
    """A client moves after the end of its transaction, and not before."""
    one = line()
    pooler = one.pooler
    with pooler.raw() as client:
        client.query("BEGIN")
        pid = client.value("SELECT pg_backend_pid()")
        old = one.restart()
        pooler.expect_log("accepts clients, ours leave for it")
        assert pooler.raw().value("SELECT 1") == "1"
        assert client.value("SELECT pg_backend_pid()") == pid
        assert old.poll() is None
        client.query("COMMIT")
        one.done(old)
        assert client.value("SELECT 1") == "1"


def test_cancel_keys_stay_valid(line, newest_pg):
    one = line()
    pooler = one.pooler
    moved, busy = pooler.raw(), pooler.raw()
    sleep = "SELECT pg_sleep(60)"
    busy.send(query(sleep))
    machine.wait_until(lambda: newest_pg.backends(f"query = '{sleep}' AND state = 'active'"))
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    # The request reaches the new process, the client is still with the old one.
    busy.cancel()
    assert wire.errors(busy.until_ready())[0][0] == "57014"
    one.done(old)
    for client in (moved, busy):
        client.send(query(sleep))
        machine.wait_until(lambda: newest_pg.backends(f"query = '{sleep}' AND state = 'active'"))
        client.cancel()
        assert wire.errors(client.until_ready())[0][0] == "57014"


@pytest.mark.shows("takeover_timeout")
def test_takeover_timeout(line):
    one = line(takeover_timeout=2)
    with one.pooler.raw() as client:
        client.query("BEGIN")
        old = one.restart()
        error = client.error_and_close()
        assert (error.sqlstate, error.fields["S"]) == ("57P01", "FATAL")
        one.done(old)


def test_both_processes_together_keep_within_pool_size(line, newest_pg):
    """Both processes together have no more servers than pool_size."""
    one = line(default_pool_size=4)
    pooler = one.pooler
    clients = [pooler.raw("plainly") for _ in range(4)]
    for client in clients:
        client.query("BEGIN")
    assert len(app_servers(newest_pg)) == 4
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    fresh = [pooler.socket() for _ in range(4)]
    for client in fresh:
        # No client can log in before there is a server.
        client.send(wire.startup(user="plainly", database="app"))
    for client in clients:
        client.quiet(0.2)
        assert len(app_servers(newest_pg)) <= 4
        client.query("COMMIT")
    for client in fresh:
        client.finish_login("plainly")
        assert client.value("SELECT pg_sleep(0.1)::text || 'x'") == "x"
        assert len(app_servers(newest_pg)) <= 4
    one.done(old)
    for client in clients:
        assert client.value("SELECT 1") == "1"


def test_failed_takeover_leaves_all_as_it_was(line):
    """The takeover fails because of an invalid configuration, a process that dies, or messages of another program."""
    one = line()
    pooler = one.pooler
    client = pooler.raw()
    ini = pooler.ini_path.read_text()
    pooler.write_ini(ini + "nonsense = 1\n")
    process = pooler.process
    pooler.spawn("-R")
    assert pooler.process.wait(20) == 1
    pooler.process = process
    pooler.write_ini(ini)
    place = str(pooler.folder / f".s.PGWEIR.{pooler.port}")
    for words in (b"", b"\0\0\0\1\1", b"\xff" * 100, b"\0\0\0\x13\1\1\0\0\0\x08" + bytes(7) + b"\x09" * 6):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(place)
            # pgweir reads nothing from a process of another user.
            with contextlib.suppress(OSError):
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1000):
                    pass
        assert client.value("SELECT 1") == "1"
        assert pooler.raw().value("SELECT 1") == "1"
    one.full()
    assert client.value("SELECT 1") == "1"


@pytest.mark.parametrize("key", ["listen_port", "unix_socket_dir"])
def test_settings_that_a_restart_cannot_change(line, key):
    """The new process would look for the old one at another address, and reports this."""
    one = line(pidfile="own.pid")
    pooler = one.pooler
    ini, process = pooler.ini_path.read_text(), pooler.process
    other = pooler.folder / "other"
    other.mkdir()
    machine.give_to_service(other)
    new = {"listen_port": machine.free_port(), "unix_socket_dir": other}
    pooler.write_ini(re.sub(f"(?m)^{key} = .*", f"{key} = {new[key]}", ini))
    pooler.spawn("-R")
    assert pooler.process.wait(20) == 1
    pooler.process = process
    machine.release_port(new["listen_port"])
    assert "cannot take over: no process that can hand over answers at " in pooler.log()
    pooler.write_ini(ini)
    assert pooler.raw().value("SELECT 1") == "1"


def test_the_pid_file_may_change(line):
    """The old pid file is removed when the old process ends."""
    one = line(pidfile="own.pid")
    pooler = one.pooler
    client = pooler.raw()
    before, after = pooler.folder / "own.pid", pooler.folder / "new.pid"
    assert before.read_text() == f"{pooler.process.pid}\n"
    pooler.write_ini(pooler.ini_path.read_text().replace("own.pid", "new.pid"))
    one.full()
    assert client.value("SELECT 1") == "1"
    assert not before.exists() and after.read_text() == f"{pooler.process.pid}\n"
    one.full()
    assert after.read_text() == f"{pooler.process.pid}\n"


def test_new_process_dies_after_it_began(line):
    """The old process still serves all clients that the new one has not confirmed."""
    one = line()
    pooler = one.pooler
    busy = pooler.raw()
    busy.query("BEGIN")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    one.new_process_dies(old)
    assert busy.query("COMMIT")[-1].body == b"I"
    assert busy.value("SELECT 1") == "1"
    machine.wait_until(lambda: pooler.raw().value("SELECT 1") == "1")
    one.full()
    assert busy.value("SELECT 1") == "1"


def test_by_signal_and_by_console(line):
    """The running process starts the new one itself; the pid file follows."""
    one = line(pidfile="pgweir.pid")
    pooler = one.pooler
    client = pooler.raw()
    pid_file = pooler.folder / "pgweir.pid"
    first = pooler.process
    pids = {first.pid}

    def is_next():
        try:
            pid = int(pid_file.read_text())
        except (ValueError, FileNotFoundError):
            return False
        return pid not in pids

    first.send_signal(signal.SIGALRM)
    assert first.wait(30) == 0
    machine.wait_until(is_next, what="the pid file names the new process")
    second = int(pid_file.read_text())
    pids.add(second)
    try:
        assert client.value("SELECT 1") == "1"
        pooler.console("RESTART")
        machine.wait_until(is_next, 30, what="the pid file names the new process")
        assert client.value("SELECT 1") == "1"
        assert pooler.console("SHOW CLIENTS")
        # Otherwise all clients would go back to the second process.
        machine.wait_until(lambda: pooler.log().count("the process before this one has ended") == 2, 30)
    finally:
        third = int(pid_file.read_text())
        os.kill(third, signal.SIGQUIT)
        pooler.ended = True
    files = [pid_file, pooler.folder / f".s.PGSQL.{pooler.port}", pooler.folder / f".s.PGWEIR.{pooler.port}"]
    machine.wait_until(lambda: not any(file.exists() for file in files), what="it ends")


def test_the_service_manager_is_notified(new_pooler, newest_pg):
    """The old process names the new one as the main process, and does not announce its own end."""
    pooler = new_pooler(newest_pg)
    place = str(pooler.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        os.chmod(place, 0o777)
        manager.settimeout(20)
        pooler.write_files()
        within = ("env", f"NOTIFY_SOCKET={place}")
        pooler.spawn(within=within).listening()
        old = pooler.process
        pooler.spawn("-R", within=within)
        assert old.wait(30) == 0
        told = []
        while f"MAINPID={pooler.process.pid}" not in told or told.count("READY=1") < 2:
            told += manager.recv(1000).decode().split("\n")
        assert "STOPPING=1" not in told, told
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.parametrize("cap", ["max_db_connections", "max_user_connections", "max_server_conn"])
def test_both_processes_together_keep_within_the_caps(line, newest_pg, cap):
    """The caps that pools share count the servers of both processes."""
    one = line(**{cap: 2, "default_pool_size": 10})
    pooler = one.pooler
    clients = [pooler.raw("plainly") for _ in range(2)]
    for client in clients:
        client.query("BEGIN")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    fresh = pooler.socket()
    fresh.send(wire.startup(user="plainly", database="app"))
    fresh.expect("R")
    fresh.quiet(0.5)
    assert len(app_servers(newest_pg)) == 2
    for client in clients:
        client.query("COMMIT")
    fresh.finish_login("plainly")
    one.done(old)
    for client in [fresh, *clients]:
        assert client.value("SELECT 1") == "1"
        assert len(app_servers(newest_pg)) <= 2


def test_waiting_clients_move(line, newest_pg):
    """Waiting clients go on waiting with the new process, which reads the requests that they have sent."""
    one = line(default_pool_size=1)
    pooler = one.pooler
    with pooler.raw("plainly") as holder:
        waiting = [pooler.raw("plainly") for _ in range(3)]
        holder.query("BEGIN")
        for n, client in enumerate(waiting):
            client.send(query(f"SELECT {n}"))
        all_wait = lambda: (pooler.pool("app", "plainly") or {}).get("cl_waiting") == 3
        machine.wait_until(all_wait, what="they wait")
        old = one.restart()
        pooler.expect_log("accepts clients, ours leave for it")
        machine.wait_until(all_wait, what="they wait again, in a pool that was not there before")
        holder.query("COMMIT")
        for n, client in enumerate(waiting):
            assert wire.rows(client.until_ready()) == [(str(n),)]
        one.done(old)
        assert holder.value("SELECT 1") == "1"


def test_orders_stay_in_force(line):
    one = line()
    pooler = one.pooler
    client = pooler.raw()
    pooler.console("PAUSE")
    pooler.console("DISABLE other")
    one.full()
    client.send(query("SELECT 1"))
    client.quiet(0.3)
    with pytest.raises(psycopg.OperationalError, match="disabled"):
        pooler.connect(dbname="other")
    pooler.console("RESUME")
    assert wire.rows(client.until_ready()) == [("1",)]


def test_login_under_way(line):
    """A client in the middle of its login can complete it."""
    one = line(auth_type="scram-sha-256")
    pooler = one.pooler
    half = pooler.socket()
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    half.login("scrammed", "app", pooler.users["scrammed"])
    assert half.value("SELECT 1") == "1"
    one.done(old)
    assert half.value("SELECT 1") == "1"


def test_a_second_restart_waits_for_the_first(line):
    """The restart waits while a client stays with the first process. The client can be killed."""
    one = line()
    pooler = one.pooler
    plain, busy = pooler.raw(), pooler.raw()
    busy.query("BEGIN")
    first = one.restart()
    pooler.expect_log("accepts clients, ours leave for it", seconds=20)
    second = one.restart()
    pooler.expect_log(f"a new process has to wait to take over: process {first.pid}, of the last", seconds=20)
    assert plain.value("SELECT 1") == "1"
    assert busy.value("SELECT 1") == "1"
    first.send_signal(signal.SIGQUIT)
    assert first.wait(30) == 0
    assert busy.rest() == []
    one.done(second)
    assert plain.value("SELECT 1") == "1"


def test_a_refused_restart_does_not_disturb_the_first_one(line):
    """The second restart gives up after ten seconds. Clients still move to the first new process."""
    one = line()
    pooler = one.pooler
    busy = pooler.raw()
    busy.query("BEGIN")
    first = one.restart()
    pooler.expect_log("accepts clients, ours leave for it", seconds=20)
    new_process = pooler.process
    pooler.spawn("-R")
    assert pooler.process.wait(30) == 1
    pooler.process = new_process
    pooler.expect_log(f"process {first.pid}, of the last online restart, still has clients")
    assert busy.query("COMMIT")[-1].body == b"I"
    one.done(first)
    assert busy.value("SELECT 1") == "1"


def test_a_pool_of_one_server_and_a_client_that_stays(line, newest_pg):
    """The new process lets the old one open the only server, for a client that can't move."""
    one = line(default_pool_size=1)
    pooler = one.pooler
    plain, late = pooler.raw("replicator"), pooler.socket()
    plain.query("BEGIN")
    late.send(wire.startup(user="replicator", database="app", replication="database"))
    late.expect("R")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    late.quiet(0.5)
    plain.query("COMMIT")
    late.finish_login("replicator")
    assert late.value("SELECT 1") == "1"
    counted = newest_pg.rows("SELECT count(*) FROM pg_stat_activity WHERE usename = 'replicator'")
    assert counted == [(1,)]
    # Now this client waits.
    plain.send(query("SELECT 7"))
    plain.quiet(0.5)
    assert old.poll() is None
    late.close()
    assert wire.rows(plain.until_ready()) == [("7",)]
    one.done(old)
    assert plain.value("SELECT 1") == "1"


def test_clients_in_session_mode_move_with_their_servers(line, newest_pg):
    one = line(pool_mode="session", default_pool_size=3)
    pooler = one.pooler
    clients = [pooler.raw("plainly") for _ in range(3)]
    pids = [client.value("SELECT pg_backend_pid()") for client in clients]
    for n, client in enumerate(clients):
        client.query(f"CREATE TEMP TABLE mine AS SELECT {n} AS n")
        client.query(f"SET app.tenant TO 'tenant{n}'")
    clients[0].query("LISTEN news")
    clients[2].query("BEGIN")
    waiting = pooler.raw("plainly")
    waiting.send(query("SELECT 1"))
    for round in range(2):
        old = one.restart()
        if round == 0:
            pooler.expect_log("accepts clients, ours leave for it")
            assert clients[2].query("COMMIT")[-1].body == b"I"
        one.done(old)
        for n, client in enumerate(clients):
            assert client.value("SELECT pg_backend_pid()") == pids[n]
            assert client.value("SELECT n FROM mine") == str(n)
            assert client.value("SHOW app.tenant") == f"tenant{n}"
        assert len(app_servers(newest_pg)) == 3
    waiting.quiet(0.2)
    with pooler.pg.connect(dbname="app") as db:
        db.execute("NOTIFY news, 'came along'")
    assert b"came along" in clients[0].expect("A")[0].body
    sleep = "SELECT pg_sleep(60)"
    clients[1].send(query(sleep))
    machine.wait_until(lambda: newest_pg.backends(f"query = '{sleep}' AND state = 'active'"))
    clients[1].cancel()
    assert wire.errors(clients[1].until_ready())[0][0] == "57014"
    # The departing client's server goes to the waiting client, clean.
    clients[0].close()
    assert wire.rows(waiting.until_ready()) == [("1",)]
    assert waiting.value("SELECT to_regclass('pg_temp.mine')") is None


def failure_of(db, query):
    """Returns the SQLSTATE of its error."""
    try:
        db.execute(query)
    except psycopg.Error as error:
        return error.sqlstate
    return None
