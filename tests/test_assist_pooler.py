"""pgweir in front of a PostgreSQL with the assist extension: the effects of the reports, which clients never receive.
"""

import pytest

import rawclient
from assisted import REPORT

pytestmark = pytest.mark.pgweir_only("the extension is pgweir's own")

WORK = (
    "SELECT 1", "SET work_mem = 100", "BEGIN; SET work_mem = 200; ROLLBACK", "CREATE TEMP TABLE a (x int)", "DROP TABLE a",
    "SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)", "PREPARE p AS SELECT 1", "SELECT 1/0", "RESET ALL",
)


def reported(messages):
    return [m.parameter[0] for m in messages if m.kind == "S"]


@pytest.mark.parametrize("state", ("transparent", "off"))
@pytest.mark.shows("session_state")
def test_no_client_sees_the_report(assisted_pg, start_pooler, state):
    pooler = start_pooler(assisted_pg, session_state=state, default_pool_size=1)
    for _ in range(2):  # the second client gets the messages that the server sent at the first login
        with pooler.raw("trusty") as client:
            assert REPORT not in reported(client.login_messages)
            for sql in WORK:
                assert REPORT not in reported(client.query(sql)), sql


def test_settings_of_a_client_that_listens_go_with_it(assisted_pg, start_pooler):
    """With the extension's report pgweir needs no inspection. It still has to clean the server."""
    pooler = start_pooler(assisted_pg, default_pool_size=1)
    with pooler.connect("trusty") as owner, pooler.connect("trusty") as neighbour:
        owner.autocommit = neighbour.autocommit = True
        owner.execute("LISTEN channel")
        owner.execute("SET search_path = nowhere")
        for _ in range(3):
            owner.execute("SET default_transaction_isolation = 'serializable'")  # the server has it since the first loan
            assert neighbour.execute("SHOW search_path").fetchone() == ('"$user", public',)
            assert owner.execute("SHOW search_path").fetchone() == ("nowhere",)


def test_preparing_by_sql_needs_no_inspection(plain_or_assisted_pg, start_pooler):
    """The extension does not report the texts of SQL-prepared statements. pgweir reads them when another client needs the
    server, not at the end of each PREPARE.
    """
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1, workers=1)
    with pooler.raw("trusty") as owner, pooler.raw("trusty") as neighbour:
        for _ in range(30):
            owner.query("PREPARE p AS SELECT 1")
            owner.query("EXECUTE p")
            owner.query("DEALLOCATE p")
        inspections = [row["inspections"] for row in pooler.console("SHOW STATEMENTS") if "PREPARE" in row["statement"]]
        # A slow machine may settle the session between two requests.
        assert inspections and sum(inspections) < 20
        owner.query("PREPARE p AS SELECT 42")
        assert neighbour.query("EXECUTE p")[0].sqlstate == "26000"
        assert owner.value("EXECUTE p") == "42"
