"""Outages, in which no host of a pool can be used: clients wait or are refused, depending on `outage_hold`."""

import os
import threading
import time

import psycopg
import pytest

import machine
from rawclient import LoginRefused
from test_hosts import BlackHole, Closed, entry

pytestmark = pytest.mark.pgweir_only("PgBouncer fails waiting clients at once")


@pytest.fixture
def own_pg(start_cluster):
    """A server that the test stops."""
    server = start_cluster(18, f"o{os.urandom(3).hex()}")
    yield server
    server.stop()
    server.remove()


def in_outage(pooler):
    return [row["event"] for row in pooler.console("SHOW EVENTS") if row["kind"] in ("outage", "outage_ended")]


def ask_later(client, answers):
    """Runs a query in a thread, which appends the answer or the error."""
    def ask():
        try:
            answers.append(client.execute("SHOW app.tenant").fetchone()[0])
        except psycopg.OperationalError as error:
            answers.append(error)
    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.shows("outage_hold", "database.outage_hold")
@pytest.mark.parametrize("scope", ["global", "database"])
def test_clients_wait_during_an_outage(start_pooler, own_pg, workers, scope):
    """Clients without a transaction wait for longer than `query_wait_timeout`, and continue with their sessions.
    Clients that log in wait as well. After the outage, `query_wait_timeout` applies again.
    """
    options = {"outage_hold": 30, "databases": {"app": own_pg.entry()}}
    if scope == "database":
        options = {"outage_hold": 0, "databases": {"app": own_pg.entry("outage_hold=30")}}
    pooler = start_pooler(own_pg, workers=workers, query_wait_timeout=0.5, query_wait_notify=0, server_login_retry=0.2,
                          default_pool_size=2, **options)
    clients = [pooler.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.execute(f"SET app.tenant = 'tenant {number}'")
    own_pg.stop("immediate")
    answers, logins = [], []
    threads = [ask_later(client, answers) for client in clients]
    machine.wait_until(lambda: in_outage(pooler), what="the outage is known")

    def log_in():
        with pooler.connect() as late:
            logins.append(late.execute("SELECT 1").fetchone())
    threads.append(threading.Thread(target=log_in))
    threads[-1].start()
    machine.stays_true(lambda: not answers and not logins, 1.5, "clients wait")
    own_pg.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answers) == [f"tenant {number}" for number in range(6)]
    assert logins == [(1,)]
    began, ended = in_outage(pooler)
    assert "connect failed" in began and ended.startswith("an outage of ")
    holders = [pooler.connect() for _ in range(2)]
    for holder in holders:
        holder.execute("BEGIN")
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        clients[0].execute("SELECT 1")
    for client in [*clients, *holders]:
        client.close()


def test_after_outage_hold_clients_get_the_reason(start_pooler, own_pg):
    """After `outage_hold`, clients get the reason of the outage."""
    pooler = start_pooler(own_pg, outage_hold=1, query_wait_timeout=0.3, query_wait_notify=0, server_login_retry=0.2)
    client = pooler.connect()
    client.execute("SELECT 1")
    own_pg.stop("immediate")
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError) as error:
        client.execute("SELECT 1")
    assert 0.9 < time.monotonic() - began < 3
    assert "connect failed" in str(error.value)


@pytest.mark.shows("outage_hold_clients")
def test_outage_hold_clients_bounds_the_clients_that_wait(start_pooler, own_pg, workers):
    """Beyond `outage_hold_clients`, clients get the reason at once."""
    pooler = start_pooler(own_pg, workers=workers, outage_hold=30, outage_hold_clients=2, query_wait_notify=0,
                          server_login_retry=0.2)
    clients = [pooler.connect() for _ in range(5)]
    for number, client in enumerate(clients):
        client.execute(f"SET app.tenant = 'tenant {number}'")
    own_pg.stop("immediate")
    answers = []
    first = [ask_later(client, answers) for client in clients[:2]]
    machine.wait_until(lambda: in_outage(pooler))
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 2)
    for client in clients[2:]:
        with pytest.raises(psycopg.OperationalError, match="connect failed"):
            client.execute("SELECT 1")
    own_pg.start()
    for thread in first:
        thread.join(20)
    assert sorted(answers) == ["tenant 0", "tenant 1"]


