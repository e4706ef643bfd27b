"""Metrics and health checks over HTTP."""

import concurrent.futures
import contextlib
import http.client
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from pooler import ROOT
from scraping import OPEN, Metrics, UnixConnection, ask, get, scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer does not speak HTTP")

# The series of pgbouncer_exporter, by their labels.
EXPORTER = {
    ("name", "host", "port", "database", "force_user", "pool_mode"): """
        databases_pool_size databases_reserve_pool databases_max_connections databases_current_connections
        databases_paused databases_disabled""",
    ("database",): """
        stats_totals_queries_pooled_total stats_totals_sql_transactions_pooled_total stats_totals_received_bytes_total
        stats_totals_sent_bytes_total stats_totals_client_parses_total stats_totals_server_parses_total
        stats_totals_binds_total stats_totals_server_assignments_total stats_totals_queries_duration_seconds_total
        stats_totals_client_wait_seconds_total stats_totals_server_in_transaction_seconds_total""",
    ("database", "user"): """
        pools_client_active_connections pools_client_waiting_connections pools_client_active_cancel_connections
        pools_client_waiting_cancel_connections pools_server_active_connections pools_server_active_cancel_connections
        pools_server_being_canceled_connections pools_server_idle_connections pools_server_used_connections
        pools_server_testing_connections pools_server_login_connections pools_client_maxwait_seconds""",
    ("database", "user", "application_name", "state"): "client_connections",
    ("version",): "version_info",
    (): """
        databases users pools free_clients used_clients login_clients free_servers used_servers cached_dns_names
        cached_dns_zones in_flight_dns_queries config_max_client_connections config_max_user_connections up""",
}
POOL_COUNTERS = """received_bytes_total sent_bytes_total prepared_statement_hits_total session_looks_total
    sequence_texts_total setting_texts_total opaque_texts_total failed_session_looks_total long_session_looks_total
    unread_prepares_total session_cleans_total unclean_closes_total server_moves_total server_evictions_total client_logins_total""".split()
HISTOGRAMS = ["wait_seconds", "query_seconds", "transaction_seconds", "client_login_seconds"]


# -- metrics

@pytest.mark.shows("http_listen")
def test_every_series_of_the_exporter(start):
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        metrics = scrape(pooler.http)
    for labels, names in EXPORTER.items():
        for name in names.split():
            series = metrics.series(f"pgbouncer_{name}")
            assert series, name
            for own, _ in series:
                assert own.keys() == set(labels), name
            kind = "counter" if name.endswith("_total") else "gauge"
            assert metrics.types[f"pgbouncer_{name}"] == kind, name
    assert metrics.value("pgbouncer_up") == 1
    assert metrics.value("pgbouncer_config_max_client_connections") == 1000


def test_values_are_those_of_the_console(start):
    """Counters and gauges agree with SHOW, while nothing happens in between."""
    pooler = start(query_wait_notify=0)
    with pooler.connect(application_name="reports") as db, pooler.connect(user="scrammed", password="scram password") as other:
        db.execute("SELECT 1")
        db.execute("BEGIN")
        other.execute("SELECT 1", prepare=True)
        other.execute("SELECT 1", prepare=True)
        metrics = scrape(pooler.http)
        pools = {(row["database"], row["user"]): row for row in pooler.console("SHOW POOLS")}
        stats = {row["database"]: row for row in pooler.console("SHOW STATS_TOTALS")}
        databases = {row["name"]: row for row in pooler.console("SHOW DATABASES")}
    for (database, user), row in pools.items():
        if database == "pgbouncer":
            continue
        of_pool = {"database": database, "user": user}
        for column, name in [("cl_active", "client_active"), ("cl_waiting", "client_waiting"), ("sv_active", "server_active"),
                             ("sv_idle", "server_idle"), ("sv_used", "server_used"), ("sv_login", "server_login")]:
            assert metrics.value(f"pgbouncer_pools_{name}_connections", **of_pool) == row[column], (of_pool, column)
    row = stats["app"]
    for column, name, scale in [
        ("query_count", "queries_pooled", 1), ("xact_count", "sql_transactions_pooled", 1), ("bytes_received", "received_bytes", 1),
        ("bytes_sent", "sent_bytes", 1), ("bind_count", "binds", 1), ("client_parse_count", "client_parses", 1),
        ("server_parse_count", "server_parses", 1), ("server_assignment_count", "server_assignments", 1),
        ("query_time", "queries_duration_seconds", 1e6), ("wait_time", "client_wait_seconds", 1e6),
        ("xact_time", "server_in_transaction_seconds", 1e6),
    ]:
        value = metrics.value(f"pgbouncer_stats_totals_{name}_total", database="app")
        assert value == pytest.approx(float(row[column]) / scale), column
    assert metrics.value("pgbouncer_stats_totals_queries_pooled_total", database="app") >= 4
    (labels, size), = metrics.series("pgbouncer_databases_pool_size", name="app")
    assert size == databases["app"]["pool_size"] == 5
    assert labels["host"] == pooler.pg.host and labels["port"] == str(pooler.pg.port) and labels["force_user"] == ""
    of_client = {"database": "app", "user": "trusty", "application_name": "reports"}
    assert metrics.value("pgbouncer_client_connections", **of_client, state="active") == 1


