"""memory_limit and login_memory: floods of statements and of logins are refused, and other clients continue."""

import contextlib

import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no limit on memory")

MB = 1 << 20
LIMIT = 64
FULL = ("53200", "out of memory (memory_limit)")
USERS = {"trusty": "p" * 60_000, "scrammed": "scram password", "admin": "admin password"}


def memory(pooler):
    """The bytes that each kind takes."""
    return {row["name"]: row["memtotal"] for row in pooler.console("SHOW MEM")}


def events(pooler):
    return [row["kind"] for row in pooler.console("SHOW EVENTS")]


def text(client, number, size=20_000):
    """A statement that no other client has."""
    return f"SELECT {number} AS n, '{client}:{'x' * size}'"


def fill(clients, most=1000, prefix="s"):
    """Lets clients prepare statements until one is refused. Returns the errors."""
    for number in range(most):
        errors = []
        for at, client in enumerate(clients):
            client.send(wire.parse(text(at, number), name=f"{prefix}{number}") + wire.SYNC)
        for client in clients:
            errors += [message for message in client.until_ready() if message.kind == "E"]
        if errors:
            return errors
    raise AssertionError("no statement was refused")


@pytest.fixture
def limited(start):  # noqa: F811
    return start(workers=1, memory_limit=f"{LIMIT}MB", default_pool_size=5)


@pytest.mark.shows("memory_limit")
def test_a_flood_of_statements_is_refused(limited):
    pooler = limited
    with contextlib.ExitStack() as stack:
        client = lambda: stack.enter_context(pooler.raw())  # noqa: E731
        other, in_transaction = client(), client()
        in_transaction.query("BEGIN")
        base = pooler.memory_kb() << 10
        other.send(wire.parse("SELECT 7", name="known") + wire.SYNC)
        other.until_ready()
        # The flood runs beside this query.
        other.send(wire.query("SELECT pg_sleep(3), 'slow'"))
        flood = stack.enter_context(contextlib.ExitStack())
        clients = [flood.enter_context(pooler.raw()) for _ in range(6)]
        errors = fill(clients)
        assert {(error.sqlstate, error.words) for error in errors} == {FULL}
        assert "SHOW MEM" in errors[0].fields["H"] and "memory_limit" in errors[0].fields["H"]
        assert pooler.memory_kb() << 10 < base + 1.4 * LIMIT * MB
        machine.wait_until(lambda: "memory_full" in events(pooler), what="the event")
        # Clients that are connected can still use transactions, statements that they have prepared, and unnamed statements.
        assert in_transaction.value("SELECT 1") == "1"
        in_transaction.query("COMMIT")
        for one in (in_transaction, *clients):
            one.send(wire.extended("SELECT 2") + wire.SYNC)
            assert not wire.errors(one.until_ready())
        clients[0].send(wire.run("s0") + wire.SYNC)
        assert not wire.errors(clients[0].until_ready())
        assert other.until_ready()[1].row[1] == "slow"
        other.send(wire.parse("SELECT 7", name="known2") + wire.run("known") + wire.SYNC)
        assert wire.errors(other.until_ready()), "the name is new"
        other.send(wire.run("known") + wire.SYNC)
        assert not wire.errors(other.until_ready())
        # A statement that another client has under the same name takes no memory.
        in_transaction.send(wire.parse("SELECT 7", name="known") + wire.SYNC)
        assert wire.errors(in_transaction.until_ready()) == []
        refused = pooler.login_error()
        assert (refused.sqlstate, refused.words) == FULL
        metrics = scrape(pooler.http)
        assert metrics.value("pgweir_memory_limit_bytes") == LIMIT * MB and metrics.value("pgweir_memory_is_full") == 1
        # The flood's last statements were refused, and then the statement with a new name.
        assert metrics.value("pgweir_memory_refusals_total", step="statement") == len(errors) + 1
        assert metrics.value("pgweir_memory_refusals_total", step="login") == 1
        kinds = memory(pooler)
        assert kinds["prepared_statement"] > 0.8 * LIMIT * MB and 0.9 * LIMIT * MB < sum(kinds.values()) < 1.1 * LIMIT * MB
        flood.close()
        machine.wait_until(lambda: "memory_freed" in events(pooler), what="the end of the event")
        assert client().value("SELECT 3") == "3"
        machine.wait_until(lambda: memory(pooler)["prepared_statement"] < LIMIT * MB / 2, what="the texts are gone")
        machine.wait_until(lambda: pooler.memory_kb() << 10 < base + 0.6 * LIMIT * MB, what="memory is returned")
        other.send(wire.parse(text(99, 99), name="again") + wire.SYNC)
        assert not wire.errors(other.until_ready())
    log = pooler.log()
    assert log.count("memory_limit is reached") >= 1 and log.count("accepted again") == log.count("memory_limit is reached")


