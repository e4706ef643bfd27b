"""Passwords that an LDAP server checks: auth_type = ldap, and the method in the HBA file."""

import os
import shutil
import socket
import threading

import psycopg
import pytest

import ldapserver
import machine
from ldapserver import BASE, MANAGER, MANAGER_PASSWORD
from rawclient import LoginRefused

# Roles that PostgreSQL admits from the pooler. Only the LDAP server has their passwords.
USERS = {"trusty": "ldap secret", "replicator": "other secret"}
ADMIN = "host pgbouncer admin all md5\n"

pytestmark = pytest.mark.skipif(not os.path.exists(ldapserver.SLAPD), reason="slapd is not installed")


@pytest.fixture(scope="module")
def ldap(run_folder):
    folder = run_folder / "ldap"
    folder.mkdir()
    server = ldapserver.LdapServer(folder, USERS)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(new_pooler, newest_pg, ldap, monkeypatch):
    """Starts a pooler with a rule of these options, `{port}` and `{tls}` being the server's."""

    def start(options, conf="", **settings):
        pooler = new_pooler(newest_pg, users={"admin": "admin password"}, auth_type="hba")

        def write(name, text):
            (pooler.folder / name).write_text(text)
            machine.give_to_service(pooler.folder / name)
            return str(pooler.folder / name)

        def rule(options):
            options = options.format(port=ldap.port, tls=ldap.tls_port)
            return write("hba.conf", ADMIN + f"host all all all ldap {options}\n")

        monkeypatch.setenv("LDAPCONF", write("ldap.conf", conf))
        pooler.settings["auth_hba_file"] = rule(options)
        pooler.settings |= settings
        pooler.rule = lambda options: (rule(options), pooler.console("RELOAD"))
        return pooler.start()

    return start


MODES = [
    'ldapserver=127.0.0.1 ldapport={port} ldapprefix="uid=" ldapsuffix=",' + BASE + '"',
    f'ldapserver=127.0.0.1 ldapport={{port}} ldapbasedn="{BASE}"',
    f'ldapserver=127.0.0.1 "ldapport"={{port}} ldapbasedn="{BASE}" ,ldapsearchattribute=cn',
    f'ldapserver=127.0.0.1 ldapport={{port}} ldapbasedn="{BASE}" ldapsearchfilter="mail=$username@example.net"',
    f'ldapserver=127.0.0.1 ldapport={{port}} ldapbasedn="{BASE}" ldapbinddn="{MANAGER}" '
    f'ldapbindpasswd="{MANAGER_PASSWORD}"',
    f'ldapurl="ldap://127.0.0.1:{{port}}/{BASE}?uid?sub"',
    f'ldapurl="ldap://127.0.0.1:{{port}}/{BASE}??sub?(|(uid=$username)(mail=$username))"',
    # The first server does not exist.
    f'ldapserver="127.0.0.9 127.0.0.1" ldapport={{port}} ldapbasedn="{BASE}"',
]


@pytest.mark.shows("auth_hba_file")
def test_simple_and_search(start):
    pooler = start(MODES[0])
    for options in MODES:
        pooler.rule(options)
        client = pooler.raw(user="trusty", password="ldap secret")
        assert client.methods == [3, 0] and client.value("SELECT current_user") == "trusty"
        error = pooler.login_error(password="wrong")
        assert (error.words, error.sqlstate) == ("LDAP authentication failed", "28P01")
        # LDAP accepts a bind without a password. pgweir refuses such logins.
        assert pooler.login_error(password="").words == "LDAP authentication failed"
    assert pooler.login_error(user="nobody", password="x").words == "LDAP authentication failed"
    assert pooler.login_error(user="*", password="ldap secret").words == "LDAP authentication failed"
    pooler.expect_log("could not search LDAP for filter")
    assert "secret" not in pooler.log()


