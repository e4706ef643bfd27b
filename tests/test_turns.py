"""Where a hand-over costs something, a client goes on with its server for a while: others still get theirs soon."""

import contextlib
import threading
import time

import pytest

import machine

# Seconds; a turn lasts for a twentieth of one at most, and the machine may be busy.
WAIT_S = 1
ROUNDS = 20


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.parametrize("text", [
    "DO $$ BEGIN EXECUTE 'SELECT 1'; END $$",
    "SET work_mem = '77kB'",
    "SET app.tenant = 'x'",
    "SET app.tenant = 'x'; SET app.tenant = 'y'",
])
def test_others_get_the_server_soon(start_pooler, newest_pg, text):
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
            before = list(said)
            began = time.monotonic()
            assert quiet.value("SELECT 1") == "1"
            assert time.monotonic() - began < WAIT_S
        assert all(after > 0 for after in said) and before != said
