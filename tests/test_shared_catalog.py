"""One catalog per physical database: DDL through one entry of `[databases]` counts for all entries of this database."""

import machine
import pytest
import rawclient as wire
from test_certificates import catalog, opaque, read

TRIGGER = """
    CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN SET app.kept = 1; RETURN NEW; END$$;
    CREATE TRIGGER keeps BEFORE INSERT ON hit FOR EACH ROW EXECUTE FUNCTION keeps()
"""
TAINTED = {("relation", "hit"): ("NONE", "TEMP|OPAQUE"), ("function", "keeps"): ("TEMP|OPAQUE", "NONE")}


@pytest.fixture
def alias_pooler(start_pooler, newest_pg):
    """`app`, an alias by another name of the host, and an entry in session mode for migrations."""
    at = f"port={newest_pg.port} dbname=app"
    pooler = start_pooler(newest_pg, workers=1, databases={
        "app": f"host=127.0.0.1 {at}",
        "alias": f"host=localhost {at}",
        "other": f"host=127.0.0.1 port={newest_pg.port} dbname=other",
        "migrations": f"host={newest_pg.socket_dir} {at} pool_mode=session",
    }, catalog_check_interval=3600)
    newest_pg.run("CREATE TABLE hit (a int)", dbname="app")
    yield pooler
    newest_pg.run("DROP TABLE hit; DROP FUNCTION IF EXISTS keeps()", dbname="app")


def identity(pooler, entry):
    row = catalog(pooler, entry)
    return row["system_identifier"], row["database_oid"]


def test_entries_of_one_database_have_one_catalog(alias_pooler):
    for entry in ("app", "alias", "other"):
        assert read(alias_pooler, entry)["state"] == "known"
    assert identity(alias_pooler, "app") == identity(alias_pooler, "alias") != identity(alias_pooler, "other")
    with alias_pooler.connect(dbname="alias") as db:
        db.execute(TRIGGER)
        read(alias_pooler, "app")
        assert opaque(alias_pooler, "app") == opaque(alias_pooler, "alias") == TAINTED
    assert opaque(alias_pooler, "other") == {}


@pytest.mark.parametrize("prepared", [False, True])
def test_ddl_in_session_mode(alias_pooler, prepared):
    read(alias_pooler)
    with alias_pooler.connect(dbname="migrations") as db:
        for statement in TRIGGER.split(";\n", 1) if not prepared else []:
            db.execute(statement)
        if prepared:
            function, trigger = TRIGGER.rsplit(";\n", 1)
            db.execute(function, prepare=True)
            db.execute(trigger, prepare=True)
        machine.wait_until(lambda: opaque_after_reading(alias_pooler) == TAINTED, 10, "the trigger is seen")


BY_CODE = """
    CREATE FUNCTION migrates() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $m$ BEGIN EXECUTE $d$ {} $d$; RETURN 1; END $m$
"""


@pytest.mark.parametrize("how", ["query", "prepared", "call", "EXECUTE", "Bind"])
def test_ddl_by_a_function_in_session_mode(alias_pooler, newest_pg, how):
    """The catalog shows that the function may do DDL. So a call of it counts as DDL, even if an earlier transaction has
    prepared the statement with the call.
    """
    newest_pg.run(BY_CODE.format(TRIGGER), dbname="app")
    try:
        read(alias_pooler)
        oid = newest_pg.value("SELECT 'migrates'::regproc::oid::int", dbname="app")
        with alias_pooler.raw(dbname="migrations") as client:
            if how in ("EXECUTE", "Bind"):
                client.query("PREPARE m AS SELECT migrates()")
                read(alias_pooler)
            said = {"query": wire.query("SELECT migrates()"), "call": wire.function_call(oid, ()),
                    "EXECUTE": wire.query("EXECUTE m"), "Bind": wire.run("m") + wire.SYNC,
                    "prepared": wire.parse("SELECT migrates()", "m") + wire.SYNC + wire.run("m") + wire.SYNC}[how]
            assert not wire.errors(client.ask(said))
            machine.wait_until(lambda: TAINTED.items() <= opaque_after_reading(alias_pooler).items(), 10, "the trigger is seen")
    finally:
        newest_pg.run("DROP FUNCTION migrates()", dbname="app")


def opaque_after_reading(alias_pooler):
    read(alias_pooler)
    return opaque(alias_pooler)


def test_every_text_is_opaque_during_ddl(alias_pooler):
    read(alias_pooler)
    for entry in ("alias", "migrations"):
        with alias_pooler.connect(dbname=entry) as db:
            db.execute("BEGIN")
            db.execute("CREATE TYPE unrelated AS (a int)")
            assert catalog(alias_pooler, "app")["state"] == "unknown", entry
            with alias_pooler.connect() as other:
                other.execute("SELECT 1")
            assert catalog(alias_pooler, "app")["state"] == "unknown", "it is of no use to read it now"
            db.execute("ROLLBACK")
        assert read(alias_pooler)["state"] == "known"


def test_commit_prepared(alias_pooler):
    read(alias_pooler)
    with alias_pooler.connect() as db:
        db.execute("BEGIN; " + TRIGGER + "; PREPARE TRANSACTION 'later'")
        try:
            read(alias_pooler)
            assert opaque(alias_pooler) == {}
        finally:
            # If this test fails, later tests would wait for the locks of the prepared transaction.
            db.execute("COMMIT PREPARED 'later'")
    read(alias_pooler)
    assert opaque(alias_pooler) == TAINTED


