"""Connections that have not authenticated: they do not count as clients, and take little memory."""

import contextlib
import signal
import socket
import time

import pytest

import certs
import machine
import rawclient as wire

pytestmark = pytest.mark.pgweir_only("PgBouncer counts connections before they have authenticated")

USERS = {"scrammed": "scram password", "admin": "admin password"}


@contextlib.contextmanager
def silent(pooler, count, first=b"\0", timeout=10):
    """Opens this number of connections, which send only these bytes. Without bytes, the kernel would not report the
    connections.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(pooler.socket(timeout=timeout)) for _ in range(count)]
        for sock in sockets:
            sock.send(first)
        yield sockets


def logins(pooler):
    """The number of connections that have not authenticated, without the console's own."""
    (row,) = [row for row in pooler.console("SHOW LISTS") if row["list"] == "login_clients"]
    return row["items"]


def still_open(sockets):
    """Those of these connections that pgweir has not closed with the error."""
    rest = []
    for sock in sockets:
        try:
            sock.quiet(0.001)
            rest.append(sock)
        except AssertionError:
            error = sock.error_and_close()
            assert (error.sqlstate, error.words) == ("53300", "too many logins at once (max_login_clients)")
    return rest


@pytest.mark.parametrize("limit", [
    {"max_client_conn": 2},
    {"max_user_client_connections": 2},
    {"max_db_client_connections": 2},
], ids=str)
@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5", "plain"])
def test_failed_logins_lock_no_user_out(start_pooler, newest_pg, workers, limit, auth_type):
    """Connections that name a user, but don't know the password, do not count against the user's limit."""
    pooler = start_pooler(newest_pg, workers=workers, users=USERS, auth_type=auth_type, **limit)
    with silent(pooler, 5, wire.startup(user="scrammed", database="app")) as strangers:
        for stranger in strangers:
            stranger.expect("R")
        with pooler.raw("scrammed", password="scram password") as one, pooler.raw("scrammed", password="scram password") as two:
            assert one.value("SELECT 1") == two.value("SELECT 1") == "1"
            # The limit applies to clients that have logged in.
            with pytest.raises(wire.LoginRefused) as refused:
                pooler.raw("scrammed", password="scram password")
            assert "connections" in str(refused.value)
        with pooler.raw("scrammed", password="scram password") as one:
            assert one.value("SELECT 2") == "2"


@pytest.mark.shows("max_login_clients")
@pytest.mark.parametrize("setting", ["max_login_clients", "max_login_clients_per_address"])
def test_connections_idle_longest_are_closed(start_pooler, newest_pg, workers, setting):
    pooler = start_pooler(newest_pg, workers=workers, users=USERS, **{setting: 20})
    with silent(pooler, 15) as first:
        machine.wait_until(lambda: logins(pooler) == 15, what="they are accepted")
        with silent(pooler, 19) as last:
            rest = [first]

            def are_gone():
                rest.append(still_open(rest[-1]))
                return len(rest[-1]) <= 3
            machine.wait_until(are_gone, what="most of the older ones are disconnected")
            assert len(still_open(last)) >= 17
        with pooler.raw("scrammed", password="scram password") as client:
            assert client.value("SELECT 1") == "1"


@pytest.mark.shows("max_login_clients_per_address")
def test_the_address_with_most_logins_is_closed_first(start_pooler, newest_pg):
    """Connections from an address with few logins stay, even if they are older."""
    pooler = start_pooler(newest_pg, users=USERS, max_login_clients=20, max_login_clients_per_address=0)
    address = (pooler.host, pooler.port)
    with contextlib.ExitStack() as stack:
        few = [socket.create_connection(address, timeout=10, source_address=("127.0.0.2", 0)) for _ in range(5)]
        few = [stack.enter_context(wire.RawClient(sock, address)) for sock in few]
        for sock in few:
            sock.send(b"\0")
        machine.wait_until(lambda: logins(pooler) == 5, what="they are accepted")
        with silent(pooler, 40):
            machine.wait_until(lambda: logins(pooler) <= 20, what="the surplus is disconnected")
            for sock in few:
                sock.quiet(0.001)


def test_a_storm_of_logins_is_served(start_pooler, newest_pg):
    """Clients that answer at once are never refused."""
    pooler = start_pooler(newest_pg, users=USERS, auth_type="scram-sha-256", max_login_clients=2,
                          max_login_clients_per_address=2, max_client_conn=200)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(pooler.socket(timeout=30)) for _ in range(100)]
        for sock in sockets:
            sock.login("scrammed", "app", "scram password")
        assert all(sock.value("SELECT 1") == "1" for sock in sockets)


