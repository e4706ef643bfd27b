"""Session state that a client sets, or leaves on its server, never reaches another client."""

import contextlib
import os
import signal
import socket
import threading

import pytest

import fakeserver as fake
import machine
import rawclient as wire

PATH = ", ".join(f"handed{number}" for number in range(2000))


@pytest.fixture
def two_clients(start_pooler, plain_or_assisted_pg):
    """Two clients that share one server, if they can."""
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other:
        yield pooler, one, other


def pins(pooler):
    return [row["reason"] for row in pooler.console("SHOW PINS")]


def test_many_schemas(two_clients):
    pooler, one, other = two_clients
    assert not wire.errors(one.query(f"SET search_path = {PATH}"))
    for _ in range(2):
        assert other.value("SHOW search_path") == '"$user", public'
        assert one.value("SHOW search_path") == PATH
    assert pins(pooler) == []


@pytest.mark.shows("max_client_settings_bytes")
@pytest.mark.parametrize("most", [4096, 500_000])
@pytest.mark.parametrize("kind", ["custom", "search_path"])
def test_long_values(start_pooler, plain_or_assisted_pg, kind, most):
    """A client whose values are too long to be moved keeps its server."""
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=2, max_client_settings_bytes=most)
    # No text has named the parameter before, and the name is not in the first piece of the text.
    set_, reset, read = {
        "custom": ("SELECT length('{}') /* {} */; SET app.handed = '{}'", "RESET app.handed",
                   "SELECT length(current_setting('app.handed', true))"),
        "search_path": ("SELECT length('{}') /* {} */; SET search_path = a{}", "RESET search_path",
                        "SELECT length(current_setting('search_path'))"),
    }[kind]
    for length in (5000, 100_000, 1_000_000):
        value = "x" * length if kind == "custom" else ", a" * (length // 3)
        with pooler.raw() as one, pooler.raw() as other:
            default = int(other.value(read) or "0")
            assert not wire.errors(one.query(set_.format("y" * 70_000, "z" * 70_000, value)))
            for _ in range(2):
                assert int(other.value(read) or "0") == default
                assert int(one.value(read)) > default
            is_kept = length > 64_000 or length > most
            assert bool(pins(pooler)) == is_kept
            assert not wire.errors(one.query(reset))
            assert int(one.value(read) or "0") == default and pins(pooler) == []
            one.query(set_.format("", "", value))
        # The first client has disconnected.
        with pooler.raw() as one, pooler.raw() as other:
            one.query("BEGIN")
            for client in (one, other):
                assert int(client.value(read) or "0") == default


def test_parameter_names_that_cannot_be_queried(two_clients):
    pooler, one, other = two_clients
    bad = [b"SET app.\xe9zz = '1'", b"SET \"app.\xe9\" = '1'", b"SELECT set_config('app.\xe9', '1', false)",
           b"SET app." + b"x" * 300 + b" = '1'"]
    for text in bad:
        one.send(wire.frame("Q", text + b"\0")).until_ready()
    one.send(wire.query("SET work_mem = '77kB'")).until_ready()
    assert not wire.errors(one.query("DISCARD ALL"))
    assert not wire.errors(other.query("SET work_mem = '78kB'; SET app.handed = 'x'"))
    assert pins(pooler) == []
    # In known encodings, a name with other characters than ASCII works like any other.
    read = "SELECT nullif(current_setting('app.händed', true), '')"
    assert not wire.errors(one.query("SET \"app.händed\" = 'ä'"))
    for _ in range(2):
        assert other.value(read) is None
        assert one.value(read) == "ä"
    assert pins(pooler) == []


@pytest.mark.parametrize("length", [63, 64, 200])
def test_parameter_names_that_reset_truncates(two_clients, length):
    """`set_config` takes names of any length; RESET cuts their parts at 63 bytes."""
    pooler, one, other = two_clients
    name = f"app.{'x' * length}"
    read = f"SELECT nullif(current_setting('{name}', true), '')"
    assert not wire.errors(one.query(f"SELECT set_config('{name}', 'handed', false)"))
    for _ in range(3):
        assert other.value(read) is None
        assert one.value(read) == "handed"
    assert pins(pooler) == []


def test_many_parameter_names_displace_no_others(two_clients):
    """Many names in one client's texts do not displace other clients' names."""
    pooler, one, other = two_clients
    for start in range(0, 3000, 100):
        text = ";".join(f"SET app.many{number} = ''; RESET app.many{number}" for number in range(start, start + 100))
        assert not wire.errors(one.query(text))
    one.query("DISCARD ALL")
    assert not wire.errors(other.query("SET app.handed = 'x'"))
    for _ in range(2):
        assert one.value("SELECT nullif(current_setting('app.handed', true), '')") is None
        assert other.value("SELECT current_setting('app.handed')") == "x"
    assert pins(pooler) == []


@pytest.mark.parametrize("login", [False, True], ids=["set", "at_login"])
def test_a_timeout_for_idle_sessions(start_pooler, plain_or_assisted_pg, login):
    """The timeout ends the session that has set it, and no server that other clients could use."""
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=2)
    with pooler.raw() as other:
        server = other.value("SELECT pg_backend_pid()")
        other.query("BEGIN")
        one = pooler.raw(**({"options": "-c idle_session_timeout=500"} if login else {}))
        if not login:
            one.query("SET idle_session_timeout = 500")
        assert one.value("SELECT pg_backend_pid()") != server
        other.query("COMMIT")
        assert pins(pooler) == ["parameter"]
        assert one.error_and_close().sqlstate == "57P05"
        assert other.value("SELECT pg_backend_pid()") == server


