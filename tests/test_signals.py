"""How the process ends, and which files it leaves."""

import signal
import socket
import subprocess

import pytest

import machine
import rawclient as wire
from rawclient import query

NEWER = pytest.mark.pgweir_only("since 1.23 signals mean this")


def is_closed_to_new(pooler):
    """Returns whether no process listens any more."""
    try:
        pooler.socket().close()
    except OSError:
        return True
    return False


@NEWER
def test_term_waits_for_clients(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(8)]
    clients[0].query("BEGIN")
    pooler.signal(signal.SIGTERM)
    machine.wait_until(lambda: is_closed_to_new(pooler), what="nobody is let in")
    while_clients_leave(pooler, clients)
    assert pooler.wait_end() == 0
    pooler.expect_log("got SIGTERM")


def while_clients_leave(pooler, clients):
    """The remaining clients are served, whichever workers the departing ones belong to."""
    while clients:
        for client in clients:
            assert client.value("SELECT 1") == "1"
        assert pooler.alive()
        clients.pop().close()


@NEWER
def test_second_term_is_immediate(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    pooler.signal(signal.SIGTERM)
    machine.wait_until(lambda: is_closed_to_new(pooler), what="nobody is let in")
    assert client.value("SELECT 1") == "1"
    pooler.signal(signal.SIGTERM)
    assert client.rest() == []  # without an error, as in PgBouncer
    assert pooler.wait_end() == 0


@NEWER
def test_int_waits_for_servers(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    idle, busy = pooler.raw(), pooler.raw()
    busy.query("BEGIN")
    pooler.signal(signal.SIGINT)
    machine.wait_until(lambda: is_closed_to_new(pooler), what="nobody is let in")
    assert busy.value("SELECT 1") == "1"
    assert pooler.alive()
    busy.send(query("COMMIT"))
    assert "C" in wire.kinds(busy.rest())
    assert wire.kinds(idle.rest()) in ("", "E")
    assert pooler.wait_end() == 0


@NEWER
def test_int_lends_no_server_again(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    idle, busy = pooler.raw(), pooler.raw()
    busy.query("BEGIN")
    pooler.signal(signal.SIGINT)
    machine.wait_until(lambda: is_closed_to_new(pooler), what="nobody is let in")
    idle.send(query("SELECT 1"))
    machine.stays_true(pooler.alive, 0.3, "it waits for the busy client")
    busy.send(query("COMMIT"))
    busy.rest()
    assert "D" not in wire.kinds(idle.rest())
    assert pooler.wait_end() == 0


@NEWER
def test_second_int_is_immediate(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    client.query("BEGIN")
    pooler.signal(signal.SIGINT)
    machine.wait_until(lambda: is_closed_to_new(pooler), what="nobody is let in")
    assert pooler.alive()
    pooler.signal(signal.SIGINT)
    assert pooler.wait_end() == 0


@NEWER
def test_quit_sends_errors_only_to_clients_with_a_query(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    idle, in_transaction, busy = (pooler.raw() for _ in range(3))
    in_transaction.query("BEGIN")
    busy.send(query("SELECT pg_sleep(30)"))
    machine.wait_until(lambda: newest_pg.backends("query ~ 'pg_sleep' AND state = 'active'"),
                       what="the query runs")
    pooler.signal(signal.SIGQUIT)
    assert wire.kinds(busy.rest()) == "E"
    assert wire.kinds(idle.rest()) == wire.kinds(in_transaction.rest()) == ""
    assert pooler.wait_end(5) == 0


@NEWER
def test_quit_is_immediate(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(3)]
    clients[0].query("BEGIN")
    clients[1].send(query("SELECT pg_sleep(30)"))
    pooler.signal(signal.SIGQUIT)
    assert pooler.wait_end(5) == 0


@NEWER
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_ends_at_once_when_idle(start_pooler, newest_pg, number, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    with pooler.raw() as client:
        client.value("SELECT 1")
    machine.wait_until(lambda: pooler.pool()["cl_active"] == 0, what="the client is gone")
    pooler.signal(number)
    assert pooler.wait_end(5) == 0


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL])
def test_servers_are_closed(start_pooler, newest_pg, number):
    pooler = start_pooler(newest_pg)
    with pooler.raw() as client:
        backend = int(client.value("SELECT pg_backend_pid()"))
    assert backend in newest_pg.backends()
    pooler.signal(number)
    pooler.wait_end(5)
    machine.wait_until(lambda: backend not in newest_pg.backends(), what="the backend is gone")


def test_hup_reloads(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(query("SELECT 1"))
    waiter.quiet()
    pooler.settings["default_pool_size"] = 2
    pooler.write_files()
    pooler.signal(signal.SIGHUP)
    assert wire.value(waiter.until_ready()) == "1"


@pytest.mark.pgweir_only("takes half of it")
def test_hup_with_a_bad_file_keeps_the_old_one(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    before = pooler.console("SHOW CONFIG")
    pooler.write_ini(pooler.ini_path.read_text().replace("default_pool_size = 5",
                                                         "default_pool_size = 6")
                     + "pool_mod = session\n")
    pooler.signal(signal.SIGHUP)
    pooler.expect_log("pool_mod")
    line = len(pooler.ini_path.read_text().splitlines())
    assert f"pgweir.ini:{line}" in pooler.log()
    assert pooler.console("SHOW CONFIG") == before
    assert pooler.raw().value("SELECT 1") == "1"


def test_signals_that_end_nothing(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    for number in (signal.SIGPIPE, signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD, signal.SIGWINCH):
        pooler.signal(number)
        machine.stays_true(lambda: client.value("SELECT 1") == "1", 0.1, "the client is served")


# -- files


def test_unix_socket_is_removed(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    path = pooler.folder / f".s.PGSQL.{pooler.port}"
    assert path.is_socket()
    pooler.signal(signal.SIGTERM if pooler.pgbouncer else signal.SIGQUIT)
    pooler.wait_end(5)
    assert not path.exists()


def test_stale_unix_socket_is_replaced(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    pooler.signal(signal.SIGKILL)
    pooler.wait_end(5)
    assert (pooler.folder / f".s.PGSQL.{pooler.port}").is_socket()
    pooler.ended = False
    pooler.start()
    with pooler.connect(host=str(pooler.folder)) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_live_unix_socket_is_not_taken(start_pooler, new_pooler, newest_pg):
    """A second process on the same port reports the conflict and ends; the first one goes on serving."""
    first = start_pooler(newest_pg)
    second = new_pooler(newest_pg, port=first.port, unix_socket_dir=str(first.folder),
                        listen_addr=None)
    second.write_files()
    second.spawn()
    assert second.wait_end(10) != 0
    with first.connect(host=str(first.folder)) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.pgweir_only("goes on with the Unix socket alone")
def test_port_in_use(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    port = pooler.port
    with socket.create_server(("127.0.0.1", port)):
        pooler.write_files()
        pooler.spawn()
        assert pooler.wait_end(10) != 0
    assert "in use" in pooler.log()
    assert str(port) in pooler.log()


@pytest.mark.shows("pidfile")
def test_pidfile(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    pidfile = pooler.folder / "pid"
    pooler.settings["pidfile"] = str(pidfile)
    pooler.start()
    assert pidfile.read_text().strip() == str(pooler.pid)
    pooler.signal(signal.SIGTERM if pooler.pgbouncer else signal.SIGQUIT)
    pooler.wait_end(5)
    assert not pidfile.exists()


@pytest.mark.shows("logfile")
def test_logfile(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    logfile = pooler.folder / "other.log"
    pooler.settings["logfile"] = str(logfile)
    pooler.start("-q")
    with pooler.raw() as client:
        client.value("SELECT 1")
    machine.wait_until(lambda: "client close request" in logfile.read_text()
                       or "closing because" in logfile.read_text(), what="the end is logged")
    assert "app/trusty@127.0.0.1" in logfile.read_text()


@pytest.mark.shows("log_connections", "log_disconnections")
def test_log_of_a_session(start_pooler, newest_pg):
    """The lines that alerts look for, in PgBouncer's format."""
    pooler = start_pooler(newest_pg)
    with pooler.raw() as client:
        client.value("SELECT 1")
        port = client.sock.getsockname()[1]
    pooler.expect_log("closing because: client unexpected eof (age=")
    log = pooler.log()
    (login,) = [line for line in log.splitlines() if "login attempt" in line]
    assert f"[{pooler.pid}] LOG C-0x" in login
    assert f": app/trusty@127.0.0.1:{port} login attempt: db=app user=trusty tls=no" in login
    (server,) = [line for line in log.splitlines() if "new connection to server" in line]
    assert f"[{pooler.pid}] LOG S-0x" in server
    assert f"@127.0.0.1:{newest_pg.port} new connection to server (from 127.0.0.1:" in server


# -- the command line


def run(program, *arguments, **options):
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True,
                          timeout=20, **(machine.as_service() | options))


def test_version_and_help(program):
    for flag in ("-V", "--version"):
        done = run(program, flag)
        assert done.returncode == 0
        assert done.stdout.split()[0].lower() in ("pgweir", "pgbouncer")
    for flag in ("-h", "--help"):
        done = run(program, flag)
        assert done.returncode == 0
        for option in ("-d", "-q", "-v", "-u"):
            assert option in done.stdout


@pytest.mark.parametrize("arguments", [[], ["/does/not/exist.ini"], ["--no-such-flag"]])
def test_wrong_arguments(program, arguments):
    done = run(program, *arguments)
    assert done.returncode != 0
    assert done.stderr or done.stdout


def test_root_is_refused(new_pooler, newest_pg):
    if not machine.as_service():
        pytest.skip("only root can try")
    pooler = new_pooler(newest_pg)
    pooler.write_files()
    done = run(pooler.program, pooler.ini_path, user="root", group="root")
    assert done.returncode != 0
    assert "root" in done.stderr
