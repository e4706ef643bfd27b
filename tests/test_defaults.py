"""What sessions begin with, by ALTER ROLE and ALTER DATABASE: who logs in after a change begins with it."""

import pytest

import cluster as clusters
import machine
import rawclient as wire
from rawclient import query

ISOLATION = "SHOW default_transaction_isolation"


WHOSE = ["ROLE trusty", "DATABASE app", "ROLE ALL IN DATABASE app", "ROLE ALL"]


@pytest.fixture(params=[(0, None), (-1, None), (-1, True)], ids=["oldest", "newest", "assisted"])
def pg(request, shared_clusters):
    which, assist = request.param
    made = shared_clusters(clusters.VERSIONS[which], assist=assist)
    yield made
    for whose in WHOSE:
        for name in ("default_transaction_isolation", "DateStyle", "work_mem"):
            made.run(f"ALTER {whose} RESET {name}", dbname="app")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_changes_them(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers, catalog_check_interval=3600)
    other = pooler.raw("plainly")
    backend = other.value("SELECT pg_backend_pid()")
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
        # Who was there keeps what it was told.
        assert one.value("SHOW DateStyle") == "ISO, MDY"
        assert before.value("SHOW DateStyle").startswith("German")
    # Other users' servers stay.
    assert other.value("SELECT pg_backend_pid()") == backend


def test_what_is_rolled_back_changes_nothing(start_pooler, pg):
    pooler = start_pooler(pg, catalog_check_interval=3600)
    with pooler.raw() as one:
        one.query("BEGIN; ALTER ROLE trusty SET default_transaction_isolation = 'serializable'")
        with pooler.raw() as client:
            assert client.value(ISOLATION) == "read committed"
        one.query("ROLLBACK")
    with pooler.raw() as client:
        assert client.value(ISOLATION) == "read committed"


@pytest.mark.shows("catalog_check_interval")
@pytest.mark.parametrize("whose", WHOSE)
def test_they_are_changed_elsewhere(start_pooler, pg, whose):
    pooler = start_pooler(pg, catalog_check_interval=0.2)

    def level():
        with pooler.raw() as client:
            return client.value(ISOLATION)

    assert level() == "read committed"
    for expected in ("serializable", "read uncommitted"):
        pg.run(f"ALTER {whose} SET default_transaction_isolation = '{expected}'", dbname="app")
        machine.wait_until(lambda: level() == expected, 40, "the change is seen")
    pg.run(f"ALTER {whose} RESET default_transaction_isolation", dbname="app")
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


def test_off_leaves_servers_alone(start_pooler, pg):
    pooler = start_pooler(pg, session_state="off", default_pool_size=1)
    with pooler.raw() as one:
        backend = one.value("SELECT pg_backend_pid()")
        one.send(query("ALTER ROLE trusty SET work_mem = '77kB'"))
        assert wire.errors(one.until_ready()) == []
        assert one.value("SELECT pg_backend_pid()") == backend