def test_quiet_ddl_invalidates_no_certificate(alias_pooler):
    read(alias_pooler)
    before = catalog(alias_pooler, "app")["readings"]
    with alias_pooler.connect() as db:
        for text in ("CREATE TABLE quiet (a int PRIMARY KEY, b text DEFAULT upper('x'))",
                     "CREATE INDEX ON quiet (lower(b))", "ALTER TABLE quiet ADD c int",
                     "CREATE VIEW quiet_view AS SELECT * FROM quiet", "COMMENT ON TABLE quiet IS 'x'",
                     "DROP VIEW quiet_view", "DROP TABLE quiet"):
            db.execute("BEGIN")
            db.execute(text)
            assert catalog(alias_pooler, "app")["state"] == "known", text
            db.execute("COMMIT")
            assert catalog(alias_pooler, "app")["state"] == "known", text
    assert int(before) >= 1


def test_code_without_ddl_invalidates_no_certificate(alias_pooler, newest_pg):
    newest_pg.run("CREATE PROCEDURE calls() LANGUAGE plpgsql AS 'BEGIN PERFORM 1; END'", dbname="app")
    try:
        read(alias_pooler)
        before = catalog(alias_pooler, "app")["readings"]
        with alias_pooler.connect() as db:
            for text in ("DO 'BEGIN END'", "CALL calls()", "DO $$ BEGIN INSERT INTO hit VALUES (1); END $$ LANGUAGE plpgsql",
                         "DO LANGUAGE plpgsql 'BEGIN PERFORM set_config(''app.a'', ''x'', false); END'"):
                db.execute("BEGIN")
                db.execute(text)
                assert catalog(alias_pooler, "app")["state"] == "known", text
                db.execute("COMMIT")
                assert catalog(alias_pooler, "app")["state"] == "known", text
        assert catalog(alias_pooler, "app")["readings"] == before
    finally:
        newest_pg.run("DROP PROCEDURE calls", dbname="app")


def test_what_invalidates_certificates_is_shown(alias_pooler, newest_pg):
    newest_pg.run("CREATE FUNCTION dynamic(text) RETURNS void LANGUAGE plpgsql AS"
                  " 'BEGIN EXECUTE format(''SELECT %L'', $1); END'", dbname="app")
    try:
        read(alias_pooler)
        assert catalog(alias_pooler, "app")["reason"] is None
        with alias_pooler.connect() as db:
            for text, says in (("SELECT dynamic('secret')", "code that may do DDL has run: function dynamic: EXECUTE in its body"),
                               ("DO $$ BEGIN PERFORM dynamic('secret'); END $$", "code that may do DDL has run: function dynamic:"),
                               ("CREATE OR REPLACE FUNCTION pg_temp.secret() RETURNS int LANGUAGE sql AS 'SELECT 1'", "a client has sent CREATE FUNCTION"),
                               ("CREATE TYPE secret AS ENUM ('secret')", "a client has sent CREATE TYPE"),
                               ("DO $$ BEGIN EXECUTE 'SELECT 1'; END $$", "a client has sent DO")):
                db.execute("BEGIN")
                db.execute(text)
                row = catalog(alias_pooler, "app")
                assert row["state"] == "unknown" and row["reason"].startswith(says), (text, row)
                assert "secret" not in row["reason"]
                db.execute("ROLLBACK")
                assert read(alias_pooler)["reason"] is None
        logged = [line for line in alias_pooler.log().splitlines() if "function dynamic: EXECUTE" in line]
        assert len(logged) == 1 and "certified_functions" in logged[0]
    finally:
        newest_pg.run("DROP FUNCTION dynamic", dbname="app")


@pytest.mark.parametrize("text", [
    "CREATE TABLE loud (a serial)", "CREATE TABLE loud (a int GENERATED ALWAYS AS IDENTITY)",
    "CREATE FUNCTION loud() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE DOMAIN loud AS int",
    "DO $$BEGIN CREATE TABLE loud (); END$$",
])
def test_other_ddl_invalidates_certificates(alias_pooler, text):
    read(alias_pooler)
    with alias_pooler.connect() as db:
        db.execute("BEGIN")
        db.execute(text)
        assert catalog(alias_pooler, "app")["state"] == "unknown"
        db.execute("ROLLBACK")
    assert read(alias_pooler)["state"] == "known"


def test_long_texts_with_ddl(alias_pooler):
    """The texts arrive in parts, with the DDL in a later one."""
    read(alias_pooler)
    with alias_pooler.connect() as db:
        db.execute("BEGIN")
        db.execute("SELECT '" + 300_000 * "x" + "'; CREATE TYPE late AS (a int)")
        assert catalog(alias_pooler, "app")["state"] == "unknown"
        db.execute("ROLLBACK")
        read(alias_pooler)
        db.execute("BEGIN")
        db.execute("SELECT '" + 300_000 * "x" + "'")
        assert catalog(alias_pooler, "app")["state"] == "known"
        db.execute("COMMIT")


def test_a_server_that_is_lost_ends_its_ddl(alias_pooler, newest_pg):
    read(alias_pooler)
    with alias_pooler.raw() as client:
        client.query("BEGIN; CREATE TYPE gone AS (a int)")
        assert catalog(alias_pooler, "app")["ddl"] == 1
        newest_pg.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%TYPE gone%'"
                       " AND pid <> pg_backend_pid()")
    assert read(alias_pooler)["ddl"] == 0
