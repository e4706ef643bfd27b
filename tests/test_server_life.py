"""How long servers and pools exist, which server is lent, and what happens when no server can be opened."""

import contextlib
import signal
import threading
import time

import pytest

import fakeserver as fake
import machine
import rawclient as wire
from fakeserver import FakeServer
from rawclient import LoginRefused

BACKEND = "SELECT pg_backend_pid()"


# -- age


@pytest.mark.shows("server_lifetime", "database.server_lifetime")
@pytest.mark.parametrize(("settings", "database"), [({"server_lifetime": 1}, ""),
                                                    ({}, "server_lifetime=1")])
def test_lifetime_of_an_idle_server(start_pooler, idle_pg, settings, database):
    pooler = start_pooler(idle_pg, databases={"app": idle_pg.entry(database)}, **settings)
    client = pooler.raw()
    backend = int(client.value(BACKEND))
    machine.wait_until(lambda: backend not in idle_pg.backends(), 3, "it is closed")
    pooler.expect_log("closing because: server lifetime over (age=")
    assert idle_pg.count_servers() == 0, "nobody needs another one"


@pytest.mark.shows("server_lifetime")
def test_lifetime_0_is_one_use(start_pooler, idle_pg, workers):
    pooler = start_pooler(idle_pg, server_lifetime=0, workers=workers)
    client = pooler.raw()
    assert len({client.value(BACKEND) for _ in range(4)}) == 4


@pytest.mark.shows("server_lifetime")
def test_a_server_in_use_gets_a_successor_before_it_goes(start_pooler, idle_pg, workers):
    """No query waits for a login: the new server is open before the old one is closed."""
    pooler = start_pooler(idle_pg, server_lifetime=2, workers=workers, log_connections=1)
    client = pooler.raw()
    backends, is_late = [], machine.after(8)
    for _ in machine.every(0.005, until=lambda: len(backends) >= 3 or is_late()):
        backend = int(client.value(BACKEND))
        if backend not in backends:
            backends.append(backend)
    assert len(backends) >= 3
    assert_successors_came_first(pooler)


@pytest.mark.shows("server_lifetime")
def test_a_late_check_opens_the_successor_first(start_pooler, idle_pg):
    """The process was stopped when it should have opened the successor, and until after the server's end."""
    pooler = start_pooler(idle_pg, server_lifetime=1, workers=1, log_connections=1)
    client = pooler.raw()
    old = int(client.value(BACKEND))
    machine.stand_still(pooler.process)
    machine.stays_true(lambda: old in idle_pg.backends(), 1.1, "the server is open until it is too old")
    client.send(wire.query(BACKEND))
    pooler.signal(signal.SIGCONT)
    client.until_ready()
    for _ in machine.every(0.005, until=lambda: old not in idle_pg.backends()):
        client.value(BACKEND)
    assert_successors_came_first(pooler)


def assert_successors_came_first(pooler):
    """Checks that each server had logged in before its predecessor was closed."""
    lines = [line for line in pooler.log().splitlines() if " S-" in line]
    opened = [n for n, line in enumerate(lines) if "new connection to server" in line]
    closed = [n for n, line in enumerate(lines) if "server lifetime over" in line]
    for n, line in enumerate(closed):
        assert opened[n + 1] < line, "\n".join(lines)


@pytest.mark.shows("server_lifetime")
def test_servers_do_not_all_end_at_once(start_pooler, idle_pg):
    """Their ends are spread over the last tenth of the lifetime (by how much: a unit test of the terms)."""
    pooler = start_pooler(idle_pg, server_lifetime=8, default_pool_size=20)
    started = time.monotonic()
    clients = [pooler.raw() for _ in range(20)]
    for client in clients:
        client.query("BEGIN")
    for client in clients:
        client.query("COMMIT")
    machine.wait_until(lambda: idle_pg.count_servers() < 20, 15, "the first goes")
    assert time.monotonic() - started > 7
    assert idle_pg.count_servers() > 0
    machine.wait_until(lambda: idle_pg.count_servers() == 0, 10, "the last goes")


# -- pools


