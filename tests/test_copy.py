"""COPY in both directions, and all the ways in which it can end early."""

import asyncio
import hashlib
import io
import subprocess
import threading

import asyncpg
import psycopg
import pytest

import rawclient as wire
from rawclient import COPY_DONE, SYNC, copy_data, copy_fail, query

LINE = b"%d\t" + b"some text that makes the row longer " * 3 + b"\n"
FIFTY_MEGABYTES = 50 << 20
GROWTH_KB = 8 << 10


@pytest.fixture
def table(pg):
    """An empty table `copied (n int, t text)` in database app, and `viewed`, which takes no rows."""
    pg.run("DROP TABLE IF EXISTS copied; CREATE TABLE copied (n int, t text);"
           "CREATE OR REPLACE VIEW viewed AS SELECT 1 AS n", dbname="app")
    return "copied"


# -- the same messages with and without the pooler

# name: steps of (what to send, kinds of message that end the answer)
SCRIPTS = {
    "in": [(query("COPY copied FROM STDIN"), "G"),
           (copy_data(b"1\ta\n2\tb\n") + copy_data(b"3\tc\n") + COPY_DONE, "Z"),
           (query("SELECT * FROM copied ORDER BY n"), "Z")],
    "in, all at once": [
        (query("COPY copied FROM STDIN") + copy_data(b"1\ta\n") + COPY_DONE + query("SELECT 1"), "GZZ")],
    "in, rows over messages": [
        (query("COPY copied FROM STDIN"), "G"),
        (b"".join(copy_data(bytes([b])) for b in b"1\tabc\n2\tdef\n") + COPY_DONE, "Z")],
    "in, nothing": [(query("COPY copied FROM STDIN"), "G"), (COPY_DONE, "Z")],
    "in, refused by the client": [
        (query("COPY copied FROM STDIN"), "G"),
        (copy_data(b"1\ta\n") + copy_fail("changed my mind"), "Z"), (query("SELECT 1"), "Z")],
    "in, bad row, client goes on": [
        (query("COPY copied FROM STDIN"), "G"),
        (copy_data(b"x\ty\n") + copy_data(b"1\ta\n") * 50 + COPY_DONE + query("SELECT 2"), "ZZ")],
    "in a transaction": [
        (query("BEGIN; COPY copied FROM STDIN"), "G"), (copy_data(b"1\ta\n") + COPY_DONE, "Z"),
        (query("SELECT count(*) FROM copied"), "Z"), (query("ROLLBACK"), "Z")],
    "two in one query": [
        (query("COPY copied FROM STDIN; COPY copied FROM STDIN; SELECT count(*) FROM copied"), "G"),
        (copy_data(b"1\ta\n") + COPY_DONE, "G"), (copy_data(b"2\tb\n") + COPY_DONE, "Z")],
    "flush and sync while copying": [
        (query("COPY copied FROM STDIN"), "G"),
        (wire.FLUSH + copy_data(b"1\ta\n") + SYNC + wire.FLUSH + COPY_DONE, "Z"),
        (query("SELECT count(*) FROM copied"), "Z")],
    # libpq sends Sync with the Execute and again behind CopyDone.
    "extended, two syncs": [
        (wire.extended("COPY copied FROM STDIN") + SYNC, "G"),
        (copy_data(b"1\ta\n") + COPY_DONE + SYNC, "Z"), (query("SELECT count(*) FROM copied"), "Z")],
    "extended, one sync": [
        (wire.extended("COPY copied FROM STDIN") + wire.FLUSH, "G"),
        (copy_data(b"1\ta\n") + COPY_DONE + SYNC, "Z")],
    "extended, all at once": [
        (wire.extended("COPY copied FROM STDIN") + copy_data(b"1\ta\n") + COPY_DONE
         + wire.extended("SELECT 1") + SYNC, "Z")],
    "extended, refused by the client": [
        (wire.extended("COPY copied FROM STDIN") + SYNC, "G"),
        (copy_data(b"1\ta\n") + copy_fail("no") + SYNC, "Z"), (query("SELECT 1"), "Z")],
    "extended, bad row": [
        (wire.extended("COPY copied FROM STDIN") + SYNC, "G"),
        (copy_data(b"x\n") + COPY_DONE + SYNC, "Z"), (query("SELECT 1"), "Z")],
    # The server reads no data, so it also answers the first Sync, after a session that has to be inspected.
    "extended, onto a view": [
        (wire.extended("SELECT set_config('app.copied', 'x', false)") + wire.extended("COPY viewed FROM STDIN")
         + SYNC + copy_data(b"1\n") + COPY_DONE + SYNC, "ZZ"), (query("SELECT 1"), "Z")],
    "out": [(query("COPY (SELECT n, 'x' FROM generate_series(1, 5) n) TO STDOUT"), "Z")],
    "out, binary": [
        (query("COPY (SELECT n, 'x' FROM generate_series(1, 5) n) TO STDOUT (FORMAT binary)"), "Z")],
    "out, error in the middle": [
        (query("COPY (SELECT 1 / (1000 - n) FROM generate_series(1, 2000) n) TO STDOUT"), "Z"),
        (query("SELECT 1"), "Z")],
    "out, extended": [
        (wire.extended("COPY (SELECT 1) TO STDOUT") + wire.extended("SELECT 2") + SYNC, "Z")],
    "no such table": [(query("COPY nobody FROM STDIN"), "Z"), (query("COPY nobody TO STDOUT"), "Z")],
}


