"""`cached plan must not change result type` after a change that did not pass through pgweir: clients that know the
columns of a statement get the error as from a direct connection; other clients get it once at most.
"""

import psycopg
import pytest

from rawclient import FLUSH, SYNC, bind, close, describe, errors, execute, kinds, parse, query, rows

STALE = [("0A000", "cached plan must not change result type")]
TEXT = "SELECT * FROM changing"
# How a statement is used: with a description of its result, or without.
ASKS = bind(name="S") + describe() + execute() + SYNC
TRUSTS = bind(name="S") + execute() + SYNC


@pytest.fixture
def changing(newest_pg):
    """A table that is changed on a direct connection."""
    with psycopg.connect(
        host=newest_pg.host, port=newest_pg.port, user="trusty", dbname="app", autocommit=True
    ) as direct:
        direct.execute("DROP TABLE IF EXISTS changing")
        direct.execute("CREATE TABLE changing AS SELECT 1 AS a")
        yield direct
        direct.execute("DROP TABLE IF EXISTS changing")


def widen(direct):
    direct.execute("ALTER TABLE changing ADD b int DEFAULT 2")


def narrow(direct):
    direct.execute("ALTER TABLE changing DROP b")


def start(start_pooler, pg, **settings):
    return start_pooler(pg, workers=1, default_pool_size=1, **settings)


def prepare(client, text=TEXT):
    assert kinds(client.ask(parse(text, "S") + describe("S", "S") + SYNC)) in ("1tTZ", "1tnZ")


@pytest.mark.parametrize("request_", [ASKS, TRUSTS], ids=["asks", "trusts"])
def test_a_client_with_an_old_description_gets_the_error(start_pooler, newest_pg, changing, request_):
    """The client gets the error until it prepares the statement again, as on a direct connection, even if the server
    has the new plan already.
    """
    weir = start(start_pooler, newest_pg)
    with weir.raw() as old, weir.raw() as new:
        prepare(old)
        assert rows(old.ask(request_)) == [("1",)]
        widen(changing)
        for _ in range(3):
            assert errors(old.ask(request_)) == STALE
        # On a direct connection, this client would not get the error.
        prepare(new)
        assert rows(new.ask(request_)) == [("1", "2")]
        assert errors(old.ask(request_)) == STALE
        assert kinds(old.ask(close("S", "S") + parse(TEXT, "S") + TRUSTS)) == "312DCZ"


def test_a_client_that_comes_after_the_change(start_pooler, newest_pg, changing):
    """The first client may receive the error for a change that pgweir has not noticed. After that, all servers have new
    plans.
    """
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with weir.raw() as old, weir.raw() as first:
        prepare(old)
        first.query("BEGIN")
        assert rows(old.ask(ASKS)) == [("1",)]
        first.query("COMMIT")
        widen(changing)
        first.ask(parse(TEXT, "S") + SYNC)
        assert errors(first.ask(ASKS)) == STALE
        # The client has not described its statement, so pgweir prepares it again.
        assert rows(first.ask(ASKS)) == [("1", "2")]
        with weir.raw() as second, weir.raw() as third:
            for client in (second, third):
                prepare(client)
                assert rows(client.ask(TRUSTS)) == [("1", "2")]
            second.query("BEGIN")
            assert rows(third.ask(TRUSTS)) == [("1", "2")]
            assert rows(second.ask(TRUSTS)) == [("1", "2")]
            second.query("COMMIT")


