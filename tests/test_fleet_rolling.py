"""The poolers of a fleet behind HAProxy are restarted one after the other under load: no transaction fails."""

import shutil
import signal
import subprocess
import threading
import time

import psycopg
import pytest

import haproxy
import machine
import namespaces
from fleetfixtures import BUDGET
from test_fleet_etcd import Sampler

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer does not know etcd"),
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("etcd") is None or haproxy.PROGRAM is None, reason="needs etcd and haproxy: tools/install-deps full"),
]

TRANSACTION_MS = 5
# The pauses between the transactions of a client, in seconds.
PAUSES = [0, 0.005, 0.02, 0.1, 0.5, 2]
CLIENTS_PER_PAUSE = 3
# HAProxy checks each node ten times a second.
DRAIN_DELAY = 1


class Client(threading.Thread):
    """A client whose driver connects again by itself if the connection is lost before BEGIN is answered."""

    def __init__(self, port, number, pause, ends):
        super().__init__(daemon=True)
        self._port, self._number, self._pause, self._ends = port, number, pause, ends
        self._db = None
        self.connections, self.committed, self.longest_begin = 0, 0, 0
        self.failures = []

    def run(self):
        while not self._ends.is_set():
            try:
                self._begin()
                self._db.execute("INSERT INTO rolling VALUES (%s, %s)", (self._number, self.committed))
                self._db.execute("SELECT pg_sleep(%s)", (TRANSACTION_MS / 1000,))
                self._db.execute("COMMIT")
                self.committed += 1
            except (psycopg.Error, TimeoutError) as error:
                self.failures.append(error)
                self._db = None
            self._ends.wait(self._pause)

    def _begin(self):
        begun = time.monotonic()
        while time.monotonic() < begun + 30:
            try:
                if self._db is None:
                    self._db = psycopg.connect(host="127.0.0.1", port=self._port, user="trusty", dbname="app", autocommit=True,
                                               connect_timeout=20, prepare_threshold=None)
                    self.connections += 1
                self._db.execute("BEGIN")
                self.longest_begin = max(self.longest_begin, time.monotonic() - begun)
                return
            except psycopg.OperationalError:
                self._db = None
        raise TimeoutError("no connection within 30 s")


@pytest.fixture(params=["one network", "namespaces"])
def network(request):
    """The network of the nodes; None if they run in the network of this machine."""
    if request.param == "one network":
        yield None
        return
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    made = namespaces.Network()
    yield made
    made.remove()


@pytest.fixture
def start_balanced(network, start_node, fleet_folder):
    """Starts three nodes behind HAProxy."""
    ports = [machine.free_port() for _ in range(3)]
    started = []

    def start(**settings):
        nodes = {}
        for number, port in enumerate(ports):
            path = fleet_folder / f"http-{number}.sock"
            node = start_node(network=network, http_listen=f"*:{port}, {path}", **settings)
            nodes[f"node{number}"] = node
        pairs = {name: (node.address, node.pooler.port, port) for (name, node), port in zip(nodes.items(), ports)}
        started.append(haproxy.HaProxy(fleet_folder, pairs).start())
        for name in nodes:
            started[0].wait_for(name, "UP")
        return started[0], nodes

    yield start
    for one in started:
        one.stop()
    for port in ports:
        machine.release_port(port)


def _drain_and_restart(name, node, balancer):
    """What Kubernetes does with a pod: the command of preStop, then SIGINT. The command has a shorter delay, in which HAProxy notices."""
    command = [node.pooler.program, "drain", "--delay", str(DRAIN_DELAY), "--timeout", "60", node.pooler.ini_path]
    drain = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    balancer.wait_for(name, "DOWN")
    _, words = drain.communicate(timeout=90)
    assert drain.returncode == 0, words
    node.pooler.signal(signal.SIGINT)
    assert node.pooler.wait_end(60) == 0
    node.start()
    balancer.wait_for(name, "UP")


@pytest.mark.timeout(300)
def test_a_rolling_restart_fails_no_transaction(start_balanced, fleet_pg):
    fleet_pg.run("CREATE TABLE rolling (client int, number int); GRANT ALL ON rolling TO trusty", dbname="app")
    balancer, nodes = start_balanced(default_pool_size=10)
    ends = threading.Event()
    pauses = PAUSES * CLIENTS_PER_PAUSE
    clients = [Client(balancer.port, number, pause, ends) for number, pause in enumerate(pauses)]
    with Sampler(fleet_pg) as sampler:
        for client in clients:
            client.start()
        machine.wait_until(lambda: all(client.committed >= 2 for client in clients), 60, "each client has run transactions")
        for _ in range(2):
            for name, node in nodes.items():
                _drain_and_restart(name, node, balancer)
        before = [client.committed for client in clients]
        machine.wait_until(lambda: all(client.committed > count for client, count in zip(clients, before)), 60, "each client goes on")
        ends.set()
        for client in clients:
            client.join(60)
    failures = [failure for client in clients for failure in client.failures]
    committed = sum(client.committed for client in clients)
    connections = sum(client.connections for client in clients)
    longest = max(client.longest_begin for client in clients)
    print(f"{committed} transactions, {connections} connections of {len(clients)} clients, longest BEGIN {longest:.2f} s, "
          f"at most {sampler.most} servers")
    assert failures == []
    assert fleet_pg.rows("SELECT count(*) FROM rolling", dbname="app") == [(committed,)]
    assert connections > len(clients)
    assert sampler.most <= BUDGET
