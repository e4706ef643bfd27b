"""Databases, users and hosts added, changed and removed through the HTTP API."""

import json
import re
import subprocess

import psycopg
import pytest

import machine
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from test_api import Api, basic

pytestmark = pytest.mark.pgweir_only("PgBouncer does not speak HTTP")


def where(pg, dbname="app", **more):
    return {"host": pg.host, "port": pg.port, "dbname": dbname} | more


def names(pooler):
    return {row["name"] for row in pooler.console("SHOW DATABASES")}


def test_a_database_comes_changes_and_goes(start, newest_pg):
    pooler = start()
    api = Api(pooler)
    assert "no such database" in str(pooler.login_error(dbname="fresh"))
    added = api.ask("/config/databases/fresh", "PUT", where(newest_pg, pool_size=2, user="trusty", password="it's a secret"))
    assert added.status == 200, added.text
    assert added.json["settings"]["pool_size"] == "2" and added.json["settings"]["password"] == "****" and not added.json["saved"]
    with pooler.connect(dbname="fresh") as db:
        assert db.execute("SELECT current_database()").fetchone() == ("app",)
        changed = api.ask("/config/databases/fresh", "PATCH", {"pool_size": 7, "password": None})
        assert changed.status == 200 and "password" not in changed.json["settings"] and changed.json["settings"]["dbname"] == "app"
        row, = api.ask("/show/databases?name=fresh").json["rows"]
        assert row["pool_size"] == 7 and row["database"] == "app"
        assert db.execute("SELECT 2").fetchone() == (2,)
    assert {"name": "fresh", "settings": changed.json["settings"]} in api.ask("/config/databases").json["databases"]
    assert api.ask("/config/databases/fresh", "DELETE").status == 200
    assert "fresh" not in names(pooler) and api.ask("/config/databases/fresh").status == 404
    assert "no such database" in str(pooler.login_error(dbname="fresh"))
    log = pooler.log()
    assert re.search(r'http: audit: user "admin" from 127\.0\.0\.1:\d+: database "fresh" set \(dbname, host, pool_size, port, user, password\): done'
                     .replace("dbname, host, pool_size, port, user, password", "[a-z_, ]+"), log)
    assert 'database "fresh" removed: done' in log and "it's a secret" not in log and "it''s a secret" not in log


def test_users_have_limits(start):
    pooler = start()
    api = Api(pooler)
    assert api.ask("/config/users/trusty", "PUT", {"max_user_client_connections": 1}).status == 200
    with pooler.connect():
        assert "max_user_client_connections" in str(pooler.login_error()) or "too many" in str(pooler.login_error())
        assert api.ask("/config/users/trusty", "DELETE").status == 200
        pooler.connect().close()
    assert api.ask("/config/users").json == {"users": []}


@pytest.mark.parametrize("name, body, key, part", [
    ("app", {"hots": "x"}, "hots", "did you mean"), ("app", {"port": 0}, "port", "expected"), ("app", {"pool_size": "many"}, "pool_size", "expected"),
    ("app", {"pool_mode": "often"}, "pool_mode", "expected"), ("pgbouncer", {"host": "x"}, "pgbouncer", "reserved"),
    ("app", {"max_client_conn": 3}, "max_client_conn", "[pgbouncer]"), ("app", {"host": "a\nb"}, "host", "line breaks"),
    ("app", {"host": {"a": 1}}, "host", "expected"), ("app", {"a b": "x"}, "a b", "expected"),
])
def test_an_invalid_request_changes_nothing(start, name, body, key, part):
    pooler = start()
    api = Api(pooler)
    before = api.ask("/config/databases").json
    answer = api.ask(f"/config/databases/{name}", "PUT", body)
    assert answer.status == 422, answer.text
    error, = answer.json["errors"]
    assert error["key"] == key and part in error["detail"], error
    assert api.ask("/config/databases").json == before
    pooler.connect().close()


def test_only_admins_change_entries(start):
    pooler = start()
    stats = Api(pooler, basic("stats", "stats password"))
    assert stats.ask("/config/databases").status == 403
    assert stats.ask("/config/databases/app", "DELETE").status == 403
    admin = Api(pooler)
    assert admin.ask("/config/databases/app", "DELETE", Origin="https://elsewhere.example").status == 403
    assert admin.ask("/config/databases/app?save=maybe", "DELETE").status == 400
    assert admin.ask("/config/databases/nowhere", "DELETE").status == 404
    assert admin.ask("/config/databases/nowhere", "PATCH", {"pool_size": 1}).status == 404
    pooler.connect().close()


