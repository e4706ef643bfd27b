"""Faults of servers and clients under load, with a ledger. `make test-faults` runs them behind pgweir and behind PgBouncer, and
writes the table of docs/faults.md.

A fault lasts for some seconds; `healed` is the time at which the server works again.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest

import ledger
import machine
import namespaces
import rawclient as wire
from fakeserver import FakeServer

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

BUSY, IDLE = 40, 40
USER, PASSWORD = "scrammed", "scram password"
# The same for both poolers: the defaults wait longer than a table needs to show.
SETTINGS = {"auth_type": "scram-sha-256", "default_pool_size": 20, "server_login_retry": 1, "server_connect_timeout": 3,
            "tcp_user_timeout": 5000, "max_client_conn": 1000}
# Seconds in which all clients must work again after the fault.
RECOVERED = 60
GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(range(256))
# Where `make test-faults` collects the figures.
FIGURES = "PGWEIR_FAULTS_FIGURES"


class Scene:
    """The parts that a fault can change."""

    def __init__(self, pg, pooler, load, node):
        self.pg, self.pooler, self.load, self.node = pg, pooler, load, node

    def lasts(self, seconds):
        """Waits until no transaction has been acknowledged for this number of seconds."""
        machine.wait_until(lambda: self.load.silent_for() > seconds, seconds + 30, f"no answer for {seconds} s")

    def processes(self):
        """The pids of the postmaster and its children."""
        postmaster = int((self.pg.data / "postmaster.pid").read_text().split()[0])
        return [postmaster, *map(int, Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split())]

    def answered_more(self, count=300):
        """Waits until this number of further transactions was acknowledged, which is how long a storm of clients lasts
        at least.
        """
        before = len(self.load.answered)
        machine.wait_until(lambda: len(self.load.answered) >= before + count, 30, f"{count} more transactions")


def killed_postmaster(scene):
    """`kill -9` of the postmaster; started again at once."""
    pids = scene.processes()
    os.kill(pids[0], signal.SIGKILL)
    # The child processes end when they notice. Until then, no other postmaster can start in the folder.
    machine.wait_until(lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids), 20, "its processes are gone")
    scene.pg.stop()
    scene.pg.start()


def killed_backend(scene):
    """`kill -9` of one backend: PostgreSQL ends all others, and recovers."""
    os.kill(scene.pg.backends(f"usename = '{USER}'")[0], signal.SIGKILL)
    machine.wait_until(lambda: scene.load.silent_for() > 0.1, 20, "the others are ended")


def immediate_stop(scene):
    """`pg_ctl stop -m immediate`, down for two seconds."""
    scene.pg.stop("immediate")
    scene.lasts(2)
    scene.pg.start()


def fast_stop(scene):
    """`pg_ctl stop -m fast`, down for two seconds."""
    scene.pg.stop("fast")
    scene.lasts(2)
    scene.pg.start()


def terminated_backends(scene):
    """`pg_terminate_backend` of all backends of the pool."""
    scene.pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", USER)


def stopped_processes(scene):
    """SIGSTOP of all of PostgreSQL's processes, for four seconds."""
    pids = scene.processes()
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        scene.lasts(4)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def cut(scene):
    """The network is cut for two seconds."""
    scene.node.cut()
    scene.lasts(2)
    scene.node.restore()


def black_hole(scene):
    """The network is cut for ten seconds: longer than `tcp_user_timeout`."""
    scene.node.cut()
    scene.lasts(10)
    scene.node.restore()


def garbage_for_a_server(scene):
    """The server is replaced for three seconds by one that answers garbage."""
    scene.pg.stop("immediate")

    def behave(connection):
        connection.send(GARBAGE)
        connection.rest()
    with FakeServer(behave, port=scene.pg.port):
        scene.lasts(3)
    scene.pg.start()


