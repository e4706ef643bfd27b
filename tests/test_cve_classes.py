"""The classes of vulnerabilities that poolers have had: each has tests, and docs/security.md lists them.

The other tests with the mark `guards` lie beside what they test. Here are those without such a place, and the check of
the page.
"""

import ast
import re
import struct
from pathlib import Path

import psycopg
import pytest

import fakeserver as fake
import machine
import rawclient as wire
from pooler import ROOT, default_users
from rawclient import LoginRefused

PAGE = ROOT / "docs" / "security.md"
TESTS = Path(__file__).parent


def marked():
    """Returns the tests of each class, as (file, name)."""
    found = {}
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guards":
                    for argument in mark.args:
                        found.setdefault(argument.value, set()).add((path.stem, node.name.removeprefix("test_")))
    return found


def listed():
    """Returns the tests that the page lists for each class."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE.read_text(), re.M)
    tests = {}
    for name, cell in rows:
        tests[name] = set()
        for file, names in re.findall(r"\[(\w+)\]\(\.\./tests/\1\.py\): ([\w, ]+)", cell):
            tests[name] |= {(file, one) for one in names.split(", ")}
    return tests


def test_each_class_has_its_tests():
    on_page = listed()
    assert len(on_page) == 14
    assert on_page == marked()


# -- scram_parsing


def initial(length, rest, mechanism=b"SCRAM-SHA-256\0"):
    return wire.frame("p", mechanism + struct.pack("!I", length) + rest)


@pytest.mark.guards("scram_parsing")
@pytest.mark.parametrize("said", [
    initial(0xFFFFFFFF, b"n,,n=,r=abc"),
    initial(0x7FFFFFFF, b"n,,n=,r=abc"),
    initial(0x80000000, b"n,,n=,r=abc"),
    initial(0xFFFFFFFC, b"n,,n=,r=abc"),
    initial(12, b"n,,n=,r=abc"),
    initial(10, b"n,,n=,r=abc"),
    initial(11, b"n,,n=,r=abc", mechanism=b"SCRAM-SHA-256"),
    wire.frame("p", b"SCRAM-SHA-256\0\0\0"),
    wire.frame("p", b""),
    b"p" + struct.pack("!I", 3),
    b"p" + struct.pack("!I", 0xFFFFFFFF),
], ids=["-1", "largest", "smallest", "wraps", "1 too long", "1 too short", "no end", "half a length", "empty", "length 3",
        "length -1"])
def test_false_lengths_are_refused(start_pooler, newest_pg, said):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256")
    client = pooler.socket()
    client.send(wire.startup(user="scrammed", database="app"))
    client.expect("R")
    client.send(said)
    received = client.rest()
    assert [m.kind for m in received] in (["E"], [])
    assert pooler.raw("scrammed", password=default_users()["scrammed"]).value("SELECT 1") == "1"


# -- errors_without_sqlstate


def bare_error(severity, with_words=True):
    fields = {"S": severity, "V": severity} | ({"M": "something"} if with_words else {})
    return wire.frame("E", b"".join(k.encode() + wire.text(v) for k, v in fields.items()) + b"\0")


@pytest.mark.guards("errors_without_sqlstate")
@pytest.mark.parametrize("with_words", [True, False])
def test_a_login_error_without_sqlstate(start_pooler, start_server, newest_pg, with_words):
    def behave(connection):
        connection.read_startup()
        connection.send(bare_error("FATAL", with_words))

    server = start_server(behave)
    databases = {"bad": server.database, "app": newest_pg.entry()}
    pooler = start_pooler(None, databases=databases, users={"trusty": "password", "admin": "admin password"},
                          server_login_retry=1, query_wait_timeout=4, client_login_timeout=4)
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(dbname="bad")
    assert len(refused.value.sqlstate) == 5
    assert pooler.alive()
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.guards("errors_without_sqlstate")
@pytest.mark.parametrize("severity", ["ERROR", "FATAL"])
def test_an_error_without_sqlstate(start_pooler, start_server, newest_pg, severity):
    """In answer to a client's query, and to one of pgweir's own queries."""
    def behave(connection):
        connection.read_startup()
        connection.send(fake.WELCOME)
        for _ in range(20):
            connection.read()
            connection.send(bare_error(severity) + (fake.READY if severity == "ERROR" else b""))
            if severity == "FATAL":
                return connection.close()
        return None

    server = start_server(behave)
    databases = {"bad": server.database, "app": newest_pg.entry()}
    pooler = start_pooler(None, databases=databases, users={"trusty": "password", "admin": "admin password"},
                          server_login_retry=1, query_wait_timeout=4, client_login_timeout=4)
    client = pooler.raw(dbname="bad")
    client.send(wire.query("SELECT 1"))
    assert wire.kinds(client.until_ready()) == "EZ"
    # After FATAL, the client stays and gets another server.
    client.send(wire.query("SELECT 2"))
    assert wire.kinds(client.until_ready()) == "EZ"
    assert pooler.alive()
    assert pooler.raw().value("SELECT 1") == "1"


# -- cached_connections


@pytest.mark.guards("cached_connections")
@pytest.mark.parametrize("change", ["PASSWORD 'other'", "NOLOGIN"])
def test_an_open_server_is_no_proof(start_pooler, newest_pg, change):
    """The pool has an idle server that logged in with the old password. A client with the old password can't use the
    pool.
    """
    def sql(text):
        with newest_pg.connect("app") as db:
            db.execute(text)

    sql("DROP ROLE IF EXISTS cached_user")
    sql("CREATE ROLE cached_user LOGIN PASSWORD 'old'")
    try:
        pooler = start_pooler(newest_pg, auth_type="scram-sha-256", auth_user="postgres",
                              users=default_users() | {"postgres": ""})
        pooler.raw("cached_user", password="old").close()
        pooler.settle()
        assert len(pooler.console("SHOW SERVERS")) >= 1
        sql(f"ALTER ROLE cached_user {change}")
        with pytest.raises(LoginRefused, match="SASL authentication failed"):
            pooler.raw("cached_user", password="old")
    finally:
        machine.wait_until(lambda: not [row for row in pooler.console("SHOW CLIENTS") if row["user"] == "cached_user"],
                           what="the client is gone")
        pooler.console("KILL app")
        sql("DROP ROLE cached_user")


# -- default_users


@pytest.mark.guards("default_users")
@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5", "plain", "trust"])
def test_nobody_becomes_another_user(start_pooler, newest_pg, auth_type):
    """A user who does not exist is refused, and becomes neither auth_user nor the forced user of the entry."""
    where = newest_pg.entry()
    databases = {"app": where, "forced": f"{where} user=trusty"}
    pooler = start_pooler(newest_pg, databases=databases, auth_type=auth_type, auth_user="postgres",
                          users=default_users() | {"postgres": ""})
    for user in ("nobody_at_all", "postgres ", "Postgres", "*", "\"\""):
        for dbname in databases:
            for password in (None, "", "postgres"):
                with pytest.raises(LoginRefused):
                    pooler.raw(user, dbname, password=password)
    client = pooler.socket()
    client.send(wire.startup(user="", database="app"))
    assert [m.kind for m in client.rest()] == ["E"]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host=pooler.host, port=pooler.port, user="nobody_at_all", dbname="forced", password="x")
