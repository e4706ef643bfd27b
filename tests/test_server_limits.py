"""Limits on servers: sizes of pools, and the caps that pools share."""

import concurrent.futures
import threading
import time

import pytest

import machine
import rawclient as wire
from fakeserver import FakeServer, answer
from rawclient import LoginRefused

BACKEND = "SELECT pg_backend_pid()"


def begin(pooler, count, user="trusty", dbname="app"):
    """Clients that each keep a server."""
    clients = [pooler.raw(user, dbname) for _ in range(count)]
    for client in clients:
        client.query("BEGIN")
    return clients


# -- sizes


@pytest.mark.shows("user.pool_size")
def test_pool_size_of_a_user_goes_first(start_pooler, idle_pg, workers):
    pooler = start_pooler(idle_pg, databases={"app": idle_pg.entry("pool_size=1")},
                          users_section={"trusty": "pool_size=3"}, workers=workers)
    clients = begin(pooler, 3)
    assert idle_pg.count_servers() == 3
    late = pooler.raw()
    late.send(wire.query("SELECT 1"))
    late.quiet()
    clients[0].query("COMMIT")
    assert wire.value(late.until_ready()) == "1"
    assert idle_pg.count_servers() == 3


def test_pool_size_0_is_no_limit(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, default_pool_size=0)
    assert len(begin(pooler, 25)) == idle_pg.count_servers() == 25


RESERVES = {
    "global": ({"reserve_pool_size": 2}, "", None),
    "database": ({"reserve_pool_size": 9}, "reserve_pool_size=2", None),
    "database, by its old name": ({}, "reserve_pool=2", None),
    "user": ({"reserve_pool_size": 9}, "reserve_pool_size=7", "reserve_pool_size=2"),
}


@pytest.mark.shows("reserve_pool_size", "reserve_pool_timeout", "database.reserve_pool_size",
                   "user.reserve_pool_size")
@pytest.mark.parametrize("name", RESERVES)
def test_reserve(start_pooler, idle_pg, workers, name):
    """A client that has waited for reserve_pool_timeout gets a server beyond the pool's size."""
    settings, database, user = RESERVES[name]
    pooler = start_pooler(idle_pg, databases={"app": idle_pg.entry(database)},
                          users_section={"trusty": user} if user else None, workers=workers,
                          default_pool_size=1, reserve_pool_timeout=1.5, **settings)
    holder = begin(pooler, 1)
    waiters = [pooler.raw() for _ in range(4)]
    for waiter in waiters:
        waiter.send(wire.query("SELECT pg_sleep(30)"))
    waiters[0].quiet(0.3)
    assert idle_pg.count_servers() == 1
    machine.wait_until(lambda: idle_pg.count_servers() == 3, 5, "the reserve is used")
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 2, what="they are lent")
    assert pooler.log().count("taking connection from reserve_pool") == 2
    assert holder[0].value("SELECT 1") == "1"


def test_without_reserve_timeout_there_is_no_reserve(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout=0)
    holders = begin(pooler, 1)
    waiter = pooler.raw()
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet(0.8)
    assert idle_pg.count_servers() == len(holders)


@pytest.mark.shows("min_pool_size", "database.min_pool_size")
@pytest.mark.parametrize(("settings", "database"), [({"min_pool_size": 3}, ""),
                                                    ({"min_pool_size": 9}, "min_pool_size=3")])
def test_min_pool_size_is_kept_while_there_are_clients(start_pooler, idle_pg, workers, settings,
                                                       database):
    pooler = start_pooler(idle_pg, databases={"app": idle_pg.entry(database)}, workers=workers,
                          server_idle_timeout=1, **settings)
    assert idle_pg.count_servers() == 0
    client = pooler.raw()
    client.value("SELECT 1")
    machine.wait_until(lambda: idle_pg.count_servers() == 3, 4, "the pool is filled")
    machine.stays_true(lambda: idle_pg.count_servers() == 3, 1.6, "the pool stays full though server_idle_timeout passes")
    idle_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'trusty'")
    machine.wait_until(lambda: idle_pg.count_servers() == 3, 4, "the pool is filled again")


def test_min_pool_size_does_not_exceed_pool_size(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, min_pool_size=5, default_pool_size=2)
    client = pooler.raw()
    client.value("SELECT 1")
    machine.wait_until(lambda: idle_pg.count_servers() == 2, 4, "the pool is filled")
    client.quiet(0.8)
    assert idle_pg.count_servers() == 2


