"""`pgweir top`: one plain frame, and the display in a terminal (tmux), before pgweir and before PgBouncer."""

import os
import re
import shutil
import signal
import subprocess

import pytest

import machine
import pooler as poolers
import rawclient as wire
from pooler import Pooler

TOP = "top"
PGBOUNCER = "/usr/sbin/pgbouncer"
pytestmark = pytest.mark.pgweir_only("`top` is a command of pgweir")


@pytest.fixture
def environment(tmp_path):
    """An environment without the settings of the user who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG") and name not in ("COLUMNS", "NO_COLOR")}
    return kept | {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def command(pooler, *options, user="stats"):
    return [str(poolers.binary()), TOP, "-h", pooler.host, "-p", str(pooler.port), "-U", user, *options]


@pytest.fixture
def once(environment):
    """Runs `pgweir top --once`."""
    def run(pooler, *options, code=0, user="stats", **variables):
        variables = {"PGPASSWORD": pooler.users[user]} | variables if user in pooler.users else variables
        found = subprocess.run([*command(pooler, "--once", "-i", "0.5", *options, user=user)], capture_output=True, text=True,
                               env=environment | {name: value for name, value in variables.items() if value is not None},
                               timeout=60, stdin=subprocess.DEVNULL)
        assert found.returncode == code, found.stderr
        return found.stdout if code == 0 else found.stderr
    return run


@pytest.fixture
def pgbouncer(run_folder, tmp_path, newest_pg):
    """A PgBouncer in front of the same databases."""
    if not os.path.exists(PGBOUNCER):
        pytest.fail("pgbouncer is needed: tools/install-deps")
    folder = run_folder / tmp_path.name
    folder.mkdir()
    machine.give_to_service(folder)
    one = Pooler(PGBOUNCER, folder, newest_pg, pgbouncer=True, auth_type="scram-sha-256", users=poolers.default_users())
    one.start()
    yield one
    one.finish()


class Screen:
    """A terminal of tmux in which a program runs."""

    def __init__(self, folder, arguments, environment, width=140, height=40):
        self._socket = str(folder / f"tmux-{os.urandom(4).hex()}")
        self._environment = environment
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
                   "env", *(f"{name}={environment[name]}" for name in ("PGPASSWORD", "NO_COLOR") if name in environment),
                   *arguments)
        self._tmux("set-option", "remain-on-exit", "on")

    def _tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, env=self._environment, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def text(self, *options):
        return self._tmux("capture-pane", "-p", *options)

    def press(self, *keys):
        self._tmux("send-keys", *keys)

    def resize(self, width, height):
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def wait(self, *texts, gone=()):
        def shown():
            text = self.text()
            return all(one in text for one in texts) and not any(one in text for one in gone) and text
        try:
            return machine.wait_until(shown, 20, f"{texts} on the screen, without {gone}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def has_ended(self):
        return self._tmux("display-message", "-p", "#{pane_dead}").strip() == "1"

    def pid(self):
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def close(self):
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, timeout=20)


@pytest.fixture
def screen(tmp_path, environment):
    """Starts `pgweir top` in a terminal."""
    assert shutil.which("tmux"), "tmux is needed: tools/install-deps"
    opened = []

    def open_one(pooler, *options, width=140, height=40, user="stats", **variables):
        variables = {"PGPASSWORD": pooler.users[user]} | variables
        one = Screen(tmp_path, command(pooler, "-i", "0.5", *options, user=user), environment | variables, width, height)
        opened.append(one)
        return one
    yield open_one
    for one in opened:
        one.close()


# -- one frame

def test_a_plain_frame(start_pooler, newest_pg, once):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256", users=poolers.default_users() | {"trusty": "word"})
    client = pooler.raw(password="word")
    client.value("SELECT 1")
    page = once(pooler)
    assert "\x1b" not in page
    assert f"127.0.0.1:{pooler.port}" in page.splitlines()[0] and "pgweir" in page.splitlines()[0]
    line = next(line for line in page.splitlines() if line.startswith("app / trusty"))
    assert line.split()[3:8] == ["0", "-", "1", "0", "1"], line
    assert "!" not in page
    client.query("BEGIN")
    assert "Statements" in once(pooler, "--view", "statements").splitlines()[3]
    assert "app" in once(pooler, "--view", "hosts")
    assert "This process shares max_server_conn with no other" in once(pooler, "--view", "fleet")
    narrow = once(pooler, COLUMNS="40")
    assert all(len(line) <= 40 for line in narrow.split("Pools")[1].splitlines())


def test_a_waiting_client_and_its_holder(start_pooler, newest_pg, once):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    holder, waiter = pooler.raw(application_name="bad\x1b[2Jname"), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    machine.wait_until(lambda: (pooler.console("SHOW WAITERS") or [{}])[0].get("holder_us", 0) > 1_000_000, what="a long wait")
    page = once(pooler)
    number = pooler.console("SHOW WAITERS")[0]["holder_client_id"]
    assert "! app / trusty: 1 client waits" in page
    assert f"client {number} (application \"bad" in page
    assert f"end the idle transaction of client {number} (KILL_CLIENT {number})" in page
    assert "Clients that wait" in page
    assert "\x1b" not in page


def test_wrong_logins_and_wrong_places(start_pooler, newest_pg, once):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256")
    assert "authentication failed" in once(pooler, code=1, PGPASSWORD="wrong")
    assert "no password" in once(pooler, code=1, PGPASSWORD=None)
    assert "unrecognized configuration parameter" in once(pooler, "-d", "app", code=1, user="scrammed")
    port = machine.free_port()
    error = subprocess.run([poolers.binary(), TOP, "--once", f"postgres://stats@127.0.0.1:{port}/pgbouncer"],
                           capture_output=True, text=True).stderr
    machine.release_port(port)
    assert f"127.0.0.1:{port}" in error and "refused" in error
    error = subprocess.run([poolers.binary(), TOP], capture_output=True, text=True).stderr
    assert "--once" in error


def test_all_ways_to_log_in(start_pooler, newest_pg, environment, tmp_path):
    """URL, environment, password file and Unix socket; with md5 and plain passwords, too."""
    for auth_type in ("md5", "plain", "scram-sha-256"):
        pooler = start_pooler(newest_pg, auth_type=auth_type)
        passwords = tmp_path / f"pgpass-{auth_type}"
        passwords.write_text(f"{pooler.host}:{pooler.port}:pgbouncer:stats:{pooler.users['stats']}\n")
        passwords.chmod(0o600)
        for arguments, variables in [
            ([f"postgres://stats:stats%20password@{pooler.host}:{pooler.port}/pgweir"], {}),
            ([], {"PGHOST": pooler.host, "PGPORT": str(pooler.port), "PGUSER": "stats", "PGPASSFILE": str(passwords)}),
            ([], {"PGHOST": str(pooler.folder), "PGPORT": str(pooler.port), "PGUSER": "stats", "PGPASSWORD": pooler.users["stats"]}),
        ]:
            found = subprocess.run([poolers.binary(), TOP, "--once", "-i", "0.1", *arguments], capture_output=True, text=True,
                                   env=environment | variables)
            assert found.returncode == 0 and "Pools" in found.stdout, (auth_type, arguments, found.stderr)


def test_tls(start_pooler, newest_pg, environment, certificates):
    pooler = start_pooler(newest_pg, **certificates.pooler())

    def run(mode, **variables):
        return subprocess.run([poolers.binary(), TOP, "--once", "-i", "0.1", "-h", "localhost", "-p", str(pooler.port), "-U", "stats"],
                              capture_output=True, text=True, env=environment | {"PGSSLMODE": mode, "PGPASSWORD": pooler.users["stats"]} | variables)
    assert run("require").returncode == 0
    assert run("prefer").returncode == 0
    assert run("disable").returncode == 1
    assert run("verify-full", PGSSLROOTCERT=str(certificates.authority.cert)).returncode == 0
    assert run("verify-full").returncode == 1


def test_pgbouncers_console(pgbouncer, once):
    client = pgbouncer.raw(user="plainly", password=pgbouncer.users["plainly"])
    client.value("SELECT 1")
    page = once(pgbouncer)
    assert "PgBouncer 1.18" in page.splitlines()[0]
    line = next(line for line in page.splitlines() if line.startswith("app / plainly"))
    assert line.split()[3:7] == ["0", "-", "1", "0"], line
    assert "This console does not have them." in once(pgbouncer, "--view", "waiters")
    assert "127.0.0.1" in once(pgbouncer, "--view", "hosts")


# -- in a terminal

def test_views_and_keys(start_pooler, newest_pg, screen):
    pooler = start_pooler(newest_pg, default_pool_size=2)
    holder = pooler.raw(application_name="holder")
    holder.query("BEGIN")
    other = pooler.raw(user="hashed", dbname="other")
    other.value("SELECT 1")
    one = screen(pooler)
    one.wait("app / trusty", "other / hashed", "1 server in use", "active", "q quit")
    one.press("5")
    one.wait("Events, the latest first", "started")
    one.press("4")
    one.wait("Hosts", newest_pg.host, "app", "other")
    one.press("1", "/", "a", "p", "p", "Enter")
    one.wait("[filter: app]", "app / trusty", gone=["other / hashed"])
    one.press("Enter")
    one.wait("Clients (1)", "Servers (1)", "idle in transaction", "holder", "transactions/s")
    one.press("Escape")
    one.press("Escape")
    one.wait("other / hashed")
    one.press("Space")
    one.wait("HELD STILL")
    holder.query("COMMIT")
    machine.wait_until(lambda: pooler.pool()["sv_active"] == 0, what="the server is idle")
    assert "1 server in use" in one.text()
    one.press("Space")
    one.wait("0 servers in use")
    one.press("?")
    one.wait("hold the display still")
    one.press("q", "+")
    one.wait("every 1 s")
    one.resize(50, 12)
    one.wait("app / trusty", gone=["waits for"])
    one.resize(20, 4)
    one.resize(140, 40)
    one.wait("app / trusty", "other / hashed", "every 1 s")
    one.press("q")
    machine.wait_until(one.has_ended, what="top ends")


def test_a_lost_connection(start_pooler, newest_pg, screen):
    pooler = start_pooler(newest_pg)
    one = screen(pooler)
    one.wait("active", "No client has come yet.")
    pooler.signal(signal.SIGQUIT)
    pooler.process.wait(10)
    one.wait("NO CONNECTION for", "trying again")
    pooler.spawn().listening()
    pooler.raw().value("SELECT 1")
    one.wait("active", "app / trusty", gone=["NO CONNECTION"])


def test_colours_and_signals(start_pooler, newest_pg, screen):
    """NO_COLOR switches colours off, and SIGTERM leaves the terminal as it was."""
    pooler = start_pooler(newest_pg)
    one = screen(pooler, NO_COLOR="1")
    one.wait("active")
    assert not re.search(r"\x1b\[[39][0-7]m", one.text("-e")), "no colours"
    os.kill(one.pid(), signal.SIGTERM)
    machine.wait_until(one.has_ended, what="top ends")
    assert "Pools" not in one.text(), "the alternate screen is left"


def test_pgbouncer_in_a_terminal(pgbouncer, screen):
    client = pgbouncer.raw(user="plainly", password=pgbouncer.users["plainly"])
    one = screen(pgbouncer)
    client.value("SELECT 1")
    one.wait("PgBouncer 1.18", "app / plainly")
    one.press("Enter")
    one.wait("Clients (1)", "Servers (1)")
    for key, text in [("2", "This console does not have them."), ("4", "127.0.0.1"), ("6", "This console does not have them.")]:
        one.press(key)
        one.wait(text)


def test_a_client_is_killed(start_pooler, newest_pg, screen):
    """An admin kills a client after a confirmation. A user of stats_users is refused."""
    pooler = start_pooler(newest_pg, default_pool_size=1)
    holder, waiter = pooler.raw(), pooler.raw()
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    for user, outcome in [("stats", "admin access needed"), ("admin", "done")]:
        one = screen(pooler, "--view", "waiters", user=user)
        one.wait("Clients that wait", "idle in transaction")
        number = pooler.console("SHOW WAITERS")[0]["holder_client_id"]
        one.press("K")
        one.wait(f"KILL_CLIENT {number}: disconnect this client at once?")
        one.press("y")
        one.wait(f"KILL_CLIENT {number}: ", outcome)
        one.close()
    assert wire.value(waiter.until_ready()) == "1"
