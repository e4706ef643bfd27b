"""Clients that keep a server because their session state can't be moved: limits, and notices."""

import contextlib
import re
import time

import pytest

import machine
import rawclient as wire

# Session state moves between servers.
POOLER_SETTINGS = {"session_state": "transparent"}
BACKEND = "SELECT pg_backend_pid()"
TEMP = "CREATE TEMP TABLE kept (n int, secret text DEFAULT 'hidden')"


def pinned(pooler, sql=TEMP, **login):
    client = pooler.raw(**login)
    assert wire.errors(client.query(sql)) == []
    return client


def mode(pooler, show, **found):
    """Mode, reason and time of the one connection that has these values."""
    pooler.settle()
    (row,) = [row for row in pooler.console(f"SHOW {show}") if found.items() <= row.items()]
    return row["mode"], row["pin_reason"], row["pinned_since"]


# -- limits


@pytest.mark.shows("max_pinned", "pinned_overflow", "database.max_pinned")
@pytest.mark.parametrize("scope", ["global", "database"])
def test_pins_do_not_starve_a_pool(start_pooler, newest_pg, workers, scope):
    own = {"max_pinned": "50%"}
    databases = {"app": newest_pg.entry()}
    if scope == "database":
        own, databases = {"max_pinned": 0}, {"app": newest_pg.entry("max_pinned=1")}
    pooler = start_pooler(newest_pg, databases=databases, default_pool_size=2, pinned_overflow=1,
                          query_wait_timeout=2, workers=workers, **own)
    keepers = [pinned(pooler) for _ in range(2)]
    # One client above the limit is pinned, so there is one server more.
    other = pooler.raw()
    assert other.value("SELECT 7") == "7"
    pooler.expect_log("taking connection beyond pool_size: more are pinned than max_pinned")
    assert pooler.pool()["sv_active"] == 2 and pooler.pool()["sv_idle"] == 1
    keepers.append(pinned(pooler))
    other.send(wire.query("SELECT 7"))
    error = other.error_and_close()
    assert error.words == "query_wait_timeout"
    assert re.search(r"has 3 server\(s\) of 2: 3 idle and pinned\..* In use for longest: by client "
                     r"C-0x[0-9a-f]+ for [\d.]+ s, idle and pinned \(temporary objects\)",
                     error.fields["D"]), error.fields["D"]
    assert "SHOW PINS" in error.fields["H"]
    for keeper in keepers:
        keeper.query("DROP TABLE kept")
    assert pooler.raw().value("SELECT 7") == "7"
    machine.wait_until(lambda: len(pooler.console("SHOW SERVERS")) == 2, 5, "the third server goes")


@pytest.mark.shows("pin_timeout", "database.pin_timeout", "user.pin_timeout")
@pytest.mark.parametrize("scope", ["global", "database", "user"])
def test_pin_timeout(start_pooler, newest_pg, scope):
    options = {"global": {"pin_timeout": 0.5},
               "database": {"pin_timeout": 50, "databases": {"app": newest_pg.entry("pin_timeout=0.5")}},
               "user": {"databases": {"app": newest_pg.entry("pin_timeout=50")},
                        "users_section": {"trusty": "pin_timeout=0.5"}}}
    pooler = start_pooler(newest_pg, default_pool_size=3, **options[scope])
    keeper, shared, busy = pinned(pooler), pooler.raw(), pinned(pooler)
    backend = keeper.value(BACKEND)
    shared.query("SELECT 1")
    busy.query("BEGIN")
    error = keeper.error_and_close()
    assert (error.sqlstate, error.words) == ("57P05", "pin_timeout")
    assert error.fields["D"] == "The session held its server: temporary objects."
    machine.wait_until(lambda: not newest_pg.rows(
        "SELECT 1 FROM pg_stat_activity WHERE pid = %s", int(backend)), 5, "its server is closed")
    assert shared.value("SELECT 7") == "7"
    assert busy.value("SELECT count(*) FROM kept") == "0"
    pooler.expect_log("closing because: pin_timeout (age=")


@pytest.mark.shows("client_idle_timeout")
def test_an_idle_client_goes_whether_it_is_pinned_or_not(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, client_idle_timeout=0.5)
    assert pinned(pooler).error_and_close().words == "client_idle_timeout"


# -- reasons


@pytest.mark.parametrize("how", ["a client waits", "after a while"])
def test_an_inspection_that_fails_is_repeated(start_pooler, newest_pg, how):
    """The session state is unknown, so the client keeps its server until an inspection succeeds."""
    denied = "FUNCTION pg_catalog.pg_lock_status() {} PUBLIC"
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=1, settle_after=0.2)
    newest_pg.run("REVOKE EXECUTE ON " + denied.format("FROM"), dbname="app")
    try:
        with pooler.raw() as keeper, pooler.raw() as other:
            keeper.query("DO $$ BEGIN PERFORM set_config('app.kept', 'mine', false); END $$")
            machine.wait_until(lambda: [row["reason"] for row in pooler.console("SHOW PINS")] == ["unknown state"], what="it fails")
            newest_pg.run("GRANT EXECUTE ON " + denied.format("TO"), dbname="app")
            if how == "a client waits":
                assert other.value("SELECT current_setting('app.kept', true)") in (None, "")
            machine.wait_until(lambda: not pooler.console("SHOW PINS"), what="it succeeds")
            assert keeper.value("SELECT current_setting('app.kept', true)") == "mine"
    finally:
        newest_pg.run("GRANT EXECUTE ON " + denied.format("TO"), dbname="app")



