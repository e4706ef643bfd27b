"""ALTER ROLE and ALTER DATABASE SET: who logs in after a change begins with it, and nobody else pays for it."""

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
def test_a_client_changes_them(start_pooler, pg, workers):
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
            # Who was there keeps what it had.
            for client, its in [(one, "ISO, MDY"), (before, "German, DMY")]:
                assert client.value("SHOW DateStyle") == its
                assert client.value(ISOLATION) == "read committed"
        for client in (one, before):
            client.query("SET default_transaction_isolation = 'serializable'; SET DateStyle = 'SQL, YMD'")
            client.query("DISCARD ALL")
            assert client.value(ISOLATION) == "read committed"
        assert one.value("SHOW DateStyle") == "ISO, MDY"
        assert before.value("SHOW DateStyle").startswith("German")


VALUES = "SELECT concat_ws('|', " + ", ".join(f"current_setting('{name}', true)" for name in (
    "work_mem", "DateStyle", "search_path", "app.a", "app.b", "default_transaction_isolation")) + ")"


@pytest.mark.parametrize("workers", [1, 2])
def test_who_was_there_keeps_them_all(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers, catalog_check_interval=FOR_EVER)
    pg.run("ALTER ROLE trusty SET app.a = 'first'", dbname="app")
    with pooler.raw() as idle, pooler.raw() as busy, pooler.raw() as own, pooler.raw() as one:
        first = '4MB|ISO, MDY|"$user", public|first||read committed'
        assert idle.value(VALUES) == first.replace("||", "|")
        own.query("SET work_mem = '1MB'")
        busy.query("BEGIN")
        assert busy.value("SHOW work_mem") == "4MB"
        one.query("ALTER ROLE trusty SET work_mem = '77kB'; ALTER ROLE trusty SET DateStyle = 'German';"
                  "ALTER DATABASE app SET search_path = pg_catalog; ALTER ROLE trusty SET app.a = 'second';"
                  "ALTER ROLE ALL IN DATABASE app SET app.b = 'new';"
                  "ALTER ROLE trusty IN DATABASE app SET default_transaction_isolation = 'serializable'")
        second = "77kB|German, DMY|pg_catalog|second|new|serializable"
        with pooler.raw() as new:
            assert new.value(VALUES) == second
            assert busy.value("SHOW work_mem") == "4MB"
            busy.query("COMMIT")
            for client in (idle, busy, one):
                assert client.value(VALUES) == first
            assert own.value("SHOW work_mem") == "1MB"
            own.query("RESET work_mem")
            assert own.value(VALUES) == first
            one.query("ALTER ROLE trusty RESET work_mem; ALTER ROLE trusty RESET app.a; ALTER DATABASE app RESET search_path;"
                      "ALTER ROLE trusty SET DateStyle = 'SQL'")
            with pooler.raw() as newest:
                assert newest.value(VALUES).startswith('4MB|SQL, MDY|"$user", public|')
            assert new.value(VALUES) == second
            new.query("SET search_path = public; SET DateStyle = 'ISO'")
            new.query("DISCARD ALL")
            assert new.value(VALUES) == second
            for client in (idle, busy, one, own):
                assert client.value(VALUES) == first


def test_another_database(start_pooler, plain_pg):
    """What is assigned stands in a table that all databases share."""
    here = f"host=127.0.0.1 port={plain_pg.port}"
    pooler = start_pooler(plain_pg, catalog_check_interval=FOR_EVER,
                          databases={"app": here, "other": f"{here} dbname=postgres"})
    with pooler.raw() as one, pooler.raw(dbname="other") as before:
        assert before.value(ISOLATION) == "read committed"
        one.query("ALTER ROLE trusty IN DATABASE postgres SET default_transaction_isolation = 'serializable'")
        backend = one.value(BACKEND)
        with pooler.raw(dbname="other") as client:
            assert client.value(ISOLATION) == "serializable"
        assert before.value(ISOLATION) == "read committed"
        one.query("ALTER ROLE trusty IN DATABASE postgres RESET default_transaction_isolation")
        with pooler.raw(dbname="other") as client:
            assert client.value(ISOLATION) == "read committed"
        assert one.value(BACKEND) == backend, "its own sessions begin as before"


def test_the_extended_protocol(start_pooler, pg):
    pooler = start_pooler(pg, catalog_check_interval=FOR_EVER)
    with pooler.connect(prepare_threshold=0) as one:
        for level in ("serializable", "repeatable read", "serializable"):
            one.execute(f"ALTER ROLE trusty SET default_transaction_isolation = '{level}'")
            with pooler.raw() as client:
                assert client.value(ISOLATION) == level


