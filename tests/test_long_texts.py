"""Texts that repeat a part thousands of times: the time to read such a text is proportional to its length."""

import contextlib
import itertools

import pytest

import rawclient as wire
from test_pipelines import pooler_seconds

pytestmark = pytest.mark.pgweir_only("PgBouncer reads no texts")

LENGTH = 60_000
# The limit of the pooler's CPU time for a text of this length, in seconds: several times what a slow machine needs. When
# the time grew with the square of the length, it was 0.4 to 2.2 seconds.
MOST_S = 0.15
PARTS = {
    "DROP ROLE": ("", "drop role r#; "), "DO": ("", "do $$$$;"), "SET": ("", "set a.b#=1;"), "RESET": ("", "reset a.b#;"),
    "set_config": ("select ", "set_config('a.b#','c',false),"), "a name of many parts": ("do $$ ", "set."),
}


def repeated(part, length=LENGTH):
    """Repeats `part` until the text has `length` bytes. A `#` in it stands for the number of the repetition."""
    lengths = itertools.accumulate(len(part.replace("#", str(number))) for number in itertools.count())
    count = sum(1 for _ in itertools.takewhile(lambda sum_: sum_ <= length, lengths))
    return "".join(part.replace("#", str(number)) for number in range(count))


def seconds_of(pooler, client, text):
    before = pooler_seconds(pooler.pid)
    client.query(text)
    return pooler_seconds(pooler.pid) - before


@pytest.mark.parametrize("what", PARTS)
def test_a_text_of_many_parts(start_pooler, newest_pg, what, record_property):
    beginning, part = PARTS[what]
    pooler = start_pooler(newest_pg, workers=1)
    with pooler.raw() as client:
        client.query("SELECT 1")
        took = seconds_of(pooler, client, beginning + repeated(part) + " an end that is no SQL")
    record_property("figures", f"{what}: {took * 1000:.0f} ms")
    assert took < MOST_S


def test_an_execute_that_is_repeated(start_pooler, newest_pg, record_property):
    """PostgreSQL stops at the error, but the pooler has read the whole text."""
    pooler = start_pooler(newest_pg, workers=1)
    with pooler.raw() as client:
        assert not wire.errors(client.query(f"PREPARE p AS SELECT 1 IN ({repeated('1, ')} 1)"))
        took = seconds_of(pooler, client, "SELECT 1/0; " + repeated("EXECUTE p; "))
    record_property("figures", f"{took * 1000:.0f} ms")
    assert took < MOST_S


def test_a_text_with_many_prepares(start_pooler, newest_pg, record_property):
    """`pg_prepared_statements` has the whole text once for each of its PREPAREs. The pooler does not read that much."""
    pooler = start_pooler(newest_pg, workers=1, default_pool_size=1, query_wait_timeout=1)
    with pooler.raw() as client, pooler.raw() as other:
        client.query("SELECT 1")
        memory = pooler.memory_kb()
        before = pooler_seconds(pooler.pid)
        assert not wire.errors(client.query(repeated("PREPARE p# AS SELECT #; ", 30_000)))
        # The pooler inspects the session for a client that waits.
        with contextlib.suppress(wire.Closed):
            other.query("SELECT 1")
        assert client.value("EXECUTE p77") == "77"
        took, grown = pooler_seconds(pooler.pid) - before, pooler.memory_kb() - memory
    record_property("figures", f"{took * 1000:.0f} ms, {grown} kB")
    assert took < MOST_S and grown < 20_000
