"""The assist extension, asked directly: what a session holds is in its report, just before ReadyForQuery."""

import re

import pytest

import rawclient
from rawclient import RawClient

REPORT = "pgweir.session_state"
pytestmark = pytest.mark.pgweir_only("the extension is pgweir's own")


class Session(RawClient):
    """A direct connection that reads reports."""

    @classmethod
    def to(cls, pg, user="postgres", database="app", **parameters):
        return cls.tcp(pg.host, pg.port).login(user, database, **parameters)

    @property
    def held(self):
        """The items of the last report, unescaped, without the version; sorted."""
        version, *items = self.parameters[REPORT].split(";")
        assert version == "1"
        return sorted(unescaped(item) for item in items)

    def after(self, sql):
        """What the session holds after some statements."""
        self.query(sql)
        return self.held


def unescaped(item):
    assert all(0x20 < ord(c) < 0x7F for c in item)
    raw = re.sub(r"\\([0-3][0-7]{2})", lambda m: chr(int(m[1], 8)), item)
    return raw.encode("latin-1").decode()


@pytest.fixture
def session(assisted_pg):
    with Session.to(assisted_pg) as made:
        yield made


# Statements, and what the session holds after them; the next line of a script goes on in the same session.
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
                   ("ROLLBACK PREPARED 'p'", "gwork_mem=100")],
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
    ],
    "chained": [("BEGIN; SET work_mem = 100; COMMIT AND CHAIN; SET work_mem = 200; ROLLBACK", "gwork_mem=100")],
}


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_state_comes_and_goes_at_its_ready_for_query(session, script):
    for sql, expected in SCRIPTS[script]:
        assert session.after(sql) == sorted(w.replace("~", " ") for w in expected.split()), sql


def test_a_session_with_nothing_says_so_at_its_login(assisted_pg):
    with Session.to(assisted_pg, options="-c work_mem=100", application_name="a b") as session:
        assert session.parameters[REPORT] == "1"
        assert REPORT not in [m.parameter[0] for m in session.query("SELECT 1") if m.kind == "S"]


def test_the_report_comes_just_before_ready_for_query(session):
    messages = session.query("SET work_mem = 100")
    assert rawclient.kinds(messages) == "CSZ"
    assert messages[1].parameter == (REPORT, "1;gwork_mem=100")
    assert rawclient.kinds(session.query("SET work_mem = 100; SELECT 1/0")) == "CEZ"
