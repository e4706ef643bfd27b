"""Settings that no server takes any more: what they speak of is gone, or the right to make them. Directly, a session
goes on with what it has set. Here nothing may run without it: requests fail with PostgreSQL's words, and the session
lives on."""

import pytest

import cluster as clusters
import machine
import rawclient as wire

GONE = 'role "lost_role" does not exist'
WHO = "SELECT current_user"


@pytest.fixture(params=[pytest.param((name, assist), id=f"{name}-{'assisted' if assist else 'plain'}")
                        for name in ("oldest", "newest") for assist in (False, True)])
def losing_pg(request, shared_clusters):
    """A PostgreSQL where `trusty` may take two roles, one of which is about to go."""
    version = clusters.VERSIONS[0 if request.param[0] == "oldest" else -1]
    pg = shared_clusters(version, assist=request.param[1] or None)
    pg.run("CREATE ROLE lost_role; CREATE ROLE kept_role; GRANT lost_role, kept_role TO trusty;"
           "CREATE TABLE lost_rows (who text DEFAULT current_user); GRANT ALL ON lost_rows TO PUBLIC", dbname="app")
    yield pg
    pg.run("DROP TABLE lost_rows; DROP ROLE IF EXISTS lost_role; DROP ROLE kept_role", dbname="app")


