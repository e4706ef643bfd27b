"""PostgreSQL servers that real Patroni manages with a real etcd, each in a network namespace of its own.

Each server has a link that a test can cut.
"""

import contextlib
import http.client
import json
import os
import signal

import psycopg

import cluster as clusters
import machine
from namespaces import Network, Node

NAMES = ("one", "two", "three")
VERSION = 15
# As low as Patroni and etcd allow: loop_wait + 2 * retry_timeout <= ttl.
TIMING = {"ttl": 5, "loop_wait": 1, "retry_timeout": 2}


class Etcd(Node):
    """One etcd in its own namespace."""

    @property
    def client(self):
        return f"{self.address}:2379"

    def start(self):
        url, peers = f"http://{self.client}", f"http://{self.address}:2380"
        self.spawn("etcd", "--name", "etcd", "--data-dir", str(self.folder / "data"), "--listen-client-urls", url,
                   "--advertise-client-urls", url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                   "--initial-cluster", f"etcd={peers}", "--unsafe-no-fsync")
        machine.wait_until(lambda: _get(self.address, 2379, "/health") is not None, 30, f"etcd answers ({self.log})")


def _get(address, port, path):
    """The answer of an HTTP server as JSON, or None without one."""
    connection = http.client.HTTPConnection(address, port, timeout=2)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class Server(Node):
    """Patroni and its PostgreSQL."""

    port = 5432

    def configure(self, etcd, cidr):
        self._data = self.folder / "data"
        parameters = {"max_connections": 200, "fsync": "off", "shared_buffers": "32MB", "autovacuum": "off",
                      "unix_socket_directories": str(self.folder), "wal_log_hints": "on", "max_wal_size": "1GB"}
        hba = [f"host {database} all {net} trust" for database in ("all", "replication") for net in ("127.0.0.1/32", cidr)]
        hba += ["local all all trust", "local replication all trust"]
        text = {
            "scope": "shop", "name": self.name, "etcd3": {"host": etcd.client},
            "restapi": {"listen": f"{self.address}:8008", "connect_address": f"{self.address}:8008"},
            "bootstrap": {
                "dcs": TIMING | {
                    # Without it, a failover of PostgreSQL may lose acknowledged transactions, which no pooler can
                    # prevent.
                    "synchronous_mode": True, "primary_start_timeout": 0, "master_start_timeout": 0,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": parameters}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"], "pg_hba": hba},
            "postgresql": {
                "listen": f"{self.address},127.0.0.1:{self.port}", "connect_address": f"{self.address}:{self.port}",
                "data_dir": str(self._data), "bin_dir": str(clusters.bindir(VERSION)), "pgpass": str(self.folder / "pgpass"),
                "authentication": {role: {"username": "postgres", "password": "x"}
                                   for role in ("superuser", "replication", "rewind")},
                "basebackup": [{"checkpoint": "fast"}], "pg_hba": hba, "parameters": {"unix_socket_directories": str(self.folder)}}}
        path = self.folder / "patroni.json"
        path.write_text(json.dumps(text))
        machine.give_to_service(path)

    def start(self):
        self.spawn("patroni", str(self.folder / "patroni.json"))

    @property
    def postmaster(self):
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def kill_postmaster(self):
        os.kill(self.postmaster, signal.SIGKILL)

    def status(self):
        """Returns Patroni's report about its server, or None."""
        return _get(self.address, 8008, "/patroni")

    def is_primary(self):
        status = self.status()
        return status is not None and status.get("state") == "running" and status.get("role") in ("master", "primary")

    def connect(self, dbname="app", **options):
        return psycopg.connect(host=self.address, port=self.port, user="postgres", dbname=dbname, autocommit=True,
                               **{"connect_timeout": 2, "tcp_user_timeout": 2000} | options)


class Cluster:
    """Three servers with Patroni, and an etcd."""

    def __init__(self, folder):
        self.network = Network()
        self.etcd = Etcd(self.network, "etcd", folder)
        self.servers = [Server(self.network, name, folder) for name in NAMES]

    def start(self):
        self.etcd.start()
        for server in self.servers:
            server.configure(self.etcd, self.network.cidr)
        self.servers[0].start()
        machine.wait_until(self.servers[0].is_primary, 60, f"the first server runs ({self.servers[0].log})")
        for server in self.servers[1:]:
            server.start()
        with self.servers[0].connect("postgres") as db:
            db.execute("CREATE ROLE trusty LOGIN")
            db.execute("CREATE DATABASE app OWNER trusty")
        self.settled()

    def remove(self):
        self.network.remove()

    @property
    def primary(self):
        found = [server for server in self.servers if server.is_primary()]
        return found[0] if len(found) == 1 else None

    def settled(self):
        """Waits until one server is the primary, the others follow it, and one of them is synchronous."""
        def is_settled():
            primary = self.primary
            if primary is None:
                return False
            with contextlib.suppress(psycopg.OperationalError), primary.connect("postgres") as db:
                following = db.execute("SELECT count(*), count(*) FILTER (WHERE sync_state = 'sync') FROM pg_stat_replication"
                                       " WHERE state = 'streaming'").fetchone()
                return following == (len(self.servers) - 1, 1) and _synchronous_of(primary) is not None
            return False
        machine.wait_until(is_settled, 90, f"all servers follow one primary ({self.servers[0].folder.parent})")

    def switchover(self):
        """Makes the synchronous standby the primary, and waits until Patroni says that this is done."""
        primary = self.primary
        standby = _synchronous_of(primary)
        connection = http.client.HTTPConnection(primary.address, 8008, timeout=60)
        connection.request("POST", "/switchover", json.dumps({"leader": primary.name, "candidate": standby}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        words = answer.read().decode()
        connection.close()
        assert answer.status == 200, words


def _synchronous_of(primary):
    """Returns the name of the synchronous standby that Patroni has recorded in etcd, or None."""
    members = (_get(primary.address, 8008, "/cluster") or {}).get("members", ())
    return next((member["name"] for member in members if member["role"] == "sync_standby"), None)
