"""`pgweir drain`: clients leave between their transactions, before the process is stopped."""

import contextlib
import signal
import subprocess
import threading
import time

import psycopg
import pytest

import machine
import rawclient as wire
from cluster import SUPERUSER
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from pooler import binary, default_users
from scraping import UnixConnection, ask, get, scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no such command")


@pytest.fixture
def drained(start, http_port):  # noqa: F811 (fixtures)
    """Starts a pooler, and drains it by `pooler.drain(delay, timeout)`, which returns the command while it runs."""
    commands = []

    def start_one(**settings):
        pooler = start(http_listen=f"127.0.0.1:{http_port}", **settings)
        pooler.http_socket = pooler.folder / "http.sock"
        pooler.settings["http_listen"] += f", {pooler.http_socket}"
        pooler.write_files()
        pooler.console("RELOAD")

        def drain(delay=0, timeout=60):
            command = [binary(), "drain", "--delay", str(delay), "--timeout", str(timeout), pooler.ini_path]
            commands.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
            return commands[-1]

        pooler.drain = drain
        return pooler

    yield start_one
    for command in commands:
        command.kill()
        command.communicate()


def end_of(command):
    _, words = command.communicate(timeout=30)
    return command.returncode, words


def is_closed(db):
    with contextlib.suppress(psycopg.Error):
        db.execute("SELECT 1")
    return db.closed


class Busy(threading.Thread):
    """A client that runs transactions without a pause until its connection ends before BEGIN is answered."""

    def __init__(self, pooler, statement="SELECT 1", **names):
        super().__init__(daemon=True)
        self._pooler, self._statement, self._names = pooler, statement, names
        self.committed, self.failure = 0, None
        self.has_left = False

    def run(self):
        try:
            with self._pooler.connect(**self._names) as db:
                while True:
                    try:
                        db.execute("BEGIN")
                    except psycopg.OperationalError:
                        self.has_left = True
                        return
                    db.execute(self._statement)
                    db.execute("COMMIT")
                    self.committed += 1
        except psycopg.Error as error:
            self.failure = error


def test_clients_leave_between_their_transactions(drained):
    """A client in a transaction finishes it; one that never pauses leaves after a transaction."""
    pooler = drained(default_pool_size=5)
    idle, pinned, busy = pooler.connect(), pooler.connect(), Busy(pooler)
    pinned.execute("CREATE TEMP TABLE kept (n int)")
    with pooler.connect() as working:
        working.execute("BEGIN")
        busy.start()
        machine.wait_until(lambda: busy.committed > 10, what="the busy client works")
        command = pooler.drain()
        machine.wait_until(lambda: get(pooler.http, "/readyz").status == 503, what="it is not ready")
        busy.join(20)
        assert busy.has_left and busy.failure is None
        for db in (idle, pinned):
            with pytest.raises(psycopg.errors.AdminShutdown, match="terminating connection due to administrator command"):
                db.execute("SELECT 1")
        assert working.execute("SELECT 1").fetchone() == (1,)
        assert command.poll() is None, "it waits for the client in a transaction"
        working.execute("COMMIT")
        code, words = end_of(command)
        assert (code, words.splitlines()[-1]) == (0, "pgweir drain: no client is left: pgweir can be stopped")
        assert is_closed(working)
    assert scrape(pooler.http).value("pgweir_draining") == 1
    pooler.expect_log("lets clients leave between their transactions")
    pooler.signal(signal.SIGINT)
    assert pooler.wait_end() == 0


def assert_leaves(pooler, busy):
    """Drains the process while a busy client works: the client leaves between two transactions."""
    busy.start()
    machine.wait_until(lambda: busy.committed > 10, what="the busy client works")
    code, words = end_of(pooler.drain(timeout=15))
    assert code == 0, words
    busy.join(10)
    assert busy.has_left and busy.failure is None


def test_a_busy_client_that_has_broken_logins_leaves(drained, newest_pg):
    """A login trigger refuses each login since a table was dropped: the drain needs no other server for the client that dropped it."""
    newest_pg.run("DROP DATABASE IF EXISTS refusing")
    newest_pg.run("CREATE DATABASE refusing")
    newest_pg.run("CREATE TABLE logins (who text); CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql AS $k$ BEGIN"
                  " INSERT INTO logins VALUES (session_user); END $k$; CREATE EVENT TRIGGER l ON login EXECUTE FUNCTION at_login()",
                  dbname="refusing")
    pooler = drained(default_pool_size=2, databases={"refusing": newest_pg.entry(dbname="refusing")}, users=default_users() | {SUPERUSER: ""})
    busy = Busy(pooler, "DROP TABLE IF EXISTS logins", user=SUPERUSER, dbname="refusing")
    assert_leaves(pooler, busy)