def play(client, steps):
    """Returns the replies to the steps of a script, which begins with an empty table."""
    client.query("TRUNCATE copied")
    return [(m.kind, m.body) for sent, ends in steps for m in client.play(sent, ends)]


PIPELINED = ("in, all at once", "in, bad row, client goes on")  # PgBouncer may never answer


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.pgweir_only("may hang")) if name in PIPELINED else name
    for name in SCRIPTS
])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_same_as_postgresql(start_pooler, pg, table, name, mode):
    pooler = start_pooler(pg, pool_mode=mode, default_pool_size=1)
    steps = SCRIPTS[name]
    with pg.raw() as direct:
        expected = play(direct, steps)
    with pooler.raw() as client:
        assert play(client, steps) == expected
        assert client.value("SELECT 'still here'") == "still here"
    with pooler.raw() as other:
        assert other.query("SELECT 1")[-1].body == b"I"


def test_server_is_free_after_copy(start_pooler, pg, pgbouncer, table):
    """Every form of COPY gives the server back: the next client gets it at once."""
    pooler = start_pooler(pg, default_pool_size=1)
    first, second = pooler.raw(), pooler.raw()
    for name, steps in SCRIPTS.items():
        if pgbouncer and name in PIPELINED:
            continue
        play(first, steps)
        assert second.query("SELECT 1")[-1].body == b"I", name


# -- large amounts of data


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_fifty_megabytes_both_ways(start_pooler, pg, table, mode, workers):
    pooler = start_pooler(pg, pool_mode=mode, workers=workers)
    block = b"".join(LINE % n for n in range(5000))
    blocks = FIFTY_MEGABYTES // len(block) + 1
    sent, received = hashlib.md5(), hashlib.md5()
    with pooler.connect() as db:
        db.execute("SELECT repeat('x', 1000000)")
        before = pooler.memory_kb()
        with db.cursor() as cursor, cursor.copy("COPY copied FROM STDIN") as copy:
            for _ in range(blocks):
                copy.write(block)
                sent.update(block)
        assert pooler.memory_kb() - before < GROWTH_KB
        with db.cursor() as cursor, cursor.copy("COPY copied TO STDOUT") as copy:
            for data in copy:
                received.update(data)
        assert pooler.memory_kb() - before < GROWTH_KB
        assert received.digest() == sent.digest()


