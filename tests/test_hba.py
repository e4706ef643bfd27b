"""auth_type = hba: rules by connection, address, database and user; peer; ident maps; bad files."""

import os
import pwd
import subprocess

import psycopg
import pytest

import machine

USERS = {"trusty": "one", "plainly": "plain password", "scrammed": "scram password",
         "admin": "admin password"}
ADMIN = "host pgbouncer admin all md5\n"


@pytest.fixture
def start(new_pooler, newest_pg):
    """Starts a pooler with these rules (and ident maps); its `rules` and `ident` change them."""

    def start(rules, ident=None, names=None, **settings):
        pooler = new_pooler(newest_pg, users=USERS, auth_type="hba")

        def write(name, text):
            (pooler.folder / name).write_text(text)
            machine.give_to_service(pooler.folder / name)

        pooler.rules = lambda text: write("hba.conf", ADMIN + text)
        pooler.ident = lambda text: write("ident.conf", text)
        pooler.rules(rules)
        pooler.settings["auth_hba_file"] = str(pooler.folder / "hba.conf")
        if ident is not None:
            pooler.ident(ident)
            pooler.settings["auth_ident_file"] = str(pooler.folder / "ident.conf")
        if names is not None:
            write("names", names)
        pooler.users = USERS | settings.pop("users", {})
        pooler.settings |= settings
        return pooler.start()

    return start


@pytest.mark.shows("auth_hba_file", "auth_type")
def test_the_first_matching_rule_has_the_method(start):
    pooler = start("""
        host all trusty 127.0.0.1/32 trust
        host app plainly 127.0.0.0 255.0.0.0 md5   # with a mask of its own
        host other plainly 127.0.0.0/8 password
        host all scrammed 0.0.0.0/0 scram-sha-256
        host app nobody all reject
    """)
    assert pooler.raw(user="trusty").methods == [0]
    assert pooler.raw(user="plainly", password="plain password").methods == [5, 0]
    assert pooler.raw(user="plainly", dbname="other", password="plain password").methods == [3, 0]
    assert pooler.raw(user="scrammed", password="scram password").methods == [10, 11, 12, 0]
    assert pooler.login_error(user="plainly", password="x").words == "password authentication failed"
    assert pooler.login_error(user="nobody").words == "login rejected"
    assert pooler.login_error(user="nobody", dbname="other").words == "no authentication method is found"
    # A rule names the user, but auth_file does not.
    pooler.rules("host all all all trust\n")
    pooler.console("RELOAD")
    assert pooler.login_error(user="nobody").words == '"trust" authentication failed'


@pytest.mark.shows("auth_hba_file")
def test_databases_and_users(start):
    pooler = start(names="plainly\nscrammed, trusty\n", rules="""
        host other @names all trust
        host /^a.p$ /^trust all trust
        host replication all all reject
    """)
    assert pooler.raw(user="trusty", dbname="other").methods == [0]
    assert pooler.raw(user="trusty", dbname="app").methods == [0]
    assert pooler.login_error(user="plainly").words == "no authentication method is found"
    assert pooler.login_error(user="trusty", replication="true").words == "login rejected"
    assert pooler.login_error(user="plainly", replication="database").words == "no authentication method is found"


@pytest.mark.shows("auth_hba_file")
def test_peer(start):
    """The tests run under one account, the pooler's clients under the same or another."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    pooler = start("local all all peer\n", users={me: ""})
    login = ["psql", "-XAtc", "SELECT 1", "-h", str(pooler.folder), "-p", str(pooler.port), "-d"]
    mine = subprocess.run([*login, f"dbname=app user={me}"], capture_output=True, text=True)
    # The login got as far as PostgreSQL, which has no role of this name.
    assert mine.stdout == "1\n" or "does not exist" in mine.stderr
    other = subprocess.run([*login, "dbname=app user=trusty"], capture_output=True, text=True)
    assert "unix socket login rejected" in other.stderr
    pooler.expect_log("closing because: unix socket login rejected")
    unknown = subprocess.run([*login, "dbname=app user=who"], capture_output=True, text=True)
    assert "unix socket login rejected" in unknown.stderr


@pytest.mark.shows("auth_ident_file")
def test_ident_map(start):
    me = pwd.getpwuid(os.geteuid()).pw_name
    pooler = start("local all all peer map=staff\n", ident=f"staff {me} trusty\n",
                   users={"replicator": ""})

    def connect(user):
        return psycopg.connect(host=str(pooler.folder), port=pooler.port, user=user, dbname="app").close()

    connect("trusty")
    with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
        connect("replicator")
    with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
        connect("plainly")
    pooler.expect_log("ident map staff cannot be matched")
    pooler.ident(f"staff /^({me[:2]}).*$ all\n")
    pooler.console("RELOAD")
    connect("replicator")


@pytest.mark.shows("auth_hba_file", "auth_ident_file")
@pytest.mark.pgweir_only("skips lines that it can't understand")
def test_a_bad_file_changes_nothing(start):
    pooler = start("host all trusty all trust\n", ident="m a b\n")
    for rules, words in [
        ("host all all 10.0.0.0/40 md5\n", "hba.conf:2: \"40\" is no mask for this address"),
        ("local all all peer map=n\n", "hba.conf:2: auth_ident_file has no map \"n\""),
        ("host all all all magic\n", "hba.conf:2: expected one of trust, reject"),
    ]:
        pooler.rules(rules)
        with pytest.raises(psycopg.Error) as error:
            pooler.console("RELOAD")
        assert error.value.sqlstate == "F0000"
        assert words in pooler.log()
        assert pooler.raw(user="trusty").methods == [0]
    pooler.rules("host all trusty all reject\n")
    pooler.ident("m a\n")
    with pytest.raises(psycopg.Error):
        pooler.console("RELOAD")
    assert "ident.conf:1: the database user is missing" in pooler.log()
    pooler.ident("m a b\n")
    with pytest.raises(psycopg.Error, match="SET failed") as error:
        pooler.console("SET auth_hba_file = '/nowhere/hba.conf'")
    assert "/nowhere/hba.conf: cannot be read: " in error.value.diag.message_detail
    assert pooler.raw(user="trusty").methods == [0]
    pooler.console("RELOAD")
    assert pooler.login_error(user="trusty").words == "login rejected"


@pytest.mark.shows("auth_hba_file")
def test_console_users_go_by_the_rules_too(start):
    pooler = start("host pgbouncer stats all reject\n", users={"stats": "s"})
    assert pooler.raw(user="admin", dbname="pgbouncer", password="admin password").methods == [5, 0]
    assert pooler.login_error(user="stats", dbname="pgbouncer", password="s").words == "login rejected"