def test_nobody_uses_the_servers(start_pooler, pg):
    """Who logs in after the interval begins with what was assigned elsewhere, also if nothing happened meanwhile."""
    pooler = start_pooler(pg, catalog_check_interval=0.3)
    with pooler.raw() as one:
        backend = one.value(BACKEND)
        pg.run("ALTER ROLE trusty SET default_transaction_isolation = 'serializable'")
        machine.wait_until(lambda: not pg.backends(f"pid = {backend}"), 40, "the server is gone")
        with pooler.raw() as client:
            assert client.value(ISOLATION) == "serializable"
        assert one.value(ISOLATION) == "read committed"


@pytest.mark.parametrize("whose", WHOSE)
def test_whose_they_are(start_pooler, plain_pg, whose):
    pooler = start_pooler(plain_pg, catalog_check_interval=FOR_EVER)
    other = pooler.raw("plainly")
    backend = other.value(BACKEND)
    with pooler.raw() as one:
        one.value("SELECT 1")
        one.query(f"ALTER {whose} SET default_transaction_isolation = 'serializable'")
        with pooler.raw() as client:
            assert client.value(ISOLATION) == "serializable"
    # Other users' servers stay, if it is not their business.
    stays = other.value(BACKEND) == backend
    assert stays == ("trusty" in whose)


@pytest.mark.parametrize("text", [
    "BEGIN; ALTER ROLE trusty SET work_mem = '77kB'; ROLLBACK",
    "ALTER ROLE trusty SET work_mem = '77kB'; SELECT 1/0",
    "ALTER ROLE nobody_at_all SET work_mem = '77kB'",
    "SELECT 'alter role trusty set'; DO $$BEGIN END$$; SELECT 1 -- ; alter database app set x = 1",
    "ALTER ROLE trusty SET work_mem = DEFAULT",
])
def test_what_changes_nothing(start_pooler, plain_pg, text):
    pooler = start_pooler(plain_pg, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw() as one, pooler.raw() as other:
        backend = other.value(BACKEND)
        one.send(query(text))
        one.until_ready()
        assert other.value(BACKEND) == backend


def test_who_may_not_change_them_sets_nothing_off(start_pooler, plain_pg):
    pooler = start_pooler(plain_pg, default_pool_size=1, catalog_check_interval=FOR_EVER)
    with pooler.raw("plainly") as one, pooler.raw() as other:
        backends = [client.value(BACKEND) for client in (one, other)]
        for whose in WHOSE:
            one.send(query(f"ALTER {whose} SET work_mem = '77kB'"))
            assert wire.errors(one.until_ready())
        assert [client.value(BACKEND) for client in (one, other)] == backends


@pytest.mark.shows("catalog_check_interval")
@pytest.mark.parametrize("whose", WHOSE)
def test_they_are_changed_elsewhere(start_pooler, plain_pg, whose):
    pooler = start_pooler(plain_pg, catalog_check_interval=0.2)

    def level():
        with pooler.raw() as client:
            return client.value(ISOLATION)

    assert level() == "read committed"
    for expected in ("serializable", "read uncommitted"):
        plain_pg.run(f"ALTER {whose} SET default_transaction_isolation = '{expected}'", dbname="app")
        machine.wait_until(lambda: level() == expected, 40, "the change is seen")
    plain_pg.run(f"ALTER {whose} RESET default_transaction_isolation", dbname="app")
    machine.wait_until(lambda: level() == "read committed", 40, "the end of it is seen")


def test_a_block_changes_them(start_pooler, pg):
    """Nothing in the text says so."""
    pooler = start_pooler(pg, catalog_check_interval=0.2)
    with pooler.raw() as one:
        one.value("SELECT 1")
        one.query("DO $$ BEGIN EXECUTE 'ALT' || 'ER ROLE trusty SET work_mem = ''77kB'''; END $$")

        def seen():
            with pooler.raw() as client:
                return client.value("SHOW work_mem") == "77kB"

        machine.wait_until(seen, 40, "the change is seen")


def test_who_has_something_of_its_own_keeps_it(start_pooler, pg):
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


def test_off_leaves_servers_alone(start_pooler, plain_pg):
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
    """The sessions that were there are nobody's: who logs in gets a new one."""
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
