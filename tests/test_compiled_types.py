"""PL/pgSQL looks up the types in DECLARE at the first call in a session, and keeps them until the session ends. A client
never gets the types of another client's search_path, role or temporary objects.
"""

import pytest

import cluster as clusters
import machine
import rawclient as wire
from rawclient import SYNC, bind, execute, parse

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")

DATABASE = "types"
# The functions return the type that their variable has.
SETUP = """
SET check_function_bodies = off;
CREATE SCHEMA one; CREATE SCHEMA two; CREATE SCHEMA odd;
CREATE SCHEMA types_role; CREATE TABLE types_role.item (a point);
GRANT ALL ON SCHEMA one, two, odd, public, types_role TO public;
CREATE TABLE one.item (a int); CREATE TABLE two.item (a text);
CREATE DOMAIN one.price AS int; CREATE DOMAIN two.price AS text;
CREATE TABLE public.alone (a int);
CREATE FUNCTION public.of_item() RETURNS text LANGUAGE plpgsql AS
  $f$ DECLARE x item.a%TYPE; BEGIN RETURN pg_typeof(x); END $f$;
CREATE FUNCTION public.of_price() RETURNS text LANGUAGE plpgsql AS
  $f$ BEGIN DECLARE x price; BEGIN RETURN pg_typeof(x)::oid::regtype::oid; END; END $f$;
CREATE FUNCTION public.of_alone() RETURNS text LANGUAGE plpgsql AS
  $f$ DECLARE x alone.a%TYPE; y text; BEGIN RETURN pg_typeof(x); END $f$;
CREATE FUNCTION public.of_one() RETURNS text LANGUAGE plpgsql SET search_path = one AS
  $f$ DECLARE x item.a%TYPE; BEGIN RETURN pg_typeof(x); END $f$;
CREATE FUNCTION public.by_one() RETURNS text LANGUAGE plpgsql SET search_path = one, public AS
  $f$ BEGIN RETURN of_item(); END $f$;
CREATE FUNCTION public.by_local() RETURNS text LANGUAGE plpgsql AS
  $f$ BEGIN PERFORM set_config('search_path', 'one, public', true); RETURN of_item(); END $f$;
CREATE FUNCTION public.makes(name text) RETURNS void LANGUAGE plpgsql AS
  $f$ BEGIN EXECUTE format('CREATE TEMP TABLE %I (a point)', name); END $f$;
CREATE FUNCTION public.makes_alone() RETURNS void LANGUAGE plpgsql AS
  $f$ BEGIN CREATE TEMP TABLE alone (a point); END $f$;
CREATE FUNCTION public.makes_other() RETURNS void LANGUAGE plpgsql AS
  $f$ BEGIN CREATE TEMP TABLE other (a point); DROP TABLE other; END $f$;
CREATE TABLE public.fires (a int, b text);
CREATE FUNCTION public.on_insert() RETURNS trigger LANGUAGE plpgsql AS
  $f$ DECLARE x item%ROWTYPE; BEGIN NEW.b := pg_typeof(x.a); RETURN NEW; END $f$;
CREATE TRIGGER t BEFORE INSERT ON public.fires FOR EACH ROW EXECUTE FUNCTION on_insert();
GRANT ALL ON ALL TABLES IN SCHEMA public, one, two TO public;
"""


