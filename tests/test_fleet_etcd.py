"""Several poolers share one limit on server connections by demand, through a real etcd."""

import shutil
import signal
import ssl
import threading
import time

import pytest

import certs
import machine
from etcd import Etcd
from fleetfixtures import BUDGET, FLOOR, LEASE
from httpfixtures import http_port  # noqa: F401 (a fixture)
from scraping import scrape

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer has no limit over several processes"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full"),
]

class Sampler:
    """Counts the backends in PostgreSQL every 50 ms, and remembers the maximum."""

    def __init__(self, pg):
        self.most, self.samples = 0, 0
        self._pg = pg
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename = 'trusty'"
        with self._pg.connect() as db:
            while not self._ends.wait(0.05):
                self.most = max(self.most, db.execute(query).fetchone()[0])
                self.samples += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join(10)


def reaches(node, count, seconds):
    begun = time.monotonic()
    machine.wait_until(lambda: node.servers >= count, seconds, f"{count} servers ({node.pooler.log_path})")
    return time.monotonic() - begun


@pytest.mark.shows("fleet_etcd", "fleet_floor", "fleet_lease")
def test_shares_follow_demand_and_never_exceed_the_limit(start_node, fleet_pg, load_script):
    nodes = [start_node() for _ in range(3)]
    with Sampler(fleet_pg) as sampler:
        # A node that has just started takes no servers above its floor before it has counted the backends.
        for node in nodes[1:]:
            node.load(60, load_script)
            reaches(node, 40, 15)
            node.relax()
        nodes[0].load(60, load_script)
        reaches(nodes[0], 40, 15)
        times = []
        for before, after in zip(nodes, nodes[1:] + nodes[:1]):
            before.relax()
            after.load(60, load_script)
            times.append(reaches(after, 40, 15))
    assert sampler.most <= BUDGET
    assert max(times) <= 2, times


def test_sessions_of_a_node_that_has_just_started_belong_to_it(start_node, etcd, load_script):
    nodes = [start_node() for _ in range(2)]
    for node in nodes:
        node.load(20, load_script)
    reserved = set()
    def have_shares():
        values = [value for key, value in etcd.keys().items() if "/node/" in key]
        reserved.update(source for value in values if not value["version"] for source in value["sources"])
        return sum(value["extra"] > 10 for value in values) == 2
    machine.wait_until(have_shares, 20, "both have their shares")
    assert not reserved & {"127.0.1.1", "127.0.1.2"}


def _disturb(nodes, fleet_pg, script, pause):
    """Kills, stops and cuts off nodes under changing load. Returns the sampler."""
    one, two, three = nodes
    # Transactions are long, so that servers above the limit would be seen before they are closed.
    script.write_text("SELECT pg_sleep(0.3);\n")
    with Sampler(fleet_pg) as sampler:
        def is_within():
            return sampler.most <= BUDGET
        two.load(40, script)
        three.load(40, script)
        reaches(two, 15, 15)
        # Stopped for longer than a lease, with all its servers open: no other node uses them.
        two.pooler.signal(signal.SIGSTOP)
        two.relax()
        one.load(60, script)
        machine.stays_true(is_within, pause + 2 * LEASE, "the limit holds")
        two.pooler.signal(signal.SIGCONT)
        reaches(one, 18, 15)
        # Cut off from etcd: the node falls back to its floor, and the others get the rest.
        three.to_etcd.cut()
        machine.wait_until(lambda: three.servers <= FLOOR, 5 * LEASE, "the node has its floor")
        two.load(40, script)
        machine.stays_true(is_within, pause, "the limit holds")
        three.to_etcd.restore()
        reaches(three, 15, 20)
        # Killed: the others get its servers.
        one.pooler.signal(signal.SIGKILL)
        one.pooler.wait_end()
        one.relax()
        machine.wait_until(lambda: two.servers + three.servers >= BUDGET - FLOOR - 5, 20, "the servers of the killed node are used")
        machine.stays_true(is_within, pause, "the limit holds")
    return sampler


def test_the_limit_holds_when_nodes_die_stop_or_are_cut_off(start_node, fleet_pg, load_script):
    nodes = [start_node() for _ in range(3)]
    sampler = _disturb(nodes, fleet_pg, load_script, 0)
    assert sampler.most <= BUDGET, sampler.samples


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_limit_holds_for_a_long_time(start_node, fleet_pg, load_script):
    nodes = [start_node() for _ in range(3)]
    for _ in range(5):
        sampler = _disturb(nodes, fleet_pg, load_script, 4)
        assert sampler.most <= BUDGET, sampler.samples
        nodes[0] = start_node()


