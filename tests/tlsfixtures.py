"""Fixtures of the TLS tests: certificates, a PostgreSQL with TLS, and one that begins with TLS at once."""

import socket
import ssl
import threading

import psycopg
import pytest

import certs
import cluster as clusters

NAMES = ("DNS:localhost", "IP:127.0.0.1")


class Certificates:
    """An authority that is trusted, another one that is not, and what they have signed."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = certs.Authority(folder, "right")
        self.stranger = certs.Authority(folder, "wrong")
        self.site = self.authority.issue("localhost", names=NAMES)
        self.other_site = self.authority.issue("elsewhere", names=("DNS:elsewhere.example",))
        self.client = self.authority.issue("trusty")
        self.false_client = self.stranger.issue("trusty")

    def pooler(self, mode="require", **more):
        """Settings of a pooler that takes TLS from clients."""
        return {"client_tls_sslmode": mode, "client_tls_key_file": self.site.key,
                "client_tls_cert_file": self.site.cert} | more


@pytest.fixture(scope="session")
def certificates(run_folder):
    folder = run_folder / "certificates"
    folder.mkdir()
    folder.chmod(0o755)
    return Certificates(folder)


@pytest.fixture(scope="session")
def tls_pg(start_cluster, certificates):
    """A PostgreSQL 15 (18's binaries have no TLS) where `tlsonly` needs TLS, `certified` a certificate, `plainonly`
    none of it."""
    made = start_cluster(clusters.VERSIONS[0], "tls")
    with made.connect() as db:
        for role in ("tlsonly", "certified", "plainonly"):
            db.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
        db.execute("ALTER ROLE tlsonly PASSWORD 'tls password'")
    made.stop("fast")
    hba = made.data / "pg_hba.conf"
    lines = ["hostnossl all tlsonly all reject", "hostssl replication tlsonly all trust",
             "hostssl all tlsonly all scram-sha-256", "hostnossl all certified all reject",
             "hostssl all certified all cert", "hostssl all plainonly all reject"]
    hba.write_text("\n".join(lines) + "\n" + hba.read_text())
    made.start(ssl="on", ssl_cert_file=certificates.site.cert, ssl_key_file=certificates.site.key,
               ssl_ca_file=certificates.authority.cert)
    return made


class DirectFront:
    """A proxy that begins with TLS at once, as PostgreSQL 17 can, and forwards everything to a PostgreSQL."""

    def __init__(self, pg, site, alpn=("postgresql",)):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(site.cert, site.key)
        if alpn:
            self.context.set_alpn_protocols(list(alpn))
        self.pg = pg
        # For each connection, whether it has resumed a TLS session.
        self.resumed = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            secure = self.context.wrap_socket(client, server_side=True)
        except OSError:
            return client.close()
        self.resumed.append(secure.session_reused)
        if self.pg is None:
            return secure.close()
        server = socket.create_connection((self.pg.host, self.pg.port))
        # Python's TLS sockets take no reading and writing at the same time: a timeout takes turns.
        secure.settimeout(0.01)
        threading.Thread(target=self._back, args=(server, secure), daemon=True).start()
        while True:
            try:
                data = secure.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                return server.close()
            server.sendall(data)

    @staticmethod
    def _back(server, secure):
        try:
            while data := server.recv(65536):
                secure.sendall(data)
            secure.close()
        except OSError:
            pass

    def close(self):
        self.listener.close()


def connect(pooler, sslmode="require", **options):
    """A client over TLS."""
    return pooler.connect(**({"host": "127.0.0.1", "sslmode": sslmode} | options))


def connect_error(pooler, **options):
    """Returns the error that a refused client receives."""
    with pytest.raises(psycopg.OperationalError) as caught:
        connect(pooler, **options).close()
    return str(caught.value)
