"""SET on the console: checked and applied as RELOAD does with the file."""

import pytest

import rawclient as wire


@pytest.mark.parametrize(("text", "key", "value"), [
    ("SET query_wait_timeout = 7", "query_wait_timeout", "7"),
    ("set query_wait_timeout=0.5", "query_wait_timeout", "0.5"),
    ("SET pool_mode to 'session';", "pool_mode", "session"),
    ('set "pool_mode" = "statement"', "pool_mode", "statement"),
    ("SET server_reset_query = 'SELECT ''x;'''", "server_reset_query", "SELECT 'x;'"),
    ("SET server_reset_query = ''", "server_reset_query", ""),
])
@pytest.mark.pgweir_only("it takes no bare 0.5")
def test_set(start_pooler, newest_pg, text, key, value):
    pooler = start_pooler(newest_pg)
    client = pooler.raw("admin", "pgbouncer")
    messages = client.query(text)
    assert wire.kinds(messages) == "CZ"
    assert messages[0].body.rstrip(b"\0").decode() == f"SET {key}={value}"
    assert pooler.setting(key) == value


def test_set_holds_on_all_workers_until_the_reload(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, default_pool_size=1, workers=workers)
    holders = [pooler.raw() for _ in range(3)]
    holders[0].query("BEGIN")
    for waiter in holders[1:]:
        waiter.send(wire.query("SELECT 1"))
        waiter.quiet()
    pooler.console("SET default_pool_size = 3")
    for waiter in holders[1:]:
        assert wire.value(waiter.until_ready()) == "1"
    pooler.console("RELOAD")
    assert pooler.setting("default_pool_size") == "1"


@pytest.mark.pgweir_only("it does not say why, and ignores what needs a restart")
@pytest.mark.parametrize(("text", "why"), [
    ("SET pool_mod = session", 'did you mean "pool_mode"?'),
    ("SET pool_mode = sometimes", "expected one of session, transaction, statement"),
    ("SET max_client_conn = 'many'", "expected a whole number"),
    ("SET listen_port = 1234", "by a restart"),
    ("SET auth_file = '/does/not/exist'", "/does/not/exist"),
    ("SET pool_size = 3", "[databases]"),
])
def test_set_refused(start_pooler, newest_pg, text, why):
    pooler = start_pooler(newest_pg)
    before = pooler.console("SHOW CONFIG")
    client = pooler.raw("admin", "pgbouncer")
    messages = client.query(text)
    assert wire.errors(messages) == [("08P01", "SET failed")]
    assert why in messages[0].fields["D"]
    assert pooler.console("SHOW CONFIG") == before
    assert pooler.raw().value("SELECT 1") == "1"


def test_parameters_that_drivers_set_are_ignored(start_pooler, newest_pg):
    client = start_pooler(newest_pg).raw("stats", "pgbouncer")
    messages = client.query("SET timezone = 'UTC'")
    assert wire.kinds(messages) == "NCZ"
    assert messages[0].words == "SET ignored"


def test_set_with_an_empty_key(start_pooler, newest_pg):
    client = start_pooler(newest_pg).raw("admin", "pgbouncer")
    assert wire.errors(client.query('SET "" = 1')) == [("08P01", "bad arguments")]
