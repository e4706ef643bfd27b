"""auth_query: users who are not in auth_file are looked up in a database; and roles, for +role in the HBA file."""

import contextlib
import threading
import uuid

import psycopg
import pytest

import machine
import scram
from rawclient import LoginRefused, startup

FILE = {"looker": "", "admin": "admin password", "stats": "stats password"}
QUERY = ("SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END "
         "FROM pg_authid WHERE rolname = $1 AND rolcanlogin")


@pytest.fixture(scope="module")
def pg(start_cluster):
    """A cluster with a user who may read secrets."""
    cluster = start_cluster(18, "lookups")
    with cluster.connect() as db:
        db.execute("CREATE ROLE looker LOGIN SUPERUSER")
    return cluster


@pytest.fixture
def role(pg):
    """Makes roles of the test's own: `role(password, encryption)`."""
    made = []

    def make(password=None, encryption="scram-sha-256", extra=""):
        name = f"r{uuid.uuid4().hex[:12]}"
        with pg.connect() as db:
            db.execute(f"SET password_encryption = '{encryption}'")
            db.execute(f"CREATE ROLE {name} LOGIN {extra}")
            if password:
                db.execute(f"ALTER ROLE {name} PASSWORD '{password}'")
        made.append(name)
        return name

    yield make
    with pg.connect() as db:
        for name in made:
            db.execute(f"DROP OWNED BY {name}")
            db.execute(f"DROP ROLE {name}")


def sql(pg, text, dbname="postgres"):
    with pg.connect(dbname=dbname) as db:
        db.execute(text)


