"""The admin console, as PgBouncer's operators and their tools know it."""

import os
import re
import subprocess
import threading
import time

import psycopg
import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused

TEXT, INT, NUMERIC, BIGINT = 25, 23, 1700, 20

_PEERS = """type user database replication state addr port local_addr local_port connect_time
    request_time wait wait_us close_needed ptr link remote_pid tls application_name
    prepared_statements id"""
_BUFFERS = " recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail"
_MODES = " mode pin_reason pinned_since pipelined"
_COUNTED = """server_assignment_count xact_count query_count received sent xact_time query_time
    wait_time client_parse_count server_parse_count bind_count client_login_count"""
COLUMNS = {
    "VERSION": "version",
    "POOLS": """database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req
        sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login
        maxwait maxwait_us pool_mode load_balance_hosts wait_reason last_error retry_in""",
    "CLIENTS": _PEERS + _MODES + " activity",
    "SERVERS": _PEERS + _MODES,
    "DATABASES": """name host port database force_user pool_size min_pool_size reserve_pool_size
        server_lifetime pool_mode load_balance_hosts max_connections current_connections
        max_client_connections current_client_connections paused disabled""",
    "STATS": " ".join(["database"]
                      + ["total_" + name for name in _COUNTED.split()]
                      + ["avg_" + {"received": "recv"}.get(name, name) for name in _COUNTED.split()]),
    "CONFIG": "key value default changeable",
    "STATS_TOTALS": "database " + _COUNTED.replace("received", "bytes_received").replace(
        " sent", " bytes_sent"),
    "STATS_AVERAGES": """database server_assignment_count xact_count query_count bytes_received
        bytes_sent xact_time query_time wait_time avg_client_parse_count avg_server_parse_count
        avg_bind_count avg_client_login_count""",
    "PINS": """database user client_id server_id remote_pid reason pinned_since duration_us idle_us
        fingerprint statement""",
    "PIN_STATS": "database user reason total_pins pinned",
    "TIMES": "database user total_xact_count total_query_count "
             + " ".join(f"{what}_{which}_us" for what in ("wait", "xact", "query") for which in ("p50", "p95", "p99"))
             + " wait_counts xact_counts query_counts",
    "TOTALS": "name value",
    "SOCKETS": _PEERS + _BUFFERS,
    "ACTIVE_SOCKETS": _PEERS + _BUFFERS,
    "PEERS": "peer_id host port pool_size source",
    "PEER_POOLS": "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login",
    "LISTS": "list items",
    "USERS": """name pool_size reserve_pool_size pool_mode max_user_connections current_connections
        max_user_client_connections current_client_connections""",
    "FDS": """fd task user database addr port cancel link client_encoding std_strings datestyle
        timezone password scram_client_key scram_server_key""",
    "MEM": "name size used free memtotal",
    "DNS_HOSTS": "hostname ttl addrs",
    "DNS_ZONES": "zonename serial count",
    "STATE": "key value",
    "WORKERS": "worker state busy_percent clients servers",
    "FLEET": "node state addresses share extra wanted version last_contact",
}
# Columns whose type is not the usual one of their name.
TYPES = {
    ("DNS_HOSTS", "ttl"): 20, ("DNS_ZONES", "serial"): 20, ("FDS", "cancel"): 20,
    ("FDS", "scram_client_key"): 17, ("FDS", "scram_server_key"): 17,
    ("TOTALS", "value"): 1700, ("STATE", "value"): 25,
    ("USERS", "pool_size"): 25, ("USERS", "reserve_pool_size"): 25,
    ("FDS", "link"): 23, ("PINS", "duration_us"): 20, ("PINS", "idle_us"): 20,
    ("PIN_STATS", "total_pins"): 20,
}
TEXTS = set("""version source database user pool_mode load_balance_hosts type replication state addr
    local_addr connect_time request_time ptr link tls application_name name host force_user
    key value default changeable list hostname addrs zonename task client_encoding std_strings
    datestyle timezone password mode pin_reason pinned_since reason fingerprint statement
    wait_reason last_error activity node addresses last_contact""".split())


