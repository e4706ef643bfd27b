"""SHOW STATEMENTS, the series of statements, and the log of slow transactions."""

import json
import re
import subprocess

import psycopg
import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from scraping import get, scrape
from test_api import Api

pytestmark = pytest.mark.pgweir_only("PgBouncer has no statistics of statements")


def statements(pooler, user="stats", **where):
    """The rows of SHOW STATEMENTS by their texts. Each text is there once, as long as `where` names one pool."""
    rows = pooler.console("SHOW STATEMENTS", user)
    rows = [row for row in rows if all(row[column] == value for column, value in where.items())]
    found = {row["statement"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def pause(seconds):
    machine.wait_until(machine.after(seconds), seconds + 5, "a pause")


def figures(row, *columns):
    return tuple(row[column] for column in columns)


MODES = {
    "transparent": {"session_state": "transparent"},
    "off": {"session_state": "off"},
    "session": {"pool_mode": "session"},
    "statement": {"pool_mode": "statement"},
    "unfollowed": {"max_prepared_statements": 0},
}


@pytest.mark.parametrize("mode", MODES)
def test_simple_and_extended(start_pooler, newest_pg, workers, mode):
    """Texts that differ in values, comments and blanks are one statement, by any protocol."""
    pooler = start_pooler(newest_pg, workers=workers, **MODES[mode])
    with pooler.raw() as one, pooler.raw() as other:
        one.query("SELECT g FROM generate_series(1, 3) g -- 'secret'")
        other.query("SELECT g FROM  generate_series(4,\n9) g /* secret */")
        other.ask(wire.extended("SELECT g FROM generate_series(1, 2) g") + wire.SYNC)
        # A named statement that runs twice, once in parts.
        one.ask(wire.parse("SELECT g FROM generate_series(7, $1::int) g", name="s", types=[23]) + wire.SYNC)
        run = wire.bind(["11"], name="s")
        one.ask(run + wire.execute() + wire.SYNC)
        one.ask(run + wire.execute(rows=2) + wire.execute() + wire.SYNC)
        one.ask(wire.query(""))
    found = statements(pooler)
    assert "secret" not in str(found)
    row = found["SELECT g FROM generate_series(?, ?) g"]
    assert figures(row, "database", "user", "calls", "rows", "errors") == ("app", "trusty", 3, 11, 0)
    row = found["SELECT g FROM generate_series(?, $1::int) g"]
    assert figures(row, "calls", "rows") == (3, 10)
    assert row["server_us"] >= row["max_server_us"] > 0 and row["p95_server_us"] <= row["max_server_us"]
    assert figures(found[""], "calls", "rows") == (1, 0)
    assert set(found) == {"SELECT g FROM generate_series(?, ?) g", "SELECT g FROM generate_series(?, $1::int) g", ""}


def test_errors_and_pipelines(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    with pooler.raw() as client:
        client.error("SELECT 1 / 0")
        client.error("SELECT 'secret' FROM")
        # After an error, PostgreSQL skips the pipeline up to the Sync. Skipped statements are no calls.
        first, failing, last = (wire.parse(sql) + wire.bind() + wire.execute() for sql in (
            "SELECT 'a'", "SELECT 1 / 0 AS b", "SELECT 'c' AS c"))
        client.send(first + failing + last + wire.SYNC + first + wire.SYNC + last + wire.SYNC)
        messages = [message for _ in range(3) for message in client.until_ready()]
        assert len(wire.rows(messages)) == 3 and len(wire.errors(messages)) == 1
        # A statement that can't be prepared.
        assert wire.errors(client.send(wire.parse("SELECT nothing") + wire.SYNC).until_ready())
    found = statements(pooler)
    assert figures(found["SELECT ? / ?"], "calls", "errors", "rows") == (1, 1, 0)
    assert figures(found["SELECT ? FROM"], "calls", "errors") == (1, 1)
    assert figures(found["SELECT ?"], "calls", "errors", "rows") == (2, 0, 2)
    assert figures(found["SELECT ? / ? AS b"], "calls", "errors") == (1, 1)
    assert figures(found["SELECT ? AS c"], "calls", "errors") == (1, 0)
    assert figures(found["SELECT nothing"], "calls", "errors") == (0, 1)


def test_several_commands_and_copy(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    lines = "".join(f"{number}\tsecret\n" for number in range(5000))
    with pooler.connect() as db:
        db.execute("CREATE TEMP TABLE copied (n int, word text)")
        cursor = db.cursor()
        with cursor.copy("COPY copied FROM STDIN") as copy:
            copy.write(lines)
        with cursor.copy("COPY copied TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 5000
        with pytest.raises(psycopg.Error), cursor.copy("COPY copied FROM STDIN") as copy:
            copy.write("no number\tsecret\n")
        db.rollback()
    with pooler.raw() as client:
        client.query("SELECT 1; SELECT 2 FROM generate_series(1, 4); SELECT 3")
    found = statements(pooler)
    row = found["COPY copied FROM STDIN"]
    assert figures(row, "calls", "rows", "errors") == (2, 5000, 1)
    assert row["received_bytes"] > len(lines)
    row = found["COPY copied TO STDOUT"]
    assert figures(row, "calls", "rows") == (1, 5000) and row["sent_bytes"] > len(lines)
    row = found["SELECT ?; SELECT ? FROM generate_series(?, ?); SELECT ?"]
    assert figures(row, "calls", "rows") == (1, 6)
    assert row["received_bytes"] == len(wire.query("SELECT 1; SELECT 2 FROM generate_series(1, 4); SELECT 3"))
    assert "secret" not in str(found)


def test_pins_and_inspections(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, session_state="transparent")
    with pooler.raw() as client:
        client.query("CREATE TEMP TABLE kept AS SELECT 'secret' AS word")
        pooler.settle()
        client.query("SELECT 1")
        found = statements(pooler)
    row = found["CREATE TEMP TABLE kept AS SELECT ? AS word"]
    assert row["pins"] == 1 and row["inspections"] >= 1
    assert figures(found["SELECT ?"], "pins", "inspections") == (0, 0)


@pytest.mark.parametrize("kept", ["word", "word, " + ", ".join(f"{number} AS n{number}" for number in range(100))])
def test_a_pin_counts_for_its_statement(start_pooler, newest_pg, workers, kept):
    """The pin counts for the statement that causes it, not for the last one, even if pgweir has kept only the beginning
    of its text.
    """
    pooler = start_pooler(newest_pg, workers=workers, session_state="transparent")
    with pooler.raw() as client:
        client.query(f"BEGIN; CREATE TEMP TABLE kept AS SELECT {kept} FROM (VALUES (1)) v (word)")
        client.query("INSERT INTO kept SELECT * FROM kept")
        client.query("COMMIT")
        (pin,) = pooler.console("SHOW PINS")
        rows = pooler.console("SHOW STATEMENTS")
    pinning = {row["fingerprint"]: row for row in rows if row["pins"]}
    assert list(pinning) == [pin["fingerprint"]], rows
    assert pinning[pin["fingerprint"]]["statement"].startswith("BEGIN; CREATE TEMP TABLE kept")


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(start_pooler, newest_pg, workers, mode):
    # With -M prepared, pgbench waits for a Parse of one client while other clients are in a transaction.
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=4 if mode == "prepared" else 2)
    script = "\\set n random(1, 100)\nBEGIN;\nSELECT :n + 1;\nEND;\n"
    done = subprocess.run(
        [newest_pg.binaries.path("pgbench"), "-n", "-c", "4", "-t", "50", "-M", mode, "-f", "/dev/stdin", "-h", pooler.host,
         "-p", str(pooler.port), "-U", "trusty", "app"], input=script, text=True, capture_output=True, check=True)
    assert "number of transactions actually processed: 200" in done.stdout
    found = statements(pooler)
    text = "SELECT ? + ?;" if mode == "simple" else "SELECT $1 + ?;"
    # psql and pgbench send the text with or without its semicolon.
    found = {text.rstrip(";"): row for text, row in found.items()}
    assert figures(found[text.rstrip(";")], "calls", "rows") == (200, 200)
    assert found["BEGIN"]["calls"] == found["END"]["calls"] == 200
    assert found["END"]["wait_us"] == 0
    if mode != "prepared":
        # The wait for one of two servers is that of the first statement.
        assert found["BEGIN"]["wait_us"] >= found["BEGIN"]["max_wait_us"] > 0


def test_waits_belong_to_the_first_statement(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1)
    with pooler.raw() as holder, pooler.raw() as waiter:
        holder.query("BEGIN")
        waiter.send(wire.query("SELECT 1 AS waited"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="a client waits")
        pause(0.2)
        holder.query("COMMIT")
        waiter.until_ready()
        waiter.query("SELECT 1 AS waited")
    row = statements(pooler)["SELECT ? AS waited"]
    assert row["wait_us"] >= row["max_wait_us"] >= 200_000
    assert row["max_server_us"] < row["max_wait_us"]


@pytest.mark.parametrize("mode", ["transparent", "session"])
def test_texts_that_arrive_in_parts(start_pooler, newest_pg, mode):
    pooler = start_pooler(newest_pg, workers=1, **MODES[mode])
    with pooler.raw() as client:
        sql = "SELECT 'secret' AS in_parts"
        for message in (wire.query(sql), wire.extended(sql) + wire.SYNC):
            for cut in (3, 12, 20):
                client.send(message[:cut])
                pause(0.05)
                client.send(message[cut:])
                assert wire.value(client.until_ready()) == "secret"
        # Longer than what is kept of a text.
        client.send(wire.query("SELECT length('" + "secret" * 100_000 + "')"))
        assert wire.value(client.until_ready()) == "600000"
    found = statements(pooler)
    assert found["SELECT ? AS in_parts"]["calls"] == 6
    assert "secret" not in str(found)
    # Of the long text, the beginning is read.
    assert {text for text, row in found.items() if row["calls"] == 1} == {"SELECT length( ? ..."}
    assert len(found) == 2


def test_comments_fill_no_cache(start_pooler, newest_pg):
    """Comments that differ in each request, as sqlcommenter writes them, create no new entries."""
    pooler = start_pooler(newest_pg, workers=1, default_pool_size=1)

    def memory():
        return {row["name"]: row for row in pooler.console("SHOW MEM")}

    def text(number):
        comment = f"/*route='%2Fpolls {number}',traceparent='00-{number:032x}-{number:016x}-01'*/"
        return [f"SELECT {number} AS n {comment}", f"{comment} SELECT {number} AS n", f"SELECT /* {number} */ 1 AS n"][number % 3]

    with pooler.raw() as client:
        for batch in range(50):
            numbers = range(batch * 2000, batch * 2000 + 2000)
            half = [wire.query(text(number)) for number in numbers[:1000]]
            other = [wire.extended(text(number)) + wire.SYNC for number in numbers[1000:]]
            client.send(*half, *other)
            for _ in numbers:
                assert not wire.errors(client.until_ready())
        found = statements(pooler)
        assert figures(found["SELECT ? AS n"], "calls", "rows") == (100_000, 100_000)
        assert len(found) == 1
        kinds = memory()
        assert kinds["cached_text"]["used"] < 10
        assert kinds["statement_statistics"]["used"] == 1
        # Named statements are kept by their exact texts, and no longer than clients have them.
        for number in range(0, 3000, 500):
            made = [wire.parse(text(number + at), name="s") + wire.close("S", "s") + wire.SYNC for at in range(500)]
            client.send(*made)
            for _ in made:
                assert not wire.errors(client.until_ready())
        assert memory()["prepared_statement"]["used"] < 2500
    assert len(statements(pooler)) == 1


@pytest.mark.shows("statement_statistics")
def test_entries_are_bounded(start):  # noqa: F811
    pooler = start(workers=1, statement_statistics=20)
    with pooler.raw() as client:
        for number in range(300):
            client.query(f"SELECT 1 AS passing_{number}")
            client.query("SELECT 1 AS usual")
    found = statements(pooler)
    assert len(found) <= 20 and found["SELECT ? AS usual"]["calls"] == 300
    assert "SELECT ? AS passing_299" in found
    metrics = scrape(pooler.http)
    assert metrics.value("pgweir_statement_entries") == len(found)
    assert metrics.value("pgweir_statement_evictions_total") == 301 - len(found)
    memory = metrics.value("pgweir_memory_bytes", kind="statement_statistics")
    assert 20 * 20 < memory < 200_000
    # 0 forgets all.
    pooler.console("SET statement_statistics = 0")
    with pooler.raw() as client:
        client.query("SELECT 1 AS unseen")
    assert not statements(pooler)
    pooler.console("SET statement_statistics = 20")
    with pooler.raw() as client:
        client.query("SELECT 1 AS seen")
    assert set(statements(pooler)) == {"SELECT ? AS seen"}


@pytest.mark.shows("metrics_max_statements")
def test_series(start):  # noqa: F811
    pooler = start(workers=2, metrics_max_statements=2)
    with pooler.raw() as client:
        # Far apart, so that the order is the same on a busy machine.
        for number, seconds in enumerate([0, 0, 0, 0.3, 0.7]):
            client.query(f"SELECT pg_sleep({seconds}) AS \"n\"\"{number}\"")
            client.error(f"SELECT 1 / 0 AS n{number}")
    metrics = scrape(pooler.http)
    slowest = [row for row in pooler.console("SHOW STATEMENTS") if row["user"] == "trusty"][:2]
    assert [row["statement"] for row in slowest] == ['SELECT pg_sleep(?) AS "n""4"', 'SELECT pg_sleep(?) AS "n""3"']
    for row in slowest:
        labels = {column: row[column] for column in ("database", "user", "fingerprint", "statement")}
        assert metrics.value("pgweir_statement_calls_total", **labels) == 1
        assert metrics.value("pgweir_statement_server_seconds_total", **labels) == row["server_us"] / 1e6
    assert metrics.value("pgweir_metrics_folded_statements") == 8
    pooler.console("SET metrics_max_statements = 0")
    assert "pgweir_statement_calls_total{" not in get(pooler.http, "/metrics").text


def test_the_api_has_the_table(start):  # noqa: F811
    pooler = start(workers=1)
    with pooler.raw() as client:
        client.query("SELECT 'secret' AS word")
    (row,) = Api(pooler).show("statements")
    assert figures(row, "statement", "calls") == ("SELECT ? AS word", 1)


def slow_lines(pooler, count):
    """The lines about slow transactions, once there are so many."""
    def lines():
        return [line for line in pooler.log().splitlines() if "slow transaction: " in line]
    machine.wait_until(lambda: len(lines()) >= count, what=f"{count} lines about slow transactions")
    return lines()


@pytest.mark.shows("log_slow_transactions")
def test_slow_transactions_are_logged(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1, log_slow_transactions=0.3)
    with pooler.raw() as client, pooler.raw() as waiter:
        client.query("SELECT 'fast'")
        client.query("BEGIN")
        client.query("SELECT pg_sleep(0.1), 'secret'")
        waiter.send(wire.query("SELECT 'waited'"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 1, what="a client waits")
        pause(0.35)
        client.error("SELECT 1 / 0")
        client.query("ROLLBACK")
        waiter.until_ready()
        # Two threads write them: the order is theirs.
        first, second = sorted(slow_lines(pooler, 2), key=lambda line: "; 4 statements" not in line)
    pattern = (r"LOG C-0x\w+: app/trusty@127\.0\.0\.1:\d+ slow transaction: (\d+\.\d{3}) ms, of which (\d+\.\d{3}) ms wait for a "
               r"server and (\d+\.\d{3}) ms server; (\d+) statements(?:, (\d+) errors)?: (.*)$")
    total, wait, server, count, errors, listed = re.search(pattern, first).groups()
    assert 450 <= float(total) < 5000 and float(wait) < 300 and 100 <= float(server) < 400
    assert (count, errors) == ("4", "1")
    texts = [re.fullmatch(r"[0-9a-f]{16} (.*)", part)[1] for part in listed.split("; ")]
    assert texts == ["BEGIN", "SELECT pg_sleep(?), ?", "SELECT ? / ?", "ROLLBACK"]
    total, wait, server, count, errors, listed = re.search(pattern, second).groups()
    assert float(wait) >= 350 > float(server) and (count, errors) == ("1", None)
    assert "secret" not in pooler.log() and "waited" not in first + second
    ids = {row["statement"]: row["fingerprint"] for row in pooler.console("SHOW STATEMENTS")}
    assert listed == f"{ids['SELECT ?']} SELECT ?"


def test_slow_transactions_in_json(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, workers=1, log_slow_transactions=0.1, log_format="json")
    with pooler.raw() as client:
        client.query("SELECT pg_sleep(0.2) AS \"a\"\"b\"")
        (line,) = slow_lines(pooler, 1)
    slow = json.loads(line)["slow_transaction"]
    assert slow["duration_us"] >= slow["server_us"] >= 200_000 and slow["statement_count"] == 1
    (statement,) = slow["statements"]
    assert statement["statement"] == 'SELECT pg_sleep(?) AS "a""b"'
    assert len(statement["fingerprint"]) == 16


def test_many_slow_transactions_log_few_lines(start):  # noqa: F811
    pooler = start(workers=1, log_slow_transactions="0.000001")
    with pooler.raw() as client:
        for _ in range(500):
            client.query("SELECT 1")
        lines = slow_lines(pooler, 20)
        pause(1.1)
        client.query("SELECT 1")
        machine.wait_until(lambda: "were not logged" in pooler.log(), what="a line counts those that were left out")
    assert 20 <= len(lines) < 40
    assert scrape(pooler.http).value("pgweir_slow_transactions_total") >= 501
    pooler.console("SET log_slow_transactions = 0")
    before = len(slow_lines(pooler, 1))
    with pooler.raw() as client:
        client.query("SELECT 2")
    assert len(slow_lines(pooler, 1)) == before
