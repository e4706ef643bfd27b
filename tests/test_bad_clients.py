"""Clients that send invalid messages: their connection ends with an error, and no other client is affected."""

import os
import random
import struct
import time

import pytest

import rawclient as wire
from rawclient import SYNC, frame, frame_of_length, startup, u16, u32
from rawclient import text as cstring

PASSWORD = "secret"
USERS = {"trusty": PASSWORD, "admin": "admin password"}


def initial(body):
    return u32(len(body) + 4) + body


# As the first bytes of a connection. pgweir refuses or closes each of these connections.
STARTUP = {
    "length 0": u32(0) + b"x" * 20,
    "length 3": u32(3) + b"x" * 20,
    "length 4": u32(4) + b"x" * 20,
    "length 7": u32(7) + b"x" * 3,
    "negative length": u32(0x80000000) + u32(wire.PROTOCOL_3_0),
    "length -1": u32(0xFFFFFFFF) + u32(wire.PROTOCOL_3_0),
    "huge length": u32(0x7FFFFFFF) + u32(wire.PROTOCOL_3_0),
    "a megabyte": u32(1 << 20) + u32(wire.PROTOCOL_3_0) + b"user\0",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030102000100") + bytes(300),
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "version 0": initial(u32(0) + b"user\0trusty\0\0"),
    "version 2": initial(u32(2 << 16) + b"user\0trusty\0\0"),
    "version 4": initial(u32(4 << 16) + b"user\0trusty\0\0"),
    "no parameters": initial(u32(wire.PROTOCOL_3_0)),
    "no user": startup(database="app"),
    "empty user": startup(user="", database="app"),
    "no terminator": startup(tail=b"", user="trusty", database="app"),
    "name without value": initial(u32(wire.PROTOCOL_3_0) + b"user\0trusty\0database\0"),
    "unfinished value": initial(u32(wire.PROTOCOL_3_0) + b"user\0trusty\0database\0app"),
    "long user": startup(user="u" * 5000, database="app"),
    "long database": startup(user="trusty", database="d" * 5000),
    "user of no encoding": startup(user=b"\xff\xfe\xfd", database="app"),
    "control characters": startup(user="a\r\nb\x1b[31m", database="app"),
    "short cancel": initial(u32(wire.CANCEL) + u32(1)),
    "cancel without key": initial(u32(wire.CANCEL)),
    "long cancel": initial(u32(wire.CANCEL) + u32(1) + b"k" * 1000),
    "password first": frame("p", b"secret\0"),
    "query first": wire.query("SELECT 1"),
}

# In answer to the request for a password.
MD5_ANSWER = {
    "query": wire.query("SELECT 1"),
    "sync": SYNC,
    "copy data": wire.copy_data(b"x"),
    "unknown": frame_of_length("\0", 4),
    "length 0": frame_of_length("p", 0),
    "length 3": frame_of_length("p", 3),
    "negative length": frame_of_length("p", -5),
    "huge length": frame_of_length("p", 0x7FFFFFFF),
    "too long": frame_of_length("p", 200_000, b"x" * 1000),
    "empty": frame("p"),
    "no terminator": frame("p", b"md5" + b"0" * 32),
    "empty password": frame("p", b"\0"),
    "short md5": frame("p", b"md5\0"),
    "startup again": startup(user="trusty", database="app"),
    "binary": frame("p", b"\xff" * 35 + b"\0"),
}

SCRAM_ANSWER = MD5_ANSWER | {
    "no mechanism": frame("p", b"SCRAM-SHA-256"),
    "other mechanism": frame("p", cstring("PLAIN") + u32(0)),
    "no response": frame("p", cstring("SCRAM-SHA-256") + u32(0xFFFFFFFF)),
    "length beyond the end": frame("p", cstring("SCRAM-SHA-256") + u32(1000) + b"n,,n=,r=abc"),
    "negative response": frame("p", cstring("SCRAM-SHA-256") + u32(0xFFFFFFFE) + b"n,,n=,r=abc"),
    "cut off": frame("p", cstring("SCRAM-SHA-256") + b"\0\0"),
    "plain password": frame("p", b"secret\0"),
}

