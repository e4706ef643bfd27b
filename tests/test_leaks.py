"""No session state passes from one client to another: one test per class of statements that change session state
without naming it. Each line of `leaks/lines.py` runs twice. A direct session shows that the line changes session state
at all. Then a client runs the line through a pool of one server, and other clients inspect the session state of that
server, while the client is connected and after it has left. If the pooler closes the server, nothing leaks. Each line
runs on one version, with or without the assist extension; with `--full`, in all four combinations.
"""

import itertools

import pytest

import cluster as clusters
import rawclient as wire
from leaks import line as lines
from leaks import stage as stages
from leaks.lines import CLASSES, RARE

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

COMBINATIONS = [(version, assist) for version in clusters.VERSIONS for assist in (False, True)]
# Seconds for which another client waits for a server that the first client keeps.
WAIT_S = 1
_numbers = itertools.count(1)


@pytest.fixture(params=COMBINATIONS, ids=lambda combination: f"pg{combination[0]}-{'assisted' if combination[1] else 'plain'}")
def combination(request, shared_clusters):
    version, assist = request.param
    return shared_clusters(version, assist=assist), assist


@pytest.fixture
def databases(combination):
    """Makes databases for lines: one for all lines that can share a database, one for each other line."""
    cluster, _ = combination
    made = []

    def make(table):
        numbered = [(f"k{next(_numbers)}", line) for line in table]
        groups = [[pair] for pair in numbered if pair[1].alone]
        shared = [pair for pair in numbered if not pair[1].alone]
        for group in [shared, *groups] if shared else groups:
            name = f"leaks{next(_numbers)}"
            made.append(name)
            stages.make_database(cluster, name, [lines.filled(line.setup, x) for x, line in group])
            yield name, group

    yield make
    for name in made:
        cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.full if kind in RARE else ()) for kind in CLASSES])
def test_no_state_crosses(combination, databases, start_pooler, kind, pytestconfig):
    cluster, _ = combination
    full = pytestconfig.getoption("--full")
    made = list(databases([line for number, line in enumerate(CLASSES[kind]) if stages.is_played(number, cluster, full, kinds=1)]))
    where = f"host={cluster.host} port={cluster.port}"
    entries = {}
    for name, _ in made:
        entries |= {name: f"{where} dbname={name}", f"{name}_alias": f"{where} dbname={name}",
                    f"{name}_elsewhere": f"host=localhost port={cluster.port} dbname={name}",
                    f"{name}_session": f"{where} dbname={name} pool_mode=session"}
    pooler = start_pooler(cluster, databases=entries, default_pool_size=1, workers=1, query_wait_timeout=WAIT_S,
                          catalog_check_interval=3600)
    leaks, idle = [], []
    for name, group in made:
        stage = stages.Stage(cluster, pooler, name)
        stage.warm()
        for x, line in group:
            for form in stages.by_extended_and_simple(line):
                is_live = line.rare or any(lines.disconnects(said) for said in line.says)
                if not is_live and not stage.directly(line, x, form):
                    idle.append(f"{line.words} ({form})")
                found = stage.through(line, x, form)
                if found:
                    leaks.append(f"{line.words} ({form}): {', '.join(sorted(set(found)))[:200]}")
                    stage.forget()
        stage.close()
    assert not idle and not leaks, "\n".join([f"{len(leaks)} leaks:", *leaks, "", "no state in a direct session:", *idle])


# -- pgweir's own statements that a client replaces, and plans that a client leaves

REPLACE = """
CREATE FUNCTION replace_statements() RETURNS int LANGUAGE plpgsql AS $f$
  DECLARE own record; replaced int := 0;
  BEGIN
    FOR own IN EXECUTE 'SELECT name FROM pg_catalog.pg_prep' || 'ared_statement() WHERE NOT from_sql' LOOP
      EXECUTE format('DEALLOCATE %I', own.name);
      EXECUTE format('PREPARE %I AS SELECT ''theirs''', own.name);
      replaced := replaced + 1;
    END LOOP;
    RETURN replaced;
  END $f$;
CREATE FUNCTION replace_by_trigger() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM replace_statements(); RETURN NEW; END';
CREATE TRIGGER t BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION replace_by_trigger();
CREATE TABLE large AS SELECT g AS a FROM generate_series(1, 20000) g;
CREATE INDEX ON large (a);
ANALYZE large;
"""
MINE = "SELECT 'mine'"
REPLACED_BY = {
    "a function": "SELECT replace_statements()",
    "DO": "DO $$ BEGIN PERFORM replace_statements(); END $$",
    "a trigger": "INSERT INTO plain VALUES (1)",
    "a transaction that fails": "SELECT replace_statements(); SELECT 1/0",
    "EXPLAIN ANALYZE": "EXPLAIN ANALYZE SELECT replace_statements()",
}


@pytest.fixture
def shared(combination, start_pooler):
    """A database with one server, whose clients share prepared statements; gives its pooler and its name."""
    cluster, _ = combination
    name = f"leaks{next(_numbers)}"
    stages.make_database(cluster, name, [REPLACE])
    where = f"host={cluster.host} port={cluster.port} dbname={name}"
    yield start_pooler(cluster, databases={name: where}, default_pool_size=1, workers=1, query_wait_timeout=3), name
    cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("how", REPLACED_BY)
