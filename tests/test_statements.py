"""Prepared statements of several clients on few servers: each client receives the same answers as on a server of its
own.
"""

import random
import re
import threading

import pytest

import machine
import rawclient as wire
from rawclient import FLUSH, SYNC, bind, close, describe, execute, parse, query, run

INT4, TEXT = 23, 25


def say(text):
    """A statement whose answers contain its name."""
    return f"SELECT '{text}: ' || $1::text"


BEGIN, COMMIT, ROLLBACK = query("BEGIN"), query("COMMIT"), query("ROLLBACK")

# name: steps of (which client, what it sends, kinds of message that end the answer)
SCRIPTS = {
    "one name, two texts": [
        ("a", parse(say("A"), "s") + SYNC, "Z"), ("b", parse(say("B"), "s") + SYNC, "Z"),
        ("a", run("s", 1) + SYNC, "Z"), ("b", run("s", 2) + SYNC, "Z"),
        ("b", run("s", 3) + SYNC, "Z"), ("a", run("s", 4) + SYNC, "Z")],
    "two names, one text": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("b", parse(say("X"), "t") + SYNC, "Z"),
        ("b", run("t", 1) + SYNC + run("s", 1) + SYNC, "ZZ"), ("a", run("s", 2) + SYNC, "Z"),
        ("a", close("S", "s") + SYNC, "Z"), ("b", run("t", 3) + SYNC, "Z"),
        ("a", run("s", 4) + SYNC, "Z")],
    "names swapped": [
        ("a", parse(say("X"), "s") + parse(say("Y"), "t") + SYNC, "Z"),
        ("b", parse(say("X"), "t") + parse(say("Y"), "s") + SYNC, "Z"),
        ("a", run("s", 1) + run("t", 1) + SYNC, "Z"), ("b", run("s", 2) + run("t", 2) + SYNC, "Z")],
    "a name twice": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("a", parse(say("Y"), "s") + SYNC, "Z"),
        ("a", run("s", 1) + SYNC, "Z"), ("a", parse(say("X"), "s") + SYNC, "Z"),
        ("a", run("s", 2) + SYNC, "Z")],
    "a name twice in a pipeline": [
        ("a", parse(say("X"), "s") + run("s", 1) + parse(say("Y"), "s") + run("s", 2) + SYNC
         + run("s", 3) + SYNC, "ZZ")],
    "a name twice in a transaction": [
        ("a", BEGIN + parse(say("X"), "s") + SYNC + parse(say("X"), "s") + SYNC
         + run("s", 3) + SYNC + ROLLBACK + run("s", 4) + SYNC, "ZZZZZZ")],
    "close and parse again": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("b", run("s", 0) + SYNC, "Z"),
        ("a", close("S", "s") + SYNC, "Z"), ("a", run("s", 1) + SYNC, "Z"),
        ("a", parse(say("Y"), "s") + run("s", 2) + SYNC, "Z"),
        ("a", close("S", "s") + parse(say("Z"), "s") + run("s", 3) + close("S", "s")
         + parse(say("X"), "s") + run("s", 4) + SYNC, "Z"),
        ("a", run("s", 5) + SYNC, "Z")],
    "close of what is not there": [
        ("a", close("S", "none") + SYNC, "Z"), ("a", close("S", "") + SYNC, "Z"),
        ("a", close("P", "none") + SYNC, "Z"),
        ("a", close("S", "none") + close("S", "none") + wire.extended("SELECT 1") + SYNC, "Z")],
    "unknown names": [
        ("a", run("none", 1) + SYNC, "Z"), ("a", describe("S", "none") + SYNC, "Z"),
        ("a", wire.extended("SELECT 1") + run("none") + wire.extended("SELECT 2") + SYNC, "Z"),
        ("a", run("none", 1) + SYNC + wire.extended("SELECT 3") + SYNC, "ZZ"),
        ("a", BEGIN + run("none", 1) + SYNC + query("SELECT 4") + ROLLBACK, "ZZZZ"),
        ("a", run("none") + FLUSH, "E"), ("a", wire.extended("SELECT 5") + SYNC, "Z")],
    "another client's name": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("b", run("s", 1) + SYNC, "Z"),
        ("b", describe("S", "s") + SYNC, "Z"), ("b", close("S", "s") + SYNC, "Z"),
        ("a", run("s", 1) + SYNC, "Z")],
    "describe": [
        ("a", parse("SELECT $1::int, $2::date AS day", "s", [INT4]) + describe("S", "s") + SYNC, "Z"),
        ("b", query("SELECT 1"), "Z"), ("a", describe("S", "s") + SYNC, "Z"),
        ("b", parse("SET datestyle = ISO", "s") + describe("S", "s") + SYNC, "Z"),
        ("a", describe("S", "s") + run("s", 1, "2020-02-02") + SYNC, "Z"),
        ("a", bind([2, None], "p", "s") + describe("P", "p") + execute(portal="p") + SYNC, "Z")],
    "types are part of a statement": [
        ("a", parse("SELECT $1", "s", [INT4]) + SYNC, "Z"), ("b", parse("SELECT $1", "s") + SYNC, "Z"),
        ("a", describe("S", "s") + SYNC, "Z"), ("b", describe("S", "s") + SYNC, "Z"),
        ("a", parse("SELECT $1", "t", [TEXT]) + parse("SELECT $1", "u", [0])
         + describe("S", "t") + describe("S", "u") + SYNC, "Z"),
        ("b", run("s", "x") + SYNC, "Z"), ("a", run("s", "x") + SYNC, "Z"),
        ("a", run("s", 3) + SYNC, "Z")],
    "syntax error": [
        ("a", parse("SELEKT $1", "s") + SYNC, "Z"), ("a", run("s", 1) + SYNC, "Z"),
        ("b", parse("SELEKT $1", "s") + SYNC, "Z"), ("a", parse("SELEKT $1", "s") + SYNC, "Z"),
        ("a", parse(say("X"), "s") + run("s", 1) + SYNC, "Z"),
        ("b", parse(say("Y"), "s") + run("s", 2) + SYNC, "Z")],
    "syntax error in a pipeline": [
        ("a", parse(say("X"), "s") + run("s", 1) + parse("SELEKT", "t") + run("s", 2)
         + parse(say("Y"), "u") + run("t") + SYNC + run("u", 3) + SYNC + run("s", 4) + SYNC, "ZZZ")],
    "error in an earlier part of what is sent": [
        ("b", query("SELECT 1"), "Z"), ("a", parse(say("X"), "s") + SYNC, "Z"),
        ("b", b"".join(parse(say(n), f"s{n}") for n in range(3)) + SYNC, "Z"),
        ("a", wire.extended("SELECT 1/0") + run("s", 1) + SYNC + run("s", 2) + SYNC, "ZZ"),
        ("a", run("s", 3) + SYNC, "Z"),
        ("a", parse("SELEKT", "t") + SYNC + parse(say("Y"), "t") + run("t", 4) + SYNC + run("t", 5) + SYNC,
         "ZZZ"),
        ("a", wire.extended("SELECT 1/0") + close("S", "t") + SYNC + run("t", 6) + SYNC, "ZZ"),
        ("a", run("t", 7) + run("s", 8) + SYNC, "Z")],
    "what an error skips is not done": [
        ("a", parse(say("X"), "s") + SYNC, "Z"),
        ("a", wire.extended("SELECT 1/0") + close("S", "s") + parse(say("Y"), "t") + SYNC, "Z"),
        ("a", run("s", 1) + SYNC, "Z"), ("a", run("t", 1) + SYNC, "Z"),
        ("a", parse(say("Z"), "t") + run("t", 2) + SYNC, "Z")],
    "missing table that comes later": [
        ("a", parse("SELECT * FROM later", "s") + SYNC, "Z"),
        ("a", query("CREATE TEMP TABLE later (n int)"), "Z"),
        ("a", parse("SELECT * FROM later", "s") + run("s") + SYNC, "Z"),
        ("a", close("S", "s") + SYNC, "Z"), ("a", query("DROP TABLE later"), "Z")],
    "not part of the transaction": [
        ("a", BEGIN + parse(say("X"), "s") + SYNC + ROLLBACK, "ZZZ"), ("b", query("SELECT 1"), "Z"),
        ("a", run("s", 1) + SYNC, "Z"),
        ("a", BEGIN + close("S", "s") + SYNC + ROLLBACK + run("s", 2) + SYNC, "ZZZZ")],
    "in a failed transaction": [
        ("a", parse(say("X"), "s") + parse("ROLLBACK", "undo") + SYNC, "Z"),
        ("b", query("SELECT 1"), "Z"),
        ("a", BEGIN + query("SELECT 1/0"), "ZZ"), ("a", run("s", 1) + SYNC, "Z"),
        ("a", describe("S", "s") + SYNC, "Z"), ("a", parse(say("Y"), "t") + SYNC, "Z"),
        ("a", run("none") + SYNC, "Z"), ("a", run("undo") + SYNC, "Z"), ("a", run("s", 2) + SYNC, "Z"),
        ("a", run("t", 3) + SYNC, "Z")],
    "errors while it runs": [
        ("a", parse("SELECT 10 / $1::int", "s") + SYNC, "Z"), ("a", run("s", 0) + SYNC, "Z"),
        ("a", run("s", "x") + SYNC, "Z"), ("a", run("s") + SYNC, "Z"), ("a", run("s", 5) + SYNC, "Z")],
    "portals": [
        ("a", parse("SELECT n FROM generate_series(1, $1::int) n", "s") + SYNC, "Z"),
        ("a", BEGIN, "Z"),
        ("a", bind([5], "p", "s") + bind([4], "q", "s") + execute(2, "p") + FLUSH, "s"),
        ("a", execute(3, "q") + FLUSH, "s"), ("a", close("S", "s") + execute(2, "p") + FLUSH, "s"),
        ("a", execute(0, "p") + execute(0, "q") + SYNC, "Z"), ("a", COMMIT, "Z")],
    "step by step": [
        ("a", parse(say("X"), "s") + FLUSH, "1"), ("a", describe("S", "s") + FLUSH, "T"),
        ("a", bind([7], name="s") + FLUSH, "2"), ("a", execute() + FLUSH, "C"), ("a", SYNC, "Z"),
        ("a", bind([7], name="s") + FLUSH, "2"), ("a", execute() + FLUSH, "C"),
        ("a", close("S", "s") + FLUSH, "3"), ("a", SYNC, "Z")],
    "queries between": [
        ("a", parse(say("X"), "s") + query("SELECT 1") + run("s", 2) + SYNC, "ZZ"),
        ("a", query("SELECT 3") + run("s", 4) + SYNC + query("SELECT 5") + run("s", 6) + SYNC, "ZZZZ")],
    "deallocate all": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("b", parse(say("X"), "s") + SYNC, "Z"),
        ("a", query("DEALLOCATE ALL"), "Z"), ("a", run("s", 1) + SYNC, "Z"),
        ("b", run("s", 2) + SYNC, "Z"), ("a", parse(say("Y"), "s") + run("s", 3) + SYNC, "Z"),
        ("b", wire.extended("DEALLOCATE ALL") + SYNC, "Z"), ("b", run("s", 4) + SYNC, "Z"),
        ("a", run("s", 5) + SYNC, "Z")],
    "discard all": [
        ("a", parse(say("X"), "s") + SYNC, "Z"), ("b", parse(say("X"), "s") + SYNC, "Z"),
        ("a", query("DISCARD ALL"), "Z"), ("a", run("s", 1) + SYNC, "Z"),
        ("b", run("s", 2) + SYNC, "Z"), ("a", parse(say("X"), "s") + run("s", 3) + SYNC, "Z")],
    "empty and odd texts": [
        ("a", parse("", "s") + describe("S", "s") + run("s") + SYNC, "Z"),
        ("a", parse("  ", "t") + run("t") + SYNC, "Z"), ("a", parse("SELECT 1; SELECT 2", "u") + SYNC, "Z"),
        ("a", parse("SELECT 'ä', $1::text -- ; 'x", "ß € '\"") + run("ß € '\"", "ö") + SYNC, "Z"),
        ("b", parse("", "t") + run("t") + run("s") + SYNC, "Z"), ("a", run("s") + run("t") + SYNC, "Z")],
    "unnamed beside named": [
        ("a", parse(say("X"), "s") + parse(say("U")) + run("", 1) + run("s", 2) + SYNC, "Z"),
        ("b", parse(say("V")) + run("", 3) + SYNC, "Z"), ("a", run("s", 4) + SYNC, "Z"),
        ("a", parse(say("X")) + run("", 5) + close("S", "") + run("", 6) + SYNC, "Z")],
    "long": [
        ("a", parse("SELECT $1::text, '" + "x" * 300_000 + "'", "n" * 9_000) + SYNC, "Z"),
        ("b", query("SELECT 1"), "Z"),
        ("a", run("n" * 9_000, "y" * 300_000) + SYNC, "Z"),
        ("a", close("S", "n" * 9_000) + run("n" * 9_000, 1) + SYNC, "Z")],
    "many": [
        ("a", b"".join(parse(say(n), f"s{n}") for n in range(300)) + SYNC, "Z"),
        ("b", b"".join(parse(say(n), f"s{299 - n}") + run(f"s{299 - n}", n) for n in range(300)) + SYNC, "Z"),
        ("b", run("s0", 0) + SYNC, "Z"),
        ("a", b"".join(run(f"s{n * 7 % 300}", n) for n in range(300)) + SYNC, "Z")],
    "copy": [
        ("a", parse("COPY (SELECT 1) TO STDOUT", "s") + SYNC, "Z"), ("b", query("SELECT 1"), "Z"),
        ("a", run("s") + SYNC, "Z"), ("a", run("s") + run("s") + SYNC, "Z")],
}


