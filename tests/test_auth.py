"""Which clients may log in, how they authenticate, and how the pooler authenticates to PostgreSQL."""

import asyncio
import base64
import re
import signal
import statistics
import subprocess
import time

import asyncpg
import psycopg
import pytest

import cluster as clusters
import machine
import rawclient as wire
import scram
from rawclient import LoginRefused

TRUST, PLAIN, MD5, SASL, SASL_CONTINUE, SASL_FINAL = 0, 3, 5, 10, 11, 12
SCRAM = [SASL, SASL_CONTINUE, SASL_FINAL, TRUST]
PASSWORD = clusters.ROLES["scrammed"][0]
# PostgreSQL admits this role without a password, so that only the client's login is tested.
USERS = {
    "plain": PASSWORD,
    "md5": scram.md5_secret(PASSWORD, "trusty"),
    "scram": scram.secret(PASSWORD),
}


def one_user(kind):
    return {"trusty": USERS[kind]}


# -- clients log in

# auth_type, kind of secret in the userlist, authentication requests that the client sees
LOGINS = [
    ("trust", "plain", [TRUST]),
    ("plain", "plain", [PLAIN, TRUST]),
    ("plain", "md5", [PLAIN, TRUST]),
    ("plain", "scram", [PLAIN, TRUST]),
    ("md5", "plain", [MD5, TRUST]),
    ("md5", "md5", [MD5, TRUST]),
    ("md5", "scram", SCRAM),
    ("scram-sha-256", "plain", SCRAM),
    ("scram-sha-256", "scram", SCRAM),
]


@pytest.mark.shows("auth_type", "auth_file")
@pytest.mark.parametrize(("auth_type", "kind", "methods"), LOGINS)
def test_login(start_pooler, newest_pg, auth_type, kind, methods):
    pooler = start_pooler(newest_pg, users=one_user(kind), auth_type=auth_type)
    client = pooler.raw(password=PASSWORD)
    assert client.methods == methods
    assert client.value("SELECT current_user") == "trusty"
    if auth_type != "trust":
        with pytest.raises(LoginRefused) as refused:
            pooler.raw(password="wrong")
        assert refused.value.words in REFUSALS[methods[0]]


REFUSALS = {
    PLAIN: ("password authentication failed", 'password authentication failed for user "trusty"'),
    MD5: ("password authentication failed", 'password authentication failed for user "trusty"'),
    SASL: ("SASL authentication failed",),
}


@pytest.mark.pgweir_only("says 08P01 for a wrong password")
@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_wrong_password_has_its_sqlstate(start_pooler, newest_pg, auth_type):
    pooler = start_pooler(newest_pg, users=one_user("plain"), auth_type=auth_type)
    client = pooler.socket()
    with pytest.raises(LoginRefused) as refused:
        client.login("trusty", "app", "wrong")
    assert refused.value.sqlstate == "28P01"
    assert refused.value.message.fields["S"] == "FATAL"
    assert client.rest() == []


def test_md5_secret_cannot_serve_scram(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, users=one_user("md5"), auth_type="scram-sha-256")
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(password=PASSWORD)
    assert refused.value.words == "SASL authentication failed"


def test_any_lets_everybody_in_as_the_forced_user(start_pooler, newest_pg):
    where = f"host={newest_pg.host} port={newest_pg.port}"
    databases = {"app": f"{where} user=trusty", "open": where}
    pooler = start_pooler(newest_pg, databases=databases, auth_type="any")
    assert pooler.raw("whoever", password=None).value("SELECT current_user") == "trusty"
    with pytest.raises(LoginRefused) as refused:
        pooler.raw("whoever", "open")
    assert refused.value.sqlstate == "08P01"


def test_trust_wants_a_known_user(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, auth_type="trust")
    with pytest.raises(LoginRefused, match='"trust" authentication failed'):
        pooler.raw("stranger")


