"""What pgweir knows of a database's functions and relations: its lists against real servers.

No pooler is asked here: the lists and the query are files of crates/core, and are held against each
version of PostgreSQL. What the scanner makes of them is tested there.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
CERTIFICATES = HERE.parent / "crates/core/src/session/certificates"
QUERY = (CERTIFICATES / "query.sql").read_text()
SAMPLE = HERE / "certificates/sample.sql"
CLEAN_FUNCTIONS = set((CERTIFICATES / "functions.txt").read_text().split())
CLEAN_RELATIONS = set((CERTIFICATES / "relations.txt").read_text().split())
# Volatile functions that someone has looked at: what they do ends with the transaction, or is no
# matter of the session.
REVIEWED = set((HERE / "certificates/volatile.txt").read_text().split())


@pytest.fixture
def sample(pg):
    """A database with the objects of the sample."""
    name = "sample"
    pg.run(f"CREATE DATABASE {name}")
    pg.run(SAMPLE.read_text(), dbname=name)
    yield name
    pg.run(f"DROP DATABASE {name} WITH (FORCE)")


def read(pg, dbname, before=()):
    """The rows of the query, of kind, name, what reading and what writing leaves behind."""
    with pg.connect(dbname=dbname) as db:
        for statement in before:
            db.execute(statement)
        cursor = db.execute(QUERY)
        while cursor.nextset():
            pass
        return {(kind, name): (read or "", write or "") for kind, name, read, write in cursor}


def expected():
    """By the comments of the sample."""
    found = {}
    for line in SAMPLE.read_text().splitlines():
        if line.startswith("--: "):
            kind, name, traces = line[4:].split(" ", 2)
            reading, writing = traces.split("/")
            found[kind, name] = (reading.strip(), writing.strip())
    return found


def test_the_catalog_says_what_leaves_a_trace(pg, sample):
    found = read(pg, sample)
    assert found.pop(("e", "utf8")) == ("", "")
    customs = {name for kind, name in found if kind == "s"}
    assert customs == {"a.b", "app.local", "app.tenant", "app.tenant_id", "app.x", "app.y"}
    found = {key: value for key, value in found.items() if key[0] != "s"}
    assert found == expected()


def test_the_query_works_under_any_settings(pg, sample):
    hostile = [
        "CREATE SCHEMA evil",
        "CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
        "CREATE TABLE evil.pg_proc (oid oid)",
        "CREATE TEMP TABLE pg_class (oid oid)",
        "SET search_path TO evil, pg_temp, pg_catalog",
        "SET standard_conforming_strings TO off",
        "SET client_encoding TO 'LATIN1'",
        "SET default_transaction_isolation TO serializable",
        "SET default_transaction_read_only TO on",
        # The first words of the query are still under it, on a machine that is busy.
        "SET statement_timeout TO '5s'",
    ]
    found = read(pg, sample, hostile)
    assert found["f", "hidden"] == ("SETTING", "")
    # The rows are in UTF8, which the driver does not know.
    assert found["r", "Gr\u00fcn".encode().decode("latin-1")] == ("", "")
    assert found["r", "pg_proc"] == ("", "")
    with pg.connect(dbname=sample) as db:
        before = db.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'").fetchall()
        db.execute(QUERY)
        after = db.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'").fetchall()
    assert before == after, "the query leaves no trace itself"


def test_the_query_has_time_of_its_own(pg):
    before, _, _ = QUERY.partition("WITH RECURSIVE")
    with pg.connect() as db:
        db.execute("SET statement_timeout TO '5s'; SET lock_timeout TO '5min'")
        cursor = db.execute(before + "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        while cursor.nextset():
            pass
        assert cursor.fetchone() == ("20s", "1s")


def test_every_volatile_function_was_looked_at(pg):
    volatile = {name for (name,) in pg.rows(
        "SELECT DISTINCT proname FROM pg_proc"
        " WHERE provolatile = 'v' AND pronamespace = 'pg_catalog'::regnamespace")}
    assert volatile & CLEAN_FUNCTIONS <= REVIEWED


def test_no_clean_function_is_another_name_of_a_suspect_one(pg):
    pairs = pg.rows(
        "SELECT p.proname, q.proname FROM pg_proc p JOIN pg_proc q ON p.prosrc = q.prosrc"
        " WHERE p.proname <> q.proname AND p.pronamespace = 'pg_catalog'::regnamespace"
        " AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'internal')")
    aliases = [pair for pair in pairs if pair[0] in CLEAN_FUNCTIONS and pair[1] not in CLEAN_FUNCTIONS
               and _can_be_called(pg, pair[1])]
    assert aliases == []


def _can_be_called(pg, name):
    return pg.value("SELECT bool_and(NOT 'internal'::regtype = ANY (proargtypes) AND prorettype NOT IN"
                    " ('trigger'::regtype, 'internal'::regtype)) FROM pg_proc WHERE proname = %s", name)


def test_functions_in_sql_of_the_server_call_clean_ones_only(pg):
    """Those of pg_catalog that are written in SQL, by the words of their source."""
    sources = pg.rows(
        "SELECT p.proname, concat(p.prosrc, pg_get_function_sqlbody(p.oid)) FROM pg_proc p JOIN pg_language l"
        " ON l.oid = p.prolang WHERE l.lanname = 'sql' AND p.oid < 16384")
    words = ("set_config", "setseed", "nextval", "advisory", "_to_xml", "listening", "prepared")
    suspect = [name for name, source in sources for word in words if word in source]
    assert suspect == []


def test_views_of_the_server_read_clean_functions_only(pg):
    views = pg.rows(
        "SELECT c.relname, p.proname FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class"
        " JOIN pg_proc p ON r.ev_action::text ~ (':funcid ' || p.oid || ' ')"
        " WHERE c.oid < 16384 AND r.ev_type = '1' AND p.provolatile = 'v'")
    unclean = {(view, function) for view, function in views
               if function not in CLEAN_FUNCTIONS and view in CLEAN_RELATIONS}
    assert unclean == set()
