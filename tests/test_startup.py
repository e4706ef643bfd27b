"""The files decide whether the process starts, and which errors it reports."""

import contextlib
import os
import re
from pathlib import Path

import pytest

import machine
import rawclient as wire

NOWHERE = "/does/not/exist"

# Invalid configurations: lines at the end of the file (in section [pgbouncer]), of which the last one is wrong, and the
# error.
WRONG = {
    "unknown key": ("pool_mod = session", ["pool_mod", "pool_mode"]),
    "unknown key, another one": ("max_clients_conn = 5", ["max_clients_conn", "max_client_conn"]),
    "not a mode": ("pool_mode = sometimes", ["pool_mode", "sometimes", "transaction"]),
    "not a number": ("max_client_conn = many", ["max_client_conn", "many"]),
    "negative": ("default_pool_size = -3", ["default_pool_size", "-3"]),
    "number with more": ("default_pool_size = 20x", ["default_pool_size", "20x"]),
    "not a time": ("query_wait_timeout = soon", ["query_wait_timeout", "soon"]),
    "not a port": ("listen_port = 70000", ["listen_port", "70000"]),
    "not an auth_type": ("auth_type = password", ["auth_type", "password"]),
    "no equals sign": ("pool_mode session", ['"="']),
    "unknown section": ("[pgbounzer]", ["pgbounzer", "pgbouncer"]),
    "unfinished section": ("[pgbouncer", ['"]"']),
    "missing include": ("%include /does/not/exist.ini", ["/does/not/exist.ini"]),
    "database without sense": ("[databases]\nx = host", ["x", "key=value"]),
    "database key": ("[databases]\nx = hots=localhost", ["hots", "host"]),
    "reserved database": ("[databases]\npgbouncer = host=localhost", ["pgbouncer"]),
    "user key": ("[users]\nx = pool_mod=session", ["pool_mod", "pool_mode"]),
    "key of another section": ("[databases]\nx = host=localhost\n[users]\npool_mode = session",
                               ["pool_mode"]),
    # Problems that appear only when a value is used.
    "no certificate": (f"client_tls_sslmode = require\nclient_tls_key_file = /no.key\nclient_tls_cert_file = {NOWHERE}",
                       ["TLS setup failed: client_tls_cert_file", NOWHERE, "name a file that is there"]),
    "no authority": ("server_tls_sslmode = verify-ca", ["TLS setup failed", "needs server_tls_ca_file"]),
    "no certificates of clients": ("client_tls_sslmode = disable\nauth_type = cert",
                                   ["auth_type=cert requires client_tls_sslmode=verify-full"]),
    "no userlist": (f"auth_file = {NOWHERE}", ["auth_file", NOWHERE, "name a file that is there"]),
    "no rules": (f"auth_type = hba\nauth_hba_file = {NOWHERE}", ["auth_hba_file", NOWHERE]),
    "no maps": (f"auth_type = hba\nauth_ident_file = {NOWHERE}", ["auth_ident_file", NOWHERE]),
    "no name of rules": ("auth_type = hba", ["needs auth_hba_file"]),
    "not an LDAP option": ("auth_type = ldap\nauth_ldap_options = nonsense", ["auth_ldap_options"]),
    "no name servers": (f"resolv_conf = {NOWHERE}", ["resolv_conf", NOWHERE]),
    "no group": ("unix_socket_group = nobodys", ["unix_socket_group", "nobodys", "name one that is there"]),
    "no user": ("user = nobodys", ["user", "nobodys", "name one that is there"]),
    "no folder of the log": (f"logfile = {NOWHERE}", ["logfile", NOWHERE, "in a folder that is there"]),
    "no folder of the pid": (f"pidfile = {NOWHERE}", ["pidfile", NOWHERE, "in a folder that is there"]),
    "no folder of the socket": (f"unix_socket_dir = {NOWHERE}", ["unix_socket_dir", NOWHERE, "a folder that exists"]),
    "no address": ("listen_addr = 192.0.2.1", ["listen_addr", "192.0.2.1", "no such address"]),
}


