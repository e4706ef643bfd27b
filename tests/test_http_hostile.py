"""HTTP clients that are slow, invalid or too many: their number and memory are bounded, and no query waits for them."""

import concurrent.futures
import contextlib
import http.client
import re
import socket
import ssl
import subprocess
import threading

import pytest

import machine
import rawclient as wire
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from scraping import ask, get, scrape
from test_api import Api, LOGINS, basic
from test_http import answer_to

pytestmark = pytest.mark.pgweir_only("PgBouncer does not speak HTTP")

HEAD = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


def connection(pooler):
    return socket.create_connection(("127.0.0.1", pooler.http), timeout=20)


def is_closed(sock):
    """Has the other end closed the connection, or answered with an error?"""
    sock.setblocking(False)
    try:
        return sock.recv(1 << 16) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


# -- bytes that are no requests

@pytest.mark.parametrize("request_bytes", [
    b"GET /metrics\r\n\r\n",  # HTTP/0.9
    b"GET /metrics\n\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nnonsense\r\n0\r\n\r\n",
    b"POST /api/v1/commands/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /drain",
    b"\r\n" * 50_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,  # a TLS handshake
    b"\0" * 100_000,
    b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    HEAD + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 1000000000000\r\n\r\n",
    wire.startup(user="trusty", database="app"),
], ids=range(13))
def test_bytes_that_are_no_request(start, request_bytes):
    """pgweir answers such bytes with one status or none, and closes the connection. Nothing else happens."""
    pooler = start()
    answer = answer_to(pooler.http, request_bytes)
    assert answer.count(b"HTTP/1.") <= 1
    assert answer == b"" or re.match(rb"HTTP/1\.[01] (200|4\d\d|505) ", answer), answer[:80]
    assert get(pooler.http, "/readyz").status == 200, "nobody has drained it"
    machine.wait_until(lambda: scrape(pooler.http).value("pgweir_http_connections") == 1, what="it is gone")


def test_tls_garbage(start, certificates):
    pooler = start(**certificates.pooler("require"))
    for garbage in [b"\x16" + b"\xff" * 5000, b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01", b"\x15\x03\x01\x00\x02\x02\x28"]:
        with connection(pooler) as sock:
            # The other end may have closed the connection already.
            with contextlib.suppress(OSError):
                sock.sendall(garbage)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1000):
                    pass
    trusted = ssl.create_default_context(cafile=certificates.authority.cert)
    secure = http.client.HTTPSConnection("localhost", pooler.http, timeout=20, context=trusted)
    assert ask(secure, "/readyz").status == 200


def test_pipelining_gets_one_answer(start):
    pooler = start()
    answer = answer_to(pooler.http, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    assert answer.count(b"HTTP/1.1 200") == 1 and answer.endswith(b"ok\n")


# -- slow clients

def test_slowloris(start):
    """Hundreds of connections that send a byte now and then are closed after http_timeout, and others are served."""
    pooler = start(http_timeout=2, http_max_connections=50)
    # The HTTP thread starts last.
    assert get(pooler.http, "/healthz").status == 200
    threads = pooler_threads(pooler)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connection(pooler)) for _ in range(300)]
        for sock in slow:
            with contextlib.suppress(OSError):
                sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        began = machine.after(2.5)
        for _ in machine.every(0.2, until=began):
            for sock in slow:
                with contextlib.suppress(OSError):
                    sock.send(b"x")
            assert get(pooler.http, "/healthz").status == 200
            assert scrape(pooler.http).value("pgweir_http_connections") <= 50
        machine.wait_until(lambda: all(map(is_closed, slow)), what="all are closed")
    metrics = scrape(pooler.http)
    assert metrics.value("pgweir_http_connections_displaced_total") >= 200
    assert pooler_threads(pooler) <= threads + 2, "no thread for each connection"


def pooler_threads(pooler):
    with open(f"/proc/{pooler.pid}/status") as status:
        return int(re.search(r"Threads:\s+(\d+)", status.read())[1])


def test_slow_bodies_end(start):
    """A request whose body does not come ends after http_timeout. pgweir does not read the body of a request without
    rights.
    """
    pooler = start(http_timeout=1)
    head = ("POST /api/v1/commands/pause HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: {basic('admin', pooler.users['admin'])}\r\nContent-Length: 1000\r\n\r\n").encode()
    with connection(pooler) as sock:
        sock.sendall(head + b'{"database"')
        assert sock.recv(100) == b""
    assert scrape(pooler.http).value("pgweir_http_connections_timed_out_total") == 1
    assert not [row for row in pooler.console("SHOW DATABASES") if row["paused"]]


