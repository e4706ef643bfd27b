"""The assist extension when something goes wrong: a fault may end its own session, and no other one."""

import random

import pytest

import machine
import rawclient
from assisted import REPORT, Session, is_idle
from rawclient import Closed

pytestmark = pytest.mark.pgweir_only("the extension is pgweir's own")

# Flags of an incomplete report.
UNTOLD = {"o", "x"}
CUSTOMS = ("my.tenant",)
PROCEDURE = """
CREATE OR REPLACE PROCEDURE steps() LANGUAGE plpgsql AS $$BEGIN
  SET work_mem = 400; COMMIT; CREATE TEMP TABLE IF NOT EXISTS by_procedure (x int); COMMIT; DROP TABLE by_procedure; END$$
"""
WORK = (
    "SET work_mem = 100", "SET my.tenant = 'a'; SELECT 1/(SELECT count(*) FROM pg_class WHERE false)",
    "SET my.tenant = 'b'", "BEGIN; SET work_mem = 200; SAVEPOINT s; SET work_mem = 300", "ROLLBACK TO s; SELECT nothing",
    "ROLLBACK", "CREATE TEMP TABLE a (x int); CREATE TEMP TABLE b (x int) ON COMMIT DROP", "SELECT pg_advisory_lock(1)",
    "LISTEN one; LISTEN two; NOTIFY one", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "PREPARE p AS SELECT 1",
    "BEGIN; DROP TABLE a; PREPARE TRANSACTION 'p'", "SET ROLE scrammed", "CALL steps()", "RESET ROLE", "CALL steps()",
    "BEGIN; SET my.tenant = 'c'; COMMIT AND CHAIN; SELECT 1/(SELECT count(*) FROM pg_class WHERE false)", "ROLLBACK",
    "DROP TABLE a; UNLISTEN one; CLOSE c; DEALLOCATE p; SELECT pg_advisory_unlock(1)", "DISCARD ALL",
)


def preloading(library, *options):
    """Startup parameters of a session that loads a library."""
    return {"options": " ".join(("-c", f"session_preload_libraries={library}", *options))}


@pytest.fixture
def injecting(pg, assist_libraries):
    """A PostgreSQL, and the startup parameters of sessions in which a test can make steps of the extension fail."""
    library = assist_libraries(pg.version, "-DPGWEIR_INJECT")
    pg.run(PROCEDURE, dbname="app")
    with Session.to(pg) as canary:
        yield pg, preloading(library)
        assert canary.value("SELECT 1") == "1"  # the table would be empty after a crash of any session
    pg.run("DROP PROCEDURE steps()", dbname="app")


def test_each_allocation_or_call_may_fail(injecting, request):
    pg, parameters = injecting
    stride = 1 if request.config.getoption("--full") else 7
    ended, reached, step = 0, True, random.randrange(stride)
    while reached:
        step += stride
        with Session.to(pg, **parameters) as session:
            try:
                reached = work_with_failure(session, step)
            except (Closed, ConnectionError):
                ended += 1
    assert step > 100
    assert ended > 3 or stride > 1


def work_with_failure(session, step):
    """Does the work while one step fails. Returns whether the step was reached."""
    session.query(f"SET pgweir.inject_at = {step}")
    for sql in WORK:
        if not is_idle(session.query(sql)) or UNTOLD & set(session.held):
            continue
        told = set(session.held) - {f"gpgweir.inject_at={step}", "gmy.tenant=", "grole=none"}
        try:
            true = session.truth(CUSTOMS)
        except AssertionError:  # the failure, which happens once
            true = session.truth(CUSTOMS)
        assert told == true, (step, sql)
    left = session.query("SHOW pgweir.inject_at")
    return not rawclient.errors(left) and rawclient.value(left) == "0"


def test_a_report_that_failed_comes_after_the_next_transaction(injecting):
    pg, parameters = injecting
    with Session.to(pg, **parameters) as session:
        session.query("LISTEN a")
        unclear = 0
        for step in range(1, 12):
            session.query(f"SET pgweir.inject_at = {step}")
            for sql in ("SET my.tenant = 'b'", "SELECT 1"):
                unclear += bool(UNTOLD & set(session.after(sql)))
            assert not UNTOLD & set(session.after("SELECT 1"))
        assert unclear > 2


def test_a_failed_self_test_switches_it_off(injecting):
    pg, parameters = injecting
    parameters["options"] += " -c pgweir.inject_at=1"
    with Session.to(pg, **parameters) as session:
        assert warnings_of(session) == ["pgweir_assist is off: injected failure"]
        assert_off(session)


def warnings_of(session):
    return [m.words for m in session.login_messages if m.kind == "N"]


def assert_off(session):
    assert REPORT not in session.parameters
    assert rawclient.kinds(session.query("SET work_mem = 100")) == "CZ"
    assert rawclient.errors(session.query(f"SHOW {REPORT}"))[0][0] == "42704"