@pytest.mark.pgweir_only("it carries no session state in transaction mode")
def test_sessions_beyond_fixed_limits(start):
    pooler = start(settle_after=0.01)

    def count(name):
        return scrape(pooler.http).value(f"pgweir_pool_{name}_total", database="app", user="trusty")

    with pooler.raw() as client:
        assert (count("unread_prepares"), count("long_session_looks")) == (0, 0)
        client.query("BEGIN")
        for number in range(5):
            client.query(f"PREPARE p{number} AS SELECT '{'x' * 60_000}'")
        client.query("COMMIT; DEALLOCATE ALL")
        assert count("unread_prepares") == 1
        client.query("SELECT set_config('app.long', repeat('x', 9000000), false)")
        machine.wait_until(lambda: count("long_session_looks") == 1)


def test_the_series_that_only_pgweir_has(start):
    """Histograms, pins, inspections, prepared statements, logins and the process have the values that follow from the
    test's queries.
    """
    pooler = start(default_pool_size=1)
    pool = {"database": "app", "user": "trusty"}
    with pooler.connect(prepare_threshold=0) as db, pooler.connect() as other:
        for _ in range(5):
            db.execute("SELECT 1")
        db.execute("SET work_mem = '9MB'")
        other.execute("SELECT 1")
        db.execute("SET app.metric = '1'")
        db.execute("CREATE TEMP TABLE t (a int)")
        pooler.settle()
        metrics = scrape(pooler.http)
        db.execute("DROP TABLE t")
    for name in HISTOGRAMS:
        name = f"pgweir_pool_{name}"
        assert metrics.types[name] == "histogram"
        buckets = sorted((float(own["le"]), value) for own, value in metrics.series(f"{name}_bucket", **pool))
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), metrics.value(f"{name}_count", **pool)) and buckets[-1][1] >= 2, name
        assert metrics.value(f"{name}_sum", **pool) > 0 or name.endswith("wait_seconds"), name
    for name in POOL_COUNTERS:
        assert (f"pgweir_pool_{name}", frozenset(pool.items())) in metrics.samples, name
    assert metrics.value("pgweir_pool_prepared_statement_hits_total", **pool) >= 3
    assert metrics.value("pgweir_pool_session_looks_total", **pool) >= 1
    assert metrics.value("pgweir_pool_session_cleans_total", **pool) >= 1
    assert metrics.value("pgweir_pool_opaque_texts_total", **pool) >= 1
    assert metrics.value("pgweir_pool_setting_texts_total", **pool) >= 1
    assert metrics.value("pgweir_pool_client_logins_total", **pool) == 2
    assert metrics.value("pgweir_pool_pins_total", **pool, reason="temporary objects") == 1
    assert metrics.value("pgweir_pool_server_logins_total", **pool, result="ok") >= 1
    assert metrics.value("pgweir_client_logins_total", result="ok") >= 2
    where = f"{pooler.pg.host}/.s.PGSQL.{pooler.pg.port}" if pooler.pg.host.startswith("/") else f"{pooler.pg.host}:{pooler.pg.port}"
    assert metrics.value("pgweir_server_connections", database="app", endpoint=where) >= 1
    assert metrics.value("pgweir_memory_bytes", kind="client") > metrics.value("pgweir_memory_objects", kind="client") > 0
    assert metrics.value("process_resident_memory_bytes") > 1 << 20
    assert metrics.value("process_open_fds") > 5
    assert abs(metrics.value("process_start_time_seconds") - time.time()) < 600
    assert metrics.value("pgweir_workers") == 2 and metrics.value("pgweir_ready") == 1


