"""Online restart: encrypted connections continue in the new process, with the keys of both directions."""

import threading

import psycopg
import pytest

import machine
import rawclient as wire
from test_restart import failure_of
from tlsfixtures import connect

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")

BEGUN = "accepts clients, ours leave for it"
# In OpenSSL's spelling.
CIPHERS = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
           "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
LONG = 300_000


def shown(pooler):
    """Returns the clients' encryption as the console shows it."""
    return sorted(row["tls"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app")


def works(client):
    """Sends and receives messages of several TLS records."""
    text = "x" * LONG
    assert client.execute("SELECT length(%s), repeat('y', %s)", [text, LONG]).fetchone() == (LONG, "y" * LONG)
    assert client.execute("SHOW app.tenant").fetchone() == ("blue",)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_each_cipher(line, certificates, cipher):
    is_13 = cipher.startswith("TLS_")
    ciphers = {"client_tls13_ciphers": cipher} if is_13 else {"client_tls_ciphers": cipher}
    version = "TLSv1.3" if is_13 else "TLSv1.2"
    one = line(**certificates.pooler("require"), client_tls_protocols="secure", **ciphers)
    with connect(one.pooler, ssl_min_protocol_version=version, ssl_max_protocol_version=version) as client:
        client.execute("SET app.tenant TO 'blue'")
        works(client)
        before = shown(one.pooler)
        assert version in before[0]
        for _ in range(3):
            one.full()
            works(client)
            assert shown(one.pooler) == before
    machine.wait_until(lambda: shown(one.pooler) == [], what="it has left")


def test_a_client_over_tls_moves_after_its_transaction(line, newest_pg, certificates):
    """Before it moves, a cancel request to the new process reaches it."""
    one = line(**certificates.pooler("allow"))
    pooler = one.pooler
    client = connect(pooler)
    client.autocommit = True
    client.execute("SET app.tenant TO 'blue'")
    client.execute("BEGIN")
    old = one.restart()
    pooler.expect_log(BEGUN)
    sleep = "SELECT pg_sleep(60)"
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(failure_of(client, sleep)))
    thread.start()
    machine.wait_until(lambda: newest_pg.backends(f"query = '{sleep}' AND state = 'active'"))
    client.cancel()
    thread.join(20)
    assert outcome == ["57014"]
    assert old.poll() is None
    client.execute("ROLLBACK")
    one.done(old)
    works(client)
    client.close()


def test_both_sides_at_once(line, tls_pg, certificates):
    """A client over TLS in session mode, with its server over TLS."""
    one = line(tls_pg, pool_mode="session", default_pool_size=2, **certificates.pooler("require"),
               server_tls_sslmode="require")
    pooler = one.pooler
    with connect(pooler, user="trusty") as client:
        client.execute("SET app.tenant TO 'blue'")
        client.execute("CREATE TEMP TABLE mine AS SELECT 7 AS n")
        pid = client.execute("SELECT pg_backend_pid()").fetchone()
        assert client.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
        servers = [row["tls"] for row in pooler.console("SHOW SERVERS")]
        assert all("TLSv1.3" in tls for tls in servers)
        client.commit()
        for _ in range(3):
            one.full()
            works(client)
            assert client.execute("SELECT pg_backend_pid()").fetchone() == pid
            assert client.execute("SELECT n FROM mine").fetchone() == (7,)
            assert [row["tls"] for row in pooler.console("SHOW SERVERS")] == servers
            client.commit()
    machine.wait_until(lambda: shown(pooler) == [], what="it has left")
    with connect(pooler, user="trusty") as other:
        assert other.execute("SELECT to_regclass('pg_temp.mine')").fetchone() == (None,)


def test_a_pinned_client_over_tls(line, tls_pg, certificates):
    one = line(tls_pg, **certificates.pooler("require"), server_tls_sslmode="require")
    with connect(one.pooler, user="trusty") as client:
        client.autocommit = True
        client.execute("SET app.tenant TO 'blue'")
        client.execute("CREATE TEMP TABLE mine AS SELECT 7 AS n")
        pid = client.execute("SELECT pg_backend_pid()").fetchone()
        for _ in range(2):
            one.full()
            works(client)
            assert client.execute("SELECT pg_backend_pid()").fetchone() == pid
            assert client.execute("SELECT n FROM mine").fetchone() == (7,)


def test_the_pooler_closes_in_order(line, certificates):
    """A client that is disconnected gets its error and a close_notify."""
    one = line(**certificates.pooler("require"))
    client = connect(one.pooler)
    one.full()
    (row,) = [row for row in one.pooler.console("SHOW CLIENTS") if row["database"] == "app"]
    one.pooler.console(f"KILL_CLIENT {row['ptr']}")
    with pytest.raises(psycopg.OperationalError) as caught:
        client.execute("SELECT 1")
    assert "unexpected eof" not in str(caught.value).lower()


def test_a_new_process_that_dies_gives_them_back(line, certificates):
    """The new process dies: clients that were being moved stay with the old process, as do those in transactions."""
    one = line(**certificates.pooler("require"))
    pooler = one.pooler
    client = connect(pooler)
    client.autocommit = True
    client.execute("SET app.tenant TO 'blue'")
    client.execute("BEGIN")
    old = one.restart()
    pooler.expect_log(BEGUN)
    one.new_process_dies(old)
    client.execute("COMMIT")
    works(client)
    one.full()
    works(client)
    client.close()


def test_a_new_process_that_is_stopped_and_killed(line, certificates):
    """The old process serves clients that it has sent and that the new process has not confirmed."""
    one = line(**certificates.pooler("require"), workers=1, default_pool_size=25)
    pooler = one.pooler
    clients = [connect(pooler) for _ in range(20)]
    for client in clients:
        client.autocommit = True
        client.execute("SET app.tenant TO 'blue'")
        client.execute("BEGIN")
    old = one.restart()
    pooler.expect_log(BEGUN)
    machine.stand_still(pooler.process)
    for client in clients:
        client.execute("COMMIT")
    # They are sent at once, into the connection to the process that stands still.
    machine.stays_true(lambda: old.poll() is None, 0.5, "the old process waits for the confirmation")
    one.new_process_dies(old)
    for client in clients:
        works(client)
        client.close()