def test_a_busy_client_that_keeps_its_server_leaves(drained):
    """Its sessions are not inspected while nobody else needs the server: only the drain asks for that."""
    pooler = drained(default_pool_size=5)
    busy = Busy(pooler, "DO $$ BEGIN PERFORM set_config('app.shop', 'one', false); END $$")
    assert_leaves(pooler, busy)


def test_new_clients_run_a_transaction_while_the_process_is_drained(drained):
    """A load balancer may still send clients: their first transaction runs."""
    pooler = drained()
    with pooler.connect() as working:
        working.execute("BEGIN")
        command = pooler.drain()
        machine.wait_until(lambda: "lets clients leave" in pooler.log(), what="clients leave")
        with pooler.connect() as late:
            assert late.execute("SELECT 1").fetchone() == (1,)
        working.execute("ROLLBACK")
    assert end_of(command)[0] == 0


def test_nobody_leaves_before_load_balancers_could_notice(drained):
    pooler = drained()
    with pooler.connect() as db:
        command = pooler.drain(delay=600)
        machine.wait_until(lambda: get(pooler.http, "/readyz").status == 503, what="it is not ready")
        machine.stays_true(lambda: db.execute("SELECT 1").fetchone() == (1,), 0.5)
        assert command.poll() is None
        # Another drain does not wait for the first one.
        assert end_of(pooler.drain())[0] == 0
        assert is_closed(db)


def test_the_time_is_limited(drained):
    pooler = drained()
    with pooler.connect() as working:
        working.execute("BEGIN")
        code, words = end_of(pooler.drain(timeout=0.3))
        assert code == 2
        assert "1 client is left after 0.3 s: it is in a transaction or a base backup" in words
        assert working.execute("SELECT 1").fetchone() == (1,)
        working.execute("COMMIT")
        machine.wait_until(lambda: is_closed(working), what="the client leaves later")


@pytest.mark.shows("drain_rate")
def test_idle_clients_leave_one_after_the_other(drained):
    """No more than `drain_rate` in a second; those of the first third of a second may leave at once."""
    pooler = drained(drain_rate=20)
    clients = [pooler.raw() for _ in range(30)]
    begun = time.monotonic()
    command = pooler.drain(timeout=60)

    def have_left():
        left = scrape(pooler.http).value("pgweir_drained_clients_total")
        assert left <= 20 * (time.monotonic() - begun + 0.34), "the rate is exceeded"
        return left == len(clients)

    machine.wait_until(have_left, what="all clients have left")
    assert end_of(command)[0] == 0
    assert time.monotonic() - begun >= 1, "30 clients, of whom 6 may leave at once"


def test_the_time_of_a_drain_can_require_a_higher_rate(drained):
    pooler = drained(drain_rate=1)
    clients = [pooler.raw() for _ in range(30)]
    assert end_of(pooler.drain(timeout=4))[0] == 0
    for client in clients:
        client.close()


def test_a_replication_stream_leaves_last(drained, newest_pg):
    """The receiver connects again and goes on, so it may leave; but it may belong to a base backup, so it leaves last."""
    pooler = drained()
    stream = pooler.raw(user="replicator", dbname="app", replication="database")
    position = wire.rows(stream.query("IDENTIFY_SYSTEM"))[0][2]
    stream.send(wire.query(f"START_REPLICATION PHYSICAL {position}"))
    machine.wait_until(lambda: newest_pg.rows("SELECT 1 FROM pg_stat_replication"), what="it streams")
    with pooler.connect() as working:
        working.execute("BEGIN")
        command = pooler.drain()
        pooler.expect_log("lets clients leave")
        machine.stays_true(lambda: newest_pg.rows("SELECT 1 FROM pg_stat_replication") != [], 1, "it streams on")
        assert command.poll() is None
        working.execute("COMMIT")
    assert end_of(command)[0] == 0
    machine.wait_until(lambda: not newest_pg.rows("SELECT 1 FROM pg_stat_replication"), what="the stream has ended")
    stream.close()


def test_a_drain_says_what_it_needs(drained):
    pooler = drained()
    for query in ("clients=stay", "clients=leave&within=soon", "clients=leave&within=-1", "within=5"):
        assert ask(UnixConnection(pooler.http_socket), f"/drain?{query}", "POST").status == 400
    assert get(pooler.http, "/drain?clients=leave", "POST").status == 401
    pooler.settings["http_listen"] = f"127.0.0.1:{pooler.http}"
    pooler.write_files()
    code, words = end_of(pooler.drain())
    assert code == 1
    assert f"{pooler.ini_path}: http_listen names no Unix socket" in words
    pooler.settings["http_listen"] = pooler.folder / "elsewhere.sock"
    pooler.write_files()
    code, words = end_of(pooler.drain())
    assert code == 1
    assert f"cannot connect to {pooler.folder}/elsewhere.sock: No such file" in words