@pytest.mark.parametrize("auth_type", [
    "plain", "md5",
    pytest.param("scram-sha-256", marks=pytest.mark.pgweir_only("an empty password opens")),
])
def test_empty_secret_never_opens(start_pooler, newest_pg, auth_type):
    pooler = start_pooler(newest_pg, users={"trusty": ""}, auth_type=auth_type)
    with pytest.raises(LoginRefused):
        pooler.raw(password="")


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
@pytest.mark.guards("unknown_users")
def test_unknown_user_is_refused_like_a_wrong_password(start_pooler, newest_pg, auth_type):
    """A client that guesses names gets the same requests and errors as with a wrong password, in the same order."""
    users = one_user("plain") | {"scrammed": PASSWORD}
    pooler = start_pooler(newest_pg, users=users, auth_type=auth_type)
    seen = []
    for user in ("trusty", "stranger"):
        client = pooler.socket()
        with pytest.raises(LoginRefused) as refused:
            client.login(user, "app", "wrong")
        words = refused.value.words.replace(user, "USER")
        seen.append((client.methods, refused.value.sqlstate, words))
    assert seen[0] == seen[1]


def test_unknown_user_gets_the_same_salt_each_time(start_pooler, newest_pg):
    """A salt that changes with each try would show that the user does not exist."""
    pooler = start_pooler(newest_pg, users=one_user("scram"), auth_type="scram-sha-256")
    for user in ("trusty", "stranger"):
        first, second = (server_first(pooler, user) for _ in range(2))
        assert first["s"] == second["s"]
        assert first["r"] != second["r"]
        assert len(base64.b64decode(first["s"])) == 16
        assert first["i"] == "4096"
    assert server_first(pooler, "stranger")["s"] != server_first(pooler, "stranger2")["s"]


@pytest.mark.pgweir_only("forgets its salts")
@pytest.mark.shows("auth_key_file")
@pytest.mark.guards("unknown_users")
def test_salts_of_unknown_users_survive_a_restart(start_pooler, newest_pg):
    """Otherwise the salts before and after a restart would show which users exist."""
    pooler = start_pooler(newest_pg, users=one_user("scram"), auth_type="scram-sha-256", auth_key_file="salts.key")
    before = server_first(pooler, "stranger")["s"]
    path = pooler.folder / "salts.key"
    assert path.stat().st_mode & 0o777 == 0o600
    pooler.signal(signal.SIGTERM)
    pooler.wait_end()
    pooler.spawn().listening()
    assert server_first(pooler, "stranger")["s"] == before
    pooler.signal(signal.SIGTERM)
    pooler.wait_end()
    path.write_text("no key")
    pooler.spawn()
    pooler.wait_end()
    pooler.expect_log("auth_key_file salts.key: it must hold 64 hexadecimal digits")


# auth_type, kind of the known user's secret
REFUSED = [("plain", "plain"), ("plain", "md5"), ("plain", "scram"), ("md5", "plain"), ("md5", "md5"),
           ("md5", "scram"), ("scram-sha-256", "scram")]


@pytest.mark.alone
@pytest.mark.pgweir_only("tells the users apart by time")
@pytest.mark.parametrize(("auth_type", "kind"), REFUSED)
@pytest.mark.guards("unknown_users")
def test_the_time_of_a_refusal_does_not_show_the_user(start_pooler, newest_pg, auth_type, kind):
    """A refusal takes the same time whether the user exists or not. The test compares the medians of many refusals."""
    pooler = start_pooler(newest_pg, users=one_user(kind), auth_type=auth_type, log_connections=0,
                          log_disconnections=0, log_pooler_errors=0, workers=1)
    took = {"trusty": [], "stranger": []}
    for _ in range(61):
        for user, times in took.items():
            before = time.perf_counter()
            with pytest.raises(LoginRefused):
                pooler.raw(user, password="wrong")
            times.append(time.perf_counter() - before)
    known, unknown = (statistics.median(times) for times in took.values())
    assert abs(known - unknown) < max(0.25 * min(known, unknown), 0.0002), (known, unknown)


def server_first(pooler, user):
    """Returns the parts of the server's first SCRAM message."""
    client = pooler.socket()
    client.send(wire.startup(user=user, database="app"))
    client.expect("R")
    first = scram.ClientExchange("x").first()
    client.send(wire.frame("p", wire.text("SCRAM-SHA-256") + wire.u32(len(first)) + first))
    (message,) = client.expect("R")
    return dict(part.split("=", 1) for part in message.body[4:].decode().split(","))


