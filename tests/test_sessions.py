"""Sessions over shared servers: a client has its own settings on every server, and no other client has them."""

import pytest

import machine
import rawclient as wire
from rawclient import LoginRefused, errors

BACKEND = "SELECT pg_backend_pid()"


@pytest.fixture
def two_clients(start_pooler, pg):
    """Two clients that share one server."""
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        yield one, other


@pytest.mark.shows("session_state")
@pytest.mark.parametrize(("change", "read", "expect"), [
    ("SET search_path TO pg_catalog", "SHOW search_path", "pg_catalog"),
    ("SET work_mem TO '77kB'", "SHOW work_mem", "77kB"),
    ("SET app.tenant TO 'it''s \\'", "SELECT nullif(current_setting('app.tenant', true), '')", "it's \\"),
    ("SELECT set_config('work_mem', '78kB', false)", "SHOW work_mem", "78kB"),
    ("DO $$ BEGIN PERFORM set_config('work_mem', '79kB', false); END $$", "SHOW work_mem", "79kB"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW transaction_read_only", "on"),
    ("UPDATE pg_settings SET setting = '80' WHERE name = 'work_mem'", "SHOW work_mem", "80kB"),
    # PostgreSQL cuts the name.
    (f"SET app.{'n' * 90} = 'long'", "SELECT nullif(current_setting('app.' || repeat('n', 63), true), '')", "long"),
])
def test_settings_move_to_the_next_server(two_clients, change, read, expect):
    one, other = two_clients
    default = other.value(read)
    assert default != expect
    one.query(change)
    for _ in range(2):
        assert other.value(read) == default
        assert one.value(read) == expect
    one.query("DISCARD ALL")
    assert one.value(read) == default


@pytest.mark.parametrize("change", [
    wire.extended("SELECT set_config($1, $2, false)", ("app.value", "mine")) + wire.SYNC,
    wire.parse("SELECT set_config($1, $2, false)", "s") + wire.SYNC + wire.run("s", "App.Value", "mine") + wire.SYNC,
    wire.function_call(2078, (b"app.value", b"mine", b"\0")),
    wire.query("SELECT set_config(n, 'mine', false) FROM (VALUES ('app.value')) v (n)"),
    wire.query("DO $$ BEGIN EXECUTE 'SELECT set_config($1, $2, false)' USING 'app.value', 'mine'; END $$"),
], ids=["bind", "bind of a name", "function call", "values", "using"])
def test_a_custom_parameter_whose_name_is_a_value(two_clients, change):
    """The name of a parameter that a text reads shows pgweir the parameter: so the test computes it."""
    one, other = two_clients
    read = "SELECT nullif(current_setting('app.' || 'value', true), '')"
    assert not errors(one.ask(change))
    for _ in range(2):
        assert other.value(read) is None
        assert one.value(read) == "mine"


NAMES = """
CREATE TABLE names AS SELECT 'app'::text AS a, 'app.value'::text AS n; GRANT SELECT ON names TO PUBLIC;
CREATE FUNCTION sets_all() RETURNS void LANGUAGE plpgsql AS
  $$ DECLARE r record; BEGIN FOR r IN TABLE names LOOP PERFORM set_config(r.n, 'mine', false); END LOOP; END $$;
CREATE FUNCTION sets_in_sql(text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.' || $1, 'mine', false) $$;
CREATE FUNCTION sets_atomic() RETURNS SETOF text LANGUAGE sql BEGIN ATOMIC SELECT set_config(n, 'mine', false) FROM names; END;
"""


@pytest.fixture
def names(pg):
    with pg.connect("app") as db:
        db.execute(NAMES)
        yield
        db.execute("DROP FUNCTION sets_all(), sets_in_sql(text), sets_atomic(); DROP TABLE names")


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("change", [
    wire.query("SELECT set_config('app.v' || 'alue', 'mine', false)"),
    wire.query("SELECT set_config(n, 'mine', false) FROM names"),
    wire.query("DO $$ BEGIN PERFORM set_config(a || '.value', 'mine', false) FROM names; END $$"),
    wire.query("SELECT sets_all()"),
    wire.query("SELECT sets_atomic()"),
    wire.query("SELECT sets_in_sql('value')"),
    wire.extended("SELECT sets_in_sql($1)", ("value",)) + wire.SYNC,
], ids=["expression", "column", "DO", "function", "BEGIN ATOMIC", "argument", "bind"])
def test_a_custom_parameter_whose_name_is_computed(start_pooler, pg, change):
    """A client keeps its server if it may have set a parameter that no inspection can ask for."""
    pooler = start_pooler(pg, default_pool_size=2, workers=1)
    read = "SELECT nullif(current_setting('app.' || reverse('eulav'), true), '')"
    with pooler.raw() as one, pooler.raw() as other:
        one.query("SELECT 1")
        assert not errors(one.ask(change))
        for _ in range(2):
            with pooler.raw() as third:
                assert [client.value(read) for client in (other, third)] == [None, None]
            assert one.value(read) == "mine"
        one.query("DISCARD ALL")
        one.query("SELECT 1")
        assert one.value(read) is None


def test_settings_that_are_rolled_back_do_not_move(two_clients):
    one, other = two_clients
    default = one.value("SHOW work_mem")
    one.query("BEGIN; SET work_mem = '77kB'; ROLLBACK")
    one.query("SET work_mem = '78kB'; SELECT 1/0")
    one.query("BEGIN; SET LOCAL work_mem = '79kB'; COMMIT")
    assert other.value("SHOW work_mem") == default
    assert one.value("SHOW work_mem") == default


PINS = {
    "temporary table": ("CREATE TEMP TABLE t (a int)", "DROP TABLE t"),
    "without the word": ("SET search_path TO pg_temp; CREATE TABLE t (a int)", "DROP TABLE t"),
    "SELECT INTO": ("SELECT 1 AS a INTO TEMP t", "DISCARD TEMP"),
    "lock": ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"),
    "cursor": ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "CLOSE c"),
    "all": ("CREATE TEMP TABLE t (a int); SELECT pg_advisory_lock(1)", "DISCARD ALL"),
}