@pytest.fixture(scope="module")
def database(shared_clusters):
    made = shared_clusters(clusters.VERSIONS[-1])
    made.run("CREATE ROLE types_role; GRANT types_role TO trusty")
    made.run(f"CREATE DATABASE {DATABASE}")
    made.run(SETUP, dbname=DATABASE)
    yield made
    made.run(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    made.run("DROP ROLE types_role")


@pytest.fixture
def weir(database, start_pooler):
    where = f"host={database.host} port={database.port} dbname={DATABASE}"
    pooler = start_pooler(database, databases={DATABASE: where}, workers=1, default_pool_size=1, query_wait_timeout=5)
    with pooler.raw("trusty", DATABASE) as client:
        # A server that becomes free reads the catalog.
        for _ in range(2):
            client.query("SELECT 1")
    return pooler


def client_of(weir, path=None, **login):
    client = weir.raw("trusty", DATABASE, **login)
    if path:
        client.query(f"SET search_path = {path}")
    return client


def closes(weir):
    """The number of servers that were closed because of types."""
    return weir.log().count("closing because: its functions may keep types")


PATHS = {"one": "integer", "two": "text"}


@pytest.mark.parametrize("how", ["SET", "login", "extended"])
def test_each_client_has_the_types_of_its_search_path(weir, how):
    def call(client):
        if how == "extended":
            client.send(parse("SELECT of_item()", "s") + bind(name="s") + execute() + wire.close("S", "s") + SYNC)
            return wire.value(client.until_ready())
        return client.value("SELECT of_item()")

    paths = [f"{path}, public" for path in PATHS]
    clients = [client_of(weir, search_path=path) if how == "login" else client_of(weir, path) for path in paths]
    for _ in range(3):
        assert [call(client) for client in clients] == [*PATHS.values()]
    weir.expect_log("keeps the types of function")
    for client in clients:
        client.close()


# Statements after which another client must not get the types of schema one.
UNDER_ONE = {
    "SET LOCAL": ["BEGIN; SET LOCAL search_path = one, public", "SELECT of_item()", "COMMIT"],
    "set_config": ["BEGIN", "SELECT set_config('search_path', 'one, public', true)", "SELECT of_item()", "COMMIT"],
    "a computed name": ["SELECT set_config('search' || '_path', 'one, public', true), of_item()"],
    "one text": ["SET LOCAL search_path = one, public; SELECT of_item()"],
    "a function that sets it": ["SELECT by_local()"],
    "a function with its own": ["SELECT by_one()"],
    "DO": ["DO $$ BEGIN PERFORM set_config('search' || '_path', 'one, public', true); PERFORM of_item(); END $$"],
    "a failed transaction": ["BEGIN; SET search_path = one, public; SELECT of_item()", "ROLLBACK"],
    "a failed text": ["SET search_path = one, public; SELECT of_item(); SELECT 1/0"],
    "a trigger": ["SET LOCAL search_path = one, public; INSERT INTO fires VALUES (1)"],
    "then DISCARD ALL": ["SET search_path = one, public", "SELECT of_item()", "DISCARD ALL"],
    "pg_settings": ["BEGIN; UPDATE pg_settings SET setting = 'one, public' WHERE name = 'search_path'",
                    "SELECT of_item()", "ROLLBACK"],
    "a new function": ["BEGIN; SET LOCAL search_path = one, public; CREATE FUNCTION new_f() RETURNS text LANGUAGE plpgsql AS "
                       "'DECLARE x item.a%TYPE; BEGIN RETURN pg_typeof(x); END'", "SELECT new_f(), of_item()", "ROLLBACK"],
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("how", UNDER_ONE)
def test_a_search_path_that_pgweir_does_not_know(weir, how, leaves):
    with client_of(weir) as a, client_of(weir, "two, public") as b:
        for text in UNDER_ONE[how]:
            a.query(text)
        if leaves:
            a.close()
        assert b.value("SELECT of_item()") == "text"
        assert b.value("INSERT INTO fires VALUES (2) RETURNING b") == "text"


@pytest.mark.parametrize("how", ["SET LOCAL ROLE types_role; SELECT of_item()", "SET ROLE types_role"])
def test_a_role_has_a_schema_of_its_name(weir, how):
    path = '"$user", two, public'
    with client_of(weir, path) as a, client_of(weir, path) as b:
        for _ in range(2):
            assert not wire.errors(a.query(how))
            if "LOCAL" not in how:
                assert a.value("SELECT of_item()") == "point"
            assert b.value("SELECT of_item()") == "text"


def test_a_function_with_its_own_search_path_costs_nothing(weir):
    with client_of(weir, "one, public") as a, client_of(weir, "two, public") as b:
        pids = set()
        for client in (a, b) * 2:
            assert client.value("SELECT of_one()") == "integer"
            assert client.value("SELECT of_alone()") == "integer"
            pids.add(client.value("SELECT pg_backend_pid()"))
    assert len(pids) == 1 and closes(weir) == 0


def test_clients_of_one_search_path_share_a_server(weir):
    with client_of(weir, "one, public") as a, client_of(weir, "one,public") as b, \
         client_of(weir, search_path="one,public") as c:
        pids = set()
        for client in (a, b, c) * 2:
            assert client.value("SELECT of_item()") == "integer"
            client.query("INSERT INTO fires VALUES (1)")
            pids.add(client.value("SELECT pg_backend_pid()"))
    assert len(pids) == 1 and closes(weir) == 0


def test_servers_for_each_search_path(database, start_pooler):
    """With a server for each search_path, no server is closed."""
    where = f"host={database.host} port={database.port} dbname={DATABASE}"
    weir = start_pooler(database, databases={DATABASE: where}, workers=1, default_pool_size=2)
    with client_of(weir, "one, public") as a, client_of(weir, "two, public") as b:
        for client in (a, b):
            client.query("BEGIN")
        for client in (a, b):
            client.query("SELECT of_item()")
            client.query("COMMIT")
        before = closes(weir)
        for client in (a, b, b, a) * 2:
            client.query("SELECT of_item()")
        assert closes(weir) == before


TEMPORARY = {
    "a table": ["CREATE TEMP TABLE alone (a point)", "SELECT of_alone()"],
    "a quoted name": ['CREATE TABLE pg_temp . "alone" (a point)', "SELECT of_alone()"],
    "INTO": ["SELECT point '(1,1)' AS a INTO TEMP alone", "SELECT of_alone()"],
    "a new name": ["CREATE TEMP TABLE other (a point)", "ALTER TABLE other RENAME TO alone", "SELECT of_alone()"],
    "a view": ["CREATE TEMP VIEW alone AS SELECT point '(1,1)' AS a", "SELECT of_alone()"],
    "dropped again": ["CREATE TEMP TABLE alone (a point); SELECT of_alone(); DROP TABLE alone"],
    "rolled back": ["BEGIN; CREATE TEMP TABLE alone (a point)", "SELECT of_alone()", "ROLLBACK"],
    "dynamic SQL": ["SELECT makes('al' || 'one')", "SELECT of_alone()"],
    "DO": ["DO $$BEGIN EXECUTE 'CREATE TEMP TABLE al' || 'one (a point)'; PERFORM of_alone(); "
           "EXECUTE 'DROP TABLE al' || 'one'; END$$"],
    "a function": ["SELECT makes_alone()", "SELECT of_alone()"],
    "a type": ["SET search_path = pg_temp, public; CREATE TYPE alone AS (a point)", "SELECT of_alone()"],
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("how", TEMPORARY)
def test_a_temporary_object_hides_the_type(weir, how, leaves):
    with client_of(weir) as a, client_of(weir) as b:
        for text in TEMPORARY[how]:
            assert not wire.errors(a.query(text)), text
        if leaves:
            a.close()
        else:
            a.query("DISCARD ALL")
        assert b.value("SELECT of_alone()") == "integer"


def test_a_temporary_object_hides_a_type_of_postgresql(weir):
    with client_of(weir) as a, client_of(weir) as b:
        a.query("CREATE TEMP TABLE text (a point)")
        before = a.value("SELECT of_alone()")
        pid = a.value("SELECT pg_backend_pid()")
        a.close()
        assert b.value("SELECT of_alone()") == before == "integer"
        assert b.value("SELECT pg_backend_pid()") != pid


def test_other_temporary_objects_cost_nothing(weir):
    with client_of(weir) as a, client_of(weir) as b:
        pids = set()
        for client in (a, b) * 2:
            client.query("CREATE TEMP TABLE other (id serial, text text, alone int); SELECT of_alone()")
            client.query("DROP TABLE other; SELECT makes_other(); SELECT of_alone()")
            pids.add(client.value("SELECT pg_backend_pid()"))
    assert len(pids) == 1 and closes(weir) == 0


def test_unclean_ignore(database, start_pooler):
    where = f"host={database.host} port={database.port} dbname={DATABASE}"
    weir = start_pooler(database, databases={DATABASE: where}, workers=1, default_pool_size=1, unclean="ignore")
    with client_of(weir, "one, public") as a, client_of(weir, "two, public") as b:
        assert a.value("SELECT of_item()") == b.value("SELECT of_item()") == "integer"
    assert closes(weir) == 0


def test_a_table_that_makes_the_type_ambiguous(weir, database):
    """DDL makes the type of a function depend on search_path."""
    try:
        with client_of(weir) as a, client_of(weir) as b:
            a.query("BEGIN; CREATE TABLE odd.alone (a point)")
            a.query("SET LOCAL search_path = odd, public; SELECT of_alone()")
            a.query("COMMIT")
            assert b.value("SELECT of_alone()") == "integer"
            machine.wait_until(lambda: a.query("SELECT 1") and a.value("SET search_path = odd, public; SELECT of_alone()") == "point",
                               5, "a server of its own")
            assert b.value("SELECT of_alone()") == "integer"
    finally:
        database.run("DROP TABLE IF EXISTS odd.alone", dbname=DATABASE)


# Texts by which a client alters or replaces the type that a variable in DECLARE has.
ALTERED = {
    "a column": "ALTER TABLE ONLY public.{x} ALTER a TYPE text",
    "a table": "BEGIN; DROP TABLE IF EXISTS none, {x}; CREATE TABLE {x} (a text); COMMIT",
    "a name": "ALTER TABLE {x} RENAME TO {x}_old; ALTER TABLE {x}_new RENAME TO {x}",
    "a schema": "ALTER SCHEMA {x}_s RENAME TO {x}_old; ALTER SCHEMA {x}_new RENAME TO {x}_s",
    "a domain": "DROP DOMAIN {x}_d CASCADE; CREATE DOMAIN {x}_d AS text",
}
OF_ALTERED = """
CREATE TABLE {x} (a int); CREATE TABLE {x}_new (a text); CREATE DOMAIN {x}_d AS int; CREATE SCHEMA {x}_s; CREATE SCHEMA {x}_new;
CREATE TABLE {x}_s.t (a int); CREATE TABLE {x}_new.t (a text); GRANT ALL ON SCHEMA {x}_s, {x}_new TO PUBLIC;
ALTER TABLE {x} OWNER TO trusty; ALTER TABLE {x}_new OWNER TO trusty; ALTER DOMAIN {x}_d OWNER TO trusty;
ALTER SCHEMA {x}_s OWNER TO trusty; ALTER SCHEMA {x}_new OWNER TO trusty;
CREATE FUNCTION of_{x}() RETURNS text LANGUAGE plpgsql AS
  $f$ DECLARE x {x}.a%TYPE; y {x}_s.t.a%TYPE; z {x}_d; BEGIN RETURN concat(pg_typeof(x), pg_typeof(y), pg_typeof(z)::oid); END $f$;
"""


def test_types_that_a_client_alters(database, start_pooler):
    """No server keeps the old type for the next client, whichever entry the DDL has come through."""
    names = [f"altered{number}" for number, _ in enumerate(ALTERED)]
    where = f"host={database.host} port={database.port}"
    database.run("CREATE DATABASE altered")
    database.run("GRANT ALL ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE altered TO trusty;" + "".join(OF_ALTERED.format(x=x) for x in names), dbname="altered")
    try:
        weir = start_pooler(database, workers=1, default_pool_size=2, catalog_check_interval=3600, databases={
            "altered": f"{where} dbname=altered", "altered_session": f"{where} dbname=altered pool_mode=session"})
        for number, (text, x) in enumerate(zip(ALTERED.values(), names)):
            def called():
                """The result on each of the two servers."""
                with weir.raw("trusty", "altered") as one, weir.raw("trusty", "altered") as other:
                    one.query("BEGIN")
                    return [client.value(f"SELECT of_{x}()") for client in (one, other)]

            before = called()
            with weir.raw("trusty", "altered" + "_session" * (number % 2)) as client:
                assert not wire.errors(client.query(text.format(x=x)))
            with database.connect(dbname="altered") as db:
                expected = db.execute(f"SELECT of_{x}()").fetchone()[0]
            assert before[0] != expected and called() == [expected] * 2, text
    finally:
        database.run("DROP DATABASE altered WITH (FORCE)")