def test_columns_that_a_client_knows_from_another_server(start_pooler, newest_pg, changing):
    """Columns that a client knows from one server count on another server with an older plan."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with weir.raw() as client, weir.raw() as other:
        prepare(other)
        other.query("BEGIN")
        widen(changing)
        prepare(client)
        other.query("COMMIT")
        # Now on both servers, one of which has the statement from before the change.
        for _ in range(2):
            assert rows(client.ask(TRUSTS)) == [("1", "2")]
            other.query("BEGIN")
            assert rows(client.ask(TRUSTS)) == [("1", "2")]
            other.query("COMMIT")


@pytest.mark.parametrize("settings", [{}, {"session_state": "off"}], ids=["carried", "off"])
@pytest.mark.shows("session_state")
def test_statements_prepared_after_the_change_are_new(start_pooler, newest_pg, changing, settings):
    weir = start(start_pooler, newest_pg, **settings)
    with weir.raw() as client:
        prepare(client)
        widen(changing)
        assert errors(client.ask(ASKS)) == STALE
    with weir.raw() as client:
        prepare(client)
        assert rows(client.ask(ASKS)) == [("1", "2")]


def test_in_a_transaction_and_a_pipeline(start_pooler, newest_pg, changing):
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client, weir.raw() as other:
        prepare(client)
        prepare(other)
        widen(changing)
        client.send(ASKS + query("SELECT 7"))
        first, second = client.until_ready(), client.until_ready()
        assert errors(first) == STALE and rows(second) == [("7",)]
        other.query("BEGIN")
        assert errors(other.ask(ASKS)) == STALE
        other.query("ROLLBACK")
        assert errors(other.ask(ASKS)) == STALE


def test_parameters(start_pooler, newest_pg, changing):
    """A binary parameter must have the type that the client knows."""
    weir = start(start_pooler, newest_pg)
    text = "SELECT * FROM changing WHERE a = $1"
    with weir.raw() as client:
        prepare(client, text)
        changing.execute("ALTER TABLE changing ALTER a TYPE bigint")
        one = bind([b"\x00\x00\x00\x01"], name="S", param_formats=[1]) + describe() + execute() + SYNC
        for _ in range(2):
            assert errors(client.ask(one)) == STALE
        client.ask(close("S", "S") + SYNC)
        prepare(client, text)
        one = bind([b"\x00" * 7 + b"\x01"], name="S", param_formats=[1]) + describe() + execute() + SYNC
        assert rows(client.ask(one)) == [("1",)]


def test_a_table_that_is_gone(start_pooler, newest_pg, changing):
    weir = start(start_pooler, newest_pg)
    with weir.raw() as client:
        prepare(client)
        changing.execute("DROP TABLE changing")
        assert [state for state, _ in errors(client.ask(ASKS))] == ["42P01"]
        assert rows(client.send(query("SELECT 1")).until_ready()) == [("1",)]


def test_psycopg_over_a_migration(start_pooler, newest_pg, changing):
    """psycopg receives the error as often as on a direct connection, and continues with a new statement."""
    weir = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with weir.connect("trusty", "app") as one, \
            weir.connect("trusty", "app") as two:
        for client in (one, two):
            client.prepare_threshold = 0
        for turn in range(4):
            for client in (one, two, one):
                try:
                    found = client.execute(TEXT)
                except psycopg.errors.FeatureNotSupported:
                    assert turn > 0
                    client.execute("DEALLOCATE ALL")
                    found = client.execute(TEXT)
                assert [column.name for column in found.description] == (["a"] if turn % 2 == 0 else ["a", "b"])
            (widen if turn % 2 == 0 else narrow)(changing)


MOMENTS = {
    "plpgsql": "LANGUAGE plpgsql AS $f$ BEGIN RETURN (SELECT 'now'::timestamptz::text); END $f$",
    "a variable": "LANGUAGE plpgsql AS $f$ DECLARE t timestamptz; BEGIN t := timestamptz 'now'; RETURN t::text; END $f$",
    "sql": "LANGUAGE sql VOLATILE AS $f$ SELECT 'now'::timestamptz::text $f$",
}


@pytest.mark.pgweir_only("it discards plans between clients")
@pytest.mark.parametrize("how", MOMENTS)
def test_the_present_time_in_a_function(start_pooler, pg, how):
    """PostgreSQL turns 'now' in a function into a constant when it plans the function, and keeps the plan."""
    name = f"moment_{list(MOMENTS).index(how)}"
    pg.run(f"CREATE FUNCTION {name}() RETURNS text {MOMENTS[how]}", dbname="app")
    try:
        weir = start(start_pooler, pg)
        with weir.raw() as a, weir.raw() as b:
            for client in (a, b) * 2:
                before = client.value("SELECT now()::text")
                assert client.value(f"SELECT {name}()") >= before
    finally:
        pg.run(f"DROP FUNCTION {name}()", dbname="app")


@pytest.mark.pgweir_only("it discards plans between clients")
@pytest.mark.parametrize("language", ["plpgsql", "sql"])
def test_an_immutable_function_that_reads_a_table(start_pooler, pg, language):
    """PostgreSQL keeps the result in plans. Another client gets the result of its own time."""
    body = {"plpgsql": "BEGIN RETURN (SELECT max(a) FROM looked_up); END", "sql": "SELECT max(a) FROM looked_up"}[language]
    pg.run("CREATE TABLE looked_up AS SELECT 1 AS a; GRANT ALL ON looked_up TO public", dbname="app")
    pg.run(f"CREATE FUNCTION looks_up() RETURNS int LANGUAGE {language} IMMUTABLE AS $f$ {body} $f$", dbname="app")
    pg.run("CREATE FUNCTION by_plan() RETURNS int LANGUAGE plpgsql AS $f$ BEGIN RETURN (SELECT looks_up() + count(*) FROM looked_up); END $f$",
           dbname="app")
    try:
        weir = start(start_pooler, pg)
        with weir.raw() as a, weir.raw() as b:
            for value, client in enumerate((a, b, a, b), start=1):
                pg.run(f"UPDATE looked_up SET a = {value}", dbname="app")
                client.send(parse("SELECT looks_up(), by_plan()", "S") + bind(name="S") + execute() + close("S", "S") + SYNC)
                assert rows(client.until_ready()) == [(str(value), str(value + 1))]
    finally:
        pg.run("DROP FUNCTION by_plan(); DROP FUNCTION looks_up(); DROP TABLE looked_up", dbname="app")


# -- DDL after which a name in a text means another object, although no object that the plan uses was changed

MEANT = {
    "a function with other arguments": (
        "CREATE FUNCTION f{n}(bigint) RETURNS text LANGUAGE sql AS $f$ SELECT 'old' $f$;", "f{n}(1)",
        "CREATE FUNCTION f{n}(int) RETURNS text LANGUAGE sql AS $f$ SELECT 'new' $f$"),
    "a function in an earlier schema": (
        "CREATE FUNCTION f{n}() RETURNS text LANGUAGE sql AS $f$ SELECT 'old' $f$;", "f{n}()",
        "CREATE FUNCTION trusty.f{n}() RETURNS text LANGUAGE sql AS $f$ SELECT 'new' $f$"),
    "a table in an earlier schema": (
        "CREATE TABLE t{n} AS SELECT 'old' AS a;", "(SELECT a FROM t{n})", "CREATE TABLE trusty.t{n} AS SELECT 'new' AS a"),
    "a cast": (
        "CREATE TYPE t{n} AS (a text); ALTER TYPE t{n} OWNER TO trusty; CREATE FUNCTION f{n}(t{n}) RETURNS text LANGUAGE sql AS"
        " $f$ SELECT 'new' $f$;", "ROW('old')::t{n}::text", "CREATE CAST (t{n} AS text) WITH FUNCTION f{n}(t{n})"),
}


@pytest.mark.pgweir_only("it discards plans after DDL")
def test_a_name_that_means_another_object_after_ddl(start_pooler, newest_pg):
    """The next client on any server gets the new meaning, in statements and in functions, whichever entry the DDL uses."""
    setup = "".join(f"{made.format(n=n)} CREATE FUNCTION g{n}() RETURNS text LANGUAGE plpgsql AS $g$ BEGIN RETURN {call.format(n=n)}; END $g$;"
                    for n, (made, call, _) in enumerate(MEANT.values()))
    newest_pg.run("CREATE DATABASE meant")
    newest_pg.run("CREATE SCHEMA trusty AUTHORIZATION trusty; GRANT ALL ON SCHEMA public TO PUBLIC;" + setup
                  + "GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC", dbname="meant")
    try:
        weir = start_pooler(newest_pg, workers=1, default_pool_size=2, catalog_check_interval=3600, databases={
            "meant": newest_pg.entry(dbname="meant"), "elsewhere": newest_pg.entry("pool_mode=session", dbname="meant")})
        for n, (_, call, ddl) in enumerate(MEANT.values()):
            def seen():
                """The results on both servers."""
                with weir.raw("trusty", "meant") as one, weir.raw("trusty", "meant") as other:
                    one.query("BEGIN")
                    found = {row for client in (one, other) for text in (f"SELECT {call.format(n=n)}", f"SELECT g{n}()")
                             for row in rows(client.ask(parse(text) + bind() + execute() + SYNC))}
                    one.query("COMMIT")
                    return found

            assert len(seen()) == 1
            with weir.raw("trusty", ("meant", "elsewhere")[n % 2]) as maker:
                assert not errors(maker.query(ddl.format(n=n)))
            assert seen() == {("new",)}, ddl
    finally:
        newest_pg.run("DROP DATABASE meant WITH (FORCE)")
