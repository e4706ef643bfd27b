"""The Grafana dashboard and the alert rules of packaging/, and those that were written for pgbouncer_exporter."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import subprocess
from urllib.parse import quote

import psycopg
import pytest
import yaml

import machine
from collector import Collector
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from pooler import ROOT
from scraping import get, scrape
from test_hosts import entry, pair  # noqa: F401 (pair is a fixture)
from test_http import EXPORTER

pytestmark = pytest.mark.pgweir_only("PgBouncer does not speak HTTP")

RULES = ROOT / "packaging/prometheus/pgweir.rules.yml"
DASHBOARD = ROOT / "packaging/grafana/pgweir.json"
NAME = re.compile(r"\b(?:pgbouncer|pgweir|process)_[a-z0-9_]+")

# Usual rules and panels for pgbouncer_exporter, which use only its names and labels.
EXPORTERS_RULES = """
groups:
  - name: pgbouncer
    rules:
      - record: pgbouncer:saturation
        expr: pgbouncer_databases_current_connections / (pgbouncer_databases_max_connections > 0)
      - record: pgbouncer:wait_share
        expr: rate(pgbouncer_stats_totals_client_wait_seconds_total[5s]) / rate(pgbouncer_stats_totals_queries_pooled_total[5s])
      - record: pgbouncer:old_names
        expr: rate(pgbouncer_stats_queries_duration_seconds_total[5s])
      - alert: PgbouncerClientsWait
        expr: sum by (instance, database, user) (pgbouncer_pools_client_waiting_connections) > 0
        labels: {severity: warning}
      - alert: PgbouncerMaxWait
        expr: pgbouncer_pools_client_maxwait_seconds > 0.1
        labels: {severity: warning}
      - alert: PgbouncerNearMaxClients
        expr: pgbouncer_used_clients / pgbouncer_config_max_client_connections > 0.8
      - alert: PgbouncerDown
        expr: pgbouncer_up == 0
"""
EXPORTERS_PANELS = [
    'sum by (database) (pgbouncer_pools_server_active_connections{database=~".+", user=~".+"})',
    'pgbouncer_pools_client_active_connections{database="app"} + on (instance, database, user) pgbouncer_pools_client_waiting_connections',
    'sum(pgbouncer_client_connections{application_name!=""}) by (application_name)',
    'rate(pgbouncer_stats_totals_sql_transactions_pooled_total{database="app"}[5s])',
    '8 * rate(pgbouncer_stats_totals_received_bytes_total[5s])',
    'pgbouncer_databases_pool_size{name="app"} - on (name) pgbouncer_databases_current_connections',
    'pgbouncer_version_info',
]


def expressions():
    """All expressions of dashboard and rules."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        found += [rule["expr"] for rule in group["rules"]]
    assert len(found) > 60
    return found


def filled_in(expression):
    """An expression of the dashboard as Grafana sends it with all variables at their defaults."""
    for variable, value in [("$__rate_interval", "5s"), ("$job", ".*"), ("$instance", ".*"), ("$database", ".*"), ("$user", ".*")]:
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def test_each_series_exists(start):
    """Each series that dashboard and rules name is in a scrape. The parts of a histogram count as their family."""
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        db.execute("CREATE TEMP TABLE t (a int)")
        pooler.settle()
        # A scrape counts itself in the next one.
        scrape(pooler.http)
        metrics = scrape(pooler.http)
        db.execute("DROP TABLE t")
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 60
    # In this test no client waits, there is no standby and no fleet, and no limit is a percentage.
    rare = {"pgweir_pool_clients_waiting", "pgweir_host_lag_seconds", "pgweir_fleet_lease_age_seconds",
            "pgweir_host_usable_connections", "pgweir_host_server_connections_limit"}
    assert named - metrics.names - rare == set()
    assert rare <= set(metrics.types)


