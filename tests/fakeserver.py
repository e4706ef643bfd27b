"""A server that follows PostgreSQL's protocol, or violates it, as a test demands."""

import contextlib
import socket
import struct
import threading

import machine
from rawclient import CANCEL, GSSENC, SSL, Closed, RawClient, frame, text, u16, u32

AUTH_OK = frame("R", u32(0))
KEY = frame("K", u32(4711) + u32(42))
READY = frame("Z", b"I")
PARAMETERS = b"".join(
    frame("S", text(name) + text(value)) for name, value in {
        "server_version": "18.0", "server_encoding": "UTF8", "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY", "TimeZone": "UTC", "standard_conforming_strings": "on",
        "integer_datetimes": "on", "IntervalStyle": "postgres", "application_name": "",
    }.items())
WELCOME = AUTH_OK + PARAMETERS + KEY + READY


def error(sqlstate, words, severity="ERROR"):
    fields = {"S": severity, "V": severity, "C": sqlstate, "M": words}
    return frame("E", b"".join(k.encode() + text(v) for k, v in fields.items()) + b"\0")


def notice(words):
    return frame("N", b"SNOTICE\0VNOTICE\0C00000\0M" + text(words) + b"\0")


def row_description(name="x"):
    return frame("T", u16(1) + text(name) + u32(0) + u16(0) + u32(25) + u16(0xFFFF) + u32(0xFFFFFFFF)
                 + u16(0))


def data_row(value):
    raw = value.encode()
    return frame("D", u16(1) + u32(len(raw)) + raw)


def answer(value):
    """Returns all messages that answer a simple query with one value."""
    return row_description() + data_row(value) + frame("C", text("SELECT 1")) + READY


class Connection(RawClient):
    """The server's end of one connection."""

    def __init__(self, sock, number):
        super().__init__(sock, None)
        self.number = number  # of the connection, from 1
        self.startup = b""

    def read_startup(self):
        """The startup packet, after declining encryption; None for a cancel request."""
        while True:
            size = struct.unpack("!I", self.read_exactly(4))[0]
            body = self.read_exactly(size - 4)
            code = struct.unpack_from("!I", body)[0]
            if code in (SSL, GSSENC):
                self.send(b"N")
            elif code == CANCEL:
                return None
            else:
                self.startup = body
                return body

    def welcome(self):
        """Completes the pooler's login. Returns False if the connection was a cancel request."""
        if self.read_startup() is None:
            return False
        self.send(WELCOME)
        return True

    def serve(self, reply=answer):
        """Answers simple queries by `reply(sql)` until the pooler leaves."""
        while True:
            message = self.read()
            if message.kind == "X":
                return
            if message.kind == "Q":
                self.send(reply(message.tag))
            elif message.kind == "S":
                self.send(READY)


class FakeServer:
    """Listens on a loopback port; `behave(connection)` runs in a thread for each connection."""

    def __init__(self, behave, host="127.0.0.1", port=None):
        self._behave = behave
        self.host, self.port = host, port or machine.free_port()
        self._listener = socket.create_server((self.host, self.port), backlog=128)
        self.accepted = 0
        self.problems = []
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def database(self):
        """Returns the entry of [databases] for this server, without session state, which the server does not have."""
        return f"host={self.host} port={self.port} dbname=app session_state=off"

    def stop(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            sock.close()
        machine.release_port(self.port)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            self._sockets.append(sock)
            threading.Thread(target=self._run, args=(Connection(sock, self.accepted),),
                             daemon=True).start()

    def _run(self, connection):
        try:
            self._behave(connection)
        except (Closed, OSError):
            pass  # the pooler has disconnected, which is allowed
        except Exception as error:  # the test examines it
            self.problems.append(error)
        finally:
            connection.close()
