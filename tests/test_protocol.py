"""Messages under load: clients receive the same messages through the pooler as from PostgreSQL."""

import asyncio
import itertools
import random
import subprocess
import threading
import time

import asyncpg
import psycopg
import pytest

import rawclient as wire
from rawclient import FLUSH, SYNC, LoginRefused, bind, describe, execute, parse, query

MEGABYTE = 1 << 20
# The largest growth of the pooler's memory, whatever clients and servers send.
GROWTH_KB = 8 << 10


# -- the same messages with and without the pooler

NOTICE = "DO $$ BEGIN RAISE NOTICE 'look %', 1; END $$"
INSERT = "INSERT INTO t VALUES ($1)"
ADD, DIVIDE = 177, 154  # int4pl, int4div


def number(n):
    return n.to_bytes(4, "big")


# name: steps of (what to send, kinds of message that end the answer)
SCRIPTS = {
    "simple": [(query("SELECT 1, NULL, 'ä'"), "Z")],
    "empty": [(query(""), "Z"), (query(" ; ;; "), "Z"), (query("-- nothing"), "Z")],
    "several statements": [(query("SELECT 1; SELECT 2; SET datestyle = ISO; SELECT 3"), "Z")],
    "several with an error": [(query("SELECT 1; SELECT 1/0; SELECT 3"), "Z")],
    "syntax error": [(query("SELEKT 1"), "Z"), (query("SELECT 1"), "Z")],
    "transaction": [(query("BEGIN"), "Z"), (query("SELECT 1"), "Z"), (query("COMMIT"), "Z")],
    "transaction in one query": [(query("BEGIN; SELECT 1; COMMIT; SELECT 2"), "Z")],
    "failed transaction": [
        (query("BEGIN"), "Z"), (query("SELECT 1/0"), "Z"), (query("SELECT 2"), "Z"),
        (query("COMMIT"), "Z")],
    "savepoint": [
        (query("BEGIN; SAVEPOINT a"), "Z"), (query("SELECT 1/0"), "Z"),
        (query("ROLLBACK TO a"), "Z"), (query("SELECT 1"), "Z"), (query("COMMIT"), "Z")],
    "notice": [(query(NOTICE), "Z"), (query("SELECT 1;" + NOTICE + "; SELECT 2"), "Z")],
    "pipelined queries": [
        (query("SELECT 1") + query("SELECT 1/0") + query("SELECT 3") + query(""), "ZZZZ")],
    "pipelined transaction": [
        (query("BEGIN") + query("SELECT 1") + query("ROLLBACK") + query("SELECT 2"), "ZZZZ")],
    "parse and run": [
        (parse("SELECT $1::text || $2::text") + bind(["a", "b"]) + describe() + execute() + SYNC,
         "Z")],
    "null and empty": [(parse("SELECT $1::text, $2::text") + bind([None, ""]) + execute() + SYNC, "Z")],
    "describe statement": [(parse("SELECT $1::int, now()") + describe("S") + SYNC, "Z")],
    "no result": [(parse("SET datestyle = ISO") + bind() + describe() + execute() + SYNC, "Z")],
    "empty statement": [(parse("") + bind() + describe() + execute() + SYNC, "Z")],
    "error in parse": [(parse("SELEKT") + bind() + describe() + execute() + SYNC, "Z")],
    "error in bind": [(parse("SELECT $1::int") + bind(["x"]) + describe() + execute() + SYNC, "Z")],
    "error in execute": [(parse("SELECT 1/$1::int") + bind([0]) + execute() + SYNC, "Z")],
    "unknown names": [
        (bind(name="nobody") + SYNC, "Z"), (describe("S", "nobody") + SYNC, "Z"),
        (execute(portal="nobody") + SYNC, "Z"), (wire.close("S", "nobody") + SYNC, "Z")],
    "row limit": [
        (parse("SELECT n FROM generate_series(1, 10) n") + bind() + describe() + execute(3)
         + execute(3) + execute() + SYNC, "Z")],
    "row limit with flush": [
        (query("BEGIN"), "Z"),
        (parse("SELECT n FROM generate_series(1, 5) n") + bind(portal="p") + execute(2, "p")
         + FLUSH, "s"),
        (execute(2, "p") + FLUSH, "s"), (execute(2, "p") + FLUSH, "C"),
        (SYNC, "Z"), (query("COMMIT"), "Z")],
    "flush step by step": [
        (parse("SELECT $1::int") + FLUSH, "1"), (bind([7]) + FLUSH, "2"),
        (describe() + FLUSH, "T"), (execute() + FLUSH, "C"), (SYNC, "Z")],
    "flush alone": [(FLUSH + query("SELECT 1"), "Z")],
    "sync alone": [(SYNC, "Z"), (SYNC + SYNC + SYNC, "ZZZ")],
    "several syncs": [
        (wire.extended("SELECT 1") + SYNC + wire.extended("SELECT 1/0") + SYNC
         + wire.extended("SELECT 3") + SYNC, "ZZZ")],
    "error skips to the sync": [
        (wire.extended("SELECT 1") + wire.extended("SELECT 1/0") + wire.extended("SELECT 3")
         + FLUSH + SYNC + wire.extended("SELECT 4") + SYNC, "ZZ")],
    "error undoes the pipeline": [
        (query("CREATE TEMP TABLE t (n int) ON COMMIT DELETE ROWS"), "Z"),
        (parse(INSERT) + bind([1]) + execute() + parse(INSERT) + bind(["x"]) + execute() + SYNC, "Z"),
        (query("SELECT count(*) FROM t"), "Z"), (query("DROP TABLE t"), "Z")],
    "transaction over syncs": [
        (wire.extended("BEGIN") + SYNC + wire.extended("SELECT 1") + SYNC
         + wire.extended("SELECT 1/0") + SYNC + wire.extended("SELECT 2") + SYNC
         + wire.extended("ROLLBACK") + SYNC, "ZZZZZ")],
    "query between extended messages": [
        (parse("SELECT 1") + bind() + query("SELECT 2") + execute() + SYNC, "ZZ")],
    "named statement in one go": [
        (parse("SELECT $1::int + 1", "s1") + bind([1], "p1", "s1") + execute(portal="p1")
         + bind([2], "p1x", "s1") + execute(portal="p1x") + wire.close("P", "p1")
         + wire.close("S", "s1") + SYNC, "Z")],
    "function call": [(wire.function_call(ADD, [number(40), number(2)]), "Z")],
    "function call fails": [
        (wire.function_call(DIVIDE, [number(1), number(0)]), "Z"),
        (wire.function_call(999_999, []) + query("SELECT 1"), "ZZ")],
    "function call in a transaction": [
        (query("BEGIN") + wire.function_call(ADD, [number(1), number(2)]) + query("COMMIT"), "ZZZ")],
    "copy messages outside of copy": [
        (wire.copy_data(b"x") + wire.COPY_DONE + wire.copy_fail("y") + query("SELECT 1"), "Z")],
    "parameter changes": [
        (query("SET application_name = 'x'; SET TimeZone = 'Asia/Tokyo'"), "Z"),
        (query("SHOW TimeZone"), "Z"), (query("RESET TimeZone; RESET application_name"), "Z")],
    "long row": [(query("SELECT repeat('x', 300000), 'end'"), "Z")],
    "long query": [(query("SELECT '" + "y" * 300_000 + "'"), "Z")],
    "long parameter": [(parse("SELECT md5($1)") + bind(["z" * 300_000]) + execute() + SYNC, "Z")],
    "many small rows": [(query("SELECT n, n * 2 FROM generate_series(1, 20000) n"), "Z")],
}


