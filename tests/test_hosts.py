"""Lists of hosts, with a primary and a standby: ports, the next host after a failure, and `target_session_attrs`."""

import contextlib
import os
import socket
import subprocess
import threading
import time

import psycopg
import pytest

import cluster as clusters
import machine
from fakeserver import FakeServer
from rawclient import LoginRefused
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has one port for a list, and no target_session_attrs")


def standby_of(primary, folder):
    """A running standby of this cluster."""
    folder.mkdir()
    machine.give_to_service(folder)
    data = folder / "data"
    subprocess.run([primary.binaries.path("pg_basebackup"), "-D", str(data), "-h", primary.host, "-p", str(primary.port),
                    "-U", "replicator", "--write-recovery-conf", "--checkpoint=fast"],
                   check=True, capture_output=True, cwd=folder, **machine.as_service())
    standby = clusters.Cluster(primary.binaries, folder, data)
    standby.start()
    return standby


def make_pair(start_cluster, run_folder):
    # The path of a Unix socket has to be short.
    name = f"h{os.urandom(3).hex()}"
    primary = start_cluster(18, name)
    standby = standby_of(primary, run_folder / f"{name}s")
    yield primary, standby
    for server in (standby, primary):
        server.stop()
        server.remove()


@pytest.fixture(scope="module")
def pair(start_cluster, run_folder):
    """A primary and its standby, for tests that stop neither."""
    yield from make_pair(start_cluster, run_folder)


@pytest.fixture
def own_pair(start_cluster, run_folder):
    """A primary and its standby, for one test."""
    yield from make_pair(start_cluster, run_folder)


def entry(*servers, **more):
    """The entry of [databases] for these servers, in this order."""
    hosts, ports = ",".join(server.host for server in servers), ",".join(str(server.port) for server in servers)
    keys = {"host": hosts, "port": ports, "dbname": "app"} | more
    return " ".join(f"{key}={value}" for key, value in keys.items())


