"""What a client is told must not depend on what another client of its server has done."""

import itertools

import pytest

import cluster as clusters
import rawclient as wire
from leaks import line as lines
from leaks import stage as stages
from leaks.look import Looker

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")
CELLS = [(version, assist) for version in clusters.VERSIONS for assist in (False, True)]
_numbers = itertools.count(1)
RUN = lines.bind(name="s") + lines.execute() + lines.SYNC


@pytest.fixture(params=CELLS, ids=lambda cell: f"pg{cell[0]}-{'assisted' if cell[1] else 'plain'}")
def cell(request, shared_clusters):
    version, assist = request.param
    return shared_clusters(version, assist=assist), assist


@pytest.fixture
def stage(cell, start_pooler):
    """Makes a database with these objects, and a pooler with one server for it."""
    cluster, _ = cell
    made = []

    def make(*setups, **settings):
        users = {**__import__("pooler").default_users(), clusters.SUPERUSER: ""}
        name = f"apart{next(_numbers)}"
        made.append(name)
        stages.make_database(cluster, name, setups)
        where = f"host={cluster.host} port={cluster.port}"
        entries = {name: f"{where} dbname={name}", f"{name}_session": f"{where} dbname={name} pool_mode=session"}
        pooler = start_pooler(cluster, databases=entries, **({"default_pool_size": 1, "workers": 1,
                              "query_wait_timeout": 3, "catalog_check_interval": 3600, "users": users} | settings))
        one = stages.Stage(cluster, pooler, name)
        one.warm()
        return one

    yield make
    for name in made:
        cluster.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def value_of(client, text):
    client.send(lines.parse(text, "s") + lines.SYNC).until_ready()
    return wire.value(client.send(RUN).until_ready())


def test_quiet_view(stage):
    one = stage("SET check_function_bodies = off; CREATE FUNCTION f() RETURNS text IMMUTABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN (SELECT a FROM later LIMIT 1); END $k$;")
    with one.pooled() as client, one.pooled() as other:
        client.query("CREATE VIEW later AS SELECT current_setting('app.tenant', true) AS a")
        for who, tenant in ((client, "A"), (other, "B")):
            who.query(f"SET app.tenant = '{tenant}'")
            assert value_of(who, "SELECT f()") == tenant


@pytest.mark.parametrize("text", ["lastval()", "nextval('q')", "currval('q')"])
def test_immutable_sequence(stage, text):
    one = stage("CREATE SEQUENCE q START 700; GRANT ALL ON SEQUENCE q TO PUBLIC; CREATE FUNCTION f() RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS"
                f" $k$ BEGIN RETURN {text}; END $k$;")
    with one.pooled() as client, one.pooled() as other:
        client.query("SELECT nextval('q')")
        seen = value_of(client, "SELECT f()")
        other.send(lines.parse("SELECT f()", "s") + lines.SYNC).until_ready()
        answer = other.send(RUN).until_ready()
        print(seen, wire.rows(answer), wire.errors(answer))
        assert wire.rows(answer)[:1] != [(seen,)]


def test_immutable_format(stage):
    one = stage("CREATE FUNCTION f() RETURNS text IMMUTABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN to_tsvector('running')::text; END $k$;"
                "CREATE FUNCTION g() RETURNS text IMMUTABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN '\\x41'::bytea::text; END $k$;")
    wrong = []
    with one.pooled() as client, one.pooled() as other:
        for setting, text in (("default_text_search_config = 'simple'", "f"), ("bytea_output = 'escape'", "g")):
            client.query(f"SET {setting}")
            seen = value_of(client, f"SELECT {text}()")
            now = value_of(other, f"SELECT {text}()")
            for who in (client, other):
                who.query("DEALLOCATE ALL")
            if seen == now:
                wrong.append((setting, seen))
    assert not wrong


CONFLICT = ("CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE FUNCTION f(a int) RETURNS int LANGUAGE plpgsql AS"
            " $k$ BEGIN RETURN (SELECT a FROM t LIMIT 1); END $k$; GRANT SET ON PARAMETER plpgsql.variable_conflict TO trusty;")


@pytest.mark.parametrize("how", ["SET", "SET LOCAL", "set_config", "startup", "literal"])
def test_variable_conflict(stage, how):
    one = stage(CONFLICT)
    login = {"options": "-c plpgsql.variable_conflict=use_column"} if how == "startup" else {}
    with one.pooled(**login) as client, one.pooled() as other:
        if how == "SET":
            client.query("SET plpgsql.variable_conflict = use_column")
        elif how == "literal":
            client.query("SET plpgsql.variable_conflict = 'use_column'")
        elif how == "SET LOCAL":
            client.query("BEGIN")
            client.query("SET LOCAL plpgsql.variable_conflict = use_column")
        elif how == "set_config":
            client.query("BEGIN")
            client.query("SELECT set_config('plpgsql.variable_conflict', 'use_column', true)")
        assert client.value("SELECT f(5)") == "1"
        if how in ("SET LOCAL", "set_config"):
            client.query("COMMIT")
        client.close()
        answer = other.query("SELECT f(5)")
        assert wire.errors(answer), wire.rows(answer)


