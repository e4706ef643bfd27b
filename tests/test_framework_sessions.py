"""Session state as drivers and frameworks use it: many clients share two servers at the same time, and each gets
correct results.
"""

import asyncio
import itertools
import threading

import asyncpg
import psycopg
import pytest

import rawclient as wire
from rawclient import SYNC, bind, execute, parse, query

SERVERS, ROUNDS = 2, 6


class Direct:
    """PostgreSQL itself, with the methods of a pooler that these tests use."""

    def __init__(self, pg):
        self.host, self.port = pg.host, pg.port

    def raw(self, **parameters):
        return wire.RawClient.tcp(self.host, self.port).login("trusty", "app", **parameters)

    def connect(self, **options):
        return psycopg.connect(host=self.host, port=self.port, user="trusty", dbname="app", autocommit=True, **options)


@pytest.fixture(params=("direct", "plain", "assisted"))
def office(request, shared_clusters, start_pooler):
    """A pooler with few servers, or none, and the tables of the habits."""
    pg = shared_clusters(18, request.param == "assisted" or None)
    pg.run("DROP TABLE IF EXISTS jobs, tenants_rows, schema_versions; CREATE TABLE jobs (id serial, done_by int);"
           " CREATE TABLE schema_versions (n int); CREATE TABLE tenants_rows (tenant text);"
           " INSERT INTO tenants_rows SELECT 'tenant' || n FROM generate_series(1, 30) n;"
           " ALTER TABLE tenants_rows ENABLE ROW LEVEL SECURITY;"
           " CREATE POLICY own ON tenants_rows USING (tenant = current_setting('app.tenant', true));"
           " GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC",
           dbname="app")
    if request.param == "direct":
        return Direct(pg)
    return start_pooler(pg, default_pool_size=SERVERS, workers=2)


def django(office, number):
    """Sets what it needs at connect, and works in autocommit."""
    zone = ("Asia/Tokyo", "Europe/Paris", "UTC")[number % 3]
    with office.connect(options=f"-c search_path=django{number},public") as db:
        assert db.info.parameter_status("DateStyle").startswith("ISO")
        db.execute("SELECT set_config('TimeZone', %s, false)", (zone,))
        db.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for _ in range(ROUNDS):
            assert db.execute("SHOW TimeZone").fetchone() == (zone,)
            assert db.info.parameter_status("TimeZone") == zone
            assert db.execute("SHOW search_path").fetchone() == (f"django{number},public",)
            with db.transaction():
                assert db.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)


def rails(office, number):
    """Several SETs at connect, named prepared statements, DEALLOCATE when its cache is full."""
    with office.raw(application_name=f"rails{number}") as db:
        for sql in ("SET client_min_messages TO 'warning'", "SET standard_conforming_strings = on",
                    "SET intervalstyle = 'iso_8601'", "SET SESSION timezone TO 'UTC'",
                    f"SET SESSION statement_timeout TO {30000 + number}"):
            assert wire.errors(db.send(query(sql)).until_ready()) == []
        for n in range(ROUNDS):
            name = f"a{n}"
            db.send(parse(f"SELECT 'rails{number}', '{n}'", name), SYNC).until_ready()
            for _ in range(2):
                assert wire.rows(db.send(bind(name=name), execute(), SYNC).until_ready()) == [(f"rails{number}", str(n))]
            assert wire.errors(db.send(query(f"DEALLOCATE {name}")).until_ready()) == []
            assert wire.value(db.send(query("SHOW statement_timeout")).until_ready()) == f"{30000 + number}ms"
            assert wire.value(db.send(query("SELECT '25h'::interval")).until_ready()) == "PT25H"


def pdo(office, number):
    """PREPARE by the protocol, DEALLOCATE by SQL, names that every client has."""
    with office.raw() as db:
        for n in range(1, ROUNDS):
            name = f"pdo_stmt_{n:08}"
            assert wire.errors(db.send(parse(f"SELECT {number} + $1::int", name), SYNC).until_ready()) == []
            for value in (1, 2):
                got = db.send(bind([value], name=name), execute(), SYNC).until_ready()
                assert wire.rows(got) == [(str(number + value),)]
            assert wire.errors(db.send(query(f"DEALLOCATE {name}")).until_ready()) == []
            assert wire.errors(db.send(query(f"EXECUTE {name}(1)")).until_ready())[0][0] == "26000"


