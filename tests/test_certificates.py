"""What pgweir knows about a database's functions and relations: its lists compared with real servers, and what it finds
in a catalog, as SHOW CATALOG and SHOW OPAQUE display it.
"""

from pathlib import Path

import machine
import pytest
from test_denied import HARMLESS, is_denied

HERE = Path(__file__).parent
CERTIFICATES = HERE.parent / "crates/core/src/session/certificates"
FACTS = (CERTIFICATES / "facts.sql").read_text()
SAMPLE = HERE / "certificates/sample.sql"
USER = "trusty"


@pytest.fixture
def sample(pg):
    """A database with the objects of the sample."""
    name = "sample"
    pg.run(f"CREATE DATABASE {name}")
    pg.run(SAMPLE.read_text(), dbname=name)
    yield name
    pg.run(f"DROP DATABASE {name} WITH (FORCE)")


def catalog(pooler, database):
    """The row of SHOW CATALOG of one entry, or an empty one."""
    rows = [row for row in pooler.console("SHOW CATALOG") if row["database"] == database]
    return rows[0] if rows else {"state": "unread", "readings": "0"}


def read(pooler, database="app", user=USER):
    """Waits until pgweir has read the catalog, for which a server has to become free. Returns its row."""
    def is_read():
        with pooler.connect(user, database) as db:
            db.execute("SELECT 1")
        return catalog(pooler, database)["state"] in ("known", "opaque")

    machine.wait_until(is_read, 20, f"the catalog of {database} is read")
    return catalog(pooler, database)


def opaque(pooler, database="app"):
    """Returns the rows of SHOW OPAQUE for an entry: objects that leave session state when they are read or written, by
    kind and name.
    """
    rows = [row for row in pooler.console("SHOW OPAQUE") if row["database"] == database]
    return {(row["kind"], row["name"]): (row["read"], row["write"]) for row in rows}


def expected():
    """Returns the rows that the comments of the sample describe. Objects that leave no session state are not listed."""
    kinds = {"f": "function", "r": "relation"}
    found = {}
    for line in SAMPLE.read_text().splitlines():
        if line.startswith("--: "):
            kind, name, traces = line[4:].split(" ", 2)
            reading, writing = (trace.strip() or "NONE" for trace in traces.split("/"))
            if (reading, writing) != ("NONE", "NONE"):
                found[kinds[kind], name] = (reading, writing)
    return found


def test_show_opaque_lists_all_objects_that_leave_state(pg, sample, start_pooler):
    pooler = start_pooler(pg, databases={sample: f"host={pg.host} port={pg.port} dbname={sample}"})
    row = read(pooler, sample)
    assert row["state"] == "opaque" and "dirty_domain" in row["reason"]
    assert opaque(pooler, sample) == expected()
    assert row["unclean"] is None
    pooler.expect_log("SHOW OPAQUE lists functions")


def test_the_facts_are_read_under_any_settings(pg, sample):
    hostile = [
        "CREATE SCHEMA evil",
        "CREATE FUNCTION evil.concat(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
        "CREATE TABLE evil.pg_proc (oid oid)",
        "CREATE TEMP TABLE pg_class (oid oid)",
        "SET search_path TO evil, pg_temp, pg_catalog",
        "SET standard_conforming_strings TO off",
        "SET client_encoding TO 'LATIN1'",
        "SET default_transaction_isolation TO serializable",
        "SET default_transaction_deferrable TO on",
        "SET default_transaction_read_only TO on",
        "SET quote_all_identifiers TO on",
        # On a busy machine, the beginning of the query may still be within the time.
        "SET statement_timeout TO '5s'",
    ]
    settings = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction%'"
    with pg.connect(dbname=sample) as db:
        plain = _rows(db.execute(FACTS))
    with pg.connect(dbname=sample) as db:
        for statement in hostile:
            db.execute(statement)
        before = db.execute(settings).fetchall()
        found = _rows(db.execute(FACTS))
        assert db.execute(settings).fetchall() == before, "the query leaves no trace itself"
    names = {row[2] for row in found if row[0] == "f"}
    assert {row[2] for row in plain if row[0] == "f"} | {"concat"} == names
    assert [row[:2] for row in plain if row[0] in "tukhxy"] == [row[:2] for row in found if row[0] in "tukhxy"]


def _rows(cursor):
    rows = []
    while True:
        rows += cursor.fetchall() if cursor.description else []
        if not cursor.nextset():
            return rows


