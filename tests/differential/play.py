"""Runs scripts: each alone against PostgreSQL, then all at once through the pooler, and compares the answers."""

import selectors
import struct
import time
from dataclasses import dataclass

from differential import replies, world
from rawclient import SYNC, TERMINATE, RawClient, extended, parse, query, startup

# The longest time without any answer.
STUCK_S = 20


@dataclass(frozen=True)
class Mismatch:
    """A step whose answer differs from PostgreSQL's."""

    script: object
    step: int
    truth: list
    seen: list

    def __str__(self):
        said = "\n".join(f"  {n:3} {step.words[:300]}" for n, step in enumerate(self.script.steps[: self.step + 1]))
        return (f"script {self.script.name} of {self.script.user} with {self.script.parameters}, step {self.step}:\n"
                f"{said}\n    PostgreSQL:\n{replies.readable(self.truth, self.seen)}\n"
                f"    pooler:\n{replies.readable(self.seen, self.truth)}")


class Stuck(AssertionError):
    """Raised when no answer arrives any more."""


def login(address, script, database):
    client = RawClient.tcp(*address, timeout=STUCK_S)
    client.login(script.user, database, **script.parameters)
    return client


def truth(address, script):
    """Returns PostgreSQL's answers to each step. The first item is the login."""
    client = login(address, script, world.TRUTH)
    answers = [_of_login([(m.kind, m.body) for m in client.login_messages])]
    buffer = bytearray()
    with client:
        for step in script.steps:
            client.send(step.said.replace(b"'@-", b"'T-"))
            messages = []
            while sum(kind == "Z" for kind, _ in messages) < step.answers:
                got = client.sock.recv(1 << 18)
                if not got:
                    raise AssertionError(f"PostgreSQL closed at {step.words!r} of {script.name}")
                buffer += got
                messages += replies.split(buffer)
            answers.append(replies.comparable(messages, client.pid))
        client.send(TERMINATE)
    return answers


def _of_login(messages):
    """Returns what a login shows: parameters, errors, notices."""
    return replies.comparable([(kind, body) for kind, body in messages if kind in "SENZ"], None)


class Player:
    """A client of the pooler that plays a script; step -1 is its login."""

    def __init__(self, address, script, expected):
        self.script, self.expected = script, expected
        self.socket = RawClient.tcp(*address).sock
        self._buffer, self._messages, self._ready, self.step = bytearray(), [], 0, -1
        self._pid, self.closed = None, False
        database = world.ALIAS if script.by_alias else world.POOLED
        self._say(startup(user=script.user, database=database, **script.parameters))

    def readable(self):
        """Reads; returns a mismatch, or None."""
        try:
            got = self.socket.recv(1 << 18)
        except BlockingIOError:
            return None
        except ConnectionError:
            got = b""
        self._buffer += got
        for kind, body in replies.split(self._buffer):
            self._messages.append((kind, body))
            self._ready += kind == "Z"
        if not got:
            self._messages.append(("closed", b""))
        elif self._ready < (1 if self.step < 0 else self.script.steps[self.step].answers):
            return None
        if self.step < 0:
            self._pid = next((struct.unpack_from("!I", body)[0] for kind, body in self._messages if kind == "K"), None)
            wrong = self._compare(_of_login(self._messages))
        else:
            wrong = self._compare(replies.comparable(self._messages, self._pid))
        if not got:
            self.close()
            return wrong
        return wrong or self._next()

    def _compare(self, seen):
        if self.expected is None or seen == self.expected[self.step + 1]:
            return None
        return Mismatch(self.script, self.step, self.expected[self.step + 1], seen)

    def _next(self):
        self.step += 1
        self._messages, self._ready = [], 0
        if self.step == len(self.script.steps):
            self._say(TERMINATE)
            self.close()
        else:
            self._say(self.script.steps[self.step].said.replace(b"'@-", b"'P-"))

    def _say(self, said):
        try:
            self.socket.setblocking(True)
            self.socket.sendall(said)
            self.socket.setblocking(False)
        except ConnectionError:
            pass  # the next read finds the end of the connection

    def waits(self):
        """Returns the step that the player waits for."""
        words = "the login" if self.step < 0 else self.script.steps[self.step].words[:200]
        return f"{self.script.name} waits at step {self.step}: {words}; has {self._messages[-3:]}"

    def close(self):
        self.socket.close()
        self.closed = True


