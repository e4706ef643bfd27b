"""PostgreSQL's regression tests in transaction mode, while other clients change session state on the same servers. The
failures are compared with those of a direct run; the differences are in `target/regress`.
"""

import pytest

import cluster as clusters
from regress import noise
from regress.source import Unavailable
from regress.suite import Suite, keep

SERVERS, NEIGHBOURS = 6, 4
# Of 217 tests, 214 have to pass. The others depend on a new server: `stats` counts sessions; `temp` and `guc` notice
# that the server has had a temporary schema, or has loaded a module.
MOST_FAILURES = 3


@pytest.fixture(scope="session")
def suites(templates, run_folder):
    """Gives the suite of a version, and the tests that fail on a direct connection."""
    made = {}

    def suite(version):
        if version not in made:
            binaries, _ = templates(version)
            try:
                one = Suite.prepare(version, binaries, run_folder / f"source-{version}")
            except Unavailable as why:
                pytest.skip(f"no source of PostgreSQL {version}: {why}")
            made[version] = one, _direct(one, run_folder / f"regress-{version}")
        return made[version]

    return suite


def _direct(suite, folder):
    cluster = suite.cluster(folder)
    try:
        return suite.run(cluster.host, cluster.port, folder)
    finally:
        cluster.stop()
        keep(folder, f"{suite.version}-direct")


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.pgweir_only("of 217, 23 pass")
@pytest.mark.parametrize("assist", [False, True], ids=["plain", "assisted"])
@pytest.mark.parametrize("version", clusters.VERSIONS, ids=lambda version: f"pg{version}")
def test_regress(new_pooler, suites, assist_libraries, run_folder, record_property, version, assist):
    suite, (count, fails_directly) = suites(version)
    name = f"{version}-{'assisted' if assist else 'plain'}"
    folder = run_folder / f"regress-{name}"
    cluster = suite.cluster(folder, assist_libraries(version) if assist else None)
    try:
        weir = new_pooler(None, databases={"*": f"host={cluster.host} port={cluster.port}"}, workers=2,
                          users={clusters.SUPERUSER: ""}, default_pool_size=SERVERS, max_client_conn=500,
                          # On a busy machine waits may be long, and pgweir's notice about a wait would count as a
                          # difference.
                          query_wait_notify=0).start()
        with noise.neighbours(NEIGHBOURS, host=weir.host, port=weir.port, user=clusters.SUPERUSER, dbname="regression"):
            ran, failed = suite.run(weir.host, weir.port, folder)
    finally:
        cluster.stop()
        keep(folder, name)
    ours = sorted(set(failed) - set(fails_directly))
    record_property("figures", f"regress: {name}: {ran - len(failed)} of {ran} pass; fail: {', '.join(failed) or 'none'}"
                               f" (directly {count - len(fails_directly)} of {count}; fail:"
                               f" {', '.join(fails_directly) or 'none'})")
    assert ran == count > 200
    assert len(ours) <= MOST_FAILURES, ours
