"""Servers that end: the errors that clients get, and what the pool does next."""

import contextlib
import threading
import time

import pytest

import fakeserver as fake
import machine
import rawclient as wire
from rawclient import LoginRefused, query
from test_certificates import read

BACKEND = "SELECT pg_backend_pid()"
# SQLSTATEs of pgweir's own errors: PgBouncer's for all cases, PostgreSQL's for a lost server.
LOST = ("08P01", "08006")
TERMINATED = ("57P01", "terminating connection due to administrator command")


def terminate(pg, backend):
    assert pg.value("SELECT pg_terminate_backend(%s)", int(backend))
    machine.wait_until(lambda: int(backend) not in pg.backends(), what="the backend is gone")


def last_words(client, pgbouncer):
    """The error that ends a connection; PgBouncer adds one of its own."""
    if not pgbouncer:
        return client.error_and_close()
    return next(m for m in client.rest() if m.kind == "E")


def test_idle_server(start_pooler, pg, workers):
    """The client does not notice."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    client = pooler.raw()
    for _ in range(3):
        terminate(pg, client.value(BACKEND))
        machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
        client.quiet(0.05)
        assert client.value("SELECT 1") == "1"


def test_idle_server_that_takes_its_time_to_go(start_pooler, start_server, workers):
    """After an error that ends its session, a server is not lent again."""
    ends = threading.Event()

    def behave(connection):
        if not connection.welcome():
            return
        if connection.number == 1:
            connection.read()
            connection.send(fake.answer("first"))
            ends.wait(20)
            connection.send(fake.error(*TERMINATED, "FATAL"))
            connection.rest()
        else:
            connection.serve(lambda _: fake.answer("second"))

    server = start_server(behave)
    pooler = start_pooler(None, databases={"app": server.database}, workers=workers)
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "first"
        ends.set()
        machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
        assert client.value("SELECT 1") == "second"
    pooler.expect_log(f"closing because: {TERMINATED[1]}")


def test_server_that_ends_right_after_an_answer(start_pooler, start_server):
    """Requests that the client has sent in the same write, and that wait for the lost server's answer, go to the next
    server.
    """
    answers = {"P": fake.frame("1"), "B": fake.frame("2"), "E": fake.data_row("second") + fake.frame("C", fake.text("SELECT 1"))}

    def behave(connection):
        if not connection.welcome():
            return
        said = b""
        while (message := connection.read()).kind not in "SX":
            said += answers.get(message.kind, b"")
        if message.kind == "S" and connection.number > 1:
            connection.send(said + fake.READY)
            connection.rest()
        elif message.kind == "S":
            connection.send(said + fake.READY + fake.error(*TERMINATED, "FATAL"))

    server = start_server(behave)
    pooler = start_pooler(None, databases={"app": server.database})
    with pooler.raw() as client:
        client.send(wire.parse("SELECT 1", "s") + wire.SYNC + wire.bind(name="s") + wire.execute() + wire.SYNC)
        assert wire.kinds(client.until_ready()) == "1Z"
        assert wire.kinds(client.until_ready()) == "2DCZ"


def test_server_in_a_transaction(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    client = pooler.raw()
    client.query("BEGIN")
    terminate(pg, client.value(BACKEND))
    error = last_words(client, pooler.pgbouncer)
    assert (error.sqlstate, error.words) == TERMINATED
    assert error.fields["S"] == "FATAL"
    assert pooler.raw().value("SELECT 1") == "1"


def test_server_in_session_mode(start_pooler, pg):
    pooler = start_pooler(pg, pool_mode="session")
    client = pooler.raw()
    terminate(pg, client.value(BACKEND))
    errors = wire.errors(client.rest())
    assert errors[0] == TERMINATED or errors[0][0] in LOST
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.pgweir_only("closes the client")
@pytest.mark.parametrize("sent", [
    query("SELECT pg_sleep(30)"),
    wire.extended("SELECT pg_sleep(30)") + wire.SYNC,
], ids=["simple", "extended"])
def test_server_in_a_query(start_pooler, pg, workers, sent):
    """Outside of a transaction the client receives the server's error, and stays connected."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    client = pooler.raw()
    for _ in range(2):
        client.send(sent)
        (backend,) = machine.wait_until(
            lambda: pg.backends("state = 'active' AND query = 'SELECT pg_sleep(30)'"), what="it runs")
        terminate(pg, backend)
        messages = client.until_ready()
        assert wire.errors(messages) == [TERMINATED]
        assert messages[-1].body == b"I"
        assert client.value("SELECT 1") == "1"