def test_logins_are_counted_by_their_result(start, certificates):
    pooler = start(auth_type="scram-sha-256", **certificates.pooler("prefer"), http_tls="disable")
    before = scrape(pooler.http)
    for user, password, database in [("scrammed", "wrong", "app"), ("scrammed", "scram password", "nowhere"), ("nobody here", "x", "app")]:
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(user=user, password=password, dbname=database, sslmode="disable")
    pooler.connect(user="scrammed", password="scram password", sslmode="require").close()
    with socket.create_connection((pooler.host, pooler.port)) as raw:
        raw.sendall(b"\x16\x03\x01\x00\x05hello")
        while raw.recv(100):
            pass

    def rises():
        metrics = scrape(pooler.http)

        def rise(name, **labels):
            return metrics.value(name, **labels) - before.value(name, **labels)
        return (rise("pgweir_client_logins_total", result="denied") == 2
                and rise("pgweir_client_logins_total", result="no_database") == 1
                and rise("pgweir_client_logins_total", result="ok") == 1
                and rise("pgweir_tls_handshakes_total", side="client", result="failed") == 1
                and rise("pgweir_tls_handshakes_total", side="client", result="ok") >= 1)
    machine.wait_until(rises, what="all logins are counted")


def test_a_server_that_is_down(start):
    """While a server is down, metrics show why clients wait, and which pools can't log in."""
    pooler = start(None, databases={"app": "host=127.0.0.1 port=1"}, server_login_retry=30)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect()
    metrics = scrape(pooler.http)
    assert metrics.value("pgweir_client_logins_total", result="no_server") == 1
    assert metrics.value("pgweir_client_logins_total", result="protocol") == 0
    pool = {"database": "app", "user": "trusty"}
    assert metrics.value("pgweir_pool_server_login_failing", **pool) == 1
    assert metrics.value("pgweir_pool_server_logins_total", **pool, result="failed") >= 1
    assert 0 < metrics.value("pgweir_pool_server_login_retry_seconds", **pool) <= 38  # 30 s and a quarter, in whole seconds
    (host, is_up), = metrics.series("pgweir_server_host_up")
    assert (host, is_up) == ({"database": "app", "endpoint": "127.0.0.1:1"}, 0)
    assert metrics.value("pgweir_server_host_logins_total", **host, result="unreachable") >= 1
    assert metrics.value("pgweir_server_host_logins_total", **host, result="ok") == 0


def test_hosts_of_a_list(start, newest_pg):
    """Each host has its own state; one that refuses a login is up."""
    pooler = start(databases={
        "app": f"host={newest_pg.host},127.0.0.2 port={newest_pg.port} dbname=app",
        "refused": f"host={newest_pg.host} port={newest_pg.port} dbname=nowhere"}, server_login_retry=1)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(dbname="refused")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(pooler.connect()).execute("BEGIN")
        metrics = scrape(pooler.http)
    up = {(own["database"], own["endpoint"].split(":")[0] != "127.0.0.2"): value for own, value in metrics.series("pgweir_server_host_up")}
    assert up["app", True] == up["refused", True] == 1 and up.get(("app", False), 0) == 0
    ok, = [value for own, value in metrics.series("pgweir_server_host_logins_total", database="app", result="ok") if value]
    assert ok >= 3
    assert sum(value for _, value in metrics.series("pgweir_server_host_logins_total", database="refused", result="refused")) >= 1


def test_waiting_clients_by_reason(start):
    pooler = start(default_pool_size=1)
    with pooler.connect() as holder, pooler.raw() as waiter:
        holder.execute("BEGIN")
        waiter.send(wire.query("SELECT 1"))
        pool = {"database": "app", "user": "trusty"}

        def waits():
            metrics = scrape(pooler.http)
            wait = metrics.value("pgbouncer_pools_client_maxwait_seconds", **pool)
            return metrics.value("pgweir_pool_clients_waiting", **pool, reason="pool_size") == 1 and 0 < wait < 60
        machine.wait_until(waits, what="a client waits")
        holder.execute("COMMIT")


