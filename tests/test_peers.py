"""Several processes share a port: a process passes a cancel request on to the process that has the client."""

import struct

import pytest

import machine
import rawclient as wire
from rawclient import query

pytestmark = [pytest.mark.pgweir_only("PgBouncer 1.18 knows no peers"), pytest.mark.usefixtures("nothing_runs")]

CANCELED = ("57014", "canceling statement due to user request")
SLEEP = "SELECT pg_sleep(30)"


@pytest.fixture
def start_peers(new_pooler, newest_pg):
    """Starts processes that share a port, and know each other by their Unix sockets."""

    def start(*numbers, known=None, size="", **settings):
        first = new_pooler(newest_pg, so_reuseport=1, **settings)
        rest = [new_pooler(newest_pg, port=first.port, so_reuseport=1, **settings)
                for _ in numbers[1:]]
        group = dict(zip(numbers, [first, *rest]))
        for number, pooler in group.items():
            pooler.settings["peer_id"] = number
            pooler.peers = {
                other: f"host={peer.folder} port={first.port}{size}"
                for other, peer in group.items() if known is None or other in known
            }
            pooler.start()
        return list(group.values())

    return start


def client_of(pooler, **login):
    client = wire.RawClient.unix(pooler.unix_path)
    client.login("trusty", "app", **login)
    return client


def ask(pooler, pid, secret):
    """Sends a cancel request to this very process, and waits for its end."""
    with wire.RawClient.unix(pooler.unix_path) as other:
        other.send(wire.cancel(pid, secret))
        assert other.rest() == []


def begin_sleep(pg, client):
    client.send(query(SLEEP))
    machine.wait_until(lambda: pg.running(SLEEP), what="it runs")


@pytest.mark.shows("peer_id", "peer.host", "peer.port")
@pytest.mark.parametrize("number", [2, 300, 16383])
def test_a_cancel_request_is_passed_on(start_peers, newest_pg, workers, number):
    home, other = start_peers(number, 1, workers=workers)
    with client_of(home) as client:
        for _ in range(3):
            begin_sleep(newest_pg, client)
            ask(other, client.pid, client.secret)
            assert wire.errors(client.until_ready()) == [CANCELED]
        begin_sleep(newest_pg, client)
        ask(home, client.pid, client.secret)
        assert wire.errors(client.until_ready()) == [CANCELED]


def test_keys_as_pgbouncer_has_them(start_peers):
    """Peer in the second and third byte, low byte first; three hops in the last two bits."""
    home, _ = start_peers(0x1234, 1)
    for version in (wire.PROTOCOL_3_0, wire.PROTOCOL_3_2):
        with client_of(home, version=version) as client:
            key = struct.pack("!I", client.pid) + client.secret
            assert len(key) == 8 and key[0] < 0x80
            assert (key[1], key[2], key[7] & 3) == (0x34, 0x12, 3)


def test_a_request_without_hops_left_is_not_passed_on(start_peers, newest_pg):
    home, other = start_peers(7, 8)
    with client_of(home) as client:
        begin_sleep(newest_pg, client)
        spent = client.secret[:3] + bytes([client.secret[3] & ~3])
        ask(other, client.pid, spent)
        other.expect_log("failed to forward cancel request because its TTL was exhausted")
        client.quiet(0.2)
        # One hop is left, which takes the request to the process of the client.
        ask(other, client.pid, client.secret[:3] + bytes([client.secret[3] & ~3 | 1]))
        assert wire.errors(client.until_ready()) == [CANCELED]


def test_wrong_key_of_a_peer(start_peers, newest_pg):
    home, other = start_peers(7, 8)
    with client_of(home) as client:
        begin_sleep(newest_pg, client)
        ask(other, client.pid, bytes([client.secret[0] ^ 1]) + client.secret[1:])
        home.expect_log("failed cancel request")
        ask(other, 0x7F00FF00 | client.pid & 0xFF, client.secret)
        other.expect_log("could not find peer to forward request to")
        client.quiet(0.2)
        client.cancel()
        client.until_ready()


def test_peers_come_with_reload(start_peers, newest_pg):
    home, other = start_peers(7, 8, known=())
    with client_of(home) as client:
        begin_sleep(newest_pg, client)
        ask(other, client.pid, client.secret)
        other.expect_log("could not find peer to forward request to")
        other.peers = {7: f"host={home.folder} port={home.port}"}
        other.write_files()
        password = other.users["admin"]
        with other.connect("admin", "pgbouncer", host=str(other.folder), password=password) as db:
            db.execute("RELOAD")
        ask(other, client.pid, client.secret)
        assert wire.errors(client.until_ready()) == [CANCELED]


@pytest.mark.shows("peer.pool_size")
def test_pool_size_of_a_peer_limits_requests(start_peers, new_pooler, newest_pg, start_server):
    """A peer that does not answer gets as many requests as its pool_size allows; the others wait."""
    unresponsive = start_server(lambda connection: connection.rest())
    pooler = new_pooler(newest_pg, peer_id=1, cancel_wait_timeout=3)
    pooler.peers = {2: f"host=127.0.0.1 port={unresponsive.port} pool_size=2"}
    pooler.start()
    columns = ("peer_id", "host", "port", "pool_size")
    assert [tuple(row[c] for c in columns) for row in pooler.console("SHOW PEERS")] == [
        (2, "127.0.0.1", unresponsive.port, 2)]
    asking = [wire.RawClient.unix(pooler.unix_path) for _ in range(5)]
    for number, one in enumerate(asking):
        one.send(wire.cancel(2 << 16 | number, b"abc\x03"))

    def row():
        return tuple(pooler.console("SHOW PEER_POOLS")[0].values())

    machine.wait_until(lambda: row() == (2, 2, 3, 2, 0), what="two are on their way")
    asking[0].sock.settimeout(20)
    for one in asking:
        assert one.rest() == []
    assert row() == (2, 0, 0, 0, 0)
    assert "cancel_wait_timeout" in pooler.log()