@contextlib.contextmanager
def hba_line(pg, line):
    """Puts a rule at the top of PostgreSQL's pg_hba.conf, until the block ends."""
    lines = pg.data / "pg_hba.conf"
    before = lines.read_text()
    lines.write_text(f"{line}\n{before}")
    sql(pg, "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        lines.write_text(before)
        sql(pg, "SELECT pg_reload_conf()")


def launch(start_pooler, pg, databases=None, **settings):
    where = f"host={pg.host} port={pg.port}"
    databases = {name: f"{where} {extra}" for name, extra in (databases or {"app": "dbname=app"}).items()}
    settings = {"users": FILE, "auth_type": "md5", "auth_user": "looker"} | settings
    return start_pooler(pg, databases=databases, **settings)


@pytest.mark.shows("auth_user", "auth_query")
@pytest.mark.parametrize("encryption", ["md5", "scram-sha-256"])
@pytest.mark.parametrize("auth_type", ["md5", "plain", "trust"])
def test_users_are_looked_up(start_pooler, pg, role, encryption, auth_type):
    user = role("secret", encryption)
    pooler = launch(start_pooler, pg, auth_type=auth_type)
    client = pooler.raw(user=user, password="secret")
    assert client.value("SELECT current_user") == user
    if auth_type != "trust":
        assert "authentication failed" in pooler.login_error(user=user, password="wrong").words
    unknown = {"md5": "SASL", "plain": "password", "trust": '"trust"'}[auth_type]
    assert pooler.login_error(user="nobody", password="secret").words == f"{unknown} authentication failed"


@pytest.mark.shows("auth_user")
def test_the_servers_password_is_the_clients(start_pooler, pg, role):
    """PostgreSQL requests SCRAM, too: pgweir logs in with the client's keys."""
    user = role("secret")
    with hba_line(pg, f"host all {user} all scram-sha-256"):
        pooler = launch(start_pooler, pg, auth_type="scram-sha-256")
        assert pooler.raw(user=user, password="secret").value("SELECT current_user") == user
        # The error does not show whether the user exists.
        assert pooler.login_error(user=user, password="x").words == "SASL authentication failed"
        assert pooler.login_error(user="nobody", password="x").words == "SASL authentication failed"


@pytest.mark.pgweir_only("its online restart has other ways")
def test_the_password_moves_in_an_online_restart(start_pooler, pg, role):
    """The new process logs in to a server for a client that has authenticated to the old process."""
    user = role("secret", "md5")
    with hba_line(pg, f"host all {user} all md5"):
        pooler = launch(start_pooler, pg)
        client = pooler.raw(user=user, password="secret")
        assert client.value("SELECT current_user") == user
        old = pooler.process
        pooler.spawn("-R")
        assert old.wait(30) == 0, pooler.log_tail()
        sql(pg, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'")
        machine.wait_until(lambda: not pg.backends(f"usename = '{user}'"), what="no server is left")
        assert client.value("SELECT current_user") == user


@pytest.mark.shows("auth_query")
@pytest.mark.guards("valid_until")
def test_valid_until_and_null(start_pooler, pg, role):
    user = role("secret")
    pooler = launch(start_pooler, pg)
    pooler.raw(user=user, password="secret").close()
    sql(pg, f"ALTER ROLE {user} VALID UNTIL '1999-01-01'")
    assert pooler.login_error(user=user, password="secret").words == "SASL authentication failed"
    sql(pg, f"ALTER ROLE {user} VALID UNTIL 'infinity'")
    pooler.raw(user=user, password="secret").close()
    sql(pg, f"ALTER ROLE {user} NOLOGIN")
    assert pooler.login_error(user=user, password="secret").words == "SASL authentication failed"
    sql(pg, f"ALTER ROLE {user} LOGIN")


@pytest.mark.shows("auth_dbname", "database.auth_dbname", "database.auth_user", "database.auth_query")
def test_each_database_has_its_own_auth_query(start_pooler, pg, role):
    user = role("secret", "md5")
    table = f"secrets_{user}"
    sql(pg, f"CREATE TABLE {table} AS SELECT '{user}' AS name, '{scram.md5_secret('other', user)}' AS secret", "other")
    sql(pg, f"CREATE TABLE {table} AS SELECT '{user}' AS name, '{scram.md5_secret('app', user)}' AS secret", "app")
    query = f"SELECT name, secret FROM {table} WHERE name = $1"
    pooler = launch(start_pooler, pg, auth_query=query, auth_user=None, databases={
        "app": "dbname=app auth_user=looker",
        "other": "dbname=other auth_user=looker",
        "mixed": "dbname=app auth_user=looker auth_dbname=other",
        "own": f"dbname=app auth_user=looker auth_query='{QUERY.replace(chr(39), chr(39) * 2)}'",
        "none": "dbname=app",
    })
    for database, password in [("app", "app"), ("other", "other"), ("mixed", "other"), ("own", "secret")]:
        pooler.raw(user=user, dbname=database, password=password).close()
        assert pooler.login_error(user=user, dbname=database, password="x").words == "password authentication failed"
    # The login looks the same as with a known user.
    assert pooler.login_error(user=user, dbname="none", password="secret").words == "password authentication failed"
    pooler.console("SET auth_dbname = 'other'")
    pooler.raw(user=user, dbname="app", password="other").close()
    for database in ("app", "other"):
        sql(pg, f"DROP TABLE {table}", database)


@pytest.mark.shows("auth_dbname")
def test_databases_without_auth_query(start_pooler, pg, role):
    user = role("secret")
    pooler = launch(start_pooler, pg, {
        "app": "dbname=app", "lost": "dbname=app auth_dbname=nowhere",
        "console": "dbname=app auth_dbname=pgbouncer", "broken": "dbname=app auth_query='SELECT 1 FROM no_table'",
        "one": "dbname=app auth_query='SELECT $1::text'", "liar": "dbname=app auth_query='SELECT ''looker'', $1'",
    })
    for database, line in [
        ("lost", 'authentication database "nowhere" is not configured'),
        ("console", 'cannot use the reserved "pgbouncer" database as an auth_dbname'),
        ("broken", 'error in auth_query: relation "no_table" does not exist'),
        ("one", "expected 2 columns from auth_query, not 1"),
        ("liar", "auth_query returned another user"),
    ]:
        assert pooler.login_error(user=user, dbname=database, password="secret").words == "bouncer config error"
        pooler.expect_log(line)
    # For a login to the console by auth_query, a database for the query must be configured.
    assert pooler.login_error(user="stats", dbname="nowhere", password="x").words == "password authentication failed"
    pooler.console("SET stats_users = 'stats," + user + "'")
    assert pooler.login_error(user=user, dbname="pgbouncer", password="secret").words == "bouncer config error"
    pooler.console("SET auth_dbname = 'app'")
    pooler.raw(user=user, dbname="pgbouncer", password="secret").close()
    with pytest.raises(psycopg.Error) as error:
        pooler.console("SET auth_dbname = 'pgbouncer'")
    assert 'cannot use the reserved "pgbouncer" database as an auth_dbname' in error.value.diag.message_detail
    pooler.console("DISABLE app")
    assert pooler.login_error(user=user, dbname="broken", password="x").words == 'authentication database "app" is disabled'


@pytest.mark.pgweir_only("looks again")
def test_a_database_that_is_made_after_a_lookup_in_it(start_pooler, pg, role):
    """The client receives PostgreSQL's error for the missing database each time, and each login checks again."""
    user, name = role("secret"), f"d{uuid.uuid4().hex[:12]}"
    pooler = launch(start_pooler, pg, {"*": "user=looker"}, server_login_retry=3600)
    for _ in range(2):
        with pytest.raises(LoginRefused, match=f'^3D000: database "{name}" does not exist$'):
            pooler.raw(user=user, dbname=name, password="secret")
    sql(pg, f"CREATE DATABASE {name}")
    try:
        with pooler.raw(user=user, dbname=name, password="secret") as client:
            assert client.value("SELECT current_database()") == name
    finally:
        sql(pg, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.shows("auth_query")
@pytest.mark.guards("search_path")
def test_clients_have_no_influence_on_the_query(start_pooler, pg, role):
    """Neither a client's startup parameters nor session state that another client has left change the query."""
    user = role("secret", "md5")
    sql(pg, """
        CREATE OR REPLACE FUNCTION public.lookup(n text, OUT name text, OUT secret text) LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('search_path') LIKE '%evil%' OR current_setting('work_mem') = '77kB'
                OR current_user <> 'looker' THEN
                RAISE EXCEPTION 'influenced: %', current_setting('search_path');
            END IF;
            SELECT rolname, rolpassword INTO name, secret FROM pg_authid WHERE rolname = n;
        END $$""", "app")
    pooler = launch(start_pooler, pg, {"app": "dbname=app pool_size=1"}, track_extra_parameters="search_path",
                   auth_query="SELECT * FROM public.lookup($1) WHERE name IS NOT NULL", users=FILE | {"looker": "looks"})
    harmful_startup = {"options": "-c search_path=evil,public -c work_mem=77kB"}
    pooler.raw(user=user, password="secret", **harmful_startup).close()
    # The same pool, whose only server has the settings of the first client.
    other = pooler.raw(user="looker", password="looks", **harmful_startup)
    assert other.value("SHOW search_path") == "evil,public"
    other.query(f"SET ROLE {user}")
    pooler.raw(user=user, password="secret").close()
    assert other.value("SHOW search_path") == "evil,public"
    assert other.value("SELECT current_user") == user
    # The user's name is a parameter of the query.
    assert pooler.login_error(user="x' OR 'a'='a", password="secret").words == "SASL authentication failed"
    assert "influenced" not in pooler.log()


@pytest.mark.shows("auth_cache_ttl", "auth_cache_size")
def test_results_are_cached(start_pooler, pg, role):
    first, second = role("one", "md5"), role("two", "md5")
    sql(pg, "CREATE SEQUENCE asked", "app")
    query = "SELECT usename, passwd FROM (SELECT nextval('asked')) n, pg_shadow WHERE usename = $1"
    pooler = launch(start_pooler, pg, auth_query=query, auth_cache_ttl=3600, auth_cache_size=1)

    def asked():
        with pg.connect(dbname="app") as db:
            return db.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM asked").fetchone()[0]

    for _ in range(3):
        pooler.raw(user=first, password="one").close()
    assert asked() == 1
    [row] = pooler.console("SHOW AUTH_CACHE")
    assert (row["database"], row["auth_user"], row["name"], row["kind"]) == ("app", "looker", first, "md5")
    # With a new password, pgweir runs the query again, and the login succeeds.
    sql(pg, f"ALTER ROLE {first} PASSWORD '{scram.md5_secret('new', first)}'")
    pooler.raw(user=first, password="new").close()
    assert asked() == 2
    assert pooler.login_error(user=first, password="x").words == "password authentication failed"
    assert asked() == 3
    pooler.raw(user=first, password="new").close()
    # The cache has room for one result.
    pooler.raw(user=second, password="two").close()
    pooler.raw(user=first, password="new").close()
    assert asked() == 5
    pooler.console("RELOAD")
    assert pooler.console("SHOW AUTH_CACHE") == []
    pooler.raw(user=first, password="new").close()
    assert asked() == 6
    pooler.console("SET auth_cache_ttl = 0")
    for _ in range(2):
        pooler.raw(user=first, password="new").close()
    assert asked() == 8
    sql(pg, "DROP SEQUENCE asked", "app")


@pytest.mark.shows("auth_cache_ttl", "auth_query")
@pytest.mark.pgweir_only("keeps no answers")
@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256"])
@pytest.mark.guards("valid_until")
def test_a_cached_result_ends_at_valid_until(start_pooler, pg, role, auth_type):
    user = role("secret")
    pooler = launch(start_pooler, pg, auth_type=auth_type, auth_cache_ttl=100_000)

    def log_in():
        pooler.raw(user=user, password="secret").close()
        [row] = pooler.console("SHOW AUTH_CACHE")
        return row["left"]

    def ends(when):
        sql(pg, f"DO $$BEGIN EXECUTE format('ALTER ROLE {user} VALID UNTIL %L', {when}); END$$")
        pooler.console("RELOAD")

    assert 90_000 < log_in() <= 100_000
    ends("'infinity'")
    assert 90_000 < log_in() <= 100_000
    ends("now() + '1 hour'")
    assert 3000 < log_in() <= 3600
    ends("now() + '1 second'")

    def is_refused():
        try:
            pooler.raw(user=user, password="secret").close()
        except LoginRefused:
            return True
        return False

    machine.wait_until(is_refused, what="it is not valid any more")


@pytest.mark.shows("auth_query", "database.auth_query")
@pytest.mark.pgweir_only("wants two columns")
def test_auth_query_may_return_the_end_of_validity(start_pooler, pg, role):
    user = role("secret")
    own = "SELECT rolname, rolpassword, {} FROM pg_authid WHERE rolname = $1"
    pooler = launch(start_pooler, pg, {
        "app": "dbname=app", "over": f"dbname=app auth_query='{own.format(-1)}'",
        "text": f"dbname=app auth_query='{own.format('now()')}'",
    }, auth_query=own.format("77.5"), auth_cache_ttl=1000)
    pooler.raw(user=user, password="secret").close()
    [row] = pooler.console("SHOW AUTH_CACHE")
    assert 0 < row["left"] <= 77
    assert pooler.login_error(user=user, dbname="over", password="secret").words == "SASL authentication failed"
    assert pooler.login_error(user=user, dbname="text", password="secret").words == "bouncer config error"
    pooler.expect_log("the third column of auth_query is the number of seconds that the secret is still valid")


@pytest.mark.shows("auth_cache_ttl")
@pytest.mark.pgweir_only("keeps no answers")
def test_a_cached_result_is_removed_when_scram_fails(start_pooler, pg, role):
    user = role("old")
    pooler = launch(start_pooler, pg, auth_type="scram-sha-256", auth_cache_ttl=1000)
    pooler.raw(user=user, password="old").close()
    sql(pg, f"ALTER ROLE {user} PASSWORD 'new'")
    pooler.raw(user=user, password="old").close()
    assert pooler.login_error(user=user, password="new").words == "SASL authentication failed"
    pooler.raw(user=user, password="new").close()


@pytest.mark.shows("auth_user")
def test_many_lookups_use_few_servers(start_pooler, pg, role):
    users = [role("secret", "md5") for _ in range(5)]
    pooler = launch(start_pooler, pg, {"app": "dbname=app pool_size=2"})
    outcomes = []

    def log_in(user):
        with psycopg.connect(host=pooler.host, port=pooler.port, user=user, password="secret", dbname="app") as db:
            outcomes.append(db.execute("SELECT current_user").fetchone()[0] == user)

    threads = [threading.Thread(target=log_in, args=[user]) for user in users * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * len(threads)
    pool = pooler.pool("app", "looker")
    assert pool["cl_waiting"] == 0 and pool["sv_idle"] + pool["sv_used"] <= 2
    # A client that disconnects before its query is answered leaves nothing behind.
    for _ in range(10):
        client = pooler.socket()
        client.send(startup(user=users[0], database="app"))
        client.close()
    machine.wait_until(lambda: not [c for c in pooler.console("SHOW LISTS") if c["list"] == "login_clients"
                                    and c["items"] > 0], what="no client logs in")
    pooler.raw(user=users[0], password="secret").close()


@pytest.mark.shows("auth_user")
def test_the_server_for_auth_query_cannot_be_reached(start_pooler, pg):
    pooler = launch(start_pooler, pg, {"app": f"dbname=app port={machine.free_port()}"}, client_login_timeout=1)
    with pytest.raises(LoginRefused) as error:
        pooler.raw(user="somebody", password="x")
    assert "client_login_timeout" in error.value.words or "connect failed" in error.value.words


@pytest.mark.shows("auth_hba_file")
@pytest.mark.pgweir_only("has no roles in its HBA file")
def test_members_of_roles(new_pooler, pg, role):
    group, between, member, other = role(), role(), role("m", "md5"), role("o", "md5")
    sql(pg, f"GRANT {group} TO {between}")
    sql(pg, f"GRANT {between} TO {member}")
    pooler = new_pooler(pg, users=FILE, auth_type="hba", auth_user="looker")
    rules = pooler.folder / "hba.conf"
    rules.write_text(f"host app +{group} all md5\nhost pgbouncer admin all md5\nhost all all all reject\n")
    machine.give_to_service(rules)
    pooler.settings["auth_hba_file"] = str(rules)
    pooler.start()
    pooler.raw(user=member, password="m").close()
    assert pooler.login_error(user=member, password="x").words == "password authentication failed"
    assert pooler.login_error(user=other, password="o").words == "login rejected"
    sql(pg, f"REVOKE {between} FROM {member}")
    assert pooler.login_error(user=member, password="m").words == "login rejected"


@pytest.mark.shows("auth_user", "database.auth_user", "auth_hba_file")
@pytest.mark.pgweir_only("has no roles in its HBA file")
def test_rules_about_roles_need_auth_user(new_pooler, pg, role):
    """Such rules are never skipped: a later rule may admit users whom they reject."""
    group = role()
    member = role("m", "md5", f"IN ROLE {group}")
    where = f"host={pg.host} port={pg.port} dbname=app"
    pooler = new_pooler(pg, databases={"app": where, "other": where}, users=FILE | {member: "m"}, auth_type="hba")
    rules = pooler.folder / "hba.conf"
    rules.write_text(f"local all all trust\nhost all +{group} all reject\nhost all all all md5\n")
    machine.give_to_service(rules)
    pooler.settings["auth_hba_file"] = str(rules)
    pooler.write_files()
    assert pooler.spawn().wait_end() == 1
    assert f"{rules}:2: +role and samerole need auth_user" in pooler.log()
    pooler.databases["app"] += " auth_user=looker"
    pooler.start()
    for dbname in ("app", "other", "none"):
        assert pooler.login_error(user=member, password="m", dbname=dbname).words == "login rejected"
    assert pooler.login_error(user="admin", password="admin password", dbname="other").words == "login rejected"
    pooler.expect_log(f'line 2 of auth_hba_file is about members of a role')


@pytest.mark.shows("auth_query")
@pytest.mark.pgweir_only("has no such command")
def test_show_internal_shows_lookups(start_pooler, pg, role):
    """With one server, the query of one login runs, and the next login waits."""
    users = [role("secret", "md5") for _ in range(2)]
    where = f"dbname={pg.value('SELECT current_database()')}"
    pooler = launch(start_pooler, pg, {"app": f"{where} pool_size=1"},
                    auth_query=f"{QUERY} AND pg_advisory_xact_lock_shared(4711) IS NOT NULL")
    with pg.connect() as db:
        db.execute("SELECT pg_advisory_lock(4711)")
        logins = [threading.Thread(target=lambda user=user: pooler.raw(user=user, password="secret").close())
                  for user in users]
        for login in logins:
            login.start()

        def asked():
            rows = [row for row in pooler.console("SHOW INTERNAL") if row["task"] == "auth_query"]
            return [(row["database"], row["user"], row["active"], row["waiting"]) for row in rows]

        machine.wait_until(lambda: asked() == [("app", "looker", 1, 1)], what="one is asked about, one waits")
    for login in logins:
        login.join()
    assert asked() == []
