"""`pgweir postgres://user@host/db`: a pooler without any file."""

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

import cluster as clusters
import machine

PORT = 6432
USER, PASSWORD = "scrammed", clusters.ROLES["scrammed"][0]

pytestmark = pytest.mark.pgweir_only("wants a file")


@pytest.fixture
def quick_start(program, folder):
    """Starts it, one at a time since the port is fixed."""
    with open(f"/tmp/pgweir-test-port-{PORT}-{os.geteuid()}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not machine.is_free(PORT):
            pytest.skip(f"somebody else listens on port {PORT}")
        started = []

        def start(url, **environment):
            log = folder / f"log{len(started)}"
            with open(log, "w") as out:
                process = subprocess.Popen(
                    [program, url], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder)} | environment,
                    **machine.as_service())
            started.append(process)
            process.log = log
            return process

        yield start
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


def connect(user=USER, password=PASSWORD, dbname="app"):
    return psycopg.connect(host="127.0.0.1", port=PORT, user=user, password=password, dbname=dbname,
                           autocommit=True, prepare_threshold=None, connect_timeout=10)


def wait_for(process):
    def answers():
        assert process.poll() is None, machine.tail(process.log)
        return not machine.is_free(PORT)

    machine.wait_until(answers, 15, "it listens")


def check_serves(process):
    wait_for(process)
    with connect() as db:
        assert db.execute("SELECT current_user, current_database()").fetchone() == (USER, "app")
    for password in ("wrong", ""):
        with pytest.raises(psycopg.OperationalError):
            connect(password=password).close()
    with pytest.raises(psycopg.OperationalError):
        connect(user="plainly", password=clusters.ROLES["plainly"][0]).close()


@pytest.mark.parametrize("source", ["url", "PGPASSWORD", "PGPASSFILE", "~/.pgpass"])
@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_password(quick_start, pg, folder, source, scheme):
    environment, secret = {}, ""
    if source == "url":
        secret = ":" + quote(PASSWORD)
    elif source == "PGPASSWORD":
        environment = {"PGPASSWORD": PASSWORD}
    else:
        passfile = folder / (".pgpass" if source == "~/.pgpass" else "passwords")
        passfile.write_text(f"# mine\\:\notherhost:*:*:*:no\n{pg.host}:{pg.port}:*:{USER}:{PASSWORD}\n")
        passfile.chmod(0o600)
        machine.give_to_service(passfile)
        environment = {} if source == "~/.pgpass" else {"PGPASSFILE": str(passfile)}
    process = quick_start(f"{scheme}://{USER}{secret}@{pg.host}:{pg.port}/app", **environment)
    check_serves(process)
    assert "psql" in process.log.read_text()
    assert str(PORT) in process.log.read_text()
    check_hidden(process, environment)


def check_hidden(process, environment):
    """Neither ps nor the log tells the password."""
    kept = [PASSWORD.encode(), quote(PASSWORD).encode()]
    assert not any(word in Path(f"/proc/{process.pid}/cmdline").read_bytes() for word in kept)
    assert not any(word in process.log.read_bytes() for word in kept)
    if "PGPASSWORD" not in environment:
        assert not any(word in Path(f"/proc/{process.pid}/environ").read_bytes() for word in kept)


def test_unix_socket_host(quick_start, pg):
    host = quote(str(pg.socket_dir), safe="")
    check_serves(quick_start(f"postgres://{USER}:{quote(PASSWORD)}@{host}:{pg.port}/app"))


def test_transaction_mode(quick_start, pg):
    process = quick_start(f"postgres://{USER}:{quote(PASSWORD)}@{pg.host}:{pg.port}/app")
    wait_for(process)
    with contextlib.ExitStack() as stack:
        dbs = [stack.enter_context(connect()) for _ in range(50)]
        backends = {db.execute("SELECT pg_backend_pid()").fetchone()[0] for db in dbs}
        assert len(backends) < 50


def test_passfile_that_others_may_read_is_not_used(quick_start, pg, folder):
    passfile = folder / "passwords"
    passfile.write_text(f"*:*:*:*:{PASSWORD}\n")
    passfile.chmod(0o644)
    machine.give_to_service(passfile)
    process = quick_start(f"postgres://{USER}@{pg.host}:{pg.port}/app", PGPASSFILE=str(passfile))
    until = time.monotonic() + 5
    while process.poll() is None and machine.is_free(PORT) and time.monotonic() < until:
        time.sleep(0.05)
    assert "permission" in process.log.read_text().lower()
    with pytest.raises(psycopg.OperationalError):
        connect().close()


@pytest.mark.parametrize("url", [
    "mysql://user@host/db", "postgres://", "postgres://user@host:port/db", "postgres://user@host:99999/db",
    "postgres://us%zzer@host/db"])
def test_bad_urls(quick_start, url):
    process = quick_start(url)
    assert process.wait(10) != 0
    assert process.log.read_text()
    assert "panic" not in process.log.read_text()


def test_missing_server_is_told_at_once(quick_start):
    port = machine.free_port()
    process = quick_start(f"postgres://{USER}@127.0.0.1:{port}/app", PGPASSWORD=PASSWORD)
    wait_for(process)
    machine.wait_until(lambda: f"cannot reach the server at 127.0.0.1:{port}" in process.log.read_text(),
                       what="the warning")
    machine.release_port(port)


def test_occupied_port_is_explained(quick_start, pg):
    url = f"postgres://{USER}@{pg.host}:{pg.port}/app"
    wait_for(quick_start(url, PGPASSWORD=PASSWORD))
    second = quick_start(url, PGPASSWORD=PASSWORD)
    assert second.wait(10) == 1
    assert "127.0.0.1:6432" in second.log.read_text()
    assert "another program listens there" in second.log.read_text()
