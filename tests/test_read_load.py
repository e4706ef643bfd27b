"""Clients that mostly read, on a primary and two standbys, while a standby is killed."""

import os
import random
import signal
import threading
import time

import psycopg
import pytest

import machine
from test_certificates import read as read_catalog
from test_host_checks import hosts, standbys_of
from test_hosts import entry

pytestmark = [pytest.mark.pgweir_only("PgBouncer knows no standbys"), pytest.mark.full, pytest.mark.timeout(300)]

CLIENTS, READS = 20, 0.8


@pytest.fixture
def servers(start_cluster, run_folder):
    """A primary and two standbys, for one test."""
    primary = start_cluster(18, f"l{os.urandom(3).hex()}")
    standbys = standbys_of(primary, run_folder, 2)
    primary.run("CREATE TABLE items(id int PRIMARY KEY, value int NOT NULL)", dbname="app")
    primary.run("INSERT INTO items SELECT n, 0 FROM generate_series(1, 1000) n", dbname="app")
    primary.run("GRANT ALL ON items TO PUBLIC", dbname="app")
    # A standby that was killed starts from its last restart point. The checkpoints make this point newer than the table:
    # otherwise the standby could lack the table for a moment.
    primary.run("CHECKPOINT")
    written = primary.value("SELECT pg_current_wal_lsn()", dbname="app")
    for standby in standbys:
        machine.wait_until(lambda: standby.value(f"SELECT pg_last_wal_replay_lsn() >= '{written}'", dbname="app"),  # noqa: B023
                           what="the standby has the table and its rows")
        standby.run("CHECKPOINT")
    yield primary, *standbys
    for server in (*standbys, primary):
        server.stop()
        server.remove()


class Load:
    """Clients that read through one entry and write through another, until the block ends."""

    def __init__(self, pooler, ports):
        self.pooler, self.ports = pooler, ports
        self.stop = threading.Event()
        self.reads, self.writes, self.errors = [], 0, []
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number):
        choice = random.Random(number)
        try:
            with self.pooler.connect(dbname="app_ro") as reader, self.pooler.connect() as writer:
                while not self.stop.is_set():
                    item = choice.randint(1, 1000)
                    if choice.random() < READS:
                        row = reader.execute("SELECT value, inet_server_port() FROM items WHERE id = %s", (item,)).fetchone()
                        self.reads.append(row[1])
                    else:
                        writer.execute("UPDATE items SET value = value + 1 WHERE id = %s", (item,))
                        self.writes += 1
        except psycopg.Error as failure:
            self.errors.append(f"client {number}: {failure}")

    def more(self, count):
        """Waits until so many more reads were answered, or a client has failed."""
        before = len(self.reads)
        machine.wait_until(lambda: self.errors or len(self.reads) >= before + count, 60, f"{count} more reads")

    def share(self, since=0):
        """The share of the reads that standbys have answered."""
        reads = self.reads[since:]
        return sum(port in self.ports for port in reads) / len(reads)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_killed_standby(start_pooler, servers, workers, how):
    """No client gets an error: a read whose reply has not begun goes to another host, and the other standby serves the reads until the killed
    one is back. Each reply fits into one packet, so no reply is cut off.
    """
    primary, killed, other = servers
    databases = {"app": entry(*servers, target_session_attrs="read-write"),
                 "app_ro": entry(*servers, target_session_attrs="prefer-standby")}
    pooler = start_pooler(None, databases=databases, workers=workers, default_pool_size=8, query_wait_notify=0, host_return_after=0,
                          target_session_retry=0.2)
    for database in databases:
        read_catalog(pooler, database, user="trusty")
    with Load(pooler, {killed.port, other.port}) as load:
        load.more(2000)
        before, down = len(load.reads), time.monotonic()
        if how == "stop":
            killed.stop("immediate")
        else:
            # PostgreSQL ends all other sessions, and recovers.
            os.kill(killed.backends("usename = 'trusty'")[0], signal.SIGKILL)
        load.more(2000)
        if how == "stop":
            killed.start()
        machine.wait_until(lambda: load.errors or hosts(pooler)[killed.port]["state"] == "up", 60, "the standby is back")
        back = time.monotonic()
        load.more(1000)
    repeated = pooler.log().count("the request is repeated")
    print(f"{how}: {len(load.reads)} reads, {load.writes} writes, {len(load.errors)} errors, {repeated} repeated; from standbys "
          f"{load.share():.1%}, while one was down {load.share(before):.1%}; back after {back - down:.1f} s")
    assert load.errors == []
    assert load.share() > 0.95
    assert pooler.log().count("cannot execute UPDATE in a read-only transaction") == 0
    written = int(primary.value("SELECT sum(value) FROM items", dbname="app"))
    assert written == load.writes