def comparable(message):
    """Returns the parts that are equal on two servers: of an error or notice its severity, SQLSTATE and message.

    In the server's message, a statement has the name that the pooler has given it.
    """
    if message.kind in "EN":
        words = re.sub(r'prepared statement "[^"]*"', "prepared statement", message.words)
        return message.kind, message.fields["S"], message.sqlstate, words
    return message.kind, message.body


def play_by_several(clients, steps, chunk=1 << 20):
    """Plays a script by several clients, in pieces of `chunk` bytes. Returns the replies to each step."""
    return [(who, [comparable(message) for message in clients[who].play(sent, ends, chunk)])
            for who, sent, ends in steps]


@pytest.fixture
def pair(pg):
    """Two clients with a server each."""
    with pg.raw() as a, pg.raw() as b:
        yield {"a": a, "b": b}


# A server that has a statement does not look its table up again.
TEMPORARY = "missing table that comes later"


@pytest.mark.pgweir_only("closes clients for their mistakes")
@pytest.mark.shows("max_prepared_statements")
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("most", [100, 2], ids=["roomy", "tight"])
def test_same_as_postgresql(start_pooler, pg, pair, name, most):
    """Two clients share one server: each receives the same answers as on a server of its own."""
    steps = SCRIPTS[name]
    expected = play_by_several(pair, steps)
    total = sum(len(sent) for _, sent, _ in steps)
    pooler = start_pooler(pg, default_pool_size=1, max_prepared_statements=most)
    for chunk in (1 << 20, 4096, 7, 1):
        if total // chunk > 2000 or (chunk < 1 << 20 and name == TEMPORARY):
            continue
        with pooler.raw() as a, pooler.raw() as b:
            heard = play_by_several({"a": a, "b": b}, steps, chunk)
            for want, got, step in zip(expected, heard, steps, strict=True):
                assert got == want, f"{step[0]} sent {step[1]!r:.200}, in pieces of {chunk} bytes"
            assert a.value("SELECT 'still here'") == b.value("SELECT 'still here'") == "still here"


