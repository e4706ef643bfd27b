"""The assist extension on direct connections: just before ReadyForQuery, it reports the session state."""

import pytest

import rawclient
from assisted import REPORT, Session

pytestmark = pytest.mark.pgweir_only("the extension is pgweir's own")


@pytest.fixture
def session(assisted_pg):
    with Session.to(assisted_pg) as made:
        yield made


# Statements, and the session state after them. The lines of a script run in the same session.
SCRIPTS = {
    "nothing": [("SELECT 1", ""), ("BEGIN; SELECT 1; COMMIT", ""), ("SELECT 1/0", "")],
    "set": [("SET work_mem = '5MB'", "gwork_mem=5120"), ("SET work_mem = 4096", "gwork_mem=4096"),
            ("RESET work_mem", "")],
    "set_to_default": [("SET work_mem TO DEFAULT", ""), ("SET work_mem = '4MB'", "gwork_mem=4096"),
                       ("DISCARD ALL", "")],
    "kinds_of_settings": [
        ("SET enable_seqscan = off", "genable_seqscan=off"),
        ("SET seq_page_cost = 0.12345678901", "genable_seqscan=off gseq_page_cost=0.12345678901"),
        ("RESET ALL; SET bytea_output = escape", "gbytea_output=escape"),
        ("RESET ALL; SET TimeZone = 'Asia/Tokyo'", "gTimeZone=Asia/Tokyo"),
        ("RESET ALL; SET DateStyle = german", "gDateStyle=German,~DMY"),
    ],
    "custom": [("SET my.tenant = ''", "gmy.tenant="), ("SET my.tenant = 'a;b=c\\d é'", "gmy.tenant=a;b=c\\d~é"),
               ("RESET my.tenant", "")],
    "set_local": [("BEGIN; SET LOCAL work_mem = 100; COMMIT", ""),
                  ("SELECT set_config('work_mem', '100', true)", ""),
                  ("BEGIN; SET work_mem = 100; SET LOCAL work_mem = 200; COMMIT", "gwork_mem=100")],
    "rolled_back": [("BEGIN; SET work_mem = 100; ROLLBACK", ""), ("SET work_mem = 100; SELECT 1/0", ""),
                    ("SET work_mem = 100; COMMIT; SELECT 1/0", "gwork_mem=100"),
                    ("BEGIN; SAVEPOINT s; SET work_mem = 200; ROLLBACK TO s; COMMIT", "gwork_mem=100"),
                    ("BEGIN; SAVEPOINT s; RESET work_mem; RELEASE s; COMMIT", "")],
    "role": [("SET ROLE scrammed", "grole=scrammed"), ("RESET ALL", "grole=scrammed"), ("RESET ROLE", ""),
             ("SET ROLE none", "grole=none"), ("DISCARD ALL", "")],
    "session_authorization": [("SET SESSION AUTHORIZATION scrammed", "grole=none gsession_authorization=scrammed"),
                              ("RESET SESSION AUTHORIZATION", "")],
    "characteristics": [
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "gdefault_transaction_read_only=on"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "gdefault_transaction_read_only=off"),
        ("BEGIN; SET TRANSACTION READ ONLY; COMMIT; SET transaction_isolation = 'serializable'",
         "gdefault_transaction_read_only=off"),
    ],
    "hidden_settings": [
        ("SELECT set_config('work_mem', '100', false)", "gwork_mem=100"),
        ("UPDATE pg_settings SET setting = '300' WHERE name = 'work_mem'", "gwork_mem=300"),
        ("DO $$BEGIN PERFORM set_config('work_mem', '400', false); END$$", "gwork_mem=400"),
        ("DO $$BEGIN EXECUTE 'RE' || 'SET work_mem'; END$$", ""),
    ],
    "temp": [("CREATE TEMP TABLE a (x int)", "t"), ("CREATE TEMP TABLE b (x int)", "t"), ("DROP TABLE a", "t"),
             ("BEGIN; DROP TABLE b; ROLLBACK", "t"), ("DROP TABLE b", ""),
             ("SELECT 1 AS x INTO TEMP a", "t"), ("DISCARD TEMP", ""),
             ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "t"), ("DISCARD ALL", ""),
             ("CREATE TYPE pg_temp.y AS (x int)", "t"), ("DROP TYPE pg_temp.y", ""),
             ("CREATE TEMP VIEW v AS SELECT 1", "t"), ("DROP VIEW v", ""),
             ("SET search_path = pg_temp; CREATE TABLE c (x int); RESET search_path", "t"),
             ("DROP TABLE c", "")],
    "temp_of_a_transaction": [
        ("BEGIN; CREATE TEMP TABLE a (x int) ON COMMIT DROP; COMMIT", ""),
        ("CREATE TEMP TABLE a ON COMMIT DROP AS SELECT 1", ""),
        ("EXPLAIN ANALYZE CREATE TEMP TABLE a ON COMMIT DROP AS SELECT 1", ""),
        ("BEGIN; CREATE TEMP TABLE a (x int); ROLLBACK", ""),
        ("BEGIN; SAVEPOINT s; CREATE TEMP TABLE a (x int); ROLLBACK TO s; COMMIT", ""),
        ("BEGIN; CREATE TEMP TABLE a (x int) ON COMMIT DELETE ROWS; INSERT INTO a VALUES (1); COMMIT", "t"),
        ("BEGIN; CREATE TEMP TABLE b (x int) ON COMMIT DROP; COMMIT", "t"),
        ("DROP TABLE a", ""),
    ],
    "advisory": [("SELECT pg_advisory_lock(1)", "a"), ("BEGIN; SELECT pg_advisory_unlock(1); ROLLBACK", ""),
                 ("SELECT pg_advisory_lock(1), pg_advisory_lock(1)", "a"), ("SELECT pg_advisory_unlock(1)", "a"),
                 ("SELECT pg_advisory_unlock_all()", ""), ("SELECT pg_advisory_xact_lock(1)", ""),
                 ("SELECT pg_try_advisory_lock_shared(2, 3); SELECT 1/0", "a"), ("DISCARD ALL", "")],
    "cursor": [("BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT", ""),
               ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "h"), ("FETCH c", "h"), ("CLOSE c", ""),
               ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; ROLLBACK", ""),
               ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "h"), ("CLOSE ALL", ""),
               ("BEGIN; DECLARE c CURSOR FOR SELECT 1; ROLLBACK; DECLARE d CURSOR WITH HOLD FOR SELECT 1", "h"),
               ("DISCARD ALL", "")],
    "listen": [("LISTEN a", "ca"), ('LISTEN "B c"', "cB~c ca"), ("UNLISTEN a", "cB~c"),
               ("BEGIN; UNLISTEN *; ROLLBACK", "cB~c"), ("UNLISTEN *", ""),
               ("BEGIN; LISTEN a; ROLLBACK", ""), ("BEGIN; LISTEN a; COMMIT", "ca"), ("DISCARD ALL", "")],
    "prepare": [("PREPARE a AS SELECT 1", "pa"), ('BEGIN; PREPARE "B b" AS SELECT 2; ROLLBACK', "pB~b pa"),
                ("DEALLOCATE a", "pB~b"), ("PREPARE a AS SELECT nothing", "pB~b"),
                ("EXECUTE \"B b\"", "pB~b"), ("DEALLOCATE ALL", ""), ("PREPARE a AS SELECT 1", "pa"),
                ("DISCARD ALL", "")],
    "seed": [("SELECT setseed(0.5)", "r"), ("DISCARD ALL", "r")],
    "set_seed": [("BEGIN; SET seed = 0.5; ROLLBACK", "r"), ("DISCARD ALL", "r")],
    "set_config_seed": [("SELECT set_config('seed', '0.5', false)", "r")],
    "load": [("LOAD 'plpgsql'", "l"), ("DISCARD ALL", "l")],
    "two_phases": [("BEGIN; SET work_mem = 100; PREPARE TRANSACTION 'p'", "gwork_mem=100"),
                   ("ROLLBACK PREPARED 'p'", "gwork_mem=100"),
                   ("RESET ALL; CREATE TYPE pg_temp.y AS ENUM ('a')", "t"),
                   ("DISCARD TEMP; PREPARE TRANSACTION 'p'", "t"), ("COMMIT PREPARED 'p'", "")],
    "together": [
        ("SET work_mem = 100; CREATE TEMP TABLE a (x int); SELECT pg_advisory_lock(1); PREPARE p AS SELECT 1",
         "a gwork_mem=100 pp t"),
        ("DISCARD ALL", ""),
    ],
    "failed_transaction": [
        ("BEGIN; SET work_mem = 100; SELECT pg_advisory_lock(1); SELECT 1/0", ""), ("ROLLBACK", "a"),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; SELECT 1/0", "a"), ("COMMIT", "a"),
        ("BEGIN; SELECT pg_advisory_unlock_all(); SAVEPOINT s; SET work_mem = 100; SELECT 1/0", "a"),
        ("ROLLBACK TO s; PREPARE p AS SELECT 1; SELECT 1/0", "a"),
        ("ROLLBACK TO s; COMMIT", "pp"),
    ],
    "failed_chain": [
        ("BEGIN; SET work_mem = 100; COMMIT AND CHAIN; SAVEPOINT s; SET work_mem = 200; SELECT 1/0", ""),
        ("ROLLBACK AND CHAIN", ""), ("SET work_mem = 300; SELECT 1/0", ""), ("ROLLBACK", "gwork_mem=100"),
    ],
    "failed_commit": [
        ("CREATE TEMP TABLE a (x int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)", "t"),
        ("BEGIN; INSERT INTO a VALUES (1), (1); SET work_mem = 100; COMMIT", "t"),
        ("BEGIN; INSERT INTO a VALUES (1), (1); SELECT pg_advisory_lock(1); PREPARE TRANSACTION 'p'", "a t"),
        ("BEGIN; DROP TABLE a; PREPARE TRANSACTION 'p'", "a t"), ("SELECT 1", "a t"),
    ],
    "chained": [("BEGIN; SET work_mem = 100; COMMIT AND CHAIN; SET work_mem = 200; ROLLBACK", "gwork_mem=100")],
}


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_state_comes_and_goes_at_its_ready_for_query(session, script):
    for sql, expected in SCRIPTS[script]:
        assert session.after(sql) == sorted(w.replace("~", " ") for w in expected.split()), sql


