"""Which client gets a server, when, and in which session state."""

import selectors
import threading
import time

import psycopg
import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused
from test_certificates import read

BACKEND = "SELECT pg_backend_pid()"


# -- session mode


@pytest.mark.shows("pool_mode")
def test_session_keeps_its_server_and_its_state(start_pooler, pg, workers):
    pooler = start_pooler(pg, pool_mode="session", workers=workers)
    client, others = pooler.raw(), [pooler.raw() for _ in range(3)]
    mine = client.value(BACKEND)
    client.query("SET work_mem = '123kB'; CREATE TEMP TABLE mine AS SELECT 7 AS n")
    for _ in range(5):
        assert {other.value(BACKEND) for other in others}.isdisjoint({mine})
        assert client.value(BACKEND) == mine
    assert client.value("SELECT n FROM mine") == "7"
    assert client.value("SHOW work_mem") == "123kB"


def test_session_state_is_discarded_between_clients(start_pooler, pg):
    pooler = start_pooler(pg, pool_mode="session", default_pool_size=1)
    first = pooler.raw()
    mine = first.value(BACKEND)
    first.query("SET work_mem = '123kB'; CREATE TEMP TABLE mine (n int); LISTEN chat;"
                "PREPARE p AS SELECT 1; SELECT pg_advisory_lock(42)")
    second = pooler.raw()
    second.send(wire.query(BACKEND))
    second.quiet()
    first.close()
    assert wire.value(second.until_ready()) == mine
    assert second.value("SHOW work_mem") != "123kB"
    assert second.value("SELECT to_regclass('mine') IS NULL") == "t"
    assert second.value("SELECT count(*) FROM pg_prepared_statements") == "0"
    assert second.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0"
    assert second.value("SELECT count(*) FROM pg_listening_channels()") == "0"


@pytest.mark.shows("server_reset_query", "server_reset_query_always")
@pytest.mark.parametrize(("mode", "always", "cleaned"), [
    ("transaction", 0, False), ("transaction", 1, True), ("session", 0, True), ("session", 1, True),
])
def test_reset_query(start_pooler, newest_pg, mode, always, cleaned):
    """Only session mode runs server_reset_query, unless server_reset_query_always is set."""
    pooler = start_pooler(newest_pg, pool_mode=mode, default_pool_size=1, session_state="off",
                          server_reset_query="SET work_mem = '77kB'",
                          server_reset_query_always=always)
    first = pooler.raw()
    assert first.value("SHOW work_mem") != "77kB"
    first.close()
    second = pooler.raw()
    assert (second.value("SHOW work_mem") == "77kB") == cleaned


# -- transaction mode