@pytest.mark.shows("api_config_file")
def test_saved_changes_outlast_reload_and_restart(start, newest_pg):
    """Saved entries are read after the ini file, which stays as it was; other changes last until RELOAD."""
    pooler = start()
    api = Api(pooler)
    ini = pooler.ini_path.read_text()
    refused = api.ask("/config/databases/kept?save=true", "PUT", where(newest_pg))
    assert refused.status == 422 and "api_config_file is not set" in refused.json["detail"] and "kept" not in names(pooler)
    saved = pooler.folder / "api.ini"
    reload(pooler, api_config_file=saved)
    ini = pooler.ini_path.read_text()
    odd = 'an "odd" [name]'
    assert api.ask("/config/databases/kept?save=true", "PUT", where(newest_pg, password="it's #1")).json["saved"]
    assert api.ask("/config/databases/an%20%22odd%22%20[name]?save=true", "PUT", where(newest_pg)).status == 200
    assert api.ask("/config/databases/other?save=1", "DELETE").status == 200
    assert api.ask("/config/users/trusty?save=true", "PUT", {"pool_size": 3}).status == 200
    assert api.ask("/config/databases/passing", "PUT", where(newest_pg)).status == 200
    assert names(pooler) >= {"kept", odd, "passing"} and "other" not in names(pooler)
    assert saved.stat().st_mode & 0o777 == 0o600 and not list(pooler.folder.glob("api.ini.*"))
    pooler.console("RELOAD")
    assert names(pooler) >= {"kept", odd} and not {"other", "passing"} & names(pooler)
    assert api.ask("/config/databases/kept").json["settings"]["password"] == "****"
    pooler.signal(3)
    pooler.wait_end()
    pooler.ended = False
    pooler.spawn().listening()
    pooler.expect_log("process up")
    assert names(pooler) >= {"kept", odd} and "other" not in names(pooler)
    pooler.connect(dbname="kept").close()
    assert pooler.ini_path.read_text() == ini
    assert {row["name"]: row["pool_size"] for row in pooler.console("SHOW USERS")}["trusty"] == "3"


def test_a_file_that_is_wrong_or_cannot_be_written(start, newest_pg):
    pooler = start()
    api = Api(pooler)
    saved = pooler.folder / "api.ini"
    saved.write_text("[databases]\nkept = host=x hots=y\n")
    machine.give_to_service(saved)
    with pytest.raises(psycopg.Error, match=r"api.ini:2: unknown key .hots."):
        reload(pooler, api_config_file=saved)
    pooler.connect().close()
    reload(pooler, api_config_file=pooler.folder / "nowhere" / "api.ini")
    failed = api.ask("/config/databases/app?save=true", "DELETE")
    assert failed.status == 500 and "cannot write" in failed.json["detail"] and "nothing has changed" in failed.json["detail"]
    pooler.connect().close()


def test_hosts_come_and_go(start, newest_pg):
    """New connections go to the hosts that are left; clients notice nothing."""
    host = "127.0.0.1" if not newest_pg.host.startswith("/") else newest_pg.host
    pooler = start(databases={"app": f"host={host} port={newest_pg.port}"})
    api = Api(pooler)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        added = api.ask("/config/databases/app/hosts/localhost", "PUT")
        assert added.status == 200 and added.json["settings"]["host"] == f"{host},localhost"
        assert api.ask("/config/databases/app/hosts/localhost", "PUT").json["settings"]["host"] == f"{host},localhost"
        assert db.execute("SELECT 1").fetchone() == (1,)
        assert api.ask("/config/databases/app/hosts/elsewhere", "DELETE").status == 404
        assert api.ask("/config/databases/app/hosts/localhost", "DELETE").json["settings"]["host"] == host
        last = api.ask(f"/config/databases/app/hosts/{host.replace('/', '%2F')}", "DELETE")
        assert last.status == 422 and "last host" in last.json["detail"]
        assert db.execute("SELECT 2").fetchone() == (2,)


def test_changes_under_load(start, newest_pg):
    """A database and a host added, changed and removed while pgbench runs: no transaction fails."""
    pooler = start(default_pool_size=4)
    api = Api(pooler)
    script = pooler.folder / "select.sql"
    script.write_text("SELECT 1;\n")
    bench = subprocess.Popen([newest_pg.binaries.path("pgbench"), "-n", "-T", "6", "-c", "8", "-j", "1", "-f", str(script), "-h", pooler.host, "-p", str(pooler.port),
                              "-U", "trusty", "app"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rounds = 0
    while bench.poll() is None:
        rounds += 1
        for path, method, body in [
            ("/config/databases/extra", "PUT", where(newest_pg)), ("/config/databases/extra", "PATCH", {"pool_size": rounds % 9 + 1}),
            ("/config/databases/app", "PATCH", {"pool_size": rounds % 3 + 2}), ("/config/databases/app/hosts/localhost", "PUT", None),
            ("/config/databases/app/hosts/localhost", "DELETE", None), ("/config/users/trusty", "PUT", {"pool_size": rounds % 4 + 2}),
            ("/config/users/trusty", "DELETE", None),
        ]:
            answer = api.ask(path, method, body)
            assert answer.status == 200, answer.text
        pooler.connect(dbname="extra").close()
        assert api.ask("/config/databases/extra", "DELETE").status == 200
    out, err = bench.communicate()
    assert bench.returncode == 0, err
    assert "number of failed transactions: 0 " in out and rounds >= 2, out
    assert json.dumps(api.ask("/config/databases/app").json)
