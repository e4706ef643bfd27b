"""Faults of etcd, of its credentials and of clocks: a fleet never exceeds its limit, and logs each fault in one line."""

import os
import shutil
import signal
import ssl

import pytest

import certs
import machine
from etcd import Etcd, Members
from fleetfixtures import BUDGET, FLOOR, LEASE
from test_fleet_etcd import Sampler, reaches

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer has no limit over several processes"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full"),
    pytest.mark.full,
]


@pytest.fixture
def load_script(fleet_folder):
    """Long transactions, so that a node needs all of its servers at each moment, also on a busy machine."""
    path = fleet_folder / "load.sql"
    path.write_text("SELECT pg_sleep(0.3);\n")
    return path


def test_slow_answers_cost_no_lease(start_node, load_script):
    node = start_node()
    node.load(20, load_script)
    reaches(node, 20, 15)
    # A request may take 0.4 s.
    node.to_etcd.lag = 0.03
    machine.stays_true(lambda: node.servers >= 15, 3 * LEASE, "the node keeps its share")
    assert "WARNING fleet" not in node.pooler.log()


def test_members_of_etcd_fail(start_node, fleet_folder, load_script):
    """With one of three members stopped, nodes use another one. Without a majority, each has its floor."""
    members = Members(fleet_folder, 3).start()
    try:
        first, *others = members.members
        node = start_node(fleet_etcd=members.urls)
        node.load(20, load_script)
        reaches(node, 20, 15)
        first.pause()
        node.pooler.expect_log("etcd answers again", 5 * LEASE)
        machine.stays_true(lambda: node.servers >= 15, 2 * LEASE, "the node keeps its share")
        assert "the lease has ended" not in node.pooler.log()
        # The last member that runs is cut off from the majority.
        others[0].pause()
        node.pooler.expect_log("the lease has ended: this node has its floor of 5 servers", 5 * LEASE)
        machine.wait_until(lambda: node.servers <= FLOOR, 5, "the node has its floor")
        assert node.pooler.raw().query("SELECT 7")
        first.resume()
        others[0].resume()
        reaches(node, 20, 30)
    finally:
        members.remove()


def test_etcd_is_restored_from_an_old_copy(start_node, fleet_pg, etcd, load_script):
    one, two, three = [start_node() for _ in range(3)]
    with Sampler(fleet_pg) as sampler:
        one.load(60, load_script)
        reaches(one, 40, 15)
        etcd.stop()
        etcd.save()
        etcd.start()
        # The share moves to another node. The copy says that the first one still has it.
        one.relax()
        two.load(60, load_script)
        reaches(two, 40, 30)
        etcd.stop()
        etcd.go_back()
        etcd.start()
        three.load(60, load_script)
        # Both want all servers: each gets its part of them.
        reaches(three, 20, 30)
        reaches(two, 20, 10)
        # A node that the copy does not know.
        etcd.stop()
        etcd.go_back()
        two.pooler.signal(signal.SIGKILL)
        two.pooler.wait_end()
        two.relax()
        etcd.start()
        four = start_node()
        four.load(60, load_script)
        reaches(four, 20, 60)
    assert sampler.most <= BUDGET
    assert sampler.samples > 100


def test_a_password_is_no_longer_valid(start_node, etcd, fleet_folder, load_script):
    def change(path, body, token=None):
        status, answer = etcd.request(f"/v3/auth/{path}", body, token)
        assert status == 200, (path, answer)
        return answer
    for path, body in (
        ("user/add", {"name": "root", "password": "r"}), ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "fleet"}), ("user/add", {"name": "weir", "password": "first"}),
        ("role/grant", {"name": "fleet", "perm": {"permType": "READWRITE", "key": "L3Bnd2Vpci8=", "range_end": "L3Bnd2VpcjA="}}),
        ("user/grant", {"user": "weir", "role": "fleet"}), ("enable", {}),
    ):
        change(path, body)
    path = fleet_folder / "auth"
    path.write_text("weir:first\n")
    path.chmod(0o600)
    node = start_node(fleet_etcd_auth_file=machine.give_to_service(path))
    node.load(20, load_script)
    reaches(node, 20, 30)
    before = node.pooler.log().count("WARNING fleet")
    token = change("authenticate", {"name": "root", "password": "r"})["token"]
    change("user/changepw", {"name": "weir", "password": "second"}, token)
    node.pooler.expect_log("authentication failed, invalid user ID or password", 30)
    node.pooler.expect_log("the lease has ended: this node has its floor of 5 servers", 10 * LEASE)
    machine.wait_until(lambda: node.servers <= FLOOR, 5, "the node has its floor")
    machine.stays_true(lambda: node.pooler.log().count("WARNING fleet") <= before + 3, 2 * LEASE, "it does not repeat that")
    assert "first" not in node.pooler.log()
    assert node.pooler.raw().query("SELECT 7")
    token = change("authenticate", {"name": "root", "password": "r"})["token"]
    change("user/changepw", {"name": "weir", "password": "first"}, token)
    reaches(node, 20, 60)
    node.pooler.expect_log("etcd answers again")


def test_a_certificate_has_expired(start_node, fleet_folder, load_script):
    folder = fleet_folder / "tls"
    folder.mkdir()
    machine.give_to_service(folder)
    ours = certs.Authority(folder, "ours")
    site, good, old = ours.issue("etcd", names=["IP:127.0.0.1"]), ours.issue("node"), ours.issue("old", expired=True)
    context = ssl.create_default_context(cafile=ours.cert)
    context.load_cert_chain(good.cert, good.key)
    secure = Etcd(folder, "--cert-file", site.cert, "--key-file", site.key, "--client-cert-auth",
                  "--trusted-ca-file", ours.cert, tls=context).start()
    try:
        node = start_node(fleet_etcd=secure.url, fleet_etcd_tls_ca_file=ours.cert, fleet_etcd_tls_cert_file=old.cert,
                          fleet_etcd_tls_key_file=old.key)
        node.pooler.expect_log("WARNING fleet pgweir: etcd: https://127.0.0.1", 20)
        node.load(20, load_script)
        machine.stays_true(lambda: node.servers <= FLOOR, 2 * LEASE, "the node has its floor")
        assert 1 <= node.pooler.log().count("WARNING fleet") <= 2
    finally:
        secure.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="a clock of its own needs root")
def test_clocks_that_differ(start_node, fleet_pg, load_script):
    """The clocks of the nodes differ by days. Shares move, and the servers of a killed node become free, as ever."""
    one, two, three = (start_node(clock_offset) for clock_offset in (0, 86_400, 40 * 86_400))
    with Sampler(fleet_pg) as sampler:
        one.load(60, load_script)
        reaches(one, 40, 15)
        one.relax()
        two.load(60, load_script)
        assert reaches(two, 40, 10) <= 2
        two.pooler.signal(signal.SIGKILL)
        two.pooler.wait_end()
        two.relax()
        three.load(60, load_script)
        reaches(three, 40, 30)
    assert sampler.most <= BUDGET