class Interrupter:
    """A client that needs a server at a random moment after another client's step. So pgweir inspects the sessions of
    other clients, and moves them to another server, at moments that no script chooses.
    """

    REQUESTS = (*(query(text) for text in (
        "SELECT 1", "SELECT 1", "SELECT 1", "SET app.a = 'interrupted'", "SET work_mem = '9MB'", "DISCARD ALL",
        "PREPARE p1 AS SELECT 'interrupted'", "SELECT lib.hidden('interrupted')", "SET search_path = pg_catalog")),
        parse("SELECT 'interrupted'", "q1") + extended("SELECT 2") + SYNC)
    # The longest pauses in seconds after a step.
    PAUSES = (0, 0, 0.0005, 0.002, 0.01)

    def __init__(self, address, user, rng):
        self._client = RawClient.tcp(*address)
        self._client.login(user, world.POOLED)
        self.socket = self._client.sock
        self.socket.setblocking(False)
        self._rng, self._buffer, self._owed, self.due = rng, bytearray(), 0, None

    def note_step(self):
        """Plans a request if none is under way."""
        if not self._owed and self.due is None:
            self.due = time.monotonic() + self._rng.uniform(0, self._rng.choice(self.PAUSES))

    def ask_if_due(self):
        if self.due is not None and self.due <= time.monotonic():
            self.due, self._owed = None, 2
            # Without this, the client could stay pinned because of sequence values.
            self.socket.send(self._rng.choice(self.REQUESTS) + query("DISCARD ALL"))

    def read(self):
        got = self.socket.recv(1 << 18)
        if not got:
            raise AssertionError("pgweir has disconnected a client that interrupts others")
        self._buffer += got
        self._owed -= sum(kind == "Z" for kind, _ in replies.split(self._buffer))

    def waits(self):
        return "a client that interrupts others waits" if self._owed else "a client that interrupts others has its answer"

    def close(self):
        self._client.close()


def play(address, queues, expected, fresh, neighbours=(), interrupters=(), seconds=None):
    """Plays queues of scripts, one client each, at once; returns the first mismatch or None.

    `neighbours` are scripts that are played again and again, and not compared. After `seconds`, all clients disconnect
    at whatever step they are.
    """
    queues = [list(queue) for queue in queues]
    return _Stage(address, queues, expected, fresh, list(neighbours), interrupters, seconds).run()


class _Stage:
    """All players, and which ones start after another has ended."""

    def __init__(self, address, queues, expected, fresh, neighbours, interrupters, seconds):
        self.address, self.queues, self.expected, self.fresh = address, queues, expected, fresh
        self.selector = selectors.DefaultSelector()
        self.neighbours, self.interrupters = neighbours, interrupters
        self.end = None if seconds is None else time.monotonic() + seconds
        self.playing = {}
        for one in interrupters:
            self.selector.register(one.socket, selectors.EVENT_READ, one)

    def run(self):
        try:
            return self._run()
        finally:
            for player in list(self.playing):
                player.close()
            self.selector.close()

    def _run(self):
        for script in self.neighbours:
            self._start(script, None, None)
        for queue in self.queues:
            self._start_next(queue)
        while any(queue is not None for queue in self.playing.values()):
            if self.end is not None and self.end <= time.monotonic():
                return None
            for key, _ in self._events():
                if key.data in self.interrupters:
                    key.data.read()
                    continue
                wrong = self._moved(key.data)
                if wrong:
                    return wrong
                for one in self.interrupters:
                    one.note_step()
        return None

    def _events(self):
        """Waits for answers, and meanwhile lets the interrupters send their requests when these are due."""
        stuck_at = time.monotonic() + STUCK_S
        while True:
            for one in self.interrupters:
                one.ask_if_due()
            times = [one.due for one in self.interrupters if one.due is not None]
            until = min([stuck_at, *times, *([] if self.end is None else [self.end])])
            events = self.selector.select(max(until - time.monotonic(), 0))
            if events or self.end is not None and self.end <= time.monotonic():
                return events
            if stuck_at <= time.monotonic():
                raise Stuck("\n".join(one.waits() for one in [*self.playing, *self.interrupters]))

    def _moved(self, player):
        queue = self.playing[player]
        fileno = player.socket.fileno()
        wrong = player.readable()
        if wrong and queue is not None:
            return wrong
        if not player.closed and not wrong:
            return None
        self.selector.unregister(fileno)
        del self.playing[player]
        if queue is None:
            self._start(player.script, None, None)
        else:
            self._start_next(queue)
        return None

    def _start_next(self, queue):
        if queue:
            script = queue.pop(0)
            self.fresh(script.who, world.POOLED)
            self._start(script, self.expected[script.name], queue)

    def _start(self, script, expected, queue):
        player = Player(self.address, script, expected)
        self.selector.register(player.socket, selectors.EVENT_READ, player)
        self.playing[player] = queue

