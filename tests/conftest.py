"""Fixtures: PostgreSQL clusters, and the pooler in front of them."""

import fcntl
import hashlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import cluster as clusters
import machine
import pooler as poolers
from fakeserver import FakeServer
from restarting import Line
from fleetfixtures import etcd, fleet_folder, fleet_pg, load_script, start_node  # noqa: F401 (fixtures)
from tlsfixtures import certificates, tls_pg  # noqa: F401 (fixtures)

RUN_FOLDER = "PGWEIR_TEST_RUN"
USERS_FUNCTIONS = "SELECT oid::regprocedure::text FROM pg_proc WHERE oid >= 16384"
# Seconds for a test of `make test-full` that sets no limit of its own: the full counts take long.
FULL_TIMEOUT = 900
FOLDER_PREFIX = "pgweir-test-"
# The memory that must be free for the run's folder to be there, in bytes: twice what it takes at most.
MEMORY_NEEDED = 8 << 30
# Modules whose tests take longest.
LONG = ("test_soak", "test_leak_generator", "test_leaks", "test_differential", "test_handover", "test_package")


# -- the run: one folder for all processes of pytest-xdist, removed if all tests have passed


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the slow tests and counts too")
    parser.addoption("--soak-minutes", type=float, default=60, help="how long test_soak.py lasts (with --full)")


def pytest_configure(config):
    try:
        poolers.binary()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from error
    if RUN_FOLDER not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=machine.folder_in_memory(MEMORY_NEEDED)))
        folder.chmod(0o755)
        os.environ[RUN_FOLDER] = str(folder)
        config.stash[_owned] = folder


_owned = pytest.StashKey[Path]()
_used = pytest.StashKey[list]()


def pytest_sessionfinish(session, exitstatus):
    folder = session.config.stash.get(_owned, None)
    if folder is None:
        return
    if exitstatus != 0:
        if folder.is_relative_to(tempfile.gettempdir()):
            return
        session.config.stash[_owned] = machine.copy_logs(folder, tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for line in sorted(value for one in reports for name, value in one.user_properties if name == "figures"):
        terminalreporter.write_line(line)
    folder = config.stash.get(_owned, None)
    if folder is not None and exitstatus != 0:
        terminalreporter.write_line(f"logs of servers and poolers are kept in {folder}")


def pytest_report_header(config):
    return f"program under test: {poolers.binary()}"


def pytest_collection_modifyitems(config, items):
    pgbouncer, full = poolers.is_pgbouncer(), config.getoption("--full")
    if pgbouncer:  # it has one thread
        items[:] = [item for item in items if _parameter(item, "workers") in (None, 1)]
    if not full:
        items[:] = [item for item in items if _is_on_diagonal(item)]
    # Otherwise one of them may begin when the other processes have finished all their tests.
    items.sort(key=lambda item: item.module.__name__ not in LONG)
    for item in items:
        better = item.get_closest_marker("pgweir_only")
        if better and pgbouncer:
            item.add_marker(pytest.mark.skip(reason=f"not PgBouncer: {better.args[0]}"))
        if item.get_closest_marker("full") and not full:
            item.add_marker(pytest.mark.skip(reason="slow: make test-full"))
        if full and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(FULL_TIMEOUT))


def _parameter(item, name):
    return item.callspec.params.get(name) if hasattr(item, "callspec") else None


def _is_on_diagonal(item):
    """Returns whether a run that is not full has this combination of version and number of workers: one for each
    version.
    """
    version, workers = _parameter(item, "pg") or _parameter(item, "private_pg"), _parameter(item, "workers")
    if len(clusters.VERSIONS) != 2 or version not in clusters.VERSIONS or workers is None:
        return True
    return clusters.VERSIONS.index(version) == workers - 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for name, path in item.stash.get(_used, []):
            report.sections.append((f"end of {name}", machine.tail(path)))
    return report


# -- clusters

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def run_folder(worker_id):
    """This test process's folder."""
    folder = Path(os.environ[RUN_FOLDER]) / worker_id
    folder.mkdir()
    return machine.give_to_service(folder)


@pytest.fixture(scope="session")
def templates():
    """Gives the binaries and the initialised data folder of a version, made once per run."""
    made = {}

    def template(version):
        if version not in made:
            made[version] = _template(version)
        return made[version]

    return template


def _template(version):
    folder = Path(os.environ[RUN_FOLDER]) / f"template-{version}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            machine.give_to_service(folder)
            clusters.make_template(clusters.Binaries(version, folder), folder)
            (folder / "made").touch()
    return clusters.Binaries.reused(version, folder), folder / "data"


@pytest.fixture(scope="session")
def assist_libraries():
    """Gives the assist extension for a version, built once per run (and per set of compiler flags)."""
    made = {}

    def library(version, *flags):
        key = (version, *flags)
        if key not in made:
            made[key] = _assist_library(version, flags)
        return made[key]

    return library


def _assist_library(version, flags):
    digest = hashlib.sha256("".join(flags).encode()).hexdigest()[:8]
    folder = Path(os.environ[RUN_FOLDER]) / f"assist-{version}-{digest}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True)
        return clusters.build_assist(version, folder, *flags)


@pytest.fixture(scope="session")
def start_cluster(templates, assist_libraries, run_folder):
    """Starts clusters, and stops them at the end.

    With `assist=True` the assist extension is loaded into each session; PGWEIR_ASSIST=1 in the
    environment makes that the default.
    """
    started = []

    def start(version, name, assist=None):
        binaries, data = templates(version)
        folder = run_folder / name
        folder.mkdir()
        machine.give_to_service(folder)
        if assist is None:
            assist = os.environ.get("PGWEIR_ASSIST") == "1"
        library = assist_libraries(version) if assist else None
        made = clusters.Cluster.copy_of(data, binaries, folder, library)
        made.start()
        started.append(made)
        return made

    yield start
    for made in started:
        made.stop()
        made.remove()