def test_the_query_has_time_of_its_own(pg):
    before, _, _ = FACTS.partition("SELECT")
    with pg.connect() as db:
        db.execute("SET statement_timeout TO '5s'; SET lock_timeout TO '5min'")
        cursor = db.execute(before + "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        while cursor.nextset():
            pass
        assert cursor.fetchone() == ("20s", "1s")


def test_every_function_that_may_keep_state_is_in_a_list(pg, start_pooler):
    """A new major version may bring new functions, which count as opaque until they are in the lists."""
    pooler = start_pooler(pg)
    assert read(pooler)["state"] == "known"
    assert [name for kind, name in opaque(pooler) if kind == "built-in"] == []


@pytest.mark.parametrize("extension, state", [
    ("hstore", "known"), ("citext", "known"), ("pg_trgm", "known"), ("btree_gist", "known"), ("ltree", "known"),
    ("pgcrypto", "known"), ("uuid-ossp", "known"), ("cube", "known"), ("intarray", "known"), ("unaccent", "known"),
])
def test_types_and_operators_of_extensions_are_certified(pg, start_pooler, extension, state):
    if not pg.value("SELECT count(*) FROM pg_available_extensions WHERE name = %s", extension):
        pytest.skip(f"no {extension} in this build of PostgreSQL")
    pooler = start_pooler(pg)
    pg.run(f'CREATE EXTENSION "{extension}"', dbname="app")
    try:
        row = read(pooler)
        assert (row["state"], row["reason"], row["unclean"]) == (state, None, None)
        assert {name for _, name in opaque(pooler)} <= {"set_limit"}
    finally:
        pg.run(f'DROP EXTENSION "{extension}"', dbname="app")


@pytest.mark.shows("unclean")
@pytest.mark.parametrize("unclean", ["close", "ignore"])
def test_a_server_with_state_that_no_reset_removes_is_closed(pg, start_pooler, unclean):
    """A server on which any code may have run is closed if that code could leave state that no clean removes."""
    pooler = start_pooler(pg, default_pool_size=1, workers=1, unclean=unclean)
    pg.run("CREATE EXTENSION dblink", dbname="app")
    try:
        assert "written in c" in read(pooler)["unclean"]
        assert ("function", "dblink_connect") in opaque(pooler)
        with pooler.raw(USER) as one, pooler.raw(USER) as other:
            assert one.value("SELECT pg_backend_pid()") == other.value("SELECT pg_backend_pid()"), "certified"
            before = one.value("DO 'BEGIN END'; SELECT pg_backend_pid()")
            assert (other.value("SELECT pg_backend_pid()") == before) == (unclean == "ignore")
    finally:
        pg.run("DROP EXTENSION dblink", dbname="app")


@pytest.mark.shows("certified_functions")
def test_functions_that_the_configuration_certifies(pg, start_pooler):
    pg.run("CREATE FUNCTION mine() RETURNS int LANGUAGE plpgsql AS $$BEGIN EXECUTE 'x'; RETURN 1; END$$", dbname="app")
    try:
        pooler = start_pooler(pg)
        read(pooler)
        assert opaque(pooler) == {("function", "mine"): ("TEMP|OPAQUE|UNREAD", "NONE")}
        trusting = start_pooler(pg, certified_functions="mine")
        read(trusting)
        assert opaque(trusting) == {}
    finally:
        pg.run("DROP FUNCTION mine()", dbname="app")


def test_no_allowed_function_is_an_alias_of_a_denied_one(pg):
    pairs = pg.rows(
        "SELECT p.proname, q.proname FROM pg_proc p JOIN pg_proc q ON p.prosrc = q.prosrc"
        " WHERE p.proname <> q.proname AND p.pronamespace = 'pg_catalog'::regnamespace"
        " AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'internal')")
    aliases = [pair for pair in pairs if not is_denied(pair[0]) and is_denied(pair[1])
               and _can_be_called(pg, pair[1])]
    assert aliases == []


def _can_be_called(pg, name):
    return pg.value("SELECT bool_and(NOT 'internal'::regtype = ANY (proargtypes) AND prorettype NOT IN"
                    " ('trigger'::regtype, 'internal'::regtype)) FROM pg_proc WHERE proname = %s", name)


def test_the_servers_sql_functions_call_allowed_functions_only(pg):
    """Checks the functions of pg_catalog in SQL by the words of their source."""
    sources = pg.rows(
        "SELECT p.proname, concat(p.prosrc, pg_get_function_sqlbody(p.oid)) FROM pg_proc p JOIN pg_language l"
        " ON l.oid = p.prolang WHERE l.lanname = 'sql' AND p.oid < 16384")
    words = ("set_config", "setseed", "nextval", "advisory", "_to_xml", "listening", "prepared")
    forbidden = [name for name, source in sources for word in words if word in source]
    assert forbidden == []


def test_the_servers_views_call_allowed_functions_only(pg):
    views = pg.rows(
        "SELECT c.relname, p.proname FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class"
        " JOIN pg_proc p ON r.ev_action::text ~ (':funcid ' || p.oid || ' ')"
        " WHERE c.oid < 16384 AND r.ev_type = '1' AND p.provolatile = 'v'")
    # The scanner knows these functions by name.
    known = {"pg_settings", "pg_prepared_statements", "pg_cursors", "pg_backend_memory_contexts"}
    unclean = {(view, function) for view, function in views
               if function not in HARMLESS and view not in known}
    assert unclean == set()


def test_a_parameter_named_in_dynamic_sql(start_pooler, pg):
    """The name of a custom parameter is in a string that a function executes. The value is moved with its client."""
    pg.run("CREATE FUNCTION enter(tenant text) RETURNS void LANGUAGE plpgsql AS $$"
           "BEGIN EXECUTE format('SET dynamic.tenant = %L', tenant); END$$", dbname="app")
    try:
        pooler = start_pooler(pg, default_pool_size=1)
        with pooler.connect() as one, pooler.connect() as other:
            for _ in range(3):
                one.execute("SELECT enter('one')")
                other.execute("SELECT enter('other')")
                # No client has sent a text with the parameter's name: it stands only in the function's body.
                for client in (one, other, one):
                    client.execute("SELECT 1")
                assert one.execute("SHOW dynamic.tenant").fetchone() == ("one",)
                assert other.execute("SHOW dynamic.tenant").fetchone() == ("other",)
    finally:
        pg.run("DROP FUNCTION enter(text)", dbname="app")
