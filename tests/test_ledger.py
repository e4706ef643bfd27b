"""The ledger of the fault tests finds lost, doubled and refused transactions."""

import pytest

import ledger
import machine


@pytest.mark.parametrize("damage, found", [
    ("DELETE FROM ledger WHERE (who, n) = (0, 0)", "lost"),
    ("DELETE FROM ledger WHERE (who, n, part) = (1, 0, 2)", "torn"),
    ("INSERT INTO ledger VALUES (1, 0, 1)", "doubled"),
    (None, None)], ids=["lost", "torn", "doubled", "none"])
def test_lost_and_doubled_rows_are_found(start_pooler, newest_pg, pgbouncer, damage, found):
    newest_pg.run(f"DROP TABLE IF EXISTS ledger; {ledger.TABLE}; GRANT ALL ON ledger TO PUBLIC", dbname="app")
    pooler = start_pooler(newest_pg)
    with ledger.Load(4, 2, state=not pgbouncer, host=pooler.host, port=pooler.port, user="trusty", dbname="app") as load:
        began = load.answered[0] if load.answered else 0.0
        machine.wait_until(lambda: load.all_since(began) and len(load.answered) > 50, what="all clients write")
        assert load.failed_idle() == []
        load.stop()
        if damage:
            newest_pg.run(damage, dbname="app")
        difference = load.difference(newest_pg.rows(ledger.ROWS, dbname="app"))
    newest_pg.run("DROP TABLE ledger", dbname="app")
    wanted = {"lost": {(0, 0)} if found == "lost" else set(), "torn": {(1, 0)} if found == "torn" else set(),
              "doubled": {(1, 0)} if found == "doubled" else set(), "ghosts": set()}
    assert vars(difference) == wanted
    assert not load.errors


def test_a_refused_transaction_must_not_be_there(start_pooler, newest_pg):
    """The table is missing for a while, so transactions fail before COMMIT. The test inserts the rows of one of them:
    the ledger finds it.
    """
    newest_pg.run(f"DROP TABLE IF EXISTS ledger; {ledger.TABLE}; GRANT ALL ON ledger TO PUBLIC", dbname="app")
    pooler = start_pooler(newest_pg)
    with ledger.Load(1, host=pooler.host, port=pooler.port, user="trusty", dbname="app") as load:
        machine.wait_until(lambda: load.answered, what="the client writes")
        newest_pg.run("ALTER TABLE ledger RENAME TO hidden", dbname="app")
        machine.wait_until(lambda: load.refused, what="a transaction fails")
        newest_pg.run("ALTER TABLE hidden RENAME TO ledger", dbname="app")
        load.stop()
        assert load.difference(newest_pg.rows(ledger.ROWS, dbname="app")).count() == 0
        who, n = next(iter(load.refused))
        newest_pg.run(f"INSERT INTO ledger VALUES ({who}, {n}, 1), ({who}, {n}, 2)", dbname="app")
        assert load.difference(newest_pg.rows(ledger.ROWS, dbname="app")).ghosts == {(who, n)}
    newest_pg.run("DROP TABLE ledger", dbname="app")
