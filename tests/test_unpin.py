"""State that pins a client: as soon as the state is removed, the client is not pinned any more, and another client of
the pool with one server is served.
"""

import pytest

import cluster as clusters
import machine
import rawclient as wire
from differential import kinds
from rawclient import errors, query, rows, value

# The state: the statements that create it, and those that remove it.
MADE = {
    "temp_table": ("CREATE TEMP TABLE kept (n int)", ("DROP TABLE kept", "DISCARD TEMP", "DISCARD ALL")),
    "temp_table_as": ("CREATE TEMP TABLE kept AS SELECT 1 AS n", ("DROP TABLE pg_temp.kept",)),
    "select_into_temp": ("SELECT 1 AS n INTO TEMP kept", ("DROP TABLE kept",)),
    "temp_delete_rows": ("CREATE TEMP TABLE kept (n int) ON COMMIT DELETE ROWS", ("DROP TABLE kept",)),
    "temp_schema_table": ("CREATE TABLE pg_temp.kept (n int)", ("DROP TABLE kept",)),
    "temp_in_do": ("DO $$ BEGIN EXECUTE 'CREATE TEMP TABLE kept (n int)'; END $$", ("DROP TABLE kept",)),
    "temp_view": ("CREATE TEMP VIEW kept AS SELECT 1 AS n", ("DROP VIEW kept", "DISCARD ALL")),
    "temp_function": ("CREATE FUNCTION pg_temp.kept() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                      ("DROP FUNCTION pg_temp.kept()",)),
    "temp_type": ("CREATE TYPE pg_temp.kept AS (n int)", ("DROP TYPE pg_temp.kept",)),
    "temp_sequence": ("CREATE TEMP SEQUENCE kept", ("DROP SEQUENCE kept",)),
    "advisory_lock": ("SELECT pg_advisory_lock(71)",
                      ("SELECT pg_advisory_unlock(71)", "SELECT pg_advisory_unlock_all()", "DISCARD ALL")),
    "advisory_lock_shared": ("SELECT pg_advisory_lock_shared(7, 2)", ("SELECT pg_advisory_unlock_shared(7, 2)",)),
    "advisory_try_lock": ("SELECT pg_try_advisory_lock(73)", ("SELECT pg_advisory_unlock(73)",)),
    "hold_cursor": ("DECLARE kept CURSOR WITH HOLD FOR SELECT 1", ("CLOSE kept", "CLOSE ALL", "DISCARD ALL")),
}
CASES = [pytest.param(make, undo, id=f"{kind}-{undo.replace(' ', '_')[:24]}")
         for kind, (make, ways) in MADE.items() for undo in ways]

# State that ends with its transaction, or never existed: the client does not keep its server.
PASSING = {
    "on_commit_drop": "BEGIN; CREATE TEMP TABLE kept (n int) ON COMMIT DROP; COMMIT",
    "rolled_back": "BEGIN; CREATE TEMP TABLE kept (n int); ROLLBACK",
    "rolled_back_to": "BEGIN; SAVEPOINT s; CREATE TEMP TABLE kept (n int); ROLLBACK TO s; COMMIT",
    "made_and_dropped": "CREATE TEMP TABLE kept (n int); DROP TABLE kept",
    "xact_lock": "SELECT pg_advisory_xact_lock(81)",
    "cursor_of_a_transaction": "BEGIN; DECLARE kept CURSOR FOR SELECT 1; COMMIT",
    "failed": "CREATE TEMP TABLE kept (n int); SELECT 1/0",
    "settings": "SET work_mem = '5MB'; SET search_path = public; SELECT set_config('app.kept', 'x', false)",
    "set_in_a_function": "DO $$ BEGIN SET work_mem = '5MB'; END $$",
    "locked_and_unlocked": "SELECT pg_advisory_lock(82); SELECT pg_advisory_unlock(82)",
}
# Lasts as long as the session: no other client gets the server afterwards.
FOR_GOOD = {"seed": "SELECT setseed(0.25)", "library": "LOAD 'plpgsql'"}

NOTHING = ("SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relname = 'kept'",
           f"SELECT {kinds.OWN_LOCKS}", "SELECT count(*) FROM pg_cursors")


def sees_nothing(client):
    for sql in NOTHING:
        assert value(client.query(sql)) == "0", sql


@pytest.fixture(params=[(version, assist) for version in clusters.VERSIONS for assist in (False, True)],
                ids=lambda p: f"pg{p[0]}-{'assisted' if p[1] else 'plain'}")
def one_server(request, shared_clusters, start_pooler):
    """A pooler with one server in the pool."""
    version, assist = request.param
    pg = shared_clusters(version, assist or None)
    return start_pooler(pg, default_pool_size=1, pinned_overflow=0, query_wait_notify=0, workers=1,
                        users={"trusty": "", "postgres": "", "admin": "admin password"})


@pytest.mark.parametrize("make, undo", CASES)
def test_a_client_is_pinned_while_its_state_lasts(one_server, make, undo):
    keeper, other = one_server.raw(), one_server.raw()
    assert errors(keeper.query(make)) == []
    other.send(query("SELECT 'served'"))
    other.quiet(0.05)
    assert errors(keeper.query(undo)) == []
    assert rows(other.until_ready()) == [("served",)]
    sees_nothing(other)
    assert errors(keeper.query(make)) == []  # and again
    assert errors(keeper.query(undo)) == []
    sees_nothing(other)


@pytest.mark.parametrize("sql", PASSING.values(), ids=PASSING)
def test_state_that_does_not_pin(one_server, sql):
    first, other = one_server.raw(), one_server.raw()
    first.query(sql)
    assert rows(other.query("SELECT 'served'")) == [("served",)]
    sees_nothing(other)
    assert value(other.query("SHOW work_mem")) == "4MB"


@pytest.mark.parametrize("sql", FOR_GOOD.values(), ids=FOR_GOOD)
def test_state_that_pins_until_the_client_disconnects(one_server, sql):
    pg = one_server.pg
    keeper, other = one_server.raw(user="postgres"), one_server.raw(user="postgres")
    assert errors(keeper.query(sql)) == []
    held = value(keeper.query("SELECT pg_backend_pid()"))
    other.send(query("SELECT pg_backend_pid()"))
    other.quiet(0.05)
    keeper.send(wire.TERMINATE)
    assert value(other.until_ready()) != held
    machine.wait_until(lambda: int(held) not in pg.backends(), what="its server is gone")


@pytest.mark.parametrize("make", [make for make, _ in MADE.values()], ids=MADE)
def test_state_is_removed_when_its_client_disconnects(one_server, make):
    """When a client disconnects, with or without a Terminate message, its state is removed."""
    for leave in (lambda client: client.send(wire.TERMINATE), wire.RawClient.reset):
        keeper, other = one_server.raw(), one_server.raw()
        assert errors(keeper.query(make)) == []
        leave(keeper)
        assert rows(other.query("SELECT 'served'")) == [("served",)]
        sees_nothing(other)
        other.send(wire.TERMINATE)
