"""A PostgreSQL client that sends exactly the given bytes, and shows exactly the received ones."""

import hashlib
import socket
import struct
from dataclasses import dataclass

import scram

PROTOCOL_3_0 = 3 << 16
PROTOCOL_3_2 = (3 << 16) | 2
CANCEL, SSL, GSSENC = 80877102, 80877103, 80877104


def u16(n):
    return struct.pack("!H", n)


def u32(n):
    return struct.pack("!I", n)


def text(s):
    """A zero-terminated string."""
    return (s if isinstance(s, bytes) else s.encode()) + b"\0"


# -- messages of a client


def frame(kind, body=b""):
    """A message with its type byte and length."""
    return kind.encode() + u32(len(body) + 4) + body


def frame_of_length(kind, length, body=b""):
    """Returns a message with any length field."""
    return kind.encode("latin-1") + u32(length & 0xFFFFFFFF) + body


def startup(version=PROTOCOL_3_0, tail=b"\0", **parameters):
    """A startup packet. A parameter's name may have dots: pass it by **{}."""
    body = u32(version) + b"".join(text(k) + text(v) for k, v in parameters.items()) + tail
    return u32(len(body) + 4) + body


def cancel(pid, secret):
    body = u32(CANCEL) + u32(pid) + secret
    return u32(len(body) + 4) + body


def query(sql):
    return frame("Q", text(sql))


def queries(*texts):
    """A simple Query for each text."""
    return [query(text) for text in texts]


def parse(sql, name="", types=()):
    return frame("P", text(name) + text(sql) + u16(len(types)) + b"".join(map(u32, types)))


def bind(values=(), portal="", name="", param_formats=(), result_formats=()):
    """Returns Bind with text parameters and text results, unless formats are given; None is NULL."""
    formats = [u16(len(list_)) + b"".join(map(u16, list_)) for list_ in (param_formats, result_formats)]
    body = text(portal) + text(name) + formats[0] + u16(len(values))
    for value in values:
        if value is None:
            body += u32(0xFFFFFFFF)
        else:
            raw = value if isinstance(value, bytes) else str(value).encode()
            body += u32(len(raw)) + raw
    return frame("B", body + formats[1])


def describe(kind="P", name=""):
    return frame("D", kind.encode() + text(name))


def execute(rows=0, portal=""):
    return frame("E", text(portal) + u32(rows))


def close(kind, name=""):
    return frame("C", kind.encode() + text(name))


def extended(sql, values=(), rows=0):
    """Parse, Bind, Execute of the unnamed statement, without Sync."""
    return parse(sql) + bind(values) + execute(rows)


def run(name, *values):
    """Bind and Execute of a prepared statement, without Sync."""
    return bind(values, name=name) + execute()


def count_answers(raw):
    """Returns the number of ReadyForQuery messages that answer these messages."""
    count, at = 0, 0
    while at < len(raw):
        count += raw[at : at + 1] in (b"Q", b"S", b"F")
        at += 1 + int.from_bytes(raw[at + 1 : at + 5], "big")
    return count


SYNC = frame("S")
FLUSH = frame("H")
TERMINATE = frame("X")
COPY_DONE = frame("c")


def copy_data(raw):
    return frame("d", raw)


def copy_fail(reason):
    return frame("f", text(reason))


def function_call(oid, values):
    """The fastpath call, binary arguments and result."""
    body = u32(oid) + u16(1) + u16(1) + u16(len(values))
    body += b"".join(u32(len(v)) + v for v in values)
    return frame("F", body + u16(1))


# -- messages of a server


