"""`max_server_conn` in percent of the connections that each host allows."""

import contextlib
import os

import pytest

import machine
import rawclient as wire
from scraping import scrape
from test_hosts import entry, own_pair  # noqa: F401

pytestmark = pytest.mark.pgweir_only("PgBouncer's limits are numbers")

SMALL = {"max_connections": 12, "superuser_reserved_connections": 3, "max_wal_senders": 0, "wal_level": "replica",
         "max_replication_slots": 0}


def server_limits(pooler):
    """The values of SHOW HOSTS that limits in percent follow from, by port."""
    rows = pooler.console("SHOW HOSTS")
    return {int(row["host"].rpartition(":")[2]): (row["usable_connections"], row["server_limit"]) for row in rows}


@pytest.fixture
def small_pg(start_cluster):
    """A cluster with 12 connections, of which 3 are reserved for superusers."""
    cluster = start_cluster(18, f"s{os.urandom(3).hex()}")
    cluster.stop("fast")
    cluster.start(**SMALL)
    yield cluster
    cluster.stop()
    cluster.remove()


@pytest.mark.shows("max_server_conn")
def test_a_limit_in_percent_follows_max_connections(start_pooler, small_pg, workers):
    """The limit is a part of the connections that PostgreSQL allows, and is read again when PostgreSQL has restarted."""
    port = machine.free_port()
    pooler = start_pooler(small_pg, max_server_conn="50%", workers=workers, server_login_retry=0.2, query_wait_notify=0,
                          http_listen=f"127.0.0.1:{port}")
    assert server_limits(pooler) == {small_pg.port: (None, None)}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.raw()) for _ in range(6)]
        for client in clients[:4]:
            client.query("BEGIN")
        assert server_limits(pooler) == {small_pg.port: (9, 4)}
        clients[4].send(wire.query("SELECT 1"))
        clients[4].quiet(0.3)
        assert small_pg.count_servers() == 4
        waiter = pooler.console("SHOW WAITERS")[0]
        assert (waiter["limit"], waiter["holders"]) == ("max_server_conn", 4)
        metrics = scrape(port)
        where = {"endpoint": f"{small_pg.host}:{small_pg.port}"}
        assert metrics.value("pgweir_host_usable_connections", **where) == 9
        assert metrics.value("pgweir_host_server_connections_limit", **where) == 4
        assert metrics.value("pgweir_server_connections_limit") == 4
        # SET and SHOW CONFIG have the percentage, and a higher one makes room at once.
        pooler.console("SET max_server_conn = '60%'")
        assert pooler.setting("max_server_conn") == "60%" and pooler.setting("fleet_share") == "60%"
        assert wire.value(clients[4].until_ready()) == "1"
        assert server_limits(pooler) == {small_pg.port: (9, 5)}
        pooler.console("SET fleet_nodes = 2")
        assert pooler.setting("fleet_share") == "60% / 2"
        assert server_limits(pooler) == {small_pg.port: (9, 2)}
        pooler.console("SET fleet_nodes = 1")
    # A number holds for the process again.
    pooler.console("SET max_server_conn = 3")
    assert server_limits(pooler) == {small_pg.port: (9, None)}
    pooler.console("SET max_server_conn = '50%'")
    small_pg.stop("fast")
    small_pg.start(**SMALL | {"max_connections": 20, "reserved_connections": 5})
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "1"
        assert server_limits(pooler) == {small_pg.port: (12, 6)}
    assert pooler.log().count("allows 12 connections that are not reserved") == 1


@pytest.mark.shows("max_server_conn")
def test_a_limit_in_percent_begins_while_there_are_more_servers(start_pooler, idle_pg, workers):
    """Until a host's connections are known, each login allows one more server, and the first one finds out."""
    pooler = start_pooler(idle_pg, workers=workers, default_pool_size=50, query_wait_notify=0)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.raw()) for _ in range(13)]
        for client in clients[:12]:
            client.query("BEGIN")
        pooler.console("SET max_server_conn = '90%'")
        assert server_limits(pooler)[idle_pg.port] == (None, None)
        assert clients[12].value("SELECT 1") == "1"
        usable = 100 - int(idle_pg.value("SHOW superuser_reserved_connections"))
        assert server_limits(pooler)[idle_pg.port] == (usable, usable * 90 // 100)


@pytest.mark.shows("max_server_conn")
def test_each_host_has_a_limit_in_percent(start_pooler, small_pg, idle_pg):
    """A host that is full leaves room on another one, and closes no servers there."""
    databases = {"app": small_pg.entry(), "other": idle_pg.entry("", "other")}
    pooler = start_pooler(None, databases=databases, max_server_conn="20%", query_wait_notify=0)
    with contextlib.ExitStack() as stack:
        one = [stack.enter_context(pooler.raw()) for _ in range(2)]
        one[0].query("BEGIN")
        assert server_limits(pooler)[small_pg.port] == (9, 1)
        one[1].send(wire.query("SELECT 1"))
        others = [stack.enter_context(pooler.raw(dbname="other")) for _ in range(5)]
        for client in others:
            client.query("BEGIN")
        one[1].quiet(0.2)
        waiter = pooler.console("SHOW WAITERS")[0]
        assert (waiter["limit"], waiter["holders"]) == ("max_server_conn", 1)
        one[0].query("COMMIT")
        assert wire.value(one[1].until_ready()) == "1"


@pytest.mark.shows("max_server_conn")
def test_a_limit_in_percent_follows_a_failover(start_pooler, own_pair):  # noqa: F811
    """The new primary allows more connections than the old one."""
    primary, standby = own_pair
    standby.stop("fast")
    standby.start(max_connections=150, max_wal_senders=10)
    pooler = start_pooler(None, max_server_conn="10%", host_check_interval=0.3, target_session_retry=0.2,
                          query_wait_notify=0, databases={
                              "app": entry(primary, standby, target_session_attrs="read-write")})
    reserved = int(primary.value("SHOW superuser_reserved_connections"))
    few, many = (100 - reserved, (100 - reserved) // 10), (150 - reserved, (150 - reserved) // 10)
    with pooler.connect() as client:
        client.execute("SELECT 1")
        machine.wait_until(lambda: server_limits(pooler) == {primary.port: few, standby.port: (many[0], few[1])},
                           what="both hosts are checked")
        primary.stop("fast")
        standby.value("SELECT pg_promote(true, 30)")
        client.execute("SELECT 1")
        machine.wait_until(lambda: server_limits(pooler)[standby.port] == many, what="the limit of the new primary")