def test_the_limit_can_be_changed(start):  # noqa: F811
    pooler = start(memory_limit=f"{LIMIT}MB")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.raw()) for _ in range(6)]
        fill(clients)
        pooler.console("SET memory_limit = '1GB'")
        assert pooler.setting("memory_limit") == "1GB"
        with pooler.raw() as another:
            assert another.value("SELECT 1") == "1"
        pooler.console("SET memory_limit = 0")
        with pytest.raises(AssertionError, match="no statement was refused"):
            fill(clients, most=10, prefix="t")


def test_a_long_statement_above_the_limit(limited):
    """pgweir stores a named statement as a whole. If there is no room for it, the connection is closed before the
    statement has arrived.
    """
    pooler = limited
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.raw()) for _ in range(6)]
        fill(clients)
        base = pooler.memory_kb()
        clients[0].send(wire.frame_of_length("P", 15 * MB, b"long\0SELECT 'x"))
        error = clients[0].error_and_close()
        assert (error.sqlstate, error.words) == FULL
        assert pooler.memory_kb() - base < 4096
        assert clients[1].value("SELECT 1") == "1"


@pytest.mark.shows("login_memory")
def test_long_passwords_share_a_budget(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, users=USERS, auth_type="plain", login_memory="1MB")
    with contextlib.ExitStack() as stack:
        base = pooler.memory_kb()
        strangers = [stack.enter_context(pooler.socket()) for _ in range(200)]
        for stranger in strangers:
            stranger.send(wire.startup(user="trusty", database="app"))
            stranger.expect("R")
            # All but the last byte of a password.
            stranger.send(wire.frame_of_length("p", 60_005, b"p" * 60_000))
        refused = []

        def are_refused():
            for stranger in list(strangers):
                try:
                    stranger.quiet(0.001)
                except AssertionError:
                    refused.append(stranger.error_and_close())
                    strangers.remove(stranger)
            return len(strangers) <= 19

        machine.wait_until(are_refused, what="those above the budget are refused")
        assert {(error.sqlstate, error.words) for error in refused} == {("53200", "out of memory for logins (login_memory)")}
        assert "login_memory" in refused[0].fields["H"]
        # 1 MB is enough for some of them.
        assert len(strangers) >= 5
        assert pooler.memory_kb() - base < 12_000
        kinds = memory(pooler)
        assert 300_000 < kinds["login"] < 2.5 * MB
        # Short passwords need no part of the budget.
        with pooler.raw("scrammed", password=USERS["scrammed"]) as client:
            assert client.value("SELECT 1") == "1"
        # The login of one of the waiting clients continues.
        strangers[0].send(b"\0")
        strangers[0].until_ready()
        assert strangers[0].value("SELECT 2") == "2"
    machine.wait_until(lambda: memory(pooler)["login"] < 100_000, what="the budget is given back")
    with pooler.raw(password=USERS["trusty"]) as client:
        assert client.value("SELECT 3") == "3"


def test_caches_are_emptied_first(start_pooler, newest_pg):
    """Idle servers keep statements that no client has any more. Above the limit, pgweir frees them."""
    pooler = start_pooler(newest_pg, workers=1, memory_limit=f"{LIMIT}MB", default_pool_size=2, max_prepared_statements=2000)
    with pooler.raw() as client:
        for number in range(200):
            client.send(wire.parse(text(0, number, 200_000), name=f"s{number}") + wire.close("S", f"s{number}") + wire.SYNC)
            assert not wire.errors(client.until_ready())
    machine.wait_until(lambda: memory(pooler)["prepared_statement"] > 30 * MB, what="the servers keep the statements")
    pooler.console("SET memory_limit = '20MB'")
    machine.wait_until(lambda: memory(pooler)["prepared_statement"] < MB, what="they give them back")
    machine.wait_until(lambda: events(pooler)[-1] == "memory_freed" or "memory_freed" in events(pooler), what="the event")
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "1"
    assert not pooler.console("SHOW STATEMENTS") or pooler.alive()