def test_both_formats(start):
    pooler = start()
    pooler.connect().close()
    classic, plain = get(pooler.http, "/metrics", Accept="text/plain"), get(pooler.http, "/metrics")
    opened = get(pooler.http, "/metrics", Accept=OPEN)
    assert classic.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert plain.headers["Content-Type"] == classic.headers["Content-Type"]
    assert opened.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    classic, opened = Metrics(classic.text), Metrics(opened.text, is_open=True)
    assert "pgbouncer_stats_totals_binds_total" in classic.types
    assert "pgbouncer_stats_totals_binds" in opened.types and "pgbouncer_stats_totals_binds_total" not in opened.types
    assert {name for name in classic.names if not name.startswith("pgweir_http")} == {
        name for name in opened.names if not name.startswith("pgweir_http")}
    head = get(pooler.http, "/metrics", "HEAD")
    assert head.status == 200 and head.text == "" and int(head.headers["Content-Length"]) > 1000


def test_labels_are_escaped(start):
    pooler = start()
    name = 'a "quoted" \\ name'
    with pooler.connect(application_name=name) as db, pooler.connect() as other:
        other.execute("SET application_name = E'two\\nlines'")
        other.execute("SELECT 1")
        db.execute("SELECT 1")
        metrics = scrape(pooler.http)
        names = {own["application_name"] for own, _ in metrics.series("pgbouncer_client_connections", database="app")}
        shown = {row["application_name"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"}
    assert name in names and names == shown


@pytest.mark.shows("metrics_aliases")
def test_metrics_aliases(start):
    pooler = start()
    pooler.connect().close()
    metrics = scrape(pooler.http)
    pairs = [(name, name.replace("stats_totals", "stats")) for name in metrics.names if "stats_totals" in name]
    assert len(pairs) == 11
    for name, alias in pairs:
        assert metrics.value(name, database="app") == metrics.value(alias, database="app")
        assert (alias, frozenset({("database", "app")})) in metrics.samples
    reload(pooler, metrics_aliases=0)
    names = scrape(pooler.http).names
    assert not any(name.startswith("pgbouncer_stats_") and "totals" not in name for name in names)


@pytest.mark.shows("metrics_max_pools", "metrics_max_applications")
def test_many_names_are_folded(start):
    """The names that were seen first keep their series, and the sums stay complete."""
    pooler = start(metrics_max_pools=3, metrics_max_applications=2)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(pooler.connect(application_name="first"))
        first.execute("SELECT 1")
        assert scrape(pooler.http).value("pgweir_metrics_folded_pools") == 0
        for number, user in enumerate(["plainly", "hashed", "scrammed"]):
            stack.enter_context(pooler.connect(user=user, password=pooler.users[user], application_name=f"app{number}"))
        for _ in range(2):
            stack.enter_context(pooler.connect(application_name="second"))
        metrics = scrape(pooler.http)
        pools = {(row["database"], row["user"]): row for row in pooler.console("SHOW POOLS")}
    name = "pgbouncer_pools_client_active_connections"
    assert metrics.value(name, database="app", user="trusty") == pools["app", "trusty"]["cl_active"]
    total = sum(value for own, value in metrics.series(name) if own["database"] != "pgbouncer")
    assert total == sum(row["cl_active"] for (database, _), row in pools.items() if database != "pgbouncer")
    folded = len(pools) - 3
    assert folded > 0 and metrics.value("pgweir_metrics_folded_pools") == folded
    assert metrics.value(name, database="(other)", user="(other)") > 0
    assert len(metrics.series("pgweir_pool_wait_seconds_count")) <= 4
    assert metrics.value("pgbouncer_client_connections", database="app", user="trusty", application_name="second", state="idle") == 2
    names = {own["application_name"] for own, _ in metrics.series("pgbouncer_client_connections")}
    assert len(names) == 3 and "(other)" in names
    assert metrics.value("pgweir_metrics_folded_application_names") > 0


# -- health

def test_health(start):
    pooler = start()
    assert get(pooler.http, "/healthz").text == "ok\n"
    ready = get(pooler.http, "/readyz")
    assert (ready.status, ready.text) == (200, "ready\n")
    assert ready.headers["Cache-Control"] == "no-store"
    # Clients can log in, and wait.
    pooler.console("PAUSE")
    assert get(pooler.http, "/readyz").status == 200
    paused = get(pooler.http, "/readyz?database=app")
    assert (paused.status, paused.text) == (503, "not ready: the database is paused\n")
    pooler.console("RESUME")
    assert get(pooler.http, "/readyz?database=app").status == 200
    pooler.console("DISABLE app")
    assert "disabled" in get(pooler.http, "/readyz?database=app").text
    pooler.console("ENABLE app")
    assert get(pooler.http, "/readyz?database=nowhere").status == 404
    for query in ("database=", "database=app&database=app", "database=%ff", "user=app"):
        answer = get(pooler.http, f"/readyz?{query}")
        assert answer.status == 400 and answer.text.startswith("bad query: "), query


def test_readiness_of_a_database(start, newest_pg):
    """A database is ready if it has a server, or if its last login has not failed."""
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    pooler = start(databases={"app": where, '"odd name&"': where, "down": "host=127.0.0.1 port=1"})
    assert get(pooler.http, "/readyz?database=down").status == 200, "nobody has tried yet"
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(dbname="down")
    down = get(pooler.http, "/readyz?database=down")
    assert down.status == 503 and "has failed" in down.text
    assert get(pooler.http, "/readyz?database=odd%20name%26").status == 200
    assert get(pooler.http, "/readyz").status == 200
    with pooler.connect() as db:
        db.execute("SELECT 1")
        assert get(pooler.http, "/readyz?database=app").status == 200


def test_shutdown_shows(start):
    """A process that waits for its clients is not ready, but still answers with metrics."""
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        pooler.signal(signal.SIGTERM)
        machine.wait_until(lambda: get(pooler.http, "/readyz").status == 503, what="it is not ready")
        assert "shutting down" in get(pooler.http, "/readyz").text
        assert get(pooler.http, "/healthz").status == 200
        assert scrape(pooler.http).value("pgweir_ready") == 0
    assert pooler.wait_end() == 0


def test_drain(start):
    """pgweir's own user drains over a Unix socket. The drain lasts until the process ends, and clients are not
    affected.
    """
    pooler = start()
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=f"127.0.0.1:{pooler.http}, {path}")
    assert get(pooler.http, "/drain").status == 405
    assert get(pooler.http, "/drain", "POST").status == 401
    assert get(pooler.http, "/readyz").status == 200
    assert ask(UnixConnection(path), "/drain", "POST", Origin="https://elsewhere.example").status == 403
    with pooler.connect() as db:
        assert ask(UnixConnection(path), "/drain", "POST").status == 200
        assert ask(UnixConnection(path), "/drain", "POST").status == 200
        answer = get(pooler.http, "/readyz")
        assert (answer.status, answer.text) == (503, "not ready: draining\n")
        assert get(pooler.http, "/readyz?database=app").status == 503
        pooler.console("RELOAD")
        assert get(pooler.http, "/readyz").status == 503
        assert get(pooler.http, "/healthz").status == 200
        assert db.execute("SELECT 1").fetchone() == (1,)
        pooler.connect().close()
        assert scrape(pooler.http).value("pgweir_draining") == 1
    pooler.expect_log("http: drain: ordered by a Unix socket (user id")


@pytest.mark.shows("http_tokens")
def test_tokens(start, tmp_path_factory):
    pooler = start()
    tokens = pooler.folder / "tokens"
    tokens.write_text("# who may what\nstats scrapers-own-token\nadmin operators-own-token\n")
    machine.give_to_service(tokens)
    reload(pooler, http_tokens=tokens)

    def status(path, method="GET", token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return get(pooler.http, path, method, **headers).status
    refused = get(pooler.http, "/metrics")
    assert refused.status == 401 and refused.headers["WWW-Authenticate"] == "Bearer"
    assert status("/metrics", token="guessed-by-someone") == 401
    assert status("/metrics", token="scrapers-own-token") == 200
    assert status("/metrics", token="operators-own-token") == 200
    # Health checks need no token.
    assert status("/healthz") == status("/readyz") == 200
    assert status("/drain", "POST") == 401
    assert status("/drain", "POST", token="scrapers-own-token") == 403
    assert status("/readyz") == 200
    pooler.expect_log("http: refused /metrics to 127.0.0.1:")
    assert "own-token" not in pooler.log() and "guessed-by-someone" not in pooler.log()
    assert pooler.log().count("http: refused ") <= 3, "one line a second"
    tokens.write_text("stats short\n")
    with pytest.raises(psycopg.Error, match="1: a token has at least 16 characters"):
        pooler.console("RELOAD")
    assert status("/metrics", token="scrapers-own-token") == 200
    tokens.write_text("admin another-of-operators\n")
    pooler.console("RELOAD")
    assert status("/metrics", token="scrapers-own-token") == 401
    assert status("/drain", "POST", token="another-of-operators") == 200
    assert status("/readyz") == 503


@pytest.mark.shows("http_max_login_failures")
def test_wrong_tokens_are_throttled(start):
    """Wrong tokens for one page count for all others. Health checks need no token, and are still answered."""
    pooler = start(http_max_login_failures=2)
    tokens = pooler.folder / "tokens"
    tokens.write_text("admin operators-own-token\n")
    machine.give_to_service(tokens)
    reload(pooler, http_tokens=tokens)
    right = {"Authorization": "Bearer operators-own-token"}
    assert get(pooler.http, "/metrics", **right).status == 200
    for number in range(2):
        assert get(pooler.http, "/metrics", Authorization=f"Bearer guess-number-{number}").status == 401
    for path, method in [("/metrics", "GET"), ("/drain", "POST"), ("/api/v1/session", "GET")]:
        refused = get(pooler.http, path, method, **right)
        assert refused.status == 429 and 0 < int(refused.headers["Retry-After"]) <= 30, path
    assert get(pooler.http, "/readyz").status == 200


# -- bad input

@pytest.mark.parametrize("path, method, expected", [
    ("/nothing", "GET", 404), ("/metrics/", "GET", 404), ("/metrics", "POST", 405), ("/healthz", "DELETE", 405),
    ("/metrics?x=1", "GET", 400), ("/", "GET", 200),
])
def test_other_paths_and_methods(start, path, method, expected):
    pooler = start()
    answer = get(pooler.http, path, method)
    assert answer.status == expected and answer.text.strip()
    if expected == 405:
        assert answer.headers["Allow"] == "GET, HEAD"


MALFORMED = [
    b"nonsense\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"GET  /metrics HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % number for number in range(5_000)) + b"\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST /drain HTTP/1.1\r\nTransfer-Encoding: nonsense\r\n\r\n",
]


def answer_to(port, request):
    """Sends bytes, and returns everything that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                answer += part
        return answer


def test_malformed_requests(start):
    """Each is answered with a status 4xx, and has no other effect."""
    pooler = start()
    for request in MALFORMED:
        answer = answer_to(pooler.http, request)
        # pgweir does not support HTTP/2, and closes the connection.
        assert re.match(rb"HTTP/1\.[01] (4\d\d|505) ", answer) or request.startswith(b"PRI"), (request[:60], answer[:60])
    # pgweir does not wait for a body that is too large.
    request = b"POST /drain HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n" + b"z" * 200_000
    assert answer_to(pooler.http, request).startswith(b"HTTP/1.1 401 ")
    # Only the first request of a connection is answered.
    twice = answer_to(pooler.http, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    assert twice.count(b"HTTP/1.1 200") == 1 and b"connection: close" in twice.lower()
    assert get(pooler.http, "/readyz").status == 200
    assert pooler.memory_kb() < 200_000


@pytest.mark.shows("http_timeout")
def test_slow_requests_end(start):
    pooler = start(http_timeout="1")
    with socket.create_connection(("127.0.0.1", pooler.http), timeout=20) as silent, \
            socket.create_connection(("127.0.0.1", pooler.http), timeout=20) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        began = time.monotonic()
        assert silent.recv(100) == b"" and slow.recv(100) == b""
        assert time.monotonic() - began < 15
    assert scrape(pooler.http).value("pgweir_http_connections_timed_out_total") == 2


@pytest.mark.shows("http_max_connections")
def test_slow_requests_make_room(start):
    """Connections that send nothing do not block others: the oldest of them is closed."""
    pooler = start(http_max_connections=4)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", pooler.http), timeout=20)) for _ in range(4)]
        machine.wait_until(lambda: scrape(pooler.http).value("pgweir_http_connections") >= 4, what="all are open")
        assert get(pooler.http, "/healthz").status == 200
        metrics = scrape(pooler.http)
        assert metrics.value("pgweir_http_connections_displaced_total") >= 1
        assert metrics.value("pgweir_http_connections") <= 4
        with contextlib.suppress(ConnectionError):
            assert idle[0].recv(100) == b""


def test_connections_above_the_limit_are_refused(start):
    """While all connections wait for answers, pgweir refuses another connection with the reason."""
    pooler = start(http_max_connections=2, metrics_interval=2, http_timeout=20)
    scrape(pooler.http)

    def is_refused():
        """Sends two requests that wait, and a third one. Returns whether that one is refused."""
        with contextlib.ExitStack() as stack:
            waiting = []
            for _ in range(2):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", pooler.http), timeout=30))
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                waiting.append(one)
            answer = answer_to(pooler.http, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            if b"503" not in answer:  # one of the two had not been read yet, and was closed for the third
                return False
            assert b"http_max_connections" in answer
            return all(one.recv(15) == b"HTTP/1.1 200 OK" for one in waiting)
    machine.wait_until(is_refused, 60, "one more is refused")
    assert scrape(pooler.http).value("pgweir_http_connections_refused_total") >= 1


@pytest.mark.shows("metrics_interval")
def test_many_scrapers_share_what_is_gathered(start):
    """Hundreds of scrapes at once share a few measurements, and queries run meanwhile."""
    pooler = start(metrics_interval="0.5")
    with pooler.connect() as db, concurrent.futures.ThreadPoolExecutor(40) as pool:
        scrape(pooler.http)
        began = time.monotonic()
        answers = [pool.submit(get, pooler.http, "/metrics") for _ in range(200)]
        count = 0
        while not all(one.done() for one in answers):
            assert db.execute("SELECT 1").fetchone() == (1,)
            count += 1
        assert {one.result().status for one in answers} == {200}
        assert count > 0
        # 40 scrapes at a time, each of which waits for the next half second.
        assert time.monotonic() - began >= 2
    # A scrape includes all that was counted before it.
    before = scrape(pooler.http).value("pgbouncer_stats_totals_queries_pooled_total", database="app")
    with pooler.connect() as db:
        db.execute("SELECT 1")
        assert scrape(pooler.http).value("pgbouncer_stats_totals_queries_pooled_total", database="app") == before + 1


def test_metrics_are_answered_during_a_shutdown(start):
    """While a shutdown waits for a client, workers still answer."""
    pooler = start(http_timeout=1)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        pooler.signal(signal.SIGTERM)
        machine.wait_until(lambda: get(pooler.http, "/readyz").status == 503, what="it is not ready")
        for _ in range(3):
            assert scrape(pooler.http).value("pgbouncer_up") == 1
    assert pooler.wait_end() == 0


# -- the listening addresses

def test_off_by_default(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    assert not any((task / "comm").read_text() == "http\n" for task in Path(f"/proc/{pooler.pid}/task").iterdir())


def test_reload_changes_the_listener(start, http_port):
    """RELOAD adds and removes addresses. If an address can't be used, nothing changes."""
    def answers(port):
        with contextlib.suppress(OSError):
            return get(port, "/healthz").status == 200
        return False

    def wait(*ports, silent=()):
        machine.wait_until(lambda: all(map(answers, ports)) and not any(map(answers, silent)), what=f"{ports}, not {silent}")
    pooler = start(http_listen="")
    assert not answers(http_port)
    reload(pooler, http_listen=f"127.0.0.1:{http_port}")
    wait(http_port)
    other = machine.free_port()
    path = pooler.folder / "http.sock"
    try:
        reload(pooler, http_listen=f"127.0.0.1:{other}, {path}")
        wait(other, silent=[http_port])
        assert ask(UnixConnection(path), "/healthz").status == 200
        # From one address to all addresses with the same port, on which pgweir listens already.
        reload(pooler, http_listen=f"*:{other}")
        wait(other)
        machine.wait_until(lambda: not path.exists(), what="the socket's file is gone")
        with socket.create_server(("127.0.0.1", http_port)):
            with pytest.raises(psycopg.Error, match="cannot listen on 127.0.0.1"):
                reload(pooler, http_listen=f"127.0.0.1:{http_port}")
            with pytest.raises(psycopg.Error, match="cannot listen on 127.0.0.1"):
                pooler.console(f"SET http_listen = '127.0.0.1:{http_port}'")
        wait(other)
        pooler.console(f"SET http_listen = '127.0.0.1:{http_port}'")
        wait(http_port, silent=[other])
        reload(pooler, http_listen="")
        wait(silent=[other, http_port])
    finally:
        machine.release_port(other)


@pytest.mark.parametrize("text, complaint", [
    ("9127", "has no port"), ("::1:9127", "needs brackets"), ("127.0.0.1:0", "has no port from 1 to 65535"),
])
def test_invalid_listen_addresses_are_refused(new_pooler, newest_pg, text, complaint):
    pooler = new_pooler(newest_pg, http_listen=text)
    pooler.write_files()
    pooler.spawn()
    assert pooler.wait_end() == 1
    assert complaint in pooler.log() and "http_listen" in pooler.log()


def test_an_address_in_use_stops_the_start(new_pooler, newest_pg, http_port):
    with socket.create_server(("127.0.0.1", http_port)):
        pooler = new_pooler(newest_pg, http_listen=f"127.0.0.1:{http_port}")
        pooler.write_files()
        pooler.spawn()
        assert pooler.wait_end() == 1
    assert f"http_listen: cannot listen on 127.0.0.1:{http_port}" in pooler.log()


def test_the_unix_socket(start):
    """The socket has the permissions of the setting, and is removed when the process ends."""
    pooler = start(http_listen="", unix_socket_mode="0750")
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=path)
    assert path.stat().st_mode & 0o777 == 0o750
    assert ask(UnixConnection(path), "/readyz").text == "ready\n"
    pooler.signal(signal.SIGQUIT)
    assert pooler.wait_end() == 0
    assert not path.exists()