@pytest.mark.shows("database.user", "database.min_pool_size")
def test_min_pool_size_of_a_forced_user_needs_no_client(start_pooler, idle_pg, workers):
    databases = {"app": idle_pg.entry("user=trusty min_pool_size=2"),
                 "other": idle_pg.entry("min_pool_size=2", "other")}
    start_pooler(idle_pg, databases=databases, workers=workers)
    machine.wait_until(lambda: idle_pg.count_servers() == 2, 4, "the pool is filled")
    assert idle_pg.count_servers(dbname="other") == 0


def test_lowered_size_closes_servers(start_pooler, idle_pg, workers):
    pooler = start_pooler(idle_pg, default_pool_size=4, workers=workers)
    for client in begin(pooler, 4):
        client.query("COMMIT")
    assert idle_pg.count_servers() == 4
    pooler.console("SET default_pool_size = 1")
    machine.wait_until(lambda: idle_pg.count_servers() == 1, what="three are closed")


# -- caps


CAPS = {
    "max_db_connections": ({"max_db_connections": 2}, "", None),
    "of a database": ({"max_db_connections": 9}, "max_db_connections=2", None),
    "max_user_connections": ({"max_user_connections": 2}, "", None),
    "of a user": ({"max_user_connections": 9}, "", "max_user_connections=2"),
    "max_server_conn": ({"max_server_conn": 2}, "", None),
}


def capped(start_pooler, pg, name, **options):
    """A pooler under a cap of two servers, and two pools that share it."""
    settings, database, user = CAPS[name]
    databases = {name: pg.entry(database, name) for name in ("app", "other")}
    pooler = start_pooler(pg, databases=databases, users_section={"trusty": user} if user else None,
                          **settings, **options)
    if "user" in name:
        return pooler, ("trusty", "app"), ("trusty", "other")
    return pooler, ("trusty", "app"), ("plainly", "app")


@pytest.mark.shows("max_db_connections", "database.max_db_connections", "max_user_connections",
                   "user.max_user_connections", "max_server_conn")
@pytest.mark.parametrize("name", CAPS)
def test_cap(start_pooler, idle_pg, workers, name):
    """No server is opened above a cap. When a server is closed, a waiting client gets its slot."""
    pooler, one, other = capped(start_pooler, idle_pg, name, workers=workers, query_wait_timeout=9)
    holders = begin(pooler, 2, *one)
    waiter = pooler.socket()
    waiter.send(wire.startup(user=other[0], database=other[1]))
    late = pooler.raw(*one)
    late.send(wire.query("SELECT 1"))
    late.quiet(0.6)
    assert idle_pg.count_servers(*one) + idle_pg.count_servers(*other) == 2
    # A server that becomes free goes to its own pool first, unless the other pool has waited for its share.
    for holder in holders:
        holder.query("COMMIT")
    assert wire.value(late.until_ready()) == "1"
    waiter.until("Z")
    # Both were served. A server that was closed for the other pool may still be ending.
    machine.wait_until(lambda: idle_pg.count_servers(*one) + idle_pg.count_servers(*other) <= 2,
                       what="no more servers than the cap")


@pytest.mark.shows("max_db_connections", "max_user_connections", "max_server_conn")
@pytest.mark.parametrize("name", CAPS)
def test_eviction(start_pooler, idle_pg, workers, name):
    """An idle server of another pool under the same cap is closed: the one that has been idle longest."""
    # Otherwise the client may get a second server while the first reads the catalog.
    pooler, one, other = capped(start_pooler, idle_pg, name, workers=workers,
                                catalog_check_interval=0)
    clients = begin(pooler, 2, *one)
    backends = [client.value(BACKEND) for client in clients]
    for client in reversed(clients):
        client.query("COMMIT")
        pooler.settle()
    # All clients of this pool use the youngest server; the other one has been idle for longest.
    with pooler.raw(*other) as client:
        assert client.value("SELECT 1") == "1"
    assert pooler.log().count("closing because: evicted") == 1
    machine.wait_until(lambda: idle_pg.backends(f"pid = {backends[1]}") == [], what="it is gone")
    assert idle_pg.backends(f"pid = {backends[0]}") != []


