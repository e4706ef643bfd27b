"""The pooler under test: its files, its process, and the checks at the end of each test."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

import cluster as clusters
import machine
from rawclient import LoginRefused, RawClient

ROOT = Path(__file__).resolve().parent.parent


def binary():
    """The program under test: PGWEIR_BIN, or the workspace's quick build."""
    named = os.environ.get("PGWEIR_BIN")
    target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
    path = Path(named) if named else Path(target) / "quick" / "pgweir"
    if not path.exists():
        raise RuntimeError(f"{path} does not exist: `cargo build --profile quick`, or set PGWEIR_BIN")
    return path.resolve()


def is_pgbouncer():
    """Returns whether the tests run against PgBouncer, which checks the tests themselves."""
    done = subprocess.run([binary(), "--version"], capture_output=True, text=True)
    return done.stdout.startswith("PgBouncer")


def default_users():
    """The userlist that most tests use: every role's password in the clear."""
    users = {role: password or "" for role, (password, _) in clusters.ROLES.items()}
    return users | {"admin": "admin password", "stats": "stats password"}


def _quote(text):
    return '"' + text.replace('"', '""') + '"'


class Pooler:
    """A pooler in front of a cluster; `settings` are lines of [pgbouncer]."""

    def __init__(self, program, folder, pg, *, databases=None, users=None, users_section=None,
                 peers=None, workers=2, port=None, pgbouncer=False, **settings):
        self.program = program
        self.folder = folder
        self.pg = pg
        self.pgbouncer = pgbouncer
        self.host = "127.0.0.1"
        self.port = port or machine.free_port()
        self._owns_port = port is None
        self.log_path = folder / "pooler.log"
        self.ini_path = folder / "pgweir.ini"
        self.userlist_path = folder / "userlist.txt"
        self.databases = databases if databases is not None else self._default_databases()
        self.users = default_users() if users is None else users
        self.users_section = users_section or {}
        self.peers = peers or {}
        self.settings = {
            "listen_addr": self.host, "listen_port": self.port, "unix_socket_dir": str(folder),
            "auth_type": "trust", "auth_file": str(self.userlist_path), "pool_mode": "transaction",
            "default_pool_size": 5, "max_client_conn": 1000,
            "admin_users": "admin", "stats_users": "stats",
        }
        if not pgbouncer:
            self.settings["workers"] = workers
            # With the default, one worker would serve the low load of a test, and the other would have no clients.
            self.settings["worker_busy_target"] = 0
            if driver := os.environ.get("PGWEIR_IO_DRIVER"):
                self.settings["io_driver"] = driver
        self.settings |= settings
        self.process = None
        # The earlier processes of an online restart.
        self.earlier = []
        self.ended = False

    def _default_databases(self):
        if self.pg is None:
            return {}
        where = f"host={self.pg.host} port={self.pg.port}"
        return {name: f"{where} dbname={name}" for name in clusters.DATABASES}

    # -- files

    def write_files(self):
        """Writes ini and userlist from `settings`, `databases`, `users`."""
        lines = ["[databases]"]
        lines += [f"{name} = {value}" for name, value in self.databases.items()]
        if self.users_section:
            lines += ["[users]"]
            lines += [f"{name} = {value}" for name, value in self.users_section.items()]
        if self.peers:
            lines += ["[peers]"]
            lines += [f"{number} = {value}" for number, value in self.peers.items()]
        lines += ["[pgbouncer]"]
        lines += [f"{key} = {value}" for key, value in self.settings.items() if value is not None]
        self.write_ini("\n".join(lines) + "\n")
        self.write_userlist(
            "".join(f"{_quote(user)} {_quote(word)}\n" for user, word in self.users.items()))

    def write_ini(self, text):
        self.ini_path.write_text(text)
        machine.give_to_service(self.ini_path)

    def write_userlist(self, text):
        self.userlist_path.write_text(text)
        machine.give_to_service(self.userlist_path)

    # -- process

    def spawn(self, *flags, nofile=None, as_root=False, within=()):
        """Starts the program under the service account, if possible, and does not wait until it listens. `within` is a
        command that runs another one in its place: here, the program.
        """
        if self.process is not None:
            self.earlier.append(self.process)
        limit = [*within, *(["prlimit", f"--nofile={nofile}"] if nofile else [])]
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [*limit, str(self.program), *flags, str(self.ini_path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=self.folder, **({} if as_root else machine.as_service()),
            )
        return self

    def start(self, *flags, nofile=None):
        """Writes the files, starts the program, and waits until it listens."""
        self.write_files()
        return self.spawn(*flags, nofile=nofile).listening()

    def listening(self):
        """Waits until the process accepts connections on all its addresses."""
        machine.wait_until(self._listens, 20, "the pooler listens")
        return self

    def _listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the pooler ended at start:\n{self.log_tail()}")
        try:
            if self.settings["listen_addr"]:
                self.socket().close()
            if self.settings["unix_socket_dir"] == str(self.folder):
                RawClient.unix(self.unix_path).close()
        except OSError:
            return False
        return True

    def socket(self, timeout=10):
        """Opens a TCP connection, and sends nothing."""
        return RawClient.tcp(self.host, self.port, timeout)

    @property
    def unix_path(self):
        return str(self.folder / f".s.PGSQL.{self.port}")

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def wait_end(self, seconds=10):
        """Waits until the process ends without a signal, and returns its exit code."""
        self.process.wait(seconds)
        self.ended = True
        return self.process.returncode

    def finish(self):
        """Runs the checks that follow every test, and ends the process."""
        if self.process is None:
            machine.release_port(self.port)
            return
        code = self.process.poll()
        try:
            if not self.ended:
                assert code is None, f"the pooler died with {code}:\n{self.log_tail()}"
                self.signal(signal.SIGTERM if self.pgbouncer else signal.SIGQUIT)
                code = self.process.wait(10)
                if not self.pgbouncer:
                    assert code == 0, f"exit code {code} after QUIT:\n{self.log_tail()}"
        finally:
            for process in [*self.earlier, self.process]:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if self._owns_port:
                machine.release_port(self.port)
        assert "panic" not in self.log(), self.log_tail()

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines=40):
        return machine.tail(self.log_path, lines)

    def expect_log(self, text, seconds=5):
        """Waits until the log holds `text`."""
        machine.wait_until(lambda: text in self.log(), seconds, f"{text!r} in the log")

    def memory_kb(self):
        """Resident memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def rings(self):
        """The number of io_uring's rings that the process has open."""
        opened = []
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            # A descriptor may be closed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                opened.append(os.readlink(path))
        return opened.count("anon_inode:[io_uring]")

    # -- clients

    def connect(self, user="trusty", dbname="app", **options):
        """A psycopg connection in autocommit, without prepared statements."""
        options = {"host": self.host, "port": self.port, "connect_timeout": 20,
                   "prepare_threshold": None} | options
        return psycopg.connect(user=user, dbname=dbname, autocommit=True, **options)

    def raw(self, user="trusty", dbname="app", password=None, timeout=20, **parameters):
        """A raw client, logged in."""
        client = self.socket(timeout)
        client.login(user, dbname, password, **parameters)
        return client

    def login_error(self, user="trusty", dbname="app", password=None, **parameters):
        """Returns the error that a refused client receives, of type `LoginRefused`."""
        with pytest.raises(LoginRefused) as caught:
            self.raw(user, dbname, password, **parameters)
        return caught.value

    def is_listening(self):
        """Returns whether the pooler accepts TCP connections."""
        try:
            self.socket().close()
        except OSError:
            return False
        return True

    def console(self, command, user="admin", dbname="pgbouncer"):
        """Runs a console command. Returns the rows as a list of dicts, which may be empty. Before SHOW PINS, it waits
        until pgweir has inspected the sessions.
        """
        if command.startswith("SHOW PIN"):
            self.settle()
        with self.connect(user, dbname, password=self.users.get(user),
                          row_factory=dict_row) as db:
            cursor = db.execute(command)
            return cursor.fetchall() if cursor.description else []

    def settle(self):
        """Waits until no client keeps a server whose session has to be inspected."""
        def are_settled():
            rows = self.console("SHOW SERVERS")
            return not any(row["mode"] in ("kept", "settling") for row in rows)
        machine.wait_until(are_settled, 10, "all sessions are settled")

    def setting(self, name):
        """Returns the value of a setting in SHOW CONFIG."""
        return {row["key"]: row["value"] for row in self.console("SHOW CONFIG")}[name]

    def pool(self, database="app", user="trusty"):
        """The row of SHOW POOLS of one pool, or None."""
        for row in self.console("SHOW POOLS"):
            if (row["database"], row["user"]) == (database, user):
                return row
        return None