@dataclass(frozen=True)
class Message:
    """A message of the server."""

    kind: str
    body: bytes

    @property
    def fields(self):
        """Fields of an error or notice by their letter."""
        parts = self.body.rstrip(b"\0").split(b"\0")
        return {part[:1].decode(): part[1:].decode() for part in parts if part}

    @property
    def sqlstate(self):
        return self.fields["C"]

    @property
    def words(self):
        return self.fields["M"]

    @property
    def row(self):
        """Values of a DataRow as text; None is NULL."""
        (count,), at, values = struct.unpack_from("!H", self.body), 2, []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", self.body, at)
            at += 4
            values.append(None if size < 0 else self.body[at : at + size].decode())
            at += max(size, 0)
        return tuple(values)

    @property
    def tag(self):
        return self.body.rstrip(b"\0").decode()

    @property
    def parameter(self):
        name, value = self.body.split(b"\0")[:2]
        return name.decode(), value.decode()


class Closed(Exception):
    """The other side closed the connection."""


class LoginRefused(Exception):
    """The server answered a login with an error."""

    def __init__(self, message):
        super().__init__(f"{message.sqlstate}: {message.words}")
        self.message = message
        self.sqlstate, self.words = message.sqlstate, message.words


class RawClient:
    """A socket for the protocol. Every read ends after `timeout` seconds at the latest."""

    def __init__(self, sock, address):
        self.sock = sock
        self.address = address
        self.parameters = {}
        self.pid, self.secret = None, b""
        self.login_messages = []
        self._buffer = bytearray()

    @classmethod
    def tcp(cls, host, port, timeout=10):
        sock = socket.create_connection((host, port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, (host, port))

    @classmethod
    def unix(cls, path, timeout=10):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(path)
        return cls(sock, path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection without a Terminate message, as a killed client does."""
        self.sock.close()

    def reset(self):
        """Closes with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, *parts):
        self.sock.sendall(b"".join(parts))
        return self

    def read_exactly(self, count):
        while len(self._buffer) < count:
            try:
                got = self.sock.recv(1 << 18)
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not got:
                raise Closed(f"{len(self._buffer)} bytes left: {bytes(self._buffer[:80])!r}")
            self._buffer += got
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def read(self):
        """Returns the next message. Raises `Closed` at the end of the connection."""
        header = self.read_exactly(5)
        size = struct.unpack("!I", header[1:])[0]
        message = Message(header[:1].decode("latin-1"), self.read_exactly(size - 4))
        if message.kind == "S" and message.body:  # not a Sync, read by a server
            name, value = message.parameter
            self.parameters[name] = value
        return message

    def until(self, kinds, keep=None):
        """Messages up to and including the first whose kind is in `kinds`."""
        messages = []
        while True:
            message = self.read()
            if keep is None or message.kind in keep or message.kind in kinds:
                messages.append(message)
            if message.kind in kinds:
                return messages

    def until_ready(self):
        return self.until("Z")

    def expect(self, kinds):
        """The next messages, which must be of these kinds in this order."""
        messages = []
        for position, kind in enumerate(kinds):
            message = self.read()
            if message.kind != kind:
                detail = message.fields if message.kind in "EN" else message.body[:200]
                seen = kinds[:position] + message.kind
                raise AssertionError(f"expected {kinds!r}, saw {seen!r}: {detail}")
            messages.append(message)
        return messages

    def quiet(self, seconds=0.3):
        """Checks that no message arrives for this time, and that the connection stays open."""
        if self._buffer:
            raise AssertionError(f"unread: {bytes(self._buffer[:80])!r}")
        before = self.sock.gettimeout()
        self.sock.settimeout(seconds)
        try:
            got = self.sock.recv(100, socket.MSG_PEEK)
        except TimeoutError:
            return
        finally:
            self.sock.settimeout(before)
        raise AssertionError(f"unexpected: {got!r}")

    def rest(self, limit=1 << 20):
        """Returns all messages until the other side closes; a reset counts as a close."""
        messages = []
        while True:
            try:
                messages.append(self.read())
            except Closed:
                return messages
            if len(messages) > limit:
                raise AssertionError("the connection does not end")

    def error_and_close(self):
        """Returns the error that must be the last message before the connection ends."""
        messages = [m for m in self.rest() if m.kind not in "NS"]
        if [m.kind for m in messages] != ["E"]:
            raise AssertionError(f"expected one error, then the end; saw {messages}")
        return messages[0]

    # -- login

    def login(self, user, database, password=None, version=PROTOCOL_3_0, **parameters):
        """Logs in by the method that the server requests. Raises `LoginRefused`."""
        names = {"user": user} | ({"database": database} if database is not None else {})
        self.send(startup(version, **names, **parameters))
        return self.finish_login(user, password)

    def finish_login(self, user, password=None):
        exchange = None
        while True:
            message = self.read()
            self.login_messages.append(message)
            if message.kind == "E":
                raise LoginRefused(message)
            if message.kind == "R":
                exchange = self._authenticate(message.body, user, password or "", exchange)
            elif message.kind == "K":
                self.pid, self.secret = struct.unpack_from("!I", message.body)[0], message.body[4:]
            elif message.kind == "Z":
                return self

    def _authenticate(self, body, user, password, exchange):
        method, rest = struct.unpack_from("!I", body)[0], body[4:]
        if method == 3:
            self.send(frame("p", text(password)))
        elif method == 5:
            first = hashlib.md5((password + user).encode()).hexdigest()
            second = hashlib.md5(first.encode() + rest).hexdigest()
            self.send(frame("p", text("md5" + second)))
        elif method == 10:
            exchange = scram.ClientExchange(password)
            first = exchange.first()
            self.send(frame("p", text("SCRAM-SHA-256") + u32(len(first)) + first))
        elif method == 11:
            self.send(frame("p", exchange.final(rest)))
        elif method == 12:
            assert rest == exchange.expected, "the server's signature is wrong"
        elif method != 0:
            raise AssertionError(f"authentication method {method}")
        return exchange

    @property
    def methods(self):
        """The authentication requests of the login, in order."""
        requests = [m.body for m in self.login_messages if m.kind == "R"]
        return [struct.unpack_from("!I", body)[0] for body in requests]

    # -- queries

    def query(self, sql):
        """Runs a simple query and returns all messages of its answer."""
        self.send(query(sql))
        return self.until_ready()

    def ask(self, raw):
        """Sends messages, and returns the answers to each Query and Sync among them."""
        self.send(raw)
        return [message for _ in range(count_answers(raw)) for message in self.until_ready()]

    def play(self, raw, ends, chunk=1 << 20):
        """Sends messages in pieces of `chunk` bytes, and reads up to each of the kinds in `ends`, or an error."""
        for at in range(0, len(raw), chunk):
            self.send(raw[at : at + chunk])
        return [message for end in ends for message in self.until(end if end == "Z" else f"{end}E")]

    def error(self, sql):
        """Returns the only error of a simple query."""
        (message,) = [message for message in self.query(sql) if message.kind == "E"]
        return message

    def values(self, sql):
        """First column of all rows of a simple query."""
        messages = self.query(sql)
        errors = [m for m in messages if m.kind == "E"]
        assert not errors, errors[0].fields
        return [m.row[0] for m in messages if m.kind == "D"]

    def value(self, sql):
        (only,) = self.values(sql)
        return only

    def cancel(self):
        """Sends a cancel request, and waits until its connection is closed."""
        make = self.unix if isinstance(self.address, str) else lambda at: self.tcp(*at)
        with make(self.address) as other:
            other.send(cancel(self.pid, self.secret))
            return other.rest()


def kinds(messages):
    """The types of messages as a string, e.g. `TDCZ`."""
    return "".join(m.kind for m in messages)


def errors(messages):
    """(SQLSTATE, words) of the errors among messages."""
    return [(m.sqlstate, m.words) for m in messages if m.kind == "E"]


def rows(messages):
    return [m.row for m in messages if m.kind == "D"]


def value(messages):
    """The only value among messages."""
    ((only,),) = rows(messages)
    return only
