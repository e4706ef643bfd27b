"""A client changes tables and types while other clients of the same servers have prepared statements."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import cluster as clusters
import machine
from rawclient import SYNC, bind, close, describe, errors, execute, extended, kinds, parse, query, rows

TEXT = "SELECT * FROM changing"
TRUSTS = bind(name="S") + execute() + SYNC
STALE = [("0A000", "cached plan must not change result type")]


def prepare(client, name="S", text=TEXT):
    assert kinds(client.ask(parse(text, name) + describe("S", name) + SYNC)) in ("1tTZ", "1tnZ")


@pytest.fixture
def two_server_pooler(start_pooler, newest_pg):
    """Two servers, so that a statement is on one, or on both."""
    pooler = start_pooler(newest_pg, workers=1, default_pool_size=2)
    with pooler.raw() as client:
        client.query("DROP TABLE IF EXISTS changing; CREATE TABLE changing AS SELECT 1 AS a")
    yield pooler
    with pooler.raw() as client:
        client.query("DROP TABLE changing")


def on_both(two_server_pooler, client, message):
    """Returns the answers on both servers."""
    heard = [client.ask(message)]
    with two_server_pooler.raw() as other:
        other.query("BEGIN")
        heard.append(client.ask(message))
        other.query("COMMIT")
    return heard


@pytest.mark.parametrize("first", [
    # A statement that is closed before its description has come, and another one in its place.
    parse("SELECT 1, 2", "gone") + describe("S", "gone") + close("S", "gone") + parse(TEXT, "S") + TRUSTS,
    # Another statement in the unnamed portal, by the time it is described.
    parse(TEXT, "S") + bind(name="S") + parse("SELECT 1, 2") + bind() + describe() + execute() + SYNC,
    # A portal of another statement, whose description comes first.
    parse("SELECT 1, 2", "other") + describe("S", "other") + SYNC + parse(TEXT, "S") + bind(name="other")
    + describe() + execute() + describe("S", "S") + SYNC,
    # A portal of a statement whose description is known already.
    parse("SELECT 1, 2", "other") + bind(name="other") + describe() + execute() + parse(TEXT, "S") + SYNC
    + bind(name="other") + describe() + execute() + bind(name="S") + describe() + execute() + SYNC,
    # A portal with a name.
    parse(TEXT, "S") + SYNC + parse("SELECT 1, 2", "other") + bind(name="other", portal="p") + SYNC
    + bind(name="other", portal="p") + describe("P", "p") + bind(name="S") + describe() + execute() + SYNC,
    # The unnamed statement.
    parse(TEXT, "S") + SYNC + parse("SELECT 1, 2") + describe("S") + describe("S", "S") + SYNC,
], ids=["closed", "bound again", "a portal's", "known", "a named portal's", "the unnamed statement's"])
def test_each_statement_gets_its_own_description(two_server_pooler, first):
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        client.send(first)
        for _ in range(first.count(SYNC)):
            assert errors(client.until_ready()) == []
        assert errors(other.query("CREATE TABLE unrelated (a int); DROP TABLE unrelated")) == []
        for heard in on_both(two_server_pooler, client, TRUSTS):
            assert (errors(heard), rows(heard)) == ([], [("1",)])


@pytest.mark.parametrize("first", [
    bind(name="S") + describe() + bind(name="other", portal="p") + describe("P", "p"),
    bind(name="S") + describe() + describe("S", "of_sql"),
    describe("S", "of_sql") + describe("S", "S"),
], ids=["a portal behind it", "a statement of SQL behind it", "a statement of SQL in front"])
def test_a_description_above_64_kb_belongs_to_its_statement(two_server_pooler, first):
    names = [f"{number:063}" for number in range(1000)]
    wide = "SELECT " + ", ".join(f'1 AS "{name}"' for name in names)
    used = bind(name="S") + describe() + execute() + SYNC
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        assert errors(client.query("PREPARE of_sql AS SELECT 1, 2")) == []
        assert errors(client.ask(parse(wide, "S") + parse("SELECT 1, 2", "other") + SYNC)) == []
        heard = client.ask(first + SYNC)
        assert sorted(len(m.body) > 65536 for m in heard if m.kind == "T") == [False, True]
        assert errors(other.query("CREATE TABLE unrelated (a int); DROP TABLE unrelated")) == []
        for heard in on_both(two_server_pooler, client, used):
            assert (errors(heard), rows(heard)) == ([], [("1",) * len(names)])


@pytest.mark.pgweir_only("it gives rows of columns that the client was not told of")
@pytest.mark.shows("session_state")
def test_a_client_with_an_old_description_gets_the_error(two_server_pooler):
    """The error comes on each server, with the routine name by which drivers recognize it."""
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        prepare(client)
        assert [rows(heard) for heard in on_both(two_server_pooler, client, TRUSTS)] == [[("1",)]] * 2
        assert errors(other.query("ALTER TABLE changing ADD b int DEFAULT 2")) == []
        # The client's own statement is new, and exists on one of the servers.
        prepare(other)
        for heard in on_both(two_server_pooler, client, TRUSTS):
            assert errors(heard) == STALE
            (error,) = [message for message in heard if message.kind == "E"]
            assert error.fields["R"] == "RevalidateCachedQuery"
        assert [rows(heard) for heard in on_both(two_server_pooler, other, TRUSTS)] == [[("1", "2")]] * 2
        client.ask(close("S", "S") + SYNC)
        prepare(client)
        assert [rows(heard) for heard in on_both(two_server_pooler, client, TRUSTS)] == [[("1", "2")]] * 2


def test_an_error_before_a_sync(two_server_pooler):
    """The server skips all messages up to the Sync. pgweir must send the Sync although it does not know the statement's
    columns.
    """
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        prepare(client)
        assert errors(other.query("ALTER TABLE changing ADD b int DEFAULT 2")) == []
        # Another client has the server with the statement.
        other.query("BEGIN")
        heard = client.send(extended("SELECT pg_sleep(0.1), 1/0") + query("SELECT 2") + TRUSTS).until_ready()
        assert kinds(heard).endswith("EZ")
        other.query("COMMIT")


def test_a_server_is_lost_right_after_the_change(two_server_pooler):
    """A client that prepares the same text after the change does not get the outdated statement of another server."""
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        other.query("BEGIN")
        assert errors(client.ask(parse(TEXT, "S") + TRUSTS)) == []
        other.send(query("ALTER TABLE changing ADD b int; COMMIT; SELECT pg_terminate_backend(pg_backend_pid())"))
        other.rest()
    with two_server_pooler.raw() as client:
        heard = client.ask(parse(TEXT, "S") + TRUSTS)
        assert (errors(heard), rows(heard)) == ([], [("1", None)])


@pytest.mark.pgweir_only("it gives rows of columns that the client was not told of")
def test_a_change_that_affects_no_result_columns(two_server_pooler):
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        prepare(client)
        other.query("CREATE TABLE changing_not (a int); DROP TABLE changing_not")
        other.query("ALTER TABLE changing ALTER a SET DEFAULT 5")
        assert [rows(heard) for heard in on_both(two_server_pooler, client, TRUSTS)] == [[("1",)]] * 2


def test_statements_prepared_after_a_change_in_a_transaction(two_server_pooler):
    """A statement that is prepared after the change is new, also if the server has the text already; the same after the
    change is rolled back.
    """
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        prepare(other)
        client.query("BEGIN")
        client.query("ALTER TABLE changing ADD b int DEFAULT 2")
        prepare(client)
        assert rows(client.ask(TRUSTS)) == [("1", "2")]
        client.query("ALTER TABLE changing ADD c int DEFAULT 3")
        prepare(client, "T")
        assert rows(client.ask(bind(name="T") + execute() + SYNC)) == [("1", "2", "3")]
        client.query("ROLLBACK")
        assert rows(other.ask(TRUSTS)) == [("1",)]
        client.query("BEGIN")
        assert errors(client.ask(TRUSTS)) == STALE
        client.query("ROLLBACK")
        prepare(client, "U")
        assert rows(client.ask(bind(name="U") + execute() + SYNC)) == [("1",)]


def test_types_that_are_created_again(two_server_pooler):
    """A client that prepares a statement is not affected by older types."""
    text = "SELECT NULL::changing_type"
    with two_server_pooler.raw() as client:
        for _ in range(3):
            assert errors(client.query("CREATE TYPE changing_type AS (a int)")) == []
            client.query("BEGIN")
            prepare(client, text=text)
            assert errors(client.ask(TRUSTS)) == []
            client.query("COMMIT")
            assert errors(client.query("DROP TYPE changing_type")) == []
            client.ask(close("S", "S") + SYNC)


@pytest.mark.pgweir_only("it knows nothing of SQL's names")
def test_execute_is_described_by_what_it_executes(two_server_pooler):
    """Also if another client's statement of this name on the server differs."""
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        for each, what in ((client, "'one' AS a"), (other, "2 AS b, 3 AS c")):
            each.ask(parse(f"SELECT {what}", "named") + SYNC)
            prepare(each, text="EXECUTE named")
        for _ in range(2):
            assert rows(client.ask(TRUSTS)) == [("one",)]
            assert rows(other.ask(TRUSTS)) == [("2", "3")]
        for each, columns in ((client, 1), (other, 2)):
            (told,) = [m for m in each.ask(describe("S", "S") + SYNC) if m.kind == "T"]
            assert told.body[1] == columns