@pytest.fixture(scope="session")
def shared_clusters(start_cluster):
    """The cluster of a version that this process's tests share."""
    running = {}

    def get(version, assist=None):
        assist = assist or None
        if (version, assist) not in running:
            name = f"pg{version}-assisted" if assist else f"pg{version}"
            running[version, assist] = start_cluster(version, name, assist)
        return running[version, assist]

    get.running = running
    return get


@pytest.fixture(scope="module", autouse=True)
def no_functions_left_behind(request, shared_clusters):
    """Checks that a module leaves no functions: in a shared database they would change the certificates for other
    modules.
    """
    def functions():
        return {key: {name for (name,) in made.rows(USERS_FUNCTIONS, dbname="app")}
                for key, made in shared_clusters.running.items()}

    before = functions()
    yield
    left = {key: names - before.get(key, set()) for key, names in functions().items()}
    assert not any(left.values()), f"tests of {request.node.name} left functions: {left}"


@pytest.fixture(params=clusters.VERSIONS, ids=lambda version: f"pg{version}")
def pg(request, shared_clusters):
    """A running PostgreSQL, once of each version."""
    return _watched(request, shared_clusters(request.param))


@pytest.fixture(params=clusters.VERSIONS, ids=lambda version: f"pg{version}")
def assisted_pg(request, shared_clusters):
    """A running PostgreSQL with the assist extension, once of each version."""
    return _watched(request, shared_clusters(request.param, assist=True))


@pytest.fixture
def newest_pg(request, shared_clusters):
    """A running PostgreSQL of the newest version, for tests that do not depend on the version."""
    return _watched(request, shared_clusters(clusters.VERSIONS[-1]))


@pytest.fixture
def idle_pg(newest_pg):
    """The same without backends of earlier tests, so that a test can count its own."""
    def is_empty():
        newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                      " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        return newest_pg.backends() == []

    machine.wait_until(is_empty, what="those of the last test are gone")
    return newest_pg


@pytest.fixture
def nothing_runs(shared_clusters):
    """Ends statements of earlier tests: a statement outlives its pooler, since PostgreSQL notices a lost client only at the
    statement's end.
    """
    for made in shared_clusters.running.values():
        made.run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                 " WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()")


@pytest.fixture(params=[None, True], ids=["plain", "assisted"])
def plain_or_assisted_pg(request, shared_clusters):
    """A running PostgreSQL of the newest version, without and with the assist extension."""
    return _watched(request, shared_clusters(clusters.VERSIONS[-1], assist=request.param))


@pytest.fixture(params=clusters.VERSIONS, ids=lambda version: f"pg{version}")
def private_pg(request, start_cluster):
    """A PostgreSQL for one test, which may stop, restart and break it."""
    name = f"own-{next(_numbers)}"
    made = _watched(request, start_cluster(request.param, name))
    yield made
    made.stop()
    made.remove()


def _watched(request, made):
    request.node.stash.setdefault(_used, []).append((f"PostgreSQL {made.version}", made.log))
    return made


# -- poolers


@pytest.fixture(scope="session")
def pgbouncer():
    """Returns whether the program under test is PgBouncer."""
    return poolers.is_pgbouncer()


@pytest.fixture(scope="session")
def program(run_folder):
    """The program under test, where the service account can run it."""
    return machine.service_copy(poolers.binary(), run_folder)


@pytest.fixture(params=(1, 2), ids=lambda n: f"workers{n}")
def workers(request):
    """Numbers of worker threads that a test runs with."""
    return request.param


@pytest.fixture
def folder(run_folder):
    """A folder for one test. Its path is short enough for Unix sockets, and the service account owns it."""
    made = Path(tempfile.mkdtemp(prefix="t", dir=run_folder))
    made.chmod(0o755)
    return machine.give_to_service(made)


@pytest.fixture
def new_pooler(request, program, run_folder, pgbouncer):
    """Makes poolers that are not started yet; they are checked and ended after the test."""
    made = []

    def make(pg=None, **options):
        folder = Path(tempfile.mkdtemp(prefix="w", dir=run_folder))
        folder.chmod(0o755)
        machine.give_to_service(folder)
        one = poolers.Pooler(program, folder, pg, pgbouncer=pgbouncer, **options)
        made.append(one)
        request.node.stash.setdefault(_used, []).append(("the pooler's log", one.log_path))
        return one

    yield make
    problems = []
    for one in made:
        try:
            one.finish()
        except Exception as error:  # end every pooler, even if the check of an earlier one fails
            problems.append(error)
    if problems:
        raise problems[0]


@pytest.fixture
def start_pooler(request, new_pooler):
    """Starts poolers; `start_pooler(pg, pool_mode="session", ...)`. A module's POOLER_SETTINGS hold for all of its own."""
    settings = getattr(request.module, "POOLER_SETTINGS", {})
    return lambda pg=None, **options: new_pooler(pg, **(settings | options)).start()


@pytest.fixture
def line(start_pooler, newest_pg):
    """Starts a pooler that is restarted while it serves; `line(pool_mode="session", ...)`."""
    return lambda pg=newest_pg, **options: Line(start_pooler(pg, **options))


@pytest.fixture
def pooler(start_pooler, pg):
    """A pooler in transaction mode with default settings."""
    return start_pooler(pg)


# -- fake servers


@pytest.fixture
def start_server():
    """Starts fake servers, and stops them after the test."""
    started = []

    def start(behave, **address):
        started.append(FakeServer(behave, **address))
        return started[-1]

    yield start
    for one in started:
        one.stop()
    assert [problem for one in started for problem in one.problems] == []
