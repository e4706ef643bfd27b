"""Seeded scripts: the messages of one client, step by step."""

import random
import re
from dataclasses import dataclass

import rawclient as wire
from differential import kinds

STEPS = 45


@dataclass(frozen=True)
class Step:
    """The bytes to send, their description, and the number of ReadyForQuery messages that answer them."""

    words: str
    said: bytes
    answers: int
    statements: int


@dataclass(frozen=True)
class Script:
    """A client's login, and all its steps."""

    name: str
    who: int
    user: str
    parameters: dict
    steps: tuple
    # Whether the client connects by another entry of [databases] for the same database.
    by_alias: bool = False


# Startup parameters that a client may come with.
LOGINS = (
    {}, {}, {},
    {"application_name": "first"},
    {"DateStyle": "German, DMY", "TimeZone": "Asia/Tokyo"},
    {"options": "-c search_path=lib,public -c work_mem=5MB"},
    {"options": "-c app.a=of\\ the\\ startup --enable_seqscan=off"},
    {"client_encoding": "LATIN1", "IntervalStyle": "iso_8601"},
    {"extra_float_digits": "0", "search_path": '"$user", lib, public'},
)


# Statements that send notifications, which listening clients receive.
NOTIFIES = re.compile("notify|lib.say", re.IGNORECASE)
READS_SEQUENCE = re.compile(r"(currval|lastval)\((?:[^()]|\([^()]*\))*\)", re.IGNORECASE)
LEAVES = re.compile("DISCARD ALL|^BEGIN")
# Only the role that has prepared a transaction may end it. Until then, its locks could block the script.
IDENTITY = re.compile("ROLE|AUTHORIZATION|DISCARD ALL", re.IGNORECASE)
# Resets values of the client's startup packet: until the end of its transaction, the client has the server's default.
RESETS = re.compile("RESET|DISCARD ALL|DEFAULT|TIME ZONE LOCAL", re.IGNORECASE)


def script(seed, number, who, reads_sequences=True):
    """The script that client `who` plays as the number-th of a run. A client that reads values of sequences (currval,
    lastval) keeps its server. Without `reads_sequences`, the script reads none, so that its session moves more often. With
    an odd number, such a script also has no other statement that keeps the client on its server.
    """
    moves = not reads_sequences and isinstance(number, int) and number % 2 == 1
    rng = random.Random(f"{seed}/{number}")
    user = random.Random(f"{seed}/user").choice(("diff", "diff", "diff_super"))
    login = rng.choice(LOGINS)
    maker = Maker(rng, kinds.Names(who, number), bool(login), reads_sequences, moves)
    while len(maker.steps) < STEPS:
        maker.block()
    maker.say("ROLLBACK")
    maker.say(kinds.read_everything(maker.names))
    return Script(f"{seed}/{number}", who, user, login, tuple(maker.steps), rng.random() < 0.2)