def test_server_in_a_pipeline(start_pooler, pg):
    """Every request is answered, or the connection is closed: no client waits without end."""
    pooler = start_pooler(pg, default_pool_size=1)
    client = pooler.raw()
    client.send(query("SELECT pg_sleep(30)"), query("SELECT 2"), query("SELECT 3"))
    (backend,) = machine.wait_until(
        lambda: pg.backends("state = 'active' AND query = 'SELECT pg_sleep(30)'"), what="it runs")
    terminate(pg, backend)
    heard = []
    try:
        while wire.kinds(heard).count("Z") < 3:
            heard.append(client.read())
    except wire.Closed:
        pass
    assert wire.errors(heard)[0][0] in ("57P01", *LOST)
    assert wire.kinds(heard).count("Z") in (0, 3)
    assert pooler.raw().value("SELECT 1") == "1"


def test_server_in_copy_in(start_pooler, pg):
    pg.run("DROP TABLE IF EXISTS t; CREATE TABLE t (x text)", dbname="app")
    pooler = start_pooler(pg, default_pool_size=1)
    client = pooler.raw()
    client.send(query("COPY t FROM STDIN"))
    client.expect("G")
    (backend,) = pg.backends("state = 'active' AND query LIKE 'COPY t %'")
    terminate(pg, backend)
    try:
        client.send(wire.copy_data(b"x\n"), wire.COPY_DONE)
        heard = client.until("E", keep="E")
    except (wire.Closed, ConnectionError):
        heard = []
    if not pooler.pgbouncer:
        assert [m.sqlstate for m in heard] == ["57P01"]
    assert pooler.raw().value("SELECT 1") == "1"


def test_server_in_copy_out(start_pooler, pg):
    """The server may end in the middle of a row: then no error can follow, only the end of the connection."""
    pg.run("DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT repeat('x', 1000) AS x"
           " FROM generate_series(1, 100000)", dbname="app")
    pooler = start_pooler(pg, default_pool_size=1)
    client = pooler.raw()
    client.send(query("COPY t TO STDOUT"))
    client.expect("Hd")
    (backend,) = pg.backends("state = 'active' AND query LIKE 'COPY t %'")
    pg.value("SELECT pg_terminate_backend(%s)", backend)
    try:
        heard = client.until("CE")
        assert heard[-1].kind == "E"
        assert {m.kind for m in heard[:-1]} <= {"d"}
    except wire.Closed:
        pass
    assert pooler.raw().value("SELECT 1") == "1"


def test_all_servers_at_once(start_pooler, pg, workers):
    """Idle clients stay, waiting ones are served."""
    pooler = start_pooler(pg, default_pool_size=3, workers=workers)
    clients = [pooler.raw() for _ in range(20)]
    for round_ in range(3):
        for client in clients:
            assert client.value(f"SELECT {round_}") == str(round_)
        pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'trusty'")
        machine.wait_until(lambda: not pg.backends("usename = 'trusty'"), what="all are gone")
        machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
    for client in clients:
        assert client.value("SELECT 9") == "9"


# -- servers that end without an error

ROLLED_BACK, UNKNOWN = "08006", "08007"
SILENT = "server conn crashed?"


