"""Shared prepared statements with literals whose meaning depends on a client's settings."""

import pytest

import rawclient as wire
from rawclient import SYNC, bind, close, execute, parse

POINT = "SELECT extract(epoch from timestamptz '2020-06-01 00:00')::bigint"

# name: the settings of one client, of another, and a text that PostgreSQL analyses differently for both
CASES = {
    "TimeZone": (["TimeZone = 'UTC'"], ["TimeZone = 'America/New_York'"], POINT),
    "TimeZone, by today": (["TimeZone = 'Pacific/Kiritimati'"], ["TimeZone = 'Etc/GMT+12'"],
                           "SELECT 'today'::timestamp"),
    "TIME ZONE": (["TIME ZONE 'UTC'"], ["TIME ZONE 'America/New_York'"], POINT),
    "DateStyle": (["DateStyle = 'ISO, DMY'"], ["DateStyle = 'ISO, MDY'"],
                  "SELECT extract(month from date '01/02/2020')::int"),
    "IntervalStyle": (["IntervalStyle = 'postgres'"], ["IntervalStyle = 'sql_standard'"],
                      "SELECT extract(epoch from interval '-1 2:03:04')::int"),
    "timezone_abbreviations": (["timezone_abbreviations = 'Default'"], ["timezone_abbreviations = 'Australia'"],
                               "SELECT extract(epoch from timestamptz '2020-06-01 00:00 EST')::bigint"),
    "transform_null_equals": (["transform_null_equals = off"], ["transform_null_equals = on"],
                              "SELECT count(*) FROM (VALUES (1), (null)) AS v (a) WHERE a = null"),
    "array_nulls": (["array_nulls = on"], ["array_nulls = off"],
                    "SELECT (('{null,b}'::text[])[1] IS NULL)::text"),
    "standard_conforming_strings": (["standard_conforming_strings = on"],
                                    ["standard_conforming_strings = off", "escape_string_warning = off"],
                                    r"SELECT length('a\\b')"),
    "backslash_quote": (["standard_conforming_strings = off", "escape_string_warning = off",
                         "backslash_quote = on"],
                        ["standard_conforming_strings = off", "escape_string_warning = off",
                         "backslash_quote = off"], r"SELECT length('a\'b')"),
    "client_encoding": (["client_encoding = 'UTF8'"], ["client_encoding = 'LATIN1'"],
                        "SELECT length('\u00e4')".encode()),
}


def answer(client, text, name="s"):
    """Returns the result of a new prepared statement: its value, or the SQLSTATE of its error."""
    text = text.decode() if isinstance(text, bytes) else text
    client.send(parse(text, name) + SYNC)
    failed = wire.errors(client.until_ready())
    return failed[0][0] if failed else used(client, name)


def used(client, name="s"):
    client.send(bind(name=name) + execute() + SYNC)
    heard = client.until_ready()
    failed = wire.errors(heard)
    return failed[0][0] if failed else wire.value(heard)


def directly(pg, settings, text):
    with pg.raw() as client:
        for setting in settings:
            client.query(f"SET {setting}")
        return answer(client, text)


