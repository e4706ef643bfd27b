"""TLS with servers."""

import subprocess
import threading

import psycopg
import pytest

import certs
import cluster as clusters
import machine
from tlsfixtures import DirectFront

pytestmark = pytest.mark.pgweir_only("what it can't reach, PgBouncer tells otherwise")

ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


def at(pg, host="127.0.0.1", port=None, **more):
    """Databases behind this host."""
    options = " ".join(f"{key}={value}" for key, value in more.items())
    return {"app": f"host={host} port={port or pg.port} dbname=app {options}"}


def login(pooler, user="tlsonly", **options):
    return pooler.connect(user=user, **options)


USERS = {"tlsonly": "tls password", "trusty": "", "certified": "", "plainonly": "", "admin": "admin password"}


@pytest.mark.shows("server_tls_sslmode", "server_tls_ca_file")
@pytest.mark.parametrize("mode, host, authority, works", [
    ("disable", "127.0.0.1", None, False),
    ("allow", "127.0.0.1", None, True),
    ("prefer", "127.0.0.1", None, True),
    ("require", "127.0.0.1", None, True),
    ("verify-ca", "127.0.0.1", "right", True),
    ("verify-ca", "127.0.0.1", "wrong", False),
    ("verify-full", "localhost", "right", True),
    ("verify-full", "127.0.0.1", "right", True),
    ("verify-full", "localhost", "wrong", False),
])
def test_modes(start_pooler, tls_pg, certificates, mode, host, authority, works):
    settings = {"server_tls_sslmode": mode}
    if authority:
        chosen = certificates.authority if authority == "right" else certificates.stranger
        settings["server_tls_ca_file"] = chosen.cert
    pooler = start_pooler(tls_pg, databases=at(tls_pg, host), users=USERS, server_login_retry=1, **settings)
    if works:
        with login(pooler) as db:
            assert db.execute(ENCRYPTED).fetchone() == (True,)
            shown = [row["tls"] for row in pooler.console("SHOW SERVERS") if row["user"] == "tlsonly"]
            assert any(tls.startswith("TLSv1.3/TLS_AES_256_GCM_SHA384") for tls in shown)
        pooler.expect_log("SSL established: TLSv1.3/")
        return
    with pytest.raises(psycopg.OperationalError) as caught:
        login(pooler, connect_timeout=3)
    if mode == "disable":
        assert "no encryption" in str(caught.value) or "SSL off" in str(caught.value)
    else:
        pooler.expect_log("TLS handshake failed: certificate verify failed: unable to get local issuer certificate")


@pytest.mark.pgweir_only("has no lists of revoked certificates")
@pytest.mark.shows("server_tls_crl_file")
def test_a_revoked_certificate(start_pooler, tls_pg, certificates):
    settings = {"server_tls_sslmode": "verify-ca", "server_tls_ca_file": certificates.authority.cert}
    pooler = start_pooler(tls_pg, databases=at(tls_pg, "127.0.0.1"), users=USERS, server_login_retry=1, **settings,
                          server_tls_crl_file=certificates.authority.revoke())
    login(pooler).close()
    pooler.settings["server_tls_crl_file"] = certificates.authority.revoke(certificates.site)
    pooler.write_files()
    pooler.console("RELOAD")
    pooler.console("RECONNECT")
    with pytest.raises(psycopg.OperationalError):
        login(pooler, connect_timeout=3)
    pooler.expect_log("certificate revoked")


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_a_server_without_tls(start_pooler, newest_pg, mode):
    pooler = start_pooler(newest_pg, server_tls_sslmode=mode, server_login_retry=1)
    if mode == "prefer":
        with pooler.connect() as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
        return
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(connect_timeout=3)
    pooler.expect_log("server refused SSL")


def test_unix_sockets_do_not_use_tls(start_pooler, tls_pg):
    pooler = start_pooler(tls_pg, databases=at(tls_pg, tls_pg.socket_dir), server_tls_sslmode="require")
    with pooler.connect() as db:
        assert db.execute(ENCRYPTED).fetchone() == (False,)


@pytest.mark.shows("server_tls_key_file", "server_tls_cert_file")
def test_pgweirs_certificate_for_servers(start_pooler, tls_pg, certificates):
    certified = certificates.authority.issue("certified")
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="require",
                          server_tls_key_file=certified.key, server_tls_cert_file=certified.cert)
    with login(pooler, "certified") as db:
        assert db.execute(ENCRYPTED).fetchone() == (True,)


@pytest.mark.shows("server_tls_protocols", "server_tls_ciphers", "server_tls13_ciphers")
@pytest.mark.parametrize("settings, expect", [
    ({"server_tls_protocols": "tlsv1.2", "server_tls_ciphers": "CHACHA20"}, "TLSv1.2/ECDHE-ECDSA-CHACHA20-POLY1305"),
    ({"server_tls13_ciphers": "TLS_AES_128_GCM_SHA256"}, "TLSv1.3/TLS_AES_128_GCM_SHA256"),
])
def test_protocol_versions(start_pooler, tls_pg, settings, expect):
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="require", **settings)
    login(pooler).close()
    pooler.expect_log(f"SSL established: {expect}")