@pytest.mark.parametrize("was_up", [False, True])
def test_logins_are_refused_by_default(start_pooler, own_pg, was_up):
    """Whether the pool was ever up or not, a login in an outage fails with the reason, and clients that are logged in wait."""
    pooler = start_pooler(own_pg, query_wait_notify=0, server_login_retry=1, server_connect_timeout=1)
    if was_up:
        early = pooler.connect()
        early.execute("SET app.tenant = 'early'")
    own_pg.stop("immediate")
    answers = []
    if was_up:
        waiting = ask_later(early, answers)
        machine.wait_until(lambda: in_outage(pooler), what="the outage is known")
    with pytest.raises(LoginRefused, match="connect failed"):
        pooler.raw()
    with pytest.raises(LoginRefused, match="connect failed"):
        pooler.raw()
    assert not answers
    own_pg.start()
    if was_up:
        waiting.join(20)
        assert answers == ["early"]

    def is_back():
        try:
            pooler.raw().close()
        except LoginRefused:
            return False
        return True
    machine.wait_until(is_back, what="logins succeed again")


@pytest.mark.parametrize("dead", [Closed, BlackHole])
def test_all_hosts_are_down(start_pooler, dead):
    """With a list, an outage begins when each host was tried."""
    with dead() as one, dead() as other:
        pooler = start_pooler(None, databases={"app": entry(one, other)}, query_wait_notify=0, server_login_retry=5,
                              server_connect_timeout=1, host_connect_timeout=0.5)
        with pytest.raises(LoginRefused):
            pooler.raw()
        assert len(in_outage(pooler)) == 1


@pytest.mark.shows("outage_hold")
def test_clients_that_listen(start_pooler, own_pg, workers):
    """pgweir listens to the channels again before clients continue. A notice says that notifications may be missing."""
    pooler = start_pooler(own_pg, workers=workers, outage_hold=30, query_wait_notify=0, server_login_retry=0.2)
    notices, received = [], []
    clients = [pooler.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        client.add_notify_handler(lambda notify, number=number: received.append((number, notify.payload)))
        client.execute("LISTEN news")

    def have_notice(payload):
        for client in clients:
            client.execute("SELECT 1")
        return {number for number, found in received if found == payload} == {0, 1, 2}
    own_pg.stop("immediate")
    own_pg.start()
    # A client listens again before its ReadyForQuery.
    clients[0].execute("SELECT 1")
    own_pg.run("NOTIFY news, 'first'", dbname="app")
    machine.wait_until(lambda: have_notice("first"), what="all have heard it")
    assert len(notices) == 3 and all(notice.startswith("notifications may be missing") for notice in notices)
    # A second outage, while no client sends a request.
    own_pg.stop("immediate")
    own_pg.start()

    def is_received():
        own_pg.run("NOTIFY news, 'second'", dbname="app")
        return have_notice("second")
    machine.wait_until(is_received, what="the listener listens again")
    for client in clients:
        client.execute("UNLISTEN news")
        client.close()


@pytest.mark.parametrize("hold", [0, 1])
def test_clients_that_listen_are_disconnected_or_notified(start_pooler, own_pg, hold):
    """Without `outage_hold`, clients that listen are disconnected at once; otherwise when the hold ends."""
    pooler = start_pooler(own_pg, outage_hold=hold, query_wait_notify=0, server_login_retry=0.2)
    client = pooler.connect()
    client.execute("LISTEN news")
    own_pg.stop("immediate")
    began = time.monotonic()
    pooler.expect_log("closing because: the connection that listened for it was lost")
    assert (time.monotonic() - began >= 0.9) == (hold > 0)