@pytest.mark.parametrize("first", [
    b"p=tls-server-end-point,,n=,r=abcdef",  # channel binding that was not offered
    b"n,a=somebody,n=,r=abcdef",
    b"n,,m=ext,n=,r=abcdef",
    b"x,,n=,r=abcdef",
    pytest.param(b"n,,r=abcdef", marks=pytest.mark.pgweir_only("neither answers nor closes")),
    b"n,,n=",
    pytest.param(b"n,,n=,r=", marks=pytest.mark.pgweir_only("accepts an empty nonce")),
    b"",
    b"\xff\xfe",
    b"n,,n=,r=ab\x01c",
])
@pytest.mark.guards("scram_parsing")
def test_bad_scram_is_refused(start_pooler, newest_pg, first):
    pooler = start_pooler(newest_pg, users=one_user("plain"), auth_type="scram-sha-256")
    client = pooler.socket()
    client.send(wire.startup(user="trusty", database="app"))
    client.expect("R")
    client.send(wire.frame("p", wire.text("SCRAM-SHA-256") + wire.u32(len(first)) + first))
    assert client.error_and_close().sqlstate in ("08P01", "28P01", "0A000", "28000")


def test_scram_mechanisms(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, users=one_user("plain"), auth_type="scram-sha-256")
    client = pooler.socket()
    client.send(wire.startup(user="trusty", database="app"))
    (offer,) = client.expect("R")
    assert offer.body == wire.u32(SASL) + b"SCRAM-SHA-256\0\0"
    client.send(wire.frame("p", wire.text("SCRAM-SHA-256-PLUS") + wire.u32(0)))
    assert client.error_and_close().sqlstate in ("08P01", "28P01")


# A proof of the right length but another value, a nonce that is not the server's, ...
@pytest.mark.parametrize("spoil", [
    lambda final: re.sub(rb"p=.*", b"p=" + base64.b64encode(bytes(32)), final),
    lambda final: re.sub(rb"p=.*", b"p=AAAA", final),
    lambda final: re.sub(rb"p=.*", b"p=!!", final),
    lambda final: re.sub(rb",p=.*", b"", final),
    lambda final: re.sub(rb"r=[^,]*", b"r=other", final),
    lambda final: re.sub(rb"c=[^,]*", b"c=eSws", final),
    lambda final: b"",
])
@pytest.mark.guards("scram_parsing")
def test_bad_scram_proof_is_refused(start_pooler, newest_pg, spoil):
    pooler = start_pooler(newest_pg, users=one_user("plain"), auth_type="scram-sha-256")
    client = pooler.socket()
    client.send(wire.startup(user="trusty", database="app"))
    client.expect("R")
    exchange = scram.ClientExchange(PASSWORD)
    first = exchange.first()
    client.send(wire.frame("p", wire.text("SCRAM-SHA-256") + wire.u32(len(first)) + first))
    (answer,) = client.expect("R")
    client.send(wire.frame("p", spoil(exchange.final(answer.body[4:]))))
    assert client.error_and_close().sqlstate in ("08P01", "28P01")


@pytest.mark.parametrize("auth_type", ["trust", "plain", "md5", "scram-sha-256"])
def test_no_such_database(start_pooler, newest_pg, auth_type):
    pooler = start_pooler(newest_pg, users=one_user("plain"), auth_type=auth_type)
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(dbname="nowhere", password=PASSWORD)
    assert refused.value.sqlstate in ("08P01", "3D000")  # PgBouncer's, PostgreSQL's
    assert refused.value.words == "no such database: nowhere"


def test_database_that_postgresql_does_not_know(start_pooler, pg):
    databases = {"*": f"host={pg.host} port={pg.port}"}
    pooler = start_pooler(pg, databases=databases)
    with pytest.raises(LoginRefused, match='database "nowhere" does not exist') as refused:
        pooler.raw(dbname="nowhere")
    assert refused.value.sqlstate in ("08P01", "3D000")  # PgBouncer's, PostgreSQL's
    assert pooler.raw(dbname="other").value("SELECT current_database()") == "other"


