"""`session_state = off`: pgweir works as PgBouncer does in transaction mode."""

import pytest

import machine
from rawclient import SYNC, bind, close, describe, errors, execute, kinds, parse, query, rows

UNKNOWN = "prepared statement did not exist"
TAKEN = "prepared statement name is already in use"

# name: (what comes before, what ends the connection, in which words)
ENDS = {
    "described": (None, describe("S", "S_1") + SYNC, UNKNOWN),
    "bound": (None, bind(name="S_1") + execute() + SYNC, UNKNOWN),
    "made twice": (parse("SELECT 1", "S_1") + SYNC, parse("SELECT 1", "S_1") + SYNC, TAKEN),
    "closed": (
        parse("SELECT 1", "S_1") + close("S", "S_1") + SYNC, bind(name="S_1") + SYNC, UNKNOWN),
    "deallocated": (query("DEALLOCATE ALL"), bind(name="S_0") + SYNC, UNKNOWN),
    "discarded": (query("DISCARD ALL"), bind(name="S_0") + SYNC, UNKNOWN),
    "of SQL's PREPARE": (query("PREPARE s AS SELECT 1"), bind(name="s") + SYNC, UNKNOWN),
    "a long name": (None, bind(name="S" * 60_000) + SYNC, UNKNOWN),
}


@pytest.mark.shows("session_state")
@pytest.mark.parametrize("name", ENDS)
def test_names_that_end_a_connection(start_pooler, newest_pg, name):
    before, last, words = ENDS[name]
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1, session_state="off")
    with weir.raw() as client, weir.raw() as other:
        for one in (client, other):
            assert kinds(one.send(parse("SELECT 0", "S_0") + SYNC).until_ready()) == "1Z"
        if before:
            assert not errors(client.send(before).until_ready())
        messages = client.send(last).rest()
        assert [(m.fields["S"], m.sqlstate, m.fields["M"]) for m in messages] == [
            ("FATAL", "08P01", words)]
        # Another client's statements still work, and a client may close a name that does not exist.
        other.send(bind(name="S_0") + execute() + close("S", "S_9") + SYNC)
        assert rows(other.until_ready()) == [("0",)]
    assert words in weir.log()
    if words == TAKEN:
        assert "prepared statement 'S_1' was already prepared" in weir.log()


@pytest.mark.shows("session_state", "database.session_state")
def test_session_state_of_a_database_and_by_reload(start_pooler, newest_pg):
    where = f"host={newest_pg.host} port={newest_pg.port}"
    weir = start_pooler(
        newest_pg, databases={"app": f"{where} session_state=off", "other": f"{where} dbname=app"})
    with weir.raw() as client:
        assert kinds(client.send(describe("S", "S_1") + SYNC).rest()) == "E"
    with weir.raw(dbname="other") as client:
        assert kinds(client.send(describe("S", "S_1") + SYNC).until_ready()) == "EZ"
        weir.console("SET session_state = off")
        assert kinds(client.send(describe("S", "S_1") + SYNC).rest()) == "E"


SHOWS = "SELECT concat_ws('|', current_setting('app.' || 'x', true), current_setting('work_mem'), current_setting('app.' || 'y', true))"
BEFORE = {
    "session mode without a reset": {"pool_mode": "session", "server_reset_query": ""},
    "session mode": {"pool_mode": "session", "server_reset_query": "DISCARD ALL"},
    "off": {"session_state": "off"},
}


@pytest.mark.parametrize("stays", [False, True], ids=["left", "stays"])
@pytest.mark.parametrize("before", BEFORE)
def test_state_of_earlier_clients_when_session_state_is_switched_on(start_pooler, newest_pg, before, stays):
    """A client that logged in before shares the servers, and its session state is not recorded."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1, query_wait_timeout=3, **BEFORE[before])
    with weir.raw() as old:
        assert not errors(old.query("SET app.x = 'A'; SET work_mem = '77MB'"))
        if not stays:
            old.close()
            machine.wait_until(lambda: weir.console("SHOW POOLS")[0]["cl_active"] == 0, 5, "the client has left")
        for name, value in {"pool_mode": "transaction", "session_state": "transparent"}.items():
            weir.console(f"SET {name} = '{value}'")
        for _ in range(2):
            if stays:
                assert not errors(old.query("SET app.y = 'A'; PREPARE p AS SELECT 1"))
            with weir.raw() as new:
                assert new.value(SHOWS).strip("|") == "4MB"
