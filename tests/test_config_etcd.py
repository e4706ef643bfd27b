"""Databases and users come from etcd: each of several poolers follows the keys, and keeps the last correct ones."""

import concurrent.futures
import shutil
import signal

import pytest

import machine
from etcd import Proxy
from fleetfixtures import etcd, fleet_folder  # noqa: F401 (fixtures)
from scraping import scrape
from test_api import Api

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer reads no etcd"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full"),
]

PREFIX = "/pgweir-config/pgweir/"


@pytest.fixture
def start(start_pooler, newest_pg, etcd, fleet_folder):  # noqa: F811 (fixtures)
    """Starts a pooler that follows the entries in etcd."""
    ports = []

    def start_one(of_app="", **settings):
        ports.append(machine.free_port())
        file = fleet_folder / f"entries-{len(ports)}.ini"
        databases = {"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app {of_app}"}
        pooler = start_pooler(newest_pg, databases=databases, **{
            "config_etcd": etcd.url, "config_etcd_timeout": 1, "api_config_file": file,
            "http_listen": f"127.0.0.1:{ports[-1]}"} | settings)
        pooler.http, pooler.entries_file = ports[-1], file
        pooler.expect_log("process up")
        return pooler

    yield start_one
    for port in ports:
        machine.release_port(port)


@pytest.fixture
def entry(newest_pg):
    """The text of an entry that leads to the database `app`."""
    return f"host={newest_pg.host} port={newest_pg.port} dbname=app"


def serves(pooler, database):
    """Returns whether clients can log in to a database."""
    return any(row["name"] == database for row in pooler.console("SHOW DATABASES"))


def follows(pooler, database, is_there=True):
    machine.wait_until(lambda: serves(pooler, database) == is_there, 10, f"{database} follows etcd ({pooler.log_path})")


def kept(pooler):
    """The text of the file that keeps the last correct entries."""
    return pooler.entries_file.read_text() if pooler.entries_file.exists() else ""


def setting(pooler, database, name):
    return Api(pooler).ask(f"/config/databases/{database}").json["settings"].get(name)


@pytest.mark.shows("config_etcd")
def test_all_processes_follow_a_change_by_the_api_of_one(start, entry, newest_pg):
    one, other = start(), start()
    body = {"host": newest_pg.host, "port": newest_pg.port, "dbname": "app", "pool_size": 3}
    assert Api(one).ask("/config/databases/shop?save=true", "PUT", body).status == 200
    assert serves(one, "shop")
    for pooler in (one, other):
        follows(pooler, "shop")
        with pooler.raw(dbname="shop") as client:
            assert client.value("SELECT 7") == "7"
    assert Api(other).ask("/config/databases/shop?save=true", "PATCH", {"pool_size": 4}).status == 200
    machine.wait_until(lambda: setting(one, "shop", "pool_size") == "4", 10, "one follows the other")
    # The ini file's own entry goes, and comes back.
    assert Api(one).ask("/config/databases/app?save=true", "DELETE").status == 200
    follows(other, "app", False)


def test_keys_are_written_by_hand(start, etcd, entry):  # noqa: F811 (a fixture)
    pooler = start()
    etcd.put(f"{PREFIX}databases/shop", f"{entry} pool_size=3")
    etcd.put(f"{PREFIX}users/trusty", "max_user_connections=9")
    follows(pooler, "shop")
    etcd.put(f"{PREFIX}databases/app", "removed")
    follows(pooler, "app", False)
    etcd.delete(f"{PREFIX}databases/app")
    follows(pooler, "app")  # as the ini file has it
    etcd.delete(f"{PREFIX}databases/shop")
    follows(pooler, "shop", False)
    machine.wait_until(lambda: "max_user_connections" in kept(pooler), 5, "the file keeps the entries")