@pytest.mark.shows("pool_mode")
def test_clients_share_a_server_between_transactions(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    clients = [pooler.raw() for _ in range(8)]
    assert len({client.value(BACKEND) for client in clients for _ in range(3)}) == 1


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_transaction_keeps_its_server(start_pooler, pg, workers, end):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    first, second = pooler.raw(), pooler.raw()
    first.query("BEGIN")
    transaction = first.value("SELECT txid_current()")
    second.send(wire.query("SELECT txid_current()"))
    second.quiet()
    assert first.value("SELECT txid_current()") == transaction
    second.quiet(0.05)
    first.query(end)
    assert wire.value(second.until_ready()) != transaction


def test_failed_transaction_keeps_its_server(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    first, second = pooler.raw(), pooler.raw()
    assert first.query("BEGIN")[-1].body == b"T"
    assert first.query("SELECT 1/0")[-1].body == b"E"
    second.send(wire.query("SELECT 1"))
    second.quiet()
    assert wire.errors(first.query("SELECT 1"))[0][0] == "25P02"
    assert first.query("ROLLBACK")[-1].body == b"I"
    assert wire.value(second.until_ready()) == "1"


def test_transactions_of_many_clients_do_not_mix(start_pooler, pg, workers):
    """Each transaction runs on one backend, sees its own writes, and no uncommitted writes of others."""
    pooler = start_pooler(pg, default_pool_size=3, workers=workers)
    pg.run("DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (who int, n int)", dbname="app")
    problems = []

    def work(who):
        try:
            with pooler.connect() as db:
                for n in range(20):
                    with db.transaction():
                        backend = db.execute(BACKEND).fetchone()
                        db.execute("INSERT INTO ledger VALUES (%s, %s)", (who, n), prepare=False)
                        db.execute("INSERT INTO ledger VALUES (%s, %s)", (who, -n), prepare=False)
                        total = db.execute("SELECT sum(n), count(*) % 2 FROM ledger").fetchone()
                        if total != (0, 0) or db.execute(BACKEND).fetchone() != backend:
                            problems.append((who, n, total))
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert pg.value("SELECT count(*) FROM ledger", dbname="app") == 12 * 20 * 2


def test_pools_are_per_database_and_user(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    seen = {}
    for dbname in ("app", "other"):
        for user in ("trusty", "scrammed"):
            client = pooler.raw(user, dbname)
            assert client.value("SELECT current_database() || current_user") == dbname + user
            seen[client.value(BACKEND)] = (dbname, user)
    assert len(seen) == 4
    names = {(row["database"], row["user"]) for row in pooler.console("SHOW POOLS")}
    assert set(seen.values()) <= names


# -- statement mode


@pytest.mark.shows("pool_mode")
@pytest.mark.parametrize("begin", ["BEGIN", "START TRANSACTION"])
@pytest.mark.parametrize("protocol", ["simple", "extended"])
def test_statement_mode_refuses_transactions(start_pooler, pg, begin, protocol):
    pooler = start_pooler(pg, pool_mode="statement", default_pool_size=1)
    client = pooler.raw()
    assert client.value("SELECT 1") == "1"
    client.send(wire.query(begin) if protocol == "simple" else extended(begin))
    messages = client.rest()
    assert wire.errors(messages) == [
        ("08P01", "transaction blocks not allowed in statement pooling mode")]
    assert pooler.raw().value("SELECT 2") == "2"
    machine.wait_until(lambda: not pg.backends("state LIKE 'idle in transaction%'"),
                       what="the transaction is gone")


def extended(sql):
    return wire.extended(sql) + wire.SYNC


def test_statement_mode_shares_after_each_statement(start_pooler, pg):
    pooler = start_pooler(pg, pool_mode="statement", default_pool_size=1)
    first, second = pooler.raw(), pooler.raw()
    for n in range(5):
        assert first.value(f"SELECT {n}") == str(n)
        assert second.value(BACKEND) == first.value(BACKEND)


# -- limits and waiting


def run_all(clients, sql, seconds=60):
    """Sends a query by every client at once, and returns the clients in order of their answers."""
    answered = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.send(wire.query(sql))
            selector.register(client.sock, selectors.EVENT_READ, client)
        deadline = time.monotonic() + seconds
        while len(answered) < len(clients):
            assert time.monotonic() < deadline, f"{len(answered)} of {len(clients)} were served"
            for key, _ in selector.select(1):
                client = key.data
                messages = client.until_ready()
                assert wire.errors(messages) == []
                selector.unregister(client.sock)
                answered.append(client)
    return answered


@pytest.mark.shows("default_pool_size", "workers")
@pytest.mark.usefixtures("nothing_runs")
def test_pool_size_holds_for_all_workers_together(start_pooler, pg, workers):
    size = 4
    pooler = start_pooler(pg, default_pool_size=size, workers=workers)
    clients = [pooler.raw() for _ in range(200)]
    most, done = [], threading.Event()

    def watch():
        with pg.connect() as db:
            while not done.is_set():
                most.append(db.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE usename = 'trusty'").fetchone()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(3):
            run_all(clients, "SELECT pg_sleep(0.005)")
    finally:
        done.set()
        watcher.join()
    assert max(most) == size
    pool = pooler.pool()
    assert (pool["cl_active"], pool["cl_waiting"]) == (200, 0)
    assert pool["sv_active"] + pool["sv_idle"] + pool["sv_used"] == size


@pytest.mark.shows("fair_window")
def test_waiting_clients_are_served_in_order(start_pooler, newest_pg, pgbouncer):
    exact = {} if pgbouncer else {"fair_window": 0}
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=1, **exact)
    holder = pooler.raw()
    holder.query("BEGIN")
    clients = [pooler.raw() for _ in range(30)]
    newest_pg.run("DROP SEQUENCE IF EXISTS turn; CREATE SEQUENCE turn", dbname="app")
    for waiting, client in enumerate(clients, 1):
        client.send(wire.query("SELECT nextval('turn')"))
        machine.wait_until(lambda n=waiting: pooler.pool()["cl_waiting"] == n, what="it waits")
    holder.query("COMMIT")
    assert [int(wire.value(c.until_ready())) for c in clients] == list(range(1, 31))


@pytest.mark.shows("query_wait_timeout")
def test_query_wait_timeout(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, query_wait_timeout=1, workers=workers)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    started = time.monotonic()
    waiter.send(wire.query("SELECT 1"))
    error = waiter.error_and_close()
    assert 0.9 < time.monotonic() - started < 8
    assert (error.sqlstate, error.words) == ("08P01", "query_wait_timeout")
    assert error.fields["S"] == "FATAL"
    assert wire.errors(holder.query("COMMIT")) == []
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.pgweir_only("does not look at waiting clients")
def test_waiting_client_that_is_cut_off_is_forgotten(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    holder = pooler.raw()
    holder.query("BEGIN")
    departing_clients = [pooler.raw() for _ in range(6)]
    for client in departing_clients:
        client.send(wire.query("SELECT 1"))
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 6, what="all wait")
    for client in departing_clients:
        client.reset()
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 0, what="nobody waits")
    remaining = pooler.raw()
    remaining.send(wire.query("SELECT 1"))
    holder.query("COMMIT")
    assert wire.value(remaining.until_ready()) == "1"
    pool = pooler.pool()
    assert (pool["cl_active"], pool["cl_waiting"]) == (2, 0)


@pytest.mark.parametrize("end", [b"", wire.TERMINATE], ids=["fin", "terminate"])
def test_last_request_of_a_client_that_leaves_is_served(start_pooler, pg, workers, end):
    """As with PostgreSQL, a request that was sent is executed, although no client reads the answer."""
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    holder = pooler.raw()
    pg.run("DROP TABLE IF EXISTS last; CREATE TABLE last (n int)", dbname="app")
    holder.query("BEGIN")
    departing_clients = [pooler.raw() for _ in range(4)]
    for n, client in enumerate(departing_clients):
        client.send(wire.query(f"INSERT INTO last VALUES ({n})"), end)
        client.close()
    holder.query("COMMIT")
    machine.wait_until(lambda: holder.value("SELECT count(*) FROM last") == "4", what="all is done")
    machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 0, what="nobody waits")


@pytest.mark.shows("max_client_conn")
def test_max_client_conn(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, max_client_conn=5, workers=workers)
    clients = [pooler.raw() for _ in range(5)]
    with pytest.raises(LoginRefused) as refused:
        pooler.raw()
    assert refused.value.sqlstate in ("08P01", "53300")  # PgBouncer's, PostgreSQL's
    assert refused.value.words == "no more connections allowed (max_client_conn)"
    clients.pop().close()

    def connect_if_admitted():
        try:
            return pooler.raw()
        except LoginRefused:
            return None

    machine.wait_until(connect_if_admitted, what="the place of the one that left")
    assert [client.value("SELECT 1") for client in clients] == ["1"] * 4


@pytest.mark.parametrize("limit", ["max_client_conn", "max_db_client_connections", "max_user_client_connections"])
@pytest.mark.parametrize("state", ["idle", "in transaction"])
def test_a_disconnected_client_makes_room_at_once(start_pooler, newest_pg, limit, state):
    """A client that connects after another has left finds its place free, whichever worker the other one was on."""
    pooler = start_pooler(newest_pg, workers=2, default_pool_size=4, **{limit: 4})
    clients = [pooler.raw() for _ in range(4)]
    with pytest.raises(LoginRefused):
        pooler.raw()
    for _ in range(60):
        departing = clients.pop(0)
        if state == "in transaction":
            departing.query("BEGIN")
        departing.close()
        clients.append(pooler.raw())
    with pytest.raises(LoginRefused):
        pooler.raw()
    assert [client.value("SELECT 1") for client in clients] == ["1"] * 4


@pytest.mark.shows("database.pool_size", "database.pool_mode")
@pytest.mark.parametrize(("databases", "users_section", "expected"), [
    ("pool_size=2", None, 2),
    ("pool_mode=session pool_size=3", None, 3),
])
def test_settings_of_a_database(start_pooler, newest_pg, databases, users_section, expected):
    where = f"host={newest_pg.host} port={newest_pg.port} {databases}"
    pooler = start_pooler(newest_pg, databases={"app": where}, default_pool_size=1,
                          users_section=users_section)
    clients = [pooler.raw() for _ in range(expected)]
    for client in clients:
        client.query("BEGIN")
    assert len({client.value(BACKEND) for client in clients}) == expected
    extra = pooler.raw()
    extra.send(wire.query("SELECT 1"))
    extra.quiet()
    clients[0].query("COMMIT")
    clients[0].close()
    assert wire.value(extra.until_ready()) == "1"


@pytest.mark.shows("user.pool_mode")
def test_pool_mode_of_a_user(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, users_section={"scrammed": "pool_mode=session"},
                          default_pool_size=2)
    assert pooler.pool() is None or pooler.pool()["pool_mode"] == "transaction"
    first, second = pooler.raw("scrammed"), pooler.raw("scrammed")
    assert first.value(BACKEND) != second.value(BACKEND)
    assert pooler.pool(user="scrammed")["pool_mode"] == "session"


@pytest.mark.shows("database.connect_query")
def test_connect_query(start_pooler, pg):
    where = f"host={pg.host} port={pg.port} connect_query='SET work_mem = ''99kB'''"
    pooler = start_pooler(pg, databases={"app": where})
    assert pooler.raw().value("SHOW work_mem") == "99kB"


def test_connect_query_fails(start_pooler, pg):
    where = f"host={pg.host} port={pg.port} connect_query='SELECT nothing'"
    pooler = start_pooler(pg, databases={"app": where})
    assert pooler.raw().value("SELECT 1") == "1"
    assert 'connect_query failed: column "nothing" does not exist' in pooler.log()


# A query, the connect_query that sets what it shows, and the value that it shows then.
CONNECT = {
    "a parameter": ("SHOW work_mem", "SET work_mem = '99kB'", "99kB"),
    "a list": ("SHOW search_path", 'SET search_path = one, "two three"', 'one, "two three"'),
    "a custom parameter": ("SELECT current_setting('app.tenant')", "SELECT set_config('app.tenant', 'it''s', false)", "it's"),
    "a role": ("SELECT current_user", "SET ROLE connect_role", "connect_role"),
    "two": ("SHOW timezone", "SET work_mem = '1MB'; SET timezone = 'Asia/Tokyo'", "Asia/Tokyo"),
}
CHANGES = ["SET statement_timeout = 77000", "SET LOCAL work_mem = '2MB'", "CREATE TEMP TABLE t (a int)", "DO 'BEGIN END'"]
# Without the engine, these change the session of the next client.
OWN_CHANGES = ["SET work_mem = '3MB'; SET timezone = 'UTC'; SET search_path = x; SET app.tenant = 'y'", "SET ROLE NONE", "RESET ALL"]


def with_connect_query(start_pooler, pg, query, **settings):
    pg.run("DROP ROLE IF EXISTS connect_role; CREATE ROLE connect_role; GRANT connect_role TO trusty")
    quoted = query.replace("'", "''")
    where = f"host={pg.host} port={pg.port} connect_query='{quoted}'"
    return start_pooler(pg, databases={"app": where}, default_pool_size=1, **settings)


@pytest.mark.parametrize("state", ["transparent", "off"])
@pytest.mark.parametrize("what", CONNECT)
def test_connect_query_lasts(start_pooler, pg, what, state):
    """What connect_query has set stays, whatever a client does in its session: each client finds it again."""
    shows, query, value = CONNECT[what]
    pooler = with_connect_query(start_pooler, pg, query, session_state=state)
    for change in CHANGES + (OWN_CHANGES if state == "transparent" else []):
        with pooler.raw("trusty") as one, pooler.raw("trusty") as other:
            assert one.value(shows) == value
            one.query(f"BEGIN; {change}; COMMIT")
            assert other.value(shows) == value, change
    with pooler.raw("trusty") as client:
        assert client.value(shows) == value


@pytest.mark.pgweir_only("PgBouncer sends no such parameters")
def test_connect_query_that_no_startup_packet_can_repeat(start_pooler, pg):
    """The role is gone when the next server logs in: pgweir logs in without it, and no client notices."""
    query = "DO $$ BEGIN SET ROLE connect_role; EXCEPTION WHEN OTHERS THEN NULL; END $$"
    pooler = with_connect_query(start_pooler, pg, query)
    with pooler.raw("trusty") as client:
        assert client.value("SELECT current_user") == "connect_role"
        pg.run("DROP ROLE connect_role")
        pooler.console("RECONNECT")
        machine.wait_until(lambda: client.value("SELECT current_user") == "trusty", 10, "the new server")
    assert "the server refuses role in the startup packet" in pooler.log()


@pytest.mark.pgweir_only("PgBouncer sends no such parameters")
def test_connect_query_after_a_login_that_was_refused_for_another_reason(start_pooler, pg):
    """pgweir first takes the parameters for the reason. Once the server accepts logins again, they last as before."""
    pg.run("CREATE DATABASE guarded")
    try:
        query = "SET work_mem = ''99kB''"
        where = f"host={pg.host} port={pg.port} dbname=guarded connect_query='{query}'"
        pooler = start_pooler(pg, databases={"app": where}, default_pool_size=1, server_login_retry=1)
        with pooler.raw("trusty") as client:
            assert client.value("SHOW work_mem") == "99kB"
            pg.run("REVOKE CONNECT ON DATABASE guarded FROM PUBLIC")
            pooler.console("RECONNECT")
            client.send(wire.query("SHOW work_mem"))
            # The second login has no parameters.
            machine.wait_until(lambda: pooler.log().count("server login failed") >= 2, what="two logins are refused")
            pg.run("GRANT CONNECT ON DATABASE guarded TO PUBLIC")

        def lasts():
            try:
                with pooler.raw("trusty") as one, pooler.raw("trusty") as other:
                    one.query("SET work_mem = '3MB'")
                    return other.value("SHOW work_mem") == "99kB"
            except LoginRefused:
                # Up to server_login_retry, clients get the last error.
                return False
        machine.wait_until(lasts, 10, "the parameter lasts")
    finally:
        pg.run("DROP DATABASE guarded WITH (FORCE)")


# -- age


@pytest.mark.shows("server_idle_timeout")
def test_idle_server_is_closed(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, server_idle_timeout=1)
    client = pooler.raw()
    backend = int(client.value(BACKEND))
    assert backend in newest_pg.backends()
    machine.wait_until(lambda: backend not in newest_pg.backends(), 10, "the idle server is closed")
    assert int(client.value(BACKEND)) != backend


@pytest.mark.shows("server_lifetime")
def test_old_server_is_replaced(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, server_lifetime=1, default_pool_size=1)
    client = pooler.raw()
    backend = client.value(BACKEND)
    machine.wait_until(lambda: client.value(BACKEND) != backend, 10, "a fresh server")


def test_server_in_a_transaction_outlives_its_lifetime(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, server_lifetime=1, server_idle_timeout=1, default_pool_size=1)
    client = pooler.raw()
    client.query("BEGIN")
    backend = client.value(BACKEND)
    client.quiet(2.5)
    assert client.value(BACKEND) == backend
    client.query("COMMIT")


# -- parameters that follow the client

PARAMETERS = [
    ("client_encoding", "LATIN1", "UTF8"),
    ("DateStyle", "German, DMY", "SQL, MDY"),
    ("TimeZone", "Asia/Tokyo", "America/New_York"),
    ("standard_conforming_strings", "off", "on"),
    ("application_name", "first app", "second 'app'"),
    pytest.param("IntervalStyle", "iso_8601", "sql_standard",
                 marks=pytest.mark.pgweir_only("before 1.20: does not track it")),
]


@pytest.mark.shows("track_extra_parameters")
@pytest.mark.parametrize(("name", "one", "two"), PARAMETERS)
@pytest.mark.parametrize("how", ["startup", "set"])
def test_parameters_follow_the_client(start_pooler, pg, pgbouncer, name, one, two, how):
    pooler = start_pooler(pg, default_pool_size=1)
    if not pgbouncer:
        # Until then, each text counts as opaque.
        read(pooler, user="trusty")
    clients = []
    for value in (one, two):
        if how == "startup":
            client = pooler.raw(**{name: value})
        else:
            client = pooler.raw()
            quoted = value.replace("'", "''")
            assert wire.errors(client.query(f"SET {name} = '{quoted}'")) == []
        assert client.parameters[name] == value
        clients.append((client, value))
    plain = pooler.raw()
    default = plain.value(f"SHOW {name}")
    for _ in range(3):
        backends = {client.value(BACKEND) for client, _ in clients}
        assert len(backends) == 1
        for client, value in clients:
            assert client.value(f"SHOW {name}") == value
        if pgbouncer and name == "application_name":  # a client without the setting sees the last client's value
            continue
        assert plain.value(f"SHOW {name}") == default


@pytest.mark.shows("verbose")
def test_a_verbose_log_shows_how_a_parameter_is_set(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1, session_state="off")
    quiet = pooler.raw(DateStyle="ISO")
    quiet.query("SELECT 1")
    pooler.console("SET verbose = 1")
    client = pooler.raw(DateStyle="SQL")
    for _ in range(2):
        client.query("SELECT 1")
    assert client.parameters["DateStyle"] == "SQL, MDY"
    pooler.expect_log("setting DateStyle to its canonical version SQL -> SQL, MDY")
    log = pooler.log()
    assert log.count("varcache_apply: ") == 1 and "SET DateStyle='SQL'" in log
    assert log.count("varcache_set_canonical: ") == 1


def test_parameters_inside_a_rolled_back_transaction(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    first, second = pooler.raw(), pooler.raw()
    zone = first.value("SHOW TimeZone")
    first.query("BEGIN; SET TimeZone = 'Asia/Tokyo'")
    assert first.value("SHOW TimeZone") == "Asia/Tokyo"
    first.query("ROLLBACK")
    assert second.value("SHOW TimeZone") == zone
    assert first.value("SHOW TimeZone") == zone
    first.query("SET TimeZone = 'Asia/Seoul'; BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'")
    first.query("COMMIT")
    assert second.value("SHOW TimeZone") == zone
    assert first.value("SHOW TimeZone") == "Asia/Seoul"


def test_parameters_by_psycopg(start_pooler, pg):
    """Text survives though neighbours on the same server use another encoding."""
    pooler = start_pooler(pg, default_pool_size=1)
    latin = pooler.connect(client_encoding="latin1")
    utf = pooler.connect(client_encoding="utf8")
    for _ in range(3):
        for db in (latin, utf):
            assert db.execute("SELECT %s::text", ("äöü",)).fetchone() == ("äöü",)
    assert utf.execute("SELECT %s::text", ("Ж€",)).fetchone() == ("Ж€",)
    with pytest.raises(psycopg.errors.UntranslatableCharacter):
        latin.execute("SELECT chr(1046)")


@pytest.mark.shows("database.timezone", "database.datestyle")
def test_settings_of_a_database_for_its_clients(start_pooler, pg):
    where = f"host={pg.host} port={pg.port} timezone=Asia/Tokyo datestyle=German"
    pooler = start_pooler(pg, databases={"app": where})
    client = pooler.raw()
    assert client.value("SHOW TimeZone") == "Asia/Tokyo"
    assert client.value("SELECT '2020-02-01'::date") == "01.02.2020"
    assert pooler.raw(TimeZone="Asia/Seoul").value("SHOW TimeZone") in ("Asia/Tokyo", "Asia/Seoul")


@pytest.mark.shows("ignore_startup_parameters")
def test_startup_parameters(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, ignore_startup_parameters="extra_float_digits, search_path")
    client = pooler.raw(extra_float_digits="2", search_path="nowhere")
    assert client.value("SELECT 1") == "1"
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(no_such_parameter="1")
    assert refused.value.sqlstate in ("08P01", "42704")
    assert "no_such_parameter" in refused.value.words


def test_parameters_reported_at_login(start_pooler, pg):
    """The parameters that PostgreSQL reports at login, as far as a pool can know them."""
    pooler = start_pooler(pg)
    client = pooler.raw()
    other = pg.raw()
    for name in ("server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone",
                 "integer_datetimes", "standard_conforming_strings", "IntervalStyle",
                 "is_superuser", "session_authorization", "default_transaction_read_only",
                 "in_hot_standby"):
        assert client.parameters.get(name) == other.parameters[name], name


@pytest.mark.pgweir_only("reads no catalog")
def test_no_server_is_opened_while_one_reads_the_catalog(start_pooler, private_pg):
    """The first client waits for the server that reads the catalog, and gets that server."""
    with private_pg.connect("app") as lock:
        lock.execute("BEGIN; LOCK TABLE pg_policy IN ACCESS EXCLUSIVE MODE")
        pooler = start_pooler(private_pg, default_pool_size=5)
        started = time.monotonic()
        client = pooler.socket()
        client.send(wire.startup(user="trusty", database="app"))
        reads = "usename = 'trusty' AND wait_event_type = 'Lock'"
        machine.wait_until(lambda: private_pg.backends(reads), what="it reads")
        # Ledgers are inspected three times a second.
        reading = "usename = 'trusty'"
        machine.stays_true(lambda: len(private_pg.backends(reading)) == 1 or time.monotonic() - started > 1, 0.7,
                           "nobody else is opened")
        lock.execute("ROLLBACK")
        client.until("Z")
        servers = pooler.console("SHOW SERVERS")
        # No client waits longer than a second for the server.
        assert len(servers) == 1 or time.monotonic() - started > 1