def test_login_trigger(stage, cell):
    cluster, _ = cell
    if cluster.version < 17:
        pytest.skip("no login triggers")
    one = stage("CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $k$ BEGIN"
                " CREATE TEMP TABLE IF NOT EXISTS session_data (a text); GRANT ALL ON session_data TO PUBLIC;"
                " PERFORM pg_advisory_lock_shared(77);"
                " PERFORM set_config('app.login', 'yes', false); END $k$;"
                "CREATE EVENT TRIGGER l ON login EXECUTE FUNCTION at_login()")
    one.forget()
    with one.pooled() as client, one.pooled() as other:
        print(client.query("SELECT 1"))
        print(client.query("INSERT INTO session_data VALUES ('secret')"))
        answer = other.query("SELECT a FROM session_data")
        print(answer)
        assert not wire.rows(answer)


def test_database_anew(stage, cell):
    cluster, _ = cell
    one = stage()
    name = one.database
    for how in ("drop", "rename"):
        with one.pooled() as client:
            client.query("SELECT 1")
        cluster.run("CREATE DATABASE prepared_anew TEMPLATE template0")
        with cluster.connect(dbname="prepared_anew") as db:
            db.execute(stages.DATABASE)
            db.execute("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS"
                       " $k$ BEGIN PERFORM set_config('app.anew', 'A', false); PERFORM pg_advisory_lock(77); RETURN 1; END $k$;")
        if how == "drop":
            cluster.run(f"DROP DATABASE {name} WITH (FORCE)")
        else:
            one._admin.execute("SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE datname = %s", (name,))
            cluster.run(f"ALTER DATABASE {name} RENAME TO {name}_old")
        cluster.run(f"ALTER DATABASE prepared_anew RENAME TO {name}")
        cluster.run(f"ALTER DATABASE {name} OWNER TO {stages.USER}")
        with one.pooled() as client, one.pooled() as other:
            answer = client.query("SELECT f()")
            print(answer)
            client.query("SELECT 1")
            print(one.pooler.console("SHOW CATALOG") if False else "")
            assert other.value("SELECT current_setting('app.' || 'anew', true)") in (None, "")
            assert other.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == "0"
        if how == "rename":
            cluster.run(f"DROP DATABASE {name}_old WITH (FORCE)")


def test_replication_ddl(stage, cell):
    cluster, _ = cell
    cluster.run("ALTER ROLE trusty REPLICATION")
    try:
        one = stage("CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION g() OWNER TO trusty")
        with one.pooled() as client, one.pooled() as other:
            client.query("SELECT g()")
            with one.pooled(replication="database") as maker:
                print(maker.query("CREATE OR REPLACE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1 FROM pg_advisory_lock(77)'"))
            client.query("SELECT g()")
            assert other.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == "0"
    finally:
        cluster.run("ALTER ROLE trusty NOREPLICATION")


@pytest.mark.parametrize("options", ["-c role=leak_role", "-c session_authorization=trusty", "-c work_mem=77MB", "-c seed=0.42"])
def test_startup(stage, options):
    one = stage()
    try:
        client = one.pooled(options=options)
    except wire.LoginRefused as refused:
        print(refused)
        return
    with client, one.pooled() as other:
        print(client.query("SELECT current_user"))
        assert not one._looker.dirt(other, ["app.x"])


def test_session_mode_rows(stage, cell):
    """A superuser in session mode changes a catalog."""
    cluster, _ = cell
    one = stage("CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with one.pooled() as client, one.pooled() as other:
        client.query("SELECT g()")
        with one.pooler.raw(clusters.SUPERUSER, f"{one.database}_session") as maker:
            print(maker.query("UPDATE pg_proc SET prosrc = 'SELECT 1 FROM pg_advisory_lock(77)' WHERE proname = 'g'"))
        client.query("SELECT g()")
        assert other.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == "0"


def test_parse_bind_unfollowed(stage):
    one = stage("CREATE TABLE t (a int); ALTER TABLE t OWNER TO trusty; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
                " $k$ BEGIN PERFORM pg_advisory_lock(77); RETURN NEW; END $k$", max_prepared_statements=0)
    with one.pooled() as client, one.pooled() as maker, one.pooled() as other:
        client.send(lines.parse("INSERT INTO t VALUES (1)", "s") + lines.SYNC).until_ready()
        maker.query("CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
        import time
        for _ in range(3):
            time.sleep(0.3)
            maker.query("SELECT 1")
        print(client.send(RUN).until_ready())
        assert other.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == "0"
