"""SHOW WAITERS: which clients wait for a server, for which limit, and what helps."""

import machine
import rawclient as wire


def waiters(pooler, count):
    """Returns the rows once this number of clients waits."""
    machine.wait_until(lambda: len(pooler.console("SHOW WAITERS")) == count, what=f"{count} waiters")
    return pooler.console("SHOW WAITERS", user="stats")


def held_for(pooler, micros):
    """Waits until the longest holder has had its server for this time."""
    machine.wait_until(lambda: pooler.console("SHOW WAITERS")[0]["holder_us"] >= micros,
                       what="the holder has its server for long")
    return pooler.console("SHOW WAITERS")


def clients(pooler):
    """Returns the ids of clients by port."""
    return {row["port"]: row["id"] for row in pooler.console("SHOW CLIENTS")}


def port(client):
    return client.sock.getsockname()[1]


def test_an_idle_transaction(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    assert pooler.console("SHOW WAITERS") == []
    holder, first, second = pooler.raw(application_name="billing"), pooler.raw(), pooler.raw()
    ids = clients(pooler)
    holder.query("BEGIN; SELECT 'secret'")
    first.send(wire.query("SELECT 'hidden'"))
    waiters(pooler, 1)
    second.send(wire.query("SELECT 2"))
    rows = waiters(pooler, 2)
    assert [row["client_id"] for row in rows] == [ids[port(first)], ids[port(second)]]
    row = held_for(pooler, 1_000_000)[0]
    assert (row["database"], row["user"], row["waiting"]) == ("app", "trusty", 2)
    assert (row["limit"], row["holders"], row["holder_state"]) == ("pool_size", 1, "idle in transaction")
    assert (row["holder_client_id"], row["holder_application_name"]) == (ids[port(holder)], "billing")
    assert row["wait_us"] > 0 and row["holder_pin_reason"] is None
    assert row["statement"] == "BEGIN; SELECT ?" and len(row["fingerprint"]) == 16
    number = ids[port(holder)]
    assert row["advice"] == (f"end the idle transaction of client {number} (KILL_CLIENT {number}), "
                             "and set idle_transaction_timeout")
    assert "secret" not in str(rows) and "hidden" not in str(rows)
    # The command that the advice names lets the waiting clients go on.
    pooler.console(f"KILL_CLIENT {number}")
    assert wire.value(first.until_ready()) == "hidden"
    assert wire.value(second.until_ready()) == "2"
    assert pooler.console("SHOW WAITERS") == []


def test_holders_of_one_program(start_pooler, newest_pg, workers):
    """If several clients of one program hold servers in the same state, the advice names the program."""
    pooler = start_pooler(newest_pg, default_pool_size=3, workers=workers)
    basket = [pooler.raw(application_name="basket") for _ in range(2)]
    other, waiter = pooler.raw(application_name="report"), pooler.raw()
    for client in [*basket, other]:
        client.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiters(pooler, 1)
    row = held_for(pooler, 1_000_000)[0]
    assert (row["holders"], row["holders_alike"], row["holder_application_name"]) == (3, 2, "basket")
    assert row["advice"] == ("make application basket end its 2 idle transactions, and set idle_transaction_timeout, "
                             "which ends them")
    basket[0].query("COMMIT")
    assert wire.value(waiter.until_ready()) == "1"


def test_a_long_request(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.send(wire.query("SELECT pg_sleep(60)"))
    machine.wait_until(lambda: pooler.pool()["sv_active"] == 1, what="the request runs")
    waiter.send(wire.query("SELECT 1"))
    waiters(pooler, 1)
    (row,) = held_for(pooler, 1_000_000)
    assert row["holder_application_name"] is None
    assert row["holder_state"] == "busy" and row["statement"] == "SELECT pg_sleep(?)"
    assert row["advice"].startswith("make the long request of client ")
    pooler.console(f"KILL_CLIENT {row['holder_client_id']}")
    assert wire.value(waiter.until_ready()) == "1"


def test_a_pinned_client(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, max_pinned=1, pinned_overflow=0, workers=workers,
                          session_state="transparent")
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("CREATE TEMP TABLE kept AS SELECT 'secret' AS word")
    pooler.settle()
    waiter.send(wire.query("SELECT 1"))
    waiters(pooler, 1)
    (row,) = held_for(pooler, 1_000_000)
    assert (row["holder_state"], row["holder_pin_reason"]) == ("idle and pinned", "temporary objects")
    assert row["statement"] == "CREATE TEMP TABLE kept AS SELECT ? AS word"
    assert "set pin_timeout" in row["advice"]
    pooler.console(f"KILL_CLIENT {row['holder_client_id']}")
    assert wire.value(waiter.until_ready()) == "1"


def test_a_limit_of_several_pools(start_pooler, newest_pg, workers):
    """The holder may be a client of another pool."""
    pooler = start_pooler(newest_pg, max_db_connections=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw(user="hashed")
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    (row,) = waiters(pooler, 1)
    machine.wait_until(lambda: pooler.console("SHOW WAITERS")[0]["limit"] == "max_db_connections",
                       what="the limit is known")
    (row,) = pooler.console("SHOW WAITERS")
    assert (row["user"], row["holder_user"], row["holders"]) == ("hashed", "trusty", 1)
    holder.query("COMMIT")
    assert wire.value(waiter.until_ready()) == "1"


def test_waiting_clients_in_a_pause(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    waiter = pooler.raw()
    waiter.value("SELECT 1")
    pooler.console("PAUSE app")
    waiter.send(wire.query("SELECT 1"))
    (row,) = waiters(pooler, 1)
    assert (row["limit"], row["holders"], row["holder_client_id"]) == ("paused", 0, None)
    assert row["advice"] == "give RESUME: an operator has paused the pool"
    pooler.console("RESUME app")
    assert wire.value(waiter.until_ready()) == "1"
