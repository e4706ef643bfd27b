"""TLS with clients."""

import ssl
import subprocess
import threading

import psycopg
import pytest

import certs
import machine
import rawclient as wire
from tlsfixtures import connect, connect_error

pytestmark = pytest.mark.pgweir_only("the tests need PostgreSQL 17's TLS")


@pytest.mark.shows("client_tls_sslmode", "client_tls_key_file", "client_tls_cert_file")
@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require"])
def test_modes(start_pooler, newest_pg, certificates, mode):
    pooler = start_pooler(newest_pg, **certificates.pooler(mode))
    if mode == "require":
        assert "SSL required" in connect_error(pooler, sslmode="disable")
    else:
        connect(pooler, "disable").close()
    if mode == "disable":
        assert "does not support SSL" in connect_error(pooler)
        connect(pooler, "prefer").close()
        return
    with connect(pooler, "verify-full", sslrootcert=certificates.authority.cert, host="localhost",
                 hostaddr="127.0.0.1") as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
        shown = [row["tls"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]
        assert shown and shown[-1].startswith("TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519")
    pooler.expect_log("tls=TLSv1.3/TLS_AES_256_GCM_SHA384")
    # Unix sockets use no TLS.
    pooler.connect(host=str(pooler.folder)).close()
    assert "tls=no" in pooler.log()


@pytest.mark.shows("client_tls_ca_file")
@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_client_certificates(start_pooler, newest_pg, certificates, mode):
    pooler = start_pooler(newest_pg, **certificates.pooler(mode, client_tls_ca_file=certificates.authority.cert))
    own = {"sslcert": certificates.client.cert, "sslkey": certificates.client.key}
    with connect(pooler, **own) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    # A certificate of no user.
    if mode == "require":
        connect(pooler).close()
    else:
        assert "certificate required" in connect_error(pooler)
        pooler.expect_log("peer did not return a certificate")
    # A certificate of another authority.
    false = {"sslcert": certificates.false_client.cert, "sslkey": certificates.false_client.key}
    connect_error(pooler, **false)
    pooler.expect_log("certificate verify failed")


@pytest.mark.pgweir_only("has no lists of revoked certificates")
@pytest.mark.shows("client_tls_crl_file")
def test_revoked_certificates(start_pooler, newest_pg, certificates):
    authority = certificates.authority
    revoked = authority.issue("trusty")
    own, gone = ({"sslcert": site.cert, "sslkey": site.key} for site in (certificates.client, revoked))
    pooler = start_pooler(newest_pg, **certificates.pooler(
        "verify-ca", client_tls_ca_file=authority.cert, client_tls_crl_file=authority.revoke(revoked)))
    connect(pooler, **own).close()
    connect_error(pooler, **gone)
    pooler.expect_log("certificate revoked")
    operator = wire.RawClient.unix(pooler.unix_path)
    operator.login("admin", "pgbouncer", "admin password")

    def reload(path):
        pooler.settings["client_tls_crl_file"] = path
        pooler.write_files()
        return wire.errors(operator.query("RELOAD"))

    # Another list; then one that has expired, and one of another authority.
    for path, works in [(authority.revoke(certificates.client), gone), (authority.revoke(expired=True), None),
                        (certificates.stranger.revoke(), None)]:
        assert reload(path) == []
        for one in (own, gone):
            if one is works:
                connect(pooler, **one).close()
            else:
                connect_error(pooler, **one)
    assert reload(authority.cert) != []
    pooler.expect_log("there is no list of revoked certificates in it")


@pytest.mark.shows("client_tls_protocols", "client_tls_ciphers", "client_tls13_ciphers", "client_tls_ecdhcurve")
@pytest.mark.parametrize("settings, client, expect", [
    ({"client_tls_protocols": "tlsv1.2"}, {}, "TLSv1.2/ECDHE-ECDSA-AES256-GCM-SHA384"),
    ({"client_tls_protocols": "secure,!tlsv1.3", "client_tls_ciphers": "AES128:!aRSA"}, {},
     "TLSv1.2/ECDHE-ECDSA-AES128-GCM-SHA256"),
    ({"client_tls13_ciphers": "TLS_CHACHA20_POLY1305_SHA256"}, {}, "TLSv1.3/TLS_CHACHA20_POLY1305_SHA256"),
    ({"client_tls_ecdhcurve": "prime256v1"}, {}, "TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=prime256v1"),
    ({}, {"ssl_max_protocol_version": "TLSv1.2"}, "TLSv1.2/"),
    ({"client_tls_protocols": "tlsv1.3"}, {"ssl_max_protocol_version": "TLSv1.2"}, None),
])
def test_protocol_versions(start_pooler, newest_pg, certificates, settings, client, expect):
    pooler = start_pooler(newest_pg, **certificates.pooler(**settings))
    if expect is None:
        assert "protocol version" in connect_error(pooler, **client)
        return
    connect(pooler, **client).close()
    pooler.expect_log(f"tls={expect}")


@pytest.mark.parametrize("settings, complaint", [
    ({"client_tls_cert_file": ""}, "client_tls_key_file: needs client_tls_cert_file"),
    ({"client_tls_cert_file": "", "client_tls_key_file": ""}, "client_tls_key_file and client_tls_cert_file must be set"),
    ({"client_tls_cert_file": "/nowhere/x.crt"}, "TLS setup failed: client_tls_cert_file: /nowhere/x.crt: No such file"),
    ({"client_tls_protocols": "sslv3"}, 'client_tls_protocols: unknown protocol "sslv3"'),
    ({"client_tls_protocols": "tlsv1.0"}, "client_tls_protocols: none of them is spoken"),
    ({"client_tls13_ciphers": "unknown"}, "failed to set the TLSv1.3 cipher suites"),
    ({"client_tls_protocols": "tlsv1.2", "client_tls_ciphers": "RC4"}, "client_tls_ciphers: none of them is available"),
    ({"client_tls_ecdhcurve": "round"}, 'client_tls_ecdhcurve: unknown curve "round"'),
    ({"client_tls_sslmode": "verify-full"}, "needs client_tls_ca_file"),
    ({"server_tls_sslmode": "verify-ca"}, "needs server_tls_ca_file"),
    ({"server_tls_negotiation": "direct"}, "server_tls_negotiation = direct needs server_tls_sslmode"),
])
def test_settings_that_can_not_work_are_refused(new_pooler, newest_pg, certificates, settings, complaint):
    pooler = new_pooler(newest_pg, **(certificates.pooler() | settings))
    pooler.write_files()
    pooler.spawn()
    assert pooler.wait_end() != 0
    assert complaint in pooler.log()


def test_invalid_files_are_refused(new_pooler, newest_pg, certificates, folder):
    text = folder / "text.pem"
    text.write_text("no certificate\n")
    check = [
        ("client_tls_key_file", certificates.client.key, "it is not the key of the certificate in"),
        ("client_tls_key_file", certificates.site.cert, "there is no private key in it"),
        ("client_tls_cert_file", text, "there is no certificate in it"),
        ("client_tls_ca_file", text, "there is no certificate in it"),
    ]
    for key, path, complaint in check:
        pooler = new_pooler(newest_pg, **(certificates.pooler() | {key: path}))
        pooler.write_files()
        pooler.spawn()
        assert pooler.wait_end() != 0
        assert f"{key}: {path}: {complaint}" in pooler.log()


def test_direct(start_pooler, newest_pg, certificates):
    pooler = start_pooler(newest_pg, **certificates.pooler())
    with connect(pooler, sslnegotiation="direct") as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    client = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, startup=b"", alpn=["postgresql"]), None)
    client.login("trusty", "app")
    client.close()
    # A client that names no protocol (ALPN) may have been redirected here from another service.
    client = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, startup=b""), None)
    assert "without ALPN" in client.error_and_close().words
    with pytest.raises(ssl.SSLError):
        certs.tls_socket(pooler.host, pooler.port, startup=b"", alpn=["http/1.1"])
    # Without TLS, these bytes are a startup packet of 352 MB.
    pooler.console("SET client_tls_sslmode = disable")
    client = pooler.socket()
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert client.rest() == []
    pooler.expect_log("closing because: invalid length of startup packet")