def test_the_dashboard_is_well_formed():
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\b", DASHBOARD.read_text()))
    assert used <= variables
    # Each series of pgweir's own has a panel or a rule.
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    documented = set(re.findall(r"`(pgweir_[a-z_]*[a-z])`", (ROOT / "docs/monitoring.md").read_text()))
    parts = {re.sub("_(bucket|sum|count)$", "", name) for name in named}
    missing = documented - named - parts - NOT_SHOWN
    assert missing == set()


# Series that need no panel.
NOT_SHOWN = {
    # These are per pool; the dashboard shows the same per database.
    "pgweir_pool_received_bytes_total", "pgweir_pool_sent_bytes_total", "pgweir_pool_client_logins_total",
    "pgweir_pool_server_logins_total", "pgweir_memory_objects", "pgweir_http_connections", "pgweir_http_connections_refused_total",
    "pgweir_http_connections_displaced_total", "pgweir_http_connections_timed_out_total", "pgweir_http_history_left_out",
    "pgweir_http_addresses_forgotten_total",
}


# -- a real Prometheus

class Prometheus:
    """A Prometheus with rules, which scrapes a pooler each second."""

    def __init__(self, pooler, *rules):
        self.folder = pooler.folder / "prometheus"
        self.folder.mkdir()
        config = self.folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rule) for rule in rules],
            "scrape_configs": [{"job_name": "pgweir", "static_configs": [{"targets": [f"127.0.0.1:{pooler.http}"]}]}],
        }))
        self.port = machine.free_port()
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen([
            shutil.which("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, path):
        answer = get(self.port, f"/api/v1/{path}")
        found = json.loads(answer.text)
        assert found["status"] == "success", (path, found)
        return found["data"]

    def series(self, expression):
        """Labels and values that an expression has now."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query?query=" + quote(expression))["result"]]

    def is_scraping(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # at first Prometheus reports that it is starting
            return bool(self.series("pgbouncer_up == 1"))
        return False

    def alerts(self):
        return {alert["labels"]["alertname"] for alert in self.ask("alerts")["alerts"]}

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        machine.release_port(self.port)


@pytest.fixture
def prometheus():
    """Starts a Prometheus in front of a pooler."""
    assert shutil.which("prometheus"), "Debian's package prometheus: tools/install-deps full"
    started = []

    def start_one(pooler, *rules):
        started.append(Prometheus(pooler, *rules))
        machine.wait_until(started[-1].is_scraping, 60, "pgweir is scraped")
        return started[-1]
    yield start_one
    for one in started:
        one.end()


@contextlib.contextmanager
def load(pooler, pg):
    """pgbench with more clients than servers, prepared statements, a client that is pinned and one that waits for it.

    Each client of pgbench has a thread: pgbench prepares statements synchronously, so one that waits for a server would
    keep its thread from ending the transaction of the one that has the server.
    """
    script = pooler.folder / "load.sql"
    script.write_text("BEGIN;\nSET LOCAL work_mem = '8MB';\nSELECT pg_sleep(0.002);\nCOMMIT;\n")
    def bench(clients, *options):
        return subprocess.Popen(
            [pg.binaries.path("pgbench"), "-n", "-M", "prepared", "-c", clients, "-j", clients, *options, "-T", "120", "-f", str(script),
             "-h", pooler.host, "-p", str(pooler.port), "-U", "trusty", "app"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The first clients prepare once. The other pgbench logs in for each transaction, and prepares again.
    benches = [bench("6"), bench("1", "-C")]
    try:
        with pooler.connect() as pinned:
            pinned.execute("CREATE TEMP TABLE t (a int)")
            yield
            pinned.execute("DROP TABLE t")
    finally:
        for one in benches:
            one.send_signal(signal.SIGTERM)
            one.wait()


def all_have_data(server, wanted, cause=lambda: None):
    """Causes the events of each expression until Prometheus has data for all of them."""
    empty = {filled_in(expression) for expression in wanted}

    def are_filled():
        cause()
        empty.difference_update({expression for expression in empty if server.series(expression)})
        return not empty
    with contextlib.suppress(AssertionError):
        machine.wait_until(are_filled, 60, "data for each expression")
    assert not empty


@pytest.mark.full
def test_every_expression_has_data(start, prometheus, newest_pg, pair):  # noqa: F811
    """Prometheus accepts each expression of dashboard and rules. Each expression of the dashboard has data under load,
    those about memory_limit once the limit is reached. The exceptions are expressions about fleets, repeated reads and
    waits for a replay.
    """
    collector = Collector().start()
    try:
        pooler = start(default_pool_size=2, max_server_conn=50, otlp_endpoint=collector.url, otlp_trace_ratio="0.01",
                       host_check_interval=1, memory_limit="1GB",
                       databases={"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app", "down": "host=127.0.0.1 port=1",
                                  "pair": entry(*pair, target_session_attrs="read-write")})
        done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with load(pooler, newest_pg), pooler.connect(dbname="pair"), \
                pooler.connect("admin", "pgbouncer", password=pooler.users["admin"]) as console:
            with pytest.raises(psycopg.OperationalError):
                pooler.connect(dbname="down")
            server = prometheus(pooler, RULES)
            rules = {filled_in(rule["expr"]) for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
            for expression in rules:
                server.series(expression)
            of_full_memory = {expression for expression in expressions() if re.search("memory_(is_full|refusals)", expression)} - rules
            # A fleet needs etcd, repeated reads need standbys that end, and waits need standbys that lag: Prometheus only has to take
            # these expressions.
            elsewhere = {expression for expression in expressions() if re.search("pgweir_fleet_|repeated_reads|replay_", expression)}
            for expression in elsewhere:
                server.series(filled_in(expression))
            all_have_data(server, set(expressions()) - rules - of_full_memory - elsewhere)
            console.execute("SET memory_limit = '64kB'")
            all_have_data(server, of_full_memory, pooler.login_error)
            console.execute("SET memory_limit = '1GB'")
            groups = server.ask("rules")["groups"]
            assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []
            machine.wait_until(lambda: "PgweirServerLoginFailing" in server.alerts(), 30, "the alert is pending")
    finally:
        collector.end()


@pytest.mark.full
def test_rules_and_panels_for_pgbouncer_exporter_work(start, prometheus, newest_pg):
    """Every series of pgbouncer_exporter has data in Prometheus under load, and rules and panels on its names work."""
    pooler = start(default_pool_size=2)
    rules = pooler.folder / "exporter.rules.yml"
    rules.write_text(EXPORTERS_RULES)
    done = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with load(pooler, newest_pg):
        server = prometheus(pooler, rules)
        for labels, names in EXPORTER.items():
            for name in names.split():
                series = machine.wait_until(lambda: server.series(f"pgbouncer_{name}"), 30, name)
                # Prometheus drops labels without a value, such as the user of a database that forces none.
                found = {label for own, _ in series for label in own} - {"__name__", "instance", "job"}
                assert found <= set(labels) <= found | {"force_user", "pool_mode"}, name
        for name in ("stats_totals_queries_pooled", "stats_totals_client_wait_seconds", "stats_totals_binds", "stats_totals_client_parses"):
            machine.wait_until(lambda: server.series(f'rate(pgbouncer_{name}_total{{database="app"}}[5s]) > 0'), 30, f"{name} rises")
        for expression in EXPORTERS_PANELS:
            machine.wait_until(lambda: server.series(expression), 30, expression)
        for record in ("saturation", "wait_share", "old_names"):
            # No database has a limit, so the ratio has no value.
            if record != "saturation":
                machine.wait_until(lambda: server.series(f"pgbouncer:{record}"), 30, record)
        machine.wait_until(lambda: {"PgbouncerClientsWait"} <= server.alerts(), 30, "the alert fires")
        assert not {"PgbouncerDown", "PgbouncerNearMaxClients"} & server.alerts()