def test_readers_that_do_not_read(start):
    """If the client does not read the answer, pgweir closes the connection after http_timeout."""
    pooler = start(http_timeout=1, http_max_connections=20)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.connect(("127.0.0.1", pooler.http))
            sock.sendall(HEAD + b"\r\n")
        # While all connections are taken, a scrape is refused.
        def left():
            with contextlib.suppress(AssertionError):
                return scrape(pooler.http).value("pgweir_http_connections")
        machine.wait_until(lambda: left() == 1, what="all are given up")


# -- thousands of clients

def p99(pooler, pg, seconds):
    """The 99th percentile of a pgbench's latency in milliseconds."""
    folder = pooler.folder / "latency"
    folder.mkdir(exist_ok=True)
    machine.give_to_service(folder)
    for old in folder.glob("log*"):
        old.unlink()
    script = pooler.folder / "select.sql"
    script.write_text("SELECT 1;\n")
    done = subprocess.run(
        [pg.binaries.path("pgbench"), "-n", "-c", "2", "-T", str(seconds), "-R", "200", "-f", str(script), "-l",
         f"--log-prefix={folder}/log", "-h", pooler.host, "-p", str(pooler.port), "-U", "trusty", "app"],
        capture_output=True, text=True)
    assert done.returncode == 0 and "number of failed transactions: 0 " in done.stdout, done.stdout + done.stderr
    times = sorted(int(line.split()[2]) for log in folder.glob("log*") for line in log.read_text().splitlines())
    assert len(times) > 100 * seconds
    return times[len(times) * 99 // 100] / 1000


def test_thousands_of_scrapers_delay_no_query(start, newest_pg):
    """A storm of scrapes, slow connections and garbage from other processes: connections and memory stay bounded, and the 99th
    percentile of a pgbench stays in the range of a quiet one."""
    pooler = start(http_max_connections=50)
    pooler.connect().close()
    quiet = p99(pooler, newest_pg, 4)
    before = pooler.memory_kb()
    storm = ("import socket, sys, itertools\n"
             "held = []\n"
             "for n in itertools.count():\n"
             "    try:\n"
             "        s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)\n"
             "        s.sendall([b'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', b'GET /metr', b'\\0' * 1000][n % 3])\n"
             "        s.setblocking(False)\n"
             "        held.append(s)\n"
             "        if len(held) > 400: held.pop(0).close()\n"
             "        if n % 100 == 0: print(n, flush=True)\n"
             "    except OSError: pass\n")
    log = pooler.folder / "storm"
    with open(log, "w") as out:
        storms = [subprocess.Popen(["python3", "-c", storm, str(pooler.http)], stdout=out, stderr=subprocess.DEVNULL) for _ in range(3)]
    try:
        machine.wait_until(lambda: "200\n" in log.read_text(), what="the storm is on")
        loaded = p99(pooler, newest_pg, 4)
        machine.wait_until(lambda: "1000\n" in log.read_text(), 60, "one of them has come a thousand times")
    finally:
        for one in storms:
            one.kill()
            one.wait()
    machine.wait_until(lambda: get(pooler.http, "/healthz").status == 200, what="it answers again")
    # Four processes share the machine's cores, so a part of the delay comes from the scheduler.
    assert loaded < 20 * quiet + 50, (quiet, loaded)
    assert pooler.memory_kb() - before < 50_000
    print(f"p99 of pgbench: {quiet} ms, beside the storm {loaded} ms")


# -- names in labels

NAMES = ['a"b', "new\nline", "back\\slash", "bell\a tab\t", "del\x7f", "é 日本", 'x{y="z"} 1']


def test_hostile_names_in_labels(start, newest_pg):
    """Names with quotes, newlines, control characters and invalid UTF-8 break no line of /metrics."""
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app user=trusty"
    pooler = start(databases={"*": where}, auth_type="any")
    for name in NAMES:
        with pooler.raw(user=name, dbname=name, application_name=name) as raw:
            assert raw.value("SELECT 1") == "1"
            metrics = scrape(pooler.http)
            found = {own["database"] for own, _ in metrics.series("pgweir_pool_clients_pinned")}
            assert name in found, (name, found)
    with socket.create_connection((pooler.host, pooler.port), timeout=10) as sock:
        body = b"\0\3\0\0user\0u\xff\xfe\0database\0d\xc3\x28\0application_name\0\xf0\x9f\0\0"
        sock.sendall((len(body) + 4).to_bytes(4, "big") + body)
        sock.recv(1000)
        metrics = scrape(pooler.http)
        assert metrics.value("pgbouncer_up") == 1
    shown = Api(pooler).show("pools")
    assert set(NAMES) <= {row["database"] for row in shown}


def test_hostile_names_in_requests(start):
    """Names in requests do not break lines of the log, or answers."""
    pooler = start(**LOGINS, http_max_login_failures=1_000_000)
    for user in ["x\ny", "x\r\n2026 LOG forged", 'a"b', "a\x00b", "é", "x" * 5000]:
        answer = Api(pooler, basic(user, "wrong")).ask("/session")
        assert answer.status in (401, 431), (user, answer.text)
    assert Api(pooler).ask("/show/po%0aols").status == 404
    assert get(pooler.http, "/readyz?database=%22%0a%00").status == 404
    assert not any(line.startswith("2026 LOG forged") or line == "y" for line in pooler.log().splitlines())


# -- certificates and listeners

def test_a_client_certificate_logs_in(start, certificates):
    """A rule with `cert` applies to HTTPS as to clients: the certificate names the user, and pgweir does not check the
    password.
    """
    pooler = start(**certificates.pooler("verify-full"), client_tls_ca_file=certificates.authority.cert, admin_users="admin, trusty")
    rules = pooler.folder / "hba.conf"
    rules.write_text("local all all trust\nhostssl all all all cert\n")
    machine.give_to_service(rules)
    reload_locally(pooler, auth_type="hba", auth_hba_file=rules)
    trusted = ssl.create_default_context(cafile=certificates.authority.cert)
    trusted.load_cert_chain(certificates.client.cert, certificates.client.key)

    def status(user):
        secure = http.client.HTTPSConnection("localhost", pooler.http, timeout=20, context=trusted)
        return ask(secure, "/api/v1/session", Authorization=basic(user, "")).status
    assert status("trusty") == 200
    assert status("admin") == 401
    assert status("trusty") == 200


def reload_locally(pooler, **settings):
    """Changes settings, by the console's Unix socket."""
    pooler.settings |= settings
    pooler.write_files()
    with pooler.connect("admin", "pgbouncer", host=str(pooler.folder), password=pooler.users["admin"]) as console:
        console.execute("RELOAD")


def test_connections_that_wait_while_their_socket_closes(start):
    """Clients whose connections the process has not accepted yet are answered when http_listen changes."""
    pooler = start()
    path = pooler.folder / "http.sock"
    reload(pooler, http_listen=path)
    machine.wait_until(path.exists, what="the new socket")
    failures, answered = [], []
    stop = threading.Event()

    def connect_and_close():
        while not stop.is_set():
            try:
                sock = socket.socket(socket.AF_UNIX)
                sock.settimeout(20)
                sock.connect(str(path))
            except OSError:
                continue
            try:
                with sock:
                    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    answered.append(sock.recv(1000))
                    if not answered[-1]:
                        failures.append("closed")
            except OSError as error:
                failures.append(error)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(connect_and_close)
        try:
            for number in range(30):
                reload(pooler, http_listen=path if number % 2 else "")
            machine.wait_until(lambda: len(answered) > 50, what="clients are served")
        finally:
            stop.set()
    # A connection that arrives after the queue was last read, and before the socket is closed, may be lost.
    assert len(failures) <= 1 + len(answered) // 200, (len(answered), failures)


# -- settings of HTTP

@pytest.mark.shows("http_max_body")
def test_the_largest_body(start):
    pooler = start(http_max_body=2000)
    api = Api(pooler)
    small, large = '{"database": "%s"}' % ("x" * 1900), '{"database": "%s"}' % ("x" * 2100)
    assert api.ask("/commands/pause", "POST", small, Content_Type="application/json").status == 422
    refused = api.ask("/commands/pause", "POST", large, Content_Type="application/json")
    assert refused.status == 413 and "2000 bytes (http_max_body)" in refused.json["detail"]
    reload(pooler, http_max_body=4000)
    assert api.ask("/commands/pause", "POST", large, Content_Type="application/json").status == 422


@pytest.mark.shows("http_login_cache")
def test_a_right_password_is_trusted_for_a_while(start):
    """Without the cache, each request logs in, and SHOW STATS counts these logins."""
    pooler = start(**LOGINS, http_login_cache=0)
    api = Api(pooler)

    def logins():
        return scrape(pooler.http).value("pgweir_client_logins_total", result="ok")
    before = logins()
    for _ in range(5):
        assert api.ask("/session").status == 200
    assert logins() - before == 5
    reload(pooler, http_login_cache=60)
    before = logins()
    for _ in range(5):
        assert api.ask("/session").status == 200
    assert logins() - before == 1


@pytest.mark.shows("http_login_addresses")
def test_addresses_are_forgotten(start):
    """With room for one address, the failures of another address displace it."""
    pooler = start(**LOGINS, http_login_addresses=1, http_max_login_failures=2)

    def session(local, password):
        connection = http.client.HTTPConnection("127.0.0.1", pooler.http, timeout=20, source_address=(local, 0))
        return ask(connection, "/api/v1/session", Authorization=basic("admin", password)).status
    assert [session("127.0.0.2", "wrong") for _ in range(3)] == [401, 401, 429]
    assert session("127.0.0.3", "wrong") == 401
    assert session("127.0.0.2", pooler.users["admin"]) == 200
    assert scrape(pooler.http).value("pgweir_http_addresses_forgotten_total") == 1
