"""The nodes of a fleet find each other through etcd: a node passes a cancel request on to the node that has the client.
"""

import shutil
import signal

import pytest

import machine
import rawclient as wire
from fleetfixtures import LEASE
from rawclient import query
from restarting import Line

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer does not know etcd"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full"),
]

CANCELED = ("57014", "canceling statement due to user request")
SLEEP = "SELECT pg_sleep(60)"
# etcd searches for expired leases each half second, and later on a busy machine.
GONE_WITHIN = 5 * LEASE


@pytest.fixture
def start_peer(start_node):
    """Starts nodes with a `peer_id`, and waits until each is registered."""
    def start(peer_id, **settings):
        node = start_node(peer_id=peer_id, fleet_address="127.0.0.1", **settings)
        node.pooler.expect_log(f"registered as peer {peer_id} at 127.0.0.1:{node.pooler.port}", 10)
        return node
    return start


def _peers(node):
    """The peers that a node knows, with their ports."""
    return {row["peer_id"]: row["port"] for row in node.pooler.console("SHOW PEERS")}


def _knows(node, *peers, seconds=GONE_WITHIN):
    """Waits until the node knows exactly these peers, by number and node."""
    wanted = {number: other.pooler.port for number, other in peers}
    machine.wait_until(lambda: _peers(node) == wanted, seconds, f"{node.pooler.log_path} knows {wanted}")


def _cancels(pg, home, asked, times=1):
    """Checks that a cancel request to `asked` cancels a query of a client of `home`."""
    with home.pooler.raw() as client:
        for _ in range(times):
            client.send(query(SLEEP))
            machine.wait_until(lambda: pg.running(SLEEP), what="it runs")
            _ask(asked, client)
            assert wire.errors(client.until_ready()) == [CANCELED]


def _ask(node, client):
    with wire.RawClient.tcp(node.pooler.host, node.pooler.port) as other:
        other.send(wire.cancel(client.pid, client.secret))
        assert other.rest() == []


@pytest.mark.shows("fleet_address")
def test_a_cancel_request_finds_the_node_of_its_client(start_peer, fleet_pg):
    one, two, three = start_peer(300), start_peer(2), start_peer(16383)
    _knows(one, (2, two), (16383, three))
    _knows(two, (300, one), (16383, three))
    for home, asked in ((one, two), (two, one), (three, one), (one, one)):
        _cancels(fleet_pg, home, asked, 3)
    shown = [row["source"] for row in two.pooler.console("SHOW PEERS")]
    assert shown == ["fleet_etcd"] * 2
    lists = {row["list"]: row["items"] for row in two.pooler.console("SHOW LISTS")}
    assert (lists["peers"], lists["peer_pools"]) == (2, 2)
    assert [row["peer_id"] for row in two.pooler.console("SHOW PEER_POOLS")] == [300, 16383]


def test_a_node_that_is_gone(start_peer, fleet_pg):
    one, two = start_peer(7), start_peer(8, log_disconnections=1)
    _knows(two, (7, one))
    with one.pooler.raw() as client:
        one.pooler.signal(signal.SIGKILL)
        one.pooler.wait_end()
        # Until its lease in etcd is over, it can't be reached; then it is unknown.
        _ask(two, client)
        _knows(two)
        _ask(two, client)
        two.pooler.expect_log("could not find peer to forward request to")
    # Another node, with another address, is its successor.
    again = start_peer(7)
    _knows(two, (7, again))
    _cancels(fleet_pg, again, two)


def test_a_node_that_is_stopped_comes_back(start_peer, fleet_pg):
    one, two = start_peer(7), start_peer(8)
    _knows(two, (7, one))
    one.pooler.signal(signal.SIGSTOP)
    _knows(two)
    one.pooler.signal(signal.SIGCONT)
    _knows(two, (7, one))
    _cancels(fleet_pg, one, two)


def test_without_etcd_the_last_known_nodes_stay(start_peer, fleet_pg, etcd):
    one, two = start_peer(7), start_peer(8)
    _knows(two, (7, one))
    etcd.stop()
    two.pooler.expect_log("etcd: ", 10)
    machine.stays_true(lambda: _peers(two) == {7: one.pooler.port}, 2 * LEASE, "the peer is known")
    _cancels(fleet_pg, one, two)
    etcd.start()
    two.pooler.expect_log("etcd answers again", 15)
    machine.stays_true(lambda: _peers(two) == {7: one.pooler.port}, 2 * LEASE, "the peer is known")
    # A deleted key is written again.
    etcd.delete("/pgweir/pgweir/peer/7")
    machine.wait_until(lambda: one.pooler.log().count("registered as peer 7") > 1, 10, "it is registered again")
    _knows(two, (7, one))
    _cancels(fleet_pg, one, two)


