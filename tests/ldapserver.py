"""A slapd of a test's own, with a few users, and TLS by a certificate that is made for it."""

import shutil
import subprocess
from pathlib import Path

import machine

SLAPD = shutil.which("slapd") or "/usr/sbin/slapd"
BASE = "dc=example,dc=net"
MANAGER, MANAGER_PASSWORD = f"cn=Manager,{BASE}", "manager secret"

CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
pidfile {folder}/slapd.pid
TLSCACertificateFile {folder}/cert.pem
TLSCertificateFile {folder}/cert.pem
TLSCertificateKeyFile {folder}/key.pem
access to attrs=userPassword by anonymous auth by * none
access to * by users read by anonymous {anonymous}
database ldif
directory {folder}/data
suffix "{base}"
rootdn "{manager}"
rootpw "{password}"
"""

USER = """
dn: uid={name},{base}
objectClass: inetOrgPerson
uid: {name}
sn: {name}
cn: {name}
mail: {name}@example.net
userPassword: {password}
"""


class LdapServer:
    """Listens on `port` (and with TLS from the start on `tls_port`) until it is stopped."""

    def __init__(self, folder, users, anonymous="read"):
        self.folder = Path(folder)
        self.port, self.tls_port = machine.free_port(), machine.free_port()
        (self.folder / "data").mkdir()
        run = lambda *command: subprocess.run(command, check=True, capture_output=True, cwd=self.folder)
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
            "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext", "basicConstraints=critical,CA:FALSE")
        (self.folder / "slapd.conf").write_text(CONFIG.format(
            folder=self.folder, base=BASE, manager=MANAGER, password=MANAGER_PASSWORD, anonymous=anonymous))
        entries = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n"
        for name, password in users.items():
            entries += USER.format(name=name, base=BASE, password=password)
        (self.folder / "entries.ldif").write_text(entries)
        run(Path(SLAPD).with_name("slapadd"), "-f", "slapd.conf", "-l", "entries.ldif")
        for path in [self.folder, *self.folder.rglob("*")]:
            machine.give_to_service(path)
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        with open(self.folder / "slapd.log", "w") as log:
            self.process = subprocess.Popen([SLAPD, "-f", "slapd.conf", "-h", urls, "-d", "0"], stdout=log,
                                            stderr=log, cwd=self.folder, **machine.as_service())
        machine.wait_until(lambda: not machine.is_free(self.port) and not machine.is_free(self.tls_port), 20,
                           "slapd listens")

    def stop(self):
        self.process.kill()
        self.process.wait()
        for port in (self.port, self.tls_port):
            machine.release_port(port)
