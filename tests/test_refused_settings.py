"""Settings that servers no longer accept, since an object was dropped or a privilege was revoked. On a direct
connection, the session continues with the setting. pgweir must not run the client's statements without it, so the
client is disconnected with PostgreSQL's error.
"""

import pytest

import cluster as clusters
import rawclient as wire

GONE = 'role "lost_role" does not exist'
WHO = "SELECT current_user"


@pytest.fixture(params=[pytest.param((name, assist), id=f"{name}-{'assisted' if assist else 'plain'}")
                        for name in ("oldest", "newest") for assist in (False, True)])
def two_roles_pg(request, shared_clusters):
    """A PostgreSQL where `trusty` may take two roles, one of which the test drops."""
    version = clusters.VERSIONS[0 if request.param[0] == "oldest" else -1]
    pg = shared_clusters(version, assist=request.param[1] or None)
    pg.run("CREATE ROLE lost_role; CREATE ROLE kept_role; GRANT lost_role, kept_role TO trusty;"
           "CREATE TABLE lost_rows (who text DEFAULT current_user); GRANT ALL ON lost_rows TO PUBLIC", dbname="app")
    yield pg
    pg.run("DROP TABLE lost_rows; DROP ROLE IF EXISTS lost_role; DROP ROLE kept_role", dbname="app")