def test_protocol_versions_that_are_not_supported(start_pooler, tls_pg):
    """This shows when a server agrees to TLS, as in PgBouncer."""
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_protocols="tlsv1.0")
    with pytest.raises(psycopg.OperationalError):
        login(pooler, connect_timeout=2)
    pooler.expect_log("server_tls_protocols has no version that is spoken")


@pytest.mark.parametrize("kind", ["self-signed", "common name", "version 1", "rsa", "expired", "another name"])
def test_common_kinds_of_certificates(start_cluster, start_pooler, certificates, folder, kind):
    authority = certificates.authority
    if kind == "self-signed":
        site = certs.self_signed(folder, "localhost")
        trusted = site.cert
    elif kind == "another name":
        site, trusted = certificates.other_site, authority.cert
    else:
        site = authority.issue("localhost", names=() if kind == "common name" else ("DNS:localhost",),
                               version1=kind == "version 1", rsa=kind == "rsa", expired=kind == "expired")
        trusted = authority.cert
    front = DirectFront(None, site)
    try:
        pooler = start_pooler(None, databases=at(None, "localhost", front.port, dbname="x"), users=USERS,
                              server_tls_sslmode="verify-full", server_tls_negotiation="direct",
                              server_tls_ca_file=trusted, server_login_retry=1)
        with pytest.raises(psycopg.OperationalError):
            login(pooler, connect_timeout=2)
        if kind == "another name":
            pooler.expect_log('server certificate for "elsewhere.example" does not match host name "localhost"')
        elif kind == "expired":
            pooler.expect_log("certificate verify failed: certificate has expired")
        else:
            pooler.expect_log("SSL established")
    finally:
        front.close()


@pytest.mark.shows("server_tls_negotiation")
@pytest.mark.parametrize("alpn", [("postgresql",), ()])
def test_direct(start_pooler, newest_pg, certificates, alpn):
    front = DirectFront(newest_pg, certificates.site, alpn)
    try:
        pooler = start_pooler(newest_pg, databases=at(newest_pg, port=front.port), server_tls_sslmode="verify-full",
                              server_tls_negotiation="direct", server_tls_ca_file=certificates.authority.cert)
        if not alpn:
            with pytest.raises(psycopg.OperationalError):
                pooler.connect(connect_timeout=2)
            return pooler.expect_log("direct SSL connection was established without ALPN")
        with pooler.connect() as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
            threading.Timer(0.2, db.cancel_safe).start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                db.execute("SELECT pg_sleep(20)")
            assert len(front.resumed) >= 2
    finally:
        front.close()


def test_cancel_requests_are_encrypted(start_pooler, tls_pg):
    """The server's log names each connection. Only cancel requests are encrypted here."""
    seen = []
    with Relay(tls_pg.port, seen) as relay:
        pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg, port=relay.port), server_tls_sslmode="require")
        with login(pooler) as db:
            threading.Timer(0.2, db.cancel_safe).start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                db.execute("SELECT pg_sleep(20)")
    assert len(seen) >= 2
    # An SSLRequest, then a handshake; never a startup packet or a cancel request in the clear.
    assert all(first[:8] == bytes.fromhex("0000000804d2162f") and first[8:9] in (b"", b"\x16") for first in seen)


class Relay:
    """Passes connections on, and remembers how each begins."""

    def __init__(self, port, seen):
        import socket
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target, self.seen = port, seen
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        import socket
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            index = len(self.seen)
            self.seen.append(b"")
            threading.Thread(target=self._pump, args=(client, server, index), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, None), daemon=True).start()

    def _pump(self, source, target, index):
        try:
            while data := source.recv(65536):
                if index is not None and len(self.seen[index]) < 9:
                    self.seen[index] += data
                target.sendall(data)
            target.shutdown(1)
        except OSError:
            pass


