"""Seeded scripts of all statements that change session state, run directly and through the pooler: the answers are
equal.

Each run prints its seed. With `--full` the seed is random, otherwise always the same, so that a run does not fail for
faults that were there before. `PGWEIR_DIFFERENTIAL_SEED=N` plays another seed (`random`: any),
`PGWEIR_DIFFERENTIAL_STATEMENTS=N` sets the minimum number of statements,
`PGWEIR_DIFFERENTIAL_INTERRUPTED=N` that of the test in which other clients need the only server at random moments. A
mismatch is reduced: steps are left out, the other clients' first, as long as the answers differ.
"""

import dataclasses
import itertools
import os
import random

import pytest

import cluster as clusters
import machine
from differential import play, scripts, shrink, world
from rawclient import query

CLIENTS, SERVERS, NEIGHBOURS = 5, 2, 2
STATEMENTS = int(os.environ.get("PGWEIR_DIFFERENTIAL_STATEMENTS", "20000"))
ROUND, INTERRUPTED_ROUND = 30, 6  # scripts that run at once
# The number of clients that leave in the middle of their scripts in each round, and the longest time until they leave.
LEAVERS, LEAVE_AFTER_S = 3, 0.1
FIXED_SEED = "2704144609"


@pytest.fixture(scope="session")
def stages(start_cluster):
    """Gives a cluster with the objects of the scripts, and the keeper that restores the schemas."""
    made = {}

    def stage(version, assist):
        if (version, assist) not in made:
            name = f"differential-{version}-{'assisted' if assist else 'plain'}"
            cluster = start_cluster(version, name, assist=assist)
            world.build(cluster)
            made[version, assist] = cluster, world.Keeper(cluster)
        return made[version, assist]

    yield stage
    for _, keeper in made.values():
        keeper.close()


@pytest.fixture(params=[(version, assist) for version in clusters.VERSIONS for assist in (False, True)],
                ids=lambda p: f"pg{p[0]}-{'assisted' if p[1] else 'plain'}")
def stage(request, stages):
    return stages(*request.param)


@pytest.fixture
def plain_stage(stages):
    return stages(clusters.VERSIONS[-1], False)


def seed(default=FIXED_SEED):
    asked = os.environ.get("PGWEIR_DIFFERENTIAL_SEED") or default
    return random.SystemRandom().randrange(1 << 32) if asked == "random" else int(asked)


def start(start_pooler, cluster, reads_sequences=True, **settings):
    where = f"host={cluster.host} port={cluster.port}"
    databases = {name: f"{where} dbname={world.POOLED}" for name in (world.POOLED, world.ALIAS)}
    # On a busy machine, clients wait long for servers that other clients keep.
    usual = {"workers": 1, "default_pool_size": SERVERS, "pinned_overflow": 0, "query_wait_notify": 0}
    pooler = start_pooler(cluster, databases=databases, users={role: "" for role in world.ROLES} | {"admin": "admin password"},
                          **(usual | settings))
    for role, database in itertools.product(world.ROLES, (world.POOLED, world.ALIAS) if reads_sequences else ()):
        # Servers are kept for sequence values once an application has asked for one; after 64, for all of them.
        with pooler.raw(role, database) as client:
            for number in range(66):
                client.query(f"SET application_name = 'reader {number}'")
                client.query("SELECT lastval()")
    return pooler


def round_of(number, run_seed, cluster, keeper, pooler, clients=CLIENTS, interrupters=()):
    """Plays one round; returns (mismatch, statements)."""
    seed = f"{run_seed}.{number}"
    queues, expected, statements = [[] for _ in range(clients)], {}, 0
    for k in range(INTERRUPTED_ROUND if interrupters else ROUND):
        script = scripts.script(seed, k, k % clients + 1, reads_sequences=not interrupters)
        if pooler is cluster:  # it has no aliases
            script = dataclasses.replace(script, by_alias=False)
        keeper.fresh(script.who, world.TRUTH)
        expected[script.name] = play.truth((cluster.host, cluster.port), script)
        queues[k % clients].append(script)
        statements += sum(step.statements for step in script.steps)
    neighbours = [dataclasses.replace(scripts.script(seed, f"neighbour{n}", 90 + n), by_alias=False)
                  for n in range(0 if interrupters else NEIGHBOURS)]
    for script in neighbours:
        keeper.fresh(script.who, world.POOLED)
    if interrupters:
        play_in_part(seed, keeper, pooler, interrupters)
    wrong = play.play((pooler.host, pooler.port), queues, expected, keeper.fresh, neighbours, interrupters)
    return wrong, statements