@pytest.mark.shows("http_tls")
def test_tls(start, certificates):
    trusted = ssl.create_default_context(cafile=certificates.authority.cert)
    pooler = start(**certificates.pooler("prefer"))

    def secure():
        connection = http.client.HTTPSConnection("localhost", pooler.http, timeout=20, context=trusted)
        return ask(connection, "/readyz")
    assert secure().status == get(pooler.http, "/readyz").status == 200
    reload(pooler, client_tls_sslmode="require")
    assert secure().status == 200
    plain = get(pooler.http, "/readyz")
    assert plain.status == 400 and "use https" in plain.text
    pooler.settings |= {"client_tls_sslmode": "verify-full", "client_tls_ca_file": certificates.authority.cert}
    pooler.write_files()
    console = pooler.connect("admin", "pgbouncer", host=str(pooler.folder), password=pooler.users["admin"])
    console.execute("RELOAD")
    with pytest.raises(OSError):
        secure()
    trusted.load_cert_chain(certificates.client.cert, certificates.client.key)
    assert secure().status == 200
    console.execute("SET http_tls = 'disable'")
    console.close()
    assert get(pooler.http, "/readyz").status == 200
    with pytest.raises(OSError):
        secure()


def test_online_restart(line, http_port):
    """The new process answers on the same addresses. Either process answers each request."""
    one = line(http_listen=f"127.0.0.1:{http_port}")
    pooler = one.pooler
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=f"127.0.0.1:{http_port}, {path}")
    started = scrape(http_port).value("process_start_time_seconds")
    one.full()
    assert get(http_port, "/readyz").text == "ready\n"
    assert ask(UnixConnection(path), "/readyz").status == 200
    assert scrape(http_port).value("process_start_time_seconds") >= started
    assert "listening for HTTP on" in pooler.log()