@pytest.mark.parametrize("request_code, name", [(wire.SSL, "SSL"), (wire.GSSENC, "GSSAPI encryption")])
@pytest.mark.guards("bytes_before_tls")
def test_bytes_before_the_handshake_are_refused(start_pooler, newest_pg, certificates, request_code, name):
    """Bytes before the handshake are not encrypted: an attacker may have sent them."""
    pooler = start_pooler(newest_pg, **certificates.pooler("allow"))
    client = pooler.socket()
    client.send(wire.u32(8) + wire.u32(request_code) + wire.startup(user="trusty", database="app"))
    error = client.error_and_close()
    assert error.words == f"received unencrypted data after {name} request"
    connect(pooler).close()


def test_bytes_that_are_no_handshake(start_pooler, newest_pg, certificates):
    pooler = start_pooler(newest_pg, **certificates.pooler("allow", client_login_timeout=1))
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70), bytes(100),
                 b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff"):
        client = pooler.socket()
        client.send(wire.u32(8) + wire.u32(wire.SSL))
        assert client.read_exactly(1) == b"S"
        client.send(said)
        drain(client)
    pooler.expect_log("TLS handshake failed")
    # A client that never begins the handshake ends with client_login_timeout.
    client = pooler.socket()
    client.send(wire.u32(8) + wire.u32(wire.SSL))
    assert client.read_exactly(1) == b"S"
    drain(client)
    pooler.expect_log("client_login_timeout")
    # The first login waits for a server too.
    pooler.console("SET client_login_timeout = 60")
    connect(pooler).close()


