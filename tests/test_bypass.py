"""`bypass_users`: clients that have exclusive servers, outside of all pools and limits."""

import subprocess

import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused

BACKEND = "SELECT pg_backend_pid()"
ADMIN = "replicator"
BYPASS = {"bypass_users": f"app/{ADMIN}"}


def admin(pooler, **parameters):
    return pooler.raw(user=ADMIN, **parameters)


def is_gone(pg, backend):
    return not pg.rows("SELECT 1 FROM pg_stat_activity WHERE pid = %s", int(backend))


def begin_login(pooler, user=ADMIN, database="app"):
    """Begins a login: the client has authenticated, and waits for a server."""
    client = pooler.socket()
    client.send(wire.startup(user=user, database=database))
    client.expect("R")
    return client


@pytest.mark.shows("bypass_users", "bypass_max")
def test_bypass_users_exceed_all_limits(start_pooler, pg, workers):
    """The pool, the caps and the number of clients are exhausted, and psql can log in nevertheless."""
    pooler = start_pooler(pg, workers=workers, default_pool_size=1, max_client_conn=2, max_db_connections=1,
                          max_user_connections=1, max_server_conn=1, max_db_client_connections=2,
                          max_user_client_connections=1, bypass_users=f"other/*, */{ADMIN}")
    holder, waiter = pooler.raw(), pooler.raw(user="scrammed", password="scram password")
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 'waiter'"))
    waiter.quiet(0.1)
    with pytest.raises(LoginRefused, match="max_client_conn"):
        pooler.raw()
    psql = [pg.binaries.path("psql"), "-XAtqw", "-h", pooler.host, "-p", str(pooler.port), "-U", ADMIN,
            "-d", "app", "-c", "CREATE TEMP TABLE t (n int)", "-c", "INSERT INTO t VALUES (7)",
            "-c", "SET work_mem = '77kB'", "-c", "SELECT pg_advisory_lock(5)",
            "-c", "SELECT n, current_setting('work_mem') FROM t"]
    done = subprocess.run(psql, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n7|77kB\n", "")
    first, second = admin(pooler), pooler.raw(dbname="other")
    assert first.value(BACKEND) != second.value(BACKEND)
    # The other clients still wait, in the same order.
    with pytest.raises(LoginRefused, match="max_client_conn"):
        pooler.raw()
    waiter.quiet(0.1)
    holder.query("COMMIT")
    assert wire.value(waiter.until_ready()) == "waiter"
    assert f"app/{ADMIN}@127.0.0.1" in pooler.log() and "past all limits: 1 of bypass_max = 3" in pooler.log()


@pytest.mark.shows("bypass_users")
@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_a_bypass_client_has_its_own_session_and_no_timeouts(start_pooler, newest_pg, mode):
    pooler = start_pooler(newest_pg, pool_mode=mode, query_timeout=0.3, transaction_timeout=0.3,
                          idle_transaction_timeout=0.3, client_idle_timeout=0.3, **BYPASS)
    client = admin(pooler, application_name="mine", work_mem="99kB",
                   options="-c enable_seqscan=off -c timezone=Asia/Tokyo")
    assert client.parameters["application_name"] == "mine"
    assert client.parameters["TimeZone"] == "Asia/Tokyo"
    assert [client.value(f"SHOW {name}") for name in ("work_mem", "enable_seqscan")] == ["99kB", "off"]
    backend = client.value(BACKEND)
    client.query("PREPARE p AS SELECT 7; CREATE TEMP TABLE t AS SELECT 8 AS n; LISTEN c; SET seed = 0.5")
    client.query("BEGIN")
    client.query("SELECT pg_sleep(0.8)")
    client.quiet(0.5)
    assert client.value("SELECT n FROM t") == "8"
    client.query("COMMIT")
    assert (client.value("EXECUTE p"), client.value(BACKEND)) == ("7", backend)
    client.close()
    machine.wait_until(lambda: is_gone(newest_pg, backend), 5, "its server is closed")
    pooler.expect_log("closing because: the client that it was opened for has left")


@pytest.mark.shows("bypass_users")
def test_the_query_of_a_bypass_client_can_be_cancelled(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, **BYPASS)
    client = admin(pooler)
    client.send(wire.query("SELECT pg_sleep(30)"))
    machine.wait_until(lambda: newest_pg.rows(
        "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)'"), 5, "it runs")
    client.cancel()
    assert wire.errors(client.until_ready())[0][0] == "57014"
    assert client.value("SELECT 7") == "7"


@pytest.mark.shows("bypass_max")
@pytest.mark.parametrize("state", ["off", "transparent"])
def test_clients_above_bypass_max(start_pooler, newest_pg, workers, state):
    """A client above the limit is served from the pool with a notice, or refused if the pool is full, too."""
    pooler = start_pooler(newest_pg, workers=workers, default_pool_size=1, max_client_conn=1, bypass_max=1,
                          session_state=state, **BYPASS)
    first = admin(pooler)
    second = pooler.socket()
    second.send(wire.startup(user=ADMIN, database="app"))
    notice = second.until("N")[-1]
    assert notice.words == "bypass_max is reached: this client is served from the pool, like others"
    second.until_ready()
    assert pooler.pool(user=ADMIN)["sv_idle"] == 1
    with pytest.raises(LoginRefused, match="max_client_conn"):
        admin(pooler)
    # pgweir refuses a startup parameter that only an exclusive server could have.
    reason = "unsupported startup parameter: work_mem" if state == "off" else "max_client_conn"
    with pytest.raises(LoginRefused, match=reason):
        admin(pooler, work_mem="99kB")
    pooler.console("SET max_client_conn = 5")
    if state == "transparent":
        with admin(pooler, work_mem="96kB", options="-c timezone=Asia/Tokyo -c enable_seqscan=off") as shared:
            shown = [shared.value(f"SHOW {name}") for name in ("work_mem", "TimeZone", "enable_seqscan")]
        assert shown == ["96kB", "Asia/Tokyo", "off"]
    first.close()

    def has_come_free():
        try:
            return admin(pooler, work_mem="99kB")
        except LoginRefused:
            return None

    def is_native(client):
        return any(row["mode"] == "native" for row in pooler.console("SHOW CLIENTS"))

    third = machine.wait_until(
        lambda: (client := has_come_free()) and is_native(client) and client, 5, "the place is free")
    assert third.value("SHOW work_mem") == "99kB"
    # The client that was served from the pool counts in the pool.
    assert second.value("SELECT 7") == "7"
    pooler.console("SET bypass_max = 2")
    assert admin(pooler, work_mem="98kB").value("SHOW work_mem") == "98kB"


@pytest.mark.shows("bypass_max")
def test_a_failed_login_does_not_count_under_bypass_max(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, bypass_max=1, auth_type="scram-sha-256", bypass_users="*/scrammed",
                          databases={"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app",
                                     "gone": f"host={newest_pg.host} port={newest_pg.port} dbname=gone"})
    for _ in range(3):
        with pytest.raises(LoginRefused, match="SASL authentication failed"):
            pooler.raw(user="scrammed", password="wrong")
        with pytest.raises(LoginRefused, match="login failed"):
            pooler.raw(user="scrammed", dbname="gone", password="scram password")
    client = pooler.raw(user="scrammed", password="scram password", work_mem="99kB")
    assert client.value("SHOW work_mem") == "99kB"


@pytest.mark.shows("bypass_users")
def test_pause_and_kill_apply_to_bypass_clients(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, **BYPASS)
    pooler.console("PAUSE app")
    held = [begin_login(pooler) for _ in range(3)]
    for client in held:
        client.quiet(0.1)
    held.pop().close()
    pooler.console("RESUME app")
    for client in held:
        client.until_ready()
        assert client.value("SELECT 7") == "7"
        client.close()
    pooler.console("DISABLE app")
    with pytest.raises(LoginRefused, match="disabled"):
        admin(pooler)
    pooler.console("ENABLE app")
    client = admin(pooler)
    pooler.console("RECONNECT app")
    assert client.error_and_close().words == "database configuration changed"


@pytest.mark.shows("bypass_users")
def test_a_reload_applies_to_new_clients(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, session_state="off", **BYPASS)
    old = admin(pooler, work_mem="99kB")
    pooler.settings["bypass_users"] = None
    pooler.write_files()
    pooler.console("RELOAD")
    with pytest.raises(LoginRefused, match="unsupported startup parameter"):
        admin(pooler, work_mem="99kB")
    assert old.value("SHOW work_mem") == "99kB"
    pooler.settings["bypass_users"] = "app/ann, bob"
    pooler.write_files()
    with pytest.raises(Exception, match="RELOAD failed"):
        pooler.console("RELOAD")
    pooler.expect_log('bypass_users')
    assert "expected a list of db/user, db/* or */user (\"bob\" has no /)" in pooler.log()


@pytest.mark.shows("bypass_users")
def test_with_auth_type_any_nobody_bypasses_the_pool(start_pooler, newest_pg):
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app user=trusty"
    pooler = start_pooler(newest_pg, auth_type="any", bypass_users="app/*", databases={"app": where})
    for client in (pooler.raw(), pooler.raw(user="whoever")):
        assert client.value("SELECT 7") == "7"
    assert {row["mode"] for row in pooler.console("SHOW SERVERS")} == {"shared"}
    assert "past all limits" not in pooler.log()
