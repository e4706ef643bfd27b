"""`cached plan must not change result type`: cured where the client can't tell, else passed on."""

import psycopg
import pytest

from rawclient import FLUSH, SYNC, bind, close, describe, errors, execute, kinds, parse, query, rows

STALE = [("0A000", "cached plan must not change result type")]
TEXT = "SELECT * FROM changing"
# How a statement is used: with a description of its result, or without.
ASKS = bind(name="S") + describe() + execute() + SYNC
TRUSTS = bind(name="S") + execute() + SYNC


@pytest.fixture
def changing(newest_pg):
    """A table that changes behind the pooler's back."""
    with psycopg.connect(
        host=newest_pg.host, port=newest_pg.port, user="trusty", dbname="app", autocommit=True
    ) as direct:
        direct.execute("DROP TABLE IF EXISTS changing")
        direct.execute("CREATE TABLE changing AS SELECT 1 AS a")
        yield direct
        direct.execute("DROP TABLE IF EXISTS changing")


def widen(direct):
    direct.execute("ALTER TABLE changing ADD b int DEFAULT 2")


def narrow(direct):
    direct.execute("ALTER TABLE changing DROP b")


def start(start_pooler, pg, **settings):
    return start_pooler(pg, workers=1, default_pool_size=1, **settings)


def prepare(client, text=TEXT):
    assert kinds(client.ask(parse(text, "S") + describe("S", "S") + SYNC)) in ("1tTZ", "1tnZ")


@pytest.mark.shows("max_retry_bytes")
def test_a_request_that_asks_for_columns(start_pooler, newest_pg, changing):
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client:
        prepare(client)
        assert rows(client.ask(ASKS)) == [("1",)]
        widen(changing)
        messages = client.ask(ASKS)
        assert kinds(messages) == "2TDCZ"
        assert rows(messages) == [("1", "2")]
        narrow(changing)
        assert kinds(client.ask(describe("S", "S") + SYNC)) == "tTZ"
        assert rows(client.ask(TRUSTS)) == [("1",)]
        # In parts, and with a Flush.
        widen(changing)
        client.send(bind(name="S") + describe()[:3]).send(describe()[3:] + execute()[:7])
        client.send(execute()[7:] + FLUSH + SYNC)
        assert [errors(m) for m in [client.until_ready()]] in ([[]], [STALE])
        assert rows(client.ask(ASKS)) == [("1", "2")]


@pytest.mark.shows("max_retry_bytes")
def test_a_request_that_trusts(start_pooler, newest_pg, changing):
    """It gets what it was told of, or the error, also where the server would do it by now."""
    weir = start(start_pooler, newest_pg)
    with weir.raw() as old, weir.raw() as new:
        prepare(old)
        assert rows(old.ask(TRUSTS)) == [("1",)]
        widen(changing)
        for _ in range(3):
            assert errors(old.ask(TRUSTS)) == STALE
        # Directly, this one would never see the error.
        prepare(new)
        assert rows(new.ask(TRUSTS)) == [("1", "2")]
        assert errors(old.ask(ASKS)) == STALE
        assert kinds(old.ask(close("S", "S") + parse(TEXT, "S") + TRUSTS)) == "312DCZ"


