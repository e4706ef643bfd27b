"""Rules for single clients: the protocol, the parameters that are reported, the number of clients."""

import psycopg
import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused


# -- the startup packet


@pytest.mark.shows("application_name_add_host")
def test_address_in_the_application_name(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, application_name_add_host=1)
    client = pooler.raw(application_name="tool")
    host, port = client.sock.getsockname()
    assert client.value("SHOW application_name") == f"tool - {host}:{port}"
    client = pooler.raw()
    host, port = client.sock.getsockname()
    assert client.value("SHOW application_name") == f"app - {host}:{port}"
    client = wire.RawClient.unix(pooler.unix_path)
    client.login("trusty", "app", application_name="local")
    assert client.value("SHOW application_name") == f"local - unix:{pooler.port}"


@pytest.mark.shows("login_notify_message")
def test_a_notice_at_login(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, login_notify_message="maintenance at noon")
    client = pooler.raw()
    notices = [m.words for m in client.login_messages if m.kind == "N"]
    assert notices == ["maintenance at noon"]
    assert client.value("SELECT 1") == "1"
    notices = []
    with pooler.connect() as db:
        db.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_startup_options_other_than_settings_are_refused(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, session_state="off")
    for options in ("-d", "-c timezone", "--"):
        with pytest.raises(LoginRefused) as refused:
            pooler.raw(options=options)
        assert refused.value.words == ("unsupported options startup parameter: only "
                                       "'-c config=val' and '--config=val' are allowed")
    with pytest.raises(LoginRefused, match="unsupported startup parameter in options: work_mem"):
        pooler.raw(options="-c work_mem=77kB")


@pytest.mark.parametrize("where", ["global", "database", "user", "forced user"])
@pytest.mark.parametrize("mode", ["session", "statement"])
def test_startup_parameters_that_pgweir_cannot_carry_are_refused(start_pooler, newest_pg, mode, where):
    """pgweir carries session state only in transaction mode. In other modes, it refuses startup parameters that it
    could not keep.
    """
    entry = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    options = {"global": {"pool_mode": mode},
               "database": {"databases": {"app": f"{entry} pool_mode={mode}"}},
               "user": {"users_section": {"trusty": f"pool_mode={mode}"}},
               "forced user": {"databases": {"app": f"{entry} user=plainly"},
                               "users_section": {"plainly": f"pool_mode={mode}"}}}
    pooler = start_pooler(newest_pg, **options[where])
    with pytest.raises(LoginRefused, match="unsupported startup parameter in options: work_mem"):
        pooler.raw(options="-c work_mem=77kB")
    with pytest.raises(LoginRefused, match="unsupported startup parameter: statement_timeout") as refused:
        pooler.raw(statement_timeout="9s")
    assert refused.value.sqlstate == "08P01"
    assert pooler.raw(application_name="mine", options="-c timezone=Asia/Tokyo").value("SHOW timezone") == "Asia/Tokyo"


@pytest.mark.shows("ignore_startup_parameters")
def test_ignored_options_are_still_read(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, ignore_startup_parameters="options, extra_float_digits")
    client = pooler.raw(options="-c work_mem=77kB --timezone=Asia/Tokyo", extra_float_digits="3")
    assert client.value("SHOW timezone") == "Asia/Tokyo"
    assert client.value("SHOW work_mem") != "77kB"


# -- which client may learn what


@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256", "plain", "trust"])
def test_only_authenticated_users_learn_which_databases_exist(start_pooler, newest_pg, auth_type):
    """A client does not learn which databases exist before its password was accepted."""
    pooler = start_pooler(newest_pg, auth_type=auth_type)
    refused = r"password authentication failed|SASL authentication failed"
    if auth_type != "trust":
        with pytest.raises(psycopg.OperationalError, match=refused):
            pooler.connect(user="plainly", dbname="nosuch", password="wrong")
    with pytest.raises(psycopg.OperationalError, match='authentication failed'):
        pooler.connect(user="nobody here", dbname="nosuch", password="x")
    with pytest.raises(psycopg.OperationalError, match="no such database: nosuch"):
        pooler.connect(user="admin", dbname="nosuch", password=pooler.users["admin"])
    pooler.expect_log("closing because: no such database: nosuch (age=")
    assert "login attempt: db=nosuch user=admin tls=no" in pooler.log()