def test_a_session_without_state_is_reported_at_its_login(assisted_pg):
    with Session.to(assisted_pg, options="-c work_mem=100", application_name="a b") as session:
        assert session.parameters[REPORT] == "1"
        assert REPORT not in [m.parameter[0] for m in session.query("SELECT 1") if m.kind == "S"]


def test_the_report_comes_just_before_ready_for_query(session):
    messages = session.query("SET work_mem = 100")
    assert rawclient.kinds(messages) == "CSZ"
    assert messages[1].parameter == (REPORT, "1;gwork_mem=100")
    assert rawclient.kinds(session.query("SET work_mem = 100; SELECT 1/0")) == "CEZ"


def test_notifications_come_before_the_report(session):
    messages = session.query("LISTEN a; NOTIFY a")
    assert rawclient.kinds(messages) == "CCASZ"
    assert session.held == ["ca"]


def test_no_client_can_set_the_report(session):
    for sql in (f"SET {REPORT} = '1'", f"SELECT set_config('{REPORT}', '1', false)", f"RESET {REPORT}",
                f"ALTER ROLE trusty SET {REPORT} = '1'", f"ALTER SYSTEM SET {REPORT} = '1'"):
        assert [state for state, _ in rawclient.errors(session.query(sql))] == ["55P02"], sql
    session.after("SET work_mem = 100")
    assert session.after("RESET ALL") == []
    assert session.value(f"SHOW {REPORT}") == "1"
    assert session.values("SELECT 1 FROM pg_settings WHERE name LIKE 'pgweir.session%'") == []


