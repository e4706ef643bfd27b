"""Servers above a pool's size, while many clients wait."""

import pytest

import machine
import rawclient as wire


def busy(pooler, count):
    clients = [pooler.raw() for _ in range(count)]
    for client in clients:
        client.send(wire.query("BEGIN"))
    return clients


def expect(pooler, active, waiting):
    def is_so():
        row = pooler.pool()
        return (row["sv_active"], row["sv_login"], row["cl_waiting"]) == (active, 0, waiting)

    machine.wait_until(is_so, 5, f"{active} servers, and {waiting} clients wait")


@pytest.mark.shows("overflow_size", "overflow_waiting", "database.overflow_size", "database.overflow_waiting")
@pytest.mark.parametrize("scope", ["global", "database"])
def test_overflow_size_and_overflow_waiting(start_pooler, newest_pg, workers, scope):
    own = {"overflow_size": 2, "overflow_waiting": 2}
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    if scope == "database":
        where += "".join(f" {key}={value}" for key, value in own.items())
        own = {"overflow_size": 0, "overflow_waiting": 0}
    pooler = start_pooler(newest_pg, databases={"app": where}, default_pool_size=1, workers=workers, **own)
    holder, first, second = pooler.raw(), *(pooler.raw() for _ in range(2))
    holder.query("BEGIN")
    for client in (first, second):
        client.send(wire.query("SELECT 1"))
    second.quiet(0.5)
    # With the third waiting client, a server is opened, and the client that has waited longest gets it.
    third = pooler.raw()
    third.send(wire.query("SELECT 1"))
    for client in (first, second, third):
        assert wire.value(client.until_ready()) == "1"
    pooler.expect_log("taking connection from overflow")
    # The limit holds: three servers for six clients in transactions.
    crowd = busy(pooler, 6)
    expect(pooler, active=3, waiting=len(crowd) - 2)


@pytest.mark.shows("overflow_size")
def test_the_caps_hold(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1, overflow_size=5, overflow_waiting=0,
                          max_db_connections=2)
    crowd = busy(pooler, 4)
    expect(pooler, active=2, waiting=len(crowd) - 2)