def server_that_closes_at(sql):
    """A fake server that begins transactions, answers each query, and closes its connection without an error when it
    gets this text.
    """
    def behave(connection):
        if not connection.welcome():
            return
        status, said = b"I", b""
        while (message := connection.read()).kind != "X":
            asked = message.body.split(b"\0")[message.kind == "P"].decode() if message.kind in "QP" else ""
            if asked == sql and connection.number == 1 and message.kind == "Q":
                return
            status = {"BEGIN": b"T", "fail": b"E", "COMMIT": b"I"}.get(asked, status)
            said += {"P": fake.frame("1"), "B": fake.frame("2"), "D": fake.frame("n"),
                     "E": fake.frame("C", fake.text("OK")), "Q": fake.frame("C", fake.text("OK"))}.get(message.kind, b"")
            if message.kind == "S" and sql == "(sync)" and connection.number == 1:
                return
            if message.kind in "QS":
                connection.send(said + fake.frame("Z", status))
                said = b""
    return behave


@pytest.mark.pgweir_only("has one SQLSTATE for all cases")
@pytest.mark.parametrize("statistics", [1000, 0])
@pytest.mark.parametrize("before, last, expect", [
    (["BEGIN", "INSERT 1"], "COMMIT", UNKNOWN),
    (["BEGIN", "INSERT 1"], "/* a */ end ;", UNKNOWN),
    (["BEGIN", "INSERT 1"], "PREPARE TRANSACTION 'a'", UNKNOWN),
    (["BEGIN"], "INSERT 1; COMMIT", UNKNOWN),
    ([], "INSERT 1", UNKNOWN),
    (["BEGIN"], "INSERT 1", ROLLED_BACK),
    (["BEGIN", "INSERT 1"], "ROLLBACK", ROLLED_BACK),
    (["BEGIN", "fail"], "COMMIT", ROLLED_BACK),
    ([], "BEGIN", ROLLED_BACK),
])
def test_the_outcome_of_a_commit(start_pooler, start_server, before, last, expect, statistics):
    """A client whose COMMIT was sent and not confirmed learns that its outcome is unknown."""
    server = start_server(server_that_closes_at(last))
    pooler = start_pooler(None, databases={"app": server.database}, statement_statistics=statistics)
    client = pooler.raw()
    for sql in before:
        client.query(sql)
    client.send(query(last))
    error = client.until("E")[-1]
    if not statistics:
        expect = UNKNOWN
    assert error.sqlstate == expect
    assert error.words == (SILENT if expect == ROLLED_BACK else f"the outcome of the transaction is unknown: {SILENT}")
    assert ("rolled back" in error.fields["H"]) == (expect == ROLLED_BACK)


@pytest.mark.pgweir_only("has one SQLSTATE for all cases")
@pytest.mark.parametrize("before, last, expect", [
    (["BEGIN", "INSERT 1"], "COMMIT", UNKNOWN),
    (["BEGIN"], "INSERT 1", ROLLED_BACK),
    ([], "INSERT 1", UNKNOWN),
])
def test_the_outcome_of_a_commit_in_the_extended_protocol(start_pooler, start_server, before, last, expect):
    """The executed statements count, also those that are executed by the name of a prepared statement."""
    server = start_server(server_that_closes_at("(sync)"))
    pooler = start_pooler(None, databases={"app": server.database})
    client = pooler.raw()
    for sql in before:
        client.query(sql)
    client.send(wire.parse(last, "s") + wire.bind(name="s") + wire.execute() + wire.SYNC)
    error = client.until("E")[-1]
    assert error.sqlstate == expect


