"""Failovers by real Patroni and etcd, under load, with a ledger: their effects on clients of pgweir. A failover's own
pause is the time until the new primary accepts writes on a direct connection.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, field

import psycopg
import pytest

import ledger
import machine
import namespaces
import patroni

pytestmark = [pytest.mark.full, pytest.mark.pgweir_only("PgBouncer doesn't look for the primary in a list of hosts"),
              pytest.mark.timeout(600)]

BUSY, IDLE, LISTENING = 100, 100, 25
# The most seconds for which clients may wait beyond the pause of Patroni's own failover.
ADDED = 1.0
# Seconds in which a failover must be over.
OVER = 60
TITLE = ("fault", "idle failed", "waiting failed", "listening failed", "in transactions", "COMMIT unknown", "logins",
         "own pause", "seen", "added", "ledger")

# Promises that pgweir does not keep yet, and why. If one is kept, the test fails: remove it from this table.
NOT_YET = {}


@pytest.fixture(scope="module")
def shop(run_folder):
    """A Patroni cluster with a database `app`."""
    reason = namespaces.missing("patroni", "etcd")
    if reason:
        pytest.skip(reason)
    folder = run_folder / "patroni"
    folder.mkdir()
    machine.give_to_service(folder)
    made = patroni.Cluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.remove()


class Probe:
    """Writes to each server on a direct connection, and records when writes succeed."""

    def __init__(self, servers):
        self.worked = {server.name: [] for server in servers}
        self.failed = {server.name: [] for server in servers}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(server,), daemon=True) for server in servers]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def _write(self, server):
        db = None
        for _ in machine.every(0.02, until=self._stop.is_set):
            try:
                db = db or server.connect(application_name="probe")
                db.execute("UPDATE probe SET n = n + 1")
                self.worked[server.name].append(time.monotonic())
            except psycopg.Error as error:
                self.failed[server.name].append(time.monotonic())
                if db is not None and (db.closed or isinstance(error, psycopg.OperationalError)):
                    db.close()
                    db = None
        if db is not None:
            db.close()

    def first_write(self, names, since):
        """Returns when one of these servers first accepted a write after a moment, or None."""
        return min((at for name in names for at in self.worked[name] if at > since), default=None)

    def first_refusal(self, name, since):
        """Returns when this server first refused a write after a moment, or None."""
        return min((at for at in self.failed[name] if at > since), default=None)


@dataclass
class Report:
    """What clients noticed of one fault."""

    fault: str
    idle: list
    waiting: list
    listening: list
    places: dict
    own: float
    seen: float
    added: float
    difference: ledger.Difference
    errors: dict = field(default_factory=dict)

    def unmet_expectations(self, is_held):
        """The expectations that were not met. Without `outage_hold` clients that listen or log in get an error."""
        kept = {"idle clients": not self.idle, "waiting clients": not self.waiting, "pause": self.added <= ADDED,
                "ledger": self.difference.count() == 0}
        if is_held:
            kept |= {"listening clients": not self.listening, "logins": self.places["login"] == 0}
        return {promise for promise, is_kept in kept.items() if not is_kept}

    def line(self):
        cells = (self.fault, len(self.idle), len(self.waiting), len(self.listening), self.places["transaction"], self.places["commit"],
                 self.places["login"], f"{self.own:.2f} s", f"{self.seen:.2f} s", f"{self.added:.2f} s", self.difference)
        return " | ".join(str(cell) for cell in cells)


@contextlib.contextmanager
def switchover(shop, probe):
    shop.switchover()
    yield


@contextlib.contextmanager
def killed_postmaster(shop, probe):
    shop.primary.kill_postmaster()
    yield


@contextlib.contextmanager
def killed_with_patroni(shop, probe):
    old = shop.primary
    old.kill_main()
    old.kill_postmaster()
    yield
    old.start()


@contextlib.contextmanager
def cut_network(shop, probe):
    old = shop.primary
    old.cut()
    yield
    old.restore()


@contextlib.contextmanager
def etcd_gone(shop, probe):
    """Without etcd, the primary is demoted. When etcd is back, it is promoted again."""
    began, name = time.monotonic(), shop.primary.name
    shop.etcd.end_all()
    machine.wait_until(lambda: probe.first_refusal(name, began), 30, "the primary takes no writes")
    shop.etcd.start()
    yield


def kept_servers(pooler):
    """The idle clients that keep a server."""
    idle = {row["ptr"] for row in pooler.console("SHOW CLIENTS") if row["application_name"].startswith("idle")}
    return [row for row in pooler.console("SHOW SERVERS") if row["link"] in idle]


def notify(server):
    with server.connect() as db:
        db.execute("NOTIFY c")


@contextlib.contextmanager
def fault_injected(fault, shop, probe):
    """Injects a fault in a thread, and undoes it at the end. Gives a function that returns what failed."""
    over, problems = threading.Event(), []

    def cause_fault():
        try:
            with fault(shop, probe):
                over.wait()
        except Exception as error:  # collected here, since an exception in a thread would be lost
            problems.append(error)

    def check():
        if problems:
            raise problems[0]
    thread = threading.Thread(target=cause_fault)
    thread.start()
    try:
        yield check
    finally:
        over.set()
        thread.join()
    check()


def play(shop, pooler, fault, setter=ledger.SETTER):
    """Plays a fault under load, and returns the report."""
    shop.settled()
    old = shop.primary
    with old.connect() as db:
        db.execute("DROP TABLE IF EXISTS ledger, probe")
        db.execute(ledger.TABLE + "; CREATE TABLE probe AS SELECT 0 AS n; GRANT ALL ON ALL TABLES IN SCHEMA public TO trusty")
    others = [server.name for server in shop.servers if server is not old]
    if fault is etcd_gone:
        others.append(old.name)
    with (Probe(shop.servers) as probe,
          ledger.Load(BUSY, IDLE, LISTENING, pause=0.05, setter=setter, host=pooler.host, port=pooler.port, user="trusty",
                      dbname="app") as load):
        machine.wait_until(lambda: len(load.answered) > 1000, 60, "transactions run")
        # A client whose session pgweir has not inspected yet keeps its server, and is disconnected when that server is lost.
        machine.wait_until(lambda: not kept_servers(pooler), 20, "the sessions of idle clients are settled")
        began = time.monotonic()
        with fault_injected(fault, shop, probe) as check:
            def paused_for():
                check()
                return time.monotonic() - load.last_before(time.monotonic())
            machine.wait_until(lambda: paused_for() > 0.5, 30, "clients notice the fault")
            stopped = lost = load.last_before(time.monotonic())
            load.ask()
            if old.name in others:
                # The primary may accept a write of the probe after the last answer to a client, before Patroni demotes it.
                lost = machine.wait_until(lambda: check() or probe.first_refusal(old.name, began), OVER, "the primary is demoted")
            accepts = machine.wait_until(lambda: check() or probe.first_write(others, max(stopped, lost)), OVER, "a new primary takes writes")
            writes = machine.wait_until(lambda: check() or load.first_after(accepts), OVER, "clients write again")
            waiting = load.failed_waiting()
        shop.settled()
        new = shop.primary
        idle, listening = load.failed_idle(), load.failed_listening(lambda: notify(new))
        load.stop()
        with new.connect() as db:
            difference = load.difference(db.execute(ledger.ROWS).fetchall())
    return Report(fault.__name__.replace("_", " "), idle, waiting, listening, load.errors_by_place(), accepts - began, writes - stopped,
                  writes - accepts, difference, load.errors)


@pytest.fixture
def start_before(shop, start_pooler):
    """Starts a pooler with the list of the shop's hosts."""
    hosts = ",".join(server.address for server in shop.servers)
    entry = f"host={hosts} port=5432 dbname=app target_session_attrs=read-write"
    return lambda hold: start_pooler(None, databases={"app": entry}, default_pool_size=20, query_wait_notify=0,
                                     server_connect_timeout=2, tcp_user_timeout=2000, outage_hold=hold)