@pytest.mark.shows("pool_idle_timeout")
def test_unused_pool_is_forgotten(start_pooler, idle_pg, workers):
    pooler = start_pooler(idle_pg, pool_idle_timeout=0.5, server_idle_timeout=0.5, workers=workers)
    with pooler.raw() as client:
        client.value("SELECT 1")
    assert pooler.pool() is not None
    machine.wait_until(lambda: pooler.pool() is None, 5, "the pool is forgotten")
    pooler.expect_log("cleaning up idle pool")
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.shows("autodb_idle_timeout")
def test_unused_auto_database_is_forgotten(start_pooler, idle_pg, workers):
    databases = {"*": idle_pg.entry(dbname=None), "other": idle_pg.entry()}
    pooler = start_pooler(idle_pg, databases=databases, autodb_idle_timeout=0.5,
                          server_idle_timeout=0.5, workers=workers)
    for dbname in ("app", "other"):
        with pooler.raw(dbname=dbname) as client:
            client.value("SELECT 1")
    machine.wait_until(lambda: pooler.pool() is None, 5, "the pool is forgotten")
    assert pooler.pool("other") is not None, "it stands in the file"


# -- which server is lent


@pytest.mark.shows("server_round_robin")
@pytest.mark.parametrize("turns", [0, 1])
def test_server_round_robin(start_pooler, idle_pg, turns):
    pooler = start_pooler(idle_pg, server_round_robin=turns, workers=1)
    clients = [pooler.raw() for _ in range(3)]
    for client in clients:
        client.query("BEGIN")
    for client in clients:
        client.query("COMMIT")
    used = [clients[0].value(BACKEND) for _ in range(6)]
    if turns:
        assert len(set(used)) == 3
        assert used[:3] == used[3:]
    else:
        assert len(set(used)) == 1


# -- server_check_query


def statements(seen):
    """A server that notes each query."""
    def behave(connection):
        def reply(sql):
            seen.append((connection.number, sql))
            if connection.number in DEAD:
                raise wire.Closed(None)
            return fake.answer(sql)

        if connection.welcome():
            connection.serve(reply)

    return behave


DEAD = set()


@pytest.fixture
def dead():
    """The numbers of connections that break at the next query."""
    DEAD.clear()
    return DEAD


@pytest.mark.shows("server_check_query", "server_check_delay")
@pytest.mark.parametrize(("setting", "sql"), [("<empty>", ""), ("SELECT 7", "SELECT 7")])
def test_servers_are_checked_before_they_are_lent(start_pooler, idle_pg, dead, workers, setting, sql):
    seen = []
    with FakeServer(statements(seen)) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_query=setting,
                              server_check_delay=0, workers=workers)
        client = pooler.raw()
        for number in "12":
            assert client.value(number) == number
        assert seen == [(1, "1"), (1, sql), (1, "2")]
        dead.add(1)
        assert client.value("3") == "3"
        assert seen[3:] == [(1, sql), (2, "3")]


def test_no_server_is_checked_for_a_terminate_message(start_pooler, idle_pg, dead, workers):
    seen = []
    with FakeServer(statements(seen)) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_query="CHECK",
                              server_check_delay=0, workers=workers)
        first, second = pooler.raw(), pooler.raw()
        assert first.value("1") == "1"
        first.send(wire.TERMINATE)
        assert first.rest() == []
        assert second.value("2") == "2"
        assert [sql for _, sql in seen] == ["1", "CHECK", "2"]
        assert len(pooler.console("SHOW SERVERS")) == 1


@pytest.mark.shows("server_check_delay", "server_check_query")
def test_a_server_that_was_just_in_use_is_not_checked(start_pooler, idle_pg, dead):
    seen = []
    with FakeServer(statements(seen)) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_delay=1)
        client = pooler.raw()
        for number in "12":
            client.value(number)
        assert [sql for _, sql in seen] == ["1", "2"]
        assert pooler.console("SHOW SERVERS")[0]["state"] == "idle"
        machine.wait_until(lambda: pooler.console("SHOW SERVERS")[0]["state"] == "used", 3, "it is old")
        assert (pooler.pool()["sv_used"], pooler.pool()["sv_idle"]) == (1, 0)
        client.value("3")
        assert [sql for _, sql in seen] == ["1", "2", "", "3"]


@pytest.mark.shows("server_check_query")
def test_an_empty_server_check_query_is_none(start_pooler, idle_pg, dead):
    seen = []
    with FakeServer(statements(seen)) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_query="",
                              server_check_delay=0)
        client = pooler.raw()
        for number in "12":
            client.value(number)
        assert [sql for _, sql in seen] == ["1", "2"]


