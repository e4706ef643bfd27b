"""Servers that send invalid messages: the client gets a clear error, and no other client is affected."""

import contextlib
import socket
import threading
import time

import pytest

import fakeserver as fake
import machine
import rawclient as wire
from rawclient import Closed, LoginRefused, frame, frame_of_length, query, u16, u32


@pytest.fixture
def start_bad(start_server, start_pooler, newest_pg):
    """A pooler whose database `bad` is a fake server, and `app` a real one."""
    def start(behave, more_databases=(), **options):
        server = start_server(behave)
        databases = {"bad": server.database,
                     "app": f"host={newest_pg.host} port={newest_pg.port}"} | dict(more_databases)
        options = {"server_connect_timeout": 2, "server_login_retry": 1, "query_wait_timeout": 4,
                   "users": {"trusty": "password", "admin": "admin password"}} | options
        return server, start_pooler(None, databases=databases, **options)
    return start


def check_alive(pooler):
    """Checks that the process runs and serves the other database."""
    assert pooler.alive()
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "1"


def sasl(code, body):
    return frame("R", u32(code) + body)


# -- at login: the server's answer to the startup packet, before it closes

LOGIN = {
    "nothing": b"",
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(50),
    "length 0": frame_of_length("R", 0),
    "length 3": frame_of_length("R", 3),
    "negative length": frame_of_length("R", -1),
    "huge length": frame_of_length("R", 0x7FFFFFFF, b"x" * 100),
    "empty authentication": frame("R"),
    "short authentication": frame("R", b"\0\0"),
    "unknown authentication": frame("R", u32(99)),
    "kerberos": frame("R", u32(2)),
    "gss": frame("R", u32(7)),
    "md5 without salt": frame("R", u32(5)),
    "md5 with a short salt": frame("R", u32(5) + b"ab"),
    "sasl without mechanisms": sasl(10, b"\0"),
    "sasl with others": sasl(10, b"OAUTHBEARER\0PLAIN\0\0"),
    "sasl without end": sasl(10, b"SCRAM-SHA-256"),
    "sasl continued too early": sasl(11, b"r=abc,s=QUJD,i=4096"),
    "sasl final too early": sasl(12, b"v=AAAA"),
    "ready before authentication": fake.READY,
    "row before authentication": fake.data_row("x"),
    "key cut off": fake.AUTH_OK + frame("K", u32(1)) + fake.READY,
    "parameter without end": fake.AUTH_OK + frame("S", b"TimeZone\0UTC") + fake.READY,
    "parameter without value": fake.AUTH_OK + frame("S", b"TimeZone\0") + fake.READY,
    "bad state of ready": fake.AUTH_OK + fake.KEY + frame("Z", b"X"),
    "empty ready": fake.AUTH_OK + fake.KEY + frame("Z"),
    "empty error": frame("E", b"\0"),
    "error of no fields": frame("E"),
    "error without end": frame("E", b"SFATAL\0Mwords"),
    "ends after authentication": fake.AUTH_OK,
    "ends before ready": fake.AUTH_OK + fake.PARAMETERS + fake.KEY,
    "unknown message": fake.AUTH_OK + frame("x", b"??"),
    "copy at login": fake.AUTH_OK + frame("G", b"\0" + u16(0)),
    "negotiation cut off": frame("v", u32(196608)),
    "negotiation of a negative count": frame("v", u32(196608) + u32(0xFFFFFFFF)),
}
# Here pgweir may accept the server's message or refuse it.
TOLERABLE = {"bad state of ready", "empty ready", "parameter without end", "parameter without value",
             "key cut off", "negotiation cut off", "negotiation of a negative count"}


def better(names, *not_in_pgbouncer):
    """Test parameters, some of which fail with PgBouncer 1.18: it accepts them, or crashes."""
    mark = pytest.mark.pgweir_only("believes it, or dies of it")
    return [pytest.param(name, marks=mark if name in not_in_pgbouncer else ()) for name in names]


