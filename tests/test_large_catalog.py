"""A database with very many functions: other clients don't wait while pgweir reads and evaluates its catalog."""

import pytest

import machine
from test_certificates import catalog
from test_pipelines import MOST_WAITED, Bystander

# Functions that call each other, in pairs.
MAKE = """
DO $do$ BEGIN
  FOR number IN 1..%s LOOP
    EXECUTE format('CREATE FUNCTION f%%s(a int) RETURNS int LANGUAGE sql RETURN a + 1', number);
    EXECUTE format('CREATE FUNCTION g%%s(a int) RETURNS int LANGUAGE sql AS $$SELECT f%%s(a)$$', number, number);
  END LOOP;
END $do$
"""


@pytest.fixture
def large(newest_pg, pytestconfig):
    """A database with very many functions, and their number."""
    pairs = 50_000 if pytestconfig.getoption("--full") else 10_000
    newest_pg.run("CREATE DATABASE large")
    newest_pg.run(MAKE % pairs, dbname="large")
    yield 2 * pairs
    newest_pg.run("DROP DATABASE large WITH (FORCE)")


@pytest.mark.alone
@pytest.mark.pgweir_only("it reads no catalog")
def test_others_do_not_wait_for_a_large_catalog(start_pooler, newest_pg, large, record_property):
    here = f"host={newest_pg.host} port={newest_pg.port}"
    pooler = start_pooler(newest_pg, workers=1, databases={"app": here, "large": here})
    with Bystander(pooler, "worker") as bystander, pooler.connect(dbname="large") as client:
        client.execute("SELECT 1")
        machine.wait_until(lambda: catalog(pooler, "large")["state"] == "known", 60, "the catalog is read")
    row = catalog(pooler, "large")
    record_property("figures", f"catalog of {large} functions: bystander {bystander.longest * 1000:.0f} ms,"
                               f" of the worker's CPU {bystander.most * 1000:.1f} ms")
    assert int(row["functions"]) == large
    assert bystander.most < MOST_WAITED
