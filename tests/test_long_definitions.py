"""Functions and views whose definitions are so long that pgweir does not read them, or not in UTF8."""

import itertools

import pytest

from leaks import stage as stages

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

SETS = "set_config('app.long', 'secret', false)"
LONG = {
    "PL/pgSQL": "CREATE FUNCTION keeps() RETURNS text LANGUAGE plpgsql AS $$ BEGIN /*{x}*/ RETURN {sets}; END $$",
    "SQL": "CREATE FUNCTION keeps() RETURNS text LANGUAGE sql AS $$ /*{x}*/ SELECT {sets} $$",
    "SQL, default": "CREATE FUNCTION keeps(a int DEFAULT 1) RETURNS text LANGUAGE sql AS $$ /*{x}*/ SELECT {sets} $$",
    "BEGIN ATOMIC": "CREATE FUNCTION keeps() RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT '{x}'; SELECT {sets}; END",
    "a default": "CREATE FUNCTION keeps(a text DEFAULT '{x}' || {sets}) RETURNS text LANGUAGE sql AS 'SELECT $1'",
    "a view": "CREATE VIEW kept AS SELECT '{x}' AS a, {sets} AS b; GRANT ALL ON kept TO PUBLIC;"
              "CREATE FUNCTION keeps() RETURNS text LANGUAGE sql AS 'SELECT b FROM kept'",
    "a domain": "CREATE DOMAIN kept AS text CHECK (VALUE <> '{x}' AND {sets} > '');"
                "CREATE FUNCTION keeps() RETURNS text LANGUAGE sql AS $$ SELECT 'a'::kept $$",
}
_numbers = itertools.count(1)


@pytest.fixture
def made(shared_clusters, start_pooler):
    """Makes a database with one server behind a pooler; returns a function that opens clients."""
    cluster, name = shared_clusters(18), f"long{next(_numbers)}"

    def make(setup, options=""):
        cluster.run(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
        with cluster.connect(dbname=name, client_encoding="SQL_ASCII") as db:
            db.execute(setup.encode(errors="surrogateescape"))
        where = f"host={cluster.host} port={cluster.port} dbname={name}"
        pooler = start_pooler(cluster, databases={name: where}, default_pool_size=1, workers=1)
        with pooler.raw(stages.USER, name) as first:
            first.value("SELECT 1")
        return lambda: pooler.raw(stages.USER, name)

    yield make
    cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


def assert_nothing_is_left(connect, text):
    with connect() as client, connect() as neighbour:
        client.value(text)
        assert neighbour.value("SELECT current_setting('app.' || 'long', true)") in (None, "")


@pytest.mark.parametrize("length", [70_000, 270_000, 1_100_000])
@pytest.mark.parametrize("what", LONG)
def test_a_long_definition_certifies_nothing(made, what, length):
    """Longer than 64 kB, than what pgweir reads of a definition, and than what it reads of a row."""
    connect = made(LONG[what].format(x="x" * length, sets=SETS))
    assert_nothing_is_left(connect, "SELECT keeps()")


def test_long_names_of_settings(made):
    """A function's SET clauses have no limit of their own."""
    name = ".".join(["x" * 60] * 16)
    clauses = " ".join(f"SET app.{name}.n{number} = 1" for number in range(1100))
    connect = made(f"CREATE FUNCTION keeps() RETURNS text LANGUAGE sql {clauses} AS $$ SELECT {SETS} $$")
    assert_nothing_is_left(connect, "SELECT keeps()")


def test_a_view_with_names_in_no_encoding(made):
    """A database in SQL_ASCII may have names that are not UTF8."""
    connect = made(f"CREATE VIEW kept AS SELECT 1 AS \"\udce4\", {SETS} AS b; GRANT ALL ON kept TO PUBLIC", "ENCODING 'SQL_ASCII' LOCALE 'C'")
    assert_nothing_is_left(connect, "SELECT b FROM kept")