@pytest.mark.parametrize("name", better(
    LOGIN, "ready before authentication", "bad state of ready", "empty ready"))
@pytest.mark.parametrize("then", ["closes", "waits"])
def test_invalid_messages_at_login(start_bad, name, then):
    def behave(connection):
        connection.read_startup()
        connection.send(LOGIN[name])
        if then == "waits":
            connection.rest()

    _, pooler = start_bad(behave)
    started = time.monotonic()
    client = pooler.socket(timeout=12)
    client.send(wire.startup(user="trusty", database="bad"))
    received = [m for m in client.rest() if m.kind == "E"] if name not in TOLERABLE else []
    if name not in TOLERABLE:
        assert len(received) == 1
        assert len(received[0].sqlstate) == 5
        assert received[0].words
        assert time.monotonic() - started < 10
    check_alive(pooler)


def test_login_error_is_passed_on(start_bad):
    def behave(connection):
        connection.read_startup()
        connection.send(fake.error("28000", "no entry for you", "FATAL"))

    _, pooler = start_bad(behave)
    with pytest.raises(LoginRefused, match="no entry for you") as refused:
        pooler.raw(dbname="bad")
    assert refused.value.sqlstate in ("28000", "08P01")
    check_alive(pooler)


@pytest.mark.shows("server_connect_timeout")
def test_server_that_never_answers(start_bad):
    server, pooler = start_bad(lambda connection: connection.rest(), server_connect_timeout=1)
    with pytest.raises(LoginRefused, match=r"connect timeout|login has been failing|query_wait"):
        pooler.raw(dbname="bad", timeout=12)
    assert server.accepted >= 1
    check_alive(pooler)


@pytest.mark.shows("server_connect_timeout")
def test_server_that_cannot_be_reached_in_time(start_bad):
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # the kernel's queue is full
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        database = f"host=127.0.0.1 port={full.getsockname()[1]}"
        _, pooler = start_bad(lambda connection: None, server_connect_timeout=1,
                              more_databases={"full": database})
        client = pooler.socket()
        client.send(wire.startup(user="trusty", database="full"))
        pooler.expect_log("closing because: connect failed")
        assert "connect timeout" not in pooler.log()
        check_alive(pooler)


# The server's first SCRAM message for the client's nonce, and its last one.
SCRAM = {
    "nonce of its own": (lambda nonce: b"r=other,s=QUJDREVGRw==,i=4096", b"v=AAAA"),
    "client's nonce alone": (lambda nonce: b"r=" + nonce + b",s=QUJDREVGRw==,i=4096", b"v=AAAA"),
    "no iterations": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==", b""),
    "iterations 0": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=0", b""),
    "iterations beyond reason": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=2147483647", b""),
    "iterations not a number": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=many", b""),
    "bad salt": (lambda nonce: b"r=" + nonce + b"x,s=!!!,i=4096", b""),
    "no salt": (lambda nonce: b"r=" + nonce + b"x,i=4096", b""),
    "extension": (lambda nonce: b"m=x,r=" + nonce + b"x,s=QUJDREVGRw==,i=4096", b""),
    "wrong signature": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=4096",
                        b"v=" + b"A" * 43 + b"="),
    "error at the end": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=4096",
                         b"e=invalid-proof"),
    "empty end": (lambda nonce: b"r=" + nonce + b"x,s=QUJDREVGRw==,i=4096", b""),
}


@pytest.mark.parametrize("name", better(SCRAM, "iterations beyond reason"))
@pytest.mark.guards("scram_parsing")
def test_false_scram_servers(start_bad, name):
    """A server that cannot prove its identity is not used, whatever messages follow."""
    first, last = SCRAM[name]

    def behave(connection):
        connection.read_startup()
        connection.send(sasl(10, b"SCRAM-SHA-256\0\0"))
        body = connection.read().body
        nonce = body.split(b"r=")[1]
        connection.send(sasl(11, first(nonce)))
        connection.read()
        connection.send(sasl(12, last), fake.WELCOME)
        connection.serve()

    _, pooler = start_bad(behave)
    client = pooler.socket(timeout=12)
    client.send(wire.startup(user="trusty", database="bad"))
    received = client.rest()
    assert [m.kind for m in received if m.kind in "EZ"] == ["E"]
    check_alive(pooler)