def test_reports_of_the_rest_api(shop, start_pooler):
    """pgweir asks the REST APIs: SHOW HOSTS and SHOW EVENTS have the leader, before and after a switchover."""
    hosts = ",".join(server.address for server in shop.servers)
    # The first one does not exist: the next one is asked.
    urls = ",".join(f"http://{address}:8008" for address in ("127.0.0.1", *hosts.split(",")))
    entry = f"host={hosts} port=5432 dbname=app target_session_attrs=read-write patroni={urls}"
    pooler = start_pooler(None, databases={"app": entry}, patroni_interval=0.2, host_check_interval=5, query_wait_notify=0)

    def leader():
        rows = pooler.console("SHOW HOSTS")
        return [row["host"] for row in rows if (row["patroni"] or "").startswith("leader, running")]
    with pooler.connect() as client:
        for switches in (True, False):
            primary = shop.primary
            machine.wait_until(lambda: leader() == [f"{primary.address}:5432"], 30, "SHOW HOSTS has Patroni's leader")
            machine.wait_until(lambda: client.execute("SELECT host(inet_server_addr())").fetchone()[0] == primary.address, 30)
            latest = [row["event"] for row in pooler.console("SHOW EVENTS") if row["kind"] == "patroni_reported"][-1]
            assert f"the leader is {primary.name} ({primary.address}:5432)" in latest
            if switches:
                shop.switchover()
                shop.settled()


@pytest.mark.parametrize("hold", [0, 60], ids=["plain", "held"])
@pytest.mark.parametrize("fault", [switchover, killed_postmaster, killed_with_patroni, cut_network, etcd_gone])
def test_failover(shop, start_before, record_property, fault, hold):
    """Clients without a transaction notice only a pause, which is hardly longer than the failover's own."""
    check(play(shop, start_before(hold), fault), hold, record_property)


def test_failover_of_an_opaque_database(shop, start_before, record_property):
    """The same where clients change their sessions by a function that may do anything: pgweir has inspected the
    sessions.
    """
    with shop.primary.connect() as db:
        db.execute("CREATE OR REPLACE FUNCTION become(tenant text) RETURNS void LANGUAGE plpgsql AS"
                   " $$ BEGIN EXECUTE format('SELECT %L', tenant); PERFORM set_config('app.tenant', tenant, false); END $$")
    pooler = start_before(60)
    report = play(shop, pooler, killed_with_patroni, "SELECT become(%s)")
    assert "become" in str(pooler.console("SHOW OPAQUE"))
    report.fault += ", opaque"
    check(report, 60, record_property)


def check(report, hold, record_property):
    report.fault += ", held" if hold else ""
    record_property("figures", f"failover: {report.line()}")
    print(" | ".join(TITLE), report.line(), report.errors, report.idle[:3], report.waiting[:3], report.listening[:3], sep="\n")
    assert report.unmet_expectations(bool(hold)) == (NOT_YET.keys() if hold else set())