# After login. The framing itself is broken: the connection must end.
BROKEN_FRAMES = {
    "unknown type": frame("z"),
    "type 0": frame_of_length("\0", 4),
    "type 255": frame_of_length("\xff", 4),
    "type of a server": frame("R", u32(0)),
    "ready": frame("Z", b"I"),
    "password": frame("p", b"secret\0"),
    "startup again": startup(user="trusty", database="app"),
    "length 0": frame_of_length("Q", 0),
    "length 3": frame_of_length("Q", 3),
    "negative length": frame_of_length("Q", -1),
    "most negative length": frame_of_length("P", 0x80000000),
    "negative length of sync": frame_of_length("S", -4),
    "negative length of copy data": frame_of_length("d", -100),
    "negative length of terminate": frame_of_length("X", -1),
    "ssl request": u32(8) + u32(wire.SSL),
}

# After login. The header is valid and the content is not: pgweir sends an error. Whether it closes the connection is
# not checked.
BROKEN_CONTENT = {
    "query without end": frame("Q", b"SELECT 1"),
    "query with more behind": frame("Q", b"SELECT 1\0more\0"),
    "empty query message": frame("Q"),
    "query of no encoding": frame("Q", b"SELECT '\xff\xfe'\0"),
    "empty parse": frame("P") + SYNC,
    "parse without end": frame("P", b"name") + SYNC,
    "parse with too few types": frame("P", b"\0SELECT 1\0" + u16(5) + u32(23)) + SYNC,
    "empty bind": frame("B") + SYNC,
    "bind without values": wire.parse("SELECT $1") + frame("B", b"\0\0" + u16(0) + u16(1)) + SYNC,
    "bind with a short value":
        wire.parse("SELECT $1") + frame("B", b"\0\0" + u16(0) + u16(1) + u32(100) + b"x") + SYNC,
    "bind with a negative size":
        wire.parse("SELECT $1") + frame("B", b"\0\0" + u16(0) + u16(1) + u32(0xFFFFFFF0)) + SYNC,
    "bind with 65535 values": wire.parse("SELECT 1") + frame("B", b"\0\0" + u16(0) + u16(65535)) + SYNC,
    "empty execute": frame("E") + SYNC,
    "execute without rows": frame("E", b"\0") + SYNC,
    "describe of nothing": frame("D") + SYNC,
    "describe of another kind": frame("D", b"X\0") + SYNC,
    "close of another kind": frame("C", b"X\0") + SYNC,
    "close without end": frame("C", b"Sname") + SYNC,
    "function call cut off": frame("F", u32(177) + u16(1)),
    "function call, negative count": frame("F", u32(177) + u16(0) + u16(0xFFFF) + u16(0)),
    "copy fail without end": wire.query("COPY (SELECT 1) TO STDOUT") + frame("f", b"x") + wire.query(""),
}

STATES = {"08P01", "0A000", "28000", "28P01", "53300", "22021", "42601", "XX000"}


def check_refused(client):
    """The connection ends soon, with at most one error before that."""
    last = [m for m in client.rest() if m.kind not in "RSNKZv"]
    if last:
        assert wire.kinds(last) == "E"
        assert last[0].sqlstate in STATES, last[0].fields
        assert last[0].words
    client.close()


@pytest.fixture
def check_others(newest_pg):
    """Checks that another client's transaction continues meanwhile, and that new clients can log in."""
    def check(pooler, other):
        assert pooler.alive()
        assert other.value("SELECT 1") == "1"
        with pooler.raw(password=PASSWORD) as fresh:
            assert fresh.value("SELECT 2") == "2"
    return check


