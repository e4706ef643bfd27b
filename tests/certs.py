"""Certificates, made with the openssl command: authorities, and what they sign."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import machine


def _openssl(*arguments, **more):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")


@dataclass
class Site:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, folder, name):
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.key = self.folder / "ca.key"
        self.cert = self.folder / "ca.crt"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 30,
                 "-subj", f"/O=Works/CN={name}", "-keyout", self.key, "-out", self.cert,
                 "-addext", "basicConstraints=critical,CA:TRUE")
        machine.give_to_service(self.cert)
        self._serial = 1

    def issue(self, cn, *, names=(), key_of=None, version1=False, rsa=False, expired=False):
        """A certificate for `cn` (`one/CN=two` has two names); `names` are alternative names such as DNS:localhost."""
        self._serial += 1
        base = self.folder / f"{cn.replace('/', '-')}-{self._serial}"
        site = Site(base.with_suffix(".crt"), key_of.key if key_of else base.with_suffix(".key"))
        request = base.with_suffix(".csr")
        newkey = ["-newkey", "rsa:2048"] if rsa else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        key = ["-key", site.key] if key_of else [*newkey, "-keyout", site.key]
        _openssl("req", "-new", *key, "-nodes", "-subj", f"/O=Works/CN={cn}", "-out", request)
        extensions = []
        if expired:
            self._sign_for_the_past(request, site.cert)
        elif not version1:
            listed = base.with_suffix(".ext")
            lines = ["basicConstraints=CA:FALSE"]
            if names:
                lines.append("subjectAltName=" + ",".join(names))
            listed.write_text("\n".join(lines) + "\n")
            extensions = ["-extfile", listed]
        if not expired:
            _openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-set_serial", self._serial,
                     "-days", 30, "-out", site.cert, *extensions)
        for path in (site.cert, site.key):
            path.chmod(0o600)
            machine.give_to_service(path)
        return site

    def revoke(self, *sites, expired=False):
        """A list of revoked certificates, in a file of its own."""
        self._serial += 1
        books = self.folder / f"revoked-{self._serial}"
        books.mkdir()
        (books / "index.txt").touch()
        (books / "crlnumber").write_text(f"{self._serial:02x}\n")
        config = books / "config"
        config.write_text(f"[ca]\ndefault_ca=books\n[books]\ndatabase={books}/index.txt\ndefault_md=sha256\n"
                          f"crlnumber={books}/crlnumber\n")
        own = ["-config", config, "-cert", self.cert, "-keyfile", self.key]
        for site in sites:
            _openssl("ca", *own, "-revoke", site.cert)
        when = ["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200102000000Z"] if expired else ["-crldays", 30]
        _openssl("ca", *own, "-gencrl", "-out", books / "list.pem", *when)
        machine.give_to_service(books)
        machine.give_to_service(books / "list.pem")
        return books / "list.pem"

    def _sign_for_the_past(self, request, cert):
        """Signs a certificate with a validity in the past: only `openssl ca` accepts dates."""
        books = self.folder / f"books-{self._serial}"
        books.mkdir()
        (books / "index.txt").touch()
        config = books / "config"
        config.write_text(f"[ca]\ndefault_ca=books\n[books]\ndatabase={books}/index.txt\nnew_certs_dir={books}\n"
                          "rand_serial=yes\ndefault_md=sha256\npolicy=any\nx509_extensions=leaf\n"
                          "[any]\norganizationName=optional\ncommonName=supplied\n[leaf]\nbasicConstraints=CA:FALSE\n")
        _openssl("ca", "-batch", "-config", config, "-cert", self.cert, "-keyfile", self.key, "-in", request, "-out", cert,
                 "-notext", "-startdate", "20200101000000Z", "-enddate", "20200102000000Z")


def self_signed(folder, cn):
    """Makes a self-signed certificate as PostgreSQL's manual describes it."""
    site = Site(folder / f"self-{cn}.crt", folder / f"self-{cn}.key")
    _openssl("req", "-new", "-x509", "-days", 30, "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={cn}",
             "-out", site.cert, "-keyout", site.key)
    for path in (site.cert, site.key):
        path.chmod(0o600)
        machine.give_to_service(path)
    return site


def served(host, port, *, startup=b"\0\0\0\x08\x04\xd2\x16\x2f", **options):
    """The certificate (PEM) that a server at this address shows."""
    with tls_socket(host, port, startup=startup, **options) as wrapped:
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(True))


def tls_socket(host, port, *, startup=b"\0\0\0\x08\x04\xd2\x16\x2f", alpn=None, cert=None, versions=None,
               resume=None):
    """Opens a TLS connection that verifies nothing. It sends `startup` (an SSLRequest) first, unless that is empty.
    `resume` is an earlier connection whose TLS session is resumed.
    """
    import socket
    context = resume.context if resume else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    if cert:
        context.load_cert_chain(cert.cert, cert.key)
    if versions:
        context.minimum_version = context.maximum_version = versions
    plain = socket.create_connection((host, port), 10)
    try:
        if startup:
            plain.sendall(startup)
            answer = plain.recv(1)
            assert answer == b"S", answer
        return context.wrap_socket(plain, session=resume and resume.session)
    except BaseException:
        plain.close()
        raise