def test_server_that_comes_free_is_evicted_at_once(start_pooler, idle_pg, workers):
    """The search for an idle server finds none, so the next server that becomes free is closed."""
    pooler = start_pooler(idle_pg, max_db_connections=1, workers=workers)
    holder = begin(pooler, 1)[0]
    waiter = pooler.socket()
    waiter.send(wire.startup(user="plainly", database="app"))
    machine.wait_until(lambda: pooler.pool(user="plainly"), what="it is there")
    took = []
    for _ in range(5):  # a busy machine may delay one of them
        machine.wait_until(lambda: pooler.pool(user="plainly")["cl_waiting"] == 1, what="it waits")
        started = time.monotonic()
        holder.query("COMMIT")
        waiter.until("Z")
        took.append(time.monotonic() - started)
        holder.query("BEGIN")
        waiter.send(wire.query("SELECT 1"))
    assert min(took) < 0.3, "it did not wait for the janitor's next round"


@pytest.mark.shows("max_db_connections")
def test_no_pool_starves_under_a_cap(start_pooler, idle_pg, workers):
    """A pool whose clients always wait gives a server up for a pool that has none."""
    pooler = start_pooler(idle_pg, max_db_connections=2, workers=workers, query_wait_timeout=20)
    stop = threading.Event()
    served = [0]

    def hammer():
        with pooler.connect() as db:
            while not stop.is_set():
                db.execute("SELECT pg_sleep(0.01)")
                served[0] += 1

    threads = [threading.Thread(target=hammer) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        machine.wait_until(lambda: served[0] > 20, what="it is busy")
        started = time.monotonic()
        assert pooler.raw("plainly").value("SELECT 1") == "1"
        assert time.monotonic() - started < 3
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.shows("max_server_conn", "database.weight")
def test_shares_are_by_weight(start_pooler, idle_pg, workers):
    """Two pools that need all servers share them 3 to 1. Each can use all of them while the other needs none."""
    databases = {"app": idle_pg.entry("weight=3"), "other": idle_pg.entry("", "other")}
    pooler = start_pooler(idle_pg, databases=databases, max_server_conn=8, default_pool_size=8,
                          workers=workers, max_client_conn=100)
    stop = threading.Event()

    def hammer(dbname):
        with pooler.connect(dbname=dbname) as db:
            while not stop.is_set():
                db.execute("SELECT pg_sleep(0.02)")

    def run(dbname):
        threads = [threading.Thread(target=hammer, args=(dbname,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        return threads

    threads = run("other")
    try:
        machine.wait_until(lambda: idle_pg.count_servers(dbname="other") == 8, what="it has all")
        threads += run("app")
        shares = lambda: (idle_pg.count_servers(dbname="app"), idle_pg.count_servers(dbname="other"))
        machine.wait_until(lambda: shares() == (6, 2), 12, "three to one")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.shows("max_server_conn")
def test_an_unused_pool_has_no_share(start_pooler, idle_pg, workers):
    databases = {"app": idle_pg.entry(), "other": idle_pg.entry("", "other")}
    pooler = start_pooler(idle_pg, databases=databases, max_server_conn=2, workers=workers)
    with pooler.raw(dbname="other") as gone:
        gone.query("SELECT 1")
    holders = begin(pooler, 1)
    waiter = pooler.raw()
    waiter.send(wire.query("SELECT 1"))
    assert wire.value(waiter.until_ready()) == "1"
    assert holders[0].value("SELECT 2") == "2"


def test_room_that_comes_by_a_reload_is_used(start_pooler, idle_pg, workers):
    pooler = start_pooler(idle_pg, max_server_conn=1, workers=workers)
    holder = begin(pooler, 1)[0]
    waiter = pooler.raw()
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet()
    pooler.console("SET max_server_conn = 2")
    assert wire.value(waiter.until_ready()) == "1"
    assert holder.value("SELECT 2") == "2"


def test_min_pool_size_evicts_no_server(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, max_db_connections=3, min_pool_size=2)
    clients = [pooler.raw(user) for user in ("trusty", "plainly")]
    assert [client.value("SELECT 1") for client in clients] == ["1", "1"]
    machine.wait_until(lambda: len(idle_pg.backends("datname = 'app'")) == 3, 4, "there is room")
    machine.stays_true(lambda: "evicted" not in pooler.log(), 0.8, "nobody is evicted")


# -- opening


@pytest.mark.shows("server_connect_limit")
@pytest.mark.parametrize("limit", [1, 3])
def test_server_connect_limit(start_pooler, idle_pg, limit):
    """After the first successful login, this number of logins of a pool may be under way at once."""
    seen, lock, go = [], threading.Lock(), threading.Event()
    under_way = [0]

    def behave(connection):
        if connection.number > 1:
            with lock:
                under_way[0] += 1
                seen.append(under_way[0])
            go.wait(30)
            with lock:
                under_way[0] -= 1
        serve(connection)

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, default_pool_size=10,
                              server_connect_limit=limit)
        clients = [pooler.raw() for _ in range(6)]
        for client in clients:
            client.send(wire.query("BEGIN"))
        machine.wait_until(lambda: len(seen) == limit, what="logins are under way")
        # There is room for one more server, and time, but no server is opened.
        machine.stays_true(lambda: server.accepted == 1 + limit, 0.3, "no more logins")
        go.set()
        for client in clients:
            assert client.until_ready()[-1].body == b"T"
        assert max(seen) == limit


def reply(sql):
    return BEGUN if sql == "BEGIN" else answer(sql)


BEGUN = wire.frame("C", wire.text("BEGIN")) + wire.frame("Z", b"T")


def serve(connection):
    if connection.welcome():
        connection.serve(reply)


@pytest.fixture
def two_hosts():
    """Two servers with the same port."""
    with FakeServer(serve) as first, FakeServer(serve, host="127.0.0.2", port=first.port) as second:
        yield first, second


def hosts(first, second, how):
    return f"host={first.host},{second.host} port={first.port} dbname=app load_balance_hosts={how}"


@pytest.mark.shows("database.load_balance_hosts", "database.host")
def test_round_robin_opens_at_each_host_in_turn(start_pooler, two_hosts, workers):
    pooler = start_pooler(None, databases={"app": hosts(*two_hosts, "round-robin")}, workers=workers)
    clients = begin(pooler, 4)
    assert [server.accepted for server in two_hosts] == [2, 2]
    assert len(clients) == 4


@pytest.mark.shows("database.load_balance_hosts")
def test_without_load_balancing_a_host_is_used_until_it_fails(start_pooler, two_hosts, workers):
    first, second = two_hosts
    pooler = start_pooler(None, databases={"app": hosts(first, second, "disable")}, workers=workers,
                          server_login_retry=0.1)
    clients = begin(pooler, 3)
    assert (first.accepted, second.accepted) == (3, 0)
    first.stop()
    clients += begin(pooler, 2)
    assert second.accepted == 2


@pytest.mark.shows("server_login_retry", "database.load_balance_hosts")
def test_hosts_that_fail_are_passed_over(start_pooler, two_hosts, workers):
    first, second = two_hosts
    databases = {"app": f"host=no-such-host.invalid,{second.host} port={second.port} dbname=app"
                        " load_balance_hosts=disable"}
    pooler = start_pooler(None, databases=databases, workers=workers, server_login_retry=0.1)
    clients = begin(pooler, 3)
    assert (first.accepted, second.accepted) == (0, len(clients))
    assert pooler.log().count("closing because: server DNS lookup failed") == 1


@pytest.mark.shows("server_login_retry", "database.load_balance_hosts")
@pytest.mark.parametrize("how", ["disable", "round-robin"])
def test_clients_wait_for_a_host_that_was_not_tried(start_pooler, two_hosts, workers, how):
    """One failed host of a list is no reason to refuse clients before the next host was tried."""
    _, second = two_hosts
    databases = {"app": f"host=no-such-host.invalid,{second.host} port={second.port} dbname=app"
                        f" load_balance_hosts={how}"}
    pooler = start_pooler(None, databases=databases, workers=workers, server_login_retry=2)
    with concurrent.futures.ThreadPoolExecutor(1) as another:
        first = another.submit(begin, pooler, 1)
        pooler.expect_log("closing because: server DNS lookup failed")
        assert len(begin(pooler, 1)) == 1
        assert len(first.result(20)) == 1


def test_clients_are_sent_away_when_all_hosts_have_failed(start_pooler, workers):
    databases = {"app": "host=no-such-host.invalid,no-such-host-too.invalid port=1 dbname=app"}
    pooler = start_pooler(None, databases=databases, workers=workers, server_login_retry=0.2, query_wait_timeout=5)
    machine.wait_until(lambda: is_sent_away(pooler), what="the failure is told at once")


def is_sent_away(pooler):
    try:
        pooler.raw(timeout=0.5)
    except LoginRefused as refused:
        return "server DNS lookup failed" in refused.words
    except TimeoutError:
        return False