def test_a_statement_that_was_replaced_is_never_run(shared, how, leaves):
    """A client's Bind runs the client's own text, even if another client has replaced the statement on the server."""
    pooler, name = shared
    with pooler.raw(stages.USER, name) as victim, pooler.raw(stages.USER, name) as client:
        victim.send(lines.parse(MINE, "s") + lines.SYNC).until_ready()
        run = lines.bind(name="s") + lines.execute() + lines.SYNC
        assert wire.value(victim.send(run).until_ready()) == "mine"
        # Without a statement of the same text of its own, the client would find none that it could replace.
        client.send(lines.parse(MINE, "s") + lines.SYNC).until_ready()
        for round_ in range(2):
            answer = client.query(REPLACED_BY[how])
            if how == "a function" and round_ == 0:
                assert wire.rows(answer)[:1] != [("0",)], "nothing was replaced"
            if leaves:
                client.close()
            try:
                seen = {row[0] for row in wire.rows(victim.send(run).until_ready())}
            except wire.Closed:
                break
            assert seen <= {"mine"}
            if leaves:
                break


def scans(cluster, name):
    return cluster.value("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'large'", dbname=name)


def test_a_plan_is_not_left_to_others(shared, combination):
    """A plan that was made under one client's planner settings is not used for another client."""
    cluster, _ = combination
    pooler, name = shared
    text, arguments = "SELECT a FROM large WHERE a = $1", ("7",)
    free = ["plan_cache_mode = force_generic_plan", "enable_indexscan = off", "enable_bitmapscan = off",
            "enable_indexonlyscan = off", "seq_page_cost = 0", "cpu_tuple_cost = 0", "cpu_operator_cost = 0"]

    def run(client, count):
        client.send(lines.parse(text, "s", types=(23,)) + lines.SYNC).until_ready()
        for _ in range(count):
            client.send(lines.bind(arguments, name="s") + lines.execute() + lines.SYNC).until_ready()

    with pooler.raw(stages.USER, name) as victim, pooler.raw(stages.USER, name) as client:
        for setting in free:
            client.query(f"SET {setting}")
        run(client, 3)
        client.query("SELECT pg_stat_force_next_flush()")
        client.query("RESET ALL")
        before = scans(cluster, name)
        assert before > 0, "the plan of the other client reads the whole table"
        run(victim, 30)
        victim.query("SELECT pg_stat_force_next_flush()")
        victim.query("SELECT 1")
        assert scans(cluster, name) == before


# -- constants that PostgreSQL computes under a client's settings

CONSTANTS = {
    "array_nulls = off": "SELECT ('{NULL}'::text[])[1] IS NULL",
    "transform_null_equals = on": "SELECT count(*) FROM one WHERE (a = NULL) IS NULL",
    "TimeZone = 'Asia/Tokyo'": "SELECT extract(epoch from timestamptz '2020-06-01')",
    "TIME ZONE 'Asia/Tokyo'": "SELECT extract(epoch from timestamptz '2020-06-02')",
    "DateStyle = 'SQL, DMY'": "SELECT '01/02/2020'::date::text",
    "bytea_output = escape": r"SELECT '\x4142'::bytea::text",
    "extra_float_digits = -10": "SELECT 1.123456789::float8::text",
}


def test_constants_are_not_left_to_others(shared, combination):
    """A statement that was parsed and planned under one client's SET LOCAL gives the right result for the next client.
    """
    cluster, _ = combination
    pooler, name = shared
    run = lines.bind(name="s") + lines.execute() + lines.SYNC
    wrong = []
    for setting, text in CONSTANTS.items():
        with pooler.raw(stages.USER, name) as client, pooler.raw(stages.USER, name) as victim:
            seen = []
            for one in (client, victim):
                one.query("BEGIN")
                if one is client:
                    one.query(f"SET LOCAL {setting}")
                one.send(lines.parse(text, "s") + lines.SYNC).until_ready()
                seen.append(wire.value(one.send(run).until_ready()))
                one.query("COMMIT")
        with wire.RawClient.tcp(cluster.host, cluster.port).login(stages.USER, name) as direct:
            if seen[0] == seen[1] or seen[1] != direct.value(text):
                wrong.append((setting, *seen))
    assert not wrong


def test_a_function_in_the_temporary_schema_of_another_session(combination, shared):
    """A table's default may call a function that is in the temporary schema of another session."""
    cluster, _ = combination
    pooler, name = shared
    made = ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS"
            " $k$ BEGIN PERFORM set_config('app.temp', 'A', false); RETURN 1; END $k$;"
            " CREATE TABLE reaches (a int DEFAULT pg_temp.f(), b int)")
    with wire.RawClient.tcp(cluster.host, cluster.port).login(stages.USER, name) as holder:
        assert not wire.errors(holder.query(made))
        with pooler.raw(stages.USER, name) as client, pooler.raw(stages.USER, name) as victim:
            client.query("INSERT INTO reaches (b) VALUES (1)")
            assert not victim.value("SELECT current_setting('app.' || 'temp', true)")