def play_in_pieces(client, steps, chunk):
    """Returns the replies to the steps of a script that is sent in pieces of `chunk` bytes."""
    return [(m.kind, m.body) for sent, ends in steps for m in client.play(sent, ends, chunk)]


def sorted_parameters(messages):
    """The same, with ParameterStatus messages that follow each other in the order of their names: in transaction mode
    theirs is not PostgreSQL's."""
    runs = itertools.groupby(messages, lambda message: message[0] == "S")
    return [message for is_status, run in runs for message in (sorted(run) if is_status else run)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_postgresql(pooler, pg, name):
    steps = SCRIPTS[name]
    total = sum(len(sent) for sent, _ in steps)
    with pg.raw() as direct:
        expected = sorted_parameters(play_in_pieces(direct, steps, 1 << 20))
    for chunk in (1 << 20, 4096, 7, 1):
        if total // chunk > 2000:
            continue
        with pooler.raw() as client:
            got = sorted_parameters(play_in_pieces(client, steps, chunk))
            assert got == expected, f"in pieces of {chunk} bytes"
            assert client.value("SELECT 'still here'") == "still here"


def test_same_as_postgresql_in_session_mode(start_pooler, pg):
    """One client plays all scripts in a row."""
    pooler = start_pooler(pg, pool_mode="session")
    with pg.raw() as direct, pooler.raw() as client:
        for name, steps in SCRIPTS.items():
            assert play_in_pieces(client, steps, 4096) == play_in_pieces(direct, steps, 4096), name


def test_notifications_in_session_mode(start_pooler, pg):
    pooler = start_pooler(pg, pool_mode="session")
    listener, speaker = pooler.raw(), pooler.raw()
    listener.query("LISTEN chat")
    speaker.query("NOTIFY chat, 'hello'")
    (message,) = listener.expect("A")
    assert message.body[4:] == b"chat\0hello\0"
    assert listener.value("SELECT 1") == "1"


# -- many clients


def test_answers_go_to_those_who_asked(start_pooler, pg, workers):
    """Pipelines of random shape by many clients on few servers."""
    pooler = start_pooler(pg, default_pool_size=3, workers=workers)
    problems = []

    def ask(seed):
        dice = random.Random(seed)
        try:
            with pooler.raw() as client:
                for turn in range(25):
                    marks = [f"{seed}-{turn}-{n}" for n in range(dice.randint(1, 12))]
                    sent, expected = [], []
                    for mark in marks:
                        part, answer = question(dice, mark)
                        sent.append(part)
                        expected.append(answer)
                    client.send(*sent)
                    for answer in expected:
                        messages = client.until_ready()
                        heard = [r[0] for r in wire.rows(messages)] or wire.errors(messages)[0][1:]
                        if list(heard) != [answer]:
                            problems.append((answer, heard))
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def question(dice, mark):
    """Bytes that end in one ReadyForQuery, and the value or error that they give."""
    kind = dice.choice(["simple", "extended", "flushed", "error", "extended error"])
    if kind == "simple":
        return query(f"SELECT '{mark}'"), mark
    if kind == "extended":
        return parse("SELECT $1::text") + bind([mark]) + execute() + SYNC, mark
    if kind == "flushed":
        return parse("SELECT $1::text") + FLUSH + bind([mark]) + execute() + FLUSH + SYNC, mark
    words = f'relation "{mark}" does not exist'
    if kind == "error":
        return query(f'SELECT 1 FROM "{mark}"'), words
    return wire.extended(f'SELECT 1 FROM "{mark}"') + wire.extended("SELECT 'no'") + SYNC, words


# -- memory is bounded


@pytest.fixture
def warm(start_pooler, newest_pg, workers):
    """A pooler that has already done work of each kind, and its memory after that."""
    pooler = start_pooler(newest_pg, workers=workers)
    for _ in range(4):
        with pooler.raw() as client:
            client.query(f"SELECT repeat('x', {MEGABYTE})")
            client.query("SELECT '" + "x" * MEGABYTE + "'")
    return pooler


def check_growth(pooler, before, what):
    growth = pooler.memory_kb() - before
    assert growth < GROWTH_KB, f"{what}: {growth} kB more"


def test_64_megabyte_row(warm):
    before = warm.memory_kb()
    with warm.raw(timeout=60) as client:
        client.send(query(f"SELECT repeat('x', {64 * MEGABYTE})"))
        client.expect("T")
        kind, size = client.read_exactly(1), int.from_bytes(client.read_exactly(4), "big")
        assert (kind, size) == (b"D", 64 * MEGABYTE + 4 + 2 + 4)
        left = size - 4
        while left:
            left -= len(client.read_exactly(min(left, MEGABYTE)))
            check_growth(warm, before, "in the row")
        client.expect("CZ")
        assert client.value("SELECT 1") == "1"


def test_64_megabyte_parameter(warm):
    before = warm.memory_kb()
    with warm.raw(timeout=60) as client:
        value = b"x" * (64 * MEGABYTE)
        client.send(parse("SELECT length($1)"), bind([value]))
        check_growth(warm, before, "in the parameter")
        client.send(execute(), SYNC)
        assert wire.value(client.until_ready()) == str(len(value))
    check_growth(warm, before, "after the parameter")


def test_slow_reader(warm):
    """Rows that a client does not read wait in PostgreSQL, not in the pooler. Other clients are served meanwhile."""
    before = warm.memory_kb()
    slow = warm.raw(timeout=60)
    slow.send(query("SELECT repeat('x', 10000) FROM generate_series(1, 20000)"))
    with warm.raw() as other:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert other.value("SELECT 1") == "1"
            check_growth(warm, before, "while nobody reads")
    slow.expect("T")
    for _ in range(20000):
        assert len(slow.read().body) == 2 + 4 + 10000
    slow.expect("CZ")
    check_growth(warm, before, "after the rows")


def test_client_that_sends_without_reading(warm):
    """A client sends without reading: at some point pgweir stops reading from it, and memory stays bounded."""
    before = warm.memory_kb()
    client = warm.raw(timeout=60)
    batch = query("SELECT repeat('x', 10000) -- " + "y" * 10000) * 100
    count, blocked, rest = 0, False, b""
    client.sock.settimeout(1)
    while not blocked:
        try:
            sent = client.sock.send(rest or batch)
            rest = (rest or batch)[sent:]
            count += not rest
        except TimeoutError:
            blocked = True
        assert count < 100, "somebody buffers without bounds"
    check_growth(warm, before, "while nobody reads")
    with warm.raw() as other:
        assert other.value("SELECT 1") == "1"
    client.sock.settimeout(60)
    finish = threading.Thread(target=client.send, args=(rest,))
    finish.start()
    for _ in range(100 * (count + bool(rest))):
        assert len(wire.value(client.until_ready())) == 10000
    finish.join()


# -- the first packets


@pytest.mark.parametrize("requests", [[wire.SSL], [wire.GSSENC], [wire.GSSENC, wire.SSL],
                                      [wire.SSL, wire.GSSENC]])
def test_encryption_is_declined(pooler, requests):
    client = pooler.socket()
    for code in requests:
        client.send(wire.u32(8) + wire.u32(code))
        assert client.read_exactly(1) == b"N"
    client.login("trusty", "app")
    assert client.value("SELECT 1") == "1"


@pytest.mark.pgweir_only("speaks 3.0 alone")
def test_protocol_3_2(pooler):
    client = pooler.socket()
    client.login("trusty", "app", version=wire.PROTOCOL_3_2)
    assert "v" not in wire.kinds(client.login_messages)
    assert 4 <= len(client.secret) <= 256
    assert client.value("SELECT 1") == "1"


@pytest.mark.pgweir_only("does not negotiate")
@pytest.mark.parametrize(("version", "options", "offered"), [
    ((3 << 16) | 9, {}, 2),
    ((3 << 16) | 9, {"_pq_.some": "1", "_pq_.other": "x"}, 2),
    (wire.PROTOCOL_3_2, {"_pq_.some": "1"}, 2),
    (wire.PROTOCOL_3_0, {"_pq_.some": "1"}, 0),
])
def test_negotiation(pooler, version, options, offered):
    client = pooler.socket()
    client.login("trusty", "app", version=version, **options)
    (message,) = [m for m in client.login_messages if m.kind == "v"]
    assert wire.kinds(client.login_messages).startswith("v")
    assert int.from_bytes(message.body[2:4], "big") == offered
    assert int.from_bytes(message.body[4:8], "big") == len(options)
    assert message.body[8:].split(b"\0")[:-1] == [name.encode() for name in options]
    assert client.value("SELECT 1") == "1"


@pytest.mark.parametrize("version", [2 << 16, 4 << 16, (1 << 16) | 2])
def test_other_protocols_are_refused(pooler, version):
    with pooler.socket() as client, pytest.raises(LoginRefused) as refused:
        client.login("trusty", "app", version=version)
    assert refused.value.sqlstate in ("08P01", "0A000")


@pytest.mark.pgweir_only("refuses a startup packet in pieces")
def test_startup_in_pieces(pooler):
    client = pooler.socket()
    for byte in wire.startup(user="trusty", database="app", application_name="slowly"):
        client.send(bytes([byte]))
    client.finish_login("trusty")
    assert client.value("SHOW application_name") == "slowly"


def test_queries_right_behind_the_startup_packet(pooler):
    """A client that needs no password may send queries right after its startup packet."""
    client = pooler.socket()
    client.send(wire.startup(user="trusty", database="app"), query("SELECT 1"), query("SELECT 2"))
    client.finish_login("trusty")
    assert [wire.value(client.until_ready()) for _ in range(2)] == ["1", "2"]


# -- drivers


def test_psycopg(pooler):
    with pooler.connect() as db:
        notices = []
        db.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        db.execute(NOTICE)
        assert notices == ["look 1"]
        with db.transaction():
            db.execute("CREATE TEMP TABLE t (n int, s text) ON COMMIT DROP")
            with db.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(n, "ä") for n in range(100)])
            with db.cursor("named") as cursor:
                cursor.itersize = 7
                cursor.execute("SELECT n FROM t ORDER BY n")
                assert [n for (n,) in cursor] == list(range(100))
        with pytest.raises(psycopg.errors.UndefinedTable):
            db.execute("SELECT * FROM t")
        assert db.execute("SELECT %b::bytea", (b"\0\xff" * 50_000,)).fetchone()[0] == b"\0\xff" * 50_000