@pytest.mark.shows("log_pooler_errors")
@pytest.mark.parametrize("logged", [1, 0])
def test_errors_of_the_pooler_in_the_log(start_pooler, newest_pg, logged):
    pooler = start_pooler(newest_pg, log_pooler_errors=logged)
    with pytest.raises(LoginRefused):
        pooler.raw(dbname="nosuch")
    pooler.expect_log("closing because: no such database")
    assert ("pooler error: no such database: nosuch" in pooler.log()) == bool(logged)


# -- the simple protocol


@pytest.mark.shows("disable_pqexec")
def test_no_simple_queries(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, disable_pqexec=1, default_pool_size=1, workers=workers)
    client = pooler.raw()
    client.send(wire.extended("SELECT 7"), wire.frame("S"))
    assert wire.value(client.until_ready()) == "7"
    for _ in range(3):
        client = pooler.raw()
        client.send(wire.query("SELECT 1; DROP TABLE users"))
        error = client.error_and_close()
        assert (error.sqlstate, error.words) == ("08P01", "PQexec disallowed")
    # The same in a pipeline. No server was opened for it.
    client = pooler.raw()
    client.send(wire.extended("SELECT pg_backend_pid()"), wire.frame("S"))
    backend = wire.value(client.until_ready())
    client.send(wire.extended("SELECT 8"), wire.frame("S"), wire.query("SELECT 9"))
    assert "PQexec disallowed" in [m.words for m in client.rest() if m.kind == "E"]
    client = pooler.raw()
    client.send(wire.extended("SELECT pg_backend_pid()"), wire.frame("S"))
    assert wire.value(client.until_ready()) == backend
    assert pooler.console("SHOW VERSION")


# -- the number of clients


def caps(key):
    """The limit of two clients: globally, or in the entry of one database or user."""
    section, name = ("database", "app") if "_db_" in key else ("user", "trusty")
    return [pytest.param({key: 2}, id="global"), pytest.param({section: (name, key)}, id=section)]


def with_cap(start_pooler, pg, settings, **options):
    """A pooler that allows two clients: of the database or user with this name, or of each one if the limit is global.
    """
    settings = dict(settings)
    if "database" in settings:
        name, key = settings.pop("database")
        where = f"host={pg.host} port={pg.port}"
        settings["databases"] = {name: f"{where} dbname=app {key}=2",
                                 "other": f"{where} dbname=other"}
    if "user" in settings:
        name, key = settings.pop("user")
        settings["users_section"] = {name: f"{key}=2"}
    return start_pooler(pg, **settings, **options)


def refused_words(pooler, **options):
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(**options)
    assert refused.value.sqlstate == "08P01"
    return refused.value.words


@pytest.mark.shows("max_db_client_connections", "database.max_db_client_connections")
@pytest.mark.parametrize("settings", caps("max_db_client_connections"))
def test_most_clients_of_a_database(start_pooler, newest_pg, settings, workers):
    pooler = with_cap(start_pooler, newest_pg, settings, workers=workers)
    first, second = pooler.raw(), pooler.raw(user="plainly")
    for _ in range(4):
        assert refused_words(pooler) == "client connections exceeded (max_db_client_connections)"
    pooler.expect_log("closing because: client connections exceeded (max_db_client_connections)")
    assert pooler.raw(dbname="other").value("SELECT 1") == "1"
    second.close()
    pooler.expect_log("plainly@127.0.0.1")
    machine.wait_until(lambda: _logs_in(pooler), 5, "there is room again")
    assert first.value("SELECT 1") == "1"


@pytest.mark.shows("max_user_client_connections", "user.max_user_client_connections")
@pytest.mark.parametrize("settings", caps("max_user_client_connections"))
def test_most_clients_of_a_user(start_pooler, newest_pg, settings, workers):
    pooler = with_cap(start_pooler, newest_pg, settings, workers=workers)
    first, second = pooler.raw(), pooler.raw(dbname="other")
    for _ in range(4):
        assert refused_words(pooler) == "client connections exceeded (max_user_client_connections)"
    assert pooler.raw(user="plainly").value("SELECT 1") == "1"
    second.close()
    machine.wait_until(lambda: _logs_in(pooler), 5, "there is room again")
    assert first.value("SELECT 1") == "1"


def _logs_in(pooler):
    try:
        pooler.raw().close()
    except LoginRefused:
        return False
    return True


def test_caps_on_the_console_are_not_for_admins(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, max_db_client_connections=2, max_user_client_connections=2)
    consoles = [pooler.raw(user="admin", dbname="pgbouncer") for _ in range(4)]
    assert refused_words(pooler, user="stats", dbname="pgbouncer") \
        == "client connections exceeded (max_db_client_connections)"
    for console in consoles:
        assert console.query("SHOW VERSION")
