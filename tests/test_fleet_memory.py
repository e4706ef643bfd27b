"""The memory of a node for each client and each database, for the figures in docs/design/fleet.md. Run it with `--full -s`."""

import pytest

import machine

pytestmark = [pytest.mark.pgweir_only("the figures are those of pgweir"), pytest.mark.full, pytest.mark.timeout(900)]

CLIENTS, DATABASES, POOLS = 8_000, 10_000, 2_000


def _databases(pg, count):
    return {f"tenant{number}": f"host={pg.host} port={pg.port} dbname=app" for number in range(count)}


def test_memory_of_clients_and_databases(start_pooler, newest_pg):
    common = {"max_client_conn": 2 * CLIENTS, "max_server_conn": 20, "server_idle_timeout": 1, "log_connections": 0, "log_disconnections": 0}
    pooler = start_pooler(newest_pg, databases=_databases(newest_pg, 1), **common)
    pooler.raw(dbname="tenant0").query("SELECT 1")
    before = pooler.memory_kb()
    clients = [pooler.raw(dbname="tenant0") for _ in range(CLIENTS)]
    per_client = (pooler.memory_kb() - before) / CLIENTS
    for client in clients:
        client.close()
    # An entry of [databases], without and with a pool.
    other = start_pooler(newest_pg, databases=_databases(newest_pg, DATABASES), **common)
    per_entry = (other.memory_kb() - before) / DATABASES
    without_pools = other.memory_kb()
    clients = [other.raw(dbname=f"tenant{number}") for number in range(POOLS)]
    machine.wait_until(lambda: len(other.console("SHOW SERVERS")) == 0, 60, "the servers are closed")
    per_pool = (other.memory_kb() - without_pools) / POOLS - per_client
    print(f"\na process with one client: {before / 1024:.1f} MB; for each idle client {per_client:.2f} kB, "
          f"for each entry of [databases] {per_entry:.2f} kB, for each pool {per_pool:.2f} kB")
    for client in clients:
        client.close()
    assert 0 < per_client < 8 and 0 < per_entry < 8 and 0 < per_pool < 40
