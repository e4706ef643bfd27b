"""While a pool has few clients, each keeps its server between transactions."""

import pytest

import machine
import rawclient as wire

# Session state moves between servers.
POOLER_SETTINGS = {"session_state": "transparent"}
BACKEND = "SELECT pg_backend_pid()"


def active(pooler):
    return pooler.pool()["sv_active"]


@pytest.mark.shows("share_after", "database.share_after")
@pytest.mark.parametrize("scope", ["global", "database"])
def test_few_clients_keep_their_servers(start_pooler, newest_pg, workers, scope):
    own, more = ({"share_after": 2}, "") if scope == "global" else ({}, "share_after=2")
    databases = {"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app {more}"}
    pooler = start_pooler(newest_pg, databases=databases, workers=workers, **own)
    one, other = pooler.raw(), pooler.raw()
    for client in (one, other, one):
        client.query("SELECT 1")
    kept = [client.value(BACKEND) for client in (one, other)]
    assert len(set(kept)) == 2 and active(pooler) == 2
    # With a third client, all clients share servers.
    third = pooler.raw()
    machine.wait_until(lambda: active(pooler) == 0, 5, "all servers are free")
    for client in (one, other, third):
        client.query("SELECT 1")
    assert active(pooler) == 0
    third.close()
    machine.wait_until(lambda: one.query("SELECT 1") and active(pooler) == 1, 5, "it is kept again")


@pytest.mark.shows("share_after")
def test_no_client_waits_for_a_kept_server(start_pooler, newest_pg, workers):
    """A kept server makes no client wait: neither if all servers are in use, nor under a cap, nor at a pause. The
    session moves to the next server.
    """
    pooler = start_pooler(newest_pg, share_after=5, default_pool_size=1, max_db_connections=1,
                          query_wait_timeout=3, workers=workers)
    clients = [pooler.raw() for _ in range(3)]
    for n, client in enumerate(clients):
        client.query(f"SET work_mem = '{100 + n}kB'")
    for n, client in enumerate(clients):
        assert client.value("SHOW work_mem") == f"{100 + n}kB"
    other = pooler.raw(user="replicator")
    assert other.value("SELECT 7") == "7"
    assert clients[0].value("SELECT 7") == "7"
    pooler.console("PAUSE app")
    assert active(pooler) == 0
    pooler.console("RESUME app")
    for client in clients:
        client.send(wire.query("SELECT 7"))
    assert {wire.value(client.until_ready()) for client in clients} == {"7"}


@pytest.mark.shows("share_after", "server_lifetime")
def test_pause_and_reconnect_reach_kept_servers(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, share_after=1, client_idle_timeout=30)
    client = pooler.raw()
    first = client.value(BACKEND)
    assert client.value(BACKEND) == first and active(pooler) == 1
    pooler.console("RECONNECT app")
    second = client.value(BACKEND)
    assert second != first
    pooler.console("SET share_after = 0")
    machine.wait_until(lambda: active(pooler) == 0, 5, "it goes back")
    assert client.value(BACKEND) == second
    pooler.console("SET share_after = 1")
    client.query("SELECT 1")
    assert active(pooler) == 1
    pooler.console("SET server_lifetime = 0.1")
    machine.wait_until(lambda: client.value(BACKEND) != second, 5, "it is replaced")


def test_by_default_no_server_is_kept(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    for _ in range(3):
        client.query("SELECT 1")
        assert active(pooler) == 0
