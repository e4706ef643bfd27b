"""Traces and metrics for OpenTelemetry, as a collector gets them."""

import contextlib
import re
import subprocess
import time

import psycopg
import pytest

import machine
import rawclient as wire
from collector import Collector, duration_us, values
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer does not know OpenTelemetry")

TRACE, SPAN = "5bd66ef5095369c7b0d1f8f4bd33716a", "c532cb4098ac3dd2"


def parent(sampled=True, trace=TRACE):
    return f"traceparent='00-{trace}-{SPAN}-0{int(sampled)}'"


@pytest.fixture
def collector():
    made = Collector().start()
    yield made
    made.end()


@pytest.fixture
def traced(start, collector):  # noqa: F811 (a fixture)
    """Starts a pooler that traces every transaction."""
    def start_traced(**settings):
        return start(**{"otlp_endpoint": collector.url, "otlp_trace_ratio": 1, "otlp_metrics_interval": 0} | settings)
    return start_traced


def children(collector, root):
    spans = [span for span in collector.spans() if span.parent_span_id == root.span_id]
    assert {span.trace_id for span in spans} <= {root.trace_id}
    return {span.name: span for span in spans}


def transactions(collector, count, **attributes):
    """Waits for this number of transactions with these attributes, and returns their spans."""
    def found():
        spans = collector.spans("transaction")
        return [span for span in spans if attributes.items() <= values(span.attributes).items()]
    machine.wait_until(lambda: len(found()) >= count, what=f"{count} transactions")
    assert len(found()) == count
    return found()


# -- traces

@pytest.mark.shows("otlp_endpoint", "otlp_service_name")
def test_a_transaction_is_a_span(traced, collector):
    pooler = traced(otlp_service_name="db front", default_pool_size=1)
    before = time.time_ns()
    with pooler.connect() as db:
        db.execute("BEGIN")
        db.execute("SELECT 'secret literal', pg_sleep(0.05)")
        db.execute("COMMIT")
    root, = transactions(collector, 1, **{"db.namespace": "app"})
    assert before < root.start_time_unix_nano < root.end_time_unix_nano < time.time_ns()
    assert (len(root.trace_id), len(root.span_id), root.parent_span_id) == (16, 8, b"")
    found = values(root.attributes)
    expected = {"db.system.name": "postgresql", "db.system": "postgresql", "db.namespace": "app", "db.user": "trusty",
                "pgweir.pool": "app/trusty", "pgweir.requests": 3}
    assert expected.items() <= found.items()
    assert root.status.code == 0 and "db.response.status_code" not in found
    parts = children(collector, root)
    server = parts["postgresql"]
    assert values(server.attributes)["db.system"] == "postgresql" and values(server.attributes)["server.address"]
    assert 50_000 <= duration_us(server) <= duration_us(root)
    assert 50_000 <= found["pgweir.server_time_us"] <= duration_us(server)
    resource = collector.resources()[0]
    assert resource["service.name"] == "db front" and resource["process.pid"] == pooler.pid
    assert b"secret" not in b"".join(request.SerializeToString() for request in collector.requests)