def test_rows_larger_than_any_buffer(start_pooler, pg, table):
    pooler = start_pooler(pg)
    rows = [(n, "x" * (n * 700_001)) for n in range(1, 12)]
    with pooler.connect() as db, db.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        sizes = "SELECT n::text, length(t)::text FROM copied ORDER BY copied.n"
        with cursor.copy(f"COPY ({sizes}) TO STDOUT") as copy:
            assert [(int(n), int(size)) for n, size in copy.rows()] == [(n, len(t)) for n, t in rows]


def test_copies_side_by_side(start_pooler, pg, table, workers):
    """More clients copy in and out than there are servers."""
    pooler = start_pooler(pg, default_pool_size=3, workers=workers)
    problems = []

    def copy_both_ways(who):
        try:
            with pooler.connect() as db, db.cursor() as cursor:
                with cursor.copy("COPY copied FROM STDIN") as copy:
                    for n in range(2000):
                        copy.write_row((who, f"{who}:{n}"))
                with cursor.copy(f"COPY (SELECT t FROM copied WHERE n = {who}) TO STDOUT") as copy:
                    seen = {row[0] for row in copy.rows()}
                if seen != {f"{who}:{n}" for n in range(2000)}:
                    problems.append((who, len(seen)))
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    threads = [threading.Thread(target=copy_both_ways, args=(who,)) for who in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert pg.value("SELECT count(*) FROM copied", dbname="app") == 20000


def test_a_client_that_stops_sending_blocks_no_other(start_pooler, pg, table):
    pooler = start_pooler(pg, default_pool_size=2)
    copying = pooler.raw()
    copying.send(query("COPY copied FROM STDIN"))
    copying.expect("G")
    copying.send(copy_data(b"1\ta\n"))
    with pooler.raw() as other:
        for _ in range(10):
            assert other.value("SELECT 1") == "1"
    copying.send(COPY_DONE)
    assert wire.kinds(copying.until_ready()) == "CZ"


# -- drivers


def test_psycopg_errors(start_pooler, pg, table):
    pooler = start_pooler(pg)
    with pooler.connect() as db, db.cursor() as cursor:
        with pytest.raises(psycopg.errors.QueryCanceled), cursor.copy("COPY copied FROM STDIN") as copy:
            copy.write("1\ta\n")
            raise psycopg.errors.QueryCanceled("by the program")
        assert db.execute("SELECT count(*) FROM copied").fetchone() == (0,)
        bad = pytest.raises(psycopg.errors.InvalidTextRepresentation)
        with bad, cursor.copy("COPY copied FROM STDIN") as copy:
            copy.write("x\ta\n" * 10_000)
        assert db.execute("SELECT count(*) FROM copied").fetchone() == (0,)


def test_asyncpg(start_pooler, pg, table):
    pooler = start_pooler(pg, pool_mode="session")

    async def work():
        db = await asyncpg.connect(host=pooler.host, port=pooler.port, user="trusty", database="app",
                                   statement_cache_size=0)
        rows = [(n, "t" * 100) for n in range(5000)]
        assert await db.copy_records_to_table("copied", records=rows) == "COPY 5000"
        out = io.BytesIO()
        await db.copy_from_table("copied", output=out)
        assert out.getvalue().count(b"\n") == 5000
        with pytest.raises(asyncpg.PostgresError):
            await db.copy_to_table("copied", source=io.BytesIO(b"bad\n"))
        assert await db.fetchval("SELECT count(*) FROM copied") == 5000
        await db.close()

    asyncio.run(work())


def test_psql_copy(start_pooler, pg, table, folder):
    pooler = start_pooler(pg)
    rows = folder / "rows.csv"
    rows.write_text("".join(f'{n},"line {n}"\n' for n in range(1000)))
    back = folder / "back.csv"
    script = (f"\\copy copied FROM '{rows}' CSV\n"
              f"\\copy (TABLE copied ORDER BY n) TO '{back}' (FORMAT csv, FORCE_QUOTE (t))\n")
    done = subprocess.run([pg.binaries.path("psql"), "-X", "-v", "ON_ERROR_STOP=1",
                           f"host={pooler.host} port={pooler.port} user=trusty dbname=app"],
                          input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert back.read_text() == rows.read_text()