@pytest.mark.pgweir_only("it carries nothing")
def test_an_unnamed_statement_in_requests_of_its_own(two_server_pooler):
    """One request prepares the unnamed statement, later ones use it, as pgx does in its mode `describe_exec`."""
    text = "SELECT set_config('app.key', $1, false)"
    with two_server_pooler.raw() as client, two_server_pooler.raw() as other:
        assert kinds(client.ask(parse(text) + describe("S") + SYNC)) == "1tTZ"
        for value in ("one", "two"):
            assert rows(client.ask(bind((value,)) + execute() + SYNC)) == [(value,)]
            # On the same server.
            assert other.value("SELECT current_setting('app.key', true)") in (None, "")
        assert client.value("SHOW app.key") == "two"


@pytest.mark.shows("server_idle_timeout")
def test_a_database_that_is_dropped(start_pooler, newest_pg, workers):
    """The clients have left, and the pool's servers do not prevent DROP DATABASE."""
    two_server_pooler = start_pooler(databases={"*": f"host={newest_pg.host} port={newest_pg.port}"}, workers=workers,
                        users={clusters.SUPERUSER: ""})
    with two_server_pooler.connect(clusters.SUPERUSER, "app") as client:
        for name in ("dropped", "renamed"):
            client.execute(f"DROP DATABASE IF EXISTS {name}")
        client.execute("CREATE DATABASE dropped")
        for statement in ("CREATE DATABASE renamed TEMPLATE dropped", "DROP DATABASE renamed",
                          'ALTER DATABASE dropped RENAME TO renamed'):
            with two_server_pooler.connect(clusters.SUPERUSER, "dropped") as short:
                assert short.execute("SELECT 1").fetchone() == (1,)
            client.execute(statement)
        with two_server_pooler.connect(clusters.SUPERUSER, "renamed") as there:
            there.execute("SELECT 1")
            with pytest.raises(psycopg.errors.ObjectInUse):
                client.execute("DROP DATABASE renamed")
        client.execute("DROP DATABASE renamed")


def test_a_database_is_dropped_when_its_last_client_leaves(start_pooler, newest_pg, workers):
    """PostgreSQL's DROP DATABASE waits some seconds for that."""
    two_server_pooler = start_pooler(databases={"*": f"host={newest_pg.host} port={newest_pg.port}"}, workers=workers,
                        users={clusters.SUPERUSER: ""})
    with two_server_pooler.connect(clusters.SUPERUSER, "app") as client:
        client.execute("DROP DATABASE IF EXISTS dropped")
        client.execute("CREATE DATABASE dropped")
        last = two_server_pooler.connect(clusters.SUPERUSER, "dropped")
        last.execute("SELECT 1")
        with ThreadPoolExecutor(1) as drop:
            done = drop.submit(client.execute, "DROP DATABASE dropped")
            machine.wait_until(lambda: newest_pg.backends("query = 'DROP DATABASE dropped' AND state = 'active'"),
                               what="it waits")
            last.close()
            done.result()