def test_one_that_was_told_elsewhere(start_pooler, newest_pg, changing):
    """What a client was told of on one server holds on another that lags behind."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with weir.raw() as client, weir.raw() as other:
        prepare(other)
        other.query("BEGIN")
        widen(changing)
        prepare(client)
        other.query("COMMIT")
        # Now on both servers, of which one knows the statement from before.
        for _ in range(2):
            assert rows(client.ask(TRUSTS)) == [("1", "2")]
            other.query("BEGIN")
            assert rows(client.ask(TRUSTS)) == [("1", "2")]
            other.query("COMMIT")


@pytest.mark.parametrize(("settings", "before", "request_", "expected"), [
    ({"max_retry_bytes": 0}, None, ASKS, STALE),
    ({"session_state": "off"}, None, ASKS, STALE),
    ({"max_retry_bytes": 40}, None, ASKS, []),
    ({"max_retry_bytes": 30}, None, ASKS, STALE),
    ({}, query("BEGIN"), ASKS, STALE),
    ({}, None, bind(name="T") + execute() + ASKS, STALE),
    ({}, None, parse("SELECT 1", "U") + ASKS, STALE),
    ({}, None, bind(name="S", result_formats=[0]) + describe() + execute() + SYNC, []),
    ({}, None, bind(name="S", result_formats=[0, 0]) + describe() + execute() + SYNC, STALE),
])
@pytest.mark.shows("max_retry_bytes", "session_state")
def test_where_it_is_safe(start_pooler, newest_pg, changing, settings, before, request_, expected):
    weir = start(start_pooler, newest_pg, **settings)
    with weir.raw() as client:
        prepare(client)
        client.ask(parse("SELECT 5", "T") + SYNC)
        widen(changing)
        if before:
            client.ask(before)
        assert errors(client.ask(request_)) == expected
    with weir.raw() as client:
        # What is made from now on is made anew.
        prepare(client)
        assert rows(client.ask(ASKS)) == [("1", "2")]


def test_of_several_the_first(start_pooler, newest_pg, changing):
    """Others behind it are sent; what is answered stays in order."""
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client:
        prepare(client)
        widen(changing)
        client.send(ASKS + query("SELECT 7"))
        first, second = client.until_ready(), client.until_ready()
        assert errors(first) == STALE and rows(second) == [("7",)]
        assert rows(client.ask(ASKS)) == [("1", "2")]


def test_two_statements_in_one_request(start_pooler, newest_pg, changing):
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client:
        client.ask(parse(TEXT, "S") + parse(TEXT + " WHERE true", "T") + describe("S", "T") + SYNC)
        widen(changing)
        messages = client.ask(bind(name="S") + describe() + execute()
                        + bind(name="T") + describe() + execute() + SYNC)
        # The second fails when the first has been answered.
        assert kinds(messages) == "2TDCEZ"
        assert rows(client.ask(ASKS)) == [("1", "2")]


def test_parameters(start_pooler, newest_pg, changing):
    """A parameter in binary must mean what the client was told."""
    weir = start(start_pooler, newest_pg)
    text = "SELECT * FROM changing WHERE a = $1"
    with weir.raw() as client:
        prepare(client, text)
        changing.execute("ALTER TABLE changing ALTER a TYPE bigint")
        one = bind([b"\x00\x00\x00\x01"], name="S", param_formats=[1]) + describe() + execute() + SYNC
        assert errors(client.ask(one)) == STALE
        client.ask(close("S", "S") + SYNC)
        prepare(client, text)
        changing.execute("ALTER TABLE changing ADD b int")
        one = bind([b"\x00" * 7 + b"\x01"], name="S", param_formats=[1]) + describe() + execute() + SYNC
        assert rows(client.ask(one)) == [("1", None)]
        changing.execute("ALTER TABLE changing DROP b")
        one = bind(["1"], name="S") + describe() + execute() + SYNC
        assert rows(client.ask(one)) == [("1",)]


def test_a_table_that_is_gone(start_pooler, newest_pg, changing):
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client:
        prepare(client)
        changing.execute("DROP TABLE changing")
        assert [state for state, _ in errors(client.ask(ASKS))] == ["42P01"]
        assert rows(client.send(query("SELECT 1")).until_ready()) == [("1",)]


def test_psycopg_over_a_migration(start_pooler, newest_pg, changing):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with weir.connect("trusty", "app") as one, \
            weir.connect("trusty", "app") as two:
        for client in (one, two):
            client.prepare_threshold = 0
        for turn in range(4):
            for client in (one, two, one):
                columns = [column.name for column in client.execute(TEXT).description]
                assert columns == (["a"] if turn % 2 == 0 else ["a", "b"])
            (widen if turn % 2 == 0 else narrow)(changing)
