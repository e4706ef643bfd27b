"""pg_terminate_backend and pg_cancel_backend with the pid that a client was given."""

import contextlib

import psycopg
import pytest

import machine
import rawclient as wire
from pooler import default_users
from rawclient import query

TERMINATED = ("57P01", "terminating connection due to administrator command")
CANCELED = ("57014", "canceling statement due to user request")
SLEEP = "SELECT pg_sleep(30)"
USERS = default_users() | {"postgres": ""}

pytestmark = [pytest.mark.pgweir_only("PgBouncer's pids mean nothing to a server"),
              pytest.mark.usefixtures("nothing_runs")]


def signal(client, function, *pids):
    """Calls the function. The server has no such process, and warns."""
    messages = client.query(f"SELECT {function}(n) FROM unnest(ARRAY{list(pids)}) n")
    assert [row[0] for row in wire.rows(messages)] == ["f"] * len(pids)
    warnings = [m for m in messages if m.kind == "N"]
    assert [m.fields["R"] for m in warnings] == ["pg_signal_backend"] * len(pids)


def terminate(client, *pids):
    signal(client, "pg_terminate_backend", *pids)


def last_words(client):
    error = client.error_and_close()
    return error.fields["S"], error.sqlstate, error.words


def ended(client):
    assert last_words(client) == ("FATAL", *TERMINATED)


