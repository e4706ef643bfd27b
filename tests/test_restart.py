"""Online restart: a new process takes the place of the running one, and clients notice nothing."""

import contextlib
import os
import signal
import socket
import subprocess
import threading

import psycopg
import pytest

import machine
import rawclient as wire
from rawclient import query

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")


class Line:
    """A pooler that is restarted: `pooler.process` is always the process that has the clients."""

    def __init__(self, pooler):
        self.pooler = pooler

    def restart(self, *flags):
        """Starts `pgweir -R`, and waits for the old process to end."""
        old = self.pooler.process
        self.pooler.spawn("-R", *flags)
        return old

    def done(self, old, seconds=30):
        assert old.wait(seconds) == 0, self.pooler.log_tail()
        assert self.pooler.alive(), self.pooler.log_tail()

    def full(self):
        self.done(self.restart())


@pytest.fixture
def line(start_pooler, newest_pg):
    return lambda pg=newest_pg, **options: Line(start_pooler(pg, **options))


def app_servers(pg):
    return pg.backends("datname = 'app' AND usename = 'plainly'")


def test_idle_clients_move(line, workers):
    """Settings, prepared statements of both kinds, application_name: all is as before."""
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
    """Who is in the middle of something moves when it is done, and not before."""
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


def test_cancel_keys_live_on(line, newest_pg):
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


def test_one_budget(line, newest_pg):
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
        # Nobody can log in before there is a server.
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
    """A configuration that is refused, a process that dies, a stranger's words."""
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
            # Another user's process is not even listened to.
            with contextlib.suppress(OSError):
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1000):
                    pass
        assert client.value("SELECT 1") == "1"
        assert pooler.raw().value("SELECT 1") == "1"
    one.full()
    assert client.value("SELECT 1") == "1"


def test_new_process_dies_after_it_began(line):
    """All that had not arrived there is served on by the old process."""
    one = line()
    pooler = one.pooler
    busy = pooler.raw()
    busy.query("BEGIN")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    pooler.process.kill()
    pooler.process.wait()
    pooler.process = old
    pooler.expect_log("online restart failed")
    assert busy.query("COMMIT")[-1].body == b"I"
    assert busy.value("SELECT 1") == "1"
    machine.wait_until(lambda: pooler.raw().value("SELECT 1") == "1")
    one.full()
    assert busy.value("SELECT 1") == "1"


def test_by_signal_and_by_console(line, tmp_path):
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
    finally:
        third = int(pid_file.read_text())
        os.kill(third, signal.SIGQUIT)
        pooler.ended = True
    files = [pid_file, pooler.folder / f".s.PGSQL.{pooler.port}", pooler.folder / f".s.PGWEIR.{pooler.port}"]
    machine.wait_until(lambda: not any(file.exists() for file in files), what="it ends")


def test_the_service_manager_is_told(new_pooler, newest_pg):
    """The old process names the new one as the main process, and says nothing of an end."""
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
def test_one_budget_under_caps(line, newest_pg, cap):
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
    """They go on waiting with the new process, which reads what they have sent."""
    one = line(default_pool_size=1)
    pooler = one.pooler
    with pooler.raw("plainly") as holder:
        waiting = [pooler.raw("plainly") for _ in range(3)]
        holder.query("BEGIN")
        for n, client in enumerate(waiting):
            client.send(query(f"SELECT {n}"))
        machine.wait_until(lambda: pooler.pool("app", "plainly")["cl_waiting"] == 3, what="they wait")
        old = one.restart()
        pooler.expect_log("accepts clients, ours leave for it")
        machine.wait_until(lambda: pooler.pool("app", "plainly")["cl_waiting"] == 3, what="they wait again")
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
    """A client that is in the middle of its login gets in."""
    one = line(auth_type="scram-sha-256")
    pooler = one.pooler
    half = pooler.socket()
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    half.login("scrammed", "app", pooler.users["scrammed"])
    assert half.value("SELECT 1") == "1"
    one.done(old)
    assert half.value("SELECT 1") == "1"


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(line, newest_pg, mode, request):
    """No transaction fails, however often the pooler is restarted."""
    full = request.config.getoption("--full")
    one = line(max_client_conn=500, default_pool_size=10)
    pooler = one.pooler
    script = pooler.folder / "script.sql"
    script.write_text("BEGIN;\nSELECT 1;\nSELECT pg_sleep(0.001);\nEND;\nSELECT 2;\n")
    machine.give_to_service(script)
    seconds, clients = (60, 200) if full else (6, 50)
    done = []

    def bench():
        command = [newest_pg.binaries.path("pgbench"), "-n", "-f", str(script), "-M", mode,
                   "-c", str(clients), "-j", str(clients),
                   "-T", str(seconds), "-h", pooler.host, "-p", str(pooler.port), "-U", "trusty", "app"]
        done.append(subprocess.run(command, capture_output=True, text=True))

    thread = threading.Thread(target=bench)
    thread.start()
    machine.wait_until(lambda: len(pooler.console("SHOW CLIENTS")) > clients / 2, 20, "it runs")
    restarts = 0
    while thread.is_alive() and restarts < (8 if full else 2):
        one.full()
        restarts += 1
        thread.join(2 if full else 0.5)
    thread.join()
    output = done[0].stdout + done[0].stderr
    assert done[0].returncode == 0 and "failed transactions: 0" in output, output
    assert restarts >= 2, output
    assert "aborted" not in output, output
