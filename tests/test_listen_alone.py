"""LISTEN and UNLISTEN as single requests, which the listener answers."""

import pytest

import rawclient as wire
from test_listen import notifications_of, next_notification, pooled_servers, shown

pytestmark = pytest.mark.pgweir_only("PgBouncer's transaction mode loses LISTEN")


def last_query(pg, pooler):
    """Returns the last query of the only pooled server."""
    (server,) = pooled_servers(pooler)
    return pg.value("SELECT query FROM pg_stat_activity WHERE pid = %s", server["remote_pid"])


def test_a_request_of_its_own_costs_the_pooled_server_nothing(start_pooler, pg, workers):
    """The listener's answer is the client's."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    with pooler.raw() as client:
        client.query("SELECT 'before'")
        client.send(wire.parse("SELECT 7"), wire.SYNC)
        client.until_ready()
        for text in ("LISTEN a", "listen /* twice */ A;", 'LISTEN "B"', "UNLISTEN a", "UNLISTEN nothing", "UNLISTEN *"):
            assert [(m.kind, m.body) for m in client.query(text)] == [
                ("C", text.split()[0].upper().encode() + b"\0"), ("Z", b"I")]
        assert "LISTEN" not in last_query(pg, pooler).upper()
        # Like any simple query, LISTEN destroys the unnamed statement.
        client.send(wire.bind() + wire.execute(), wire.SYNC)
        assert [m.sqlstate for m in client.until_ready() if m.kind == "E"] == ["26000"]
        # With more messages behind it, pgweir sends everything to the server.
        client.send(wire.query("LISTEN a"), wire.query("NOTIFY a, '1'"), wire.extended("SELECT 'last'"), wire.SYNC)
        answers = [client.until_ready() for _ in range(3)]
        assert sum(map(notifications_of, answers), []) == [("a", "1")]
        assert wire.rows(answers[2]) == [("last",)]


def test_key_words_are_no_channels(start_pooler, plain_or_assisted_pg):
    """pgweir refuses the same names of channels as PostgreSQL."""
    words = [word for (word,) in plain_or_assisted_pg.rows("SELECT word FROM pg_get_keywords() ORDER BY 1")]
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    with pooler.raw() as ours, plain_or_assisted_pg.raw() as theirs:
        for word in words:
            for text in (f"LISTEN {word}", f"UNLISTEN {word.upper()}"):
                assert shown(ours.query(text)) == shown(theirs.query(text)), text
        channels = "SELECT pg_listening_channels() ORDER BY 1"
        assert wire.rows(ours.query(channels)) == wire.rows(theirs.query(channels)) == []


def test_a_server_that_listens_itself_is_asked(start_pooler, pg):
    """No listener takes the channel: the client keeps its server, and UNLISTEN goes there."""
    pooler = start_pooler(pg, default_pool_size=2, max_client_channels=1)
    with pooler.raw() as client, pg.raw() as other:
        client.query("LISTEN a")
        client.query("LISTEN b")
        other.query("NOTIFY b, 'x'; NOTIFY a, 'y'")
        assert {next_notification(client)[1:], next_notification(client)[1:]} == {("b", "x"), ("a", "y")}
        client.query("UNLISTEN b")
        other.query("NOTIFY b, 'x'; NOTIFY a, 'z'")
        assert next_notification(client)[1:] == ("a", "z")
        # Only the server knows to which channel a function listens.
        client.query("DO $$ BEGIN EXECUTE 'LISTEN c'; END $$")
        client.query("UNLISTEN c")
        other.query("NOTIFY c; NOTIFY a, 'end'")
        assert next_notification(client)[1:] == ("a", "end")