STAGES = {
    "startup": (STARTUP, "trust"),
    "md5": (MD5_ANSWER, "md5"),
    "scram": (SCRAM_ANSWER, "scram-sha-256"),
    "frames": (BROKEN_FRAMES, "trust"),
}
# Cases that PgBouncer 1.18 accepts, waits for without end, or crashes on.
NOT_IN_PGBOUNCER = {
    ("startup", "length 7"), ("startup", "no terminator"), ("frames", "type 0"),
    ("md5", "unknown"), ("md5", "empty"), ("md5", "no terminator"),
    ("scram", "unknown"), ("scram", "empty"), ("scram", "no terminator"),
    ("scram", "no mechanism"), ("scram", "no response"), ("scram", "length beyond the end"),
    ("scram", "negative response"), ("scram", "cut off"),
}


def _case(*case):
    better = pytest.mark.pgweir_only("lets it pass, waits, or dies")
    return pytest.param(*case, marks=better if case in NOT_IN_PGBOUNCER else ())


CASES = [_case(stage, name) for stage, (cases, _) in STAGES.items() for name in cases]


def arrive(client, stage):
    """Brings a connection to the stage at which the invalid message is sent."""
    if stage != "startup":
        client.send(startup(user="trusty", database="app"))
        client.until("Z" if stage == "frames" else "R")
    return client


@pytest.mark.parametrize(("stage", "name"), CASES)
def test_invalid_messages_are_refused(start_pooler, newest_pg, check_others, stage, name):
    cases, auth_type = STAGES[stage]
    pooler = start_pooler(newest_pg, users=USERS, auth_type=auth_type)
    with pooler.raw(password=PASSWORD) as other:
        other.query("BEGIN")
        for _ in range(3):
            client = arrive(pooler.socket(timeout=5), stage).send(cases[name])
            check_refused(client)
        check_others(pooler, other)


@pytest.mark.pgweir_only("tells an error")
@pytest.mark.parametrize("name", ["farewell", "length 3", "negative length", "http"])
def test_bytes_that_are_no_startup_packet_get_no_answer(start_pooler, newest_pg, check_others, name):
    """As with PostgreSQL, there is no answer: some clients send Terminate before their login (node-postgres does), and
    expect no error.
    """
    pooler = start_pooler(newest_pg, users=USERS)
    with pooler.raw(password=PASSWORD) as other:
        for port in (newest_pg.port, pooler.port):
            client = wire.RawClient.tcp(pooler.host, port, 5)
            client.send({**STARTUP, "farewell": wire.TERMINATE}[name])
            assert client.rest() == []
            client.close()
        pooler.expect_log("closing because: invalid length of startup packet")
        check_others(pooler, other)


@pytest.mark.parametrize("name", BROKEN_CONTENT)
@pytest.mark.parametrize("within", ["alone", "in a transaction"])
def test_broken_content(start_pooler, newest_pg, check_others, name, within):
    pooler = start_pooler(newest_pg, users=USERS, default_pool_size=2)
    with pooler.raw() as other:
        other.query("BEGIN")
        client = pooler.raw(timeout=5)
        if within != "alone":
            client.query("BEGIN")
        client.send(BROKEN_CONTENT[name])
        answer = client.until("EZ") if "copy" not in name else client.until("Z")
        failed = [m for m in answer if m.kind == "E"]
        assert "copy" in name or failed[0].sqlstate in STATES
        client.close()
        check_others(pooler, other)


@pytest.mark.shows("max_packet_size")
def test_messages_beyond_the_largest_size(start_pooler, newest_pg, check_others):
    pooler = start_pooler(newest_pg, users=USERS, max_packet_size=100_000)
    with pooler.raw() as other:
        other.query("BEGIN")
        client = pooler.raw(timeout=5)
        assert client.value(f"SELECT length('{'x' * 90_000}')") == "90000"
        client.send(wire.query("SELECT '" + "x" * 200_000 + "'")[:1000])
        error = client.error_and_close()
        assert error.sqlstate in ("08P01", "54000")
        check_others(pooler, other)


