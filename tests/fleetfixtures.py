"""Fixtures of a fleet: poolers that share an etcd and a PostgreSQL."""

import itertools
import signal
import subprocess

import pytest

import machine
import namespaces
from etcd import Etcd, Proxy

BUDGET, FLOOR, LEASE = 60, 5, 2
PGBENCH = "/usr/lib/postgresql/15/bin/pgbench"


class Node:
    """A pooler whose server connections come from a separate address, and that connects to etcd through a proxy. With a
    `network`, it runs in a network namespace of its own.
    """

    def __init__(self, number, pg, etcd, new_pooler, network=None, **settings):
        here = network.host if network else "127.0.0.1"
        self._namespace, self.address = network.add(f"node{number}") if network else (None, here)
        self.to_pg = Proxy(pg.port, f"127.0.1.{number}", here)
        self.to_etcd = Proxy(etcd.port, host=here)
        databases = {"app": f"host={here} port={self.to_pg.port} dbname=app"}
        settings = {"max_server_conn": BUDGET, "fleet_nodes": 3, "fleet_floor": FLOOR, "fleet_lease": LEASE,
                    "fleet_etcd": f"http://{here}:{self.to_etcd.port}", "default_pool_size": 100,
                    "log_connections": 0, "log_disconnections": 0} | settings
        if network:
            settings["listen_addr"] = self.address
        self.pooler = new_pooler(pg, databases=databases, **settings)
        self.pooler.host = self.address
        self._loads = []

    def start(self, clock_offset=None):
        """Starts the pooler. `clock_offset` is the number of seconds by which its clock, CLOCK_BOOTTIME, differs from that of
        this machine. It needs root.
        """
        if clock_offset is not None:
            within = ["unshare", "--time", "--boottime", str(clock_offset), *machine.from_root_to_service()]
        elif self._namespace:
            within = namespaces.within(self._namespace)
        else:
            self.pooler.start()
            return self
        self.pooler.write_files()
        self.pooler.spawn(as_root=True, within=within).listening()
        return self

    def load(self, clients, script):
        """Lets this many clients run transactions until `relax`."""
        bench = [PGBENCH, "-n", "-h", "127.0.0.1", "-p", str(self.pooler.port), "-U", "trusty", "-f", str(script),
                 "-c", str(clients), "-T", "600", "app"]
        self._loads.append(subprocess.Popen(bench, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def relax(self):
        for load in self._loads:
            load.kill()
            load.wait()
        self._loads = []

    def stop(self):
        self.relax()
        if self.pooler.alive():
            self.pooler.signal(signal.SIGCONT)
        self.to_pg.stop()
        self.to_etcd.stop()

    @property
    def servers(self):
        return len(self.pooler.console("SHOW SERVERS"))


_numbers = itertools.count(1)


@pytest.fixture
def fleet_folder(run_folder):
    """A folder of the test that poolers can read."""
    made = run_folder / f"fleet-{next(_numbers)}"
    made.mkdir()
    return machine.give_to_service(made)


@pytest.fixture
def etcd(fleet_folder):
    made = Etcd(fleet_folder).start()
    yield made
    made.remove()


@pytest.fixture
def fleet_pg(start_cluster):
    """A PostgreSQL that lets servers in from all addresses of the loopback network."""
    pg = start_cluster(15, f"fleet-pg-{next(_numbers)}")
    # This line comes first: for a line with the name of a host, PostgreSQL looks up the name of each client's address before it
    # compares the user. Without a name server, such a look-up delays a login by 5 s.
    rules = pg.data / "pg_hba.conf"
    rules.write_text("host all trusty 127.0.0.0/8 trust\n" + rules.read_text())
    pg.run("SELECT pg_reload_conf()")
    pg.run("GRANT pg_read_all_stats TO trusty")
    yield pg
    pg.stop()
    pg.remove()


@pytest.fixture
def start_node(fleet_pg, etcd, new_pooler):
    nodes = []

    def start(clock_offset=None, **settings):
        nodes.append(Node(len(nodes) + 1, fleet_pg, etcd, new_pooler, **settings))
        return nodes[-1].start(clock_offset)

    yield start
    for node in nodes:
        node.stop()


@pytest.fixture
def load_script(fleet_folder):
    path = fleet_folder / "load.sql"
    path.write_text("SELECT pg_sleep(0.02);\n")
    return path