@pytest.mark.pgweir_only("has one SQLSTATE for all cases")
def test_a_lost_query_has_changed_nothing(start_pooler, start_server, newest_pg):
    """A SELECT outside of a transaction that, by the catalog, calls no function that may write."""
    def behave(connection):
        startup = connection.read_startup()
        if startup is None:
            return
        with wire.RawClient.tcp(newest_pg.host, newest_pg.port) as server:
            server.send(wire.u32(len(startup) + 4) + startup)
            threading.Thread(target=forward, args=(server.sock, connection.sock), daemon=True).start()
            while b"lost" not in (message := connection.read()).body:
                server.send(wire.frame(message.kind, message.body))

    newest_pg.run("CREATE DATABASE outcomes")
    newest_pg.run("CREATE TABLE t (a int); CREATE VIEW v AS SELECT * FROM t; GRANT ALL ON t, v TO trusty;"
                  "CREATE FUNCTION reads() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM t';"
                  "CREATE FUNCTION notifies() RETURNS int STABLE LANGUAGE sql AS 'SELECT 1 FROM pg_notify(''a'', ''b'')';"
                  "CREATE VIEW notified AS SELECT notifies();"
                  "CREATE FUNCTION writes() RETURNS int LANGUAGE sql AS 'INSERT INTO public.t VALUES (1) RETURNING 1';"
                  "CREATE VIEW written AS SELECT writes()", dbname="outcomes")
    between = start_server(behave)
    address = between.database.replace(" session_state=off", "").replace("dbname=app", "dbname=outcomes")
    pooler = start_pooler(None, databases={"app": address}, users={"trusty": "", "admin": "admin password"})
    assert read(pooler, user="trusty")["state"] == "known"
    for sql, expect in [
        ("SELECT * FROM v WHERE a = 'lost'::int", ROLLED_BACK),
        ("SELECT reads(), 'lost'", ROLLED_BACK),
        ("WITH lost AS (SELECT 1) TABLE lost", ROLLED_BACK),
        ("SELECT writes(), 'lost'", UNKNOWN),
        ("SELECT 'lost' FROM written", UNKNOWN),
        ("SELECT 'lost' FROM notified", UNKNOWN),
        ("WITH lost AS (INSERT INTO t VALUES (1) RETURNING *) TABLE lost", UNKNOWN),
    ]:
        for message in (query(sql), wire.parse(sql, "s") + wire.run("s") + wire.SYNC):
            with pooler.raw(timeout=10) as client:
                error = client.send(message).until("E")[-1]
            assert error.sqlstate == expect, sql
    newest_pg.run("DROP DATABASE outcomes WITH (FORCE)")