def test_the_present_time_in_a_literal(start_pooler, newest_pg):
    """PostgreSQL turns 'now' into a point in time when it analyses the statement."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    text, clock = "SELECT 'now'::timestamptz::text", "SELECT clock_timestamp()::text"
    with weir.raw() as a, weir.raw() as b:
        first = answer(a, text)
        assert used(a) == first
        for client in (b, a):
            client.send(close("S", "s") + SYNC)
            client.until_ready()
            before = client.value(clock)
            assert before < answer(client, text) < client.value(clock)


@pytest.mark.parametrize("name", CASES)
def test_clients_with_different_settings(start_pooler, newest_pg, name):
    one, other, text = CASES[name]
    expected = [directly(newest_pg, settings, text) for settings in (one, other)]
    assert expected[0] != expected[1], "the settings matter"
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as a, weir.raw() as b, weir.raw() as third:
        for client, settings in ((a, one), (b, other)):
            for setting in settings:
                client.query(f"SET {setting}")
        third.query("SELECT 1")
        for _ in range(2):
            assert [answer(a, text), answer(b, text)] == expected
            assert [used(client) for client, value in zip((a, b), expected) if len(value) != 5] == [
                value for value in expected if len(value) != 5]
            for client in (a, b):
                client.send(close("S", "s") + SYNC)
                client.until_ready()


@pytest.mark.parametrize("setting", ["SET LOCAL TimeZone = 'America/New_York'",
                                     "SELECT set_config('timezone', 'America/New_York', true)",
                                     "SET LOCAL TIME ZONE 'America/New_York'"])
def test_a_setting_of_a_transaction(start_pooler, newest_pg, setting):
    """A statement that was prepared under settings of a transaction is not used for another client, nor for a later
    request in the same write.
    """
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    utc, local = (directly(newest_pg, [f"TimeZone = '{zone}'"], POINT)
                  for zone in ("UTC", "America/New_York"))
    with weir.raw() as a, weir.raw() as b:
        for client in (a, b):
            client.query("SET TimeZone = 'UTC'")
        for _ in range(2):
            assert answer(b, POINT) == utc
            a.query("BEGIN")
            a.query(setting)
            assert answer(a, POINT) == local
            a.query("COMMIT")
            assert used(b) == utc
            a.send(wire.extended("BEGIN") + wire.extended(setting) + close("S", "s") + parse(POINT, "s")
                   + bind(name="s") + execute() + wire.extended("COMMIT") + SYNC)
            assert (local,) in wire.rows(a.until_ready())
            assert used(b) == utc
            for client in (a, b):
                client.send(close("S", "s") + SYNC)
                client.until_ready()


def test_a_setting_that_an_opaque_function_makes(start_pooler, newest_pg):
    """A function that pgweir can't analyse has changed the time zone."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as a, weir.raw() as b:
        a.query("SET TimeZone = 'UTC'")
        utc = answer(a, POINT)
        b.query("DO $$BEGIN EXECUTE 'SET TimeZone = ''America/New_York'''; END$$")
        assert answer(b, POINT) == str(int(utc) + 4 * 3600)
        assert used(a) == utc
        assert used(b) == str(int(utc) + 4 * 3600)


def test_a_client_keeps_what_it_has_prepared(start_pooler, newest_pg):
    """As on a direct connection, settings that a client changes later do not affect its statements while it keeps its
    server.
    """
    expected = directly(newest_pg, ["TimeZone = 'UTC'"], POINT)
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as client:
        client.query("SET TimeZone = 'UTC'")
        assert answer(client, POINT) == expected
        client.query("SET TimeZone = 'America/New_York'")
        assert used(client) == expected
        assert answer(client, POINT, "t") == str(int(expected) + 4 * 3600)