@pytest.fixture
def client_with_dropped_role(start_pooler, two_roles_pg):
    """A client whose role was dropped, and another client that uses its server meanwhile."""
    pooler = start_pooler(two_roles_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        assert not wire.errors(one.query("SET work_mem = '77kB'; SET ROLE lost_role"))
        assert other.value(WHO) == "trusty"
        two_roles_pg.run("DROP ROLE lost_role")
        yield one, other


def ends(client, *sent, words=GONE, code="22023"):
    """The client gets one error, and its connection ends."""
    client.send(*sent or [wire.query(WHO)])
    *before, error = [message for message in client.rest() if message.kind not in "NS"]
    assert "".join(message.kind for message in before) in ("", "C")
    assert (error.fields["S"], error.sqlstate, error.words) == ("FATAL", code, words)
    assert "connect again" in error.fields["H"]


@pytest.mark.parametrize("sent", [
    [wire.query(WHO)],
    [wire.query("BEGIN; INSERT INTO lost_rows DEFAULT VALUES; COMMIT")],
    [wire.extended("INSERT INTO lost_rows DEFAULT VALUES"), wire.extended("SELECT 1"), wire.SYNC],
    [wire.query("RESET ROLE"), wire.query("INSERT INTO lost_rows DEFAULT VALUES")],
], ids=["query", "transaction", "pipeline", "reset"])
def test_no_statement_runs_under_another_role(client_with_dropped_role, two_roles_pg, sent):
    one, other = client_with_dropped_role
    backend = other.value("SELECT pg_backend_pid()")
    ends(one, *sent)
    assert other.value(WHO) == "trusty"
    assert other.value("SHOW work_mem") == "4MB"
    assert other.value("SELECT pg_backend_pid()") == backend, "the server goes on"
    assert two_roles_pg.value("SELECT count(*) FROM lost_rows", dbname="app") == 0


def test_settings_of_the_last_client_are_reset_first(start_pooler, two_roles_pg):
    """A client is not disconnected because of settings of the server's last client."""
    pooler = start_pooler(two_roles_pg, default_pool_size=1, users={"postgres": "", "trusty": ""})
    with pooler.raw("postgres") as one, pooler.raw("postgres") as other:
        assert not wire.errors(one.query("SET ROLE lost_role; SET app.lost = 'one'"))
        assert not wire.errors(other.query("SET log_min_messages = 'fatal'; SET ROLE kept_role"))
        for _ in range(2):
            assert one.value(WHO) == "lost_role" and one.value("SHOW app.lost") == "one"
            assert other.value(WHO) == "kept_role" and other.value("SHOW log_min_messages") == "fatal"


def test_a_refused_setting_keeps_no_value_of_another_client(start_pooler, plain_or_assisted_pg):
    """The server refuses a setting while it has another client's value for it. The next client must not see that value.
    """
    plain_or_assisted_pg.run("CREATE TEXT SEARCH CONFIGURATION lost_search (COPY = simple)", dbname="app")
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    read = "SHOW default_text_search_config"
    with pooler.raw() as one, pooler.raw() as other, pooler.raw() as third:
        default = third.value(read)
        assert not wire.errors(one.query("SET default_text_search_config = lost_search; SET app.lost = 'one'"))
        assert not wire.errors(other.query("SET default_text_search_config = simple; SET app.lost = 'other'"))
        plain_or_assisted_pg.run("DROP TEXT SEARCH CONFIGURATION lost_search", dbname="app")
        ends(one, words='invalid value for parameter "default_text_search_config": "public.lost_search"')
        assert third.value(read) == default
        assert third.value("SELECT nullif(current_setting('app.lost', true), '')") is None
        assert other.value(read) == "pg_catalog.simple"


def test_servers_that_end_with_any_error(start_pooler, two_roles_pg):
    """A refused setting ends one server, not all of them."""
    two_roles_pg.run("ALTER ROLE trusty IN DATABASE app SET exit_on_error = on", dbname="app")
    try:
        pooler = start_pooler(two_roles_pg, default_pool_size=1, log_disconnections=1)
        with pooler.raw() as one, pooler.raw() as other:
            assert not wire.errors(one.query("SET ROLE lost_role"))
            assert other.value(WHO) == "trusty"
            two_roles_pg.run("DROP ROLE lost_role")
            one.send(wire.query(WHO))
            error = one.error_and_close()
            assert (error.fields["S"], error.sqlstate, error.words) == ("FATAL", "22023", GONE)
            assert other.value(WHO) == "trusty"
            # Three servers, and the client.
            assert pooler.log().count(f"closing because: {GONE}") == 4
    finally:
        two_roles_pg.run("ALTER ROLE trusty IN DATABASE app RESET exit_on_error", dbname="app")


def test_a_membership_that_was_revoked(start_pooler, two_roles_pg):
    pooler = start_pooler(two_roles_pg, default_pool_size=1)
    denied = 'permission denied to set role "lost_role"'
    with pooler.raw() as one, pooler.raw() as other, pooler.raw(options="-c role=lost_role") as third:
        one.query("SET ROLE lost_role")
        assert other.value(WHO) == "trusty"
        assert one.value(WHO) == third.value(WHO) == "lost_role"
        two_roles_pg.run("REVOKE lost_role FROM trusty")
        # The server still has the role, so the client continues, as on a direct connection.
        assert third.value(WHO) == "lost_role"
        with pytest.raises(wire.LoginRefused, match=f"42501: {denied}"):
            pooler.raw(options="-c role=lost_role")
        assert other.value(WHO) == "trusty"
        for client in (one, third):
            ends(client, words=denied, code="42501")
        assert other.value(WHO) == "trusty"


def test_startup_values_that_reset_can_not_restore(start_pooler, two_roles_pg):
    """RESET is to bring back the role of the startup packet, and the privilege is revoked."""
    pooler = start_pooler(two_roles_pg, default_pool_size=1)
    with pooler.raw(options="-c role=lost_role") as one:
        assert not wire.errors(one.query("SET ROLE kept_role"))
        two_roles_pg.run("REVOKE lost_role FROM trusty")
        ends(one, wire.query("RESET ROLE"), words='permission denied to set role "lost_role"', code="42501")
        with pooler.raw() as other:
            assert other.value(WHO) == "trusty"


@pytest.mark.parametrize("assist", [None, True], ids=["plain", "assisted"])
def test_a_login_role_that_is_gone(start_pooler, shared_clusters, assist):
    pg = shared_clusters(clusters.VERSIONS[-1], assist=assist)
    pooler = start_pooler(pg, default_pool_size=1, users={"postgres": "", "admin": "admin password"})
    pg.run("CREATE ROLE lost_login; CREATE ROLE lost_role; GRANT lost_role TO lost_login")
    try:
        with pooler.raw("postgres") as one, pooler.raw("postgres") as other:
            assert not wire.errors(one.query("SET SESSION AUTHORIZATION lost_login; SET ROLE lost_role"))
            assert other.value(WHO) == "postgres" and one.value(WHO) == "lost_role"
            assert other.value(WHO) == "postgres"
            pg.run("DROP ROLE lost_login")
            ends(one, words='role "lost_login" does not exist')
            assert other.value(WHO) == "postgres"
    finally:
        pg.run("DROP ROLE lost_role")


def test_names_that_were_reserved(start_pooler, plain_or_assisted_pg):
    """A loaded module has reserved this prefix of parameter names."""
    if not plain_or_assisted_pg.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_trgm'"):
        pytest.skip("there is no pg_trgm here")
    plain_or_assisted_pg.run("CREATE EXTENSION pg_trgm", dbname="app")
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        assert not wire.errors(one.query("SET pg_trgm.lost = 'x'; SET app.kept = 'y'"))
        assert other.value("SELECT similarity('a', 'a')") == "1"
        ends(one, words='invalid configuration parameter name "pg_trgm.lost"', code="42602")
    plain_or_assisted_pg.run("DROP EXTENSION pg_trgm", dbname="app")


def test_values_that_client_encoding_cannot_express(start_pooler, plain_or_assisted_pg):
    read = "SELECT encode(convert_to(current_setting('app.price'), 'UTF8'), 'escape')"
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        one.query("SET client_encoding = LATIN1; SELECT length(set_config('app.price', E'\\xe2\\x82\\xac', false))")
        for _ in range(2):
            assert other.value("SHOW client_encoding") == "UTF8"
            assert one.value(read) == r"\342\202\254"
            assert one.value("SHOW client_encoding") == "LATIN1"


USES_BUFFERS = "BEGIN; CREATE TEMP TABLE lost_rows (a int) ON COMMIT DROP; INSERT INTO lost_rows VALUES (1); COMMIT"


def test_buffers_of_a_session_that_has_used_them(start_pooler, newest_pg):
    """State that other clients have left on a server is no reason to refuse the setting."""
    pooler = start_pooler(newest_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        one.query("SET temp_buffers = '3MB'")
        assert not wire.errors(other.query(USES_BUFFERS))
        assert one.value("SHOW temp_buffers") == "3MB"
        assert not wire.errors(one.query(USES_BUFFERS))
        with pooler.raw(options="-c temp_buffers=5MB") as late:
            assert late.value("SHOW temp_buffers") == "5MB"
            assert not wire.errors(other.query(USES_BUFFERS))
            assert late.value("SHOW temp_buffers") == "5MB"
        assert not wire.errors(other.query(USES_BUFFERS))
        outside = '22023: 1 8kB is outside the valid range for parameter "temp_buffers"'
        with pytest.raises(wire.LoginRefused, match=outside):
            pooler.raw(options="-c temp_buffers=1")