def test_a_session_that_ends_with_any_error(two_clients):
    """`exit_on_error` ends the session that has set it, and no other."""
    pooler, one, other = two_clients
    server = other.value("SELECT pg_backend_pid()")
    bad = {"work_mem=bogus": "22023", "role=nobody": "22023", "search_path=x -c transaction_isolation=no": "22023"}
    for options, code in bad.items():
        with pytest.raises(wire.LoginRefused, match=f"{code}: "):
            pooler.raw(options=f"-c exit_on_error=on -c {options}")
        assert other.value("SELECT pg_backend_pid()") == server
    with pooler.raw(options="-c exit_on_error=on -c lock_timeout=77s") as late:
        for client in (late, one):
            if client == one:
                assert not wire.errors(one.query("SET exit_on_error = on"))
            assert client.value("SHOW exit_on_error") == "on"
            assert pins(pooler) == ["parameter"]
            client.send(wire.query("SELECT 1/0"))
            assert client.error_and_close().sqlstate == "22012"
            assert other.value("SHOW exit_on_error") == "off" and pins(pooler) == []


def test_a_login_that_is_given_up_leaves_nothing(start_pooler, plain_or_assisted_pg):
    """The client disconnects while a server tries its startup parameters."""
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)

    def wait(what, count):
        machine.wait_until(lambda: int(pooler.console("SHOW POOLS")[0][what]) == count, 10, f"{what} is {count}")

    with pooler.raw() as other:
        server = int(other.value("SELECT pg_backend_pid()"))
        os.kill(server, signal.SIGSTOP)
        try:
            one = wire.RawClient.tcp(*other.address)
            one.send(wire.startup(user="trusty", database="app", options="-c search_path=handed -c app.handed=x"))
            wait("sv_active", 1)
            one.close()
            wait("sv_active", 0)
        finally:
            os.kill(server, signal.SIGCONT)
        assert other.value("SHOW search_path") == '"$user", public'
        assert other.value("SELECT nullif(current_setting('app.handed', true), '')") is None


@pytest.mark.parametrize("settings", ["", "SET work_mem = '5MB'"], ids=["alike", "different"])
def test_sequences_that_could_not_be_discarded(start_pooler, plain_or_assisted_pg, settings):
    """The DISCARD may be cancelled or run into a timeout. Even then no client sees another's sequence value."""
    def behave(connection):
        startup = connection.read_startup()
        if startup is None:
            return
        with wire.RawClient.tcp(plain_or_assisted_pg.host, plain_or_assisted_pg.port) as server:
            server.send(wire.u32(len(startup) + 4) + startup)
            threading.Thread(target=forward, args=(server.sock, connection.sock), daemon=True).start()
            while True:
                message = connection.read()
                refused = message.kind == "Q" and message.tag == "DISCARD SEQUENCES"
                failures.extend([message.tag] * refused)
                server.send(wire.query("SELECT 1/0") if refused else wire.frame(message.kind, message.body))

    failures = []
    with fake.FakeServer(behave) as between:
        where = between.database.replace(" session_state=off", "")
        pooler = start_pooler(databases={"app": where}, default_pool_size=1)
        with pooler.raw() as one, pooler.raw() as other:
            assert not wire.errors(other.query(settings))
            plain_or_assisted_pg.run("CREATE SEQUENCE handed_on", dbname="app")
            try:
                assert one.value("SELECT nextval('handed_on')") == "1"
                told = [wire.errors(other.query("SELECT lastval()"))[0][0] for _ in range(2)]
                assert failures == ["DISCARD SEQUENCES"]
                assert told == ["55000" if settings else "08007", "55000"]
                assert other.value("SHOW work_mem") == ("5MB" if settings else "4MB")
            finally:
                plain_or_assisted_pg.run("DROP SEQUENCE handed_on", dbname="app")
        pooler.expect_log("server can't be cleaned: division by zero")
    assert between.problems == []