def servers_seen(pooler, count=4):
    """Returns the ports of the servers of several clients, which connect one after the other and stay."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.connect()) for _ in range(count)]
        for client in clients:
            client.execute("BEGIN")
        return {client.execute("SELECT inet_server_port()").fetchone()[0] for client in clients}


@pytest.mark.shows("database.target_session_attrs", "database.port")
@pytest.mark.parametrize("balance", ["round-robin", "disable"])
@pytest.mark.parametrize("target, wanted", [
    ("any", None), ("read-write", "primary"), ("primary", "primary"), ("read-only", "standby"), ("standby", "standby"),
    ("prefer-standby", "standby")])
def test_target_session_attrs(start_pooler, pair, workers, balance, target, wanted):
    primary, standby = pair
    ports = {"primary": primary.port, "standby": standby.port}
    for servers in [(standby, primary), (primary, standby)]:
        pooler = start_pooler(None, workers=workers, databases={
            "app": entry(*servers, load_balance_hosts=balance, target_session_attrs=target)})
        seen = servers_seen(pooler)
        match wanted, balance:
            case None, "round-robin":
                assert seen == set(ports.values())
            case None, _:
                assert seen == {servers[0].port}
            case _:
                assert seen == {ports[wanted]}


def test_no_host_has_the_role(start_pooler, pair):
    """No host has the role: the error of a login names the hosts, and pgweir soon tries all hosts again."""
    _, standby = pair
    pooler = start_pooler(None, databases={"app": entry(standby, standby, target_session_attrs="read-write")},
                          server_connect_timeout=1, query_wait_notify=0, query_wait_timeout=3)
    with pytest.raises(LoginRefused) as refused:
        pooler.raw()
    assert "no server with target_session_attrs" in str(refused.value)
    pooler.expect_log(f"{standby.host}:{standby.port} is a standby, but target_session_attrs = read-write")


def test_a_standby_is_only_preferred(start_pooler, own_pair):
    primary, standby = own_pair
    pooler = start_pooler(None, databases={"app": entry(primary, standby, target_session_attrs="prefer-standby")})
    standby.stop("immediate")
    with pooler.connect() as db:
        assert db.execute("SELECT inet_server_port()").fetchone()[0] == primary.port


class BlackHole:
    """A port that answers no connection attempt: its queue is full."""

    def __init__(self):
        self.host, self._full = "127.0.0.1", []
        self._listener = socket.socket()
        self._listener.bind((self.host, 0))
        self._listener.listen(0)
        self.port = self._listener.getsockname()[1]
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((self.host, self.port))
            self._full.append(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in [*self._full, self._listener]:
            sock.close()


class Closed:
    """A port that refuses connections."""

    def __init__(self):
        self.host, self.port = "127.0.0.1", machine.free_port()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        machine.release_port(self.port)


@pytest.mark.shows("host_connect_timeout")
@pytest.mark.parametrize("balance", ["round-robin", "disable"])
@pytest.mark.parametrize("dead", [Closed, BlackHole])
def test_the_next_host_is_tried_at_once(start_pooler, newest_pg, balance, dead):
    """A dead first host costs no more than `host_connect_timeout`, and is not tried again for `server_login_retry`."""
    with dead() as first:
        pooler = start_pooler(None, databases={"app": entry(first, newest_pg, load_balance_hosts=balance)}, host_race_after=0,
                              server_connect_timeout=60, server_login_retry=60, query_wait_notify=0)

        def attempts():
            return pooler.log().count(f"@127.0.0.1:{first.port} closing")
        began = time.monotonic()
        with pooler.connect() as db:
            db.execute("SELECT 1")
            assert time.monotonic() - began < 30
            before = attempts()
            assert servers_seen(pooler, 4) == {newest_pg.port}
        assert attempts() == before, "the dead host is known"


class Silent:
    """A port that accepts connections, and never answers."""

    def __init__(self):
        self.host, self._listener = "127.0.0.1", socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


def races(port):
    """The number of races between hosts, by the winner."""
    return {labels["winner"]: value for labels, value in scrape(port).series("pgweir_host_races_total") if value}


# Settings with which only a race gets a client to the second host within a minute.
PATIENT = {"host_connect_timeout": 60, "server_connect_timeout": 60, "query_wait_notify": 0, "default_pool_size": 10}


@pytest.mark.shows("host_race_after")
@pytest.mark.parametrize("balance", ["round-robin", "disable"])
@pytest.mark.parametrize("dead", [BlackHole, Silent])
def test_the_next_host_is_tried_beside_a_silent_one(start_pooler, newest_pg, workers, balance, dead):
    """The first login to end decides. The other connection is closed, and its place is free again; new connections avoid the
    silent host.
    """
    with dead() as first:
        port = machine.free_port()
        pooler = start_pooler(None, workers=workers, http_listen=f"127.0.0.1:{port}", max_db_connections=4, **PATIENT,
                              databases={"app": entry(first, newest_pg, load_balance_hosts=balance)})
        began = time.monotonic()
        with pooler.connect() as db:
            db.execute("SELECT 1")
            took = time.monotonic() - began
            print(f"{took:.2f} s")
            assert took < 30
            pooler.expect_log("has not answered")
            pooler.expect_log("another host was faster")
            # With as many clients as there may be servers, each place is needed.
            assert servers_seen(pooler, 4) == {newest_pg.port}
        assert {row["port"] for row in pooler.console("SHOW SERVERS")} == {newest_pg.port}
        assert races(port) == {"second": 1}
        hosts = {row["host"]: (row["state"], row["last_error"]) for row in pooler.console("SHOW HOSTS")}
        state, error = hosts[f"{first.host}:{first.port}"]
        assert state == "down" and "another host was faster" in error


def test_the_first_host_wins_a_race(start_pooler):
    """The login to a host that is only slow goes on, and the connection to the other host is closed."""
    with FakeServer(lambda connection: connection.rest()) as other:
        def answer_late(connection):
            machine.wait_until(lambda: other.accepted, what="the other host is tried")
            if connection.welcome():
                connection.serve()
        with FakeServer(answer_late) as first:
            port = machine.free_port()
            pooler = start_pooler(None, http_listen=f"127.0.0.1:{port}", **PATIENT,
                                  databases={"app": entry(first, other, load_balance_hosts="disable", session_state="off")})
            with pooler.raw() as client:
                client.query("SELECT 1")
                machine.wait_until(lambda: races(port) == {"first": 1}, what="the race is over")
                assert [row["port"] for row in pooler.console("SHOW SERVERS")] == [first.port]


@pytest.mark.shows("host_race_after")
def test_a_slow_login_has_no_rival(start_pooler):
    """A host that can be reached has four times as long to answer before the next host is tried."""
    with FakeServer(lambda connection: connection.rest()) as other:
        def answer_late(connection):
            machine.stays_true(lambda: not other.accepted, 1.6, "the other host is not tried")
            if connection.welcome():
                connection.serve()
        with FakeServer(answer_late) as first:
            pooler = start_pooler(None, host_race_after=0.8, **PATIENT,
                                  databases={"app": entry(first, other, load_balance_hosts="disable", session_state="off")})
            with pooler.raw() as client:
                client.query("SELECT 1")
                assert [row["port"] for row in pooler.console("SHOW SERVERS")] == [first.port]
        assert not other.accepted


@pytest.mark.parametrize("limit", ["max_db_connections", "max_server_conn", "default_pool_size"])
def test_a_race_needs_room(start_pooler, newest_pg, limit):
    """Under a full limit there is no second connection: the next host is tried when the first one has failed."""
    with BlackHole() as first:
        port = machine.free_port()
        settings = PATIENT | {"host_connect_timeout": 1, limit: 1}
        pooler = start_pooler(None, http_listen=f"127.0.0.1:{port}", host_race_after=0.05, **settings,
                              databases={"app": entry(first, newest_pg)})
        began = time.monotonic()
        with pooler.connect() as db:
            db.execute("SELECT 1")
        assert time.monotonic() - began >= 1
        assert "has not answered" not in pooler.log()
        assert races(port) == {}


def test_a_race_goes_on_with_the_third_host(start_pooler, pair):
    """A second host with the wrong role is no winner: the third host is tried while the first one is still silent."""
    primary, standby = pair
    with BlackHole() as first:
        pooler = start_pooler(None, databases={"app": entry(first, standby, primary, target_session_attrs="read-write",
                                                            load_balance_hosts="disable")}, host_check_interval=0, **PATIENT)
        began = time.monotonic()
        with pooler.connect() as db:
            assert db.execute("SELECT inet_server_port()").fetchone()[0] == primary.port
        assert time.monotonic() - began < 30


@pytest.mark.shows("target_session_retry")
def test_failover(start_pooler, own_pair):
    """The primary is killed and the standby promoted: writes go on within a second, nothing committed is lost, and clients
    that were idle keep their sessions."""
    primary, standby = own_pair
    pooler = start_pooler(None, databases={"app": entry(primary, standby, target_session_attrs="read-write")},
                          query_wait_notify=0)
    with pooler.connect() as db:
        db.execute("CREATE TABLE ledger (n int)")
    machine.wait_until(lambda: standby.value("SELECT to_regclass('ledger') IS NOT NULL", dbname="app"))
    idle = [pooler.connect(application_name=f"idle {number}") for number in range(10)]
    for number, client in enumerate(idle):
        client.execute(f"SET app.tenant = 'tenant {number}'")
    committed, uncertain, written, stop = [], [], [], threading.Event()

    def write(first):
        with contextlib.ExitStack() as stack:
            client = None
            for number in range(first, 1_000_000, 4):
                if stop.is_set():
                    return
                try:
                    client = client or stack.enter_context(pooler.connect())
                    client.execute("INSERT INTO ledger VALUES (%s)", (number,))
                    committed.append(number)
                    written.append(time.monotonic())
                except psycopg.OperationalError:
                    uncertain.append(number)
                    client = None
    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    machine.wait_until(lambda: len(committed) > 200, what="rows are written")
    # Nothing that was committed may be missing on the standby.
    primary.value("SELECT pg_catalog.set_config('x.y', '', false)")
    primary.stop("fast")
    machine.wait_until(lambda: standby.value("SELECT status IS NULL FROM (SELECT 1) s LEFT JOIN pg_stat_wal_receiver ON true"))
    standby.value("SELECT pg_promote(true, 30)")
    promoted = time.monotonic()
    machine.wait_until(lambda: [at for at in written if at > promoted], 10, "writes go on")
    pause = min(at for at in written if at > promoted) - promoted
    stop.set()
    for writer in writers:
        writer.join()
    for number, client in enumerate(idle):
        assert client.execute("SHOW app.tenant").fetchone() == (f"tenant {number}",)
        client.close()
    found = {int(n) for n in standby.value("SELECT string_agg(n::text, ',') FROM ledger", dbname="app").split(",")}
    print(f"first write {pause:.2f} s after the promotion; {len(committed)} committed, {len(uncertain)} uncertain")
    assert set(committed) <= found <= set(committed) | set(uncertain)
    assert pause < 1


def test_a_standby_that_is_promoted(start_pooler, own_pair):
    """PostgreSQL reports the new role on open connections: pgweir does not use them any more."""
    primary, standby = own_pair
    pooler = start_pooler(None, databases={"app": entry(standby, target_session_attrs="standby")}, server_connect_timeout=1,
                          query_wait_timeout=2, query_wait_notify=0)
    client = pooler.connect()
    client.execute("SELECT 1")
    standby.value("SELECT pg_promote(true, 30)")

    def is_closed():
        # The report arrives with the next answer at the latest.
        with contextlib.suppress(psycopg.OperationalError):
            client.execute("SELECT 1")
        return "its role is no longer the one of target_session_attrs" in pooler.log()
    machine.wait_until(is_closed, 10, "the server is closed")
    client.close()
    primary.value("SELECT 1")
