"""`pgweir postgres://user@host/db`: a pooler without a configuration file."""

import contextlib
import fcntl
import os
import socket
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
    """Checks that neither ps nor the log shows the password."""
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
    machine.wait_until(lambda: "permission" in process.log.read_text().lower(), 5, "it says why")
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


def ends_with_error(process, *words, seconds=5):
    """Checks that the command ends in time with an error of one line, and does not announce that clients can connect.
    """
    begun = time.monotonic()
    assert process.wait(seconds + 5) == 1
    assert time.monotonic() - begun < seconds + 1
    lines = process.log.read_text().splitlines()
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0], lines
    assert machine.is_free(PORT)


@pytest.mark.parametrize("user, password, dbname, words", [
    (USER, "wrong", "app", ('FATAL password authentication failed for user "scrammed"', "PGPASSWORD")),
    (USER, PASSWORD, "nowhere", ('FATAL database "nowhere" does not exist', "name an existing database")),
    ("nobody", "x", "app", ("FATAL", "nobody")),
])
def test_the_servers_error_is_shown(quick_start, pg, user, password, dbname, words):
    process = quick_start(f"postgres://{user}@{pg.host}:{pg.port}/{dbname}", PGPASSWORD=password)
    ends_with_error(process, f"{pg.host}:{pg.port}", *words)


def test_an_error_about_the_url_does_not_show_its_password(quick_start, pg):
    process = quick_start(f"postgres://{USER}:wr0ng@{pg.host}:{pg.port}/app")
    ends_with_error(process, "password authentication failed", "the password came from the URL")
    assert "wr0ng" not in process.log.read_text()


def test_a_missing_server_is_reported_at_once(quick_start):
    port = machine.free_port()
    process = quick_start(f"postgres://{USER}@127.0.0.1:{port}/app", PGPASSWORD=PASSWORD)
    ends_with_error(process, f"cannot log in to 127.0.0.1:{port}", "Connection refused", "is PostgreSQL running there")
    machine.release_port(port)


def test_an_unknown_host_is_reported(quick_start):
    process = quick_start(f"postgres://{USER}@nowhere.invalid/app", PGPASSWORD=PASSWORD)
    ends_with_error(process, "nowhere.invalid:5432")


def test_a_server_that_does_not_answer_is_reported_in_time(quick_start):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgres://{USER}@127.0.0.1:{silent.getsockname()[1]}/app"
        ends_with_error(quick_start(url, PGPASSWORD=PASSWORD), "did not answer within 5 seconds")
        ends_with_error(quick_start(url + "?connect_timeout=1", PGPASSWORD=PASSWORD), "within 2 seconds", seconds=2)


def test_refused_tls_is_reported(quick_start, newest_pg):
    """The test's PostgreSQL 18 has no TLS."""
    process = quick_start(f"postgres://{USER}@{newest_pg.host}:{newest_pg.port}/app?sslmode=require",
                          PGPASSWORD=PASSWORD)
    ends_with_error(process, "server refused SSL", "sslmode")


TLS_USER, TLS_PASSWORD = "tlsonly", "tls password"
ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.mark.parametrize("parameters", [
    "sslmode=require&channel_binding=require", "channel_binding=require", "sslmode=verify-full", "sslrootcert=system",
    "sslmode=verify-full&sslrootcert={ca}", "sslmode=require&sslrootcert={ca}&ssl_min_protocol_version=TLSv1.3",
    "sslmode=verify-ca", "ssl=true"])
def test_tls(quick_start, tls_pg, certificates, parameters):
    parameters = parameters.format(ca=quote(str(certificates.authority.cert), safe=""))
    process = quick_start(f"postgres://{TLS_USER}@localhost:{tls_pg.port}/app?{parameters}",
                          PGPASSWORD=TLS_PASSWORD, SSL_CERT_FILE=str(certificates.authority.cert))
    wait_for(process)
    with connect(TLS_USER, TLS_PASSWORD) as db:
        assert db.execute(ENCRYPTED).fetchone() == (True,)


@pytest.mark.parametrize("parameters", [
    "sslmode=verify-full", "sslrootcert=system", "sslmode=verify-ca", "sslmode=require&sslrootcert={ca}",
    "sslmode=verify-full&sslrootcert={ca}"])
def test_another_users_process_is_not_trusted(quick_start, tls_pg, certificates, parameters):
    parameters = parameters.format(ca=quote(str(certificates.stranger.cert), safe=""))
    process = quick_start(f"postgres://{TLS_USER}@localhost:{tls_pg.port}/app?{parameters}",
                          PGPASSWORD=TLS_PASSWORD, SSL_CERT_FILE=str(certificates.stranger.cert))
    ends_with_error(process, "certificate verify failed: unable to get local issuer certificate", "sslrootcert=FILE")


def test_authority_in_the_home_folder(quick_start, tls_pg, certificates, folder):
    (folder / ".postgresql").mkdir()
    (folder / ".postgresql/root.crt").symlink_to(certificates.authority.cert)
    url = f"postgres://{TLS_USER}@localhost:{tls_pg.port}/app?sslmode=verify-full"
    wait_for(quick_start(url, PGPASSWORD=TLS_PASSWORD, SSL_CERT_FILE=str(certificates.stranger.cert)))


