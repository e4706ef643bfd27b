"""Runs lines on a direct connection, which shows that they change session state, and through the pooler with one
server.
"""

import cluster as clusters
import machine
import rawclient as wire
from leaks import line as lines
from leaks.look import Looker, Refused
from rawclient import RawClient

USER = "trusty"
WAIT_S = 20
# Seconds after which a server has begun to process a message.
WORKS_S = 0.2
# How often the test searches for the server of a client that has disconnected.
LOOKS = 8

ROLES = """
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leak_role') THEN
    CREATE ROLE leak_role; GRANT leak_role TO trusty;
  END IF;
END $$"""
DATABASE = """
GRANT ALL ON SCHEMA public TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC;
CREATE TABLE plain (a int, b text);
INSERT INTO plain VALUES (1, 'one');
CREATE TABLE one (a int);
INSERT INTO one VALUES (1);
CREATE FUNCTION certified(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
"""


class Names:
    """The names in a line's messages."""

    def __init__(self, x, cluster, database):
        self.x, self._cluster, self._database = x, cluster, database

    def sql(self, text):
        return lines.filled(text, self.x)

    def oid(self, expression):
        """An OID by an expression like `'{x}_d'::regtype`."""
        return self._cluster.value(f"SELECT ({self.sql(expression)})::oid", dbname=self._database)


def is_played(number, cluster, full, kinds):
    """Returns whether the line of this number of a table is played on a cluster.

    With `--full`, each line is played on all four kinds of clusters; otherwise on one or two (`kinds`). Two kinds differ in
    the version and in the extension.
    """
    version = clusters.VERSIONS.index(cluster.version)
    kind = 2 * version + (version + (cluster.assist is not None)) % 2
    share = 4 // kinds
    return full or number % share == kind % share


def make_database(cluster, name, setups):
    """A database with the objects of lines; `setups` are texts."""
    cluster.run(ROLES)
    cluster.run(f"CREATE DATABASE {name} TEMPLATE template0")
    with cluster.connect(dbname=name) as db:
        db.execute(DATABASE)
        for setup in setups:
            db.execute("RESET ALL")
            if setup:
                db.execute(setup)
    cluster.run(f"ALTER DATABASE {name} OWNER TO {USER}")


class Stage:
    """A database behind a pooler with one server for it."""

    def __init__(self, cluster, pooler, database):
        self.cluster, self.pooler, self.database = cluster, pooler, database
        self._admin = cluster.connect()
        self._looker = Looker(self.direct)

    def close(self):
        self._admin.close()

    def direct(self, **parameters):
        client = RawClient.tcp(self.cluster.host, self.cluster.port, WAIT_S)
        return client.login(USER, self.database, **parameters)

    def pooled(self, entry=None, **parameters):
        for _ in range(LOOKS):
            try:
                return self.pooler.raw(USER, entry or self.database, timeout=WAIT_S, **parameters)
            except wire.LoginRefused as refused:  # the pool's first server is slow to start
                last = refused
        raise last

    def warm(self):
        """The pooler reads the database's catalog when a server comes free for the first time."""
        with self.pooled() as client:
            for _ in range(2):
                client.query("SELECT 1")

    # -- one line

    def directly(self, line, x, form):
        """Describes the state of a direct session after the line."""
        with self.direct(**line.login) as client:
            self._says(line, x, form, client, self._by_direct)
            found = self._looker.leftover_state(client, _customs(line, x), lines.filled(line.sequence, x))
            client.send(wire.TERMINATE).rest()
            return found

    def through(self, line, x, form):
        """Describes the state that neighbours see while the client of the line is connected, and after it has left."""
        customs, sequence = _customs(line, x), lines.filled(line.sequence, x)
        with self.pooled(**line.login) as client:
            client.query("SELECT 1")
            self._says(line, x, form, client, self._by_pooled)
            with self.pooled() as neighbour:
                found = self._seen(neighbour, customs, sequence)
        return found + self._on_all_servers(customs, sequence)

    def _by_direct(self, entry, sql):
        with self.direct() as other:
            return other.query(sql)

    def _by_pooled(self, entry, sql):
        with self.pooled(f"{self.database}{entry}") as other:
            return other.query(sql)

    def _says(self, line, x, form, client, by):
        names, status = Names(x, self.cluster, self.database), b"I"
        for said in line.says:
            if isinstance(said, lines.By):
                by(said.entry, names.sql(said.sql))
                continue
            try:
                if isinstance(said, lines.During):
                    status = _say_during(client, said, names, by)
                else:
                    status = _say(client, said, names, form)
            except wire.Closed:
                return
            if status is None:
                client.close()
                return
        if status != b"I":
            client.query("ROLLBACK")

    def _seen(self, neighbour, customs, sequence):
        try:
            return self._looker.leftover_state(neighbour, customs, sequence)
        except Refused:
            return []

    def _on_all_servers(self, customs, sequence):
        """Looks at each server that the pooler holds, one neighbour for each."""
        found, seen, kept = [], set(), []
        for _ in range(LOOKS):
            neighbour = self.pooled()
            kept.append(neighbour)
            try:
                neighbour.query("BEGIN")
                seen.add(int(neighbour.value("SELECT pg_catalog.pg_backend_pid()")))
            except (wire.Closed, TimeoutError, AssertionError):
                if seen:
                    break
            else:
                found += self._seen(neighbour, customs, sequence)
            unseen = self._servers() - seen
            if not unseen or unseen <= self._out_of_reach():
                break
        for neighbour in kept:
            neighbour.close()
        return found

    def _servers(self):
        rows = self._admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", (self.database,))
        return {pid for (pid,) in rows.fetchall()}

    def _out_of_reach(self):
        """The servers on which a client of this entry never runs a statement: those that listen for clients, and those of
        other entries.
        """
        return {row["remote_pid"] for row in self.pooler.console("SHOW SERVERS")
                if row["mode"] == "listener" or row["database"] != self.database}

    def forget(self):
        """Closes all servers, so that a leak is reported only once."""
        self._admin.execute("SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE datname = %s",
                            (self.database,))
        self.warm()


def _customs(line, x):
    return [lines.filled(name, x) for name in ("app.{x}", *line.customs)]


def _say(client, said, names, form):
    """Sends a text or messages. Returns the transaction status afterwards, or None for a client that disconnects."""
    if isinstance(said, lines.Leave):
        client.send(said.said(names))
        return None
    if isinstance(said, lines.Query):
        raw = wire.query(names.sql(said.sql))
    elif isinstance(said, lines.Wire):
        raw = said.said(names)
    else:
        raw = lines.messages(names.sql(said), form)
    answers = client.ask(raw)
    return answers[-1].body if answers else b"I"


def _say_during(client, said, names, by):
    """Lets another client run a statement while the server works. Returns the transaction status after the answers, or
    None for a client that disconnects.
    """
    begun, rest = said.said(names), said.then(names) if said.then else b""
    client.send(begun)
    machine.wait_until(machine.after(WORKS_S))
    if said.leaves == "before":
        client.close()
    by(said.entry, names.sql(said.sql))
    if said.leaves:
        return None
    client.send(rest)
    for _ in range(wire.count_answers(begun + rest)):
        answers = client.until_ready()
    return answers[-1].body


def by_extended_and_simple(line):
    """The forms in which a line differs."""
    plain = [said for said in line.says if isinstance(said, str)]
    return line.forms if plain else line.forms[:1]
