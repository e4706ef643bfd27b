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
def weir(start_pooler, newest_pg):
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


def test_entries_of_one_database_have_one_catalog(weir):
    for entry in ("app", "alias", "other"):
        assert read(weir, entry)["state"] == "known"
    assert identity(weir, "app") == identity(weir, "alias") != identity(weir, "other")
    with weir.connect(dbname="alias") as db:
        db.execute(TRIGGER)
        read(weir, "app")
        assert opaque(weir, "app") == opaque(weir, "alias") == TAINTED
    assert opaque(weir, "other") == {}


@pytest.mark.parametrize("prepared", [False, True])
def test_ddl_in_session_mode(weir, prepared):
    read(weir)
    with weir.connect(dbname="migrations") as db:
        for statement in TRIGGER.split(";\n", 1) if not prepared else []:
            db.execute(statement)
        if prepared:
            function, trigger = TRIGGER.rsplit(";\n", 1)
            db.execute(function, prepare=True)
            db.execute(trigger, prepare=True)
        machine.wait_until(lambda: opaque_after_reading(weir) == TAINTED, 10, "the trigger is seen")


BY_CODE = """
    CREATE FUNCTION migrates() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $m$ BEGIN EXECUTE $d$ {} $d$; RETURN 1; END $m$
"""


@pytest.mark.parametrize("how", ["query", "prepared", "call"])
def test_ddl_by_a_function_in_session_mode(weir, newest_pg, how):
    """The catalog shows that the function may do DDL, so its use counts as DDL."""
    newest_pg.run(BY_CODE.format(TRIGGER), dbname="app")
    try:
        read(weir)
        oid = newest_pg.value("SELECT 'migrates'::regproc::oid::int", dbname="app")
        with weir.raw(dbname="migrations") as client:
            said = {"query": wire.query("SELECT migrates()"), "call": wire.function_call(oid, ()),
                    "prepared": wire.parse("SELECT migrates()", "m") + wire.SYNC + wire.run("m") + wire.SYNC}[how]
            assert not wire.errors(client.ask(said))
            machine.wait_until(lambda: TAINTED.items() <= opaque_after_reading(weir).items(), 10, "the trigger is seen")
    finally:
        newest_pg.run("DROP FUNCTION migrates()", dbname="app")


def opaque_after_reading(weir):
    read(weir)
    return opaque(weir)


def test_every_text_is_opaque_during_ddl(weir):
    read(weir)
    for entry in ("alias", "migrations"):
        with weir.connect(dbname=entry) as db:
            db.execute("BEGIN")
            db.execute("CREATE TYPE unrelated AS (a int)")
            assert catalog(weir, "app")["state"] == "unknown", entry
            with weir.connect() as other:
                other.execute("SELECT 1")
            assert catalog(weir, "app")["state"] == "unknown", "it is of no use to read it now"
            db.execute("ROLLBACK")
        assert read(weir)["state"] == "known"


def test_commit_prepared(weir):
    read(weir)
    with weir.connect() as db:
        db.execute("BEGIN; " + TRIGGER + "; PREPARE TRANSACTION 'later'")
        try:
            read(weir)
            assert opaque(weir) == {}
        finally:
            # If this test fails, later tests would wait for the locks of the prepared transaction.
            db.execute("COMMIT PREPARED 'later'")
    read(weir)
    assert opaque(weir) == TAINTED


def test_quiet_ddl_invalidates_no_certificate(weir):
    read(weir)
    before = catalog(weir, "app")["readings"]
    with weir.connect() as db:
        for text in ("CREATE TABLE quiet (a int PRIMARY KEY, b text DEFAULT upper('x'))",
                     "CREATE INDEX ON quiet (lower(b))", "ALTER TABLE quiet ADD c int",
                     "CREATE VIEW quiet_view AS SELECT * FROM quiet", "COMMENT ON TABLE quiet IS 'x'",
                     "DROP VIEW quiet_view", "DROP TABLE quiet"):
            db.execute("BEGIN")
            db.execute(text)
            assert catalog(weir, "app")["state"] == "known", text
            db.execute("COMMIT")
            assert catalog(weir, "app")["state"] == "known", text
    assert int(before) >= 1


@pytest.mark.parametrize("text", [
    "CREATE TABLE loud (a serial)", "CREATE TABLE loud (a int GENERATED ALWAYS AS IDENTITY)",
    "CREATE FUNCTION loud() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE DOMAIN loud AS int",
    "DO $$BEGIN CREATE TABLE loud (); END$$",
])
def test_other_ddl_invalidates_certificates(weir, text):
    read(weir)
    with weir.connect() as db:
        db.execute("BEGIN")
        db.execute(text)
        assert catalog(weir, "app")["state"] == "unknown"
        db.execute("ROLLBACK")
    assert read(weir)["state"] == "known"


def test_long_texts_with_ddl(weir):
    """The texts arrive in parts, with the DDL in a later one."""
    read(weir)
    with weir.connect() as db:
        db.execute("BEGIN")
        db.execute("SELECT '" + 300_000 * "x" + "'; CREATE TYPE late AS (a int)")
        assert catalog(weir, "app")["state"] == "unknown"
        db.execute("ROLLBACK")
        read(weir)
        db.execute("BEGIN")
        db.execute("SELECT '" + 300_000 * "x" + "'")
        assert catalog(weir, "app")["state"] == "known"
        db.execute("COMMIT")


def test_a_server_that_is_lost_ends_its_ddl(weir, newest_pg):
    read(weir)
    with weir.raw() as client:
        client.query("BEGIN; CREATE TYPE gone AS (a int)")
        assert catalog(weir, "app")["ddl"] == 1
        newest_pg.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%TYPE gone%'"
                       " AND pid <> pg_backend_pid()")
    assert read(weir)["ddl"] == 0
