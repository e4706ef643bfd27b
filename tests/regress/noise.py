"""Other sessions in the same database, which change all kinds of session state until they are stopped."""

import contextlib
import random
import threading

import psycopg

STATEMENTS = (
    "SET search_path = pg_catalog, nowhere", "SET DateStyle = 'German, DMY'", "SET TimeZone = 'Asia/Tokyo'",
    "SET IntervalStyle = 'iso_8601'", "SET bytea_output = 'escape'", "SET extra_float_digits = -3",
    "SET enable_seqscan = off", "SET enable_hashjoin = off", "SET enable_indexscan = off", "SET jit = off",
    "SET client_min_messages = debug1", "SET default_transaction_isolation = 'serializable'",
    "SET standard_conforming_strings = off", "SET work_mem = '64kB'", "SET geqo = off", "SET row_security = off",
    "SELECT set_config('noise.secret', md5(random()::text), false)", "SET check_function_bodies = off",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET statement_timeout = '7s'", "SET lock_timeout = '6s'",
    "SET xmloption = document", "SET array_nulls = off", "SET session_replication_role = replica",
    "SET ROLE pg_read_all_data", "SET SESSION AUTHORIZATION DEFAULT", "SET client_encoding = 'LATIN1'",
    "SET plan_cache_mode = force_generic_plan", "SET max_parallel_workers_per_gather = 0",
    "PREPARE q1 AS SELECT 'noise'", "PREPARE p1 AS SELECT 'noise'", "DEALLOCATE ALL", "LISTEN noise_channel",
    "UNLISTEN *", "DISCARD ALL", "RESET ALL", "DISCARD PLANS", "DISCARD SEQUENCES",
    "BEGIN; SET LOCAL search_path = nowhere; SELECT 1; ROLLBACK", "SELECT 1/0", "SELECT 1", "SHOW search_path",
    "BEGIN; DECLARE noise_hold CURSOR WITH HOLD FOR SELECT generate_series(1,3); COMMIT", "CLOSE ALL",
)
SESSION = 200  # statements


@contextlib.contextmanager
def neighbours(count, **login):
    """Runs this number of neighbours while the block runs."""
    done = threading.Event()
    threads = [threading.Thread(target=_one, args=(number, done, login)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _one(number, done, login):
    rng = random.Random(number)
    while not done.wait(0.1):
        # The tests end sessions too, and make the server refuse things.
        with contextlib.suppress(psycopg.Error), psycopg.connect(
                autocommit=True, prepare_threshold=None, connect_timeout=30, **login) as db:
            for _ in range(SESSION):
                with contextlib.suppress(psycopg.DatabaseError):
                    db.execute(rng.choice(STATEMENTS))
                if db.closed or done.wait(rng.random() * 0.02):
                    break