def _owner(etcd, number):
    return etcd.keys()[f"/pgweir/pgweir/peer/{number}"]["port"]


def test_two_nodes_with_one_peer_id(start_peer, start_node, fleet_pg, etcd):
    one = start_peer(7)
    twin = start_node(peer_id=7, fleet_address="127.0.0.1")
    text = (f"this node is not registered as peer 7 at 127.0.0.1:{twin.pooler.port}: "
            f"the node at 127.0.0.1:{one.pooler.port} has this peer_id, too")
    twin.pooler.expect_log(text, 10)
    machine.stays_true(lambda: _owner(etcd, 7) == one.pooler.port, 2 * LEASE, "the first one is registered")
    assert twin.pooler.log().count(text) == 1
    # Another number for the second one.
    twin.pooler.settings["peer_id"] = 9
    twin.pooler.write_files()
    twin.pooler.console("RELOAD")
    _knows(one, (9, twin))
    _cancels(fleet_pg, twin, one)
    # The first one gives its number up, and the second one may have it.
    one.pooler.settings["peer_id"] = 10
    one.pooler.write_files()
    one.pooler.console("RELOAD")
    _knows(twin, (10, one))
    twin.pooler.settings["peer_id"] = 7
    twin.pooler.write_files()
    twin.pooler.console("RELOAD")
    _knows(one, (7, twin))
    assert set(etcd.keys("/pgweir/pgweir/peer/")) == {"/pgweir/pgweir/peer/7", "/pgweir/pgweir/peer/10"}


def test_an_online_restart_takes_the_registration(start_peer, fleet_pg, etcd):
    one, two = start_peer(7, fleet_nodes=4), start_peer(8, fleet_nodes=4)
    _knows(two, (7, one))
    node = etcd.keys()["/pgweir/pgweir/peer/7"]["node"]
    Line(one.pooler).full()
    machine.wait_until(lambda: etcd.keys()["/pgweir/pgweir/peer/7"]["node"] != node, 10, "the new process is registered")
    machine.stays_true(lambda: _peers(two) == {7: one.pooler.port}, 2 * LEASE, "the peer is known")
    assert "has this peer_id, too" not in one.pooler.log()
    _cancels(fleet_pg, one, two)


@pytest.mark.parametrize("key, value", [
    ("9", "x"), ("9", '{"node": "1", "host": "/tmp", "port": 6432}'), ("x\ny", '{"node": "1", "host": "a", "port": 1}'),
    ("9", '{"node": "1", "host": "a b", "port": 6432}'), ("99999999999", '{"node": "1", "host": "a", "port": 1}'),
])
def test_garbage_in_the_key_of_a_peer_is_ignored(start_peer, fleet_pg, etcd, key, value):
    one, two = start_peer(7), start_peer(8)
    _knows(two, (7, one))
    etcd.put(f"/pgweir/pgweir/peer/{key}", value)
    text = "has a value that pgweir does not understand, and is ignored"
    two.pooler.expect_log(text, 10)
    machine.stays_true(lambda: _peers(two) == {7: one.pooler.port}, LEASE, "the peer is known")
    assert two.pooler.log().count(text) == 1
    assert "the lease has ended" not in two.pooler.log()
    assert "\ny" not in two.pooler.log()
    _cancels(fleet_pg, one, two)


def test_an_entry_of_peers_comes_first(start_peer, start_node, fleet_pg):
    one = start_peer(7)
    two = start_node(peer_id=8)
    # The node has no address that others can use, but passes requests on.
    two.pooler.expect_log("this node is not registered as peer 8: set fleet_address", 10)
    _knows(two, (7, one))
    two.pooler.peers = {7: "host=127.0.0.1 port=1 pool_size=3"}
    two.pooler.write_files()
    two.pooler.console("RELOAD")
    assert [tuple(row.values()) for row in two.pooler.console("SHOW PEERS")] == [(7, "127.0.0.1", 1, 3, "peers")]
    two.pooler.peers = {}
    two.pooler.write_files()
    two.pooler.console("RELOAD")
    _knows(two, (7, one))
    _cancels(fleet_pg, one, two)
    assert two.pooler.log().count("set fleet_address") == 1