def play_in_part(seed, keeper, pooler, interrupters):
    """Plays scripts whose clients leave at any step. If something of their sessions is left, later clients see it."""
    rng = random.Random(f"{seed}/part")
    for number in range(LEAVERS):
        script = scripts.script(seed, f"part{number}", 70 + number, reads_sequences=False)
        seconds = rng.uniform(0, LEAVE_AFTER_S)
        play.play((pooler.host, pooler.port), [[script]], {script.name: None}, keeper.fresh, (), interrupters, seconds)


def run(start_pooler, stage, limit, shrinks=True, default=FIXED_SEED, interrupts=False, **settings):
    """Plays rounds until `limit` statements are compared; returns (mismatch or None, statements, seed)."""
    cluster, keeper = stage
    run_seed, number, statements = seed(default), 0, 0
    usual = {"default_pool_size": 1} if interrupts else {}
    pooler = start(start_pooler, cluster, reads_sequences=not interrupts, **(usual | settings))
    interrupters = []
    if interrupts:
        rng = random.Random(run_seed)
        address = (pooler.host, pooler.port)
        interrupters = [play.Interrupter(address, role, rng) for role in world.ROLES for _ in range(NEIGHBOURS)]
    while statements < limit:
        try:
            wrong, played = round_of(number, run_seed, cluster, keeper, pooler, 1 if interrupts else CLIENTS, interrupters)
        except play.Stuck as stuck:
            return f"round {number}: {stuck}", statements, run_seed
        number, statements = number + 1, statements + played
        if wrong:
            small = shrink.smallest(wrong, cluster, keeper, pooler) if shrinks else wrong
            return small, statements, run_seed
    return None, statements, run_seed


@pytest.mark.timeout(900)
def test_answers_are_postgresqls(start_pooler, stage, record_property, pytestconfig):
    default = "random" if pytestconfig.getoption("--full") else FIXED_SEED
    wrong, statements, used = run(start_pooler, stage, STATEMENTS, default=default)
    cluster = stage[0]
    record_property("figures", f"differential: {cluster.folder.name}: {statements} statements, seed {used},"
                               f" mismatches {0 if wrong is None else 1}")
    assert wrong is None, f"seed {used}: {wrong}"


INTERRUPTED = int(os.environ.get("PGWEIR_DIFFERENTIAL_INTERRUPTED", "500"))
WHILE_INTERRUPTED = {"query_wait_timeout": 0, "settle_after": "0.001"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("settle_after", ["0.001", pytest.param("0.2", marks=pytest.mark.full)])
def test_answers_while_others_need_the_server(start_pooler, stage, record_property, pytestconfig, settle_after):
    """Other clients need the only server at random moments, so that each session is inspected and moved at moments that
    the test above does not reach.
    """
    is_full = pytestconfig.getoption("--full")
    limit, default = (STATEMENTS, "random") if is_full else (INTERRUPTED, FIXED_SEED)
    settings = WHILE_INTERRUPTED | {"settle_after": settle_after}
    wrong, statements, used = run(start_pooler, stage, limit, default=default, interrupts=True, **settings)
    record_property("figures", f"differential, interrupted: {stage[0].folder.name}: {statements} statements, seed {used},"
                               f" mismatches {0 if wrong is None else 1}")
    assert wrong is None, f"seed {used}: {wrong}"


def test_a_session_that_waits_for_a_prepared_transaction_is_no_obstacle(plain_stage):
    """The client has left, but its session waits for a lock of a transaction that the client has prepared."""
    (cluster, keeper), who = plain_stage, 70
    keeper.fresh(who, world.POOLED)
    with cluster.raw("diff", world.POOLED) as client:
        client.query("BEGIN")
        client.query(f"INSERT INTO s{who}.plain VALUES (1)")
        client.query(f"PREPARE TRANSACTION 'P-{who}-1-1'")
        client.query(f"SELECT pg_advisory_lock({1000 * who})")
        client.send(query(f"BEGIN; LOCK TABLE s{who}.plain"))
        machine.wait_until(lambda: cluster.running(f"BEGIN; LOCK TABLE s{who}.plain"))
    keeper.fresh(who, world.POOLED)


@pytest.mark.shows("session_state", "database.session_state")
def test_the_test_detects_session_state_off(start_pooler, plain_stage):
    """The test can fail: here pgweir lends servers without moving session state."""
    wrong, _, _ = run(start_pooler, plain_stage, 3000, shrinks=False, session_state="off")
    assert wrong is not None


def test_postgresql_answers_scripts_twice_in_the_same_way(stages):
    """PostgreSQL answers a script twice in the same way, so each difference comes from the pooler."""
    for version in clusters.VERSIONS:
        cluster, keeper = stages(version, False)
        wrong, _ = round_of(0, seed(), cluster, keeper, cluster)
        assert wrong is None, str(wrong)