CHECKS_THAT_FAIL = ["SELECT 1/0", "BEGIN", "COPY (SELECT 1) TO STDOUT; SELECT 1/0"]


@pytest.mark.parametrize("check", CHECKS_THAT_FAIL)
def test_a_check_that_fails(start_pooler, pg, workers, check):
    """The server is closed, and the client gets a new one, which is not checked."""
    pooler = start_pooler(pg, server_check_query=check, server_check_delay=0, workers=workers)
    client = pooler.raw()
    assert len({client.value(BACKEND) for _ in range(3)}) == 3


@pytest.mark.shows("server_connect_timeout")
def test_a_check_without_an_answer(start_pooler, idle_pg):
    """The client waits no longer than server_connect_timeout, and gets another server."""
    def behave(connection):
        if connection.welcome():
            connection.serve(lambda sql: b"" if sql == "" and connection.number == 1
                             else fake.answer(sql))

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_delay=0,
                              server_connect_timeout=1)
        client = pooler.raw()
        client.value("1")
        client.send(wire.query("2"))
        machine.wait_until(lambda: pooler.pool()["sv_tested"] == 1, what="it is being checked")
        assert wire.value(client.until_ready()) == "2"
        assert server.accepted == 2
    pooler.expect_log("closing because: server check timeout")


def test_a_client_that_leaves_during_a_check(start_pooler, idle_pg):
    go = threading.Event()

    def behave(connection):
        def reply(sql):
            if sql == "":
                go.wait(5)
            return fake.answer(sql)

        if connection.welcome():
            connection.serve(reply)

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_check_delay=0,
                              default_pool_size=1)
        with pooler.raw() as client:
            client.value("1")
            client.send(wire.query("2"))
            machine.wait_until(lambda: pooler.pool()["sv_tested"] == 1, what="it is being checked")
        go.set()
        assert pooler.raw().value("3") == "3"
        assert server.accepted == 1


# -- outdated servers


@pytest.mark.shows("server_fast_close")
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_server_fast_close(start_pooler, idle_pg, workers, mode):
    """After RECONNECT, a session in session mode ends with its transaction. The other modes do not need the setting."""
    pooler = start_pooler(idle_pg, pool_mode=mode, server_fast_close=1, workers=workers)
    idle, busy = pooler.raw(), pooler.raw()
    busy.query("BEGIN")
    backend = idle.value(BACKEND)
    pooler.console("RECONNECT app")
    if mode == "transaction":
        assert idle.value(BACKEND) != backend
        return
    error = idle.error_and_close()
    assert (error.fields["S"], error.words) == ("FATAL", "database configuration changed")
    assert busy.value("SELECT 1") == "1"
    busy.send(wire.query("COMMIT"))
    assert busy.until("E")[-1].words == "database configuration changed"


@pytest.mark.shows("server_fast_close")
def test_without_server_fast_close_a_session_goes_on(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, pool_mode="session")
    client = pooler.raw()
    backend = client.value(BACKEND)
    pooler.console("RECONNECT app")
    client.quiet(0.8)
    assert client.value(BACKEND) == backend
    pooler.console("SET server_fast_close = 1")
    assert client.error_and_close().words == "database configuration changed"


# -- when no server can be opened


@pytest.mark.shows("server_login_retry")
@pytest.mark.parametrize("retry", [0.2, 1.2])
def test_server_login_retry(start_pooler, idle_pg, retry):
    """The next login comes after this time, not before, and serves the waiting clients."""
    times = []

    def behave(connection):
        times.append(time.monotonic())
        if connection.number > 2 and connection.welcome():
            connection.serve()

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, server_login_retry=retry)
        assert pooler.raw().value("SELECT 1") == "SELECT 1"
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    assert len(gaps) == 2
    assert all(retry - 0.05 < gap < retry + 0.6 for gap in gaps), gaps