@pytest.mark.shows("auth_hba_file")
def test_tls(start, ldap):
    ldaps = f'ldapurl="ldaps://127.0.0.1:{{tls}}/{BASE}?uid?sub"'
    starttls = f'ldapserver=127.0.0.1 ldapport={{port}} ldapbasedn="{BASE}" ldaptls=1'
    pooler = start(ldaps, conf=f"# of the test\nTLS_CACERT {ldap.folder}/cert.pem\n")
    for options in (ldaps, starttls):
        pooler.rule(options)
        pooler.raw(user="trusty", password="ldap secret").close()
        assert pooler.login_error(password="wrong").words == "LDAP authentication failed"
    # Both at once.
    pooler.rule(f"{ldaps} ldaptls=1")
    assert pooler.login_error(password="ldap secret").words == "LDAP authentication failed"
    # Each with the wrong port.
    for options in (ldaps.replace("{tls}", "{port}"), starttls.replace("{port}", "{tls}")):
        pooler.rule(options)
        assert pooler.login_error(password="ldap secret").words == "LDAP authentication failed"
    pooler.rule(ldaps)
    (pooler.folder / "ldap.conf").write_text("TLS_REQCERT demand\nTLS_CACERT /etc/hostname\n")
    assert pooler.login_error(password="ldap secret").words == "LDAP authentication failed"
    (pooler.folder / "ldap.conf").write_text("TLS_REQCERT never\n")
    pooler.raw(user="trusty", password="ldap secret").close()


@pytest.mark.shows("auth_ldap_options", "auth_type")
def test_all_users_by_this_method(start_pooler, newest_pg, ldap):
    options = f'ldapurl="ldap://127.0.0.1:{ldap.port}/{BASE}?uid?sub"'
    pooler = start_pooler(newest_pg, users={"admin": ""}, auth_type="ldap", auth_ldap_options=options,
                          admin_users="trusty")
    pooler.raw(user="trusty", password="ldap secret").close()
    assert pooler.login_error(password="wrong").words == "LDAP authentication failed"
    console = dict(user="trusty", dbname="pgbouncer", password="ldap secret")
    with pooler.connect(**console) as db:
        with pytest.raises(psycopg.Error, match="SET failed") as error:
            db.execute("SET auth_ldap_options = 'ldapserver=h ldapbindpasswd=hush'")
        assert "ldapbasedn, ldapprefix and ldapsuffix must be set" in error.value.diag.message_detail
        db.execute(f"SET auth_ldap_options = 'ldapserver=127.0.0.1 ldapport={ldap.port} ldapprefix=uid= "
                   f'ldapsuffix=",{BASE}"\'')
    assert "hush" not in pooler.log()
    pooler.raw(user="replicator", password="other secret").close()


@pytest.mark.shows("auth_threads", "auth_queue")
def test_a_server_that_does_not_answer(start):
    """One login waits for the LDAP server, another in the queue, and a third is refused. A client that disconnects
    makes room.
    """
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        options = f"ldapserver=127.0.0.1 ldapport={deaf.getsockname()[1]} ldapprefix=uid="
        pooler = start(options, auth_threads=1, auth_queue=1, client_login_timeout=2)
        machine.wait_until(lambda: [name for name in _threads(pooler) if name.startswith("auth")] == ["auth-0"])
        outcomes = []

        def log_in():
            try:
                pooler.raw(user="trusty", password="x")
            except LoginRefused as error:
                outcomes.append(error.words)

        def inquiries():
            [row] = [row for row in pooler.console("SHOW INTERNAL") if row["task"] == "inquiry"]
            return tuple(row[name] for name in ("active", "waiting", "active_max", "waiting_max", "refused"))

        assert inquiries() == (0, 0, 1, 1, 0)
        logins = [threading.Thread(target=log_in) for _ in range(4)]
        for login, at_work in zip(logins, [(1, 0), (1, 1), (1, 1), (1, 1)]):
            login.start()
            machine.wait_until(lambda: inquiries()[:2] == at_work or outcomes, what="one is asked about, one waits")
        for login in logins:
            login.join()
        assert sorted(outcomes)[-1] == "too many logins at once", outcomes
        assert outcomes.count("client_login_timeout") >= 1, outcomes
        assert inquiries()[4] == outcomes.count("too many logins at once")


def _threads(pooler):
    folder = f"/proc/{pooler.pid}/task"
    return [open(f"{folder}/{thread}/comm").read().strip() for thread in os.listdir(folder)]