def test_psycopg_pipeline(pooler):
    with pooler.connect() as db:
        with db.pipeline() as pipeline:
            cursors = [db.execute("SELECT %s::int", (n,)) for n in range(200)]
            pipeline.sync()
            assert [c.fetchone()[0] for c in cursors] == list(range(200))
        with pytest.raises(psycopg.errors.DivisionByZero), db.pipeline():
            db.execute("SELECT 1")
            db.execute("SELECT 1 / %s", (0,))
            db.execute("SELECT 2")
        assert db.execute("SELECT 3").fetchone() == (3,)


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_asyncpg(start_pooler, pg, mode):
    pooler = start_pooler(pg, pool_mode=mode)

    async def work():
        db = await asyncpg.connect(host=pooler.host, port=pooler.port, user="trusty", database="app",
                                   statement_cache_size=0)
        async with db.transaction():
            await db.execute("CREATE TEMP TABLE t (n int, s text) ON COMMIT DROP")
            await db.executemany("INSERT INTO t VALUES ($1, $2)", [(n, "ö") for n in range(100)])
            assert await db.fetchval("SELECT sum(n) FROM t WHERE s = $1", "ö") == 4950
            assert len([row async for row in db.cursor("SELECT * FROM t", prefetch=7)]) == 100
        async with db.transaction():
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with db.transaction():
                    await db.fetchval("SELECT 1 / $1::int", 0)
            assert await db.fetchval("SELECT $1::int", 5) == 5
        await db.close()

    asyncio.run(work())


def test_psql(pooler, pg):
    script = """
        \\set ON_ERROR_STOP off
        SELECT 1 AS one \\; SELECT 2 AS two;
        SELECT 1/0;
        BEGIN; SELECT 3 AS three; COMMIT;
        \\d pg_class
        SELECT $1::int + 4 AS bound \\bind 3 \\g
        \\echo done
    """
    if pg.version < 16:  # psql has no \\bind
        script = script.replace("SELECT $1::int + 4 AS bound \\bind 3 \\g", "SELECT 7 AS bound;")
    psql = pg.binaries.path("psql")
    done = subprocess.run([psql, "-X", "-A", "-t", f"host={pooler.host} port={pooler.port}"
                           " user=trusty dbname=app"], input=script, capture_output=True, text=True,
                          timeout=60)
    assert "division by zero" in done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in "1237"] == ["1", "2", "3", "7"]
    assert lines[-1] == "done"
    assert any(line.startswith("relname|name") for line in lines)