def storm(scene, act, threads=8):
    """Runs `blow` in this number of threads until enough transactions were acknowledged."""
    stop, problems = threading.Event(), []

    def acts():
        while not stop.is_set():
            try:
                act()
            except (OSError, wire.Closed, wire.LoginRefused):
                pass  # the pooler defends itself: its right
            except Exception as error:  # collected here, since an exception in a thread would be lost
                problems.append(error)
                return
    running = [threading.Thread(target=acts) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        scene.answered_more()
    finally:
        stop.set()
        for thread in running:
            thread.join()
    assert problems == []


def connect_storm(scene):
    """Clients that log in, run one query, and disconnect."""
    def act():
        with scene.pooler.raw(USER, password=PASSWORD, timeout=5) as client:
            client.value("SELECT 1")
    storm(scene, act)


def wrong_passwords(scene):
    """Clients with a wrong password."""
    storm(scene, lambda: scene.pooler.raw(USER, password="wrong", timeout=5).close())


def garbage_of_clients(scene):
    """Connections that send garbage."""
    def act():
        with scene.pooler.socket(5) as client:
            client.send(GARBAGE)
            client.rest()
    storm(scene, act)


def cancel_storm(scene):
    """Cancel requests with keys that belong to no client."""
    def act():
        with scene.pooler.socket(5) as client:
            client.send(wire.cancel(int.from_bytes(os.urandom(3)), os.urandom(4)))
            client.rest()
    storm(scene, act)


FAULTS = (killed_postmaster, killed_backend, immediate_stop, fast_stop, terminated_backends, stopped_processes, cut, black_hole,
          garbage_for_a_server, connect_storm, wrong_passwords, garbage_of_clients, cancel_storm)
NEED_NETWORK = (cut, black_hole)


@pytest.fixture
def server(request, start_cluster, run_folder):
    """A server for one test, in a network namespace if the fault is one of the network."""
    pg, network, node = start_cluster(18, f"f{os.urandom(3).hex()}"), None, None
    # With the tests' usual setting (`synchronous_commit = off`), PostgreSQL itself may lose acknowledged transactions.
    pg.run(f"ALTER ROLE {USER} SET synchronous_commit = on")
    pg.run(ledger.TABLE + "; GRANT ALL ON ledger TO PUBLIC", dbname="app")
    try:
        if request.getfixturevalue("fault") in NEED_NETWORK:
            reason = namespaces.missing()
            if reason:
                pytest.skip(reason)
            network = namespaces.Network()
            node = namespaces.Node(network, "server", run_folder / pg.folder.name)
            pg.stop("fast")
            with open(pg.data / "pg_hba.conf", "a") as hba:
                hba.write(f"host all all {network.cidr} scram-sha-256\n")
            pg.host = node.address
            pg.start(within=node.within, listen_addresses="*")
        yield pg, node
    finally:
        pg.stop()
        if network is not None:
            network.remove()


def figures(scene, fault, began, healed, recovered):
    load = scene.load
    places = load.errors_by_place()
    difference = load.difference(scene.pg.rows(ledger.ROWS, dbname="app"))
    return difference, {
        "fault": fault.__name__.replace("_", " "), "what": fault.__doc__.strip(), "lost": len(difference.lost | difference.torn),
        "doubled": len(difference.doubled), "ghosts": len(difference.ghosts), "acknowledged": len(load.acknowledged),
        "transaction": places["transaction"], "commit": places["commit"], "login": places["login"],
        "pause": round(load.longest_pause(began), 2), "recovery": round(recovered - healed, 2)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_no_transaction_is_lost_or_doubled(start_pooler, server, fault, record_property, pgbouncer):
    """No transaction is lost or doubled, idle clients stay connected, and all clients work again."""
    pg, node = server
    more = {} if pgbouncer else {"query_wait_notify": 0}
    pooler = start_pooler(pg, **SETTINGS, **more)
    with ledger.Load(BUSY, IDLE, pause=0.02, state=not pgbouncer, host=pooler.host, port=pooler.port, user=USER,
                     password=PASSWORD, dbname="app") as load:
        scene = Scene(pg, pooler, load, node)
        machine.wait_until(lambda: len(load.answered) > 500, 60, "transactions run")
        began = time.monotonic()
        fault(scene)
        machine.wait_until(lambda: answers(pg), 30, "the server answers")
        healed = time.monotonic()
        machine.wait_until(lambda: load.all_since(healed), RECOVERED, "all clients work again")
        recovered = time.monotonic()
        idle = load.failed_idle()
        load.stop()
        difference, row = figures(scene, fault, began, healed, recovered)
    row |= {"pooler": "PgBouncer" if pgbouncer else "pgweir", "idle": len(idle)}
    record_property("figures", "fault: " + ", ".join(f"{key} {value}" for key, value in row.items() if key != "what"))
    if FIGURES in os.environ:
        with open(os.environ[FIGURES], "a") as out:
            out.write(json.dumps(row) + "\n")
    assert difference.count() == 0, difference
    assert pgbouncer or idle == []


def answers(pg):
    with contextlib.suppress(psycopg.OperationalError, OSError), socket.create_connection((pg.host, pg.port), 1):
        return pg.value("SELECT 1") == 1
    return False
