"""Statements that are used long after their Parse: their class depends on the certificates at the time of their use."""

import pytest

from rawclient import SYNC, errors, parse, run

pytestmark = pytest.mark.pgweir_only("PgBouncer looks at no statement")

SEES = "SELECT current_setting('app.unjudged', true)"
PURE = "CREATE OR REPLACE FUNCTION unjudged() RETURNS int LANGUAGE sql AS 'SELECT 1'"
SETS = ("CREATE OR REPLACE FUNCTION unjudged() RETURNS int LANGUAGE sql AS "
        "$$SELECT set_config('app.unjudged', 'mine', false)::text = 'mine' AND false; SELECT 1$$")


@pytest.fixture
def function(pg):
    pg.run(PURE, dbname="app")
    yield pg
    pg.run("DROP FUNCTION unjudged()", dbname="app")


def done(client, message):
    assert not errors(client.ask(message))


@pytest.mark.shows("max_prepared_statements")
def test_a_named_statement_that_is_not_tracked(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1, workers=1, max_prepared_statements=0)
    with pooler.raw() as one, pooler.raw() as other:
        done(one, parse("SET app.unjudged = 'mine'", "s") + SYNC)
        assert other.value(SEES) in (None, "")
        one.ask(run("s") + SYNC)
        assert other.value(SEES) in (None, "")


@pytest.mark.parametrize("most", [0, 200])
def test_the_unnamed_statement_after_the_catalog_has_changed(start_pooler, function, most):
    here = function.entry()
    pooler = start_pooler(function, default_pool_size=1, workers=1, max_prepared_statements=most,
                          databases={"app": here, "again": here}, users={"trusty": "", "postgres": ""})
    with pooler.raw(dbname="app") as one, pooler.raw(dbname="app") as other, \
            pooler.raw("postgres", dbname="again") as maker:
        assert other.value(SEES) in (None, "")
        for _ in range(20):
            done(one, parse("SELECT unjudged()") + run("") + SYNC)
            assert not errors(maker.query(SETS))
            one.ask(run("") + SYNC)
            assert other.value(SEES) in (None, "")
            assert not errors(maker.query(PURE))