# -- in answer to a query

START = fake.row_description() + fake.data_row("first")
ANSWERS = {
    "nothing": b"",
    "garbage": b"\0\0\0\0\0\0\0\0garbage",
    "length 0": START + frame_of_length("D", 0),
    "length 3": START + frame_of_length("D", 3),
    "negative length": START + frame_of_length("D", -1),
    "most negative length": START + frame_of_length("C", 0x80000000),
    "unknown message": START + frame("x", b"??"),
    "client's message": START + frame("Q", b"SELECT 1\0"),
    "authentication": START + fake.AUTH_OK,
    "empty ready": START + frame("Z"),
    "long ready": START + frame("Z", b"II"),
    "bad state": START + frame("Z", b"X"),
    "ends in a header": START + b"D\0\0",
    "ends in a row": START + fake.data_row("x" * 1000)[:500],
    "ends in a long row": START + frame_of_length("D", 1 << 30, b"x" * 300_000),
    "ends before ready": START + frame("C", b"SELECT 1\0"),
}


@pytest.mark.parametrize("name", better(ANSWERS, "bad state", "long ready"))
@pytest.mark.parametrize("within", ["alone", "in a transaction"])
def test_invalid_answers_to_a_query(start_bad, name, within):
    """pgweir sends no ReadyForQuery after an invalid answer. The next query gets a new server."""
    def behave(connection):
        if not connection.welcome():
            return
        while True:
            message = connection.read()
            if message.kind != "Q":
                connection.send(fake.READY) if message.kind == "S" else None
            elif message.tag == "broken":
                connection.send(ANSWERS[name])
                return
            elif message.tag == "BEGIN":
                connection.send(frame("C", b"BEGIN\0") + frame("Z", b"T"))
            else:
                connection.send(fake.answer(f"{connection.number}"))

    _, pooler = start_bad(behave, default_pool_size=1)
    client = pooler.raw(dbname="bad", timeout=8)
    assert client.value("hello") == "1"
    if within != "alone":
        client.query("BEGIN")
    client.send(query("broken"))
    received = []
    try:
        while not (received and received[-1].kind == "Z"):
            received.append(client.read())
    except Closed:
        pass
    seen = wire.kinds(received)
    cut = name.startswith("ends in a")  # the client has received a part of a message already
    if not cut:
        assert "E" in seen or seen == "", received
        assert all(m.sqlstate and m.words for m in received if m.kind == "E")
    assert not seen.endswith("CZ") and not seen.endswith("DZ")
    client.close()
    with pooler.raw(dbname="bad", timeout=8) as other:
        assert int(other.value("hello")) > 1
    check_alive(pooler)


# -- messages that were not requested

UNASKED = {
    "ready": fake.READY,
    "answer": fake.answer("not yours"),
    "row": fake.data_row("not yours"),
    "error": fake.error("XX000", "not yours"),
    "garbage": b"\0\0\0\0not yours",
    "unknown": frame("x", b"not yours"),
    "half a message": fake.data_row("not yours")[:9],
    "copy": frame("G", b"\0" + u16(0)),
}


