"""Clients that wait for long receive the reason."""

import re
import threading

import pytest

import machine
import rawclient as wire
from fakeserver import FakeServer
from rawclient import LoginRefused

NOTICE = "No server connection available in postgres backend, client being queued"


def notice(client):
    """Returns the detail of the next message, which must be the notice."""
    (message,) = client.expect("N")
    assert (message.fields["S"], message.fields["C"]) == ("NOTICE", "00000")
    assert message.words == NOTICE
    return message.fields["D"]


@pytest.mark.shows("query_wait_notify")
def test_notice(start_pooler, newest_pg, workers):
    """Each client gets one notice for each wait that is long enough."""
    pooler = start_pooler(newest_pg, default_pool_size=1, query_wait_notify=1, workers=workers)
    holder, first, second = pooler.raw(), pooler.raw(), pooler.raw()
    for _ in range(2):
        holder.query("BEGIN; SELECT 'secret'")
        for waiter in (first, second):
            waiter.send(wire.query("SELECT 1"))
        first.quiet(0.8)
        details = [notice(waiter) for waiter in (first, second)]
        for detail in details:
            assert re.fullmatch(
                r"Pool app/trusty has 1 server\(s\) of 1: 1 idle in transaction\. The limit is pool_size\."
                r' In use for longest: by client C-0x[0-9a-f]+ for [12]\.\d s, idle in transaction\.'
                r" 2 client\(s\) wait, the first for [12]\.\d s\.", detail), detail
        first.quiet(0.5)
        holder.query("COMMIT")
        assert [wire.value(waiter.until_ready()) for waiter in (first, second)] == ["1", "1"]
    assert "secret" not in pooler.log()
    pooler.expect_log("app/trusty clients wait: Pool app/trusty has 1 server(s) of 1: 1 idle in")


@pytest.mark.shows("query_wait_notify")
def test_no_notice(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1, query_wait_notify=0)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet(1)
    holder.query("COMMIT")
    assert wire.value(waiter.until_ready()) == "1"


def test_the_error_of_query_wait_timeout_says_why(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=3, query_wait_timeout=1, workers=workers)
    idle, busy, failed = holders = [pooler.raw() for _ in range(3)]
    for holder in holders:
        holder.query("BEGIN")
    busy.send(wire.query("SELECT pg_sleep(4)"))
    failed.query("SELECT 1/0")
    waiter = pooler.raw()
    waiter.send(wire.query("SELECT 1"))
    error = waiter.error_and_close()
    assert (error.sqlstate, error.words) == ("08P01", "query_wait_timeout")
    detail = error.fields["D"]
    assert detail.startswith("Pool app/trusty has 3 server(s) of 3: 1 busy, 2 idle in transaction."
                             " The limit is pool_size. In use for longest: by ")
    assert detail.count("idle in transaction") == 3
    assert "pg_sleep" not in detail
    assert error.fields["H"] == ("Raise pool_size or query_wait_timeout, or end long transactions.")
    assert idle.value("SELECT 1") == "1"
    pooler.expect_log("closing because: query_wait_timeout (age=")


LIMITS = {
    "max_db_connections": ({"max_db_connections": 2}, "", {},
                           "The limit is max_db_connections: 2 server(s) of the database."),
    "max_user_connections": ({}, "", {"trusty": "max_user_connections=2"},
                             "The limit is max_user_connections: 2 server(s) of the user."),
    "max_server_conn": ({"max_server_conn": 2}, "", {},
                        "The limit is max_server_conn: 2 server(s) of the process."),
    "reserve": ({"reserve_pool_timeout": 0.1}, "pool_size=1 reserve_pool_size=1", {},
                "of 1 and 1 in reserve: 2 idle in transaction. The limit is pool_size and "
                "reserve_pool_size."),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_notice_names_the_limit(start_pooler, newest_pg, workers, name):
    settings, database, users, words = LIMITS[name]
    pooler = start_pooler(newest_pg, databases={"app": newest_pg.entry(database)}, workers=workers,
                          users_section=users, query_wait_timeout=1, **settings)
    holders = [pooler.raw() for _ in range(2)]
    for holder in holders:
        holder.query("BEGIN")
    waiter = pooler.raw()
    waiter.send(wire.query("SELECT 1"))
    error = waiter.error_and_close()
    assert error.words == "query_wait_timeout"
    assert words in error.fields["D"]
    assert name in error.fields["H"] or "pool_size" in error.fields["H"]
    assert holders[0].value("SELECT 1") == "1"


def test_the_notice_names_the_holders_under_a_cap(start_pooler, newest_pg, workers):
    databases = {"app": newest_pg.entry(), "twin": newest_pg.entry()}
    pooler = start_pooler(newest_pg, databases=databases, workers=workers, max_server_conn=1,
                          query_wait_timeout=1)
    holder = pooler.raw(dbname="twin")
    holder.query("BEGIN")
    with pytest.raises(wire.LoginRefused) as refused:
        pooler.raw()
    detail = refused.value.message.fields["D"]
    assert "Other pools hold: 1 idle in transaction, for up to " in detail
    assert "twin" not in detail and holder.value("SELECT 1") == "1"


def test_the_notice_says_that_no_server_can_be_reached(start_pooler, newest_pg):
    databases = {"app": "host=127.0.0.1 port=1"}
    pooler = start_pooler(newest_pg, databases=databases, query_wait_timeout=1, server_connect_timeout=60)
    waiter = pooler.socket()
    waiter.send(wire.startup(user="trusty", database="app"))
    error = waiter.until("E")[-1]
    assert error.words == "query_wait_timeout"
    assert "has 0 server(s) of 5. The last login to the server failed: connect failed. The next is" \
        " tried in 1" in error.fields["D"]


def test_the_notice_says_that_a_login_takes_long(start_pooler, newest_pg):
    go = threading.Event()

    def behave(connection):
        go.wait(5)

    with FakeServer(behave) as server:
        pooler = start_pooler(newest_pg, databases={"app": server.database}, query_wait_timeout=1)
        with pytest.raises(LoginRefused, match="query_wait_timeout") as refused:
            pooler.raw()
        go.set()
    assert refused.value.args
    assert "has 1 server(s) of 5: 1 logging in. One more is logging in." in pooler.log()


def test_the_notice_says_that_the_database_is_paused(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, query_wait_timeout=1, workers=workers)
    client = pooler.raw()
    assert client.value("SELECT 1") == "1"
    pooler.console("PAUSE")
    client.send(wire.query("SELECT 1"))
    error = client.error_and_close()
    assert "has 0 server(s) of 5. It is paused." in error.fields["D"]
    assert error.fields["H"] == "An administrator's RESUME ends the pause."


def test_many_clients_wait(start_pooler, newest_pg, workers):
    """All clients get the notice, from one diagnosis, with one line in the log."""
    pooler = start_pooler(newest_pg, default_pool_size=1, query_wait_timeout=2, query_wait_notify=1,
                          workers=workers)
    holder = pooler.raw()
    holder.query("BEGIN")
    waiters = [pooler.raw() for _ in range(60)]
    for waiter in waiters:
        waiter.send(wire.query("SELECT 1"))
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 60, what="all wait")
    for waiter in waiters:
        assert "60 client(s) wait" in notice(waiter) or workers > 1
        assert "The limit is pool_size." in waiter.error_and_close().fields["D"]
    assert pooler.log().count(" clients wait: ") <= 4 * workers
