"""An hour of mixed load (`--soak-minutes`): no error, no transaction lost, and memory stays flat, though the configuration is
reloaded, all servers are replaced, and the server dies now and then.
"""

import contextlib
import itertools
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter

import psycopg
import pytest

import ledger
import machine

BUSY, IDLE, MIXED = 12, 40, 8
# How much memory may grow between the second quarter and the last one: a share, and a constant for noise in short runs.
GROWTH, NOISE_KB = 0.03, 2_000
SEED = 1


def prepared(db, rng):
    assert db.execute(f"SELECT %s::int + {rng.randrange(300)}", (1,), prepare=True).fetchone()[0] > 0


def setting(db, rng):
    value = f"{rng.randrange(65, 9999, 2)}kB"
    db.execute(f"SET work_mem = '{value}'")
    assert db.execute("SELECT current_setting('work_mem')").fetchone() == (value,)


def temporary_table(db, rng):
    db.execute("CREATE TEMP TABLE mine AS SELECT generate_series(1, 100) AS n")
    assert db.execute("SELECT count(*) FROM mine").fetchone() == (100,)
    db.execute("DROP TABLE mine")


def copy(db, rng):
    with db.transaction(force_rollback=True), db.cursor() as cursor:
        with cursor.copy("COPY soaked FROM STDIN") as rows:
            for n in range(rng.randrange(1, 500)):
                rows.write_row((n, "x" * rng.randrange(200)))
        with cursor.copy("COPY (SELECT repeat('y', 1000) FROM generate_series(1, 300)) TO STDOUT") as rows:
            assert sum(len(data) for data in rows) == 300 * 1001


def large_result(db, rng):
    assert len(db.execute("SELECT repeat('x', 1000) FROM generate_series(1, %s)", (rng.randrange(2000),)).fetchall()) < 2000


def failing(db, rng):
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.execute("SELECT 1 / (SELECT 0)")


def failing_transaction(db, rng):
    with pytest.raises(psycopg.errors.UndefinedTable), db.transaction():
        db.execute("SELECT * FROM nowhere")


def pipeline(db, rng):
    with db.pipeline():
        cursors = [db.execute("SELECT %s::int", (n,)) for n in range(20)]
    assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(20)]


def canceled(db, rng):
    """A cancel request may come before the statement runs, or after it has ended."""
    timer = threading.Timer(rng.random() / 10, db.cancel)
    timer.start()
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        db.execute("SELECT pg_sleep(0.1)")
    timer.join()
    # The request was handled when its connection is closed. It may still cancel the next statement.
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        db.execute("SELECT 1")


def listening(db, rng):
    db.execute("LISTEN soak")
    db.execute("NOTIFY soak")
    db.execute("UNLISTEN soak")


DEEDS = (prepared, prepared, prepared, setting, temporary_table, copy, large_result, failing, failing_transaction, pipeline,
         canceled, listening)


class Mixed(threading.Thread):
    """A client that runs statements of all kinds, and connects again from time to time."""

    def __init__(self, pooler, seed):
        super().__init__(daemon=True)
        self._pooler, self._random = pooler, random.Random(seed)
        self._stop_wanted = threading.Event()
        self.errors, self.done, self.last_done = [], 0, 0.0

    def run(self):
        db = None
        while not self._stop_wanted.wait(0.02):
            deed = self._random.choice(DEEDS)
            try:
                if db is None or self._random.random() < 0.05:
                    db = self._renewed(db)
                deed(db, self._random)
                self.done += 1
                self.last_done = time.monotonic()
            except Exception as error:  # collected here, since an exception in a thread would be lost
                self.errors.append(f"{deed.__name__}: {type(error).__name__}: {error}")
                db = None
        if db is not None:
            db.close()

    def _renewed(self, db):
        if db is not None:
            db.close()
        return self._pooler.connect(connect_timeout=60)

    def stop(self):
        self._stop_wanted.set()
        self.join(60)


