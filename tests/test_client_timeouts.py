"""Timeouts of clients: for the login, for idle clients, for queries and transactions."""

import time

import pytest

import fakeserver as fake
import machine
import rawclient as wire

SLEEP = "SELECT pg_sleep(30)"


def in_the_end(pooler, client, words):
    """The client receives this error and is disconnected, and the log has the error."""
    error = client.error_and_close()
    assert (error.sqlstate, error.words, error.fields["S"]) == ("08P01", words, "FATAL")
    pooler.expect_log(f"closing because: {words} (age=")


def where(key, value, user="trusty"):
    """Sets the timeout globally, for the user, or both: the value of the user takes precedence."""
    return [
        pytest.param({key: value}, id="global"),
        pytest.param({"users_section": {user: f"{key}={value}"}}, id="user"),
        pytest.param({key: 100, "users_section": {user: f"{key}={value}"}}, id="user-before-global"),
    ]


# -- idle


@pytest.mark.shows("client_idle_timeout", "user.client_idle_timeout")
@pytest.mark.parametrize("settings", where("client_idle_timeout", 0.5))
def test_idle_clients_are_closed(start_pooler, newest_pg, settings):
    pooler = start_pooler(newest_pg, **settings)
    fresh, client, busy = pooler.raw(), pooler.raw(), pooler.raw()
    other = pooler.raw(user="plainly")
    busy.query("BEGIN")
    for _ in range(4):  # for longer than it may be idle
        client.query("SELECT pg_sleep(0.2)")
    in_the_end(pooler, client, "client_idle_timeout")
    in_the_end(pooler, fresh, "client_idle_timeout")
    # In a transaction it has a server, and another timeout applies.
    assert busy.value("SELECT 7") == "7"
    if "users_section" in settings:
        assert other.value("SELECT 8") == "8"


def test_a_client_with_a_session_is_not_idle(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, pool_mode="session", client_idle_timeout=0.3)
    client = pooler.raw()
    backend = client.value("SELECT pg_backend_pid()")
    client.quiet(1)
    assert client.value("SELECT pg_backend_pid()") == backend


def test_a_timeout_takes_effect_by_reload(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw()
    pooler.settings["client_idle_timeout"] = 0.3
    pooler.write_files()
    pooler.console("RELOAD")
    in_the_end(pooler, client, "client_idle_timeout")


# -- in a transaction


@pytest.mark.shows("idle_transaction_timeout", "user.idle_transaction_timeout")
@pytest.mark.parametrize("settings", where("idle_transaction_timeout", 0.5))
def test_idle_transactions_are_ended(start_pooler, newest_pg, settings, workers):
    pooler = start_pooler(newest_pg, default_pool_size=2, workers=workers, **settings)
    client, patient = pooler.raw(), pooler.raw()
    client.query("BEGIN")
    client.query("SELECT pg_sleep(0.8)")  # is not idle
    backend = client.value("SELECT pg_backend_pid()")
    in_the_end(pooler, client, "idle transaction timeout")
    patient.query("SELECT 1")
    patient.quiet(0.8)
    machine.wait_until(lambda: int(backend) not in newest_pg.backends(), 5, "its server is gone")
    assert pooler.pool()["sv_active"] == 0


@pytest.mark.shows("transaction_timeout", "user.transaction_timeout")
@pytest.mark.parametrize("settings", where("transaction_timeout", 1))
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_long_transactions_are_ended(start_pooler, newest_pg, settings, mode):
    pooler = start_pooler(newest_pg, pool_mode=mode, **settings)
    client = pooler.raw()
    for _ in range(6):  # none of these transactions is long
        client.query("SELECT pg_sleep(0.2)")
    began = time.monotonic()
    client.query("BEGIN")
    while True:
        try:
            messages = client.query("SELECT pg_sleep(0.05)")
        except wire.Closed:
            break
        assert "E" not in wire.kinds(messages)
    assert 0.9 < time.monotonic() - began < 10
    pooler.expect_log("closing because: transaction timeout (age=")
    # A single query is a transaction, too.
    client = pooler.raw()
    client.send(wire.query(SLEEP))
    in_the_end(pooler, client, "transaction timeout")


# -- queries


@pytest.mark.shows("query_timeout", "user.query_timeout")
@pytest.mark.parametrize("settings", where("query_timeout", 0.5))
def test_long_queries_are_cancelled(start_pooler, newest_pg, settings, workers):
    pooler = start_pooler(newest_pg, workers=workers, **settings)
    client, careful = pooler.raw(), pooler.raw()
    careful.query("BEGIN")
    client.send(wire.query(SLEEP))
    in_the_end(pooler, client, "query timeout")
    running = f"query = '{SLEEP}' AND state = 'active'"
    machine.wait_until(lambda: not newest_pg.backends(running), 5, "the query is cancelled")
    # A client that is idle in a transaction runs no query.
    assert careful.value("SELECT 7") == "7"


def test_query_timeout_in_the_middle_of_a_row(start_pooler, newest_pg):
    """The client could not read an error in the middle of a row: pgweir closes the connection."""
    def behave(connection):
        if connection.welcome():
            connection.until("Q")
            connection.send(fake.row_description(), wire.frame("D", b"x" * 100)[:50])
            connection.rest()

    with fake.FakeServer(behave) as server:
        pooler = start_pooler(databases={"app": server.database}, query_timeout=0.3)
        client = pooler.raw()
        client.send(wire.query("SELECT 1"))
        assert "E" not in wire.kinds(client.rest())
        pooler.expect_log("closing because: query timeout (age=")


def test_a_slow_copy_is_no_long_query(start_pooler, newest_pg):
    """The time in which a client sends COPY data does not count for query_timeout."""
    newest_pg.run("DROP TABLE IF EXISTS slow; CREATE TABLE slow (n int)", dbname="app")
    pooler = start_pooler(newest_pg, query_timeout=0.6)
    client = pooler.raw()
    client.send(wire.query("COPY slow FROM STDIN"))
    client.expect("G")
    for n in machine.every(0.25, 6):
        client.send(wire.copy_data(f"{n}\n".encode()))
    client.send(wire.frame("c"))
    client.until_ready()
    assert client.value("SELECT count(*) FROM slow") == "6"


def test_query_timeout_counts_while_waiting(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, query_timeout=0.5, default_pool_size=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    in_the_end(pooler, waiter, "query_timeout")


@pytest.mark.shows("database.query_wait_timeout", "user.query_wait_timeout")
@pytest.mark.parametrize(("database", "user", "kind"), [
    ("query_wait_timeout=0.3", None, "database"),
    ("", "query_wait_timeout=0.3", "user"),
    ("query_wait_timeout=100", "query_wait_timeout=0.3", "user-before-database"),
])
def test_query_wait_timeout_of_the_user_overrides_the_databases(start_pooler, newest_pg, database, user, kind):
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app pool_size=1"
    pooler = start_pooler(newest_pg, databases={"app": f"{where} {database}"},
                          users_section={"trusty": user} if user else {})
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    in_the_end(pooler, waiter, "query_wait_timeout")


# -- login


def test_login_timeout_counts_while_waiting_for_a_server(start_pooler):
    def behave(connection):
        connection.read_startup()
        connection.rest()  # never answers

    with fake.FakeServer(behave) as server:
        pooler = start_pooler(databases={"app": server.database}, client_login_timeout=0.5)
        client = pooler.socket()
        client.send(wire.startup(user="trusty", database="app"))
        error = [m for m in client.rest() if m.kind == "E"][-1]
        assert error.words == "client_login_timeout (server down)"
        pooler.expect_log("closing because: client_login_timeout (server down) (age=")
