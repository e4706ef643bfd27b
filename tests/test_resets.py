"""Statements with which drivers reset a session: pgweir answers them at once if there is nothing to reset."""

import psycopg
import pytest

from rawclient import SYNC, bind, execute, parse, query, rows
from test_prepared import answer

ASYNCPG = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"
NPGSQL = ("SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;"
          "SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP")
TEXTS = [
    "DISCARD ALL", "discard  all;", ASYNCPG, NPGSQL, "RESET ALL", "RESET ROLE", "DEALLOCATE ALL",
    "UNLISTEN *", "CLOSE ALL", "SELECT pg_advisory_unlock_all()", "DISCARD TEMP; DISCARD PLANS",
    "RESET ALL; SET SESSION AUTHORIZATION DEFAULT;", "SELECT pg_catalog.pg_advisory_unlock_all();",
    "SET ROLE NONE;;RESET SESSION AUTHORIZATION"]
# These are not.
OTHERS = ["DISCARD ALL; RESET ALL", "RESET ALL; SELECT 1", ";", "RESET ALL; RESET nothing", "DISCARD"]


@pytest.fixture
def direct(newest_pg):
    with newest_pg.raw() as client:
        yield client


def last_query(pg, pid):
    """Returns the last query of the server with this pid. Its name may have been reset meanwhile."""
    with psycopg.connect(host=pg.host, port=pg.port, user="trusty", dbname="app") as db:
        return db.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()[0]


@pytest.mark.parametrize("text", TEXTS + OTHERS)
def test_same_answers_as_postgresql(start_pooler, newest_pg, direct, text):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw(application_name="pooled") as client:
        pid = int(client.value("SELECT pg_backend_pid()"))
        client.query("SELECT 'marked'")
        for _ in range(2):
            expected = answer(direct.send(query(text)).until_ready())
            assert answer(client.send(query(text)).until_ready()) == expected
        assert (last_query(newest_pg, pid) == "SELECT 'marked'") == (text in TEXTS)
        # In a pipeline, and within a transaction.
        for step in (query("SELECT 1") + query(text), query("BEGIN") + query(text) + query("ROLLBACK")):
            heard = [[answer(one.send(step).until_ready())] for one in (direct, client)]
            for one, seen in zip((direct, client), heard):
                seen += [answer(one.until_ready()) for _ in range(step.count(b"Q\x00") - 1)]
            assert heard[0] == heard[1]


@pytest.mark.parametrize("text", ["DISCARD ALL", ASYNCPG, NPGSQL])
@pytest.mark.parametrize("before", [
    "SET application_name = 'mine'", "SET work_mem = '8MB'", "SET app.tenant = 'x'",
    "CREATE TEMP TABLE left_behind (a int)", "SELECT pg_advisory_lock(77)", "LISTEN jobs",
    "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "PREPARE p AS SELECT 1"])
def test_existing_session_state_is_reset(start_pooler, newest_pg, direct, text, before):
    asks = [
        "SHOW application_name", "SHOW work_mem", "SELECT coalesce(current_setting('app.tenant', true), '')",
        "SELECT count(*) FROM pg_class WHERE relname = 'left_behind'",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77",
        "SELECT count(*) FROM pg_listening_channels()", "SELECT count(*) FROM pg_cursors",
        "SELECT count(*) FROM pg_prepared_statements"]
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    heard = []
    for connect in (lambda: direct, weir.raw):
        client = connect()
        seen = [answer(client.send(query(step)).until_ready())
                for step in [before, text, *asks, text]]
        heard.append(seen)
        client.query("SELECT pg_advisory_unlock_all()")
        client.close()
    assert heard[0] == heard[1]


def test_a_reset_keeps_the_statements_of_other_clients(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as one, weir.raw() as other:
        for client in (one, other):
            client.send(parse("SELECT 1", "S") + SYNC).until_ready()
        one.query("DISCARD ALL")
        one.send(bind(name="S") + SYNC)
        assert [m.sqlstate for m in one.until_ready() if m.kind == "E"] == ["26000"]
        other.send(bind(name="S") + execute() + SYNC)
        assert rows(other.until_ready()) == [("1",)]
        (server,) = weir.console("SHOW SERVERS")
        assert server["prepared_statements"] == 1
