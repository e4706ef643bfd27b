"""SHOW EVENTS, and the audit lines of commands and failed logins."""

import json
import re
import signal

import psycopg
import pytest

import machine
import rawclient as wire

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def events(pooler, kind, user="admin"):
    """The events of one kind, oldest first."""
    return [row for row in pooler.console("SHOW EVENTS", user) if row["kind"] == kind]


def refused(pooler, command):
    """Runs a command that must fail."""
    with pytest.raises(psycopg.Error):
        pooler.console(command)


def test_commands(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    pooler.console("DISABLE app")
    pooler.console("ENABLE app")
    refused(pooler, "PAUSE nowhere")
    rows = events(pooler, "command", user="stats")
    assert [(row["event"], row["database"], row["user"], row["severity"], row["count"]) for row in rows] == [
        ("DISABLE app", "app", "admin", "info", 1), ("ENABLE app", "app", "admin", "info", 1)]
    assert re.fullmatch(DATE, rows[0]["time"]) and re.fullmatch(DATE, rows[0]["last_time"])
    (row,) = events(pooler, "command_failed")
    assert (row["event"], row["severity"]) == ("PAUSE nowhere: no such database: nowhere", "warning")
    (started,) = events(pooler, "started")
    assert started["id"] == 1 and started["event"].startswith("process up: pgweir")


def test_reload_and_signals(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    pooler.console("RELOAD")
    assert len(events(pooler, "reloaded")) == 1
    text = pooler.ini_path.read_text()
    pooler.write_ini(text + "no_such_key = 1\n")
    refused(pooler, "RELOAD")
    (row,) = events(pooler, "reload_failed")
    assert "no_such_key" in row["event"] and row["severity"] == "error"
    pooler.write_ini(text)
    pooler.signal(signal.SIGHUP)
    machine.wait_until(lambda: events(pooler, "signal"), what="the signal is an event")
    assert events(pooler, "signal")[0]["event"] == "SIGHUP"


def test_lost_servers(start_pooler, newest_pg, workers):
    """A server that PostgreSQL ends is an event of its pool; so is a login that fails."""
    pooler = start_pooler(newest_pg, workers=workers,
                          databases={"app": newest_pg.entry(), "none": newest_pg.entry(dbname="nowhere")})
    client = pooler.raw()
    with newest_pg.connect() as direct:
        direct.execute("SELECT pg_terminate_backend(%s)", [int(client.value("SELECT pg_backend_pid()"))])
    machine.wait_until(lambda: events(pooler, "server_lost"), what="the lost server is an event")
    (row,) = events(pooler, "server_lost")
    assert (row["database"], row["user"]) == ("app", "trusty")
    assert "terminating connection due to administrator command" in row["event"]
    pooler.login_error(dbname="none")
    row = events(pooler, "pool_error")[0]
    assert row["database"] == "none" and 'database "nowhere" does not exist' in row["event"]


def test_failed_logins_are_one_entry(start_pooler, newest_pg, workers):
    """A failed login has an event of its own only if the userlist has the user, since anybody can invent names. The
    event has the addresses; the audit line has the name.
    """
    pooler = start_pooler(newest_pg, workers=workers, auth_type="scram-sha-256")
    for number in range(5):
        pooler.login_error(user=f"guess{number}", password="secret word")
    (row,) = events(pooler, "login_failed")
    assert (row["count"], row["database"], row["user"]) == (5, "app", "")
    assert row["event"] == "login of a client failed: denied, SQLSTATE 28P01"
    assert row["sources"] == '127.0.0.1 (user "guess4"): 5'
    found = re.findall(r"LOG C-0x[0-9a-f]+: app/(guess\d)@127\.0\.0\.1:\d+ audit: login: failed: ", pooler.log())
    assert sorted(found) == [f"guess{number}" for number in range(5)]
    assert "secret word" not in pooler.log()
    # The event names a user of the userlist.
    pooler.login_error(user="scrammed", password="secret word", application_name="import")
    row = events(pooler, "login_failed")[-1]
    assert (row["count"], row["user"]) == (1, "scrammed")
    assert row["sources"] == '127.0.0.1 (application "import"): 1'
    assert events(pooler, "started")[0]["sources"] is None


@pytest.mark.shows("event_history")
def test_the_oldest_are_dropped(start_pooler, newest_pg):
    """The number of entries is bounded; ids tell how many were dropped."""
    pooler = start_pooler(newest_pg, event_history=3)
    for number in range(5):
        pooler.console(f"SET query_timeout = {number + 1}")
    rows = pooler.console("SHOW EVENTS")
    assert [row["event"] for row in rows] == [f"SET query_timeout={number}" for number in (3, 4, 5)]
    assert [row["id"] for row in rows] == [4, 5, 6]
    pooler.console("SET event_history = 0")
    assert pooler.console("SHOW EVENTS") == []


@pytest.mark.shows("log_audit")
def test_audit_lines(start_pooler, newest_pg):
    """An audit line has the user, the command, the address and the outcome, but no password."""
    pooler = start_pooler(newest_pg)
    pooler.console("RECONNECT")
    pooler.console("SET stats_period = 30")
    refused(pooler, "KILL_CLIENT 999999")
    refused(pooler, "SET pool_mode = nonsense")
    who = r" LOG C-0x[0-9a-f]+: pgbouncer/admin@127\.0\.0\.1:\d+ audit: command "
    for line in (r'"RECONNECT": ok', r'"SET stats_period=30": ok',
                 r'"KILL_CLIENT 999999": client not found', r'"SET pool_mode=nonsense": '):
        machine.wait_until(lambda line=line: re.search(who + line, pooler.log()), what=line)
    pooler.console("SET log_audit = 0")
    pooler.console("RECONNECT")
    pooler.console("SET log_audit = 1")
    pooler.console("SET stats_period = 31")
    machine.wait_until(lambda: '"SET stats_period=31": ok' in pooler.log(), what="a line of a later command")
    assert pooler.log().count('"RECONNECT": ok') == 1


@pytest.mark.shows("log_format")
def test_lines_in_json(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, log_format="json", auth_type="scram-sha-256")
    pooler.login_error(user='bad "name"\n', password="x")
    pooler.console("RECONNECT")
    machine.wait_until(lambda: '"command":"RECONNECT"' in pooler.log(), what="the audit line")
    # Lines before the configuration was read have PgBouncer's format.
    lines = [json.loads(line) for line in pooler.log().splitlines() if line.startswith("{")]
    assert len(lines) > 5
    for line in lines:
        assert set(line) <= {"time", "pid", "level", "connection", "message", "audit"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["pid"] == pooler.pid
    login, command = [line["audit"] for line in lines if "audit" in line]
    assert (login["action"], login["user"], login["database"]) == ("login", 'bad "name"\n', "app")
    assert login["outcome"].startswith("failed: ")
    assert (command["command"], command["user"], command["outcome"]) == ("RECONNECT", "admin", "ok")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", command["address"])
    pooler.console("SET log_format = pgbouncer")
    pooler.raw(user="admin", dbname="pgbouncer", password="admin password")
    assert re.search(r"^\d{4}-\d\d-\d\d .* LOG C-0x", pooler.log().splitlines()[-1])


def test_clients_that_wait_are_an_event(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1, query_wait_notify=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.expect("N")
    (row,) = events(pooler, "clients_wait")
    assert (row["event"], row["database"], row["user"]) == ("clients wait: pool_size", "app", "trusty")
    holder.query("COMMIT")
