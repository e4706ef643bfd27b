"""State that a session keeps outside of what PostgreSQL's own commands reset: connections of postgres_fdw, whose other
ends are sessions themselves, and libraries.
"""

import itertools

import pytest

import cluster as clusters
import rawclient as wire
from leaks import stage as stages

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

COMBINATIONS = [(version, assist) for version in clusters.VERSIONS for assist in (False, True)]
_numbers = itertools.count(1)

FOREIGN = """
CREATE SCHEMA "odd schema"; GRANT USAGE ON SCHEMA "odd schema" TO PUBLIC;
CREATE EXTENSION postgres_fdw SCHEMA "odd schema" VERSION '{version}';
DO $$ BEGIN EXECUTE format('CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
  '127.0.0.1', current_setting('port'), current_database()); END $$;
CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (user 'trusty', password_required 'false');
CREATE VIEW sets AS SELECT set_config('app.there', 'A', false) AS v;
CREATE VIEW locks AS SELECT pg_try_advisory_lock(77)::text AS v;
CREATE VIEW shows AS SELECT concat(current_setting('app.there', true),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())) AS v;
CREATE FOREIGN TABLE there_sets (v text) SERVER s OPTIONS (table_name 'sets');
CREATE FOREIGN TABLE there_locks (v text) SERVER s OPTIONS (table_name 'locks');
CREATE FOREIGN TABLE there (v text) SERVER s OPTIONS (table_name 'shows');
CREATE FUNCTION named() RETURNS bigint LANGUAGE sql AS 'SELECT count(v) FROM there_sets';
CREATE FUNCTION dynamic() RETURNS text LANGUAGE plpgsql AS $$ DECLARE v text;
  BEGIN EXECUTE 'SELECT v FROM there_' || 'sets' INTO v; RETURN v; END $$;
GRANT SELECT ON sets, locks, shows, there_sets, there_locks, there TO PUBLIC;
"""
BY = ["SELECT v FROM there_sets", "SELECT v FROM there_locks", "SELECT named()", "SELECT dynamic()",
      "DO $$ BEGIN PERFORM dynamic(); END $$", "BEGIN; SELECT v FROM there_sets; ROLLBACK"]
LOADS = """
CREATE FUNCTION loads() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN LOAD 'auto_explain'; END $$;
CREATE FUNCTION loads_in_sql() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ LOAD 'auto_explain' $$;
"""
LOADED = "SELECT count(*) FROM pg_settings WHERE name LIKE 'auto_explain.%'"


@pytest.fixture(params=COMBINATIONS, ids=lambda combination: f"pg{combination[0]}-{'assisted' if combination[1] else 'plain'}")
def pooled(request, shared_clusters, start_pooler):
    """Opens clients of a database with one server; `pooled(setup)` makes the database."""
    cluster = shared_clusters(request.param[0], assist=request.param[1])
    name = f"outside{next(_numbers)}"

    def make(setup, **settings):
        stages.make_database(cluster, name, [setup])
        where = f"host={cluster.host} port={cluster.port} dbname={name}"
        settings = {"catalog_check_interval": 3600} | settings
        pooler = start_pooler(cluster, databases={name: where}, default_pool_size=1, workers=1, **settings)
        with pooler.raw(stages.USER, name) as first:
            first.query("SELECT 1")
        return lambda: pooler.raw(stages.USER, name)

    yield make
    cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(("version", "more"), [
    ("1.1", ""), ("1.0", ""), ("1.1", 'REVOKE USAGE ON SCHEMA "odd schema" FROM PUBLIC')], ids=["closes", "old", "revoked"])
def test_connections_of_postgres_fdw(pooled, version, more):
    """The session at the other end of a connection belongs to the client that has opened it. If the client may call no
    function that closes the connections, the server itself is closed.
    """
    connect = pooled(FOREIGN.format(version=version) + more)
    seen = {}
    for text in BY:
        for leaves in (False, True):
            with connect() as client, connect() as other:
                assert not wire.errors(client.query(text))
                if leaves:
                    client.close()
                seen[text, leaves] = other.value("SELECT v FROM there")
    assert set(seen.values()) == {"0"}, seen


@pytest.mark.parametrize("text", ["SELECT loads()", "SELECT loads_in_sql()"])
def test_a_function_that_loads_a_library(pooled, text):
    connect = pooled(LOADS)
    with connect() as client, connect() as other:
        assert not wire.errors(client.query(text))
        assert other.value(LOADED) == "0"
        assert client.value(LOADED) != "0", "the client keeps its session"
        client.close()
        assert other.value(LOADED) == "0"


# isn.c of PostgreSQL 15 keeps whether `isn_weak` was called in a variable of its own.
MAKES = {"a text": "CREATE EXTENSION isn", "code that is not read": "DO $$ BEGIN EXECUTE 'CREATE EXT' || 'ENSION isn'; END $$"}


def old(test):
    return pytest.mark.parametrize("pooled", COMBINATIONS[:2], ids=["plain", "assisted"], indirect=True)(test)


@old
@pytest.mark.parametrize("whose", ["own", "another client's"])
@pytest.mark.parametrize("how", MAKES)
def test_an_extension_that_was_made_since_the_catalog_was_read(pooled, how, whose):
    connect = pooled("")
    with connect() as client, connect() as other:
        assert not wire.errors((client if whose == "own" else other).query(MAKES[how]))
        assert client.value("SELECT isn_weak(true)") == "t"
        client.close()
        assert other.value("SELECT isn_weak()") == "f"


@old
def test_an_extension_of_a_catalog_that_was_never_read(pooled):
    connect = pooled("CREATE EXTENSION isn", catalog_check_interval=0)
    with connect() as client, connect() as other:
        assert client.value("SELECT isn_weak(true)") == "t"
        assert other.value("SELECT isn_weak()") == "f"