def last_line(pooler):
    return len(pooler.ini_path.read_text().splitlines())


@pytest.mark.pgweir_only("says less")
@pytest.mark.parametrize("name", WRONG)
def test_bad_file_is_explained(new_pooler, newest_pg, name):
    """The error has file, line, key and the valid values; the process does not start."""
    lines, said = WRONG[name]
    pooler = new_pooler(newest_pg)
    pooler.write_files()
    pooler.write_ini(pooler.ini_path.read_text() + lines + "\n")
    pooler.spawn()
    assert pooler.wait_end(10) == 1
    log = pooler.log()
    assert f"{pooler.ini_path.name}:{last_line(pooler)}" in log
    for word in said:
        assert word in log
    with pytest.raises(OSError):
        pooler.socket()


@pytest.mark.pgweir_only("stops at the first one")
def test_every_mistake_is_listed(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, pool_mode="sometimes", default_pool_size="many", verbos=1)
    pooler.write_files()
    pooler.spawn()
    assert pooler.wait_end(10) == 1
    for word in ("sometimes", "many", "verbos"):
        assert word in pooler.log()


@pytest.mark.pgweir_only("starts without it")
@pytest.mark.parametrize(("text", "said"), [
    (None, "userlist.txt"),
    ('"trusty" "unfinished\n', "userlist.txt:1"),
    ('"trusty" "x"\n"alone"\n', "userlist.txt:2"),
])
def test_bad_userlist_is_explained(new_pooler, newest_pg, text, said):
    pooler = new_pooler(newest_pg, auth_type="md5")
    pooler.write_files()
    if text is None:
        pooler.userlist_path.unlink()
    else:
        pooler.write_userlist(text)
    pooler.spawn()
    assert pooler.wait_end(10) == 1
    assert said in pooler.log()
    assert "unfinished" not in pooler.log()


SYNTAX = """
;; comments at the start of a line
# of both kinds
[pgbouncer]
listen_addr = 127.0.0.1
  listen_port = PORT
unix_socket_dir =
auth_type = trust
auth_file = USERLIST
default_pool_size=1
default_pool_size = 2
pool_mode = session

[databases]
first = host=127.0.0.1 port=PGPORT dbname=app
quoted = host='127.0.0.1' port='PGPORT' dbname='app' connect_query='select ''it''''s'''
"odd name" = host=127.0.0.1 port=PGPORT dbname=app

[pgbouncer]
;; opened again: the last value counts
pool_mode = transaction
admin_users = admin, \\
   another
%include INCLUDED
"""


@pytest.mark.shows("listen_port", "database.host", "database.port", "database.dbname")
@pytest.mark.pgweir_only("1.18 knows less")
def test_syntax(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, unix_socket_dir="")
    pooler.write_files()
    included = pooler.folder / "more.ini"
    included.write_text("max_client_conn = 77\n")
    text = SYNTAX.replace("PGPORT", str(newest_pg.port)).replace("PORT", str(pooler.port))
    text = text.replace("INCLUDED", str(included)).replace("USERLIST", str(pooler.userlist_path))
    pooler.write_ini(text)
    pooler.spawn().listening()
    for name in ("first", "quoted", "odd name"):
        assert pooler.raw(dbname=name).value("SELECT current_database()") == "app"
    config = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert (config["default_pool_size"], config["pool_mode"]) == ("2", "transaction")
    assert config["max_client_conn"] == "77"


# pgweir accepts keys of PgBouncer that have no effect (yet).
FOREIGN = """
pkt_buf = 4096
sbuf_loopcnt = 5
so_reuseport = 0
dns_nxdomain_ttl = 15
suspend_timeout = 10
disable_pqexec = 0
server_check_query = select 1
server_check_delay = 30
stats_period = 60
log_stats = 1
client_tls_sslmode = disable
server_tls_sslmode = prefer
tcp_keepalive = 1
tcp_keepcnt = 3
tcp_keepidle = 60
tcp_keepintvl = 10
tcp_user_timeout = 0
listen_backlog = 128
max_db_connections = 50
max_user_connections = 50
autodb_idle_timeout = 3600
application_name_add_host = 0
server_fast_close = 0
server_round_robin = 0
syslog = 0
syslog_facility = daemon
syslog_ident = pgbouncer
job_name = pgbouncer
"""


