"""Settings that no other module tests, each by its effect."""

import contextlib
import ctypes
import os
import socket
import stat
import struct
import subprocess
import threading
import time

import psycopg
import pytest

import fakeserver as fake
import machine
import rawclient as wire
import scram
from rawclient import LoginRefused, query

BACKEND = "SELECT pg_backend_pid()"


# -- sockets

PIDFD_GETFD = 438


def sockets_of(pid):
    """Duplicates of all sockets that a process has open."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            copy = libc.syscall(PIDFD_GETFD, process, int(name), 0)
            if copy < 0 and ctypes.get_errno() == 1:
                pytest.skip("this machine does not let us look at another process's sockets")
            if copy >= 0:
                found.append(socket.socket(fileno=copy))
    finally:
        os.close(process)
    return found


def tcp_sockets(pooler):
    """Returns the pooler's sockets: to clients, to servers, and listening."""
    clients, servers, listening = [], [], []
    for sock in sockets_of(pooler.pid):
        if sock.family == socket.AF_UNIX:
            continue
        try:
            peer = sock.getpeername()
        except OSError:
            listening.append(sock)
            continue
        (servers if peer[1] == pooler.pg.port else clients).append(sock)
    return clients, servers, listening


TCP = socket.IPPROTO_TCP
OPTIONS = [
    ("tcp_keepcnt", 7, TCP, socket.TCP_KEEPCNT), ("tcp_keepidle", 77, TCP, socket.TCP_KEEPIDLE),
    ("tcp_keepintvl", 17, TCP, socket.TCP_KEEPINTVL),
    ("tcp_user_timeout", 54_321, TCP, socket.TCP_USER_TIMEOUT),
]


@pytest.mark.shows("tcp_keepalive", "tcp_keepcnt", "tcp_keepidle", "tcp_keepintvl", "tcp_user_timeout")
def test_keepalive(start_pooler, newest_pg):
    """Keepalive is set on both sides, if the settings demand it."""
    pooler = start_pooler(newest_pg, **{name: value for name, value, _, _ in OPTIONS})
    with pooler.raw() as client:
        client.value("SELECT 1")
        clients, servers, _ = tcp_sockets(pooler)
        assert clients and servers
        for sock in clients + servers:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for name, value, level, option in OPTIONS:
                assert sock.getsockopt(level, option) == value, name
    off = start_pooler(newest_pg, tcp_keepalive=0)
    with off.raw() as client:
        client.value("SELECT 1")
        clients, servers, _ = tcp_sockets(off)
        for sock in clients + servers:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


@pytest.mark.shows("tcp_socket_buffer")
def test_socket_buffer(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, tcp_socket_buffer=30_000)
    with pooler.raw() as client:
        client.value("SELECT 1")
        clients, servers, _ = tcp_sockets(pooler)
        for sock in clients + servers:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # the kernel counts twice
                assert sock.getsockopt(socket.SOL_SOCKET, option) == 60_000


