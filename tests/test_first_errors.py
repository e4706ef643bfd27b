"""Errors that new users meet: the error says what went wrong, where, and what to do."""

import subprocess
from pathlib import Path

import pytest

import cluster as clusters
import machine
import rawclient as wire
from rawclient import LoginRefused

pytestmark = pytest.mark.pgweir_only("its errors say less")


@pytest.mark.shows("server_login_retry")
@pytest.mark.parametrize("order", ["RELOAD", "RECONNECT"])
def test_a_rotated_password_works_at_once(start_pooler, pg, order):
    old, new = clusters.ROLES["scrammed"][0], "rotated password"
    pooler = start_pooler(pg, users={"scrammed": old, "admin": "admin password"}, server_login_retry=60)
    pg.run(f"ALTER ROLE scrammed PASSWORD '{new}'")
    try:
        for _ in range(2):
            with pytest.raises(LoginRefused, match="password authentication failed"):
                pooler.raw(user="scrammed")
        # Pool and user.
        pooler.expect_log("app/scrammed@")
        pooler.expect_log('server login failed: FATAL password authentication failed for user "scrammed"')
        if order == "RELOAD":
            pooler.users["scrammed"] = new
            pooler.write_files()
        else:
            pg.run(f"ALTER ROLE scrammed PASSWORD '{old}'")
        pooler.console(order)
        assert pooler.raw(user="scrammed").value("SELECT 1") == "1"
    finally:
        pg.run(f"ALTER ROLE scrammed PASSWORD '{old}'")


def test_an_unreachable_server_is_named_at_once(start_pooler, pg):
    port = machine.free_port()
    pooler = start_pooler(pg, databases={"app": f"host=127.0.0.1 port={port}",
                                         "unknown": "host=nowhere.invalid"})
    for words in ("server login failed: connect failed",
                  "server login has been failing, cached error: connect failed (server_login_retry)"):
        with pytest.raises(LoginRefused) as caught:
            pooler.raw(timeout=5)
        assert caught.value.words == words
        detail = caught.value.message.fields["D"]
        assert detail.startswith(f"127.0.0.1:{port}: Connection refused")
    with pytest.raises(LoginRefused, match="server DNS lookup failed") as caught:
        pooler.raw(dbname="unknown", timeout=5)
    assert caught.value.message.fields["D"].startswith("nowhere.invalid:5432: ")
    machine.release_port(port)


def test_errors_before_the_login_name_no_address(start_pooler, pg):
    """Before a client has authenticated, an error does not name the server's address, even if auth_query can't reach
    it.
    """
    port = machine.free_port()
    pooler = start_pooler(
        pg, users={"looker": ""}, databases={"app": f"host=127.0.0.1 port={port}"}, auth_user="looker",
        auth_type="scram-sha-256", auth_query="SELECT usename, passwd FROM pg_shadow WHERE usename = $1")
    for _ in range(2):
        with pytest.raises(LoginRefused, match="connect failed") as caught:
            pooler.raw(user="somebody", timeout=5)
        assert str(port) not in str(caught.value.message.fields)
    machine.release_port(port)


@pytest.mark.shows("server_connect_timeout")
def test_a_server_that_does_not_answer_is_named_in_time(start_pooler, pg, start_server):
    silent = start_server(lambda connection: connection.rest())
    pooler = start_pooler(pg, databases={"app": silent.database}, server_connect_timeout=1)
    with pytest.raises(LoginRefused) as caught:
        pooler.raw(timeout=5)
    assert caught.value.words == "server login failed: connect timeout"
    assert caught.value.message.fields["D"] == \
        f"127.0.0.1:{silent.port}: no answer within server_connect_timeout"


def test_clients_of_a_pool_that_had_a_server_wait(start_pooler, private_pg):
    """Logged-in clients do not notice a server's restart."""
    pooler = start_pooler(private_pg, server_login_retry=0.2)
    assert pooler.raw().value("SELECT 1") == "1"
    private_pg.stop()
    waiting = pooler.raw()
    waiting.send(wire.query("SELECT 2"))
    pooler.expect_log("cannot connect")
    private_pg.start()
    assert wire.kinds(waiting.until_ready()) == "TDCZ"


