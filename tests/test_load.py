"""Real load: pgbench in all its modes, many clients, and storms of short connections."""

import asyncio
import re
import subprocess
import threading

import asyncpg
import pytest

import machine
import rawclient as wire

SERVERS = 10


@pytest.fixture
def pgbench(pg):
    """Runs pgbench through a pooler; the tables are made once per cluster."""
    if pg.value("SELECT to_regclass('pgbench_accounts') IS NULL", dbname="app"):
        subprocess.run([pg.binaries.path("pgbench"), "-i", "-q", "-h", pg.host, "-p", str(pg.port),
                        "-U", "trusty", "app"], check=True, capture_output=True)

    def run(pooler, *options, seconds=5):
        done = subprocess.run(
            [pg.binaries.path("pgbench"), "-n", "-T", str(seconds), *options, "-h", pooler.host,
             "-p", str(pooler.port), "-U", "trusty", "app"],
            capture_output=True, text=True, timeout=seconds + 60)
        assert done.returncode == 0, done.stderr
        assert "number of failed transactions: 0 (" in done.stdout, done.stdout
        assert "error" not in done.stderr, done.stderr
        return int(re.search(r"transactions actually processed: (\d+)", done.stdout).group(1))

    return run


def balances(pg):
    """The four sums that TPC-B keeps equal if no transaction was lost or run twice."""
    return pg.rows("SELECT (SELECT sum(abalance) FROM pgbench_accounts),"
                   " (SELECT sum(tbalance) FROM pgbench_tellers),"
                   " (SELECT sum(bbalance) FROM pgbench_branches)", dbname="app")[0]


@pytest.mark.parametrize("mode", ["simple", "extended"])
@pytest.mark.usefixtures("nothing_runs")
def test_tpcb(start_pooler, pg, pgbench, workers, mode):
    """100 clients on 10 servers: no client fails, and the sums of TPC-B are equal at the end."""
    pooler = start_pooler(pg, default_pool_size=SERVERS, workers=workers)
    count = "SELECT count(*) FROM pgbench_history"
    before = pg.value(count, dbname="app")
    done = pgbench(pooler, "-c", "100", "-M", mode)
    assert done > 100
    assert pg.value(count, dbname="app") - before == done
    assert len(set(balances(pg))) == 1
    assert len(pg.backends("usename = 'trusty'")) <= SERVERS


def test_short_connections(start_pooler, pg, pgbench, workers):
    pooler = start_pooler(pg, default_pool_size=SERVERS, workers=workers)
    assert pgbench(pooler, "-C", "-S", "-c", "20", seconds=3) > 100
    machine.wait_until(lambda: pooler.pool()["cl_active"] == 0, what="all have left")


def test_short_connections_with_scram(start_pooler, pg, workers):
    """SCRAM logins while other clients run transactions."""
    users = {"scrammed": pg.secret_of("scrammed")}
    pooler = start_pooler(pg, default_pool_size=SERVERS, workers=workers, users=users,
                          auth_type="scram-sha-256")
    done = subprocess.run(
        [pg.binaries.path("pgbench"), "-n", "-C", "-c", "10", "-T", "3", "-f", "/dev/stdin",
         "-h", pooler.host, "-p", str(pooler.port), "-U", "scrammed", "app"], input="SELECT 1;\n",
        capture_output=True, text=True, timeout=60, env={"PGPASSWORD": "scram password"})
    assert done.returncode == 0, done.stderr
    assert "number of failed transactions: 0 (" in done.stdout


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_session_mode(start_pooler, pg, pgbench, mode):
    pooler = start_pooler(pg, pool_mode="session", default_pool_size=20)
    assert pgbench(pooler, "-c", "20", "-M", mode, seconds=3) > 100


def test_session_mode_with_more_clients_than_servers(start_pooler, pg, pgbench):
    pooler = start_pooler(pg, pool_mode="session", default_pool_size=5)
    assert pgbench(pooler, "-c", "20", "-C", "-S", seconds=3) > 50


def test_pipelines(start_pooler, pg, pgbench, workers, folder):
    """pgbench's pipeline mode: many extended messages with one Sync."""
    script = folder / "pipeline.sql"
    script.write_text("\\set a random(1, 100000)\n\\startpipeline\n"
                      + "SELECT abalance FROM pgbench_accounts WHERE aid = :a;\n" * 10
                      + "\\endpipeline\n")
    pooler = start_pooler(pg, default_pool_size=SERVERS, workers=workers)
    assert pgbench(pooler, "-c", "30", "-M", "extended", "-f", str(script), seconds=3) > 100


def test_big_results_to_many(start_pooler, pg, pgbench, workers, folder):
    script = folder / "big.sql"
    script.write_text("SELECT repeat('x', 1000000);\nSELECT n FROM generate_series(1, 5000) n;\n")
    pooler = start_pooler(pg, default_pool_size=4, workers=workers)
    before = pooler.memory_kb()
    assert pgbench(pooler, "-c", "30", "-f", str(script), seconds=3) > 20
    assert pooler.memory_kb() - before < 32 << 10


def test_thousand_clients(start_pooler, pg, workers):
    """All clients connect, are served, and disconnect."""
    pooler = start_pooler(pg, default_pool_size=SERVERS, max_client_conn=1200, workers=workers)
    clients = [pooler.raw() for _ in range(1000)]
    for _ in range(3):
        for client in clients:
            client.send(wire.query("SELECT pg_backend_pid()"))
        backends = {wire.value(client.until_ready()) for client in clients}
        assert len(backends) <= SERVERS
    assert pooler.pool()["cl_active"] == 1000
    for client in clients:
        client.close()
    machine.wait_until(lambda: pooler.pool()["cl_active"] == 0, what="all have left")


def test_clients_come_and_go_at_once(start_pooler, newest_pg, workers):
    """Logins from many threads while every server is busy."""
    pooler = start_pooler(newest_pg, default_pool_size=4, workers=workers)
    problems = []

    def connect_repeatedly():
        try:
            for _ in range(30):
                with pooler.raw() as client:
                    assert client.value("SELECT pg_sleep(0.001)::text || 'x'") == "x"
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    threads = [threading.Thread(target=connect_repeatedly) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_asyncpg_pool(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=5, workers=workers)

    async def work():
        async with asyncpg.create_pool(
            host=pooler.host, port=pooler.port, user="trusty", database="app", min_size=30,
            max_size=30, statement_cache_size=0, reset=no_reset,
        ) as pool:
            async def one(n):
                async with pool.acquire() as db, db.transaction():
                    assert await db.fetchval("SELECT $1::int", n) == n
                    return await db.fetchval("SELECT pg_backend_pid()")

            backends = await asyncio.gather(*(one(n) for n in range(600)))
            assert len(set(backends)) <= 5

    async def no_reset(_):
        """The pooler separates sessions, so asyncpg's reset is not needed, which would cost a round trip."""

    asyncio.run(work())


@pytest.mark.full
@pytest.mark.timeout(900)
def test_tpcb_for_a_minute(start_pooler, pg, pgbench, workers):
    pooler = start_pooler(pg, default_pool_size=20, max_client_conn=1200, workers=workers)
    before = pooler.memory_kb()
    assert pgbench(pooler, "-c", "1000", seconds=60) > 1000
    assert len(set(balances(pg))) == 1
    assert pooler.memory_kb() - before < 32 << 10
