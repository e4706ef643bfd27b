"""The process: daemon, pid file, log, syslog, service manager."""

import contextlib
import os
import re
import signal
import socket
import subprocess

import pytest

import machine
import rawclient as wire


def is_running(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


class Daemon:
    """A pooler in the background, which the test finds by its pid file."""

    def __init__(self, pooler):
        self.pooler = pooler
        self.pid = None

    def run(self, *flags):
        """Runs a command. Returns its exit code and its output."""
        return subprocess.run(
            [str(self.pooler.program), "-d", *flags, str(self.pooler.ini_path)],
            capture_output=True, text=True, timeout=20, cwd=self.pooler.folder,
            **machine.as_service())

    def start(self, *flags):
        done = self.run(*flags)
        assert (done.returncode, done.stderr) == (0, "")
        path = self.pooler.folder / "pid"
        self.pid = int(machine.wait_until(lambda: path.exists() and path.read_text(), what="pid file"))
        return self

    def stop(self):
        if self.pid is not None and is_running(self.pid):
            os.kill(self.pid, signal.SIGQUIT)
            machine.wait_until(lambda: not is_running(self.pid), what="the daemon ends")


@pytest.fixture
def daemon(new_pooler, newest_pg):
    """Starts poolers with these settings as daemons. They are ended after the test."""
    made = []

    def make(**settings):
        pooler = new_pooler(newest_pg)
        pooler.settings |= {"logfile": str(pooler.log_path), "pidfile": str(pooler.folder / "pid")}
        pooler.settings |= settings
        pooler.write_files()
        made.append(Daemon(pooler))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.shows("pidfile", "logfile")
def test_daemon(daemon):
    """The daemon serves without a terminal; its pid is in the pid file, its lines are in the log."""
    one = daemon().start()
    machine.wait_until(lambda: one.pooler.is_listening(), what="it listens")
    assert one.pooler.raw().value("SELECT 1") == "1"
    assert os.getsid(one.pid) != os.getsid(0)
    assert {os.readlink(f"/proc/{one.pid}/fd/{n}") for n in (0, 1, 2)} == {"/dev/null"}
    assert os.readlink(f"/proc/{one.pid}/cwd") == str(one.pooler.folder)
    one.pooler.expect_log(f"[{one.pid}] LOG process up: ")
    one.stop()
    assert not (one.pooler.folder / "pid").exists()


@pytest.mark.parametrize(("settings", "said"), [
    ({"pidfile": ""}, "pidfile"),
    ({"logfile": ""}, "logfile"),
    ({"listen_addr": "192.0.2.1"}, "192.0.2.1"),
    ({"logfile": "/does/not/exist.log"}, "/does/not/exist.log"),
    ({"pidfile": "/does/not/exist.pid"}, "/does/not/exist.pid"),
    ({"pool_mode": "sometimes"}, "sometimes"),
])
@pytest.mark.pgweir_only("says it in the log, if anywhere")
def test_a_daemon_reports_start_errors_on_standard_error(daemon, settings, said):
    one = daemon(**settings)
    done = one.run()
    assert done.returncode == 1
    assert said in done.stderr
    assert not one.pooler.is_listening()


@pytest.mark.pgweir_only("its online restart has other ways")
def test_the_log_has_the_output_of_a_new_process_that_fails(daemon):
    """Also if a daemon has started the process that fails, in an online restart."""
    one = daemon().start()
    machine.wait_until(lambda: one.pooler.is_listening(), what="it listens")
    pid_file, first = one.pooler.folder / "pid", one.pid
    os.kill(first, signal.SIGALRM)
    machine.wait_until(lambda: not is_running(first), 20, what="the first one ends")
    one.pid = int(machine.wait_until(lambda: pid_file.exists() and pid_file.read_text(), what="pid file"))
    one.pooler.settings["pool_mode"] = "sometimes"
    one.pooler.write_files()
    os.kill(one.pid, signal.SIGALRM)
    one.pooler.expect_log("the new process has failed (exit status: 1): ", 20)
    line = next(line for line in one.pooler.log().splitlines() if "the new process has failed" in line)
    assert str(one.pooler.ini_path) in line and "sometimes" in line


@pytest.mark.shows("pidfile")
def test_pid_file_of_a_living_process_is_respected(daemon):
    first = daemon().start()
    machine.wait_until(lambda: first.pooler.is_listening(), what="it listens")
    first.pooler.settings |= {"listen_port": machine.free_port()}
    first.pooler.write_files()
    done = first.run()
    assert done.returncode == 1
    assert str(first.pid) in done.stderr and "another instance" in done.stderr
    assert (first.pooler.folder / "pid").read_text() == f"{first.pid}\n"
    machine.release_port(first.pooler.settings["listen_port"])


@pytest.mark.shows("pidfile")
@pytest.mark.parametrize("text", ["", "4194304\n"])
def test_stale_pid_file_is_replaced(start_pooler, new_pooler, newest_pg, text):
    pooler = new_pooler(newest_pg)
    path = pooler.folder / "pid"
    path.write_text(text)
    machine.give_to_service(path)
    pooler.settings["pidfile"] = path
    pooler.start()
    assert path.read_text() == f"{pooler.pid}\n"
    pooler.expect_log("process up")
    assert ("stale pidfile" in pooler.log()) == bool(text)


@pytest.mark.pgweir_only("refuses, too, but does not say why")
def test_a_file_that_is_no_pid_file_is_not_overwritten(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    path = pooler.folder / "precious"
    path.write_text("something else\n")
    machine.give_to_service(path)
    pooler.settings["pidfile"] = path
    pooler.write_files()
    assert pooler.spawn().wait_end() == 1
    assert str(path) in pooler.log()
    assert path.read_text() == "something else\n"


# -- the log


LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \S+ \[\d+\] (LOG|WARNING|ERROR|DEBUG|FATAL) ")


def test_form_of_the_log(start_pooler, newest_pg):
    """`TIME [PID] LEVEL C-0x...: DB/USER@ADDR:PORT TEXT`, S- for servers."""
    pooler = start_pooler(newest_pg)
    with pooler.raw() as client:
        client.value("SELECT 1")
        port = client.sock.getsockname()[1]
    machine.wait_until(lambda: f":{port} closing because" in pooler.log(), what="the client's end")
    lines = pooler.log().splitlines()
    for line in lines:
        assert LINE.match(line), line
    whole = "\n".join(lines)
    client_line = rf"LOG C-0x[0-9a-f]+: app/trusty@127\.0\.0\.1:{port} "
    assert re.search(client_line + "login attempt: db=app user=trusty tls=no", whole)
    assert re.search(client_line + r"closing because: client .*\(age=\ds\)", whole)
    assert re.search(rf"LOG S-0x[0-9a-f]+: app/trusty@127\.0\.0\.1:{newest_pg.port} "
                     r"new connection to server \(from 127\.0\.0\.1:\d+\)", whole)
    for text in ("kernel file descriptor limit: ", "process up: ", f"listening on 127.0.0.1:{pooler.port}",
                 f"listening on unix:{pooler.unix_path}"):
        assert text in whole


@pytest.mark.shows("logfile")
@pytest.mark.parametrize("by", ["signal", "console"])
def test_log_file_is_opened_again(new_pooler, newest_pg, by):
    """After a rotation, SIGHUP makes pgweir log into a new file, even if the configuration is invalid."""
    pooler = new_pooler(newest_pg)
    path = pooler.folder / "own.log"
    pooler.settings["logfile"] = path
    pooler.start()
    machine.wait_until(lambda: path.exists() and "process up" in path.read_text(),
                       what="the first lines")
    for broken in (False, True):
        if broken:
            pooler.write_ini(pooler.ini_path.read_text() + "\npool_mode = sometimes\n")
        path.rename(pooler.folder / f"old-{broken}.log")
        if by == "signal":
            pooler.signal(signal.SIGHUP)
        elif broken:
            with pytest.raises(Exception, match="RELOAD failed, see logs for additional details"):
                pooler.console("RELOAD")
        else:
            pooler.console("RELOAD")
        machine.wait_until(path.exists, what="a new file")

        def new_lines():
            pooler.raw().close()
            return "login attempt" in path.read_text()

        machine.wait_until(new_lines, what="lines in the new file")


def test_option_q_keeps_standard_error_empty(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    path = pooler.folder / "own.log"
    pooler.settings["logfile"] = path
    pooler.start("-q")
    machine.wait_until(lambda: path.exists() and "process up" in path.read_text(),
                       what="lines in the file")
    assert pooler.log() == ""


@pytest.mark.shows("verbose")
@pytest.mark.pgweir_only("its details are others")
def test_verbose_reloads(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, verbose=0)
    pooler.raw().close()
    pooler.expect_log("new connection to server")
    assert " DEBUG " not in pooler.log()
    pooler.settings["verbose"] = 1
    pooler.write_files()
    pooler.console("RELOAD")
    pooler.raw(dbname="other").close()
    pooler.expect_log(f"] DEBUG connecting to {newest_pg.host}:{newest_pg.port}")


@pytest.mark.pgweir_only("its details are others")
def test_verbose_by_flag(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg).start("-v")
    pooler.raw().close()
    pooler.expect_log(f"] DEBUG connecting to {newest_pg.host}:{newest_pg.port}")


@pytest.mark.shows("log_connections", "log_disconnections", "log_pooler_errors")
@pytest.mark.parametrize("on", [0, 1])
def test_log_connections_log_disconnections_and_log_pooler_errors(start_pooler, newest_pg, on):
    pooler = start_pooler(newest_pg, log_connections=on, log_disconnections=on, log_pooler_errors=on)
    with pooler.raw() as client:
        client.value("SELECT 1")
    with pytest.raises(wire.LoginRefused):
        pooler.raw(dbname="nosuch")
    pooler.signal(signal.SIGHUP)
    pooler.expect_log("got SIGHUP, re-reading config")
    log = pooler.log()
    for text in ("login attempt: db=app", "new connection to server", "closing because: client ",
                 "pooler error: no such database: nosuch"):
        assert (text in log) == bool(on), text


def test_an_error_is_in_the_log_before_its_client_knows(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    for number in range(20):
        with pytest.raises(wire.LoginRefused):
            pooler.raw(dbname=f"nosuch{number}")
        assert f"closing because: no such database: nosuch{number} (age=0s)" in pooler.log()


@pytest.mark.shows("log_stats", "stats_period")
def test_statistics_are_logged(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, stats_period=1, workers=workers)
    client = pooler.raw()
    line = re.compile(r" LOG stats: (\d+) xacts/s, (\d+) queries/s, \d+ client parses/s, "
                      r"\d+ server parses/s, \d+ binds/s, in (\d+) B/s, out (\d+) B/s, "
                      r"xact \d+ us, query \d+ us, wait \d+ us\n")

    def busy():
        client.value("SELECT 1")
        return [found for found in line.findall(pooler.log()) if int(found[0]) > 0]

    xacts, queries, received, sent = map(int, machine.wait_until(busy, what="a line")[0])
    assert xacts == queries and received > 10 * xacts and sent > 10 * xacts


@pytest.mark.shows("log_stats")
def test_statistics_are_not_logged(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, stats_period=1, log_stats=0)
    machine.stays_true(lambda: "stats:" not in pooler.log(), 1.5, "no line of statistics")


# -- syslog and the service manager


class Datagrams:
    """A reader of a Unix datagram socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        machine.give_to_service(path)
        self.socket.settimeout(10)

    def until(self, text):
        """The first datagram with `text` in it."""
        while True:
            got = self.socket.recv(65536).decode()
            if text in got:
                return got


@pytest.mark.shows("syslog", "syslog_ident", "syslog_facility", "syslog_socket")
@pytest.mark.pgweir_only("its socket is the system's")
def test_syslog(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    path = pooler.folder / "log"
    daemon = Datagrams(path)
    pooler.settings |= {"syslog": 1, "syslog_ident": "my-pooler", "syslog_facility": "local1",
                        "syslog_socket": path}
    pooler.start()
    head = rf"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d my-pooler\[{pooler.pid}\]: "
    assert re.match(rf"<{17 * 8 + 6}>{head}process up: ", daemon.until("process up"))
    with pytest.raises(wire.LoginRefused):
        pooler.raw(dbname="nosuch")
    warning = daemon.until("pooler error")
    assert re.match(rf"<{17 * 8 + 4}>{head}C-0x[0-9a-f]+: nosuch/trusty@127.0.0.1:\d+ pooler error: ",
                    warning)
    # Without the socket, the pooler continues; it uses a new socket when there is one.
    daemon.socket.close()
    path.unlink()
    pooler.raw().close()
    later = Datagrams(path)
    pooler.raw().close()
    assert "were lost" in later.until("lost")
    pooler.settings["syslog"] = 0
    pooler.write_files()
    pooler.console("RELOAD")
    later.socket.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        later.until("never said")
    pooler.raw().close()
    with pytest.raises(TimeoutError):
        later.socket.recv(1000)


@pytest.mark.pgweir_only("not in Debian's build")
def test_the_service_manager_is_notified(new_pooler, newest_pg, monkeypatch):
    pooler = new_pooler(newest_pg)
    manager = Datagrams(pooler.folder / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(pooler.folder / "notify"))
    pooler.start()
    assert manager.until("READY") == "READY=1"
    pooler.signal(signal.SIGHUP)
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", manager.until("RELOADING"))
    assert manager.until("READY") == "READY=1"
    pooler.signal(signal.SIGTERM)
    assert manager.until("STOPPING") == "STOPPING=1"
    assert pooler.wait_end() == 0


def test_files_that_everybody_can_read(start_pooler, newest_pg):
    """A userlist that every user of the machine can read is reported at the start and at each RELOAD."""
    words = "every user of this machine can read"
    pooler = start_pooler(newest_pg)
    pooler.userlist_path.chmod(0o600)
    pooler.console("RELOAD")
    before = pooler.log().count(words)
    pooler.userlist_path.chmod(0o644)
    pooler.console("RELOAD")
    pooler.expect_log(f"auth_file: {words} {pooler.userlist_path}: chmod o-r")
    assert pooler.log().count(words) == before + 1
    pooler.userlist_path.chmod(0o640)
    pooler.console("RELOAD")
    assert pooler.log().count(words) == before + 1