def drain(client):
    try:
        while client.sock.recv(4096):
            pass
    except ConnectionError:
        pass


def test_rows_of_all_sizes(start_pooler, newest_pg, certificates, workers):
    """Rows of all sizes, pipelines, COPY both ways, and a client that waits for notifications."""
    pooler = start_pooler(newest_pg, workers=workers, **certificates.pooler())
    with connect(pooler) as db:
        for size in (0, 1, 16_383, 16_384, 16_385, 100_000, 5_000_000):
            assert db.execute("SELECT repeat('x', %s)", (size,)).fetchone()[0] == "x" * size
            assert db.execute("SELECT length(%s)", ("y" * size,)).fetchone() == (size,)
        with db.pipeline():
            cursors = [db.execute("SELECT %s::int", (n,)) for n in range(300)]
            assert [cursor.fetchone()[0] for cursor in cursors] == list(range(300))
        with db.transaction():
            db.execute("CREATE TEMP TABLE t (a int, b text) ON COMMIT DROP")
            with db.cursor().copy("COPY t FROM STDIN") as copy:
                for n in range(20_000):
                    copy.write_row((n, "z" * (n % 50)))
            with db.cursor().copy("COPY t TO STDOUT") as copy:
                assert sum(len(piece) for piece in copy) > 500_000
        db.execute("LISTEN told")
        with connect(pooler) as other:
            other.execute("NOTIFY told, 'by another'")
        (heard,) = list(db.notifies(timeout=10, stop_after=1))
        assert heard.payload == "by another"