@pytest.mark.pgweir_only("looks again")
def test_a_database_that_is_created_after_a_failed_login(start_pooler, newest_pg):
    databases = {"*": f"host={newest_pg.host} port={newest_pg.port}"}
    pooler = start_pooler(newest_pg, databases=databases, server_login_retry=3600)
    for _ in range(2):
        with pytest.raises(LoginRefused, match='^3D000: database "nowhere" does not exist$'):
            pooler.raw(dbname="nowhere")
    newest_pg.run("CREATE DATABASE nowhere")
    try:
        with pooler.raw(dbname="nowhere") as client:
            assert client.value("SELECT current_database()") == "nowhere"
    finally:
        newest_pg.run("DROP DATABASE nowhere WITH (FORCE)")


def test_database_defaults_to_the_user(start_pooler, newest_pg):
    databases = {"trusty": f"host={newest_pg.host} port={newest_pg.port} dbname=app"}
    pooler = start_pooler(newest_pg, databases=databases)
    assert pooler.raw("trusty", None).value("SELECT current_database()") == "app"


@pytest.mark.pgweir_only("holds passwords up to 2047 bytes")
@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_longest_password(start_pooler, newest_pg, auth_type):
    longest = "p" * 65535
    pooler = start_pooler(newest_pg, users={"trusty": longest}, auth_type=auth_type)
    assert pooler.raw(password=longest).value("SELECT 1") == "1"
    with pytest.raises(LoginRefused):
        pooler.raw(password=longest[:-1] + "x")
    if auth_type == "plain":
        with pytest.raises(LoginRefused, match="password authentication failed"):
            pooler.raw(password=longest + "p")


def test_passwords_of_any_characters(start_pooler, newest_pg):
    words = {"a b": "with space", 'quo"te': 'pass"word', "ümläut": "пароль ＡＢ", "semi;": "#;'\\"}
    users = words | {"comment": "x"}
    databases = {"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app user=trusty"}
    for auth_type in ("md5", "scram-sha-256"):
        pooler = start_pooler(newest_pg, databases=databases, users=users, auth_type=auth_type)
        for user, password in words.items():
            with pooler.connect(user, password=password) as db:
                assert db.execute("SELECT current_user").fetchone() == ("trusty",)


def test_userlist_with_comments_and_odd_lines(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg, auth_type="plain")
    pooler.write_files()
    pooler.write_userlist(
        '; comment\n\n"trusty" "first" and the rest is not read\r\n# another\n\t"spaced"   "pw"\n')
    pooler.spawn().listening()
    assert pooler.raw(password="first").value("SELECT 1") == "1"


def test_secrets_stay_out_of_the_log(start_pooler, newest_pg):
    """The log has no secret after a success or a failure, at the highest verbosity."""
    users = {"trusty": "sesame-open", "scrammed": PASSWORD}
    pooler = start_pooler(newest_pg, users=users, auth_type="md5", verbose=3)
    pooler.raw(password="sesame-open").value("SELECT 1")
    pooler.raw("scrammed", password=PASSWORD).value("SELECT 1")
    with pytest.raises(LoginRefused):
        pooler.raw(password="guess-sesame")
    client = pooler.raw(password="sesame-open", DateStyle="SQL")
    client.query("SET app.token = 'sesame-token'")
    other = pooler.raw(password="sesame-open")
    for one in (other, client):
        one.query("SELECT 1")
    for word in ("sesame", PASSWORD):
        assert word not in pooler.log()


@pytest.mark.pgweir_only("shows all that it sets")
def test_settings_that_are_not_tracked_are_logged_by_name(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, verbose=3, default_pool_size=1)
    client, other = pooler.raw(), pooler.raw()
    client.query("SET app.token = 'sesame-token'; SET DateStyle = 'SQL'")
    for one in (other, client):
        one.query("SELECT 1")
    pooler.expect_log("set_config('app.token',****,false)")
    assert re.search(r"varcache_apply: .*'datestyle','SQL", pooler.log(), re.IGNORECASE)
    assert "sesame" not in pooler.log()


