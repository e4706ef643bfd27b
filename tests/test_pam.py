"""Passwords that PAM checks: auth_type = pam, and the method in the HBA file."""

import psycopg
import pytest

import machine
import pamspace
from rawclient import RawClient

# Modules of libpam-modules: one checks users of /etc/passwd, one runs a program.
UNIX = "auth required pam_unix.so nodelay\naccount required pam_unix.so\n"
WORDS = {
    "trusty": "unix secret", "scrammed": "scram password", "admin": "admin secret", "blank": None,
}
# This PAM service accepts the password `swordfish`, except from the user `late`.
PROGRAM = """#!/bin/sh
echo "$PAM_TYPE $PAM_SERVICE $PAM_USER $PAM_RHOST" >>{log}
[ "$PAM_TYPE" = account ] && {{ [ "$PAM_USER" != late ]; exit; }}
[ "$(cat)" = swordfish ]
"""
ADMIN = "host pgbouncer admin all md5\n"

pytestmark = [
    pytest.mark.skipif(pamspace.why_not() is not None, reason=str(pamspace.why_not())),
    pytest.mark.pgweir_only("built without PAM, and knows no options in the HBA file"),
]


@pytest.fixture
def start(new_pooler, newest_pg):
    """Starts a pooler with services of its own; `rules` are lines of the HBA file."""

    def start(rules=None, **settings):
        pooler = new_pooler(newest_pg, **settings)
        program, hba = pooler.folder / "program", pooler.folder / "hba.conf"
        pooler.asked = pooler.folder / "asked.log"
        program.write_text(PROGRAM.format(log=pooler.asked))
        program.chmod(0o755)
        by_program = f"auth required pam_exec.so quiet expose_authtok {program}\naccount required pam_exec.so quiet {program}\n"
        space = pamspace.PamSpace(pooler.folder, {"pgbouncer": UNIX, "program": by_program}, WORDS)

        def write_rules(rules):
            hba.write_text(ADMIN + rules)
            machine.give_to_service(hba)

        pooler.rule = lambda rules: (write_rules(rules), pooler.console("RELOAD"))
        if rules:
            write_rules(rules)
            pooler.settings |= {"auth_type": "hba", "auth_hba_file": str(hba)}
        pooler.start_within = lambda *flags: pooler.spawn(*flags, as_root=True, within=space.command())
        pooler.write_files()
        return pooler.start_within().listening()

    return start


@pytest.mark.shows("auth_type")
def test_all_users_by_this_method(start):
    """auth_file has no users, and the service's file is PgBouncer's."""
    pooler = start(auth_type="pam", users={"scrammed": "an old password"}, auth_file=None, admin_users="admin")
    client = pooler.raw(user="trusty", password="unix secret")
    assert client.methods == [3, 0] and client.value("SELECT current_user") == "trusty"
    error = pooler.login_error(password="wrong")
    assert (error.words, error.sqlstate) == ("PAM authentication failed", "28P01")
    pooler.expect_log("pam_authenticate() failed: Authentication failure")
    # An unknown user; no password; a user who has none; a password above 512 bytes, which PAM takes for an attack.
    for user, password in [("nobody knows", "x"), ("trusty", ""), ("blank", "x"), ("trusty", "x" * 600)]:
        assert pooler.login_error(user, password=password).words == "PAM authentication failed"
    with pooler.connect(user="admin", password="admin secret", dbname="pgbouncer") as db:
        assert db.execute("SHOW VERSION").fetchone()
    with pytest.raises(psycopg.OperationalError, match="PAM authentication failed"):
        pooler.connect(user="admin", password="wrong", dbname="pgbouncer")
    assert "secret" not in pooler.log()


@pytest.mark.shows("auth_type")
def test_servers_get_the_password(start):
    """Servers get the client's password, not the one in auth_file."""
    pooler = start(auth_type="pam", users={"scrammed": "an old password"})
    assert pooler.raw(user="scrammed", password="scram password").value("SELECT current_user") == "scrammed"
    assert pooler.login_error("scrammed", password="an old password").words == "PAM authentication failed"


def test_the_password_moves_in_an_online_restart(start, newest_pg):
    pooler = start(auth_type="pam", users={"scrammed": "an old password"})
    client = pooler.raw(user="scrammed", password="scram password")
    old = pooler.process
    pooler.start_within("-R")
    assert old.wait(30) == 0, pooler.log_tail()
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scrammed'")
    machine.wait_until(lambda: not newest_pg.backends("usename = 'scrammed'"), what="no server is left")
    assert client.value("SELECT current_user") == "scrammed"


@pytest.mark.shows("auth_hba_file")
def test_rules(start):
    pooler = start("local all all pam pamservice=program\nhost all all all pam pamservice=program pam_use_hostname=0\n")
    pooler.raw(user="replicator", password="swordfish").close()
    client = RawClient.unix(pooler.unix_path)
    client.login("replicator", "app", "swordfish")
    # Both stages, and the client's address.
    assert pooler.asked.read_text().splitlines() == [
        "auth program replicator 127.0.0.1", "account program replicator 127.0.0.1",
        "auth program replicator unix", "account program replicator unix",
    ]
    assert pooler.login_error("replicator", password="salmon").words == "PAM authentication failed"
    # The password is right, and the account is locked.
    assert pooler.login_error("late", password="swordfish").words == "PAM authentication failed"
    pooler.expect_log("pam_acct_mgmt() failed")
    # Without a name, the service is PgBouncer's. For a service without a file, PAM uses `other`, which refuses all
    # users.
    pooler.rule("host all all all pam\n")
    pooler.raw(user="trusty", password="unix secret").close()
    pooler.rule("host all all all pam pamservice=nowhere\n")
    assert pooler.login_error("trusty", password="unix secret").words == "PAM authentication failed"
    assert "swordfish" not in pooler.log() and "secret" not in pooler.log()


@pytest.mark.shows("auth_hba_file")
@pytest.mark.parametrize("option, words", [
    ("pam_use_hostname=1", "pam_use_hostname=1 is not supported; expected 0"),
    ("pamservice=../login", '"../login" can\'t be a pamservice: expected the name of a file in /etc/pam.d'),
    ("ldapserver=x", 'PAM has no option "ldapserver"; expected pamservice or pam_use_hostname'),
])
def test_wrong_options(start, option, words):
    """The rules that stood before stay in force."""
    pooler = start("host all all all pam\n")
    with pytest.raises(psycopg.Error, match="RELOAD failed"):
        pooler.rule(f"host all all all pam {option}\n")
    pooler.expect_log(f"hba.conf:2: {words}")
    pooler.raw(user="trusty", password="unix secret").close()