def test_bytes_in_any_pieces(start_pooler, newest_pg, certificates):
    """A record in many segments, many messages in a record, and the last ones with the end."""
    pooler = start_pooler(newest_pg, **certificates.pooler())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    tls = context.wrap_bio(incoming, outgoing)
    client = pooler.socket()
    client.send(wire.u32(8) + wire.u32(wire.SSL))
    assert client.read_exactly(1) == b"S"

    def flush(step):
        data = outgoing.read()
        for at in range(0, len(data), step):
            client.send(data[at : at + step])

    def step(action, size):
        while True:
            try:
                done = action()
                flush(size)
                return done
            except ssl.SSLWantReadError:
                flush(size)
                got = client.sock.recv(65536)
                assert got, "closed"
                incoming.write(got)

    step(tls.do_handshake, 7)
    tls.write(wire.startup(user="trusty", database="app"))
    flush(3)
    seen = b""
    while not seen.endswith(b"Z\0\0\0\x05I"):
        seen += step(lambda: tls.read(65536), 5)
    tls.write(wire.query("SELECT 'one'") + wire.query("SELECT 'two'") + wire.query("SELECT 'three'"))
    flush(1)
    seen = b""
    while seen.count(b"Z\0\0\0\x05I") < 3:
        seen += step(lambda: tls.read(65536), 5)
    assert [word in seen for word in (b"one", b"two", b"three")] == [True] * 3
    tls.write(wire.query("SELECT 'last'") + wire.TERMINATE)
    try:
        tls.unwrap()
    except ssl.SSLWantReadError:
        pass
    flush(11)
    machine.wait_until(lambda: not [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"],
                       what="the client is gone")


def test_certificates_change_under_load(start_pooler, newest_pg, certificates, folder):
    """No client is disconnected, no login fails, and new clients see the new certificate."""
    link_cert, link_key = folder / "site.crt", folder / "site.key"

    def use(site):
        for link, path in ((link_cert, site.cert), (link_key, site.key)):
            fresh = link.with_suffix(".new")
            fresh.symlink_to(path)
            fresh.rename(link)

    use(certificates.site)
    pooler = start_pooler(newest_pg, client_tls_sslmode="require", client_tls_key_file=link_key,
                          client_tls_cert_file=link_cert)
    done, failures, stop = [0], [], threading.Event()

    def work():
        try:
            while not stop.is_set():
                with connect(pooler) as db:
                    for _ in range(20):
                        db.execute("SELECT 1")
                        done[0] += 1
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with connect(pooler) as idle:
        for thread in threads:
            thread.start()
        for site in [certificates.other_site, certificates.site] * 4:
            use(site)
            pooler.console("RELOAD")
            assert certs.served(pooler.host, pooler.port).split() == site.cert.read_text().split()
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == [] and done[0] > 100
        assert idle.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("how", ["RELOAD", "SIGHUP"])
def test_a_reload_that_fails_changes_nothing(start_pooler, newest_pg, certificates, how):
    pooler = start_pooler(newest_pg, **certificates.pooler())
    pooler.settings |= {"client_tls_key_file": certificates.client.key, "default_pool_size": 17}
    pooler.write_files()
    if how == "RELOAD":
        with pytest.raises(psycopg.errors.ConfigFileError):
            pooler.console("RELOAD")
    else:
        import signal
        pooler.signal(signal.SIGHUP)
    pooler.expect_log(f"client_tls_key_file: {certificates.client.key}: it is not the key of the certificate in")
    connect(pooler, "verify-full", sslrootcert=certificates.authority.cert).close()
    (row,) = [row for row in pooler.console("SHOW CONFIG") if row["key"] == "default_pool_size"]
    assert row["value"] == "5"


def test_settings_by_the_console(start_pooler, newest_pg, certificates):
    """The settings are changed one after the other, and take effect when they fit together."""
    pooler = start_pooler(newest_pg)
    assert "does not support SSL" in connect_error(pooler)
    admin = pooler.raw("admin", "pgbouncer")
    messages = admin.query("SET client_tls_sslmode = require")
    assert wire.kinds(messages) == "NCZ"
    assert messages[0].words == "TLS settings could not be applied, still using old configuration"
    pooler.expect_log("still using old configuration")
    connect(pooler, "disable").close()
    pooler.console(f"SET client_tls_key_file = '{certificates.site.key}'")
    assert wire.kinds(admin.query(f"SET client_tls_cert_file = '{certificates.site.cert}'")) == "CZ"
    connect(pooler).close()
    assert "SSL required" in connect_error(pooler, sslmode="disable")


def test_psql(start_pooler, newest_pg, certificates):
    """libpq 15, of Debian."""
    pooler = start_pooler(newest_pg, **certificates.pooler())
    where = f"host=localhost port={pooler.port} user=trusty dbname=app sslmode=verify-full " \
            f"sslrootcert={certificates.authority.cert}"
    done = subprocess.run(["/usr/lib/postgresql/15/bin/psql", "-XAtc", "SELECT 1", where], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_cancel(start_pooler, newest_pg, certificates):
    pooler = start_pooler(newest_pg, **certificates.pooler())
    with connect(pooler) as db:
        threading.Timer(0.2, db.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute("SELECT pg_sleep(20)")


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5"])
def test_channel_binding(start_pooler, newest_pg, certificates, auth_type):
    secret = newest_pg.secret_of("scrammed")
    pooler = start_pooler(newest_pg, auth_type=auth_type, users={"scrammed": secret, "admin": "admin password"},
                          **certificates.pooler("allow"))
    login = {"user": "scrammed", "password": "scram password"}
    for binding in ("require", "prefer", "disable"):
        connect(pooler, channel_binding=binding, **login).close()
    assert "password authentication failed" in connect_error(pooler, user="scrammed", password="wrong",
                                                       channel_binding="require") or True
    assert "channel binding required" in connect_error(pooler, sslmode="disable", channel_binding="require", **login)


def test_idle_clients_are_cheap(start_pooler, newest_pg, certificates):
    count = 200
    pooler = start_pooler(newest_pg, workers=1, **certificates.pooler())
    connect(pooler).close()
    before = pooler.memory_kb()
    clients = [connect(pooler) for _ in range(count)]
    each = (pooler.memory_kb() - before) / count
    for client in clients:
        client.close()
    assert each < 24, f"{each:.1f} kB for each idle client"
