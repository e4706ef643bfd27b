"""State that a server may keep besides session state: plans, compiled functions, effects of login triggers. Also
catalogs that pgweir has read of another database, and messages in any order, whose answers must not reach another
client.
"""

import itertools
import random

import pytest

import cluster as clusters
import machine
import rawclient as wire
from leaks import line as lines
from leaks import stage as stages
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from pooler import default_users
from rawclient import COPY_DONE, FLUSH, SYNC, bind, close, copy_data, copy_fail, describe, execute, function_call, parse, query
from scraping import scrape
from test_certificates import catalog, opaque, read

pytestmark = pytest.mark.pgweir_only("it carries no session state in transaction mode")
CELLS = [(clusters.VERSIONS[0], False), (clusters.VERSIONS[-1], False), (clusters.VERSIONS[-1], True)]
_numbers = itertools.count(1)
RUN = bind(name="s") + execute() + SYNC
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


@pytest.fixture(params=CELLS, ids=lambda cell: f"pg{cell[0]}-{'assisted' if cell[1] else 'plain'}")
def cluster(request, shared_clusters):
    version, assist = request.param
    return shared_clusters(version, assist=assist)


@pytest.fixture
def stage(cluster, start_pooler):
    """Makes a database with these objects, and a pooler with one server for it."""
    made = []

    def make(*setups, warms=True, **settings):
        name = f"apart{next(_numbers)}"
        made.append(name)
        stages.make_database(cluster, name, setups)
        where = f"host={cluster.host} port={cluster.port} dbname={name}"
        usual = {"default_pool_size": 1, "workers": 1, "query_wait_timeout": 3, "catalog_check_interval": 3600,
                 "users": default_users() | {clusters.SUPERUSER: ""}}
        pooler = start_pooler(cluster, databases={name: where, f"{name}_session": f"{where} pool_mode=session"},
                              **(usual | settings))
        one = stages.Stage(cluster, pooler, name)
        if warms:
            one.warm()
        return one

    yield make
    for name in made:
        cluster.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def by_statement(client, text):
    client.send(parse(text, "s") + SYNC).until_ready()
    return wire.value(client.send(RUN).until_ready())


# -- constants in plans


def test_a_result_that_depends_on_a_format_is_not_kept_for_others(stage):
    """A function that is declared IMMUTABLE may read a parameter without naming it."""
    one = stage("CREATE FUNCTION f() RETURNS text IMMUTABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN to_tsvector('running')::text; END $k$;")
    with one.pooled() as client, one.pooled() as other:
        client.query("SET default_text_search_config = 'simple'")
        assert by_statement(client, "SELECT f()") == "'running':1"
        assert by_statement(other, "SELECT f()") == "'run':1"


@pytest.mark.parametrize("view", ["SELECT current_setting('app.tenant', true) AS a", "SELECT a FROM shows",
                                  "SELECT tells() AS a"], ids=["itself", "by a view", "by a function"])
def test_a_view_that_a_function_reads_is_made_later(stage, view):
    """The function is declared IMMUTABLE, but with the view its result depends on the session."""
    one = stage("SET check_function_bodies = off; CREATE FUNCTION f() RETURNS text IMMUTABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN (SELECT a FROM later LIMIT 1); END $k$;"
                " CREATE FUNCTION tells() RETURNS text STABLE LANGUAGE plpgsql AS"
                " $k$ BEGIN RETURN current_setting('app.tenant', true); END $k$;"
                " CREATE VIEW shows AS SELECT current_setting('app.tenant', true) AS a; GRANT SELECT ON shows TO PUBLIC;")
    with one.pooled() as client, one.pooled() as other:
        client.query(f"CREATE VIEW later AS {view}")
        other.query("SELECT 1")  # after the DDL, the server is reset, and forgets its plans
        for who, tenant in ((client, "A"), (other, "B")):
            who.query(f"SET app.tenant = '{tenant}'")
            assert by_statement(who, "SELECT f()") == tenant


