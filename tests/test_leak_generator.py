"""Objects that call a function through each kind of reference between catalogs: the function sets session state, which
must not reach another client. `pg_get_catalog_foreign_keys()` lists the references. For each reference,
`leaks/edges.py` has an object that calls a function by it, or the reason why there is none. Each object is used alone,
and in a chain of two: the function of the first object uses the second object, whose function sets the state. With
`--full`, each object is chained with several others. The test fails for a reference that `edges.py` does not know, such
as one of a new major version.
"""


import psycopg
import pytest

import cluster as clusters
import rawclient as wire
from leaks import edges
from leaks import line as lines
from leaks import stage as stages

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

COMBINATIONS = [(version, assist) for version in clusters.VERSIONS for assist in (False, True)]
WAIT_S = 1
# Objects whose pools are in one pooler at a time.
BATCH = 40
REFERENCES = """
SELECT fktable::text, unnest(fkcols), pktable::text FROM pg_get_catalog_foreign_keys()
 WHERE array_length(fkcols, 1) = 1
UNION SELECT fktable::text, fkcols[2], pktable::text FROM pg_get_catalog_foreign_keys() WHERE array_length(fkcols, 1) = 2
ORDER BY 1, 2, 3"""


@pytest.fixture(params=COMBINATIONS, ids=lambda combination: f"pg{combination[0]}-{'assisted' if combination[1] else 'plain'}")
def combination(request, shared_clusters):
    version, assist = request.param
    return shared_clusters(version, assist=assist), "assisted" if assist else "plain"


def references(cluster):
    return cluster.rows(REFERENCES)


def unknown(found):
    return [f"{table}.{column} -> {target}" for table, column, target in found
            if f"{table}.{column}" not in edges.RECIPES and edges.why_not(table, column, target) is None]


def made_of(recipe, x, body):
    # Setups analyze tables and build indexes: then the functions do nothing.
    guarded = f"IF session_user = '{stages.USER}' THEN {body} END IF;"
    setup = recipe.setup.replace("{body}", guarded).replace("{x}", x)
    return setup, tuple(text.replace("{x}", x) for text in recipe.fires)


def within(text):
    """Returns a text as a statement of PL/pgSQL."""
    return f"PERFORM * FROM ({text}) AS fired;" if text.startswith("SELECT") else f"{text};"


def alone(number, name):
    """A line for one reference."""
    recipe, x = edges.RECIPES[name], f"e{number}"
    keeps = recipe.state or edges.STATES[number % len(edges.STATES)]
    setup, fires = made_of(recipe, x, keeps.replace("{x}", x))
    return x, lines.Line(name, fires, setup, forms=("simple",))


def chained(number, first, second):
    """A line in which the function that is reached by the first reference fires the second."""
    one, two = edges.RECIPES[first], edges.RECIPES[second]
    x, y = f"e{number}", f"f{number}"
    keeps = one.state or two.state or edges.STATES[number % len(edges.STATES)]
    inner, (fired, *_) = made_of(two, y, keeps.replace("{x}", x))
    outer, fires = made_of(one, x, within(fired))
    outer = outer.replace("$k$ BEGIN", "$k$\n#variable_conflict use_column\nBEGIN")
    return x, lines.Line(f"{first} by {second}", fires, inner + outer, forms=("simple",))


def can_fire(first, second):
    """Returns whether the first object can use the second: a function that isn't VOLATILE may only read, and policies
    do not apply to a table's owner.
    """
    one, two = edges.RECIPES[first], edges.RECIPES[second]
    if first in edges.AS_OWNER and second == "pg_policy.polrelid":
        return False
    return first != second and not two.alone and ("IMMUTABLE" not in one.setup or two.fires[0].startswith("SELECT"))


def pairs(count):
    """Returns the pairs of references that are chained: each reference with `count` others."""
    made = []
    for number, first in enumerate(edges.RECIPES):
        seconds = [second for second in edges.RECIPES if can_fire(first, second)]
        made += [(first, seconds[(7 * number + 3 + 11 * more) % len(seconds)]) for more in range(count)]
    return made


def errors_of(stage, line):
    """Why an object can't be fired."""
    with stage.direct() as client:
        return [error for text in line.says for error in wire.errors(client.query(text))]


def play(cluster, start_pooler, made):
    """Uses objects, each in its own database. Returns those whose state reaches another client, and those that keep no
    state even directly.
    """
    leaks, idle = [], []
    names = {x: f"leaks_{x}" for x, _ in made}
    where = f"host={cluster.host} port={cluster.port}"
    for x, line in made:
        try:
            stages.make_database(cluster, names[x], [line.setup])
        except psycopg.Error as error:
            idle.append(f"{line.words}: {error}")
            names.pop(x)
    made = [(x, line) for x, line in made if x in names]
    pooler = start_pooler(cluster, databases={name: f"{where} dbname={name}" for name in names.values()},
                          default_pool_size=1, workers=1, query_wait_timeout=WAIT_S, catalog_check_interval=3600)
    for x, line in made:
        stage = stages.Stage(cluster, pooler, names[x])
        stage.warm()
        if not stage.directly(line, x, "simple"):
            idle.append(f"{line.words}: {errors_of(stage, line)}")
        found = stage.through(line, x, "simple")
        if found:
            leaks.append(f"{line.words}: {', '.join(sorted(set(found)))}")
        stage.close()
        cluster.run(f"DROP DATABASE {names[x]} WITH (FORCE)")
    return leaks, idle


@pytest.mark.timeout(3000)
def test_no_reference_leads_to_a_leak(combination, start_pooler, record_property, pytestconfig):
    cluster, kind = combination
    found = references(cluster)
    assert not unknown(found), f"references without a recipe: {unknown(found)}"
    names = {f"{table}.{column}" for table, column, _ in found}
    full = pytestconfig.getoption("--full")
    singles = [alone(number, name) for number, name in enumerate(edges.RECIPES)
               if name in names and stages.is_played(number, cluster, full, kinds=2)]
    chains = [chained(1000 + number, *pair) for number, pair in enumerate(pairs(8 if full else 1))
              if names.issuperset(pair) and stages.is_played(number, cluster, full, kinds=2)]
    leaks, idle = [], []
    every = singles + chains
    for start in range(0, len(every), BATCH):
        more = play(cluster, start_pooler, every[start : start + BATCH])
        leaks += more[0]
        idle += more[1]
    record_property("figures", f"leaks: PostgreSQL {cluster.version}, {kind}: {len(found)} catalog references, {len(singles)} made"
                               f" into objects, {len(every) - len(idle)} objects fired ({len(chains)} chains of two, of which"
                               f" {len(idle)} keep no state directly either), {len(leaks)} leaks")
    assert not leaks, "\n".join([f"{len(leaks)} leaks:", *leaks])
    # In a chain, the second object may run under limits that forbid it.
    bad = [words for words in idle if " by " not in words] or (idle if len(idle) * 20 > len(chains) else [])
    assert not bad, "\n".join(["no state in a direct session:", *bad])


def test_an_unknown_reference_is_detected(newest_pg):
    """The test of all references can fail."""
    found = references(newest_pg)
    assert len(found) > 150 and not unknown(found)
    assert unknown([*found, ("pg_proc", "pronew", "pg_proc")]) == ["pg_proc.pronew -> pg_proc"]