@pytest.mark.pgweir_only("has no LDAP in some builds")
@pytest.mark.guards("secrets_in_show")
def test_secrets_stay_out_of_the_console(start_pooler, newest_pg):
    """The console shows neither the new value nor the part of it that is wrong."""
    pooler = start_pooler(newest_pg, auth_type="trust", verbose=3)
    console = pooler.raw("admin", "pgbouncer")
    good = "ldapserver=h ldapbasedn=b ldapbindpasswd=sesame"
    answers = [console.query(f"SET auth_ldap_options = '{good}'"), console.query("SHOW CONFIG"),
               console.query("SET auth_type = ldap")]
    assert "SET auth_ldap_options=****" in repr(answers[0])
    for wrong in ("open", "open=sesame"):
        answers.append(console.query(f"SET auth_ldap_options = '{good} {wrong}'"))
        assert "option 4 of LDAP" in repr(answers[-1])
    assert "sesame" not in repr(answers) and "sesame" not in pooler.log()


def test_core_dumps_are_not_made(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    limits = open(f"/proc/{pooler.pid}/limits").read()
    soft, hard = re.search(r"Max core file size +(\S+) +(\S+)", limits).groups()
    assert int(soft) <= 1 and int(hard) <= 1


# -- the pooler logs in to PostgreSQL


@pytest.mark.parametrize("role", clusters.ROLES)
@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_server_login(start_pooler, pg, role, over):
    host = pg.host if over == "tcp" else pg.socket_dir
    databases = {"app": f"host={host} port={pg.port}"}
    pooler = start_pooler(pg, databases=databases, auth_type="trust")
    assert pooler.raw(role).value("SELECT current_user") == role


def test_server_login_with_md5_secret(start_pooler, pg):
    users = {"hashed": scram.md5_secret(clusters.ROLES["hashed"][0], "hashed")}
    pooler = start_pooler(pg, users=users, auth_type="md5")
    client = pooler.raw("hashed", password=clusters.ROLES["hashed"][0])
    assert client.value("SELECT current_user") == "hashed"


@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256"])
def test_scram_pass_through(start_pooler, pg, auth_type):
    """The userlist has only PostgreSQL's own secret: pgweir logs in with the client's SCRAM key."""
    users = {"scrammed": pg.secret_of("scrammed")}
    pooler = start_pooler(pg, users=users, auth_type=auth_type)
    with pooler.connect("scrammed", password=PASSWORD) as db:
        assert db.execute("SELECT current_user").fetchone() == ("scrammed",)
    pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scrammed'")
    machine.wait_until(lambda: not pg.backends("usename = 'scrammed'"), what="the server is gone")
    with pooler.connect("scrammed", password=PASSWORD) as db:  # by a new server connection
        assert db.execute("SELECT current_user").fetchone() == ("scrammed",)


def test_a_wrong_server_password_is_reported(start_pooler, pg):
    """The client receives PostgreSQL's error at once."""
    pooler = start_pooler(pg, users={"scrammed": "not this one"}, auth_type="trust")
    with pytest.raises(LoginRefused, match='password authentication failed for user "scrammed"'):
        pooler.raw("scrammed")


def test_a_missing_server_password_is_reported(start_pooler, pg):
    pooler = start_pooler(pg, users={"scrammed": ""}, auth_type="trust")
    with pytest.raises(LoginRefused):
        pooler.raw("scrammed", timeout=10)


@pytest.mark.shows("database.user", "database.password")
def test_user_and_password_of_the_database_line(start_pooler, pg):
    where = f"host={pg.host} port={pg.port} dbname=app"
    word = PASSWORD.replace("'", "''")
    databases = {"app": f"{where} user=scrammed password='{word}'"}
    pooler = start_pooler(pg, databases=databases)
    assert pooler.raw("trusty").value("SELECT current_user") == "scrammed"


# -- real clients


def test_psql(start_pooler, pg):
    users = {"scrammed": pg.secret_of("scrammed")}
    pooler = start_pooler(pg, users=users, auth_type="md5")
    command = [pg.binaries.path("psql"), "-X", "-A", "-t", "-h", pooler.host, "-p", str(pooler.port),
               "-U", "scrammed", "-d", "app", "-c", "SELECT current_user"]
    for password, code in ((PASSWORD, 0), ("wrong", 2)):
        done = subprocess.run(command, env={"PGPASSWORD": password}, capture_output=True, text=True,
                              timeout=30)
        assert done.returncode == code
        assert ("scrammed\n" in done.stdout) == (code == 0)


@pytest.mark.parametrize("auth_type", ["trust", "plain", "md5", "scram-sha-256"])
def test_drivers(start_pooler, pg, auth_type):
    pooler = start_pooler(pg, auth_type=auth_type)
    with pooler.connect("hashed", password=clusters.ROLES["hashed"][0]) as db:
        assert db.execute("SELECT current_user").fetchone() == ("hashed",)

    async def ask():
        db = await asyncpg.connect(host=pooler.host, port=pooler.port, user="hashed",
                                   password=clusters.ROLES["hashed"][0], database="app",
                                   statement_cache_size=0)
        try:
            return await db.fetchval("SELECT current_user")
        finally:
            await db.close()

    assert asyncio.run(ask()) == "hashed"
    if auth_type != "trust":
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            pooler.connect("hashed", password="wrong")


# -- usual configurations

VERBATIM = """
;; database name = connect string
;;
;; connect string params:
;;   dbname= host= port= user= password= auth_user=
[databases]

; fallback connect string
* = host=localhost port=5432

[pgbouncer]
;;;
;;; Administrative settings
;;;
listen_addr = 127.0.0.1
listen_port = 6432
unix_socket_dir =

; any, trust, plain, md5, cert, hba, pam
auth_type = md5
auth_file = /etc/pgbouncer/userlist.txt

# comma-separated list of users who are allowed to change settings
admin_users = my_db_user

;;  Pooler personality questions
pool_mode = transaction
;max_client_conn = 100
max_client_conn = 5000
"""


@pytest.mark.parametrize("kind", ["md5", "scram"])
def test_files_of_a_pgbouncer_installation(new_pooler, pg, kind):
    """A usual configuration. Only the ports and the path of the userlist are replaced."""
    make = {"md5": scram.md5_secret, "scram": lambda word, _: scram.secret(word)}[kind]
    pg.run("DROP ROLE IF EXISTS my_db_user")
    pg.run("CREATE ROLE my_db_user LOGIN")
    pooler = new_pooler(pg, unix_socket_dir="")
    replaced = VERBATIM.replace("= 6432", f"= {pooler.port}").replace("5432", str(pg.port))
    pooler.write_ini(replaced.replace("/etc/pgbouncer/userlist.txt", str(pooler.userlist_path)))
    pooler.write_userlist(f'"my_db_user" "{make("my pw", "my_db_user")}"\n')
    pooler.spawn().listening()
    with pooler.connect("my_db_user", "app", password="my pw") as db:
        assert db.execute("SELECT current_user, current_database()").fetchone() == ("my_db_user", "app")
    pooler.users = {"my_db_user": "my pw"}
    assert pooler.console("SHOW POOLS", user="my_db_user")


# -- addresses


def test_ipv6(start_pooler, pg):
    if not clusters.has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    databases = {"app": f"host=::1 port={pg.port}"}
    pooler = start_pooler(pg, databases=databases, listen_addr="::1, 127.0.0.1")
    for host in ("::1", "127.0.0.1"):
        with pooler.connect(host=host) as db:
            address = db.execute("SELECT inet_server_addr()::text").fetchone()[0]
        assert address == "::1/128"


@pytest.mark.shows("listen_addr")
def test_listen_on_every_address(start_pooler, pg):
    pooler = start_pooler(pg, listen_addr="*")
    assert pooler.raw().value("SELECT 1") == "1"
    if clusters.has_ipv6():
        with pooler.connect(host="::1") as db:
            assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.shows("unix_socket_dir")
def test_unix_socket_only(new_pooler, pg):
    pooler = new_pooler(pg, listen_addr=None, unix_socket_mode="0700")
    pooler.write_files()
    pooler.spawn()

    def answers():
        try:
            return pooler.connect(host=str(pooler.folder))
        except psycopg.OperationalError:
            assert pooler.alive(), pooler.log_tail()
            return None

    with machine.wait_until(answers, 20, "the Unix socket answers") as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(OSError):
        pooler.socket()
    assert pooler.folder.joinpath(f".s.PGSQL.{pooler.port}").stat().st_mode & 0o777 == 0o700