def forward(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def extremes(row):
    """Returns values of a parameter to try: the smallest, the largest, and others."""
    _, kind, low, high, words = row
    return {"bool": ["on", "off"], "enum": words, "string": ['"handed", x']}.get(kind, [low, high])


ALL = ("SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings"
       " WHERE context = 'user' AND name NOT LIKE 'transaction%'")


@pytest.mark.parametrize("part", range(3))
def test_every_parameter(start_pooler, newest_pg, part):
    """One client sets each parameter; another client uses the server next, and must not see the value."""
    with newest_pg.connect(dbname="app") as db:
        rows = db.execute("SELECT name, vartype, min_val, max_val, enumvals FROM pg_settings WHERE context = 'user'"
                          " AND name NOT LIKE 'transaction%' ORDER BY name").fetchall()
    pooler = start_pooler(newest_pg, default_pool_size=2)
    with pooler.raw() as other:
        expect = other.value(ALL)
        one = pooler.raw()
        for row in rows[part::3]:
            for value in extremes(row):
                if wire.errors(one.query(f"SET {row[0]} = '{value}'")):
                    continue
                assert other.value(ALL) == expect, (row[0], value)
                if pins(pooler):
                    one.close()
                    one = pooler.raw()
            one.query(f"RESET {row[0]}")
            assert other.value(ALL) == expect, row[0]
        one.close()


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_deferrable_transactions_do_not_block_the_next_client(start_pooler, plain_or_assisted_pg, leaves):
    pooler = start_pooler(plain_or_assisted_pg, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other, plain_or_assisted_pg.connect(dbname="app") as writer:
        one.query("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE")
        assert not wire.errors(one.query("SELECT 1"))
        if leaves:
            one.query("DECLARE c CURSOR WITH HOLD FOR SELECT 1")
            assert pins(pooler)
        writer.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        writer.execute("SELECT txid_current()")
        if leaves:
            one.close()
        # The client does not wait for the writer's end.
        assert other.value("SELECT 1") == "1"
        assert other.value("SHOW default_transaction_deferrable") == "off"


def test_parameter_names_in_quotes(two_clients):
    pooler, one, other = two_clients
    names = ['"', "'", "\\", "a\\x00b", '"";RESET ROLE;--', "$$", "é\n"]
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        assert not wire.errors(one.query(f"SET search_path = {quoted}; SET app.handed = 'it''s {name.replace(chr(39), '')}'"))
        shown = one.value("SHOW search_path")
        for _ in range(2):
            assert other.value("SHOW search_path") == '"$user", public'
            assert one.value("SHOW search_path") == shown
    assert pins(pooler) == []


def test_parameters_that_only_the_extension_reports(assisted_pg, start_pooler):
    """No text contains the parameter's name: the extension reports it, however long its value is."""
    pooler = start_pooler(assisted_pg, default_pool_size=1)
    read = "SELECT length(current_setting('app.' || 'made', true))"
    with pooler.raw() as one, pooler.raw() as other:
        assert not wire.errors(one.query("SELECT length(set_config('app.' || 'made', repeat('x', 9000), false))"))
        for _ in range(2):
            assert int(other.value(read) or "0") == 0
            assert one.value(read) == "9000"
        assert pins(pooler) == []
        # So many parameters that not even their names fit into the limit.
        made = "SELECT count(set_config('app.' || 'made' || n, 'x', false)) FROM generate_series(1, 2000) AS n"
        assert one.value(made) == "2000"
        assert pins(pooler) == ["unknown state"]
        assert not wire.errors(one.query("DISCARD ALL")) and pins(pooler) == []
        assert not other.value("SELECT nullif(current_setting('app.' || 'made' || 7, true), '')")