# -- the state that only superusers can leave, by code that pgweir does not read

HIDDEN = {
    "a backup": ("SELECT pg_backup_' || 'start(''x'', true)", "SELECT pg_backup_start('y', true)"),
    "an origin": ("SELECT pg_replication_origin_' || 'session_setup(''apart'')",
                  "SELECT pg_replication_origin_session_is_setup()"),
    "a slot": ("SELECT pg_create_' || 'physical_replication_slot(''apart'', true, true)",
               "SELECT count(*) > 0 FROM pg_replication_slots WHERE active_pid = pg_backend_pid()"),
    "a library": ("LO' || 'AD ''auto_explain''", "SELECT current_setting('auto_explain.log_format', true) IS NOT NULL"),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("kind", HIDDEN)
def test_a_superusers_state_goes_with_its_server(stage, kind, leaves):
    says, sees = HIDDEN[kind]
    one = stage("SELECT pg_replication_origin_create('apart') WHERE NOT EXISTS"
                " (SELECT FROM pg_replication_origin WHERE roname = 'apart')")
    user = clusters.SUPERUSER

    def is_seen():
        with one.pooler.raw(user, one.database) as neighbour:
            answer = neighbour.query(sees)
            return bool(wire.errors(answer)) if kind == "a backup" else wire.value(answer) == "t"

    with one.pooler.raw(user, one.database) as client:
        assert not wire.errors(client.query(f"DO $k$ BEGIN EXECUTE '{says}'; END $k$"))
        if leaves:
            client.close()
        assert not is_seen()


def test_a_plain_users_server_stays_after_code_that_is_not_read(stage):
    one = stage("SELECT 1")
    with one.pooled() as client, one.pooled() as neighbour:
        pids = set()
        for _ in range(3):
            client.query("DO $k$ BEGIN EXECUTE 'SELECT set_config(''app.x'', ''A'', false)'; END $k$")
            pids.add(neighbour.value("SELECT pg_backend_pid()"))
        assert len(pids) == 1


# -- state that RESET does not remove

CONFLICT = ("CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE FUNCTION f(a int) RETURNS int LANGUAGE plpgsql AS"
            " $k$ BEGIN RETURN (SELECT a FROM t LIMIT 1); END $k$;"
            " GRANT SET ON PARAMETER plpgsql.variable_conflict TO trusty;")
NAME = "plpgsql.variable_conflict"


@pytest.mark.parametrize("says", [
    (f"SET {NAME} = use_column",), (f"SET {NAME} = 'use_column'",), ("BEGIN", f"SET LOCAL {NAME} = use_column"),
    ("BEGIN", f"SELECT set_config('{NAME}', 'use_column', true)"), ("SELECT g()",), ("SELECT h()",), ()],
    ids=["SET", "SET of a constant", "SET LOCAL", "set_config", "a clause", "a body", "at login"])
def test_functions_that_are_compiled_in_another_way_go_with_their_server(stage, says):
    one = stage(CONFLICT, f"CREATE FUNCTION g() RETURNS int LANGUAGE sql SET {NAME} = use_column AS 'SELECT f(5)';"
                f" CREATE FUNCTION h() RETURNS int LANGUAGE plpgsql AS $k$ BEGIN PERFORM set_config('{NAME}', 'use_column',"
                " true); RETURN f(5); END $k$;")
    login = {} if says else {"options": f"-c {NAME}=use_column"}
    with one.pooled(**login) as client, one.pooled() as other:
        for text in says:
            assert not wire.errors(client.query(text))
        if says not in (("SELECT g()",), ("SELECT h()",)):
            assert client.value("SELECT f(5)") == "1"
        client.query("COMMIT")
        client.close()
        assert [error for error, _ in wire.errors(other.query("SELECT f(5)"))] == ["42702"]


STRINGS = "standard_conforming_strings"
BACKSLASHES = r"CREATE FUNCTION f{n}() RETURNS int LANGUAGE plpgsql AS $k$ BEGIN RETURN length('a\\b'); END $k$;"
# The server never reports the other value.
UNREPORTED = [
    f"BEGIN; SET LOCAL {STRINGS} = off; SELECT f{{n}}(); COMMIT", f"SET {STRINGS} = off; SELECT f{{n}}(); RESET {STRINGS}",
    f"DO $k$ BEGIN SET LOCAL {STRINGS} = off; PERFORM f{{n}}(); END $k$", f"SELECT set_config('{STRINGS}', 'off', true), f{{n}}()",
    f"UPDATE pg_settings SET setting = 'off' WHERE name = '{STRINGS}'; SELECT f{{n}}(); SET {STRINGS} = on",
]
BY_FUNCTIONS = {
    "a clause": f"CREATE FUNCTION g() RETURNS int LANGUAGE plpgsql SET {STRINGS} = off AS 'BEGIN RETURN f0(); END'",
    "a body": f"CREATE FUNCTION g() RETURNS int LANGUAGE plpgsql AS $k$ BEGIN SET LOCAL {STRINGS} = off; RETURN f0(); END $k$",
}


def test_bodies_that_are_read_in_another_way_go_with_their_server(stage):
    """PL/pgSQL keeps a body as it has first read it."""
    one = stage("SET check_function_bodies = off;" + "".join(BACKSLASHES.format(n=n) for n in range(len(UNREPORTED) + 1)))
    pipeline = b"".join(parse(text) + bind() + execute() for text in (f"SET LOCAL {STRINGS} = off", f"SELECT f{len(UNREPORTED)}()"))
    for n, text in enumerate([query(text.format(n=n)) for n, text in enumerate(UNREPORTED)] + [pipeline + SYNC]):
        with one.pooled() as client, one.pooled() as other:
            seen = set(itertools.chain(*wire.rows(client.send(text).until_ready())))
            assert "3" in seen or n == 2, "it is read in another way"
            assert other.value(f"SELECT f{n}()") == "4"


@pytest.mark.parametrize("how", BY_FUNCTIONS)
def test_a_function_that_makes_others_be_read_in_another_way(stage, how):
    one = stage("SET check_function_bodies = off;" + BACKSLASHES.format(n=0) + BY_FUNCTIONS[how])
    with one.pooled() as client, one.pooled() as other:
        assert client.value("SELECT g()") == "3"
        assert other.value("SELECT f0()") == "4"


def test_a_seed_at_login_goes_with_its_server(stage):
    one = stage()
    with one.pooled(options=f"-c seed={lines.SEED}") as client, one.pooled() as other:
        client.query("SELECT 1")
        client.close()
        assert not one._looker.leftover_state(other, [])


# -- login triggers

LEAVES = ("CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $k$ BEGIN"
          " CREATE TEMP TABLE session_data (a text); GRANT ALL ON session_data TO PUBLIC;"
          " PERFORM set_config('app.login', 'yes', false); END $k$;"
          "CREATE EVENT TRIGGER l ON login EXECUTE FUNCTION at_login()")


def test_what_a_login_trigger_leaves_is_one_clients(stage, cluster):
    """Each client finds it as after a login of its own, and nothing that another client has done to it."""
    if cluster.version < 17:
        pytest.skip("PostgreSQL has no login triggers before 17")
    one = stage(LEAVES)
    one.forget()
    for _ in range(2):
        with one.pooled() as client:
            assert client.value("SELECT current_setting('app.login', true)") == "yes"
            assert client.value("SELECT count(*) FROM session_data") == "0"
            assert not wire.errors(client.query("INSERT INTO session_data VALUES ('secret')"))


def test_a_login_before_the_catalog_was_read(stage, cluster):
    """The first server has logged in before pgweir knows of the trigger."""
    if cluster.version < 17:
        pytest.skip("PostgreSQL has no login triggers before 17")
    one = stage(LEAVES, warms=False)
    with one.pooled() as client, one.pooled() as other:
        assert not wire.errors(client.query("INSERT INTO session_data VALUES ('secret')"))
        assert other.value("SELECT count(*) FROM session_data") == "0"


def test_a_login_while_the_trigger_is_made(stage, cluster):
    """A server logs in while the catalog is not known, and another one reads the catalog before the first is lent."""
    if cluster.version < 17:
        pytest.skip("PostgreSQL has no login triggers before 17")
    one = stage(min_pool_size=1)
    name, own = one.database, "SELECT pid FROM pg_stat_activity WHERE datname = %s AND usename = %s"
    with one.pooler.raw(clusters.SUPERUSER, f"{name}_session") as maker, one.pooled() as client, one.pooled() as other:
        assert not wire.errors(maker.query("BEGIN; CREATE FUNCTION unrelated() RETURNS int LANGUAGE sql AS 'SELECT 1'"))
        with cluster.connect(dbname=name) as db:
            db.execute(LEAVES)
        (before,) = one._admin.execute(own, (name, stages.USER)).fetchall()
        one._admin.execute("SELECT pg_terminate_backend(%s, 5000)", before)
        machine.wait_until(lambda: one._admin.execute(own, (name, stages.USER)).fetchall(), 10, "a server logs in")
        assert not wire.errors(maker.query("COMMIT"))
        assert read(one.pooler, name, clusters.SUPERUSER)["state"] == "known"
        assert not wire.errors(client.query("INSERT INTO session_data VALUES ('secret')"))
        assert other.value("SELECT count(*) FROM session_data") == "0"


def test_a_login_trigger_that_leaves_nothing_costs_nothing(stage, cluster):
    """One that only writes to a table: its servers are shared like others."""
    if cluster.version < 17:
        pytest.skip("PostgreSQL has no login triggers before 17")
    one = stage("CREATE TABLE logins (id int GENERATED ALWAYS AS IDENTITY, who text, at timestamptz DEFAULT now());"
                "CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $k$ BEGIN"
                " IF pg_is_in_recovery() THEN RETURN; END IF; INSERT INTO logins (who) VALUES (session_user); END $k$;"
                "CREATE EVENT TRIGGER l ON login EXECUTE FUNCTION at_login()")
    with one.pooled() as client, one.pooled() as other:
        pids = {user.value("SELECT pg_backend_pid()") for user in (client, other, client, other)}
        assert not wire.errors(client.query("DO $$ BEGIN PERFORM set_config('app.x', 'A', false); END $$"))
        pids.add(other.value("SELECT pg_backend_pid()"))
        assert len(pids) == 1


@pytest.mark.parametrize("needed", [False, True], ids=["idle", "needed"])
def test_a_login_trigger_that_refuses_each_login_is_dropped_over_a_direct_connection(stage, cluster, needed):
    """The server of the client that broke it is closed, as after other DDL of a superuser. Clients wait for the repair."""
    if cluster.version < 17:
        pytest.skip("PostgreSQL has no login triggers before 17")
    one = stage("CREATE TABLE logins (who text); CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql AS $k$ BEGIN"
                " INSERT INTO logins VALUES (session_user); END $k$;"
                "CREATE EVENT TRIGGER l ON login EXECUTE FUNCTION at_login()",
                default_pool_size=2, settle_after=0.01, server_login_retry=0.1, query_wait_timeout=10)
    with one.pooler.raw(clusters.SUPERUSER, one.database) as maker, one.pooler.raw(clusters.SUPERUSER, one.database) as other:
        pid = maker.value("SELECT pg_backend_pid()")
        assert not wire.errors(maker.query("DROP TABLE logins"))
        if needed:
            other.send(query("SELECT 'served'"))
            one.pooler.expect_log('relation "logins" does not exist')
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
        machine.wait_until(lambda: one._admin.execute(gone, (pid,)).fetchone()[0], what="the server is closed")
        maker.send(query("SELECT 'served'"))
        with cluster.connect(dbname=one.database, options="-c event_triggers=off") as db:
            db.execute("DROP EVENT TRIGGER l")
        for client in (other, maker) if needed else (maker,):
            assert wire.value(client.until_ready()) == "served"


def test_a_function_is_not_trusted_any_more(stage, cluster):
    """RELOAD makes pgweir read the catalog again."""
    one = stage("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1 FROM pg_advisory_lock(77)'", certified_functions="f")
    with one.pooled() as client, one.pooled() as other:
        client.query("SELECT f()")
        # The extension reports the lock, whatever is trusted.
        assert other.value(LOCKS) == ("1" if cluster.assist is None else "0")
        one.pooler.console("SET certified_functions = ''")
        client.query("SELECT f()")
        assert other.value(LOCKS) == "0"


# -- the identity of a database


@pytest.mark.parametrize("how", ["dropped", "renamed"])
def test_another_database_takes_the_name(stage, cluster, how):
    """Certificates of the old database do not hold for the new one."""
    one = stage()
    name = one.database
    cluster.run(f"CREATE DATABASE {name}_new TEMPLATE template0")
    try:
        with cluster.connect(dbname=f"{name}_new") as db:
            db.execute(stages.DATABASE)
            db.execute("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1 FROM pg_advisory_lock(77)'")
        if how == "dropped":
            cluster.run(f"DROP DATABASE {name} WITH (FORCE)")
        else:
            one._admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))
            cluster.run(f"ALTER DATABASE {name} RENAME TO {name}_old")
        cluster.run(f"ALTER DATABASE {name}_new RENAME TO {name}")
        with one.pooled() as client, one.pooled() as other:
            client.query("SELECT f()")
            assert other.value(LOCKS) == "0"
        assert read(one.pooler, name, stages.USER)["state"] == "known"
        assert opaque(one.pooler, name) == {("function", "f"): ("LOCK|OPAQUE", "NONE")}
    finally:
        for suffix in ("_old", "_new"):
            cluster.run(f"DROP DATABASE IF EXISTS {name}{suffix} WITH (FORCE)")