@pytest.mark.shows("database.dedicated", "user.dedicated")
@pytest.mark.parametrize("scope", ["database", "user"])
def test_dedicated(start_pooler, newest_pg, scope, workers):
    databases = {"app": newest_pg.entry("dedicated=1" if scope == "database" else "")}
    users = {"trusty": "dedicated=1"} if scope == "user" else {"replicator": "dedicated=0"}
    pooler = start_pooler(newest_pg, databases=databases, users_section=users, workers=workers,
                          pin_timeout=0.3, default_pool_size=2, max_pinned="100%")
    one, other = pooler.raw(), pooler.raw()
    backend = one.value(BACKEND)
    assert other.value(BACKEND) != backend == one.value(BACKEND)
    (row, _) = pooler.console("SHOW PINS")
    assert (row["reason"], row["statement"]) == ("configured", None)
    one.quiet(0.8)
    assert one.value(BACKEND) == backend
    one.close()
    assert pooler.raw().value("SELECT 7") == "7"
    if scope == "user":
        pooler.raw(user="replicator").query("SELECT 1")
        assert {row["user"] for row in pooler.console("SHOW PINS")} == {"trusty"}


@pytest.mark.shows("pin_parameters")
def test_parameters_that_pin(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, pin_parameters="Work_Mem, jit")
    client = pooler.raw()
    for change, reset in [("SET work_mem = '77kB'", "RESET work_mem"),
                          ("SELECT set_config('jit', 'off', false)", "DISCARD ALL")]:
        client.query("SET statement_timeout = '7min'")
        assert pooler.console("SHOW PINS") == []
        client.query(change)
        (row,) = pooler.console("SHOW PINS")
        assert row["reason"] == "parameter"
        client.query(reset)


@pytest.mark.shows("pin_extensions")
def test_extensions_that_pin(start_pooler, newest_pg):
    newest_pg.run("CREATE OR REPLACE FUNCTION counts() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 7; END'",
                  dbname="app")
    pooler = start_pooler(newest_pg, pin_extensions="some-other, plpgsql")
    # Only after the catalog was read, which begins with the first client.
    client = pooler.raw()
    pins = machine.wait_until(lambda: client.query("SELECT counts()") and pooler.console("SHOW PINS"), 5,
                              "it is pinned")
    assert {pin["reason"] for pin in pins} == {"load"}
    with pytest.raises(Exception, match="SET failed"):
        pooler.console("SET pin_extensions = 'a''b'")
    newest_pg.run("DROP FUNCTION counts()", dbname="app")


# -- log and error messages