def forward(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


# -- all of PostgreSQL


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_clients_survive_a_server_restart(start_pooler, private_pg, workers, mode):
    pooler = start_pooler(private_pg, workers=workers, server_login_retry=1)
    idle = [pooler.raw() for _ in range(10)]
    for client in idle:
        client.value("SELECT 1")
    in_transaction = pooler.raw()
    in_transaction.query("BEGIN")
    private_pg.stop(mode)
    machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
    private_pg.start()
    error = last_words(in_transaction, pooler.pgbouncer)
    assert error.sqlstate in ("57P01", "57P02", *LOST)
    for client in idle:
        client.quiet(0.01)
        assert client.value("SELECT 1") == "1"
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.pgweir_only("refuses them if it has just failed to connect")
def test_connected_clients_wait_for_the_server(start_pooler, private_pg, workers):
    pooler = start_pooler(private_pg, workers=workers, server_login_retry=1)
    clients = [pooler.raw(timeout=30) for _ in range(5)]
    for client in clients:
        client.value("SELECT 1")
    private_pg.stop("immediate")
    machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
    for client in clients:
        client.send(query("SELECT 2"))
    clients[0].quiet(1.5)
    private_pg.start()
    for client in clients:
        assert wire.value(client.until_ready()) == "2"


def test_connected_clients_do_not_wait_for_ever(start_pooler, private_pg):
    pooler = start_pooler(private_pg, query_wait_timeout=1, server_login_retry=1)
    client = pooler.raw()
    client.value("SELECT 1")
    private_pg.stop("immediate")
    machine.wait_until(lambda: pooler.pool()["sv_idle"] == 0, what="the pool knows")
    client.send(query("SELECT 2"))
    started = time.monotonic()
    error = client.error_and_close()
    assert error.sqlstate in (*LOST, "57P03")
    assert time.monotonic() - started < 10


DOWN = "connect failed|server login has been failing"


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_login_while_the_server_is_down(start_pooler, private_pg, over):
    """The first login to the pool needs a server, and waits. Later logins are refused at once."""
    private_pg.stop("fast")
    host = private_pg.host if over == "tcp" else private_pg.socket_dir
    databases = {"app": f"host={host} port={private_pg.port}"}
    pooler = start_pooler(private_pg, databases=databases, server_login_retry=1, query_wait_timeout=5)
    first = pooler.socket(timeout=15)
    first.send(wire.startup(user="trusty", database="app"))
    pooler.expect_log("closing because: connect failed (age=")
    pooler.expect_log(" cannot connect: ")
    with pytest.raises(LoginRefused, match=DOWN + "|query_wait_timeout") as refused:
        pooler.raw(timeout=15)
    assert refused.value.sqlstate in LOST
    private_pg.start()

    def connect_if_admitted():
        try:
            return pooler.raw()
        except LoginRefused:
            return None

    assert machine.wait_until(connect_if_admitted, 10, "it works again").value("SELECT 1") == "1"
    assert first.until("Z")[-1].body == b"I"


def test_no_such_host(start_pooler, newest_pg):
    databases = {"app": "host=no-such-host.invalid port=5432", "other":
                 f"host={newest_pg.host} port={newest_pg.port}"}
    pooler = start_pooler(newest_pg, databases=databases, query_wait_timeout=5)
    with pytest.raises(LoginRefused, match=r"lookup failed|login has been failing|query_wait"):
        pooler.raw(timeout=15)
    assert pooler.raw(dbname="other").value("SELECT 1") == "1"


def test_server_refuses_some_connections(start_pooler, pg, workers):
    """PostgreSQL allows two connections although the pool may open five: these two serve all clients."""
    pg.run("DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN CONNECTION LIMIT 2")
    users = {"limited": "", "admin": "admin password"}
    pooler = start_pooler(pg, users=users, default_pool_size=5, workers=workers, server_login_retry=1)
    first = pooler.raw("limited")
    first.query("BEGIN")
    clients = [pooler.raw("limited", timeout=30) for _ in range(8)]
    for client in clients:
        client.send(query("SELECT pg_sleep(0.05)"))
    for client in clients:
        assert wire.errors(client.until_ready()) == []
    first.query("COMMIT")


def test_first_connection_is_refused(start_pooler, pg):
    """The pool has no clients and no servers: the client receives PostgreSQL's reason."""
    pg.run("DROP ROLE IF EXISTS barred; CREATE ROLE barred LOGIN CONNECTION LIMIT 0")
    pooler = start_pooler(pg, users={"barred": ""})
    with pytest.raises(LoginRefused, match='too many connections for role "barred"') as refused:
        pooler.raw("barred")
    assert refused.value.sqlstate in ("53300", "08P01")


def test_servers_die_under_load(start_pooler, pg, workers):
    """Clients get only errors of servers, and no client is stuck at the end."""
    pooler = start_pooler(pg, default_pool_size=4, workers=workers, server_login_retry=1)
    problems, done, answers = [], threading.Event(), [0]

    def work(who):
        client = None
        while not done.is_set():
            try:
                client = client or pooler.raw()
                messages = client.query(f"SELECT '{who}', pg_sleep(0.002)")
                for sqlstate, words in wire.errors(messages):
                    if sqlstate not in ("57P01", *LOST):
                        problems.append(words)
                answers[0] += 1
                if any(row[0] != str(who) for row in wire.rows(messages)):
                    problems.append(messages)
            except (wire.Closed, LoginRefused, ConnectionError):
                client = None
            except Exception as error:  # collected here, since an exception in a thread would be lost
                problems.append(error)
                return

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for _ in machine.every(0.05, until=machine.after(3)):
        pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'trusty'"
               " ORDER BY random() LIMIT 2")
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert answers[0] > 100
    with pooler.raw() as last:
        assert last.value("SELECT 1") == "1"
