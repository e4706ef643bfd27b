"""SQL that speaks of prepared statements which the server at hand does not have, or can't make any more: the client
hears what it would of a server of its own."""

import pytest

import rawclient as wire
from rawclient import SYNC, bind, close, execute, extended, parse, queries, query, run
from test_startup_values import differences, told

# The view lacks what can't be made: it is read all the same, and has nothing of others.
SEES = query("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'")
NAMES = query("SELECT name, from_sql FROM pg_prepared_statements ORDER BY name")
CREATE, DROP = "CREATE TABLE later AS SELECT 4 AS a", "DROP TABLE IF EXISTS later"


def ran(sql):
    return extended(sql) + SYNC


def gone(*steps):
    """With a statement `p` of SQL and one `s` of the protocol, whose table was dropped by somebody else."""
    return [CREATE, *queries("PREPARE p AS SELECT a FROM later",
        "PREPARE pp (int, int) AS SELECT a, $1, $2 FROM later"),
            parse("SELECT a FROM later", "s") + SYNC, *queries("EXECUTE p"), run("s") + SYNC, DROP, *steps]


# name: what the client says, each step at once; and what somebody else does, as words.
GONE = {
    "executed": gone(*queries("EXECUTE p", "EXECUTE p; SELECT 1", "EXECUTE pp (1, 2)", "EXECUTE p"), ran("EXECUTE p"),
                     *queries("EXPLAIN EXECUTE p", "EXECUTE s", "SELECT 1; EXECUTE s"), ran("EXECUTE s")),
    "bound": gone(run("p") + SYNC, run("pp", 1, 2) + SYNC, run("s") + SYNC, run("nothing") + SYNC),
    "deallocated": gone(*queries("DEALLOCATE p", "EXECUTE p", "DEALLOCATE p", "DEALLOCATE PREPARE s", "EXECUTE s"),
                        run("s") + SYNC, run("p") + SYNC, *queries("DEALLOCATE pp", "EXECUTE pp (1, 2)"), NAMES),
    "deallocated by the extended protocol": gone(
        ran("DEALLOCATE p"), ran("EXECUTE p"), ran("DEALLOCATE s"), ran("EXECUTE s"), run("s") + SYNC, *queries("DEALLOCATE pp"),
        NAMES),
    "deallocated in a pipeline": gone(
        extended("SELECT 1") + extended("DEALLOCATE p") + SYNC + extended("EXECUTE p") + SYNC, ran("EXECUTE p"),
        ran("DEALLOCATE s") + ran("EXECUTE s"), query("SELECT 1") + query("DEALLOCATE pp") + query("SELECT 2"), NAMES),
    "executed, then deallocated": gone(
        *queries("EXECUTE p; DEALLOCATE p", "EXECUTE s; DEALLOCATE s"), ran("EXECUTE p") + ran("DEALLOCATE p"),
        ran("EXECUTE s") + ran("DEALLOCATE s"), ran("EXECUTE s"), *queries("DEALLOCATE pp"), NAMES),
    "closed": gone(close("S", "p") + SYNC, *queries("EXECUTE p"), close("S", "s") + SYNC, *queries("EXECUTE s"),
                   close("S", "pp") + SYNC, *queries("EXECUTE pp (1, 2)"), NAMES),
    "closed in a failed transaction": gone(
        *queries("BEGIN", "SELECT 1/0"), close("S", "p") + SYNC, *queries("ROLLBACK", "EXECUTE p")),
    "made anew": gone(
        *queries("DEALLOCATE p", "PREPARE p AS SELECT 7", "EXECUTE p", "DEALLOCATE s", "PREPARE s AS SELECT 8",
             "EXECUTE s", "DEALLOCATE pp"), run("s") + SYNC, NAMES),
    "in a transaction, executed": gone(*queries("BEGIN", "EXECUTE p", "ROLLBACK", "BEGIN", "EXECUTE s", "ROLLBACK")),
    "in a transaction, deallocated": gone(*queries(
        "BEGIN", "DEALLOCATE p", "DEALLOCATE s", "SELECT 1", "COMMIT", "EXECUTE p", "EXECUTE s")),
    "in a transaction, with a savepoint": gone(*queries(
        "BEGIN", "SAVEPOINT a", "EXECUTE s", "ROLLBACK TO a", "DEALLOCATE s", "SAVEPOINT b", "EXECUTE p",
        "ROLLBACK TO b", "SELECT 1", "EXECUTE s", "ROLLBACK TO a", "DEALLOCATE p", "SELECT 2", "COMMIT")),
    "the table is back": gone(CREATE, *queries("EXECUTE p", "EXECUTE pp (1, 2)", "EXECUTE s"), run("p") + SYNC, run("s") + SYNC),
    "the table is back, in a transaction": gone(
        *queries("BEGIN", "SELECT 1"), CREATE, *queries("EXECUTE p", "EXECUTE s", "EXECUTE pp (1, 2)", "COMMIT")),
    "the table is made in the transaction": gone(
        *queries("BEGIN", CREATE, "EXECUTE p", "EXECUTE s", "SAVEPOINT a", DROP, "EXECUTE s", "ROLLBACK", "EXECUTE p")),
    "the table is back for one that keeps its server": gone(
        *queries("CREATE TEMP TABLE own ()", "EXECUTE p", "EXECUTE s"), CREATE, *queries("EXECUTE p", "EXECUTE s"), DROP,
        *queries("EXECUTE s", "DEALLOCATE p", "EXECUTE p", "DROP TABLE own")),
    "nothing asked for": [*queries('PREPARE "p" AS SELECT', "EXECUTE p", 'EXECUTE p', "DEALLOCATE p")],
    "all deallocated": gone(*queries("DEALLOCATE ALL", "EXECUTE p", "EXECUTE s"), NAMES),
    "seen, then executed": gone(*queries("BEGIN"), SEES, *queries("EXECUTE s", "ROLLBACK", "BEGIN"), SEES, *queries("EXECUTE p"),
                                *queries("ROLLBACK")),
    "seen, then used, those of SQL": gone(
        *queries("SELECT 1", "BEGIN", "SAVEPOINT a"), SEES, *queries("EXECUTE p", "ROLLBACK TO a"), SEES, run("p") + SYNC,
        *queries("ROLLBACK TO a"), SEES, extended("SELECT 1") + run("p") + SYNC, *queries("ROLLBACK TO a"), SEES,
        ran("EXECUTE p"), *queries("ROLLBACK"), SEES, CREATE, *queries("EXECUTE p", "EXECUTE pp (1, 2)"), NAMES),
    "seen, then bound": gone(*queries("BEGIN"), SEES, run("s") + SYNC, *queries("ROLLBACK", "BEGIN"), SEES, run("p") + SYNC,
                             *queries("ROLLBACK")),
}