@pytest.mark.guards("bytes_before_tls")
def test_bytes_before_the_handshake_are_refused(start_pooler, start_server):
    """Bytes before the handshake are not encrypted: an attacker may have sent them."""
    def behave(connection):
        connection.recv(8)
        connection.sendall(b"S" + b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
        connection.recv(1)

    check_answer(start_pooler, behave, "received unencrypted data after SSL response", "prefer")


def test_invalid_answers_to_the_tls_request(start_pooler):
    check_answer(start_pooler, lambda one: (one.recv(8), one.sendall(b"E\0\0\0\x10SFATAL\0"), one.recv(1)),
                 "bad sslreq answer", "prefer")
    check_answer(start_pooler, lambda one: (one.recv(8), one.sendall(b"N"), one.recv(1)), "server refused SSL", "require")
    check_answer(start_pooler, lambda one: (one.recv(8), one.sendall(b"S"), one.recv(9), one.sendall(b"HTTP/1.1 400 \r\n")),
                 "TLS handshake failed", "prefer")


def check_answer(start_pooler, behave, complaint, mode):
    import socket
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                behave(connection)
            except OSError:
                pass
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        pooler = start_pooler(None, databases=at(None, port=listener.getsockname()[1], dbname="x"), users=USERS,
                              server_tls_sslmode=mode)
        with pytest.raises(psycopg.OperationalError):
            login(pooler, connect_timeout=2)
        pooler.expect_log(complaint)
    finally:
        listener.close()


def test_a_change_replaces_servers_only(start_pooler, tls_pg):
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="disable")
    with pooler.connect() as db:
        assert db.execute(ENCRYPTED).fetchone() == (False,)
        pooler.settings["server_tls_sslmode"] = "require"
        pooler.write_files()
        pooler.console("RELOAD")
        pooler.expect_log("closing because: database configuration changed")
        assert db.execute(ENCRYPTED).fetchone() == (True,)
        # The files are the same, so no server is replaced.
        pid = db.execute("SELECT pg_backend_pid()").fetchone()
        pooler.console("RELOAD")
        assert db.execute("SELECT pg_backend_pid()").fetchone() == pid
        # A change for clients leaves servers alone.
        pooler.console("SET client_tls_protocols = tlsv1.3")
        assert db.execute("SELECT pg_backend_pid()").fetchone() == pid


@pytest.mark.parametrize("relay_binding", [True, False])
def test_channel_binding(start_pooler, tls_pg, relay_binding):
    """PostgreSQL offers channel binding, and refuses an exchange that claims it is not offered."""
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="require")
    if not relay_binding:
        # Over a Unix socket there is nothing to bind to.
        pooler = start_pooler(tls_pg, databases=at(tls_pg, tls_pg.socket_dir), users=USERS)
        return pooler.connect().close()
    with login(pooler) as db:
        assert db.execute("SELECT session_user").fetchone() == ("tlsonly",)


def test_an_attacker_between_both_is_detected(start_pooler, tls_pg, certificates):
    """An attacker with a certificate that pgweir accepts, since it verifies none, passes all bytes on to the right
    server.
    """
    front = Impostor(tls_pg, certificates.other_site)
    try:
        pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg, port=front.port), server_tls_sslmode="require",
                              server_tls_negotiation="direct")
        with pytest.raises(psycopg.OperationalError) as caught:
            login(pooler, connect_timeout=5)
        assert "channel binding" in str(caught.value) + pooler.log()
    finally:
        front.close()


class Impostor(DirectFront):
    """Uses TLS with both sides."""

    def _serve(self, client):
        import socket
        try:
            near = self.context.wrap_socket(client, server_side=True)
            far = certs.tls_socket(self.pg.host, self.pg.port)
        except OSError:
            return
        near.settimeout(0.01)
        far.settimeout(0.01)
        while True:
            for source, target in ((near, far), (far, near)):
                try:
                    data = source.recv(65536)
                except (TimeoutError, socket.timeout):
                    continue
                except OSError:
                    data = b""
                if not data:
                    near.close()
                    far.close()
                    return
                target.sendall(data)


def test_replication(start_pooler, tls_pg, folder):
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="require")
    where = f"host=127.0.0.1 port={pooler.port} user=tlsonly dbname=app replication=database"
    psql = f"{clusters.bindir(15)}/psql"
    done = subprocess.run([psql, "-XAtc", "IDENTIFY_SYSTEM", where], capture_output=True, text=True)
    assert done.returncode == 0 and "|app" in done.stdout, done.stderr


def test_servers_move_between_workers(start_pooler, tls_pg):
    """Servers move to other workers with the state of their encryption."""
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg, pool_size=2), workers=2,
                          server_tls_sslmode="require")
    failures = []

    def work(seed):
        try:
            with pooler.connect() as db:
                for n in range(150):
                    size = (seed * 7919 + n * 104_729) % 40_000
                    assert db.execute("SELECT repeat('x', %s)", (size,)).fetchone()[0] == "x" * size
        except (psycopg.Error, AssertionError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_error_of_a_terminated_server_is_forwarded(start_pooler, tls_pg):
    pooler = start_pooler(tls_pg, users=USERS, databases=at(tls_pg), server_tls_sslmode="require")
    with pooler.connect() as db:
        pid = db.execute("SELECT pg_backend_pid()").fetchone()[0]
        tls_pg.run("SELECT pg_terminate_backend(%s)", pid)
        machine.wait_until(lambda: pid not in tls_pg.backends(), what="the server ends")
        assert db.execute("SELECT 1").fetchone() == (1,)
        db.execute("BEGIN")
        pid = db.execute("SELECT pg_backend_pid()").fetchone()[0]
        tls_pg.run("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg.errors.AdminShutdown):
            db.execute("SELECT 1")