class Maker:
    """Chooses random statements, and builds messages of them."""

    def __init__(self, rng, names, has_startup_values, reads_sequences, moves):
        self.rng, self.names, self.steps = rng, names, []
        self.has_startup_values, self.reads_sequences, self.moves = has_startup_values, reads_sequences, moves

    def one_of_several(self):
        """A statement that shares its transaction with others."""
        while True:
            sql = kinds.statement(self.rng, self.names, self.moves)
            # After UNLISTEN, a client may still receive notifications of the same transaction.
            if "UNLISTEN" not in sql:
                # Startup values that RESET takes away come back at the end of the transaction.
                return "SELECT 1" if self.has_startup_values and RESETS.search(sql) else sql

    def block(self):
        """Returns some single statements, or a transaction of several."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.12:
            self.transaction()
        elif kind < 0.24:
            self.pipeline()
        elif kind < 0.34:
            self.several()
        elif kind < 0.38:
            self.two_phase()
        elif kind < 0.42:
            self.copy()
        elif kind < 0.50:
            self.burst()
        else:
            self.statements(rng.randint(1, 3))
        if rng.random() < 0.5:
            self.any_form(kinds.read(rng, self.names))

    def statements(self, count):
        for _ in range(count):
            if self.rng.random() < (0.4 if self.moves else 0.2):
                self.protocol_statement()
            else:
                sql = kinds.statement(self.rng, self.names, self.moves)
                if self.has_startup_values and RESETS.search(sql):
                    self.say("ROLLBACK")
                self.any_form(sql)

    def transaction(self):
        rng = self.rng
        self.any_form(rng.choice(("BEGIN", "BEGIN", "START TRANSACTION", "BEGIN ISOLATION LEVEL SERIALIZABLE")))
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.3:
                name = rng.choice("xy")
                self.any_form(rng.choice(
                    (f"SAVEPOINT {name}", f"ROLLBACK TO {name}", f"RELEASE {name}", f"SAVEPOINT {name}")))
            self.any_form(self.one_of_several())
        self.any_form(rng.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "END", "COMMIT AND CHAIN", "ABORT")))
        if rng.random() < 0.9:
            self.any_form("ROLLBACK")

    def two_phase(self):
        rng, names = self.rng, self.names
        gid = names.gid()
        # UNLISTEN in a session that has never listened is nothing, and forbids nothing.
        self.say("ROLLBACK")
        self.say("BEGIN")
        self.say(rng.choice((f"INSERT INTO {names.schema}.plain VALUES (7)", "SET LOCAL work_mem = '3MB'",
                             "SET work_mem = '2MB'", "SELECT lib.hidden('prepared')", "CREATE TEMP TABLE t1 (n int)",
                             kinds.later(names))))
        self.say(f"PREPARE TRANSACTION '{gid}'")
        between = self.one_of_several()
        self.any_form("SELECT 1" if IDENTITY.search(between) else between)
        self.say("ROLLBACK")
        self.say(rng.choice(("COMMIT", "ROLLBACK")) + f" PREPARED '{gid}'")

    def copy(self):
        table = self.rng.choice((f"{self.names.schema}.plain (id)", f"{self.names.schema}.trig"))
        rows = b"".join(b"%d\n" % n for n in range(self.rng.randint(0, 3)))
        bad = b"not a number\n" if self.rng.random() < 0.2 else b""
        sql = f"COPY {table} FROM STDIN"
        said = wire.query(sql) + wire.copy_data(rows + bad) + wire.COPY_DONE
        self.steps.append(Step(f"{sql} with {rows + bad!r}", said, 1, 1))

    def several(self):
        """Several statements in one simple Query."""
        rng = self.rng
        # PostgreSQL keeps the whole request as the text of each statement that is prepared in it.
        parts = [self.one_of_several() for _ in range(rng.randint(2, 4))]
        parts = [part for part in parts if not part.startswith("PREPARE ")] or ["SELECT 1"]
        if rng.random() < 0.25:
            parts.insert(rng.randint(1, len(parts)), rng.choice(("COMMIT", "BEGIN", "ROLLBACK", "SELECT 1/0")))
        self.say("; ".join(parts), len(parts))

    def pipeline(self):
        """Returns several requests of the extended protocol in one write, with one or several Syncs."""
        rng = self.rng
        words, said, answers, statements = [], b"", 0, 0
        for sql in self._at_once():
            said += self._extended(sql)
            words.append(sql)
            statements += 1
            if rng.random() < 0.4:
                said += wire.SYNC
                answers += 1
                words.append("Sync")
        self.steps.append(Step(" | ".join([*words, "Sync"]), said + wire.SYNC, answers + 1, statements))

    def burst(self):
        """Returns several requests in one write, in different forms."""
        words, said = [], b""
        for sql in self._at_once():
            words.append(sql)
            said += wire.query(self._bytes(sql)) if self.rng.random() < 0.6 else self._extended(sql) + wire.SYNC
        self.steps.append(Step(" || ".join(words), said, len(words), len(words)))

    def _at_once(self):
        """Returns statements that are sent in one write."""
        parts = [self.one_of_several() for _ in range(self.rng.randint(2, 5))]
        if self.rng.random() < 0.3:
            parts.insert(self.rng.randint(0, len(parts)), self.rng.choice(("COMMIT", "BEGIN", "ROLLBACK", "SELECT 1/0")))
        # Notifications of requests in the same write come with the last answer, or at the end of a transaction that the
        # write leaves open. A client that has stopped listening may not receive them.
        is_heard = any(NOTIFIES.search(sql) for sql in parts)
        return [sql for sql in parts if not (is_heard and LEAVES.search(sql))]

    def protocol_statement(self):
        """Something with a named prepared statement of the protocol."""
        rng, names = self.rng, self.names
        name = rng.choice(kinds.STATEMENTS)
        words, said, answers = [], b"", 1
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(("parse", "parse", "parse", "run", "run", "run", "describe", "close", "sql"))
            if kind == "parse":
                sql = kinds.preparable(rng, names)
                words.append(f"Parse {name}: {sql}")
                said += wire.parse(self._bytes(sql), name)
            elif kind == "run":
                words.append(f"Bind, Execute {name}")
                said += wire.bind((), name=name) + wire.execute()
            elif kind == "describe":
                words.append(f"Describe {name}")
                said += wire.describe("S", name)
            elif kind == "close":
                words.append(f"Close {name}")
                said += wire.close("S", name)
            else:
                # In the protocol a name is the name itself; in SQL it is folded, if it is not in quotes.
                quoted = '"' + name.replace('"', '""') + '"'
                sql = rng.choice((f"DEALLOCATE {quoted}", f"EXECUTE {quoted}", f"PREPARE {quoted} AS SELECT 'sql'"))
                words.append(sql)
                said += self._extended(sql)
            if rng.random() < 0.2:
                said += wire.SYNC
                answers += 1
                words.append("Sync")
        self.steps.append(Step(" | ".join([*words, "Sync"]), said + wire.SYNC, answers, len(words)))

    def any_form(self, sql):
        """Returns a statement as a simple query or by the extended protocol."""
        if self.rng.random() < 0.7:
            self.say(sql)
        else:
            self.steps.append(Step(f"{sql} | Sync", self._extended(sql) + wire.SYNC, 1, 1))

    def say(self, sql, statements=1):
        self.steps.append(Step(sql, wire.query(self._bytes(sql)), 1, statements))

    def _extended(self, sql):
        describe = wire.describe() if self.rng.random() < 0.6 else b""
        return wire.parse(self._bytes(sql)) + wire.bind() + describe + wire.execute()

    def _bytes(self, sql):
        return (sql if self.reads_sequences else READS_SEQUENCE.sub("7", sql)).encode()