def npgsql(office, number):
    """Npgsql's pool sends DISCARD ALL before the first statement of the next use."""
    with office.raw() as db:
        for n in range(ROUNDS):
            db.send(query(f"SET app.tenant = 'tenant{number}'"))
            db.until_ready()
            assert wire.rows(db.send(query("SELECT tenant FROM tenants_rows")).until_ready()) == [(f"tenant{number}",)]
            db.send(query(f"CREATE TEMP TABLE work AS SELECT {n} AS n")).until_ready()
            assert wire.value(db.send(query("SELECT n FROM work")).until_ready()) == str(n)
            got = db.send(query("DISCARD ALL"), wire.extended("SELECT count(*) FROM tenants_rows"), SYNC)
            assert got.until_ready()[-2].tag == "DISCARD ALL"
            assert wire.rows(got.until_ready()) == [("0",)]
            assert wire.errors(db.send(query("SELECT n FROM work")).until_ready())[0][0] == "42P01"


def psycopg_pipeline(office, number):
    """Pipelines with its own prepared statements, and settings in the middle."""
    with office.connect(prepare_threshold=1) as db:
        for n in range(ROUNDS):
            with db.pipeline():
                first = db.execute("SELECT %s::int + 1", (number,))
                db.execute("SELECT set_config('app.step', %s, false)", (str(n),))
                second = db.execute("SELECT current_setting('app.step')")
            assert first.fetchone() == (number + 1,) and second.fetchone() == (str(n),)
            with pytest.raises(psycopg.errors.DivisionByZero), db.transaction():
                db.execute("SET LOCAL work_mem = '2MB'")
                db.execute("SELECT %s::int / 0", (number,))
            assert db.execute("SHOW work_mem").fetchone() == ("4MB",)


def migration(office, number):
    """Works under an advisory lock; no two do at once."""
    with office.connect() as db:
        for _ in range(2):
            db.execute("SELECT pg_advisory_lock(4242)")
            seen = db.execute("SELECT count(*) FROM schema_versions").fetchone()
            with db.transaction():
                db.execute("CREATE TEMP TABLE diff (n int) ON COMMIT DROP")
                db.execute("INSERT INTO schema_versions VALUES (%s)", (number,))
            assert db.execute("SELECT count(*) FROM schema_versions").fetchone() == (seen[0] + 1,)
            assert db.execute("SELECT pg_advisory_unlock(4242)").fetchone() == (True,)


def asyncpg_pool(office, number):
    """asyncpg's pool resets each connection that comes back, and caches statements by name."""
    async def work():
        pool = await asyncpg.create_pool(host=office.host, port=office.port, user="trusty", database="app",
                                         min_size=1, max_size=2)
        async with pool:
            for n in range(ROUNDS):
                async with pool.acquire() as db:
                    assert await db.fetchval("SELECT current_setting('work_mem')") == "4MB"
                    await db.execute("SET work_mem = '9MB'")
                    assert await db.fetchval("SELECT current_setting('work_mem')") == "9MB"
                    assert await db.fetchval("SELECT $1::int", number * 10 + n) == number * 10 + n

    asyncio.run(asyncio.wait_for(work(), 60))


HABITS = (django, rails, pdo, npgsql, psycopg_pipeline, migration, asyncpg_pool)


def test_all_frameworks_share_two_servers(office):
    """Three clients of each habit share two servers, and none notices another."""
    problems, threads = [], []

    def live(habit, number):
        try:
            habit(office, number)
        except BaseException as error:
            problems.append((habit.__name__, number, repr(error)[:500]))

    for number, habit in zip(itertools.count(1), HABITS * 3, strict=False):
        threads.append(threading.Thread(target=live, args=(habit, number), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("habit", HABITS)
def test_each_framework_beside_another_client(office, habit):
    """One client of each kind, while another client uses the servers."""
    with office.connect() as neighbour:
        neighbour.execute("SET work_mem = '1MB'; SET TimeZone = 'Asia/Kolkata'; SET app.tenant = 'tenant9'")
        habit(office, 5)
        assert neighbour.execute("SHOW work_mem").fetchone() == ("1MB",)


def test_job_queue(office):
    """Workers that wait by LISTEN, and take jobs by SKIP LOCKED: each job is done once."""
    jobs, workers, done = 40, 6, []
    lock = threading.Lock()
    ready = threading.Barrier(workers + 1)

    def work(number):
        with office.connect() as db:
            db.execute("LISTEN jobs")
            ready.wait(20)
            while len(done) < jobs:
                row = db.execute("UPDATE jobs SET done_by = %s WHERE id = (SELECT id FROM jobs WHERE done_by IS NULL"
                                 " LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id", (number,)).fetchone()
                if row:
                    with lock:
                        done.append(row[0])
                else:
                    list(db.notifies(timeout=1, stop_after=1))

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(workers)]
    for thread in threads:
        thread.start()
    ready.wait(20)
    with office.connect() as db:
        for _ in range(jobs):
            with db.transaction():
                db.execute("INSERT INTO jobs DEFAULT VALUES")
                db.execute("NOTIFY jobs")
    for thread in threads:
        thread.join(30)
    assert sorted(done) == list(range(1, jobs + 1))
