"""The HTTP API: the tables and commands of the console as JSON."""

import base64
import contextlib
import http.client
import json
import re
import socket
import threading

import psycopg
import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from scraping import UnixConnection, ask, get, scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer does not speak HTTP")

ROOT = "/api/v1"
LOGINS = {"auth_type": "scram-sha-256"}


def basic(user, password):
    """The header of a user with a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Api:
    """Sends requests as one user, by default as an admin of the console."""

    def __init__(self, pooler, authorization=None):
        self.pooler = pooler
        self.authorization = authorization or basic("admin", pooler.users["admin"])

    def ask(self, path, method="GET", body=None, **headers):
        """Sends a request. `answer.json` is the decoded body of the answer."""
        if body is not None and not isinstance(body, (str, bytes)):
            body, headers = json.dumps(body), {"Content_Type": "application/json"} | headers
        if self.authorization:
            headers = {"Authorization": self.authorization} | headers
        answer = get(self.pooler.http, ROOT + path, method, body=body, **headers)
        answer.json = json.loads(answer.text) if answer.text else None
        return answer

    def show(self, name):
        """The rows of a table."""
        answer = self.ask(f"/show/{name}")
        assert answer.status == 200, answer.text
        return answer.json["rows"]

    def command(self, name, body=None, **headers):
        return self.ask(f"/commands/{name}", "POST", {} if body is None else body, **headers)


# -- tables

def test_every_table_of_the_console(start):
    """Rows, columns and types are those of SHOW."""
    pooler = start()
    api = Api(pooler)
    with pooler.connect(application_name="reports") as db:
        db.execute("BEGIN")
        names = [table["name"] for table in api.ask("/show").json["tables"]]
        assert {"pools", "clients", "servers", "stats", "config", "fds"} <= set(names)
        for name in names:
            answer = api.ask(f"/show/{name}")
            assert answer.status == 200, (name, answer.text)
            assert answer.headers["Content-Type"] == "application/json" and answer.headers["Cache-Control"] == "no-store"
            with pooler.connect("admin", "pgbouncer", password=pooler.users["admin"]) as console:
                cursor = console.execute(f"SHOW {name}")
                columns = [column.name for column in cursor.description]
            assert [column["name"] for column in answer.json["columns"]] == columns, name
        pools = {(row["database"], row["user"]): row for row in api.show("POOLS")}
        row = pools["app", "trusty"]
        assert row["cl_active"] == 1 and row["sv_active"] == 1 and row["pool_mode"] == "transaction" and row["wait_reason"] is None
        of_console = pooler.pool()
        assert {name: row[name] for name in ("cl_active", "sv_active", "sv_idle", "maxwait")} == {
            name: of_console[name] for name in ("cl_active", "sv_active", "sv_idle", "maxwait")}


def test_rows_can_be_chosen(start):
    pooler = start()
    api = Api(pooler)
    with pooler.connect(application_name="one & two"), pooler.connect(), pooler.connect():
        answer = api.ask("/show/clients?database=app&sort=-id&limit=2").json
        assert answer["total"] == 3
        ids = [row["id"] for row in answer["rows"]]
        assert len(ids) == 2 and ids == sorted(ids, reverse=True)
        only, = api.ask("/show/clients?application_name=one%20%26+two").json["rows"]
        assert only["database"] == "app"
        assert api.ask("/show/clients?database=none").json["rows"] == []
        answer = api.ask("/show/clients?distinct=database,user&database=app&sort=-id").json
        assert answer["total"] == 1 and [row["id"] for row in answer["rows"]] == ids[:1]
    for query, part in [("limit=0", "1 to 100000"), ("sort=nothing", "there are type, user"), ("nothing=1", "there is no column")]:
        answer = api.ask(f"/show/clients?{query}")
        assert answer.status == 400 and part in answer.json["detail"], query
    answer = api.ask("/show/nothing")
    assert answer.status == 404 and "pools" in answer.json["detail"]


# -- rights

def test_rights_are_those_of_the_console(start):
    """The console checks users and passwords; only `stats_users` and `admin_users` may read."""
    pooler = start(**LOGINS)
    admin, stats = Api(pooler), Api(pooler, basic("stats", "stats password"))
    assert admin.ask("/session").json["role"] == "admin"
    session = stats.ask("/session").json
    assert (session["role"], session["name"]) == ("stats", 'user "stats"')
    assert stats.ask("/show/pools").status == 200
    assert "fds" not in [table["name"] for table in stats.ask("/show").json["tables"]]
    assert stats.ask("/show/fds").status == 403
    refused = stats.command("pause", {"database": "app"})
    assert refused.status == 403 and "admin_users" in refused.json["detail"]
    assert refused.headers["Content-Type"] == "application/problem+json" and refused.json["status"] == 403
    for user, password in [("admin", "wrong"), ("scrammed", "scram password"), ("nobody", "x"), ("pgbouncer", "")]:
        answer = Api(pooler, basic(user, password)).ask("/show/pools")
        assert answer.status == 401, user
        assert 'Basic realm="pgweir"' in answer.headers["WWW-Authenticate"] and "Bearer" in answer.headers["WWW-Authenticate"]
    assert Api(pooler, "").ask("/session", Authorization="").status == 401
    assert get(pooler.http, f"{ROOT}/show/pools").status == 401
    pooler.expect_log("http: refused /")
    assert "wrong" not in pooler.log().replace("wrong token", "")
    # A user who is taken from admin_users loses the rights with RELOAD.
    reload(pooler, admin_users="someone")
    assert admin.ask("/show/pools").status == 401


def test_rules_for_hosts_hold_for_requests(start):
    """The HBA rules see the address that a request comes from."""
    pooler = start()
    rules = pooler.folder / "hba.conf"
    rules.write_text("host pgbouncer admin 127.0.0.2/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal all all trust\n")
    machine.give_to_service(rules)
    reload(pooler, auth_type="hba", auth_hba_file=rules)

    def status(source, password):
        connection = http.client.HTTPConnection("127.0.0.1", pooler.http, timeout=20, source_address=(source, 0))
        return ask(connection, f"{ROOT}/session", Authorization=basic("admin", password)).status
    assert status("127.0.0.1", "wrong") == 401
    assert status("127.0.0.1", "admin password") == 200
    assert status("127.0.0.2", "wrong") == 200
    assert status("127.0.0.3", "admin password") == 401


def test_tokens_of_both_roles(start):
    pooler = start()
    tokens = pooler.folder / "tokens"
    tokens.write_text("stats scrapers-own-token\nadmin operators-own-token\n")
    machine.give_to_service(tokens)
    reload(pooler, http_tokens=tokens)
    stats, admin = Api(pooler, "Bearer scrapers-own-token"), Api(pooler, "Bearer operators-own-token")
    assert stats.ask("/show/pools").status == 200 and admin.ask("/show/fds").status == 200
    assert stats.command("reload").status == 403
    assert admin.command("reload").status == 200
    assert Api(pooler, "Bearer guessed-by-someone").ask("/show/pools").status == 401
    pooler.expect_log("http: audit: token ")
    assert "own-token" not in pooler.log() and "guessed-by-someone" not in pooler.log()


def test_a_unix_socket_gives_pgweirs_user_the_role_admin(start):
    pooler = start(**LOGINS)
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=f"127.0.0.1:{pooler.http}, {path}")
    answer = ask(UnixConnection(path), f"{ROOT}/session")
    assert answer.status == 200 and json.loads(answer.text)["role"] == "admin"
    assert ask(UnixConnection(path), f"{ROOT}/commands/reload", "POST").status == 200
    pooler.expect_log("RELOAD: done")
    wrong = basic("admin", "wrong")
    assert ask(UnixConnection(path), f"{ROOT}/session", Authorization=wrong).status == 401


@pytest.mark.shows("http_max_login_failures")
def test_wrong_passwords_are_throttled(start):
    """After too many wrong passwords from an address, requests with the right one are refused as well, for a while."""
    pooler = start(**LOGINS, http_max_login_failures=3)
    api = Api(pooler)
    assert api.ask("/session").status == 200
    for number in range(3):
        assert Api(pooler, basic("admin", f"guess {number}")).ask("/session").status == 401
    refused = api.ask("/session")
    assert refused.status == 429 and 0 < int(refused.headers["Retry-After"]) <= 20
    assert "http_max_login_failures" in refused.json["detail"]
    # Without credentials nothing is checked, and nobody is locked out.
    assert get(pooler.http, f"{ROOT}/session").status == 401 and get(pooler.http, "/readyz").status == 200
    assert scrape(pooler.http).value("pgweir_http_throttled_total") == 1
    reload(pooler, http_max_login_failures=1000)
    assert api.ask("/session").status == 200


# -- commands

def test_commands_do_what_the_console_does(start):
    pooler = start()
    api = Api(pooler)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        done = api.command("pause", {"database": "app"})
        assert (done.status, done.json) == (200, {"command": 'PAUSE "app"', "outcome": "done", "notices": []})
        assert {row["name"]: row["paused"] for row in api.show("databases")}["app"] == 1
        again = api.command("resume", {})
        assert again.status == 422 and "not paused" in again.json["detail"]
        assert api.command("resume", {"database": "app"}).status == 200
        assert api.command("disable", {"database": "app"}).status == 200
        assert "disabled" in str(pooler.login_error())
        assert api.command("enable", {"database": "app"}).status == 200
        assert api.command("set", {"key": "query_wait_timeout", "value": 77}).status == 200
        assert pooler.setting("query_wait_timeout") == "77"
        wrong = api.command("set", {"key": "pool_mode", "value": "often"})
        assert wrong.status == 422 and "pool_mode" in wrong.json["detail"]
        assert api.command("reload").status == 200
        assert pooler.setting("query_wait_timeout") == "120"
        assert api.command("reconnect").status == 200 and api.command("wait_close").status == 200
        client, = api.ask("/show/clients?database=app").json["rows"]
        assert api.command("kill_client", {"client": client["id"]}).status == 200
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")
    nobody = api.command("kill_client", {"client": 0})
    assert nobody.status == 422 and "client not found" in nobody.json["detail"]
    log = pooler.log()
    for line in ['PAUSE "app": done', "RESUME: refused: pooler is not paused", 'SET "query_wait_timeout": done', "RELOAD: done"]:
        assert f'{line}' in log, line
    assert 'http: audit: user "admin" from 127.0.0.1:' in log


@pytest.mark.shows("log_audit")
def test_one_audit_line(start):
    """A command over HTTP has one audit line: with the sender's name, way of login and address, not the console's."""
    pooler = start(log_format="json")
    tokens = pooler.folder / "tokens"
    tokens.write_text("admin operators-own-token\n")
    machine.give_to_service(tokens)
    reload(pooler, http_tokens=tokens)
    by_token = Api(pooler, "Bearer operators-own-token")
    before = len(audits(pooler))
    assert Api(pooler).command("pause", {"database": "app"}).status == 200
    assert by_token.command("resume", {"database": "app"}).status == 200
    assert Api(pooler).command("resume", {"database": "app"}).status == 422
    assert by_token.command("reconnect").status == 200
    lines = audits(pooler)[before:]
    assert [(line["command"], line["outcome"].split(":")[0]) for line in lines] == [
        ('PAUSE "app"', "done"), ('RESUME "app"', "done"), ('RESUME "app"', "refused"), ("RECONNECT", "done")]
    assert [line["user"].split()[0] for line in lines] == ["user", "token", "user", "token"]
    assert lines[0]["user"] == 'user "admin"' and lines[0]["action"] == "http command"
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", line["address"]) for line in lines)
    # Events name the same senders, each once, and the database.
    rows = [row for row in pooler.console("SHOW EVENTS") if row["kind"].startswith("command") and row["event"] != "RELOAD"]
    assert [(row["kind"], row["event"].split(":")[0], row["database"], row["user"].split()[0]) for row in rows] == [
        ("command", 'PAUSE "app"', "app", "admin"), ("command", 'RESUME "app"', "app", "token"),
        ("command_failed", 'RESUME "app"', "app", "admin"), ("command", "RECONNECT", "", "token")]
    # The console's own line remains for a client of the console.
    pooler.console("RECONNECT")
    assert [line["action"] for line in audits(pooler)[before + 4:]] == ["command"]
    pooler.console("SET log_audit = 0")
    count = len(audits(pooler))
    assert by_token.command("reconnect").status == 200
    assert len(audits(pooler)) == count


def audits(pooler):
    """The audit lines of a log in JSON, in order; audit lines that are not JSON would be missed, so there are none."""
    lines = [json.loads(line) for line in pooler.log().splitlines() if line.startswith("{")]
    return [line["audit"] for line in lines if "audit" in line]


def test_a_command_that_waits(start):
    """PAUSE waits for the end of a transaction: the answer says that the command has begun and continues."""
    pooler = start(http_timeout=1)
    api = Api(pooler)
    with pooler.connect() as db:
        db.execute("BEGIN")
        db.execute("SELECT 1")
        answer = api.command("pause")
        assert (answer.status, answer.json["outcome"]) == (202, "begun")
        assert api.show("state")
        db.execute("COMMIT")
        machine.wait_until(lambda: not [row for row in api.show("servers")], what="all servers are closed")
        assert api.command("resume").status == 200
        assert db.execute("SELECT 2").fetchone() == (2,)


def test_suspend_lasts_until_resume(start):
    pooler = start()
    api = Api(pooler)
    with pooler.connect() as db, pooler.raw() as waiter:
        db.execute("SELECT 1")
        assert api.command("suspend").status == 200
        waiter.send(wire.query("SELECT 1"))
        assert {row["key"]: row["value"] for row in api.show("state")}["suspended"] == "yes"
        assert get(pooler.http, "/readyz").status == 503
        assert api.command("resume").status == 200
        assert get(pooler.http, "/readyz").status == 200
        assert db.execute("SELECT 2").fetchone() == (2,)


def test_shutdown_waits_for_no_link(start):
    """A shutdown that waits for clients does not wait for the live page: the HTTP thread's connection to the console
    does not count as a client. It waits for other clients of the console.
    """
    pooler = start()
    api = Api(pooler)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        assert api.show("pools")
        # The HTTP thread's connection is in the list of the console's clients, and the shutdown must not wait for it.
        assert [row["application_name"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "pgbouncer"].count("http") == 1
        assert api.command("shutdown", {"mode": "wait_for_clients"}).status in (200, 202)
        for _ in machine.every(0.1, times=10):
            assert api.show("pools") and pooler.alive()
        db.execute("SELECT 2")

    def go_on_asking():
        with contextlib.suppress(OSError, http.client.HTTPException):
            for _ in machine.every(0.05, until=lambda: not pooler.alive()):
                api.ask("/show/pools")
    asking = threading.Thread(target=go_on_asking, daemon=True)
    asking.start()
    # After 5 seconds, a request that the console does not answer closes its connection: the process must end before
    # that.
    machine.wait_until(lambda: not pooler.alive(), 4, "it ends though somebody asks")
    asking.join(20)
    assert pooler.wait_end() == 0


# -- bad input

@pytest.mark.parametrize("path, method, expected", [
    ("", "GET", 404), ("/", "GET", 404), ("/nothing", "GET", 404), ("/show/", "GET", 404), ("/show/pools/x", "GET", 404),
    ("/show/pools", "POST", 405), ("/commands/pause", "GET", 405), ("/commands/nothing", "POST", 404), ("/session?x=1", "GET", 400),
    ("/show/%ff", "GET", 400), ("/history?since=x", "GET", 400), ("/show/pools", "OPTIONS", 405),
])
def test_wrong_addresses(start, path, method, expected):
    answer = Api(start()).ask(path, method)
    assert answer.status == expected and answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["status"] == expected and answer.json["detail"] and answer.json["title"]
    if expected == 405:
        assert answer.headers["Allow"] in ("GET, HEAD", "POST")


def test_wrong_bodies(start):
    pooler = start()
    api = Api(pooler)
    for body, headers, expected in [
        ("database=app", {"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ('{"database": "app"}', {"Content_Type": "text/plain"}, 415),
        ('{"database": "app"}', {}, 415),
        ("{", {"Content_Type": "application/json"}, 400),
        ("[1]", {"Content_Type": "application/json"}, 400),
        (b"\xff\xfe", {"Content_Type": "application/json"}, 400),
        ('{"database": "%s"}' % ("x" * 70_000), {"Content_Type": "application/json"}, 413),
        ('{"name": "app"}', {"Content_Type": "application/json; charset=utf-8"}, 422),
        ('{"database": 1.5e3000}', {"Content_Type": "application/json"}, 400),
        ('{"database": "nowhere"}', {"Content_Type": "application/json"}, 422),
        ('{"database": "app\\u0000"}', {"Content_Type": "application/json"}, 422),
        ("[" * 60_000, {"Content_Type": "application/json"}, 400),
    ]:
        answer = api.ask("/commands/pause", "POST", body, **headers)
        assert answer.status == expected, (body[:60], answer.text)
    answer = api.command("disable", {"name": "app"})
    assert answer.status == 422
    assert {error["key"] for error in answer.json["errors"]} == {"name", "database"}
    assert all(row["paused"] == 0 for row in api.show("databases"))
    # pgweir does not read the body of a request that has no rights.
    request = (f"POST {ROOT}/commands/pause HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               "Content-Length: 10000000000\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", pooler.http), timeout=20) as sock:
        sock.sendall(request)
        assert sock.recv(100).startswith(b"HTTP/1.1 401 ")


def test_requests_of_other_sites_are_refused(start):
    pooler = start()
    api = Api(pooler)
    for headers in [{"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                    {"Sec_Fetch_Site": "same-site"}]:
        answer = api.command("pause", {}, **headers)
        assert answer.status == 403 and "another site" in answer.json["detail"], headers
    assert api.command("reload", {}, Origin=f"http://127.0.0.1:{pooler.http}", Sec_Fetch_Site="same-origin").status == 200
    answer = api.ask("/show/pools", Origin="https://elsewhere.example")
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_names_with_quotes(start, newest_pg):
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    name = 'a "quoted\' <b>name'
    pooler = start(databases={"app": where, '"a ""quoted\' <b>name"': where})
    api = Api(pooler)
    assert api.command("pause", {"database": name}).status == 200
    assert {row["name"]: row["paused"] for row in api.show("databases")}[name] == 1
    assert api.command("resume", {"database": name}).status == 200


def test_a_poolers_tables_while_its_server_is_down(start):
    pooler = start(None, databases={"app": "host=127.0.0.1 port=1"})
    with pytest.raises(psycopg.OperationalError):
        pooler.connect()
    row, = Api(pooler).ask("/show/pools?database=app").json["rows"]
    assert row["last_error"]


# -- requests of the live page

@pytest.mark.shows("http_history_interval", "http_history_pools")
def test_history(start):
    pooler = start(http_history_interval=1, http_history_pools=1)
    api = Api(pooler)
    with pooler.connect() as db, pooler.connect(dbname="other") as other:
        def sampled():
            db.execute("SELECT 1")
            other.execute("SELECT 1")
            history = api.ask("/history").json
            pools = history["pools"]
            return history if len(history["times"]) >= 3 and pools and pools[0]["transaction_p50_us"][-1] else None
        history = machine.wait_until(sampled, 20, what="there are samples")
    assert history["interval_ms"] == 1000 and history["left_out"] == 1
    pool, = history["pools"]
    assert pool["user"] == "trusty" and pool["clients_active"][-1] == 1 and pool["servers_idle"][-1] is not None
    assert pool["transactions_per_s"][-1] > 0
    lengths = {len(values) for values in pool.values() if isinstance(values, list)}
    assert lengths == {len(history["times"])}
    later = api.ask(f"/history?since={history['times'][-2]}").json
    assert later["times"][0] == history["times"][-1]
    assert scrape(pooler.http).value("pgweir_http_history_left_out") == 1
    reload(pooler, http_history_interval=0)
    assert api.ask("/history").json["times"] == []


# -- the description

def test_the_openapi_description_lists_all_addresses_and_methods(start):
    """Each address and method of the OpenAPI description is served, and no other method of it is."""
    pooler = start()
    described = get(pooler.http, f"{ROOT}/openapi.json")
    assert described.status == 200
    description = json.loads(described.text)
    assert description["openapi"].startswith("3.1")
    nobody = {"Authorization": basic("nobody", "nothing")}
    reload(pooler, http_max_login_failures=1_000_000)
    for path, item in description["paths"].items():
        path = path.replace("{name}", "pools").replace("{host}", "h")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            status = get(pooler.http, path, method, **nobody).status
            if method.lower() not in item:
                assert status == 405, (method, path)
            elif path.endswith("openapi.json"):
                assert status == 200
            else:
                assert status == 401, (method, path)
                assert "401" in item[method.lower()]["responses"]
    shown = {path for path in description["paths"] if "/commands/" in path}
    assert len(shown) == 14
    ids = [one["operationId"] for item in description["paths"].values() for one in item.values()]
    assert len(ids) == len(set(ids))