WRONG = [
    ("databases/shop", "host=here prot=1", "prot"),
    ("databases/shop", "host=here pool_size=many", "pool_size"),
    ("databases/shop", "host=here password=hidden", "password"),
    ("databases/shop", "host=here\n[pgbouncer]", "one line"),
    # In the file of entries, it would continue the line.
    ("databases/shop", "host=here application_name=a\\", "backslash"),
    ("databases/shop", "host=here application_name=a\\ ", "backslash"),
    ("peers/1", "host=here", "peers/1: expected"),
]


def test_one_wrong_entry_changes_nothing(start, etcd, entry):  # noqa: F811 (a fixture)
    pooler = start()

    def refusals():
        return pooler.log().count("none of the entries in etcd is used")

    for number, (key, value, why) in enumerate(WRONG):
        later = f"later{number}"
        before = refusals()
        etcd.put(f"{PREFIX}{key}", value)
        machine.wait_until(lambda before=before: refusals() > before, 10, f"{key} is refused")
        assert why in pooler.log()
        before = refusals()
        etcd.put(f"{PREFIX}databases/{later}", entry)
        machine.wait_until(lambda before=before: refusals() > before, 10, "they were read again")
        assert serves(pooler, "app") and not serves(pooler, later) and later not in kept(pooler)
        assert scrape(pooler.http).value("pgweir_config_etcd_refused") == 1
        etcd.delete(f"{PREFIX}{key}")
        follows(pooler, later)
        assert scrape(pooler.http).value("pgweir_config_etcd_refused") == 0
    assert "hidden" not in pooler.log()


def test_entries_that_one_process_cannot_use(start, etcd, entry, fleet_folder):  # noqa: F811 (fixtures)
    """The HBA rules of one of two processes need an auth_user. It refuses entries that take away the last one, and keeps those
    that it has; the other process uses them.
    """
    rules = fleet_folder / "hba"
    rules.write_text("host all +staff 127.0.0.2/32 reject\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n")
    able, unable = start(), start(of_app="auth_user=postgres", auth_type="hba", auth_hba_file=machine.give_to_service(rules))
    etcd.put(f"{PREFIX}databases/early", entry)
    for pooler in (able, unable):
        follows(pooler, "early")
    etcd.put(f"{PREFIX}databases/app", "removed")
    follows(able, "app", False)
    unable.expect_log("none of the entries in etcd is used")
    etcd.put(f"{PREFIX}databases/late", entry)
    follows(able, "late")
    machine.wait_until(lambda: unable.log().count("none of the entries in etcd is used") == 2, 10, "they were read again")
    assert "auth_hba_file" in unable.log() or str(rules) in unable.log()
    assert serves(unable, "app") and serves(unable, "early") and not serves(unable, "late")
    assert "early" in kept(unable) and "late" not in kept(unable)
    assert scrape(unable.http).value("pgweir_config_etcd_refused") == 1
    with unable.raw(dbname="app") as client:
        assert client.value("SELECT 7") == "7"
    etcd.delete(f"{PREFIX}databases/app")
    follows(unable, "late")


def test_without_etcd_the_last_entries_stay(start, etcd, entry):  # noqa: F811 (a fixture)
    pooler = start()
    etcd.put(f"{PREFIX}databases/shop", entry)
    follows(pooler, "shop")
    machine.wait_until(lambda: "shop" in kept(pooler), 5, "the file has the entry")
    etcd.stop()
    pooler.expect_log("the last correct entries stay in force")
    assert serves(pooler, "shop")
    answer = Api(pooler).ask("/config/databases/more?save=true", "PUT", {"host": "127.0.0.1"})
    assert answer.status == 503 and "etcd" in answer.json["detail"]
    # A start needs no etcd.
    pooler.signal(signal.SIGINT)
    pooler.wait_end()
    pooler.spawn().listening()
    pooler.ended = False
    assert serves(pooler, "shop")
    etcd.start()
    etcd.put(f"{PREFIX}databases/new", entry)
    follows(pooler, "new")