@pytest.mark.shows("listen_backlog")
def test_listen_backlog(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, listen_backlog=37)
    _, _, listening = tcp_sockets(pooler)
    assert listening
    for sock in listening:
        info = sock.getsockopt(TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("I", info, 28)[0] == 37  # tcpi_sacked of one that listens


@pytest.mark.shows("unix_socket_mode")
@pytest.mark.parametrize("mode", ["0700", "0770"])
def test_unix_socket_mode(start_pooler, newest_pg, mode):
    pooler = start_pooler(newest_pg, unix_socket_mode=mode)
    found = stat.S_IMODE(os.stat(pooler.folder / f".s.PGSQL.{pooler.port}").st_mode)
    assert found == int(mode, 8)


# -- sizes


@pytest.mark.shows("startup_packet_limit")
@pytest.mark.pgweir_only("has no such setting")
def test_startup_packet_limit(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, startup_packet_limit=2000)
    assert pooler.raw(application_name="x" * 1500).value("SELECT 1") == "1"
    with pytest.raises((LoginRefused, wire.Closed)):
        pooler.raw(application_name="x" * 2500)
    roomy = start_pooler(newest_pg, startup_packet_limit=5000)
    assert roomy.raw(application_name="x" * 2500).value("SELECT 1") == "1"


@pytest.mark.shows("read_buffer")
@pytest.mark.pgweir_only("has no such setting")
def test_read_buffer(start_pooler, newest_pg):
    """How much memory a worker reads into, when there is more to be read than fits."""
    def growth(size):
        pooler = start_pooler(newest_pg, workers=1, read_buffer=size, tcp_socket_buffer=400_000)
        with pooler.raw(timeout=30) as client:
            client.value("SELECT 1")
            before = pooler.memory_kb()
            for _ in range(5):
                client.query(f"SELECT repeat('x', {4 << 20})")
            return pooler.memory_kb() - before

    assert growth(1 << 20) > growth(16_384) + 64


@pytest.mark.shows("io_driver")
@pytest.mark.pgweir_only("has no such setting")
@pytest.mark.parametrize("driver", ["auto", "epoll", "io_uring"])
def test_io_driver(start_pooler, newest_pg, driver):
    """The worker's descriptors show which driver it uses. If the kernel denies io_uring, the log says so."""
    pooler = start_pooler(newest_pg, workers=2, io_driver=driver)
    with pooler.raw() as client:
        for number in range(20):
            assert client.value(f"SELECT {number}") == str(number)
        assert client.value("SELECT length(repeat('x', 3000000))") == "3000000"
    rings = pooler.rings()
    if driver == "epoll":
        assert rings == 0
    elif rings == 0:
        pooler.expect_log("io_uring is not available")
    else:
        assert rings == 2


@pytest.mark.shows("io_uring_buffers")
@pytest.mark.pgweir_only("has no such setting")
def test_io_uring_buffers(start_pooler, newest_pg):
    """The number is rounded up to a power of two, and is a part of the memory in SHOW MEM."""
    def buffer_bytes(count):
        pooler = start_pooler(newest_pg, workers=1, io_driver="io_uring", io_uring_buffers=count)
        if "io_uring is not available" in pooler.log():
            pytest.skip("the kernel forbids io_uring")

        def published():
            rows = {row["name"]: row["memtotal"] for row in pooler.console("SHOW MEM")}
            return rows["io_uring_buffer"]
        return machine.wait_until(published, what="the worker has measured its memory")

    few, many = buffer_bytes(8), buffer_bytes(100)
    # The queues take 192 kB.
    assert 20 * 16_384 < few < 30 * 16_384
    assert 119 * 16_384 < many - few < 121 * 16_384


@pytest.mark.shows("scram_iterations")
@pytest.mark.pgweir_only("before 1.24: has no such setting")
def test_scram_iterations(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256", scram_iterations=5432)
    client = pooler.raw("scrammed", password="scram password")
    (challenge,) = [m.body for m in client.login_messages if m.kind == "R" and m.body[3] == 11]
    assert challenge.endswith(b",i=5432")


@pytest.mark.shows("scram_threads", "scram_queue")
@pytest.mark.pgweir_only("derives keys between queries")
def test_scram_keys_are_derived_on_threads(start_pooler, newest_pg):
    """One key is being derived, another waits, and a third is refused. A client that needs no key can log in."""
    users = {"admin": scram.secret("x")} | {f"u{number}": "clear text" for number in range(4)}
    pooler = start_pooler(newest_pg, auth_type="scram-sha-256", users=users, client_login_timeout=5,
                          scram_iterations=200_000_000, scram_threads=1, scram_queue=1)
    outcomes = []

    def log_in(user):
        try:
            pooler.raw(user, password="clear text")
        except wire.LoginRefused as error:
            outcomes.append(error.words)

    def derivations():
        with pooler.connect("admin", "pgbouncer", password="x", row_factory=psycopg.rows.dict_row) as db:
            [row] = [row for row in db.execute("SHOW INTERNAL").fetchall() if row["task"] == "scram_keys"]
            return tuple(row[name] for name in ("active", "waiting", "active_max", "waiting_max", "refused"))

    assert derivations() == (0, 0, 1, 1, 0)
    logins = [threading.Thread(target=log_in, args=[user]) for user in users if user != "admin"]
    for login, (active, waiting, refused) in zip(logins, [(1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2)]):
        login.start()
        machine.wait_until(lambda: derivations() == (active, waiting, 1, 1, refused), what="the login is in its place")
    for login in logins:
        login.join()
    assert sorted(outcomes) == ["client_login_timeout"] * 2 + ["too many logins at once"] * 2


# -- settings of a database and of a user


@pytest.mark.shows("database.application_name", "database.client_encoding")
def test_parameters_of_a_database(start_pooler, pg):
    entry = pg.entry("application_name=of_the_database client_encoding=LATIN1", dbname=None)
    pooler = start_pooler(pg, databases={"app": entry})
    with pooler.raw() as client:
        assert client.value("SHOW client_encoding") == "LATIN1"
        names = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert client.value(names) == "of_the_database"


@pytest.mark.shows("database.server_lifetime")
def test_server_lifetime_of_a_database(start_pooler, newest_pg):
    databases = {"app": newest_pg.entry("server_lifetime=1", dbname=None), "other": newest_pg.entry(dbname=None)}
    pooler = start_pooler(newest_pg, databases=databases, default_pool_size=1)
    short, long = pooler.raw(), pooler.raw(dbname="other")
    before, stays = short.value(BACKEND), long.value(BACKEND)
    machine.wait_until(lambda: short.value(BACKEND) != before, 10, "a fresh server")
    assert long.value(BACKEND) == stays


@pytest.mark.shows("user.pool_size")
def test_pool_size_of_a_user(start_pooler, newest_pg):
    """The user's value takes precedence over the database's."""
    pooler = start_pooler(newest_pg, databases={"app": newest_pg.entry("pool_size=1")},
                          users_section={"trusty": "pool_size=3"})
    clients = [pooler.raw() for _ in range(3)]
    for client in clients:
        client.query("BEGIN")
    assert len({client.value(BACKEND) for client in clients}) == 3
    extra = pooler.raw()
    extra.send(query("SELECT 1"))
    extra.quiet()
    clients[0].query("COMMIT")
    assert wire.value(extra.until_ready()) == "1"


@pytest.mark.shows("autodb_idle_timeout")
def test_autodb_idle_timeout(start_pooler, newest_pg):
    """A database that was created from `*` is forgotten after this time without use."""
    pooler = start_pooler(newest_pg, databases={"*": newest_pg.entry(dbname=None)}, autodb_idle_timeout=1,
                          server_idle_timeout=1)

    def known():
        return {row["name"] for row in pooler.console("SHOW DATABASES")}

    with pooler.raw() as client, pooler.raw():
        assert client.value("SELECT current_database()") == "app"
        assert "app" in known()
        assert pooler.log().count("registered new auto-database: app") == 1
        machine.stays_true(lambda: "app" in known(), 1.5, "it is known while it is in use")
    machine.wait_until(lambda: "app" not in known(), 10, "it is forgotten")
    assert pooler.raw().value("SELECT current_database()") == "app"


# -- servers that refuse logins


@pytest.mark.shows("server_login_retry")
@pytest.mark.parametrize(("pause", "fewest", "most"), [(1, 2, 4), (30, 1, 1)])
def test_server_login_retry(start_server, start_pooler, pause, fewest, most):
    """After a failure there is a pause, while clients wait."""
    tries = []
    server = start_server(lambda connection: tries.append(time.monotonic()))
    pooler = start_pooler(None, databases={"bad": server.database}, server_login_retry=pause,
                          query_wait_timeout=3, users={"trusty": "x", "admin": "admin password"})
    for _ in machine.every(0.05, until=machine.after(2.5)):
        with contextlib.suppress(LoginRefused, wire.Closed, TimeoutError):
            pooler.raw(dbname="bad", timeout=3)
    assert fewest <= len(tries) <= most
    for earlier, later in zip(tries, tries[1:], strict=False):
        assert later - earlier > 0.8 * pause


@pytest.mark.shows("cancel_wait_timeout")
def test_cancel_wait_timeout(start_server, start_pooler):
    """pgweir gives up a cancel request that it can't send in time."""
    forever = threading.Event()

    def behave(connection):
        if connection.read_startup() is None:
            forever.wait(20)  # the cancel request is not even read to its end
        connection.send(fake.WELCOME)
        forever.wait(20)

    server = start_server(behave)
    pooler = start_pooler(None, databases={"bad": server.database}, cancel_wait_timeout=1)
    client = pooler.raw(dbname="bad")
    client.send(query("SELECT 1"))
    started = time.monotonic()
    client.cancel()
    assert 0.8 < time.monotonic() - started < 5
    forever.set()


# -- names of hosts


@pytest.fixture
def start_with_hosts(new_pooler, folder):
    """Starts a pooler with its own /etc/hosts. Returns a function that writes this file."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("only root can give a process another /etc/hosts, and not in every container")
    files = [folder / "hosts", folder / "nsswitch.conf"]
    files[1].write_text("hosts: files\npasswd: files\ngroup: files\n")
    within = ["unshare", "--mount", "sh", "-ec", """
        mount --bind "$1" /etc/hosts
        mount --bind "$2" /etc/nsswitch.conf
        shift 2
        exec "$@"
        """, "sh", *map(str, files), *machine.from_root_to_service()]

    def start(hosts, **options):
        files[0].write_text(hosts)
        pooler = new_pooler(None, server_login_retry=0.1, **options)
        pooler.write_files()
        pooler.spawn(as_root=True, within=within).listening()
        return pooler, files[0].write_text

    return start


@pytest.mark.shows("dns_max_ttl")
@pytest.mark.parametrize(("seconds", "moves"), [(1, True), (60, False)])
def test_address_is_kept(start_with_hosts, start_server, seconds, moves):
    """Until `dns_max_ttl` has passed, new connections go to the old address of a name."""
    def speaks_of(where):
        def behave(connection):
            if connection.welcome():
                connection.serve(lambda _: fake.answer(where))
        return behave

    old = start_server(speaks_of("old"))
    start_server(speaks_of("new"), host="127.0.0.2", port=old.port)
    entry = f"host=db.test port={old.port}"
    # These servers have no session state.
    pooler, write_hosts = start_with_hosts("127.0.0.1 db.test\n", databases={"app": entry}, server_lifetime=0,
                                           dns_max_ttl=seconds, session_state="off")
    with pooler.raw() as client:
        assert client.value("SELECT 1") == "old"
        write_hosts("127.0.0.2 db.test\n")
        if moves:
            machine.wait_until(lambda: client.value("SELECT 1") == "new", 10, "the new address is used")
        else:
            machine.stays_true(lambda: client.value("SELECT 1") == "old", 2.5, "the old address is used")


@pytest.mark.shows("dns_nxdomain_ttl")
@pytest.mark.parametrize(("seconds", "found"), [(1, True), (60, False)])
def test_missing_name_is_remembered(start_with_hosts, newest_pg, seconds, found):
    pooler, write_hosts = start_with_hosts(
        "127.0.0.1 localhost\n", dns_nxdomain_ttl=seconds, query_wait_timeout=1,
        databases={"app": f"host=db.test port={newest_pg.port}"})

    def query_if_admitted():
        try:
            return pooler.raw(timeout=5).value("SELECT 1")
        except (LoginRefused, wire.Closed):
            return None

    assert query_if_admitted() is None
    write_hosts("127.0.0.1 db.test\n")
    if found:
        assert machine.wait_until(query_if_admitted, 10, "the name is looked up again") == "1"
    else:
        machine.stays_true(lambda: query_if_admitted() is None, 2.5, "the name is not looked up again")


# -- clients that have disconnected


@pytest.mark.shows("abandoned_query_timeout")
@pytest.mark.pgweir_only("has no such setting")
@pytest.mark.parametrize(("seconds", "kept"), [(0.3, False), (10, True)])
def test_abandoned_query(start_pooler, newest_pg, seconds, kept):
    """pgweir waits for this time for a server whose client has disconnected during a query."""
    pooler = start_pooler(newest_pg, default_pool_size=1, abandoned_query_timeout=seconds)
    client = pooler.raw()
    before = client.value(BACKEND)
    client.send(query("SELECT pg_sleep(1.5)"))
    machine.wait_until(lambda: newest_pg.backends("query LIKE '%pg_sleep(1.5)%' AND state = 'active'"),
                       what="it runs")
    client.close()
    with pooler.raw() as other:
        assert (other.value(BACKEND) == before) == kept


@pytest.mark.shows("close_flush_timeout")
@pytest.mark.pgweir_only("has no such setting")
@pytest.mark.parametrize(("seconds", "stays"), [(0.5, False), (30, True)])
def test_close_flush_timeout(start_pooler, newest_pg, seconds, stays):
    """pgweir waits for this time for a client that is being disconnected and does not read."""
    pooler = start_pooler(newest_pg, close_flush_timeout=seconds, query_timeout=1)
    client = pooler.raw(timeout=20)
    client.send(query("SELECT repeat('x', 1000) FROM generate_series(1, 50000)"))
    client.expect("T")  # and no more of it, until all buffers are full
    pooler.expect_log("query timeout", 10)

    def is_open():
        clients, _, _ = tcp_sockets(pooler)
        here = client.sock.getsockname()
        return any(sock.getpeername() == here for sock in clients)

    if stays:
        machine.stays_true(is_open, 1.5, "it is open")
        client.rest()
    machine.wait_until(lambda: not is_open(), 5, "it is closed")


@pytest.mark.shows("user")
def test_user(new_pooler, newest_pg):
    """Started as root, pgweir switches to this user."""
    account = machine.service_account()
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    pooler = new_pooler(newest_pg, user=account.pw_name)
    pooler.write_files()
    pooler.spawn(as_root=True).listening()
    status = dict(line.split(":\t", 1) for line in
                  open(f"/proc/{pooler.pid}/status").read().splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {str(account.pw_uid)}
    assert set(status["Gid"].split()) == {str(account.pw_gid)}
    assert pooler.raw().value("SELECT 1") == "1"
