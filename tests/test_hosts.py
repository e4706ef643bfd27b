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
from rawclient import LoginRefused

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
    standby.stop("immediate")
    standby.remove()


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
@pytest.mark.parametrize("dead, most", [(Closed, 0.5), (BlackHole, 2.0)])
def test_the_next_host_is_tried_at_once(start_pooler, newest_pg, balance, dead, most):
    """A dead first host costs no more than `host_connect_timeout`, and is not tried again for `server_login_retry`."""
    with dead() as first:
        pooler = start_pooler(None, databases={"app": entry(first, newest_pg, load_balance_hosts=balance)})
        began = time.monotonic()
        with pooler.connect() as db:
            db.execute("SELECT 1")
        assert time.monotonic() - began < most
        began = time.monotonic()
        assert servers_seen(pooler, 4) == {newest_pg.port}
        assert time.monotonic() - began < 0.5, "the dead host is known"


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