@pytest.mark.shows("config_etcd_timeout")
def test_a_connection_that_is_cut(start, etcd, entry):  # noqa: F811 (a fixture)
    """Nothing tells pgweir that the connection no longer works."""
    proxy = Proxy(etcd.port)
    try:
        pooler = start(config_etcd=f"http://127.0.0.1:{proxy.port}")
        etcd.put(f"{PREFIX}databases/shop", entry)
        follows(pooler, "shop")
        proxy.cut()
        pooler.expect_log("the last correct entries stay in force", 10)
        etcd.put(f"{PREFIX}databases/new", entry)
        assert serves(pooler, "shop") and not serves(pooler, "new")
        proxy.restore()
        follows(pooler, "new")
    finally:
        proxy.stop()


def test_reload_keeps_the_entries(start, etcd, entry):  # noqa: F811 (a fixture)
    pooler = start()
    etcd.put(f"{PREFIX}databases/shop", entry)
    follows(pooler, "shop")
    machine.wait_until(lambda: "shop" in kept(pooler), 5, "the file has the entry")
    pooler.console("RELOAD")
    assert serves(pooler, "shop")
    pooler.entries_file.unlink()
    pooler.console("RELOAD")
    follows(pooler, "shop")
    machine.wait_until(lambda: "shop" in kept(pooler), 5, "the file has the entry again")


def test_an_emptied_etcd_removes_nothing(start, etcd, entry):  # noqa: F811 (a fixture)
    pooler = start()
    etcd.put(f"{PREFIX}databases/shop", entry)
    follows(pooler, "shop")
    etcd.delete(f"{PREFIX}databases/shop")
    pooler.expect_log("etcd has none of the keys that were there")
    assert serves(pooler, "shop")
    # Whoever removes the last entry by the API means it.
    assert Api(pooler).ask("/config/databases/shop?save=true", "DELETE").status == 200
    assert not serves(pooler, "shop")


def test_passwords_stay_out_of_etcd(start, etcd):  # noqa: F811 (a fixture)
    pooler = start()
    answer = Api(pooler).ask("/config/databases/shop?save=true", "PUT", {"host": "127.0.0.1", "password": "hidden"})
    assert answer.status == 422 and "auth_file" in answer.json["detail"]
    assert etcd.post("/v3/kv/range", f"{PREFIX}databases/shop").get("kvs") is None
    # Without etcd, in this process alone.
    assert Api(pooler).ask("/config/databases/shop", "PUT", {"host": "127.0.0.1", "password": "hidden"}).status == 200


def test_a_wrong_entry_is_repaired_by_the_api(start, etcd):  # noqa: F811 (a fixture)
    pooler = start()
    etcd.put(f"{PREFIX}databases/app", "host=here pool_size=many")
    pooler.expect_log("none of the entries in etcd is used")
    assert Api(pooler).ask("/config/databases/app?save=true", "PATCH", {"pool_size": 7}).status == 200
    assert setting(pooler, "app", "pool_size") == "7"


def test_no_change_is_lost_between_two_processes(start, etcd, entry):  # noqa: F811 (a fixture)
    """Each change that was accepted is in etcd; one that another one has overtaken is refused."""
    one, other = start(), start()
    etcd.put(f"{PREFIX}databases/shop", entry)
    follows(one, "shop")
    follows(other, "shop")

    def change(number):
        path = f"/config/databases/shop/hosts/10.0.0.{number}?save=true"
        return number, Api((one, other)[number % 2]).ask(path, "PUT").status

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(change, range(1, 17)))
    assert {status for _, status in statuses} <= {200, 409}
    accepted = {f"10.0.0.{number}" for number, status in statuses if status == 200}
    assert accepted
    for pooler in (one, other):
        machine.wait_until(lambda: accepted <= set(setting(pooler, "shop", "host").split(",")), 10, "all are there")


def test_config_etcd_needs_api_config_file(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, config_etcd="http://127.0.0.1:2379")
    pooler.write_files()
    assert pooler.spawn().wait_end() == 1
    assert "api_config_file, the file for the last correct entries" in pooler.log()