def test_statements_of_sql(start_pooler, newest_pg):
    """Two clients have PREPAREd the same text, under different settings."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as a, weir.raw() as b, weir.raw() as c:
        clients = list(zip((a, b, c), ("UTC", "America/New_York", "UTC")))
        for client, zone in clients:
            client.query(f"SET TimeZone = '{zone}'")
        for client, _ in clients:
            client.query(f"PREPARE p AS {POINT}")
        found = [client.value("EXECUTE p") for _ in range(3) for client, _ in clients]
        assert found == [str(1590969600 + offset) for offset in (0, 4 * 3600, 0)] * 3


def server_parses(weir):
    (row,) = [row for row in weir.console("SHOW STATS") if row["database"] == "app"]
    return int(row["total_server_parse_count"])


def test_a_statement_whose_plan_was_discarded_is_not_made_anew(start_pooler, newest_pg):
    """When the server passes to a client of another TimeZone, all plans are discarded: PostgreSQL reads the literals
    again.
    """
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as a, weir.raw() as b:
        zones = [(a, "UTC", 0), (b, "America/New_York", 4 * 3600)]
        for client, zone, offset in zones:
            client.query(f"SET TimeZone = '{zone}'")
            assert answer(client, POINT) == str(1590969600 + offset)
        before = server_parses(weir)
        for client, _, offset in zones * 3:
            assert used(client) == str(1590969600 + offset)
        assert server_parses(weir) == before


def test_statements_that_do_not_depend_on_settings_are_shared(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)

    texts = ["SELECT $1::int IS NOT DISTINCT FROM 1", "SELECT 'active' = $1"]
    with weir.raw() as a, weir.raw() as b:
        a.query("SET app.tenant = '1'")
        b.query("SET app.tenant = '2'; SET TimeZone = 'Asia/Tokyo'")
        for client in (a, b):
            for n, text in enumerate(texts):
                client.send(parse(text, f"s{n}") + SYNC)
                client.until_ready()
        before = server_parses(weir)
        for _ in range(3):
            for client in (a, b):
                for n in range(len(texts)):
                    client.send(bind([1], name=f"s{n}") + execute() + SYNC)
                    assert wire.value(client.until_ready()) in ("t", "f")
        assert server_parses(weir) == before


def test_psycopg(start_pooler, newest_pg):
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    found = []
    with weir.connect() as a, weir.connect() as b:
        a.execute("SET TimeZone = 'UTC'")
        b.execute("SET TimeZone = 'America/New_York'")
        for _ in range(3):
            found.append([c.execute(POINT, prepare=True).fetchone()[0] for c in (a, b)])
    assert found == [[1590969600, 1590984000]] * 3


@pytest.fixture
def function(newest_pg):
    """Makes a function for the length of the test, which other tests must not find in the catalog."""
    made = []

    def make(name, definition):
        with newest_pg.connect("app") as db:
            db.execute(f"CREATE FUNCTION {name}() {definition}")
        made.append(name)

    yield make
    with newest_pg.connect("app") as db:
        for name in made:
            db.execute(f"DROP FUNCTION {name}()")


def test_a_function_that_sets_for_the_transaction(start_pooler, newest_pg, function):
    function("to_new_york", "RETURNS void LANGUAGE plpgsql AS "
             "$$BEGIN SET LOCAL TimeZone = 'America/New_York'; END$$")
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with weir.raw() as a, weir.raw() as b:
        for client in (a, b):
            client.query("SET TimeZone = 'UTC'")
        # The catalog is read.
        a.query("SELECT to_new_york()")
        a.query("BEGIN")
        a.query("SELECT to_new_york()")
        assert answer(a, POINT) == str(1590969600 + 4 * 3600)
        a.query("COMMIT")
        assert answer(b, POINT) == "1590969600"


def test_a_role_without_the_privilege_to_use_a_schema(start_pooler, newest_pg):
    """PostgreSQL checks the privilege when it analyses a statement. pgweir must not answer the Parse because of another
    client's statement.
    """
    with newest_pg.connect("app") as db:
        db.execute("CREATE ROLE kept_out; GRANT kept_out TO trusty; CREATE SCHEMA closed; CREATE TABLE closed.t (a int);"
                   "GRANT USAGE ON SCHEMA closed TO trusty; GRANT SELECT ON closed.t TO public")
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    try:
        with weir.raw() as a, weir.raw() as b:
            b.query("SET ROLE kept_out")
            for _ in range(2):
                assert answer(a, "SELECT count(*) FROM closed.t") == "0"
                assert answer(b, "SELECT count(*) FROM closed.t") == "42501"
                a.send(close("S", "s") + SYNC)
                a.until_ready()
    finally:
        with newest_pg.connect("app") as db:
            db.execute("DROP SCHEMA closed CASCADE; REVOKE kept_out FROM trusty; DROP ROLE kept_out")


@pytest.mark.parametrize("how", ["SET", "login"])
def test_tables_of_the_same_name(start_pooler, newest_pg, how):
    """PostgreSQL finds another table under another search_path, but a prepared statement may not get other columns."""
    with newest_pg.connect("app") as db:
        for schema, values in (("own_one", "'x'::text"), ("own_two", "1 AS a, 2 AS b")):
            db.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.own AS SELECT {values};"
                       f"GRANT USAGE ON SCHEMA {schema} TO public; GRANT SELECT ON {schema}.own TO public")
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)

    def client(schema):
        one = weir.raw(**{"search_path": schema} if how == "login" else {})
        if how == "SET":
            one.query(f"SET search_path = {schema}")
        return one

    try:
        with client("own_one") as a, client("own_two") as b:
            made = parse("SELECT * FROM own", "s")
            for _ in range(3):
                for one, row in ((a, ("x",)), (b, ("1", "2"))):
                    one.send(made + bind(name="s") + execute() + SYNC)
                    heard = one.until_ready()
                    assert (wire.rows(heard), wire.errors(heard)) == ([row], [])
                made = b""
    finally:
        with newest_pg.connect("app") as db:
            for schema in ("own_one", "own_two"):
                db.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize("language", ["plpgsql", "sql"])
def test_literals_in_a_function(start_pooler, newest_pg, function, language):
    """PL/pgSQL keeps the value of a literal as long as the server connection exists."""
    body = {"plpgsql": f"BEGIN RETURN ({POINT}); END", "sql": POINT}[language]
    function(f"literal_{language}", f"RETURNS bigint VOLATILE LANGUAGE {language} AS $${body}$$")
    weir = start_pooler(newest_pg, workers=1, default_pool_size=1)
    call = f"SELECT literal_{language}()"
    zones = ["UTC", "America/New_York"]
    expected = [directly(newest_pg, [f"TimeZone = '{zone}'"], POINT) for zone in zones]
    assert expected[0] != expected[1]
    with weir.raw(TimeZone=zones[0]) as a, weir.raw(TimeZone=zones[1]) as b:
        for _ in range(3):
            assert [a.value(call), b.value(call)] == expected
