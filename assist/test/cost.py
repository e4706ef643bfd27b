"""What a transaction costs a backend, with and without the assist extension, in microseconds of CPU.

    .venv/bin/python assist/test/cost.py [--batches 300] [--versions 15 18]

Sessions of one cluster take turns, some with the extension and some without. Each batch is so many transactions in a
row, pipelined; the backend's time on a CPU is read from /proc/PID/schedstat. What counts is the best batch, since
noise only ever adds.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import cluster as clusters
import machine
import rawclient
from rawclient import RawClient

TRANSACTIONS_PER_BATCH = 250
SESSIONS = 3
ROLES = {"without": "trusty", "with": "replicator"}

SETUP = """
CREATE FUNCTION plain_function() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE TABLE plain_table (x int);
"""

# Name: statements of a session before it is measured; the measured statement.
CASES = {
    "select 1": ("", "SELECT 1"),
    "set local": ("", "SELECT set_config('app.tenant', '1', true)"),
    "a user-defined function": ("", "SELECT plain_function()"),
    "select 1, with 3 settings": ("SET work_mem = 100; SET a.b = 'c'; SET search_path = public", "SELECT 1"),
    "select 1, with a temp table": ("CREATE TEMP TABLE t (x int)", "SELECT 1"),
    "insert, with a temp table": ("CREATE TEMP TABLE t (x int)", "INSERT INTO plain_table VALUES (1)"),
    "select 1, with 20 prepared by SQL": (";".join(f"PREPARE p{n} AS SELECT 1" for n in range(20)), "SELECT 1"),
}


def on_cpu_ns(pid):
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


class Measured:
    """A session that runs one statement again and again."""

    def __init__(self, cluster, role, before, statement):
        self.client = RawClient.unix(f"{cluster.socket_dir}/.s.PGSQL.{cluster.port}", timeout=60)
        self.client.login(role, "app")
        if before:
            assert not rawclient.errors(self.client.query(before))
        self.client.send(rawclient.parse(statement, "s"), rawclient.SYNC)
        assert not rawclient.errors(self.client.until_ready())
        self.pid = int(self.client.value("SELECT pg_backend_pid()"))
        one = rawclient.bind(name="s") + rawclient.execute() + rawclient.SYNC
        self.batch = one * TRANSACTIONS_PER_BATCH
        self.best = float("inf")

    def run(self):
        before = on_cpu_ns(self.pid)
        self.client.send(self.batch)
        for _ in range(TRANSACTIONS_PER_BATCH):
            assert not rawclient.errors(self.client.until("Z"))
        spent = (on_cpu_ns(self.pid) - before) / 1000 / TRANSACTIONS_PER_BATCH
        self.best = min(self.best, spent)


def measure(cluster, before, statement, batches):
    sessions = [(kind, Measured(cluster, role, before, statement))
                for _ in range(SESSIONS) for kind, role in ROLES.items()]
    for _ in range(batches):
        for _, session in sessions:
            session.run()
    for _, session in sessions:
        session.client.close()
    return {kind: min(s.best for k, s in sessions if k == kind) for kind in ROLES}


def start(version, folder):
    binaries = clusters.Binaries(version, folder)
    data = clusters.make_template(binaries, folder)
    cluster = clusters.Cluster(binaries, folder, data)
    cluster.start()
    library = clusters.build_assist(version, folder)
    cluster.run(f"ALTER ROLE {ROLES['with']} SET session_preload_libraries = '{library}'")
    cluster.run(SETUP, dbname="app")
    cluster.run("GRANT ALL ON plain_table TO PUBLIC", dbname="app")
    return cluster


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--batches", type=int, default=300)
    arguments.add_argument("--versions", type=int, nargs="+", default=clusters.VERSIONS)
    arguments.add_argument("--cases", nargs="+", default=list(CASES))
    given = arguments.parse_args()
    for version in given.versions:
        folder = Path(tempfile.mkdtemp(prefix="pgweir-cost-"))
        folder.chmod(0o755)
        machine.give_to_service(folder)
        cluster = start(version, folder)
        try:
            print(f"PostgreSQL {cluster.value('SHOW server_version')}: us per transaction\n"
                  f"{'':36}{'without':>10}{'with':>10}{'difference':>12}", flush=True)
            for name in given.cases:
                best = measure(cluster, *CASES[name], given.batches)
                print(f"{name:36}{best['without']:10.2f}{best['with']:10.2f}"
                      f"{best['with'] - best['without']:12.2f}", flush=True)
        finally:
            cluster.stop()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