def lost(*steps):
    """With the same statements, whose table the client drops itself; directly that shows when they are executed."""
    return [*queries(CREATE, "PREPARE p AS SELECT a FROM later"), parse("SELECT a FROM later", "s") + SYNC, *steps,
            *queries("EXECUTE p", "EXECUTE s"), SEES]


DROPS = extended("SELECT 1") + extended("DROP TABLE later")
SEEN = extended("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'")
LOST = {
    "seen": lost(DROPS + SEEN + SYNC),
    "seen in a transaction": lost(*queries("BEGIN"), DROPS + SEEN + SYNC, SEEN + SYNC, *queries("COMMIT")),
    "seen, then bound": lost(DROPS + SEEN + run("s") + SYNC, *queries("SELECT 1", CREATE), run("s") + SYNC,
        DROPS + SEEN + run("p") + SYNC),
    "seen, then bound in a transaction": lost(
        *queries("BEGIN", "SAVEPOINT a"), DROPS + SEEN + SYNC, run("s") + SYNC, *queries("ROLLBACK TO a"), run("s") + SYNC, run("p") + SYNC,
        *queries("EXECUTE s", "EXECUTE p", "COMMIT")),
    "seen, then executed": lost(*queries("BEGIN"), DROPS + SEEN + SYNC, ran("EXECUTE s"), *queries("ROLLBACK")),
    "seen, then deallocated": lost(DROPS + SEEN + ran("DEALLOCATE s")),
    "seen, then closed": lost(DROPS + SEEN + close("S", "s") + SEEN + SYNC),
    "seen, then made anew": lost(SEEN + parse("SELECT 3", "s") + SYNC, run("s") + SYNC,
                                 SEEN + close("S", "s") + parse("SELECT 3", "s") + run("s") + SYNC, run("s") + SYNC),
    "deallocated": lost(DROPS + extended("DEALLOCATE s") + SYNC, DROPS + extended("DEALLOCATE p") + SYNC),
    "not deallocated": [*queries("CREATE TABLE later AS SELECT 4 AS a"), parse("SELECT a FROM later", "s") + SYNC,
        *queries(
        "BEGIN; CREATE TABLE more ()", "SAVEPOINT a"), extended("SELECT 1") + extended("PREPARE s AS SELECT 2")
        + extended("DEALLOCATE s") + SYNC, wire.describe("S", "s") + SYNC, *queries("ROLLBACK TO a"), run("s") + SYNC,
        *queries("EXECUTE s", "SELECT 1/0; DEALLOCATE s", "ROLLBACK TO a", "EXECUTE s"), run("s") + SYNC,
        query("ROLLBACK TO a; SELECT 1/0; DEALLOCATE s") + query("ROLLBACK TO a; EXECUTE s"), run("s") + SYNC,
        query("DEALLOCATE s") + run("s") + SYNC, *queries("ROLLBACK"), NAMES],
    "not closed": [*queries("CREATE TABLE later AS SELECT 4 AS a"), parse("SELECT a FROM later", "s") + SYNC, *queries(
        "BEGIN; CREATE TABLE more ()", "SAVEPOINT a"), extended("SELECT 1") + SEEN + extended("SELECT 1/0")
        + close("S", "s") + SYNC, wire.describe("S", "s") + SYNC, close("S", "nothing") + bind(name="s") + SYNC,
        *queries("ROLLBACK TO a"), run("s") + SYNC, *queries("EXECUTE s"), extended("SELECT 1") + SEEN + close("S",
        "s") + run("s") + SYNC,
        *queries("ROLLBACK TO a"), run("s") + SYNC, parse("SELECT 5", "s") + run("s") + SYNC, *queries("EXECUTE s",
        "ROLLBACK"), NAMES],
    "deallocated behind another request": [
        parse("SELECT 1", "s") + SYNC, wire.describe("S", "s") + SYNC + extended("DEALLOCATE s") + run("s") + SYNC,
        run("s") + SYNC,
        parse("SELECT 1", "s") + extended("DEALLOCATE s") + bind(name="s") + execute() + extended("EXECUTE s") + SYNC,
        parse("SELECT 2", "s") + SYNC, run("s") + SYNC,
        query("SELECT 3") + query("DEALLOCATE s") + ran("EXECUTE s") + run("s") + SYNC, NAMES],
    "deallocated, then used in the next request of the same write": [
        parse("SELECT 1", "s") + extended('DEALLOCATE "s"') + bind(name="s") + SYNC + bind(name="s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, extended('DEALLOCATE "s"') + bind(name="s") + SYNC + bind(name="s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, *queries("BEGIN", "SAVEPOINT a"),
        extended('DEALLOCATE "s"') + bind(name="s") + SYNC, query("ROLLBACK TO a"), bind(name="s") + SYNC, query("ROLLBACK")],
    "one deallocated, another used": [
        parse("SELECT 1", "s") + parse("SELECT 2", "t") + SYNC, extended("DEALLOCATE s") + extended("EXECUTE t") + SYNC,
        parse("SELECT 1", "s") + SYNC, query("DEALLOCATE s") + run("t") + SYNC + run("s") + SYNC, NAMES,
        parse("SELECT 1", "s") + SYNC, *queries("BEGIN; CREATE TABLE more ()"), SEEN + SYNC, extended("SELECT 1") + SEEN
        + extended("DEALLOCATE s") + extended("DEALLOCATE t") + SYNC, run("t") + SYNC, *queries("ROLLBACK"),
        run("s") + SYNC, NAMES],
}


def failed(*steps):
    """With a statement of the protocol, and a transaction that has failed."""
    return [parse("SELECT 1", "s") + SYNC, *queries("BEGIN", "SAVEPOINT a", "SELECT 1/0"), *steps,
            query("ROLLBACK"), *queries("EXECUTE s"), NAMES]


FAILED = {
    "executed": failed(*queries("EXECUTE s"), ran("EXECUTE s")),
    "rolled back just before": failed(query("ROLLBACK") + query("EXECUTE s")),
    "committed just before": failed(query("COMMIT") + query("EXECUTE s") + query("EXECUTE s")),
    "rolled back to a savepoint": failed(query("ROLLBACK TO a") + query("EXECUTE s"), query("SELECT 1")),
    "rolled back by the extended protocol": failed(ran("ROLLBACK") + ran("EXECUTE s")),
    "rolled back in the same request": failed(extended("ROLLBACK") + extended("EXECUTE s") + SYNC),
    "and another one begun": failed(ran("ROLLBACK AND CHAIN") + ran("EXECUTE s") + ran("SELECT 1")),
    "by another statement": failed(
        query("ROLLBACK") + parse("EXECUTE s", "e") + SYNC + run("e") + SYNC, run("e") + SYNC, close("S", "e") + SYNC),
    "by another statement, in the same request": failed(
        extended("ROLLBACK") + parse("EXECUTE s", "e") + bind(name="e") + execute() + SYNC, close("S", "e") + SYNC),
    "seen in the same text": failed(
        query("ROLLBACK TO a; SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'PGWEIR%'"), query("SELECT 1")),
    "an end that fails": failed(query("ROLLBACK TO nothing; EXECUTE s"), query("SELECT 1; ROLLBACK; EXECUTE s")),
    "still failed": failed(query("SELECT 1") + query("EXECUTE s"), ran("SELECT 1") + ran("EXECUTE s"),
                           extended("SELECT 1") + extended("EXECUTE s") + SYNC),
    "failed on the way": [
        parse("SELECT 1", "s") + SYNC, query("BEGIN") + query("SELECT 1/0") + query("EXECUTE s") + query("ROLLBACK")
        + query("EXECUTE s"), ran("BEGIN") + ran("SELECT 1/0") + ran("EXECUTE s") + ran("ROLLBACK") + ran("EXECUTE s")],
    "deallocated behind it": failed(ran("ROLLBACK") + ran("DEALLOCATE s") + ran("EXECUTE s")),
    "seen behind it": failed(query("ROLLBACK") + NAMES),
}


class Thief:
    """Uses the only server before each step, as long as it is free: nothing of the client's statements is left on it."""

    def __init__(self, other):
        self.other, self.keeps = other, False

    def __call__(self, step):
        self.keeps |= b"BEGIN" in step or b"TEMP" in step
        if not self.keeps:
            self.other.query("SELECT 1")


def play_with_ddl(pg, client, steps, before):
    heard = []
    for step in steps:
        if isinstance(step, str):
            pg.run(step, dbname="app")
            continue
        before(step)
        heard.append((step, told(client.ask(step))))
    return heard


@pytest.mark.parametrize("scripts", [GONE, FAILED, LOST], ids=["gone", "failed", "lost"])
def test_as_if_alone(start_pooler, either_pg, scripts):
    weir = start_pooler(either_pg, workers=1, default_pool_size=1)
    either_pg.run("GRANT CREATE ON SCHEMA public TO trusty", dbname="app")
    wrong = []
    with weir.raw() as other:
        for name, steps in scripts.items():
            either_pg.run(DROP, dbname="app")
            with either_pg.raw() as direct:
                expected = play_with_ddl(either_pg, direct, steps, lambda step: None)
            either_pg.run(DROP, dbname="app")
            with weir.raw() as client:
                found = play_with_ddl(either_pg, client, steps, Thief(other))
            wrong += [(name, *what) for what in differences(expected, found)]
    either_pg.run(DROP, dbname="app")
    assert not wrong, "\n".join(map(str, wrong))