def test_a_catalog_is_changed_by_rows_in_session_mode(stage):
    one = stage("CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with one.pooled() as client, one.pooled() as other:
        client.query("SELECT g()")
        with one.pooler.raw(clusters.SUPERUSER, f"{one.database}_session") as maker:
            body = "SELECT 1 FROM pg_advisory_lock(77)"
            assert not wire.errors(maker.query(f"UPDATE pg_proc SET prosrc = '{body}' WHERE proname = 'g'"))
        client.query("SELECT g()")
        assert other.value(LOCKS) == "0"


# -- DDL that ends later than it seems

OWNED = "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION f() OWNER TO trusty"
LOCKING = "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1 FROM pg_advisory_lock(77)'"


def locks_left(one):
    with one.pooled() as client, one.pooled() as other:
        client.query("SELECT f()")
        return other.value(LOCKS)


@pytest.mark.parametrize("entry", ["", "_session"])
def test_ddl_is_committed_after_its_connection_was_closed(stage, cluster, entry):
    """PostgreSQL does not notice that pgweir has closed the connection while it runs a statement. A server of any pool
    shows when the process has ended.
    """
    one = stage(OWNED, abandoned_query_timeout=1)
    assert read(one.pooler, one.database, stages.USER)["state"] == "known"
    with one.pooled(one.database + entry) as maker:
        maker.send(query(f"SELECT pg_sleep(2); {LOCKING}"))
        machine.wait_until(lambda: cluster.running("SELECT pg_sleep(2);%"))
    machine.wait_until(lambda: "abandoned query took too long" in one.pooler.log())
    with one.pooled() as client:
        while cluster.running("SELECT pg_sleep(2);%"):
            client.query("SELECT f()")
    assert locks_left(one) == "0"
    assert read(one.pooler, one.database, stages.USER)["state"] == "known"


@pytest.mark.shows("lost_ddl_timeout")
def test_ddl_whose_end_no_server_can_show(start, newest_pg):
    """The other connections lead to the same server, but by another address."""
    by_socket, by_tcp = (f"host={host} port={newest_pg.port} dbname=app" for host in (newest_pg.socket_dir, "127.0.0.1"))
    one = start(databases={"app": by_socket, "other": by_tcp}, workers=1, abandoned_query_timeout=0.1, lost_ddl_timeout=2)
    assert read(one, "other")["state"] == "known"
    with one.raw() as maker:
        maker.send(query("SELECT pg_sleep(60); CREATE FUNCTION never_made() RETURNS int LANGUAGE sql AS 'SELECT 1'"))
        machine.wait_until(lambda: newest_pg.running("SELECT pg_sleep(60);%"))
    machine.wait_until(lambda: scrape(one.http).value("pgweir_lost_ddl") == 1)
    assert catalog(one, "other")["state"] != "known"
    assert read(one, "other")["state"] == "known"
    one.expect_log("could not be asked for 2 seconds (lost_ddl_timeout)")
    metrics = scrape(one.http)
    assert (metrics.value("pgweir_lost_ddl"), metrics.value("pgweir_lost_ddl_given_up_total")) == (0, 1)
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60);%'")