def test_failed_restart_leaves_it_answering(line, http_port):
    """A new process that can't take over changes nothing."""
    one = line(http_listen=f"127.0.0.1:{http_port}")
    pooler = one.pooler
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=f"127.0.0.1:{http_port}, {path}")
    first = pooler.process
    with pooler.connect("admin", "pgbouncer") as console:
        console.execute("SUSPEND")
        pooler.spawn("-R")
        assert pooler.process.wait(20) == 1
        assert "it is suspended" in pooler.log()
    pooler.process = first
    pooler.earlier.remove(first)
    machine.wait_until(path.exists, what="the socket's file is there again")
    assert ask(UnixConnection(path), "/healthz").status == 200
    assert get(http_port, "/healthz").status == 200


# -- Prometheus

def documented():
    """The names of the series in docs/monitoring.md."""
    return set(re.findall(r"`((?:pgweir|process)_[a-z_]*[a-z])`", (ROOT / "docs/monitoring.md").read_text()))


def test_series_are_documented(start):
    """docs/monitoring.md has each family of metrics, and no others."""
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        metrics = scrape(pooler.http)
    own = {name for name in metrics.types if not name.startswith("pgbouncer_")}
    assert own - documented() == set()
    assert documented() - set(metrics.types) == set()


@pytest.mark.full
def test_promtool_accepts_the_metrics(start):
    promtool = shutil.which("promtool")
    assert promtool, "Debian's package prometheus: tools/install-deps full"
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        text = get(pooler.http, "/metrics").text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