def test_a_value_from_the_startup_packet_is_ignored(assisted_pg):
    with Session.to(assisted_pg, options=f"-c {REPORT}=1;t") as session:
        assert session.parameters[REPORT] == "1"
        assert session.after("SET work_mem = 100") == ["gwork_mem=100"]


def test_users_without_the_privilege_cannot_show_the_report(assisted_pg):
    with Session.to(assisted_pg, user="trusty") as session:
        assert session.after("SET work_mem = 100") == ["gwork_mem=100"]
        assert [state for state, _ in rawclient.errors(session.query(f"SHOW {REPORT}"))] == ["42501"]


# -- messages of the protocol


def test_prepared_statements_of_the_protocol_are_not_reported(session):
    session.send(rawclient.parse("SELECT 1", "q"), rawclient.SYNC).until_ready()
    assert session.after("PREPARE p AS SELECT 2") == ["pp"]


def test_close_of_a_statement_prepared_by_sql(session):
    assert session.after("PREPARE p AS SELECT 1; PREPARE q AS SELECT 1") == ["pp", "pq"]
    session.send(rawclient.close("S", "p"), rawclient.SYNC).until_ready()
    # No transaction was open, so the state is reported after the next one.
    assert session.after("SELECT 1") == ["pq"]
    session.send(rawclient.parse("SELECT 1", "p"), rawclient.SYNC).until_ready()
    assert session.after("DEALLOCATE q") == []