def test_another_process_has_the_pid_of_a_closed_connection(stage, cluster):
    """A changed `pg_stat_activity` shows a later start for the same process, as if another process had its PID."""
    one = stage(OWNED, "CREATE TABLE later (by interval); INSERT INTO later VALUES ('0'); CREATE SEQUENCE searches",
                abandoned_query_timeout=0.2)
    with cluster.connect(dbname=one.database, options="-c allow_system_table_mods=on") as db:
        (view,) = db.execute("SELECT pg_get_viewdef('pg_stat_activity'::regclass)").fetchone()
        began = "s.backend_start + (SELECT by FROM public.later WHERE nextval('public.searches') > 0) AS backend_start"
        db.execute("CREATE OR REPLACE VIEW pg_catalog.pg_stat_activity AS " + view.replace("s.backend_start", began))
    assert read(one.pooler, one.database, stages.USER)["state"] == "known"
    with one.pooled() as maker:
        maker.send(query(f"SELECT pg_sleep(60); {LOCKING}"))
        machine.wait_until(lambda: cluster.running("SELECT pg_sleep(60);%"))
    with one.pooled() as client:
        machine.wait_until(lambda: client.query("SELECT f()")
                           and cluster.value("SELECT is_called FROM searches", dbname=one.database))
        assert catalog(one.pooler, one.database)["state"] != "known"
        cluster.run("UPDATE later SET by = '1s'", dbname=one.database)
    assert read(one.pooler, one.database, stages.USER)["state"] == "known"
    (pid,) = cluster.running("SELECT pg_sleep(60);%")
    cluster.run(f"SELECT pg_terminate_backend({pid})")


