"""Logins and disconnects of many clients at once do not delay the queries of others (`login_slice`)."""

import signal
import socket

import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no such setting")

CLIENTS = 100


def log_in_at_once(pooler):
    """Connects clients, sends their startup packets while the pooler is stopped, and disconnects them while it is stopped
    again. Both times, a client that has logged in before sends a query.
    """
    busy = pooler.raw()
    clients = [socket.create_connection((pooler.host, pooler.port)) for _ in range(CLIENTS)]
    machine.stand_still(pooler.process)
    for client in clients:
        client.sendall(wire.startup(user="trusty", database="app"))
    busy.send(wire.query("SELECT 1"))
    pooler.signal(signal.SIGCONT)
    busy.until_ready()
    for client in clients:
        client.settimeout(20)
        answer = b""
        while not answer.endswith(b"Z\0\0\0\5I"):
            piece = client.recv(4096)
            assert piece, answer
            answer += piece
    machine.stand_still(pooler.process)
    for client in clients:
        client.close()
    busy.send(wire.query("SELECT 1"))
    pooler.signal(signal.SIGCONT)
    busy.until_ready()
    machine.wait_until(lambda: pooler.pool("app")["cl_active"] == 1, what="the clients have left")


def delays(pooler):
    metrics = scrape(pooler.http)
    return metrics.value("pgweir_login_delays_total"), metrics.value("pgweir_waiting_logins")


@pytest.mark.shows("login_slice")
def test_logins_and_disconnects_wait_for_queries(start):
    pooler = start(workers=1, login_slice=0)
    log_in_at_once(pooler)
    turns, waiting = delays(pooler)
    assert turns >= 2 * (CLIENTS - 10) and waiting == 0, "one step in each turn"
    pooler.console("SET login_slice = 60")
    turns, _ = delays(pooler)
    log_in_at_once(pooler)
    assert delays(pooler) == (turns, 0), "the slice is long enough for all"