def test_query_while_copying(start_pooler, newest_pg, check_others):
    newest_pg.run("DROP TABLE IF EXISTS copied; CREATE TABLE copied (n int)", dbname="app")
    pooler = start_pooler(newest_pg, users=USERS, default_pool_size=2)
    with pooler.raw() as other:
        other.query("BEGIN")
        client = pooler.raw(timeout=5)
        client.send(wire.query("COPY copied FROM STDIN"))
        client.expect("G")
        client.send(wire.copy_data(b"1\n"), wire.query("SELECT 1"), wire.copy_data(b"2\n"))
        (*_, error) = client.until("E")
        assert error.sqlstate in ("08P01", "57014")
        client.close()
        check_others(pooler, other)
        assert other.value("SELECT count(*) FROM copied") == "0"


@pytest.mark.shows("client_login_timeout")
@pytest.mark.parametrize("auth_type", ["trust", "md5", "scram-sha-256"])
def test_login_timeout(start_pooler, newest_pg, auth_type):
    """A client that does not continue its login gets an error, and is disconnected."""
    pooler = start_pooler(newest_pg, users=USERS, auth_type=auth_type, client_login_timeout=1)
    packet = startup(user="trusty", database="app")
    clients = {
        "nothing": pooler.socket(),
        "half a startup packet": pooler.socket().send(packet[:10]),
        "ssl request only": pooler.socket().send(u32(8) + u32(wire.SSL)),
    }
    clients["ssl request only"].read_exactly(1)
    if auth_type != "trust":
        clients["no password"] = pooler.socket().send(packet)
        clients["no password"].expect("R")
        clients["half a password"] = pooler.socket().send(packet)
        clients["half a password"].expect("R")
        clients["half a password"].send(frame("p", b"x" * 30)[:10])
    for name, client in clients.items():
        words = [m.words for m in client.rest()]
        if pooler.pgbouncer and words == ["client sent partial pkt in startup phase"]:
            continue
        assert words in ([], ["client_login_timeout"]), name
    # The timeout does not apply to a login that waits for the first server.
    pooler.console("SET client_login_timeout = 3")
    with pooler.raw(password=PASSWORD) as client:
        client.quiet(3.5)
        assert client.value("SELECT 1") == "1"


SENSIBLE = (wire.query("SELECT 1") + wire.extended("SELECT $1", ["a"]) + SYNC + wire.FLUSH
            + wire.function_call(177, [b"\0\0\0\1", b"\0\0\0\2"]) + wire.describe("S", "x"))


@pytest.mark.pgweir_only("loses track of some")
@pytest.mark.parametrize("bit", range(8))
def test_flipped_bits(start_pooler, newest_pg, bit):
    """Messages with one wrong bit, after which the client disconnects: its server is soon free again."""
    pooler = start_pooler(newest_pg, users=USERS, default_pool_size=1, query_wait_timeout=60)
    stuck = []
    for at in range(len(SENSIBLE)):
        noise = bytearray(SENSIBLE)
        noise[at] ^= 1 << bit
        pooler.raw().send(bytes(noise)).close()
        started = time.monotonic()
        with pooler.raw() as fresh:
            assert fresh.value("SELECT 2") == "2"
        if time.monotonic() - started > 2.5:
            stuck.append((at, bytes(noise[max(0, at - 5) : at + 10])))
            if len(stuck) == 3:
                break
    assert stuck == [], "(byte, what is there): the pool's only server was not free for seconds"


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes(start_pooler, newest_pg, check_others, seed):
    """Random bytes before and after login, and valid messages with several bits flipped."""
    pooler = start_pooler(newest_pg, users=USERS)
    dice = random.Random(seed)
    with pooler.raw() as other:
        other.query("BEGIN")
        for _ in range(150):
            client = pooler.socket(timeout=5)
            choice = dice.randrange(3)
            if choice == 0:
                client.send(dice.randbytes(dice.randint(1, 200)))
            else:
                client.login("trusty", "app")
                noise = bytearray(SENSIBLE)
                for _ in range(dice.randint(1, 6)):
                    noise[dice.randrange(len(noise))] ^= 1 << dice.randrange(8)
                client.send(bytes(noise) if choice == 1 else dice.randbytes(100))
            client.reset() if dice.randrange(2) else client.close()
        check_others(pooler, other)


