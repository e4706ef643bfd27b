"""Drivers with prepared statements: many clients, few servers, transaction mode."""

import json
import subprocess
import sys

import pytest

import machine
from pooler import ROOT

CLIENTS, SERVERS, ROUNDS = 50, 3, 2

# How to run each program, from the root of the tree.
PROGRAMS = {
    "pgx": [".drivers/pgx/run"],
    "pgjdbc": ["java", "-XX:TieredStopAtLevel=1", "-cp",
               ".drivers/pgjdbc/classes:.drivers/pgjdbc/dependency/*", "Drivers"],
    "node-postgres": ["node", ".drivers/node-postgres/main.js"],
    "psycopg": [sys.executable, "tests/drivers/psycopg/main.py"],
    "asyncpg": [sys.executable, "tests/drivers/asyncpg/main.py"],
}
BUILT = ("pgx", "pgjdbc", "node-postgres")


@pytest.fixture(params=PROGRAMS)
def driver(request):
    """Runs a driver's program against an address, and checks what it kept in the table."""
    name = request.param
    if name in BUILT:
        subprocess.run([ROOT / "tools" / "build-drivers", name], check=True, timeout=100)

    def run(host, port, pg, clients=CLIENTS):
        pg.run("DROP TABLE IF EXISTS driver_rows", dbname="app")
        pg.run("CREATE TABLE driver_rows (client int, round int, word text)", dbname="app")
        done = subprocess.run(
            [*PROGRAMS[name], host, str(port), "trusty", "app", str(clients), str(ROUNDS)],
            cwd=ROOT, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr[-4000:]
        report = json.loads(done.stdout)
        assert report["answers"] > clients * ROUNDS * 50
        assert pg.value("SELECT count(*) FROM driver_rows", dbname="app") == report["kept"]
        assert pg.value("SELECT count(*) FROM driver_rows WHERE word = 'lost'", dbname="app") == 0

    return run


def test_without_a_pooler(driver, newest_pg):
    """PostgreSQL itself behaves as the programs expect."""
    driver(newest_pg.host, newest_pg.port, newest_pg, clients=10)


@pytest.mark.pgweir_only("an error in a Parse costs the name, and the client")
@pytest.mark.shows("max_prepared_statements")
@pytest.mark.usefixtures("nothing_runs")
def test_transaction_mode(driver, start_pooler, pg):
    """A server may have fewer prepared statements than the clients have."""
    pooler = start_pooler(pg, default_pool_size=SERVERS, max_prepared_statements=20)
    driver(pooler.host, pooler.port, pg)
    assert len(pg.backends("usename = 'trusty'")) <= SERVERS
    machine.wait_until(lambda: pooler.pool()["cl_active"] == 0, what="all have left")