@pytest.mark.pgweir_only("may pass them on")
@pytest.mark.parametrize("name", UNASKED)
@pytest.mark.parametrize("when", ["with the answer", "later"])
def test_unrequested_messages_reach_no_client(start_bad, name, when):
    """A server that sends unexpected messages is not lent again."""
    answered = threading.Event()

    def behave(connection):
        if not connection.welcome():
            return
        assert connection.read().kind == "Q"
        if when == "later":
            connection.send(fake.answer("right"))
            answered.wait(10)
            connection.send(UNASKED[name])
        else:
            connection.send(fake.answer("right") + UNASKED[name])
        connection.serve(lambda _: fake.answer("from the bad one"))

    server, pooler = start_bad(behave, default_pool_size=1)
    with pooler.raw(dbname="bad") as first:
        assert first.value("hello") == "right"
        answered.set()
        machine.wait_until(lambda: pooler.console("SHOW SERVERS") == [], what="the bad one is closed")
        first.close()
    with pooler.raw(dbname="bad") as second:
        assert second.value("hello") == "right"
    assert server.accepted >= 2
    check_alive(pooler)


@pytest.mark.parametrize("name", ["notice", "parameter"])
def test_idle_servers_may_send_notices_and_parameters(start_bad, name):
    said = {"notice": fake.notice("by the way"),
            "parameter": frame("S", b"TimeZone\0Asia/Tokyo\0")}[name]
    answered = threading.Event()

    def behave(connection):
        if not connection.welcome():
            return
        assert connection.read().kind == "Q"
        connection.send(fake.answer("right"))
        answered.wait(10)
        connection.send(said)
        connection.serve(lambda _: fake.answer("still me"))

    server, pooler = start_bad(behave, default_pool_size=1)
    with pooler.raw(dbname="bad") as client:
        assert client.value("hello") == "right"
        answered.set()
        client.quiet(0.3)  # time in which the server may send
        # The same server answers, or a new one if pgweir has closed the first.
        assert client.value("hello") == ("still me" if server.accepted == 1 else "right")


# -- limits on what a server may send


def test_server_that_floods_at_login(start_bad):
    """Memory stays bounded while a server sends notices without end."""
    def behave(connection):
        connection.read_startup()
        connection.send(fake.AUTH_OK)
        while True:
            connection.send(fake.notice("x" * 5000) * 100)

    _, pooler = start_bad(behave)
    before = pooler.memory_kb()
    client = pooler.socket(timeout=15)
    client.send(wire.startup(user="trusty", database="bad"))
    for _ in machine.every(0.01, until=machine.after(1.5)):
        check_alive(pooler)
        assert pooler.memory_kb() - before < 16 << 10
    client.close()


def test_server_that_announces_a_huge_message_at_login(start_bad):
    def behave(connection):
        connection.read_startup()
        connection.send(fake.AUTH_OK + frame_of_length("S", 1 << 30))
        while True:
            connection.send(b"x" * 100_000)

    _, pooler = start_bad(behave)
    before = pooler.memory_kb()
    client = pooler.socket(timeout=15)
    client.send(wire.startup(user="trusty", database="bad"))
    client.rest()
    assert pooler.memory_kb() - before < 8 << 10
    check_alive(pooler)


def test_slow_server(start_bad):
    """A server that sends one byte at a time is served like any other."""
    def behave(connection):
        if not connection.welcome():
            return
        while True:
            message = connection.read()
            if message.kind == "Q":
                for byte in fake.answer(message.tag):
                    connection.send(bytes([byte]))

    _, pooler = start_bad(behave, query_wait_timeout=20)
    with pooler.raw(dbname="bad") as client:
        for n in range(5):
            assert client.value(f"word {n}") == f"word {n}"


def test_servers_that_close_after_each_answer(start_bad):
    """Each server answers once and closes its connection. Every query gets its answer."""
    def behave(connection):
        if connection.welcome() and connection.read().kind == "Q":
            connection.send(fake.answer(f"{connection.number}"))

    server, pooler = start_bad(behave, default_pool_size=1, query_wait_timeout=20)
    with pooler.raw(dbname="bad", timeout=20) as client:
        for n in range(1, 21):
            assert client.value("hello") == str(n)
            machine.wait_until(lambda: pooler.pool("bad")["sv_idle"] == 0, what="it is seen to go")
    assert server.accepted == 20