def test_broken_message_behind_a_good_one(start_pooler, newest_pg):
    """Both come in one write: pgweir completes the valid request, and the server is free afterwards."""
    pooler = start_pooler(newest_pg, users=USERS, default_pool_size=1)
    for good in (wire.query("SELECT 1"), wire.extended("SELECT 1") + SYNC, wire.query("BEGIN")):
        client = pooler.raw().send(good + frame("z"))
        assert [m.sqlstate for m in client.rest() if m.kind == "E"] == ["08P01"]
        with pooler.raw() as fresh:
            assert fresh.query("SELECT 2")[-1].body == b"I"


# -- many of them

# The number of connections. Resident memory is compared between the first number and the last.
COUNT, MARK = 2_000, 500
FULL_COUNT, FULL_MARK = 10_000, 1_000
GROWTH_KB = 1024


@pytest.mark.parametrize(("stage", "name"), CASES)
@pytest.mark.timeout(600)
def test_memory_does_not_grow(start_pooler, newest_pg, request, check_others, stage, name):
    full = request.config.getoption("--full")
    count, mark = (FULL_COUNT, FULL_MARK) if full else (COUNT, MARK)
    cases, auth_type = STAGES[stage]
    pooler = start_pooler(newest_pg, users=USERS, auth_type=auth_type, log_connections=0,
                          log_disconnections=0, log_pooler_errors=0)
    at_mark = 0
    for n in range(count):
        if n == mark:
            at_mark = pooler.memory_kb()
        client = arrive(wire.RawClient.unix(pooler.unix_path, timeout=5), stage)
        client.send(cases[name])
        client.rest()
        client.close()
    growth = pooler.memory_kb() - at_mark
    assert growth <= GROWTH_KB, f"{growth} kB more from connection {mark} to {count}"
    with pooler.raw(password=PASSWORD) as other:
        check_others(pooler, other)


def test_unfinished_logins_cost_little(start_pooler, newest_pg):
    """A client that announces a large message and sends nothing does not make the pooler reserve memory."""
    pooler = start_pooler(newest_pg, users=USERS, auth_type="md5", max_client_conn=2000)
    clients = []

    def open_clients(count):
        for _ in range(count):
            client = pooler.socket().send(startup(user="trusty", database="app"))
            client.expect("R")
            clients.append(client.send(struct.pack("!cI", b"p", 60_000)))

    # The first clients make pgweir allocate queues, more of them with io_uring. Later clients use the same queues.
    open_clients(100)
    before = pooler.memory_kb()
    open_clients(400)
    with pooler.raw(password=PASSWORD) as other:
        assert other.value("SELECT 1") == "1"
        assert pooler.memory_kb() - before < 400 * 16
    for client in clients:
        client.close()


@pytest.mark.guards("log_injection")
def test_log_lines_cannot_be_forged(start_pooler, newest_pg):
    """The log contains names of clients: a line break in a name must not begin a new line."""
    pooler = start_pooler(newest_pg)
    hostile = f"x\n2020-01-01 00:00:00 UTC [{os.getpid()}] LOG all is well"
    with pytest.raises(wire.LoginRefused):
        pooler.raw(hostile)
    with pytest.raises(wire.LoginRefused):
        pooler.raw(dbname=hostile)
    assert not [line for line in pooler.log().splitlines() if line.startswith("2020-01-01")]