def test_keys_of_pgbouncer_are_accepted(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    pooler.write_files()
    pooler.write_ini(pooler.ini_path.read_text() + FOREIGN)
    pooler.spawn().listening()
    assert pooler.raw().value("SELECT 1") == "1"


# Unusual values with which PgBouncer starts, and whether the log has to have a warning.
ODD = {
    "max_packet_size": (4294967295, True), "verbose": (-1, False), "listen_backlog": (-1, False),
    "client_tls_dheparams": ("/no/such/dh.pem", True), "syslog_facility": ("mail", True),
    "log_connections": (7, False), "unix_socket_mode": ("0x1ff", False), "server_lifetime": ("0.5", False),
    "client_tls_ciphers": ("normal", False), "client_tls_protocols": ("all", False),
    "server_tls_sslmode": ("allow", True), "tcp_socket_buffer": (65536, False), "server_round_robin": (1, False),
}


@pytest.mark.shows("max_packet_size", "verbose", "listen_backlog", "client_tls_dheparams", "syslog_facility")
def test_unusual_values_are_accepted(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, **{key: value for key, (value, _) in ODD.items()})
    pooler.start()
    assert pooler.raw().value("SELECT 1") == "1"
    shown = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    for key in ("max_packet_size", "listen_backlog", "syslog_facility"):
        assert shown[key] == str(ODD[key][0])
    if not pooler.pgbouncer:
        warned = {key for key in ODD if f'"{key}": ' in pooler.log()}
        assert warned == {key for key, (_, is_warned) in ODD.items() if is_warned}


@pytest.mark.shows("listen_port")
@pytest.mark.pgweir_only("does not say which port it is")
def test_the_system_chooses_a_port(new_pooler, newest_pg):
    """The system chooses a port for each address. The log names it, and an online restart keeps it."""
    pooler = new_pooler(newest_pg, listen_port=0, listen_addr="127.0.0.1,127.0.0.2")
    pooler.write_files()

    def ports():
        return re.findall(r"listening on (127\.0\.0\.[12]):(\d+)", pooler.log())

    def log_in_everywhere(places):
        for host, port in places:
            with pooler.connect(host=host, port=int(port)) as db:
                assert db.execute("SELECT 1").fetchone() == (1,)

    old = pooler.spawn().process
    pooler.expect_log("process up")
    assert dict(ports()).keys() == {"127.0.0.1", "127.0.0.2"} and len(ports()) == 2
    log_in_everywhere(ports())
    assert (pooler.folder / ".s.PGSQL.0").is_socket()
    pooler.spawn("-R")
    assert old.wait(30) == 0, pooler.log_tail()
    assert ports()[:2] == ports()[2:]
    log_in_everywhere(ports())


@pytest.mark.shows("client_tls_sslmode", "server_tls_sslmode")
@pytest.mark.pgweir_only("says it otherwise")
@pytest.mark.parametrize("line, named", [
    ("client_tls_sslmode = require", "client_tls_key_file"),
    ("server_tls_sslmode = verify-full", "server_tls_sslmode"),
    ("auth_type = hba", "auth_type"),
    ("auth_type = ldap", "auth_ldap_options"),
])
def test_settings_without_the_files_for_tls_are_refused(new_pooler, newest_pg, line, named):
    """pgweir refuses to start with less protection than the file demands."""
    pooler = new_pooler(newest_pg)
    pooler.write_files()
    pooler.write_ini(pooler.ini_path.read_text() + line + "\n")
    pooler.spawn()
    assert pooler.wait_end(10) == 1
    assert named in pooler.log()


@pytest.mark.pgweir_only("says less")
@pytest.mark.skipif(not machine.as_service(), reason="only root can make a file that the account may not read")
@pytest.mark.parametrize("what", ["ini_path", "userlist_path"])
def test_unreadable_file_is_explained(new_pooler, newest_pg, what):
    """The error names the user that could not read the file."""
    pooler = new_pooler(newest_pg)
    pooler.write_files()
    os.chown(getattr(pooler, what), 0, 0)
    getattr(pooler, what).chmod(0o600)
    assert pooler.spawn().wait_end() == 1
    name = machine.service_account().pw_name
    assert f"{getattr(pooler, what)}: cannot be read: Permission denied" in pooler.log()
    assert f"for user {name}" in pooler.log()


@pytest.mark.pgweir_only("has them all")
@pytest.mark.shows("sbuf_loopcnt", "pkt_buf", "service_name", "job_name", "client_tls_dheparams")
def test_settings_without_an_effect_are_logged_once(start_pooler, newest_pg):
    """The log names such a key at the start, and at a RELOAD that changes it."""
    others = {"pkt_buf": 8192, "service_name": "bouncer", "job_name": "weir", "client_tls_dheparams": "legacy"}
    pooler = start_pooler(newest_pg, sbuf_loopcnt=1, **others)
    for key in others:
        pooler.expect_log(f'"{key}": accepted, but has no effect')
        assert pooler.log().count(f'"{key}": accepted, but has no effect') == 1
    said = '"sbuf_loopcnt": accepted, but has no effect'
    pooler.console("RELOAD")
    pooler.raw().close()
    pooler.expect_log("login attempt: db=app")
    assert pooler.log().count(said) == 1
    pooler.settings["sbuf_loopcnt"] = 2
    pooler.write_files()
    pooler.console("RELOAD")
    machine.wait_until(lambda: pooler.log().count(said) == 2, what="it is said again")


# -- file descriptors


def test_a_low_descriptor_limit_is_reported(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, max_client_conn=500)
    pooler.start(nofile="200:200")
    assert pooler.raw().value("SELECT 1") == "1"
    log = pooler.log().lower()
    assert "file descriptor" in log or "nofile" in log
    if not pooler.pgbouncer:
        assert "warning" in log
        assert "ulimit -n" in log or "limitnofile" in log


def test_soft_limit_is_raised(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, max_client_conn=500)
    pooler.start(nofile="100:2000")
    if pooler.pgbouncer:
        return
    for line in Path(f"/proc/{pooler.pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            assert line.split()[3:5] == ["2000", "2000"]
    clients = [pooler.raw() for _ in range(150)]
    assert clients[-1].value("SELECT 1") == "1"


def processor_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.pgweir_only("stops listening for a while")
def test_out_of_descriptors(new_pooler, newest_pg, workers):
    """Connected clients are served; others wait at no cost, and log in later."""
    pooler = new_pooler(newest_pg, max_client_conn=500, workers=workers)
    pooler.start(nofile="80:80")
    inside = pooler.raw()
    assert inside.value("SELECT 1") == "1"
    crowd = []
    for _ in range(120):
        with contextlib.suppress(OSError):
            crowd.append(pooler.socket())
    before = processor_ticks(pooler.pid)
    for _ in machine.every(0.1, 20):
        assert inside.value("SELECT 1") == "1"
    assert processor_ticks(pooler.pid) - before < 60, "it spins"
    for client in crowd:
        client.close()
    late = machine.wait_until(lambda: _try(pooler), 20, "it lets in again")
    assert late.value("SELECT 1") == "1"


def _try(pooler):
    try:
        return pooler.raw(timeout=5)
    except (wire.Closed, OSError, wire.LoginRefused):
        return None


def test_idle_process_costs_nothing(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(50)]
    for client in clients:
        client.value("SELECT 1")
    before = processor_ticks(pooler.pid)
    clients[0].quiet(3)
    assert processor_ticks(pooler.pid) - before <= 3