@pytest.mark.alone
def test_silent_connections_cost_little(start_pooler, newest_pg):
    """5,000 connections that send nothing delay nobody's login, and take 4 kB each at most."""
    pooler = start_pooler(newest_pg, users=USERS, auth_type="md5", max_client_conn=100,
                          max_login_clients=0, max_login_clients_per_address=0, client_login_timeout=100)
    with pooler.raw("scrammed", password="scram password") as client:
        client.value("SELECT 1")
    before = pooler.memory_kb()
    with silent(pooler, 5000) as sockets:
        sockets[-1].quiet(0.2)
        worst = 0
        for _ in range(20):
            began = time.monotonic()
            with pooler.raw("scrammed", password="scram password") as client:
                assert client.value("SELECT 1") == "1"
            worst = max(worst, time.monotonic() - began)
        grown = pooler.memory_kb() - before
        print(f"5,000 silent connections: {grown} kB more, the slowest login and query {worst * 1000:.1f} ms")
        assert worst < 0.1
        assert grown < 20 << 10


def test_silent_connections_within_tls_cost_little(start_pooler, newest_pg, certificates):
    """Those that have done the TLS handshake take 32 kB each at most."""
    pooler = start_pooler(newest_pg, **certificates.pooler(max_login_clients_per_address=0, client_login_timeout=100))

    def secured(count):
        return [certs.tls_socket(pooler.host, pooler.port) for _ in range(count)]
    first = secured(20)
    before = pooler.memory_kb()
    more = secured(300)
    each = (pooler.memory_kb() - before) / 300
    for sock in first + more:
        sock.close()
    print(f"{each:.1f} kB for each silent connection within TLS")
    assert each < 32


@pytest.mark.alone
def test_the_default_limits_withstand_5000_silent_connections(start_pooler, newest_pg):
    """With the default limits, 5,000 connections of one address that send nothing block no login, and most of them are
    soon closed.
    """
    pooler = start_pooler(newest_pg, users=USERS, auth_type="md5", max_client_conn=100)
    with silent(pooler, 5000):
        began = time.monotonic()
        with pooler.raw("scrammed", password="scram password") as client:
            assert client.value("SELECT 1") == "1"
        assert time.monotonic() - began < 0.1
        machine.wait_until(lambda: logins(pooler) <= 200, what="few are left")


def test_operators_can_always_connect(new_pooler, newest_pg):
    """When connections that send nothing have taken all descriptors for clients, an operator can still connect to the
    Unix socket.
    """
    pooler = new_pooler(newest_pg, users=USERS, max_login_clients=0, max_login_clients_per_address=0,
                        client_login_timeout=100, query_wait_notify=0).start(nofile=200)
    with silent(pooler, 200):
        pooler.expect_log("as many as the limit of open files allows besides servers")
        with wire.RawClient.unix(pooler.unix_path) as operator:
            operator.login("admin", "pgbouncer", "admin password")
            assert "pgweir" in operator.value("SHOW VERSION")


@pytest.mark.parametrize("state", ["transparent", "off"])
@pytest.mark.guards("database_names")
def test_names_of_databases_cost_little(start_pooler, newest_pg, state):
    """Logins that name ever new databases, which PostgreSQL does not have, take 10 MB for 1,500 names at most."""
    pooler = start_pooler(newest_pg, databases={"app": newest_pg.entry(), "*": newest_pg.entry(dbname=None)},
                          session_state=state, server_login_retry=0, query_wait_notify=0)

    def refused(number):
        with pytest.raises(wire.LoginRefused) as error:
            pooler.raw(dbname=f"nothing_{number}")
        assert "does not exist" in str(error.value)
    for number in range(20):
        refused(number)
    before = pooler.memory_kb()
    for number in range(1000, 2500):
        refused(number)
    grown = pooler.memory_kb() - before
    print(f"1,500 names of databases: {grown} kB more")
    assert grown < 10 << 10


def test_real_databases_cost_little(start_pooler, idle_pg, workers):
    """A database that clients have used, and whose catalog pgweir has read, takes 20 kB at most."""
    names = [f"small_{number}" for number in range(80)]
    pooler = start_pooler(idle_pg, databases={"*": idle_pg.entry(dbname=None)}, workers=workers,
                          max_db_connections=1, query_wait_notify=0)

    def use(chosen):
        def are_read():
            known = {row["database"] for row in pooler.console("SHOW CATALOG") if row["state"] == "known"}
            for name in chosen - known:
                with pooler.raw(dbname=name) as client:
                    assert client.value("SELECT abs(-1)") == "1"
            return chosen <= known
        machine.wait_until(are_read, 30, "their catalogs are read")
    try:
        for name in names:
            idle_pg.run(f"CREATE DATABASE {name} STRATEGY wal_log")
        use(set(names[:20]))
        before = pooler.memory_kb()
        use(set(names[20:]))
        grown = (pooler.memory_kb() - before) / 60
    finally:
        pooler.signal(signal.SIGQUIT)
        pooler.wait_end()
        for name in names:
            idle_pg.run(f"DROP DATABASE IF EXISTS {name} (FORCE)")
    print(f"{grown:.1f} kB for each real database, with {workers} workers")
    assert grown < 20