def test_channel_binding_is_demanded(quick_start, newest_pg):
    url = f"postgres://{USER}@/app?host={quote(str(newest_pg.socket_dir))}&port={newest_pg.port}"
    process = quick_start(url + "&channel_binding=require", PGPASSWORD=PASSWORD)
    ends_with_error(process, "channel_binding=require")


HONOURED = {
    "connect_timeout=7": ("server_connect_timeout", "7"), "keepalives=0": ("tcp_keepalive", "0"),
    "keepalives_idle=11": ("tcp_keepidle", "11"), "keepalives_interval=12": ("tcp_keepintvl", "12"),
    "keepalives_count=13": ("tcp_keepcnt", "13"), "tcp_user_timeout=14000": ("tcp_user_timeout", "14000"),
    "sslmode=allow": ("server_tls_sslmode", "allow"),
    "ssl_min_protocol_version=TLSv1.3": ("server_tls_protocols", "tlsv1.3"),
    "ssl_max_protocol_version=TLSv1.2": ("server_tls_protocols", "tlsv1.2"),
}
IGNORED = ("channel_binding=disable", "options=endpoint%3Dep-cool", "options=-c%20work_mem%3D1MB", "sslsni=1",
           "fallback_application_name=x", "load_balance_hosts=random", "krbsrvname=x")
SILENT = ("channel_binding=prefer", "gssencmode=prefer", "target_session_attrs=any", "application_name=thing",
          "client_encoding=auto")


def test_url_parameters_are_used_or_reported(quick_start, pg):
    parameters = "&".join([*list(HONOURED)[:8], *IGNORED, *SILENT])
    process = quick_start(f"postgres://{USER}@{pg.host}:{pg.port}/app?{parameters}", PGPASSWORD=PASSWORD)
    wait_for(process)
    with connect(dbname="pgbouncer") as console:
        config = {row[0]: row[1] for row in console.execute("SHOW CONFIG").fetchall()}
    for parameter in list(HONOURED)[:8]:
        setting, value = HONOURED[parameter]
        assert config[setting] == value, parameter
    with connect() as db:
        # fallback_application_name holds for clients that give no application_name, such as this one.
        assert db.execute("SHOW application_name").fetchone() == ("thing",)
    lines = [line for line in process.log.read_text().splitlines() if "is ignored" in line]
    assert len(lines) == len(IGNORED)
    for parameter, line in zip(IGNORED, lines, strict=True):
        assert f'parameter "{parameter.split("=")[0]}" is ignored: ' in line


@pytest.mark.parametrize("url, words", [
    ("postgres://u@a,b/app", "several hosts"), ("postgres://u@a:1,b:2/app", "several hosts"),
    ("postgres://u@/app?host=a,b", "several hosts"), ("postgres://u@a/app?port=1,2", "several hosts"),
    ("postgres://u@a/app?target_session_attrs=read-write", '"target_session_attrs" can\'t be used here'),
    ("postgres://u@a/app?hostaddr=10.0.0.1", '"hostaddr" can\'t be used here'),
    ("postgres://u@a/app?sslcrl=x", '"sslcrl" can\'t be used here'),
    ("postgres://u@a/app?pgbouncer=true", '"pgbouncer" is unknown'),
    ("postgres://u@a/app?keepalives=many", 'parameter "keepalives" can\'t be "many"'),
    ("postgres://u@a/app?connect_timeout=soon", 'parameter "connect_timeout" can\'t be "soon"'),
    ("postgres://u@a/app?sslmode=maybe", 'sslmode "maybe" is unknown'),
    ("postgres://u@a/app?sslmode=require&sslrootcert=system", "sslmode=verify-full"),
    ("postgres://u@a/app?ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2", "no higher"),
    ("postgres://u@a/app?sslmode=verify-full&sslrootcert=/nowhere.crt", "/nowhere.crt: No such file or directory"),
])
def test_bad_parameters(quick_start, url, words):
    ends_with_error(quick_start(url, PGPASSWORD="x"), words, seconds=2)


def test_the_psql_line_works(quick_start, pg, folder):
    process = quick_start(f"postgres://{USER}@{pg.host}:{pg.port}/app", PGPASSWORD=PASSWORD)
    wait_for(process)
    begin = "connect with: "
    machine.wait_until(lambda: begin in process.log.read_text(), what="the line")
    line = next(line for line in process.log.read_text().splitlines() if line.startswith(begin))
    assert line.removeprefix(begin) == f"psql -h 127.0.0.1 -p {PORT} -U {USER} app"
    words = line.removeprefix(begin).split()
    told = subprocess.run([pg.binaries.path(words[0]), *words[1:], "-XAtc", "SELECT current_user, current_database()"],
                          env=os.environ | {"PGPASSWORD": PASSWORD},
                          capture_output=True, text=True, check=True, timeout=20)
    assert told.stdout == f"{USER}|app\n"


def test_occupied_port_is_explained(quick_start, pg):
    url = f"postgres://{USER}@{pg.host}:{pg.port}/app"
    first = quick_start(url, PGPASSWORD=PASSWORD)
    wait_for(first)
    second = quick_start(url, PGPASSWORD=PASSWORD)
    assert second.wait(10) == 1
    assert "127.0.0.1:6432" in second.log.read_text()
    name = Path(f"/proc/{first.pid}/comm").read_text().strip()
    assert f"{name} (process {first.pid}) listens there" in second.log.read_text()