@pytest.mark.pgweir_only("closes clients for their mistakes")
@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - {TEMPORARY}))
def test_another_server_each_time(start_pooler, newest_pg, name, workers):
    """The same, while the server of one step is busy at the next step."""
    with newest_pg.raw() as a, newest_pg.raw() as b:
        expected = play_by_several({"a": a, "b": b}, SCRIPTS[name])
    pooler = start_pooler(newest_pg, default_pool_size=2, max_prepared_statements=100, workers=workers)
    clients = {"a": pooler.raw(), "b": pooler.raw()}
    holder, free = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    idle = True
    for at, step in enumerate(SCRIPTS[name]):
        if idle:  # the server that was used last is taken, and the other one given free
            free.query("BEGIN")
            holder.query("COMMIT")
            holder, free = free, holder
        answer = play_by_several(clients, [step])
        assert answer == [expected[at]], f"step {at}"
        idle = answer[0][1][-1] == ("Z", b"I")


# -- statements on servers


def on_server(client):
    """Returns the names and texts of the statements on the only server."""
    messages = client.query("SELECT name, statement FROM pg_prepared_statements ORDER BY prepare_time")
    return wire.rows(messages)


@pytest.mark.shows("max_prepared_statements")
def test_texts_are_shared_on_a_server(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    clients = [pooler.raw() for _ in range(5)]
    for n, client in enumerate(clients):
        client.send(parse(say("X"), f"s{n}"), run(f"s{n}", n), SYNC)
        assert wire.value(client.until_ready()) == f"X: {n}"
    assert [text for _, text in on_server(clients[0])] == [say("X")]


@pytest.mark.shows("max_prepared_statements")
def test_limit_that_is_changed_by_reload(start_pooler, newest_pg):
    # The server that clients use shows its statements.
    pooler = start_pooler(newest_pg, default_pool_size=1, max_prepared_statements=10,
                          session_state="off")
    client = pooler.raw()
    client.send(*(parse(say(n), f"s{n}") for n in range(10)), SYNC)
    client.until_ready()
    assert len(on_server(client)) == 10
    pooler.settings["max_prepared_statements"] = 2
    pooler.write_files()
    pooler.console("RELOAD")
    client.send(parse(say("new"), "new"), run("new", 1), SYNC)
    assert wire.value(client.until_ready()) == "new: 1"
    machine.wait_until(lambda: len(on_server(client)) == 2, what="the rest is closed")
    client.send(run("s4", 4), SYNC)
    assert wire.value(client.until_ready()) == "4: 4"


@pytest.mark.parametrize("mode", ["session", "statement"])
def test_statements_in_other_pool_modes(start_pooler, pg, mode):
    pooler = start_pooler(pg, pool_mode=mode, default_pool_size=2)
    a, b = pooler.raw(), pooler.raw()
    for client, word in ((a, "A"), (b, "B")):
        client.send(parse(say(word), "s"), SYNC)
        assert wire.errors(client.until_ready()) == []
    for n in range(4):
        for client, word in ((a, "A"), (b, "B")):
            client.send(run("s", n), SYNC)
            assert wire.value(client.until_ready()) == f"{word}: {n}"
    if mode == "session":
        assert on_server(a) == [("s", say("A"))]


def test_server_that_dies(start_pooler, pg):
    """The next server gets the statements that it needs."""
    pooler = start_pooler(pg, default_pool_size=1)
    client = pooler.raw()
    client.send(parse(say("X"), "s"), run("s", 1), SYNC)
    client.until_ready()
    backend = int(client.value("SELECT pg_backend_pid()"))
    pg.value("SELECT pg_terminate_backend(%s)", backend)
    machine.wait_until(lambda: backend not in pg.backends(), what="the server is gone")
    client.send(run("s", 2), SYNC)
    assert wire.value(client.until_ready()) == "X: 2"


# A slow request, and another one that has to wait for the first one's result.
INSERT = parse("INSERT INTO slow SELECT $1::int FROM pg_sleep(0.5)", "s") + SYNC
SLOW = parse("SELECT 'made here'", "u") + run("s", 1) + SYNC
BEHIND = parse("SELECT count(*) FROM slow", "t") + run("s", 2) + SYNC + run("t") + SYNC


@pytest.fixture
def slow_client(start_pooler, newest_pg, workers):
    """A client that has sent both requests."""
    newest_pg.run("DROP TABLE IF EXISTS slow; CREATE TABLE slow (n int)", dbname="app")
    pooler = start_pooler(newest_pg, default_pool_size=2, workers=workers)
    client = pooler.raw()
    client.send(INSERT)
    client.until_ready()
    client.send(SLOW, BEHIND)
    machine.wait_until(lambda: newest_pg.backends("query LIKE 'INSERT INTO slow%' AND state = 'active'"),
                       what="it runs")
    return client


def test_requests_after_a_slow_one(slow_client):
    slow_client.send(query("SELECT 'last'"))
    answers = [wire.rows(slow_client.until_ready()) for _ in range(4)]
    assert answers == [[], [], [("2",)], [("last",)]]


@pytest.mark.pgweir_only("closes the client")
def test_server_that_dies_while_requests_wait(slow_client, newest_pg):
    """The waiting request was not sent to the lost server: another server runs it."""
    newest_pg.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE query LIKE 'INSERT INTO slow%' AND state = 'active'")
    assert [state for state, _ in wire.errors(slow_client.until_ready())] == ["57P01"]
    assert wire.errors(slow_client.until_ready()) == []
    assert wire.rows(slow_client.until_ready()) == [("1",)]


@pytest.mark.parametrize("end", [b"", wire.TERMINATE], ids=["fin", "terminate"])
def test_client_that_leaves_while_its_requests_wait(slow_client, newest_pg, end):
    """As with PostgreSQL, a request that was sent is executed."""
    slow_client.send(end)
    slow_client.close()
    machine.wait_until(lambda: newest_pg.value("SELECT count(*) FROM slow", dbname="app") == 2,
                       what="both are done")


def test_names_are_forgotten_with_their_client(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    for n in range(3):
        with pooler.raw() as client:
            client.send(parse(say(n), "s"), run("s", n), SYNC)
            assert wire.value(client.until_ready()) == f"{n}: {n}"


@pytest.mark.pgweir_only("runs whatever statement the server happens to have")
def test_unnamed_statement_is_the_clients_own(start_pooler, newest_pg):
    """A client that binds the unnamed statement gets its own, or an error; never another client's."""
    pooler = start_pooler(newest_pg, default_pool_size=1)
    a, b = pooler.raw(), pooler.raw()
    a.send(parse("SELECT 'secret of a'"), SYNC)
    a.until_ready()
    b.send(run(""), SYNC)
    messages = b.until_ready()
    assert wire.rows(messages) == []
    assert [state for state, _ in wire.errors(messages)] == ["26000"]
    b.send(parse("SELECT 'of b'"), SYNC)
    b.until_ready()
    a.send(run(""), SYNC)
    messages = a.until_ready()
    assert wire.rows(messages) in ([], [("secret of a",)])


# -- many clients


def test_texts_that_differ_in_one_byte(start_pooler, pg, workers):
    """Many clients at once use one name for texts that differ in one byte."""
    pooler = start_pooler(pg, default_pool_size=2, max_prepared_statements=30, workers=workers)
    base = "SELECT '" + "x" * 40 + "' || $1::text"
    clients, texts = [], []
    for at in range(8, 48):
        clients.append(pooler.raw())
        texts.append(base[:at] + "y" + base[at + 1 :])
        clients[-1].send(parse(texts[-1], "s"), SYNC)
    for client in clients:
        assert wire.errors(client.until_ready()) == []
    for turn in range(3):
        for client in clients:
            client.send(run("s", turn), SYNC)
        for client, text in zip(clients, texts, strict=True):
            assert wire.value(client.until_ready()) == text[8:48] + str(turn)


NAMES = ["a", "b", "S_1", ""]
TEXTS = [say(n) for n in range(8)] + [
    "SELECT 100 / $1::int", "SELECT $1", "SELEKT", "SELECT * FROM nothing_here", "SELECT 1 AS one",
    "", "SELECT n FROM generate_series(1, 3) n",
]


def random_batch(dice):
    """A batch of random messages in words and in bytes, and how often ReadyForQuery answers it."""
    words, sent, named = [], [], set()

    def say_and_send(said, message):
        words.append(said)
        sent.append(message)

    for _ in range(dice.randint(1, 6)):
        name, kind = dice.choice(NAMES), dice.random()
        if kind < 0.35:
            text, types = dice.choice(TEXTS), dice.choice([(), (), (TEXT,), (INT4,)])
            say_and_send(f"Parse {name!r} {text!r} {types}", parse(text, name, types))
            named.add(name)
        elif name == "" and name not in named:
            continue  # another test covers uses of an older unnamed statement
        elif kind < 0.75:
            values = [dice.randint(0, 3)] * dice.choice([1, 1, 1, 0])
            say_and_send(f"Bind, Execute {name!r} {values}", run(name, *values))
        elif kind < 0.85:
            say_and_send(f"Describe {name!r}", describe("S", name))
        elif kind < 0.95:
            say_and_send(f"Close {name!r}", close("S", name))
        else:
            say_and_send("Flush", FLUSH)
    say_and_send("Sync", SYNC)
    text = dice.choice(["BEGIN", "COMMIT", "ROLLBACK", "DEALLOCATE ALL", *[None] * 30])
    if text:
        say_and_send(text, query(text))
    return words, b"".join(sent), 1 + bool(text)


def are_same(heard, expected):
    """Returns whether two answers are the same. If a message has several faults, the pooler may report another one:
    that a name exists, or that nothing can be parsed in a failed transaction.
    """
    def one(message, other):
        return message == other or (other[0] == "E" and message[2:3] in [("42P05",), ("25P02",)])
    return len(heard) == len(expected) and all(map(one, heard, expected))


@pytest.mark.pgweir_only("closes clients for their mistakes")
@pytest.mark.parametrize("most", [100, 4])
def test_random_conversations(start_pooler, pg, workers, most):
    """Each client of the pooler receives the same answers as its twin with a direct connection."""
    pooler = start_pooler(pg, default_pool_size=3, workers=workers, max_prepared_statements=most)
    problems = []

    def talk(seed):
        dice = random.Random(seed)
        try:
            with pooler.raw() as client, pg.raw() as twin:
                for turn in range(60):
                    words, sent, readies = random_batch(dice)
                    heard = []
                    for one in (client, twin):
                        one.send(sent)
                        heard.append([comparable(message) for _ in range(readies)
                                      for message in one.until_ready()])
                    if not are_same(*heard):
                        problems.append(f"seed {seed}, turn {turn}: {words}\n  {heard[0]}\n  {heard[1]}")
                        return
                for one in (client, twin):
                    one.query("ROLLBACK")
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append((seed, error))

    threads = [threading.Thread(target=talk, args=(seed,)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(map(str, problems))


# -- memory


STATEMENTS = 1000


def number_of_clients(request):
    return 1000 if request.config.getoption("--full") else 220


@pytest.mark.pgweir_only("takes more")
def test_memory_of_a_thousand_statements(start_pooler, newest_pg, request, workers):
    """Texts are stored once; each client costs at most 4 kB for 1,000 statements beside them."""
    count = number_of_clients(request)
    pooler = start_pooler(newest_pg, default_pool_size=2, max_client_conn=count + 10, workers=workers,
                          max_prepared_statements=STATEMENTS,
                          catalog_check_interval=3600)  # which takes and gives back its own
    filler = "x" * 500
    texts = [f"SELECT '{filler} {n}: ' || $1::text" for n in range(STATEMENTS)]
    everything = b"".join(parse(text, f"S_{n}") for n, text in enumerate(texts)) + SYNC
    clients = [pooler.raw() for _ in range(count)]

    def prepare_all(client):
        client.send(everything)
        assert wire.kinds(client.until_ready()) == "1" * STATEMENTS + "Z"

    for client in clients:
        assert client.value("SELECT 1") == "1"
    first, rest = clients[:20], clients[20:]
    for client in first:  # the texts themselves, and the buffers of every worker
        prepare_all(client)
    before = pooler.memory_kb()
    for client in rest:
        prepare_all(client)
    growth = pooler.memory_kb() - before
    noise = 100  # of the allocator
    assert growth <= 4 * len(rest) + noise, f"{growth} kB for {len(rest)} clients"
    for n, client in enumerate(clients):
        client.send(run(f"S_{n}", n), SYNC)
        assert wire.value(client.until_ready()) == f"{filler} {n}: {n}"
