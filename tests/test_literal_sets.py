"""SET of a custom parameter to a constant: pgweir reads the value from the text, without an inspection."""


import pytest

import machine
import rawclient as wire

READ = "SELECT nullif(current_setting('app.tenant', true), '')"
SET = "SET app.tenant = 'x'"
# Seconds after which a server is inspected whose client has set parameters, and for which a test waits for it.
LOOK_S = 0.05
PATIENCE_S = 5
LEAVES = "DO $$ BEGIN EXECUTE 'SET app.tenant = ''hidden'''; END $$"

KNOWN = [
    ([SET], "x"),
    (["set session App.\"Tenant\" to 'it''s'"], "it's"),
    (["SET app.tenant = 42"], "42"),
    (["SET app.tenant = 'a'; SET app.tenant = 'b'"], "b"),
    (["SET app.tenant = 'a'", "SELECT 1", "SET app.tenant = ''"], None),
    (["BEGIN; SET app.tenant = 'x'; COMMIT"], "x"),
    (["BEGIN", SET, "SELECT 1", "COMMIT"], "x"),
    (["BEGIN", SET, "SET LOCAL app.tenant = 'y'", "COMMIT"], "x"),
    (["BEGIN", "SET LOCAL app.tenant = 'y'", SET, "COMMIT"], "x"),
    ([SET, "RESET app.tenant"], None),
    (["SET app.other = 'y'; SET app.tenant = 'x'", "RESET app.other"], "x"),
    (["RESET app.tenant; SET app.tenant = 'x'; SET app.other = 'y'; RESET app.other"], "x"),
]
UNKNOWN = [
    (["SET app.tenant = 1.50"], "1.50"),
    (["SET app.tenant = on"], "on"),
    (["SELECT set_config('app.tenant', 'x', false)"], "x"),
    (["BEGIN", SET, "ROLLBACK"], None),
    (["BEGIN", SET, "ROLLBACK AND CHAIN", "COMMIT"], None),
    (["BEGIN", SET, "SELECT 1/0", "COMMIT"], None),
    (["BEGIN", SET, "INSERT INTO deferred VALUES (1), (1)", "COMMIT"], None),
    (["SET app.tenant = 'x'; SELECT 1/0"], None),
    (["BEGIN", "SAVEPOINT s", SET, "ROLLBACK TO s", "COMMIT"], None),
    (["BEGIN", SET, "SAVEPOINT s", "SET app.tenant = 'y'", "ROLLBACK TO s", "COMMIT"], "x"),
    (["BEGIN", SET, LEAVES, "COMMIT"], "hidden"),
    (["BEGIN", LEAVES, SET, "COMMIT"], "x"),
    ([SET, "BEGIN", "RESET app.tenant", "ROLLBACK"], "x"),
    ([SET, "RESET ALL"], None),
]


@pytest.fixture
def two_clients(start_pooler, newest_pg):
    """Two clients that share one server, and a function that returns the server's last query."""
    pooler = start_pooler(newest_pg, default_pool_size=1)
    newest_pg.run("CREATE TABLE IF NOT EXISTS deferred (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                  "GRANT ALL ON deferred TO PUBLIC", dbname="app")
    with pooler.raw() as one, pooler.raw() as other:
        backend = one.value("SELECT pg_backend_pid()")
        yield one, other, lambda: newest_pg.value(f"SELECT query FROM pg_stat_activity WHERE pid = {backend}")


def check(two_clients, say, last, expect, is_known):
    one, other, asked = two_clients
    assert other.value(READ) is None
    say(one)
    if is_known:
        machine.stays_true(lambda: asked() == last, 3 * LOOK_S, "the server is asked nothing")
    else:
        machine.wait_until(lambda: asked() != last, PATIENCE_S, "the server is asked what the session holds")
    for _ in range(2):
        assert other.value(READ) is None
        assert one.value(READ) == expect
    one.query("DISCARD ALL")
    for client in (one, other):
        assert client.value(READ) is None


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.parametrize(("texts", "expect", "is_known"),
                         [(*case, True) for case in KNOWN] + [(*case, False) for case in UNKNOWN])
def test_sets_of_constants_in_simple_queries(two_clients, texts, expect, is_known):
    check(two_clients, lambda one: [one.query(text) for text in texts], texts[-1], expect, is_known)


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.parametrize(("texts", "expect"), [
    ([SET, "SET app.tenant = 'y'"], "y"),
    (["BEGIN", "SELECT 1/0", SET, "COMMIT"], None),
    (["SELECT 1/0", SET], "x"),
    ([SET, "SELECT 1/0"], "x"),
    (["BEGIN", SET, "COMMIT", "BEGIN", "SET app.tenant = 'y'", "ROLLBACK"], "x"),
])
def test_sets_of_constants_in_pipelines(two_clients, texts, expect):
    def say(one):
        one.send(b"".join(wire.query(text) for text in texts))
        for _ in texts:
            one.until_ready()

    one, other, _ = two_clients
    say(one)
    for _ in range(2):
        assert other.value(READ) is None
        assert one.value(READ) == expect


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
@pytest.mark.parametrize("is_executed", [True, False])
def test_a_statement_that_may_not_be_executed(two_clients, is_executed):
    parse = wire.frame("P", b"\0" + SET.encode() + b"\0\0\0")
    execute = wire.frame("B", b"\0\0\0\0\0\0\0\0") + wire.frame("E", b"\0\0\0\0\0")

    def say(one):
        one.send(parse + execute * is_executed + wire.frame("S", b"")).until_ready()

    check(two_clients, say, SET, "x" if is_executed else None, False)