def falls_back(node, text):
    """Waits until the node has its floor, and checks that it logs the reason once."""
    node.pooler.expect_log(text)
    node.pooler.expect_log("the lease has ended: this node has its floor of 5 servers", 3 * LEASE)
    machine.wait_until(lambda: node.servers <= FLOOR, 5, "the node has its floor")
    machine.stays_true(lambda: node.pooler.log().count("WARNING fleet") == 2, LEASE, "it says so once")
    # Clients are still served.
    assert node.pooler.raw().query("SELECT 7")


def test_while_etcd_is_gone_each_node_has_its_floor(start_node, etcd, load_script):
    node = start_node()
    node.load(20, load_script)
    reaches(node, 20, 15)
    etcd.pause()
    falls_back(node, "etcd: no answer within 0.4 s")
    etcd.resume()
    reaches(node, 20, 15)
    node.pooler.expect_log("etcd answers again")
    etcd.stop()
    machine.wait_until(lambda: node.servers <= FLOOR, 10, "the node has its floor")
    assert node.pooler.raw().query("SELECT 7")
    etcd.start()
    reaches(node, 20, 15)


def test_a_connection_to_etcd_may_take_longer_than_a_request(start_node, load_script):
    node = start_node()
    node.load(20, load_script)
    reaches(node, 20, 15)
    # Each new connection takes longer than `fleet_lease`, as with a slow check of the password.
    node.to_etcd.delay = 1.5 * LEASE
    node.to_etcd.drop()
    machine.wait_until(lambda: node.servers <= FLOOR, 5 * LEASE, "the node has its floor")
    reaches(node, 20, 30)


@pytest.mark.parametrize("key", ["node/0000000000000007", "other", "free"])
def test_garbage_in_a_key_costs_the_lease_and_no_more(start_node, etcd, load_script, key):
    node = start_node()
    node.load(20, load_script)
    reaches(node, 20, 15)
    key = f"/pgweir/pgweir/{key}"
    before = etcd.post("/v3/kv/range", key)
    etcd.put(key, '{"extra": "\u0000"')
    falls_back(node, f"etcd: the key {key} has a value that pgweir does not understand")
    etcd.delete(key)
    reaches(node, 20, 15)
    assert before is not None


def test_nodes_with_other_settings_have_their_floors(start_node, load_script):
    start_node()
    other = start_node(max_server_conn=90)
    other.pooler.expect_log("the fleet has other values of max_server_conn, fleet_nodes, fleet_floor or fleet_lease", 20)
    other.load(20, load_script)
    machine.stays_true(lambda: other.servers <= FLOOR, 2 * LEASE, "the node has its floor")


def test_the_console_and_metrics_show_the_fleet(start_node, http_port, load_script):  # noqa: F811 (a fixture)
    node, other = start_node(http_listen=f"127.0.0.1:{http_port}"), start_node()
    for one in (node, other):
        one.load(8, load_script)
        reaches(one, 8, 15)
    def shown():
        return {row["state"]: row for row in node.pooler.console("SHOW FLEET")}

    # Before a node has recorded its address, its sessions count as those of an unknown node.
    def is_complete():
        rows = shown()
        return rows.keys() == {"this", "active"} and all(row["addresses"] and row["share"] >= 8 for row in rows.values())

    machine.wait_until(is_complete, 15, "both are known")
    rows = shown()
    for state, number in (("this", 1), ("active", 2)):
        row = rows[state]
        assert (row["addresses"], row["version"]) == (f"127.0.1.{number}", rows["this"]["version"])
        assert row["extra"] >= 3 and row["last_contact"]
    metrics = scrape(http_port)
    assert metrics.value("pgweir_server_connections_limit") >= 8
    assert metrics.value("pgweir_fleet_floor") == FLOOR
    assert metrics.value("pgweir_fleet_nodes", state="active") == 1
    assert metrics.value("pgweir_fleet_reserved_connections") == 0
    assert metrics.value("pgweir_fleet_lease_age_seconds") < LEASE
    assert metrics.value("pgweir_fleet_etcd_errors_total") == 0
    # A lost node's servers are reserved while PostgreSQL has them.
    other.pooler.signal(signal.SIGSTOP)
    machine.wait_until(lambda: "lost" in shown(), 10, "the node is lost")
    assert 3 <= shown()["lost"]["extra"] <= 8
    other.pooler.signal(signal.SIGCONT)