def test_close_of_a_cursor(session):
    assert session.after("DECLARE c CURSOR WITH HOLD FOR SELECT 1") == ["h"]
    session.send(rawclient.close("P", "c"), rawclient.SYNC).until_ready()
    assert session.after("SELECT 1") == []


def test_each_sync_of_a_pipeline_has_its_report(session):
    session.send(*(rawclient.extended(sql) + rawclient.SYNC
                   for sql in ("SET work_mem = 100", "SELECT 1", "SELECT 1/0", "RESET work_mem", "SELECT 1")))
    assert [rawclient.kinds(session.until_ready()) for _ in range(5)] == [
        "12CSZ", "12DCZ", "1EZ", "12CSZ", "12DCZ"]


def test_a_failed_pipeline_takes_its_settings_back(session):
    session.send(rawclient.extended("SET work_mem = 100"), rawclient.extended("SELECT 1/0"), rawclient.SYNC)
    assert rawclient.kinds(session.until_ready()) == "12C1EZ"
    assert session.held == []


def test_fastpath_calls_are_seen(session):
    oid = int(session.value("SELECT 'pg_advisory_lock(bigint)'::regprocedure::oid"))
    session.send(rawclient.function_call(oid, [(7).to_bytes(8, "big")]))
    assert rawclient.kinds(session.until_ready()) == "VSZ"
    assert session.held == ["a"]


# -- procedures, functions, background processes


def test_a_procedure_that_commits_and_then_fails(session):
    session.query("CREATE OR REPLACE PROCEDURE commits() LANGUAGE plpgsql AS $$BEGIN "
                  "SET work_mem = 100; COMMIT; SET work_mem = 200; PERFORM pg_advisory_lock(1); RAISE 'no'; END$$")
    messages = session.query("CALL commits()")
    assert rawclient.kinds(messages) == "ESZ"
    assert session.held == ["a", "gwork_mem=100"]
    session.query("ROLLBACK; DROP PROCEDURE commits()")


def test_a_functions_own_settings(session):
    session.query("CREATE OR REPLACE FUNCTION own() RETURNS void LANGUAGE plpgsql SET work_mem = 100 AS 'BEGIN END'")
    session.query("CREATE OR REPLACE FUNCTION sets() RETURNS void LANGUAGE plpgsql SET work_mem = 100 "
                  "AS 'BEGIN SET work_mem = 200; END'")
    session.query("CREATE OR REPLACE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS "
                  "'BEGIN SET work_mem = 300; BEGIN SET work_mem = 400; RAISE ''no''; EXCEPTION WHEN others THEN END; END'")
    assert session.after("SELECT own()") == []
    assert session.after("SELECT sets()") == ["gwork_mem=200"]
    assert session.after("SELECT fails()") == ["gwork_mem=300"]
    session.query("DROP FUNCTION own(), sets(), fails()")


def test_a_function_in_c_that_sets_something(session):
    if rawclient.errors(session.query("CREATE EXTENSION IF NOT EXISTS pg_trgm")):
        pytest.skip("there is no pg_trgm here")
    assert session.after("SELECT set_limit(0.5)") == ["gpg_trgm.similarity_threshold=0.5"]
    session.query("DROP EXTENSION pg_trgm")