def test_an_untested_version_switches_it_off(pg, assist_libraries):
    library = assist_libraries(pg.version, "-DPGWEIR_MAJOR_MAX=13")
    with Session.to(pg, **preloading(library)) as session:
        (warning,) = warnings_of(session)
        assert "not tested on this version" in warning
        assert_off(session)
    with Session.to(pg, **preloading(library, "-c pgweir.assist_untested_version=on")) as session:
        assert warnings_of(session) == []
        assert session.after("SET work_mem = 100") == ["gwork_mem=100"]
    pg.run(f"ALTER ROLE trusty SET session_preload_libraries = '{library}'")
    try:  # only a user with the privileges of a superuser may set it
        with Session.to(pg, user="trusty", options="-c pgweir.assist_untested_version=on") as session:
            assert_off(session)
    finally:
        pg.run("ALTER ROLE trusty RESET session_preload_libraries")


def test_a_load_in_the_middle_of_a_session_has_no_effect(pg, assist_libraries):
    library = assist_libraries(pg.version)
    with Session.to(pg) as session:
        session.query("SELECT setseed(0.5)")
        (warning,) = [m.words for m in session.query(f"LOAD '{library}'") if m.kind == "N"]
        assert "in the middle of a session" in warning
        assert_off(session)


def test_in_shared_preload_libraries_the_extension_is_off(private_pg, assist_libraries):
    library = assist_libraries(private_pg.version)
    private_pg.stop("fast")
    private_pg.start(shared_preload_libraries=library, log_min_messages="warning")
    with Session.to(private_pg) as session:
        assert_off(session)
    assert "not in shared_preload_libraries" in private_pg.log.read_text()
    # Both at once is an error, too.
    with Session.to(private_pg, **preloading(library)) as session:
        assert_off(session)


def counts_of_autovacuum(session, table):
    session.query("SELECT pg_stat_force_next_flush()")  # since version 15; in older ones, the next statement shows what was done
    return int(session.value(
        f"SELECT autovacuum_count + autoanalyze_count FROM pg_stat_all_tables WHERE relname = '{table}'"))


def test_background_processes_load_it(private_pg, assist_libraries):
    """Autovacuum, parallel and logical replication workers, and WAL senders."""
    library = assist_libraries(private_pg.version)
    private_pg.stop("fast")
    private_pg.start(session_preload_libraries=library, autovacuum="on", autovacuum_naptime="1s",
                    log_min_messages="warning", log_autovacuum_min_duration=0)
    private_pg.run("CREATE TABLE moved (x int PRIMARY KEY)", dbname="app")
    private_pg.run("CREATE TABLE moved (x int PRIMARY KEY)", dbname="other")
    private_pg.run("CREATE PUBLICATION all_of_it FOR TABLE moved", dbname="app")
    private_pg.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')", dbname="app")
    private_pg.run(f"CREATE SUBSCRIPTION s CONNECTION 'host={private_pg.socket_dir} port={private_pg.port} user=postgres "
                  "dbname=app' PUBLICATION all_of_it WITH (create_slot = false, copy_data = false)", dbname="other")
    with Session.to(private_pg) as canary:
        canary.query("INSERT INTO moved SELECT generate_series(1, 10000); DELETE FROM moved WHERE x % 2 = 0")
        machine.wait_until(lambda: private_pg.value("SELECT count(*) FROM moved", dbname="other") == 5000, 30)
        machine.wait_until(lambda: counts_of_autovacuum(canary, "moved") > 0, 30)
        assert canary.after("SET work_mem = 100") == ["gwork_mem=100"]
    log = private_pg.log.read_text()
    assert "pgweir_assist" not in log and "PANIC" not in log


def test_a_session_that_gets_no_more_memory(injecting):
    """Whichever allocation fails, the report is right or says that it is incomplete, and no other session is affected.
    """
    pg, parameters = injecting
    rng = random.Random(7)
    with Session.to(pg, **parameters) as session:
        session.query("SET my.tenant = 'a'; LISTEN a; PREPARE p AS SELECT 1; SET work_mem = 100")
        session.truth(CUSTOMS)
        refused = 0
        for n in range(60):
            session.query(f"SET pgweir.inject_memory = {rng.choice((1, 64, 512, 4096))}")
            size = rng.choice((10, 1000, 100_000, 3_000_000))
            sql = rng.choice((f"SET my.tenant = '{'x' * size}'", "BEGIN; SET work_mem = 200; ROLLBACK",
                              f"PREPARE p{n} AS SELECT '{'x' * size}'", f"LISTEN a{n}",
                              f"DECLARE c{n} CURSOR WITH HOLD FOR SELECT repeat('x', {size}) FROM generate_series(1, 9)"))
            refused += bool(rawclient.errors(session.query(sql)))
            while rawclient.errors(session.query("ROLLBACK; SET pgweir.inject_memory = 0")):
                pass
            if not UNTOLD & set(session.held):
                assert set(session.held) - {"gpgweir.inject_memory=0"} == session.truth(CUSTOMS)
        assert refused > 5
