"""ALTER ROLE SET and ALTER DATABASE SET in a client's text: later sessions begin with the new value."""

import pytest

import cluster as clusters
import machine
import rawclient as wire
from rawclient import query

ISOLATION = "SHOW default_transaction_isolation"
BACKEND = "SELECT pg_backend_pid()"
WHOSE = ["ROLE trusty", "DATABASE app", "ROLE trusty IN DATABASE app", "ROLE ALL IN DATABASE app", "ROLE ALL"]
FOR_EVER = 3600


@pytest.fixture(params=[(0, None), (-1, None), (-1, True)], ids=["oldest", "newest", "assisted"])
def pg(request, shared_clusters):
    which, assist = request.param
    made = shared_clusters(clusters.VERSIONS[which], assist=assist)
    yield from with_defaults(made)


@pytest.fixture
def plain_pg(newest_pg):
    yield from with_defaults(newest_pg)


def with_defaults(made):
    made.run("ALTER ROLE trusty SUPERUSER")
    yield made
    made.run("ALTER ROLE trusty NOSUPERUSER")
    for whose in [*WHOSE, "ROLE trusty IN DATABASE postgres"]:
        made.run(f"ALTER {whose} RESET ALL", dbname="app")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_changes_assigned_settings(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one, pooler.raw(DateStyle="German", application_name="first") as before:
        for level, style in [("serializable", "SQL, DMY"), ("repeatable read", "Postgres, MDY"),
                             ("read committed", "ISO, MDY")]:
            one.query(f"BEGIN; ALTER ROLE trusty SET default_transaction_isolation = '{level}'")
            assert one.query(f"ALTER ROLE trusty SET DateStyle = '{style}'; COMMIT")[-1].body == b"I"
            for startup in ({}, {"application_name": "x"}, {"statement_timeout": "10s"}):
                with pooler.raw(**startup) as client:
                    assert client.parameters["DateStyle"] == style
                    assert client.value("SHOW DateStyle") == style
                    assert client.value(ISOLATION) == level
            with pooler.raw(DateStyle="German") as client:
                assert client.parameters["DateStyle"].startswith("German")
                assert client.value(ISOLATION) == level
            # A connected client keeps the values that were reported to it, and gets the new values of all others.
            for client, its in [(one, "ISO, MDY"), (before, "German, DMY")]:
                assert client.value("SHOW DateStyle") == its
                assert client.value(ISOLATION) == level


def test_a_connected_client_keeps_what_it_has_set(start_pooler, pg):
    pooler = start_pooler(pg, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one, pooler.raw() as own, pooler.raw(options="-c work_mem=2MB") as wants:
        own.query("SET work_mem = '1MB'")
        one.query("ALTER ROLE trusty SET work_mem = '77kB'; ALTER ROLE trusty SET app.a = 'new'")
        for _ in range(2):
            assert own.value("SHOW work_mem") == "1MB"
            assert wants.value("SHOW work_mem") == "2MB"
            assert one.value("SHOW work_mem") == "77kB"
        own.query("RESET work_mem")
        wants.query("DISCARD ALL")
        assert own.value("SHOW work_mem") == "77kB"
        assert wants.value("SHOW work_mem") == "2MB"


def test_another_database(start_pooler, plain_pg):
    """The assigned values are in a catalog that all databases share."""
    here = f"host=127.0.0.1 port={plain_pg.port}"
    pooler = start_pooler(plain_pg, catalog_check_interval=FOR_EVER,
                          databases={"app": here, "other": f"{here} dbname=postgres"})
    with pooler.raw() as one, pooler.raw(dbname="other") as before:
        assert before.value(ISOLATION) == "read committed"
        one.query("ALTER ROLE trusty IN DATABASE postgres SET default_transaction_isolation = 'serializable'")
        with pooler.raw(dbname="other") as client:
            assert client.value(ISOLATION) == "serializable"
        assert before.value(ISOLATION) == "serializable"
        one.query("ALTER ROLE trusty IN DATABASE postgres RESET default_transaction_isolation")
        with pooler.raw(dbname="other") as client:
            assert client.value(ISOLATION) == "read committed"


def test_the_extended_protocol(start_pooler, pg):
    pooler = start_pooler(pg, catalog_check_interval=FOR_EVER)
    with pooler.connect(prepare_threshold=0) as one:
        for level in ("serializable", "repeatable read", "serializable"):
            one.execute(f"ALTER ROLE trusty SET default_transaction_isolation = '{level}'")
            with pooler.raw() as client:
                assert client.value(ISOLATION) == level


@pytest.mark.parametrize("whose", WHOSE)
def test_pools_that_a_change_concerns(start_pooler, plain_pg, whose):
    pooler = start_pooler(plain_pg, catalog_check_interval=FOR_EVER)
    other = pooler.raw("plainly")
    backend = other.value(BACKEND)
    with pooler.raw() as one:
        one.value("SELECT 1")
        one.query(f"ALTER {whose} SET default_transaction_isolation = 'serializable'")
        with pooler.raw() as client:
            assert client.value(ISOLATION) == "serializable"
    # Servers of users whom the statement does not concern stay open.
    stays = other.value(BACKEND) == backend
    assert stays == ("trusty" in whose)


@pytest.mark.parametrize("text", [
    "ALTER ROLE trusty SET work_mem = '77kB'; SELECT 1/0",
    "ALTER ROLE nobody_at_all SET work_mem = '77kB'",
    "ALTER ROLE trusty CONNECTION LIMIT -1",
    "ALTER DATABASE app IS_TEMPLATE false",
])
def test_texts_that_replace_no_servers(start_pooler, plain_pg, text):
    pooler = start_pooler(plain_pg, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one, pooler.raw() as other:
        backend = other.value(BACKEND)
        one.send(query(text))
        one.until_ready()
        assert other.value(BACKEND) == backend


def test_a_refused_change_closes_no_servers(start_pooler, plain_pg):
    pooler = start_pooler(plain_pg, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw("plainly") as one, pooler.raw() as other:
        backends = [client.value(BACKEND) for client in (one, other)]
        for whose in WHOSE:
            one.send(query(f"ALTER {whose} SET work_mem = '77kB'"))
            assert wire.errors(one.until_ready())
        assert [client.value(BACKEND) for client in (one, other)] == backends


@pytest.mark.parametrize("text", ["ALTER ROLE trusty SET work_mem = '77kB'", "ALTER DATABASE app SET work_mem = '77kB'"])
def test_the_client_leaves_before_its_change_is_answered(start_pooler, plain_pg, text):
    pooler = start_pooler(plain_pg, workers=1, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one, pooler.raw() as other:
        one.send(query(f"SELECT pg_sleep(0.3); {text}"))
        machine.wait_until(lambda: plain_pg.running("SELECT pg_sleep(0.3)%"))
        one.close()
        assert other.value("SHOW work_mem") == "77kB"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_change_is_committed_after_its_connection_was_closed(start_pooler, plain_pg, workers):
    """PostgreSQL does not notice that pgweir has closed the connection while it runs a statement."""
    pooler = start_pooler(plain_pg, workers=workers, default_pool_size=1, catalog_check_interval=FOR_EVER, abandoned_query_timeout=0.2)
    with pooler.raw() as one, pooler.raw() as other:
        one.send(query("SELECT pg_sleep(1); ALTER ROLE trusty SET work_mem = '77kB'"))
        machine.wait_until(lambda: plain_pg.running("SELECT pg_sleep(1);%"))
        one.close()
        pooler.expect_log("abandoned query took too long")
        assert other.value("SHOW work_mem") == "4MB", "the change is not committed yet"
        machine.wait_until(lambda: not plain_pg.backends("query LIKE 'SELECT pg_sleep(1);%'"))
        # An idle server searches for the process, and the servers are closed when the process has ended.
        pooler.expect_log("session defaults have changed")
        for client in (pooler.raw(), other):
            assert client.value("SHOW work_mem") == "77kB"
            client.close()


def test_a_change_on_a_direct_connection(start_pooler, plain_pg):
    """pgweir does not notice a change on a direct connection: RECONNECT replaces the servers."""
    pooler = start_pooler(plain_pg, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one:
        one.query("SET app.mine = 'x'")
        plain_pg.run("ALTER ROLE trusty SET default_transaction_isolation = 'serializable'")
        pooler.console("RECONNECT")
        with pooler.raw() as client:
            assert client.value(ISOLATION) == "serializable"
        assert one.value(ISOLATION) == "serializable" and one.value("SHOW app.mine") == "x"


def test_one_user_closes_no_servers_of_another(start_pooler, plain_pg):
    """Only a superuser's text closes servers of other users, since pgweir reads a text even if PostgreSQL then refuses
    it.
    """
    pooler = start_pooler(plain_pg, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw("plainly") as one, pooler.raw() as other, pooler.raw() as third:
        backend = other.value(BACKEND)
        one.value("SELECT 1")
        one.send(wire.parse("ALTER ROLE trusty SET work_mem = '77kB'", "never"), wire.SYNC)
        assert not wire.errors(one.until_ready())
        one.query("ALTER ROLE plainly SET work_mem = '77kB'; SELECT 'alter role trusty set'")
        one.query("ALTER ROLE plainly RESET ALL")
        assert [other.value(BACKEND), third.value(BACKEND)] == [backend] * 2


def test_clients_with_exclusive_servers_keep_them(start_pooler, pg):
    pooler = start_pooler(pg, catalog_check_interval=FOR_EVER, server_fast_close=1, bypass_users="app/plainly",
                          databases={"app": f"host=127.0.0.1 port={pg.port}",
                                     "long": f"host=127.0.0.1 port={pg.port} dbname=app pool_mode=session"})
    with (pooler.raw() as one, pooler.raw() as listens, pooler.raw() as pinned, pooler.raw(dbname="long") as long,
          pooler.raw("plainly") as bypass):
        listens.query("LISTEN jobs")
        pinned.query("CREATE TEMP TABLE t (a int)")
        held = {client: client.value(BACKEND) for client in (pinned, long, bypass)}
        one.query("ALTER ROLE ALL SET work_mem = '77kB'")
        with pooler.raw() as client:
            assert client.value("SHOW work_mem") == "77kB"
            client.query("NOTIFY jobs")
        assert {client: client.value(BACKEND) for client in held} == held
        pinned.query("SELECT * FROM t")
        listens.until("A")


def test_with_session_state_off_no_server_is_replaced(start_pooler, plain_pg):
    pooler = start_pooler(plain_pg, session_state="off", default_pool_size=1)
    with pooler.raw() as one:
        backend = one.value(BACKEND)
        one.send(query("ALTER ROLE trusty SET work_mem = '77kB'"))
        assert wire.errors(one.until_ready()) == []
        assert one.value(BACKEND) == backend
        with pooler.raw() as other:
            assert other.value(BACKEND) == backend


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["again", '"A gain"'])
def test_a_role_is_dropped_and_made_again(start_pooler, pg, workers, name):
    """The existing sessions have no valid role any more: a client that logs in gets a new server."""
    user = name.strip('"')
    pooler = start_pooler(pg, users={"trusty": "", user: ""}, workers=workers, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one:
        server = one.value(BACKEND)
        for drop in ("DROP ROLE IF EXISTS {}", "drop user {}", "BEGIN; SELECT 1; DROP GROUP {}; COMMIT"):
            assert not wire.errors(one.query(drop.format(name)))
            assert not wire.errors(one.query(f"CREATE ROLE {name} LOGIN"))
            for _ in range(2):
                with pooler.raw(user) as client:
                    assert client.value("SELECT current_user") == user
                    assert client.value("SELECT session_user") == user
        assert not wire.errors(one.query(f"DROP ROLE {name}"))
        assert one.value(BACKEND) == server, "others keep their servers"
