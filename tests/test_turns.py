"""Turns: where an inspection is slow, a client uses its server for several transactions. Other clients still get
servers soon.
"""

import contextlib
import threading
import time

import pytest

import machine

# In seconds. A turn lasts for at most 0.05 s, but the machine may be busy.
WAIT_S = 1
ROUNDS = 20


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.parametrize("text", [
    "DO $$ BEGIN EXECUTE 'SELECT 1'; END $$",
    "SET work_mem = '77kB'",
    "SET app.tenant = 'x'",
    "SET app.tenant = 'x'; SET app.tenant = 'y'",
])
def test_waiting_clients_get_the_server_soon(start_pooler, newest_pg, text):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    over = threading.Event()
    said = [0, 0]

    def talk(client, number):
        while not over.is_set():
            client.query(text)
            said[number] += 1

    with pooler.raw() as one, pooler.raw() as other, pooler.raw() as quiet, contextlib.ExitStack() as ending:
        talkers = [threading.Thread(target=talk, args=pair) for pair in ((one, 0), (other, 1))]
        for talker in talkers:
            talker.start()
            ending.callback(talker.join)
        ending.callback(over.set)
        for _ in machine.every(0.05, ROUNDS):
            began = time.monotonic()
            assert quiet.value("SELECT 1") == "1"
            assert time.monotonic() - began < WAIT_S
            before = list(said)
            machine.wait_until(lambda: all(now > then for now, then in zip(said, before)), what="both talkers go on")


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.shows("settle_after")
def test_one_waiter_takes_one_kept_server(start_pooler, newest_pg):
    """The server that was kept longest goes to the waiting client. The other clients keep theirs at no cost."""
    pooler = start_pooler(newest_pg, default_pool_size=3, workers=1, settle_after="1h")

    def kept():
        modes = [row["mode"] for row in pooler.console("SHOW SERVERS")]
        return modes.count("kept")

    with contextlib.ExitStack() as ending:
        keepers = [ending.enter_context(pooler.raw()) for _ in range(3)]
        backends = []
        for keeper in keepers:
            keeper.query("BEGIN")
            backends.append(keeper.value("SELECT pg_backend_pid()"))
        for keeper in keepers:
            keeper.query("DO $$ BEGIN PERFORM set_config('app.kept', 'mine', false); END $$; COMMIT")
            machine.wait_until(lambda: kept() > 0, what="its server is kept")
        machine.wait_until(lambda: kept() == 3, what="all servers are kept")
        # The first client goes on with its server, which is now the one that was kept last.
        keepers[0].query("DO $$ BEGIN PERFORM set_config('app.kept', 'mine', false); END $$")
        machine.wait_until(lambda: kept() == 3, what="all servers are kept")
        others = [ending.enter_context(pooler.raw()) for _ in range(2)]
        for number, other in enumerate(others):
            other.query("BEGIN")
            assert other.value("SELECT pg_backend_pid()") == backends[number + 1]
            assert kept() == 2 - number
        for other in others:
            other.query("COMMIT")
        assert [keeper.value("SELECT current_setting('app.kept')") for keeper in keepers] == ["mine"] * 3
