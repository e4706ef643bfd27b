"""TLS sessions that are resumed: a new connection without a new exchange of certificates."""

import ssl

import pytest

import certs
import rawclient as wire
from test_tls_servers import at
from tlsfixtures import DirectFront

pytestmark = pytest.mark.pgweir_only("Debian's PgBouncer resumes no sessions")


def login(pooler, resume=None, version=ssl.TLSVersion.TLSv1_3):
    """A client that has had its first answer: with TLS 1.3 what it may resume with comes after the handshake."""
    client = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, versions=version, resume=resume), None)
    client.login("trusty", "app")
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_sessions_with_clients_are_resumed(start_pooler, newest_pg, certificates, version):
    pooler = start_pooler(newest_pg, **certificates.pooler())
    first = login(pooler, version=version)
    assert not first.sock.session_reused
    second = login(pooler, first.sock, version)
    assert second.sock.session_reused
    # A reload that does not change TLS keeps the sessions. With another certificate, old sessions can't be resumed.
    pooler.console("RELOAD")
    third = login(pooler, second.sock, version)
    assert third.sock.session_reused
    pooler.settings |= {"client_tls_key_file": certificates.other_site.key,
                        "client_tls_cert_file": certificates.other_site.cert}
    pooler.write_files()
    pooler.console("RELOAD")
    fourth = login(pooler, third.sock, version)
    assert not fourth.sock.session_reused
    for client in first, second, third, fourth:
        client.close()


def test_a_session_does_not_outlive_the_certificate_that_was_asked(start_pooler, newest_pg, certificates):
    """A client with a certificate keeps its identity when the session is resumed, and no other client gets it."""
    pooler = start_pooler(newest_pg, **certificates.pooler("verify-full"), auth_type="cert",
                          client_tls_ca_file=certificates.authority.cert)
    socket = certs.tls_socket(pooler.host, pooler.port, cert=certificates.client)
    client = wire.RawClient(socket, None)
    client.login("trusty", "app")
    again = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, resume=socket), None)
    assert again.sock.session_reused
    again.login("trusty", "app")
    other = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, resume=socket), None)
    other.send(wire.startup(user="admin", database="app"))
    assert "certificate authentication failed" in other.error_and_close().words
    client.close()
    again.close()


@pytest.mark.parametrize("names", ["trusty/CN=admin", "admin/CN=trusty"])
def test_a_certificate_with_two_common_names_names_no_user(start_pooler, newest_pg, certificates, names):
    """Programs differ in which of the names they use, so pgweir accepts neither."""
    pooler = start_pooler(newest_pg, **certificates.pooler("verify-full"), auth_type="cert",
                          client_tls_ca_file=certificates.authority.cert)
    site = certificates.authority.issue(names)
    for user in ("trusty", "admin"):
        client = wire.RawClient(certs.tls_socket(pooler.host, pooler.port, cert=site), None)
        client.send(wire.startup(user=user, database="app"))
        assert "certificate authentication failed" in client.error_and_close().words


def test_tls_sessions_with_servers_are_resumed(start_pooler, newest_pg, certificates):
    front = DirectFront(newest_pg, certificates.site)
    try:
        pooler = start_pooler(newest_pg, databases=at(newest_pg, port=front.port), server_tls_sslmode="verify-full",
                              server_tls_negotiation="direct", server_tls_ca_file=certificates.authority.cert)
        with pooler.connect() as db:
            db.execute("SELECT 1")
            pooler.console("RECONNECT")
            db.execute("SELECT 1")
        assert front.resumed[0] is False and front.resumed[-1] is True
    finally:
        front.close()