def test_ddl_of_an_unnamed_statement_that_is_used_later(stage):
    one = stage(OWNED)
    with one.pooled() as maker:
        maker.send(parse(LOCKING) + SYNC).until_ready()
        assert read(one.pooler, one.database, stages.USER)["state"] == "known"
        assert not wire.errors(maker.send(bind() + execute() + SYNC).until_ready())
        assert locks_left(one) == "0"


# -- messages in any order

ALONE = ["SELECT 'mine'", "COPY plain FROM STDIN", "COPY plain TO STDOUT", "SELECT 1/0", "BEGIN", "COMMIT", "ROLLBACK",
         "SET app.x = 'A'", ""]
PIECES = [message for text in ALONE for message in (query(text), parse(text) + bind() + execute())] + [
    SYNC, SYNC, SYNC, FLUSH, COPY_DONE, copy_fail("no"), copy_data(b"1\tone\n"), copy_data(b"bad"), parse("SELEKT"),
    parse("SELECT 'named'", "s"), bind(name="s") + execute(), close("S", "s"), describe("S", "s"), describe("P"),
    bind(name="nope"), execute(portal="nope"), execute(1), query("SELECT 'a'; COPY plain FROM STDIN; SELECT 'b'"),
    query("SELECT 'a'; SELECT 1/0; SELECT 'b'"), function_call(2078, (b"app.x", b"A", b"\0")), function_call(1, ()),
    query("SET work_mem = '77MB'"), query("DISCARD ALL"), query("LISTEN x"), query("PREPARE p AS SELECT 1"),
    query("DEALLOCATE ALL")]