def test_pins_are_shown_on_the_console(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    keeper, shared = pinned(pooler), pooler.raw()
    shared.query("SELECT 1")
    backend = int(keeper.value(BACKEND))
    (pin,) = pooler.console("SHOW PINS", user="stats")
    assert (pin["database"], pin["user"], pin["reason"]) == ("app", "trusty", "temporary objects")
    assert pin["remote_pid"] == backend and pin["duration_us"] >= pin["idle_us"] > 0
    assert pin["statement"] == "CREATE TEMP TABLE kept (n int, secret text DEFAULT ?)"
    assert re.fullmatch("[0-9a-f]{16}", pin["fingerprint"])
    assert pin["pinned_since"].endswith(" UTC")
    client, server = pin["client_id"], pin["server_id"]
    expected = ("dedicated", "temporary objects", pin["pinned_since"])
    assert mode(pooler, "CLIENTS", id=client) == mode(pooler, "SERVERS", id=server) == expected
    assert mode(pooler, "SERVERS", state="idle") == ("shared", None, None)
    (own,) = [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "pgbouncer"]
    assert (own["mode"], own["pin_reason"]) == (None, None)
    assert pooler.console("SHOW PIN_STATS") == [{
        "database": "app", "user": "trusty", "reason": "temporary objects", "total_pins": 1, "pinned": 1}]
    pooler.expect_log(f"pinned to S-{server:#x}: temporary objects (statement {pin['fingerprint']}: CREATE TEMP")
    keeper.query("DROP TABLE kept")
    assert pooler.console("SHOW PINS") == []
    assert mode(pooler, "CLIENTS", id=client) == ("shared", None, None)
    (row,) = pooler.console("SHOW PIN_STATS")
    assert (row["total_pins"], row["pinned"]) == (1, 0)
    assert "hidden" not in pooler.log()


@pytest.mark.shows("bypass_users")
def test_session_mode_and_bypass_users_have_no_pins(start_pooler, newest_pg):
    databases = {"app": newest_pg.entry()} | {"sessions": newest_pg.entry("pool_mode=session")}
    pooler = start_pooler(newest_pg, databases=databases, bypass_users="*/replicator")
    native, session = pooler.raw(user="replicator"), pooler.raw(dbname="sessions")
    session.query("SELECT 1")
    assert native.value("SELECT 7") == "7"
    for show in ("CLIENTS", "SERVERS"):
        assert mode(pooler, show, user="replicator") == ("native", None, None)
        assert mode(pooler, show, database="sessions") == ("dedicated", "pool_mode", None)


@pytest.mark.shows("log_pins")
def test_log_pins_is_limited_in_its_rate(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=10, workers=1)
    clients = []
    for _ in range(5):
        clients += pinned(pooler, "SELECT pg_advisory_lock_shared(7)"), pinned(pooler)
    pooler.settle()
    pooler.expect_log(": advisory lock (statement ")
    assert len(re.findall("pinned to S-", pooler.log())) == 2
    pooler.console("SET log_pins = 0")
    client = pinned(pooler, "DECLARE c CURSOR WITH HOLD FOR SELECT 1")
    assert client.value("FETCH c") == "1"
    assert len(re.findall("pinned to S-", pooler.log())) == 2


# -- cleaning


@pytest.mark.shows("handover_clean")
@pytest.mark.parametrize("when", ["auto", "always"])
def test_handover_clean(start_pooler, newest_pg, when):
    """With handover_clean = always, pgweir also removes state that its scanner does not notice."""
    pooler = start_pooler(newest_pg, default_pool_size=1, handover_clean=when)
    clients = [pooler.raw() for _ in range(2)]

    def is_cleaned():
        for client in clients:
            client.query("SELECT 1")
        return newest_pg.rows(
            "SELECT 1 FROM pg_stat_activity WHERE usename = 'trusty' AND query LIKE '%UNLISTEN%'")

    if when == "always":
        machine.wait_until(is_cleaned, 5, "it is cleaned")
    else:
        assert not any(is_cleaned() for _ in range(3))


def test_handover_clean_keeps_prepared_statements(start_pooler, newest_pg):
    """A server that is reset in any case keeps the prepared statements that pgweir has made."""
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=1, handover_clean="always")
    run = wire.bind(name="s") + wire.execute() + wire.SYNC
    with pooler.raw() as client, pooler.raw() as other:
        client.send(wire.parse("SELECT 1", "s") + wire.SYNC).until_ready()
        for _ in range(3):
            assert wire.value(client.send(run).until_ready()) == "1"
            other.query("SELECT 2")
    (stats,) = [row for row in pooler.console("SHOW STATS") if row["database"] == "app"]
    assert stats["total_server_parse_count"] == 1


# -- the time of inspections


@pytest.mark.shows("settle_after")
@pytest.mark.parametrize("after", [300, 3000])
def test_a_session_is_inspected_after_settle_after(start_pooler, newest_pg, after):
    """While no client waits, a server stays with a client that may have changed its session, until `settle_after` has
    passed.
    """
    pooler = start_pooler(newest_pg, default_pool_size=2, workers=1, settle_after=f"{after}ms")
    client = pooler.raw()
    client.query("DO 'BEGIN END'")
    begun = time.monotonic()
    (row,) = [row for row in pooler.console("SHOW SERVERS") if row["state"] == "active"]
    assert row["mode"] == "kept"
    pooler.settle()
    assert time.monotonic() - begun >= after / 1000 - 0.1
    machine.wait_until(lambda: pooler.pool()["sv_idle"] == 1, 5, "the server is idle")


def test_a_session_is_inspected_for_a_waiting_client(start_pooler, newest_pg):
    """The next client gets this server as soon as it needs one; no other is opened."""
    pooler = start_pooler(newest_pg, default_pool_size=5, workers=1, settle_after="1h")
    one, other = pooler.raw(), pooler.raw()
    backend = one.value("DO 'BEGIN END'; SELECT pg_backend_pid()")
    assert other.value("SET work_mem = '5MB'; SELECT pg_backend_pid()") == backend
    assert one.value("SHOW work_mem") == "4MB" and one.value(BACKEND) == backend


def test_readers_of_sequences_pin_their_own_application(start_pooler, plain_or_assisted_pg):
    """An application that asks for lastval() in later transactions keeps its servers; those that only insert share theirs."""
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=2, workers=1, query_wait_timeout=10)
    plain_or_assisted_pg.run("CREATE TABLE numbered (id serial, who text)", dbname="app")
    try:
        with contextlib.ExitStack() as stack:
            reader, *writers = [
                stack.enter_context(pooler.raw(application_name=name)) for name in ("reader", *["writer"] * 8)]
            insert = "INSERT INTO numbered (who) VALUES ('x')"
            for _ in range(2):
                reader.query(insert)
                reader.query("SELECT lastval()")
            reader.query(insert)
            made = str(plain_or_assisted_pg.value("SELECT max(id) FROM numbered", dbname="app"))
            for _ in range(3):
                assert not any(wire.errors(writer.query(insert)) for writer in writers)
                assert [row["reason"] for row in pooler.console("SHOW PINS")] == ["sequence value"]
                assert reader.value("SELECT lastval()") == made
    finally:
        plain_or_assisted_pg.run("DROP TABLE numbered", dbname="app")
