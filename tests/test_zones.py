"""`zone`: a list of hosts of which those in the zone of the process are preferred."""

import contextlib

import psycopg
import pytest

import machine
from etcd import Proxy

pytestmark = pytest.mark.pgweir_only("PgBouncer knows no zones")


@pytest.fixture
def hosts(newest_pg):
    """Two addresses of a server, as two hosts."""
    made = [Proxy(newest_pg.port), Proxy(newest_pg.port)]
    yield made
    for host in made:
        host.stop()


@pytest.fixture
def refusing():
    """A port where nobody listens."""
    port = machine.free_port()
    yield port
    machine.release_port(port)


def ports_in_use(pooler, count=3):
    """Returns the ports of the servers of several clients that have a transaction at the same time."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(pooler.connect()).execute("BEGIN")
        return {row["port"] for row in pooler.console("SHOW SERVERS") if row["database"] == "app"}


@pytest.mark.shows("zone", "database.zone")
@pytest.mark.parametrize("balance", ["round-robin", "disable"])
def test_hosts_of_the_own_zone_are_used_while_one_can_be(start_pooler, newest_pg, hosts, refusing, balance):
    north, south = (host.port for host in hosts)

    def entry(first):
        return f"host=127.0.0.1,127.0.0.1 port={first},{south} dbname=app load_balance_hosts={balance} zone=north,south"

    pooler = start_pooler(newest_pg, databases={"app": entry(north)}, zone="south", server_login_retry=60)
    assert ports_in_use(pooler) == {south}
    pooler.settings["zone"] = "north"
    pooler.write_files()
    pooler.console("RELOAD")
    pooler.console("RECONNECT")
    machine.wait_until(lambda: ports_in_use(pooler) == {north}, what="the other zone is the own one")
    # Without a usable host in its zone, pgweir uses the others.
    pooler.databases["app"] = entry(refusing)
    pooler.write_files()
    pooler.console("RELOAD")
    machine.wait_until(lambda: ports_in_use(pooler) == {south}, what="the host of the other zone is used")


def test_each_host_needs_a_zone(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    pooler.databases["app"] = f"host=127.0.0.1,127.0.0.1 port={newest_pg.port} zone=north"
    pooler.write_files()
    with pytest.raises(psycopg.Error, match="the zone of each host: 2, separated by commas"):
        pooler.console("RELOAD")
    line = pooler.ini_path.read_text().splitlines().index(f"app = {pooler.databases['app']}") + 1
    pooler.expect_log(f"{pooler.ini_path}:{line}: ")
    pooler.expect_log("the zone of each host: 2, separated by commas")