def test_sessions_of_other_kinds(assisted_pg):
    parallel = "debug_parallel_query" if assisted_pg.version >= 16 else "force_parallel_mode"
    with Session.to(assisted_pg) as session:
        held = session.after(f"SET {parallel} = on; SET my.tenant = 'a'")
        assert session.value("SELECT count(*) FROM pg_class") is not None
        plan = session.values("EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*) FROM pg_class")
        assert any("Workers Launched: 1" in line for line in plan), plan
        assert session.held == held
    with Session.to(assisted_pg, replication="database") as session:
        assert REPORT not in session.parameters
        session.query("IDENTIFY_SYSTEM")
        assert not rawclient.errors(session.query("SELECT pg_advisory_lock(1)"))
        assert REPORT not in session.parameters


# -- large and unusual values


def test_a_state_that_is_too_long_is_reported_by_names(session):
    assert session.after(f"SET my.tenant = '{'x' * 7000}'") == [f"gmy.tenant={'x' * 7000}"]
    session.query("CREATE TEMP TABLE a (x int)")
    assert session.after(f"SET my.other = '{'x' * 1500}'") == ["nmy.other", "nmy.tenant", "o", "t"]
    assert session.after("SET work_mem = 100") == ["nmy.other", "nmy.tenant", "o", "t"]
    session.query("RESET my.other; DROP TABLE a")
    assert session.held == ["gmy.tenant=" + "x" * 7000, "gwork_mem=100"]
    assert session.after(f"SET my.tenant = '{' ' * 3000}'") == ["nmy.tenant", "o"]
    assert session.after(f"SET my.tenant = '{'x' * 5000000}'") == ["nmy.tenant", "o"]
    assert session.after("DISCARD ALL") == []


def test_very_many_prepared_statements_and_cursors(session, pytestconfig):
    names = [f"p{n}" for n in range(10000 if pytestconfig.getoption("--full") else 2000)]
    held = session.after("; ".join(f"PREPARE {name} AS SELECT 1" for name in names[:128]))
    assert held == sorted("p" + name for name in names[:128])
    session.query("; ".join(f"PREPARE {name} AS SELECT 1" for name in names[128:]))
    assert session.held == ["o"]
    assert session.after("DEALLOCATE ALL") == []
    session.query("; ".join(f"PREPARE {name} AS SELECT 1; DEALLOCATE {name}" for name in names[:500]))
    assert session.held == []
    session.query("BEGIN; " + "; ".join(f"DECLARE c{n} CURSOR WITH HOLD FOR SELECT 1" for n in range(200)) + "; COMMIT")
    assert session.held == ["h", "o"]
    assert session.after("CLOSE ALL") == []
    assert session.after("SELECT 1") == []


def test_very_many_settings_and_channels(session):
    session.query("; ".join(f"SET my.s{n} = '{n}'" for n in range(300)))
    assert session.held == sorted(f"gmy.s{n}={n}" for n in range(300))
    assert session.after("; ".join(f"SET my.s{n} = '{n}'" for n in range(2000))) == ["x"]
    assert session.after("RESET ALL") == []
    session.query("; ".join(f"LISTEN channel{n}" for n in range(500)))
    assert session.held == sorted(f"cchannel{n}" for n in range(500))
    assert session.after("UNLISTEN *") == []


@pytest.mark.parametrize("encoding", ("SQL_ASCII", "LATIN1", "SJIS", "GB18030"))
def test_values_that_are_invalid_in_every_encoding(assisted_pg, encoding):
    name = f"raw_{assisted_pg.version}"
    if not assisted_pg.rows("SELECT 1 FROM pg_database WHERE datname = %s", name):
        assisted_pg.run(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    with Session.to(assisted_pg, database=name, client_encoding=encoding) as session:
        session.query("SET my.tenant = E'\\\\\\xff;=\\x01'")
        assert session.parameters[REPORT] == "1;gmy.tenant=\\134\\377\\073\\075\\001"