@pytest.mark.pgweir_only("1.18 has fewer columns")
@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("database", ["pgbouncer", "pgweir"])
def test_columns_and_types(start_pooler, newest_pg, what, database):
    pooler = start_pooler(newest_pg)
    pooler.raw().value("SELECT 1")
    with pooler.connect("admin", database) as db:
        cursor = db.execute(f"SHOW {what}")
        assert [column.name for column in cursor.description] == COLUMNS[what].split()
        assert cursor.statusmessage == "SHOW"
        for column in cursor.description:
            if (what, column.name) in TYPES:
                wanted = (TYPES[what, column.name],)
            elif column.name in TEXTS or column.name.endswith("_counts"):
                wanted = (TEXT,)
            elif what.startswith("STATS"):
                wanted = (NUMERIC,)
            elif what == "TIMES":
                wanted = (BIGINT,)
            else:
                wanted = (BIGINT, INT) if column.name == "id" else (INT,)
            assert column.type_code in wanted, column.name


def test_version(start_pooler, newest_pg, program):
    pooler = start_pooler(newest_pg)
    printed = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    assert pooler.console("SHOW VERSION") == [{"version": printed.splitlines()[0]}]


def test_login_looks_like_a_server(start_pooler, newest_pg):
    """The console sends the parameters that drivers expect at login."""
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    told = client.parameters
    assert told["client_encoding"] == "UTF8"
    assert told["standard_conforming_strings"] == "on"
    assert told["DateStyle"].startswith("ISO")
    assert "server_version" in told
    assert client.pid is not None


# -- SHOW