class Soak:
    """The load, and its results so far."""

    def __init__(self, pg, pooler, load, mixed):
        self.pg, self.pooler, self.load, self.mixed = pg, pooler, load, mixed
        self.memory = []

    def errors(self):
        return [*(f"{key}: {count}" for key, count in sorted(self.load.errors.items())),
                *(error for client in self.mixed for error in client.errors)]

    def without_faults(self, seconds):
        """Runs load without faults: there are no errors. Records memory."""
        before = self.errors()
        for _ in machine.every(0.5, until=machine.after(seconds)):
            self.memory.append((time.monotonic(), self.pooler.memory_kb()))
        assert not Counter(self.errors()) - Counter(before)

    def reload(self):
        before = self.errors()
        self.pooler.console("RELOAD")
        self.all_work()
        assert not Counter(self.errors()) - Counter(before)

    def reconnect(self):
        before = self.errors()
        self.pooler.console("RECONNECT")
        self.all_work()
        assert not Counter(self.errors()) - Counter(before)

    def restart_server(self):
        self.pg.stop("fast")
        self.pg.start()
        self.all_work()

    def end_backends(self):
        self.pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'trusty'")
        self.all_work()

    def kill_backend(self):
        os.kill(self.pg.backends("usename = 'trusty'")[0], signal.SIGKILL)
        machine.wait_until(self.answers, 30, "the server has recovered")
        self.all_work()

    def answers(self):
        with contextlib.suppress(psycopg.OperationalError):
            return self.pg.value("SELECT 1") == 1
        return False

    def all_work(self):
        """Waits until each client has completed a transaction from now on."""
        now = time.monotonic()
        machine.wait_until(lambda: self.load.all_since(now) and min(client.last_done for client in self.mixed) > now, 60,
                           "all clients work")


def growth(memory):
    """The medians of the second quarter and of the last one, in kB, and the slope of the second half in kB per minute."""
    sizes = [size for _, size in memory]
    quarter = len(sizes) // 4
    half = memory[len(memory) // 2:]
    slope, _ = statistics.linear_regression([at / 60 for at, _ in half], [size for _, size in half])
    return statistics.median(sizes[quarter:2 * quarter]), statistics.median(sizes[3 * quarter:]), slope


@pytest.mark.full
@pytest.mark.pgweir_only("its transaction mode keeps no sessions")
@pytest.mark.timeout(0)
def test_soak(start_pooler, start_cluster, pytestconfig, record_property):
    minutes = pytestconfig.getoption("--soak-minutes")
    pg = start_cluster(18, f"k{os.urandom(3).hex()}")
    # With the tests' usual setting (`fsync = off`), PostgreSQL itself may lose acknowledged transactions.
    pg.run("ALTER ROLE trusty SET synchronous_commit = on")
    pg.run(ledger.TABLE + "; CREATE TABLE soaked (n int, words text); GRANT ALL ON ledger, soaked TO PUBLIC", dbname="app")
    pooler = start_pooler(pg, default_pool_size=10, server_login_retry=1, query_wait_notify=0)
    mixed = [Mixed(pooler, SEED + number) for number in range(MIXED)]
    is_over = machine.after(minutes * 60)
    with ledger.Load(BUSY, IDLE, pause=0.1, host=pooler.host, port=pooler.port, user="trusty", dbname="app") as load:
        soak = Soak(pg, pooler, load, mixed)
        for client in mixed:
            client.start()
        soak.all_work()
        for disturb in itertools.cycle((soak.reload, soak.reconnect, soak.restart_server, soak.reload, soak.end_backends,
                                        soak.reconnect, soak.kill_backend)):
            soak.without_faults(min(60, minutes * 60 / 16))
            if is_over():
                break
            disturb()
        idle = load.failed_idle()
        for client in mixed:
            client.stop()
        load.stop()
        difference = load.difference(pg.rows(ledger.ROWS, dbname="app"))
    early, late, slope = growth(soak.memory)
    record_property("figures", f"soak: {minutes} minutes, {len(load.acknowledged)} transactions and"
                    f" {sum(client.done for client in mixed)} other deeds; {difference}; errors in faults: {len(soak.errors())};"
                    f" memory {early:.0f} kB in the second quarter, {late:.0f} kB in the last, {slope:+.1f} kB per minute")
    assert idle == []
    assert difference.count() == 0, difference
    assert late < early * (1 + GROWTH) + NOISE_KB