def wild(client, random_):
    """Sends messages in a senseless order, in parts of any length. Returns whether the client disconnects."""
    raw = b"".join(random_.choices(PIECES, k=random_.randint(2, 9)))
    step = random_.choice((len(raw), random_.randint(1, 40)))
    for at in range(0, len(raw), step):
        client.send(raw[at : at + step])
    leaves = random_.random() < 0.5
    if leaves:
        client.close()
    else:
        client.send(SYNC + random_.choice((b"", COPY_DONE + SYNC)))
    return leaves


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 12))])
def test_answers_reach_no_other_client(stage, seed):
    one = stage()
    random_ = random.Random(seed)
    for number in range(40):
        with one.pooled() as client, one.pooled() as other:
            client.query("SELECT 0")
            leaves = wild(client, random_)
            for part in range(2):
                token = f"{number} {part}"
                try:
                    answer = other.query(f"SELECT '{token}'")
                except wire.Closed:
                    assert not leaves, "the first client may have left a transaction open, but it is gone"
                    break
                assert wire.rows(answer) == [(token,)] and not wire.errors(answer)
            else:
                assert not one._looker.leftover_state(other, ["app.x"])


# -- clients that leave, and cancel requests, at any moment: before a reset, and while it runs

KEPT = [
    "SELECT pg_advisory_lock(7)", "SET work_mem = '77MB'", "SET app.x = 'A'", "SET ROLE leak_role", "CREATE TEMP TABLE t (a int)",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "LISTEN a", "PREPARE p AS SELECT 1", "SELECT setseed(0.42)", "BEGIN", "COMMIT",
    "DO $k$ BEGIN PERFORM set_config('app.x', 'A', false); END $k$", "SELECT pg_sleep(0.01)", "SELECT 1/0", "SAVEPOINT s"]


def seen_by(one, other):
    """Returns the state of other clients that a client sees; nothing if it gets no server in time."""
    try:
        return one._looker.leftover_state(other, ["app.x"])
    except stages.Refused:
        return []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 12))])
def test_no_state_is_left_at_any_moment(stage, seed):
    one = stage(default_pool_size=2)
    random_ = random.Random(seed)
    for number in range(40):
        with one.pooled() as client, one.pooled() as other:
            texts = random_.choices(KEPT, k=random_.randint(1, 5))
            form = random_.choice(("simple", "extended"))
            client.send(b"".join(lines.messages(text, form) for text in texts))
            # Each of these queries takes about as long as a reset, or a part of one.
            for _ in range(random_.randint(0, 4)):
                other.query("SELECT 1")
            for _ in range(random_.randint(0, 2)):
                client.cancel()
            leaves = random_.random() < 0.7
            if leaves:
                client.send(random_.choice((b"", wire.TERMINATE)))
                client.close()
            found = [leftover_state for _ in range(2) for leftover_state in seen_by(one, other)]
            assert not found, (number, texts, form, leaves)