def test_an_idle_client(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    with pooler.raw() as asker:
        for _ in range(4):
            with pooler.raw() as client:
                assert client.value("SELECT 1") == "1"
                terminate(asker, client.pid)
                ended(client)
        assert asker.value("SELECT 1") == "1"
    pooler.expect_log("closing because: terminating connection due to administrator command")


@pytest.mark.parametrize("name", ["", "kill"], ids=["unnamed", "named"])
def test_by_the_extended_protocol(start_pooler, newest_pg, workers, name):
    pooler = start_pooler(newest_pg, workers=workers)
    with pooler.raw() as asker:
        for at in range(3):
            with pooler.raw() as client:
                if at == 0 or name == "":
                    asker.send(wire.parse("SELECT pg_terminate_backend($1)", name))
                asker.send(wire.bind([str(client.pid)], name=name), wire.execute(), wire.SYNC)
                assert wire.value(asker.until_ready()) == "f"
                ended(client)


def test_by_a_function(start_pooler, newest_pg, workers):
    """Works after pgweir has read in the catalog that the function calls the other one."""
    newest_pg.run("CREATE FUNCTION ends(int) RETURNS bool LANGUAGE plpgsql AS"
                  " $$ BEGIN RETURN pg_terminate_backend($1); END $$", dbname="app")
    try:
        pooler = start_pooler(newest_pg, workers=workers)
        with pooler.raw() as asker:
            def has_ended():
                with pooler.raw() as client:
                    assert asker.value(f"SELECT ends({client.pid})") == "f"
                    client.send(query("SELECT 1"))
                    return client.until("EZ")[-1].kind == "E"

            machine.wait_until(has_ended, what="it takes effect")
    finally:
        newest_pg.run("DROP FUNCTION ends", dbname="app")


def test_a_running_query(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    with pooler.raw() as client, pooler.raw() as asker:
        client.send(query(SLEEP))
        machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
        terminate(asker, client.pid)
        ended(client)
        machine.wait_until(lambda: not pg.running("%pg_sleep(30)%"), what="its query has ended")
    assert pooler.raw().value("SELECT 1") == "1"


def test_a_transaction_is_rolled_back(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=2, workers=workers)
    with pooler.raw() as client, pooler.raw() as asker:
        asker.query("CREATE TABLE foreign_pids (a int)")
        try:
            client.query("BEGIN; INSERT INTO foreign_pids VALUES (1)")
            terminate(asker, client.pid)
            ended(client)
            # The lock waits for the end of the other client.
            asker.query("LOCK TABLE foreign_pids")
            assert asker.value("SELECT count(*) FROM foreign_pids") == "0"
        finally:
            asker.query("DROP TABLE foreign_pids")


def test_a_waiting_client_is_terminated(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    with pooler.raw() as client, pooler.raw() as other, pooler.raw() as asker:
        asker.query("BEGIN")
        client.send(query("SELECT 1"))
        other.send(query("SELECT 2"))
        machine.wait_until(lambda: pooler.pool()["cl_waiting"] == 2, what="both wait")
        signal(asker, "pg_cancel_backend", other.pid)
        assert wire.errors(other.until_ready()) == [CANCELED]
        terminate(asker, client.pid)
        ended(client)
        asker.query("COMMIT")
        assert other.value("SELECT 3") == "3"


def test_a_pinned_client_that_listens(start_pooler, plain_or_assisted_pg, workers):
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=2, workers=workers)
    with pooler.raw() as client, pooler.raw() as asker:
        client.query("LISTEN foreign_pids")
        client.query("CREATE TEMP TABLE held (a int)")
        asker.query("LISTEN foreign_pids")
        terminate(asker, client.pid)
        ended(client)
        asker.query("NOTIFY foreign_pids")
        assert asker.value("SELECT to_regclass('pg_temp.held')") is None


def test_queries_are_canceled(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    with pooler.raw() as client, pooler.raw() as asker:
        # The client is idle, so nothing happens.
        signal(asker, "pg_cancel_backend", client.pid)
        assert client.value("SELECT 1") == "1"
        client.query("BEGIN")
        client.send(query(SLEEP))
        machine.wait_until(lambda: pg.running("%pg_sleep(30)%"), what="it runs")
        signal(asker, "pg_cancel_backend", client.pid)
        messages = client.until_ready()
        assert (wire.errors(messages), messages[-1].body) == ([CANCELED], b"E")
        client.query("ROLLBACK")
        assert client.value("SELECT 1") == "1"


def test_one_statement_terminates_several_clients(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooler.raw()) for _ in range(6)]
        asker = stack.enter_context(pooler.raw())
        terminate(asker, *(client.pid for client in clients[:5]), 2_000_000_000)
        for client in clients[:5]:
            ended(client)
        assert clients[5].value("SELECT 1") == "1"


def test_a_client_terminates_itself(start_pooler, pg, workers):
    """The server's pid ends the server, the client's pid only the client. The client receives the same error."""
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    for which in ("pg_backend_pid()", None):
        with pooler.raw() as client:
            client.send(query(f"SELECT pg_terminate_backend({which or client.pid})"))
            messages = [m for m in client.rest() if m.kind == "E"]
            assert wire.errors(messages) == [TERMINATED]
            assert messages[0].fields["S"] == "FATAL"
    assert pooler.raw().value("SELECT 1") == "1"


# -- privileges


def test_users_end_their_own_clients_only(start_pooler, newest_pg, workers):
    newest_pg.run("GRANT hashed TO trusty")
    pooler = start_pooler(newest_pg, workers=workers, users=USERS)
    with pooler.raw() as own, pooler.raw("plainly") as asker, pooler.raw("postgres") as boss:
        terminate(asker, own.pid)
        terminate(asker, boss.pid)
        signal(asker, "pg_cancel_backend", own.pid)
        assert own.value("SELECT 1") == boss.value("SELECT 1") == "1"
        with pooler.raw() as other:
            # Under another role, it is not the login user.
            other.query("SET ROLE hashed")
            terminate(other, own.pid)
            assert own.value("SELECT 1") == "1"
            other.query("RESET ROLE")
            terminate(other, own.pid)
            ended(own)


def test_superusers_end_anybody(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, users=USERS)
    with pooler.raw() as one, pooler.raw(dbname="other") as elsewhere, pooler.raw("postgres") as boss:
        boss.query("SET ROLE plainly")
        terminate(boss, one.pid)
        boss.query("RESET ROLE")
        boss.query("BEGIN; SET LOCAL ROLE plainly")
        terminate(boss, one.pid)
        assert one.value("SELECT 1") == "1"
        boss.query("ROLLBACK")
        # Within one request, too.
        for end in ("COMMIT", "RESET ROLE; COMMIT"):
            messages = boss.query(f"BEGIN; SET LOCAL ROLE plainly; SELECT pg_terminate_backend({one.pid}); {end}")
            assert (wire.value(messages), messages[-1].body) == ("f", b"I")
        assert one.value("SELECT 1") == "1"
        terminate(boss, one.pid, elsewhere.pid)
        ended(one)
        ended(elsewhere)


def test_a_privilege_counts_on_its_own_server_only(start_pooler, newest_pg, workers):
    """A privilege counts only for clients on the same server. The same server by another address counts as another
    server.
    """
    by_name = {"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app",
               "far": f"host={newest_pg.socket_dir} port={newest_pg.port} dbname=app"}
    pooler = start_pooler(newest_pg, workers=workers, users=USERS, databases=by_name)
    with pooler.raw(dbname="far") as client, pooler.raw("postgres") as boss, pooler.raw() as own:
        terminate(boss, client.pid)
        terminate(own, client.pid)
        assert client.value("SELECT 1") == "1"


def test_the_same_server_user_is_not_the_same_user(start_pooler, newest_pg):
    databases = {"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app user=trusty"}
    pooler = start_pooler(newest_pg, users=USERS, databases=databases)
    with pooler.raw("trusty") as one, pooler.raw("plainly") as other, pooler.raw("plainly") as third:
        terminate(other, one.pid)
        assert one.value("SELECT 1") == "1"
        terminate(other, third.pid)
        ended(third)


def test_a_client_that_has_left_signals_nobody_in_the_name_of_the_next_one(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with pooler.raw() as victim, pooler.raw() as other, pooler.raw() as one:
        one.send(query(f"SELECT pg_terminate_backend({victim.pid}) FROM pg_sleep(0.3)"))
        machine.wait_until(lambda: newest_pg.running("SELECT pg_terminate_backend(%"))
        one.close()
        assert other.value("SELECT 1") == "1"
        assert victim.value("SELECT 2") == "2"


def test_the_console_is_out_of_reach(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers, users=USERS)
    with pooler.raw("admin", "pgbouncer", password="admin password") as console, pooler.raw("postgres") as boss:
        terminate(boss, console.pid)
        assert console.query("SHOW VERSION")


def test_a_forged_warning_terminates_no_client(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    with pooler.raw() as client, pooler.raw() as asker:
        asker.query("CREATE FUNCTION pg_temp.warn(pid int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING"
                    " 'PID % is not a PostgreSQL backend process', pid; RETURN true; END $$")
        messages = asker.query(f"SELECT pg_temp.warn({client.pid}), pg_terminate_backend(2000000000)")
        assert len([m for m in messages if m.kind == "N"]) == 2
        assert client.value("SELECT 1") == "1"


@pytest.mark.shows("session_state")
@pytest.mark.parametrize("settings", [{"session_state": "off"}, {"pool_mode": "session"}],
                         ids=["off", "session mode"])
def test_pids_of_clients_have_no_effect_with_session_state_off(start_pooler, newest_pg, settings):
    pooler = start_pooler(newest_pg, **settings)
    with pooler.raw() as client, pooler.raw() as asker:
        terminate(asker, client.pid)
        assert client.value("SELECT 1") == "1"


# -- pids


@pytest.mark.parametrize("peered", [False, True], ids=["alone", "peered"])
def test_pids_are_above_those_of_processes_and_reused_late(start_pooler, newest_pg, workers, peered):
    settings = {"peer_id": 7, "peers": {7: "host=127.0.0.1 port=1"}} if peered else {}
    pooler = start_pooler(newest_pg, workers=workers, **settings)
    pids = []
    for _ in range(20):
        with pooler.raw() as client:
            pids.append(client.pid)
    assert len(set(pids)) == 20
    assert min(pids) >= 1 << 22, "Linux gives such pids to processes"


# -- drivers


def test_a_driver_gets_the_error(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    with pooler.connect() as db, pooler.connect() as asker:
        db.execute("SELECT 1")
        assert asker.execute("SELECT pg_terminate_backend(%s)", [db.info.backend_pid]).fetchone() == (False,)
        with pytest.raises(psycopg.errors.AdminShutdown):
            db.execute("SELECT 1")
        assert db.closed