def test_reload_says_what_is_wrong_and_where(start_pooler, pg):
    pooler = start_pooler(pg)
    text = pooler.ini_path.read_text()
    pooler.write_ini(text + "\npool_mode = sometimes\nmax_client_conn = many\n")
    fields = pooler.raw("admin", "pgbouncer").error("RELOAD").fields
    assert (fields["C"], fields["M"]) == ("F0000", "RELOAD failed, see logs for additional details")
    lines = fields["D"].splitlines()
    at = len(text.splitlines()) + 2
    assert f"{pooler.ini_path}:{at}: " in lines[0] and '"sometimes"' in lines[0]
    assert f"{pooler.ini_path}:{at + 1}: " in lines[1] and '"many"' in lines[1]


@pytest.mark.shows("client_tls_key_file")
def test_reload_logs_a_missing_key(start_pooler, pg):
    pooler = start_pooler(pg)
    pooler.settings |= {"client_tls_sslmode": "allow", "client_tls_key_file": "/nowhere/key",
                        "client_tls_cert_file": "/nowhere/cert"}
    pooler.write_files()
    fields = pooler.raw("admin", "pgbouncer").error("RELOAD").fields
    said = "TLS setup failed: client_tls_cert_file: /nowhere/cert: No such file or directory"
    assert said in fields["D"] and f"{pooler.ini_path}:" in fields["D"]
    pooler.expect_log(said)


def test_resume_names_what_is_paused(start_pooler, pg):
    pooler = start_pooler(pg, databases={"app": f"host={pg.host} port={pg.port}",
                                         "other": f"host={pg.host} port={pg.port} dbname=app"})
    console = pooler.raw("admin", "pgbouncer")
    assert "H" not in console.error("RESUME").fields
    console.query("PAUSE other")
    for order, words in (("RESUME", "pooler is not paused/suspended"), ("RESUME app", "database app is not paused")):
        fields = console.error(order).fields
        assert fields["M"] == words
        assert fields["H"] == "Single databases are paused: RESUME other."
    assert wire.kinds(console.query("RESUME other")) == "CZ"


def test_kill_client_takes_what_the_log_prints(start_pooler, pg):
    pooler = start_pooler(pg)
    victim = pooler.raw()
    (row,) = [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]
    name = f"C-{row['ptr']}"
    pooler.expect_log(f"{name}: app/")
    assert wire.kinds(pooler.raw("admin", "pgbouncer").query(f"KILL_CLIENT {name}")) == "CZ"
    victim.error_and_close()


@pytest.mark.shows("pidfile")
def test_a_zombies_pid_file_does_not_block_the_start(new_pooler, pg):
    pooler = new_pooler(pg)
    zombie = subprocess.Popen(["true"])
    machine.wait_until(lambda: ") Z " in Path(f"/proc/{zombie.pid}/stat").read_text(), what="its end")
    path = pooler.folder / "pid"
    path.write_text(f"{zombie.pid}\n")
    machine.give_to_service(path)
    pooler.settings["pidfile"] = path
    pooler.start()
    pooler.expect_log("stale pidfile, replaced")
    assert int(path.read_text()) == pooler.pid
    zombie.wait()


@pytest.mark.shows("logfile")
def test_lost_log_lines_are_counted(new_pooler, pg):
    pooler = new_pooler(pg)
    link, file = pooler.folder / "link", pooler.folder / "file"
    link.symlink_to("/dev/full")
    pooler.settings["logfile"] = link
    pooler.start()
    pooler.raw().close()
    link.unlink()
    link.symlink_to(file)
    pooler.console("RELOAD")
    machine.wait_until(file.exists, what="the file")
    pooler.raw().close()
    machine.wait_until(lambda: "lines before this one were lost: the log file did not take them" in file.read_text(),
                       what="the count")
    (line,) = [line for line in file.read_text().splitlines() if "were lost" in line]
    assert " WARNING " in line and int(line.split(" WARNING ")[1].split()[0]) > 3