@pytest.fixture
def lost(start_pooler, losing_pg):
    """A client that has a role that is gone, and one that takes its server meanwhile."""
    pooler = start_pooler(losing_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        assert not wire.errors(one.query("SET work_mem = '77kB'; SET ROLE lost_role"))
        assert other.value(WHO) == "trusty"
        losing_pg.run("DROP ROLE lost_role")
        yield one, other


def is_one_error(messages, words=GONE, code="22023"):
    """One error, and the session goes on."""
    kinds = [message.kind for message in messages if message.kind != "S"]
    if kinds != ["E", "Z"] or messages[-1].body != b"I":
        return False
    error = next(message for message in messages if message.kind == "E")
    return (error.fields["S"], error.sqlstate, error.words) == ("ERROR", code, words)


def test_nothing_runs_as_anybody_else(lost, losing_pg):
    one, other = lost
    for _ in range(2):
        assert is_one_error(one.query(WHO))
        assert other.value(WHO) == "trusty"
    assert is_one_error(one.query("BEGIN; INSERT INTO lost_rows DEFAULT VALUES; COMMIT"))
    one.send(wire.extended("INSERT INTO lost_rows DEFAULT VALUES"), wire.extended("SELECT 1"), wire.SYNC)
    assert is_one_error(one.until_ready())
    texts = ["BEGIN", "INSERT INTO lost_rows DEFAULT VALUES", "SET LOCAL ROLE kept_role", "COMMIT",
             "SET work_mem = '78kB'", "BEGIN; RESET ROLE", "RESET ROLE; INSERT INTO lost_rows DEFAULT VALUES"]
    one.send(*map(wire.query, texts))
    for text in texts:
        assert is_one_error(one.until_ready()), text
    assert losing_pg.value("SELECT count(*) FROM lost_rows", dbname="app") == 0
    losing_pg.run("CREATE ROLE lost_role; GRANT lost_role TO trusty")
    assert one.value(WHO) == "lost_role"
    assert one.value("SHOW work_mem") == "77kB"


@pytest.mark.parametrize("pipelined", [False, True], ids=["later", "pipelined"])
def test_a_request_that_is_cancelled_opens_no_door_for_the_next(start_pooler, losing_pg, pipelined):
    pooler = start_pooler(losing_pg, default_pool_size=1)

    def wait(count):
        machine.wait_until(lambda: int(pooler.console("SHOW POOLS")[0]["cl_waiting"]) == count, 10, "they wait")

    with pooler.raw() as one, pooler.raw() as other, pooler.raw() as third:
        one.query("SET ROLE lost_role")
        assert other.value(WHO) == "trusty"
        losing_pg.run("DROP ROLE lost_role")
        other.query("BEGIN")
        behind = wire.query("INSERT INTO lost_rows DEFAULT VALUES")
        one.send(wire.query("RESET ROLE"), behind if pipelined else b"")
        wait(1)
        third.send(wire.query("BEGIN"))
        wait(2)
        other.query("COMMIT")
        # It was looked at what it wants; now it waits for its turn.
        third.until_ready()
        wait(1)
        one.cancel()
        assert wire.errors(one.until_ready())[0][0] == "57014"
        one.send(b"" if pipelined else behind)
        wait(1)
        third.query("COMMIT")
        assert is_one_error(one.until_ready())
        assert not wire.errors(one.query("RESET ROLE")) and one.value(WHO) == "trusty"
        assert one.value("SELECT count(*) FROM lost_rows") == "0"


def test_what_another_has_left_under_a_name_goes(start_pooler, either_pg):
    """The name that is refused has another value on the server: that is not what the next one finds there."""
    either_pg.run("CREATE TEXT SEARCH CONFIGURATION lost_search (COPY = simple)", dbname="app")
    pooler = start_pooler(either_pg, default_pool_size=1)
    read = "SHOW default_text_search_config"
    with pooler.raw() as one, pooler.raw() as other, pooler.raw() as third:
        default = third.value(read)
        assert not wire.errors(one.query("SET default_text_search_config = lost_search; SET app.lost = 'one'"))
        assert not wire.errors(other.query("SET default_text_search_config = simple; SET app.lost = 'other'"))
        either_pg.run("DROP TEXT SEARCH CONFIGURATION lost_search", dbname="app")
        for _ in range(2):
            assert wire.errors(one.query("SELECT 1"))[0][0] == "22023"
            assert third.value(read) == default
            assert third.value("SELECT nullif(current_setting('app.lost', true), '')") is None
            assert other.value(read) == "pg_catalog.simple"


def test_servers_that_end_with_any_error(start_pooler, losing_pg):
    """The one whose setting is refused does not take all of them along."""
    losing_pg.run("ALTER ROLE trusty IN DATABASE app SET exit_on_error = on", dbname="app")
    try:
        pooler = start_pooler(losing_pg, default_pool_size=1, log_disconnections=1)
        with pooler.raw() as one, pooler.raw() as other:
            assert not wire.errors(one.query("SET ROLE lost_role"))
            assert other.value(WHO) == "trusty"
            losing_pg.run("DROP ROLE lost_role")
            one.send(wire.query(WHO))
            error = one.error_and_close()
            assert (error.fields["S"], error.sqlstate, error.words) == ("FATAL", "22023", GONE)
            assert other.value(WHO) == "trusty"
            # Three servers, and the client.
            assert pooler.log().count(f"closing because: {GONE}") == 4
    finally:
        losing_pg.run("ALTER ROLE trusty IN DATABASE app RESET exit_on_error", dbname="app")


# What the session is then; None: as before.
CURES = {
    "RESET ROLE": "trusty", "SET role TO DEFAULT": "trusty", "SET SESSION AUTHORIZATION DEFAULT": "trusty",
    "DISCARD ALL": "trusty", "RESET ROLE; RESET ALL": "trusty", "SET ROLE kept_role": "kept_role",
    "SET ROLE lost_role; SET ROLE kept_role": None, "RESET ALL": None, "SET ROLE plainly": None, "SELECT 1": None,
}


def say(text, how):
    """A text, in one of the ways to say it."""
    if how == "simple":
        return wire.query(text)
    name = f"cure {text}" if how == "named" else ""
    parse = wire.parse(text, name) + wire.describe("S", name) + (wire.SYNC if how == "named" else b"")
    return parse + wire.bind(name=name) + wire.describe() + wire.execute() + wire.SYNC


@pytest.mark.parametrize("how", ["simple", "unnamed", "named"])
def test_it_is_taken_back_or_set_anew(lost, losing_pg, how):
    one, other = lost
    for text, expect in CURES.items():
        if how != "simple" and ";" in text:
            continue
        for pipelined in (False, True):
            losing_pg.run("CREATE ROLE lost_role; GRANT lost_role TO trusty")
            assert not wire.errors(one.query("SET work_mem = '77kB'; SET ROLE lost_role"))
            assert other.value(WHO) == "trusty"
            losing_pg.run("DROP ROLE lost_role")
            assert is_one_error(one.query(WHO))
            one.send(say(text, how), wire.query(WHO) if pipelined else b"")
            answers = [one.until_ready() for _ in range(2 if how == "named" else 1)]
            last = one.until_ready() if pipelined else one.query(WHO)
            if expect is None:
                assert is_one_error(last), text
                assert other.value(WHO) == "trusty" and is_one_error(one.query(WHO))
            else:
                assert not any(map(wire.errors, answers)) and wire.value(last) == expect, text
                assert other.value(WHO) == "trusty" and one.value(WHO) == expect
            if text in ("RESET ROLE", "SET ROLE kept_role"):
                assert one.value("SHOW work_mem") == "77kB"
            one.query("DISCARD ALL")


def test_a_membership_that_was_revoked(start_pooler, losing_pg):
    pooler = start_pooler(losing_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other, pooler.raw(options="-c role=lost_role") as third:
        one.query("SET ROLE lost_role")
        assert other.value(WHO) == "trusty"
        assert third.value(WHO) == one.value(WHO) == "lost_role"
        losing_pg.run("REVOKE lost_role FROM trusty")
        # The server has the role: as in a session of one's own.
        assert one.value(WHO) == "lost_role"
        with pytest.raises(wire.LoginRefused, match='42501: permission denied to set role "lost_role"'):
            pooler.raw(options="-c role=lost_role")
        assert other.value(WHO) == "trusty"
        denied = 'permission denied to set role "lost_role"'
        for client in (one, third):
            assert is_one_error(client.query(WHO), denied, "42501")
        third.send(wire.query("RESET ROLE"), wire.query(WHO))
        assert not wire.errors(third.until_ready()) and is_one_error(third.until_ready(), denied, "42501")
        # Nothing to do for a server: the role is the one that it has started with.
        third.send(wire.query("DISCARD ALL"), wire.query(WHO))
        assert not wire.errors(third.until_ready()) and is_one_error(third.until_ready(), denied, "42501")
        assert not wire.errors(third.query("SET ROLE kept_role")) and third.value(WHO) == "kept_role"
        # Back to what it has started with.
        assert not wire.errors(third.query("RESET ROLE")) and is_one_error(third.query(WHO), denied, "42501")
        losing_pg.run("GRANT lost_role TO trusty")
        assert third.value(WHO) == one.value(WHO) == "lost_role"


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
            gone = 'role "lost_login" does not exist'
            assert is_one_error(one.query("RESET ROLE"), gone) or is_one_error(one.query(WHO), gone)
            assert is_one_error(one.query("SELECT session_user"), gone)
            assert other.value(WHO) == "postgres"
            assert one.parameters["is_superuser"] == "off"
            one.query("RESET SESSION AUTHORIZATION")
            assert one.parameters["is_superuser"] == "on" and one.value("SELECT session_user") == "postgres"
    finally:
        pg.run("DROP ROLE lost_role")


@pytest.mark.parametrize("version", clusters.VERSIONS)
def test_other_things_that_are_gone(start_pooler, shared_clusters, version):
    pg = shared_clusters(version)
    pg.run("CREATE TEXT SEARCH CONFIGURATION lost_search (COPY = simple);"
           "CREATE ACCESS METHOD lost_method TYPE TABLE HANDLER heap_tableam_handler", dbname="app")
    with pg.connect() as db:
        db.execute("SET allow_in_place_tablespaces = on")
        db.execute("CREATE TABLESPACE lost_space LOCATION ''")
        db.execute("GRANT CREATE ON TABLESPACE lost_space TO PUBLIC")
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other, pooler.raw(options="-c default_tablespace=lost_space") as third:
        assert not wire.errors(one.query(
            "SET default_text_search_config = lost_search; SET default_table_access_method = lost_method;"
            "SET default_tablespace = lost_space; SET temp_tablespaces = lost_space"))
        assert other.value("SELECT to_tsvector('the cats')") == "'cat':2" and third.value("SELECT 1") == "1"
        pg.run("DROP TEXT SEARCH CONFIGURATION lost_search; DROP ACCESS METHOD lost_method", dbname="app")
        pg.run("DROP TABLESPACE lost_space")
        other.value("SELECT 1")
        # PostgreSQL does as if a tablespace that is gone were not set.
        assert third.value("SHOW default_tablespace") == ""
        assert not wire.errors(third.query("DISCARD ALL")) and third.value("SELECT 1") == "1"
        # The others may make a difference, so that nothing is done without them.
        search = 'invalid value for parameter "default_text_search_config": "public.lost_search"'
        method = 'invalid value for parameter "default_table_access_method": "lost_method"'
        assert is_one_error(one.query("SELECT 1"), method)
        assert not wire.errors(one.query("RESET default_table_access_method"))
        assert is_one_error(one.query("SELECT 1"), search)
        assert not wire.errors(one.query("SET default_text_search_config = simple"))
        assert other.value("SELECT to_tsvector('the cats')") == "'cat':2"
        assert one.value("SELECT to_tsvector('the cats')") == "'cats':2 'the':1"
        assert one.value("SHOW temp_tablespaces") == ""


def test_names_that_were_reserved(start_pooler, either_pg):
    """PostgreSQL takes such parameters away as soon as the module is loaded that wants them."""
    pooler = start_pooler(either_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        assert not wire.errors(one.query("SET plpgsql.lost = 'x'; SET app.kept = 'y'"))
        other.query("DO $$ BEGIN PERFORM 1; END $$")
        messages = one.query("SELECT current_setting('app.kept')")
        (notice,) = (message for message in messages if message.kind == "N")
        assert notice.sqlstate == "42602" and wire.value(messages) == "y"
        assert notice.words == 'invalid configuration parameter name "plpgsql.lost", removing it'
        assert one.value("SELECT coalesce(current_setting('plpgsql.lost', true), 'gone')") == "gone"


def test_values_that_the_encoding_of_the_client_has_no_word_for(start_pooler, either_pg):
    read = "SELECT encode(convert_to(current_setting('app.price'), 'UTF8'), 'escape')"
    pooler = start_pooler(either_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        one.query("SET client_encoding = LATIN1; SELECT length(set_config('app.price', E'\\xe2\\x82\\xac', false))")
        for _ in range(2):
            assert other.value("SHOW client_encoding") == "UTF8"
            assert one.value(read) == r"\342\202\254"
            assert one.value("SHOW client_encoding") == "LATIN1"


USES_BUFFERS = "BEGIN; CREATE TEMP TABLE lost_rows (a int) ON COMMIT DROP; INSERT INTO lost_rows VALUES (1); COMMIT"


def test_buffers_of_a_session_that_has_used_them(start_pooler, newest_pg):
    """What others have done on a server is no reason to refuse it."""
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