@pytest.mark.parametrize("name", PINS)
def test_state_that_cannot_move_pins_its_client(start_pooler, pg, name):
    begin, end = PINS[name]
    pooler = start_pooler(pg, default_pool_size=1, query_wait_timeout=20, pinned_overflow=0)
    one, other = pooler.raw(), pooler.raw()
    one.query(begin)
    other.send(b"Q\0\0\0\x0dSELECT 1\0")
    other.quiet(0.3)
    assert one.value("SELECT 2") == "2"
    one.query(end)
    other.until_ready()
    assert other.value("SELECT 3") == "3"


@pytest.mark.parametrize("begin", ["CREATE TEMP TABLE t (a int)", "SELECT setseed(0.5)",
                                   "SELECT pg_advisory_lock(1)", "BEGIN; SET work_mem = '77kB'"])
def test_a_disconnected_client_leaves_no_state(start_pooler, pg, begin):
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.raw() as first:
        default = first.value("SHOW work_mem")
        first.query(begin)
    with pooler.raw() as second:
        assert second.value("SHOW work_mem") == default
        assert second.value("SELECT count(*) FROM pg_class WHERE relname = 't' AND relpersistence = 't'") == "0"
        assert second.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0"


def test_startup_values_come_back_after_reset(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    options = "-c work_mem=77kB -c app.tenant=seven"
    with pooler.raw(options=options, DateStyle="german") as one, pooler.raw() as other:
        assert one.parameters["DateStyle"] == "German, DMY", "as PostgreSQL spells it"
        default = other.value("SHOW work_mem")
        for reset in ("RESET ALL", "RESET work_mem; RESET app.tenant", "DISCARD ALL"):
            one.query("SET work_mem = '99kB'; SET app.tenant = 'x'")
            one.query(reset)
            assert other.value("SHOW work_mem") == default
            assert one.value("SHOW work_mem") == "77kB"
            assert one.value("SHOW app.tenant") == "seven"
            assert one.value("SHOW DateStyle") == "German, DMY"


def test_startup_values_come_back_at_the_end_of_a_transaction(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    options = r"-c work_mem=77kB -c app.tenant=seven -c search_path=pg_temp,\ \"We\ ird\",\ public"
    with pooler.raw(options=options, DateStyle="german") as one:
        read = "SELECT concat_ws('|', {})".format(", ".join(
            f"current_setting('{name}')" for name in ("work_mem", "app.tenant", "search_path", "DateStyle")))
        at_login = one.value(read)
        assert at_login.startswith("77kB|seven|") and at_login.endswith("|German, DMY")
        change = "SET work_mem = '99kB'; SET app.tenant = 'x'; SET search_path = public; SET DateStyle = ISO"
        for reset in ("RESET ALL", "RESET work_mem; RESET app.tenant; SET search_path TO DEFAULT; RESET DateStyle"):
            for end in ("ROLLBACK", "COMMIT"):
                one.query(change)
                changed = one.value(read)
                one.query("BEGIN")
                one.query(reset)
                assert one.value(read) not in (at_login, changed)
                one.query(end)
                assert one.value(read) == (at_login if end == "COMMIT" else changed)


@pytest.mark.parametrize("reset", ["RESET ROLE", "BEGIN; RESET work_mem; ROLLBACK", "RESET work_mem; RESET app.other"])
def test_an_empty_value_is_no_startup_value(start_pooler, pg, reset):
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.raw(options="-c app.tenant=seven -c work_mem=77kB") as one, pooler.raw() as other:
        one.query("SET app.tenant = ''")
        one.query(reset)
        other.query("SET app.tenant = 'x'")
        assert one.value("SHOW app.tenant") == ""
        one.query("RESET app.tenant")
        assert one.value("SHOW app.tenant") == "seven"


def test_startup_values_that_postgresql_refuses(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    for _ in range(2):
        with pytest.raises(LoginRefused, match='invalid value for parameter "TimeZone": "nowhere"'):
            pooler.raw(TimeZone="nowhere")
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "1"


@pytest.mark.shows("catalog_check_interval")
def test_functions_that_change_a_session(start_pooler, newest_pg):
    """pgweir reads in the catalog what a function does, and again when that may have changed."""
    pooler = start_pooler(newest_pg, default_pool_size=1, catalog_check_interval="0.5")
    make = "CREATE OR REPLACE FUNCTION hidden() RETURNS int LANGUAGE sql AS $$ SELECT {} $$"
    dirty = make.format("length(set_config('work_mem', '77kB', false))")
    with pooler.raw() as one, pooler.raw() as other:
        default = one.value("SHOW work_mem")
        for maker in (other, None):
            one.query(make.format("1"))
            assert one.value("SELECT hidden()") == "1"
            if maker:
                maker.query(dirty)
            else:
                newest_pg.run(dirty, dbname="app")

            def is_noticed():
                one.value("SELECT hidden()")
                mine = one.value("SHOW work_mem")
                return other.value("SHOW work_mem") == default and mine == "77kB"

            machine.wait_until(is_noticed, 10, "the function is known for what it does")
            one.query("RESET work_mem")
        one.query("DROP FUNCTION hidden()")


RUNS = "set_config('app.left', 'by another', false) IS NOT NULL"
UNNAMED = {
    "operator": ("CREATE FUNCTION left_op(int, int) RETURNS bool LANGUAGE sql AS $$ SELECT {runs} $$;"
                 "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = left_op)",
                 "SELECT 1 === 2", "DROP OPERATOR === (int, int); DROP FUNCTION left_op"),
    "domain": ("CREATE DOMAIN left_domain AS text CHECK ({runs})", "SELECT 'x'::left_domain", "DROP DOMAIN left_domain"),
    "cast": ("CREATE TYPE left_type AS (a text);"
             "CREATE FUNCTION left_cast(text) RETURNS left_type LANGUAGE sql AS $$ SELECT ROW({runs})::left_type $$;"
             "CREATE CAST (text AS left_type) WITH FUNCTION left_cast(text)",
             "SELECT ('x'::text)::left_type", "DROP TYPE left_type CASCADE"),
    "index": ("CREATE INDEX left_index ON left_table (left_of(a))", "INSERT INTO left_table VALUES (1)", ""),
    "schema": ("CREATE SCHEMA left_schema CREATE VIEW left_table AS SELECT {runs} AS a",
               "SELECT * FROM left_schema.left_table", "DROP SCHEMA left_schema CASCADE"),
}


@pytest.mark.shows("catalog_check_interval")
@pytest.mark.parametrize("interval", [0, 3600])
@pytest.mark.parametrize("name", UNNAMED)
def test_functions_that_run_without_being_named(start_pooler, newest_pg, name, interval):
    """A client has just created the function, and no state that it sets reaches another client."""
    create, use, drop = UNNAMED[name]
    pooler = start_pooler(newest_pg, default_pool_size=1, catalog_check_interval=interval)
    newest_pg.run(f"""
        CREATE TABLE left_table (a int);
        CREATE FUNCTION left_of(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN {RUNS}; END $$;
        GRANT CREATE ON SCHEMA public TO trusty;
        GRANT CREATE ON DATABASE app TO trusty;
        ALTER TABLE left_table OWNER TO trusty""", dbname="app")
    try:
        first, other = pooler.raw(), pooler.raw()
        # pgweir has read the catalog, where it reads one.
        for _ in range(3):
            first.query("SELECT count(*) FROM left_table")
            other.query("SELECT 1")
        first.query(create.format(runs=RUNS))
        first.close()
        second = pooler.raw()
        second.query(use)
        assert second.value("SELECT current_setting('app.left', true)") == "by another"
        assert other.value("SELECT nullif(current_setting('app.left', true), '')") is None
    finally:
        newest_pg.run(f"{drop}; DROP TABLE left_table; DROP FUNCTION left_of;"
                      "REVOKE CREATE ON DATABASE app FROM trusty", dbname="app")


# The beginning of the query that takes several times as long as a comparison with the defaults.
LISTS_SETTINGS = "FROM pg_catalog.pg_settings WHERE source"


def test_inspections_do_not_list_all_parameters(start_pooler, private_pg):
    """A function sets parameters to ever new values, whose defaults stay the same. The values move with the client."""
    made = ("CREATE FUNCTION set_tenant(t text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
            " EXECUTE format('SET search_path = %I, public', t); EXECUTE format('SET work_mem = %L', t || '000kB'); END $$")
    private_pg.run(made, dbname="app")
    private_pg.run("ALTER DATABASE app SET log_statement = 'all'; ALTER DATABASE app SET log_min_messages = 'log'")
    pooler = start_pooler(private_pg, default_pool_size=1, workers=1, max_pinned=0)
    with pooler.raw() as client, pooler.raw() as other:
        def value_of_tenant(number):
            client.query(f"SELECT set_tenant('{number}')")
            assert other.value("SELECT concat_ws(' ', current_setting('search_path'), current_setting('work_mem'))") == '"$user", public 4MB'
            return client.value("SELECT concat_ws(' ', current_setting('search_path'), current_setting('work_mem'))")
        # A server's first inspection reads the defaults of all parameters.
        assert value_of_tenant(1) == '"1", public 1000kB'
        before = private_pg.log.read_text().count(LISTS_SETTINGS)
        for number in range(2, 6):
            assert value_of_tenant(number) == f'"{number}", public {number}000kB'
        log = private_pg.log.read_text()
        assert "SET LOCAL search_path TO DEFAULT" in log
        assert log.count(LISTS_SETTINGS) == before
        # The default changes, so that the comparison shows nothing any more.
        private_pg.run("ALTER SYSTEM SET work_mem = '5MB'")
        private_pg.run("SELECT pg_reload_conf()")
        machine.wait_until(lambda: private_pg.value("SHOW work_mem") == "5MB", what="the default has changed")
        client.query("SELECT set_tenant('6')")
        assert other.value("SHOW work_mem") == "5MB"
        assert client.value("SHOW work_mem") == "6000kB"
        client.query("RESET work_mem")
        assert other.value("SHOW work_mem") == "5MB"
        assert client.value("SHOW work_mem") == "5MB"
        client.query("SELECT set_tenant('7')")
        client.query("SET search_path = DEFAULT")
        assert other.value("SHOW search_path") == '"$user", public'
        assert client.value("SELECT concat_ws(' ', current_setting('search_path'), current_setting('work_mem'))") == '"$user", public 7000kB'
        assert pooler.console("SHOW PINS") == []