@pytest.mark.shows("fleet_name")
def test_fleets_with_different_names_share_nothing(start_node, etcd, load_script):
    for name in ("a", "b"):
        node = start_node(fleet_name=name, fleet_nodes=1, max_server_conn=20, server_idle_timeout=0.5)
        node.load(30, load_script)
        reaches(node, 20, 15)
        node.relax()
        # A node that starts reserves servers for sessions that belong to no known node.
        machine.wait_until(lambda: node.servers == 0, 5, "the servers are closed")
    keys = etcd.keys()
    assert {key.split("/")[2] for key in keys} == {"a", "b"}
    assert [keys[f"/pgweir/{name}/free"]["max_server_conn"] for name in "ab"] == [20, 20]


def test_a_full_etcd(start_node, fleet_folder, load_script):
    full = Etcd(_made(fleet_folder / "full"), "--quota-backend-bytes", "200000").start()
    try:
        node = start_node(fleet_etcd=full.url)
        node.load(20, load_script)
        reaches(node, 20, 15)
        while full.post("/v3/kv/put", "/big", "x" * 100_000) is not None:
            pass
        falls_back(node, "database space exceeded")
    finally:
        full.remove()


def _made(folder):
    folder.mkdir()
    return folder


@pytest.mark.shows("fleet_etcd_auth_file")
def test_etcd_with_passwords(start_node, etcd, fleet_folder, load_script):
    for path, body in (
        ("user/add", {"name": "root", "password": "r"}), ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "fleet"}), ("user/add", {"name": "weir", "password": "se:cret"}),
        ("role/grant", {"name": "fleet", "perm": {"permType": "READWRITE", "key": "L3Bnd2Vpci8=", "range_end": "L3Bnd2VpcjA="}}),
        ("user/grant", {"user": "weir", "role": "fleet"}), ("enable", {}),
    ):
        assert etcd.request(f"/v3/auth/{path}", body)[0] == 200, path
    nodes = []
    for password in ("se:cret", "wrong"):
        path = fleet_folder / password.replace(":", "")
        path.write_text(f"weir:{password}\n")
        path.chmod(0o600)
        nodes.append(start_node(fleet_etcd_auth_file=machine.give_to_service(path)))
    good, bad = nodes
    good.load(20, load_script)
    reaches(good, 20, 30)
    # etcd checks passwords slowly on purpose.
    bad.pooler.expect_log("authentication failed, invalid user ID or password", 30)
    assert bad.pooler.log().count("authentication failed") == 1
    assert "wrong" not in bad.pooler.log() and "se:cret" not in good.pooler.log()
    bad.load(20, load_script)
    machine.stays_true(lambda: bad.servers <= FLOOR, LEASE, "the node has its floor")


@pytest.mark.shows("fleet_etcd_tls_ca_file", "fleet_etcd_tls_cert_file", "fleet_etcd_tls_key_file")
def test_etcd_with_tls(start_node, fleet_folder, load_script):
    folder = machine.give_to_service(_made(fleet_folder / "tls"))
    ours, others = certs.Authority(folder, "ours"), certs.Authority(folder, "others")
    site, client = ours.issue("etcd", names=["IP:127.0.0.1"]), ours.issue("node")
    context = ssl.create_default_context(cafile=ours.cert)
    context.load_cert_chain(client.cert, client.key)
    secure = Etcd(folder, "--cert-file", site.cert, "--key-file", site.key, "--client-cert-auth",
                  "--trusted-ca-file", ours.cert, tls=context).start()
    try:
        settings = {"fleet_etcd": secure.url, "fleet_etcd_tls_cert_file": client.cert, "fleet_etcd_tls_key_file": client.key}
        node = start_node(fleet_etcd_tls_ca_file=ours.cert, **settings)
        node.load(20, load_script)
        reaches(node, 20, 15)
        stranger = start_node(fleet_etcd_tls_ca_file=others.cert, **settings)
        stranger.pooler.expect_log("WARNING fleet pgweir: etcd: https://127.0.0.1", 20)
        stranger = start_node(fleet_etcd_tls_ca_file=ours.cert, fleet_etcd=secure.url)
        stranger.pooler.expect_log("WARNING fleet pgweir: etcd: https://127.0.0.1", 20)
    finally:
        secure.remove()
