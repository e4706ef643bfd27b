"""No session state crosses from one client to another: one test per class of what keeps state without saying so.

Each line of `leaks/lines.py` is played twice. A direct session shows that the line keeps session state at all. Then a
client plays it through a pool of one server, and neighbours look at all that a session can hold, while the client is
connected and after it has left. A server that the pooler has closed instead is no leak.
"""

import itertools

import pytest

import cluster as clusters
from leaks import line as lines
from leaks import stage as stages
from leaks.lines import CLASSES

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

CELLS = [(version, assist) for version in clusters.VERSIONS for assist in (False, True)]
# Seconds that a neighbour waits for a server which its client keeps.
WAIT_S = 0.4
_numbers = itertools.count(1)


@pytest.fixture(params=CELLS, ids=lambda cell: f"pg{cell[0]}-{'assisted' if cell[1] else 'plain'}")
def cell(request, shared_clusters):
    version, assist = request.param
    return shared_clusters(version, assist=assist), assist


@pytest.fixture
def databases(cell):
    """Makes databases for lines: one for all of them that may share it, one for each that may not."""
    cluster, assist = cell
    made = []

    def make(table):
        numbered = [(f"k{next(_numbers)}", line) for line in table]
        # With the extension pgweir is told what a session holds; the catalog does not decide.
        groups = [[pair] for pair in numbered if pair[1].alone and not assist]
        shared = [pair for pair in numbered if assist or not pair[1].alone]
        for group in [shared, *groups] if shared else groups:
            name = f"leaks{next(_numbers)}"
            made.append(name)
            stages.make_database(cluster, name, [lines.filled(line.setup, x) for x, line in group])
            yield name, group

    yield make
    for name in made:
        cluster.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", CLASSES)
def test_no_state_crosses(cell, databases, start_pooler, kind):
    cluster, _ = cell
    made = list(databases(CLASSES[kind]))
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
                is_live = line.rare or any(isinstance(said, lines.Leave) for said in line.says)
                if not is_live and not stage.directly(line, x, form):
                    idle.append(f"{line.words} ({form})")
                found = stage.through(line, x, form)
                if found:
                    leaks.append(f"{line.words} ({form}): {', '.join(sorted(set(found)))[:200]}")
                    stage.forget()
        stage.close()
    assert not idle, "these keep no session state in a direct session:\n" + "\n".join(idle)
    assert not leaks, f"{len(leaks)} leaks:\n" + "\n".join(leaks)