def test_pools_do_not_log_in_again_at_the_same_moment(start_pooler):
    """Each pool adds another part of up to a quarter to `server_login_retry`."""
    pools, retry, times, together = 12, 3, [], threading.Barrier(12)

    def behave(connection):
        connection.read_startup()
        times.append(time.monotonic())
        if connection.number <= pools:
            together.wait(20)  # all first logins fail at the same moment
        else:
            connection.send(fake.WELCOME)
            connection.serve()

    with FakeServer(behave) as server, contextlib.ExitStack() as stack:
        databases = {f"app{number}": server.database for number in range(pools)}
        pooler = start_pooler(None, databases=databases, server_login_retry=retry, workers=1)
        clients = [pooler.socket() for _ in range(pools)]
        for number, client in enumerate(clients):
            stack.callback(client.close)
            client.send(wire.startup(user="trusty", database=f"app{number}"))
        machine.wait_until(lambda: len(times) == 2 * pools, 20, "all pools have logged in again")
    first, again = times[:pools], times[pools:]
    assert min(again) - max(first) > retry - 0.1
    assert max(again) - min(again) > 0.25, again


def test_clients_get_the_servers_error(start_pooler, idle_pg, workers):
    """All waiting clients receive the server's own error, and so do later ones, at once."""
    asked = threading.Event()
    go = threading.Event()

    def behave(connection):
        connection.read_startup()
        asked.set()
        go.wait(5)
        connection.send(fake.error("28000", "no entry for you", "FATAL"))

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, workers=workers)
        waiters = [pooler.socket() for _ in range(4)]
        for waiter in waiters:
            waiter.send(wire.startup(user="trusty", database="app"))
        asked.wait(5)
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 4, what="all wait")
        go.set()
        for waiter in waiters:
            error = waiter.until("E")[-1]
            assert (error.sqlstate, error.words) == ("28000", "no entry for you")
        with pytest.raises(LoginRefused, match="server login has been failing, cached error: no entry"
                                               " for you \\(server_login_retry\\)"):
            pooler.raw()
        assert server.accepted == 1
    pooler.expect_log("server login failed: FATAL no entry for you")


def test_outdated_servers_keep_no_client_waiting(start_pooler, idle_pg, workers):
    """The login of a new server is refused: waiting clients receive the reason, though an outdated server still exists.
    """
    idle_pg.run("CREATE ROLE fading LOGIN")
    try:
        pooler = start_pooler(idle_pg, users={"fading": "x", "admin": "admin password"},
                              auth_type="trust", default_pool_size=2, workers=workers)
        busy, other = pooler.raw("fading"), pooler.raw("fading")
        busy.query("BEGIN")
        idle_pg.run("ALTER ROLE fading NOLOGIN")
        pooler.console("RECONNECT")
        other.send(wire.query("SELECT 1"))
        assert "is not permitted to log in" in other.until("E")[-1].words
        assert busy.value("SELECT 1") == "1"
    finally:
        idle_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fading'")
        idle_pg.run("DROP ROLE fading")


def test_a_server_that_starts_is_waited_for(start_pooler, idle_pg, workers):
    """PostgreSQL answers 57P03 while it starts: no client is refused for that."""
    def behave(connection):
        if connection.number < 3:
            connection.read_startup()
            connection.send(fake.error("57P03", "the database system is starting up", "FATAL"))
        elif connection.welcome():
            connection.serve()

    with FakeServer(behave) as server:
        pooler = start_pooler(None, databases={"app": server.database}, workers=workers,
                              server_login_retry=0.2)
        assert pooler.raw().value("SELECT 1") == "SELECT 1"
        assert server.accepted == 3


def test_clients_wait_while_a_server_refuses_temporarily(start_pooler, newest_pg, workers):
    """A temporary refusal, such as an error of a login trigger, disconnects no client that is logged in."""
    newest_pg.run("CREATE DATABASE crowded")
    try:
        where = f"host={newest_pg.host} port={newest_pg.port} dbname=crowded"
        pooler = start_pooler(newest_pg, databases={"crowded": where}, workers=workers, server_login_retry=0.2)
        client = pooler.raw(dbname="crowded")
        assert client.value("SELECT 1") == "1"
        newest_pg.run("ALTER DATABASE crowded CONNECTION LIMIT 0")
        newest_pg.run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'crowded'")
        client.send(wire.query("SELECT 2"))
        pooler.expect_log('server login failed: FATAL too many connections for database "crowded"')
        newest_pg.run("ALTER DATABASE crowded CONNECTION LIMIT -1")
        assert wire.value(client.until_ready()) == "2"
    finally:
        newest_pg.run("DROP DATABASE crowded WITH (FORCE)")
