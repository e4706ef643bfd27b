"""docs/recipes.md: each recipe runs as the page has it, except for the ports, and has the effect that the page
describes.
"""

import psycopg
import pytest

import pages
from pages import DOCS

PAGE = DOCS / "recipes.md"
ANN = {"user": "ann", "password": "her password"}

pytestmark = pytest.mark.pgweir_only("has recipes of its own")


def recipe(title, *languages):
    return [block for block in pages.blocks(PAGE) if block.section == title and (not languages or block.language in languages)]


@pytest.fixture
def start(new_pooler, newest_pg, certificates):
    """Starts a recipe in front of a cluster."""

    def start(title, pg=newest_pg):
        pooler = new_pooler(pg)
        pages.write_files(pooler.folder, recipe(title), certificates, port=pg.port,
                          listen_addr=f"{pooler.host}\nlisten_port = {pooler.port}\nunix_socket_dir = {pooler.folder}")
        return pooler.spawn().listening()

    return start


@pytest.fixture
def ann(newest_pg):
    newest_pg.run("CREATE ROLE ann LOGIN PASSWORD 'her password'")
    yield newest_pg
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'")
    newest_pg.run("DROP OWNED BY ann", dbname="app")
    newest_pg.run("DROP ROLE ann")


def connect(pooler, dbname="app", **more):
    return psycopg.connect(**{"host": "localhost", "port": pooler.port, "dbname": dbname, "autocommit": True} | more)


def test_one_database(start, ann):
    pooler = start("One database")
    with connect(pooler, **ANN) as db:
        assert db.execute("SELECT current_user, current_database()").fetchone() == ("ann", "app")
    with connect(pooler, "pgbouncer", cursor_factory=psycopg.ClientCursor, **ANN) as console:
        assert console.execute("SHOW POOLS").fetchall()
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        connect(pooler, user="ann", password="wrong")


def test_two_databases(start, ann):
    pooler = start("Two databases")
    for name, there in [("app", "app"), ("shop", "postgres"), ("reports", "app")]:
        with connect(pooler, name, **ANN) as db:
            assert db.execute("SELECT current_database()").fetchone() == (there,)
    with pytest.raises(psycopg.OperationalError, match="no such database: elsewhere"):
        connect(pooler, "elsewhere", **ANN)


def test_users_from_the_database(start, newest_pg):
    [script] = recipe("Users from the database", "sql")
    with newest_pg.connect(dbname="app") as db:
        db.execute(script.text)
    try:
        pooler = start("Users from the database")
        with connect(pooler, user="scrammed", password="scram password") as db:
            assert db.execute("SELECT current_user").fetchone() == ("scrammed",)
        with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
            connect(pooler, user="scrammed", password="wrong")
    finally:
        with newest_pg.connect(dbname="app") as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'looker'")
            db.execute("DROP SCHEMA lookup CASCADE; DROP ROLE looker")


def test_tls(start, tls_pg, certificates):
    pooler = start("TLS", tls_pg)
    who = {"user": "tlsonly", "password": "tls password"}
    with connect(pooler, sslmode="verify-full", sslrootcert=certificates.authority.cert, **who) as db:
        assert db.pgconn.ssl_in_use
        assert db.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
    with pytest.raises(psycopg.OperationalError, match="SSL required"):
        connect(pooler, sslmode="disable", **who)


def test_tenants(new_pooler, newest_pg):
    """Two tenants use one server in turn, and each finds its own rows."""
    make, use = (block.text for block in recipe("Many tenants in one database"))
    newest_pg.run(make, dbname="app")
    try:
        pooler = new_pooler(newest_pg, default_pool_size=1).start()
        with connect(pooler, user="trusty") as acme, connect(pooler, user="trusty") as other:
            for statement in use.strip().split(";\n"):
                found = acme.execute(statement)
            other.execute("SET app.tenant = 'other'")
            assert other.execute("SELECT * FROM invoice").fetchall() == []
            assert acme.execute("SELECT * FROM invoice").fetchall() == [("acme", 10)]
            assert found.description
    finally:
        newest_pg.run("DROP TABLE invoice", dbname="app")