def test_waits_and_session_state_are_spans(traced, collector):
    pooler = traced(default_pool_size=1, query_wait_notify=0)
    with pooler.connect() as holder, pooler.raw() as waiter:
        waiter.query("SET work_mem = '7MB'")
        holder.execute("SET work_mem = '9MB'")
        holder.execute("BEGIN")
        waiter.send(wire.query("SELECT 4711"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="a client waits")
        machine.stays_true(lambda: True, 0.1)
        holder.execute("COMMIT")
        waiter.until_ready()
    def waited():
        return [span for span in collector.spans("wait for a server") if duration_us(span) > 90_000]
    wait, = machine.wait_until(waited, what="the span of the wait")
    root, = [span for span in collector.spans("transaction") if span.span_id == wait.parent_span_id]
    found, parts = values(root.attributes), children(collector, root)
    assert found["pgweir.wait_us"] == duration_us(wait)
    assert parts["wait for a server"].end_time_unix_nano == parts["set session state"].start_time_unix_nano
    assert parts["set session state"].end_time_unix_nano == parts["postgresql"].start_time_unix_nano


def test_inspections_belong_to_their_transaction(traced, collector):
    """After a function that may set anything, pgweir inspects the session."""
    pooler = traced()
    with pooler.connect() as db:
        db.execute("DO $$ BEGIN PERFORM set_config('work_mem', '5MB', false); END $$")
        pooler.settle()
    roots = transactions(collector, 1, **{"db.namespace": "app"})
    assert values(roots[0].attributes)["pgweir.inspection_us"] > 0


@pytest.mark.shows("otlp_trace_ratio")
def test_the_applications_decision_comes_first(traced, collector):
    """A sampled parent is traced whatever the ratio; one that is not sampled is not. Malformed ones are ignored."""
    pooler = traced(otlp_trace_ratio=0)
    with pooler.connect() as db:
        for comment in [
            "", f"/*{parent(sampled=False)}*/", "/*traceparent='00-xyz-abc-01'*/", f"/*{parent(trace='0' * 32)}*/",
            f"/*traceparent='00-{TRACE}-{SPAN}'*/", f"/*traceparent='ff-{TRACE}-{SPAN}-01'*/", "/*traceparent='", "*/", "/*",
        ]:
            with contextlib.suppress(psycopg.Error):
                db.execute(f"SELECT 1 {comment}")
        db.execute(f"SELECT 1 /*action='x',{parent()}*/")
        with pooler.connect(prepare_threshold=0) as extended:
            extended.execute(f"/*{parent(trace='a' * 32)}*/ SELECT %s", [7])
    # A text that arrives in pieces.
    with pooler.raw() as raw:
        message = wire.query("SELECT 1" + " " * 3000 + f"/*{parent(trace='b' * 32)}*/")
        for part in (message[:3], message[3:2000], message[2000:]):
            raw.send(part)
            machine.stays_true(lambda: True, 0.05)
        raw.until_ready()
    roots = transactions(collector, 3)
    assert [(root.trace_id.hex(), root.parent_span_id.hex()) for root in roots] == [
        (TRACE, SPAN), ("a" * 32, SPAN), ("b" * 32, SPAN)]
    reload(pooler, otlp_trace_ratio=1)
    with pooler.connect() as db:
        db.execute(f"SELECT 1 /*{parent(sampled=False)}*/")
        db.execute(f"SELECT 1 /*{parent(trace='c' * 32)}*/")
    machine.wait_until(lambda: len(collector.spans("transaction")) >= 4, what="the last transaction")
    assert [root.trace_id.hex() for root in collector.spans("transaction")[3:]] == ["c" * 32]


def test_the_first_text_of_a_transaction_counts(traced, collector):
    pooler = traced(otlp_trace_ratio=0)
    with pooler.connect() as db:
        db.execute(f"BEGIN /*{parent()}*/")
        db.execute(f"SELECT 1 /*{parent(sampled=False, trace='d' * 32)}*/")
        db.execute("COMMIT")
        db.execute("BEGIN")
        db.execute(f"SELECT 1 /*{parent(trace='e' * 32)}*/")
        db.execute("COMMIT")
    root, = transactions(collector, 1)
    assert root.trace_id.hex() == TRACE and values(root.attributes)["pgweir.requests"] == 3


def test_spans_have_errors(traced, collector):
    """SQLSTATEs of the server and of pgweir; a client that leaves in its transaction."""
    pooler = traced(default_pool_size=1, query_wait_timeout=2, query_wait_notify=0)
    with pooler.raw() as raw:
        raw.query("SELECT 1/0")
        raw.query("BEGIN")
        with pytest.raises(psycopg.Error, match="query_wait_timeout"):
            pooler.connect().execute("SELECT 1")
    def messages():
        return {span.status.message for span in collector.spans("transaction") if span.status.code == 2}
    expected = {"SQLSTATE 22012", "SQLSTATE 08P01", "the connection ended in the transaction"}
    machine.wait_until(lambda: len(messages()) >= 3, what="all three")
    assert messages() == expected
    waits = [span for span in collector.spans("wait for a server") if duration_us(span) > 1_500_000]
    assert len(waits) == 1


def test_session_mode_and_pipelines(traced, collector):
    """Transactions on a server that the client keeps are traced one by one, and those of a pipeline too."""
    pooler = traced(pool_mode="session")
    with pooler.raw() as raw:
        raw.query("SELECT 1")
        raw.query("SELECT 2")
        raw.send(b"".join(wire.query(f"SELECT {n}") for n in range(3)))
        for _ in range(3):
            raw.until_ready()
        roots = transactions(collector, 5)
    assert [values(root.attributes)["pgweir.requests"] for root in roots] == [1] * 5


@pytest.mark.shows("otlp_traces")
def test_switched_on_and_off(start, collector):
    pooler = start(otlp_metrics_interval=0, otlp_trace_ratio=1)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        reload(pooler, otlp_endpoint=collector.url)
        db.execute("SELECT 2")
        transactions(collector, 1)
        reload(pooler, otlp_traces=0)
        db.execute("SELECT 3")
        reload(pooler, otlp_traces=1, otlp_endpoint="")
        db.execute("SELECT 4")
        reload(pooler, otlp_endpoint=collector.url)
        db.execute("SELECT 5")
    transactions(collector, 2)
    assert scrape(pooler.http).value("pgweir_otlp_traces_total", result="sent") == 2


def test_the_last_traces_are_sent_at_the_end(traced, collector):
    pooler = traced()
    with pooler.connect() as db:
        db.execute("SELECT 1")
    pooler.signal(15)
    assert pooler.wait_end() == 0
    transactions(collector, 1)


def test_without_http_listen(traced, collector):
    pooler = traced(http_listen="")
    with pooler.connect() as db:
        db.execute("SELECT 1")
    transactions(collector, 1)


@pytest.mark.parametrize("url, complaint", [
    ("collector:4318", "does not begin with http://"), ("https://collector", "has TLS"), ("http://collector:0", "has no port"),
])
def test_invalid_endpoints_are_refused(new_pooler, newest_pg, url, complaint):
    pooler = new_pooler(newest_pg, otlp_endpoint=url)
    pooler.write_files()
    pooler.spawn()
    assert pooler.wait_end() == 1
    assert complaint in pooler.log() and "otlp_endpoint" in pooler.log()


# -- a collector that fails

@pytest.mark.shows("otlp_queue")
def test_a_collector_that_is_down(traced, collector):
    """Queries continue, the queue is bounded, lost traces are counted, and the log has one line."""
    collector.stop()
    pooler = traced(otlp_queue=10)
    with pooler.connect() as db:
        for number in range(200):
            assert db.execute(f"SELECT {number}").fetchone() == (number,)
        def traces_by_result():
            metrics = scrape(pooler.http)
            return {result: metrics.value("pgweir_otlp_traces_total", result=result) for result in ("sent", "dropped", "failed")}
        machine.wait_until(lambda: traces_by_result()["failed"] >= 1, what="a request has failed")
        assert traces_by_result()["dropped"] >= 100 and traces_by_result()["sent"] == 0
        failures = scrape(pooler.http).value("pgweir_otlp_requests_total", signal="traces", result="failed")
        machine.wait_until(lambda: scrape(pooler.http).value(
            "pgweir_otlp_requests_total", signal="traces", result="failed") > failures or not db.execute("SELECT 1"), 30, "another try")
        assert pooler.log().count("does not take data") == 1
        collector.start()
        machine.wait_until(lambda: db.execute("SELECT 1") and traces_by_result()["sent"] >= 1, 60, "the collector is found again")
    pooler.expect_log("takes data again")
    assert pooler.log().count("otlp: ") == 2


@pytest.mark.shows("otlp_timeout")
def test_a_collector_that_does_not_answer(traced, collector):
    collector.hold()
    pooler = traced(otlp_timeout="0.5", otlp_queue=20)
    with pooler.connect() as db:
        for number in range(100):
            assert db.execute(f"SELECT {number}").fetchone() == (number,)
        machine.wait_until(lambda: scrape(pooler.http).value("pgweir_otlp_traces_total", result="failed") >= 1, what="it timed out")
    pooler.expect_log("no answer within 0.5 s (otlp_timeout)")
    assert scrape(pooler.http).value("pgweir_otlp_traces_total", result="dropped") >= 60


@pytest.mark.parametrize("status", [400, 503])
def test_a_collector_that_refuses(traced, collector, status):
    collector.status = status
    pooler = traced()
    with pooler.connect() as db:
        db.execute("SELECT 1")
    pooler.expect_log(f"it answers with status {status}")


def test_under_load(traced, collector, newest_pg):
    """pgbench with a tenth of its transactions traced: each is sent or counted, none is traced twice."""
    pooler = traced(otlp_trace_ratio="0.1")
    count = 4 * 500
    script = pooler.folder / "script.sql"
    script.write_text("SELECT 1;\n")
    done = subprocess.run([newest_pg.binaries.path("pgbench"), "-n", "-f", str(script), "-c", "4", "-t", "500", "-h", pooler.host,
                           "-p", str(pooler.port), "-U", "trusty", "app"], capture_output=True, text=True)
    assert done.returncode == 0 and "number of failed transactions: 0 " in done.stdout, done.stdout + done.stderr
    def sent():
        metrics = scrape(pooler.http)
        return metrics.value("pgweir_otlp_traces_total", result="sent")
    machine.wait_until(lambda: sent() == len(collector.spans("transaction")) > 0.05 * count, what="all are sent")
    spans = collector.spans()
    assert len({span.span_id for span in spans}) == len(spans)
    assert len(collector.spans("transaction")) < 0.2 * count


# -- metrics

@pytest.mark.shows("otlp_metrics_interval")
def test_metrics_are_those_of_the_scrape(start, collector):
    pooler = start(otlp_endpoint=collector.url, otlp_traces=0, otlp_metrics_interval=1)
    with pooler.connect() as db:
        for _ in range(5):
            db.execute("SELECT 1")
        machine.wait_until(collector.metrics, what="metrics have come")
        collector.requests.clear()
        machine.wait_until(collector.metrics, what="more have come")
        scraped, sent = scrape(pooler.http), collector.metrics()
    assert collector.spans() == []
    families = {re.sub("_total$", "", name) if kind == "counter" else name for name, kind in scraped.types.items()}
    assert set(sent) == families
    queries, = [point for point in sent["pgbouncer_stats_totals_queries_pooled"].sum.data_points
                if values(point.attributes) == {"database": "app"}]
    assert queries.as_int == scraped.value("pgbouncer_stats_totals_queries_pooled_total", database="app") == 5
    assert sent["pgbouncer_stats_totals_queries_pooled"].sum.is_monotonic
    assert 0 < queries.start_time_unix_nano < queries.time_unix_nano < time.time_ns()
    pool = {"database": "app", "user": "trusty"}
    histogram, = [point for point in sent["pgweir_pool_query_seconds"].histogram.data_points if values(point.attributes) == pool]
    assert histogram.count == sum(histogram.bucket_counts) == 5
    assert histogram.sum == pytest.approx(scraped.value("pgweir_pool_query_seconds_sum", **pool))
    assert sent["pgbouncer_up"].gauge.data_points[0].as_int == 1