def test_pools(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    clients = [pooler.raw() for _ in range(6)]
    for client in clients[:2]:
        client.query("BEGIN")
    for client in clients[2:4]:
        client.send(wire.query("SELECT 1"))

    def counts():
        row = pooler.pool()
        return tuple(row[name] for name in ("cl_active", "cl_waiting", "sv_active", "sv_idle"))

    machine.wait_until(lambda: counts() == (4, 2, 2, 0), what=f"two active, two waiting: {counts()}")
    machine.wait_until(lambda: pooler.pool()["maxwait"] >= 1, what="maxwait counts seconds")
    row = pooler.pool()
    assert 0 <= row["maxwait_us"] < 1_000_000
    assert row["pool_mode"] == "transaction"
    for client in clients[:2]:
        client.query("COMMIT")
    for client in clients[2:4]:
        client.until_ready()
    machine.wait_until(lambda: counts() == (6, 0, 0, 2), what=f"all idle: {counts()}")
    assert pooler.pool()["maxwait"] == 0
    for client in clients:
        client.close()
    machine.wait_until(lambda: counts() == (0, 0, 0, 2), what=f"nobody left: {counts()}")


def test_clients_and_servers(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    busy = pooler.raw(application_name="busy one")
    idle = pooler.raw()
    busy.query("BEGIN")
    backend = int(busy.value("SELECT pg_backend_pid()"))
    clients = pooler.console("SHOW CLIENTS")
    (server,) = pooler.console("SHOW SERVERS")
    by_port = {row["port"]: row for row in clients}
    assert len(clients) == 3  # the console counts too
    mine = by_port[busy.sock.getsockname()[1]]
    assert mine["type"] == "C"
    assert (mine["user"], mine["database"], mine["state"]) == ("trusty", "app", "active")
    assert (mine["addr"], mine["local_addr"], mine["local_port"]) == (
        "127.0.0.1", "127.0.0.1", pooler.port)
    assert mine["application_name"] == "busy one"
    assert (mine["link"], server["link"]) == (server["ptr"], mine["ptr"])
    assert by_port[idle.sock.getsockname()[1]]["link"] == ""
    assert server["type"] == "S"
    assert (server["user"], server["database"], server["state"]) == ("trusty", "app", "active")
    assert (server["addr"], server["port"], server["remote_pid"]) == ("127.0.0.1", pg.port, backend)
    console = [row for row in clients if row["database"] == "pgbouncer"]
    assert [row["user"] for row in console] == ["admin"]
    busy.query("COMMIT")
    (server,) = pooler.console("SHOW SERVERS")
    assert (server["state"], server["link"]) == ("idle", "")


@pytest.mark.pgweir_only("1.18 has no ids")
def test_ids_count_up(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    clients = [pooler.raw() for _ in range(5)]
    clients[0].value("SELECT 1")
    rows = {row["port"]: row["id"] for row in pooler.console("SHOW CLIENTS")}
    ids = [rows[client.sock.getsockname()[1]] for client in clients]
    assert ids == sorted(set(ids))
    assert pooler.console("SHOW SERVERS")[0]["id"] not in rows.values()


@pytest.mark.shows("database.pool_size")
def test_databases(start_pooler, pg):
    where = f"host={pg.host} port={pg.port}"
    databases = {
        "app": where,
        "forced": f"{where} dbname=other user=trusty pool_size=7 pool_mode=session",
        "socket": f"host={pg.socket_dir} port={pg.port} dbname=app",
    }
    pooler = start_pooler(pg, databases=databases)
    pooler.raw(dbname="forced").value("SELECT 1")
    rows = {row["name"]: row for row in pooler.console("SHOW DATABASES")}
    assert set(databases) <= set(rows)
    forced = rows["forced"]
    assert (forced["host"], forced["port"], forced["database"]) == (pg.host, pg.port, "other")
    assert (forced["force_user"], forced["pool_size"], forced["pool_mode"]) == (
        "trusty", 7, "session")
    assert (forced["current_connections"], forced["paused"], forced["disabled"]) == (1, 0, 0)
    assert (rows["app"]["pool_size"], rows["app"]["force_user"]) == (5, None)
    assert rows["socket"]["host"] == str(pg.socket_dir)


def test_stats_count_exactly(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)

    def totals():
        (row,) = [r for r in pooler.console("SHOW STATS") if r["database"] == "app"]
        return {name: int(value) for name, value in row.items() if name != "database"}

    clients = [pooler.raw() for _ in range(4)]
    clients[0].value("SELECT 1")
    before = totals()
    asked = answered = 0
    statements = ["SELECT 1", "BEGIN", "SELECT 2", "SELECT 1/0", "ROLLBACK", "SELECT 3"]
    for client in clients:
        for statement in statements:
            asked += len(wire.query(statement))
            answered += sum(5 + len(m.body) for m in client.query(statement))
    after = totals()
    change = {name: after[name] - before[name] for name in after}
    assert change["total_query_count"] == 4 * 6
    assert change["total_xact_count"] == 4 * 3
    assert (change["total_received"], change["total_sent"]) == (asked, answered)
    assert change["total_query_time"] > 0
    assert change["total_xact_time"] >= change["total_query_time"]


def test_stats_measure_waiting(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet(0.5)
    holder.query("COMMIT")
    waiter.until_ready()
    (row,) = [r for r in pooler.console("SHOW STATS") if r["database"] == "app"]
    assert 400_000 < row["total_wait_time"] < 5_000_000
    assert row["total_xact_time"] > 400_000


def test_config(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, query_wait_timeout="7.5", ignore_startup_parameters="a, b")
    rows = {row["key"]: row for row in pooler.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"]["value"] == "7.5"
    assert rows["ignore_startup_parameters"]["value"].replace(" ", "") == "a,b"
    assert rows["listen_port"]["value"] == str(pooler.port)
    for key, default, changeable in [
        ("listen_port", "6432", "no"), ("max_client_conn", "100", "yes"),
        ("pool_mode", "session", "yes"), ("default_pool_size", "20", "yes"),
        ("auth_type", "md5", "yes"), ("server_reset_query", "DISCARD ALL", "yes"),
        ("query_wait_timeout", "120", "yes"), ("server_lifetime", "3600", "yes"),
        ("server_idle_timeout", "600", "yes"), ("log_connections", "1", "yes"),
        ("unix_socket_mode", "0777", "no"),
        ("admin_users", "", "yes"), ("tcp_keepalive", "1", "yes"), ("max_db_connections", "0", "yes"),
    ]:
        row = rows[key]
        assert (row["default"] or "", row["changeable"]) == (default, changeable), key


# -- rights

ADMIN_ONLY = ["RELOAD", "SHUTDOWN", "SHUTDOWN WAIT_FOR_CLIENTS", "SET pool_mode = session"]


@pytest.mark.shows("admin_users", "stats_users")
@pytest.mark.guards("console_rights")
def test_stats_users_may_only_look(start_pooler, newest_pg, pgbouncer):
    client = start_pooler(newest_pg).raw("stats", "pgbouncer")
    for what in COLUMNS:
        wanted = "EZ" if what == "FDS" else "CZ"
        assert wire.kinds(client.query(f"SHOW {what}"))[-2:] == wanted
    for command in ADMIN_ONLY[: 2 if pgbouncer else None]:
        messages = client.query(command)
        assert wire.errors(messages) == [("08P01", "admin access needed")]
        assert messages[-1].kind == "Z"


@pytest.mark.parametrize("database", [
    "pgbouncer", pytest.param("pgweir", marks=pytest.mark.pgweir_only("an alias of ours"))])
def test_others_are_not_allowed(start_pooler, newest_pg, database):
    pooler = start_pooler(newest_pg)
    with pytest.raises(LoginRefused) as refused:
        pooler.raw("trusty", database)
    assert (refused.value.sqlstate, refused.value.words) == ("08P01", "not allowed")
    with pytest.raises(LoginRefused):
        pooler.raw("stranger", database)


def test_console_wants_the_password(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256")
    with pytest.raises(LoginRefused, match="authentication failed"):
        pooler.raw("admin", "pgbouncer", password="wrong")
    assert pooler.console("SHOW VERSION")


def test_user_pgbouncer_of_the_same_account(start_pooler, newest_pg):
    """Over the Unix socket the account that runs the process needs no password."""
    pooler = start_pooler(newest_pg, auth_type="md5")
    command = [newest_pg.binaries.path("psql"), "-X", "-A", "-t", "-w", "-p", str(pooler.port),
               "-U", "pgbouncer", "-d", "pgbouncer", "-c", "SHOW VERSION"]
    version = pooler.console("SHOW VERSION")[0]["version"]

    def ask(host, **account):
        return subprocess.run([*command, "-h", str(host)], capture_output=True, text=True,
                              cwd=pooler.folder, timeout=20, **account)

    assert ask(pooler.folder, **machine.as_service()).stdout.strip() == version
    assert ask("127.0.0.1", **machine.as_service()).returncode == 2
    if machine.as_service():
        assert ask(pooler.folder).returncode == 2


# -- many commands

def test_many_commands_in_one_write(start_pooler, newest_pg, workers):
    """Each is answered, in order, though each of them visits all workers."""
    client = start_pooler(newest_pg, workers=workers).raw("admin", "pgbouncer")
    count = 3_000
    answers = client.ask(b"".join(wire.queries(*["ENABLE app", "SHOW CLIENTS"] * count)))
    tags = [message.tag for message in answers if message.kind == "C"]
    assert tags == ["ENABLE", "SHOW"] * count


# -- syntax of commands


@pytest.mark.parametrize("text", [
    "show version", "SHOW VERSION;", "  Show   Version  ; ", "select version", "SHOW\nVERSION"])
def test_commands_in_other_spellings(start_pooler, newest_pg, text):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    assert wire.kinds(client.query(text)) == "TDCZ"


@pytest.mark.parametrize("text", ["SHOW NOTHING", "FOO", "SHUTDOWN FOO", "SELECT 1", "BEGIN", "''"])
def test_unknown_commands(start_pooler, newest_pg, text):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    messages = client.query(text)
    assert wire.kinds(messages) == "EZ"
    assert wire.errors(messages) == [("08P01", f"invalid command '{text}', use SHOW HELP;")]
    assert wire.kinds(client.query("SHOW VERSION")) == "TDCZ"


@pytest.mark.parametrize(("what", "value"), [
    ("client_encoding", "UTF"), ("standard_conforming_strings", "on"), ("datestyle", "ISO"),
    ("timezone", "GMT"), ("default_transaction_isolation", "read committed")])
def test_shows_that_drivers_send(start_pooler, newest_pg, what, value):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    assert client.value(f"SHOW {what}").startswith(value)


def test_extended_protocol_is_refused(start_pooler, newest_pg):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    client.send(wire.parse("SHOW VERSION"), wire.SYNC)
    (error, *_) = client.until("E")
    assert (error.sqlstate, error.words) == (
        "08P01", "extended query protocol not supported by admin console")


def test_help_is_a_notice(start_pooler, newest_pg):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    messages = client.query("SHOW HELP")
    assert wire.kinds(messages) == "NCZ"
    assert messages[0].words == "Console usage"
    lines = messages[0].fields["D"].strip().splitlines()
    for what in COLUMNS:
        assert [line for line in lines if re.fullmatch(rf"\s*SHOW {what} +[A-Z].+", line)], what
    assert all(re.search(r"\S  +[A-Z]\w+", line) or "SHUTDOWN WAIT" in line for line in lines), "each is explained"


def test_pools_say_why_clients_wait(start_pooler, newest_pg):
    nowhere = machine.free_port()
    pooler = start_pooler(newest_pg, databases={
        "app": f"host={newest_pg.host} port={newest_pg.port} pool_size=1",
        "down": f"host=127.0.0.1 port={nowhere}"}, server_login_retry=100)

    def row(name):
        (one,) = [row for row in pooler.console("SHOW POOLS") if row["database"] == name]
        return one["wait_reason"], one["last_error"], one["retry_in"]

    holder, waiting = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    assert row("app") == (None, None, None)
    waiting.send(wire.query("SELECT 1"))
    machine.wait_until(lambda: row("app") == ("pool_size", None, None), what="the reason")
    holder.query("COMMIT")
    waiting.until_ready()
    with pytest.raises(wire.LoginRefused):
        pooler.raw(dbname="down")
    reason, error, retry_in = row("down")
    assert reason is None and 90 < retry_in <= 125
    assert error.startswith(f"connect failed: 127.0.0.1:{nowhere}: Connection refused")
    machine.release_port(nowhere)


def test_clients_say_what_they_are_doing(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=3)
    idle, open_, failed, busy, waiting = (pooler.raw(application_name=str(number)) for number in range(5))
    idle.query("SELECT 1")
    open_.query("BEGIN")
    failed.query("BEGIN")
    failed.query("SELECT nothing")
    busy.send(wire.query("SELECT pg_sleep(30)"))
    machine.wait_until(lambda: newest_pg.backends("query LIKE 'SELECT pg_sleep%'"), what="it is busy")
    waiting.send(wire.query("SELECT 1"))

    def said():
        rows = [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]
        return {row["application_name"]: (row["activity"], row["state"]) for row in rows}

    expected = {"0": ("idle", "idle"), "1": ("idle in transaction", "active"),
                "2": ("idle in transaction (aborted)", "active"), "3": ("active", "active"),
                "4": ("waiting", "waiting")}
    machine.wait_until(lambda: said() == expected, what="what they do")


def test_console_does_not_wait_for_servers(start_pooler, newest_pg):
    """The console answers while all servers are in use and clients wait."""
    pooler = start_pooler(newest_pg, default_pool_size=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    for what in COLUMNS:
        pooler.console(f"SHOW {what}")


def test_console_is_open_when_all_places_are_taken(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, max_client_conn=3)
    clients = [pooler.raw() for _ in range(3)]
    assert pooler.console("SHOW VERSION")
    assert len(clients) == 3


def test_shows_many_rows(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(500)]
    rows = pooler.console("SHOW CLIENTS")
    assert {c.sock.getsockname()[1] for c in clients} <= {row["port"] for row in rows}
    assert len(rows) == 501


@pytest.mark.guards("secrets_in_show")
def test_no_secret_is_shown(start_pooler, newest_pg):
    where = f"host={newest_pg.host} port={newest_pg.port}"
    pooler = start_pooler(newest_pg, databases={"app": f"{where} user=trusty password=sesame"})
    pooler.raw().value("SELECT 1")
    for what in COLUMNS:
        try:
            shown = str(pooler.console(f"SHOW {what}"))
        except psycopg.Error as error:
            shown = str(error)
        if not (pooler.pgbouncer and what == "FDS"):
            assert "sesame" not in shown
            assert "admin password" not in shown


# -- RELOAD


def rewrite(pooler, **settings):
    pooler.settings |= settings
    pooler.write_files()


def test_reload_takes_effect(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet()
    pooler.users["newcomer"] = "x"
    where = pooler.databases["app"]
    pooler.databases = {"app": where, "late": where}
    rewrite(pooler, default_pool_size=2)
    assert pooler.console("RELOAD") == []
    assert pooler.setting("default_pool_size") == "2"
    assert wire.value(waiter.until_ready()) == "1"
    assert pooler.raw(dbname="late").value("SELECT 1") == "1"
    assert holder.query("COMMIT")[-1].body == b"I"
    with pytest.raises(LoginRefused, match="no such database: other"):
        pooler.raw(dbname="other")
    newest_pg.run("DROP ROLE IF EXISTS newcomer")
    newest_pg.run("CREATE ROLE newcomer LOGIN")
    assert pooler.raw("newcomer").value("SELECT current_user") == "newcomer"


@pytest.mark.pgweir_only("before 1.25 it reports success")
@pytest.mark.parametrize("broken", [
    "[pgbouncer]\npool_mod = session\n",
    "[pgbouncer]\npool_mode = sometimes\n",
    "[pgbouncer]\nmax_client_conn = many\n",
    "[databases]\napp = port=x\n",
    "[nonsense]\nx = 1\n",
    "[pgbouncer\n",
    "[pgbouncer]\nauth_file = /does/not/exist\n",
])
def test_failed_reload_keeps_the_old_configuration_whole(start_pooler, newest_pg, broken):
    pooler = start_pooler(newest_pg, default_pool_size=3)

    def shown():
        databases = pooler.console("SHOW DATABASES")
        return (pooler.console("SHOW CONFIG"),
                [row for row in databases if row["name"] != "pgbouncer"])

    before = shown()
    good = pooler.ini_path.read_text()
    pooler.write_ini(good.replace("default_pool_size = 3", "default_pool_size = 4") + broken)
    client = pooler.raw("admin", "pgbouncer")
    messages = client.query("RELOAD")
    assert wire.errors(messages) == [
        ("F0000", "RELOAD failed, see logs for additional details")]
    assert wire.kinds(client.query("SHOW VERSION")) == "TDCZ"
    assert shown() == before
    assert pooler.raw().value("SELECT 1") == "1"
    pooler.write_ini(good.replace("default_pool_size = 3", "default_pool_size = 4"))
    assert pooler.console("RELOAD") == []
    assert pooler.setting("default_pool_size") == "4"


def test_reload_under_load(start_pooler, newest_pg, workers):
    """A reload disturbs no client's queries."""
    pooler = start_pooler(newest_pg, default_pool_size=3, workers=workers)
    bench = subprocess.Popen(
        [newest_pg.binaries.path("pgbench"), "-n", "-c", "20", "-T", "4", "-f", "/dev/stdin",
         "-h", pooler.host, "-p", str(pooler.port), "-U", "trusty", "app"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    bench.stdin.write("SELECT 1;\n")
    bench.stdin.close()
    bench.stdin = None
    for number in machine.every(0.1, 15):
        rewrite(pooler, default_pool_size=(2, 5, 1, 4, 3)[number % 5])
        pooler.console("RELOAD")
    out, problems = bench.communicate(timeout=60)
    assert bench.returncode == 0, problems
    assert "number of failed transactions: 0" in out


# -- SHUTDOWN


@pytest.mark.pgweir_only("1.18 knows the immediate one only, and exits with 1")
def test_shutdown_now(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    console = pooler.raw("admin", "pgbouncer")
    console.send(wire.query("SHUTDOWN"))
    console.rest()
    assert pooler.wait_end() == 0
    assert [m.kind for m in client.rest()] in ([], ["E"])


@pytest.mark.pgweir_only("since 1.23")
def test_shutdown_waits_for_clients(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(8)]
    console = pooler.raw("admin", "pgbouncer")
    assert wire.kinds(console.query("SHUTDOWN WAIT_FOR_CLIENTS")) == "CZ"
    with pytest.raises(OSError):
        machine.wait_until(lambda: pooler.socket().close(), 5)
    console.close()
    while clients:
        for client in clients:
            assert client.value("SELECT 1") == "1"
        assert pooler.alive()
        clients.pop().close()
    assert pooler.wait_end() == 0


@pytest.mark.pgweir_only("since 1.23")
def test_shutdown_waits_for_servers(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    idle, busy = pooler.raw(), pooler.raw()
    busy.query("BEGIN")
    console = pooler.raw("admin", "pgbouncer")
    assert wire.kinds(console.query("SHUTDOWN WAIT_FOR_SERVERS")) == "CZ"
    busy.quiet(0.5)
    assert pooler.alive()
    assert busy.value("SELECT 1") == "1"
    busy.send(wire.query("COMMIT"))
    assert "C" in wire.kinds(busy.rest())
    assert [m.kind for m in idle.rest()] in ([], ["E"])
    assert pooler.wait_end() == 0


# -- SHOW: tables of PgBouncer 1.25


def listed(pooler):
    return {row["list"]: row["items"] for row in pooler.console("SHOW LISTS")}


@pytest.mark.pgweir_only("1.18 counts otherwise")
def test_lists(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    clients = [pooler.raw() for _ in range(5)]
    clients[0].query("BEGIN")
    unfinished = pooler.socket()
    machine.wait_until(lambda: listed(pooler)["login_clients"] == 1)
    items = listed(pooler)
    assert (items["used_clients"], items["used_servers"], items["pools"]) == (7, 1, 2)
    assert items["databases"] == len(pooler.databases) + 1
    assert items["users"] == len(set(pooler.users) | {"pgbouncer"})
    assert (items["free_clients"], items["free_servers"], items["dns_pending"]) == (0, 0, 0)
    unfinished.close()


@pytest.mark.pgweir_only("1.18 has fewer columns")
def test_users(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, users_section={
        "trusty": "pool_size=3 pool_mode=session max_user_connections=4"})
    clients = [pooler.raw() for _ in range(2)]
    clients[0].query("BEGIN")
    rows = {row["name"]: row for row in pooler.console("SHOW USERS")}
    assert rows["trusty"] == {
        "name": "trusty", "pool_size": "3", "reserve_pool_size": "", "pool_mode": "session",
        "max_user_connections": 4, "current_connections": 1,
        "max_user_client_connections": 0, "current_client_connections": 2}
    assert (rows["admin"]["pool_size"], rows["admin"]["pool_mode"]) == ("", None)
    assert rows["admin"]["current_client_connections"] == 1
    assert "pgbouncer" in rows


@pytest.mark.pgweir_only("1.18 counts otherwise")
def test_totals_count_exactly(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    for _ in range(6):
        with pooler.raw() as client:
            client.value("SELECT 1")
            client.query("BEGIN")
            client.query("COMMIT")
    rows = {row["database"]: row for row in pooler.console("SHOW STATS_TOTALS")}
    assert (rows["app"]["query_count"], rows["app"]["xact_count"]) == (18, 12)
    assert (rows["app"]["client_login_count"], rows["pgbouncer"]["query_count"]) == (6, 1)
    totals = {row["name"]: row["value"] for row in pooler.console("SHOW TOTALS")}
    # The console's commands count, including this one.
    assert (totals["total_query_count"], totals["total_xact_count"]) == (20, 14)
    assert totals["total_client_bytes"] == rows["app"]["bytes_received"]


@pytest.mark.shows("stats_period")
@pytest.mark.pgweir_only("1.18 has other columns")
def test_averages_are_of_the_last_period(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, stats_period=1)
    client = pooler.raw()
    longest, done = [0.0], threading.Event()

    def work():
        while not done.is_set():
            before = time.monotonic()
            client.query("SELECT pg_sleep(0.01)")
            longest[0] = max(longest[0], time.monotonic() - before)

    def row():
        (row,) = [r for r in pooler.console("SHOW STATS") if r["database"] == "app"]
        return row

    worker = threading.Thread(target=work)
    worker.start()
    try:
        # More than a period can have.
        machine.wait_until(lambda: row()["total_query_count"] > 130, 30, "there is work")
        busy = machine.wait_until(lambda: (r := row())["avg_query_count"] > 0 and r, 10, "a period with work")
    finally:
        done.set()
        worker.join()
    assert 0 < busy["avg_query_count"] < 110
    assert 9_000 < busy["avg_query_time"] <= longest[0] * 1e6
    machine.wait_until(lambda: row()["avg_query_count"] == 0, 15, "idle periods")


@pytest.mark.pgweir_only("it has states of its own")
def test_show_state(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)

    def states():
        return {row["key"]: row["value"] for row in pooler.console("SHOW STATE")}

    assert states() == {"active": "yes", "paused": "no", "suspended": "no"}
    pooler.console("PAUSE")
    assert states() == {"active": "no", "paused": "yes", "suspended": "no"}


@pytest.mark.pgweir_only("1.18 has other columns")
def test_sockets(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1)
    busy, waiter, idle = (pooler.raw() for _ in range(3))
    busy.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    unfinished = pooler.socket()
    wanted = ["cl_active"] * 3 + ["cl_login", "cl_waiting", "sv_active"]
    machine.wait_until(
        lambda: sorted(row["state"] for row in pooler.console("SHOW SOCKETS")) == wanted)
    # Only the beginning of a query.
    busy.send(wire.query("SELECT 2" + " " * 1000)[:100])
    machine.wait_until(
        lambda: [row["type"] for row in pooler.console("SHOW ACTIVE_SOCKETS")] == ["C"])
    unfinished.close()
    idle.close()


def test_dns_hosts(start_pooler, newest_pg):
    databases = {"app": f"host=localhost port={newest_pg.port} dbname=app"}
    pooler = start_pooler(newest_pg, databases=databases)
    pooler.raw().value("SELECT 1")
    (row,) = pooler.console("SHOW DNS_HOSTS")
    assert row["hostname"] == "localhost"
    assert "127.0.0.1" in row["addrs"]
    assert 0 <= row["ttl"] <= 15


@pytest.mark.pgweir_only("secrets are shown")
@pytest.mark.guards("secrets_in_show")
def test_fds_have_no_secret(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256")
    client = pooler.raw("scrammed", password=pooler.users["scrammed"])
    client.value("SELECT 1")
    rows = pooler.console("SHOW FDS")
    assert {(row["task"], row["user"], row["database"]) for row in rows} == {
        ("client", "scrammed", "app"), ("server", "scrammed", "app")}
    for row in rows:
        assert {row[name] for name in ("fd", "cancel", "link", "password", "scram_client_key",
                                       "scram_server_key")} == {None}
        assert row["client_encoding"] == "UTF8"


@pytest.mark.pgweir_only("1.18 has no pool_idle_timeout")
def test_totals_outlive_pools(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, pool_idle_timeout=1, server_idle_timeout=1)
    for _ in range(4):
        with pooler.raw() as client:
            client.value("SELECT 1")
    machine.wait_until(lambda: pooler.pool() is None, 10, "the pool is forgotten")
    totals = {row["name"]: row["value"] for row in pooler.console("SHOW TOTALS")}
    assert totals["total_client_bytes"] == 4 * len(wire.query("SELECT 1"))


def test_the_process_behind_a_unix_socket(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    with pooler.connect(host=str(pooler.folder)) as db:
        db.execute("SELECT 1")
        rows = [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]
        assert [(row["addr"], row["remote_pid"]) for row in rows] == [("unix", os.getpid())]
